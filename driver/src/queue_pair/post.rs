//! Posting of work requests to a queue pair that is not split.

use super::halves::{ReceiveBatch, SendBatch};
use super::lifecycle::QueuePair;
use super::state::{PostReceive, PostSend};
use crate::post_error::{PostError, Refusal};
use crate::work_request::{ReceiveRequest, SendRequest};

impl<S: PostReceive> QueuePair<S> {
    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// [`PostError`] returns the request if it is refused.
    pub fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError<ReceiveRequest>> {
        self.halves.receive.post_receive(request)
    }

    /// Posts receives from the front of a list, with one doorbell. Posted requests are removed from the list.
    ///
    /// # Errors
    ///
    /// [`Refusal`] of the request that is now the first of the list; those before it were posted.
    pub fn post_receives(&mut self, requests: &mut Vec<ReceiveRequest>) -> Result<(), Refusal> {
        self.halves.receive.post_receives(requests)
    }

    /// Begins a list of receives with one doorbell, which is rung when the batch is dropped.
    pub fn receive_batch(&mut self) -> ReceiveBatch<'_> {
        self.halves.receive.batch()
    }
}

impl<S: PostSend> QueuePair<S> {
    /// Posts a send request: SEND, WRITE, READ, atomic or invalidate.
    ///
    /// # Errors
    ///
    /// [`PostError`] returns the request if it is refused.
    #[expect(clippy::result_large_err, reason = "the error returns the request without an allocation")]
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError<SendRequest>> {
        self.halves.send.post_send(request)
    }

    /// Posts send requests from the front of a list, with one doorbell. Posted requests are removed from the list.
    ///
    /// # Errors
    ///
    /// [`Refusal`] of the request that is now the first of the list; those before it were posted.
    pub fn post_sends(&mut self, requests: &mut Vec<SendRequest>) -> Result<(), Refusal> {
        self.halves.send.post_sends(requests)
    }

    /// Begins a list of send requests with one doorbell, which is rung when the batch is dropped.
    ///
    /// ```
    /// # use rnic_driver::{PostError, QueuePair, SendRequest, state::ReadyToSend};
    /// fn count(queue_pair: &mut QueuePair<ReadyToSend>) -> Result<(), PostError<SendRequest>> {
    ///     let mut batch = queue_pair.send_batch();
    ///     for number in 0..10u64 {
    ///         batch.post(SendRequest::send(number).inline(&number.to_be_bytes()))?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn send_batch(&mut self) -> SendBatch<'_> {
        self.halves.send.batch()
    }
}
