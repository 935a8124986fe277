//! The driver's doorbell page.

use crate::error::Error;
use crate::function::{DOORBELL_BAR, Function};
use rnic_layout::doorbell::{
    Arm, COMPLETION, CompletionDoorbell, Doorbell, EVENT, EventDoorbell, WorkDoorbell, offset_in_bar,
};
use rnic_layout::field::FieldError;
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

    /// Tells how far a send or receive queue is filled. Everything that this thread has written before is visible to the
    /// card when it hears of it.
    pub(crate) fn work(&self, doorbell: &Doorbell, object_number: u32, producer_index: u16) {
        self.ring(doorbell, WorkDoorbell { object_number, producer_index }.to_bytes());
    }

    /// Tells how far a completion queue was read.
    pub(crate) fn completion(&self, object_number: u32, arm: Arm, consumer_index: u32) {
        self.ring(&COMPLETION, CompletionDoorbell { object_number, arm, consumer_index }.to_bytes());
    }

    /// Tells how far an event queue was read.
    pub(crate) fn event(&self, object_number: u32, arm: bool, consumer_index: u32) {
        self.ring(&EVENT, EventDoorbell { object_number, arm, consumer_index }.to_bytes());
    }

    fn ring(&self, doorbell: &Doorbell, value: Result<[u8; 8], FieldError>) {
        let value = value.expect("numbers and indices have no more bits than their fields");
        // A BAR that has gone since the start swallows the write, as a card does that has gone.
        if let Ok(bar) = self.function.bar(DOORBELL_BAR) {
            bar.write64(offset_in_bar(self.page.into(), doorbell), u64::from_le_bytes(value));
        }
    }
}
