//! Effects with their else-if chains laid flat, so that a long `match` is long and not deep.
use super::{Graph, Role, SignalId, Signals};
use crate::error::LocalFault;
use crate::ir::{Location, NodeId, Statement, StatementKind, Target};
use std::collections::{BTreeSet, HashSet};

#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) comments: Vec<String>,
    pub(crate) location: Location,
    pub(crate) effect: Effect,
}

#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Assign {
        signal: SignalId,
        /// `Some((offset, width))` if only these bits are written.
        part: Option<(usize, usize)>,
        value: NodeId,
    },
    /// The first arm whose condition holds, or else the last block.
    If { arms: Vec<(NodeId, Vec<Action>)>, otherwise: Vec<Action> },
    Case {
        subject: NodeId,
        arms: Vec<(Vec<NodeId>, Vec<Action>)>,
        /// What the labels of the default would be; they are printed as a comment.
        default_labels: Vec<NodeId>,
        default: Vec<Action>,
    },
}

impl Action {
    pub(crate) fn collect_targets(&self, targets: &mut BTreeSet<SignalId>) {
        if let Effect::Assign { signal, .. } = self.effect {
            targets.insert(signal);
        }
        self.blocks().flatten().for_each(|action| action.collect_targets(targets));
    }

    pub(crate) fn targets(&self) -> BTreeSet<SignalId> {
        let mut targets = BTreeSet::new();
        self.collect_targets(&mut targets);
        targets
    }

    /// The blocks of its branches, the default last.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Vec<Action>> {
        let (conditional, labelled, default) = match &self.effect {
            Effect::Assign { .. } => (None, None, None),
            Effect::If { arms, otherwise } => (Some(arms), None, Some(otherwise)),
            Effect::Case { arms, default, .. } => (None, Some(arms), Some(default)),
        };
        let conditional = conditional.into_iter().flatten().map(|(_, block)| block);
        let labelled = labelled.into_iter().flatten().map(|(_, block)| block);
        conditional.chain(labelled).chain(default)
    }

    /// Whether this assigns a whole signal unconditionally.
    pub(crate) fn full_assignment(&self) -> Option<(SignalId, NodeId)> {
        match self.effect {
            Effect::Assign { signal, part: None, value } => Some((signal, value)),
            _ => None,
        }
    }

    /// The action with only the assignments whose target passes; `None` if nothing is left.
    pub(crate) fn only(&self, keep: &impl Fn(SignalId) -> bool) -> Option<Action> {
        self.retain(&mut |signal, _, _| keep(signal))
    }

    /// The action with only the assignments (signal, part, value) that pass; they are asked about in source order.
    pub(crate) fn retain(
        &self,
        keep: &mut impl FnMut(SignalId, Option<(usize, usize)>, NodeId) -> bool,
    ) -> Option<Action> {
        let effect = match &self.effect {
            Effect::Assign { signal, part, value } => {
                if !keep(*signal, *part, *value) {
                    return None;
                }
                self.effect.clone()
            }
            Effect::If { arms, otherwise } => {
                let arms = arms.iter().map(|(condition, block)| (*condition, retain(block, keep)));
                let mut arms: Vec<_> = arms.collect();
                let otherwise = retain(otherwise, keep);
                while otherwise.is_empty() && arms.last().is_some_and(|(_, block)| block.is_empty()) {
                    arms.pop();
                }
                if arms.is_empty() {
                    return None;
                }
                Effect::If { arms, otherwise }
            }
            Effect::Case { subject, arms, default_labels, default } => {
                let arms = arms.iter().map(|(labels, block)| (labels.clone(), retain(block, keep)));
                let arms: Vec<_> = arms.collect();
                let default = retain(default, keep);
                if default.is_empty() && arms.iter().all(|(_, block)| block.is_empty()) {
                    return None;
                }
                Effect::Case { subject: *subject, arms, default_labels: default_labels.clone(), default }
            }
        };
        Some(Action { comments: self.comments.clone(), location: self.location.clone(), effect })
    }

    /// Every value that it mentions.
    pub(crate) fn collect_nodes(&self, nodes: &mut Vec<NodeId>) {
        match &self.effect {
            Effect::Assign { value, .. } => nodes.push(*value),
            Effect::If { arms, .. } => nodes.extend(arms.iter().map(|(condition, _)| *condition)),
            Effect::Case { subject, arms, .. } => {
                nodes.push(*subject);
                nodes.extend(arms.iter().flat_map(|(labels, _)| labels));
            }
        }
        self.blocks().flatten().for_each(|action| action.collect_nodes(nodes));
    }
}

fn retain(
    block: &[Action],
    keep: &mut impl FnMut(SignalId, Option<(usize, usize)>, NodeId) -> bool,
) -> Vec<Action> {
    block.iter().filter_map(|action| action.retain(keep)).collect()
}

/// Takes over a statement. Branches that are decided already are taken or left out.
pub(crate) fn import(
    statement: &Statement,
    graph: &Graph,
    signals: &Signals,
    faults: &mut Vec<LocalFault>,
) -> Vec<Action> {
    let action = |effect| Action {
        comments: statement.comments.clone(),
        location: statement.location.clone(),
        effect,
    };
    match &statement.kind {
        StatementKind::Assign { target, value } => {
            let value = graph.current(*value);
            match check_target(target, graph[value].width, signals) {
                Ok(signal) => {
                    let width = signals[signal].width;
                    let part = target.part.filter(|part| *part != (0, width));
                    vec![action(Effect::Assign { signal, part, value })]
                }
                Err(fault) => {
                    faults.push(fault.at(&statement.location));
                    Vec::new()
                }
            }
        }
        StatementKind::If { .. } => {
            let (arms, otherwise) = import_chain(statement, graph, signals, faults);
            if arms.is_empty() {
                return otherwise;
            }
            vec![action(Effect::If { arms, otherwise })]
        }
        StatementKind::Case { subject, arms } => {
            let Some((last, labelled)) = arms.split_last() else { return Vec::new() };
            let mut seen = HashSet::new();
            let mut kept = Vec::new();
            for arm in labelled {
                let labels: Vec<_> = arm.labels.iter().map(|&label| graph.current(label)).collect();
                // In Rust the first arm that fits is taken; Verilog's linters want each label only once.
                let labels: Vec<_> =
                    labels.into_iter().filter(|&label| seen.insert(graph.literal(label).cloned())).collect();
                let block = import_block(&arm.body, graph, signals, faults);
                if !labels.is_empty() {
                    kept.push((labels, block));
                }
            }
            let default = import_block(&last.body, graph, signals, faults);
            if kept.is_empty() {
                return default;
            }
            let default_labels = last.labels.iter().map(|&label| graph.current(label)).collect();
            vec![action(Effect::Case {
                subject: graph.current(*subject),
                arms: kept,
                default_labels,
                default,
            })]
        }
    }
}

fn import_block(
    block: &[Statement],
    graph: &Graph,
    signals: &Signals,
    faults: &mut Vec<LocalFault>,
) -> Vec<Action> {
    block.iter().flat_map(|statement| import(statement, graph, signals, faults)).collect()
}

/// The arms of an if-else chain, up to the first comment between them.
fn import_chain(
    statement: &Statement,
    graph: &Graph,
    signals: &Signals,
    faults: &mut Vec<LocalFault>,
) -> (Vec<(NodeId, Vec<Action>)>, Vec<Action>) {
    let mut arms = Vec::new();
    let mut block = std::slice::from_ref(statement);
    while let [link] = block {
        let StatementKind::If { condition, then, otherwise } = &link.kind else { break };
        if !arms.is_empty() && !link.comments.is_empty() {
            break;
        }
        let condition = graph.current(*condition);
        match graph.known(condition, signals).map(|value| value.bits() == 1) {
            Some(true) => return (arms, import_block(then, graph, signals, faults)),
            Some(false) => {}
            None => arms.push((condition, import_block(then, graph, signals, faults))),
        }
        block = otherwise;
    }
    (arms, import_block(block, graph, signals, faults))
}

fn check_target(target: &Target, value_width: usize, signals: &Signals) -> Result<SignalId, LocalFault> {
    let unknown = "a signal is assigned that is neither of this block nor an input of one of its children";
    let id = signals.find(target.signal).ok_or_else(|| LocalFault::block(unknown))?;
    let signal = &signals[id];
    let refuse = |cause: String| Err(LocalFault::signal(&signal.rust_name, cause));
    match signal.role {
        Role::Input => return refuse("is an input and cannot be assigned".into()),
        Role::Constant => return refuse("is a constant and cannot be assigned".into()),
        Role::ChildOutput(_) => {
            return refuse("is driven by the child whose output it is, and cannot be assigned".into());
        }
        Role::RegisterOutput(_) => return refuse("is the output of a register; assign its `d`".into()),
        _ => {}
    }
    let (offset, width) = target.part.unwrap_or((0, signal.width));
    if offset + width > signal.width {
        return refuse(format!(
            "has {} bits; bits {} down to {offset} do not exist",
            signal.width,
            offset + width - 1
        ));
    }
    if width != value_width {
        return refuse(format!("is assigned {value_width} bits where it has {width}"));
    }
    Ok(id)
}
