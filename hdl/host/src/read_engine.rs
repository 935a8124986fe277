//! Read engine: reads host memory, many requests at a time, and gives the answers in order.
//!
//! A host takes a microsecond to answer, in which the wire carries 12 KB; so reads overlap, and a tag tells the answers
//! apart. Users see neither tags nor reordering, but a stream of requests and a stream of answers.
//!
//! ```text
//!          ┌──────────────────────────────────────────────────┐
//!  rx ────>│ request ──> fits? ──> issued ────────────────────┼──> to_host
//!          │               ^                                  │
//!          │               │ tag, place                       │
//!          │         ┌─────┴────────┐                         │
//!  tx <────┤<────────┤ chunk buffer │<────────────────────────┼─── from_host (no ready)
//!          │         └──────────────┘                         │
//!          └──────────────────────────────────────────────────┘
//! ```
//!
//! Requests of 128 bytes and of 16 bytes; the second one is answered first:
//! ```text
#![doc = include_str!("waves/read_engine.txt")]
//! ```
//!
//! Latency 2 cycles from `rx` to `to_host`, and 4 from the first word of the oldest request to `tx`, which does not wait for
//! the last one. One request and one beat a cycle while tags and chunks last: 64 KiB cover 4 us of a host that sends
//! 15.4 GB/s, and 256 tags 4 us of 62 million small reads a second. After reset, no request is issued for `2^TAG` cycles.
//!
//! 1. A request is issued when a tag and chunks for its whole answer are reserved, so `from_host` is never held back.
//! 2. Answers leave `tx` in the order of the requests, each whole.
//! 3. The host answers in any order and mixes answers, but keeps the order within each, and fills each word but an answer's
//!    first and last one.
//! 4. Words leave in the lanes in which the host gave them. Bytes that keep the lanes of their address are never
//!    cut by a completion boundary, and join those of the next request without a shift; chunks are reserved for that.
//! 5. A read that failed ends with `error`, possibly before its last byte; other reads are not affected. So does a read to which
//!    the host gives more words than were requested.
//! 6. All tags and chunks are freed: `tags_used` and `chunks_used` are zero when all answers have left.
//! 7. A read that the host does not answer within `limit` ends with `error` when all reads before it have ended. A late answer
//!    changes nothing; its tag is not used before that has come.
//!
//! A request has 1 to 512 bytes and crosses no multiple of 512 bytes (so no page either): a
//! [`Splitter`](rnic_blocks::stream::split::Splitter) precedes the engine. A request that does ends with `error`, if its answer has more
//! words than are reserved. Refuses the parameters that [`ChunkBuffer`] refuses. Design 3.1.
use super::arrivals::ReadWord;
use super::chunk_buffer::{ChunkBuffer, ReadBeat};
use rnic_blocks::memory::Storage;
use rnic_blocks::stream::{StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;

use rnic_messages::sizes::{HOST_LIMIT_BITS, LENGTH_BITS};
/// Bits of an offset to the 512-byte boundary that no request crosses.
const OFFSET_BITS: usize = 9;

/// A read, as a user requests it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadRequest<const COOKIE: usize> {
    /// Device address of the first byte.
    pub address: Bits<64>,
    /// Length in bytes, 1 to 512.
    pub length: Bits<LENGTH_BITS>,
    /// Returned with every beat of the answer.
    pub cookie: Bits<COOKIE>,
}

/// A read request to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct HostRead<const TAG: usize> {
    /// Device address of the first byte.
    pub address: Bits<64>,
    /// Length in bytes, 1 to 512.
    pub length: Bits<LENGTH_BITS>,
    /// Returned with every word of the answer.
    pub tag: Bits<TAG>,
}

/// Reads with up to `2^TAG` tags and room for `2^CHUNK` words.
///
/// `WORD`, the width of an index to the words of 512 bytes, is `10 - BYTES`; `TAGS` and `CHUNKS`, the widths of counts,
/// are `TAG + 1` and `CHUNK + 1`.
#[clocked(reset = "forgets all requests. The host must have answered, or never answer, those before")]
#[derive(LogicBlock, Registers, Construct)]
#[new(
    /// Makes an engine with nothing in flight, whose chunks are made of `storage`.
    storage: Storage,
)]
pub struct ReadEngine<
    const DATA: usize,
    const BYTES: usize,
    const WORD: usize,
    const TAG: usize,
    const TAGS: usize,
    const CHUNK: usize,
    const CHUNKS: usize,
    const COOKIE: usize,
> {
    /// From the users; `ready` is combinational.
    pub rx: StreamRx<ReadRequest<COOKIE>>,
    /// To the users; registered.
    pub tx: StreamTx<ReadBeat<DATA, BYTES, COOKIE>>,

    /// To the host; registered.
    pub to_host: StreamTx<HostRead<TAG>>,
    /// From the host: a word of an answer.
    pub from_host: ValidRx<ReadWord<DATA, BYTES, TAG>>,
    /// The host sent a word for no request two cycles ago: an error of the device; registered.
    pub is_unexpected: Signal<Out, Bit>,

    /// Time after which a read is given up, in units of 1024 cycles; zero for none.
    pub limit: Signal<In, Bits<HOST_LIMIT_BITS>>,
    /// The time of this cycle does not count: the card may make no requests.
    pub pauses: Signal<In, Bit>,
    /// Reads that were given up, and that the host may still answer; registered.
    pub quarantined: Signal<Out, Bits<TAGS>>,
    /// They have half of all tags, or more; a function of registers.
    pub has_lost_half: Signal<Out, Bit>,

    /// Requests in flight, those that were given up aside; a function of registers.
    pub tags_used: Signal<Out, Bits<TAGS>>,
    /// Words reserved for their answers; a function of registers.
    pub chunks_used: Signal<Out, Bits<CHUNKS>>,

    #[init(ChunkBuffer::new(storage))]
    buffer: ChunkBuffer<DATA, BYTES, WORD, TAG, TAGS, CHUNK, CHUNKS, COOKIE>,
    request: DFF<ReadRequest<COOKIE>>,
    last_index: DFF<Bits<WORD>>,
    has_request: Reg<Bit>,
    issued: DFF<HostRead<TAG>>,
    is_issued: Reg<Bit>,
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
> Logic for ReadEngine<DATA, BYTES, WORD, TAG, TAGS, CHUNK, CHUNKS, COOKIE>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // The words that the request touches are counted in the cycle before room is reserved for them.
        let has_request = self.has_request.q.val();
        let may_issue = self.to_host.ready.val() || !self.is_issued.q.val();
        let issues = has_request && self.buffer.fits.val() && may_issue;
        let takes = issues || !has_request;
        let asked = self.rx.beat.val();
        let offset = asked.address.get_bits::<OFFSET_BITS>(0);
        let last_offset = bit_cast::<LENGTH_BITS, OFFSET_BITS>(offset) + asked.length - 1;
        self.rx.ready.next = takes;
        if takes {
            self.request.d.next = asked;
            self.last_index.d.next =
                last_offset.get_bits::<WORD>(BYTES - 1) - offset.get_bits::<WORD>(BYTES - 1);
            self.has_request.d.next = self.rx.valid.val();
        }

        let request = self.request.q.val();
        self.buffer.last_index.next = self.last_index.q.val();
        self.buffer.cookie.next = request.cookie;
        self.buffer.reserve.next = has_request && may_issue;
        if may_issue {
            self.issued.d.next = HostRead::<TAG> {
                address: request.address,
                length: request.length,
                tag: self.buffer.tag.val(),
            };
            self.is_issued.d.next = issues;
        }
        self.to_host.offer(self.is_issued.q.val(), self.issued.q.val());

        ValidRx::link(&mut self.from_host, &mut self.buffer.arrival);
        self.is_unexpected.next = self.buffer.is_unexpected.val();
        StreamTx::link(&mut self.tx, &mut self.buffer.tx);
        self.buffer.limit.next = self.limit.val();
        self.buffer.pauses.next = self.pauses.val();
        self.quarantined.next = self.buffer.quarantined.val();
        self.has_lost_half.next = self.buffer.has_lost_half.val();
        self.tags_used.next = self.buffer.tags_used.val();
        self.chunks_used.next = self.buffer.chunks_used.val();
    }
}

#[cfg(test)]
mod tests;
