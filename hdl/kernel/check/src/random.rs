//! Random values of ports, from one seed.
use num_bigint::BigUint;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rnic_kernel::prelude::*;

/// A seeded source of values that favours the ends of their range.
pub struct Random(ChaCha8Rng);

impl Random {
    /// The source with this seed.
    pub fn new(seed: u64) -> Random {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }

    /// One of `0..count`.
    pub fn below(&mut self, count: usize) -> usize {
        self.0.random_range(0..count)
    }

    /// A number of `width` bits: zero, all ones, small, one bit, near all ones, or anything.
    pub fn number(&mut self, width: usize) -> BigUint {
        let mask = (BigUint::from(1u8) << width) - 1u8;
        let bytes: Vec<u8> = (0..width.div_ceil(8)).map(|_| self.0.random()).collect();
        let any = BigUint::from_bytes_le(&bytes) & &mask;
        match self.below(10) {
            0 => BigUint::default(),
            1 => mask,
            2 => any & BigUint::from(7u8),
            3 => (BigUint::from(1u8) << self.below(width)) & mask,
            4 => (any & BigUint::from(3u8)) ^ mask,
            _ => any,
        }
    }
}

/// A type whose values a test can draw.
pub trait RandomValue {
    /// Draws a value.
    fn random(random: &mut Random) -> Self;
}

impl<const N: usize> RandomValue for Bits<N> {
    fn random(random: &mut Random) -> Self {
        random.number(N).into()
    }
}

impl RandomValue for bool {
    fn random(random: &mut Random) -> Self {
        random.below(2) == 1
    }
}
