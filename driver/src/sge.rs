//! Scatter/gather entries.

use rnic_layout::queue::send::RawSge;

/// Part of registered memory, as a WQE names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    address: u64,
    key: u32,
    length: u32,
}

impl Sge {
    /// Names bytes of a region. While a request with it is posted, nobody may have the bytes as a slice.
    pub(crate) fn new(address: u64, key: u32, length: u32) -> Self {
        Self { address, key, length }
    }

    /// Length in bytes.
    pub fn length(self) -> u32 {
        self.length
    }

    /// The SGE as it is written to a WQE.
    pub(crate) fn image(self) -> RawSge {
        let Self { address, key, length } = self;
        RawSge { address: address.into(), local_key: key.into(), length: length.into() }
    }
}
