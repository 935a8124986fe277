//! Completions: results of work requests.

use crate::failed_request::FailedRequest;
use crate::work_request::SgList;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus, Cqe};

/// Result of a work request, and its memory.
#[derive(Debug)]
pub struct Completion {
    /// `wr_id` of the request.
    pub wr_id: u64,
    /// QPN of the queue pair that executed the request.
    pub qp_number: u32,
    /// Success, or the kind of failure.
    pub status: CompletionStatus,
    /// Kind of operation.
    pub opcode: CompletionOpcode,
    /// Length of the message in bytes; zero if the request failed.
    pub length: u32,
    /// Immediate data from the peer, in wire order; receives only.
    pub immediate: Option<[u8; 4]>,
    /// Key of this host that the peer's SEND with invalidate has invalidated; receives only.
    pub invalidated: Option<u32>,
    /// The peer requested a solicited event; receives only.
    pub solicited: bool,
    /// The card wrote a CQE for this request. If not, the request was unsignalled, and the CQE of a later request of the same
    /// queue reported it.
    pub signalled: bool,
    /// Vendor-specific detail of a failure, for logs: the syndrome of the peer's NAK, or a code of the card.
    pub vendor_error: u8,
    /// Memory of the request, in the order in which it was added.
    pub sg_list: SgList,
}

impl Completion {
    /// Returns whether the request succeeded.
    pub fn is_success(&self) -> bool {
        self.status == CompletionStatus::Success
    }

    /// Fails if the request has failed, with what to check. The memory of the request stays here.
    ///
    /// ```
    /// # use rnic_driver::{CompletionQueue, Error};
    /// fn drain(queue: &CompletionQueue) -> Result<(), Error> {
    ///     while let Some(completion) = queue.poll_one()? {
    ///         completion.check()?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`FailedRequest`] unless the status is success.
    pub fn check(&self) -> Result<(), FailedRequest> {
        let &Self { wr_id, qp_number, opcode, status, vendor_error, .. } = self;
        if self.is_success() {
            return Ok(());
        }
        Err(FailedRequest { wr_id, qp_number, opcode, status, vendor_error })
    }

    /// Returns whether the request was a receive.
    pub fn is_receive(&self) -> bool {
        matches!(self.opcode, CompletionOpcode::Receive | CompletionOpcode::ReceiveWrite)
    }

    /// Original value of the remote memory that an atomic returned; `None` for other operations and for failures.
    pub fn original(&self) -> Option<u64> {
        let is_atomic = matches!(self.opcode, CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd);
        let sge = self.sg_list.first().filter(|_| is_atomic && self.is_success())?;
        Some(u64::from_le_bytes((*sge.bytes()).try_into().ok()?))
    }

    /// Copies a received message out of the memory of the request.
    pub fn message(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.length as usize);
        for sge in &self.sg_list {
            let part = sge.len().min(self.length as usize - message.len());
            message.extend_from_slice(&sge.bytes()[..part]);
        }
        message
    }

    /// Takes over what the CQE of a successful receive reports about its message.
    pub(crate) fn set_received(&mut self, cqe: &Cqe) {
        self.opcode = cqe.opcode;
        self.length = cqe.length;
        self.immediate = cqe.with_immediate.then_some(cqe.immediate);
        self.invalidated = cqe.with_invalidate.then(|| u32::from_le_bytes(cqe.immediate));
        self.solicited = cqe.solicited;
    }
}
