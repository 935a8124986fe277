//! Conversions and struct literals.
use crate::ir::NodeId;
use crate::node::{IntoNode, Node};
use crate::recorder::{self, steps};
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
            steps::fault(format!("`into` cannot change the width from {} to {N} bits", T::BITS));
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
    Node::from_id(steps::resize(value, M))
}

/// Takes the place of a field in a literal that is typed but never evaluated.
pub fn any<T>() -> T {
    unreachable!("this literal exists for its type only")
}

/// A struct literal, field by field.
pub struct StructLiteral<T> {
    fields: Fields,
    value: PhantomData<fn() -> T>,
}

/// Offset and value of each field of a literal.
#[derive(Default)]
struct Fields(Vec<(usize, NodeId)>);

impl Fields {
    fn push(&mut self, name: &str, offset: usize, value: NodeId) {
        steps::bind_unless_slice(value, name);
        self.0.push((offset, value));
    }

    fn concat(mut self) -> NodeId {
        self.0.sort_by_key(|&(offset, _)| std::cmp::Reverse(offset));
        steps::concat(self.0.into_iter().map(|(_, node)| node).collect())
    }

    /// As [`Fields::concat`], with the bits between the fields taken from `rest`, which has `width` bits.
    fn concat_with(mut self, rest: NodeId, width: usize) -> NodeId {
        self.0.sort_by_key(|&(offset, _)| offset);
        recorder::with(|recorder| {
            let mut parts = Vec::new();
            let mut filled = 0;
            for (offset, node) in self.0 {
                if offset > filled {
                    parts.push(recorder.slice(rest, filled, offset - filled));
                }
                parts.push(node);
                filled = offset + recorder.width(node);
            }
            if filled < width {
                parts.push(recorder.slice(rest, filled, width - filled));
            }
            parts.reverse();
            recorder.concat(parts)
        })
    }
}

impl<T: Synth> StructLiteral<T> {
    /// Starts a literal of the type that the closure would return.
    pub fn like(_literal: impl FnOnce() -> T) -> Self {
        StructLiteral { fields: Fields::default(), value: PhantomData }
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
        self.fields.push(name, offset(T::default()), node);
        self
    }

    /// Ends a literal that names every field.
    pub fn finish(self) -> Node<T> {
        Node::from_id(self.fields.concat())
    }

    /// Ends a literal that takes all other fields from `rest`.
    pub fn finish_with(self, rest: impl IntoNode<T>) -> Node<T> {
        let rest = rest.into_node().id;
        Node::from_id(self.fields.concat_with(rest, T::BITS))
    }
}
