//! Simple dual-port memory with a write strobe for each byte.
//!
//! Payload arrives at any alignment, and registers are written in part; a read before each write would cost a port.
//!
//! ```text
//!  write_strobe, ─┐  ┌─────────────────────────┐
//!  write_address ─┼─>│ 2^ADDRESS words of BITS │   ┌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┐
//!  write_data ────┘  │                         ├──>│ output register ├──> read_data
//!  read_enable, ────>│                         │   └╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┘
//!  read_address      └─────────────────────────┘
//! ```
//!
//! The upper, then the lower byte of word 2 is written:
//! ```text
#![doc = include_str!("waves/bytes.txt")]
//! ```
//!
//! Latency 1 cycle, 2 with an output register; one write and one read a cycle.
//!
//! 1. A byte changes only when its strobe is set.
//! 2. A read yields the word as it was before the write of the same cycle.
//! 3. `read_data` keeps the word of the last read; `read_enable` gates the array, never the output register.
//!
//! Refuses words that are not `BYTES` bytes, more than 16 address bits, more contents than words, and contents in
//! UltraRAM.
use super::{Collision, Storage, declaration, index, is_address_width, read_registers, read_statements};
use num_bigint::BigUint;
use rnic_kernel::prelude::*;

/// `2^ADDRESS` words of `BITS` bits, which are `BYTES` bytes, with a port to write and a port to read.
#[derive(Clone, Debug, LogicBlock, Registers, Construct)]
#[require(BITS == 8 * BYTES)]
#[require(is_address_width(ADDRESS), "ADDRESS is 1 to 16")]
#[new(
    /// Makes a memory of zeros.
    storage: Storage,
)]
pub struct ByteMemory<const BITS: usize, const BYTES: usize, const ADDRESS: usize> {
    /// Clock of both ports.
    pub clock: Signal<In, Clock>,
    /// Bytes to write in this cycle; bit 0 is the strobe of bits 7:0.
    pub write_strobe: Signal<In, Bits<BYTES>>,
    /// Index of the word to write.
    pub write_address: Signal<In, Bits<ADDRESS>>,
    /// Word to write.
    pub write_data: Signal<In, Bits<BITS>>,
    /// Read in this cycle.
    pub read_enable: Signal<In, Bit>,
    /// Index of the word to read.
    pub read_address: Signal<In, Bits<ADDRESS>>,
    /// The word that was read last; registered.
    pub read_data: Signal<Out, Bits<BITS>>,
    #[init(storage)]
    _storage: Storage,
    _output_register: bool,
    #[init(storage.start(ADDRESS, &[]))]
    _start: Vec<Bits<BITS>>,
    #[init(storage.start(ADDRESS, &[]))]
    _words: Vec<Bits<BITS>>,
    _fetched: Bits<BITS>,
}

impl<const BITS: usize, const BYTES: usize, const ADDRESS: usize> ByteMemory<BITS, BYTES, ADDRESS> {
    /// Makes a memory that starts with `contents`, followed by zeros.
    ///
    /// # Panics
    /// As [`super::Memory::with_contents`] does.
    pub fn with_contents(storage: Storage, contents: &[Bits<BITS>]) -> Self {
        let start = storage.start(ADDRESS, contents);
        ByteMemory { _words: start.clone(), _start: start, ..ByteMemory::new(storage) }
    }

    /// Adds the output register of the RAM, as [`super::Memory::with_output_register`] does.
    pub fn with_output_register(mut self) -> Self {
        self._output_register = true;
        self
    }

    /// Reads a word, or none, in this cycle.
    #[kernel]
    pub fn read(&mut self, enable: Bit, address: Bits<ADDRESS>) {
        self.read_enable.next = enable;
        self.read_address.next = address;
    }

    /// Writes the bytes of `word` that `strobe` names, in this cycle.
    #[kernel]
    pub fn write(&mut self, strobe: Bits<BYTES>, address: Bits<ADDRESS>, word: Bits<BITS>) {
        self.write_strobe.next = strobe;
        self.write_address.next = address;
        self.write_data.next = word;
    }
}

/// A memory of zeros, of LUTs up to 64 words and of block RAM above.
impl<const BITS: usize, const BYTES: usize, const ADDRESS: usize> Default
    for ByteMemory<BITS, BYTES, ADDRESS>
{
    fn default() -> Self {
        ByteMemory::new(Storage::for_words(ADDRESS))
    }
}

impl<const BITS: usize, const BYTES: usize, const ADDRESS: usize> Logic for ByteMemory<BITS, BYTES, ADDRESS> {
    fn update(&mut self) {
        if !self.clock.pos_edge() {
            return;
        }
        let read_word = self._words[index(self.read_address.val())];
        if self._output_register {
            self.read_data.next = self._fetched;
        }
        if self.read_enable.val() {
            match self._output_register {
                true => self._fetched = read_word,
                false => self.read_data.next = read_word,
            }
        }
        if self.write_strobe.val().any() {
            let word = &mut self._words[index(self.write_address.val())];
            *word = merge::<BITS, BYTES>(*word, self.write_data.val(), self.write_strobe.val());
        }
    }

    fn connect(&mut self) {
        self.read_data.connect();
    }

    fn hdl(&self) -> Verilog {
        let write = |byte: usize| {
            let slice = format!("{}:{}", 8 * byte + 7, 8 * byte);
            let strobe = if BYTES == 1 { "write_strobe".into() } else { format!("write_strobe[{byte}]") };
            format!("    if ({strobe}) words[write_address][{slice}] <= write_data[{slice}];\n")
        };
        let body = format!(
            "{}{}always @(posedge clock) begin\n{}{}end\n",
            declaration(self._storage, Collision::OldWord, &self._start),
            read_registers::<Bits<BITS>>(self._output_register),
            (0..BYTES).map(write).collect::<String>(),
            read_statements(self._output_register, Collision::OldWord, ADDRESS, ""),
        );
        let note = "As a simple dual-port memory, with one write strobe a byte.";
        rnic_kernel::leaf(core::any::type_name::<Self>(), note, body, &["read_data"])
    }
}

/// `old` with the strobed bytes of `new`.
fn merge<const BITS: usize, const BYTES: usize>(
    old: Bits<BITS>,
    new: Bits<BITS>,
    strobe: Bits<BYTES>,
) -> Bits<BITS> {
    let bytes = |value: Bits<BITS>| {
        let mut bytes = BigUint::from(value).to_bytes_le();
        bytes.resize(BYTES, 0);
        bytes
    };
    let (old, new) = (bytes(old), bytes(new));
    let merged = (0..BYTES).map(|byte| if strobe.get_bit(byte) { new[byte] } else { old[byte] });
    BigUint::from_bytes_le(&merged.collect::<Vec<_>>()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Stimulus, Waves, random};
    use rand::Rng;

    type Small = ByteMemory<32, 4, 3>;

    fn bench<const BITS: usize, const BYTES: usize>(
        memory: ByteMemory<BITS, BYTES, 3>,
    ) -> Bench<ByteMemory<BITS, BYTES, 3>> {
        Bench::clocked(memory, |block| &mut block.clock)
    }

    #[test]
    fn only_strobed_bytes_change() {
        let mut bench = bench(Small::with_contents(Storage::Block, &[bits(0x11223344)]));
        bench.block.write_strobe.next = bits(0b0101);
        bench.block.write_data.next = bits(0xaabbccdd);
        bench.block.read_enable.next = true;
        bench.tick();
        assert_eq!(bench.block.read_data.val(), bits(0x11223344), "the word before the write");
        bench.tick();
        assert_eq!(bench.block.read_data.val(), bits(0x11bb33dd));
    }

    #[test]
    fn random_traffic_is_the_same_in_verilog() {
        let mut random = random();
        let contents: Vec<Bits<32>> = (0..5).map(|_| Stimulus::sample(&mut random)).collect();
        let memory = Small::with_contents(Storage::Block, &contents);
        for memory in [memory.clone(), memory.with_output_register()] {
            let mut bench = bench(memory).in_lock_step();
            for _ in 0..500 {
                bench.block.write_strobe.next = Stimulus::sample(&mut random);
                bench.block.write_address.next = Stimulus::sample(&mut random);
                bench.block.write_data.next = Stimulus::sample(&mut random);
                bench.block.read_enable.next = random.random();
                bench.block.read_address.next = Stimulus::sample(&mut random);
                bench.tick();
            }
        }
    }

    #[test]
    fn a_word_must_be_whole_bytes() {
        assert_eq!(ByteMemory::<8, 1, 3>::REFUSAL, None);
        assert_eq!(ByteMemory::<12, 1, 3>::REFUSAL, Some("ByteMemory is built with BITS == 8 * BYTES only"));
        assert!(ByteMemory::<16, 1, 3>::REFUSAL.is_some());
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("write_strobe").signal("write_address").signal("write_data");
        let waves =
            waves.signal("read_enable").signal("read_address").when("read_enable").signal("read_data");
        let mut bench = bench(ByteMemory::<16, 2, 3>::new(Storage::Block)).recording(waves);
        bench.block.write_address.next = bits(2);
        bench.block.read_address.next = bits(2);
        for cycle in 0..7 {
            bench.block.write_strobe.next = bits(match cycle {
                1 => 2,
                3 => 1,
                _ => 0,
            });
            bench.block.write_data.next = bits(if cycle < 3 { 0xabab } else { 0xcdcd });
            bench.block.read_enable.next = cycle == 2 || cycle == 4;
            bench.tick();
        }
        bench.waves().expect("memory/waves/bytes.txt");
    }
}
