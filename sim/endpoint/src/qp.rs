//! Queue pairs: setup, WQEs, CQEs and asynchronous events.

use std::collections::{BTreeMap, VecDeque};

use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::registers;
use rnic_layout::state::QpState;
use rnic_layout::wire::bth::PARTITION_KEY_DEFAULT;

use super::memory::{Memory, Rights, Sge};
use super::packet::{Packet, Path};
use super::requester::Requester;
use super::responder::Responder;

/// When a request asks for an acknowledgement (protocol 2.4). READs and atomics are always answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckRequest {
    /// On the last packet of each message, and on each 32nd packet of a long one.
    EveryMessage,
    /// On every packet.
    EveryPacket,
    /// On the last packet of a signalled message, on the last packet if no other message waits to be sent, and on each 32nd
    /// packet.
    WhenNeeded,
}

/// Attributes of a queue pair. [`QueuePairSetup::new`] gives defaults, all of which may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairSetup {
    /// QPN of this queue pair.
    pub number: u32,
    /// QPN of the peer.
    pub peer: u32,
    /// Path to the peer.
    pub path: Path,
    /// Initial state.
    pub state: QpState,
    /// Protection domain.
    pub domain: u32,
    /// Remote rights; local rights have no meaning here.
    pub rights: Rights,
    /// Path MTU.
    pub pmtu: Pmtu,
    /// PSN of the first request.
    pub send_psn: Psn,
    /// PSN of the peer's first request.
    pub receive_psn: Psn,
    /// Partition key.
    pub partition_key: u16,
    /// Completion queue of sends.
    pub send_completions: u32,
    /// Completion queue of receives.
    pub receive_completions: u32,
    /// Shared receive queue, if receives come from one.
    pub shared_receives: Option<u32>,
    /// Every send completes with a CQE.
    pub signal_all: bool,
    /// When to ask for acknowledgements.
    pub ack_request: AckRequest,
    /// Maximum of unacknowledged packets.
    pub window_packets: u32,
    /// Maximum of outstanding READs and atomics as requester.
    pub read_atomic: u8,
    /// READs and atomics of the peer that the responder holds.
    pub destination_read_atomic: u8,
    /// Timer code of the RNR NAKs it sends.
    pub min_rnr_timer: u8,
    /// Code of the acknowledgement timeout; 0 disables it, so that a lost packet is not noticed.
    pub timeout: u8,
    /// Maximum of retransmissions of a packet. With 0, any loss that is noticed is an error.
    pub retry_count: u8,
    /// Maximum of retransmissions after RNR NAKs; 7 is unlimited.
    pub rnr_retry: u8,
    /// Reports the number of posted receives as credits, instead of the code for unlimited credits (protocol 2.9).
    pub credits: bool,
    /// A newer acknowledgement replaces one that was not sent yet (protocol 3.8).
    pub coalesce: bool,
}

impl QueuePairSetup {
    /// Makes a queue pair in RTS with PMTU 1024, all rights, PSNs from 0 on, domain 0, and completion queue 0. It never
    /// retransmits, unless `timeout` and `retry_count` are changed.
    pub const fn new(number: u32, peer: u32, path: Path) -> Self {
        Self {
            number,
            peer,
            path,
            state: QpState::ReadyToSend,
            domain: 0,
            rights: Rights::ALL,
            pmtu: Pmtu::Bytes1024,
            send_psn: Psn::ZERO,
            receive_psn: Psn::ZERO,
            partition_key: PARTITION_KEY_DEFAULT,
            send_completions: 0,
            receive_completions: 0,
            shared_receives: None,
            signal_all: false,
            ack_request: AckRequest::EveryMessage,
            window_packets: 128,
            read_atomic: 16,
            destination_read_atomic: 16,
            min_rnr_timer: 1,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            credits: false,
            coalesce: false,
        }
    }
}

/// Operation of a send WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SEND without immediate data.
    Send,
    /// SEND with immediate data, in wire order.
    SendImmediate([u8; 4]),
    /// SEND with invalidate of this R_Key.
    SendInvalidate(u32),
    /// RDMA WRITE.
    Write {
        /// Remote virtual address.
        address: u64,
        /// R_Key of the region.
        key: u32,
    },
    /// RDMA WRITE with immediate, which consumes a receive.
    WriteImmediate {
        /// Remote virtual address.
        address: u64,
        /// R_Key of the region.
        key: u32,
        /// Immediate data, in wire order.
        immediate: [u8; 4],
    },
    /// RDMA READ.
    Read {
        /// Remote virtual address.
        address: u64,
        /// R_Key of the region.
        key: u32,
    },
    /// Atomic compare and swap of eight bytes, an integer in host order.
    CompareSwap {
        /// Remote virtual address.
        address: u64,
        /// R_Key of the region.
        key: u32,
        /// Value that the memory must have.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Atomic fetch and add of eight bytes.
    FetchAdd {
        /// Remote virtual address.
        address: u64,
        /// R_Key of the region.
        key: u32,
        /// Value to add.
        add: u64,
    },
    /// Invalidates this local key after all earlier work requests have completed. It has no data.
    LocalInvalidate(u32),
}

impl Operation {
    /// Opcode in the CQE.
    pub const fn completion_opcode(&self) -> CompletionOpcode {
        match self {
            Self::Send | Self::SendImmediate(_) | Self::SendInvalidate(_) => CompletionOpcode::Send,
            Self::Write { .. } | Self::WriteImmediate { .. } => CompletionOpcode::Write,
            Self::Read { .. } => CompletionOpcode::Read,
            Self::CompareSwap { .. } => CompletionOpcode::CompareSwap,
            Self::FetchAdd { .. } => CompletionOpcode::FetchAdd,
            Self::LocalInvalidate(_) => CompletionOpcode::LocalInvalidate,
        }
    }

    /// Returns whether the peer answers with data: READs and atomics.
    pub const fn is_answered(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }
}

/// Payload of a message, or destination of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Scatter/gather list.
    Sges(Vec<Sge>),
    /// Inline data; no key is checked.
    Inline(Vec<u8>),
}

impl Data {
    /// No data.
    pub const EMPTY: Self = Self::Sges(Vec::new());

    /// Length of the message, in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// A send WQE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWqe {
    /// `wr_id`, which is returned in the CQE.
    pub wr_id: u64,
    /// Operation, with its operands.
    pub operation: Operation,
    /// Payload, or destination of the answer.
    pub data: Data,
    /// Complete with a CQE even on success.
    pub signalled: bool,
    /// Request a solicited event at the receiver.
    pub solicited: bool,
    /// Start only after all earlier READs and atomics have been answered.
    pub fence: bool,
}

impl SendWqe {
    /// Makes a signalled WQE.
    pub const fn new(wr_id: u64, operation: Operation, data: Data) -> Self {
        Self { wr_id, operation, data, signalled: true, solicited: false, fence: false }
    }
}

/// A receive WQE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveWqe {
    /// `wr_id`, which is returned in the CQE.
    pub wr_id: u64,
    /// Scatter list.
    pub sges: Vec<Sge>,
}

impl ReceiveWqe {
    /// Bytes that it has room for.
    pub fn length(&self) -> u64 {
        self.sges.iter().map(|sge| u64::from(sge.length)).sum()
    }
}

/// The two queues of a queue pair. Each completes in the order of posting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// Send queue.
    Send,
    /// Receive queue.
    Receive,
}

/// A CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// QPN of the queue pair.
    pub qp_number: u32,
    /// Queue to which the WQE was posted.
    pub queue: Queue,
    /// `wr_id` of the WQE.
    pub wr_id: u64,
    /// Status of the WQE.
    pub status: CompletionStatus,
    /// Operation. Undefined for receives that failed.
    pub opcode: CompletionOpcode,
    /// Bytes received or read. Zero on errors, and for operations that only send.
    pub length: u32,
    /// Immediate data, in wire order.
    pub immediate: Option<[u8; 4]>,
    /// Key that the peer has invalidated.
    pub invalidated: Option<u32>,
    /// The sender requested a solicited event.
    pub solicited: bool,
}

impl Completion {
    /// Makes a CQE of an error.
    pub(super) const fn error(
        qp_number: u32,
        queue: Queue,
        wr_id: u64,
        status: CompletionStatus,
        opcode: CompletionOpcode,
    ) -> Self {
        let (length, immediate, invalidated, solicited) = (0, None, None, false);
        Self { qp_number, queue, wr_id, status, opcode, length, immediate, invalidated, solicited }
    }
}

/// An asynchronous event of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// QPN of the queue pair.
    pub qp_number: u32,
    /// Kind of event.
    pub kind: AsyncEvent,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A request was executed.
    Executed,
    /// A request was refused with a NAK.
    Refused,
    /// A duplicate request was answered again.
    Duplicate,
    /// A response acknowledged or completed work, or a congestion notification was accepted.
    Answered,
    /// The frame was dropped; the name of the card's counter for the reason.
    Dropped(&'static str),
}

/// State that is common to all queue pairs.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) memory: Memory,
    pub(super) completions: BTreeMap<u32, VecDeque<Completion>>,
    pub(super) events: VecDeque<Event>,
    pub(super) shared_receives: BTreeMap<u32, VecDeque<ReceiveWqe>>,
    pub(super) counters: BTreeMap<&'static str, u64>,
    pub(super) now_ps: u64,
}

impl Host {
    /// Increments a counter, under the name of the card's counter for the same event.
    pub(super) fn count(&mut self, name: &'static str) {
        debug_assert!(registers::COUNTERS.iter().any(|counter| counter.name == name), "{name}");
        *self.counters.entry(name).or_default() += 1;
    }

    pub(super) fn complete(&mut self, queue_number: u32, completion: Completion) {
        self.completions.entry(queue_number).or_default().push_back(completion);
    }

    pub(super) fn raise(&mut self, qp_number: u32, kind: AsyncEvent) {
        self.events.push_back(Event { qp_number, kind });
    }
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) setup: QueuePairSetup,
    pub(super) state: QpState,
    pub(super) receives: VecDeque<ReceiveWqe>,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    /// The event that it takes no more shared receives was raised (protocol 4.5).
    is_last_said: bool,
    identification: u16,
}

impl QueuePair {
    pub(super) fn new(setup: QueuePairSetup) -> Self {
        Self {
            setup,
            state: setup.state,
            receives: VecDeque::new(),
            requester: Requester::new(&setup),
            responder: Responder::new(setup.receive_psn),
            is_last_said: false,
            identification: 0,
        }
    }

    /// Makes the frame of a packet, with an IPv4 identification that counts up.
    pub(super) fn frame(&mut self, packet: &Packet) -> Vec<u8> {
        self.identification = self.identification.wrapping_add(1);
        packet.frame(&self.setup.path, self.identification)
    }

    pub(super) fn post_receive(&mut self, host: &mut Host, work: ReceiveWqe) {
        self.receives.push_back(work);
        if self.state == QpState::Error {
            self.flush_receives(host);
        }
    }

    pub(super) fn post_send(&mut self, host: &mut Host, work: SendWqe) {
        self.requester.queue.push_back(work.into());
        if self.state == QpState::Error {
            self.flush_sends(host);
        }
    }

    /// Enters ERR: flushes all posted work. Responses that are pending are still sent, among them the NAK with the reason
    /// (protocol 2.11 and 4.1).
    pub(super) fn fail(&mut self, host: &mut Host) {
        self.state = QpState::Error;
        self.requester.stop();
        self.flush_sends(host);
        self.flush_receives(host);
        if self.setup.shared_receives.is_some() && !self.is_last_said {
            self.is_last_said = true;
            host.raise(self.setup.number, AsyncEvent::LastWqeReached);
        }
    }

    /// Takes the oldest receive.
    pub(super) fn next_receive(&mut self, host: &mut Host) -> Option<ReceiveWqe> {
        match self.setup.shared_receives {
            Some(number) => host.shared_receives.get_mut(&number)?.pop_front(),
            None => self.receives.pop_front(),
        }
    }

    /// Executes a modify command.
    pub(super) fn modify(&mut self, host: &mut Host, state: QpState) {
        match state {
            QpState::Reset => *self = Self { state, ..Self::new(self.setup) },
            QpState::Error => {
                self.responder.replies.clear();
                self.fail(host);
            }
            _ => self.state = state,
        }
    }

    fn flush_sends(&mut self, host: &mut Host) {
        let (number, status) = (self.setup.number, CompletionStatus::Flushed);
        for message in self.requester.queue.drain(..) {
            let (wr_id, opcode) = (message.work.wr_id, message.work.operation.completion_opcode());
            let completion = Completion::error(number, Queue::Send, wr_id, status, opcode);
            host.complete(self.setup.send_completions, completion);
        }
    }

    fn flush_receives(&mut self, host: &mut Host) {
        let (number, status) = (self.setup.number, CompletionStatus::Flushed);
        let held = self.responder.held.take();
        for work in held.into_iter().chain(self.receives.drain(..)) {
            let opcode = CompletionOpcode::Receive;
            let completion = Completion::error(number, Queue::Receive, work.wr_id, status, opcode);
            host.complete(self.setup.receive_completions, completion);
        }
    }
}
