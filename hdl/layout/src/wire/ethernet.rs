//! Ethernet header and 802.1Q tag (protocol 1.1 and 1.2).

use core::fmt;

use super::header::{Error, Value, header};

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86DD;
/// EtherType of an 802.1Q tag.
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// EtherType of MAC control frames, such as PAUSE (protocol 1.11).
pub const ETHERTYPE_MAC_CONTROL: u16 = 0x8808;

/// A MAC address, in wire order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Returns whether the address is a group address, broadcast included.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns whether the address is that of an IPv4 (01:00:5E) or IPv6 (33:33) multicast group.
    pub const fn is_ip_multicast(self) -> bool {
        matches!(self.0, [0x01, 0x00, 0x5E, ..] | [0x33, 0x33, ..])
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Value for MacAddress {
    fn from_bits(bits: u128) -> Self {
        let [_, _, mac @ ..] = (bits as u64).to_be_bytes();
        Self(mac)
    }
    fn into_bits(self) -> u128 {
        let [a, b, c, d, e, f] = self.0;
        u128::from(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

header! {
    /// The Ethernet header.
    fields, EthernetPacket, "Ethernet", 14 bytes;
    /// MAC address of the receiver.
    DESTINATION destination set_destination: MacAddress = 0, 7, 48, "address", "protocol 1.2";
    /// MAC address of the sender; never a group address.
    SOURCE source set_source: MacAddress = 6, 7, 48, "address", "protocol 1.2";
    /// EtherType of what follows.
    ETHERTYPE ethertype set_ethertype: u16 = 12, 7, 16, "code", "protocol 1.1";
}

header! {
    /// 802.1Q tag, after the EtherType 0x8100: tag control information and the EtherType of what follows.
    vlan, VlanPacket, "802.1Q", 4 bytes;
    /// PCP, priority code point: the class that PFC pauses.
    PRIORITY priority set_priority: u8 = 0, 7, 3, "class", "protocol 1.1";
    /// DEI, drop eligible indicator.
    DROP_ELIGIBLE drop_eligible set_drop_eligible: bool = 0, 4, 1, "flag", "protocol 1.1";
    /// VID, VLAN identifier. 0 is a priority tag, which is accepted.
    IDENTIFIER identifier set_identifier: u16 = 0, 3, 12, "number", "protocol 1.1";
    /// EtherType of what follows the tag.
    ETHERTYPE ethertype set_ethertype: u16 = 2, 7, 16, "code", "protocol 1.1";
}

/// The tag control information of an 802.1Q tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlanTag {
    /// Priority code point, 0 to 7.
    pub priority: u8,
    /// Drop eligible indicator.
    pub drop_eligible: bool,
    /// VLAN identifier, 0 to 4095.
    pub identifier: u16,
}

impl VlanTag {
    /// Parses the 16 bits of tag control information.
    pub const fn from_control(control: u16) -> Self {
        Self {
            priority: (control >> 13) as u8,
            drop_eligible: control & 0x1000 != 0,
            identifier: control & 0xFFF,
        }
    }

    /// Returns the 16 bits of tag control information.
    pub const fn control(self) -> u16 {
        (self.priority as u16) << 13 | (self.drop_eligible as u16) << 12 | self.identifier & 0xFFF
    }
}

/// All headers before the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetRepr {
    /// MAC address of the receiver.
    pub destination: MacAddress,
    /// MAC address of the sender.
    pub source: MacAddress,
    /// 802.1Q tag, if the frame has one.
    pub vlan: Option<VlanTag>,
    /// EtherType of what follows, after the tag if there is one.
    pub ethertype: u16,
}

impl EthernetRepr {
    /// Parses the header at the start of a frame, and its tag.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] if the frame has less than 14 bytes, or 18 with a tag.
    pub fn parse(frame: &[u8]) -> Result<Self, Error> {
        let packet = EthernetPacket::new_checked(frame)?;
        let (destination, source) = (packet.destination(), packet.source());
        if packet.ethertype() != ETHERTYPE_VLAN {
            return Ok(Self { destination, source, vlan: None, ethertype: packet.ethertype() });
        }
        let tag = VlanPacket::new_checked(&frame[fields::BYTES..])?;
        let vlan = VlanTag {
            priority: tag.priority(),
            drop_eligible: tag.drop_eligible(),
            identifier: tag.identifier(),
        };
        Ok(Self { destination, source, vlan: Some(vlan), ethertype: tag.ethertype() })
    }

    /// Returns the number of bytes that [`emit`](Self::emit) writes: 14, or 18 with a tag.
    pub const fn buffer_len(&self) -> usize {
        match self.vlan {
            None => fields::BYTES,
            Some(_) => fields::BYTES + vlan::BYTES,
        }
    }

    /// Writes the header to the start of a frame.
    ///
    /// # Panics
    ///
    /// If the frame is shorter than [`buffer_len`](Self::buffer_len).
    pub fn emit(&self, frame: &mut [u8]) {
        let (header, rest) = frame.split_at_mut(fields::BYTES);
        let mut packet = EthernetPacket::new_unchecked(header);
        packet.set_destination(self.destination);
        packet.set_source(self.source);
        packet.set_ethertype(if self.vlan.is_some() { ETHERTYPE_VLAN } else { self.ethertype });
        if let Some(vlan) = self.vlan {
            let mut tag = VlanPacket::new_unchecked(rest);
            tag.set_priority(vlan.priority);
            tag.set_drop_eligible(vlan.drop_eligible);
            tag.set_identifier(vlan.identifier);
            tag.set_ethertype(self.ethertype);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex::FromHex;

    /// The first 18 bytes of vector V9: PCP 3, VID 100.
    fn tagged() -> [u8; 18] {
        <[u8; 18]>::from_hex("020000000002020000000001810060640800").unwrap()
    }

    #[test]
    fn deconstruct_and_construct() {
        let frame = tagged();
        let repr = EthernetRepr::parse(&frame).unwrap();
        assert_eq!(
            repr,
            EthernetRepr {
                destination: MacAddress([2, 0, 0, 0, 0, 2]),
                source: MacAddress([2, 0, 0, 0, 0, 1]),
                vlan: Some(VlanTag { priority: 3, drop_eligible: false, identifier: 100 }),
                ethertype: ETHERTYPE_IPV4,
            }
        );
        let mut emitted = [0xA5; 18];
        repr.emit(&mut emitted);
        assert_eq!(emitted, frame);
    }

    #[test]
    fn a_tag_is_its_control_information() {
        for control in 0..=u16::MAX {
            assert_eq!(VlanTag::from_control(control).control(), control);
        }
        assert_eq!(VlanTag::from_control(0x6064), EthernetRepr::parse(&tagged()).unwrap().vlan.unwrap());
    }

    #[test]
    fn a_frame_ends_after_its_tag_or_later() {
        let frame = tagged();
        assert!(EthernetRepr::parse(&frame[..18]).is_ok());
        assert_eq!(
            EthernetRepr::parse(&frame[..17]),
            Err(Error::Truncated { header: "802.1Q", found_bytes: 3, needed_bytes: 4 })
        );
        assert_eq!(
            EthernetRepr::parse(&frame[..13]),
            Err(Error::Truncated { header: "Ethernet", found_bytes: 13, needed_bytes: 14 })
        );
    }

    #[test]
    fn only_ip_groups_are_ip_multicast() {
        assert!(MacAddress([0x01, 0x00, 0x5E, 0xFF, 0, 0]).is_ip_multicast());
        assert!(MacAddress([0x33, 0x33, 0, 0, 0, 1]).is_ip_multicast());
        assert!(!MacAddress([0xFF; 6]).is_ip_multicast());
        assert!(!MacAddress([0x01, 0x80, 0xC2, 0, 0, 1]).is_ip_multicast());
        assert!(!MacAddress([0x33, 0x32, 0, 0, 0, 1]).is_ip_multicast());
        assert!(MacAddress([0xFF; 6]).is_multicast());
    }
}
