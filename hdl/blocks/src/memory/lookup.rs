//! Lookup memory: one port writes, one reads, and the word is available in the cycle of its address.
//!
//! For tables so small that LUTs hold them, where the address comes too late for a read that takes a cycle.
//!
//! ```text
//!  write_enable, ─┐  ┌─────────────────────┐
//!  write_address ─┼─>│ 2^ADDRESS words of T├──> read_data
//!  write_data ────┘  │                     │
//!  read_address ────>│                     │
//!                    └─────────────────────┘
//! ```
//!
//! Word 2 is written in cycle 1, and read all the time:
//! ```text
#![doc = include_str!("waves/lookup.txt")]
//! ```
//!
//! No latency; one write and one read a cycle. A read of 32 words is one level of LUTs.
//!
//! 1. `read_data` is the word at `read_address`; a write is visible from the next cycle on.
//!
//! More than 6 address bits do not compile.
use super::{Collision, Storage, declaration, index};
use rnic_kernel::prelude::*;

/// Address bits of the largest memory that needs no multiplexers around its LUTs.
const LOOKUP_MAX: usize = 6;

/// `2^ADDRESS` words of LUTs with a port to write and a port to read.
#[derive(Clone, Debug, LogicBlock, Registers, Construct)]
#[require(ADDRESS <= LOOKUP_MAX, "a larger memory needs multiplexers")]
pub struct LookupMemory<T: Synth, const ADDRESS: usize> {
    /// Clock of the writing port.
    pub clock: Signal<In, Clock>,
    /// Write in this cycle.
    pub write_enable: Signal<In, Bit>,
    /// Index of the word to write.
    pub write_address: Signal<In, Bits<ADDRESS>>,
    /// Word to write.
    pub write_data: Signal<In, T>,
    /// Index of the word to read.
    pub read_address: Signal<In, Bits<ADDRESS>>,
    /// Word at `read_address`; combinational.
    pub read_data: Signal<Out, T>,
    #[init(vec![T::default(); 1 << ADDRESS])]
    _words: Vec<T>,
}

impl<T: Synth, const ADDRESS: usize> LookupMemory<T, ADDRESS> {
    /// Writes `word`, or nothing, in this cycle.
    #[kernel]
    pub fn write(&mut self, enable: Bit, address: Bits<ADDRESS>, word: T) {
        self.write_enable.next = enable;
        self.write_address.next = address;
        self.write_data.next = word;
    }
}

impl<T: Synth, const ADDRESS: usize> Logic for LookupMemory<T, ADDRESS> {
    fn update(&mut self) {
        if self.clock.pos_edge() && self.write_enable.val() {
            self._words[index(self.write_address.val())] = self.write_data.val();
        }
        self.read_data.next = self._words[index(self.read_address.val())];
    }

    fn connect(&mut self) {
        self.read_data.connect();
    }

    fn hdl(&self) -> Verilog {
        let zeros = vec![T::default(); 1 << ADDRESS];
        let body = format!(
            "{}assign read_data = words[read_address];\nalways @(posedge clock) begin\n    \
             if (write_enable) words[write_address] <= write_data;\nend\n",
            declaration(Storage::Distributed, Collision::OldWord, &zeros),
        );
        let note = "One port writes, one reads without a clock.";
        rnic_kernel::leaf(core::any::type_name::<Self>(), note, body, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Waves, random};
    use rand::Rng;

    type Small = LookupMemory<Bits<12>, 3>;

    fn bench() -> Bench<Small> {
        Bench::clocked(Small::default(), |block| &mut block.clock)
    }

    #[test]
    fn a_word_is_read_in_the_cycle_of_its_address() {
        let mut random = random();
        let mut bench = bench().in_lock_step();
        let mut words = [0; 8];
        for _ in 0..1_000 {
            let (read, write) = (random.random_range(0..8usize), random.random_range(0..8usize));
            let (writes, data) = (random.random::<bool>(), random.random_range(0..1 << 12));
            bench.block.write_enable.next = writes;
            bench.block.write_address.next = bits(write as u64);
            bench.block.write_data.next = bits(data);
            bench.block.read_address.next = bits(read as u64);
            bench.settle();
            assert_eq!(bench.block.read_data.val(), bits(words[read]));
            if writes {
                words[write] = data;
            }
            bench.tick();
        }
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("write_enable").signal("write_data").when("write_enable");
        let waves = waves.signal("read_address").signal("read_data");
        let mut bench = bench().recording(waves);
        bench.block.write_address.next = bits(2);
        bench.block.write_data.next = bits(0x111);
        for cycle in 0..5 {
            bench.block.write_enable.next = cycle == 1;
            bench.block.read_address.next = bits(if cycle == 3 { 1 } else { 2 });
            bench.tick();
        }
        bench.waves().expect("memory/waves/lookup.txt");
    }
}
