//! What stands between the parts of the card and is none of them: sums of pulses, the news of failed writes, and the
//! question whether anything is under way.
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_token::host::{WriteFailure, WriteOwner};
use rnic_token::setup::Passage;

/// One line for a counter that several parts move: each pulse of a part becomes a pulse of its own, later if need be.
///
/// No line may pulse for long in more than one of `LINES` cycles: 15 pulses may wait.
#[derive(LogicBlock, Registers)]
pub struct PulseSum<const LINES: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// From the parts.
    pub lines: [Signal<In, Bit>; LINES],
    /// To the tally; a function of registers.
    pub pulse: Signal<Out, Bit>,
    waiting: Reg<Bits<4>>,
    /// Pulses that wait, with those of the lines up to this one.
    sums: [Signal<Local, Bits<4>>; LINES],
}

impl<const LINES: usize> Default for PulseSum<LINES> {
    fn default() -> Self {
        PulseSum {
            clock: Signal::default(),
            reset: Signal::default(),
            lines: std::array::from_fn(|_| Signal::default()),
            pulse: Signal::default(),
            waiting: Reg::default(),
            sums: std::array::from_fn(|_| Signal::default()),
        }
    }
}

impl<const LINES: usize> Logic for PulseSum<LINES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let waiting = self.waiting.q.val();
        self.pulse.next = waiting.any();
        let kept = select(waiting.any(), waiting - 1, waiting);
        for i in 0..LINES {
            let below = if i == 0 { kept } else { self.sums[i - 1].val() };
            self.sums[i].next = if self.lines[i].val() { below + 1 } else { below };
        }
        self.waiting.d.next = self.sums[LINES - 1].val();
    }
}

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
