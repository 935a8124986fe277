//! Pulse sum: merges the pulses of several lines into one line, for a counter that several parts increment.
//!
//! Each input pulse becomes one output pulse, at once if none waits, so that a counter of the output counts all of them.
//!
//! ```text
//!  lines ──> number of pulses ──> + ──> waiting ──┬──> pulse (any)
//!                                 ^               │
//!                                 └── one less <──┘
//! ```
//!
//! Both lines pulse in cycles 1 and 2, and one alone in cycle 7:
//! ```text
#![doc = include_str!("waves/pulse.txt")]
//! ```
//!
//! Latency 1 cycle if none waits; a pulse in every cycle if there are enough.
//!
//! 1. No pulse is lost and none is made up, as long as no more than 255 wait: all lines together may pulse more often than once
//!    a cycle for a while only.
//! 2. Reset forgets those that wait.
//!
//! More than 15 lines do not compile.
use rnic_kernel::prelude::*;

/// Bits of a number of lines.
const LINE_BITS: usize = 4;
/// Bits of the number of pulses that wait.
const WAITING_BITS: usize = 8;

/// Makes the pulses of several lines one after the other on one.
#[clocked(reset = "forgets the pulses that wait")]
#[derive(LogicBlock, Registers, Construct)]
#[require(LINES > 0 && LINES < 1 << LINE_BITS, "1 to 15 lines")]
pub struct PulseSum<const LINES: usize> {
    /// Pulses of the parts, one line each.
    pub lines: [Signal<In, Bit>; LINES],
    /// All their pulses; a function of registers.
    pub pulse: Signal<Out, Bit>,
    waiting: Reg<Bits<WAITING_BITS>>,
    /// Pulses of the lines up to this one.
    sums: [Signal<Local, Bits<LINE_BITS>>; LINES],
}

impl<const LINES: usize> Logic for PulseSum<LINES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        for i in 0..LINES {
            let below = if i == 0 { bits::<LINE_BITS>(0) } else { self.sums[i - 1].val() };
            self.sums[i].next = if self.lines[i].val() { below + 1 } else { below };
        }
        let waiting = self.waiting.q.val();
        self.pulse.next = waiting.any();
        let kept = select(waiting.any(), waiting - 1, waiting);
        self.waiting.d.next = kept + bit_cast::<WAITING_BITS, LINE_BITS>(self.sums[LINES - 1].val());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Waves, random};
    use rand::Rng;

    /// Pulses in crowds, with pauses in which they must all come out.
    fn all_pulses_come_out<const LINES: usize>() {
        let mut random = random();
        let mut bench = Bench::clocked(PulseSum::<LINES>::default(), |block| &mut block.clock).in_lock_step();
        let mut waiting = 0;
        let mut most = 0;
        for cycle in 0..1_600 {
            // The first crowd is as large as may be.
            let is_first = cycle < 600;
            let (is_crowd, density) =
                if is_first { (cycle < 254 / (LINES - 1), 1.0) } else { (cycle % 100 < 20, 0.7) };
            bench.block.reset.next = !is_first && random.random_ratio(1, 200);
            let mut pulses = 0;
            for line in &mut bench.block.lines {
                let pulse = is_crowd && random.random_bool(density);
                line.next = pulse;
                pulses += usize::from(pulse);
            }
            bench.settle();
            assert_eq!(bench.block.pulse.val(), waiting > 0, "cycle {cycle}: {waiting} wait");
            let resets = bench.block.reset.val();
            waiting = if resets { 0 } else { waiting - usize::from(waiting > 0) + pulses };
            most = most.max(waiting);
            bench.tick();
        }
        assert_eq!(waiting, 0);
        assert!((250..256).contains(&most), "{most} waited");
    }

    #[test]
    fn each_pulse_comes_out_once() {
        all_pulses_come_out::<2>();
        all_pulses_come_out::<4>();
        all_pulses_come_out::<5>();
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("lines_0").signal("lines_1").signal("pulse");
        let block = PulseSum::<2>::default();
        let mut bench = Bench::clocked(block, |block| &mut block.clock).recording(waves);
        for cycle in 0..10 {
            bench.block.lines[0].next = matches!(cycle, 1 | 2 | 7);
            bench.block.lines[1].next = matches!(cycle, 1 | 2);
            bench.tick();
        }
        bench.waves().expect("waves/pulse.txt");
    }
}
