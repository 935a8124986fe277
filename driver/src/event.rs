//! Event queues: what the card has to say without being asked.
//!
//! Queue 0 belongs to the card itself and exists from the start; others are made by command, to give the completion
//! queues of different threads different interrupt vectors. Whoever reads a queue hands each event to whom it
//! concerns: a completion queue that waits, or the list of asynchronous events.

use crate::device::DeviceShared;
use crate::doorbell::Doorbells;
use crate::error::{Error, check_option};
use crate::function::Function;
use crate::memory::{Mapping, Purpose};
use crate::ring::PhaseRing;
use crate::sync::lock;
use rnic_layout::admin::{Body, CommandOpcode, CreateEventQueue};
use rnic_layout::limits::{EVENT_ENTRIES_LOG2_MAX, RING_LOG2_MIN};
use rnic_layout::queue::event::{AsyncEvent, Eqe, EventKind};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Bytes of an entry.
const ENTRY_BYTES: usize = Eqe::BYTES;
/// Bits of the free-running index.
const INDEX_BITS: u32 = 24;
/// A thread that waits looks up after so long, in case another thread has taken its interrupt.
const NAP: Duration = Duration::from_millis(1);

/// Something that happened to an object, to the port or to the device (protocol 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsynchronousEvent {
    /// What happened.
    pub code: AsyncEvent,
    /// QPN or number of the object; zero for port and device.
    pub object_number: u32,
    /// More, by code.
    pub detail: u32,
}

/// What the events of a completion queue set.
#[derive(Debug, Default)]
pub(crate) struct CompletionSignal {
    /// An event has come since this was last cleared.
    pub(crate) ready: AtomicBool,
    /// The queue has overrun.
    pub(crate) failed: AtomicBool,
}

/// An event queue in memory and on the card.
pub(crate) struct EventRing {
    function: Arc<dyn Function>,
    doorbells: Doorbells,
    number: u32,
    vector: u32,
    state: Mutex<State>,
    routes: Arc<Routes>,
}

/// Where the events of completion queues go. All event queues of a card share it, because the failure of a
/// completion queue may be told on queue 0.
#[derive(Debug, Default)]
pub(crate) struct Routes(Mutex<HashMap<u32, Weak<CompletionSignal>>>);

impl Routes {
    /// Sends the events of a completion queue its way.
    pub(crate) fn add(&self, completion_queue: u32, signal: &Arc<CompletionSignal>) {
        lock(&self.0).insert(completion_queue, Arc::downgrade(signal));
    }

    /// Forgets a completion queue.
    pub(crate) fn remove(&self, completion_queue: u32) {
        lock(&self.0).remove(&completion_queue);
    }

    fn signal(&self, completion_queue: u32, set: impl FnOnce(&CompletionSignal)) {
        let signal = lock(&self.0).get(&completion_queue).and_then(Weak::upgrade);
        if let Some(signal) = signal {
            set(&signal);
        }
    }
}

struct State {
    memory: Mapping,
    ring: PhaseRing,
    /// Asynchronous events that nobody has asked for yet; at most as many as the ring has entries.
    pending: VecDeque<AsynchronousEvent>,
    limit: usize,
    lost: u64,
}

impl EventRing {
    pub(crate) fn new(
        function: &Arc<dyn Function>,
        doorbells: Doorbells,
        number: u32,
        vector: u32,
        entries_log2: u32,
        routes: &Arc<Routes>,
    ) -> Result<Self, Error> {
        let memory = Mapping::new(function, ENTRY_BYTES << entries_log2, Purpose::Ring)?;
        let state = State {
            memory,
            ring: PhaseRing::new(entries_log2, INDEX_BITS),
            pending: VecDeque::new(),
            limit: 1 << entries_log2,
            lost: 0,
        };
        Ok(Self {
            function: Arc::clone(function),
            doorbells,
            number,
            vector,
            state: Mutex::new(state),
            routes: Arc::clone(routes),
        })
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn device_address(&self) -> u64 {
        lock(&self.state).memory.device_address()
    }

    /// Reads all events that are there, and hands them out. Gives their number.
    pub(crate) fn collect(&self) -> Result<usize, Error> {
        let mut state = lock(&self.state);
        let mut count = 0;
        let State { memory, ring, .. } = &mut *state;
        let mut asynchronous = Vec::new();
        while let Some(entry) = ring.next::<ENTRY_BYTES>(memory.memory()) {
            count += 1;
            let event = Eqe::parse(&entry)?;
            match event.kind {
                EventKind::Completion => {
                    self.routes
                        .signal(event.object_number, |signal| signal.ready.store(true, Ordering::Release));
                }
                EventKind::Asynchronous => {
                    if event.code == AsyncEvent::CompletionQueueError {
                        self.routes.signal(event.object_number, |signal| {
                            signal.failed.store(true, Ordering::Release);
                            signal.ready.store(true, Ordering::Release);
                        });
                    }
                    let Eqe { code, object_number, detail, .. } = event;
                    asynchronous.push(AsynchronousEvent { code, object_number, detail });
                }
                // Whoever gave the command looks at the answers itself.
                EventKind::AdminAnswer => {}
            }
        }
        for event in asynchronous {
            if state.pending.len() == state.limit {
                state.pending.pop_front();
                state.lost += 1;
            }
            state.pending.push_back(event);
        }
        if count != 0 {
            self.tell(&state, false);
        }
        Ok(count)
    }

    fn tell(&self, state: &State, arm: bool) {
        self.doorbells.event(self.number, arm, state.ring.consumer_index());
    }

    /// Waits until `done` says so or the clock shows `until`, reading events. Gives whether it was done.
    pub(crate) fn wait(&self, until: Duration, done: impl Fn() -> bool) -> Result<bool, Error> {
        loop {
            self.collect()?;
            if done() {
                return Ok(true);
            }
            let now = self.function.now();
            if now >= until {
                return Ok(false);
            }
            if self.vector < self.function.interrupt_vectors() {
                // Events that came since the look above raise the interrupt at once, so none is slept over.
                self.tell(&lock(&self.state), true);
                self.function.wait_interrupt(self.vector, until.min(now + NAP))?;
            } else {
                self.function.idle();
            }
        }
    }

    fn take(&self) -> Option<AsynchronousEvent> {
        lock(&self.state).pending.pop_front()
    }

    fn lost(&self) -> u64 {
        lock(&self.state).lost
    }

    fn is_pending(&self) -> bool {
        !lock(&self.state).pending.is_empty()
    }
}

/// How an event queue is made.
#[derive(Clone, Debug)]
pub struct EventQueueOptions {
    /// Entries, as a power of two, 6 to the card's limit. A queue needs one entry for each completion queue that it
    /// serves, and some for asynchronous events.
    pub entries_log2: u32,
    /// Interrupt vector. If the back end has fewer, waiting is polling.
    pub vector: u32,
}

impl Default for EventQueueOptions {
    fn default() -> Self {
        Self { entries_log2: RING_LOG2_MIN, vector: 0 }
    }
}

/// What dropping the last handle of an event queue ends.
pub(crate) struct EventQueueShared {
    device: Arc<DeviceShared>,
    ring: EventRing,
}

impl Drop for EventQueueShared {
    fn drop(&mut self) {
        self.device.end(CommandOpcode::DestroyEventQueue, self.ring.number());
        lock(&self.device.ids).event_queues.free(self.ring.number());
    }
}

#[derive(Clone)]
enum Which {
    /// Queue 0, which the device owns.
    Own(Arc<DeviceShared>),
    Made(Arc<EventQueueShared>),
}

/// A queue of events. Handles are cheap to clone; the queue ends with the last of them.
#[derive(Clone)]
pub struct EventQueue(Which);

impl EventQueue {
    pub(crate) fn own(device: &Arc<DeviceShared>) -> Self {
        Self(Which::Own(Arc::clone(device)))
    }

    pub(crate) fn create(device: &Arc<DeviceShared>, options: &EventQueueOptions) -> Result<Self, Error> {
        let limit = u32::from(device.limits.queues.event_entries_log2).min(EVENT_ENTRIES_LOG2_MAX);
        let log2 = options.entries_log2;
        check_option("event_queue.entries_log2", log2.into(), RING_LOG2_MIN.into(), limit.into())?;
        let vectors = u64::from(device.limits.geometry.interrupt_vectors.max(1));
        check_option("event_queue.vector", options.vector.into(), 0, vectors - 1)?;
        let number = lock(&device.ids).event_queues.allocate_lowest()?;
        let ring = EventRing::new(
            &device.function,
            device.doorbells.clone(),
            number,
            options.vector,
            log2,
            &device.routes,
        );
        let created = ring.and_then(|ring| {
            let body = CreateEventQueue {
                entries_log2: log2 as u8,
                vector: options.vector as u8,
                doorbell_page: device.doorbells.page(),
                base: ring.device_address(),
            };
            device.execute(CommandOpcode::CreateEventQueue, number, Body::CreateEventQueue(body))?;
            Ok(ring)
        });
        match created {
            Ok(ring) => {
                Ok(Self(Which::Made(Arc::new(EventQueueShared { device: Arc::clone(device), ring }))))
            }
            Err(error) => {
                lock(&device.ids).event_queues.free(number);
                Err(error)
            }
        }
    }

    pub(crate) fn ring(&self) -> &EventRing {
        match &self.0 {
            Which::Own(device) => &device.events,
            Which::Made(shared) => &shared.ring,
        }
    }

    pub(crate) fn device(&self) -> &Arc<DeviceShared> {
        match &self.0 {
            Which::Own(device) => device,
            Which::Made(shared) => &shared.device,
        }
    }

    /// Number of the queue on the card.
    pub fn number(&self) -> u32 {
        self.ring().number()
    }

    /// Takes the next asynchronous event, if there is one.
    ///
    /// # Errors
    ///
    /// If the card cannot be reached, or wrote an event that cannot be.
    pub fn poll(&self) -> Result<Option<AsynchronousEvent>, Error> {
        self.ring().collect()?;
        Ok(self.ring().take())
    }

    /// Waits for an asynchronous event, at most `limit` long.
    ///
    /// # Errors
    ///
    /// As [`Self::poll`].
    pub fn wait(&self, limit: Duration) -> Result<Option<AsynchronousEvent>, Error> {
        let ring = self.ring();
        ring.wait(self.device().function.now() + limit, || ring.is_pending())?;
        Ok(ring.take())
    }

    /// Counts asynchronous events that were thrown away, oldest first, because nobody took them.
    pub fn lost(&self) -> u64 {
        self.ring().lost()
    }
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventQueue({})", self.number())
    }
}
