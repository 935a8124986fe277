//! Periods: reports the progress of atomics, which may overtake each other.
//!
//! A wait for the atomics that have entered must not include those that enter later. So atomics belong to
//! periods, of which the newer and the older can be open; the newer becomes the older when that has no atomics
//! left.
//!
//! ```text
//!  stores ──> open[newer] ──┐
//!  ends ────> open[period] ─┴──> period, in_flight
//! ```
//!
//! Latency one cycle to `in_flight`.
//!
//! 1. An atomic that is stored belongs to the newer period, whose lowest bit is `newer`.
//! 2. A period has left when its atomics and those of earlier periods are done.
use super::record::{begins_period, in_flight_of};
use rnic_kernel::prelude::*;
use rnic_messages::setup::InFlight;

/// Counts atomics by period; `OPEN` is the width of the counts.
#[clocked(reset = "forgets all atomics")]
#[derive(Default, LogicBlock, Registers)]
pub(super) struct Periods<const OPEN: usize> {
    /// An atomic is stored.
    pub stores: Signal<In, Bit>,
    /// An atomic is done.
    pub ends: Signal<In, Bit>,
    /// Period of that atomic: the value of `newer` when it was stored.
    pub ended_period: Signal<In, Bit>,
    /// Lowest bit of the number of the newer period; registered.
    pub newer: Signal<Out, Bit>,
    /// Periods that have entered and left; registered.
    pub in_flight: Signal<Out, InFlight>,

    /// Atomics of the periods of even number, and of odd number.
    open: [Reg<Bits<OPEN>>; 2],
    /// Number of the newer period.
    period: Reg<Bits<16>>,
    progress: Reg<InFlight>,
}

impl<const OPEN: usize> Logic for Periods<OPEN> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let period = self.period.q.val();
        let newer = period.get_bit(0);
        let ended = self.ended_period.val();
        for i in 0..2 {
            let is_newer = if i == 0 { !newer } else { newer };
            let is_ended = if i == 0 { !ended } else { ended };
            if self.stores.val() && is_newer {
                self.open[i].d.next = self.open[i].q.val() + 1;
            }
            if self.ends.val() && is_ended {
                self.open[i].d.next = self.open[i].q.val() - 1;
            }
        }
        let even_open = self.open[0].q.val().any();
        let odd_open = self.open[1].q.val().any();
        let has_newer = select(newer, odd_open, even_open);
        let has_older = select(newer, even_open, odd_open);
        if begins_period(has_newer, has_older) {
            self.period.d.next = period + 1;
        }
        self.progress.d.next = in_flight_of(period, has_newer, has_older);
        self.newer.next = newer;
        self.in_flight.next = self.progress.q.val();
    }
}
