//! Recorder of a port: writes a capture file on request, and always keeps the newest frames for a run that fails.
use super::Frame;
use anyhow::Result;
use rnic_stimulus::captures::Trace;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// Frames that are kept for each port.
pub const FRAMES_KEPT: usize = 2048;

/// Frames that crossed one port, in both directions.
#[derive(Default)]
pub struct Recorder {
    trace: Option<(PathBuf, Trace)>,
    /// Why the capture has ended before the run.
    loss: Option<String>,
    newest: VecDeque<(u64, Vec<u8>)>,
    frames: u64,
}

impl Recorder {
    /// Writes all frames from now on to a pcap file with nanosecond timestamps.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn capture(&mut self, path: &Path) -> Result<()> {
        self.trace = Some((path.to_path_buf(), Trace::create(path)?));
        Ok(())
    }

    /// Ends the capture.
    pub fn end_capture(&mut self) {
        if let Some((path, mut trace)) = self.trace.take() {
            self.lose(&path, trace.finish());
        }
    }

    /// Takes the reason why the capture misses frames, if it does, once.
    pub fn take_loss(&mut self) -> Option<String> {
        self.loss.take()
    }

    fn lose(&mut self, path: &Path, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.loss = Some(format!("the capture {} misses frames: {error:#}", path.display()));
        }
    }

    /// Records a frame. If the file cannot be written any more, the capture ends, and this is a loss.
    pub fn frame(&mut self, now_ps: u64, frame: &Frame) {
        self.frames += 1;
        let now_ns = now_ps / 1000;
        if let Some((path, mut trace)) = self.trace.take() {
            match trace.write(now_ns, &frame.bytes) {
                Ok(()) => self.trace = Some((path, trace)),
                outcome => self.lose(&path, outcome),
            }
        }
        // The buffer of the oldest frame is reused.
        let mut bytes = match self.newest.len() {
            FRAMES_KEPT => self.newest.pop_front().map(|(_, bytes)| bytes).unwrap_or_default(),
            _ => Vec::new(),
        };
        bytes.clear();
        bytes.extend_from_slice(&frame.bytes);
        self.newest.push_back((now_ns, bytes));
    }

    /// Frames so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Writes the newest frames to a pcap file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn leave(&self, path: &Path) -> Result<()> {
        let mut trace = Trace::create(path)?;
        self.newest.iter().try_for_each(|(now_ns, bytes)| trace.write(*now_ns, bytes))?;
        trace.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_stimulus::captures::Capture;

    #[test]
    fn a_capture_has_all_frames_and_what_is_left_the_newest() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let (all, newest) = (folder.path().join("all.pcap"), folder.path().join("newest.pcap"));
        let count = FRAMES_KEPT + 10;
        let mut recorder = Recorder::default();
        recorder.capture(&all)?;
        for index in 0..count {
            let bytes = (index as u32).to_le_bytes().repeat(16);
            recorder.frame(index as u64 * 1500, &Frame::new(bytes));
        }
        recorder.leave(&newest)?;
        assert_eq!(recorder.frames(), count as u64);
        recorder.end_capture();
        assert_eq!(recorder.take_loss(), None);
        assert_eq!(Capture::read(&all)?.frames.len(), count);
        let left = Capture::read(&newest)?.frames;
        assert_eq!((left.len(), &left[0][..4]), (FRAMES_KEPT, &10_u32.to_le_bytes()[..]));
        Ok(())
    }
}
