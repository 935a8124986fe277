//! Combinational loops: false ones are taken apart, real ones are reported.
//!
//! Two signals of one `always` look to a simulator as if each depended on all that the other reads. Where that
//! closes a loop that is not there, each signal gets an `always` of its own.
use super::{Driver, Effect, Graph, Role, SignalId, Signals, operands};
use crate::error::LocalFault;
use crate::ir::NodeId;
use crate::netlist::Action;
use std::collections::{BTreeMap, BTreeSet};

/// What each vertex follows within the cycle. Vertices are the nodes, then the signals, then the drivers.
struct Dependencies {
    follows: Vec<Vec<usize>>,
    nodes: usize,
    signals: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Grain {
    /// All targets of an `always` follow all that it reads: how a simulator schedules.
    Driver,
    /// A target follows its own values and the conditions around them: how the hardware works.
    Target,
}

impl Dependencies {
    fn new(signals: &Signals, graph: &Graph, drivers: &[Driver], grain: Grain) -> Self {
        let (nodes, signal_count) = (graph.len(), signals.len());
        let mut follows = vec![Vec::new(); nodes + signal_count + drivers.len()];
        for (node, edges) in follows.iter_mut().enumerate().take(nodes) {
            edges.extend(operands(&graph[node].op).chain(graph.signal(node).map(|signal| nodes + signal)));
        }
        for (output, _) in signals.iter() {
            follows[nodes + output].extend(signals.path_to(output).iter().map(|input| nodes + input));
        }
        for (index, driver) in drivers.iter().enumerate() {
            match driver {
                Driver::Wire { .. } => {}
                Driver::Assign { signal, value, .. } => follows[nodes + signal].push(*value),
                Driver::Always(actions) if grain == Grain::Target => {
                    let mut sources = BTreeMap::new();
                    actions.iter().for_each(|action| collect_sources(action, &mut Vec::new(), &mut sources));
                    for (signal, values) in sources {
                        follows[nodes + signal].extend(values);
                    }
                }
                Driver::Always(actions) => {
                    let vertex = nodes + signal_count + index;
                    for action in actions {
                        action.collect_nodes(&mut follows[vertex]);
                        action.targets().into_iter().for_each(|target| follows[nodes + target].push(vertex));
                    }
                }
            }
        }
        Dependencies { follows, nodes, signals: signal_count }
    }

    /// Whether each vertex lies on a cycle, or on a path from one cycle to another.
    fn core(&self) -> Vec<bool> {
        let mut followers = vec![Vec::new(); self.follows.len()];
        for (vertex, edges) in self.follows.iter().enumerate() {
            edges.iter().for_each(|&edge| followers[edge].push(vertex));
        }
        let mut core = vec![true; self.follows.len()];
        peel(&self.follows, &followers, &mut core);
        peel(&followers, &self.follows, &mut core);
        core
    }

    fn signal(&self, vertex: usize) -> Option<SignalId> {
        vertex.checked_sub(self.nodes).filter(|&signal| signal < self.signals)
    }
}

/// Removes, again and again, what has no successor left.
fn peel(successors: &[Vec<usize>], predecessors: &[Vec<usize>], core: &mut [bool]) {
    let mut left: Vec<_> =
        successors.iter().map(|edges| edges.iter().filter(|&&edge| core[edge]).count()).collect();
    let mut pending: Vec<_> = (0..core.len()).filter(|&vertex| core[vertex] && left[vertex] == 0).collect();
    while let Some(vertex) = pending.pop() {
        core[vertex] = false;
        for &predecessor in &predecessors[vertex] {
            left[predecessor] -= 1;
            if core[predecessor] && left[predecessor] == 0 {
                pending.push(predecessor);
            }
        }
    }
}

/// For every target, its values and the conditions around them.
fn collect_sources(
    action: &Action,
    conditions: &mut Vec<NodeId>,
    sources: &mut BTreeMap<SignalId, BTreeSet<NodeId>>,
) {
    let depth = conditions.len();
    match &action.effect {
        Effect::Assign { signal, value, .. } => {
            let values = sources.entry(*signal).or_default();
            values.insert(*value);
            values.extend(conditions.iter().copied());
        }
        Effect::If { arms, .. } => conditions.extend(arms.iter().map(|(condition, _)| *condition)),
        Effect::Case { subject, .. } => conditions.push(*subject),
    }
    action.blocks().flatten().for_each(|action| collect_sources(action, conditions, sources));
    conditions.truncate(depth);
}

/// Gives each signal of an `always` that lies on a loop one of its own.
pub(super) fn split(signals: &Signals, graph: &Graph, drivers: Vec<Driver>) -> Vec<Driver> {
    let dependencies = Dependencies::new(signals, graph, &drivers, Grain::Driver);
    let core = dependencies.core();
    let first_driver = dependencies.nodes + dependencies.signals;
    let split = drivers.into_iter().enumerate().flat_map(|(index, driver)| match driver {
        Driver::Always(actions) if core[first_driver + index] => by_target(&actions),
        driver => vec![driver],
    });
    split.collect()
}

fn by_target(actions: &[Action]) -> Vec<Driver> {
    let mut targets = BTreeSet::new();
    actions.iter().for_each(|action| action.collect_targets(&mut targets));
    let alone = targets.into_iter().flat_map(|target| {
        let own = actions.iter().filter_map(|action| action.only(&|signal| signal == target));
        super::simplify(Driver::Always(own.collect()))
    });
    alone.collect()
}

/// Reports a loop that is there.
pub(super) fn find(signals: &Signals, graph: &Graph, drivers: &[Driver]) -> Option<LocalFault> {
    let dependencies = Dependencies::new(signals, graph, drivers, Grain::Target);
    let core = dependencies.core();
    let mut vertex = core.iter().position(|&on_loop| on_loop)?;
    let mut walked: Vec<usize> = Vec::new();
    let start = loop {
        if let Some(start) = walked.iter().position(|&earlier| earlier == vertex) {
            break start;
        }
        walked.push(vertex);
        vertex = *dependencies.follows[vertex].iter().find(|&&next| core[next])?;
    };
    let names = walked[start..].iter().filter_map(|&vertex| dependencies.signal(vertex));
    let names: Vec<_> = names.map(|signal| signals[signal].rust_name.as_str()).collect();
    let (first, rest) = names.split_first()?;
    let cause = match rest {
        [] => "follows itself within the cycle: a combinational loop".to_owned(),
        rest => {
            let through: Vec<_> = rest.iter().map(|name| format!("`{name}`")).collect();
            format!("follows itself within the cycle, through {}: a combinational loop", through.join(", "))
        }
    };
    Some(LocalFault::signal(*first, cause))
}

/// For every output that follows inputs within the cycle, those inputs.
pub(super) fn paths(signals: &Signals, graph: &Graph, drivers: &[Driver]) -> Vec<(SignalId, Vec<SignalId>)> {
    let dependencies = Dependencies::new(signals, graph, drivers, Grain::Target);
    let outputs = signals.iter().filter(|(_, signal)| signal.role == Role::Output);
    let mut paths = Vec::new();
    let mut seen = vec![usize::MAX; dependencies.follows.len()];
    for (output, _) in outputs {
        let mut pending = vec![dependencies.nodes + output];
        let mut inputs = BTreeSet::new();
        while let Some(vertex) = pending.pop() {
            if seen[vertex] == output {
                continue;
            }
            seen[vertex] = output;
            inputs.extend(dependencies.signal(vertex).filter(|&signal| signals[signal].role == Role::Input));
            pending.extend(&dependencies.follows[vertex]);
        }
        if !inputs.is_empty() {
            paths.push((output, inputs.into_iter().collect()));
        }
    }
    paths
}
