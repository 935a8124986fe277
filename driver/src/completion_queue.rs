//! Completion queues: where work comes back.
//!
//! A request that is posted reserves its entry of the completion queue, also if it is unsignalled, because a failure
//! would complete it on its own. So a completion queue of this driver cannot overrun: when all entries are spoken for,
//! the post is refused and the request handed back.
//!
//! Every request completes exactly once, and gives its memory back. Unsignalled sends do so together with the next
//! signalled one, in order.

use crate::device::{Device, DeviceShared};
use crate::error::{CompletionError, Error, check_option};
use crate::event::{CompletionSignal, EventQueue};
use crate::memory::{Mapping, Purpose};
use crate::queue_pair::QueuePairShared;
use crate::ring::PhaseRing;
use crate::sync::lock;
use crate::work_request::SgList;
use rnic_layout::admin::{Body, CommandOpcode, CreateCompletionQueue};
use rnic_layout::doorbell::Arm;
use rnic_layout::limits::{COMPLETION_ENTRIES_LOG2_MAX, RING_LOG2_MIN};
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus, Cqe};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Bytes of an entry.
const ENTRY_BYTES: usize = Cqe::BYTES;
/// Bits of the free-running index.
const INDEX_BITS: u32 = 24;

/// What became of a request, and its memory.
#[derive(Debug)]
pub struct Completion {
    /// Tag of the request.
    pub wr_id: u64,
    /// QPN of the queue pair.
    pub qp_number: u32,
    /// How it ended.
    pub status: CompletionStatus,
    /// What kind of work it was.
    pub opcode: CompletionOpcode,
    /// Bytes of the message; zero if it failed.
    pub length: u32,
    /// Immediate data of the peer, as on the wire.
    pub immediate: Option<[u8; 4]>,
    /// Key of this host that the peer has ended with its message.
    pub invalidated: Option<u32>,
    /// The peer asked for a solicited event.
    pub solicited: bool,
    /// The card wrote an entry for this request; otherwise it was unsignalled, and a later one told of its success.
    pub signalled: bool,
    /// More about a failure, for the log: the syndrome of the peer's NAK, or the card's own reason.
    pub vendor_error: u8,
    /// The memory of the request.
    pub sg_list: SgList,
}

impl Completion {
    /// Tells whether all went well.
    pub fn is_success(&self) -> bool {
        self.status == CompletionStatus::Success
    }

    /// Tells whether this was a receive.
    pub fn is_receive(&self) -> bool {
        matches!(self.opcode, CompletionOpcode::Receive | CompletionOpcode::ReceiveWrite)
    }

    /// What an atomic found in the peer's memory, if it was one and all went well.
    pub fn original(&self) -> Option<u64> {
        let is_atomic = matches!(self.opcode, CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd);
        let cell = self.sg_list.first().filter(|_| is_atomic && self.is_success())?;
        Some(u64::from_le_bytes((*cell.bytes()).try_into().ok()?))
    }

    /// Copies a received message out of its pieces.
    pub fn message(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.length as usize);
        for piece in &self.sg_list {
            let part = piece.len().min(self.length as usize - message.len());
            message.extend_from_slice(&piece.bytes()[..part]);
        }
        message
    }
}

/// How a completion queue is made.
#[derive(Clone, Debug)]
pub struct CompletionQueueOptions {
    /// Entries, as a power of two, 6 to the card's limit: at least as many as requests can be in flight on all queues
    /// that complete here, unsignalled ones included.
    pub entries_log2: u32,
    /// An event waits for so many completions; zero and one for none.
    pub moderation_count: u16,
    /// But no longer than so many units of 256 cycles after the first of them; zero for ever.
    pub moderation_period: u16,
}

impl Default for CompletionQueueOptions {
    fn default() -> Self {
        Self { entries_log2: 8, moderation_count: 0, moderation_period: 0 }
    }
}

/// A completion queue on the card. Queue pairs keep it.
pub(crate) struct CompletionQueueShared {
    device: Arc<DeviceShared>,
    events: EventQueue,
    number: u32,
    entries: u32,
    signal: Arc<CompletionSignal>,
    /// Entries that no request has reserved.
    unreserved: AtomicU32,
    state: Mutex<State>,
}

struct State {
    memory: Mapping,
    ring: PhaseRing,
    queue_pairs: HashMap<u32, Weak<QueuePairShared>>,
    /// Completions that are read but not polled yet; at most as many as requests were posted.
    pending: VecDeque<Completion>,
    /// Set for good by an entry that cannot be.
    broken: Option<CompletionError>,
}

impl CompletionQueueShared {
    pub(crate) fn device(&self) -> &Arc<DeviceShared> {
        &self.device
    }

    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// Speaks for one entry, and gives how many are left; `None` if there was none.
    pub(crate) fn reserve(&self) -> Option<u32> {
        let take = |unreserved: u32| unreserved.checked_sub(1);
        let before = self.unreserved.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take);
        before.ok().map(|before| before - 1)
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Speaks for many entries, or for none if there are not so many.
    pub(crate) fn reserve_all(&self, count: u32) -> bool {
        let take = |unreserved: u32| unreserved.checked_sub(count);
        self.unreserved.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).is_ok()
    }

    /// Gives reserved entries back.
    pub(crate) fn give_back(&self, count: u32) {
        self.unreserved.fetch_add(count, Ordering::AcqRel);
    }

    /// Lets a queue pair complete here.
    pub(crate) fn attach(&self, number: u32, queue_pair: &Arc<QueuePairShared>) {
        lock(&self.state).queue_pairs.insert(number, Arc::downgrade(queue_pair));
    }

    /// Reads every entry that the card has written, and forgets the queue pair, whose work `flush` then takes back:
    /// it pushes a completion for each, and gives their number.
    pub(crate) fn detach(&self, number: u32, flush: impl FnOnce(&mut VecDeque<Completion>) -> u32) {
        let mut state = lock(&self.state);
        // What cannot be read is told by the next poll.
        self.harvest(&mut state, usize::MAX);
        state.queue_pairs.remove(&number);
        let count = flush(&mut state.pending);
        drop(state);
        self.give_back(count);
    }

    /// Reads every entry, and takes the work of a queue pair back that has been reset.
    pub(crate) fn flush(&self, flush: impl FnOnce(&mut VecDeque<Completion>) -> u32) {
        let mut state = lock(&self.state);
        self.harvest(&mut state, usize::MAX);
        let count = flush(&mut state.pending);
        drop(state);
        self.give_back(count);
    }

    /// Turns entries into completions until there are `enough`.
    fn harvest(&self, state: &mut State, enough: usize) {
        if state.broken.is_none() && self.signal.failed.load(Ordering::Acquire) {
            state.broken = Some(CompletionError::QueueFailed { number: self.number });
        }
        let before = state.ring.consumer_index();
        let mut retired = 0;
        while state.pending.len() < enough && state.broken.is_none() {
            let Some(bytes) = state.ring.next::<ENTRY_BYTES>(state.memory.memory()) else { break };
            match self.retire(state, &bytes) {
                Ok(count) => retired += count,
                Err(error) => state.broken = Some(error),
            }
        }
        if state.ring.consumer_index() != before {
            // The card must know that the entries are free before somebody can reserve them again.
            self.tell(state, Arm::Keep);
            self.give_back(retired);
        }
    }

    fn retire(&self, state: &mut State, bytes: &[u8; ENTRY_BYTES]) -> Result<u32, CompletionError> {
        let number = self.number;
        let entry = Cqe::parse(bytes).map_err(|error| CompletionError::Impossible { number, error })?;
        let qp_number = entry.qp_number;
        let queue_pair = state.queue_pairs.get(&qp_number).and_then(Weak::upgrade);
        let queue_pair = queue_pair.ok_or(CompletionError::UnknownQueuePair { number, qp_number })?;
        queue_pair.retire(&entry, &mut state.pending)
    }

    fn tell(&self, state: &State, arm: Arm) {
        self.device.doorbells.completion(self.number, arm, state.ring.consumer_index());
    }

    /// Tells whether a poll would give something, be it an error.
    fn has_something(&self) -> bool {
        let mut state = lock(&self.state);
        self.harvest(&mut state, 1);
        !state.pending.is_empty() || state.broken.is_some()
    }
}

impl Drop for CompletionQueueShared {
    fn drop(&mut self) {
        self.device.end(CommandOpcode::DestroyCompletionQueue, self.number);
        // Events that were under way are read before the number can be used again.
        let _ = self.events.ring().collect();
        self.device.routes.remove(self.number);
        lock(&self.device.ids).completion_queues.free(self.number);
    }
}

/// A completion queue. Handles are cheap to clone; it ends with the last of them and of its queue pairs.
#[derive(Clone)]
pub struct CompletionQueue {
    pub(crate) shared: Arc<CompletionQueueShared>,
}

impl Device {
    /// Makes a completion queue, whose events go to `events`.
    ///
    /// # Errors
    ///
    /// If an option does not fit the card, none is left, or the card refuses.
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
        let limit = u32::from(device.limits.queues.completion_entries_log2).min(COMPLETION_ENTRIES_LOG2_MAX);
        check_option("completion_queue.entries_log2", log2.into(), RING_LOG2_MIN.into(), limit.into())?;
        let memory = Mapping::new(&device.function, ENTRY_BYTES << log2, Purpose::Ring)?;
        let number = lock(&device.ids).completion_queues.allocate_lowest()?;
        let body = CreateCompletionQueue {
            entries_log2: log2 as u8,
            event_queue: events.number() as u8,
            doorbell_page: device.doorbells.page(),
            moderation_count: options.moderation_count,
            moderation_period: options.moderation_period,
            base: memory.device_address(),
        };
        let body = Body::CreateCompletionQueue(body);
        if let Err(error) = device.execute(CommandOpcode::CreateCompletionQueue, number, body) {
            lock(&device.ids).completion_queues.free(number);
            return Err(error);
        }
        let signal = Arc::default();
        device.routes.add(number, &signal);
        let state = State {
            memory,
            ring: PhaseRing::new(log2, INDEX_BITS),
            queue_pairs: HashMap::new(),
            pending: VecDeque::new(),
            broken: None,
        };
        let shared = CompletionQueueShared {
            device: Arc::clone(device),
            events: events.clone(),
            number,
            entries: 1 << log2,
            signal,
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

    /// Entries of the queue: so many requests can be in flight on all queues that complete here.
    pub fn entries(&self) -> u32 {
        self.shared.entries
    }

    /// Appends completions that are there, at most `limit`, and gives their number. Does not wait.
    ///
    /// # Errors
    ///
    /// Once all good completions are taken, if the queue cannot be trusted any more.
    pub fn poll(&self, completions: &mut Vec<Completion>, limit: usize) -> Result<usize, CompletionError> {
        let mut state = lock(&self.shared.state);
        self.shared.harvest(&mut state, limit);
        let count = state.pending.len().min(limit);
        completions.extend(state.pending.drain(..count));
        match state.broken {
            Some(error) if count == 0 && limit != 0 => Err(error),
            _ => Ok(count),
        }
    }

    /// Takes one completion, if there is one. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`Self::poll`].
    pub fn poll_one(&self) -> Result<Option<Completion>, CompletionError> {
        let mut state = lock(&self.shared.state);
        self.shared.harvest(&mut state, 1);
        match (state.pending.pop_front(), state.broken) {
            (None, Some(error)) => Err(error),
            (completion, _) => Ok(completion),
        }
    }

    /// Polls one completion until it is there, at most `limit` long, without events.
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

    /// Waits for an event of the queue, at most `limit` long. Gives whether [`Self::poll`] has something to tell.
    ///
    /// Between the last look and the arming nothing is lost: the card raises the event at once if completions
    /// stand beyond the index that it was told (protocol 4.4).
    ///
    /// # Errors
    ///
    /// If the back end fails, or the card wrote an event that cannot be.
    pub fn wait(&self, limit: Duration) -> Result<bool, Error> {
        let shared = &*self.shared;
        let deadline = shared.device.function.now() + limit;
        loop {
            if shared.has_something() {
                return Ok(true);
            }
            self.arm(Arm::Next);
            if shared.has_something() {
                return Ok(true);
            }
            let ready = || shared.signal.ready.load(Ordering::Acquire);
            if !shared.events.ring().wait(deadline, ready)? {
                return Ok(shared.has_something());
            }
            // An event of an earlier arming may have come; then the loop goes on.
        }
    }

    /// Waits for a solicited completion or one in error, at most `limit` long. Gives whether its event has come.
    ///
    /// # Errors
    ///
    /// If the back end fails, or the card wrote an event that cannot be.
    pub fn wait_solicited(&self, limit: Duration) -> Result<bool, Error> {
        let shared = &*self.shared;
        let deadline = shared.device.function.now() + limit;
        self.arm(Arm::Solicited);
        shared.events.ring().wait(deadline, || shared.signal.ready.load(Ordering::Acquire))
    }

    /// Asks for one event, of the next completion or of the next solicited one. Only the event after the last arming
    /// counts for [`Self::is_signalled`].
    pub fn arm(&self, arm: Arm) {
        let state = lock(&self.shared.state);
        self.shared.signal.ready.store(false, Ordering::Release);
        self.shared.tell(&state, arm);
    }

    /// Tells whether an event has come since the last arming.
    ///
    /// # Errors
    ///
    /// If the card wrote an event that cannot be.
    pub fn is_signalled(&self) -> Result<bool, Error> {
        self.shared.events.ring().collect()?;
        Ok(self.shared.signal.ready.load(Ordering::Acquire))
    }

    /// The event queue that the queue's events go to.
    pub fn events(&self) -> &EventQueue {
        &self.shared.events
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionQueue({})", self.number())
    }
}
