//! Turns of the rings, in the order in which they were given, and the rest of packets that end keys.
//!
//! ```text
//!  rx ──┬──> queue ────┬──> tx
//!       ├──> first ────┤
//!       └──> resting ──┘ when the rest has ended
//!              │ ^
//!  begins ──> rest (64 cycles) ──> rests
//! ```
//!
//! A turn that is given while there is no other waits in `first`, so the list of one ring has a turn in every second cycle. A turn
//! whose packet must rest waits in `resting`, and comes before others when it may be tried.
//!
//! Latency 1 cycle, 2 behind other turns. It holds a turn for each list that can have packets, resting or not.
//!
//! 1. Turns leave in the order in which they came, and so do those that rest.
//! 2. From the beginning of one rest to that of the next, with a turn that has rested, are 64 cycles or more.
//! 3. While a turn rests, or has rested and has not had its event, all that comes must rest: so each ring has its turn, however fast
//!    packets of others come.
use super::list::Turn;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;

/// log2 of the cycles of a rest.
const REST: usize = 6;

/// Cycles that are left of a rest, after a cycle in which one begins, or does not.
#[kernel]
fn rest_after(rest: Bits<REST>, begins: Bit) -> Bits<REST> {
    if begins {
        !bits::<REST>(0)
    } else if rest.any() {
        rest - 1
    } else {
        rest
    }
}

/// Queues of turns; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Turns {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// Turns; there is always room.
    pub rx: StreamRx<Turn>,
    /// The next one; a function of registers.
    pub tx: StreamTx<Turn>,
    /// A packet enters that ends a key.
    pub begins: Signal<In, Bit>,
    /// The event of a turn that has rested is over.
    pub ends: Signal<In, Bit>,
    /// What ends a key must rest; a function of registers.
    pub rests: Signal<Out, Bit>,
    queue: Fifo<Turn, 10, 11>,
    resting: Fifo<Turn, 10, 11>,
    first: DFF<Turn>,
    has_first: Reg<Bit>,
    rest: Reg<Bits<REST>>,
    /// A turn that has rested has left, and its event is not over.
    is_tried: Reg<Bit>,
}

impl Logic for Turns {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let has_first = self.has_first.q.val();
        let (comes, turn) = (self.rx.valid.val(), self.rx.beat.val());
        let is_usual = comes && !turn.has_rested;
        let is_first = is_usual && !has_first && !self.queue.level.val().any();
        self.rx.ready.next = self.queue.rx.ready.val() && self.resting.rx.ready.val();
        self.queue.rx.valid.next = is_usual && !is_first;
        self.queue.rx.beat.next = turn;
        self.resting.rx.valid.next = comes && turn.has_rested;
        self.resting.rx.beat.next = turn;
        if is_first {
            self.first.d.next = turn;
        }
        let (rest, is_tried) = (self.rest.q.val(), self.is_tried.q.val());
        self.rest.d.next = rest_after(rest, self.begins.val());
        self.rests.next = rest.any() || is_tried || self.resting.level.val().any();
        let has_rested = self.resting.tx.valid.val() && !rest.any() && !is_tried;
        let takes = self.tx.ready.val();
        self.is_tried.d.next = (has_rested && takes) || (is_tried && !self.ends.val());
        self.has_first.d.next = is_first || (has_first && (has_rested || !takes));
        self.tx.valid.next = has_rested || has_first || self.queue.tx.valid.val();
        let usual = select(has_first, self.first.q.val(), self.queue.tx.beat.val());
        self.tx.beat.next = select(has_rested, self.resting.tx.beat.val(), usual);
        self.queue.tx.ready.next = takes && !has_first && !has_rested;
        self.resting.tx.ready.next = takes && has_rested;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;
    use rnic_blocks::bench::{Bench, Stalls, Stimulus, random, transfer};

    /// Of turns that do not rest.
    impl Stimulus for Turn {
        fn from_number(number: &BigUint) -> Self {
            Turn { ring: Stimulus::from_number(number), ..Turn::default() }
        }
    }

    fn turn(number: u64, has_rested: bool) -> Turn {
        Turn { ring: bits(number), has_rested, ..Turn::default() }
    }

    fn bench() -> Bench<Turns> {
        Bench::clocked(Turns::default(), |block| &mut block.clock).in_lock_step()
    }

    #[test]
    fn turns_keep_their_order_and_one_alone_takes_a_cycle() {
        for stalls in Stalls::ALL {
            let turns: Vec<Turn> = (0..300).map(|number| turn(number, false)).collect();
            let (received, cycles) = transfer(
                &mut bench(),
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

    /// Twenty turns that must rest and twenty others come; each of the former begins a rest when its event is over, two cycles later.
    #[test]
    fn turns_rest_for_64_cycles_in_their_order_and_others_pass() {
        let mut bench = bench();
        let (mut rested, mut others, mut due) = (Vec::new(), Vec::new(), None);
        for cycle in 0..64 * 21u64 {
            let block = &mut bench.block;
            block.rx.valid.next = cycle < 40;
            block.rx.beat.next = turn(cycle, cycle % 2 == 0);
            block.tx.ready.next = true;
            let is_over = due == Some(cycle);
            (block.begins.next, block.ends.next) = (is_over, is_over);
            bench.settle();
            let block = &bench.block;
            assert_eq!(
                block.rests.val(),
                cycle > 0 && (rested.len() < 20 || rested[19] + 66 > cycle),
                "{cycle}"
            );
            if block.tx.valid.val() {
                let Turn { ring, has_rested, .. } = block.tx.beat.val();
                if has_rested {
                    assert_eq!(ring, bits(2 * rested.len() as u64));
                    rested.push(cycle);
                    due = Some(cycle + 2);
                } else {
                    assert_eq!(ring, bits(2 * others.len() as u64 + 1));
                    others.push(cycle);
                }
            }
            bench.tick();
        }
        assert_eq!((rested.len(), others.len()), (20, 20));
        assert!(others[19] < 45, "{others:?}");
        assert!(rested.windows(2).all(|pair| pair[1] - pair[0] == 66), "{rested:?}");
    }
}
