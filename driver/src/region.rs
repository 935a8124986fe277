//! Memory regions: local memory with one owner at a time, and shared memory that peers access at any moment.
//!
//! | | [`Region`] | [`SharedRegion`] |
//! |---|---|---|
//! | accessed by | posted requests of this host | peers, at any moment |
//! | view of the application | slices, while it owns the range | copies, never a slice |
//! | posting | moves into the request, returns with the completion | cannot be posted |
//!
//! Both are made of memory that the back end allocates, or of memory that the application had and moves here ([`UserMemory`]): a
//! vector, a mapping, memory of another allocator, at any address and of any length. The application gets it back.
//!
//! Without an IOMMU the memory of a region may be scattered. The card then gets a list of its pages, of the largest page size
//! that fits.

use crate::device::{DeviceShared, IdAllocators, NewObject};
use crate::error::{Error, check_option};
use crate::function::{DmaSegment, FunctionError};
use crate::mapping::{Mapping, allocate};
use crate::memory::{Loan, LoanMut, Memory, PageSize, Purpose};
use crate::pages::Pages;
use crate::protection_domain::{ProtectionDomain, ProtectionDomainShared};
use crate::remote_memory::{RemoteMemory, RemoteRights};
use crate::ring::Words;
use crate::sge::Sge;
use crate::sync::lock;
use crate::user_memory::UserMemory;
use rand::Rng;
use rnic_layout::admin::{Body, CommandOpcode, CreateRegion, RegionKind, Translation};
use rnic_layout::limits::PAGE_LOG2_MIN;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Width of the index in a key, in bits. The variant occupies the low bits below it.
const KEY_INDEX_BITS: u32 = 24;
/// Width of the variant in a key, in bits.
const VARIANT_BITS: u32 = 8;

/// A registered memory region. It is deregistered when neither the application nor a posted request holds a part of it.
pub(crate) struct RegionShared {
    domain: Arc<ProtectionDomainShared>,
    pub(crate) key: u32,
    /// Address of the first byte in the address space of the key.
    pub(crate) first_address: u64,
    pub(crate) bytes: usize,
    /// Offset of the first byte in the memory.
    offset: usize,
    mapping: Mapping,
    /// First entry of the page list in the card's page table, if the memory is scattered.
    first_entry: Option<u16>,
}

/// Address translation of a region, as the create command describes it.
struct RegionTranslation {
    translation: Translation,
    page_log2: u8,
    translation_base: u64,
    first_offset: u32,
    first_entry: Option<u16>,
    /// Page list, which the card reads during the command.
    list: Option<Mapping>,
}

impl RegionTranslation {
    fn new(device: &DeviceShared, segments: &[DmaSegment], bytes: usize) -> Result<Self, Error> {
        let Some(pages) = Pages::of(segments, bytes) else {
            let translation_base = segments.first().map_or(0, |segment| segment.device_address);
            return Ok(Self {
                translation: Translation::Contiguous,
                page_log2: PAGE_LOG2_MIN,
                translation_base,
                first_offset: 0,
                first_entry: None,
                list: None,
            });
        };
        if !device.limits.features.page_lists {
            return Err(FunctionError::Unsupported {
                what: "map memory contiguously, which this card needs because it has no page lists",
            }
            .into());
        }
        let list = Mapping::new(&device.function, size_of_val(&pages.addresses[..]), Purpose::Ring)?;
        for (index, &address) in pages.addresses.iter().enumerate() {
            list.words().store(index, address.to_le(), Ordering::Relaxed);
        }
        let first_entry = lock(&device.ids).pages.allocate(pages.addresses.len())?;
        Ok(Self {
            translation: Translation::PageList,
            page_log2: pages.log2,
            translation_base: list.device_address(),
            first_offset: if mutant!("page-offset-lost") { 0 } else { pages.first_offset },
            first_entry: Some(first_entry),
            list: Some(list),
        })
    }
}

/// Frees the index of a key, and the run of the page table.
fn free_ids(ids: &mut IdAllocators, key: u32, first_entry: Option<u16>) {
    ids.regions.free(key >> VARIANT_BITS);
    if let Some(first) = first_entry {
        ids.pages.free(first);
    }
}

/// What a region lets whom do, and where it lies in the address space of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) local_write: bool,
    pub(crate) rights: RemoteRights,
    pub(crate) invalidatable: bool,
    /// Address of the first byte; `None` for a random one, which reveals nothing about the host.
    pub(crate) first_address: Option<u64>,
}

impl Terms {
    fn new(rights: RemoteRights) -> Self {
        Self { local_write: true, rights, invalidatable: false, first_address: None }
    }
}

impl RegionShared {
    /// Allocates memory, and registers it.
    fn allocate(
        domain: &Arc<ProtectionDomainShared>,
        bytes: usize,
        page_size: PageSize,
        terms: Terms,
    ) -> Result<Arc<Self>, Error> {
        check_option("region.bytes", bytes as u64, 1, isize::MAX as u64)?;
        let memory = allocate(&domain.device.function, bytes, Purpose::Payload, page_size)?;
        Self::create(domain, memory, bytes, terms)
    }

    /// Registers memory of the application. If that fails, the memory is given back, unless the card may have it nevertheless.
    pub(crate) fn register(
        domain: &Arc<ProtectionDomainShared>,
        memory: UserMemory,
        terms: Terms,
    ) -> Result<Arc<Self>, RegisterError> {
        let bytes = memory.len();
        let memory = Arc::new(Memory::of_user(memory));
        let created = check_option("region.bytes", bytes as u64, 1, isize::MAX as u64)
            .and_then(|()| Self::create(domain, Arc::clone(&memory), bytes, terms));
        created.map_err(|error| {
            let memory = Arc::into_inner(memory).and_then(Memory::into_user).map(Box::new);
            RegisterError { error, memory }
        })
    }

    /// Registers `bytes` bytes of memory, from the first that may be accessed on.
    fn create(
        domain: &Arc<ProtectionDomainShared>,
        memory: Arc<Memory>,
        bytes: usize,
        terms: Terms,
    ) -> Result<Arc<Self>, Error> {
        let Terms { local_write, rights, invalidatable, first_address } = terms;
        let device = &domain.device;
        let offset = memory.range().start;
        let (mapping, segments) = Mapping::scattered(&device.function, memory)?;
        let (key, first_address) = {
            let ids = &mut *lock(&device.ids);
            let index = ids.regions.allocate_unpredictable(&mut ids.rng, KEY_INDEX_BITS, &[0])?;
            let variant: u8 = ids.rng.random();
            // Page-aligned, and far from both ends of the address space.
            let page = ids.rng.random_range(1u64 << 16..1 << 34);
            (index << VARIANT_BITS | u32::from(variant), first_address.unwrap_or(page << PAGE_LOG2_MIN))
        };
        let translated = match RegionTranslation::new(device, &segments, bytes) {
            Ok(translated) => translated,
            Err(error) => {
                free_ids(&mut lock(&device.ids), key, None);
                return Err(error);
            }
        };
        let RegionTranslation { translation, page_log2, translation_base, first_offset, first_entry, list } =
            translated;
        let body = CreateRegion {
            kind: RegionKind::Region,
            invalidatable,
            local_write,
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
        let memory: Vec<&Mapping> = list.iter().chain([&mapping]).collect();
        let object = NewObject {
            opcode: CommandOpcode::CreateRegion,
            number: key,
            body: Body::CreateRegion(body),
            memory: &memory,
        };
        domain.create(object, |ids| {
            free_ids(ids, key, first_entry);
        })?;
        let domain = Arc::clone(domain);
        Ok(Arc::new(Self { domain, key, first_address, bytes, offset, mapping, first_entry }))
    }

    /// The bytes of a range of the region, in the memory.
    fn place(&self, range: &Range<usize>) -> Range<usize> {
        self.offset + range.start..self.offset + range.end
    }

    /// Deregisters the region, of which there is no other handle, and gives memory of the application back.
    pub(crate) fn release(self) -> Result<UserMemory, ReleaseError> {
        let mapping = self.mapping.share();
        drop(self);
        mapping.into_memory().and_then(Memory::into_user).ok_or(ReleaseError::Kept)
    }
}

/// Memory of the application that could not be registered.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RegisterError {
    /// Why it is not registered; the text has it already, so that it is not a source too.
    pub error: Error,
    /// The memory, unless the card may have it nevertheless: it has not answered. It is kept until a reset then.
    pub memory: Option<Box<UserMemory>>,
}

impl From<RegisterError> for Error {
    fn from(error: RegisterError) -> Self {
        error.error
    }
}

/// Why memory of the application was not given back.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError<R = ()> {
    /// The region was split, has another handle, or was allocated by the driver. It is still registered.
    #[error(
        "the region is not whole, has another handle, or is not of memory of the application; join its parts, or drop it"
    )]
    NotWhole(R),
    /// The card has not confirmed that it does not use the memory any more, which is kept until a reset.
    #[error(
        "the card has not confirmed that it does not use the memory any more, which is kept until a reset; open the card again"
    )]
    Kept,
}

impl<R> ReleaseError<R> {
    /// The same failure of a region of another kind, which there is no region left of.
    fn kept(_: ReleaseError) -> Self {
        Self::Kept
    }
}

impl Drop for RegionShared {
    fn drop(&mut self) {
        if mutant!("unmap-before-destroy") {
            let function = &self.domain.device.function;
            self.mapping = Mapping::new(function, 1, Purpose::Payload).expect("a byte can be mapped");
        }
        let is_freed_early = mutant!("index-freed-before-destroy");
        if is_freed_early {
            free_ids(&mut lock(&self.domain.device.ids), self.key, self.first_entry);
        }
        // The card answers when nothing in flight uses the key any more; the mapping is dropped after that. The card keeps
        // the context of an invalidated key until then, so its index cannot be allocated earlier either.
        if self.domain.destroy(CommandOpcode::DestroyRegion, self.key, &[&self.mapping]) && !is_freed_early {
            free_ids(&mut lock(&self.domain.device.ids), self.key, self.first_entry);
        }
    }
}

impl ProtectionDomain {
    /// Allocates `bytes` bytes of zeroed memory, and registers it for requests of this host only. The region can be split;
    /// its parts move into posted requests and return with the completions.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if `bytes` is zero, [`Error::Exhausted`] if all keys or page table entries are in use,
    /// [`Error::Command`] if the card refuses, or [`Error::Function`] if no memory is left.
    pub fn allocate(&self, bytes: usize) -> Result<Region, Error> {
        self.allocate_in(bytes, PageSize::Base)
    }

    /// As [`Self::allocate`], in pages of a size, to whole numbers of which memory is taken. Where memory is scattered, the card
    /// needs fewer entries of its page table for huge pages.
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`], and [`FunctionError::NoHugePages`] if the kernel has none free. A served card that takes no huge pages
    /// is [`ServerError::HugePages`](crate::ServerError::HugePages).
    pub fn allocate_in(&self, bytes: usize, page_size: PageSize) -> Result<Region, Error> {
        let terms = Terms::new(RemoteRights::NONE);
        Ok(Region::whole(RegionShared::allocate(&self.shared, bytes, page_size, terms)?))
    }

    /// Registers memory that the application had, for requests of this host only, as [`Self::allocate`] does with memory of the
    /// driver. [`Region::release`] gives it back.
    ///
    /// ```
    /// # use rnic_driver::{Error, ProtectionDomain, Region};
    /// fn register(domain: &ProtectionDomain) -> Result<Region, Error> {
    ///     Ok(domain.register(vec![7; 1000])?)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`RegisterError`] with the memory, and an error as of [`Self::allocate`]. A card in another process reaches only memory of
    /// [`UserMemory::in_file`]: [`FunctionError::NotShared`].
    pub fn register(&self, memory: impl Into<UserMemory>) -> Result<Region, RegisterError> {
        let terms = Terms::new(RemoteRights::NONE);
        Ok(Region::whole(RegionShared::register(&self.shared, memory.into(), terms)?))
    }

    /// Allocates `bytes` bytes of zeroed memory, and registers it for peers, who can access it once they have its
    /// [`SharedRegion::remote`].
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`].
    pub fn share(&self, bytes: usize, rights: RemoteRights) -> Result<SharedRegion, Error> {
        self.share_in(bytes, rights, PageSize::Base)
    }

    /// As [`Self::share`], in pages of a size.
    ///
    /// # Errors
    ///
    /// As [`Self::allocate_in`].
    pub fn share_in(
        &self,
        bytes: usize,
        rights: RemoteRights,
        page_size: PageSize,
    ) -> Result<SharedRegion, Error> {
        let shared = RegionShared::allocate(&self.shared, bytes, page_size, Terms::new(rights))?;
        Ok(SharedRegion { shared })
    }

    /// Registers memory that the application had, for peers, as [`Self::share`] does with memory of the driver.
    /// [`SharedRegion::release`] gives it back; until then nobody has it as a slice.
    ///
    /// # Errors
    ///
    /// As [`Self::register`].
    pub fn register_shared(
        &self,
        memory: impl Into<UserMemory>,
        rights: RemoteRights,
    ) -> Result<SharedRegion, RegisterError> {
        let shared = RegionShared::register(&self.shared, memory.into(), Terms::new(rights))?;
        Ok(SharedRegion { shared })
    }

    /// As [`Self::share`], with a key that can be invalidated: by this host with
    /// [`Operation::LocalInvalidate`](crate::Operation::LocalInvalidate), by a peer with
    /// [`Operation::SendInvalidate`](crate::Operation::SendInvalidate). The memory remains; the key never becomes valid again.
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`].
    pub fn share_invalidatable(&self, bytes: usize, rights: RemoteRights) -> Result<SharedRegion, Error> {
        let terms = Terms { invalidatable: true, ..Terms::new(rights) };
        let shared = RegionShared::allocate(&self.shared, bytes, PageSize::Base, terms)?;
        Ok(SharedRegion { shared })
    }
}

/// Range of local memory, exclusively owned. Posting a request moves it to the card, and the completion returns it.
pub struct Region {
    shared: Arc<RegionShared>,
    /// Range of the registered bytes.
    range: Range<usize>,
}

impl Region {
    fn whole(shared: Arc<RegionShared>) -> Self {
        let range = 0..shared.bytes;
        Self { shared, range }
    }

    /// Length of the range in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Local key (`L_Key`) of the registration.
    pub fn key(&self) -> u32 {
        self.shared.key
    }

    /// Address of the first byte, as an SGE refers to it. It is not a pointer.
    pub fn address(&self) -> u64 {
        self.shared.first_address + self.range.start as u64
    }

    /// Returns the bytes as a slice for reading.
    pub fn bytes(&self) -> Loan<'_> {
        self.shared.mapping.memory().lend(self.shared.place(&self.range))
    }

    /// Returns the bytes as a slice for reading and writing.
    pub fn bytes_mut(&mut self) -> LoanMut<'_> {
        self.shared.mapping.memory().lend_mut(self.shared.place(&self.range))
    }

    /// Splits the range at byte `at`. Both parts can be posted independently.
    ///
    /// # Errors
    ///
    /// Returns the range itself if it is shorter than `at`.
    pub fn split_at(self, at: usize) -> Result<(Self, Self), Self> {
        if at > self.len() {
            return Err(self);
        }
        let cut = self.range.start + at;
        let left = Self { shared: Arc::clone(&self.shared), range: self.range.start..cut };
        Ok((left, Self { range: cut..self.range.end, ..self }))
    }

    /// Joins two adjacent ranges of one registration.
    ///
    /// # Errors
    ///
    /// Returns both if `next` does not begin where this range ends.
    pub fn join(self, next: Self) -> Result<Self, (Self, Self)> {
        if !Arc::ptr_eq(&self.shared, &next.shared) || self.range.end != next.range.start {
            return Err((self, next));
        }
        Ok(Self { range: self.range.start..next.range.end, ..self })
    }

    /// Deregisters memory of the application, and gives it back.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotWhole`] with the region if a part of it is elsewhere, or it is memory of the driver.
    /// [`ReleaseError::Kept`] if the card does not answer.
    pub fn release(self) -> Result<UserMemory, ReleaseError<Self>> {
        let Self { shared, range } = self;
        match sole(shared) {
            Ok(region) => region.release().map_err(ReleaseError::kept),
            Err(shared) => Err(ReleaseError::NotWhole(Self { shared, range })),
        }
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

/// Returns a region of memory of the application of which there is no other handle.
fn sole(shared: Arc<RegionShared>) -> Result<RegionShared, Arc<RegionShared>> {
    if shared.mapping.memory().is_of_user() { Arc::try_unwrap(shared) } else { Err(shared) }
}

/// Access beyond the end of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes at offset {offset} reach beyond the end of a region of {bytes} bytes")]
pub struct RangeError {
    /// Offset of the access, in bytes.
    pub offset: usize,
    /// Length of the access, in bytes.
    pub length: usize,
    /// Size of the region, in bytes.
    pub bytes: usize,
}

/// Memory that peers access at any moment. The application copies bytes in and out, and never has a slice; a copy is not
/// atomic, so its bytes may be of different age. Clones are cheap and refer to the same region, which is deregistered with
/// the last of them.
#[derive(Clone)]
pub struct SharedRegion {
    shared: Arc<RegionShared>,
}

impl SharedRegion {
    /// Size of the region in bytes.
    pub fn len(&self) -> usize {
        self.shared.bytes
    }

    /// Returns whether the region is empty, which it never is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address, key and size of the region, which a peer needs to access it.
    pub fn remote(&self) -> RemoteMemory {
        let RegionShared { key, first_address, bytes, .. } = *self.shared;
        RemoteMemory { address: first_address, key, bytes: bytes as u64 }
    }

    /// Names `length` bytes from byte `offset` on, for a request of [`raw`](crate::raw). The card may access them as long as the
    /// request is in flight, as a peer may.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if they reach beyond the end of the region.
    pub fn sge(&self, offset: usize, length: u32) -> Result<Sge, RangeError> {
        self.check(offset, length as usize)?;
        Ok(Sge::new(self.shared.first_address + offset as u64, self.shared.key, length))
    }

    /// Copies all bytes of the region, which peers may change meanwhile.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes).expect("the copy is as long as the region");
        bytes
    }

    /// Copies `into.len()` bytes out of the region, from byte `offset` on.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if they reach beyond the end of the region; nothing is copied then.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), RangeError> {
        self.check(offset, into.len())?;
        self.shared.mapping.memory().read(self.shared.offset + offset, into);
        Ok(())
    }

    /// Copies `from` into the region, from byte `offset` on.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if it reaches beyond the end of the region; nothing is copied then.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), RangeError> {
        self.check(offset, from.len())?;
        self.shared.mapping.memory().write(self.shared.offset + offset, from);
        Ok(())
    }

    /// Deregisters memory of the application, and gives it back. No peer reaches it any more.
    ///
    /// # Errors
    ///
    /// As [`Region::release`]; a clone counts as a part that is elsewhere.
    pub fn release(self) -> Result<UserMemory, ReleaseError<Self>> {
        match sole(self.shared) {
            Ok(region) => region.release().map_err(ReleaseError::kept),
            Err(shared) => Err(ReleaseError::NotWhole(Self { shared })),
        }
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
