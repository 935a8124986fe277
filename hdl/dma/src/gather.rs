//! Gather: fetches the payload of packets to be sent, and hands a packet on when all of it is on the card.
//!
//! A frame that has begun cannot wait for the host. So payload is read into a buffer in which its place is reserved first; many
//! packets are on their way at a time. Spans begin anywhere: one rotator turns the words of each so that they follow what
//! stands in the buffer already.
//!
//! ```text
//!              ┌──────────────────────────────────────────────────────────────────┐
//!  command ───>│ room? ─┬──> parcels ──────────┐                                  │
//!              │        │                      v                                  │
//!              │        │  from_host ──> ┌───────────┐ beats  ┌────────────┐      │
//!              │        │  inline ──────>│ turn, join├───────>│ PacketFifo ├──────┼──> payload
//!  read <──────┼────────┤                └─────┬─────┘        └────────────┘      │
//!              │        │                      └──> results ──┐                   │
//!              │        └──> tokens ──────────────────────────┴───────────────────┼──> token, failure
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
//! 256 commands are under way, while their payload has room in `2^ADDRESS` beats. At 512 bits, 512 beats and a host that answers after
//! 250 cycles, a packet of 64 bytes takes 1.01 cycles, 2 where these are not aligned, and one of 4096 bytes takes 64.
//!
//! 1. Packets leave in the order of their commands: `token` when all payload is in the buffer, else `failure` if the host failed
//!    to give some; then none of its payload is seen.
//! 2. Payload leaves in the order of the tokens, from lane 0 on, none for a packet without payload.
//! 3. Only reads whose words have room are asked for, and `from_host` waits for no neighbour: inline data is on the card before a
//!    packet that needs it enters the line. Spans without bytes are not read.
//! 4. A span fails if the host says so, or if it answers with fewer bytes.
//! 5. `passage` counts packets with their first command, and tokens and failures.
//!
//! Refuses a buffer of less than two packets of 4096 bytes. Design decision 3.
use rnic_blocks::logic::byte_mask::ByteMask;
use rnic_blocks::logic::lane_register::LaneRegister;
use rnic_blocks::logic::rotate::Rotator;
use rnic_blocks::memory::Storage;
use rnic_blocks::parameter::is_datapath;
use rnic_blocks::stream::{Beat, Fifo, PacketFifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{HostSpan, Slot};
use rnic_messages::setup::InFlight;
use rnic_messages::sizes::SPAN_BITS;
use rnic_messages::transmit::{GatherCommand, GatherFailure, TransmitRequest};

/// Stages of the rotator.
const STAGES: usize = 3;
/// Packets under way, as a power of two.
const PACKETS: usize = 8;
const PACKET_COUNT: usize = PACKETS + 1;
/// Inline slots that wait, as a power of two.
const SLOTS: usize = 4;
const SLOT_COUNT: usize = SLOTS + 1;
/// Bits of a lane at the widest datapath.
const LANE_BITS: usize = 6;
/// Bits of a count of them.
const LANES_BITS: usize = LANE_BITS + 1;
/// Where inline data begins in its first slot.
const INLINE_OFFSET: u64 = 32;

/// A span as words.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Extent {
    /// Where its first word begins.
    lane: Bits<LANE_BITS>,
    /// How many bytes of that count.
    bytes: Bits<LANES_BITS>,
    /// There is no other word.
    is_single: Bit,
    /// Bytes behind the first word.
    rest: Bits<SPAN_BITS>,
}

/// What is to come of a packet's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Parcel<const COUNT: usize> {
    is_inline: Bit,
    has_payload: Bit,
    has_second: Bit,
    first: Extent,
    second: Extent,
    /// The packet goes on with the next one.
    continues: Bit,
    /// Beats that are reserved for the packet.
    beats: Bits<COUNT>,
}

/// What goes with a word through the rotator.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Step<const BYTES: usize> {
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

/// The block; `COUNT` is `ADDRESS + 1`.
#[derive(LogicBlock, Registers, Construct)]
#[require(is_datapath(DATA, BYTES), "DATA and BYTES are those of a datapath")]
#[require(14 - BYTES <= ADDRESS && ADDRESS <= 16)]
pub struct Gather<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all packets.
    pub reset: Signal<In, Bit>,

    /// From segment: packets to be sent. `ready` is combinational.
    pub command: StreamRx<GatherCommand>,
    /// From segment: inline data; `ready` is registered.
    pub inline_slot: StreamRx<Slot>,
    /// To segment: a packet that could not be sent. A function of registers.
    pub failure: StreamTx<GatherFailure>,

    /// To the host reader; registered.
    pub read: StreamTx<HostSpan>,
    /// From it: words in the lanes of their address; `last` ends a span. `ready` is a function of registers.
    pub from_host: StreamRx<Beat<DATA, BYTES>>,

    /// To launch; a function of registers.
    pub token: StreamTx<TransmitRequest>,
    /// To launch: payload; registered.
    pub payload: StreamTx<Beat<DATA, BYTES>>,
    /// Registered.
    pub in_flight: Signal<Out, InFlight>,

    held: DFF<GatherCommand>,
    is_held: Reg<Bit>,
    /// The next command, or the one that is held, goes on with the packet of the command before.
    goes_on: Reg<Bit>,
    held_goes_on: DFF<Bit>,
    beats: DFF<Bits<COUNT>>,
    slots_needed: DFF<Bits<2>>,
    has_first: DFF<Bit>,
    has_second: DFF<Bit>,
    spans: RegisterSlice<HostSpan>,
    second: DFF<HostSpan>,
    second_waits: Reg<Bit>,
    used: Reg<Bits<COUNT>>,
    freed: Reg<Bits<COUNT>>,
    #[init(Fifo::new(Storage::Block))]
    inline_queue: Fifo<Bits<512>, SLOTS, SLOT_COUNT>,
    /// Inline slots that no packet in the line has claimed.
    unclaimed: Reg<Bits<SLOT_COUNT>>,
    tokens: Fifo<TransmitRequest, PACKETS, PACKET_COUNT>,
    parcels: Fifo<Parcel<COUNT>, PACKETS, PACKET_COUNT>,
    results: Fifo<Bit, PACKETS, PACKET_COUNT>,

    is_second: Reg<Bit>,
    is_started: Reg<Bit>,
    is_tail: Reg<Bit>,
    has_failed: Reg<Bit>,
    left: DFF<Bits<SPAN_BITS>>,
    turn: DFF<Bits<LANE_BITS>>,
    fill: Reg<Bits<LANE_BITS>>,
    #[init(Reg::new(bits(Self::INLINE_WORD)))]
    inline_index: Reg<Bits<3>>,
    #[init(Rotator::by_bytes())]
    rotator: Rotator<DATA, BYTES, STAGES>,
    below: ByteMask<DATA, BYTES>,
    steps: [Reg<Step<BYTES>>; 4],
    fed: [Reg<Bit>; 3],
    fills: [DFF<Bits<LANE_BITS>>; 2],
    mask: DFF<Bits<DATA>>,
    joined: LaneRegister<DATA>,
    made: DFF<Bits<DATA>>,
    #[init(PacketFifo::new(Storage::Block))]
    buffer: PacketFifo<Beat<DATA, BYTES>, ADDRESS, COUNT>,
    passed: Reg<InFlight>,
}

impl<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize>
    Gather<DATA, BYTES, ADDRESS, COUNT>
{
    const LANE_COUNT: u64 = DATA as u64 / 8;
    /// Of a lane, the bits that count.
    const LANES: u64 = DATA as u64 / 8 - 1;
    const LANE_SHIFT: u64 = BYTES as u64 - 1;
    const ROOM: u64 = 1 << ADDRESS;
    /// Word and lane of a slot in which inline data begins.
    const INLINE_WORD: u64 = INLINE_OFFSET >> (BYTES as u64 - 1);
    const INLINE_LANE: u64 = INLINE_OFFSET & (DATA as u64 / 8 - 1);
    const LAST_WORD: u64 = 512 / DATA as u64 - 1;
}

/// Divides a span into its first word and the rest.
#[kernel]
fn extent<const BYTES: usize>(address: Bits<LANE_BITS>, length: Bits<SPAN_BITS>) -> Extent {
    let lane_count = 1u64 << (BYTES as u64 - 1);
    let lane = address & (lane_count - 1);
    let room = bits::<LANES_BITS>(lane_count) - bit_cast::<LANES_BITS, LANE_BITS>(lane);
    let is_single = length <= bit_cast::<SPAN_BITS, LANES_BITS>(room);
    Extent {
        lane,
        bytes: select(is_single, length.get_bits::<LANES_BITS>(0), room),
        is_single,
        rest: length - bit_cast::<SPAN_BITS, LANES_BITS>(room),
    }
}

impl<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize> Logic
    for Gather<DATA, BYTES, ADDRESS, COUNT>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // A command enters the line when its payload has room, and its inline data is here.
        let command = self.held.q.val();
        let has_first = self.has_first.q.val();
        let has_second = self.has_second.q.val();
        let second_waits = self.second_waits.q.val();
        let goes_on = self.held_goes_on.q.val();
        let has_room = self.beats.q.val() <= bits::<COUNT>(Self::ROOM) - self.used.q.val();
        let fits = has_room || goes_on;
        let has_places = self.tokens.rx.ready.val() && self.parcels.rx.ready.val();
        let needed = self.slots_needed.q.val();
        let has_slots = bit_cast::<SLOT_COUNT, 2>(needed) <= self.unclaimed.q.val();
        let may_grant = fits && has_places && has_slots && self.spans.rx.ready.val() && !second_waits;
        let grants = self.is_held.q.val() && may_grant;
        let may_take = !self.is_held.q.val() || may_grant;
        let asked = self.command.beat.val();
        self.command.ready.next = may_take;
        if may_take {
            let first_counts = !asked.is_inline && asked.span_count.any() && asked.first.length.any();
            let second_counts = !asked.is_inline && asked.span_count == 2 && asked.second.length.any();
            self.held.d.next = asked;
            if !first_counts {
                self.held.d.next.first = asked.second;
            }
            self.has_first.d.next = first_counts || second_counts;
            self.has_second.d.next = first_counts && second_counts;
            self.is_held.d.next = self.command.valid.val();
            self.held_goes_on.d.next = self.goes_on.q.val();
            if self.command.valid.val() {
                self.goes_on.d.next = asked.continues;
            }
            let rounded = (asked.headers.payload_bytes + Self::LANES) >> Self::LANE_SHIFT;
            self.beats.d.next = bit_cast::<COUNT, SPAN_BITS>(rounded);
            self.slots_needed.d.next = if !asked.is_inline || !asked.headers.payload_bytes.any() {
                bits(0)
            } else if asked.headers.payload_bytes <= INLINE_OFFSET {
                bits(1)
            } else {
                bits(2)
            };
        }
        if grants {
            self.second.d.next = command.second;
            self.second_waits.d.next = has_second;
        } else if self.spans.rx.ready.val() {
            self.second_waits.d.next = false;
        }
        self.spans.rx.valid.next = second_waits || (grants && has_first);
        self.spans.rx.beat.next = select(second_waits, self.second.q.val(), command.first);
        StreamTx::<HostSpan>::link(&mut self.read, &mut self.spans.tx);
        self.tokens.rx.valid.next = grants && !goes_on;
        self.tokens.rx.beat.next = command.headers;
        self.parcels.rx.valid.next = grants;
        self.parcels.rx.beat.next = Parcel::<COUNT> {
            is_inline: command.is_inline,
            has_payload: command.headers.payload_bytes.any(),
            has_second,
            first: if command.is_inline {
                extent::<BYTES>(bits(Self::INLINE_LANE), command.headers.payload_bytes)
            } else {
                extent::<BYTES>(command.first.address.get_bits::<LANE_BITS>(0), command.first.length)
            },
            second: extent::<BYTES>(command.second.address.get_bits::<LANE_BITS>(0), command.second.length),
            continues: command.continues,
            beats: self.beats.q.val(),
        };
        self.inline_queue.rx.valid.next = self.inline_slot.valid.val();
        self.inline_queue.rx.beat.next = self.inline_slot.beat.val().data;
        self.inline_slot.ready.next = self.inline_queue.rx.ready.val();
        let slot_came = self.inline_slot.valid.val() && self.inline_queue.rx.ready.val();
        let claimed = if grants { bit_cast::<SLOT_COUNT, 2>(needed) } else { bits(0) };
        self.unclaimed.d.next =
            self.unclaimed.q.val() + bit_cast::<SLOT_COUNT, 1>(slot_came.into()) - claimed;

        // A word comes: how many bytes of it count, and where they go.
        let parcel = self.parcels.tx.beat.val();
        let has_parcel = self.parcels.tx.valid.val();
        let (is_started, is_second) = (self.is_started.q.val(), self.is_second.q.val());
        let is_tail = self.is_tail.q.val();
        let extent = select(is_second, parcel.second, parcel.first);
        let left = self.left.q.val();
        let is_rest = select(is_started, left <= Self::LANE_COUNT, extent.is_single);
        let count = if !is_started {
            extent.bytes
        } else if left <= Self::LANE_COUNT {
            left.get_bits::<LANES_BITS>(0)
        } else {
            bits(Self::LANE_COUNT)
        };
        let fill = self.fill.q.val();
        let total = bit_cast::<LANES_BITS, LANE_BITS>(fill) + count;
        let behind = total.get_bits::<LANE_BITS>(0) & Self::LANES;
        let is_full = (total >> Self::LANE_SHIFT).any();
        let is_over = is_full && behind.any();
        let turn = select(is_started, self.turn.q.val(), (fill - extent.lane) & Self::LANES);

        let may = has_parcel && parcel.has_payload && !is_tail;
        let word = self.from_host.beat.val();
        self.from_host.ready.next = may && !parcel.is_inline;
        let is_here = select(parcel.is_inline, self.inline_queue.tx.valid.val(), self.from_host.valid.val());
        let takes = may && is_here;
        let ends_span = select(parcel.is_inline, is_rest, word.last);
        let is_short = word.last != is_rest || bit_cast::<LANES_BITS, BYTES>(word.bytes) != count;
        let is_wrong = !parcel.is_inline && (word.error || is_short);
        let fails = self.has_failed.q.val() || is_wrong;
        let ends_parcel = ends_span && (is_second || !parcel.has_second);
        let ends = ends_parcel && !parcel.continues;
        let has_tail = takes && ends && is_over && !fails;
        let is_empty = has_parcel && !parcel.has_payload;
        let leaves = is_empty || is_tail || (takes && ends_parcel && !has_tail);
        self.parcels.tx.ready.next = leaves;
        if takes {
            self.is_started.d.next = !ends_span;
            self.is_second.d.next = (is_second || ends_span) && !ends_parcel;
            self.left.d.next = select(is_started, left - Self::LANE_COUNT, extent.rest);
            self.turn.d.next = turn;
            self.fill.d.next = behind;
            self.has_failed.d.next = fails && !ends;
        }
        self.is_tail.d.next = has_tail;
        if leaves && !parcel.continues {
            self.fill.d.next = bits(0);
        }

        // Inline data is a span of words out of wide slots.
        let index = self.inline_index.q.val();
        let is_slot_over = index == Self::LAST_WORD || ends;
        let takes_inline = takes && parcel.is_inline;
        self.inline_queue.tx.ready.next = takes_inline && is_slot_over;
        if takes_inline {
            self.inline_index.d.next = if ends {
                bits(Self::INLINE_WORD)
            } else if is_slot_over {
                bits(0)
            } else {
                index + 1
            };
        }
        let position = bit_cast::<9, 3>(index) << (Self::LANE_SHIFT + 3);
        let inline_word = self.inline_queue.tx.beat.val().get_bits::<DATA>(position.index());

        // The pipeline of the rotator never stops.
        let loses = takes && ends && fails;
        for stage in 0..4 {
            self.steps[stage].d.next = if stage == 0 {
                Step::<BYTES> {
                    writes: is_tail || (takes && (is_full || ends)),
                    bytes: if is_tail {
                        bit_cast::<BYTES, LANE_BITS>(fill)
                    } else if is_full {
                        bits::<BYTES>(Self::LANE_COUNT)
                    } else {
                        bit_cast::<BYTES, LANES_BITS>(total)
                    },
                    last: is_tail || (ends && !is_over),
                    is_full: takes && is_full,
                    commits: is_empty || is_tail || (takes && ends && !is_over && !fails),
                    fails: loses,
                }
            } else {
                self.steps[stage - 1].q.val()
            };
        }
        for stage in 0..3 {
            self.fed[stage].d.next = if stage == 0 { takes } else { self.fed[stage - 1].q.val() };
        }
        self.fills[0].d.next = fill;
        self.fills[1].d.next = self.fills[0].q.val();
        self.rotator.data.next = select(parcel.is_inline, inline_word, word.data);
        self.rotator.distance.next = bit_cast::<BYTES, LANE_BITS>(turn);
        self.below.count.next = bit_cast::<BYTES, LANE_BITS>(self.fills[1].q.val());
        self.mask.d.next = self.below.mask.val();
        let turned = self.rotator.rotated.val();
        let mask = self.mask.q.val();
        let made = (turned & !mask) | (self.joined.value.val() & mask);
        self.made.d.next = made;
        // What was joined before stays while its word is not full; all else is what came.
        self.joined.data.next = turned;
        self.joined.clears.next = bits(0);
        self.joined.takes.next = if !self.fed[2].q.val() {
            bits(0)
        } else if self.steps[2].q.val().is_full {
            !bits::<DATA>(0)
        } else {
            !mask
        };
        let step = self.steps[3].q.val();
        self.buffer.write.next = step.writes;
        self.buffer.beat.next =
            Beat::<DATA, BYTES> { data: self.made.q.val(), bytes: step.bytes, last: step.last, error: false };
        self.buffer.commit.next = step.commits;
        self.buffer.rollback.next = step.fails;
        self.results.rx.valid.next = step.commits || step.fails;
        self.results.rx.beat.next = step.commits;

        // Out.
        StreamTx::<Beat<DATA, BYTES>>::link(&mut self.payload, &mut self.buffer.tx);
        let token = self.tokens.tx.beat.val();
        let is_ready = self.tokens.tx.valid.val() && self.results.tx.valid.val();
        let is_good = self.results.tx.beat.val();
        self.token.valid.next = is_ready && is_good;
        self.token.beat.next = token;
        self.failure.valid.next = is_ready && !is_good;
        self.failure.beat.next = GatherFailure {
            queue_pair: token.queue_pair,
            generation: token.generation,
            psn: token.psn,
            is_response: token.is_response,
        };
        let moves = is_ready && select(is_good, self.token.ready.val(), self.failure.ready.val());
        self.tokens.tx.ready.next = moves;
        self.results.tx.ready.next = moves;

        // Room comes back a beat at a time, or that of a lost packet at once.
        let pops = self.buffer.tx.valid.val() && self.payload.ready.val();
        let lost = if loses { parcel.beats } else { bits(0) };
        self.freed.d.next = lost + bit_cast::<COUNT, 1>(pops.into());
        let reserved = if grants && !goes_on { self.beats.q.val() } else { bits(0) };
        self.used.d.next = self.used.q.val() + reserved - self.freed.q.val();

        let passed = self.passed.q.val();
        self.passed.d.next = InFlight {
            entered: if may_take && self.command.valid.val() && !self.goes_on.q.val() {
                passed.entered + 1
            } else {
                passed.entered
            },
            left: if moves { passed.left + 1 } else { passed.left },
        };
        self.in_flight.next = passed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::{Bench, Random, Sink, Stalls, Stimulus, Waves, frames_of, random};
    use rnic_host::testing::{Fault, Offers, generates, memory_bytes};
    use std::collections::VecDeque;

    type Narrow = Gather<64, 4, 10, 11>;
    type Wide = Gather<512, 7, 7, 8>;

    /// Reads that begin in pages whose number ends in 5 or 6 fail, one way or the other.
    fn fault(address: u64) -> Fault {
        match address >> 12 & 7 {
            5 => Fault::Error,
            6 => Fault::Short,
            _ => Fault::None,
        }
    }

    /// A packet to be sent, and what should become of it.
    #[derive(Clone)]
    struct Order {
        command: GatherCommand,
        /// Further spans, each a command.
        more: Vec<HostSpan>,
        slots: Vec<Slot>,
        payload: Vec<u8>,
        reads: usize,
        fails: bool,
    }

    fn span(address: u64, length: u64) -> HostSpan {
        HostSpan { address: bits(address), length: bits(length) }
    }

    fn headers(psn: u64, payload_bytes: usize) -> TransmitRequest {
        TransmitRequest {
            queue_pair: bits(psn & 0x3ff),
            generation: bits(psn % 7),
            psn: bits(psn),
            payload_bytes: bits(payload_bytes as u64),
            ..Default::default()
        }
    }

    fn slot(bytes: &[u8], begin: usize, random: &mut Random) -> Slot {
        let mut lanes: Vec<u8> = (0..64).map(|_| random.random()).collect();
        lanes[begin..begin + bytes.len()].copy_from_slice(bytes);
        Slot { data: BigUint::from_bytes_le(&lanes).into(), last: random.random(), error: random.random() }
    }

    fn inline(psn: u64, payload_bytes: usize, random: &mut Random) -> Order {
        let payload: Vec<u8> = (0..payload_bytes).map(|_| random.random()).collect();
        let mut slots = Vec::new();
        if payload_bytes > 0 {
            slots.push(slot(&payload[..payload_bytes.min(32)], 32, random));
        }
        if payload_bytes > 32 {
            slots.push(slot(&payload[32..], 0, random));
        }
        let command = GatherCommand {
            headers: headers(psn, payload_bytes),
            is_inline: true,
            continues: false,
            // What does not count may be anything.
            span_count: Stimulus::sample(random),
            first: span(random.random(), 77),
            second: span(random.random(), 88),
        };
        Order { command, more: Vec::new(), slots, payload, reads: 0, fails: false }
    }

    /// A packet of two spans, of which those without bytes are not counted, or are.
    fn fetched<const DATA: usize>(psn: u64, spans: [HostSpan; 2], span_count: u64) -> Order {
        let counted = &spans[..span_count as usize];
        let counted: Vec<_> = counted.iter().filter(|span| span.length.any()).collect();
        let payload: Vec<u8> = counted
            .iter()
            .flat_map(|span| memory_bytes(span.address.to_u64(), span.length.to_u64() as usize))
            .collect();
        let fails = counted.iter().any(|span| match fault(span.address.to_u64()) {
            Fault::None => false,
            Fault::Error => true,
            // A single byte cannot be less.
            Fault::Short => span.length.to_u64() > 1,
        });
        let command = GatherCommand {
            headers: headers(psn, payload.len()),
            is_inline: false,
            continues: false,
            span_count: bits(span_count),
            first: spans[0],
            second: spans[1],
        };
        Order { command, more: Vec::new(), slots: Vec::new(), reads: counted.len(), payload, fails }
    }

    /// A packet of three to six spans with bytes.
    fn listed<const DATA: usize>(psn: u64, random: &mut Random) -> Order {
        let count = random.random_range(3..=6);
        let longest = *[9, 100, 4096 / count].choose(random).unwrap();
        let spans: Vec<_> =
            (0..count).map(|_| span(any_address(random), random.random_range(1..=longest))).collect();
        let each = spans.iter().map(|&one| fetched::<DATA>(psn, [one, span(0, 0)], 1));
        let payload: Vec<u8> = each.clone().flat_map(|order| order.payload).collect();
        let fails = each.clone().any(|order| order.fails);
        let mut order = each.clone().next().expect("there are some");
        // The first command may have two.
        let with_second = random.random();
        order.command.headers = headers(psn, payload.len());
        order.command.continues = true;
        order.command.span_count = bits(if with_second { 2 } else { 1 });
        order.command.second = spans[1];
        let more = spans[if with_second { 2 } else { 1 }..].to_vec();
        Order { more, reads: spans.len(), payload, fails, ..order }
    }

    impl Order {
        fn commands(&self) -> Vec<GatherCommand> {
            let count = self.more.len();
            let mut commands = vec![self.command];
            commands.extend(self.more.iter().enumerate().map(|(index, &first)| GatherCommand {
                continues: index + 1 < count,
                span_count: bits(1),
                first,
                ..self.command
            }));
            commands
        }
    }

    fn any_order<const DATA: usize>(psn: u64, random: &mut Random) -> Order {
        let total = *[0, 1, 64, random.random_range(0..200), random.random_range(0..=4096), 4096]
            .choose(random)
            .unwrap();
        let first_length = *[0, total, random.random_range(0..=total)].choose(random).unwrap();
        let spans = [first_length, total - first_length].map(|length| span(any_address(random), length));
        match random.random_range(0..5) {
            4 => listed::<DATA>(psn, random),
            0 => inline(psn, random.random_range(0..=96), random),
            1 => fetched::<DATA>(psn, [span(any_address(random), total), spans[1]], 1),
            _ => fetched::<DATA>(psn, spans, 2),
        }
    }

    fn any_address(random: &mut Random) -> u64 {
        let address = random.random::<u64>() >> 8;
        if random.random_bool(0.3) { address & !63 } else { address }
    }

    /// Answers spans in their order, each some time after it was asked for.
    struct Reader<const DATA: usize, const BYTES: usize> {
        latency: std::ops::RangeInclusive<u64>,
        stalls: bool,
        answers: VecDeque<(u64, VecDeque<Beat<DATA, BYTES>>)>,
        is_offering: bool,
        spans_done: usize,
        now: u64,
    }

    impl<const DATA: usize, const BYTES: usize> Reader<DATA, BYTES> {
        fn new(latency: std::ops::RangeInclusive<u64>, stalls: Stalls) -> Self {
            let answers = VecDeque::new();
            Reader { latency, stalls: stalls.source(), answers, is_offering: false, spans_done: 0, now: 0 }
        }

        fn accept(&mut self, span: HostSpan, random: &mut Random) {
            let (mut address, length) = (span.address.to_u64(), span.length.to_u64());
            assert!((1..=4096).contains(&length), "{span:?}");
            let (width, end, fault) = (DATA as u64 / 8, address + length, fault(address));
            let mut words = VecDeque::new();
            while address < end {
                let base = address / width * width;
                let next = (base + width).min(end);
                let lanes: Vec<u8> = (base..base + width)
                    .map(
                        |at| if at >= address && at < end { memory_bytes(at, 1)[0] } else { random.random() },
                    )
                    .collect();
                let data = BigUint::from_bytes_le(&lanes).into();
                words.push_back(Beat { data, bytes: bits(next - address), last: next == end, error: false });
                address = next;
            }
            if fault == Fault::Error {
                words.truncate(random.random_range(1..=words.len()));
                words.back_mut().unwrap().error = true;
            } else if fault == Fault::Short && words.len() > 1 {
                words.truncate(random.random_range(1..words.len()));
            } else if fault == Fault::Short {
                let word = words.back_mut().unwrap();
                word.bytes = bits((word.bytes.to_u64() - 1).max(1));
            }
            words.back_mut().unwrap().last = true;
            self.answers.push_back((self.now + random.random_range(self.latency.clone()), words));
        }

        fn drive(&mut self, port: &mut StreamRx<Beat<DATA, BYTES>>, random: &mut Random) {
            self.now += 1;
            let is_due = self.answers.front().is_some_and(|(due, _)| *due <= self.now);
            self.is_offering = is_due && (self.is_offering || !self.stalls || random.random());
            port.valid.next = self.is_offering;
            port.beat.next = if self.is_offering { self.answers[0].1[0] } else { Stimulus::sample(random) };
        }

        fn sample(&mut self, port: &StreamRx<Beat<DATA, BYTES>>) {
            if self.is_offering && port.ready.val() {
                self.is_offering = false;
                self.answers[0].1.pop_front();
                if self.answers[0].1.is_empty() {
                    self.answers.pop_front();
                    self.spans_done += 1;
                }
            }
        }
    }

    /// What left the block, in order, and when.
    #[derive(Default)]
    struct Left {
        tokens: Vec<TransmitRequest>,
        failures: Vec<GatherFailure>,
        /// Of tokens and failures: the PSN.
        psns: Vec<u64>,
        payload: Vec<(Vec<u8>, bool)>,
        cycles: usize,
        first_token: usize,
    }

    fn run<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize>(
        bench: &mut Bench<Gather<DATA, BYTES, ADDRESS, COUNT>>,
        orders: &[Order],
        latency: std::ops::RangeInclusive<u64>,
        stalls: Stalls,
        random: &mut Random,
    ) -> Left {
        let mut commands = Offers::new(orders.iter().flat_map(Order::commands), stalls);
        let mut slots = Offers::new(orders.iter().flat_map(|order| order.slots.clone()), stalls);
        let mut reader = Reader::<DATA, BYTES>::new(latency, stalls);
        let (mut reads, mut tokens) = (Sink::new(stalls), Sink::new(stalls));
        let (mut failures, mut payload) = (Sink::new(stalls), Sink::new(stalls));
        let reads_before: Vec<_> = orders
            .iter()
            .scan(0, |sum, order| {
                *sum += order.reads;
                Some(*sum)
            })
            .collect();
        let start = bench.block.in_flight.val();
        let (mut left, mut idle, mut beats) = (Left::default(), 0, Vec::new());
        while idle < 30 {
            assert!(left.cycles < 300_000, "gather is stuck with {} of {}", left.psns.len(), orders.len());
            let block = &mut bench.block;
            commands.drive(&mut block.command, random);
            slots.drive(&mut block.inline_slot, random);
            reads.drive(&mut block.read, random);
            reader.drive(&mut block.from_host, random);
            tokens.drive(&mut block.token, random);
            failures.drive(&mut block.failure, random);
            payload.drive(&mut block.payload, random);
            bench.settle();
            let block = &bench.block;
            commands.sample(&block.command);
            slots.sample(&block.inline_slot);
            reader.sample(&block.from_host);
            if let Some(span) = reads.sample(&block.read) {
                reader.accept(span, random);
            }
            assert!(!block.token.valid.val() || !block.failure.valid.val());
            if block.token.valid.val() {
                let order = left.psns.len();
                assert!(reader.spans_done >= reads_before[order], "a token before its payload");
            }
            let token = tokens.sample(&block.token).map(|token| token.psn);
            let failure = failures.sample(&block.failure).map(|failure| failure.psn);
            left.psns.extend(token.or(failure).map(|psn| psn.to_u64()));
            if left.psns.len() == 1 && left.first_token == 0 {
                left.first_token = left.cycles;
            }
            let beat = payload.sample(&block.payload);
            beats.extend(beat);
            let is_quiet = left.psns.len() == orders.len() && beat.is_none();
            idle = if is_quiet { idle + 1 } else { 0 };
            bench.tick();
            left.cycles += 1;
        }
        left.cycles -= idle;
        left.tokens = tokens.received;
        left.failures = failures.received;
        left.payload = frames_of(&beats);
        let (in_flight, count) = (bench.block.in_flight.val(), orders.len() as u64);
        assert_eq!(in_flight.entered, start.entered + count);
        assert_eq!(in_flight.left, start.left + count);
        left
    }

    fn check(orders: &[Order], left: &Left) {
        let of = |fails| orders.iter().filter(move |order| order.fails == fails);
        let all: Vec<_> = orders.iter().map(|order| order.command.headers.psn.to_u64()).collect();
        assert_eq!(left.psns, all, "tokens and failures in the order of the commands");
        let tokens: Vec<_> = of(false).map(|order| order.command.headers).collect();
        assert_eq!(left.tokens, tokens);
        let failed = |order: &Order| {
            let TransmitRequest { queue_pair, generation, psn, is_response, .. } = order.command.headers;
            GatherFailure { queue_pair, generation, psn, is_response }
        };
        assert_eq!(left.failures, of(true).map(failed).collect::<Vec<_>>());
        let payload = of(false).filter(|order| !order.payload.is_empty());
        let payload: Vec<_> = payload.map(|order| (order.payload.clone(), false)).collect();
        assert_eq!(left.payload.len(), payload.len());
        for (left, right) in left.payload.iter().zip(&payload) {
            assert_eq!(left, right);
        }
    }

    fn bench<const DATA: usize, const BYTES: usize, const ADDRESS: usize, const COUNT: usize>()
    -> Bench<Gather<DATA, BYTES, ADDRESS, COUNT>> {
        Bench::clocked(Gather::default(), |block| &mut block.clock)
    }

    fn packets_leave_whole<
        const DATA: usize,
        const BYTES: usize,
        const ADDRESS: usize,
        const COUNT: usize,
    >(
        count: u64,
    ) {
        let mut random = random();
        for stalls in Stalls::ALL {
            let mut bench = bench::<DATA, BYTES, ADDRESS, COUNT>().in_lock_step();
            let orders: Vec<_> = (0..count).map(|psn| any_order::<DATA>(psn, &mut random)).collect();
            let left = run(&mut bench, &orders, 0..=60, stalls, &mut random);
            check(&orders, &left);
            assert!(left.failures.len() > 5 && left.tokens.len() > 20);
        }
    }

    #[test]
    fn packets_leave_whole_and_in_order_at_64_bits() {
        packets_leave_whole::<64, 4, 10, 11>(60);
    }

    #[test]
    fn packets_leave_whole_and_in_order_at_128_bits() {
        packets_leave_whole::<128, 5, 9, 10>(60);
    }

    #[test]
    fn packets_leave_whole_and_in_order_at_512_bits() {
        packets_leave_whole::<512, 7, 7, 8>(200);
    }

    /// Every alignment of two spans to each other, without a host that fails.
    #[test]
    fn spans_of_every_alignment_are_joined() {
        let mut random = random();
        let mut bench = bench::<512, 7, 9, 10>();
        let lanes = (0..64).flat_map(|first| [0, 1, 31, 32, 63].map(|second| (first, second)));
        let orders = lanes.enumerate().map(|(psn, (first, second))| {
            let lengths = [random.random_range(1..200), random.random_range(1..200)];
            fetched::<512>(psn as u64, [span(first, lengths[0]), span(512 + second, lengths[1])], 2)
        });
        let orders: Vec<_> = orders.collect();
        let left = run(&mut bench, &orders, 0..=0, Stalls::None, &mut random);
        check(&orders, &left);
    }

    /// A wire that stands still must not hold back words of the host, behind which others wait.
    #[test]
    fn what_was_asked_for_has_room() {
        let mut random = random();
        for payload_bytes in [64, 100, 4096] {
            let mut bench = bench::<512, 7, 7, 8>().in_lock_step();
            let command =
                |psn| fetched::<512>(psn, [span(psn << 15 | 3, payload_bytes), span(0, 0)], 1).command;
            let mut commands = Offers::new((0..200).map(command), Stalls::None);
            let mut reader = Reader::<512, 7>::new(0..=100, Stalls::None);
            let mut asked = 0;
            for _ in 0..2000 {
                commands.drive(&mut bench.block.command, &mut random);
                reader.drive(&mut bench.block.from_host, &mut random);
                bench.block.read.ready.next = true;
                bench.settle();
                commands.sample(&bench.block.command);
                reader.sample(&bench.block.from_host);
                if bench.block.read.valid.val() {
                    reader.accept(bench.block.read.beat.val(), &mut random);
                    asked += 1;
                }
                bench.tick();
            }
            assert_eq!(reader.spans_done, asked, "all that was asked for has come");
            assert_eq!(asked as u64, 128 / payload_bytes.div_ceil(64), "and as much as finds room");
        }
    }

    /// Packets of one size while a host answers after 250 cycles, 1 us: cycles for each.
    fn cycles_per_packet(count: u64, address: u64, payload_bytes: u64) -> (f64, usize) {
        let mut random = random();
        let mut bench = bench::<512, 7, 9, 10>();
        let order = |psn| fetched::<512>(psn, [span((psn << 15) + address, payload_bytes), span(0, 0)], 1);
        let orders: Vec<_> = (0..count).map(order).collect();
        let left = run(&mut bench, &orders, 250..=250, Stalls::None, &mut random);
        check(&orders, &left);
        ((left.cycles - left.first_token) as f64 / count as f64, left.first_token)
    }

    #[test]
    fn a_host_of_one_microsecond_is_hidden() {
        for (count, address, payload_bytes, most) in [
            (2000, 0, 64, 1.2),
            (2000, 5, 64, 2.1),
            (2000, 0, 1, 1.2),
            (200, 0, 4096, 66.0),
            (200, 9, 4096, 66.0),
        ] {
            let (cycles, first) = cycles_per_packet(count, address, payload_bytes);
            println!(
                "{payload_bytes} bytes at {address}: {cycles:.2} cycles a packet, the first after {first}"
            );
            assert!(cycles < most, "{payload_bytes} bytes at {address}: {cycles:.2} cycles a packet");
        }
    }

    /// Inputs that no neighbour would give, and resets at any time.
    #[test]
    fn any_input_does_the_same_in_verilog() {
        let mut random = random();
        let mut bench = bench::<256, 6, 8, 9>().in_lock_step();
        for _ in 0..1500 {
            let block = &mut bench.block;
            block.reset.next = random.random_bool(0.01);
            block.command.valid.next = random.random();
            block.command.beat.next = any_order::<256>(random.random_range(0..1 << 24), &mut random).command;
            block.command.beat.next.span_count = Stimulus::sample(&mut random);
            block.inline_slot.valid.next = random.random();
            block.inline_slot.beat.next = slot(&[], 0, &mut random);
            block.read.ready.next = random.random_bool(0.8);
            block.from_host.valid.next = random.random_bool(0.8);
            block.from_host.beat.next = Stimulus::sample(&mut random);
            block.token.ready.next = random.random_bool(0.8);
            block.failure.ready.next = random.random_bool(0.8);
            block.payload.ready.next = random.random_bool(0.8);
            bench.tick();
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        generates(Gather::<512, 7, 9, 10>::default());
        generates(Narrow::default());
        generates(Wide::default());
        assert!(Gather::<512, 7, 6, 7>::REFUSAL.is_some_and(|refusal| refusal.contains("ADDRESS")));
        assert!(Gather::<64, 4, 9, 10>::REFUSAL.is_some_and(|refusal| refusal.contains("ADDRESS")));
        assert!(Gather::<64, 5, 10, 11>::REFUSAL.is_some_and(|refusal| refusal.contains("BYTES")));
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("command_valid").signal("read_valid").signal("from_host_valid");
        let waves = waves.signal("from_host_beat.bytes").when("from_host_valid").signal("token_valid");
        let waves = waves.signal("payload_valid").signal("payload_beat.bytes").when("payload_valid");
        let mut bench = bench::<64, 4, 10, 11>().recording(waves);
        let mut random = random();
        let orders = [fetched::<64>(1, [span(6, 12), span(0, 0)], 1), inline(2, 0, &mut random)];
        let mut commands = Offers::new(orders.map(|order| order.command), Stalls::None);
        let mut reader = Reader::<64, 4>::new(2..=2, Stalls::None);
        bench.block.read.ready.next = true;
        bench.block.token.ready.next = true;
        bench.block.payload.ready.next = true;
        for cycle in 0..18 {
            if cycle >= 1 {
                commands.drive(&mut bench.block.command, &mut random);
            }
            reader.drive(&mut bench.block.from_host, &mut random);
            bench.settle();
            commands.sample(&bench.block.command);
            reader.sample(&bench.block.from_host);
            if bench.block.read.valid.val() {
                reader.accept(bench.block.read.beat.val(), &mut random);
            }
            bench.tick();
        }
        bench.waves().expect("waves/gather.txt");
    }
}
