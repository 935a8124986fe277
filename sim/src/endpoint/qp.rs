//! A queue pair: what it is set up with, what is posted to it, what comes back.

use std::collections::{BTreeMap, VecDeque};

use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::registers;
use rnic_layout::state::QpState;
use rnic_layout::wire::bth::PARTITION_KEY_DEFAULT;

use super::memory::{Element, Memory, Rights};
use super::packet::{Packet, Path};
use super::requester::Requester;
use super::responder::Responder;

/// When a request asks for an acknowledgement (protocol 2.4). READs and atomics are answered anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckRequest {
    /// On the last packet of each message, and on each 32nd packet of a long one.
    EveryMessage,
    /// On every packet.
    EveryPacket,
    /// On the last packet of a signalled message, on the last one when nothing else waits to be sent, and on each
    /// 32nd packet.
    WhenNeeded,
}

/// What a queue pair is made with. All of it can be changed by whoever makes it; [`QueuePairSetup::new`] fills in the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairSetup {
    /// Own number.
    pub number: u32,
    /// The peer's number.
    pub peer: u32,
    /// The way to the peer.
    pub path: Path,
    /// State to begin in.
    pub state: QpState,
    /// Protection domain.
    pub domain: u32,
    /// What the peer may do; local rights mean nothing here.
    pub rights: Rights,
    /// Payload of a packet at most.
    pub pmtu: Pmtu,
    /// PSN of the first request.
    pub send_psn: Psn,
    /// PSN of the peer's first request.
    pub receive_psn: Psn,
    /// Partition.
    pub partition_key: u16,
    /// Completion queue of sends.
    pub send_completions: u32,
    /// Completion queue of receives.
    pub receive_completions: u32,
    /// Receives come from this shared receive queue.
    pub shared_receives: Option<u32>,
    /// Every send makes a completion.
    pub signal_all: bool,
    /// When to ask for acknowledgements.
    pub ack_request: AckRequest,
    /// Packets that may be unacknowledged.
    pub window_packets: u32,
    /// READs and atomics that may be unanswered.
    pub read_atomic: u8,
    /// READs and atomics of the peer that are kept.
    pub destination_read_atomic: u8,
    /// Delay code of RNR NAKs sent.
    pub min_rnr_timer: u8,
    /// Code of the acknowledgement time-out; 0 means none, so that a lost packet stays lost.
    pub timeout: u8,
    /// Times that the same packet is sent again. 0 makes any loss that is noticed an error.
    pub retry_count: u8,
    /// The same for RNR NAKs; 7 means without end.
    pub rnr_retry: u8,
    /// Tell the peer how many receives are posted, instead of saying that it need not care (protocol 2.9).
    pub credits: bool,
    /// Let a newer acknowledgement take the place of one that has not left yet (protocol 3.8).
    pub coalesce: bool,
}

impl QueuePairSetup {
    /// Makes a queue pair in RTS with PMTU 1024, all rights, PSNs that begin at 0, domain 0, and completion queue 0. It
    /// never sends anything twice; `timeout` and `retry_count` change that.
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

/// What a send asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SEND.
    Send,
    /// SEND with immediate data, byte for byte as on the wire.
    SendImmediate([u8; 4]),
    /// SEND that frees this key of the peer.
    SendInvalidate(u32),
    /// RDMA WRITE.
    Write {
        /// Address in the peer's region.
        address: u64,
        /// Key of the peer's region.
        key: u32,
    },
    /// RDMA WRITE that consumes a receive.
    WriteImmediate {
        /// Address in the peer's region.
        address: u64,
        /// Key of the peer's region.
        key: u32,
        /// Byte for byte as on the wire.
        immediate: [u8; 4],
    },
    /// RDMA READ.
    Read {
        /// Address in the peer's region.
        address: u64,
        /// Key of the peer's region.
        key: u32,
    },
    /// Compare and swap of eight bytes, as an integer in host order.
    CompareSwap {
        /// Address in the peer's region.
        address: u64,
        /// Key of the peer's region.
        key: u32,
        /// What the cell must hold.
        compare: u64,
        /// What to put there.
        swap: u64,
    },
    /// Fetch and add of eight bytes.
    FetchAdd {
        /// Address in the peer's region.
        address: u64,
        /// Key of the peer's region.
        key: u32,
        /// What to add.
        add: u64,
    },
    /// The end of this key of the endpoint itself, when all work before has ended. It has no data.
    LocalInvalidate(u32),
}

impl Operation {
    /// The kind that completions say.
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

    /// Says whether the peer answers with data: a READ or an atomic.
    pub const fn is_answered(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }
}

/// Where the payload of a message stands, or where an answer goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Elements of local memory.
    Elements(Vec<Element>),
    /// The bytes themselves; no key is checked.
    Inline(Vec<u8>),
}

impl Data {
    /// Nothing at all.
    pub const EMPTY: Self = Self::Elements(Vec::new());

    /// Returns the bytes of the message.
    pub fn length(&self) -> u64 {
        match self {
            Self::Elements(elements) => elements.iter().map(|element| u64::from(element.length)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// A send request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWqe {
    /// Comes back in the completion.
    pub tag: u64,
    /// What to do.
    pub operation: Operation,
    /// Where the data stands.
    pub data: Data,
    /// Make a completion also when all goes well.
    pub signalled: bool,
    /// The receiver's completion is a solicited one.
    pub solicited: bool,
    /// Begin only when all earlier READs and atomics have been answered.
    pub fence: bool,
}

impl SendWqe {
    /// Makes a signalled request.
    pub const fn new(tag: u64, operation: Operation, data: Data) -> Self {
        Self { tag, operation, data, signalled: true, solicited: false, fence: false }
    }
}

/// A receive request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveWqe {
    /// Comes back in the completion.
    pub tag: u64,
    /// Where the message goes.
    pub elements: Vec<Element>,
}

impl ReceiveWqe {
    /// Returns the bytes that it has room for.
    pub fn length(&self) -> u64 {
        self.elements.iter().map(|element| u64::from(element.length)).sum()
    }
}

/// One of a queue pair's two queues; each completes in the order of posting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// Of sends.
    Send,
    /// Of receives.
    Receive,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Number of the queue pair.
    pub qp_number: u32,
    /// The queue that the request was posted to.
    pub queue: Queue,
    /// The request's tag.
    pub tag: u64,
    /// How it ended.
    pub status: CompletionStatus,
    /// Kind of work. In error it means nothing for receives.
    pub opcode: CompletionOpcode,
    /// Bytes received, or read. Zero in error and for work that only sends.
    pub length: u32,
    /// Immediate data, byte for byte as on the wire.
    pub immediate: Option<[u8; 4]>,
    /// The key that the peer has freed.
    pub invalidated: Option<u32>,
    /// The sender asked for a solicited event.
    pub solicited: bool,
}

impl Completion {
    /// Makes a completion with nothing but an error.
    pub(super) const fn error(
        qp_number: u32,
        queue: Queue,
        tag: u64,
        status: CompletionStatus,
        opcode: CompletionOpcode,
    ) -> Self {
        let (length, immediate, invalidated, solicited) = (0, None, None, false);
        Self { qp_number, queue, tag, status, opcode, length, immediate, invalidated, solicited }
    }
}

/// Something that happened to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the queue pair.
    pub qp_number: u32,
    /// What happened.
    pub kind: AsyncEvent,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A request was executed.
    Executed,
    /// A request was refused aloud, by a NAK.
    Refused,
    /// An old request was answered again.
    Duplicate,
    /// A response made progress, or ended work; or a congestion notification was taken.
    Answered,
    /// Nothing was done; this counter of the card's register map names the reason.
    Dropped(&'static str),
}

/// All that queue pairs share.
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
    /// Counts what one of the card's counters would count, under its name.
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
    /// It was said that it takes no shared receive any more (protocol 4.5).
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

    /// Makes the frame of a packet, with an IPv4 identification that counts.
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

    /// Goes to ERR: all that is posted completes as flushed. Replies that are owed already still leave, among them
    /// the NAK that tells why (protocol 2.11 and 4.1).
    pub(super) fn fail(&mut self, host: &mut Host) {
        self.state = QpState::Error;
        self.requester.stop();
        self.flush_sends(host);
        self.flush_receives(host);
        if self.setup.shared_receives.is_some() && !self.is_last_said {
            self.is_last_said = true;
            host.raise(self.setup.number, AsyncEvent::LastEntryReached);
        }
    }

    /// Takes the oldest receive.
    pub(super) fn next_receive(&mut self, host: &mut Host) -> Option<ReceiveWqe> {
        match self.setup.shared_receives {
            Some(number) => host.shared_receives.get_mut(&number)?.pop_front(),
            None => self.receives.pop_front(),
        }
    }

    /// Follows a modify command.
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
            let (tag, opcode) = (message.work.tag, message.work.operation.completion_opcode());
            let completion = Completion::error(number, Queue::Send, tag, status, opcode);
            host.complete(self.setup.send_completions, completion);
        }
    }

    fn flush_receives(&mut self, host: &mut Host) {
        let (number, status) = (self.setup.number, CompletionStatus::Flushed);
        let held = self.responder.held.take();
        for work in held.into_iter().chain(self.receives.drain(..)) {
            let opcode = CompletionOpcode::Receive;
            let completion = Completion::error(number, Queue::Receive, work.tag, status, opcode);
            host.complete(self.setup.receive_completions, completion);
        }
    }
}
