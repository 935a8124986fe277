//! Memory between two clocks: one writes, the other reads.
//!
//! For an asynchronous FIFO only, whose pointers guarantee that no word is read while it is written.
//!
//! ```text
//!  write_clock          ┌─────────────────────┐     read_clock
//!  write_enable, ──────>│ 2^ADDRESS words of T│<─── read_enable,
//!  write_address,       │                     │     read_address
//!  write_data           │                     ├───> read_data
//!                       └─────────────────────┘
//! ```
//!
//! With both clocks equal, a word is written in cycle 1 and read in cycle 3:
//! ```text
#![doc = include_str!("waves/crossing.txt")]
//! ```
//!
//! Latency 1 cycle of the reading clock after the write has reached the array; one write and one read a cycle.
//!
//! 1. `read_data` keeps the word of the last read.
//! 2. The owner never reads a word in the cycle in which it is written; what that yields is undefined.
//!
//! Refuses more than 16 address bits. It has no initial contents but zeros, on which no user may rely.
use super::{Collision, Storage, declaration, index, is_address_width, read_registers, read_statements};
use rnic_kernel::prelude::*;

/// `2^ADDRESS` words, written with one clock and read with another.
#[derive(Clone, Debug, LogicBlock, Registers, Construct)]
#[require(is_address_width(ADDRESS), "ADDRESS is 1 to 16")]
#[new(
    /// Makes a memory of block RAM or of LUTs. UltraRAM, which has one clock, panics.
    storage: Storage,
)]
pub struct CrossingMemory<T: Synth, const ADDRESS: usize> {
    /// Clock of the writing port.
    pub write_clock: Signal<In, Clock>,
    /// Write in this cycle.
    pub write_enable: Signal<In, Bit>,
    /// Index of the word to write.
    pub write_address: Signal<In, Bits<ADDRESS>>,
    /// Word to write.
    pub write_data: Signal<In, T>,
    /// Clock of the reading port.
    pub read_clock: Signal<In, Clock>,
    /// Read in this cycle.
    pub read_enable: Signal<In, Bit>,
    /// Index of the word to read.
    pub read_address: Signal<In, Bits<ADDRESS>>,
    /// The word that was read last; registered with the reading clock.
    pub read_data: Signal<Out, T>,
    #[init(with_two_clocks(storage))]
    _storage: Storage,
    #[init(vec![T::default(); 1 << ADDRESS])]
    _words: Vec<T>,
}

fn with_two_clocks(storage: Storage) -> Storage {
    assert!(storage != Storage::Ultra, "UltraRAM has one clock");
    storage
}

impl<T: Synth, const ADDRESS: usize> Logic for CrossingMemory<T, ADDRESS> {
    fn update(&mut self) {
        if self.read_clock.pos_edge() && self.read_enable.val() {
            self.read_data.next = self._words[index(self.read_address.val())];
        }
        if self.write_clock.pos_edge() && self.write_enable.val() {
            self._words[index(self.write_address.val())] = self.write_data.val();
        }
    }

    fn connect(&mut self) {
        self.read_data.connect();
    }

    fn hdl(&self) -> Verilog {
        let zeros = vec![T::default(); 1 << ADDRESS];
        let body = format!(
            "{}{}always @(posedge write_clock) begin\n    if (write_enable) words[write_address] <= write_data;\nend\n\
             always @(posedge read_clock) begin\n{}end\n",
            declaration(self._storage, Collision::OldWord, &zeros),
            read_registers::<T>(false),
            read_statements(false, Collision::OldWord, ADDRESS, ""),
        );
        let note = "One clock writes, another reads; no word is read while it is written.";
        rnic_kernel::leaf(core::any::type_name::<Self>(), note, body, &["read_data"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Stimulus, Waves, random};
    use rand::Rng;

    type Small = CrossingMemory<Bits<12>, 3>;

    fn bench(memory: Small) -> Bench<Small> {
        Bench::with_clocks(memory, vec![|block| &mut block.write_clock, |block| &mut block.read_clock])
    }

    #[test]
    fn random_traffic_is_the_same_in_verilog() {
        let mut random = random();
        for storage in [Storage::Block, Storage::Distributed] {
            let mut bench = bench(Small::new(storage)).in_lock_step();
            for _ in 0..500 {
                let address: Bits<3> = Stimulus::sample(&mut random);
                bench.block.write_enable.next = random.random();
                bench.block.write_address.next = address;
                bench.block.write_data.next = Stimulus::sample(&mut random);
                bench.block.read_enable.next = random.random();
                // Another word, as the owner promises.
                bench.block.read_address.next = address + 1;
                bench.tick_clocks(&[random.random_range(0..2)]);
            }
        }
    }

    #[test]
    fn ultraram_is_refused() {
        assert_eq!(Small::REFUSAL, None);
        assert!(CrossingMemory::<Bit, 17>::REFUSAL.is_some());
    }

    #[test]
    #[should_panic(expected = "UltraRAM has one clock")]
    fn ultra_ram_is_refused() {
        Small::new(Storage::Ultra);
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("write_enable").signal("write_data").when("write_enable");
        let waves = waves.signal("read_enable").signal("read_data");
        let mut bench = bench(Small::new(Storage::Block)).recording(waves);
        bench.block.write_data.next = bits(0x111);
        for cycle in 0..5 {
            bench.block.write_enable.next = cycle == 1;
            bench.block.read_enable.next = cycle == 3;
            bench.tick();
        }
        bench.waves().expect("memory/waves/crossing.txt");
    }
}
