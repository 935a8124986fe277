//! Rules of [`Acknowledge`](super::Acknowledge) about its inputs: which of them is taken next.
use super::{READY_COUNT_BITS, Step};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{QUEUE_PAIR_BITS, sizes};

/// A turn starts with fewer completions in the queue; it adds eight, and the queue holds 32.
const COMPLETIONS_MAX: u64 = 24;
/// A turn starts with fewer failures in the queue; it adds two, of an error and of a slot after it, or the
/// event of SQD, and the queue holds four.
const FAILURES_MAX: u64 = 3;
/// A response is taken with fewer in the queue to read_response, which holds eight: the last place is for what a turn sends, so
/// that turns go on while read_response waits.
const DEFERRED_MAX: u64 = 7;
/// A turn starts with fewer wakes in the queue; one may be on its way, it adds one, and the queue holds four.
const WAKES_MAX: u64 = 3;

/// A turn starts with fewer marks in the queue; it adds one, and the queue holds one for each queue pair.
fn marks_max() -> u64 {
    1 << sizes().queue_pairs
}

/// Inputs that are there, and may be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Offers {
    pub setup: Bit,
    /// From gather.
    pub failure: Bit,
    /// It is a mark that returns.
    pub is_mark: Bit,
    pub local: Bit,
    /// The local completion is of a packet that was not sent.
    pub local_fails: Bit,
    /// A timer has expired, and was not the last input.
    pub expired: Bit,
    /// A queue pair is in the ready queue, and there is room for all that a turn can send.
    pub turn: Bit,
    /// A response that returns from the place stage.
    pub returned: Bit,
    /// A response of the peer.
    pub response: Bit,
}

/// The input that was chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Chosen {
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Of a packet that was not sent: issue says so, not gather.
    pub is_own: Bit,
    /// Of a response: it returns from the place stage.
    pub is_back: Bit,
}

/// Says whether there is room for all that a turn can send, from what is in the queues.
#[kernel]
pub(super) fn has_room(
    completions: Bits<6>,
    failures: Bits<3>,
    wakes: Bits<3>,
    marks: Bits<READY_COUNT_BITS>,
) -> Bit {
    completions < COMPLETIONS_MAX && failures < FAILURES_MAX && wakes < WAKES_MAX && marks < marks_max()
}

/// Says whether a response may be taken, from what is in the queue to read_response.
#[kernel]
pub(super) fn takes_response(deferred: Bits<4>) -> Bit {
    deferred < DEFERRED_MAX
}

/// Chooses what an idle block does. Responses go before turns, so that a turn finds more to do, but seven at
/// most.
#[kernel]
pub(super) fn first_step(has: Offers, responses_taken: Bits<3>) -> Step {
    if has.setup {
        Step::Setup
    } else if has.failure && has.is_mark {
        Step::Marked
    } else if has.failure || (has.local && has.local_fails) {
        Step::Failure
    } else if has.local {
        Step::Local
    } else if has.expired {
        Step::Timeout
    } else if has.turn && ((!has.returned && !has.response) || responses_taken.all()) {
        Step::Load
    } else if has.returned || has.response {
        Step::Check
    } else {
        Step::Idle
    }
}

/// Responses since the last turn, seven at most.
#[kernel]
pub(super) fn responses_after(taken: Bits<3>, first: Step) -> Bits<3> {
    match first {
        Step::Load => bits::<3>(0),
        Step::Check if !taken.all() => taken + 1,
        _ => taken,
    }
}

#[cfg(test)]
mod tests;
