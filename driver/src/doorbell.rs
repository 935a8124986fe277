//! The driver's doorbell page.

use crate::error::Error;
use crate::function::{DOORBELL_BAR, Function};
use rnic_layout::doorbell::{Doorbell, offset_in_bar};
use rnic_layout::limits::DOORBELL_PAGE_BYTES;
use std::sync::Arc;

/// One page of BAR 2.
#[derive(Clone)]
pub(crate) struct Doorbells {
    function: Arc<dyn Function>,
    page: u16,
}

impl Doorbells {
    /// Checks that the page is there.
    pub(crate) fn new(function: &Arc<dyn Function>, page: u16) -> Result<Self, Error> {
        let bytes = function.bar(DOORBELL_BAR)?.bytes();
        let needed = (u64::from(page) + 1) * DOORBELL_PAGE_BYTES;
        if bytes < needed {
            return Err(Error::BarTooSmall { bar: DOORBELL_BAR, bytes, needed });
        }
        Ok(Self { function: Arc::clone(function), page })
    }

    pub(crate) fn page(&self) -> u16 {
        self.page
    }

    /// Rings: everything this thread has written before is visible to the card when it hears it.
    pub(crate) fn ring(&self, doorbell: &Doorbell, value: [u8; 8]) -> Result<(), Error> {
        let offset = offset_in_bar(self.page.into(), doorbell);
        self.function.bar(DOORBELL_BAR)?.write64(offset, u64::from_le_bytes(value));
        Ok(())
    }
}
