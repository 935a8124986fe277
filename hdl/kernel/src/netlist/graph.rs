//! The values of a kernel, checked and in their simplest form.
//!
//! Nodes stand after their operands, so every pass over the graph is a loop and none can overflow the stack.
use super::{Role, SignalId, Signals};
use crate::error::LocalFault;
use crate::ir::{BinaryOp, Kernel, Node, NodeId, Op, UnaryOp};
use num_bigint::BigUint;
use std::collections::HashMap;
use std::ops::Index;

/// Parts of an inner concatenation that may be repeated in an outer one, instead of being shared.
const NESTED_PARTS: usize = 8;

#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    /// For every node, the first one that means the same.
    canonical: Vec<NodeId>,
    first_of: HashMap<(Op, usize), NodeId>,
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
            let new_id = graph.simplest(op, node.width, node.name.as_deref(), signals);
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

    pub(crate) fn push(&mut self, op: Op, width: usize, name: Option<String>) -> NodeId {
        let id = self.nodes.len();
        let key = (self.canonical_op(&op), width);
        self.canonical.push(*self.first_of.entry(key).or_insert(id));
        self.nodes.push(Node { op, width, name });
        id
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

    /// Adds a node in its simplest form; without a name it may turn out to be one that is there already.
    fn simplest(&mut self, op: Op, width: usize, name: Option<&str>, signals: &Signals) -> NodeId {
        let name = name.map(str::to_owned);
        match op {
            Op::Slice { base, offset } => self.slice(base, offset, width, name),
            Op::Concat(parts) => self.concat(parts, width, name),
            Op::Unary(UnaryOp::Not, operand) => self.not(operand, width, name),
            Op::Unary(_, operand) if self.nodes[operand].width == 1 => self.renamed(operand, name),
            Op::Binary(BinaryOp::Shl | BinaryOp::Shr, _, distance)
                if self.literal(distance).is_some_and(|distance| *distance >= BigUint::from(width)) =>
            {
                self.push(Op::Literal(BigUint::default()), width, name)
            }
            Op::Select { condition, then, otherwise } => match self.known(condition, signals) {
                Some(known) => self.renamed(if known.bits() == 1 { then } else { otherwise }, name),
                None => self.push(op, width, name),
            },
            Op::Binary(operator, left, right) if is_comparison(operator) => {
                match (self.known(left, signals), self.known(right, signals)) {
                    (Some(left), Some(right)) => {
                        let is_true = compare(operator, &left, &right);
                        self.push(Op::Literal(BigUint::from(u8::from(is_true))), 1, name)
                    }
                    _ => self.push(op, width, name),
                }
            }
            op => self.push(op, width, name),
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

    /// The node itself, or under a new name a copy of it.
    fn renamed(&mut self, node: NodeId, name: Option<String>) -> NodeId {
        if name.is_none() {
            return node;
        }
        let Node { op, width, name: known } = self.nodes[node].clone();
        if known.is_none() || matches!(op, Op::Signal(_) | Op::Literal(_)) {
            return self.push(op, width, name);
        }
        self.push(Op::Slice { base: node, offset: 0 }, width, name)
    }

    /// A slice looks through whatever has no name of its own, since Verilog can slice names only.
    pub(crate) fn slice(
        &mut self,
        base: NodeId,
        offset: usize,
        width: usize,
        name: Option<String>,
    ) -> NodeId {
        let base_width = self.nodes[base].width;
        if width == base_width {
            return self.renamed(base, name);
        }
        let base_node = &self.nodes[base];
        match &base_node.op {
            Op::Literal(value) => {
                let mask = (BigUint::from(1u8) << width) - 1u8;
                let value = (value >> offset) & mask;
                self.push(Op::Literal(value), width, name)
            }
            Op::Slice { base: inner, offset: inner_offset } if base_node.name.is_none() => {
                let (inner, offset) = (*inner, inner_offset + offset);
                self.slice(inner, offset, width, name)
            }
            Op::Concat(parts) if base_node.name.is_none() => {
                match self.part_holding(parts.clone(), base_width, offset, width) {
                    Some((part, offset)) => self.slice(part, offset, width, name),
                    None => self.push(Op::Slice { base, offset }, width, name),
                }
            }
            _ => self.push(Op::Slice { base, offset }, width, name),
        }
    }

    /// The part of a concatenation in which all the wanted bits lie, and where in it they begin.
    fn part_holding(
        &self,
        parts: Vec<NodeId>,
        total: usize,
        offset: usize,
        width: usize,
    ) -> Option<(NodeId, usize)> {
        let mut top = total;
        for part in parts {
            let bottom = top - self.nodes[part].width;
            if bottom <= offset && offset + width <= top {
                return Some((part, offset - bottom));
            }
            top = bottom;
        }
        None
    }

    /// Neighbouring numbers become one number, neighbouring slices one slice, and braces inside braces vanish.
    pub(crate) fn concat(&mut self, parts: Vec<NodeId>, width: usize, name: Option<String>) -> NodeId {
        let flat = parts.iter().flat_map(|part| match &self.nodes[*part] {
            Node { op: Op::Concat(inner), name: None, .. } if inner.len() <= NESTED_PARTS => inner.as_slice(),
            _ => std::slice::from_ref(part),
        });
        let flat: Vec<_> = flat.copied().collect();
        let mut merged: Vec<NodeId> = Vec::new();
        for part in flat {
            match merged.last().and_then(|&previous| self.merge(previous, part)) {
                Some((op, width)) => {
                    merged.pop();
                    let joined = match op {
                        Op::Slice { base, offset } => self.slice(base, offset, width, None),
                        op => self.push(op, width, None),
                    };
                    merged.push(joined);
                }
                None => merged.push(part),
            }
        }
        match merged.as_slice() {
            [single] => self.renamed(*single, name),
            _ => self.push(Op::Concat(merged), width, name),
        }
    }

    fn merge(&self, high: NodeId, low: NodeId) -> Option<(Op, usize)> {
        let (high, low) = (&self.nodes[high], &self.nodes[low]);
        if high.name.is_some() || low.name.is_some() {
            return None;
        }
        let width = high.width + low.width;
        match (&high.op, &low.op) {
            (Op::Literal(first), Op::Literal(second)) => {
                Some((Op::Literal((first << low.width) | second), width))
            }
            (
                Op::Slice { base: high_base, offset: high_offset },
                Op::Slice { base: low_base, offset: low_offset },
            ) if self.canonical[*high_base] == self.canonical[*low_base]
                && low_offset + low.width == *high_offset =>
            {
                Some((Op::Slice { base: *low_base, offset: *low_offset }, width))
            }
            _ => None,
        }
    }

    /// `!(a == b)` is `a != b`, and `!!a` is `a`.
    fn not(&mut self, operand: NodeId, width: usize, name: Option<String>) -> NodeId {
        let inner = &self.nodes[operand];
        if inner.name.is_none() {
            match &inner.op {
                Op::Unary(UnaryOp::Not, original) => {
                    let original = *original;
                    return self.renamed(original, name);
                }
                Op::Binary(operator, left, right) => {
                    if let Some(inverse) = inverse(*operator) {
                        let op = Op::Binary(inverse, *left, *right);
                        return self.push(op, width, name);
                    }
                }
                _ => {}
            }
        }
        self.push(Op::Unary(UnaryOp::Not, operand), width, name)
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

pub(crate) fn is_comparison(operator: BinaryOp) -> bool {
    inverse(operator).is_some()
}

/// The comparison that is true exactly when this one is false.
fn inverse(operator: BinaryOp) -> Option<BinaryOp> {
    Some(match operator {
        BinaryOp::Eq => BinaryOp::Ne,
        BinaryOp::Ne => BinaryOp::Eq,
        BinaryOp::Lt => BinaryOp::Ge,
        BinaryOp::Ge => BinaryOp::Lt,
        BinaryOp::Gt => BinaryOp::Le,
        BinaryOp::Le => BinaryOp::Gt,
        _ => return None,
    })
}

fn compare(operator: BinaryOp, left: &BigUint, right: &BigUint) -> bool {
    match operator {
        BinaryOp::Eq => left == right,
        BinaryOp::Ne => left != right,
        BinaryOp::Lt => left < right,
        BinaryOp::Le => left <= right,
        BinaryOp::Gt => left > right,
        BinaryOp::Ge => left >= right,
        operator => unreachable!("{operator:?} is no comparison"),
    }
}
