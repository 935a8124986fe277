//! Addresses of cards: made from their names, so that every process knows those of every card without asking anybody.

use crate::outcome::{Failure, Outcome};
use rnic_driver::DeviceName;
use rnic_layout::path::Gid;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;

/// First bytes of the MAC addresses: a locally administered one, and `r`.
const MAC_PREFIX: [u8; 2] = [0x02, 0x72];
/// First byte of the IPv4 addresses, of a private network.
const NETWORK: u8 = 10;

/// Addresses of one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) mac: [u8; 6],
    /// The GID table: the IPv4 address, then the link-local IPv6 address.
    pub(crate) gids: [Gid; 2],
}

impl Addresses {
    /// Makes the addresses of a card from its name. Two names of one socket give the same.
    pub(crate) fn of(name: &DeviceName) -> Self {
        match name {
            DeviceName::VfioUser(path) => {
                let path = path.canonicalize().or_else(|_| std::path::absolute(path));
                let path = path.unwrap_or_default();
                Self::from_text(path.as_os_str().as_bytes())
            }
            DeviceName::Pci { address, .. } => Self::from_text(address.to_string().as_bytes()),
            other => Self::from_text(other.to_string().as_bytes()),
        }
    }

    fn from_text(text: &[u8]) -> Self {
        let [.., a, b, c] = hash(text).to_be_bytes();
        // Neither the address of a network nor that of all hosts of one.
        let ip = Ipv4Addr::new(NETWORK, a, b, c % 254 + 1);
        let mac = mac_of(ip);
        Self { mac, gids: [Gid::from_ipv4(ip), Gid::from_mac(mac)] }
    }

    /// GUID of node and port: the EUI-64 of the MAC address, in wire order.
    pub(crate) fn guid(&self) -> [u8; 8] {
        let [_, _, _, _, _, _, _, _, guid @ ..] = self.gids[1].0;
        guid
    }
}

/// Hash of a name that every process computes alike (FNV-1a).
fn hash(text: &[u8]) -> u64 {
    text.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// MAC address of the card with an IPv4 address.
fn mac_of(ip: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = ip.octets();
    [MAC_PREFIX[0], MAC_PREFIX[1], a, b, c, d]
}

/// MAC address of the card with a GID.
pub(crate) fn resolve(gid: Gid) -> Outcome<[u8; 6]> {
    if let Some(ip) = gid.to_ipv4() {
        return Ok(mac_of(ip));
    }
    match gid.0 {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => Ok([a ^ 0x02, b, c, d, e, f]),
        _ => {
            let text = format!(
                "the MAC address of {} is not known, because no neighbour is asked; use GID 0 or 1 of a card that this library has opened",
                gid.to_ipv6()
            );
            Err(Failure::new(libc::EHOSTUNREACH, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_address_of_a_card_follows_from_each_of_its_gids() {
        for text in ["/run/card0.sock", "/run/card1.sock", "0000:65:00.0", ""] {
            let addresses = Addresses::from_text(text.as_bytes());
            for gid in addresses.gids {
                assert_eq!(resolve(gid).unwrap(), addresses.mac, "{text}");
            }
            let ip = addresses.gids[0].to_ipv4().unwrap();
            assert!(ip.is_private() && !matches!(ip.octets()[3], 0 | 255), "{ip}");
            assert_eq!(addresses.gids[1].0[8..], addresses.guid());
        }
        assert!(resolve(Gid([0x20; 16])).is_err());
    }

    #[test]
    fn a_socket_has_the_same_addresses_by_all_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card0");
        std::fs::write(&path, "").unwrap();
        let other = folder.path().join(".").join("card0");
        let [first, second] = [path, other].map(|path| Addresses::of(&DeviceName::VfioUser(path)));
        assert_eq!(first, second);
        let absent = Addresses::of(&DeviceName::VfioUser(folder.path().join("card1")));
        assert_ne!(first, absent);
    }
}
