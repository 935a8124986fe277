//! Accepted doorbells: the object exists and belongs to the doorbell page.
use crate::sizes::{
    COMPLETION_QUEUE_BITS, ENTRY_INDEX_BITS, EVENT_QUEUE_BITS, QUEUE_PAIR_BITS, RECEIVE_RING_BITS,
    SHARED_RECEIVE_BITS, WORK_INDEX_BITS, sizes,
};
use rnic_kernel::prelude::*;

/// Send WQEs were posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SendsPosted {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Producer index: slots ever posted, free-running.
    pub producer_index: Bits<WORK_INDEX_BITS>,
}

/// Receive WQEs were posted to the receive queue of a queue pair or to an SRQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReceivesPosted {
    /// Number of the receive ring: see [`own_ring`] and [`shared_ring`].
    pub ring: Bits<RECEIVE_RING_BITS>,
    /// Producer index: WQEs ever posted, free-running.
    pub producer_index: Bits<WORK_INDEX_BITS>,
}

/// Returns the number of the receive ring of a queue pair.
#[kernel]
pub fn own_ring(queue_pair: Bits<QUEUE_PAIR_BITS>) -> Bits<RECEIVE_RING_BITS> {
    bit_cast::<RECEIVE_RING_BITS, QUEUE_PAIR_BITS>(queue_pair)
}

/// The bit of a ring's number that those of SRQs have set.
fn shared_ring_bit() -> usize {
    sizes().receive_rings() - 1
}

/// Number of the first ring of an SRQ.
fn first_shared_ring() -> u64 {
    1 << shared_ring_bit()
}

/// Returns the number of the ring of an SRQ.
#[kernel]
pub fn shared_ring(number: Bits<SHARED_RECEIVE_BITS>) -> Bits<RECEIVE_RING_BITS> {
    bit_cast::<RECEIVE_RING_BITS, SHARED_RECEIVE_BITS>(number) | first_shared_ring()
}

/// Says whether a receive ring is that of an SRQ.
#[kernel]
pub fn is_shared_ring(ring: Bits<RECEIVE_RING_BITS>) -> Bit {
    ring.get_bit(shared_ring_bit())
}

/// CQEs were polled, and the completion queue may be armed.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CompletionsRead {
    /// Number of the completion queue.
    pub completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    /// Consumer index: CQEs ever polled, free-running.
    pub consumer_index: Bits<ENTRY_INDEX_BITS>,
    /// CQE that the queue is armed for: a `rnic_layout::doorbell::Arm`.
    pub arm: Bits<2>,
}

/// EQEs were read, and the event queue may be armed.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct EventsRead {
    /// Number of the event queue.
    pub event_queue: Bits<EVENT_QUEUE_BITS>,
    /// Consumer index: EQEs ever read, free-running.
    pub consumer_index: Bits<ENTRY_INDEX_BITS>,
    /// Arms one interrupt for the next EQE.
    pub arm: Bit,
}
