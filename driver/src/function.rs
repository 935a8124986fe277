//! The one seam of the driver: what it asks of whatever carries the card.
//!
//! ```text
//!   driver ──> Function ──┬── bar(0), bar(2)          registers, doorbells
//!                         ├── allocate, map, unmap    memory that CPU and card share
//!                         ├── take_interrupt          vectors
//!                         └── now, idle               time
//! ```
//!
//! A back end is a PCI function behind VFIO, a vfio-user socket, or a simulated card in this process. The driver never
//! learns which. One rule makes them alike: **the card may stand still unless it is asked**. A simulated card advances
//! only inside calls of [`Function`] and [`Bar`], so every loop of the driver that waits calls [`Function::idle`], and
//! measures its timeout with [`Function::now`], which in a simulation is simulated time.

use crate::memory::{Memory, Purpose};
use std::sync::Arc;
use std::time::Duration;

/// BAR of the registers.
pub const REGISTER_BAR: u8 = 0;
/// BAR of the doorbell pages.
pub const DOORBELL_BAR: u8 = 2;

/// A window of the card. Not necessarily memory: every call is one access on the bus.
///
/// Offsets are multiples of the access size. An access outside the window, or to a card that is gone, behaves as on
/// PCI: reads give all ones, writes vanish.
///
/// Order: what this thread has written to shared memory before a write call is visible to the card before that
/// write arrives, and writes arrive in the order of their calls. A memory-mapped back end puts its barrier there.
pub trait Bar: Send + Sync {
    /// Size of the window.
    fn bytes(&self) -> u64;
    /// Reads four bytes, little-endian.
    fn read32(&self, offset: u64) -> u32;
    /// Writes four bytes, little-endian.
    fn write32(&self, offset: u64, value: u32);
    /// Reads eight bytes in one access, or low half before high half.
    fn read64(&self, offset: u64) -> u64;
    /// Writes eight bytes in one access, or low half before high half.
    fn write64(&self, offset: u64, value: u64);
}

/// What a back end can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// There is no such BAR.
    #[error("the function has no BAR {index}")]
    NoBar {
        /// Index of the BAR.
        index: u8,
    },
    /// The host has no memory of this size.
    #[error(
        "the host cannot give {bytes} bytes of shared memory; free some, or raise the limit of locked memory"
    )]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The addresses that the card can reach are used up.
    #[error("no room in the card's address space for {bytes} bytes; free regions or make them smaller")]
    OutOfAddresses {
        /// Bytes asked for.
        bytes: usize,
    },
    /// Nothing is mapped at this device address.
    #[error("nothing is mapped at device address {device_address:#x}")]
    NotMapped {
        /// The address.
        device_address: u64,
    },
    /// There is no such interrupt vector.
    #[error("the function has no interrupt vector {vector}")]
    NoVector {
        /// The vector.
        vector: u32,
    },
    /// The back end cannot do this.
    #[error("this back end cannot {what}")]
    Unsupported {
        /// What was asked.
        what: &'static str,
    },
    /// The operating system refused.
    #[error("the operating system refused: {0}")]
    Io(#[from] std::io::Error),
    /// Anything else that a back end has to say.
    #[error("{0}")]
    Other(String),
}

/// Memory that the card sees in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaSegment {
    /// Of its first byte; a multiple of 4096.
    pub device_address: u64,
    /// Its size; a multiple of 4096.
    pub bytes: usize,
}

/// A card, as far as the driver reaches it.
///
/// Objects of one card share it as `Arc<dyn Function>`, also across threads; a back end with state of its own keeps it
/// behind a lock. Calls may come from any thread, and none is made while the driver holds memory borrowed.
pub trait Function: Send + Sync {
    /// Reads the PCI configuration space, 256 or 4096 bytes. Empty where the card is not behind PCI.
    ///
    /// # Errors
    ///
    /// If the back end cannot be reached.
    fn config_space(&self) -> Result<Vec<u8>, FunctionError>;

    /// Gives a BAR.
    ///
    /// # Errors
    ///
    /// [`FunctionError::NoBar`] if there is none of this index.
    fn bar(&self, index: u8) -> Result<&dyn Bar, FunctionError>;

    /// Makes memory that can be mapped: zeroed, whole pages of 4096 bytes, aligned to them. A back end whose card
    /// lives in another process makes it where both can see it.
    ///
    /// # Errors
    ///
    /// [`FunctionError::OutOfMemory`].
    fn allocate(&self, bytes: usize, purpose: Purpose) -> Result<Arc<Memory>, FunctionError> {
        Ok(Arc::new(Memory::zeroed(bytes, purpose)))
    }

    /// Lets the card reach memory, and gives its device address, a multiple of 4096. The whole of it is contiguous there.
    /// A simulated card keeps the [`Memory::device_view`].
    ///
    /// # Errors
    ///
    /// [`FunctionError::OutOfAddresses`], or what the back end says.
    fn map(&self, memory: &Arc<Memory>) -> Result<u64, FunctionError>;

    /// Lets the card reach memory as [`Self::map`] does, but need not make one piece of it: gives what the card sees, in the
    /// order of the memory. A back end without an IOMMU tells where the pages are. Large pages make short lists: whoever
    /// finds neighbours joins them.
    ///
    /// # Errors
    ///
    /// As [`Self::map`].
    fn map_scattered(&self, memory: &Arc<Memory>) -> Result<Vec<DmaSegment>, FunctionError> {
        Ok(vec![DmaSegment { device_address: self.map(memory)?, bytes: memory.bytes() }])
    }

    /// Takes memory away from the card: when this returns, the card cannot touch it any more. Scattered memory goes by the
    /// address of its first segment.
    ///
    /// # Errors
    ///
    /// [`FunctionError::NotMapped`] if `device_address` did not come from [`Self::map`] or [`Self::map_scattered`].
    fn unmap(&self, device_address: u64) -> Result<(), FunctionError>;

    /// Tells how many interrupt vectors the back end delivers. Zero is legal: the driver then polls.
    fn interrupt_vectors(&self) -> u32;

    /// Takes a pending interrupt of a vector: true once for one or more interrupts since the last call. Does not wait.
    ///
    /// # Errors
    ///
    /// [`FunctionError::NoVector`].
    fn take_interrupt(&self, vector: u32) -> Result<bool, FunctionError>;

    /// Waits for an interrupt of a vector, at most until the clock shows `until`, and takes it. A back end that can
    /// sleep does so here.
    ///
    /// # Errors
    ///
    /// [`FunctionError::NoVector`].
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

    /// Resets the whole function from outside, as PCI's function level reset does. Registers, rings and mappings of the
    /// card are forgotten; mappings of the back end stay.
    ///
    /// # Errors
    ///
    /// [`FunctionError::Unsupported`] if the back end has no such reset.
    fn reset(&self) -> Result<(), FunctionError>;

    /// Reads a clock that only goes forward, and that goes on while somebody calls [`Self::idle`].
    fn now(&self) -> Duration;

    /// Says that the caller has nothing to do but wait. A simulation advances here; a real back end spins or yields.
    fn idle(&self);
}
