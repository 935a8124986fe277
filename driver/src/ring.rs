//! Index and phase logic of all rings, without a device and without memory of its own.
//!
//! ```text
//!   work (send, receive)                        answers, completions, events
//!
//!   driver: claim ─> write slots ─> doorbell    card: write entry, phase last
//!   card:   reads below the doorbell's index    driver: next ─> entry, or nothing while the phase is old
//!   driver: release up to consumer_index        driver: doorbell with the index up to which it has read
//! ```
//!
//! Indices run free and are masked where they meet memory, so that a full ring differs from an empty one. The memory is
//! anything that has [`Words`]; the tests of the handshake run the same code over atomics that explore every order
//! that the memory model allows.

use rnic_layout::queue::phase;
use std::sync::atomic::Ordering;

/// Memory in words of 64 bits, shared with the card. Byte *n* of an entry is byte *n mod 8*, in memory order, of word
/// *n / 8*.
pub trait Words {
    /// Reads a word.
    fn load(&self, word: usize, order: Ordering) -> u64;
    /// Writes a word.
    fn store(&self, word: usize, value: u64, order: Ordering);
}

const WORD_BYTES: usize = 8;

/// Writes a slot of a work ring. The doorbell that follows makes it visible, so nothing is ordered here.
pub fn write_slot<const BYTES: usize>(words: &impl Words, slot: usize, bytes: &[u8; BYTES]) {
    let (chunks, rest) = bytes.as_chunks::<WORD_BYTES>();
    debug_assert!(rest.is_empty(), "slots are whole words");
    let first = slot * chunks.len();
    for (place, chunk) in chunks.iter().enumerate() {
        words.store(first + place, u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
}

/// An index that cannot be: it frees slots that were never filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("consumer index {found} is not between {consumer} and {producer}")]
pub struct IndexError {
    /// What the card said.
    pub found: u16,
    /// First slot in use.
    pub consumer: u16,
    /// First slot not yet filled.
    pub producer: u16,
}

/// The driver's side of a ring that it fills: send and receive queues, admin commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRing {
    log2: u32,
    producer: u16,
    consumer: u16,
}

impl WorkRing {
    /// Makes an empty ring of 2^`log2` slots.
    ///
    /// # Panics
    ///
    /// If `log2` is beyond 15: indices of 16 bits could not tell full from empty.
    pub const fn new(log2: u32) -> Self {
        assert!(log2 <= 15, "indices have 16 bits");
        Self { log2, producer: 0, consumer: 0 }
    }

    /// Slots of the ring.
    pub const fn capacity(&self) -> u16 {
        1 << self.log2
    }

    /// Slots in use.
    pub const fn used(&self) -> u16 {
        self.producer.wrapping_sub(self.consumer)
    }

    /// Slots that can be claimed.
    pub const fn free(&self) -> u16 {
        self.capacity() - self.used()
    }

    /// Index for the doorbell: slots ever claimed.
    pub const fn producer_index(&self) -> u16 {
        self.producer
    }

    /// Index of the first slot in use.
    pub const fn consumer_index(&self) -> u16 {
        self.consumer
    }

    /// Place of an index in the ring.
    pub const fn slot(&self, index: u16) -> usize {
        (index & (self.capacity() - 1)) as usize
    }

    /// Claims slots in a row, which may run over the end of the ring, and gives the index of the first; `None` if there
    /// is no room, and then nothing is claimed.
    pub const fn claim(&mut self, slots: u16) -> Option<u16> {
        if slots > self.free() {
            return None;
        }
        let first = self.producer;
        self.producer = first.wrapping_add(slots);
        Some(first)
    }

    /// Frees all slots before an index that the card has given.
    ///
    /// # Errors
    ///
    /// If it is not the index of a slot in use or of the next to be filled; nothing is freed then.
    pub const fn release(&mut self, consumer: u16) -> Result<(), IndexError> {
        if consumer.wrapping_sub(self.consumer) > self.used() {
            let (producer, first) = (self.producer, self.consumer);
            return Err(IndexError { found: consumer, consumer: first, producer });
        }
        self.consumer = consumer;
        Ok(())
    }
}

/// The driver's side of a ring that the card fills: admin answers, completions, events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseRing {
    log2: u32,
    index_bits: u32,
    index: u32,
}

impl PhaseRing {
    /// Makes the reader of a zeroed ring of 2^`log2` entries, whose indices have `index_bits` bits.
    ///
    /// # Panics
    ///
    /// If an index has no bit for the phase, or more than 32.
    pub const fn new(log2: u32, index_bits: u32) -> Self {
        assert!(log2 < index_bits && index_bits <= 32, "the phase is a bit of the index");
        Self { log2, index_bits, index: 0 }
    }

    /// Entries ever read, modulo 2^`index_bits`: the index for the doorbell.
    pub const fn consumer_index(&self) -> u32 {
        self.index
    }

    /// Takes the next entry, if the card has written it.
    pub fn next<const BYTES: usize>(&mut self, words: &impl Words) -> Option<[u8; BYTES]> {
        let entry = self.peek(words)?;
        self.index = self.index.wrapping_add(1) & (u32::MAX >> (32 - self.index_bits));
        Some(entry)
    }

    /// Shows the next entry, if the card has written it, and leaves it there.
    pub fn peek<const BYTES: usize>(&self, words: &impl Words) -> Option<[u8; BYTES]> {
        let mut entry = [0; BYTES];
        let (chunks, rest) = entry.as_chunks_mut::<WORD_BYTES>();
        debug_assert!(rest.is_empty(), "entries are whole words");
        let slot = self.index & ((1 << self.log2) - 1);
        let first = slot as usize * chunks.len();
        let (last, others) = chunks.split_last_mut()?;
        // Whoever sees the new phase also sees what was written before it.
        *last = words.load(first + others.len(), Ordering::Acquire).to_ne_bytes();
        if (last[WORD_BYTES - 1] & 1 == 1) != phase(self.index, self.log2) {
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
        /// The ring against a queue of what is in it, over several wraps of its 16-bit indices.
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

        /// A card that writes as far as it knows the reader has come, and a reader that takes what is there.
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
