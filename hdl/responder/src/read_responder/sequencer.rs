//! Sequencer: chooses what [`ReadResponder`](super::ReadResponder) does next, an event or a response of a turn.
//!
//! ```text
//!  offers ──> choice ──> reads, chosen (queue pair whose records are read)
//!    step ─────^  └────> next step
//! ```
//!
//! 1. Events come first, but between two of them a turn makes a response.
//! 2. In the cycle after `reads`, the records of `queue_pair` are there. A turn that an event interrupts goes on
//!    after it, unless it `loses_turn`.
//!
//! Reset clears the records of all queue pairs, one a cycle.
use super::step::{Inputs, Step, event_step, step_after};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// What may be done, and the queue pair that it is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Offers {
    /// There is a setup event.
    pub has_setup: Bit,
    /// Its queue pair.
    pub setup_pair: Bits<QUEUE_PAIR_BITS>,
    /// There is a request to be stored.
    pub has_request: Bit,
    /// Its queue pair.
    pub request_pair: Bits<QUEUE_PAIR_BITS>,
    /// There is a release.
    pub has_release: Bit,
    /// Its queue pair.
    pub release_pair: Bits<QUEUE_PAIR_BITS>,
    /// The step for it.
    pub release_step: Step,
    /// There is the result of an atomic.
    pub has_result: Bit,
    /// Its queue pair.
    pub result_pair: Bits<QUEUE_PAIR_BITS>,
    /// A queue pair waits for its turn, and there is room for all responses of a turn.
    pub may_turn: Bit,
    /// That queue pair.
    pub ready_pair: Bits<QUEUE_PAIR_BITS>,
    /// There is room for a response.
    pub may_make: Bit,
}

/// Gives the queue pair of the first offer.
#[kernel]
fn chosen_of(offers: Offers) -> Bits<QUEUE_PAIR_BITS> {
    if offers.has_setup {
        offers.setup_pair
    } else if offers.has_request {
        offers.request_pair
    } else if offers.has_release {
        offers.release_pair
    } else {
        select(offers.has_result, offers.result_pair, offers.ready_pair)
    }
}

/// Chooses what is done next.
#[derive(Default, LogicBlock, Registers)]
pub(super) struct Sequencer {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// What may be done.
    pub offers: Signal<In, Offers>,
    /// Queue pair of the turn.
    pub turn_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// An event ends the turn.
    pub loses_turn: Signal<In, Bit>,
    /// Load: the queue pair has something to answer.
    pub has_work: Signal<In, Bit>,
    /// Fetch: the result of the request is not there.
    pub waits: Signal<In, Bit>,
    /// Make: the response is the last one of the turn.
    pub ends_turn: Signal<In, Bit>,

    /// What is done in this cycle; registered.
    pub step: Signal<Out, Step>,
    /// Clear: queue pair whose records are cleared; registered.
    pub sweep: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// The queue pair whose records were read; registered.
    pub queue_pair: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// It has its turn.
    pub is_turns: Signal<Out, Bit>,
    /// The records of `chosen` are read.
    pub reads: Signal<Out, Bit>,
    /// Queue pair of what is done next.
    pub chosen: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// The queue pair that waits for its turn gets it.
    pub takes_turn: Signal<Out, Bit>,
    /// A response is made.
    pub makes: Signal<Out, Bit>,

    current: Reg<Step>,
    swept: Reg<Bits<QUEUE_PAIR_BITS>>,
    pair_held: DFF<Bits<QUEUE_PAIR_BITS>>,
    /// A queue pair has its turn.
    has_turn: Reg<Bit>,
    /// An event was taken since the last response, so the turn comes first.
    turn_is_next: Reg<Bit>,
}

impl Logic for Sequencer {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let step = self.current.q.val();
        let sweep = self.swept.q.val();
        let has_turn = self.has_turn.q.val();
        let turn_is_next = self.turn_is_next.q.val();
        let offers = self.offers.val();
        let has_event = offers.has_setup || offers.has_request || offers.has_release || offers.has_result;
        let yields = step == Step::Make && !(turn_is_next && offers.may_make);
        let takes_event = has_event && (step == Step::Idle || yields);
        let makes = step == Step::Make && offers.may_make && !takes_event;
        let takes_turn = step == Step::Idle && !has_event && offers.may_turn;
        let chosen = chosen_of(offers);
        let reads = takes_event || takes_turn;
        if reads {
            self.pair_held.d.next = chosen;
        }
        if step == Step::Clear {
            self.swept.d.next = sweep + 1;
        }
        let loads = step == Step::Load;
        let ends = step == Step::Park || step == Step::Keep || self.loses_turn.val();
        self.has_turn.d.next = select(loads, self.has_work.val(), has_turn && !ends);
        self.turn_is_next.d.next = takes_event || (turn_is_next && !loads && !makes);
        let inputs = Inputs {
            is_swept: sweep.all(),
            takes_event,
            event_step: event_step(
                offers.has_setup,
                offers.has_request,
                offers.has_release,
                offers.release_step,
            ),
            takes_turn,
            resumes: has_turn && !self.loses_turn.val(),
            has_work: self.has_work.val(),
            waits: self.waits.val(),
            makes,
            ends_turn: self.ends_turn.val(),
        };
        self.current.d.next = step_after(step, inputs);
        self.step.next = step;
        self.sweep.next = sweep;
        self.queue_pair.next = self.pair_held.q.val();
        self.is_turns.next = has_turn && self.pair_held.q.val() == self.turn_pair.val();
        self.reads.next = reads;
        self.chosen.next = chosen;
        self.takes_turn.next = takes_turn;
        self.makes.next = makes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_taken_in_their_order() {
        let all = Offers {
            has_setup: true,
            setup_pair: bits(1),
            has_request: true,
            request_pair: bits(2),
            has_release: true,
            release_pair: bits(3),
            has_result: true,
            result_pair: bits(4),
            ready_pair: bits(5),
            ..Offers::default()
        };
        let no_setup = Offers { has_setup: false, ..all };
        let no_request = Offers { has_request: false, ..no_setup };
        let no_release = Offers { has_release: false, ..no_request };
        let none = Offers { has_result: false, ..no_release };
        for (offers, pair) in [(all, 1), (no_setup, 2), (no_request, 3), (no_release, 4), (none, 5)] {
            assert_eq!(chosen_of(offers), bits(pair));
        }
    }
}
