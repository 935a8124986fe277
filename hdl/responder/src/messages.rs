//! Messages between the stages of the responder, and its counters.
use rnic_kernel::prelude::*;
use rnic_messages::read::{READ_SLOT_BITS, ReadShare};
use rnic_messages::sizes::{
    CELL_BITS, COMPLETION_QUEUE_BITS, GENERATION_BITS, QUEUE_PAIR_BITS, RECEIVE_RING_BITS, SPAN_BITS,
    WORK_INDEX_BITS,
};

/// What admission decides about a packet.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Decision {
    /// Its payload is dropped without a reply.
    Drop,
    /// It is executed, if keys and receive WQE allow it.
    Execute,
    /// It is not executed, but the peer gets a reply, or the responses to an earlier request: a duplicate, a gap,
    /// or no receive WQE is posted.
    Reply,
    /// It is invalid; the queue pair fails.
    Refuse,
    /// There is no packet: a receive WQE of a queue pair in ERR is flushed.
    Flush,
}

/// A packet in the order of its queue pair, with the decision of admission.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Admitted {
    /// What to do with it.
    pub decision: Decision,
    /// A SEND; else a WRITE, a READ or an atomic.
    pub is_send: Bit,
    /// A READ or an atomic.
    pub is_read: Bit,
    /// An atomic.
    pub is_atomic: Bit,
    /// A duplicate READ or atomic, which is not executed.
    pub is_again: Bit,
    /// A duplicate atomic.
    pub is_atomic_again: Bit,
    /// First or only packet of its message.
    pub starts: Bit,
    /// Last or only packet of its message.
    pub ends: Bit,
    /// It consumes a receive WQE, the next of its ring.
    pub takes_wqe: Bit,
    /// It belongs to the receive WQE that the first packet of its SEND has consumed.
    pub uses_held: Bit,
    /// There is neither packet nor WQE: the queue pair in ERR holds no more WQEs of its SRQ (last WQE reached).
    pub is_last_wqe: Bit,
    /// First packet that admission forwards for this generation of the queue pair.
    pub starts_generation: Bit,
    /// Queue pair of the packet.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// QPN of the queue pair.
    pub qp_number: Bits<24>,
    /// Protection domain of the queue pair.
    pub domain: Bits<24>,
    /// Completion queue of its receive queue.
    pub completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    /// Bytes of payload.
    pub payload_bytes: Bits<SPAN_BITS>,
    /// First cell of the payload in the request buffer.
    pub first_cell: Bits<CELL_BITS>,
    /// WRITE: address of the payload in the region; READ: of the first byte to read; atomic: of its word.
    pub address: Bits<64>,
    /// WRITE, READ, atomic: remote key.
    pub key: Bits<32>,
    /// WRITE, READ: bytes of the message; atomic: bytes of its word.
    pub message_length: Bits<32>,
    /// Immediate data, first byte on the wire in bits 7:0; or the key to invalidate, as a number.
    pub immediate: Bits<32>,
    /// `immediate` holds immediate data.
    pub with_immediate: Bit,
    /// `immediate` holds a key to invalidate.
    pub with_invalidate: Bit,
    /// The sender asked for a solicited event.
    pub solicited: Bit,
    /// Free-running count of receive WQEs that the queue pair has consumed, with this one; zero if they are of
    /// an SRQ.
    pub consumer_index: Bits<WORK_INDEX_BITS>,
    /// The peer gets a reply, or responses, if all goes well.
    pub has_reply: Bit,
    /// AETH syndrome of the reply.
    pub syndrome: Bits<8>,
    /// PSN of the reply; of a READ or an atomic, PSN of the request and so of the first response.
    pub psn: Bits<24>,
    /// MSN of the reply or of the responses.
    pub msn: Bits<24>,
    /// Responses to a READ or an atomic, or those that are asked for again; undefined for other packets.
    pub responses: Responses,
}

/// Responses that a READ or an atomic is answered with.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Responses {
    /// PSN of the last response.
    pub last_psn: Bits<24>,
    /// Slot of the request among the READs and atomics in flight of its queue pair.
    pub slot: Bits<READ_SLOT_BITS>,
    /// READ slots of the queue pair.
    pub share: ReadShare,
}

/// A packet of a queue pair has failed after admission, which admits no more packets of it. There is no
/// `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Stop {
    /// Queue pair of the packet.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
}

/// A packet on its way to its place in the order of its receive ring, with all that follows this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Admission {
    /// The packet.
    pub packet: Admitted,
    /// Receive ring of its queue pair: [`own_ring`](rnic_messages::doorbell::own_ring) or
    /// [`shared_ring`](rnic_messages::doorbell::shared_ring).
    pub ring: Bits<RECEIVE_RING_BITS>,
    /// Operands, if it is an atomic that is executed.
    pub operands: AtomicOperands,
}

/// Request for the next receive WQE of a ring, which is posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReceiveWqeRequest {
    /// Number of the ring: [`own_ring`](rnic_messages::doorbell::own_ring) or
    /// [`shared_ring`](rnic_messages::doorbell::shared_ring).
    pub ring: Bits<RECEIVE_RING_BITS>,
    /// Generation of the queue pair that owns the ring; ignored for an SRQ, which outlives its queue pairs.
    pub generation: Bits<GENERATION_BITS>,
    /// It is for the oldest packet of its ring, which was parked. After an answer without a WQE all others get none before it.
    pub restarts: Bit,
}

/// Bits of a count of answers that wait at an output.
pub const ANSWER_COUNT_BITS: usize = 4;

/// A receive WQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReceiveWqe {
    /// Its bytes as in host memory, byte 0 in bits 7:0.
    pub data: Bits<512>,
    /// The host did not deliver it.
    pub error: Bit,
    /// The generation that requested it is over.
    pub is_stale: Bit,
    /// There is none: it is not on the card, or belongs to a packet before this one. The packet must be parked.
    pub is_absent: Bit,
}

/// Why a receive WQE cannot be used, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum ReceiveWqeFault {
    /// It can be used.
    Good,
    /// Its queue pair was restarted.
    Stale,
    /// The host did not deliver it.
    Unreadable,
    /// Reserved bits are set.
    Malformed,
    /// Its SGEs hold fewer bytes than the message has up to this packet.
    TooShort,
}

/// Bytes of a payload for each of up to three SGEs.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Parts {
    /// Bytes of the first part.
    pub first: Bits<SPAN_BITS>,
    /// Bytes of the second part.
    pub second: Bits<SPAN_BITS>,
    /// Bytes of the third part.
    pub third: Bits<SPAN_BITS>,
}

/// A packet whose access checks are requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Scattered {
    /// The packet.
    pub packet: Admitted,
    /// Fault of its receive WQE.
    pub fault: ReceiveWqeFault,
    /// `wr_id` of its receive WQE.
    pub wr_id: Bits<64>,
    /// Bytes of the message: of a WRITE all, of a SEND those up to this packet.
    pub message_bytes: Bits<32>,
    /// Access answers to wait for, 0 to 3: one for each part that is not empty.
    pub answer_count: Bits<2>,
    /// Bytes of the part that each access answer is for, in the order of the answers.
    pub parts: Parts,
}

/// What an atomic does with its word.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AtomicOperands {
    /// COMPARE_SWAP, else FETCH_ADD.
    pub is_compare: Bit,
    /// COMPARE_SWAP: the new value; FETCH_ADD: the addend.
    pub operand: Bits<64>,
    /// COMPARE_SWAP: the value that the word must have.
    pub compare: Bits<64>,
}

/// An atomic whose address is translated, to be executed when the writes before it are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AtomicRequest {
    /// Queue pair of the request.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Slot among the READs and atomics in flight of the queue pair.
    pub slot: Bits<READ_SLOT_BITS>,
    /// READ slots of the queue pair.
    pub share: ReadShare,
    /// Device address of the word, a multiple of 8.
    pub address: Bits<64>,
    /// Operation and operands.
    pub operands: AtomicOperands,
}

/// The writes before the oldest unreleased atomic of a queue pair are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AtomicRelease {
    /// Queue pair of the atomic.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
}

/// Result of an atomic; those of a queue pair in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AtomicResult {
    /// Queue pair of the request.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Slot among the READs and atomics in flight of the queue pair.
    pub slot: Bits<READ_SLOT_BITS>,
    /// Value of the word before the operation.
    pub original: Bits<64>,
    /// The host failed the read or the write of the word.
    pub has_failed: Bit,
}

/// Counters of admission; each bit is high for one cycle per event.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AdmitCounts {
    /// A request for a QPN that does not exist was dropped.
    pub unknown_qp: Bit,
    /// A request for a queue pair that is not ready to receive was dropped.
    pub qp_not_ready: Bit,
    /// A request of another transport service was dropped.
    pub transport_mismatch: Bit,
    /// A request with another P_Key was dropped.
    pub partition_key: Bit,
    /// A request from or for another address was dropped.
    pub source_address: Bit,
    /// A duplicate SEND or WRITE came.
    pub duplicate_request: Bit,
    /// A duplicate that is no valid request was dropped.
    pub duplicate_dropped: Bit,
    /// A request came with a PSN after the expected one.
    pub request_gap: Bit,
    /// A request was dropped because an earlier one of its queue pair has failed.
    pub requests_after_failure: Bit,
    /// A request was dropped because as much of its ring is parked as is free for all.
    pub share_exceeded: Bit,
}

/// Counters of [`Resolve`](crate::resolve::Resolve); each bit is high for one cycle per event.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ResolveCounts {
    /// A packet was dropped because an earlier one of its queue pair has failed.
    pub requests_after_failure: Bit,
    /// A remote key did not allow an access.
    pub remote_protection: Bit,
    /// A local key of a receive WQE did not allow an access.
    pub local_protection: Bit,
    /// A receive WQE has reserved bits set.
    pub work_refused: Bit,
    /// A packet was dropped because its queue pair was restarted.
    pub stale_dropped: Bit,
}

/// Counters of [`Ack`](crate::ack::Ack); each bit is high for one cycle per event.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AckCounts {
    /// An ACK was sent.
    pub acknowledgements_sent: Bit,
    /// A NAK 0x60, PSN sequence error, was sent.
    pub nak_sequence_sent: Bit,
    /// A NAK 0x61, invalid request, was sent.
    pub nak_invalid_request_sent: Bit,
    /// A NAK 0x62, remote access error, was sent.
    pub nak_access_sent: Bit,
    /// A NAK 0x63, remote operational error, was sent.
    pub nak_operational_sent: Bit,
    /// An RNR NAK was sent.
    pub nak_rnr_sent: Bit,
    /// A reply was dropped because its queue pair was restarted.
    pub stale_dropped: Bit,
}

/// Counters of [`ReadResponder`](crate::read_responder::ReadResponder); each bit is high for one cycle per
/// event.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadResponderCounts {
    /// A duplicate READ or atomic is answered.
    pub duplicate_request: Bit,
    /// A duplicate READ or atomic was dropped: nothing of it is noted.
    pub duplicate_dropped: Bit,
    /// A NAK 0x62 was sent in place of a response: the remote key does not allow the access any more.
    pub nak_access_sent: Bit,
    /// A NAK 0x63 was sent in place of a response: the host failed a read or an atomic.
    pub nak_operational_sent: Bit,
}

/// Counters of the responder; each bit is high for one cycle per event.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ResponderCounts {
    /// A request for a QPN that does not exist was dropped.
    pub unknown_qp: Bit,
    /// A request for a queue pair that is not ready to receive was dropped.
    pub qp_not_ready: Bit,
    /// A request of another transport service was dropped.
    pub transport_mismatch: Bit,
    /// A request with another P_Key was dropped.
    pub partition_key: Bit,
    /// A request from or for another address was dropped.
    pub source_address: Bit,
    /// A duplicate SEND or WRITE came, or a duplicate READ or atomic that is answered.
    pub duplicate_request: Bit,
    /// A duplicate READ or atomic was dropped.
    pub duplicate_dropped: Bit,
    /// A request came with a PSN after the expected one.
    pub request_gap: Bit,
    /// A request was dropped because an earlier one of its queue pair has failed.
    pub requests_after_failure: Bit,
    /// A request was dropped because as much of its ring is parked as is free for all.
    pub share_exceeded: Bit,
    /// An ACK was sent.
    pub acknowledgements_sent: Bit,
    /// A NAK 0x60, PSN sequence error, was sent.
    pub nak_sequence_sent: Bit,
    /// A NAK 0x61, invalid request, was sent.
    pub nak_invalid_request_sent: Bit,
    /// A NAK 0x62, remote access error, was sent.
    pub nak_access_sent: Bit,
    /// A NAK 0x63, remote operational error, was sent.
    pub nak_operational_sent: Bit,
    /// An RNR NAK was sent.
    pub nak_rnr_sent: Bit,
    /// A packet or reply was dropped because its queue pair was restarted.
    pub stale_dropped: Bit,
    /// A remote key did not allow an access.
    pub remote_protection: Bit,
    /// A local key of a receive WQE did not allow an access.
    pub local_protection: Bit,
    /// A receive WQE has reserved bits set.
    pub work_refused: Bit,
}
