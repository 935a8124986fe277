//! Allocation of object numbers.
//!
//! The low bits of a number are its index in a table of the card. QPNs and keys carry random bits above the index, so that
//! a stale or guessed number matches no object (design decision 14).

use crate::error::Error;
use rand::Rng;
use rnic_layout::limits::QPN_BITS;

/// Allocator of the indices of one table of the card.
#[derive(Debug)]
pub(crate) struct IdAllocator {
    /// Kind of object, for error messages.
    what: &'static str,
    /// Size of the table.
    limit: u32,
    /// One bit per index, up to the highest word that was ever used.
    used: Vec<u64>,
}

impl IdAllocator {
    /// Creates the allocator of a table of 2^`log2` objects.
    pub(crate) fn new(what: &'static str, log2: u32) -> Self {
        Self { what, limit: 1 << log2, used: Vec::new() }
    }

    /// Allocates the lowest free index.
    pub(crate) fn allocate_lowest(&mut self) -> Result<u32, Error> {
        self.allocate_from(0)
    }

    /// Allocates the first free index from a random one on, wrapping at the end of the table.
    pub(crate) fn allocate_random(&mut self, rng: &mut impl Rng) -> Result<u32, Error> {
        let start = rng.random_range(0..self.limit);
        self.allocate_from(start)
    }

    /// Allocates the first free index from `start` on, wrapping at the end of the table.
    fn allocate_from(&mut self, start: u32) -> Result<u32, Error> {
        let found = (start..self.limit).chain(0..start).find(|&index| !self.is_used(index));
        let index = found.ok_or(Error::Exhausted { what: self.what, limit: self.limit })?;
        let word = (index / 64) as usize;
        if self.used.len() <= word {
            self.used.resize(word + 1, 0);
        }
        self.used[word] |= 1 << (index % 64);
        Ok(index)
    }

    fn is_used(&self, index: u32) -> bool {
        self.used.get((index / 64) as usize).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// Number of indices that are allocated.
    pub(crate) fn in_use(&self) -> u32 {
        self.used.iter().map(|word| word.count_ones()).sum()
    }

    /// Frees the index of a number; bits above the index are ignored.
    pub(crate) fn free(&mut self, number: u32) {
        let index = number % self.limit;
        if let Some(word) = self.used.get_mut((index / 64) as usize) {
            *word &= !(1 << (index % 64));
        }
    }

    /// Allocates a random index and sets random bits above it, `bits` bits in all. Never returns a number in `reserved`.
    pub(crate) fn allocate_unpredictable(
        &mut self,
        rng: &mut impl Rng,
        bits: u32,
        reserved: &[u32],
    ) -> Result<u32, Error> {
        let index = self.allocate_random(rng)?;
        loop {
            let high = rng.random::<u32>() & (u32::MAX >> (32 - bits)) & !(self.limit - 1);
            if !reserved.contains(&(high | index)) {
                return Ok(high | index);
            }
            if self.limit == 1 << bits {
                // No random bits: the reserved number stays allocated, and another index is tried.
                return self.allocate_unpredictable(rng, bits, reserved);
            }
        }
    }
}

/// QPNs with a fixed meaning on the wire: 0 and 1 for management, the highest for multicast.
pub(crate) const RESERVED_QPNS: &[u32] = &[0, 1, (1 << QPN_BITS) - 1];

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    #[test]
    fn every_index_is_allocated_once() {
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        let mut ids = IdAllocator::new("queue pairs", 7);
        let mut seen: Vec<u32> = (0..128).map(|_| ids.allocate_random(&mut rng).unwrap()).collect();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..128));
        assert_eq!(ids.in_use(), 128);
        assert!(matches!(ids.allocate_lowest(), Err(Error::Exhausted { limit: 128, .. })));
        ids.free(100);
        ids.free(0x1200 | 70);
        assert_eq!(ids.in_use(), 126);
        assert_eq!(ids.allocate_lowest().unwrap(), 70);
        assert_eq!(ids.allocate_lowest().unwrap(), 100);
    }

    #[test]
    fn reserved_numbers_are_not_allocated() {
        let mut rng = ChaCha12Rng::seed_from_u64(2);
        // A table of one index: QPNs differ in their random bits only.
        let mut ids = IdAllocator::new("queue pairs", 0);
        for _ in 0..100 {
            let number = ids.allocate_unpredictable(&mut rng, 2, &[0, 1, 3]).unwrap();
            assert_eq!(number, 2);
            ids.free(number);
        }
        // No random bits at all: the reserved numbers are never returned.
        let mut ids = IdAllocator::new("queue pairs", 2);
        assert_eq!(ids.allocate_unpredictable(&mut rng, 2, &[0, 1, 3]).unwrap(), 2);
        assert!(ids.allocate_unpredictable(&mut rng, 2, &[0, 1, 3]).is_err());
    }
}
