//! The rules as tables, from the numbered rules of the module and protocol 2.10, 2.11 and 3.10.
use super::*;
use crate::messages::WqeKind;
use crate::outstanding::shared_block;
use Verdict::{AwaitsLast, Failed, Flushed, Own, Silent, Stays, Success};

/// A message of PSNs up to 0x20 that was sent.
fn message() -> OutstandingMessage {
    OutstandingMessage {
        generation: bits(3),
        last_psn: bits(0x20),
        completion: WqeCompletion { has_wr_id: true, is_signalled: true, ..WqeCompletion::default() },
        ..OutstandingMessage::default()
    }
}

fn with_status(status: CompletionStatus) -> OutstandingMessage {
    let completion =
        WqeCompletion { status: bits(status as u64), reason: bits(0x44), ..message().completion };
    OutstandingMessage { completion, ..message() }
}

fn local() -> OutstandingMessage {
    OutstandingMessage { kind: WqeKind { is_local: true, ..WqeKind::default() }, ..message() }
}

fn peer(state: QpState) -> Peer {
    Peer { state: bits(state as u64), generation: bits(3), ..Peer::default() }
}

/// PSNs before `una_psn` are acknowledged.
fn acknowledged(una_psn: u64) -> Progress {
    Progress { retired: Retired { una_psn: bits(una_psn), ..Retired::default() }, ..Progress::default() }
}

/// The message of `failed_psn` fails, and all is acknowledged.
fn failing(failed_psn: u64) -> Progress {
    Progress { will_fail: true, failed_psn: bits(failed_psn), ..acknowledged(0x100) }
}

#[test]
fn messages_complete_in_order_with_the_first_error_and_are_flushed_after_it() {
    use CompletionStatus::{Flushed as FlushedStatus, LocalLength};
    let answered = Progress { is_invalidated: true, ..acknowledged(0x21) };
    let refused = Progress { is_denied: true, ..answered };
    let old = OutstandingMessage { generation: bits(2), ..message() };
    let open = |message: OutstandingMessage| OutstandingMessage { is_open: true, ..message };
    let settled = |progress: Progress| Progress { is_closed: true, ..progress };
    let waits = |progress: Progress| Progress { awaits_mark: true, ..settled(progress) };
    let rts = peer(QpState::ReadyToSend);
    let rows: [(&str, OutstandingMessage, Peer, Progress, bool, Verdict); 36] = [
        ("not acknowledged", message(), rts, acknowledged(0x20), false, Stays),
        ("acknowledged", message(), rts, acknowledged(0x21), false, Success),
        (
            "acknowledged behind the wrap",
            OutstandingMessage { last_psn: bits(0xff_ffff), ..message() },
            rts,
            acknowledged(0),
            false,
            Success,
        ),
        ("in RESET", message(), peer(QpState::Reset), acknowledged(0x21), true, Silent),
        ("of an older generation", old, rts, acknowledged(0x21), true, Silent),
        ("after an error", message(), rts, acknowledged(0x21), true, AwaitsLast),
        (
            "refused by issue, not settled",
            with_status(LocalLength),
            rts,
            acknowledged(0x20),
            false,
            AwaitsLast,
        ),
        ("failure, not settled", message(), rts, failing(0x20), false, AwaitsLast),
        ("after an error, mark on its way", message(), rts, waits(acknowledged(0x21)), true, AwaitsLast),
        ("failure, mark on its way", message(), rts, waits(failing(0x20)), false, AwaitsLast),
        ("acknowledged, mark on its way", message(), rts, waits(acknowledged(0x21)), false, Success),
        ("after an error, settled", message(), rts, settled(acknowledged(0x21)), true, Flushed),
        (
            "after an error, with a status",
            with_status(LocalLength),
            rts,
            settled(acknowledged(0x20)),
            true,
            Flushed,
        ),
        ("flushed by issue", with_status(FlushedStatus), rts, settled(acknowledged(0x20)), false, Flushed),
        ("refused by issue", with_status(LocalLength), rts, settled(acknowledged(0x20)), false, Own),
        (
            "refused by issue, before a failure",
            with_status(LocalLength),
            rts,
            settled(failing(0x20)),
            false,
            Own,
        ),
        ("failure at its last PSN", message(), rts, settled(failing(0x20)), false, Failed),
        ("failure before it", message(), rts, settled(failing(0x10)), false, Failed),
        ("failure behind it", message(), rts, failing(0x21), false, Success),
        ("LOCAL_INVALIDATE without an answer", local(), rts, acknowledged(0x21), false, Stays),
        ("LOCAL_INVALIDATE with an answer", local(), rts, answered, false, Success),
        ("LOCAL_INVALIDATE that control refused", local(), rts, settled(refused), false, Own),
        ("LOCAL_INVALIDATE after an error", local(), rts, settled(refused), true, Flushed),
        ("answer for a LOCAL_INVALIDATE behind it", message(), rts, refused, false, Success),
        (
            "LOCAL_INVALIDATE behind what is not acknowledged",
            local(),
            rts,
            Progress { retired: Retired { una_psn: bits(0x20), ..answered.retired }, ..answered },
            false,
            Stays,
        ),
        ("READ without data", open(message()), rts, acknowledged(0x20), false, Stays),
        ("READ with all data", open(message()), rts, acknowledged(0x21), false, Success),
        ("READ in RESET", open(message()), peer(QpState::Reset), acknowledged(0x20), true, Silent),
        ("READ of an older generation", open(old), rts, acknowledged(0x20), true, Silent),
        ("READ after an error", open(message()), rts, acknowledged(0x20), true, AwaitsLast),
        ("READ with data after an error", open(message()), rts, acknowledged(0x21), true, AwaitsLast),
        ("READ that fails", open(message()), rts, failing(0x20), false, AwaitsLast),
        ("READ that issue refused", open(with_status(LocalLength)), rts, acknowledged(0), false, AwaitsLast),
        ("READ after an error, settled", open(message()), rts, settled(acknowledged(0x20)), true, Flushed),
        ("READ that fails, settled", open(message()), rts, settled(failing(0x20)), false, Failed),
        (
            "READ that issue refused, settled",
            open(with_status(LocalLength)),
            rts,
            settled(acknowledged(0)),
            false,
            Own,
        ),
    ];
    for (name, message, peer, progress, has_failed, expected) in rows {
        let turn = Turn { retired: Retired { has_failed, ..Retired::default() }, ..Turn::default() };
        let judged = judge(message, peer, progress, turn, Issued::default());
        assert_eq!(judged.verdict, expected, "{name}");
        let is_denied = message.kind.is_local && progress.is_denied;
        let key = CompletionStatus::LocalQueuePairOperation;
        let completion = judged.message.completion;
        let expected = if is_denied {
            (bits(key as u64), bits(vendor_error::KEY))
        } else {
            (message.completion.status, message.completion.reason)
        };
        assert_eq!((completion.status, completion.reason), expected, "{name}");
    }
}

#[test]
fn a_turn_takes_eight_messages_at_most_and_no_more_than_there_are() {
    for (count, issued, left, is_last) in [
        (0, 9, 7, false),
        (0, 9, 1, false),
        (0, 9, 0, true),
        (7, 8, 7, true),
        (6, 8, 7, false),
        (0xffff, 0, 7, true),
    ] {
        let turn = Turn {
            retired: Retired { count: bits(count), ..Retired::default() },
            left: bits(left),
            ..Turn::default()
        };
        let issued = Issued { count: bits(issued), ..Issued::default() };
        let peer = peer(QpState::ReadyToSend);
        let judged = judge(message(), peer, Progress::default(), turn, issued);
        assert_eq!(judged.is_last, is_last, "{count} {left}");
    }
    assert_eq!(begin_turn(Progress::default(), bits(0)).left, bits(7));
}

#[test]
fn a_step_follows_from_what_is_left_and_where_the_block_ends() {
    // Messages that have left the pool and the block; the step.
    for (count, head_count, expected) in [
        (5, 0, Step::Store),
        (5, 8, Step::Store),
        (4, 8, Step::Block),
        (4, 7, Step::Message),
        (4, 0, Step::Message),
    ] {
        let progress = Progress {
            retired: Retired { count: bits(count), ..Retired::default() },
            head_count: bits(head_count),
            ..Progress::default()
        };
        let issued = Issued { count: bits(5), ..Issued::default() };
        assert_eq!(step_after_load(progress, issued), expected, "{count} {head_count}");
    }
    for (verdict, is_last, head_count, expected) in [
        (Stays, false, 3, Step::Store),
        (AwaitsLast, false, 3, Step::Store),
        (Success, true, 3, Step::Store),
        (Success, true, 7, Step::Store),
        (Success, false, 7, Step::Block),
        (Silent, false, 6, Step::Message),
    ] {
        let turn = Turn { head_count: bits(head_count), ..Turn::default() };
        let judged = Judged { verdict, is_last, ..Judged::default() };
        assert_eq!(step_after_message(turn, judged), expected, "{verdict:?} {is_last} {head_count}");
    }
    for (frees, has_more, expected) in
        [(false, true, Step::Idle), (true, true, Step::AskHeld), (false, false, Step::AskHeld)]
    {
        let turn = Turn { frees, ..Turn::default() };
        assert_eq!(step_after_store(turn, Closing { has_more, ..Closing::default() }), expected);
    }
}

#[test]
fn a_block_that_ends_is_freed_or_returns_home_or_is_used_again() {
    let shared = shared_block(bits(5));
    let home = bits::<BLOCK_BITS>(77);
    // The block, the next; freed, the home lap toggles.
    for (head, next, frees, toggles) in [
        (shared, home, true, false),
        (home, shared, false, true),
        (shared, shared, false, false),
        (home, home, false, false),
    ] {
        let turn = Turn { head, head_count: bits(8), ..Turn::default() };
        let after = after_block(turn, next);
        assert_eq!(frees_shared(turn, next), frees, "{head:?} {next:?}");
        assert_eq!((after.head, after.head_count), (next, bits(0)));
        assert_eq!((after.retired.home_lap, after.frees), (toggles, head != next), "{head:?} {next:?}");
    }
}

#[test]
fn the_pool_is_asked_for_the_next_message() {
    let home = bits::<BLOCK_BITS>(77);
    let head = bits::<BLOCK_BITS>(900);
    let progress = Progress { head_from_home: head ^ home, head_count: bits(5), ..Progress::default() };
    let turn = Turn { head_count: bits(5), ..begin_turn(progress, home) };
    assert_eq!(turn.head, head);
    for (step, expected) in [
        (Step::Load, 900 * 8 + 5),
        (Step::Block, 33 * 8),
        (Step::Message, 900 * 8 + 6),
        (Step::Complete, 900 * 8 + 6),
    ] {
        assert_eq!(pool_slot_of(step, progress, home, bits(33), turn), bits(expected), "{step:?}");
    }
}

#[test]
fn the_counts_are_those_of_the_queue_pair_that_comes_next_while_none_is_served() {
    let (next, served, slot) = (bits(5), bits(9), bits(77));
    for (step, queue_pair, reads_issued, reads_begun) in [
        (Step::Idle, next, true, true),
        (Step::AskHeld, served, false, true),
        (Step::Load, served, false, false),
        (Step::Message, served, false, false),
    ] {
        let expected = PoolRead { queue_pair, reads_issued, reads_begun, pool_slot: slot };
        assert_eq!(pool_read_of(step, next, served, slot), expected, "{step:?}");
    }
}

#[test]
fn a_message_that_leaves_moves_the_counts_and_one_that_stays_does_not() {
    let read = OutstandingMessage { is_open: true, ..message() };
    // Message, verdict; leaves, READs, an error, a LOCAL_INVALIDATE has left.
    for (message, verdict, leaves, reads, fails, invalidated) in [
        (message(), Success, 1, 0, false, false),
        (message(), Silent, 1, 0, false, false),
        (message(), Stays, 0, 0, false, false),
        (message(), Flushed, 1, 0, true, false),
        (message(), Own, 1, 0, true, false),
        (message(), Failed, 1, 0, true, false),
        (read, Success, 1, 1, false, false),
        (read, Flushed, 1, 1, true, false),
        (read, Stays, 0, 0, false, false),
        (read, AwaitsLast, 0, 0, false, false),
        (local(), Success, 1, 0, false, true),
        (local(), Stays, 0, 0, false, false),
    ] {
        let before = Turn { left: bits(7), head_count: bits(2), ..Turn::default() };
        let after = after_message(before, Judged { message, verdict, is_last: false });
        let name = format!("{verdict:?} {}", message.is_open);
        assert_eq!((after.retired.count, after.retired.reads), (bits(leaves), bits(reads)), "{name}");
        assert_eq!((after.head_count, after.left), (bits(2 + leaves), bits(7 - leaves)), "{name}");
        assert_eq!((after.retired.has_failed, after.has_invalidated), (fails, invalidated), "{name}");
        assert_eq!((after.stays, after.frees), (leaves == 0, reads == 1), "{name}");
        assert_eq!(after.awaits_last, verdict == AwaitsLast, "{name}");
        let idle =
            turn_after(Step::Message, before, Progress::default(), bits(0), bits(0), Judged::default());
        assert_eq!(idle, before);
    }
}

#[test]
fn signalled_messages_and_those_in_error_write_a_cqe_if_their_wr_id_is_known() {
    // Verdict, signalled; a CQE, control is told.
    for (verdict, is_signalled, writes, tells) in [
        (Stays, true, false, false),
        (AwaitsLast, true, false, false),
        (Silent, true, false, false),
        (Success, true, true, false),
        (Success, false, false, false),
        (Flushed, false, true, false),
        (Own, false, true, true),
        (Failed, false, true, true),
    ] {
        for has_wr_id in [true, false] {
            let completion = WqeCompletion { has_wr_id, is_signalled, ..WqeCompletion::default() };
            let message = OutstandingMessage { completion, ..message() };
            let judged = Judged { message, verdict, is_last: false };
            let name = format!("{verdict:?} {is_signalled} {has_wr_id}");
            assert_eq!(writes_cqe(judged), writes && has_wr_id, "{name}");
            let is_unknown = verdict == Flushed && !has_wr_id;
            assert_eq!(tells_control(judged), tells || is_unknown, "{name}");
            // What no CQE reports raises an event.
            let notice = notice_of(bits(5), peer(QpState::ReadyToSend), false, judged);
            assert_eq!(notice.kind, NoticeKind::RequesterError);
            assert_eq!(notice.has_event, (tells || verdict == Flushed) && !has_wr_id, "{name}");
            assert_eq!(notice.event_code, bits(AsyncEvent::QueuePairFatal as u64));
        }
    }
    let notice = notice_of(bits(5), peer(QpState::SendQueueDrain), true, Judged::default());
    assert_eq!((notice.kind, notice.has_event), (NoticeKind::Drained, true));
    assert_eq!(notice.event_code, bits(AsyncEvent::SendQueueDrained as u64));
}

#[test]
fn a_cqe_has_opcode_status_and_the_length_of_what_was_read() {
    let kind = WqeKind::default();
    for (kind, opcode) in [
        (kind, CompletionOpcode::Send),
        (WqeKind { is_write: true, ..kind }, CompletionOpcode::Write),
        (WqeKind { is_read: true, ..kind }, CompletionOpcode::Read),
        (WqeKind { is_read: true, is_atomic: true, ..kind }, CompletionOpcode::FetchAdd),
        (WqeKind { is_read: true, is_atomic: true, is_compare: true, ..kind }, CompletionOpcode::CompareSwap),
        (WqeKind { is_local: true, ..kind }, CompletionOpcode::LocalInvalidate),
    ] {
        assert_eq!(opcode_of(OutstandingMessage { kind, ..message() }), bits(opcode as u64), "{opcode:?}");
    }
    let progress = Progress { failed_status: bits(10), failed_reason: bits(0x62), ..Progress::default() };
    // Verdict, READ; status, vendor_error, length.
    for (verdict, is_read, status, reason, length) in [
        (Success, false, 0, 0, 0),
        (Success, true, 0, 0, 4096),
        (Flushed, true, CompletionStatus::Flushed as u64, 0, 0),
        (Own, true, CompletionStatus::LocalLength as u64, 0x44, 0),
        (Failed, true, 10, 0x62, 0),
    ] {
        let message = OutstandingMessage {
            kind: WqeKind { is_read, ..kind },
            length: bits(4096),
            ..with_status(CompletionStatus::LocalLength)
        };
        let cqe = cqe_of(bits(7), Judged { message, verdict, is_last: false }, Peer::default(), progress);
        let found = (cqe.status, cqe.vendor_error, cqe.length);
        assert_eq!(found, (bits(status), bits(reason), bits(length)), "{verdict:?} {is_read}");
    }
}

#[test]
fn a_queue_pair_stays_in_the_queue_while_messages_can_leave_or_are_parsed_before_its_event() {
    // Messages that have left, were issued, were parsed; draining, the oldest stays; has more, drains, goes on.
    for (left, issued, begun, is_draining, stays, has_more, drains, continues) in [
        (4, 4, 4, false, false, false, false, false),
        (4, 5, 5, false, false, true, false, true),
        (4, 5, 5, false, true, true, false, false),
        (4, 4, 5, false, false, false, false, false),
        (4, 4, 5, true, false, false, true, true),
        (4, 5, 5, true, true, true, true, false),
        (4, 4, 4, true, false, false, false, false),
    ] {
        let turn =
            Turn { retired: Retired { count: bits(left), ..Retired::default() }, stays, ..Turn::default() };
        let progress = Progress { is_draining, ..Progress::default() };
        let issued = Issued { count: bits(issued), ..Issued::default() };
        let begun = Begun { count: bits(begun), is_held: false };
        let closing = closing_of(turn, progress, Peer::default(), issued, begun);
        let found = (closing.has_more, closing.drains, closing.continues);
        assert_eq!(found, (has_more, drains, continues), "{left} {issued:?} {begun:?} {stays}");
        let after = after_turn(progress, turn, closing, bits(0));
        assert_eq!((after.is_queued, after.is_draining), (continues, drains && !stays));
    }
}

#[test]
fn the_cursor_goes_back_once_what_was_acknowledged_has_left() {
    use QpState::{Error, ReadyToSend, SendQueueDrain};
    // It is wanted, the oldest message stays, messages are left, an error, the state; goes back, is still wanted.
    for (wants, stays, has_more, has_failed, state, rewinds, still) in [
        (true, true, true, false, ReadyToSend, true, false),
        (true, true, true, false, SendQueueDrain, true, false),
        (true, false, true, false, ReadyToSend, false, true),
        (true, false, false, false, ReadyToSend, false, false),
        (true, true, true, true, ReadyToSend, false, true),
        (true, true, true, false, Error, false, true),
        (false, true, true, false, ReadyToSend, false, false),
    ] {
        let retired = Retired { epoch: bits(255), has_failed, ..Retired::default() };
        let turn = Turn { stays, retired, ..Turn::default() };
        let progress = Progress { wants_rewind: wants, ..Progress::default() };
        let peer = Peer { state: bits(state as u64), ..Peer::default() };
        let issued = Issued { count: bits(has_more.into()), ..Issued::default() };
        let closing = closing_of(turn, progress, peer, issued, Begun::default());
        let name = format!("{wants} {stays} {has_more} {has_failed} {state:?}");
        assert_eq!(closing.rewinds, rewinds, "{name}");
        assert_eq!(
            retired_after(turn, progress, closing).epoch,
            bits(if rewinds { 0 } else { 255 }),
            "{name}"
        );
        let after = after_turn(progress, turn, closing, bits(0));
        assert_eq!(
            (after.wants_rewind, after.retired.epoch),
            (still, retired_after(turn, progress, closing).epoch),
            "{name}"
        );
        let asks = rewinds || !has_more;
        assert_eq!(step_after_store(turn, closing), if asks { Step::AskHeld } else { Step::Idle }, "{name}");
    }
}

#[test]
fn a_cursor_that_waits_for_the_peer_goes_on_when_the_wait_is_over() {
    // Waits in the pool, is to wait, the oldest message stays, messages are left; goes back, waits after.
    for (waited, waits, stays, has_more, rewinds, after) in [
        (false, true, true, true, true, true),
        (true, false, true, true, true, false),
        (true, false, false, false, true, false),
        (true, false, false, true, false, true),
        (false, false, false, false, false, false),
        (false, true, false, false, false, false),
    ] {
        let retired = Retired { waits: waited, ..Retired::default() };
        let turn = Turn { stays, retired, ..Turn::default() };
        let progress = Progress { wants_rewind: true, awaits_peer: waits, ..Progress::default() };
        let peer = Peer { state: bits(QpState::ReadyToSend as u64), ..Peer::default() };
        let issued = Issued { count: bits(has_more.into()), ..Issued::default() };
        let closing = closing_of(turn, progress, peer, issued, Begun::default());
        let name = format!("{waited} {waits} {stays} {has_more}");
        assert_eq!(closing.rewinds, rewinds, "{name}");
        assert_eq!(retired_after(turn, progress, closing).waits, after, "{name}");
        // Where nothing is left that was told to wait, the wait ends.
        let awaits = after_turn(progress, turn, closing, bits(0)).awaits_peer;
        assert_eq!(awaits, waits && (has_more || waited), "{name}");
    }
}

#[test]
fn a_message_in_error_stays_until_response_and_mark_have_returned_and_asks_for_them_once() {
    let peer = peer(QpState::ReadyToSend);
    let turn = Turn { stays: true, awaits_last: true, ..Turn::default() };
    let issued = Issued { count: bits(1), ..Issued::default() };
    // More was parsed than what is issued, so the queue pair drains, and goes on when it is in the ready queue again.
    let begun = Begun { count: bits(2), is_held: false };
    let before = Progress { wants_rewind: true, is_draining: true, is_queued: true, ..Progress::default() };
    let closing = closing_of(turn, before, peer, issued, begun);
    assert!(closing.sends_last && closing.is_closed && !closing.rewinds && !closing.continues);
    let after = after_turn(before, turn, closing, bits(0));
    let both = Progress { awaits_last: true, awaits_mark: true, is_closed: true, ..before };
    assert_eq!(after, Progress { is_queued: false, ..both });
    for has_returned in [false, true] {
        let later = Progress { awaits_last: !has_returned, ..after };
        let closing = closing_of(turn, later, peer, issued, begun);
        assert!(!closing.sends_last && closing.is_closed, "they were sent");
        assert_eq!(after_turn(later, turn, closing, bits(0)).awaits_last, !has_returned);
    }
    for stays in [false, true] {
        let other = Turn { stays, ..Turn::default() };
        let closing = closing_of(other, before, peer, issued, begun);
        assert!(!closing.sends_last && !closing.is_closed);
        let retired = Retired { has_failed: true, ..Retired::default() };
        let closing = closing_of(Turn { retired, ..other }, before, peer, issued, begun);
        assert!(!closing.sends_last && closing.is_closed, "nothing is sent after a message in error");
    }
}

#[test]
fn sqd_is_reported_when_nothing_is_left_and_nothing_failed() {
    // The event is to come, messages that were parsed and have not left, an error.
    for (reports, behind, has_failed, expected) in
        [(true, 0, false, true), (false, 0, false, false), (true, 1, false, false), (true, 0, true, false)]
    {
        let turn = Turn { retired: Retired { has_failed, ..Retired::default() }, ..Turn::default() };
        let progress = Progress { reports_drained: reports, ..Progress::default() };
        let begun = Begun { count: bits(behind), is_held: false };
        let closing = closing_of(turn, progress, Peer::default(), Issued::default(), begun);
        assert_eq!(closing.is_drained, expected, "{reports} {behind} {has_failed}");
        let after = after_turn(progress, turn, closing, bits(0));
        assert_eq!(after.reports_drained, reports && !expected, "once");
    }
}

#[test]
fn the_record_after_a_turn_is_where_the_turn_ended() {
    let home = bits::<BLOCK_BITS>(77);
    for (has_invalidated, answered) in [(false, true), (true, false)] {
        let turn = Turn {
            has_invalidated,
            head: bits(900),
            head_count: bits(3),
            retired: Retired { count: bits(9), has_failed: true, ..Retired::default() },
            ..Turn::default()
        };
        let before = Progress { is_invalidated: true, will_fail: true, ..Progress::default() };
        let after = after_turn(before, turn, Closing::default(), home);
        let expected = Progress {
            is_invalidated: answered,
            head_from_home: bits::<BLOCK_BITS>(900) ^ home,
            head_count: bits(3),
            retired: turn.retired,
            ..before
        };
        assert_eq!(after, expected);
    }
}
