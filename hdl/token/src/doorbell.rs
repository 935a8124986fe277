//! Doorbells that were found good: object and page agree.
use crate::sizes::{
    COMPLETION_QUEUE_BITS, ENTRY_INDEX_BITS, EVENT_QUEUE_BITS, QUEUE_PAIR_BITS, WORK_INDEX_BITS,
};
use rnic_kernel::prelude::*;

/// A send or receive queue was filled up to an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WorkPosted {
    /// Whose queue.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Slots or entries ever written.
    pub producer_index: Bits<WORK_INDEX_BITS>,
}

/// A completion queue was read up to an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CompletionsRead {
    /// Which queue.
    pub completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    /// Entries ever read.
    pub consumer_index: Bits<ENTRY_INDEX_BITS>,
    /// A `rnic_layout::doorbell::Arm`.
    pub arm: Bits<2>,
}

/// An event queue was read up to an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct EventsRead {
    /// Which queue.
    pub event_queue: Bits<EVENT_QUEUE_BITS>,
    /// Entries ever read.
    pub consumer_index: Bits<ENTRY_INDEX_BITS>,
    /// One interrupt at the next event.
    pub arm: Bit,
}
