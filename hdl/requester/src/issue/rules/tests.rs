//! The rules as tables, from the numbered rules of the module and protocol 2.1, 2.10 and 2.11.
use super::*;
use crate::messages::WqeHeader;
use CompletionStatus::{Flushed, LocalLength, LocalProtection, LocalQueuePairOperation, Success};

/// Epoch of the queue pair.
const EPOCH: u64 = 0;

/// What acknowledge says: the epoch, and that nothing that is sent here is acknowledged.
fn now(epoch: u64) -> Now {
    Now { epoch: bits(epoch), una_psn: bits(0xff_ff00), ..Now::default() }
}

/// A queue pair that has sent the PSNs before 0xff_fffd, which was in error if any was.
fn record(has_failed: bool) -> Record {
    let psn = bits(0xff_fffd);
    let reads = !bits::<READ_COUNT_BITS>(0);
    Record { has_failed, failed_psn: psn, unsent_psn: psn, next_psn: psn, epoch: bits(EPOCH), reads }
}

/// The first packet of a message that has been checked.
fn packet(status: CompletionStatus) -> Packet {
    Packet {
        header: WqeHeader { last_psn: bits(0xff_ffff), ..WqeHeader::default() },
        completion: WqeCompletion {
            status: bits(status as u64),
            reason: bits(0x77),
            ..WqeCompletion::default()
        },
        starts: true,
        psn: bits(0xff_fffd),
        ..Packet::default()
    }
}

fn local(status: CompletionStatus) -> Packet {
    Packet { kind: WqeKind { is_local: true, ..WqeKind::default() }, ..packet(status) }
}

/// The only flag of an outcome.
fn flag(outcome: Outcome) -> &'static str {
    let flags = [
        ("flushed", outcome.is_flushed),
        ("refused", outcome.is_refused),
        ("protected", outcome.is_protected),
        ("invalidation", outcome.is_invalidation),
        ("sent", outcome.is_sent),
    ];
    let set: Vec<_> = flags.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect();
    assert_eq!(set.len(), 1, "{set:?}");
    set[0]
}

#[test]
fn a_packet_is_written_when_its_checks_are_answered() {
    for (is_empty, requests, expected) in [
        (true, 0, Step::Begin),
        (true, 2, Step::Begin),
        (false, 0, Step::Write),
        (false, 1, Step::Answers),
        (false, 2, Step::Answers),
    ] {
        let header = WqeHeader { is_empty, ..WqeHeader::default() };
        let packet = Packet { header, request_count: bits(requests), ..packet(Success) };
        assert_eq!(step_after_begin(packet), expected, "{is_empty} {requests}");
    }
    for (inline, is_listed, expected) in [
        (0, false, Step::Begin),
        (1, false, Step::Inline),
        (2, false, Step::Inline),
        (0, true, Step::Continue),
    ] {
        let packet = Packet { inline_count: bits(inline), is_listed, ..packet(Success) };
        assert_eq!(step_after_write(packet), expected, "{inline} {is_listed}");
    }
}

#[test]
fn each_answer_has_its_address_and_all_must_be_right() {
    for (oks, are_ok) in [
        (vec![true], true),
        (vec![false], false),
        (vec![true, true], true),
        (vec![true, false], false),
        (vec![false, true], false),
    ] {
        let count = bits::<2>(oks.len() as u64);
        let mut answers = Answers { left: count, are_ok: true, ..Answers::default() };
        for (index, &ok) in oks.iter().enumerate() {
            let answer = AccessAnswer { ok, device_address: bits(0x1000 + index as u64) };
            answers = after_answer(answers, answer, count);
        }
        assert_eq!((answers.left, answers.are_ok), (bits(0), are_ok), "{oks:?}");
        assert_eq!(answers.first_address, bits(0x1000));
        assert_eq!(answers.second_address, bits(if oks.len() == 2 { 0x1001 } else { 0 }));
    }
}

#[test]
fn a_packet_is_sent_only_if_nothing_forbids_it() {
    // Failed before, first WQE since the reset, status of the WQE, access checks; outcome and status.
    for (failed, is_first, status, are_ok, expected, completes) in [
        (false, false, Success, true, "sent", Success),
        (false, false, Success, false, "protected", LocalProtection),
        (false, false, LocalQueuePairOperation, true, "refused", LocalQueuePairOperation),
        (false, false, LocalLength, true, "refused", LocalLength),
        (false, false, LocalLength, false, "refused", LocalLength),
        (false, false, Flushed, true, "flushed", Flushed),
        (false, false, Flushed, false, "flushed", Flushed),
        (true, false, Success, true, "flushed", Flushed),
        (true, false, Success, false, "flushed", Flushed),
        (true, false, LocalLength, true, "flushed", Flushed),
        (true, true, Success, true, "sent", Success),
        (true, true, Success, false, "protected", LocalProtection),
    ] {
        let name = format!("{failed} {is_first} {status:?} {are_ok}");
        let header = WqeHeader { is_first, ..packet(status).header };
        let packet = Packet { header, ..packet(status) };
        let outcome = outcome_of(packet, record(failed), now(EPOCH), are_ok);
        assert_eq!(flag(outcome), expected, "{name}");
        let message = message_of(packet, outcome);
        assert_eq!(message.completion.status, bits(completes as u64), "{name}");
        let reason = if expected == "refused" { 0x77 } else { 0 };
        assert_eq!(message.completion.reason, bits(reason), "{name}");
        let stays_failed = failed && !is_first;
        let fails = expected == "protected" || expected == "refused";
        assert_eq!(record_after(packet, record(failed), outcome).has_failed, stays_failed || fails, "{name}");
        let counts = IssueCounts {
            work_refused: expected == "refused",
            local_protection: expected == "protected",
            packets_retransmitted: false,
        };
        assert_eq!(counts_of(true, packet, record(failed), outcome), counts, "{name}");
        assert_eq!(counts_of(false, packet, record(failed), outcome), IssueCounts::default());
    }
}

#[test]
fn a_local_invalidate_goes_to_control_unless_it_is_flushed_or_refused() {
    for (failed, status, expected) in [
        (false, Success, "invalidation"),
        (false, LocalQueuePairOperation, "refused"),
        (false, Flushed, "flushed"),
        (true, Success, "flushed"),
    ] {
        let outcome = outcome_of(local(status), record(failed), now(EPOCH), true);
        assert_eq!(flag(outcome), expected, "{failed} {status:?}");
        assert_eq!(message_of(local(status), outcome).kind.is_local, expected == "invalidation");
        assert_eq!(completes_here(local(status), outcome), expected != "invalidation");
    }
    let packet = Packet {
        extended_or_key: cat!(bits::<168>(0), bits::<24>(0xabc), bits::<32>(0xdef)),
        ..local(Success)
    };
    let invalidation = invalidation_of(packet);
    assert_eq!((invalidation.key, invalidation.domain), (bits(0xdef), bits(0xabc)));
}

#[test]
fn acknowledge_is_told_once_of_a_message_that_no_response_completes() {
    // First packet of its message, failed before, status, access checks; told, as a packet that was not sent.
    for (starts, failed, status, are_ok, told, is_later) in [
        (true, false, Success, true, false, false),
        (true, false, Success, false, true, false),
        (true, false, LocalLength, true, true, false),
        (true, false, Flushed, true, true, false),
        (true, true, Success, true, true, false),
        (false, false, Success, true, false, false),
        (false, false, Success, false, true, true),
        (false, true, Success, true, false, false),
        (false, true, Success, false, false, false),
        (false, false, Flushed, true, false, false),
    ] {
        let name = format!("{starts} {failed} {status:?} {are_ok}");
        let packet = Packet { starts, ..packet(status) };
        let outcome = outcome_of(packet, record(failed), now(EPOCH), are_ok);
        assert_eq!(completes_here(packet, outcome), told, "{name}");
        let completion = local_completion_of(packet, outcome);
        assert_eq!((completion.has_failed, completion.psn), (is_later, packet.psn), "{name}");
        assert!(!completion.is_invalidated);
    }
}

#[test]
fn the_unsent_psn_follows_what_was_sent_and_stands_after_a_failure() {
    let read = WqeKind { is_read: true, ..WqeKind::default() };
    // READ, failed before, access checks; the PSN. A READ takes one PSN for each response.
    for (kind, failed, are_ok, expected) in [
        (WqeKind::default(), false, true, 0xff_fffe),
        (read, false, true, 0),
        (WqeKind::default(), false, false, 0xff_fffd),
        (read, false, false, 0xff_fffd),
        (WqeKind::default(), true, true, 0xff_fffd),
        (read, true, false, 0xff_fffd),
    ] {
        let packet = Packet { kind, ..packet(Success) };
        let outcome = outcome_of(packet, record(failed), now(EPOCH), are_ok);
        let after = record_after(packet, record(failed), outcome);
        assert_eq!(after.unsent_psn, bits(expected), "{kind:?} {failed} {are_ok}");
        assert_eq!(issued_of(packet, after).unsent_psn, bits(expected));
    }
    // A WQE that was flushed before it came here is the first that is not sent.
    for packet in [packet(Flushed), local(Success)] {
        let outcome = outcome_of(packet, record(false), now(EPOCH), true);
        assert_eq!(record_after(packet, record(false), outcome).unsent_psn, bits(0xff_fffd));
    }
    // The first packet of a life begins anew, also where it is not sent.
    for (epoch, expected) in [(EPOCH, 0x101), (EPOCH + 1, 0x100)] {
        let header = WqeHeader { is_first: true, ..WqeHeader::default() };
        let packet = Packet { header, psn: bits(0x100), ..packet(Success) };
        let outcome = outcome_of(packet, record(true), now(epoch), true);
        let after = record_after(packet, record(true), outcome);
        assert_eq!((after.unsent_psn, after.next_psn), (bits(expected), bits(expected)));
        assert!(!after.has_failed);
    }
}

#[test]
fn what_is_sent_again_moves_the_next_psn_and_not_the_unsent_one() {
    // PSN of a packet that is sent again; PSN after the last packet, first PSN that was never sent.
    for (psn, next, unsent) in [
        (0xff_fff0, 0xff_fff1, 0xff_fffd),
        (0xff_fffc, 0xff_fffd, 0xff_fffd),
        (0xff_fffd, 0xff_fffe, 0xff_fffe),
    ] {
        let header = WqeHeader { is_replay: true, ..WqeHeader::default() };
        let packet = Packet { header, psn: bits(psn), ..packet(Success) };
        let outcome = outcome_of(packet, record(false), now(EPOCH), true);
        let after = record_after(packet, record(false), outcome);
        assert_eq!((after.next_psn, after.unsent_psn), (bits(next), bits(unsent)), "{psn:#x}");
        let issued = issued_of(packet, after);
        assert_eq!((issued.next_psn, issued.epoch), (bits(next), bits(EPOCH)));
        let was_sent = psn != 0xff_fffd;
        let headers = command_of(packet, record(false), after, Answers::default()).gather.headers;
        assert_eq!(headers.is_repeated, was_sent);
        assert_eq!((headers.next_psn, headers.epoch), (bits(next), bits(EPOCH)));
        assert_eq!(counts_of(true, packet, record(false), outcome).packets_retransmitted, was_sent);
    }
}

#[test]
fn a_packet_of_an_older_epoch_is_not_sent_and_its_message_is_in_the_pool() {
    // First packet, sent again, access checks; written into the pool.
    for (starts, is_replay, are_ok, is_new) in [
        (true, false, true, true),
        (true, false, false, true),
        (true, true, true, false),
        (false, false, true, false),
        (false, true, false, false),
    ] {
        let header = WqeHeader { is_replay, is_open: true, ..packet(Success).header };
        let packet = Packet { header, starts, ..packet(Success) };
        let name = format!("{starts} {is_replay} {are_ok}");
        let outcome = outcome_of(packet, record(false), now(EPOCH + 1), are_ok);
        assert!(!outcome.is_sent && is_right(outcome), "{name}");
        assert_eq!(is_new_message(packet), is_new, "{name}");
        assert_eq!(message_of(packet, outcome).completion.status, bits(Success as u64), "{name}");
        assert!(!completes_here(packet, outcome), "{name}");
        assert_eq!(announces_read(packet, outcome), !is_replay, "{name}");
        let after = record_after(packet, record(false), outcome);
        assert_eq!(
            (after.unsent_psn, after.next_psn, after.has_failed),
            (bits(0xff_fffd), bits(0xff_fffd), false)
        );
    }
    // What is in error is in error in any epoch.
    let outcome = outcome_of(packet(LocalLength), record(false), now(EPOCH + 1), true);
    assert!(outcome.is_refused && completes_here(packet(LocalLength), outcome));
}

#[test]
fn what_comes_before_the_packet_in_error_is_sent_again_and_nothing_after_it() {
    // PSN, status, access checks; outcome, told as a packet that was not sent.
    for (psn, status, are_ok, expected, told) in [
        (0xff_fffc, Success, true, "sent", false),
        (0xff_fffc, Success, false, "protected", true),
        (0xff_fffc, LocalQueuePairOperation, true, "refused", true),
        (0xff_fffd, Success, true, "flushed", false),
        (0x5, Success, true, "flushed", false),
        (0x5, LocalLength, true, "flushed", false),
    ] {
        let name = format!("{psn:#x} {status:?} {are_ok}");
        let header = WqeHeader { is_replay: true, ..WqeHeader::default() };
        let packet = Packet { header, psn: bits(psn), ..packet(status) };
        let outcome = outcome_of(packet, record(true), now(EPOCH), are_ok);
        assert_eq!(flag(outcome), expected, "{name}");
        assert_eq!(completes_here(packet, outcome), told, "{name}");
        assert_eq!(local_completion_of(packet, outcome).has_failed, told, "{name}");
        let after = record_after(packet, record(true), outcome);
        assert_eq!(after.failed_psn, bits(if told { psn } else { 0xff_fffd }), "{name}");
    }
}

#[test]
fn only_open_reads_are_counted_and_their_slots_follow_each_other() {
    for (is_open, expected) in [(false, record(false).reads), (true, bits(0))] {
        let header = WqeHeader { is_open, ..WqeHeader::default() };
        let packet = Packet { header, ..packet(Success) };
        let outcome = outcome_of(packet, record(false), now(EPOCH), true);
        let after = record_after(packet, record(false), outcome);
        assert_eq!((after.reads, issued_of(packet, after).reads), (expected, expected));
        let slot = issued_read_of(packet, record(false)).slot;
        assert_eq!(slot, record(false).reads.get_bits::<READ_SLOT_BITS>(0));
    }
}

#[test]
fn the_length_of_a_message_is_that_of_its_reth_or_of_an_atomic() {
    let reth = cat!(bits::<96>(0), swap_bytes(bits::<32>(0x1234)), bits::<96>(0));
    for (is_atomic, expected) in [(false, 0x1234), (true, 8)] {
        let kind = WqeKind { is_read: true, is_atomic, ..WqeKind::default() };
        let packet = Packet { kind, extended_or_key: reth, ..packet(Success) };
        assert_eq!(message_of(packet, Outcome::default()).length, bits(expected));
    }
}

#[test]
fn commands_have_the_counted_spans_and_then_one_of_the_list_each() {
    let answers = Answers { first_address: bits(0x1000), second_address: bits(0x2000), ..Answers::default() };
    // READ, inline slots, access checks, list; spans.
    for (is_read, inline, requests, is_listed, spans) in [
        (false, 0, 0, false, 0),
        (false, 0, 1, false, 1),
        (false, 0, 2, false, 2),
        (true, 0, 2, false, 0),
        (false, 2, 0, false, 0),
        (false, 0, 1, true, 1),
    ] {
        let packet = Packet {
            kind: WqeKind { is_read, ..WqeKind::default() },
            header: WqeHeader { ends_burst: true, ..WqeHeader::default() },
            inline_count: bits(inline),
            request_count: bits(requests),
            is_listed,
            first_length: bits(10),
            second_length: bits(20),
            ..packet(Success)
        };
        let command = command_of(packet, record(false), record(false), answers);
        let gather = command.gather;
        assert_eq!((command.ends_burst, command.ends_turn), (true, false));
        assert_eq!(gather.span_count, bits(spans), "{is_read} {requests}");
        assert_eq!((gather.is_inline, gather.continues), (inline > 0, is_listed));
        assert_eq!(gather.first, HostSpan { address: bits(0x1000), length: bits(10) });
        assert_eq!(gather.second, HostSpan { address: bits(0x2000), length: bits(20) });
        let span = HostSpan { address: bits(0x3000), length: bits(30) };
        for is_last in [false, true] {
            let next = command_after(command, span, is_last);
            let expected = GatherCommand { first: span, continues: !is_last, ..gather };
            assert_eq!(next, Command { gather: expected, ..command });
        }
    }
}

#[test]
fn nothing_more_is_sent_of_a_generation_that_is_closed() {
    for (is_closed, generation, is_sent) in [(true, 3, false), (true, 2, true), (false, 3, true)] {
        let now = Now { is_closed, generation: bits(3), ..now(EPOCH) };
        for is_replay in [false, true] {
            let name = format!("{is_closed} {generation} {is_replay}");
            let header = WqeHeader { generation: bits(generation), is_replay, ..packet(Success).header };
            let kind = WqeKind { is_read: true, ..WqeKind::default() };
            let packet = Packet { header: WqeHeader { is_open: true, ..header }, kind, ..packet(Success) };
            let outcome = outcome_of(packet, record(false), now, true);
            assert_eq!((outcome.is_sent, outcome.is_stale), (is_sent, !is_sent), "{name}");
            // It is in the pool, and read_response knows it, as one of an older epoch.
            assert_eq!(message_of(packet, outcome).completion.status, bits(Success as u64), "{name}");
            assert_eq!(announces_read(packet, outcome), is_sent || !is_replay, "{name}");
            // Its access checks do not count.
            let outcome = outcome_of(packet, record(false), now, false);
            assert_eq!(outcome.is_protected, is_sent, "{name}");
        }
    }
    let write = RetiredWrite { is_closed: true, generation: bits(3), ..RetiredWrite::default() };
    assert!(now_of(false, write).is_closed && !now_of(true, write).is_closed, "not after a sweep");
}

#[test]
fn a_sweep_forgets_failures_and_reads() {
    let failed = record(true);
    assert_eq!(record_written(false, failed), failed);
    assert_eq!(record_written(true, failed), Record { has_failed: false, reads: bits(0), ..failed });
}

#[test]
fn a_mark_is_a_command_without_payload_that_ends_nothing() {
    let command = mark_command_of(Mark { queue_pair: bits(77), generation: bits(3) });
    let headers = TransmitRequest { queue_pair: bits(77), generation: bits(3), ..TransmitRequest::default() };
    assert_eq!(command.gather, GatherCommand { is_mark: true, headers, ..GatherCommand::default() });
    assert!(!command.ends_burst && !command.ends_turn);
}

#[test]
fn two_events_of_a_cycle_count_two() {
    for (one, other, count) in [(false, false, 0), (true, false, 1), (false, true, 1), (true, true, 2)] {
        assert_eq!(ended(one, other), bits(count));
    }
}

#[test]
fn what_was_acknowledged_meanwhile_is_not_sent_again_and_fails_no_more() {
    // PSN of a packet, its READ ends at, oldest unacknowledged PSN; is sent if its checks succeed.
    for (psn, read_ends, una, is_sent) in [
        (0x10, None, 0x10, true),
        (0x10, None, 0x11, false),
        (0xff_ffff, None, 0x5, false),
        (0x10, Some(0x14), 0x14, true),
        (0x10, Some(0x14), 0x15, false),
    ] {
        let kind = WqeKind { is_read: read_ends.is_some(), ..WqeKind::default() };
        let header =
            WqeHeader { is_replay: true, last_psn: bits(read_ends.unwrap_or(psn)), ..WqeHeader::default() };
        let now = Now { epoch: bits(EPOCH), una_psn: bits(una), ..Now::default() };
        for (status, are_ok) in [(Success, true), (Success, false), (LocalQueuePairOperation, true)] {
            let packet = Packet { header, kind, psn: bits(psn), ..packet(status) };
            let known = Record { unsent_psn: bits(0x20), next_psn: bits(0x20), ..record(false) };
            let outcome = outcome_of(packet, known, now, are_ok);
            let name = format!("{psn:#x} {read_ends:?} {una:#x} {status:?} {are_ok}");
            assert_eq!(outcome.is_sent, is_sent && status == Success && are_ok, "{name}");
            let fails = is_sent && !(status == Success && are_ok);
            assert_eq!(record_after(packet, known, outcome).has_failed, fails, "{name}");
            assert_eq!(completes_here(packet, outcome), fails, "{name}");
        }
    }
    // A key is invalidated once.
    let header = WqeHeader { is_replay: true, ..WqeHeader::default() };
    let again = Packet { header, ..local(Success) };
    let outcome = outcome_of(again, record(false), now(EPOCH), true);
    assert!(!outcome.is_invalidation && !outcome.is_sent && !completes_here(again, outcome));
}
