//! True dual-port memory: two ports, each of which reads or writes.
//!
//! A table with two owners, such as the doorbell's half and the pipeline's half of a QP record, needs two full ports.
//!
//! ```text
//!  a_enable, a_write, a_address, ──> ┌─────────────────────┐ <── b_enable, b_write, b_address,
//!  a_write_data                      │ 2^ADDRESS words of T│     b_write_data
//!  a_read_data <──────────────────── └─────────────────────┘ ──> b_read_data
//! ```
//!
//! Port a writes word 2 in cycle 1; port b reads it in cycles 1 and 2:
//! ```text
#![doc = include_str!("waves/dual.txt")]
//! ```
//!
//! Latency 1 cycle; each port one read, one write or both (of one word) a cycle.
//!
//! 1. A read, by either port, yields the word as it was before any write of the same cycle.
//! 2. `read_data` keeps the word of the last cycle in which its port was enabled.
//! 3. The two ports never write one word in one cycle: the FPGA would leave it undefined, so the simulation in Rust
//!    panics.
//!
//! Refuses more than 16 address bits, more contents than words, and any storage but block RAM.
use super::{Storage, declaration, index, is_address_width, literal};
use rnic_kernel::prelude::*;

/// `2^ADDRESS` words with two ports.
#[derive(Clone, Debug, LogicBlock, Registers, Construct)]
#[require(is_address_width(ADDRESS), "ADDRESS is 1 to 16")]
pub struct DualPortMemory<T: Synth, const ADDRESS: usize> {
    /// Clock of both ports.
    pub clock: Signal<In, Clock>,
    /// Port a reads in this cycle, and writes if `a_write` is high.
    pub a_enable: Signal<In, Bit>,
    /// Port a writes, if enabled.
    pub a_write: Signal<In, Bit>,
    /// Index of the word for port a.
    pub a_address: Signal<In, Bits<ADDRESS>>,
    /// Word that port a writes.
    pub a_write_data: Signal<In, T>,
    /// The word that port a read last; registered.
    pub a_read_data: Signal<Out, T>,
    /// Port b reads in this cycle, and writes if `b_write` is high.
    pub b_enable: Signal<In, Bit>,
    /// Port b writes, if enabled.
    pub b_write: Signal<In, Bit>,
    /// Index of the word for port b.
    pub b_address: Signal<In, Bits<ADDRESS>>,
    /// Word that port b writes.
    pub b_write_data: Signal<In, T>,
    /// The word that port b read last; registered.
    pub b_read_data: Signal<Out, T>,
    #[init(vec![T::default(); 1 << ADDRESS])]
    _start: Vec<T>,
    #[init(vec![T::default(); 1 << ADDRESS])]
    _words: Vec<T>,
}

impl<T: Synth, const ADDRESS: usize> DualPortMemory<T, ADDRESS> {
    /// Makes a memory of block RAM that starts with `contents`, followed by zeros.
    ///
    /// # Panics
    /// If there are more contents than words.
    pub fn with_contents(contents: &[T]) -> Self {
        let start = Storage::Block.start(ADDRESS, contents);
        DualPortMemory { _words: start.clone(), _start: start, ..DualPortMemory::default() }
    }
}

impl<T: Synth, const ADDRESS: usize> Logic for DualPortMemory<T, ADDRESS> {
    fn update(&mut self) {
        if !self.clock.pos_edge() {
            return;
        }
        let (a, b) = (index(self.a_address.val()), index(self.b_address.val()));
        if self.a_enable.val() {
            self.a_read_data.next = self._words[a];
        }
        if self.b_enable.val() {
            self.b_read_data.next = self._words[b];
        }
        let a_writes = self.a_enable.val() && self.a_write.val();
        let b_writes = self.b_enable.val() && self.b_write.val();
        assert!(!(a_writes && b_writes && a == b), "both ports write word {a} in one cycle");
        if a_writes {
            self._words[a] = self.a_write_data.val();
        }
        if b_writes {
            self._words[b] = self.b_write_data.val();
        }
    }

    fn connect(&mut self) {
        self.a_read_data.connect();
        self.b_read_data.connect();
    }

    fn hdl(&self) -> Verilog {
        let zero = literal(T::default());
        let port = |port: char| {
            format!(
                "initial {port}_read_data = {zero};\nalways @(posedge clock) begin\n    if ({port}_enable) begin\n        \
                 if ({port}_write) words[{port}_address] <= {port}_write_data;\n        \
                 {port}_read_data <= words[{port}_address];\n    end\nend\n"
            )
        };
        let body = declaration(Storage::Block, &self._start) + &port('a') + &port('b');
        let note = "Two ports, each reads or writes; a read yields the word as it was before the writes of its cycle.";
        rnic_kernel::leaf(core::any::type_name::<Self>(), note, body, &["a_read_data", "b_read_data"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Stimulus, Waves, random};
    use rand::Rng;

    type Small = DualPortMemory<Bits<12>, 3>;

    fn bench(memory: Small) -> Bench<Small> {
        Bench::clocked(memory, |block| &mut block.clock)
    }

    #[test]
    fn each_port_sees_the_word_before_the_writes_of_its_cycle() {
        let mut bench = bench(Small::with_contents(&[bits(0x123)])).in_lock_step();
        bench.block.a_enable.next = true;
        bench.block.a_write.next = true;
        bench.block.a_write_data.next = bits(0x456);
        bench.block.b_enable.next = true;
        bench.tick();
        assert_eq!(bench.block.a_read_data.val(), bits(0x123));
        assert_eq!(bench.block.b_read_data.val(), bits(0x123));
        bench.tick();
        assert_eq!(bench.block.b_read_data.val(), bits(0x456));
    }

    #[test]
    #[should_panic(expected = "both ports write word 0 in one cycle")]
    fn two_writes_of_one_word_are_refused() {
        let mut bench = bench(Small::default());
        for (enable, write) in [
            (&mut bench.block.a_enable, &mut bench.block.a_write),
            (&mut bench.block.b_enable, &mut bench.block.b_write),
        ] {
            enable.next = true;
            write.next = true;
        }
        bench.tick();
    }

    #[test]
    fn random_traffic_is_the_same_in_verilog() {
        let mut random = random();
        let contents: Vec<Bits<12>> = (0..5).map(|_| Stimulus::sample(&mut random)).collect();
        let mut bench = bench(Small::with_contents(&contents)).in_lock_step();
        for _ in 0..1000 {
            let (a, b): (Bits<3>, Bits<3>) = (Stimulus::sample(&mut random), Stimulus::sample(&mut random));
            let a_writes: bool = random.random();
            bench.block.a_enable.next = random.random();
            bench.block.a_write.next = a_writes;
            bench.block.a_address.next = a;
            bench.block.a_write_data.next = Stimulus::sample(&mut random);
            bench.block.b_enable.next = random.random();
            bench.block.b_write.next = random.random::<bool>() && !(a_writes && a == b);
            bench.block.b_address.next = b;
            bench.block.b_write_data.next = Stimulus::sample(&mut random);
            bench.tick();
        }
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert_eq!(DualPortMemory::<Bit, 16>::REFUSAL, None);
        assert!(DualPortMemory::<Bit, 17>::REFUSAL.is_some());
        Small::with_contents(&[bits(1); 8]);
    }

    #[test]
    #[should_panic(expected = "9 words in a memory of 8")]
    fn more_contents_than_words_are_refused() {
        Small::with_contents(&[bits(1); 9]);
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("a_enable").signal("a_write").signal("a_address").when("a_enable");
        let waves = waves.signal("a_write_data").when("a_write").signal("a_read_data").signal("b_enable");
        let waves = waves.signal("b_address").when("b_enable").signal("b_read_data");
        let mut bench = bench(Small::with_contents(&[bits(0), bits(0), bits(0x111)])).recording(waves);
        bench.block.a_address.next = bits(2);
        bench.block.b_address.next = bits(2);
        bench.block.a_write_data.next = bits(0x222);
        for cycle in 0..5 {
            bench.block.a_enable.next = cycle == 1;
            bench.block.a_write.next = cycle == 1;
            bench.block.b_enable.next = cycle == 1 || cycle == 2;
            bench.tick();
        }
        bench.waves().expect("memory/waves/dual.txt");
    }
}
