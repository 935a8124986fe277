//! Pages of atomic words, and pages of a memory file, which another process can map too.
//!
//! A memory file has no name and no other content. Its size is sealed, so that no process can take a page away from another one
//! that has mapped it. A process that is forked from this one does not have the pages: an access there ends it (SIGSEGV).

use crate::process::Process;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

/// Page size in bytes: the unit of allocation and alignment.
pub const PAGE_BYTES: usize = 4096;
/// Words of a page.
pub(crate) const PAGE_WORDS: usize = PAGE_BYTES / size_of::<AtomicU64>();

/// A page of words that several parties access at the same time.
#[repr(C, align(4096))]
pub(crate) struct Page(pub(crate) [AtomicU64; PAGE_WORDS]);

/// The pages of a memory file, mapped for reading and writing.
pub(crate) struct FilePages {
    file: OwnedFd,
    first: NonNull<Page>,
    count: usize,
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
    /// Makes a file of `count` pages of zeros, seals its size, and maps it.
    ///
    /// # Errors
    ///
    /// If the operating system refuses the file or the mapping.
    #[expect(unsafe_code, reason = "a file is mapped")]
    pub(crate) fn zeroed(count: usize) -> io::Result<Self> {
        assert!(count > 0, "an empty file cannot be mapped");
        let bytes = count.checked_mul(PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let file = memfd_create("rnic", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: The kernel chooses the place, so no existing memory is replaced.
        let address = unsafe {
            mmap(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)?
        };
        let first = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let pages = Self { file, first, count, process: Process::current() };
        // SAFETY: The mapping is the one that was made above.
        unsafe { madvise(address, bytes, Advice::LinuxDontFork)? };
        Ok(pages)
    }

    /// The file, for another process to map.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
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
        // SAFETY: The mapping has this address and size. References into it have the lifetime of a borrow of `self`, so none
        // is left. It can fail only for arguments that `mmap` would have refused.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), self.count * PAGE_BYTES) };
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
        let pages = FilePages::zeroed(3).unwrap();
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
        let pages = FilePages::zeroed(1).unwrap();
        let file = File::from(pages.file().try_clone_to_owned().unwrap());
        for bytes in [0, 8192] {
            assert_eq!(file.set_len(bytes).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert!(fcntl_add_seals(&file, SealFlags::WRITE).is_err());
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        assert!(FilePages::zeroed(usize::MAX / 4096).is_err());
        assert!(FilePages::zeroed(usize::MAX).is_err());
    }
}
