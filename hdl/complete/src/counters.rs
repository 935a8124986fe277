//! Counters: a 64-bit counter for each input, of which any number may be high in a cycle.
//!
//! Sixty adders of 64 bits would be large. So each input has a small counter, and one adder visits them in turn
//! and adds their values to sums in a memory. A snapshot takes the small counters of one moment, and the next
//! round adds them to copies of the sums.
//!
//! ```text
//!  pulses ─> small counters ─┬────────────> adder ─> counts
//!                            └─ at latch ─> held ──> adder ─> copy ─> value
//! ```
//!
//! A round takes `N` cycles, a snapshot `N + 2`; latency 2 cycles from `index` to `value`.
//!
//! 1. Every pulse is counted once: a small counter cannot overflow in a round.
//! 2. `value` is the count at the last `latch`: pulses of the cycle before are counted, those of the same cycle
//!    are not.
//! 3. Reset does not clear the counts: readers take differences.
//!
//! Refuses more than 62 counters. Design decision 13.
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;

/// Bits of the number of a counter.
pub const INDEX_BITS: usize = 6;
/// Bits of a small counter: a round has at most 62 cycles, each with a pulse.
const SMALL_BITS: usize = 6;
/// A small counter and its value at the snapshot.
const PAIR_BITS: usize = 2 * SMALL_BITS;
/// Small counters that are multiplexed together first.
const GROUP: usize = 8;

/// Counts the pulses of `N` inputs.
#[clocked]
#[derive(LogicBlock, Registers, Construct)]
#[require(2 <= N && N <= 62)]
pub struct Counters<const N: usize> {
    /// Input i: high for one cycle for each event of counter i.
    pub pulses: [Signal<In, Bit>; N],
    /// Takes a snapshot in this cycle.
    pub latch: Signal<In, Bit>,
    /// The snapshot is not complete; registered.
    pub is_latching: Signal<Out, Bit>,
    /// Counter to read.
    pub index: Signal<In, Bits<INDEX_BITS>>,
    /// Its count in the last snapshot; registered.
    pub value: Signal<Out, Bits<64>>,

    #[init(Memory::new(Storage::Block))]
    counts: Memory<Bits<64>, INDEX_BITS>,
    #[init(Memory::new(Storage::Block))]
    copy: Memory<Bits<64>, INDEX_BITS>,
    small: [DFF<Bits<SMALL_BITS>>; N],
    held: [DFF<Bits<SMALL_BITS>>; N],
    partial: [Signal<Local, Bits<PAIR_BITS>>; N],
    chosen: [Signal<Local, Bits<PAIR_BITS>>; N],
    /// Counter whose sum is being fetched, and counter whose sum is there.
    fetched: DFF<Bits<INDEX_BITS>>,
    present: DFF<Bits<INDEX_BITS>>,
    /// The first fetch has happened.
    started: DFF<Bit>,
    /// Counters that are still to be copied.
    left: DFF<Bits<INDEX_BITS>>,
    reading: DFF<Bits<64>>,
}

impl<const N: usize> Logic for Counters<N> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let counters = N as u64;
        let fetched = self.fetched.q.val();
        let present = self.present.q.val();
        let started = self.started.q.val();
        self.fetched.d.next = if fetched == counters - 1 { bits(0) } else { fetched + 1 };
        self.present.d.next = fetched;
        self.started.d.next = true;
        self.counts.read(true, fetched);

        // The small counter whose sum is there is added and cleared in this cycle.
        let latch = self.latch.val();
        for i in 0..N {
            let pulse = select(self.pulses[i].val(), bits::<SMALL_BITS>(1), bits::<SMALL_BITS>(0));
            let takes = started && present == i as u64;
            let small = self.small[i].q.val();
            self.small[i].d.next = if takes { pulse } else { small + pulse };
            if latch {
                self.held[i].d.next = if takes { bits(0) } else { small };
            }
            // A multiplexer of all small counters, in groups of eight.
            let mine = select(takes, cat!(self.held[i].q.val(), small), bits::<PAIR_BITS>(0));
            self.partial[i].next = if i % GROUP == 0 { mine } else { self.partial[i - 1].val() | mine };
            let ends_group = i % GROUP == GROUP - 1 || i == N - 1;
            let before = if i == 0 { bits::<PAIR_BITS>(0) } else { self.chosen[i - 1].val() };
            self.chosen[i].next = if ends_group { before | self.partial[i].val() } else { before };
        }
        let chosen = self.chosen[N - 1].val();
        let small = chosen.get_bits::<SMALL_BITS>(0);
        let held = chosen.get_bits::<SMALL_BITS>(SMALL_BITS);
        self.counts.write(started, present, self.counts.read_data.val() + bit_cast::<64, SMALL_BITS>(small));

        let left = self.left.q.val();
        self.copy.write_enable.next = started && left.any();
        self.copy.write_address.next = present;
        self.copy.write_data.next = self.counts.read_data.val() + bit_cast::<64, SMALL_BITS>(held);
        self.left.d.next = if latch {
            bits::<INDEX_BITS>(counters)
        } else if left.any() {
            left - 1
        } else {
            left
        };
        self.is_latching.next = left.any();

        self.copy.read(true, self.index.val());
        self.reading.d.next = self.copy.read_data.val();
        self.value.next = self.reading.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, random};

    #[test]
    fn snapshots_are_exact_whatever_pulses_meanwhile() {
        const LINES: usize = 54;
        let mut random = random();
        let mut bench = Bench::clocked(Counters::<LINES>::default(), |block| &mut block.clock).in_lock_step();
        let mut counts = [0u64; LINES];
        let mut pulse = |bench: &mut Bench<Counters<LINES>>, counts: &mut [u64; LINES], latch: bool| {
            let density = random.random_range(0..3);
            let lines: u64 = match density {
                0 => 0,
                1 => random.random::<u64>() & random.random::<u64>(),
                _ => u64::MAX,
            } & ((1 << LINES) - 1);
            for (i, pulse) in bench.block.pulses.iter_mut().enumerate() {
                pulse.next = lines >> i & 1 == 1;
            }
            bench.block.latch.next = latch;
            bench.tick();
            (0..LINES).for_each(|line| counts[line] += lines >> line & 1);
        };
        for _ in 0..12 {
            (0..random_cycles(&mut rnic_blocks::bench::random()))
                .for_each(|_| pulse(&mut bench, &mut counts, false));
            let expected = counts;
            pulse(&mut bench, &mut counts, true);
            let mut cycles = 1;
            loop {
                pulse(&mut bench, &mut counts, false);
                cycles += 1;
                if !bench.block.is_latching.val() {
                    break;
                }
            }
            assert!(cycles <= LINES + 2, "a snapshot took {cycles} cycles");
            for (line, expected) in expected.iter().enumerate() {
                bench.block.index.next = bits(line as u64);
                (0..3).for_each(|_| pulse(&mut bench, &mut counts, false));
                assert_eq!(bench.block.value.val().to_u64(), *expected, "line {line}");
            }
        }
    }

    fn random_cycles(random: &mut rnic_blocks::bench::Random) -> u32 {
        random.random_range(1..200)
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert!(Counters::<63>::REFUSAL.is_some_and(|refusal| refusal.contains("N")));
        assert!(Counters::<1>::REFUSAL.is_some_and(|refusal| refusal.contains("N")));
    }
}
