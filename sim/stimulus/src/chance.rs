//! Random streams: one seed, from which every source of randomness takes a stream of its own by name.
//!
//! A stream depends on the seed and its name only. A new consumer leaves the draws of all others as they were, so that a
//! failing run keeps failing when, for instance, a monitor is added to it.
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;

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

/// Environment variable with the first of the seeds that move. `scripts/test.sh` derives it from the commit.
pub const MOVING_VARIABLE: &str = "RNIC_MOVING_SEED";

/// Seeds that a property test runs: `count` of them from 0 on, unless `RNIC_SEEDS` gives another count or `RNIC_FIRST_SEED`
/// another first seed. If neither is set and `RNIC_MOVING_SEED` is, half of the seeds are those that it chooses; whether an odd
/// one is among them depends on the test and on the variable. Each seed is printed with the command that repeats it.
///
/// # Panics
/// If one of these variables is set but is not a number, or no seed is left: a test that runs nothing must not pass.
pub fn seeds(count: u64) -> Seeds {
    let is_set = |variable| std::env::var_os(variable).is_some();
    let count = number("RNIC_SEEDS", count);
    assert!(count > 0, "no seed is run");
    if is_set("RNIC_FIRST_SEED") || is_set("RNIC_SEEDS") {
        let first = number("RNIC_FIRST_SEED", 0);
        return Seeds { seeds: (first..first + count).collect() };
    }
    let moving = is_set(MOVING_VARIABLE).then(|| number(MOVING_VARIABLE, 0));
    Seeds { seeds: divided(count, moving, &test_name()).collect() }
}

/// The seed of a property test that runs one: `fixed` by default, and otherwise as [`seeds`] chooses it.
///
/// # Panics
/// As [`seeds`].
pub fn seed(fixed: u64) -> u64 {
    let seed = match seeds(1).seeds[0] {
        0 if std::env::var_os("RNIC_FIRST_SEED").is_none() => fixed,
        seed => seed,
    };
    println!("replay with {}", replay(seed));
    seed
}

/// Divides seeds into fixed ones from 0 on and, if there is a `moving` number, as many that depend on it.
///
/// A moving seed ends with the digits of the fixed one whose place it takes, so that a test that does something special for one
/// seed in ten keeps doing it as often.
fn divided(count: u64, moving: Option<u64>, test: &str) -> impl Iterator<Item = u64> {
    let odd = test.bytes().map(u64::from).sum::<u64>() + moving.unwrap_or(0);
    let fixed = moving.map_or(count, |_| (count + odd % 2) / 2);
    (0..count).map(move |seed| if seed < fixed { seed } else { (moving.unwrap_or(0) + 1) * 1000 + seed })
}

/// Name of the test that this thread runs.
fn test_name() -> String {
    std::thread::current().name().unwrap_or_default().to_string()
}

/// The command that runs this test with one seed. Cargo says the package; the test's name is that of its thread.
fn replay(seed: u64) -> String {
    let package =
        std::env::var("CARGO_PKG_NAME").map_or_else(|_| String::new(), |name| format!(" -p {name}"));
    format!("RNIC_FIRST_SEED={seed} RNIC_SEEDS=1 cargo test{package} -- --exact {}", test_name())
}

/// Seeds that a property test runs. Each is printed when it is taken, so that the last one before a failure is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds {
    seeds: VecDeque<u64>,
}

impl Seeds {
    /// Appends seeds that follow the last one.
    #[must_use]
    pub fn and_more(mut self, count: u64) -> Seeds {
        let next = self.seeds.back().map_or(0, |last| last + 1);
        self.seeds.extend(next..next + count);
        self
    }
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let seed = self.seeds.pop_front()?;
        println!("replay with {}", replay(seed));
        Some(seed)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.seeds.len(), Some(self.seeds.len()))
    }
}

impl ExactSizeIterator for Seeds {}

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
        Delay::Fixed { ps: ns.saturating_mul(1000) }
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
    fn half_of_the_seeds_move() {
        let divided = |count, moving, test| divided(count, moving, test).collect::<Vec<u64>>();
        assert_eq!(divided(3, None, "a"), [0, 1, 2], "without a commit all are fixed");
        assert_eq!(divided(4, Some(7), "a"), [0, 1, 8002, 8003]);
        assert_eq!(divided(4, Some(8), "a"), [0, 1, 9002, 9003]);
        // The sum of the name and of the number decides about an odd one.
        assert_eq!(divided(3, Some(7), "a"), [0, 8001, 8002]);
        assert_eq!(divided(3, Some(7), "b"), [0, 1, 8002]);
        assert_eq!(divided(3, Some(8), "a"), [0, 1, 9002]);
        assert_eq!(divided(1, Some(8), "a"), [0]);
        assert_eq!(divided(1, Some(7), "a"), [8000]);
        // No two numbers share a seed.
        assert_eq!(divided(1000, Some(0), "a")[999], 1999);
    }

    #[test]
    fn further_seeds_follow_the_last_one() {
        let seeds = Seeds { seeds: [3, 8002].into() };
        assert_eq!(seeds.len(), 2);
        assert_eq!(seeds.and_more(2).collect::<Vec<u64>>(), [3, 8002, 8003, 8004]);
    }

    #[test]
    fn a_seed_is_repeated_by_one_command() {
        let test = "chance::tests::a_seed_is_repeated_by_one_command";
        let expected =
            format!("RNIC_FIRST_SEED=5 RNIC_SEEDS=1 cargo test -p rnic-stimulus -- --exact {test}");
        assert_eq!(replay(5), expected);
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
