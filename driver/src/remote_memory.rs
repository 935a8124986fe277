//! Remote access: the rights of peers to memory of this host, and the address, key and size of memory of a peer.

use std::ops::Range;

/// Operations that peers may execute on a region. Each also needs the same right of the queue pair (protocol 4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteRights {
    /// Peers may execute RDMA WRITEs.
    pub write: bool,
    /// Peers may execute RDMA READs.
    pub read: bool,
    /// Peers may execute atomics.
    pub atomic: bool,
}

impl RemoteRights {
    /// No remote access.
    pub const NONE: Self = Self { write: false, read: false, atomic: false };
    /// RDMA WRITE only.
    pub const WRITE: Self = Self { write: true, read: false, atomic: false };
    /// RDMA WRITE, RDMA READ and atomics.
    pub const ALL: Self = Self { write: true, read: true, atomic: true };
}

/// Memory of a peer: the information that the peer has advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Address of the first byte.
    pub address: u64,
    /// Remote key (`R_Key`).
    pub key: u32,
    /// Size in bytes.
    pub bytes: u64,
}

impl RemoteMemory {
    /// Length of the encoding of [`Self::to_bytes`], in bytes.
    pub const BYTES: usize = 20;

    /// Returns the part of `bytes` bytes at byte `offset`, or `None` if it reaches beyond the end.
    pub const fn part(self, offset: u64, bytes: u64) -> Option<Self> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => {
                Some(Self { address: self.address.wrapping_add(offset), key: self.key, bytes })
            }
            _ => None,
        }
    }

    /// Encodes it for a peer: address, key and size, big-endian.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_be_bytes());
        bytes[12..].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    /// Decodes what a peer has encoded with [`Self::to_bytes`].
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let number = |range: Range<usize>| {
            bytes[range].iter().fold(0, |number: u64, &byte| number << 8 | u64::from(byte))
        };
        Self { address: number(0..8), key: number(8..12) as u32, bytes: number(12..20) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_remote_memory_stays_inside() {
        let memory = RemoteMemory { address: 0x1000, key: 7, bytes: 100 };
        assert_eq!(memory.part(60, 40), Some(RemoteMemory { address: 0x103c, key: 7, bytes: 40 }));
        assert_eq!(memory.part(60, 41), None);
        assert_eq!(memory.part(u64::MAX, 2), None);
    }

    #[test]
    fn remote_memory_is_decoded_as_it_was_encoded() {
        let memory = RemoteMemory { address: 0x0102_0304_0506_0708, key: 0x0a0b_0c0d, bytes: 1 << 40 };
        assert_eq!(RemoteMemory::from_bytes(memory.to_bytes()), memory);
    }
}
