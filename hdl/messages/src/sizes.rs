//! Sizes of the card's tables, log2: widths of the indices in messages; and the slot of a queue pair in these tables.
use rnic_kernel::prelude::*;

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
/// Number of receive rings.
pub const RECEIVE_RINGS: u64 = (1 << QUEUE_PAIR_BITS) + (1 << SHARED_RECEIVE_BITS);
/// Bits of the number of an event queue.
pub const EVENT_QUEUE_BITS: usize = 5;
/// READ slots that all queue pairs share as requesters, and as many as responders, log2.
pub const READ_POOL_BITS: usize = 13;
/// Bits of the index of a region: the low bits of the high 24 bits of its key.
pub const REGION_BITS: usize = 10;
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

/// Gives the slot of the queue pair that a QPN may name: its low bits. A QPN becomes a slot where software names it, in a doorbell or
/// a command, and where a packet comes in, and nowhere else; there the slot of a number can be looked up, once more queue pairs than
/// slots exist. Whether the queue pair of the slot has this number is decided with its record (design decision 7).
#[kernel]
pub fn queue_pair_of(number: Bits<24>) -> Bits<QUEUE_PAIR_BITS> {
    number.get_bits::<QUEUE_PAIR_BITS>(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_nobody_has_has_a_slot_too() {
        for (number, slot) in [(0x12_37fe, 0x3fe), (0, 0), (0xff_ffff, 0x3ff), (0x80_0400, 0)] {
            assert_eq!(queue_pair_of(bits(number)), bits(slot), "{number:#x}");
        }
    }
}
