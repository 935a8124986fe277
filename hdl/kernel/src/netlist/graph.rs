//! The values of a kernel, checked.
//!
//! Nodes follow their operands, so every pass over the graph is a loop and none can overflow the stack.
use super::simplify::is_comparison;
use super::{Role, SignalId, Signals};
use crate::error::LocalFault;
use crate::ir::{BinaryOp, Kernel, Node, NodeId, Op, UnaryOp};
use num_bigint::BigUint;
use std::collections::HashMap;
use std::ops::Index;

#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    /// For every node, the first one that means the same.
    canonical: Vec<NodeId>,
    first_of: HashMap<(Op, usize), NodeId>,
    /// The first node of each field: of a base, at an offset, with a width.
    field_of: HashMap<(NodeId, usize, usize), NodeId>,
    /// Where the nodes of the kernel have gone.
    moved_to: Vec<NodeId>,
}

impl Index<NodeId> for Graph {
    type Output = Node;

    fn index(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }
}

/// The nodes that an operation takes.
pub(crate) fn operands(op: &Op) -> impl DoubleEndedIterator<Item = NodeId> {
    let (few, many): ([Option<NodeId>; 3], &[NodeId]) = match op {
        Op::Signal(_) | Op::Literal(_) => ([None; 3], &[]),
        Op::Unary(_, operand) | Op::Slice { base: operand, .. } => ([Some(*operand), None, None], &[]),
        Op::Binary(_, left, right) => ([Some(*left), Some(*right), None], &[]),
        Op::Select { condition, then, otherwise } => ([Some(*condition), Some(*then), Some(*otherwise)], &[]),
        Op::Concat(parts) => ([None; 3], parts),
    };
    few.into_iter().flatten().chain(many.iter().copied())
}

impl Graph {
    /// Takes over the values of a kernel; signals are known by their [`SignalId`] from here on.
    pub(crate) fn import(kernel: &Kernel, signals: &Signals) -> Result<Self, Vec<LocalFault>> {
        let mut graph = Graph::default();
        let mut faults = Vec::new();
        for (id, node) in kernel.nodes.iter().enumerate() {
            let checked = check_order(id, node)
                .and_then(|()| graph.relocate(&node.op, signals))
                .and_then(|op| graph.check(&op, node.width, signals).map(|()| op));
            let op = checked.unwrap_or_else(|mut fault| {
                fault.signal = fault.signal.or_else(|| node.name.clone());
                faults.push(fault);
                Op::Literal(BigUint::default())
            });
            let new_id = match (&op, &node.field) {
                (Op::Slice { base, .. }, Some(field)) if node.name.is_none() => {
                    let base = *base;
                    let new_id = graph.simplest(op, node.width, None, signals);
                    graph.field(new_id, base, field)
                }
                _ => graph.simplest(op, node.width, node.name.as_deref(), signals),
            };
            graph.moved_to.push(new_id);
        }
        if faults.is_empty() { Ok(graph) } else { Err(faults) }
    }

    /// The node that a node of the kernel has become.
    pub(crate) fn current(&self, node: NodeId) -> NodeId {
        self.moved_to[node]
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Nodes with the same canonical node have the same value, whatever their names.
    pub(crate) fn canonical(&self, node: NodeId) -> NodeId {
        self.canonical[node]
    }

    /// The number a node stands for, if it is known.
    pub(crate) fn literal(&self, node: NodeId) -> Option<&BigUint> {
        match &self.nodes[node].op {
            Op::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// The signal a node stands for, if it is just that.
    pub(crate) fn signal(&self, node: NodeId) -> Option<SignalId> {
        match self.nodes[node].op {
            Op::Signal(signal) => Some(signal),
            _ => None,
        }
    }

    /// The number that a node stands for, itself or as a `Constant`.
    pub(crate) fn known(&self, node: NodeId, signals: &Signals) -> Option<BigUint> {
        match &self.nodes[node].op {
            Op::Literal(value) => Some(value.clone()),
            Op::Signal(signal) if signals[*signal].role == Role::Constant => {
                Some(signals[*signal].value.clone())
            }
            _ => None,
        }
    }

    pub(crate) fn push(&mut self, op: Op, width: usize, name: Option<String>) -> NodeId {
        let id = self.nodes.len();
        let key = (self.canonical_op(&op), width);
        self.canonical.push(*self.first_of.entry(key).or_insert(id));
        self.nodes.push(Node { op, width, name, field: None });
        id
    }

    /// A slice of `base` that is a field: the one node that all mentions of the field share.
    fn field(&mut self, node: NodeId, base: NodeId, field: &str) -> NodeId {
        let Node { op: Op::Slice { base: found, offset }, name: None, width, .. } = self.nodes[node] else {
            return node;
        };
        // What looked through the base has other fields.
        if found != base {
            return node;
        }
        let whole = if self.nodes[base].name.is_some() { base } else { self.canonical[base] };
        let first = *self.field_of.entry((whole, offset, width)).or_insert(node);
        self.nodes[first].field.get_or_insert_with(|| field.to_owned());
        first
    }

    fn canonical_op(&self, op: &Op) -> Op {
        let canonical = |node: &NodeId| self.canonical[*node];
        match op {
            Op::Signal(_) | Op::Literal(_) => op.clone(),
            Op::Unary(operator, operand) => Op::Unary(*operator, canonical(operand)),
            Op::Binary(operator, left, right) => Op::Binary(*operator, canonical(left), canonical(right)),
            Op::Select { condition, then, otherwise } => Op::Select {
                condition: canonical(condition),
                then: canonical(then),
                otherwise: canonical(otherwise),
            },
            Op::Slice { base, offset } => Op::Slice { base: canonical(base), offset: *offset },
            Op::Concat(parts) => Op::Concat(parts.iter().map(canonical).collect()),
        }
    }

    /// The operation with its operands and signals where they are now.
    fn relocate(&mut self, op: &Op, signals: &Signals) -> Result<Op, LocalFault> {
        let moved_to = std::mem::take(&mut self.moved_to);
        let op = self.relocated(op, signals, &moved_to);
        self.moved_to = moved_to;
        op
    }

    fn relocated(&mut self, op: &Op, signals: &Signals, moved_to: &[NodeId]) -> Result<Op, LocalFault> {
        let moved = |node: &NodeId| moved_to[*node];
        Ok(match op {
            Op::Signal(key) => {
                let unknown =
                    "a signal is read that is neither of this block nor a port of one of its children";
                Op::Signal(signals.find(*key).ok_or_else(|| LocalFault::block(unknown))?)
            }
            Op::Literal(value) => Op::Literal(value.clone()),
            Op::Unary(operator, operand) => Op::Unary(*operator, moved(operand)),
            Op::Binary(operator, left, right) => Op::Binary(*operator, moved(left), moved(right)),
            Op::Select { condition, then, otherwise } => {
                Op::Select { condition: moved(condition), then: moved(then), otherwise: moved(otherwise) }
            }
            Op::Slice { base, offset } => {
                let base = moved(base);
                Op::Slice { base: self.constant(base, signals).unwrap_or(base), offset: *offset }
            }
            Op::Concat(parts) => {
                let parts = parts.iter().map(moved).filter(|&part| self.nodes[part].width > 0);
                Op::Concat(parts.collect())
            }
        })
    }

    /// The number that a `Constant` stands for: Verilog has no slices of constants.
    fn constant(&mut self, node: NodeId, signals: &Signals) -> Option<NodeId> {
        let signal = &signals[self.signal(node)?];
        if signal.role != Role::Constant {
            return None;
        }
        Some(self.push(Op::Literal(signal.value.clone()), signal.width, None))
    }

    /// The contract of `ir`: every operand has the width that its operator asks for.
    fn check(&self, op: &Op, width: usize, signals: &Signals) -> Result<(), LocalFault> {
        let width_of = |node: &NodeId| self.nodes[*node].width;
        let expect = |found: usize, wanted: usize, what: &str| {
            if found == wanted {
                return Ok(());
            }
            Err(LocalFault::block(format!("{what} has {found} bits and needs {wanted}")))
        };
        match op {
            Op::Signal(signal) => {
                let name = &signals[*signal].rust_name;
                expect(signals[*signal].width, width, &format!("a read of `{name}`"))
            }
            Op::Literal(value) if value.bits() > width as u64 => {
                Err(LocalFault::block(format!("the constant {value:#x} does not fit in {width} bits")))
            }
            Op::Literal(_) => Ok(()),
            Op::Unary(UnaryOp::Not, operand) => expect(width_of(operand), width, "the operand of `!`"),
            Op::Unary(_, _) => expect(width, 1, "the result of a reduction"),
            Op::Binary(operator, left, right) => match operator {
                BinaryOp::Shl | BinaryOp::Shr => expect(width_of(left), width, "a shifted value"),
                operator if is_comparison(*operator) => {
                    expect(width, 1, "a comparison")?;
                    expect(width_of(right), width_of(left), "the right side of a comparison")
                }
                _ => {
                    expect(width_of(left), width, "a left operand")?;
                    expect(width_of(right), width, "a right operand")
                }
            },
            Op::Select { condition, then, otherwise } => {
                expect(width_of(condition), 1, "a condition")?;
                expect(width_of(then), width, "one choice")?;
                expect(width_of(otherwise), width, "the other choice")
            }
            Op::Slice { base, offset } if offset + width > width_of(base) => Err(LocalFault::block(format!(
                "bits {} down to {offset} do not exist in a value of {} bits",
                offset + width - 1,
                width_of(base)
            ))),
            Op::Slice { .. } => Ok(()),
            Op::Concat(parts) => {
                expect(parts.iter().map(width_of).sum(), width, "what is concatenated, taken together,")
            }
        }
    }

    /// The signals that some values follow within the cycle, through wires, in ascending order.
    pub(crate) fn signals_read(&self, nodes: impl IntoIterator<Item = NodeId>) -> Vec<SignalId> {
        let mut pending: Vec<_> = nodes.into_iter().collect();
        let mut seen = std::collections::HashSet::new();
        let mut found = std::collections::BTreeSet::new();
        while let Some(node) = pending.pop() {
            if seen.insert(node) {
                found.extend(self.signal(node));
                pending.extend(operands(&self.nodes[node].op));
            }
        }
        found.into_iter().collect()
    }
}

fn check_order(id: NodeId, node: &Node) -> Result<(), LocalFault> {
    if operands(&node.op).all(|operand| operand < id) {
        return Ok(());
    }
    Err(LocalFault::block("a value is recorded before its operands"))
}
