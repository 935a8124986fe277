//! Reliable connected queue pairs, whose state is a part of their type.
//!
//! ```text
//!   Reset ── initialize ──> Init ── ready_to_receive ──> ReadyToReceive ── ready_to_send ──> ReadyToSend
//!                            │                                                                   ▲
//!                            └─────────────────────────── connect ───────────────────────────────┘
//!   any ── fail ──> Error      any ── reset ──> Reset      ReadyToSend ── drain ──> SendQueueDrain ── resume ──> ReadyToSend
//! ```
//!
//! What a state does not allow does not compile: receives are posted from Init on, sends from ReadyToSend on. The card may
//! move a queue pair to its error state by itself; the type does not know then, and what is posted completes flushed.

use crate::address_handle::{AddressHandle, Path};
use crate::completion_queue::{Completion, CompletionQueue, CompletionQueueShared};
use crate::device::path_mtu;
use crate::error::{CompletionError, Error, check_option};
use crate::id_allocator::RESERVED_QPNS;
use crate::memory::{Mapping, Purpose};
use crate::protection_domain::{ProtectionDomain, ProtectionDomainShared};
use crate::region::RemoteRights;
use crate::ring::{WorkRing, write_slot};
use crate::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueShared};
use crate::sync::lock;
use crate::work_request::{PostError, ReceiveRequest, Refusal, SendRequest, SgList};
use rand::Rng;
use rnic_layout::admin::{
    BODY_OFFSET, Body, COMMAND_BYTES, CommandOpcode, CreateQueuePair, ModifyQueuePair,
    QUEUE_PAIR_QUERY_BYTES, Query,
};
use rnic_layout::doorbell::{self, Doorbell};
use rnic_layout::limits::{
    QPN_BITS, RECEIVE_ENTRIES_LOG2_MAX, RING_LOG2_MIN, SEND_SLOTS_LOG2_MAX, SEND_SLOTS_MAX, WORK_SLOT_BYTES,
};
use rnic_layout::path::{Gid, Pmtu, flow_label};
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus, Cqe};
use rnic_layout::state::{AttributeMask, QpState, Service, transition};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// The states of a queue pair, as types.
pub mod state {
    use rnic_layout::state::QpState;

    /// A state.
    pub trait State: sealed::Sealed {
        /// Its number in commands.
        const STATE: QpState;
    }

    /// A state in which receives can be posted.
    pub trait PostReceive: State {}

    /// A state in which sends can be posted.
    pub trait PostSend: State {}

    mod sealed {
        pub trait Sealed {}
    }

    macro_rules! states {
        ($( $(#[doc = $doc:literal])+ $name:ident: $state:ident; )+) => {$(
            $(#[doc = $doc])+
            #[derive(Debug)]
            pub enum $name {}

            impl sealed::Sealed for $name {}

            impl State for $name {
                const STATE: QpState = QpState::$state;
            }
        )+};
    }

    states! {
        /// Nothing is set.
        Reset: Reset;
        /// Receives can be posted; packets are dropped.
        Init: Init;
        /// Requests of the peer are answered.
        ReadyToReceive: ReadyToReceive;
        /// Everything works.
        ReadyToSend: ReadyToSend;
        /// Sends that were begun are finished, and all others wait; requests of the peer are answered.
        SendQueueDrain: SendQueueDrain;
        /// Failed: everything is flushed.
        Error: Error;
    }

    impl PostReceive for Init {}
    impl PostReceive for ReadyToReceive {}
    impl PostReceive for ReadyToSend {}
    impl PostReceive for SendQueueDrain {}
    impl PostSend for ReadyToSend {}
    impl PostSend for SendQueueDrain {}
}

use state::{Init, PostReceive, PostSend, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, State};

/// What two sides tell each other before they connect, by whatever means they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// QPN.
    pub qp_number: u32,
    /// First PSN that this side sends.
    pub first_psn: u32,
    /// Address.
    pub gid: Gid,
    /// Station address.
    pub mac: [u8; 6],
    /// Largest PMTU of this side; both use the smaller one (protocol 2.2).
    pub path_mtu: Pmtu,
}

impl ConnectionInfo {
    /// Size of [`Self::to_bytes`].
    pub const BYTES: usize = 29;

    /// Writes it down for the peer.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..3].copy_from_slice(&self.qp_number.to_be_bytes()[1..]);
        bytes[3..6].copy_from_slice(&self.first_psn.to_be_bytes()[1..]);
        bytes[6..22].copy_from_slice(&self.gid.0);
        bytes[22..28].copy_from_slice(&self.mac);
        bytes[28] = self.path_mtu.code();
        bytes
    }

    /// Reads what the peer has written down; `None` if its PMTU is none.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let number = |first: usize| u32::from_be_bytes([0, bytes[first], bytes[first + 1], bytes[first + 2]]);
        Some(Self {
            qp_number: number(0),
            first_psn: number(3),
            gid: Gid(bytes[6..22].try_into().ok()?),
            mac: bytes[22..28].try_into().ok()?,
            path_mtu: Pmtu::from_code(bytes[28])?,
        })
    }
}

/// How a queue pair is made.
#[derive(Clone, Debug)]
pub struct QueuePairOptions {
    /// Slots of the send queue, as a power of two, 6 to the card's limit. A request takes one slot, or two with more than
    /// two pieces or 32 inline bytes.
    pub send_slots_log2: u32,
    /// Entries of the receive queue, as a power of two, 6 to the card's limit.
    pub receive_entries_log2: u32,
    /// Every send counts as signalled.
    pub signal_all: bool,
}

impl Default for QueuePairOptions {
    fn default() -> Self {
        Self { send_slots_log2: RING_LOG2_MIN, receive_entries_log2: RING_LOG2_MIN, signal_all: false }
    }
}

/// How a queue pair receives: the attributes of INIT to RTR (protocol 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// Payload of a full packet; the same on both sides.
    pub path_mtu: Pmtu,
    /// QPN of the peer.
    pub destination_qp: u32,
    /// First PSN that the peer sends.
    pub receive_psn: u32,
    /// Delay that the peer is asked for when no receive is posted, in the code of the AETH (protocol 1.6).
    pub min_rnr_timer: u8,
    /// READs and atomics of the peer that may be under way; `None` for as many as the card allows.
    pub destination_read_atomic: Option<u8>,
}

/// How a queue pair sends: the attributes of RTR to RTS (protocol 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOptions {
    /// Acknowledgement time-out 4.096 us x 2^n; zero for none.
    pub timeout: u8,
    /// Retries after time-outs and gaps.
    pub retry_count: u8,
    /// Retries when the peer has no receive posted; seven for ever.
    pub rnr_retry: u8,
    /// READs and atomics that may be under way; `None` for as many as the card allows. More than the peer's
    /// `destination_read_atomic` are refused by the peer.
    pub read_atomic: Option<u8>,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self { timeout: 14, retry_count: 7, rnr_retry: 7, read_atomic: None }
    }
}

/// How [`QueuePair::connect`] goes through both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The way to the peer; `None` goes straight to the addresses that the peer has told, from the first own address.
    pub path: Option<Path>,
    /// As in [`ReceiveOptions`].
    pub min_rnr_timer: u8,
    /// As in [`ReceiveOptions`].
    pub destination_read_atomic: Option<u8>,
    /// How to send.
    pub send: SendOptions,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        // 640 microseconds, as most providers have it.
        Self { path: None, min_rnr_timer: 12, destination_read_atomic: None, send: SendOptions::default() }
    }
}

/// Set in the tags that the card sees of receives, so that a tag says which queue it is from.
pub(crate) const RECEIVE_FLAG: u64 = 1 << 63;
/// Set besides in those of a shared receive queue.
pub(crate) const SRQ_FLAG: u64 = 1 << 62;

/// A request on the card.
pub(crate) struct Posted {
    /// What the application calls it.
    pub(crate) wr_id: u64,
    /// Index of the first slot behind it.
    pub(crate) end: u16,
    pub(crate) signalled: bool,
    pub(crate) opcode: CompletionOpcode,
    pub(crate) length: u32,
    pub(crate) sg_list: SgList,
}

/// A send or receive queue: its ring, and the requests in it, oldest first.
struct WorkQueue {
    memory: Mapping,
    ring: WorkRing,
    posted: VecDeque<Posted>,
    /// Requests ever posted. The card knows each by its place in this count, so that a completion which repeats or
    /// invents one is seen.
    count: u64,
    log2: u32,
}

impl WorkQueue {
    fn new(memory: Mapping, log2: u32) -> Self {
        Self { memory, ring: WorkRing::new(log2), posted: VecDeque::new(), count: 0, log2 }
    }

    fn write(&self, index: u16, slot: &[u8; WORK_SLOT_BYTES]) {
        write_slot(self.memory.memory(), self.ring.slot(index), slot);
    }

    /// Takes everything back that is posted, as flushed, and starts anew. Gives the number of requests.
    fn flush(&mut self, qp_number: u32, pending: &mut VecDeque<Completion>) -> u32 {
        let count = self.posted.len() as u32;
        pending.extend(self.posted.drain(..).map(|posted| {
            let status = CompletionStatus::Flushed;
            Completion { length: 0, ..finish(posted, qp_number, status, false) }
        }));
        self.ring = WorkRing::new(self.log2);
        count
    }
}

pub(crate) fn finish(
    posted: Posted,
    qp_number: u32,
    status: CompletionStatus,
    signalled: bool,
) -> Completion {
    Completion {
        wr_id: posted.wr_id,
        qp_number,
        status,
        opcode: posted.opcode,
        length: if status == CompletionStatus::Success { posted.length } else { 0 },
        immediate: None,
        invalidated: None,
        solicited: false,
        signalled,
        vendor_error: 0,
        sg_list: posted.sg_list,
    }
}

/// What a queue pair shares with its completion queues.
pub(crate) struct QueuePairShared {
    domain: Arc<ProtectionDomainShared>,
    number: u32,
    signal_all: bool,
    send: Mutex<WorkQueue>,
    receive: Mutex<WorkQueue>,
    send_completions: Arc<CompletionQueueShared>,
    receive_completions: Arc<CompletionQueueShared>,
    /// Where its receives come from, if not from `receive`, which stays empty then.
    shared_receive: Option<Arc<SharedReceiveQueueShared>>,
}

impl QueuePairShared {
    /// Takes back what an entry says is done, and gives the number of requests.
    pub(crate) fn retire(
        &self,
        entry: &Cqe,
        pending: &mut VecDeque<Completion>,
    ) -> Result<u32, CompletionError> {
        let qp_number = self.number;
        let unknown = CompletionError::UnknownWrId { qp_number, wr_id: entry.wr_id };
        let receive = entry.wr_id & RECEIVE_FLAG != 0;
        if receive && let Some(shared) = &self.shared_receive {
            pending.push_back(shared.retire(entry, qp_number)?);
            // What it reserved is reserved for the next.
            return Ok(0);
        }
        let mut queue = lock(if receive { &self.receive } else { &self.send });
        let oldest = queue.count - queue.posted.len() as u64;
        let place = (entry.wr_id & !RECEIVE_FLAG).checked_sub(oldest).ok_or(unknown)? as usize;
        let posted = queue.posted.get(place).ok_or(unknown)?;
        // Unsignalled sends may be passed over, which have succeeded; and receives that the card could not read, as those
        // behind them are flushed.
        let passed_over = if receive { CompletionStatus::Flushed } else { CompletionStatus::Success };
        let skips = queue.posted.iter().take(place).any(|earlier| earlier.signalled);
        if skips && !(receive && entry.status == CompletionStatus::Flushed) {
            return Err(unknown);
        }
        // The slots of the request itself must be free now, and perhaps some behind it.
        let consumer = entry.consumer_index;
        let needed = posted.end.wrapping_sub(queue.ring.consumer_index());
        let freed = consumer.wrapping_sub(queue.ring.consumer_index());
        let index = |error| CompletionError::Index { qp_number, error };
        if freed < needed {
            let (consumer, producer) = (queue.ring.consumer_index(), queue.ring.producer_index());
            return Err(index(crate::ring::IndexError { found: entry.consumer_index, consumer, producer }));
        }
        queue.ring.release(consumer).map_err(index)?;

        for posted in queue.posted.drain(..place) {
            pending.push_back(finish(posted, qp_number, passed_over, false));
        }
        let Some(posted) = queue.posted.pop_front() else { return Err(unknown) };
        let mut completion = finish(posted, qp_number, entry.status, true);
        completion.vendor_error = entry.vendor_error;
        if receive && completion.is_success() {
            completion.opcode = entry.opcode;
            completion.length = entry.length;
            completion.immediate = entry.with_immediate.then_some(entry.immediate);
            completion.invalidated = entry.with_invalidate.then(|| u32::from_le_bytes(entry.immediate));
            completion.solicited = entry.solicited;
        }
        pending.push_back(completion);
        Ok(place as u32 + 1)
    }

    fn ring(&self, doorbell: &Doorbell, queue: &WorkQueue) {
        self.domain.device.doorbells.work(doorbell, self.number, queue.ring.producer_index());
    }

    /// Puts a send into the ring, without telling the card.
    fn put_send(
        &self,
        queue: &mut WorkQueue,
        request: &mut SendRequest,
        read_atomic: u8,
    ) -> Result<(), Refusal> {
        let slots = request.check(&self.domain, &self.domain.device.limits, read_atomic)?;
        let free = queue.ring.free();
        if slots > free {
            return Err(Refusal::QueueFull { needed: slots, free });
        }
        let Some(entries_left) = self.send_completions.reserve() else {
            return Err(Refusal::CompletionQueueFull { entries: self.send_completions.entries() });
        };
        let index = queue.ring.claim(slots).expect("the ring has room, as was seen above");
        // Whoever takes the last room of a queue brings it back, or it could never be had again.
        let last = entries_left == 0 || queue.ring.free() < SEND_SLOTS_MAX as u16;
        let signalled = request.is_signalled() || self.signal_all || last;
        let bytes = request.encode(queue.count, signalled);
        for (place, slot) in bytes.iter().take(slots.into()).enumerate() {
            queue.write(index.wrapping_add(place as u16), slot);
        }
        let posted = Posted {
            wr_id: request.wr_id,
            end: queue.ring.producer_index(),
            signalled,
            opcode: request.operation.completes_as(),
            length: request.len() as u32,
            sg_list: std::mem::take(&mut request.sg_list),
        };
        queue.posted.push_back(posted);
        queue.count += 1;
        Ok(())
    }

    /// Puts a receive into the ring, without telling the card.
    fn put_receive(&self, queue: &mut WorkQueue, request: &mut ReceiveRequest) -> Result<(), Refusal> {
        if self.shared_receive.is_some() {
            return Err(Refusal::UsesSharedReceiveQueue);
        }
        request.check(&self.domain, &self.domain.device.limits)?;
        if queue.ring.free() == 0 {
            return Err(Refusal::QueueFull { needed: 1, free: 0 });
        }
        if self.receive_completions.reserve().is_none() {
            return Err(Refusal::CompletionQueueFull { entries: self.receive_completions.entries() });
        }
        let index = queue.ring.claim(1).expect("the ring has room, as was seen above");
        queue.write(index, &request.encode(queue.count | RECEIVE_FLAG));
        let posted = Posted {
            wr_id: request.wr_id,
            end: queue.ring.producer_index(),
            signalled: true,
            opcode: CompletionOpcode::Receive,
            length: 0,
            sg_list: std::mem::take(&mut request.sg_list),
        };
        queue.posted.push_back(posted);
        queue.count += 1;
        Ok(())
    }

    fn modify(&self, to: QpState, mask: AttributeMask, body: ModifyQueuePair) -> Result<(), Error> {
        let mask = mask.and(AttributeMask::STATE).0;
        let body = ModifyQueuePair { mask, next_state: to, ..body };
        let device = &self.domain.device;
        device.execute(CommandOpcode::ModifyQueuePair, self.number, Body::ModifyQueuePair(body))?;
        Ok(())
    }
}

/// Puts requests from the front of a list until one is refused, and removes those that were put.
pub(crate) fn put_list<R>(
    requests: &mut Vec<R>,
    mut put: impl FnMut(&mut R) -> Result<(), Refusal>,
) -> (usize, Result<(), Refusal>) {
    let mut count = 0;
    let result = requests.iter_mut().try_for_each(|request| {
        put(request)?;
        count += 1;
        Ok(())
    });
    requests.drain(..count);
    (count, result)
}

/// A queue pair on the card, which ends when this is dropped.
struct Owned {
    shared: Arc<QueuePairShared>,
    first_psn: u32,
    /// READs that may be under way; none before RTS.
    read_atomic: u8,
}

impl Drop for Owned {
    fn drop(&mut self) {
        let QueuePairShared { domain, number, send, receive, .. } = &*self.shared;
        let ended = domain.device.execute(CommandOpcode::DestroyQueuePair, *number, Body::Destroy);
        if ended.is_err() {
            // Nobody knows what the card still does with the memory of this work, so nobody gets it back.
            for queue in [send, receive] {
                std::mem::forget(std::mem::take(&mut lock(queue).posted));
            }
        }
        let flush = |queue: &Mutex<WorkQueue>, pending: &mut VecDeque<Completion>| {
            lock(queue).flush(*number, pending)
        };
        self.shared.send_completions.detach(*number, |pending| flush(send, pending));
        self.shared.receive_completions.detach(*number, |pending| flush(receive, pending));
        if let Some(shared) = &self.shared.shared_receive {
            shared.detach(&self.shared.receive_completions);
        }
        lock(&domain.device.ids).queue_pairs.free(*number);
    }
}

/// A reliable connected queue pair in state `S`. Dropping it ends it; what was posted and not done completes flushed.
pub struct QueuePair<S: State> {
    owned: Owned,
    state: PhantomData<S>,
}

/// A transition that the card refused, and the queue pair, whose state is unchanged.
pub struct TransitionError<S: State> {
    /// Why.
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

impl ProtectionDomain {
    /// Makes a reliable connected queue pair.
    ///
    /// # Errors
    ///
    /// If the card has no such service, an option does not fit it, none is left, or it refuses.
    pub fn create_queue_pair(
        &self,
        send_completions: &CompletionQueue,
        receive_completions: &CompletionQueue,
        options: &QueuePairOptions,
    ) -> Result<QueuePair<Reset>, Error> {
        self.create(send_completions, receive_completions, None, options)
    }

    /// Makes a reliable connected queue pair whose receives come from a shared receive queue of this domain.
    /// `receive_entries_log2` means nothing then. The completion queue speaks for all entries of the shared receive queue, once
    /// for all its queue pairs that complete there.
    ///
    /// # Errors
    ///
    /// As [`Self::create_queue_pair`]; and if the completion queue has not so many entries left.
    pub fn create_queue_pair_with_srq(
        &self,
        send_completions: &CompletionQueue,
        receive_completions: &CompletionQueue,
        receives: &SharedReceiveQueue,
        options: &QueuePairOptions,
    ) -> Result<QueuePair<Reset>, Error> {
        if !Arc::ptr_eq(&self.shared, &receives.shared.domain) {
            let what = "queue pair and shared receive queue";
            return Err(Error::Mixed { what, owner: "protection domains" });
        }
        let options = QueuePairOptions { receive_entries_log2: RING_LOG2_MIN, ..options.clone() };
        let receives = Some(&receives.shared);
        self.create(send_completions, receive_completions, receives, &options)
    }

    fn create(
        &self,
        send_completions: &CompletionQueue,
        receive_completions: &CompletionQueue,
        shared_receive: Option<&Arc<SharedReceiveQueueShared>>,
        options: &QueuePairOptions,
    ) -> Result<QueuePair<Reset>, Error> {
        let device = &self.shared.device;
        if !device.limits.features.reliable_connected {
            return Err(Error::NotSupported { feature: "reliable_connected" });
        }
        for queue in [send_completions, receive_completions] {
            if !Arc::ptr_eq(device, queue.shared.device()) {
                return Err(Error::Mixed { what: "queue pair and completion queue", owner: "cards" });
            }
        }
        let limits = &device.limits.queues;
        let check = |name, log2: u32, limit: u8, contract: u32| {
            check_option(name, log2.into(), RING_LOG2_MIN.into(), u32::from(limit).min(contract).into())
        };
        let QueuePairOptions { send_slots_log2, receive_entries_log2, signal_all } = *options;
        check("send_slots_log2", send_slots_log2, limits.send_slots_log2, SEND_SLOTS_LOG2_MAX)?;
        check(
            "receive_entries_log2",
            receive_entries_log2,
            limits.receive_entries_log2,
            RECEIVE_ENTRIES_LOG2_MAX,
        )?;
        let memory = |log2: u32| Mapping::new(&device.function, WORK_SLOT_BYTES << log2, Purpose::Ring);
        let send = WorkQueue::new(memory(send_slots_log2)?, send_slots_log2);
        let receive = WorkQueue::new(memory(receive_entries_log2)?, receive_entries_log2);
        let (number, first_psn) = {
            let ids = &mut *lock(&device.ids);
            let number = ids.queue_pairs.allocate_unpredictable(&mut ids.rng, QPN_BITS, RESERVED_QPNS)?;
            (number, ids.rng.random::<u32>() >> (32 - QPN_BITS))
        };
        let body = CreateQueuePair {
            service: Service::ReliableConnected,
            shared_receive: shared_receive.is_some(),
            signal_all,
            send_slots_log2: send_slots_log2 as u8,
            receive_entries_log2: receive_entries_log2 as u8,
            doorbell_page: device.doorbells.page(),
            domain: self.shared.number,
            send_completion_queue: send_completions.number(),
            receive_completion_queue: receive_completions.number(),
            shared_receive_queue: shared_receive.map_or(0, |shared| shared.number()),
            send_base: send.memory.device_address(),
            receive_base: receive.memory.device_address(),
        };
        let attached = shared_receive.map_or(Ok(()), |shared| shared.attach(&receive_completions.shared));
        let created = attached.and_then(|()| {
            let body = Body::CreateQueuePair(body);
            let created = device.execute(CommandOpcode::CreateQueuePair, number, body);
            if let (Err(_), Some(shared)) = (&created, shared_receive) {
                shared.detach(&receive_completions.shared);
            }
            created
        });
        if let Err(error) = created {
            lock(&device.ids).queue_pairs.free(number);
            return Err(error);
        }
        let shared = Arc::new(QueuePairShared {
            domain: Arc::clone(&self.shared),
            number,
            signal_all,
            send: Mutex::new(send),
            receive: Mutex::new(receive),
            send_completions: Arc::clone(&send_completions.shared),
            receive_completions: Arc::clone(&receive_completions.shared),
            shared_receive: shared_receive.map(Arc::clone),
        });
        shared.send_completions.attach(number, &shared);
        shared.receive_completions.attach(number, &shared);
        Ok(QueuePair::from_owned(Owned { shared, first_psn, read_atomic: 0 }))
    }
}

impl<S: State> QueuePair<S> {
    fn from_owned(owned: Owned) -> Self {
        Self { owned, state: PhantomData }
    }

    fn go<T: State>(
        self,
        fill: impl FnOnce(&mut ModifyQueuePair),
    ) -> Result<QueuePair<T>, TransitionError<S>> {
        self.go_with(AttributeMask::NONE, fill)
    }

    /// The same with attributes that need not be set.
    fn go_with<T: State>(
        self,
        optional: AttributeMask,
        fill: impl FnOnce(&mut ModifyQueuePair),
    ) -> Result<QueuePair<T>, TransitionError<S>> {
        let row = transition(Service::ReliableConnected, S::STATE, T::STATE);
        let mask = row.map_or(AttributeMask::NONE, |row| row.required).and(optional);
        let mut body = ModifyQueuePair::at_reset();
        fill(&mut body);
        match self.owned.shared.modify(T::STATE, mask, body) {
            Ok(()) => Ok(QueuePair::from_owned(self.owned)),
            Err(error) => Err(TransitionError { error, queue_pair: self }),
        }
    }

    /// QPN.
    pub fn number(&self) -> u32 {
        self.owned.shared.number
    }

    /// What the peer needs to know, with source address `index`.
    ///
    /// # Errors
    ///
    /// If there is no such source address.
    pub fn info(&self, index: usize) -> Result<ConnectionInfo, Error> {
        let device = &self.owned.shared.domain.device;
        let addresses = device.options.source_addresses();
        let gid = addresses.get(index).copied().ok_or(Error::Option {
            name: "source address index",
            value: index as u64,
            min: 0,
            max: addresses.len() as u64 - 1,
        })?;
        Ok(ConnectionInfo {
            qp_number: self.number(),
            first_psn: self.owned.first_psn,
            gid,
            mac: device.options.mac,
            path_mtu: device.options.active_mtu,
        })
    }

    /// Requests that are posted and not completed: sends and receives.
    pub fn in_flight(&self) -> (usize, usize) {
        let QueuePairShared { send, receive, .. } = &*self.owned.shared;
        (lock(send).posted.len(), lock(receive).posted.len())
    }

    /// Moves to the error state: everything that is posted completes flushed, in order.
    ///
    /// # Errors
    ///
    /// If the card cannot be reached or has failed.
    pub fn fail(self) -> Result<QueuePair<state::Error>, TransitionError<S>> {
        self.go(|_| {})
    }

    /// Starts anew. What was posted and not done completes flushed; the first PSN is drawn again.
    ///
    /// # Errors
    ///
    /// If the card cannot be reached or has failed.
    pub fn reset(self) -> Result<QueuePair<Reset>, TransitionError<S>> {
        let mut queue_pair = self.go::<Reset>(|_| {})?;
        let Owned { shared, first_psn, .. } = &mut queue_pair.owned;
        *first_psn = lock(&shared.domain.device.ids).rng.random::<u32>() >> (32 - QPN_BITS);
        let flush = |queue: &Mutex<WorkQueue>, pending: &mut VecDeque<Completion>| {
            lock(queue).flush(shared.number, pending)
        };
        shared.send_completions.flush(|pending| flush(&shared.send, pending));
        shared.receive_completions.flush(|pending| flush(&shared.receive, pending));
        Ok(queue_pair)
    }
}

impl QueuePair<Reset> {
    /// Goes to INIT. `rights` are what the peer may do, where the region allows it too.
    ///
    /// # Errors
    ///
    /// If the card refuses; the queue pair comes back.
    pub fn initialize(self, rights: RemoteRights) -> Result<QueuePair<Init>, TransitionError<Reset>> {
        self.go(|body| {
            body.local_write = true;
            body.remote_write = rights.write;
            body.remote_read = rights.read;
            body.remote_atomic = rights.atomic;
            // The one port, and the default partition with full membership (protocol 4.3).
            body.port = 1;
            body.partition_key = 0xffff;
        })
    }
}

impl QueuePair<Init> {
    /// Goes to RTR: from now on requests of the peer are answered. The card copies the address.
    ///
    /// # Errors
    ///
    /// If the address is of another domain, an option does not fit the card, or the card refuses; the queue pair comes back.
    pub fn ready_to_receive(
        self,
        address: &AddressHandle,
        options: &ReceiveOptions,
    ) -> Result<QueuePair<ReadyToReceive>, TransitionError<Init>> {
        let domain = &self.owned.shared.domain;
        if !Arc::ptr_eq(address.domain(), domain) {
            let error = Error::Mixed { what: "queue pair and address handle", owner: "protection domains" };
            return Err(TransitionError { error, queue_pair: self });
        }
        let limit = domain.device.limits.queues.destination_read_atomic;
        let destination_read_atomic = options.destination_read_atomic.unwrap_or(limit);
        let asked = destination_read_atomic.into();
        if let Err(error) = check_option("destination_read_atomic", asked, 0, limit.into()) {
            return Err(TransitionError { error, queue_pair: self });
        }
        self.go(|body| {
            body.path_mtu = path_mtu(options.path_mtu);
            body.destination_qp = options.destination_qp;
            body.receive_psn = options.receive_psn;
            body.min_rnr_timer = options.min_rnr_timer;
            body.destination_read_atomic = destination_read_atomic;
            body.address_handle = address.number();
        })
    }

    /// Goes to RTS with the peer whose [`QueuePair::info`] this is. The peer does the same with ours; until it has, what we
    /// send may be dropped.
    ///
    /// # Errors
    ///
    /// If the card refuses a step. The queue pair is ended then, and its receives complete flushed.
    pub fn connect(
        self,
        peer: &ConnectionInfo,
        options: &ConnectOptions,
    ) -> Result<QueuePair<ReadyToSend>, Error> {
        let domain = Arc::clone(&self.owned.shared.domain);
        let straight =
            Path { flow_label: flow_label(self.number(), peer.qp_number), ..Path::new(peer.gid, peer.mac) };
        let address = AddressHandle::create(&domain, &options.path.unwrap_or(straight))?;
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
    /// Goes to RTS: sends can be posted. The first PSN is that of [`QueuePair::info`].
    ///
    /// # Errors
    ///
    /// If an option does not fit the card, or the card refuses; the queue pair comes back.
    pub fn ready_to_send(
        self,
        options: &SendOptions,
    ) -> Result<QueuePair<ReadyToSend>, TransitionError<ReadyToReceive>> {
        let send_psn = self.owned.first_psn;
        let limit = self.owned.shared.domain.device.limits.queues.read_atomic;
        let read_atomic = options.read_atomic.unwrap_or(limit);
        if let Err(error) = check_option("read_atomic", read_atomic.into(), 0, limit.into()) {
            return Err(TransitionError { error, queue_pair: self });
        }
        let mut queue_pair = self;
        queue_pair.owned.read_atomic = read_atomic;
        queue_pair.go(|body| {
            body.timeout = options.timeout;
            body.retry_count = options.retry_count;
            body.rnr_retry = options.rnr_retry;
            body.send_psn = send_psn;
            body.read_atomic = read_atomic;
        })
    }
}

impl<S: PostReceive> QueuePair<S> {
    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// Hands the request back if it cannot be taken.
    pub fn post_receive(&mut self, mut request: ReceiveRequest) -> Result<(), PostError<ReceiveRequest>> {
        let shared = &self.owned.shared;
        let mut queue = lock(&shared.receive);
        if let Err(reason) = shared.put_receive(&mut queue, &mut request) {
            return Err(PostError { reason, request });
        }
        shared.ring(&doorbell::RECEIVE, &queue);
        Ok(())
    }

    /// Posts receives from the front of a list, with one doorbell. What is posted is removed from the list.
    ///
    /// # Errors
    ///
    /// Says why a request was not taken, which is the first of the list then; those before it are posted.
    pub fn post_receives(&mut self, requests: &mut Vec<ReceiveRequest>) -> Result<(), Refusal> {
        let shared = &self.owned.shared;
        let mut queue = lock(&shared.receive);
        let (count, result) = put_list(requests, |request| shared.put_receive(&mut queue, request));
        if count != 0 {
            shared.ring(&doorbell::RECEIVE, &queue);
        }
        result
    }
}

impl QueuePair<ReadyToSend> {
    /// Goes to SQD: sends that were begun are finished, and all others wait until [`QueuePair::resume`]. When all that were begun
    /// are done, and if it is asked for, [`AsyncEvent::SendQueueDrained`](rnic_layout::queue::event::AsyncEvent) is raised
    /// (protocol 3.10); their completions are on their way then.
    ///
    /// # Errors
    ///
    /// If the card refuses, as it does when the queue pair has failed; the queue pair comes back.
    pub fn drain(
        self,
        raises_event: bool,
    ) -> Result<QueuePair<SendQueueDrain>, TransitionError<ReadyToSend>> {
        self.go_with(AttributeMask::DRAIN_NOTIFY, |body| body.drain_notify = raises_event)
    }
}

impl QueuePair<SendQueueDrain> {
    /// Goes back to RTS: sends that have waited are begun.
    ///
    /// # Errors
    ///
    /// If the card refuses, as it does when the queue pair has failed; the queue pair comes back.
    pub fn resume(self) -> Result<QueuePair<ReadyToSend>, TransitionError<SendQueueDrain>> {
        self.go(|_| {})
    }

    /// Asks the card whether sends that were begun are not done yet.
    ///
    /// # Errors
    ///
    /// If the card cannot be reached or has failed.
    pub fn is_draining(&self) -> Result<bool, Error> {
        let device = &self.owned.shared.domain.device;
        let room = Mapping::new(&device.function, QUEUE_PAIR_QUERY_BYTES, Purpose::Ring)?;
        let query = Query { buffer: room.device_address(), buffer_bytes: QUEUE_PAIR_QUERY_BYTES as u16 };
        device.execute(CommandOpcode::QueryQueuePair, self.number(), Body::Query(query))?;
        // The second part is what a modify command would say.
        let mut bytes = [0; ModifyQueuePair::BYTES];
        room.memory().read(COMMAND_BYTES + BODY_OFFSET, &mut bytes);
        Ok(ModifyQueuePair::parse(&bytes)?.requests_in_flight)
    }
}

impl<S: PostSend> QueuePair<S> {
    /// Posts a send.
    ///
    /// # Errors
    ///
    /// Hands the request back if it cannot be taken.
    #[expect(clippy::result_large_err, reason = "the request itself comes back, without an allocation")]
    pub fn post_send(&mut self, mut request: SendRequest) -> Result<(), PostError<SendRequest>> {
        let shared = &self.owned.shared;
        let mut queue = lock(&shared.send);
        if let Err(reason) = shared.put_send(&mut queue, &mut request, self.owned.read_atomic) {
            return Err(PostError { reason, request });
        }
        shared.ring(&doorbell::SEND, &queue);
        Ok(())
    }

    /// Posts sends from the front of a list, with one doorbell. What is posted is removed from the list.
    ///
    /// # Errors
    ///
    /// Says why a request was not taken, which is the first of the list then; those before it are posted.
    pub fn post_sends(&mut self, requests: &mut Vec<SendRequest>) -> Result<(), Refusal> {
        let shared = &self.owned.shared;
        let mut queue = lock(&shared.send);
        let read_atomic = self.owned.read_atomic;
        let (count, result) = put_list(requests, |request| shared.put_send(&mut queue, request, read_atomic));
        if count != 0 {
            shared.ring(&doorbell::SEND, &queue);
        }
        result
    }
}

impl<S: State> fmt::Debug for QueuePair<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({:#x}, {})", self.number(), S::STATE.name())
    }
}
