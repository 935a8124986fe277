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
//!    four cycles. The words of its late answer, if that comes, change nothing. Time in which `pauses` is high does not count.
//! 8. A tag in quarantine is reserved by no read. One cycle is lost each time that the ring comes to it.
//!
//! Refuses widths that contradict each other, more than 8 tag bits, and a memory of less than one answer of 512 bytes or of
//! more than 128 (64 KiB). Design 3.1.
use super::arrivals::{Arrivals, Place, Progress, ReadWord};
use super::quarantine::Quarantine;
use super::ring::Ring;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Beat, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::HOST_LIMIT_BITS;

/// Cycles of a unit of `limit`.
pub const LIMIT_CYCLES: u64 = 1 << UNIT_BITS;
/// Bits of a count of those cycles.
pub(crate) const UNIT_BITS: usize = rnic_layout::limits::HOST_LIMIT_UNIT_LOG2 as usize;
/// Bits of a time in these units: twice the longest limit.
const TIME_BITS: usize = HOST_LIMIT_BITS + 1;
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
fn is_overdue(reserved_at: Bits<TIME_BITS>, now: Bits<TIME_BITS>, limit: Bits<HOST_LIMIT_BITS>) -> Bit {
    limit.any() && now - reserved_at > bit_cast::<TIME_BITS, HOST_LIMIT_BITS>(limit)
}

/// Room for `2^CHUNK` words in up to `2^TAG` answers.
///
/// `WORD`, the width of an index to the words of 512 bytes, is `10 - BYTES`; `TAGS` and `CHUNKS`, the widths of counts,
/// are `TAG + 1` and `CHUNK + 1`.
#[clocked(reset = "forgets all requests. The host must have answered, or never answer, those before")]
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
    pub arrival: ValidRx<ReadWord<DATA, BYTES, TAG>>,
    /// A word for no request arrived two cycles ago; registered.
    pub is_unexpected: Signal<Out, Bit>,

    /// Time after which a read is given up, in units of [`LIMIT_CYCLES`]; zero for none.
    pub limit: Signal<In, Bits<HOST_LIMIT_BITS>>,
    /// The time of this cycle does not count: the card may make no requests.
    pub pauses: Signal<In, Bit>,
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
    #[init(Memory::new(storage).without_old_word())]
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
        let cycles = self.clock_cycles.q.val();
        self.clock_cycles.d.next = select(self.pauses.val(), cycles, cycles + 1);
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
        self.laps.read(true, next_tag);
        self.laps.write(reserves || !is_clear, select(is_clear, tag, swept_tag), lap && is_clear);
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

        ValidRx::link(&mut self.arrival, &mut self.arrivals.arrival);
        self.is_unexpected.next = self.arrivals.is_unexpected.val();
        self.memory.write(self.arrivals.writes.val(), self.arrivals.chunk.val(), self.arrivals.word.val());
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
        let is_quiet = !self.recent.q.val().any() && !self.arrival.valid.val();
        let loses = self.overdue.q.val() && is_quiet && !is_here && may_fetch;
        let ends = passes || loses || (fetch && !seen.is_open && next_index == seen.newest);
        let follower = select(ends, oldest + 1, oldest);
        self.orders.read(true, follower.get_bits::<TAG>(0));
        self.progress.read(true, follower.get_bits::<TAG>(0));
        self.memory.read(fetch, order.first + bit_cast::<CHUNK, WORD>(next_index));
        self.oldest.d.next = follower;
        self.overdue.d.next =
            has_order && !order.is_void && !ends && is_overdue(order.reserved_at, now, self.limit.val());
        self.recent.d.next = cat!(self.recent.q.val().get_bits::<2>(0), self.arrival.valid.val());
        self.has_lost.d.next = loses;
        self.quarantine.clears.next = !is_clear;
        self.quarantine.cleared_tag.next = swept_tag;
        self.quarantine.enters.next = loses;
        self.quarantine.entered_tag.next = oldest.get_bits::<TAG>(0);
        self.quarantine.leaves.next = self.arrivals.closes.val() && self.quarantine.holds_arrival.val();
        self.quarantine.left_tag.next = self.arrivals.changed_tag.val();
        self.quarantine.arrival_tag.next = self.arrival.value.val().tag;
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
mod tests;
