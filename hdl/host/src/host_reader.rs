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
//! piece of 512 bytes and one word of the datapath a cycle; a span of one piece takes one cycle. With 256 tags and
//! 64 KiB at 512 bits: 1837 LUTs with those used as memory, 2162 FF, 7.5 RAMB36, 3 URAM, depth 11.
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
use crate::chunk_buffer::ReadBeat;
use crate::read_demux::{CLIENT_BITS, COOKIE_BITS, Origin, ReadDemux, SLOT_CLIENTS, WORD_CLIENT, cookie_of};
use crate::read_engine::{HostRead, ReadEngine, ReadRequest};
use crate::translate::{Access, Translate};
use rnic_blocks::memory::Storage;
use rnic_blocks::stream::{Arbiter, Beat, RegisterSlice, Span, Splitter, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{HostSpan, HostWord, Slot};
use rnic_messages::protect::PageEntryWrite;
use rnic_messages::setup::{InFlight, in_flight_after};
use rnic_messages::sizes::LENGTH_BITS;
use rnic_messages::sizes::{READ_LIMIT_BITS, SPAN_BITS};

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
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all spans. The host must have answered, or never answer, those before.
    pub reset: Signal<In, Bit>,

    /// From `wqe_fetch` of the requester: send WQEs. `ready` of all five clients is combinational.
    pub sq_read: StreamRx<HostSpan>,
    /// To `wqe_fetch`: 64 bytes of send WQEs; registered.
    pub sq_slot: Signal<Out, Slot>,
    /// `sq_slot` is valid in this cycle; registered.
    pub sq_slot_valid: Signal<Out, Bit>,
    /// From `rq_prefetch` of the responder: receive WQEs.
    pub rq_read: StreamRx<HostSpan>,
    /// To `rq_prefetch`: a receive WQE; registered.
    pub rq_slot: Signal<Out, Slot>,
    /// `rq_slot` is valid in this cycle; registered.
    pub rq_slot_valid: Signal<Out, Bit>,
    /// From the admin queue: commands, and lists of pages.
    pub admin_read: StreamRx<HostSpan>,
    /// To the admin queue; registered.
    pub admin_slot: Signal<Out, Slot>,
    /// `admin_slot` is valid in this cycle; registered.
    pub admin_slot_valid: Signal<Out, Bit>,
    /// From gather: payload to be sent.
    pub payload_read: StreamRx<HostSpan>,
    /// To gather; `last` ends a span. A function of registers.
    pub payload: StreamTx<Beat<DATA, BYTES>>,
    /// From atomics: words of 8 bytes.
    pub atomics_read: StreamRx<HostSpan>,
    /// To atomics; registered.
    pub atomics_word: Signal<Out, HostWord>,
    /// `atomics_word` is valid in this cycle; registered.
    pub atomics_word_valid: Signal<Out, Bit>,

    /// From control: a page table entry.
    pub page_write: Signal<In, PageEntryWrite>,
    /// `page_write` is valid in this cycle.
    pub page_write_valid: Signal<In, Bit>,

    /// To the host; registered.
    pub to_host: StreamTx<HostRead<TAG>>,
    /// From the host: a word of an answer.
    pub from_host: Signal<In, ReadWord<DATA, BYTES, TAG>>,
    /// `from_host` is valid in this cycle; it cannot be held back.
    pub from_host_valid: Signal<In, Bit>,
    /// The host sent a word that no request waits for: an error of the device; registered.
    pub is_unexpected: Signal<Out, Bit>,

    /// Register `host_read_limit`: time after which a read is given up, in units of 1024 cycles; zero for none.
    pub limit: Signal<In, Bits<READ_LIMIT_BITS>>,
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
        StreamTx::<Order>::join(&mut self.arbiter.tx, &mut self.chosen.rx);

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
        self.translate.page_write.next = self.page_write.val();
        self.translate.page_write_valid.next = self.page_write_valid.val();
        StreamTx::<Access<REST>>::join(&mut self.pieces.tx, &mut self.translate.rx);
        let translated = self.translate.tx.beat.val();
        self.engine.rx.valid.next = self.translate.tx.valid.val();
        self.translate.tx.ready.next = self.engine.rx.ready.val();
        self.engine.rx.beat.next = ReadRequest::<COOKIE_BITS> {
            address: translated.address,
            length: translated.rest.get_bits::<LENGTH_BITS>(0),
            cookie: translated.rest.get_bits::<COOKIE_BITS>(LENGTH_BITS),
        };

        StreamTx::<HostRead<TAG>>::link(&mut self.to_host, &mut self.engine.to_host);
        self.engine.from_host.next = self.from_host.val();
        self.engine.from_host_valid.next = self.from_host_valid.val();
        self.is_unexpected.next = self.engine.is_unexpected.val();
        StreamTx::<ReadBeat<DATA, BYTES, COOKIE_BITS>>::join(
            &mut self.engine.tx,
            &mut self.demux.from_engine,
        );

        let slot = self.demux.slot.val();
        let slot_valid = self.demux.slot_valid.val();
        self.sq_slot.next = slot;
        self.sq_slot_valid.next = slot_valid.get_bit(0);
        self.rq_slot.next = slot;
        self.rq_slot_valid.next = slot_valid.get_bit(1);
        self.admin_slot.next = slot;
        self.admin_slot_valid.next = slot_valid.get_bit(2);
        StreamTx::<Beat<DATA, BYTES>>::link(&mut self.payload, &mut self.demux.payload);
        self.atomics_word.next = self.demux.word.val();
        self.atomics_word_valid.next = self.demux.word_valid.val();

        let enters = self.arbiter.tx.valid.val() && self.chosen.rx.ready.val();
        self.flight.d.next = in_flight_after(self.flight.q.val(), enters, self.demux.ends.val());
        self.in_flight.next = self.flight.q.val();
        self.engine.limit.next = self.limit.val();
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fault, ReadHost, bytes_of, generates, memory_bytes};
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, random};

    /// Eight tags, and room for two answers of 512 bytes.
    type Narrow = HostReader<64, 4, 6, 3, 4, 7, 8>;
    type Wide = HostReader<512, 7, 3, 3, 4, 4, 5>;

    /// Reads of pages whose number ends in 5 or 6 fail, one way or the other.
    fn fault(address: u64) -> Fault {
        match address >> 9 & 7 {
            5 => Fault::Error,
            6 => Fault::Short,
            _ => Fault::None,
        }
    }

    fn fails(address: u64) -> bool {
        fault(address) != Fault::None
    }

    fn span(address: u64, length: u64) -> HostSpan {
        HostSpan { address: bits(address), length: bits(length) }
    }

    fn spans(client: usize, count: usize, random: &mut Random) -> Vec<HostSpan> {
        let one = |random: &mut Random| {
            let address = random.random_range(0..1u64 << 40);
            if client == WORD_CLIENT as usize {
                return span(address & !7, 8);
            }
            if client == PAYLOAD as usize {
                let length = *[1, 64, random.random_range(1..=4096), random.random_range(1..200)]
                    .choose(random)
                    .unwrap();
                return span(address, length);
            }
            let slots = *[1, 8, random.random_range(1..=20)].choose(random).unwrap();
            span(address & !63, slots * 64)
        };
        (0..count).map(|_| one(random)).collect()
    }

    /// Where the pieces of a span begin and end.
    fn pieces(span: &HostSpan) -> Vec<(u64, u64)> {
        let (mut address, end) = (span.address.to_u64(), span.address.to_u64() + span.length.to_u64());
        let mut pieces = Vec::new();
        while address < end {
            let next = ((address | 511) + 1).min(end);
            pieces.push((address, next));
            address = next;
        }
        pieces
    }

    /// What each client has received since the start.
    #[derive(Default)]
    struct Received {
        slots: [Vec<Slot>; SLOT_CLIENTS],
        words: Vec<(Vec<u8>, u64, bool, bool)>,
        atomics: Vec<HostWord>,
    }

    fn check_atomics(spans: &[HostSpan], words: &[HostWord]) -> usize {
        assert_eq!(spans.len(), words.len(), "a word for each");
        let mut errors = 0;
        for (span, word) in spans.iter().zip(words) {
            let address = span.address.to_u64();
            // An answer of one word cannot be shorter.
            assert_eq!(word.error, fault(address) == Fault::Error, "{span:?}");
            if !word.error {
                assert_eq!(word.data.to_u64().to_le_bytes(), memory_bytes(address, 8)[..], "{span:?}");
            }
            errors += usize::from(word.error);
        }
        errors
    }

    fn check_slots(spans: &[HostSpan], slots: &[Slot]) -> usize {
        let (mut slots, mut errors) = (slots.iter(), 0);
        for span in spans {
            let pieces = pieces(span);
            let mut may_have_failed = false;
            for (index, &(begin, end)) in pieces.iter().enumerate() {
                may_have_failed |= fails(begin);
                for address in (begin..end).step_by(64) {
                    let slot = slots.next().expect("as many slots as were asked for");
                    let is_last = index + 1 == pieces.len() && address + 64 == end;
                    assert_eq!(slot.last, is_last, "{span:?} at {address:#x}");
                    assert!(may_have_failed || !slot.error, "{span:?} at {address:#x} is good");
                    assert!(slot.error || bytes_of(slot.data) == memory_bytes(address, 64));
                    if slot.error || (end == address + 64 && fails(begin) && fault(begin) == Fault::Error) {
                        assert!(slot.error, "the last slot of a failed piece says so");
                    }
                    errors += usize::from(slot.error);
                }
            }
        }
        assert!(slots.next().is_none(), "no slot that was not asked for");
        errors
    }

    fn check_payload<const DATA: usize>(spans: &[HostSpan], words: &[(Vec<u8>, u64, bool, bool)]) -> usize {
        let lanes = (DATA / 8) as u64;
        let (mut words, mut failures) = (words.iter(), 0);
        for span in spans {
            let (mut address, end) = (span.address.to_u64(), span.address.to_u64() + span.length.to_u64());
            let may_fail = pieces(span).iter().any(|&(begin, _)| fails(begin));
            let must_say_so = pieces(span).iter().any(|&(begin, _)| fault(begin) == Fault::Error);
            loop {
                let (data, bytes, last, error) = words.next().expect("a word for every span");
                if may_fail {
                    assert!(!last || *error == must_say_so, "{span:?}");
                    failures += usize::from(*last && *error);
                    if *last {
                        break;
                    }
                    continue;
                }
                assert!(!error);
                let next = ((address / lanes + 1) * lanes).min(end);
                let lane = (address % lanes) as usize;
                assert_eq!(*bytes, next - address, "{span:?} at {address:#x}");
                let count = *bytes as usize;
                assert_eq!(data[lane..lane + count], memory_bytes(address, count), "{span:?}");
                assert_eq!(*last, next == end, "{span:?} at {address:#x}");
                address = next;
                if *last {
                    break;
                }
            }
        }
        assert!(words.next().is_none(), "no word that was not asked for");
        failures
    }

    /// Runs five clients that ask for much at once, and returns the cycles that it took.
    fn run<
        const DATA: usize,
        const BYTES: usize,
        const WORD: usize,
        const TAG: usize,
        const TAGS: usize,
        const CHUNK: usize,
        const CHUNKS: usize,
    >(
        bench: &mut Bench<HostReader<DATA, BYTES, WORD, TAG, TAGS, CHUNK, CHUNKS>>,
        host: &mut ReadHost<DATA, BYTES, TAG>,
        spans: &[Vec<HostSpan>; 5],
        stalls: Stalls,
        random: &mut Random,
    ) -> (Received, usize) {
        let mut sources = spans.each_ref().map(|spans| Source::showing_next(spans.clone(), stalls));
        let mut host_sink = Sink::new(stalls);
        let mut sink = Sink::new(stalls);
        let mut received = Received::default();
        let total = spans.iter().map(Vec::len).sum::<usize>() as u64;
        let (mut cycles, mut idle, mut reads, mut errors) = (0, 0, 0, 0);
        while idle < 20 {
            assert!(cycles < 60_000, "the reader is stuck; stalls: {stalls:?}");
            let block = &mut bench.block;
            sources[0].drive(&mut block.sq_read, random);
            sources[1].drive(&mut block.rq_read, random);
            sources[2].drive(&mut block.admin_read, random);
            sources[3].drive(&mut block.payload_read, random);
            sources[4].drive(&mut block.atomics_read, random);
            host_sink.drive(&mut block.to_host, random);
            sink.drive(&mut block.payload, random);
            let word = host.word(random);
            block.from_host_valid.next = word.is_some();
            block.from_host.next = word.unwrap_or_default();
            bench.settle();
            let block = &bench.block;
            sources[0].sample(&block.sq_read);
            sources[1].sample(&block.rq_read);
            sources[2].sample(&block.admin_read);
            sources[3].sample(&block.payload_read);
            sources[4].sample(&block.atomics_read);
            if block.atomics_word_valid.val() {
                received.atomics.push(block.atomics_word.val());
            }
            if let Some(read) = host_sink.sample(&block.to_host) {
                host.accept(read, random);
            }
            if let Some(beat) = sink.sample(&block.payload) {
                received.words.push((bytes_of(beat.data), beat.bytes.to_u64(), beat.last, beat.error));
            }
            let slots = [
                (block.sq_slot_valid.val(), block.sq_slot.val()),
                (block.rq_slot_valid.val(), block.rq_slot.val()),
                (block.admin_slot_valid.val(), block.admin_slot.val()),
            ];
            for (client, (valid, slot)) in slots.into_iter().enumerate() {
                if valid {
                    received.slots[client].push(slot);
                }
            }
            reads += usize::from(block.counts.val().host_reads);
            errors += usize::from(block.counts.val().host_read_errors);
            assert!(!block.is_unexpected.val());
            let in_flight = block.in_flight.val();
            bench.tick();
            let is_done = in_flight.left == total && in_flight.entered == total;
            idle = if is_done { idle + 1 } else { 0 };
            cycles += 1;
        }
        assert_eq!(bench.block.reads_in_flight.val(), bits(0));
        assert_eq!((reads, errors), (host.requests, host.errors), "counters");
        (received, cycles - idle)
    }

    /// A bench around a reader of block RAM.
    macro_rules! bench {
        ($reader:ty) => {
            Bench::clocked(<$reader>::default(), |block| &mut block.clock)
        };
    }

    macro_rules! five_clients {
        ($reader:ty, $data:literal, $count:literal) => {
            let mut random = random();
            let (mut errors, mut failures, mut words) = (0, 0, 0);
            for stalls in Stalls::ALL {
                let mut bench = bench!($reader).in_lock_step();
                let mut host = ReadHost::new(0..=60, true, fault);
                let spans = [0, 1, 2, 3, 4].map(|client| spans(client, $count, &mut random));
                let (received, _) = run(&mut bench, &mut host, &spans, stalls, &mut random);
                for client in 0..SLOT_CLIENTS {
                    errors += check_slots(&spans[client], &received.slots[client]);
                }
                failures += check_payload::<$data>(&spans[3], &received.words);
                words += check_atomics(&spans[4], &received.atomics);
            }
            assert!(errors > 20 && failures > 2, "{errors} slots and {failures} spans failed");
            assert!(words > 2, "{words} words failed");
        };
    }

    #[test]
    fn pieces_tell_their_slots_and_words_their_place() {
        for (client, address, length, last_slot, is_paged) in [
            (SEND_QUEUES, 0x1c0, 64, 0, false),
            (RECEIVE_QUEUES, 0, 128, 1, false),
            (ADMIN, 0, 512, 7, false),
            (WORD_CLIENT, 0x1000, 8, 0, true),
            (WORD_CLIENT, 0x1038, 8, 7, true),
        ] {
            for is_final in [false, true] {
                let origin = origin_of_piece(bits(client), bits(address), bits(length), is_final);
                assert_eq!(origin, Origin { client: bits(client), is_final, last_slot: bits(last_slot) });
            }
            assert_eq!(may_be_paged(bits(client)), is_paged);
        }
        assert!(may_be_paged(bits(PAYLOAD)));
    }

    #[test]
    fn five_clients_get_what_they_asked_for_at_64_bits() {
        five_clients!(Narrow, 64, 12);
    }

    #[test]
    fn five_clients_get_what_they_asked_for_at_512_bits() {
        five_clients!(Wide, 512, 40);
    }

    #[test]
    fn small_spans_are_read_at_one_a_cycle() {
        let mut random = random();
        let mut bench = bench!(HostReader<512, 7, 3, 8, 9, 10, 11>);
        (0..300).for_each(|_| bench.tick());
        let mut host = ReadHost::new(100..=100, false, |_| Fault::None);
        let work: Vec<_> = (0..400).map(|index| span(index * 64, 64)).collect();
        let payload: Vec<_> = (0..400).map(|index| span(index * 4096 + 64, 64)).collect();
        let spans = [work, Vec::new(), Vec::new(), payload, Vec::new()];
        let (_, cycles) = run(&mut bench, &mut host, &spans, Stalls::None, &mut random);
        // 8 to the host, its 100, and 5 to the slot, which is counted a cycle later.
        assert!((800 + 108..=800 + 118).contains(&cycles), "{cycles}");
    }

    #[test]
    fn latency_is_as_the_header_says() {
        let mut bench = Bench::clocked(Wide::default(), |block| &mut block.clock);
        // No request is issued before all tags are in their pool.
        (0..16).for_each(|_| bench.tick());
        for (is_payload, from_word) in [(false, 5), (true, 4)] {
            let (mut request, mut answer) = (None, None);
            for cycle in 0..40 {
                let block = &mut bench.block;
                block.sq_read.beat.next = span(0, 64);
                block.sq_read.valid.next = cycle == 0 && !is_payload;
                block.payload_read.beat.next = span(0, 64);
                block.payload_read.valid.next = cycle == 0 && is_payload;
                block.payload.ready.next = true;
                block.to_host.ready.next = true;
                block.from_host_valid.next = cycle == 20;
                bench.settle();
                let block = &mut bench.block;
                if block.to_host.valid.val() {
                    request = Some(cycle);
                    block.from_host.next = ReadWord {
                        bytes: bits(64),
                        last: true,
                        tag: block.to_host.beat.val().tag,
                        ..Default::default()
                    };
                }
                if block.sq_slot_valid.val() || block.payload.valid.val() {
                    answer = Some(cycle);
                }
                bench.tick();
            }
            assert_eq!((request, answer), (Some(8), Some(20 + from_word)), "payload: {is_payload}");
        }
    }

    /// Inputs that no connected block would give, and resets at any time.
    #[test]
    fn any_input_does_the_same_in_verilog() {
        let mut random = random();
        let mut bench = bench!(Wide).in_lock_step();
        for _ in 0..1500 {
            let block = &mut bench.block;
            block.reset.next = random.random_bool(0.01);
            for port in [
                &mut block.sq_read,
                &mut block.rq_read,
                &mut block.admin_read,
                &mut block.payload_read,
                &mut block.atomics_read,
            ] {
                port.valid.next = random.random_bool(0.3);
                port.beat.next = span(random.random(), random.random_range(0..8192));
            }
            block.payload.ready.next = random.random_bool(0.8);
            block.to_host.ready.next = random.random_bool(0.8);
            block.from_host_valid.next = random.random();
            block.from_host.next = ReadWord {
                data: Stimulus::sample(&mut random),
                bytes: Stimulus::sample(&mut random),
                last: random.random(),
                error: random.random_bool(0.1),
                tag: Stimulus::sample(&mut random),
            };
            bench.tick();
        }
    }

    #[test]
    fn every_width_of_the_card_is_generated() {
        generates(HostReader::<128, 5, 5, 8, 9, 12, 13>::default());
        generates(HostReader::<256, 6, 4, 8, 9, 11, 12>::default());
    }
}
