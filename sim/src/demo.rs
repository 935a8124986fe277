//! The demo: two generated cards on a wire move messages between two drivers, and captured frames go through the packet path
//! of the card and come out as they went in.
pub mod captures;

use crate::files::{self, Named};
use crate::latency;
use crate::print_line;
use crate::report;
use crate::scenario::{self, ScenarioOptions};
use crate::{bench, card_options};
use anyhow::{Context, Result};
use captures::{CaptureSet, Captures};
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_machine::host::HostOptions;
use rnic_packet_path::path;
use serde::Serialize;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;
use verilator_sys::{Model, ModelOptions, Optimization};

/// Results of the demo.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The configuration.
    pub config: Config,
    /// Core clock, for all rates.
    pub clock_mhz: u32,
    /// Results of the two cards.
    #[serde(flatten)]
    pub cards: scenario::Results,
    /// Throughput of one queue pair, by length of the message.
    pub curve: Vec<bench::Row>,
    /// Results of the packet path with captured frames.
    pub captures: Captures,
}

/// Options of the demo.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// The configuration of the card.
    pub config: Config,
    /// Seed of all random choices.
    pub seed: u64,
    /// Minimum number of messages between the two cards.
    pub messages: usize,
}

/// Files that the demo writes.
const OUTPUTS: [&str; 5] = ["rnic.v", "trace.pcap", "captures.pcap", "summary.json", "report.svg"];

/// Checks that the configuration is none of the files that the demo writes.
///
/// # Errors
/// If it is.
pub fn check_config(config: &Path, out: &Path) -> Result<()> {
    let outputs = OUTPUTS.map(|name| out.join(name));
    files::check(&[("the configuration", config)], &[], &named(RESULT, &outputs))
}

/// Checks that the demo can write its files, and has read none of them as captures.
fn check_files(captures: &Path, out: &Path) -> Result<()> {
    let entries = std::fs::read_dir(captures)?.map(|entry| Ok(entry?.path()));
    let entries = entries.collect::<std::io::Result<Vec<PathBuf>>>()?;
    let outputs = OUTPUTS.map(|name| out.join(name));
    files::check(&named("a file of the captures", &entries), &named(RESULT, &outputs), &[])
}

/// What the demo writes, in errors.
const RESULT: &str = "a file of the results";

fn named<'a>(what: &'a str, paths: &'a [PathBuf]) -> Vec<Named<'a>> {
    paths.iter().map(|path| (what, &**path)).collect()
}

/// Runs the demo and writes `rnic.v`, `trace.pcap` (what crossed the port of one of the two cards), `captures.pcap` (what went
/// in and out of the packet path), `summary.json` and `report.svg` into `out`.
///
/// # Errors
/// If a tool is missing, a capture cannot be read, a message did not do what it must, or the packet path and the software view
/// of the contract disagree on a frame.
pub fn run(options: &DemoOptions, captures: &Path, out: &Path) -> Result<Summary> {
    let config = &options.config;
    let (width_bits, clock_mhz) = (config.datapath.width_bits, config.datapath.core_clock_mhz);
    // Read first: an error must not come after minutes of building.
    let captured = CaptureSet::read(captures)?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    check_files(captures, out)?;
    print_line!("generating the card: {width_bits} bits at {clock_mhz} MHz");
    let product = generator::generate(config)?;
    std::fs::write(out.join("rnic.v"), &product.verilog)?;
    print_line!("verilating {} lines of Verilog", product.verilog.lines().count());
    let model_options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let model = Model::build(TOP, &product.verilog, &model_options)?;
    print_line!("two cards on a wire: {} messages, seed {}", options.messages, options.seed);
    let scenario_options = ScenarioOptions {
        seed: options.seed,
        messages: options.messages,
        host: HostOptions::STANDARD,
        queue_pairs: config.tables.queue_pairs as usize,
    };
    let (trace, card) = (out.join("trace.pcap"), card_options(config));
    // Two pairs of cards that know nothing of each other: a machine of two cores runs both in the time of one.
    let (cards, curve) = thread::scope(|scope| {
        let cards = scope.spawn(|| scenario::play(&model, card, &scenario_options, &trace));
        print_line!("\nmeanwhile, one queue pair of two others at full speed, by length of the message");
        let conditions = bench::Conditions::default();
        let curve = bench::measure(&model, card, &conditions, &bench::curve(), options.seed);
        (cards.join().unwrap_or_else(|panic| resume_unwind(panic)), curve)
    });
    let (cards, curve) = (cards?, curve?);
    print_line!("\nthe messages of the first two");
    print_cards(&cards);

    print_line!("\nthe packet path alone, with captured frames");
    let model = path::build_model(config, &model_options)?;
    let captures = captures::pass(config, &model, &captured, &out.join("captures.pcap"))?;
    let summary = Summary { config: config.clone(), clock_mhz, cards, curve, captures };
    std::fs::write(out.join("summary.json"), serde_json::to_string_pretty(&summary)? + "\n")?;
    report::draw(&summary, &out.join("report.svg"))?;
    Ok(summary)
}

fn print_cards(cards: &scenario::Results) {
    for (kind, count) in &cards.kinds {
        print_line!("  {kind:<28} {count:>6}");
    }
    print_line!(
        "{} messages, {} completions, {} frames; {} bytes compared at their destination",
        cards.messages,
        cards.completions,
        cards.frames,
        cards.bytes_verified
    );
    print_line!(
        "{} messages of more than one packet; the longest message has {} bytes",
        cards.messages_of_many_packets,
        cards.longest_bytes
    );
    print_line!(
        "{} cycles, {:.1} Gb/s of payload in both directions together",
        cards.cycles,
        cards.payload_gbps
    );
    print_line!("\ncycles from the doorbell, one message at a time: median (shortest, longest)");
    for stage in latency::STAGES {
        let columns = cards.latency_by_length.iter().filter_map(|(bytes, stages)| {
            let spread = stages.get(stage)?;
            Some(format!("{bytes} B: {} ({}, {})", spread.median, spread.min, spread.max))
        });
        let columns: Vec<String> = columns.collect();
        if !columns.is_empty() {
            print_line!("  {stage:<28} {}", columns.join("   "));
        }
    }
}
