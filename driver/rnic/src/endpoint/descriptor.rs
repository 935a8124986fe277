//! What a peer must know of an end, and its bytes.

use rnic_driver::{ConnectionInfo, RemoteMemory};

/// Most regions that an end offers in its descriptor. More are named in messages.
pub const REGIONS_MAX: usize = 64;

/// What a peer must know of an end: address, QPN and PSN, and the memory that it may access.
///
/// | bytes | content, big-endian |
/// |---|---|
/// | 0..29 | [`ConnectionInfo::to_bytes`]: QPN, PSN, GID, MAC address, code of the path MTU |
/// | 29..31 | number of regions, at most 64 |
/// | then 20 each | [`RemoteMemory::to_bytes`]: address, key, size |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// How the queue pair is reached.
    pub info: ConnectionInfo,
    /// Memory that the peer may access, in the order in which it was offered.
    pub memory: Vec<RemoteMemory>,
}

/// Why bytes are no descriptor of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// The length is none that a descriptor has.
    #[error("the descriptor has {found} bytes, and {expected} are needed")]
    Length {
        /// Its length.
        found: usize,
        /// Length for the number of regions that it names, or of one without regions.
        expected: usize,
    },
    /// It names more regions than are allowed.
    #[error(
        "the descriptor names {found} regions; {REGIONS_MAX} are allowed, and more can be named in messages"
    )]
    Regions {
        /// Number of regions.
        found: usize,
    },
    /// The code of the path MTU is none.
    #[error("the descriptor has the path MTU code {found}; 1 to 5 are allowed")]
    PathMtu {
        /// The code.
        found: u8,
    },
    /// The addresses are those of no host.
    #[error("the descriptor names no host: its {what} is zero, or that of a group")]
    Address {
        /// `GID` or `MAC address`.
        what: &'static str,
    },
}

/// Place of the number of regions.
const COUNT: usize = ConnectionInfo::BYTES;
/// Length of a descriptor without regions, in bytes.
const FIXED: usize = COUNT + 2;

impl Descriptor {
    /// Length of the longest descriptor, in bytes.
    pub const BYTES_MAX: usize = FIXED + REGIONS_MAX * RemoteMemory::BYTES;

    /// Encodes it for the peer.
    ///
    /// # Errors
    ///
    /// [`DescriptorError::Regions`] if it has more than [`REGIONS_MAX`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, DescriptorError> {
        let count = self.memory.len();
        if count > REGIONS_MAX {
            return Err(DescriptorError::Regions { found: count });
        }
        let mut bytes = self.info.to_bytes().to_vec();
        bytes.extend_from_slice(&(count as u16).to_be_bytes());
        bytes.extend(self.memory.iter().flat_map(|memory| memory.to_bytes()));
        Ok(bytes)
    }

    /// Decodes what a peer has encoded. Any bytes are allowed.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DescriptorError> {
        let wrong_length = |expected| DescriptorError::Length { found: bytes.len(), expected };
        let Some((info, rest)) = bytes.split_first_chunk::<{ ConnectionInfo::BYTES }>() else {
            return Err(wrong_length(FIXED));
        };
        let Some((count, regions)) = rest.split_first_chunk::<2>() else { return Err(wrong_length(FIXED)) };
        let count = usize::from(u16::from_be_bytes(*count));
        if count > REGIONS_MAX {
            return Err(DescriptorError::Regions { found: count });
        }
        let (memory, rest) = regions.as_chunks::<{ RemoteMemory::BYTES }>();
        if memory.len() != count || !rest.is_empty() {
            return Err(wrong_length(FIXED + count * RemoteMemory::BYTES));
        }
        let memory = memory.iter().map(|memory| RemoteMemory::from_bytes(*memory)).collect();
        let path_mtu = DescriptorError::PathMtu { found: info[COUNT - 1] };
        let info = ConnectionInfo::from_bytes(*info).ok_or(path_mtu)?;
        check_addresses(&info)?;
        Ok(Self { info, memory })
    }
}

/// Fails if the addresses are not those of one host.
fn check_addresses(info: &ConnectionInfo) -> Result<(), DescriptorError> {
    let is_group = info.gid.0[0] == 0xff;
    if info.gid.0 == [0; 16] || is_group {
        return Err(DescriptorError::Address { what: "GID" });
    }
    if info.mac == [0; 6] || info.mac[0] & 1 != 0 {
        return Err(DescriptorError::Address { what: "MAC address" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::path::{Gid, Pmtu};

    fn descriptor(regions: usize) -> Descriptor {
        let mac = [2, 0, 0, 0, 0, 1];
        let gid = Gid::from_mac(mac);
        let info =
            ConnectionInfo { qp_number: 0x1234, first_psn: 0xabcdef, gid, mac, path_mtu: Pmtu::Bytes1024 };
        let memory = |index| RemoteMemory { address: 0x1000 * index, key: index as u32, bytes: 64 };
        Descriptor { info, memory: (0..regions as u64).map(memory).collect() }
    }

    #[test]
    fn a_descriptor_is_decoded_as_it_was_encoded() {
        for regions in [0, 1, REGIONS_MAX] {
            let descriptor = descriptor(regions);
            let bytes = descriptor.to_bytes().unwrap();
            assert!(bytes.len() <= Descriptor::BYTES_MAX);
            assert_eq!(Descriptor::from_bytes(&bytes), Ok(descriptor));
        }
        let found = REGIONS_MAX + 1;
        assert_eq!(descriptor(found).to_bytes(), Err(DescriptorError::Regions { found }));
    }

    #[test]
    fn a_descriptor_of_another_length_is_refused() {
        let bytes = descriptor(2).to_bytes().unwrap();
        for length in 0..bytes.len() {
            assert!(Descriptor::from_bytes(&bytes[..length]).is_err(), "{length} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        let expected = DescriptorError::Length { found: bytes.len() + 1, expected: bytes.len() };
        assert_eq!(Descriptor::from_bytes(&longer), Err(expected));
    }

    #[test]
    fn a_descriptor_of_no_host_is_refused() {
        let good = descriptor(0).to_bytes().unwrap();
        let spoiled = |range: std::ops::Range<usize>, value| {
            let mut bytes = good.clone();
            bytes[range].fill(value);
            Descriptor::from_bytes(&bytes).unwrap_err().to_string()
        };
        assert!(spoiled(6..22, 0).contains("its GID is zero"));
        assert!(spoiled(6..7, 0xff).contains("its GID is zero, or that of a group"));
        assert!(spoiled(22..28, 0).contains("its MAC address is zero"));
        assert!(spoiled(22..23, 3).contains("its MAC address is zero, or that of a group"));
        assert!(spoiled(28..29, 9).contains("path MTU code 9; 1 to 5 are allowed"));
        assert!(spoiled(29..31, 1).contains("names 257 regions; 64 are allowed"));
    }
}
