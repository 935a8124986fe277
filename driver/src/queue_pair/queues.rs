//! Send and receive queue of a queue pair: WQEs are enqueued by the application's thread, and retired by the threads that poll
//! the completion queues.

use crate::completion::Completion;
use crate::completion_queue::{CompletionQueueShared, Retire};
use crate::error::CompletionError;
use crate::event_ring::LastReceive;
use crate::post_error::Refusal;
use crate::protection_domain::ProtectionDomainShared;
use crate::shared_receive_queue::SharedReceiveQueueShared;
use crate::sync::{Mutex, lock};
use crate::work_queue::{Posted, RECEIVE_FLAG, WorkQueue};
use crate::work_request::{ReceiveRequest, SendRequest};
use rnic_layout::doorbell::Doorbell;
use rnic_layout::limits::SEND_SLOTS_MAX;
use rnic_layout::queue::completion::Cqe;
use std::collections::VecDeque;
use std::sync::Arc;

/// State of a queue pair that its completion queues access too.
pub(super) struct QueuePairShared {
    pub(super) domain: Arc<ProtectionDomainShared>,
    pub(super) number: u32,
    /// Every send is signalled.
    pub(super) signal_all: bool,
    pub(super) send: Mutex<WorkQueue>,
    pub(super) receive: Mutex<WorkQueue>,
    pub(super) send_completions: Arc<CompletionQueueShared>,
    pub(super) receive_completions: Arc<CompletionQueueShared>,
    /// SRQ that provides the receives; `receive` stays empty then.
    pub(super) srq: Option<Arc<SharedReceiveQueueShared>>,
    /// Whether it has given back the receives of the SRQ.
    pub(super) last_receive: Arc<LastReceive>,
}

impl Retire for QueuePairShared {
    fn retire(&self, cqe: &Cqe, pending: &mut VecDeque<Completion>) -> Result<u32, CompletionError> {
        let is_receive = cqe.wr_id & RECEIVE_FLAG != 0;
        if is_receive && let Some(srq) = &self.srq {
            pending.push_back(srq.retire(cqe, self.number)?);
            // The SRQ keeps its CQEs reserved.
            return Ok(0);
        }
        lock(if is_receive { &self.receive } else { &self.send }).retire(cqe, self.number, pending)
    }
}

impl QueuePairShared {
    /// Publishes the producer index of a queue.
    pub(super) fn ring_doorbell(&self, doorbell: &Doorbell, queue: &WorkQueue) {
        self.domain.device.doorbells.work(doorbell, self.number, queue.ring.producer_index());
    }

    /// Writes the WQE of a send into the ring, without a doorbell.
    pub(super) fn enqueue_send(
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
        let Some(unreserved) = self.send_completions.reserve() else {
            return Err(Refusal::CompletionQueueFull { entries: self.send_completions.entries() });
        };
        let index = queue.ring.claim(slots).expect("enough slots are free, as checked above");
        if mutant!("doorbell-before-wqe") {
            self.ring_doorbell(&rnic_layout::doorbell::SEND, queue);
        }
        // A request that occupies the last room of a queue is signalled, so that its completion frees that room.
        let mut last = unreserved == 0 || queue.ring.free() < SEND_SLOTS_MAX as u16;
        if mutant!("queue-end-not-signalled") {
            last = false;
        }
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

    /// Writes the WQE of a receive into the ring, without a doorbell.
    pub(super) fn enqueue_receive(
        &self,
        queue: &mut WorkQueue,
        request: &mut ReceiveRequest,
    ) -> Result<(), Refusal> {
        if self.srq.is_some() {
            return Err(Refusal::UsesSharedReceiveQueue);
        }
        request.check(&self.domain, &self.domain.device.limits)?;
        if queue.ring.free() == 0 {
            return Err(Refusal::QueueFull { needed: 1, free: 0 });
        }
        if self.receive_completions.reserve().is_none() {
            return Err(Refusal::CompletionQueueFull { entries: self.receive_completions.entries() });
        }
        let index = queue.ring.claim(1).expect("a slot is free, as checked above");
        queue.write(index, &request.encode(queue.count | RECEIVE_FLAG));
        let posted = Posted::receive(request, queue.ring.producer_index());
        queue.posted.push_back(posted);
        queue.count += 1;
        Ok(())
    }
}
