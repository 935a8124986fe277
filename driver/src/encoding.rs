//! MAC addresses and path MTUs, as registers and commands encode them.

use rnic_layout::path::Pmtu;
use rnic_layout::state::PathMtu;

/// MAC address as a number: the first byte on the wire is the most significant of the low six.
pub(crate) fn mac_number(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Path MTU as its field encodes it.
pub(crate) fn path_mtu(pmtu: Pmtu) -> PathMtu {
    match pmtu {
        Pmtu::Bytes256 => PathMtu::Bytes256,
        Pmtu::Bytes512 => PathMtu::Bytes512,
        Pmtu::Bytes1024 => PathMtu::Bytes1024,
        Pmtu::Bytes2048 => PathMtu::Bytes2048,
        Pmtu::Bytes4096 => PathMtu::Bytes4096,
    }
}
