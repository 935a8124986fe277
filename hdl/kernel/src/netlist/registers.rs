//! Registers: which clock and reset each has, and what it takes on at the edge.
use super::{Action, Effect, Entry, Graph, Role, SignalId, Signals};
use crate::ir::{Location, NodeId, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Registers that share a clock and a reset, and are printed in one `always @(posedge ..)`.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    pub(crate) clock: NodeId,
    /// `None` for registers that no reset touches. They get a domain of their own: inside the `else` of a reset
    /// they would hold during reset, and so get an enable that the author did not write.
    pub(crate) reset: Option<NodeId>,
    /// The `d` of each register, in the order of the fields.
    pub(crate) registers: Vec<SignalId>,
    /// Their targets are `d`s; to be printed as non-blocking assignments of the register itself.
    pub(crate) actions: Vec<Action>,
}

/// The four ports of a register; `reset` only if it has one.
struct Ports {
    clock: SignalId,
    reset: Option<SignalId>,
    d: SignalId,
    q: SignalId,
}

/// Moves the assignments of registers out of the combinational logic.
pub(super) fn extract(
    signals: &Signals,
    graph: &mut Graph,
    entries: Vec<Entry>,
) -> (Vec<Entry>, Vec<Domain>) {
    let registers = find(signals);
    let read = read_signals(graph, &entries);
    let sources = plain_sources(&entries, &read);
    let mut consumed = BTreeSet::new();
    let mut source = |port: SignalId, graph: &mut Graph| {
        let node = sources.get(&port).copied();
        consumed.extend(node.map(|_| port));
        node.unwrap_or_else(|| graph.push(Op::Signal(port), signals[port].width, None))
    };
    let mut domains: Vec<Domain> = Vec::new();
    for register in &registers {
        let clock = source(register.clock, graph);
        let reset = register.reset.map(|port| source(port, graph));
        let reset = reset.filter(|&node| graph.literal(node).is_none_or(|value| value.bits() != 0));
        let place = domains.iter().position(|domain| same_domain(graph, domain, clock, reset));
        let place = place.unwrap_or_else(|| {
            domains.push(Domain { clock, reset, registers: Vec::new(), actions: Vec::new() });
            domains.len() - 1
        });
        domains[place].registers.push(register.d);
    }
    // A next value that something else looks at as well must exist as a wire.
    let wired: BTreeSet<_> =
        registers.iter().map(|register| register.d).filter(|d| read.contains(d)).collect();
    for domain in &mut domains {
        let own: BTreeSet<_> = domain.registers.iter().copied().filter(|d| !wired.contains(d)).collect();
        let actions = entries.iter().filter_map(super::as_action);
        let actions: Vec<_> =
            actions.filter_map(|action| action.only(&|signal| own.contains(&signal))).collect();
        domain.actions = without_holding(&registers, graph, actions);
        for &d in domain.registers.iter().filter(|d| wired.contains(d)) {
            let value = graph.push(Op::Signal(d), signals[d].width, None);
            domain.actions.push(assignment(d, value));
        }
        keep_idle_registers(&registers, graph, signals, domain);
    }
    let clocked: BTreeSet<_> =
        registers.iter().map(|register| register.d).filter(|d| !wired.contains(d)).collect();
    let stays = |signal: SignalId| !clocked.contains(&signal) && !consumed.contains(&signal);
    let entries = entries.into_iter().filter_map(|entry| match entry {
        Entry::Wire { .. } => Some(entry),
        Entry::Action(action) => action.only(&stays).map(Entry::Action),
    });
    (entries.collect(), domains)
}

fn find(signals: &Signals) -> Vec<Ports> {
    let mut registers: BTreeMap<usize, BTreeMap<&str, SignalId>> = BTreeMap::new();
    for (id, signal) in signals.iter() {
        if let Role::RegisterInput(child) | Role::RegisterOutput(child) = signal.role {
            registers.entry(child).or_default().insert(&signal.port_name, id);
        }
    }
    let complete = registers.values().map(|ports| Ports {
        clock: ports["clock"],
        reset: ports.get("reset").copied(),
        d: ports["d"],
        q: ports["q"],
    });
    complete.collect()
}

fn same_domain(graph: &Graph, domain: &Domain, clock: NodeId, reset: Option<NodeId>) -> bool {
    let canonical = |node| graph.canonical(node);
    canonical(domain.clock) == canonical(clock) && domain.reset.map(canonical) == reset.map(canonical)
}

fn read_signals(graph: &Graph, entries: &[Entry]) -> BTreeSet<SignalId> {
    let mut nodes = Vec::new();
    entries.iter().filter_map(super::as_action).for_each(|action| action.collect_nodes(&mut nodes));
    graph.signals_read(nodes).into_iter().collect()
}

/// The values of signals that have exactly one assignment, an unconditional one, and that nobody reads.
fn plain_sources(entries: &[Entry], read: &BTreeSet<SignalId>) -> BTreeMap<SignalId, NodeId> {
    let mut sources = BTreeMap::new();
    let mut assigned = BTreeMap::new();
    for action in entries.iter().filter_map(super::as_action) {
        action.targets().into_iter().for_each(|signal| *assigned.entry(signal).or_insert(0) += 1);
        sources.extend(action.full_assignment());
    }
    sources.retain(|signal, _| assigned[signal] == 1 && !read.contains(signal));
    sources
}

fn assignment(signal: SignalId, value: NodeId) -> Action {
    let effect = Effect::Assign { signal, part: None, value };
    Action { comments: Vec::new(), location: Location::default(), effect }
}

/// A register keeps its value by itself: `d = q` says nothing unless it takes an earlier assignment back.
fn without_holding(registers: &[Ports], graph: &Graph, actions: Vec<Action>) -> Vec<Action> {
    let outputs: BTreeMap<_, _> = registers.iter().map(|register| (register.d, register.q)).collect();
    let mut changed = BTreeSet::new();
    let mut keep = |signal: SignalId, part: Option<(usize, usize)>, value: NodeId| {
        let holds = part.is_none() && graph.signal(value) == outputs.get(&signal).copied();
        if !holds {
            changed.insert(signal);
        }
        !holds || changed.contains(&signal)
    };
    actions.iter().filter_map(|action| action.retain(&mut keep)).collect()
}

/// A register that nothing ever changes is still a register.
fn keep_idle_registers(registers: &[Ports], graph: &mut Graph, signals: &Signals, domain: &mut Domain) {
    let mut assigned = BTreeSet::new();
    domain.actions.iter().for_each(|action| action.collect_targets(&mut assigned));
    let outputs: BTreeMap<_, _> = registers.iter().map(|register| (register.d, register.q)).collect();
    for d in domain.registers.iter().filter(|d| !assigned.contains(d)) {
        let q = outputs[d];
        let value = graph.push(Op::Signal(q), signals[q].width, None);
        domain.actions.push(assignment(*d, value));
    }
}
