//! IdAllocator of objects: which are in use, and how new ones are drawn.
//!
//! The card's tables are indexed by the low bits of a number. QPNs and keys carry random bits above them, so that a
//! stale or guessed number meets nothing (design decision 14).

use crate::error::Error;
use rand::Rng;
use rnic_layout::limits::QPN_BITS;

/// Indices of one of the card's tables.
#[derive(Debug)]
pub(crate) struct IdAllocator {
    what: &'static str,
    limit: u32,
    /// One bit an index, as far as indices were ever taken.
    used: Vec<u64>,
}

impl IdAllocator {
    pub(crate) fn new(what: &'static str, log2: u32) -> Self {
        Self { what, limit: 1 << log2, used: Vec::new() }
    }

    /// Takes the lowest free index.
    pub(crate) fn allocate_lowest(&mut self) -> Result<u32, Error> {
        self.take_from(0)
    }

    /// Takes a free index, random as long as the table is not crowded.
    pub(crate) fn allocate_random(&mut self, rng: &mut impl Rng) -> Result<u32, Error> {
        let start = rng.random_range(0..self.limit);
        self.take_from(start)
    }

    /// Takes the first free index from `start` on, and goes on at zero.
    fn take_from(&mut self, start: u32) -> Result<u32, Error> {
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

    /// Gives an index back; bits above the table's size are ignored.
    pub(crate) fn free(&mut self, number: u32) {
        let index = number % self.limit;
        if let Some(word) = self.used.get_mut((index / 64) as usize) {
            *word &= !(1 << (index % 64));
        }
    }

    /// Takes a random index, and puts random bits above it, `bits` in all. `refused` are numbers with a meaning.
    pub(crate) fn allocate_unpredictable(
        &mut self,
        rng: &mut impl Rng,
        bits: u32,
        refused: &[u32],
    ) -> Result<u32, Error> {
        let index = self.allocate_random(rng)?;
        loop {
            let high = rng.random::<u32>() & (u32::MAX >> (32 - bits)) & !(self.limit - 1);
            if !refused.contains(&(high | index)) {
                return Ok(high | index);
            }
            if self.limit == 1 << bits {
                // There are no random bits: the refused number stays taken, and the next one is tried.
                return self.allocate_unpredictable(rng, bits, refused);
            }
        }
    }
}

/// QPNs with a meaning on the wire: management, and multicast.
pub(crate) const RESERVED_QPNS: &[u32] = &[0, 1, (1 << QPN_BITS) - 1];

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    #[test]
    fn every_index_is_handed_out_once() {
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        let mut numbers = IdAllocator::new("queue pairs", 7);
        let mut seen: Vec<u32> = (0..128).map(|_| numbers.allocate_random(&mut rng).unwrap()).collect();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..128));
        assert!(matches!(numbers.allocate_lowest(), Err(Error::Exhausted { limit: 128, .. })));
        numbers.free(100);
        numbers.free(0x1200 | 70);
        assert_eq!(numbers.allocate_lowest().unwrap(), 70);
        assert_eq!(numbers.allocate_lowest().unwrap(), 100);
    }

    #[test]
    fn numbers_with_a_meaning_are_not_drawn() {
        let mut rng = ChaCha12Rng::seed_from_u64(2);
        // A table of one: only the random bits tell QPNs apart.
        let mut numbers = IdAllocator::new("queue pairs", 0);
        for _ in 0..100 {
            let number = numbers.allocate_unpredictable(&mut rng, 2, &[0, 1, 3]).unwrap();
            assert_eq!(number, 2);
            numbers.free(number);
        }
        // No random bits at all: the reserved numbers are never handed out.
        let mut numbers = IdAllocator::new("queue pairs", 2);
        assert_eq!(numbers.allocate_unpredictable(&mut rng, 2, &[0, 1, 3]).unwrap(), 2);
        assert!(numbers.allocate_unpredictable(&mut rng, 2, &[0, 1, 3]).is_err());
    }
}
