//! Records of a queue pair in [`Acknowledge`](super::Acknowledge), and what events, local completions and
//! failures make of them (protocol 2.5, 2.11, 3.10).
use crate::messages::{BLOCK_BITS, LocalCompletion, RETRY_BITS, RNR_CODE_BITS, Retired};
use crate::vendor_error;
use rnic_blocks::logic::psn;
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::state::QpState;
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{COMPLETION_QUEUE_BITS, GENERATION_BITS, SOURCE_ADDRESS_BITS, WORK_INDEX_BITS};
use rnic_messages::transmit::GatherFailure;

/// Path and state of a queue pair, as commands set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Peer {
    pub state: Bits<3>,
    pub generation: Bits<GENERATION_BITS>,
    pub service: Bits<2>,
    pub local_qp: Bits<24>,
    pub partition_key: Bits<16>,
    pub address: Bits<128>,
    pub source_address_index: Bits<SOURCE_ADDRESS_BITS>,
    pub completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    /// Retries after a timeout, or after a response that shows a loss.
    pub retry_count: Bits<RETRY_BITS>,
    /// Retries after an RNR NAK; seven is no limit.
    pub rnr_retry: Bits<RETRY_BITS>,
}

/// Progress of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Progress {
    /// The message of `failed_psn`, or the first one after it, fails when it is the oldest.
    pub will_fail: Bit,
    pub failed_psn: Bits<24>,
    pub failed_status: Bits<8>,
    pub failed_reason: Bits<8>,
    /// First block of the chain, relative to the home: zero is the home.
    pub head_from_home: Bits<BLOCK_BITS>,
    /// Messages of that block that have left, 0 to 8.
    pub head_count: Bits<4>,
    /// Messages that have left, a count that is never reset, the oldest unacknowledged PSN, and whether the others are
    /// flushed.
    pub retired: Retired,
    /// Control has answered the LOCAL_INVALIDATE that is in the pool.
    pub is_invalidated: Bit,
    /// Control has refused it.
    pub is_denied: Bit,
    /// The queue pair is in the ready queue.
    pub is_queued: Bit,
    /// The queue pair stays there until the messages that were parsed before its state changed have left.
    pub is_draining: Bit,
    /// The queue pair is in SQD, and raises an event when nothing is left.
    pub reports_drained: Bit,
    /// Retries since the acknowledged PSN moved.
    pub retries_taken: Bits<RETRY_BITS>,
    /// RNR NAKs since then, modulo 8.
    pub rnr_taken: Bits<RETRY_BITS>,
    /// The cursor goes back when what was acknowledged has left.
    pub wants_rewind: Bit,
    /// The peer was not ready: nothing is sent for the delay of `rnr_code`.
    pub awaits_peer: Bit,
    /// Timer code of the last RNR NAK.
    pub rnr_code: Bits<RNR_CODE_BITS>,
    /// The oldest message is in error, and data of the queue pair may be on its way to host memory: no response is taken any
    /// more, and the message leaves when the last one has returned.
    pub awaits_last: Bit,
    /// Payload of the queue pair may be on its way from host memory: the message leaves when the mark has returned.
    pub awaits_mark: Bit,
    /// Both were sent in this life of the queue pair.
    pub is_closed: Bit,
}

/// Why a message fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Failure {
    /// A `CompletionStatus`.
    pub status: Bits<8>,
    /// `vendor_error` of the CQE.
    pub reason: Bits<8>,
}

/// Path and state that an event sets.
#[kernel]
pub(super) fn peer_of(event: SetupEvent) -> Peer {
    Peer {
        state: event.state,
        generation: event.generation,
        service: event.path.service,
        local_qp: event.path.local_qp,
        partition_key: event.path.partition_key,
        address: event.path.destination_address,
        source_address_index: event.path.source_address_index,
        completion_queue: event.path.send_completion_queue.get_bits::<COMPLETION_QUEUE_BITS>(0),
        retry_count: event.path.retry_count,
        rnr_retry: event.path.rnr_retry,
    }
}

/// Path and state after a reset of the card: no response names a queue pair in RESET whose QPN is zero.
#[kernel]
pub(super) fn no_peer(peer: Peer) -> Peer {
    Peer { state: bits::<3>(QpState::Reset as u64), local_qp: bits::<24>(0), ..peer }
}

/// Says whether messages that were begun are sent again in a state.
#[kernel]
pub(super) fn sends(state: Bits<3>) -> Bit {
    state == QpState::ReadyToSend as u64 || state == QpState::SendQueueDrain as u64
}

/// Says whether responses of the peer have no effect any more: what is left is flushed.
#[kernel]
pub(super) fn is_over(progress: Progress) -> Bit {
    progress.retired.has_failed || progress.is_closed
}

/// Says whether the card neither writes nor reads memory of the queue pair's messages any more.
#[kernel]
pub(super) fn is_settled(progress: Progress) -> Bit {
    progress.is_closed && !progress.awaits_last && !progress.awaits_mark
}

/// Says whether an event concerns messages in flight; the others only set the path.
#[kernel]
pub(super) fn concerns_progress(kind: SetupKind) -> Bit {
    kind == SetupKind::Life || kind == SetupKind::Restart || kind == SetupKind::SendPsn
}

/// Says whether SQD raises its event when nothing is left: once for each transition to SQD (protocol 3.10).
#[kernel]
pub(super) fn reports_drained(event: SetupEvent, old_state: Bits<3>, reports_drained: Bit) -> Bit {
    let is_drain = event.state == QpState::SendQueueDrain as u64;
    let is_transition = old_state != QpState::SendQueueDrain as u64;
    is_drain && event.path.drain_notify && (is_transition || reports_drained)
}

/// Says whether an event takes a queue pair out of SQE: what comes after it is sent again (UC and UD; protocol 3.10).
#[kernel]
pub(super) fn leaves_error(event: SetupEvent, old_state: Bits<3>) -> Bit {
    old_state == QpState::SendQueueError as u64 && event.state == QpState::ReadyToSend as u64
}

/// Record after an event.
#[kernel]
pub(super) fn after_setup(progress: Progress, event: SetupEvent, old_state: Bits<3>) -> Progress {
    let has_ended = event.state == QpState::Error as u64 || event.state == QpState::SendQueueError as u64;
    let stays = !leaves_error(event, old_state);
    let queued = Progress { is_queued: true, ..progress };
    match event.kind {
        SetupKind::Life => Progress {
            will_fail: progress.will_fail && stays,
            is_draining: true,
            wants_rewind: progress.wants_rewind && sends(event.state),
            awaits_peer: progress.awaits_peer && sends(event.state),
            retired: Retired {
                waits: progress.retired.waits && sends(event.state),
                // A message in error that has not left yet is the first one, and keeps its status.
                has_failed: (progress.retired.has_failed && stays) || (has_ended && !progress.is_closed),
                ..progress.retired
            },
            reports_drained: reports_drained(event, old_state, progress.reports_drained),
            is_closed: progress.is_closed && stays,
            ..queued
        },
        SetupKind::Restart => Progress {
            will_fail: false,
            is_invalidated: false,
            is_draining: true,
            reports_drained: false,
            retries_taken: bits::<RETRY_BITS>(0),
            rnr_taken: bits::<RETRY_BITS>(0),
            wants_rewind: false,
            awaits_peer: false,
            awaits_last: false,
            awaits_mark: false,
            is_closed: false,
            retired: Retired {
                oldest_slot: bits::<WORK_INDEX_BITS>(0),
                waits: false,
                has_failed: false,
                ..progress.retired
            },
            ..queued
        },
        _ => Progress {
            retired: Retired { una_psn: event.psn, oldest_psn: event.psn, ..progress.retired },
            ..queued
        },
    }
}

/// Record after a local completion: control has answered a LOCAL_INVALIDATE, or a message is in the pool that no
/// response completes.
#[kernel]
pub(super) fn after_local(progress: Progress, local: LocalCompletion, is_current: Bit) -> Progress {
    let is_answer = local.is_invalidated && is_current;
    Progress {
        is_invalidated: progress.is_invalidated || is_answer,
        is_denied: select(is_answer, local.is_denied, progress.is_denied),
        is_queued: true,
        ..progress
    }
}

/// Record after a mark has returned; one of an older generation changes nothing.
#[kernel]
pub(super) fn after_mark(progress: Progress, is_current: Bit) -> Progress {
    Progress {
        awaits_mark: progress.awaits_mark && !is_current,
        is_queued: progress.is_queued || is_current,
        ..progress
    }
}

/// The packet that was not sent: of `local` as an access check failed, else as the host did not return its
/// payload.
#[kernel]
pub(super) fn lost_packet(is_own: Bit, local: LocalCompletion, failure: GatherFailure) -> GatherFailure {
    let own = GatherFailure {
        queue_pair: local.queue_pair,
        generation: local.generation,
        psn: local.psn,
        is_response: false,
        is_mark: false,
    };
    select(is_own, own, failure)
}

/// Why the message of a packet that was not sent fails.
#[kernel]
pub(super) fn lost_failure(is_own: Bit) -> Failure {
    Failure {
        status: bits::<8>(CompletionStatus::LocalProtection as u64),
        reason: select(is_own, bits::<8>(0), bits::<8>(vendor_error::PAYLOAD)),
    }
}

/// Says whether a failure that is known counts, and not the one at `psn`: the earliest PSN does.
#[kernel]
pub(super) fn keeps_failure(progress: Progress, psn: Bits<24>) -> Bit {
    progress.will_fail && !psn::is_before(psn, progress.failed_psn)
}

/// Record after a failure at `psn`, if it counts.
#[kernel]
pub(super) fn after_failure(progress: Progress, fails: Bit, psn: Bits<24>, failure: Failure) -> Progress {
    Progress {
        will_fail: progress.will_fail || fails,
        failed_psn: select(fails, psn, progress.failed_psn),
        failed_status: select(fails, failure.status, progress.failed_status),
        failed_reason: select(fails, failure.reason, progress.failed_reason),
        ..progress
    }
}

#[cfg(test)]
mod tests;
