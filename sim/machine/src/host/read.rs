//! Reads of the card: answered late, out of order, in pieces, and interleaved.
//!
//! ```text
//!  request ──> uplink ──> waiting, by time ──> downlink ──> open ──> one word a cycle
//!                            memory is read here, or already with the request
//! ```
//!
//! 1. A request is split at multiples of the link's piece size. Each piece has a latency of its own; the pieces of a request
//!    stay in order.
//! 2. Words of up to `interleave` pieces are interleaved; the words of a request stay in order.
//! 3. Bytes of a word that do not belong to the request hold a pattern, never the contents of memory.
//! 4. A request that fails ends with one word that is marked as an error, in place of the first piece that failed.
use super::link::Link;
use super::memory::Memory;
use super::options::HostOptions;
use super::{LANES_MAX, Word};
use crate::monitor::dma::check_shape;
use crate::monitor::{Log, Rule};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_layout::limits::{HOST_READ_TAGS_MAX, HOST_REQUEST_BYTES_MAX};
use rnic_stimulus::chance::{Seed, happens};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

const REQUEST_BYTES_MAX: usize = HOST_REQUEST_BYTES_MAX as usize;
const TAGS: usize = HOST_READ_TAGS_MAX as usize;
/// Contents of bytes that do not belong to the request.
const NOISE: u8 = 0xa5;

/// A read request of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes, 1 to 512.
    pub length: u32,
    /// Tag, which is returned with the answer.
    pub tag: u8,
}

/// A word of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadWord {
    /// Data, at the byte positions of their addresses.
    pub data: Word,
    /// Number of bytes that belong to the request.
    pub bytes: u32,
    /// Last word of the answer.
    pub last: bool,
    /// The read failed.
    pub error: bool,
    /// Tag of the request.
    pub tag: u8,
}

/// A request in flight.
#[derive(Clone)]
struct Slot {
    is_busy: bool,
    /// Distinguishes pieces of a request that ended early from those of the next request with the same tag.
    generation: u32,
    address: u64,
    length: usize,
    bytes: [u8; REQUEST_BYTES_MAX],
}

/// Part of a request, and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    ready_ps: u64,
    /// Pieces that become ready at the same time stay in the order of their requests.
    sequence: u64,
    tag: u8,
    generation: u32,
    /// Offsets in the request, in bytes.
    start: u16,
    end: u16,
    is_read: bool,
    has_failed: bool,
}

/// A piece that has crossed the link, or is crossing it.
#[derive(Clone, Copy, Debug)]
struct Open {
    arrives_ps: u64,
    piece: Piece,
}

/// Reads of one card.
pub struct Reads {
    lanes: usize,
    random: ChaCha8Rng,
    slots: Box<[Slot]>,
    /// Requests in flight: slots that are busy.
    in_flight: usize,
    waiting: BinaryHeap<Reverse<Piece>>,
    open: VecDeque<Open>,
    down: Link,
    sequence: u64,
    requests: u64,
    bytes: u64,
    /// Requests that begin at these addresses are answered later by this time.
    delayed: Option<(Range<u64>, u64)>,
}

impl Reads {
    /// Makes a model without requests. `lanes` is the width of a word in bytes.
    pub fn new(options: &HostOptions, lanes: usize, seed: Seed, name: &str) -> Reads {
        let slot =
            Slot { is_busy: false, generation: 0, address: 0, length: 0, bytes: [0; REQUEST_BYTES_MAX] };
        Reads {
            lanes,
            random: seed.stream(&format!("{name}/reads")),
            slots: vec![slot; TAGS].into_boxed_slice(),
            in_flight: 0,
            waiting: BinaryHeap::with_capacity(1024),
            open: VecDeque::with_capacity(1024),
            down: Link::new(options.link.bytes_per_second),
            sequence: 0,
            requests: 0,
            bytes: 0,
            delayed: None,
        }
    }

    /// Answers further requests that begin at these addresses later by this time, or none.
    pub fn delay(&mut self, delayed: Option<(Range<u64>, u64)>) {
        self.delayed = delayed;
    }

    /// Returns whether a request that begins at an address is answered late because of [`delay`](Self::delay).
    pub fn is_delayed(&self, address: u64) -> bool {
        self.delay_of(address).is_some()
    }

    /// Time by which the answer to a request that begins at an address is late, in picoseconds.
    fn delay_of(&self, address: u64) -> Option<u64> {
        self.delayed.as_ref().filter(|(range, _)| range.contains(&address)).map(|(_, delay_ps)| *delay_ps)
    }

    /// Requests in flight.
    pub fn under_way(&self) -> usize {
        self.in_flight
    }

    /// Returns whether another request can be accepted.
    pub fn has_room(&self, options: &HostOptions) -> bool {
        self.in_flight < options.reads_max.clamp(1, TAGS)
    }

    /// Requests, and bytes that were requested.
    pub fn totals(&self) -> (u64, u64) {
        (self.requests, self.bytes)
    }

    /// Accepts a request.
    pub fn request(
        &mut self,
        now_ps: u64,
        request: ReadRequest,
        options: &HostOptions,
        up: &mut Link,
        memory: &mut Memory,
        log: &mut Log,
    ) {
        let ReadRequest { address, length, tag } = request;
        let is_good = check_shape(log, now_ps, "a read", address, length);
        let slot = &mut self.slots[usize::from(tag)];
        if slot.is_busy {
            log.report(now_ps, Rule::Tag, || format!("tag {tag} is used again before its answer"));
            return;
        }
        self.requests += 1;
        self.bytes += u64::from(length);
        slot.is_busy = true;
        self.in_flight += 1;
        slot.generation = slot.generation.wrapping_add(1);
        slot.address = address;
        // A malformed request is answered by one word with an error.
        slot.length = if is_good { length as usize } else { 1 };
        let (generation, length) = (slot.generation, slot.length);
        let arrival_ps = up.send(now_ps, options.link.request_overhead_bytes);
        let delay_ps = self.delay_of(address);
        let arrival_ps = arrival_ps + delay_ps.unwrap_or(0);
        let fails = !is_good || happens(&mut self.random, options.read_error);
        let failing_start = if fails { self.random.random_range(0..length) } else { 0 };

        let (mut start, mut ready_ps) = (0, 0);
        while start < length {
            let boundary = options.link.completion_bytes
                - address.wrapping_add(start as u64) % options.link.completion_bytes;
            let end = length.min(start + boundary as usize);
            // Software may give memory back while the answer to a read that has been given up is on its way.
            let is_early = happens(&mut self.random, options.early_read) || delay_ps.is_some();
            let latency_ps = options.read_latency.draw_ps(&mut self.random);
            ready_ps = ready_ps.max(arrival_ps + latency_ps);
            self.sequence += 1;
            let mut piece = Piece {
                ready_ps,
                sequence: self.sequence,
                tag,
                generation,
                start: start as u16,
                end: end as u16,
                is_read: false,
                has_failed: fails && (start..end).contains(&failing_start),
            };
            if is_early {
                self.read(now_ps, &mut piece, memory);
            }
            self.waiting.push(Reverse(piece));
            start = end;
        }
    }

    /// Reads a piece from memory.
    fn read(&mut self, now_ps: u64, piece: &mut Piece, memory: &mut Memory) {
        let slot = &mut self.slots[usize::from(piece.tag)];
        piece.is_read = true;
        if !piece.has_failed {
            let bytes = &mut slot.bytes[usize::from(piece.start)..usize::from(piece.end)];
            // A request that wraps was refused before.
            let address = slot.address.wrapping_add(u64::from(piece.start));
            piece.has_failed = memory.card_reads(now_ps, address, bytes).is_err();
        }
    }

    /// Processes one cycle: returns the next word for the card, if one is ready.
    pub fn cycle(&mut self, now_ps: u64, options: &HostOptions, memory: &mut Memory) -> Option<ReadWord> {
        while let Some(&Reverse(mut piece)) = self.waiting.peek() {
            if piece.ready_ps > now_ps {
                break;
            }
            self.waiting.pop();
            let slot = &self.slots[usize::from(piece.tag)];
            // An error has ended the request, and the tag may have the next one.
            if slot.generation != piece.generation || !slot.is_busy {
                continue;
            }
            if !piece.is_read {
                self.read(now_ps, &mut piece, memory);
            }
            let payload = match piece.has_failed {
                true => 0,
                false => {
                    let address = self.slots[usize::from(piece.tag)].address;
                    let start = address.wrapping_add(u64::from(piece.start));
                    options.link.payload_bytes(start, u64::from(piece.end - piece.start))
                }
            };
            let arrives_ps = self.down.send(now_ps, payload + options.link.completion_overhead_bytes);
            self.open.push_back(Open { arrives_ps, piece });
        }
        if self.open.is_empty() || happens(&mut self.random, options.read_data_stall) {
            return None;
        }
        let index = self.choose(now_ps, options.interleave)?;
        Some(self.word(index))
    }

    /// Chooses the piece from which the next word is taken.
    fn choose(&mut self, now_ps: u64, interleave: usize) -> Option<usize> {
        let arrived = self.open.iter().take(interleave.max(1)).take_while(|open| open.arrives_ps <= now_ps);
        let count = arrived.count();
        if count <= 1 {
            return (count == 1).then_some(0);
        }
        let index = self.random.random_range(0..count);
        let tag = self.open[index].piece.tag;
        // Pieces of a request are sent in order.
        self.open.iter().position(|open| open.piece.tag == tag)
    }

    /// Next word of an open piece.
    fn word(&mut self, index: usize) -> ReadWord {
        let piece = &mut self.open[index].piece;
        let slot = &mut self.slots[usize::from(piece.tag)];
        let start = usize::from(piece.start);
        let lane = (slot.address.wrapping_add(start as u64) % self.lanes as u64) as usize;
        let count = (self.lanes - lane).min(usize::from(piece.end) - start);
        let mut data = Word([NOISE; LANES_MAX]);
        let error = piece.has_failed;
        if !error {
            data.0[lane..lane + count].copy_from_slice(&slot.bytes[start..start + count]);
        }
        let last = error || start + count == slot.length;
        let word = ReadWord { data, bytes: count as u32, last, error, tag: piece.tag };
        piece.start += count as u16;
        if last {
            slot.is_busy = false;
            self.in_flight -= 1;
            // An error ends the request, whatever else of it has arrived.
            self.open.retain(|open| open.piece.tag != word.tag);
        } else if piece.start == piece.end {
            self.open.remove(index);
        }
        word
    }
}

#[cfg(test)]
mod tests;
