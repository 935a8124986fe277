//! Simple dual-port memory: one port writes, one reads.
//!
//! Nearly all memories of the card are of this kind.
//!
//! ```text
//!  write_enable, ─┐  ┌─────────────────────┐
//!  write_address ─┼─>│ 2^ADDRESS words of T│   ┌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┐
//!  write_data ────┘  │                     ├──>│ output register ├──> read_data
//!  read_enable, ────>│                     │   └╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┘
//!  read_address      └─────────────────────┘
//! ```
//!
//! Word 2 is written in cycle 1, read while it is written again in cycle 3, and read once more:
//! ```text
#![doc = include_str!("waves/simple.txt")]
//! ```
//!
//! Latency 1 cycle, 2 with an output register; one write and one read a cycle.
//!
//! 1. A read yields the word as it was before the write of the same cycle, or with [`Memory::without_old_word`] noise.
//! 2. `read_data` keeps the word of the last read; `read_enable` gates the array, never the output register.
//!
//! A memory has as many words as its address can name, or a smaller power of two, which is a value and no type
//! ([`Memory::with_words_log2`]); the upper bits of its addresses have no meaning then, and must agree wherever addresses are
//! compared.
//!
//! More than 16 address bits do not compile; more contents than words, contents in UltraRAM, and more words than the address can
//! name panic.
use super::{
    Collision, Storage, declaration, index, is_address_width, part, read_registers, read_statements, unused,
};
use rnic_kernel::prelude::*;

/// Up to `2^ADDRESS` words with a port to write and a port to read.
#[derive(Clone, Debug, LogicBlock, Registers, Construct)]
#[require(is_address_width(ADDRESS), "ADDRESS is 1 to 16")]
#[new(
    /// Makes a memory of zeros.
    storage: Storage,
)]
pub struct Memory<T: Synth, const ADDRESS: usize> {
    /// Clock of both ports.
    pub clock: Signal<In, Clock>,
    /// Write in this cycle.
    pub write_enable: Signal<In, Bit>,
    /// Index of the word to write.
    pub write_address: Signal<In, Bits<ADDRESS>>,
    /// Word to write.
    pub write_data: Signal<In, T>,
    /// Read in this cycle.
    pub read_enable: Signal<In, Bit>,
    /// Index of the word to read.
    pub read_address: Signal<In, Bits<ADDRESS>>,
    /// The word that was read last; registered.
    pub read_data: Signal<Out, T>,
    #[init(storage)]
    _storage: Storage,
    _output_register: bool,
    _collision: Collision,
    #[init(ADDRESS)]
    _words_log2: usize,
    #[init(storage.start(ADDRESS, &[]))]
    _start: Vec<T>,
    #[init(storage.start(ADDRESS, &[]))]
    _words: Vec<T>,
    _fetched: T,
}

impl<T: Synth, const ADDRESS: usize> Memory<T, ADDRESS> {
    /// Makes a memory that starts with `contents`, followed by zeros.
    ///
    /// # Panics
    /// If there are more contents than words, or any but zeros in UltraRAM.
    pub fn with_contents(storage: Storage, contents: &[T]) -> Self {
        let start = storage.start(ADDRESS, contents);
        Memory { _words: start.clone(), _start: start, ..Memory::new(storage) }
    }

    /// Adds the output register of the RAM: one more cycle, and none of the slow way out of the array in the next
    /// stage.
    pub fn with_output_register(mut self) -> Self {
        self._output_register = true;
        self
    }

    /// Lets a read of the word that is written in the same cycle yield noise: for queues and buffers, which read no word before the
    /// cycle after its write.
    pub fn without_old_word(mut self) -> Self {
        self._collision = Collision::Noise;
        self
    }

    /// Cuts the memory to its first `2^words_log2` words: a size that a configuration sets. What it is made of follows, if that was
    /// chosen for more words: UltraRAM that is not full becomes block RAM, and 64 words become LUTs.
    ///
    /// # Panics
    /// If it is one word, or more than the address can name, or fewer words than those that the memory starts with.
    pub fn with_words_log2(mut self, words_log2: usize) -> Self {
        let fits = (1..=ADDRESS).contains(&words_log2);
        assert!(fits, "2^{words_log2} words behind an address of {ADDRESS} bits");
        if words_log2 < ADDRESS {
            self._storage = self._storage.at_most(words_log2);
        }
        self._words_log2 = words_log2;
        let words = 1 << words_log2;
        assert!(
            self._start[words..].iter().all(|word| *word == T::default()),
            "contents beyond {words} words"
        );
        self._start.truncate(words);
        self._words.truncate(words);
        self
    }

    /// Reads a word, or none, in this cycle.
    #[kernel]
    pub fn read(&mut self, enable: Bit, address: Bits<ADDRESS>) {
        self.read_enable.next = enable;
        self.read_address.next = address;
    }

    /// Writes `word`, or nothing, in this cycle.
    #[kernel]
    pub fn write(&mut self, enable: Bit, address: Bits<ADDRESS>, word: T) {
        self.write_enable.next = enable;
        self.write_address.next = address;
        self.write_data.next = word;
    }

    fn place(&self, address: Bits<ADDRESS>) -> usize {
        index(address) & (self._words.len() - 1)
    }
}

/// A memory of zeros, of LUTs up to 64 words and of block RAM above.
impl<T: Synth, const ADDRESS: usize> Default for Memory<T, ADDRESS> {
    fn default() -> Self {
        Memory::new(Storage::for_words(ADDRESS))
    }
}

impl<T: Synth, const ADDRESS: usize> Logic for Memory<T, ADDRESS> {
    fn update(&mut self) {
        if !self.clock.pos_edge() {
            return;
        }
        let place = self.place(self.read_address.val());
        let collides = self.write_enable.val() && place == self.place(self.write_address.val());
        let read_word = self._words[if collides { self._collision.place(place) } else { place }];
        if self._output_register {
            self.read_data.next = self._fetched;
        }
        if self.read_enable.val() {
            match self._output_register {
                true => self._fetched = read_word,
                false => self.read_data.next = read_word,
            }
        }
        if self.write_enable.val() {
            let place = self.place(self.write_address.val());
            self._words[place] = self.write_data.val();
        }
    }

    fn connect(&mut self) {
        self.read_data.connect();
    }

    fn hdl(&self) -> Verilog {
        let words_log2 = self._words_log2;
        let (cut, unused) = if words_log2 == ADDRESS {
            (String::new(), String::new())
        } else {
            (part(words_log2), unused::<ADDRESS>(words_log2))
        };
        let body = format!(
            "{}{}{unused}always @(posedge clock) begin\n    if (write_enable) words[write_address{cut}] <= write_data;\n{}end\n",
            declaration(self._storage, self._collision, &self._start),
            read_registers::<T>(self._output_register),
            read_statements(self._output_register, self._collision, words_log2, &cut),
        );
        let note = format!("One port writes, one reads; {}.", self._collision.note());
        rnic_kernel::leaf(core::any::type_name::<Self>(), &note, body, &["read_data"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Random, Stimulus, Waves, random};
    use rand::Rng;

    type Small = Memory<Bits<12>, 3>;

    fn bench(memory: Small) -> Bench<Small> {
        Bench::clocked(memory, |block| &mut block.clock)
    }

    fn write(bench: &mut Bench<Small>, address: u64, data: u64) {
        bench.block.write_enable.next = true;
        bench.block.write_address.next = bits(address);
        bench.block.write_data.next = bits(data);
    }

    fn read(bench: &mut Bench<Small>, address: u64) {
        bench.block.read_enable.next = true;
        bench.block.read_address.next = bits(address);
    }

    #[test]
    fn a_read_of_what_is_written_yields_the_old_word_or_noise() {
        for (makes, expected) in
            [((|memory| memory) as fn(Small) -> Small, 0x123), (Small::without_old_word, 0x777)]
        {
            let memory = Small::with_contents(Storage::Block, &[bits(0x123), bits(0x777)]);
            let mut bench = bench(makes(memory)).in_lock_step();
            write(&mut bench, 0, 0x456);
            read(&mut bench, 0);
            bench.tick();
            assert_eq!(bench.block.read_data.val(), bits(expected));
            bench.block.write_enable.next = false;
            bench.tick();
            assert_eq!(bench.block.read_data.val(), bits(0x456));
        }
    }

    /// Random traffic, with and without an output register, with noise and without.
    fn is_the_same_in_verilog(memory: Small, random: &mut Random) {
        for memory in [memory.clone(), memory.clone().with_output_register(), memory.without_old_word()] {
            let mut bench = bench(memory).in_lock_step();
            for _ in 0..500 {
                bench.block.write_enable.next = random.random();
                bench.block.write_address.next = Stimulus::sample(random);
                bench.block.write_data.next = Stimulus::sample(random);
                bench.block.read_enable.next = random.random();
                bench.block.read_address.next = Stimulus::sample(random);
                bench.tick();
            }
        }
    }

    #[test]
    fn random_traffic_is_the_same_in_verilog() {
        let mut random = random();
        let contents: Vec<Bits<12>> = (0..4).map(|_| Stimulus::sample(&mut random)).collect();
        for storage in [Storage::Block, Storage::Distributed] {
            let memory = Small::with_contents(storage, &contents);
            is_the_same_in_verilog(memory.clone(), &mut random);
            is_the_same_in_verilog(memory.with_words_log2(2), &mut random);
        }
    }

    #[test]
    fn a_memory_that_is_cut_takes_the_low_bits_of_its_addresses() {
        let mut bench = bench(Small::new(Storage::Block).with_words_log2(2));
        write(&mut bench, 1, 0x123);
        bench.tick();
        bench.block.write_enable.next = false;
        read(&mut bench, 5);
        bench.tick();
        assert_eq!(bench.block.read_data.val(), bits(0x123));
    }

    #[test]
    fn what_a_cut_memory_is_made_of_follows_its_words() {
        let made_of =
            |storage, words_log2| Memory::<Bit, 14>::new(storage).with_words_log2(words_log2)._storage;
        for (words_log2, block, ultra) in [
            (14, Storage::Block, Storage::Ultra),
            (12, Storage::Block, Storage::Ultra),
            (11, Storage::Block, Storage::Block),
            (7, Storage::Block, Storage::Block),
            (6, Storage::Distributed, Storage::Distributed),
        ] {
            assert_eq!([Storage::Block, Storage::Ultra].map(|of| made_of(of, words_log2)), [block, ultra]);
        }
    }

    #[test]
    #[should_panic(expected = "2^4 words behind an address of 3 bits")]
    fn more_words_than_an_address_names_are_refused() {
        Small::new(Storage::Block).with_words_log2(4);
    }

    #[test]
    #[should_panic(expected = "contents beyond 4 words")]
    fn a_memory_is_not_cut_below_its_contents() {
        Small::with_contents(Storage::Block, &[bits(1); 5]).with_words_log2(2);
    }

    #[test]
    fn impossible_widths_are_refused() {
        assert_eq!(Memory::<Bit, 16>::REFUSAL, None);
        assert_eq!(Memory::<Bit, 17>::REFUSAL, Some("Memory: ADDRESS is 1 to 16"));
        assert!(Memory::<Bit, 0>::REFUSAL.is_some());
    }

    #[test]
    fn contents_may_fill_the_memory_and_ultra_ram_with_zeros() {
        Small::with_contents(Storage::Block, &[bits(1); 8]);
        Small::with_contents(Storage::Ultra, &[bits(0); 8]);
    }

    #[test]
    #[should_panic(expected = "9 words in a memory of 8")]
    fn more_contents_than_words_are_refused() {
        Small::with_contents(Storage::Block, &[bits(1); 9]);
    }

    #[test]
    #[should_panic(expected = "UltraRAM starts as zeros")]
    fn contents_of_ultra_ram_are_refused() {
        Small::with_contents(Storage::Ultra, &[bits(1)]);
    }

    #[test]
    fn small_memories_are_of_luts_and_large_ones_of_block_ram() {
        assert_eq!(Memory::<Bit, 6>::default()._storage, Storage::Distributed);
        assert_eq!(Memory::<Bit, 7>::default()._storage, Storage::Block);
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("write_enable").signal("write_address").when("write_enable");
        let waves = waves.signal("write_data").when("write_enable").signal("read_enable");
        let waves = waves.signal("read_address").when("read_enable").signal("read_data");
        let mut bench = bench(Small::new(Storage::Block)).recording(waves);
        for cycle in 0..7 {
            write(&mut bench, 2, if cycle == 1 { 0x111 } else { 0x222 });
            read(&mut bench, 2);
            bench.block.write_enable.next = cycle == 1 || cycle == 3;
            bench.block.read_enable.next = cycle == 3 || cycle == 4;
            bench.tick();
        }
        bench.waves().expect("memory/waves/simple.txt");
    }
}
