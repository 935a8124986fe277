//! Protection domains: what may be used together.

use crate::address_handle::{AddressHandle, Path};
use crate::device::{Device, DeviceShared};
use crate::error::Error;
use crate::region::{Region, RegionShared, RemoteRights, SharedRegion};
use crate::sync::lock;
use std::fmt;
use std::sync::Arc;

/// Dropped when nothing is left that stands in the domain.
pub(crate) struct ProtectionDomainShared {
    pub(crate) device: Arc<DeviceShared>,
    pub(crate) number: u32,
}

impl Drop for ProtectionDomainShared {
    fn drop(&mut self) {
        lock(&self.device.ids).domains.free(self.number);
    }
}

/// A protection domain: queue pairs, regions and address handles of one domain may be used together, and no others
/// (protocol 4.6). It costs the card nothing. Handles are cheap to clone, and whatever stands in the domain keeps it.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(crate) shared: Arc<ProtectionDomainShared>,
}

impl Device {
    /// Makes a protection domain.
    ///
    /// # Errors
    ///
    /// If all numbers are in use.
    pub fn create_protection_domain(&self) -> Result<ProtectionDomain, Error> {
        let number = lock(&self.shared.ids).domains.allocate_lowest()?;
        let shared = ProtectionDomainShared { device: Arc::clone(&self.shared), number };
        Ok(ProtectionDomain { shared: Arc::new(shared) })
    }
}

impl ProtectionDomain {
    /// Number of the domain in commands.
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// Registers zeroed memory that no peer can reach. It can be cut into pieces, which move into posted work and come
    /// back with its completion.
    ///
    /// # Errors
    ///
    /// If there is no memory or key left, or the card refuses.
    pub fn allocate(&self, bytes: usize) -> Result<Region, Error> {
        Ok(Region::whole(RegionShared::create(&self.shared, bytes, RemoteRights::NONE, false)?))
    }

    /// Registers zeroed memory that peers can reach who know its key.
    ///
    /// # Errors
    ///
    /// If there is no memory or key left, or the card refuses.
    pub fn share(&self, bytes: usize, rights: RemoteRights) -> Result<SharedRegion, Error> {
        Ok(SharedRegion::new(RegionShared::create(&self.shared, bytes, rights, false)?))
    }

    /// Registers zeroed memory that peers can reach who know its key, until a request of this host or of a peer ends that key
    /// ([`Operation::LocalInvalidate`](crate::Operation::LocalInvalidate),
    /// [`Operation::SendInvalidate`](crate::Operation::SendInvalidate)). The memory stays; a key that was ended never holds again.
    ///
    /// # Errors
    ///
    /// If there is no memory or key left, or the card refuses.
    pub fn share_invalidatable(&self, bytes: usize, rights: RemoteRights) -> Result<SharedRegion, Error> {
        Ok(SharedRegion::new(RegionShared::create(&self.shared, bytes, rights, true)?))
    }

    /// Makes an address handle.
    ///
    /// # Errors
    ///
    /// If there is none left, the path names a source address that is not set, or the card refuses.
    pub fn create_address_handle(&self, path: &Path) -> Result<AddressHandle, Error> {
        AddressHandle::create(&self.shared, path)
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProtectionDomain({})", self.number())
    }
}
