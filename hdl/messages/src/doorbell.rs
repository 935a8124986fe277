//! Doorbells that were found good: object and page agree.
use crate::sizes::{
    COMPLETION_QUEUE_BITS, ENTRY_INDEX_BITS, EVENT_QUEUE_BITS, QUEUE_PAIR_BITS, RECEIVE_RING_BITS,
    SHARED_RECEIVE_BITS, WORK_INDEX_BITS,
};
use rnic_kernel::prelude::*;

/// A send queue was filled up to an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SendsPosted {
    /// Whose queue.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Slots ever written.
    pub producer_index: Bits<WORK_INDEX_BITS>,
}

/// A receive queue, own or shared, was filled up to an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReceivesPosted {
    /// Which ring.
    pub ring: Bits<RECEIVE_RING_BITS>,
    /// Entries ever written.
    pub producer_index: Bits<WORK_INDEX_BITS>,
}

/// Gives the ring of a queue pair.
#[kernel]
pub fn own_ring(queue_pair: Bits<QUEUE_PAIR_BITS>) -> Bits<RECEIVE_RING_BITS> {
    bit_cast::<RECEIVE_RING_BITS, QUEUE_PAIR_BITS>(queue_pair)
}

/// Gives the ring of a shared receive queue.
#[kernel]
pub fn shared_ring(number: Bits<SHARED_RECEIVE_BITS>) -> Bits<RECEIVE_RING_BITS> {
    cat!(bits::<5>(1 << (QUEUE_PAIR_BITS - SHARED_RECEIVE_BITS)), number)
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
