//! ResponseClass: the meaning of a packet from the peer's responder, from its opcode and its syndrome.
//!
//! | Opcode | Syndrome | ResponseClass |
//! |---|---|---|
//! | ACK | 0x00 to 0x1f | everything up to its PSN was executed; credits are ignored (protocol 2.9) |
//! | ACK | 0x20 to 0x3f | everything before its PSN was executed; the peer was not ready for that one |
//! | ACK | 0x60 to 0x63 | everything before its PSN was executed; that one was refused |
//! | ACK | others | reserved |
//! | FIRST, LAST or ONLY of a READ, atomic ACK | 0x00 to 0x1f | data |
//! | MIDDLE of a READ | none | data |
//! | FIRST, LAST or ONLY of a READ, atomic ACK | others | reserved: the answer is no data, and the packet no ACK |
//! | CNP | | congestion |
//! | others | | answers no request |
//!
//! Protocol 1.4, 1.6, 2.5, 2.11.
use crate::opcode::{
    ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE, CONGESTION, READ_RESPONSE_FIRST, READ_RESPONSE_MIDDLE,
    READ_RESPONSE_ONLY,
};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_messages::read::ResponseNotice;

/// Class of the syndrome of an ACK, in bits 7:5.
const ACK: u64 = 0b000;
/// Class of an RNR NAK.
const NOT_READY: u64 = 0b001;
/// Class of a NAK.
const NAK: u64 = 0b011;

/// Meaning of a response.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(crate) enum ResponseClass {
    /// An ACK.
    Progress,
    /// NAK with code 0 to 3.
    Refusal,
    /// RNR NAK.
    NotReady,
    /// A reserved syndrome.
    Reserved,
    /// A response to a READ or an atomic.
    ReadData,
    /// Any other packet: it answers no request.
    Other,
    /// A CNP.
    Congestion,
    /// Data up to its PSN is in host memory: everything up to there was executed.
    Placed,
    /// The READ at its PSN has failed; everything before it was executed.
    Failure,
}

/// Classifies a packet.
#[kernel]
pub(crate) fn classify(opcode: Bits<8>, syndrome: Bits<8>) -> ResponseClass {
    let class = syndrome.get_bits::<3>(5);
    let spoken = if class == ACK {
        ResponseClass::Progress
    } else if class == NOT_READY {
        ResponseClass::NotReady
    } else if class == NAK && !syndrome.get_bits::<3>(2).any() {
        ResponseClass::Refusal
    } else {
        ResponseClass::Reserved
    };
    let answer = if class == ACK { ResponseClass::ReadData } else { ResponseClass::Reserved };
    match opcode.to_u64() {
        ACKNOWLEDGE => spoken,
        READ_RESPONSE_MIDDLE => ResponseClass::ReadData,
        READ_RESPONSE_FIRST..=READ_RESPONSE_ONLY | ATOMIC_ACKNOWLEDGE => answer,
        CONGESTION => ResponseClass::Congestion,
        _ => ResponseClass::Other,
    }
}

/// Classifies a notice of the place stage.
#[kernel]
pub(crate) fn classify_returned(notice: ResponseNotice) -> ResponseClass {
    let acknowledge = classify(bits::<8>(ACKNOWLEDGE), notice.syndrome);
    if notice.is_read_error || (notice.is_placed && notice.write_failed) {
        ResponseClass::Failure
    } else if notice.is_placed {
        ResponseClass::Placed
    } else if notice.is_unexpected {
        ResponseClass::ReadData
    } else if notice.is_acknowledge {
        acknowledge
    } else {
        ResponseClass::Congestion
    }
}

/// Status of the message that a response refuses: a `CompletionStatus`.
#[kernel]
pub(crate) fn status(class: ResponseClass, syndrome: Bits<8>) -> Bits<8> {
    let refusal = match syndrome.get_bits::<2>(0).to_u64() {
        0 => bits::<8>(CompletionStatus::RetryExceeded as u64),
        1 => bits::<8>(CompletionStatus::RemoteInvalidRequest as u64),
        2 => bits::<8>(CompletionStatus::RemoteAccess as u64),
        _ => bits::<8>(CompletionStatus::RemoteOperation as u64),
    };
    match class {
        ResponseClass::NotReady => bits::<8>(CompletionStatus::RnrRetryExceeded as u64),
        ResponseClass::ReadData => bits::<8>(CompletionStatus::BadResponse as u64),
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
            let found = classify(bits(ACKNOWLEDGE), syndrome);
            let (expected, ends) = match Syndrome::parse(byte) {
                Syndrome::Ack { .. } => (ResponseClass::Progress, None),
                Syndrome::RnrNak { .. } => {
                    (ResponseClass::NotReady, Some(CompletionStatus::RnrRetryExceeded))
                }
                Syndrome::Nak(NakCode::PsnSequenceError) => {
                    (ResponseClass::Refusal, Some(CompletionStatus::RetryExceeded))
                }
                Syndrome::Nak(NakCode::InvalidRequest) => {
                    (ResponseClass::Refusal, Some(CompletionStatus::RemoteInvalidRequest))
                }
                Syndrome::Nak(NakCode::RemoteAccessError) => {
                    (ResponseClass::Refusal, Some(CompletionStatus::RemoteAccess))
                }
                Syndrome::Nak(NakCode::RemoteOperationalError) => {
                    (ResponseClass::Refusal, Some(CompletionStatus::RemoteOperation))
                }
                Syndrome::Nak(NakCode::InvalidRdRequest) | Syndrome::Reserved(_) => {
                    (ResponseClass::Reserved, None)
                }
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
            let with_aeth = [
                Operation::ReadResponseFirst,
                Operation::ReadResponseLast,
                Operation::ReadResponseOnly,
                Operation::AtomicAcknowledge,
            ];
            // With the syndrome of an ACK, with a NAK, and with a reserved one.
            let expected = if is(Operation::Acknowledge) {
                [ResponseClass::Progress, ResponseClass::Refusal, ResponseClass::Reserved]
            } else if is(Operation::ReadResponseMiddle) {
                [ResponseClass::ReadData; 3]
            } else if with_aeth.into_iter().any(is) {
                [ResponseClass::ReadData, ResponseClass::Reserved, ResponseClass::Reserved]
            } else if code == 0x81 {
                [ResponseClass::Congestion; 3]
            } else {
                [ResponseClass::Other; 3]
            };
            let found = [0x1f, 0x62, 0x80].map(|syndrome| classify(bits(u64::from(code)), bits(syndrome)));
            assert_eq!(found, expected, "opcode {code:#x}");
        }
        let ends = bits(CompletionStatus::BadResponse as u64);
        assert_eq!(status(ResponseClass::ReadData, bits(0x1f)), ends);
    }
}
