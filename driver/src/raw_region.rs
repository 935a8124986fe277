//! Regions without types: memory that the application goes on to use, as `ibv_reg_mr` registers it.

use crate::error::{Error, check_option};
use crate::protection_domain::ProtectionDomain;
use crate::region::{RangeError, RegionShared, ReleaseError, Terms};
use crate::remote_memory::{RemoteMemory, RemoteRights};
use crate::sge::Sge;
use crate::user_memory::Buffer;
use std::fmt;
use std::sync::Arc;

/// Who may do what with a region: `ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Requests of this host may write the memory. The rights of peers to write need this.
    pub local_write: bool,
    /// What peers may do.
    pub rights: RemoteRights,
    /// The key can be invalidated.
    pub invalidatable: bool,
    /// Address of the first byte in requests: `ibv_reg_mr_iova`. `None` for that of the buffer in this process.
    pub first_address: Option<u64>,
}

/// A registered buffer of the application: `ibv_mr`. Dropping it deregisters the buffer, and does not tell whether the card has
/// confirmed that: [`Self::deregister`] does. Buffers of several regions may overlap:
/// each region has device addresses of its own. Pages that regions share are locked once for each.
pub struct Region(Arc<RegionShared>);

impl Region {
    /// Registers a buffer: `ibv_reg_mr`.
    ///
    /// # Errors
    ///
    /// As [`ProtectionDomain::register`]. The card refuses rights of peers to write without [`Access::local_write`].
    pub fn register(domain: &ProtectionDomain, buffer: Buffer, access: &Access) -> Result<Self, Error> {
        let Access { local_write, rights, invalidatable, first_address } = *access;
        let first_address = first_address.unwrap_or(buffer.address());
        let last_max = u64::MAX - first_address;
        check_option("region.bytes", buffer.len() as u64, 1, last_max)?;
        let first_address = Some(first_address);
        let terms = Terms { local_write, rights, invalidatable, first_address };
        Ok(Self(RegionShared::register(&domain.shared, buffer.0, terms)?))
    }

    /// Deregisters the buffer: `ibv_dereg_mr`.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Kept`] if the card does not confirm that it does not use the memory any more. It may access the bytes until it
    /// is reset.
    pub fn deregister(self) -> Result<(), ReleaseError> {
        Arc::into_inner(self.0).ok_or(ReleaseError::NotWhole(()))?.release().map(drop)
    }

    /// Key in SGEs, and for peers (`L_Key`, `R_Key`).
    pub fn key(&self) -> u32 {
        self.0.key
    }

    /// Address, key and size of the region, which a peer needs to access it.
    pub fn remote(&self) -> RemoteMemory {
        let RegionShared { key, first_address, bytes, .. } = *self.0;
        RemoteMemory { address: first_address, key, bytes: bytes as u64 }
    }

    /// Names `length` bytes from `address` on, for a request.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if they are not all in the region.
    pub fn sge(&self, address: u64, length: u32) -> Result<Sge, RangeError> {
        let offset = address.wrapping_sub(self.0.first_address) as usize;
        let bytes = self.0.bytes;
        match offset.checked_add(length as usize) {
            Some(end) if end <= bytes => Ok(Sge::new(address, self.0.key, length)),
            _ => Err(RangeError { offset, length: length as usize, bytes }),
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:#x}: {} bytes at {:#x})", self.key(), self.0.bytes, self.0.first_address)
    }
}
