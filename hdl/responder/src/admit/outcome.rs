//! Decisions of [`Admit`](super::Admit): what becomes of a packet (protocol 3.1 to 3.6), and what the sweep does
//! with a queue pair in ERR (protocol 4.3).
use super::check::{Findings, Identity, PacketClass, needs_wqe};
use super::record::{AdmitPath, AdmitRecord, Message};
use crate::messages::{AdmitCounts, Decision};
use rnic_blocks::logic::psn::PsnCheck;
use rnic_kernel::prelude::*;
use rnic_layout::syndrome::{CREDITS_UNLIMITED, NakCode, Syndrome};
use rnic_messages::packet::PacketToken;

/// AETH syndromes (protocol 1.6). Credits are not limited.
const ACKNOWLEDGED: u64 = Syndrome::Ack { credit_code: CREDITS_UNLIMITED }.emit() as u64;
const NOT_READY: u64 = Syndrome::RnrNak { timer_code: 0 }.emit() as u64;
const NAK_SEQUENCE: u64 = Syndrome::Nak(NakCode::PsnSequenceError).emit() as u64;
const NAK_INVALID: u64 = Syndrome::Nak(NakCode::InvalidRequest).emit() as u64;

/// Place of a packet in the order of its queue pair. At most one of the last three is set, and only with the
/// first.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Order {
    /// It is a packet of the queue pair, and none before it has failed.
    pub is_checked: Bit,
    pub is_expected: Bit,
    pub is_gap: Bit,
    pub is_duplicate: Bit,
}

/// What the sweep does with a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Flush {
    /// A WQE is flushed, or the last WQE reached is reported.
    pub flushes: Bit,
    /// The WQE is the next of the ring, not the one of the SEND that is arriving.
    pub takes_wqe: Bit,
    /// The queue pair of an SRQ reports last WQE reached.
    pub reports_last_wqe: Bit,
}

/// Outcome of a packet, or of a step of the sweep. Of a packet at most one of `executes`, `refuses`,
/// `is_not_ready`, `naks_gap`, `repeats` and `asks_again` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Outcome {
    pub decision: Decision,
    pub order: Order,
    /// It is executed, if keys and receive WQE allow it.
    pub executes: Bit,
    /// It is invalid: NAK 0x61.
    pub refuses: Bit,
    /// It needs a receive WQE and none is posted: RNR NAK.
    pub is_not_ready: Bit,
    /// It is the first one after a gap: NAK 0x60.
    pub naks_gap: Bit,
    /// It is a duplicate SEND or WRITE whose sender asks for an ACK.
    pub repeats: Bit,
    /// It is a duplicate READ or atomic: the READ responder looks for what it asks for again.
    pub asks_again: Bit,
    /// It is valid up to its receive WQE, and needs one.
    pub wants_wqe: Bit,
    /// A receive WQE is taken for it.
    pub takes_wqe: Bit,
    /// A WQE of the ring of the queue pair itself is taken for it, or flushed.
    pub takes_own_wqe: Bit,
    /// It is dropped because of the share of its ring.
    pub exceeds_share: Bit,
    /// It is the first that is executed in RTR: communication is established (protocol 3.9).
    pub establishes: Bit,
    pub flush: Flush,
}

/// Says whether a packet passes step 1 of protocol 3.1.
#[kernel]
fn is_known(identity: Identity) -> Bit {
    identity.qp_matches
        && identity.is_ready
        && identity.transport_matches
        && identity.partition_matches
        && identity.address_matches
}

/// Finds the place of a packet in the order of its queue pair (protocol 3.2). A packet after one that has failed
/// has none.
#[kernel]
fn order_of(found: Findings) -> Order {
    let is_checked = is_known(found.identity) && !found.has_failed;
    Order {
        is_checked,
        is_expected: is_checked && found.psn_check == PsnCheck::Expected,
        is_gap: is_checked && found.psn_check == PsnCheck::Gap,
        is_duplicate: is_checked && found.psn_check == PsnCheck::Duplicate,
    }
}

/// Says whether the access flags of the queue pair permit a READ or an atomic (protocol 3.6 row 5).
#[kernel]
fn may_read(path: AdmitPath, class: PacketClass) -> Bit {
    class.is_read && select(class.is_atomic, path.remote_atomic, path.remote_read)
}

/// Says whether the access flags of the queue pair, the alignment of an atomic and the READs in flight permit
/// the operation (protocol 3.6 rows 5 to 7). What is no request is not permitted (row 3).
#[kernel]
fn is_allowed(path: AdmitPath, found: Findings) -> Bit {
    let class = found.class;
    let is_aligned = !class.is_atomic || found.is_aligned;
    let may_read = may_read(path, class) && is_aligned && found.has_slot;
    class.is_send || (class.is_write && path.remote_write) || may_read
}

/// Says whether payload and pad are as protocol 3.6 rows 8 and 9 ask. An only packet may be empty, and one that
/// does not end its message is full.
#[kernel]
fn fits(found: Findings, pad_mismatch: Bit) -> Bit {
    let class = found.class;
    let lengths = found.lengths;
    let has_room =
        select(class.ends, !lengths.too_long && (class.starts || !lengths.is_empty), lengths.is_full);
    let is_all = select(class.is_read, lengths.is_empty, lengths.is_complete);
    let adds_up = !lengths.promises_too_much && select(class.ends, is_all, !lengths.overruns);
    has_room && !pad_mismatch && (class.is_send || adds_up)
}

/// Says whether a duplicate is acknowledged again (protocol 3.4). READs and atomics are answered instead; where no SEND or WRITE is
/// in the window of duplicates, it is none.
#[kernel]
fn can_repeat(found: Findings) -> Bit {
    (found.class.is_send || found.class.is_write) && found.follows_message
}

/// Decides what the sweep does with a queue pair in ERR: it flushes its WQEs one after the other, that of a SEND
/// that has not ended first, for it was consumed before the others; the WQEs of an SRQ stay, and last WQE reached
/// is reported once.
#[kernel]
fn flush_of(is_sweep: Bit, path: AdmitPath, record: AdmitRecord, found: Findings) -> Flush {
    let is_sending = record.message == Message::Send;
    let owes_report = path.is_shared && !record.is_last_wqe_reported;
    let flushes = is_sweep && found.is_error && (is_sending || found.has_wqe || owes_report);
    Flush {
        flushes,
        takes_wqe: flushes && !is_sending && !path.is_shared,
        reports_last_wqe: flushes && !is_sending && path.is_shared,
    }
}

/// Decides about a packet in the order of protocol 3.1, or with `is_sweep` about the queue pair of the sweep.
#[kernel]
pub(super) fn outcome_of(
    is_sweep: Bit,
    token: PacketToken,
    path: AdmitPath,
    record: AdmitRecord,
    found: Findings,
) -> Outcome {
    let order = order_of(found);
    let makes_sense = found.is_in_order && is_allowed(path, found);
    let wants_wqe = order.is_expected && makes_sense && needs_wqe(found.class);
    let is_not_ready = wants_wqe && !found.has_wqe;
    let takes_wqe = wants_wqe && found.has_wqe;
    let is_valid = makes_sense && fits(found, token.pad_mismatch);
    let executes = order.is_expected && !is_not_ready && is_valid;
    let refuses = order.is_expected && !is_not_ready && !is_valid;
    let naks_gap = order.is_gap && !record.nak_sent;
    let repeats = order.is_duplicate && can_repeat(found) && token.ack_request;
    // A duplicate is not counted among the READs in flight (protocol 3.5), and the word of an atomic is not touched.
    let may_ask = may_read(path, found.class) && found.lengths.is_empty && !token.pad_mismatch;
    let asks_again = order.is_duplicate && may_ask;
    let flush = flush_of(is_sweep, path, record, found);
    Outcome {
        decision: if flush.flushes {
            Decision::Flush
        } else if executes {
            Decision::Execute
        } else if refuses {
            Decision::Refuse
        } else if naks_gap || is_not_ready || repeats || asks_again {
            Decision::Reply
        } else {
            Decision::Drop
        },
        order,
        executes,
        refuses,
        is_not_ready,
        naks_gap,
        repeats,
        asks_again,
        wants_wqe,
        takes_wqe,
        takes_own_wqe: (takes_wqe && !path.is_shared) || flush.takes_wqe,
        exceeds_share: false,
        establishes: executes && found.may_establish,
        flush,
    }
}

/// The outcome where the ring of the packet has its share of what is parked: it is dropped, as if the wire had lost it, and a
/// step of the sweep does nothing. The NAK of a gap is sent all the same, one for each gap, since it brings the packet back.
#[kernel]
pub(super) fn within_share(outcome: Outcome, exceeds: Bit) -> Outcome {
    let drops = exceeds && !outcome.naks_gap;
    if drops {
        Outcome {
            order: outcome.order,
            exceeds_share: outcome.decision != Decision::Drop && !outcome.flush.flushes,
            ..Default::default()
        }
    } else {
        outcome
    }
}

/// Gives the AETH syndrome of the reply.
#[kernel]
pub(super) fn syndrome_of(outcome: Outcome, min_rnr_timer: Bits<5>) -> Bits<8> {
    if outcome.refuses {
        bits::<8>(NAK_INVALID)
    } else if outcome.is_not_ready {
        bits::<8>(NOT_READY) | bit_cast::<8, 5>(min_rnr_timer)
    } else if outcome.naks_gap {
        bits::<8>(NAK_SEQUENCE)
    } else {
        bits::<8>(ACKNOWLEDGED)
    }
}

/// Gives the PSN of the reply: of a gap the expected PSN (protocol 3.2), of a duplicate that of the last packet of a SEND or WRITE,
/// which comes before `read_psns` of READs and atomics (protocol 3.4), else that of the packet.
#[kernel]
pub(super) fn reply_psn(
    outcome: Outcome,
    psn: Bits<24>,
    expected_psn: Bits<24>,
    read_psns: Bits<24>,
) -> Bits<24> {
    if outcome.naks_gap {
        expected_psn
    } else if outcome.repeats {
        expected_psn - 1 - read_psns
    } else {
        psn
    }
}

/// Gives the counters that a packet increments in the cycle in which it is decided: one for a packet that is
/// dropped in step 1, by the first comparison that fails.
#[kernel]
pub(super) fn counts_of(is_decided: Bit, found: Findings, outcome: Outcome) -> AdmitCounts {
    let identity = found.identity;
    let is_ready = identity.qp_matches && identity.is_ready;
    let reaches_partition = is_ready && identity.transport_matches;
    let reaches_address = reaches_partition && identity.partition_matches;
    let can_repeat = can_repeat(found);
    AdmitCounts {
        unknown_qp: is_decided && !identity.qp_matches,
        qp_not_ready: is_decided && identity.qp_matches && !identity.is_ready,
        transport_mismatch: is_decided && is_ready && !identity.transport_matches,
        partition_key: is_decided && reaches_partition && !identity.partition_matches,
        source_address: is_decided && reaches_address && !identity.address_matches,
        duplicate_request: is_decided && outcome.order.is_duplicate && can_repeat,
        duplicate_dropped: is_decided && outcome.order.is_duplicate && !can_repeat && !outcome.asks_again,
        request_gap: is_decided && outcome.order.is_gap,
        requests_after_failure: is_decided && is_known(identity) && found.has_failed,
        share_exceeded: is_decided && outcome.exceeds_share,
    }
}

#[cfg(test)]
mod tests;
