//! Drained: tells whether nothing is in flight in a number of sections of the card.
//!
//! ```text
//!  in_flight ──> entered == left? ──> empty ──> all? ──> is_drained
//! ```
//!
//! Latency 2 cycles. Work that leaves one section is counted in the next one some cycles later, so `is_drained` is meaningful only
//! when nothing new begins, and when it is high for some cycles.
use rnic_kernel::prelude::*;
use rnic_messages::setup::InFlight;

/// Tells whether nothing is in flight in `SECTIONS` sections of the card.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub struct Drained<const SECTIONS: usize> {
    /// From the sections: work that ever entered and left each of them.
    pub in_flight: [Signal<In, InFlight>; SECTIONS],
    /// Everything that entered has left, two cycles ago; registered.
    pub is_drained: Signal<Out, Bit>,
    empty: [Reg<Bit>; SECTIONS],
    drained: Reg<Bit>,
    /// The sections up to this one are empty.
    all_empty: [Signal<Local, Bit>; SECTIONS],
}

impl<const SECTIONS: usize> Logic for Drained<SECTIONS> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        for i in 0..SECTIONS {
            let in_flight = self.in_flight[i].val();
            self.empty[i].d.next = in_flight.entered == in_flight.left;
            let is_empty = self.empty[i].q.val();
            self.all_empty[i].next = if i == 0 { is_empty } else { self.all_empty[i - 1].val() && is_empty };
        }
        self.drained.d.next = self.all_empty[SECTIONS - 1].val();
        self.is_drained.next = self.drained.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, random};

    #[test]
    fn one_section_that_holds_something_is_enough() {
        let mut random = random();
        let mut bench = Bench::clocked(Drained::<6>::default(), |block| &mut block.clock).in_lock_step();
        let mut expected = [false; 3];
        let mut seen = [0; 2];
        for _ in 0..2_000 {
            // Counts run free, so what entered may be the smaller number.
            let busy = if random.random() { None } else { Some(random.random_range(0..6)) };
            for section in 0..6 {
                let left: u64 = random.random_range(0..1 << 16);
                let inside = if busy == Some(section) { random.random_range(1..1 << 16) } else { 0 };
                let entered = (left + inside) & 0xffff;
                bench.block.in_flight[section].next = InFlight { entered: bits(entered), left: bits(left) };
            }
            expected = [busy.is_none(), expected[0], expected[1]];
            bench.settle();
            assert_eq!(bench.block.is_drained.val(), expected[2]);
            seen[usize::from(expected[2])] += 1;
            bench.tick();
        }
        assert!(seen.iter().all(|&count| count > 500), "{seen:?}");
    }
}
