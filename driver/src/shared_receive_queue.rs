//! Shared receive queues: receives that belong to no queue pair until a message comes for one (protocol 4.5).
//!
//! Messages take receives in the order in which they were posted, but complete in any order, in the completion queues of
//! the queue pairs that they came for. So the card names a receive by its tag alone, and places of the ring are free once a
//! receive behind them, or the one in the last of them, has completed.
//!
//! A queue pair that ends in the middle of a message keeps the receive of that message, and one that the card could not read
//! never comes back: they count as posted until the queue ends. A queue pair that goes to its error state first gives back what
//! it has, and `last_entry_reached` on the device's event queue says so.

use crate::completion_queue::{Completion, CompletionQueueShared};
use crate::error::{CompletionError, Error, check_option};
use crate::memory::{Mapping, Purpose};
use crate::protection_domain::{ProtectionDomain, ProtectionDomainShared};
use crate::queue_pair::{Posted, RECEIVE_FLAG, SRQ_FLAG, finish, put_list};
use crate::ring::{WorkRing, write_slot};
use crate::sync::lock;
use crate::work_request::{PostError, ReceiveRequest, Refusal};
use rnic_layout::admin::{Body, CommandOpcode, CreateSharedReceiveQueue, ModifySharedReceiveQueue};
use rnic_layout::doorbell;
use rnic_layout::limits::{RECEIVE_ENTRIES_LOG2_MAX, RING_LOG2_MIN, WORK_SLOT_BYTES};
use rnic_layout::queue::completion::{CompletionOpcode, Cqe};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// How a shared receive queue is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceiveQueueOptions {
    /// Entries, as a power of two, 6 to the card's limit.
    pub entries_log2: u32,
    /// As in [`SharedReceiveQueue::set_limit`].
    pub limit: u16,
}

impl Default for SharedReceiveQueueOptions {
    fn default() -> Self {
        Self { entries_log2: RING_LOG2_MIN, limit: 0 }
    }
}

/// A shared receive queue on the card. Its queue pairs keep it.
pub(crate) struct SharedReceiveQueueShared {
    pub(crate) domain: Arc<ProtectionDomainShared>,
    number: u32,
    state: Mutex<State>,
}

struct State {
    memory: Mapping,
    ring: WorkRing,
    /// Receives that have not completed, by their place in the count of all that were ever posted. At most as many as the ring
    /// has places, so that completion queues can be sure of what may come.
    posted: HashMap<u64, Posted>,
    count: u64,
    /// As many of the count are known to be taken.
    taken: u64,
    /// How many queue pairs complete in a completion queue.
    users: HashMap<u32, u32>,
}

impl SharedReceiveQueueShared {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Lets a queue pair complete receives in a queue, which has to have room for all that can be posted.
    pub(crate) fn attach(&self, completions: &CompletionQueueShared) -> Result<(), Error> {
        let mut state = lock(&self.state);
        if !state.users.contains_key(&completions.number()) {
            let count = state.ring.capacity().into();
            if !completions.reserve_all(count) {
                let what = "entries that a shared receive queue needs in the completion queue";
                return Err(Error::Exhausted { what, limit: completions.entries() });
            }
        }
        *state.users.entry(completions.number()).or_default() += 1;
        Ok(())
    }

    /// No receive of the queue pair can complete any more.
    pub(crate) fn detach(&self, completions: &CompletionQueueShared) {
        let mut state = lock(&self.state);
        let users = state.users.entry(completions.number()).or_default();
        *users = users.saturating_sub(1);
        if *users == 0 {
            state.users.remove(&completions.number());
            let count = state.ring.capacity().into();
            drop(state);
            completions.give_back(count);
        }
    }

    /// Takes back what an entry says is done.
    pub(crate) fn retire(&self, entry: &Cqe, qp_number: u32) -> Result<Completion, CompletionError> {
        let mut state = lock(&self.state);
        let place = entry.wr_id & !(RECEIVE_FLAG | SRQ_FLAG);
        let unknown = CompletionError::UnknownWrId { qp_number, wr_id: entry.wr_id };
        let posted = state.posted.remove(&place).ok_or(unknown)?;
        if place >= state.taken {
            let released = state.ring.release(posted.end);
            debug_assert!(released.is_ok(), "what is posted and was not taken stands in the ring");
            state.taken = place + 1;
        }
        let mut completion = finish(posted, qp_number, entry.status, true);
        completion.vendor_error = entry.vendor_error;
        if completion.is_success() {
            completion.opcode = entry.opcode;
            completion.length = entry.length;
            completion.immediate = entry.with_immediate.then_some(entry.immediate);
            completion.invalidated = entry.with_invalidate.then(|| u32::from_le_bytes(entry.immediate));
            completion.solicited = entry.solicited;
        }
        Ok(completion)
    }

    /// Puts a receive into the ring, without telling the card.
    fn put(&self, state: &mut State, request: &mut ReceiveRequest) -> Result<(), Refusal> {
        request.check(&self.domain, &self.domain.device.limits)?;
        let is_full = state.posted.len() == usize::from(state.ring.capacity());
        if is_full || state.ring.free() == 0 {
            return Err(Refusal::QueueFull { needed: 1, free: 0 });
        }
        let index = state.ring.claim(1).expect("the ring has room, as was seen above");
        let slot = request.encode(state.count | RECEIVE_FLAG | SRQ_FLAG);
        write_slot(state.memory.memory(), state.ring.slot(index), &slot);
        let posted = Posted {
            wr_id: request.wr_id,
            end: state.ring.producer_index(),
            signalled: true,
            opcode: CompletionOpcode::Receive,
            length: 0,
            sg_list: std::mem::take(&mut request.sg_list),
        };
        state.posted.insert(state.count, posted);
        state.count += 1;
        Ok(())
    }

    fn ring(&self, state: &State) {
        let doorbells = &self.domain.device.doorbells;
        doorbells.work(&doorbell::SHARED_RECEIVE, self.number, state.ring.producer_index());
    }
}

impl Drop for SharedReceiveQueueShared {
    fn drop(&mut self) {
        let device = &self.domain.device;
        let ended = device.execute(CommandOpcode::DestroySharedReceiveQueue, self.number, Body::Destroy);
        if ended.is_err() {
            // Nobody knows what the card still does with the memory of these receives, so nobody gets it back.
            std::mem::forget(std::mem::take(&mut lock(&self.state).posted));
        }
        lock(&device.ids).shared_receive_queues.free(self.number);
    }
}

/// A shared receive queue. Handles are cheap to clone; it ends with the last of them and of its queue pairs, and what is
/// posted to it then is freed.
#[derive(Clone)]
pub struct SharedReceiveQueue {
    pub(crate) shared: Arc<SharedReceiveQueueShared>,
}

impl ProtectionDomain {
    /// Makes a shared receive queue.
    ///
    /// # Errors
    ///
    /// If the card has none, an option does not fit it, none is left, or it refuses.
    pub fn create_shared_receive_queue(
        &self,
        options: &SharedReceiveQueueOptions,
    ) -> Result<SharedReceiveQueue, Error> {
        let device = &self.shared.device;
        if !device.limits.features.shared_receive_queues {
            return Err(Error::NotSupported { feature: "shared_receive_queues" });
        }
        let log2 = options.entries_log2;
        let limit = u32::from(device.limits.queues.receive_entries_log2).min(RECEIVE_ENTRIES_LOG2_MAX);
        check_option("shared_receive_queue.entries_log2", log2.into(), RING_LOG2_MIN.into(), limit.into())?;
        let memory = Mapping::new(&device.function, WORK_SLOT_BYTES << log2, Purpose::Ring)?;
        let number = lock(&device.ids).shared_receive_queues.allocate_lowest()?;
        let body = CreateSharedReceiveQueue {
            entries_log2: log2 as u8,
            doorbell_page: device.doorbells.page(),
            domain: self.shared.number,
            base: memory.device_address(),
            limit: options.limit,
        };
        let body = Body::CreateSharedReceiveQueue(body);
        if let Err(error) = device.execute(CommandOpcode::CreateSharedReceiveQueue, number, body) {
            lock(&device.ids).shared_receive_queues.free(number);
            return Err(error);
        }
        let state = State {
            memory,
            ring: WorkRing::new(log2),
            posted: HashMap::new(),
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
    /// Number of the queue on the card, which its events carry.
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// Receives that are posted and have not completed.
    pub fn in_flight(&self) -> usize {
        lock(&self.shared.state).posted.len()
    }

    /// Posts a receive, whose memory is of the domain of the queue.
    ///
    /// # Errors
    ///
    /// Hands the request back if it cannot be taken.
    pub fn post_receive(&self, mut request: ReceiveRequest) -> Result<(), PostError<ReceiveRequest>> {
        let mut state = lock(&self.shared.state);
        if let Err(reason) = self.shared.put(&mut state, &mut request) {
            return Err(PostError { reason, request });
        }
        self.shared.ring(&state);
        Ok(())
    }

    /// Posts receives from the front of a list, with one doorbell. What is posted is removed from the list.
    ///
    /// # Errors
    ///
    /// Says why a request was not taken, which is the first of the list then; those before it are posted.
    pub fn post_receives(&self, requests: &mut Vec<ReceiveRequest>) -> Result<(), Refusal> {
        let mut state = lock(&self.shared.state);
        let (count, result) = put_list(requests, |request| self.shared.put(&mut state, request));
        if count != 0 {
            self.shared.ring(&state);
        }
        result
    }

    /// Asks for one event `shared_receive_limit` on the device's event queue when a message finds, or leaves, fewer receives than
    /// `limit`; zero asks for none.
    ///
    /// # Errors
    ///
    /// If the card cannot be reached or has failed.
    pub fn set_limit(&self, limit: u16) -> Result<(), Error> {
        let body = Body::ModifySharedReceiveQueue(ModifySharedReceiveQueue { limit });
        let device = &self.shared.domain.device;
        device.execute(CommandOpcode::ModifySharedReceiveQueue, self.shared.number, body)?;
        Ok(())
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedReceiveQueue({})", self.number())
    }
}
