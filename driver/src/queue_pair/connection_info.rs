//! Parameters that two peers exchange before they connect.

use rnic_layout::path::{Gid, Pmtu};

/// Parameters of one end of a connection. The application sends them to the peer over a channel of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Queue pair number, 24 bits.
    pub qp_number: u32,
    /// First PSN that this end sends.
    pub first_psn: u32,
    /// IP address.
    pub gid: Gid,
    /// MAC address.
    pub mac: [u8; 6],
    /// Largest path MTU of this end. The connection uses the smaller one of both ends (protocol 2.2).
    pub path_mtu: Pmtu,
}

impl ConnectionInfo {
    /// Length of the encoding of [`Self::to_bytes`], in bytes.
    pub const BYTES: usize = 29;

    /// Encodes it for the peer: QPN, PSN, GID, MAC address and the code of the path MTU, big-endian.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..3].copy_from_slice(&self.qp_number.to_be_bytes()[1..]);
        bytes[3..6].copy_from_slice(&self.first_psn.to_be_bytes()[1..]);
        bytes[6..22].copy_from_slice(&self.gid.0);
        bytes[22..28].copy_from_slice(&self.mac);
        bytes[28] = self.path_mtu.code();
        bytes
    }

    /// Decodes what the peer has encoded with [`Self::to_bytes`]. Returns `None` if the code of the path MTU is illegal.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let number = |first: usize| u32::from_be_bytes([0, bytes[first], bytes[first + 1], bytes[first + 2]]);
        Some(Self {
            qp_number: number(0),
            first_psn: number(3),
            gid: Gid(bytes[6..22].try_into().ok()?),
            mac: bytes[22..28].try_into().ok()?,
            path_mtu: Pmtu::from_code(bytes[28])?,
        })
    }
}
