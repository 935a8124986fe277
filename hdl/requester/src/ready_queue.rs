//! ReadyQueue: the queue pairs that may have something to fetch, each in it at most once.
//!
//! A doorbell can ring in every cycle and cannot be made to wait; a queue of doorbells could fill up. A queue
//! that holds every queue pair at most once cannot: it has a place for each.
//!
//! ```text
//!            ┌────────────────────────────────────────────────────┐
//!  posted ──>│ > ──> queued? ──> push ──> queue (2^10) ───────────┼──> to_fetch
//!  again ───>│        ▲   ▲         │                     │       │
//!            │        │   └ entered <┘      left <────────┘       │
//!            │        └───────────────────────┘                   │
//!            └────────────────────────────────────────────────────┘
//! ```
//!
//! A queue pair is queued while `entered` and `left`, one bit each, differ. Each has one writer: the entrance
//! toggles the first, the exit the second.
//!
//! Latency 4 cycles from a doorbell to `to_fetch`; one entrance and one exit a cycle. `again` waits while a
//! doorbell rings.
//!
//! 1. A queue pair is queued at most once.
//! 2. What was written for a queue pair before or in the cycle of its doorbell is seen by a reader from the
//!    cycle after `to_fetch` on, in this turn or in a later one. So no doorbell is lost.
//! 3. Turns are in the order in which queue pairs entered.
use crate::sweep::SweepStep;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{QUEUE_PAIR_BITS, sizes};

pub(crate) const COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;

/// A place in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Waiting {
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Value that `left` becomes.
    lap: Bit,
}

/// Queue of queue pairs; see the module.
#[clocked(reset = "empties the queue. A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
pub struct ReadyQueue {
    /// From sweep: the records of a queue pair are cleared in this cycle.
    pub sweep: Signal<In, SweepStep>,
    /// Queue pair whose doorbell rings.
    pub posted: ValidRx<Bits<QUEUE_PAIR_BITS>>,
    /// From wqe_fetch: queue pair that may have more; `ready` is combinational from `posted`.
    pub again: StreamRx<Bits<QUEUE_PAIR_BITS>>,
    /// To wqe_fetch: next queue pair; registered.
    pub to_fetch: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// Queue pairs in the queue; registered.
    pub level: Signal<Out, Bits<COUNT_BITS>>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    entered: Memory<Bit, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    left: Memory<Bit, QUEUE_PAIR_BITS>,
    #[init(Fifo::default().with_beats_log2(sizes().queue_pairs))]
    queue: Fifo<Waiting, QUEUE_PAIR_BITS, COUNT_BITS>,
    candidate: DFF<Bits<QUEUE_PAIR_BITS>>,
    has_candidate: Reg<Bit>,
    pushed: DFF<Bits<QUEUE_PAIR_BITS>>,
    has_pushed: Reg<Bit>,
}

impl Logic for ReadyQueue {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_sweeping = self.sweep.val().is_sweeping;
        let sweep_index = self.sweep.val().index;
        self.level.next = self.queue.level.val();

        // A candidate is looked up in the cycle in which it enters.
        let posted_valid = self.posted.valid.val();
        let candidate = select(posted_valid, self.posted.value.val(), self.again.beat.val());
        let has_candidate = (posted_valid || self.again.valid.val()) && !is_sweeping;
        self.again.ready.next = !posted_valid && !is_sweeping;
        self.candidate.d.next = candidate;
        self.has_candidate.d.next = has_candidate;
        self.entered.read(true, candidate);
        self.left.read(true, candidate);

        // A queue pair that was pushed in the cycle before was looked up too early if it enters again.
        let queue_pair = self.candidate.q.val();
        let entered = self.entered.read_data.val();
        let is_queued = entered != self.left.read_data.val()
            || (self.has_pushed.q.val() && self.pushed.q.val() == queue_pair);
        let pushes = self.has_candidate.q.val() && !is_queued;
        self.pushed.d.next = queue_pair;
        self.has_pushed.d.next = pushes;
        self.queue.rx.offer(pushes, Waiting { queue_pair, lap: !entered });
        self.entered.write_enable.next = pushes || is_sweeping;
        self.entered.write_address.next = select(is_sweeping, sweep_index, queue_pair);
        self.entered.write_data.next = !entered && !is_sweeping;

        let first = self.queue.tx.beat.val();
        let leaves = self.queue.tx.valid.val() && self.to_fetch.ready.val();
        self.queue.tx.ready.next = self.to_fetch.ready.val();
        self.to_fetch.offer(self.queue.tx.valid.val(), first.queue_pair);
        self.left.write_enable.next = leaves || is_sweeping;
        self.left.write_address.next = select(is_sweeping, sweep_index, first.queue_pair);
        self.left.write_data.next = first.lap && !is_sweeping;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Sink, Source, Stalls, random};
    use std::collections::VecDeque;

    /// Doorbells and returns at random, over few queue pairs so that they meet: the queue holds each at most
    /// once, and a queue pair whose doorbell rang is in it.
    #[test]
    fn every_queue_pair_gets_a_turn_after_each_doorbell_and_is_queued_once() {
        let mut random = random();
        let mut bench = Bench::clocked(ReadyQueue::default(), |block| &mut block.clock).in_lock_step();
        let mut sink = Sink::new(Stalls::Sink);
        let mut again = Source::new([], Stalls::Source);
        // Last value written for each queue pair, and last value that was read.
        let (mut written, mut seen) = ([0u32; 4], [0u32; 4]);
        let mut due = VecDeque::new();
        for cycle in 0..6000 {
            let rings = cycle < 5900 && random.random_bool(0.4);
            let queue_pair = random.random_range(0..4usize);
            bench.block.posted.valid.next = rings;
            bench.block.posted.value.next = bits(0x3fc + queue_pair as u64);
            if cycle < 5900 && random.random_bool(0.05) && again.is_done() {
                again.push(bits(0x3fc + random.random_range(0..4)));
            }
            again.drive(&mut bench.block.again, &mut random);
            sink.drive(&mut bench.block.to_fetch, &mut random);
            bench.settle();
            // A reader looks one cycle after its turn.
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
