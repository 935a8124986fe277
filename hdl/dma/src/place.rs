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
//! At 512 bits 2774 LUTs with those used as memory, 3400 FF, 14 RAMB36, depth 9.
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
use rnic_blocks::stream::{Beat, Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_messages::complete::CqeToken;
use rnic_messages::host::{HostSpan, PayloadWrite, has_reached};
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
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
pub struct Place<const DATA: usize, const BYTES: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all packets.
    pub reset: Signal<In, Bit>,

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
    /// Counts of writes that failed. `done` is delayed by as much as this queue, so that failures are seen in time.
    #[init(Fifo::new(Storage::Block))]
    failures: Fifo<Bits<WRITE_COUNT_BITS>, FAILURES, FAILURE_COUNT>,
    done: [Reg<Bits<WRITE_COUNT_BITS>>; 3],
    has_failed: Reg<Bit>,
    is_leaving: Reg<Bit>,
    cqe_waits: Reg<Bit>,
    notice_waits: Reg<Bit>,
    flight: Reg<InFlight>,
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
        self.plans.rx.valid.next = self.part_valid.q.val();
        self.plans.rx.beat.next = plan_of::<BYTES>(self.part.q.val());

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
        self.ends.rx.valid.next = ends && plan.ends_packet;
        self.ends.rx.beat.next = planned;

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
        self.write.valid.next = self.queue.tx.valid.val();
        self.write.beat.next = payload_write::<DATA>(self.queue.tx.beat.val());

        // A failure is at the exit of its queue when the count that has it arrives.
        self.failures.rx.valid.next = self.payload_failed.val();
        self.failures.rx.beat.next = self.payload_done_count.val();
        self.done[0].d.next = self.payload_done_count.val();
        self.done[1].d.next = self.done[0].q.val();
        self.done[2].d.next = self.done[1].q.val();

        // Packets retire one by one, when their failures have been collected.
        let tail = self.tails.tx.beat.val();
        let end = self.ends.tx.beat.val();
        let is_leaving = self.is_leaving.q.val();
        let has_failed = self.has_failed.q.val();
        let may_begin = !is_leaving && self.ends.tx.valid.val() && self.tails.tx.valid.val();
        let oldest =
            retirement(end, self.done[2].q.val(), self.failures.tx.valid.val(), self.failures.tx.beat.val());
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
        self.cqe.valid.next = self.cqe_waits.q.val();
        self.cqe.beat.next = cqe_after(tail.completion, has_failed);
        self.notice.valid.next = self.notice_waits.q.val();
        self.notice.beat.next = PlaceNotice { write_count: end, write_failed: has_failed, ..tail.notice };
        self.flight.d.next = in_flight_after(self.flight.q.val(), takes, leaves);
        self.in_flight.next = self.flight.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, beats_of, random};
    use rnic_host::testing::{bytes_of, generates};
    use std::collections::VecDeque;

    /// The host memory of the tests: `MEMORY_BYTES` from here on. A multiple of 2^36 lies in its middle.
    const BASE: u64 = 0x0123_456f_ffff_c000;
    const MEMORY_BYTES: usize = 1 << 15;

    /// A packet, and how many writes there are up to its end.
    struct Packet {
        command: PlaceCommand,
        payload: Vec<u8>,
        end: usize,
    }

    /// Packets in order, and what becomes of memory.
    struct Traffic {
        packets: Vec<Packet>,
        /// Address and bytes of each write, and of which packet it is.
        writes: Vec<(u64, Vec<u8>, usize)>,
        memory: Vec<u8>,
    }

    impl Traffic {
        fn new() -> Self {
            Traffic { packets: Vec::new(), writes: Vec::new(), memory: vec![0; MEMORY_BYTES] }
        }

        /// Adds a packet that goes to these spans, each an address and a length.
        fn add(&mut self, payload: Vec<u8>, places: &[(u64, usize)], has_completion: bool, has_notice: bool) {
            let index = self.packets.len();
            let mut spans = [HostSpan::default(); 3];
            let mut rest = &payload[..];
            for (span, &(mut address, length)) in spans.iter_mut().zip(places) {
                *span = HostSpan { address: bits(address), length: bits(length as u64) };
                let (mut bytes, behind) = rest.split_at(length);
                rest = behind;
                let at = (address - BASE) as usize;
                self.memory[at..at + length].copy_from_slice(bytes);
                while !bytes.is_empty() {
                    let (now, later) = bytes.split_at(bytes.len().min(512 - (address % 512) as usize));
                    self.writes.push((address, now.to_vec(), index));
                    address += now.len() as u64;
                    bytes = later;
                }
            }
            let command = PlaceCommand {
                queue_pair: bits(index as u64 & 1023),
                generation: bits((index as u64 * 7) & 0xff),
                payload_bytes: bits(payload.len() as u64),
                span_count: bits(places.len() as u64),
                first: spans[0],
                second: spans[1],
                third: spans[2],
                has_completion,
                completion: CqeToken {
                    wr_id: bits(index as u64),
                    status: bits(if index % 5 == 4 { 5 } else { 0 }),
                    ..Default::default()
                },
                has_notice,
                notice: PlaceNotice {
                    psn: bits(index as u64),
                    kind: if index % 3 == 1 { PlaceNoticeKind::Response } else { PlaceNoticeKind::Ack },
                    ..Default::default()
                },
            };
            self.packets.push(Packet { command, payload, end: self.writes.len() });
        }

        fn random(count: usize, random: &mut Random) -> Self {
            let mut traffic = Traffic::new();
            for _ in 0..count {
                let span_count = random.random_range(0..=3);
                let length = |random: &mut Random| {
                    let some =
                        [1, 63, 64, 65, 512, random.random_range(1..=4096), random.random_range(1..200)];
                    *some.choose(random).unwrap()
                };
                let mut places = Vec::new();
                let mut room: usize = 4096;
                for _ in 0..span_count {
                    let length = length(random).min(room);
                    room -= length;
                    let last = MEMORY_BYTES - length;
                    let near = (random.random_range(0..64) * 512 + 512 - length % 512).min(last);
                    let offset = *[random.random_range(0..=last), near, near & !63].choose(random).unwrap();
                    if length > 0 {
                        places.push((BASE + offset as u64, length));
                    }
                }
                let bytes = match span_count {
                    // Nothing came, or it is dropped.
                    0 => *[0, 0, length(random)].choose(random).unwrap(),
                    _ => 4096 - room,
                };
                let payload = (0..bytes).map(|_| random.random()).collect();
                traffic.add(payload, &places, random.random(), random.random());
            }
            traffic
        }
    }

    const SUCCESS: u64 = CompletionStatus::Success as u64;
    const LOCAL_PROTECTION: u64 = CompletionStatus::LocalProtection as u64;

    /// When a host reports writes.
    #[derive(Clone, Copy)]
    struct Host {
        latency_max: usize,
        failures: f64,
    }

    /// Sends packets through and compares every write, CQE and notice, and memory at the end; returns the cycles until
    /// the last word was written.
    fn place<const DATA: usize, const BYTES: usize>(
        bench: &mut Bench<Place<DATA, BYTES>>,
        traffic: &Traffic,
        host: Host,
        stalls: Stalls,
        random: &mut Random,
    ) -> usize {
        let Traffic { packets, writes: meant, .. } = traffic;
        let mut commands = Source::showing_next(packets.iter().map(|packet| packet.command), stalls);
        let beats: Vec<_> = packets
            .iter()
            .filter(|packet| !packet.payload.is_empty())
            .flat_map(|packet| beats_of::<DATA, BYTES>(&packet.payload, random))
            .collect();
        let beat_count = beats.len();
        let mut payload = Source::showing_next(beats, stalls);
        let (mut writes, mut cqes, mut notices) = (Sink::new(stalls), Sink::new(stalls), Sink::new(stalls));
        let mut memory = vec![0; MEMORY_BYTES];
        let mut words: Vec<u8> = Vec::new();
        // Writes that the host has, when it will report each, and what it has reported.
        let mut issued = 0;
        let mut dones: VecDeque<(usize, bool)> = VecDeque::new();
        let mut done = 0;
        let mut has_failed = vec![false; packets.len()];
        let (mut taken, mut cycle, mut last_word) = (0, 0, 0);
        let mut due_cqes = (0..packets.len()).filter(|&at| packets[at].command.has_completion);
        let mut due_notices = (0..packets.len()).filter(|&at| packets[at].command.has_notice);
        while bench.block.in_flight.val().left != packets.len() as u64 {
            assert!(cycle < 100_000, "place is stuck, stalls {stalls:?}");
            let block = &mut bench.block;
            commands.drive(&mut block.command, random);
            payload.drive(&mut block.payload, random);
            writes.drive(&mut block.write, random);
            cqes.drive(&mut block.cqe, random);
            notices.drive(&mut block.notice, random);
            let report = dones.pop_front_if(|report| report.0 <= cycle);
            if let Some((_, fails)) = report {
                has_failed[meant[done].2] |= fails;
                done += 1;
            }
            block.payload_done_count.next = bits(done as u64 & 0xffff);
            block.payload_failed.next = report.is_some_and(|report| report.1);
            bench.settle();
            let block = &bench.block;
            commands.sample(&block.command);
            taken += usize::from(payload.sample(&block.payload));
            if let Some(token) = cqes.sample(&block.cqe) {
                let at = due_cqes.next().expect("no more completions than were asked for");
                let mut expected = packets[at].command.completion;
                if has_failed[at] && expected.status == SUCCESS {
                    expected.status = bits(LOCAL_PROTECTION);
                }
                assert_eq!(token, expected);
                assert!(done >= packets[at].end, "its writes are done");
            }
            if let Some(token) = notices.sample(&block.notice) {
                let at = due_notices.next().expect("no more notices than were asked for");
                let mut expected = packets[at].command.notice;
                expected.write_count = bits(packets[at].end as u64 & 0xffff);
                expected.write_failed = has_failed[at];
                assert_eq!(token, expected);
                assert!(done >= packets[at].end, "its writes are done");
            }
            if let Some(word) = writes.sample(&block.write) {
                words.extend(bytes_of(word.data));
                let (address, bytes, packet) = &meant[issued];
                assert_eq!((word.address.to_u64(), word.length.to_u64() as usize), (*address, bytes.len()));
                let command = &packets[*packet].command;
                assert_eq!((word.queue_pair, word.generation), (command.queue_pair, command.generation));
                assert_eq!(word.is_response, command.notice.kind == PlaceNoticeKind::Response);
                if word.last {
                    let lane = *address as usize % (DATA / 8);
                    assert_eq!(words.len(), (lane + bytes.len()).next_multiple_of(DATA / 8));
                    assert_eq!(words[lane..lane + bytes.len()], bytes[..], "write {issued}");
                    let at = (address - BASE) as usize;
                    memory[at..at + bytes.len()].copy_from_slice(&words[lane..lane + bytes.len()]);
                    words.clear();
                    issued += 1;
                    assert!(issued - done < 512, "the failures have room");
                    let soonest = dones.back().map_or(0, |report| report.0 + 1);
                    let due = cycle + random.random_range(1..=host.latency_max);
                    dones.push_back((due.max(soonest), random.random_bool(host.failures)));
                    last_word = cycle;
                }
            }
            bench.tick();
            cycle += 1;
        }
        assert_eq!((issued, taken), (meant.len(), beat_count));
        assert!(memory == traffic.memory && due_cqes.next().is_none() && due_notices.next().is_none());
        last_word
    }

    fn random_packets<const DATA: usize, const BYTES: usize>(count: usize) {
        let mut random = random();
        for stalls in Stalls::ALL {
            for host in [Host { latency_max: 5, failures: 0.3 }, Host { latency_max: 300, failures: 0.1 }] {
                let block = Place::<DATA, BYTES>::default();
                let mut bench = Bench::clocked(block, |block| &mut block.clock).in_lock_step();
                let traffic = Traffic::random(count, &mut random);
                place(&mut bench, &traffic, host, stalls, &mut random);
            }
        }
    }

    #[test]
    fn packets_are_placed_at_64_bits() {
        random_packets::<64, 4>(20);
    }

    #[test]
    fn packets_are_placed_at_128_bits() {
        random_packets::<128, 5>(30);
    }

    #[test]
    fn packets_are_placed_at_256_bits() {
        random_packets::<256, 6>(40);
    }

    #[test]
    fn packets_are_placed_at_512_bits() {
        random_packets::<512, 7>(80);
    }

    /// Two spans whose border lies in any lane of a beat, at any two alignments of host memory: every way in which a beat is
    /// shared, kept or turned.
    #[test]
    fn a_beat_is_shared_by_two_spans_at_every_alignment() {
        let mut random = random();
        let mut traffic = Traffic::new();
        for border in 1..=16 {
            for (first, second) in (0..8).flat_map(|first| (0..8).map(move |second| (first, second))) {
                let second_length = random.random_range(1..=20);
                let payload = (0..border + second_length).map(|_| random.random()).collect();
                let mut near = |lane| BASE + random.random_range(1..8) * 512 - 8 + lane;
                let places = [(near(first), border), (near(second), second_length)];
                traffic.add(payload, &places, true, true);
            }
        }
        let block = Place::<64, 4>::default();
        let mut bench = Bench::clocked(block, |block| &mut block.clock);
        place(&mut bench, &traffic, Host { latency_max: 5, failures: 0.0 }, Stalls::None, &mut random);
    }

    #[test]
    fn a_word_is_written_in_every_cycle() {
        let mut random = random();
        // Packets retire at one in two cycles; the host takes a microsecond.
        for (length, offset, cycles_each) in [(4096, 0, 64), (4096, 77, 65), (64, 0, 2), (64, 7, 2)] {
            let mut traffic = Traffic::new();
            let count = if length > 64 { 60 } else { 600 };
            for index in 0..count {
                traffic.add(vec![index as u8; length], &[(BASE + offset, length)], true, true);
            }
            let block = Place::<512, 7>::default();
            let mut bench = Bench::clocked(block, |block| &mut block.clock);
            let host = Host { latency_max: 250, failures: 0.0 };
            let cycles = place(&mut bench, &traffic, host, Stalls::None, &mut random);
            assert!(cycles <= count * cycles_each + 20, "{length} bytes: {cycles}");
        }
    }

    #[test]
    fn latency_is_as_the_header_says() {
        let mut bench = Bench::clocked(Place::<512, 7>::default(), |block| &mut block.clock);
        let block = &mut bench.block;
        block.command.valid.next = true;
        block.command.beat.next = PlaceCommand {
            payload_bytes: bits(64),
            span_count: bits(1),
            first: HostSpan { address: bits(BASE), length: bits(64) },
            has_completion: true,
            has_notice: true,
            ..Default::default()
        };
        block.payload.valid.next = true;
        block.write.ready.next = true;
        let (mut write, mut retired) = (None, None);
        for cycle in 0..40 {
            bench.block.payload_done_count.next = bits(u64::from(cycle >= 20));
            bench.settle();
            let block = &mut bench.block;
            write = write.or(block.write.valid.val().then_some(cycle));
            let is_offered = block.cqe.valid.val() && block.notice.valid.val();
            retired = retired.or(is_offered.then_some(cycle));
            bench.tick();
            bench.block.command.valid.next = false;
        }
        assert_eq!((write, retired), (Some(10), Some(20 + 4)));
    }

    const TOP: u64 = 1 << 36;

    fn span(address: u64, length: u64) -> HostSpan {
        HostSpan { address: bits(address), length: bits(length) }
    }

    /// The parts of a command, as address, length, lane of payload, bytes after it and whether the packet ends.
    fn parts<const BYTES: usize>(spans: &[HostSpan]) -> Vec<(u64, u64, u64, u64, bool)> {
        let at = |index: usize| spans.get(index).copied().unwrap_or_default();
        let command = PlaceCommand {
            span_count: bits(spans.len() as u64),
            first: at(0),
            second: at(1),
            third: at(2),
            ..Default::default()
        };
        let (mut cursor, mut found) = (cursor_of(command.first), vec![]);
        loop {
            let part = part_of(command, cursor);
            let header = part.header;
            let numbers = [header.address, bit_cast(header.length), bit_cast(part.lane), bit_cast(part.rest)];
            let [address, length, lane, rest] = numbers.map(|number: Bits<64>| number.to_u64());
            assert_eq!(part.is_last, rest == 0, "the last part of a span leaves nothing");
            found.push((address, length, lane, rest, part.ends_packet));
            if part.ends_packet {
                return found;
            }
            cursor = cursor_after::<BYTES>(command, cursor, part);
        }
    }

    #[test]
    fn spans_are_cut_at_multiples_of_512() {
        // Up to the boundary, one byte less and one more.
        assert_eq!(parts::<7>(&[span(500, 12)]), [(500, 12, 0, 0, true)]);
        assert_eq!(parts::<7>(&[span(500, 11)]), [(500, 11, 0, 0, true)]);
        assert_eq!(parts::<7>(&[span(500, 13)]), [(500, 12, 0, 1, false), (512, 1, 12, 0, true)]);
        assert_eq!(parts::<7>(&[span(512, 512)]), [(512, 512, 0, 0, true)]);
        // A carry into the high bits of the address.
        let carries = [(TOP - 8, 8, 0, 512, false), (TOP, 512, 8, 0, true)];
        assert_eq!(parts::<7>(&[span(TOP - 8, 520)]), carries);
        // Three spans; lanes of payload wrap at the width, here 8 bytes.
        let three = [(1, 5, 0, 0, false), (1023, 1, 5, 2, false), (1024, 2, 6, 0, false), (7, 9, 0, 0, true)];
        assert_eq!(parts::<4>(&[span(1, 5), span(1023, 3), span(7, 9)]), three);
    }

    #[test]
    fn a_packet_without_spans_is_one_part() {
        let dropped = PlaceCommand { payload_bytes: bits(77), ..Default::default() };
        let part = part_of(dropped, cursor_of(span(0, 0)));
        assert!(part.ends_packet && !part.is_write);
        assert_eq!(part.dropped, bits(77));
    }

    #[test]
    fn payload_of_responses_is_marked() {
        for (kind, expected) in [(PlaceNoticeKind::Ack, false), (PlaceNoticeKind::Response, true)] {
            let notice = PlaceNotice { kind, ..Default::default() };
            let command = PlaceCommand { notice, ..Default::default() };
            assert_eq!(part_of(command, cursor_of(span(0, 1))).header.is_response, expected);
        }
    }

    /// Beats and words of 8 bytes: host lane, lane of payload, length, rest of the span, whether the part is the first of its span,
    /// whether its span is the packet's last; then turn, cycles, and whether the first cycle makes no word, the last takes no beat, and
    /// the last beat stays.
    #[test]
    fn a_part_takes_as_many_cycles_as_it_touches_words_and_one_if_its_first_word_needs_two_beats() {
        let none = [false; 3];
        let (ahead, skips, keeps) = ([true, false, false], [false, true, false], [false, false, true]);
        for ((host, lane, length, rest, is_first, is_last_span), (turn, cycles, flags)) in [
            // Aligned: a word a beat.
            ((0, 0, 8, 0, true, true), (0, 1, none)),
            ((0, 0, 9, 0, true, true), (0, 2, none)),
            ((3, 3, 5, 0, true, true), (0, 1, none)),
            ((3, 3, 6, 0, true, true), (0, 2, none)),
            // Payload moves to higher lanes: the last word may need no beat of its own.
            ((3, 0, 5, 0, true, true), (3, 1, none)),
            ((3, 0, 6, 0, true, true), (3, 2, skips)),
            ((3, 0, 8, 0, true, true), (3, 2, skips)),
            ((3, 0, 9, 0, true, true), (3, 2, none)),
            // To lower lanes: the first word needs two beats.
            ((0, 3, 8, 0, true, true), (5, 2, ahead)),
            ((0, 3, 5, 0, true, true), (5, 2, [true, true, false])),
            ((0, 3, 6, 0, true, true), (5, 2, ahead)),
            // A later part of a span begins with the beat that is held.
            ((0, 3, 8, 0, false, true), (5, 1, none)),
            // The next span begins in the last beat, or at its end.
            ((0, 0, 5, 0, true, false), (0, 1, keeps)),
            ((0, 0, 8, 0, true, false), (0, 1, none)),
            // The rest of the span is in the beat that this part takes last.
            ((3, 0, 5, 2, true, false), (3, 1, keeps)),
            ((3, 0, 5, 3, true, false), (3, 1, none)),
            ((3, 0, 5, 4, true, false), (3, 1, none)),
        ] {
            let part = Part {
                header: WriteHeader { address: bits(host), length: bits(length), ..Default::default() },
                lane: bits(lane),
                is_first,
                is_last: rest == 0,
                rest: bits(rest),
                is_last_span,
                is_write: true,
                ..Default::default()
            };
            let plan = plan_of::<4>(part);
            let found = (plan.turn.to_u64(), plan.last_cycle.to_u64() + 1);
            assert_eq!(found, (turn, cycles), "{part:?}");
            assert_eq!([plan.is_ahead, plan.skips_last, plan.keeps_last], flags, "{part:?}");
            assert!(plan.is_write && plan.has_beats);
        }
    }

    #[test]
    fn dropped_payload_takes_a_cycle_a_beat_and_a_packet_without_payload_takes_one() {
        for (dropped, cycles, has_beats) in
            [(0, 1, false), (1, 1, true), (64, 1, true), (65, 2, true), (4096, 64, true)]
        {
            let plan = plan_of::<7>(Part { dropped: bits(dropped), ..Default::default() });
            assert_eq!(plan.last_cycle, bits(cycles - 1), "{dropped} bytes");
            assert!(plan.has_beats == has_beats && !plan.is_write && !plan.skips_last && !plan.keeps_last);
        }
    }

    #[test]
    fn cycles_of_a_plan_take_beats_and_make_words() {
        let plan = |flags: [bool; 3]| Plan {
            last_cycle: bits(2),
            is_ahead: flags[0],
            skips_last: flags[1],
            keeps_last: flags[2],
            has_beats: true,
            is_write: true,
            ..Default::default()
        };
        // For each cycle: takes a beat, keeps it, makes a word.
        let all = (true, false, true);
        for (flags, cycles) in [
            ([false, false, false], [all, all, all]),
            ([true, false, false], [(true, false, false), all, all]),
            ([false, true, false], [all, all, (false, false, true)]),
            ([false, false, true], [all, all, (true, true, true)]),
            ([false, true, true], [all, (true, true, true), (false, false, true)]),
        ] {
            for (number, expected) in cycles.into_iter().enumerate() {
                let cycle = cycle_of(plan(flags), bits(number as u64));
                assert_eq!((cycle.needs_beat, cycle.keeps_beat, cycle.makes_word), expected, "{flags:?}");
                assert_eq!(cycle.is_last, number == 2);
            }
        }
        let without = cycle_of(Plan::default(), bits(0));
        assert!(without.is_last && !without.needs_beat && !without.makes_word);
    }

    #[test]
    fn packets_retire_when_their_writes_are_done_and_their_failures_collected() {
        use Retirement::{Collect, Retire, Wait};
        for (end, done, failure, expected) in [
            (10, 9, None, Wait),
            (10, 10, None, Retire),
            (10, 11, None, Retire),
            // A failure of a later packet is left to it.
            (10, 11, Some(11), Retire),
            (10, 11, Some(10), Collect),
            (10, 11, Some(9), Collect),
            (10, 9, Some(9), Wait),
            // Counts wrap.
            (2, 0xffff, None, Wait),
            (0xffff, 2, None, Retire),
            (2, 2, Some(0xffff), Collect),
            (0xffff, 2, Some(1), Retire),
        ] {
            let found = retirement(bits(end), bits(done), failure.is_some(), bits(failure.unwrap_or(end)));
            assert_eq!(found, expected, "{end} {done} {failure:?}");
        }
    }

    #[test]
    fn only_success_is_replaced_by_the_status_of_a_failed_write() {
        for (status, write_failed, expected) in [
            (SUCCESS, false, SUCCESS),
            (SUCCESS, true, LOCAL_PROTECTION),
            (CompletionStatus::Flushed as u64, true, CompletionStatus::Flushed as u64),
        ] {
            let cqe = CqeToken { status: bits(status), wr_id: bits(7), ..Default::default() };
            assert_eq!(cqe_after(cqe, write_failed), CqeToken { status: bits(expected), ..cqe });
        }
    }

    #[test]
    fn every_width_of_the_card_is_generated() {
        generates(Place::<128, 5>::default());
        generates(Place::<256, 6>::default());
        assert!(Place::<256, 7>::REFUSAL.is_some());
    }
}
