//! Reasons why a work request is not posted.

use std::fmt;

/// Reason why a work request is refused. The request was not posted, and its memory still belongs to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The work queue has too few free slots.
    #[error("the queue needs {needed} free slots and has {free}; poll completions, and post again")]
    QueueFull {
        /// Slots that the request occupies.
        needed: u16,
        /// Slots that are free.
        free: u16,
    },
    /// All CQEs of the completion queue are reserved: it would overrun if all requests in flight completed at once.
    #[error("all {entries} CQEs of the completion queue are reserved; poll completions, and post again")]
    CompletionQueueFull {
        /// Number of CQEs of the queue.
        entries: u32,
    },
    /// More SGEs than a WQE of this kind, or this card, supports.
    #[error("the request has {count} SGEs; {allowed} are allowed")]
    TooManySges {
        /// SGEs of the request.
        count: usize,
        /// Largest number allowed.
        allowed: usize,
    },
    /// More inline payload than a WQE, or this card, supports.
    #[error("the request has {length} inline bytes; {allowed} are allowed, and more go in a region")]
    InlineTooLong {
        /// Inline payload in bytes.
        length: usize,
        /// Largest length allowed, in bytes.
        allowed: usize,
    },
    /// READ or atomic on a queue pair whose [`SendOptions::read_atomic`](crate::SendOptions::read_atomic) is zero.
    #[error(
        "no READ or atomic may be in flight on this queue pair; set `read_atomic` to 1 or more when it goes to RTS"
    )]
    ReadsNotAllowed,
    /// READ or atomic with inline payload.
    #[error("a READ or an atomic has no payload; add the memory that it fills as an SGE")]
    InlineRead,
    /// Local invalidate with SGEs or inline payload.
    #[error("a local invalidate has neither payload nor SGEs")]
    InvalidateWithPayload,
    /// Atomic whose memory is not one SGE of eight bytes.
    #[error("the atomic has {count} SGEs with {length} bytes; one of 8 bytes is needed")]
    AtomicMemory {
        /// SGEs of the request.
        count: usize,
        /// Sum of their lengths in bytes.
        length: usize,
    },
    /// Atomic on a remote address that is not a multiple of eight.
    #[error("the remote address of the atomic is {address:#x}; a multiple of 8 is needed")]
    Misaligned {
        /// The remote address.
        address: u64,
    },
    /// Both inline payload and SGEs.
    #[error("the request has inline payload and SGEs; use one of them")]
    InlineWithSges,
    /// The message, or one SGE of a receive, is longer than the card supports.
    #[error("the message has {length} bytes; {allowed} are allowed, so split it")]
    TooLong {
        /// Length in bytes.
        length: usize,
        /// Largest length allowed, in bytes.
        allowed: u64,
    },
    /// The message is longer than the remote memory.
    #[error("the message has {length} bytes, and the remote memory {remote}; make the message shorter")]
    RemoteTooShort {
        /// Length of the message in bytes.
        length: usize,
        /// Size of the remote memory in bytes.
        remote: u64,
    },
    /// The queue pair takes its receives from an SRQ.
    #[error("the queue pair receives from a shared receive queue; post to that queue")]
    UsesSharedReceiveQueue,
    /// The state of the queue pair does not allow the request.
    #[error("the queue pair is not in a state for this; move it to INIT for receives, and to RTS for sends")]
    NotInThisState,
    /// An SGE belongs to another protection domain than the queue pair or SRQ.
    #[error("an SGE belongs to another protection domain; allocate it from that of the queue")]
    OtherDomain,
}

/// A work request that was not posted, and the reason.
///
/// `?` turns it into an [`Error`](crate::Error), which has the reason only, or into any error that takes errors of threads, which has the
/// request too.
///
/// ```
/// # use rnic_driver::{Error, PostError, QueuePair, Refusal, SendRequest, state::ReadyToSend};
/// fn post(queue_pair: &mut QueuePair<ReadyToSend>, request: SendRequest) -> Result<Option<SendRequest>, Error> {
///     match queue_pair.post_send(request) {
///         // It comes back whole, to be posted again once something has completed.
///         Err(PostError { reason: Refusal::QueueFull { .. }, request }) => Ok(Some(request)),
///         posted => Ok(posted.map(|()| None)?),
///     }
/// }
/// ```
pub struct PostError<R> {
    /// Reason of the refusal.
    pub reason: Refusal,
    /// The request, unchanged.
    pub request: R,
}

impl<R> fmt::Debug for PostError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostError").field(&self.reason).finish()
    }
}

impl<R> fmt::Display for PostError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<R> std::error::Error for PostError<R> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work_request::{ReceiveRequest, SendRequest};

    #[test]
    fn errors_of_threads_take_a_refused_request_and_give_it_back() {
        fn post() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            Err(PostError { reason: Refusal::NotInThisState, request: SendRequest::send(7) })?
        }
        let refused = post().unwrap_err().downcast::<PostError<SendRequest>>().unwrap();
        assert_eq!((refused.reason, refused.request.wr_id), (Refusal::NotInThisState, 7));
    }

    #[test]
    fn the_error_of_the_driver_takes_the_reason() {
        fn post() -> Result<(), crate::Error> {
            Err(PostError { reason: Refusal::NotInThisState, request: ReceiveRequest::new(7) })?
        }
        let error = post().unwrap_err();
        assert!(matches!(error, crate::Error::Refused(Refusal::NotInThisState)), "{error:?}");
        assert!(
            error.to_string().starts_with("the request was not posted: the queue pair is not in a state")
        );
    }
}
