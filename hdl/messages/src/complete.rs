//! CQEs and EQEs from the stages to the completion part, and set-up of completion and event queues.
use crate::sizes::{COMPLETION_QUEUE_BITS, EVENT_QUEUE_BITS, GENERATION_BITS, QUEUE_PAIR_BITS, VECTOR_BITS};
use rnic_kernel::prelude::*;

/// A CQE (`rnic_layout::queue::completion::Cqe`) and the completion queue that it is written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CqeToken {
    /// Number of the completion queue.
    pub completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    /// `wr_id` of the WQE.
    pub wr_id: Bits<64>,
    /// Bytes received or read.
    pub length: Bits<32>,
    /// Immediate data, first byte on the wire in bits 7:0; or the invalidated key.
    pub immediate: Bits<32>,
    /// QPN, all bits.
    pub qp_number: Bits<24>,
    /// Slot of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair. The queue pair fails if the completion queue is full, or the host refuses the CQE.
    pub generation: Bits<GENERATION_BITS>,
    /// Consumer index of the send queue, in slots, or of the receive queue, in WQEs; zero for an SRQ.
    pub consumer_index: Bits<16>,
    /// A `CompletionOpcode`.
    pub opcode: Bits<8>,
    /// A `CompletionStatus`.
    pub status: Bits<8>,
    /// Detail of an error: syndrome of the peer's NAK, or the card's own code.
    pub vendor_error: Bits<8>,
    /// `immediate` holds immediate data.
    pub with_immediate: Bit,
    /// `immediate` holds the key that the peer invalidated.
    pub with_invalidate: Bit,
    /// The sender requested a solicited event.
    pub solicited: Bit,
    /// Not a CQE: the queue pair in ERR holds no WQE of its SRQ any more, and all its CQEs came before this
    /// token. Raises the asynchronous event `last_wqe_reached`.
    pub is_last: Bit,
}

/// An EQE for event queue 0 (`rnic_layout::queue::event::Eqe`): an asynchronous event, or the event of an admin
/// answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct EqeToken {
    /// QPN, or number of the object.
    pub object_number: Bits<24>,
    /// Index or detail, depending on the kind.
    pub detail: Bits<32>,
    /// An `EventKind`.
    pub kind: Bits<8>,
    /// An `AsyncEvent`.
    pub code: Bits<8>,
}

/// Set-up of a completion queue by a command; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CompletionQueueSetup {
    /// Number of the completion queue.
    pub completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    /// The queue is created or destroyed, and its indices restart at zero. Low: moderation or ring change, and the
    /// indices go on.
    pub restarts: Bit,
    /// The queue exists; low when it is destroyed.
    pub valid: Bit,
    /// log2 of the CQEs of the ring.
    pub entries_log2: Bits<5>,
    /// Number of the event queue that gets its events.
    pub event_queue: Bits<EVENT_QUEUE_BITS>,
    /// CQEs that an event waits for; 0 or 1 disables moderation.
    pub moderation_count: Bits<16>,
    /// Longest time that an event waits, in units of 256 cycles; 0 for no limit.
    pub moderation_period: Bits<16>,
    /// Device address of the ring, in pages of 4,096 bytes.
    pub base_page: Bits<52>,
}

/// Set-up of an event queue by a command; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct EventQueueSetup {
    /// Number of the event queue.
    pub event_queue: Bits<EVENT_QUEUE_BITS>,
    /// The queue is created or destroyed, and its indices restart at zero. Low: only the vector changes.
    pub restarts: Bit,
    /// The queue exists; low when it is destroyed.
    pub valid: Bit,
    /// log2 of the EQEs of the ring.
    pub entries_log2: Bits<5>,
    /// Interrupt vector that the queue raises.
    pub vector: Bits<VECTOR_BITS>,
    /// Device address of the ring, in pages of 4,096 bytes.
    pub base_page: Bits<52>,
}
