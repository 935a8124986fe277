//! Sizes of the card's tables, log2: widths of the indices in messages, which are the same for every card; how many of each a card
//! has, which is a value of its configuration ([`Sizes`]); and the doors, where a number becomes an index.
//!
//! Behind a door the bits of an index that a card does not need are zero, so synthesis removes them, two indices are equal where they
//! name the same record, and a memory of fewer words than its address could name takes the low bits alone. Where one index means
//! objects of two kinds, the lower half of its range is for one kind and the upper half for the other.
use rnic_kernel::prelude::*;
use std::cell::Cell;

/// Bits of the slot of a queue pair: its index in the tables of all stages. Messages call it `queue_pair`.
pub const QUEUE_PAIR_BITS: usize = 10;
/// Bits of the number of a completion queue.
pub const COMPLETION_QUEUE_BITS: usize = 10;
/// Width of the time after which a host read, or the report of a host write, is not waited for any more.
pub const HOST_LIMIT_BITS: usize = 16;
/// Width of the cycles in a unit of the acknowledgement timers.
pub const TIMER_UNIT_BITS: usize = 16;
/// Width of the count that tells a completion queue from those that had its number before.
pub const COMPLETION_LIFE_BITS: usize = 3;
/// Bits of the number of an SRQ.
pub const SHARED_RECEIVE_BITS: usize = 6;
/// Bits of the number of a receive ring: first the rings of the queue pairs, by their index, then the SRQs.
pub const RECEIVE_RING_BITS: usize = QUEUE_PAIR_BITS + 1;
/// Bits of the number of an event queue.
pub const EVENT_QUEUE_BITS: usize = 5;
/// READ slots that all queue pairs share as requesters, and as many as responders, log2.
pub const READ_POOL_BITS: usize = 13;
/// Bits of the index of a region: the low bits of the high 24 bits of its key.
pub const REGION_BITS: usize = 10;
/// Bits of a key below that index.
pub const REGION_VARIANT_BITS: usize = 8;
/// Bits of the index of an entry of the page table.
pub const PAGE_ENTRY_BITS: usize = rnic_layout::limits::PAGE_ENTRIES_LOG2 as usize;
/// Bits of a device address in units of the smallest page.
pub const PAGE_NUMBER_BITS: usize = 64 - rnic_layout::limits::PAGE_LOG2_MIN as usize;
/// Bits of the number of an address handle.
pub const ADDRESS_HANDLE_BITS: usize = 8;
/// Bits of the number of a doorbell page.
pub const DOORBELL_PAGE_BITS: usize = 8;
/// Bits of an interrupt vector.
pub const VECTOR_BITS: usize = 6;
/// Bits of the index of a source address.
pub const SOURCE_ADDRESS_BITS: usize = 4;
/// Number of source addresses.
pub const SOURCE_ADDRESSES: usize = 1 << SOURCE_ADDRESS_BITS;

/// Bits of the generation of a queue pair (design decision 8).
pub const GENERATION_BITS: usize = 8;
/// Bits of an epoch: how often the cursor of a queue pair went back (design decision 8).
pub const EPOCH_BITS: usize = 8;
/// Bits of a free-running index of a send queue, in slots, or of a receive queue, in WQEs.
pub const WORK_INDEX_BITS: usize = 16;
/// Bits of a free-running index of a completion or event queue, in CQEs or EQEs.
pub const ENTRY_INDEX_BITS: usize = 24;
/// Bits of a free-running count of host writes, issued or done.
pub const WRITE_COUNT_BITS: usize = 16;
/// Bits of the number of a cell of the request buffer.
pub const CELL_BITS: usize = 10;
/// Bits of the length in bytes of a span of host memory, which one packet or fetch accesses: up to 4,096.
pub const SPAN_BITS: usize = 13;
/// Bits of the length in bytes of one request to the host: 1 to 512.
pub const LENGTH_BITS: usize = 10;

/// How many objects a card has, log2. They are those of the configuration while a card is made and generated ([`Sizes::make`]), and
/// the largest ones elsewhere: in tests of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Queue pairs: 4 to [`QUEUE_PAIR_BITS`].
    pub queue_pairs: usize,
    /// Completion queues: 1 to [`COMPLETION_QUEUE_BITS`].
    pub completion_queues: usize,
    /// SRQs: 1 to [`SHARED_RECEIVE_BITS`].
    pub shared_receive_queues: usize,
    /// Event queues: 2 to [`EVENT_QUEUE_BITS`].
    pub event_queues: usize,
    /// Regions: 1 to [`REGION_BITS`].
    pub regions: usize,
    /// Entries of the page table: 4 to [`PAGE_ENTRY_BITS`].
    pub page_entries: usize,
    /// Address handles: 1 to [`ADDRESS_HANDLE_BITS`].
    pub address_handles: usize,
    /// READ slots that all queue pairs share as requesters, and as many as responders: 4 to [`READ_POOL_BITS`].
    pub read_slots: usize,
    /// Bytes of payload in each receive buffer: 13 to 17.
    pub receive_bytes: usize,
    /// Packets in each receive buffer: 4 to 9.
    pub receive_packets: usize,
}

impl Sizes {
    /// What the indices in messages can name.
    pub const LARGEST: Sizes = Sizes {
        queue_pairs: QUEUE_PAIR_BITS,
        completion_queues: COMPLETION_QUEUE_BITS,
        shared_receive_queues: SHARED_RECEIVE_BITS,
        event_queues: EVENT_QUEUE_BITS,
        regions: REGION_BITS,
        page_entries: PAGE_ENTRY_BITS,
        address_handles: ADDRESS_HANDLE_BITS,
        read_slots: READ_POOL_BITS,
        receive_bytes: 17,
        receive_packets: 9,
    };

    /// Calls `make`, for which [`sizes`] are these.
    pub fn make<T>(self, make: impl FnOnce() -> T) -> T {
        /// The sizes before, also after a panic.
        struct Before(Sizes);
        impl Drop for Before {
            fn drop(&mut self) {
                SIZES.set(self.0);
            }
        }
        let _before = Before(SIZES.replace(self));
        make()
    }

    /// log2 of the numbers of receive rings, the first of the rings of SRQs being half of it.
    pub const fn receive_rings(self) -> usize {
        1 + if self.queue_pairs > self.shared_receive_queues {
            self.queue_pairs
        } else {
            self.shared_receive_queues
        }
    }

    /// log2 of the lines of receive WQEs that all rings share.
    pub const fn receive_lines(self) -> usize {
        self.queue_pairs + 1
    }

    /// log2 of the blocks of outstanding messages that all queue pairs share, beside one that each has.
    pub const fn outstanding_blocks(self) -> usize {
        self.queue_pairs
    }

    /// Number of the last receive ring.
    pub const fn last_receive_ring(self) -> u64 {
        (1 << (self.receive_rings() - 1)) + (1 << self.shared_receive_queues) - 1
    }
}

thread_local! {
    static SIZES: Cell<Sizes> = const { Cell::new(Sizes::LARGEST) };
}

/// The sizes of the card that is made.
pub fn sizes() -> Sizes {
    SIZES.get()
}

/// The bits that an index into a table of `2^log2` has.
pub const fn index_mask(log2: usize) -> u64 {
    (1 << log2) - 1
}

/// The bits that the slot of a queue pair has.
pub fn queue_pair_mask() -> u64 {
    index_mask(sizes().queue_pairs)
}

/// The bits that the index of a region has.
fn region_mask() -> u64 {
    index_mask(sizes().regions)
}

/// The bits that the number of a completion queue has.
fn completion_queue_mask() -> u64 {
    index_mask(sizes().completion_queues)
}

/// The bits that the number of an SRQ has.
fn shared_receive_mask() -> u64 {
    index_mask(sizes().shared_receive_queues)
}

/// Gives the slot of the queue pair that a QPN may name: its low bits. A QPN becomes a slot where software names it, in a doorbell or
/// a command, and where a packet comes in, and nowhere else; there the slot of a number can be looked up, once more queue pairs than
/// slots exist. Whether the queue pair of the slot has this number is decided with its record (design decision 7).
#[kernel]
pub fn queue_pair_of(number: Bits<24>) -> Bits<QUEUE_PAIR_BITS> {
    number.get_bits::<QUEUE_PAIR_BITS>(0) & queue_pair_mask()
}

/// Gives the index of the region that a key may name.
#[kernel]
pub fn region_of_key(key: Bits<32>) -> Bits<REGION_BITS> {
    key.get_bits::<REGION_BITS>(REGION_VARIANT_BITS) & region_mask()
}

/// Gives the index of the completion queue that a number may name.
#[kernel]
pub fn completion_queue_index(number: Bits<24>) -> Bits<COMPLETION_QUEUE_BITS> {
    number.get_bits::<COMPLETION_QUEUE_BITS>(0) & completion_queue_mask()
}

/// Gives the index of the SRQ that a number may name.
#[kernel]
pub fn shared_receive_index(number: Bits<24>) -> Bits<SHARED_RECEIVE_BITS> {
    number.get_bits::<SHARED_RECEIVE_BITS>(0) & shared_receive_mask()
}

/// Gives the queue pair after another one, and the first one after the last.
#[kernel]
pub fn next_queue_pair(queue_pair: Bits<QUEUE_PAIR_BITS>) -> Bits<QUEUE_PAIR_BITS> {
    (queue_pair + 1) & queue_pair_mask()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::{is_shared_ring, own_ring, shared_ring};

    const SMALL: Sizes = Sizes {
        queue_pairs: 4,
        completion_queues: 5,
        shared_receive_queues: 2,
        regions: 6,
        ..Sizes::LARGEST
    };

    #[test]
    fn sizes_are_those_of_the_card_that_is_made() {
        assert_eq!(sizes(), Sizes::LARGEST);
        assert_eq!(SMALL.make(sizes), SMALL);
        let panics = std::panic::catch_unwind(|| SMALL.make(|| panic!("a card is refused")));
        assert!(panics.is_err());
        assert_eq!(sizes(), Sizes::LARGEST);
    }

    #[test]
    fn doors_leave_the_bits_that_a_card_has() {
        SMALL.make(|| {
            assert_eq!(queue_pair_of(bits(0x12_37fe)), bits(0xe));
            assert_eq!(region_of_key(bits(0x1234_ffab)), bits(0x3f));
            assert_eq!(completion_queue_index(bits(0xff_ffff)), bits(31));
            assert_eq!(shared_receive_index(bits(0xff_fffe)), bits(2));
            assert_eq!((next_queue_pair(bits(14)), next_queue_pair(bits(15))), (bits(15), bits(0)));
        });
        assert_eq!(next_queue_pair(bits(1023)), bits(0));
    }

    /// Rings of queue pairs and of SRQs differ, also where there are more of the latter.
    #[test]
    fn each_ring_has_its_number() {
        let crowd = Sizes { queue_pairs: 4, shared_receive_queues: 6, ..SMALL };
        for (sizes, first, last) in [(Sizes::LARGEST, 1024, 1087), (SMALL, 16, 19), (crowd, 64, 127)] {
            sizes.make(|| {
                assert_eq!((shared_ring(bits(0)), sizes.last_receive_ring()), (bits(first), last));
                assert_eq!(shared_ring(bits((1 << sizes.shared_receive_queues) - 1)), bits(last));
                assert!(is_shared_ring(bits(first)) && is_shared_ring(bits(last)));
                assert!(!is_shared_ring(own_ring(bits(queue_pair_mask()))));
                assert!(last < 1 << sizes.receive_rings());
            });
        }
    }

    #[test]
    fn a_number_that_nobody_has_has_a_slot_too() {
        for (number, slot) in [(0x12_37fe, 0x3fe), (0, 0), (0xff_ffff, 0x3ff), (0x80_0400, 0)] {
            assert_eq!(queue_pair_of(bits(number)), bits(slot), "{number:#x}");
        }
    }
}
