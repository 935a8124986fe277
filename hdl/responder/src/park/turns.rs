//! Turns of the rings, in the order in which they were given.
//!
//! ```text
//!  rx ──┬──> queue ────┬──> tx
//!       └──> first ────┘
//! ```
//!
//! A turn that is given while there is no other waits in `first`, so the list of one ring has a turn in every second cycle.
//!
//! Latency 1 cycle, 2 behind other turns. It holds a turn for each list that can have packets.
//!
//! 1. Turns leave in the order in which they came.
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;

/// A queue of turns; see the module.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Turns<T: Synth> {
    /// Turns; there is always room.
    pub rx: StreamRx<T>,
    /// The next one; a function of registers.
    pub tx: StreamTx<T>,
    queue: Fifo<T, 10, 11>,
    first: DFF<T>,
    has_first: Reg<Bit>,
}

impl<T: Synth> Logic for Turns<T> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let has_first = self.has_first.q.val();
        let is_first = self.rx.valid.val() && !has_first && !self.queue.level.val().any();
        self.rx.ready.next = self.queue.rx.ready.val();
        self.queue.rx.offer(self.rx.valid.val() && !is_first, self.rx.beat.val());
        if is_first {
            self.first.d.next = self.rx.beat.val();
        }
        self.has_first.d.next = is_first || (has_first && !self.tx.ready.val());
        self.tx.valid.next = has_first || self.queue.tx.valid.val();
        self.tx.beat.next = select(has_first, self.first.q.val(), self.queue.tx.beat.val());
        self.queue.tx.ready.next = self.tx.ready.val() && !has_first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::{Bench, Stalls, random, transfer};

    #[test]
    fn turns_keep_their_order_and_one_alone_takes_a_cycle() {
        for stalls in Stalls::ALL {
            let mut bench =
                Bench::clocked(Turns::<Bits<12>>::default(), |block| &mut block.clock).in_lock_step();
            let turns: Vec<Bits<12>> = (0..300).map(bits).collect();
            let (received, cycles) = transfer(
                &mut bench,
                |block| &mut block.rx,
                |block| &mut block.tx,
                turns.clone(),
                turns.len(),
                stalls,
                &mut random(),
            );
            assert_eq!(received, turns, "stalls: {stalls:?}");
            if stalls == Stalls::None {
                assert!(cycles <= turns.len() + 4, "{cycles} cycles");
            }
        }
    }
}
