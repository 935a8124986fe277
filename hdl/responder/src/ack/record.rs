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
use rnic_messages::read::READ_COUNT_BITS;
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
    /// READs and atomics that are released, and whose last response is not on its way.
    pub reads_open: Bits<READ_COUNT_BITS>,
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
    /// The last response of a READ or an atomic is on its way.
    pub closes: Bit,
    /// A READ or an atomic is released.
    pub releases: Bit,
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
        reads_open: select(drops, bits::<READ_COUNT_BITS>(0), record.reads_open),
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
/// the last response before that is on its way.
#[kernel]
pub(super) fn enters_queue(record: ReplyRecord, change: Change) -> Bit {
    let is_only = change.owes && !record.first.is_owed;
    let is_free = change.closes && record.reads_open == 1 && record.first.is_owed;
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

/// Gives the record after a change. `newer` is the reply of a place event, `event` that event.
#[kernel]
pub(super) fn record_after(
    record: ReplyRecord,
    change: Change,
    event: AckNotice,
    newer: Pending,
    done: Bits<COUNT_BITS>,
) -> ReplyRecord {
    let reply = record.first;
    let is_only = change.owes && !reply.is_owed;
    // A reply that waited while a READ after it was answered covers nothing that the responses have not covered.
    let covered = select(is_nak(reply.syndrome), reply.psn, reply.psn + 1);
    let advances = change.leaves && !psn::is_before(covered, record.open_psn);
    ReplyRecord {
        is_alive: record.is_alive,
        generation: record.generation,
        is_queued: select(change.is_turn, change.stays, record.is_queued || enters_queue(record, change)),
        failed: record.failed || change.is_hit,
        reads_open: if change.releases {
            record.reads_open + 1
        } else if change.closes {
            record.reads_open - 1
        } else {
            record.reads_open
        },
        // The responses cover the PSNs up to their last.
        open_psn: if change.releases { event.psn + 1 } else { select(advances, covered, record.open_psn) },
        last_msn: if change.releases { event.msn } else { select(advances, reply.msn, record.last_msn) },
        first: if change.is_hit {
            last_reply(record, done)
        } else if is_only {
            newer
        } else if change.leaves {
            record.newest
        } else {
            reply
        },
        newest: if change.is_hit || change.leaves {
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
mod tests {
    use super::*;

    const ACK: u64 = 0x1f;
    const RNR: u64 = 0x20;

    fn pending(syndrome: u64, psn: u64) -> Pending {
        Pending {
            is_owed: true,
            syndrome: bits(syndrome),
            psn: bits(psn),
            msn: bits(psn + 0x100),
            write_count: bits(psn + 0x200),
            has_event: false,
        }
    }

    fn record() -> ReplyRecord {
        ReplyRecord {
            is_alive: true,
            generation: bits(3),
            open_psn: bits(10),
            last_msn: bits(5),
            ..ReplyRecord::default()
        }
    }

    #[test]
    fn counts_are_compared_round_their_end() {
        for (done, count, expected) in [
            (5, 5, true),
            (5, 6, false),
            (6, 5, true),
            (2, 0xffff_fffe, true),
            (0xffff_fffe, 2, false),
            (0x7fff_ffff, 0, true),
            (0x8000_0000, 0, false),
        ] {
            assert_eq!(is_reached(bits(done), bits(count)), expected, "{done:#x} {count:#x}");
        }
        for (done, count, expected) in [
            (0x1_0005, 0x0005, 0x1_0005),
            (0x1_0005, 0x0007, 0x1_0007),
            (0x1_0005, 0xffff, 0xffff),
            (0xffff, 0x0001, 0x1_0001),
            (0x0, 0x7fff, 0x7fff),
            (0x0, 0x8000, 0xffff_8000),
        ] {
            assert_eq!(extended_count(bits(done), bits(count)), bits(expected), "{done:#x} {count:#x}");
        }
    }

    #[test]
    fn syndromes_have_their_class() {
        for (syndrome, nak, fatal) in [
            (0x00, false, false),
            (ACK, false, false),
            (RNR, true, false),
            (NAK_SEQUENCE, true, false),
            (NAK_INVALID, true, true),
            (NAK_ACCESS, true, true),
            (NAK_OPERATIONAL, true, true),
        ] {
            assert_eq!((is_nak(bits(syndrome)), is_fatal(bits(syndrome))), (nak, fatal), "{syndrome:#x}");
        }
    }

    #[test]
    fn a_reply_replaces_what_it_covers() {
        let none = nothing();
        let nak = pending(NAK_SEQUENCE, 10);
        let ack = pending(ACK, 10);
        for (newest, syndrome, psn, expected) in [
            (none, ACK, 9, true),
            (ack, ACK, 9, true),
            (ack, NAK_SEQUENCE, 9, true),
            (nak, ACK, 9, false),
            (nak, ACK, 10, true),
            (nak, RNR, 9, true),
            (Pending { is_owed: false, ..nak }, ACK, 9, true),
        ] {
            assert_eq!(
                replaces(newest, bits(syndrome), bits(psn)),
                expected,
                "{newest:?} {syndrome:#x} {psn}"
            );
        }
    }

    #[test]
    fn only_a_restart_and_reset_drop_what_is_owed_and_close_reads() {
        let owing = ReplyRecord {
            failed: true,
            reads_open: bits(2),
            first: pending(ACK, 10),
            newest: pending(ACK, 11),
            ..record()
        };
        let event = |kind, state: QpState| SetupEvent {
            kind,
            state: bits(state as u64),
            generation: bits(4),
            psn: bits(77),
            ..SetupEvent::default()
        };
        let set = ReplyRecord { generation: bits(4), ..owing };
        let forgotten = ReplyRecord { reads_open: bits(0), first: nothing(), newest: nothing(), ..set };
        use SetupKind::{Life, ReceivePsn, Restart};
        for (event, expected) in [
            (event(Life, QpState::ReadyToSend), set),
            (event(ReceivePsn, QpState::ReadyToSend), ReplyRecord { open_psn: bits(77), ..set }),
            (event(Life, QpState::Reset), ReplyRecord { is_alive: false, ..forgotten }),
            (event(Restart, QpState::Init), ReplyRecord { failed: false, last_msn: bits(0), ..forgotten }),
            (event(Life, QpState::Error), set),
        ] {
            assert_eq!(record_after_setup(owing, event), expected, "{event:?}");
        }
    }

    #[test]
    fn a_failed_write_ends_the_reads_that_are_open() {
        let hit = Change { is_hit: true, ..Change::default() };
        let closes = Change { closes: true, ..Change::default() };
        for (reads_open, change, expected) in [
            (0, hit, false),
            (1, hit, true),
            (16, hit, true),
            (1, closes, false),
            (1, Change::default(), false),
        ] {
            let record = ReplyRecord { reads_open: bits(reads_open), ..record() };
            assert_eq!(ends_reads(record, change), expected, "{reads_open} {change:?}");
        }
    }

    #[test]
    fn only_payload_of_the_same_generation_fails_a_queue_pair() {
        let write =
            WriteFailure { owner: WriteOwner::Payload, generation: bits(3), ..WriteFailure::default() };
        for (record, write, expected) in [
            (record(), write, true),
            (record(), WriteFailure { generation: bits(2), ..write }, false),
            (record(), WriteFailure { owner: WriteOwner::Completion, ..write }, false),
            (ReplyRecord { failed: true, ..record() }, write, false),
            (ReplyRecord { is_alive: false, ..record() }, write, false),
        ] {
            assert_eq!(is_hit(record, write), expected);
        }
        assert!(is_current(record(), bits(3)) && !is_current(record(), bits(4)));
        assert!(!is_current(ReplyRecord { is_alive: false, ..record() }, bits(3)));
    }

    #[test]
    fn a_reply_leaves_after_its_writes_and_after_the_responses_before_it() {
        let owing = ReplyRecord { first: pending(ACK, 10), ..record() };
        let done = bits(0x20a);
        for (record, done, expected) in [
            (owing, done, true),
            (owing, done - 1, false),
            (ReplyRecord { first: nothing(), ..owing }, done, false),
            (ReplyRecord { is_alive: false, ..owing }, done, false),
            (ReplyRecord { reads_open: bits(1), ..owing }, done, false),
        ] {
            assert_eq!(may_leave(record, done), expected);
        }
        let both = ReplyRecord { newest: pending(ACK, 11), ..owing };
        for (record, leaves, expected) in [
            (owing, true, false),
            (owing, false, true),
            (both, true, true),
            (ReplyRecord { reads_open: bits(1), ..both }, false, false),
            (ReplyRecord { is_alive: false, ..both }, true, false),
        ] {
            assert_eq!(stays_queued(record, leaves), expected);
        }
    }

    #[test]
    fn a_queue_pair_is_queued_once() {
        let owes = Change { owes: true, ..Change::default() };
        let closes = Change { closes: true, ..Change::default() };
        let hit = Change { is_hit: true, ..Change::default() };
        let owing = ReplyRecord { first: pending(ACK, 10), ..record() };
        fn open(count: u64) -> ReplyRecord {
            ReplyRecord { reads_open: bits(count), first: pending(ACK, 10), ..record() }
        }
        for (record, change, expected) in [
            (record(), owes, true),
            (owing, owes, false),
            (ReplyRecord { reads_open: bits(1), ..record() }, owes, false),
            (ReplyRecord { is_queued: true, ..record() }, owes, false),
            (owing, hit, true),
            (open(1), hit, false),
            (open(1), closes, true),
            (open(2), closes, false),
            (ReplyRecord { first: nothing(), ..open(1) }, closes, false),
            (ReplyRecord { is_queued: true, ..open(1) }, closes, false),
        ] {
            assert_eq!(enters_queue(record, change), expected, "{record:?} {change:?}");
        }
    }

    #[test]
    fn records_follow_their_events() {
        let none = Change::default();
        let owing = ReplyRecord { first: pending(ACK, 10), is_queued: true, ..record() };
        let both = ReplyRecord { newest: pending(ACK, 11), ..owing };
        let event = AckNotice { psn: bits(20), msn: bits(6), ..AckNotice::default() };
        let newer = pending(ACK, 12);
        let after = |record, change| record_after(record, change, event, newer, bits(0x300));
        assert_eq!(after(both, none), both);
        // Releases and closings.
        let released = after(owing, Change { releases: true, ..none });
        let expected = ReplyRecord { reads_open: bits(1), open_psn: bits(21), last_msn: bits(6), ..owing };
        assert_eq!(released, expected);
        let closed = after(expected, Change { closes: true, ..none });
        assert_eq!(closed, ReplyRecord { reads_open: bits(0), ..expected });
        // Replies.
        let owes = Change { owes: true, ..none };
        assert_eq!(after(record(), owes), ReplyRecord { first: newer, is_queued: true, ..record() });
        assert_eq!(after(owing, owes), ReplyRecord { newest: newer, ..owing });
        assert_eq!(after(both, owes), ReplyRecord { newest: newer, ..both });
        let nak = ReplyRecord { newest: pending(NAK_SEQUENCE, 13), ..owing };
        assert_eq!(after(nak, owes), nak);
        // Turns.
        let turn = Change { is_turn: true, leaves: true, stays: true, ..none };
        let left = ReplyRecord {
            first: both.newest,
            newest: nothing(),
            open_psn: bits(11),
            last_msn: bits(0x10a),
            ..both
        };
        assert_eq!(after(both, turn), left);
        let gap = ReplyRecord { first: pending(NAK_SEQUENCE, 10), ..both };
        assert_eq!(after(gap, turn).open_psn, bits(10));
        let waits = Change { is_turn: true, ..none };
        assert_eq!(after(both, waits), ReplyRecord { is_queued: false, ..both });
        // Not backwards: the acknowledgement of 10 leaves after a READ with the PSNs up to 20 was answered.
        let late = ReplyRecord { open_psn: bits(21), last_msn: bits(6), ..both };
        let left_late = after(late, turn);
        assert_eq!((left_late.open_psn, left_late.last_msn), (bits(21), bits(6)));
        assert_eq!(left_late.first, both.newest);
        let wraps = ReplyRecord { open_psn: bits(0xff_ffff), first: pending(ACK, 0), ..both };
        assert_eq!(after(wraps, turn).open_psn, bits(1));
        // A host write that fails.
        let hit = after(both, Change { is_hit: true, ..none });
        let last = Pending {
            is_owed: true,
            syndrome: bits(NAK_OPERATIONAL),
            psn: bits(10),
            msn: bits(5),
            write_count: bits(0x300),
            has_event: false,
        };
        assert_eq!(hit, ReplyRecord { failed: true, first: last, newest: nothing(), ..both });
    }

    #[test]
    fn the_next_turn_waits_for_the_writes_of_the_next_reply() {
        let none = Change::default();
        let both = ReplyRecord { first: pending(ACK, 10), newest: pending(ACK, 11), ..record() };
        for (record, change, expected) in [
            (both, none, 0x20a),
            (both, Change { owes: true, ..none }, 0x20a),
            (record(), Change { owes: true, ..none }, 0x20c),
            (both, Change { leaves: true, ..none }, 0x20b),
            (both, Change { is_hit: true, ..none }, 0x300),
        ] {
            let count = next_write_count(record, change, pending(ACK, 12), bits(0x300));
            assert_eq!(count, bits(expected), "{change:?}");
        }
    }

    #[test]
    fn control_gets_one_notice_with_the_event_of_the_nak() {
        let leaves = Change { leaves: true, is_turn: true, ..Change::default() };
        let hit = Change { is_hit: true, ..Change::default() };
        for (syndrome, change, failed, event) in [
            (ACK, leaves, false, None),
            (RNR, leaves, false, None),
            (NAK_SEQUENCE, leaves, false, None),
            (NAK_INVALID, leaves, false, Some(AsyncEvent::QueuePairRequestError)),
            (NAK_ACCESS, leaves, false, Some(AsyncEvent::QueuePairAccessError)),
            (NAK_OPERATIONAL, leaves, false, Some(AsyncEvent::QueuePairFatal)),
            (NAK_OPERATIONAL, leaves, true, None),
            (NAK_INVALID, Change::default(), false, None),
            (ACK, hit, false, Some(AsyncEvent::QueuePairFatal)),
        ] {
            let record = ReplyRecord { first: pending(syndrome, 10), failed, ..record() };
            assert_eq!(has_notice(record, change), event.is_some(), "{syndrome:#x} {change:?}");
            if let Some(event) = event {
                let notice = notice_of(bits(7), record, change.is_hit);
                assert_eq!(notice.event_code, bits(event as u64));
                assert_eq!((notice.queue_pair, notice.generation), (bits(7), bits(3)));
                assert_eq!(notice.has_event, change.is_hit);
            }
        }
    }

    #[test]
    fn a_packet_has_its_aeth_in_wire_order() {
        let record = ReplyRecord { first: Pending { msn: bits(0x01_0203), ..pending(ACK, 10) }, ..record() };
        let packet = packet_of(bits(7), record);
        assert_eq!(packet.extended, bits(0x0302_011f));
        assert_eq!((packet.opcode, packet.psn), (bits(Operation::Acknowledge as u64), bits(10)));
        assert!(!packet.ack_request && !packet.is_response && !packet.payload_bytes.any());
    }

    #[test]
    fn each_reply_moves_one_counter() {
        let none = AckCounts::default();
        for (leaves, syndrome, is_stale, expected) in [
            (true, ACK, false, AckCounts { acknowledgements_sent: true, ..none }),
            (true, RNR, false, AckCounts { nak_rnr_sent: true, ..none }),
            (true, NAK_SEQUENCE, false, AckCounts { nak_sequence_sent: true, ..none }),
            (true, NAK_INVALID, false, AckCounts { nak_invalid_request_sent: true, ..none }),
            (true, NAK_ACCESS, false, AckCounts { nak_access_sent: true, ..none }),
            (true, NAK_OPERATIONAL, false, AckCounts { nak_operational_sent: true, ..none }),
            (false, ACK, true, AckCounts { stale_dropped: true, ..none }),
            (false, NAK_ACCESS, false, none),
        ] {
            assert_eq!(counts_of(leaves, bits(syndrome), is_stale), expected, "{syndrome:#x}");
        }
    }
}
