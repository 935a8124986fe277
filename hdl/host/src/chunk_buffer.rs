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
//!
//! Refuses widths that contradict each other, more than 8 tag bits, and a memory of less than one answer of 512 bytes or of
//! more than 128 (64 KiB). Design 3.1.
use super::arrivals::{Arrivals, Place, Progress, ReadWord};
use super::ring::Ring;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Beat, StreamTx};
use rnic_kernel::prelude::*;

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

/// What is needed of a request when it is the oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Order<const WORD: usize, const CHUNK: usize, const COOKIE: usize> {
    /// Its first chunk.
    first: Bits<CHUNK>,
    /// Index of the last word for which there is a chunk.
    last_index: Bits<WORD>,
    /// The cookie of the request.
    cookie: Bits<COOKIE>,
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

    /// To the users: answers in order; registered.
    pub tx: StreamTx<ReadBeat<DATA, BYTES, COOKIE>>,

    /// Tags that are reserved; a function of registers.
    pub tags_used: Signal<Out, Bits<TAGS>>,
    /// Chunks that are reserved; a function of registers.
    pub chunks_used: Signal<Out, Bits<CHUNKS>>,

    tags: Ring<TAG, TAGS>,
    chunks: Ring<CHUNK, CHUNKS>,
    arrivals: Arrivals<DATA, BYTES, WORD, TAG, TAGS, CHUNK>,
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
        let fits = self.arrivals.is_clear.val() && self.tags.fits.val() && self.chunks.fits.val();
        let reserves = self.reserve.val() && fits;
        self.fits.next = fits;
        self.tag.next = tag;
        self.tags.amount.next = bits(1);
        self.tags.reserve.next = reserves;
        self.chunks.amount.next = bit_cast::<CHUNKS, WORD>(last_index) + 1;
        self.chunks.reserve.next = reserves;
        self.arrivals.opens.next = reserves;
        self.arrivals.opened_tag.next = tag;
        self.arrivals.place.next = Place::<WORD, CHUNK> { first, last_index, lap: !position.get_bit(TAG) };
        self.orders.write_enable.next = reserves;
        self.orders.write_address.next = tag;
        self.orders.write_data.next =
            Order::<WORD, CHUNK, COOKIE> { first, last_index, cookie: self.cookie.val() };

        self.arrivals.arrival.next = self.arrival.val();
        self.arrivals.arrival_valid.next = self.arrival_valid.val();
        self.is_unexpected.next = self.arrivals.is_unexpected.val();
        self.memory.write_enable.next = self.arrivals.writes.val();
        self.memory.write_address.next = self.arrivals.chunk.val();
        self.memory.write_data.next = self.arrivals.word.val();
        self.progress.write_enable.next = self.arrivals.changes.val();
        self.progress.write_address.next = self.arrivals.changed_tag.val();
        self.progress.write_data.next = self.arrivals.progress.val();

        // The words of the oldest request leave as they arrive. The laps of a tag differ until the first one has.
        let oldest = self.oldest.q.val();
        let next_index = self.next_index.q.val();
        let order = self.orders.read_data.val();
        let seen = self.progress.read_data.val();
        let is_here =
            self.arrivals.is_clear.val() && seen.lap != oldest.get_bit(TAG) && next_index <= seen.newest;
        let fetch = is_here && (self.tx.ready.val() || !self.head_valid.q.val());
        let ends = fetch && !seen.is_open && next_index == seen.newest;
        let follower = select(ends, oldest + 1, oldest);
        self.orders.read_enable.next = true;
        self.orders.read_address.next = follower.get_bits::<TAG>(0);
        self.progress.read_enable.next = true;
        self.progress.read_address.next = follower.get_bits::<TAG>(0);
        self.memory.read_enable.next = fetch;
        self.memory.read_address.next = order.first + bit_cast::<CHUNK, WORD>(next_index);
        self.oldest.d.next = follower;
        if fetch {
            self.next_index.d.next = select(ends, bits::<WORD>(0), next_index + 1);
            self.head_cookie.d.next = order.cookie;
        }
        self.head_valid.d.next = fetch || (self.head_valid.q.val() && !self.tx.ready.val());
        self.tags.returns.next = ends;
        self.tags.returned.next = bits(1);
        self.chunks.returns.next = ends;
        self.chunks.returned.next = bit_cast::<CHUNKS, WORD>(order.last_index) + 1;

        let head = self.memory.read_data.val();
        self.tx.valid.next = self.head_valid.q.val();
        self.tx.beat.next = ReadBeat::<DATA, BYTES, COOKIE> {
            data: head.data,
            bytes: head.bytes,
            last: head.last,
            error: head.error,
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
