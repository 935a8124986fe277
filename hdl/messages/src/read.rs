//! READs and atomics of the peer, from admission to the responses; and own READs, from the responses to host memory.
use crate::host::HostSpan;
use crate::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS};
use rnic_kernel::prelude::*;

/// READs and atomics of a queue pair that may be under way, as a power of two: as many as `destination_read_atomic` allows (protocol 3.5).
pub const READ_SLOT_BITS: usize = 4;
/// A free-running count of them.
pub const READ_COUNT_BITS: usize = READ_SLOT_BITS + 1;

/// A READ whose range is good, to be served when the writes before it are done; or an atomic, to be answered when it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadRequest {
    /// Whose.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// PSN of its first response.
    pub psn: Bits<24>,
    /// MSN of its responses.
    pub msn: Bits<24>,
    /// Key of the region.
    pub key: Bits<32>,
    /// In the region's own address space.
    pub address: Bits<64>,
    /// In bytes, 0 to 2^31; of an atomic 0.
    pub length: Bits<32>,
    /// An atomic: its value comes from elsewhere, and key and address do not count.
    pub is_atomic: Bit,
}

/// The writes before the oldest job that was not released are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadRelease {
    /// Whose job.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
}

/// The last response to a READ is on its way to the wire; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadClosed {
    /// Whose READ.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
}

/// How many READs of a queue pair have been served or dropped; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadsServed {
    /// Whose.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// So many since it was made or reset, free-running.
    pub count: Bits<READ_COUNT_BITS>,
}

/// What a response of the peer means for the requester, in order: given out when the payload of all responses before it is
/// written. Of `is_placed`, `is_acknowledge`, `is_read_error` and `is_unexpected` at most one is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ResponseNotice {
    /// Queue pair the response belongs to.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of that queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// PSN of the response; with `is_read_error` that of the response that is missing or wrong.
    pub psn: Bits<24>,
    /// READ or atomic data up to this PSN is in host memory.
    pub is_placed: Bit,
    /// With `is_placed`: neither the first nor the last response of its READ, so no message begins or ends here.
    pub is_middle: Bit,
    /// An ACK or NAK, after all READ data that it acknowledges.
    pub is_acknowledge: Bit,
    /// The READ or atomic at this PSN completes in error, with `status`.
    pub is_read_error: Bit,
    /// READ or atomic data that no outstanding request asked for.
    pub is_unexpected: Bit,
    /// AETH syndrome of an ACK or NAK.
    pub syndrome: Bits<8>,
    /// A `CompletionStatus`.
    pub status: Bits<8>,
    /// The host refused a write of the data; filled in by place.
    pub write_failed: Bit,
}

/// What becomes of a response of the peer: as [`PlaceCommand`](crate::receive::PlaceCommand), for data that this card asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadResponseCommand {
    /// Bytes to be written or dropped, 0 to 4,096: the next in the payload stream of responses, unless `is_literal`.
    pub payload_bytes: Bits<13>,
    /// Number of spans, 0 to 2, whose lengths add up to `payload_bytes`; without a span the payload is dropped.
    pub span_count: Bits<2>,
    /// First span.
    pub first: HostSpan,
    /// Second span.
    pub second: HostSpan,
    /// The bytes are those of `literal` instead of the payload stream's; `payload_bytes` is 8.
    pub is_literal: Bit,
    /// Original value of an atomic's word, the first byte in memory in bits 7:0.
    pub literal: Bits<64>,
    /// What the requester is given after the payload.
    pub notice: ResponseNotice,
}
