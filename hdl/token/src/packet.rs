//! The token: everything that the headers of one RoCEv2 packet say, without its payload.
use rnic_kernel::prelude::*;

/// Bits of the extended headers that a token carries: the longest chain is AtomicETH, 28 bytes (protocol 1.4).
pub const EXTENDED_BITS: usize = 28 * 8;

/// The headers of one packet, as fields (protocol 1.1 to 1.5).
///
/// Numbers stand as integers: the first byte on the wire is the most significant. `extended` alone keeps wire order:
/// its first byte stands in bits 7:0.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PacketToken {
    /// Ethernet destination address.
    pub destination_mac: Bits<48>,
    /// Ethernet source address.
    pub source_mac: Bits<48>,
    /// An 802.1Q tag is present.
    pub vlan_present: Bit,
    /// Its tag control information: PCP, DEI, VID. Zero without a tag.
    pub vlan_control: Bits<16>,
    /// IPv6 if 1, IPv4 if 0.
    pub is_ipv6: Bit,
    /// IPv4 type of service or IPv6 traffic class: DSCP and ECN.
    pub traffic_class: Bits<8>,
    /// IPv6 only, else zero.
    pub flow_label: Bits<20>,
    /// IPv4 only, else zero.
    pub identification: Bits<16>,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: Bits<8>,
    /// As a GID: an IPv4 address a.b.c.d stands as ::ffff:a.b.c.d (protocol 1.2).
    pub source_address: Bits<128>,
    /// As a GID.
    pub destination_address: Bits<128>,
    /// UDP source port.
    pub source_port: Bits<16>,
    /// BTH: operation.
    pub opcode: Bits<8>,
    /// BTH: SE.
    pub solicited: Bit,
    /// BTH: MigReq.
    pub migrated: Bit,
    /// BTH: P_Key.
    pub partition_key: Bits<16>,
    /// BTH: FECN.
    pub forward_congestion: Bit,
    /// BTH: BECN.
    pub backward_congestion: Bit,
    /// BTH: destination queue pair.
    pub destination_qp: Bits<24>,
    /// BTH: AckReq.
    pub ack_request: Bit,
    /// BTH: packet sequence number.
    pub psn: Bits<24>,
    /// The extended headers that the opcode calls for, in wire order; bits beyond them are zero.
    pub extended: Bits<EXTENDED_BITS>,
    /// Bytes of payload, without pad.
    pub payload_bytes: Bits<13>,
}
