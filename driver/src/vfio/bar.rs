//! A BAR behind VFIO: mapped where the kernel offers it, by calls elsewhere.

use super::kernel::{Kernel, mappable};
use super::window::Window;
use crate::function::Bar;
use crate::sync::{Mutex, lock};
use rustix::io::{pread, pwrite};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A BAR of the function.
pub(super) struct VfioBar {
    kernel: Arc<dyn Kernel>,
    bytes: u64,
    /// Offset in the file of the device.
    offset: u64,
    windows: Vec<Window>,
    /// The configuration space lets the BARs answer. Otherwise an access to a window would end this process (SIGBUS).
    is_on: Arc<AtomicBool>,
    /// Keeps the halves of 64 bits together where the kernel makes two accesses of them.
    calls: Mutex<()>,
}

impl VfioBar {
    /// Maps what can be mapped of a BAR.
    ///
    /// # Errors
    ///
    /// If the operating system refuses a mapping that it offers.
    pub(super) fn new(kernel: &Arc<dyn Kernel>, index: u8, is_on: &Arc<AtomicBool>) -> io::Result<Self> {
        let region = kernel.region(index.into());
        let areas = mappable(&region, rustix::param::page_size() as u64);
        let map =
            |area: &std::ops::Range<u64>| Window::map(kernel.device(), region.offset + area.start, area);
        let windows = areas.iter().map(map).collect::<io::Result<_>>()?;
        Ok(Self {
            kernel: Arc::clone(kernel),
            bytes: if region.is_usable { region.bytes } else { 0 },
            offset: region.offset,
            windows,
            is_on: Arc::clone(is_on),
            calls: Mutex::new(()),
        })
    }

    /// Returns whether an access meets something that answers.
    fn has(&self, offset: u64, length: u64) -> bool {
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= self.bytes);
        is_inside && self.is_on.load(Ordering::Relaxed)
    }

    fn read_by_call<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        let _calls = lock(&self.calls);
        match pread(self.kernel.device(), &mut bytes, self.offset + offset) {
            Ok(count) if count == N => bytes,
            _ => [0xff; N],
        }
    }

    fn write_by_call(&self, offset: u64, bytes: &[u8]) {
        let _calls = lock(&self.calls);
        // A write that fails is lost, as on the bus.
        let _ = pwrite(self.kernel.device(), bytes, self.offset + offset);
    }
}

impl Bar for VfioBar {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read32(&self, offset: u64) -> u32 {
        if !self.has(offset, 4) {
            return u32::MAX;
        }
        let mapped = self.windows.iter().find_map(|window| window.read32(offset));
        mapped.unwrap_or_else(|| u32::from_le_bytes(self.read_by_call(offset)))
    }

    fn write32(&self, offset: u64, value: u32) {
        if self.has(offset, 4) && !self.windows.iter().any(|window| window.write32(offset, value)) {
            self.write_by_call(offset, &value.to_le_bytes());
        }
    }

    fn read64(&self, offset: u64) -> u64 {
        if !self.has(offset, 8) {
            return u64::MAX;
        }
        let mapped = self.windows.iter().find_map(|window| window.read64(offset));
        mapped.unwrap_or_else(|| u64::from_le_bytes(self.read_by_call(offset)))
    }

    fn write64(&self, offset: u64, value: u64) {
        if self.has(offset, 8) && !self.windows.iter().any(|window| window.write64(offset, value)) {
            self.write_by_call(offset, &value.to_le_bytes());
        }
    }
}
