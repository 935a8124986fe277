//! From admission to host memory, and to the reply.
use crate::complete::CqeToken;
use crate::host::HostSpan;
use crate::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, WRITE_COUNT_BITS};
use rnic_kernel::prelude::*;

/// What the peer is to be told, once what it promises is done. A newer one of the same queue pair takes its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReplyEvent {
    /// Whose.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// AETH syndrome: ACK, NAK or RNR NAK (protocol 1.6).
    pub syndrome: Bits<8>,
    /// PSN of the acknowledge packet.
    pub psn: Bits<24>,
    /// MSN.
    pub msn: Bits<24>,
    /// A READ or an atomic is to be answered instead, once its time has come.
    pub is_read: Bit,
    /// An atomic, which may be done then.
    pub is_atomic: Bit,
    /// It may leave when so many host writes are done; filled in by the place stage.
    pub write_count: Bits<WRITE_COUNT_BITS>,
    /// It is for the requester instead, as `place_share` packs it.
    pub is_answer: Bit,
    /// A host write of its payload failed; filled in by the place stage.
    pub has_failed: Bit,
    /// It is a NAK that ends the queue pair, and no completion says so: an asynchronous event does.
    pub has_event: Bit,
}

/// What becomes of an admitted packet. One command for every packet, in order; its payload is the next in the payload
/// stream if `payload_bytes` is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PlaceCommand {
    /// Whose packet.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// Bytes of payload that came.
    pub payload_bytes: Bits<13>,
    /// Where it goes: so many spans, 0 to 3, whose lengths add up to `payload_bytes`, or none to drop it.
    pub span_count: Bits<2>,
    /// First span.
    pub first: HostSpan,
    /// Second span.
    pub second: HostSpan,
    /// Third span.
    pub third: HostSpan,
    /// A completion follows the payload.
    pub has_completion: Bit,
    /// Which.
    pub completion: CqeToken,
    /// A reply follows.
    pub has_reply: Bit,
    /// Which.
    pub reply: ReplyEvent,
}
