//! Doorbells: writes to the driver's page of BAR 2.

use crate::error::Error;
use crate::function::{DOORBELL_BAR, Function};
use crate::process::Process;
use rnic_layout::doorbell::{
    Arm, COMPLETION, CompletionDoorbell, Doorbell, EVENT, EventDoorbell, WorkDoorbell, offset_in_bar,
};
use rnic_layout::field::FieldError;
use rnic_layout::limits::DOORBELL_PAGE_BYTES;
use std::sync::Arc;

/// One doorbell page of BAR 2. A process that was forked from the one that has opened the card rings nothing.
#[derive(Clone)]
pub(crate) struct Doorbells {
    function: Arc<dyn Function>,
    page: u16,
    /// Process that rings them.
    process: Process,
}

impl Doorbells {
    /// Checks that BAR 2 holds the page.
    pub(crate) fn new(function: &Arc<dyn Function>, page: u16) -> Result<Self, Error> {
        let bytes = function.bar(DOORBELL_BAR)?.bytes();
        let needed = (u64::from(page) + 1) * DOORBELL_PAGE_BYTES;
        if bytes < needed {
            return Err(Error::BarTooSmall { bar: DOORBELL_BAR, bytes, needed });
        }
        Ok(Self { function: Arc::clone(function), page, process: Process::current() })
    }

    /// Index of the page, as create commands name it.
    pub(crate) fn page(&self) -> u16 {
        self.page
    }

    /// Publishes the producer index of a send, receive or shared receive queue. WQEs that this thread has written before
    /// are visible to the card when it receives the doorbell.
    pub(crate) fn work(&self, doorbell: &Doorbell, object_number: u32, producer_index: u16) {
        self.ring(doorbell, WorkDoorbell { object_number, producer_index }.to_bytes());
    }

    /// Publishes the consumer index of a completion queue, and arms it according to `arm`.
    pub(crate) fn completion(&self, object_number: u32, arm: Arm, consumer_index: u32) {
        self.ring(&COMPLETION, CompletionDoorbell { object_number, arm, consumer_index }.to_bytes());
    }

    /// Publishes the consumer index of an event queue, and arms its interrupt if `arm` is set.
    pub(crate) fn event(&self, object_number: u32, arm: bool, consumer_index: u32) {
        self.ring(&EVENT, EventDoorbell { object_number, arm, consumer_index }.to_bytes());
    }

    fn ring(&self, doorbell: &Doorbell, value: Result<[u8; 8], FieldError>) {
        let value = value.expect("numbers and indices fit their fields");
        if !self.process.is_current() {
            return;
        }
        // If the BAR has disappeared since the start, the write is dropped, as it is by a card that was removed.
        if let Ok(bar) = self.function.bar(DOORBELL_BAR) {
            bar.write64(offset_in_bar(self.page.into(), doorbell), u64::from_le_bytes(value));
        }
    }
}
