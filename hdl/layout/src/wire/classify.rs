//! The checks that decide whether the card accepts a frame (protocol 8.3).
//!
//! This is the reference for the packet path in hardware, which is written independently after the same table. The checks go from
//! the outermost header to the innermost, so that each can rely on those before it. The first check that fails gives the reason:
//! every dropped frame is counted exactly once.

use core::fmt;

use super::bth::{self, BthPacket, BthRepr};
use super::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, EthernetRepr, MacAddress};
use super::extended::Extended;
use super::header::Error;
use super::ip::{IpRepr, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, PROTOCOL_UDP, ipv6};
use super::packet::PacketRepr;
use super::udp::{UdpPacket, UdpRepr};
use super::{icrc, udp};
use crate::limits::FRAME_BYTES_MAX;
use crate::opcode;

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Reason for which a frame is dropped, in the order of the checks. The first that applies is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl DropReason {
            /// Every reason, in the order of the checks.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Returns the name of the counter.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

drop_reasons! {
    /// The MAC marked the frame as bad: wrong FCS, or truncated (protocol 8.3).
    MacError = "mac_error",
    /// The frame has more than 4224 bytes (protocol 1.1).
    TooLong = "too_long",
    /// The frame has less than 14 bytes, or less than 18 with a VLAN tag (protocol 1.1).
    ShortEthernet = "short_ethernet",
    /// The filter refuses the destination MAC address (protocol 1.2).
    DestinationMac = "destination_mac",
    /// The source MAC address is a group address (protocol 8.3).
    SourceMac = "source_mac",
    /// The EtherType, after the VLAN tag if there is one, is neither IPv4 nor IPv6 (protocol 1.1).
    OtherEthertype = "other_ethertype",
    /// The IP header is truncated, has a wrong version or options, or an IPv4 total length below 20 (protocol 8.3).
    IpHeader = "ip_header",
    /// The IP length exceeds the frame (protocol 1.1).
    IpLength = "ip_length",
    /// The IPv4 header checksum is wrong (protocol 1.2).
    IpChecksum = "ip_checksum",
    /// The IPv4 packet is a fragment: more follow, or its offset is not zero (protocol 1.2).
    IpFragment = "ip_fragment",
    /// The IPv4 protocol or IPv6 next header is not UDP; IPv6 extension headers are not followed (protocol 1.2).
    OtherProtocol = "other_protocol",
    /// The IP payload is shorter than the 8 bytes of a UDP header (protocol 8.3).
    UdpHeader = "udp_header",
    /// The UDP destination port is not 4791 (protocol 1.2).
    OtherPort = "other_port",
    /// The UDP length is below 24, or is not the length of the IP payload (protocol 1.1 and 8.3).
    UdpLength = "udp_length",
    /// The ICRC is wrong (protocol 1.8).
    Icrc = "icrc",
    /// The BTH's version is not 0 (protocol 1.3).
    BthVersion = "bth_version",
    /// The transport of the opcode is not supported, or the opcode is unassigned in UC, UD or CNP. Unassigned RC opcodes pass, since
    /// the responder must answer them with a NAK (protocol 1.4 and 8.3).
    UnsupportedTransport = "unsupported_transport",
    /// The packet is too short for the extended headers of its opcode, the pad and the ICRC (protocol 1.1).
    HeaderLength = "header_length",
    /// The destination QP is 0 (protocol 1.3).
    DestinationQp = "destination_qp",
    /// The packet is good, but the receive buffer had no room.
    BufferFull = "buffer_full",
    /// The packet is good and there is room, but its queue pair has its share of the receive buffer.
    BufferShare = "buffer_share",
}

impl DropReason {
    /// The reasons for which a good packet is dropped. Only hardware drops for them, never [`classify`].
    pub const WITHOUT_ROOM: [Self; 2] = [Self::BufferFull, Self::BufferShare];

    /// Returns whether the packet was good.
    pub fn is_without_room(self) -> bool {
        Self::WITHOUT_ROOM.contains(&self)
    }

    /// Returns the index in [`ALL`](Self::ALL), which is also the index of the counter.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for DropReason {}

/// Filter of destination MAC addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// MAC address of the port.
    pub own_mac: MacAddress,
    /// Accepts every address.
    pub promiscuous: bool,
    /// Accepts addresses of IP multicast groups: 01:00:5E:* and 33:33:*, but not broadcast.
    pub accept_multicast: bool,
}

impl Filter {
    /// The filter that accepts every address.
    pub const PROMISCUOUS: Self =
        Self { own_mac: MacAddress([0; 6]), promiscuous: true, accept_multicast: true };

    /// Returns whether the card accepts frames to this address.
    pub fn accepts(&self, destination: MacAddress) -> bool {
        self.promiscuous
            || destination == self.own_mac
            || self.accept_multicast && destination.is_ip_multicast()
    }
}

/// Refusal of a frame: the reason that is counted, and the error that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Reason that is counted.
    pub reason: DropReason,
    /// Field, its value, and the allowed values.
    pub error: Error,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.error)
    }
}

impl core::error::Error for Refusal {}

/// Attaches the drop reason to a failed check.
trait Because<T> {
    fn because(self, reason: DropReason) -> Result<T, Refusal>;
}

impl<T> Because<T> for Result<T, Error> {
    fn because(self, reason: DropReason) -> Result<T, Refusal> {
        self.map_err(|error| Refusal { reason, error })
    }
}

/// Classifies a frame as the packet path does, and returns the parsed packet.
///
/// `mac_error` is the error mark of the MAC on the last beat of the frame.
///
/// # Errors
///
/// The first [`DropReason`] that applies.
pub fn classify<'a>(frame: &'a [u8], mac_error: bool, filter: &Filter) -> Result<PacketRepr<'a>, DropReason> {
    explain(frame, mac_error, filter).map_err(|refusal| refusal.reason)
}

/// Classifies a frame like [`classify`], with a detailed error.
///
/// # Errors
///
/// A [`Refusal`] with the first [`DropReason`] that applies and the error found.
pub fn explain<'a>(frame: &'a [u8], mac_error: bool, filter: &Filter) -> Result<PacketRepr<'a>, Refusal> {
    if mac_error {
        let error = Error::Field { header: "frame", field: "mac_error", found: 1, allowed: "0" };
        return Err(Refusal { reason: DropReason::MacError, error });
    }
    dissect(frame, Some(filter))
}

/// Parses a frame from the outermost header to the innermost. With a filter it makes all checks of the card; without one it skips
/// those that parsing does not need: addresses, ICRC and destination QP.
pub(super) fn dissect<'a>(frame: &'a [u8], filter: Option<&Filter>) -> Result<PacketRepr<'a>, Refusal> {
    check_length(frame).because(DropReason::TooLong)?;
    let ethernet = EthernetRepr::parse(frame).because(DropReason::ShortEthernet)?;
    if let Some(filter) = filter {
        check_destination(&ethernet, filter).because(DropReason::DestinationMac)?;
        check_source(&ethernet).because(DropReason::SourceMac)?;
    }

    let packet = &frame[ethernet.buffer_len()..];
    let (ip, packet, protocol) = match ethernet.ethertype {
        ETHERTYPE_IPV4 => dissect_ipv4(packet)?,
        ETHERTYPE_IPV6 => dissect_ipv6(packet)?,
        other => {
            let allowed = "0x0800 (IPv4) or 0x86dd (IPv6)";
            let error = Error::Field { header: "Ethernet", field: "ethertype", found: other.into(), allowed };
            return Err(Refusal { reason: DropReason::OtherEthertype, error });
        }
    };
    check_protocol(protocol).because(DropReason::OtherProtocol)?;

    // From here on `packet` is the IP packet, from its header to the end given by its length.
    let datagram = &packet[ip.buffer_len()..];
    let header = UdpPacket::new_checked(datagram).because(DropReason::UdpHeader)?;
    header.check_port().because(DropReason::OtherPort)?;
    header.check_length(datagram.len()).because(DropReason::UdpLength)?;
    let udp = UdpRepr::parse(&header);
    if filter.is_some() {
        check_icrc(packet).because(DropReason::Icrc)?;
    }

    // The smallest UDP length guarantees that BTH and ICRC are present.
    let message = &datagram[udp::fields::BYTES..datagram.len() - icrc::BYTES];
    let header = BthPacket::new_unchecked(message);
    header.check_version().because(DropReason::BthVersion)?;
    let bth = BthRepr::parse(&header);
    check_opcode(bth.opcode).because(DropReason::UnsupportedTransport)?;

    let body = &message[bth::fields::BYTES..];
    let extended = Extended::parse(bth.opcode, body).because(DropReason::HeaderLength)?;
    let body = &body[extended.as_bytes().len()..];
    let (payload, pad) = split_pad(body, bth.pad_count).because(DropReason::HeaderLength)?;
    if filter.is_some() {
        header.check_destination().because(DropReason::DestinationQp)?;
    }
    Ok(PacketRepr { ethernet, ip, udp, bth, extended, payload, pad })
}

/// Parsed IP header, the packet from that header on without the pad of Ethernet, and the protocol that follows.
type IpDissected<'a> = (IpRepr, &'a [u8], u8);

fn dissect_ipv4(rest: &[u8]) -> Result<IpDissected<'_>, Refusal> {
    let header = Ipv4Packet::new_checked(rest).because(DropReason::IpHeader)?;
    header.check_header().because(DropReason::IpHeader)?;
    header.check_length(rest.len()).because(DropReason::IpLength)?;
    header.check_checksum().because(DropReason::IpChecksum)?;
    header.check_fragment().because(DropReason::IpFragment)?;
    let packet = &rest[..usize::from(header.total_length())];
    Ok((IpRepr::V4(Ipv4Repr::parse(&header)), packet, header.protocol()))
}

fn dissect_ipv6(rest: &[u8]) -> Result<IpDissected<'_>, Refusal> {
    let header = Ipv6Packet::new_checked(rest).because(DropReason::IpHeader)?;
    header.check_header().because(DropReason::IpHeader)?;
    header.check_length(rest.len()).because(DropReason::IpLength)?;
    let packet = &rest[..ipv6::BYTES + usize::from(header.payload_length())];
    Ok((IpRepr::V6(Ipv6Repr::parse(&header)), packet, header.next_header()))
}

fn check_length(frame: &[u8]) -> Result<(), Error> {
    if frame.len() > FRAME_BYTES_MAX {
        return Err(Error::Length {
            header: "frame",
            field: "length",
            found_bytes: frame.len(),
            least_bytes: 0,
            most_bytes: FRAME_BYTES_MAX,
        });
    }
    Ok(())
}

fn check_destination(ethernet: &EthernetRepr, filter: &Filter) -> Result<(), Error> {
    if !filter.accepts(ethernet.destination) {
        let found = mac_number(ethernet.destination);
        let allowed = "an address that the filter accepts";
        return Err(Error::Field { header: "Ethernet", field: "destination", found, allowed });
    }
    Ok(())
}

fn check_source(ethernet: &EthernetRepr) -> Result<(), Error> {
    if ethernet.source.is_multicast() {
        let found = mac_number(ethernet.source);
        return Err(Error::Field { header: "Ethernet", field: "source", found, allowed: "not a group" });
    }
    Ok(())
}

fn mac_number(mac: MacAddress) -> u64 {
    super::header::Value::into_bits(mac) as u64
}

fn check_protocol(protocol: u8) -> Result<(), Error> {
    if protocol != PROTOCOL_UDP {
        let allowed = "0x11 (UDP)";
        return Err(Error::Field { header: "IP", field: "protocol", found: protocol.into(), allowed });
    }
    Ok(())
}

fn check_icrc(packet: &[u8]) -> Result<(), Error> {
    if !icrc::agrees(packet) {
        let (_, check) = packet.split_at(packet.len() - icrc::BYTES);
        let found = check.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        return Err(Error::Field { header: "packet", field: "ICRC", found, allowed: "the packet's CRC" });
    }
    Ok(())
}

fn check_opcode(opcode: u8) -> Result<(), Error> {
    if opcode::class(opcode).is_none() {
        let allowed = "any of RC, an assigned one of UC or UD, or 0x81 (CNP)";
        return Err(Error::Field { header: "BTH", field: "opcode", found: opcode.into(), allowed });
    }
    Ok(())
}

/// Splits payload and pad.
fn split_pad(body: &[u8], pad_count: u8) -> Result<(&[u8], [u8; 3]), Error> {
    let pad_bytes = usize::from(pad_count);
    let Some(payload_bytes) = body.len().checked_sub(pad_bytes) else {
        let header = "pad";
        return Err(Error::Truncated { header, found_bytes: body.len(), needed_bytes: pad_bytes });
    };
    let (payload, found) = body.split_at(payload_bytes);
    let mut pad = [0; 3];
    pad[..pad_bytes].copy_from_slice(found);
    Ok((payload, pad))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::{COUNTERS, DROP_COUNTERS};

    #[test]
    fn every_reason_has_the_counter_of_its_name_in_its_place() {
        assert_eq!(DropReason::ALL.len(), DROP_COUNTERS);
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert_eq!(COUNTERS[index].name, reason.name());
        }
    }
}
