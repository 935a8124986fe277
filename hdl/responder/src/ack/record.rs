//! Rules of [`Ack`](super::Ack): what a queue pair owes its peer, and when that may leave (protocol 3.5, 3.8).
use crate::messages::AckCounts;
use rnic_blocks::logic::psn;
use rnic_kernel::prelude::*;
use rnic_layout::opcode::Operation;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::QpState;
use rnic_layout::syndrome::{NakCode, Syndrome};
use rnic_messages::EXTENDED_BITS;
use rnic_messages::host::{WriteFailure, WriteOwner};
use rnic_messages::read::{READ_COUNT_BITS, ReadClosed, ReadsWithdrawn};
use rnic_messages::receive::AckNotice;
use rnic_messages::setup::{NoticeKind, QpNotice, SetupEvent, SetupKind};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, WRITE_COUNT_BITS};
use rnic_messages::transmit::TransmitRequest;

const NAK_SEQUENCE: u64 = Syndrome::Nak(NakCode::PsnSequenceError).emit() as u64;
const NAK_INVALID: u64 = Syndrome::Nak(NakCode::InvalidRequest).emit() as u64;
const NAK_ACCESS: u64 = Syndrome::Nak(NakCode::RemoteAccessError).emit() as u64;
const NAK_OPERATIONAL: u64 = Syndrome::Nak(NakCode::RemoteOperationalError).emit() as u64;
/// The high three bits of the syndrome of an RNR NAK.
const RNR_CLASS: u64 = 1;
/// Bits of a free-running count of host writes as it is kept here.
pub(super) const COUNT_BITS: usize = 32;
/// Bits of the count of READs and atomics that are open: more than the 16 slots of a queue pair and all responses on their way to
/// the wire.
pub(super) const OPEN_BITS: usize = 10;

/// READs and atomics that are not open any more: one that is answered to its end, or those that get no last response of their own.
#[kernel]
pub(super) fn ended_of(has_closed: Bit, closed: ReadClosed, withdrawn: ReadsWithdrawn) -> ReadsWithdrawn {
    let one = ReadsWithdrawn {
        queue_pair: closed.queue_pair,
        generation: closed.generation,
        count: bits::<READ_COUNT_BITS>(1),
    };
    select(has_closed, one, withdrawn)
}

/// A reply that a queue pair owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Pending {
    /// The reply is owed; without it the other fields have no meaning.
    pub is_owed: Bit,
    /// AETH syndrome.
    pub syndrome: Bits<8>,
    /// PSN of the acknowledge packet.
    pub psn: Bits<24>,
    /// MSN of the acknowledge packet.
    pub msn: Bits<24>,
    /// The reply may leave when this many host writes are done.
    pub write_count: Bits<COUNT_BITS>,
    /// The notice of the failure raises an asynchronous event.
    pub has_event: Bit,
}

/// Record of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct ReplyRecord {
    /// The queue pair is not in RESET.
    pub is_alive: Bit,
    /// Its generation.
    pub generation: Bits<GENERATION_BITS>,
    /// It is in the ready queue.
    pub is_queued: Bit,
    /// A host write has failed; the only reply that may still leave is its NAK.
    pub failed: Bit,
    /// READs and atomics that are released, duplicates too, and whose last response is not on its way.
    pub reads_open: Bits<OPEN_BITS>,
    /// First PSN that no reply or response has covered.
    pub open_psn: Bits<24>,
    /// MSN of the last reply or response.
    pub last_msn: Bits<24>,
    /// The reply that leaves next.
    pub first: Pending,
    /// The reply after it.
    pub newest: Pending,
}

/// What happens to a record in a cycle; a bit for each event, of which only those of the same step occur
/// together.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Change {
    /// A host write of the queue pair has failed.
    pub is_hit: Bit,
    /// The last response of a READ or an atomic is on its way, or some get none of their own.
    pub closes: Bit,
    /// A READ or an atomic is released.
    pub releases: Bit,
    /// A duplicate of one is released.
    pub repeats: Bit,
    /// A reply is owed.
    pub owes: Bit,
    /// The queue pair was at the head of the ready queue.
    pub is_turn: Bit,
    /// The first reply leaves.
    pub leaves: Bit,
    /// The queue pair stays in the ready queue.
    pub stays: Bit,
}

/// Gives a reply that is not owed.
#[kernel]
pub(super) fn nothing() -> Pending {
    Pending { is_owed: false, ..Default::default() }
}

/// Gives the record after the reset of the block.
#[kernel]
pub(super) fn empty_record() -> ReplyRecord {
    ReplyRecord { is_alive: false, ..Default::default() }
}

/// Says whether `count` host writes are done.
#[kernel]
pub(super) fn is_reached(done: Bits<COUNT_BITS>, count: Bits<COUNT_BITS>) -> Bit {
    !(done - count).get_bit(COUNT_BITS - 1)
}

/// Extends a count of host writes that is less than 2^15 away from `done`.
#[kernel]
pub(super) fn extended_count(done: Bits<COUNT_BITS>, count: Bits<WRITE_COUNT_BITS>) -> Bits<COUNT_BITS> {
    let distance = count - done.get_bits::<WRITE_COUNT_BITS>(0);
    let sign = select(distance.get_bit(WRITE_COUNT_BITS - 1), bits::<16>(0xffff), bits::<16>(0));
    let signed: Bits<COUNT_BITS> = cat!(sign, distance);
    done + signed
}

/// Says whether a syndrome is a NAK or an RNR NAK.
#[kernel]
pub(super) fn is_nak(syndrome: Bits<8>) -> Bit {
    syndrome.get_bits::<3>(5).any()
}

/// Says whether a queue pair fails when a reply with this syndrome leaves (protocol 3.6).
#[kernel]
pub(super) fn is_fatal(syndrome: Bits<8>) -> Bit {
    syndrome == NAK_INVALID || syndrome == NAK_ACCESS || syndrome == NAK_OPERATIONAL
}

/// Says whether a setup event drops what is owed: a restart, or a state in which the queue pair does not exist.
#[kernel]
fn drops_replies(event: SetupEvent) -> Bit {
    event.kind == SetupKind::Restart || event.state == QpState::Reset as u64
}

/// Gives the record after a setup event.
#[kernel]
pub(super) fn record_after_setup(record: ReplyRecord, event: SetupEvent) -> ReplyRecord {
    let restarts = event.kind == SetupKind::Restart;
    let drops = drops_replies(event);
    ReplyRecord {
        is_alive: event.state != QpState::Reset as u64,
        generation: event.generation,
        is_queued: record.is_queued,
        failed: record.failed && !restarts,
        reads_open: select(drops, bits::<OPEN_BITS>(0), record.reads_open),
        open_psn: select(event.kind == SetupKind::ReceivePsn, event.psn, record.open_psn),
        last_msn: select(restarts, bits::<24>(0), record.last_msn),
        first: select(drops, nothing(), record.first),
        newest: select(drops, nothing(), record.newest),
    }
}

/// Says whether a failed host write fails the queue pair of the record.
#[kernel]
pub(super) fn is_hit(record: ReplyRecord, write: WriteFailure) -> Bit {
    write.owner == WriteOwner::Payload
        && write.generation == record.generation
        && record.is_alive
        && !record.failed
}

/// Says whether the READ responder is told of a failed host write: there are READs whose answers may not have
/// left, and the first that is not made becomes the NAK. If all are made, the NAK of the record follows them.
#[kernel]
pub(super) fn ends_reads(record: ReplyRecord, change: Change) -> Bit {
    change.is_hit && record.reads_open.any()
}

/// Says whether the record is of this generation of its queue pair.
#[kernel]
pub(super) fn is_current(record: ReplyRecord, generation: Bits<GENERATION_BITS>) -> Bit {
    generation == record.generation && record.is_alive
}

/// Says whether a reply takes the place of the newest one: a NAK always does, an acknowledgement unless that is
/// a NAK which it does not cover. A NAK covers the PSNs before its own, an acknowledgement its own too.
#[kernel]
pub(super) fn replaces(newest: Pending, syndrome: Bits<8>, reply_psn: Bits<24>) -> Bit {
    let newest_is_nak = newest.is_owed && is_nak(newest.syndrome);
    !newest_is_nak || is_nak(syndrome) || !psn::is_before(reply_psn, newest.psn)
}

/// Says whether the first reply may leave: its host writes are done, and no response is still to leave before
/// it.
#[kernel]
pub(super) fn may_leave(record: ReplyRecord, done: Bits<COUNT_BITS>) -> Bit {
    record.first.is_owed
        && record.is_alive
        && is_reached(done, record.first.write_count)
        && !record.reads_open.any()
}

/// Says whether a queue pair at the head of the ready queue goes to its end: it still owes a reply that waits
/// for no response.
#[kernel]
pub(super) fn stays_queued(record: ReplyRecord, leaves: Bit) -> Bit {
    let has_next = select(leaves, record.newest.is_owed, record.first.is_owed);
    record.is_alive && has_next && !record.reads_open.any()
}

/// Says whether a change puts a queue pair into the ready queue: it is not there, and owes its first reply, or
/// the last response before that is on its way. `closing_count` READs and atomics close.
#[kernel]
pub(super) fn enters_queue(record: ReplyRecord, change: Change, closing_count: Bits<READ_COUNT_BITS>) -> Bit {
    let is_only = change.owes && !record.first.is_owed;
    let is_last = record.reads_open == bit_cast::<OPEN_BITS, READ_COUNT_BITS>(closing_count);
    let is_free = change.closes && is_last && record.first.is_owed;
    (((change.is_hit || is_only) && !record.reads_open.any()) || is_free) && !record.is_queued
}

/// Gives the host writes that the next reply of a queue pair waits for.
#[kernel]
pub(super) fn next_write_count(
    record: ReplyRecord,
    change: Change,
    newer: Pending,
    done: Bits<COUNT_BITS>,
) -> Bits<COUNT_BITS> {
    if change.is_hit {
        done
    } else if change.owes && !record.first.is_owed {
        newer.write_count
    } else if change.leaves {
        record.newest.write_count
    } else {
        record.first.write_count
    }
}

/// Gives the reply of a place event.
#[kernel]
pub(super) fn pending_of(event: AckNotice, write_count: Bits<COUNT_BITS>) -> Pending {
    Pending {
        is_owed: true,
        syndrome: event.syndrome,
        psn: event.psn,
        msn: event.msn,
        write_count,
        has_event: event.has_event,
    }
}

/// Gives the NAK after a failed host write: for the first PSN that is not covered.
#[kernel]
fn last_reply(record: ReplyRecord, done: Bits<COUNT_BITS>) -> Pending {
    Pending {
        is_owed: true,
        syndrome: bits::<8>(NAK_OPERATIONAL),
        psn: record.open_psn,
        msn: record.last_msn,
        write_count: done,
        has_event: false,
    }
}

/// Says whether the responses of a READ or an atomic that is released stand for all replies that are still owed, so that none of
/// those is sent: they came before it, and would leave after its responses with a PSN before theirs. A NAK that fails the queue
/// pair is none of them.
#[kernel]
fn covers_replies(record: ReplyRecord, change: Change) -> Bit {
    change.releases
        && !(record.first.is_owed && is_fatal(record.first.syndrome))
        && !(record.newest.is_owed && is_fatal(record.newest.syndrome))
}

/// Gives the record after a change. `newer` is the reply of a place event, `event` that event; `closing_count`
/// READs and atomics close.
#[kernel]
pub(super) fn record_after(
    record: ReplyRecord,
    change: Change,
    event: AckNotice,
    newer: Pending,
    done: Bits<COUNT_BITS>,
    closing_count: Bits<READ_COUNT_BITS>,
) -> ReplyRecord {
    let reply = record.first;
    let is_only = change.owes && !reply.is_owed;
    let covered = select(is_nak(reply.syndrome), reply.psn, reply.psn + 1);
    // The acknowledgement of a duplicate may be for less than the responses before it (protocol 3.4).
    let covers_more = change.leaves && !psn::is_before(covered, record.open_psn);
    let drops = covers_replies(record, change);
    ReplyRecord {
        is_alive: record.is_alive,
        generation: record.generation,
        is_queued: select(
            change.is_turn,
            change.stays,
            record.is_queued || enters_queue(record, change, closing_count),
        ),
        failed: record.failed || change.is_hit,
        reads_open: if change.releases || change.repeats {
            record.reads_open + 1
        } else if change.closes {
            record.reads_open - bit_cast::<OPEN_BITS, READ_COUNT_BITS>(closing_count)
        } else {
            record.reads_open
        },
        // The responses cover the PSNs up to their last.
        open_psn: if change.releases { event.psn + 1 } else { select(covers_more, covered, record.open_psn) },
        last_msn: if change.releases { event.msn } else { select(change.leaves, reply.msn, record.last_msn) },
        first: if change.is_hit {
            last_reply(record, done)
        } else if is_only {
            newer
        } else if change.leaves {
            record.newest
        } else if drops {
            nothing()
        } else {
            reply
        },
        newest: if change.is_hit || change.leaves || drops {
            nothing()
        } else if change.owes && !is_only && replaces(record.newest, newer.syndrome, newer.psn) {
            newer
        } else {
            record.newest
        },
    }
}

/// Says whether control gets a notice: of a host write that failed, or of a fatal NAK that leaves, unless a
/// write has failed before.
#[kernel]
pub(super) fn has_notice(record: ReplyRecord, change: Change) -> Bit {
    change.is_hit || (change.leaves && is_fatal(record.first.syndrome) && !record.failed)
}

/// Gives that notice.
#[kernel]
pub(super) fn notice_of(queue_pair: Bits<QUEUE_PAIR_BITS>, record: ReplyRecord, is_hit: Bit) -> QpNotice {
    let syndrome = record.first.syndrome;
    QpNotice {
        queue_pair,
        generation: record.generation,
        kind: NoticeKind::ResponderError,
        has_event: is_hit || record.first.has_event,
        event_code: if is_hit || syndrome == NAK_OPERATIONAL {
            bits::<8>(AsyncEvent::QueuePairFatal as u64)
        } else if syndrome == NAK_INVALID {
            bits::<8>(AsyncEvent::QueuePairRequestError as u64)
        } else {
            bits::<8>(AsyncEvent::QueuePairAccessError as u64)
        },
    }
}

/// Gives the acknowledge packet of the first reply.
#[kernel]
pub(super) fn packet_of(queue_pair: Bits<QUEUE_PAIR_BITS>, record: ReplyRecord) -> TransmitRequest {
    let aeth: Bits<32> = cat!(swap_bytes(record.first.msn), record.first.syndrome);
    TransmitRequest {
        queue_pair,
        generation: record.generation,
        opcode: bits::<8>(Operation::Acknowledge as u64),
        psn: record.first.psn,
        extended: bit_cast::<EXTENDED_BITS, 32>(aeth),
        ..Default::default()
    }
}

/// Gives the counters of a reply that leaves, and of one that was dropped as stale.
#[kernel]
pub(super) fn counts_of(leaves: Bit, syndrome: Bits<8>, is_stale: Bit) -> AckCounts {
    AckCounts {
        acknowledgements_sent: leaves && !is_nak(syndrome),
        nak_sequence_sent: leaves && syndrome == NAK_SEQUENCE,
        nak_invalid_request_sent: leaves && syndrome == NAK_INVALID,
        nak_access_sent: leaves && syndrome == NAK_ACCESS,
        nak_operational_sent: leaves && syndrome == NAK_OPERATIONAL,
        nak_rnr_sent: leaves && syndrome.get_bits::<3>(5) == RNR_CLASS,
        stale_dropped: is_stale,
    }
}

#[cfg(test)]
mod tests;
