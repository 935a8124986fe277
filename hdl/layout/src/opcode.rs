//! BTH opcodes: the headers and payload of each, and the half of the card that receives it (protocol 1.4).
//!
//! An opcode is a transport in bits 7:5 and an operation in bits 4:0. [`OPCODES`] lists every opcode that the card knows;
//! [`lookup`], [`class`] and the per-byte tables [`EXTENDED_BYTES`] and [`HEADER_BYTES`] are made from it. FLUSH (0x1C) and
//! ATOMIC_WRITE (0x1D) are unassigned until the card supports them.

use crate::limits::EXTENDED_BYTES_MAX;

use ExtendedHeader::{Aeth, AtomicAckEth, AtomicEth, CnpReserved, Deth, Ieth, ImmDt, Reth};
use Operation as Op;
use PayloadRule::{FullPmtu, None as NoPayload, UpToPmtu, UpToPmtuNotEmpty};
use Transport::{Cnp, Rc, Uc, Ud};

/// Bytes of the BTH, the header that carries the opcode (protocol 1.3).
pub const BTH_BYTES: usize = 12;

/// Transport: bits 7:5 of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 3,
    /// Congestion notification; the CNP is its only opcode.
    Cnp = 4,
}

impl Transport {
    /// Returns the transport of an opcode, or `None` for transports that the card drops: RD (0x40), XRC (0xA0) and
    /// manufacturer specific ones (0xC0 and up).
    pub const fn of(opcode: u8) -> Option<Self> {
        match opcode >> 5 {
            0 => Some(Rc),
            1 => Some(Uc),
            3 => Some(Ud),
            4 => Some(Cnp),
            _ => None,
        }
    }

    /// Returns the lowest opcode of the transport: the one with operation 0.
    pub const fn base(self) -> u8 {
        (self as u8) << 5
    }
}

/// Operation: bits 4:0 of an opcode. The numbers are the same for all transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// SEND, first packet of several.
    SendFirst = 0x00,
    /// SEND, neither first nor last packet.
    SendMiddle = 0x01,
    /// SEND, last packet of several.
    SendLast = 0x02,
    /// SEND with immediate data, last packet of several.
    SendLastImmediate = 0x03,
    /// SEND in one packet.
    SendOnly = 0x04,
    /// SEND with immediate data in one packet.
    SendOnlyImmediate = 0x05,
    /// RDMA WRITE, first packet of several.
    WriteFirst = 0x06,
    /// RDMA WRITE, neither first nor last packet.
    WriteMiddle = 0x07,
    /// RDMA WRITE, last packet of several.
    WriteLast = 0x08,
    /// RDMA WRITE with immediate data, last packet of several.
    WriteLastImmediate = 0x09,
    /// RDMA WRITE in one packet.
    WriteOnly = 0x0A,
    /// RDMA WRITE with immediate data in one packet.
    WriteOnlyImmediate = 0x0B,
    /// RDMA READ request.
    ReadRequest = 0x0C,
    /// READ response, first packet of several.
    ReadResponseFirst = 0x0D,
    /// READ response, neither first nor last packet.
    ReadResponseMiddle = 0x0E,
    /// READ response, last packet of several.
    ReadResponseLast = 0x0F,
    /// READ response in one packet.
    ReadResponseOnly = 0x10,
    /// ACK, RNR NAK or NAK.
    Acknowledge = 0x11,
    /// Response to an atomic, with the original value.
    AtomicAcknowledge = 0x12,
    /// Atomic compare and swap request.
    CompareSwap = 0x13,
    /// Atomic fetch and add request.
    FetchAdd = 0x14,
    /// SEND with invalidate, last packet of several.
    SendLastInvalidate = 0x16,
    /// SEND with invalidate in one packet.
    SendOnlyInvalidate = 0x17,
    /// Congestion notification: the CNP opcode 0x81 only. Bit 5 distinguishes it from SEND_MIDDLE, which has the same five bits
    /// in other transports.
    CongestionNotification = 0x21,
}

impl Operation {
    /// Returns bits 4:0 of the opcode.
    pub const fn code(self) -> u8 {
        self as u8 & 0x1F
    }

    /// Returns whether the packet is the first or only one of its message.
    pub const fn starts_message(self) -> bool {
        !matches!(
            self,
            Op::SendMiddle
                | Op::SendLast
                | Op::SendLastImmediate
                | Op::SendLastInvalidate
                | Op::WriteMiddle
                | Op::WriteLast
                | Op::WriteLastImmediate
                | Op::ReadResponseMiddle
                | Op::ReadResponseLast
        )
    }

    /// Returns whether the packet is the last or only one of its message.
    pub const fn ends_message(self) -> bool {
        !matches!(
            self,
            Op::SendFirst
                | Op::SendMiddle
                | Op::WriteFirst
                | Op::WriteMiddle
                | Op::ReadResponseFirst
                | Op::ReadResponseMiddle
        )
    }
}

/// A header between BTH and payload (protocol 1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtendedHeader {
    /// Datagram: Q_Key and source QP.
    Deth,
    /// FLUSH: selectivity and placement. No opcode of the table carries it yet.
    Feth,
    /// RDMA: address, R_Key, length.
    Reth,
    /// Atomic: address, R_Key, operands.
    AtomicEth,
    /// Acknowledge: syndrome and MSN.
    Aeth,
    /// Atomic response: the original value.
    AtomicAckEth,
    /// Immediate data.
    ImmDt,
    /// R_Key to invalidate.
    Ieth,
    /// The 16 reserved bytes after the BTH of a CNP (protocol 1.10).
    CnpReserved,
}

impl ExtendedHeader {
    /// Every kind of extended header, in the order of declaration.
    pub const ALL: [Self; 9] =
        [Deth, ExtendedHeader::Feth, Reth, AtomicEth, Aeth, AtomicAckEth, ImmDt, Ieth, CnpReserved];

    /// Returns the size of the header in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Aeth | ImmDt | Ieth | Self::Feth => 4,
            Deth | AtomicAckEth => 8,
            Reth | CnpReserved => 16,
            AtomicEth => 28,
        }
    }

    /// Returns the name that the specification uses.
    pub const fn name(self) -> &'static str {
        match self {
            Deth => "DETH",
            Self::Feth => "FETH",
            Reth => "RETH",
            AtomicEth => "AtomicETH",
            Aeth => "AETH",
            AtomicAckEth => "AtomicAckETH",
            ImmDt => "ImmDt",
            Ieth => "IETH",
            CnpReserved => "CNP",
        }
    }
}

/// Length of the payload that a packet may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadRule {
    /// No payload.
    None,
    /// Exactly the PMTU, and therefore no pad.
    FullPmtu,
    /// 0 to PMTU bytes.
    UpToPmtu,
    /// 1 to PMTU bytes.
    UpToPmtuNotEmpty,
}

impl PayloadRule {
    /// Returns whether the rule allows a payload of `payload_bytes` on a path with a PMTU of `pmtu_bytes`.
    pub const fn admits(self, payload_bytes: usize, pmtu_bytes: usize) -> bool {
        match self {
            NoPayload => payload_bytes == 0,
            FullPmtu => payload_bytes == pmtu_bytes,
            UpToPmtu => payload_bytes <= pmtu_bytes,
            UpToPmtuNotEmpty => payload_bytes != 0 && payload_bytes <= pmtu_bytes,
        }
    }
}

/// The half of the card that receives a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Request, for the responder.
    Request,
    /// Response, for the requester.
    Response,
    /// Congestion notification, for the requester, whose rate it lowers. It has no PSN and no response (protocol 1.10).
    Congestion,
}

/// One row of the opcode table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    /// Opcode byte on the wire.
    pub code: u8,
    /// Name in the specification, with the transport as prefix.
    pub name: &'static str,
    /// Transport, bits 7:5.
    pub transport: Transport,
    /// Operation, bits 4:0.
    pub operation: Operation,
    /// Extended headers between BTH and payload, in wire order.
    pub extended: &'static [ExtendedHeader],
    /// Length of the payload that the packet may carry.
    pub payload: PayloadRule,
    /// The half of the card that receives the packet.
    pub class: Class,
}

impl Opcode {
    /// Returns the size of all extended headers in bytes, 0 to [`EXTENDED_BYTES_MAX`].
    pub const fn extended_bytes(&self) -> usize {
        let mut bytes = 0;
        let mut index = 0;
        while index < self.extended.len() {
            bytes += self.extended[index].bytes();
            index += 1;
        }
        bytes
    }
}

const fn row(
    name: &'static str,
    transport: Transport,
    operation: Operation,
    extended: &'static [ExtendedHeader],
    payload: PayloadRule,
) -> Opcode {
    let class = match operation {
        Op::ReadResponseFirst
        | Op::ReadResponseMiddle
        | Op::ReadResponseLast
        | Op::ReadResponseOnly
        | Op::Acknowledge
        | Op::AtomicAcknowledge => Class::Response,
        Op::CongestionNotification => Class::Congestion,
        _ => Class::Request,
    };
    Opcode { code: transport.base() | operation.code(), name, transport, operation, extended, payload, class }
}

/// Every opcode that the card knows, in ascending order.
pub const OPCODES: [Opcode; 38] = [
    row("RC_SEND_FIRST", Rc, Op::SendFirst, &[], FullPmtu),
    row("RC_SEND_MIDDLE", Rc, Op::SendMiddle, &[], FullPmtu),
    row("RC_SEND_LAST", Rc, Op::SendLast, &[], UpToPmtuNotEmpty),
    row("RC_SEND_LAST_IMM", Rc, Op::SendLastImmediate, &[ImmDt], UpToPmtuNotEmpty),
    row("RC_SEND_ONLY", Rc, Op::SendOnly, &[], UpToPmtu),
    row("RC_SEND_ONLY_IMM", Rc, Op::SendOnlyImmediate, &[ImmDt], UpToPmtu),
    row("RC_WRITE_FIRST", Rc, Op::WriteFirst, &[Reth], FullPmtu),
    row("RC_WRITE_MIDDLE", Rc, Op::WriteMiddle, &[], FullPmtu),
    row("RC_WRITE_LAST", Rc, Op::WriteLast, &[], UpToPmtuNotEmpty),
    row("RC_WRITE_LAST_IMM", Rc, Op::WriteLastImmediate, &[ImmDt], UpToPmtuNotEmpty),
    row("RC_WRITE_ONLY", Rc, Op::WriteOnly, &[Reth], UpToPmtu),
    row("RC_WRITE_ONLY_IMM", Rc, Op::WriteOnlyImmediate, &[Reth, ImmDt], UpToPmtu),
    row("RC_READ_REQUEST", Rc, Op::ReadRequest, &[Reth], NoPayload),
    row("RC_READ_RESPONSE_FIRST", Rc, Op::ReadResponseFirst, &[Aeth], FullPmtu),
    row("RC_READ_RESPONSE_MIDDLE", Rc, Op::ReadResponseMiddle, &[], FullPmtu),
    row("RC_READ_RESPONSE_LAST", Rc, Op::ReadResponseLast, &[Aeth], UpToPmtuNotEmpty),
    row("RC_READ_RESPONSE_ONLY", Rc, Op::ReadResponseOnly, &[Aeth], UpToPmtu),
    row("RC_ACKNOWLEDGE", Rc, Op::Acknowledge, &[Aeth], NoPayload),
    row("RC_ATOMIC_ACKNOWLEDGE", Rc, Op::AtomicAcknowledge, &[Aeth, AtomicAckEth], NoPayload),
    row("RC_COMPARE_SWAP", Rc, Op::CompareSwap, &[AtomicEth], NoPayload),
    row("RC_FETCH_ADD", Rc, Op::FetchAdd, &[AtomicEth], NoPayload),
    row("RC_SEND_LAST_INV", Rc, Op::SendLastInvalidate, &[Ieth], UpToPmtuNotEmpty),
    row("RC_SEND_ONLY_INV", Rc, Op::SendOnlyInvalidate, &[Ieth], UpToPmtu),
    row("UC_SEND_FIRST", Uc, Op::SendFirst, &[], FullPmtu),
    row("UC_SEND_MIDDLE", Uc, Op::SendMiddle, &[], FullPmtu),
    row("UC_SEND_LAST", Uc, Op::SendLast, &[], UpToPmtuNotEmpty),
    row("UC_SEND_LAST_IMM", Uc, Op::SendLastImmediate, &[ImmDt], UpToPmtuNotEmpty),
    row("UC_SEND_ONLY", Uc, Op::SendOnly, &[], UpToPmtu),
    row("UC_SEND_ONLY_IMM", Uc, Op::SendOnlyImmediate, &[ImmDt], UpToPmtu),
    row("UC_WRITE_FIRST", Uc, Op::WriteFirst, &[Reth], FullPmtu),
    row("UC_WRITE_MIDDLE", Uc, Op::WriteMiddle, &[], FullPmtu),
    row("UC_WRITE_LAST", Uc, Op::WriteLast, &[], UpToPmtuNotEmpty),
    row("UC_WRITE_LAST_IMM", Uc, Op::WriteLastImmediate, &[ImmDt], UpToPmtuNotEmpty),
    row("UC_WRITE_ONLY", Uc, Op::WriteOnly, &[Reth], UpToPmtu),
    row("UC_WRITE_ONLY_IMM", Uc, Op::WriteOnlyImmediate, &[Reth, ImmDt], UpToPmtu),
    row("UD_SEND_ONLY", Ud, Op::SendOnly, &[Deth], UpToPmtu),
    row("UD_SEND_ONLY_IMM", Ud, Op::SendOnlyImmediate, &[Deth, ImmDt], UpToPmtu),
    row("CNP", Cnp, Op::CongestionNotification, &[CnpReserved], NoPayload),
];

/// No row: the value in [`ROW_OF`] for an opcode that is not in the table.
const NO_ROW: u8 = u8::MAX;

/// For each opcode byte, its row in [`OPCODES`].
const ROW_OF: [u8; 256] = {
    let mut rows = [NO_ROW; 256];
    let mut index = 0;
    while index < OPCODES.len() {
        let code = OPCODES[index].code as usize;
        assert!(rows[code] == NO_ROW, "two rows with one opcode");
        assert!(index == 0 || OPCODES[index - 1].code < OPCODES[index].code, "rows out of order");
        assert!(OPCODES[index].extended_bytes() <= EXTENDED_BYTES_MAX, "chain longer than the limit");
        rows[code] = index as u8;
        index += 1;
    }
    rows
};

/// For each opcode byte, the size in bytes of the extended headers after the BTH; 0 for opcodes not in the table.
pub const EXTENDED_BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut index = 0;
    while index < OPCODES.len() {
        bytes[OPCODES[index].code as usize] = OPCODES[index].extended_bytes() as u8;
        index += 1;
    }
    bytes
};

/// For each opcode byte, the size in bytes of BTH and extended headers together (protocol 1.5).
pub const HEADER_BYTES: [u8; 256] = {
    let mut bytes = EXTENDED_BYTES;
    let mut code = 0;
    while code < 256 {
        bytes[code] += BTH_BYTES as u8;
        code += 1;
    }
    bytes
};

/// Returns the row of an opcode byte, or `None` if the table has none.
pub const fn lookup(code: u8) -> Option<&'static Opcode> {
    const TABLE: &[Opcode; OPCODES.len()] = &OPCODES;
    match ROW_OF[code as usize] {
        NO_ROW => None,
        row => Some(&TABLE[row as usize]),
    }
}

/// Returns the half of the card that receives a packet with this opcode, or `None` if the packet path drops it.
///
/// An unassigned RC opcode (0x15, 0x18 to 0x1F) is a request without extended headers, which the responder must answer with NAK
/// 0x61 (protocol 8.3). Unassigned opcodes of other transports are dropped.
pub const fn class(code: u8) -> Option<Class> {
    match (lookup(code), Transport::of(code)) {
        (Some(opcode), _) => Some(opcode.class),
        (None, Some(Rc)) => Some(Class::Request),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_sizes_are_those_of_protocol_1_5() {
        let expected = [
            (0x00, 12),
            (0x03, 16),
            (0x16, 16),
            (0x11, 16),
            (0x0E, 12),
            (0x64, 20),
            (0x65, 24),
            (0x12, 24),
            (0x06, 28),
            (0x0C, 28),
            (0x0B, 32),
            (0x2B, 32),
            (0x13, 40),
            (0x14, 40),
            (0x81, 28),
            (0x15, 12),
            (0xFF, 12),
        ];
        for (code, bytes) in expected {
            assert_eq!(HEADER_BYTES[code], bytes, "opcode {code:#04x}");
        }
    }

    #[test]
    fn a_code_is_transport_and_operation_and_finds_its_own_row() {
        for opcode in &OPCODES {
            assert_eq!(lookup(opcode.code), Some(opcode));
            assert_eq!(Transport::of(opcode.code), Some(opcode.transport));
            assert_eq!(opcode.code & 0x1F, opcode.operation.code());
        }
        assert_eq!(lookup(0x0B).unwrap().name, "RC_WRITE_ONLY_IMM");
        assert_eq!(lookup(0x81).unwrap().operation, Operation::CongestionNotification);
    }

    #[test]
    fn unassigned_rc_opcodes_are_requests_and_others_are_dropped() {
        let mut dropped = 0;
        for code in 0..=255u8 {
            let unassigned = lookup(code).is_none();
            match code {
                0x00..=0x14 | 0x16..=0x17 | 0x20..=0x2B | 0x64 | 0x65 | 0x81 => assert!(!unassigned),
                0x15 | 0x18..=0x1F => assert!(unassigned && class(code) == Some(Class::Request)),
                _ => {
                    assert!(unassigned && class(code).is_none(), "opcode {code:#04x}");
                    dropped += 1;
                }
            }
        }
        assert_eq!(dropped, 256 - 38 - 9);
    }

    #[test]
    fn responses_are_0x0d_to_0x12_and_nothing_else() {
        for code in 0..=255 {
            assert_eq!(
                class(code) == Some(Class::Response),
                (0x0D..=0x12).contains(&code),
                "opcode {code:#04x}"
            );
        }
        assert_eq!(class(0x81), Some(Class::Congestion));
    }

    #[test]
    fn position_payload_and_name_agree() {
        for opcode in &OPCODES {
            let (starts, ends) = (opcode.operation.starts_message(), opcode.operation.ends_message());
            let named = |part: &str| opcode.name.split('_').any(|word| word == part);
            assert_eq!(named("FIRST"), starts && !ends, "{}", opcode.name);
            assert_eq!(named("MIDDLE"), !starts && !ends, "{}", opcode.name);
            assert_eq!(named("LAST"), !starts && ends, "{}", opcode.name);
            assert_eq!(opcode.payload == FullPmtu, !ends, "{}", opcode.name);
            assert_eq!(opcode.payload == UpToPmtuNotEmpty, !starts && ends, "{}", opcode.name);
            assert_eq!(named("IMM"), opcode.extended.last() == Some(&ImmDt), "{}", opcode.name);
        }
    }

    #[test]
    fn payload_rules_hold_at_their_bounds() {
        let admits = |rule: PayloadRule| [0, 1, 255, 256, 257].map(|bytes| rule.admits(bytes, 256));
        assert_eq!(admits(NoPayload), [true, false, false, false, false]);
        assert_eq!(admits(FullPmtu), [false, false, false, true, false]);
        assert_eq!(admits(UpToPmtu), [true, true, true, true, false]);
        assert_eq!(admits(UpToPmtuNotEmpty), [false, true, true, true, false]);
    }
}
