//! Random streams: one seed, from which every source of randomness takes a stream of its own by name.
//!
//! A stream depends on the seed and its name only. A new consumer leaves the draws of all others as they were, so that a
//! failing run keeps failing when, for instance, a monitor is added to it.
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use std::ops::Range;

/// Seed of a run. Equal seeds give equal runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// Returns the stream of a consumer. Equal names give equal streams, so the name must be unique: `card0/host/reads`.
    pub fn stream(self, name: &str) -> ChaCha8Rng {
        let mut hash = Sha256::new();
        hash.update(self.0.to_le_bytes());
        hash.update(name);
        ChaCha8Rng::from_seed(hash.finalize().into())
    }
}

/// Seeds that a property test runs: `count` of them from 0 on, unless `RNIC_SEEDS` gives another count or `RNIC_FIRST_SEED`
/// another first seed.
///
/// # Panics
/// If one of these variables is set but is not a number.
pub fn seeds(count: u64) -> Range<u64> {
    let first = number("RNIC_FIRST_SEED", 0);
    first..first + number("RNIC_SEEDS", count)
}

/// Reads a number from the environment; `default` if the variable is not set.
///
/// # Panics
/// If the variable is set but is not a number, or is a count of seeds that is 0: the run would not be the one that was asked for.
pub fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => parsed(variable, &text),
        Err(_) => default,
    }
}

/// Parses a variable. A count of seeds must not be 0, or a test would pass with nothing run.
fn parsed(variable: &str, text: &str) -> u64 {
    let number = text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, and must be a number"));
    assert!(number > 0 || variable != "RNIC_SEEDS", "RNIC_SEEDS is 0, so nothing would run");
    number
}

/// Draws whether an event of this probability occurs. A probability of 0 or 1 draws nothing, so that a disabled option leaves
/// the stream as it is.
pub fn happens(random: &mut ChaCha8Rng, probability: f64) -> bool {
    probability > 0.0 && (probability >= 1.0 || random.random_bool(probability))
}

/// Distribution of a time span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// The same delay each time.
    Fixed {
        /// Length, in picoseconds.
        ps: u64,
    },
    /// Uniform between two bounds, both included.
    Uniform {
        /// Shortest span, in picoseconds.
        min_ps: u64,
        /// Longest span, in picoseconds.
        max_ps: u64,
    },
    /// Usually constant, sometimes longer.
    Tail {
        /// Usual span, in picoseconds.
        usual_ps: u64,
        /// Probability of a longer span.
        probability: f64,
        /// Longest span, in picoseconds.
        max_ps: u64,
    },
}

impl Delay {
    /// A delay of zero.
    pub const NONE: Delay = Delay::Fixed { ps: 0 };

    /// Constant, `ns` nanoseconds.
    pub const fn nanoseconds(ns: u64) -> Delay {
        Delay::Fixed { ps: ns * 1000 }
    }

    /// Draws a span, in picoseconds.
    pub fn draw_ps(&self, random: &mut ChaCha8Rng) -> u64 {
        match *self {
            Delay::Fixed { ps } => ps,
            Delay::Uniform { min_ps, max_ps } => random.random_range(min_ps..=max_ps),
            Delay::Tail { usual_ps, probability, max_ps } => {
                if happens(random, probability) {
                    random.random_range(usual_ps..=max_ps.max(usual_ps))
                } else {
                    usual_ps
                }
            }
        }
    }

    /// Longest span that can be drawn, in picoseconds.
    pub const fn max_ps(&self) -> u64 {
        match *self {
            Delay::Fixed { ps } => ps,
            Delay::Uniform { max_ps, .. } => max_ps,
            Delay::Tail { usual_ps, max_ps, .. } => {
                if max_ps > usual_ps {
                    max_ps
                } else {
                    usual_ps
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_depends_on_seed_and_name_alone() {
        let draw = |seed, name| -> [u64; 4] { std::array::from_fn(|_| Seed(seed).stream(name).random()) };
        let first = Seed(1).stream("card0/host").random::<u64>();
        assert_eq!(first, Seed(1).stream("card0/host").random::<u64>());
        assert_ne!(draw(1, "card0/host"), draw(1, "card1/host"));
        assert_ne!(draw(1, "card0/host"), draw(2, "card0/host"));
    }

    #[test]
    fn no_seeds_are_no_run() {
        assert_eq!((parsed("RNIC_SEEDS", "3"), parsed("RNIC_FIRST_SEED", "0")), (3, 0));
        for (variable, text) in [("RNIC_SEEDS", "0"), ("RNIC_SEEDS", ""), ("RNIC_FIRST_SEED", "many")] {
            assert!(std::panic::catch_unwind(|| parsed(variable, text)).is_err(), "{variable}={text}");
        }
    }

    #[test]
    fn delays_stay_within_their_bounds_and_reach_them() {
        let mut random = Seed(3).stream("delays");
        let delays = [
            Delay::Fixed { ps: 7 },
            Delay::Uniform { min_ps: 3, max_ps: 5 },
            Delay::Tail { usual_ps: 2, probability: 0.3, max_ps: 6 },
        ];
        for (delay, min_ps, max_ps) in [(delays[0], 7, 7), (delays[1], 3, 5), (delays[2], 2, 6)] {
            let drawn: Vec<u64> = (0..500).map(|_| delay.draw_ps(&mut random)).collect();
            assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&min_ps), Some(&max_ps)), "{delay:?}");
            assert_eq!(delay.max_ps(), max_ps);
        }
    }

    #[test]
    fn what_cannot_happen_draws_nothing() {
        let mut random = Seed(1).stream("x");
        let untouched = random.clone();
        assert!(!happens(&mut random, 0.0) && happens(&mut random, 1.0));
        assert_eq!(random, untouched);
    }
}
