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
//! | `card <index>: <text>` | on standard error: a monitor remarks something on the card or on its client, or a second client asks for the card |
//! | `the other end of the wire, <name>, <text>` | on standard error: the process at the end of the wire has left, or is connected again |
//! | a summary | the program ends |
//!
//! Each signal whose default is to end a process ends this one alike: with the summary, whole captures and waves, and without its
//! sockets. SIGUSR1 begins to play the capture at the end of the wire, if there is one; SIGHUP is ignored under `nohup`. What is lost
//! of a capture, a wave, a log or the summary ends no server; it is said once, and the exit code is 1.
use crate::card_options;
use crate::files::{self, Named};
use crate::numbers::within;
use crate::output::{self, serve_line};
use anyhow::{Context, Result, bail, ensure};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_machine::host::HostOptions;
use rnic_machine::served::server::{Server, Summary};
use rnic_machine::socket_file::{self, Listening};
use rnic_machine::wire::datagram::Datagrams;
use rnic_machine::wire::loopback::Loopback;
use rnic_machine::wire::playback::Playback;
use rnic_machine::wire::{Station, WireOptions};
use rnic_machine::world::clock::SECOND_PS;
use rnic_machine::world::{CardOptions, Port, World, model_options};
use rnic_stimulus::captures::Capture;
use rnic_stimulus::chance::{Delay, Seed};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use signal_hook::{flag, low_level::pipe};
use std::ffi::{OsStr, OsString};
use std::fs::metadata;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use verilator_sys::{Model, ModelOptions, Optimization};

/// Most cards of one program: the two ends of a wire.
const CARDS_MAX: usize = 2;
/// Longest delay of the wire, in nanoseconds: a second.
const DELAY_NS_MAX: u64 = 1_000_000_000;
/// Signals whose default is to end a process, which end this one with a summary. SIGUSR1 may have another purpose.
const ENDING: [Signal; 12] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::USR2,
    Signal::IO,
    Signal::POWER,
    Signal::STKFLT,
    Signal::XCPU,
];
/// Real-time signals, which end a process, too; before them, one that some C libraries keep for themselves.
const FIRST_REAL_TIME: i32 = 34;
const REAL_TIME: RangeInclusive<i32> = 35..=64;

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
    /// To a process that connects to a path.
    Listen(PathBuf),
    /// To a TAP device of this machine.
    Tap(String),
    /// To a station that plays a capture.
    Capture(PathBuf),
}

impl WireEnd {
    /// Reads an end of the command line, whose path may have any bytes.
    fn parse(text: OsString) -> Result<WireEnd, &'static str> {
        let bytes = text.as_bytes();
        let colon = bytes.iter().position(|&byte| byte == b':');
        let kind = &bytes[..colon.unwrap_or(bytes.len())];
        let rest = colon.map(|colon| OsStr::from_bytes(&bytes[colon + 1..])).filter(|rest| !rest.is_empty());
        match (kind, rest, colon) {
            (b"loop", _, None) => Ok(WireEnd::Loop),
            (b"none", _, None) => Ok(WireEnd::Open),
            (b"seqpacket", Some(path), _) => Ok(WireEnd::Connect(path.into())),
            (b"seqpacket-listen", Some(path), _) => Ok(WireEnd::Listen(path.into())),
            (b"tap", Some(name), _) => Ok(WireEnd::Tap(name.to_string_lossy().into_owned())),
            (b"pcap", Some(path), _) => Ok(WireEnd::Capture(path.into())),
            _ => Err("expected loop, none, seqpacket:PATH, seqpacket-listen:PATH, tap:NAME, or pcap:FILE"),
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
    /// machine; one datagram a frame, without FCS. A process that has left and comes back is connected again. `pcap:FILE` plays the frames of a capture to the card, from the first frame
    /// that the card sends or from SIGUSR1 on.
    #[arg(long, value_name = "END", value_parser = OsStringValueParser::new().try_map(WireEnd::parse))]
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
    #[arg(long, default_value_t = 1, value_parser = within(0..=u64::MAX))]
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
    /// Delay of the wire, in nanoseconds; a second at most.
    #[arg(long, default_value_t = 500, value_parser = within(0..=DELAY_NS_MAX))]
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
        Config::read(path).with_context(|| path.display().to_string())
    }

    /// Checks all that can be wrong with the options, before a file is touched.
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
        let mut read: Vec<Named<'_>> =
            self.config.iter().map(|path| ("the configuration", &**path)).collect();
        let mut sockets: Vec<Named<'_>> = self.sockets.iter().map(|path| ("the socket", &**path)).collect();
        match &self.wire {
            Some(WireEnd::Connect(path)) => read.push(("the other end of the wire", path)),
            Some(WireEnd::Capture(path)) => read.push(("the capture to play", path)),
            Some(WireEnd::Listen(path)) => sockets.push(("the socket of the wire", path)),
            _ => {}
        }
        let pcap = self.pcap.iter().map(|path| ("the capture", &**path));
        let written: Vec<Named<'_>> =
            pcap.chain(self.wave.iter().map(|path| ("the wave", &**path))).collect();
        files::check(&read, &written, &sockets)?;
        if let Some(path) = &self.wave {
            // The beginning of a wave is written last.
            let is_file = metadata(path).map_or(true, |found| found.is_file());
            ensure!(is_file, "cannot write the wave, {}: it is no file, as a wave needs", path.display());
        }
        for (index, (_, path)) in sockets.iter().enumerate() {
            let is_card = index < count;
            let kind = if is_card { SocketType::STREAM } else { SocketType::SEQPACKET };
            let what = if is_card { "listen" } else { "listen for a wire" };
            socket_file::check(path, kind).with_context(|| format!("cannot {what} at {}", path.display()))?;
        }
        Ok(())
    }
}

/// Makes a socket readable when a signal asks the program to end. `has_start` says that SIGUSR1 has another purpose.
fn stop_by_signals(has_start: bool) -> Result<UnixStream> {
    let (stop, signalled) = UnixStream::pair()?;
    let _ = pipe::register(FIRST_REAL_TIME, signalled.try_clone()?);
    // The others share a handle, which stays open.
    let signalled = signalled.into_raw_fd();
    let others = (!has_start).then_some(Signal::USR1);
    let named =
        ENDING.into_iter().chain(others).filter(|&signal| signal != Signal::HUP || !ignores_hangups());
    for signal in named.map(Signal::as_raw).chain(REAL_TIME) {
        pipe::register_raw(signal, signalled)?;
    }
    // A file that grows beyond the limit of the process is an error of the write.
    flag::register(Signal::XFSZ.as_raw(), Arc::default())?;
    Ok(stop)
}

/// Returns whether this process was started to ignore SIGHUP, as `nohup` does.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.unwrap_or(0) >> (Signal::HUP.as_raw() - 1) & 1 == 1
}

/// Serves cards until a signal ends it, then prints what has happened.
///
/// # Errors
/// If an option is wrong, a socket is in use, or the card cannot be generated and verilated; at the end, if something of a capture, a
/// wave, a log or the summary is lost.
pub fn run(options: &ServeOptions) -> Result<()> {
    options.check()?;
    let config = options.config()?;
    let capture = match &options.wire {
        Some(WireEnd::Capture(path)) => Some(Capture::read(path).context(OTHER_END)?),
        _ => None,
    };
    let verilog = generator::generate(&config)?.verilog;
    let model = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let model = ModelOptions { trace: options.wave.is_some(), ..model };
    let model = Model::build(TOP, &verilog, &model_options(model))?;

    let stop = stop_by_signals(capture.is_some())?;
    let host = match options.host {
        Host::Ideal => HostOptions::IDEAL,
        Host::Standard => HostOptions::STANDARD,
        Host::Hostile => HostOptions::hostile(&mut Seed(options.seed).stream("host")),
    };
    let card = CardOptions { host, ..card_options(&config) };
    let mut world = World::new(options.seed);
    for _ in &options.sockets {
        world.add_card(&model, card)?;
    }
    let wire = options.faults.options(card.bits_per_second);
    connect(options, capture, &mut world, wire, &stop)?;
    // Each mapping of a client is an open file.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let listen = |path: &PathBuf| {
        Listening::at(path, SocketType::STREAM)
            .with_context(|| format!("cannot listen at {}", path.display()))
    };
    let sockets = options.sockets.iter().map(listen).collect::<Result<Vec<Listening>>>()?;
    // Files are emptied when nothing else can be wrong.
    if let Some(path) = &options.wave {
        world.card_mut(0).trace(path).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &options.pcap {
        world.capture(Port::Card(0), path)?;
    }
    world.leave_reset()?;
    let server = Server::at(world, sockets, output::log);
    for (index, path) in options.sockets.iter().enumerate() {
        // Whoever has started it waits for this line.
        serve_line(format_args!("serving card {index} at {}", path.display()))
            .context("nobody can be told that the card is served")?;
    }
    let start = Instant::now();
    let summary = server.run(stop)?;
    // What cannot be printed is counted as lost.
    let _ = print(&summary, start.elapsed().as_secs_f64());
    if let Some(lost) = output::lost_errors() {
        let _ = serve_line(format_args!("{lost}"));
    }
    output::check()?;
    let count = summary.losses.len();
    ensure!(count == 0, "{count} files are not whole, as was said when it was noticed");
    Ok(())
}

/// The station at the end of a wire, in errors.
const OTHER_END: &str = "the other end of the wire";

/// Plugs the wire in, and waits for a process that connects to it.
fn connect(
    options: &ServeOptions,
    capture: Option<Capture>,
    world: &mut World,
    wire: WireOptions,
    stop: &UnixStream,
) -> Result<()> {
    if options.sockets.len() == 2 {
        world.connect(Port::Card(0), Port::Card(1), wire)?;
        return Ok(());
    }
    let station = match options.wire.as_ref().unwrap_or(&WireEnd::Loop) {
        WireEnd::Open => return Ok(()),
        WireEnd::Loop => world.add_station(Loopback::default()),
        WireEnd::Capture(path) => {
            let Some(capture) = capture else { bail!("the capture was not read") };
            if capture.cut_short > 0 {
                let (file, count) = (path.display(), capture.cut_short);
                // Whoever does not read this misses nothing else.
                let _ = serve_line(format_args!(
                    "{file}: {count} frames are left out, of which only the beginning is there"
                ));
            }
            let (start, signalled) = UnixStream::pair()?;
            pipe::register(Signal::USR1.as_raw(), signalled)?;
            world.add_station(Playback::new(&capture, start.into()).context(OTHER_END)?)
        }
        WireEnd::Connect(path) => {
            let nobody = || format!("nobody listens at {OTHER_END}, {}", path.display());
            world.add_station(Datagrams::connect(path).with_context(nobody)?)
        }
        WireEnd::Tap(name) => world.add_station(Datagrams::tap(name).context(OTHER_END)?),
        WireEnd::Listen(path) => world.add_station(await_caller(path, stop)?),
    };
    world.connect(Port::Card(0), Port::Station(station), wire)?;
    Ok(())
}

/// Listens for the process at the end of the wire, and waits until it connects, or the program is to end.
fn await_caller(path: &Path, stop: &UnixStream) -> Result<Datagrams> {
    let context = || format!("cannot listen for a wire at {}", path.display());
    let mut station = Datagrams::listen(path).with_context(context)?;
    serve_line(format_args!("waiting for {OTHER_END} at {}", path.display()))
        .context("nobody can be told to connect")?;
    while !station.is_connected() {
        let caller = station.handle().context("the station listens")?;
        let mut fds = [PollFd::from_borrowed_fd(caller, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).with_context(context),
        }
        if fds[1].revents().contains(PollFlags::IN) {
            break;
        }
        station.attend(Instant::now());
    }
    Ok(station)
}

fn print(summary: &Summary, wall_seconds: f64) -> io::Result<()> {
    let simulated_us = summary.simulated_ps as f64 / (SECOND_PS / 1_000_000) as f64;
    serve_line(format_args!("{simulated_us:.1} us simulated in {wall_seconds:.1} s"))?;
    for (direction, counts) in summary.wire.iter().flatten().enumerate() {
        serve_line(format_args!(
            "wire {direction}: {} frames, {} lost, {} duplicated, {} reordered, {} flipped, {} damaged, {} marked",
            counts.sent,
            counts.lost,
            counts.duplicated,
            counts.reordered,
            counts.flipped,
            counts.damaged,
            counts.marked
        ))?;
    }
    for (index, card) in summary.cards.iter().enumerate() {
        let traffic = &card.traffic;
        serve_line(format_args!(
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
        ))?;
        for (name, count) in &card.counters {
            serve_line(format_args!("  {name:<32} {count:>12}"))?;
        }
    }
    Ok(())
}
