//! Checks of a card through its driver, which know no back end: the same assertions hold for a card in this process, behind
//! vfio-user, and behind VFIO.
//!
//! ```text
//!   tests/backends.rs of the driver ──┐             ┌── simulated card in this process
//!                                     ├── CHECKS ───┼── served card (vfio-user)
//!   rnic selftest ────────────────────┘             └── PCI function (VFIO)
//! ```
//!
//! | module | checks |
//! |---|---|
//! | `card` | identity, registers, counters, resets, one owner |
//! | `objects` | limits and sizes of every kind of queue and region |
//! | `messages` | SEND, WRITE, READ, atomics, immediate and inline data, invalidation, SRQ |
//! | `failures` | errors as completions and events |
//! | `interrupts` | vectors, event queues, arming |
//!
//! Each check opens its cards itself and closes them, so that one that fails does not concern the next.

mod cards;

mod card;
mod objects;

mod messages;

mod failures;
mod interrupts;

pub use cards::{Cards, Connector};

use anyhow::Result;
use std::time::{Duration, Instant};

/// What a check needs besides one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Card,
    /// Frames of the first card reach the second one, or come back if there is no second.
    Wire,
}

/// A check.
pub struct Check {
    /// Name, in `snake_case`.
    pub name: &'static str,
    /// What holds if the check passes.
    pub claim: &'static str,
    needs: Needs,
    run: fn(&Cards) -> Result<()>,
}

/// How a check has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The claim holds.
    Passed,
    /// The claim does not hold: what was found.
    Failed(String),
    /// The check was not run: what it needs.
    NotRun(String),
}

/// Result of a check.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of the check.
    pub name: &'static str,
    /// Claim of the check.
    pub claim: &'static str,
    /// How it has ended.
    pub verdict: Verdict,
    /// How long it took, by the clock on the wall.
    pub duration: Duration,
}

impl Check {
    /// Runs the check.
    pub fn run(&self, cards: &Cards) -> Outcome {
        let start = Instant::now();
        let wire = if self.needs == Needs::Wire { cards.wire() } else { Ok(()) };
        let verdict = match wire {
            Err(missing) => Verdict::NotRun(missing),
            Ok(()) => match (self.run)(cards) {
                Ok(()) => Verdict::Passed,
                Err(error) => Verdict::Failed(format!("{error:#}")),
            },
        };
        Outcome { name: self.name, claim: self.claim, verdict, duration: start.elapsed() }
    }
}

macro_rules! checks {
    ($( $needs:ident $module:ident::$name:ident, $claim:literal; )+) => {
        /// All checks, in the order in which they are run: what others build on comes first.
        pub const CHECKS: &[Check] = &[ $(Check {
            name: stringify!($name),
            claim: $claim,
            needs: Needs::$needs,
            run: $module::$name,
        }),+ ];
    };
}

checks! {
    Card card::identity, "PCI identity, magic, layout version and limits are those of a card of this driver";
    Card card::registers, "a register holds what is written, and an access without a register is counted";
    Card card::counters, "a snapshot counts the commands since the last one";
    Card card::one_owner, "a card that is open cannot be opened again";
    Card card::reset, "a card that is closed and opened again is as new, and so is one after a function-level reset";

    Card objects::completion_queues, "completion queues of many sizes, and as many as the card has";
    Card objects::event_queues, "event queues of many sizes and vectors, and as many as the card has";
    Card objects::shared_receive_queues, "shared receive queues of many sizes, with a limit";
    Card objects::queue_pairs, "queue pairs of many sizes, and one that passes through all states";
    Card objects::regions, "regions from one byte to many pages, for this host and for peers";
    Card objects::huge_pages, "regions in huge pages, or an error that says how to have them";
    Card objects::address_handles, "address handles to IPv4 and IPv6 peers";

    Wire messages::sends, "SENDs of all lengths arrive as they were";
    Wire messages::scatter_gather, "a message is gathered from six pieces and scattered to three";
    Wire messages::inline, "inline data of all lengths";
    Wire messages::immediates, "immediate data of SENDs and WRITEs";
    Wire messages::writes, "WRITEs change the bytes that they name, and no others";
    Wire messages::reads, "READs bring the bytes that they name";
    Wire messages::atomics, "atomics change a cell and bring the original";
    Wire messages::invalidation, "keys are invalidated by their owner and by the peer";
    Wire messages::region_kinds, "the peer accesses each kind of region, and one of many pages";
    Wire messages::user_memory, "memory of the application moves into regions, and comes back with what a peer has sent";
    Wire messages::path_mtus, "messages in packets of each path MTU";
    Wire messages::addresses, "messages over IPv4 and IPv6";
    Wire messages::shared_receives, "two queue pairs take receives from one SRQ, which reports its limit";
    Wire messages::both_directions, "queues that wrap around many times, in both directions at once";
    Wire messages::draining, "a send queue drains, reports it, and goes on";

    Wire failures::remote_access, "what the peer may not access it does not get: completion, event, flush";
    Wire failures::receiver_not_ready, "a peer without a receive ends the queue pair after its retries";
    Wire failures::too_long, "a message that is longer than its receive fails on both sides";
    Wire failures::no_peer, "a peer that never answers ends the queue pair alone";
    Wire failures::flush, "posted requests of a failed queue pair complete as flushed, in order";

    Wire interrupts::vectors, "a completion interrupts by the vector of its event queue";
    Wire interrupts::solicited, "a queue armed for solicited completions waits for one";
    Wire interrupts::waiting, "a wait ends with a completion, and with its limit";

    Wire messages::reopening, "a card that is closed in mid-transfer opens again and moves data";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_check_has_a_name_of_its_own_and_a_claim() {
        let names: BTreeSet<&str> = CHECKS.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), CHECKS.len());
        assert!(CHECKS.iter().all(|check| check.claim.len() > 20 && !check.claim.ends_with('.')));
    }
}
