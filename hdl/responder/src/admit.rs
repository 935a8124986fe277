//! Admission: checks every request against the state of its queue pair (PSN order, opcode, rights, length).
//!
//! All state of a queue pair that a packet can change is changed here, one packet at a time, so later stages do
//! not depend on the order. What needs memory, keys or receive WQEs is only requested here: if it fails,
//! [`Resolve`](crate::resolve::Resolve) drops the packets that were admitted after it, and stops the queue pair
//! here.
//!
//! ```text
//!  setup ────────┐   ┌───────┐                      ┌──────────> admitted (the decision about the packet)
//!  srq_setup ────┼──>│ Idle  ├─> Compare ─> Decide ─┼──────────> wqe_request
//!  requests ─────┤   └───┬───┘      ^  (Share)  │   └──────────> srq_limit
//!  sweep (ERR) ──┘       v          │          v
//!                paths, records, producers (one word a queue pair)
//! ```
//!
//! Three cycles a packet, four for one that needs a WQE of an SRQ, from the records of the queue pair to their
//! new values, so the next packet finds them. Latency 5 cycles to `admitted`. A setup event is taken between
//! two packets, whatever the outputs do, in two cycles.
//!
//! | Word of a queue pair | Holds | Written in |
//! |---|---|---|
//! | path | what commands set | Setup |
//! | producer | WQEs posted | any cycle, by the doorbell; Setup |
//! | record | expected PSN, MSN, NAK sent, failed, WQEs consumed; kind of the message that is arriving; of a WRITE its key, its length, the bytes received, and the address of the next | Setup, Decide, Flush |
//!
//! 1. Checks are made in the order of protocol 3.1: a packet that fails the first step is dropped and moves one
//!    counter; then PSN, opcode, rights, receive WQE, length.
//! 2. A gap gets one NAK for each expected PSN (protocol 3.2), a duplicate SEND or WRITE a reply when its
//!    sender asks for it (protocol 3.4); nothing is executed twice.
//! 3. After a packet that is refused, here or by resolve, no packet of the queue pair is admitted until it is
//!    restarted.
//! 4. Receive WQEs are consumed in order, each by one packet: the first of a SEND, the last of a WRITE with
//!    immediate data. In ERR the WQE of a SEND that has not ended is flushed, and then the remaining ones, one
//!    after the other: a sweep over the queue pairs proceeds when the stage is idle, and after sixteen packets
//!    in any case; it moves to a queue pair at once when that enters ERR. An SRQ keeps its WQEs; last of all
//!    the queue pair reports that it holds none of them any more (last WQE reached, protocol 4.3).
//! 5. A producer index that claims more WQEs than the ring has is ignored: nothing is posted.
//! 6. Packets of a message arrive in the order of protocol 3.3, with the lengths of protocol 3.6 rows 8 and 9:
//!    FIRST and MIDDLE have the length of the path MTU, LAST is not empty, the pad is the one that the payload
//!    needs, and those of a WRITE add up to the length in its RETH.
//! 7. A packet that is not executed, as a gap, a duplicate or a LAST without a receive WQE, leaves its message
//!    as it is.
//! 8. A READ takes as many PSNs as it has responses, an atomic one (protocol 2.1), and at most
//!    `destination_read_atomic` of them are in flight for a queue pair: those that were admitted and not served
//!    yet. One more is refused.
//! 9. An atomic is executed as a READ of its eight bytes, which must be aligned; its operands leave on a port
//!    of their own, in order.
//! 10. WQEs of an SRQ are given to its queue pairs in the order in which their packets arrive. When one needs a
//!     WQE and fewer than the limit are left before or after it, even if none is, the event of the limit is
//!     raised, once for each setting of the limit (protocol 4.5).
//!
//! SEND, WRITE, READ and atomics are served. Duplicate READs and atomics are dropped. Reset sweeps all records,
//! which takes 1,024 cycles. Protocol 3.1 to 3.8; design decisions 6 and 8.
use crate::messages::{AdmitCounts, Admitted, AtomicOperands, Decision, ReceiveWqeRequest, Responses, Stop};
use rnic_blocks::logic::match_table::MatchTable;
use rnic_blocks::logic::psn::{self, PsnCheck};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::limits::MESSAGE_BYTES_MAX;
use rnic_layout::opcode::Operation;
use rnic_layout::state::{QpState, Service};
use rnic_layout::syndrome::{CREDITS_UNLIMITED, NakCode, Syndrome};
use rnic_messages::doorbell::{ReceivesPosted, own_ring, shared_ring};
use rnic_messages::packet::{PacketToken, partition_keys_match};
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS, ReadsServed};
use rnic_messages::setup::{
    SetupEvent, SetupKind, SourceAddressWrite, SrqLimitNotice, SrqSetup, SrqSetupKind,
};
use rnic_messages::sizes::{
    COMPLETION_QUEUE_BITS, GENERATION_BITS, QUEUE_PAIR_BITS, RECEIVE_RING_BITS, SHARED_RECEIVE_BITS,
    SOURCE_ADDRESS_BITS, SOURCE_ADDRESSES, WORK_INDEX_BITS,
};

const RESET: u64 = QpState::Reset as u64;
const READY_TO_RECEIVE: u64 = QpState::ReadyToReceive as u64;
const SEND_QUEUE_ERROR: u64 = QpState::SendQueueError as u64;
const ERROR: u64 = QpState::Error as u64;
const RELIABLE: u64 = Service::ReliableConnected as u64;
const SEND_FIRST: u64 = Operation::SendFirst as u64;
const SEND_MIDDLE: u64 = Operation::SendMiddle as u64;
const SEND_LAST: u64 = Operation::SendLast as u64;
const SEND_LAST_IMMEDIATE: u64 = Operation::SendLastImmediate as u64;
const SEND_ONLY_IMMEDIATE: u64 = Operation::SendOnlyImmediate as u64;
const WRITE_FIRST: u64 = Operation::WriteFirst as u64;
const WRITE_MIDDLE: u64 = Operation::WriteMiddle as u64;
const WRITE_LAST: u64 = Operation::WriteLast as u64;
const WRITE_LAST_IMMEDIATE: u64 = Operation::WriteLastImmediate as u64;
const WRITE_ONLY_IMMEDIATE: u64 = Operation::WriteOnlyImmediate as u64;
const READ_REQUEST: u64 = Operation::ReadRequest as u64;
const COMPARE_SWAP: u64 = Operation::CompareSwap as u64;
const FETCH_ADD: u64 = Operation::FetchAdd as u64;
const SEND_LAST_INVALIDATE: u64 = Operation::SendLastInvalidate as u64;
const SEND_ONLY_INVALIDATE: u64 = Operation::SendOnlyInvalidate as u64;
/// AETH syndromes (protocol 1.6). Credits are not limited.
const ACKNOWLEDGED: u64 = Syndrome::Ack { credit_code: CREDITS_UNLIMITED }.emit() as u64;
const NOT_READY: u64 = Syndrome::RnrNak { timer_code: 0 }.emit() as u64;
const NAK_SEQUENCE: u64 = Syndrome::Nak(NakCode::PsnSequenceError).emit() as u64;
const NAK_INVALID: u64 = Syndrome::Nak(NakCode::InvalidRequest).emit() as u64;
/// The longest message, in bytes.
const LENGTH_MAX: u64 = MESSAGE_BYTES_MAX as u64;
/// Bytes of PMTU code 0, which does not exist; each further code doubles it.
const PMTU_BASE_BYTES: u64 = 128;
const PMTU_BASE_BITS: u64 = 7;
/// Bytes of the word of an atomic.
const ATOMIC_BYTES: u64 = 8;
/// log2 of the atomics between admission and resolve: more than the stages between can hold.
const ATOMICS: usize = 6;
/// Bits of the index of a record, and one that says that the sweep is over.
const SWEEP_BITS: usize = QUEUE_PAIR_BITS + 1;

/// Attributes of a queue pair, set by commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct AdmitPath {
    state: Bits<3>,
    generation: Bits<GENERATION_BITS>,
    local_qp: Bits<24>,
    service: Bits<2>,
    path_mtu: Bits<3>,
    remote_write: Bit,
    remote_read: Bit,
    remote_atomic: Bit,
    /// READs and atomics that may be in flight.
    reads_max: Bits<READ_COUNT_BITS>,
    destination_address: Bits<128>,
    source_address_index: Bits<SOURCE_ADDRESS_BITS>,
    partition_key: Bits<16>,
    domain: Bits<24>,
    min_rnr_timer: Bits<5>,
    completion_queue: Bits<COMPLETION_QUEUE_BITS>,
    receive_wqes_log2: Bits<4>,
    /// Receive WQEs come from an SRQ.
    is_shared: Bit,
    shared: Bits<SHARED_RECEIVE_BITS>,
}

/// Attributes of an SRQ, set by commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct SrqPath {
    entries_log2: Bits<4>,
    limit: Bits<WORK_INDEX_BITS>,
    /// Generation of the limit.
    generation: Bits<GENERATION_BITS>,
}

/// Kind of the message that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Message {
    /// None.
    Nothing,
    /// A SEND; its receive WQE is consumed.
    Send,
    /// A WRITE.
    Write,
}

/// State of a queue pair that packets change.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct AdmitRecord {
    expected_psn: Bits<24>,
    msn: Bits<24>,
    nak_sent: Bit,
    failed: Bit,
    /// A packet was forwarded since the restart.
    is_known: Bit,
    receive_index: Bits<WORK_INDEX_BITS>,
    message: Message,
    /// WRITE: key of the region.
    write_key: Bits<32>,
    /// WRITE: address of the next byte.
    write_address: Bits<64>,
    /// WRITE: length in its RETH.
    message_length: Bits<32>,
    /// WRITE: bytes received.
    message_bytes: Bits<32>,
    /// Queue pair of an SRQ: in ERR, the last WQE is reported.
    is_last_wqe_reported: Bit,
    /// Free-running count of READs and atomics that were admitted.
    reads: Bits<READ_COUNT_BITS>,
}

/// A packet of this generation of a queue pair has failed in a later stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Stopped {
    has_failed: Bit,
    generation: Bits<GENERATION_BITS>,
}

/// State of the machine.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Clears the records after a reset.
    Clear,
    /// Chooses a setup event, a packet or a step of the sweep.
    Idle,
    /// Applies a setup event.
    Setup,
    /// Compares a packet with path and record.
    Compare,
    /// Compares a packet that needs a WQE of an SRQ with the record of that.
    Share,
    /// Decides and writes back.
    Decide,
    /// The sweep compares path and record.
    Look,
    /// Flushes a WQE, or proceeds to the next queue pair.
    Flush,
}

/// Results of the comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Findings {
    qp_matches: Bit,
    is_ready: Bit,
    transport_matches: Bit,
    partition_matches: Bit,
    address_matches: Bit,
    psn_check: PsnCheck,
    /// An earlier packet has failed, here or in a later stage.
    has_failed: Bit,
    has_wqe: Bit,
    /// The SRQ holds fewer WQEs than its limit, or will after the next is taken.
    is_low: Bit,
    is_error: Bit,
    is_send: Bit,
    is_write: Bit,
    is_read: Bit,
    is_atomic: Bit,
    is_aligned: Bit,
    has_slot: Bit,
    /// Responses after the first.
    responses: Bits<24>,
    starts: Bit,
    ends: Bit,
    with_immediate: Bit,
    with_invalidate: Bit,
    is_in_order: Bit,
    is_empty: Bit,
    is_full: Bit,
    too_long: Bit,
    promises_too_much: Bit,
    overruns: Bit,
    is_complete: Bit,
    write_key: Bits<32>,
    write_address: Bits<64>,
    message_length: Bits<32>,
    message_bytes: Bits<32>,
}

/// Admits requests; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub struct Admit {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all queue pairs.
    pub reset: Signal<In, Bit>,

    /// From control: write of the table of source addresses.
    pub source_address_write: Signal<In, SourceAddressWrite>,
    /// `source_address_write` is valid.
    pub source_address_write_valid: Signal<In, Bit>,
    /// From control: setup of queue pairs.
    pub setup: StreamRx<SetupEvent>,
    /// From control: setup of SRQs. Taken when `setup` is not valid.
    pub srq_setup: StreamRx<SrqSetup>,
    /// PSN that the queue pair of the last setup event expects; registered.
    pub probed: Signal<Out, Bits<24>>,
    /// From the doorbells.
    pub receive_posted: Signal<In, ReceivesPosted>,
    /// `receive_posted` is valid; it is taken in any case.
    pub receive_posted_valid: Signal<In, Bit>,

    /// From resolve: a packet has failed.
    pub stop: Signal<In, Stop>,
    /// `stop` is valid; it is taken in any case.
    pub stop_valid: Signal<In, Bit>,

    /// From the READ responder: READs and atomics that were answered or dropped.
    pub reads_served: Signal<In, ReadsServed>,
    /// `reads_served` is valid; it is taken in any case.
    pub reads_served_valid: Signal<In, Bit>,

    /// Requests from the wire; `ready` is combinational from `setup.valid` and `srq_setup.valid`.
    pub requests: StreamRx<PacketToken>,
    /// Packets with the decision on them; registered.
    pub admitted: StreamTx<Admitted>,
    /// Operands of atomics that are executed, in the same order; registered.
    pub operands: StreamTx<AtomicOperands>,
    /// Requests for receive WQEs, one for each packet that takes one; registered.
    pub wqe_request: StreamTx<ReceiveWqeRequest>,
    /// To control: SRQs that hold fewer WQEs than their limit; registered.
    pub srq_limit: StreamTx<SrqLimitNotice>,
    /// A packet was forwarded to `admitted`; registered.
    pub enters: Signal<Out, Bit>,

    /// Counters; registered.
    pub counts: Signal<Out, AdmitCounts>,

    own_addresses: MatchTable<128, SOURCE_ADDRESSES, SOURCE_ADDRESS_BITS>,
    paths: Memory<AdmitPath, QUEUE_PAIR_BITS>,
    records: Memory<AdmitRecord, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Block))]
    producers: Memory<Bits<WORK_INDEX_BITS>, RECEIVE_RING_BITS>,
    #[init(Memory::new(Storage::Block))]
    srq_paths: Memory<SrqPath, SHARED_RECEIVE_BITS>,
    /// Free-running count of WQEs that were consumed of an SRQ.
    #[init(Memory::new(Storage::Block))]
    srq_consumed: Memory<Bits<WORK_INDEX_BITS>, SHARED_RECEIVE_BITS>,
    /// The event of the limit of an SRQ is armed.
    #[init(Memory::new(Storage::Distributed))]
    armed: Memory<Bit, SHARED_RECEIVE_BITS>,
    /// Free-running count of READs and atomics that were served.
    served: Memory<Bits<READ_COUNT_BITS>, QUEUE_PAIR_BITS>,
    stopped: Memory<Stopped, QUEUE_PAIR_BITS>,
    #[init(Fifo::new(Storage::Block))]
    admitted_queue: Fifo<Admitted, 4, 5>,
    requests_queue: Fifo<ReceiveWqeRequest, 4, 5>,
    #[init(Fifo::new(Storage::Block))]
    operands_queue: Fifo<AtomicOperands, ATOMICS, 7>,
    limit_notices: RegisterSlice<SrqLimitNotice>,

    #[init(Reg::new(Step::Clear))]
    step: Reg<Step>,
    /// In `Clear`: the next record. Else: the queue pair whose WQEs are flushed next, if it is in ERR.
    sweep: Reg<Bits<SWEEP_BITS>>,
    /// Packets since the last step of the sweep.
    packets_since_sweep: Reg<Bits<4>>,
    token: DFF<PacketToken>,
    findings: DFF<Findings>,
    probed_psn: Reg<Bits<24>>,
    entered: Reg<Bit>,
    counted: Reg<AdmitCounts>,
}

/// Says whether a WQE is posted, and the producer index is within the ring.
#[kernel]
fn is_posted(posted: Bits<WORK_INDEX_BITS>, entries_log2: Bits<4>) -> Bit {
    posted.any() && posted <= bits::<WORK_INDEX_BITS>(1) << entries_log2
}

/// Gives the record of a queue pair without packets.
#[kernel]
fn untouched(expected_psn: Bits<24>) -> AdmitRecord {
    AdmitRecord {
        expected_psn,
        msn: bits::<24>(0),
        nak_sent: false,
        failed: false,
        is_known: false,
        receive_index: bits::<WORK_INDEX_BITS>(0),
        message: Message::Nothing,
        write_key: bits::<32>(0),
        write_address: bits::<64>(0),
        message_length: bits::<32>(0),
        message_bytes: bits::<32>(0),
        is_last_wqe_reported: false,
        reads: bits::<READ_COUNT_BITS>(0),
    }
}

impl Logic for Admit {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<AtomicOperands>::link(&mut self.operands, &mut self.operands_queue.tx);
        StreamTx::<SrqLimitNotice>::link(&mut self.srq_limit, &mut self.limit_notices.tx);
        StreamTx::<Admitted>::link(&mut self.admitted, &mut self.admitted_queue.tx);
        StreamTx::<ReceiveWqeRequest>::link(&mut self.wqe_request, &mut self.requests_queue.tx);

        // Setup events come first, then packets; the sweep comes last unless it has waited for sixteen packets.
        let step = self.step.q.val();
        let sweep = self.sweep.q.val();
        let event = self.setup.beat.val();
        let srq_event = self.srq_setup.beat.val();
        let is_of_pair = self.setup.valid.val();
        let has_event = is_of_pair || self.srq_setup.valid.val();
        let is_idle = step == Step::Idle;
        let may_forward = self.admitted_queue.rx.ready.val()
            && self.requests_queue.rx.ready.val()
            && self.operands_queue.rx.ready.val();
        let takes_event = is_idle && has_event;
        let may_pass = is_idle && !has_event && may_forward;
        let may_precede_sweep = !self.packets_since_sweep.q.val().all();
        let takes_token = may_pass && self.requests.valid.val() && may_precede_sweep;
        let sweeps = may_pass && !takes_token;
        self.requests.ready.next = may_pass && may_precede_sweep;
        if takes_token {
            self.token.d.next = self.requests.beat.val();
            self.packets_since_sweep.d.next = self.packets_since_sweep.q.val() + 1;
            self.step.d.next = Step::Compare;
        }
        if sweeps {
            self.packets_since_sweep.d.next = bits::<4>(0);
            self.step.d.next = Step::Look;
        }
        if takes_event {
            self.step.d.next = Step::Setup;
        }

        let asked = if takes_event {
            event.queue_pair
        } else if takes_token {
            self.requests.beat.val().destination_qp.get_bits::<QUEUE_PAIR_BITS>(0)
        } else {
            sweep.get_bits::<QUEUE_PAIR_BITS>(0)
        };
        self.paths.read_enable.next = is_idle;
        self.paths.read_address.next = asked;
        self.records.read_enable.next = is_idle;
        self.records.read_address.next = asked;
        self.served.read_enable.next = is_idle;
        self.served.read_address.next = asked;
        self.served.write_enable.next = self.reads_served_valid.val();
        self.served.write_address.next = self.reads_served.val().queue_pair;
        self.served.write_data.next = self.reads_served.val().count;
        self.stopped.read_enable.next = is_idle;
        self.stopped.read_address.next = asked;
        let path = self.paths.read_data.val();
        let record = self.records.read_data.val();
        let token = self.token.q.val();

        // The WQEs are those of the queue pair, or a cycle later those of its SRQ.
        let compares = step == Step::Compare;
        let shares = step == Step::Share;
        self.producers.read_enable.next = is_idle || compares;
        self.producers.read_address.next = if is_idle { own_ring(asked) } else { shared_ring(path.shared) };
        self.srq_paths.read_enable.next = compares;
        self.srq_paths.read_address.next = path.shared;
        self.srq_consumed.read_enable.next = compares;
        self.srq_consumed.read_address.next = path.shared;
        self.armed.read_enable.next = compares;
        self.armed.read_address.next = path.shared;
        let srq_path = self.srq_paths.read_data.val();
        let srq_consumed = self.srq_consumed.read_data.val();
        let posted_count =
            self.producers.read_data.val() - select(shares, srq_consumed, record.receive_index);
        let has_posted =
            is_posted(posted_count, select(shares, srq_path.entries_log2, path.receive_wqes_log2));
        let is_below = posted_count <= srq_path.limit || !has_posted;

        // The destination address of a packet is the source address of its queue pair (protocol 1.2).
        let own = self.source_address_write.val();
        self.own_addresses.write_enable.next = self.source_address_write_valid.val();
        self.own_addresses.write_index.next = own.index;
        self.own_addresses.write_used.next = own.valid;
        self.own_addresses.write_word.next = own.address;
        self.own_addresses.word.next = self.requests.beat.val().destination_address;
        self.own_addresses.index.next = path.source_address_index;

        // Comparisons, for the packet or for the queue pair of the sweep.
        let opcode = token.opcode;
        let has_wqe = has_posted && !path.is_shared;
        let with_invalidate = opcode == SEND_LAST_INVALIDATE || opcode == SEND_ONLY_INVALIDATE;
        let is_send = opcode <= SEND_ONLY_IMMEDIATE || with_invalidate;
        let is_write = !is_send && opcode <= WRITE_ONLY_IMMEDIATE;
        let is_atomic = opcode == COMPARE_SWAP || opcode == FETCH_ADD;
        let is_read = opcode == READ_REQUEST || is_atomic;
        let is_middle = opcode == SEND_MIDDLE || opcode == WRITE_MIDDLE;
        let is_last = opcode == SEND_LAST
            || opcode == SEND_LAST_IMMEDIATE
            || opcode == SEND_LAST_INVALIDATE
            || opcode == WRITE_LAST
            || opcode == WRITE_LAST_IMMEDIATE;
        let is_first = opcode == SEND_FIRST || opcode == WRITE_FIRST;
        let with_immediate = opcode == SEND_LAST_IMMEDIATE
            || opcode == SEND_ONLY_IMMEDIATE
            || opcode == WRITE_LAST_IMMEDIATE
            || opcode == WRITE_ONLY_IMMEDIATE;
        let starts = !is_middle && !is_last;
        let before = if starts {
            Message::Nothing
        } else if is_send {
            Message::Send
        } else {
            Message::Write
        };
        // The first packet has the RETH; its fields are kept for the later ones.
        let extended = token.extended;
        let message_length = if is_atomic {
            bits::<32>(ATOMIC_BYTES)
        } else if starts {
            swap_bytes(extended.get_bits::<32>(96))
        } else {
            record.message_length
        };
        let bytes_before = select(starts, bits::<32>(0), record.message_bytes);
        let message_bytes = bytes_before + bit_cast::<32, 13>(token.payload_bytes);
        let pmtu = bits::<14>(PMTU_BASE_BYTES) << path.path_mtu;
        let payload = bit_cast::<14, 13>(token.payload_bytes);
        let reads_open = record.reads - self.served.read_data.val();
        let behind_first = (message_length - 1) >> (bit_cast::<4, 3>(path.path_mtu) + PMTU_BASE_BITS);
        let has_more = is_read && !is_atomic && message_length.any();
        let stopped = self.stopped.read_data.val();
        if step == Step::Compare || step == Step::Look {
            self.findings.d.next = Findings {
                qp_matches: path.local_qp == token.destination_qp,
                is_ready: path.state >= READY_TO_RECEIVE && path.state <= SEND_QUEUE_ERROR,
                transport_matches: opcode.get_bits::<3>(5) == RELIABLE && path.service == RELIABLE,
                partition_matches: partition_keys_match(token.partition_key, path.partition_key),
                address_matches: token.source_address == path.destination_address
                    && self.own_addresses.agrees.val(),
                psn_check: psn::check(token.psn, record.expected_psn),
                has_failed: record.failed || (stopped.has_failed && stopped.generation == path.generation),
                has_wqe,
                is_low: false,
                is_error: path.state == ERROR,
                is_send,
                is_write,
                is_read,
                is_atomic,
                // The low bits of the address are in its last byte.
                is_aligned: !extended.get_bits::<3>(56).any(),
                has_slot: reads_open < path.reads_max,
                responses: select(has_more, behind_first.get_bits::<24>(0), bits::<24>(0)),
                starts,
                ends: !is_middle && !is_first,
                with_immediate,
                with_invalidate,
                is_in_order: record.message == before,
                is_empty: !token.payload_bytes.any(),
                is_full: payload == pmtu,
                too_long: payload > pmtu,
                promises_too_much: message_length > LENGTH_MAX,
                overruns: message_bytes > message_length,
                is_complete: message_bytes == message_length,
                write_key: select(starts, swap_bytes(extended.get_bits::<32>(64)), record.write_key),
                write_address: select(starts, swap_bytes(extended.get_bits::<64>(0)), record.write_address),
                message_length,
                message_bytes,
            };
        }
        if compares {
            let asks = path.is_shared && select(is_send, starts, with_immediate);
            self.step.d.next = if asks { Step::Share } else { Step::Decide };
        }
        if shares {
            self.findings.d.next.has_wqe = has_posted;
            self.findings.d.next.is_low = is_below && self.armed.read_data.val();
            self.step.d.next = Step::Decide;
        }
        if step == Step::Look {
            self.step.d.next = Step::Flush;
        }

        // The decision, in the order of protocol 3.1.
        let found = self.findings.q.val();
        let decides = step == Step::Decide;
        let is_known = found.qp_matches
            && found.is_ready
            && found.transport_matches
            && found.partition_matches
            && found.address_matches;
        let meets_order = is_known && !found.has_failed;
        let is_expected = meets_order && found.psn_check == PsnCheck::Expected;
        let is_gap = meets_order && found.psn_check == PsnCheck::Gap;
        let is_duplicate = meets_order && found.psn_check == PsnCheck::Duplicate;
        let can_repeat = opcode <= WRITE_ONLY_IMMEDIATE || with_invalidate;
        let needs_wqe = select(found.is_send, found.starts, found.with_immediate);
        let has_right =
            if found.is_atomic { path.remote_atomic && found.is_aligned } else { path.remote_read };
        let may_read = found.is_read && has_right && found.has_slot;
        let is_allowed = found.is_send || (found.is_write && path.remote_write) || may_read;
        let makes_sense = found.is_in_order && is_allowed;
        let lacks_wqe = makes_sense && needs_wqe && !found.has_wqe;
        // An only packet may be empty, and one that does not end the message is full.
        let has_room =
            select(found.ends, !found.too_long && (found.starts || !found.is_empty), found.is_full);
        let is_all = select(found.is_read, found.is_empty, found.is_complete);
        let adds_up = !found.promises_too_much && select(found.ends, is_all, !found.overruns);
        let fits = has_room && !token.pad_mismatch && (found.is_send || adds_up);
        let takes_wqe = is_expected && makes_sense && needs_wqe && found.has_wqe;
        let executes = is_expected && makes_sense && !lacks_wqe && fits;
        let refuses = is_expected && !lacks_wqe && !(makes_sense && fits);
        let is_not_ready = is_expected && lacks_wqe;
        let naks_gap = is_gap && !record.nak_sent;
        let repeats = is_duplicate && can_repeat && token.ack_request;

        // The sweep flushes a WQE of a queue pair in ERR, and stays there until none is left. The WQE of a SEND
        // that has not ended was consumed before the others.
        let is_sending = record.message == Message::Send;
        let owes_last_wqe = path.is_shared && !record.is_last_wqe_reported;
        let flushes = step == Step::Flush && found.is_error && (is_sending || found.has_wqe || owes_last_wqe);
        let flushes_posted = flushes && !is_sending && !path.is_shared;
        let reports_last_wqe = flushes && !is_sending && path.is_shared;
        if step == Step::Flush && !flushes {
            self.sweep.d.next = cat!(bits::<1>(0), sweep.get_bits::<QUEUE_PAIR_BITS>(0) + 1);
        }
        if decides || step == Step::Flush {
            self.step.d.next = Step::Idle;
        }

        let decision = if flushes {
            Decision::Flush
        } else if executes {
            Decision::Execute
        } else if refuses {
            Decision::Refuse
        } else if naks_gap || is_not_ready || repeats {
            Decision::Reply
        } else {
            Decision::Drop
        };
        let syndrome = if refuses {
            bits::<8>(NAK_INVALID)
        } else if is_not_ready {
            bits::<8>(NOT_READY) | bit_cast::<8, 5>(path.min_rnr_timer)
        } else if naks_gap {
            bits::<8>(NAK_SEQUENCE)
        } else {
            bits::<8>(ACKNOWLEDGED)
        };
        let takes_own_wqe = (takes_wqe && !path.is_shared) || flushes_posted;
        let takes_srq_wqe = decides && takes_wqe && path.is_shared;
        let consumed = select(takes_own_wqe, record.receive_index + 1, record.receive_index);
        let msn = select(executes && found.ends, record.msn + 1, record.msn);
        let with_reth = found.is_write && found.starts;
        let uses_held = is_sending && (executes || refuses || flushes);
        let forwards = flushes || (decides && (decision != Decision::Drop || token.payload_bytes.any()));
        self.admitted_queue.rx.valid.next = forwards;
        self.admitted_queue.rx.beat.next = Admitted {
            decision,
            is_send: found.is_send || flushes || uses_held,
            is_read: executes && found.is_read,
            is_atomic: executes && found.is_atomic,
            starts: found.starts,
            ends: found.ends,
            takes_wqe: takes_wqe || flushes_posted,
            uses_held,
            is_last_wqe: reports_last_wqe,
            starts_generation: !record.is_known,
            queue_pair: path.local_qp.get_bits::<QUEUE_PAIR_BITS>(0),
            generation: path.generation,
            qp_number: path.local_qp,
            domain: path.domain,
            completion_queue: path.completion_queue,
            payload_bytes: select(flushes, bits::<13>(0), token.payload_bytes),
            address: found.write_address,
            key: found.write_key,
            message_length: found.message_length,
            immediate: if with_reth {
                extended.get_bits::<32>(128)
            } else if found.with_invalidate {
                swap_bytes(extended.get_bits::<32>(0))
            } else {
                extended.get_bits::<32>(0)
            },
            with_immediate: found.with_immediate && !flushes,
            with_invalidate: found.with_invalidate && executes,
            solicited: token.solicited && !flushes,
            consumer_index: consumed,
            has_reply: token.ack_request
                || refuses
                || is_not_ready
                || naks_gap
                || (executes && found.is_read),
            syndrome,
            psn: if naks_gap {
                record.expected_psn
            } else if repeats {
                record.expected_psn - 1
            } else {
                token.psn
            },
            msn,
            responses: Responses {
                last_psn: token.psn + found.responses,
                slot: record.reads.get_bits::<READ_SLOT_BITS>(0),
            },
        };
        self.operands_queue.rx.valid.next = decides && executes && found.is_atomic;
        self.operands_queue.rx.beat.next = AtomicOperands {
            is_compare: opcode == COMPARE_SWAP,
            operand: swap_bytes(extended.get_bits::<64>(96)),
            compare: swap_bytes(extended.get_bits::<64>(160)),
        };
        self.requests_queue.rx.valid.next = (decides && takes_wqe) || flushes_posted;
        self.requests_queue.rx.beat.next = ReceiveWqeRequest {
            ring: if path.is_shared {
                shared_ring(path.shared)
            } else {
                own_ring(path.local_qp.get_bits::<QUEUE_PAIR_BITS>(0))
            },
            generation: path.generation,
        };

        // The limit of an SRQ: its event is raised once, as soon as there is room for the notice.
        let reaches = decides && is_expected && makes_sense && needs_wqe && found.is_low;
        let notifies_limit = reaches && self.limit_notices.rx.ready.val();
        self.limit_notices.rx.valid.next = reaches;
        self.limit_notices.rx.beat.next =
            SrqLimitNotice { srq: path.shared, limit_generation: srq_path.generation };
        self.entered.d.next = forwards;
        self.enters.next = self.entered.q.val();

        // The records.
        let changed = AdmitRecord {
            expected_psn: select(executes, record.expected_psn + 1 + found.responses, record.expected_psn),
            msn,
            nak_sent: !executes && (record.nak_sent || naks_gap || is_not_ready),
            failed: record.failed || refuses,
            is_known: record.is_known || decision != Decision::Drop,
            receive_index: consumed,
            message: if flushes || refuses || (executes && found.ends) {
                Message::Nothing
            } else if executes {
                if found.is_send { Message::Send } else { Message::Write }
            } else {
                record.message
            },
            write_key: select(executes, found.write_key, record.write_key),
            write_address: select(
                executes,
                found.write_address + bit_cast::<64, 13>(token.payload_bytes),
                record.write_address,
            ),
            message_length: select(executes, found.message_length, record.message_length),
            message_bytes: select(executes, found.message_bytes, record.message_bytes),
            is_last_wqe_reported: record.is_last_wqe_reported || reports_last_wqe,
            reads: select(executes && found.is_read, record.reads + 1, record.reads),
        };
        let restarts = is_of_pair && event.kind == SetupKind::Restart;
        let restarts_srq = !is_of_pair && srq_event.kind == SrqSetupKind::Restart;
        let set = if restarts {
            untouched(bits::<24>(0))
        } else if event.kind == SetupKind::ReceivePsn {
            AdmitRecord {
                expected_psn: event.psn,
                msn: bits::<24>(0),
                nak_sent: false,
                failed: record.failed,
                is_known: record.is_known,
                receive_index: record.receive_index,
                message: record.message,
                write_key: record.write_key,
                write_address: record.write_address,
                message_length: record.message_length,
                message_bytes: record.message_bytes,
                is_last_wqe_reported: record.is_last_wqe_reported,
                reads: record.reads,
            }
        } else {
            record
        };
        // A doorbell or a stop in the same cycle comes first: the memories have one write port.
        let rings = self.receive_posted_valid.val();
        let stops = self.stop_valid.val();
        let applies = step == Step::Setup && !rings && !stops;
        let clears = step == Step::Clear && !rings;
        self.setup.ready.next = applies && is_of_pair;
        self.srq_setup.ready.next = applies && !is_of_pair;
        if applies {
            self.probed_psn.d.next = set.expected_psn;
            self.step.d.next = Step::Idle;
            if is_of_pair && event.state == ERROR {
                self.sweep.d.next = cat!(bits::<1>(0), event.queue_pair);
            }
        }
        if clears {
            self.sweep.d.next = sweep + 1;
            if sweep.get_bits::<QUEUE_PAIR_BITS>(0).all() {
                self.sweep.d.next = bits::<SWEEP_BITS>(0);
                self.step.d.next = Step::Idle;
            }
        }
        self.probed.next = self.probed_psn.q.val();
        let swept = sweep.get_bits::<QUEUE_PAIR_BITS>(0);
        self.records.write_enable.next =
            clears || (applies && is_of_pair) || flushes || (decides && meets_order);
        self.records.write_address.next = if clears || flushes {
            swept
        } else if applies {
            event.queue_pair
        } else {
            token.destination_qp.get_bits::<QUEUE_PAIR_BITS>(0)
        };
        self.records.write_data.next = if clears {
            untouched(bits::<24>(0))
        } else if applies {
            set
        } else {
            changed
        };
        self.paths.write_enable.next = clears || (applies && is_of_pair);
        self.paths.write_address.next = select(clears, swept, event.queue_pair);
        self.paths.write_data.next = AdmitPath {
            state: select(clears, bits::<3>(RESET), event.state),
            generation: event.generation,
            local_qp: select(clears, bits::<24>(0), event.path.local_qp),
            service: event.path.service,
            path_mtu: event.path.path_mtu,
            remote_write: event.path.remote_write,
            remote_read: event.path.remote_read,
            remote_atomic: event.path.remote_atomic,
            reads_max: event.path.destination_read_atomic,
            destination_address: event.path.destination_address,
            source_address_index: event.path.source_address_index,
            partition_key: event.path.partition_key,
            domain: event.path.domain,
            min_rnr_timer: event.path.min_rnr_timer,
            completion_queue: event.path.receive_completion_queue.get_bits::<COMPLETION_QUEUE_BITS>(0),
            receive_wqes_log2: event.path.receive_wqes_log2,
            is_shared: event.path.shared_receive,
            shared: event.path.shared_receive_queue.get_bits::<SHARED_RECEIVE_BITS>(0),
        };
        let stop = self.stop.val();
        self.stopped.write_enable.next = stops || clears || (applies && restarts);
        self.stopped.write_address.next = if stops {
            stop.queue_pair
        } else if clears {
            swept
        } else {
            event.queue_pair
        };
        self.stopped.write_data.next = Stopped { has_failed: stops, generation: stop.generation };
        self.srq_paths.write_enable.next = applies && !is_of_pair;
        self.srq_paths.write_address.next = srq_event.srq;
        self.srq_paths.write_data.next = SrqPath {
            entries_log2: srq_event.entries_log2,
            limit: srq_event.limit,
            generation: srq_event.limit_generation,
        };
        self.armed.write_enable.next = (applies && !is_of_pair) || notifies_limit;
        self.armed.write_address.next = select(notifies_limit, path.shared, srq_event.srq);
        self.armed.write_data.next = !notifies_limit && srq_event.limit.any();
        self.srq_consumed.write_enable.next = (applies && restarts_srq) || takes_srq_wqe;
        self.srq_consumed.write_address.next = select(takes_srq_wqe, path.shared, srq_event.srq);
        self.srq_consumed.write_data.next =
            select(takes_srq_wqe, srq_consumed + 1, bits::<WORK_INDEX_BITS>(0));
        let posted = self.receive_posted.val();
        self.producers.write_enable.next = rings || clears || (applies && (restarts || restarts_srq));
        self.producers.write_address.next = if rings {
            posted.ring
        } else if clears {
            own_ring(swept)
        } else if restarts_srq {
            shared_ring(srq_event.srq)
        } else {
            own_ring(event.queue_pair)
        };
        self.producers.write_data.next = select(rings, posted.producer_index, bits::<WORK_INDEX_BITS>(0));

        // One counter for every packet that is dropped.
        let unknown = !found.qp_matches;
        let not_ready = !unknown && !found.is_ready;
        let other_transport = !unknown && found.is_ready && !found.transport_matches;
        let reaches_partition = !unknown && found.is_ready && found.transport_matches;
        let other_partition = reaches_partition && !found.partition_matches;
        let other_address = reaches_partition && found.partition_matches && !found.address_matches;
        self.counted.d.next = AdmitCounts {
            unknown_qp: decides && unknown,
            qp_not_ready: decides && not_ready,
            transport_mismatch: decides && other_transport,
            partition_key: decides && other_partition,
            source_address: decides && other_address,
            duplicate_request: decides && is_duplicate && can_repeat,
            duplicate_dropped: decides && is_duplicate && !can_repeat,
            request_gap: decides && is_gap,
            requests_after_failure: decides && is_known && found.has_failed,
        };
        self.counts.next = self.counted.q.val();
    }
}
