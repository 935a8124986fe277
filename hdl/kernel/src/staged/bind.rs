//! Names: of `let`s, of parameters, of Rust constants.
use crate::node::{Integer, Node};
use crate::recorder::steps;
use rust_hdl::core::prelude::*;
use std::ops::{Range, RangeInclusive};

/// `let name = value;`: a value in hardware becomes a wire, a value of the generator stays what it is.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot bind a value of type `{Self}`",
    label = "neither hardware nor a number, array or tuple known at generation"
)]
pub trait Bind: Sized {
    /// Gives the wires in it a name.
    fn bind(self, _name: &str) -> Self {
        self
    }
}

impl<T> Bind for Node<T> {
    fn bind(self, name: &str) -> Self {
        steps::bind(self.id, name);
        self
    }
}

impl<I> Bind for Integer<I> {
    fn bind(self, name: &str) -> Self {
        steps::bind(self.id, name);
        self
    }
}

macro_rules! generator_values {
    ($($ty:ty),*) => { $(impl Bind for $ty {})* };
}

generator_values!(bool, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, char, String);

impl<const N: usize> Bind for Bits<N> {}
impl<T: ?Sized> Bind for &T {}
impl<T> Bind for Vec<T> {}
impl<T> Bind for Option<T> {}
impl<T> Bind for Range<T> {}
impl<T> Bind for RangeInclusive<T> {}

macro_rules! tuples {
    ($(($($part:ident $index:tt),+))*) => { $(
        impl<$($part: Bind),+> Bind for ($($part,)+) {
            fn bind(self, name: &str) -> Self {
                ($(self.$index.bind(&format!("{name}_{}", $index)),)+)
            }
        }
    )* };
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

impl<A: Bind, const N: usize> Bind for [A; N] {
    fn bind(self, name: &str) -> Self {
        let mut indices = 0..;
        self.map(|element| element.bind(&format!("{name}_{}", indices.next().unwrap_or_default())))
    }
}

/// Evaluates `value` so that the first literal that it makes carries the name of its Rust constant.
pub fn named<R>(name: &str, value: impl FnOnce() -> R) -> R {
    steps::name_next_literal(Some(name));
    let result = value();
    steps::name_next_literal(None);
    result
}

/// What [`lift`] makes a node of.
pub enum Hardware {}

/// What [`lift`] leaves alone.
pub enum Generator {}

/// The value at the end of a branch: constants of hardware types become nodes, to meet the other branch.
///
/// `Kind` is [`Hardware`] or [`Generator`] and always inferred; it keeps the two families of types apart.
pub trait Lift<Kind> {
    /// A node, or a number of the generator.
    type Lifted;
    /// Makes constants nodes.
    fn lift(self) -> Self::Lifted;
}

impl<T: Synth> Lift<Hardware> for T {
    type Lifted = Node<T>;
    fn lift(self) -> Node<T> {
        Node::constant(self)
    }
}

macro_rules! lifted_as_they_are {
    ($($ty:ty, [$($generics:tt)*];)*) => { $(
        impl<$($generics)*> Lift<Generator> for $ty {
            type Lifted = Self;
            fn lift(self) -> Self {
                self
            }
        }
    )* };
}

lifted_as_they_are! {
    Node<T>, [T];
    Integer<I>, [I];
    u8, [];
    u16, [];
    u32, [];
    u64, [];
    u128, [];
    usize, [];
    i32, [];
    i64, [];
    &T, [T: ?Sized];
    String, [];
    Vec<T>, [T];
    Option<T>, [T];
    Range<T>, [T];
}

macro_rules! lifted_tuples {
    ($(($($part:ident $kind:ident $index:tt),+))*) => { $(
        impl<$($part: Lift<$kind>, $kind),+> Lift<($($kind,)+)> for ($($part,)+) {
            type Lifted = ($($part::Lifted,)+);
            fn lift(self) -> Self::Lifted {
                ($(self.$index.lift(),)+)
            }
        }
    )* };
}

lifted_tuples! {
    (A KA 0)
    (A KA 0, B KB 1)
    (A KA 0, B KB 1, C KC 2)
    (A KA 0, B KB 1, C KC 2, D KD 3)
}

impl<A: Lift<K>, K, const N: usize> Lift<[K; N]> for [A; N] {
    type Lifted = [A::Lifted; N];
    fn lift(self) -> Self::Lifted {
        self.map(A::lift)
    }
}

/// As [`Lift::lift`], as a function.
pub fn lift<Kind, V: Lift<Kind>>(value: V) -> V::Lifted {
    value.lift()
}
