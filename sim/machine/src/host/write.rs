//! Writes of the card: requests and data on separate streams, visible late, and reported done in the order of the requests.
//!
//! ```text
//!  request ──> accepted ──┐
//!                         ├─ whole ──> uplink ──> visible, by time ──> done, in order
//!  data ──> words ahead ──┘                         memory changes here
//! ```
//!
//! 1. Data comes in the order of the requests: before, with or after its request.
//! 2. Until a write is reported done, nothing is guaranteed: with [`WriteOrder::Free`] a later write may become visible first.
//!    Writes to the same bytes stay in order even then.
//! 3. A write that is reported done is visible. There is at most one report a cycle, and one for each request.
use super::Word;
use super::link::Link;
use super::memory::Memory;
use super::options::{HostOptions, WriteOrder};
use crate::monitor::dma::check_shape;
use crate::monitor::order::OrderMonitor;
use crate::monitor::{Log, Rule};
use rand_chacha::ChaCha8Rng;
use rnic_layout::limits::HOST_REQUEST_BYTES_MAX;
use rnic_stimulus::chance::{Seed, happens};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Writes in flight that a host can track.
pub const WRITES_MAX: usize = 512;
/// Words that may arrive before their requests: those of two of the longest requests at the smallest width.
const WORDS_AHEAD_MAX: usize = 130;

/// A write request of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRequest {
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes, 1 to 512.
    pub length: u32,
}

/// A word of write data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteWord {
    /// Data, at the byte positions of their addresses.
    pub data: Word,
    /// Last word of the request.
    pub last: bool,
}

/// A write in flight.
#[derive(Clone)]
struct Write {
    address: u64,
    length: usize,
    bytes: [u8; HOST_REQUEST_BYTES_MAX as usize],
    words_left: usize,
    visible_ps: u64,
    done_ps: u64,
    is_visible: bool,
    has_failed: bool,
}

/// Writes of one card.
pub struct Writes {
    lanes: usize,
    random: ChaCha8Rng,
    /// Ring buffer, by sequence number.
    ring: Box<[Write]>,
    /// Sequence numbers: of the next request, of the first one whose data is incomplete, and of the first one that is not
    /// reported done.
    accepted: u64,
    whole: u64,
    done: u64,
    words: VecDeque<WriteWord>,
    /// Complete writes that are not visible yet, by time.
    waiting: BinaryHeap<Reverse<(u64, u64)>>,
    last_visible_ps: u64,
    last_done_ps: u64,
    bytes: u64,
}

impl Writes {
    /// Makes a model without writes. `lanes` is the width of a word in bytes.
    pub fn new(lanes: usize, seed: Seed, name: &str) -> Writes {
        let write = Write {
            address: 0,
            length: 0,
            bytes: [0; HOST_REQUEST_BYTES_MAX as usize],
            words_left: 0,
            visible_ps: 0,
            done_ps: 0,
            is_visible: false,
            has_failed: false,
        };
        Writes {
            lanes,
            random: seed.stream(&format!("{name}/writes")),
            ring: vec![write; WRITES_MAX].into_boxed_slice(),
            accepted: 0,
            whole: 0,
            done: 0,
            words: VecDeque::with_capacity(2 * WORDS_AHEAD_MAX),
            waiting: BinaryHeap::with_capacity(WRITES_MAX),
            last_visible_ps: 0,
            last_done_ps: 0,
            bytes: 0,
        }
    }

    /// Requests that are not reported done.
    pub fn under_way(&self) -> usize {
        (self.accepted - self.done) as usize
    }

    /// Words that arrived before their request.
    pub fn words_ahead(&self) -> usize {
        self.words.len()
    }

    /// Requests, and bytes that were requested.
    pub fn totals(&self) -> (u64, u64) {
        (self.accepted, self.bytes)
    }

    /// Time at which the last write in flight becomes visible.
    pub fn last_visible_ps(&self) -> u64 {
        self.last_visible_ps
    }

    /// Returns whether another request can be accepted.
    pub fn has_room(&self, options: &HostOptions) -> bool {
        self.under_way() < options.writes_max.clamp(1, WRITES_MAX)
    }

    /// Returns whether another word can be accepted.
    pub fn has_room_for_word(&self) -> bool {
        self.words.len() < WORDS_AHEAD_MAX
    }

    /// Returns whether a write that is not visible yet touches bytes of this range.
    pub fn is_pending(&self, address: u64, length: u64) -> bool {
        (self.done..self.accepted).any(|sequence| {
            let write = &self.ring[sequence as usize % WRITES_MAX];
            !write.is_visible && overlap(write.address, write.length as u64, address, length)
        })
    }

    /// Accepts a request.
    pub fn request(&mut self, now_ps: u64, request: WriteRequest, log: &mut Log) {
        let WriteRequest { address, length } = request;
        let is_good = check_shape(log, now_ps, "a write", address, length);
        let length = length.min(HOST_REQUEST_BYTES_MAX) as usize;
        let write = &mut self.ring[self.accepted as usize % WRITES_MAX];
        let lane = (address % self.lanes as u64) as usize;
        write.address = address;
        write.length = length;
        write.words_left = (lane + length).div_ceil(self.lanes).max(1);
        write.is_visible = false;
        write.has_failed = !is_good;
        self.accepted += 1;
        self.bytes += length as u64;
    }

    /// Accepts a word.
    pub fn word(&mut self, word: WriteWord) {
        self.words.push_back(word);
    }

    /// Processes one cycle: matches words to requests, makes writes visible, and reports at most one done, with whether it
    /// failed.
    pub fn cycle(
        &mut self,
        now_ps: u64,
        options: &HostOptions,
        up: &mut Link,
        memory: &mut Memory,
        order: &mut OrderMonitor,
        log: &mut Log,
    ) -> Option<bool> {
        while self.whole < self.accepted && !self.words.is_empty() {
            self.join(now_ps, options, up, order, log);
        }
        while let Some(&Reverse((visible_ps, sequence))) = self.waiting.peek() {
            if visible_ps > now_ps {
                break;
            }
            self.waiting.pop();
            let write = &mut self.ring[sequence as usize % WRITES_MAX];
            write.is_visible = true;
            let bytes = &write.bytes[..write.length];
            if !write.has_failed {
                write.has_failed = memory.card_writes(now_ps, write.address, bytes).is_err();
            }
            if !write.has_failed {
                order.visible(now_ps, write.address, bytes, log);
            }
        }
        if self.done == self.whole {
            return None;
        }
        let write = &self.ring[self.done as usize % WRITES_MAX];
        if !write.is_visible || write.done_ps > now_ps {
            return None;
        }
        self.done += 1;
        Some(write.has_failed)
    }

    /// Matches the next word to the oldest incomplete request.
    fn join(
        &mut self,
        now_ps: u64,
        options: &HostOptions,
        up: &mut Link,
        order: &mut OrderMonitor,
        log: &mut Log,
    ) {
        let Some(word) = self.words.pop_front() else { return };
        let write = &mut self.ring[self.whole as usize % WRITES_MAX];
        let lane = (write.address % self.lanes as u64) as usize;
        let words = (lane + write.length).div_ceil(self.lanes).max(1);
        let first = (words - write.words_left) * self.lanes;
        // Bytes of the range that are in this word; `first` counts from byte 0 of the first word.
        let start = first.max(lane);
        let end = (first + self.lanes).min(lane + write.length).max(start);
        write.bytes[start - lane..end - lane].copy_from_slice(&word.data.0[start - first..end - first]);
        write.words_left -= 1;
        let (address, length) = (write.address, write.length);
        if word.last != (write.words_left == 0) {
            let left = write.words_left;
            let text = || {
                format!(
                    "a write of {length} bytes at {address:#x}: last is {} with {left} words to come",
                    word.last
                )
            };
            log.report(now_ps, Rule::Words, text);
            // Further words are taken for those of the next request, so that one fault does not cause hundreds of reports.
            write.words_left = 0;
        }
        if write.words_left == 0 {
            order.handed(now_ps, address, length as u64);
            self.send(now_ps, options, up);
        }
    }

    /// The data of a request is complete: sends it over the link.
    fn send(&mut self, now_ps: u64, options: &HostOptions, up: &mut Link) {
        let sequence = self.whole;
        let index = sequence as usize % WRITES_MAX;
        let (address, length) = (self.ring[index].address, self.ring[index].length as u64);
        let packets = packets(address, length, options.link.write_bytes);
        let payload_bytes = options.link.payload_bytes(address, length);
        let arrival_ps = up.send(now_ps, payload_bytes + packets * options.link.request_overhead_bytes);
        let mut visible_ps = arrival_ps + options.write_visible.draw_ps(&mut self.random);
        match options.write_order {
            WriteOrder::Posted => visible_ps = visible_ps.max(self.last_visible_ps),
            WriteOrder::Free => {
                let older = (self.done..sequence).map(|older| &self.ring[older as usize % WRITES_MAX]);
                let same = older.filter(|older| {
                    !older.is_visible && overlap(older.address, older.length as u64, address, length)
                });
                visible_ps = same.fold(visible_ps, |latest, older| latest.max(older.visible_ps));
            }
        }
        self.last_visible_ps = self.last_visible_ps.max(visible_ps);
        self.last_done_ps = self.last_done_ps.max(visible_ps + options.write_done.draw_ps(&mut self.random));
        let write = &mut self.ring[index];
        write.visible_ps = visible_ps;
        write.done_ps = self.last_done_ps;
        write.has_failed |= happens(&mut self.random, options.write_error);
        self.waiting.push(Reverse((visible_ps, sequence)));
        self.whole += 1;
    }
}

/// Packets of a write on the link.
fn packets(address: u64, length: u64, packet_bytes: u64) -> u64 {
    (address % packet_bytes + length).div_ceil(packet_bytes).max(1)
}

fn overlap(address: u64, length: u64, other: u64, other_length: u64) -> bool {
    // A write that wraps was refused before, so an overflow of the sums does not matter.
    address < other.saturating_add(other_length) && other < address.saturating_add(length)
}

#[cfg(test)]
mod tests;
