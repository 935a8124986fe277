//! Requests that have failed, with what to check.

use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};

/// A request that was posted and could not be carried out, from [`Completion::check`](crate::Completion::check).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "request {wr_id} ({}) of queue pair {qp_number:#x} has failed: {}, vendor error {vendor_error:#x}; {}",
    opcode.name(),
    status.name(),
    self.hint()
)]
#[non_exhaustive]
pub struct FailedRequest {
    /// `wr_id` of the request.
    pub wr_id: u64,
    /// QPN of the queue pair.
    pub qp_number: u32,
    /// Kind of operation.
    pub opcode: CompletionOpcode,
    /// Kind of failure.
    pub status: CompletionStatus,
    /// The syndrome of the peer's NAK, or a code of the card.
    pub vendor_error: u8,
}

impl FailedRequest {
    /// Says what the status means, and what to check.
    pub fn hint(&self) -> &'static str {
        hint(self.status)
    }
}

/// What a status means, and what to check.
fn hint(status: CompletionStatus) -> &'static str {
    use CompletionStatus::*;
    match status {
        Success => "it has succeeded",
        LocalLength => {
            "the message is longer than the memory of the receive, or than the card allows; post longer receives, or split the message"
        }
        LocalQueuePairOperation => {
            "the card found the WQE malformed, or no address or queue for it; check that both ends are connected, and report this"
        }
        LocalProtection => {
            "memory of this host was refused; check that the region of each SGE still exists, and is of the protection domain of the queue pair"
        }
        Flushed => {
            "the queue pair had failed or was reset before; look for the first request that failed, or the asynchronous event, and connect again"
        }
        BadResponse => {
            "the peer's answer does not fit the request; check that no other host uses its address, and report this"
        }
        LocalAccess => {
            "memory of this host was refused while a message was placed; check the rights of the region"
        }
        RemoteInvalidRequest => {
            "the peer takes no such request; check its rights for WRITE, READ and atomics in INIT, its `destination_read_atomic`, \
             and that its receives are long enough"
        }
        RemoteAccess => {
            "the peer refused access to its memory; check key, address and length of the remote memory, the rights of its region, \
             and that the region still exists"
        }
        RemoteOperation => {
            "the peer could not complete the request; look for the failed completion or event there"
        }
        RetryExceeded => {
            "the peer has not answered after all retries; check that it is connected to this QPN, its addresses and PSN, and the link; \
             a simulated or slow peer needs a longer `SendOptions::timeout`"
        }
        RnrRetryExceeded => {
            "the peer had no receive posted after all RNR retries; post receives before the peer sends, or raise \
             `SendOptions::rnr_retry` (7 has no limit)"
        }
        RemoteAborted => "the peer has aborted the request; look for the reason there",
        Fatal => "the card has failed; drop every object and open it again, which resets it",
        General => "the card gives no closer reason; check the device and its counters, and report this",
        LocalEndToEndContext
        | WindowBind
        | LocalDomainViolation
        | RemoteInvalidReadRequest
        | InvalidEndToEndNumber
        | InvalidEndToEndState
        | ResponseTimeout
        | TagMatching
        | TagMatchingIncomplete => "this card has no operation that fails so; report this",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_says_what_to_do() {
        for &status in CompletionStatus::ALL {
            let error = FailedRequest {
                wr_id: 7,
                qp_number: 0x11,
                opcode: CompletionOpcode::Write,
                status,
                vendor_error: 0x62,
            };
            let text = error.to_string();
            let begin = format!(
                "request 7 (write) of queue pair 0x11 has failed: {}, vendor error 0x62; ",
                status.name()
            );
            assert!(text.starts_with(&begin) && text.len() > begin.len() + 10, "{text}");
        }
    }

    #[test]
    fn what_newcomers_meet_names_the_option() {
        assert!(hint(CompletionStatus::RnrRetryExceeded).contains("post receives before"));
        assert!(hint(CompletionStatus::RemoteAccess).contains("rights of its region"));
        assert!(hint(CompletionStatus::RetryExceeded).contains("SendOptions::timeout"));
    }
}
