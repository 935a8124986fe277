//! Quarantine: remembers the tags of reads that were given up, until the host answers them after all.
//!
//! A host that is late is not gone. If the tag of a read that was given up were used again, its late answer would pass for that of
//! the next read. So such a tag rests until its answer has come, and the words of that answer are dropped.
//!
//! ```text
//!  clears, enters, leaves ──> ┌───────────────────┐ <── arrival_tag ──> holds_arrival
//!                             │ one bit for a tag │
//!                             └─────────┬─────────┘ <── next_tag ─────> holds_next
//!                                       └──> count ──> has_half
//! ```
//!
//! Latency 1 cycle from a tag to what is known of it; a change is seen by the reads of the next cycle. One change a cycle.
//!
//! 1. A tag is held from the cycle after it enters to the one in which it leaves.
//! 2. `count` is the number of tags that are held.
//!
//! The owner makes one change at a time: a tag enters that is not held, leaves if it is held, and nothing does while tags are cleared.
//!
//! Refuses tag bits other than 1 to 8, and `TAGS` other than `TAG + 1`.
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;

/// Holds some of `2^TAG` tags; `TAGS`, the width of their number, is `TAG + 1`.
#[clocked(reset = "the owner then clears all tags")]
#[derive(LogicBlock, Registers, Construct)]
#[require(1 <= TAG && TAG <= 8)]
#[require(TAGS == TAG + 1)]
pub struct Quarantine<const TAG: usize, const TAGS: usize> {
    /// After reset: `cleared_tag` is not held.
    pub clears: Signal<In, Bit>,
    /// Tag that is cleared.
    pub cleared_tag: Signal<In, Bits<TAG>>,
    /// The read with `entered_tag` is given up.
    pub enters: Signal<In, Bit>,
    /// Its tag.
    pub entered_tag: Signal<In, Bits<TAG>>,
    /// The answer for `left_tag` has ended.
    pub leaves: Signal<In, Bit>,
    /// Its tag.
    pub left_tag: Signal<In, Bits<TAG>>,

    /// Tag of a word that arrives.
    pub arrival_tag: Signal<In, Bits<TAG>>,
    /// The `arrival_tag` of the cycle before is held; registered.
    pub holds_arrival: Signal<Out, Bit>,
    /// Tag that a read will use.
    pub next_tag: Signal<In, Bits<TAG>>,
    /// The `next_tag` of the cycle before is held; registered.
    pub holds_next: Signal<Out, Bit>,
    /// Tags that are held; registered.
    pub count: Signal<Out, Bits<TAGS>>,
    /// Half of the tags are held, or more; a function of registers.
    pub has_half: Signal<Out, Bit>,

    #[init(Memory::new(Storage::Distributed))]
    of_arrivals: Memory<Bit, TAG>,
    #[init(Memory::new(Storage::Distributed))]
    of_reads: Memory<Bit, TAG>,
    held: Reg<Bits<TAGS>>,
}

impl<const TAG: usize, const TAGS: usize> Logic for Quarantine<TAG, TAGS> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let (enters, leaves) = (self.enters.val(), self.leaves.val());
        let changes = self.clears.val() || enters || leaves;
        let tag = if self.clears.val() {
            self.cleared_tag.val()
        } else if enters {
            self.entered_tag.val()
        } else {
            self.left_tag.val()
        };
        self.of_arrivals.write(changes, tag, enters);
        self.of_arrivals.read(true, self.arrival_tag.val());
        self.holds_arrival.next = self.of_arrivals.read_data.val();
        self.of_reads.write(changes, tag, enters);
        self.of_reads.read(true, self.next_tag.val());
        self.holds_next.next = self.of_reads.read_data.val();

        let held = self.held.q.val();
        if enters {
            self.held.d.next = held + 1;
        } else if leaves {
            self.held.d.next = held - 1;
        }
        self.count.next = held;
        self.has_half.next = held.get_bit(TAG) || held.get_bit(TAG - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, random};

    #[test]
    fn a_tag_is_held_until_its_answer_has_come() {
        let mut random = random();
        let mut bench =
            Bench::clocked(Quarantine::<3, 4>::default(), |block| &mut block.clock).in_lock_step();
        for life in 0..4 {
            bench.block.reset.next = true;
            bench.block.enters.next = false;
            bench.block.leaves.next = false;
            bench.tick();
            bench.block.reset.next = false;
            for tag in 0..8 {
                bench.block.clears.next = true;
                bench.block.cleared_tag.next = bits(tag);
                bench.tick();
            }
            bench.block.clears.next = false;
            let mut held = [false; 8];
            let mut due = None;
            let mut most = 0;
            for cycle in 0..400 {
                let tag = random.random_range(0..8usize);
                // Phases in which more tags enter, and in which more leave.
                let changes = random.random_bool(if held[tag] == (cycle / 100 % 2 == 0) { 0.1 } else { 0.9 });
                let (arrival, next) = (random.random_range(0..8usize), random.random_range(0..8usize));
                let block = &mut bench.block;
                block.enters.next = changes && !held[tag];
                block.entered_tag.next = bits(tag as u64);
                block.leaves.next = changes && held[tag];
                block.left_tag.next = bits(tag as u64);
                block.arrival_tag.next = bits(arrival as u64);
                block.next_tag.next = bits(next as u64);
                bench.settle();
                let block = &bench.block;
                if let Some(expected) = due {
                    assert_eq!((block.holds_arrival.val(), block.holds_next.val()), expected, "life {life}");
                }
                let count = held.iter().filter(|&&is_held| is_held).count();
                assert_eq!((block.count.val(), block.has_half.val()), (bits(count as u64), count >= 4));
                most = most.max(count);
                due = Some((held[arrival], held[next]));
                held[tag] ^= changes;
                bench.tick();
            }
            assert!(most > 5, "at most {most} tags were held");
        }
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert!(Quarantine::<8, 8>::REFUSAL.is_some_and(|refusal| refusal.contains("TAGS")));
        assert!(Quarantine::<9, 10>::REFUSAL.is_some_and(|refusal| refusal.contains("TAG")));
    }
}
