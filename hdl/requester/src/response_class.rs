//! Answer: what a packet of the peer's responder means, from its opcode and its syndrome.
//!
//! | Opcode | Syndrome | Meaning |
//! |---|---|---|
//! | ACK | 0x00 to 0x1f | everything up to its PSN has arrived; credits are ignored (protocol 2.9) |
//! | ACK | 0x20 to 0x3f | everything before its PSN has arrived; the peer was not ready for that one |
//! | ACK | 0x60 to 0x63 | everything before its PSN has arrived; that one was refused |
//! | ACK | others | reserved |
//! | READ responses, atomic ACK | any | data |
//! | CNP | | congestion |
//! | others | | nothing that was asked for |
//!
//! Protocol 1.4, 1.6, 2.5, 2.11.
use crate::constants::{
    ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE, BAD_RESPONSE, CONGESTION, NOT_READY_RETRY_EXCEEDED, READ_RESPONSE_FIRST,
    READ_RESPONSE_ONLY, REMOTE_ACCESS, REMOTE_INVALID_REQUEST, REMOTE_OPERATION, RETRY_EXCEEDED,
};
use rnic_kernel::prelude::*;
use rnic_messages::read::ReturnedAnswer;

/// Bits 7:5 of a syndrome: ACK.
const ACK: u64 = 0b000;
/// RNR NAK.
const NOT_READY: u64 = 0b001;
/// NAK.
const NAK: u64 = 0b011;

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(crate) enum Meaning {
    /// An ACK.
    Progress,
    /// NAK 0x60 to 0x63.
    Refusal,
    /// RNR NAK.
    NotReady,
    /// A reserved syndrome.
    Reserved,
    /// A response to a READ or an atomic.
    ReadData,
    /// Anything else.
    Other,
    /// A CNP.
    Congestion,
    /// Data up to its PSN is in memory: everything up to there has arrived.
    Placed,
    /// The READ at its PSN has failed; everything before has arrived.
    Failure,
}

/// Says what an answer means.
#[kernel]
pub(crate) fn meaning(opcode: Bits<8>, syndrome: Bits<8>) -> Meaning {
    let class = syndrome.get_bits::<3>(5);
    let spoken = if class == ACK {
        Meaning::Progress
    } else if class == NOT_READY {
        Meaning::NotReady
    } else if class == NAK && !syndrome.get_bits::<3>(2).any() {
        Meaning::Refusal
    } else {
        Meaning::Reserved
    };
    match opcode.to_u64() {
        ACKNOWLEDGE => spoken,
        READ_RESPONSE_FIRST..=READ_RESPONSE_ONLY | ATOMIC_ACKNOWLEDGE => Meaning::ReadData,
        CONGESTION => Meaning::Congestion,
        _ => Meaning::Other,
    }
}

/// Says what comes back from the place stage means.
#[kernel]
pub(crate) fn returned_meaning(answer: ReturnedAnswer) -> Meaning {
    let said = meaning(bits::<8>(ACKNOWLEDGE), answer.syndrome);
    if answer.is_failure || (answer.is_placed && answer.has_failed) {
        Meaning::Failure
    } else if answer.is_placed {
        Meaning::Placed
    } else if answer.is_unasked {
        Meaning::ReadData
    } else if answer.is_said {
        said
    } else {
        Meaning::Congestion
    }
}

/// Says how the message that an answer refuses ends: a `CompletionStatus`.
#[kernel]
pub(crate) fn status(meaning: Meaning, syndrome: Bits<8>) -> Bits<8> {
    let refusal = match syndrome.get_bits::<2>(0).to_u64() {
        0 => bits::<8>(RETRY_EXCEEDED),
        1 => bits::<8>(REMOTE_INVALID_REQUEST),
        2 => bits::<8>(REMOTE_ACCESS),
        _ => bits::<8>(REMOTE_OPERATION),
    };
    match meaning {
        Meaning::NotReady => bits::<8>(NOT_READY_RETRY_EXCEEDED),
        Meaning::ReadData => bits::<8>(BAD_RESPONSE),
        _ => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::opcode::{Operation, Transport};
    use rnic_layout::queue::completion::CompletionStatus;
    use rnic_layout::syndrome::{NakCode, Syndrome};

    #[test]
    fn every_syndrome_of_an_acknowledgement_means_what_the_layout_says() {
        for byte in 0..=255u8 {
            let syndrome = bits::<8>(u64::from(byte));
            let found = meaning(bits(ACKNOWLEDGE), syndrome);
            let (expected, ends) = match Syndrome::parse(byte) {
                Syndrome::Ack { .. } => (Meaning::Progress, None),
                Syndrome::RnrNak { .. } => (Meaning::NotReady, Some(CompletionStatus::RnrRetryExceeded)),
                Syndrome::Nak(NakCode::PsnSequenceError) => {
                    (Meaning::Refusal, Some(CompletionStatus::RetryExceeded))
                }
                Syndrome::Nak(NakCode::InvalidRequest) => {
                    (Meaning::Refusal, Some(CompletionStatus::RemoteInvalidRequest))
                }
                Syndrome::Nak(NakCode::RemoteAccessError) => {
                    (Meaning::Refusal, Some(CompletionStatus::RemoteAccess))
                }
                Syndrome::Nak(NakCode::RemoteOperationalError) => {
                    (Meaning::Refusal, Some(CompletionStatus::RemoteOperation))
                }
                Syndrome::Nak(NakCode::InvalidRdRequest) | Syndrome::Reserved(_) => (Meaning::Reserved, None),
            };
            assert_eq!(found, expected, "syndrome {byte:#x}");
            if let Some(ends) = ends {
                assert_eq!(status(found, syndrome), bits(ends as u64), "syndrome {byte:#x}");
            }
        }
    }

    #[test]
    fn every_opcode_means_what_its_operation_is() {
        for code in 0..=255u8 {
            let is = |operation: Operation| code == Transport::Rc.base() | operation.code();
            let reads = [
                Operation::ReadResponseFirst,
                Operation::ReadResponseMiddle,
                Operation::ReadResponseLast,
                Operation::ReadResponseOnly,
                Operation::AtomicAcknowledge,
            ];
            let expected = if is(Operation::Acknowledge) {
                Meaning::Reserved
            } else if reads.into_iter().any(is) {
                Meaning::ReadData
            } else if code == 0x81 {
                Meaning::Congestion
            } else {
                Meaning::Other
            };
            assert_eq!(meaning(bits(u64::from(code)), bits(0x80)), expected, "opcode {code:#x}");
        }
        let ends = bits(CompletionStatus::BadResponse as u64);
        assert_eq!(status(Meaning::ReadData, bits(0x62)), ends, "whatever its AETH says");
    }
}
