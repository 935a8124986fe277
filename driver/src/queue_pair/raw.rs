//! Queue pairs without types: what a library with the interface of the verbs builds on.
//!
//! | | [`QueuePair`](crate::QueuePair) | [`raw::QueuePair`](QueuePair) |
//! |---|---|---|
//! | state | in the type | a value; each transition is checked with the attribute mask that it carries |
//! | memory of a request | moves into it, and returns with the completion | stays where it is: parts of [`SharedRegion`]s, and of [`Buffer`]s of the application |
//! | unsignalled send | completes with the next signalled one | completes only if it fails |
//! | CQEs | every request reserves one | receives and signalled sends reserve one |
//! | send that the driver has signalled, so that a full queue goes on | completes as any other | invisible |
//! | reset, destruction | what is in flight completes as flushed | what is in flight is discarded |
//!
//! Both are two views of the same rings and tables. Completions come from the same [`CompletionQueue`](crate::CompletionQueue).
//!
//! An unsignalled send that fails or is flushed writes a CQE that nobody has reserved. As in the verbs, a completion queue has
//! room for that if it has as many CQEs as the work queues have slots; otherwise it may overrun, which is an error of the queue.
//!
//! ```
//! use rnic_driver::{Error, QueuePair, SharedRegion, raw, state::Reset};
//! use rnic_layout::admin::ModifyQueuePair;
//! use rnic_layout::state::{AttributeMask, QpState};
//!
//! fn receive(queue_pair: QueuePair<Reset>, memory: &SharedRegion) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut queue_pair = raw::QueuePair::from(queue_pair);
//!     let mask = [AttributeMask::PARTITION, AttributeMask::PORT, AttributeMask::ACCESS];
//!     let mask = mask.into_iter().fold(AttributeMask::STATE, AttributeMask::and);
//!     let next_state = QpState::Init;
//!     let attributes = ModifyQueuePair { next_state, port: 1, partition_key: 0xffff, ..ModifyQueuePair::at_reset() };
//!     queue_pair.modify(mask, &attributes)?;
//!     queue_pair.post_receive(&[raw::ReceiveRequest { wr_id: 7, sges: &[memory.sge(0, 64)?] }])?;
//!     Ok(())
//! }
//! ```
//!
//! [`SharedRegion`]: crate::SharedRegion

use super::halves::Halves;
use super::lifecycle;
use super::state::Reset;
use crate::error::Error;
use crate::post_error::Refusal;
pub use crate::raw_region::{Access, Region};
pub use crate::sge::Sge;
use crate::sync::lock;
pub use crate::user_memory::Buffer;
use crate::work_request::{Operation, SendWork};
use rnic_layout::admin::ModifyQueuePair;
use rnic_layout::state::{AttributeMask, Posting, QpState, Service, check_transition};
use std::fmt;

/// A send: `ibv_send_wr`.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Identifier that the application chooses; the completion reports it.
    pub wr_id: u64,
    /// Operation, with its parameters.
    pub operation: Operation,
    /// Memory of the payload, in order; for READs and atomics, memory that the response fills.
    pub sges: &'a [Sge],
    /// Payload that is copied into the WQE, in place of `sges`.
    pub inline: Option<&'a [u8]>,
    /// The send completes if it succeeds too.
    pub signalled: bool,
    /// Requests a solicited event at the peer.
    pub solicited: bool,
    /// Begins after all earlier READs and atomics of the queue have completed.
    pub fence: bool,
}

impl<'a> SendRequest<'a> {
    /// Creates an unsignalled request without flags.
    pub fn new(wr_id: u64, operation: Operation, sges: &'a [Sge]) -> Self {
        Self { wr_id, operation, sges, inline: None, signalled: false, solicited: false, fence: false }
    }

    /// The request as it is checked and encoded.
    fn work(&self) -> SendWork<'a> {
        let Self { operation, sges, inline, solicited, fence, .. } = *self;
        let length = match inline {
            Some(bytes) => bytes.len(),
            None => sges.iter().map(|sge| sge.length() as usize).sum(),
        };
        SendWork { operation, sges, inline, length, solicited, fence }
    }
}

/// A receive: `ibv_recv_wr`.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest<'a> {
    /// Identifier that the application chooses; the completion reports it.
    pub wr_id: u64,
    /// Memory that the message is scattered to, in order.
    pub sges: &'a [Sge],
}

/// The first request of a list that was not posted: `bad_wr`. Those before it were posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {index} of the list: {reason}")]
pub struct BadRequest {
    /// Its place in the list.
    pub index: usize,
    /// Reason of the refusal.
    pub reason: Refusal,
}

/// Reliable connected queue pair whose state is a value. Dropping it destroys it.
pub struct QueuePair(Halves);

impl From<lifecycle::QueuePair<Reset>> for QueuePair {
    fn from(queue_pair: lifecycle::QueuePair<Reset>) -> Self {
        Self(*queue_pair.halves)
    }
}

impl QueuePair {
    /// Returns the queue pair number.
    pub fn number(&self) -> u32 {
        self.0.send.number()
    }

    /// State after the last transition. The card may have moved the queue pair to the error state since.
    pub fn state(&self) -> QpState {
        *lock(&self.0.send.life.state)
    }

    /// Sets the attributes of `mask`, and moves the queue pair to [`ModifyQueuePair::next_state`] if the mask has
    /// [`AttributeMask::STATE`]: `ibv_modify_qp`. The field `mask` of `attributes` has no effect. If the path of the address handle
    /// has no flow label, the driver makes another handle with one for the time of the command.
    ///
    /// # Errors
    ///
    /// [`Error::Transition`] if the states have no such transition, or it lacks an attribute or carries one too many; the card is
    /// not asked then, nor with [`Error::Option`] for an attribute that is not allowed. [`Error::Command`] if the card refuses, for example because the queue pair has failed by itself.
    pub fn modify(&mut self, mask: AttributeMask, attributes: &ModifyQueuePair) -> Result<(), Error> {
        let from = self.state();
        let to = if mask.contains(AttributeMask::STATE) { attributes.next_state } else { from };
        check_transition(Service::ReliableConnected, from, to, mask).map_err(Error::Transition)?;
        let is_reset = mask.contains(AttributeMask::STATE) && to == QpState::Reset;
        if is_reset {
            self.0.send.life.give_back_receives();
        }
        self.0.send.life.modify(mask, *attributes)?;
        if mask.contains(AttributeMask::READ_ATOMIC) {
            self.0.send.read_atomic = attributes.read_atomic;
        }
        if is_reset {
            self.0.begin_again();
        }
        Ok(())
    }

    /// Queries the attributes, and the state that the card has: `ibv_query_qp`.
    ///
    /// # Errors
    ///
    /// If the card cannot execute the command, because it has failed or was removed, or no DMA memory is left.
    pub fn query(&self) -> Result<ModifyQueuePair, Error> {
        self.0.send.life.query()
    }

    /// Posts sends with one doorbell: `ibv_post_send`.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first one that was not posted.
    pub fn post_send(&mut self, requests: &[SendRequest<'_>]) -> Result<(), BadRequest> {
        let permission = self.state().permissions().post_send;
        let mut batch = self.0.send.batch();
        for (index, request) in requests.iter().enumerate() {
            let SendRequest { wr_id, signalled, .. } = *request;
            let posted = permit(permission).and_then(|()| batch.post_work(wr_id, &request.work(), signalled));
            posted.map_err(|reason| BadRequest { index, reason })?;
        }
        Ok(())
    }

    /// Checks that sends would be posted, all of them, as far as the send queue decides: a completion queue may still be full.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first one that would be refused.
    pub fn check_sends<'a>(
        &mut self,
        requests: impl Iterator<Item = SendRequest<'a>>,
    ) -> Result<(), BadRequest> {
        let permission = self.state().permissions().post_send;
        let mut needed = 0;
        for (index, request) in requests.enumerate() {
            let fits = permit(permission).and_then(|()| self.0.send.check_room(&request.work(), needed));
            needed = fits.map_err(|reason| BadRequest { index, reason })?;
        }
        Ok(())
    }

    /// Posts receives with one doorbell: `ibv_post_recv`.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first one that was not posted.
    pub fn post_receive(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<(), BadRequest> {
        let permission = self.state().permissions().post_receive;
        let mut batch = self.0.receive.batch();
        for (index, &ReceiveRequest { wr_id, sges }) in requests.iter().enumerate() {
            let posted = permit(permission).and_then(|()| batch.post_work(wr_id, sges));
            posted.map_err(|reason| BadRequest { index, reason })?;
        }
        Ok(())
    }
}

/// Shared receive queue whose receives leave their memory where it is. Clones are cheap and refer to the same queue.
///
/// It is destroyed with the last of them and of the queue pairs that use it; receives that are posted then are discarded.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue(crate::SharedReceiveQueue);

impl From<crate::SharedReceiveQueue> for SharedReceiveQueue {
    fn from(queue: crate::SharedReceiveQueue) -> Self {
        Self(queue)
    }
}

impl SharedReceiveQueue {
    /// The same queue with types, which queue pairs are created with.
    pub fn typed(&self) -> &crate::SharedReceiveQueue {
        &self.0
    }

    /// Posts receives with one doorbell: `ibv_post_srq_recv`.
    ///
    /// # Errors
    ///
    /// [`BadRequest`] names the first one that was not posted.
    pub fn post_receive(&self, requests: &[ReceiveRequest<'_>]) -> Result<(), BadRequest> {
        let works = requests.iter().map(|request| (request.wr_id, request.sges));
        self.0.shared.post_works(works).map_err(|(index, reason)| BadRequest { index, reason })
    }
}

fn permit(posting: Posting) -> Result<(), Refusal> {
    if posting == Posting::Refused { Err(Refusal::NotInThisState) } else { Ok(()) }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({:#x}, {})", self.number(), self.state().name())
    }
}
