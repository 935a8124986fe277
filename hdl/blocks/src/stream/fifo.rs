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
//! Latency 2 cycles through an empty FIFO. It holds `2^ADDRESS` beats, and from four on it passes one a cycle.
//! With beats of 512 bits of data: 32 of them in 38 RAM32M16, 12 LUT, 538 FF, depth 4; 512 of them in 15 RAMB18, 19 LUT,
//! 29 FF, depth 5.
//!
//! 1. Beats leave in the order of arrival; none is lost or duplicated.
//! 2. `level` is the number of beats that came and have not left; it never exceeds `2^ADDRESS`.
//! 3. `rx.ready`, `tx.valid`, `tx.beat` and `level` are registers (`tx.beat` that of the memory).
//! 4. No word of the memory is read in the cycle in which it is written.
//!
//! Refuses more than 16 address bits, and `COUNT` other than `ADDRESS + 1`.
use super::{StreamRx, StreamTx};
use crate::memory::{Memory, Storage};
use crate::parameter::{ParameterError, check_equal};
use rnic_kernel::prelude::*;

/// A queue of `2^ADDRESS` beats; `COUNT`, the width of its level, is `ADDRESS + 1`.
#[derive(LogicBlock, Registers)]
pub struct Fifo<T: Synth, const ADDRESS: usize, const COUNT: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; empties the queue.
    pub reset: Signal<In, Bit>,
    /// From the neighbour before; `ready` is registered.
    pub rx: StreamRx<T>,
    /// To the next block; registered.
    pub tx: StreamTx<T>,
    /// Beats in the queue; registered.
    pub level: Signal<Out, Bits<COUNT>>,
    memory: Memory<T, ADDRESS>,
    write_address: Reg<Bits<ADDRESS>>,
    read_address: Reg<Bits<ADDRESS>>,
    head_valid: Reg<Bit>,
    count: Reg<Bits<COUNT>>,
}

impl<T: Synth, const ADDRESS: usize, const COUNT: usize> Fifo<T, ADDRESS, COUNT> {
    /// Makes an empty queue. [`Storage::Distributed`] costs 8 LUTs for each 14 bits of up to 32 beats, [`Storage::Block`] one
    /// RAMB18 for each 36 bits of up to 512: up to 64 beats the first is the choice, but for beats of hundreds of bits.
    ///
    /// # Errors
    /// Refuses address bits other than 1 to 16, and `COUNT` other than `ADDRESS + 1`.
    pub fn new(storage: Storage) -> Result<Self, ParameterError> {
        check_equal("COUNT", COUNT, ADDRESS + 1, "ADDRESS + 1")?;
        Ok(Fifo {
            clock: Signal::default(),
            reset: Signal::default(),
            rx: StreamRx::default(),
            tx: StreamTx::default(),
            level: Signal::default(),
            memory: Memory::new(storage)?,
            write_address: Reg::default(),
            read_address: Reg::default(),
            head_valid: Reg::default(),
            count: Reg::default(),
        })
    }
}

impl<T: Synth, const ADDRESS: usize, const COUNT: usize> Logic for Fifo<T, ADDRESS, COUNT> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        clock!(self, clock, memory);
        let (write_address, read_address) = (self.write_address.q.val(), self.read_address.q.val());
        let head_valid = self.head_valid.q.val();
        let count = self.count.q.val();
        // The queue is full when its count is 2^ADDRESS, which is one bit of a register.
        let is_full = count.get_bit(ADDRESS);
        let push = self.rx.valid.val() && !is_full;
        let pop = head_valid && self.tx.ready.val();
        // Equal addresses mean that the memory is empty: when it is not, the head is valid, so the memory holds less
        // than all of the beats.
        let fetch = write_address != read_address && (pop || !head_valid);

        self.memory.write_enable.next = push;
        self.memory.write_address.next = write_address;
        self.memory.write_data.next = self.rx.beat.val();
        self.memory.read_enable.next = fetch;
        self.memory.read_address.next = read_address;

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
        self.tx.valid.next = head_valid;
        self.tx.beat.next = self.memory.read_data.val();
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
        Bench::clocked(Fifo::new(storage).unwrap(), |block| &mut block.clock)
    }

    fn beats_leave_in_order<const ADDRESS: usize, const COUNT: usize>(storage: Storage) {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench = bench::<ADDRESS, COUNT>(storage).in_lock_step();
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
                assert_eq!(cycles, beats.len() + 2, "one beat a cycle after two cycles of latency");
            }
        }
    }

    #[test]
    fn beats_leave_a_queue_of_block_ram_in_order() {
        beats_leave_in_order::<4, 5>(Storage::Block);
    }

    #[test]
    fn beats_leave_a_queue_of_luts_in_order() {
        beats_leave_in_order::<2, 3>(Storage::Distributed);
    }

    #[test]
    fn beats_leave_the_smallest_queue_in_order() {
        beats_leave_in_order::<1, 2>(Storage::Distributed);
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
        assert!(Fifo::<Bit, 16, 17>::new(Storage::Block).is_ok());
        assert_eq!(Fifo::<Bit, 17, 18>::new(Storage::Block).err().unwrap().parameter, "ADDRESS");
        let error = Fifo::<Bit, 4, 4>::new(Storage::Block).err().unwrap();
        assert_eq!(error.to_string(), "parameter COUNT is 4, but must be 5 (ADDRESS + 1)");
        assert!(Fifo::<Bit, 4, 6>::new(Storage::Block).is_err());
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("rx_valid").signal("rx_beat").when("rx_valid").signal("rx_ready");
        let waves =
            waves.signal("tx_valid").signal("tx_beat").when("tx_valid").signal("tx_ready").signal("level");
        let fifo = Fifo::<Bits<8>, 2, 3>::new(Storage::Distributed).unwrap();
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
