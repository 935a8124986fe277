//! Chunk buffer: holds the answers to reads, which arrive in any order, and gives them out in the order of the requests.
//!
//! A host answers reads when it can: one answer overtakes another, and words of several are mixed. The host must never be
//! stalled, since completions that wait on the link can deadlock it. So a read is issued only when room for its whole answer
//! is reserved, and the stages after this one see answers in order and in one piece.
//!
//! A chunk is one word of the datapath. A request of 64 bytes takes one or two chunks, one of 512 bytes as many as it
//! touches: nothing is lost to rounding. Since answers leave in the order of their requests, chunks and tags are freed
//! in that order too. So two [`Ring`]s do all the bookkeeping, without a free list or fragments.
//!
//! A host that never answers the oldest read would hold all others back for ever. So that read is given up when `limit` is over, and
//! ends with an error; its tag goes into [`Quarantine`], and its turns of the ring are passed over until the answer has come.
//!
//! ```text
//!            ┌──────────────────────────────────────────────────────────────────┐
//!  reserve, ─┤ tags (Ring), chunks (Ring)                                       │
//!  cookie    │    │ place               │ order                                 │
//!  fits, tag ┤    v                     v                                       │
//!            │ ┌──────────┐ progress ┌────────┐                                 │
//!            │ │ arrivals ├─────────>│ oldest │──> release                      │
//!            │ │          │          └───┬────┘                                 │
//!            │ │          │    ┌────────┐│ fetch  ┌──────┐                      │
//!  arrival ──┼>│          ├───>│ memory ├┴───────>│ head ├──────────────────────┼─> tx
//!            │ └──────────┘    └────────┘         └──────┘                      │
//!            └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Tags 0 and 1 are reserved for two words each; tag 1 is answered first, mixed with tag 0:
//! ```text
#![doc = include_str!("waves/chunk_buffer.txt")]
//! ```
//!
//! Latency 4 cycles from a word of the oldest request to `tx`: look up its chunk, write it, see its progress, fetch it.
//! Words leave before their answer is complete. One word a cycle in and out, also when each word is an answer. After
//! reset, `fits` is low for `2^TAG` cycles.
//!
//! 1. Every word is taken in the cycle in which it arrives.
//! 2. Answers leave whole and in the order of their reservations.
//! 3. Words leave unchanged, in the same lanes. `error` is set from the word that has it to the last word of the answer.
//! 4. An answer has at most `last_index + 1` words: that word ends it, with an error if the host marks it as not the last.
//! 5. Words for a tag that waits for none change nothing; `is_unexpected` reports them.
//! 6. Tag and chunks are freed when the last word of the answer moves to the head. When all answers have left,
//!    `tags_used` and `chunks_used` are zero.
//! 7. A read whose answer is not complete when it is the oldest, and was reserved `limit` units of [`LIMIT_CYCLES`] ago, ends with
//!    one more beat, which has `error` and no bytes of meaning. It ends at most two units later, once no word has arrived for
//!    four cycles. The words of its late answer, if that comes, change nothing.
//! 8. A tag in quarantine is reserved by no read. One cycle is lost each time that the ring comes to it.
//!
//! Refuses widths that contradict each other, more than 8 tag bits, and a memory of less than one answer of 512 bytes or of
//! more than 128 (64 KiB). Design 3.1.
use super::arrivals::{Arrivals, Place, Progress, ReadWord};
use super::quarantine::Quarantine;
use super::ring::Ring;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Beat, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::READ_LIMIT_BITS;

/// Cycles of a unit of `limit`.
pub const LIMIT_CYCLES: u64 = 1 << UNIT_BITS;
const UNIT_BITS: usize = 10;
/// Bits of a time in these units: twice the longest limit.
const TIME_BITS: usize = READ_LIMIT_BITS + 1;
const CLOCK_BITS: usize = UNIT_BITS + TIME_BITS;

/// A piece of an answer to the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadBeat<const DATA: usize, const BYTES: usize, const COOKIE: usize> {
    /// Bytes of host memory, in the lanes in which the host gave them.
    pub data: Bits<DATA>,
    /// Number of bytes that belong to the request.
    pub bytes: Bits<BYTES>,
    /// The last beat of the answer.
    pub last: Bit,
    /// On the last beat: the read failed, and the answer must not be used.
    pub error: Bit,
    /// The cookie of the request.
    pub cookie: Bits<COOKIE>,
}

/// What is needed of a request, or of a turn that is passed over, when it is the oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Order<const WORD: usize, const CHUNK: usize, const COOKIE: usize> {
    /// Its first chunk.
    first: Bits<CHUNK>,
    /// Index of the last word for which there is a chunk.
    last_index: Bits<WORD>,
    /// The cookie of the request.
    cookie: Bits<COOKIE>,
    /// Lap of the ring of tags in which it was written, which tells it from the one before.
    turn: Bit,
    /// The tag is in quarantine, and there is no request.
    is_void: Bit,
    /// Lap of its place.
    lap: Bit,
    /// Time of the reservation.
    reserved_at: Bits<TIME_BITS>,
}

/// A read that was reserved at a time is overdue; a limit of zero is none.
#[kernel]
fn is_overdue(reserved_at: Bits<TIME_BITS>, now: Bits<TIME_BITS>, limit: Bits<READ_LIMIT_BITS>) -> Bit {
    limit.any() && now - reserved_at > bit_cast::<TIME_BITS, READ_LIMIT_BITS>(limit)
}

/// Room for `2^CHUNK` words in up to `2^TAG` answers.
///
/// `WORD`, the width of an index to the words of 512 bytes, is `10 - BYTES`; `TAGS` and `CHUNKS`, the widths of counts,
/// are `TAG + 1` and `CHUNK + 1`.
#[derive(LogicBlock, Registers, Construct)]
#[require(WORD <= CHUNK && CHUNK <= WORD + 7, "CHUNK is WORD to WORD + 7")]
#[require(CHUNKS == CHUNK + 1)]
#[new(
    /// Makes an empty buffer, whose memory of words is made of `storage`.
    storage: Storage,
)]
pub struct ChunkBuffer<
    const DATA: usize,
    const BYTES: usize,
    const WORD: usize,
    const TAG: usize,
    const TAGS: usize,
    const CHUNK: usize,
    const CHUNKS: usize,
    const COOKIE: usize,
> {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all requests. The host must have answered, or never answer, those before.
    pub reset: Signal<In, Bit>,

    /// From the request stage: index of the last word of the answer.
    pub last_index: Signal<In, Bits<WORD>>,
    /// Returned with every beat of the answer.
    pub cookie: Signal<In, Bits<COOKIE>>,
    /// Reserves a tag and the chunks, if they fit.
    pub reserve: Signal<In, Bit>,
    /// A tag and room for the answer are free; combinational.
    pub fits: Signal<Out, Bit>,
    /// The tag that is reserved next; registered.
    pub tag: Signal<Out, Bits<TAG>>,

    /// From the host: a word of an answer.
    pub arrival: Signal<In, ReadWord<DATA, BYTES, TAG>>,
    /// `arrival` is valid in this cycle; it cannot be held back.
    pub arrival_valid: Signal<In, Bit>,
    /// A word for no request arrived two cycles ago; registered.
    pub is_unexpected: Signal<Out, Bit>,

    /// Time after which a read is given up, in units of [`LIMIT_CYCLES`]; zero for none.
    pub limit: Signal<In, Bits<READ_LIMIT_BITS>>,
    /// Tags whose reads were given up, and whose answers may still come; registered.
    pub quarantined: Signal<Out, Bits<TAGS>>,
    /// They are half of all tags, or more; a function of registers.
    pub has_lost_half: Signal<Out, Bit>,

    /// To the users: answers in order; registered.
    pub tx: StreamTx<ReadBeat<DATA, BYTES, COOKIE>>,

    /// Tags that are reserved, those in quarantine aside; a function of registers.
    pub tags_used: Signal<Out, Bits<TAGS>>,
    /// Chunks that are reserved; a function of registers.
    pub chunks_used: Signal<Out, Bits<CHUNKS>>,

    tags: Ring<TAG, TAGS>,
    chunks: Ring<CHUNK, CHUNKS>,
    arrivals: Arrivals<DATA, BYTES, WORD, TAG, TAGS, CHUNK>,
    quarantine: Quarantine<TAG, TAGS>,
    /// Lap of the last place of each tag.
    #[init(Memory::new(Storage::Distributed))]
    laps: Memory<Bit, TAG>,
    #[init(Memory::new(Storage::Distributed))]
    orders: Memory<Order<WORD, CHUNK, COOKIE>, TAG>,
    #[init(Memory::new(Storage::Distributed))]
    progress: Memory<Progress<WORD>, TAG>,
    #[init(Memory::new(storage))]
    memory: Memory<Beat<DATA, BYTES>, CHUNK>,
    /// The oldest request, below the bit of its lap.
    oldest: Reg<Bits<TAGS>>,
    /// The word of it that leaves next.
    next_index: Reg<Bits<WORD>>,
    head_valid: Reg<Bit>,
    head_cookie: DFF<Bits<COOKIE>>,
    /// The head is the end of a read that was given up.
    head_is_lost: Reg<Bit>,
    clock_cycles: Reg<Bits<CLOCK_BITS>>,
    /// The oldest request is overdue.
    overdue: Reg<Bit>,
    /// A read was given up in the cycle before.
    has_lost: Reg<Bit>,
    /// Words arrived in the three cycles before, the last one in bit 0.
    recent: Reg<Bits<3>>,
}

impl<
    const DATA: usize,
    const BYTES: usize,
    const WORD: usize,
    const TAG: usize,
    const TAGS: usize,
    const CHUNK: usize,
    const CHUNKS: usize,
    const COOKIE: usize,
> Logic for ChunkBuffer<DATA, BYTES, WORD, TAG, TAGS, CHUNK, CHUNKS, COOKIE>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        let last_index = self.last_index.val();
        let position = self.tags.position.val();
        let tag = position.get_bits::<TAG>(0);
        let first = self.chunks.position.val().get_bits::<CHUNK>(0);
        let now = self.clock_cycles.q.val().get_bits::<TIME_BITS>(UNIT_BITS);
        self.clock_cycles.d.next = self.clock_cycles.q.val() + 1;
        // What is known of the next tag is too old in the cycle after a tag has entered.
        let is_clear = self.arrivals.is_clear.val();
        let is_known = is_clear && !self.has_lost.q.val();
        let is_held = self.quarantine.holds_next.val();
        let fits = is_known && !is_held && self.tags.fits.val() && self.chunks.fits.val();
        let reserves = self.reserve.val() && fits;
        let skips = is_known && is_held && self.tags.fits.val();
        let next_tag = select(reserves || skips, tag + 1, tag);
        let swept_tag = self.arrivals.changed_tag.val();
        let lap = !self.laps.read_data.val();
        self.laps.read_enable.next = true;
        self.laps.read_address.next = next_tag;
        self.laps.write_enable.next = reserves || !is_clear;
        self.laps.write_address.next = select(is_clear, tag, swept_tag);
        self.laps.write_data.next = lap && is_clear;
        self.fits.next = fits;
        self.tag.next = tag;
        self.tags.amount.next = bits(1);
        self.tags.reserve.next = reserves || skips;
        self.chunks.amount.next = bit_cast::<CHUNKS, WORD>(last_index) + 1;
        self.chunks.reserve.next = reserves;
        self.arrivals.opens.next = reserves;
        self.arrivals.opened_tag.next = tag;
        self.arrivals.place.next = Place::<WORD, CHUNK> { first, last_index, lap };
        // After reset, all orders are of the lap before the first one.
        self.orders.write_enable.next = reserves || skips || !is_clear;
        self.orders.write_address.next = select(is_clear, tag, swept_tag);
        self.orders.write_data.next = Order::<WORD, CHUNK, COOKIE> {
            first,
            last_index,
            cookie: self.cookie.val(),
            turn: position.get_bit(TAG) || !is_clear,
            is_void: skips,
            lap,
            reserved_at: now,
        };

        self.arrivals.arrival.next = self.arrival.val();
        self.arrivals.arrival_valid.next = self.arrival_valid.val();
        self.is_unexpected.next = self.arrivals.is_unexpected.val();
        self.memory.write_enable.next = self.arrivals.writes.val();
        self.memory.write_address.next = self.arrivals.chunk.val();
        self.memory.write_data.next = self.arrivals.word.val();
        self.progress.write_enable.next = self.arrivals.changes.val();
        self.progress.write_address.next = self.arrivals.changed_tag.val();
        self.progress.write_data.next = self.arrivals.progress.val();

        // The words of the oldest request leave as they arrive. Its lap and that of its progress differ until the first one has.
        let oldest = self.oldest.q.val();
        let next_index = self.next_index.q.val();
        let order = self.orders.read_data.val();
        let seen = self.progress.read_data.val();
        let has_order = is_clear && order.turn == oldest.get_bit(TAG);
        let passes = has_order && order.is_void;
        let is_here = has_order && !order.is_void && seen.lap == order.lap && next_index <= seen.newest;
        let may_fetch = self.tx.ready.val() || !self.head_valid.q.val();
        let fetch = is_here && may_fetch;
        // An answer is given up when all words that have arrived are seen, and none is on its way.
        let is_quiet = !self.recent.q.val().any() && !self.arrival_valid.val();
        let loses = self.overdue.q.val() && is_quiet && !is_here && may_fetch;
        let ends = passes || loses || (fetch && !seen.is_open && next_index == seen.newest);
        let follower = select(ends, oldest + 1, oldest);
        self.orders.read_enable.next = true;
        self.orders.read_address.next = follower.get_bits::<TAG>(0);
        self.progress.read_enable.next = true;
        self.progress.read_address.next = follower.get_bits::<TAG>(0);
        self.memory.read_enable.next = fetch;
        self.memory.read_address.next = order.first + bit_cast::<CHUNK, WORD>(next_index);
        self.oldest.d.next = follower;
        self.overdue.d.next =
            has_order && !order.is_void && !ends && is_overdue(order.reserved_at, now, self.limit.val());
        self.recent.d.next = cat!(self.recent.q.val().get_bits::<2>(0), self.arrival_valid.val());
        self.has_lost.d.next = loses;
        self.quarantine.clears.next = !is_clear;
        self.quarantine.cleared_tag.next = swept_tag;
        self.quarantine.enters.next = loses;
        self.quarantine.entered_tag.next = oldest.get_bits::<TAG>(0);
        self.quarantine.leaves.next = self.arrivals.closes.val() && self.quarantine.holds_arrival.val();
        self.quarantine.left_tag.next = self.arrivals.changed_tag.val();
        self.quarantine.arrival_tag.next = self.arrival.val().tag;
        self.quarantine.next_tag.next = next_tag;
        self.arrivals.is_quarantined.next = self.quarantine.holds_arrival.val();
        self.quarantined.next = self.quarantine.count.val();
        self.has_lost_half.next = self.quarantine.has_half.val();
        if fetch || loses {
            self.head_is_lost.d.next = loses;
            self.next_index.d.next = select(ends, bits::<WORD>(0), next_index + 1);
            self.head_cookie.d.next = order.cookie;
        }
        self.head_valid.d.next = fetch || loses || (self.head_valid.q.val() && !self.tx.ready.val());
        self.tags.returns.next = ends;
        self.tags.returned.next = bits(1);
        self.chunks.returns.next = ends && !passes;
        self.chunks.returned.next = bit_cast::<CHUNKS, WORD>(order.last_index) + 1;

        let head = self.memory.read_data.val();
        self.tx.valid.next = self.head_valid.q.val();
        self.tx.beat.next = ReadBeat::<DATA, BYTES, COOKIE> {
            data: head.data,
            bytes: head.bytes,
            last: head.last || self.head_is_lost.q.val(),
            error: head.error || self.head_is_lost.q.val(),
            cookie: self.head_cookie.q.val(),
        };
        self.tags_used.next = self.tags.level.val();
        self.chunks_used.next = self.chunks.level.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Stimulus, Waves, random};
    use std::collections::VecDeque;

    type Small = ChunkBuffer<512, 7, 3, 2, 3, 3, 4, 8>;

    fn bench() -> Bench<Small> {
        Bench::clocked(Small::new(Storage::Block), |block| &mut block.clock)
    }

    /// Lets four cycles pass, in which the buffer clears the progress of its four tags.
    fn cleared(mut bench: Bench<Small>) -> Bench<Small> {
        (0..4).for_each(|_| bench.tick());
        bench
    }

    fn reserve(bench: &mut Bench<Small>, last_index: u64, cookie: u64) {
        bench.block.reserve.next = true;
        bench.block.last_index.next = bits(last_index);
        bench.block.cookie.next = bits(cookie);
    }

    fn answer(bench: &mut Bench<Small>, tag: u64, data: u64, last: bool) {
        bench.block.arrival_valid.next = true;
        bench.block.arrival.next =
            ReadWord { data: bits(data), bytes: bits(64), last, error: false, tag: bits(tag) };
    }

    /// Lets cycles pass and returns data and marks of the beats that leave.
    fn drain(bench: &mut Bench<Small>) -> Vec<(u64, bool, bool)> {
        bench.block.reserve.next = false;
        bench.block.arrival_valid.next = false;
        bench.block.tx.ready.next = true;
        let mut beats = Vec::new();
        for _ in 0..12 {
            bench.settle();
            if bench.block.tx.valid.val() {
                let beat = bench.block.tx.beat.val();
                beats.push((beat.data.get_bits::<32>(0).to_u64(), beat.last, beat.error));
            }
            bench.tick();
        }
        beats
    }

    #[test]
    fn words_beyond_the_reservation_are_cut_off_and_reported() {
        let mut bench = cleared(bench().in_lock_step());
        for last_index in [1, 0] {
            reserve(&mut bench, last_index, 0);
            bench.tick();
        }
        bench.block.reserve.next = false;
        let mut reports = 0;
        for (tag, data, last) in [(0, 1, false), (0, 2, false), (0, 3, true), (1, 4, true), (2, 5, true)] {
            answer(&mut bench, tag, data, last);
            bench.tick();
            bench.settle();
            reports += usize::from(bench.block.is_unexpected.val());
        }
        bench.block.arrival_valid.next = false;
        for _ in 0..2 {
            bench.tick();
            bench.settle();
            reports += usize::from(bench.block.is_unexpected.val());
        }
        assert_eq!(reports, 2, "the third word of tag 0, and the word of tag 2, which is free");
        assert_eq!(drain(&mut bench), [(1, false, false), (2, true, true), (4, true, false)]);
        assert_eq!(bench.block.tags_used.val(), bits(0));
        assert_eq!(bench.block.chunks_used.val(), bits(0));
    }

    #[test]
    fn an_early_end_is_an_end_and_gives_all_chunks_back() {
        let mut bench = cleared(bench().in_lock_step());
        // Each lap of the ring passes chunks that were never written.
        for lap in 0..10 {
            reserve(&mut bench, 4, 0);
            bench.tick();
            bench.block.reserve.next = false;
            bench.settle();
            assert_eq!(bench.block.chunks_used.val(), bits(5));
            answer(&mut bench, lap % 4, lap, true);
            bench.tick();
            assert_eq!(drain(&mut bench), [(lap, true, false)]);
            assert_eq!(bench.block.chunks_used.val(), bits(0));
        }
    }

    #[test]
    fn reset_forgets_requests_and_their_late_answers() {
        let mut bench = cleared(bench().in_lock_step());
        reserve(&mut bench, 0, 0);
        bench.tick();
        bench.tick();
        bench.block.reserve.next = false;
        bench.block.reset.next = true;
        bench.tick();
        bench.block.reset.next = false;
        bench.settle();
        assert_eq!(bench.block.tags_used.val(), bits(0));
        assert_eq!(bench.block.chunks_used.val(), bits(0));
        for tag in [0, 1] {
            for cycle in 0..5 {
                bench.settle();
                assert_eq!(bench.block.fits.val(), tag == 1 || cycle >= 4, "clearing takes four cycles");
                answer(&mut bench, tag, 7, true);
                bench.tick();
            }
        }
        assert_eq!(drain(&mut bench), []);
        reserve(&mut bench, 0, 0);
        bench.tick();
        bench.block.reserve.next = false;
        answer(&mut bench, 0, 8, true);
        bench.tick();
        assert_eq!(drain(&mut bench), [(8, true, false)]);
    }

    #[test]
    fn random_traffic_is_the_same_in_verilog() {
        let mut random = random();
        let mut bench = cleared(bench().in_lock_step());
        let mut open = VecDeque::new();
        let mut delivered = 0;
        for _ in 0..3000 {
            let last_index = if random.random() { 0 } else { random.random_range(0..8) };
            reserve(&mut bench, last_index, random.random_range(0..256));
            bench.block.reserve.next = random.random();
            // Mostly tags that wait, at times any tag; whole answers end by themselves.
            let tag = match open.is_empty() || random.random_bool(0.05) {
                true => random.random_range(0..4),
                false => open[random.random_range(0..open.len())],
            };
            answer(&mut bench, tag, random.random(), random.random_bool(0.3));
            bench.block.arrival.next.error = random.random_bool(0.05);
            bench.block.arrival.next.bytes = Stimulus::sample(&mut random);
            bench.block.arrival_valid.next = random.random_bool(0.7);
            bench.block.tx.ready.next = random.random_bool(0.8);
            bench.settle();
            if bench.block.reserve.val() && bench.block.fits.val() {
                open.push_back(bench.block.tag.val().to_u64());
            }
            let beat = bench.block.tx.beat.val();
            if bench.block.tx.valid.val() && bench.block.tx.ready.val() && beat.last {
                open.pop_front();
                delivered += 1;
            }
            bench.tick();
        }
        assert!(delivered > 200, "{delivered} answers");
    }

    #[test]
    fn a_read_is_overdue_after_its_limit() {
        for (reserved_at, now, limit, expected) in [
            (5, 6, 1, false),
            (5, 7, 1, true),
            (5, 7, 0, false),
            (5, 0x1_0004, 0xffff, false),
            (5, 0x1_0005, 0xffff, true),
            (0x1_ffff, 1, 1, true),
            (0x1_ffff, 0, 1, false),
        ] {
            assert_eq!(is_overdue(bits(reserved_at), bits(now), bits(limit)), expected, "{reserved_at:x}");
        }
    }

    /// Reserves one word, answers it at once, and returns its tag when its beat has left.
    fn exchange(bench: &mut Bench<Small>, data: u64) -> u64 {
        bench.block.tx.ready.next = true;
        let mut tag = None;
        for _ in 0..40 {
            reserve(bench, 0, data);
            bench.block.reserve.next = tag.is_none();
            bench.settle();
            let block = &bench.block;
            assert!(!block.is_unexpected.val());
            if block.tx.valid.val() {
                let beat = block.tx.beat.val();
                assert_eq!((beat.cookie, beat.last, beat.error), (bits(data), true, false));
                assert_eq!(beat.data.get_bits::<32>(0), bits(data));
                bench.block.reserve.next = false;
                bench.tick();
                return tag.expect("it was reserved");
            }
            let begins = tag.is_none() && block.fits.val();
            if begins {
                tag = Some(block.tag.val().to_u64());
            }
            bench.tick();
            bench.block.arrival_valid.next = false;
            if begins {
                answer(bench, tag.expect("it was reserved"), data, true);
            }
        }
        panic!("no answer leaves");
    }

    #[test]
    fn a_read_that_is_never_answered_ends_with_an_error_and_its_tag_rests() {
        let mut bench = cleared(bench().in_lock_step());
        bench.block.limit.next = bits(1);
        bench.block.tx.ready.next = true;
        for (last_index, cookie) in [(1, 0xa), (0, 0xb), (0, 0xc)] {
            reserve(&mut bench, last_index, cookie);
            bench.tick();
        }
        bench.block.reserve.next = false;
        // Of tag 0 half of the answer comes; the others wait behind it.
        let answers = [(0, 0xa0, false), (1, 0xb0, true), (2, 0xc0, true)];
        let mut beats = Vec::new();
        for cycle in 0..3 * LIMIT_CYCLES + 40 {
            bench.block.arrival_valid.next = false;
            if let Some(&(tag, data, last)) = answers.get(cycle as usize) {
                answer(&mut bench, tag, data, last);
            }
            bench.settle();
            if bench.block.tx.valid.val() {
                let beat = bench.block.tx.beat.val();
                let data = beat.data.get_bits::<32>(0).to_u64();
                beats.push((cycle, beat.cookie.to_u64(), data, beat.last, beat.error));
            }
            bench.tick();
        }
        let [(_, 0xa, 0xa0, false, false), (lost_at, 0xa, _, true, true), others @ ..] = &beats[..] else {
            panic!("{beats:x?}")
        };
        assert!((LIMIT_CYCLES..3 * LIMIT_CYCLES + 8).contains(lost_at), "lost after {lost_at} cycles");
        let expected = [(lost_at + 1, 0xb, 0xb0, true, false), (lost_at + 2, 0xc, 0xc0, true, false)];
        assert_eq!(others, expected, "the others leave at once");
        bench.settle();
        let block = &bench.block;
        assert_eq!((block.tags_used.val(), block.chunks_used.val()), (bits(0), bits(0)));
        assert_eq!((block.quarantined.val(), block.has_lost_half.val()), (bits(1), false));

        // The tag rests while the ring goes round.
        for data in 0..12 {
            assert_ne!(exchange(&mut bench, 0x50 + data), 0);
        }
        // The rest of the answer comes, changes nothing, and frees the tag.
        bench.block.reserve.next = false;
        answer(&mut bench, 0, 0xa1, true);
        bench.tick();
        assert_eq!(drain(&mut bench), []);
        assert!(!bench.block.is_unexpected.val());
        assert_eq!(bench.block.quarantined.val(), bits(0));
        let tags: Vec<_> = (0..8).map(|data| exchange(&mut bench, 0x60 + data)).collect();
        assert_eq!(tags.iter().filter(|&&tag| tag == 0).count(), 2, "{tags:?}");
    }

    #[test]
    fn without_a_limit_a_read_waits() {
        let mut bench = cleared(bench());
        bench.block.tx.ready.next = true;
        reserve(&mut bench, 0, 7);
        bench.tick();
        bench.block.reserve.next = false;
        for _ in 0..8 * LIMIT_CYCLES {
            bench.settle();
            assert!(!bench.block.tx.valid.val());
            bench.tick();
        }
        answer(&mut bench, 0, 9, true);
        bench.tick();
        assert_eq!(drain(&mut bench), [(9, true, false)]);
    }

    #[test]
    fn half_of_all_tags_lost_is_reported() {
        let mut bench = cleared(bench().in_lock_step());
        bench.block.limit.next = bits(1);
        for lost in 0..2 {
            bench.settle();
            assert!(!bench.block.has_lost_half.val(), "{lost} of 4");
            reserve(&mut bench, 0, 0);
            bench.tick();
            let beats: Vec<_> = (0..300).flat_map(|_| drain(&mut bench)).collect();
            assert!(matches!(beats[..], [(_, true, true)]), "{beats:?}");
        }
        assert!(bench.block.has_lost_half.val());
        // The tags that are left are used.
        assert_eq!([0, 1, 2].map(|data| exchange(&mut bench, data)), [2, 3, 2]);
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert_eq!(Small::REFUSAL, None);
        assert_eq!(ChunkBuffer::<64, 4, 6, 1, 2, 13, 14, 8>::REFUSAL, None);
        assert!(
            ChunkBuffer::<512, 7, 3, 8, 9, 2, 3, 8>::REFUSAL
                .is_some_and(|refusal| refusal.contains("CHUNK is WORD"))
        );
        assert!(
            ChunkBuffer::<512, 7, 3, 8, 9, 11, 12, 8>::REFUSAL
                .is_some_and(|refusal| refusal.contains("CHUNK is WORD"))
        );
        assert!(
            ChunkBuffer::<512, 7, 3, 8, 9, 10, 10, 8>::REFUSAL
                .is_some_and(|refusal| refusal.contains("CHUNKS"))
        );
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new()
            .signal("reserve")
            .signal("tag")
            .when("reserve")
            .signal("arrival_valid")
            .signal("arrival.tag")
            .when("arrival_valid")
            .signal("arrival.data")
            .when("arrival_valid")
            .signal("tx_valid")
            .signal("tx_beat.data")
            .when("tx_valid")
            .signal("tx_beat.last")
            .when("tx_valid")
            .signal("tags_used")
            .signal("chunks_used");
        let mut bench = cleared(bench()).recording(waves);
        bench.block.tx.ready.next = true;
        let words = [(1, 0xb0, false), (0, 0xa0, false), (1, 0xb1, true), (0, 0xa1, true)];
        for cycle in 0..16 {
            reserve(&mut bench, 1, 0);
            bench.block.reserve.next = cycle == 1 || cycle == 2;
            bench.block.arrival_valid.next = false;
            if let Some(&(tag, data, last)) = words.get(usize::wrapping_sub(cycle, 4)) {
                answer(&mut bench, tag, data, last);
            }
            bench.tick();
        }
        bench.waves().expect("waves/chunk_buffer.txt");
    }
}
