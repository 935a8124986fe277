//! Memory that is mapped for the card, and unmapped before it is freed.
//!
//! Unmapping ends the card's access only where the host has an IOMMU. So the driver drops a mapping only when the card has
//! confirmed that it does not use the memory any more: it has destroyed the object, or was reset.

use crate::function::{DmaSegment, Function, FunctionError};
use crate::memory::{Memory, PageSize, Purpose, RingWords};
use crate::process::Process;
use std::fmt;
use std::sync::Arc;

/// Memory together with its DMA mapping. Dropping the last handle unmaps the memory, then frees it.
pub(crate) struct Mapping(Arc<Mapped>);

struct Mapped {
    function: Arc<dyn Function>,
    memory: Arc<Memory>,
    device_address: u64,
    /// Process that has mapped it.
    process: Process,
}

impl Mapped {
    fn new(function: &Arc<dyn Function>, memory: Arc<Memory>, device_address: u64) -> Self {
        Self { function: Arc::clone(function), memory, device_address, process: Process::current() }
    }
}

/// Allocates memory, and checks that the back end has returned what was requested.
pub(crate) fn allocate(
    function: &Arc<dyn Function>,
    asked_bytes: usize,
    asked_purpose: Purpose,
    page_size: PageSize,
) -> Result<Arc<Memory>, FunctionError> {
    let memory = function.allocate_in(asked_bytes, asked_purpose, page_size)?;
    let (bytes, purpose) = (memory.bytes(), memory.purpose());
    if bytes < asked_bytes || purpose != asked_purpose {
        return Err(FunctionError::WrongMemory { bytes, purpose, asked_bytes, asked_purpose });
    }
    Ok(memory)
}

impl Mapping {
    /// Allocates memory and maps it at contiguous device addresses.
    pub(crate) fn new(
        function: &Arc<dyn Function>,
        bytes: usize,
        purpose: Purpose,
    ) -> Result<Self, FunctionError> {
        let memory = allocate(function, bytes, purpose, PageSize::Base)?;
        let device_address = function.map(&memory)?;
        Ok(Self(Arc::new(Mapped::new(function, memory, device_address))))
    }

    /// Maps memory, not necessarily at contiguous device addresses. Also returns the DMA segments of the bytes that may be accessed,
    /// in the order of the memory.
    pub(crate) fn scattered(
        function: &Arc<dyn Function>,
        memory: Arc<Memory>,
    ) -> Result<(Self, Vec<DmaSegment>), FunctionError> {
        let mut segments = function.map_scattered(&memory)?;
        let device_address = segments.first().map_or(0, |segment| segment.device_address);
        if let Some(first) = segments.first_mut() {
            // Less than a page, and segments have whole pages.
            let skipped = memory.range().start;
            first.device_address += skipped as u64;
            first.bytes = first.bytes.saturating_sub(skipped);
        }
        Ok((Self(Arc::new(Mapped::new(function, memory, device_address))), segments))
    }

    /// Returns another handle of the mapping, which keeps it.
    pub(crate) fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Unmaps the memory, and returns it. `None` if another handle keeps it, or the back end has not ended the mapping.
    pub(crate) fn into_memory(self) -> Option<Memory> {
        let mapped = Arc::into_inner(self.0)?;
        let memory = Arc::clone(&mapped.memory);
        drop(mapped);
        Arc::into_inner(memory)
    }

    /// Keeps the memory mapped for ever, because the card may access it for ever.
    pub(crate) fn leak(&self) {
        std::mem::forget(self.share());
    }

    /// The memory, as the CPU sees it.
    pub(crate) fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// Words of a ring.
    pub(crate) fn words(&self) -> RingWords<'_> {
        self.0.memory.words()
    }

    /// Device address of the first byte.
    pub(crate) fn device_address(&self) -> u64 {
        self.0.device_address
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // In a process that was forked it is the mapping of the other one.
        if !self.process.is_current() {
            return;
        }
        if self.function.unmap(self.device_address).is_err() {
            // The card may still access the memory, so it is leaked.
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:#x}", self.0.memory, self.0.device_address)
    }
}
