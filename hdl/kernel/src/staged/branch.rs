//! `if`, as a statement and as a value.
use crate::functions::multiplex;
use crate::ir::{NodeId, Op, Statement, StatementKind};
use crate::node::{Integer, IntoNode, Node};
use crate::recorder::{self, Arms, Mark, steps};
use rust_hdl::core::prelude::*;

/// A condition: what is known at generation decides there, anything else becomes hardware.
#[diagnostic::on_unimplemented(message = "a condition is a `Bit`, not `{Self}`", label = "not a condition")]
pub trait Condition {
    #[doc(hidden)]
    fn decide(self) -> Decision;
}

/// The outcome of [`Condition::decide`].
#[doc(hidden)]
pub enum Decision {
    /// The condition is known at generation.
    Known(bool),
    /// The condition is a value of hardware: this node of one bit.
    Hardware(NodeId),
}

impl Condition for bool {
    fn decide(self) -> Decision {
        Decision::Known(self)
    }
}

impl Condition for Node<Bit> {
    fn decide(self) -> Decision {
        self.known().map_or(Decision::Hardware(self.id), Decision::Known)
    }
}

/// `if` as a statement.
pub fn branch(condition: impl Condition, then: impl FnOnce(), otherwise: impl FnOnce()) {
    match condition.decide() {
        Decision::Known(true) => then(),
        Decision::Known(false) => otherwise(),
        Decision::Hardware(condition) => both_sides(condition, then, otherwise, |(), ()| ()),
    }
}

/// Records both sides of a condition in hardware; effects become conditional, values go to `merge`.
fn both_sides<A, B, R>(
    condition: NodeId,
    then: impl FnOnce() -> A,
    otherwise: impl FnOnce() -> B,
    merge: impl FnOnce(A, B) -> R,
) -> R {
    let mut sides = Sides::begin();
    let then = then();
    sides.turn();
    let otherwise = otherwise();
    sides.end(condition);
    merge(then, otherwise)
}

/// The two sides of a branch while they are recorded.
struct Sides {
    mark: Mark,
    arms: Arms,
    then: Vec<Statement>,
}

impl Sides {
    fn begin() -> Self {
        let mark = steps::take_mark();
        let mut arms = Arms::begin();
        arms.open();
        Sides { mark, arms, then: Vec::new() }
    }

    /// Ends the side where the condition holds and begins the other.
    fn turn(&mut self) {
        self.then = self.arms.close();
        self.arms.open();
    }

    fn end(mut self, condition: NodeId) {
        let otherwise = self.arms.close();
        self.arms.end();
        push_if(self.mark, condition, self.then, otherwise);
    }
}

fn push_if(mark: Mark, condition: NodeId, then: Vec<Statement>, otherwise: Vec<Statement>) {
    recorder::with(|recorder| {
        if then.is_empty() && otherwise.is_empty() {
            recorder.restore_comments(mark);
        } else {
            recorder.push_at(mark, StatementKind::If { condition, then, otherwise });
        }
    });
}

/// Values that the two sides of a branch can yield.
#[diagnostic::on_unimplemented(
    message = "one branch yields `{Self}`, another `{R}`",
    label = "the branches differ in type or width"
)]
pub trait Merge<R>: Sized {
    /// Type of the merged value.
    type Output;
    /// Makes a multiplexer of the two values.
    fn merge(condition: Node<Bit>, then: Self, otherwise: R) -> Self::Output;
    /// The value when the condition is known to hold.
    fn only_then(self) -> Self::Output;
    /// The value when the condition is known not to hold.
    fn only_otherwise(otherwise: R) -> Self::Output;
}

impl<T: Synth, R: IntoNode<T>> Merge<R> for Node<T> {
    type Output = Node<T>;
    fn merge(condition: Node<Bit>, then: Self, otherwise: R) -> Node<T> {
        multiplex(condition, then, otherwise.into_node())
    }
    fn only_then(self) -> Node<T> {
        self
    }
    fn only_otherwise(otherwise: R) -> Node<T> {
        otherwise.into_node()
    }
}

impl<I> Merge<Integer<I>> for Integer<I> {
    type Output = Integer<I>;
    fn merge(condition: Node<Bit>, then: Self, otherwise: Self) -> Self {
        let (then, otherwise) = then.align(otherwise);
        let op = Op::Select { condition: condition.id, then, otherwise };
        Integer::from_id(steps::node(op, steps::width(then)))
    }
    fn only_then(self) -> Self {
        self
    }
    fn only_otherwise(otherwise: Self) -> Self {
        otherwise
    }
}

/// Numbers of the generator can be chosen by the generator only.
macro_rules! merge_generator_values {
    ($($ty:ty),*) => { $(
        impl Merge<$ty> for $ty {
            type Output = $ty;
            fn merge(_condition: Node<Bit>, then: $ty, otherwise: $ty) -> $ty {
                if then != otherwise {
                    recorder::with(|recorder| recorder.fault(
                        "a condition in hardware cannot choose between numbers of the generator; use `bits(..)`",
                    ));
                }
                then
            }
            fn only_then(self) -> $ty {
                self
            }
            fn only_otherwise(otherwise: $ty) -> $ty {
                otherwise
            }
        }
    )* };
}

merge_generator_values!(u8, u16, u32, u64, u128, usize, i32, i64);

/// A branch that yields nothing.
impl Merge<()> for () {
    type Output = ();
    fn merge(_condition: Node<Bit>, (): (), (): ()) {}
    fn only_then(self) {}
    fn only_otherwise((): ()) {}
}

macro_rules! merge_tuples {
    ($(($($left:ident $right:ident $index:tt),+))*) => { $(
        impl<$($left: Merge<$right>, $right),+> Merge<($($right,)+)> for ($($left,)+) {
            type Output = ($($left::Output,)+);
            fn merge(condition: Node<Bit>, then: Self, otherwise: ($($right,)+)) -> Self::Output {
                ($($left::merge(condition, then.$index, otherwise.$index),)+)
            }
            fn only_then(self) -> Self::Output {
                ($(self.$index.only_then(),)+)
            }
            fn only_otherwise(otherwise: ($($right,)+)) -> Self::Output {
                ($($left::only_otherwise(otherwise.$index),)+)
            }
        }
    )* };
}

merge_tuples! {
    (A RA 0)
    (A RA 0, B RB 1)
    (A RA 0, B RB 1, C RC 2)
    (A RA 0, B RB 1, C RC 2, D RD 3)
    (A RA 0, B RB 1, C RC 2, D RD 3, E RE 4)
    (A RA 0, B RB 1, C RC 2, D RD 3, E RE 4, F RF 5)
    (A RA 0, B RB 1, C RC 2, D RD 3, E RE 4, F RF 5, G RG 6)
    (A RA 0, B RB 1, C RC 2, D RD 3, E RE 4, F RF 5, G RG 6, H RH 7)
}

impl<A: Merge<R>, R, const N: usize> Merge<[R; N]> for [A; N] {
    type Output = [A::Output; N];
    fn merge(condition: Node<Bit>, then: Self, otherwise: [R; N]) -> Self::Output {
        let mut otherwise = otherwise.into_iter();
        then.map(|then| A::merge(condition, then, otherwise.next().expect("both arrays have N elements")))
    }
    fn only_then(self) -> Self::Output {
        self.map(A::only_then)
    }
    fn only_otherwise(otherwise: [R; N]) -> Self::Output {
        otherwise.map(A::only_otherwise)
    }
}

/// `if` as a value. With a condition in hardware both sides are recorded, and their wires exist in either case.
pub fn choose<A: Merge<B>, B>(
    condition: impl Condition,
    then: impl FnOnce() -> A,
    otherwise: impl FnOnce() -> B,
) -> A::Output {
    match condition.decide() {
        Decision::Known(true) => then().only_then(),
        Decision::Known(false) => A::only_otherwise(otherwise()),
        Decision::Hardware(id) => {
            both_sides(id, then, otherwise, |then, otherwise| A::merge(Node::from_id(id), then, otherwise))
        }
    }
}
