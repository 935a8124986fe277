//! Comparisons of [`Admit`](super::Admit): a packet with path and record of its queue pair, in the order of
//! protocol 3.1. They are made in one cycle, and [`outcome`](super::outcome) decides by them in the next.
use super::record::{AdmitPath, AdmitRecord, Message, Stopped, Transfer};
use rnic_blocks::logic::psn::{self, PsnCheck};
use rnic_kernel::prelude::*;
use rnic_layout::limits::{self, MESSAGE_BYTES_MAX};
use rnic_layout::opcode::Operation;
use rnic_layout::state::{QpState, Service};
use rnic_messages::packet::{PacketToken, partition_keys_match};
use rnic_messages::path::{PMTU_BASE_BITS, pmtu_bytes};
use rnic_messages::read::READ_COUNT_BITS;
use rnic_messages::setup::receives;

/// The longest message, in bytes.
const LENGTH_MAX: u64 = MESSAGE_BYTES_MAX as u64;
/// log2 of the bytes of PMTU code 0.
const PMTU_BASE_LOG2: u64 = PMTU_BASE_BITS as u64;
/// Bytes of the word of an atomic.
const ATOMIC_BYTES: u64 = limits::ATOMIC_BYTES as u64;

/// What the opcode of a packet says of it (protocol 1.4). An opcode that is none of a request is neither SEND,
/// WRITE nor READ.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct PacketClass {
    pub is_send: Bit,
    pub is_write: Bit,
    /// A READ or an atomic.
    pub is_read: Bit,
    pub is_atomic: Bit,
    /// First or only packet of its message.
    pub starts: Bit,
    /// Last or only packet of its message.
    pub ends: Bit,
    pub with_immediate: Bit,
    pub with_invalidate: Bit,
}

/// What must agree before a packet is one of its queue pair (protocol 3.1, step 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Identity {
    pub qp_matches: Bit,
    pub is_ready: Bit,
    pub transport_matches: Bit,
    pub partition_matches: Bit,
    pub address_matches: Bit,
}

/// The payload compared with the PMTU, and the bytes of a WRITE with its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Lengths {
    pub is_empty: Bit,
    /// The payload has the length of the PMTU.
    pub is_full: Bit,
    /// The payload is longer than the PMTU.
    pub too_long: Bit,
    /// The length in the RETH is above 2^31 bytes.
    pub promises_too_much: Bit,
    /// More bytes have arrived than the RETH says.
    pub overruns: Bit,
    /// As many bytes have arrived as the RETH says.
    pub is_complete: Bit,
}

/// Results of the comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Findings {
    pub identity: Identity,
    /// An earlier packet has failed, here or in a later stage.
    pub has_failed: Bit,
    pub psn_check: PsnCheck,
    pub class: PacketClass,
    /// The message that is arriving is the one that the opcode continues.
    pub is_in_order: Bit,
    /// The address of an atomic is a multiple of 8.
    pub is_aligned: Bit,
    /// One more READ or atomic may be in flight.
    pub has_slot: Bit,
    pub has_wqe: Bit,
    /// The SRQ holds fewer WQEs than its limit, or will after the next is taken.
    pub is_low: Bit,
    pub lengths: Lengths,
    /// The last packet of a SEND or WRITE, or the first PSN, is in the window of duplicates: at most 2^23 before the expected PSN.
    pub follows_message: Bit,
    /// Responses after the first.
    pub responses: Bits<24>,
    /// With the bytes of this packet.
    pub transfer: Transfer,
    /// The queue pair is in ERR.
    pub is_error: Bit,
    /// The queue pair is in RTR, and control has not been told that its peer has come.
    pub may_establish: Bit,
}

/// Says what an opcode means.
#[kernel]
pub(super) fn class_of(opcode: Bits<8>) -> PacketClass {
    let with_invalidate =
        opcode == Operation::SendLastInvalidate as u64 || opcode == Operation::SendOnlyInvalidate as u64;
    let is_send = opcode <= Operation::SendOnlyImmediate as u64 || with_invalidate;
    let is_atomic = opcode == Operation::CompareSwap as u64 || opcode == Operation::FetchAdd as u64;
    let is_first = opcode == Operation::SendFirst as u64 || opcode == Operation::WriteFirst as u64;
    let is_middle = opcode == Operation::SendMiddle as u64 || opcode == Operation::WriteMiddle as u64;
    let is_last = opcode == Operation::SendLast as u64
        || opcode == Operation::SendLastImmediate as u64
        || opcode == Operation::SendLastInvalidate as u64
        || opcode == Operation::WriteLast as u64
        || opcode == Operation::WriteLastImmediate as u64;
    PacketClass {
        is_send,
        is_write: !is_send && opcode <= Operation::WriteOnlyImmediate as u64,
        is_read: opcode == Operation::ReadRequest as u64 || is_atomic,
        is_atomic,
        starts: !is_middle && !is_last,
        ends: !is_middle && !is_first,
        with_immediate: opcode == Operation::SendLastImmediate as u64
            || opcode == Operation::SendOnlyImmediate as u64
            || opcode == Operation::WriteLastImmediate as u64
            || opcode == Operation::WriteOnlyImmediate as u64,
        with_invalidate,
    }
}

/// Says whether a packet takes a receive WQE (protocol 3.7).
#[kernel]
pub(super) fn needs_wqe(class: PacketClass) -> Bit {
    select(class.is_send, class.starts, class.with_immediate)
}

/// Gives the message that must be arriving for a packet to be in order (protocol 3.3).
#[kernel]
fn message_before(class: PacketClass) -> Message {
    if class.starts {
        Message::Nothing
    } else if class.is_send {
        Message::Send
    } else {
        Message::Write
    }
}

/// Compares a packet with what its queue pair is; `is_own_address` says that its destination address is the
/// source address of the queue pair (protocol 1.2).
#[kernel]
fn identity_of(token: PacketToken, path: AdmitPath, is_own_address: Bit) -> Identity {
    Identity {
        qp_matches: path.local_qp == token.destination_qp,
        is_ready: receives(path.state),
        transport_matches: token.opcode.get_bits::<3>(5) == Service::ReliableConnected as u64
            && path.service == Service::ReliableConnected as u64,
        partition_matches: partition_keys_match(token.partition_key, path.partition_key),
        address_matches: token.source_address == path.destination_address && is_own_address,
    }
}

/// Gives the WRITE up to a packet, or the READ or atomic that it requests. The first packet has the RETH; its
/// fields are kept for the later ones.
#[kernel]
fn transfer_of(token: PacketToken, class: PacketClass, before: Transfer) -> Transfer {
    let extended = token.extended;
    let bytes_before = select(class.starts, bits::<32>(0), before.received);
    Transfer {
        key: select(class.starts, swap_bytes(extended.get_bits::<32>(64)), before.key),
        address: select(class.starts, swap_bytes(extended.get_bits::<64>(0)), before.address),
        length: if class.is_atomic {
            bits::<32>(ATOMIC_BYTES)
        } else if class.starts {
            swap_bytes(extended.get_bits::<32>(96))
        } else {
            before.length
        },
        received: bytes_before + bit_cast::<32, 13>(token.payload_bytes),
    }
}

/// Gives the responses to a READ after the first, by its length in PMTUs; other packets have one at most
/// (protocol 2.1).
#[kernel]
fn responses_after_first(class: PacketClass, length: Bits<32>, path_mtu: Bits<3>) -> Bits<24> {
    let has_more = class.is_read && !class.is_atomic && length.any();
    let behind_first = (length - 1) >> (bit_cast::<4, 3>(path_mtu) + PMTU_BASE_LOG2);
    select(has_more, behind_first.get_bits::<24>(0), bits::<24>(0))
}

/// Compares the payload with the PMTU, and what has arrived with the length in the RETH.
#[kernel]
fn lengths_of(payload_bytes: Bits<13>, path_mtu: Bits<3>, transfer: Transfer) -> Lengths {
    let pmtu = bit_cast::<14, 13>(pmtu_bytes(path_mtu));
    let payload = bit_cast::<14, 13>(payload_bytes);
    Lengths {
        is_empty: !payload_bytes.any(),
        is_full: payload == pmtu,
        too_long: payload > pmtu,
        promises_too_much: transfer.length > LENGTH_MAX,
        overruns: transfer.received > transfer.length,
        is_complete: transfer.received == transfer.length,
    }
}

/// Says whether a packet of this generation of the queue pair has failed, here or in a later stage.
#[kernel]
fn has_failed(path: AdmitPath, record: AdmitRecord, stopped: Stopped) -> Bit {
    record.failed || (stopped.has_failed && stopped.generation == path.generation)
}

/// Says whether one more READ or atomic may be in flight: of those that were admitted, `served` are done.
#[kernel]
fn has_slot(path: AdmitPath, record: AdmitRecord, served: Bits<READ_COUNT_BITS>) -> Bit {
    let open = record.reads - served;
    open < path.reads_max
}

/// Says whether the last packet of a SEND or WRITE is at most 2^23 PSNs before the expected one, as duplicates are (protocol 3.4).
#[kernel]
fn follows_message(record: AdmitRecord) -> Bit {
    !record.read_psns.get_bit(23)
}

/// Makes all comparisons of a packet, or of the queue pair of the sweep. `has_posted` says that a receive WQE
/// of the queue pair itself is posted.
#[kernel]
pub(super) fn findings_of(
    token: PacketToken,
    path: AdmitPath,
    record: AdmitRecord,
    stopped: Stopped,
    served: Bits<READ_COUNT_BITS>,
    has_posted: Bit,
    is_own_address: Bit,
) -> Findings {
    let class = class_of(token.opcode);
    let transfer = transfer_of(token, class, record.transfer);
    Findings {
        identity: identity_of(token, path, is_own_address),
        has_failed: has_failed(path, record, stopped),
        psn_check: psn::check(token.psn, record.expected_psn),
        class,
        is_in_order: record.message == message_before(class),
        // The low bits of the address are in its last byte.
        is_aligned: !token.extended.get_bits::<3>(56).any(),
        has_slot: has_slot(path, record, served),
        has_wqe: has_posted && !path.is_shared,
        is_low: false,
        lengths: lengths_of(token.payload_bytes, path.path_mtu, transfer),
        follows_message: follows_message(record),
        responses: responses_after_first(class, transfer.length, path.path_mtu),
        transfer,
        is_error: path.state == QpState::Error as u64,
        may_establish: path.state == QpState::ReadyToReceive as u64 && !record.is_established,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the flags of a class that are set.
    fn flags(class: PacketClass) -> Vec<&'static str> {
        [
            ("send", class.is_send),
            ("write", class.is_write),
            ("read", class.is_read),
            ("atomic", class.is_atomic),
            ("starts", class.starts),
            ("ends", class.ends),
            ("immediate", class.with_immediate),
            ("invalidate", class.with_invalidate),
        ]
        .into_iter()
        .filter_map(|(name, is_set)| is_set.then_some(name))
        .collect()
    }

    /// Protocol 1.4 and 3.7: the flags, and whether a receive WQE is taken.
    #[test]
    fn each_request_opcode_has_its_class() {
        let rows: [(u64, &[&str], bool); 18] = [
            (0x00, &["send", "starts"], true),
            (0x01, &["send"], false),
            (0x02, &["send", "ends"], false),
            (0x03, &["send", "ends", "immediate"], false),
            (0x04, &["send", "starts", "ends"], true),
            (0x05, &["send", "starts", "ends", "immediate"], true),
            (0x06, &["write", "starts"], false),
            (0x07, &["write"], false),
            (0x08, &["write", "ends"], false),
            (0x09, &["write", "ends", "immediate"], true),
            (0x0a, &["write", "starts", "ends"], false),
            (0x0b, &["write", "starts", "ends", "immediate"], true),
            (0x0c, &["read", "starts", "ends"], false),
            (0x13, &["read", "atomic", "starts", "ends"], false),
            (0x14, &["read", "atomic", "starts", "ends"], false),
            (0x16, &["send", "ends", "invalidate"], false),
            (0x17, &["send", "starts", "ends", "invalidate"], true),
            (0x15, &["starts", "ends"], false),
        ];
        for (opcode, expected, takes_wqe) in rows {
            let class = class_of(bits(opcode));
            assert_eq!(flags(class), expected, "opcode {opcode:#04x}");
            assert_eq!(needs_wqe(class), takes_wqe, "opcode {opcode:#04x}");
        }
    }

    /// Protocol 3.6 row 3: what is no request has no class, so it is refused.
    #[test]
    fn an_opcode_of_a_response_or_of_no_use_is_no_request() {
        for opcode in (0x0d..=0x12).chain([0x15]).chain(0x18..=0xff) {
            let class = class_of(bits(opcode));
            assert!(!class.is_send && !class.is_write && !class.is_read, "opcode {opcode:#04x}");
        }
    }

    /// Protocol 3.3.
    #[test]
    fn a_packet_continues_its_own_kind_of_message_only() {
        for (opcode, message) in [
            (0x00, Message::Nothing),
            (0x01, Message::Send),
            (0x03, Message::Send),
            (0x16, Message::Send),
            (0x04, Message::Nothing),
            (0x06, Message::Nothing),
            (0x07, Message::Write),
            (0x09, Message::Write),
            (0x0a, Message::Nothing),
            (0x0c, Message::Nothing),
            (0x13, Message::Nothing),
        ] {
            assert_eq!(message_before(class_of(bits(opcode))), message, "opcode {opcode:#04x}");
        }
    }

    fn path() -> AdmitPath {
        AdmitPath {
            state: bits(QpState::ReadyToReceive as u64),
            generation: bits(3),
            local_qp: bits(0x5a_c003),
            service: bits(Service::ReliableConnected as u64),
            path_mtu: bits(3),
            reads_max: bits(4),
            destination_address: bits(0xffff_0a00_0001),
            partition_key: bits(0xffff),
            ..AdmitPath::default()
        }
    }

    fn token() -> PacketToken {
        PacketToken {
            destination_qp: bits(0x5a_c003),
            source_address: bits(0xffff_0a00_0001),
            partition_key: bits(0x7fff),
            opcode: bits(0x0a),
            ..PacketToken::default()
        }
    }

    /// Protocol 3.1, step 1.
    #[test]
    fn each_part_of_the_identity_is_compared() {
        let all = Identity {
            qp_matches: true,
            is_ready: true,
            transport_matches: true,
            partition_matches: true,
            address_matches: true,
        };
        let other_qp = PacketToken { destination_qp: bits(0x5b_c003), ..token() };
        let unreliable = PacketToken { opcode: bits(0x2a), ..token() };
        let other_partition = PacketToken { partition_key: bits(0x7ffe), ..token() };
        let other_peer = PacketToken { source_address: bits(0xffff_0a00_0002), ..token() };
        let datagram = AdmitPath { service: bits(Service::UnreliableDatagram as u64), ..path() };
        for (token, path, is_own, expected) in [
            (token(), path(), true, all),
            (other_qp, path(), true, Identity { qp_matches: false, ..all }),
            (unreliable, path(), true, Identity { transport_matches: false, ..all }),
            (token(), datagram, true, Identity { transport_matches: false, ..all }),
            (other_partition, path(), true, Identity { partition_matches: false, ..all }),
            (other_peer, path(), true, Identity { address_matches: false, ..all }),
            (token(), path(), false, Identity { address_matches: false, ..all }),
        ] {
            assert_eq!(identity_of(token, path, is_own), expected);
        }
    }

    /// Protocol 3.6 row 1: RTR, RTS, SQD and SQE receive.
    #[test]
    fn a_queue_pair_receives_from_rtr_to_sqe() {
        for (state, is_ready) in [
            (QpState::Reset, false),
            (QpState::Init, false),
            (QpState::ReadyToReceive, true),
            (QpState::ReadyToSend, true),
            (QpState::SendQueueDrain, true),
            (QpState::SendQueueError, true),
            (QpState::Error, false),
        ] {
            let path = AdmitPath { state: bits(state as u64), ..path() };
            assert_eq!(identity_of(token(), path, true).is_ready, is_ready, "{state:?}");
        }
    }

    /// A RETH as it is on the wire: address, key, length.
    fn reth(address: u64, key: u32, length: u32) -> Bits<224> {
        let mut wire = [0; 16];
        wire[..8].copy_from_slice(&address.to_be_bytes());
        wire[8..12].copy_from_slice(&key.to_be_bytes());
        wire[12..].copy_from_slice(&length.to_be_bytes());
        bits::<224>(0)
            | wire.iter().rev().fold(bits::<224>(0), |value, byte| (value << 8u64) | u64::from(*byte))
    }

    #[test]
    fn the_reth_of_the_first_packet_holds_for_the_later_ones() {
        let before =
            Transfer { key: bits(9), address: bits(0x8000), length: bits(5000), received: bits(4096) };
        let fresh = Transfer {
            key: bits(0x142),
            address: bits(0x1_0000_7001),
            length: bits(70_000),
            received: bits(904),
        };
        let token =
            PacketToken { extended: reth(0x1_0000_7001, 0x142, 70_000), payload_bytes: bits(904), ..token() };
        for (opcode, expected) in [
            (0x06, fresh),
            (0x0a, fresh),
            (0x07, Transfer { received: bits(5000), ..before }),
            (0x09, Transfer { received: bits(5000), ..before }),
            // An atomic has no length on the wire.
            (0x13, Transfer { length: bits(8), ..fresh }),
            (0x14, Transfer { length: bits(8), ..fresh }),
        ] {
            assert_eq!(transfer_of(token, class_of(bits(opcode)), before), expected, "opcode {opcode:#04x}");
        }
    }

    /// Protocol 2.1: a READ takes one PSN for each PMTU that has begun, at least one.
    #[test]
    fn a_read_has_a_response_for_each_pmtu() {
        for (opcode, length, path_mtu, after_first) in [
            (0x0c, 0, 3, 0),
            (0x0c, 1, 3, 0),
            (0x0c, 1024, 3, 0),
            (0x0c, 1025, 3, 1),
            (0x0c, 2048, 3, 1),
            (0x0c, 2049, 3, 2),
            (0x0c, 256, 1, 0),
            (0x0c, 257, 1, 1),
            (0x0c, 4096, 5, 0),
            (0x0c, 4097, 5, 1),
            (0x0c, 1 << 31, 1, (1 << 23) - 1),
            (0x13, 8, 1, 0),
            (0x0a, 5000, 3, 0),
        ] {
            let responses = responses_after_first(class_of(bits(opcode)), bits(length), bits(path_mtu));
            assert_eq!(responses, bits(after_first), "{length} bytes, PMTU code {path_mtu}");
        }
    }

    /// Protocol 3.6 rows 8 and 9: empty, full, too long; promises too much, overruns, complete.
    #[test]
    fn lengths_are_compared_on_both_sides_of_each_boundary() {
        for (payload, path_mtu, length, received, expected) in [
            (0, 3, 10, 5, [true, false, false, false, false, false]),
            (1, 3, 10, 9, [false, false, false, false, false, false]),
            (1023, 3, 10, 10, [false, false, false, false, false, true]),
            (1024, 3, 10, 11, [false, true, false, false, true, false]),
            (1025, 3, 10, 9, [false, false, true, false, false, false]),
            (256, 1, 0, 0, [false, true, false, false, false, true]),
            (257, 1, 0, 1, [false, false, true, false, true, false]),
            (4096, 5, 1 << 31, 4096, [false, true, false, false, false, false]),
            (4097, 5, (1 << 31) + 1, 4097, [false, false, true, true, false, false]),
        ] {
            let transfer = Transfer { length: bits(length), received: bits(received), ..Transfer::default() };
            let found = lengths_of(bits(payload), bits(path_mtu), transfer);
            let flags = [
                found.is_empty,
                found.is_full,
                found.too_long,
                found.promises_too_much,
                found.overruns,
                found.is_complete,
            ];
            assert_eq!(flags, expected, "payload {payload}, {received} of {length}");
        }
    }

    #[test]
    fn a_stop_counts_for_its_own_generation_only() {
        for (failed, stopped, generation, expected) in [
            (false, false, 3, false),
            (true, false, 3, true),
            (false, true, 3, true),
            (false, true, 2, false),
            (true, true, 2, true),
        ] {
            let record = AdmitRecord { failed, ..AdmitRecord::default() };
            let stopped = Stopped { has_failed: stopped, generation: bits(generation) };
            assert_eq!(has_failed(path(), record, stopped), expected);
        }
    }

    #[test]
    fn a_message_is_in_the_window_of_duplicates_unless_too_many_psns_of_reads_follow_it() {
        let follows = |psns| follows_message(AdmitRecord { read_psns: bits(psns), ..AdmitRecord::default() });
        assert!(follows(0) && follows(0x7f_ffff) && !follows(0x80_0000) && !follows(0xff_ffff));
    }

    /// Protocol 3.5; the counts are modulo 32.
    #[test]
    fn reads_in_flight_are_limited() {
        for (admitted, served, reads_max, expected) in [
            (0, 0, 4, true),
            (3, 0, 4, true),
            (4, 0, 4, false),
            (1, 30, 4, true),
            (2, 30, 4, false),
            (5, 5, 0, false),
            (16, 0, 16, false),
            (15, 0, 16, true),
        ] {
            let record = AdmitRecord { reads: bits(admitted), ..AdmitRecord::default() };
            let path = AdmitPath { reads_max: bits(reads_max), ..path() };
            assert_eq!(has_slot(path, record, bits(served)), expected, "{admitted} {served} {reads_max}");
        }
    }

    #[test]
    fn the_wqes_of_the_ring_itself_do_not_count_with_an_srq() {
        for (is_shared, has_posted, expected) in
            [(false, true, true), (false, false, false), (true, true, false), (true, false, false)]
        {
            let path = AdmitPath { is_shared, ..path() };
            let record = AdmitRecord::default();
            let found = findings_of(token(), path, record, Stopped::default(), bits(0), has_posted, true);
            assert_eq!(found.has_wqe, expected, "{is_shared} {has_posted}");
        }
    }

    /// Protocol 3.6 row 6.
    #[test]
    fn the_address_of_an_atomic_is_a_multiple_of_8() {
        for (address, expected) in
            [(0x7000, true), (0x7001, false), (0x7004, false), (0x7007, false), (0x7008, true)]
        {
            let token = PacketToken { extended: reth(address, 0, 0), ..token() };
            let record = AdmitRecord::default();
            let found = findings_of(token, path(), record, Stopped::default(), bits(0), false, true);
            assert_eq!(found.is_aligned, expected, "{address:#x}");
        }
    }
}
