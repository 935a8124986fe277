//! Requests to host memory, apart from any datapath width.
use crate::sizes::{GENERATION_BITS, LENGTH_BITS, QUEUE_PAIR_BITS, SPAN_BITS, WRITE_COUNT_BITS};
use rnic_kernel::prelude::*;

/// A stretch of host memory, at any alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct HostSpan {
    /// Device address of the first byte.
    pub address: Bits<64>,
    /// In bytes, 1 to 4,096.
    pub length: Bits<SPAN_BITS>,
}

/// 64 bytes of host memory that were read at a multiple of 64, byte 0 in bits 7:0. Comes without `ready`: who asks has room.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Slot {
    /// The bytes. Those that were not asked for may hold anything.
    pub data: Bits<512>,
    /// The last slot of its span.
    pub last: Bit,
    /// The host failed somewhere in the span, up to here; stays set to its last slot. There are as many slots as were asked
    /// for in any case.
    pub error: Bit,
}

/// Up to 64 bytes to be written in one request, byte 0 in bits 7:0.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SlotWrite {
    /// Device address, a multiple of the length.
    pub address: Bits<64>,
    /// 16, 32 or 64 bytes.
    pub length: Bits<7>,
    /// The bytes.
    pub data: Bits<512>,
}

/// The 8 bytes of host memory that an atomic is about, as an integer. Comes without `ready`: who asks has room.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct HostWord {
    /// The bytes, the first one least significant.
    pub data: Bits<64>,
    /// The host failed to give them.
    pub error: Bit,
}

/// What is to be written there.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WordWrite {
    /// Device address, a multiple of 8.
    pub address: Bits<64>,
    /// The bytes, the first one least significant.
    pub data: Bits<64>,
}

/// Who wrote, for the news of a failed write.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum WriteOwner {
    /// Payload of a packet.
    Payload,
    /// A completion or an event.
    Completion,
    /// An answer of the admin queue.
    Admin,
    /// What an atomic made of its word.
    Atomics,
}

/// The host refused a write. Comes before it is counted as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WriteFailure {
    /// Whose write.
    pub owner: WriteOwner,
    /// Payload: for which queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Payload: for which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// Payload: of a READ or atomic response, whose failure place reports to the requester.
    pub is_response: Bit,
    /// How many writes of that owner are done with this one.
    pub write_count: Bits<WRITE_COUNT_BITS>,
}

/// One word of a payload write. Bytes are in the lanes of their address.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PayloadWrite<const DATA: usize> {
    /// Device address of the first byte of the write; the same in all words of the write, as are the fields up to `data`.
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

/// The writes up to `target` are done: the free-running count `done` is less than half of its range ahead of it.
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
