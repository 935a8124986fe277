//! A station that keeps simulated time at a ratio of wall-clock time, for a peer whose timers run in wall-clock time.
//!
//! ```text
//!   World ── Paced ── Socket, Datagrams, any other ══ process with timers of its own
//! ```
//!
//! Simulated time passes as fast as the machine computes: quickly while nothing happens, slowly while frames fly. To a peer in
//! wall-clock time the card's answers would come at any speed, and a timer of either side would mean another time for the other.
//! With a **slowdown** of 10,000 a microsecond of simulated time takes 10 ms, always: the world waits where it is faster. Then a
//! peer divides its clock by the slowdown, as `rnic-sim peer` does, or, if it is a kernel, asks for a timeout of
//! [`timeout_code`].
//!
//! A machine that is too slow for the ratio falls [behind](Paced::behind).
use super::{Frame, Station};
use std::os::fd::BorrowedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Simulated time between two looks at the clock, in picoseconds.
const LOOK_PS: u64 = 1_000_000;
/// What the world may be late and still catch up with at its own speed.
const LATE_MAX: Duration = Duration::from_millis(20);

/// The code of the acknowledgement timeout that in wall-clock time is what `code` is in simulated time, or the next longer one: a
/// timeout is 4.096 us x 2^code (protocol 2.6). Code 0, which is no timeout, stays; 31 is the longest.
pub fn timeout_code(code: u8, slowdown: u32) -> u8 {
    let doublings = u64::from(slowdown).next_power_of_two().trailing_zeros() as u8;
    if code == 0 { 0 } else { code.saturating_add(doublings).min(31) }
}

/// The station around another one.
#[derive(Debug)]
pub struct Paced<S> {
    station: S,
    slowdown: u32,
    /// Wall-clock time of a simulated time from which on the ratio is kept.
    origin: Option<(Instant, u64)>,
    next_ps: u64,
    behind: Duration,
}

impl<S: Station> Paced<S> {
    /// Lets a simulated second take `slowdown` seconds, from the first look of the world on. A slowdown of 0 counts as 1.
    pub fn new(station: S, slowdown: u32) -> Paced<S> {
        Paced { station, slowdown: slowdown.max(1), origin: None, next_ps: 0, behind: Duration::ZERO }
    }

    /// The other station.
    pub fn station(&mut self) -> &mut S {
        &mut self.station
    }

    /// Wall-clock time by which simulated time is later than the ratio says, in total: the machine was too slow, or the software did
    /// not let time advance. The peer has seen a slower card meanwhile, and its timers may have expired.
    pub fn behind(&self) -> Duration {
        self.behind
    }

    fn keep_pace(&mut self, now_ps: u64) {
        self.next_ps = now_ps.saturating_add(LOOK_PS);
        let (start, start_ps) = *self.origin.get_or_insert_with(|| (Instant::now(), now_ps));
        let due_ns = u128::from(now_ps - start_ps) * u128::from(self.slowdown) / 1000;
        let due = Duration::from_nanos(u64::try_from(due_ns).unwrap_or(u64::MAX));
        let passed = start.elapsed();
        match due.checked_sub(passed) {
            Some(early) => sleep(early),
            None => {
                let lost = (passed - due).saturating_sub(LATE_MAX);
                self.behind += lost;
                self.origin = Some((start + lost, start_ps));
            }
        }
    }
}

impl<S: Station> Station for Paced<S> {
    fn receive(&mut self, now_ps: u64, frame: &Frame) {
        self.station.receive(now_ps, frame);
    }

    fn wakes_ps(&self) -> Option<u64> {
        Some(self.station.wakes_ps().map_or(self.next_ps, |wakes_ps| wakes_ps.min(self.next_ps)))
    }

    fn transmit(&mut self, now_ps: u64) -> Option<Frame> {
        if self.next_ps <= now_ps {
            self.keep_pace(now_ps);
        }
        let is_due = self.station.wakes_ps().is_some_and(|wakes_ps| wakes_ps <= now_ps);
        is_due.then(|| self.station.transmit(now_ps)).flatten()
    }

    fn failure(&self) -> Option<String> {
        self.station.failure()
    }

    fn handle(&self) -> Option<BorrowedFd<'_>> {
        self.station.handle()
    }

    fn attend(&mut self, now: Instant) -> Option<Instant> {
        self.station.attend(now)
    }

    fn remark(&mut self) -> Option<String> {
        self.station.remark()
    }
}

#[cfg(test)]
mod tests {
    use super::super::replay::Replay;
    use super::*;

    /// Runs a station alone, and returns its frames with their times.
    fn run(station: &mut Paced<Replay>, until_ps: u64) -> Vec<u64> {
        let mut sent = Vec::new();
        while let Some(now_ps) = station.wakes_ps().filter(|now_ps| *now_ps <= until_ps) {
            sent.extend(station.transmit(now_ps).map(|_| now_ps));
        }
        sent
    }

    #[test]
    fn simulated_time_waits_for_the_clock_and_frames_keep_their_times() {
        let mut replay = Replay::new();
        let times = [3, 1_500_000, 1_500_001, 4_000_000];
        times.iter().for_each(|time_ps| replay.send_at(*time_ps, Frame::new(vec![1; 60])));
        let mut station = Paced::new(replay, 5000);
        let start = Instant::now();
        assert_eq!(run(&mut station, 6_000_000), times);
        assert!(start.elapsed() >= Duration::from_millis(30), "6 us at 5000: {:?}", start.elapsed());
        assert_eq!(station.wakes_ps(), Some(7_000_000));
    }

    #[test]
    fn what_is_late_is_counted_and_not_caught_up_with() {
        let mut station = Paced::new(Replay::new(), 10_000);
        run(&mut station, 0);
        sleep(Duration::from_millis(100));
        run(&mut station, 1_000_000);
        // 10 ms were due, and 20 ms may be late.
        assert!(station.behind() >= Duration::from_millis(70), "{:?}", station.behind());
        let start = Instant::now();
        run(&mut station, 6_000_000);
        assert!(start.elapsed() >= Duration::from_millis(30), "at most 20 of 50 ms: {:?}", start.elapsed());
    }

    #[test]
    fn a_timeout_is_as_long_in_wall_clock_time() {
        for (code, slowdown, expected) in [
            (8, 1, 8),
            (8, 0, 8),
            (8, 1024, 18),
            (8, 1025, 19),
            (14, 10_000, 28),
            (20, 10_000, 31),
            (0, 10_000, 0),
        ] {
            assert_eq!(timeout_code(code, slowdown), expected, "{code} at {slowdown}");
        }
        assert_eq!(timeout_code(255, u32::MAX), 31);
    }
}
