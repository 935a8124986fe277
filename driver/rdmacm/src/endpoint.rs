//! One side of a connection, or a listener: what an identifier of the program and the threads of its link share.
//!
//! ```text
//!   Idle ─ bind ─> Bound ─ listen ─> Listening
//!     └──────┬───────┘
//!       resolve_addr                                     peer's Request
//!            ▼                                                  ▼
//!     AddressResolved ─ resolve_route ─> RouteResolved      Requested
//!                                             │ connect         │ accept, which sends Reply
//!                                             ▼                 ▼
//!                              Reply     Connecting          Accepting
//!                                ┌────────────┘                 │
//!                                ▼                              │ Ready
//!                             Replied ─ Ready ─> Connected <────┘
//!                                                  │ disconnect, which sends Disconnect
//!                                                  ▼
//!                                            Disconnecting ─ Disconnected ─> Closed
//! ```
//!
//! 1. Every phase that waits for the peer ends in bounded time, by an event.
//! 2. Reject, the end of the link, and a message that does not belong to the phase lead to Closed from everywhere.
//! 3. An endpoint whose identifier is destroyed raises no event.

use crate::abi;
use crate::cards::Card;
use crate::channel::{Happened, Pending, Queue};
use crate::message::{Message, Terms, reason};
use crate::transport::{Link, Listener};
use rnic_stand_in::{Acknowledgements, lock};
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Where an endpoint is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    Bound,
    Listening,
    AddressResolved,
    RouteResolved,
    Connecting,
    Replied,
    Requested,
    Accepting,
    Connected,
    Disconnecting,
    Closed,
    Destroyed,
}

/// `RDMA_CM_EVENT_*`.
pub(crate) mod event {
    use std::ffi::c_int;
    pub(crate) const ADDRESS_RESOLVED: c_int = 0;
    pub(crate) const ROUTE_RESOLVED: c_int = 2;
    pub(crate) const CONNECT_REQUEST: c_int = 4;
    pub(crate) const CONNECT_RESPONSE: c_int = 5;
    pub(crate) const CONNECT_ERROR: c_int = 6;
    pub(crate) const UNREACHABLE: c_int = 7;
    pub(crate) const REJECTED: c_int = 8;
    pub(crate) const ESTABLISHED: c_int = 9;
    pub(crate) const DISCONNECTED: c_int = 10;
}

/// What the program has set by `rdma_set_option`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Settings {
    pub(crate) traffic_class: u8,
    pub(crate) ack_timeout: Option<u8>,
}

/// What changes of an endpoint.
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) queue: Arc<Queue>,
    /// Calls wait for their events.
    pub(crate) is_synchronous: bool,
    pub(crate) card: Option<&'static Card>,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    pub(crate) link: Option<Arc<dyn Link>>,
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) is_active: bool,
    pub(crate) local: Terms,
    pub(crate) remote: Terms,
    pub(crate) settings: Settings,
}

/// One side of a connection, or a listener.
pub(crate) struct Endpoint {
    /// Address of the identifier, or zero before the program has it.
    address: AtomicUsize,
    state: Mutex<State>,
    pub(crate) acks: Acknowledgements,
}

impl Endpoint {
    pub(crate) fn new(queue: Arc<Queue>, is_synchronous: bool) -> Arc<Self> {
        let state = State {
            phase: Phase::Idle,
            queue,
            is_synchronous,
            card: None,
            listener: None,
            link: None,
            destination: None,
            is_active: false,
            local: Terms::default(),
            remote: Terms::default(),
            settings: Settings::default(),
        };
        Arc::new(Self {
            address: AtomicUsize::new(0),
            state: Mutex::new(state),
            acks: Acknowledgements::default(),
        })
    }

    /// The server's side of a connection that a peer asks this listener for.
    pub(crate) fn child(&self, link: Arc<dyn Link>, remote: Terms) -> Arc<Self> {
        let (queue, settings) = {
            let state = self.state();
            (Arc::clone(&state.queue), state.settings)
        };
        let child = Self::new(queue, false);
        let mut state = child.state();
        (state.phase, state.link, state.remote, state.settings) =
            (Phase::Requested, Some(link), remote, settings);
        drop(state);
        child
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The identifier of the program, or null.
    pub(crate) fn id(&self) -> *mut abi::Id {
        self.address.load(Ordering::Acquire) as *mut abi::Id
    }

    pub(crate) fn set_id(&self, id: *mut abi::Id) {
        self.address.store(id as usize, Ordering::Release);
    }

    /// Raises an event.
    pub(crate) fn post(self: &Arc<Self>, state: &State, happened: Happened) {
        if state.phase != Phase::Destroyed {
            state.queue.push(Pending { endpoint: Arc::clone(self), happened });
        }
    }

    /// Raises an event without a connection.
    pub(crate) fn post_plain(self: &Arc<Self>, state: &State, kind: c_int, status: c_int) {
        self.post(state, Happened::Event { kind, status, terms: Terms::default() });
    }

    /// Ends the connection, with the event that says why.
    pub(crate) fn close(
        self: &Arc<Self>,
        state: &mut State,
        kind: c_int,
        status: c_int,
        private_data: Vec<u8>,
    ) {
        let terms = Terms { private_data, ..Terms::default() };
        self.post(state, Happened::Event { kind, status, terms });
        self.close_quietly(state);
    }

    /// Ends the connection, of whose end the program knows.
    pub(crate) fn close_quietly(&self, state: &mut State) {
        if state.phase != Phase::Destroyed {
            state.phase = Phase::Closed;
        }
        state.link.take().inspect(|link| link.close());
    }

    /// Ends everything: the program destroys the identifier, or it will never have one. A peer that waits for an answer is told so.
    pub(crate) fn destroy(self: &Arc<Self>, reason: u16) {
        let mut state = self.state();
        if state.phase == Phase::Requested
            && let Some(link) = &state.link
        {
            // A peer that is gone needs no answer.
            let _ = link.send(&Message::Reject { reason, private_data: Vec::new() });
        }
        state.phase = Phase::Destroyed;
        state.link.take().inspect(|link| link.close());
        state.listener.take().inspect(|listener| listener.close());
        let removed = state.queue.remove(|event| Arc::ptr_eq(&event.endpoint, self));
        drop(state);
        for Pending { happened, .. } in removed {
            if let Happened::Requested { child, .. } = happened {
                child.destroy(reason::NO_LISTENER);
            }
        }
    }

    /// Moves the events that the program has not taken to another channel.
    pub(crate) fn migrate(self: &Arc<Self>, queue: Arc<Queue>) {
        let mut state = self.state();
        let events = state.queue.remove(|event| Arc::ptr_eq(&event.endpoint, self));
        state.queue = queue;
        events.into_iter().for_each(|event| state.queue.push(event));
    }
}
