//! Place: writes the payload of received packets to host memory, then hands on their CQEs and notices.
//!
//! Payload arrives from lane 0 on, one run of beats a packet, and goes to up to three spans at any address. One rotator aligns it: a
//! word that is written is made of two beats that were turned by the same distance.
//!
//! ```text
//!             ┌─────────────────────────────────────────────────────────────────────────────┐
//!  command ──>│ ┌────────┐ part ┌─────────┐ plans (8) ┌─────────┐ word  ┌──────────────┐    │
//!             │ │ cut at ├─────>│ plan of ├──────────>│ cycles, ├──────>│ words (Fifo) ├────┼──> write
//!             │ │ 512 B  │      │ cycles  │           │ rotator │       └──────────────┘    │
//!             │ └──┬─────┘      └─────────┘           └─^────┬──┘                           │
//!  payload ───┼────│────────────────────────────────────┘    │ ends (write counts)          │
//!             │    │                                         v                              │
//!             │    │   payload_done_count, payload_failed ─> ┌────────┐                     │
//!             │    └──────────── tails (512) ───────────────>│ retire ├─────────────────────┼──> cqe, notice
//!             │                                              └────────┘                     │
//!             └─────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Latency 10 cycles from a command to `write`, and 4 from the change of `payload_done_count` to `cqe` and `notice`. One word
//! a cycle, across writes and packets. A span that begins within a beat of payload costs one cycle more if its first word needs two
//! beats; a packet without payload costs one cycle, and one whose payload is dropped costs as many as it has beats. Packets retire at
//! one in two cycles. Up to 512 packets and some 480 writes wait for the host.
//!
//! 1. The words of a packet are written in the order of its spans, cut at multiples of 512 bytes.
//! 2. CQE and notice of a packet are offered when all writes of it and of the packets before it are reported done: the host promises
//!    no order of two writes unless the second is issued after the first is done (design 3.1). So no CQE is seen before its
//!    payload, whatever the host does. CQE and notice of one packet leave before those of the next.
//! 3. If the host refused one of the packet's writes, its CQE has the status `LocalProtection` instead of `Success` (protocol 3.6,
//!    row 13), and `notice.write_failed` is set.
//! 4. `notice.write_count` counts all writes of payload up to the end of the packet.
//! 5. As many beats of payload are taken as `payload_bytes` fills, whether they are written or dropped.
//! 6. Generations pass through: a command that destroys a queue pair waits for `in_flight`, and the receivers of CQEs and notices
//!    compare generations.
//!
//! The lengths of spans must add up to `payload_bytes`, and none may be zero. Design decision 11.
use rnic_blocks::logic::byte_mask::ByteMask;
use rnic_blocks::logic::rotate::Rotator;
use rnic_blocks::memory::Storage;
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Beat, FIFO_LATENCY, Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_messages::complete::CqeToken;
use rnic_messages::host::{HostSpan, PayloadWrite, has_reached};
use rnic_messages::pool::{LEVEL_BITS, level_of};
use rnic_messages::receive::{PlaceCommand, PlaceNotice, PlaceNoticeKind};
use rnic_messages::setup::{InFlight, in_flight_after};
use rnic_messages::sizes::{GENERATION_BITS, LENGTH_BITS, QUEUE_PAIR_BITS, SPAN_BITS, WRITE_COUNT_BITS};

/// Stages of the rotator.
const STAGES: usize = 3;
/// log2 of the packets between command and retirement.
const TAILS: usize = 9;
const TAIL_COUNT: usize = TAILS + 1;
/// log2 of the words that wait to be written.
const WORDS: usize = 5;
const WORD_COUNT: usize = WORDS + 1;
/// A word enters the pipeline while at most this many wait, so that those in the pipeline have room.
const WAITING_MAX: u64 = 24;
/// A plan of cycles begins while fewer writes than this belong to packets that have not retired. Two more may be in the pipeline, and
/// all of them may fail.
const OPEN_MAX: u64 = 480;
const FAILURES: usize = 9;
const FAILURE_COUNT: usize = FAILURES + 1;
/// Cycles by which a count of writes is delayed, so that the failure of a write is offered before the write counts as done.
const DONE_STAGES: usize = FIFO_LATENCY + 1;
/// log2 of the parts that are planned ahead.
const PLANS: usize = 3;
const PLAN_COUNT: usize = PLANS + 1;
/// Bits of the number of a part's cycle; at 64 bits, 8,191 bytes are 1,024 beats.
const CYCLE_BITS: usize = 11;
/// Bits of a lane at the widest datapath.
const LANE_BITS: usize = 6;
/// The address of the next part is made in two steps, in the first one below this bit.
const LOW_BITS: usize = 36;
const HIGH_BITS: usize = 64 - LOW_BITS;
const LOW_PAGE_BITS: usize = LOW_BITS - 9;
const LOW_PAGE_COUNT: usize = LOW_PAGE_BITS + 1;

/// Levels of the pools of place.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PlacePools {
    /// Packets that were taken and have not retired.
    pub packets: Bits<LEVEL_BITS>,
    /// Writes of packets that have not retired.
    pub writes: Bits<LEVEL_BITS>,
    /// Failures that no packet has taken.
    pub failures: Bits<LEVEL_BITS>,
}

/// A write to the host without its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct WriteHeader {
    address: Bits<64>,
    length: Bits<LENGTH_BITS>,
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    generation: Bits<GENERATION_BITS>,
    is_response: Bit,
}

/// How far a command has been cut into parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Cursor {
    /// What is left of the span.
    span: HostSpan,
    /// One is to be added to the high bits of its address.
    carry: Bit,
    span_index: Bits<2>,
    /// No part of the span has been cut yet.
    is_first: Bit,
    /// Lane of the payload beat in which the next part begins.
    lane: Bits<LANE_BITS>,
}

/// A part of a span that crosses no multiple of 512 bytes, or a packet without a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Part {
    header: WriteHeader,
    /// Lane of the payload beat in which it begins.
    lane: Bits<LANE_BITS>,
    /// It is the first part of its span, and the last one.
    is_first: Bit,
    is_last: Bit,
    /// Bytes of its span after it.
    rest: Bits<SPAN_BITS>,
    is_last_span: Bit,
    ends_packet: Bit,
    /// It is written. Else `dropped` bytes of payload are taken and dropped.
    is_write: Bit,
    dropped: Bits<SPAN_BITS>,
}

/// A part as cycles, each of which takes a beat of payload, makes a word, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Plan {
    header: WriteHeader,
    /// Lanes by which payload is turned.
    turn: Bits<LANE_BITS>,
    /// Number of cycles less one.
    last_cycle: Bits<CYCLE_BITS>,
    /// The first cycle makes no word, because that word needs two beats.
    is_ahead: Bit,
    /// The last cycle takes no beat.
    skips_last: Bit,
    /// The last beat stays in the stream, because the next span begins in it.
    keeps_last: Bit,
    /// There are beats to take.
    has_beats: Bit,
    is_write: Bit,
    ends_packet: Bit,
}

/// What one cycle of a plan does.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Cycle {
    is_last: Bit,
    needs_beat: Bit,
    /// The beat is used, and stays in the stream.
    keeps_beat: Bit,
    makes_word: Bit,
}

/// A word on its way through the rotator.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Word {
    header: WriteHeader,
    last: Bit,
}

/// A word that waits to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Made<const DATA: usize> {
    word: Word,
    data: Bits<DATA>,
}

/// What follows the payload of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Tail {
    has_completion: Bit,
    completion: CqeToken,
    has_notice: Bit,
    notice: PlaceNotice,
}

/// What becomes of the oldest packet in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Retirement {
    /// Some of its writes are not done.
    Wait,
    /// One of its writes has failed, and is taken from the queue of failures.
    Collect,
    /// CQE and notice are offered.
    Retire,
}

/// Begins a command: nothing of its first span has been cut.
#[kernel]
fn cursor_of(first: HostSpan) -> Cursor {
    Cursor { span: first, carry: false, span_index: bits(0), is_first: true, lane: bits(0) }
}

/// Cuts the next part off a command: up to the next multiple of 512 bytes, or to the end of its span.
#[kernel]
fn part_of(command: PlaceCommand, cursor: Cursor) -> Part {
    let span = cursor.span;
    let has_span = command.span_count.any();
    let high = span.address.get_bits::<HIGH_BITS>(LOW_BITS) + bit_cast::<HIGH_BITS, 1>(cursor.carry.into());
    let room = bits::<LENGTH_BITS>(512) - bit_cast::<LENGTH_BITS, 9>(span.address.get_bits::<9>(0));
    let is_last = span.length <= bit_cast::<SPAN_BITS, LENGTH_BITS>(room);
    let is_last_span = cursor.span_index + 1 == command.span_count;
    let after = span.length - bit_cast::<SPAN_BITS, LENGTH_BITS>(room);
    Part {
        header: WriteHeader {
            address: cat!(high, span.address.get_bits::<LOW_BITS>(0)),
            length: select(is_last, span.length.get_bits::<LENGTH_BITS>(0), room),
            queue_pair: command.queue_pair,
            generation: command.generation,
            is_response: command.notice.kind == PlaceNoticeKind::Response,
        },
        lane: cursor.lane,
        is_first: cursor.is_first,
        is_last,
        rest: select(is_last, bits::<SPAN_BITS>(0), after),
        is_last_span,
        ends_packet: !has_span || (is_last && is_last_span),
        is_write: has_span,
        dropped: command.payload_bytes,
    }
}

/// Moves past a part: to the rest of its span, or to the next span. The carry out of the low bits of the address is added a
/// cycle later.
#[kernel]
fn cursor_after<const BYTES: usize>(command: PlaceCommand, cursor: Cursor, part: Part) -> Cursor {
    let lanes = (1u64 << (BYTES as u64 - 1)) - 1;
    let address = part.header.address;
    let page = bit_cast::<LOW_PAGE_COUNT, LOW_PAGE_BITS>(address.get_bits::<LOW_PAGE_BITS>(9)) + 1;
    let rest = HostSpan {
        address: cat!(
            address.get_bits::<HIGH_BITS>(LOW_BITS),
            page.get_bits::<LOW_PAGE_BITS>(0),
            bits::<9>(0)
        ),
        length: part.rest,
    };
    let next = select(cursor.span_index.any(), command.third, command.second);
    Cursor {
        span: select(part.is_last, next, rest),
        carry: !part.is_last && page.get_bit(LOW_PAGE_BITS),
        span_index: if part.is_last { cursor.span_index + 1 } else { cursor.span_index },
        is_first: part.is_last,
        lane: (cursor.lane + part.header.length.get_bits::<LANE_BITS>(0)) & lanes,
    }
}

/// Plans the cycles of a part.
#[kernel]
fn plan_of<const BYTES: usize>(part: Part) -> Plan {
    let lane_shift = BYTES as u64 - 1;
    let lanes = (1u64 << lane_shift) - 1;
    let length = part.header.length;
    let host_lane = part.header.address.get_bits::<LANE_BITS>(0) & lanes;
    let turn = (host_lane - part.lane) & lanes;
    let is_ahead = part.is_write && part.is_first && host_lane < part.lane;
    let last_byte =
        bit_cast::<CYCLE_BITS, LANE_BITS>(host_lane) + bit_cast::<CYCLE_BITS, LENGTH_BITS>(length) - 1;
    let end_lane = last_byte.get_bits::<LANE_BITS>(0) & lanes;
    let dropped_cycles = ((part.dropped - 1) >> lane_shift).get_bits::<CYCLE_BITS>(0);
    // The last beat that this part takes is also the span's last one if the turned beat holds all that follows in the span.
    let takes_last_beat = part.rest <= bit_cast::<SPAN_BITS, LANE_BITS>(turn);
    let next_lane =
        (part.lane + length.get_bits::<LANE_BITS>(0) + part.rest.get_bits::<LANE_BITS>(0)) & lanes;
    Plan {
        header: part.header,
        turn,
        last_cycle: if part.is_write {
            (last_byte >> lane_shift) + bit_cast::<CYCLE_BITS, 1>(is_ahead.into())
        } else if part.dropped.any() {
            dropped_cycles
        } else {
            bits(0)
        },
        is_ahead,
        skips_last: part.is_write && part.is_last && end_lane < turn,
        keeps_last: part.is_write && takes_last_beat && !part.is_last_span && next_lane.any(),
        has_beats: part.is_write || part.dropped.any(),
        is_write: part.is_write,
        ends_packet: part.ends_packet,
    }
}

/// Finds what a cycle of a plan does, the first one being number 0.
#[kernel]
fn cycle_of(plan: Plan, number: Bits<CYCLE_BITS>) -> Cycle {
    let is_last = number == plan.last_cycle;
    let is_before_last = number + 1 == plan.last_cycle;
    let is_last_beat = select(plan.skips_last, is_before_last, is_last);
    Cycle {
        is_last,
        needs_beat: plan.has_beats && !(is_last && plan.skips_last),
        keeps_beat: is_last_beat && plan.keeps_last,
        makes_word: plan.is_write && (!plan.is_ahead || number.any()),
    }
}

/// Decides whether the oldest packet retires, given the writes up to its end, those that are done, and the count of the oldest
/// write that failed.
#[kernel]
fn retirement(
    end: Bits<WRITE_COUNT_BITS>,
    done: Bits<WRITE_COUNT_BITS>,
    has_failure: Bit,
    failure: Bits<WRITE_COUNT_BITS>,
) -> Retirement {
    if !has_reached(done, end) {
        Retirement::Wait
    } else if has_failure && has_reached(end, failure) {
        Retirement::Collect
    } else {
        Retirement::Retire
    }
}

/// The CQE of a packet, one of whose writes may have failed. A status that is an error already stays.
#[kernel]
fn cqe_after(completion: CqeToken, write_failed: Bit) -> CqeToken {
    CqeToken {
        status: if write_failed && completion.status == CompletionStatus::Success as u64 {
            bits(CompletionStatus::LocalProtection as u64)
        } else {
            completion.status
        },
        ..completion
    }
}

/// The write that a word belongs to, with its data.
#[kernel]
fn payload_write<const DATA: usize>(made: Made<DATA>) -> PayloadWrite<DATA> {
    let header = made.word.header;
    PayloadWrite::<DATA> {
        address: header.address,
        length: header.length,
        queue_pair: header.queue_pair,
        generation: header.generation,
        is_response: header.is_response,
        data: made.data,
        last: made.word.last,
    }
}

/// Writes received payload to host memory, then reports it.
#[clocked(reset = "forgets all packets")]
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
pub struct Place<const DATA: usize, const BYTES: usize> {
    /// From the place mux: what becomes of each packet. `ready` is combinational.
    pub command: StreamRx<PlaceCommand>,
    /// From the place mux: payload of the packets that have some. `ready` is a function of registers.
    pub payload: StreamRx<Beat<DATA, BYTES>>,

    /// To the host writer; a function of registers.
    pub write: StreamTx<PayloadWrite<DATA>>,
    /// From the host writer: writes of payload that are done, modulo 2^16.
    pub payload_done_count: Signal<In, Bits<WRITE_COUNT_BITS>>,
    /// From the host writer: `payload_done_count` has just counted a write that failed.
    pub payload_failed: Signal<In, Bit>,
    /// To the completion queues; a function of registers.
    pub cqe: StreamTx<CqeToken>,
    /// To the place mux; a function of registers.
    pub notice: StreamTx<PlaceNotice>,
    /// Commands taken, and packets retired; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// Levels of pools; registered.
    pub pools: Signal<Out, PlacePools>,

    command_held: DFF<PlaceCommand>,
    is_busy: Reg<Bit>,
    cursor: DFF<Cursor>,
    part: DFF<Part>,
    part_valid: Reg<Bit>,
    #[init(Fifo::new(Storage::Distributed))]
    plans: Fifo<Plan, PLANS, PLAN_COUNT>,
    cycle: Reg<Bits<CYCLE_BITS>>,
    #[init(Rotator::by_bytes())]
    rotator: Rotator<DATA, BYTES, STAGES>,
    below: ByteMask<DATA, BYTES>,
    word: [DFF<Word>; 4],
    word_valid: [Reg<Bit>; 4],
    beat_valid: [Reg<Bit>; 3],
    turns: [DFF<Bits<LANE_BITS>>; 2],
    mask: DFF<Bits<DATA>>,
    held: DFF<Bits<DATA>>,
    made: DFF<Bits<DATA>>,
    #[init(Fifo::new(Storage::Block))]
    queue: Fifo<Made<DATA>, WORDS, WORD_COUNT>,
    #[init(Fifo::new(Storage::Block))]
    tails: Fifo<Tail, TAILS, TAIL_COUNT>,
    /// Of each packet whose last word is made, the writes up to its end.
    #[init(Fifo::new(Storage::Block))]
    ends: Fifo<Bits<WRITE_COUNT_BITS>, TAILS, TAIL_COUNT>,
    /// Writes that have entered the rotator, and those of packets that have retired.
    planned: Reg<Bits<WRITE_COUNT_BITS>>,
    retired: Reg<Bits<WRITE_COUNT_BITS>>,
    is_open: Reg<Bit>,
    /// Counts of writes that failed.
    #[init(Fifo::new(Storage::Block))]
    failures: Fifo<Bits<WRITE_COUNT_BITS>, FAILURES, FAILURE_COUNT>,
    /// The count of writes that are done, of each of the last cycles.
    done: [Reg<Bits<WRITE_COUNT_BITS>>; DONE_STAGES],
    has_failed: Reg<Bit>,
    is_leaving: Reg<Bit>,
    cqe_waits: Reg<Bit>,
    notice_waits: Reg<Bit>,
    flight: Reg<InFlight>,
    pools_held: DFF<PlacePools>,
}

impl<const DATA: usize, const BYTES: usize> Logic for Place<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // Spans are cut, one part a cycle.
        let command = self.command_held.q.val();
        let cursor = self.cursor.q.val();
        let part = part_of(command, cursor);
        let is_busy = self.is_busy.q.val();
        let may_cut = !self.part_valid.q.val() || self.plans.rx.ready.val();
        let cuts = is_busy && may_cut;
        if may_cut {
            self.part_valid.d.next = is_busy;
            self.part.d.next = part;
        }
        if cuts {
            self.is_busy.d.next = !part.ends_packet;
            self.cursor.d.next = cursor_after::<BYTES>(command, cursor, part);
        }
        let may_take = (!is_busy || (cuts && part.ends_packet)) && self.tails.rx.ready.val();
        let takes = may_take && self.command.valid.val();
        let asked = self.command.beat.val();
        self.command.ready.next = may_take;
        if takes {
            self.is_busy.d.next = true;
            self.command_held.d.next = asked;
            self.cursor.d.next = cursor_of(asked.first);
        }
        self.tails.rx.valid.next = takes;
        self.tails.rx.beat.next = Tail {
            has_completion: asked.has_completion,
            completion: asked.completion,
            has_notice: asked.has_notice,
            notice: asked.notice,
        };
        self.plans.rx.offer(self.part_valid.q.val(), plan_of::<BYTES>(self.part.q.val()));

        // A cycle takes a beat, makes a word, or both.
        let plan = self.plans.tx.beat.val();
        let cycle = cycle_of(plan, self.cycle.q.val());
        let has_room = self.queue.level.val() <= WAITING_MAX && self.is_open.q.val();
        let may_go = self.plans.tx.valid.val() && has_room;
        let goes = may_go && (!cycle.needs_beat || self.payload.valid.val());
        let ends = goes && cycle.is_last;
        self.payload.ready.next = may_go && cycle.needs_beat && !cycle.keeps_beat;
        self.plans.tx.ready.next = ends;
        if goes {
            self.cycle.d.next = if cycle.is_last { bits(0) } else { self.cycle.q.val() + 1 };
        }
        let planned = self.planned.q.val() + bit_cast::<WRITE_COUNT_BITS, 1>(plan.is_write.into());
        if ends {
            self.planned.d.next = planned;
        }
        self.is_open.d.next = self.planned.q.val() - self.retired.q.val() < OPEN_MAX;
        self.ends.rx.offer(ends && plan.ends_packet, planned);

        // The pipeline of the rotator never stops.
        self.word[0].d.next = Word { header: plan.header, last: cycle.is_last };
        self.word_valid[0].d.next = goes && cycle.makes_word;
        self.beat_valid[0].d.next = goes && cycle.needs_beat;
        for stage in 1..4 {
            self.word[stage].d.next = self.word[stage - 1].q.val();
            self.word_valid[stage].d.next = self.word_valid[stage - 1].q.val();
        }
        for stage in 1..3 {
            self.beat_valid[stage].d.next = self.beat_valid[stage - 1].q.val();
        }
        self.turns[0].d.next = plan.turn;
        self.turns[1].d.next = self.turns[0].q.val();
        self.rotator.data.next = self.payload.beat.val().data;
        self.rotator.distance.next = bit_cast::<BYTES, LANE_BITS>(plan.turn);
        self.below.count.next = bit_cast::<BYTES, LANE_BITS>(self.turns[1].q.val());
        self.mask.d.next = self.below.mask.val();
        let turned = self.rotator.rotated.val();
        let mask = self.mask.q.val();
        if self.beat_valid[2].q.val() {
            self.held.d.next = turned;
        }
        self.made.d.next = (turned & !mask) | (self.held.q.val() & mask);
        self.queue.rx.valid.next = self.word_valid[3].q.val();
        self.queue.rx.beat.next = Made::<DATA> { word: self.word[3].q.val(), data: self.made.q.val() };
        self.queue.tx.ready.next = self.write.ready.val();
        self.write.offer(self.queue.tx.valid.val(), payload_write::<DATA>(self.queue.tx.beat.val()));

        // A failure is at the exit of its queue when the count that has it arrives.
        self.failures.rx.offer(self.payload_failed.val(), self.payload_done_count.val());
        self.done[0].d.next = self.payload_done_count.val();
        for stage in 1..DONE_STAGES {
            self.done[stage].d.next = self.done[stage - 1].q.val();
        }

        // Packets retire one by one, when their failures have been collected.
        let tail = self.tails.tx.beat.val();
        let end = self.ends.tx.beat.val();
        let is_leaving = self.is_leaving.q.val();
        let has_failed = self.has_failed.q.val();
        let may_begin = !is_leaving && self.ends.tx.valid.val() && self.tails.tx.valid.val();
        let done = self.done[DONE_STAGES - 1].q.val();
        let oldest = retirement(end, done, self.failures.tx.valid.val(), self.failures.tx.beat.val());
        let collects = may_begin && oldest == Retirement::Collect;
        let cqe_waits = self.cqe_waits.q.val() && !self.cqe.ready.val();
        let notice_waits = self.notice_waits.q.val() && !self.notice.ready.val();
        let leaves = is_leaving && !cqe_waits && !notice_waits;
        self.failures.tx.ready.next = collects;
        self.tails.tx.ready.next = leaves;
        self.ends.tx.ready.next = leaves;
        self.cqe_waits.d.next = cqe_waits;
        self.notice_waits.d.next = notice_waits;
        if collects {
            self.has_failed.d.next = true;
        }
        if may_begin && oldest == Retirement::Retire {
            self.is_leaving.d.next = true;
            self.cqe_waits.d.next = tail.has_completion;
            self.notice_waits.d.next = tail.has_notice;
            self.retired.d.next = end;
        }
        if leaves {
            self.is_leaving.d.next = false;
            self.has_failed.d.next = false;
        }
        self.cqe.offer(self.cqe_waits.q.val(), cqe_after(tail.completion, has_failed));
        self.notice.valid.next = self.notice_waits.q.val();
        self.notice.beat.next = PlaceNotice { write_count: end, write_failed: has_failed, ..tail.notice };
        self.flight.d.next = in_flight_after(self.flight.q.val(), takes, leaves);
        self.in_flight.next = self.flight.q.val();
        self.pools_held.d.next = PlacePools {
            packets: level_of(self.flight.q.val()),
            writes: self.planned.q.val() - self.retired.q.val(),
            failures: bit_cast::<LEVEL_BITS, FAILURE_COUNT>(self.failures.level.val()),
        };
        self.pools.next = self.pools_held.q.val();
    }
}

#[cfg(test)]
mod tests;
