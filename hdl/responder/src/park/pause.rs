//! Pause of admission, in which a ring is unparked.
//!
//! A packet that enters while its ring is parked is parked as well, and has its turn, asks and is answered a dozen cycles
//! later. If packets of a ring come faster than that, the list never becomes empty, though no WQE is missing any more. When a
//! packet is parked unasked behind a list that waits for nothing else (`starts`), admission pauses until all that has entered has
//! passed. Scatter has work meanwhile, so no throughput is lost.
//!
//! 1. A pause takes 128 cycles at most, whatever scatter does, and begins 1,024 cycles or more after the one before: no ring
//!    takes more than an eighth of the time of others.
use rnic_kernel::prelude::*;

/// log2 of the least number of cycles from one pause to the next.
const PERIOD_BITS: usize = 10;
/// log2 of the cycles of a pause, at most.
const PAUSE_BITS: usize = 7;

/// Pauses admission; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Pause {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// A pause is due.
    pub starts: Signal<In, Bit>,
    /// All that has entered has passed, or sleeps.
    pub is_empty: Signal<In, Bit>,
    /// Admission pauses; registered.
    pub pauses: Signal<Out, Bit>,
    is_pausing: Reg<Bit>,
    /// Cycles since a pause began, up to the next.
    count: Reg<Bits<PERIOD_BITS>>,
}

impl Logic for Pause {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let count = self.count.q.val();
        let is_pausing = self.is_pausing.q.val();
        let begins = self.starts.val() && count.all();
        if begins {
            self.count.d.next = bits::<PERIOD_BITS>(0);
        } else if !count.all() {
            self.count.d.next = count + 1;
        }
        let is_over = self.is_empty.val() || count.get_bits::<PAUSE_BITS>(0).all();
        self.is_pausing.d.next = begins || (is_pausing && !is_over);
        self.pauses.next = is_pausing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::Bench;

    #[test]
    fn a_pause_ends_when_all_have_passed_or_after_128_cycles_and_the_next_comes_after_1024() {
        for is_emptied in [false, true] {
            let mut bench = Bench::clocked(Pause::default(), |block| &mut block.clock).in_lock_step();
            bench.block.starts.next = true;
            let mut pausing = Vec::new();
            for cycle in 0..4_000 {
                let in_pause = pausing.last().is_some_and(|last: &usize| last + 1 == cycle);
                bench.block.is_empty.next = is_emptied && in_pause && pausing.len() % 9 == 8;
                bench.settle();
                if bench.block.pauses.val() {
                    pausing.push(cycle);
                }
                bench.tick();
            }
            let begins: Vec<usize> = pausing
                .iter()
                .copied()
                .filter(|cycle| *cycle == 0 || !pausing.contains(&(cycle - 1)))
                .collect();
            assert!(
                begins.len() == 3 && begins.windows(2).all(|pair| pair[1] - pair[0] == 1_024),
                "{begins:?}"
            );
            let expected = if is_emptied { 9 } else { 128 };
            assert_eq!(pausing.len(), 3 * expected);
        }
    }
}
