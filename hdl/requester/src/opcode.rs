//! BTH opcodes of the packets that the requester sends and receives (protocol 1.4).
use rnic_layout::opcode::{Operation, Transport};

const fn reliable(operation: Operation) -> u64 {
    (Transport::Rc.base() | operation.code()) as u64
}

/// First packet of a SEND.
pub const SEND_FIRST: u64 = reliable(Operation::SendFirst);
/// Packet of a SEND that is neither its first nor its last.
pub const SEND_MIDDLE: u64 = reliable(Operation::SendMiddle);
/// Last packet of a SEND.
pub const SEND_LAST: u64 = reliable(Operation::SendLast);
/// Last packet of a SEND with immediate data.
pub const SEND_LAST_IMMEDIATE: u64 = reliable(Operation::SendLastImmediate);
/// Last packet of a SEND with Invalidate.
pub const SEND_LAST_INVALIDATE: u64 = reliable(Operation::SendLastInvalidate);
/// Only packet of a SEND.
pub const SEND_ONLY: u64 = reliable(Operation::SendOnly);
/// Only packet of a SEND with immediate data.
pub const SEND_ONLY_IMMEDIATE: u64 = reliable(Operation::SendOnlyImmediate);
/// Only packet of a SEND with Invalidate.
pub const SEND_ONLY_INVALIDATE: u64 = reliable(Operation::SendOnlyInvalidate);
/// First packet of a WRITE.
pub const WRITE_FIRST: u64 = reliable(Operation::WriteFirst);
/// Packet of a WRITE that is neither its first nor its last.
pub const WRITE_MIDDLE: u64 = reliable(Operation::WriteMiddle);
/// Last packet of a WRITE.
pub const WRITE_LAST: u64 = reliable(Operation::WriteLast);
/// Last packet of a WRITE with immediate data.
pub const WRITE_LAST_IMMEDIATE: u64 = reliable(Operation::WriteLastImmediate);
/// Only packet of a WRITE.
pub const WRITE_ONLY: u64 = reliable(Operation::WriteOnly);
/// Only packet of a WRITE with immediate data.
pub const WRITE_ONLY_IMMEDIATE: u64 = reliable(Operation::WriteOnlyImmediate);
/// Request of a READ.
pub const READ_REQUEST: u64 = reliable(Operation::ReadRequest);
/// Compare and swap.
pub const COMPARE_SWAP: u64 = reliable(Operation::CompareSwap);
/// Fetch and add.
pub const FETCH_ADD: u64 = reliable(Operation::FetchAdd);
/// First response to a READ.
pub const READ_RESPONSE_FIRST: u64 = reliable(Operation::ReadResponseFirst);
/// Response to a READ that is neither its first nor its last.
pub const READ_RESPONSE_MIDDLE: u64 = reliable(Operation::ReadResponseMiddle);
/// Last response to a READ.
pub const READ_RESPONSE_LAST: u64 = reliable(Operation::ReadResponseLast);
/// Only response to a READ.
pub const READ_RESPONSE_ONLY: u64 = reliable(Operation::ReadResponseOnly);
/// ACK or NAK.
pub const ACKNOWLEDGE: u64 = reliable(Operation::Acknowledge);
/// Response to an atomic.
pub const ATOMIC_ACKNOWLEDGE: u64 = reliable(Operation::AtomicAcknowledge);
/// Congestion notification packet (CNP).
pub const CONGESTION: u64 = (Transport::Cnp.base() | Operation::CongestionNotification.code()) as u64;
