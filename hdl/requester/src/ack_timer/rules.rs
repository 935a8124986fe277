//! Rules of [`AckTimer`](super::AckTimer): when a timer runs, and what a visit makes of it (protocol 2.6, 2.7).
use crate::messages::{ATTEMPT_BITS, Expired, TimerKind, TimerOrder};
use rnic_blocks::logic::psn;
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::setup::SetupEvent;
use rnic_messages::sizes::{EPOCH_BITS, GENERATION_BITS, QUEUE_PAIR_BITS, TIMER_UNIT_BITS};
use rnic_messages::transmit::Departed;

/// Width of the time in units: the longest period is 2^31 of them.
pub(super) const TIME_BITS: usize = 33;
/// Width of the exponent of a timeout.
const TIMEOUT_BITS: usize = 5;

/// What commands set of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct TimerPath {
    /// The state has timers.
    pub runs: Bit,
    pub timeout: Bits<TIMEOUT_BITS>,
    pub generation: Bits<GENERATION_BITS>,
}

/// What has left the card of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Sent {
    /// A packet has left since the records were cleared.
    pub is_valid: Bit,
    /// PSN after the last packet, or after its last response.
    pub next_psn: Bits<24>,
    pub epoch: Bits<EPOCH_BITS>,
    pub generation: Bits<GENERATION_BITS>,
}

/// Timer of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Timer {
    pub is_running: Bit,
    /// Last unit of time in which it has not expired.
    pub deadline: Bits<TIME_BITS>,
    /// Order and generation for which it was started.
    pub kind: TimerKind,
    pub una_psn: Bits<24>,
    pub attempt: Bits<ATTEMPT_BITS>,
    pub generation: Bits<GENERATION_BITS>,
}

/// What a visit finds out.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Found {
    /// Something is waited for.
    pub is_awaited: Bit,
    pub is_running: Bit,
    /// The timer runs for the order of acknowledge.
    pub is_same: Bit,
    /// Its deadline is past.
    pub is_past: Bit,
}

/// What a visit needs to act.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Look {
    pub order: TimerOrder,
    pub generation: Bits<GENERATION_BITS>,
    pub period: Bits<TIME_BITS>,
}

/// What a visit does.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(super) enum Action {
    Nothing,
    Stop,
    Start,
    /// Reports the expiry, and starts the next period.
    Expire,
}

/// What an event sets; `clears` clears it.
#[kernel]
pub(super) fn path_of(event: SetupEvent, clears: Bit) -> TimerPath {
    let sends = event.state == QpState::ReadyToSend as u64 || event.state == QpState::SendQueueDrain as u64;
    TimerPath { runs: sends && !clears, timeout: event.path.timeout, generation: event.generation }
}

/// What has left the card; `clears` clears it.
#[kernel]
pub(super) fn sent_of(departed: Departed, clears: Bit) -> Sent {
    Sent {
        is_valid: !clears,
        next_psn: departed.next_psn,
        epoch: departed.epoch,
        generation: departed.generation,
    }
}

/// Says whether a unit of time ends with a cycle; a unit of no cycles has one.
#[kernel]
pub(super) fn ticks(cycles: Bits<TIMER_UNIT_BITS>, unit: Bits<TIMER_UNIT_BITS>) -> Bit {
    bit_cast::<17, TIMER_UNIT_BITS>(cycles) + 1 >= bit_cast::<17, TIMER_UNIT_BITS>(unit)
}

/// Units of a period: T, or an RNR delay.
#[kernel]
pub(super) fn period_of(order: TimerOrder, path: TimerPath, rnr_delay: Bits<TIME_BITS>) -> Bits<TIME_BITS> {
    match order.kind {
        TimerKind::RnrWait => rnr_delay,
        _ => bits::<TIME_BITS>(1) << path.timeout,
    }
}

/// Says whether the oldest packet that is not acknowledged has left the card, in the newest epoch.
#[kernel]
pub(super) fn is_outstanding(sent: Sent, generation: Bits<GENERATION_BITS>, order: TimerOrder) -> Bit {
    let is_current = sent.is_valid && sent.generation == generation && sent.epoch == order.epoch;
    is_current && psn::is_after(sent.next_psn, order.una_psn)
}

/// Says whether a queue pair waits for something.
#[kernel]
pub(super) fn is_awaited(path: TimerPath, sent: Sent, order: TimerOrder) -> Bit {
    let is_outstanding = is_outstanding(sent, path.generation, order);
    match order.kind {
        TimerKind::Ack => path.runs && path.timeout.any() && is_outstanding,
        TimerKind::RnrWait => path.runs,
        TimerKind::Stop => false,
    }
}

/// Says whether a time is after a deadline, modulo 2^33.
#[kernel]
pub(super) fn is_after(time: Bits<TIME_BITS>, deadline: Bits<TIME_BITS>) -> Bit {
    (deadline - time).get_bit(TIME_BITS - 1)
}

/// Finds out about a timer.
#[kernel]
pub(super) fn look_of(
    path: TimerPath,
    sent: Sent,
    order: TimerOrder,
    timer: Timer,
    time: Bits<TIME_BITS>,
) -> Found {
    Found {
        is_awaited: is_awaited(path, sent, order),
        is_running: timer.is_running,
        is_same: timer.kind == order.kind
            && timer.una_psn == order.una_psn
            && timer.attempt == order.attempt
            && timer.generation == path.generation,
        is_past: is_after(time, timer.deadline),
    }
}

/// Says what a visit does.
#[kernel]
pub(super) fn action_of(found: Found) -> Action {
    if !found.is_awaited {
        select(found.is_running, Action::Stop, Action::Nothing)
    } else if !found.is_running || !found.is_same {
        Action::Start
    } else if found.is_past {
        Action::Expire
    } else {
        Action::Nothing
    }
}

/// The timer after a visit. The unit that has begun does not count.
#[kernel]
pub(super) fn timer_after(look: Look, action: Action, time: Bits<TIME_BITS>, clears: Bit) -> Timer {
    Timer {
        is_running: action != Action::Stop && !clears,
        deadline: time + look.period,
        kind: look.order.kind,
        una_psn: look.order.una_psn,
        attempt: look.order.attempt,
        generation: look.generation,
    }
}

/// What acknowledge is told of an expiry.
#[kernel]
pub(super) fn expired_of(queue_pair: Bits<QUEUE_PAIR_BITS>, look: Look) -> Expired {
    Expired {
        queue_pair,
        generation: look.generation,
        kind: look.order.kind,
        una_psn: look.order.una_psn,
        attempt: look.order.attempt,
    }
}

#[cfg(test)]
mod tests;
