//! Segment: makes packets of messages, and gives each queue pair its share of the wire.
//!
//! A message of up to 2 GiB is one entry, and its packets would keep everybody else waiting. So a long one is cut a quantum of 16 KiB
//! at a time; what is left of it stands in a record, and its queue pair in a line. New entries and the line take turns.
//!
//! ```text
//!              ┌──────────────────────────────────────────────────────┐
//!  setup ─────>│ life                                                 │
//!  item ──────>│─┬─> message ──> parts ──> packet ────────────────────┼──> packet (16 deep)
//!  listed ────>│─│─> list ─┘      ^        │ └───────────────────────┼──> access_request (8 deep), parts
//!  retired ───>│ │    turn                  │ what is left            │
//!              │ │      └─ record <─ line <─┘                         │
//!              │ └────────────────────────────────────────────────────┼──> wake (segment)
//!              └──────────────────────────────────────────────────────┘
//!  step     Idle  Load (Fill)        Plan  Make (Second, Listed)  Store
//! ```
//!
//! A message of one packet takes 3 cycles, 4 with two keys, 14 with six. A packet of a longer one takes 2 cycles, and one more for
//! each key behind the first; 3 more cycles begin and end a quantum, and a list of elements takes one for each when it begins.
//! Measured: 2.50 cycles a packet in messages of 4 packets, 2.12 in those of 16, 2.25 in those of 512.
//! 2,558 LUTs with those used as memory, 1,251 FF, 27 RAMB18, 4 UltraRAMs, depth 11.
//!
//! 1. Items leave in order, and packets of a message in the order of their PSNs. Behind a message the next one of its queue pair
//!    begins when it has been cut as a whole.
//! 2. Exactly `request_count` keys are asked for each packet, in its order: one for each stretch of an element that is in
//!    the packet. So a region that ends in the middle of a message stops it there. Of a list of more than two elements, those
//!    behind the first one in the packet are not counted, but said on `parts`.
//! 3. FIRST and MIDDLE have PMTU bytes. RETH stands in FIRST and ONLY, with the length of the message; ImmDt, IETH and SE in LAST and
//!    ONLY. AckReq stands where the item asks for it, in its last packet, and in every 32nd one (protocol 2.2, 2.4).
//! 4. While both have something to do, the line gets a quantum when items have got theirs, a packet counted as 64 bytes more than its
//!    payload; those in line get theirs one after the other.
//! 5. A turn begins with fewer than 2^15 packets of its queue pair in flight; else the queue pair goes to the end of the line.
//! 6. In any state but RTS and SQD, and for another generation, no packet is made any more: what is left of a message is
//!    dropped with the event, also in the middle of a quantum, and items become flushed ones.
//! 7. Setup events are taken within 4 cycles, whatever the outputs do; within 10 where there are lists.
//! 8. Segmentation is woken once for each long item: when its last turn begins, or 32 KiB before its end if nobody else stands
//!    in line and half of the window is open. So who is woken waits for no answer.
//! 9. While `enable` is low, what stands in line waits there, unless a new item waits for it.
//! 10. A READ is one packet without payload, and its elements are asked for as a whole, whether they may be written. What its
//!     responses need is said on `read` with it.
//!
//! 11. The end of a key of this host is no packet, and goes on with key and domain.
//!
//! `turn_count` counts turns of the line that have made a packet, before its first one; `ends_turn` is said with the last.
use crate::constants::{
    COMPARE_SWAP, FETCH_ADD, FLUSHED, PMTU_256, PMTU_512, PMTU_1024, PMTU_2048, READ_REQUEST, READY_TO_SEND,
    SEND_FIRST, SEND_LAST, SEND_LAST_IMMEDIATE, SEND_LAST_INVALIDATE, SEND_MIDDLE, SEND_ONLY,
    SEND_ONLY_IMMEDIATE, SEND_ONLY_INVALIDATE, SEND_QUEUE_DRAIN, SUCCESS, WRITE_FIRST, WRITE_LAST,
    WRITE_LAST_IMMEDIATE, WRITE_MIDDLE, WRITE_ONLY, WRITE_ONLY_IMMEDIATE,
};
use crate::messages::{
    CheckedWqe, MESSAGE_COUNT_BITS, PSN_WINDOW_BITS, Packet, QUANTUM_BITS, ReadRecord, Retired, Sge, SgePart,
};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::protect::AccessRequest;
use rnic_messages::read::READ_SLOT_BITS;
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS};

/// Where a READ is written down: its queue pair, and its slot.
pub const READ_PLACE_BITS: usize = QUEUE_PAIR_BITS + READ_SLOT_BITS;
const LINE_COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;
const QUANTUM: u64 = 1 << QUANTUM_BITS;
/// Requests that may be waiting when a packet is made; it adds two, and the queue holds eight.
const REQUESTS_MAX: u64 = 6;
/// The same where there is a list: it adds six.
const REQUESTS_LISTED_MAX: u64 = 2;
/// Elements of a list are kept in eight places a queue pair.
const LISTED_BITS: usize = 3;
const LISTED_PLACE_BITS: usize = QUEUE_PAIR_BITS + LISTED_BITS;

/// What commands say.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Life {
    /// Packets are made.
    serves: Bit,
    generation: Bits<GENERATION_BITS>,
}

/// What is left of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Rest {
    /// There is something left.
    is_there: Bit,
    /// The queue pair stands in line; perhaps for a message that was dropped.
    is_in_line: Bit,
    /// Segmentation need not be woken any more.
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
    /// Of the next packet.
    psn: Bits<24>,
    /// Packets so far, modulo 32.
    packets: Bits<5>,
    /// Bytes.
    length: Bits<32>,
    first: Sge,
    second: Sge,
    /// Elements behind the first that stand in the list, then nothing stands in `second`; and where the next one is.
    listed: Bits<LISTED_BITS>,
    listed_index: Bits<LISTED_BITS>,
}

/// What the block does.
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

/// Bytes of a code.
#[kernel]
fn pmtu(code: Bits<3>) -> Bits<13> {
    match code.to_u64() {
        PMTU_256 => bits::<13>(256),
        PMTU_512 => bits::<13>(512),
        PMTU_1024 => bits::<13>(1024),
        PMTU_2048 => bits::<13>(2048),
        _ => bits::<13>(4096),
    }
}

/// What an element gives to the only packet of a message, or whether it is there.
#[kernel]
fn part(is_read: Bit, length: Bits<32>) -> Bits<13> {
    select(is_read, bit_cast::<13, 1>(length.any().into()), length.get_bits::<13>(0))
}

/// Packets of a quantum.
#[kernel]
fn quantum_packets(code: Bits<3>) -> Bits<7> {
    match code.to_u64() {
        PMTU_256 => bits::<7>(QUANTUM / 256),
        PMTU_512 => bits::<7>(QUANTUM / 512),
        PMTU_1024 => bits::<7>(QUANTUM / 1024),
        PMTU_2048 => bits::<7>(QUANTUM / 2048),
        _ => bits::<7>(QUANTUM / 4096),
    }
}

/// The block.
#[derive(LogicBlock, Registers, Construct)]
pub struct Segment {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// Records are being cleared.
    pub is_sweeping: Signal<In, Bit>,
    /// Whose.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From control: work may be begun.
    pub enable: Signal<In, Bit>,
    /// From control; segmentation must have taken the event before.
    pub setup: StreamRx<SetupEvent>,
    /// From authorize.
    pub item: StreamRx<CheckedWqe>,
    /// From authorize: elements of long lists, before their items.
    pub listed: StreamRx<Sge>,
    /// From acknowledge: of which queue pair something is said.
    pub retired_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// How far its peer is.
    pub retires: Signal<In, Retired>,
    /// It is said now.
    pub retires_valid: Signal<In, Bit>,
    /// To issuing; registered.
    pub packet: StreamTx<Packet>,
    /// To issuing: what keys behind the first one of a list are asked for; registered.
    pub parts: StreamTx<SgePart>,
    /// To the region table; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// To deposit: a READ.
    pub read: Signal<Out, ReadRecord>,
    /// Where it is written down.
    pub read_place: Signal<Out, Bits<READ_PLACE_BITS>>,
    /// It is written now.
    pub read_valid: Signal<Out, Bit>,
    /// To segmentation: what follows a long message may come; registered.
    pub wake: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// Turns of the line ever begun; registered.
    pub turn_count: Signal<Out, Bits<16>>,

    lives: Memory<Life, QUEUE_PAIR_BITS>,
    rests: Memory<Rest, QUEUE_PAIR_BITS>,
    unacknowledged: Memory<Bits<24>, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Ultra))]
    lists: Memory<Sge, LISTED_PLACE_BITS>,
    line: Fifo<Bits<QUEUE_PAIR_BITS>, QUEUE_PAIR_BITS, LINE_COUNT_BITS>,
    packets: Fifo<Packet, 4, 5>,
    part_queue: Fifo<SgePart, 4, 5>,
    requests: Fifo<AccessRequest, 3, 4>,
    wakes: Fifo<Bits<QUEUE_PAIR_BITS>, 2, 3>,
    step: Reg<Step>,
    /// Where to go on behind an event.
    resume: DFF<Step>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    /// The message comes from the line.
    is_turn: DFF<Bit>,
    was_in_line: DFF<Bit>,
    current: DFF<Rest>,
    /// The item's first packet has not been made.
    starts: DFF<Bit>,
    ends_burst: DFF<Bit>,
    /// There is no packet to send.
    is_bare: DFF<Bit>,
    is_read: DFF<Bit>,
    is_atomic: DFF<Bit>,
    is_local: DFF<Bit>,
    is_last: DFF<Bit>,
    payload_bytes: DFF<Bits<13>>,
    first_part: DFF<Bits<13>>,
    second_part: DFF<Bits<13>>,
    packets_left: DFF<Bits<7>>,
    /// The item at the entry waits for the line.
    is_blocked: Reg<Bit>,
    /// What items have got since the last turn of the line, in 64 bytes.
    share: Reg<Bits<9>>,
    turns_begun: Reg<Bits<16>>,
}

impl Logic for Segment {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<Packet>::link(&mut self.packet, &mut self.packets.tx);
        StreamTx::<SgePart>::link(&mut self.parts, &mut self.part_queue.tx);
        StreamTx::<AccessRequest>::link(&mut self.access_request, &mut self.requests.tx);
        StreamTx::<Bits<QUEUE_PAIR_BITS>>::link(&mut self.wake, &mut self.wakes.tx);
        self.turn_count.next = self.turns_begun.q.val();
        let is_sweeping = self.is_sweeping.val();
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let event = self.setup.beat.val();
        let has_event = self.setup.valid.val();
        let item = self.item.beat.val();
        let current = self.current.q.val();
        let is_turn = self.is_turn.q.val();
        let first_in_line = self.line.tx.beat.val();

        // Who is next. Items go on until they have got a quantum, if somebody stands in line.
        let share = self.share.q.val();
        let is_blocked = self.is_blocked.q.val();
        let has_item = self.item.valid.val() && !is_blocked;
        let has_turn = self.line.tx.valid.val() && (self.enable.val() || is_blocked);
        let takes_turn = has_turn && (!has_item || share.get_bit(QUANTUM_BITS - 6));
        let may_start = self.wakes.rx.ready.val() && !is_sweeping;
        let chosen = select(takes_turn, first_in_line, item.queue_pair);
        if step == Step::Idle {
            self.queue_pair.d.next = chosen;
            self.is_turn.d.next = takes_turn;
            self.resume.d.next = Step::Idle;
            self.step.d.next = if has_event && !is_sweeping {
                Step::Event
            } else if (takes_turn || has_item) && may_start {
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
        self.unacknowledged.write_enable.next = self.retires_valid.val();
        self.unacknowledged.write_address.next = self.retired_index.val();
        self.unacknowledged.write_data.next = self.retires.val().una_psn;
        let life = self.lives.read_data.val();
        let rest = self.rests.read_data.val();
        let serves = event.state == READY_TO_SEND || event.state == SEND_QUEUE_DRAIN;
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

        // What is to be cut, and whether it may be.
        let loads = step == Step::Load;
        let loads_turn = loads && is_turn;
        let unacknowledged = self.unacknowledged.read_data.val();
        let in_flight = select(is_turn, rest.psn, item.psn) - unacknowledged;
        let is_open = !in_flight.get_bits::<9>(PSN_WINDOW_BITS).any();
        let is_half_open = is_open && !in_flight.get_bit(PSN_WINDOW_BITS - 1);
        let waits = !is_turn && rest.is_there;
        let is_served = life.serves && life.generation == item.generation;
        let is_good = is_served && item.status == SUCCESS && !item.is_empty;
        let is_split = is_good && !item.is_read && !item.is_local && item.psn != item.last_psn;
        let begins_turn = loads_turn && rest.is_there && is_open;
        let length = select(is_turn, rest.length, item.length);
        let is_alone =
            self.line.level.val() == select(is_turn, bits::<LINE_COUNT_BITS>(1), bits::<LINE_COUNT_BITS>(0));
        let is_near = length <= QUANTUM || (length <= 2 * QUANTUM && is_alone && is_half_open);
        let holds = select(is_turn, !rest.is_woken, item.is_long && !item.is_empty);
        let ends_hold = holds && (is_near || (!is_turn && !is_good));
        self.wakes.rx.valid.next = loads && ends_hold && !waits && (!is_turn || begins_turn);
        self.wakes.rx.beat.next = queue_pair;
        self.line.tx.ready.next = loads_turn;
        let code = select(is_turn, rest.path_mtu, item.path_mtu);
        if loads {
            self.was_in_line.d.next = !is_turn && rest.is_in_line;
            self.starts.d.next = !is_turn;
            self.ends_burst.d.next = item.ends_burst && !is_turn;
            self.is_bare.d.next = !is_turn && (!is_good || item.is_local);
            self.is_local.d.next = !is_turn && is_good && item.is_local;
            self.is_last.d.next = !is_turn && !is_split;
            // Parts of a READ only say that there is one.
            let reads = !is_turn && item.is_read;
            self.is_read.d.next = reads;
            self.payload_bytes.d.next = select(reads, bits::<13>(0), item.length.get_bits::<13>(0));
            self.first_part.d.next = part(reads, item.first.length);
            let has_operands = reads && item.is_atomic;
            self.is_atomic.d.next = has_operands;
            self.second_part.d.next = select(has_operands, bits::<13>(0), part(reads, item.second.length));
            self.packets_left.d.next = quantum_packets(code);
            self.is_blocked.d.next = waits;
            self.step.d.next = if waits || (is_turn && !rest.is_there) {
                Step::Idle
            } else if is_turn && !is_open {
                Step::Store
            } else if !is_turn && item.listed_count.any() {
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
                    is_there: false,
                    is_in_line: false,
                    is_woken: false,
                    generation: item.generation,
                    message_count: item.message_count,
                    is_write: item.is_write,
                    has_immediate: item.has_immediate,
                    with_invalidate: item.with_invalidate,
                    solicited: item.solicited,
                    ack_request: item.ack_request,
                    immediate: item.immediate,
                    domain: item.domain,
                    path_mtu: item.path_mtu,
                    psn: item.psn,
                    packets: bits::<5>(0),
                    length: item.length,
                    first: item.first,
                    second: item.second,
                    listed: item.listed_count,
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

        // A list is written down as a whole, also that of an item which sends nothing.
        let listed_index = current.listed_index;
        let next_index = listed_index + 1;
        let fills = step == Step::Fill && self.listed.valid.val();
        self.listed.ready.next = step == Step::Fill;
        self.lists.write_enable.next = fills;
        self.lists.write_address.next = cat!(queue_pair, listed_index);
        self.lists.write_data.next = self.listed.beat.val();
        if fills {
            let is_whole = next_index == current.listed;
            self.current.d.next.listed_index = select(is_whole, bits::<LISTED_BITS>(0), next_index);
            if is_whole {
                self.step.d.next = if self.is_bare.q.val() { Step::Make } else { Step::Plan };
            }
        }

        // The next packet, and what each element gives to it.
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
        let is_bare = self.is_bare.q.val();
        let is_read = self.is_read.q.val();
        let is_atomic = self.is_atomic.q.val();
        let is_local = self.is_local.q.val();
        let is_last = self.is_last.q.val();
        let first_part = self.first_part.q.val();
        let second_part = self.second_part.q.val();
        let payload_bytes = self.payload_bytes.q.val();
        // What the first element does not give comes from the second one, or from the list.
        let is_listed = current.listed.any();
        let has_first = first_part.any() && !is_bare;
        let has_second = second_part.any() && !is_bare && !is_listed;
        let has_more = second_part.any() && !is_bare && is_listed;
        let requests_max = select(is_listed, bits::<4>(REQUESTS_LISTED_MAX), bits::<4>(REQUESTS_MAX));
        let has_room = self.packets.rx.ready.val()
            && self.requests.level.val() <= requests_max
            && !self.part_queue.level.val().get_bits::<2>(3).any();
        let is_making = step == Step::Make;
        let makes = is_making && has_room && !has_event;
        let ends = is_bare || is_last || self.packets_left.q.val() == 1;
        let immediate = select(is_last, current.immediate, bits::<32>(0));
        let inline_count = select(starts, item.inline_count, bits::<2>(0));
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
        let opcode = match (is_read, is_atomic, item.is_compare) {
            (false, _, _) => message_opcode,
            (true, false, _) => bits::<8>(READ_REQUEST),
            (true, true, true) => bits::<8>(COMPARE_SWAP),
            (true, true, false) => bits::<8>(FETCH_ADD),
        };
        let operands = item.second;
        let swap_add: Bits<64> = cat!(operands.length, operands.key);
        self.item.ready.next = makes && starts;
        self.packets.rx.valid.next = makes;
        self.packets.rx.beat.next = Packet {
            queue_pair,
            generation: current.generation,
            is_empty: select(starts, item.is_empty, is_bare),
            is_first: item.is_first && starts,
            starts,
            ends_burst: ends && self.ends_burst.q.val(),
            ends_turn: ends && is_turn,
            message_count: current.message_count,
            last_psn: item.last_psn,
            place: item.place,
            next_slot: item.next_slot,
            has_wr_id: item.has_wr_id,
            wr_id: item.wr_id,
            status: if !starts {
                bits::<8>(SUCCESS)
            } else if is_bare && !is_local && item.status == SUCCESS {
                bits::<8>(FLUSHED)
            } else {
                item.status
            },
            reason: item.reason,
            is_signalled: item.is_signalled,
            is_write: current.is_write,
            is_read,
            is_atomic,
            is_compare: is_atomic && item.is_compare,
            is_open: item.is_open && starts,
            is_local,
            opcode,
            solicited: current.solicited && is_last,
            ack_request: (current.ack_request && is_last) || current.packets.all(),
            psn: current.psn,
            extended: if is_atomic {
                cat!(swap_bytes(operands.address), swap_bytes(swap_add), item.remote.get_bits::<96>(0))
            } else if starts && (current.is_write || is_read) {
                cat!(bits::<64>(0), immediate, item.remote)
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

        // Its keys, the second one a cycle later, those of a list one after the other.
        let is_second = step == Step::Second;
        let is_list = step == Step::Listed;
        self.lists.read_enable.next = true;
        self.lists.read_address.next = cat!(queue_pair, select(is_list, next_index, listed_index));
        let sge = self.lists.read_data.val();
        let is_short = sge.length <= bit_cast::<32, 13>(second_part);
        let from_list = select(is_short, sge.length.get_bits::<13>(0), second_part);
        let stretch = if is_list {
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
            key: stretch.key,
            domain: current.domain,
            address: stretch.address,
            length: select(is_read, stretch.length, bit_cast::<32, 13>(part)),
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
        self.read_place.next = cat!(queue_pair, item.read_slot);
        self.read_valid.next = makes && is_read && !is_bare;
        let behind = Sge {
            key: stretch.key,
            address: stretch.address + bit_cast::<64, 13>(part),
            length: stretch.length - bit_cast::<32, 13>(part),
        };
        let is_used_up = stretch.length == bit_cast::<32, 13>(part);
        // A list goes on in this packet, or says what the next one begins with.
        let walks = makes && is_listed && is_used_up && !is_bare;
        let has_ended = is_bare || is_last;
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
                let got = select(is_bare, bits::<7>(0), payload_bytes.get_bits::<7>(6));
                self.share.d.next = share + bit_cast::<9, 7>(got) + 1;
            }
        }
        if is_second {
            self.step.d.next = after;
        }
        // The packet is done with, and with it the first element perhaps.
        let packets_left = self.packets_left.q.val() - 1;
        if (makes && !has_second) || is_second {
            if !walks {
                self.packets_left.d.next = packets_left;
            }
            self.current.d.next.first = if is_used_up && !is_second { current.second } else { behind };
            self.current.d.next.second = if is_used_up || is_second {
                Sge { key: bits::<32>(0), address: bits::<64>(0), length: bits::<32>(0) }
            } else {
                current.second
            };
        }
        // The first element that the packet leaves something of is the first one of the next.
        if is_list {
            self.second_part.d.next = second_part - from_list;
            self.current.d.next.first = behind;
            self.current.d.next.listed = current.listed - 1;
            self.current.d.next.listed_index = next_index;
            if !is_short || current.listed == 1 {
                self.packets_left.d.next = packets_left;
                self.step.d.next = after;
            }
        }

        // What is left waits for its turn; who was dropped stands in line until its turn comes.
        let stores = step == Step::Store;
        let has_rest = !has_ended;
        self.line.rx.valid.next = stores && has_rest && !self.was_in_line.q.val();
        self.line.rx.beat.next = queue_pair;
        if stores {
            self.is_blocked.d.next = false;
            self.step.d.next = Step::Idle;
        }
        let drops_current = is_setup && drops && event.queue_pair == queue_pair;
        if drops_current {
            self.is_bare.d.next = true;
            self.is_local.d.next = false;
        }
        self.rests.write_enable.next = is_sweeping || is_setup || stores || (loads_turn && !rest.is_there);
        self.rests.write_address.next = if is_sweeping {
            self.sweep_index.val()
        } else if is_setup {
            event.queue_pair
        } else {
            queue_pair
        };
        self.rests.write_data.next = if stores { current } else { rest };
        self.rests.write_data.next.is_there =
            !is_sweeping && select(stores, has_rest, is_setup && rest.is_there && !drops);
        self.rests.write_data.next.is_in_line =
            !is_sweeping && select(stores, has_rest, is_setup && rest.is_in_line);
    }
}

#[cfg(test)]
pub(crate) mod tests;
