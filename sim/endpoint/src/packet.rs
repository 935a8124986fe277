//! Packets as their headers' fields, and the frames made of them.

use rnic_layout::path::Gid;
use rnic_layout::wire::ip::HOP_LIMIT_DEFAULT;
use rnic_layout::wire::{
    BthRepr, EthernetRepr, Extended, ExtendedRepr, IpRepr, Ipv4Packet, Ipv4Repr, Ipv6Repr, MacAddress,
    PacketRepr, UdpRepr, VlanTag, bth, ethernet, icrc, udp,
};
use rnic_layout::{limits, path};

/// Addresses and IP fields of a connection, and the check of incoming packets against them (protocol 1.2 and 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Own Ethernet address.
    pub local_mac: MacAddress,
    /// Ethernet address of the peer, or of the router.
    pub remote_mac: MacAddress,
    /// VLAN tag of all frames that are sent. The tag of received frames is not checked.
    pub vlan: Option<VlanTag>,
    /// Own GID. It is IPv4 if and only if [`remote`](Self::remote) is.
    pub local: Gid,
    /// GID of the peer.
    pub remote: Gid,
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// UDP source port, constant for a queue pair.
    pub source_port: u16,
}

impl Path {
    /// Makes an untagged path with the usual values.
    pub fn new(local_mac: MacAddress, local: Gid, remote_mac: MacAddress, remote: Gid) -> Self {
        Self {
            local_mac,
            remote_mac,
            vlan: None,
            local,
            remote,
            traffic_class: 0,
            hop_limit: HOP_LIMIT_DEFAULT,
            flow_label: 0,
            source_port: path::SOURCE_PORT_BASE,
        }
    }

    /// The same path in the view of the peer.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            local_mac: self.remote_mac,
            remote_mac: self.local_mac,
            local: self.remote,
            remote: self.local,
            ..self
        }
    }

    /// Returns whether a packet comes from the peer and is addressed to this end, in the same IP version.
    pub fn admits(&self, ip: &IpRepr) -> bool {
        matches!(ip, IpRepr::V4(_)) == self.remote.to_ipv4().is_some()
            && ip.source() == self.remote
            && ip.destination() == self.local
    }

    fn ethernet(&self) -> EthernetRepr {
        let ethertype = match self.remote.to_ipv4() {
            Some(_) => ethernet::ETHERTYPE_IPV4,
            None => ethernet::ETHERTYPE_IPV6,
        };
        EthernetRepr { destination: self.remote_mac, source: self.local_mac, vlan: self.vlan, ethertype }
    }

    fn ip(&self, identification: u16) -> IpRepr {
        let (traffic_class, hop_limit) = (self.traffic_class, self.hop_limit);
        match (self.local.to_ipv4(), self.remote.to_ipv4()) {
            (Some(source), Some(destination)) => IpRepr::V4(Ipv4Repr {
                traffic_class,
                identification,
                reserved_flag: false,
                dont_fragment: true,
                hop_limit,
                source,
                destination,
            }),
            _ => IpRepr::V6(Ipv6Repr {
                traffic_class,
                flow_label: self.flow_label,
                hop_limit,
                source: self.local.to_ipv6(),
                destination: self.remote.to_ipv6(),
            }),
        }
    }
}

/// A packet to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// BTH. The pad count is set when the frame is made.
    pub bth: BthRepr,
    /// Extended headers in wire order; must be those of the opcode.
    pub extended: Vec<ExtendedRepr>,
    /// Payload without pad.
    pub payload: Vec<u8>,
}

impl Packet {
    /// Makes a packet.
    pub fn new(bth: BthRepr, extended: Vec<ExtendedRepr>, payload: Vec<u8>) -> Self {
        Self { bth, extended, payload }
    }

    /// Makes the frame.
    ///
    /// # Panics
    ///
    /// If the extended headers are not those of the opcode, or the frame is too long.
    pub fn frame(&self, path: &Path, identification: u16) -> Vec<u8> {
        let extended = Extended::from_headers(&self.extended).expect("no opcode has more headers");
        let packet = PacketRepr {
            ethernet: path.ethernet(),
            ip: path.ip(identification),
            udp: UdpRepr { source_port: path.source_port, checksum: 0 },
            bth: BthRepr { pad_count: bth::pad_count(self.payload.len()), ..self.bth },
            extended,
            payload: &self.payload,
            pad: [0; 3],
        };
        let mut frame = vec![0; limits::FRAME_BYTES_MAX];
        let length = packet.emit(&mut frame).expect("headers are those of the opcode, and the frame fits");
        frame.truncate(length);
        frame
    }
}

/// Offsets of the headers in a well-formed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) ip: usize,
    pub(super) is_ipv4: bool,
    pub(super) udp: usize,
    pub(super) bth: usize,
}

impl Places {
    /// Finds the headers of a frame that was well-formed when it was made.
    pub(super) fn of(frame: &[u8]) -> Self {
        let header = EthernetRepr::parse(frame).expect("a frame that we made has a header");
        let ip = header.buffer_len();
        let is_ipv4 = header.ethertype == ethernet::ETHERTYPE_IPV4;
        let ip_bytes =
            if is_ipv4 { rnic_layout::wire::ip::ipv4::BYTES } else { rnic_layout::wire::ip::ipv6::BYTES };
        let udp = ip + ip_bytes;
        Self { ip, is_ipv4, udp, bth: udp + udp::fields::BYTES }
    }
}

/// Corrects IPv4 checksum and ICRC of a changed frame. The ICRC is at the end of the frame.
pub(super) fn seal(frame: &mut [u8], places: Places) {
    if places.is_ipv4 {
        Ipv4Packet::new_unchecked(&mut frame[places.ip..]).fill_checksum();
    }
    let (covered, check) = frame[places.ip..].split_last_chunk_mut::<{ icrc::BYTES }>().expect("it has one");
    *check = icrc::compute(covered);
}
