//! Posting of work requests to a queue pair.

use super::lifecycle::QueuePair;
use super::state::{PostReceive, PostSend};
use crate::post_error::{PostError, Refusal};
use crate::sync::lock;
use crate::work_queue::post_list;
use crate::work_request::{ReceiveRequest, SendRequest};
use rnic_layout::doorbell;

impl<S: PostReceive> QueuePair<S> {
    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// [`PostError`] returns the request if it is refused.
    pub fn post_receive(&mut self, mut request: ReceiveRequest) -> Result<(), PostError<ReceiveRequest>> {
        let shared = self.shared();
        let mut queue = lock(&shared.receive);
        if let Err(reason) = shared.enqueue_receive(&mut queue, &mut request) {
            return Err(PostError { reason, request });
        }
        shared.ring_doorbell(&doorbell::RECEIVE, &queue);
        Ok(())
    }

    /// Posts receives from the front of a list, with one doorbell. Posted requests are removed from the list.
    ///
    /// # Errors
    ///
    /// [`Refusal`] of the request that is now the first of the list; those before it were posted.
    pub fn post_receives(&mut self, requests: &mut Vec<ReceiveRequest>) -> Result<(), Refusal> {
        let shared = self.shared();
        let mut queue = lock(&shared.receive);
        let (count, result) = post_list(requests, |request| shared.enqueue_receive(&mut queue, request));
        if count != 0 {
            shared.ring_doorbell(&doorbell::RECEIVE, &queue);
        }
        result
    }
}

impl<S: PostSend> QueuePair<S> {
    /// Posts a send request: SEND, WRITE, READ, atomic or invalidate.
    ///
    /// # Errors
    ///
    /// [`PostError`] returns the request if it is refused.
    #[expect(clippy::result_large_err, reason = "the error returns the request without an allocation")]
    pub fn post_send(&mut self, mut request: SendRequest) -> Result<(), PostError<SendRequest>> {
        let shared = self.shared();
        let mut queue = lock(&shared.send);
        if let Err(reason) = shared.enqueue_send(&mut queue, &mut request, self.read_atomic()) {
            return Err(PostError { reason, request });
        }
        shared.ring_doorbell(&doorbell::SEND, &queue);
        Ok(())
    }

    /// Posts send requests from the front of a list, with one doorbell. Posted requests are removed from the list.
    ///
    /// # Errors
    ///
    /// [`Refusal`] of the request that is now the first of the list; those before it were posted.
    pub fn post_sends(&mut self, requests: &mut Vec<SendRequest>) -> Result<(), Refusal> {
        let shared = self.shared();
        let mut queue = lock(&shared.send);
        let read_atomic = self.read_atomic();
        let (count, result) =
            post_list(requests, |request| shared.enqueue_send(&mut queue, request, read_atomic));
        if count != 0 {
            shared.ring_doorbell(&doorbell::SEND, &queue);
        }
        result
    }
}
