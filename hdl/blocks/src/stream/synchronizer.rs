//! Synchronizer: brings bits from another clock into this one.
//!
//! A flip-flop that samples a changing bit may take long to decide; the second one gives it a whole cycle for that. The
//! attribute `ASYNC_REG` keeps the two together on the chip, and logic out from between them.
//!
//! ```text
//!            ┌───────────────────────┐
//!  d ───────>│──> first ──> second ──┼──> q
//!            └───────────────────────┘
//! ```
//!
//! ```text
#![doc = include_str!("waves/synchronizer.txt")]
//! ```
//!
//! Latency 2 cycles.
//!
//! 1. Each bit of `q` is one that `d` had; two bits that change together may arrive in different cycles, so words must
//!    change by one bit at a time, as Gray codes do.
//! 2. `d` comes straight from registers of the other clock.
use rnic_kernel::prelude::*;

/// Two flip-flops a bit.
#[derive(Clone, Debug, Default, LogicBlock, Registers)]
pub struct Synchronizer<const N: usize> {
    /// The clock to synchronize with.
    pub clock: Signal<In, Clock>,
    /// Registered with another clock.
    pub d: Signal<In, Bits<N>>,
    /// `d`, two cycles later; registered.
    pub q: Signal<Out, Bits<N>>,
    _first: Bits<N>,
}

impl<const N: usize> Logic for Synchronizer<N> {
    fn update(&mut self) {
        if self.clock.pos_edge() {
            self.q.next = self._first;
            self._first = self.d.val();
        }
    }

    fn connect(&mut self) {
        self.q.connect();
    }

    fn hdl(&self) -> Verilog {
        let range = if N == 1 { String::new() } else { format!("[{}:0] ", N - 1) };
        let body = format!(
            "(* ASYNC_REG = \"TRUE\" *) reg {range}first;\n(* ASYNC_REG = \"TRUE\" *) reg {range}second;\n\
             initial first = {N}'h0;\ninitial second = {N}'h0;\nassign q = second;\n\
             always @(posedge clock) begin\n    first <= d;\n    second <= first;\nend\n"
        );
        let note = "Brings bits from another clock into this one.";
        rnic_kernel::leaf(core::any::type_name::<Self>(), note, body, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Stimulus, Waves, random};

    #[test]
    fn verilog_delays_by_two_cycles_too() {
        let mut random = random();
        let mut bench = Bench::clocked(Synchronizer::<5>::default(), |block| &mut block.clock).in_lock_step();
        for _ in 0..200 {
            bench.block.d.next = Stimulus::sample(&mut random);
            bench.tick();
        }
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("d").signal("q");
        let mut bench =
            Bench::clocked(Synchronizer::<1>::default(), |block| &mut block.clock).recording(waves);
        for cycle in 0..8 {
            bench.block.d.next = bits(u64::from((2..5).contains(&cycle)));
            bench.tick();
        }
        bench.waves().expect("stream/waves/synchronizer.txt");
    }
}
