//! Whether the card takes a frame, and why not (protocol 8.3).
//!
//! This is the reference for the packet path in hardware, which is written apart from it after the same
//! table. Checks go from the outside of the frame to the inside, so that each may trust what those before it
//! have proven, and the first that fails gives the reason: every frame that is not taken moves exactly one counter.

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
        /// Why a frame was not taken. The order is that of the checks: the first that fails counts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl DropReason {
            /// Every reason, in the order of the checks.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Returns the name that registers and tables use.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

drop_reasons! {
    /// The MAC marked the frame: wrong FCS, or cut off (protocol 8.3).
    MacError = "mac_error",
    /// The frame has more than 4224 bytes (protocol 1.1).
    TooLong = "too_long",
    /// The frame has less than 14 bytes, or less than 18 with a VLAN tag (protocol 1.1).
    ShortEthernet = "short_ethernet",
    /// The destination is not the card's own address, and neither does the filter let it pass (protocol 1.2).
    DestinationMac = "destination_mac",
    /// The source address is a group's (protocol 8.3).
    SourceMac = "source_mac",
    /// The EtherType, behind the VLAN tag if there is one, is neither IPv4 nor IPv6 (protocol 1.1).
    OtherEthertype = "other_ethertype",
    /// The IP header is cut off, has the wrong version or options, or an IPv4 total length below 20 (protocol 8.3).
    IpHeader = "ip_header",
    /// The IP packet goes on beyond the end of the frame (protocol 1.1).
    IpLength = "ip_length",
    /// The IPv4 header does not sum to 0xFFFF (protocol 1.2).
    IpChecksum = "ip_checksum",
    /// The IPv4 packet is a fragment: more follow, or its offset is not zero (protocol 1.2).
    IpFragment = "ip_fragment",
    /// The IPv4 protocol or IPv6 next header is not UDP; IPv6 extension headers are not followed (protocol 1.2).
    OtherProtocol = "other_protocol",
    /// The IP packet has less than the 8 bytes of a UDP header in it (protocol 8.3).
    UdpHeader = "udp_header",
    /// The UDP destination port is not 4791 (protocol 1.2).
    OtherPort = "other_port",
    /// The UDP length is below 24, or not that of the IP payload (protocol 1.1 and 8.3).
    UdpLength = "udp_length",
    /// The ICRC does not agree with the packet (protocol 1.8).
    Icrc = "icrc",
    /// The BTH's version is not 0 (protocol 1.3).
    BthVersion = "bth_version",
    /// The opcode belongs to a transport that the card does not have, or is unassigned in UC, UD or CNP.
    /// Unassigned RC opcodes pass, since the responder must refuse them aloud (protocol 1.4 and 8.3).
    UnsupportedTransport = "unsupported_transport",
    /// The packet has no room for the extended headers of its opcode, its pad and the ICRC (protocol 1.1).
    HeaderLength = "header_length",
    /// The destination QP is 0 (protocol 1.3).
    DestinationQp = "destination_qp",
    /// The packet is good, but the packet buffer had no room. Only hardware drops for it, never [`classify`].
    BufferFull = "buffer_full",
}

impl DropReason {
    /// Returns the place in [`ALL`](Self::ALL).
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

/// Which destination addresses the card takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The card's own address.
    pub own_mac: MacAddress,
    /// Takes every address.
    pub promiscuous: bool,
    /// Takes addresses of IP groups: 01:00:5E:* and 33:33:*, and so no broadcast.
    pub accept_multicast: bool,
}

impl Filter {
    /// Takes every address.
    pub const PROMISCUOUS: Self =
        Self { own_mac: MacAddress([0; 6]), promiscuous: true, accept_multicast: true };

    /// Says whether the card takes frames to this address.
    pub fn accepts(&self, destination: MacAddress) -> bool {
        self.promiscuous
            || destination == self.own_mac
            || self.accept_multicast && destination.is_ip_multicast()
    }
}

/// A frame that was not taken: the reason that is counted, and what exactly was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is counted.
    pub reason: DropReason,
    /// What was found, and what would have been allowed.
    pub error: Error,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.error)
    }
}

impl core::error::Error for Refusal {}

/// Gives a failed check its reason.
trait Because<T> {
    fn because(self, reason: DropReason) -> Result<T, Refusal>;
}

impl<T> Because<T> for Result<T, Error> {
    fn because(self, reason: DropReason) -> Result<T, Refusal> {
        self.map_err(|error| Refusal { reason, error })
    }
}

/// Decides about a frame as the packet path does: what it says, or why it is dropped.
///
/// `mac_error` is the MAC's mark on the frame's last beat.
///
/// # Errors
///
/// The first [`DropReason`] that holds.
pub fn classify<'a>(frame: &'a [u8], mac_error: bool, filter: &Filter) -> Result<PacketRepr<'a>, DropReason> {
    explain(frame, mac_error, filter).map_err(|refusal| refusal.reason)
}

/// Decides like [`classify`], and says what exactly was wrong.
///
/// # Errors
///
/// The first [`DropReason`] that holds, with what was found.
pub fn explain<'a>(frame: &'a [u8], mac_error: bool, filter: &Filter) -> Result<PacketRepr<'a>, Refusal> {
    if mac_error {
        let error = Error::Field { header: "frame", field: "mac_error", found: 1, allowed: "0" };
        return Err(Refusal { reason: DropReason::MacError, error });
    }
    dissect(frame, Some(filter))
}

/// Walks from the outside of a frame to its inside. With a filter it checks all that the card checks; without
/// one it leaves out what does not hinder the walk: addresses, ICRC and destination QP.
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

    // From here on `packet` begins with the IP header and ends where the IP length says.
    let datagram = &packet[ip.buffer_len()..];
    let header = UdpPacket::new_checked(datagram).because(DropReason::UdpHeader)?;
    header.check_port().because(DropReason::OtherPort)?;
    header.check_length(datagram.len()).because(DropReason::UdpLength)?;
    let udp = UdpRepr::parse(&header);
    if filter.is_some() {
        check_icrc(packet).because(DropReason::Icrc)?;
    }

    // The least UDP length has proven that BTH and ICRC are there.
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

/// What the walk knows behind an IP header: what it says, the packet with that header and without Ethernet's
/// pad, and the protocol that follows.
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
        let allowed = "the card's own address, or what its filter lets pass";
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

/// Parts the pad from the payload in front of it.
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
