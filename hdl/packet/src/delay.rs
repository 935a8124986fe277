//! Delays a value by a fixed number of cycles.
//!
//! A frame is delayed by exactly the time after which more is known about it, such as the start of its payload, so that neither waits
//! for the other. No stage can be stalled. Stages are reset, which keeps them flip-flops: what is delayed is
//! hundreds of bits wide for three cycles, and shift registers would cost a LUT a bit.
//!
//! ```text
//!  from ──> ▯ ──> ▯ ──> ... ──> ▯ ──> to          CYCLES registers
//! ```
//!
//! Latency `CYCLES`, throughput one value a cycle.
use rnic_kernel::prelude::*;

/// A chain of `CYCLES` registers.
#[clocked(reset = "values become their defaults")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Delay<T: Synth, const CYCLES: usize> {
    /// The value to delay.
    pub from: Signal<In, T>,
    /// `from`, `CYCLES` cycles later; registered.
    pub to: Signal<Out, T>,
    stages: [Reg<T>; CYCLES],
}

impl<T: Synth, const CYCLES: usize> Logic for Delay<T, CYCLES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        for stage in 0..CYCLES {
            self.stages[stage].d.next =
                if stage == 0 { self.from.val() } else { self.stages[stage - 1].q.val() };
        }
        self.to.next = self.stages[CYCLES - 1].q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::{Bench, Stimulus, random};

    #[test]
    fn values_come_out_as_late_as_promised() {
        let mut random = random();
        let mut bench =
            Bench::clocked(Delay::<Bits<5>, 3>::default(), |block| &mut block.clock).in_lock_step();
        let values: Vec<Bits<5>> = (0..50).map(|_| Stimulus::sample(&mut random)).collect();
        for (cycle, value) in values.iter().enumerate() {
            bench.block.from.next = *value;
            bench.settle();
            if cycle >= 3 {
                assert_eq!(bench.block.to.val(), values[cycle - 3]);
            }
            bench.tick();
        }
    }
}
