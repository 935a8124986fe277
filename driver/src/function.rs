//! The interface between the driver and the carrier of a card.
//!
//! ```text
//!   driver ──> Function ──┬── config_space            identity, bus master
//!                         ├── bar(0), bar(2)          registers, doorbells
//!                         ├── allocate, map, unmap    memory that CPU and card share
//!                         ├── take_interrupt          interrupt vectors
//!                         └── now, idle               time
//! ```
//!
//! A back end is a PCI function behind VFIO ([`crate::vfio`]), a vfio-user socket ([`crate::vfio_user`]), or a simulated card in
//! this process; the driver treats them alike. One rule makes that possible: **a card may make progress only inside calls of this
//! interface**. A simulated card advances inside calls of [`Function`] and [`Bar`] only. So every loop of the driver that waits
//! calls [`Function::idle`], and measures its timeout with [`Function::now`], which a simulation answers with simulated time.

use crate::memory::{Memory, PageSize, Purpose};
use crate::pci_address::PciAddress;
use crate::process::Process;
use crate::server_error::ServerError;
use crate::vfio_error::VfioError;
use rustix::io::Errno;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use rnic_layout::pci::{DOORBELL_BAR, REGISTER_BAR};

/// One BAR of the card. Every call is one access on the bus; there is no caching.
///
/// Offsets are in bytes and multiples of the access size. An access outside the BAR, or to a card that was removed, behaves
/// as on PCI: reads return all ones, writes are dropped.
///
/// Order: shared memory that this thread has written before a write call is visible to the card before that write arrives,
/// and writes arrive in the order of the calls. A memory-mapped back end issues its barrier inside the write calls.
pub trait Bar: Send + Sync {
    /// Size of the BAR in bytes.
    fn bytes(&self) -> u64;
    /// Reads 32 bits, little-endian, at a byte offset.
    fn read32(&self, offset: u64) -> u32;
    /// Writes 32 bits, little-endian, at a byte offset.
    fn write32(&self, offset: u64, value: u32);
    /// Reads 64 bits, little-endian, at a byte offset: in one access, or the low half before the high half.
    fn read64(&self, offset: u64) -> u64;
    /// Writes 64 bits, little-endian, at a byte offset: in one access, or the low half before the high half. If in two, no
    /// other write of this BAR, of any thread, comes between them: the back end holds a lock. Otherwise the halves of two
    /// threads may mix, because the card has one latch for each doorbell of a page, whatever queue it names.
    ///
    /// The driver writes doorbells and registers with this call only.
    fn write64(&self, offset: u64, value: u64);
}

/// Failure of a back end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// The function has no BAR of this index.
    #[error("the function has no BAR {index}")]
    NoBar {
        /// Index of the BAR that was requested.
        index: u8,
    },
    /// The configuration space is shorter than the header that every PCI function has.
    #[error(
        "the configuration space has {bytes} bytes, and {needed} are needed; correct the back end or its server"
    )]
    ShortConfigSpace {
        /// Bytes that there are.
        bytes: usize,
        /// Bytes that every function has.
        needed: usize,
    },
    /// The host cannot allocate DMA memory of this size.
    #[error(
        "the host cannot allocate {bytes} bytes of shared memory; free some, or raise the limit of locked memory"
    )]
    OutOfMemory {
        /// Bytes requested.
        bytes: usize,
    },
    /// The kernel has no such huge pages free.
    #[error(
        "the kernel has no {} huge pages of {} bytes free; have it keep as many, by writing their number to {}, as root, or use \
         pages of 4 KiB",
        .bytes.div_ceil(.page_size.bytes()), .page_size.bytes(), .page_size.reserve().unwrap_or_default()
    )]
    NoHugePages {
        /// Bytes requested.
        bytes: usize,
        /// Size of the pages.
        page_size: PageSize,
    },
    /// No range of device addresses of this size is free.
    #[error("no room in the card's address space for {bytes} bytes; free regions or make them smaller")]
    OutOfAddresses {
        /// Bytes requested.
        bytes: usize,
    },
    /// All device addresses that the host gives are longer than the card's.
    #[error(
        "the card has device addresses of {bits} bits, and the host gives none below {lowest:#x}: the IOMMU has to translate for it, \
         with addresses that the card has"
    )]
    AddressWidth {
        /// Bits of an address of the card.
        bits: u32,
        /// Lowest address that the host gives.
        lowest: u64,
    },
    /// [`Function::allocate`] returned memory that is too small or has another purpose.
    #[error(
        "the back end allocated {bytes} bytes for {purpose:?}, and {asked_bytes} bytes for {asked_purpose:?} were \
         requested; correct its `allocate`"
    )]
    WrongMemory {
        /// Size of the memory in bytes.
        bytes: usize,
        /// Purpose of the memory.
        purpose: Purpose,
        /// Bytes requested.
        asked_bytes: usize,
        /// Purpose requested.
        asked_purpose: Purpose,
    },
    /// Nothing is mapped at this device address.
    #[error("nothing is mapped at device address {device_address:#x}")]
    NotMapped {
        /// Device address that was to be unmapped.
        device_address: u64,
    },
    /// The function has no interrupt vector of this index.
    #[error("the function has no interrupt vector {vector}")]
    NoVector {
        /// Index of the vector that was requested.
        vector: u32,
    },
    /// The function is open already. A card has one driver at a time.
    #[error(
        "the function is already open, by {owner}; drop that device and every object of it, or open another function"
    )]
    InUse {
        /// Who has opened it.
        owner: String,
    },
    /// The process that serves the card does not do so as it should.
    #[error("the server at {socket} {error}")]
    Server {
        /// Path of its socket.
        socket: String,
        /// What it does wrong.
        error: ServerError,
    },
    /// A PCI function of this machine cannot be opened or used.
    #[error("the PCI function {address} {error}")]
    Vfio {
        /// Its address.
        address: PciAddress,
        /// Why, and what to do.
        error: VfioError,
    },
    /// The memory is in this process alone, and the card in another.
    #[error(
        "memory of {bytes} bytes is in this process alone, and the card in another, which reaches files only; allocate it with \
         `ProtectionDomain::allocate` or `share`, or register memory of `UserMemory::in_file`"
    )]
    NotShared {
        /// Size of the memory in bytes.
        bytes: usize,
    },
    /// The back end does not implement this operation.
    #[error("this back end cannot {what}")]
    Unsupported {
        /// The operation, as a verb phrase.
        what: &'static str,
    },
    /// A call to the operating system failed.
    #[error("the operating system refused: {0}")]
    Io(std::io::Error),
    /// Another failure, described by the back end.
    #[error("{0}")]
    Other(String),
}

// The text has its cause already, so that the cause is not a source, which a chain of errors would print again.
impl From<std::io::Error> for FunctionError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Contiguous range of device addresses (DMA or IOVA) that holds a part of mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaSegment {
    /// Device address of the first byte, a multiple of 4096.
    pub device_address: u64,
    /// Size in bytes, a multiple of 4096.
    pub bytes: usize,
}

/// Place for the one owner of a function. Clones are the same place, so that all ways to one card can share it.
#[derive(Clone, Debug, Default)]
pub struct Ownership(Arc<Mutex<Option<String>>>);

impl Ownership {
    /// Makes `owner` the owner, until the claim is dropped.
    ///
    /// # Errors
    ///
    /// [`FunctionError::InUse`] with the name of the present owner.
    pub fn claim(&self, owner: String) -> Result<Claim, FunctionError> {
        let mut place = self.lock();
        match &*place {
            Some(owner) => Err(FunctionError::InUse { owner: owner.clone() }),
            None => {
                *place = Some(owner);
                Ok(Claim(self.clone(), Process::current()))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The function belongs to its owner until this is dropped. A process that was forked from that of the owner does not end it.
#[must_use]
pub struct Claim(Ownership, Process);

impl Drop for Claim {
    fn drop(&mut self) {
        if self.1.is_current() {
            *self.0.lock() = None;
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({:?})", self.0.lock())
    }
}

/// A card, as the driver accesses it.
///
/// All objects of a card share it as `Arc<dyn Function>`, also across threads; a back end protects its own state with a
/// lock. Calls may come from any thread. The driver makes none while it holds a slice of shared memory.
pub trait Function: Send + Sync {
    /// Reads the PCI configuration space, 256 or 4096 bytes; empty if the card is not a PCI function.
    ///
    /// # Errors
    ///
    /// If the access fails.
    fn config_space(&self) -> Result<Vec<u8>, FunctionError>;

    /// Writes 1, 2 or 4 bytes of the PCI configuration space, little-endian, at an offset that is a multiple of their number.
    /// The driver sets memory and bus master with it.
    ///
    /// # Errors
    ///
    /// If the access fails, or the card is not a PCI function.
    fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError>;

    /// Place for the owner of the function. A [`Device`](crate::Device) claims it as long as it is open.
    fn ownership(&self) -> &Ownership;

    /// Says why BARs read as all ones, if the back end knows: it has lost its connection, for example.
    ///
    /// # Errors
    ///
    /// The reason.
    fn check(&self) -> Result<(), FunctionError> {
        Ok(())
    }

    /// Returns whether nothing is harmed if the card still accesses memory that was freed: its pages are then used for nothing
    /// else, because they belong to a file that the card keeps, or an IOMMU refuses the access once they are unmapped. Then the driver frees the memory of a card that has not confirmed
    /// its reset, which it leaks otherwise.
    fn isolates_memory(&self) -> bool {
        false
    }

    /// How many times longer than hardware the card may take, on the clock of [`Self::now`]. A card that another process
    /// simulates takes thousands of times longer by the clock on the wall. The driver's own timeouts are multiplied by it.
    fn time_scale(&self) -> u32 {
        1
    }

    /// Returns a BAR.
    ///
    /// # Errors
    ///
    /// [`FunctionError::NoBar`] if the function has none of this index.
    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError>;

    /// Limits the device addresses of all mappings to this many bits, since the card puts out no more. The driver calls it before
    /// it maps anything. A back end whose addresses are always shorter need not do anything.
    ///
    /// # Errors
    ///
    /// [`FunctionError::AddressWidth`] if the back end has no such addresses.
    fn limit_addresses(&self, bits: u32) -> Result<(), FunctionError> {
        let _ = bits;
        Ok(())
    }

    /// Allocates memory that can be mapped: zeroed, in whole pages of 4096 bytes, page-aligned. A back end to a card in
    /// another process allocates memory that both processes share. The memory is not in use: the driver writes rings and
    /// payload without regard for another user.
    ///
    /// # Errors
    ///
    /// [`FunctionError::OutOfMemory`] if the host has no such memory.
    fn allocate(&self, bytes: usize, purpose: Purpose) -> Result<Arc<Memory>, FunctionError> {
        let memory = Memory::try_zeroed(bytes, purpose);
        Ok(Arc::new(memory.map_err(|_| FunctionError::OutOfMemory { bytes })?))
    }

    /// As [`Self::allocate`], in pages of a size. Huge pages are those of a file in every back end, so that both processes and the
    /// IOMMU have them.
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`], [`FunctionError::NoHugePages`] if the kernel has none free, and [`FunctionError::Io`] if the process
    /// has no file descriptor for the pages.
    fn allocate_in(
        &self,
        bytes: usize,
        purpose: Purpose,
        page_size: PageSize,
    ) -> Result<Arc<Memory>, FunctionError> {
        if page_size == PageSize::Base {
            return self.allocate(bytes, purpose);
        }
        match Memory::in_file_of(bytes, purpose, page_size) {
            Ok(memory) => Ok(Arc::new(memory)),
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE)) => {
                Err(error.into())
            }
            // Without support for pages of the size there is no such file; with it, but without pages, no mapping.
            Err(_) => Err(FunctionError::NoHugePages { bytes, page_size }),
        }
    }

    /// Maps memory for the card, at contiguous device addresses. Returns the first of them, a multiple of 4096. A simulated
    /// card keeps the [`Memory::device_view`].
    ///
    /// # Errors
    ///
    /// [`FunctionError::OutOfAddresses`] if no range is free, or another failure of the back end.
    fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError>;

    /// Maps memory for the card as [`Self::map`] does, but not necessarily at contiguous device addresses. Returns the DMA
    /// segments in the order of the memory. A back end without an IOMMU returns the physical pages, adjacent ones joined.
    ///
    /// # Errors
    ///
    /// As [`Self::map`].
    fn map_scattered(&self, memory: &Arc<Memory>) -> Result<Vec<DmaSegment>, FunctionError> {
        Ok(vec![DmaSegment { device_address: self.map(memory)?, bytes: memory.bytes() }])
    }

    /// Unmaps memory: where the host has an IOMMU, the card cannot access it any more when this returns. Elsewhere nothing
    /// prevents that, so the driver unmaps memory only after the card has confirmed that it does not use it: it has destroyed
    /// the object, or was reset. `device_address` is the first address of the mapping, which for scattered memory is that of
    /// its first segment.
    ///
    /// # Errors
    ///
    /// [`FunctionError::NotMapped`] if `device_address` did not come from [`Self::map`] or [`Self::map_scattered`].
    fn unmap(&self, device_address: u64) -> Result<(), FunctionError>;

    /// Number of interrupt vectors that the back end delivers. With zero the driver polls.
    fn interrupt_vectors(&self) -> u32;

    /// Takes the pending interrupt of a vector: returns true once for one or more interrupts since the last call. Does not
    /// wait.
    ///
    /// # Errors
    ///
    /// [`FunctionError::NoVector`] if the function has no such vector.
    fn take_interrupt(&self, vector: u32) -> Result<bool, FunctionError>;

    /// Waits for an interrupt of a vector until [`Self::now`] reaches `until`, and takes it. Returns whether it came. A back
    /// end that can sleep does so here.
    ///
    /// # Errors
    ///
    /// [`FunctionError::NoVector`] if the function has no such vector.
    fn wait_interrupt(&self, vector: u32, until: Duration) -> Result<bool, FunctionError> {
        loop {
            if self.take_interrupt(vector)? {
                return Ok(true);
            }
            if self.now() >= until {
                return Ok(false);
            }
            self.idle();
        }
    }

    /// The file descriptor that is readable while the vector has an interrupt that was not taken, for an event loop of the
    /// application; `None` if the back end has none, because it needs to be called to make progress.
    ///
    /// # Errors
    ///
    /// [`FunctionError::NoVector`] if the function has no such vector.
    fn interrupt_fd(&self, vector: u32) -> Result<Option<BorrowedFd<'_>>, FunctionError> {
        if vector < self.interrupt_vectors() { Ok(None) } else { Err(FunctionError::NoVector { vector }) }
    }

    /// Resets the whole function, as a PCI function-level reset does. The card loses its registers, objects and rings, and
    /// the configuration space what was written to it, unless the back end restores that; DMA mappings of the back end remain.
    ///
    /// # Errors
    ///
    /// [`FunctionError::Unsupported`] if the back end has no such reset.
    fn reset(&self) -> Result<(), FunctionError>;

    /// Reads a monotonic clock, which advances while [`Self::idle`] is called.
    fn now(&self) -> Duration;

    /// Called in each iteration of a wait, and by each poll that finds nothing. A simulation advances here; a back end of hardware spins or yields.
    fn idle(&self);
}
