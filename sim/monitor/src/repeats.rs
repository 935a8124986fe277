//! From where on a queue pair sends requests again, and how often.
//!
//! 1. What is acknowledged by the response that shows a loss is not sent again for that loss: the card goes back to the first PSN that is
//!    missing (protocol 2.5, 2.8). A card that has dropped a response for lack of room may know less, so this is a doubt as in
//!    [`unexplained`](crate::unexplained).
//! 2. Without progress, a queue pair goes back no more often than it has retries (protocol 2.6, 2.7). Several reasons may make it go back
//!    once only, and what the card does not send again is not seen; so fewer times are counted here than retries are taken. But what is
//!    sent again first after an acknowledgement may have been decided before it. A card that may know less than its port has seen has
//!    progress that is no news to the port: it goes back to a later PSN than before.
use crate::set_up::SetUp;
use rnic_layout::psn::Psn;
use std::collections::VecDeque;

/// `rnr_retry` of a queue pair that waits for its peer without end.
const ENDLESS: u8 = 7;

/// Losses that the port has seen, and how often the card has gone back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeats {
    /// For each loss for which PSNs were not sent again, what was not acknowledged by the response that has shown it; unknown if
    /// nobody has.
    missing: VecDeque<Option<Psn>>,
    /// Since the last progress: how often PSNs were sent again, and whether an RNR NAK has come.
    count: u32,
    has_waited: bool,
    /// The last PSN from which on they were, if they were.
    furthest: Psn,
    /// There was progress.
    has_progressed: bool,
}

impl Repeats {
    /// Number of losses for which PSNs were not sent again.
    pub(crate) fn losses(&self) -> usize {
        self.missing.len()
    }

    /// Something was lost, and what was not acknowledged then.
    pub(crate) fn lose(&mut self, missing: Option<Psn>) {
        self.missing.push_back(missing);
    }

    /// An RNR NAK has come.
    pub(crate) fn wait(&mut self) {
        self.has_waited = true;
    }

    /// Something was acknowledged.
    pub(crate) fn progress(&mut self) {
        (self.count, self.has_waited, self.has_progressed) = (0, false, true);
    }

    /// PSNs are sent again for one of the losses.
    pub(crate) fn forget_one(&mut self) {
        self.missing.pop_front();
    }

    /// Returns whether no loss makes the card send this PSN again: all that were shown are of later ones.
    pub(crate) fn is_acknowledged(&self, psn: Psn) -> bool {
        !self.missing.is_empty()
            && self.missing.iter().all(|missing| missing.is_some_and(|missing| psn.is_before(missing)))
    }

    /// Notes that the card goes back to a PSN. Returns how often it has without progress, and how often it may, if it has too often.
    pub(crate) fn go_back(&mut self, set_up: &SetUp, psn: Psn) -> Option<(u32, u32)> {
        if self.count > 0 && psn.is_after(self.furthest) {
            self.progress();
        }
        if self.count == 0 {
            self.furthest = psn;
        }
        self.count += 1;
        let waits = if self.has_waited { set_up.rnr_retry } else { 0 };
        let allowed = u32::from(set_up.retry_count) + u32::from(waits) + u32::from(self.has_progressed);
        (waits != ENDLESS && self.count > allowed).then_some((self.count, allowed))
    }
}
