//! The question whether somebody may touch memory, and where it is.
use crate::sizes::{GENERATION_BITS, PAGE_ENTRY_BITS, PAGE_NUMBER_BITS, QUEUE_PAIR_BITS, REGION_BITS};
use rnic_kernel::prelude::*;
use rnic_layout::limits::PAGE_LOG2_MAX;

/// A stretch of memory as work requests and packets name it (protocol 4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AccessRequest {
    /// lkey or rkey, compared whole.
    pub key: Bits<32>,
    /// Protection domain of the queue pair.
    pub domain: Bits<24>,
    /// In the region's own address space.
    pub address: Bits<64>,
    /// In bytes, at least 1.
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

/// The answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AccessAnswer {
    /// Key, domain, rights and bounds hold.
    pub ok: Bit,
    /// Device address of the first byte.
    pub device_address: Bits<64>,
}

/// An entry of the region table as checks need it; the mirror of those fields of `rnic_layout::context::RegionEntry`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Region {
    /// The whole key.
    pub key: Bits<32>,
    /// The entry is in use.
    pub valid: Bit,
    /// Local write.
    pub local_write: Bit,
    /// Peers may write.
    pub remote_write: Bit,
    /// Peers may read.
    pub remote_read: Bit,
    /// Peers may do atomics.
    pub remote_atomic: Bit,
    /// Addresses count from zero.
    pub zero_based: Bit,
    /// First address in its own address space.
    pub first_address: Bits<64>,
    /// Length in bytes.
    pub length: Bits<64>,
    /// Device address of the first byte.
    pub translation_base: Bits<64>,
    /// Protection domain.
    pub domain: Bits<24>,
}

/// Commands write the table; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct RegionWrite {
    /// Which entry.
    pub index: Bits<REGION_BITS>,
    /// What it is from now on.
    pub region: Region,
}

/// Commands write the table of pages; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PageEntryWrite {
    /// Which entry.
    pub entry: Bits<PAGE_ENTRY_BITS>,
    /// Number of the device page of 4,096 bytes with which the page begins.
    pub page: Bits<PAGE_NUMBER_BITS>,
}

/// Address of a byte in pages, as stages take it for a device address: bit that says so.
pub const IS_PAGED: usize = 63;
/// The same: first bit of the size of the pages, as a power of two, less that of the smallest.
pub const PAGE_SIZE: usize = 58;
/// Width of that.
pub const PAGE_SIZE_BITS: usize = 5;
/// Bits of the place of a byte behind the first byte of entry 0, were all pages as large as this one.
pub const PAGED_BITS: usize = PAGE_ENTRY_BITS + PAGE_LOG2_MAX as usize;

/// A key that a work request or a peer wants to end (protocol 4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Invalidation {
    /// Who wants it.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// The key, compared whole.
    pub key: Bits<32>,
    /// Protection domain of the queue pair.
    pub domain: Bits<24>,
}

/// What has become of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Invalidated {
    /// Who wanted it.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// For which generation.
    pub generation: Bits<GENERATION_BITS>,
    /// The key permits nothing any more; else nothing has changed.
    pub ok: Bit,
}
