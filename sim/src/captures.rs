//! Captures: reading those that other stacks made, and writing what crossed our own ports.
pub mod flow;

use anyhow::{Context, Result};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use rnic_layout::wire::{DropReason, Filter, classify};
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The frames of one capture.
#[derive(Clone, Debug)]
pub struct Capture {
    /// File name without its ending.
    pub name: String,
    /// In the order of the file.
    pub frames: Vec<Vec<u8>>,
}

impl Capture {
    /// Reads a pcap file.
    ///
    /// # Errors
    /// If it cannot be read, or is no pcap of Ethernet.
    pub fn read(path: &Path) -> Result<Capture> {
        let read = || -> Result<Vec<Vec<u8>>> {
            let mut reader = PcapReader::new(BufReader::new(File::open(path)?))?;
            anyhow::ensure!(reader.header().datalink == DataLink::ETHERNET, "not a capture of Ethernet");
            let mut frames = Vec::new();
            while let Some(packet) = reader.next_packet() {
                frames.push(packet?.data.into_owned());
            }
            Ok(frames)
        };
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Capture { name, frames: read().with_context(|| format!("{}", path.display()))? })
    }

    /// Reads all pcap files of a directory, by name.
    ///
    /// # Errors
    /// If the directory or one of them cannot be read, or there is none.
    pub fn read_all(directory: &Path) -> Result<Vec<Capture>> {
        let entries = std::fs::read_dir(directory).with_context(|| format!("{}", directory.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
        paths.sort();
        anyhow::ensure!(!paths.is_empty(), "{} holds no pcap file", directory.display());
        paths.iter().map(|path| Capture::read(path)).collect()
    }

    /// The frames that are meant for a RoCEv2 card, right or wrong: UDP to port 4791.
    pub fn roce_frames(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.frames.iter().filter(|frame| is_roce(frame))
    }
}

/// Whether a frame is addressed to RoCEv2: whatever is wrong with it, it is not another protocol's.
fn is_roce(frame: &[u8]) -> bool {
    use DropReason::{OtherEthertype, OtherPort, OtherProtocol, ShortEthernet};
    let others = [ShortEthernet, OtherEthertype, OtherProtocol, OtherPort];
    !matches!(classify(frame, false, &Filter::PROMISCUOUS), Err(reason) if others.contains(&reason))
}

/// Writes frames with the time at which they crossed, in nanoseconds.
pub struct Trace(PcapWriter<BufWriter<File>>);

impl Trace {
    /// Makes the file.
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

    /// Adds a frame; times must not fall.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, nanoseconds: u64, frame: &[u8]) -> Result<()> {
        let packet = PcapPacket::new(Duration::from_nanos(nanoseconds), frame.len() as u32, frame);
        self.0.write_packet(&packet)?;
        Ok(())
    }
}
