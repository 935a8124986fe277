//! Link: the time that bytes take between card and host, in one direction.
use crate::world::clock::SECOND_PS;

/// A serial link, which sends one message after the other.
#[derive(Clone, Debug)]
pub struct Link {
    bytes_per_second: u64,
    free_ps: u64,
    /// Fraction of `free_ps` below a picosecond, in units of `1 / bytes_per_second`.
    fraction: u64,
}

impl Link {
    /// Makes an idle link.
    ///
    /// # Panics
    /// If the rate is zero or above 1 TB/s.
    pub fn new(bytes_per_second: u64) -> Link {
        assert!((1..=SECOND_PS).contains(&bytes_per_second), "a link has 1 B/s to 1 TB/s");
        Link { bytes_per_second, free_ps: 0, fraction: 0 }
    }

    /// Sends bytes after all earlier ones, and returns the time at which the last one has arrived.
    pub fn send(&mut self, now_ps: u64, bytes: u64) -> u64 {
        if self.free_ps < now_ps {
            self.free_ps = now_ps;
            self.fraction = 0;
        }
        // A message has a few kilobytes at most, so the product stays below 2^64.
        self.fraction += bytes * SECOND_PS % self.bytes_per_second;
        self.free_ps += bytes * SECOND_PS / self.bytes_per_second;
        if self.fraction >= self.bytes_per_second {
            self.fraction -= self.bytes_per_second;
            self.free_ps += 1;
        }
        self.free_ps
    }

    /// Time until all that was sent has arrived, in picoseconds.
    pub fn backlog_ps(&self, now_ps: u64) -> u64 {
        self.free_ps.saturating_sub(now_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_messages_take_as_long_as_one_large_one() {
        let (mut small, mut large) = (Link::new(15_400_000_000), Link::new(15_400_000_000));
        let mut end = 0;
        for _ in 0..1540 {
            end = small.send(0, 100);
        }
        assert_eq!(end, 10_000_000, "154 kB at 15.4 GB/s take 10 us");
        assert_eq!(end, large.send(0, 154_000));
    }

    #[test]
    fn a_link_that_was_idle_starts_at_once() {
        let mut link = Link::new(1_000_000_000);
        assert_eq!(link.send(0, 10), 10_000);
        assert_eq!(link.backlog_ps(4_000), 6_000);
        assert_eq!(link.send(50_000, 1), 51_000);
        assert_eq!(link.backlog_ps(60_000), 0);
    }
}
