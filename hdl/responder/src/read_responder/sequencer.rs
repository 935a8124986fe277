//! Sequencer: takes the events of [`ReadResponder`](super::ReadResponder), and chooses what it does next: an event or
//! a response of a turn.
//!
//! ```text
//!  setup ───┐
//!  request ─┼─> offers ──> choice ──> reads, chosen (queue pair whose records are read)
//!  release ─┤                │ ^
//!  result ──┘                v └── step
//!                         next step
//! ```
//!
//! 1. Events come first, but between two of them a turn makes a response.
//! 2. In the cycle after `reads`, the records of `queue_pair` are there, and an event leaves its stream. A turn that
//!    an event interrupts goes on after it, unless it `loses_turn`.
//! 3. Duplicates go on to `duplicate`, where they wait for their release. A release of one is taken when it was
//!    looked up; a request waits while one is, since it may take the slot that is found.
//!
//! Reset clears the records of all queue pairs, one a cycle.
use super::step::{Inputs, Step, event_step, release_step, step_after};
use crate::messages::AtomicResult;
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::read::{ReadRelease, ReadRequest};
use rnic_messages::setup::SetupEvent;
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// What may be done, and the queue pair that it is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Offers {
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
    /// The queue pair that waits for its turn.
    pub ready_pair: Bits<QUEUE_PAIR_BITS>,
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
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub(super) struct Sequencer {
    /// Setup events.
    pub setup: StreamRx<SetupEvent>,
    /// Requests; `ready` is combinational from the beat.
    pub request: StreamRx<ReadRequest>,
    /// Releases.
    pub release: StreamRx<ReadRelease>,
    /// Results of atomics.
    pub result: StreamRx<AtomicResult>,
    /// The duplicates among the requests; combinational.
    pub duplicate: StreamTx<ReadRequest>,
    /// A request may be stored.
    pub may_store: Signal<In, Bit>,
    /// The oldest duplicate may be looked up or answered.
    pub may_repeat: Signal<In, Bit>,
    /// It was looked up.
    pub is_sought: Signal<In, Bit>,
    /// A queue pair waits for its turn, which may begin.
    pub may_turn: Signal<In, Bit>,
    /// That queue pair.
    pub ready_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// There is room for a response.
    pub may_make: Signal<In, Bit>,
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
    /// It is the queue pair of the last turn.
    is_turns_pair: Reg<Bit>,
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
        let request = self.request.beat.val();
        let release = self.release.beat.val();
        let offers = Offers {
            has_setup: self.setup.valid.val(),
            setup_pair: self.setup.beat.val().queue_pair,
            has_request: self.request.valid.val() && !request.is_again && self.may_store.val(),
            request_pair: request.queue_pair,
            has_release: self.release.valid.val() && (!release.is_again || self.may_repeat.val()),
            release_pair: release.queue_pair,
            release_step: release_step(release, self.is_sought.val()),
            has_result: self.result.valid.val(),
            result_pair: self.result.beat.val().queue_pair,
            ready_pair: self.ready_pair.val(),
        };
        self.duplicate.offer(self.request.valid.val() && request.is_again, request);
        self.setup.ready.next = step == Step::Setup;
        self.request.ready.next = step == Step::Store || (request.is_again && self.duplicate.ready.val());
        self.release.ready.next = step == Step::Release || step == Step::Repeat;
        self.result.ready.next = step == Step::Result;
        let may_make = self.may_make.val();
        let has_event = offers.has_setup || offers.has_request || offers.has_release || offers.has_result;
        let yields = step == Step::Make && !(turn_is_next && may_make);
        let takes_event = has_event && (step == Step::Idle || yields);
        let makes = step == Step::Make && may_make && !takes_event;
        let takes_turn = step == Step::Idle && !has_event && self.may_turn.val();
        let chosen = chosen_of(offers);
        let reads = takes_event || takes_turn;
        if reads {
            self.pair_held.d.next = chosen;
            self.is_turns_pair.d.next = chosen == self.turn_pair.val();
        }
        if step == Step::Clear {
            self.swept.d.next = sweep + 1;
        }
        let loads = step == Step::Load;
        if loads {
            self.is_turns_pair.d.next = true;
        }
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
        self.is_turns.next = has_turn && self.is_turns_pair.q.val();
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
