//! Frame counters: the counters of the packet path, as registers.
//!
//! The packet path holds the counters of drops and of accepted packets; this block counts all frames and their bytes.
//!
//! ```text
//!  outcome, sent ──> received, sent ──> select ──> held ──> select ──> value
//!  read_address ─┬─────────────────────┘                    ^
//!                └─> counter_index ··> packet path ··> counter
//! ```
//!
//! Latency 2 cycles from `read_address` to `value`.
//!
//! 1. `value` and `is_counter` belong to the address of two cycles before, if it did not change since.
//! 2. Values are those of the last `latch`.
//! 3. No reset clears a count: software reads differences.
use crate::register_map::{ADDRESS_BITS, at};
use crate::totals::Totals;
use rnic_blocks::stream::ValidRx;
use rnic_kernel::prelude::*;
use rnic_messages::drop_reason::REASON_BITS;
use rnic_messages::frame::Count;
use rnic_messages::frame::{ACCEPTED_CONGESTION, ACCEPTED_REQUEST, ACCEPTED_RESPONSE, FrameOutcome};

/// Reads the counters of the packet path.
#[clocked]
#[derive(Default, LogicBlock, Registers)]
pub struct FrameCounters {
    /// From the packet path: what became of a frame.
    pub outcome: ValidRx<FrameOutcome>,
    /// From the MAC's side: a frame has been sent.
    pub sent_frame: Signal<In, Bit>,
    /// Bytes that were sent in this cycle.
    pub sent_bytes: Signal<In, Bits<16>>,
    /// The counts are copied for the reader.
    pub latch: Signal<In, Bit>,
    /// Byte address of the register that is read.
    pub read_address: Signal<In, Bits<ADDRESS_BITS>>,
    /// To the counters of the packet path: number of the one that is read.
    pub counter_index: Signal<Out, Bits<REASON_BITS>>,
    /// From the counters of the packet path: its value, at most two cycles later.
    pub counter: Signal<In, Count>,
    /// The address is that of a frame counter; registered.
    pub is_counter: Signal<Out, Bit>,
    /// Value of that counter.
    pub value: Signal<Out, Bits<64>>,

    received: Totals,
    sent: Totals,
    held: DFF<Bits<64>>,
    is_mine: DFF<Bit>,
    selects_counter: DFF<Bit>,
}

impl Logic for FrameCounters {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.received.latch.next = self.latch.val();
        self.received.frame.next = self.outcome.valid.val();
        self.received.bytes.next =
            select(self.outcome.valid.val(), self.outcome.value.val().frame_bytes, bits::<16>(0));
        self.sent.latch.next = self.latch.val();
        self.sent.frame.next = self.sent_frame.val();
        self.sent.bytes.next = self.sent_bytes.val();

        let address = self.read_address.val();
        self.counter_index.next = match address.to_u64() {
            at::REQUESTS_RECEIVED => bits::<REASON_BITS>(ACCEPTED_REQUEST),
            at::RESPONSES_RECEIVED => bits::<REASON_BITS>(ACCEPTED_RESPONSE),
            at::CONGESTION_RECEIVED => bits::<REASON_BITS>(ACCEPTED_CONGESTION),
            _ => address.get_bits::<REASON_BITS>(3),
        };
        self.is_mine.d.next = true;
        self.selects_counter.d.next = false;
        self.held.d.next = bits(0);
        match address.to_u64() {
            at::FRAMES_RECEIVED => self.held.d.next = self.received.latched_frames.val(),
            at::BYTES_RECEIVED => self.held.d.next = self.received.latched_bytes.val(),
            at::FRAMES_SENT => self.held.d.next = self.sent.latched_frames.val(),
            at::BYTES_SENT => self.held.d.next = self.sent.latched_bytes.val(),
            at::REQUESTS_RECEIVED | at::RESPONSES_RECEIVED | at::CONGESTION_RECEIVED => {
                self.selects_counter.d.next = true;
            }
            at::COUNTERS..=at::DROPS_END => self.selects_counter.d.next = true,
            _ => self.is_mine.d.next = false,
        }
        self.is_counter.next = self.is_mine.q.val();
        self.value.next = select(self.selects_counter.q.val(), self.counter.val().frames, self.held.q.val());
    }
}
