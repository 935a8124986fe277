//! Sweep: counts once through the indices of all queue pairs after a reset, so that every stage can clear its
//! records.
//!
//! The contents of memories outlive a reset, and what was in flight does not: counts that two stages keep of
//! the same messages would no longer agree.
//!
//! ```text
//!  reset ──> index: 0 ... the last one ──> step
//! ```
//!
//! Latency: sweeps for a cycle for each queue pair, 1,024 at most, from the first after reset or power-up on. Outputs are
//! registers.
//!
//! 1. Every index is shown exactly once, in one cycle, while `is_sweeping`.
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{QUEUE_PAIR_BITS, sizes};

/// Width of the counter.
const COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;

/// The bit of the count that ends the sweep.
fn queue_pairs_log2() -> usize {
    sizes().queue_pairs
}

/// What a stage clears in this cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SweepStep {
    /// Queue pair whose records are cleared.
    pub index: Bits<QUEUE_PAIR_BITS>,
    /// They are cleared in this cycle.
    pub is_sweeping: Bit,
}

/// Clears records; see the module.
#[clocked(reset = "starts a sweep")]
#[derive(Default, LogicBlock, Registers)]
pub struct Sweep {
    /// To all stages; registered.
    pub step: Signal<Out, SweepStep>,
    count: Reg<Bits<COUNT_BITS>>,
}

impl Logic for Sweep {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let count = self.count.q.val();
        let is_sweeping = !count.get_bit(queue_pairs_log2());
        if is_sweeping {
            self.count.d.next = count + 1;
        }
        self.step.next = SweepStep { index: count.get_bits::<QUEUE_PAIR_BITS>(0), is_sweeping };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::Bench;

    #[test]
    fn a_sweep_shows_every_index_once() {
        let mut bench = Bench::clocked(Sweep::default(), |block| &mut block.clock).in_lock_step();
        for cycle in 0..1100u64 {
            bench.settle();
            let step = bench.block.step.val();
            assert_eq!(step.is_sweeping, cycle < 1024);
            assert!(cycle >= 1024 || step.index == cycle);
            bench.tick();
        }
    }
}
