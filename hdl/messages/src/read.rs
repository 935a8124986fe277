//! READs and atomics of the peer, from admission to their responses; and responses of the peer, from the wire
//! to host memory.
use crate::host::HostSpan;
use crate::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, READ_POOL_BITS};
use rnic_kernel::prelude::*;

/// Most slots for READs and atomics of a queue pair in flight, log2: the largest `destination_read_atomic`
/// (protocol 3.5).
pub const READ_SLOT_BITS: usize = 4;
/// Bits of a free-running count of READs and atomics.
pub const READ_COUNT_BITS: usize = READ_SLOT_BITS + 1;
/// Slots of the smallest share, log2: a unit.
pub const READ_UNIT_LOG2: usize = 2;
/// Bits of the number of a unit.
pub const READ_UNIT_BITS: usize = READ_POOL_BITS - READ_UNIT_LOG2;

/// Share of a queue pair in a pool of READ slots, which control hands out: one, two or four units, whose first has a number that is
/// a multiple of theirs. Requester and responder have a pool each, of the same size (design decision 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadShare {
    /// Number of the first unit.
    pub unit: Bits<READ_UNIT_BITS>,
    /// 0: no slots, 1: 4, 2: 8, 3: 16.
    pub size: Bits<2>,
}

/// Gives the number of the slots of a share.
#[kernel]
pub fn share_slots(share: ReadShare) -> Bits<READ_COUNT_BITS> {
    match share.size.to_u64() {
        0 => bits::<READ_COUNT_BITS>(0),
        1 => bits::<READ_COUNT_BITS>(4),
        2 => bits::<READ_COUNT_BITS>(8),
        _ => bits::<READ_COUNT_BITS>(16),
    }
}

/// Gives the place in the pool of a slot of a queue pair. Slots are counted modulo 16; those beyond the share are the same as those
/// within it. Without a share, the place is nobody's and is not to be used.
#[kernel]
pub fn read_place(share: ReadShare, slot: Bits<READ_SLOT_BITS>) -> Bits<READ_POOL_BITS> {
    let within = cat!(share.size.all() && slot.get_bit(3), share.size.get_bit(1) && slot.get_bit(2));
    let unit = share.unit | bit_cast::<READ_UNIT_BITS, 2>(within);
    cat!(unit, slot.get_bits::<READ_UNIT_LOG2>(0))
}

/// A READ with a valid range, to be executed when the writes before it are done; or an atomic, to be answered
/// when it is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadRequest {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of that queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// PSN of the first response.
    pub psn: Bits<24>,
    /// PSN of the last response.
    pub last_psn: Bits<24>,
    /// MSN of the responses.
    pub msn: Bits<24>,
    /// R_Key of the region.
    pub key: Bits<32>,
    /// Address of the first byte in the address space of the region.
    pub address: Bits<64>,
    /// Length in bytes, 0 to 2^31; 0 for an atomic.
    pub length: Bits<32>,
    /// The request is an atomic: its response has the original value, and `key` and `address` are ignored.
    pub is_atomic: Bit,
    /// The request is a duplicate: the peer asks again for an earlier request, or for a part of one.
    pub is_again: Bit,
}

/// Release of the oldest request of a queue pair that is not released: the writes before it are done. Or the end
/// of the requests that are. Duplicates are released in their order, each once, whatever becomes of its queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadRelease {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of that queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Nothing is released: the host has refused a write behind the released requests, and NAK 0x63 takes the
    /// place of their first response that is not made.
    pub write_failed: Bit,
    /// The oldest duplicate of all queue pairs is released instead.
    pub is_again: Bit,
    /// With `is_again`: the queue pair was restarted or has failed, and the duplicate gets no answer.
    pub is_dropped: Bit,
}

/// READs and atomics that were released, and get no last response of their own: duplicates that are not answered, and READs whose
/// answer a replay has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadsWithdrawn {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of that queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Number of them, at least one.
    pub count: Bits<READ_COUNT_BITS>,
}

/// The last response to a READ has been passed to the transmit path; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadClosed {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of that queue pair.
    pub generation: Bits<GENERATION_BITS>,
}

/// Count of READs of a queue pair that have been answered or dropped; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadsServed {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// READs since the queue pair was created or reset, free-running.
    pub count: Bits<READ_COUNT_BITS>,
}

/// Meaning of a response of the peer for the requester. Place sends the notices in order, each when the payload
/// of all responses before it is written. Of `is_placed`, `is_acknowledge`, `is_read_error` and `is_unexpected`
/// at most one is set.
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
    /// With `is_placed`: neither the first nor the last response of its READ, so no message begins or ends
    /// here.
    pub is_middle: Bit,
    /// An ACK or NAK, after all READ data that it acknowledges.
    pub is_acknowledge: Bit,
    /// The READ or atomic at this PSN completes in error, with `status`.
    pub is_read_error: Bit,
    /// READ or atomic data that belongs to no outstanding request.
    pub is_unexpected: Bit,
    /// AETH syndrome of an ACK or NAK.
    pub syndrome: Bits<8>,
    /// Status of the CQE, with `is_read_error`: a `CompletionStatus`.
    pub status: Bits<8>,
    /// The host refused a write of the data; filled in by place.
    pub write_failed: Bit,
    /// No response, but the last of what acknowledge has sent for a queue pair in error: nothing of it is written any more.
    pub is_last: Bit,
}

/// Placement of a response of the peer: like [`PlaceCommand`](crate::receive::PlaceCommand), for READ and
/// atomic responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadResponseCommand {
    /// Bytes to write or drop, 0 to 4,096: the next in the payload stream of responses, unless `is_literal`.
    pub payload_bytes: Bits<13>,
    /// Number of spans, 0 to 2, whose lengths add up to `payload_bytes`; without a span the payload is dropped.
    pub span_count: Bits<2>,
    /// First span of host memory.
    pub first: HostSpan,
    /// Second span of host memory.
    pub second: HostSpan,
    /// The bytes are those of `literal` instead of the payload stream's; `payload_bytes` is 8.
    pub is_literal: Bit,
    /// Original value of an atomic's word, the first byte in memory in bits 7:0.
    pub literal: Bits<64>,
    /// Notice that place sends to the requester after the payload is written.
    pub notice: ResponseNotice,
}

/// Gives the place in the pool of the request with a number: a free-running count of the requests before it.
#[kernel]
pub fn numbered_read_place(share: ReadShare, number: Bits<READ_COUNT_BITS>) -> Bits<READ_POOL_BITS> {
    read_place(share, number.get_bits::<READ_SLOT_BITS>(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_as_many_places_as_slots_one_after_the_other() {
        for (unit, size, slots) in [(5, 1, 4), (0x7fe, 2, 8), (8, 3, 16), (0x7fc, 3, 16)] {
            let share = ReadShare { unit: bits(unit), size: bits(size) };
            assert_eq!(share_slots(share), bits(slots));
            for slot in 0..16 {
                let place = bits(4 * unit + slot % slots);
                assert_eq!(read_place(share, bits(slot)), place, "{share:?} {slot}");
                assert_eq!(numbered_read_place(share, bits(slot + 16)), place, "{share:?} {slot}");
            }
        }
        assert_eq!(share_slots(ReadShare::default()), bits(0));
    }
}
