//! Match table: compares a word with the entry at an index that is known a cycle later than the word.
//!
//! ```text
//!  write ──> entries ──> entry at index ──┐
//!  index ───────┘                         = ──> agrees
//!  word ──> register ─────────────────────┘
//! ```
//!
//! Latency 1 cycle from `word`, none from `index`; one word a cycle. Not reset: entries stay as they were written.
//! The entries are in LUTs used as memory, and one of them is compared.
//!
//! 1. `agrees` says whether the entry at `index` is in use and equal to the `word` of the cycle before.
//! 2. A write takes effect in the next cycle.
use crate::memory::LookupMemory;
use rnic_kernel::prelude::*;

/// An entry of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Entry<const WORD: usize> {
    used: Bit,
    word: Bits<WORD>,
}

/// The table. `ENTRIES` is `2^INDEX`.
#[clocked]
#[derive(LogicBlock, Registers, Construct)]
#[require(ENTRIES == 1 << INDEX, "a table has as many entries as its index can name")]
pub struct MatchTable<const WORD: usize, const ENTRIES: usize, const INDEX: usize> {
    /// Writes an entry in this cycle.
    pub write_enable: Signal<In, Bit>,
    /// Index of the entry to write.
    pub write_index: Signal<In, Bits<INDEX>>,
    /// The entry is in use; low frees it.
    pub write_used: Signal<In, Bit>,
    /// Word of the entry.
    pub write_word: Signal<In, Bits<WORD>>,
    /// Word to compare.
    pub word: Signal<In, Bits<WORD>>,
    /// Index of the entry to compare with, a cycle after `word`.
    pub index: Signal<In, Bits<INDEX>>,
    /// The entry is in use and equal to the word; combinational from `index`.
    pub agrees: Signal<Out, Bit>,
    entries: LookupMemory<Entry<WORD>, INDEX>,
    wanted: DFF<Bits<WORD>>,
}

impl<const WORD: usize, const ENTRIES: usize, const INDEX: usize> Logic for MatchTable<WORD, ENTRIES, INDEX> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.entries.write_enable.next = self.write_enable.val();
        self.entries.write_address.next = self.write_index.val();
        self.entries.write_data.next =
            Entry::<WORD> { used: self.write_used.val(), word: self.write_word.val() };
        self.entries.read_address.next = self.index.val();
        self.wanted.d.next = self.word.val();
        let entry = self.entries.read_data.val();
        self.agrees.next = entry.used && entry.word == self.wanted.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, random};
    use rand::Rng;

    #[test]
    fn a_word_matches_only_the_entry_that_holds_it() {
        let mut random = random();
        let block = MatchTable::<5, 4, 2>::default();
        let mut bench = Bench::clocked(block, |block| &mut block.clock).in_lock_step();
        let mut entries = [None; 4];
        let mut word_before = 0;
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
            let expected = entries[index] == Some(word_before);
            assert_eq!(bench.block.agrees.val(), expected);
            matches += u32::from(expected);
            word_before = word;
            if writes {
                entries[write_index] = used.then_some(write_word);
            }
            bench.tick();
        }
        assert!((300..1_500).contains(&matches), "{matches} of 2,000");
    }
}
