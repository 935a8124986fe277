//! Work queues: a ring of WQEs, and the requests that are posted to it. The thread that posts has the [`WorkQueue`], and the one
//! that polls the [`Retirer`] of its requests; they share no lock.

use crate::completion::Completion;
use crate::completion_queue::Retired;
use crate::error::CompletionError;
use crate::in_flight::{Poster, Retirer, in_flight};
use crate::mapping::Mapping;
use crate::post_error::Refusal;
use crate::ring::{IndexError, write_slot};
use crate::work_request::{ReceiveRequest, SgList};
use rnic_layout::limits::WQE_SLOT_BYTES;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus, Cqe};
use std::collections::VecDeque;

/// Set in the `wr_id` of the WQE of a receive, so that the CQE identifies the queue.
pub(crate) const RECEIVE_FLAG: u64 = 1 << 63;
/// Set, besides [`RECEIVE_FLAG`], in the `wr_id` of the WQE of a receive of an SRQ.
pub(crate) const SRQ_FLAG: u64 = 1 << 62;

/// Whether the application hears of the end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// In any case, because the completion returns its memory.
    Always,
    /// When the card reports it, but not when a reset or the end of the queue pair discards it.
    Reported,
    /// As above, unless it succeeds: it is unsignalled, or the driver alone has signalled it.
    Failed,
}

/// A posted request.
pub(crate) struct Posted {
    /// `wr_id` of the application.
    pub(crate) wr_id: u64,
    /// Slots of the WQE.
    pub(crate) slots: u8,
    /// The card writes a CQE for it in any case, not only if it fails.
    pub(crate) signalled: bool,
    pub(crate) report: Report,
    /// A CQE is reserved for it.
    pub(crate) reserves: bool,
    pub(crate) opcode: CompletionOpcode,
    /// Length of the message in bytes; zero for receives.
    pub(crate) length: u32,
    pub(crate) sg_list: SgList,
}

impl Posted {
    /// Takes the memory of a receive.
    pub(crate) fn receive(request: &mut ReceiveRequest) -> Self {
        Self {
            wr_id: request.wr_id,
            slots: 1,
            signalled: true,
            report: Report::Always,
            reserves: true,
            opcode: CompletionOpcode::Receive,
            length: 0,
            sg_list: std::mem::take(&mut request.sg_list),
        }
    }

    /// Returns whether the application hears of it if the card reports this status.
    fn is_told(&self, status: CompletionStatus) -> bool {
        self.report != Report::Failed || status != CompletionStatus::Success
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

/// Send or receive queue of a queue pair, as the thread that posts has it.
pub(crate) struct WorkQueue {
    pub(crate) memory: Mapping,
    /// Requests in the ring. The position of a request is the `wr_id` of its WQE, so that a CQE that repeats or invents one is
    /// detected.
    pub(crate) posted: Poster<Posted>,
    log2: u32,
}

impl WorkQueue {
    /// Creates an empty queue of 2^`log2` slots. Also returns the side that retires its requests.
    pub(crate) fn new(memory: Mapping, log2: u32) -> (Self, Retirer<Posted>) {
        let (posted, retirer) = in_flight(log2);
        (Self { memory, posted, log2 }, retirer)
    }

    /// Producer index for the doorbell.
    pub(crate) fn producer_index(&self) -> u16 {
        self.posted.position() as u16
    }

    /// Writes the WQE of the next request, which begins at [`Poster::position`].
    pub(crate) fn write(&self, slots: &[[u8; WQE_SLOT_BYTES]]) {
        let words = self.memory.words();
        for (place, slot) in (self.posted.position()..).zip(slots) {
            write_slot(&words, place as usize & ((1 << self.log2) - 1), slot);
        }
    }
}

impl Retirer<Posted> {
    /// Retires the request that a CQE reports, and those before it. Appends a completion for each of which the application
    /// hears to `pending`.
    pub(crate) fn retire(
        &mut self,
        cqe: &Cqe,
        qp_number: u32,
        pending: &mut VecDeque<Completion>,
    ) -> Result<Retired, CompletionError> {
        let is_receive = cqe.wr_id & RECEIVE_FLAG != 0;
        let is_success = cqe.status == CompletionStatus::Success;
        let unknown = CompletionError::UnknownWrId { qp_number, wr_id: cqe.wr_id };
        let place = cqe.wr_id & !RECEIVE_FLAG;
        let reported = self.look(place, |posted| (posted.signalled, posted.opcode, posted.slots));
        let (signalled, expected, slots) = reported.ok_or(unknown)?;
        if is_success && !signalled {
            return Err(CompletionError::NotSignalled { qp_number, wr_id: cqe.wr_id });
        }
        // The opcode of a receive depends on the peer, and that of a failed request is undefined.
        if !is_receive && is_success && cqe.opcode != expected {
            let (wr_id, found) = (cqe.wr_id, cqe.opcode);
            return Err(CompletionError::OtherOperation { qp_number, wr_id, found, expected });
        }
        // Earlier requests without a CQE are unsignalled sends, which have succeeded, or receives whose WQE the card could not
        // read, which are flushed as all receives after them are.
        let mut earlier_status =
            if is_receive { CompletionStatus::Flushed } else { CompletionStatus::Success };
        if mutant!("earlier-sends-flushed") {
            earlier_status = CompletionStatus::Flushed;
        }
        let range = self.range();
        let is_signalled = |earlier| self.look(earlier, |posted| posted.signalled) == Some(true);
        let skips = (range.start..place).any(is_signalled);
        if skips && !(is_receive && cqe.status == CompletionStatus::Flushed) {
            return Err(unknown);
        }
        // The card has freed at least the slots of this request, and perhaps some of later requests. Those are used again when
        // their own CQE is read.
        let end = place + u64::from(slots);
        let [consumer, needed, producer] = [range.start, end, range.end].map(|position| position as u16);
        let found = cqe.consumer_index;
        let freed = found.wrapping_sub(consumer);
        if freed < needed.wrapping_sub(consumer) || freed > producer.wrapping_sub(consumer) {
            return Err(CompletionError::Index {
                qp_number,
                error: IndexError { found, consumer, producer },
            });
        }

        let mut retired = Retired { written: false, unwritten: 0 };
        self.take_before(place, |earlier| {
            retired.unwritten += u32::from(earlier.reserves);
            if earlier.is_told(earlier_status) {
                pending.push_back(earlier.complete(qp_number, earlier_status, false));
            }
        });
        self.take_before(end, |posted| {
            retired.written = posted.reserves;
            if posted.is_told(cqe.status) {
                let mut completion = posted.complete(qp_number, cqe.status, true);
                completion.vendor_error = cqe.vendor_error;
                if is_receive && is_success {
                    completion.set_received(cqe);
                }
                pending.push_back(completion);
            }
        });
        Ok(retired)
    }

    /// Completes all posted requests as flushed, unless they are discarded in silence, and empties the table. Returns the number
    /// of reserved CQEs that become free.
    pub(crate) fn flush(&mut self, qp_number: u32, pending: &mut VecDeque<Completion>) -> u32 {
        let mut count = 0;
        self.clear(|posted| {
            count += u32::from(posted.reserves);
            if posted.report == Report::Always {
                pending.push_back(posted.complete(qp_number, CompletionStatus::Flushed, false));
            }
        });
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
