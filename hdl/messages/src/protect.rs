//! Access checks: keys, rights, bounds and translation of memory regions, and invalidation of keys.
use crate::sizes::{GENERATION_BITS, PAGE_ENTRY_BITS, PAGE_NUMBER_BITS, QUEUE_PAIR_BITS, REGION_BITS};
use rnic_kernel::prelude::*;
use rnic_layout::limits::PAGE_LOG2_MAX;

/// Check of an access to memory, as WQEs and packets name it (protocol 4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AccessRequest {
    /// L_Key or R_Key; all bits are compared.
    pub key: Bits<32>,
    /// Protection domain of the queue pair.
    pub domain: Bits<24>,
    /// Address of the first byte in the address space of the region.
    pub address: Bits<64>,
    /// Length in bytes, at least 1.
    pub length: Bits<32>,
    /// The region must grant local write.
    pub local_write: Bit,
    /// The region must grant remote write.
    pub remote_write: Bit,
    /// The region must grant remote read.
    pub remote_read: Bit,
    /// The region must grant remote atomics.
    pub remote_atomic: Bit,
}

/// Result of an access check.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AccessAnswer {
    /// Key, protection domain, rights and bounds permit the access.
    pub ok: Bit,
    /// Device address of the first byte; see [`IS_PAGED`]. Undefined unless `ok`.
    pub device_address: Bits<64>,
}

/// An entry of the region table.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Region {
    /// Key of the region, all bits.
    pub key: Bits<32>,
    /// The entry is in use.
    pub valid: Bit,
    /// Local write is permitted.
    pub local_write: Bit,
    /// Peers may write (RDMA WRITE).
    pub remote_write: Bit,
    /// Peers may read (RDMA READ).
    pub remote_read: Bit,
    /// Peers may do atomics.
    pub remote_atomic: Bit,
    /// Zero-based: addresses count from zero at the start of the region.
    pub zero_based: Bit,
    /// First address in the address space of the region.
    pub first_address: Bits<64>,
    /// Length of the region in bytes.
    pub length: Bits<64>,
    /// Device address of the first byte; see [`IS_PAGED`].
    pub translation_base: Bits<64>,
    /// Protection domain.
    pub domain: Bits<24>,
}

/// Write of the region table by a command; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct RegionWrite {
    /// Index of the entry.
    pub index: Bits<REGION_BITS>,
    /// New content of the entry.
    pub region: Region,
}

/// Write of the page table by a command; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PageEntryWrite {
    /// Index of the entry.
    pub entry: Bits<PAGE_ENTRY_BITS>,
    /// Device address of the page, in units of 4,096 bytes.
    pub page: Bits<PAGE_NUMBER_BITS>,
}

/// Bit of a device address that marks a paged address, which the page table translates.
pub const IS_PAGED: usize = 63;
/// First bit of the page size in a paged address: log2 of the page size, less log2 of the smallest.
pub const PAGE_SIZE: usize = 58;
/// Bits of the page size in a paged address.
pub const PAGE_SIZE_BITS: usize = 5;
/// Bits of the offset in a paged address: offset of the byte from the start of entry 0, if all entries had this
/// page size.
pub const PAGED_BITS: usize = PAGE_ENTRY_BITS + PAGE_LOG2_MAX as usize;

/// Request of a WQE or of the peer to invalidate a key (protocol 4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Invalidation {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Key to invalidate; all bits are compared.
    pub key: Bits<32>,
    /// Protection domain of the queue pair.
    pub domain: Bits<24>,
}

/// Result of an invalidation.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Invalidated {
    /// Index of the queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// The key is invalidated. Low: it was refused and nothing has changed.
    pub ok: Bit,
}
