//! Scatter/gather entries. This is one of the modules with `unsafe` code: one function that the caller answers for.

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

    /// Names memory by what a peer or another library knows of it, as `ibv_sge` does. The card checks the key, the range and the
    /// rights.
    ///
    /// # Safety
    ///
    /// If the key is valid, it is that of a [`raw::Region`](crate::raw::Region) or a [`SharedRegion`](crate::SharedRegion), or
    /// nobody has or takes a slice of the bytes while a request with the entry is in flight: a [`Region`](crate::Region) gives
    /// slices of its memory.
    #[expect(unsafe_code, reason = "the caller answers for the key")]
    pub unsafe fn from_parts(address: u64, key: u32, length: u32) -> Self {
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
