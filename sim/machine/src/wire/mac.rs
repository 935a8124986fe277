//! The MAC between a card and its wire, in two halves.
//!
//! ```text
//!  card ── beats ──> MacTransmit ── whole frame, padded ──> wire
//!  card <── beats ── MacReceive  <── frame, as its bits arrive ── wire
//! ```
//!
//! 1. The card offers the beats of a frame without a gap (`docs/hardware.md`).
//! 2. The MAC starts to send a frame [`START_BEATS`] beats after its first beat, and then cannot pause: a beat that comes too
//!    late breaks the frame. Data that is not sent yet waits in a buffer of [`BUFFER_BEATS`] beats.
//!    Only a reset of the card ends a frame that is marked as broken, after any beat of it, and it may pause before.
//! 3. A received frame is delivered to the card beat by beat, at the line rate; the card cannot stall it.
use super::{FRAME_BYTES_MIN, Frame};
use crate::host::link::Link;
use crate::host::{LANES_MAX, Word};
use crate::monitor::{Log, Rule};
use crate::world::clock::SECOND_PS;
use rnic_layout::limits::FRAME_BYTES_MAX;
use std::collections::VecDeque;

/// Beats by which the MAC delays a frame.
const START_BEATS: u64 = 4;
/// Beats that the transmit buffer holds.
const BUFFER_BEATS: u64 = 16;
/// Time from the write of a reset to the register until no further frame begins: the card drains before it is cleared.
const RESET_PS_MAX: u64 = 5_000_000_000;
/// Bytes on the line before a frame, and after it.
const PREAMBLE_BYTES: u64 = 8;
const TRAILER_BYTES: u64 = 16;

/// A beat between card and MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Data; byte 0 is the first on the wire.
    pub data: Word,
    /// Valid bytes, one bit each, contiguous from the lowest on.
    pub keep: u64,
    /// Last beat of the frame.
    pub last: bool,
    /// The frame is bad; valid with the last beat.
    pub error: bool,
}

/// A frame that leaves a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Time at which its first bit was sent.
    pub start_ps: u64,
    /// The frame, padded to the minimum length.
    pub frame: Frame,
}

/// Counts of frames between a card and its MAC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of frames.
    pub frames: u64,
    /// Bytes of these frames, without padding.
    pub bytes: u64,
}

/// Transmitting half.
pub struct MacTransmit {
    lanes: usize,
    beat_ps: u64,
    line: Link,
    frame: Vec<u8>,
    start_ps: u64,
    /// A beat of the frame was missing.
    has_gap: bool,
    /// Time of the last reset, while it has cut off no frame.
    reset_ps: Option<u64>,
    sent: Sent,
}

impl MacTransmit {
    /// Makes a MAC whose line is idle.
    pub fn new(lanes: usize, bits_per_second: u64) -> MacTransmit {
        MacTransmit {
            lanes,
            beat_ps: lanes as u64 * 8 * SECOND_PS / bits_per_second,
            line: Link::new(bits_per_second / 8),
            frame: Vec::new(),
            start_ps: 0,
            has_gap: false,
            reset_ps: None,
            sent: Sent::default(),
        }
    }

    /// Frames that the card has sent.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Software begins a reset of the card, which may cut off one frame.
    pub fn reset(&mut self, now_ps: u64) {
        self.reset_ps = Some(now_ps);
    }

    /// Returns whether a reset has cut off the frame that ends now.
    fn is_cut(&mut self, now_ps: u64) -> bool {
        let start_ps = self.start_ps;
        let has_cut = |reset_ps: &mut u64| *reset_ps <= now_ps && start_ps <= *reset_ps + RESET_PS_MAX;
        self.reset_ps.take_if(has_cut).is_some()
    }

    /// Returns whether a frame has begun and not ended.
    pub fn is_inside(&self) -> bool {
        !self.frame.is_empty()
    }

    /// Returns whether the MAC takes a beat at the next edge.
    #[inline]
    pub fn is_ready(&self, now_ps: u64) -> bool {
        self.line.backlog_ps(now_ps) <= BUFFER_BEATS * self.beat_ps
    }

    /// The card offers no beat at this edge, inside a frame.
    pub fn lack(&mut self) {
        self.has_gap = true;
    }

    /// Takes a beat. Returns the frame that it completes, if it does.
    pub fn take(&mut self, now_ps: u64, beat: &Beat, log: &mut Log) -> Option<Departure> {
        let count = beat.keep.trailing_ones() as usize;
        let is_dense = count == 64 || beat.keep >> count == 0;
        if !is_dense || count == 0 || count > self.lanes || (!beat.last && count < self.lanes) {
            log.report(now_ps, Rule::Frame, || format!("a beat has the bytes {:#x}", beat.keep));
        }
        if self.frame.is_empty() {
            let start_ps = now_ps + START_BEATS * self.beat_ps;
            self.start_ps = start_ps + self.line.backlog_ps(start_ps);
            self.line.send(self.start_ps, PREAMBLE_BYTES);
        } else if self.line.backlog_ps(now_ps) == 0 {
            log.report(now_ps, Rule::Frame, || "the line waits for a beat inside a frame".into());
        }
        self.line.send(now_ps, count as u64);
        self.frame.extend_from_slice(&beat.data.0[..count]);
        if !beat.last {
            return None;
        }
        self.sent.frames += 1;
        self.sent.bytes += self.frame.len() as u64;
        let length = self.frame.len();
        let is_cut = beat.error && self.is_cut(now_ps);
        if std::mem::take(&mut self.has_gap) && !is_cut {
            log.report(now_ps, Rule::Frame, || "the card pauses within a frame".into());
        }
        if beat.error && !is_cut {
            log.report(now_ps, Rule::Frame, || "the card marks a frame that it sends as broken".into());
        }
        if !is_cut && !(14..=FRAME_BYTES_MAX).contains(&length) {
            log.report(now_ps, Rule::Frame, || format!("the card sends a frame of {length} bytes"));
        }
        let padding = FRAME_BYTES_MIN.saturating_sub(length);
        self.line.send(now_ps, padding as u64 + TRAILER_BYTES);
        let mut frame = Frame::new(std::mem::take(&mut self.frame));
        frame.is_damaged = beat.error;
        self.frame.reserve(length);
        Some(Departure { start_ps: self.start_ps, frame })
    }
}

/// Receiving half.
pub struct MacReceive {
    lanes: usize,
    bits_per_second: u64,
    frames: VecDeque<(u64, Frame)>,
    offset: usize,
    received: Sent,
}

impl MacReceive {
    /// Makes a MAC without frames.
    pub fn new(lanes: usize, bits_per_second: u64) -> MacReceive {
        MacReceive { lanes, bits_per_second, frames: VecDeque::new(), offset: 0, received: Sent::default() }
    }

    /// Frames that were delivered to the card completely.
    pub fn received(&self) -> Sent {
        self.received
    }

    /// Frames that were not delivered completely.
    pub fn waiting(&self) -> usize {
        self.frames.len()
    }

    /// A frame arrives, whose preamble begins at `start_ps`.
    ///
    /// # Panics
    /// If the frame is empty.
    pub fn arrive(&mut self, start_ps: u64, frame: Frame) {
        assert!(!frame.bytes.is_empty(), "a frame has at least one byte");
        self.frames.push_back((start_ps, frame));
    }

    /// Returns the next beat for the card, if all its bits have arrived.
    #[inline]
    pub fn cycle(&mut self, now_ps: u64) -> Option<Beat> {
        let (start_ps, frame) = self.frames.front()?;
        let end = frame.bytes.len().min(self.offset + self.lanes);
        let bits = (PREAMBLE_BYTES + end as u64) * 8;
        if start_ps + bits * SECOND_PS / self.bits_per_second > now_ps {
            return None;
        }
        let bytes = &frame.bytes[self.offset..end];
        let mut data = Word([0; LANES_MAX]);
        data.0[..bytes.len()].copy_from_slice(bytes);
        let keep = u64::MAX >> (64 - bytes.len());
        let last = end == frame.bytes.len();
        let beat = Beat { data, keep, last, error: last && frame.is_damaged };
        self.offset = end;
        if last {
            self.received.frames += 1;
            self.received.bytes += frame.bytes.len() as u64;
            self.frames.pop_front();
            self.offset = 0;
        }
        Some(beat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 100_000_000_000;
    const CYCLE_PS: u64 = 3103;

    fn beats(bytes: &[u8], lanes: usize) -> Vec<Beat> {
        let count = bytes.chunks(lanes).count();
        let beat = |(index, chunk): (usize, &[u8])| {
            let mut data = Word([0xff; LANES_MAX]);
            data.0[..chunk.len()].copy_from_slice(chunk);
            Beat { data, keep: u64::MAX >> (64 - chunk.len()), last: index + 1 == count, error: false }
        };
        bytes.chunks(lanes).enumerate().map(beat).collect()
    }

    #[test]
    fn a_card_that_always_has_beats_fills_the_line() {
        for lanes in [8, 64] {
            let rate = if lanes == 8 { RATE / 10 } else { RATE };
            let mut mac = MacTransmit::new(lanes, rate);
            let mut log = Log::new("card0");
            let frame: Vec<u8> = (0..=255).cycle().take(1111).collect();
            let mut queue: VecDeque<Beat> = (0..100).flat_map(|_| beats(&frame, lanes)).collect();
            let (mut departures, mut now_ps) = (Vec::new(), 0);
            while let Some(beat) = queue.front() {
                now_ps += if lanes == 8 { 4000 } else { CYCLE_PS };
                if mac.is_ready(now_ps) {
                    departures.extend(mac.take(now_ps, beat, &mut log));
                    queue.pop_front();
                }
            }
            assert_eq!(log.violations(), []);
            assert!(departures.iter().all(|departure| departure.frame.bytes == frame));
            let span_ps = departures[99].start_ps - departures[0].start_ps;
            assert_eq!(span_ps, 99 * (1111 + 24) * 8 * SECOND_PS / rate, "frames stand back to back");
            assert_eq!(mac.sent(), Sent { frames: 100, bytes: 111_100 });
        }
    }

    #[test]
    fn short_frames_are_padded_and_counted_as_they_came() {
        let mut mac = MacTransmit::new(64, RATE);
        let mut log = Log::new("card0");
        let beat = beats(&[7; 58], 64)[0];
        let departure = mac.take(1000, &beat, &mut log).unwrap();
        assert_eq!(departure.frame.bytes[56..], [7, 7, 0, 0]);
        assert_eq!(mac.sent(), Sent { frames: 1, bytes: 58 });
        assert_eq!(departure.start_ps, 1000 + 4 * 5120);
        assert_eq!(log.violations(), []);
    }

    #[test]
    fn malformed_frames_are_reported() {
        let good = beats(&[1; 100], 64);
        let with = |change: &dyn Fn(&mut Vec<Beat>)| {
            let mut beats = good.clone();
            change(&mut beats);
            beats
        };
        let cases = [
            with(&|beats| beats[0].keep = u64::MAX >> 1),
            with(&|beats| beats[1].keep = 0b101),
            with(&|beats| beats[1].keep = 0),
            with(&|beats| beats[1].error = true),
            beats(&[1; 13], 64),
            beats(&[1; FRAME_BYTES_MAX + 1], 64),
        ];
        for case in cases {
            let mut mac = MacTransmit::new(64, RATE);
            let mut log = Log::new("card0");
            for (index, beat) in case.iter().enumerate() {
                mac.take(index as u64 * CYCLE_PS, beat, &mut log);
            }
            let violations = log.take();
            assert!(violations.iter().all(|violation| violation.rule == Rule::Frame));
            assert_eq!(violations.len(), 1, "{violations:?}");
        }
        let mut mac = MacTransmit::new(64, RATE);
        let mut log = Log::new("card0");
        mac.take(0, &good[0], &mut log);
        mac.take(40_000, &good[1], &mut log);
        assert!(log.take()[0].text.contains("waits"), "the second beat comes 40 ns later");
    }

    #[test]
    fn a_pause_within_a_frame_is_reported_once() {
        let good = beats(&[1; 100], 64);
        let mut mac = MacTransmit::new(64, RATE);
        let mut log = Log::new("card0");
        for pauses in [2, 0] {
            mac.take(0, &good[0], &mut log);
            (0..pauses).for_each(|_| mac.lack());
            mac.take(CYCLE_PS, &good[1], &mut log);
            let texts: Vec<_> = log.take().into_iter().map(|violation| violation.text).collect();
            assert_eq!(texts, ["the card pauses within a frame"][..pauses.min(1)]);
        }
    }

    #[test]
    fn a_reset_cuts_off_one_frame() {
        let mut broken = beats(&[1; 100], 64);
        broken[1].error = true;
        let mut mac = MacTransmit::new(64, RATE);
        let mut log = Log::new("card0");
        let mut count = |mac: &mut MacTransmit, now_ps: u64| {
            mac.take(now_ps, &broken[0], &mut log);
            assert!(mac.take(now_ps + CYCLE_PS, &broken[1], &mut log).unwrap().frame.is_damaged);
            log.take().len()
        };
        assert_eq!(count(&mut mac, 0), 1, "there was no reset");
        mac.reset(10 * CYCLE_PS);
        assert_eq!(count(&mut mac, 20 * CYCLE_PS), 0);
        assert_eq!(count(&mut mac, 30 * CYCLE_PS), 1, "one frame a reset");
        mac.reset(40 * CYCLE_PS);
        assert_eq!(count(&mut mac, 50 * CYCLE_PS + RESET_PS_MAX), 1, "the reset has ended");
    }

    #[test]
    fn a_frame_may_be_cut_off_after_its_first_beat() {
        let mut cut = beats(&[1; 9], 8);
        cut[1].error = true;
        let mut mac = MacTransmit::new(8, RATE / 10);
        let mut log = Log::new("card0");
        for (resets, expected) in [(false, 2), (true, 0)] {
            if resets {
                mac.reset(0);
            }
            cut.iter().for_each(|beat| drop(mac.take(0, beat, &mut log)));
            assert_eq!(log.take().len(), expected, "it is broken, and shorter than its header");
        }
    }

    #[test]
    fn a_frame_is_received_as_its_bits_arrive() {
        let mut mac = MacReceive::new(64, RATE);
        let bytes: Vec<u8> = (0..200).collect();
        mac.arrive(10_000, Frame { bytes: bytes.clone(), is_damaged: true });
        let (mut seen, mut times) = (Vec::new(), Vec::new());
        for cycle in 1..100 {
            if let Some(beat) = mac.cycle(cycle * CYCLE_PS) {
                seen.extend_from_slice(&beat.data.0[..beat.keep.count_ones() as usize]);
                times.push(cycle * CYCLE_PS);
                assert_eq!((beat.last, beat.error), (seen.len() == 200, seen.len() == 200));
            }
        }
        assert_eq!(seen, bytes);
        let due_ps = [72, 136, 200, 208].map(|bytes| 10_000 + bytes * 80);
        for (time_ps, due_ps) in times.iter().zip(due_ps) {
            // The last beat is due with the one before it, and is delivered a cycle later.
            assert!((due_ps..due_ps + 2 * CYCLE_PS).contains(time_ps), "{times:?}");
        }
        assert_eq!(mac.received(), Sent { frames: 1, bytes: 200 });
        assert_eq!(mac.waiting(), 0);
    }
}
