//! Values in their simplest form: what an engineer would have written for the same bits.
//!
//! Only unnamed values are looked through; what the author named stays. Every step is exact.
use super::{Graph, Signals};
use crate::ir::{BinaryOp, Node, NodeId, Op, UnaryOp};
use num_bigint::BigUint;

/// Parts of an inner concatenation that may be repeated in an outer one, instead of being shared.
const NESTED_PARTS: usize = 8;

impl Graph {
    /// Adds a node in its simplest form; without a name it may turn out to be one that is there already.
    pub(super) fn simplest(&mut self, op: Op, width: usize, name: Option<&str>, signals: &Signals) -> NodeId {
        let name = name.map(str::to_owned);
        match op {
            Op::Slice { base, offset } => self.slice(base, offset, width, name),
            Op::Concat(parts) => self.concat(parts, width, name),
            Op::Unary(UnaryOp::Not, operand) => self.not(operand, width, name),
            Op::Unary(_, operand) if self[operand].width == 1 => self.renamed(operand, name),
            Op::Select { condition, then, otherwise } => match self.known(condition, signals) {
                Some(known) => self.renamed(if known.bits() == 1 { then } else { otherwise }, name),
                None => self.push(op, width, name),
            },
            Op::Binary(operator, left, right) => {
                match (self.known(left, signals), self.known(right, signals)) {
                    (Some(left), Some(right)) if is_comparison(operator) => {
                        let is_true = compare(operator, &left, &right);
                        self.push(Op::Literal(BigUint::from(u8::from(is_true))), 1, name)
                    }
                    (None, Some(_)) if self.is_shifted_concatenation(&op) => {
                        let shift = self.push(op, width, None);
                        let parts = self.shifted_parts(shift).unwrap_or_else(|| vec![shift]);
                        self.concat(parts, width, name)
                    }
                    (None, Some(number)) => self.with_number(op, operator, left, &number, name),
                    (Some(number), None) if is_commutative(operator) => {
                        self.with_number(op, operator, right, &number, name)
                    }
                    _ if matches!(operator, BinaryOp::Or | BinaryOp::Xor) => {
                        match self.side_by_side(left, right) {
                            Some(parts) => self.concat(parts, width, name),
                            None => self.push(op, width, name),
                        }
                    }
                    _ => self.push(op, width, name),
                }
            }
            op => self.push(op, width, name),
        }
    }

    /// An operation whose other operand is a number that may decide it.
    fn with_number(
        &mut self,
        op: Op,
        operator: BinaryOp,
        operand: NodeId,
        number: &BigUint,
        name: Option<String>,
    ) -> NodeId {
        let width = self[operand].width;
        let is_zero = number.bits() == 0;
        let is_ones = *number == ones(width);
        match operator {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Or | BinaryOp::Xor if is_zero => {
                self.renamed(operand, name)
            }
            BinaryOp::Shl | BinaryOp::Shr if is_zero => self.renamed(operand, name),
            BinaryOp::And if is_ones => self.renamed(operand, name),
            BinaryOp::And if is_zero => self.push(Op::Literal(BigUint::default()), width, name),
            BinaryOp::Shl | BinaryOp::Shr if *number >= BigUint::from(width) => {
                self.push(Op::Literal(BigUint::default()), width, name)
            }
            _ => self.push(op, self.result_width(operator, width), name),
        }
    }

    fn result_width(&self, operator: BinaryOp, operand_width: usize) -> usize {
        if is_comparison(operator) { 1 } else { operand_width }
    }

    /// The node itself, or under a new name a copy of it.
    fn renamed(&mut self, node: NodeId, name: Option<String>) -> NodeId {
        if name.is_none() {
            return node;
        }
        let Node { op, width, name: known, .. } = self[node].clone();
        if known.is_none() || matches!(op, Op::Signal(_) | Op::Literal(_)) {
            return self.push(op, width, name);
        }
        self.push(Op::Slice { base: node, offset: 0 }, width, name)
    }

    fn zeros(&mut self, width: usize) -> NodeId {
        self.push(Op::Literal(BigUint::default()), width, None)
    }

    // ---- slices ----

    /// A slice looks through whatever has no name of its own, since Verilog can slice names only.
    pub(super) fn slice(
        &mut self,
        base: NodeId,
        offset: usize,
        width: usize,
        name: Option<String>,
    ) -> NodeId {
        let Node { op, width: base_width, name: base_name, field } = &self[base];
        let base_width = *base_width;
        if width == base_width {
            return self.renamed(base, name);
        }
        let is_named = base_name.is_some() || field.is_some();
        match op {
            Op::Literal(value) => {
                let value = (value >> offset) & ones(width);
                self.push(Op::Literal(value), width, name)
            }
            Op::Slice { base: inner, offset: inner_offset } if !is_named => {
                let (inner, offset) = (*inner, inner_offset + offset);
                self.slice(inner, offset, width, name)
            }
            Op::Concat(parts) if !is_named => {
                let parts = parts.clone();
                let parts = self.parts_between(&parts, base_width, offset, offset + width);
                self.concat(parts, width, name)
            }
            Op::Binary(BinaryOp::Shl | BinaryOp::Shr, ..) if !is_named => match self.shifted_parts(base) {
                Some(parts) => {
                    let parts = self.parts_between(&parts, base_width, offset, offset + width);
                    self.concat(parts, width, name)
                }
                None => self.push(Op::Slice { base, offset }, width, name),
            },
            _ => self.push(Op::Slice { base, offset }, width, name),
        }
    }

    /// Bits `start..end` of what the parts, most significant first, are together.
    fn parts_between(&mut self, parts: &[NodeId], total: usize, start: usize, end: usize) -> Vec<NodeId> {
        let mut top = total;
        let mut found = Vec::new();
        for &part in parts {
            let bottom = top - self[part].width;
            let (low, high) = (start.max(bottom), end.min(top));
            if low < high {
                found.push(self.slice(part, low - bottom, high - low, None));
            }
            top = bottom;
        }
        found
    }

    /// What is put together from parts can be put together shifted.
    fn is_shifted_concatenation(&self, op: &Op) -> bool {
        let Op::Binary(BinaryOp::Shl | BinaryOp::Shr, value, distance) = *op else { return false };
        let data = &self[value];
        let is_in_range =
            self.literal(distance).is_some_and(|distance| *distance < BigUint::from(data.width));
        is_in_range && data.name.is_none() && matches!(data.op, Op::Concat(_)) && self.is_sliceable(value)
    }

    /// A shift by a fixed distance is a slice with zeros beside it.
    fn shifted_parts(&mut self, node: NodeId) -> Option<Vec<NodeId>> {
        let Op::Binary(operator @ (BinaryOp::Shl | BinaryOp::Shr), value, distance) = self[node].op else {
            return None;
        };
        let width = self[node].width;
        let distance = usize::try_from(self.literal(distance)?).ok().filter(|distance| *distance < width)?;
        if distance == 0 {
            return Some(vec![value]);
        }
        let zeros = self.zeros(distance);
        Some(match operator {
            BinaryOp::Shr => vec![zeros, self.slice(value, distance, width - distance, None)],
            _ => vec![self.slice(value, 0, width - distance, None), zeros],
        })
    }

    // ---- concatenations ----

    /// Neighbouring numbers become one number, neighbouring slices one slice, and braces inside braces vanish.
    pub(super) fn concat(&mut self, parts: Vec<NodeId>, width: usize, name: Option<String>) -> NodeId {
        let mut merged: Vec<NodeId> = Vec::new();
        for part in self.flattened(&parts) {
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

    fn flattened(&mut self, parts: &[NodeId]) -> Vec<NodeId> {
        let mut flat = Vec::new();
        for &part in parts {
            match &self[part] {
                Node { op: Op::Concat(inner), name: None, .. } if inner.len() <= NESTED_PARTS => {
                    flat.extend_from_slice(inner);
                }
                Node { op: Op::Binary(_, value, _), name: None, .. } if self.is_sliceable(*value) => {
                    match self.shifted_parts(part) {
                        Some(inner) => flat.extend(inner),
                        None => flat.push(part),
                    }
                }
                _ => flat.push(part),
            }
        }
        flat
    }

    /// Whether Verilog can slice it as it is; a single bit never needs to be.
    fn is_sliceable(&self, node: NodeId) -> bool {
        let data = &self[node];
        match &data.op {
            _ if data.width == 1 => true,
            Op::Signal(_) | Op::Literal(_) | Op::Slice { .. } => true,
            Op::Concat(parts) => data.name.is_some() || parts.iter().all(|&part| self.is_sliceable(part)),
            _ => data.name.is_some(),
        }
    }

    fn merge(&self, high: NodeId, low: NodeId) -> Option<(Op, usize)> {
        let (high, low) = (&self[high], &self[low]);
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
            ) if self.canonical(*high_base) == self.canonical(*low_base)
                && low_offset + low.width == *high_offset =>
            {
                Some((Op::Slice { base: *low_base, offset: *low_offset }, width))
            }
            _ => None,
        }
    }

    /// Two values of which at most one is other than zero in any bit, such as `(x << 8) | (x >> 24)`: the parts, most
    /// significant first, that they are together. At least one must be a shift; `{a, 0} | {0, b}` was meant as it is.
    fn side_by_side(&mut self, left: NodeId, right: NodeId) -> Option<Vec<NodeId>> {
        let is_shift = |node: NodeId| {
            let data = &self[node];
            data.name.is_none()
                && matches!(data.op, Op::Binary(BinaryOp::Shl | BinaryOp::Shr, value, _) if self.is_sliceable(value))
        };
        if !is_shift(left) && !is_shift(right) {
            return None;
        }
        let (left, right) = (self.parts(left)?, self.parts(right)?);
        let mut cuts: Vec<usize> = [&left, &right].iter().flat_map(|parts| self.bottoms(parts)).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut joined = Vec::new();
        for cut in cuts.windows(2).rev() {
            let (bottom, top) = (cut[0], cut[1]);
            let (first, second) = (self.piece(&left, bottom, top)?, self.piece(&right, bottom, top)?);
            joined.push(match (self.is_zero(first), self.is_zero(second)) {
                (_, true) => first,
                (true, false) => second,
                (false, false) => return None,
            });
        }
        Some(joined)
    }

    /// The parts of a shift or a concatenation without a name.
    fn parts(&mut self, node: NodeId) -> Option<Vec<NodeId>> {
        if self[node].name.is_some() {
            return None;
        }
        match &self[node].op {
            Op::Concat(parts) => Some(parts.clone()),
            Op::Binary(_, value, _) if self.is_sliceable(*value) => {
                let parts = self.shifted_parts(node)?;
                Some(self.flattened(&parts))
            }
            _ => None,
        }
    }

    /// Where the parts, most significant first, begin; and where the last ends.
    fn bottoms(&self, parts: &[NodeId]) -> Vec<usize> {
        let mut position = 0;
        let mut bottoms = vec![0];
        for &part in parts.iter().rev() {
            position += self[part].width;
            bottoms.push(position);
        }
        bottoms
    }

    /// Bits `bottom..top`, which lie in one of the parts.
    fn piece(&mut self, parts: &[NodeId], bottom: usize, top: usize) -> Option<NodeId> {
        let total = parts.iter().map(|&part| self[part].width).sum();
        let whole = parts.iter().all(|&part| self[part].width == top - bottom || self.is_sliceable(part));
        let found = self.parts_between(parts, total, bottom, top);
        if whole { found.first().copied() } else { None }
    }

    fn is_zero(&self, node: NodeId) -> bool {
        self.literal(node).is_some_and(|value| value.bits() == 0)
    }

    // ---- negations ----

    /// `!(a == b)` is `a != b`, and `!!a` is `a`.
    fn not(&mut self, operand: NodeId, width: usize, name: Option<String>) -> NodeId {
        let inner = &self[operand];
        if inner.name.is_none() {
            match inner.op {
                Op::Unary(UnaryOp::Not, original) => return self.renamed(original, name),
                Op::Binary(operator, left, right) => {
                    if let Some(inverse) = inverse(operator) {
                        return self.push(Op::Binary(inverse, left, right), width, name);
                    }
                }
                _ => {}
            }
        }
        self.push(Op::Unary(UnaryOp::Not, operand), width, name)
    }
}

fn ones(width: usize) -> BigUint {
    (BigUint::from(1u8) << width) - 1u8
}

pub(super) fn is_comparison(operator: BinaryOp) -> bool {
    inverse(operator).is_some()
}

fn is_commutative(operator: BinaryOp) -> bool {
    matches!(operator, BinaryOp::Add | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor)
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
