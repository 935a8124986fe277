//! The demo: two generated cards on a wire move messages between two drivers, and frames that the Linux kernel sent go through
//! the packet path of the card and come out as they went in.
use crate::bench;
use crate::captures::{Capture, Trace};
use crate::differential;
use crate::host::HostOptions;
use crate::latency;
use crate::packet_path::{self, MacFrame, PacketPath, Received, Stalls, Transmit};
use crate::report;
use crate::scenario::{self, ScenarioOptions};
use anyhow::{Context, Result, ensure};
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_layout::opcode;
use rnic_layout::registers::counter;
use rnic_layout::wire::{DropReason, Filter, PacketRepr};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use verilator_sys::{Model, ModelOptions, Optimization};

/// What one capture showed.
#[derive(Clone, Debug, Serialize)]
pub struct CaptureResult {
    /// Name of the capture.
    pub capture: String,
    /// RoCEv2 frames in it.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// Different opcodes among them.
    pub opcodes: usize,
    /// Frames whose ICRC was proven.
    pub icrc_good: u64,
    /// Frames refused for their ICRC.
    pub icrc_bad: u64,
    /// Cycles from the first beat in to the last packet out, back to back.
    pub receive_cycles: u64,
    /// Cycles from the first token in to the last beat out.
    pub transmit_cycles: u64,
    /// Rate at which the frames were taken apart, at the core clock.
    pub receive_gbps: f64,
    /// Rate at which they were put together again.
    pub transmit_gbps: f64,
}

/// What the demo showed.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The configuration.
    pub config: Config,
    /// Core clock, for all rates.
    pub clock_mhz: u32,
    /// What two cards did.
    #[serde(flatten)]
    pub cards: scenario::Results,
    /// How fast they are, by length of the message.
    pub curve: Vec<bench::Row>,
    /// What the packet path did with frames of others.
    pub captures: Captures,
}

/// What the packet path did with captured frames.
#[derive(Clone, Debug, Serialize)]
pub struct Captures {
    /// All captures together.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// Frames that came out as they went in.
    pub frames_identical: u64,
    /// Counters of drops that are not zero.
    pub drops: BTreeMap<String, u64>,
    /// Frames by opcode.
    pub opcodes: BTreeMap<String, u64>,
    /// Cycles of all captures, in and out.
    pub cycles: u64,
    /// Rates over all captures.
    pub receive_gbps: f64,
    /// Rates over all captures.
    pub transmit_gbps: f64,
    /// Capture by capture.
    pub each: Vec<CaptureResult>,
}

/// How the demo is run.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The configuration of the card.
    pub config: Config,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Messages between the two cards, at least.
    pub messages: usize,
}

/// Cycles that one capture may take.
const CAPTURE_CYCLES_MAX: u64 = 10_000_000;
/// Cycles after which no packet is under way any more.
const SETTLE_CYCLES: u64 = 1_000;

/// Runs the demo and writes `rnic.v`, `trace.pcap` (what crossed the port of one of the two cards), `captures.pcap` (what went
/// in and out of the packet path), `summary.json` and `report.svg` into `out`.
///
/// # Errors
/// If a tool is missing, a message did not do what it must, or a frame did not come out as it went in.
pub fn run(options: &DemoOptions, captures: &Path, out: &Path) -> Result<Summary> {
    let config = &options.config;
    let (width_bits, clock_mhz) = (config.datapath.width_bits, config.datapath.core_clock_mhz);
    std::fs::create_dir_all(out).with_context(|| format!("{}", out.display()))?;
    println!("generating the card: {width_bits} bits at {clock_mhz} MHz");
    let product = generator::generate(config)?;
    std::fs::write(out.join("rnic.v"), &product.verilog)?;
    println!("verilating {} lines of Verilog", product.verilog.lines().count());
    let model_options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let model = Model::build(TOP, &product.verilog, &model_options)?;
    println!("two cards on a wire: {} messages, seed {}", options.messages, options.seed);
    let scenario_options =
        ScenarioOptions { seed: options.seed, messages: options.messages, host: HostOptions::STANDARD };
    let cards = scenario::play(&model, width_bits, &scenario_options, &out.join("trace.pcap"))?;
    print_cards(&cards);
    println!("\none queue pair at full speed, by length of the message");
    let curve = bench::measure(&model, width_bits, &bench::curve(), options.seed)?;

    println!("\nthe packet path alone, with frames of the Linux kernel");
    let model = packet_path::build_model(config, &model_options)?;
    let captures = pass_captures(config, &model, captures, out)?;
    let summary = Summary { config: config.clone(), clock_mhz, cards, curve, captures };
    std::fs::write(out.join("summary.json"), serde_json::to_string_pretty(&summary)? + "\n")?;
    report::draw(&summary, &out.join("report.svg"))?;
    Ok(summary)
}

fn pass_captures(config: &Config, model: &Model, captures: &Path, out: &Path) -> Result<Captures> {
    let captures = Capture::read_all(captures)?;
    let mut bench = Bench::new(config, model, out)?;
    let progress = indicatif::ProgressBar::new(captures.len() as u64);
    for capture in &captures {
        let result = bench.pass(capture).with_context(|| capture.name.clone())?;
        progress.suspend(|| print_row(&result));
        bench.results.push(result);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let clock_mhz = config.datapath.core_clock_mhz;
    let captures = bench.finish()?;
    print_total(&captures, clock_mhz);
    Ok(captures)
}

struct Bench {
    path: PacketPath,
    config: Config,
    trace: Trace,
    results: Vec<CaptureResult>,
    opcodes: BTreeMap<String, u64>,
    frames_identical: u64,
}

impl Bench {
    fn new(config: &Config, model: &Model, out: &Path) -> Result<Bench> {
        let mut path = PacketPath::new(model, Stalls::default(), 0)?;
        differential::configure(&mut path, &Filter::PROMISCUOUS)?;
        println!(
            "\n{:<28} {:>6} {:>8} {:>7} {:>9} {:>8} {:>9} {:>9} {:>7} {:>7}",
            "capture",
            "frames",
            "bytes",
            "opcodes",
            "ICRC good",
            "ICRC bad",
            "cycles in",
            "cycles out",
            "Gb/s in",
            "Gb/s out"
        );
        Ok(Bench {
            path,
            config: config.clone(),
            trace: Trace::create(&out.join("captures.pcap"))?,
            results: Vec::new(),
            opcodes: BTreeMap::new(),
            frames_identical: 0,
        })
    }

    /// Sends one capture through parse and assemble, and compares every frame with itself.
    fn pass(&mut self, capture: &Capture) -> Result<CaptureResult> {
        let frames: Vec<&Vec<u8>> = capture.roce_frames().collect();
        let bad_before = self.drops(DropReason::Icrc)?;
        let (received, receive_cycles) = self.receive(&frames)?;
        let icrc_bad = self.drops(DropReason::Icrc)? - bad_before;
        let (sent, transmit_cycles) = self.transmit(&received)?;

        let good: Vec<&&Vec<u8>> = frames
            .iter()
            .filter(|frame| PacketRepr::parse(frame).is_ok_and(|_| icrc_agrees(frame)))
            .collect();
        ensure!(sent.len() == good.len(), "{} frames came out, and {} should have", sent.len(), good.len());
        for frame in good {
            let packet = PacketRepr::parse(frame).expect("it was parsed before");
            // An Ethernet MAC may have filled the frame up behind the ICRC; that is not the packet's.
            let wanted = &frame[..packet.buffer_len()];
            // The two roles have queues of their own, so their packets may overtake each other.
            ensure!(
                sent.iter().any(|found| found == wanted),
                "a frame did not come out: {}",
                hex::encode(wanted)
            );
            self.frames_identical += 1;
            let name = opcode::lookup(packet.bth.opcode).map_or("unassigned", |row| row.name);
            *self.opcodes.entry(name.to_string()).or_default() += 1;
        }

        let bytes: u64 = frames.iter().map(|frame| frame.len() as u64).sum();
        let opcodes: std::collections::BTreeSet<u8> =
            frames.iter().filter_map(|frame| Some(PacketRepr::parse(frame).ok()?.bth.opcode)).collect();
        Ok(CaptureResult {
            capture: capture.name.clone(),
            frames: frames.len() as u64,
            bytes,
            opcodes: opcodes.len(),
            icrc_good: received.len() as u64,
            icrc_bad,
            receive_cycles,
            transmit_cycles,
            receive_gbps: self.gbps(bytes, receive_cycles),
            transmit_gbps: self.gbps(sent.iter().map(|frame| frame.len() as u64).sum(), transmit_cycles),
        })
    }

    /// Delivers frames back to back; returns the packets and the cycles from the first beat to the last packet.
    fn receive(&mut self, frames: &[&Vec<u8>]) -> Result<(Vec<Received>, u64)> {
        let start = self.path.cycle();
        let mut time = self.nanoseconds();
        for frame in frames {
            self.trace.write(time, frame)?;
            time += (frame.len().div_ceil(self.path.width_bytes()) as u64) * self.period_ns();
            self.path.deliver(MacFrame { bytes: frame.to_vec(), error: false });
        }
        let mut received = Vec::new();
        let mut quiet = 0;
        while quiet < SETTLE_CYCLES {
            ensure!(self.path.cycle() - start < CAPTURE_CYCLES_MAX, "the capture does not go through");
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
        let mut sent = Vec::new();
        while sent.len() < received.len() {
            ensure!(self.path.cycle() - start < CAPTURE_CYCLES_MAX, "only {} frames come out", sent.len());
            self.path.step();
            sent.extend(self.path.take_sent());
        }
        let end = sent.last().map_or(start, |frame| frame.cycles.1);
        for frame in &sent {
            self.trace.write(frame.cycles.1 * self.period_ns(), &frame.bytes)?;
        }
        Ok((sent.into_iter().map(|frame| frame.bytes).collect(), end + 1 - start))
    }

    fn drops(&mut self, reason: DropReason) -> Result<u64> {
        Ok(differential::counters(&mut self.path)?[counter(reason.name())])
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

    /// Adds up, and checks that nothing was dropped but the frame that was corrupted on purpose.
    fn finish(mut self) -> Result<Captures> {
        let counters = differential::counters(&mut self.path)?;
        let drops: BTreeMap<String, u64> = DropReason::ALL
            .into_iter()
            .map(|reason| (reason.name().to_string(), counters[counter(reason.name())]))
            .filter(|(_, count)| *count != 0)
            .collect();
        ensure!(
            drops == BTreeMap::from([("icrc".to_string(), 1)]),
            "one frame has a wrong ICRC, and drops are {drops:?}"
        );
        let sum = |value: fn(&CaptureResult) -> u64| self.results.iter().map(value).sum::<u64>();
        let frames = sum(|result| result.frames);
        let bytes = sum(|result| result.bytes);
        let (receive_cycles, transmit_cycles) =
            (sum(|result| result.receive_cycles), sum(|result| result.transmit_cycles));
        ensure!(
            self.frames_identical == frames - 1,
            "{} of {frames} frames came out as they went in",
            self.frames_identical
        );
        Ok(Captures {
            frames,
            bytes,
            frames_identical: self.frames_identical,
            drops,
            opcodes: self.opcodes.clone(),
            cycles: receive_cycles + transmit_cycles,
            receive_gbps: self.gbps(bytes, receive_cycles),
            transmit_gbps: self.gbps(bytes, transmit_cycles),
            each: self.results,
        })
    }
}

/// Whether the ICRC of a frame that can be parsed is right.
fn icrc_agrees(frame: &[u8]) -> bool {
    !matches!(rnic_layout::wire::classify(frame, false, &Filter::PROMISCUOUS), Err(DropReason::Icrc))
}

fn print_row(row: &CaptureResult) {
    println!(
        "{:<28} {:>6} {:>8} {:>7} {:>9} {:>8} {:>9} {:>10} {:>7.1} {:>8.1}",
        row.capture,
        row.frames,
        row.bytes,
        row.opcodes,
        row.icrc_good,
        row.icrc_bad,
        row.receive_cycles,
        row.transmit_cycles,
        row.receive_gbps,
        row.transmit_gbps
    );
}

fn print_cards(cards: &scenario::Results) {
    for (kind, count) in &cards.kinds {
        println!("  {kind:<28} {count:>6}");
    }
    println!(
        "{} messages, {} completions, {} frames; {} bytes found where they belong",
        cards.messages, cards.completions, cards.frames, cards.bytes_verified
    );
    println!(
        "{} messages have more packets than one, and the longest {} bytes",
        cards.messages_of_many_packets, cards.longest_bytes
    );
    println!(
        "{} cycles, {:.1} Gb/s of payload in both directions together",
        cards.cycles, cards.payload_gbps
    );
    println!("\ncycles from the doorbell, one message at a time: median (shortest, longest)");
    for stage in latency::STAGES {
        let columns = cards.latency_by_length.iter().filter_map(|(bytes, stages)| {
            let spread = stages.get(stage)?;
            Some(format!("{bytes} B: {} ({}, {})", spread.median, spread.min, spread.max))
        });
        let columns: Vec<String> = columns.collect();
        if !columns.is_empty() {
            println!("  {stage:<28} {}", columns.join("   "));
        }
    }
}

fn print_total(summary: &Captures, clock_mhz: u32) {
    println!("\nframes by opcode:");
    for (name, count) in &summary.opcodes {
        println!("  {name:<28} {count:>6}");
    }
    println!("drops: {:?}", summary.drops);
    println!(
        "{} of {} frames came out as they went in, byte for byte; the other one was corrupted on purpose and refused",
        summary.frames_identical, summary.frames
    );
    println!(
        "{} bytes in {} cycles at {} MHz: {:.1} Gb/s in, {:.1} Gb/s out, over all captures with their starts and ends",
        summary.bytes, summary.cycles, clock_mhz, summary.receive_gbps, summary.transmit_gbps
    );
}
