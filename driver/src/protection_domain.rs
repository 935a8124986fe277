//! Protection domains.

use crate::device::{Device, DeviceShared};
use crate::error::Error;
use crate::sync::lock;
use std::fmt;
use std::sync::Arc;

/// A protection domain, kept by all objects in it.
pub(crate) struct ProtectionDomainShared {
    pub(crate) device: Arc<DeviceShared>,
    pub(crate) number: u32,
}

impl Drop for ProtectionDomainShared {
    fn drop(&mut self) {
        lock(&self.device.ids).domains.free(self.number);
    }
}

/// Protection domain: queue pairs, SRQs, regions and address handles of one domain may be used together, those of different
/// domains may not (protocol 4.6). It occupies no resource of the card. Clones are cheap and refer to the same domain; its
/// objects keep it.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(crate) shared: Arc<ProtectionDomainShared>,
}

impl Device {
    /// Creates a protection domain.
    ///
    /// # Errors
    ///
    /// [`Error::Exhausted`] if all domain numbers are in use.
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
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProtectionDomain({})", self.number())
    }
}
