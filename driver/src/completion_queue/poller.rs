//! A completion queue in the hands of one thread.

use super::CompletionQueue;
use super::harvest::Harvest;
use crate::completion::Completion;
use crate::error::{CompletionError, Error};
use crate::sync::lock;
use rnic_layout::doorbell::Arm;
use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

/// The only one who polls a [`CompletionQueue`], from [`CompletionQueue::poller`]. It takes no lock, and can be sent to another
/// thread. Dropping it gives the queue back.
///
/// ```
/// # use rnic_driver::{Completion, CompletionError, CompletionQueue};
/// fn serve(queue: &CompletionQueue, mut done: impl FnMut(Completion)) -> Result<(), CompletionError> {
///     let mut poller = queue.poller().expect("no other thread polls");
///     loop {
///         if let Some(completion) = poller.poll_one()? {
///             done(completion);
///         }
///     }
/// }
/// ```
pub struct Poller {
    queue: CompletionQueue,
    /// The ring. `None` only while the poller is dropped.
    harvest: Option<Box<Harvest>>,
}

impl Poller {
    pub(super) fn new(queue: &CompletionQueue) -> Option<Self> {
        let harvest = lock(&queue.shared.harvest).take()?;
        Some(Self { queue: queue.clone(), harvest: Some(harvest) })
    }

    /// The queue.
    pub fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// As [`CompletionQueue::poll`].
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::poll`].
    pub fn poll(
        &mut self,
        completions: &mut Vec<Completion>,
        limit: usize,
    ) -> Result<usize, CompletionError> {
        self.poll_into(limit, |completion| completions.push(completion))
    }

    /// As [`CompletionQueue::poll_one`].
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::poll`].
    pub fn poll_one(&mut self) -> Result<Option<Completion>, CompletionError> {
        let mut completion = None;
        self.poll_into(1, |polled| completion = Some(polled))?;
        Ok(completion)
    }

    fn poll_into(&mut self, limit: usize, take: impl FnMut(Completion)) -> Result<usize, CompletionError> {
        let Self { queue, harvest } = self;
        let (shared, Some(harvest)) = (&*queue.shared, harvest) else { return Ok(0) };
        harvest.change_users(&shared.common);
        let result = harvest.poll(&shared.common, limit, take);
        harvest.publish_if_due(&shared.common);
        harvest.ended.clear();
        shared.end_poll(harvest.count_poll(), limit != 0 && result == Ok(0));
        result
    }

    /// As [`CompletionQueue::spin`].
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::poll`].
    pub fn spin(&mut self, limit: Duration) -> Result<Option<Completion>, CompletionError> {
        let deadline = self.queue.shared.deadline(limit);
        loop {
            let completion = self.poll_one()?;
            if completion.is_some() || self.queue.shared.is_over(deadline) {
                return Ok(completion);
            }
        }
    }

    /// As [`CompletionQueue::wait`].
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::wait`].
    pub fn wait(&mut self, limit: Duration) -> Result<bool, Error> {
        self.wait_for(limit, Arm::Next)
    }

    /// As [`CompletionQueue::wait_solicited`].
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::wait`].
    pub fn wait_solicited(&mut self, limit: Duration) -> Result<bool, Error> {
        self.wait_for(limit, Arm::Solicited)
    }

    fn wait_for(&mut self, limit: Duration, arm: Arm) -> Result<bool, Error> {
        let Self { queue, harvest } = self;
        let (shared, Some(harvest)) = (&*queue.shared, harvest) else { return Ok(false) };
        let harvest = RefCell::new(harvest);
        shared.wait(limit, arm, |run| {
            let harvest = &mut **harvest.borrow_mut();
            harvest.change_users(&shared.common);
            run(harvest);
            harvest.ended.clear();
        })
    }

    /// As [`CompletionQueue::resize`].
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::resize`].
    pub fn resize(&mut self, entries_log2: u32) -> Result<(), Error> {
        let Self { queue, harvest } = self;
        let Some(harvest) = harvest else { return Ok(()) };
        queue.shared.resize(harvest, entries_log2)
    }

    /// As [`CompletionQueue::arm`]. [`CompletionQueue::is_signalled`] tells when the event has arrived.
    pub fn arm(&mut self, arm: Arm) {
        let Self { queue, harvest } = self;
        if let Some(harvest) = harvest {
            queue.shared.arm(arm, |run| run(harvest));
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        if self.queue.shared.common.device.is_forked() {
            return;
        }
        *lock(&self.queue.shared.harvest) = self.harvest.take();
        // What other threads have requested since the last poll.
        self.queue.shared.with_ring(|_| ());
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Poller({})", self.queue.number())
    }
}
