//! UDP, which carries RoCEv2 (protocol 1.2).

use super::header::{Error, header};
use super::{bth, icrc};
use crate::path::ROCE_PORT;

/// Smallest UDP length of a RoCEv2 packet: UDP header, BTH and ICRC (protocol 8.3).
pub const ROCE_LENGTH_MIN: usize = fields::BYTES + bth::fields::BYTES + icrc::BYTES;

header! {
    /// The UDP header.
    fields, UdpPacket, "UDP", 8 bytes;
    /// Source port. It distributes flows over equal paths, and is never filtered.
    SOURCE_PORT source_port set_source_port: u16 = 0, 7, 16, "number", "protocol 1.2";
    /// Destination port: 4791 for RoCEv2.
    DESTINATION_PORT destination_port set_destination_port: u16 = 2, 7, 16, "number", "protocol 1.2";
    /// Length of this header and all that follows, the ICRC included.
    LENGTH length set_length: u16 = 4, 7, 16, "bytes", "protocol 1.1";
    /// Checksum: zero when sent, ignored when received. Not covered by the ICRC.
    CHECKSUM checksum set_checksum: u16 = 6, 7, 16, "sum", "protocol 1.2";
}

impl<T: AsRef<[u8]>> UdpPacket<T> {
    /// Checks that the destination port is that of RoCEv2.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] if it is not.
    pub fn check_port(&self) -> Result<(), Error> {
        if self.destination_port() != ROCE_PORT {
            let found = self.destination_port().into();
            return Err(Error::Field { header: "UDP", field: "destination_port", found, allowed: "4791" });
        }
        Ok(())
    }

    /// Checks that the length leaves room for BTH and ICRC, and is `ip_payload_bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if it does not, or is not.
    pub fn check_length(&self, ip_payload_bytes: usize) -> Result<(), Error> {
        let found_bytes = usize::from(self.length());
        if found_bytes < ROCE_LENGTH_MIN || found_bytes != ip_payload_bytes {
            let right_bytes = ip_payload_bytes.max(ROCE_LENGTH_MIN);
            return Err(Error::Length {
                header: "UDP",
                field: "length",
                found_bytes,
                least_bytes: right_bytes,
                most_bytes: right_bytes,
            });
        }
        Ok(())
    }
}

/// UDP header of a RoCEv2 packet. Destination port and length follow from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpRepr {
    /// Source port; constant for a queue pair.
    pub source_port: u16,
    /// Checksum. The card sends zero; kept so that a received frame can be emitted unchanged.
    pub checksum: u16,
}

impl UdpRepr {
    /// Parses a header that has passed the checks of the packet.
    pub fn parse<T: AsRef<[u8]>>(packet: &UdpPacket<T>) -> Self {
        Self { source_port: packet.source_port(), checksum: packet.checksum() }
    }

    /// Returns the number of bytes that [`emit`](Self::emit) writes.
    pub const fn buffer_len(&self) -> usize {
        fields::BYTES
    }

    /// Writes the header of a packet of `length` bytes, this header included.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut UdpPacket<T>, length: u16) {
        packet.set_source_port(self.source_port);
        packet.set_destination_port(ROCE_PORT);
        packet.set_length(length);
        packet.set_checksum(self.checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The UDP header of vector V1.
    const BYTES: [u8; 8] = [0xC0, 0x01, 0x12, 0xB7, 0x00, 0x20, 0x00, 0x00];

    #[test]
    fn deconstruct_and_construct() {
        let packet = UdpPacket::new_checked(&BYTES).unwrap();
        assert_eq!((packet.destination_port(), packet.length()), (ROCE_PORT, 32));
        let repr = UdpRepr::parse(&packet);
        assert_eq!(repr, UdpRepr { source_port: 0xC001, checksum: 0 });
        let mut emitted = [0xA5; 8];
        repr.emit(&mut UdpPacket::new_unchecked(&mut emitted), 32);
        assert_eq!(emitted, BYTES);
    }

    #[test]
    fn the_length_is_that_of_the_ip_payload_and_leaves_room_for_bth_and_icrc() {
        let mut packet = UdpPacket::new_checked(BYTES).unwrap();
        assert!(packet.check_length(32).is_ok());
        assert!(packet.check_length(31).is_err());
        assert!(packet.check_length(33).is_err());
        packet.set_length(24);
        assert!(packet.check_length(24).is_ok());
        packet.set_length(23);
        assert!(packet.check_length(23).is_err());
    }
}
