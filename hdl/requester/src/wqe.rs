//! The fields of a send entry's first slot, as a kernel reads them.
use crate::constants::{WORK_COMPARE_SWAP, WORK_FETCH_ADD};
use crate::messages::SLOT_BITS;
use rnic_kernel::prelude::*;
use rnic_layout::queue::send::{SendWqe, Sge};

const fn offset(field: &str) -> usize {
    SendWqe::RECORD.field(field).offset as usize
}

const fn sge_offset(field: &str) -> usize {
    Sge::RECORD.field(field).offset as usize
}

/// Bits of an element.
pub const SGE_BITS: usize = 8 * Sge::BYTES;
/// Where elements or inline data begin.
pub const DATA_OFFSET: usize = offset("data");
const OPCODE: usize = offset("opcode");
const SIGNALLED: usize = offset("signalled");
const SOLICITED: usize = offset("solicited");
const FENCE: usize = offset("fence");
const INLINE: usize = offset("inline");
const SGE_COUNT: usize = offset("sge_count");
const IMMEDIATE: usize = offset("immediate");
const WR_ID: usize = offset("wr_id");
const REMOTE_ADDRESS: usize = offset("remote_address");
const REMOTE_KEY: usize = offset("remote_key");
const LENGTH: usize = offset("length");
/// Reserved bits: behind the flags, and behind the count of elements.
const RESERVED_FLAGS: usize = offset("two_slots") + 1;
const RESERVED_COUNTS: usize = SGE_COUNT + 4;
const ADDRESS: usize = sge_offset("address");
const LOCAL_KEY: usize = sge_offset("local_key");
const SGE_LENGTH: usize = sge_offset("length");

/// The fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WqeFields {
    /// A `WqeOpcode`, or none.
    pub opcode: Bits<8>,
    /// Completes visibly also when all goes well.
    pub signalled: Bit,
    /// The receiver's completion is a solicited one.
    pub solicited: Bit,
    /// It waits for all READs before it.
    pub fence: Bit,
    /// The payload stands in the entry.
    pub inline: Bit,
    /// Elements in use.
    pub sge_count: Bits<4>,
    /// A reserved bit is set.
    pub has_reserved: Bit,
    /// As on the wire, first byte in bits 7:0.
    pub immediate: Bits<32>,
    /// Comes back in the completion.
    pub wr_id: Bits<64>,
    /// Address in the peer's region.
    pub remote_address: Bits<64>,
    /// Key of the peer's region.
    pub remote_key: Bits<32>,
    /// Bytes of the message.
    pub length: Bits<32>,
}

/// Says whether an opcode is that of an atomic.
#[kernel]
pub fn is_atomic(opcode: Bits<8>) -> Bit {
    opcode == WORK_COMPARE_SWAP || opcode == WORK_FETCH_ADD
}

/// Takes a first slot apart.
#[kernel]
pub fn fields(slot: Bits<SLOT_BITS>) -> WqeFields {
    WqeFields {
        opcode: slot.get_bits::<8>(OPCODE),
        signalled: slot.get_bit(SIGNALLED),
        solicited: slot.get_bit(SOLICITED),
        fence: slot.get_bit(FENCE),
        inline: slot.get_bit(INLINE),
        sge_count: slot.get_bits::<4>(SGE_COUNT),
        has_reserved: slot.get_bits::<3>(RESERVED_FLAGS).any() || slot.get_bits::<12>(RESERVED_COUNTS).any(),
        immediate: slot.get_bits::<32>(IMMEDIATE),
        wr_id: slot.get_bits::<64>(WR_ID),
        remote_address: slot.get_bits::<64>(REMOTE_ADDRESS),
        remote_key: slot.get_bits::<32>(REMOTE_KEY),
        length: slot.get_bits::<32>(LENGTH),
    }
}

/// Address of an element.
#[kernel]
pub fn sge_address(sge: Bits<SGE_BITS>) -> Bits<64> {
    sge.get_bits::<64>(ADDRESS)
}

/// Key of an element.
#[kernel]
pub fn sge_key(sge: Bits<SGE_BITS>) -> Bits<32> {
    sge.get_bits::<32>(LOCAL_KEY)
}

/// Length of an element.
#[kernel]
pub fn sge_length(sge: Bits<SGE_BITS>) -> Bits<32> {
    sge.get_bits::<32>(SGE_LENGTH)
}
