//! The process that has opened a card. A process that is forked from it has copies of all its objects, and no right to the card: it
//! leaves doorbells, connections and mappings alone, also when it drops the copies. This is one of the modules with `unsafe` code.
//!
//! A mark in a page that the kernel wipes at a fork tells the processes apart, so that a look at it costs a load and no call: the
//! data path can afford it.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the page with the mark; the kernel rounds them up to one of its pages.
const MARK_BYTES: usize = 4096;

/// The number of this process, in a page that reads as zero in a process that is forked.
struct Mark(NonNull<AtomicU64>);

// SAFETY: The page is never unmapped, and gives access to an atomic only.
#[expect(unsafe_code, reason = "the pointer is that of a mapping that lasts")]
unsafe impl Send for Mark {}
// SAFETY: As above.
#[expect(unsafe_code, reason = "the pointer is that of a mapping that lasts")]
unsafe impl Sync for Mark {}

impl Mark {
    /// Maps a page that is wiped at a fork, which the kernel knows since 4.14.
    #[expect(unsafe_code, reason = "a page is mapped")]
    fn new() -> io::Result<Self> {
        // SAFETY: The kernel chooses the place, so no existing memory is replaced; a mapping that cannot be wiped ends before
        // anybody has its address.
        unsafe {
            let flags = ProtFlags::READ | ProtFlags::WRITE;
            let address = mmap_anonymous(null_mut(), MARK_BYTES, flags, MapFlags::PRIVATE)?;
            if let Err(error) = madvise(address, MARK_BYTES, Advice::LinuxWipeOnFork) {
                munmap(address, MARK_BYTES)?;
                return Err(error.into());
            }
            Ok(Self(NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?))
        }
    }

    #[inline]
    #[expect(unsafe_code, reason = "the word is that of a mapping")]
    fn word(&self) -> &AtomicU64 {
        // SAFETY: The page is aligned and lasts as long as the process. The kernel has zeroed it, and every value is legal.
        unsafe { self.0.as_ref() }
    }
}

/// The mark; `None` if the kernel cannot wipe pages.
static MARK: OnceLock<Option<Mark>> = OnceLock::new();

/// A process, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u64);

impl Process {
    /// The process that this is called in.
    #[inline]
    pub(crate) fn current() -> Self {
        let Some(mark) = MARK.get_or_init(|| Mark::new().ok()) else { return Self::ask() };
        match mark.word().load(Ordering::Relaxed) {
            0 => {
                let this = Self::ask();
                mark.word().store(this.0, Ordering::Relaxed);
                this
            }
            number => Self(number),
        }
    }

    /// Returns whether this is called in the process, and not in one that was forked from it.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self == Self::current()
    }

    fn ask() -> Self {
        Self(std::process::id().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself() {
        let this = Process::current();
        assert_eq!(this, Process::ask());
        assert!(MARK.get().unwrap().is_some(), "this kernel can wipe pages");
        assert!(this.is_current() && !Process(this.0 + 1).is_current());
    }
}
