//! Entry share: says whether a queue pair has its share of a receive buffer, before one more packet of it is kept.
//!
//! The smallest frames of a fast wire come faster than responder and requester take packets, and a host that is slow holds up all of
//! them. Without shares the queue pair whose frames come fastest would have the buffer, and the frames of all others would be lost.
//! The buffers of requests and of responses have one each.
//!
//! ```text
//!          ┌──────────────┐
//!  look ──>│ packets: came├──▯─> difference ─▯─> has it as much as is free? ─┐
//!          │          left├──▯──────┘                                       ├─▯─> exceeds
//!          │ room:    came├──▯─> difference ─▯─> has it as much as is free? ─┘
//!          │          left├──▯──────┘
//!          └──▲───▲───▲───┘
//!       enters┘   │   └releases: its payload is read by place
//!                 └takes: the responder, or the requester, has its token
//!  cycle 0                1            2                                     3
//! ```
//!
//! For each queue pair, named by its slot, free-running sums say what has come into the buffer and what has left it; what it holds is
//! their difference. So in every cycle one packet can enter, one token and the payload of one leave. A token is held until it is
//! taken, and room until its payload is read: also while a request is parked, or waits for place.
//!
//! Latency 3 cycles from `look` to `exceeds`; throughput one of each in every cycle. 202 LUT, 177 FF, 8 RAMB18.
//!
//! 1. A queue pair that holds nothing has no share to exceed.
//! 2. What enters counts two cycles later. So of a burst some packets more than the share are kept: those that are between
//!    `look` and their commit.
//! 3. Reset clears the sums, in [`SHARE_SWEEP_CYCLES`]; `exceeds` is high in these, so that nothing enters.
//!
//! Frames to a QPN that does not exist count for the queue pair whose slot they name. Design decision 3.
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;
use rnic_messages::pool::has_share;
use rnic_messages::receive::{ROOM_BITS, ROOM_UNIT_LOG2};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, SPAN_BITS, sizes};

/// Cycles from `look` to `exceeds`.
pub const SHARE_LATENCY: usize = 3;
/// Cycles after reset in which every queue pair exceeds its share.
pub const SHARE_SWEEP_CYCLES: u32 = 1 << QUEUE_PAIR_BITS;
/// Bits of a number of packets in the buffer: up to 512.
pub const PACKETS_BITS: usize = 10;

/// Gives the units of room that a payload takes.
#[kernel]
pub fn room_of(payload_bytes: Bits<SPAN_BITS>) -> Bits<ROOM_BITS> {
    ((bit_cast::<16, SPAN_BITS>(payload_bytes) + ((1 << ROOM_UNIT_LOG2) - 1)) >> (ROOM_UNIT_LOG2 as u64))
        .get_bits::<ROOM_BITS>(0)
}

/// What a queue pair adds to one of its sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Addition<const N: usize> {
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    amount: Bits<N>,
}

/// A free-running sum for each queue pair; see the module.
#[clocked(reset = "A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
struct Tally<const N: usize> {
    /// `addition` counts; not during a sweep.
    pub adds: Signal<In, Bit>,
    /// To the sum of a queue pair.
    pub addition: Signal<In, Addition<N>>,
    /// The sum of `sweep` is cleared.
    pub clears: Signal<In, Bit>,
    /// A queue pair.
    pub sweep: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// A queue pair.
    pub look: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// Its sum, a cycle later; that of the memory.
    pub sum: Signal<Out, Bits<N>>,
    /// The sums twice, since one queue pair is looked at while another one's counts.
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().queue_pairs))]
    sums: Memory<Bits<N>, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().queue_pairs))]
    looked: Memory<Bits<N>, QUEUE_PAIR_BITS>,
    has_addition: Reg<Bit>,
    added: DFF<Addition<N>>,
    /// What was written in the cycle in which the sum of `added` was read.
    has_written: Reg<Bit>,
    written: DFF<Bits<N>>,
    written_to: DFF<Bits<QUEUE_PAIR_BITS>>,
}

impl<const N: usize> Logic for Tally<N> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let addition = self.addition.val();
        self.sums.read(true, addition.queue_pair);
        self.has_addition.d.next = self.adds.val();
        self.added.d.next = addition;

        let added = self.added.q.val();
        let is_same = self.has_written.q.val() && self.written_to.q.val() == added.queue_pair;
        let sum = select(is_same, self.written.q.val(), self.sums.read_data.val()) + added.amount;
        let adds = self.has_addition.q.val();
        self.has_written.d.next = adds;
        self.written.d.next = sum;
        self.written_to.d.next = added.queue_pair;

        let clears = self.clears.val();
        let address = select(clears, self.sweep.val(), added.queue_pair);
        let data = select(clears, bits::<N>(0), sum);
        self.sums.write(clears || adds, address, data);
        self.looked.write(clears || adds, address, data);
        self.looked.read(true, self.look.val());
        self.sum.next = self.looked.read_data.val();
    }
}

/// Says of one pool whether a queue pair has its share of it; see the module.
#[clocked(reset = "A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
struct PoolShare<const N: usize> {
    /// What of the pool nobody holds; registered here.
    pub free: Signal<In, Bits<N>>,
    /// The sums of `sweep` are cleared.
    pub clears: Signal<In, Bit>,
    /// A queue pair.
    pub sweep: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// `coming` is held.
    pub comes: Signal<In, Bit>,
    /// By a queue pair.
    pub coming: Signal<In, Addition<N>>,
    /// `leaving` is not held any more.
    pub leaves: Signal<In, Bit>,
    /// By a queue pair.
    pub leaving: Signal<In, Addition<N>>,
    /// A queue pair.
    pub look: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// It has its share; two cycles later; a function of registers.
    pub exceeds: Signal<Out, Bit>,
    came: Tally<N>,
    left: Tally<N>,
    free_held: DFF<Bits<N>>,
    held: DFF<Bits<N>>,
}

impl<const N: usize> Logic for PoolShare<N> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.came.clears.next = self.clears.val();
        self.came.sweep.next = self.sweep.val();
        self.came.look.next = self.look.val();
        self.came.adds.next = self.comes.val();
        self.came.addition.next = self.coming.val();
        self.left.clears.next = self.clears.val();
        self.left.sweep.next = self.sweep.val();
        self.left.look.next = self.look.val();
        self.left.adds.next = self.leaves.val();
        self.left.addition.next = self.leaving.val();
        self.free_held.d.next = self.free.val();
        self.held.d.next = self.came.sum.val() - self.left.sum.val();
        self.exceeds.next = has_share::<N>(self.held.q.val(), self.free_held.q.val());
    }
}

/// Keeps what each queue pair holds; see the module.
#[clocked(reset = "nothing is held")]
#[derive(LogicBlock, Registers, Construct)]
pub struct EntryShare {
    /// Packets for whose tokens the buffer has room; registered here.
    pub free_packets: Signal<In, Bits<PACKETS_BITS>>,
    /// Free room of the buffer, in units of 128 bytes; registered here.
    pub free_room: Signal<In, Bits<ROOM_BITS>>,
    /// Slot that a frame which may enter names.
    pub look: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// Its queue pair has its share of one of the two, [`SHARE_LATENCY`] cycles later; registered.
    pub exceeds: Signal<Out, Bit>,
    /// A packet is kept.
    pub enters: Signal<In, Bit>,
    /// Its queue pair.
    pub entering: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// Bytes of its payload.
    pub entering_bytes: Signal<In, Bits<SPAN_BITS>>,
    /// The token of a packet is taken.
    pub takes: Signal<In, Bit>,
    /// Its queue pair.
    pub taken: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// The payload of a packet is read.
    pub releases: Signal<In, Bit>,
    /// Its queue pair.
    pub released: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// Its bytes.
    pub released_bytes: Signal<In, Bits<SPAN_BITS>>,
    packets: PoolShare<PACKETS_BITS>,
    room: PoolShare<ROOM_BITS>,
    exceeds_held: Reg<Bit>,
    #[init(Reg::new(true))]
    is_clearing: Reg<Bit>,
    sweep: Reg<Bits<QUEUE_PAIR_BITS>>,
}

impl Logic for EntryShare {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let clears = self.is_clearing.q.val();
        let sweep = self.sweep.q.val();
        if clears {
            self.sweep.d.next = sweep + 1;
            self.is_clearing.d.next = !sweep.all();
        }
        let one = bits::<PACKETS_BITS>(1);
        self.packets.clears.next = clears;
        self.packets.sweep.next = sweep;
        self.packets.look.next = self.look.val();
        self.packets.free.next = self.free_packets.val();
        self.packets.comes.next = self.enters.val();
        self.packets.coming.next = Addition::<PACKETS_BITS> { queue_pair: self.entering.val(), amount: one };
        self.packets.leaves.next = self.takes.val();
        self.packets.leaving.next = Addition::<PACKETS_BITS> { queue_pair: self.taken.val(), amount: one };
        self.room.clears.next = clears;
        self.room.sweep.next = sweep;
        self.room.look.next = self.look.val();
        self.room.free.next = self.free_room.val();
        self.room.comes.next = self.enters.val();
        self.room.coming.next = Addition::<ROOM_BITS> {
            queue_pair: self.entering.val(),
            amount: room_of(self.entering_bytes.val()),
        };
        self.room.leaves.next = self.releases.val();
        self.room.leaving.next = Addition::<ROOM_BITS> {
            queue_pair: self.released.val(),
            amount: room_of(self.released_bytes.val()),
        };
        self.exceeds_held.d.next = self.packets.exceeds.val() || self.room.exceeds.val() || clears;
        self.exceeds.next = self.exceeds_held.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, random};
    use std::collections::VecDeque;

    fn bench() -> Bench<EntryShare> {
        let mut bench = Bench::clocked(EntryShare::default(), |block| &mut block.clock).in_lock_step();
        bench.block.reset.next = true;
        bench.tick();
        bench.block.reset.next = false;
        bench.settle();
        // The output is a register later than the sweep.
        bench.tick();
        for cycle in 0..SHARE_SWEEP_CYCLES {
            bench.settle();
            assert!(bench.block.exceeds.val(), "cycle {cycle}");
            bench.tick();
        }
        bench.block.free_packets.next = bits(512);
        bench.block.free_room.next = bits(1023);
        (0..SHARE_LATENCY).for_each(|_| bench.tick());
        bench.settle();
        assert!(!bench.block.exceeds.val());
        bench
    }

    #[test]
    fn a_payload_takes_whole_units_of_room() {
        for (bytes, units) in
            [(0, 0), (1, 1), (128, 1), (129, 2), (1024, 8), (4095, 32), (4096, 32), (8191, 64)]
        {
            assert_eq!(room_of(bits(bytes)), bits(units), "{bytes} bytes");
        }
    }

    /// A request: its queue pair, and the bytes of its payload.
    type Request = (u64, u64);

    /// Requests of four queue pairs come and go at random, in every cycle at most one each way, also of one queue pair back to
    /// back; payload is read in another order than tokens are taken. After some quiet cycles what the block says of each is what a
    /// count of both says.
    #[test]
    fn a_queue_pair_exceeds_its_share_when_it_holds_as_much_as_is_free() {
        let mut random = random();
        let mut bench = bench();
        let (mut tokens, mut payloads) = (VecDeque::<Request>::new(), Vec::<Request>::new());
        let mut seen = [0; 3];
        for round in 0..300 {
            let comes = if round / 8 % 2 == 0 { 0.8 } else { 0.3 };
            for _ in 0..random.random_range(1..40) {
                let enters = random.random_bool(comes) && tokens.len() < 512;
                let entering =
                    ([1, 1, 1, 2, 0x3ff, 0x200][random.random_range(0..6)], random.random_range(0..1500));
                let taken = if random.random_bool(0.5) { tokens.pop_front() } else { None };
                let is_read = random.random_bool(0.5) && !payloads.is_empty();
                let read = is_read.then(|| payloads.swap_remove(random.random_range(0..payloads.len())));
                let block = &mut bench.block;
                block.enters.next = enters;
                block.entering.next = bits(entering.0);
                block.entering_bytes.next = bits(entering.1);
                block.takes.next = taken.is_some();
                block.taken.next = bits(taken.unwrap_or(entering).0);
                block.releases.next = read.is_some();
                block.released.next = bits(read.unwrap_or(entering).0);
                block.released_bytes.next = bits(read.unwrap_or((0, 99)).1);
                block.look.next = bits(random.random_range(0..4));
                bench.tick();
                if enters {
                    tokens.push_back(entering);
                    if entering.1 > 0 {
                        payloads.push(entering);
                    }
                }
            }
            let block = &mut bench.block;
            block.enters.next = false;
            block.takes.next = false;
            block.releases.next = false;
            let free = (random.random_range(0..200), random.random_range(0..1023));
            block.free_packets.next = bits(free.0);
            block.free_room.next = bits(free.1);
            (0..3).for_each(|_| bench.tick());
            for queue_pair in [1, 2, 0x3ff, 0x200, 7] {
                bench.block.look.next = bits(queue_pair);
                (0..SHARE_LATENCY).for_each(|_| bench.tick());
                bench.settle();
                let packets = tokens.iter().filter(|request| request.0 == queue_pair).count() as u64;
                let own = payloads.iter().filter(|request| request.0 == queue_pair);
                let room = own.map(|request| request.1.div_ceil(128)).sum::<u64>();
                let by = (packets > 0 && packets >= free.0, room > 0 && room >= free.1);
                assert_eq!(
                    bench.block.exceeds.val(),
                    by.0 || by.1,
                    "{packets} and {room} of {queue_pair} with {free:?} free"
                );
                seen[usize::from(by.0) + usize::from(by.1 && !by.0) * 2] += 1;
            }
        }
        assert!(seen[0] > 300 && seen[1] > 50 && seen[2] > 50, "{seen:?}");
    }

    #[test]
    fn frames_are_looked_at_one_a_cycle() {
        let mut bench = bench();
        bench.block.free_packets.next = bits(2);
        for queue_pair in [3, 3, 5, 9, 9, 9] {
            bench.block.enters.next = true;
            bench.block.entering.next = bits(queue_pair);
            bench.tick();
        }
        bench.block.enters.next = false;
        (0..2).for_each(|_| bench.tick());
        let looks = [3, 5, 9, 4, 3, 5];
        let mut found = Vec::new();
        for cycle in 0..looks.len() + SHARE_LATENCY {
            bench.block.look.next = bits(looks.get(cycle).copied().unwrap_or_default());
            bench.settle();
            if cycle >= SHARE_LATENCY {
                found.push(bench.block.exceeds.val());
            }
            bench.tick();
        }
        assert_eq!(found, [true, false, true, false, true, false]);
    }

    #[test]
    fn reset_forgets_what_is_held() {
        let mut bench = bench();
        bench.block.free_room.next = bits(1);
        bench.block.enters.next = true;
        bench.block.entering.next = bits(6);
        bench.block.entering_bytes.next = bits(200);
        bench.tick();
        bench.block.enters.next = false;
        bench.block.look.next = bits(6);
        (0..2 + SHARE_LATENCY).for_each(|_| bench.tick());
        bench.settle();
        assert!(bench.block.exceeds.val());
        bench.block.reset.next = true;
        bench.tick();
        bench.block.reset.next = false;
        (0..SHARE_SWEEP_CYCLES + 4).for_each(|_| bench.tick());
        bench.settle();
        assert!(!bench.block.exceeds.val());
    }
}
