//! Segment: makes packets of messages, and gives each queue pair its share of the wire.
//!
//! A message of up to 2 GiB is one WQE, and its packets would delay all other queue pairs. So a long one is
//! segmented in quanta of 16 KiB; what is left of it is a record, and its queue pair is in a ready queue. New
//! WQEs and turns of the ready queue alternate.
//!
//! ```text
//!                 ┌──────────────────────────────────────────────────────┐
//!  setup ────────>│ state, generation                                    │
//!  checked ──────>│─┬─> message ──> parts ──> packet ────────────────────┼──> packet (16 deep)
//!  listed_sges ──>│─│─> list ─┘      ^        │ └───────────────────────┼──> access_request (8 deep), sge_parts
//!  retired ──────>│ │    turn        │        │ what is left            │
//!                 │ │      └ record <─ queue <┘                          │
//!                 │ └────────────────────────────────────────────────────┼──> wake (wqe_parse)
//!                 └──────────────────────────────────────────────────────┘
//!  step     Idle  Load (Fill)        Plan  Make (Second, Listed)  Store
//! ```
//!
//! A message of one packet takes 3 cycles, 4 with two access requests, 14 with six. A packet of a longer one
//! takes 2 cycles, and one more for each access request after the first; 3 more cycles begin and end a quantum,
//! and a list of SGEs takes one for each when it begins. Measured: 2.50 cycles a packet in messages of 4
//! packets, 2.12 in those of 16, 2.25 in those of 512. 2,558 LUTs with those used as memory, 1,251 FF, 27
//! RAMB18, 4 UltraRAMs, depth 11.
//!
//! 1. WQEs leave in order, and packets of a message in the order of their PSNs. The next message of a queue
//!    pair begins when all packets of the one before it have been made.
//! 2. Exactly `request_count` access requests leave for each packet, in its order: one for each SGE that it
//!    takes bytes of. So a key that is invalidated in the middle of a message stops it there. Of a list of more
//!    than two SGEs, those after the first one in the packet are not counted, but leave on `sge_parts`.
//! 3. FIRST and MIDDLE have PMTU bytes. FIRST and ONLY have a RETH, with the length of the message; LAST and
//!    ONLY have ImmDt, IETH and SE. AckReq is set where the WQE asks for it, in its last packet, and in every
//!    32nd one (protocol 2.2, 2.4).
//! 4. While both have something to do, the ready queue gets a quantum after WQEs have had theirs, a packet
//!    counted as 64 bytes more than its payload; queue pairs in the ready queue get theirs one after the other.
//! 5. A turn begins with fewer than 2^15 packets of its queue pair in flight; else the queue pair goes to the
//!    end of the ready queue.
//! 6. In any state but RTS and SQD, and for another generation, no packet is made: what is left of a message is
//!    dropped with the event, also in the middle of a quantum, and WQEs become flushed ones.
//! 7. Setup events are taken within 4 cycles, whatever the outputs do; within 10 where there are lists.
//! 8. WqeParse is woken once for each long message: when its last turn begins, or 32 KiB before its end if no
//!    other queue pair is in the ready queue and half of the window is open. So a queue pair that is woken
//!    waits for no response.
//! 9. While `enable` is low, the ready queue waits, unless a new WQE waits for it.
//! 10. A READ is one packet without payload, and its SGEs are checked as a whole for local write. What its
//!     responses need leaves on `read` with it.
//! 11. A LOCAL_INVALIDATE is no packet, and leaves with key and protection domain.
//!
//! `turn_count` counts turns that have made a packet, before their first one; `ends_turn` is set in the last.
use crate::messages::{
    AtomicOperands, CheckedWqe, MESSAGE_COUNT_BITS, PSN_WINDOW_BITS, Packet, QUANTUM_BITS, ReadRecord,
    Retired, Sge, SgePart, WqeCompletion, WqeHeader, WqeKind, atomic_operands, second_sge,
};
use crate::opcode::{
    COMPARE_SWAP, FETCH_ADD, READ_REQUEST, SEND_FIRST, SEND_LAST, SEND_LAST_IMMEDIATE, SEND_LAST_INVALIDATE,
    SEND_MIDDLE, SEND_ONLY, SEND_ONLY_IMMEDIATE, SEND_ONLY_INVALIDATE, WRITE_FIRST, WRITE_LAST,
    WRITE_LAST_IMMEDIATE, WRITE_MIDDLE, WRITE_ONLY, WRITE_ONLY_IMMEDIATE,
};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::state::{PathMtu, QpState};
use rnic_messages::protect::AccessRequest;
use rnic_messages::read::READ_SLOT_BITS;
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS};

/// Width of the index of a [`ReadRecord`]: its queue pair, and its slot.
pub const READ_INDEX_BITS: usize = QUEUE_PAIR_BITS + READ_SLOT_BITS;
const READY_COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;
const QUANTUM: u64 = 1 << QUANTUM_BITS;
/// Most access requests in the queue when a packet is made; it adds two, and the queue holds eight.
const REQUESTS_MAX: u64 = 6;
/// The same for a packet from a list, which adds six.
const REQUESTS_LISTED_MAX: u64 = 2;
/// `log2` of the SGEs that are kept of a list for each queue pair.
const LISTED_BITS: usize = 3;
const LISTED_PLACE_BITS: usize = QUEUE_PAIR_BITS + LISTED_BITS;

/// State of a queue pair, as commands set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Life {
    /// Packets are made.
    serves: Bit,
    generation: Bits<GENERATION_BITS>,
}

/// What is left of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Rest {
    /// Bytes are left.
    exists: Bit,
    /// The queue pair is in the ready queue; perhaps for a message that was dropped.
    is_queued: Bit,
    /// WqeParse need not be woken any more.
    is_woken: Bit,
    generation: Bits<GENERATION_BITS>,
    message_count: Bits<MESSAGE_COUNT_BITS>,
    is_write: Bit,
    has_immediate: Bit,
    with_invalidate: Bit,
    solicited: Bit,
    ack_request: Bit,
    immediate: Bits<32>,
    domain: Bits<24>,
    path_mtu: Bits<3>,
    /// PSN of the next packet.
    psn: Bits<24>,
    /// Packets so far, modulo 32.
    packets: Bits<5>,
    /// Bytes that are left.
    length: Bits<32>,
    first: Sge,
    second: Sge,
    /// SGEs after the first that are in the list, in which case `second` is empty.
    listed: Bits<LISTED_BITS>,
    /// Place of the next one in the list.
    listed_index: Bits<LISTED_BITS>,
}

/// State of the block.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Event,
    Setup,
    Load,
    Fill,
    Plan,
    Make,
    Second,
    Listed,
    Store,
}

/// Bytes of a `PathMtu`.
#[kernel]
fn pmtu(code: Bits<3>) -> Bits<13> {
    match PathMtu::from_number(code.to_u64()) {
        Some(PathMtu::Bytes256) => bits::<13>(256),
        Some(PathMtu::Bytes512) => bits::<13>(512),
        Some(PathMtu::Bytes1024) => bits::<13>(1024),
        Some(PathMtu::Bytes2048) => bits::<13>(2048),
        _ => bits::<13>(4096),
    }
}

/// Bytes that the only packet of a message takes of an SGE; for a READ, whether the SGE is there.
#[kernel]
fn part(is_read: Bit, length: Bits<32>) -> Bits<13> {
    select(is_read, bit_cast::<13, 1>(length.any().into()), length.get_bits::<13>(0))
}

/// Packets of a quantum.
#[kernel]
fn quantum_packets(code: Bits<3>) -> Bits<7> {
    match PathMtu::from_number(code.to_u64()) {
        Some(PathMtu::Bytes256) => bits::<7>(QUANTUM / 256),
        Some(PathMtu::Bytes512) => bits::<7>(QUANTUM / 512),
        Some(PathMtu::Bytes1024) => bits::<7>(QUANTUM / 1024),
        Some(PathMtu::Bytes2048) => bits::<7>(QUANTUM / 2048),
        _ => bits::<7>(QUANTUM / 4096),
    }
}

/// Makes packets; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub struct Segment {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// The records of `sweep_index` are cleared in this cycle.
    pub is_sweeping: Signal<In, Bit>,
    /// Queue pair whose records are cleared.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From control: messages and turns may begin.
    pub enable: Signal<In, Bit>,
    /// From control; wqe_parse must have taken the event before.
    pub setup: StreamRx<SetupEvent>,
    /// From wqe_check.
    pub checked: StreamRx<CheckedWqe>,
    /// From wqe_check: SGEs of lists, before their WQE.
    pub listed_sges: StreamRx<Sge>,
    /// From acknowledge: queue pair of `retired`.
    pub retired_queue_pair: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From acknowledge: acknowledged PSN.
    pub retired: Signal<In, Retired>,
    /// `retired` is valid.
    pub retired_valid: Signal<In, Bit>,
    /// To issue; registered.
    pub packet: StreamTx<Packet>,
    /// To issue: what the access requests after the first one of a list are for; registered.
    pub sge_parts: StreamTx<SgePart>,
    /// To the region table; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// To read_response: a READ or an atomic.
    pub read: Signal<Out, ReadRecord>,
    /// Queue pair and slot of `read`.
    pub read_index: Signal<Out, Bits<READ_INDEX_BITS>>,
    /// `read` is valid and is written.
    pub read_valid: Signal<Out, Bit>,
    /// To wqe_parse: the WQE after a long message may come; registered.
    pub wake: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// Turns ever begun, free-running; registered.
    pub turn_count: Signal<Out, Bits<16>>,

    lives: Memory<Life, QUEUE_PAIR_BITS>,
    rests: Memory<Rest, QUEUE_PAIR_BITS>,
    unacknowledged: Memory<Bits<24>, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Ultra))]
    lists: Memory<Sge, LISTED_PLACE_BITS>,
    ready_queue: Fifo<Bits<QUEUE_PAIR_BITS>, QUEUE_PAIR_BITS, READY_COUNT_BITS>,
    packets: Fifo<Packet, 4, 5>,
    part_queue: Fifo<SgePart, 4, 5>,
    requests: Fifo<AccessRequest, 3, 4>,
    wakes: Fifo<Bits<QUEUE_PAIR_BITS>, 2, 3>,
    step: Reg<Step>,
    /// State to continue in after an event.
    resume: DFF<Step>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    /// The message comes from the ready queue.
    is_turn: DFF<Bit>,
    was_queued: DFF<Bit>,
    current: DFF<Rest>,
    /// The first packet of the WQE has not been made.
    starts: DFF<Bit>,
    ends_burst: DFF<Bit>,
    /// There is no packet to send.
    sends_nothing: DFF<Bit>,
    is_read: DFF<Bit>,
    is_atomic: DFF<Bit>,
    is_local: DFF<Bit>,
    is_last: DFF<Bit>,
    payload_bytes: DFF<Bits<13>>,
    first_part: DFF<Bits<13>>,
    second_part: DFF<Bits<13>>,
    packets_left: DFF<Bits<7>>,
    /// The WQE at the input waits for the ready queue.
    is_blocked: Reg<Bit>,
    /// Bytes of packets of WQEs since the last turn, in units of 64.
    share: Reg<Bits<9>>,
    turns_begun: Reg<Bits<16>>,
}

impl Logic for Segment {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<Packet>::link(&mut self.packet, &mut self.packets.tx);
        StreamTx::<SgePart>::link(&mut self.sge_parts, &mut self.part_queue.tx);
        StreamTx::<AccessRequest>::link(&mut self.access_request, &mut self.requests.tx);
        StreamTx::<Bits<QUEUE_PAIR_BITS>>::link(&mut self.wake, &mut self.wakes.tx);
        self.turn_count.next = self.turns_begun.q.val();
        let is_sweeping = self.is_sweeping.val();
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let event = self.setup.beat.val();
        let has_event = self.setup.valid.val();
        let wqe = self.checked.beat.val();
        let current = self.current.q.val();
        let is_turn = self.is_turn.q.val();
        let next_turn = self.ready_queue.tx.beat.val();

        // WQEs go first until they have had a quantum, if the ready queue is not empty.
        let share = self.share.q.val();
        let is_blocked = self.is_blocked.q.val();
        let has_wqe = self.checked.valid.val() && !is_blocked;
        let has_turn = self.ready_queue.tx.valid.val() && (self.enable.val() || is_blocked);
        let takes_turn = has_turn && (!has_wqe || share.get_bit(QUANTUM_BITS - 6));
        let may_start = self.wakes.rx.ready.val() && !is_sweeping;
        let chosen = select(takes_turn, next_turn, wqe.header.queue_pair);
        if step == Step::Idle {
            self.queue_pair.d.next = chosen;
            self.is_turn.d.next = takes_turn;
            self.resume.d.next = Step::Idle;
            self.step.d.next = if has_event && !is_sweeping {
                Step::Event
            } else if (takes_turn || has_wqe) && may_start {
                Step::Load
            } else {
                Step::Idle
            };
        }

        // An event: the records are read in one cycle and written in the next.
        let reads_event = step == Step::Event;
        let read_address = select(reads_event, event.queue_pair, chosen);
        self.lives.read_enable.next = step == Step::Idle;
        self.lives.read_address.next = chosen;
        self.rests.read_enable.next = step == Step::Idle || reads_event;
        self.rests.read_address.next = read_address;
        self.unacknowledged.read_enable.next = step == Step::Idle;
        self.unacknowledged.read_address.next = chosen;
        self.unacknowledged.write_enable.next = self.retired_valid.val();
        self.unacknowledged.write_address.next = self.retired_queue_pair.val();
        self.unacknowledged.write_data.next = self.retired.val().una_psn;
        let life = self.lives.read_data.val();
        let rest = self.rests.read_data.val();
        let serves =
            event.state == QpState::ReadyToSend as u64 || event.state == QpState::SendQueueDrain as u64;
        let drops = !serves || event.kind == SetupKind::Restart;
        let is_setup = step == Step::Setup;
        self.setup.ready.next = is_setup;
        self.lives.write_enable.next = is_sweeping || is_setup;
        self.lives.write_address.next = select(is_sweeping, self.sweep_index.val(), event.queue_pair);
        self.lives.write_data.next = Life { serves: serves && !is_sweeping, generation: event.generation };
        if step == Step::Event {
            self.step.d.next = Step::Setup;
        }
        if is_setup {
            self.step.d.next = self.resume.q.val();
            self.is_blocked.d.next = false;
        }

        // The message, and whether it may begin.
        let loads = step == Step::Load;
        let loads_turn = loads && is_turn;
        let unacknowledged = self.unacknowledged.read_data.val();
        let in_flight = select(is_turn, rest.psn, wqe.plan.first_psn) - unacknowledged;
        let is_open = !in_flight.get_bits::<9>(PSN_WINDOW_BITS).any();
        let is_half_open = is_open && !in_flight.get_bit(PSN_WINDOW_BITS - 1);
        let waits = !is_turn && rest.exists;
        let is_served = life.serves && life.generation == wqe.header.generation;
        let is_good =
            is_served && wqe.completion.status == CompletionStatus::Success as u64 && !wqe.header.is_empty;
        let is_split =
            is_good && !wqe.kind.is_read && !wqe.kind.is_local && wqe.plan.first_psn != wqe.header.last_psn;
        let begins_turn = loads_turn && rest.exists && is_open;
        let length = select(is_turn, rest.length, wqe.length);
        let is_alone = self.ready_queue.level.val()
            == select(is_turn, bits::<READY_COUNT_BITS>(1), bits::<READY_COUNT_BITS>(0));
        let is_near = length <= QUANTUM || (length <= 2 * QUANTUM && is_alone && is_half_open);
        let holds = select(is_turn, !rest.is_woken, wqe.plan.is_long && !wqe.header.is_empty);
        let ends_hold = holds && (is_near || (!is_turn && !is_good));
        self.wakes.rx.valid.next = loads && ends_hold && !waits && (!is_turn || begins_turn);
        self.wakes.rx.beat.next = queue_pair;
        self.ready_queue.tx.ready.next = loads_turn;
        let second: Sge = second_sge(wqe.tail);
        let code = select(is_turn, rest.path_mtu, wqe.plan.path_mtu);
        if loads {
            self.was_queued.d.next = !is_turn && rest.is_queued;
            self.starts.d.next = !is_turn;
            self.ends_burst.d.next = wqe.header.ends_burst && !is_turn;
            self.sends_nothing.d.next = !is_turn && (!is_good || wqe.kind.is_local);
            self.is_local.d.next = !is_turn && is_good && wqe.kind.is_local;
            self.is_last.d.next = !is_turn && !is_split;
            // Parts of a READ only tell whether there is an SGE.
            let reads = !is_turn && wqe.kind.is_read;
            self.is_read.d.next = reads;
            self.payload_bytes.d.next = select(reads, bits::<13>(0), wqe.length.get_bits::<13>(0));
            self.first_part.d.next = part(reads, wqe.first.length);
            let has_operands = reads && wqe.kind.is_atomic;
            self.is_atomic.d.next = has_operands;
            self.second_part.d.next = select(has_operands, bits::<13>(0), part(reads, second.length));
            self.packets_left.d.next = quantum_packets(code);
            self.is_blocked.d.next = waits;
            self.step.d.next = if waits || (is_turn && !rest.exists) {
                Step::Idle
            } else if is_turn && !is_open {
                Step::Store
            } else if !is_turn && wqe.listed_count.any() {
                Step::Fill
            } else if is_turn || is_split {
                Step::Plan
            } else {
                Step::Make
            };
            self.current.d.next = if is_turn {
                rest
            } else {
                Rest {
                    exists: false,
                    is_queued: false,
                    is_woken: false,
                    generation: wqe.header.generation,
                    message_count: wqe.header.message_count,
                    is_write: wqe.kind.is_write,
                    has_immediate: wqe.has_immediate,
                    with_invalidate: wqe.with_invalidate,
                    solicited: wqe.solicited,
                    ack_request: wqe.ack_request,
                    immediate: wqe.immediate_or_key,
                    domain: wqe.plan.domain,
                    path_mtu: wqe.plan.path_mtu,
                    psn: wqe.plan.first_psn,
                    packets: bits::<5>(0),
                    length: wqe.length,
                    first: wqe.first,
                    second,
                    listed: wqe.listed_count,
                    listed_index: bits::<LISTED_BITS>(0),
                }
            };
            self.current.d.next.is_woken = !holds || (ends_hold && (!is_turn || begins_turn));
        }
        if loads_turn {
            self.share.d.next = bits(0);
        }
        if begins_turn {
            self.turns_begun.d.next = self.turns_begun.q.val() + 1;
        }

        // A list is stored as a whole, also that of a WQE which sends nothing.
        let listed_index = current.listed_index;
        let next_index = listed_index + 1;
        let fills = step == Step::Fill && self.listed_sges.valid.val();
        self.listed_sges.ready.next = step == Step::Fill;
        self.lists.write_enable.next = fills;
        self.lists.write_address.next = cat!(queue_pair, listed_index);
        self.lists.write_data.next = self.listed_sges.beat.val();
        if fills {
            let is_whole = next_index == current.listed;
            self.current.d.next.listed_index = select(is_whole, bits::<LISTED_BITS>(0), next_index);
            if is_whole {
                self.step.d.next = if self.sends_nothing.q.val() { Step::Make } else { Step::Plan };
            }
        }

        // The next packet, and the bytes that it takes of each SGE.
        let packet_bytes = pmtu(current.path_mtu);
        let fits = current.length <= bit_cast::<32, 13>(packet_bytes);
        let bytes = select(fits, current.length.get_bits::<13>(0), packet_bytes);
        let is_enough = current.first.length >= bit_cast::<32, 13>(bytes);
        let from_first = select(is_enough, bytes, current.first.length.get_bits::<13>(0));
        if step == Step::Plan {
            self.is_last.d.next = fits;
            self.payload_bytes.d.next = bytes;
            self.first_part.d.next = from_first;
            self.second_part.d.next = bytes - from_first;
            self.step.d.next = Step::Make;
        }

        let starts = self.starts.q.val();
        let sends_nothing = self.sends_nothing.q.val();
        let is_read = self.is_read.q.val();
        let is_atomic = self.is_atomic.q.val();
        let is_local = self.is_local.q.val();
        let is_last = self.is_last.q.val();
        let first_part = self.first_part.q.val();
        let second_part = self.second_part.q.val();
        let payload_bytes = self.payload_bytes.q.val();
        // The rest comes from the second SGE, or from the list.
        let is_listed = current.listed.any();
        let has_first = first_part.any() && !sends_nothing;
        let has_second = second_part.any() && !sends_nothing && !is_listed;
        let has_more = second_part.any() && !sends_nothing && is_listed;
        let requests_max = select(is_listed, bits::<4>(REQUESTS_LISTED_MAX), bits::<4>(REQUESTS_MAX));
        let has_room = self.packets.rx.ready.val()
            && self.requests.level.val() <= requests_max
            && !self.part_queue.level.val().get_bits::<2>(3).any();
        let is_making = step == Step::Make;
        let makes = is_making && has_room && !has_event;
        let ends = sends_nothing || is_last || self.packets_left.q.val() == 1;
        let immediate = select(is_last, current.immediate, bits::<32>(0));
        let inline_count = select(starts, wqe.inline_count, bits::<2>(0));
        let plain_opcode = match (current.is_write, starts, is_last, current.has_immediate) {
            (false, true, true, false) => bits::<8>(SEND_ONLY),
            (false, true, true, true) => bits::<8>(SEND_ONLY_IMMEDIATE),
            (false, true, false, _) => bits::<8>(SEND_FIRST),
            (false, false, false, _) => bits::<8>(SEND_MIDDLE),
            (false, false, true, false) => bits::<8>(SEND_LAST),
            (false, false, true, true) => bits::<8>(SEND_LAST_IMMEDIATE),
            (true, true, true, false) => bits::<8>(WRITE_ONLY),
            (true, true, true, true) => bits::<8>(WRITE_ONLY_IMMEDIATE),
            (true, true, false, _) => bits::<8>(WRITE_FIRST),
            (true, false, false, _) => bits::<8>(WRITE_MIDDLE),
            (true, false, true, false) => bits::<8>(WRITE_LAST),
            (true, false, true, true) => bits::<8>(WRITE_LAST_IMMEDIATE),
        };
        let message_opcode = if current.with_invalidate && is_last {
            select(starts, bits::<8>(SEND_ONLY_INVALIDATE), bits::<8>(SEND_LAST_INVALIDATE))
        } else {
            plain_opcode
        };
        let opcode = match (is_read, is_atomic, wqe.kind.is_compare) {
            (false, _, _) => message_opcode,
            (true, false, _) => bits::<8>(READ_REQUEST),
            (true, true, true) => bits::<8>(COMPARE_SWAP),
            (true, true, false) => bits::<8>(FETCH_ADD),
        };
        let operands: AtomicOperands = atomic_operands(wqe.tail);
        self.checked.ready.next = makes && starts;
        self.packets.rx.valid.next = makes;
        self.packets.rx.beat.next = Packet {
            header: WqeHeader {
                queue_pair,
                generation: current.generation,
                is_empty: select(starts, wqe.header.is_empty, sends_nothing),
                is_first: wqe.header.is_first && starts,
                ends_burst: ends && self.ends_burst.q.val(),
                is_open: wqe.header.is_open && starts,
                message_count: current.message_count,
                ..wqe.header
            },
            completion: WqeCompletion {
                status: if !starts {
                    bits::<8>(CompletionStatus::Success as u64)
                } else if sends_nothing
                    && !is_local
                    && wqe.completion.status == CompletionStatus::Success as u64
                {
                    bits::<8>(CompletionStatus::Flushed as u64)
                } else {
                    wqe.completion.status
                },
                ..wqe.completion
            },
            kind: WqeKind {
                is_write: current.is_write,
                is_read,
                is_atomic,
                is_compare: is_atomic && wqe.kind.is_compare,
                is_local,
            },
            starts,
            ends_turn: ends && is_turn,
            opcode,
            solicited: current.solicited && is_last,
            ack_request: (current.ack_request && is_last) || current.packets.all(),
            psn: current.psn,
            extended_or_key: if is_atomic {
                cat!(swap_bytes(operands.compare), swap_bytes(operands.swap_add), wqe.reth.get_bits::<96>(0))
            } else if starts && (current.is_write || is_read) {
                cat!(bits::<64>(0), immediate, wqe.reth)
            } else {
                cat!(bits::<168>(0), select(is_local, current.domain, bits::<24>(0)), immediate)
            },
            payload_bytes,
            inline_count,
            request_count: cat!(has_first && has_second, has_first && !has_second),
            is_listed: has_more,
            first_length: first_part,
            second_length: second_part,
        };

        // Its access requests, the second one a cycle later, those of a list one after the other.
        let is_second = step == Step::Second;
        let is_list = step == Step::Listed;
        self.lists.read_enable.next = true;
        self.lists.read_address.next = cat!(queue_pair, select(is_list, next_index, listed_index));
        let sge = self.lists.read_data.val();
        let is_short = sge.length <= bit_cast::<32, 13>(second_part);
        let from_list = select(is_short, sge.length.get_bits::<13>(0), second_part);
        let source = if is_list {
            sge
        } else if is_second {
            current.second
        } else {
            current.first
        };
        let part = if is_list {
            from_list
        } else if is_second {
            second_part
        } else {
            first_part
        };
        let asks_list = is_list && second_part.any();
        self.part_queue.rx.valid.next = asks_list;
        self.part_queue.rx.beat.next =
            SgePart { length: from_list, is_last: sge.length >= bit_cast::<32, 13>(second_part) };
        self.requests.rx.valid.next = (makes && has_first) || is_second || asks_list;
        self.requests.rx.beat.next = AccessRequest {
            key: source.key,
            domain: current.domain,
            address: source.address,
            length: select(is_read, source.length, bit_cast::<32, 13>(part)),
            local_write: is_read,
            remote_write: false,
            remote_read: false,
            remote_atomic: false,
        };
        self.read.next = ReadRecord {
            psn: current.psn,
            length: current.length,
            path_mtu: current.path_mtu,
            domain: current.domain,
            is_atomic,
            first: current.first,
            second: current.second,
        };
        self.read_index.next = cat!(queue_pair, wqe.plan.read_slot);
        self.read_valid.next = makes && is_read && !sends_nothing;
        let sge_rest = Sge {
            key: source.key,
            address: source.address + bit_cast::<64, 13>(part),
            length: source.length - bit_cast::<32, 13>(part),
        };
        let is_used_up = source.length == bit_cast::<32, 13>(part);
        // A list continues in this packet, or has the first SGE of the next one.
        let walks = makes && is_listed && is_used_up && !sends_nothing;
        let has_ended = sends_nothing || is_last;
        let after = if has_ended && !is_turn {
            Step::Idle
        } else if ends {
            Step::Store
        } else {
            Step::Plan
        };
        if is_making && has_event {
            self.resume.d.next = Step::Make;
            self.step.d.next = Step::Event;
        }
        if makes {
            self.current.d.next.psn = current.psn + 1;
            self.current.d.next.packets = current.packets + 1;
            self.current.d.next.length = current.length - bit_cast::<32, 13>(payload_bytes);
            self.starts.d.next = false;
            self.step.d.next = if has_second {
                Step::Second
            } else if walks {
                Step::Listed
            } else {
                after
            };
            if !is_turn && !share.get_bit(QUANTUM_BITS - 6) {
                let got = select(sends_nothing, bits::<7>(0), payload_bytes.get_bits::<7>(6));
                self.share.d.next = share + bit_cast::<9, 7>(got) + 1;
            }
        }
        if is_second {
            self.step.d.next = after;
        }
        // The packet is complete, and with it the first SGE perhaps.
        let packets_left = self.packets_left.q.val() - 1;
        if (makes && !has_second) || is_second {
            if !walks {
                self.packets_left.d.next = packets_left;
            }
            self.current.d.next.first = if is_used_up && !is_second { current.second } else { sge_rest };
            self.current.d.next.second = if is_used_up || is_second {
                Sge { key: bits::<32>(0), address: bits::<64>(0), length: bits::<32>(0) }
            } else {
                current.second
            };
        }
        // The SGE of which the packet leaves bytes is the first one of the next packet.
        if is_list {
            self.second_part.d.next = second_part - from_list;
            self.current.d.next.first = sge_rest;
            self.current.d.next.listed = current.listed - 1;
            self.current.d.next.listed_index = next_index;
            if !is_short || current.listed == 1 {
                self.packets_left.d.next = packets_left;
                self.step.d.next = after;
            }
        }

        // What is left waits for its turn; a queue pair whose message was dropped stays in the ready queue
        // until its turn comes.
        let stores = step == Step::Store;
        let has_rest = !has_ended;
        self.ready_queue.rx.valid.next = stores && has_rest && !self.was_queued.q.val();
        self.ready_queue.rx.beat.next = queue_pair;
        if stores {
            self.is_blocked.d.next = false;
            self.step.d.next = Step::Idle;
        }
        let drops_current = is_setup && drops && event.queue_pair == queue_pair;
        if drops_current {
            self.sends_nothing.d.next = true;
            self.is_local.d.next = false;
        }
        self.rests.write_enable.next = is_sweeping || is_setup || stores || (loads_turn && !rest.exists);
        self.rests.write_address.next = if is_sweeping {
            self.sweep_index.val()
        } else if is_setup {
            event.queue_pair
        } else {
            queue_pair
        };
        self.rests.write_data.next = if stores { current } else { rest };
        self.rests.write_data.next.exists =
            !is_sweeping && select(stores, has_rest, is_setup && rest.exists && !drops);
        self.rests.write_data.next.is_queued =
            !is_sweeping && select(stores, has_rest, is_setup && rest.is_queued);
    }
}

#[cfg(test)]
pub(crate) mod tests;
