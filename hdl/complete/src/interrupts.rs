//! Interrupts: raises vectors, and holds back those that are masked or follow too soon.
//!
//! ```text
//!  request ──┐   ┌────────┬────────┐
//!            ├──>│ choose │ decide ├──> irq
//!  pending ──┘   └────────┴────┬───┘
//!     ^                        │
//!     └──── masked, too soon <─┘
//! ```
//!
//! Latency 2 cycles for a vector that may be raised; one request in two cycles. Each pending vector, and each
//! whose period runs, is looked at again within 128 cycles without a request.
//!
//! 1. A vector that is masked stays pending until it is unmasked, and is then raised once.
//! 2. Two interrupts of a vector are at least its period apart; until then the second one is pending.
//! 3. Requests for a pending vector add no further interrupt.
//! 4. Clearing a pending vector cancels its interrupt.
//! 5. Reset ends all periods. The time is a counter that wraps; a period that is over is forgotten when its
//!    vector is looked at, long before the counter is back at its end.
//!
//! Protocol 4.4.
use crate::moderation::{CLOCK_BITS, TIME_BITS, end_of, is_ahead};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::limits;
use rnic_messages::sizes::VECTOR_BITS;

const VECTORS: usize = limits::INTERRUPT_VECTORS_MAX as usize;
const _: () = assert!(VECTORS == 1 << VECTOR_BITS);

/// Masks and moderates the interrupt vectors. Periods are in units of `2^UNIT_LOG2` cycles; the card has 8.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
#[require(UNIT_LOG2 <= 8, "UNIT_LOG2 is 0 to 8")]
pub struct Interrupts<const UNIT_LOG2: usize> {
    /// From the event queues: vectors to be raised; `ready` is combinational.
    pub request: StreamRx<Bits<VECTOR_BITS>>,
    /// Register `interrupt_mask`: vectors that must not be raised.
    pub mask: Signal<In, Bits<VECTORS>>,
    /// Ones clear pending vectors.
    pub pending_clear: Signal<In, Bits<VECTORS>>,
    /// Register `interrupt_moderation` is written in this cycle.
    pub moderation_write: Signal<In, Bit>,
    /// Vector of that write.
    pub moderation_vector: Signal<In, Bits<VECTOR_BITS>>,
    /// Period of that write, in units of `2^UNIT_LOG2` cycles.
    pub moderation_period: Signal<In, Bits<16>>,
    /// Register `interrupt_pending`; registered.
    pub pending: Signal<Out, Bits<VECTORS>>,
    /// To the shell; registered.
    pub irq: StreamTx<Bits<VECTOR_BITS>>,
    /// A vector is raised; registered.
    pub is_counted: Signal<Out, Bit>,

    periods: Memory<Bits<16>, VECTOR_BITS>,
    /// Time at which the period of a vector that is in `holds` ends.
    earliest: Memory<Bits<TIME_BITS>, VECTOR_BITS>,
    waits: Reg<Bits<VECTORS>>,
    /// Vectors whose period runs.
    holds: Reg<Bits<VECTORS>>,
    looks_at: Reg<Bits<VECTOR_BITS>>,
    decides: Reg<Bit>,
    /// There is an interrupt to decide about, rather than a period that may be over.
    is_wanted: DFF<Bit>,
    vector: DFF<Bits<VECTOR_BITS>>,
    raised: Reg<Bit>,
    raised_vector: DFF<Bits<VECTOR_BITS>>,
    counted: Reg<Bit>,
    time: Reg<Bits<CLOCK_BITS>>,
}

impl<const UNIT_LOG2: usize> Logic for Interrupts<UNIT_LOG2> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.time.d.next = self.time.q.val() + 1;
        let now = self.time.q.val().get_bits::<TIME_BITS>(UNIT_LOG2);
        let waits = self.waits.q.val();
        let holds = self.holds.q.val();
        let is_free = !self.raised.q.val() || self.irq.ready.val();

        // A new request, or a vector that waits or whose period runs.
        let decides = self.decides.q.val();
        let looks_at = self.looks_at.q.val();
        let chooses = !decides && is_free;
        let takes = chooses && self.request.valid.val();
        let retries = chooses && !takes && (waits | holds).get_bit(looks_at.index());
        let vector = select(takes, self.request.beat.val(), looks_at);
        self.request.ready.next = chooses;
        if chooses && !takes {
            self.looks_at.d.next = looks_at + 1;
        }
        self.decides.d.next = takes || retries;
        if takes || retries {
            self.vector.d.next = vector;
            self.is_wanted.d.next = takes || waits.get_bit(looks_at.index());
        }
        self.periods.write_enable.next = self.moderation_write.val();
        self.periods.write_address.next = self.moderation_vector.val();
        self.periods.write_data.next = self.moderation_period.val();
        self.periods.read(takes || retries, vector);
        self.earliest.read(takes || retries, vector);

        let vector = self.vector.q.val();
        let period = self.periods.read_data.val();
        let is_masked = self.mask.val().get_bit(vector.index());
        let is_soon =
            period.any() && holds.get_bit(vector.index()) && is_ahead(self.earliest.read_data.val(), now);
        let is_wanted = self.is_wanted.q.val();
        let raises = decides && is_wanted && !is_masked && !is_soon;
        let mark = bits::<VECTORS>(1) << vector;
        let kept = waits & !self.pending_clear.val();
        self.waits.d.next = if raises {
            kept & !mark
        } else if decides && is_wanted {
            kept | mark
        } else {
            kept
        };
        self.holds.d.next = if raises && period.any() {
            holds | mark
        } else if decides && !is_soon {
            holds & !mark
        } else {
            holds
        };
        self.earliest.write(raises, vector, end_of(period, now));

        if raises {
            self.raised.d.next = true;
            self.raised_vector.d.next = vector;
        } else if self.irq.ready.val() {
            self.raised.d.next = false;
        }
        self.counted.d.next = raises;
        self.is_counted.next = self.counted.q.val();
        self.irq.offer(self.raised.q.val(), self.raised_vector.q.val());
        self.pending.next = waits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::Bench;

    /// The block with units of one cycle, and the cycles in which it raised vector 5.
    struct Machine {
        bench: Bench<Interrupts<0>>,
        cycle: u64,
        raised: Vec<u64>,
    }

    impl Machine {
        fn new(period: u64) -> Self {
            let mut bench =
                Bench::clocked(Interrupts::<0>::default(), |block| &mut block.clock).in_lock_step();
            bench.block.irq.ready.next = true;
            bench.block.request.beat.next = bits(5);
            bench.block.moderation_vector.next = bits(5);
            bench.block.moderation_period.next = bits(period);
            bench.block.moderation_write.next = true;
            let mut machine = Machine { bench, cycle: 0, raised: Vec::new() };
            machine.run(1);
            machine.bench.block.moderation_write.next = false;
            machine
        }

        fn run(&mut self, cycles: u64) {
            for _ in 0..cycles {
                self.bench.settle();
                if self.bench.block.irq.valid.val() {
                    self.raised.push(self.cycle);
                }
                self.bench.tick();
                self.cycle += 1;
            }
        }

        /// Requests the vector, and returns the cycle.
        fn request(&mut self) -> u64 {
            self.bench.settle();
            while !self.bench.block.request.ready.val() {
                self.run(1);
                self.bench.settle();
            }
            self.bench.block.request.valid.next = true;
            self.run(1);
            self.bench.block.request.valid.next = false;
            self.cycle - 1
        }
    }

    /// The counter of time wraps after 2^17 units. Half of it, and all of it, after an interrupt the next one is no sooner.
    #[test]
    fn an_interrupt_after_its_moderation_period_is_raised_at_once() {
        let mut machine = Machine::new(4);
        for rest in [40_000, 66_000, 100_000, 132_000] {
            machine.request();
            machine.run(rest);
            machine.raised.clear();
            let requested = machine.request();
            machine.run(10);
            assert_eq!(machine.raised, [requested + 2], "after {rest} cycles");
            machine.run(200);
        }
    }

    #[test]
    fn the_longest_period_is_kept() {
        let mut machine = Machine::new(0xffff);
        let first = machine.request();
        machine.run(100);
        machine.request();
        machine.run(0xffff + 200);
        assert_eq!(machine.raised.len(), 2, "{:?}", machine.raised);
        assert_eq!(machine.raised[0], first + 2);
        let apart = machine.raised[1] - machine.raised[0];
        assert!((0xffff..=0xffff + 130).contains(&apart), "{apart} cycles");
    }

    #[test]
    fn reset_ends_a_period() {
        let mut machine = Machine::new(5_000);
        machine.request();
        machine.run(10);
        machine.bench.block.reset.next = true;
        machine.run(1);
        machine.bench.block.reset.next = false;
        machine.raised.clear();
        let requested = machine.request();
        machine.run(10);
        assert_eq!(machine.raised, [requested + 2]);
    }
}
