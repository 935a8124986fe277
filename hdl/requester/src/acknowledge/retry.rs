//! Rules of [`Acknowledge`](super::Acknowledge) about time: what the timer of a queue pair is set to, and what
//! becomes of its expiry (protocol 2.6).
use super::AcknowledgeCounts;
use super::record::{Failure, Peer, Progress, after_failure};
use super::response::{Check, Outcome};
use crate::messages::{ATTEMPT_BITS, Expired, Issued, TimerKind, TimerOrder, TimerSet};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::state::QpState;
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// What an expiry of an acknowledgement timer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Timeout {
    /// The peer has been silent for as long as the timer says.
    pub counts: Bit,
    /// No retry is left.
    pub is_last: Bit,
    /// The expiry is of an older generation.
    pub is_stale: Bit,
}

/// What the timer of a queue pair is set to after a change of its record.
#[kernel]
pub(super) fn timer_set_of(queue_pair: Bits<QUEUE_PAIR_BITS>, progress: Progress) -> TimerSet {
    TimerSet {
        queue_pair,
        order: TimerOrder {
            kind: if progress.has_failed { TimerKind::Stop } else { TimerKind::Ack },
            rnr_code: bits::<5>(0),
            una_psn: progress.retired.una_psn,
            attempt: progress.retries_taken,
        },
    }
}

/// Judges an expiry: it counts unless something has happened since the timer was started, or nothing is in
/// flight.
#[kernel]
pub(super) fn timeout_of(expired: Expired, peer: Peer, progress: Progress, issued: Issued) -> Timeout {
    let retired = progress.retired;
    let sends = peer.state == QpState::ReadyToSend as u64 || peer.state == QpState::SendQueueDrain as u64;
    let is_current = expired.generation == peer.generation;
    let is_same = expired.una_psn == retired.una_psn && expired.attempt == progress.retries_taken;
    let is_outstanding = issued.generation == peer.generation
        && issued.count != retired.count
        && issued.unsent_psn != retired.una_psn;
    let is_ack = expired.kind == TimerKind::Ack;
    Timeout {
        counts: is_ack && is_current && is_same && is_outstanding && sends && !progress.has_failed,
        is_last: progress.retries_taken == peer.retry_count,
        is_stale: !is_current,
    }
}

/// Record after a timeout that counts: it takes a retry, or fails the oldest message if none is left; `fails` says
/// that this failure counts.
#[kernel]
pub(super) fn after_timeout(progress: Progress, check: Check, timeout: Timeout, fails: Bit) -> Progress {
    let failure = Failure { status: bits::<8>(CompletionStatus::RetryExceeded as u64), reason: bits::<8>(0) };
    let taken = Progress {
        retries_taken: select(timeout.is_last, progress.retries_taken, progress.retries_taken + 1),
        is_queued: progress.is_queued || timeout.is_last,
        ..progress
    };
    after_failure(taken, fails, check.failing_psn, failure)
}

/// Events that a step counts: those of a timeout, if it `is_timeout`, else `counts`.
#[kernel]
pub(super) fn counts_after(
    counts: AcknowledgeCounts,
    is_timeout: Bit,
    timeout: Timeout,
    fails: Bit,
) -> AcknowledgeCounts {
    AcknowledgeCounts {
        timeout: is_timeout && timeout.counts,
        retry_exhausted: counts.retry_exhausted || (is_timeout && fails),
        stale_dropped: counts.stale_dropped || (is_timeout && timeout.is_stale),
        ..counts
    }
}

/// Retries taken after a response: none, if it acknowledges something.
#[kernel]
pub(super) fn retries_after(taken: Bits<ATTEMPT_BITS>, check: Check, outcome: Outcome) -> Bits<ATTEMPT_BITS> {
    let is_progress = outcome.moves && (!outcome.excludes_psn || check.ahead.any());
    select(is_progress, bits::<ATTEMPT_BITS>(0), taken)
}

#[cfg(test)]
mod tests;
