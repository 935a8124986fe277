//! From recorded statements to drivers and registers: the middle of the emitter, which knows no Verilog syntax.
//!
//! ```text
//! Kernel ─> graph (widths, simple forms) ─> actions (per target) ─> latch check ─> drivers and registers ─> loop check
//! ```
//!
//! A register that only ever holds its value or takes a new one needs no separate next value: its assignments
//! become non-blocking assignments in its `always @(posedge ..)`. The rest drives wires.
mod action;
mod coverage;
mod graph;
mod loops;
mod registers;
mod signals;
mod simplify;
mod usage;

pub(crate) use action::{Action, Effect};
pub(crate) use graph::{Graph, operands};
pub(crate) use registers::Domain;
pub(crate) use signals::{Role, Signals};
pub(crate) use usage::{Usage, continues_chain};

use crate::design::Scope;
use crate::error::LocalFault;
use crate::ir::{Item, Kernel, NodeId, SignalKey};
use std::collections::{BTreeMap, BTreeSet};

/// Index of a signal in [`Signals`]; replaces the address of the signal once the kernel is imported.
pub(crate) type SignalId = SignalKey;

/// One printed piece of combinational logic, in the order of the source.
#[derive(Clone, Debug)]
pub(crate) enum Driver {
    /// A `let`.
    Wire { node: NodeId, comments: Vec<String> },
    /// The one unconditional assignment of a signal, or of a part of it that no other touches.
    Assign { signal: SignalId, part: Option<(usize, usize)>, value: NodeId, comments: Vec<String> },
    /// Assignments under conditions.
    Always(Vec<Action>),
}

/// A kernel, ready to be printed.
pub(crate) struct Netlist {
    pub(crate) signals: Signals,
    pub(crate) graph: Graph,
    pub(crate) drivers: Vec<Driver>,
    /// The clocked part.
    pub(crate) domains: Vec<Domain>,
    /// For every output that follows inputs within the cycle, those inputs.
    pub(crate) paths: Vec<(SignalId, Vec<SignalId>)>,
}

impl Netlist {
    pub(crate) fn new(scope: &Scope, kernel: &Kernel) -> Result<Self, Vec<LocalFault>> {
        let signals = Signals::new(scope);
        let recorded: Vec<_> = kernel.faults.iter().map(|fault| recorded_fault(&signals, fault)).collect();
        if !recorded.is_empty() {
            return Err(recorded);
        }
        let mut graph = Graph::import(kernel, &signals)?;
        let items = import_items(&kernel.items, &mut graph, &signals)?;
        let items = remove_overridden(items);
        let mut faults = check_driven(&signals, &items);
        faults.extend(coverage::check(&signals, items.iter().filter_map(as_action)));
        if !faults.is_empty() {
            return Err(faults);
        }
        let (items, domains) = registers::extract(&signals, &mut graph, items);
        let drivers = group(items, &mut graph, &signals);
        let drivers = loops::split(&signals, &graph, drivers);
        if let Some(fault) = loops::find(&signals, &graph, &drivers) {
            return Err(vec![fault]);
        }
        let paths = loops::paths(&signals, &graph, &drivers);
        Ok(Netlist { signals, graph, drivers, domains, paths })
    }
}

/// A `let` or an effect, imported.
#[derive(Clone, Debug)]
enum Entry {
    Wire { node: NodeId, comments: Vec<String> },
    Action(Action),
}

fn as_action(entry: &Entry) -> Option<&Action> {
    match entry {
        Entry::Action(action) => Some(action),
        Entry::Wire { .. } => None,
    }
}

fn recorded_fault(signals: &Signals, fault: &crate::ir::RecordFault) -> LocalFault {
    let signal = fault.signal.and_then(|key| signals.find(key)).map(|id| signals[id].rust_name.clone());
    LocalFault { signal, cause: fault.cause.clone(), location: None }.at(&fault.location)
}

fn import_items(items: &[Item], graph: &mut Graph, signals: &Signals) -> Result<Vec<Entry>, Vec<LocalFault>> {
    let mut faults = Vec::new();
    let mut entries = Vec::new();
    for item in items {
        match item {
            Item::Wire { node, comments } => {
                entries.push(Entry::Wire { node: graph.current(*node), comments: comments.clone() });
            }
            Item::Statement(statement) => {
                let actions = action::import(statement, graph, signals, &mut faults);
                entries.extend(actions.into_iter().map(Entry::Action));
            }
        }
    }
    if faults.is_empty() { Ok(entries) } else { Err(faults) }
}

/// An unconditional assignment overrides all before it, which then need not be printed.
fn remove_overridden(entries: Vec<Entry>) -> Vec<Entry> {
    let mut overridden = BTreeSet::new();
    let mut kept = Vec::new();
    for entry in entries.into_iter().rev() {
        match entry {
            Entry::Wire { .. } => kept.push(entry),
            Entry::Action(action) => {
                kept.extend(action.only(&|signal| !overridden.contains(&signal)).map(Entry::Action));
                overridden.extend(action.full_assignment().map(|(signal, _)| signal));
            }
        }
    }
    kept.reverse();
    kept
}

/// Everything that this block must drive is driven somewhere.
fn check_driven(signals: &Signals, entries: &[Entry]) -> Vec<LocalFault> {
    let mut driven = BTreeSet::new();
    entries.iter().filter_map(as_action).for_each(|action| action.collect_targets(&mut driven));
    let undriven = signals.iter().filter(|(id, signal)| signal.role.is_driven_here() && !driven.contains(id));
    let faults = undriven.map(|(_, signal)| match signal.role {
        Role::ChildInput(_) | Role::RegisterInput(_) => {
            LocalFault::signal(&signal.rust_name, "is an input of a child and is never assigned")
        }
        _ => LocalFault::signal(&signal.rust_name, "is never assigned"),
    });
    faults.collect()
}

/// Actions that share a target share a driver; what is left alone and unconditional becomes an assignment.
fn group(entries: Vec<Entry>, graph: &mut Graph, signals: &Signals) -> Vec<Driver> {
    enum Slot {
        Driver(Driver),
        Moved,
    }
    let mut slots: Vec<Slot> = Vec::new();
    let mut slot_of: BTreeMap<SignalId, usize> = BTreeMap::new();
    for entry in entries {
        let place = slots.len();
        match entry {
            Entry::Wire { node, comments } => slots.push(Slot::Driver(Driver::Wire { node, comments })),
            Entry::Action(action) => {
                let targets = action.targets();
                let earlier: BTreeSet<_> =
                    targets.iter().filter_map(|target| slot_of.get(target).copied()).collect();
                let mut block = Vec::new();
                for index in earlier {
                    if let Slot::Driver(Driver::Always(actions)) =
                        std::mem::replace(&mut slots[index], Slot::Moved)
                    {
                        actions.iter().flat_map(Action::targets).for_each(|target| {
                            slot_of.insert(target, place);
                        });
                        block.extend(actions);
                    }
                }
                slot_of.extend(targets.into_iter().map(|target| (target, place)));
                block.push(action);
                slots.push(Slot::Driver(Driver::Always(block)));
            }
        }
    }
    let drivers = slots.into_iter().filter_map(|slot| match slot {
        Slot::Driver(driver) => Some(driver),
        Slot::Moved => None,
    });
    drivers.flat_map(simplify).map(|driver| settle(driver, graph, signals)).collect()
}

/// Unconditional assignments that do not touch each other need no `always`.
fn simplify(driver: Driver) -> Vec<Driver> {
    let Driver::Always(actions) = &driver else { return vec![driver] };
    let mut taken: Vec<(usize, usize)> = Vec::new();
    let mut drivers = Vec::new();
    for action in actions {
        let Effect::Assign { signal, part, value } = action.effect else { return vec![driver] };
        let (start, end) = part.map_or((0, usize::MAX), |(offset, width)| (offset, offset + width));
        if taken.iter().any(|&(other_start, other_end)| start < other_end && other_start < end) {
            return vec![driver];
        }
        taken.push((start, end));
        drivers.push(Driver::Assign { signal, part, value, comments: action.comments.clone() });
    }
    drivers
}

/// An `always @(*)` that reads nothing would never run; what it assigns is put together from its parts instead.
fn settle(driver: Driver, graph: &mut Graph, signals: &Signals) -> Driver {
    let Driver::Always(actions) = &driver else { return driver };
    let mut nodes = Vec::new();
    actions.iter().for_each(|action| action.collect_nodes(&mut nodes));
    let is_variable = |signal: &SignalId| signals[*signal].role != Role::Constant;
    if graph.signals_read(nodes).iter().any(is_variable) {
        return driver;
    }
    let mut comments = Vec::new();
    let mut target = None;
    // The bits of the target from the lowest on, each piece with the value it comes from.
    let mut pieces: Vec<(usize, usize, NodeId)> = Vec::new();
    for action in actions {
        let Effect::Assign { signal, part, value } = action.effect else { return driver };
        let (offset, width) = part.unwrap_or((0, signals[signal].width));
        pieces = overwrite(pieces, graph, (offset, width, value));
        comments.extend(action.comments.iter().cloned());
        target = Some(signal);
    }
    let Some(signal) = target else { return driver };
    let parts = pieces.iter().rev().map(|&(_, _, value)| value).collect();
    let value = graph.concat(parts, signals[signal].width, None);
    Driver::Assign { signal, part: None, value, comments }
}

/// Puts one piece (offset, width, value) over others.
fn overwrite(
    pieces: Vec<(usize, usize, NodeId)>,
    graph: &mut Graph,
    piece: (usize, usize, NodeId),
) -> Vec<(usize, usize, NodeId)> {
    let (start, end) = (piece.0, piece.0 + piece.1);
    let mut result = vec![piece];
    for (offset, width, value) in pieces {
        for (from, to) in [(offset, start.min(offset + width)), (end.max(offset), offset + width)] {
            if from < to {
                result.push((from, to - from, graph.slice(value, from - offset, to - from, None)));
            }
        }
    }
    result.sort_unstable();
    result
}
