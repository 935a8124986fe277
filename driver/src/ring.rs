//! Index and phase logic of all rings, without a device and without memory of its own.
//!
//! ```text
//!   work rings (WQEs, commands)                   phase rings (CQEs, EQEs, answers)
//!
//!   driver: claim ─> write slots ─> doorbell      card:   write an entry, its phase bit last
//!   card:   reads slots below the doorbell index  driver: next ─> entry, or None while the phase bit is old
//!   driver: release up to the consumer index      driver: doorbell with its consumer index
//! ```
//!
//! Indices run freely and are masked where they address memory, so a full ring differs from an empty one. The memory is
//! anything that implements [`Words`]: the tests of the handshake run the same code over the atomics of a model checker.

use rnic_layout::queue::{UNWRITTEN, phase};
use std::sync::atomic::Ordering;

/// Memory in 64-bit words, shared with the card. Byte *n* of an entry is byte *n mod 8*, in memory order, of word *n / 8*.
pub trait Words {
    /// Reads the word of this index.
    fn load(&self, word: usize, order: Ordering) -> u64;
    /// Writes the word of this index.
    fn store(&self, word: usize, value: u64, order: Ordering);
}

const WORD_BYTES: usize = 8;

/// Writes slot number `slot` of a work ring, whose slots have `BYTES` bytes. The stores are relaxed: the doorbell that
/// follows publishes them.
pub fn write_slot<const BYTES: usize>(words: &impl Words, slot: usize, bytes: &[u8; BYTES]) {
    let (chunks, rest) = bytes.as_chunks::<WORD_BYTES>();
    debug_assert!(rest.is_empty(), "slots are whole words");
    let first = slot * chunks.len();
    for (place, chunk) in chunks.iter().enumerate() {
        words.store(first + place, u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
}

/// Consumer index of the card that is outside the slots in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("consumer index {found} is not between {consumer} and {producer}")]
pub struct IndexError {
    /// Index that the card reported.
    pub found: u16,
    /// Index of the first slot in use: the smallest legal value.
    pub consumer: u16,
    /// Index after the last slot in use: the largest legal value.
    pub producer: u16,
}

/// Driver's side of a ring that the driver fills: send and receive queues, admin commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRing {
    log2: u32,
    producer: u16,
    consumer: u16,
}

impl WorkRing {
    /// Creates an empty ring of 2^`log2` slots.
    ///
    /// # Panics
    ///
    /// If `log2` is above 15: with 16-bit indices a full ring would equal an empty one.
    pub const fn new(log2: u32) -> Self {
        assert!(log2 <= 15, "indices have 16 bits");
        Self { log2, producer: 0, consumer: 0 }
    }

    /// Number of slots of the ring.
    pub const fn capacity(&self) -> u16 {
        1 << self.log2
    }

    /// Number of slots in use.
    pub const fn used(&self) -> u16 {
        self.producer.wrapping_sub(self.consumer)
    }

    /// Number of slots that can be claimed.
    pub const fn free(&self) -> u16 {
        self.capacity() - self.used()
    }

    /// Producer index for the doorbell: number of slots ever claimed, modulo 2^16.
    pub const fn producer_index(&self) -> u16 {
        self.producer
    }

    /// Consumer index: number of slots ever released, modulo 2^16.
    pub const fn consumer_index(&self) -> u16 {
        self.consumer
    }

    /// Slot number of an index.
    pub const fn slot(&self, index: u16) -> usize {
        (index & (self.capacity() - 1)) as usize
    }

    /// Claims consecutive slots, which may wrap at the end of the ring. Returns the index of the first, or `None` and claims
    /// nothing if fewer are free.
    pub const fn claim(&mut self, slots: u16) -> Option<u16> {
        if slots > self.free() {
            return None;
        }
        let first = self.producer;
        self.producer = first.wrapping_add(slots);
        Some(first)
    }

    /// Releases all slots before `consumer`, a consumer index that the card reported.
    ///
    /// # Errors
    ///
    /// [`IndexError`] if it is outside the slots in use; no slot is released then.
    pub const fn release(&mut self, consumer: u16) -> Result<(), IndexError> {
        if consumer.wrapping_sub(self.consumer) > self.used() {
            let (producer, first) = (self.producer, self.consumer);
            return Err(IndexError { found: consumer, consumer: first, producer });
        }
        self.consumer = consumer;
        Ok(())
    }
}

/// Driver's side of a ring that the card fills: completion queues, event queues, admin answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseRing {
    log2: u32,
    index_bits: u32,
    index: u32,
}

impl PhaseRing {
    /// Creates the reader of a zeroed ring of 2^`log2` entries with indices of `index_bits` bits.
    ///
    /// # Panics
    ///
    /// If `index_bits` is not above `log2`, so that an index has no phase bit, or is above 32.
    pub const fn new(log2: u32, index_bits: u32) -> Self {
        assert!(log2 < index_bits && index_bits <= 32, "the phase is a bit of the index");
        Self { log2, index_bits, index: 0 }
    }

    /// The same ring, read up to this consumer index.
    pub const fn at(self, index: u32) -> Self {
        Self { index, ..self }
    }

    /// Consumer index for the doorbell: number of entries ever read, modulo 2^`index_bits`.
    pub const fn consumer_index(&self) -> u32 {
        self.index
    }

    /// Marks all entries of `BYTES` bytes as unwritten. A zeroed ring that is read from another index than 0 on needs it: half of the
    /// entries have phase 0 in their first pass.
    pub fn clear<const BYTES: usize>(&self, words: &impl Words) {
        let last = WORD_BYTES - 1;
        let mark = std::array::from_fn(|place| if place == last { UNWRITTEN } else { 0 });
        let words_each = BYTES / WORD_BYTES;
        for entry in 0..1 << self.log2 {
            // The command that gives the ring to the card publishes it.
            words.store(entry * words_each + words_each - 1, u64::from_ne_bytes(mark), Ordering::Relaxed);
        }
    }

    /// Takes the next entry; `None` if the card has not written it yet.
    pub fn next<const BYTES: usize>(&mut self, words: &impl Words) -> Option<[u8; BYTES]> {
        let entry = self.peek(words)?;
        self.advance();
        Some(entry)
    }

    /// Takes the entry that [`Self::peek`] has returned.
    pub fn advance(&mut self) {
        self.index = self.index.wrapping_add(1) & (u32::MAX >> (32 - self.index_bits));
    }

    /// Reads the next entry without taking it; `None` if the card has not written it yet.
    pub fn peek<const BYTES: usize>(&self, words: &impl Words) -> Option<[u8; BYTES]> {
        let mut entry = [0; BYTES];
        let (chunks, rest) = entry.as_chunks_mut::<WORD_BYTES>();
        debug_assert!(rest.is_empty(), "entries are whole words");
        let slot = self.index & ((1 << self.log2) - 1);
        let first = slot as usize * chunks.len();
        let (last, others) = chunks.split_last_mut()?;
        // The acquire load of the word with the phase bit makes all earlier writes of the entry visible.
        *last = words.load(first + others.len(), Ordering::Acquire).to_ne_bytes();
        let marks = last[WORD_BYTES - 1];
        if marks == UNWRITTEN || (marks & 1 == 1) != phase(self.index, self.log2) {
            return None;
        }
        for (place, chunk) in others.iter_mut().enumerate() {
            *chunk = words.load(first + place, Ordering::Relaxed).to_ne_bytes();
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::sync::atomic::AtomicU64;

    struct Cells(Vec<AtomicU64>);

    impl Words for Cells {
        fn load(&self, word: usize, order: Ordering) -> u64 {
            self.0[word].load(order)
        }

        fn store(&self, word: usize, value: u64, order: Ordering) {
            self.0[word].store(value, order);
        }
    }

    fn cells(words: usize) -> Cells {
        Cells((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    #[test]
    fn a_full_ring_differs_from_an_empty_one() {
        let mut ring = WorkRing::new(15);
        assert_eq!((ring.used(), ring.free()), (0, 32768));
        assert_eq!(ring.claim(32768), Some(0));
        assert_eq!((ring.used(), ring.free()), (32768, 0));
        assert_eq!(ring.claim(1), None);
        assert_eq!(ring.release(32768), Ok(()));
        assert_eq!(ring.claim(32768), Some(32768));
        assert_eq!((ring.producer_index(), ring.used()), (0, 32768));
    }

    #[test]
    fn an_index_outside_of_what_is_in_use_is_refused() {
        let mut ring = WorkRing::new(6);
        ring.claim(10);
        ring.release(4).unwrap();
        for good in [4, 10] {
            assert_eq!({ ring }.release(good), Ok(()));
        }
        for bad in [3, 11, 0xffff] {
            let error = IndexError { found: bad, consumer: 4, producer: 10 };
            assert_eq!(ring.release(bad), Err(error));
        }
        assert_eq!(ring.consumer_index(), 4);
    }

    #[test]
    fn an_entry_is_taken_when_its_phase_turns() {
        let words = cells(2 * 4);
        let mut ring = PhaseRing::new(2, 24);
        assert_eq!(ring.next::<16>(&words), None);
        words.store(0, 7, Ordering::Relaxed);
        words.store(1, u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 1]), Ordering::Release);
        let mut entry = [0; 16];
        entry[..8].copy_from_slice(&7u64.to_ne_bytes());
        entry[15] = 1;
        assert_eq!(ring.peek(&words), Some(entry));
        assert_eq!(ring.next(&words), Some(entry));
        assert_eq!(ring.next::<16>(&words), None);
    }

    proptest! {
        /// Compares the ring with a queue of its slots, over several wraps of its 16-bit indices.
        #[test]
        fn a_work_ring_is_a_bounded_queue(
            log2 in 0u32..=15,
            start: u16,
            steps in proptest::collection::vec((any::<bool>(), 0u16..=40), 1..400),
        ) {
            let mut ring = WorkRing { log2, producer: start, consumer: start };
            let mut model = VecDeque::new();
            let mut next = start;
            for (add, count) in steps {
                if add {
                    let room = usize::from(ring.capacity()) - model.len();
                    prop_assert_eq!(usize::from(ring.free()), room);
                    let expected = (usize::from(count) <= room).then_some(next);
                    prop_assert_eq!(ring.claim(count), expected);
                    if expected.is_some() {
                        for _ in 0..count {
                            model.push_back(ring.slot(next));
                            next = next.wrapping_add(1);
                        }
                    }
                } else {
                    let target = ring.consumer_index().wrapping_add(count);
                    let possible = usize::from(count) <= model.len();
                    prop_assert_eq!(ring.release(target).is_ok(), possible);
                    if possible {
                        model.drain(..usize::from(count));
                    }
                }
                prop_assert_eq!(usize::from(ring.used()), model.len());
                // No slot is in use twice.
                let mut slots: Vec<_> = model.iter().copied().collect();
                slots.sort_unstable();
                slots.dedup();
                prop_assert_eq!(slots.len(), model.len());
            }
        }

        /// The card writes until the ring is full for it, the driver reads until it is empty.
        #[test]
        fn a_phase_ring_delivers_everything_once_and_in_order(
            log2 in 0u32..=4,
            index_bits in 5u32..=7,
            steps in proptest::collection::vec((0u32..20, 0u32..20), 1..200),
        ) {
            let words = cells(2 << log2);
            let mut ring = PhaseRing::new(log2, index_bits);
            let mask = (1 << index_bits) - 1;
            let (mut written, mut read) = (0u32, 0u32);
            let mut model = VecDeque::new();
            for (writes, reads) in steps {
                for _ in 0..writes {
                    if model.len() == 1 << log2 {
                        break;
                    }
                    let index = written & mask;
                    let slot = (index & ((1 << log2) - 1)) as usize;
                    words.store(2 * slot, u64::from(written), Ordering::Relaxed);
                    let last = [0, 0, 0, 0, 0, 0, 0, u8::from(phase(index, log2))];
                    words.store(2 * slot + 1, u64::from_ne_bytes(last), Ordering::Release);
                    model.push_back(u64::from(written));
                    written += 1;
                }
                for _ in 0..reads {
                    let entry = ring.next::<16>(&words);
                    let value = entry.map(|entry| u64::from_ne_bytes(entry[..8].try_into().unwrap()));
                    prop_assert_eq!(value, model.pop_front());
                    read += u32::from(value.is_some());
                    prop_assert_eq!(ring.consumer_index(), read & mask);
                }
            }
        }
    }
}
