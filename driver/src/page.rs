//! Pages of atomic words, and pages of a memory file, which another process can map too. This is one of the modules with `unsafe`
//! code.
//!
//! A memory file has no name and no other content. Its size is sealed, so that no process can take a page away from another one
//! that has mapped it. A process that is forked from this one does not have the pages: an access there ends it (SIGSEGV).

use crate::process::Process;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Size of a page of the machine in bytes: the unit of allocation and alignment.
pub const PAGE_BYTES: usize = 4096;
/// Words of a page.
pub(crate) const PAGE_WORDS: usize = PAGE_BYTES / size_of::<AtomicU64>();

/// A page of words that several parties access at the same time.
#[repr(C, align(4096))]
pub(crate) struct Page(pub(crate) [AtomicU64; PAGE_WORDS]);

/// Size of the pages that memory is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSize {
    /// Pages of the machine, 4 KiB.
    #[default]
    Base,
    /// Huge pages of 2 MiB.
    Huge2MiB,
    /// Huge pages of 1 GiB.
    Huge1GiB,
}

impl PageSize {
    /// Size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Base => PAGE_BYTES,
            Self::Huge2MiB => 2 << 20,
            Self::Huge1GiB => 1 << 30,
        }
    }

    /// File in which the kernel is told how many such pages to keep; `None` for those of the machine.
    pub const fn reserve(self) -> Option<&'static str> {
        match self {
            Self::Base => None,
            Self::Huge2MiB => Some("/proc/sys/vm/nr_hugepages"),
            Self::Huge1GiB => Some("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"),
        }
    }

    fn flags(self) -> MemfdFlags {
        match self {
            Self::Base => MemfdFlags::empty(),
            Self::Huge2MiB => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
            Self::Huge1GiB => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
        }
    }
}

/// A part of a memory file, found by its address in this process.
#[derive(Clone, Debug)]
pub(crate) struct SharedFile {
    pub(crate) file: Arc<OwnedFd>,
    /// Offset of the part in the file, in bytes.
    pub(crate) offset: u64,
    pub(crate) page_size: PageSize,
}

/// A memory file that is mapped: where its mapping ends, and the file from its start on.
struct MappedFile {
    end: usize,
    file: SharedFile,
}

/// All memory files that are mapped, by the address of their first byte.
static FILES: Mutex<BTreeMap<usize, MappedFile>> = Mutex::new(BTreeMap::new());

fn files() -> MutexGuard<'static, BTreeMap<usize, MappedFile>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds the memory file that holds all of some bytes of this process.
pub(crate) fn file_at(address: usize, bytes: usize) -> Option<SharedFile> {
    let files = files();
    let (&first, mapped) = files.range(..=address).next_back()?;
    let is_inside = address.checked_add(bytes)? <= mapped.end && address < mapped.end;
    is_inside.then(|| SharedFile { offset: (address - first) as u64, ..mapped.file.clone() })
}

/// The pages of a memory file, mapped for reading and writing.
pub(crate) struct FilePages {
    file: Arc<OwnedFd>,
    first: NonNull<Page>,
    count: usize,
    page_size: PageSize,
    /// Process that has the mapping.
    process: Process,
}

// SAFETY: The mapping belongs to this value alone, as the memory of a `Box<[Page]>` would, and pages consist of atomics.
#[expect(unsafe_code, reason = "the pointer is that of a mapping that this value owns")]
unsafe impl Send for FilePages {}
// SAFETY: As above; shared references give access to atomics only.
#[expect(unsafe_code, reason = "the pointer is that of a mapping that this value owns")]
unsafe impl Sync for FilePages {}

impl FilePages {
    /// Makes a file of zeros, of `bytes` bytes rounded up to whole pages, at least one; seals its size, and maps it.
    ///
    /// # Errors
    ///
    /// If the operating system refuses the file or the mapping.
    #[expect(unsafe_code, reason = "a file is mapped")]
    pub(crate) fn zeroed(bytes: usize, page_size: PageSize) -> io::Result<Self> {
        let bytes =
            bytes.max(1).checked_next_multiple_of(page_size.bytes()).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | page_size.flags();
        let file = memfd_create("rnic", flags)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: The kernel chooses the place, so no existing memory is replaced. It keeps huge pages free for the whole mapping,
        // or refuses it.
        let address = unsafe {
            mmap(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)?
        };
        let first = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let (count, process) = (bytes / PAGE_BYTES, Process::current());
        let pages = Self { file: Arc::new(file), first, count, page_size, process };
        let file = SharedFile { file: Arc::clone(&pages.file), offset: 0, page_size };
        files().insert(address as usize, MappedFile { end: address as usize + bytes, file });
        // SAFETY: The mapping is the one that was made above.
        unsafe { madvise(address, bytes, Advice::LinuxDontFork)? };
        Ok(pages)
    }

    /// The file, for another process to map.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Size of its pages.
    pub(crate) fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Address of the first page.
    pub(crate) fn first(&self) -> NonNull<Page> {
        self.first
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.count * PAGE_BYTES
    }
}

impl Deref for FilePages {
    type Target = [Page];

    #[expect(unsafe_code, reason = "the pages are those of a mapping")]
    fn deref(&self) -> &[Page] {
        // SAFETY: `first` is the start of a mapping of `count` pages, which the kernel aligns to pages; it is unmapped in
        // `drop` only. The size of the file is sealed, so that every page exists. Pages consist of atomics, for which every
        // value is legal, and zero is what the file begins with. What other processes do to them is as if a thread did it.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl Drop for FilePages {
    #[expect(unsafe_code, reason = "the mapping ends")]
    fn drop(&mut self) {
        // A process that was forked may have other things at the address.
        if !self.process.is_current() {
            return;
        }
        files().remove(&(self.first.as_ptr() as usize));
        // SAFETY: The mapping has this address and size. References into it have the lifetime of a borrow of `self`, so none
        // is left. It can fail only for arguments that `mmap` would have refused.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), self.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_ways_to_a_file_see_the_same_words() {
        let pages = FilePages::zeroed(2 * PAGE_BYTES + 1, PageSize::Base).unwrap();
        let file = File::from(pages.file().try_clone_to_owned().unwrap());
        assert_eq!(file.metadata().unwrap().len(), 3 * 4096);
        assert!(pages.iter().flat_map(|page| &page.0).all(|word| word.load(Ordering::Relaxed) == 0));
        pages[2].0[511].store(0x1122_3344_5566_7788, Ordering::Relaxed);
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 3 * 4096 - 8).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 0x1122_3344_5566_7788);
        file.write_all_at(&7u64.to_ne_bytes(), 4096).unwrap();
        assert_eq!(pages[1].0[0].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn nobody_can_take_a_page_away() {
        let pages = FilePages::zeroed(0, PageSize::Base).unwrap();
        let file = File::from(pages.file().try_clone_to_owned().unwrap());
        for bytes in [0, 8192] {
            assert_eq!(file.set_len(bytes).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert!(fcntl_add_seals(&file, SealFlags::WRITE).is_err());
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        assert!(FilePages::zeroed(usize::MAX / 4096 * 4096, PageSize::Base).is_err());
        for page_size in [PageSize::Base, PageSize::Huge2MiB, PageSize::Huge1GiB] {
            assert!(FilePages::zeroed(usize::MAX, page_size).is_err());
        }
    }
}
