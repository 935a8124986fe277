//! The demo's scenario: two cards on a wire with their drivers, thousands of messages of which every byte is compared, and the
//! latency of single messages.
//!
//! 1. **Messages**: a plan without mistakes ([`Plan`]) over many queue pairs in both directions, compared with its
//!    [`Model`](rnic_workloads::Model).
//! 2. **Latency**: messages one at a time on a queue pair of their own, while all others are idle
//!    ([`latency`]).
use crate::latency::{self, Ping, Spread};
use anyhow::{Context, Result, ensure};
use rnic_layout::path::Pmtu;
use rnic_machine::function::{SharedWorld, lock, two_cards};
use rnic_machine::host::HostOptions;
use rnic_machine::world::clock::SECOND_PS;
use rnic_machine::world::{CardOptions, Domain, Port};
use rnic_workloads::{Cards, Plan, PlanOptions, run};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use verilator_sys::Model;

/// Pairs that carry the messages.
const PAIRS: usize = 16;
/// Message lengths of the latency measurement.
const PING_BYTES: [usize; 2] = [64, 4096];
/// Bytes that each host may have in flight: the wire's rate times the round trip, and no more than the receive buffer of the
/// widest card holds.
const IN_FLIGHT_BYTES: usize = 48 << 10;
/// Maximum length of a message.
const MESSAGE_BYTES_MAX: usize = 60_000;

/// Results of the scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Seed of the run.
    pub seed: u64,
    /// Messages, in both directions.
    pub messages: u64,
    /// Messages by kind.
    pub kinds: BTreeMap<String, u64>,
    /// Messages of more than one packet.
    pub messages_of_many_packets: u64,
    /// Length of the longest message, in bytes.
    pub longest_bytes: usize,
    /// Bytes of all messages, each of which was compared.
    pub bytes_verified: u64,
    /// Completions, each of which was compared.
    pub completions: u64,
    /// Frames on the wire, in both directions.
    pub frames: u64,
    /// Core clock cycles from the first post to the last completion.
    pub cycles: u64,
    /// Rate of payload in both directions together.
    pub payload_gbps: f64,
    /// Median time from the doorbell to each stage in core clock cycles, for a message of 64 bytes that is not inline, on idle
    /// cards.
    pub latency_cycles: BTreeMap<String, u64>,
    /// The same by message length, with minimum and maximum.
    pub latency_by_length: BTreeMap<usize, BTreeMap<String, Spread>>,
}

/// Parameters of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct ScenarioOptions {
    /// Seed of all random choices.
    pub seed: u64,
    /// Minimum number of messages.
    pub messages: usize,
    /// Behaviour of both hosts.
    pub host: HostOptions,
    /// Queue pairs of a card; the scenario uses as many as it has a use for.
    pub queue_pairs: usize,
}

/// Current time in picoseconds, and in core clock cycles of card 0.
fn time(world: &SharedWorld) -> (u64, u64) {
    let world = lock(world);
    (world.now_ps(), world.card(0).cycles(Domain::Core))
}

/// Runs the scenario, and writes the frames at the port of card 0 to the pcap file `trace`.
///
/// # Errors
/// The first difference from the model, or a violation that a monitor has seen.
pub fn play(model: &Model, card: CardOptions, options: &ScenarioOptions, trace: &Path) -> Result<Results> {
    let card = CardOptions { host: options.host, ..card };
    let (world, functions) = two_cards(model, [card; 2], card.wire(), options.seed)?;
    lock(&world).capture(Port::Card(0), trace)?;
    // One queue pair is for the measurement of latency.
    let pairs = PAIRS.min(options.queue_pairs - 1);
    let mut plan_options = PlanOptions::faultless(pairs, options.messages.div_ceil(2 * pairs));
    plan_options.in_flight_bytes = IN_FLIGHT_BYTES;
    plan_options.message_bytes_max = MESSAGE_BYTES_MAX;
    plan_options.pmtus = &[Pmtu::Bytes1024, Pmtu::Bytes2048, Pmtu::Bytes4096];
    let mut plan = Plan::new(options.seed, &plan_options);
    let ping = plan.pairs.len();
    let mut quiet = plan.pairs[0].clone();
    quiet.pmtu = Pmtu::Bytes4096;
    quiet.lanes = Default::default();
    plan.pairs.push(quiet);

    let mut cards = Cards::open(&plan, functions)?;
    let before = time(&world);
    let totals = run(&plan, &mut cards);
    // A violation tells more about the cause than a wrong result.
    lock(&world).check()?;
    let totals = totals?;
    let after = time(&world);
    let frames = lock(&world).wire_counts(0).iter().map(|counts| counts.arrived).sum();

    let mut latency_by_length = BTreeMap::new();
    for length in PING_BYTES {
        let alone = Ping { bytes: length, is_inline: false };
        let found = latency::measure(&world, &mut cards, &plan, ping, &alone)
            .with_context(|| format!("a quiet message of {length} bytes"))?;
        latency_by_length.insert(length, found.stages);
    }
    drop(cards);
    lock(&world).finish()?;
    let losses = lock(&world).end_files();
    ensure!(losses.is_empty(), "{}", losses.join("; "));

    let mut kinds = BTreeMap::new();
    let (mut messages_of_many_packets, mut longest_bytes) = (0, 0);
    for pair in &plan.pairs {
        for message in pair.lanes.iter().flat_map(|lane| &lane.sends) {
            *kinds.entry(format!("{:?}", message.kind)).or_default() += 1;
            messages_of_many_packets += u64::from(message.length() > pair.pmtu.bytes() as usize);
            longest_bytes = longest_bytes.max(message.length());
        }
    }
    let medians = latency_by_length[&PING_BYTES[0]].iter();
    Ok(Results {
        seed: options.seed,
        messages: totals.messages,
        kinds,
        messages_of_many_packets,
        longest_bytes,
        bytes_verified: totals.bytes,
        completions: totals.completions,
        frames,
        cycles: after.1 - before.1,
        payload_gbps: totals.bytes as f64 * 8.0 / ((after.0 - before.0) as f64 / SECOND_PS as f64) / 1e9,
        latency_cycles: medians.map(|(stage, spread)| (stage.clone(), spread.median)).collect(),
        latency_by_length,
    })
}
