//! Pause of admission, in which a ring is unparked.
//!
//! A packet that may not ask when it enters is parked, and has its turn some twenty cycles later. If packets of a ring come faster
//! than that, each finds the one before it on its way, and none may ask, though no WQE is missing any more and all that was
//! parked has had its turn. When a packet is parked unasked behind such a list (`starts`), admission pauses until no
//! packet that has not asked is on its way. Scatter has work meanwhile.
//!
//! 1. A pause takes 32 cycles at most, whatever scatter does, and begins 1,024 cycles or more after the one before.
use rnic_kernel::prelude::*;

/// log2 of the least number of cycles from one pause to the next.
const PERIOD_BITS: usize = 10;
/// log2 of the cycles of a pause, at most.
const PAUSE_BITS: usize = 5;

/// Bits of the number of packets on their way.
const UNASKED_BITS: usize = 6;

/// Pauses admission; see the module.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Pause {
    /// A pause is due.
    pub starts: Signal<In, Bit>,
    /// A packet enters that has not asked.
    pub enters: Signal<In, Bit>,
    /// One is parked.
    pub leaves: Signal<In, Bit>,
    /// A ring has a turn to come.
    pub has_turn: Signal<In, Bit>,
    /// Admission pauses; registered.
    pub pauses: Signal<Out, Bit>,
    is_pausing: Reg<Bit>,
    /// Cycles since a pause began, up to the next.
    count: Reg<Bits<PERIOD_BITS>>,
    /// Packets on their way that have not asked.
    unasked: Reg<Bits<UNASKED_BITS>>,
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
        let unasked = self.unasked.q.val();
        let (enters, leaves) = (self.enters.val(), self.leaves.val());
        if enters != leaves {
            self.unasked.d.next = select(enters, unasked + 1, unasked - 1);
        }
        let is_empty = !unasked.any() && !self.has_turn.val();
        let is_over = is_empty || count.get_bits::<PAUSE_BITS>(0).all();
        self.is_pausing.d.next = begins || (is_pausing && !is_over);
        self.pauses.next = is_pausing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::Bench;

    /// Cycles of the pauses in 4,000 cycles. In the first of each a packet that has not asked is on its way, and has its turn
    /// after some cycles.
    fn pausing(parked_after: Option<usize>, turns: usize) -> Vec<usize> {
        let mut bench = Bench::clocked(Pause::default(), |block| &mut block.clock).in_lock_step();
        bench.block.starts.next = true;
        let (mut pausing, mut since) = (Vec::new(), 0);
        for cycle in 0..4_000 {
            bench.block.enters.next = cycle % 1_024 == 1_000;
            bench.block.leaves.next = Some(since) == parked_after;
            bench.block.has_turn.next =
                parked_after.is_some_and(|parked| (parked..parked + turns).contains(&since));
            bench.settle();
            let pauses = bench.block.pauses.val();
            since = if pauses { since + 1 } else { 0 };
            if pauses {
                pausing.push(cycle);
            }
            bench.tick();
        }
        pausing
    }

    #[test]
    fn a_pause_ends_when_no_packet_has_a_turn_to_come_or_after_32_cycles_and_the_next_comes_after_1024() {
        for (parked_after, turns, expected) in
            [(None, 0, 32), (Some(7), 0, 9), (Some(7), 5, 13), (Some(7), 99, 32)]
        {
            let pausing = pausing(parked_after, turns);
            let begins: Vec<usize> = pausing
                .iter()
                .copied()
                .filter(|cycle| *cycle == 0 || !pausing.contains(&(cycle - 1)))
                .collect();
            assert!(
                begins.len() == 3 && begins.windows(2).all(|pair| pair[1] - pair[0] == 1_024),
                "{begins:?}"
            );
            assert_eq!(pausing.len(), 3 * expected, "{parked_after:?} {turns}");
        }
    }
}
