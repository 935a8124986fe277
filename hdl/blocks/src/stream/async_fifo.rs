//! Asynchronous FIFO: a queue from one clock to another.
//!
//! The MAC has clocks of its own. This is the only way in which data crosses between clocks.
//!
//! ```text
//!   write_clock                                             read_clock
//!        ┌───────────┐ write  ┌────────────────┐ read   ┌───────────┐
//!  rx ──>│           ├───────>│ CrossingMemory ├───────>│           │──> tx
//!        │ WriteSide │        └────────────────┘        │ ReadSide  │
//!        │           │ Gray code   ┌──────────────┐     │           │
//!        │  pointer ─┼────────────>│ Synchronizer ├────>│           │
//!        │           │             └──────────────┘     │           │
//!        │           │     ┌──────────────┐  Gray code  │           │
//!        │           │<────┤ Synchronizer │<────────────┼─ pointer  │
//!        └───────────┘     └──────────────┘             └───────────┘
//! ```
//!
//! With both clocks equal and depth 4, the sink takes nothing before cycle 8:
//! ```text
#![doc = include_str!("waves/async_fifo.txt")]
//! ```
//!
//! Latency 4 cycles with equal clocks; one beat a cycle of the slower clock, when it holds 8 beats or more. It holds
//! `2^ADDRESS` beats in the memory, and one at the exit. 32 beats with 512 bits of data: 38 RAM32M16, 19 LUT, 568 FF,
//! depth 4.
//!
//! 1. Beats leave in the order of arrival; none is lost or duplicated.
//! 2. Pointers cross in Gray code, one bit changing at a time, straight from registers.
//! 3. No word of the memory is read before its pointer has crossed, so never while it is written.
//! 4. The two resets are a [`ResetPair`](super::ResetPair)'s: a side stays in reset until the zeroed pointer of the other one has
//!    crossed. A reset of one side alone loses or repeats beats.
//!
//! Address bits other than 2 to 16, and `COUNT` other than `ADDRESS + 1`, do not compile; UltraRAM panics.
use super::synchronizer::Synchronizer;
use super::{StreamRx, StreamTx};
use crate::memory::{CrossingMemory, Storage};
use rnic_kernel::prelude::*;

/// A queue of `2^ADDRESS` beats between two clocks; `COUNT`, the width of its pointers, is `ADDRESS + 1`.
#[derive(LogicBlock, Registers, Construct)]
#[require(2 <= ADDRESS && ADDRESS <= 16)]
#[require(COUNT == ADDRESS + 1)]
#[new(
    /// Makes an empty queue.
    storage: Storage,
)]
pub struct AsyncFifo<T: Synth, const ADDRESS: usize, const COUNT: usize> {
    /// Clock of `rx`.
    pub write_clock: Signal<In, Clock>,
    /// Synchronous to `write_clock`, active high.
    pub write_reset: Signal<In, Bit>,
    /// From the block before; `ready` comes from registers of the writing clock.
    pub rx: StreamRx<T>,
    /// Clock of `tx`.
    pub read_clock: Signal<In, Clock>,
    /// Synchronous to `read_clock`, active high.
    pub read_reset: Signal<In, Bit>,
    /// To the next block; registered.
    pub tx: StreamTx<T>,
    #[domain(clock = write_clock, reset = write_reset)]
    write_side: WriteSide<ADDRESS, COUNT>,
    #[domain(clock = read_clock, reset = read_reset)]
    read_side: ReadSide<ADDRESS, COUNT>,
    #[domain(clock = read_clock, reset = read_reset)]
    to_read_side: Synchronizer<COUNT>,
    #[domain(clock = write_clock, reset = write_reset)]
    to_write_side: Synchronizer<COUNT>,
    #[init(CrossingMemory::new(storage))]
    memory: CrossingMemory<T, ADDRESS>,
}

impl<T: Synth, const ADDRESS: usize, const COUNT: usize> Logic for AsyncFifo<T, ADDRESS, COUNT> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.memory.write_clock.next = self.write_clock.val();
        self.memory.read_clock.next = self.read_clock.val();

        self.write_side.offered.next = self.rx.valid.val();
        self.rx.ready.next = self.write_side.ready.val();
        self.memory.write_enable.next = self.write_side.write_enable.val();
        self.memory.write_address.next = self.write_side.write_address.val();
        self.memory.write_data.next = self.rx.beat.val();

        self.to_read_side.d.next = self.write_side.write_gray.val();
        self.read_side.write_gray.next = self.to_read_side.q.val();
        self.to_write_side.d.next = self.read_side.read_gray.val();
        self.write_side.read_gray.next = self.to_write_side.q.val();

        self.memory.read_enable.next = self.read_side.read_enable.val();
        self.memory.read_address.next = self.read_side.read_address.val();
        self.read_side.taken.next = self.tx.ready.val();
        self.tx.offer(self.read_side.head_valid.val(), self.memory.read_data.val());
    }
}

/// The writing half: where the next beat goes, and whether there is room.
#[derive(Default, LogicBlock, Registers)]
struct WriteSide<const ADDRESS: usize, const COUNT: usize> {
    /// Writing clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// A beat is offered.
    pub offered: Signal<In, Bit>,
    /// There is room for it.
    pub ready: Signal<Out, Bit>,
    /// To the memory: a beat is written in this cycle.
    pub write_enable: Signal<Out, Bit>,
    /// To the memory: where it is written.
    pub write_address: Signal<Out, Bits<ADDRESS>>,
    /// Beats written so far, in Gray code; registered.
    pub write_gray: Signal<Out, Bits<COUNT>>,
    /// Beats read so far, in Gray code, as far as known here.
    pub read_gray: Signal<In, Bits<COUNT>>,
    pointer: Reg<Bits<COUNT>>,
    gray: Reg<Bits<COUNT>>,
}

impl<const ADDRESS: usize, const COUNT: usize> Logic for WriteSide<ADDRESS, COUNT> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        // Pointers that are 2^ADDRESS apart have Gray codes that differ in their two highest bits and nowhere else.
        let is_full = self.gray.q.val() ^ self.read_gray.val() == bits::<COUNT>(3 << (ADDRESS - 1));
        let push = self.offered.val() && !is_full;
        if push {
            let next = self.pointer.q.val() + 1;
            self.pointer.d.next = next;
            self.gray.d.next = next ^ (next >> 1);
        }
        self.ready.next = !is_full;
        self.write_enable.next = push;
        self.write_address.next = self.pointer.q.val().get_bits::<ADDRESS>(0);
        self.write_gray.next = self.gray.q.val();
    }
}

/// The reading half: fetches the head of the queue as soon as there is one.
#[derive(Default, LogicBlock, Registers)]
struct ReadSide<const ADDRESS: usize, const COUNT: usize> {
    /// Reading clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// The head is taken in this cycle, if there is one.
    pub taken: Signal<In, Bit>,
    /// The read register of the memory holds the head of the queue; registered.
    pub head_valid: Signal<Out, Bit>,
    /// To the memory: a beat is read in this cycle.
    pub read_enable: Signal<Out, Bit>,
    /// To the memory: where it is read.
    pub read_address: Signal<Out, Bits<ADDRESS>>,
    /// Beats written so far, in Gray code, as far as known here.
    pub write_gray: Signal<In, Bits<COUNT>>,
    /// Beats read so far, in Gray code; registered.
    pub read_gray: Signal<Out, Bits<COUNT>>,
    pointer: Reg<Bits<COUNT>>,
    gray: Reg<Bits<COUNT>>,
    valid: Reg<Bit>,
}

impl<const ADDRESS: usize, const COUNT: usize> Logic for ReadSide<ADDRESS, COUNT> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_free = self.taken.val() || !self.valid.q.val();
        let fetch = is_free && self.gray.q.val() != self.write_gray.val();
        if fetch {
            let next = self.pointer.q.val() + 1;
            self.pointer.d.next = next;
            self.gray.d.next = next ^ (next >> 1);
        }
        self.valid.d.next = fetch || !is_free;
        self.head_valid.next = self.valid.q.val();
        self.read_enable.next = fetch;
        self.read_address.next = self.pointer.q.val().get_bits::<ADDRESS>(0);
        self.read_gray.next = self.gray.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, ClockOf, Random, Sink, Source, Stalls, Stimulus, Waves, random, transfer};
    use rand::Rng;

    type Queue = AsyncFifo<Bits<40>, 3, 4>;

    fn bench() -> Bench<Queue> {
        let clocks: Vec<ClockOf<Queue>> = vec![|block| &mut block.write_clock, |block| &mut block.read_clock];
        Bench::with_clocks(Queue::new(Storage::Distributed), clocks)
    }

    /// Steps of one, the other or both clocks; `ratio` of ten steps have the writing clock.
    fn cross(bench: &mut Bench<Queue>, beats: &[Bits<40>], stalls: Stalls, ratio: u32, random: &mut Random) {
        let mut source = Source::new(beats.iter().copied(), stalls);
        let mut sink = Sink::new(stalls);
        let mut steps = 0;
        while sink.received.len() < beats.len() {
            assert!(steps < 20_000, "the queue hangs with stalls {stalls:?}");
            steps += 1;
            let writes = random.random_ratio(ratio, 10);
            let reads = !writes || random.random_ratio(1, 4);
            if writes {
                source.drive(&mut bench.block.rx, random);
            }
            if reads {
                sink.drive(&mut bench.block.tx, random);
            }
            bench.settle();
            if writes {
                source.sample(&bench.block.rx);
            }
            if reads {
                sink.sample(&bench.block.tx);
            }
            let clocks: Vec<_> =
                [(writes, 0), (reads, 1)].iter().filter(|clock| clock.0).map(|clock| clock.1).collect();
            bench.tick_clocks(&clocks);
        }
        assert_eq!(sink.received, beats, "stalls: {stalls:?}, ratio {ratio}");
    }

    #[test]
    fn beats_leave_in_order_whichever_clock_is_faster() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench = bench().in_lock_step();
            for ratio in [2, 5, 8] {
                let beats: Vec<_> = (0..200).map(|_| Stimulus::sample(&mut random)).collect();
                cross(&mut bench, &beats, stalls, ratio, &mut random);
            }
        }
    }

    #[test]
    fn eight_beats_cover_the_round_trip_of_the_pointers() {
        let mut random = random();
        let mut bench = bench();
        let beats: Vec<_> = (0..200).map(|_| Stimulus::sample(&mut random)).collect();
        let (received, cycles) = transfer(
            &mut bench,
            |block| &mut block.rx,
            |block| &mut block.tx,
            beats.clone(),
            beats.len(),
            Stalls::None,
            &mut random,
        );
        assert_eq!(received, beats);
        assert_eq!(cycles, beats.len() + 4, "one beat a cycle after four cycles of latency");
    }

    #[test]
    fn reset_in_both_domains_empties_the_queue() {
        let mut bench = bench().in_lock_step();
        bench.block.rx.valid.next = true;
        (0..7).for_each(|_| bench.tick());
        bench.block.rx.valid.next = false;
        // The resets begin and end apart, and overlap for four cycles.
        for cycle in 0..6 {
            bench.block.write_reset.next = cycle < 5;
            bench.block.read_reset.next = cycle > 0;
            bench.tick();
        }
        bench.block.read_reset.next = false;
        for _ in 0..6 {
            bench.tick();
            assert!(!bench.block.tx.valid.val());
        }
        let mut random = random();
        let beats: Vec<_> = (0..50).map(|_| Stimulus::sample(&mut random)).collect();
        cross(&mut bench, &beats, Stalls::None, 5, &mut random);
    }

    #[test]
    fn flip_flops_of_the_crossing_are_marked() {
        let verilog = rnic_kernel::generate(&mut Queue::new(Storage::Block), "queue").unwrap();
        assert_eq!(verilog.matches("ASYNC_REG").count(), 2, "two registers in one module that is used twice");
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert_eq!(AsyncFifo::<Bit, 2, 3>::REFUSAL, None);
        assert_eq!(AsyncFifo::<Bit, 16, 17>::REFUSAL, None);
        assert!(AsyncFifo::<Bit, 1, 2>::REFUSAL.is_some());
        assert!(AsyncFifo::<Bit, 17, 18>::REFUSAL.is_some());
        assert_eq!(
            AsyncFifo::<Bit, 4, 4>::REFUSAL,
            Some("AsyncFifo is built with COUNT == ADDRESS + 1 only")
        );
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("rx_valid").signal("rx_beat").when("rx_valid").signal("rx_ready");
        let waves = waves.signal("tx_valid").signal("tx_beat").when("tx_valid").signal("tx_ready");
        let fifo = AsyncFifo::<Bits<8>, 2, 3>::new(Storage::Distributed);
        let mut bench =
            Bench::with_clocks(fifo, vec![|block| &mut block.write_clock, |block| &mut block.read_clock])
                .recording(waves);
        let mut random = random();
        let mut source = Source::new((0xa1..=0xa7u64).map(bits), Stalls::None);
        for cycle in 0..18 {
            if cycle >= 1 {
                source.drive(&mut bench.block.rx, &mut random);
            }
            bench.block.tx.ready.next = cycle >= 8;
            bench.settle();
            source.sample(&bench.block.rx);
            bench.tick();
        }
        bench.waves().expect("stream/waves/async_fifo.txt");
    }
}
