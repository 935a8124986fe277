//! Endpoints: a queue pair that is connected to one of a peer, with its completion queue and memory.
//!
//! | module | content |
//! |---|---|
//! | `descriptor` | what a peer must know, and its bytes |
//! | `exchange` | the exchange of descriptors over TCP, in bounded time |
//! | `unconnected` | an end that takes receives and offers memory, and has no peer yet |
//! | `error` | why endpoints fail |

mod descriptor;
mod error;

mod exchange;

mod unconnected;

pub use descriptor::{Descriptor, DescriptorError, REGIONS_MAX};
pub use error::EndpointError;
pub use exchange::ExchangeError;
pub use unconnected::{EndpointOptions, UnconnectedEndpoint};

use crate::card::Card;
use exchange::{Link, Presence};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Completion, CompletionQueue, Error, ProtectionDomain, QueuePair, ReceiveRequest, Region, RemoteMemory,
    RemoteRights, SendRequest, SharedRegion,
};
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// `wr_id` of all receives. Sends count from 0.
const RECEIVE: u64 = u64::MAX;
/// Polls between two looks at the clock.
const POLLS: usize = 64;
/// Longest sleep between two looks at the clock and at the peer.
const SLEEP: Duration = Duration::from_millis(10);
/// Time that completions have to arrive after the peer has left: its last message may be on the way through the card.
const GRACE: Duration = Duration::from_secs(2);
/// What [`Endpoint::receive`] waits for.
const MESSAGE: &str = "a message";

/// One end of a connection. Its calls carry out one operation each, wait for the end of it, and copy; [`Self::into_parts`] gives the
/// queue pair away for more in flight, without copies, and in several threads.
///
/// Messages go to receives that the endpoint posts itself, [`EndpointOptions::receives`] of them. A peer that sends more before
/// [`Self::receive`] takes some waits for that.
pub struct Endpoint {
    queue_pair: QueuePair<ReadyToSend>,
    completions: CompletionQueue,
    domain: ProtectionDomain,
    peer: Descriptor,
    /// Connection to the process of the peer, unless both ends are in this one.
    link: Option<Link>,
    /// Receives that completed while something else was waited for.
    arrived: VecDeque<Completion>,
    next_wr_id: u64,
    limit: Duration,
    /// The card interrupts a sleep; otherwise it needs to be polled.
    sleeps: bool,
}

impl Endpoint {
    /// Connects two ends in this process, of one card whose wire is in loopback or of two cards on one wire.
    ///
    /// # Errors
    ///
    /// If a card refuses an object, or a transition.
    pub fn pair(first: &Card, second: &Card) -> Result<[Self; 2], EndpointError> {
        Self::pair_of(first.endpoint()?, second.endpoint()?)
    }

    /// As [`Self::pair`], of ends that have options of their own.
    ///
    /// # Errors
    ///
    /// As [`Self::pair`].
    pub fn pair_of(
        first: UnconnectedEndpoint,
        second: UnconnectedEndpoint,
    ) -> Result<[Self; 2], EndpointError> {
        let (of_first, of_second) = (first.descriptor()?, second.descriptor()?);
        Ok([first.connect_to(of_second)?, second.connect_to(of_first)?])
    }

    /// Longest time that a call waits, on the clock of this machine, whatever the clock of the card says. 30 s unless it is set.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Memory that the peer has offered, in the order in which it did.
    pub fn peer_memory(&self) -> &[RemoteMemory] {
        &self.peer.memory
    }

    /// Allocates `bytes` zeroed bytes that peers can access, once they know its [`SharedRegion::remote`]: by
    /// [`UnconnectedEndpoint::offer`] or in a message.
    ///
    /// # Errors
    ///
    /// As [`ProtectionDomain::share`].
    pub fn share(&self, bytes: usize, rights: RemoteRights) -> Result<SharedRegion, Error> {
        self.domain.share(bytes, rights)
    }

    /// Writes bytes to the beginning of memory of the peer, and waits until its card has acknowledged them.
    ///
    /// # Errors
    ///
    /// If the memory is shorter, the peer refuses, or it does not answer in time.
    pub fn write(&mut self, target: RemoteMemory, bytes: &[u8]) -> Result<(), EndpointError> {
        self.carry_out(SendRequest::write(0, target), Payload::Bytes(bytes)).map(drop)
    }

    /// Reads all of this memory of the peer.
    ///
    /// # Errors
    ///
    /// If the peer refuses, or does not answer in time.
    pub fn read(&mut self, source: RemoteMemory) -> Result<Vec<u8>, EndpointError> {
        let room = usize::try_from(source.bytes).unwrap_or(usize::MAX);
        let done = self.carry_out(SendRequest::read(0, source), Payload::Room(room))?;
        Ok(done.sg_list.first().map_or(Vec::new(), |region| region.bytes().to_vec()))
    }

    /// Adds to a number of 8 bytes at the beginning of memory of the peer, at once, and returns what it was. The card keeps it little
    /// endian.
    ///
    /// # Errors
    ///
    /// If the address is no multiple of 8, the peer refuses, or it does not answer in time.
    pub fn fetch_add(&mut self, target: RemoteMemory, add: u64) -> Result<u64, EndpointError> {
        let done = self.carry_out(SendRequest::fetch_add(0, target, add), Payload::Room(8))?;
        Ok(done.original().unwrap_or_default())
    }

    /// Sends a message, and waits until the card of the peer has acknowledged it. The peer gets it by [`Self::receive`].
    ///
    /// # Errors
    ///
    /// If the message is longer than [`EndpointOptions::receive_bytes`] of the peer, or the peer does not answer in time.
    pub fn send(&mut self, message: &[u8]) -> Result<(), EndpointError> {
        self.carry_out(SendRequest::send(0), Payload::Bytes(message)).map(drop)
    }

    /// Waits for the next message of the peer.
    ///
    /// # Errors
    ///
    /// If none arrives in time, the peer has left, or the connection has failed.
    pub fn receive(&mut self) -> Result<Vec<u8>, EndpointError> {
        let completion = match self.arrived.pop_front() {
            Some(completion) => completion,
            None => self.wait(MESSAGE, |completion| completion.wr_id == RECEIVE)?,
        };
        completion.check()?;
        let message = completion.message();
        self.queue_pair.post_receive(ReceiveRequest { wr_id: RECEIVE, sg_list: completion.sg_list })?;
        Ok(message)
    }

    /// Ends the connection in order: tells the process of the peer that nothing more comes, and waits until it says the same, so that no
    /// card is reset while the other one still waits for an acknowledgement. Both ends call it. Of two ends in one process it does
    /// nothing.
    ///
    /// # Errors
    ///
    /// If the peer does not say so in time. The connection is ended nevertheless.
    pub fn finish(mut self) -> Result<(), EndpointError> {
        match self.link.take() {
            Some(mut link) => Ok(link.finish(self.limit)?),
            None => Ok(()),
        }
    }

    /// Gives away what the endpoint is made of. Its receives are posted, with the `wr_id` [`u64::MAX`].
    pub fn into_parts(self) -> (QueuePair<ReadyToSend>, CompletionQueue, ProtectionDomain) {
        (self.queue_pair, self.completions, self.domain)
    }

    /// Posts a request with payload, and waits for its success.
    fn carry_out(
        &mut self,
        mut request: SendRequest,
        payload: Payload<'_>,
    ) -> Result<Completion, EndpointError> {
        let wr_id = self.next_wr_id;
        self.next_wr_id += 1;
        request.wr_id = wr_id;
        self.queue_pair.post_send(payload.of(&self.domain, request.signalled())?)?;
        let done = self.wait("a completion", |completion| completion.wr_id == wr_id)?;
        done.check()?;
        Ok(done)
    }

    /// Returns whether this cannot come from the peer any more, but for what is on the way. A peer that is done sends no message, and its
    /// card still answers requests.
    fn has_left(&self, what: &str) -> bool {
        match self.link.as_ref().map_or(Presence::There, Link::presence) {
            Presence::There => false,
            Presence::Done => what == MESSAGE,
            Presence::Gone => true,
        }
    }

    /// Waits for a completion. Receives that come first are kept; sends whose wait has timed out are dropped.
    fn wait(
        &mut self,
        what: &'static str,
        is_it: impl Fn(&Completion) -> bool,
    ) -> Result<Completion, EndpointError> {
        let began = Instant::now();
        let mut left = None;
        loop {
            for _ in 0..POLLS {
                match self.completions.poll_one()? {
                    Some(completion) if is_it(&completion) => return Ok(completion),
                    Some(completion) if completion.wr_id == RECEIVE => self.arrived.push_back(completion),
                    _ => {}
                }
            }
            if began.elapsed() >= self.limit {
                return Err(EndpointError::NoCompletion { what, limit: self.limit });
            }
            if left.is_none() && self.has_left(what) {
                left = Some(Instant::now());
            }
            if left.is_some_and(|left| left.elapsed() >= GRACE) {
                return Err(EndpointError::PeerLeft { what });
            }
            if self.sleeps {
                self.completions.wait(SLEEP)?;
            }
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("queue_pair", &self.queue_pair).field("peer", &self.peer).finish()
    }
}

/// Payload of one operation.
#[derive(Clone, Copy)]
enum Payload<'a> {
    /// Bytes that are sent.
    Bytes(&'a [u8]),
    /// Bytes that the response fills.
    Room(usize),
}

impl Payload<'_> {
    /// Adds the payload to a request: inline if it is that short, else as a region.
    fn of(self, domain: &ProtectionDomain, request: SendRequest) -> Result<SendRequest, Error> {
        match self {
            Self::Bytes([]) | Self::Room(0) => Ok(request),
            Self::Bytes(bytes) if bytes.len() <= INLINE => Ok(request.inline(bytes)),
            Self::Bytes(bytes) => Ok(request.sge(region_of(domain, bytes)?)),
            Self::Room(bytes) => Ok(request.sge(domain.allocate(bytes)?)),
        }
    }
}

/// Longest inline payload, which every card takes in one slot of a queue.
const INLINE: usize = 32;

/// A region with these bytes.
fn region_of(domain: &ProtectionDomain, bytes: &[u8]) -> Result<Region, Error> {
    let mut region = domain.allocate(bytes.len())?;
    region.bytes_mut().copy_from_slice(bytes);
    Ok(region)
}
