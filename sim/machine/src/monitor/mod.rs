//! Monitors: rules that hold in every run, whatever it tests. They are always on.
//!
//! | Rule | Who watches | What it says |
//! |---|---|---|
//! | [`Rule::Handshake`] | [`stream`] | what is offered stays, unchanged, until it is taken |
//! | [`Rule::Answer`] | [`crate::host::registers`] | the register slave answers in bounded time, once for each access |
//! | [`Rule::Shape`] | [`dma`] | requests have 1 to 512 bytes and cross no multiple of 4096 |
//! | [`Rule::Tag`] | [`crate::host::read`] | a tag is used again only after its answer |
//! | [`Rule::Words`] | [`crate::host::write`] | a write has as many words as its span touches |
//! | [`Rule::Bounds`] | [`crate::host::memory`] | what is not mapped, or not for that direction, is not touched |
//! | [`Rule::Order`] | [`order`], told by [`overhear`] | payload, then completion, then event, then interrupt |
//! | [`Rule::Frame`] | [`crate::wire::mac`] | frames leave whole, in time, and not marked as broken |
//! | [`Rule::Counters`] | [`counters`] | each frame from the wire moves exactly one counter |
//! | [`Rule::Pools`] | [`dma`] | at the end nothing is under way |
//!
//! A violation is recorded with its time and ends the run at the next look: [`World`](crate::world::World) turns it into an
//! error.
pub mod counters;
pub mod dma;
pub mod order;
pub mod overhear;
pub mod stream;
pub mod trail;

use std::fmt;

/// What was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// What is offered stays until it is taken.
    Handshake,
    /// The register slave answers.
    Answer,
    /// Requests are as long as they may be, and cross no page.
    Shape,
    /// Tags are unique among the reads under way.
    Tag,
    /// Writes have the words of their span.
    Words,
    /// The card touches what it was given, and nothing else.
    Bounds,
    /// Payload, completion, event, interrupt.
    Order,
    /// Frames are whole.
    Frame,
    /// Counters account for all frames.
    Counters,
    /// Everything comes back.
    Pools,
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub time_ps: u64,
    /// Whose: `card0`.
    pub owner: String,
    /// Which rule.
    pub rule: Rule,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ps: {:?}: {}", self.owner, self.time_ps, self.rule, self.text)
    }
}

/// Violations kept; the first ones say what is wrong, and a broken card can make one in each cycle.
const VIOLATIONS_MAX: usize = 64;

/// The violations of one card.
#[derive(Clone, Debug)]
pub struct Log {
    owner: String,
    violations: Vec<Violation>,
}

impl Log {
    /// Makes an empty log.
    pub fn new(owner: &str) -> Log {
        Log { owner: owner.to_string(), violations: Vec::new() }
    }

    /// Records a violation. The text is made only when it is kept.
    #[cold]
    pub fn report(&mut self, time_ps: u64, rule: Rule, text: impl FnOnce() -> String) {
        if self.violations.len() < VIOLATIONS_MAX {
            let owner = self.owner.clone();
            self.violations.push(Violation { time_ps, owner, rule, text: text() });
        }
    }

    /// What has been recorded.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// What has been recorded since the last call, for tests that expect it.
    pub fn take(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }
}
