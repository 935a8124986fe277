//! The program `rnic-sim serve`: simulated cards as PCI functions for other processes, over vfio-user.
//!
//! ```text
//!   process ── driver ══ --socket a ── card 0 ──┐
//!                                               wire, with faults
//!   process ── driver ══ --socket b ── card 1 ──┘
//! ```
//!
//! It prints these lines:
//!
//! | Line | When |
//! |---|---|
//! | `serving card <index> at <path>` | a client can connect |
//! | `<file>: <count> frames are left out, …` | a capture that is played was taken with a snap length |
//! | `card <index>: <text>` | on standard error: a monitor remarks something on the card or on its client |
//! | a summary | the program ends, by SIGINT or SIGTERM |
use crate::print_line;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_machine::host::HostOptions;
use rnic_machine::served::server::{Server, Summary};
use rnic_machine::wire::WireOptions;
use rnic_machine::wire::datagram::Datagrams;
use rnic_machine::wire::loopback::Loopback;
use rnic_machine::wire::playback::Playback;
use rnic_machine::world::clock::SECOND_PS;
use rnic_machine::world::{CardOptions, Port, World, model_options};
use rnic_stimulus::captures::Capture;
use rnic_stimulus::chance::{Delay, Seed};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::low_level::pipe;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;
use verilator_sys::{Model, ModelOptions, Optimization};

/// Most cards of one program: the two ends of a wire.
const CARDS_MAX: usize = 2;

/// Behaviour of a card's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Host {
    /// Answers at once.
    Ideal,
    /// That of the standard bench: 1 us of read latency, PCI Express Gen3 x16.
    Standard,
    /// Delays and reorders all that it may, as the seed says.
    Hostile,
}

/// What the wire of the only card leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireEnd {
    /// Back to the card.
    Loop,
    /// To nothing.
    Open,
    /// To a process that listens at a path.
    Connect(PathBuf),
    /// To the first process that connects to a path.
    Listen(PathBuf),
    /// To a TAP device of this machine.
    Tap(String),
    /// To a station that plays a capture.
    Capture(PathBuf),
}

impl FromStr for WireEnd {
    type Err = String;

    fn from_str(text: &str) -> Result<WireEnd, String> {
        match text.split_once(':') {
            None if text == "loop" => Ok(WireEnd::Loop),
            None if text == "none" => Ok(WireEnd::Open),
            Some(("seqpacket", path)) if !path.is_empty() => Ok(WireEnd::Connect(path.into())),
            Some(("seqpacket-listen", path)) if !path.is_empty() => Ok(WireEnd::Listen(path.into())),
            Some(("tap", name)) if !name.is_empty() => Ok(WireEnd::Tap(name.into())),
            Some(("pcap", path)) if !path.is_empty() => Ok(WireEnd::Capture(path.into())),
            _ => {
                Err("expected loop, none, seqpacket:PATH, seqpacket-listen:PATH, tap:NAME, or pcap:FILE"
                    .into())
            }
        }
    }
}

/// Cards to serve, and what surrounds them.
#[derive(Args, Clone, Debug)]
pub struct ServeOptions {
    /// Path of the socket of a card. With two of them, two cards are joined by a wire.
    #[arg(long = "socket", required = true, value_name = "PATH")]
    sockets: Vec<PathBuf>,
    /// Where the wire of an only card leads: `loop` back to itself, `none` to nothing, `seqpacket:PATH` to a process that
    /// listens at this Unix socket, `seqpacket-listen:PATH` to the first that connects to it, `tap:NAME` to a TAP device of this
    /// machine; one datagram a frame, without FCS. `pcap:FILE` plays the frames of a capture to the card, from the first frame
    /// that the card sends or from SIGUSR1 on.
    #[arg(long, value_name = "END")]
    wire: Option<WireEnd>,
    /// Width of the datapath in bits: 64, 128, 256 or 512. Narrow cards are simulated faster.
    #[arg(long, default_value_t = 64, value_parser = parse_width)]
    width: u32,
    /// The configuration of the cards, in the place of the preset of the width.
    #[arg(long, conflicts_with = "width")]
    config: Option<PathBuf>,
    /// Behaviour of the hosts between client and card.
    #[arg(long, value_enum, default_value = "ideal")]
    host: Host,
    /// Seed of the faults of the wire and of the behaviour of the hosts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Capture of the frames at the port of card 0, with nanosecond timestamps.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Waveform of card 0 (FST).
    #[arg(long, value_name = "FILE")]
    wave: Option<PathBuf>,
    #[command(flatten)]
    faults: WireFaults,
}

/// Delay and faults of the wire, in each direction. Probabilities are per frame.
#[derive(Args, Clone, Debug)]
struct WireFaults {
    /// Delay of the wire, in nanoseconds.
    #[arg(long, default_value_t = 500)]
    delay_ns: u64,
    /// Probability that a frame is lost.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    loss: f64,
    /// Probability that a frame arrives twice.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    duplicate: f64,
    /// Probability that a frame is overtaken by others.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    reorder: f64,
    /// Probability that bits of a frame are flipped.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    flip: f64,
    /// Probability that a frame arrives with a wrong FCS.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    damage: f64,
    /// Probability that a frame is marked as having met congestion.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    mark: f64,
}

impl WireFaults {
    fn options(&self, bits_per_second: u64) -> WireOptions {
        let &WireFaults { delay_ns, loss, duplicate, reorder, flip, damage, mark } = self;
        WireOptions {
            bits_per_second,
            delay: Delay::nanoseconds(delay_ns),
            loss,
            duplicate,
            reorder,
            reorder_delay: Delay::Uniform { min_ps: 1_000_000, max_ps: 10_000_000 },
            flip,
            damage,
            mark,
        }
    }
}

fn parse_width(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(width @ (64 | 128 | 256 | 512)) => Ok(width),
        _ => Err("allowed are 64, 128, 256 and 512".into()),
    }
}

fn parse_probability(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(probability) if (0.0..=1.0).contains(&probability) => Ok(probability),
        _ => Err("a probability is from 0 to 1".into()),
    }
}

impl ServeOptions {
    fn config(&self) -> Result<Config> {
        let Some(path) = &self.config else {
            return Ok(Config::preset(self.width)?);
        };
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Config::parse(&text).with_context(|| path.display().to_string())
    }

    fn check(&self) -> Result<()> {
        let count = self.sockets.len();
        ensure!(count <= CARDS_MAX, "{count} sockets: a wire joins at most {CARDS_MAX} cards");
        if let [first, second] = &self.sockets[..] {
            ensure!(first != second, "two cards cannot share the socket {}", first.display());
            ensure!(
                self.wire.is_none(),
                "--wire is for an only card: two cards have their wire between them"
            );
        }
        Ok(())
    }
}

/// Serves cards until SIGINT or SIGTERM, then prints what has happened.
///
/// # Errors
/// If an option is wrong, a socket is in use, or the card cannot be generated and verilated.
pub fn run(options: &ServeOptions) -> Result<()> {
    options.check()?;
    let config = options.config()?;
    let verilog = generator::generate(&config)?.verilog;
    let model = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let model = ModelOptions { trace: options.wave.is_some(), ..model };
    let model = Model::build(TOP, &verilog, &model_options(model))?;

    let host = match options.host {
        Host::Ideal => HostOptions::IDEAL,
        Host::Standard => HostOptions::STANDARD,
        Host::Hostile => HostOptions::hostile(&mut Seed(options.seed).stream("host")),
    };
    let card = CardOptions { host, ..CardOptions::standard(config.datapath.width_bits) };
    let mut world = World::new(options.seed);
    for _ in &options.sockets {
        world.add_card(&model, card)?;
    }
    if let Some(path) = &options.wave {
        world.card_mut(0).trace(path).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &options.pcap {
        world.capture(Port::Card(0), path)?;
    }
    let station = connect(options, &mut world, options.faults.options(card.bits_per_second))?;
    world.leave_reset()?;

    // Each mapping of a client is an open file.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let (stop, signalled) = UnixStream::pair()?;
    pipe::register(SIGINT, signalled.try_clone()?)?;
    pipe::register(SIGTERM, signalled)?;
    let mut server = Server::new(world, &options.sockets, |line| eprintln!("{line}"))
        .with_context(|| format!("cannot listen at {}", list(&options.sockets)))?;
    if let Some(station) = station {
        server.watch(station);
    }
    for (index, path) in options.sockets.iter().enumerate() {
        print_line!("serving card {index} at {}", path.display());
    }
    let start = Instant::now();
    let summary = server.run(stop)?;
    print(&summary, start.elapsed().as_secs_f64());
    Ok(())
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(" and ")
}

/// Plugs the wire in. Returns the socket of the station at its end, if that has one.
fn connect(options: &ServeOptions, world: &mut World, wire: WireOptions) -> Result<Option<OwnedFd>> {
    if options.sockets.len() == 2 {
        world.connect(Port::Card(0), Port::Card(1), wire)?;
        return Ok(None);
    }
    let datagrams = match options.wire.as_ref().unwrap_or(&WireEnd::Loop) {
        WireEnd::Open => return Ok(None),
        WireEnd::Loop => {
            let station = world.add_station(Loopback::default());
            world.connect(Port::Card(0), Port::Station(station), wire)?;
            return Ok(None);
        }
        WireEnd::Capture(path) => return play(path, world, wire).map(Some),
        WireEnd::Connect(path) => Datagrams::connect(path)
            .with_context(|| format!("nobody listens at the other end of the wire, {}", path.display()))?,
        WireEnd::Tap(name) => Datagrams::tap(name).context("the other end of the wire")?,
        WireEnd::Listen(path) => {
            print_line!("waiting for the other end of the wire at {}", path.display());
            Datagrams::listen(path)
                .with_context(|| format!("cannot listen for a wire at {}", path.display()))?
        }
    };
    let Some(socket) = datagrams.handle()? else { bail!("the other end of the wire has left") };
    let station = world.add_station(datagrams);
    world.connect(Port::Card(0), Port::Station(station), wire)?;
    Ok(Some(socket))
}

/// Plugs a capture in. Returns what SIGUSR1 makes readable.
fn play(path: &Path, world: &mut World, wire: WireOptions) -> Result<OwnedFd> {
    let context = "the other end of the wire";
    let capture = Capture::read(path).context(context)?;
    if capture.cut_short > 0 {
        let (file, count) = (path.display(), capture.cut_short);
        print_line!("{file}: {count} frames are left out, of which only the beginning is there");
    }
    let (start, signalled) = UnixStream::pair()?;
    pipe::register(SIGUSR1, signalled)?;
    let station = Playback::new(&capture, start.try_clone()?.into()).context(context)?;
    let station = world.add_station(station);
    world.connect(Port::Card(0), Port::Station(station), wire)?;
    Ok(start.into())
}

fn print(summary: &Summary, wall_seconds: f64) {
    let simulated_us = summary.simulated_ps as f64 / (SECOND_PS / 1_000_000) as f64;
    print_line!("{simulated_us:.1} us simulated in {wall_seconds:.1} s");
    for (direction, counts) in summary.wire.iter().flatten().enumerate() {
        print_line!(
            "wire {direction}: {} frames, {} lost, {} duplicated, {} reordered, {} flipped, {} damaged, {} marked",
            counts.sent,
            counts.lost,
            counts.duplicated,
            counts.reordered,
            counts.flipped,
            counts.damaged,
            counts.marked
        );
    }
    for (index, card) in summary.cards.iter().enumerate() {
        let traffic = &card.traffic;
        print_line!(
            "card {index}: {} clients, {} requests refused, {} remarks; {} register accesses, {} reads of {} bytes, {} \
             writes of {} bytes, {} interrupts",
            card.clients,
            card.refused,
            card.remarks,
            traffic.register_accesses,
            traffic.reads,
            traffic.read_bytes,
            traffic.writes,
            traffic.written_bytes,
            traffic.interrupts
        );
        for (name, count) in &card.counters {
            print_line!("  {name:<32} {count:>12}");
        }
    }
}
