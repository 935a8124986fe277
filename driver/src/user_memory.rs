//! Memory of the application that is registered: vectors, mappings, memory of other allocators. This is one of the modules with
//! `unsafe` code.
//!
//! | | [`UserMemory`] | [`Buffer`] |
//! |---|---|---|
//! | who has the bytes | the value alone, as a `Vec` has | whoever the application lets have them |
//! | before and after the registration | a slice | what the application has made of it |
//! | registered as | [`Region`](crate::Region), [`SharedRegion`](crate::SharedRegion) | [`raw::Region`](crate::raw::Region) |
//! | address and length | any | any; buffers may overlap |
//!
//! A card reaches memory in whole pages, so the pages at both ends are mapped for it with whatever else they hold. It accesses only
//! the bytes that are registered: the region says which.
//!
//! A card in another process reaches only memory in a file: that of [`UserMemory::in_file`], and a [`Buffer`] in such memory or in
//! that of [`Memory`](crate::Memory).

use crate::page::{FilePages, PAGE_BYTES, PageSize, SharedFile, file_at};
use std::any::Any;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64};

const WORD_BYTES: usize = 8;

/// What the bytes belong to.
enum Owner {
    /// A vector of this capacity, taken apart.
    Vector { capacity: usize },
    /// A value that frees them when it is dropped.
    Value { _value: Box<dyn Any + Send + Sync> },
    /// Pages of a file.
    File { _pages: FilePages },
    /// Somebody who keeps them for longer.
    Other,
}

/// Bytes at any address, of any length, that this value has alone.
pub struct UserMemory {
    first: NonNull<u8>,
    bytes: usize,
    owner: Owner,
    /// The file that the bytes are a part of.
    file: Option<SharedFile>,
}

// SAFETY: The bytes belong to this value alone, as those of a vector do, and so does their owner, which can be sent.
#[expect(unsafe_code, reason = "the pointer is that of bytes that this value has alone")]
unsafe impl Send for UserMemory {}
// SAFETY: As above; shared references give access to a shared slice, or to atomics.
#[expect(unsafe_code, reason = "the pointer is that of bytes that this value has alone")]
unsafe impl Sync for UserMemory {}

impl UserMemory {
    /// Allocates zeroed memory in a file of its own, which cards in other processes can reach too. The length is `bytes` rounded up
    /// to whole pages.
    ///
    /// # Errors
    ///
    /// If the operating system refuses it, for example because it has no free pages of this size.
    pub fn in_file(bytes: usize, page_size: PageSize) -> io::Result<Self> {
        let pages = FilePages::zeroed(bytes, page_size)?;
        let (first, bytes) = (pages.first().cast(), pages.bytes());
        Ok(Self {
            first,
            bytes,
            file: file_at(first.as_ptr() as usize, bytes),
            owner: Owner::File { _pages: pages },
        })
    }

    /// Takes bytes of an allocator or a mapping. `owner` is dropped when nothing uses them any more.
    ///
    /// # Safety
    ///
    /// The bytes are readable and writable until `owner` is dropped. Until then they belong to the value that is made here: nothing
    /// else reads or writes them, and no reference to them is used, as with [`Vec::from_raw_parts`]. `owner` does not access them,
    /// other than to free them when it is dropped.
    #[expect(unsafe_code, reason = "the caller answers for the bytes")]
    pub unsafe fn from_raw_parts(
        first: NonNull<u8>,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            first,
            bytes,
            file: file_at(first.as_ptr() as usize, bytes),
            owner: Owner::Value { _value: owner },
        }
    }

    /// Gives a vector back that this was made from, or the value itself if it was made from something else.
    ///
    /// # Errors
    ///
    /// The value.
    pub fn into_vec(self) -> Result<Vec<u8>, Self> {
        if matches!(self.owner, Owner::Vector { .. }) {
            Ok(ManuallyDrop::new(self).take_vector())
        } else {
            Err(self)
        }
    }

    /// Puts the vector together again, which this value is not the owner of any more.
    #[expect(unsafe_code, reason = "a vector is put together")]
    fn take_vector(&mut self) -> Vec<u8> {
        match self.owner {
            // SAFETY: The parts are those of a vector that was taken apart, all of whose bytes are still initialized. It is taken
            // once: by `into_vec`, which forgets the value, or when the value is dropped.
            Owner::Vector { capacity } => unsafe {
                Vec::from_raw_parts(self.first.as_ptr(), self.bytes, capacity)
            },
            _ => Vec::new(),
        }
    }

    /// The bytes in the pages that hold them: offsets from the start of the first page.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.first.as_ptr() as usize % PAGE_BYTES;
        start..start + self.bytes
    }

    /// Bytes of the pages that hold the memory.
    pub(crate) fn page_bytes(&self) -> usize {
        self.range().end.next_multiple_of(PAGE_BYTES)
    }

    /// Address of the first page. Only [`Self::range`] may be accessed through it.
    pub(crate) fn page_address(&self) -> *const u8 {
        self.first.as_ptr().wrapping_sub(self.range().start)
    }

    /// The file that the pages are a part of, and the offset of the first page in it.
    pub(crate) fn file(&self) -> Option<(&SharedFile, u64)> {
        self.file.as_ref().map(|file| (file, file.offset - (self.range().start as u64)))
    }

    /// Size of the pages of the memory.
    pub(crate) fn page_size(&self) -> PageSize {
        self.file.as_ref().map_or(PageSize::Base, |file| file.page_size)
    }

    /// A word of the memory, by index from the start of the first page.
    #[expect(unsafe_code, reason = "memory that a card accesses is accessed by atomics")]
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        self.check(index * WORD_BYTES, WORD_BYTES);
        // SAFETY: The word lies among the bytes, and is aligned: pages are. While a card may access the bytes, this value is part
        // of a `Memory`, and nothing but atomics accesses them, other than slices on loan: see `crate::memory`.
        unsafe { AtomicU64::from_ptr(self.page_address().wrapping_add(index * WORD_BYTES).cast_mut().cast()) }
    }

    /// A byte of the memory, by its offset from the start of the first page.
    #[expect(unsafe_code, reason = "memory that a card accesses is accessed by atomics")]
    pub(crate) fn byte(&self, offset: usize) -> &AtomicU8 {
        self.check(offset, 1);
        // SAFETY: As for `word`; a byte is always aligned.
        unsafe { AtomicU8::from_ptr(self.page_address().wrapping_add(offset).cast_mut()) }
    }

    fn check(&self, offset: usize, length: usize) {
        let range = self.range();
        assert!(range.start <= offset && offset + length <= range.end, "an access lies inside the memory");
    }
}

impl From<Vec<u8>> for UserMemory {
    fn from(vector: Vec<u8>) -> Self {
        let mut vector = ManuallyDrop::new(vector);
        let first = NonNull::from(vector.as_mut_slice()).cast();
        let owner = Owner::Vector { capacity: vector.capacity() };
        Self { first, bytes: vector.len(), owner, file: None }
    }
}

impl From<Box<[u8]>> for UserMemory {
    fn from(bytes: Box<[u8]>) -> Self {
        bytes.into_vec().into()
    }
}

impl From<&'static mut [u8]> for UserMemory {
    fn from(slice: &'static mut [u8]) -> Self {
        let (first, bytes) = (NonNull::from(&mut *slice).cast::<u8>(), slice.len());
        Self { first, bytes, owner: Owner::Other, file: file_at(first.as_ptr() as usize, bytes) }
    }
}

impl Deref for UserMemory {
    type Target = [u8];

    #[expect(unsafe_code, reason = "the bytes are those of this value")]
    fn deref(&self) -> &[u8] {
        // SAFETY: The bytes exist as long as the owner does, and belong to this value: nobody else accesses them. A value that is
        // registered is part of a `Memory`, which does not do this.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.bytes) }
    }
}

impl DerefMut for UserMemory {
    #[expect(unsafe_code, reason = "the bytes are those of this value")]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: As for `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.bytes) }
    }
}

impl Drop for UserMemory {
    fn drop(&mut self) {
        drop(self.take_vector());
    }
}

impl fmt::Debug for UserMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserMemory({} bytes at {:p})", self.bytes, self.first)
    }
}

/// Bytes at any address, of any length, that the application goes on to use while they are registered, as with `ibv_reg_mr`.
///
/// ```
/// # use rnic_driver::{Error, ProtectionDomain, raw};
/// /// What `ibv_reg_mr` does.
/// ///
/// /// # Safety
/// ///
/// /// That of [`raw::Buffer::new`].
/// unsafe fn register(domain: &ProtectionDomain, address: *mut u8, bytes: usize) -> Result<raw::Region, Error> {
///     let buffer = unsafe { raw::Buffer::new(address, bytes) };
///     raw::Region::register(domain, buffer, &raw::Access { local_write: true, ..raw::Access::default() })
/// }
/// ```
#[derive(Debug)]
pub struct Buffer(pub(crate) UserMemory);

impl Buffer {
    /// Names bytes of the application.
    ///
    /// # Safety
    ///
    /// Until [`raw::Region::deregister`](crate::raw::Region::deregister) has succeeded, or the region was dropped and the card has
    /// confirmed that. If it has not, until the card was reset: when it is opened again, or, if its back end
    /// [isolates memory](crate::Function::isolates_memory), closed.
    ///
    /// * the bytes stay readable, and writable if the card or a peer may write them;
    /// * whoever accesses them expects the card, and peers if they have rights, to access them at the same time as far as requests
    ///   and peers do: with volatile or atomic accesses, or after the completion of the request;
    /// * no reference of Rust to bytes that a request, or a peer, may write is used.
    ///
    /// # Panics
    ///
    /// If the address is null, or the bytes reach beyond the end of the address space.
    #[expect(unsafe_code, reason = "the caller answers for the bytes")]
    pub unsafe fn new(address: *mut u8, bytes: usize) -> Self {
        let first = NonNull::new(address).expect("bytes have an address");
        let end =
            (address as usize).checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE_BYTES));
        assert!(end.is_some(), "bytes end before the address space does");
        Self(UserMemory { first, bytes, owner: Owner::Other, file: file_at(address as usize, bytes) })
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.0.first.as_ptr() as u64
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.bytes
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_vector_comes_back_as_it_was() {
        let mut vector = Vec::with_capacity(100);
        vector.extend_from_slice(b"some bytes");
        let (address, capacity) = (vector.as_ptr(), vector.capacity());
        let mut memory = UserMemory::from(vector);
        memory[0] = b'S';
        memory.byte(memory.range().start + 1).store(b'O', Ordering::Relaxed);
        let vector = memory.into_vec().unwrap();
        assert_eq!((&*vector, vector.as_ptr(), vector.capacity()), (&b"SOme bytes"[..], address, capacity));
        let boxed = UserMemory::from(vec![7; 5].into_boxed_slice());
        assert_eq!(boxed.into_vec().unwrap(), [7; 5]);
        assert!(UserMemory::from(Vec::new()).is_empty());
        let leaked: &'static mut [u8] = Box::leak(vec![1; 3].into_boxed_slice());
        assert_eq!(*UserMemory::from(leaked).into_vec().unwrap_err(), [1; 3]);
    }

    #[test]
    fn pages_hold_bytes_at_any_address() {
        let mut block = vec![0u8; 3 * PAGE_BYTES];
        let first = block.as_mut_ptr();
        let skipped = first.align_offset(PAGE_BYTES);
        for (offset, bytes, expected) in
            [(0, 1, 0..1), (4095, 2, 4095..4097), (5000, 3192, 904..4096), (4096, 0, 0..0)]
        {
            // SAFETY: The bytes are part of `block`, which nothing else accesses meanwhile.
            #[expect(unsafe_code, reason = "bytes at a given address")]
            let buffer = unsafe { Buffer::new(first.wrapping_add(skipped + offset), bytes) };
            assert_eq!((buffer.0.range(), buffer.len()), (expected.clone(), bytes));
            assert_eq!(buffer.0.page_bytes(), expected.end.next_multiple_of(4096));
            assert_eq!(buffer.0.page_address() as usize % 4096, 0);
            assert!(buffer.0.file().is_none(), "it is in this process alone");
        }
    }

    #[test]
    fn the_owner_lives_as_long_as_the_bytes_are_used() {
        let owner = Arc::new(());
        let mut bytes = [0u8; 8];
        // SAFETY: `bytes` is not used before the value is dropped.
        #[expect(unsafe_code, reason = "bytes of another owner")]
        let memory = unsafe {
            UserMemory::from_raw_parts(NonNull::from(&mut bytes).cast(), 8, Box::new(Arc::clone(&owner)))
        };
        assert_eq!(Arc::strong_count(&owner), 2);
        let memory = memory.into_vec().unwrap_err();
        drop(memory);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn a_part_of_a_file_is_known_as_such() {
        let mut memory = UserMemory::in_file(3 * PAGE_BYTES, PageSize::Base).unwrap();
        assert_eq!(memory.file().unwrap().1, 0);
        // SAFETY: The buffer is dropped before the memory.
        #[expect(unsafe_code, reason = "bytes at a given address")]
        let buffer = unsafe { Buffer::new(memory.as_mut_ptr().wrapping_add(PAGE_BYTES + 100), PAGE_BYTES) };
        let (file, offset) = buffer.0.file().unwrap();
        assert_eq!((offset, buffer.0.page_bytes()), (PAGE_BYTES as u64, 2 * PAGE_BYTES));
        assert!(Arc::ptr_eq(&file.file, &memory.file().unwrap().0.file));
        let address = memory.as_mut_ptr();
        drop((buffer, memory));
        // SAFETY: Nothing accesses the bytes.
        #[expect(unsafe_code, reason = "bytes at a given address")]
        let stale = unsafe { Buffer::new(address, 1) };
        assert!(stale.0.file().is_none(), "the mapping has ended");
    }

    #[test]
    #[should_panic(expected = "an access lies inside the memory")]
    fn bytes_beside_the_memory_are_not_accessed() {
        let memory = UserMemory::from(vec![0; 64]);
        memory.byte(memory.range().end);
    }
}
