//! Numbers of the contract, as constants that kernels can compare with.
use rnic_layout::opcode::{Operation, Transport};
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::queue::send::WqeOpcode;
use rnic_layout::state::{PathMtu, QpState, Service};
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// Nothing is sent and nothing is known.
pub const RESET: u64 = QpState::Reset as u64;
/// Requests of the peer are answered, none are sent.
pub const READY_TO_RECEIVE: u64 = QpState::ReadyToReceive as u64;
/// Everything works.
pub const READY_TO_SEND: u64 = QpState::ReadyToSend as u64;
/// Nothing new begins.
pub const SEND_QUEUE_DRAIN: u64 = QpState::SendQueueDrain as u64;
/// Sends are flushed.
pub const SEND_QUEUE_ERROR: u64 = QpState::SendQueueError as u64;
/// Everything is flushed.
pub const ERROR: u64 = QpState::Error as u64;

/// The only service that this requester sends for.
pub const RELIABLE: u64 = Service::ReliableConnected as u64;
/// The smallest PMTU; each code above it doubles.
pub const PMTU_256: u64 = PathMtu::Bytes256 as u64;
/// 512 bytes.
pub const PMTU_512: u64 = PathMtu::Bytes512 as u64;
/// 1,024 bytes.
pub const PMTU_1024: u64 = PathMtu::Bytes1024 as u64;
/// 2,048 bytes.
pub const PMTU_2048: u64 = PathMtu::Bytes2048 as u64;

/// Work: RDMA WRITE.
pub const WORK_WRITE: u64 = WqeOpcode::Write as u64;
/// Work: RDMA WRITE with immediate data.
pub const WORK_WRITE_IMMEDIATE: u64 = WqeOpcode::WriteImmediate as u64;
/// Work: SEND.
pub const WORK_SEND: u64 = WqeOpcode::Send as u64;
/// Work: SEND with immediate data.
pub const WORK_SEND_IMMEDIATE: u64 = WqeOpcode::SendImmediate as u64;

/// Work: RDMA READ.
pub const WORK_READ: u64 = WqeOpcode::Read as u64;
/// Work: compare and swap.
pub const WORK_COMPARE_SWAP: u64 = WqeOpcode::CompareSwap as u64;
/// Work: fetch and add.
pub const WORK_FETCH_ADD: u64 = WqeOpcode::FetchAdd as u64;

/// Work: SEND that ends a key of the peer.
pub const WORK_SEND_INVALIDATE: u64 = WqeOpcode::SendInvalidate as u64;
/// Work: the end of a key of this host.
pub const WORK_LOCAL_INVALIDATE: u64 = WqeOpcode::LocalInvalidate as u64;

/// How a SEND completes.
pub const COMPLETES_SEND: u64 = CompletionOpcode::Send as u64;
/// How a WRITE completes.
pub const COMPLETES_WRITE: u64 = CompletionOpcode::Write as u64;
/// How a READ completes.
pub const COMPLETES_READ: u64 = CompletionOpcode::Read as u64;
/// How a compare and swap completes.
pub const COMPLETES_COMPARE_SWAP: u64 = CompletionOpcode::CompareSwap as u64;
/// How a fetch and add completes.
pub const COMPLETES_FETCH_ADD: u64 = CompletionOpcode::FetchAdd as u64;
/// How the end of a key completes.
pub const COMPLETES_LOCAL_INVALIDATE: u64 = CompletionOpcode::LocalInvalidate as u64;

/// All went well.
pub const SUCCESS: u64 = CompletionStatus::Success as u64;
/// The message is too long, or its elements do not add up to it.
pub const LOCAL_LENGTH: u64 = CompletionStatus::LocalLength as u64;
/// The entry is malformed, or asks for something that this card does not do.
pub const LOCAL_OPERATION: u64 = CompletionStatus::LocalQueuePairOperation as u64;
/// A local key, bound or right did not hold.
pub const LOCAL_PROTECTION: u64 = CompletionStatus::LocalProtection as u64;
/// The queue pair had failed before.
pub const FLUSHED: u64 = CompletionStatus::Flushed as u64;
/// The peer answered with something that was not asked for.
pub const BAD_RESPONSE: u64 = CompletionStatus::BadResponse as u64;
/// NAK 0x61.
pub const REMOTE_INVALID_REQUEST: u64 = CompletionStatus::RemoteInvalidRequest as u64;
/// NAK 0x62.
pub const REMOTE_ACCESS: u64 = CompletionStatus::RemoteAccess as u64;
/// NAK 0x63.
pub const REMOTE_OPERATION: u64 = CompletionStatus::RemoteOperation as u64;
/// NAK 0x60, or a response that is missing, as long as nothing is sent again.
pub const RETRY_EXCEEDED: u64 = CompletionStatus::RetryExceeded as u64;
/// RNR NAK, as long as nothing is sent again.
pub const NOT_READY_RETRY_EXCEEDED: u64 = CompletionStatus::RnrRetryExceeded as u64;

/// The opcode of an operation of the reliable service.
const fn reliable(operation: Operation) -> u64 {
    (Transport::Rc.base() | operation.code()) as u64
}

/// First packet of a SEND.
pub const SEND_FIRST: u64 = reliable(Operation::SendFirst);
/// Neither the first nor the last.
pub const SEND_MIDDLE: u64 = reliable(Operation::SendMiddle);
/// Last packet of a SEND.
pub const SEND_LAST: u64 = reliable(Operation::SendLast);
/// Last packet of a SEND with immediate data.
pub const SEND_LAST_IMMEDIATE: u64 = reliable(Operation::SendLastImmediate);
/// A whole SEND.
pub const SEND_ONLY: u64 = reliable(Operation::SendOnly);
/// A whole SEND with immediate data.
pub const SEND_ONLY_IMMEDIATE: u64 = reliable(Operation::SendOnlyImmediate);
/// Last packet of a SEND that ends a key of the peer.
pub const SEND_LAST_INVALIDATE: u64 = reliable(Operation::SendLastInvalidate);
/// A whole SEND that ends a key of the peer.
pub const SEND_ONLY_INVALIDATE: u64 = reliable(Operation::SendOnlyInvalidate);
/// First packet of a WRITE.
pub const WRITE_FIRST: u64 = reliable(Operation::WriteFirst);
/// Neither the first nor the last.
pub const WRITE_MIDDLE: u64 = reliable(Operation::WriteMiddle);
/// Last packet of a WRITE.
pub const WRITE_LAST: u64 = reliable(Operation::WriteLast);
/// Last packet of a WRITE with immediate data.
pub const WRITE_LAST_IMMEDIATE: u64 = reliable(Operation::WriteLastImmediate);
/// A whole WRITE.
pub const WRITE_ONLY: u64 = reliable(Operation::WriteOnly);
/// A whole WRITE with immediate data.
pub const WRITE_ONLY_IMMEDIATE: u64 = reliable(Operation::WriteOnlyImmediate);
/// A READ.
pub const READ_REQUEST: u64 = reliable(Operation::ReadRequest);
/// A compare and swap.
pub const COMPARE_SWAP: u64 = reliable(Operation::CompareSwap);
/// A fetch and add.
pub const FETCH_ADD: u64 = reliable(Operation::FetchAdd);
/// First of the answers to a READ.
pub const READ_RESPONSE_FIRST: u64 = reliable(Operation::ReadResponseFirst);
/// Neither the first nor the last.
pub const READ_RESPONSE_MIDDLE: u64 = reliable(Operation::ReadResponseMiddle);
/// Last of several.
pub const READ_RESPONSE_LAST: u64 = reliable(Operation::ReadResponseLast);
/// The only one.
pub const READ_RESPONSE_ONLY: u64 = reliable(Operation::ReadResponseOnly);
/// ACK and NAK.
pub const ACKNOWLEDGE: u64 = reliable(Operation::Acknowledge);
/// The answer to an atomic.
pub const ATOMIC_ACKNOWLEDGE: u64 = reliable(Operation::AtomicAcknowledge);
/// A congestion notification.
pub const CONGESTION: u64 = (Transport::Cnp.base() | Operation::CongestionNotification.code()) as u64;

/// The asynchronous event of a queue pair whose work cannot be completed.
pub const FATAL_EVENT: u64 = AsyncEvent::QueuePairFatal as u64;
pub const DRAINED_EVENT: u64 = AsyncEvent::SendQueueDrained as u64;

/// Why an entry has no fields to look at: the host did not give the slot.
pub const REASON_UNREADABLE: u64 = 1;
/// `vendor_error`: the second slot of the entry was not posted.
pub const REASON_HALF_ENTRY: u64 = 2;
/// Why there is no entry: the producer index claims more slots than the ring has.
pub const REASON_OVERRUN: u64 = 3;
/// `vendor_error`: a field of the entry holds what it must not, or the opcode is none that this card does.
pub const REASON_MALFORMED: u64 = 4;
/// `vendor_error`: the host did not give the payload, or did not take it.
pub const REASON_PAYLOAD: u64 = 7;

/// `vendor_error`: no key of the domain that work may end.
pub const REASON_KEY: u64 = 8;

/// Bytes of an atomic.
pub const ATOMIC_BYTES: u64 = 8;

/// Queue pairs.
pub const QUEUE_PAIRS: u64 = 1 << QUEUE_PAIR_BITS;
