//! The rules as tables, from protocol 2.6 and 2.7.
use super::*;
use crate::testing::event;
use rnic_messages::setup::SetupKind;

const LONGEST: u64 = (1 << TIME_BITS) - 1;

fn path(timeout: u64) -> TimerPath {
    TimerPath { runs: true, timeout: bits(timeout), generation: bits(3) }
}

fn sent(next_psn: u64) -> Sent {
    Sent { is_valid: true, next_psn: bits(next_psn), epoch: bits(8), generation: bits(3) }
}

fn order(kind: TimerKind, una_psn: u64, attempt: u64) -> TimerOrder {
    TimerOrder { kind, rnr_code: bits(0), una_psn: bits(una_psn), attempt: bits(attempt), epoch: bits(8) }
}

#[test]
fn a_queue_pair_has_timers_in_rts_and_sqd() {
    for (state, runs) in [
        (QpState::Reset, false),
        (QpState::Init, false),
        (QpState::ReadyToReceive, false),
        (QpState::ReadyToSend, true),
        (QpState::SendQueueDrain, true),
        (QpState::SendQueueError, false),
        (QpState::Error, false),
    ] {
        let mut event = event(SetupKind::Life, 5, state, 3);
        event.path.timeout = bits(14);
        assert_eq!(path_of(event, false), TimerPath { runs, ..path(14) }, "{state:?}");
        assert!(!path_of(event, true).runs, "{state:?}");
    }
    let (next_psn, epoch, generation) = (bits(7), bits(8), bits(3));
    let departed = Departed { next_psn, epoch, generation, queue_pair: bits(5), valid: true };
    assert_eq!(sent_of(departed, false), sent(7));
    assert!(!sent_of(departed, true).is_valid);
}

#[test]
fn a_unit_has_as_many_cycles_as_its_register_says_and_one_at_least() {
    for (cycles, unit, expected) in [
        (0, 0, true),
        (0, 1, true),
        (0, 2, false),
        (1, 2, true),
        (1022, 1024, false),
        (1023, 1024, true),
        // A smaller unit than the one that has begun.
        (1023, 3, true),
        (0xfffe, 0xffff, true),
        (0xfffd, 0xffff, false),
    ] {
        assert_eq!(ticks(bits(cycles), bits(unit)), expected, "{cycles} of {unit}");
    }
}

#[test]
fn a_packet_is_awaited_from_its_departure_until_it_is_acknowledged() {
    use TimerKind::{Ack, RnrWait, Stop};
    let older = Sent { epoch: bits(7), ..sent(7) };
    let other = Sent { generation: bits(2), ..sent(7) };
    let none = Sent { is_valid: false, ..sent(7) };
    let still = TimerPath { runs: false, ..path(1) };
    for (path, sent, order, expected) in [
        (path(1), sent(7), order(Ack, 6, 0), true),
        (path(31), sent(0), order(Ack, 0xff_ffff, 0), true),
        (path(1), sent(7), order(Ack, 7, 0), false),
        // The oldest packet waits in the card, behind one that was acknowledged.
        (path(1), sent(7), order(Ack, 8, 0), false),
        (path(1), sent(0xff_ffff), order(Ack, 2, 0), false),
        // The cursor has gone back, and nothing has left since.
        (path(1), older, order(Ack, 6, 0), false),
        (path(1), older, order(RnrWait, 6, 0), true),
        (path(0), sent(7), order(Ack, 6, 0), false),
        (path(1), other, order(Ack, 6, 0), false),
        (path(1), none, order(Ack, 6, 0), false),
        (still, sent(7), order(Ack, 6, 0), false),
        (path(1), sent(7), order(Stop, 6, 0), false),
        (path(0), sent(7), order(RnrWait, 6, 0), true),
        (still, sent(7), order(RnrWait, 6, 0), false),
    ] {
        assert_eq!(is_awaited(path, sent, order), expected, "{path:?} {sent:?} {order:?}");
    }
}

#[test]
fn a_period_is_t_or_the_rnr_delay() {
    for timeout in 1..32 {
        let period = period_of(order(TimerKind::Ack, 0, 0), path(timeout), bits(5));
        assert_eq!(period, bits(1 << timeout), "timeout {timeout}");
    }
    assert_eq!(period_of(order(TimerKind::RnrWait, 0, 0), path(31), bits(5)), bits(5));
}

#[test]
fn a_timer_runs_for_one_order_of_one_generation() {
    let order = order(TimerKind::Ack, 6, 2);
    let timer = Timer {
        is_running: true,
        deadline: bits(100),
        kind: TimerKind::Ack,
        una_psn: bits(6),
        attempt: bits(2),
        generation: bits(3),
    };
    let look = |timer, time| look_of(path(1), sent(7), order, timer, bits(time));
    let found = Found { is_awaited: true, is_running: true, is_same: true, is_past: false };
    assert_eq!(look(timer, 100), found);
    assert_eq!(look(timer, 101), Found { is_past: true, ..found });
    assert_eq!(look(Timer { is_running: false, ..timer }, 100), Found { is_running: false, ..found });
    for other in [
        Timer { kind: TimerKind::RnrWait, ..timer },
        Timer { una_psn: bits(5), ..timer },
        Timer { attempt: bits(1), ..timer },
        Timer { generation: bits(2), ..timer },
    ] {
        assert_eq!(look(other, 100), Found { is_same: false, ..found }, "{other:?}");
    }
}

#[test]
fn a_visit_starts_stops_and_expires_timers() {
    // Awaited, running, for the same order, past its deadline.
    for (awaited, running, same, past, expected) in [
        (false, false, true, true, Action::Nothing),
        (false, true, true, true, Action::Stop),
        (false, true, false, false, Action::Stop),
        (true, false, true, true, Action::Start),
        (true, true, false, true, Action::Start),
        (true, true, true, false, Action::Nothing),
        (true, true, true, true, Action::Expire),
    ] {
        let found = Found { is_awaited: awaited, is_running: running, is_same: same, is_past: past };
        assert_eq!(action_of(found), expected, "{found:?}");
    }
    let order = TimerOrder { rnr_code: bits(9), ..order(TimerKind::RnrWait, 6, 2) };
    let look = Look { order, generation: bits(3), period: bits(40) };
    for (action, clears, is_running) in [
        (Action::Start, false, true),
        (Action::Expire, false, true),
        (Action::Stop, false, false),
        (Action::Start, true, false),
    ] {
        let timer = Timer {
            is_running,
            deadline: bits(140),
            kind: TimerKind::RnrWait,
            una_psn: bits(6),
            attempt: bits(2),
            generation: bits(3),
        };
        assert_eq!(timer_after(look, action, bits(100), clears), timer, "{action:?} {clears}");
    }
    let expired = Expired {
        queue_pair: bits(77),
        generation: bits(3),
        kind: TimerKind::RnrWait,
        una_psn: bits(6),
        attempt: bits(2),
    };
    assert_eq!(expired_of(bits(77), look), expired);
}

/// Every timeout at every phase of the time, which wraps around: not before T, and in the unit after it.
#[test]
fn a_period_of_any_timeout_ends_in_the_unit_after_t() {
    for timeout in 1..32 {
        for start in [0, 1, 1 << 31, 1 << 32, LONGEST - 1, LONGEST] {
            let order = order(TimerKind::Ack, 6, 0);
            let look = Look { order, generation: bits(3), period: period_of(order, path(timeout), bits(0)) };
            let timer = timer_after(look, Action::Start, bits(start), false);
            let is_past = |units: u64| is_after(bits((start + units) & LONGEST), timer.deadline);
            let t = 1 << timeout;
            for units in [0, 1, t / 2, t - 1, t] {
                assert!(!is_past(units), "timeout {timeout}: {units} units after {start:#x}");
            }
            for units in [t + 1, t + 2, 2 * t, 4 * t - 1] {
                // A timer is looked at once a round, so none is seen as late as 2^32 units.
                assert!(units >= 1 << 32 || is_past(units), "timeout {timeout}: {units} after {start:#x}");
            }
        }
    }
}
