//! Small blocks that join what several stages say: failures, and the passage.
use rnic_blocks::stream::{RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::setup::{InFlight, QpNotice};

/// Merges the failures of two stages; the first has precedence.
#[derive(Default, LogicBlock, Registers)]
pub struct FailureMerge {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// From one stage.
    pub first: StreamRx<QpNotice>,
    /// From the other.
    pub second: StreamRx<QpNotice>,
    /// To control; registered.
    pub tx: StreamTx<QpNotice>,
    slice: RegisterSlice<QpNotice>,
}

impl Logic for FailureMerge {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let has_first = self.first.valid.val();
        self.slice.rx.valid.next = has_first || self.second.valid.val();
        self.slice.rx.beat.next = select(has_first, self.first.beat.val(), self.second.beat.val());
        self.first.ready.next = self.slice.rx.ready.val();
        self.second.ready.next = self.slice.rx.ready.val() && !has_first;
        StreamTx::<QpNotice>::link(&mut self.tx, &mut self.slice.tx);
    }
}

/// Counts what enters the responder and what leaves it: packets, entries that are given back, and reads of receive entries.
#[derive(Default, LogicBlock, Registers)]
pub struct InFlightCount {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// A packet was admitted.
    pub enters: Signal<In, Bit>,
    /// Entries are read.
    pub fetches: Signal<In, Bit>,
    /// A command for a packet has left.
    pub leaves: Signal<In, Bit>,
    /// A packet has ended without one.
    pub vanishes: Signal<In, Bit>,
    /// A read of entries has ended.
    pub fetched: Signal<In, Bit>,
    /// The counts; registered.
    pub in_flight: Signal<Out, InFlight>,
    entered: Reg<Bits<16>>,
    left: Reg<Bits<16>>,
}

/// A bit as a number to be added.
#[kernel]
fn one_if(bit: Bit) -> Bits<16> {
    select(bit, bits::<16>(1), bits::<16>(0))
}

impl Logic for InFlightCount {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.entered.d.next = self.entered.q.val() + one_if(self.enters.val()) + one_if(self.fetches.val());
        self.left.d.next = self.left.q.val()
            + one_if(self.leaves.val())
            + one_if(self.vanishes.val())
            + one_if(self.fetched.val());
        self.in_flight.next = InFlight { entered: self.entered.q.val(), left: self.left.q.val() };
    }
}
