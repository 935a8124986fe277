//! What a notice changes in the store: decisions on the one word that it is about.
//!
//! | Notice | Word | Applies if | Changes |
//! |---|---|---|---|
//! | error | header of the queue pair | its generation is current, and the state changes | state |
//! | drained | header of the queue pair | its generation is current, and the state is SQD | nothing |
//! | established | header of the queue pair | its generation is current | nothing |
//! | limit reached | limit of the shared receive queue | its generation is current | limit, to zero |
use crate::object_store::{
    INDEX_BITS, KIND_BITS, LIMIT_BITS, LOADED_WORDS, STATE, STATE_BITS, STORE_BITS, VALID, header_of, kind,
};
use crate::object_view::{generation_of, state_of};
use rnic_kernel::prelude::*;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::QpState;
use rnic_messages::setup::{NoticeKind, QpNotice, SrqLimitNotice};
use rnic_messages::sizes::{GENERATION_BITS, SHARED_RECEIVE_BITS};

/// Bits of a header above the state.
const ABOVE_STATE: usize = 64 - STATE - STATE_BITS;
/// Bits of the word of a limit above the limit.
const ABOVE_LIMIT: usize = 64 - LIMIT_BITS;
/// The word of a shared receive queue that holds its limit.
const LIMIT_WORD: u64 = LOADED_WORDS as u64;

/// A notice that was taken, of a queue pair or of a shared receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Notice {
    /// The notice of a queue pair, unless `is_srq_limit`.
    pub(super) of_queue_pair: QpNotice,
    /// The limit of a shared receive queue is reached.
    pub(super) is_srq_limit: Bit,
    /// Generation of that limit.
    pub(super) limit_generation: Bits<GENERATION_BITS>,
}

/// What becomes of a notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct NoticeVerdict {
    /// The object is changed, or the notice is still true.
    pub(super) applies: Bit,
    /// It is of an older generation of a queue pair, and is counted as such.
    pub(super) is_stale: Bit,
    /// It changes no state.
    pub(super) keeps_state: Bit,
}

/// Chooses the notice that is taken: that of a queue pair first.
#[kernel]
pub(super) fn choose(of_queue_pair: QpNotice, is_queue_pair: Bit, limit: SrqLimitNotice) -> Notice {
    Notice { of_queue_pair, is_srq_limit: !is_queue_pair, limit_generation: limit.limit_generation }
}

/// Gives the number of the cause of a failure; that of a notice that is no failure changes no state.
#[kernel]
pub(super) fn cause_number(kind: NoticeKind) -> Bits<2> {
    match kind {
        NoticeKind::RequesterError => bits::<2>(0),
        NoticeKind::ResponderError => bits::<2>(1),
        NoticeKind::QueueError => bits::<2>(2),
        NoticeKind::Drained | NoticeKind::Established => bits::<2>(3),
    }
}

/// Gives the address of the word that a notice is about: the header of the queue pair, or the limit of the shared receive queue.
#[kernel]
pub(super) fn notice_address(
    of_queue_pair: QpNotice,
    is_queue_pair: Bit,
    limit: SrqLimitNotice,
) -> Bits<STORE_BITS> {
    if is_queue_pair {
        header_of(bits::<KIND_BITS>(kind::QUEUE_PAIR), of_queue_pair.queue_pair)
    } else {
        header_of(
            bits::<KIND_BITS>(kind::SHARED_RECEIVE),
            bit_cast::<INDEX_BITS, SHARED_RECEIVE_BITS>(limit.srq),
        ) | bits::<STORE_BITS>(LIMIT_WORD)
    }
}

/// Decides on a notice by the word that it is about; `next_state` is the state after a failure.
#[kernel]
pub(super) fn decide(notice: Notice, word: Bits<64>, next_state: Bits<STATE_BITS>) -> NoticeVerdict {
    let state = state_of(word);
    let is_limit = notice.is_srq_limit;
    let is_drain = !is_limit && notice.of_queue_pair.kind == NoticeKind::Drained;
    let is_established = notice.of_queue_pair.kind == NoticeKind::Established;
    let keeps_state = is_limit || is_drain || is_established;
    let is_stale = if is_limit {
        word.get_bits::<GENERATION_BITS>(LIMIT_BITS) != notice.limit_generation
    } else {
        !word.get_bit(VALID) || generation_of(word) != notice.of_queue_pair.generation
    };
    let has_left = is_drain && state != QpState::SendQueueDrain as u64;
    NoticeVerdict {
        applies: !is_stale && !has_left && (keeps_state || next_state != state),
        is_stale: is_stale && !is_limit,
        keeps_state,
    }
}

/// Gives the word that a notice is about as it is after the notice.
#[kernel]
pub(super) fn word_after(notice: Notice, word: Bits<64>, next_state: Bits<STATE_BITS>) -> Bits<64> {
    let without_limit = cat!(word.get_bits::<ABOVE_LIMIT>(LIMIT_BITS), bits::<LIMIT_BITS>(0));
    let with_state =
        cat!(word.get_bits::<ABOVE_STATE>(STATE + STATE_BITS), next_state, word.get_bits::<STATE>(0));
    select(notice.is_srq_limit, without_limit, with_state)
}

/// Gives the code of the asynchronous event of a notice.
#[kernel]
pub(super) fn event_code(notice: Notice) -> Bits<8> {
    let limit: Bits<8> = bits(AsyncEvent::SharedReceiveLimit as u64);
    select(notice.is_srq_limit, limit, notice.of_queue_pair.event_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_store::GENERATION;
    use rnic_layout::state::QpState::{Error, Init, ReadyToSend, SendQueueDrain};

    fn of_queue_pair(kind: NoticeKind, generation: u64) -> QpNotice {
        QpNotice { kind, generation: bits(generation), queue_pair: bits(5), ..QpNotice::default() }
    }

    fn limit(limit_generation: u64) -> SrqLimitNotice {
        SrqLimitNotice { srq: bits(5), limit_generation: bits(limit_generation) }
    }

    fn header(is_valid: bool, state: QpState, generation: u64) -> Bits<64> {
        bits(u64::from(is_valid) | (state as u64) << STATE | generation << GENERATION)
    }

    #[test]
    fn failures_change_the_state_of_the_generation_that_they_name() {
        use NoticeKind::{Drained, Established, QueueError, RequesterError, ResponderError};
        let fails = NoticeVerdict { applies: true, ..NoticeVerdict::default() };
        let nothing = NoticeVerdict::default();
        let stale = NoticeVerdict { is_stale: true, ..nothing };
        let drained = NoticeVerdict { keeps_state: true, ..nothing };
        for (kind, generation, word, next, expected) in [
            (RequesterError, 7, header(true, ReadyToSend, 7), Error, fails),
            (ResponderError, 7, header(true, ReadyToSend, 7), Error, fails),
            (QueueError, 7, header(true, ReadyToSend, 7), Error, fails),
            (RequesterError, 7, header(true, Error, 7), Error, nothing),
            (RequesterError, 6, header(true, ReadyToSend, 7), Error, stale),
            (RequesterError, 8, header(true, ReadyToSend, 7), Error, stale),
            (RequesterError, 7, header(false, ReadyToSend, 7), Error, stale),
            (Drained, 7, header(true, SendQueueDrain, 7), Init, NoticeVerdict { applies: true, ..drained }),
            (Drained, 7, header(true, ReadyToSend, 7), ReadyToSend, drained),
            (
                Established,
                7,
                header(true, ReadyToSend, 7),
                ReadyToSend,
                NoticeVerdict { applies: true, ..drained },
            ),
            (Established, 6, header(true, ReadyToSend, 7), Init, NoticeVerdict { is_stale: true, ..drained }),
            (Drained, 6, header(true, SendQueueDrain, 7), Init, NoticeVerdict { is_stale: true, ..drained }),
        ] {
            let notice = choose(of_queue_pair(kind, generation), true, limit(7));
            let found = decide(notice, word, bits(next as u64));
            assert_eq!(found, expected, "{kind:?} of {generation}: {word:x}");
        }
    }

    #[test]
    fn a_limit_counts_for_the_setting_that_it_names() {
        for (generation, applies) in [(2, false), (3, true), (4, false)] {
            let word = bits(3 << LIMIT_BITS | 100);
            // The other notice says nothing then.
            let notice = choose(of_queue_pair(NoticeKind::Drained, 3), false, limit(generation));
            // An older setting is not counted as stale.
            let expected = NoticeVerdict { applies, is_stale: false, keeps_state: true };
            assert_eq!(decide(notice, word, bits(0)), expected);
        }
    }

    #[test]
    fn a_failure_changes_the_state_and_a_limit_goes_to_zero() {
        let word = !Bits::<64>::default();
        let notice =
            |is_queue_pair| choose(of_queue_pair(NoticeKind::QueueError, 0), is_queue_pair, limit(0));
        assert_eq!(word_after(notice(true), word, bits(0)), bits(!(7 << STATE)));
        assert_eq!(word_after(notice(false), word, bits(0)), bits(!0xffff));
    }

    #[test]
    fn a_queue_pair_is_known_by_its_header_and_a_limit_by_the_word_after_its_object() {
        let address =
            |is_queue_pair| notice_address(of_queue_pair(NoticeKind::Drained, 0), is_queue_pair, limit(0));
        assert_eq!(address(true), bits(5 << 4));
        assert_eq!(address(false), bits(0x7800 | 5 << 4 | 11));
    }

    #[test]
    fn only_a_queue_pair_names_its_event() {
        let qp_notice = QpNotice { event_code: bits(3), ..QpNotice::default() };
        assert_eq!(event_code(choose(qp_notice, true, limit(0))), bits(3));
        let expected = bits(AsyncEvent::SharedReceiveLimit.number().into());
        assert_eq!(event_code(choose(qp_notice, false, limit(0))), expected);
    }
}
