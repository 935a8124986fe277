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
//! Latency 2 cycles for a vector that may be raised; one request in two cycles. Each pending vector is looked
//! at again within 128 cycles without a request.
//!
//! 1. A vector that is masked stays pending until it is unmasked, and is then raised once.
//! 2. Two interrupts of a vector are at least its period apart; until then the second one is pending.
//! 3. Requests for a pending vector add no further interrupt.
//! 4. Clearing a pending vector cancels its interrupt.
//!
//! Protocol 4.4.
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::limits;
use rnic_messages::sizes::VECTOR_BITS;

const VECTORS: usize = limits::INTERRUPT_VECTORS_MAX as usize;
const _: () = assert!(VECTORS == 1 << VECTOR_BITS);

/// Masks and moderates the interrupt vectors.
#[derive(LogicBlock, Registers, Construct)]
pub struct Interrupts {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
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
    /// Period of that write, in units of 256 cycles.
    pub moderation_period: Signal<In, Bits<16>>,
    /// Register `interrupt_pending`; registered.
    pub pending: Signal<Out, Bits<VECTORS>>,
    /// To the shell; registered.
    pub irq: StreamTx<Bits<VECTOR_BITS>>,
    /// A vector is raised; registered.
    pub is_counted: Signal<Out, Bit>,

    periods: Memory<Bits<16>, VECTOR_BITS>,
    /// Time at which a vector may be raised again, in units of 256 cycles.
    earliest: Memory<Bits<16>, VECTOR_BITS>,
    waits: Reg<Bits<VECTORS>>,
    looks_at: Reg<Bits<VECTOR_BITS>>,
    decides: Reg<Bit>,
    vector: DFF<Bits<VECTOR_BITS>>,
    raised: Reg<Bit>,
    raised_vector: DFF<Bits<VECTOR_BITS>>,
    counted: Reg<Bit>,
    time: Reg<Bits<24>>,
}

impl Logic for Interrupts {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.time.d.next = self.time.q.val() + 1;
        let now = self.time.q.val().get_bits::<16>(8);
        let waits = self.waits.q.val();
        let is_free = !self.raised.q.val() || self.irq.ready.val();

        // A new request, or a vector that waits.
        let decides = self.decides.q.val();
        let looks_at = self.looks_at.q.val();
        let chooses = !decides && is_free;
        let takes = chooses && self.request.valid.val();
        let retries = chooses && !takes && waits.get_bit(looks_at.index());
        let vector = select(takes, self.request.beat.val(), looks_at);
        self.request.ready.next = chooses;
        if chooses && !takes {
            self.looks_at.d.next = looks_at + 1;
        }
        self.decides.d.next = takes || retries;
        if takes || retries {
            self.vector.d.next = vector;
        }
        self.periods.write_enable.next = self.moderation_write.val();
        self.periods.write_address.next = self.moderation_vector.val();
        self.periods.write_data.next = self.moderation_period.val();
        self.periods.read_enable.next = takes || retries;
        self.periods.read_address.next = vector;
        self.earliest.read_enable.next = takes || retries;
        self.earliest.read_address.next = vector;

        let vector = self.vector.q.val();
        let period = self.periods.read_data.val();
        let is_masked = self.mask.val().get_bit(vector.index());
        let is_soon = period.any() && (now - self.earliest.read_data.val()).get_bit(15);
        let raises = decides && !is_masked && !is_soon;
        let mark = bits::<VECTORS>(1) << vector;
        let kept = waits & !self.pending_clear.val();
        self.waits.d.next = if raises {
            kept & !mark
        } else if decides {
            kept | mark
        } else {
            kept
        };
        self.earliest.write_enable.next = raises;
        self.earliest.write_address.next = vector;
        self.earliest.write_data.next = now + period;

        if raises {
            self.raised.d.next = true;
            self.raised_vector.d.next = vector;
        } else if self.irq.ready.val() {
            self.raised.d.next = false;
        }
        self.counted.d.next = raises;
        self.is_counted.next = self.counted.q.val();
        self.irq.valid.next = self.raised.q.val();
        self.irq.beat.next = self.raised_vector.q.val();
        self.pending.next = waits;
    }
}
