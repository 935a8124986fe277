//! Back end for a PCI function of this machine, through the kernel's VFIO.
//!
//! ```text
//!   this process                                        kernel                          card
//!   ────────────                                        ──────                          ────
//!   bar(0), bar(2) ───── loads and stores, mapped ───────────────────────────────────>  BARs
//!   config_space() ───── reads and writes of a file ──> vfio-pci ────────────────────>  configuration space
//!   memory, by map() ─── locked, and mapped ──────────> IOMMU <───────────────────────  DMA
//!   wait_interrupt() <── eventfds ───────────────────── vfio-pci <────────────────────  MSI-X
//! ```
//!
//! 1. The function is looked at in sysfs before it is opened, since opening resets it: it must be ours, behind an IOMMU, and bound
//!    to `vfio-pci`. What keeps it from being opened is an error that names what was found and what to do.
//! 2. The card reaches the memory that is mapped and no other: an IOMMU is required. Addresses lie in the ranges that the kernel
//!    names, and are used again at once.
//! 3. Mapped memory is locked, and counts against the limit of this process. A process that is forked from this one has neither the
//!    memory nor the windows of BARs, and asks the kernel nothing when it drops its copy of the function.
//! 4. Only what the kernel offers is mapped; the rest of a BAR is accessed by calls. The table of MSI-X is left to the kernel.
//! 5. A function that answers nothing any more reads as all ones, and [`Function::check`] says so. Nothing waits without bound.
//! 6. A reset keeps the configuration space: the kernel saves and restores it.
//!
//! A function is opened through its IOMMU group, or by a file of its own and an address space of `iommufd`: see [`Access`]. Only the
//! first was run on a kernel so far: those of Debian, which the guest of `scripts/guest-vfio.sh` has, are made without `iommufd`. Its
//! failures and its answers are tested, as those of groups are, over the trait of the kernel's calls.

mod iommu;
mod kernel;
mod window;

mod bar;
mod machine;

#[cfg(test)]
mod tests;

use crate::addresses::Addresses;
use crate::eventfds::Eventfds;
use crate::function::{Bar, DOORBELL_BAR, Function, FunctionError, Ownership, REGISTER_BAR};
use crate::identity::{HEADER_BYTES, Identity, identity};
use crate::memory::{Memory, Purpose};
use crate::pci_address::PciAddress;
use crate::sync::{Mutex, lock};
use crate::vfio_error::VfioError;
use bar::VfioBar;
use kernel::{Kernel, Region, Vfio};
use machine::{Machine, explain, explain_map};
use rnic_layout::limits::INTERRUPT_VECTORS_MAX;
use rnic_layout::pci::{COMMAND, COMMAND_MEMORY, CONFIG_BYTES};
use rustix::io::{pread, pwrite};
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vfio_bindings::bindings::vfio::VFIO_PCI_CONFIG_REGION_INDEX;

/// Smallest configuration space.
const CONFIG_BYTES_MIN: u64 = 256;

/// How the kernel is asked for a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// By its own file if this user may open that and `/dev/iommu`, and not the file of the group; otherwise through its group.
    #[default]
    Any,
    /// Through its IOMMU group: `/dev/vfio/<number>`.
    Group,
    /// By its own file, `/dev/vfio/devices/vfio<number>`, and an address space of `/dev/iommu`.
    Iommufd,
}

/// Parameters of [`VfioFunction::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// How the kernel is asked for the function.
    pub access: Access,
    /// How many times longer than hardware the card takes: see [`Function::time_scale`]. More than 1 for a card that is simulated
    /// behind the bus of a virtual machine.
    pub time_scale: u32,
}

impl Default for OpenOptions {
    /// A card of hardware.
    fn default() -> Self {
        Self { access: Access::Any, time_scale: 1 }
    }
}

/// Device addresses, and how many mappings there may be.
struct Mappings {
    addresses: Addresses,
    count: u32,
    most: Option<u32>,
}

/// A PCI function of this machine. Dropping it ends its mappings and closes it, upon which the kernel resets it.
pub struct VfioFunction {
    address: PciAddress,
    registers: VfioBar,
    doorbells: VfioBar,
    config: Region,
    is_on: Arc<AtomicBool>,
    vectors: Eventfds,
    mappings: Mutex<Mappings>,
    ownership: Ownership,
    began: Instant,
    time_scale: u32,
    kernel: Arc<dyn Kernel>,
}

impl VfioFunction {
    /// Opens the function at an address.
    ///
    /// # Errors
    ///
    /// [`FunctionError::Vfio`] with the reason: the function is none of ours, has another driver or no IOMMU, belongs to another
    /// process, or this user may not open it.
    pub fn open(address: PciAddress, options: OpenOptions) -> Result<Self, FunctionError> {
        let machine = Machine("/".into());
        let named = |error| FunctionError::Vfio { address, error };
        let found = machine.examine(address).map_err(named)?;
        let by_itself = match options.access {
            Access::Any => found.opens_by_itself_only(),
            Access::Group => false,
            Access::Iommufd => true,
        };
        let opened =
            if by_itself { Vfio::open_by_itself(&found.folder) } else { Vfio::open_in_group(&found.folder) };
        let kernel =
            opened.map_err(|error| named(explain(&error, &found, || machine.others(found.group))))?;
        Self::over(address, Arc::new(kernel), options)
    }

    /// Uses a function that is open.
    fn over(
        address: PciAddress,
        kernel: Arc<dyn Kernel>,
        options: OpenOptions,
    ) -> Result<Self, FunctionError> {
        let failed = |what| {
            move |error: io::Error| FunctionError::Vfio { address, error: VfioError::failed(what, &error) }
        };
        let named = |error| FunctionError::Vfio { address, error };
        let config = kernel.region(VFIO_PCI_CONFIG_REGION_INDEX);
        if !(CONFIG_BYTES_MIN..=CONFIG_BYTES as u64).contains(&config.bytes) {
            let what = "the size of the configuration space";
            return Err(named(VfioError::Malformed { what, found: config.bytes }));
        }
        let iommu = kernel.iommu().map_err(failed("a question about its IOMMU"))?;
        let iommu = iommu::decode(&iommu).map_err(named)?;
        let is_on = Arc::new(AtomicBool::new(false));
        let bar = |index| VfioBar::new(&kernel, index, &is_on).map_err(failed("the mapping of a BAR"));
        let (registers, doorbells) = (bar(REGISTER_BAR)?, bar(DOORBELL_BAR)?);
        let vectors = enable_vectors(&*kernel).map_err(failed("the set-up of its interrupts"))?;
        let mappings =
            Mappings { addresses: Addresses::new(iommu.ranges), count: 0, most: iommu.mappings_left };
        let function = Self {
            address,
            registers,
            doorbells,
            config,
            is_on,
            vectors,
            mappings: Mutex::new(mappings),
            ownership: Ownership::default(),
            began: Instant::now(),
            time_scale: options.time_scale.max(1),
            kernel,
        };
        function.follow_command()?;
        Ok(function)
    }

    fn failed(&self, what: &'static str, error: impl Into<io::Error>) -> FunctionError {
        FunctionError::Vfio { address: self.address, error: VfioError::failed(what, &error.into()) }
    }

    fn read_config(&self, offset: u64, into: &mut [u8]) -> Result<(), FunctionError> {
        let what = "a read of the configuration space";
        let count = pread(self.kernel.device(), &mut *into, self.config.offset + offset);
        match count.map_err(|error| self.failed(what, error))? {
            count if count == into.len() => Ok(()),
            _ => Err(self.failed(what, io::ErrorKind::UnexpectedEof)),
        }
    }

    /// Takes over from the configuration space whether BARs answer.
    fn follow_command(&self) -> Result<(), FunctionError> {
        let mut command = [0; 2];
        self.read_config(COMMAND.into(), &mut command)?;
        self.is_on.store(u16::from_le_bytes(command) & COMMAND_MEMORY != 0, Ordering::Relaxed);
        Ok(())
    }
}

/// Has the kernel deliver as many vectors as card and host have: the host may have fewer than the card.
fn enable_vectors(kernel: &dyn Kernel) -> io::Result<Eventfds> {
    let mut count = kernel.vectors().min(INTERRUPT_VECTORS_MAX);
    loop {
        let vectors = Eventfds::new(count)?;
        if count == 0 {
            return Ok(vectors);
        }
        match kernel.enable_vectors(vectors.all()) {
            Ok(()) => return Ok(vectors),
            Err(error) if count == 1 => return Err(error),
            Err(_) => count /= 2,
        }
    }
}

impl Function for VfioFunction {
    fn config_space(&self) -> Result<Vec<u8>, FunctionError> {
        let mut config = vec![0; self.config.bytes as usize];
        self.read_config(0, &mut config)?;
        Ok(config)
    }

    fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        let what = "a write of the configuration space";
        // The kernel takes windows away when memory is switched off, so nobody may access them from before that on.
        let is_command = offset == COMMAND;
        if is_command && bytes.first().is_some_and(|&low| u16::from(low) & COMMAND_MEMORY == 0) {
            self.is_on.store(false, Ordering::SeqCst);
        }
        let count = pwrite(self.kernel.device(), bytes, self.config.offset + u64::from(offset));
        let outcome = match count {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) => Err(self.failed(what, io::ErrorKind::WriteZero)),
            Err(error) => Err(self.failed(what, error)),
        };
        if is_command {
            self.follow_command()?;
        }
        outcome
    }

    fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    fn check(&self) -> Result<(), FunctionError> {
        let mut header = [0; HEADER_BYTES];
        self.read_config(0, &mut header)?;
        match identity(&header) {
            Identity::Absent => Err(FunctionError::Vfio { address: self.address, error: VfioError::Absent }),
            _ => Ok(()),
        }
    }

    /// The IOMMU refuses what is not mapped.
    fn isolates_memory(&self) -> bool {
        true
    }

    fn time_scale(&self) -> u32 {
        self.time_scale
    }

    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError> {
        let bar = match index {
            REGISTER_BAR => &self.registers,
            DOORBELL_BAR => &self.doorbells,
            _ => return Err(FunctionError::NoBar { index }),
        };
        if bar.bytes() == 0 { Err(FunctionError::NoBar { index }) } else { Ok(bar) }
    }

    fn allocate(&self, bytes: usize, purpose: Purpose) -> Result<Arc<Memory>, FunctionError> {
        match Memory::in_file(bytes, purpose) {
            Ok(memory) => Ok(Arc::new(memory)),
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                Err(FunctionError::OutOfMemory { bytes })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn limit_addresses(&self, bits: u32) -> Result<(), FunctionError> {
        lock(&self.mappings).addresses.limit(bits)
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError> {
        let bytes = memory.bytes();
        let named = |error| FunctionError::Vfio { address: self.address, error };
        let mut mappings = lock(&self.mappings);
        let most = mappings.most;
        if most.is_some_and(|most| mappings.count >= most) {
            return Err(named(VfioError::TooManyMappings { most }));
        }
        let address = mappings.addresses.allocate(bytes, memory.page_size().bytes());
        let address = address.ok_or(FunctionError::OutOfAddresses { bytes })?;
        if let Err(error) = self.kernel.map(address, Arc::clone(memory)) {
            mappings.addresses.free(address);
            let limit = getrlimit(Resource::Memlock).current;
            return Err(named(explain_map(&error, bytes, limit, most)));
        }
        mappings.count += 1;
        Ok(address)
    }

    fn unmap(&self, device_address: u64) -> Result<(), FunctionError> {
        let mut mappings = lock(&self.mappings);
        self.kernel.unmap(device_address).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => FunctionError::NotMapped { device_address },
            _ => self.failed("the end of a mapping", error),
        })?;
        mappings.addresses.free(device_address);
        mappings.count -= 1;
        Ok(())
    }

    fn interrupt_vectors(&self) -> u32 {
        self.vectors.count()
    }

    fn take_interrupt(&self, vector: u32) -> Result<bool, FunctionError> {
        self.vectors.take(vector)
    }

    fn wait_interrupt(&self, vector: u32, until: Duration) -> Result<bool, FunctionError> {
        loop {
            if self.vectors.take(vector)? {
                return Ok(true);
            }
            let left = until.saturating_sub(self.now());
            if left.is_zero() {
                return Ok(false);
            }
            self.vectors.sleep(vector, left, None)?;
        }
    }

    fn interrupt_fd(&self, vector: u32) -> Result<Option<BorrowedFd<'_>>, FunctionError> {
        self.vectors.get(vector).map(Some)
    }

    fn reset(&self) -> Result<(), FunctionError> {
        match self.kernel.reset() {
            // Device without a reset: the kernel knows no such call for it.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTTY.raw_os_error()) => {
                Err(FunctionError::Unsupported {
                    what: "reset the function: the kernel knows no reset for it",
                })
            }
            Err(error) => Err(self.failed("a reset", error)),
            Ok(()) => self.follow_command(),
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn idle(&self) {
        std::hint::spin_loop();
    }
}

impl fmt::Debug for VfioFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioFunction").field("address", &self.address).finish_non_exhaustive()
    }
}
