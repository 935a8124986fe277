//! Socket addresses of the program.
#![allow(unsafe_code)]

use crate::abi;
use crate::outcome::{Failure, Outcome};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes of `sockaddr_in` and `sockaddr_in6`.
pub(crate) const V4_BYTES: usize = size_of::<libc::sockaddr_in>();
pub(crate) const V6_BYTES: usize = size_of::<libc::sockaddr_in6>();
const FAMILY_BYTES: usize = size_of::<libc::sa_family_t>();

impl abi::SocketAddress {
    /// The structure of an address, and the bytes that it has in it.
    pub(crate) fn new(address: SocketAddr) -> (Self, usize) {
        let mut bytes = [0; 128];
        let mut put = |offset: usize, part: &[u8]| bytes[offset..offset + part.len()].copy_from_slice(part);
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        put(0, &(family as libc::sa_family_t).to_ne_bytes());
        put(2, &address.port().to_be_bytes());
        let count = match address {
            SocketAddr::V4(v4) => {
                put(4, &v4.ip().octets());
                V4_BYTES
            }
            SocketAddr::V6(v6) => {
                put(4, &v6.flowinfo().to_be_bytes());
                put(8, &v6.ip().octets());
                put(24, &v6.scope_id().to_ne_bytes());
                V6_BYTES
            }
        };
        (
            Self {
                words: std::array::from_fn(|word| {
                    u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * word + byte]))
                }),
            },
            count,
        )
    }

    /// Sets the port.
    pub(crate) fn set_port(&mut self, port: u16) {
        let [a, b, _, _, rest @ ..] = self.words[0].to_ne_bytes();
        let [c, d] = port.to_be_bytes();
        let [e, f, g, h] = rest;
        self.words[0] = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
    }

    /// Whether the address is one of IPv6.
    pub(crate) fn is_v6(&self) -> bool {
        let [a, b, ..] = self.words[0].to_ne_bytes();
        libc::c_int::from(libc::sa_family_t::from_ne_bytes([a, b])) == libc::AF_INET6
    }

    /// The port, in wire order, or zero.
    pub(crate) fn port_in_wire_order(&self) -> u16 {
        let [_, _, a, b, ..] = self.words[0].to_ne_bytes();
        u16::from_ne_bytes([a, b])
    }
}

/// Reads an address of IPv4 or IPv6.
///
/// # Safety
///
/// The pointer is null, or that of an address that is as long as its family says.
pub(crate) unsafe fn read(address: *const libc::sockaddr) -> Outcome<SocketAddr> {
    if address.is_null() {
        return Err(Failure::new(libc::EINVAL, "there is no address"));
    }
    let bytes = address.cast::<u8>();
    // SAFETY: The caller answers for the pointer, and each family has these bytes.
    let bytes = unsafe {
        let family = i32::from(bytes.cast::<libc::sa_family_t>().read_unaligned());
        let count = match family {
            libc::AF_INET => V4_BYTES,
            libc::AF_INET6 => V6_BYTES,
            _ => FAMILY_BYTES,
        };
        std::slice::from_raw_parts(bytes, count)
    };
    parse(bytes).ok_or_else(|| {
        Failure::new(
            libc::EAFNOSUPPORT,
            "addresses are those of IPv4 and IPv6; the address is of another family",
        )
    })
}

/// Reads an address of its bytes, of which an unknown family has only the first two.
fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    if bytes.len() == V4_BYTES {
        let ip: [u8; 4] = bytes[4..8].try_into().ok()?;
        return Some((Ipv4Addr::from(ip), port).into());
    }
    let flow: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
    let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
    let scope: [u8; 4] = bytes.get(24..28)?.try_into().ok()?;
    let (flow, scope) = (u32::from_be_bytes(flow), u32::from_ne_bytes(scope));
    Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
}

/// The IPv4 address that an address is, or is mapped from.
pub(crate) fn ipv4(address: SocketAddr) -> Option<Ipv4Addr> {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

/// The address of a card, in the family of another address.
pub(crate) fn of_card(card: Ipv4Addr, port: u16, like: SocketAddr) -> SocketAddr {
    if like.is_ipv4() { (card, port).into() } else { (card.to_ipv6_mapped(), port).into() }
}

/// The address that a program means that connects to a wildcard address: its own host.
pub(crate) fn without_wildcard(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => (Ipv4Addr::LOCALHOST, v4.port()).into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => (Ipv6Addr::LOCALHOST, v6.port()).into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_out_as_they_went_in() {
        for text in ["10.1.2.3:7471", "0.0.0.0:0", "[::1]:80", "[fe80::1%3]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let (structure, _) = abi::SocketAddress::new(address);
            // SAFETY: The structure is as long as the longest address.
            assert_eq!(unsafe { read((&raw const structure).cast()) }.unwrap(), address);
            assert_eq!(u16::from_be(structure.port_in_wire_order()), address.port());
        }
    }

    #[test]
    fn other_families_are_refused() {
        let structure = abi::SocketAddress::NONE;
        // SAFETY: As above, and null is allowed.
        let errnos = unsafe { [read((&raw const structure).cast()), read(std::ptr::null())] };
        let errnos = errnos.map(|read| read.unwrap_err().errno());
        assert_eq!(errnos, [libc::EAFNOSUPPORT, libc::EINVAL]);
    }

    #[test]
    fn a_wildcard_is_the_host_itself() {
        for (text, meant) in [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "[::1]:2"), ("1.2.3.4:3", "1.2.3.4:3")]
        {
            let meant: SocketAddr = meant.parse().unwrap();
            assert_eq!(without_wildcard(text.parse().unwrap()), meant);
        }
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:5".parse().unwrap();
        assert_eq!(ipv4(mapped), Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(of_card(Ipv4Addr::new(10, 0, 0, 1), 5, mapped), mapped);
    }
}
