//! Random values of hardware types, from one seed.
use crate::stream::Beat;
use num_bigint::BigUint;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rnic_kernel::prelude::*;

/// The generator of all randomness in tests; the same seed gives the same run on every machine.
pub type Random = ChaCha8Rng;

/// Starts a generator and prints its seed for a failing test to show: `RNIC_SEED` if it is set; else `RNIC_MOVING_SEED` in half
/// of the tests, chosen by their names and by the number itself, which `scripts/test.sh` derives from the commit; else 1.
pub fn random() -> Random {
    let number = |variable: &str| {
        let text = std::env::var(variable).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, and must be a number")))
    };
    let test = std::thread::current().name().unwrap_or_default().to_string();
    let seed = number("RNIC_SEED").unwrap_or_else(|| seed_of(&test, number("RNIC_MOVING_SEED")));
    let package =
        std::env::var("CARGO_PKG_NAME").map_or_else(|_| String::new(), |name| format!(" -p {name}"));
    println!("replay with RNIC_SEED={seed} cargo test{package} -- --exact {test}");
    Random::seed_from_u64(seed)
}

/// The seed of a test, given the number that moves.
fn seed_of(test: &str, moving: Option<u64>) -> u64 {
    let fixed = 1;
    moving.filter(|moving| (test.bytes().map(u64::from).sum::<u64>() % 2) != moving % 2).unwrap_or(fixed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_another_seed_at_every_other_number() {
        assert_eq!(["a", "b"].map(|test| seed_of(test, None)), [1, 1]);
        assert_eq!(["a", "b"].map(|test| seed_of(test, Some(40))), [40, 1]);
        assert_eq!(["a", "b"].map(|test| seed_of(test, Some(41))), [1, 41]);
    }
}
