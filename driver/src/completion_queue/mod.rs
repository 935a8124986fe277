//! Completion queues: report the results of work requests, and return their memory.
//!
//! Posting a request reserves a CQE in its completion queue. That includes unsignalled requests, because a failed request
//! completes even if it is unsignalled. So a completion queue of this driver cannot overrun: when all CQEs are reserved, the
//! post is refused and returns the request. Only unsignalled sends of [`raw`](crate::raw) reserve nothing.
//!
//! Every request completes exactly once. Unsignalled sends complete together with the next signalled one, in order.
//!
//! A [`CompletionQueue`] can be polled by any number of threads, and locks its ring for each call. A [`Poller`] has the ring for
//! one thread, and takes no lock. Other threads that end a queue pair meanwhile leave a note, which the next poll carries out.
//!
//! The doorbell, which tells the card that CQEs were read, is rung after a quarter of the ring, and when the queue is armed.
//!
//! | module | content |
//! |---|---|
//! | `common` | what all threads use without the ring: reserving of CQEs, changes of the users |
//! | `harvest` | the ring: CQEs to completions |
//! | `poller` | the ring in the hands of one thread |

mod common;
mod harvest;
mod poller;

pub(crate) use harvest::{Retire, Retired};
pub use poller::Poller;

use crate::admin::CommandFailure;
use crate::completion::Completion;
use crate::device::{Device, DeviceShared, NewObject};
use crate::error::{CompletionError, Error, check_option};
use crate::event_queue::EventQueue;
use crate::event_ring::EventRing;
use crate::mapping::Mapping;
use crate::memory::Purpose;
use crate::sync::{AtomicU64, Mutex, lock};
use common::{Change, Common};
use harvest::{CQE_BYTES, Harvest};
use rnic_layout::admin::{Body, CommandOpcode, CreateCompletionQueue, ResizeCompletionQueue};
use rnic_layout::doorbell::Arm;
use rnic_layout::limits::{CQES_LOG2_MAX, RING_LOG2_MIN};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Width of the free-running index in bits.
const INDEX_BITS: u32 = 24;

/// Parameters of a completion queue.
#[derive(Clone, Debug)]
pub struct CompletionQueueOptions {
    /// log2 of the number of CQEs, from 6 to the card's limit. It bounds the requests in flight on all queues that complete
    /// here, unsignalled ones included.
    pub entries_log2: u32,
    /// Event moderation: number of completions that raise one event. Zero and one raise an event for each. Without a period it is at
    /// most the number of CQEs, since a full queue takes no more completions.
    pub moderation_count: u16,
    /// Event moderation: longest delay of an event after its first completion, in units of 256 clock cycles. Zero means no
    /// limit.
    pub moderation_period: u16,
}

impl Default for CompletionQueueOptions {
    fn default() -> Self {
        Self { entries_log2: 8, moderation_count: 0, moderation_period: 0 }
    }
}

/// A completion queue, kept by its handles and its queue pairs.
pub(crate) struct CompletionQueueShared {
    common: Common,
    events: EventQueue,
    /// CQEs that an event may wait for, without a limit in time.
    moderation_count: u16,
    /// Number of events of the signal at the last call of `arm`.
    events_at_arm: AtomicU64,
    /// The ring, unless a [`Poller`] has it.
    harvest: Mutex<Option<Box<Harvest>>>,
}

impl CompletionQueueShared {
    pub(crate) fn device(&self) -> &Arc<DeviceShared> {
        &self.common.device
    }

    /// Number of CQEs of the queue.
    pub(crate) fn entries(&self) -> u32 {
        self.common.entries()
    }

    /// Moves the queue to a ring of 2^`log2` CQEs.
    fn resize(&self, harvest: &mut Harvest, log2: u32) -> Result<(), Error> {
        let (common, device) = (&self.common, self.device());
        check_entries(device, log2)?;
        check_moderation(self.moderation_count, log2)?;
        let (before, after) = (common.entries(), 1 << log2);
        // CQEs that were read stay reserved until the card knows it.
        harvest.publish(common, Arm::Keep);
        if common.reserve(before.saturating_sub(after)).is_none() {
            let (number, reserved) = (common.number, common.reserved());
            return Err(Error::Reserved { number, asked: after, reserved });
        }
        match self.move_to(harvest, log2) {
            Ok(()) => {
                common.set_entries(after);
                Ok(())
            }
            Err(failure) => {
                // If it is open whether the card has moved the queue, it may be smaller.
                if !failure.is_open {
                    common.unreserve(before.saturating_sub(after));
                }
                Err(failure.error)
            }
        }
    }

    /// Gives the card another ring. The CQEs that go are reserved.
    fn move_to(&self, harvest: &mut Harvest, log2: u32) -> Result<(), CommandFailure> {
        let (common, device) = (&self.common, self.device());
        let memory = Mapping::new(&device.function, CQE_BYTES << log2, Purpose::Ring)
            .map_err(CommandFailure::closed)?;
        Harvest::clear(&memory, log2);
        let body = ResizeCompletionQueue { entries_log2: log2 as u8, base: memory.device_address() };
        let (opcode, body) = (CommandOpcode::ResizeCompletionQueue, Body::ResizeCompletionQueue(body));
        let moved = device.execute_with(opcode, common.number, body, &[&memory]);
        // If it is open whether the card has moved the queue, its CQEs may be in either ring.
        if moved.as_ref().err().is_none_or(|failure| failure.is_open) {
            harvest.continue_in(common, memory, log2);
        }
        moved
    }

    /// Number of the queue on the card.
    pub(crate) fn number(&self) -> u32 {
        self.common.number
    }

    /// Reserves one CQE. Returns the number of CQEs that remain unreserved, or `None` if all were reserved.
    pub(crate) fn reserve(&self) -> Option<u32> {
        self.common.reserve(1)
    }

    /// Reserves `count` CQEs. Returns false, and reserves none, if fewer are unreserved.
    pub(crate) fn reserve_all(&self, count: u32) -> bool {
        self.common.reserve(count).is_some()
    }

    /// Returns `count` reserved CQEs.
    pub(crate) fn unreserve(&self, count: u32) {
        self.common.unreserve(count);
    }

    /// Registers a queue pair that completes here.
    pub(crate) fn attach(&self, qp_number: u32, queue_pair: Box<dyn Retire>) {
        self.change(Change::Attach(qp_number, queue_pair));
    }

    /// Completes the requests of a queue pair that was reset as flushed, after reading all its CQEs.
    pub(crate) fn flush(&self, qp_number: u32) {
        self.change(Change::Flush(qp_number));
    }

    /// Unregisters a queue pair that the card has destroyed. Its requests complete as with [`Self::flush`].
    pub(crate) fn detach(&self, qp_number: u32) {
        self.change(Change::Detach(qp_number));
    }

    /// Drops the requests of a queue pair that was dropped but not destroyed, after reading its CQEs. Later ones are ignored.
    pub(crate) fn abandon(&self, qp_number: u32) {
        self.change(Change::Abandon(qp_number));
    }

    /// Requests a change, and carries it out unless a poller does so with its next poll.
    fn change(&self, change: Change) {
        self.common.request(change);
        self.with_ring(|_| ());
    }

    /// Runs `run` with the ring, or returns `None` if a poller has it.
    fn with_ring<R>(&self, run: impl FnOnce(&mut Harvest) -> R) -> Option<R> {
        let mut harvest = lock(&self.harvest);
        let result = harvest.as_mut().map(|harvest| {
            harvest.change_users(&self.common);
            let result = run(harvest);
            harvest.publish_if_due(&self.common);
            (result, std::mem::take(&mut harvest.ended))
        });
        drop(harvest);
        // Users that have ended are dropped here, where nothing is locked.
        result.map(|(result, _)| result)
    }

    /// Reads the events of this queue and of the device, so that an application that only arms and polls loses no
    /// asynchronous event.
    fn drain_events(&self, read: impl Fn(&EventRing)) {
        let events = &self.device().events;
        read(self.events.ring());
        if self.events.number() != events.number() {
            read(events);
        }
    }

    /// Ends a poll that has returned `count` completions: drains the event queues if it is time, and lets a simulated card go on
    /// if there was nothing.
    fn end_poll(&self, is_drain_due: bool, has_idle_time: bool) {
        if is_drain_due {
            self.drain_events(EventRing::collect_if_any);
        }
        if has_idle_time {
            self.device().function.idle();
        }
    }

    /// Time at which a wait that begins now ends.
    fn deadline(&self, limit: Duration) -> Duration {
        self.device().function.now().saturating_add(limit)
    }

    /// Returns whether a wait is over.
    fn is_over(&self, deadline: Duration) -> bool {
        self.device().function.now() >= deadline
    }

    /// Waits up to `limit` for an event. `with_ring` runs a function with the ring.
    fn wait(
        &self,
        limit: Duration,
        arm: Arm,
        with_ring: impl Fn(&mut dyn FnMut(&mut Harvest)),
    ) -> Result<bool, Error> {
        let ask = |ask: &dyn Fn(&mut Harvest) -> bool| {
            let mut answer = false;
            with_ring(&mut |harvest| answer = ask(harvest));
            answer
        };
        let is_ready = || {
            ask(&|harvest| {
                // A solicited completion may follow others.
                match arm {
                    Arm::Solicited => harvest.read_all(&self.common),
                    _ => harvest.read_one(&self.common),
                }
                harvest.has_read(arm)
            })
        };
        let count = || self.common.signal.events.load(Ordering::Acquire);
        let deadline = self.deadline(limit);
        loop {
            if is_ready() {
                return Ok(true);
            }
            self.drain_events(EventRing::collect);
            let events = count();
            with_ring(&mut |harvest| harvest.publish(&self.common, arm));
            if is_ready() {
                return Ok(true);
            }
            let is_over = || count() != events || ask(&|harvest| harvest.has_read(arm));
            if !self.events.ring().wait(deadline, is_over)? {
                return Ok(is_ready());
            }
            // The event may belong to an earlier arming, or another thread may have polled its completion; in that case the
            // loop continues.
        }
    }

    /// Requests one event.
    fn arm(&self, arm: Arm, with_ring: impl FnOnce(&mut dyn FnMut(&mut Harvest))) {
        self.drain_events(EventRing::collect);
        with_ring(&mut |harvest| {
            let events = self.common.signal.events.load(Ordering::Acquire);
            self.events_at_arm.store(events, Ordering::Release);
            harvest.publish(&self.common, if mutant!("arm-lost") { Arm::Keep } else { arm });
        });
    }
}

impl Drop for CompletionQueueShared {
    fn drop(&mut self) {
        if self.common.device.is_forked() {
            return;
        }
        let harvest = lock(&self.harvest).take();
        let Common { device, number, .. } = &self.common;
        let memory: Vec<&Mapping> = harvest.iter().flat_map(|harvest| harvest.memory()).collect();
        let is_destroyed = device.destroy(CommandOpcode::DestroyCompletionQueue, *number, &memory);
        // Events of this queue are read before its number can be allocated again.
        self.events.ring().collect();
        device.routes.remove(*number);
        if is_destroyed {
            lock(&device.ids).completion_queues.free(*number);
        }
    }
}

/// Completion queue. Clones are cheap and refer to the same queue, which is destroyed with the last of them and of the queue
/// pairs that use it.
#[derive(Clone)]
pub struct CompletionQueue {
    pub(crate) shared: Arc<CompletionQueueShared>,
}

/// Fails unless the card can have a queue of 2^`log2` CQEs.
fn check_entries(device: &DeviceShared, log2: u32) -> Result<(), Error> {
    let limit = u32::from(device.limits.queues.cqes_log2).min(CQES_LOG2_MAX);
    check_option("completion_queue.entries_log2", log2.into(), RING_LOG2_MIN.into(), limit.into())
}

/// Fails if a queue of 2^`log2` CQEs, which the card can have, is full before an event comes.
fn check_moderation(count: u16, log2: u32) -> Result<(), Error> {
    check_option("completion_queue.moderation_count", count.into(), 0, 1 << log2)
}

impl Device {
    /// Creates a completion queue that raises its events on `events`.
    ///
    /// # Errors
    ///
    /// [`Error::Mixed`] if the event queue belongs to another card, [`Error::Option`] if an option is outside the card's
    /// limits, or an event would never come, [`Error::Exhausted`] if all completion queues are in use, [`Error::Command`] if the card refuses, or a failure
    /// of the back end.
    pub fn create_completion_queue(
        &self,
        events: &EventQueue,
        options: &CompletionQueueOptions,
    ) -> Result<CompletionQueue, Error> {
        let device = &self.shared;
        if !Arc::ptr_eq(device, events.device()) {
            return Err(Error::Mixed { what: "completion queue and event queue", owner: "cards" });
        }
        let log2 = options.entries_log2;
        check_entries(device, log2)?;
        let moderation_count = if options.moderation_period == 0 { options.moderation_count } else { 0 };
        check_moderation(moderation_count, log2)?;
        let memory = Mapping::new(&device.function, CQE_BYTES << log2, Purpose::Ring)?;
        let number = lock(&device.ids).completion_queues.allocate_lowest()?;
        let body = CreateCompletionQueue {
            entries_log2: log2 as u8,
            event_queue: events.number() as u8,
            doorbell_page: device.doorbells.page(),
            moderation_count: options.moderation_count,
            moderation_period: options.moderation_period,
            base: memory.device_address(),
        };
        let object = NewObject {
            opcode: CommandOpcode::CreateCompletionQueue,
            number,
            body: Body::CreateCompletionQueue(body),
            memory: &[&memory],
        };
        device.create(object, |ids| {
            ids.completion_queues.free(number);
        })?;
        let signal = Arc::default();
        device.routes.add(number, &signal);
        let harvest = Harvest::new(memory, log2, device.limits.tables.queue_pairs_log2);
        let shared = CompletionQueueShared {
            common: Common::new(Arc::clone(device), number, 1 << log2, signal),
            events: events.clone(),
            moderation_count,
            events_at_arm: AtomicU64::new(0),
            harvest: Mutex::new(Some(Box::new(harvest))),
        };
        Ok(CompletionQueue { shared: Arc::new(shared) })
    }
}

impl CompletionQueue {
    /// Number of the queue on the card.
    pub fn number(&self) -> u32 {
        self.shared.number()
    }

    /// Number of CQEs: the largest number of requests in flight on all queues that complete here.
    pub fn entries(&self) -> u32 {
        self.shared.entries()
    }

    /// Changes the number of CQEs to 2^`entries_log2`, also while requests are in flight. Completions that are there stay, and so does
    /// what the queue was armed for. Other threads can poll again when the card has answered.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if the number is outside the card's limits, or below the moderation count, [`Error::Reserved`] if requests in flight have reserved more
    /// CQEs, [`Error::Polled`] if a [`Poller`] has the queue, which can resize it then, [`Error::Command`] if the card refuses, or a
    /// failure of the back end. The queue goes on as it was.
    pub fn resize(&self, entries_log2: u32) -> Result<(), Error> {
        let resized = self.shared.with_ring(|harvest| self.shared.resize(harvest, entries_log2));
        resized.unwrap_or(Err(Error::Polled { number: self.number() }))
    }

    /// Takes the queue for one thread, which polls it without a lock from then on. Returns `None` if it is taken already. As long
    /// as the poller exists, polls and waits of the queue itself find nothing.
    pub fn poller(&self) -> Option<Poller> {
        Poller::new(self)
    }

    /// Appends up to `limit` completions to `completions`, and returns their number. Does not wait; if it finds nothing, it calls
    /// [`Function::idle`](crate::Function::idle) once, so that a loop of polls lets a simulated card go on. Now and then, and
    /// after a failed completion, it also reads the events that have arrived, so that event queue 0 loses none while nobody asks
    /// for events; [`EventQueue::poll`] returns them later.
    ///
    /// # Errors
    ///
    /// [`CompletionError`] if the queue has failed; it is returned when no completion from before the failure is left.
    pub fn poll(&self, completions: &mut Vec<Completion>, limit: usize) -> Result<usize, CompletionError> {
        let polled = self.shared.with_ring(|harvest| {
            let result = harvest.poll(&self.shared.common, limit, |completion| completions.push(completion));
            (result, harvest.count_poll())
        });
        let (result, is_drain_due) = polled.unwrap_or((Ok(0), false));
        self.shared.end_poll(is_drain_due, limit != 0 && result == Ok(0));
        result
    }

    /// Takes one completion, or returns `None` if there is none. Does not wait; idles as [`Self::poll`] does.
    ///
    /// # Errors
    ///
    /// As [`Self::poll`].
    pub fn poll_one(&self) -> Result<Option<Completion>, CompletionError> {
        let mut completion = None;
        let polled = self.shared.with_ring(|harvest| {
            let result = harvest.poll(&self.shared.common, 1, |polled| completion = Some(polled));
            (result, harvest.count_poll())
        });
        let (result, is_drain_due) = polled.unwrap_or((Ok(0), false));
        self.shared.end_poll(is_drain_due, result == Ok(0));
        result.map(|_| completion)
    }

    /// Polls until a completion is there, up to `limit` in the time of the [`Function`](crate::Function), without events.
    /// Returns `None` if none arrives.
    ///
    /// # Errors
    ///
    /// As [`Self::poll`].
    pub fn spin(&self, limit: Duration) -> Result<Option<Completion>, CompletionError> {
        let deadline = self.shared.deadline(limit);
        loop {
            let completion = self.poll_one()?;
            if completion.is_some() || self.shared.is_over(deadline) {
                return Ok(completion);
            }
        }
    }

    /// Waits up to `limit` for an event of the queue. Returns whether [`Self::poll`] would return a completion or an error.
    ///
    /// No completion is missed between the last poll and the arming: the card raises the event at once if CQEs exist after
    /// the consumer index of the doorbell (protocol 4.4).
    ///
    /// # Errors
    ///
    /// [`Error::IllegalEvents`] once if the card wrote illegal EQEs, or a failure of the back end.
    pub fn wait(&self, limit: Duration) -> Result<bool, Error> {
        self.wait_for(limit, Arm::Next)
    }

    /// Waits up to `limit` for an event of a solicited or failed completion. Returns whether [`Self::poll`] would return such
    /// a completion, perhaps after others, or an error. Completions that another wait or the end of a queue pair has read
    /// count too.
    ///
    /// # Errors
    ///
    /// As [`Self::wait`].
    pub fn wait_solicited(&self, limit: Duration) -> Result<bool, Error> {
        self.wait_for(limit, Arm::Solicited)
    }

    fn wait_for(&self, limit: Duration, arm: Arm) -> Result<bool, Error> {
        self.shared.wait(limit, arm, |run| {
            self.shared.with_ring(run);
        })
    }

    /// Requests one event, for the next completion or for the next solicited one, and clears [`Self::is_signalled`].
    /// Also reads the events that have arrived, of this queue's event queue and of event queue 0. A queue that a [`Poller`] has
    /// is armed by [`Poller::arm`] only.
    pub fn arm(&self, arm: Arm) {
        self.shared.arm(arm, |run| {
            self.shared.with_ring(run);
        });
    }

    /// Returns whether an event has arrived since the last [`Self::arm`]. The waits of other threads do not change it.
    ///
    /// # Errors
    ///
    /// [`Error::IllegalEvents`] once if the card wrote illegal EQEs to the event queue.
    pub fn is_signalled(&self) -> Result<bool, Error> {
        let shared = &*self.shared;
        shared.events.ring().collect();
        shared.events.ring().check()?;
        let events = shared.common.signal.events.load(Ordering::Acquire);
        Ok(events != shared.events_at_arm.load(Ordering::Acquire))
    }

    /// Event queue that receives the events of this queue.
    pub fn events(&self) -> &EventQueue {
        &self.shared.events
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionQueue({})", self.number())
    }
}
