//! Counts events, with frames and bytes for each kind, and holds all counts of one moment for reading.
//!
//! The counters lie in memory, so that there can be many of them and 64 bits each, and yet one event a cycle is counted.
//! A copy of all of them at once would take as many cycles as there are counters. So nothing is copied until it must
//! be: `latch` marks every counter, and the first event that changes a marked one saves its old value.
//!
//! ```text
//!            ┌────────┐  old   ┌─────┐  new
//!  outcome ─>│ counts ├─────┬─>│ add ├────────┬──> counts, and their copy for the reader
//!            └────────┘     │  └─────┘        │
//!                           │ if marked   ┌───▼──┐    marked    ┌───┐
//!  latch ──> marks          └────────────>│ saved├─────────────>│   ├──> read
//!  read_index ───────────────────────────>│ copy │   not so     │ ? │
//!                                         └──────┘─────────────>└───┘
//! ```
//!
//! Latency 2 cycles from an event to its count, [`READ_LATENCY`] from `read_index` to `read`; throughput one event and one
//! reading a cycle.
//!
//! 1. `read` is the count at the last `latch`, whatever has happened since.
//! 2. What came in the cycle before `latch` is counted; what comes in the same cycle is not.
//! 3. Before the first `latch`, `read` is zero.
//!
//! Counts wrap at 2^64. Reset does not clear them: software computes differences.
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::ValidRx;
use rnic_kernel::prelude::*;
use rnic_messages::drop_reason::REASON_BITS;
use rnic_messages::frame::{Count, FrameOutcome};

/// Cycles from [`Counters::read_index`] to [`Counters::read`].
pub const READ_LATENCY: usize = 2;

/// One counter for each number of an outcome.
#[clocked(reset = "forgets an event on its way, but no count")]
#[derive(Default, LogicBlock, Registers)]
pub struct Counters {
    /// From dispatch: what became of a frame.
    pub outcome: ValidRx<FrameOutcome>,
    /// From the registers: copy the counts for the reader.
    pub latch: Signal<In, Bit>,
    /// Number of the counter to read.
    pub read_index: Signal<In, Bits<REASON_BITS>>,
    /// Its value at the last latch; registered.
    pub read: Signal<Out, Count>,

    counts: Memory<Count, REASON_BITS>,
    copy: Memory<Count, REASON_BITS>,
    saved: Memory<Count, REASON_BITS>,
    /// Counters that have not changed since they were latched.
    marks: Reg<Bits<32>>,
    held: DFF<FrameOutcome>,
    held_valid: Reg<Bit>,
    /// What was written in the cycle before, which the memory did not show yet.
    written: DFF<Count>,
    written_number: DFF<Bits<REASON_BITS>>,
    written_valid: Reg<Bit>,
    reads_copy: DFF<Bit>,
    reading: DFF<Count>,
}

impl Logic for Counters {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        // Cycle 0: the old count is looked up.
        self.counts.read(self.outcome.valid.val(), self.outcome.value.val().number);
        self.held.d.next = self.outcome.value.val();
        self.held_valid.d.next = self.outcome.valid.val();

        // Cycle 1: it grows. The event of the cycle before may have been of the same kind.
        let outcome = self.held.q.val();
        let is_again = self.written_valid.q.val() && self.written_number.q.val() == outcome.number;
        let old = select(is_again, self.written.q.val(), self.counts.read_data.val());
        let new_frames = old.frames + 1;
        let new_bytes = old.bytes + bit_cast::<64, 16>(outcome.frame_bytes);
        let held_valid = self.held_valid.q.val();
        self.counts.write(held_valid, outcome.number, Count { frames: new_frames, bytes: new_bytes });
        self.copy.write(held_valid, outcome.number, Count { frames: new_frames, bytes: new_bytes });
        self.written.d.next = Count { frames: new_frames, bytes: new_bytes };
        self.written_number.d.next = outcome.number;
        self.written_valid.d.next = held_valid;

        // A counter that changes for the first time since the latch saves its old value.
        let is_marked = self.marks.q.val().get_bit(outcome.number.index());
        self.saved.write(held_valid && is_marked, outcome.number, old);
        if self.latch.val() {
            self.marks.d.next = !bits::<32>(0);
        } else if held_valid {
            self.marks.d.next = self.marks.q.val().replace_bit(outcome.number.index(), false);
        }

        // Reading: a marked counter still is what it was.
        self.copy.read(true, self.read_index.val());
        self.saved.read(true, self.read_index.val());
        self.reads_copy.d.next = self.marks.q.val().get_bit(self.read_index.val().index());
        self.reading.d.next =
            select(self.reads_copy.q.val(), self.copy.read_data.val(), self.saved.read_data.val());
        self.read.next = self.reading.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, random};
    use rnic_messages::frame::OUTCOME_COUNT;

    /// Frames and bytes of each kind.
    type Model = [(u64, u64); 32];

    fn bench() -> Bench<Counters> {
        Bench::clocked(Counters::default(), |block| &mut block.clock).in_lock_step()
    }

    #[test]
    fn readings_are_those_of_the_latch_whatever_happens_meanwhile() {
        let mut random = random();
        let mut bench = bench();
        let (mut live, mut latched): (Model, Model) = ([(0, 0); 32], [(0, 0); 32]);
        // The index of a reading, two cycles back and one cycle back, with what must come of it.
        let mut readings = [None, None];
        for cycle in 0..3000u32 {
            // Few kinds, so that the same counter is often counted in neighbouring cycles and read meanwhile.
            let kinds = if cycle % 500 < 250 { 2 } else { OUTCOME_COUNT };
            let (number, frame_bytes) = (random.random_range(0..kinds), random.random_range(1..=u16::MAX));
            let is_counted = random.random_bool(0.8);
            let latches = random.random_bool(0.02);
            let read_index = random.random_range(0..kinds);
            let block = &mut bench.block;
            block.outcome.valid.next = is_counted;
            block.outcome.value.next =
                FrameOutcome { number: bits(number as u64), frame_bytes: bits(frame_bytes.into()) };
            block.latch.next = latches;
            block.read_index.next = bits(read_index as u64);
            bench.settle();
            if let [Some((frames, bytes)), _] = readings {
                let read = bench.block.read.val();
                assert_eq!((read.frames.to_u64(), read.bytes.to_u64()), (frames, bytes), "cycle {cycle}");
            }
            readings = [readings[1], Some(latched[read_index])];
            if latches {
                latched = live;
            }
            if is_counted {
                live[number].0 += 1;
                live[number].1 += u64::from(frame_bytes);
            }
            bench.tick();
        }
        assert!(latched[0].0 > 100, "something was counted");
    }

    #[test]
    fn reset_keeps_the_counts() {
        let mut bench = bench();
        bench.block.outcome.valid.next = true;
        bench.block.outcome.value.next = FrameOutcome { number: bits(3), frame_bytes: bits(60) };
        bench.tick();
        bench.block.outcome.valid.next = false;
        bench.tick();
        bench.block.reset.next = true;
        bench.tick();
        bench.block.reset.next = false;
        bench.block.latch.next = true;
        bench.block.read_index.next = bits(3);
        bench.tick();
        (0..READ_LATENCY).for_each(|_| bench.tick());
        bench.settle();
        assert_eq!(bench.block.read.val(), Count { frames: bits(1), bytes: bits(60) });
    }
}
