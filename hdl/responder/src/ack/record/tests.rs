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
        assert_eq!(replaces(newest, bits(syndrome), bits(psn)), expected, "{newest:?} {syndrome:#x} {psn}");
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
    for (reads_open, change, expected) in
        [(0, hit, false), (1, hit, true), (16, hit, true), (1, closes, false), (1, Change::default(), false)]
    {
        let record = ReplyRecord { reads_open: bits(reads_open), ..record() };
        assert_eq!(ends_reads(record, change), expected, "{reads_open} {change:?}");
    }
}

#[test]
fn only_payload_of_the_same_generation_fails_a_queue_pair() {
    let write = WriteFailure { owner: WriteOwner::Payload, generation: bits(3), ..WriteFailure::default() };
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
        assert_eq!(enters_queue(record, change, bits(1)), expected, "{record:?} {change:?}");
    }
    for (count, expected) in [(1, false), (2, false), (3, true)] {
        assert_eq!(enters_queue(open(3), closes, bits(count)), expected, "{count} of three close");
    }
}

#[test]
fn records_follow_their_events() {
    let none = Change::default();
    let owing = ReplyRecord { first: pending(ACK, 10), is_queued: true, ..record() };
    let both = ReplyRecord { newest: pending(ACK, 11), ..owing };
    let event = AckNotice { psn: bits(20), msn: bits(6), ..AckNotice::default() };
    let newer = pending(ACK, 12);
    let after = |record, change| record_after(record, change, event, newer, bits(0x300), bits(1));
    assert_eq!(after(both, none), both);
    // Releases and closings.
    let released = after(owing, Change { releases: true, ..none });
    let expected =
        ReplyRecord { reads_open: bits(1), open_psn: bits(21), last_msn: bits(6), first: nothing(), ..owing };
    assert_eq!(released, expected);
    let releases = Change { releases: true, ..none };
    for nak in [RNR, NAK_SEQUENCE] {
        let owing = ReplyRecord { first: pending(ACK, 10), newest: pending(nak, 11), ..owing };
        assert_eq!(after(owing, releases), expected, "{nak:#x}");
    }
    for nak in [NAK_INVALID, NAK_ACCESS, NAK_OPERATIONAL] {
        let first = ReplyRecord { first: pending(nak, 11), ..owing };
        assert_eq!(after(first, releases), ReplyRecord { first: first.first, ..expected }, "{nak:#x}");
        let newest = ReplyRecord { newest: pending(nak, 11), ..owing };
        let kept = ReplyRecord { first: owing.first, newest: newest.newest, ..expected };
        assert_eq!(after(newest, releases), kept, "{nak:#x}");
    }
    let closed = after(expected, Change { closes: true, ..none });
    assert_eq!(closed, ReplyRecord { reads_open: bits(0), ..expected });
    // A duplicate covers nothing; several may close at once.
    let repeated = after(owing, Change { repeats: true, ..none });
    assert_eq!(repeated, ReplyRecord { reads_open: bits(1), ..owing });
    let repeated = after(expected, Change { repeats: true, ..none });
    assert_eq!(repeated, ReplyRecord { reads_open: bits(2), ..expected });
    let closes = Change { closes: true, ..none };
    let both_closed = record_after(repeated, closes, event, newer, bits(0x300), bits(2));
    assert_eq!(both_closed, ReplyRecord { reads_open: bits(0), ..expected });
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
    let older = ReplyRecord { open_psn: bits(21), ..both };
    assert_eq!(after(older, turn).open_psn, bits(21), "responses have covered more");
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

#[test]
fn a_read_that_is_answered_closes_alone_and_duplicates_together() {
    let closed = ReadClosed { queue_pair: bits(5), generation: bits(6) };
    let withdrawn = ReadsWithdrawn { queue_pair: bits(7), generation: bits(8), count: bits(9) };
    let one = ReadsWithdrawn { queue_pair: bits(5), generation: bits(6), count: bits(1) };
    assert_eq!(ended_of(true, closed, withdrawn), one);
    assert_eq!(ended_of(false, closed, withdrawn), withdrawn);
}
