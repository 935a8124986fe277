//! Clocks: times of rising edges, without drift at any frequency.
//!
//! 322.265625 MHz has a period of 3103.03 ps. Edges are at whole picoseconds, each less than one before its exact time:
//! 322,265,625 cycles take exactly one second.
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_stimulus::chance::Seed;

pub use rnic_monitor::rates::SECOND_PS;

/// Frequency and jitter of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOptions {
    /// Frequency, in hertz.
    pub hertz: u64,
    /// Largest delay of an edge, in picoseconds. Each edge is late by a random time up to this, without drift. Clamped to less
    /// than half a period.
    pub jitter_ps: u64,
}

impl ClockOptions {
    /// A clock without jitter.
    pub const fn steady(hertz: u64) -> ClockOptions {
        ClockOptions { hertz, jitter_ps: 0 }
    }
}

/// A clock of a world.
#[derive(Clone, Debug)]
pub struct Clock {
    hertz: u64,
    jitter_ps: u64,
    random: ChaCha8Rng,
    /// Time of the next edge without jitter: whole picoseconds, and a fraction in units of `1 / hertz`.
    ideal_ps: u64,
    fraction: u64,
    next_ps: u64,
    cycles: u64,
}

impl Clock {
    /// Makes a clock with a random start phase from the stream `name`: its first edge comes within a period after `now_ps`.
    ///
    /// # Panics
    /// If the frequency is zero or above 1 THz.
    pub fn new(options: ClockOptions, now_ps: u64, seed: Seed, name: &str) -> Clock {
        assert!((1..=SECOND_PS).contains(&options.hertz), "a clock has 1 Hz to 1 THz");
        let mut random = seed.stream(name);
        let period_ps = SECOND_PS / options.hertz;
        let ideal_ps = now_ps + 1 + random.random_range(0..period_ps);
        let jitter_ps = options.jitter_ps.min(period_ps.saturating_sub(1) / 2);
        Clock { hertz: options.hertz, jitter_ps, random, ideal_ps, fraction: 0, next_ps: ideal_ps, cycles: 0 }
    }

    /// Time of the next rising edge.
    #[inline]
    pub fn next_ps(&self) -> u64 {
        self.next_ps
    }

    /// Rising edges so far.
    #[inline]
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Period in picoseconds, rounded down.
    pub fn period_ps(&self) -> u64 {
        SECOND_PS / self.hertz
    }

    /// Delays all further edges, after the clock was stopped for this time.
    pub fn shift(&mut self, by_ps: u64) {
        self.ideal_ps += by_ps;
        self.next_ps += by_ps;
    }

    /// Advances to the next edge.
    #[inline]
    pub fn advance(&mut self) {
        self.cycles += 1;
        self.ideal_ps += SECOND_PS / self.hertz;
        self.fraction += SECOND_PS % self.hertz;
        if self.fraction >= self.hertz {
            self.fraction -= self.hertz;
            self.ideal_ps += 1;
        }
        self.next_ps = self.ideal_ps;
        if self.jitter_ps > 0 {
            self.next_ps += self.random.random_range(0..=self.jitter_ps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_frequency_does_not_drift() {
        let mut clock = Clock::new(ClockOptions::steady(322_265_625), 0, Seed(1), "mac");
        let start = clock.next_ps();
        let mut last = start;
        // 322,265,625 edges take a second, so 41,250 take 128 us.
        for _ in 0..41_250 {
            clock.advance();
            assert!(matches!(clock.next_ps() - last, 3103 | 3104));
            last = clock.next_ps();
        }
        assert_eq!(last - start, 128_000_000);
        assert_eq!(clock.cycles(), 41_250);
    }

    #[test]
    fn jitter_moves_edges_but_keeps_their_order_and_the_frequency() {
        let mut clock = Clock::new(ClockOptions { hertz: 250_000_000, jitter_ps: 9_000 }, 0, Seed(1), "core");
        let start = clock.next_ps();
        let (mut last, mut late) = (start, 0);
        for cycle in 1..1000 {
            clock.advance();
            assert!(clock.next_ps() > last, "edges keep their order");
            last = clock.next_ps();
            let offset = last - (start + cycle * 4000);
            assert!(offset < 2000, "jitter is clamped to half a period");
            late += u64::from(offset > 0);
        }
        assert!(late > 900, "jitter was asked for");
    }

    #[test]
    fn phases_differ_by_name_and_repeat_by_seed() {
        let first = |seed, name| Clock::new(ClockOptions::steady(1_000_000), 5, Seed(seed), name).next_ps();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
        assert!((6..=1_000_005).contains(&first(1, "a")));
    }
}
