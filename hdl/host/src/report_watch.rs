//! Report watch: notices that the host reports none of the writes in flight.
//!
//! Reports name no write and come in the order of the writes, so a report that is missing is that of the oldest write for ever, and of no
//! queue pair: no count goes on, and nothing that waits for a write completes. A reader can give up one read, which a tag names; here
//! only the device can be given up.
//!
//! ```text
//!  is_waiting ──> cycles ──> is it over? ──> is_overdue
//!                              ^
//!  limit ──────────────────────┘
//! ```
//!
//! Latency 1 cycle.
//!
//! 1. `is_overdue` rises when `is_waiting` has been high for `limit` units of [`LIMIT_CYCLES`], and falls with it.
//! 2. Cycles in which `pauses` is high do not count: the writes may wait for the right to be requested.
//! 3. A limit of zero is none. A new limit also counts for the time before it.
//!
//! Design decision 12.
use crate::chunk_buffer::UNIT_BITS;
use rnic_kernel::prelude::*;
use rnic_messages::sizes::HOST_LIMIT_BITS;

#[cfg(doc)]
use crate::chunk_buffer::LIMIT_CYCLES;

const CYCLE_BITS: usize = UNIT_BITS + HOST_LIMIT_BITS;

/// Notices a host that does not report writes; see the module.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct ReportWatch {
    /// A write is in flight, and the host reports none in this cycle.
    pub is_waiting: Signal<In, Bit>,
    /// The time of this cycle does not count.
    pub pauses: Signal<In, Bit>,
    /// Longest time of that, in units of 1024 cycles; zero for none.
    pub limit: Signal<In, Bits<HOST_LIMIT_BITS>>,
    /// It has lasted so long; registered.
    pub is_overdue: Signal<Out, Bit>,

    waited: Reg<Bits<CYCLE_BITS>>,
    overdue: Reg<Bit>,
}

impl Logic for ReportWatch {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_waiting = self.is_waiting.val();
        let waited = self.waited.q.val();
        let limit = self.limit.val();
        let units = waited.get_bits::<HOST_LIMIT_BITS>(UNIT_BITS);
        let is_over = limit.any() && units >= limit;
        let counts = !is_over && !self.pauses.val();
        self.waited.d.next = select(is_waiting, select(counts, waited + 1, waited), bits::<CYCLE_BITS>(0));
        self.overdue.d.next = is_waiting && is_over;
        self.is_overdue.next = self.overdue.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk_buffer::LIMIT_CYCLES;
    use rnic_blocks::bench::Bench;

    fn bench() -> Bench<ReportWatch> {
        Bench::clocked(ReportWatch::default(), |block| &mut block.clock).in_lock_step()
    }

    /// Waits until it is overdue, for at most `cycles`; the cycle in which that shows.
    fn waits(bench: &mut Bench<ReportWatch>, limit: u64, cycles: u64) -> Option<u64> {
        bench.block.is_waiting.next = true;
        bench.block.limit.next = bits(limit);
        (0..cycles).find(|_| {
            bench.settle();
            let is_overdue = bench.block.is_overdue.val();
            bench.tick();
            is_overdue
        })
    }

    #[test]
    fn a_wait_is_overdue_after_its_limit_and_not_before() {
        let mut bench = bench();
        for limit in [1, 2, 3] {
            assert_eq!(waits(&mut bench, limit, limit * LIMIT_CYCLES + 1), None, "limit {limit}");
            assert_eq!(waits(&mut bench, limit, 1), Some(0), "limit {limit}");
            // It stays so, until a report comes.
            assert_eq!(waits(&mut bench, limit, 1), Some(0));
            bench.block.is_waiting.next = false;
            bench.tick();
            bench.settle();
            assert!(!bench.block.is_overdue.val());
        }
    }

    #[test]
    fn each_report_begins_a_new_wait() {
        let mut bench = bench();
        for _ in 0..3 {
            assert_eq!(waits(&mut bench, 1, LIMIT_CYCLES), None);
            bench.block.is_waiting.next = false;
            bench.tick();
        }
    }

    #[test]
    fn a_pause_does_not_count() {
        let mut bench = bench();
        assert_eq!(waits(&mut bench, 2, LIMIT_CYCLES), None);
        bench.block.pauses.next = true;
        assert_eq!(waits(&mut bench, 2, 3 * LIMIT_CYCLES), None);
        bench.block.pauses.next = false;
        assert_eq!(waits(&mut bench, 2, LIMIT_CYCLES + 1), None);
        assert_eq!(waits(&mut bench, 2, 1), Some(0));
    }

    #[test]
    fn without_a_limit_nothing_is_overdue_and_a_new_one_counts_at_once() {
        let mut bench = bench();
        assert_eq!(waits(&mut bench, 0, 3 * LIMIT_CYCLES), None);
        assert_eq!(waits(&mut bench, 4, LIMIT_CYCLES), None);
        assert_eq!(waits(&mut bench, 2, 2), Some(1), "it has waited for longer");
    }
}
