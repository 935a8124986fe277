//! Reads and writes of host memory, independent of the width of the datapath.
use crate::sizes::{
    COMPLETION_LIFE_BITS, COMPLETION_QUEUE_BITS, GENERATION_BITS, LENGTH_BITS, QUEUE_PAIR_BITS, SPAN_BITS,
    WRITE_COUNT_BITS,
};
use rnic_kernel::prelude::*;

/// A span of host memory, at any alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct HostSpan {
    /// Device address of the first byte.
    pub address: Bits<64>,
    /// Length in bytes, 1 to 4,096.
    pub length: Bits<SPAN_BITS>,
}

/// 64 bytes of host memory, read at a multiple of 64, byte 0 in bits 7:0. There is no `ready`: the reader has
/// reserved room.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Slot {
    /// The bytes. Those outside the span are undefined.
    pub data: Bits<512>,
    /// The last slot of its span.
    pub last: Bit,
    /// The host failed to read this or an earlier byte of the span. Stays set until the last slot; the number
    /// of slots does not change.
    pub error: Bit,
}

/// Whose a CQE is. It goes with the write of the CQE, and comes back if the host refuses that write.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CqeOwner {
    /// Number of the completion queue.
    pub completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    /// Queues that had this number before, modulo 2^3: a queue that was destroyed has no part in what the next one does.
    pub life: Bits<COMPLETION_LIFE_BITS>,
    /// Index of the queue pair that the CQE tells about.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of that queue pair.
    pub generation: Bits<GENERATION_BITS>,
}

/// Write of up to 64 bytes in one request, byte 0 in bits 7:0.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SlotWrite {
    /// Device address, a multiple of `length`.
    pub address: Bits<64>,
    /// Length: 16, 32 or 64 bytes.
    pub length: Bits<7>,
    /// The bytes to write; those after `length` are ignored.
    pub data: Bits<512>,
    /// A CQE is written.
    pub is_cqe: Bit,
    /// CQE: whose it is; else undefined.
    pub cqe: CqeOwner,
}

/// The 8 bytes of host memory that an atomic reads, as an integer. There is no `ready`: the reader has reserved
/// room.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct HostWord {
    /// The bytes, the first one least significant.
    pub data: Bits<64>,
    /// The host failed to read them.
    pub error: Bit,
}

/// Write of the 8 bytes of an atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WordWrite {
    /// Device address, a multiple of 8.
    pub address: Bits<64>,
    /// The bytes, the first one least significant.
    pub data: Bits<64>,
}

/// Part of the card that a failed write belongs to.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum WriteOwner {
    /// Place: payload of a packet.
    Payload,
    /// Complete: a CQE or an EQE.
    Completion,
    /// Control: an answer of the admin queue, or the result of a query.
    Admin,
    /// Atomics: the result of an atomic.
    Atomics,
}

/// The host refused a write. Reported before the write is counted as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WriteFailure {
    /// Part of the card that the write belongs to.
    pub owner: WriteOwner,
    /// Payload and CQE: index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Payload and CQE: generation of that queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Completion: a CQE, not an EQE.
    pub is_cqe: Bit,
    /// CQE: number of the completion queue.
    pub completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    /// CQE: `life` of its owner.
    pub life: Bits<COMPLETION_LIFE_BITS>,
    /// Payload: of a READ or atomic response, whose failure place reports to the requester.
    pub is_response: Bit,
    /// Writes of that part that are done, this one included; free-running.
    pub write_count: Bits<WRITE_COUNT_BITS>,
}

/// One word of a payload write. Bytes are in the lanes of their address.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PayloadWrite<const DATA: usize> {
    /// Device address of the first byte of the write; the same in all words of the write, as are the fields up
    /// to `data`.
    pub address: Bits<64>,
    /// Length of the write in bytes, 1 to 512.
    pub length: Bits<LENGTH_BITS>,
    /// Queue pair that the payload belongs to.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of that queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// The payload is of a READ or atomic response: the requester waits for it, not the responder.
    pub is_response: Bit,
    /// The word.
    pub data: Bits<DATA>,
    /// Last word of the write.
    pub last: Bit,
}

/// The writes up to `target` are done: the free-running count `done` is less than half of its range ahead of
/// it.
#[kernel]
pub fn has_reached(done: Bits<WRITE_COUNT_BITS>, target: Bits<WRITE_COUNT_BITS>) -> Bit {
    !(done - target).get_bit(WRITE_COUNT_BITS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_writes_are_compared_across_their_wrap() {
        for (done, target, expected) in [
            (0, 0, true),
            (1, 0, true),
            (0, 1, false),
            (0x7fff, 0, true),
            (0x8000, 0, false),
            (2, 0xffff, true),
            (0xffff, 2, false),
        ] {
            assert_eq!(has_reached(bits(done), bits(target)), expected, "{done:#x} {target:#x}");
        }
    }
}
