//! Properties of a path between two ports: PMTU, addresses as GIDs, UDP ports, flow labels (protocol 0 and 1.2).

use core::net::{Ipv4Addr, Ipv6Addr};

/// The UDP destination port of RoCEv2 (protocol 1.1).
pub const ROCE_PORT: u16 = 4791;

/// Lowest UDP source port of a sender, which uses 0xC000 to 0xFFFF (protocol 1.2).
pub const SOURCE_PORT_BASE: u16 = 0xC000;

/// PMTU: most bytes of payload of a packet on a path. The numbers are the codes of the verbs (protocol 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Pmtu {
    /// 256 bytes.
    Bytes256 = 1,
    /// 512 bytes.
    Bytes512 = 2,
    /// 1024 bytes.
    Bytes1024 = 3,
    /// 2048 bytes.
    Bytes2048 = 4,
    /// 4096 bytes.
    Bytes4096 = 5,
}

impl Pmtu {
    /// Every PMTU, in ascending order.
    pub const ALL: [Self; 5] =
        [Self::Bytes256, Self::Bytes512, Self::Bytes1024, Self::Bytes2048, Self::Bytes4096];

    /// Returns the PMTU of a code, 1 to 5; `None` for any other code.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1..=5 => Some(Self::ALL[code as usize - 1]),
            _ => None,
        }
    }

    /// Returns the code, 1 to 5.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the PMTU in bytes.
    pub const fn bytes(self) -> u32 {
        128 << self as u8
    }

    /// Returns the largest PMTU for an Ethernet MTU in bytes, of which Linux reserves 80 for headers (protocol 1.1). `None` below
    /// 336.
    pub const fn for_ethernet_mtu(mtu_bytes: u32) -> Option<Self> {
        const RESERVED_BYTES: u32 = 80;
        let mut index = Self::ALL.len();
        while index > 0 {
            index -= 1;
            if Self::ALL[index].bytes() + RESERVED_BYTES <= mtu_bytes {
                return Some(Self::ALL[index]);
            }
        }
        None
    }
}

/// Address of a port in the verbs: 16 bytes in wire order, an IPv6 address, or `::ffff:a.b.c.d` for an IPv4 address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Returns the GID of an IPv4 address.
    pub const fn from_ipv4(address: Ipv4Addr) -> Self {
        Self(address.to_ipv6_mapped().octets())
    }

    /// Returns the GID of an IPv6 address: the same 16 bytes.
    pub const fn from_ipv6(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }

    /// Returns the link-local GID of a MAC address: fe80::/64 and the EUI-64, with ff:fe in the middle and the universal/local
    /// bit inverted.
    pub const fn from_mac(mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self([0xFE, 0x80, 0, 0, 0, 0, 0, 0, a ^ 0x02, b, c, 0xFF, 0xFE, d, e, f])
    }

    /// Returns the IPv4 address, or `None` if the GID is an IPv6 address.
    pub const fn to_ipv4(self) -> Option<Ipv4Addr> {
        self.to_ipv6().to_ipv4_mapped()
    }

    /// Returns the 16 bytes as an IPv6 address.
    pub const fn to_ipv6(self) -> Ipv6Addr {
        let bits = u128::from_be_bytes(self.0);
        Ipv6Addr::from_bits(bits)
    }
}

/// Returns the UDP source port for a 20-bit flow label, 0xC000 to 0xFFFF (protocol 1.2).
pub const fn source_port(flow_label: u32) -> u16 {
    let folded = (flow_label & 0x3FFF) ^ ((flow_label & 0xF_C000) >> 14);
    folded as u16 | SOURCE_PORT_BASE
}

/// Returns the default flow label of a connection, derived from its QPNs, the same for both directions (protocol 1.2).
pub const fn flow_label(local_qp: u32, remote_qp: u32) -> u32 {
    let mut mixed = local_qp as u64 * remote_qp as u64;
    mixed ^= mixed >> 20;
    mixed ^= mixed >> 40;
    (mixed & 0xF_FFFF) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pmtu_codes_double_from_256_to_4096() {
        assert_eq!(Pmtu::ALL.map(Pmtu::bytes), [256, 512, 1024, 2048, 4096]);
        for code in 0..=255 {
            assert_eq!(Pmtu::from_code(code).map(Pmtu::code), (1..=5).contains(&code).then_some(code));
        }
    }

    #[test]
    fn an_ethernet_mtu_gives_the_pmtu_that_linux_gives() {
        assert_eq!(Pmtu::for_ethernet_mtu(1500), Some(Pmtu::Bytes1024));
        assert_eq!(Pmtu::for_ethernet_mtu(9000), Some(Pmtu::Bytes4096));
        assert_eq!(Pmtu::for_ethernet_mtu(336), Some(Pmtu::Bytes256));
        assert_eq!(Pmtu::for_ethernet_mtu(335), None);
    }

    #[test]
    fn an_ipv4_gid_is_the_mapped_address() {
        let address = Ipv4Addr::new(192, 168, 1, 10);
        let gid = Gid::from_ipv4(address);
        assert_eq!(gid.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 168, 1, 10]);
        assert_eq!(gid.to_ipv4(), Some(address));
        let address = "fd00::10".parse().unwrap();
        assert_eq!(Gid::from_ipv6(address).to_ipv4(), None);
        assert_eq!(Gid::from_ipv6(address).to_ipv6(), address);
    }

    #[test]
    fn the_default_gid_flips_the_local_bit() {
        let gid = Gid::from_mac([0x02, 0, 0, 0, 0, 0x01]);
        assert_eq!(gid.to_ipv6(), "fe80::ff:fe00:1".parse::<Ipv6Addr>().unwrap());
    }

    #[test]
    fn a_source_port_folds_the_flow_label() {
        assert_eq!(source_port(0), 0xC000);
        assert_eq!(source_port(0x3FFF), 0xFFFF);
        assert_eq!(source_port(0xF_C000), 0xC03F);
        assert_eq!(source_port(0x1_2345), 0xC000 | (0x2345 ^ 0x4));
    }

    #[test]
    fn a_flow_label_does_not_depend_on_who_asks() {
        // 0x11 * 0x12 = 0x132 has nothing above bit 19 to fold.
        assert_eq!(flow_label(0x11, 0x12), 0x132);
        // 0xABCDEF * 0x123456 = 0xC379A59BA4A; its 20-bit digits are 0xC, 0x379A5 and 0x9BA4A, and all three are XORed.
        assert_eq!(flow_label(0xAB_CDEF, 0x12_3456), 0xAC3E3);
        assert_eq!(flow_label(0xAB_CDEF, 0x12_3456), flow_label(0x12_3456, 0xAB_CDEF));
    }
}
