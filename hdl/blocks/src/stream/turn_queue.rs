//! TurnQueue: numbers that have a turn to come, each in the queue at most once.
//!
//! A number may enter in every cycle and cannot be made to wait. A queue that holds every number at most once has a place for
//! each.
//!
//! ```text
//!            ┌──────────────────────────────────────────────┐
//!  enters ──>│ queued? ──> push ──> queue (2^INDEX) ────────┼──> tx
//!            │  ▲   ▲        │                     │        │
//!            │  │   └ entered <┘      left <───────┘        │
//!            │  └──────────────────────┘                    │
//!            └──────────────────────────────────────────────┘
//! ```
//!
//! A number is queued while `entered` and `left`, one bit each, differ. Each has one writer: the entrance toggles the first,
//! the exit the second.
//!
//! Latency 4 cycles; one entrance and one exit a cycle.
//!
//! 1. A number is queued at most once.
//! 2. What was written for a number before or in the cycle of its entrance is seen by a reader from the cycle after `tx` on, in
//!    this turn or in a later one. So no entrance is lost.
//! 3. Turns are in the order in which numbers entered.
//!
//! After a reset a sweep over all numbers must follow.
use super::{Fifo, StreamTx};
use crate::memory::{Memory, Storage};
use rnic_kernel::prelude::*;

/// A place in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Place<const INDEX: usize> {
    number: Bits<INDEX>,
    /// Value that `left` becomes.
    lap: Bit,
}

/// A queue of numbers of `INDEX` bits; `COUNT` is `INDEX + 1`.
#[clocked(reset = "empties the queue. A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
#[require(COUNT == INDEX + 1)]
pub struct TurnQueue<const INDEX: usize, const COUNT: usize> {
    /// The records of `sweep_index` are cleared in this cycle; nothing enters or leaves.
    pub is_sweeping: Signal<In, Bit>,
    /// Number whose records are cleared.
    pub sweep_index: Signal<In, Bits<INDEX>>,
    /// `number` enters, unless it is queued.
    pub enters: Signal<In, Bit>,
    /// The number that enters.
    pub number: Signal<In, Bits<INDEX>>,
    /// The next number; registered.
    pub tx: StreamTx<Bits<INDEX>>,
    #[init(Memory::new(Storage::Block))]
    entered: Memory<Bit, INDEX>,
    #[init(Memory::new(Storage::Block))]
    left: Memory<Bit, INDEX>,
    queue: Fifo<Place<INDEX>, INDEX, COUNT>,
    candidate: DFF<Bits<INDEX>>,
    has_candidate: Reg<Bit>,
    pushed: DFF<Bits<INDEX>>,
    has_pushed: Reg<Bit>,
}

impl<const INDEX: usize, const COUNT: usize> TurnQueue<INDEX, COUNT> {
    /// Cuts the queue to the numbers below `2^numbers_log2`: a size that a configuration sets.
    ///
    /// # Panics
    /// As [`Memory::with_words_log2`].
    pub fn with_numbers_log2(mut self, numbers_log2: usize) -> Self {
        self.entered = self.entered.with_words_log2(numbers_log2);
        self.left = self.left.with_words_log2(numbers_log2);
        self.queue = self.queue.with_beats_log2(numbers_log2);
        self
    }
}

impl<const INDEX: usize, const COUNT: usize> Logic for TurnQueue<INDEX, COUNT> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_sweeping = self.is_sweeping.val();
        let sweep_index = self.sweep_index.val();

        // A candidate is looked up in the cycle in which it enters.
        let candidate = self.number.val();
        self.candidate.d.next = candidate;
        self.has_candidate.d.next = self.enters.val() && !is_sweeping;
        self.entered.read(true, candidate);
        self.left.read(true, candidate);

        // A number that was pushed in the cycle before was looked up too early if it enters again.
        let number = self.candidate.q.val();
        let entered = self.entered.read_data.val();
        let is_queued = entered != self.left.read_data.val()
            || (self.has_pushed.q.val() && self.pushed.q.val() == number);
        let pushes = self.has_candidate.q.val() && !is_queued;
        self.pushed.d.next = number;
        self.has_pushed.d.next = pushes;
        self.queue.rx.offer(pushes, Place::<INDEX> { number, lap: !entered });
        self.entered.write_enable.next = pushes || is_sweeping;
        self.entered.write_address.next = select(is_sweeping, sweep_index, number);
        self.entered.write_data.next = !entered && !is_sweeping;

        let first = self.queue.tx.beat.val();
        let leaves = self.queue.tx.valid.val() && self.tx.ready.val();
        self.queue.tx.ready.next = self.tx.ready.val();
        self.tx.offer(self.queue.tx.valid.val(), first.number);
        self.left.write_enable.next = leaves || is_sweeping;
        self.left.write_address.next = select(is_sweeping, sweep_index, first.number);
        self.left.write_data.next = first.lap && !is_sweeping;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Sink, Stalls, random};
    use rand::Rng;
    use std::collections::VecDeque;

    /// Entrances at random, of few numbers so that they meet: the queue holds each at most once, and one that has entered has
    /// a turn.
    #[test]
    fn every_number_gets_a_turn_after_each_entrance_and_is_queued_once() {
        let mut random = random();
        let mut bench = Bench::clocked(TurnQueue::<4, 5>::default(), |block| &mut block.clock).in_lock_step();
        let mut sink = Sink::new(Stalls::Sink);
        // Last value written for each number, and last value that was read.
        let (mut written, mut seen) = ([0u32; 4], [0u32; 4]);
        let mut due: VecDeque<usize> = VecDeque::new();
        for cycle in 0..6000 {
            let enters = cycle < 5900 && random.random_bool(0.4);
            let number = random.random_range(0..4usize);
            bench.block.enters.next = enters;
            bench.block.number.next = bits(0xc + number as u64);
            sink.drive(&mut bench.block.tx, &mut random);
            bench.settle();
            // A reader looks one cycle after its turn.
            if let Some(number) = due.pop_front() {
                seen[number] = written[number];
            }
            written[number] += u32::from(enters);
            if let Some(beat) = sink.sample(&bench.block.tx) {
                due.push_back(beat.to_u64() as usize - 0xc);
            }
            bench.tick();
        }
        assert_eq!(written, seen, "no entrance is lost");
        let turns = sink.received.len();
        assert!(turns > 1000 && turns < 3200, "{turns} turns: half the cycles at most");
    }
}
