//! The GRH area: 40 bytes that every UD receive places ahead of the payload (protocol 1.9).
//!
//! ```text
//!           0                   20                  40
//!   IPv6:   | IPv6 header, as it was received        |
//!   IPv4:   | zeros             | IPv4 header        |
//! ```
//!
//! Applications take the sender's address from it. They check the version nibbles and, if both could be valid, the IPv4 checksum. So
//! an IPv4 header is copied with its checksum, and the bytes before it are zero: stale bytes could be taken for an IPv6 header, and
//! would leak data.

use super::header::Error;
use super::ip::{Ipv4Packet, Ipv6Packet, ipv4, ipv6};
use crate::limits::GRH_BYTES;

/// Byte offset of an IPv4 header in the area.
pub const IPV4_OFFSET: usize = GRH_BYTES - ipv4::BYTES;

const _: () = assert!(GRH_BYTES == ipv6::BYTES);

/// Kind of the header in the area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrhKind {
    /// IPv4 header in the last 20 bytes.
    Ipv4,
    /// IPv6 header in all 40 bytes.
    Ipv6,
}

/// Returns the area for a packet that starts with its IP header.
///
/// # Errors
///
/// [`Error::Truncated`] if the packet ends before its IP header, [`Error::Field`] if that is neither IPv4 without options nor IPv6.
pub fn grh_area(packet: &[u8]) -> Result<[u8; GRH_BYTES], Error> {
    let mut area = [0; GRH_BYTES];
    match Ipv6Packet::new_checked(packet) {
        Ok(header) if header.version() == 6 => area.copy_from_slice(&packet[..ipv6::BYTES]),
        _ => {
            Ipv4Packet::new_checked(packet)?.check_header()?;
            area[IPV4_OFFSET..].copy_from_slice(&packet[..ipv4::BYTES]);
        }
    }
    Ok(area)
}

/// Returns the kind of header in an area by the rule of libibverbs, or `None` if it is neither.
pub fn grh_kind(area: &[u8; GRH_BYTES]) -> Option<GrhKind> {
    let ipv4 = Ipv4Packet::new_unchecked(&area[IPV4_OFFSET..]);
    if Ipv6Packet::new_unchecked(area).version() != 6 {
        return (ipv4.version() == 4).then_some(GrhKind::Ipv4);
    }
    // An IPv6 source address may look like an IPv4 header, but hardly with a correct checksum.
    let is_ipv4 = usize::from(ipv4.header_words()) * 4 == ipv4::BYTES && ipv4.check_checksum().is_ok();
    Some(if is_ipv4 { GrhKind::Ipv4 } else { GrhKind::Ipv6 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The IP header of vector V1.
    const IPV4: &str = "45000034123440004011a516c0a8010ac0a80114";
    /// The IP header of vector V3.
    const IPV6: &str = "66812345001c113ffd000000000000000000000000000020fd000000000000000000000000000010";

    fn bytes<const N: usize>(hexadecimal: &str) -> [u8; N] {
        let mut bytes = [0; N];
        hex::decode_to_slice(hexadecimal, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn an_ipv4_header_follows_zeros() {
        let header: [u8; 20] = bytes(IPV4);
        let area = grh_area(&header).unwrap();
        assert_eq!(area[..20], [0; 20]);
        assert_eq!(area[20..], header);
        assert_eq!(grh_kind(&area), Some(GrhKind::Ipv4));
    }

    #[test]
    fn an_ipv6_header_fills_the_area() {
        let header: [u8; 40] = bytes(IPV6);
        assert_eq!(grh_area(&header), Ok(header));
        assert_eq!(grh_kind(&header), Some(GrhKind::Ipv6));
    }

    #[test]
    fn stale_bytes_leave_the_decision_to_the_checksum() {
        let mut area: [u8; 40] = bytes(IPV6);
        area[20..].copy_from_slice(&bytes::<20>(IPV4));
        assert_eq!(grh_kind(&area), Some(GrhKind::Ipv4));
        area[28] ^= 1;
        assert_eq!(grh_kind(&area), Some(GrhKind::Ipv6));
    }

    #[test]
    fn an_area_without_a_header_has_no_kind() {
        assert_eq!(grh_kind(&[0; GRH_BYTES]), None);
    }

    #[test]
    fn a_header_that_is_cut_off_is_refused() {
        assert!(grh_area(&bytes::<20>(IPV4)[..19]).is_err());
        assert!(grh_area(&bytes::<40>(IPV6)[..39]).is_err());
    }
}
