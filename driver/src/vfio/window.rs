//! Parts of BARs that are mapped into this process. This is one of the modules with `unsafe` code.
//!
//! A window consists of registers of the crate `volatile-register`, of 32 or 64 bits, each access to which is a volatile load or store
//! and one access on the bus. References to them last for an access, and to plain bytes of the window none exists. A process that is
//! forked from this one does not have the window.
//!
//! Order: what this thread has written to memory before a store is visible to the card before the store arrives, and what it
//! reads from memory after a load is read after the card has answered. x86 keeps both by itself, since windows are uncached, so
//! that only the compiler must be held; 64-bit ARM needs a barrier for the outer shareable domain, in which devices are.

use crate::process::Process;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use volatile_register::RW;

/// A part of a BAR that is mapped into this process.
pub(super) struct Window {
    first: NonNull<u8>,
    /// Offset of its first byte in the BAR.
    start: u64,
    bytes: usize,
    /// Process that has the mapping.
    process: Process,
}

// SAFETY: The mapping belongs to this value alone. A device may be accessed by any thread, also at the same time: volatile
// accesses to it are accesses on a bus, not to memory of the abstract machine.
#[expect(unsafe_code, reason = "the pointer is that of a mapping that this value owns")]
unsafe impl Send for Window {}
// SAFETY: As above.
#[expect(unsafe_code, reason = "the pointer is that of a mapping that this value owns")]
unsafe impl Sync for Window {}

/// Stores before this are visible to the card before stores after it.
#[inline]
#[cfg_attr(target_arch = "aarch64", expect(unsafe_code, reason = "the barrier is an instruction"))]
fn before_store() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: A barrier has no other effect than order.
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags))
    };
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Loads after this are made after those before it.
#[inline]
#[cfg_attr(target_arch = "aarch64", expect(unsafe_code, reason = "the barrier is an instruction"))]
fn after_load() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: As in `before_store`.
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags))
    };
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

impl Window {
    /// Maps `area` of a BAR, in whole pages, which begins at `offset` of a file.
    ///
    /// # Errors
    ///
    /// If the operating system refuses it, or the area is empty.
    #[expect(unsafe_code, reason = "a file is mapped")]
    pub(super) fn map(file: BorrowedFd<'_>, offset: u64, area: &Range<u64>) -> io::Result<Self> {
        let length = area.end.checked_sub(area.start).and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = length.ok_or(io::ErrorKind::InvalidInput)?;
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: The kernel chooses the place, so no existing memory is replaced.
        let address = unsafe { mmap(null_mut(), bytes, flags, MapFlags::SHARED, file, offset)? };
        let first = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let window = Self { first, start: area.start, bytes, process: Process::current() };
        // SAFETY: The mapping is the one that was made above.
        unsafe { madvise(address, bytes, Advice::LinuxDontFork)? };
        Ok(window)
    }

    /// The register at an offset of the BAR, or `None` if it is not all in the window, or not aligned to its size. The reference
    /// lasts for one access.
    #[inline]
    #[expect(unsafe_code, reason = "a register of the device")]
    fn register<T: Copy>(&self, offset: u64) -> Option<&RW<T>> {
        const { assert!(align_of::<RW<T>>() == size_of::<T>(), "registers are aligned to their size") };
        let (place, length) = (usize::try_from(offset.checked_sub(self.start)?).ok()?, size_of::<T>());
        let is_inside = place.checked_add(length).is_some_and(|end| end <= self.bytes);
        if !is_inside || !place.is_multiple_of(length) {
            return None;
        }
        // SAFETY: The bytes lie inside the mapping, which lives as long as `self`, and are aligned: the mapping begins at a page.
        // A register is a volatile cell, transparent to `u32` or `u64`, for which every value is legal and which others may change.
        Some(unsafe { self.first.add(place).cast().as_ref() })
    }

    /// Reads 32 bits at an offset of the BAR; `None` if they are not in the window.
    #[inline]
    pub(super) fn read32(&self, offset: u64) -> Option<u32> {
        let value = self.register::<u32>(offset)?.read();
        after_load();
        Some(u32::from_le(value))
    }

    /// Reads 64 bits at an offset of the BAR; `None` if they are not in the window.
    #[inline]
    pub(super) fn read64(&self, offset: u64) -> Option<u64> {
        let value = self.register::<u64>(offset)?.read();
        after_load();
        Some(u64::from_le(value))
    }

    /// Writes 32 bits at an offset of the BAR. Returns whether they are in the window.
    #[inline]
    #[expect(unsafe_code, reason = "a register is written")]
    pub(super) fn write32(&self, offset: u64, value: u32) -> bool {
        let Some(register) = self.register::<u32>(offset) else { return false };
        before_store();
        // SAFETY: A write acts on the device, whose registers let it access memory that is mapped for it and no other: an IOMMU is
        // required.
        unsafe { register.write(value.to_le()) };
        true
    }

    /// Writes 64 bits at an offset of the BAR. Returns whether they are in the window.
    #[inline]
    #[expect(unsafe_code, reason = "a register is written")]
    pub(super) fn write64(&self, offset: u64, value: u64) -> bool {
        let Some(register) = self.register::<u64>(offset) else { return false };
        before_store();
        // SAFETY: As in `write32`.
        unsafe { register.write(value.to_le()) };
        true
    }
}

impl Drop for Window {
    #[expect(unsafe_code, reason = "the mapping ends")]
    fn drop(&mut self) {
        // A process that was forked may have other things at the address.
        if !self.process.is_current() {
            return;
        }
        // SAFETY: The mapping has this address and size, and nothing refers to it but this value.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::doorbell::{DOORBELLS, offset_in_bar};
    use rnic_layout::limits::DOORBELL_PAGE_BYTES;
    use rnic_layout::registers::REGISTERS;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    fn file() -> File {
        let file = memfd_create("device", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 5 * 4096).unwrap();
        File::from(file)
    }

    #[test]
    fn a_window_shows_its_part_of_the_file() {
        let file = file();
        // The BAR begins at 4096 of the file, and its second and third page are mapped.
        let window = Window::map(file.as_fd(), 2 * 4096, &(4096..3 * 4096)).unwrap();
        assert!(window.write64(4096, 0x1122_3344_5566_7788) && window.write32(3 * 4096 - 4, 0xaabb_ccdd));
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 2 * 4096).unwrap();
        assert_eq!(bytes, 0x1122_3344_5566_7788_u64.to_le_bytes());
        file.read_exact_at(&mut bytes[..4], 4 * 4096 - 4).unwrap();
        assert_eq!(bytes[..4], [0xdd, 0xcc, 0xbb, 0xaa]);
        file.write_all_at(&[1, 2, 3, 4, 5, 6, 7, 8], 3 * 4096).unwrap();
        assert_eq!(window.read64(2 * 4096), Some(0x0807_0605_0403_0201));
        assert_eq!(window.read32(2 * 4096 + 4), Some(0x0807_0605));
    }

    /// Registers and doorbells are 64-bit words at their offsets in the layout, which a window of their BAR has.
    #[test]
    fn what_the_layout_has_is_a_register_of_the_window() {
        let file = memfd_create("device", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 1 << 16).unwrap();
        let window = Window::map(file.as_fd(), 0, &(0..1 << 16)).unwrap();
        let doorbells = DOORBELLS.iter().map(|doorbell| offset_in_bar(2, doorbell));
        for (count, offset) in
            (1..).zip(REGISTERS.iter().map(|register| register.offset.into()).chain(doorbells))
        {
            assert_eq!(window.read64(offset), Some(0), "{offset:#x} is that of one register");
            assert!(window.write64(offset, count));
            assert_eq!(window.read32(offset), Some(count as u32));
        }
        assert_eq!(window.read64(2 * DOORBELL_PAGE_BYTES), Some(1 + REGISTERS.len() as u64));
    }

    #[test]
    fn what_is_not_in_the_window_is_left_alone() {
        let file = file();
        let window = Window::map(file.as_fd(), 4096, &(4096..2 * 4096)).unwrap();
        for offset in [0, 4095, 4092, 2 * 4096, 2 * 4096 - 3, u64::MAX] {
            assert_eq!((window.read32(offset), window.read64(offset)), (None, None), "{offset:#x}");
            assert!(!window.write32(offset, 1) && !window.write64(offset, 1), "{offset:#x}");
        }
        assert_eq!(window.read64(2 * 4096 - 4), None, "its second half is outside");
        assert_eq!(window.read64(4100), None, "it is not aligned");
        let mut all = vec![0; 5 * 4096];
        file.read_exact_at(&mut all, 0).unwrap();
        assert!(all.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn what_the_kernel_does_not_map_is_an_error() {
        let file = file();
        assert!(Window::map(file.as_fd(), 1, &(0..4096)).is_err(), "not at a page");
        assert!(Window::map(file.as_fd(), 0, &(4096..4096)).is_err(), "empty");
        #[expect(clippy::reversed_empty_ranges, reason = "the kernel could say so")]
        let reversed = 8192..4096;
        assert!(Window::map(file.as_fd(), 0, &reversed).is_err());
    }
}
