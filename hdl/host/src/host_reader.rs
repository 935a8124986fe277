//! Host reader: reads spans of host memory for five clients, many requests at a time.
//!
//! WQEs and payload come over one link, so one engine with one store of answers serves all. Its clients see neither tags nor the
//! order in which the host answers; they must only have room for what they read.
//!
//! ```text
//!                 ┌──────────────────────────────────────────────────────────────┐
//!  sq_read ──────>│ ┌─────────┐   ┌──────────┐   ┌───────────┐   ┌────────────┐  │
//!  rq_read ──────>│ │ Arbiter ├──>│ Splitter ├──>│ Translate ├──>│ ReadEngine ├──┼──> to_host
//!  admin_read ───>│ │ (spans) │   │ (512 B)  │   └───────────┘   │            │<─┼─── from_host
//!  payload_read ─>│ │         │   │          │                   │            │  │
//!  atomics_read ─>│ └─────────┘   └──────────┘                   └─────┬──────┘  │
//!                 │                                          ┌─────────┘         │
//!                 │                                          v                   │
//!  sq_slot <──────┤                                    ┌───────────┐             │
//!  rq_slot <──────┤<───────────────────────────────────┤ ReadDemux ├─────────────┼──> payload
//!  admin_slot <───┤                                    └───────────┘             │
//!  atomics_word <─┤                                                              │
//!                 └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! Latency 8 cycles from a span to `to_host`, and 5 from the first word of the oldest request to a slot, 4 to `payload`. One
//! piece of 512 bytes and one word of the datapath a cycle; a span of one piece takes one cycle.
//!
//! 1. Spans of one client are answered in their order, each whole; a client waits for at most one span of each other client to be
//!    split, 8 cycles.
//! 2. A span for slots begins at a multiple of 64 and has a multiple of 64 bytes. It gives one slot for each 64 bytes, whatever the host
//!    does; `error` is set from the first slot that the host failed to give to the last one of the span.
//! 3. Slots come without `ready`. Words of payload have one, for a client that needs a cycle now and then; the client has room for
//!    them all, so that it holds no other client back for longer than that.
//! 4. Words of payload keep the lanes of their address. A span that fails may have fewer words; its last one has `last` and
//!    `error`. A span that the host answers short without an error has fewer words, too: the client counts them.
//! 5. A word for `atomics` has 8 bytes at a multiple of 8, and comes without `ready`, with `error` if the host did not give it.
//! 6. `in_flight` counts spans.
//! 7. Addresses of `payload_read` and `atomics_read` may be in pages (see [`translate`](crate::translate)); those of rings and commands
//!    are device addresses, all 64 bits.
//! 8. A span of which the host does not answer a piece within `limit` ends with `error`, like one that fails. The tag of that piece
//!    rests until the answer has come, however late: then the answer is dropped, and the tag is used again.
//!
//! Refuses what [`ReadEngine`] refuses. Spans of no bytes are not allowed. Design 3.1.
use crate::arrivals::ReadWord;
use crate::read_demux::{CLIENT_BITS, COOKIE_BITS, Origin, ReadDemux, SLOT_CLIENTS, WORD_CLIENT, cookie_of};
use crate::read_engine::{HostRead, ReadEngine, ReadRequest};
use crate::translate::{Access, Translate};
use rnic_blocks::memory::Storage;
use rnic_blocks::stream::{
    Arbiter, Beat, RegisterSlice, Span, Splitter, StreamRx, StreamTx, ValidRx, ValidTx,
};
use rnic_kernel::prelude::*;
use rnic_messages::host::{HostSpan, HostWord, Slot};
use rnic_messages::pool::LEVEL_BITS;
use rnic_messages::protect::PageEntryWrite;
use rnic_messages::setup::{InFlight, in_flight_after};
use rnic_messages::sizes::LENGTH_BITS;
use rnic_messages::sizes::{HOST_LIMIT_BITS, SPAN_BITS};

/// Number of the client that fetches send WQEs.
const SEND_QUEUES: u64 = 0;
/// Number of the client that fetches receive WQEs.
const RECEIVE_QUEUES: u64 = 1;
/// Number of the client that fetches commands.
const ADMIN: u64 = 2;
/// Number of the client that gathers payload.
const PAYLOAD: u64 = SLOT_CLIENTS as u64;
/// No read crosses a multiple of 512 bytes.
const BOUNDARY: usize = LENGTH_BITS - 1;
/// Bits of a piece besides its address.
const REST: usize = LENGTH_BITS + COOKIE_BITS;

/// Counters of the host reader: each bit is high for one cycle for each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct HostReadCounts {
    /// A read was requested from the host.
    pub host_reads: Bit,
    /// The host failed to answer a read, or did not in time.
    pub host_read_errors: Bit,
}

/// Levels of the pools of the host reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct HostReadPools {
    /// Tags in use, those of reads that were given up aside.
    pub tags: Bits<LEVEL_BITS>,
    /// Words reserved for answers.
    pub words: Bits<LEVEL_BITS>,
    /// Tags of reads that were given up.
    pub late_tags: Bits<LEVEL_BITS>,
}

/// A span and the client that reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Order {
    span: HostSpan,
    client: Bits<CLIENT_BITS>,
}

/// Addresses of payload and of atomics' words may be in pages; these clients have the numbers after those that get slots.
#[kernel]
fn may_be_paged(client: Bits<CLIENT_BITS>) -> Bit {
    client >= PAYLOAD
}

/// What the answer of a piece is for: of a word, its place in 64 bytes; of slots, their number less one.
#[kernel]
fn origin_of_piece(
    client: Bits<CLIENT_BITS>,
    address: Bits<64>,
    length: Bits<LENGTH_BITS>,
    is_final: Bit,
) -> Origin {
    Origin {
        client,
        is_final,
        last_slot: if client == WORD_CLIENT { address.get_bits::<3>(3) } else { length.get_bits::<3>(6) - 1 },
    }
}

/// Reads with up to `2^TAG` tags and room for `2^CHUNK` words; parameters as those of [`ReadEngine`].
#[clocked(reset = "forgets all spans. The host must have answered, or never answer, those before")]
#[derive(LogicBlock, Registers, Construct)]
pub struct HostReader<
    const DATA: usize,
    const BYTES: usize,
    const WORD: usize,
    const TAG: usize,
    const TAGS: usize,
    const CHUNK: usize,
    const CHUNKS: usize,
> {
    /// From `wqe_fetch` of the requester: send WQEs. `ready` of all five clients is combinational.
    pub sq_read: StreamRx<HostSpan>,
    /// To `wqe_fetch`: 64 bytes of send WQEs; registered.
    pub sq_slot: ValidTx<Slot>,
    /// From `rq_prefetch` of the responder: receive WQEs.
    pub rq_read: StreamRx<HostSpan>,
    /// To `rq_prefetch`: a receive WQE; registered.
    pub rq_slot: ValidTx<Slot>,
    /// From the admin queue: commands, and lists of pages.
    pub admin_read: StreamRx<HostSpan>,
    /// To the admin queue; registered.
    pub admin_slot: ValidTx<Slot>,
    /// From gather: payload to be sent.
    pub payload_read: StreamRx<HostSpan>,
    /// To gather; `last` ends a span. A function of registers.
    pub payload: StreamTx<Beat<DATA, BYTES>>,
    /// From atomics: words of 8 bytes.
    pub atomics_read: StreamRx<HostSpan>,
    /// To atomics; registered.
    pub atomics_word: ValidTx<HostWord>,

    /// From control: a page table entry.
    pub page_write: ValidRx<PageEntryWrite>,

    /// To the host; registered.
    pub to_host: StreamTx<HostRead<TAG>>,
    /// From the host: a word of an answer.
    pub from_host: ValidRx<ReadWord<DATA, BYTES, TAG>>,
    /// The host sent a word that no request waits for: an error of the device; registered.
    pub is_unexpected: Signal<Out, Bit>,

    /// Register `host_limit`: time after which a read is given up, in units of 1024 cycles; zero for none.
    pub limit: Signal<In, Bits<HOST_LIMIT_BITS>>,
    /// The time of this cycle does not count: the card may make no requests.
    pub pauses: Signal<In, Bit>,
    /// Requests that were given up, and that the host may still answer; registered.
    pub quarantined: Signal<Out, Bits<TAGS>>,
    /// They have half of all tags, or more: an error of the device; a function of registers.
    pub has_lost_half: Signal<Out, Bit>,

    /// Requests that the host has not answered, or whose answer has not left, those that were given up aside; a function of
    /// registers.
    pub reads_in_flight: Signal<Out, Bits<TAGS>>,
    /// Spans taken, and spans answered to their end; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// Counters; registered.
    pub counts: Signal<Out, HostReadCounts>,
    /// Levels of pools; registered.
    pub pools: Signal<Out, HostReadPools>,

    arbiter: Arbiter<Order, 5>,
    chosen: RegisterSlice<Order>,
    splitter: Splitter<BOUNDARY, LENGTH_BITS>,
    client: DFF<Bits<CLIENT_BITS>>,
    pieces: RegisterSlice<Access<REST>>,
    translate: Translate<REST>,
    #[init(ReadEngine::new(Storage::Block))]
    engine: ReadEngine<DATA, BYTES, WORD, TAG, TAGS, CHUNK, CHUNKS, COOKIE_BITS>,
    demux: ReadDemux<DATA, BYTES>,
    flight: Reg<InFlight>,
    counted: Reg<HostReadCounts>,
    pools_held: DFF<HostReadPools>,
}

impl<
    const DATA: usize,
    const BYTES: usize,
    const WORD: usize,
    const TAG: usize,
    const TAGS: usize,
    const CHUNK: usize,
    const CHUNKS: usize,
> Logic for HostReader<DATA, BYTES, WORD, TAG, TAGS, CHUNK, CHUNKS>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // The arbiter changes clients between spans only.
        self.arbiter.rx[0].beat.next = Order { span: self.sq_read.beat.val(), client: bits(SEND_QUEUES) };
        self.arbiter.rx[0].valid.next = self.sq_read.valid.val();
        self.sq_read.ready.next = self.arbiter.rx[0].ready.val();
        self.arbiter.rx[1].beat.next = Order { span: self.rq_read.beat.val(), client: bits(RECEIVE_QUEUES) };
        self.arbiter.rx[1].valid.next = self.rq_read.valid.val();
        self.rq_read.ready.next = self.arbiter.rx[1].ready.val();
        self.arbiter.rx[2].beat.next = Order { span: self.admin_read.beat.val(), client: bits(ADMIN) };
        self.arbiter.rx[2].valid.next = self.admin_read.valid.val();
        self.admin_read.ready.next = self.arbiter.rx[2].ready.val();
        self.arbiter.rx[3].beat.next = Order { span: self.payload_read.beat.val(), client: bits(PAYLOAD) };
        self.arbiter.rx[3].valid.next = self.payload_read.valid.val();
        self.payload_read.ready.next = self.arbiter.rx[3].ready.val();
        self.arbiter.rx[4].beat.next =
            Order { span: self.atomics_read.beat.val(), client: bits(WORD_CLIENT) };
        self.arbiter.rx[4].valid.next = self.atomics_read.valid.val();
        self.atomics_read.ready.next = self.arbiter.rx[4].ready.val();
        self.arbiter.last.next = bits(31);
        StreamTx::join(&mut self.arbiter.tx, &mut self.chosen.rx);

        let order = self.chosen.tx.beat.val();
        self.splitter.rx.beat.next =
            Span { address: order.span.address, length: bit_cast::<32, SPAN_BITS>(order.span.length) };
        self.splitter.rx.valid.next = self.chosen.tx.valid.val();
        self.chosen.tx.ready.next = self.splitter.rx.ready.val();
        let enters = self.chosen.tx.valid.val() && self.splitter.rx.ready.val();
        if enters {
            self.client.d.next = order.client;
        }

        let piece = self.splitter.tx.beat.val();
        let client = self.client.q.val();
        let origin = origin_of_piece(client, piece.address, piece.length, piece.last);
        self.pieces.rx.beat.next = Access::<REST> {
            address: piece.address,
            is_payload: may_be_paged(client),
            rest: cat!(cookie_of(origin), piece.length),
        };
        self.pieces.rx.valid.next = self.splitter.tx.valid.val();
        self.splitter.tx.ready.next = self.pieces.rx.ready.val();
        ValidRx::link(&mut self.page_write, &mut self.translate.page_write);
        StreamTx::join(&mut self.pieces.tx, &mut self.translate.rx);
        let translated = self.translate.tx.beat.val();
        self.engine.rx.valid.next = self.translate.tx.valid.val();
        self.translate.tx.ready.next = self.engine.rx.ready.val();
        self.engine.rx.beat.next = ReadRequest::<COOKIE_BITS> {
            address: translated.address,
            length: translated.rest.get_bits::<LENGTH_BITS>(0),
            cookie: translated.rest.get_bits::<COOKIE_BITS>(LENGTH_BITS),
        };

        StreamTx::link(&mut self.to_host, &mut self.engine.to_host);
        ValidRx::link(&mut self.from_host, &mut self.engine.from_host);
        self.is_unexpected.next = self.engine.is_unexpected.val();
        StreamTx::join(&mut self.engine.tx, &mut self.demux.from_engine);

        let slot = self.demux.slot.val();
        let slot_valid = self.demux.slot_valid.val();
        self.sq_slot.offer(slot_valid.get_bit(0), slot);
        self.rq_slot.offer(slot_valid.get_bit(1), slot);
        self.admin_slot.offer(slot_valid.get_bit(2), slot);
        StreamTx::link(&mut self.payload, &mut self.demux.payload);
        ValidTx::link(&mut self.atomics_word, &mut self.demux.word);

        let enters = self.arbiter.tx.valid.val() && self.chosen.rx.ready.val();
        self.flight.d.next = in_flight_after(self.flight.q.val(), enters, self.demux.ends.val());
        self.in_flight.next = self.flight.q.val();
        self.engine.limit.next = self.limit.val();
        self.engine.pauses.next = self.pauses.val();
        self.quarantined.next = self.engine.quarantined.val();
        self.has_lost_half.next = self.engine.has_lost_half.val();
        self.reads_in_flight.next = self.engine.tags_used.val();
        let answer = self.engine.tx.beat.val();
        let moves = self.engine.tx.valid.val() && self.demux.from_engine.ready.val();
        self.counted.d.next = HostReadCounts {
            host_reads: self.engine.to_host.valid.val() && self.to_host.ready.val(),
            host_read_errors: moves && answer.last && answer.error,
        };
        self.counts.next = self.counted.q.val();
        self.pools_held.d.next = HostReadPools {
            tags: bit_cast::<LEVEL_BITS, TAGS>(self.engine.tags_used.val()),
            words: bit_cast::<LEVEL_BITS, CHUNKS>(self.engine.chunks_used.val()),
            late_tags: bit_cast::<LEVEL_BITS, TAGS>(self.engine.quarantined.val()),
        };
        self.pools.next = self.pools_held.q.val();
    }
}

#[cfg(test)]
mod tests;
