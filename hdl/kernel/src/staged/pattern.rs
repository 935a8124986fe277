//! `match`: patterns become tests, and a match on constants becomes a `case`.
use crate::ir::{BinaryOp, CaseArm, NodeId, Statement, StatementKind};
use crate::node::{Integer, Node, binary};
use crate::recorder::{self, Arms, Mark, steps};
use crate::staged::branch::Merge;
use crate::staged::compare::{Compare, join};
use rust_hdl::core::prelude::*;
use std::collections::HashSet;

/// The condition under which a pattern matches.
#[derive(Clone, Debug)]
pub enum Test {
    /// Decided at generation.
    Known(bool),
    /// `subject == label`, kept apart so that a match can become a `case`.
    Label {
        /// The value that is matched.
        subject: NodeId,
        /// The literal of the pattern.
        label: NodeId,
    },
    /// One of several, for the same subject or not.
    Any(Vec<Test>),
    /// All of several.
    All(Vec<Test>),
    /// Any other condition.
    Node(Node<Bit>),
}

impl From<bool> for Test {
    fn from(known: bool) -> Self {
        Test::Known(known)
    }
}

impl From<Node<Bit>> for Test {
    fn from(node: Node<Bit>) -> Self {
        node.known().map_or(Test::Node(node), Test::Known)
    }
}

/// Alternatives of a pattern: `a | b`.
pub fn alternatives(tests: Vec<Test>) -> Test {
    if tests.iter().any(|test| matches!(test, Test::Known(true))) {
        return Test::Known(true);
    }
    let mut tests: Vec<_> = tests.into_iter().filter(|test| !matches!(test, Test::Known(false))).collect();
    match tests.len() {
        0 => Test::Known(false),
        1 => tests.remove(0),
        _ => Test::Any(tests),
    }
}

/// Parts of a pattern, and its guard.
pub fn all(tests: Vec<Test>) -> Test {
    if tests.iter().any(|test| matches!(test, Test::Known(false))) {
        return Test::Known(false);
    }
    let mut tests: Vec<_> = tests.into_iter().filter(|test| !matches!(test, Test::Known(true))).collect();
    match tests.len() {
        0 => Test::Known(true),
        1 => tests.remove(0),
        _ => Test::All(tests),
    }
}

impl Test {
    fn condition(&self) -> Node<Bit> {
        match self {
            Test::Known(known) => Node::constant(*known),
            Test::Label { subject, label } => equality(*subject, *label),
            Test::Any(tests) => combine(tests, true),
            Test::All(tests) => combine(tests, false),
            Test::Node(node) => *node,
        }
    }

    /// The labels of a `case` arm, if that is all that this test is.
    fn labels(&self) -> Option<(NodeId, Vec<NodeId>)> {
        match self {
            Test::Label { subject, label } => Some((*subject, vec![*label])),
            Test::Any(tests) => {
                let parts = tests.iter().map(Test::labels).collect::<Option<Vec<_>>>()?;
                let subject = parts.first()?.0;
                let is_one = parts.iter().all(|(other, _)| *other == subject);
                is_one.then(|| (subject, parts.into_iter().flat_map(|(_, labels)| labels).collect()))
            }
            _ => None,
        }
    }
}

/// `subject == label`; of a single bit just the bit, or its inverse.
fn equality(subject: NodeId, label: NodeId) -> Node<Bit> {
    let known_bit = recorder::with(|recorder| {
        (recorder.width(label) == 1).then(|| recorder.known(label).is_some_and(|value| value.bits() > 0))
    });
    match known_bit {
        Some(true) => Node::from_id(subject),
        Some(false) => !Node::<Bit>::from_id(subject),
        None => binary(BinaryOp::Eq, subject, label),
    }
}

fn combine(tests: &[Test], is_or: bool) -> Node<Bit> {
    let conditions = tests.iter().map(Test::condition);
    conditions.reduce(|left, right| join(left, right, is_or)).unwrap_or_else(|| Node::constant(!is_or))
}

/// A pattern that is one value.
#[diagnostic::on_unimplemented(
    message = "a value of type `{Self}` cannot be matched with a pattern of type `{P}`",
    label = "`Bits` are matched as integers: `match x.to_u64()`"
)]
pub trait Matches<P> {
    #[doc(hidden)]
    fn is(self, pattern: P) -> Test;
}

impl<T: Synth> Matches<T> for Node<T> {
    fn is(self, pattern: T) -> Test {
        let label = Node::constant(pattern).id;
        Test::Label { subject: self.id, label }
    }
}

macro_rules! match_integers {
    ($($integer:ty),*) => { $(
        impl Matches<$integer> for Integer<$integer> {
            fn is(self, pattern: $integer) -> Test {
                let (width, pattern) = (self.width(), num_bigint::BigUint::from(pattern));
                recorder::with(|recorder| {
                    if pattern.bits() > width as u64 {
                        recorder.name_next_literal(None);
                        return Test::Known(false);
                    }
                    Test::Label { subject: self.id, label: recorder.literal(pattern, width) }
                })
            }
        }
    )* };
}

match_integers!(u8, u16, u32, u64, u128, usize);

macro_rules! match_generator_values {
    ($($ty:ty),*) => { $(
        impl Matches<$ty> for $ty {
            fn is(self, pattern: $ty) -> Test {
                Test::Known(self == pattern)
            }
        }
    )* };
}

match_generator_values!(bool, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, char, &str);

/// One end of a range pattern.
pub fn within<S: Compare<V, Output: Into<Test>>, V>(subject: S, op: BinaryOp, bound: V) -> Test {
    subject.compare(op, bound).into()
}

/// The arms of a match so far.
struct Recorded<V> {
    effects: Vec<(Test, Vec<Statement>)>,
    values: Vec<V>,
    paths: Arms,
    mark: Mark,
}

impl<V> Recorded<V> {
    fn begin() -> Self {
        let mark = steps::take_mark();
        Recorded { effects: Vec::new(), values: Vec::new(), paths: Arms::begin(), mark }
    }

    /// An arm that can never be reached is not recorded at all.
    fn arm(&mut self, test: Test, body: impl FnOnce() -> V) {
        let is_decided = matches!(self.effects.last(), Some((Test::Known(true), _)));
        if !is_decided && !matches!(test, Test::Known(false)) {
            self.paths.open();
            let value = body();
            self.effects.push((test, self.paths.close()));
            self.values.push(value);
        }
    }

    /// Pushes the effects and returns the tests with their values.
    fn finish(self) -> Vec<(Test, V)> {
        self.paths.end();
        let tests: Vec<Test> = self.effects.iter().map(|(test, _)| test.clone()).collect();
        push_effects(self.mark, self.effects);
        tests.into_iter().zip(self.values).collect()
    }
}

fn push_effects(mark: Mark, mut arms: Vec<(Test, Vec<Statement>)>) {
    let has_effects = arms.iter().any(|(_, effects)| !effects.is_empty());
    let Some((last, default)) = arms.pop().filter(|_| has_effects) else {
        return recorder::with(|recorder| recorder.restore_comments(mark));
    };
    if arms.is_empty() {
        // Only one arm can be reached: what it does happens always.
        return recorder::with(|recorder| {
            recorder.restore_comments(mark);
            default.into_iter().for_each(|statement| recorder.push_statement(statement));
        });
    }
    match case_subject(&arms) {
        Some(subject) if arms.len() > 1 => {
            let labels = last.labels().map(|(_, labels)| labels).unwrap_or_default();
            push_case(mark, subject, arms, CaseArm { labels, body: default });
        }
        _ => push_chain(mark, arms, default),
    }
}

/// The subject, if all tests are labels of one.
fn case_subject(arms: &[(Test, Vec<Statement>)]) -> Option<NodeId> {
    let subjects = arms.iter().map(|(test, _)| test.labels().map(|(subject, _)| subject));
    let subjects = subjects.collect::<Option<Vec<_>>>()?;
    let first = *subjects.first()?;
    subjects.iter().all(|&subject| subject == first).then_some(first)
}

fn push_case(mark: Mark, subject: NodeId, arms: Vec<(Test, Vec<Statement>)>, default: CaseArm) {
    let mut seen = HashSet::new();
    let mut cases = Vec::new();
    for (test, body) in arms {
        let (_, mut labels) = test.labels().expect("`case_subject` has seen labels only");
        // Patterns may overlap in Rust, where the first one wins; labels of a `case` should not.
        labels.retain(|&label| seen.insert(recorder::with(|recorder| recorder.known(label).cloned())));
        if !labels.is_empty() {
            cases.push(CaseArm { labels, body });
        }
    }
    cases.push(default);
    recorder::with(|recorder| recorder.push_at(mark, StatementKind::Case { subject, arms: cases }));
}

fn push_chain(mark: Mark, arms: Vec<(Test, Vec<Statement>)>, default: Vec<Statement>) {
    let mut otherwise = default;
    for (test, then) in arms.into_iter().rev() {
        let kind = StatementKind::If { condition: test.condition().id, then, otherwise };
        otherwise = vec![mark.statement(kind)];
    }
    recorder::with(|recorder| {
        recorder.restore_comments(mark);
        otherwise.into_iter().for_each(|statement| recorder.push(statement.kind));
    });
}

/// `match` as a statement.
pub struct MatchStatement(Recorded<()>);

impl MatchStatement {
    /// Starts a match; the arms follow.
    pub fn begin() -> Self {
        MatchStatement(Recorded::begin())
    }

    /// Records one arm.
    pub fn arm(&mut self, test: Test, body: impl FnOnce()) {
        self.0.arm(test, body);
    }

    /// Ends the match.
    pub fn finish(self) {
        self.0.finish();
    }
}

/// `match` as a value: a chain of multiplexers that ends in the last arm.
pub struct MatchValue<V>(Recorded<V>);

impl<V: Merge<V, Output = V>> MatchValue<V> {
    /// Starts a match; the arms follow.
    pub fn begin() -> Self {
        MatchValue(Recorded::begin())
    }

    /// Records one arm.
    pub fn arm(&mut self, test: Test, value: impl FnOnce() -> V) {
        self.0.arm(test, value);
    }

    /// Ends the match.
    pub fn finish(self) -> V {
        let mut arms = self.0.finish();
        let (_, last) = arms.pop().expect("Rust has proved that one arm fits");
        let chain = arms.into_iter().rev();
        chain.fold(last, |otherwise, (test, then)| V::merge(test.condition(), then, otherwise))
    }
}
