//! Captures: reads those of other RoCEv2 stacks, and writes the frames that cross our own ports.
pub mod flow;

use anyhow::{Context, Result, anyhow, bail, ensure};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use rnic_layout::path::ROCE_PORT;
use rnic_layout::wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN};
use rnic_layout::wire::ip::PROTOCOL_UDP;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A resolution of 10^-6 seconds, which a pcapng file need not state.
const MICROSECONDS: u8 = 6;

/// Endings of the files that [`Capture::read_all`] takes.
const ENDINGS: [&str; 3] = ["pcap", "pcapng", "cap"];

/// The frames of one capture.
#[derive(Clone, Debug)]
pub struct Capture {
    /// File name without its ending.
    pub name: String,
    /// Whole frames without FCS, in the order of the file.
    pub frames: Vec<Vec<u8>>,
    /// When each of them was captured. Where a pcapng file does not say it, the time of the frame before.
    pub timestamps: Vec<Duration>,
    /// Frames of which the file holds only the beginning, because the capture had a snap length. They are left out of
    /// `frames`.
    pub cut_short: usize,
}

impl Capture {
    /// Reads a pcap or pcapng file.
    ///
    /// # Errors
    /// If the file cannot be read, has another format, is damaged, or was not taken on Ethernet. The error names the file and
    /// the packet.
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
        let mut file = BufReader::new(File::open(path)?);
        let magic: Vec<u8> = file.fill_buf()?.iter().copied().take(4).collect();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut capture = Capture { name, frames: Vec::new(), timestamps: Vec::new(), cut_short: 0 };
        match magic[..] {
            [] => bail!("the file is empty"),
            [0xa1, 0xb2, 0xc3, 0xd4] | [0xd4, 0xc3, 0xb2, 0xa1] => capture.read_pcap(file)?,
            [0xa1, 0xb2, 0x3c, 0x4d] | [0x4d, 0x3c, 0xb2, 0xa1] => capture.read_pcap(file)?,
            [0x0a, 0x0d, 0x0d, 0x0a] => capture.read_pcapng(file)?,
            _ => bail!("neither pcap nor pcapng: the file begins with {}", hex::encode(magic)),
        }
        Ok(capture)
    }

    fn read_pcap(&mut self, file: impl Read) -> Result<()> {
        let mut reader = PcapReader::new(file).map_err(explain).context("the file header")?;
        let header = reader.header();
        ensure_ethernet(header.datalink)?;
        let fraction_ns = if header.ts_resolution == TsResolution::NanoSecond { 1 } else { 1000 };
        // Raw, because the reader itself refuses what is longer than the snap length.
        while let Some(packet) = reader.next_raw_packet() {
            let packet = packet.map_err(explain).with_context(|| self.next_packet())?;
            let fraction = Duration::from_nanos(u64::from(packet.ts_frac) * fraction_ns);
            let time = Duration::from_secs(packet.ts_sec.into()) + fraction;
            self.push(&packet.data, packet.orig_len, Some(time));
        }
        Ok(())
    }

    fn read_pcapng(&mut self, file: impl Read) -> Result<()> {
        let mut reader = PcapNgReader::new(file).map_err(explain).context("the section header")?;
        let mut resolutions = Vec::new();
        while let Some(block) = reader.next_block() {
            match block.map_err(explain).with_context(|| self.next_packet())? {
                Block::InterfaceDescription(interface) => {
                    ensure_ethernet(interface.linktype)?;
                    resolutions.push(resolution(&interface.options));
                }
                Block::EnhancedPacket(packet) => {
                    let resolution = resolutions.get(packet.interface_id as usize).copied();
                    let resolution = resolution.with_context(|| {
                        format!("{} is of an interface that the file does not describe", self.next_packet())
                    })?;
                    // The reader takes the units of the interface for nanoseconds.
                    let time = time_of(packet.timestamp.as_nanos(), resolution);
                    self.push(&packet.data, packet.original_len, Some(time));
                }
                // The data of a simple packet ends with the padding of its block.
                Block::SimplePacket(packet) => {
                    let captured = packet.data.len().min(packet.original_len as usize);
                    self.push(&packet.data[..captured], packet.original_len, None);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn push(&mut self, captured: &[u8], bytes_on_wire: u32, time: Option<Duration>) {
        if captured.len() < bytes_on_wire as usize {
            self.cut_short += 1;
        } else {
            self.frames.push(captured.to_vec());
            let newest = self.timestamps.last().copied();
            self.timestamps.push(time.or(newest).unwrap_or_default());
        }
    }

    /// Says which packet of the file is being read, counted from 1.
    fn next_packet(&self) -> String {
        format!("packet {}", self.frames.len() + self.cut_short + 1)
    }

    /// The frames that are sent to the UDP port of RoCEv2, correct or not.
    pub fn roce_frames(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.frames.iter().filter(|frame| is_roce(frame))
    }
}

/// Turns an error of the pcap reader into a sentence.
fn explain(error: PcapError) -> anyhow::Error {
    match error {
        PcapError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            anyhow!("the file ends in the middle, or a length in it is wrong")
        }
        error => error.into(),
    }
}

fn ensure_ethernet(link: DataLink) -> Result<()> {
    ensure!(link == DataLink::ETHERNET, "not a capture of Ethernet, but of link type {}", u32::from(link));
    Ok(())
}

/// The unit of an interface's timestamps (pcapng, option `if_tsresol`).
fn resolution(options: &[InterfaceDescriptionOption<'_>]) -> u8 {
    let told = options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    told.unwrap_or(MICROSECONDS)
}

/// The time of `units`, of which a second has 10^r, or 2^r where the highest bit of the resolution r is set. What does not fit into
/// 128 bits of nanoseconds is the end of time.
fn time_of(units: u128, resolution: u8) -> Duration {
    let exponent = u32::from(resolution & 0x7f);
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let per_second = base.checked_pow(exponent).unwrap_or(u128::MAX);
    let nanoseconds = units.saturating_mul(1_000_000_000) / per_second;
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
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

/// A pcap file that is being written, with timestamps in nanoseconds.
pub struct Trace(PcapWriter<BufWriter<File>>);

impl Trace {
    /// Creates the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path) -> Result<Trace> {
        let header = PcapHeader {
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::Little,
            ..PcapHeader::default()
        };
        let file = File::create(path).with_context(|| format!("{}", path.display()))?;
        Ok(Trace(PcapWriter::with_header(BufWriter::new(file), header)?))
    }

    /// Appends a frame without FCS. Timestamps must not decrease.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&mut self, nanoseconds: u64, frame: &[u8]) -> Result<()> {
        let packet = PcapPacket::new(Duration::from_nanos(nanoseconds), frame.len() as u32, frame);
        self.0.write_packet(&packet)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::PcapNgWriter;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
    use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;

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
        let mut twice = good.clone();
        twice.extend_from_slice(&[0xff; 40]);
        assert_eq!(error_of(&twice)?, format!("packet 2: {ends}"));
        let mut wireless = good;
        wireless[20] = 105;
        assert_eq!(error_of(&wireless)?, "not a capture of Ethernet, but of link type 105");
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
    fn pcapng_is_read_as_well() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("new.pcapng");
        let mut writer = PcapNgWriter::new(File::create(&path)?)?;
        writer.write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0xffff))?;
        for original_len in [61, 62] {
            let data = (&[0x11; 61][..]).into();
            // Of the units of the interface, microseconds.
            let timestamp = Duration::from_nanos(7);
            let options = Vec::new();
            writer.write_pcapng_block(EnhancedPacketBlock {
                interface_id: 0,
                timestamp,
                original_len,
                data,
                options,
            })?;
        }
        drop(writer);
        let capture = Capture::read(&path)?;
        assert_eq!((capture.frames, capture.cut_short), (vec![vec![0x11; 61]], 1));
        assert_eq!(capture.timestamps, [Duration::from_micros(7)]);
        Ok(())
    }

    #[test]
    fn timestamps_are_in_the_units_of_their_interface() {
        for (units, resolution, nanoseconds) in [
            (5, 0, 5_000_000_000),
            (5, 3, 5_000_000),
            (5, MICROSECONDS, 5000),
            (5, 9, 5),
            (5999, 12, 5),
            (3, 0x81, 1_500_000_000),
            (5, 0x80 | 30, 4),
            (5, 0x7f, 0),
            (u64::MAX, 0, u64::MAX),
        ] {
            let time = time_of(units.into(), resolution);
            assert_eq!(time, Duration::from_nanos(nanoseconds), "{units} of {resolution:#x}");
        }
    }

    #[test]
    fn frames_keep_the_times_of_their_file() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("times.pcap");
        let times = [1, 1_999_999_999, 3_000_000_000];
        let mut trace = Trace::create(&path)?;
        times.iter().try_for_each(|time| trace.write(*time, &[0; 60]))?;
        drop(trace);
        assert_eq!(Capture::read(&path)?.timestamps, times.map(Duration::from_nanos));
        // The same numbers as microseconds.
        let mut bytes = std::fs::read(&path)?;
        bytes[..4].copy_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
        bytes[24 + 4..][..4].copy_from_slice(&7_u32.to_le_bytes());
        std::fs::write(&path, bytes)?;
        assert_eq!(Capture::read(&path)?.timestamps[0], Duration::from_micros(7));
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
