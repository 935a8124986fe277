//! The rules as tables, from protocol 2.6.
use super::*;
use crate::messages::Retired;

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
    let failed = Progress { has_failed: true, ..progress(2) };
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
            progress(taken + 1)
        };
        assert_eq!(after, expected, "{taken} of {retry_count}");
    }
    // An earlier failure of the same message stays.
    let known = Progress { will_fail: true, failed_psn: bits(UNA), failed_status: bits(10), ..progress(0) };
    let last = Timeout { counts: true, is_last: true, is_stale: false };
    let after = after_timeout(known, Check::default(), last, false);
    assert_eq!(after, Progress { is_queued: true, ..known });
}

#[test]
fn what_is_acknowledged_gives_all_retries_back() {
    // Moves, its own PSN excluded, PSNs ahead; retries after three.
    for (moves, excludes_psn, ahead, expected) in [
        (true, false, 0, 0),
        (true, false, 2, 0),
        (true, true, 0, 3),
        (true, true, 1, 0),
        (false, false, 0, 3),
        (false, true, 1, 3),
    ] {
        let outcome = Outcome { moves, excludes_psn, ..Outcome::default() };
        let check = Check { ahead: bits(ahead), ..Check::default() };
        assert_eq!(retries_after(bits(3), check, outcome), bits(expected), "{outcome:?} {ahead}");
    }
}

#[test]
fn the_timer_runs_for_the_oldest_psn_until_a_message_is_in_error() {
    for (has_failed, kind) in [(false, TimerKind::Ack), (true, TimerKind::Stop)] {
        let set = timer_set_of(bits(9), Progress { has_failed, ..progress(5) });
        let order = TimerOrder { kind, rnr_code: bits(0), una_psn: bits(UNA), attempt: bits(5) };
        assert_eq!(set, TimerSet { queue_pair: bits(9), order });
    }
}

#[test]
fn a_timeout_moves_one_counter_and_its_failure_one_more() {
    let none = AcknowledgeCounts::default();
    let timeout = Timeout { counts: true, is_last: false, is_stale: false };
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
