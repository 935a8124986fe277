//! Place: puts the payload of received packets where it belongs, and then lets completion and reply go.
//!
//! Payload comes from lane 0 on, as one piece a packet; it goes to up to three spans at any address. Between the two stands one
//! rotator: a word of a span is made of two beats that were turned by the same distance.
//!
//! ```text
//!             ┌──────────────────────────────────────────────────────────────────────────┐
//!  command ──>│ ┌─────┐ cut  ┌───────────────┐ pieces ┌──────────┐                       │
//!             │ │ Cut ├─────>│ slots, lanes  ├───────>│          │ turned ┌──────┐       │
//!             │ └──┬──┘      └───────────────┘        │  slots,  ├───────>│ Fifo ├───────┼──> write
//!  payload ───┼────│────────────────────────────────>│  rotator ├─> ends └──────┘       │
//!             │    │                                  └──────────┘     │                 │
//!             │    │   payload_done_count, payload_failed ───────> ┌───┴──────┐          │
//!             │    └────────> tails ──────────────────────────────>│ conclude ├──────────┼──> completion, reply
//!             │                                                    └──────────┘          │
//!             └──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Latency 10 cycles from a command to `write`, and 4 from the move of `payload_done_count` to completion and reply. One word
//! a cycle, from one write to the next and one packet to the next. A span that begins within a beat of payload costs a cycle
//! more if its first word needs two beats; a packet without words costs one, and one that is dropped costs as many as it
//! has beats. Conclusions leave one in two cycles. Up to 512 packets and some 480 writes wait for the host.
//! At 512 bits 2774 LUTs with those used as memory, 3400 FF, 14 RAMB36, depth 9.
//!
//! 1. The words of a packet are written in the order of its spans, cut at multiples of 512 bytes.
//! 2. Completion and reply of a packet are offered when all writes of it and of the packets before it are reported done: the
//!    host says nothing about the order of two writes, unless the second is issued after the first is done (design 3.1). So no
//!    completion is seen before its payload, whatever the host does. Those of one packet precede those of the next.
//! 3. If one of the packet's writes failed, its completion says so instead of `Success` (protocol 3.6, row 13), and its reply
//!    says `has_failed`. The reply stage has heard of the failure before; who answers requests of the card's own has not.
//! 4. `reply.write_count` counts all writes of payload up to the end of the packet.
//! 5. As many beats of payload are taken as `payload_bytes` fills, whatever becomes of them.
//! 6. Generations pass through: whoever destroys a queue pair waits for `passage`, and who gets a conclusion compares them.
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
use rnic_messages::host::HostSpan;
use rnic_messages::host::PayloadWrite;
use rnic_messages::receive::{PlaceCommand, ReplyEvent};
use rnic_messages::setup::InFlight;
use rnic_messages::sizes::LENGTH_BITS;
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, SPAN_BITS, WRITE_COUNT_BITS};

/// Stages of the rotator.
const STAGES: usize = 3;
/// Packets between command and conclusion, as a power of two.
const TAILS: usize = 9;
const TAIL_COUNT: usize = TAILS + 1;
/// Words that wait to be written, as a power of two.
const WORDS: usize = 5;
const WORD_COUNT: usize = WORDS + 1;
/// A word enters the pipeline only if so many are waiting at most; those on their way have room then.
const WAITING_MAX: u64 = 24;
/// Writes whose packets are not concluded: a new one begins below this many. As many as two more, and all of them may fail.
const OPEN_MAX: u64 = 480;
const FAILURES: usize = 9;
const FAILURE_COUNT: usize = FAILURES + 1;
const SUCCESS: u64 = CompletionStatus::Success as u64;
const LOCAL_PROTECTION: u64 = CompletionStatus::LocalProtection as u64;
/// Pieces that are planned ahead, as a power of two.
const PIECES: usize = 3;
const PIECE_COUNT: usize = PIECES + 1;
/// Bits of a number of cycles that one piece takes; at 64 bits, 8,191 bytes are 1,024 beats.
const SLOT_BITS: usize = 11;
/// Bits of a lane at the widest datapath.
const LANE_BITS: usize = 6;
/// The address of the next part is made in two steps, first below this bit.
const LOW_BITS: usize = 36;
const HIGH_BITS: usize = 64 - LOW_BITS;
const LOW_PAGE_BITS: usize = LOW_BITS - 9;
const LOW_PAGE_COUNT: usize = LOW_PAGE_BITS + 1;

/// A part of a span that crosses no boundary, or a packet without words.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Cut {
    address: Bits<64>,
    length: Bits<LENGTH_BITS>,
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    generation: Bits<GENERATION_BITS>,
    is_answer: Bit,
    /// Lane of the payload at which it begins.
    lane: Bits<LANE_BITS>,
    /// It begins and ends its span.
    begins: Bit,
    ends: Bit,
    /// Bytes of the span behind it.
    rest: Bits<SPAN_BITS>,
    /// Its span is the last one.
    is_last_span: Bit,
    /// The packet ends with it.
    ends_packet: Bit,
    /// There is something to write.
    is_write: Bit,
    /// Else: bytes of payload to be dropped.
    dropped: Bits<SPAN_BITS>,
}

/// The same as cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Piece {
    address: Bits<64>,
    length: Bits<LENGTH_BITS>,
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    generation: Bits<GENERATION_BITS>,
    is_answer: Bit,
    /// By how many lanes payload turns.
    turn: Bits<LANE_BITS>,
    /// Cycles, less one.
    last_slot: Bits<SLOT_BITS>,
    /// The first one makes no word, because that word needs two beats.
    is_ahead: Bit,
    /// The last one takes no beat.
    skips_last: Bit,
    /// The last beat stays, because the next span begins in it.
    keeps_last: Bit,
    /// There are beats to take.
    has_beats: Bit,
    is_write: Bit,
    ends_packet: Bit,
}

/// What goes with a word through the rotator.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Word {
    address: Bits<64>,
    length: Bits<LENGTH_BITS>,
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    generation: Bits<GENERATION_BITS>,
    is_answer: Bit,
    last: Bit,
}

/// A word that waits to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Made<const DATA: usize> {
    word: Word,
    data: Bits<DATA>,
}

/// What follows the words of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Tail {
    has_completion: Bit,
    completion: CqeToken,
    has_reply: Bit,
    reply: ReplyEvent,
}

/// The block.
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
pub struct Place<const DATA: usize, const BYTES: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all packets.
    pub reset: Signal<In, Bit>,

    /// From admit: what becomes of each packet. `ready` is combinational.
    pub command: StreamRx<PlaceCommand>,
    /// From the receive buffer: payload of those that have some. `ready` is a function of registers.
    pub payload: StreamRx<Beat<DATA, BYTES>>,

    /// To the host writer; a function of registers.
    pub write: StreamTx<PayloadWrite<DATA>>,
    /// From it: how many of these writes are done.
    pub payload_done_count: Signal<In, Bits<WRITE_COUNT_BITS>>,
    /// That count has just moved, for a write that failed.
    pub payload_failed: Signal<In, Bit>,
    /// To complete; a function of registers.
    pub completion: StreamTx<CqeToken>,
    /// To the reply stage; a function of registers.
    pub reply: StreamTx<ReplyEvent>,
    /// Commands that came, and those whose completion and reply are gone; registered.
    pub in_flight: Signal<Out, InFlight>,

    command_held: DFF<PlaceCommand>,
    is_busy: Reg<Bit>,
    span: DFF<HostSpan>,
    /// One is to be added to the high bits of its address.
    carry: Reg<Bit>,
    span_index: Reg<Bits<2>>,
    span_begins: Reg<Bit>,
    lane: Reg<Bits<LANE_BITS>>,
    cut: DFF<Cut>,
    cut_valid: Reg<Bit>,
    pieces: Fifo<Piece, PIECES, PIECE_COUNT>,
    slot: Reg<Bits<SLOT_BITS>>,
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
    tails: Fifo<Tail, TAILS, TAIL_COUNT>,
    /// Of each packet whose last word is made, the writes up to its end.
    ends: Fifo<Bits<WRITE_COUNT_BITS>, TAILS, TAIL_COUNT>,
    /// Writes that have entered the rotator, and those of packets that are concluded.
    planned: Reg<Bits<WRITE_COUNT_BITS>>,
    concluded: Reg<Bits<WRITE_COUNT_BITS>>,
    is_open: Reg<Bit>,
    /// Counts of writes that failed; `done` is behind them, so that they are seen in time.
    failures: Fifo<Bits<WRITE_COUNT_BITS>, FAILURES, FAILURE_COUNT>,
    done: [Reg<Bits<WRITE_COUNT_BITS>>; 3],
    has_failed: Reg<Bit>,
    is_leaving: Reg<Bit>,
    completion_waits: Reg<Bit>,
    reply_waits: Reg<Bit>,
    passed: Reg<InFlight>,
}

impl<const DATA: usize, const BYTES: usize> Place<DATA, BYTES> {
    /// Of a lane, the bits that count.
    const LANES: u64 = DATA as u64 / 8 - 1;
    const LANE_SHIFT: u64 = BYTES as u64 - 1;
}

impl<const DATA: usize, const BYTES: usize> Logic for Place<DATA, BYTES> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // Spans are cut, one part a cycle.
        let command = self.command_held.q.val();
        let span = self.span.q.val();
        let has_span = command.span_count.any();
        let high = span.address.get_bits::<HIGH_BITS>(LOW_BITS)
            + bit_cast::<HIGH_BITS, 1>(self.carry.q.val().into());
        let next_page =
            bit_cast::<LOW_PAGE_COUNT, LOW_PAGE_BITS>(span.address.get_bits::<LOW_PAGE_BITS>(9)) + 1;
        let room = bits::<LENGTH_BITS>(512) - bit_cast::<LENGTH_BITS, 9>(span.address.get_bits::<9>(0));
        let ends = span.length <= bit_cast::<SPAN_BITS, LENGTH_BITS>(room);
        let length = select(ends, span.length.get_bits::<LENGTH_BITS>(0), room);
        let rest = select(ends, bits::<SPAN_BITS>(0), span.length - bit_cast::<SPAN_BITS, LENGTH_BITS>(room));
        let is_last_span = self.span_index.q.val() + 1 == command.span_count;
        let ends_packet = !has_span || (ends && is_last_span);
        let may_cut = !self.cut_valid.q.val() || self.pieces.rx.ready.val();
        let cuts = self.is_busy.q.val() && may_cut;
        if may_cut {
            self.cut_valid.d.next = self.is_busy.q.val();
            self.cut.d.next = Cut {
                address: cat!(high, span.address.get_bits::<LOW_BITS>(0)),
                length,
                queue_pair: command.queue_pair,
                generation: command.generation,
                is_answer: command.reply.is_answer,
                lane: self.lane.q.val(),
                begins: self.span_begins.q.val(),
                ends,
                rest,
                is_last_span,
                ends_packet,
                is_write: has_span,
                dropped: command.payload_bytes,
            };
        }
        let may_take = (!self.is_busy.q.val() || (cuts && ends_packet)) && self.tails.rx.ready.val();
        let takes = may_take && self.command.valid.val();
        let asked = self.command.beat.val();
        self.command.ready.next = may_take;
        if cuts {
            self.carry.d.next = false;
            self.lane.d.next = (self.lane.q.val() + length.get_bits::<LANE_BITS>(0)) & Self::LANES;
            self.span_begins.d.next = ends;
            if ends_packet {
                self.is_busy.d.next = false;
            } else if ends {
                self.span.d.next = select(self.span_index.q.val().any(), command.third, command.second);
                self.span_index.d.next = self.span_index.q.val() + 1;
            } else {
                self.span.d.next.address = cat!(high, next_page.get_bits::<LOW_PAGE_BITS>(0), bits::<9>(0));
                self.carry.d.next = next_page.get_bit(LOW_PAGE_BITS);
                self.span.d.next.length = rest;
            }
        }
        if takes {
            self.is_busy.d.next = true;
            self.command_held.d.next = asked;
            self.span.d.next = asked.first;
            self.span_index.d.next = bits(0);
            self.span_begins.d.next = true;
            self.lane.d.next = bits(0);
        }
        self.tails.rx.valid.next = takes;
        self.tails.rx.beat.next = Tail {
            has_completion: asked.has_completion,
            completion: asked.completion,
            has_reply: asked.has_reply,
            reply: asked.reply,
        };

        // Parts become cycles.
        let cut = self.cut.q.val();
        let host_lane = cut.address.get_bits::<LANE_BITS>(0) & Self::LANES;
        let turn = (host_lane - cut.lane) & Self::LANES;
        let is_ahead = cut.is_write && cut.begins && host_lane < cut.lane;
        let last_byte =
            bit_cast::<SLOT_BITS, LANE_BITS>(host_lane) + bit_cast::<SLOT_BITS, LENGTH_BITS>(cut.length) - 1;
        let end_lane = last_byte.get_bits::<LANE_BITS>(0) & Self::LANES;
        let dropped_slots = ((cut.dropped - 1) >> Self::LANE_SHIFT).get_bits::<SLOT_BITS>(0);
        // The beat that this part takes last is also the span's last one if the turned beat holds all that is behind.
        let takes_last_beat = cut.rest <= bit_cast::<SPAN_BITS, LANE_BITS>(turn);
        let next_lane = (cut.lane + cut.length.get_bits::<LANE_BITS>(0) + cut.rest.get_bits::<LANE_BITS>(0))
            & Self::LANES;
        self.pieces.rx.valid.next = self.cut_valid.q.val();
        self.pieces.rx.beat.next = Piece {
            address: cut.address,
            length: cut.length,
            queue_pair: cut.queue_pair,
            generation: cut.generation,
            is_answer: cut.is_answer,
            turn,
            last_slot: if cut.is_write {
                (last_byte >> Self::LANE_SHIFT) + bit_cast::<SLOT_BITS, 1>(is_ahead.into())
            } else if cut.dropped.any() {
                dropped_slots
            } else {
                bits(0)
            },
            is_ahead,
            skips_last: cut.is_write && cut.ends && end_lane < turn,
            keeps_last: cut.is_write && takes_last_beat && !cut.is_last_span && next_lane.any(),
            has_beats: cut.is_write || cut.dropped.any(),
            is_write: cut.is_write,
            ends_packet: cut.ends_packet,
        };

        // A cycle takes a beat, makes a word, or both.
        let piece = self.pieces.tx.beat.val();
        let slot = self.slot.q.val();
        let is_last = slot == piece.last_slot;
        let is_before_last = slot + 1 == piece.last_slot;
        let needs_beat = piece.has_beats && !(is_last && piece.skips_last);
        let is_last_beat = select(piece.skips_last, is_before_last, is_last);
        let keeps = is_last_beat && piece.keeps_last;
        let has_room = self.queue.level.val() <= WAITING_MAX && self.is_open.q.val();
        let may = self.pieces.tx.valid.val() && has_room;
        let goes = may && (!needs_beat || self.payload.valid.val());
        let makes_word = piece.is_write && (!piece.is_ahead || slot.any());
        self.payload.ready.next = may && needs_beat && !keeps;
        self.pieces.tx.ready.next = goes && is_last;
        if goes {
            self.slot.d.next = if is_last { bits(0) } else { slot + 1 };
        }
        let planned = self.planned.q.val() + bit_cast::<WRITE_COUNT_BITS, 1>(piece.is_write.into());
        if goes && is_last {
            self.planned.d.next = planned;
        }
        self.is_open.d.next = self.planned.q.val() - self.concluded.q.val() < OPEN_MAX;
        self.ends.rx.valid.next = goes && is_last && piece.ends_packet;
        self.ends.rx.beat.next = planned;

        // The pipeline of the rotator never stops.
        for stage in 0..4 {
            if stage == 0 {
                self.word[stage].d.next = Word {
                    address: piece.address,
                    length: piece.length,
                    queue_pair: piece.queue_pair,
                    generation: piece.generation,
                    is_answer: piece.is_answer,
                    last: is_last,
                };
                self.word_valid[stage].d.next = goes && makes_word;
            } else {
                self.word[stage].d.next = self.word[stage - 1].q.val();
                self.word_valid[stage].d.next = self.word_valid[stage - 1].q.val();
            }
        }
        for stage in 0..3 {
            self.beat_valid[stage].d.next =
                if stage == 0 { goes && needs_beat } else { self.beat_valid[stage - 1].q.val() };
        }
        self.turns[0].d.next = piece.turn;
        self.turns[1].d.next = self.turns[0].q.val();
        self.rotator.data.next = self.payload.beat.val().data;
        self.rotator.distance.next = bit_cast::<BYTES, LANE_BITS>(piece.turn);
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

        let made = self.queue.tx.beat.val();
        self.queue.tx.ready.next = self.write.ready.val();
        self.write.valid.next = self.queue.tx.valid.val();
        self.write.beat.next = PayloadWrite::<DATA> {
            address: made.word.address,
            length: made.word.length,
            queue_pair: made.word.queue_pair,
            generation: made.word.generation,
            is_answer: made.word.is_answer,
            data: made.data,
            last: made.word.last,
        };

        // FailureMerge are at the exit of their queue when the count that has them arrives.
        self.failures.rx.valid.next = self.payload_failed.val();
        self.failures.rx.beat.next = self.payload_done_count.val();
        for stage in 0..3 {
            self.done[stage].d.next =
                if stage == 0 { self.payload_done_count.val() } else { self.done[stage - 1].q.val() };
        }

        // Packets are concluded one by one, when their failures have been collected.
        let tail = self.tails.tx.beat.val();
        let end = self.ends.tx.beat.val();
        let is_leaving = self.is_leaving.q.val();
        let is_done = !(self.done[2].q.val() - end).get_bit(WRITE_COUNT_BITS - 1);
        let failure_is_its = self.failures.tx.valid.val()
            && !(end - self.failures.tx.beat.val()).get_bit(WRITE_COUNT_BITS - 1);
        let may_begin = !is_leaving && self.ends.tx.valid.val() && self.tails.tx.valid.val() && is_done;
        let begins = may_begin && !failure_is_its;
        let fails = may_begin && failure_is_its;
        self.failures.tx.ready.next = fails;
        let completion_waits = self.completion_waits.q.val() && !self.completion.ready.val();
        let reply_waits = self.reply_waits.q.val() && !self.reply.ready.val();
        let leaves = is_leaving && !completion_waits && !reply_waits;
        self.completion_waits.d.next = completion_waits;
        self.reply_waits.d.next = reply_waits;
        if fails {
            self.has_failed.d.next = true;
        }
        if begins {
            self.is_leaving.d.next = true;
            self.completion_waits.d.next = tail.has_completion;
            self.reply_waits.d.next = tail.has_reply;
            self.concluded.d.next = end;
        }
        if leaves {
            self.is_leaving.d.next = false;
            self.has_failed.d.next = false;
        }
        self.tails.tx.ready.next = leaves;
        self.ends.tx.ready.next = leaves;
        self.completion.valid.next = self.completion_waits.q.val();
        self.completion.beat.next = tail.completion;
        if self.has_failed.q.val() && tail.completion.status == SUCCESS {
            self.completion.beat.next.status = bits::<8>(LOCAL_PROTECTION);
        }
        self.reply.valid.next = self.reply_waits.q.val();
        self.reply.beat.next = tail.reply;
        self.reply.beat.next.write_count = end;
        self.reply.beat.next.has_failed = self.has_failed.q.val();

        let passed = self.passed.q.val();
        self.passed.d.next = InFlight {
            entered: if takes { passed.entered + 1 } else { passed.entered },
            left: if leaves { passed.left + 1 } else { passed.left },
        };
        self.in_flight.next = passed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::{Bench, Random, Sink, Stalls, beats_of, random};
    use rnic_host::testing::{Offers, bytes_of, generates};
    use std::collections::VecDeque;

    /// The host memory of the tests: so many bytes from here on. A multiple of 2^36 lies in its middle.
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
        fn add(&mut self, payload: Vec<u8>, places: &[(u64, usize)], has_completion: bool, has_reply: bool) {
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
                has_reply,
                reply: ReplyEvent {
                    psn: bits(index as u64),
                    is_answer: index % 3 == 1,
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

    /// When a host reports writes.
    #[derive(Clone, Copy)]
    struct Host {
        latency_max: usize,
        failures: f64,
    }

    /// Sends packets through and compares every write, completion and reply, and memory at the end; returns the cycles until
    /// the last word was written.
    fn place<const DATA: usize, const BYTES: usize>(
        bench: &mut Bench<Place<DATA, BYTES>>,
        traffic: &Traffic,
        host: Host,
        stalls: Stalls,
        random: &mut Random,
    ) -> usize {
        let Traffic { packets, writes: meant, .. } = traffic;
        let mut commands = Offers::new(packets.iter().map(|packet| packet.command), stalls);
        let beats: Vec<_> = packets
            .iter()
            .filter(|packet| !packet.payload.is_empty())
            .flat_map(|packet| beats_of::<DATA, BYTES>(&packet.payload, random))
            .collect();
        let beat_count = beats.len();
        let mut payload = Offers::new(beats, stalls);
        let (mut writes, mut completions, mut replies) =
            (Sink::new(stalls), Sink::new(stalls), Sink::new(stalls));
        let mut memory = vec![0; MEMORY_BYTES];
        let mut words: Vec<u8> = Vec::new();
        // Writes that the host has, when it will report each, and what it has reported.
        let mut issued = 0;
        let mut dones: VecDeque<(usize, bool)> = VecDeque::new();
        let mut done = 0;
        let mut has_failed = vec![false; packets.len()];
        let (mut taken, mut cycle, mut last_word) = (0, 0, 0);
        let mut due_completions = (0..packets.len()).filter(|&at| packets[at].command.has_completion);
        let mut due_replies = (0..packets.len()).filter(|&at| packets[at].command.has_reply);
        while bench.block.in_flight.val().left != packets.len() as u64 {
            assert!(cycle < 100_000, "place is stuck, stalls {stalls:?}");
            let block = &mut bench.block;
            commands.drive(&mut block.command, random);
            payload.drive(&mut block.payload, random);
            writes.drive(&mut block.write, random);
            completions.drive(&mut block.completion, random);
            replies.drive(&mut block.reply, random);
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
            taken += usize::from(payload.sample(&block.payload).is_some());
            if let Some(token) = completions.sample(&block.completion) {
                let at = due_completions.next().expect("no more completions than were asked for");
                let mut expected = packets[at].command.completion;
                if has_failed[at] && expected.status == SUCCESS {
                    expected.status = bits(LOCAL_PROTECTION);
                }
                assert_eq!(token, expected);
                assert!(done >= packets[at].end, "its writes are done");
            }
            if let Some(token) = replies.sample(&block.reply) {
                let at = due_replies.next().expect("no more replies than were asked for");
                let mut expected = packets[at].command.reply;
                expected.write_count = bits(packets[at].end as u64 & 0xffff);
                expected.has_failed = has_failed[at];
                assert_eq!(token, expected);
                assert!(done >= packets[at].end, "its writes are done");
            }
            if let Some(word) = writes.sample(&block.write) {
                words.extend(bytes_of(word.data));
                let (address, bytes, packet) = &meant[issued];
                assert_eq!((word.address.to_u64(), word.length.to_u64() as usize), (*address, bytes.len()));
                let command = &packets[*packet].command;
                assert_eq!((word.queue_pair, word.generation), (command.queue_pair, command.generation));
                assert_eq!(word.is_answer, command.reply.is_answer);
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
        assert!(memory == traffic.memory && due_completions.next().is_none() && due_replies.next().is_none());
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

    /// Two spans whose border stands at any lane of a beat, at any two alignments of host memory: every way in which a beat is
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
        // Conclusions leave one in two cycles; the host takes a microsecond.
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
            has_reply: true,
            ..Default::default()
        };
        block.payload.valid.next = true;
        block.write.ready.next = true;
        let (mut write, mut conclusion) = (None, None);
        for cycle in 0..40 {
            bench.block.payload_done_count.next = bits(u64::from(cycle >= 20));
            bench.settle();
            let block = &mut bench.block;
            write = write.or(block.write.valid.val().then_some(cycle));
            let is_offered = block.completion.valid.val() && block.reply.valid.val();
            conclusion = conclusion.or(is_offered.then_some(cycle));
            bench.tick();
            bench.block.command.valid.next = false;
        }
        assert_eq!((write, conclusion), (Some(10), Some(20 + 4)));
    }

    #[test]
    fn every_width_of_the_card_is_generated() {
        generates(Place::<128, 5>::default());
        generates(Place::<256, 6>::default());
        assert!(Place::<256, 7>::REFUSAL.is_some());
    }
}
