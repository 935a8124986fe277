//! Conversions and struct literals.
use crate::ir::NodeId;
use crate::node::{IntoNode, Node};
use crate::recorder;
use rust_hdl::core::prelude::*;
use std::marker::PhantomData;

/// Values that a kernel may convert with `value.into()`, which keeps the bits.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot convert `{Self}` into `{T}`",
    label = "`into` keeps the bits; to change the width, use `bit_cast`"
)]
pub trait ConvertTo<T> {
    /// Converts the value without changing its bits.
    fn convert_to(self) -> Node<T>;
}

impl<const N: usize> ConvertTo<Bits<N>> for u64 {
    fn convert_to(self) -> Node<Bits<N>> {
        self.into_node()
    }
}

impl<T: Synth + Into<Bits<N>>, const N: usize> ConvertTo<Bits<N>> for Node<T> {
    fn convert_to(self) -> Node<Bits<N>> {
        if T::BITS != N {
            recorder::with(|recorder| {
                recorder.fault(format!("`into` cannot change the width from {} to {N} bits", T::BITS));
            });
            return Node::literal(0u8.into());
        }
        Node::from_id(self.id)
    }
}

impl ConvertTo<Bit> for Node<Bits<1>> {
    fn convert_to(self) -> Node<Bit> {
        Node::from_id(self.id)
    }
}

impl ConvertTo<Clock> for Node<Bit> {
    fn convert_to(self) -> Node<Clock> {
        Node::from_id(self.id)
    }
}

/// As [`ConvertTo::convert_to`], as a function.
pub fn convert<V: ConvertTo<T>, T>(value: V) -> Node<T> {
    value.convert_to()
}

/// A value that is known at generation, such as `T::default()`.
pub fn constant<T: Synth>(value: T) -> Node<T> {
    Node::constant(value)
}

/// `bits(value)`: a constant of the width that its place asks for.
pub fn bits<const N: usize>(value: u64) -> Node<Bits<N>> {
    value.into_node()
}

/// `bit_cast(value)`: drops high bits, or extends with zeros.
pub fn bit_cast<const M: usize, const N: usize>(value: impl IntoNode<Bits<N>>) -> Node<Bits<M>> {
    let value = value.into_node().id;
    Node::from_id(recorder::with(|recorder| recorder.resize(value, M)))
}

/// Takes the place of a field in a literal that is typed but never evaluated.
pub fn any<T>() -> T {
    unreachable!("this literal exists for its type only")
}

/// A struct literal, field by field.
pub struct StructLiteral<T> {
    fields: Vec<(usize, NodeId)>,
    value: PhantomData<fn() -> T>,
}

impl<T: Synth> StructLiteral<T> {
    /// Starts a literal of the type that the closure would return.
    pub fn like(_literal: impl FnOnce() -> T) -> Self {
        StructLiteral { fields: Vec::new(), value: PhantomData }
    }

    /// Gives one field its value.
    pub fn field<F: Synth>(
        mut self,
        name: &str,
        _field: impl Fn(T) -> F,
        offset: impl Fn(T) -> usize,
        value: impl IntoNode<F>,
    ) -> Self {
        let node = value.into_node().id;
        recorder::with(|recorder| recorder.bind_unless_slice(node, name));
        self.fields.push((offset(T::default()), node));
        self
    }

    /// Ends a literal that names every field.
    pub fn finish(mut self) -> Node<T> {
        self.fields.sort_by_key(|&(offset, _)| std::cmp::Reverse(offset));
        let parts = self.fields.into_iter().map(|(_, node)| node).collect();
        Node::from_id(recorder::with(|recorder| recorder.concat(parts)))
    }

    /// Ends a literal that takes all other fields from `rest`.
    pub fn finish_with(mut self, rest: impl IntoNode<T>) -> Node<T> {
        let rest = rest.into_node().id;
        self.fields.sort_by_key(|&(offset, _)| offset);
        Node::from_id(recorder::with(|recorder| {
            let mut parts = Vec::new();
            let mut filled = 0;
            for (offset, node) in self.fields {
                if offset > filled {
                    parts.push(recorder.slice(rest, filled, offset - filled));
                }
                parts.push(node);
                filled = offset + recorder.width(node);
            }
            if filled < T::BITS {
                parts.push(recorder.slice(rest, filled, T::BITS - filled));
            }
            parts.reverse();
            recorder.concat(parts)
        }))
    }
}
