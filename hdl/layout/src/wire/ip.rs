//! IPv4 and IPv6 as RoCEv2 uses them: no options, no extension headers, no fragments (protocol 1.2).

use core::net::{Ipv4Addr, Ipv6Addr};

use super::header::{Error, header};
use crate::path::Gid;

/// IPv4 protocol or IPv6 next header of UDP.
pub const PROTOCOL_UDP: u8 = 17;

/// Default hop limit of transmitted packets (protocol 1.2).
pub const HOP_LIMIT_DEFAULT: u8 = 64;

header! {
    /// The IPv4 header without options.
    ipv4, Ipv4Packet, "IPv4", 20 bytes;
    /// Version: always 4.
    VERSION version set_version: u8 = 0, 7, 4, "number", "protocol 1.2";
    /// IHL: words of four bytes in the header; always 5.
    HEADER_WORDS header_words set_header_words: u8 = 0, 3, 4, "4 bytes", "protocol 1.1";
    /// DSCP in bits 7:2, ECN in bits 1:0. Not covered by the ICRC.
    TRAFFIC_CLASS traffic_class set_traffic_class: u8 = 1, 7, 8, "code", "protocol 1.2";
    /// Length of the header and all that follows, without the pad of Ethernet.
    TOTAL_LENGTH total_length set_total_length: u16 = 2, 7, 16, "bytes", "protocol 1.1";
    /// Identification: any number; covered by the ICRC.
    IDENTIFICATION identification set_identification: u16 = 4, 7, 16, "number", "protocol 1.2";
    /// Reserved; zero when sent, ignored when received.
    RESERVED_FLAG reserved_flag set_reserved_flag: bool = 6, 7, 1, "flag", "protocol 1.2";
    /// DF: forbids fragmentation; set when sent.
    DONT_FRAGMENT dont_fragment set_dont_fragment: bool = 6, 6, 1, "flag", "protocol 1.2";
    /// MF: more fragments follow; such a packet is dropped.
    MORE_FRAGMENTS more_fragments set_more_fragments: bool = 6, 5, 1, "flag", "protocol 1.2";
    /// Offset of this fragment. A packet with another value than 0 is dropped.
    FRAGMENT_OFFSET fragment_offset set_fragment_offset: u16 = 6, 4, 13, "8 bytes", "protocol 1.2";
    /// Time to live. Not covered by the ICRC.
    HOP_LIMIT hop_limit set_hop_limit: u8 = 8, 7, 8, "hops", "protocol 1.2";
    /// Protocol of what follows; 17 is UDP.
    PROTOCOL protocol set_protocol: u8 = 9, 7, 8, "code", "protocol 1.2";
    /// Complement of the ones' complement sum of the header. Not covered by the ICRC.
    CHECKSUM checksum set_checksum: u16 = 10, 7, 16, "sum", "protocol 1.2";
    /// Source address.
    SOURCE source set_source: Ipv4Addr = 12, 7, 32, "address", "protocol 1.2";
    /// Destination address.
    DESTINATION destination set_destination: Ipv4Addr = 16, 7, 32, "address", "protocol 1.2";
}

header! {
    /// The IPv6 header.
    ipv6, Ipv6Packet, "IPv6", 40 bytes;
    /// Version: always 6.
    VERSION version set_version: u8 = 0, 7, 4, "number", "protocol 1.2";
    /// DSCP in bits 7:2, ECN in bits 1:0. Not covered by the ICRC.
    TRAFFIC_CLASS traffic_class set_traffic_class: u8 = 0, 3, 8, "code", "protocol 1.2";
    /// Flow label. Not covered by the ICRC.
    FLOW_LABEL flow_label set_flow_label: u32 = 1, 3, 20, "number", "protocol 1.2";
    /// Length of all that follows this header, without the pad of Ethernet.
    PAYLOAD_LENGTH payload_length set_payload_length: u16 = 4, 7, 16, "bytes", "protocol 1.1";
    /// Protocol of what follows; 17 is UDP.
    NEXT_HEADER next_header set_next_header: u8 = 6, 7, 8, "code", "protocol 1.2";
    /// Hop limit. Not covered by the ICRC.
    HOP_LIMIT hop_limit set_hop_limit: u8 = 7, 7, 8, "hops", "protocol 1.2";
    /// Source address.
    SOURCE source set_source: Ipv6Addr = 8, 7, 128, "address", "protocol 1.2";
    /// Destination address.
    DESTINATION destination set_destination: Ipv6Addr = 24, 7, 128, "address", "protocol 1.2";
}

/// Explicit congestion notification: bits 1:0 of the traffic class (protocol 1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable.
    NotCapable = 0,
    /// ECT(1): ECN-capable; not used.
    Capable1 = 1,
    /// ECT(0): ECN-capable; set by a RoCEv2 sender with congestion control.
    Capable0 = 2,
    /// CE, congestion experienced: a data packet with it causes a CNP.
    Experienced = 3,
}

impl Ecn {
    /// Its bits in a traffic class.
    pub const MASK: u8 = 3;

    /// Returns the code of a traffic class.
    pub const fn of(traffic_class: u8) -> Self {
        match traffic_class & Self::MASK {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::Experienced,
        }
    }
}

/// Returns the ones' complement sum of 16-bit words. Over a header with its checksum it is 0xFFFF; over a header whose checksum
/// field is zero, its complement is the checksum. An odd last byte is the high byte of a word.
pub const fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    let mut index = 0;
    while index < bytes.len() {
        let low = if index + 1 < bytes.len() { bytes[index + 1] } else { 0 };
        sum += (bytes[index] as u32) << 8 | low as u32;
        sum = (sum & 0xFFFF) + (sum >> 16);
        index += 2;
    }
    sum as u16
}

impl<T: AsRef<[u8]>> Ipv4Packet<T> {
    /// Checks version, header length and the smallest total length.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] or [`Error::Length`] for the first that is wrong.
    pub fn check_header(&self) -> Result<(), Error> {
        let wrong =
            |field, found: u8, allowed| Error::Field { header: "IPv4", field, found: found.into(), allowed };
        if self.version() != 4 {
            return Err(wrong("version", self.version(), "4"));
        }
        if usize::from(self.header_words()) * 4 != ipv4::BYTES {
            return Err(wrong("header_words", self.header_words(), "5: no options"));
        }
        if usize::from(self.total_length()) < ipv4::BYTES {
            return Err(self.length_error(usize::from(u16::MAX)));
        }
        Ok(())
    }

    /// Checks that the packet does not exceed the `available_bytes` from its first byte to the end of the buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if it does.
    pub fn check_length(&self, available_bytes: usize) -> Result<(), Error> {
        if usize::from(self.total_length()) > available_bytes {
            return Err(self.length_error(available_bytes));
        }
        Ok(())
    }

    /// Checks the checksum of the header.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] if the sum of the header is not 0xFFFF.
    pub fn check_checksum(&self) -> Result<(), Error> {
        if ones_complement_sum(&self.buffer.as_ref()[..ipv4::BYTES]) != 0xFFFF {
            let found = self.checksum().into();
            let allowed = "the complement of the header's sum";
            return Err(Error::Field { header: "IPv4", field: "checksum", found, allowed });
        }
        Ok(())
    }

    /// Checks that the packet is not a fragment.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] if it is.
    pub fn check_fragment(&self) -> Result<(), Error> {
        let wrong = |field, found| Error::Field { header: "IPv4", field, found, allowed: "0: no fragments" };
        if self.more_fragments() {
            return Err(wrong("more_fragments", 1));
        }
        if self.fragment_offset() != 0 {
            return Err(wrong("fragment_offset", self.fragment_offset().into()));
        }
        Ok(())
    }

    fn length_error(&self, most_bytes: usize) -> Error {
        Error::Length {
            header: "IPv4",
            field: "total_length",
            found_bytes: self.total_length().into(),
            least_bytes: ipv4::BYTES,
            most_bytes,
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4Packet<T> {
    /// Computes and writes the checksum.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let sum = ones_complement_sum(&self.buffer.as_ref()[..ipv4::BYTES]);
        self.set_checksum(!sum);
    }
}

impl<T: AsRef<[u8]>> Ipv6Packet<T> {
    /// Checks the version.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] if it is not 6.
    pub fn check_header(&self) -> Result<(), Error> {
        if self.version() != 6 {
            let found = self.version().into();
            return Err(Error::Field { header: "IPv6", field: "version", found, allowed: "6" });
        }
        Ok(())
    }

    /// Checks that the packet does not exceed the `available_bytes` from its first byte to the end of the buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if it does.
    pub fn check_length(&self, available_bytes: usize) -> Result<(), Error> {
        let found_bytes = usize::from(self.payload_length());
        let most_bytes = available_bytes.saturating_sub(ipv6::BYTES);
        if found_bytes > most_bytes {
            let field = "payload_length";
            return Err(Error::Length { header: "IPv6", field, found_bytes, least_bytes: 0, most_bytes });
        }
        Ok(())
    }
}

/// IPv4 header of RoCEv2. Version, lengths, protocol and checksum follow from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Repr {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Identification: any number.
    pub identification: u16,
    /// Reserved flag; kept so that a received frame can be emitted unchanged.
    pub reserved_flag: bool,
    /// DF flag; the card always sets it.
    pub dont_fragment: bool,
    /// Time to live.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

impl Ipv4Repr {
    /// Parses a header that has passed the checks of the packet.
    pub fn parse<T: AsRef<[u8]>>(packet: &Ipv4Packet<T>) -> Self {
        Self {
            traffic_class: packet.traffic_class(),
            identification: packet.identification(),
            reserved_flag: packet.reserved_flag(),
            dont_fragment: packet.dont_fragment(),
            hop_limit: packet.hop_limit(),
            source: packet.source(),
            destination: packet.destination(),
        }
    }

    /// Writes the header of a packet with `payload_bytes` after the header, with lengths and checksum.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Ipv4Packet<T>, payload_bytes: u16) {
        packet.set_version(4);
        packet.set_header_words((ipv4::BYTES / 4) as u8);
        packet.set_traffic_class(self.traffic_class);
        packet.set_total_length(payload_bytes + ipv4::BYTES as u16);
        packet.set_identification(self.identification);
        packet.set_reserved_flag(self.reserved_flag);
        packet.set_dont_fragment(self.dont_fragment);
        packet.set_more_fragments(false);
        packet.set_fragment_offset(0);
        packet.set_hop_limit(self.hop_limit);
        packet.set_protocol(PROTOCOL_UDP);
        packet.set_source(self.source);
        packet.set_destination(self.destination);
        packet.fill_checksum();
    }
}

/// IPv6 header of RoCEv2. Version, length and next header follow from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Repr {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Ipv6Repr {
    /// Parses a header that has passed the checks of the packet.
    pub fn parse<T: AsRef<[u8]>>(packet: &Ipv6Packet<T>) -> Self {
        Self {
            traffic_class: packet.traffic_class(),
            flow_label: packet.flow_label(),
            hop_limit: packet.hop_limit(),
            source: packet.source(),
            destination: packet.destination(),
        }
    }

    /// Writes the header of a packet with `payload_bytes` after the header.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Ipv6Packet<T>, payload_bytes: u16) {
        packet.set_version(6);
        packet.set_traffic_class(self.traffic_class);
        packet.set_flow_label(self.flow_label);
        packet.set_payload_length(payload_bytes);
        packet.set_next_header(PROTOCOL_UDP);
        packet.set_hop_limit(self.hop_limit);
        packet.set_source(self.source);
        packet.set_destination(self.destination);
    }
}

/// IP header of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpRepr {
    /// IPv4 header.
    V4(Ipv4Repr),
    /// IPv6 header.
    V6(Ipv6Repr),
}

impl IpRepr {
    /// Returns the size of the header, in bytes.
    pub const fn buffer_len(&self) -> usize {
        match self {
            Self::V4(_) => ipv4::BYTES,
            Self::V6(_) => ipv6::BYTES,
        }
    }

    /// Returns the traffic class: DSCP in bits 7:2, ECN in bits 1:0.
    pub const fn traffic_class(&self) -> u8 {
        match self {
            Self::V4(ip) => ip.traffic_class,
            Self::V6(ip) => ip.traffic_class,
        }
    }

    /// Returns the time to live or hop limit.
    pub const fn hop_limit(&self) -> u8 {
        match self {
            Self::V4(ip) => ip.hop_limit,
            Self::V6(ip) => ip.hop_limit,
        }
    }

    /// Returns the source address as a GID.
    pub const fn source(&self) -> Gid {
        match self {
            Self::V4(ip) => Gid::from_ipv4(ip.source),
            Self::V6(ip) => Gid::from_ipv6(ip.source),
        }
    }

    /// Returns the destination address as a GID.
    pub const fn destination(&self) -> Gid {
        match self {
            Self::V4(ip) => Gid::from_ipv4(ip.destination),
            Self::V6(ip) => Gid::from_ipv6(ip.destination),
        }
    }

    /// Writes the header to the start of `buffer`.
    pub(super) fn emit(&self, buffer: &mut [u8], payload_bytes: u16) {
        match self {
            Self::V4(ip) => ip.emit(&mut Ipv4Packet::new_unchecked(buffer), payload_bytes),
            Self::V6(ip) => ip.emit(&mut Ipv6Packet::new_unchecked(buffer), payload_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex::FromHex;
    use std::string::ToString;

    /// The IPv4 header of vector V2.
    fn ipv4_bytes() -> [u8; 20] {
        FromHex::from_hex("456a0044000040004011b6d0c0a8010ac0a80114").unwrap()
    }

    /// The IPv6 header of vector V3.
    fn ipv6_bytes() -> [u8; 40] {
        let text = "66812345001c113ffd000000000000000000000000000020fd000000000000000000000000000010";
        FromHex::from_hex(text).unwrap()
    }

    #[test]
    fn deconstruct_and_construct_ipv4() {
        let bytes = ipv4_bytes();
        let packet = Ipv4Packet::new_checked(&bytes).unwrap();
        assert_eq!((packet.version(), packet.header_words(), packet.total_length()), (4, 5, 68));
        assert_eq!((packet.protocol(), packet.checksum()), (PROTOCOL_UDP, 0xB6D0));
        let repr = Ipv4Repr::parse(&packet);
        let expected = Ipv4Repr {
            traffic_class: 0x6A,
            identification: 0,
            reserved_flag: false,
            dont_fragment: true,
            hop_limit: 64,
            source: Ipv4Addr::new(192, 168, 1, 10),
            destination: Ipv4Addr::new(192, 168, 1, 20),
        };
        assert_eq!(repr, expected);
        let mut emitted = [0xA5; 20];
        repr.emit(&mut Ipv4Packet::new_unchecked(&mut emitted), 48);
        assert_eq!(emitted, bytes);
    }

    #[test]
    fn deconstruct_and_construct_ipv6() {
        let bytes = ipv6_bytes();
        let packet = Ipv6Packet::new_checked(&bytes).unwrap();
        assert_eq!((packet.version(), packet.payload_length(), packet.next_header()), (6, 28, PROTOCOL_UDP));
        let repr = Ipv6Repr::parse(&packet);
        let expected = Ipv6Repr {
            traffic_class: 0x68,
            flow_label: 0x12345,
            hop_limit: 63,
            source: "fd00::20".parse().unwrap(),
            destination: "fd00::10".parse().unwrap(),
        };
        assert_eq!(repr, expected);
        let mut emitted = [0xA5; 40];
        repr.emit(&mut Ipv6Packet::new_unchecked(&mut emitted), 28);
        assert_eq!(emitted, bytes);
    }

    #[test]
    fn every_single_bit_error_breaks_the_checksum() {
        for bit in 0..160 {
            let mut bytes = ipv4_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Ipv4Packet::new_unchecked(&bytes).check_checksum().is_err(), "bit {bit}");
        }
        assert!(Ipv4Packet::new_unchecked(&ipv4_bytes()).check_checksum().is_ok());
    }

    #[test]
    fn lengths_are_refused_one_byte_beyond_their_bounds() {
        let mut packet = Ipv4Packet::new_checked(ipv4_bytes()).unwrap();
        assert!(packet.check_length(68).is_ok());
        let error = packet.check_length(67).unwrap_err();
        assert_eq!(error.to_string(), "IPv4 total_length: found 68 bytes, allowed are 20 to 67 bytes");
        packet.set_total_length(20);
        assert!(packet.check_header().is_ok());
        packet.set_total_length(19);
        assert!(packet.check_header().is_err());

        let packet = Ipv6Packet::new_checked(ipv6_bytes()).unwrap();
        assert!(packet.check_length(68).is_ok());
        assert!(packet.check_length(67).is_err());
    }

    #[test]
    fn ecn_is_the_low_two_bits() {
        assert_eq!(
            [0x68, 0x69, 0xC2, 0xFF].map(Ecn::of),
            [Ecn::NotCapable, Ecn::Capable1, Ecn::Capable0, Ecn::Experienced]
        );
    }

    #[test]
    fn a_gid_names_either_family() {
        let v4 = IpRepr::V4(Ipv4Repr::parse(&Ipv4Packet::new_unchecked(&ipv4_bytes())));
        let v6 = IpRepr::V6(Ipv6Repr::parse(&Ipv6Packet::new_unchecked(&ipv6_bytes())));
        assert_eq!(v4.source().to_ipv4(), Some(Ipv4Addr::new(192, 168, 1, 10)));
        assert_eq!(v6.destination().to_ipv6(), "fd00::10".parse::<Ipv6Addr>().unwrap());
    }
}
