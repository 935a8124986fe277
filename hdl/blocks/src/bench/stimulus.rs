//! Random values of hardware types, from one seed.
use crate::stream::Beat;
use num_bigint::BigUint;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rnic_kernel::prelude::*;

/// The generator of all randomness in tests; the same seed gives the same run on every machine.
pub type Random = ChaCha8Rng;

/// Starts a generator from `RNIC_SEED`, or from 1, and prints the seed for a failing test to show.
pub fn random() -> Random {
    let seed = std::env::var("RNIC_SEED").map_or(1, |text| text.parse().expect("RNIC_SEED is a number"));
    println!("replay with RNIC_SEED={seed}");
    Random::seed_from_u64(seed)
}

/// A hardware type that can be made of its bits.
pub trait Stimulus: Synth {
    /// Takes the low `BITS` bits of `number`, laid out as in Verilog.
    fn from_number(number: &BigUint) -> Self;

    /// Draws a value: often any, sometimes all zeros, all ones or a small number, where errors hide.
    fn sample(random: &mut Random) -> Self {
        let number = match random.random_range(0..8) {
            0 => BigUint::ZERO,
            1 => (BigUint::from(1u8) << Self::BITS) - 1u8,
            2 => BigUint::from(random.random_range(0..8u8)),
            _ => BigUint::from_bytes_le(
                &(0..Self::BITS.div_ceil(8)).map(|_| random.random()).collect::<Vec<u8>>(),
            ),
        };
        Self::from_number(&number)
    }
}

impl<const N: usize> Stimulus for Bits<N> {
    fn from_number(number: &BigUint) -> Self {
        (number & ((BigUint::from(1u8) << N) - 1u8)).into()
    }
}

impl Stimulus for Bit {
    fn from_number(number: &BigUint) -> Self {
        number.bit(0)
    }
}

impl<const DATA: usize, const BYTES: usize> Stimulus for Beat<DATA, BYTES> {
    fn from_number(number: &BigUint) -> Self {
        Beat {
            data: Stimulus::from_number(number),
            bytes: Stimulus::from_number(&(number >> DATA)),
            last: number.bit((DATA + BYTES) as u64),
            error: number.bit((DATA + BYTES + 1) as u64),
        }
    }
}
