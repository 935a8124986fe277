//! Rules of [`Acknowledge`](super::Acknowledge) about going back: when a loss, a timeout or an RNR NAK makes it, which retry it
//! takes, what the timer of a queue pair is set to, and what becomes of its expiry (protocol 2.5 to 2.7).
use super::record::{Failure, Peer, Progress, after_failure, is_over, sends};
use super::response::{Check, Outcome};
use super::{AcknowledgeCounts, Step};
use crate::messages::{
    ATTEMPT_BITS, Expired, Issued, RETRY_BITS, RNR_CODE_BITS, TimerKind, TimerOrder, TimerSet,
};
use crate::response_class::ResponseClass;
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// `rnr_retry` of a queue pair that waits for its peer without end (protocol 2.7).
const RNR_RETRY_ENDLESS: u64 = 7;

/// Whether a response makes the requester go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Recovery {
    /// Something was acknowledged, so all retries are there again.
    pub progresses: Bit,
    /// Something was lost: the cursor goes back, with one retry less.
    pub rewinds: Bit,
    /// The peer was not ready: the cursor goes back, and waits there.
    pub waits: Bit,
    /// The packet of its PSN is sent again anyway, or has been.
    pub is_due: Bit,
}

/// What an expiry of a timer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Timeout {
    /// The peer has been silent for as long as the timer says.
    pub counts: Bit,
    /// The delay of an RNR NAK is over.
    pub ends_wait: Bit,
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
            kind: if is_over(progress) {
                TimerKind::Stop
            } else if progress.awaits_peer {
                TimerKind::RnrWait
            } else {
                TimerKind::Ack
            },
            rnr_code: progress.rnr_code,
            una_psn: progress.retired.una_psn,
            attempt: attempt_of(progress),
            epoch: progress.retired.epoch,
        },
    }
}

/// Changes with each retry of either kind, so that the timer starts anew with it. The two numbers side by side: a sum would
/// come after everything that decides on a response.
#[kernel]
pub(super) fn attempt_of(progress: Progress) -> Bits<ATTEMPT_BITS> {
    concat((progress.rnr_taken, progress.retries_taken))
}

/// Decides whether a response makes the requester go back; `says_lost` says that something was lost. While it has gone
/// back and has not come to that packet again, the response says nothing new. That a response is missing is no news either
/// after it has gone back for any reason, until something is acknowledged (protocol 2.6).
#[kernel]
pub(super) fn recovery_of(
    check: Check,
    outcome: Outcome,
    says_lost: Bit,
    peer: Peer,
    progress: Progress,
) -> Recovery {
    let progresses = outcome.moves && (check.ahead.any() || !outcome.excludes_psn);
    let retries = select(progresses, bits::<RETRY_BITS>(0), progress.retries_taken);
    let waits = select(progresses, bits::<RETRY_BITS>(0), progress.rnr_taken);
    let is_lost = outcome.refuses && says_lost;
    let is_early = outcome.refuses && check.class == ResponseClass::NotReady;
    let is_known = check.class == ResponseClass::Failure && retries.any();
    let is_due = check.is_pending || (is_lost && is_known);
    let may_wait = peer.rnr_retry == RNR_RETRY_ENDLESS || waits < peer.rnr_retry;
    Recovery {
        progresses,
        rewinds: is_lost && !is_due && retries < peer.retry_count,
        waits: is_early && !is_due && may_wait,
        is_due: (is_lost || is_early) && is_due,
    }
}

/// Says whether a response is a failure of its message.
#[kernel]
pub(super) fn is_final(outcome: Outcome, recovery: Recovery) -> Bit {
    outcome.refuses && !recovery.rewinds && !recovery.waits && !recovery.is_due
}

/// Says whether a step makes a message fail: a response that refuses it, a packet of it that could not be sent, or a timeout
/// without a retry left; but no earlier failure is known. `is_current` says that the packet was of the queue pair's generation.
#[kernel]
pub(super) fn fails_in(
    step: Step,
    is_current: Bit,
    check: Check,
    outcome: Outcome,
    recovery: Recovery,
    timeout: Timeout,
) -> Bit {
    let fails = match step {
        Step::Response => is_final(outcome, recovery),
        Step::Lost => is_current && !check.is_over,
        Step::Expired => timeout.counts && timeout.is_last,
        _ => false,
    };
    fails && !check.keeps
}

/// Record after a response, as far as retries are concerned.
#[kernel]
pub(super) fn after_recovery(progress: Progress, recovery: Recovery, syndrome: Bits<8>) -> Progress {
    let retries = select(recovery.progresses, bits::<RETRY_BITS>(0), progress.retries_taken);
    let waits = select(recovery.progresses, bits::<RETRY_BITS>(0), progress.rnr_taken);
    Progress {
        retries_taken: select(recovery.rewinds, retries + 1, retries),
        rnr_taken: select(recovery.waits, waits + 1, waits),
        wants_rewind: progress.wants_rewind || recovery.rewinds || recovery.waits,
        awaits_peer: progress.awaits_peer || recovery.waits,
        rnr_code: select(recovery.waits, syndrome.get_bits::<RNR_CODE_BITS>(0), progress.rnr_code),
        ..progress
    }
}

/// Judges an expiry: it counts unless something has happened since the timer was started, or nothing is in
/// flight.
#[kernel]
pub(super) fn timeout_of(expired: Expired, peer: Peer, progress: Progress, issued: Issued) -> Timeout {
    let retired = progress.retired;
    let is_current = expired.generation == peer.generation;
    let is_same = expired.una_psn == retired.una_psn && expired.attempt == attempt_of(progress);
    let is_outstanding = issued.generation == peer.generation
        && issued.count != retired.count
        && issued.unsent_psn != retired.una_psn;
    // Until something has been sent since the cursor went back, the silence is not the peer's.
    let is_awaited = is_outstanding && issued.epoch == retired.epoch && !progress.wants_rewind;
    let is_ack = expired.kind == TimerKind::Ack;
    Timeout {
        counts: is_ack && is_current && is_same && is_awaited && sends(peer.state) && !is_over(progress),
        ends_wait: !is_ack && is_current && is_same && progress.awaits_peer,
        is_last: progress.retries_taken == peer.retry_count,
        is_stale: !is_current,
    }
}

/// Record after an expiry that counts. A timeout takes a retry, or fails the oldest message if none is left; `fails` says
/// that this failure counts. The cursor goes back, or goes on after the delay of an RNR NAK.
#[kernel]
pub(super) fn after_timeout(progress: Progress, check: Check, timeout: Timeout, fails: Bit) -> Progress {
    let failure = Failure { status: bits::<8>(CompletionStatus::RetryExceeded as u64), reason: bits::<8>(0) };
    let taken = Progress {
        retries_taken: select(
            timeout.is_last || timeout.ends_wait,
            progress.retries_taken,
            progress.retries_taken + 1,
        ),
        wants_rewind: progress.wants_rewind || timeout.ends_wait || !timeout.is_last,
        awaits_peer: progress.awaits_peer && !timeout.ends_wait,
        is_queued: true,
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

#[cfg(test)]
mod tests;
