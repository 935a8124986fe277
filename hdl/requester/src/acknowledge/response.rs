//! Rules of [`Acknowledge`](super::Acknowledge) about a response: whether it is one, what it says, and what
//! becomes of it (protocol 1.6, 2.5, 2.11, 8.3).
use super::record::{Failure, Peer, Progress, after_failure, concerns_progress, keeps_failure, lost_failure};
use super::retry::{Recovery, Timeout, after_recovery};
use super::turn::Verdict;
use super::{AcknowledgeCounts, Step};
use crate::messages::{Issued, Response, Retired};
use crate::opcode::{ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE};
use crate::response_class::{ResponseClass, classify, classify_returned, status};
use crate::vendor_error;
use rnic_blocks::logic::psn;
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::state::Service;
use rnic_messages::packet::{PacketToken, partition_keys_match};
use rnic_messages::read::ResponseNotice;
use rnic_messages::setup::{SetupKind, receives};
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// Why a response is dropped, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(super) enum Fault {
    None,
    UnknownQp,
    NotReady,
    Transport,
    Partition,
    SourceAddress,
    Silent,
}

/// A response of the peer, or one that returns from the place stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Arrival {
    /// It returns.
    pub is_back: Bit,
    pub class: ResponseClass,
    pub psn: Bits<24>,
    /// AETH syndrome.
    pub syndrome: Bits<8>,
}

/// What is found out about a response, or about a packet that was not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Check {
    pub fault: Fault,
    pub class: ResponseClass,
    /// PSNs from the oldest unacknowledged one.
    pub ahead: Bits<24>,
    /// PSNs in flight.
    pub in_flight: Bits<24>,
    /// A READ or an atomic is outstanding.
    pub has_open: Bit,
    /// No message is in flight.
    pub is_empty: Bit,
    /// If something fails, the message of this PSN.
    pub failing_psn: Bits<24>,
    /// An earlier failure is known.
    pub keeps: Bit,
    /// The packet that was not sent was acknowledged: it had been sent before.
    pub is_over: Bit,
    /// The packet of the response's PSN is to be sent again, and has not been: the cursor has gone back behind it.
    pub is_pending: Bit,
}

/// What becomes of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Outcome {
    /// It is from the peer, in flight, and takes effect now.
    pub is_good: Bit,
    /// It takes effect when it returns from the place stage.
    pub is_deferred: Bit,
    /// It is from the peer, and its PSN was acknowledged before.
    pub is_stale: Bit,
    /// It is from the peer, and its PSN was never sent.
    pub is_never_sent: Bit,
    /// It is good, but answers no request.
    pub is_other: Bit,
    /// It moves the acknowledged PSN.
    pub moves: Bit,
    /// Its own PSN is not acknowledged with it.
    pub excludes_psn: Bit,
    /// A message fails.
    pub refuses: Bit,
    /// The queue pair has something to complete.
    pub joins: Bit,
}

/// Queue pair that a response names.
#[kernel]
pub(super) fn respondent_of(
    is_back: Bit,
    returned: ResponseNotice,
    packet: PacketToken,
) -> Bits<QUEUE_PAIR_BITS> {
    select(is_back, returned.queue_pair, packet.queue_pair)
}

/// Reads what a response says. An ACK and an ATOMIC_ACK have no payload and no pad; one with either answers no request.
#[kernel]
pub(super) fn arrival_of(is_back: Bit, packet: PacketToken, returned: ResponseNotice) -> Arrival {
    let syndrome = packet.extended.get_bits::<8>(0);
    let has_no_payload = packet.opcode == ACKNOWLEDGE || packet.opcode == ATOMIC_ACKNOWLEDGE;
    let is_long = has_no_payload && (packet.payload_bytes.any() || packet.pad_mismatch);
    let class = if is_back {
        classify_returned(returned)
    } else if is_long {
        ResponseClass::Other
    } else {
        classify(packet.opcode, syndrome)
    };
    Arrival {
        is_back,
        class,
        psn: select(is_back, returned.psn, packet.psn),
        syndrome: select(is_back, returned.syndrome, syndrome),
    }
}

/// Says why a response is dropped. One that returns is, if its queue pair has changed meanwhile.
#[kernel]
pub(super) fn fault_of(
    is_back: Bit,
    packet: PacketToken,
    returned: ResponseNotice,
    peer: Peer,
    has_failed: Bit,
    is_own_address: Bit,
) -> Fault {
    if is_back {
        returned_fault(returned, peer, has_failed)
    } else {
        packet_fault(packet, peer, has_failed, is_own_address)
    }
}

/// Says why a response of the peer is dropped; `is_own_address` says that it is for the address that its queue
/// pair sends from (protocol 1.2).
#[kernel]
pub(super) fn packet_fault(packet: PacketToken, peer: Peer, has_failed: Bit, is_own_address: Bit) -> Fault {
    let is_connected = peer.service == Service::ReliableConnected as u64
        && packet.opcode.get_bits::<3>(5) == Service::ReliableConnected as u64;
    if packet.destination_qp != peer.local_qp {
        Fault::UnknownQp
    } else if !receives(peer.state) || has_failed {
        Fault::NotReady
    } else if !is_connected {
        Fault::Transport
    } else if !partition_keys_match(packet.partition_key, peer.partition_key) {
        Fault::Partition
    } else if packet.source_address != peer.address || !is_own_address {
        Fault::SourceAddress
    } else {
        Fault::None
    }
}

/// Says whether a response that returns is dropped: its queue pair has changed meanwhile.
#[kernel]
pub(super) fn returned_fault(returned: ResponseNotice, peer: Peer, has_failed: Bit) -> Fault {
    let is_current = returned.generation == peer.generation;
    if is_current && receives(peer.state) && !has_failed { Fault::None } else { Fault::Silent }
}

/// Finds out about a response, or about the packet of PSN `lost_psn`, which was not sent, or of a timeout, as `step` says.
/// `fault` is that of the response unless it is a CNP.
#[kernel]
pub(super) fn check_of(
    step: Step,
    lost_psn: Bits<24>,
    arrival: Arrival,
    fault: Fault,
    peer: Peer,
    progress: Progress,
    issued: Issued,
) -> Check {
    let retired = progress.retired;
    // A timeout fails the oldest message, and so does data for which no READ waits, whatever its PSN is.
    let failing_psn = match step {
        Step::Failure => lost_psn,
        Step::Check if arrival.class != ResponseClass::ReadData => arrival.psn,
        _ => retired.una_psn,
    };
    Check {
        fault: if arrival.class == ResponseClass::Congestion { Fault::Silent } else { fault },
        class: arrival.class,
        ahead: psn::distance(arrival.psn, retired.una_psn),
        in_flight: psn::distance(issued.unsent_psn, retired.una_psn),
        has_open: issued.reads != retired.reads,
        is_empty: issued.count == retired.count || issued.generation != peer.generation,
        failing_psn,
        keeps: keeps_failure(progress, failing_psn),
        is_over: psn::is_before(failing_psn, retired.una_psn),
        is_pending: progress.wants_rewind
            || issued.epoch != retired.epoch
            || !psn::is_before(arrival.psn, issued.next_psn),
    }
}

/// Says whether a class refuses a request.
#[kernel]
pub(super) fn is_refusal(class: ResponseClass) -> Bit {
    class == ResponseClass::Refusal || class == ResponseClass::NotReady
}

/// Decides what becomes of a response. Data passes the place stage, and so do responses that must not overtake
/// it. No atomic is outstanding while `has_open` is low. Between the first and the last data of a READ no
/// message completes.
#[kernel]
pub(super) fn outcome_of(check: Check, is_back: Bit, opcode: Bits<8>, is_middle: Bit) -> Outcome {
    let class = check.class;
    let is_ours = check.fault == Fault::None;
    let is_in_flight = check.ahead < check.in_flight && !check.is_empty;
    let is_past = check.ahead.get_bit(23);
    let is_progress = class == ResponseClass::Progress;
    let is_placed = class == ResponseClass::Placed;
    let is_failure = class == ResponseClass::Failure;
    let is_refusal = is_refusal(class);
    let is_answer = class == ResponseClass::ReadData;
    let is_other = class == ResponseClass::Other
        || (!is_back && is_answer && opcode == ATOMIC_ACKNOWLEDGE && !check.has_open);
    let is_data = is_answer && !is_other;
    let waits = !is_back && (is_data || (check.has_open && (is_progress || is_refusal)));
    let is_good = is_ours && is_in_flight && !waits;
    let moves = is_good && (is_progress || is_placed || is_refusal || is_failure);
    let refuses = is_good && (is_refusal || is_failure || is_data);
    Outcome {
        is_good,
        is_deferred: is_ours && is_in_flight && waits,
        is_stale: is_ours && !is_in_flight && is_past,
        is_never_sent: is_ours && !is_in_flight && !is_past,
        is_other: is_good && is_other,
        moves,
        excludes_psn: is_refusal || is_failure,
        refuses,
        joins: refuses || (moves && !(is_placed && is_middle)),
    }
}

/// What read_response gets: a packet, or after the last one of a queue pair in error, as `is_last` says, what returns when all
/// before it is in host memory.
#[kernel]
pub(super) fn sent_of(
    is_last: Bit,
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    packet: PacketToken,
    peer: Peer,
    is_deferred: Bit,
    class: ResponseClass,
) -> Response {
    let last = Response { queue_pair, generation: peer.generation, is_last: true, ..Default::default() };
    let response = Response {
        queue_pair,
        generation: peer.generation,
        is_good: is_deferred,
        is_data: class == ResponseClass::ReadData,
        opcode: packet.opcode,
        psn: packet.psn,
        syndrome: packet.extended.get_bits::<8>(0),
        payload_bytes: packet.payload_bytes,
        pad_mismatch: packet.pad_mismatch,
        original: packet.extended.get_bits::<64>(32),
        is_last: false,
    };
    select(is_last, last, response)
}

/// Says whether what returns is what the queue pair awaits behind all of its data.
#[kernel]
pub(super) fn settles(progress: Progress, is_back: Bit, returned: ResponseNotice, peer: Peer) -> Bit {
    progress.awaits_last && is_back && returned.is_last && returned.generation == peer.generation
}

/// Record after something has returned; `settles` says that it is what the queue pair awaits.
#[kernel]
pub(super) fn settled(progress: Progress, settles: Bit) -> Progress {
    Progress {
        awaits_last: progress.awaits_last && !settles,
        is_queued: progress.is_queued || settles,
        ..progress
    }
}

/// Says whether a response says that something was lost: a NAK of a PSN sequence error, or one that shows that a
/// response was lost (protocol 2.5).
#[kernel]
pub(super) fn says_lost(class: ResponseClass, syndrome: Bits<8>, returned: ResponseNotice) -> Bit {
    let is_sequence_error = class == ResponseClass::Refusal && !syndrome.get_bits::<2>(0).any();
    let is_lost =
        class == ResponseClass::Failure && returned.status == CompletionStatus::RetryExceeded as u64;
    is_sequence_error || is_lost
}

/// Why a message fails that a response refuses, or whose data could not be placed.
#[kernel]
pub(super) fn failure_of(class: ResponseClass, syndrome: Bits<8>, returned: ResponseNotice) -> Failure {
    let is_failure = class == ResponseClass::Failure;
    Failure {
        status: if is_failure && returned.write_failed && returned.is_placed {
            bits::<8>(CompletionStatus::LocalProtection as u64)
        } else if is_failure {
            returned.status
        } else {
            status(class, syndrome)
        },
        reason: if is_refusal(class) {
            syndrome
        } else if is_failure && returned.is_placed {
            bits::<8>(vendor_error::PAYLOAD)
        } else {
            bits::<8>(0)
        },
    }
}

/// Record after a response, before a failure is noted.
#[kernel]
pub(super) fn after_acknowledgement(
    progress: Progress,
    outcome: Outcome,
    response_psn: Bits<24>,
) -> Progress {
    let acknowledged = select(outcome.excludes_psn, response_psn, response_psn + 1);
    let una_psn = select(outcome.moves, acknowledged, progress.retired.una_psn);
    Progress {
        retired: Retired { una_psn, ..progress.retired },
        is_queued: progress.is_queued || outcome.joins,
        ..progress
    }
}

/// Record after a response; `fails` says that a failure counts.
#[kernel]
pub(super) fn after_response(
    progress: Progress,
    check: Check,
    outcome: Outcome,
    arrival: Arrival,
    returned: ResponseNotice,
    recovery: Recovery,
    fails: Bit,
) -> Progress {
    let failure = failure_of(check.class, arrival.syndrome, returned);
    let counted = after_recovery(progress, recovery, arrival.syndrome);
    let moved = after_acknowledgement(counted, outcome, arrival.psn);
    after_failure(moved, fails, check.failing_psn, failure)
}

/// Record after a packet that was not sent.
#[kernel]
pub(super) fn after_loss(progress: Progress, check: Check, is_own: Bit, fails: Bit) -> Progress {
    let queued = Progress { is_queued: true, ..progress };
    after_failure(queued, fails, check.failing_psn, lost_failure(is_own))
}

/// Says whether a step puts the queue pair into the ready queue: it may have something to complete. `is_current`
/// says that a failure is of the queue pair's generation, `joins` that a response has something to complete.
#[kernel]
pub(super) fn joins_queue(step: Step, kind: SetupKind, is_current: Bit, joins: Bit, timeout: Timeout) -> Bit {
    match step {
        Step::Setup => concerns_progress(kind),
        Step::Local => true,
        Step::Lost | Step::Marked => is_current,
        Step::Response => joins,
        Step::Expired => timeout.counts || timeout.ends_wait,
        _ => false,
    }
}

/// Events that a step counts. `fails` says that a failure counts, `says_lost` that something was lost and no
/// retry is left, `is_current` that it is of the queue pair's generation. ReadResponse has counted data for which no
/// READ waits.
#[kernel]
pub(super) fn counts_of(
    step: Step,
    check: Check,
    outcome: Outcome,
    says_lost: Bit,
    fails: Bit,
    is_current: Bit,
    verdict: Verdict,
) -> AcknowledgeCounts {
    let is_response = step == Step::Response;
    let class = check.class;
    let is_good = is_response && outcome.is_good;
    AcknowledgeCounts {
        unknown_qp: is_response && check.fault == Fault::UnknownQp,
        qp_not_ready: is_response && check.fault == Fault::NotReady,
        transport_mismatch: is_response && check.fault == Fault::Transport,
        partition_key: is_response && check.fault == Fault::Partition,
        source_address: is_response && check.fault == Fault::SourceAddress,
        acknowledgements_received: is_good && class == ResponseClass::Progress,
        nak_received: is_good && class == ResponseClass::Refusal,
        nak_rnr_received: is_good && class == ResponseClass::NotReady,
        response_stale: is_response && outcome.is_stale,
        response_never_sent: is_response && outcome.is_never_sent,
        response_reserved: is_good && class == ResponseClass::Reserved,
        response_unexpected: is_response && outcome.is_other,
        timeout: false,
        retry_exhausted: fails && is_good && says_lost,
        rnr_retry_exceeded: fails && is_good && class == ResponseClass::NotReady,
        messages_completed: step == Step::Complete && verdict == Verdict::Success,
        stale_dropped: step == Step::Lost && !is_current,
    }
}

#[cfg(test)]
mod tests;
