//! The rules as tables, from the numbered rules of the module and protocol 2.5, 2.11 and 3.10.
use super::*;
use crate::testing::event;
use SetupKind::{Life, Path, Probe, ReceivePsn, Restart, SendPsn};
use rnic_layout::state::QpState::{
    Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError,
};

/// A queue pair with a failure to come, whose LOCAL_INVALIDATE has been answered.
fn progress() -> Progress {
    Progress {
        will_fail: true,
        failed_psn: bits(0x10),
        failed_status: bits(9),
        failed_reason: bits(0x61),
        retired: Retired {
            count: bits(7),
            reads: bits(3),
            home_lap: true,
            una_psn: bits(5),
            oldest_slot: bits(0x21),
            oldest_psn: bits(4),
            epoch: bits(9),
            waits: false,
            has_failed: false,
        },
        is_invalidated: true,
        head_count: bits(4),
        ..Progress::default()
    }
}

#[test]
fn events_of_state_and_psn_concern_messages_in_flight() {
    for (kind, expected) in
        [(Life, true), (Restart, true), (SendPsn, true), (Path, false), (ReceivePsn, false), (Probe, false)]
    {
        assert_eq!(concerns_progress(kind), expected, "{kind:?}");
    }
}

#[test]
fn err_and_sqe_flush_and_a_restart_forgets_failures() {
    let failed = Progress { retired: Retired { has_failed: true, ..progress().retired }, ..progress() };
    // Kind, state, the record before; all are flushed, a failure is to come, the answer of control is known.
    for (kind, state, before, has_failed, will_fail, is_invalidated) in [
        (Life, Error, progress(), true, true, true),
        (Life, SendQueueError, progress(), true, true, true),
        (Life, ReadyToSend, progress(), false, true, true),
        (Life, ReadyToSend, failed, true, true, true),
        (Life, Reset, failed, true, true, true),
        (Life, Init, progress(), false, true, true),
        (Life, ReadyToReceive, progress(), false, true, true),
        (Restart, Reset, failed, false, false, false),
        (Restart, Error, progress(), false, false, false),
    ] {
        let after = after_setup(before, event(kind, 5, state, 3), bits(ReadyToSend as u64));
        let name = format!("{kind:?} {state:?}");
        assert_eq!((after.retired.has_failed, after.will_fail), (has_failed, will_fail), "{name}");
        assert_eq!(after.is_invalidated, is_invalidated, "{name}");
        assert_eq!((after.is_queued, after.is_draining), (true, true), "{name}");
        // The slots begin anew with a restart.
        let slot = if kind == Restart { bits(0) } else { before.retired.oldest_slot };
        let retired = Retired { oldest_slot: slot, has_failed, ..before.retired };
        assert_eq!((after.retired, after.head_count), (retired, before.head_count), "{name}");
    }
    let psn = SetupEvent { psn: bits(0x123), ..event(SendPsn, 5, Error, 3) };
    let retired = Retired { una_psn: bits(0x123), oldest_psn: bits(0x123), ..progress().retired };
    let after = after_setup(progress(), psn, bits(ReadyToSend as u64));
    assert_eq!(after, Progress { retired, is_queued: true, ..progress() });
}

#[test]
fn from_sqe_to_rts_a_failure_is_forgotten_and_by_no_other_change_of_state() {
    let retired = Retired { has_failed: true, ..progress().retired };
    let failed = Progress { retired, ..progress() };
    for (old, new, expected) in [
        (SendQueueError, ReadyToSend, false),
        (SendQueueError, SendQueueError, true),
        (SendQueueError, Error, true),
        (SendQueueError, Reset, true),
        (Error, ReadyToSend, true),
        (ReadyToSend, ReadyToSend, true),
        (SendQueueDrain, ReadyToSend, true),
    ] {
        let after = after_setup(failed, event(Life, 5, new, 3), bits(old as u64));
        assert_eq!((after.retired.has_failed, after.will_fail), (expected, expected), "{old:?} to {new:?}");
    }
}

#[test]
fn a_message_in_error_that_has_not_left_keeps_its_status_in_err() {
    let failed = Retired { has_failed: true, ..progress().retired };
    // It was found before the event, it has left, the new state; all are flushed after it.
    for (is_closed, has_left, state, expected) in [
        (false, false, Error, true),
        (true, false, Error, false),
        (true, false, SendQueueError, false),
        (true, true, Error, true),
        (true, false, ReadyToSend, false),
    ] {
        let retired = if has_left { failed } else { progress().retired };
        let before =
            Progress { is_closed, awaits_last: is_closed, awaits_mark: is_closed, retired, ..progress() };
        let after = after_setup(before, event(Life, 5, state, 3), bits(ReadyToSend as u64));
        assert_eq!(after.retired.has_failed, expected, "{is_closed} {has_left} {state:?}");
        let found = (after.is_closed, after.awaits_last, after.awaits_mark);
        assert_eq!(found, (is_closed, is_closed, is_closed), "{is_closed} {has_left} {state:?}");
    }
    let closed = Progress { is_closed: true, awaits_last: true, awaits_mark: true, ..progress() };
    let after = after_setup(closed, event(Restart, 5, Reset, 4), bits(Error as u64));
    assert!(!after.is_closed && !after.awaits_last && !after.awaits_mark, "another life");
    let after = after_setup(closed, event(Life, 5, ReadyToSend, 3), bits(SendQueueError as u64));
    assert!(!after.is_closed, "what comes after SQE is sent");
}

#[test]
fn a_queue_pair_is_settled_when_both_have_returned() {
    for (is_closed, awaits_last, awaits_mark, expected) in [
        (false, false, false, false),
        (true, true, true, false),
        (true, false, true, false),
        (true, true, false, false),
        (true, false, false, true),
    ] {
        let record = Progress { is_closed, awaits_last, awaits_mark, ..progress() };
        assert_eq!(is_settled(record), expected, "{is_closed} {awaits_last} {awaits_mark}");
        assert_eq!(is_over(record), is_closed);
        for is_current in [false, true] {
            let after = after_mark(record, is_current);
            let is_queued = record.is_queued || is_current;
            let expected = Progress { awaits_mark: awaits_mark && !is_current, is_queued, ..record };
            assert_eq!(after, expected, "{is_closed} {awaits_last} {awaits_mark} {is_current}");
        }
    }
}

#[test]
fn sqd_reports_once_for_each_transition_and_only_where_the_path_asks() {
    // New state, old state, the path asks, the event was still to come.
    for (state, old, asks, pending, expected) in [
        (SendQueueDrain, ReadyToSend, true, false, true),
        (SendQueueDrain, ReadyToSend, false, false, false),
        (SendQueueDrain, SendQueueDrain, true, false, false),
        (SendQueueDrain, SendQueueDrain, true, true, true),
        (SendQueueDrain, SendQueueDrain, false, true, false),
        (ReadyToSend, SendQueueDrain, true, true, false),
        (Error, SendQueueDrain, true, true, false),
    ] {
        let mut event = event(Life, 5, state, 3);
        event.path.drain_notify = asks;
        let before = Progress { reports_drained: pending, ..progress() };
        let after = after_setup(before, event, bits(old as u64));
        assert_eq!(after.reports_drained, expected, "{state:?} {old:?} {asks} {pending}");
        let restart = SetupEvent { kind: Restart, ..event };
        assert!(!after_setup(before, restart, bits(old as u64)).reports_drained);
    }
}

#[test]
fn control_answers_a_local_invalidate_of_the_same_generation() {
    // An answer, refused, of the generation, answered before; answered, refused.
    for (is_answer, refuses, is_current, was, expected) in [
        (true, false, true, false, (true, false)),
        (true, true, true, false, (true, true)),
        (true, true, false, false, (false, false)),
        (false, true, true, false, (false, false)),
        (false, false, true, true, (true, false)),
    ] {
        let local =
            LocalCompletion { is_invalidated: is_answer, is_denied: refuses, ..LocalCompletion::default() };
        let before = Progress { is_invalidated: was, ..progress() };
        let after = after_local(before, local, is_current);
        assert_eq!((after.is_invalidated, after.is_denied), expected, "{is_answer} {refuses} {is_current}");
        assert!(after.is_queued);
    }
}

#[test]
fn the_earliest_failure_counts_whatever_the_order() {
    // A failure is known, PSN of the new one; it is kept.
    for (will_fail, psn, keeps) in [
        (false, 0x11, false),
        (true, 0x0f, false),
        (true, 0x10, true),
        (true, 0x11, true),
        (true, 0xff_fff0, false),
        (true, 0x80_000f, true),
        (true, 0x80_0010, false),
    ] {
        let before = Progress { will_fail, ..progress() };
        assert_eq!(keeps_failure(before, bits(psn)), keeps, "{will_fail} {psn:#x}");
        let failure = Failure { status: bits(4), reason: bits(0x80) };
        let after = after_failure(before, !keeps, bits(psn), failure);
        let expected = if keeps { (0x10, 9, 0x61) } else { (psn, 4, 0x80) };
        let found = (after.failed_psn, after.failed_status, after.failed_reason);
        assert_eq!(found, (bits(expected.0), bits(expected.1), bits(expected.2)), "{psn:#x}");
        assert!(after.will_fail);
    }
}

#[test]
fn a_packet_that_was_not_sent_is_that_of_issue_or_of_gather() {
    let local = LocalCompletion { psn: bits(1), queue_pair: bits(2), ..LocalCompletion::default() };
    let failure = GatherFailure { psn: bits(3), queue_pair: bits(4), ..GatherFailure::default() };
    for (is_own, psn, queue_pair, reason) in [(true, 1, 2, 0), (false, 3, 4, vendor_error::PAYLOAD)] {
        let lost = lost_packet(is_own, local, failure);
        assert_eq!((lost.psn, lost.queue_pair), (bits(psn), bits(queue_pair)));
        let expected =
            Failure { status: bits(CompletionStatus::LocalProtection as u64), reason: bits(reason) };
        assert_eq!(lost_failure(is_own), expected);
    }
}

#[test]
fn a_reset_leaves_no_peer() {
    let known = peer_of(event(Life, 5, ReadyToSend, 3));
    let peer = no_peer(Peer { local_qp: bits(0x1234), ..known });
    assert_eq!((peer.state, peer.local_qp), (bits(Reset as u64), bits(0)));
    assert_eq!(known.state, bits(ReadyToSend as u64));
}
