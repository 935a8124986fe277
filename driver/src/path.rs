//! Paths to peers.

use rnic_layout::path::{Gid, flow_label};

/// Path to a peer: the fields of the Ethernet, VLAN and IP headers. The caller resolves it; the driver consults no neighbour
/// or routing table (protocol 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// IP address of the peer. An IPv4 address is written `::ffff:a.b.c.d`, and selects IPv4 packets.
    pub destination: Gid,
    /// MAC address of the peer, or of the next router.
    pub destination_mac: [u8; 6],
    /// Index of the source address in [`Options::addresses`](crate::Options::addresses).
    pub source_index: u8,
    /// Tag control information (PCP, DEI, VID) of the 802.1Q tag, or `None` for untagged frames.
    pub vlan: Option<u16>,
    /// IPv6 traffic class, or IPv4 type of service: the DSCP in the six high bits. The two low ones, ECN, are ignored; the card sets
    /// them itself (protocol 1.2).
    pub traffic_class: u8,
    /// IPv6 hop limit, or IPv4 time to live.
    pub hop_limit: u8,
    /// Flow label, 20 bits. The UDP source port is derived from it, so it selects among equal-cost paths. Zero: each queue pair has
    /// one of its own, made from its QPN and that of its peer (protocol 1.2).
    pub flow_label: u32,
}

impl Path {
    /// Path from the first source address, untagged, with a hop limit of 64; traffic class and flow label are zero.
    pub const fn new(destination: Gid, destination_mac: [u8; 6]) -> Self {
        Self {
            destination,
            destination_mac,
            source_index: 0,
            vlan: None,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
        }
    }

    /// The path as a queue pair uses it: if it has no flow label, one that is made from the QPNs.
    pub(crate) fn between(self, local_qp: u32, remote_qp: u32) -> Self {
        let made = flow_label(local_qp, remote_qp);
        Self { flow_label: if self.flow_label == 0 { made } else { self.flow_label }, ..self }
    }
}
