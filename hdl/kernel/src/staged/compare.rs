//! Comparisons, `&&` and `||`: of hardware, of numbers of the generator, and mixed.
use crate::ir::{BinaryOp, NodeId};
use crate::node::{Integer, IntoNode, Node, binary};
use crate::recorder::{self, steps};
use num_bigint::BigUint;
use rust_hdl::core::prelude::*;
use rust_hdl::core::type_descriptor::TypeKind;

/// `==`, `<` and so on; between values known at generation the result is a plain `bool`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` and `{R}` cannot be compared in a kernel",
    label = "types or widths differ"
)]
pub trait Compare<R> {
    /// A node or a `bool`.
    type Output;
    /// Compares by `op`.
    fn compare(self, op: BinaryOp, right: R) -> Self::Output;
}

/// Structs are packed with the first field lowest, so their order in Rust is not that of their bits.
fn refuse_order<T: Synth>(op: BinaryOp) {
    let is_order = !matches!(op, BinaryOp::Eq | BinaryOp::Ne);
    if is_order && matches!(T::descriptor().kind, TypeKind::Composite(_) | TypeKind::Signed(_)) {
        recorder::fault("structs and signed values have no order in hardware; compare their fields");
    }
}

/// The same comparison with its operands swapped.
fn mirrored(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Lt => BinaryOp::Gt,
        BinaryOp::Le => BinaryOp::Ge,
        BinaryOp::Gt => BinaryOp::Lt,
        BinaryOp::Ge => BinaryOp::Le,
        other => other,
    }
}

/// The result of a comparison with `right`, if it is the same for every value of `width` bits.
fn foregone(op: BinaryOp, width: usize, right: &BigUint) -> Option<bool> {
    let largest = (BigUint::from(1u8) << width) - 1u8;
    match op {
        BinaryOp::Eq if *right > largest => Some(false),
        BinaryOp::Ne if *right > largest => Some(true),
        BinaryOp::Lt if right.bits() == 0 => Some(false),
        BinaryOp::Lt if *right > largest => Some(true),
        BinaryOp::Le if *right >= largest => Some(true),
        BinaryOp::Gt if *right >= largest => Some(false),
        BinaryOp::Ge if right.bits() == 0 => Some(true),
        BinaryOp::Ge if *right > largest => Some(false),
        _ => None,
    }
}

fn with_number(left: NodeId, op: BinaryOp, right: BigUint) -> Node<Bit> {
    let width = steps::width(left);
    match foregone(op, width, &right) {
        Some(known) => {
            steps::name_next_literal(None);
            Node::constant(known)
        }
        None => {
            let right = steps::literal(right, width);
            binary(op, left, right)
        }
    }
}

impl<T: Synth> Compare<Node<T>> for Node<T> {
    type Output = Node<Bit>;
    fn compare(self, op: BinaryOp, right: Node<T>) -> Node<Bit> {
        refuse_order::<T>(op);
        binary(op, self.id, right.id)
    }
}

impl<T: Synth> Compare<T> for Node<T> {
    type Output = Node<Bit>;
    fn compare(self, op: BinaryOp, right: T) -> Node<Bit> {
        refuse_order::<T>(op);
        with_number(self.id, op, crate::node::number_of(&right.verilog()))
    }
}

impl<T: Synth> Compare<Node<T>> for T {
    type Output = Node<Bit>;
    fn compare(self, op: BinaryOp, right: Node<T>) -> Node<Bit> {
        right.compare(mirrored(op), self)
    }
}

/// rust-hdl makes the number a `Bits<N>`. One that is too wide panics or loses bits there, so it is refused.
impl<const N: usize> Compare<u64> for Node<Bits<N>> {
    type Output = Node<Bit>;
    fn compare(self, op: BinaryOp, right: u64) -> Node<Bit> {
        let right = BigUint::from(right);
        if right.bits() > N as u64 {
            let literal = Node::<Bits<N>>::literal(right);
            return binary(op, self.id, literal.id);
        }
        with_number(self.id, op, right)
    }
}

impl<const N: usize> Compare<Node<Bits<N>>> for u64 {
    type Output = Node<Bit>;
    fn compare(self, op: BinaryOp, right: Node<Bits<N>>) -> Node<Bit> {
        right.compare(mirrored(op), self)
    }
}

/// As integers in Rust: exact, whatever the widths are.
macro_rules! compare_integers {
    ($($integer:ty),*) => { $(
        impl Compare<$integer> for Integer<$integer> {
            type Output = Node<Bit>;
            fn compare(self, op: BinaryOp, right: $integer) -> Node<Bit> {
                with_number(self.id, op, right.into())
            }
        }
        impl Compare<Integer<$integer>> for $integer {
            type Output = Node<Bit>;
            fn compare(self, op: BinaryOp, right: Integer<$integer>) -> Node<Bit> {
                right.compare(mirrored(op), self)
            }
        }
    )* };
}

compare_integers!(u8, u16, u32, u64, u128, usize);

impl<I> Compare<Integer<I>> for Integer<I> {
    type Output = Node<Bit>;
    fn compare(self, op: BinaryOp, right: Integer<I>) -> Node<Bit> {
        let (left, right) = self.align(right);
        binary(op, left, right)
    }
}

macro_rules! compare_generator_values {
    ($($ty:ty),*) => { $(
        impl Compare<$ty> for $ty {
            type Output = bool;
            fn compare(self, op: BinaryOp, right: $ty) -> bool {
                holds(op, &self, &right)
            }
        }
    )* };
}

compare_generator_values!(bool, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, char, &str);

impl<const N: usize> Compare<Bits<N>> for Bits<N> {
    type Output = bool;
    fn compare(self, op: BinaryOp, right: Bits<N>) -> bool {
        holds(op, &BigUint::from(self), &BigUint::from(right))
    }
}

/// A comparison of values known at generation.
fn holds<T: PartialOrd>(op: BinaryOp, left: &T, right: &T) -> bool {
    match op {
        BinaryOp::Eq => left == right,
        BinaryOp::Ne => left != right,
        BinaryOp::Lt => left < right,
        BinaryOp::Le => left <= right,
        BinaryOp::Gt => left > right,
        _ => left >= right,
    }
}

/// `&&` and `||`. The right side of a condition that is known at generation is not recorded in vain.
#[diagnostic::on_unimplemented(
    message = "`&&` and `||` take conditions, not `{Self}` and `{R}`",
    label = "not a `Bit`"
)]
pub trait ShortCircuit<R> {
    /// A node or a `bool`.
    type Output;
    /// `self && right`.
    fn and(self, right: impl FnOnce() -> R) -> Self::Output;
    /// `self || right`.
    fn or(self, right: impl FnOnce() -> R) -> Self::Output;
}

impl<R: IntoNode<Bit>> ShortCircuit<R> for Node<Bit> {
    type Output = Node<Bit>;
    fn and(self, right: impl FnOnce() -> R) -> Node<Bit> {
        match self.known() {
            Some(false) => self,
            Some(true) => right().into_node(),
            None => join(self, right().into_node(), false),
        }
    }
    fn or(self, right: impl FnOnce() -> R) -> Node<Bit> {
        match self.known() {
            Some(true) => self,
            Some(false) => right().into_node(),
            None => join(self, right().into_node(), true),
        }
    }
}

/// `left & right` or `left | right`, of which `right` may turn out to be known.
pub(crate) fn join(left: Node<Bit>, right: Node<Bit>, is_or: bool) -> Node<Bit> {
    match right.known() {
        Some(known) if known == is_or => right,
        Some(_) => left,
        None if is_or => left | right,
        None => left & right,
    }
}

impl ShortCircuit<bool> for bool {
    type Output = bool;
    fn and(self, right: impl FnOnce() -> bool) -> bool {
        self && right()
    }
    fn or(self, right: impl FnOnce() -> bool) -> bool {
        self || right()
    }
}

impl ShortCircuit<Node<Bit>> for bool {
    type Output = Node<Bit>;
    fn and(self, right: impl FnOnce() -> Node<Bit>) -> Node<Bit> {
        if self { right() } else { Node::constant(false) }
    }
    fn or(self, right: impl FnOnce() -> Node<Bit>) -> Node<Bit> {
        if self { Node::constant(true) } else { right() }
    }
}
