//! Noisy neighbours: what a queue pair with WRITEs of 4 KiB keeps of the wire, and how long one of its messages takes, beside a queue
//! pair of the same two cards that makes trouble; and what one with WRITEs of 64 B keeps.
//!
//! The victim's *fair share* is what the neighbour leaves of the wire, but half of the wire at least: a neighbour that uses less than
//! its half leaves the rest to others. Where both have small messages, the card's rate of messages is shared, not the wire. Bytes
//! of the neighbour are counted as frames begin on the wire, with preamble and gap; those of the victim are the frames of the messages that complete, so what is sent again is no gain.
use super::load::{Load, Progress, Window};
use super::{Case, lock};
use crate::{card_options, print_line};
use anyhow::{Context, Result, bail, ensure};
use rnic_driver::{Device, SendOptions};
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_layout::limits::ATOMIC_BYTES;
use rnic_layout::path::Pmtu;
use rnic_layout::wire::PacketRepr;
use rnic_machine::function::{SharedWorld, two_cards};
use rnic_machine::host::HostOptions;
use rnic_machine::wire::{FRAME_OVERHEAD_BYTES, Fate, Frame};
use rnic_machine::world::{CardOptions, model_options};
use rnic_stimulus::chance::Seed;
use rnic_workloads::cards;
use rnic_workloads::plan::Kind;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use verilator_sys::{Model, ModelOptions, Optimization};

/// Messages of a neighbour in flight, where nothing else is said, and their length.
const WINDOW: usize = 64;
const BYTES: usize = 4096;
/// Keys that SENDs end: most of the regions that a card has.
const KEYS: usize = 960;
/// T of the neighbour is 262 us, so that one whose peer is silent has retries left until the measurement ends.
const TIMEOUT: u8 = 6;
/// Calls of `idle`, of 100 ns each, from a SEND to its receive, so that it arrives while the receive is fetched.
const COLD_IDLES: usize = 14;
/// Calls of `idle` without a completion of the victim after which the run has stalled.
const IDLE_MAX: usize = 50_000;

/// What the neighbour does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Noise {
    /// There is no neighbour: the victim has the wire for itself.
    Quiet,
    /// Its SENDs arrive while their receives are being fetched.
    ColdReceives,
    /// SENDs of no bytes, as many as the wire and the card take.
    EmptySends,
    /// FETCH_ADDs to one word, 16 outstanding.
    OneWord,
    /// WRITEs to a peer from which nothing comes back.
    SilentPeer,
    /// SENDs with Invalidate of no bytes, as many as the wire and the card take; each has a key of its own.
    EndedKeys,
    /// WRITEs of 16 KiB, 512 in flight: the longest messages that are not sent in turns of a part each.
    LargeWrites,
    /// WRITEs of 1 MiB, which are.
    LongWrites,
    /// READs of 1 MiB by the other host, whose responses share the wire with the victim's requests.
    ReadsOfPeer,
}

impl Noise {
    /// All kinds.
    pub const ALL: [Noise; 9] = [
        Noise::Quiet,
        Noise::ColdReceives,
        Noise::EmptySends,
        Noise::OneWord,
        Noise::SilentPeer,
        Noise::EndedKeys,
        Noise::LargeWrites,
        Noise::LongWrites,
        Noise::ReadsOfPeer,
    ];

    fn case(self) -> Case {
        let (kind, bytes) = match self {
            Noise::ColdReceives => (Kind::Send, 64),
            Noise::EmptySends | Noise::EndedKeys => (Kind::Send, 0),
            Noise::OneWord => (Kind::FetchAdd, ATOMIC_BYTES),
            Noise::Quiet | Noise::SilentPeer => (Kind::Write, BYTES),
            Noise::LargeWrites => (Kind::Write, 4 * BYTES),
            Noise::LongWrites => (Kind::Write, 256 * BYTES),
            Noise::ReadsOfPeer => (Kind::Read, 256 * BYTES),
        };
        Case { kind, bytes, pmtu: Pmtu::Bytes4096, queue_pairs: 1 }
    }

    fn window(self) -> usize {
        match self {
            Noise::ColdReceives => 1,
            Noise::LongWrites | Noise::ReadsOfPeer => 8,
            Noise::EmptySends | Noise::EndedKeys | Noise::LargeWrites => 512,
            _ => WINDOW,
        }
    }
}

/// What the victim does.
#[derive(Clone, Copy, Debug)]
struct Victim {
    /// Length of its WRITEs.
    bytes: usize,
    /// Those in flight.
    window: usize,
    /// Those that are measured, and as many before that, divided by four.
    messages: usize,
    /// Those that are measured while keys end, before all have ended.
    messages_of_keys: usize,
}

/// A victim whose rate is measured.
const BULK: Victim = Victim { bytes: BYTES, window: WINDOW, messages: 600, messages_of_keys: 250 };
/// The same, one message at a time, for its latency.
const ALONE: Victim = Victim { window: 1, messages: 100, messages_of_keys: 14, ..BULK };
/// A victim of small messages.
const SMALL: Victim = Victim { bytes: 64, window: 1000, messages: 5000, messages_of_keys: 3000 };

/// Result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    /// What the neighbour did.
    pub noise: Noise,
    /// Rate of the victim's payload.
    pub gbps: f64,
    /// Its part of the wire, and that of the neighbour, in percent.
    pub percent_of_wire: f64,
    /// See `percent_of_wire`.
    pub percent_of_neighbour: f64,
    /// Its part in percent of its fair share.
    pub percent_of_fair: f64,
    /// Mean time of a message from its post to its completion, one at a time.
    pub latency_us: f64,
    /// Part of the wire of a victim with WRITEs of 64 B, 1,000 in flight, in percent.
    pub percent_of_small: f64,
}

/// Counts the bytes of requests of others than the victim from the first card, and loses those to a queue pair that does not answer.
fn watch(world: &SharedWorld, victim: u32, silent: Option<u32>) -> Arc<AtomicU64> {
    let bytes: Arc<AtomicU64> = Arc::default();
    let counted = Arc::clone(&bytes);
    let script = move |_: u64, frame: &mut Frame| {
        let destination = PacketRepr::parse(&frame.bytes).map(|packet| packet.bth.destination_qp).ok();
        if destination != Some(victim) {
            counted.fetch_add(frame.bytes.len() as u64 + FRAME_OVERHEAD_BYTES, Ordering::Relaxed);
        }
        if destination.is_some() && destination == silent { Fate::Lose } else { Fate::Leave }
    };
    lock(world).direction_mut(0, 0).set_script(Some(Box::new(script)));
    bytes
}

/// Posts what the neighbour has to do.
struct Neighbour {
    noise: Noise,
    load: Load,
    /// Calls of `idle` since the SEND whose receive is missing.
    waiting: Option<usize>,
}

impl Neighbour {
    fn turn(&mut self, is_measured: bool) -> Result<()> {
        match self.noise {
            Noise::Quiet => return Ok(()),
            Noise::EndedKeys if !is_measured => return Ok(()),
            Noise::ColdReceives => match &mut self.waiting {
                Some(idles) if *idles == COLD_IDLES => {
                    self.load.post_receives(self.load.sent + 1)?;
                    self.waiting = None;
                }
                Some(idles) => *idles += 1,
                None if self.load.sent == self.load.received => {
                    self.load.post(self.load.sent + 1)?;
                    self.waiting = Some(0);
                }
                None => {}
            },
            _ => self.load.post(usize::MAX / 2)?,
        }
        ensure!(self.load.poll()? != Progress::Lost, "the neighbour has failed");
        Ok(())
    }
}

/// Runs the victim with so many messages in flight. Returns the time of a message in seconds, and bytes a second of the victim and
/// of the neighbour.
fn run_victim(
    model: &Model,
    standard: CardOptions,
    noise: Noise,
    victim: Victim,
    seed: u64,
) -> Result<(f64, [f64; 2])> {
    let Victim { bytes: victim_bytes, window, messages, messages_of_keys } = victim;
    let ideal = CardOptions { host: HostOptions::IDEAL, ..standard };
    let (world, functions) = two_cards(model, [ideal; 2], standard.wire(), seed)?;
    let clock = functions[0].clone();
    let [first, second] = functions;
    let devices = [
        Device::open(first, cards::options(Seed(seed), 0))?,
        Device::open(second, cards::options(Seed(seed), 1))?,
    ];
    let both = [&devices[0], &devices[1]];
    let of = |each| Window { each, all: each };
    let case = Case { kind: Kind::Write, bytes: victim_bytes, pmtu: Pmtu::Bytes4096, queue_pairs: 1 };
    // What the neighbour makes the receiver drop is sent again.
    let send = SendOptions { timeout: TIMEOUT, retry_count: 7, rnr_retry: 7, ..SendOptions::default() };
    let mut victim = Load::new(both, &case, of(window), 1, send)?;
    let ends = if noise == Noise::ReadsOfPeer { [both[1], both[0]] } else { both };
    let mut load = Load::new(ends, &noise.case(), of(noise.window()), 1, send)?;
    load.posts_receives = noise != Noise::ColdReceives;
    if noise == Noise::EndedKeys {
        load.end_keys(KEYS)?;
    }
    let silent = (noise == Noise::SilentPeer).then(|| load.receiver(0));
    let bytes = watch(&world, victim.receiver(0), silent);
    let mut neighbour = Neighbour { noise, load, waiting: None };
    (0..2).for_each(|card| lock(&world).host_mut(card).set_options(standard.host));
    let measured = if noise == Noise::EndedKeys { messages_of_keys } else { messages };
    let (from, to) = (measured / 4, measured / 4 + measured);
    let now = || (lock(&world).now_ps(), bytes.load(Ordering::Relaxed));
    let mut begin = None;
    let mut idle = 0;
    while victim.sent < to {
        if begin.is_none() && victim.sent >= from {
            begin = Some((victim.sent, now()));
        }
        victim.post(usize::MAX / 2)?;
        neighbour.turn(begin.is_some())?;
        clock.idle();
        idle += 1;
        match victim.poll()? {
            Progress::Lost => bail!("the victim has failed"),
            Progress::Some => idle = 0,
            Progress::None => ensure!(idle < IDLE_MAX, "the victim has stalled"),
        }
    }
    lock(&world).check()?;
    let has_keys = noise != Noise::EndedKeys || neighbour.load.keys_left() > 0;
    ensure!(has_keys, "all keys have ended before message {} of {to}", victim.sent);
    let (messages, (begin_ps, before)) = begin.context("nothing was measured")?;
    let (end_ps, after) = now();
    let seconds = (end_ps - begin_ps) as f64 * 1e-12;
    let completed = (victim.sent - messages) as f64;
    let own = completed * case.frames().wire_bytes as f64;
    Ok((seconds / completed, [own, (after - before) as f64].map(|bytes| bytes / seconds)))
}

/// Measures the victim beside one neighbour.
///
/// # Errors
/// If the victim fails or stalls, or a monitor sees a violation.
pub fn beside(model: &Model, standard: CardOptions, noise: Noise, seed: u64) -> Result<Kept> {
    let wire = standard.bits_per_second as f64 / 8.0;
    let measure = |victim| {
        let (seconds, rates) = run_victim(model, standard, noise, victim, seed)?;
        Ok::<_, anyhow::Error>((seconds, rates.map(|rate| rate / wire)))
    };
    let (seconds, [share, taken]) = measure(BULK)?;
    let (latency, _) = measure(ALONE)?;
    let (_, [small, _]) = measure(SMALL)?;
    Ok(Kept {
        noise,
        gbps: (BYTES * 8) as f64 / seconds / 1e9,
        percent_of_wire: share * 100.0,
        percent_of_neighbour: taken * 100.0,
        percent_of_fair: share / (1.0 - taken).max(0.5) * 100.0,
        latency_us: latency * 1e6,
        percent_of_small: small * 100.0,
    })
}

/// Builds a card, measures all neighbours, and prints a table.
///
/// # Errors
/// As [`beside`], or if a tool is missing.
pub fn run(config: &Config, seed: u64) -> Result<Vec<Kept>> {
    let width_bits = config.datapath.width_bits;
    let product = generator::generate(config)?;
    let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let model = Model::build(TOP, &product.verilog, &model_options(options))?;
    print_line!(
        "{width_bits} bits, seed {seed}: WRITEs of 4 KiB, {WINDOW} in flight, and of 64 B, {}; % of the wire\n",
        SMALL.window
    );
    print_line!(
        "{:<14} {:>7} {:>7} {:>10} {:>13} {:>11} {:>7}",
        "beside",
        "Gb/s",
        "%",
        "neighbour",
        "% of its fair",
        "latency, us",
        "64 B, %"
    );
    let measure = |noise| {
        let kept = beside(&model, card_options(config), noise, seed).with_context(|| format!("{noise:?}"))?;
        print_line!(
            "{:<14} {:>7.2} {:>7.1} {:>10.1} {:>13.1} {:>11.2} {:>7.1}",
            format!("{noise:?}"),
            kept.gbps,
            kept.percent_of_wire,
            kept.percent_of_neighbour,
            kept.percent_of_fair,
            kept.latency_us,
            kept.percent_of_small
        );
        Ok(kept)
    };
    Noise::ALL.into_iter().map(measure).collect()
}
