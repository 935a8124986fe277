//! A queue pair as its completion queues know it, and the number that both keep in use.

use crate::completion::Completion;
use crate::completion_queue::{Retire, Retired};
use crate::device::DeviceShared;
use crate::error::CompletionError;
use crate::in_flight::Retirer;
use crate::shared_receive_queue::SharedReceiveQueueUse;
use crate::sync::{AtomicBool, lock};
use crate::work_queue::{Posted, RECEIVE_FLAG};
use rnic_layout::queue::completion::Cqe;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of a queue pair. It becomes free when the queue pair is destroyed and its completion queues have read its last CQE.
pub(super) struct Number {
    device: Arc<DeviceShared>,
    pub(super) qp_number: u32,
    is_destroyed: AtomicBool,
}

impl Number {
    /// Takes over an allocated number, which the card is about to use.
    pub(super) fn new(device: &Arc<DeviceShared>, qp_number: u32) -> Arc<Self> {
        Arc::new(Self { device: Arc::clone(device), qp_number, is_destroyed: AtomicBool::new(false) })
    }

    /// The card has confirmed that it has no queue pair of this number.
    pub(super) fn is_destroyed(&self) {
        self.is_destroyed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if !self.device.is_forked() && self.is_destroyed.load(Ordering::Relaxed) {
            lock(&self.device.ids).queue_pairs.free(self.qp_number);
        }
    }
}

/// The requests of a queue pair that complete in one completion queue.
pub(super) struct Completing {
    pub(super) number: Arc<Number>,
    /// Sends, if they complete here.
    pub(super) send: Option<Retirer<Posted>>,
    /// Receives of the own receive queue, if they complete here.
    pub(super) receive: Option<Retirer<Posted>>,
    /// SRQ that provides the receives, if they complete here; `receive` stays empty then.
    pub(super) srq: Option<SharedReceiveQueueUse>,
}

impl Retire for Completing {
    fn capacity(&self) -> usize {
        let queues = self.send.iter().chain(&self.receive);
        queues.map(Retirer::capacity).max().unwrap_or(1)
    }

    fn keeps_reservation(&self, cqe: &Cqe) -> bool {
        cqe.wr_id & RECEIVE_FLAG != 0 && self.srq.is_some()
    }

    fn retire(&mut self, cqe: &Cqe, pending: &mut VecDeque<Completion>) -> Result<Retired, CompletionError> {
        let qp_number = self.number.qp_number;
        let is_receive = cqe.wr_id & RECEIVE_FLAG != 0;
        if is_receive && let Some(srq) = &self.srq {
            pending.push_back(srq.retire(cqe, qp_number)?);
            return Ok(Retired { written: false, unwritten: 0 });
        }
        let queue = if is_receive { &mut self.receive } else { &mut self.send };
        match queue {
            Some(queue) => queue.retire(cqe, qp_number, pending),
            None => Err(CompletionError::UnknownWrId { qp_number, wr_id: cqe.wr_id }),
        }
    }

    fn flush(&mut self, pending: &mut VecDeque<Completion>) -> u32 {
        let queues = self.send.iter_mut().chain(&mut self.receive);
        queues.map(|queue| queue.flush(self.number.qp_number, pending)).sum()
    }

    fn release_shared(&mut self) -> u32 {
        self.srq.as_ref().map_or(0, SharedReceiveQueueUse::release)
    }
}
