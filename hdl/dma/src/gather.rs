//! Gather: fetches the payload of packets to be sent, and hands on a packet when all its payload is on the card.
//!
//! A frame that has begun cannot wait for the host. So payload is read into a buffer in which room is reserved first, for many packets
//! at a time. Spans begin at any address: one rotator turns the words of each so that they follow the bytes that are in the buffer
//! already.
//!
//! ```text
//!              ┌──────────────────────────────────────────────────────────────────┐
//!  command ───>│ room? ─┬──> fetches (256) ────────┐                              │
//!              │        │                          v                              │
//!              │        │  from_host ───> ┌────────────┐ beats  ┌────────────┐    │
//!              │        │  inline_slot ──>│ turn, join ├───────>│ PacketFifo ├────┼──> payload
//!  read <──────┼────────┤                 └─────┬──────┘        └────────────┘    │
//!              │        │                       └──> results ──┐                  │
//!              │        └──> headers (256) ────────────────────┴──────────────────┼──> token, failure
//!              └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A packet of 12 bytes that begin in lane 6 of 8, from a host that answers after two cycles, and one without payload:
//! ```text
#![doc = include_str!("waves/gather.txt")]
//! ```
//!
//! Latency 2 cycles from a command to `read`, 6 from the last word to `token` and `payload`. A command of one span or none
//! takes one cycle, of two spans two; a word takes one; a packet whose last word fills one beat and begins another costs a cycle
//! more. Of a packet with more than two spans, each further one is a command of its own; room is reserved with the first one. Up to
//! 256 commands are in flight, while their payload has room in `2^ADDRESS` beats. At 512 bits, 512 beats and a host that answers after
//! 250 cycles, a packet of 64 bytes takes 1.01 cycles, 2 where these are not aligned, and one of 4096 bytes takes 64.
//!
//! 1. Packets leave in the order of their commands: as `token` when all payload is in the buffer, or as `failure` if the host failed
//!    to give some of it; then none of its payload leaves. A request that failed when it was first sent is followed by a `token` that
//!    makes the peer answer what was sent before it (protocol 2.4).
//! 2. Payload leaves in the order of the tokens, from lane 0 on, none for a packet without payload.
//! 3. Only words that have room are read, and `from_host` waits for no other block: inline data is on the card before a packet that
//!    needs it is accepted. Spans without bytes are not read.
//! 4. A span fails if the host reports an error, or if it answers with fewer bytes.
//! 5. `in_flight` counts a packet with its first command, and again with its last token or failure.
//! 6. A mark has no payload, and leaves as `failure`, in its order: when it does, nothing of the packets before it is read any more.
//!
//! Refuses a buffer of less than two packets of 4096 bytes. Design decision 3.
use rnic_blocks::logic::byte_mask::ByteMask;
use rnic_blocks::logic::lane_register::LaneRegister;
use rnic_blocks::logic::rotate::Rotator;
use rnic_blocks::memory::Storage;
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Beat, Fifo, PacketFifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::opcode::{Operation, Transport};
use rnic_messages::host::{HostSpan, Slot};
use rnic_messages::packet::EXTENDED_BITS;
use rnic_messages::pool::{LEVEL_BITS, level_of};
use rnic_messages::setup::{InFlight, in_flight_after};
use rnic_messages::sizes::SPAN_BITS;
use rnic_messages::transmit::{GatherCommand, GatherFailure, TransmitRequest};

/// Stages of the rotator.
const STAGES: usize = 3;
/// log2 of the commands in flight.
const PACKETS: usize = 8;
const PACKET_COUNT: usize = PACKETS + 1;
/// log2 of the inline slots that wait.
const SLOTS: usize = 4;
const SLOT_COUNT: usize = SLOTS + 1;
/// Bits of a lane at the widest datapath.
const LANE_BITS: usize = 6;
/// Bits of a count of lanes.
const LANES_BITS: usize = LANE_BITS + 1;
/// Byte of its first slot at which inline data begins.
const INLINE_OFFSET: u64 = 32;
/// BTH opcode of a WRITE of one packet.
const WRITE_ONLY: u64 = (Transport::Rc.base() | Operation::WriteOnly.code()) as u64;

/// Levels of the pools of gather.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct GatherPools {
    /// Packets that were taken and have not left.
    pub packets: Bits<LEVEL_BITS>,
    /// Beats of payload that are reserved or in the buffer.
    pub beats: Bits<LEVEL_BITS>,
    /// Slots with inline data.
    pub inline_slots: Bits<LEVEL_BITS>,
}

/// Gives the levels of the pools.
#[kernel]
fn pools_of<const COUNT: usize>(
    flight: InFlight,
    beats: Bits<COUNT>,
    inline_slots: Bits<SLOT_COUNT>,
) -> GatherPools {
    GatherPools {
        packets: level_of(flight),
        beats: bit_cast::<LEVEL_BITS, COUNT>(beats),
        inline_slots: bit_cast::<LEVEL_BITS, SLOT_COUNT>(inline_slots),
    }
}

/// What leaves of a command: the headers of its packet, or a mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Header {
    headers: TransmitRequest,
    is_mark: Bit,
}

/// A command that was taken, and what it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Request<const COUNT: usize> {
    /// The first span is one with bytes, if either is.
    command: GatherCommand,
    has_first: Bit,
    has_second: Bit,
    /// Beats of payload of the whole packet.
    beats: Bits<COUNT>,
    /// Inline slots.
    slots: Bits<2>,
}

/// A span as words of the datapath.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct SpanWords {
    /// Lane in which its first word begins.
    lane: Bits<LANE_BITS>,
    /// Bytes of the span in its first word.
    bytes: Bits<LANES_BITS>,
    /// The first word is the only one.
    is_single: Bit,
    /// Bytes after the first word.
    rest: Bits<SPAN_BITS>,
}

/// What is being fetched for a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Fetch<const COUNT: usize> {
    is_inline: Bit,
    has_payload: Bit,
    has_second: Bit,
    first: SpanWords,
    second: SpanWords,
    /// The next command belongs to the same packet.
    continues: Bit,
    /// Beats that are reserved for the packet.
    beats: Bits<COUNT>,
}

/// How much of the oldest packet has been joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Progress {
    /// The span has given a word.
    is_started: Bit,
    /// It is the command's second span.
    is_second: Bit,
    /// All words are joined, but bytes of the last one need a beat of their own.
    is_tail: Bit,
    has_failed: Bit,
    /// Bytes in the beat that is not full.
    fill: Bits<LANE_BITS>,
}

/// How much of its span has been joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct SpanProgress {
    /// Bytes that have not been joined.
    left: Bits<SPAN_BITS>,
    /// Lanes by which its words are turned.
    turn: Bits<LANE_BITS>,
}

/// How the next word joins the beats, by the lengths of the spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Join {
    /// Bytes of the word that belong to the span.
    count: Bits<LANES_BITS>,
    /// It is the last word of its span.
    ends_span: Bit,
    turn: Bits<LANE_BITS>,
    /// Bytes of the beat with those of the word; more than a beat has if the word spills.
    total: Bits<LANES_BITS>,
    /// The word fills its beat.
    is_full: Bit,
    /// It fills its beat and begins another.
    spills: Bit,
    /// Bytes in the beat that is not full afterwards.
    fill: Bits<LANE_BITS>,
}

/// What a word ends, by what the host says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Ending {
    ends_span: Bit,
    ends_command: Bit,
    ends_packet: Bit,
    /// This word or one before it is wrong.
    fails: Bit,
}

/// What is done at the buffer when a word has passed the rotator.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct BufferWrite<const BYTES: usize> {
    /// A beat of payload is complete.
    writes: Bit,
    bytes: Bits<BYTES>,
    last: Bit,
    /// The word fills its beat.
    is_full: Bit,
    /// The packet is complete, or lost.
    commits: Bit,
    fails: Bit,
}

/// Finds what a command needs. Spans without bytes are left out.
#[kernel]
fn request_of<const BYTES: usize, const COUNT: usize>(asked: GatherCommand) -> Request<COUNT> {
    let lane_shift = BYTES as u64 - 1;
    let has_spans = !asked.is_inline && asked.span_count.any();
    let first_counts = has_spans && asked.first.length.any();
    let second_counts = !asked.is_inline && asked.span_count == 2 && asked.second.length.any();
    let bytes = asked.headers.payload_bytes;
    let rounded = (bytes + ((1u64 << lane_shift) - 1)) >> lane_shift;
    Request::<COUNT> {
        command: GatherCommand { first: select(first_counts, asked.first, asked.second), ..asked },
        has_first: first_counts || second_counts,
        has_second: first_counts && second_counts,
        beats: bit_cast::<COUNT, SPAN_BITS>(rounded),
        slots: if !asked.is_inline || !bytes.any() {
            bits(0)
        } else if bytes <= INLINE_OFFSET {
            bits(1)
        } else {
            bits(2)
        },
    }
}

/// Divides a span into its first word and the rest.
#[kernel]
fn span_words<const BYTES: usize>(address: Bits<LANE_BITS>, length: Bits<SPAN_BITS>) -> SpanWords {
    let lane_count = 1u64 << (BYTES as u64 - 1);
    let lane = address & (lane_count - 1);
    let room = bits::<LANES_BITS>(lane_count) - bit_cast::<LANES_BITS, LANE_BITS>(lane);
    let is_single = length <= bit_cast::<SPAN_BITS, LANES_BITS>(room);
    SpanWords {
        lane,
        bytes: select(is_single, length.get_bits::<LANES_BITS>(0), room),
        is_single,
        rest: length - bit_cast::<SPAN_BITS, LANES_BITS>(room),
    }
}

/// Describes what is fetched for a command. Inline data is one span, in `inline_lane` of its slots.
#[kernel]
fn fetch_of<const BYTES: usize, const COUNT: usize>(
    request: Request<COUNT>,
    inline_lane: u64,
) -> Fetch<COUNT> {
    let command = request.command;
    let bytes = command.headers.payload_bytes;
    Fetch::<COUNT> {
        is_inline: command.is_inline,
        has_payload: bytes.any(),
        has_second: request.has_second,
        first: if command.is_inline {
            span_words::<BYTES>(bits(inline_lane), bytes)
        } else {
            span_words::<BYTES>(command.first.address.get_bits::<LANE_BITS>(0), command.first.length)
        },
        second: span_words::<BYTES>(command.second.address.get_bits::<LANE_BITS>(0), command.second.length),
        continues: command.continues,
        beats: request.beats,
    }
}

/// Finds how the next word of the oldest packet joins what is in the buffer.
#[kernel]
fn join_of<const BYTES: usize, const COUNT: usize>(
    fetch: Fetch<COUNT>,
    progress: Progress,
    span: SpanProgress,
) -> Join {
    let lane_shift = BYTES as u64 - 1;
    let lane_count = 1u64 << lane_shift;
    let words = select(progress.is_second, fetch.second, fetch.first);
    let is_rest = span.left <= lane_count;
    let count = if !progress.is_started {
        words.bytes
    } else if is_rest {
        span.left.get_bits::<LANES_BITS>(0)
    } else {
        bits(lane_count)
    };
    let total = bit_cast::<LANES_BITS, LANE_BITS>(progress.fill) + count;
    let fill = total.get_bits::<LANE_BITS>(0) & (lane_count - 1);
    let is_full = (total >> lane_shift).any();
    Join {
        count,
        ends_span: select(progress.is_started, is_rest, words.is_single),
        turn: select(progress.is_started, span.turn, (progress.fill - words.lane) & (lane_count - 1)),
        total,
        is_full,
        spills: is_full && fill.any(),
        fill,
    }
}

/// Decides what a word ends and whether its packet fails: the host reports an error, or gives more or fewer bytes than the span
/// has. Inline words are right by construction.
#[kernel]
fn ending_of<const BYTES: usize, const COUNT: usize>(
    fetch: Fetch<COUNT>,
    progress: Progress,
    join: Join,
    bytes: Bits<BYTES>,
    last: Bit,
    error: Bit,
) -> Ending {
    let is_short = last != join.ends_span || bit_cast::<LANES_BITS, BYTES>(bytes) != join.count;
    let ends_span = select(fetch.is_inline, join.ends_span, last);
    let ends_command = ends_span && (progress.is_second || !fetch.has_second);
    Ending {
        ends_span,
        ends_command,
        ends_packet: ends_command && !fetch.continues,
        fails: progress.has_failed || (!fetch.is_inline && (error || is_short)),
    }
}

/// How much of the packet has been joined after a word.
#[kernel]
fn progress_after(progress: Progress, join: Join, ending: Ending) -> Progress {
    Progress {
        is_started: !ending.ends_span,
        is_second: (progress.is_second || ending.ends_span) && !ending.ends_command,
        is_tail: ending.ends_packet && join.spills && !ending.fails,
        has_failed: ending.fails && !ending.ends_packet,
        fill: join.fill,
    }
}

/// How much of the span has been joined after a word, whose turn all words of the span have.
#[kernel]
fn span_after<const BYTES: usize, const COUNT: usize>(
    fetch: Fetch<COUNT>,
    progress: Progress,
    span: SpanProgress,
    turn: Bits<LANE_BITS>,
) -> SpanProgress {
    let words = select(progress.is_second, fetch.second, fetch.first);
    let lane_count = 1u64 << (BYTES as u64 - 1);
    SpanProgress { left: select(progress.is_started, span.left - lane_count, words.rest), turn }
}

/// What is done at the buffer for this cycle, in which `takes` says that a word is joined, and `is_empty` that a packet without payload
/// passes.
#[kernel]
fn buffer_write<const BYTES: usize>(
    progress: Progress,
    join: Join,
    ending: Ending,
    takes: Bit,
    is_empty: Bit,
) -> BufferWrite<BYTES> {
    let is_tail = progress.is_tail;
    let ends = takes && ending.ends_packet;
    BufferWrite::<BYTES> {
        writes: is_tail || (takes && join.is_full) || ends,
        bytes: if is_tail {
            bit_cast::<BYTES, LANE_BITS>(progress.fill)
        } else if join.is_full {
            bits::<BYTES>(1u64 << (BYTES as u64 - 1))
        } else {
            bit_cast::<BYTES, LANES_BITS>(join.total)
        },
        last: is_tail || (ending.ends_packet && !join.spills),
        is_full: takes && join.is_full,
        commits: is_empty || is_tail || (ends && !join.spills && !ending.fails),
        fails: ends && ending.fails,
    }
}

/// Bits of the joined word that a turned word replaces: all if it fills its beat, for the rest of it begins the next beat, else those
/// after the bytes that are there.
#[kernel]
fn taken_lanes<const DATA: usize>(is_word: Bit, is_full: Bit, mask: Bits<DATA>) -> Bits<DATA> {
    if !is_word {
        bits(0)
    } else if is_full {
        !bits::<DATA>(0)
    } else {
        !mask
    }
}

/// Names the packet whose payload the host failed to give, or the mark that has passed.
#[kernel]
fn failure_of(token: TransmitRequest, is_mark: Bit) -> GatherFailure {
    GatherFailure {
        is_mark,
        queue_pair: token.queue_pair,
        generation: token.generation,
        psn: token.psn,
        is_response: token.is_response,
    }
}

/// The packet that leaves after a request whose payload the host failed to give: a WRITE of no bytes with the PSN after it.
///
/// Packets before the failed one may wait for an acknowledgement that only the failed one would have asked for. The peer takes the
/// failed packet for a lost one: it executes nothing from that PSN on, and answers with a NAK of that PSN, which acknowledges all
/// packets before it (protocol 2.4, 3.2). Of a packet that is sent again the peer may wait for the PSN after it, and would execute
/// this one; so none leaves then, and the packets before ask for acknowledgements themselves.
#[kernel]
fn asking_after(failed: TransmitRequest) -> TransmitRequest {
    TransmitRequest {
        opcode: bits::<8>(WRITE_ONLY),
        solicited: false,
        ack_request: true,
        psn: failed.psn + 1,
        extended: bits::<EXTENDED_BITS>(0),
        payload_bytes: bits::<13>(0),
        ..failed
    }
}

/// Gathers the payload of packets to be sent; `COUNT` is `ADDRESS + 1`.
#[clocked(reset = "forgets all packets")]
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
#[require(14 - BYTES <= ADDRESS && ADDRESS <= 16)]
pub struct Gather<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> {
    /// From the gather mux: packets to be sent. `ready` is combinational.
    pub command: StreamRx<GatherCommand>,
    /// From the requester: inline data; `ready` is registered.
    pub inline_slot: StreamRx<Slot>,
    /// To the gather mux: a packet whose payload the host failed to give, or a mark. A function of registers.
    pub failure: StreamTx<GatherFailure>,

    /// To the host reader; registered.
    pub read: StreamTx<HostSpan>,
    /// From the host reader: words in the lanes of their address; `last` ends a span. `ready` is a function of registers.
    pub from_host: StreamRx<Beat<DATA, BYTES>>,

    /// To the address vector stage: packets whose payload is on the card; a function of registers.
    pub token: StreamTx<TransmitRequest>,
    /// To the address vector stage: their payload; registered.
    pub payload: StreamTx<Beat<DATA, BYTES>>,
    /// Packets taken, and tokens and failures given; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// Levels of pools; registered.
    pub pools: Signal<Out, GatherPools>,

    held: DFF<Request<COUNT>>,
    is_held: Reg<Bit>,
    /// The next command, or the one that is held, belongs to the packet of the command before it.
    is_further: Reg<Bit>,
    held_is_further: DFF<Bit>,
    spans: RegisterSlice<HostSpan>,
    second: DFF<HostSpan>,
    second_waits: Reg<Bit>,
    used: Reg<Bits<COUNT>>,
    freed: Reg<Bits<COUNT>>,
    inline_queue: Fifo<Bits<512>, SLOTS, SLOT_COUNT>,
    /// Inline slots that no accepted packet has claimed.
    unclaimed: Reg<Bits<SLOT_COUNT>>,
    #[init(Fifo::new(Storage::Block))]
    headers: Fifo<Header, PACKETS, PACKET_COUNT>,
    #[init(Fifo::new(Storage::Block))]
    fetches: Fifo<Fetch<COUNT>, PACKETS, PACKET_COUNT>,
    #[init(Fifo::new(Storage::Block))]
    results: Fifo<Bit, PACKETS, PACKET_COUNT>,

    progress: Reg<Progress>,
    span: DFF<SpanProgress>,
    #[init(Reg::new(bits(Self::INLINE_WORD)))]
    inline_index: Reg<Bits<3>>,
    #[init(Rotator::by_bytes())]
    rotator: Rotator<DATA, BYTES, STAGES>,
    below: ByteMask<DATA, BYTES>,
    writes: [Reg<BufferWrite<BYTES>>; 4],
    fed: [Reg<Bit>; 3],
    fills: [DFF<Bits<LANE_BITS>>; 2],
    mask: DFF<Bits<DATA>>,
    joined: LaneRegister<DATA>,
    made: DFF<Bits<DATA>>,
    #[init(PacketFifo::new(Storage::Block))]
    buffer: PacketFifo<Beat<DATA, BYTES>, ADDRESS, COUNT>,
    /// The failure of the oldest packet was given, and the packet after it was not.
    is_told: Reg<Bit>,
    flight: Reg<InFlight>,
    pools_held: DFF<GatherPools>,
}

impl<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize>
    Gather<DATA, BYTES, ADDRESS, COUNT>
{
    const LANE_SHIFT: u64 = BYTES as u64 - 1;
    const ROOM: u64 = 1 << ADDRESS;
    /// Word and lane of a slot in which inline data begins.
    const INLINE_WORD: u64 = INLINE_OFFSET >> (BYTES as u64 - 1);
    const INLINE_LANE: u64 = INLINE_OFFSET & (DATA as u64 / 8 - 1);
    const LAST_WORD: u64 = 512 / DATA as u64 - 1;
}

impl<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> Logic
    for Gather<DATA, BYTES, ADDRESS, COUNT>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // A command is accepted when its packet's payload has room, and its inline data is here.
        let request = self.held.q.val();
        let command = request.command;
        let is_further = self.held_is_further.q.val();
        let second_waits = self.second_waits.q.val();
        let has_room = request.beats <= bits::<COUNT>(Self::ROOM) - self.used.q.val();
        let has_places = self.headers.rx.ready.val() && self.fetches.rx.ready.val();
        let has_slots = bit_cast::<SLOT_COUNT, 2>(request.slots) <= self.unclaimed.q.val();
        let may_grant =
            (has_room || is_further) && has_places && has_slots && self.spans.rx.ready.val() && !second_waits;
        let grants = self.is_held.q.val() && may_grant;
        let may_take = !self.is_held.q.val() || may_grant;
        let takes_command = may_take && self.command.valid.val();
        let asked = self.command.beat.val();
        self.command.ready.next = may_take;
        if may_take {
            self.held.d.next = request_of::<BYTES, COUNT>(asked);
            self.is_held.d.next = self.command.valid.val();
            self.held_is_further.d.next = self.is_further.q.val();
        }
        if takes_command {
            self.is_further.d.next = asked.continues;
        }
        if grants {
            self.second.d.next = command.second;
            self.second_waits.d.next = request.has_second;
        } else if self.spans.rx.ready.val() {
            self.second_waits.d.next = false;
        }
        self.spans.rx.valid.next = second_waits || (grants && request.has_first);
        self.spans.rx.beat.next = select(second_waits, self.second.q.val(), command.first);
        StreamTx::link(&mut self.read, &mut self.spans.tx);
        self.headers.rx.valid.next = grants && !is_further;
        self.headers.rx.beat.next = Header { headers: command.headers, is_mark: command.is_mark };
        self.fetches.rx.offer(grants, fetch_of::<BYTES, COUNT>(request, Self::INLINE_LANE));
        self.inline_queue.rx.offer(self.inline_slot.valid.val(), self.inline_slot.beat.val().data);
        self.inline_slot.ready.next = self.inline_queue.rx.ready.val();
        let takes_slot = self.inline_slot.valid.val() && self.inline_queue.rx.ready.val();
        let claimed = if grants { bit_cast::<SLOT_COUNT, 2>(request.slots) } else { bits(0) };
        self.unclaimed.d.next =
            self.unclaimed.q.val() + bit_cast::<SLOT_COUNT, 1>(takes_slot.into()) - claimed;

        // A word of the oldest packet is joined.
        let fetch = self.fetches.tx.beat.val();
        let has_fetch = self.fetches.tx.valid.val();
        let progress = self.progress.q.val();
        let span = self.span.q.val();
        let join = join_of::<BYTES, COUNT>(fetch, progress, span);
        let word = self.from_host.beat.val();
        let ending = ending_of::<BYTES, COUNT>(fetch, progress, join, word.bytes, word.last, word.error);
        let may_join = has_fetch && fetch.has_payload && !progress.is_tail;
        self.from_host.ready.next = may_join && !fetch.is_inline;
        let is_here = select(fetch.is_inline, self.inline_queue.tx.valid.val(), self.from_host.valid.val());
        let takes = may_join && is_here;
        let after = progress_after(progress, join, ending);
        let has_tail = takes && after.is_tail;
        let is_empty = has_fetch && !fetch.has_payload;
        let leaves = is_empty || progress.is_tail || (takes && ending.ends_command && !has_tail);
        self.fetches.tx.ready.next = leaves;
        if takes {
            self.progress.d.next = after;
            self.span.d.next = span_after::<BYTES, COUNT>(fetch, progress, span, join.turn);
        }
        self.progress.d.next.is_tail = has_tail;
        if leaves && !fetch.continues {
            self.progress.d.next.fill = bits(0);
        }

        // Inline data is a span of words out of wide slots.
        let index = self.inline_index.q.val();
        let is_slot_over = index == Self::LAST_WORD || ending.ends_packet;
        let takes_inline = takes && fetch.is_inline;
        self.inline_queue.tx.ready.next = takes_inline && is_slot_over;
        if takes_inline {
            let next = if is_slot_over { bits(0) } else { index + 1 };
            self.inline_index.d.next = if ending.ends_packet { bits(Self::INLINE_WORD) } else { next };
        }
        let position = bit_cast::<9, 3>(index) << (Self::LANE_SHIFT + 3);
        let inline_word = self.inline_queue.tx.beat.val().get_bits::<DATA>(position.index());

        // The pipeline of the rotator never stops.
        let write = buffer_write::<BYTES>(progress, join, ending, takes, is_empty);
        self.writes[0].d.next = write;
        self.fed[0].d.next = takes;
        for stage in 1..4 {
            self.writes[stage].d.next = self.writes[stage - 1].q.val();
        }
        for stage in 1..3 {
            self.fed[stage].d.next = self.fed[stage - 1].q.val();
        }
        self.fills[0].d.next = progress.fill;
        self.fills[1].d.next = self.fills[0].q.val();
        self.rotator.data.next = select(fetch.is_inline, inline_word, word.data);
        self.rotator.distance.next = bit_cast::<BYTES, LANE_BITS>(join.turn);
        self.below.count.next = bit_cast::<BYTES, LANE_BITS>(self.fills[1].q.val());
        self.mask.d.next = self.below.mask.val();
        let turned = self.rotator.rotated.val();
        let mask = self.mask.q.val();
        self.made.d.next = (turned & !mask) | (self.joined.value.val() & mask);
        // Bytes that were joined before stay while their beat is not full; all others are the word's.
        self.joined.data.next = turned;
        self.joined.clears.next = bits(0);
        self.joined.takes.next =
            taken_lanes::<DATA>(self.fed[2].q.val(), self.writes[2].q.val().is_full, mask);
        let done = self.writes[3].q.val();
        self.buffer.write.next = done.writes;
        self.buffer.beat.next =
            Beat::<DATA, BYTES> { data: self.made.q.val(), bytes: done.bytes, last: done.last, error: false };
        self.buffer.commit.next = done.commits;
        self.buffer.rollback.next = done.fails;
        self.results.rx.offer(done.commits || done.fails, done.commits);

        // Headers leave with the result of their payload.
        StreamTx::link(&mut self.payload, &mut self.buffer.tx);
        let Header { headers: token, is_mark } = self.headers.tx.beat.val();
        let has_result = self.headers.tx.valid.val() && self.results.tx.valid.val();
        let is_good = self.results.tx.beat.val();
        let is_told = self.is_told.q.val();
        let is_due = (is_good && !is_mark) || is_told;
        let is_asked = !token.is_response && !token.is_repeated && !is_mark;
        self.token.valid.next = has_result && is_due;
        self.token.beat.next = if is_told { asking_after(token) } else { token };
        self.failure.offer(has_result && !is_due, failure_of(token, is_mark));
        let gives = has_result && select(is_due, self.token.ready.val(), self.failure.ready.val());
        let moves = gives && (is_due || !is_asked);
        if gives {
            self.is_told.d.next = !moves;
        }
        self.headers.tx.ready.next = moves;
        self.results.tx.ready.next = moves;

        // Room is freed a beat at a time, or that of a lost packet at once.
        let pops = self.buffer.tx.valid.val() && self.payload.ready.val();
        let lost = if write.fails { fetch.beats } else { bits(0) };
        self.freed.d.next = lost + bit_cast::<COUNT, 1>(pops.into());
        let reserved = if grants && !is_further { request.beats } else { bits(0) };
        self.used.d.next = self.used.q.val() + reserved - self.freed.q.val();
        let enters = takes_command && !self.is_further.q.val();
        self.flight.d.next = in_flight_after(self.flight.q.val(), enters, moves);
        self.in_flight.next = self.flight.q.val();
        self.pools_held.d.next =
            pools_of::<COUNT>(self.flight.q.val(), self.used.q.val(), self.inline_queue.level.val());
        self.pools.next = self.pools_held.q.val();
    }
}

#[cfg(test)]
mod tests;
