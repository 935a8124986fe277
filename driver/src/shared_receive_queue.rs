//! Shared receive queues (SRQs): receives that queue pairs share (protocol 4.5).
//!
//! Incoming messages take receives in the order of their posts, but the receives complete in any order, in the completion
//! queues of the queue pairs whose messages took them. So a CQE identifies a receive by `wr_id` alone, and a slot of the ring
//! is free once its receive or a later one has completed.
//!
//! A queue pair that ends in the middle of a message gives the receive of that message back: it completes as flushed in the
//! error state, through which the driver moves a queue pair that is dropped or reset. The event `last_wqe_reached` on event queue
//! 0 reports that; if the application has not failed the queue pair itself, only the driver gets it. A receive that the card
//! could not read never completes, and counts as posted until the SRQ is destroyed.

use crate::completion::Completion;
use crate::completion_queue::CompletionQueueShared;
use crate::device::NewObject;
use crate::error::{CompletionError, Error, check_option};
use crate::mapping::Mapping;
use crate::memory::Purpose;
use crate::post_error::{PostError, Refusal};
use crate::protection_domain::{ProtectionDomain, ProtectionDomainShared};
use crate::ring::{WorkRing, write_slot};
use crate::sge::Sge;
use crate::sync::{Mutex, lock};
use crate::work_queue::{Posted, RECEIVE_FLAG, Report, SRQ_FLAG, post_list};
use crate::work_request::{ReceiveRequest, check_receive, encode_receive};
use rnic_layout::admin::{
    BODY_OFFSET, Body, COMMAND_BYTES, CommandOpcode, CreateSharedReceiveQueue, ModifySharedReceiveQueue,
    Query,
};
use rnic_layout::doorbell;
use rnic_layout::limits::{RECEIVE_WQES_LOG2_MAX, RING_LOG2_MIN, WQE_SLOT_BYTES};
use rnic_layout::queue::completion::Cqe;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Parameters of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceiveQueueOptions {
    /// log2 of the number of WQEs, from 6 to the card's limit.
    pub entries_log2: u32,
    /// Initial limit, as in [`SharedReceiveQueue::set_limit`].
    pub limit: u16,
    /// Largest number of receives that are posted at a time, for which completion queues reserve CQEs. `None` stands for the number
    /// of WQEs.
    pub receives_max: Option<u16>,
}

impl Default for SharedReceiveQueueOptions {
    fn default() -> Self {
        Self { entries_log2: RING_LOG2_MIN, limit: 0, receives_max: None }
    }
}

/// A shared receive queue, kept by its handles and its queue pairs.
pub(crate) struct SharedReceiveQueueShared {
    pub(crate) domain: Arc<ProtectionDomainShared>,
    number: u32,
    state: Mutex<State>,
}

struct State {
    memory: Mapping,
    ring: WorkRing,
    /// Receives that have not completed. At most as many as the options allow, so that completion queues can reserve a CQE for
    /// each.
    posted: Box<[Option<Receive>]>,
    /// Places of `posted` that are free.
    free: Vec<u16>,
    /// Number of receives ever posted.
    count: u64,
    /// Number of receives that the card is known to have taken.
    taken: u64,
    /// Number of queue pairs per completion queue.
    users: HashMap<u32, u32>,
}

/// A receive that has not completed.
struct Receive {
    /// Value of `count` at its post.
    sequence: u64,
    posted: Posted,
}

/// Where a receive goes: a slot of the ring, and a place in [`State::posted`].
#[derive(Clone, Copy)]
struct Place {
    slot: u16,
    place: u16,
    sequence: u64,
}

impl Place {
    /// Identifies the receive in its WQE and its CQE.
    fn wr_id(self) -> u64 {
        sequence_bits(self.sequence) | u64::from(self.place) | RECEIVE_FLAG | SRQ_FLAG
    }
}

/// Bits of the place in [`State::posted`], below those of the sequence, in the `wr_id` of a WQE.
const PLACE_BITS: u32 = 16;

impl State {
    /// Claims room for a receive, which [`Self::put`] fills.
    fn claim(&mut self) -> Result<Place, Refusal> {
        let full = Refusal::QueueFull { needed: 1, free: 0 };
        if self.ring.free() == 0 {
            return Err(full);
        }
        let place = self.free.pop().ok_or(full)?;
        let slot = self.ring.claim(1).expect("a slot is free, as checked above");
        Ok(Place { slot, place, sequence: self.count })
    }

    /// Writes a receive to its place.
    fn put(&mut self, Place { slot, place, sequence }: Place, wqe: &[u8; WQE_SLOT_BYTES], posted: Posted) {
        write_slot(&self.memory.words(), self.ring.slot(slot), wqe);
        self.posted[usize::from(place)] = Some(Receive { sequence, posted });
        self.count += 1;
    }

    /// Takes the receive whose WQE has this `wr_id`, without the flags.
    fn take(&mut self, wr_id: u64) -> Option<Receive> {
        let place = wr_id as u16;
        // The sequence in the `wr_id` lacks the highest bits, which differ after 2^46 receives only.
        let is_it = |receive: &Receive| wr_id == sequence_bits(receive.sequence) | u64::from(place);
        let receive = self.posted.get_mut(usize::from(place))?.take_if(|receive| is_it(receive))?;
        self.free.push(place);
        Some(receive)
    }
}

/// The sequence of a receive in the `wr_id` of its WQE.
fn sequence_bits(sequence: u64) -> u64 {
    (sequence << PLACE_BITS) & !(RECEIVE_FLAG | SRQ_FLAG)
}

impl SharedReceiveQueueShared {
    /// Number of the SRQ on the card.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Registers a queue pair whose receives complete in `completions`. The first one of each completion queue reserves a CQE
    /// there for every receive that the SRQ can hold.
    pub(crate) fn attach(
        self: &Arc<Self>,
        completions: &CompletionQueueShared,
    ) -> Result<SharedReceiveQueueUse, Error> {
        let mut state = lock(&self.state);
        if !state.users.contains_key(&completions.number()) {
            let count = state.posted.len() as u32;
            if !completions.reserve_all(count) {
                let what = "CQEs that a shared receive queue needs in the completion queue";
                return Err(Error::Exhausted { what, limit: completions.entries() });
            }
        }
        *state.users.entry(completions.number()).or_default() += 1;
        Ok(SharedReceiveQueueUse { srq: Arc::clone(self), completion_queue: completions.number() })
    }

    /// Retires the receive that a CQE of queue pair `qp_number` reports.
    fn retire(&self, cqe: &Cqe, qp_number: u32) -> Result<Completion, CompletionError> {
        let mut state = lock(&self.state);
        let unknown = CompletionError::UnknownWrId { qp_number, wr_id: cqe.wr_id };
        let receive = state.take(cqe.wr_id & !(RECEIVE_FLAG | SRQ_FLAG)).ok_or(unknown)?;
        let Receive { sequence, posted } = receive;
        if sequence >= state.taken {
            // Indices are sequences modulo 2^16.
            let released = state.ring.release(sequence.wrapping_add(1) as u16);
            debug_assert!(released.is_ok(), "the slot of a receive that is posted and not taken is in use");
            state.taken = sequence + 1;
        }
        let mut completion = posted.complete(qp_number, cqe.status, true);
        completion.vendor_error = cqe.vendor_error;
        if completion.is_success() {
            completion.set_received(cqe);
        }
        Ok(completion)
    }

    /// Writes the WQE of a receive into the ring, without a doorbell.
    fn enqueue(&self, state: &mut State, request: &mut ReceiveRequest) -> Result<(), Refusal> {
        request.check(&self.domain, &self.domain.device.limits)?;
        let place = state.claim()?;
        state.put(place, &request.encode(place.wr_id()), Posted::receive(request));
        Ok(())
    }

    /// Writes the WQE of a receive whose memory stays where it is.
    fn enqueue_work(&self, state: &mut State, wr_id: u64, sges: &[Sge]) -> Result<(), Refusal> {
        check_receive(sges.len(), &self.domain.device.limits)?;
        let place = state.claim()?;
        let posted = Posted { report: Report::Reported, ..Posted::receive(&mut ReceiveRequest::new(wr_id)) };
        state.put(place, &encode_receive(sges.iter().copied(), place.wr_id()), posted);
        Ok(())
    }

    /// Posts receives whose memory stays where it is, with one doorbell.
    pub(crate) fn post_works<'a>(
        &self,
        requests: impl Iterator<Item = (u64, &'a [Sge])>,
    ) -> Result<(), (usize, Refusal)> {
        let mut state = lock(&self.state);
        let (mut count, mut result) = (0, Ok(()));
        for (wr_id, sges) in requests {
            result = self.enqueue_work(&mut state, wr_id, sges).map_err(|refusal| (count, refusal));
            if result.is_err() {
                break;
            }
            count += 1;
        }
        if count != 0 {
            self.ring_doorbell(&state);
        }
        result
    }

    fn ring_doorbell(&self, state: &State) {
        let doorbells = &self.domain.device.doorbells;
        let mut producer_index = state.ring.producer_index();
        if mutant!("srq-doorbell-one-behind") {
            producer_index = producer_index.wrapping_sub(1);
        }
        doorbells.work(&doorbell::SHARED_RECEIVE, self.number, producer_index);
    }
}

/// The SRQ as a queue pair uses it, whose receives complete in one completion queue.
pub(crate) struct SharedReceiveQueueUse {
    srq: Arc<SharedReceiveQueueShared>,
    completion_queue: u32,
}

impl SharedReceiveQueueUse {
    /// Retires the receive that a CQE of queue pair `qp_number` reports.
    pub(crate) fn retire(&self, cqe: &Cqe, qp_number: u32) -> Result<Completion, CompletionError> {
        self.srq.retire(cqe, qp_number)
    }

    /// Ends the use by a queue pair, none of whose receives can complete any more. Returns the number of CQEs of the completion
    /// queue that need not be reserved any more.
    pub(crate) fn release(&self) -> u32 {
        let mut state = lock(&self.srq.state);
        let users = state.users.entry(self.completion_queue).or_default();
        *users = users.saturating_sub(1);
        if *users != 0 {
            return 0;
        }
        state.users.remove(&self.completion_queue);
        state.posted.len() as u32
    }
}

impl Drop for SharedReceiveQueueShared {
    fn drop(&mut self) {
        if self.domain.device.is_forked() {
            return;
        }
        let memory = lock(&self.state).memory.share();
        // The regions of posted receives are dropped after this, and each is kept unless the card confirms its end.
        if self.domain.destroy(CommandOpcode::DestroySharedReceiveQueue, self.number, &[&memory]) {
            lock(&self.domain.device.ids).shared_receive_queues.free(self.number);
        }
    }
}

/// Fails if an SRQ of so many receives is always below a limit.
fn check_limit(limit: u16, entries: usize) -> Result<(), Error> {
    check_option("shared_receive_queue.limit", limit.into(), 0, entries as u64)
}

/// Shared receive queue. Clones are cheap and refer to the same queue, which is destroyed with the last of them and of the
/// queue pairs that use it. Receives that are posted to it then are freed without a completion.
#[derive(Clone)]
pub struct SharedReceiveQueue {
    pub(crate) shared: Arc<SharedReceiveQueueShared>,
}

impl ProtectionDomain {
    /// Creates a shared receive queue.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] if the card was generated without SRQs, [`Error::Option`] if an option is outside the card's
    /// limits, [`Error::Exhausted`] if all SRQs are in use, [`Error::Command`] if the card refuses, or a failure of the back
    /// end.
    pub fn create_shared_receive_queue(
        &self,
        options: &SharedReceiveQueueOptions,
    ) -> Result<SharedReceiveQueue, Error> {
        let device = &self.shared.device;
        if !device.limits.features.shared_receive_queues {
            return Err(Error::NotSupported { feature: "shared_receive_queues" });
        }
        let log2 = options.entries_log2;
        let limit = u32::from(device.limits.queues.receive_wqes_log2).min(RECEIVE_WQES_LOG2_MAX);
        check_option("shared_receive_queue.entries_log2", log2.into(), RING_LOG2_MIN.into(), limit.into())?;
        let receives_max = options.receives_max.unwrap_or(1 << log2);
        check_option("shared_receive_queue.receives_max", receives_max.into(), 1, 1 << log2)?;
        check_limit(options.limit, receives_max.into())?;
        let memory = Mapping::new(&device.function, WQE_SLOT_BYTES << log2, Purpose::Ring)?;
        let number = lock(&device.ids).shared_receive_queues.allocate_lowest()?;
        let body = CreateSharedReceiveQueue {
            entries_log2: log2 as u8,
            doorbell_page: device.doorbells.page(),
            domain: self.shared.number,
            base: memory.device_address(),
            limit: options.limit,
        };
        let object = NewObject {
            opcode: CommandOpcode::CreateSharedReceiveQueue,
            number,
            body: Body::CreateSharedReceiveQueue(body),
            memory: &[&memory],
        };
        self.shared.create(object, |ids| {
            ids.shared_receive_queues.free(number);
        })?;
        let state = State {
            memory,
            ring: WorkRing::new(log2),
            posted: (0..receives_max).map(|_| None).collect(),
            free: (0..receives_max).rev().collect(),
            count: 0,
            taken: 0,
            users: HashMap::new(),
        };
        let shared =
            SharedReceiveQueueShared { domain: Arc::clone(&self.shared), number, state: Mutex::new(state) };
        Ok(SharedReceiveQueue { shared: Arc::new(shared) })
    }
}

impl SharedReceiveQueue {
    /// Number of the SRQ on the card, which its events carry.
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// Number of receives that are posted and have not completed.
    pub fn in_flight(&self) -> usize {
        let state = lock(&self.shared.state);
        state.posted.len() - state.free.len()
    }

    /// Posts a receive, whose memory belongs to the protection domain of the SRQ.
    ///
    /// # Errors
    ///
    /// [`PostError`] returns the request if it is refused.
    pub fn post_receive(&self, mut request: ReceiveRequest) -> Result<(), PostError<ReceiveRequest>> {
        let mut state = lock(&self.shared.state);
        if let Err(reason) = self.shared.enqueue(&mut state, &mut request) {
            return Err(PostError { reason, request });
        }
        self.shared.ring_doorbell(&state);
        Ok(())
    }

    /// Posts receives from the front of a list, with one doorbell. Posted requests are removed from the list.
    ///
    /// # Errors
    ///
    /// [`Refusal`] of the request that is now the first of the list; those before it were posted.
    pub fn post_receives(&self, requests: &mut Vec<ReceiveRequest>) -> Result<(), Refusal> {
        let mut state = lock(&self.shared.state);
        let (count, result) = post_list(requests, |request| self.shared.enqueue(&mut state, request));
        if count != 0 {
            self.shared.ring_doorbell(&state);
        }
        result
    }

    /// Arms the SRQ limit: one event `shared_receive_limit` is raised on event queue 0 when fewer than `limit` receives are
    /// posted at the arrival of a message or after it has taken one. Zero disarms it.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if the limit is above the receives that the SRQ can hold, or if the card cannot execute the command, because
    /// it has failed or was removed.
    pub fn set_limit(&self, limit: u16) -> Result<(), Error> {
        check_limit(limit, lock(&self.shared.state).posted.len())?;
        let body = Body::ModifySharedReceiveQueue(ModifySharedReceiveQueue { limit });
        let device = &self.shared.domain.device;
        device.execute(CommandOpcode::ModifySharedReceiveQueue, self.shared.number, body)?;
        Ok(())
    }

    /// Queries the limit, which is zero once its event was raised.
    ///
    /// # Errors
    ///
    /// If the card cannot execute the command, because it has failed or was removed, or no DMA memory is left.
    pub fn limit(&self) -> Result<u16, Error> {
        let device = &self.shared.domain.device;
        let buffer = Mapping::new(&device.function, COMMAND_BYTES, Purpose::Ring)?;
        let query = Query { buffer: buffer.device_address(), buffer_bytes: COMMAND_BYTES as u16 };
        let opcode = CommandOpcode::QuerySharedReceiveQueue;
        device.execute_with(opcode, self.number(), Body::Query(query), &[&buffer])?;
        // The card writes the create command with the limit of now.
        let mut bytes = [0; CreateSharedReceiveQueue::BYTES];
        buffer.memory().read(BODY_OFFSET, &mut bytes);
        Ok(CreateSharedReceiveQueue::parse(&bytes)?.limit)
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedReceiveQueue({})", self.number())
    }
}
