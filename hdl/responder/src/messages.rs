//! What the stages of the responder say to each other.
use rnic_kernel::prelude::*;
use rnic_messages::read::READ_SLOT_BITS;
use rnic_messages::sizes::{
    COMPLETION_QUEUE_BITS, GENERATION_BITS, QUEUE_PAIR_BITS, RECEIVE_RING_BITS, SPAN_BITS, WORK_INDEX_BITS,
};

/// What is to be done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Decision {
    /// Its payload is dropped, and nothing else happens.
    Drop,
    /// It is executed, if keys and receive entry allow it.
    Execute,
    /// It is not executed, but answered: a duplicate, a gap, or no receive entry.
    Answer,
    /// It makes no sense; the queue pair fails.
    Refuse,
    /// There is no packet: a receive entry of a queue pair in ERR is given back.
    Flush,
}

/// A packet whose place in the order of its queue pair is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Admitted {
    /// What is to be done.
    pub decision: Decision,
    /// A SEND, else a WRITE, a READ or an atomic.
    pub is_send: Bit,
    /// A READ or an atomic.
    pub is_read: Bit,
    /// An atomic.
    pub is_atomic: Bit,
    /// The first or only one of its message.
    pub starts: Bit,
    /// The last or only one of its message.
    pub ends: Bit,
    /// It consumes a receive entry, the next in the stream of entries.
    pub takes_entry: Bit,
    /// It belongs to the receive entry that a SEND of several packets has consumed.
    pub uses_held: Bit,
    /// There is neither packet nor entry: the queue pair in ERR has no entry of its shared receive queue any more.
    pub is_last: Bit,
    /// The first that is heard of this generation of the queue pair.
    pub is_first: Bit,
    /// Whose packet.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// The whole QPN.
    pub qp_number: Bits<24>,
    /// Protection domain.
    pub domain: Bits<24>,
    /// Completion queue of receives.
    pub completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    /// Bytes of payload that came.
    pub payload_bytes: Bits<SPAN_BITS>,
    /// WRITE: address of the payload in the region; READ: of what is read; atomic: of its word.
    pub address: Bits<64>,
    /// WRITE, READ, atomic: key of the region.
    pub key: Bits<32>,
    /// WRITE, READ: length of the message; atomic: that of its word.
    pub message_length: Bits<32>,
    /// Immediate data, first byte on the wire in bits 7:0.
    pub immediate: Bits<32>,
    /// There is immediate data.
    pub with_immediate: Bit,
    /// A key of this host is to be ended, which stands in `immediate` as a number.
    pub with_invalidate: Bit,
    /// The sender asked for a solicited event.
    pub solicited: Bit,
    /// Receive entries consumed with this packet; zero if they are shared.
    pub consumer_index: Bits<WORK_INDEX_BITS>,
    /// The peer is told something, if all goes well.
    pub has_reply: Bit,
    /// What.
    pub syndrome: Bits<8>,
    /// With which PSN.
    pub psn: Bits<24>,
    /// READ, atomic: PSN of its last response.
    pub last_psn: Bits<24>,
    /// READ, atomic: which of those that may be under way.
    pub slot: Bits<READ_SLOT_BITS>,
    /// With which MSN.
    pub msn: Bits<24>,
}

/// A packet of a queue pair has failed behind admission: nothing more of it is admitted. There is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Stop {
    /// Whose.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
}

/// A wish for the next receive entry of a ring; it is posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReceiveWqeRequest {
    /// Which ring.
    pub ring: Bits<RECEIVE_RING_BITS>,
    /// For which generation of a queue pair; a shared receive queue outlives those who ask.
    pub generation: Bits<GENERATION_BITS>,
}

/// A receive entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReceiveWqe {
    /// Its bytes as in host memory, byte 0 in bits 7:0.
    pub data: Bits<512>,
    /// It could not be read.
    pub error: Bit,
    /// The queue pair that it was asked for is no more.
    pub is_stale: Bit,
}

/// What is wrong with a receive entry, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum ReceiveWqeFault {
    /// Nothing.
    Good,
    /// Its queue pair is no more.
    Stale,
    /// The host did not give it.
    Unreadable,
    /// Reserved bits are set.
    Malformed,
    /// Its elements hold less than the message up to here.
    TooShort,
}

/// A packet whose places have been asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Scattered {
    /// The packet.
    pub packet: Admitted,
    /// What is wrong with its receive entry.
    pub fault: ReceiveWqeFault,
    /// Tag of the receive entry.
    pub wr_id: Bits<64>,
    /// Bytes of the message: of a WRITE all, of a SEND those that came.
    pub message_bytes: Bits<32>,
    /// Answers to wait for: one for each length that is not zero.
    pub answers: Bits<2>,
    /// Length of the place for the first answer.
    pub first_bytes: Bits<SPAN_BITS>,
    /// Length of the place for the second answer.
    pub second_bytes: Bits<SPAN_BITS>,
    /// Length of the place for the third answer.
    pub third_bytes: Bits<SPAN_BITS>,
}

/// What an atomic does with the word that it finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AtomicOperands {
    /// COMPARE_SWAP, else FETCH_ADD.
    pub is_compare: Bit,
    /// What is put in its place, or added to it.
    pub operand: Bits<64>,
    /// COMPARE_SWAP: what it must be for that.
    pub compare: Bits<64>,
}

/// An atomic whose word is known, to be done when the writes before it are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AtomicJob {
    /// Whose.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// Which of the READs and atomics that may be under way.
    pub slot: Bits<READ_SLOT_BITS>,
    /// Device address of the word, a multiple of 8.
    pub address: Bits<64>,
    /// What is done with it.
    pub operands: AtomicOperands,
}

/// The writes before the oldest atomic that was not released are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AtomicRelease {
    /// Whose atomic.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
}

/// An atomic is done; those of a queue pair in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AtomicResult {
    /// Whose.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// Which of the READs and atomics that may be under way.
    pub slot: Bits<READ_SLOT_BITS>,
    /// What the word was.
    pub original: Bits<64>,
    /// The host failed to give or to take it.
    pub has_failed: Bit,
}
