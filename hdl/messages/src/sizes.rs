//! Sizes of the card's tables, as powers of two: widths of the indices that tokens carry.

/// Index of a queue pair: the low bits of its QPN.
pub const QUEUE_PAIR_BITS: usize = 10;
/// Number of a completion queue.
pub const COMPLETION_QUEUE_BITS: usize = 10;
/// Number of a shared receive queue.
pub const SHARED_RECEIVE_BITS: usize = 6;
/// Number of a ring of receive entries: first those of the queue pairs, by their index, behind them the shared ones.
pub const RECEIVE_RING_BITS: usize = QUEUE_PAIR_BITS + 1;
/// Rings of receive entries.
pub const RECEIVE_RINGS: u64 = (1 << QUEUE_PAIR_BITS) + (1 << SHARED_RECEIVE_BITS);
/// Number of an event queue.
pub const EVENT_QUEUE_BITS: usize = 5;
/// Index of a region: the low bits of the high 24 of its key.
pub const REGION_BITS: usize = 10;
/// Entry of the table of pages.
pub const PAGE_ENTRY_BITS: usize = rnic_layout::limits::PAGE_ENTRIES_LOG2 as usize;
/// Number of a device page of the smallest size.
pub const PAGE_NUMBER_BITS: usize = 64 - rnic_layout::limits::PAGE_LOG2_MIN as usize;
/// Number of an address handle.
pub const ADDRESS_HANDLE_BITS: usize = 8;
/// Number of a doorbell page.
pub const DOORBELL_PAGE_BITS: usize = 8;
/// Interrupt vector.
pub const VECTOR_BITS: usize = 6;
/// Entry of the table of source addresses.
pub const SOURCE_ADDRESS_BITS: usize = 4;
/// Entries of the table of source addresses.
pub const SOURCE_ADDRESSES: usize = 1 << SOURCE_ADDRESS_BITS;

/// Generation of a queue pair (design decision 8).
pub const GENERATION_BITS: usize = 8;
/// A free-running index of a send or receive queue, in slots or entries.
pub const WORK_INDEX_BITS: usize = 16;
/// A free-running index of a completion or event queue, in entries.
pub const ENTRY_INDEX_BITS: usize = 24;
/// A free-running count of host writes, issued or done.
pub const WRITE_COUNT_BITS: usize = 16;
/// Length of a stretch of host memory that one packet or fetch touches: up to 4,096 bytes.
pub const SPAN_BITS: usize = 13;
/// Length of one request to the host: 1 to 512 bytes.
pub const LENGTH_BITS: usize = 10;
