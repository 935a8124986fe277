//! Completion queues: report the results of work requests, and return their memory.
//!
//! Posting a request reserves a CQE in its completion queue. That includes unsignalled requests, because a failed request
//! completes even if it is unsignalled. So a completion queue of this driver cannot overrun: when all CQEs are reserved, the
//! post is refused and returns the request.
//!
//! Every request completes exactly once. Unsignalled sends complete together with the next signalled one, in order.

use crate::completion::Completion;
use crate::device::{Device, DeviceShared, NewObject};
use crate::error::{CompletionError, Error, check_option};
use crate::event_queue::EventQueue;
use crate::event_ring::CompletionSignal;
use crate::mapping::Mapping;
use crate::memory::Purpose;
use crate::ring::PhaseRing;
use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, lock};
use rnic_layout::admin::{Body, CommandOpcode, CreateCompletionQueue};
use rnic_layout::doorbell::Arm;
use rnic_layout::limits::{CQES_LOG2_MAX, RING_LOG2_MIN};
use rnic_layout::queue::completion::{CompletionStatus, Cqe};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Size of a CQE in bytes.
const CQE_BYTES: usize = Cqe::BYTES;
/// Width of the free-running index in bits.
const INDEX_BITS: u32 = 24;

/// Number of polls of a completion queue for each look at the event queues. A small part of the smallest event queue.
const POLLS_PER_DRAIN: u32 = 16;

/// Parameters of a completion queue.
#[derive(Clone, Debug)]
pub struct CompletionQueueOptions {
    /// log2 of the number of CQEs, from 6 to the card's limit. It bounds the requests in flight on all queues that complete
    /// here, unsignalled ones included.
    pub entries_log2: u32,
    /// Event moderation: number of completions that raise one event. Zero and one raise an event for each.
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

/// The user of a completion queue: knows the posted requests that its CQEs report.
pub(crate) trait Retire: Send + Sync {
    /// Retires the requests that a CQE reports as done. Appends a completion for each to `pending`, and returns the number of
    /// reserved CQEs that become free.
    fn retire(&self, cqe: &Cqe, pending: &mut VecDeque<Completion>) -> Result<u32, CompletionError>;
}

/// A completion queue, kept by its handles and its queue pairs.
pub(crate) struct CompletionQueueShared {
    device: Arc<DeviceShared>,
    events: EventQueue,
    number: u32,
    entries: u32,
    signal: Arc<CompletionSignal>,
    /// Number of events of `signal` at the last call of `arm`.
    events_at_arm: AtomicU64,
    /// Number of CQEs that no posted request has reserved.
    unreserved: AtomicU32,
    state: Mutex<State>,
}

struct State {
    memory: Mapping,
    ring: PhaseRing,
    /// Queue pairs that complete here, by QPN. One that was dropped but not destroyed by the card remains.
    queue_pairs: HashMap<u32, Weak<dyn Retire>>,
    /// Completions that were read from the ring and not polled yet; at most one for each request that was posted.
    pending: VecDeque<Completion>,
    /// Number of polls after which the event queues are drained; zero: after the next one.
    polls_to_drain: u32,
    /// Failure of the queue. It is permanent.
    broken: Option<CompletionError>,
}

impl State {
    /// Returns whether the failure of the queue, or a completion of the kind that `arm` requests, waits to be polled.
    fn has_read(&self, arm: Arm) -> bool {
        let matches = |completion: &Completion| {
            arm != Arm::Solicited || completion.solicited || !completion.is_success()
        };
        self.broken.is_some() || self.pending.iter().any(matches)
    }
}

impl CompletionQueueShared {
    pub(crate) fn device(&self) -> &Arc<DeviceShared> {
        &self.device
    }

    /// Number of CQEs of the queue.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// Reserves one CQE. Returns the number of CQEs that remain unreserved, or `None` if all were reserved.
    pub(crate) fn reserve(&self) -> Option<u32> {
        let take = |unreserved: u32| unreserved.checked_sub(1);
        let before = self.unreserved.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take);
        before.ok().map(|before| before - 1)
    }

    /// Number of the queue on the card.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Reserves `count` CQEs. Returns false, and reserves none, if fewer are unreserved.
    pub(crate) fn reserve_all(&self, count: u32) -> bool {
        let take = |unreserved: u32| unreserved.checked_sub(count);
        self.unreserved.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).is_ok()
    }

    /// Returns `count` reserved CQEs.
    pub(crate) fn unreserve(&self, count: u32) {
        self.unreserved.fetch_add(count, Ordering::AcqRel);
    }

    /// Registers a queue pair that completes here.
    pub(crate) fn attach(&self, qp_number: u32, queue_pair: Weak<dyn Retire>) {
        lock(&self.state).queue_pairs.insert(qp_number, queue_pair);
    }

    /// Unregisters a queue pair that was destroyed, after reading all its CQEs. `flush` appends a completion for each request
    /// that is still posted, and returns their number.
    pub(crate) fn detach(&self, qp_number: u32, flush: impl FnOnce(&mut VecDeque<Completion>) -> u32) {
        let mut state = lock(&self.state);
        // The next poll reports a CQE that cannot be read.
        self.harvest(&mut state, usize::MAX);
        state.queue_pairs.remove(&qp_number);
        let count = flush(&mut state.pending);
        drop(state);
        self.unreserve(count);
    }

    /// Reads all CQEs of a queue pair that was reset, or that was dropped but not destroyed. `flush` is as for
    /// [`Self::detach`].
    pub(crate) fn flush(&self, flush: impl FnOnce(&mut VecDeque<Completion>) -> u32) {
        let mut state = lock(&self.state);
        self.harvest(&mut state, usize::MAX);
        let count = flush(&mut state.pending);
        drop(state);
        self.unreserve(count);
    }

    /// Reads CQEs until at least `enough` completions are pending, or no more CQEs are there.
    fn harvest(&self, state: &mut State, enough: usize) {
        if state.broken.is_none() && self.signal.failed.load(Ordering::Acquire) {
            state.broken = Some(CompletionError::QueueFailed { number: self.number });
        }
        let before = state.ring.consumer_index();
        let mut retired = 0;
        while state.pending.len() < enough && state.broken.is_none() {
            let Some(bytes) = state.ring.next::<CQE_BYTES>(&state.memory.words()) else { break };
            match self.retire(state, &bytes) {
                Ok(count) => retired += count,
                Err(error) => state.broken = Some(error),
            }
        }
        if state.ring.consumer_index() != before {
            // The card must know the consumer index before the CQEs can be reserved again.
            if !mutant!("consumer-index-not-published") {
                self.ring_doorbell(state, Arm::Keep);
            }
            self.unreserve(retired);
        }
    }

    fn retire(&self, state: &mut State, bytes: &[u8; CQE_BYTES]) -> Result<u32, CompletionError> {
        let number = self.number;
        let cqe = Cqe::parse(bytes).map_err(|error| CompletionError::Impossible { number, error })?;
        if cqe.status != CompletionStatus::Success {
            // The failure of a queue pair often raises an event too.
            state.polls_to_drain = 0;
        }
        let qp_number = cqe.qp_number;
        let queue_pair = state.queue_pairs.get(&qp_number);
        match queue_pair.ok_or(CompletionError::UnknownQueuePair { number, qp_number })?.upgrade() {
            Some(queue_pair) => queue_pair.retire(&cqe, &mut state.pending),
            // The card has not confirmed that it has destroyed the queue pair. Its CQEs stay reserved.
            None => Ok(0),
        }
    }

    /// Reads the events of this queue and of the device, so that an application that only arms and polls loses no
    /// asynchronous event.
    fn drain_events(&self) {
        self.events.ring().collect();
        if self.events.number() != self.device.events.number() {
            self.device.events.collect();
        }
    }

    /// Ends a poll: drains the event queues if it is time.
    fn after_poll(&self, mut state: MutexGuard<'_, State>) {
        let is_due = state.polls_to_drain == 0;
        state.polls_to_drain = if is_due { POLLS_PER_DRAIN } else { state.polls_to_drain - 1 };
        drop(state);
        if is_due {
            self.drain_events();
        }
    }

    fn ring_doorbell(&self, state: &State, arm: Arm) {
        self.device.doorbells.completion(self.number, arm, state.ring.consumer_index());
    }

    /// Returns whether polls would return an error or a completion of the kind that `arm` requests.
    fn is_ready(&self, arm: Arm) -> bool {
        let mut state = lock(&self.state);
        // A solicited completion may follow others.
        self.harvest(&mut state, if arm == Arm::Solicited { usize::MAX } else { 1 });
        state.has_read(arm)
    }

    /// As [`Self::is_ready`], of the CQEs that were read already.
    fn has_read(&self, arm: Arm) -> bool {
        lock(&self.state).has_read(arm)
    }
}

impl Drop for CompletionQueueShared {
    fn drop(&mut self) {
        let memory = lock(&self.state).memory.share();
        let is_destroyed =
            self.device.destroy(CommandOpcode::DestroyCompletionQueue, self.number, &[&memory]);
        // Events of this queue are read before its number can be allocated again.
        self.events.ring().collect();
        self.device.routes.remove(self.number);
        if is_destroyed {
            lock(&self.device.ids).completion_queues.free(self.number);
        }
    }
}

/// Completion queue. Clones are cheap and refer to the same queue, which is destroyed with the last of them and of the queue
/// pairs that use it.
#[derive(Clone)]
pub struct CompletionQueue {
    pub(crate) shared: Arc<CompletionQueueShared>,
}

impl Device {
    /// Creates a completion queue that raises its events on `events`.
    ///
    /// # Errors
    ///
    /// [`Error::Mixed`] if the event queue belongs to another card, [`Error::Option`] if an option is outside the card's
    /// limits, [`Error::Exhausted`] if all completion queues are in use, [`Error::Command`] if the card refuses, or a failure
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
        let limit = u32::from(device.limits.queues.cqes_log2).min(CQES_LOG2_MAX);
        check_option("completion_queue.entries_log2", log2.into(), RING_LOG2_MIN.into(), limit.into())?;
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
        let state = State {
            memory,
            ring: PhaseRing::new(log2, INDEX_BITS),
            queue_pairs: HashMap::new(),
            pending: VecDeque::new(),
            polls_to_drain: POLLS_PER_DRAIN,
            broken: None,
        };
        let shared = CompletionQueueShared {
            device: Arc::clone(device),
            events: events.clone(),
            number,
            entries: 1 << log2,
            signal,
            events_at_arm: AtomicU64::new(0),
            unreserved: AtomicU32::new(1 << log2),
            state: Mutex::new(state),
        };
        Ok(CompletionQueue { shared: Arc::new(shared) })
    }
}

impl CompletionQueue {
    /// Number of the queue on the card.
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// Number of CQEs: the largest number of requests in flight on all queues that complete here.
    pub fn entries(&self) -> u32 {
        self.shared.entries
    }

    /// Appends up to `limit` completions to `completions`, and returns their number. Does not wait. Now and then, and after a
    /// failed completion, it also reads the events that have arrived, so that event queue 0 loses none while nobody
    /// asks for events; [`EventQueue::poll`] returns them later.
    ///
    /// # Errors
    ///
    /// [`CompletionError`] if the queue has failed; it is returned when no completion from before the failure is left.
    pub fn poll(&self, completions: &mut Vec<Completion>, limit: usize) -> Result<usize, CompletionError> {
        let mut state = lock(&self.shared.state);
        self.shared.harvest(&mut state, limit);
        let count = state.pending.len().min(limit);
        completions.extend(state.pending.drain(..count));
        let result = match state.broken {
            Some(error) if count == 0 && limit != 0 => Err(error),
            _ => Ok(count),
        };
        self.shared.after_poll(state);
        result
    }

    /// Takes one completion, or returns `None` if there is none. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`Self::poll`].
    pub fn poll_one(&self) -> Result<Option<Completion>, CompletionError> {
        let mut state = lock(&self.shared.state);
        self.shared.harvest(&mut state, 1);
        let result = match (state.pending.pop_front(), state.broken) {
            (None, Some(error)) => Err(error),
            (completion, _) => Ok(completion),
        };
        self.shared.after_poll(state);
        result
    }

    /// Polls until a completion is there, up to `limit` in the time of the [`Function`](crate::Function), without events.
    /// Returns `None` if none arrives.
    ///
    /// # Errors
    ///
    /// As [`Self::poll`].
    pub fn spin(&self, limit: Duration) -> Result<Option<Completion>, CompletionError> {
        let function = &self.shared.device.function;
        let deadline = function.now() + limit;
        loop {
            let completion = self.poll_one()?;
            if completion.is_some() || function.now() >= deadline {
                return Ok(completion);
            }
            function.idle();
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
        let shared = &*self.shared;
        let deadline = shared.device.function.now() + limit;
        loop {
            if shared.is_ready(arm) {
                return Ok(true);
            }
            shared.drain_events();
            let events = shared.signal.events.load(Ordering::Acquire);
            shared.ring_doorbell(&lock(&shared.state), arm);
            if shared.is_ready(arm) {
                return Ok(true);
            }
            let is_over = || shared.signal.events.load(Ordering::Acquire) != events || shared.has_read(arm);
            if !shared.events.ring().wait(deadline, is_over)? {
                return Ok(shared.is_ready(arm));
            }
            // The event may belong to an earlier arming, or another thread may have polled its completion; in that case the
            // loop continues.
        }
    }

    /// Requests one event, for the next completion or for the next solicited one, and clears [`Self::is_signalled`].
    /// Also reads the events that have arrived, of this queue's event queue and of event queue 0.
    pub fn arm(&self, arm: Arm) {
        self.shared.drain_events();
        let state = lock(&self.shared.state);
        let events = self.shared.signal.events.load(Ordering::Acquire);
        self.shared.events_at_arm.store(events, Ordering::Release);
        self.shared.ring_doorbell(&state, if mutant!("arm-lost") { Arm::Keep } else { arm });
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
        let events = shared.signal.events.load(Ordering::Acquire);
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
