//! Requests that a card sends again without a reason that its port has seen.
//!
//! ```text
//!   wire ──> response ──> port ──> receive buffer, full ──> dropped and counted
//!                          │                                          │
//!                          v                                          v
//!            the monitor: it has arrived            the card: it was lost, the request is sent again
//! ```
//!
//! A card drops a good frame when its receive buffer has no room, or when the queue pair of the frame holds its share of it. If that
//! was a response, the card finds a gap in the responses or its timer runs out, as after a loss on the wire, and it rightly goes back.
//! The port sees the response arrive and knows of no loss. Only the counters of the card tell, when somebody reads them.
//!
//! So going back without a reason is no finding at once. It is counted, and the count is compared with the dropped frames:
//!
//! 1. Only responses count, and only the card that sends the requests can drop them: a request that its peer drops is missed by the
//!    peer, whose NAK arrives at the port, or by the timer, which the monitor knows. So the counters of the peer are not needed.
//! 2. A queue pair goes back without a reason only if it knows less than the port has seen, for which it must have dropped a response.
//!    From then on the monitor takes as known only what was answered before the PSN to which it went back, and what is answered since;
//!    its timer starts with the packet that was sent again. It is then right about the card until the next response is dropped. So each
//!    further time needs a dropped frame of its own, however often timers run out for the first one.
//! 3. Therefore a card goes back no more often without a reason than it has dropped frames. Frames that were no responses, or whose
//!    loss had no consequence, make the bound weaker and never wrong.
use crate::rule::Finding;

/// Number of findings that are kept. The first ones show the cause, and a broken card may go back with each packet.
const KEPT_MAX: usize = 64;

/// How often requests were sent again without a reason, and the first of these packets with their times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unexplained {
    count: u64,
    first: Vec<(u64, Finding)>,
}

impl Unexplained {
    /// Adds a packet with which the card has gone back. The finding is made only if it is kept.
    #[cold]
    pub(crate) fn add(&mut self, now_ps: u64, finding: impl FnOnce() -> Finding) {
        self.count += 1;
        if self.first.len() < KEPT_MAX {
            self.first.push((now_ps, finding()));
        }
    }

    /// Number of such packets of which no finding was returned.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the findings, and forgets them, if so many frames that were dropped do not explain that requests were sent again so many
    /// times.
    pub(crate) fn explain(&mut self, count: u64, dropped: u64) -> Vec<(u64, Finding)> {
        if count <= dropped {
            return Vec::new();
        }
        self.count = 0;
        let mut findings = std::mem::take(&mut self.first);
        for (_, finding) in &mut findings {
            finding.text += &format!(
                "; it is one of {count} times, and the card has dropped {dropped} frames for lack of room"
            );
        }
        findings
    }
}
