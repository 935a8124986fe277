//! Monitors: rules that hold in every run. They are always active.
//!
//! | Rule | Monitor | Meaning |
//! |---|---|---|
//! | [`Rule::Handshake`] | [`stream`] | a beat that is offered stays valid and unchanged until it is taken |
//! | [`Rule::Answer`] | [`crate::host::registers`] | the register slave answers each access once, in bounded time |
//! | [`Rule::Shape`] | [`dma`] | requests have 1 to 512 bytes and cross no multiple of 4096 |
//! | [`Rule::Tag`] | [`crate::host::read`] | a read tag is reused only after its answer |
//! | [`Rule::Words`] | [`crate::host::write`] | a write has as many words as its address range touches |
//! | [`Rule::Bounds`] | [`crate::host::memory`] | every access is mapped for its direction |
//! | [`Rule::Posted`] | [`posted`] | software does not change WQEs and commands after their doorbell |
//! | [`Rule::Release`] | [`posted`] | software unmaps memory that no object of the card uses |
//! | [`Rule::Order`] | [`order`], informed by [`overhear`] | payload, then CQE, then EQE, then interrupt |
//! | [`Rule::Frame`] | [`crate::wire::mac`] | frames leave complete, in time, and not marked as bad |
//! | [`Rule::Wire`] | [`rnic_monitor`], informed by [`overhear`] | frames are those that the set-up and the frames before allow; the counters tell whether a request was rightly sent again |
//! | [`Rule::Counters`] | [`counters`] | each frame from the wire increments exactly one counter |
//! | [`Rule::BusMaster`] | [`bus_master`] | no read, write or interrupt begins while the function is not bus master |
//! | [`Rule::Pools`] | [`dma`], [`pools`] | at the end nothing is in flight, and the pools of the card are in their first state |
//!
//! A violation is recorded with its time and ends the run at the next check: [`World`](crate::world::World) turns it into an
//! error.
pub mod bus_master;
pub mod counters;
pub mod dma;
pub mod order;
pub mod overhear;
pub mod pools;
pub mod posted;
pub mod stream;
pub mod trail;

use std::fmt;

/// Rules that monitors check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A beat that is offered stays until it is taken.
    Handshake,
    /// The register slave answers each access once, in bounded time.
    Answer,
    /// Host requests have an allowed length and cross no page.
    Shape,
    /// Tags are unique among the reads in flight.
    Tag,
    /// A write has the words of its address range.
    Words,
    /// The card accesses only what is mapped for it.
    Bounds,
    /// WQEs and commands are complete when their doorbell is written, and stay as they are until the card has read them.
    Posted,
    /// Memory is unmapped when no object of the card uses it any more.
    Release,
    /// Payload, CQE, EQE and interrupt become visible in this order.
    Order,
    /// Frames leave complete and in time.
    Frame,
    /// Frames are what set-up and protocol allow.
    Wire,
    /// Counters account for all frames.
    Counters,
    /// A card that is not bus master begins nothing at its host.
    BusMaster,
    /// At the end nothing is in flight, and the card has given back what work has taken from its pools.
    Pools,
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Simulated time.
    pub time_ps: u64,
    /// Card that violated the rule, as in `card0`.
    pub owner: String,
    /// Rule that was violated.
    pub rule: Rule,
    /// What happened, for the error message.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ps: {:?}: {}", self.owner, self.time_ps, self.rule, self.text)
    }
}

/// Maximum of violations that are kept. The first ones show the cause, and a broken card may cause one in each cycle.
const VIOLATIONS_MAX: usize = 64;

/// Violations of one card.
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

    /// Records a violation. The text is made only if the violation is kept.
    #[cold]
    pub fn report(&mut self, time_ps: u64, rule: Rule, text: impl FnOnce() -> String) {
        if self.violations.len() < VIOLATIONS_MAX {
            let owner = self.owner.clone();
            self.violations.push(Violation { time_ps, owner, rule, text: text() });
        }
    }

    /// Violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Takes the violations since the last call, for tests that expect them.
    pub fn take(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }
}
