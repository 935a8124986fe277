//! Match table: says whether a word is the one that stands at an index, which is known a cycle later than the word.
//!
//! A memory could be read at the index and compared behind that, which costs the cycle that is saved here: all entries are
//! compared while nobody knows yet which one counts.
//!
//! ```text
//!  write ──> entries ──> = ──> equal ──┐
//!  word ─────────────────┘             ├──> agrees
//!  index ──────────────────────────────┘
//! ```
//!
//! Latency 1 cycle from `word`, none from `index`; one word a cycle. Not reset: entries stay as they were written.
//!
//! 1. `agrees` says whether the entry at `index` was in use and equal to `word` in the cycle before.
//! 2. What is written counts for the words of later cycles.
use rnic_kernel::prelude::*;

/// The table. `ENTRIES` is `2^INDEX`.
#[derive(LogicBlock, Registers)]
pub struct MatchTable<const WORD: usize, const ENTRIES: usize, const INDEX: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// An entry is written.
    pub write_enable: Signal<In, Bit>,
    /// Which.
    pub write_index: Signal<In, Bits<INDEX>>,
    /// It is in use from now on.
    pub write_used: Signal<In, Bit>,
    /// What stands there.
    pub write_word: Signal<In, Bits<WORD>>,
    /// What is looked for.
    pub word: Signal<In, Bits<WORD>>,
    /// Where it should stand, a cycle later.
    pub index: Signal<In, Bits<INDEX>>,
    /// It does, and is in use; combinational from `index`.
    pub agrees: Signal<Out, Bit>,
    used: [DFF<Bit>; ENTRIES],
    words: [DFF<Bits<WORD>>; ENTRIES],
    equal: [DFF<Bit>; ENTRIES],
    /// One of the entries up to this one is that at the index, and matches.
    found: [Signal<Local, Bit>; ENTRIES],
}

impl<const WORD: usize, const ENTRIES: usize, const INDEX: usize> Default
    for MatchTable<WORD, ENTRIES, INDEX>
{
    fn default() -> Self {
        const { assert!(ENTRIES == 1 << INDEX, "a table has as many entries as its index can name") };
        MatchTable {
            clock: Signal::default(),
            write_enable: Signal::default(),
            write_index: Signal::default(),
            write_used: Signal::default(),
            write_word: Signal::default(),
            word: Signal::default(),
            index: Signal::default(),
            agrees: Signal::default(),
            used: std::array::from_fn(|_| DFF::default()),
            words: std::array::from_fn(|_| DFF::default()),
            equal: std::array::from_fn(|_| DFF::default()),
            found: std::array::from_fn(|_| Signal::default()),
        }
    }
}

impl<const WORD: usize, const ENTRIES: usize, const INDEX: usize> Logic for MatchTable<WORD, ENTRIES, INDEX> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        for i in 0..ENTRIES {
            if self.write_enable.val() && self.write_index.val() == i as u64 {
                self.used[i].d.next = self.write_used.val();
                self.words[i].d.next = self.write_word.val();
            }
            self.equal[i].d.next = self.used[i].q.val() && self.words[i].q.val() == self.word.val();
            let here = self.equal[i].q.val() && self.index.val() == i as u64;
            self.found[i].next = if i == 0 { here } else { self.found[i - 1].val() || here };
        }
        self.agrees.next = self.found[ENTRIES - 1].val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, random};
    use rand::Rng;

    #[test]
    fn a_word_matches_where_it_stands() {
        let mut random = random();
        let block = MatchTable::<5, 4, 2>::default();
        let mut bench = Bench::clocked(block, |block| &mut block.clock).in_lock_step();
        let mut entries = [None; 4];
        let mut before: ([Option<u64>; 4], u64) = (entries, 0);
        let mut matches = 0;
        for _ in 0..2_000 {
            let (index, write_index) = (random.random_range(0..4usize), random.random_range(0..4usize));
            // So few that they are often equal.
            let (word, write_word) = (random.random_range(0..3u64), random.random_range(0..3u64));
            let (writes, used) = (random.random_bool(0.3), random.random_bool(0.8));
            let block = &mut bench.block;
            (block.index.next, block.word.next) = (bits(index as u64), bits(word));
            (block.write_index.next, block.write_word.next) = (bits(write_index as u64), bits(write_word));
            (block.write_enable.next, block.write_used.next) = (writes, used);
            bench.settle();
            let (entries_before, word_before) = before;
            let expected = entries_before[index] == Some(word_before);
            assert_eq!(bench.block.agrees.val(), expected);
            matches += u32::from(expected);
            before = (entries, word);
            if writes {
                entries[write_index] = used.then_some(write_word);
            }
            bench.tick();
        }
        assert!((300..1_500).contains(&matches), "{matches} of 2,000");
    }
}
