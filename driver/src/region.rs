//! Registered memory: pieces that belong to one owner at a time, and memory that peers reach whenever they like.
//!
//! | | [`Region`] | [`SharedRegion`] |
//! |---|---|---|
//! | who can reach it | this host's posted work | peers too, at any moment |
//! | how the application sees it | slices, while it holds the piece | copies, never a slice |
//! | how it is posted | moves into the post, comes back with the completion | not at all |
//!
//! Where there is no IOMMU, the memory of a region may lie scattered: the card is told of its pages then, the largest that fit.

use crate::device::DeviceShared;
use crate::error::{Error, check_option};
use crate::function::{DmaSegment, FunctionError};
use crate::memory::{Loan, LoanMut, Mapping, Purpose};
use crate::pages::Pages;
use crate::protection_domain::ProtectionDomainShared;
use crate::ring::Words;
use crate::sync::lock;
use rand::Rng;
use rnic_layout::admin::{Body, CommandOpcode, CreateRegion, RegionKind, Translation};
use rnic_layout::limits::PAGE_LOG2_MIN;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What peers may do with a region; the same rights of the queue pair must hold too (protocol 4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteRights {
    /// Peers may write.
    pub write: bool,
    /// Peers may read.
    pub read: bool,
    /// Peers may do atomics.
    pub atomic: bool,
}

impl RemoteRights {
    /// Peers may do nothing.
    pub const NONE: Self = Self { write: false, read: false, atomic: false };
    /// Peers may write.
    pub const WRITE: Self = Self { write: true, read: false, atomic: false };
    /// Peers may do everything.
    pub const ALL: Self = Self { write: true, read: true, atomic: true };
}

/// Bits of the index in a key; the other eight are the variant.
const KEY_INDEX_BITS: u32 = 24;
const VARIANT_BITS: u32 = 8;

/// A registration. The card forgets it when nothing of it is left, neither with the application nor in posted work.
pub(crate) struct RegionShared {
    domain: Arc<ProtectionDomainShared>,
    key: u32,
    /// Address of the first byte in keys' address space. Random, so that it tells nothing about the host.
    first_address: u64,
    bytes: usize,
    mapping: Mapping,
    /// Its first entry in the card's table of pages, if it lies scattered.
    first_entry: Option<u16>,
}

/// Where a region is, as its command says it.
struct Placed {
    translation: Translation,
    page_log2: u8,
    translation_base: u64,
    first_offset: u32,
    first_entry: Option<u16>,
    /// The card reads it while it executes the command.
    _list: Option<Mapping>,
}

impl Placed {
    fn new(device: &DeviceShared, segments: &[DmaSegment], bytes: usize) -> Result<Self, Error> {
        let Some(pages) = Pages::of(segments, bytes) else {
            let translation_base = segments.first().map_or(0, |segment| segment.device_address);
            return Ok(Self {
                translation: Translation::Contiguous,
                page_log2: PAGE_LOG2_MIN,
                translation_base,
                first_offset: 0,
                first_entry: None,
                _list: None,
            });
        };
        if !device.limits.features.page_lists {
            return Err(FunctionError::Unsupported { what: "give this card memory in one piece" }.into());
        }
        let list = Mapping::new(&device.function, size_of_val(&pages.addresses[..]), Purpose::Ring)?;
        for (index, &address) in pages.addresses.iter().enumerate() {
            list.memory().store(index, address.to_le(), Ordering::Relaxed);
        }
        let first_entry = lock(&device.ids).pages.allocate(pages.addresses.len())?;
        Ok(Self {
            translation: Translation::PageList,
            page_log2: pages.log2,
            translation_base: list.device_address(),
            first_offset: pages.first_offset,
            first_entry: Some(first_entry),
            _list: Some(list),
        })
    }
}

/// Gives back what only the driver counts.
fn free_ids(device: &DeviceShared, key: u32, first_entry: Option<u16>) {
    let mut ids = lock(&device.ids);
    ids.regions.free(key >> VARIANT_BITS);
    if let Some(first) = first_entry {
        ids.pages.free(first);
    }
}

impl RegionShared {
    pub(crate) fn create(
        domain: &Arc<ProtectionDomainShared>,
        bytes: usize,
        rights: RemoteRights,
        invalidatable: bool,
    ) -> Result<Arc<Self>, Error> {
        check_option("region.bytes", bytes as u64, 1, isize::MAX as u64)?;
        let device = &domain.device;
        let (mapping, segments) = Mapping::scattered(&device.function, bytes, Purpose::Payload)?;
        let (key, first_address) = {
            let ids = &mut *lock(&device.ids);
            let index = ids.regions.allocate_unpredictable(&mut ids.rng, KEY_INDEX_BITS, &[0])?;
            let variant: u8 = ids.rng.random();
            // Far from both ends of the address space, on a page.
            let page = ids.rng.random_range(1u64 << 16..1 << 34);
            (index << VARIANT_BITS | u32::from(variant), page << PAGE_LOG2_MIN)
        };
        let placed = match Placed::new(device, &segments, bytes) {
            Ok(placed) => placed,
            Err(error) => {
                free_ids(device, key, None);
                return Err(error);
            }
        };
        let Placed { translation, page_log2, translation_base, first_offset, first_entry, .. } = placed;
        let body = CreateRegion {
            kind: RegionKind::Region,
            invalidatable,
            local_write: true,
            remote_write: rights.write,
            remote_read: rights.read,
            remote_atomic: rights.atomic,
            window_bind: false,
            zero_based: false,
            relaxed_order: false,
            translation,
            page_log2,
            domain: domain.number,
            first_address,
            length: bytes as u64,
            translation_base,
            first_offset,
            first_entry: first_entry.unwrap_or(0),
        };
        let created = device.execute(CommandOpcode::CreateRegion, key, Body::CreateRegion(body));
        if let Err(error) = created {
            free_ids(device, key, first_entry);
            return Err(error);
        }
        Ok(Arc::new(Self { domain: Arc::clone(domain), key, first_address, bytes, mapping, first_entry }))
    }
}

impl Drop for RegionShared {
    fn drop(&mut self) {
        // Answered when nothing in flight uses the key any more; only then the mapping goes. A key that work or a peer has ended
        // still stands on the card until then, and so its index is nobody else's.
        let device = &self.domain.device;
        device.end(CommandOpcode::DestroyRegion, self.key);
        free_ids(device, self.key, self.first_entry);
    }
}

/// A piece of local memory, owned: whoever holds it is the only one who can reach its bytes. Posting moves it to the
/// card, and the completion gives it back.
pub struct Region {
    shared: Arc<RegionShared>,
    /// Bytes of the registration that are in this piece.
    range: Range<usize>,
}

impl Region {
    pub(crate) fn whole(shared: Arc<RegionShared>) -> Self {
        let range = 0..shared.bytes;
        Self { shared, range }
    }

    /// Size of the piece.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Tells whether the piece has no byte.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Key of the registration.
    pub fn key(&self) -> u32 {
        self.shared.key
    }

    /// Address of the first byte, as elements of work requests name it.
    pub fn address(&self) -> u64 {
        self.shared.first_address + self.range.start as u64
    }

    /// Takes the bytes for reading.
    pub fn bytes(&self) -> Loan<'_> {
        self.shared.mapping.memory().lend(self.range.clone())
    }

    /// Takes the bytes for reading and writing.
    pub fn bytes_mut(&mut self) -> LoanMut<'_> {
        self.shared.mapping.memory().lend_mut(self.range.clone())
    }

    /// Cuts the piece in two, at any byte. Both can be in flight at once.
    ///
    /// # Errors
    ///
    /// Gives the piece back if it is shorter than `at`.
    pub fn split_at(self, at: usize) -> Result<(Self, Self), Self> {
        if at > self.len() {
            return Err(self);
        }
        let cut = self.range.start + at;
        let left = Self { shared: Arc::clone(&self.shared), range: self.range.start..cut };
        Ok((left, Self { range: cut..self.range.end, ..self }))
    }

    /// Puts two neighbours together again.
    ///
    /// # Errors
    ///
    /// Gives both back if `next` does not follow right behind this piece.
    pub fn join(self, next: Self) -> Result<Self, (Self, Self)> {
        if !Arc::ptr_eq(&self.shared, &next.shared) || self.range.end != next.range.start {
            return Err((self, next));
        }
        Ok(Self { range: self.range.start..next.range.end, ..self })
    }

    pub(crate) fn domain(&self) -> &Arc<ProtectionDomainShared> {
        &self.shared.domain
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:#x}: {:?})", self.key(), self.range)
    }
}

/// An access beyond the end of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes at {offset} leave a region of {bytes} bytes")]
pub struct RangeError {
    /// First byte.
    pub offset: usize,
    /// Bytes of the access.
    pub length: usize,
    /// Bytes of the region.
    pub bytes: usize,
}

/// Memory that peers can reach at any moment, so it is never seen as a slice: bytes are copied in and out, and what is
/// copied out may be older in one place than in another. Handles are cheap to clone; the card forgets the key with the last.
#[derive(Clone)]
pub struct SharedRegion {
    shared: Arc<RegionShared>,
}

impl SharedRegion {
    pub(crate) fn new(shared: Arc<RegionShared>) -> Self {
        Self { shared }
    }

    /// Size of the region.
    pub fn len(&self) -> usize {
        self.shared.bytes
    }

    /// Tells whether the region has no byte; it always has one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a peer needs to know to reach the region.
    pub fn remote(&self) -> RemoteMemory {
        let RegionShared { key, first_address, bytes, .. } = *self.shared;
        RemoteMemory { address: first_address, key, bytes: bytes as u64 }
    }

    /// Copies bytes out.
    ///
    /// # Errors
    ///
    /// If they leave the region; nothing is copied then.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), RangeError> {
        self.check(offset, into.len())?;
        self.shared.mapping.memory().read(offset, into);
        Ok(())
    }

    /// Copies bytes in.
    ///
    /// # Errors
    ///
    /// If they leave the region; nothing is copied then.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), RangeError> {
        self.check(offset, from.len())?;
        self.shared.mapping.memory().write(offset, from);
        Ok(())
    }

    fn check(&self, offset: usize, length: usize) -> Result<(), RangeError> {
        let bytes = self.len();
        let inside = offset.checked_add(length).is_some_and(|end| end <= bytes);
        if inside { Ok(()) } else { Err(RangeError { offset, length, bytes }) }
    }
}

impl fmt::Debug for SharedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRegion({:#x}: {} bytes)", self.shared.key, self.len())
    }
}

/// Memory of a peer, as the peer has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Address of the first byte.
    pub address: u64,
    /// Key.
    pub key: u32,
    /// Size.
    pub bytes: u64,
}

impl RemoteMemory {
    /// Size of [`Self::to_bytes`].
    pub const BYTES: usize = 20;

    /// Gives a part of it; `None` if that is not inside.
    pub const fn part(self, offset: u64, bytes: u64) -> Option<Self> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => {
                Some(Self { address: self.address.wrapping_add(offset), key: self.key, bytes })
            }
            _ => None,
        }
    }

    /// Writes it down for a peer.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_be_bytes());
        bytes[12..].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    /// Reads what a peer has written down.
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
    fn remote_memory_survives_the_way_to_a_peer() {
        let memory = RemoteMemory { address: 0x0102_0304_0506_0708, key: 0x0a0b_0c0d, bytes: 1 << 40 };
        assert_eq!(RemoteMemory::from_bytes(memory.to_bytes()), memory);
    }
}
