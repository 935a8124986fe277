//! Work queues: a ring of WQEs, and the requests that are posted to it.

use crate::completion::Completion;
use crate::error::CompletionError;
use crate::mapping::Mapping;
use crate::post_error::Refusal;
use crate::ring::{IndexError, WorkRing, write_slot};
use crate::work_request::{ReceiveRequest, SgList};
use rnic_layout::limits::WQE_SLOT_BYTES;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus, Cqe};
use std::collections::VecDeque;

/// Set in the `wr_id` of the WQE of a receive, so that the CQE identifies the queue.
pub(crate) const RECEIVE_FLAG: u64 = 1 << 63;
/// Set, besides [`RECEIVE_FLAG`], in the `wr_id` of the WQE of a receive of an SRQ.
pub(crate) const SRQ_FLAG: u64 = 1 << 62;

/// A posted request.
pub(crate) struct Posted {
    /// `wr_id` of the application.
    pub(crate) wr_id: u64,
    /// Index after the last slot of the WQE.
    pub(crate) end: u16,
    /// The card writes a CQE for it in any case, not only if it fails.
    pub(crate) signalled: bool,
    pub(crate) opcode: CompletionOpcode,
    /// Length of the message in bytes; zero for receives.
    pub(crate) length: u32,
    pub(crate) sg_list: SgList,
}

impl Posted {
    /// Takes the memory of a receive whose WQE ends at index `end`.
    pub(crate) fn receive(request: &mut ReceiveRequest, end: u16) -> Self {
        Self {
            wr_id: request.wr_id,
            end,
            signalled: true,
            opcode: CompletionOpcode::Receive,
            length: 0,
            sg_list: std::mem::take(&mut request.sg_list),
        }
    }

    /// Completion of the request. `signalled` tells whether the card wrote a CQE for it.
    pub(crate) fn complete(self, qp_number: u32, status: CompletionStatus, signalled: bool) -> Completion {
        Completion {
            wr_id: self.wr_id,
            qp_number,
            status,
            opcode: self.opcode,
            length: if status == CompletionStatus::Success { self.length } else { 0 },
            immediate: None,
            invalidated: None,
            solicited: false,
            signalled,
            vendor_error: 0,
            sg_list: self.sg_list,
        }
    }
}

/// Send or receive queue of a queue pair.
pub(crate) struct WorkQueue {
    pub(crate) memory: Mapping,
    pub(crate) ring: WorkRing,
    /// Requests in the ring, oldest first.
    pub(crate) posted: VecDeque<Posted>,
    /// Number of requests ever posted. A WQE carries the value at its post as `wr_id`, so a CQE that repeats or invents one is
    /// detected.
    pub(crate) count: u64,
    log2: u32,
}

impl WorkQueue {
    /// Creates an empty queue of 2^`log2` slots.
    pub(crate) fn new(memory: Mapping, log2: u32) -> Self {
        Self { memory, ring: WorkRing::new(log2), posted: VecDeque::new(), count: 0, log2 }
    }

    /// Writes the slot of an index.
    pub(crate) fn write(&self, index: u16, slot: &[u8; WQE_SLOT_BYTES]) {
        write_slot(&self.memory.words(), self.ring.slot(index), slot);
    }

    /// Retires the request that a CQE reports, and those before it. Appends a completion for each to `pending`, and returns
    /// their number.
    pub(crate) fn retire(
        &mut self,
        cqe: &Cqe,
        qp_number: u32,
        pending: &mut VecDeque<Completion>,
    ) -> Result<u32, CompletionError> {
        let is_receive = cqe.wr_id & RECEIVE_FLAG != 0;
        let unknown = CompletionError::UnknownWrId { qp_number, wr_id: cqe.wr_id };
        let oldest = self.count - self.posted.len() as u64;
        let place = (cqe.wr_id & !RECEIVE_FLAG).checked_sub(oldest).ok_or(unknown)? as usize;
        let posted = self.posted.get(place).ok_or(unknown)?;
        if cqe.status == CompletionStatus::Success && !posted.signalled {
            return Err(CompletionError::NotSignalled { qp_number, wr_id: cqe.wr_id });
        }
        // The opcode of a receive depends on the peer, and that of a failed request is undefined.
        if !is_receive && cqe.status == CompletionStatus::Success && cqe.opcode != posted.opcode {
            let (wr_id, found, expected) = (cqe.wr_id, cqe.opcode, posted.opcode);
            return Err(CompletionError::OtherOperation { qp_number, wr_id, found, expected });
        }
        // Earlier requests without a CQE are unsignalled sends, which have succeeded, or receives whose WQE the card could not
        // read, which are flushed as all receives after them are.
        let mut earlier_status =
            if is_receive { CompletionStatus::Flushed } else { CompletionStatus::Success };
        if mutant!("earlier-sends-flushed") {
            earlier_status = CompletionStatus::Flushed;
        }
        let skips = self.posted.iter().take(place).any(|earlier| earlier.signalled);
        if skips && !(is_receive && cqe.status == CompletionStatus::Flushed) {
            return Err(unknown);
        }
        // The CQE frees at least the slots of its own request, and perhaps some of later requests.
        let found = cqe.consumer_index;
        let needed = posted.end.wrapping_sub(self.ring.consumer_index());
        let freed = found.wrapping_sub(self.ring.consumer_index());
        let index = |error| CompletionError::Index { qp_number, error };
        if freed < needed {
            let (consumer, producer) = (self.ring.consumer_index(), self.ring.producer_index());
            return Err(index(IndexError { found, consumer, producer }));
        }
        self.ring.release(found).map_err(index)?;

        for posted in self.posted.drain(..place) {
            pending.push_back(posted.complete(qp_number, earlier_status, false));
        }
        let Some(posted) = self.posted.pop_front() else { return Err(unknown) };
        let mut completion = posted.complete(qp_number, cqe.status, true);
        completion.vendor_error = cqe.vendor_error;
        if is_receive && completion.is_success() {
            completion.set_received(cqe);
        }
        pending.push_back(completion);
        Ok(place as u32 + 1)
    }

    /// Completes all posted requests as flushed, and empties the ring. Returns the number of requests.
    pub(crate) fn flush(&mut self, qp_number: u32, pending: &mut VecDeque<Completion>) -> u32 {
        let count = self.posted.len() as u32;
        pending.extend(
            self.posted.drain(..).map(|posted| posted.complete(qp_number, CompletionStatus::Flushed, false)),
        );
        self.ring = WorkRing::new(self.log2);
        count
    }
}

/// Posts requests from the front of a list until one is refused, and removes the posted ones from the list. Returns their
/// number, and the refusal if there was one.
pub(crate) fn post_list<R>(
    requests: &mut Vec<R>,
    mut post: impl FnMut(&mut R) -> Result<(), Refusal>,
) -> (usize, Result<(), Refusal>) {
    let mut count = 0;
    let result = requests.iter_mut().try_for_each(|request| {
        post(request)?;
        count += 1;
        Ok(())
    });
    requests.drain(..count);
    (count, result)
}
