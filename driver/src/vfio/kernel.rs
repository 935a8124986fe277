//! The calls of VFIO, behind a trait, so that a test can answer in the place of the kernel. This is one of the modules with
//! `unsafe` code.
//!
//! The crates `vfio-ioctls` and `iommufd-ioctls` make most of the calls. Those of which they only log the failure, and the questions
//! about the IOMMU, which they do not ask, are made here.

use super::iommu::Answer;
use crate::memory::Memory;
use crate::process::Process;
use crate::sync::{Mutex, lock};
use iommufd_bindings::iommufd::{
    IOMMUFD_CMD_IOAS_IOVA_RANGES, IOMMUFD_TYPE, iommu_ioas_iova_ranges, iommu_iova_range,
};
use iommufd_ioctls::{IommuFd, IommufdError};
use rustix::ioctl::{NoArg, Opcode, Updater, ioctl, opcode};
use std::collections::BTreeMap;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use vfio_bindings::bindings::vfio::{
    VFIO_BASE, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE, VFIO_TYPE,
};
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError, VfioIommufd, VfioOps, VfioRegionInfoCap};
use vmm_sys_util::eventfd::EventFd;

/// Number of `VFIO_DEVICE_RESET`.
const DEVICE_RESET: Opcode = opcode::none(VFIO_TYPE, VFIO_BASE as u8 + 11);
/// Number of `VFIO_IOMMU_GET_INFO`.
const IOMMU_GET_INFO: Opcode = opcode::none(VFIO_TYPE, VFIO_BASE as u8 + 12);
/// Number of `IOMMU_IOAS_IOVA_RANGES`.
const IOVA_RANGES: Opcode = opcode::none(IOMMUFD_TYPE, IOMMUFD_CMD_IOAS_IOVA_RANGES as u8);
/// Words of the largest answer about an IOMMU: room for four thousand ranges.
const ANSWER_WORDS: usize = 8192;

/// Most ranges of an address space of `iommufd`.
const RANGES_MAX: usize = 4096;

/// A region of a device: a BAR, or the configuration space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Region {
    /// Size in bytes; zero if there is none.
    pub(super) bytes: u64,
    /// Offset in the file of the device.
    pub(super) offset: u64,
    /// It can be read and written.
    pub(super) is_usable: bool,
    /// Parts that can be mapped, if it can be mapped only in parts: offset and size.
    pub(super) areas: Option<Vec<(u64, u64)>>,
    /// It can be mapped, or those parts of it.
    pub(super) is_mappable: bool,
}

/// What VFIO answers about one device, and does to it.
pub(super) trait Kernel: Send + Sync {
    /// The file of the device, whose parts are the regions.
    fn device(&self) -> BorrowedFd<'_>;

    /// A region, by index.
    fn region(&self, index: u32) -> Region;

    /// Number of vectors of MSI-X.
    fn vectors(&self) -> u32;

    /// Has the kernel count up an eventfd for each interrupt of the first vectors.
    fn enable_vectors(&self, eventfds: &[OwnedFd]) -> io::Result<()>;

    /// Resets the device.
    fn reset(&self) -> io::Result<()>;

    /// The answer about the IOMMU.
    fn iommu(&self) -> io::Result<Answer>;

    /// Lets the device access memory, at device addresses from `address` on, and keeps it.
    fn map(&self, address: u64, memory: Arc<Memory>) -> io::Result<()>;

    /// Ends that, and forgets the memory.
    fn unmap(&self, address: u64) -> io::Result<()>;
}

/// What memory is mapped in.
enum Space {
    /// The container of an IOMMU group.
    Container(Arc<VfioContainer>),
    /// An address space of `iommufd`.
    Iommufd(Arc<VfioIommufd>),
}

impl Space {
    fn ops(&self) -> &dyn VfioOps {
        match self {
            Self::Container(container) => &**container,
            Self::Iommufd(iommufd) => &**iommufd,
        }
    }
}

/// The kernel of this machine.
pub(super) struct Vfio {
    /// Dropping it gives the group back or detaches the device, in the name of all processes that have the file.
    device: ManuallyDrop<VfioDevice>,
    space: Space,
    /// By first device address. Dropped after the address space, whose end unmaps all.
    mapped: Mutex<BTreeMap<u64, Arc<Memory>>>,
    /// Process that has opened the device.
    process: Process,
}

/// The error of the operating system, where the crate has kept it.
fn system(error: VfioError) -> io::Error {
    match error {
        VfioError::IommuDmaMap(error)
        | VfioError::IommuDmaUnmap(error)
        | VfioError::IommufdIoctlError(
            IommufdError::IommuIoasMap(error) | IommufdError::IommuIoasUnmap(error),
        ) => io::Error::from_raw_os_error(error.errno()),
        other => io::Error::other(other),
    }
}

impl Vfio {
    /// Opens a device of a group by its folder in sysfs: container, group, and the device itself, which the kernel resets.
    pub(super) fn open_in_group(folder: &Path) -> Result<Self, VfioError> {
        let container = Arc::new(VfioContainer::new(None)?);
        let device = VfioDevice::new(folder, Arc::clone(&container) as _, false)?;
        Ok(Self::new(device, Space::Container(container)))
    }

    /// Opens the file that a device has of its own, and attaches the device to an address space of `iommufd`.
    pub(super) fn open_by_itself(folder: &Path) -> Result<Self, VfioError> {
        let iommufd = Arc::new(IommuFd::new().map_err(VfioError::NewVfioIommufd)?);
        let iommufd = Arc::new(VfioIommufd::new(iommufd, None, None)?);
        let device = VfioDevice::new(folder, Arc::clone(&iommufd) as _, true)?;
        Ok(Self::new(device, Space::Iommufd(iommufd)))
    }

    fn new(device: VfioDevice, space: Space) -> Self {
        let device = ManuallyDrop::new(device);
        Self { device, space, mapped: Mutex::default(), process: Process::current() }
    }
}

impl Drop for Vfio {
    #[expect(unsafe_code, reason = "the device is dropped in the process that has opened it")]
    fn drop(&mut self) {
        // A process that was forked has the same files: what it asked of them, it would ask for the other one.
        if !self.process.is_current() {
            return;
        }
        // What the device could still access must not be freed before the address space, so each mapping is ended; one that the
        // kernel does not end is leaked.
        let mapped = std::mem::take(&mut *lock(&self.mapped));
        for (address, memory) in mapped {
            if self.space.ops().vfio_dma_unmap(address, memory.bytes()).is_err() {
                std::mem::forget(memory);
            }
        }
        // SAFETY: It is dropped here and nowhere else, and not used after this.
        unsafe { ManuallyDrop::drop(&mut self.device) };
    }
}

impl Kernel for Vfio {
    #[expect(unsafe_code, reason = "the crate gives the file descriptor as a number")]
    fn device(&self) -> BorrowedFd<'_> {
        // SAFETY: The device owns the file descriptor, and lives as long as the borrow of `self`.
        unsafe { BorrowedFd::borrow_raw(self.device.as_raw_fd()) }
    }

    fn region(&self, index: u32) -> Region {
        let flags = self.device.get_region_flags(index);
        let both = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
        let areas = self.device.get_region_caps(index).into_iter().find_map(|capability| match capability {
            VfioRegionInfoCap::SparseMmap(sparse) => {
                Some(sparse.areas.iter().map(|area| (area.offset, area.size)).collect())
            }
            _ => None,
        });
        Region {
            bytes: self.device.get_region_size(index),
            offset: self.device.get_region_offset(index),
            is_usable: flags & both == both,
            is_mappable: flags & VFIO_REGION_INFO_FLAG_MMAP != 0,
            areas,
        }
    }

    fn vectors(&self) -> u32 {
        self.device.get_irq_info(VFIO_PCI_MSIX_IRQ_INDEX).map_or(0, |irqs| irqs.count)
    }

    #[expect(unsafe_code, reason = "the crate has a type of its own for eventfds")]
    fn enable_vectors(&self, eventfds: &[OwnedFd]) -> io::Result<()> {
        let copy = |fd: &OwnedFd| {
            let copy = fd.try_clone()?.into_raw_fd();
            // SAFETY: The file descriptor was made in the line before, and belongs to nobody else.
            Ok(unsafe { EventFd::from_raw_fd(copy) })
        };
        let copies = eventfds.iter().map(copy).collect::<io::Result<Vec<EventFd>>>()?;
        self.device.enable_msix(copies.iter().collect()).map_err(system)
    }

    #[expect(unsafe_code, reason = "a call of VFIO")]
    fn reset(&self) -> io::Result<()> {
        // SAFETY: The call has no argument, and changes no memory of this process.
        Ok(unsafe { ioctl(self.device(), NoArg::<DEVICE_RESET>::new()) }?)
    }

    fn iommu(&self) -> io::Result<Answer> {
        match &self.space {
            Space::Container(container) => describe_container(container).map(Answer::Container),
            Space::Iommufd(iommufd) => describe_space(iommufd),
        }
    }

    #[expect(unsafe_code, reason = "a device may access the memory from here on")]
    fn map(&self, address: u64, memory: Arc<Memory>) -> io::Result<()> {
        let start = memory.address().cast_mut();
        // SAFETY: The memory is kept in `mapped` until the kernel has ended the mapping. It consists of atomics, and the driver
        // makes slices of parts of it only while no request lets the card access these: see `crate::memory`. Memory of the
        // application may share its first and last page with other memory, which no region lets the card access.
        unsafe { self.space.ops().vfio_dma_map(address, memory.bytes(), start) }.map_err(system)?;
        lock(&self.mapped).insert(address, memory);
        Ok(())
    }

    fn unmap(&self, address: u64) -> io::Result<()> {
        let mut mapped = lock(&self.mapped);
        let memory = mapped.get(&address).ok_or(io::ErrorKind::NotFound)?;
        self.space.ops().vfio_dma_unmap(address, memory.bytes()).map_err(system)?;
        mapped.remove(&address);
        Ok(())
    }
}

/// Asks about the container of a group.
#[expect(unsafe_code, reason = "a call of VFIO")]
fn describe_container(container: &VfioContainer) -> io::Result<Vec<u8>> {
    let mut answer = Box::new([0u64; ANSWER_WORDS]);
    let room = size_of_val(&*answer);
    // The first four bytes say how long the answer may be.
    answer[0] = u64::from_ne_bytes({
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&(room as u32).to_ne_bytes());
        bytes
    });
    // SAFETY: The container owns the file descriptor. The kernel writes no more than `room` bytes to the answer, for which
    // every value is legal, and keeps no pointer to it.
    unsafe {
        let container = BorrowedFd::borrow_raw(container.as_raw_fd());
        ioctl(container, Updater::<IOMMU_GET_INFO, _>::new(&mut *answer))?;
    }
    Ok(answer.iter().flat_map(|word| word.to_ne_bytes()).collect())
}

/// Asks about an address space of `iommufd`, which is narrowed by the device that is attached to it.
#[expect(unsafe_code, reason = "a call of iommufd")]
fn describe_space(iommufd: &VfioIommufd) -> io::Result<Answer> {
    let mut room = vec![iommu_iova_range::default(); RANGES_MAX];
    let mut answer = iommu_ioas_iova_ranges {
        size: size_of::<iommu_ioas_iova_ranges>() as u32,
        ioas_id: iommufd.ioas().id(),
        num_iovas: RANGES_MAX as u32,
        allowed_iovas: room.as_mut_ptr() as u64,
        ..Default::default()
    };
    // SAFETY: The crate owns the file descriptor. The kernel writes the record, and no more ranges than there is room for, for all of
    // which every value is legal, and keeps no pointer.
    unsafe {
        let file = BorrowedFd::borrow_raw(iommufd.iommufd().as_raw_fd());
        ioctl(file, Updater::<IOVA_RANGES, _>::new(&mut answer))?;
    }
    room.truncate(answer.num_iovas as usize);
    let ranges = room.iter().map(|range| (range.start, range.last)).collect();
    Ok(Answer::Ranges { ranges, alignment: answer.out_iova_alignment })
}

/// The parts of a region that can be mapped: whole pages inside it.
pub(super) fn mappable(region: &Region, page_bytes: u64) -> Vec<Range<u64>> {
    let all = [(0, region.bytes)];
    let areas = region.areas.as_deref().unwrap_or(&all);
    let is_whole = |&&(start, bytes): &&(u64, u64)| {
        let end = start.checked_add(bytes);
        let is_inside = bytes != 0 && end.is_some_and(|end| end <= region.bytes);
        is_inside && start % page_bytes == 0 && bytes % page_bytes == 0
    };
    let whole = areas.iter().filter(is_whole).map(|&(start, bytes)| start..start + bytes);
    if region.is_mappable { whole.collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_offers_is_mapped() {
        let region = |bytes, is_mappable, areas: Option<&[(u64, u64)]>| Region {
            bytes,
            is_mappable,
            areas: areas.map(<[_]>::to_vec),
            ..Region::default()
        };
        let whole = 0..0x4000;
        for (region, expected) in [
            (region(0x4000, true, None), vec![whole.clone()]),
            (region(0x4000, false, None), vec![]),
            (region(0x4000, false, Some(&[(0, 0x4000)])), vec![]),
            (region(0x4000, true, Some(&[])), vec![]),
            (region(0x4000, true, Some(&[(0, 0x1000), (0x2000, 0x2000)])), vec![0..0x1000, 0x2000..0x4000]),
            (region(0x4000, true, Some(&[(0x3000, 0x2000), (1, 0x1000), (0, 12), (0x1000, 0)])), vec![]),
            (region(0x4000, true, Some(&[(u64::MAX - 0xfff, 0x2000)])), vec![]),
            (region(256, true, None), vec![]),
            (region(0, true, None), vec![]),
        ] {
            assert_eq!(mappable(&region, 4096), expected, "{region:?}");
        }
        assert_eq!(
            mappable(&region(0x4000, true, None), 0x1_0000),
            vec![],
            "smaller than a page of this machine"
        );
    }

    #[test]
    fn the_numbers_of_calls_are_those_of_the_kernel() {
        // From `linux/vfio.h`: `_IO(';', 100 + 11)` and `_IO(';', 100 + 12)`, and from `linux/iommufd.h`: `_IO(';', 0x84)`.
        assert_eq!((DEVICE_RESET, IOMMU_GET_INFO, IOVA_RANGES), (0x3b6f, 0x3b70, 0x3b84));
    }

    #[test]
    fn an_error_of_the_system_is_kept() {
        let errno = vmm_sys_util::errno::Error::new;
        assert_eq!(system(VfioError::IommuDmaMap(errno(12))).raw_os_error(), Some(12));
        assert_eq!(system(VfioError::IommuDmaUnmap(errno(22))).raw_os_error(), Some(22));
        let iommufd = |error| system(VfioError::IommufdIoctlError(error)).raw_os_error();
        assert_eq!(iommufd(IommufdError::IommuIoasMap(errno(28))), Some(28));
        assert_eq!(iommufd(IommufdError::IommuIoasUnmap(errno(2))), Some(2));
        let other = system(VfioError::InvalidDmaUnmapSize);
        assert!(other.raw_os_error().is_none() && other.to_string().contains("unmap size"));
    }
}
