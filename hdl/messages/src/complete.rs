//! From requester and responder to the completion queues.
use crate::sizes::{COMPLETION_QUEUE_BITS, EVENT_QUEUE_BITS, GENERATION_BITS, VECTOR_BITS};
use rnic_kernel::prelude::*;

/// What a completion entry says (`rnic_layout::queue::completion::Cqe`), and where it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CqeToken {
    /// Into which queue.
    pub completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    /// Tag of the work request.
    pub wr_id: Bits<64>,
    /// Bytes received or read.
    pub length: Bits<32>,
    /// Immediate data, first byte on the wire in bits 7:0; or a key.
    pub immediate: Bits<32>,
    /// The whole QPN.
    pub qp_number: Bits<24>,
    /// Generation of the queue pair, which fails if the completion finds no room.
    pub generation: Bits<GENERATION_BITS>,
    /// First slot or entry that is still in use.
    pub consumer_index: Bits<16>,
    /// A `CompletionOpcode`.
    pub opcode: Bits<8>,
    /// A `CompletionStatus`.
    pub status: Bits<8>,
    /// Syndrome of the peer's NAK, or the card's own reason.
    pub vendor_error: Bits<8>,
    /// `immediate` holds immediate data.
    pub with_immediate: Bit,
    /// `immediate` holds a key that the peer has freed.
    pub with_invalidate: Bit,
    /// The sender asked for a solicited event.
    pub solicited: Bit,
    /// There is no entry to write: behind all others, the queue pair in ERR has no entry of its shared receive queue any more.
    pub is_last: Bit,
}

/// An asynchronous event, or the news of an admin answer, for event queue 0 (`rnic_layout::queue::event::Eqe`).
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct EqeToken {
    /// Which object.
    pub object_number: Bits<24>,
    /// More, by kind.
    pub detail: Bits<32>,
    /// An `EventKind`.
    pub kind: Bits<8>,
    /// An `AsyncEvent`.
    pub code: Bits<8>,
}

/// Commands make, change and end completion queues; there is no `ready`. Making one starts all its indices at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CompletionQueueSetup {
    /// Which queue.
    pub completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    /// It is made or ended, else only the moderation changes.
    pub restarts: Bit,
    /// It exists from now on.
    pub valid: Bit,
    /// Entries, as a power of two.
    pub entries_log2: Bits<5>,
    /// Where its events go.
    pub event_queue: Bits<EVENT_QUEUE_BITS>,
    /// An event waits for so many completions.
    pub moderation_count: Bits<16>,
    /// But no longer than so many units of 256 cycles.
    pub moderation_period: Bits<16>,
    /// Device address of the ring, in pages of 4,096 bytes.
    pub base_page: Bits<52>,
}

/// Commands make, change and end event queues; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct EventQueueSetup {
    /// Which queue.
    pub event_queue: Bits<EVENT_QUEUE_BITS>,
    /// It is made or ended, else only the vector changes.
    pub restarts: Bit,
    /// It exists from now on.
    pub valid: Bit,
    /// Entries, as a power of two.
    pub entries_log2: Bits<5>,
    /// Interrupt vector.
    pub vector: Bits<VECTOR_BITS>,
    /// Device address of the ring, in pages of 4,096 bytes.
    pub base_page: Bits<52>,
}
