//! Event queues in memory: reads EQEs, and delivers each to the completion queue or the list of asynchronous events that it
//! concerns.

use crate::doorbell::Doorbells;
use crate::error::Error;
use crate::function::Function;
use crate::interrupts::Interrupts;
use crate::mapping::Mapping;
use crate::memory::Purpose;
use crate::ring::PhaseRing;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, lock};
use rnic_layout::field::FieldError;
use rnic_layout::queue::event::{AsyncEvent, Eqe, EventKind};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Size of an EQE in bytes.
const EQE_BYTES: usize = Eqe::BYTES;
/// Width of the free-running index in bits.
const INDEX_BITS: u32 = 24;
/// Longest wait for one interrupt. What a thread waits for may come without one, for example a completion that another
/// thread has read, so a waiting thread looks this often.
const INTERRUPT_WAIT_MAX: Duration = Duration::from_millis(1);

/// Asynchronous event of an object, the port or the device (protocol 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsynchronousEvent {
    /// Kind of event.
    pub code: AsyncEvent,
    /// QPN of a queue pair, or number of another object; zero for events of the port and the device.
    pub object_number: u32,
    /// Detail; its meaning depends on `code`.
    pub detail: u32,
}

/// State that the events of a completion queue set.
#[derive(Debug, Default)]
pub(crate) struct CompletionSignal {
    /// Number of events that have arrived. Each thread compares it with an earlier value of its own, so that none takes the
    /// event of another.
    pub(crate) events: AtomicU64,
    /// The card has reported that the queue has overrun, or that a CQE could not be written.
    pub(crate) failed: AtomicBool,
}

/// State that the event `last_wqe_reached` of a queue pair with an SRQ sets.
#[derive(Debug, Default)]
pub(crate) struct LastReceive {
    /// The event has arrived: the queue pair has given back all receives that it has taken from the SRQ.
    pub(crate) is_reached: AtomicBool,
    /// The driver ends the queue pair, and waits for the event itself; the application does not get it.
    pub(crate) is_ending: AtomicBool,
}

/// Signals of all completion queues and of all queue pairs with an SRQ, by number. All event queues of a card share it: the
/// failure of any completion queue may be reported on event queue 0. They also share the threads that wait, as event queues may
/// share an interrupt vector.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    signals: Mutex<HashMap<u32, Weak<CompletionSignal>>>,
    last_receives: Mutex<HashMap<u32, Weak<LastReceive>>>,
    interrupts: Interrupts,
}

impl Routes {
    /// Routes the events of a completion queue to its signal.
    pub(crate) fn add(&self, completion_queue: u32, signal: &Arc<CompletionSignal>) {
        lock(&self.signals).insert(completion_queue, Arc::downgrade(signal));
    }

    /// Removes the route of a completion queue.
    pub(crate) fn remove(&self, completion_queue: u32) {
        lock(&self.signals).remove(&completion_queue);
    }

    /// Routes the event `last_wqe_reached` of a queue pair.
    pub(crate) fn add_last_receive(&self, qp_number: u32, last: &Arc<LastReceive>) {
        lock(&self.last_receives).insert(qp_number, Arc::downgrade(last));
    }

    /// Removes that route.
    pub(crate) fn remove_last_receive(&self, qp_number: u32) {
        lock(&self.last_receives).remove(&qp_number);
    }

    /// Notes that a queue pair has given back its receives. Returns whether the driver itself waits for that.
    fn reach_last_receive(&self, qp_number: u32) -> bool {
        let last = lock(&self.last_receives).get(&qp_number).and_then(Weak::upgrade);
        last.is_some_and(|last| {
            last.is_reached.store(true, Ordering::Release);
            last.is_ending.load(Ordering::Acquire)
        })
    }

    /// Signals all completion queues, because the one that was meant is unknown.
    fn signal_all(&self) {
        for signal in lock(&self.signals).values().filter_map(Weak::upgrade) {
            signal.events.fetch_add(1, Ordering::Release);
        }
    }

    fn signal(&self, completion_queue: u32, set: impl FnOnce(&CompletionSignal)) {
        let signal = lock(&self.signals).get(&completion_queue).and_then(Weak::upgrade);
        if let Some(signal) = signal {
            set(&signal);
        }
    }
}

/// Driver's side of an event queue.
pub(crate) struct EventRing {
    function: Arc<dyn Function>,
    doorbells: Doorbells,
    number: u32,
    vector: u32,
    memory: Mapping,
    /// The ring as it was created.
    empty: PhaseRing,
    /// Consumer index of the ring.
    index: AtomicU32,
    state: Mutex<State>,
    /// Number of times that EQEs were delivered.
    deliveries: AtomicU64,
    routes: Arc<Routes>,
}

struct State {
    ring: PhaseRing,
    /// Asynchronous events that were read from the ring and not polled yet, oldest first; at most `limit`.
    pending: VecDeque<AsynchronousEvent>,
    /// Number of EQEs of the ring.
    limit: usize,
    /// Number of asynchronous events that were discarded because `pending` was full, and of events that the card could not
    /// write.
    lost: u64,
    /// Number of events that the card could not write and that no call has reported yet.
    unreported: u64,
    /// Number of illegal EQEs that no call has reported yet, and the fault of the first of them.
    illegal: Option<(u64, FieldError)>,
}

impl State {
    fn push(&mut self, event: AsynchronousEvent) {
        if self.pending.len() == self.limit {
            self.pending.pop_front();
            self.lost += 1;
        }
        self.pending.push_back(event);
    }
}

impl EventRing {
    /// Interrupt vector of the queue; `None` if the back end does not deliver it.
    pub(crate) fn delivered_vector(&self) -> Option<u32> {
        (self.vector < self.function.interrupt_vectors()).then_some(self.vector)
    }

    /// Allocates the ring of event queue `number`, with 2^`entries_log2` EQEs and interrupt `vector`.
    pub(crate) fn new(
        function: &Arc<dyn Function>,
        doorbells: Doorbells,
        number: u32,
        vector: u32,
        entries_log2: u32,
        routes: &Arc<Routes>,
    ) -> Result<Self, Error> {
        let memory = Mapping::new(function, EQE_BYTES << entries_log2, Purpose::Ring)?;
        let empty = PhaseRing::new(entries_log2, INDEX_BITS);
        let state = State {
            ring: empty,
            pending: VecDeque::new(),
            limit: 1 << entries_log2,
            lost: 0,
            unreported: 0,
            illegal: None,
        };
        Ok(Self {
            function: Arc::clone(function),
            doorbells,
            number,
            vector,
            memory,
            empty,
            index: AtomicU32::new(0),
            state: Mutex::new(state),
            deliveries: AtomicU64::new(0),
            routes: Arc::clone(routes),
        })
    }

    /// Number of the event queue on the card.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Memory of the ring.
    pub(crate) fn memory(&self) -> Mapping {
        self.memory.share()
    }

    /// As [`Self::collect`], but takes no lock if the card has written no EQE. One that another thread is reading may not be
    /// delivered yet.
    pub(crate) fn collect_if_any(&self) {
        let ring = self.empty.at(self.index.load(Ordering::Acquire));
        if ring.peek::<EQE_BYTES>(&self.memory.words()).is_some() {
            self.collect();
        }
    }

    /// Reads and delivers all EQEs that the card has written. An illegal one is counted for [`Self::check`], and hinders
    /// neither the others nor the caller, which may have asked for something else.
    pub(crate) fn collect(&self) {
        let state = &mut *lock(&self.state);
        let before = state.ring.consumer_index();
        while let Some(eqe) = state.ring.next::<EQE_BYTES>(&self.memory.words()) {
            match Eqe::parse(&eqe) {
                Ok(event) => self.deliver(state, event),
                Err(error) => {
                    state.illegal.get_or_insert((0, error)).0 += 1;
                    self.routes.signal_all();
                }
            }
        }
        if state.ring.consumer_index() != before {
            self.index.store(state.ring.consumer_index(), Ordering::Release);
            self.ring_doorbell(state, false);
            self.deliveries.fetch_add(1, Ordering::Release);
            self.routes.interrupts.wake();
        }
    }

    fn deliver(&self, state: &mut State, event: Eqe) {
        let Eqe { kind, code, object_number, detail, .. } = event;
        match kind {
            EventKind::Completion => {
                self.routes.signal(object_number, |signal| {
                    signal.events.fetch_add(1, Ordering::Release);
                });
            }
            EventKind::Asynchronous => {
                if code == AsyncEvent::CompletionQueueError {
                    self.routes.signal(object_number, |signal| {
                        signal.failed.store(true, Ordering::Release);
                        signal.events.fetch_add(1, Ordering::Release);
                    });
                }
                let is_last = code == AsyncEvent::LastWqeReached;
                if !(is_last && self.routes.reach_last_receive(object_number)) {
                    state.push(AsynchronousEvent { code, object_number, detail });
                }
            }
            // The admin queue polls its answer ring.
            EventKind::AdminAnswer => {}
            // The failure of a completion queue may be among them.
            EventKind::EventsLost => {
                state.lost += u64::from(detail);
                state.unreported += u64::from(detail);
                self.routes.signal_all();
            }
        }
    }

    /// Fails once if illegal EQEs were read since the last call.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match lock(&self.state).illegal.take() {
            Some((count, error)) => Err(Error::IllegalEvents { number: self.number, count, error }),
            None => Ok(()),
        }
    }

    fn ring_doorbell(&self, state: &State, arm: bool) {
        self.doorbells.event(self.number, arm, state.ring.consumer_index());
    }

    /// Requests one interrupt, for the next EQE, or at once if one is there that was not read.
    pub(crate) fn arm(&self) {
        self.ring_doorbell(&lock(&self.state), true);
    }

    /// Delivers events until `done` returns true or the clock reaches `until`. Returns whether `done` did.
    pub(crate) fn wait(&self, until: Duration, done: impl Fn() -> bool) -> Result<bool, Error> {
        loop {
            self.collect();
            let deliveries = self.deliveries.load(Ordering::Acquire);
            self.check()?;
            if done() {
                return Ok(true);
            }
            let now = self.function.now();
            if now >= until {
                return Ok(false);
            }
            if self.vector < self.function.interrupt_vectors() {
                let interrupts = &self.routes.interrupts;
                let ended = interrupts.ended(self.vector);
                // EQEs written since `collect` raise the interrupt at once, and those that another thread has delivered
                // since then end the wait, so none is missed.
                self.arm();
                let is_stale = || self.deliveries.load(Ordering::Acquire) != deliveries;
                let until = until.min(now.saturating_add(INTERRUPT_WAIT_MAX));
                interrupts.wait(&*self.function, self.vector, ended, until, is_stale)?;
            } else {
                self.function.idle();
            }
        }
    }

    /// Takes the oldest asynchronous event that was read. Fails once if the card has lost events since the last call.
    pub(crate) fn take(&self) -> Result<Option<AsynchronousEvent>, Error> {
        let state = &mut *lock(&self.state);
        match std::mem::take(&mut state.unreported) {
            0 => Ok(state.pending.pop_front()),
            count => Err(Error::EventsLost { number: self.number, count }),
        }
    }

    /// Number of asynchronous events that were discarded, by the driver or by the card.
    pub(crate) fn lost(&self) -> u64 {
        lock(&self.state).lost
    }

    /// Returns whether [`Self::take`] would return an event or an error.
    pub(crate) fn is_pending(&self) -> bool {
        let state = lock(&self.state);
        !state.pending.is_empty() || state.unreported != 0
    }
}
