//! Captured frames through the packet path alone.
//!
//! Every frame that is sent to the UDP port of RoCEv2 goes in at the MAC, and into [`classify()`]. Both must accept the same frames,
//! and refuse the others for the same reasons. Accepted packets are sent again, and must come out as the contract says. Frames
//! of other protocols are counted and left out.
use crate::print_line;
use anyhow::{Context, Result, ensure};
use rnic_hdl::config::Config;
use rnic_layout::opcode;
use rnic_layout::registers::counter;
use rnic_layout::wire::{DropReason, Filter, PacketRepr, classify};
use rnic_packet_path::differential;
use rnic_packet_path::path::{MacFrame, PacketPath, Received, Stalls, Transmit};
use rnic_stimulus::captures::{Capture, Trace};
use rnic_stimulus::frames::frame_of;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use verilator_sys::Model;

/// File of a directory of captures that says what must come of them; see [`Expected`].
pub const EXPECTED: &str = "expected.json";

/// What must come of the captures of a directory. A directory without the file [`EXPECTED`] may hold anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// RoCEv2 frames in all captures.
    pub frames: u64,
    /// Frames that come out byte for byte as they went in.
    pub frames_identical: u64,
    /// Frames that are refused, by [`DropReason::name`].
    pub drops: BTreeMap<String, u64>,
}

/// The captures of one directory.
#[derive(Clone, Debug)]
pub struct CaptureSet {
    /// Captures, sorted by name.
    pub captures: Vec<Capture>,
    /// What must come of them, if the directory says so.
    pub expected: Option<Expected>,
}

impl CaptureSet {
    /// Reads all captures of a directory, and what must come of them.
    ///
    /// # Errors
    /// If a file cannot be read, or the directory holds no capture.
    pub fn read(directory: &Path) -> Result<CaptureSet> {
        let captures = Capture::read_all(directory)?;
        let path = directory.join(EXPECTED);
        let expected = if path.exists() {
            let parse = || -> Result<Expected> { Ok(serde_json::from_slice(&std::fs::read(&path)?)?) };
            Some(parse().with_context(|| path.display().to_string())?)
        } else {
            None
        };
        Ok(CaptureSet { captures, expected })
    }
}

/// What one capture showed.
#[derive(Clone, Debug, Serialize)]
pub struct CaptureResult {
    /// Name of the capture.
    pub capture: String,
    /// RoCEv2 frames in it.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// Frames of other protocols, which are not sent to the card.
    pub other_frames: u64,
    /// Frames of which the capture holds only the beginning, of any protocol; they are not sent to the card.
    pub cut_short: u64,
    /// Different opcodes among the accepted frames.
    pub opcodes: usize,
    /// Frames that the card accepted.
    pub accepted: u64,
    /// Frames that the card refused.
    pub refused: u64,
    /// Cycles from the first beat in to the last packet out, back to back.
    pub receive_cycles: u64,
    /// Cycles from the first token in to the last beat out.
    pub transmit_cycles: u64,
    /// Rate at which the frames were parsed, at the core clock.
    pub receive_gbps: f64,
    /// Rate at which they were assembled again.
    pub transmit_gbps: f64,
}

/// What the packet path did with captured frames.
#[derive(Clone, Debug, Serialize)]
pub struct Captures {
    /// RoCEv2 frames of all captures together.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// Frames of other protocols.
    pub other_frames: u64,
    /// Frames of which a capture holds only the beginning.
    pub cut_short: u64,
    /// Accepted frames that came out byte for byte as they went in.
    pub frames_identical: u64,
    /// Accepted frames that came out with other values in fields that the card does not keep: UDP checksum, don't-fragment,
    /// reserved bits, pad.
    pub frames_normalised: u64,
    /// Counters of drops that are not zero.
    pub drops: BTreeMap<String, u64>,
    /// Accepted frames by opcode.
    pub opcodes: BTreeMap<String, u64>,
    /// Cycles of all captures, in and out.
    pub cycles: u64,
    /// Rate at which all captures were received.
    pub receive_gbps: f64,
    /// Rate at which they were transmitted.
    pub transmit_gbps: f64,
    /// Results of each capture.
    pub each: Vec<CaptureResult>,
}

/// Cycles that a capture may take however short it is.
const CAPTURE_CYCLES_MIN: u64 = 100_000;
/// Cycles that a frame may take, beyond one for each of its beats.
const FRAME_CYCLES_MAX: u64 = 100;
/// Cycles after which no packet is in flight any more.
const SETTLE_CYCLES: u64 = 1_000;

/// Sends captures through a verilated packet path, writes what went in and out to `trace`, and prints a table.
///
/// # Errors
/// If the packet path and the software view of the contract disagree on a frame, or the captures are not as expected.
pub fn pass(config: &Config, model: &Model, set: &CaptureSet, trace: &Path) -> Result<Captures> {
    let mut bench = Bench::new(config, model, trace)?;
    print_head();
    let progress = indicatif::ProgressBar::new(set.captures.len() as u64);
    for capture in &set.captures {
        let result = bench.pass(capture).with_context(|| capture.name.clone())?;
        progress.suspend(|| print_row(&result));
        bench.results.push(result);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let captures = bench.finish()?;
    print_total(&captures, config.datapath.core_clock_mhz);
    if let Some(expected) = &set.expected {
        let found = Expected {
            frames: captures.frames,
            frames_identical: captures.frames_identical,
            drops: captures.drops.clone(),
        };
        ensure!(found == *expected, "{EXPECTED} of the captures says {expected:?}, and this is {found:?}");
        print_line!("all of this is as {EXPECTED} of the captures says");
    }
    Ok(captures)
}

/// Numbers of frames by reason, without those that are zero.
type Drops = BTreeMap<&'static str, u64>;

struct Bench {
    path: PacketPath,
    config: Config,
    trace: Trace,
    results: Vec<CaptureResult>,
    drops: Drops,
    opcodes: BTreeMap<String, u64>,
    frames_identical: u64,
    frames_normalised: u64,
}

impl Bench {
    fn new(config: &Config, model: &Model, trace: &Path) -> Result<Bench> {
        let mut path = PacketPath::new(model, Stalls::default(), 0)?;
        differential::configure(&mut path, &Filter::PROMISCUOUS)?;
        Ok(Bench {
            path,
            config: config.clone(),
            trace: Trace::create(trace)?,
            results: Vec::new(),
            drops: Drops::new(),
            opcodes: BTreeMap::new(),
            frames_identical: 0,
            frames_normalised: 0,
        })
    }

    /// Sends one capture through parse and assemble, and compares each frame with what the contract makes of it.
    fn pass(&mut self, capture: &Capture) -> Result<CaptureResult> {
        let frames: Vec<&Vec<u8>> = capture.roce_frames().collect();
        let mut packets = Vec::new();
        let mut refused = Drops::new();
        for frame in &frames {
            match classify(frame, false, &Filter::PROMISCUOUS) {
                Ok(packet) => packets.push((frame.as_slice(), packet)),
                Err(reason) => *refused.entry(reason.name()).or_default() += 1,
            }
        }
        let drops_before = self.drops()?;
        let (received, receive_cycles) = self.receive(&frames)?;
        let mut dropped = self.drops()?;
        for (reason, before) in drops_before {
            *dropped.entry(reason).or_default() -= before;
        }
        dropped.retain(|_, count| *count != 0);
        ensure!(dropped == refused, "the card refused {dropped:?}, and should have refused {refused:?}");
        let accepted = packets.len();
        ensure!(received.len() == accepted, "{} frames were accepted, and not {accepted}", received.len());
        let (sent, transmit_cycles) = self.transmit(&received)?;
        self.compare(&packets, &sent)?;
        for (reason, count) in &refused {
            *self.drops.entry(reason).or_default() += count;
        }

        let bytes: u64 = frames.iter().map(|frame| frame.len() as u64).sum();
        let opcodes: BTreeSet<u8> = packets.iter().map(|(_, packet)| packet.bth.opcode).collect();
        Ok(CaptureResult {
            capture: capture.name.clone(),
            frames: frames.len() as u64,
            bytes,
            other_frames: (capture.frames.len() - frames.len()) as u64,
            cut_short: capture.cut_short as u64,
            opcodes: opcodes.len(),
            accepted: accepted as u64,
            refused: refused.values().sum(),
            receive_cycles,
            transmit_cycles,
            receive_gbps: self.gbps(bytes, receive_cycles),
            transmit_gbps: self.gbps(sent.iter().map(|frame| frame.len() as u64).sum(), transmit_cycles),
        })
    }

    /// Compares the frames that were sent with the accepted ones. Requests and responses have queues of their own and may
    /// overtake each other.
    fn compare(&mut self, packets: &[(&[u8], PacketRepr)], sent: &[Vec<u8>]) -> Result<()> {
        let mut unclaimed: BTreeMap<&[u8], u64> = BTreeMap::new();
        for frame in sent {
            *unclaimed.entry(frame).or_default() += 1;
        }
        for (frame, packet) in packets {
            let wanted = frame_of(&packet.canonical());
            let count = unclaimed.get_mut(wanted.as_slice()).filter(|count| **count > 0);
            *count.with_context(|| format!("a frame did not come out: {}", hex::encode(&wanted)))? -= 1;
            // An Ethernet MAC may have padded the frame after the ICRC; that is not the packet's.
            if frame.starts_with(&wanted) {
                self.frames_identical += 1;
            } else {
                self.frames_normalised += 1;
            }
            let name = opcode::lookup(packet.bth.opcode).map_or("unassigned", |row| row.name);
            *self.opcodes.entry(name.to_string()).or_default() += 1;
        }
        Ok(())
    }

    /// Delivers frames back to back; returns the packets and the cycles from the first beat to the last packet.
    fn receive(&mut self, frames: &[&Vec<u8>]) -> Result<(Vec<Received>, u64)> {
        let start = self.path.cycle();
        let mut time = self.nanoseconds();
        for frame in frames {
            self.trace.write(time, frame)?;
            time += self.beats(frame.len()) * self.period_ns();
            self.path.deliver(MacFrame { bytes: frame.to_vec(), error: false });
        }
        let deadline = start + self.cycles_max(frames.iter().map(|frame| frame.len()));
        let mut received = Vec::new();
        let mut quiet = 0;
        while quiet < SETTLE_CYCLES {
            ensure!(self.path.cycle() < deadline, "the capture does not go through");
            self.path.step();
            let news = self.path.take_received();
            quiet = if news.is_empty() && self.path.is_idle_outside() { quiet + 1 } else { 0 };
            received.extend(news);
        }
        let end = received.iter().map(|packet| packet.cycle).max().unwrap_or(start);
        Ok((received, end + 1 - start))
    }

    /// Sends the packets again; returns the frames and the cycles from the first token to the last beat.
    fn transmit(&mut self, received: &[Received]) -> Result<(Vec<Vec<u8>>, u64)> {
        let start = self.path.cycle();
        for packet in received {
            self.path.transmit(Transmit {
                token: packet.token.clone(),
                payload: packet.payload.clone(),
                payload_offset: 0,
            });
        }
        let deadline = start + self.cycles_max(received.iter().map(|packet| packet.payload.len()));
        let mut sent = Vec::new();
        while sent.len() < received.len() {
            ensure!(self.path.cycle() < deadline, "only {} frames come out", sent.len());
            self.path.step();
            sent.extend(self.path.take_sent());
        }
        let end = sent.last().map_or(start, |frame| frame.cycles.1);
        for frame in &sent {
            self.trace.write(frame.cycles.1 * self.period_ns(), &frame.bytes)?;
        }
        Ok((sent.into_iter().map(|frame| frame.bytes).collect(), end + 1 - start))
    }

    /// Frames that the card has refused since its reset, by reason.
    fn drops(&mut self) -> Result<Drops> {
        let counters = differential::counters(&mut self.path)?;
        let all = DropReason::ALL.into_iter().map(|reason| (reason.name(), counters[counter(reason.name())]));
        Ok(all.filter(|(_, count)| *count != 0).collect())
    }

    fn beats(&self, bytes: usize) -> u64 {
        bytes.div_ceil(self.path.width_bytes()) as u64
    }

    /// Cycles within which frames of these bytes must have passed.
    fn cycles_max(&self, frames: impl Iterator<Item = usize>) -> u64 {
        CAPTURE_CYCLES_MIN + frames.map(|bytes| FRAME_CYCLES_MAX + self.beats(bytes)).sum::<u64>()
    }

    fn period_ns(&self) -> u64 {
        u64::from(self.config.core_period_ps()) / 1000
    }

    fn nanoseconds(&self) -> u64 {
        self.path.cycle() * self.period_ns()
    }

    fn gbps(&self, bytes: u64, cycles: u64) -> f64 {
        let seconds = cycles as f64 * f64::from(self.config.core_period_ps()) * 1e-12;
        if cycles == 0 { 0.0 } else { bytes as f64 * 8.0 / seconds / 1e9 }
    }

    /// Sums up the results of all captures.
    fn finish(mut self) -> Result<Captures> {
        self.trace.finish().context("the capture of what went in and out")?;
        let sum = |value: fn(&CaptureResult) -> u64| self.results.iter().map(value).sum::<u64>();
        let bytes = sum(|result| result.bytes);
        let (receive_cycles, transmit_cycles) =
            (sum(|result| result.receive_cycles), sum(|result| result.transmit_cycles));
        Ok(Captures {
            frames: sum(|result| result.frames),
            bytes,
            other_frames: sum(|result| result.other_frames),
            cut_short: sum(|result| result.cut_short),
            frames_identical: self.frames_identical,
            frames_normalised: self.frames_normalised,
            drops: self.drops.iter().map(|(reason, count)| (reason.to_string(), *count)).collect(),
            opcodes: self.opcodes.clone(),
            cycles: receive_cycles + transmit_cycles,
            receive_gbps: self.gbps(bytes, receive_cycles),
            transmit_gbps: self.gbps(bytes, transmit_cycles),
            each: self.results,
        })
    }
}

fn print_head() {
    print_line!(
        "\n{:<28} {:>6} {:>8} {:>6} {:>7} {:>8} {:>7} {:>9} {:>10} {:>7} {:>8}",
        "capture",
        "frames",
        "bytes",
        "other",
        "opcodes",
        "accepted",
        "refused",
        "cycles in",
        "cycles out",
        "Gb/s in",
        "Gb/s out"
    );
}

fn print_row(row: &CaptureResult) {
    print_line!(
        "{:<28} {:>6} {:>8} {:>6} {:>7} {:>8} {:>7} {:>9} {:>10} {:>7.1} {:>8.1}",
        row.capture,
        row.frames,
        row.bytes,
        row.other_frames + row.cut_short,
        row.opcodes,
        row.accepted,
        row.refused,
        row.receive_cycles,
        row.transmit_cycles,
        row.receive_gbps,
        row.transmit_gbps
    );
}

fn print_total(captures: &Captures, clock_mhz: u32) {
    print_line!("\naccepted frames by opcode:");
    for (name, count) in &captures.opcodes {
        print_line!("  {name:<28} {count:>6}");
    }
    print_line!(
        "{} files: {} RoCEv2 frames, {} frames of other protocols, {} frames cut short by the capture",
        captures.each.len(),
        captures.frames,
        captures.other_frames,
        captures.cut_short
    );
    print_line!(
        "{} frames were accepted: {} came out byte for byte, {} with fields reset that the card does not keep",
        captures.frames_identical + captures.frames_normalised,
        captures.frames_identical,
        captures.frames_normalised
    );
    let refused: Vec<String> =
        captures.drops.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    print_line!(
        "{} frames were refused, as the contract says{}{}",
        captures.drops.values().sum::<u64>(),
        if refused.is_empty() { "" } else { ": " },
        refused.join(", ")
    );
    print_line!(
        "{} bytes in {} cycles at {} MHz: {:.1} Gb/s in, {:.1} Gb/s out, over all captures with their starts and ends",
        captures.bytes,
        captures.cycles,
        clock_mhz,
        captures.receive_gbps,
        captures.transmit_gbps
    );
}
