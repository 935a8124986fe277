//! FIFO: a queue of beats between two neighbours of one clock.
//!
//! The head of the queue is at the output before it is read, although block RAM takes a cycle to read: the read register of the
//! memory is the output register.
//!
//! ```text
//!            ┌──────────────────────────────────────────────────┐
//!            │               ┌────────┐         ┌──────┐        │
//!  rx.beat ──┼──────────────>│ memory ├────────>│ head ├────────┼── tx.beat
//!            │ write_address │        │  fetch  └──────┘        │
//!            │  read_address └────────┘         head_valid ─────┼── tx.valid
//!  rx.ready ─┤ !count[ADDRESS]                                  ├── tx.ready
//!            │ count ───────────────────────────────────────────┼── level
//!            └──────────────────────────────────────────────────┘
//! ```
//!
//! Depth 4; the sink takes nothing before cycle 7:
//! ```text
#![doc = include_str!("waves/fifo.txt")]
//! ```
//!
//! Latency [`FIFO_LATENCY`], 2 cycles, through an empty FIFO. It holds `2^ADDRESS` beats, and from four on it passes one a cycle.
//! With beats of 512 bits of data: 32 of them in 38 RAM32M16, 12 LUT, 538 FF, depth 4; 512 of them in 15 RAMB18, 19 LUT,
//! 29 FF, depth 5.
//!
//! 1. Beats leave in the order of arrival; none is lost or duplicated.
//! 2. `level` is the number of beats that came and have not left; it never exceeds `2^ADDRESS`.
//! 3. `rx.ready`, `tx.valid`, `tx.beat` and `level` are registers (`tx.beat` that of the memory).
//! 4. No word of the memory is read in the cycle in which it is written.
//!
//! More than 16 address bits, and `COUNT` other than `ADDRESS + 1`, do not compile.
use super::{StreamRx, StreamTx};
use crate::memory::{Memory, Storage};
use rnic_kernel::prelude::*;

/// Cycles from the one in which an empty [`Fifo`] takes a beat to the first one in which it offers it.
pub const FIFO_LATENCY: usize = 2;

/// A queue of `2^ADDRESS` beats; `COUNT`, the width of its level, is `ADDRESS + 1`.
#[clocked(reset = "empties the queue")]
#[derive(LogicBlock, Registers, Construct)]
#[require(COUNT == ADDRESS + 1)]
#[new(
    /// Makes an empty queue. [`Storage::Distributed`] costs 8 LUTs for each 14 bits of up to 32 beats, [`Storage::Block`] one
    /// RAMB18 for each 36 bits of up to 512: up to 32 beats the first is the choice, and up to 64 unless they are wide.
    storage: Storage,
)]
pub struct Fifo<T: Synth, const ADDRESS: usize, const COUNT: usize> {
    /// From the block before; `ready` is registered.
    pub rx: StreamRx<T>,
    /// To the next block; registered.
    pub tx: StreamTx<T>,
    /// Beats in the queue; registered.
    pub level: Signal<Out, Bits<COUNT>>,
    #[init(Memory::new(storage).without_old_word())]
    memory: Memory<T, ADDRESS>,
    write_address: Reg<Bits<ADDRESS>>,
    read_address: Reg<Bits<ADDRESS>>,
    head_valid: Reg<Bit>,
    count: Reg<Bits<COUNT>>,
    #[init(ADDRESS)]
    _beats_log2: usize,
}

impl<T: Synth, const ADDRESS: usize, const COUNT: usize> Fifo<T, ADDRESS, COUNT> {
    /// Cuts the queue to `2^beats_log2` beats: a size that a configuration sets.
    ///
    /// # Panics
    /// As [`Memory::with_words_log2`].
    pub fn with_beats_log2(mut self, beats_log2: usize) -> Self {
        self.memory = self.memory.with_words_log2(beats_log2);
        self._beats_log2 = beats_log2;
        self
    }
}

/// An empty queue, of LUTs up to 64 beats and of block RAM above.
impl<T: Synth, const ADDRESS: usize, const COUNT: usize> Default for Fifo<T, ADDRESS, COUNT> {
    fn default() -> Self {
        Fifo::new(Storage::for_words(ADDRESS))
    }
}

impl<T: Synth, const ADDRESS: usize, const COUNT: usize> Logic for Fifo<T, ADDRESS, COUNT> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let (write_address, read_address) = (self.write_address.q.val(), self.read_address.q.val());
        let head_valid = self.head_valid.q.val();
        let count = self.count.q.val();
        // The queue is full when its count is a power of two, which is one bit of a register.
        let is_full = count.get_bit(self._beats_log2);
        let push = self.rx.valid.val() && !is_full;
        let pop = head_valid && self.tx.ready.val();
        // Equal addresses mean that the memory is empty: when it is not, the head is valid, so the memory holds less
        // than all of the beats.
        let fetch = write_address != read_address && (pop || !head_valid);

        self.memory.write(push, write_address, self.rx.beat.val());
        self.memory.read(fetch, read_address);

        if push {
            self.write_address.d.next = write_address + 1;
        }
        if fetch {
            self.read_address.d.next = read_address + 1;
        }
        self.head_valid.d.next = fetch || (head_valid && !pop);
        if push && !pop {
            self.count.d.next = count + 1;
        }
        if pop && !push {
            self.count.d.next = count - 1;
        }

        self.rx.ready.next = !is_full;
        self.tx.offer(head_valid, self.memory.read_data.val());
        self.level.next = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Sink, Source, Stalls, Stimulus, Waves, random, transfer};

    fn bench<const ADDRESS: usize, const COUNT: usize>(
        storage: Storage,
    ) -> Bench<Fifo<Bits<40>, ADDRESS, COUNT>> {
        Bench::clocked(Fifo::new(storage), |block| &mut block.clock)
    }

    fn beats_leave_in_order<const ADDRESS: usize, const COUNT: usize>(
        queue: impl Fn() -> Fifo<Bits<40>, ADDRESS, COUNT>,
    ) {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench = Bench::clocked(queue(), |block| &mut block.clock).in_lock_step();
            let beats: Vec<Bits<40>> = (0..300).map(|_| Stimulus::sample(&mut random)).collect();
            let (received, cycles) = transfer(
                &mut bench,
                |block| &mut block.rx,
                |block| &mut block.tx,
                beats.clone(),
                beats.len(),
                stalls,
                &mut random,
            );
            assert_eq!(received, beats, "stalls: {stalls:?}");
            // A queue of two beats is full while its head leaves and the next one is fetched.
            if stalls == Stalls::None && ADDRESS > 1 {
                assert_eq!(cycles, beats.len() + FIFO_LATENCY, "one beat a cycle");
            }
        }
    }

    /// Full at what it was cut to, and the places are used again in their order.
    #[test]
    fn a_queue_that_is_cut_holds_what_is_left() {
        let queue = || Fifo::<Bits<40>, 4, 5>::new(Storage::Block).with_beats_log2(2);
        let mut full = Bench::clocked(queue(), |block| &mut block.clock).in_lock_step();
        full.block.rx.valid.next = true;
        (0..10).for_each(|_| full.tick());
        assert!(!full.block.rx.ready.val() && full.block.level.val() == 4u64);

        beats_leave_in_order(queue);
    }

    #[test]
    fn beats_leave_a_queue_of_block_ram_in_order() {
        beats_leave_in_order(|| Fifo::<_, 4, 5>::new(Storage::Block));
    }

    #[test]
    fn beats_leave_a_queue_of_luts_in_order() {
        beats_leave_in_order(|| Fifo::<_, 2, 3>::new(Storage::Distributed));
    }

    #[test]
    fn beats_leave_the_smallest_queue_in_order() {
        beats_leave_in_order(|| Fifo::<_, 1, 2>::new(Storage::Distributed));
    }

    #[test]
    fn level_counts_the_beats_inside_and_stops_at_the_depth() {
        let mut random = random();
        let mut bench = bench::<2, 3>(Storage::Block);
        let mut source = Source::new((0..200u64).map(bits), Stalls::Source);
        let mut sink = Sink::new(Stalls::Sink);
        let (mut inside, mut was_full) = (0, false);
        for cycle in 0..600 {
            source.drive(&mut bench.block.rx, &mut random);
            sink.drive(&mut bench.block.tx, &mut random);
            bench.block.tx.ready.next &= cycle > 20;
            bench.settle();
            assert_eq!(bench.block.level.val(), bits(inside));
            assert_eq!(bench.block.rx.ready.val(), inside < 4);
            was_full |= inside == 4;
            inside += u64::from(source.sample(&bench.block.rx));
            inside -= u64::from(sink.sample(&bench.block.tx).is_some());
            bench.tick();
        }
        assert!(was_full && source.is_done() && inside == 0);
    }

    #[test]
    fn reset_empties_the_queue() {
        let mut bench = bench::<2, 3>(Storage::Block).in_lock_step();
        bench.block.rx.valid.next = true;
        (0..5).for_each(|_| bench.tick());
        bench.block.rx.valid.next = false;
        bench.block.reset.next = true;
        bench.tick();
        bench.block.reset.next = false;
        bench.settle();
        assert!(!bench.block.tx.valid.val());
        assert_eq!(bench.block.level.val(), bits(0));
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert_eq!(Fifo::<Bit, 16, 17>::REFUSAL, None);
        assert_eq!(Fifo::<Bit, 4, 4>::REFUSAL, Some("Fifo is built with COUNT == ADDRESS + 1 only"));
        assert!(Fifo::<Bit, 4, 6>::REFUSAL.is_some());
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("rx_valid").signal("rx_beat").when("rx_valid").signal("rx_ready");
        let waves =
            waves.signal("tx_valid").signal("tx_beat").when("tx_valid").signal("tx_ready").signal("level");
        let fifo = Fifo::<Bits<8>, 2, 3>::new(Storage::Distributed);
        let mut bench = Bench::clocked(fifo, |block| &mut block.clock).recording(waves);
        let mut random = random();
        let mut source = Source::new((0xa1..=0xa6u64).map(bits), Stalls::None);
        for cycle in 0..14 {
            if cycle >= 1 {
                source.drive(&mut bench.block.rx, &mut random);
            }
            bench.block.tx.ready.next = cycle >= 7;
            bench.settle();
            source.sample(&bench.block.rx);
            bench.tick();
        }
        bench.waves().expect("stream/waves/fifo.txt");
    }
}
