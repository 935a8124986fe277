//! Memories: the leaves that become block RAM, LUTRAM or UltraRAM.
//!
//! | Block | Ports | Use |
//! |---|---|---|
//! | [`Memory`] | one writes, one reads | FIFOs, tables, contexts |
//! | [`ByteMemory`] | the same, each byte written or not | payload, registers |
//! | [`CrossingMemory`] | one writes, one reads, two clocks | asynchronous FIFOs |
//! | [`LookupMemory`] | one writes, one reads without a clock | tables of up to 64 words that are read within the cycle |
//!
//! They share these rules:
//!
//! 1. A read takes one cycle, and one more with an output register. `read_data` keeps the word of the last read. Only
//!    [`LookupMemory`] answers within the cycle.
//! 2. A read in the cycle in which its word is written yields the word as it was before. A RAM that has no such mode pays with a
//!    register and a multiplexer for each bit. [`Memory`] does without them if it is made with [`Memory::without_old_word`]: such a
//!    read yields noise then, which in Rust and in simulated Verilog is the word beside it.
//! 3. The contents at power-on are defined, zero unless stated otherwise, so that Rust, Verilator, Icarus and the FPGA
//!    agree. Reset does not touch them.
//! 4. More than 16 address bits, and none, do not compile.
mod bytes;
mod crossing;
mod lookup;
mod simple;

pub use bytes::ByteMemory;
pub use crossing::CrossingMemory;
pub use lookup::LookupMemory;
pub use simple::Memory;

use rnic_kernel::literal::number_of;
use rnic_kernel::prelude::*;

/// Whether a memory may have this many address bits; 2^16 words of any width are more than one card has room for.
const fn is_address_width(bits: usize) -> bool {
    1 <= bits && bits <= 16
}

/// What a memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Block RAM: 36 Kbit each, the choice above some 64 words.
    Block,
    /// LUTs: 64 words or less, with the read register in flip-flops.
    Distributed,
    /// UltraRAM: 288 Kbit each, 4096 words of 72 bits. Its contents start as zeros and cannot start as anything else.
    Ultra,
}

impl Storage {
    fn style(self) -> &'static str {
        match self {
            Storage::Block => "block",
            Storage::Distributed => "distributed",
            Storage::Ultra => "ultra",
        }
    }

    /// What a memory of `2^address_bits` words is made of unless it says otherwise: LUTs up to 64 words, block RAM above.
    pub const fn for_words(address_bits: usize) -> Self {
        if address_bits <= 6 { Storage::Distributed } else { Storage::Block }
    }

    /// What a memory that was to be of this is made of, if it has no more than `2^words_log2` words: no RAM that is nearly empty.
    fn at_most(self, words_log2: usize) -> Self {
        match (self, words_log2) {
            (_, ..=6) => Storage::Distributed,
            (Storage::Ultra, ..=11) => Storage::Block,
            (storage, _) => storage,
        }
    }

    /// The words that a memory starts with: `contents`, followed by zeros.
    fn start<T: Synth>(self, address_bits: usize, contents: &[T]) -> Vec<T> {
        let count = 1 << address_bits;
        assert!(contents.len() <= count, "{} words in a memory of {count}", contents.len());
        let starts_as_zeros = contents.iter().all(|word| *word == T::default());
        assert!(self != Storage::Ultra || starts_as_zeros, "UltraRAM starts as zeros");
        let mut words = contents.to_vec();
        words.resize(count, T::default());
        words
    }
}

/// What a read yields whose word is written in the same cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Collision {
    /// The word as it was before.
    #[default]
    OldWord,
    /// Whatever the RAM gives.
    Noise,
}

impl Collision {
    /// The place that such a read shows.
    fn place(self, place: usize) -> usize {
        match self {
            Collision::Noise => place ^ 1,
            Collision::OldWord => place,
        }
    }

    /// The attribute of the array.
    fn attribute(self) -> &'static str {
        match self {
            Collision::Noise => ", no_rw_check",
            Collision::OldWord => "",
        }
    }

    /// What the module says of it.
    fn note(self) -> &'static str {
        match self {
            Collision::Noise => "a read of the word that is written in the same cycle yields noise",
            Collision::OldWord => "a read yields the word as it was before the write of the same cycle",
        }
    }
}

/// Declares the array `words` and states what it starts with. RAM of an FPGA starts as zeros unless told otherwise, and zeros that
/// are stated word by word cost synthesis nine tenths of its time to read a card, so only simulators are told of them.
fn declaration<T: Synth>(storage: Storage, collision: Collision, start: &[T]) -> String {
    let last = start.len() - 1;
    let zero = literal(T::default());
    let set = |(index, word): (usize, &T)| format!("    words[{index}] = {};\n", literal(*word));
    let others: String =
        start.iter().enumerate().filter(|(_, word)| **word != T::default()).map(set).collect();
    let start = format!(
        "integer index;\ninitial begin\n    \
         for (index = 0; index <= {last}; index = index + 1) words[index] = {zero};\n{others}end\n"
    );
    let start = if others.is_empty() { format!("`ifndef SYNTHESIS\n{start}`endif\n") } else { start };
    let attributes = format!("ram_style = \"{}\"{}", storage.style(), collision.attribute());
    format!("(* {attributes} *)\nreg {}words [0:{last}];\n{start}", range(T::BITS))
}

/// The declared range of a value, empty for a single bit.
fn range(width: usize) -> String {
    if width == 1 { String::new() } else { format!("[{}:0] ", width - 1) }
}

/// A value as a Verilog literal.
fn literal<T: Synth>(value: T) -> String {
    let number = number_of(&value.verilog()).expect("values of hardware are unsigned");
    format!("{}'h{number:x}", T::BITS)
}

/// The statement that clocks a word into `read_data`, through an output register if there is one.
/// `cut` is the part of the address that names one of `2^words_log2` words.
fn read_statements(output_register: bool, collision: Collision, words_log2: usize, cut: &str) -> String {
    let (word, output) = match output_register {
        true => ("fetched", "    read_data <= fetched;\n"),
        false => ("read_data", ""),
    };
    let read = format!("    if (read_enable) {word} <= words[read_address{cut}];\n");
    let noise = match collision {
        Collision::Noise => format!(
            "`ifndef SYNTHESIS\n    \
             if (read_enable && write_enable && write_address{cut} == read_address{cut})\n        \
             {word} <= words[read_address{cut} ^ {words_log2}'h1];\n\
             `endif\n"
        ),
        Collision::OldWord => String::new(),
    };
    read + &noise + output
}

/// Names the bits of addresses that a memory of `2^words_log2` words does not use, so that lint knows of them.
fn unused<const ADDRESS: usize>(words_log2: usize) -> String {
    let above = format!("[{}:{words_log2}]", ADDRESS - 1);
    format!("wire unused = &{{1'b0, write_address{above}, read_address{above}}};\n")
}

/// The low bits of a vector, as Verilog.
fn part(bits: usize) -> String {
    format!("[{}:0]", bits - 1)
}

/// Declares the stages between the array and `read_data`.
fn read_registers<T: Synth>(output_register: bool) -> String {
    let zero = literal(T::default());
    if output_register {
        format!("reg {}fetched;\ninitial fetched = {zero};\ninitial read_data = {zero};\n", range(T::BITS))
    } else {
        format!("initial read_data = {zero};\n")
    }
}

/// The position of a word.
fn index<const ADDRESS: usize>(address: Bits<ADDRESS>) -> usize {
    address.to_u64() as usize
}
