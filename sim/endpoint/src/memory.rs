//! Byte memory, and the regions through which keys give access to it (protocol 4.6).

use std::collections::BTreeMap;
use std::ops::Range;

/// Access rights of memory, local and remote. A queue pair has remote rights as well: the peer may do what both the region and
/// the queue pair allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Receives, READ data and results of atomics may be placed here.
    pub local_write: bool,
    /// The peer may WRITE.
    pub remote_write: bool,
    /// The peer may READ.
    pub remote_read: bool,
    /// The peer may execute atomics.
    pub remote_atomic: bool,
}

impl Rights {
    /// Local reads only.
    pub const NONE: Self =
        Self { local_write: false, remote_write: false, remote_read: false, remote_atomic: false };
    /// All rights.
    pub const ALL: Self =
        Self { local_write: true, remote_write: true, remote_read: true, remote_atomic: true };
}

/// A memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Virtual address of the first byte, as used by work requests and the peer.
    pub first_address: u64,
    /// Length, in bytes.
    pub length: u64,
    /// Offset of the first byte in the endpoint's memory.
    pub offset: usize,
    /// Protection domain.
    pub domain: u32,
    /// Access rights.
    pub rights: Rights,
    /// The peer may invalidate the key with a SEND.
    pub invalidatable: bool,
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Gathers payload.
    LocalRead,
    /// Places a receive, READ data or the result of an atomic.
    LocalWrite,
    /// Places the payload of a WRITE of the peer.
    RemoteWrite,
    /// Answers a READ of the peer.
    RemoteRead,
    /// Executes an atomic of the peer.
    RemoteAtomic,
}

/// Why an access is refused, in the order of the checks (protocol 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No region has this key, all 32 bits of it.
    #[error("no region has this key")]
    Key,
    /// The region is in another protection domain.
    #[error("the region is in another protection domain")]
    Domain,
    /// The region does not allow this access.
    #[error("the region does not allow this access")]
    Right,
    /// The range exceeds the region, or wraps.
    #[error("the range exceeds the region")]
    Range,
}

/// An SGE of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// Virtual address in the region.
    pub address: u64,
    /// L_Key of the region.
    pub key: u32,
    /// Length in bytes. The key of an SGE of length zero is not checked.
    pub length: u32,
}

/// Memory and keys of the endpoint.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The bytes; tests may read and write them freely.
    pub bytes: Vec<u8>,
    regions: BTreeMap<u32, Region>,
}

impl Memory {
    /// Makes a memory of zeros without regions.
    pub fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], regions: BTreeMap::new() }
    }

    /// Registers a region under a key.
    ///
    /// # Panics
    ///
    /// If the key is in use, or the region exceeds the memory: a mistake of the test.
    pub fn register(&mut self, key: u32, region: Region) {
        let end = region.offset as u64 + region.length;
        assert!(end <= self.bytes.len() as u64, "the region ends beyond the memory");
        let before = self.regions.insert(key, region);
        assert!(before.is_none(), "key {key:#x} is in use");
    }

    /// Deregisters a region, whose key is invalid from now on.
    pub fn deregister(&mut self, key: u32) -> Option<Region> {
        self.regions.remove(&key)
    }

    /// Invalidates a key on behalf of the peer, if the region allows it. Returns whether it does (protocol 3.7).
    pub fn invalidate(&mut self, key: u32, domain: u32) -> bool {
        self.may_invalidate(key, domain) && self.regions.remove(&key).is_some()
    }

    /// Returns whether [`Self::invalidate`] would succeed.
    pub fn may_invalidate(&self, key: u32, domain: u32) -> bool {
        self.regions.get(&key).is_some_and(|region| region.invalidatable && region.domain == domain)
    }

    /// Returns the region of a key.
    pub fn region(&self, key: u32) -> Option<&Region> {
        self.regions.get(&key)
    }

    /// Returns the bytes of a region.
    ///
    /// # Panics
    ///
    /// If no region has this key.
    pub fn region_bytes(&mut self, key: u32) -> &mut [u8] {
        let region = self.regions[&key];
        &mut self.bytes[region.offset..][..region.length as usize]
    }

    /// Checks an access and returns the offset of its first byte in the memory.
    ///
    /// # Errors
    ///
    /// The first check that fails.
    pub fn check(
        &self,
        access: Access,
        key: u32,
        domain: u32,
        address: u64,
        length: u64,
    ) -> Result<Range<usize>, AccessError> {
        let region = self.regions.get(&key).ok_or(AccessError::Key)?;
        if region.domain != domain {
            return Err(AccessError::Domain);
        }
        let rights = region.rights;
        let allowed = match access {
            Access::LocalRead => true,
            Access::LocalWrite => rights.local_write,
            Access::RemoteWrite => rights.remote_write,
            Access::RemoteRead => rights.remote_read,
            Access::RemoteAtomic => rights.remote_atomic,
        };
        if !allowed {
            return Err(AccessError::Right);
        }
        // By subtraction, which cannot overflow.
        let offset = address.checked_sub(region.first_address).ok_or(AccessError::Range)?;
        let room = region.length.checked_sub(offset).ok_or(AccessError::Range)?;
        if length > room {
            return Err(AccessError::Range);
        }
        let start = region.offset + offset as usize;
        Ok(start..start + length as usize)
    }

    /// Checks all SGEs of a work request whose length is not zero.
    ///
    /// # Errors
    ///
    /// The error of the first invalid one.
    pub fn check_sges(&self, access: Access, domain: u32, sges: &[Sge]) -> Result<(), AccessError> {
        let used = sges.iter().filter(|sge| sge.length != 0);
        for sge in used {
            self.check(access, sge.key, domain, sge.address, sge.length.into())?;
        }
        Ok(())
    }

    /// Offsets and lengths in memory of `length` bytes that begin `offset` bytes into a scatter/gather list. SGEs that these
    /// bytes do not touch are not checked.
    pub(super) fn pieces(
        &self,
        access: Access,
        domain: u32,
        sges: &[Sge],
        offset: u64,
        length: usize,
    ) -> Result<Vec<Range<usize>>, AccessError> {
        let (mut skip, mut left) = (offset, length as u64);
        let mut pieces = Vec::new();
        for sge in sges {
            let here = u64::from(sge.length);
            let skipped = skip.min(here);
            skip -= skipped;
            let taken = left.min(here - skipped);
            if taken != 0 {
                let address = sge.address.checked_add(skipped).ok_or(AccessError::Range)?;
                pieces.push(self.check(access, sge.key, domain, address, taken)?);
                left -= taken;
            }
        }
        if left == 0 { Ok(pieces) } else { Err(AccessError::Range) }
    }

    /// Gathers bytes from a scatter/gather list.
    ///
    /// # Errors
    ///
    /// If an SGE that they touch may not be read, or the list is too short.
    pub fn gather(
        &self,
        domain: u32,
        sges: &[Sge],
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, AccessError> {
        let pieces = self.pieces(Access::LocalRead, domain, sges, offset, length)?;
        Ok(pieces.into_iter().flat_map(|piece| self.bytes[piece].iter().copied()).collect())
    }

    /// Scatters bytes to a scatter/gather list: all of them, or none if an SGE may not be written.
    ///
    /// # Errors
    ///
    /// If an SGE that they touch may not be written, or the list is too short.
    pub fn scatter(
        &mut self,
        domain: u32,
        sges: &[Sge],
        offset: u64,
        data: &[u8],
    ) -> Result<(), AccessError> {
        let pieces = self.pieces(Access::LocalWrite, domain, sges, offset, data.len())?;
        let mut rest = data;
        for piece in pieces {
            let (here, tail) = rest.split_at(piece.len());
            self.bytes[piece].copy_from_slice(here);
            rest = tail;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: Region = Region {
        first_address: 0x1_0000_0ff3,
        length: 100,
        offset: 10,
        domain: 7,
        rights: Rights::ALL,
        invalidatable: false,
    };

    fn memory() -> Memory {
        let mut memory = Memory::new(200);
        memory.register(0x105, REGION);
        memory.register(0x205, Region { rights: Rights::NONE, offset: 110, length: 50, ..REGION });
        memory
    }

    #[test]
    fn a_range_is_checked_on_both_sides_of_both_ends() {
        let (memory, first) = (memory(), REGION.first_address);
        let check = |address, length| memory.check(Access::RemoteWrite, 0x105, 7, address, length);
        assert_eq!(check(first, 100), Ok(10..110));
        assert_eq!(check(first + 99, 1), Ok(109..110));
        assert_eq!(check(first + 100, 0), Ok(110..110));
        for (address, length) in [
            (first - 1, 1),
            (first, 101),
            (first + 99, 2),
            (first + 101, 0),
            (u64::MAX, 2),
            (first + 1, u64::MAX),
        ] {
            assert_eq!(check(address, length), Err(AccessError::Range), "{address:#x}, {length}");
        }
    }

    #[test]
    fn all_bits_of_a_key_its_domain_and_its_rights_are_checked_in_this_order() {
        let (memory, first) = (memory(), REGION.first_address);
        let check = |access, key, domain| memory.check(access, key, domain, first, 200).unwrap_err();
        assert_eq!(check(Access::RemoteWrite, 0x106, 8), AccessError::Key);
        assert_eq!(check(Access::RemoteWrite, 0x205, 8), AccessError::Domain);
        assert_eq!(check(Access::RemoteWrite, 0x205, 7), AccessError::Right);
        assert_eq!(check(Access::RemoteWrite, 0x105, 7), AccessError::Range);
        let rights = [Access::LocalWrite, Access::RemoteWrite, Access::RemoteRead, Access::RemoteAtomic];
        assert!(rights.into_iter().all(|access| check(access, 0x205, 7) == AccessError::Right));
        assert_eq!(check(Access::LocalRead, 0x205, 7), AccessError::Range);
    }

    #[test]
    fn bytes_cross_sges_at_any_offset() {
        let mut memory = memory();
        let first = REGION.first_address;
        let sge = |offset, length| Sge { address: first + offset, key: 0x105, length };
        // The key of an empty SGE is not checked.
        let empty = Sge { address: 0, key: 0xdead, length: 0 };
        let sges = [sge(50, 3), empty, sge(0, 4), sge(90, 10)];
        let data: Vec<u8> = (1..=15).collect();
        for offset in 0..=2 {
            let data = &data[..15];
            memory.scatter(7, &sges, offset, data).unwrap();
            assert_eq!(memory.gather(7, &sges, offset, 15).unwrap(), data);
        }
        assert_eq!(memory.bytes[62..63], [1]);
        assert_eq!(memory.bytes[10..14], [2, 3, 4, 5]);
        assert_eq!(memory.scatter(7, &sges, 3, &data), Err(AccessError::Range));
    }

    #[test]
    fn a_scatter_that_fails_changes_nothing() {
        let mut memory = memory();
        let first = REGION.first_address;
        let sges =
            [Sge { address: first, key: 0x105, length: 4 }, Sge { address: first, key: 0x205, length: 4 }];
        assert_eq!(memory.scatter(7, &sges, 0, &[1; 8]), Err(AccessError::Right));
        assert!(memory.bytes.iter().all(|byte| *byte == 0));
        assert_eq!(memory.scatter(7, &sges, 0, &[1; 4]), Ok(()));
        assert_eq!(memory.gather(7, &sges, 0, 8), Ok(vec![1, 1, 1, 1, 0, 0, 0, 0]));
    }

    #[test]
    fn the_peer_frees_only_what_may_be_freed() {
        let mut memory = memory();
        memory.register(0x305, Region { invalidatable: true, ..REGION });
        assert!(!memory.invalidate(0x105, 7));
        assert!(!memory.invalidate(0x305, 8));
        assert!(memory.invalidate(0x305, 7));
        assert!(!memory.invalidate(0x305, 7));
    }
}
