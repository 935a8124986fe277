//! An end that takes receives and offers memory, and has no peer yet.

use super::descriptor::Descriptor;
use super::error::EndpointError;
use super::exchange::{self, Deadline, Link};
use super::{Endpoint, RECEIVE};
use crate::card::Card;
use rnic_driver::state::Init;
use rnic_driver::{
    CompletionQueue, CompletionQueueOptions, ConnectOptions, Error, EventQueueOptions, ProtectionDomain,
    QueuePair, QueuePairOptions, ReceiveRequest, RemoteMemory, RemoteRights, SharedRegion,
};
use std::collections::VecDeque;
use std::fmt;
use std::net::{TcpListener, ToSocketAddrs};
use std::time::Duration;

/// Limit of the waits of an endpoint that has set none.
const LIMIT: Duration = Duration::from_secs(30);

/// What an endpoint is made of.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// What the peer may do with memory that allows it, too.
    pub rights: RemoteRights,
    /// Receives that are posted: messages that can arrive before [`Endpoint::receive`] takes one. At most the WQEs of the receive queue.
    pub receives: usize,
    /// Length of each receive: that of the longest message, in bytes.
    pub receive_bytes: usize,
    /// Sizes of the queues.
    pub queue_pair: QueuePairOptions,
    /// Number of completions.
    pub completions: CompletionQueueOptions,
    /// Interrupt vector of the completions, with an event queue of its own; `None` for the event queue of the device.
    pub vector: Option<u32>,
    /// Path, timers and retries.
    pub connect: ConnectOptions,
    /// Index of the source address: of [`Options::addresses`](crate::Options::addresses).
    pub source_index: usize,
    /// Domain whose memory the peer may access; `None` for one of its own.
    pub domain: Option<ProtectionDomain>,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            rights: RemoteRights::ALL,
            receives: 16,
            receive_bytes: 4096,
            queue_pair: QueuePairOptions::default(),
            completions: CompletionQueueOptions::default(),
            vector: None,
            connect: ConnectOptions::default(),
            source_index: 0,
            domain: None,
        }
    }
}

impl Card {
    /// Makes an end of a connection that has no peer yet, with the default options.
    ///
    /// # Errors
    ///
    /// If all objects of a kind are in use, or the card refuses one.
    pub fn endpoint(&self) -> Result<UnconnectedEndpoint, Error> {
        self.endpoint_with(EndpointOptions::default())
    }

    /// As [`Self::endpoint`], with these options.
    ///
    /// # Errors
    ///
    /// As [`Self::endpoint`], or if an option is outside the limits of the card.
    pub fn endpoint_with(&self, options: EndpointOptions) -> Result<UnconnectedEndpoint, Error> {
        let events = match options.vector {
            Some(vector) => {
                let options = EventQueueOptions { vector, ..EventQueueOptions::default() };
                self.device.create_event_queue(&options)?
            }
            None => self.device.events(),
        };
        let sleeps = events.interrupt_fd()?.is_some();
        let domain = match options.domain {
            Some(domain) => domain,
            None => self.device.create_protection_domain()?,
        };
        let completions = self.device.create_completion_queue(&events, &options.completions)?;
        let queue_pair = domain.create_queue_pair(&completions, &completions, &options.queue_pair)?;
        let mut queue_pair = queue_pair.initialize(options.rights)?;
        for _ in 0..options.receives {
            let request = ReceiveRequest::new(RECEIVE);
            let bytes = options.receive_bytes;
            let request = if bytes == 0 { request } else { request.sge(domain.allocate(bytes)?) };
            queue_pair.post_receive(request)?;
        }
        let (connect, source_index) = (options.connect, options.source_index);
        let memory = Vec::new();
        Ok(UnconnectedEndpoint { queue_pair, completions, domain, memory, connect, source_index, sleeps })
    }
}

/// One end of a connection, before it has a peer. It takes receives already, so that no message of the peer comes too early.
///
/// Both processes make one, offer memory, and call [`Self::accept`] and [`Self::connect`], which exchange what each must know of the
/// other over TCP. A program that has a channel of its own exchanges [`Self::descriptor`] there, and calls [`Self::connect_to`].
pub struct UnconnectedEndpoint {
    queue_pair: QueuePair<Init>,
    completions: CompletionQueue,
    domain: ProtectionDomain,
    /// Memory that is offered.
    memory: Vec<RemoteMemory>,
    connect: ConnectOptions,
    source_index: usize,
    sleeps: bool,
}

impl UnconnectedEndpoint {
    /// Allocates `bytes` zeroed bytes that peers can access once they know its [`SharedRegion::remote`].
    ///
    /// # Errors
    ///
    /// As [`ProtectionDomain::share`].
    pub fn share(&self, bytes: usize, rights: RemoteRights) -> Result<SharedRegion, Error> {
        self.domain.share(bytes, rights)
    }

    /// Tells the peer of this memory when the ends are connected: [`Endpoint::peer_memory`].
    pub fn offer(mut self, region: &SharedRegion) -> Self {
        self.memory.push(region.remote());
        self
    }

    /// The protection domain.
    pub fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// What the peer must know.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if the card was opened with fewer source addresses.
    pub fn descriptor(&self) -> Result<Descriptor, Error> {
        Ok(Descriptor { info: self.queue_pair.info(self.source_index)?, memory: self.memory.clone() })
    }

    /// Connects to the peer with this descriptor, which the application has carried. The peer drops what it gets before it has done the
    /// same, and this end sends that again after a while.
    ///
    /// # Errors
    ///
    /// If the card refuses.
    pub fn connect_to(self, peer: Descriptor) -> Result<Endpoint, EndpointError> {
        Ok(Endpoint {
            queue_pair: self.queue_pair.connect(&peer.info, &self.connect)?,
            completions: self.completions,
            domain: self.domain,
            peer,
            link: None,
            arrived: VecDeque::new(),
            next_wr_id: 0,
            limit: LIMIT,
            sleeps: self.sleeps,
        })
    }

    /// Waits for a peer that calls [`Self::connect`] with the address of the listener, and connects to it. One that sends something else
    /// is told why, and the call fails.
    ///
    /// # Errors
    ///
    /// If nobody connects within `limit`, what the peer sends is wrong, the peer refuses or dies, or the card refuses.
    pub fn accept(self, listener: &TcpListener, limit: Duration) -> Result<Endpoint, EndpointError> {
        let deadline = Deadline::after(limit);
        self.over(exchange::accept(listener, deadline)?, deadline)
    }

    /// Connects to the peer that calls [`Self::accept`] with a listener at this address. It need not listen yet.
    ///
    /// # Errors
    ///
    /// If nobody listens there within `limit`, what the peer sends is wrong, the peer refuses or dies, or the card refuses.
    pub fn connect(self, address: impl ToSocketAddrs, limit: Duration) -> Result<Endpoint, EndpointError> {
        let deadline = Deadline::after(limit);
        self.over(exchange::connect(address, deadline)?, deadline)
    }

    /// Exchanges descriptors, connects, and waits until the peer has done so.
    fn over(self, mut link: Link, deadline: Deadline) -> Result<Endpoint, EndpointError> {
        let peer = link.exchange(&self.descriptor()?, deadline)?;
        match self.connect_to(peer) {
            Ok(mut endpoint) => {
                link.ready(deadline)?;
                endpoint.link = Some(link);
                Ok(endpoint)
            }
            Err(error) => {
                link.refuse(&error, deadline);
                Err(error)
            }
        }
    }
}

impl fmt::Debug for UnconnectedEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnconnectedEndpoint").field("queue_pair", &self.queue_pair).finish_non_exhaustive()
    }
}
