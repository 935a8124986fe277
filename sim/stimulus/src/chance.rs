//! Chance: one seed from which every source of randomness in a world takes a stream of its own, by name.
//!
//! A stream depends on the seed and its name alone. A new consumer therefore leaves the draws of all others as they were,
//! and a run that failed keeps failing while somebody adds a monitor to it.
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use std::ops::Range;

/// What decides a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The stream of a consumer. Equal names give equal streams, so a name says whose it is: `card0/host/reads`.
    pub fn stream(self, name: &str) -> ChaCha8Rng {
        let mut hash = Sha256::new();
        hash.update(self.0.to_le_bytes());
        hash.update(name);
        ChaCha8Rng::from_seed(hash.finalize().into())
    }
}

/// Seeds that a property test runs: `count` of them from 0 on, unless `RNIC_SEEDS` gives another number or `RNIC_FIRST_SEED`
/// another first one.
///
/// # Panics
/// If one of these variables is set and is no number.
pub fn seeds(count: u64) -> Range<u64> {
    let first = number("RNIC_FIRST_SEED", 0);
    first..first + number("RNIC_SEEDS", count)
}

/// A number from the environment, or `default` if the variable is not set.
///
/// # Panics
/// If the variable is set and is no number: the run would look like the one that was asked for, and have another size.
pub fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, and must be a number")),
        Err(_) => default,
    }
}

/// Draws whether something happens. A probability of zero or one draws nothing, so that an option which is off costs nothing.
pub fn happens(random: &mut ChaCha8Rng, probability: f64) -> bool {
    probability > 0.0 && (probability >= 1.0 || random.random_bool(probability))
}

/// A span of time that is drawn anew each time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// Always the same.
    Fixed {
        /// How long.
        ps: u64,
    },
    /// Evenly between two bounds, both included.
    Uniform {
        /// The shortest.
        min_ps: u64,
        /// The longest.
        max_ps: u64,
    },
    /// Mostly one time, now and then anything up to a bound.
    Tail {
        /// What is usual.
        usual_ps: u64,
        /// How often it is longer.
        probability: f64,
        /// The longest.
        max_ps: u64,
    },
}

impl Delay {
    /// No time at all.
    pub const NONE: Delay = Delay::Fixed { ps: 0 };

    /// Always `ns` nanoseconds.
    pub const fn nanoseconds(ns: u64) -> Delay {
        Delay::Fixed { ps: ns * 1000 }
    }

    /// Draws one span.
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

    /// The longest span that can be drawn.
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
