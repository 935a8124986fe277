//! Captures: reads those of other RoCEv2 stacks, and writes the frames that cross our own ports.
pub mod flow;
mod format;

use anyhow::{Context, Result, anyhow, ensure};
use pcap_file::pcap::PcapHeader;
use pcap_file::{DataLink, Endianness, TsResolution};
use rnic_layout::path::ROCE_PORT;
use rnic_layout::wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN};
use rnic_layout::wire::ip::PROTOCOL_UDP;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Endings of the files that [`Capture::read_all`] takes.
const ENDINGS: [&str; 3] = ["pcap", "pcapng", "cap"];

/// The frames of one capture.
#[derive(Clone, Debug)]
pub struct Capture {
    /// File name without its ending.
    pub name: String,
    /// Whole frames without FCS, in the order of the file.
    pub frames: Vec<Vec<u8>>,
    /// When each of them was captured, in nanoseconds since 1970. Where a pcapng file does not say it, the time of the frame
    /// before.
    pub times_ns: Vec<i128>,
    /// Frames of which the file holds only the beginning, because the capture had a snap length. They are left out of
    /// `frames`.
    pub cut_short: usize,
}

impl Capture {
    /// Reads a pcap or pcapng file.
    ///
    /// # Errors
    /// If the file cannot be read, has another format, is damaged, has a packet that was not taken on Ethernet, or only the
    /// beginnings of frames. The error names the file and the packet.
    pub fn read(path: &Path) -> Result<Capture> {
        Capture::read_file(path).with_context(|| path.display().to_string())
    }

    /// Reads all captures of a directory (`.pcap`, `.pcapng`, `.cap`), sorted by name. Subdirectories are not searched.
    ///
    /// # Errors
    /// If the directory or one of the files cannot be read, or the directory holds no capture.
    pub fn read_all(directory: &Path) -> Result<Vec<Capture>> {
        let list = || -> std::io::Result<Vec<PathBuf>> {
            std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
        };
        let mut paths =
            list().with_context(|| format!("cannot read the directory {}", directory.display()))?;
        paths.retain(|path| {
            let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
            ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
        });
        paths.sort();
        ensure!(
            !paths.is_empty(),
            "the directory {} holds no capture (.pcap, .pcapng or .cap)",
            directory.display()
        );
        paths.iter().map(|path| Capture::read(path)).collect()
    }

    fn read_file(path: &Path) -> Result<Capture> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut capture = Capture { name, frames: Vec::new(), times_ns: Vec::new(), cut_short: 0 };
        for packet in format::packets(&std::fs::read(path)?)? {
            if packet.is_whole {
                let newest = capture.times_ns.last().copied();
                capture.frames.push(packet.bytes.to_vec());
                capture.times_ns.push(packet.time_ns.or(newest).unwrap_or_default());
            } else {
                capture.cut_short += 1;
            }
        }
        let cut = capture.cut_short;
        ensure!(
            cut == 0 || !capture.frames.is_empty(),
            "only the beginning of each of the {cut} frames is there: capture without a snap length"
        );
        Ok(capture)
    }

    /// The frames that are sent to the UDP port of RoCEv2, correct or not.
    pub fn roce_frames(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.frames.iter().filter(|frame| is_roce(frame))
    }
}

/// Returns whether a frame carries UDP to port 4791, be its other fields right or wrong. Frames that are too short to tell, and
/// IP fragments other than the first, are not RoCEv2.
fn is_roce(frame: &[u8]) -> bool {
    let has = |offset: usize, bytes: &[u8]| frame.get(offset..offset + bytes.len()) == Some(bytes);
    let port = ROCE_PORT.to_be_bytes();
    let ethertype = if has(12, &ETHERTYPE_VLAN.to_be_bytes()) { 16 } else { 12 };
    let ip = ethertype + 2;
    if has(ethertype, &ETHERTYPE_IPV4.to_be_bytes()) {
        let header_bytes = frame.get(ip).map_or(0, |byte| usize::from(byte & 0xf) * 4);
        let offset =
            frame.get(ip + 6..ip + 8).map_or(0, |field| u16::from_be_bytes([field[0] & 0x1f, field[1]]));
        has(ip + 9, &[PROTOCOL_UDP]) && offset == 0 && has(ip + header_bytes + 2, &port)
    } else {
        has(ethertype, &ETHERTYPE_IPV6.to_be_bytes())
            && has(ip + 6, &[PROTOCOL_UDP])
            && has(ip + 40 + 2, &port)
    }
}

/// Bytes of packets that wait in memory for the next write to a capture.
const BUFFER_BYTES: usize = 64 << 10;
/// Time that the reader of a pipe has to take them.
const PATIENCE: Duration = Duration::from_millis(500);

/// Waits until a pipe takes more. Returns whether it does before the deadline.
fn takes_more(file: &File, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).expect("it is short");
    matches!(poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&left)), Ok(1..))
}

/// The packets of a file that are not written yet. A file that can't be written any more is cut after its last whole packet.
struct Packets {
    file: File,
    bytes: Vec<u8>,
    /// Ends of the packets in `bytes`.
    ends: Vec<usize>,
    /// Bytes of the file before them.
    before: u64,
}

impl Packets {
    fn flush(&mut self) -> std::io::Result<()> {
        let mut done = 0;
        let deadline = Instant::now() + PATIENCE;
        while done < self.bytes.len() {
            match self.file.write(&self.bytes[done..]) {
                Ok(count) if count > 0 => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && takes_more(&self.file, deadline) => {}
                outcome => {
                    let end = self.ends.iter().rfind(|&&end| end <= done).copied().unwrap_or(0);
                    // A device has no length.
                    let _ = self.file.set_len(self.before + end as u64);
                    self.clear();
                    return Err(outcome.err().unwrap_or_else(|| ErrorKind::WriteZero.into()));
                }
            }
        }
        self.before += done as u64;
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// A pcap file that is being written, with timestamps in nanoseconds. It has whole packets at any time.
pub struct Trace(Packets);

impl Trace {
    /// Creates the file, or opens a pipe. Nobody waits for the reader of a pipe: one that falls behind ends the capture.
    ///
    /// # Errors
    /// If it cannot be made, or nobody reads the pipe. A disk that is full is noticed when the first packets are written.
    pub fn create(path: &Path) -> Result<Trace> {
        let header = PcapHeader {
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::Little,
            ..PcapHeader::default()
        };
        let mut options = File::options();
        options.write(true).create(true).truncate(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => anyhow!("it is a pipe that nobody reads: start its reader first"),
            _ => error.into(),
        });
        let file = file.with_context(|| path.display().to_string())?;
        let mut packets = Packets { file, bytes: Vec::new(), ends: Vec::new(), before: 0 };
        header.write_to(&mut packets.bytes)?;
        packets.ends.push(packets.bytes.len());
        Ok(Trace(packets))
    }

    /// Appends a frame without FCS. Timestamps must not decrease.
    ///
    /// # Errors
    /// If the file cannot be written. It is not written any more then.
    pub fn write(&mut self, nanoseconds: u64, frame: &[u8]) -> Result<()> {
        let packets = &mut self.0;
        let seconds =
            u32::try_from(nanoseconds / 1_000_000_000).context("a capture is as long as 136 years")?;
        let length = frame.len() as u32;
        for field in [seconds, (nanoseconds % 1_000_000_000) as u32, length, length] {
            packets.bytes.extend(field.to_le_bytes());
        }
        packets.bytes.extend_from_slice(frame);
        packets.ends.push(packets.bytes.len());
        if packets.bytes.len() >= BUFFER_BYTES {
            packets.flush()?;
        }
        Ok(())
    }

    /// Writes the packets that wait in memory, as at the end of a run.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}

impl Drop for Trace {
    /// A run that fails leaves what it has captured.
    fn drop(&mut self) {
        let _ = self.0.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a file of these bytes.
    fn error_of(bytes: &[u8]) -> Result<String> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("some.pcap");
        std::fs::write(&path, bytes)?;
        let error = format!("{:#}", Capture::read(&path).expect_err("the file is damaged"));
        let rest = error.strip_prefix(&format!("{}: ", path.display()));
        Ok(rest.with_context(|| format!("the error does not name the file: {error}"))?.to_string())
    }

    /// A pcap file of one frame of 60 bytes: a header of 24 bytes, 16 of the packet, and the frame.
    fn pcap() -> Result<Vec<u8>> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("one.pcap");
        Trace::create(&path)?.write(1, &[0x11; 60])?;
        Ok(std::fs::read(path)?)
    }

    #[test]
    fn a_damaged_file_is_named_with_what_is_wrong() -> Result<()> {
        assert_eq!(error_of(b"")?, "the file is empty");
        assert_eq!(error_of(b"no capture")?, "neither pcap nor pcapng: the file begins with 6e6f2063");
        let good = pcap()?;
        let ends = "the file ends in the middle, or a length in it is wrong";
        assert_eq!(error_of(&good[..20])?, format!("the file header: {ends}"));
        assert_eq!(error_of(&good[..good.len() - 1])?, format!("packet 1: {ends}"));
        Ok(())
    }

    #[test]
    fn a_capture_has_whole_packets_and_tells_what_it_could_not_write() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("full.pcap");
        let mut trace = Trace::create(&path)?;
        // All that is written from here on fails.
        trace.0.file = File::open(&path)?;
        trace.write(1, &[0x11; 60])?;
        let outcome = trace.finish();
        ensure!(outcome.is_err(), "the loss is told");
        ensure!(std::fs::metadata(&path)?.len() == 0);

        let mut trace = Trace::create(&path)?;
        for index in 0..2000 {
            trace.write(index, &[index as u8; 60])?;
        }
        let bytes = std::fs::metadata(&path)?.len();
        ensure!(bytes > 24 && (bytes - 24).is_multiple_of(16 + 60), "whole packets at any time");
        trace.finish()?;
        ensure!(Capture::read(&path)?.frames.len() == 2000);
        Ok(())
    }

    /// A capture into a pipe waits for no reader: neither for one that comes, nor for long for one that does not read.
    #[test]
    fn a_pipe_holds_up_nobody() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)?;
        let Err(error) = Trace::create(&path) else { anyhow::bail!("nobody reads it") };
        ensure!(format!("{error:#}").ends_with("it is a pipe that nobody reads: start its reader first"));
        let reader = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path)?;
        let mut trace = Trace::create(&path)?;
        let start = Instant::now();
        let outcome = (0..2000).try_for_each(|index| trace.write(index, &[0x11; 60]));
        ensure!(outcome.is_err() && start.elapsed() < 20 * PATIENCE, "{:?}", start.elapsed());
        drop((trace, reader));

        let name = path.clone();
        let copy = std::thread::spawn(move || std::fs::read(name));
        let mut trace = loop {
            match Trace::create(&path) {
                Ok(trace) => break trace,
                Err(_) => std::thread::yield_now(),
            }
        };
        (0..2000).try_for_each(|index| trace.write(index, &[0x11; 60]))?;
        drop(trace);
        let bytes = copy.join().expect("the reader has not panicked")?;
        ensure!(format::packets(&bytes)?.len() == 2000);
        Ok(())
    }

    #[test]
    fn a_directory_without_captures_is_named() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let name = directory.path().display();
        let error = |path: &Path| format!("{:#}", Capture::read_all(path).expect_err("no captures"));
        std::fs::write(directory.path().join("notes.txt"), "no capture")?;
        let wanted = format!("the directory {name} holds no capture (.pcap, .pcapng or .cap)");
        assert_eq!(error(directory.path()), wanted);
        let missing = error(&directory.path().join("missing"));
        assert!(missing.starts_with(&format!("cannot read the directory {name}/missing: ")), "{missing}");
        Ok(())
    }

    #[test]
    fn frames_cut_by_a_snap_length_are_counted_and_left_out() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let mut bytes = pcap()?;
        let second = bytes[24..].to_vec();
        // The first one had 2000 bytes on the wire.
        bytes[36..40].copy_from_slice(&2000u32.to_le_bytes());
        bytes.extend(second);
        std::fs::write(directory.path().join("B.CAP"), bytes)?;
        let captures = Capture::read_all(directory.path())?;
        assert_eq!((captures[0].name.as_str(), captures[0].frames.len(), captures[0].cut_short), ("B", 1, 1));
        Ok(())
    }

    #[test]
    fn a_capture_of_cut_frames_only_is_refused_for_that() -> Result<()> {
        let mut bytes = pcap()?;
        bytes[36..40].copy_from_slice(&2000u32.to_le_bytes());
        let expected = "only the beginning of each of the 1 frames is there: capture without a snap length";
        assert_eq!(error_of(&bytes)?, expected);
        Ok(())
    }

    #[test]
    fn frames_keep_the_times_of_their_file() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("times.pcap");
        let times = [1, 1_999_999_999, 3_000_000_000];
        let mut trace = Trace::create(&path)?;
        times.iter().try_for_each(|time| trace.write(*time, &[0; 60]))?;
        drop(trace);
        assert_eq!(Capture::read(&path)?.times_ns, times.map(i128::from));
        Ok(())
    }

    #[test]
    fn only_udp_to_port_4791_is_roce() {
        let mut frame = vec![0; 60];
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[23] = PROTOCOL_UDP;
        frame[36..38].copy_from_slice(&ROCE_PORT.to_be_bytes());
        assert!(is_roce(&frame));
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
        assert!(is_roce(&tagged));
        for (offset, value) in [(12, 0x09), (20, 0x01), (21, 0x01), (23, 6), (36, 0), (37, 0), (14, 0x46)] {
            let mut other = frame.clone();
            other[offset] = value;
            assert!(!is_roce(&other), "byte {offset} is {value:#x}");
        }
        assert!(!is_roce(&frame[..37]) && !is_roce(&[]));
    }
}
