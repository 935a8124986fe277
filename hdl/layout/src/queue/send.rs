#![doc = include_str!("../manual/send.md")]

use crate::field::{FieldError, FieldValue, record, values};
use crate::limits;
use crate::queue::completion::CompletionStatus;
use crate::state::Service;
use core::fmt;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

values! {
    /// Opcode of a send WQE; the numbers are the work request opcodes of the verbs. Unlisted numbers, and reserved ones whose
    /// feature bit is zero, complete with LOC_QP_OP.
    pub enum WqeOpcode, "protocol 4.1" {
        /// RDMA WRITE.
        Write = 0, "write";
        /// RDMA WRITE with immediate data, which consumes a receive WQE of the peer.
        WriteImmediate = 1, "write_immediate";
        /// SEND.
        Send = 2, "send";
        /// SEND with immediate data.
        SendImmediate = 3, "send_immediate";
        /// RDMA READ.
        Read = 4, "read";
        /// Atomic compare and swap of 8 bytes.
        CompareSwap = 5, "compare_swap";
        /// Atomic fetch and add of 8 bytes.
        FetchAdd = 6, "fetch_add";
        /// Invalidates a local key.
        LocalInvalidate = 7, "local_invalidate";
        /// Reserved: bind a memory window.
        BindWindow = 8, "bind_window";
        /// SEND that invalidates a key of the peer.
        SendInvalidate = 9, "send_invalidate";
        /// Reserved: fast registration.
        FastRegister = 11, "fast_register";
        /// Reserved: flush to persistence.
        Flush = 14, "flush";
        /// Reserved: atomic write of 8 bytes.
        AtomicWrite = 15, "atomic_write";
    }
}

/// `flags`: signalled; success also writes a CQE.
pub const SIGNALLED: u8 = 1 << 0;
/// `flags`: the CQE of the receiver is solicited.
pub const SOLICITED: u8 = 1 << 1;
/// `flags`: start after all earlier READs and atomics have completed.
pub const FENCE: u8 = 1 << 2;
/// `flags`: the payload is in the WQE.
pub const INLINE: u8 = 1 << 3;
/// `flags`: a second slot follows.
pub const TWO_SLOTS: u8 = 1 << 4;

record! {
    /// SGE: scatter/gather element, a range of local memory.
    pub struct Sge: 128 bits by Driver, "protocol 4.6" {
        /// Address in the address space of the region.
        address: u64 = 0..64, "protocol 4.6";
        /// L_Key of the region.
        local_key: u32 = 64..96, "protocol 4.6";
        /// Length. Zero skips the SGE, without a check of its key.
        length: u32 = 96..128, "protocol 4.6", unit "bytes";
    }
}

record! {
    /// First slot of a send WQE of a connected queue pair.
    pub struct SendWqe: 512 bits by Driver, "design 3.2" {
        /// Operation.
        opcode: WqeOpcode = 0..8, "protocol 4.1", reset 2;
        /// Signalled: success also writes a CQE. Errors always do.
        signalled: bool = 8..9, "protocol 2.11";
        /// The CQE of the receiver is solicited.
        solicited: bool = 9..10, "protocol 3.9";
        /// Start after all earlier READs and atomics of this queue pair have completed.
        fence: bool = 10..11, "protocol 2.10";
        /// The payload is in the WQE; no key is checked. Not allowed for READ.
        inline: bool = 11..12, "protocol 2.2";
        /// A second slot follows.
        two_slots: bool = 12..13, "design 3.2";
        /// SGEs in use: at most 2, with a second slot at most 6; for READ always at most 2; 0 with inline data.
        sge_count: u8 = 16..20, "design 3.2", allowed 0..=6;
        /// Immediate data, byte for byte as on the wire; for SEND_INVALIDATE and LOCAL_INVALIDATE the key, as a
        /// little-endian number.
        immediate: [u8; 4] = 32..64, "protocol 1.5";
        /// The application's name for the work request, returned in its CQE.
        wr_id: u64 = 64..128, "design 3.2";
        /// WRITE and READ: address in the address space of the peer's region.
        remote_address: u64 = 128..192, "protocol 1.5";
        /// WRITE and READ: R_Key of the peer's region.
        remote_key: u32 = 192..224, "protocol 1.5";
        /// Length of the message. More than 2^31 completes with LOC_LEN.
        length: u32 = 224..256, "protocol 2.1", unit "bytes";
        /// SGE 0 and SGE 1, or 32 inline bytes.
        data: [u8; 32] = 256..512, "design 3.2";
    }
    reserved { 13..16, 20..32 }
}

record! {
    /// First slot of a send WQE of a datagram queue pair.
    pub struct DatagramWqe: 512 bits by Driver, "protocol 2.12" {
        /// SEND or SEND_IMMEDIATE.
        opcode: WqeOpcode = 0..8, "protocol 4.1", reset 2;
        /// Signalled: success also writes a CQE. Errors always do.
        signalled: bool = 8..9, "protocol 2.11";
        /// The CQE of the receiver is solicited.
        solicited: bool = 9..10, "protocol 3.9";
        /// Ignored: a datagram queue pair has no READs or atomics.
        fence: bool = 10..11, "protocol 2.10";
        /// The payload is in the WQE.
        inline: bool = 11..12, "protocol 2.2";
        /// A second slot follows.
        two_slots: bool = 12..13, "design 3.2";
        /// SGEs in use: at most 2, with a second slot at most 6; 0 with inline data.
        sge_count: u8 = 16..20, "design 3.2", allowed 0..=6;
        /// Immediate data, byte for byte as on the wire.
        immediate: [u8; 4] = 32..64, "protocol 1.5";
        /// The application's name for the work request, returned in its CQE.
        wr_id: u64 = 64..128, "design 3.2";
        /// QPN of the receiver; 0xffffff for multicast.
        destination_qp: u32 = 128..152, "protocol 2.12";
        /// Number of an address handle, of the protection domain of the queue pair.
        address_handle: u32 = 160..184, "protocol 4.2";
        /// Q_Key to send. If its most significant bit is set, the Q_Key of the queue pair is sent instead.
        queue_key: u32 = 192..224, "protocol 2.12";
        /// Length of the message, at most the PMTU. More completes with LOC_LEN.
        length: u32 = 224..256, "protocol 2.12", unit "bytes";
        /// SGE 0 and SGE 1, or 32 inline bytes.
        data: [u8; 32] = 256..512, "design 3.2";
    }
    reserved { 13..16, 20..32, 152..160, 184..192 }
}

record! {
    /// The slot of a send WQE for an atomic operation.
    pub struct AtomicWqe: 512 bits by Driver, "protocol 3.7" {
        /// COMPARE_SWAP or FETCH_ADD.
        opcode: WqeOpcode = 0..8, "protocol 4.1", reset 5;
        /// Signalled: success also writes a CQE. Errors always do.
        signalled: bool = 8..9, "protocol 2.11";
        /// Ignored: an atomic makes no CQE at the peer.
        solicited: bool = 9..10, "protocol 3.9";
        /// Start after all earlier READs and atomics of this queue pair have completed.
        fence: bool = 10..11, "protocol 2.10";
        /// Zero: an atomic has no inline data.
        inline: bool = 11..12, "protocol 2.2", allowed 0..=0;
        /// Zero: an atomic takes one slot.
        two_slots: bool = 12..13, "design 3.2", allowed 0..=0;
        /// SGEs: one, for the original value.
        sge_count: u8 = 16..20, "design 3.2", reset 1, allowed 1..=1;
        /// The application's name for the work request, returned in its CQE.
        wr_id: u64 = 64..128, "design 3.2";
        /// Address in the address space of the peer's region, a multiple of 8.
        remote_address: u64 = 128..192, "protocol 1.5";
        /// R_Key of the peer's region.
        remote_key: u32 = 192..224, "protocol 1.5";
        /// Length of the operand: eight.
        length: u32 = 224..256, "protocol 3.7", unit "bytes", reset 8, allowed 8..=8;
        /// Address to which the original value is written, as an integer in host byte order.
        local_address: u64 = 256..320, "protocol 4.6";
        /// L_Key of the region for the original value.
        local_key: u32 = 320..352, "protocol 4.6";
        /// Length of the original value: eight.
        local_length: u32 = 352..384, "protocol 4.6", unit "bytes", reset 8, allowed 8..=8;
        /// COMPARE_SWAP: compare operand, the value that the peer's memory must hold for the swap. FETCH_ADD: zero.
        compare: u64 = 384..448, "protocol 1.5";
        /// COMPARE_SWAP: swap operand, the new value. FETCH_ADD: add operand.
        swap_or_add: u64 = 448..512, "protocol 1.5";
    }
    reserved { 13..16, 20..32, 32..64 }
}

record! {
    /// Second slot of a send WQE.
    pub struct SendWqeExtension: 512 bits by Driver, "design 3.2" {
        /// SGE 2 to SGE 5, or inline bytes 32 to 95.
        data: [u8; 64] = 0..512, "design 3.2";
    }
}

/// Memory image of an SGE: [`Sge`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawSge {
    /// Address in the address space of the region.
    pub address: U64,
    /// L_Key of the region.
    pub local_key: U32,
    /// Length, in bytes.
    pub length: U32,
}

/// Memory image of the first slot of a send WQE of a connected queue pair: [`SendWqe`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawSendWqe {
    /// A [`WqeOpcode`].
    pub opcode: u8,
    /// Sum of [`SIGNALLED`], [`SOLICITED`], [`FENCE`], [`INLINE`] and [`TWO_SLOTS`].
    pub flags: u8,
    /// SGEs in use.
    pub sge_count: u8,
    /// Reserved: zero.
    pub zero: u8,
    /// Immediate data in wire order, or a key in little-endian order.
    pub immediate: [u8; 4],
    /// The application's name for the work request, returned in its CQE.
    pub wr_id: U64,
    /// Address in the address space of the peer's region.
    pub remote_address: U64,
    /// R_Key of the peer's region.
    pub remote_key: U32,
    /// Length of the message, in bytes.
    pub length: U32,
    /// SGE 0 and SGE 1, or 32 inline bytes.
    pub data: [u8; 32],
}

/// Memory image of the first slot of a send WQE of a datagram queue pair: [`DatagramWqe`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawDatagramWqe {
    /// A [`WqeOpcode`].
    pub opcode: u8,
    /// Sum of [`SIGNALLED`], [`SOLICITED`], [`FENCE`], [`INLINE`] and [`TWO_SLOTS`].
    pub flags: u8,
    /// SGEs in use.
    pub sge_count: u8,
    /// Reserved: zero.
    pub zero: u8,
    /// Immediate data in wire order.
    pub immediate: [u8; 4],
    /// The application's name for the work request, returned in its CQE.
    pub wr_id: U64,
    /// QPN of the receiver.
    pub destination_qp: U32,
    /// Number of an address handle.
    pub address_handle: U32,
    /// Q_Key to send.
    pub queue_key: U32,
    /// Length of the message, in bytes.
    pub length: U32,
    /// SGE 0 and SGE 1, or 32 inline bytes.
    pub data: [u8; 32],
}

/// Memory image of the slot of an atomic: [`AtomicWqe`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawAtomicWqe {
    /// A [`WqeOpcode`].
    pub opcode: u8,
    /// Sum of [`SIGNALLED`], [`SOLICITED`], [`FENCE`], [`INLINE`] and [`TWO_SLOTS`].
    pub flags: u8,
    /// SGEs: one.
    pub sge_count: u8,
    /// Reserved: zero.
    pub zero: [u8; 5],
    /// The application's name for the work request, returned in its CQE.
    pub wr_id: U64,
    /// Address in the address space of the peer's region.
    pub remote_address: U64,
    /// R_Key of the peer's region.
    pub remote_key: U32,
    /// Length of the operand: eight.
    pub length: U32,
    /// Address to which the original value is written.
    pub local_address: U64,
    /// L_Key of the region for the original value.
    pub local_key: U32,
    /// Length of the original value: eight.
    pub local_length: U32,
    /// Compare operand of COMPARE_SWAP; zero for FETCH_ADD.
    pub compare: U64,
    /// Swap operand of COMPARE_SWAP, or add operand of FETCH_ADD.
    pub swap_or_add: U64,
}

/// A send WQE that has passed every check that needs only the WQE and the service of the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wqe {
    /// SEND and WRITE in all variants, READ and LOCAL_INVALIDATE of a connected queue pair.
    Message(SendWqe),
    /// SEND and SEND with immediate data of a datagram queue pair.
    Datagram(DatagramWqe),
    /// COMPARE_SWAP and FETCH_ADD.
    Atomic(AtomicWqe),
}

/// Why a send WQE is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WqeError {
    /// A field has a value that is not allowed.
    Field(FieldError),
    /// The opcode is reserved, or not allowed for this service (protocol 4.1).
    NotForService {
        /// Service of the queue pair.
        service: Service,
        /// Opcode of the WQE.
        opcode: WqeOpcode,
    },
    /// Inline data together with SGEs, or for an opcode that sends no payload.
    InlineNotAllowed,
    /// More SGEs than the slots have room for, or than the opcode allows.
    TooManySges {
        /// SGEs in use.
        sge_count: u8,
        /// Most SGEs allowed.
        allowed: usize,
    },
    /// More inline bytes than the slots have room for.
    InlineTooLong {
        /// Length of the message, in bytes.
        length: u32,
        /// Most inline bytes allowed.
        allowed: usize,
    },
    /// The sum of the lengths of the SGEs is not the length of the message.
    LengthMismatch {
        /// Length of the message, in bytes.
        length: u32,
        /// Sum of the lengths of the SGEs, in bytes; it may exceed 32 bits.
        sum: u64,
    },
    /// The message is longer than 2^31 bytes (protocol 2.1).
    MessageTooLong {
        /// Length of the message, in bytes.
        length: u32,
    },
}

impl WqeError {
    /// Returns the status of the CQE that the WQE completes with (protocol 2.11, 8.3).
    pub const fn status(&self) -> CompletionStatus {
        match self {
            Self::Field(_)
            | Self::NotForService { .. }
            | Self::InlineNotAllowed
            | Self::TooManySges { .. } => CompletionStatus::LocalQueuePairOperation,
            Self::InlineTooLong { .. } | Self::LengthMismatch { .. } | Self::MessageTooLong { .. } => {
                CompletionStatus::LocalLength
            }
        }
    }
}

impl fmt::Display for WqeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(error) => error.fmt(f),
            Self::NotForService { service, opcode } => {
                write!(f, "a {} queue pair does not do {}", service.name(), opcode.name())
            }
            Self::InlineNotAllowed => {
                f.write_str("inline data together with SGEs, or for an opcode that sends no payload")
            }
            Self::TooManySges { sge_count, allowed } => {
                write!(f, "sge_count is {sge_count}; allowed are at most {allowed}")
            }
            Self::InlineTooLong { length, allowed } => {
                write!(f, "inline length is {length}; allowed are at most {allowed}")
            }
            Self::LengthMismatch { length, sum } => {
                write!(f, "length is {length}; the lengths of the SGEs add up to {sum}")
            }
            Self::MessageTooLong { length } => {
                write!(f, "length is {length}; allowed are at most {}", limits::MESSAGE_BYTES_MAX)
            }
        }
    }
}

impl core::error::Error for WqeError {}

impl WqeOpcode {
    /// Returns whether a queue pair of this service may post the opcode (protocol 4.1). Reserved opcodes are refused.
    pub const fn is_for(self, service: Service) -> bool {
        match self {
            Self::Send | Self::SendImmediate => true,
            Self::Write | Self::WriteImmediate | Self::SendInvalidate | Self::LocalInvalidate => {
                !matches!(service, Service::UnreliableDatagram)
            }
            Self::Read | Self::CompareSwap | Self::FetchAdd => {
                matches!(service, Service::ReliableConnected)
            }
            Self::BindWindow | Self::FastRegister | Self::Flush | Self::AtomicWrite => false,
        }
    }

    /// Returns whether requests of this opcode carry payload.
    pub const fn sends_payload(self) -> bool {
        matches!(
            self,
            Self::Write | Self::WriteImmediate | Self::Send | Self::SendImmediate | Self::SendInvalidate
        )
    }
}

/// Opcode, form and length of the data: input of the checks that connected and datagram WQEs share.
struct DataLength {
    opcode: WqeOpcode,
    inline: bool,
    two_slots: bool,
    sge_count: u8,
    length: u32,
}

impl Wqe {
    /// Parses and checks a WQE of one slot, or of two contiguous slots, as the card does before it looks up any key or handle.
    /// Keys and addresses are not checked.
    ///
    /// # Errors
    ///
    /// A [`WqeError`], whose [`status`](WqeError::status) is the status that the card completes the WQE with.
    pub fn parse(service: Service, slots: &[u8]) -> Result<Self, WqeError> {
        SendWqe::RECORD.check_length(slots.len()).map_err(WqeError::Field)?;
        let opcode = WqeOpcode::read(SendWqe::RECORD.field("opcode"), slots).map_err(WqeError::Field)?;
        if !opcode.is_for(service) {
            return Err(WqeError::NotForService { service, opcode });
        }
        let (wqe, data) = if matches!(opcode, WqeOpcode::CompareSwap | WqeOpcode::FetchAdd) {
            // The ranges of the table fix both lengths, so there is no sum to check.
            return AtomicWqe::parse(slots).map(Self::Atomic).map_err(WqeError::Field);
        } else if service == Service::UnreliableDatagram {
            let wqe = DatagramWqe::parse(slots).map_err(WqeError::Field)?;
            let DatagramWqe { inline, two_slots, sge_count, length, .. } = wqe;
            (Self::Datagram(wqe), DataLength { opcode, inline, two_slots, sge_count, length })
        } else {
            let wqe = SendWqe::parse(slots).map_err(WqeError::Field)?;
            let SendWqe { inline, two_slots, sge_count, length, .. } = wqe;
            (Self::Message(wqe), DataLength { opcode, inline, two_slots, sge_count, length })
        };
        data.check(slots)?;
        Ok(wqe)
    }
}

impl DataLength {
    fn check(&self, slots: &[u8]) -> Result<(), WqeError> {
        if self.two_slots {
            let rest = slots.len() - limits::WQE_SLOT_BYTES;
            SendWqeExtension::RECORD.check_length(rest).map_err(WqeError::Field)?;
        }
        if self.inline {
            if self.sge_count != 0 || !self.opcode.sends_payload() {
                return Err(WqeError::InlineNotAllowed);
            }
            let allowed =
                if self.two_slots { limits::INLINE_BYTES_MAX } else { limits::INLINE_BYTES_FIRST_SLOT };
            if self.length as usize > allowed {
                return Err(WqeError::InlineTooLong { length: self.length, allowed });
            }
            return Ok(());
        }
        let allowed = match self.opcode {
            WqeOpcode::LocalInvalidate => 0,
            WqeOpcode::Read => limits::RESPONSE_SGES_MAX,
            _ if self.two_slots => limits::SEND_SGES_MAX,
            _ => limits::SEND_SGES_FIRST_SLOT,
        };
        if self.sge_count as usize > allowed {
            return Err(WqeError::TooManySges { sge_count: self.sge_count, allowed });
        }
        // Six lengths of 32 bits cannot overflow 64.
        let sum = sges(slots, self.sge_count).map(|sge| u64::from(sge.length)).sum();
        if sum != u64::from(self.length) {
            return Err(WqeError::LengthMismatch { length: self.length, sum });
        }
        if self.length > limits::MESSAGE_BYTES_MAX {
            return Err(WqeError::MessageTooLong { length: self.length });
        }
        Ok(())
    }
}

/// Iterates over the `sge_count` SGEs in use of a WQE, from the first slot into the second. Ends early if `slots` does.
pub fn sges(slots: &[u8], sge_count: u8) -> impl Iterator<Item = Sge> {
    let first = SendWqe::RECORD.field("data").offset as usize / 8;
    slots
        .get(first..)
        .unwrap_or_default()
        .chunks_exact(Sge::BYTES)
        .take(sge_count as usize)
        .filter_map(|bytes| Sge::parse(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Allowed;
    use crate::queue::pin;

    #[test]
    fn images_agree_with_their_tables() {
        pin!(RawSge, Sge::RECORD, [address, local_key, length]);
        pin!(
            RawSendWqe,
            SendWqe::RECORD,
            [opcode, flags, sge_count, zero, immediate, wr_id, remote_address, remote_key, length, data]
        );
        pin!(
            RawDatagramWqe,
            DatagramWqe::RECORD,
            [
                opcode,
                flags,
                sge_count,
                zero,
                immediate,
                wr_id,
                destination_qp,
                address_handle,
                queue_key,
                length,
                data
            ]
        );
        pin!(
            RawAtomicWqe,
            AtomicWqe::RECORD,
            [
                opcode,
                flags,
                sge_count,
                zero,
                wr_id,
                remote_address,
                remote_key,
                length,
                local_address,
                local_key,
                local_length,
                compare,
                swap_or_add
            ]
        );
    }

    #[test]
    fn flags_agree_with_the_table() {
        for (name, flag) in [
            ("signalled", SIGNALLED),
            ("solicited", SOLICITED),
            ("fence", FENCE),
            ("inline", INLINE),
            ("two_slots", TWO_SLOTS),
        ] {
            for record in [SendWqe::RECORD, DatagramWqe::RECORD, AtomicWqe::RECORD] {
                assert_eq!(1 << (record.field(name).offset - 8), u32::from(flag), "{name}");
            }
        }
    }

    /// Worked by hand: a signalled, solicited WRITE with immediate of 300 bytes from one SGE.
    const WRITE: [u8; 64] = [
        0x01, 0x03, 0x01, 0x00, 0xde, 0xad, 0xbe, 0xef, // opcode 1, flags 1 | 2, one SGE; immediate
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // wr_id 0x1122334455667788
        0x00, 0x10, 0x00, 0x00, 0x00, 0x7f, 0x00, 0x00, // remote address 0x7f0000001000
        0x42, 0x01, 0x00, 0x00, 0x2c, 0x01, 0x00, 0x00, // remote key 0x142, length 300
        0x01, 0x00, 0x00, 0x40, 0x00, 0x00, 0x00, 0x00, // SGE 0: address 0x40000001
        0x07, 0x02, 0x00, 0x00, 0x2c, 0x01, 0x00, 0x00, // local key 0x207, length 300
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // SGE 1 not in use
    ];

    fn write() -> SendWqe {
        let sge = Sge { address: 0x4000_0001, local_key: 0x207, length: 300 };
        let mut data = [0; 32];
        sge.emit(&mut data).unwrap();
        SendWqe {
            opcode: WqeOpcode::WriteImmediate,
            signalled: true,
            solicited: true,
            sge_count: 1,
            immediate: [0xde, 0xad, 0xbe, 0xef],
            wr_id: 0x1122_3344_5566_7788,
            remote_address: 0x7f00_0000_1000,
            remote_key: 0x142,
            length: 300,
            data,
            ..SendWqe::at_reset()
        }
    }

    #[test]
    fn a_write_has_the_bytes_worked_by_hand() {
        assert_eq!(write().to_bytes(), Ok(WRITE));
        assert_eq!(SendWqe::parse(&WRITE), Ok(write()));
        let image = RawSendWqe {
            opcode: WqeOpcode::WriteImmediate.number(),
            flags: SIGNALLED | SOLICITED,
            sge_count: 1,
            zero: 0,
            immediate: [0xde, 0xad, 0xbe, 0xef],
            wr_id: 0x1122_3344_5566_7788.into(),
            remote_address: 0x7f00_0000_1000.into(),
            remote_key: 0x142.into(),
            length: 300.into(),
            data: write().data,
        };
        assert_eq!(image.as_bytes(), WRITE);
    }

    /// Worked by hand: an unsignalled inline SEND of three bytes to a datagram queue pair.
    #[test]
    fn a_datagram_has_the_bytes_worked_by_hand() {
        let mut bytes = [0; 64];
        bytes[0..2].copy_from_slice(&[0x02, 0x08]); // SEND, inline
        bytes[8] = 0x2a; // wr_id
        bytes[16..19].copy_from_slice(&[0xff, 0xff, 0xff]); // multicast
        bytes[20..22].copy_from_slice(&[0x34, 0x12]); // address handle 0x1234
        bytes[24..28].copy_from_slice(&[0x11; 4]); // Q_Key 0x11111111
        bytes[28] = 3;
        bytes[32..35].copy_from_slice(b"abc");
        let mut data = [0; 32];
        data[..3].copy_from_slice(b"abc");
        let wqe = DatagramWqe {
            inline: true,
            wr_id: 0x2a,
            destination_qp: 0xff_ffff,
            address_handle: 0x1234,
            queue_key: 0x1111_1111,
            length: 3,
            data,
            ..DatagramWqe::at_reset()
        };
        assert_eq!(wqe.to_bytes(), Ok(bytes));
        assert_eq!(DatagramWqe::parse(&bytes), Ok(wqe));
    }

    /// Worked by hand: compare 1, swap 2 at address 0x2000 of the peer, the original to 0x3000.
    #[test]
    fn an_atomic_has_the_bytes_worked_by_hand() {
        let mut bytes = [0; 64];
        bytes[0..3].copy_from_slice(&[0x05, 0x05, 0x01]); // COMPARE_SWAP, signalled | fence, one SGE
        bytes[17] = 0x20;
        bytes[24..28].copy_from_slice(&[0x04, 0x03, 0x02, 0x01]); // remote key 0x01020304
        bytes[28] = 8;
        bytes[33] = 0x30;
        bytes[40] = 0x09; // local key 9
        bytes[44] = 8;
        bytes[48] = 1;
        bytes[56] = 2;
        let wqe = AtomicWqe {
            signalled: true,
            fence: true,
            remote_address: 0x2000,
            remote_key: 0x0102_0304,
            local_address: 0x3000,
            local_key: 9,
            compare: 1,
            swap_or_add: 2,
            ..AtomicWqe::at_reset()
        };
        assert_eq!(wqe.to_bytes(), Ok(bytes));
        assert_eq!(AtomicWqe::parse(&bytes), Ok(wqe));
    }

    #[test]
    fn an_unknown_opcode_is_refused() {
        let mut bytes = WRITE;
        bytes[0] = 10;
        let error = SendWqe::parse(&bytes).unwrap_err();
        assert_eq!((error.field, error.value), ("opcode", 10));
    }

    #[test]
    fn too_many_sges_are_refused() {
        let mut bytes = WRITE;
        bytes[2] = 6;
        assert!(SendWqe::parse(&bytes).is_ok());
        bytes[2] = 7;
        let error = SendWqe::parse(&bytes).unwrap_err();
        assert_eq!((error.field, error.allowed), ("sge_count", Allowed::Range { min: 0, max: 6 }));
    }

    #[test]
    fn reserved_bits_are_refused() {
        let mut bytes = WRITE;
        bytes[3] = 1;
        assert_eq!(SendWqe::parse(&bytes).unwrap_err().allowed, Allowed::Zero);
    }

    const RC: Service = Service::ReliableConnected;

    fn slots_of(wqe: SendWqe, lengths: &[u32]) -> [u8; 128] {
        let mut slots = [0; 128];
        wqe.emit(&mut slots).unwrap();
        for (place, &length) in lengths.iter().enumerate() {
            let sge = Sge { address: 0, local_key: 1, length };
            sge.emit(&mut slots[32 + place * 16..]).unwrap();
        }
        slots
    }

    fn gather(opcode: WqeOpcode, two_slots: bool, lengths: &[u32], length: u32) -> Result<Wqe, WqeError> {
        let sge_count = lengths.len() as u8;
        let wqe = SendWqe { opcode, two_slots, sge_count, length, ..SendWqe::at_reset() };
        Wqe::parse(RC, &slots_of(wqe, lengths))
    }

    #[test]
    fn each_service_does_its_opcodes_and_no_others() {
        use Service::*;
        // Protocol 4.1, in the order of the opcodes.
        for (service, allowed) in [
            (ReliableConnected, "xxxxxxxx.x..."),
            (UnreliableConnected, "xxxx...x.x..."),
            (UnreliableDatagram, "..xx........."),
        ] {
            for (opcode, allowed) in WqeOpcode::ALL.iter().zip(allowed.chars()) {
                assert_eq!(opcode.is_for(service), allowed == 'x', "{service:?} {opcode:?}");
                let mut slots = [0; 128];
                match opcode {
                    WqeOpcode::CompareSwap | WqeOpcode::FetchAdd => {
                        AtomicWqe { opcode: *opcode, ..AtomicWqe::at_reset() }.emit(&mut slots).unwrap();
                    }
                    _ => SendWqe { opcode: *opcode, ..SendWqe::at_reset() }.emit(&mut slots).unwrap(),
                }
                let found = Wqe::parse(service, &slots);
                let expected = Err(WqeError::NotForService { service, opcode: *opcode });
                assert!(if allowed == 'x' { found.is_ok() } else { found == expected });
            }
        }
    }

    #[test]
    fn the_sge_bound_depends_on_slots_and_opcode() {
        let refused = |sge_count, allowed| Err(WqeError::TooManySges { sge_count, allowed });
        assert!(gather(WqeOpcode::Write, false, &[1; 2], 2).is_ok());
        assert_eq!(gather(WqeOpcode::Write, false, &[1; 3], 3), refused(3, 2));
        assert!(gather(WqeOpcode::Write, true, &[1; 6], 6).is_ok());
        assert!(gather(WqeOpcode::Read, true, &[1; 2], 2).is_ok());
        assert_eq!(gather(WqeOpcode::Read, true, &[1; 3], 3), refused(3, 2));
        assert_eq!(gather(WqeOpcode::LocalInvalidate, false, &[0], 0), refused(1, 0));
    }

    #[test]
    fn lengths_are_added_in_wide_arithmetic() {
        let half = 1 << 31;
        let wrapped = gather(WqeOpcode::Write, false, &[half, half], 0);
        assert_eq!(wrapped, Err(WqeError::LengthMismatch { length: 0, sum: 1 << 32 }));
        assert!(gather(WqeOpcode::Write, false, &[half], half).is_ok());
        let error = gather(WqeOpcode::Write, false, &[half, 1], half + 1).unwrap_err();
        assert_eq!(error, WqeError::MessageTooLong { length: half + 1 });
        assert_eq!(error.status(), CompletionStatus::LocalLength);
    }

    #[test]
    fn inline_data_is_bounded_by_the_slots() {
        let inline = |opcode, two_slots, sge_count, length| {
            let wqe = SendWqe { opcode, inline: true, two_slots, sge_count, length, ..SendWqe::at_reset() };
            Wqe::parse(RC, &slots_of(wqe, &[]))
        };
        let too_long = |length, allowed| Err(WqeError::InlineTooLong { length, allowed });
        assert!(inline(WqeOpcode::Send, false, 0, 32).is_ok());
        assert_eq!(inline(WqeOpcode::Send, false, 0, 33), too_long(33, 32));
        assert!(inline(WqeOpcode::Send, true, 0, 96).is_ok());
        assert_eq!(inline(WqeOpcode::Send, true, 0, 97), too_long(97, 96));
        assert_eq!(inline(WqeOpcode::Send, false, 1, 1), Err(WqeError::InlineNotAllowed));
        assert_eq!(inline(WqeOpcode::Read, false, 0, 1), Err(WqeError::InlineNotAllowed));
    }

    #[test]
    fn a_second_slot_that_is_not_there_is_refused() {
        let wqe = SendWqe { two_slots: true, ..SendWqe::at_reset() };
        assert!(Wqe::parse(RC, &slots_of(wqe, &[])).is_ok());
        let error = Wqe::parse(RC, &slots_of(wqe, &[])[..127]).unwrap_err();
        assert_eq!(error.status(), CompletionStatus::LocalQueuePairOperation);
    }

    #[test]
    fn memory_without_a_whole_slot_is_refused_and_not_read() {
        for length in 0..64 {
            assert!(Wqe::parse(RC, &WRITE[..length]).is_err());
        }
        assert!(Wqe::parse(RC, &WRITE).is_ok());
    }
}
