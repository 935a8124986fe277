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

/// What an answer of the peer has come to, which is told when the payload of all answers before it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReturnedAnswer {
    /// Whose.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// PSN of the answer; of a failure, that of the response that is missing.
    pub psn: Bits<24>,
    /// The data up to this PSN is in host memory.
    pub is_placed: Bit,
    /// So was that before it, and more of the same READ is to come: no message ends or begins with it.
    pub is_middle: Bit,
    /// An ACK or NAK that overtook nothing.
    pub is_said: Bit,
    /// The READ at this PSN ends with `status`.
    pub is_failure: Bit,
    /// Data came that nobody has asked for.
    pub is_unasked: Bit,
    /// Syndrome of an ACK or NAK.
    pub syndrome: Bits<8>,
    /// A `CompletionStatus`.
    pub status: Bits<8>,
    /// The host did not take the data.
    pub has_failed: Bit,
}

/// What becomes of an answer of the peer: as [`PlaceCommand`](crate::receive::PlaceCommand), of what the card itself has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadResponseCommand {
    /// Bytes to be placed or dropped: the next in the payload stream of answers if not zero, unless they stand here.
    pub payload_bytes: Bits<13>,
    /// Where they go: so many spans, 0 to 2, whose lengths add up to `payload_bytes`, or none to drop them.
    pub span_count: Bits<2>,
    /// First span.
    pub first: HostSpan,
    /// Second span.
    pub second: HostSpan,
    /// The bytes are those of `literal`, first byte in bits 7:0; `payload_bytes` is 8 and no payload came.
    pub is_literal: Bit,
    /// They.
    pub literal: Bits<64>,
    /// What is told then; `has_failed` is filled in by the place stage.
    pub answer: ReturnedAnswer,
}
