//! Reading of CQEs, by whoever has the ring: a call that has locked it, or a [`Poller`](super::Poller).
//!
//! ```text
//!   CQE ── QPN ──> users: table by the index in the QPN ── wr_id ──> requests in flight of a queue ──> completions
//! ```
//!
//! Nothing is allocated, hashed or locked on this way: tables have their size since the queue pair was attached. The exception is
//! a receive of an SRQ, which queue pairs of several threads share, and which has a lock.

use super::INDEX_BITS;
use super::common::{Change, Common};
use crate::completion::Completion;
use crate::error::CompletionError;
use crate::mapping::Mapping;
use crate::ring::PhaseRing;
use rnic_layout::doorbell::Arm;
use rnic_layout::queue::completion::{CompletionStatus, Cqe};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Size of a CQE in bytes.
pub(super) const CQE_BYTES: usize = Cqe::BYTES;
/// Number of polls of a completion queue for each look at the event queues. A small part of the smallest event queue.
const POLLS_PER_DRAIN: u32 = 16;
/// Doorbells in a pass of the ring.
const DOORBELLS_PER_PASS: u32 = 4;

/// CQEs that the requests which a CQE has reported had reserved.
pub(crate) struct Retired {
    /// The CQE itself was reserved by its request.
    pub(crate) written: bool,
    /// Number of CQEs that were reserved and not written, by unsignalled requests.
    pub(crate) unwritten: u32,
}

/// A queue pair as its completion queue knows it: the posted requests that CQEs report.
pub(crate) trait Retire: Send {
    /// Largest number of requests that one CQE retires.
    fn capacity(&self) -> usize;

    /// Returns whether the CQE reports a receive of an SRQ, which keeps its CQEs reserved.
    fn keeps_reservation(&self, cqe: &Cqe) -> bool;

    /// Retires the requests that a CQE reports as done, and appends their completions to `pending`.
    fn retire(&mut self, cqe: &Cqe, pending: &mut VecDeque<Completion>) -> Result<Retired, CompletionError>;

    /// Completes all requests that are still posted, as flushed. Returns the number of reserved CQEs that become free.
    fn flush(&mut self, pending: &mut VecDeque<Completion>) -> u32;

    /// Returns the number of CQEs that were reserved for the SRQ and become free when the queue pair has ended.
    fn release_shared(&mut self) -> u32;
}

/// A place of the table of users.
struct User {
    qp_number: u32,
    /// `None` if the card may have the queue pair although it was dropped.
    retire: Option<Box<dyn Retire>>,
}

/// The ring of a completion queue, and what its CQEs refer to.
///
/// A queue that is resized has another ring from some index on, which only the card knows: the answer to the command does not tell it.
/// Each CQE is in one ring. So the reader looks for the next one in the ring that it reads, then in those that came after; when it is in
/// one of these, all of the former rings has been read, and the card does not write to them any more.
pub(super) struct Harvest {
    memory: Mapping,
    ring: PhaseRing,
    /// Rings of resizes that the reader has not reached, in order, with their size, log2.
    next: VecDeque<(Mapping, u32)>,
    /// Consumer index of the last doorbell.
    published: u32,
    /// Number of CQEs that were read since the last doorbell and stay reserved until the next one.
    held: u32,
    /// Number of CQEs that are read before a doorbell is due.
    doorbell_after: u32,
    /// Queue pairs that complete here, by the index in their QPN.
    users: Vec<Option<User>>,
    /// Mask of that index.
    index_mask: u32,
    /// Users that have ended. They are dropped when nothing is locked.
    pub(super) ended: Vec<Box<dyn Retire>>,
    /// Completions that were read from the ring and not polled yet.
    pending: VecDeque<Completion>,
    /// Number of polls after which the event queues are drained; zero: after the next one.
    polls_to_drain: u32,
    /// Failure of the queue. It is permanent.
    broken: Option<CompletionError>,
}

impl Harvest {
    /// Creates the reader of a zeroed ring of 2^`log2` CQEs, on a card with 2^`queue_pairs_log2` queue pairs.
    pub(super) fn new(memory: Mapping, log2: u32, queue_pairs_log2: u8) -> Self {
        Self {
            memory,
            ring: PhaseRing::new(log2, INDEX_BITS),
            next: VecDeque::new(),
            published: 0,
            held: 0,
            doorbell_after: (1 << log2) / DOORBELLS_PER_PASS,
            users: Vec::new(),
            index_mask: (1 << queue_pairs_log2) - 1,
            ended: Vec::new(),
            pending: VecDeque::new(),
            polls_to_drain: POLLS_PER_DRAIN,
            broken: None,
        }
    }

    /// Memory of all rings that the card may have.
    pub(super) fn memory(&self) -> impl Iterator<Item = &Mapping> {
        std::iter::once(&self.memory).chain(self.next.iter().map(|(memory, _)| memory))
    }

    /// Marks a ring of 2^`log2` CQEs as unwritten.
    pub(super) fn clear(memory: &Mapping, log2: u32) {
        PhaseRing::new(log2, INDEX_BITS).clear::<CQE_BYTES>(&memory.words());
    }

    /// Continues in a ring of 2^`log2` CQEs, which is marked as unwritten, after the last CQE of this one.
    pub(super) fn continue_in(&mut self, common: &Common, memory: Mapping, log2: u32) {
        self.next.push_back((memory, log2));
        self.doorbell_after = (1 << log2) / DOORBELLS_PER_PASS;
        let retires = self.users.iter().flatten().filter_map(|user| user.retire.as_ref());
        let capacity = retires.map(|retire| retire.capacity()).max().unwrap_or(0);
        self.reserve_pending(common, capacity);
    }

    /// Makes room for the completions of one CQE: polling reads a CQE when no completion is pending.
    fn reserve_pending(&mut self, common: &Common, capacity: usize) {
        let room = capacity.min(common.entries() as usize);
        self.pending.reserve(room.saturating_sub(self.pending.len()));
    }

    /// Finds the next CQE: in the ring that is being read, or in one after it, which is then the one that is being read.
    fn peek(&mut self) -> Option<[u8; CQE_BYTES]> {
        let bytes = self.ring.peek(&self.memory.words());
        if bytes.is_some() || self.next.is_empty() {
            return bytes;
        }
        let at = self.ring.consumer_index();
        let ring_of = |log2| PhaseRing::new(log2, INDEX_BITS).at(at);
        let place = self
            .next
            .iter()
            .position(|(memory, log2)| ring_of(*log2).peek::<CQE_BYTES>(&memory.words()).is_some())?;
        let (memory, log2) = self.next.drain(..=place).next_back()?;
        (self.memory, self.ring) = (memory, ring_of(log2));
        self.ring.peek(&self.memory.words())
    }

    /// Returns whether the failure of the queue, or a completion of the kind that `arm` requests, waits to be polled.
    pub(super) fn has_read(&self, arm: Arm) -> bool {
        let matches = |completion: &Completion| {
            arm != Arm::Solicited || completion.solicited || !completion.is_success()
        };
        self.broken.is_some() || self.pending.iter().any(matches)
    }

    /// Counts a poll. Returns whether the event queues are to be drained after it.
    pub(super) fn count_poll(&mut self) -> bool {
        let is_due = self.polls_to_drain == 0;
        self.polls_to_drain = if is_due { POLLS_PER_DRAIN } else { self.polls_to_drain - 1 };
        is_due
    }

    /// Takes up to `limit` completions, and returns their number. Fails if there is none because the queue has failed.
    pub(super) fn poll(
        &mut self,
        common: &Common,
        limit: usize,
        mut take: impl FnMut(Completion),
    ) -> Result<usize, CompletionError> {
        let mut count = 0;
        while count < limit {
            self.read_one(common);
            match self.pending.pop_front() {
                Some(completion) => take(completion),
                None => break,
            }
            count += 1;
        }
        match self.broken {
            Some(error) if count == 0 && limit != 0 => Err(error),
            _ => Ok(count),
        }
    }

    /// Reads CQEs until a completion is pending, or no more CQEs are there.
    pub(super) fn read_one(&mut self, common: &Common) {
        while self.pending.is_empty() && self.step(common) {}
    }

    /// Reads all CQEs that the card has written.
    pub(super) fn read_all(&mut self, common: &Common) {
        while self.step(common) {}
    }

    /// Carries out the changes of the users.
    pub(super) fn change_users(&mut self, common: &Common) {
        while let Some(change) = common.next_change() {
            self.change(common, change);
        }
    }

    /// Rings the doorbell if a quarter of the ring was read since the last one. Until then no request reserves the CQEs that the
    /// card takes for unread.
    pub(super) fn publish_if_due(&mut self, common: &Common) {
        let index_mask = u32::MAX >> (u32::BITS - INDEX_BITS);
        let read = self.ring.consumer_index().wrapping_sub(self.published) & index_mask;
        if read >= self.doorbell_after {
            self.publish(common, Arm::Keep);
        }
    }

    /// Rings the doorbell.
    pub(super) fn publish(&mut self, common: &Common, arm: Arm) {
        publish(common, &self.ring, &mut self.published, &mut self.held, arm);
    }

    /// Reads one CQE. Returns whether there was one.
    fn step(&mut self, common: &Common) -> bool {
        let number = common.number;
        if self.broken.is_none() && common.signal.failed.load(Ordering::Acquire) {
            self.broken = Some(CompletionError::QueueFailed { number });
        }
        if self.broken.is_some() {
            return false;
        }
        let Some(bytes) = self.peek() else { return false };
        let cqe = match Cqe::parse(&bytes) {
            Ok(cqe) => cqe,
            Err(error) => {
                self.ring.advance();
                self.broken = Some(CompletionError::Impossible { number, error });
                return true;
            }
        };
        if user_of(&mut self.users, self.index_mask, cqe.qp_number).is_none()
            && let Some(change) = common.next_change()
        {
            // The queue pair may be younger than the last look at the changes. The CQE is read again after it.
            self.change(common, change);
            return true;
        }
        self.ring.advance();
        if let Err(error) = self.retire(common, &cqe) {
            self.broken = Some(error);
        }
        true
    }

    /// Retires what a CQE reports.
    fn retire(&mut self, common: &Common, cqe: &Cqe) -> Result<(), CompletionError> {
        if cqe.status != CompletionStatus::Success {
            // The failure of a queue pair often raises an event too.
            self.polls_to_drain = 0;
        }
        let (number, qp_number) = (common.number, cqe.qp_number);
        let user = user_of(&mut self.users, self.index_mask, qp_number);
        let user = user.ok_or(CompletionError::UnknownQueuePair { number, qp_number })?;
        let Some(retire) = &mut user.retire else { return Ok(()) };
        // Another message can complete before the card knows that this CQE was read. So one CQE stays reserved till then: that of
        // the request, or another one if the reservation is that of an SRQ.
        if retire.keeps_reservation(cqe) {
            if common.reserve(1).is_some() {
                self.held += 1;
            } else {
                publish(common, &self.ring, &mut self.published, &mut self.held, Arm::Keep);
            }
        }
        let Retired { written, unwritten } = retire.retire(cqe, &mut self.pending)?;
        self.held += u32::from(written);
        common.unreserve(unwritten);
        Ok(())
    }

    fn change(&mut self, common: &Common, change: Change) {
        match change {
            Change::Attach(qp_number, retire) => {
                let index = (qp_number & self.index_mask) as usize;
                if self.users.len() <= index {
                    self.users.resize_with(index + 1, || None);
                }
                self.reserve_pending(common, retire.capacity());
                self.users[index] = Some(User { qp_number, retire: Some(retire) });
            }
            Change::Flush(qp_number) => {
                self.read_all(common);
                self.flush(common, qp_number);
            }
            Change::Detach(qp_number) => {
                // The next poll reports a CQE that cannot be read.
                self.read_all(common);
                self.flush(common, qp_number);
                let index = (qp_number & self.index_mask) as usize;
                let place = self.users.get_mut(index);
                let user = place.and_then(|place| place.take_if(|user| user.qp_number == qp_number));
                if let Some(mut retire) = user.and_then(|user| user.retire) {
                    common.unreserve(retire.release_shared());
                    self.ended.push(retire);
                }
            }
            Change::Abandon(qp_number) => {
                self.read_all(common);
                let user = user_of(&mut self.users, self.index_mask, qp_number);
                let retire = user.and_then(|user| user.retire.take());
                self.ended.extend(retire);
            }
        }
    }

    /// Completes the posted requests of a queue pair as flushed.
    fn flush(&mut self, common: &Common, qp_number: u32) {
        let user = user_of(&mut self.users, self.index_mask, qp_number);
        let retire = user.and_then(|user| user.retire.as_mut());
        if let Some(retire) = retire {
            common.unreserve(retire.flush(&mut self.pending));
        }
    }
}

/// Place of a queue pair in a table of users.
fn user_of(users: &mut [Option<User>], index_mask: u32, qp_number: u32) -> Option<&mut User> {
    let place = users.get_mut((qp_number & index_mask) as usize)?;
    place.as_mut().filter(|user| user.qp_number == qp_number)
}

/// Rings the doorbell. The card knows the consumer index before the CQEs can be reserved again.
fn publish(common: &Common, ring: &PhaseRing, published: &mut u32, held: &mut u32, arm: Arm) {
    *published = ring.consumer_index();
    if arm != Arm::Keep || !mutant!("consumer-index-not-published") {
        common.ring_doorbell(arm, *published);
    }
    common.unreserve(std::mem::take(held));
}
