//! Protection domains.

use crate::device::{Device, DeviceShared, IdAllocators, NewObject};
use crate::error::Error;
use crate::mapping::Mapping;
use crate::sync::{AtomicBool, lock};
use rnic_layout::admin::CommandOpcode;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A protection domain, kept by all objects in it.
pub(crate) struct ProtectionDomainShared {
    pub(crate) device: Arc<DeviceShared>,
    pub(crate) number: u32,
    /// The card may have an object of the domain that the driver has dropped.
    is_kept: AtomicBool,
}

impl ProtectionDomainShared {
    /// Creates an object of the domain, as [`DeviceShared::create`] does.
    pub(crate) fn create(
        &self,
        object: NewObject<'_>,
        free: impl FnOnce(&mut IdAllocators),
    ) -> Result<(), Error> {
        let mut is_free = false;
        let created = self.device.create(object, |ids| {
            is_free = true;
            free(ids);
        });
        if created.is_err() && !is_free {
            self.is_kept.store(true, Ordering::Relaxed);
        }
        created
    }

    /// Destroys an object of the domain, as [`DeviceShared::destroy`] does.
    #[must_use]
    pub(crate) fn destroy(&self, opcode: CommandOpcode, object_number: u32, memory: &[&Mapping]) -> bool {
        let is_confirmed = self.device.destroy(opcode, object_number, memory);
        if !is_confirmed {
            self.is_kept.store(true, Ordering::Relaxed);
        }
        is_confirmed
    }
}

impl Drop for ProtectionDomainShared {
    fn drop(&mut self) {
        // Otherwise objects of another domain of this number could use one that the card still has.
        if !self.device.is_forked() && !self.is_kept.load(Ordering::Relaxed) {
            lock(&self.device.ids).domains.free(self.number);
        }
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
        let shared = ProtectionDomainShared {
            device: Arc::clone(&self.shared),
            number,
            is_kept: AtomicBool::new(false),
        };
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
