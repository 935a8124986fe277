//! A station that sends given frames at given times, and keeps the frames that it receives.
use super::{Frame, Station};
use rnic_stimulus::captures::Capture;
use std::collections::VecDeque;

/// A station that plays a capture, or any list of frames.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    frames: VecDeque<(u64, Frame)>,
    received: Vec<(u64, Frame)>,
}

impl Replay {
    /// Makes a station with nothing to send.
    pub fn new() -> Replay {
        Replay::default()
    }

    /// Plays all frames of a capture from a time on, back to back.
    pub fn capture(capture: &Capture, start_ps: u64) -> Replay {
        let mut replay = Replay::new();
        for bytes in &capture.frames {
            replay.send_at(start_ps, Frame::new(bytes.clone()));
        }
        replay
    }

    /// Appends a frame, which is not sent before a time.
    pub fn send_at(&mut self, time_ps: u64, frame: Frame) {
        self.frames.push_back((time_ps, frame));
    }

    /// Frames that are not sent yet.
    pub fn waiting(&self) -> usize {
        self.frames.len()
    }

    /// Takes the frames that have arrived since the last call, with the times at which they were complete.
    pub fn take_received(&mut self) -> Vec<(u64, Frame)> {
        std::mem::take(&mut self.received)
    }
}

impl Station for Replay {
    fn receive(&mut self, now_ps: u64, frame: &Frame) {
        self.received.push((now_ps, frame.clone()));
    }

    fn wakes_ps(&self) -> Option<u64> {
        self.frames.front().map(|(time_ps, _)| *time_ps)
    }

    fn transmit(&mut self, now_ps: u64) -> Option<Frame> {
        self.frames.pop_front_if(|(time_ps, _)| *time_ps <= now_ps).map(|(_, frame)| frame)
    }
}
