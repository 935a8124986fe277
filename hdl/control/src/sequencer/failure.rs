//! What a failure or a notice changes in the store: decisions on the one word that it is about.
//!
//! | Event | Word | Applies if | Changes |
//! |---|---|---|---|
//! | failure | header of the queue pair | its generation is current, and the state changes | state |
//! | drained | header of the queue pair | its generation is current, and the state is SQD | nothing |
//! | limit reached | limit of the shared receive queue | its generation is current | limit, to zero |
use crate::object_store::{
    INDEX_BITS, KIND_BITS, LIMIT_BITS, LOADED_WORDS, STATE, STATE_BITS, STORE_BITS, VALID, header_of, kind,
};
use crate::object_view::{generation_of, state_of};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::setup::{FailureCause, FailureEvent};

/// Bits of a header above the state.
const ABOVE_STATE: usize = 64 - STATE - STATE_BITS;
/// Bits of the word of a limit above the limit.
const ABOVE_LIMIT: usize = 64 - LIMIT_BITS;
/// The word of a shared receive queue that holds its limit.
const LIMIT_WORD: u64 = LOADED_WORDS as u64;

/// What becomes of a failure or a notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct FailureVerdict {
    /// The object is changed, or the notice is passed on.
    pub(super) applies: Bit,
    /// It is of an older generation of a queue pair, and is counted as such.
    pub(super) is_stale: Bit,
    /// It changes no state.
    pub(super) is_notice: Bit,
}

/// Gives the number of a cause, as the table of states after a failure has it.
#[kernel]
pub(super) fn cause_number(cause: FailureCause) -> Bits<2> {
    match cause {
        FailureCause::Requester => bits::<2>(0),
        FailureCause::Responder => bits::<2>(1),
        FailureCause::Queue => bits::<2>(2),
        FailureCause::SharedLimit | FailureCause::Drained => bits::<2>(3),
    }
}

/// Gives the address of the word that a failure is about.
#[kernel]
pub(super) fn failure_address(failure: FailureEvent) -> Bits<STORE_BITS> {
    if failure.cause == FailureCause::SharedLimit {
        header_of(bits::<KIND_BITS>(kind::SHARED_RECEIVE), failure.queue_pair)
            | bits::<STORE_BITS>(LIMIT_WORD)
    } else {
        header_of(bits::<KIND_BITS>(kind::QUEUE_PAIR), failure.queue_pair)
    }
}

/// Decides on a failure by the word that it is about; `next_state` is the state after it.
#[kernel]
pub(super) fn decide_failure(
    failure: FailureEvent,
    word: Bits<64>,
    next_state: Bits<STATE_BITS>,
) -> FailureVerdict {
    let state = state_of(word);
    let is_limit = failure.cause == FailureCause::SharedLimit;
    let is_drain = failure.cause == FailureCause::Drained;
    let is_notice = is_limit || is_drain;
    let is_stale = if is_limit {
        word.get_bits::<8>(LIMIT_BITS) != failure.generation
    } else {
        !word.get_bit(VALID) || generation_of(word) != failure.generation
    };
    let has_left = is_drain && state != QpState::SendQueueDrain as u64;
    FailureVerdict {
        applies: !is_stale && !has_left && (is_notice || next_state != state),
        is_stale: is_stale && !is_limit,
        is_notice,
    }
}

/// Gives the word that a failure is about as it is after the failure.
#[kernel]
pub(super) fn failed_word(failure: FailureEvent, word: Bits<64>, next_state: Bits<STATE_BITS>) -> Bits<64> {
    let without_limit = cat!(word.get_bits::<ABOVE_LIMIT>(LIMIT_BITS), bits::<LIMIT_BITS>(0));
    let with_state =
        cat!(word.get_bits::<ABOVE_STATE>(STATE + STATE_BITS), next_state, word.get_bits::<STATE>(0));
    select(failure.cause == FailureCause::SharedLimit, without_limit, with_state)
}

const _: () = assert!(INDEX_BITS == 10, "a failure names an object by its index");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_store::GENERATION;
    use rnic_layout::state::QpState::{Error, Init, ReadyToSend, SendQueueDrain};

    fn event(cause: FailureCause, generation: u64) -> FailureEvent {
        FailureEvent { cause, generation: bits(generation), queue_pair: bits(5), ..FailureEvent::default() }
    }

    fn header(is_valid: bool, state: QpState, generation: u64) -> Bits<64> {
        bits(u64::from(is_valid) | (state as u64) << STATE | generation << GENERATION)
    }

    #[test]
    fn failures_change_the_state_of_the_generation_that_they_name() {
        use FailureCause::{Drained, Queue, Requester, Responder};
        let fails = FailureVerdict { applies: true, ..FailureVerdict::default() };
        let nothing = FailureVerdict::default();
        let stale = FailureVerdict { is_stale: true, ..nothing };
        let notice = FailureVerdict { is_notice: true, ..nothing };
        for (cause, generation, word, next, expected) in [
            (Requester, 7, header(true, ReadyToSend, 7), Error, fails),
            (Responder, 7, header(true, ReadyToSend, 7), Error, fails),
            (Queue, 7, header(true, ReadyToSend, 7), Error, fails),
            (Requester, 7, header(true, Error, 7), Error, nothing),
            (Requester, 6, header(true, ReadyToSend, 7), Error, stale),
            (Requester, 8, header(true, ReadyToSend, 7), Error, stale),
            (Requester, 7, header(false, ReadyToSend, 7), Error, stale),
            (Drained, 7, header(true, SendQueueDrain, 7), Init, FailureVerdict { applies: true, ..notice }),
            (Drained, 7, header(true, ReadyToSend, 7), ReadyToSend, notice),
            (Drained, 6, header(true, SendQueueDrain, 7), Init, FailureVerdict { is_stale: true, ..notice }),
        ] {
            let found = decide_failure(event(cause, generation), word, bits(next as u64));
            assert_eq!(found, expected, "{cause:?} of {generation}: {word:x}");
        }
    }

    #[test]
    fn a_limit_counts_for_the_setting_that_it_names() {
        let notice = FailureVerdict { is_notice: true, ..FailureVerdict::default() };
        for (generation, applies) in [(2, false), (3, true), (4, false)] {
            let word = bits(3 << LIMIT_BITS | 100);
            let found = decide_failure(event(FailureCause::SharedLimit, generation), word, bits(0));
            // An older setting is not counted as stale.
            assert_eq!(found, FailureVerdict { applies, ..notice });
        }
    }

    #[test]
    fn a_failure_changes_the_state_and_a_limit_goes_to_zero() {
        let word = !Bits::<64>::default();
        let next = failed_word(event(FailureCause::Queue, 0), word, bits(0));
        assert_eq!(next, bits(!(7 << STATE)));
        let next = failed_word(event(FailureCause::SharedLimit, 0), word, bits(0));
        assert_eq!(next, bits(!0xffff));
    }

    #[test]
    fn a_failure_is_about_a_header_and_a_limit_about_the_word_behind_the_path() {
        assert_eq!(failure_address(event(FailureCause::Drained, 0)), bits(5 << 4));
        assert_eq!(failure_address(event(FailureCause::SharedLimit, 0)), bits(0x7800 | 5 << 4 | 10));
    }
}
