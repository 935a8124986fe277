//! The rules as tables, from protocol 2.5 to 2.7.
use super::*;
use crate::messages::Retired;
use rnic_layout::state::QpState;

const UNA: u64 = 0xff_fffe;

fn progress(retries_taken: u64) -> Progress {
    let retired = Retired { count: bits(4), una_psn: bits(UNA), ..Retired::default() };
    Progress { retired, retries_taken: bits(retries_taken), ..Progress::default() }
}

fn peer(state: QpState, retry_count: u64) -> Peer {
    let state = bits(state as u64);
    Peer { state, generation: bits(3), retry_count: bits(retry_count), ..Peer::default() }
}

fn issued() -> Issued {
    Issued { count: bits(6), unsent_psn: bits(1), generation: bits(3), ..Issued::default() }
}

fn expired(attempt: u64) -> Expired {
    Expired {
        queue_pair: bits(9),
        generation: bits(3),
        kind: TimerKind::Ack,
        una_psn: bits(UNA),
        attempt: bits(attempt),
    }
}

#[test]
fn an_expiry_counts_while_nothing_has_happened_and_something_is_in_flight() {
    use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain};
    let rts = peer(ReadyToSend, 7);
    let failed = Progress { retired: Retired { has_failed: true, ..progress(2).retired }, ..progress(2) };
    for (expired, peer, progress, issued, counts, is_stale) in [
        (expired(2), rts, progress(2), issued(), true, false),
        (expired(2), peer(SendQueueDrain, 7), progress(2), issued(), true, false),
        (expired(2), peer(Error, 7), progress(2), issued(), false, false),
        (expired(2), peer(Reset, 7), progress(2), issued(), false, false),
        (expired(2), peer(Init, 7), progress(2), issued(), false, false),
        (expired(2), peer(ReadyToReceive, 7), progress(2), issued(), false, false),
        (expired(1), rts, progress(2), issued(), false, false),
        (Expired { una_psn: bits(UNA - 1), ..expired(2) }, rts, progress(2), issued(), false, false),
        (Expired { generation: bits(2), ..expired(2) }, rts, progress(2), issued(), false, true),
        (Expired { kind: TimerKind::RnrWait, ..expired(2) }, rts, progress(2), issued(), false, false),
        (expired(2), rts, failed, issued(), false, false),
        (expired(2), rts, progress(2), Issued { count: bits(4), ..issued() }, false, false),
        (expired(2), rts, progress(2), Issued { unsent_psn: bits(UNA), ..issued() }, false, false),
        (expired(2), rts, progress(2), Issued { generation: bits(2), ..issued() }, false, false),
        (expired(2), rts, progress(2), Issued { epoch: bits(1), ..issued() }, false, false),
        (expired(2), rts, Progress { wants_rewind: true, ..progress(2) }, issued(), false, false),
    ] {
        let timeout = timeout_of(expired, peer, progress, issued);
        let found = (timeout.counts, timeout.is_stale);
        assert_eq!(found, (counts, is_stale), "{expired:?} {peer:?} {progress:?} {issued:?}");
    }
}

#[test]
fn the_timeout_after_retry_count_retries_fails_the_oldest_message() {
    for (taken, retry_count, is_last) in
        [(0, 0, true), (0, 1, false), (1, 1, true), (6, 7, false), (7, 7, true)]
    {
        let timeout =
            timeout_of(expired(taken), peer(QpState::ReadyToSend, retry_count), progress(taken), issued());
        assert_eq!((timeout.counts, timeout.is_last), (true, is_last), "{taken} of {retry_count}");
        let check = Check { failing_psn: bits(UNA), ..Check::default() };
        let after = after_timeout(progress(taken), check, timeout, is_last);
        let expected = if is_last {
            Progress {
                will_fail: true,
                failed_psn: bits(UNA),
                failed_status: bits(CompletionStatus::RetryExceeded as u64),
                is_queued: true,
                ..progress(taken)
            }
        } else {
            Progress { wants_rewind: true, is_queued: true, ..progress(taken + 1) }
        };
        assert_eq!(after, expected, "{taken} of {retry_count}");
    }
    // An earlier failure of the same message stays.
    let known = Progress { will_fail: true, failed_psn: bits(UNA), failed_status: bits(10), ..progress(0) };
    let last = Timeout { counts: true, is_last: true, ends_wait: false, is_stale: false };
    let after = after_timeout(known, Check::default(), last, false);
    assert_eq!(after, Progress { is_queued: true, ..known });
}

#[test]
fn a_loss_takes_a_retry_and_progress_gives_all_back() {
    // A refusal, something was lost, PSNs acknowledged with it, on its way, retries taken, allowed; goes back, retries after.
    for (refuses, lost, ahead, is_pending, taken, allowed, rewinds, after) in [
        (true, true, 0, false, 0, 0, false, 0),
        (true, true, 0, false, 0, 1, true, 1),
        (true, true, 0, false, 1, 1, false, 1),
        (true, true, 0, false, 6, 7, true, 7),
        (true, true, 0, false, 7, 7, false, 7),
        (true, true, 0, true, 3, 7, false, 3),
        (true, true, 1, false, 7, 7, true, 1),
        (true, true, 1, true, 7, 7, false, 0),
        (true, true, 1, false, 7, 0, false, 0),
        (true, false, 0, false, 2, 7, false, 2),
        (true, false, 3, false, 2, 7, false, 0),
        (false, true, 0, false, 2, 7, false, 2),
    ] {
        let check = Check { ahead: bits(ahead), is_pending, ..Check::default() };
        let outcome = Outcome { moves: true, excludes_psn: true, refuses, ..Outcome::default() };
        let peer = peer(QpState::ReadyToSend, allowed);
        let recovery = recovery_of(check, outcome, lost, peer, progress(taken));
        let name = format!("{refuses} {lost} {ahead} {is_pending} {taken} of {allowed}");
        assert_eq!((recovery.rewinds, recovery.progresses), (rewinds, ahead > 0), "{name}");
        assert_eq!(recovery.is_due, refuses && lost && is_pending, "{name}");
        assert_eq!(is_final(outcome, recovery), refuses && !rewinds && !recovery.is_due, "{name}");
        let found = after_recovery(progress(taken), recovery, bits(0x60));
        assert_eq!((found.retries_taken, found.wants_rewind), (bits(after), rewinds), "{name}");
        assert!(!found.awaits_peer);
    }
    // An ACK acknowledges its own PSN; what moves nothing is no progress.
    for (moves, expected) in [(true, true), (false, false)] {
        let outcome = Outcome { moves, ..Outcome::default() };
        let recovery = recovery_of(Check::default(), outcome, false, Peer::default(), Progress::default());
        assert_eq!(recovery.progresses, expected);
    }
}

#[test]
fn a_missing_response_is_no_news_after_a_retry_until_something_is_acknowledged() {
    use ResponseClass::{Failure, Refusal};
    // A response is missing, or NAK 0x60; PSNs acknowledged with it, retries taken; goes back, is no news.
    for (class, ahead, taken, rewinds, is_due) in [
        (Failure, 0, 0, true, false),
        (Failure, 0, 1, false, true),
        (Failure, 2, 1, true, false),
        (Refusal, 0, 1, true, false),
    ] {
        let check = Check { ahead: bits(ahead), class, ..Check::default() };
        let outcome = Outcome { moves: true, excludes_psn: true, refuses: true, ..Outcome::default() };
        let recovery = recovery_of(check, outcome, true, peer(QpState::ReadyToSend, 7), progress(taken));
        assert_eq!((recovery.rewinds, recovery.is_due), (rewinds, is_due), "{class:?} {ahead} {taken}");
        assert!(!is_final(outcome, recovery), "{class:?} {ahead} {taken}");
    }
}

#[test]
fn a_peer_that_is_not_ready_is_waited_for_as_often_as_the_queue_pair_allows() {
    // PSNs acknowledged with the RNR NAK, on its way, waits before, allowed; waits again, waits after.
    for (ahead, is_pending, before, allowed, waits, after) in [
        (0, false, 0, 0, false, 0),
        (0, false, 0, 1, true, 1),
        (0, false, 1, 1, false, 1),
        (0, false, 6, 6, false, 6),
        (0, false, 7, 7, true, 0),
        (0, true, 2, 7, false, 2),
        (2, false, 6, 6, true, 1),
    ] {
        let check =
            Check { class: ResponseClass::NotReady, ahead: bits(ahead), is_pending, ..Check::default() };
        let outcome = Outcome { moves: true, excludes_psn: true, refuses: true, ..Outcome::default() };
        let peer = Peer { rnr_retry: bits(allowed), ..peer(QpState::ReadyToSend, 0) };
        let known = Progress { rnr_taken: bits(before), ..progress(0) };
        let recovery = recovery_of(check, outcome, false, peer, known);
        let name = format!("{ahead} {is_pending} {before} of {allowed}");
        assert_eq!((recovery.waits, recovery.rewinds), (waits, false), "{name}");
        assert_eq!(is_final(outcome, recovery), !waits && !is_pending, "{name}");
        let found = after_recovery(known, recovery, bits(0x2e));
        assert_eq!(
            (found.rnr_taken, found.awaits_peer, found.wants_rewind),
            (bits(after), waits, waits),
            "{name}"
        );
        assert_eq!(found.rnr_code, bits(if waits { 0x0e } else { 0 }), "{name}");
        let order = timer_set_of(bits(9), found).order;
        assert_eq!(order.kind, if waits { TimerKind::RnrWait } else { TimerKind::Ack }, "{name}");
        if waits {
            assert_ne!(order.attempt, attempt_of(known), "the timer starts anew");
        }
    }
    // The expiry of the wait takes no retry, and the cursor goes on.
    let waiting = Progress { awaits_peer: true, rnr_taken: bits(3), ..progress(1) };
    let end = Expired { kind: TimerKind::RnrWait, ..expired(3 << 3 | 1) };
    for (expired, progress, ends_wait) in [
        (end, waiting, true),
        (Expired { attempt: bits(2 << 3 | 1), ..end }, waiting, false),
        (Expired { attempt: bits(3 << 3 | 2), ..end }, waiting, false),
        (Expired { generation: bits(2), ..end }, waiting, false),
        (end, Progress { awaits_peer: false, ..waiting }, false),
        (expired(3 << 3 | 1), waiting, false),
    ] {
        let timeout = timeout_of(expired, peer(QpState::ReadyToSend, 1), progress, issued());
        assert_eq!(timeout.ends_wait, ends_wait, "{expired:?}");
        if ends_wait {
            let after = after_timeout(progress, Check::default(), timeout, false);
            let expected = Progress { awaits_peer: false, wants_rewind: true, is_queued: true, ..waiting };
            assert_eq!(after, expected);
        }
    }
}

#[test]
fn the_timer_runs_for_the_oldest_psn_until_a_message_is_in_error() {
    for (has_failed, kind) in [(false, TimerKind::Ack), (true, TimerKind::Stop)] {
        let retired = Retired { epoch: bits(0xfe), has_failed, ..progress(5).retired };
        let set = timer_set_of(bits(9), Progress { retired, ..progress(5) });
        let (una_psn, attempt, epoch) = (bits(UNA), bits(5), bits(0xfe));
        let order = TimerOrder { kind, rnr_code: bits(0), una_psn, attempt, epoch };
        assert_eq!(set, TimerSet { queue_pair: bits(9), order });
    }
}

#[test]
fn a_timeout_moves_one_counter_and_its_failure_one_more() {
    let none = AcknowledgeCounts::default();
    let timeout = Timeout { counts: true, is_last: false, ends_wait: false, is_stale: false };
    let stale = Timeout { counts: false, is_stale: true, ..timeout };
    for (is_timeout, timeout, fails, expected) in [
        (true, timeout, false, AcknowledgeCounts { timeout: true, ..none }),
        (true, timeout, true, AcknowledgeCounts { timeout: true, retry_exhausted: true, ..none }),
        (true, stale, false, AcknowledgeCounts { stale_dropped: true, ..none }),
        (true, Timeout { is_stale: false, ..stale }, false, none),
        (false, timeout, true, none),
        (false, stale, false, none),
    ] {
        assert_eq!(counts_after(none, is_timeout, timeout, fails), expected, "{timeout:?} {fails}");
    }
    let other = AcknowledgeCounts { nak_received: true, retry_exhausted: true, ..none };
    assert_eq!(counts_after(other, false, timeout, true), other);
}

#[test]
fn a_message_fails_by_a_refusal_a_loss_or_the_last_timeout_unless_an_earlier_failure_is_known() {
    let refuses = Outcome { refuses: true, ..Outcome::default() };
    let again = Recovery { rewinds: true, ..Recovery::default() };
    let none = Recovery::default();
    let last = Timeout { counts: true, is_last: true, ..Timeout::default() };
    let over = Check { is_over: true, ..Check::default() };
    let new = Check::default();
    for (step, is_current, check, outcome, recovery, timeout, expected) in [
        (Step::Response, false, new, refuses, none, Timeout::default(), true),
        (Step::Response, false, new, refuses, again, Timeout::default(), false),
        (Step::Response, true, new, Outcome::default(), none, last, false),
        (Step::Lost, true, new, Outcome::default(), none, Timeout::default(), true),
        (Step::Lost, false, new, refuses, none, last, false),
        (Step::Lost, true, over, refuses, none, last, false),
        (Step::Expired, false, new, Outcome::default(), none, last, true),
        (Step::Expired, true, new, refuses, none, Timeout { is_last: false, ..last }, false),
        (Step::Expired, true, new, refuses, none, Timeout { counts: false, ..last }, false),
        (Step::Check, true, new, refuses, none, last, false),
        (Step::Store, true, new, refuses, none, last, false),
    ] {
        let found = fails_in(step, is_current, check, outcome, recovery, timeout);
        assert_eq!(found, expected, "{step:?} {is_current} {check:?} {timeout:?}");
        let known = Check { keeps: true, ..check };
        assert!(!fails_in(step, is_current, known, outcome, recovery, timeout), "{step:?}");
    }
}
