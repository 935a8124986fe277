//! ReadyQueue: the line of queue pairs that may have something to fetch, each in it at most once.
//!
//! A doorbell can come in every cycle and nobody can make it wait; a queue of doorbells could fill up. A line in which every
//! queue pair stands at most once cannot: it has a place for each.
//!
//! ```text
//!            ┌────────────────────────────────────────────────┐
//!  posted ──>│ > ──> in line? ──> push ──> line (2^10) ───────┼──> to_fetch
//!  again ───>│        ▲   ▲         │                 │       │
//!            │        │   └─ came <─┘   went <────────┘       │
//!            │        └───────────────────┘                   │
//!            └────────────────────────────────────────────────┘
//! ```
//!
//! A queue pair stands in line while `came` and `went`, one bit each, differ. Each has one writer: the entrance turns
//! the first, the exit the second.
//!
//! Latency 4 cycles from a doorbell to `to_fetch`; one entry and one exit a cycle. `again` waits while a doorbell comes.
//!
//! 1. A queue pair stands in line at most once.
//! 2. Whatever was written about a queue pair before or in the cycle of its doorbell is seen by who reads it from the cycle
//!    behind `to_fetch` on, by this turn or by another one that follows. So no doorbell is lost.
//! 3. Turns are given in the order in which queue pairs came.
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::QUEUE_PAIR_BITS;

const COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;

/// A place in the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Waiting {
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// What `went` is to become.
    lap: Bit,
}

/// The block.
#[derive(Default, LogicBlock, Registers)]
pub struct ReadyQueue {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; empties the line. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// Records are being cleared.
    pub is_sweeping: Signal<In, Bit>,
    /// Whose.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// A doorbell rang for this queue pair.
    pub posted: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// It did.
    pub posted_valid: Signal<In, Bit>,
    /// From fetch: this queue pair may have more; `ready` is combinational from `posted_valid`.
    pub again: StreamRx<Bits<QUEUE_PAIR_BITS>>,
    /// To fetch: whose turn it is; registered.
    pub to_fetch: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    came: Memory<Bit, QUEUE_PAIR_BITS>,
    went: Memory<Bit, QUEUE_PAIR_BITS>,
    line: Fifo<Waiting, QUEUE_PAIR_BITS, COUNT_BITS>,
    candidate: DFF<Bits<QUEUE_PAIR_BITS>>,
    has_candidate: Reg<Bit>,
    pushed: DFF<Bits<QUEUE_PAIR_BITS>>,
    has_pushed: Reg<Bit>,
}

impl Logic for ReadyQueue {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_sweeping = self.is_sweeping.val();
        let sweep_index = self.sweep_index.val();

        // A candidate is looked up in the cycle in which it comes.
        let posted_valid = self.posted_valid.val();
        let candidate = select(posted_valid, self.posted.val(), self.again.beat.val());
        let has_candidate = (posted_valid || self.again.valid.val()) && !is_sweeping;
        self.again.ready.next = !posted_valid && !is_sweeping;
        self.candidate.d.next = candidate;
        self.has_candidate.d.next = has_candidate;
        self.came.read_enable.next = true;
        self.came.read_address.next = candidate;
        self.went.read_enable.next = true;
        self.went.read_address.next = candidate;

        // Who was pushed in the cycle before was looked up too early by its successor of the same number.
        let queue_pair = self.candidate.q.val();
        let came = self.came.read_data.val();
        let is_in_line = came != self.went.read_data.val()
            || (self.has_pushed.q.val() && self.pushed.q.val() == queue_pair);
        let pushes = self.has_candidate.q.val() && !is_in_line;
        self.pushed.d.next = queue_pair;
        self.has_pushed.d.next = pushes;
        self.line.rx.valid.next = pushes;
        self.line.rx.beat.next = Waiting { queue_pair, lap: !came };
        self.came.write_enable.next = pushes || is_sweeping;
        self.came.write_address.next = select(is_sweeping, sweep_index, queue_pair);
        self.came.write_data.next = !came && !is_sweeping;

        let first = self.line.tx.beat.val();
        let leaves = self.line.tx.valid.val() && self.to_fetch.ready.val();
        self.line.tx.ready.next = self.to_fetch.ready.val();
        self.to_fetch.valid.next = self.line.tx.valid.val();
        self.to_fetch.beat.next = first.queue_pair;
        self.went.write_enable.next = leaves || is_sweeping;
        self.went.write_address.next = select(is_sweeping, sweep_index, first.queue_pair);
        self.went.write_data.next = first.lap && !is_sweeping;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};
    use std::collections::VecDeque;

    /// Doorbells and returns at random, over few queue pairs so that they meet: the line holds each at most once, and a
    /// queue pair that has been asked for stands in it.
    #[test]
    fn every_queue_pair_gets_a_turn_behind_each_doorbell_and_stands_in_line_once() {
        let mut random = random();
        let mut bench = Bench::clocked(ReadyQueue::default(), |block| &mut block.clock).in_lock_step();
        let mut sink = Sink::new(Stalls::Sink);
        let mut again = Source::new([], Stalls::Source);
        // What was written for each, the newest that was read, and who stands in line as an observer sees it.
        let (mut written, mut seen) = ([0u32; 4], [0u32; 4]);
        let mut due = VecDeque::new();
        for cycle in 0..6000 {
            let rings = cycle < 5900 && random.random_bool(0.4);
            let queue_pair = random.random_range(0..4usize);
            bench.block.posted_valid.next = rings;
            bench.block.posted.next = bits(0x3fc + queue_pair as u64);
            if cycle < 5900 && random.random_bool(0.05) && again.is_done() {
                again.push(bits(0x3fc + random.random_range(0..4)));
            }
            again.drive(&mut bench.block.again, &mut random);
            sink.drive(&mut bench.block.to_fetch, &mut random);
            bench.settle();
            // A reader looks one cycle behind its turn.
            if let Some(queue_pair) = due.pop_front() {
                let queue_pair: usize = queue_pair;
                seen[queue_pair] = written[queue_pair];
            }
            if rings {
                written[queue_pair] += 1;
            }
            again.sample(&bench.block.again);
            if let Some(beat) = sink.sample(&bench.block.to_fetch) {
                due.push_back(beat.to_u64() as usize - 0x3fc);
            }
            assert!(sink.received.len() < 6000);
            bench.tick();
        }
        assert_eq!(written, seen, "no doorbell is lost");
        assert!(written[0] > 100);
        let turns = sink.received.len();
        assert!(turns > 1000 && turns < 3200, "{turns} turns: half the cycles at most");
    }
}
