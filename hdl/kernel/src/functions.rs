//! The pure functions of the language, each with its staged twin.
//!
//! The staged twin of a function `f` is `f::lower`, in a module of the same name, so that one `use` brings both.
//! `#[kernel]` writes the twin of an ordinary function; those here need the recorder, so theirs are written by hand.
use crate::ir::Op;
use crate::node::{IntoNode, Node};
use crate::quick;
use crate::recorder::{self, steps};
use rust_hdl::core::prelude::*;

/// Returns `then` if the condition holds, else `otherwise`: a multiplexer in one line.
pub fn select<T>(condition: Bit, then: T, otherwise: T) -> T {
    if condition { then } else { otherwise }
}

#[doc(hidden)]
pub mod select {
    use super::*;

    /// The staged twin of [`select()`]: a multiplexer.
    pub fn lower<T: Synth>(
        condition: impl IntoNode<Bit>,
        then: impl IntoNode<T>,
        otherwise: impl IntoNode<T>,
    ) -> Node<T> {
        multiplex(condition.into_node(), then.into_node(), otherwise.into_node())
    }
}

/// One of two values; a condition known at generation decides at once.
pub(crate) fn multiplex<T: Synth>(condition: Node<Bit>, then: Node<T>, otherwise: Node<T>) -> Node<T> {
    match condition.known() {
        Some(true) => then,
        Some(false) => otherwise,
        None => Node::new(Op::Select { condition: condition.id, then: then.id, otherwise: otherwise.id }),
    }
}

/// A value that can be concatenated: `Bits<N>` or `Bit`.
pub trait Part: Synth {
    /// Writes all bits of the value, the lowest one first.
    #[doc(hidden)]
    fn put(self, bits: &mut [bool]);
}

impl<const N: usize> Part for Bits<N> {
    fn put(self, bits: &mut [bool]) {
        bits.iter_mut().enumerate().for_each(|(place, bit)| *bit = self.get_bit(place));
    }
}

impl Part for Bit {
    fn put(self, bits: &mut [bool]) {
        bits[0] = self;
    }
}

/// The node of one part, or a constant in its place.
pub trait NodePart {
    #[doc(hidden)]
    const WIDTH: usize;
    #[doc(hidden)]
    fn node(self) -> usize;
}

impl<P: Part> NodePart for Node<P> {
    const WIDTH: usize = P::BITS;
    fn node(self) -> usize {
        self.id
    }
}

impl<P: Part> NodePart for P {
    const WIDTH: usize = P::BITS;
    fn node(self) -> usize {
        Node::constant(self).id
    }
}

/// A tuple of parts, most significant first.
pub trait Parts {
    #[doc(hidden)]
    const WIDTH: usize;
    /// Writes all bits of the parts, the lowest one first.
    #[doc(hidden)]
    fn put(self, bits: &mut [bool]);
}

/// The staged twin of [`Parts`].
pub trait NodeParts {
    #[doc(hidden)]
    const WIDTH: usize;
    #[doc(hidden)]
    fn nodes(self) -> Vec<usize>;
}

macro_rules! tuples_of_parts {
    () => {};
    ($first:ident $($rest:ident)*) => {
        impl<$first: Part, $($rest: Part),*> Parts for ($first, $($rest,)*) {
            const WIDTH: usize = $first::BITS $(+ $rest::BITS)*;
            #[allow(non_snake_case)]
            fn put(self, bits: &mut [bool]) {
                let ($first, $($rest,)*) = self;
                let (_below, top) = bits.split_at_mut(bits.len() - $first::BITS);
                $first.put(top);
                $(
                    let (_below, top) = _below.split_at_mut(_below.len() - $rest::BITS);
                    $rest.put(top);
                )*
            }
        }
        impl<$first: NodePart, $($rest: NodePart),*> NodeParts for ($first, $($rest,)*) {
            const WIDTH: usize = $first::WIDTH $(+ $rest::WIDTH)*;
            #[allow(non_snake_case)]
            fn nodes(self) -> Vec<usize> {
                let ($first, $($rest,)*) = self;
                vec![$first.node(), $($rest.node()),*]
            }
        }
        tuples_of_parts!($($rest)*);
    };
}

tuples_of_parts!(A B C D E F G H I J K L M N O P);

impl<T: Part, const COUNT: usize> Parts for [T; COUNT] {
    const WIDTH: usize = T::BITS * COUNT;
    fn put(self, bits: &mut [bool]) {
        self.into_iter().rev().zip(bits.chunks_mut(T::BITS)).for_each(|(part, bits)| part.put(bits));
    }
}

impl<T: NodePart, const COUNT: usize> NodeParts for [T; COUNT] {
    const WIDTH: usize = T::WIDTH * COUNT;
    fn nodes(self) -> Vec<usize> {
        self.into_iter().map(NodePart::node).collect()
    }
}

/// Concatenates a tuple or an array, most significant part first. Widths that do not add up do not compile.
pub fn concat<const N: usize, P: Parts>(parts: P) -> Bits<N> {
    const { assert!(P::WIDTH == N, "the widths of the parts do not add up to that of the result") };
    let mut bits = [false; N];
    parts.put(&mut bits);
    quick::bits_of(bits)
}

#[doc(hidden)]
pub mod concat {
    use super::*;

    /// The staged twin of [`concat()`]: a concatenation.
    pub fn lower<const N: usize, P: NodeParts>(parts: P) -> Node<Bits<N>> {
        const { assert!(P::WIDTH == N, "the widths of the parts do not add up to that of the result") };
        let parts = parts.nodes();
        Node::from_id(steps::concat(parts))
    }
}

/// Concatenates values, most significant first: `cat!(high, low)`.
#[macro_export]
macro_rules! cat {
    ($($part:expr),+ $(,)?) => { $crate::functions::concat(($($part,)+)) };
}

/// Reverses the order of the bytes: network order to host order and back.
pub fn swap_bytes<const N: usize>(value: Bits<N>) -> Bits<N> {
    const { assert!(N.is_multiple_of(8), "only whole bytes can be swapped") };
    let place = |index: usize| (N / 8 - 1 - index / 8) * 8 + index % 8;
    quick::bits_of(core::array::from_fn(|index| value.get_bit(place(index))))
}

#[doc(hidden)]
pub mod swap_bytes {
    use super::*;

    /// The staged twin of [`swap_bytes()`]: a permutation of wires.
    pub fn lower<const N: usize>(value: impl IntoNode<Bits<N>>) -> Node<Bits<N>> {
        const { assert!(N.is_multiple_of(8), "only whole bytes can be swapped") };
        let value = value.into_node().id;
        Node::from_id(recorder::with(|recorder| {
            let bytes = (0..N / 8).map(|byte| recorder.slice(value, byte * 8, 8)).collect();
            recorder.concat(bytes)
        }))
    }
}
