//! UDP, the layer that RoCEv2 hides in (protocol 1.2).

use super::header::{Error, header};
use super::{bth, icrc};
use crate::path::ROCE_PORT;

/// The least UDP length of a RoCEv2 packet: UDP header, BTH and ICRC (protocol 8.3).
pub const ROCE_LENGTH_MIN: usize = fields::BYTES + bth::fields::BYTES + icrc::BYTES;

header! {
    /// The UDP header.
    fields, UdpPacket, "UDP", 8 bytes;
    /// Spreads flows over equal paths; never filtered.
    SOURCE_PORT source_port set_source_port: u16 = 0, 7, 16, "number", "protocol 1.2";
    /// 4791 for RoCEv2.
    DESTINATION_PORT destination_port set_destination_port: u16 = 2, 7, 16, "number", "protocol 1.2";
    /// This header and all that follows, the ICRC included.
    LENGTH length set_length: u16 = 4, 7, 16, "bytes", "protocol 1.1";
    /// Zero when sent, ignored when received. Not covered by the ICRC.
    CHECKSUM checksum set_checksum: u16 = 6, 7, 16, "sum", "protocol 1.2";
}

impl<T: AsRef<[u8]>> UdpPacket<T> {
    /// Checks that the packet is for RoCEv2.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] when its destination port is another one.
    pub fn check_port(&self) -> Result<(), Error> {
        if self.destination_port() != ROCE_PORT {
            let found = self.destination_port().into();
            return Err(Error::Field { header: "UDP", field: "destination_port", found, allowed: "4791" });
        }
        Ok(())
    }

    /// Checks that the length leaves room for BTH and ICRC, and is that of the IP payload.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] when it is not.
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

/// What the UDP header of a RoCEv2 packet says. Destination port and length follow from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpRepr {
    /// Any number; constant for a queue pair.
    pub source_port: u16,
    /// Zero in all that the card sends; kept so that a frame can be sent again as it came.
    pub checksum: u16,
}

impl UdpRepr {
    /// Reads a header that the packet's checks have passed.
    pub fn parse<T: AsRef<[u8]>>(packet: &UdpPacket<T>) -> Self {
        Self { source_port: packet.source_port(), checksum: packet.checksum() }
    }

    /// Returns the bytes that [`emit`](Self::emit) writes.
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
