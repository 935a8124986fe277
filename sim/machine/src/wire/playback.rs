//! A station that plays the frames of a capture to a card, at the distances that their timestamps have.
//!
//! 1. It begins with the first frame that the card sends, or when there is something to read at a handle, as after a signal: a card
//!    that only answers would never begin.
//! 2. A distance of more than [`GAP_PS_MAX`] is shortened to it, since simulated time is slow. A capture whose timestamps go back is
//!    played in the order of the file.
//! 3. The frames of both sides of a capture are played. The card drops those that are not for its address and counts them. Those that
//!    come from it are left out, as soon as it has sent a frame that tells its address.
//! 4. What the card sends changes nothing: the station answers nothing and asks for nothing again.
use super::{Frame, Station};
use anyhow::{Result, bail};
use rnic_layout::wire::MacAddress;
use rnic_stimulus::captures::Capture;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Longest distance of two frames, in picoseconds.
pub const GAP_PS_MAX: u64 = 50_000_000;
/// Simulated time between two looks at the handle.
const LOOK_PS: u64 = 1_000_000;
/// Offset of the source address in a frame.
const SOURCE: usize = 6;

/// The station.
#[derive(Debug)]
pub struct Playback {
    start: Option<OwnedFd>,
    /// The frames, and the distance of each from the one before it.
    frames: VecDeque<(u64, Frame)>,
    /// Time of the next frame, or of the next look at the handle.
    next_ps: u64,
    is_playing: bool,
    card: Option<MacAddress>,
}

/// Distances of frames from those before them, in picoseconds.
fn distances(capture: &Capture) -> impl Iterator<Item = u64> {
    let times_ns = &capture.times_ns;
    (0..times_ns.len()).map(|index| {
        let distance_ns = (times_ns[index] - times_ns[index.saturating_sub(1)]).max(0);
        u64::try_from(distance_ns).map_or(GAP_PS_MAX, |ns| ns.saturating_mul(1000).min(GAP_PS_MAX))
    })
}

impl Playback {
    /// Makes a station of the whole frames of a capture. It begins when there is something to read at `start`, if not before.
    ///
    /// # Errors
    /// If the capture has no frame, or if the handle cannot be made non-blocking.
    pub fn new(capture: &Capture, start: OwnedFd) -> Result<Playback> {
        if capture.frames.is_empty() {
            bail!("the capture {} has no frames", capture.name);
        }
        rustix::io::ioctl_fionbio(&start, true)?;
        let frames = capture.frames.iter().map(|bytes| Frame::new(bytes.clone()));
        let frames = distances(capture).zip(frames).collect();
        Ok(Playback { start: Some(start), frames, next_ps: 0, is_playing: false, card: None })
    }

    /// Frames that are not played yet.
    pub fn waiting(&self) -> usize {
        self.frames.len()
    }

    fn begin(&mut self, now_ps: u64) {
        self.is_playing = true;
        self.next_ps = now_ps;
    }

    /// Begins if there is something to read. A handle whose other end is closed will never have anything.
    fn look(&mut self, now_ps: u64) {
        let Some(start) = &self.start else { return };
        self.next_ps = now_ps + LOOK_PS;
        match rustix::io::read(start, &mut [0; 64]) {
            Ok(0) => self.start = None,
            Ok(_) => self.begin(now_ps),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => self.start = None,
        }
    }
}

impl Station for Playback {
    fn receive(&mut self, now_ps: u64, frame: &Frame) {
        let source = frame.bytes.get(SOURCE..SOURCE + 6).and_then(|bytes| bytes.try_into().ok());
        self.card = source.map(MacAddress).or(self.card);
        if !self.is_playing {
            self.begin(now_ps);
        }
    }

    fn wakes_ps(&self) -> Option<u64> {
        let waits = self.is_playing || self.start.is_some();
        (waits && !self.frames.is_empty()).then_some(self.next_ps)
    }

    fn handle(&self) -> Option<BorrowedFd<'_>> {
        self.start.as_ref().filter(|_| !self.is_playing).map(AsFd::as_fd)
    }

    fn transmit(&mut self, now_ps: u64) -> Option<Frame> {
        if !self.is_playing && self.next_ps <= now_ps {
            self.look(now_ps);
        }
        while self.is_playing && self.next_ps <= now_ps {
            let (_, frame) = self.frames.pop_front()?;
            // The distance is one of departures: a wire that is slower than the captured one delays what follows.
            self.next_ps += self.frames.front().map_or(0, |(distance_ps, _)| *distance_ps);
            if self.card.is_none_or(|card| frame.bytes[SOURCE..SOURCE + 6] != card.0) {
                return Some(frame);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    const CARD: u8 = 1;
    const PEER: u8 = 2;

    /// A frame of one of the two.
    fn frame(source: u8, number: u8) -> Frame {
        let mut bytes = vec![number; 60];
        bytes[SOURCE..SOURCE + 6].fill(source);
        Frame::new(bytes)
    }

    /// A capture of frames with their times.
    fn capture(frames: &[(u64, Frame)]) -> Capture {
        Capture {
            name: "some".into(),
            frames: frames.iter().map(|(_, frame)| frame.bytes.clone()).collect(),
            times_ns: frames.iter().map(|(ns, _)| (*ns).into()).collect(),
            cut_short: 0,
        }
    }

    /// The pace of all frames that a station sends up to a time.
    fn played(station: &mut Playback, until_ps: u64) -> Vec<(u64, Frame)> {
        let mut frames = Vec::new();
        while let Some(now_ps) = station.wakes_ps().filter(|now_ps| *now_ps <= until_ps) {
            frames.extend(station.transmit(now_ps).map(|frame| (now_ps, frame)));
        }
        frames
    }

    fn pipe() -> (OwnedFd, OwnedFd) {
        let (start, signal) = UnixStream::pair().unwrap();
        (start.into(), signal.into())
    }

    #[test]
    fn the_first_frame_of_the_card_starts_it_and_its_own_are_left_out() {
        let all =
            [(1000, frame(CARD, 0)), (1700, frame(PEER, 1)), (1800, frame(CARD, 2)), (2000, frame(PEER, 3))];
        let (start, _keep) = pipe();
        let mut station = Playback::new(&capture(&all), start).unwrap();
        assert_eq!((played(&mut station, 9_000_000), station.waiting()), (vec![], 4));
        station.receive(9_500_000, &frame(CARD, 9));
        let expected = vec![(10_200_000, frame(PEER, 1)), (10_500_000, frame(PEER, 3))];
        assert_eq!(played(&mut station, u64::MAX), expected);
        assert_eq!((station.waiting(), station.wakes_ps()), (0, None));
    }

    #[test]
    fn a_signal_starts_it_and_gaps_are_bounded() {
        let all = [
            (0, frame(PEER, 0)),
            (40_000_000_000, frame(CARD, 1)),
            (30_000_000_000, frame(PEER, 2)),
            (30_000_000_005, frame(PEER, 3)),
        ];
        let (start, signal) = pipe();
        let mut station = Playback::new(&capture(&all), start).unwrap();
        assert_eq!(played(&mut station, 5 * LOOK_PS), vec![]);
        rustix::io::write(&signal, &[0]).unwrap();
        let begin = 6 * LOOK_PS;
        let times = [0, GAP_PS_MAX, GAP_PS_MAX, GAP_PS_MAX + 5000].map(|distance| begin + distance);
        let expected: Vec<_> = times.into_iter().zip(all.map(|(_, frame)| frame)).collect();
        assert_eq!(played(&mut station, u64::MAX), expected);
    }

    #[test]
    fn a_handle_that_ends_wakes_nobody() {
        let (start, signal) = pipe();
        let mut station = Playback::new(&capture(&[(0, frame(PEER, 0))]), start).unwrap();
        drop(signal);
        assert_eq!((station.transmit(0), station.wakes_ps()), (None, None));
        station.receive(10, &frame(CARD, 0));
        assert_eq!(played(&mut station, u64::MAX), vec![(10, frame(PEER, 0))]);
    }

    #[test]
    fn a_capture_that_cannot_be_played_is_refused() {
        let error = |capture| Playback::new(&capture, pipe().0).unwrap_err().to_string();
        assert_eq!(error(capture(&[])), "the capture some has no frames");
    }
}
