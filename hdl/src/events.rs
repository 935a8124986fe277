//! What stands between the parts of the card and is none of them: the news of failed writes, and the question whether
//! anything is under way.
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_token::host::{WriteFailure, WriteOwner};
use rnic_token::setup::Passage;

/// Tells the one whose write has failed: payload is the responder's matter, answers are the admin queue's. A completion or
/// an event that the host refused is lost, which only software can mend.
#[derive(Default, LogicBlock)]
pub struct FailedWrites {
    /// From the host writer.
    pub failure: StreamRx<WriteFailure>,
    /// To the responder: payload.
    pub payload: StreamTx<WriteFailure>,
    /// To the admin queue: an answer.
    pub answer: Signal<Out, Bit>,
    /// A completion or an event.
    pub completion: Signal<Out, Bit>,
}

impl Logic for FailedWrites {
    #[kernel]
    fn update(&mut self) {
        let failure = self.failure.beat.val();
        let valid = self.failure.valid.val();
        let is_payload = failure.owner == WriteOwner::Payload;
        self.payload.beat.next = failure;
        self.payload.valid.next = valid && is_payload;
        self.answer.next = valid && failure.owner == WriteOwner::Admin;
        self.completion.next = valid && failure.owner == WriteOwner::Completion;
        self.failure.ready.next = self.payload.ready.val() || !is_payload;
    }
}

/// Whether nothing is under way in so many sections of the card.
#[derive(LogicBlock, Registers)]
pub struct Drained<const SECTIONS: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// From the sections.
    pub passages: [Signal<In, Passage>; SECTIONS],
    /// Everything that entered has left, two cycles ago; registered.
    pub is_drained: Signal<Out, Bit>,
    empty: [Reg<Bit>; SECTIONS],
    drained: Reg<Bit>,
    /// The sections up to this one are empty.
    all_empty: [Signal<Local, Bit>; SECTIONS],
}

impl<const SECTIONS: usize> Default for Drained<SECTIONS> {
    fn default() -> Self {
        Drained {
            clock: Signal::default(),
            reset: Signal::default(),
            passages: std::array::from_fn(|_| Signal::default()),
            is_drained: Signal::default(),
            empty: std::array::from_fn(|_| Reg::default()),
            drained: Reg::default(),
            all_empty: std::array::from_fn(|_| Signal::default()),
        }
    }
}

impl<const SECTIONS: usize> Logic for Drained<SECTIONS> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        for i in 0..SECTIONS {
            let passage = self.passages[i].val();
            self.empty[i].d.next = passage.entered == passage.left;
            let is_empty = self.empty[i].q.val();
            self.all_empty[i].next = if i == 0 { is_empty } else { self.all_empty[i - 1].val() && is_empty };
        }
        self.drained.d.next = self.all_empty[SECTIONS - 1].val();
        self.is_drained.next = self.drained.q.val();
    }
}
