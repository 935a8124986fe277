//! `Node<T>`: what a Rust value of type `T` becomes in the staged copy of a kernel.
//!
//! A kernel body is compiled twice: over `T`, to simulate, and over `Node<T>`, to record. rustc infers the types of
//! both copies, so a node has exactly the width of the Rust value. The operators and methods below are those
//! of `Bits` and `Bit`, under the same names, each with the meaning that Rust gives to it.
use crate::ir::{BinaryOp, NodeId, Op, UnaryOp};
use crate::literal;
use crate::recorder::{self, steps};
use num_bigint::BigUint;
use rust_hdl::core::prelude::*;
use std::fmt;
use std::marker::PhantomData;
use std::ops;

/// A value in hardware: a handle that is `Copy`, as `Bits` is.
pub struct Node<T> {
    pub(crate) id: NodeId,
    value: PhantomData<fn() -> T>,
}

impl<T> Clone for Node<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Node<T> {}

impl<T> fmt::Debug for Node<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Node({})", self.id)
    }
}

impl<T: Synth> Node<T> {
    pub(crate) fn from_id(id: NodeId) -> Self {
        Node { id: steps::checked(id, T::BITS), value: PhantomData }
    }

    pub(crate) fn new(op: Op) -> Self {
        Node::from_id(steps::node(op, T::BITS))
    }

    /// A value that is known at generation.
    pub(crate) fn constant(value: T) -> Self {
        Node::literal(number_of(&value.verilog()))
    }

    pub(crate) fn literal(number: BigUint) -> Self {
        Node::from_id(steps::literal(number, T::BITS))
    }

    pub(crate) fn slice<F: Synth>(self, offset: usize) -> Node<F> {
        Node::from_id(steps::slice(self.id, offset, F::BITS))
    }

    /// `value.field`: the closures give the type of the field and its offset.
    #[doc(hidden)]
    pub fn project<F: Synth>(
        self,
        name: &str,
        _field: impl Fn(T) -> F,
        offset: impl Fn(T) -> usize,
    ) -> Node<F> {
        Node::from_id(steps::field(self.id, offset(T::default()), F::BITS, name))
    }
}

impl Node<Bit> {
    /// The value of a bit that is known at generation.
    pub(crate) fn known(self) -> Option<bool> {
        steps::known_bit(self.id)
    }
}

/// The bits of a constant of rust-hdl. A negative one is a fault of the kernel.
pub(crate) fn number_of(literal: &VerilogLiteral) -> BigUint {
    literal::number_of(literal).unwrap_or_else(|| {
        recorder::fault(&format!("the constant {literal:x} is negative; a kernel has unsigned values only"));
        BigUint::default()
    })
}

/// Values that can be used where hardware needs a `T`: a node, or a Rust value known at generation.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot stand for a hardware value of type `{T}`",
    label = "this has the wrong type or width"
)]
pub trait IntoNode<T> {
    /// Makes it a node.
    fn into_node(self) -> Node<T>;
}

impl<T: Synth> IntoNode<T> for Node<T> {
    fn into_node(self) -> Node<T> {
        self
    }
}

impl<T: Synth> IntoNode<T> for T {
    fn into_node(self) -> Node<T> {
        Node::constant(self)
    }
}

impl<const N: usize> IntoNode<Bits<N>> for u64 {
    fn into_node(self) -> Node<Bits<N>> {
        Node::literal(self.into())
    }
}

pub(crate) fn binary<R: Synth>(op: BinaryOp, left: NodeId, right: NodeId) -> Node<R> {
    Node::new(Op::Binary(op, left, right))
}

// ---- operators -------------------------------------------------------------------------------------------

/// An operator between nodes of one type, or a node and a constant of that type.
macro_rules! operator {
    ($trait:ident, $method:ident, $value:ty, [$($generics:tt)*]) => {
        impl<$($generics)*> ops::$trait<Node<$value>> for Node<$value> {
            type Output = Node<$value>;
            fn $method(self, right: Node<$value>) -> Node<$value> {
                binary(operator!(@op $trait), self.id, right.id)
            }
        }
        impl<$($generics)*> ops::$trait<$value> for Node<$value> {
            type Output = Node<$value>;
            fn $method(self, right: $value) -> Node<$value> {
                ops::$trait::$method(self, Node::constant(right))
            }
        }
        impl<$($generics)*> ops::$trait<Node<$value>> for $value {
            type Output = Node<$value>;
            fn $method(self, right: Node<$value>) -> Node<$value> {
                ops::$trait::$method(Node::constant(self), right)
            }
        }
    };
    (@op Add) => { BinaryOp::Add };
    (@op Sub) => { BinaryOp::Sub };
    (@op BitAnd) => { BinaryOp::And };
    (@op BitOr) => { BinaryOp::Or };
    (@op BitXor) => { BinaryOp::Xor };
}

/// As `operator`, for `Bits`, which also take a plain number on either side.
macro_rules! bits_operator {
    ($trait:ident, $method:ident) => {
        operator!($trait, $method, Bits<N>, [const N: usize]);
        impl<const N: usize> ops::$trait<u64> for Node<Bits<N>> {
            type Output = Node<Bits<N>>;
            fn $method(self, right: u64) -> Node<Bits<N>> {
                ops::$trait::$method(self, Node::<Bits<N>>::literal(right.into()))
            }
        }
        impl<const N: usize> ops::$trait<Node<Bits<N>>> for u64 {
            type Output = Node<Bits<N>>;
            fn $method(self, right: Node<Bits<N>>) -> Node<Bits<N>> {
                ops::$trait::$method(Node::<Bits<N>>::literal(self.into()), right)
            }
        }
    };
}

bits_operator!(Add, add);
bits_operator!(Sub, sub);
bits_operator!(BitAnd, bitand);
bits_operator!(BitOr, bitor);
bits_operator!(BitXor, bitxor);
operator!(BitAnd, bitand, Bit, []);
operator!(BitOr, bitor, Bit, []);
operator!(BitXor, bitxor, Bit, []);

/// A bit added to a number, as rust-hdl allows.
impl<const N: usize> ops::Add<Node<Bit>> for Node<Bits<N>> {
    type Output = Node<Bits<N>>;
    fn add(self, right: Node<Bit>) -> Node<Bits<N>> {
        self + Node::<Bits<N>>::from_id(steps::resize(right.id, N))
    }
}

/// Shifts by as many bits as the value has, or more, yield zero in Rust and in Verilog.
macro_rules! shift {
    ($trait:ident, $method:ident, $op:expr) => {
        impl<const N: usize, const M: usize> ops::$trait<Node<Bits<M>>> for Node<Bits<N>> {
            type Output = Node<Bits<N>>;
            fn $method(self, distance: Node<Bits<M>>) -> Node<Bits<N>> {
                ops::$trait::$method(self, distance.to_u64())
            }
        }
        impl<const N: usize, const M: usize> ops::$trait<Bits<M>> for Node<Bits<N>> {
            type Output = Node<Bits<N>>;
            fn $method(self, distance: Bits<M>) -> Node<Bits<N>> {
                ops::$trait::$method(self, Node::constant(distance))
            }
        }
        impl<const N: usize> ops::$trait<Integer<u64>> for Node<Bits<N>> {
            type Output = Node<Bits<N>>;
            fn $method(self, distance: Integer<u64>) -> Node<Bits<N>> {
                binary($op, self.id, distance.id)
            }
        }
        impl<const N: usize> ops::$trait<u64> for Node<Bits<N>> {
            type Output = Node<Bits<N>>;
            fn $method(self, distance: u64) -> Node<Bits<N>> {
                if distance == 0 {
                    return self;
                }
                // Linters warn of a constant distance beyond the width; 32 bits hold every other.
                if distance >= N as u64 {
                    return Node::literal(BigUint::default());
                }
                let distance = steps::literal(distance.into(), 32);
                binary($op, self.id, distance)
            }
        }
    };
}

shift!(Shl, shl, BinaryOp::Shl);
shift!(Shr, shr, BinaryOp::Shr);

macro_rules! inversion {
    ($value:ty, [$($generics:tt)*]) => {
        impl<$($generics)*> ops::Not for Node<$value> {
            type Output = Node<$value>;
            fn not(self) -> Node<$value> {
                Node::new(Op::Unary(UnaryOp::Not, self.id))
            }
        }
    };
}

inversion!(Bits<N>, [const N: usize]);
inversion!(Bit, []);
inversion!(Clock, []);

// ---- methods of Bits -------------------------------------------------------------------------------------

/// The methods of `Bits` that a kernel may call.
impl<const N: usize> Node<Bits<N>> {
    /// One bit. In Rust, a position at or beyond the width panics; in hardware, a variable one reads zero there.
    pub fn get_bit(self, position: impl Position) -> Node<Bit> {
        position.take(self)
    }

    /// `M` bits from a position up. They must all exist if the position is a constant; with a variable position,
    /// bits beyond the width read as zero.
    pub fn get_bits<const M: usize>(self, position: impl Position) -> Node<Bits<M>> {
        position.take(self)
    }

    /// The value with one bit replaced.
    pub fn replace_bit(self, position: impl Position, bit: impl IntoNode<Bit>) -> Node<Bits<N>> {
        position.put(self, bit.into_node())
    }

    /// Whether any bit is 1.
    pub fn any(self) -> Node<Bit> {
        Node::new(Op::Unary(UnaryOp::AnyOne, self.id))
    }

    /// Whether all bits are 1.
    pub fn all(self) -> Node<Bit> {
        Node::new(Op::Unary(UnaryOp::AllOnes, self.id))
    }

    /// The parity of the bits.
    pub fn xor(self) -> Node<Bit> {
        Node::new(Op::Unary(UnaryOp::Parity, self.id))
    }

    /// The width in bits, known at generation.
    #[allow(clippy::len_without_is_empty, reason = "`Bits` has the same method")]
    pub fn len(self) -> usize {
        N
    }

    /// The value as a bit position. Rust cannot make an index of more than 32 bits.
    pub fn index(self) -> Integer<usize> {
        Integer::of(self, 32, "index")
    }

    /// The value as an integer, to match on or to shift by.
    pub fn to_u64(self) -> Integer<u64> {
        Integer::of(self, 64, "to_u64")
    }

    /// The value as an integer, to match on or to compare.
    pub fn to_u8(self) -> Integer<u8> {
        Integer::of(self, 8, "to_u8")
    }

    /// As [`Node::to_u8`].
    pub fn to_u16(self) -> Integer<u16> {
        Integer::of(self, 16, "to_u16")
    }

    /// As [`Node::to_u8`].
    pub fn to_u32(self) -> Integer<u32> {
        Integer::of(self, 32, "to_u32")
    }

    /// As [`Node::to_u8`]; the widest value that can be matched.
    pub fn to_u128(self) -> Integer<u128> {
        Integer::of(self, 128, "to_u128")
    }
}

// ---- integers --------------------------------------------------------------------------------------------

/// A `usize` or `u64` that comes out of hardware with `.index()` or `.to_u64()`.
///
/// It has no fixed width: sums are as wide as they need to be, so that they are exact as in Rust.
pub struct Integer<I> {
    pub(crate) id: NodeId,
    value: PhantomData<fn() -> I>,
}

impl<I> Clone for Integer<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Integer<I> {}

impl<I> fmt::Debug for Integer<I> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Integer({})", self.id)
    }
}

impl<I> Integer<I> {
    pub(crate) fn from_id(id: NodeId) -> Self {
        Integer { id, value: PhantomData }
    }

    fn of<const N: usize>(node: Node<Bits<N>>, width_max: usize, method: &str) -> Self {
        if N > width_max {
            steps::fault(format!("`{method}` takes at most {width_max} bits, this value has {N}"));
        }
        Integer::from_id(node.id)
    }

    pub(crate) fn width(self) -> usize {
        steps::width(self.id)
    }

    /// Extends both to the larger of their widths.
    pub(crate) fn align(self, other: Self) -> (NodeId, NodeId) {
        let width = self.width().max(other.width());
        (steps::resize(self.id, width), steps::resize(other.id, width))
    }
}

fn check_overflow(width: usize) {
    if width > 64 {
        recorder::fault("the sum or product can overflow the 64 bits that it has in Rust");
    }
}

macro_rules! integer_operators {
    ($($integer:ty),*) => { $(
        impl ops::Add<$integer> for Integer<$integer> {
            type Output = Self;
            fn add(self, right: $integer) -> Self {
                let right = BigUint::from(right);
                let width = self.width().max(right.bits() as usize) + 1;
                check_overflow(width);
                Integer::from_id(recorder::with(|recorder| {
                    let (left, right) = (recorder.resize(self.id, width), recorder.literal(right, width));
                    recorder.node(Op::Binary(BinaryOp::Add, left, right), width)
                }))
            }
        }

        impl ops::Add<Integer<$integer>> for $integer {
            type Output = Integer<$integer>;
            fn add(self, right: Integer<$integer>) -> Integer<$integer> {
                right + self
            }
        }

        /// Only powers of two, which cost nothing.
        impl ops::Mul<$integer> for Integer<$integer> {
            type Output = Self;
            fn mul(self, right: $integer) -> Self {
                if !right.is_power_of_two() {
                    recorder::fault(&format!("an index can be multiplied by a power of two, not by {right}"));
                }
                if right <= 1 {
                    return self;
                }
                check_overflow(self.width() + right.ilog2() as usize);
                recorder::with(|recorder| {
                    let zeros = recorder.literal(BigUint::default(), right.ilog2() as usize);
                    Integer::from_id(recorder.concat(vec![self.id, zeros]))
                })
            }
        }

        impl ops::Mul<Integer<$integer>> for $integer {
            type Output = Integer<$integer>;
            fn mul(self, right: Integer<$integer>) -> Integer<$integer> {
                right * self
            }
        }
    )* };
}

integer_operators!(usize, u64);

// ---- positions -------------------------------------------------------------------------------------------

/// A bit position: a `usize` known at generation, or an index computed in hardware.
pub trait Position {
    #[doc(hidden)]
    fn take<const N: usize, F: Synth>(self, base: Node<Bits<N>>) -> Node<F>;
    #[doc(hidden)]
    fn put<const N: usize>(self, base: Node<Bits<N>>, bit: Node<Bit>) -> Node<Bits<N>>;
}

impl Position for usize {
    fn take<const N: usize, F: Synth>(self, base: Node<Bits<N>>) -> Node<F> {
        base.slice(self)
    }

    fn put<const N: usize>(self, base: Node<Bits<N>>, bit: Node<Bit>) -> Node<Bits<N>> {
        Node::from_id(steps::replace_bit(base.id, N, self, bit.id))
    }
}

impl Position for Integer<usize> {
    fn take<const N: usize, F: Synth>(self, base: Node<Bits<N>>) -> Node<F> {
        let shifted: Node<Bits<N>> = binary(BinaryOp::Shr, base.id, self.id);
        shifted.slice(0)
    }

    fn put<const N: usize>(self, base: Node<Bits<N>>, bit: Node<Bit>) -> Node<Bits<N>> {
        steps::bind_unless_slice(self.id, "position");
        let shifted = |low: NodeId| -> Node<Bits<N>> { binary(BinaryOp::Shl, low, self.id) };
        let (one, bit) = (steps::literal(1u8.into(), N), steps::resize(bit.id, N));
        (base & !shifted(one)) | shifted(bit)
    }
}
