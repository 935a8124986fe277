//! Fields of the slots of a send WQE, as kernels read them.
use crate::messages::{SLOT_BITS, Sge, WqeKind};
use rnic_kernel::prelude::*;
use rnic_layout::limits;
use rnic_layout::queue::send::{self, SendWqe, WqeOpcode};

const fn offset(field: &str) -> usize {
    SendWqe::RECORD.field(field).offset as usize
}

const fn sge_offset(field: &str) -> usize {
    send::Sge::RECORD.field(field).offset as usize
}

/// Bits of an SGE.
pub const SGE_BITS: usize = 8 * send::Sge::BYTES;
/// Bytes of the operand of an atomic.
pub const ATOMIC_BYTES: u64 = limits::ATOMIC_BYTES as u64;
/// Bit of a slot that says that the WQE has a second one.
pub const TWO_SLOTS: usize = offset("two_slots");
/// First bit of the SGEs, or of the inline data, of a first slot.
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
/// First of the reserved bits after the flags.
const RESERVED_FLAGS: usize = TWO_SLOTS + 1;
/// First of the reserved bits after the count of SGEs.
const RESERVED_COUNTS: usize = SGE_COUNT + 4;
const ADDRESS: usize = sge_offset("address");
const LOCAL_KEY: usize = sge_offset("local_key");
const SGE_LENGTH: usize = sge_offset("length");

/// Fields of a first slot, none of them checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WqeFields {
    /// A `WqeOpcode`, or any other number.
    pub opcode: Bits<8>,
    /// A successful completion writes a CQE.
    pub signalled: Bit,
    /// The peer's completion raises a solicited event.
    pub solicited: Bit,
    /// The WQE waits for all earlier READs and atomics.
    pub fence: Bit,
    /// The payload is in the WQE.
    pub inline: Bit,
    /// SGEs in use.
    pub sge_count: Bits<4>,
    /// A reserved bit is set.
    pub has_reserved: Bit,
    /// Immediate data as on the wire, first byte in bits 7:0; or a key, as a number.
    pub immediate_or_key: Bits<32>,
    /// Copied into the CQE.
    pub wr_id: Bits<64>,
    /// Address in the peer's region.
    pub remote_address: Bits<64>,
    /// Key of the peer's region.
    pub remote_key: Bits<32>,
    /// Length of the message in bytes.
    pub length: Bits<32>,
}

/// What the opcode of a WQE asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WqeOperation {
    /// This card executes the opcode.
    pub is_known: Bit,
    /// The part of it that completion needs.
    pub kind: WqeKind,
    /// Immediate data is sent.
    pub has_immediate: Bit,
    /// SEND with Invalidate.
    pub with_invalidate: Bit,
}

/// Tells what an opcode asks for.
#[kernel]
pub fn classify(opcode: Bits<8>) -> WqeOperation {
    let is_write = opcode == WqeOpcode::Write as u64 || opcode == WqeOpcode::WriteImmediate as u64;
    let with_invalidate = opcode == WqeOpcode::SendInvalidate as u64;
    let is_send = opcode == WqeOpcode::Send as u64 || opcode == WqeOpcode::SendImmediate as u64;
    let is_compare = opcode == WqeOpcode::CompareSwap as u64;
    let is_atomic = is_compare || opcode == WqeOpcode::FetchAdd as u64;
    let is_read = is_atomic || opcode == WqeOpcode::Read as u64;
    let is_local = opcode == WqeOpcode::LocalInvalidate as u64;
    WqeOperation {
        is_known: is_write || is_send || with_invalidate || is_read || is_local,
        kind: WqeKind { is_write, is_read, is_atomic, is_compare, is_local },
        has_immediate: opcode == WqeOpcode::WriteImmediate as u64
            || opcode == WqeOpcode::SendImmediate as u64,
        with_invalidate,
    }
}

/// Decodes a first slot.
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
        immediate_or_key: slot.get_bits::<32>(IMMEDIATE),
        wr_id: slot.get_bits::<64>(WR_ID),
        remote_address: slot.get_bits::<64>(REMOTE_ADDRESS),
        remote_key: slot.get_bits::<32>(REMOTE_KEY),
        length: slot.get_bits::<32>(LENGTH),
    }
}

/// Decodes an SGE.
#[kernel]
pub fn sge(bytes: Bits<SGE_BITS>) -> Sge {
    Sge {
        key: bytes.get_bits::<32>(LOCAL_KEY),
        address: bytes.get_bits::<64>(ADDRESS),
        length: bytes.get_bits::<32>(SGE_LENGTH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_asks_for_what_the_layout_says() {
        use WqeOpcode::*;
        for number in 0..256 {
            let opcode = WqeOpcode::from_number(number);
            let is = |opcodes: &[WqeOpcode]| opcode.is_some_and(|opcode| opcodes.contains(&opcode));
            let refused = [BindWindow, FastRegister, Flush, AtomicWrite];
            let expected = WqeOperation {
                is_known: opcode.is_some() && !is(&refused),
                kind: WqeKind {
                    is_write: is(&[Write, WriteImmediate]),
                    is_read: is(&[Read, CompareSwap, FetchAdd]),
                    is_atomic: is(&[CompareSwap, FetchAdd]),
                    is_compare: is(&[CompareSwap]),
                    is_local: is(&[LocalInvalidate]),
                },
                has_immediate: is(&[WriteImmediate, SendImmediate]),
                with_invalidate: is(&[SendInvalidate]),
            };
            assert_eq!(classify(bits(number)), expected, "opcode {number}");
        }
    }
}
