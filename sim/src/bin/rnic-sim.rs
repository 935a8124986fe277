//! The simulated machine on the command line.
use anyhow::{Context, Result, ensure};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use rnic_hdl::config::Config;
use rnic_layout::wire::DropReason;
use rnic_packet_path::differential;
use rnic_packet_path::path::{Stalls, build_model};
use rnic_sim::bench::{self, goodput, neighbours};
use rnic_sim::demo::{self, DemoOptions};
use rnic_sim::files::{self, Named};
use rnic_sim::numbers::{take_negative, within};
use rnic_sim::output;
use rnic_sim::peer::{self, PeerOptions};
use rnic_sim::print_line;
use rnic_sim::serve::{self, ServeOptions};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use verilator_sys::{ModelOptions, Optimization};

/// Most messages of the demo, which are all planned before the first is sent.
const MESSAGES_MAX: u32 = 1_000_000;

/// Run generated cards under Verilator.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Move messages between two cards, pass captured frames through the packet path, and compare what comes out.
    Demo {
        /// The configuration of the card: a file, or a preset: w64, w128, w256, w512, tiny, small, medium, large.
        #[arg(long, default_value = "w512")]
        config: PathBuf,
        /// A directory of captures of Ethernet: .pcap, .pcapng or .cap. All RoCEv2 frames in them go through the packet path.
        /// If the directory has a file expected.json, the result must be what that says. Default: tests/vectors, here or in the
        /// checkout of this program.
        #[arg(long)]
        captures: Option<PathBuf>,
        /// Output directory for rnic.v, trace.pcap, captures.pcap, summary.json and report.svg.
        #[arg(long, default_value = "build/demo")]
        out: PathBuf,
        /// Seed of messages, addresses, and the behaviour of the hosts.
        #[arg(long, default_value_t = 1, value_parser = within(0..=u64::MAX))]
        seed: u64,
        /// Minimum number of messages between the two cards; a million at most.
        #[arg(long, default_value_t = 10_000, value_parser = within(1..=MESSAGES_MAX))]
        messages: u32,
    },
    /// Measure how fast two cards move messages on the standard bench, how long one message takes, and how fast this is
    /// simulated.
    Bench {
        /// A configuration of the card, a file or a preset (w64, w128, w256, w512, tiny, small, medium, large); may be given several
        /// times.
        #[arg(long, default_values = ["w512", "w64"])]
        config: Vec<PathBuf>,
        /// Measure fewer cases.
        #[arg(long)]
        quick: bool,
        /// File of the results; the figure is written beside it, with the extension `.svg`.
        #[arg(long, default_value = "build/bench.json")]
        json: PathBuf,
        /// Seed of the behaviour of the hosts.
        #[arg(long, default_value_t = 1, value_parser = within(0..=u64::MAX))]
        seed: u64,
        /// Only cases with this text in their name, for example `send_64_`.
        #[arg(long, default_value = "")]
        only: String,
        #[command(flatten)]
        conditions: bench::Conditions,
    },
    /// Measure how fast one queue pair moves data when frames are lost or overtake each other, and when its host is slow.
    Goodput {
        /// The configuration of the card: a file, or a preset: w64, w128, w256, w512, tiny, small, medium, large.
        #[arg(long, default_value = "w512")]
        config: PathBuf,
        /// File of the results; the curves are written beside it, with the extension `.svg`.
        #[arg(long, default_value = "build/goodput.json")]
        json: PathBuf,
        /// A curve to measure; may be given several times. All if none is given.
        #[arg(long)]
        against: Vec<goodput::Curve>,
        /// Seed of losses and of the behaviour of the hosts.
        #[arg(long, default_value_t = 1, value_parser = within(0..=u64::MAX))]
        seed: u64,
    },
    /// Measure what a queue pair keeps of the wire beside noisy neighbours.
    Neighbours {
        /// The configuration of the card: a file, or a preset: w64, w128, w256, w512, tiny, small, medium, large.
        #[arg(long, default_value = "w512")]
        config: PathBuf,
        /// Seed of the behaviour of the hosts.
        #[arg(long, default_value_t = 1, value_parser = within(0..=u64::MAX))]
        seed: u64,
    },
    /// Compare the packet path with the software view of the contract on random frames.
    Differential {
        /// The configuration of the card: a file, or a preset: w64, w128, w256, w512, tiny, small, medium, large.
        #[arg(long, default_value = "w512")]
        config: PathBuf,
        /// Number of frames, divided evenly among the four combinations of stalls.
        #[arg(long, default_value_t = 100_000, value_parser = within(4..=u64::MAX))]
        frames: u64,
        /// Seed of frames and stalls.
        #[arg(long, default_value_t = 1, value_parser = within(0..=u64::MAX))]
        seed: u64,
    },
    /// Be the peer of a simulated card: the reference endpoint, behind the Unix socket that is standard input. It ends when the
    /// socket is closed.
    Peer(PeerOptions),
    /// Serve simulated cards as PCI functions to other processes, over vfio-user. A signal such as SIGINT ends it.
    Serve(ServeOptions),
}

fn main() -> ExitCode {
    // What could not be printed is a failure of its own.
    let matches = take_negative(Arguments::command()).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(arguments.command).and_then(|()| output::check()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::write_error(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Demo { config, captures, out, seed, messages } => {
            let options = DemoOptions { config: read(&config)?, seed, messages: messages as usize };
            demo::check_config(&config, &out)?;
            demo::run(&options, &captures.map_or_else(vectors, Ok)?, &out)?;
            print_line!(
                "{} holds rnic.v, trace.pcap, captures.pcap, summary.json, report.svg",
                out.display()
            );
            Ok(())
        }
        Command::Bench { config, quick, json, seed, only, conditions } => {
            let mut cases = bench::cases(quick);
            cases.retain(|case| case.name().contains(&only));
            ensure!(!cases.is_empty(), "no case has `{only}` in its name");
            let configs = config.iter().map(|path| read(path)).collect::<Result<Vec<Config>>>()?;
            check_results(&config, &json)?;
            let mut findings = bench::Findings { seed, conditions, ..bench::Findings::default() };
            for config in &configs {
                bench::run(config, &cases, &mut findings)?;
                // Written after each width, so that the results are kept if a later width fails.
                bench::write(&findings, &json)?;
            }
            print_line!("\n{} and {} hold this", json.display(), json.with_extension("svg").display());
            Ok(())
        }
        Command::Goodput { config, json, against, seed } => {
            let read_config = read(&config)?;
            check_results(std::slice::from_ref(&config), &json)?;
            let points = goodput::run(&read_config, &goodput::Against::points(&against), seed)?;
            goodput::write(&points, &json)?;
            print_line!("\n{} and {} hold this", json.display(), json.with_extension("svg").display());
            Ok(())
        }
        Command::Neighbours { config, seed } => neighbours::run(&read(&config)?, seed).map(|_| ()),
        Command::Differential { config, frames, seed } => compare(&read(&config)?, frames, seed),
        Command::Peer(options) => peer::run(&options, std::io::stdin().as_fd()),
        Command::Serve(options) => serve::run(&options),
    }
}

/// Checks that results and their figure can be written, and are no configuration.
fn check_results(configs: &[PathBuf], json: &Path) -> Result<()> {
    if let Some(folder) = json.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let read: Vec<Named<'_>> = configs.iter().map(|path| ("the configuration", &**path)).collect();
    files::check(&read, &[("the results", json), ("the figure", &json.with_extension("svg"))], &[])
}

/// The captures of the project: below this directory, or below one that the program lies in.
fn vectors() -> Result<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let folders = [Path::new("")].into_iter().chain(program.ancestors().skip(1));
    let found = folders.map(|folder| folder.join("tests/vectors")).find(|folder| folder.is_dir());
    found.context("there is no tests/vectors here, nor above this program: give a directory with --captures")
}

fn read(path: &Path) -> Result<Config> {
    Config::read(path).with_context(|| path.display().to_string())
}

fn compare(config: &Config, frames: u64, seed: u64) -> Result<()> {
    let model =
        build_model(config, &ModelOptions { optimization: Optimization::O2, ..ModelOptions::default() })?;
    print_line!("{:>7} {:>7} {:>9} {:>9} {:>11}", "source", "sink", "frames", "accepted", "cycles");
    let mut drops = [0; DropReason::ALL.len()];
    for (index, stalls) in (0..).zip(Stalls::FOUR_WAYS) {
        let agreement = differential::run(&model, stalls, seed.wrapping_add(index), frames / 4)?;
        print_line!(
            "{:>7} {:>7} {:>9} {:>9} {:>11}",
            stalls.source,
            stalls.sink,
            agreement.frames,
            agreement.packets,
            agreement.cycles
        );
        for (sum, count) in drops.iter_mut().zip(agreement.drops) {
            *sum += count;
        }
    }
    print_line!("no difference; drops by reason:");
    for (reason, count) in DropReason::ALL.into_iter().zip(drops) {
        print_line!("  {:<24} {count:>8}", reason.name());
    }
    Ok(())
}
