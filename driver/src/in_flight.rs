//! Table of the requests in flight on one work queue: written by the thread that posts, emptied by the thread that polls, without
//! a lock. It is allocated once, and indexed by the slot of the ring in which a request's WQE begins.
//!
//! ```text
//!             head             tail                 positions: slots ever used, in 64 bits
//!   ┬──────────┬────────────────┬──────────┬        the low 16 bits are the index that doorbells and CQEs carry
//!   │  free    │   in flight    │  free    │
//!   ┴──────────┴────────────────┴──────────┴
//!              │ Retirer takes  │ Poster puts
//! ```
//!
//! 1. There is one [`Poster`] and one [`Retirer`], and neither can be cloned. Both work through `&mut self`.
//! 2. The entries from `head` to `tail` belong to the retirer, all others to the poster.
//! 3. Only the poster advances `tail`, after it has written the entry; only the retirer advances `head`, after it has emptied
//!    the entries. So an entry changes hands by the store and load of an index.
//! 4. A position is used once. What a CQE names is in flight or unknown, whatever the CQE says.
//! 5. After [`Poster::restart`] the positions continue with index 0 of the ring, and nothing can be put until [`Retirer::clear`]
//!    has taken what is left.

use crate::sync::{AtomicU64, UnsafeCell};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of values of a ring index in doorbells and CQEs.
const INDICES: u64 = 1 << 16;

struct Table<T> {
    entries: Box<[UnsafeCell<Option<T>>]>,
    /// Position of the oldest request in flight.
    head: AtomicU64,
    /// Position after the newest request in flight.
    tail: AtomicU64,
    /// Number of requests ever retired.
    retired: AtomicU64,
}

// SAFETY: Two threads access a table, one through the poster and one through the retirer, and never the same entry (rules 1 to 3
// above). An entry moves from the one thread to the other, so that its content must be `Send`.
#[expect(unsafe_code, reason = "an entry belongs to one thread at a time")]
unsafe impl<T: Send> Sync for Table<T> {}

impl<T> Table<T> {
    fn entry(&self, position: u64) -> &UnsafeCell<Option<T>> {
        &self.entries[position as usize & (self.entries.len() - 1)]
    }

    fn capacity(&self) -> u64 {
        self.entries.len() as u64
    }
}

/// Creates the table of an empty ring of 2^`log2` slots.
///
/// # Panics
///
/// If `log2` is above 15: with 16-bit indices a full ring would equal an empty one.
pub fn in_flight<T>(log2: u32) -> (Poster<T>, Retirer<T>) {
    assert!(log2 <= 15, "indices have 16 bits");
    let table = Arc::new(Table {
        entries: (0..1 << log2).map(|_| UnsafeCell::new(None)).collect(),
        head: AtomicU64::new(0),
        tail: AtomicU64::new(0),
        retired: AtomicU64::new(0),
    });
    let poster = Poster { table: Arc::clone(&table), tail: 0, head_seen: 0, posted: 0 };
    (poster, Retirer { table, head: 0, retired: 0 })
}

/// The side that posts.
pub struct Poster<T> {
    table: Arc<Table<T>>,
    tail: u64,
    /// The head when it was last read; the head may be further.
    head_seen: u64,
    /// Number of requests ever posted.
    posted: u64,
}

impl<T> Poster<T> {
    /// Position of the next request.
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// Number of free slots. The number is exact if it is below `wanted`; otherwise there may be more.
    pub fn free(&mut self, wanted: u64) -> u64 {
        let capacity = self.table.capacity();
        if capacity.saturating_sub(self.tail - self.head_seen) < wanted {
            self.head_seen = self.table.head.load(Ordering::Acquire);
        }
        capacity.saturating_sub(self.tail - self.head_seen)
    }

    /// Number of requests in flight.
    pub fn count(&self) -> u64 {
        self.posted - self.table.retired.load(Ordering::Relaxed)
    }

    /// Puts a request whose WQE occupies `slots` slots.
    ///
    /// # Panics
    ///
    /// If fewer are free, or `slots` is zero.
    #[expect(unsafe_code, reason = "a free entry belongs to the poster")]
    pub fn put(&mut self, request: T, slots: u64) {
        assert!(slots > 0 && self.free(slots) >= slots, "the slots are free");
        self.table.entry(self.tail).with_mut(|entry| {
            // SAFETY: The slot is free, so that the entry belongs to the poster until `tail` is stored below. The acquire load
            // of the head in `free` has made the retirer's last access of it happen before this one.
            unsafe { *entry = Some(request) }
        });
        self.posted += 1;
        self.tail += slots;
        self.table.tail.store(self.tail, Ordering::Release);
    }

    /// Continues with index 0 of the ring, as the card does after a reset of the queue pair. All slots count as in use until the
    /// retirer has cleared the table.
    pub fn restart(&mut self) {
        self.tail = (self.tail + self.table.capacity()).next_multiple_of(INDICES);
        self.table.tail.store(self.tail, Ordering::Release);
    }
}

/// The side that polls.
pub struct Retirer<T> {
    table: Arc<Table<T>>,
    head: u64,
    /// Number of requests ever retired.
    retired: u64,
}

impl<T> Retirer<T> {
    /// Number of slots of the ring.
    pub fn capacity(&self) -> usize {
        self.table.entries.len()
    }

    /// Positions of the requests in flight.
    pub fn range(&self) -> Range<u64> {
        let tail = self.table.tail.load(Ordering::Acquire);
        // After a restart the tail is far ahead of the last request.
        self.head..tail.min(self.head + self.table.capacity())
    }

    /// Looks at the request that begins at this position of [`Self::range`], or returns `None` if none does.
    #[expect(unsafe_code, reason = "an entry in flight belongs to the retirer")]
    pub fn look<R>(&self, position: u64, look: impl FnOnce(&T) -> R) -> Option<R> {
        if !self.range().contains(&position) {
            return None;
        }
        self.table.entry(position).with(|entry| {
            // SAFETY: The position is in flight, so that the entry belongs to the retirer, which is borrowed. The acquire load
            // of the tail in `range` has made the poster's write of it happen before this access.
            unsafe { (*entry).as_ref() }.map(look)
        })
    }

    /// Takes the requests before position `end`, oldest first, and frees their slots.
    ///
    /// # Panics
    ///
    /// If `end` is not within [`Self::range`] or its end.
    pub fn take_before(&mut self, end: u64, take: impl FnMut(T)) {
        let range = self.range();
        assert!((range.start..=range.end).contains(&end), "they are in flight");
        self.take(range.start..end, take);
        self.free_to(end);
    }

    /// Takes all requests, and frees all slots.
    pub fn clear(&mut self, take: impl FnMut(T)) {
        let tail = self.table.tail.load(Ordering::Acquire);
        self.take(self.range(), take);
        self.free_to(tail);
    }

    #[expect(unsafe_code, reason = "an entry in flight belongs to the retirer")]
    fn take(&mut self, positions: Range<u64>, mut take: impl FnMut(T)) {
        for position in positions {
            let request = self.table.entry(position).with_mut(|entry| {
                // SAFETY: As in `look`: both callers pass positions of `range`, and the retirer is borrowed exclusively.
                unsafe { (*entry).take() }
            });
            if let Some(request) = request {
                self.retired += 1;
                take(request);
            }
        }
    }

    fn free_to(&mut self, end: u64) {
        self.head = end;
        self.table.retired.store(self.retired, Ordering::Relaxed);
        self.table.head.store(end, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_position_that_is_not_in_flight_is_unknown() {
        let (mut poster, mut retirer) = in_flight(2);
        poster.put('a', 2);
        poster.put('b', 1);
        assert_eq!(
            [0, 1, 2, 3].map(|position| retirer.look(position, |&one| one)),
            [Some('a'), None, Some('b'), None]
        );
        retirer.take_before(2, |one| assert_eq!(one, 'a'));
        assert_eq!([0, 2, 4].map(|position| retirer.look(position, |&one| one)), [None, Some('b'), None]);
        assert_eq!((poster.free(4), poster.count()), (3, 1));
    }

    #[test]
    fn nothing_is_put_between_a_restart_and_its_clearing() {
        for before in [0, 3, 70_000] {
            let (mut poster, mut retirer) = in_flight(3);
            for _ in 0..before {
                poster.put(0, 1);
                retirer.take_before(poster.position(), drop);
            }
            poster.put(1, 1);
            poster.put(2, 2);
            poster.restart();
            assert_eq!((poster.free(1), poster.position() % INDICES), (0, 0));
            let mut left = Vec::new();
            retirer.clear(|one| left.push(one));
            assert_eq!((left, poster.free(8), poster.count()), (vec![1, 2], 8, 0));
            poster.put(3, 8);
            assert_eq!(retirer.look(poster.position() - 8, |&one| one), Some(3));
        }
    }

    #[test]
    #[should_panic(expected = "the slots are free")]
    fn a_full_table_takes_nothing() {
        let (mut poster, _retirer) = in_flight(0);
        poster.put((), 1);
        poster.put((), 1);
    }

    #[test]
    #[should_panic(expected = "they are in flight")]
    fn what_is_not_posted_is_not_taken() {
        let (mut poster, mut retirer) = in_flight(2);
        poster.put((), 1);
        retirer.take_before(2, drop);
    }

    #[test]
    fn what_is_in_flight_is_dropped_with_the_table() {
        let request = Arc::new(());
        let (mut poster, retirer) = in_flight(1);
        poster.put(Arc::clone(&request), 2);
        drop((poster, retirer));
        assert_eq!(Arc::strong_count(&request), 1);
    }

    proptest! {
        /// Compares the table with a queue, over many passes of the ring.
        #[test]
        fn a_table_is_a_bounded_queue(
            log2 in 1u32..=5,
            steps in proptest::collection::vec((any::<bool>(), 1u64..=2), 1..400),
        ) {
            let (mut poster, mut retirer) = in_flight(log2);
            let mut model = VecDeque::new();
            for (index, (adds, slots)) in steps.into_iter().enumerate() {
                let used: u64 = model.iter().map(|&(_, slots)| slots).sum();
                let free = (1 << log2) - used;
                prop_assert_eq!(poster.free(1 << log2), free);
                if adds && slots <= free {
                    poster.put(index, slots);
                    model.push_back((index, slots));
                } else if let Some((oldest, slots)) = model.pop_front() {
                    let end = retirer.range().start + slots;
                    let mut taken = Vec::new();
                    retirer.take_before(end, |one| taken.push(one));
                    prop_assert_eq!(taken, vec![oldest]);
                }
                prop_assert_eq!(poster.count() as usize, model.len());
            }
        }
    }
}
