//! READs of the peer: from admission to the responses.
use crate::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS};
use rnic_kernel::prelude::*;

/// READs of a queue pair that may be under way, as a power of two: as many as `destination_read_atomic` allows (protocol 3.5).
pub const READ_SLOT_BITS: usize = 4;
/// A free-running count of them.
pub const READ_COUNT_BITS: usize = READ_SLOT_BITS + 1;

/// A READ whose range is good, to be served when the writes before it are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadJob {
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
    /// In bytes, 0 to 2^31.
    pub length: Bits<32>,
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
