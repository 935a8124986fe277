//! The packet token: all headers of one RoCEv2 packet as fields, without its payload.
use crate::sizes::{CELL_BITS, QUEUE_PAIR_BITS};
use rnic_kernel::prelude::*;

/// Bits of the extended headers that a token carries: the longest chain is AtomicETH, 28 bytes (protocol 1.4).
pub const EXTENDED_BITS: usize = 28 * 8;

/// The headers of one packet, as fields (protocol 1.1 to 1.5).
///
/// Numbers are integers: the first byte on the wire is the most significant. Only `extended` is in wire order:
/// its first byte is in bits 7:0.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PacketToken {
    /// Destination MAC address.
    pub destination_mac: Bits<48>,
    /// Source MAC address.
    pub source_mac: Bits<48>,
    /// An 802.1Q tag is present.
    pub vlan_present: Bit,
    /// Tag control information of the 802.1Q tag: PCP, DEI, VID. Zero without a tag.
    pub vlan_control: Bits<16>,
    /// 1: IPv6. 0: IPv4.
    pub is_ipv6: Bit,
    /// IPv4 type of service or IPv6 traffic class: DSCP and ECN.
    pub traffic_class: Bits<8>,
    /// IPv6 flow label; zero for IPv4.
    pub flow_label: Bits<20>,
    /// IPv4 identification; zero for IPv6.
    pub identification: Bits<16>,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: Bits<8>,
    /// Source address as a GID: an IPv4 address a.b.c.d is ::ffff:a.b.c.d (protocol 1.2).
    pub source_address: Bits<128>,
    /// Destination address as a GID.
    pub destination_address: Bits<128>,
    /// UDP source port.
    pub source_port: Bits<16>,
    /// BTH: opcode.
    pub opcode: Bits<8>,
    /// BTH: SE, solicited event.
    pub solicited: Bit,
    /// BTH: MigReq, migration state.
    pub migrated: Bit,
    /// BTH: P_Key.
    pub partition_key: Bits<16>,
    /// BTH: FECN.
    pub forward_congestion: Bit,
    /// BTH: BECN.
    pub backward_congestion: Bit,
    /// BTH: destination QPN.
    pub destination_qp: Bits<24>,
    /// Received: slot of the queue pair that the QPN may name ([`queue_pair_of`](crate::sizes::queue_pair_of)). Sent: ignored.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// BTH: AckReq, the responder must acknowledge.
    pub ack_request: Bit,
    /// BTH: PSN.
    pub psn: Bits<24>,
    /// Extended headers of the opcode, in wire order; the bits after them are zero.
    pub extended: Bits<EXTENDED_BITS>,
    /// Length of the payload in bytes, without pad.
    pub payload_bytes: Bits<13>,
    /// Received: PadCnt is not the pad that this payload needs (protocol 3.6 row 8). Sent: ignored, the pad is right.
    pub pad_mismatch: Bit,
    /// Received request with payload: first cell of its payload in the request buffer. Else ignored.
    pub first_cell: Bits<CELL_BITS>,
}

/// Says whether a packet with P_Key `packet` is of the partition of a queue pair with P_Key `own`: the low 15 bits are equal
/// and not zero, and at least one side is a full member (protocol 4.3).
#[kernel]
pub fn partition_keys_match(packet: Bits<16>, own: Bits<16>) -> Bit {
    let partition = own.get_bits::<15>(0);
    packet.get_bits::<15>(0) == partition && partition.any() && (packet.get_bit(15) || own.get_bit(15))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::fields_of;
    use rnic_layout::limits;
    use rnic_layout::wire::header::Field;
    use rnic_layout::wire::{bth, ethernet, ip, udp};

    /// The fields of the token in its order, with the fields of the tables that they mirror, and the names they
    /// have there.
    const MIRRORED: [(&str, &[(&str, Field)]); 21] = [
        ("destination_mac", &[("destination", ethernet::fields::DESTINATION)]),
        ("source_mac", &[("source", ethernet::fields::SOURCE)]),
        (
            "vlan_control",
            &[
                ("priority", ethernet::vlan::PRIORITY),
                ("drop_eligible", ethernet::vlan::DROP_ELIGIBLE),
                ("identifier", ethernet::vlan::IDENTIFIER),
            ],
        ),
        ("traffic_class", &[("traffic_class", ip::ipv6::TRAFFIC_CLASS)]),
        ("traffic_class", &[("traffic_class", ip::ipv4::TRAFFIC_CLASS)]),
        ("flow_label", &[("flow_label", ip::ipv6::FLOW_LABEL)]),
        ("identification", &[("identification", ip::ipv4::IDENTIFICATION)]),
        ("hop_limit", &[("hop_limit", ip::ipv6::HOP_LIMIT)]),
        ("hop_limit", &[("hop_limit", ip::ipv4::HOP_LIMIT)]),
        ("source_address", &[("source", ip::ipv6::SOURCE)]),
        ("destination_address", &[("destination", ip::ipv6::DESTINATION)]),
        ("source_port", &[("source_port", udp::fields::SOURCE_PORT)]),
        ("opcode", &[("opcode", bth::fields::OPCODE)]),
        ("solicited", &[("solicited", bth::fields::SOLICITED)]),
        ("migrated", &[("migrated", bth::fields::MIGRATED)]),
        ("partition_key", &[("partition_key", bth::fields::PARTITION_KEY)]),
        ("forward_congestion", &[("forward_congestion", bth::fields::FORWARD_CONGESTION)]),
        ("backward_congestion", &[("backward_congestion", bth::fields::BACKWARD_CONGESTION)]),
        ("destination_qp", &[("destination_qp", bth::fields::DESTINATION_QP)]),
        ("ack_request", &[("ack_request", bth::fields::ACK_REQUEST)]),
        ("psn", &[("psn", bth::fields::PSN)]),
    ];

    /// Fields that the card adds; no header has them.
    const OWN: [&str; 7] =
        ["vlan_present", "is_ipv6", "queue_pair", "extended", "payload_bytes", "pad_mismatch", "first_cell"];

    #[test]
    fn partition_keys_match_by_membership() {
        for (packet, own, expected) in [
            (0xffff, 0xffff, true),
            (0xffff, 0x7fff, true),
            (0x7fff, 0xffff, true),
            (0x7fff, 0x7fff, false),
            (0x8001, 0x0001, true),
            (0x8001, 0x8002, false),
            (0x0001, 0x8003, false),
            (0x8000, 0x8000, false),
            (0x0000, 0x8000, false),
        ] {
            assert_eq!(
                partition_keys_match(bits(packet), bits(own)),
                expected,
                "{packet:#06x} to {own:#06x}"
            );
        }
    }

    #[test]
    fn the_token_has_the_names_order_and_widths_of_the_wire_tables() {
        let fields = fields_of::<PacketToken>();
        let mut mirrored = MIRRORED.map(|(name, _)| name).to_vec();
        mirrored.dedup();
        let mine: Vec<_> =
            fields.iter().map(|field| field.0.as_str()).filter(|name| !OWN.contains(name)).collect();
        assert_eq!(mine, mirrored, "every field is mirrored, in the order of the wire");
        for (name, parts) in MIRRORED {
            let width = fields.iter().find(|field| field.0 == name).expect("it was found above").1;
            assert_eq!(width, parts.iter().map(|(_, field)| field.width).sum::<usize>(), "width of {name}");
            for (named, field) in parts {
                assert_eq!(*named, field.name, "what {name} mirrors");
            }
        }
    }

    #[test]
    fn the_own_fields_hold_what_the_limits_allow() {
        let fields = fields_of::<PacketToken>();
        let width = |name| fields.iter().find(|field| field.0 == name).expect("the token has it").1;
        assert_eq!(width("extended"), 8 * limits::EXTENDED_BYTES_MAX);
        assert!(limits::PAYLOAD_BYTES_MAX < 1 << width("payload_bytes"));
        assert_eq!((width("vlan_present"), width("is_ipv6"), width("pad_mismatch")), (1, 1, 1));
        assert_eq!(fields.len() - OWN.len(), 19);
    }
}
