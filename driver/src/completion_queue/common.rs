//! The part of a completion queue that all threads use without its ring: reserving of CQEs, doorbells, and the changes of its
//! users.

use super::harvest::Retire;
use crate::device::DeviceShared;
use crate::event_ring::CompletionSignal;
use crate::sync::{AtomicBool, AtomicU32, Mutex, lock};
use rnic_layout::doorbell::Arm;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A change of the users of a completion queue. Whoever has the ring carries it out, so that nobody waits for a poller.
pub(super) enum Change {
    /// The queue pair of this number completes here.
    Attach(u32, Box<dyn Retire>),
    /// The queue pair was reset: its requests are flushed.
    Flush(u32),
    /// The card has destroyed the queue pair: its requests are flushed, and it completes here no more.
    Detach(u32),
    /// The queue pair was dropped, but the card has not confirmed its end. Its requests do not complete, and their CQEs remain
    /// reserved.
    Abandon(u32),
}

pub(super) struct Common {
    pub(super) device: Arc<DeviceShared>,
    /// Number of the queue on the card.
    pub(super) number: u32,
    /// Number of CQEs, which a resize changes.
    entries: AtomicU32,
    pub(super) signal: Arc<CompletionSignal>,
    /// Number of CQEs that no posted request has reserved.
    unreserved: AtomicU32,
    /// Changes that are not carried out yet, in order.
    changes: Mutex<VecDeque<Change>>,
    has_changes: AtomicBool,
}

impl Common {
    pub(super) fn new(
        device: Arc<DeviceShared>,
        number: u32,
        entries: u32,
        signal: Arc<CompletionSignal>,
    ) -> Self {
        Self {
            device,
            number,
            entries: AtomicU32::new(entries),
            signal,
            unreserved: AtomicU32::new(entries),
            changes: Mutex::new(VecDeque::new()),
            has_changes: AtomicBool::new(false),
        }
    }

    /// Number of CQEs.
    pub(super) fn entries(&self) -> u32 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Changes the number of CQEs, by whoever has the ring. Those that are added are unreserved; those that go were reserved before.
    pub(super) fn set_entries(&self, entries: u32) {
        let before = self.entries.swap(entries, Ordering::Relaxed);
        self.unreserve(entries.saturating_sub(before));
    }

    /// Number of CQEs that are reserved.
    pub(super) fn reserved(&self) -> u32 {
        self.entries().saturating_sub(self.unreserved.load(Ordering::Relaxed))
    }

    /// Reserves `count` CQEs. Returns the number of CQEs that remain unreserved, or `None` and reserves none if there are fewer.
    pub(super) fn reserve(&self, count: u32) -> Option<u32> {
        let take = |unreserved: u32| unreserved.checked_sub(count);
        let before = self.unreserved.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take);
        before.ok().map(|before| before - count)
    }

    /// Returns `count` reserved CQEs.
    pub(super) fn unreserve(&self, count: u32) {
        if count != 0 {
            self.unreserved.fetch_add(count, Ordering::AcqRel);
        }
    }

    /// Adds a change, the last of all.
    pub(super) fn request(&self, change: Change) {
        let mut changes = lock(&self.changes);
        changes.push_back(change);
        self.has_changes.store(true, Ordering::Release);
    }

    /// Takes the first change. Takes no lock if there is none.
    pub(super) fn next_change(&self) -> Option<Change> {
        if !self.has_changes.load(Ordering::Acquire) {
            return None;
        }
        let mut changes = lock(&self.changes);
        let change = changes.pop_front();
        self.has_changes.store(!changes.is_empty(), Ordering::Release);
        change
    }

    /// Publishes the consumer index of the queue, and arms it according to `arm`.
    pub(super) fn ring_doorbell(&self, arm: Arm, consumer_index: u32) {
        self.device.doorbells.completion(self.number, arm, consumer_index);
    }
}
