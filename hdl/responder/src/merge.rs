//! Small blocks between the stages: a merge of notices, and the count of packets in flight.
use rnic_blocks::stream::{RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::setup::{InFlight, QpNotice};

/// Merges the notices of three stages; the first has precedence, then the second.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct NoticeMerge {
    /// Notices with precedence.
    pub first: StreamRx<QpNotice>,
    /// Notices that come before those of `third`.
    pub second: StreamRx<QpNotice>,
    /// Notices without precedence.
    pub third: StreamRx<QpNotice>,
    /// To control; registered.
    pub tx: StreamTx<QpNotice>,
    slice: RegisterSlice<QpNotice>,
}

impl Logic for NoticeMerge {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let has_first = self.first.valid.val();
        let has_second = self.second.valid.val();
        self.slice.rx.valid.next = has_first || has_second || self.third.valid.val();
        self.slice.rx.beat.next = if has_first {
            self.first.beat.val()
        } else if has_second {
            self.second.beat.val()
        } else {
            self.third.beat.val()
        };
        self.first.ready.next = self.slice.rx.ready.val();
        self.second.ready.next = self.slice.rx.ready.val() && !has_first;
        self.third.ready.next = self.slice.rx.ready.val() && !has_first && !has_second;
        StreamTx::link(&mut self.tx, &mut self.slice.tx);
    }
}

/// Counts what enters the responder and what leaves it: packets, receive WQEs that are flushed, and reads of
/// receive WQEs.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct InFlightCount {
    /// A packet was admitted.
    pub enters: Signal<In, Bit>,
    /// A read of receive WQEs is requested.
    pub fetches: Signal<In, Bit>,
    /// Place has taken the command of a packet.
    pub leaves: Signal<In, Bit>,
    /// A packet has ended without a command.
    pub vanishes: Signal<In, Bit>,
    /// A read of receive WQEs has completed.
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
