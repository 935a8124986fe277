//! Queue pairs: their transitions, and their destruction.

use super::connection_info::ConnectionInfo;
use super::halves::{Halves, ReceiveHalf, SendHalf};
use super::life::Life;
use super::options::{ConnectOptions, ReceiveOptions, SendOptions};
use super::state::{self, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, State};
use crate::address_handle::AddressHandle;
use crate::device::DeviceShared;
use crate::encoding::path_mtu;
use crate::error::{Error, check_option};
use crate::path::Path;
use crate::remote_memory::RemoteRights;
use crate::sync::lock;
use rand::Rng;
use rnic_layout::admin::ModifyQueuePair;
use rnic_layout::limits::QPN_BITS;
use rnic_layout::state::{AttributeMask, QpState, Service, transition};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Reliable connected queue pair in state `S`. Dropping it destroys it; posted requests that are not done complete as
/// flushed, and so does a receive that it has taken from an SRQ.
pub struct QueuePair<S: State> {
    pub(super) halves: Box<Halves>,
    state: PhantomData<S>,
}

/// Transition that was refused. The state of the queue pair is unchanged.
pub struct TransitionError<S: State> {
    /// Reason of the refusal.
    pub error: Error,
    /// The queue pair.
    pub queue_pair: QueuePair<S>,
}

impl<S: State> fmt::Debug for TransitionError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TransitionError").field(&self.error).finish()
    }
}

impl<S: State> fmt::Display for TransitionError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<S: State> std::error::Error for TransitionError<S> {}

impl<S: State> From<TransitionError<S>> for Error {
    fn from(refused: TransitionError<S>) -> Self {
        refused.error
    }
}

impl<S: State> QueuePair<S> {
    /// Puts a queue pair together.
    pub(super) fn of_halves(halves: Box<Halves>) -> Self {
        Self { halves, state: PhantomData }
    }

    fn life(&self) -> &Life {
        &self.halves.send.life
    }

    fn device(&self) -> &DeviceShared {
        &self.life().domain.device
    }

    /// Executes the transition to `T` with its required attributes, which `fill` sets.
    fn modify<T: State>(
        self,
        fill: impl FnOnce(&mut ModifyQueuePair),
    ) -> Result<QueuePair<T>, TransitionError<S>> {
        self.modify_with(AttributeMask::NONE, fill)
    }

    /// Executes the transition to `T` with its required and these optional attributes, which `fill` sets.
    fn modify_with<T: State>(
        self,
        optional: AttributeMask,
        fill: impl FnOnce(&mut ModifyQueuePair),
    ) -> Result<QueuePair<T>, TransitionError<S>> {
        let row = transition(Service::ReliableConnected, S::STATE, T::STATE);
        let mask = row.map_or(AttributeMask::NONE, |row| row.required).and(optional);
        let mut body = ModifyQueuePair { next_state: T::STATE, ..ModifyQueuePair::at_reset() };
        fill(&mut body);
        match self.life().modify(mask.and(AttributeMask::STATE), body) {
            Ok(()) => Ok(QueuePair::of_halves(self.halves)),
            Err(error) => Err(TransitionError { error, queue_pair: self }),
        }
    }

    /// Returns the queue pair number.
    pub fn number(&self) -> u32 {
        self.life().number.qp_number
    }

    /// Parameters of this end of the connection, for the peer, with the source address of this index.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if the card was opened with fewer source addresses.
    pub fn info(&self, index: usize) -> Result<ConnectionInfo, Error> {
        let device = self.device();
        let addresses = device.options.source_addresses();
        let gid = addresses.get(index).copied().ok_or(Error::Option {
            name: "source address index",
            value: index as u64,
            min: 0,
            max: addresses.len() as u64 - 1,
        })?;
        Ok(ConnectionInfo {
            qp_number: self.number(),
            first_psn: self.life().first_psn.load(Ordering::Relaxed),
            gid,
            mac: device.options.mac,
            path_mtu: device.options.active_mtu,
        })
    }

    /// Number of requests that are posted and have not completed: sends, and receives of the own receive queue.
    pub fn in_flight(&self) -> (usize, usize) {
        (self.halves.send.in_flight(), self.halves.receive.in_flight())
    }

    /// Moves the queue pair to the error state. All posted requests complete as flushed, in order.
    ///
    /// # Errors
    ///
    /// If the card cannot execute the command, because it has failed or was removed.
    pub fn fail(self) -> Result<QueuePair<state::Error>, TransitionError<S>> {
        self.modify(|_| {})
    }

    /// Moves the queue pair to RESET. Posted requests that are not done complete as flushed, and so does a receive that it has
    /// taken from an SRQ; the first PSN is drawn again.
    ///
    /// # Errors
    ///
    /// If the card cannot execute the command, because it has failed or was removed.
    pub fn reset(self) -> Result<QueuePair<Reset>, TransitionError<S>> {
        self.life().give_back_receives();
        let mut queue_pair = self.modify::<Reset>(|_| {})?;
        queue_pair.halves.begin_again();
        let first_psn = random_psn(&mut lock(&queue_pair.device().ids).rng);
        queue_pair.life().first_psn.store(first_psn, Ordering::Relaxed);
        Ok(queue_pair)
    }
}

/// Draws a first PSN of 24 bits.
pub(super) fn random_psn(rng: &mut impl Rng) -> u32 {
    rng.random::<u32>() >> (32 - QPN_BITS)
}

impl QueuePair<Reset> {
    /// Moves the queue pair to INIT. `rights` are the operations that the peer may execute, each only on regions that allow it
    /// too.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] returns the queue pair if the card refuses.
    pub fn initialize(self, rights: RemoteRights) -> Result<QueuePair<Init>, TransitionError<Reset>> {
        self.modify(|body| {
            body.local_write = true;
            body.remote_write = rights.write;
            body.remote_read = rights.read;
            body.remote_atomic = rights.atomic;
            // The card has one port. The partition is the default one, with full membership (protocol 4.3).
            body.port = 1;
            body.partition_key = 0xffff;
        })
    }
}

impl QueuePair<Init> {
    /// Moves the queue pair to RTR: the card executes requests of the peer from now on. It copies the path of `address`, with a flow
    /// label of its own if that has none, for which the driver needs one more handle as long as the command takes. The path MTU is at
    /// most [`Options::active_mtu`](crate::Options::active_mtu).
    ///
    /// # Errors
    ///
    /// [`TransitionError`] returns the queue pair if the address handle belongs to another protection domain, an option is
    /// outside the card's limits, or the card refuses.
    pub fn ready_to_receive(
        self,
        address: &AddressHandle,
        options: &ReceiveOptions,
    ) -> Result<QueuePair<ReadyToReceive>, TransitionError<Init>> {
        let domain = &self.life().domain;
        if !Arc::ptr_eq(address.domain(), domain) {
            let error = Error::Mixed { what: "queue pair and address handle", owner: "protection domains" };
            return Err(TransitionError { error, queue_pair: self });
        }
        let limits = &domain.device.limits;
        let limit = limits.queues.destination_read_atomic;
        let destination_read_atomic =
            options.destination_read_atomic.unwrap_or_else(|| limits.fair_reads(limit));
        let asked = destination_read_atomic.into();
        if let Err(error) = check_option("destination_read_atomic", asked, 0, limit.into()) {
            return Err(TransitionError { error, queue_pair: self });
        }
        self.modify(|body| {
            body.path_mtu = path_mtu(options.path_mtu);
            body.destination_qp = options.destination_qp;
            body.receive_psn = options.receive_psn;
            body.min_rnr_timer = options.min_rnr_timer;
            body.destination_read_atomic = destination_read_atomic;
            body.address_handle = address.number();
        })
    }

    /// Connects to the peer with this [`QueuePair::info`]: moves the queue pair to RTR, then to RTS. The peer connects with the
    /// info of this end; until it has, it may drop packets of this end.
    ///
    /// # Errors
    ///
    /// If a transition is refused. The queue pair is destroyed then, and its receives complete as flushed.
    pub fn connect(
        self,
        peer: &ConnectionInfo,
        options: &ConnectOptions,
    ) -> Result<QueuePair<ReadyToSend>, Error> {
        let domain = Arc::clone(&self.life().domain);
        let path = options.path.unwrap_or(Path::new(peer.gid, peer.mac));
        let address = AddressHandle::create(&domain, &path.between(self.number(), peer.qp_number))?;
        let receive = ReceiveOptions {
            path_mtu: peer.path_mtu.min(domain.device.options.active_mtu),
            destination_qp: peer.qp_number,
            receive_psn: peer.first_psn,
            min_rnr_timer: options.min_rnr_timer,
            destination_read_atomic: options.destination_read_atomic,
        };
        Ok(self.ready_to_receive(&address, &receive)?.ready_to_send(&options.send)?)
    }
}

impl QueuePair<ReadyToReceive> {
    /// Moves the queue pair to RTS: sends can be posted. The first PSN is that of [`QueuePair::info`].
    ///
    /// # Errors
    ///
    /// [`TransitionError`] returns the queue pair if an option is outside the card's limits, or the card refuses.
    pub fn ready_to_send(
        self,
        options: &SendOptions,
    ) -> Result<QueuePair<ReadyToSend>, TransitionError<ReadyToReceive>> {
        let send_psn = self.life().first_psn.load(Ordering::Relaxed);
        let limits = &self.device().limits;
        let limit = limits.queues.read_atomic;
        let read_atomic = options.read_atomic.unwrap_or_else(|| limits.fair_reads(limit));
        if let Err(error) = check_option("read_atomic", read_atomic.into(), 0, limit.into()) {
            return Err(TransitionError { error, queue_pair: self });
        }
        let mut queue_pair = self;
        queue_pair.halves.send.read_atomic = read_atomic;
        queue_pair.modify(|body| {
            body.timeout = options.timeout;
            body.retry_count = options.retry_count;
            body.rnr_retry = options.rnr_retry;
            body.send_psn = send_psn;
            body.read_atomic = read_atomic;
        })
    }
}

impl QueuePair<ReadyToSend> {
    /// Splits the queue pair into its send queue and its receive queue, which two threads can use at the same time.
    /// [`SendHalf::join`] puts them together again.
    ///
    /// ```
    /// # use rnic_driver::{PostError, QueuePair, ReceiveRequest, SendRequest, state::ReadyToSend};
    /// # use std::thread;
    /// fn both_ways(queue_pair: QueuePair<ReadyToSend>) -> QueuePair<ReadyToSend> {
    ///     let (mut send, mut receive) = queue_pair.split();
    ///     thread::scope(|scope| {
    ///         scope.spawn(|| (0..8).try_for_each(|wr_id| send.post_send(SendRequest::send(wr_id))));
    ///         scope.spawn(|| (0..8).try_for_each(|wr_id| receive.post_receive(ReceiveRequest::new(wr_id))));
    ///     });
    ///     send.join(receive).expect("they are halves of one queue pair")
    /// }
    /// ```
    pub fn split(self) -> (SendHalf, ReceiveHalf) {
        let Halves { send, receive } = *self.halves;
        (send, receive)
    }

    /// Moves the queue pair to SQD: sends in flight finish, later ones wait until [`QueuePair::resume`]. If `raises_event` is
    /// set, the card raises [`AsyncEvent::SendQueueDrained`](rnic_layout::queue::event::AsyncEvent) when no send is in flight
    /// (protocol 3.10); their completions may be polled after that.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] returns the queue pair if the card refuses, as it does when the queue pair has failed.
    pub fn drain(
        self,
        raises_event: bool,
    ) -> Result<QueuePair<SendQueueDrain>, TransitionError<ReadyToSend>> {
        self.modify_with(AttributeMask::DRAIN_NOTIFY, |body| body.drain_notify = raises_event)
    }
}

impl SendHalf {
    /// Joins the two halves of a queue pair.
    ///
    /// # Errors
    ///
    /// Returns both if they belong to two queue pairs.
    pub fn join(self, receive: ReceiveHalf) -> Result<QueuePair<ReadyToSend>, (Self, ReceiveHalf)> {
        if Arc::ptr_eq(&self.life, &receive.life) {
            Ok(QueuePair::of_halves(Box::new(Halves { send: self, receive })))
        } else {
            Err((self, receive))
        }
    }
}

impl QueuePair<SendQueueDrain> {
    /// Moves the queue pair back to RTS: waiting sends begin.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] returns the queue pair if the card refuses, as it does when the queue pair has failed.
    pub fn resume(self) -> Result<QueuePair<ReadyToSend>, TransitionError<SendQueueDrain>> {
        self.modify(|_| {})
    }

    /// Queries whether sends are still in flight.
    ///
    /// # Errors
    ///
    /// If the card cannot execute the command, because it has failed or was removed, or no DMA memory is left.
    pub fn is_draining(&self) -> Result<bool, Error> {
        Ok(self.life().query()?.requests_in_flight)
    }
}

impl<S: State> QueuePair<S> {
    /// Queries whether the queue pair has failed, that is, whether the card has moved it to ERR. An asynchronous event reports
    /// the same, unless it was lost ([`Error::EventsLost`]).
    ///
    /// # Errors
    ///
    /// If the card cannot execute the command, because it has failed or was removed, or no DMA memory is left.
    pub fn has_failed(&self) -> Result<bool, Error> {
        Ok(self.life().query()?.current_state == QpState::Error)
    }
}

impl<S: State> fmt::Debug for QueuePair<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({:#x}, {})", self.number(), S::STATE.name())
    }
}
