//! The two halves of a queue pair, each for one thread, and posting to them.

use super::life::Life;
use crate::post_error::{PostError, Refusal};
use crate::sge::Sge;
use crate::work_queue::{Posted, RECEIVE_FLAG, Report, WorkQueue, post_list};
use crate::work_request::{ReceiveRequest, SendRequest, SendWork, SgList, check_receive, encode_receive};
use rnic_layout::doorbell::{self, Doorbell};
use rnic_layout::limits::SEND_SLOTS_MAX;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Send queue of a queue pair in RTS, from [`QueuePair::split`](super::QueuePair::split). The queue pair is destroyed when both halves are dropped.
pub struct SendHalf {
    pub(super) life: Arc<Life>,
    pub(super) queue: WorkQueue,
    /// Largest number of READs and atomics in flight; zero before RTS.
    pub(super) read_atomic: u8,
}

/// Receive queue of a queue pair in RTS, from [`QueuePair::split`](super::QueuePair::split).
pub struct ReceiveHalf {
    pub(super) life: Arc<Life>,
    pub(super) queue: WorkQueue,
}

/// Both halves of a queue pair that is not split.
pub(super) struct Halves {
    pub(super) send: SendHalf,
    pub(super) receive: ReceiveHalf,
}

impl Halves {
    /// Brings both to the state after a reset: empty rings, which begin with index 0.
    pub(super) fn begin_again(&mut self) {
        self.send.read_atomic = 0;
        self.send.queue.posted.restart();
        self.receive.queue.posted.restart();
        let life = &*self.send.life;
        // The next life has an event of its own.
        life.last_receive.is_ending.store(false, Ordering::Release);
        life.last_receive.is_reached.store(false, Ordering::Release);
        life.completion_queues().for_each(|queue| queue.flush(life.number.qp_number));
    }
}

impl SendHalf {
    /// Returns the queue pair number.
    pub fn number(&self) -> u32 {
        self.life.number.qp_number
    }

    /// Number of sends that are posted and have not completed.
    pub fn in_flight(&self) -> usize {
        self.queue.posted.count() as usize
    }

    /// As [`QueuePair::post_send`](super::QueuePair::post_send).
    ///
    /// # Errors
    ///
    /// [`PostError`] returns the request if it is refused.
    #[expect(clippy::result_large_err, reason = "the error returns the request without an allocation")]
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError<SendRequest>> {
        self.batch().post(request)
    }

    /// As [`QueuePair::post_sends`](super::QueuePair::post_sends).
    ///
    /// # Errors
    ///
    /// [`Refusal`] of the request that is now the first of the list; those before it were posted.
    pub fn post_sends(&mut self, requests: &mut Vec<SendRequest>) -> Result<(), Refusal> {
        let mut batch = self.batch();
        post_list(requests, |request| batch.enqueue(request)).1
    }

    /// As [`QueuePair::send_batch`](super::QueuePair::send_batch).
    pub fn batch(&mut self) -> SendBatch<'_> {
        SendBatch { half: self, is_posted: false }
    }

    /// Writes the WQE of a send that owns its memory into the ring, without a doorbell.
    fn enqueue(&mut self, request: &mut SendRequest) -> Result<(), Refusal> {
        request.check_memory(&self.life.domain)?;
        let sges = request.sges();
        let place = self.place(&request.work(&sges), request.is_signalled(), true)?;
        let posted = Posted {
            wr_id: request.wr_id,
            slots: place.slots as u8,
            signalled: place.signalled,
            report: Report::Always,
            reserves: true,
            opcode: request.operation.completes_as(),
            length: request.len() as u32,
            sg_list: std::mem::take(&mut request.sg_list),
        };
        self.queue.posted.put(posted, place.slots.into());
        Ok(())
    }

    /// Writes the WQE of a send whose memory stays where it is. It completes only if it is signalled or fails, and reserves a CQE
    /// only if it is signalled.
    fn enqueue_work(&mut self, wr_id: u64, work: &SendWork<'_>, signalled: bool) -> Result<(), Refusal> {
        let place = self.place(work, signalled, false)?;
        let is_told = signalled || self.life.signal_all;
        let posted = Posted {
            wr_id,
            slots: place.slots as u8,
            signalled: place.signalled,
            report: if is_told { Report::Reported } else { Report::Failed },
            reserves: place.signalled,
            opcode: work.operation.completes_as(),
            length: work.length as u32,
            sg_list: SgList::new(),
        };
        self.queue.posted.put(posted, place.slots.into());
        Ok(())
    }

    /// Checks a send that follows others of `needed` slots, which were not posted. Returns the slots of all.
    pub(super) fn check_room(&mut self, work: &SendWork<'_>, needed: u16) -> Result<u16, Refusal> {
        let slots = work.check(&self.life.domain.device.limits, self.read_atomic)?;
        let all = needed.saturating_add(slots);
        let free = self.queue.posted.free(all.into());
        if u64::from(all) > free {
            return Err(Refusal::QueueFull { needed: all, free: free as u16 });
        }
        Ok(all)
    }

    /// Checks a send, reserves its CQE, in any case if `always_reserves`, and writes its WQE, which begins at the next position.
    fn place(
        &mut self,
        work: &SendWork<'_>,
        asks_for_signal: bool,
        always_reserves: bool,
    ) -> Result<Place, Refusal> {
        let Life { domain, send_completions, signal_all, .. } = &*self.life;
        let slots = work.check(&domain.device.limits, self.read_atomic)?;
        let free = self.queue.posted.free(u64::from(slots) + SEND_SLOTS_MAX as u64);
        if u64::from(slots) > free {
            return Err(Refusal::QueueFull { needed: slots, free: free as u16 });
        }
        // A request that occupies the last room of a queue is signalled, so that its completion frees that room.
        let mut is_last = free - u64::from(slots) < SEND_SLOTS_MAX as u64;
        if always_reserves || asks_for_signal || *signal_all || is_last {
            let Some(unreserved) = send_completions.reserve() else {
                return Err(Refusal::CompletionQueueFull { entries: send_completions.entries() });
            };
            is_last |= unreserved == 0;
        }
        if mutant!("doorbell-before-wqe") {
            let producer_index = self.queue.producer_index().wrapping_add(slots);
            domain.device.doorbells.work(&doorbell::SEND, self.life.number.qp_number, producer_index);
        }
        if mutant!("queue-end-not-signalled") {
            is_last = false;
        }
        let signalled = asks_for_signal || *signal_all || is_last;
        let wqe = work.encode(self.queue.posted.position(), signalled);
        self.queue.write(&wqe[..usize::from(slots)]);
        Ok(Place { slots, signalled })
    }
}

/// WQE that was written and is not in the table of requests in flight yet.
struct Place {
    slots: u16,
    signalled: bool,
}

impl ReceiveHalf {
    /// Returns the queue pair number.
    pub fn number(&self) -> u32 {
        self.life.number.qp_number
    }

    /// Number of receives that are posted to the own receive queue and have not completed.
    pub fn in_flight(&self) -> usize {
        self.queue.posted.count() as usize
    }

    /// As [`QueuePair::post_receive`](super::QueuePair::post_receive).
    ///
    /// # Errors
    ///
    /// [`PostError`] returns the request if it is refused.
    pub fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError<ReceiveRequest>> {
        self.batch().post(request)
    }

    /// As [`QueuePair::post_receives`](super::QueuePair::post_receives).
    ///
    /// # Errors
    ///
    /// [`Refusal`] of the request that is now the first of the list; those before it were posted.
    pub fn post_receives(&mut self, requests: &mut Vec<ReceiveRequest>) -> Result<(), Refusal> {
        let mut batch = self.batch();
        post_list(requests, |request| batch.enqueue(request)).1
    }

    /// As [`QueuePair::receive_batch`](super::QueuePair::receive_batch).
    pub fn batch(&mut self) -> ReceiveBatch<'_> {
        ReceiveBatch { half: self, is_posted: false }
    }

    /// Checks that the receive queue has a free slot.
    fn check_room(&mut self) -> Result<(), Refusal> {
        if self.life.has_srq {
            return Err(Refusal::UsesSharedReceiveQueue);
        }
        if self.queue.posted.free(1) == 0 {
            return Err(Refusal::QueueFull { needed: 1, free: 0 });
        }
        Ok(())
    }

    /// Reserves a CQE.
    fn reserve(&self) -> Result<(), Refusal> {
        let queue = &self.life.receive_completions;
        queue.reserve().map(drop).ok_or(Refusal::CompletionQueueFull { entries: queue.entries() })
    }

    /// Writes the WQE of a receive into the ring, without a doorbell.
    fn enqueue(&mut self, request: &mut ReceiveRequest) -> Result<(), Refusal> {
        self.check_room()?;
        request.check(&self.life.domain, &self.life.domain.device.limits)?;
        self.reserve()?;
        self.queue.write(&[request.encode(self.queue.posted.position() | RECEIVE_FLAG)]);
        self.queue.posted.put(Posted::receive(request), 1);
        Ok(())
    }

    /// Writes the WQE of a receive whose memory stays where it is.
    fn enqueue_work(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), Refusal> {
        self.check_room()?;
        check_receive(sges.len(), &self.life.domain.device.limits)?;
        self.reserve()?;
        let wqe = encode_receive(sges.iter().copied(), self.queue.posted.position() | RECEIVE_FLAG);
        self.queue.write(&[wqe]);
        let posted = Posted { report: Report::Reported, ..Posted::receive(&mut ReceiveRequest::new(wr_id)) };
        self.queue.posted.put(posted, 1);
        Ok(())
    }
}

/// Publishes the producer index of a queue.
fn ring_doorbell(life: &Life, doorbell: &Doorbell, queue: &WorkQueue) {
    life.domain.device.doorbells.work(doorbell, life.number.qp_number, queue.producer_index());
}

/// Sends that are posted with one doorbell, which is rung when the batch is dropped.
#[must_use = "dropping the batch rings the doorbell"]
pub struct SendBatch<'a> {
    half: &'a mut SendHalf,
    is_posted: bool,
}

impl SendBatch<'_> {
    /// Posts a request. The card may begin with it only after the doorbell.
    ///
    /// # Errors
    ///
    /// [`PostError`] returns the request if it is refused. Those before it remain posted.
    #[expect(clippy::result_large_err, reason = "the error returns the request without an allocation")]
    pub fn post(&mut self, mut request: SendRequest) -> Result<(), PostError<SendRequest>> {
        self.enqueue(&mut request).map_err(|reason| PostError { reason, request })
    }

    fn enqueue(&mut self, request: &mut SendRequest) -> Result<(), Refusal> {
        self.half.enqueue(request)?;
        self.is_posted = true;
        Ok(())
    }

    /// Posts a send whose memory stays where it is.
    pub(super) fn post_work(
        &mut self,
        wr_id: u64,
        work: &SendWork<'_>,
        signalled: bool,
    ) -> Result<(), Refusal> {
        self.half.enqueue_work(wr_id, work, signalled)?;
        self.is_posted = true;
        Ok(())
    }
}

impl Drop for SendBatch<'_> {
    fn drop(&mut self) {
        if self.is_posted {
            ring_doorbell(&self.half.life, &doorbell::SEND, &self.half.queue);
        }
    }
}

/// Receives that are posted with one doorbell, which is rung when the batch is dropped.
#[must_use = "dropping the batch rings the doorbell"]
pub struct ReceiveBatch<'a> {
    half: &'a mut ReceiveHalf,
    is_posted: bool,
}

impl ReceiveBatch<'_> {
    /// Posts a receive. The card may take it only after the doorbell.
    ///
    /// # Errors
    ///
    /// [`PostError`] returns the request if it is refused. Those before it remain posted.
    pub fn post(&mut self, mut request: ReceiveRequest) -> Result<(), PostError<ReceiveRequest>> {
        self.enqueue(&mut request).map_err(|reason| PostError { reason, request })
    }

    fn enqueue(&mut self, request: &mut ReceiveRequest) -> Result<(), Refusal> {
        self.half.enqueue(request)?;
        self.is_posted = true;
        Ok(())
    }

    /// Posts a receive whose memory stays where it is.
    pub(super) fn post_work(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), Refusal> {
        self.half.enqueue_work(wr_id, sges)?;
        self.is_posted = true;
        Ok(())
    }
}

impl Drop for ReceiveBatch<'_> {
    fn drop(&mut self) {
        if self.is_posted {
            ring_doorbell(&self.half.life, &doorbell::RECEIVE, &self.half.queue);
        }
    }
}

impl fmt::Debug for SendHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendHalf({:#x})", self.number())
    }
}

impl fmt::Debug for ReceiveHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiveHalf({:#x})", self.number())
    }
}
