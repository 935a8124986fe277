//! A wire: full duplex between two ports, with all faults of a network.
//!
//! ```text
//!  port ── departs ──> script ──> faults ──> chance: lost? marked? flipped? damaged? ──> delay ──> in flight ──> arrives ──> port
//!                                            └─ duplicated: each copy has a delay of its own
//! ```
//!
//! A script decides about a frame first, then the [faults](fault) of its direction, then the probabilities of [`WireOptions`]: the
//! first of them that does not leave it to the next.
//!
//! Frames are sent at the rate of the wire with 24 bytes of overhead each: preamble, FCS and gap. A frame enters the wire when
//! it is complete, so that its arrival is never before its departure.
pub mod ecn;
pub mod fault;
pub mod mac;
pub mod paced;
pub mod playback;
pub mod record;
pub mod replay;
pub mod socket;
pub mod tap;
pub mod datagram;
pub mod loopback;

use fault::{Fault, Faults, Hits};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_monitor::rates;
pub use rnic_monitor::rates::FRAME_OVERHEAD_BYTES;
use rnic_stimulus::chance::{Delay, Seed, happens};
use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Minimum length of a frame, without FCS.
pub const FRAME_BYTES_MIN: usize = 60;

/// A frame, without FCS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// Bytes from the destination address on.
    pub bytes: Vec<u8>,
    /// The FCS is wrong, so that the receiving MAC marks the frame as bad.
    pub is_damaged: bool,
}

impl Frame {
    /// Makes a good frame, padded to the minimum length.
    pub fn new(mut bytes: Vec<u8>) -> Frame {
        if bytes.len() < FRAME_BYTES_MIN {
            bytes.resize(FRAME_BYTES_MIN, 0);
        }
        Frame { bytes, is_damaged: false }
    }

    /// Time that it occupies a wire.
    pub fn duration_ps(&self, bits_per_second: u64) -> u64 {
        rates::frame_ps(self.bytes.len(), bits_per_second)
    }
}

/// A device other than a card at the end of a wire: a reference endpoint, a capture that is replayed, a script, another process.
pub trait Station: Any + Send {
    /// A frame has arrived completely.
    fn receive(&mut self, now_ps: u64, frame: &Frame);

    /// Time of the next wake-up if no frame arrives before; `None` for never. A time in the past means at once.
    fn wakes_ps(&self) -> Option<u64>;

    /// The time is `now_ps` and the wire is idle: returns a frame to send, if there is one. Called again as long as
    /// [`wakes_ps`](Self::wakes_ps) is due; a station that is due and returns nothing must have postponed its wake-up.
    fn transmit(&mut self, now_ps: u64) -> Option<Frame>;

    /// Why the station cannot go on, if it cannot: the world ends the run with this text.
    fn failure(&self) -> Option<String> {
        None
    }

    /// What becomes readable when the station has something to do though simulated time does not advance.
    fn handle(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Does what is due in wall-clock time, such as to connect again to a process that had left. Returns the time of the next call,
    /// if one is needed before there is something to read at the [handle](Self::handle).
    fn attend(&mut self, _now: Instant) -> Option<Instant> {
        None
    }

    /// Takes the next remark on what the station has met, for a person to read.
    fn remark(&mut self) -> Option<String> {
        None
    }
}

/// Faults of a wire. Probabilities are per frame and independent of each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WireOptions {
    /// Rate of each direction.
    pub bits_per_second: u64,
    /// Time from the beginning of a frame at one end to its beginning at the other.
    pub delay: Delay,
    /// Probability that the frame is lost.
    pub loss: f64,
    /// Probability that the frame arrives twice.
    pub duplicate: f64,
    /// Probability that the frame is delayed by `reorder_delay` and others overtake it.
    pub reorder: f64,
    /// Additional delay of such a frame.
    pub reorder_delay: Delay,
    /// Probability that one to three bits are flipped under a correct FCS.
    pub flip: f64,
    /// Probability that the frame arrives with a wrong FCS, so that the MAC marks it as bad.
    pub damage: f64,
    /// Probability that a router marks the frame as having met congestion, if its sender supports ECN (protocol 5.1).
    pub mark: f64,
}

impl WireOptions {
    /// A wire of 500 ns without faults, as in design 8.
    pub const fn perfect(bits_per_second: u64) -> WireOptions {
        WireOptions {
            bits_per_second,
            delay: Delay::nanoseconds(500),
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_delay: Delay::NONE,
            flip: 0.0,
            damage: 0.0,
            mark: 0.0,
        }
    }
}

/// Counts of the frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounts {
    /// Frames that departed.
    pub sent: u64,
    /// Time at which the last of them began to.
    pub last_sent_ps: u64,
    /// Frames that arrived.
    pub arrived: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Frames that were duplicated.
    pub duplicated: u64,
    /// Frames or copies that were delayed by `reorder_delay`.
    pub reordered: u64,
    /// Frames with flipped bits.
    pub flipped: u64,
    /// Frames with a wrong FCS.
    pub damaged: u64,
    /// Frames with a congestion mark.
    pub marked: u64,
}

/// How long a frame is held back, so that others overtake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// For this time.
    Time {
        /// Additional delay.
        ps: u64,
    },
    /// Until later frames of its direction have overtaken it. Those that are lost or held back themselves do not count.
    Frames {
        /// Number of these frames.
        count: u64,
        /// Additional delay after which it goes on even if fewer frames have come.
        ps_max: u64,
    },
}

impl Hold {
    /// Holds a frame back until so many frames have overtaken it, but for at most 100 us: a direction that falls silent delivers
    /// what it has.
    pub const fn frames(count: u64) -> Hold {
        Hold::Frames { count, ps_max: 100_000_000 }
    }

    /// Longest additional delay.
    const fn ps_max(self) -> u64 {
        match self {
            Hold::Time { ps } => ps,
            Hold::Frames { ps_max, .. } => ps_max,
        }
    }
}

/// What a script or a fault does to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Leaves it to what is asked next, in the end to the probabilities of [`WireOptions`].
    Leave,
    /// Passes it without a fault.
    Pass,
    /// Loses it.
    Lose,
    /// Duplicates it: the copy arrives at once.
    Duplicate,
    /// Passes it, and delivers a copy late.
    CopyLate(Hold),
    /// Delays it, so that others overtake it.
    HoldBack(Hold),
}

/// Decides the fate of each frame: receives the number of the frame in its direction, from 0, and may change the frame.
pub type Script = Box<dyn FnMut(u64, &mut Frame) -> Fate + Send>;

/// A frame in flight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    arrives_ps: u64,
    sequence: u64,
    frame: Frame,
}

/// A frame in flight that goes on when others have overtaken it.
#[derive(Clone, Copy, Debug)]
struct Held {
    sequence: u64,
    /// Frames that have not overtaken it yet.
    frames_left: u64,
}

/// One direction of a wire.
pub struct Direction {
    options: WireOptions,
    random: ChaCha8Rng,
    script: Option<Script>,
    faults: Faults,
    flights: BinaryHeap<Reverse<Flight>>,
    held: Vec<Held>,
    /// Time at which the last frame that stays in order begins to arrive.
    last_ps: u64,
    /// Time at which the receiving end has received the previous frame.
    free_ps: u64,
    sequence: u64,
    counts: WireCounts,
}

impl Direction {
    /// Makes a direction without frames.
    pub fn new(options: WireOptions, seed: Seed, name: &str) -> Direction {
        Direction {
            options,
            random: seed.stream(name),
            script: None,
            faults: Faults::default(),
            flights: BinaryHeap::new(),
            held: Vec::new(),
            last_ps: 0,
            free_ps: 0,
            sequence: 0,
            counts: WireCounts::default(),
        }
    }

    /// Rate, delay and faults.
    pub fn options(&self) -> &WireOptions {
        &self.options
    }

    /// Changes faults and delay from now on; the rate is kept.
    pub fn set_options(&mut self, options: WireOptions) {
        self.options = WireOptions { bits_per_second: self.options.bits_per_second, ..options };
    }

    /// Sets or removes the script.
    pub fn set_script(&mut self, script: Option<Script>) {
        self.script = script;
    }

    /// Counts of its frames.
    pub fn counts(&self) -> WireCounts {
        self.counts
    }

    /// Frames in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Time at which the next frame begins to arrive, which is not before the one before it has arrived.
    #[inline]
    pub fn next_ps(&self) -> Option<u64> {
        self.flights.peek().map(|Reverse(flight)| flight.arrives_ps.max(self.free_ps))
    }

    /// Sets faults in place of those that were set before, and returns how many frames each meets. Each frame that the script leaves
    /// meets the first of them that is due.
    pub fn set_faults(&mut self, faults: Vec<Fault>) -> Hits {
        self.faults = Faults::new(faults);
        self.faults.hits()
    }

    /// Sends a frame whose first bit was sent at `start_ps`, now or before. Returns whether it will arrive once, in order, and as
    /// it was sent.
    pub fn send(&mut self, now_ps: u64, start_ps: u64, mut frame: Frame) -> bool {
        let before = self.counts;
        let may_change = self.script.is_some() || !self.faults.is_empty();
        let sent = may_change.then(|| frame.clone());
        let index = self.counts.sent;
        self.counts.sent += 1;
        self.counts.last_sent_ps = start_ps;
        let fate = match self.script.as_mut().map_or(Fate::Leave, |script| script(index, &mut frame)) {
            Fate::Leave => self.faults.meet(&mut frame),
            fate => fate,
        };
        let fate = if fate == Fate::Leave { self.chance(&mut frame) } else { fate };
        let is_changed = sent.is_some_and(|sent| sent != frame);
        match fate {
            Fate::Lose => {
                self.counts.lost += 1;
                return false;
            }
            Fate::HoldBack(hold) => self.enqueue(now_ps, start_ps, frame, Some(hold)),
            Fate::Duplicate => {
                self.counts.duplicated += 1;
                self.enqueue(now_ps, start_ps, frame.clone(), None);
                self.enqueue(now_ps, start_ps, frame, None);
                self.overtake();
            }
            Fate::CopyLate(hold) => {
                self.counts.duplicated += 1;
                self.enqueue(now_ps, start_ps, frame.clone(), None);
                self.overtake();
                self.enqueue(now_ps, start_ps, frame, Some(hold));
            }
            Fate::Leave | Fate::Pass => {
                self.enqueue(now_ps, start_ps, frame, None);
                self.overtake();
            }
        }
        let faults =
            |counts: &WireCounts| counts.duplicated + counts.reordered + counts.flipped + counts.damaged;
        !is_changed && faults(&before) == faults(&self.counts)
    }

    /// Decides the fate of a frame by the probabilities, and damages it.
    fn chance(&mut self, frame: &mut Frame) -> Fate {
        if happens(&mut self.random, self.options.loss) {
            return Fate::Lose;
        }
        let is_twice = happens(&mut self.random, self.options.duplicate);
        let is_held = happens(&mut self.random, self.options.reorder);
        let hold = is_held.then(|| Hold::Time { ps: self.options.reorder_delay.draw_ps(&mut self.random) });
        self.damage(frame);
        match (is_twice, hold) {
            (false, None) => Fate::Pass,
            (false, Some(hold)) => Fate::HoldBack(hold),
            (true, None) => Fate::Duplicate,
            (true, Some(hold)) => Fate::CopyLate(hold),
        }
    }

    /// Applies random bit flips, damage and congestion marks to a frame.
    fn damage(&mut self, frame: &mut Frame) {
        let random = &mut self.random;
        if happens(random, self.options.mark) && ecn::mark(&mut frame.bytes) {
            self.counts.marked += 1;
        }
        if happens(random, self.options.flip) {
            self.counts.flipped += 1;
            for _ in 0..random.random_range(1..=3) {
                let bit = random.random_range(0..frame.bytes.len() * 8);
                frame.bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        if happens(random, self.options.damage) {
            self.counts.damaged += 1;
            frame.is_damaged = true;
        }
    }

    fn enqueue(&mut self, now_ps: u64, start_ps: u64, frame: Frame, hold: Option<Hold>) {
        let delay_ps = self.options.delay.draw_ps(&mut self.random);
        let mut arrives_ps = (start_ps + delay_ps).max(now_ps);
        self.sequence += 1;
        match hold {
            Some(hold) => {
                self.counts.reordered += 1;
                arrives_ps = arrives_ps.saturating_add(hold.ps_max());
                if let Hold::Frames { count, .. } = hold {
                    self.held.push(Held { sequence: self.sequence, frames_left: count });
                }
            }
            None => {
                arrives_ps = arrives_ps.max(self.last_ps);
                self.last_ps = arrives_ps;
            }
        }
        self.flights.push(Reverse(Flight { arrives_ps, sequence: self.sequence, frame }));
    }

    /// The newest frame that stays in order overtakes those that are held back: one that has been overtaken often enough arrives
    /// behind it.
    fn overtake(&mut self) {
        self.held.iter_mut().for_each(|held| held.frames_left = held.frames_left.saturating_sub(1));
        for held in self.held.extract_if(.., |held| held.frames_left == 0) {
            let mut flights = std::mem::take(&mut self.flights).into_vec();
            for Reverse(flight) in
                flights.iter_mut().filter(|Reverse(flight)| flight.sequence == held.sequence)
            {
                self.sequence += 1;
                flight.sequence = self.sequence;
                flight.arrives_ps = flight.arrives_ps.min(self.last_ps);
            }
            self.flights = flights.into();
        }
    }

    /// Takes the frame that begins to arrive, with the arrival time of its first bit. Frames do not overlap.
    pub fn arrive(&mut self, now_ps: u64) -> Option<(u64, Frame)> {
        let start_ps = self.next_ps().filter(|start_ps| *start_ps <= now_ps)?;
        let Reverse(Flight { frame, .. }) = self.flights.pop()?;
        self.free_ps = start_ps + frame.duration_ps(self.options.bits_per_second);
        self.counts.arrived += 1;
        Some((start_ps, frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 100_000_000_000;

    fn frame(number: u16) -> Frame {
        let mut bytes = vec![0; 100];
        bytes[..2].copy_from_slice(&number.to_le_bytes());
        Frame::new(bytes)
    }

    fn number(frame: &Frame) -> u16 {
        u16::from_le_bytes([frame.bytes[0], frame.bytes[1]])
    }

    /// Sends frames back to back, and returns those that arrive with their times.
    fn pass(direction: &mut Direction, count: u16) -> Vec<(u64, Frame)> {
        let step_ps = frame(0).duration_ps(RATE);
        for index in 0..count {
            let start_ps = u64::from(index) * step_ps;
            direction.send(start_ps + step_ps / 2, start_ps, frame(index));
        }
        std::iter::from_fn(|| direction.arrive(u64::MAX)).collect()
    }

    #[test]
    fn a_perfect_wire_delivers_all_in_order_after_its_delay() {
        let mut direction = Direction::new(WireOptions::perfect(RATE), Seed(1), "wire");
        let arrived = pass(&mut direction, 50);
        for (index, (start_ps, frame)) in arrived.iter().enumerate() {
            assert_eq!(number(frame) as usize, index);
            assert_eq!(*start_ps, 500_000 + index as u64 * 9920, "124 bytes take 9.92 ns at 100 Gb/s");
        }
        assert_eq!(arrived.len(), 50);
        let expected = WireCounts { sent: 50, last_sent_ps: 49 * 9920, arrived: 50, ..WireCounts::default() };
        assert_eq!(direction.counts(), expected);
    }

    #[test]
    fn every_fault_happens_about_as_often_as_asked_and_is_counted() {
        let options = WireOptions {
            loss: 0.1,
            duplicate: 0.1,
            reorder: 0.1,
            reorder_delay: Delay::Uniform { min_ps: 20_000, max_ps: 100_000 },
            flip: 0.1,
            damage: 0.1,
            ..WireOptions::perfect(RATE)
        };
        let mut direction = Direction::new(options, Seed(7), "wire");
        let arrived = pass(&mut direction, 2000);
        let counts = direction.counts();
        assert_eq!(counts.arrived, counts.sent - counts.lost + counts.duplicated);
        for count in [counts.lost, counts.duplicated, counts.reordered, counts.flipped, counts.damaged] {
            assert!((120..280).contains(&count), "{counts:?}");
        }
        assert_eq!(counts.marked, 0, "marks were not asked for");
        assert!(!arrived.iter().map(|(_, frame)| number(frame)).is_sorted(), "frames overtake each other");
        let damaged = arrived.iter().filter(|(_, frame)| frame.is_damaged).count() as u64;
        assert!(damaged >= counts.damaged, "a copy of a damaged frame is damaged");
        for pair in arrived.windows(2) {
            let end_ps = pair[0].0 + pair[0].1.duration_ps(RATE);
            assert!(pair[1].0 >= end_ps, "frames overlap");
        }
    }

    #[test]
    fn frames_that_come_at_once_arrive_one_after_the_other() {
        let late = WireOptions { delay: Delay::nanoseconds(900), ..WireOptions::perfect(RATE) };
        let mut direction = Direction::new(late, Seed(1), "wire");
        for index in 0..3 {
            direction.send(0, 0, frame(index));
        }
        for start_ps in [900_000, 909_920, 919_840] {
            assert_eq!(direction.next_ps(), Some(start_ps));
            assert!(direction.arrive(start_ps - 1).is_none());
            assert_eq!(direction.arrive(start_ps).map(|(start_ps, _)| start_ps), Some(start_ps));
        }
    }

    #[test]
    fn equal_seeds_give_equal_runs() {
        let run = |seed| {
            let options = WireOptions {
                loss: 0.2,
                flip: 0.2,
                delay: Delay::Uniform { min_ps: 1000, max_ps: 90_000 },
                ..WireOptions::perfect(RATE)
            };
            pass(&mut Direction::new(options, Seed(seed), "wire"), 200)
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn a_script_decides_about_single_frames() {
        let options = WireOptions { loss: 1.0, ..WireOptions::perfect(RATE) };
        let mut direction = Direction::new(options, Seed(1), "wire");
        direction.set_script(Some(Box::new(|index, frame| match index {
            0 => Fate::Pass,
            1 => Fate::Duplicate,
            2 => Fate::HoldBack(Hold::Time { ps: 1_000_000 }),
            3 => Fate::Lose,
            4 => {
                frame.bytes[99] = 0xab;
                Fate::Pass
            }
            _ => Fate::Leave,
        })));
        let arrived = pass(&mut direction, 6);
        let numbers: Vec<u16> = arrived.iter().map(|(_, frame)| number(frame)).collect();
        assert_eq!(numbers, [0, 1, 1, 4, 2]);
        assert_eq!(arrived[3].1.bytes[99], 0xab);
        assert_eq!(direction.counts().lost, 2, "one by the script, one by chance");
    }

    /// Numbers of the frames in the order in which they arrive, of `count` that a script decides about.
    fn order(
        count: u16,
        script: impl FnMut(u64, &mut Frame) -> Fate + Send + 'static,
    ) -> (Vec<u16>, Direction) {
        let mut direction = Direction::new(WireOptions::perfect(RATE), Seed(1), "wire");
        direction.set_script(Some(Box::new(script)));
        let numbers = pass(&mut direction, count).iter().map(|(_, frame)| number(frame)).collect();
        (numbers, direction)
    }

    #[test]
    fn a_frame_is_held_back_until_others_have_overtaken_it() {
        for count in 1..=4_u16 {
            let hold = Hold::frames(count.into());
            let (numbers, direction) =
                order(6, move |index, _| if index == 1 { Fate::HoldBack(hold) } else { Fate::Pass });
            let mut expected: Vec<u16> = vec![0, 2, 3, 4, 5];
            expected.insert(1 + usize::from(count), 1);
            assert_eq!(numbers, expected, "behind {count}");
            assert_eq!(direction.counts(), WireCounts { reordered: 1, arrived: 6, ..direction.counts() });
        }
        // Two are held back by one frame each, and released by the same; frame 3 is lost and overtakes nothing.
        let (numbers, _) = order(6, |index, _| match index {
            0 | 2 => Fate::HoldBack(Hold::frames(2)),
            3 => Fate::Lose,
            _ => Fate::Pass,
        });
        assert_eq!(numbers, [1, 4, 0, 5, 2]);
    }

    #[test]
    fn a_copy_arrives_behind_later_frames_or_after_a_time() {
        let late =
            |hold| move |index, _: &mut Frame| if index == 1 { Fate::CopyLate(hold) } else { Fate::Pass };
        let (numbers, direction) = order(5, late(Hold::frames(2)));
        assert_eq!(numbers, [0, 1, 2, 3, 1, 4]);
        let expected = WireCounts { sent: 5, arrived: 6, duplicated: 1, reordered: 1, ..direction.counts() };
        assert_eq!(direction.counts(), expected);
        // Three frames of 9.92 ns begin within 25 ns.
        let (numbers, _) = order(5, late(Hold::Time { ps: 25_000 }));
        assert_eq!(numbers, [0, 1, 2, 3, 1, 4]);
    }

    #[test]
    fn a_frame_that_nothing_overtakes_goes_on_in_the_end() {
        let hold = Hold::Frames { count: 3, ps_max: 2_000_000 };
        let (numbers, _) =
            order(3, move |index, _| if index == 1 { Fate::HoldBack(hold) } else { Fate::Pass });
        assert_eq!(numbers, [0, 2, 1]);
        let mut direction = Direction::new(WireOptions::perfect(RATE), Seed(1), "wire");
        direction.set_script(Some(Box::new(move |_, _| Fate::HoldBack(hold))));
        direction.send(0, 0, frame(0));
        assert_eq!((direction.next_ps(), direction.in_flight()), (Some(2_500_000), 1));
    }

    #[test]
    fn short_frames_are_padded() {
        assert_eq!(Frame::new(vec![1; 58]).bytes.len(), 60);
        assert_eq!(Frame::new(vec![1; 61]).bytes.len(), 61);
        assert_eq!(Frame::new(vec![1; 60]).duration_ps(10_000_000_000), 67_200, "84 bytes at 10 Gb/s");
    }
}
