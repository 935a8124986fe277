//! Events that a program has taken and not acknowledged.

use crate::lock;
use std::sync::{Condvar, Mutex, PoisonError};

/// Counts events that a program has taken and not acknowledged, so that their object is not destroyed meanwhile.
#[derive(Debug, Default)]
pub struct Acknowledgements {
    open: Mutex<u64>,
    changed: Condvar,
}

impl Acknowledgements {
    /// The program has taken an event.
    pub fn add(&self) {
        *lock(&self.open) += 1;
    }

    /// The program has acknowledged events.
    pub fn acknowledge(&self, count: u64) {
        let mut open = lock(&self.open);
        *open = open.saturating_sub(count);
        self.changed.notify_all();
    }

    /// Waits until all events are acknowledged, as the manual demands of the destruction of an object.
    pub fn wait(&self) {
        let open = lock(&self.open);
        drop(self.changed.wait_while(open, |open| *open != 0).unwrap_or_else(PoisonError::into_inner));
    }
}
