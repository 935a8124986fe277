//! Parses a header vector into a token, and reports the first fault of the headers.
//!
//! All later blocks work with fields; only this one knows their positions on the wire. A VLAN tag and the IP version shift the fields
//! (protocol 1.7), so each field is selected from one of four positions, by two multiplexers in series with a register between them.
//!
//! ```text
//!  header ──> VLAN: align ──┬──> IP version: align UDP, BTH, ──┬──> extended headers, ──┬──> payload length, ──> headers
//!                           │    extended; lengths; filter     │    opcode; positions   │    first fault
//!                           └──> checksum: pairs ──────────────┴──> sum ────────────────┴──> compare
//!  cycle     0              1                                  2            └──> coverage               4
//! ```
//!
//! Latency 4 cycles to `headers`, 3 to `coverage`; throughput one header vector a cycle; never stalls.
//!
//! 1. `headers` and `coverage` come in the order of the vectors, one each.
//! 2. `headers.fault` is the first reason, in the order of [`reason`], that the headers show; reasons that need
//!    the end of the frame (`mac_error`, `too_long`, `ip_length`, `icrc`) and `buffer_full` are not known here.
//! 3. With a fault, fields that belong to later layers than the fault have no meaning.
//!
//! Ignored, as the protocol asks: UDP source port and checksum, TTL, traffic class, flow label, reserved bits.
//! Protocol 1.1 to 1.5, 8.3.
use super::collect::HEADER_BITS;
use super::opcode_table::OpcodeTable;
use rnic_blocks::stream::{ValidRx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::drop_reason::{self as reason, REASON_BITS};
use rnic_messages::sizes::queue_pair_of;
use rnic_messages::{EXTENDED_BITS, PacketToken};

/// The port of RoCEv2.
const ROCE_PORT: u64 = 4791;
/// TPID of 802.1Q.
const ETHERTYPE_VLAN: u64 = 0x8100;
const ETHERTYPE_IPV4: u64 = 0x0800;
const ETHERTYPE_IPV6: u64 = 0x86dd;
/// IP protocol of UDP, the only one that the card accepts.
const PROTOCOL_UDP: u64 = 17;

/// IPv6, UDP, BTH and the longest extended header.
const NETWORK_BITS: usize = (40 + TRANSPORT_BITS / 8) * 8;
/// UDP, BTH and the longest extended header.
const TRANSPORT_BITS: usize = (8 + 12 + 28) * 8;
/// UDP, BTH and ICRC, which every packet has.
const TRANSPORT_BYTES_MIN: u64 = 8 + 12 + 4;

/// Which buffer a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum PacketClass {
    /// To the responder.
    Request,
    /// To the requester.
    Response,
    /// A congestion notification, also to the requester (protocol 1.10).
    Congestion,
}

/// Which bytes of a frame the ICRC covers, known a cycle before the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Coverage {
    /// The frame has an 802.1Q tag.
    pub vlan_present: Bit,
    /// The packet is IPv6.
    pub is_ipv6: Bit,
    /// Offset in the frame of the last byte of the IP packet, which is the last of the ICRC; 8191 for that and more.
    pub last_byte: Bits<13>,
}

/// What the headers of a frame say about its place in the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ParsedHeaders {
    /// The role that the packet is for.
    pub packet_class: PacketClass,
    /// Bytes before the payload, 54 to 106, always 4m + 2.
    pub header_bytes: Bits<7>,
    /// Number of the first fault, or [`reason::NONE`].
    pub fault: Bits<REASON_BITS>,
}

/// After the first multiplexer: the frame without its VLAN tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Aligned {
    destination_mac: Bits<48>,
    source_mac: Bits<48>,
    vlan_present: Bit,
    vlan_control: Bits<16>,
    is_ipv4: Bit,
    is_ipv6: Bit,
    /// From the IP header on.
    network: Bits<NETWORK_BITS>,
    /// Bytes of the frame that are in the vector.
    seen_bytes: Bits<8>,
}

/// Faults of the headers up to the IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct NetworkFaults {
    short_ethernet: Bit,
    destination_mac: Bit,
    source_mac: Bit,
    other_ethertype: Bit,
    ip_header: Bit,
    ip_fragment: Bit,
    other_protocol: Bit,
}

/// Faults of the transport headers, after the IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct TransportFaults {
    udp_header: Bit,
    other_port: Bit,
    udp_length: Bit,
    bth_version: Bit,
    unsupported_transport: Bit,
    destination_qp: Bit,
}

/// After the second multiplexer: every field at its own position.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Fields {
    network: NetworkFaults,
    /// Offset of the last byte of the IP packet.
    last_byte: Bits<17>,
    /// Length of the IP packet without its header.
    ip_payload_bytes: Bits<16>,
    destination_port: Bits<16>,
    udp_bytes: Bits<16>,
    pad_bytes: Bits<2>,
    version: Bits<4>,
    checksum_front: Bits<18>,
    checksum_middle: Bits<18>,
    checksum_back: Bits<17>,
}

/// After the opcode table: only lengths and the choice among faults are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Decoded {
    packet_class: PacketClass,
    header_bytes: Bits<7>,
    network: NetworkFaults,
    transport: TransportFaults,
    udp_bytes: Bits<16>,
    /// UDP, BTH, extended headers, pad and ICRC: what must fit into `udp_bytes`.
    overhead_bytes: Bits<6>,
    checksum: Bits<20>,
}

/// Takes the field of `WIDTH` bits in network order that starts at a byte of some headers.
#[kernel]
fn field<const HEADERS: usize, const WIDTH: usize>(headers: Bits<HEADERS>, byte: usize) -> Bits<WIDTH> {
    swap_bytes(headers.get_bits::<WIDTH>(8 * byte))
}

/// Takes one 16-bit word of the IPv4 header, wide enough to be added.
#[kernel]
fn word<const WIDTH: usize>(network: Bits<NETWORK_BITS>, index: usize) -> Bits<WIDTH> {
    bit_cast::<WIDTH, 16>(field::<NETWORK_BITS, 16>(network, 2 * index))
}

/// Whether frames to this address carry packets to an IP group (protocol 1.2).
#[kernel]
fn is_ip_group(address: Bits<48>) -> Bit {
    address.get_bits::<24>(24) == 0x01_005e || address.get_bits::<16>(32) == 0x3333
}

/// Takes the tag out of a frame, if it has one.
#[kernel]
fn align(header: Bits<HEADER_BITS>, seen_bytes: Bits<8>) -> Aligned {
    let type_or_tag = field::<HEADER_BITS, 16>(header, 12);
    let vlan_present = type_or_tag == ETHERTYPE_VLAN;
    let ethertype = select(vlan_present, field::<HEADER_BITS, 16>(header, 16), type_or_tag);
    Aligned {
        destination_mac: field::<HEADER_BITS, 48>(header, 0),
        source_mac: field::<HEADER_BITS, 48>(header, 6),
        vlan_present,
        vlan_control: select(vlan_present, field::<HEADER_BITS, 16>(header, 14), bits::<16>(0)),
        is_ipv4: ethertype == ETHERTYPE_IPV4,
        is_ipv6: ethertype == ETHERTYPE_IPV6,
        network: select(
            vlan_present,
            header.get_bits::<NETWORK_BITS>(18 * 8),
            header.get_bits::<NETWORK_BITS>(14 * 8),
        ),
        seen_bytes,
    }
}

/// Names the fields of the headers, all but the payload's length and the end of the extended headers.
#[kernel]
fn token_of(aligned: Aligned, transport: Bits<TRANSPORT_BITS>) -> PacketToken {
    let network = aligned.network;
    let is_ipv6 = aligned.is_ipv6;
    let bth = transport.get_bits::<96>(8 * 8);
    PacketToken {
        destination_mac: aligned.destination_mac,
        source_mac: aligned.source_mac,
        vlan_present: aligned.vlan_present,
        vlan_control: aligned.vlan_control,
        is_ipv6,
        traffic_class: select(
            is_ipv6,
            field::<NETWORK_BITS, 16>(network, 0).get_bits::<8>(4),
            field::<NETWORK_BITS, 8>(network, 1),
        ),
        flow_label: select(is_ipv6, field::<NETWORK_BITS, 24>(network, 1).get_bits::<20>(0), bits::<20>(0)),
        identification: select(is_ipv6, bits::<16>(0), field::<NETWORK_BITS, 16>(network, 4)),
        hop_limit: select(
            is_ipv6,
            field::<NETWORK_BITS, 8>(network, 7),
            field::<NETWORK_BITS, 8>(network, 8),
        ),
        source_address: select(
            is_ipv6,
            field::<NETWORK_BITS, 128>(network, 8),
            cat!(bits::<96>(0xffff), field::<NETWORK_BITS, 32>(network, 12)),
        ),
        destination_address: select(
            is_ipv6,
            field::<NETWORK_BITS, 128>(network, 24),
            cat!(bits::<96>(0xffff), field::<NETWORK_BITS, 32>(network, 16)),
        ),
        source_port: field::<TRANSPORT_BITS, 16>(transport, 0),
        opcode: field::<96, 8>(bth, 0),
        solicited: field::<96, 8>(bth, 1).get_bit(7),
        migrated: field::<96, 8>(bth, 1).get_bit(6),
        partition_key: field::<96, 16>(bth, 2),
        forward_congestion: field::<96, 8>(bth, 4).get_bit(7),
        backward_congestion: field::<96, 8>(bth, 4).get_bit(6),
        destination_qp: field::<96, 24>(bth, 5),
        queue_pair: queue_pair_of(field::<96, 24>(bth, 5)),
        ack_request: field::<96, 8>(bth, 8).get_bit(7),
        psn: field::<96, 24>(bth, 9),
        extended: transport.get_bits::<EXTENDED_BITS>(20 * 8),
        payload_bytes: bits::<13>(0),
        pad_mismatch: false,
        first_cell: bits(0),
    }
}

/// Whether the pad is not the one that completes the payload to a multiple of four bytes. All headers and the ICRC are such multiples,
/// and the payload is what the pad leaves over; so the pad is right exactly if the whole length is a multiple of four.
#[kernel]
fn pad_mismatch(udp_bytes: Bits<16>) -> Bit {
    udp_bytes.get_bits::<2>(0).any()
}

/// Looks for faults up to the IP header.
#[kernel]
fn network_faults(aligned: Aligned, is_ours: Bit) -> NetworkFaults {
    let network = aligned.network;
    let is_ipv6 = aligned.is_ipv6;
    let seen_bytes = aligned.seen_bytes;
    // An Ethernet header of 14 or 18 bytes, and an IP header of 20 or 40.
    let headers_end = match (aligned.vlan_present, is_ipv6) {
        (false, false) => bits::<8>(34),
        (true, false) => bits::<8>(38),
        (false, true) => bits::<8>(54),
        (true, true) => bits::<8>(58),
    };
    let version = network.get_bits::<4>(4);
    let length_is_bad = network.get_bits::<4>(0) != 5 || word::<16>(network, 1) < 20;
    NetworkFaults {
        short_ethernet: seen_bytes < 14 || (aligned.vlan_present && seen_bytes < 18),
        destination_mac: !is_ours,
        source_mac: aligned.source_mac.get_bit(40),
        other_ethertype: !aligned.is_ipv4 && !is_ipv6,
        ip_header: seen_bytes < headers_end || select(is_ipv6, version != 6, version != 4 || length_is_bad),
        // More fragments, or not the first one; "don't fragment" and the reserved bit say nothing.
        ip_fragment: !is_ipv6 && word::<16>(network, 3).get_bits::<14>(0).any(),
        other_protocol: select(
            is_ipv6,
            field::<NETWORK_BITS, 8>(network, 6),
            field::<NETWORK_BITS, 8>(network, 9),
        ) != PROTOCOL_UDP,
    }
}

/// Takes what decides about a packet, but is not part of its token.
#[kernel]
fn fields_of(aligned: Aligned, transport: Bits<TRANSPORT_BITS>, is_ours: Bit) -> Fields {
    let network = aligned.network;
    let is_ipv6 = aligned.is_ipv6;
    let bth_flags = field::<TRANSPORT_BITS, 8>(transport, 9);
    Fields {
        network: network_faults(aligned, is_ours),
        // An IPv4 total length counts the IP header, an IPv6 payload length does not.
        last_byte: match (aligned.vlan_present, is_ipv6) {
            (false, false) => word::<17>(network, 1) + 13,
            (true, false) => word::<17>(network, 1) + 17,
            (false, true) => word::<17>(network, 2) + 53,
            (true, true) => word::<17>(network, 2) + 57,
        },
        ip_payload_bytes: select(is_ipv6, word::<16>(network, 2), word::<16>(network, 1) - 20),
        destination_port: field::<TRANSPORT_BITS, 16>(transport, 2),
        udp_bytes: field::<TRANSPORT_BITS, 16>(transport, 4),
        pad_bytes: bth_flags.get_bits::<2>(4),
        version: bth_flags.get_bits::<4>(0),
        checksum_front: (word::<18>(network, 0) + word::<18>(network, 1))
            + (word::<18>(network, 2) + word::<18>(network, 3)),
        checksum_middle: (word::<18>(network, 4) + word::<18>(network, 5))
            + (word::<18>(network, 6) + word::<18>(network, 7)),
        checksum_back: word::<17>(network, 8) + word::<17>(network, 9),
    }
}

/// Checks the headers after the IP header.
#[kernel]
fn transport_faults(fields: Fields, destination_qp: Bits<24>, is_supported: Bit) -> TransportFaults {
    TransportFaults {
        udp_header: fields.ip_payload_bytes < 8,
        other_port: fields.destination_port != ROCE_PORT,
        udp_length: fields.udp_bytes < TRANSPORT_BYTES_MIN || fields.udp_bytes != fields.ip_payload_bytes,
        bth_version: fields.version != 0,
        unsupported_transport: !is_supported,
        destination_qp: destination_qp == 0,
    }
}

/// Whether the sum of the ten words of an IPv4 header, folded to 16 bits, is all ones.
///
/// The carries are at most 9, so folding once is enough, and that gives all ones just when the low part is all ones
/// but for the carries.
#[kernel]
fn is_all_ones_folded(sum: Bits<20>) -> Bit {
    sum.get_bits::<12>(4).all() && sum.get_bits::<4>(0) == !sum.get_bits::<4>(16)
}

/// Numbers the first of the faults, in the order in which they are counted.
#[kernel]
fn first_fault(
    network: NetworkFaults,
    ip_checksum: Bit,
    transport: TransportFaults,
    header_length: Bit,
) -> Bits<REASON_BITS> {
    if network.short_ethernet {
        bits::<REASON_BITS>(reason::SHORT_ETHERNET)
    } else if network.destination_mac {
        bits::<REASON_BITS>(reason::DESTINATION_MAC)
    } else if network.source_mac {
        bits::<REASON_BITS>(reason::SOURCE_MAC)
    } else if network.other_ethertype {
        bits::<REASON_BITS>(reason::OTHER_ETHERTYPE)
    } else if network.ip_header {
        bits::<REASON_BITS>(reason::IP_HEADER)
    } else if ip_checksum {
        bits::<REASON_BITS>(reason::IP_CHECKSUM)
    } else if network.ip_fragment {
        bits::<REASON_BITS>(reason::IP_FRAGMENT)
    } else if network.other_protocol {
        bits::<REASON_BITS>(reason::OTHER_PROTOCOL)
    } else if transport.udp_header {
        bits::<REASON_BITS>(reason::UDP_HEADER)
    } else if transport.other_port {
        bits::<REASON_BITS>(reason::OTHER_PORT)
    } else if transport.udp_length {
        bits::<REASON_BITS>(reason::UDP_LENGTH)
    } else if transport.bth_version {
        bits::<REASON_BITS>(reason::BTH_VERSION)
    } else if transport.unsupported_transport {
        bits::<REASON_BITS>(reason::UNSUPPORTED_TRANSPORT)
    } else if header_length {
        bits::<REASON_BITS>(reason::HEADER_LENGTH)
    } else if transport.destination_qp {
        bits::<REASON_BITS>(reason::DESTINATION_QP)
    } else {
        bits::<REASON_BITS>(reason::NONE)
    }
}

/// Keeps the extended headers of the opcode and clears the bytes after them.
#[kernel]
fn keep_extended(extended: Bits<EXTENDED_BITS>, dwords: Bits<3>) -> Bits<EXTENDED_BITS> {
    let distance: Bits<8> = cat!(dwords, bits::<5>(0));
    let cleared = !bits::<256>(0) << distance;
    extended & !cleared.get_bits::<EXTENDED_BITS>(0)
}

/// The parser. It knows nothing of beats, and so is the same at every width of the datapath.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct Parse {
    /// The card's own address, the first byte on the wire most significant.
    pub own_mac: Signal<In, Bits<48>>,
    /// Accept any destination address.
    pub promiscuous: Signal<In, Bit>,
    /// Accept the addresses of IP groups: 01:00:5e:* and 33:33:*.
    pub accept_multicast: Signal<In, Bit>,

    /// From `collect`: the first bytes of a frame.
    pub header: ValidRx<Bits<HEADER_BITS>>,
    /// Number of valid bytes in `header`, up to 128.
    pub header_bytes: Signal<In, Bits<8>>,

    /// To the ICRC: what it covers, [`COVERAGE_LATENCY`] cycles later; registered but for the choice of two offsets.
    pub coverage: Signal<Out, Coverage>,
    /// To all others, [`PARSE_LATENCY`] cycles later: the fields; registered.
    pub token: Signal<Out, PacketToken>,
    /// Class, header length and first fault; registered.
    pub headers: ValidTx<ParsedHeaders>,

    opcodes: OpcodeTable,
    aligned: DFF<Aligned>,
    fields: DFF<Fields>,
    /// Complete but for the payload's length; extended headers not yet cut to those of the opcode.
    fields_token: DFF<PacketToken>,
    decoded: DFF<Decoded>,
    decoded_token: DFF<PacketToken>,
    covered: DFF<Coverage>,
    parsed: DFF<ParsedHeaders>,
    parsed_token: DFF<PacketToken>,
    valid: Reg<Bits<4>>,
}

/// Cycles from the header vector to [`Parse::coverage`].
pub const COVERAGE_LATENCY: usize = 3;

/// Cycles from the header vector to [`Parse::headers`].
pub const PARSE_LATENCY: usize = 4;

impl Logic for Parse {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.valid.d.next = cat!(self.valid.q.val().get_bits::<3>(0), self.header.valid.val());

        // Cycle 0: the IP header follows the Ethernet header, with or without a tag.
        self.aligned.d.next = align(self.header.value.val(), self.header_bytes.val());

        // Cycle 1: the headers after an IPv4 header move to their position after an IPv6 header.
        let aligned = self.aligned.q.val();
        let transport = select(
            aligned.is_ipv6,
            aligned.network.get_bits::<TRANSPORT_BITS>(40 * 8),
            aligned.network.get_bits::<TRANSPORT_BITS>(20 * 8),
        );
        let is_ours = aligned.destination_mac == self.own_mac.val()
            || self.promiscuous.val()
            || (self.accept_multicast.val() && is_ip_group(aligned.destination_mac));
        self.fields_token.d.next = token_of(aligned, transport);
        self.fields.d.next = fields_of(aligned, transport, is_ours);

        // Cycle 2: the opcode says how long the extended headers are.
        let fields = self.fields.q.val();
        let token = self.fields_token.q.val();
        self.opcodes.opcode.next = token.opcode;
        let extended_dwords = self.opcodes.extended_dwords.val();
        let extended_bytes: Bits<5> = cat!(extended_dwords, bits::<2>(0));
        self.covered.d.next = Coverage {
            vlan_present: token.vlan_present,
            is_ipv6: token.is_ipv6,
            last_byte: select(
                fields.last_byte.get_bits::<4>(13).any(),
                bits::<13>(0x1fff),
                fields.last_byte.get_bits::<13>(0),
            ),
        };
        self.decoded_token.d.next = token;
        self.decoded_token.d.next.extended = keep_extended(token.extended, extended_dwords);
        self.decoded.d.next = Decoded {
            packet_class: self.opcodes.packet_class.val(),
            header_bytes: bit_cast::<7, 5>(extended_bytes)
                + match (token.vlan_present, token.is_ipv6) {
                    (false, false) => bits::<7>(54),
                    (true, false) => bits::<7>(58),
                    (false, true) => bits::<7>(74),
                    (true, true) => bits::<7>(78),
                },
            network: fields.network,
            transport: transport_faults(fields, token.destination_qp, self.opcodes.is_supported.val()),
            udp_bytes: fields.udp_bytes,
            overhead_bytes: bit_cast::<6, 5>(extended_bytes)
                + bit_cast::<6, 2>(fields.pad_bytes)
                + TRANSPORT_BYTES_MIN,
            checksum: bit_cast::<20, 18>(fields.checksum_front)
                + bit_cast::<20, 18>(fields.checksum_middle)
                + bit_cast::<20, 17>(fields.checksum_back),
        };

        // Cycle 3: what remains of the UDP length is payload, unless it is negative.
        let decoded = self.decoded.q.val();
        let token = self.decoded_token.q.val();
        let payload_bytes = bit_cast::<17, 16>(decoded.udp_bytes) - bit_cast::<17, 6>(decoded.overhead_bytes);
        self.parsed_token.d.next = token;
        self.parsed_token.d.next.payload_bytes = payload_bytes.get_bits::<13>(0);
        self.parsed_token.d.next.pad_mismatch = pad_mismatch(decoded.udp_bytes);
        self.parsed.d.next = ParsedHeaders {
            packet_class: decoded.packet_class,
            header_bytes: decoded.header_bytes,
            fault: first_fault(
                decoded.network,
                !token.is_ipv6 && !is_all_ones_folded(decoded.checksum),
                decoded.transport,
                payload_bytes.get_bit(16),
            ),
        };

        self.coverage.next = self.covered.q.val();
        self.token.next = self.parsed_token.q.val();
        self.headers.offer(self.valid.q.val().get_bit(3), self.parsed.q.val());
    }
}

#[cfg(test)]
mod tests;
