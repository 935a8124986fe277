//! Packet FIFO: a queue whose beats become visible when their packet is committed, or never.
//!
//! A frame is known to be good only at its end, when its ICRC has been checked. Until then its beats lie between the
//! commit pointer and a speculative write pointer, where they are not visible. The writer cannot be stalled, since the
//! wire cannot: a packet without room is dropped as a whole.
//!
//! ```text
//!             ┌──────────────────────────────────────────────────┐
//!  write ────>│   write_pointer ──┐   ┌────────┐   ┌──────┐      │
//!  beat ─────>│     ^ rollback    ├──>│ memory ├──>│ head ├──────┼── tx.beat
//!  commit ───>│     v commit      │   └────────┘   └──────┘      │
//!  rollback ─>│  commit_pointer ──┤    visible       head_valid ─┼── tx.valid
//!  fits <─────┤   read_pointer ───┘                              ├── tx.ready
//!             │   write_pointer - read_pointer ──────────────────┼── level
//!             └──────────────────────────────────────────────────┘
//! ```
//!
//! Two beats are committed, one is rolled back, and a packet of five beats finds room for four:
//! ```text
#![doc = include_str!("waves/packet_fifo.txt")]
//! ```
//!
//! Latency 2 cycles from the commit to `tx.valid`; one beat a cycle in and out. 2048 beats with 512 bits of data take 29
//! RAMB36, 84 LUT, 38 FF, depth 6.
//!
//! 1. A packet is the beats since the last `commit` or `rollback`, including one written in the same cycle.
//! 2. Committed packets leave whole and in order; of others, no beat is ever seen.
//! 3. `fits` is high if all beats of the packet up to now have found room. When it is low, `commit` acts as
//!    `rollback`, and later packets are not affected.
//! 4. A packet of as many beats as the queue has fits when all before it have left.
//! 5. When `commit` and `rollback` are both high, the packet is rolled back.
//!
//! Refuses more than 16 address bits, and `COUNT` other than `ADDRESS + 1`.
use super::StreamTx;
use crate::memory::{Memory, Storage};
use rnic_kernel::prelude::*;

/// A queue for packets of up to `2^ADDRESS` beats, or of a smaller power of two; `COUNT`, the width of its level, is `ADDRESS + 1`.
#[clocked(reset = "empties the queue")]
#[derive(LogicBlock, Registers, Construct)]
#[require(COUNT == ADDRESS + 1)]
#[new(
    /// Makes an empty queue.
    storage: Storage,
)]
pub struct PacketFifo<T: Synth, const ADDRESS: usize, const COUNT: usize> {
    /// A beat of the packet is written in this cycle.
    pub write: Signal<In, Bit>,
    /// The beat to write.
    pub beat: Signal<In, T>,
    /// The packet is complete and good.
    pub commit: Signal<In, Bit>,
    /// The packet is discarded.
    pub rollback: Signal<In, Bit>,
    /// The packet, with the beat of this cycle, has found room; combinational.
    pub fits: Signal<Out, Bit>,
    /// Beats of committed packets, to the next block; registered.
    pub tx: StreamTx<T>,
    /// Beats in the memory, committed or not; combinational.
    pub level: Signal<Out, Bits<COUNT>>,
    #[init(Memory::new(storage).without_old_word())]
    memory: Memory<T, ADDRESS>,
    write_pointer: Reg<Bits<COUNT>>,
    commit_pointer: Reg<Bits<COUNT>>,
    read_pointer: Reg<Bits<COUNT>>,
    has_overflowed: Reg<Bit>,
    head_valid: Reg<Bit>,
    #[init(ADDRESS)]
    _beats_log2: usize,
}

impl<T: Synth, const ADDRESS: usize, const COUNT: usize> PacketFifo<T, ADDRESS, COUNT> {
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
impl<T: Synth, const ADDRESS: usize, const COUNT: usize> Default for PacketFifo<T, ADDRESS, COUNT> {
    fn default() -> Self {
        PacketFifo::new(Storage::for_words(ADDRESS))
    }
}

impl<T: Synth, const ADDRESS: usize, const COUNT: usize> Logic for PacketFifo<T, ADDRESS, COUNT> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let (write_pointer, read_pointer) = (self.write_pointer.q.val(), self.read_pointer.q.val());
        let commit_pointer = self.commit_pointer.q.val();
        let head_valid = self.head_valid.q.val();
        let level = write_pointer - read_pointer;
        let overflows = self.has_overflowed.q.val() || (self.write.val() && level.get_bit(self._beats_log2));
        let store = self.write.val() && !overflows;
        let written = select(store, write_pointer + 1, write_pointer);
        let fetch = commit_pointer != read_pointer && (self.tx.ready.val() || !head_valid);

        self.memory.write(store, write_pointer.get_bits::<ADDRESS>(0), self.beat.val());
        self.memory.read(fetch, read_pointer.get_bits::<ADDRESS>(0));

        self.write_pointer.d.next = written;
        self.has_overflowed.d.next = overflows;
        if self.rollback.val() || (self.commit.val() && overflows) {
            self.write_pointer.d.next = commit_pointer;
            self.has_overflowed.d.next = false;
        } else if self.commit.val() {
            self.commit_pointer.d.next = written;
        }
        if fetch {
            self.read_pointer.d.next = read_pointer + 1;
        }
        self.head_valid.d.next = fetch || (head_valid && !self.tx.ready.val());

        self.fits.next = !overflows;
        self.tx.offer(head_valid, self.memory.read_data.val());
        self.level.next = level;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Random, Sink, Stalls, Stimulus, Waves, random};
    use rand::Rng;

    type Queue<const ADDRESS: usize, const COUNT: usize> = PacketFifo<Bits<24>, ADDRESS, COUNT>;

    /// A queue of eight beats, whatever its address could name.
    fn bench<const ADDRESS: usize, const COUNT: usize>() -> Bench<Queue<ADDRESS, COUNT>> {
        Bench::clocked(Queue::new(Storage::Block).with_beats_log2(3), |block| &mut block.clock)
    }

    /// Sends packets of 0 to 12 beats at random and returns what was promised to come out.
    fn write_packets<const ADDRESS: usize, const COUNT: usize>(
        bench: &mut Bench<Queue<ADDRESS, COUNT>>,
        sink: &mut Sink<Bits<24>>,
        stalls: Stalls,
        random: &mut Random,
    ) -> (Vec<Bits<24>>, [usize; 3]) {
        let mut promised = Vec::new();
        let [mut committed, mut rolled_back, mut refused] = [0; 3];
        for _ in 0..200 {
            let mut packet = Vec::new();
            let mut left = random.random_range(0..=12);
            let ends_late: bool = random.random();
            loop {
                let is_pause = stalls.source() && random.random();
                let write = left > 0 && !is_pause;
                let beat = Bits::sample(random);
                left -= usize::from(write);
                let ends = left == 0 && !(write && ends_late);
                let block = &mut bench.block;
                block.write.next = write;
                block.beat.next = beat;
                block.commit.next = ends && random.random_bool(0.8);
                block.rollback.next = ends && (!block.commit.next || random.random_bool(0.1));
                let (commit, rollback) = (block.commit.next, block.rollback.next);
                sink.drive(&mut block.tx, random);
                bench.settle();
                if write {
                    packet.push(beat);
                }
                let fits = bench.block.fits.val();
                assert!(packet.len() <= 8 || !fits, "a packet of more than 8 beats cannot fit");
                sink.sample(&bench.block.tx);
                bench.tick();
                if !ends {
                    continue;
                }
                match (rollback, commit, fits) {
                    (true, ..) => rolled_back += 1,
                    (false, true, true) => {
                        promised.append(&mut packet);
                        committed += 1;
                    }
                    _ => refused += 1,
                }
                break;
            }
        }
        (promised, [committed, rolled_back, refused])
    }

    #[test]
    fn exactly_the_committed_packets_leave_in_order() {
        exactly_the_committed_packets_leave::<3, 4>();
        exactly_the_committed_packets_leave::<5, 6>();
    }

    fn exactly_the_committed_packets_leave<const ADDRESS: usize, const COUNT: usize>() {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench = bench::<ADDRESS, COUNT>().in_lock_step();
            let mut sink = Sink::new(stalls);
            let (promised, counts) = write_packets(&mut bench, &mut sink, stalls, &mut random);
            assert!(counts.iter().all(|&count| count > 10), "the test tries all ends: {counts:?}");
            bench.block.write.next = false;
            bench.block.commit.next = false;
            bench.block.rollback.next = false;
            for _ in 0..100 {
                sink.drive(&mut bench.block.tx, &mut random);
                bench.settle();
                sink.sample(&bench.block.tx);
                bench.tick();
            }
            assert_eq!(sink.received, promised, "stalls: {stalls:?}");
            assert_eq!(bench.block.level.val(), bits(0));
        }
    }

    fn write(bench: &mut Bench<Queue<4, 5>>, count: usize, commit_at_last: bool) -> bool {
        let mut fits = true;
        for index in 0..count {
            bench.block.write.next = true;
            bench.block.commit.next = commit_at_last && index + 1 == count;
            bench.settle();
            fits = bench.block.fits.val();
            bench.tick();
        }
        bench.block.write.next = false;
        bench.block.commit.next = false;
        fits
    }

    #[test]
    fn a_packet_as_long_as_the_memory_fits_and_one_beat_more_does_not() {
        let mut bench = bench();
        assert!(!write(&mut bench, 9, true));
        assert_eq!(bench.block.level.val(), bits(0), "nothing remains of the refused packet");
        assert!(write(&mut bench, 8, true), "the next packet is not affected");
        assert!(!write(&mut bench, 8, true), "one beat has left for the head, seven are in the way");
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert_eq!(PacketFifo::<Bit, 16, 17>::REFUSAL, None);
        assert!(PacketFifo::<Bit, 4, 4>::REFUSAL.is_some());
    }

    /// Inputs that no connected block would give, and resets at any time.
    #[test]
    fn any_input_does_the_same_in_verilog() {
        let mut random = random();
        let mut bench = bench::<4, 5>().in_lock_step();
        for _ in 0..1000 {
            bench.block.reset.next = random.random_bool(0.02);
            bench.block.write.next = random.random_bool(0.7);
            bench.block.beat.next = Stimulus::sample(&mut random);
            bench.block.commit.next = random.random_bool(0.2);
            bench.block.rollback.next = random.random_bool(0.1);
            bench.block.tx.ready.next = random.random();
            bench.tick();
        }
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("write").signal("beat").when("write").signal("commit");
        let waves = waves.signal("rollback").signal("fits").signal("level");
        let waves = waves.signal("tx_valid").signal("tx_beat").when("tx_valid");
        let fifo = PacketFifo::<Bits<8>, 2, 3>::new(Storage::Distributed);
        let mut bench = Bench::clocked(fifo, |block| &mut block.clock).recording(waves);
        bench.block.tx.ready.next = true;
        let beats = [0, 0xa1, 0xa2, 0xb1, 0, 0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0, 0];
        for (cycle, beat) in beats.into_iter().enumerate() {
            bench.block.write.next = beat != 0;
            bench.block.beat.next = bits(beat);
            bench.block.commit.next = cycle == 2 || cycle == 10;
            bench.block.rollback.next = cycle == 4;
            bench.tick();
        }
        bench.waves().expect("stream/waves/packet_fifo.txt");
    }
}
