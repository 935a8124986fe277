//! The demo's scenario: two cards on a wire, two drivers, thousands of messages of which every byte is checked, and how long
//! each stage of one message takes.
//!
//! 1. **Messages**: a faultless [`Plan`] over many queue pairs in both directions, held against its [`Model`](crate::operations::Model).
//! 2. **Latency**: messages one at a time on a queue pair of their own, while nothing else is under way, so that what is seen
//!    at the ports of the cards belongs to this one message.
use crate::function::{SharedWorld, SimulatedFunction};
use crate::host::HostOptions;
use crate::monitor::trail::Moment;
use crate::operations::plan::{Kind, Message, Piece, Place, Receive, Source, Target, TargetMemory};
use crate::operations::run::{Machine, Outcome, Post};
use crate::operations::{Cards, Plan, PlanOptions, run};
use crate::wire::WireOptions;
use crate::world::clock::SECOND_PS;
use crate::world::{CardOptions, Domain, Port, World};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rnic_driver::Function;
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionStatus;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use verilator_sys::Model;

/// Pairs that carry the messages.
const PAIRS: usize = 16;
/// Lengths of which the latency is measured.
const PING_BYTES: [usize; 2] = [64, 4096];
/// Messages of each length.
const PINGS: usize = 32;
/// Bytes that each host may have under way: the wire's rate times what a message takes there and its completion back, and
/// no more than the receive buffer of the widest card holds.
const IN_FLIGHT_BYTES: usize = 48 << 10;
/// Calls of `idle` before a ping, so that nothing of the last one is under way.
const QUIET_IDLE: usize = 60;
/// Calls of `idle` that a ping may take.
const PING_IDLE_MAX: usize = 1_000;

/// Stages of a message, in the order in which it meets them.
pub const STAGES: [&str; 8] = [
    "doorbell",
    "wqe_fetched",
    "first_byte_on_the_wire",
    "last_byte_received",
    "icrc_proven",
    "payload_at_the_host",
    "cqe_at_the_host",
    "ack_back",
];

/// How long something took, in cycles of the core clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// The shortest.
    pub min: u64,
    /// Half of all were at most so long.
    pub median: u64,
    /// The longest.
    pub max: u64,
}

impl Spread {
    fn of(mut values: Vec<u64>) -> Option<Spread> {
        values.sort_unstable();
        Some(Spread { min: *values.first()?, median: values[values.len() / 2], max: *values.last()? })
    }
}

/// What the scenario showed.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// What decided the run.
    pub seed: u64,
    /// Messages, in both directions.
    pub messages: u64,
    /// Messages by kind.
    pub kinds: BTreeMap<String, u64>,
    /// Their bytes, each of which was compared where it belongs.
    pub bytes_verified: u64,
    /// Completions that were compared.
    pub completions: u64,
    /// Frames on the wire, in both directions.
    pub frames: u64,
    /// Cycles of the core clock from the first post of a message to the last completion.
    pub cycles: u64,
    /// Rate of payload, both directions together.
    pub payload_gbps: f64,
    /// From the doorbell to each stage, for a message of 64 bytes in memory on cards at rest: half of all messages took at
    /// most so many cycles of the core clock.
    pub latency_cycles: BTreeMap<String, u64>,
    /// The same by length of the message, with its spread.
    pub latency_by_length: BTreeMap<usize, BTreeMap<String, Spread>>,
}

/// How the scenario is run.
#[derive(Clone, Copy, Debug)]
pub struct ScenarioOptions {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Messages at least.
    pub messages: usize,
    /// Both hosts.
    pub host: HostOptions,
}

/// Two cards of a model on a wire, out of reset, and the way to them.
///
/// # Errors
/// If the model is no card, or a monitor sees a violation.
pub fn two_cards(
    model: &Model,
    options: [CardOptions; 2],
    wire: WireOptions,
    seed: u64,
) -> Result<(SharedWorld, [Arc<dyn Function>; 2])> {
    let mut world = World::new(seed);
    for options in options {
        world.add_card(model, options)?;
    }
    world.connect(Port::Card(0), Port::Card(1), wire)?;
    world.leave_reset()?;
    let world = Arc::new(Mutex::new(world));
    let functions = [0, 1]
        .map(|card| -> Arc<dyn Function> { Arc::new(SimulatedFunction::new(Arc::clone(&world), card)) });
    Ok((world, functions))
}

fn lock(world: &SharedWorld) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Now, in picoseconds and in cycles of the core clock of card 0.
fn time(world: &SharedWorld) -> (u64, u64) {
    let world = lock(world);
    (world.now_ps(), world.card(0).cycles(Domain::Core))
}

/// Runs the scenario, and writes what crosses the port of card 0 to `trace`.
///
/// # Errors
/// The first difference from the model, or a rule that was violated.
pub fn play(model: &Model, width_bits: u32, options: &ScenarioOptions, trace: &Path) -> Result<Results> {
    let card = CardOptions { host: options.host, ..CardOptions::standard(width_bits) };
    let (world, functions) = two_cards(model, [card; 2], card.wire(), options.seed)?;
    lock(&world).capture(Port::Card(0), trace)?;
    let mut plan_options = PlanOptions::faultless(PAIRS, options.messages.div_ceil(2 * PAIRS));
    plan_options.in_flight_bytes = IN_FLIGHT_BYTES;
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
    // A violated rule says more than what came of it.
    lock(&world).check()?;
    let totals = totals?;
    let after = time(&world);
    let frames = lock(&world).wire_counts(0).iter().map(|counts| counts.arrived).sum();

    let mut latency_by_length = BTreeMap::new();
    for length in PING_BYTES {
        let stages = pings(&world, &mut cards, &plan, ping, length)
            .with_context(|| format!("a quiet message of {length} bytes"))?;
        latency_by_length.insert(length, stages);
    }
    drop(cards);
    lock(&world).finish()?;

    let mut kinds = BTreeMap::new();
    for message in plan.pairs.iter().flat_map(|pair| &pair.lanes).flat_map(|lane| &lane.sends) {
        *kinds.entry(format!("{:?}", message.kind)).or_default() += 1;
    }
    let medians = latency_by_length[&PING_BYTES[0]].iter();
    Ok(Results {
        seed: options.seed,
        messages: totals.messages,
        kinds,
        bytes_verified: totals.bytes,
        completions: totals.completions,
        frames,
        cycles: after.1 - before.1,
        payload_gbps: totals.bytes as f64 * 8.0 / ((after.0 - before.0) as f64 / SECOND_PS as f64) / 1e9,
        latency_cycles: medians.map(|(stage, spread)| (stage.clone(), spread.median)).collect(),
        latency_by_length,
    })
}

/// Sends messages one at a time from host 0 to host 1, and finds their stages.
fn pings(
    world: &SharedWorld,
    cards: &mut Cards,
    plan: &Plan,
    pair: usize,
    length: usize,
) -> Result<BTreeMap<String, Spread>> {
    let mut random = plan.seed.stream(&format!("pings/{length}"));
    let mut times: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for index in 0..PINGS {
        let tag = (length as u64) << 32 | index as u64;
        let payload = plan.payload(0, pair, length + index, length);
        let receive =
            Receive { pieces: vec![Piece { length, lane: random.random_range(0..64) }], is_mistaken: false };
        let message = Message {
            kind: Kind::Send,
            source: Source::Pieces(vec![Piece { length, lane: random.random_range(0..64) }]),
            immediate: [0; 4],
            target: Target { memory: TargetMemory::Window, place: Place::Offset(0), key_change: 0 },
            signalled: true,
            solicited: false,
            mistake: None,
        };
        ensure!(cards.post_receive(1, pair, tag, &receive)?, "there is no room for one receive");
        cards.confirm(1)?;
        for _ in 0..QUIET_IDLE {
            cards.idle()?;
        }
        (0..2).for_each(|card| lock(world).host_mut(card).trail_mut().start());
        let posts = [Post { tag, message: &message, payload: &payload }];
        ensure!(cards.post_sends(0, pair, &posts)? == 1, "there is no room for one message");
        let mut outcomes = Vec::new();
        for _ in 0..PING_IDLE_MAX {
            cards.idle()?;
            cards.poll(0, &mut outcomes)?;
            cards.poll(1, &mut outcomes)?;
            if outcomes.len() == 2 {
                break;
            }
        }
        let stop = |card: usize| lock(world).host_mut(card).trail_mut().stop();
        let trails = [0, 1].map(stop);
        arrived(&outcomes, &payload)?;
        let period_ps = lock(world).card(0).period_ps(Domain::Core);
        for (stage, time_ps) in stages(&trails)? {
            times.entry(stage.to_string()).or_default().push(time_ps.div_ceil(period_ps));
        }
    }
    times
        .into_iter()
        .map(|(stage, values)| Ok((stage, Spread::of(values).context("there was a message")?)))
        .collect()
}

fn arrived(outcomes: &[Outcome], payload: &[u8]) -> Result<()> {
    ensure!(outcomes.len() == 2, "{} of two completions come", outcomes.len());
    for outcome in outcomes {
        ensure!(outcome.status == CompletionStatus::Success, "{outcome:?}");
        ensure!(!outcome.is_receive || outcome.contents.concat() == payload, "a byte differs");
    }
    Ok(())
}

/// Times from the doorbell to each stage that was seen.
fn stages(trails: &[Vec<(u64, Moment)>; 2]) -> Result<Vec<(&'static str, u64)>> {
    let [sender, receiver] = trails;
    let first = |trail: &[(u64, Moment)], from_ps: u64, wanted: Moment| {
        trail
            .iter()
            .find(|(time_ps, moment)| *time_ps >= from_ps && *moment == wanted)
            .map(|(time_ps, _)| *time_ps)
    };
    let doorbell = first(sender, 0, Moment::SendDoorbell).context("no doorbell was seen")?;
    let wqe = first(sender, doorbell, Moment::ReadAnswered).context("no work was fetched")?;
    let wire = first(sender, wqe, Moment::FrameBegins).context("no frame left")?;
    let received = first(receiver, wire, Moment::FrameReceived).context("no frame arrived")?;
    let accepted = first(receiver, received, Moment::FrameAccepted);
    let completion =
        first(receiver, received, Moment::CompletionVisible).context("no completion was written")?;
    let payload = receiver.iter().filter(|(time_ps, moment)| {
        (received..=completion).contains(time_ps) && *moment == Moment::PayloadVisible
    });
    let payload = payload.map(|(time_ps, _)| *time_ps).max().context("no payload was written")?;
    let ack = first(sender, wire, Moment::FrameReceived).context("no acknowledgement arrived")?;
    let times = [
        Some(doorbell),
        Some(wqe),
        Some(wire),
        Some(received),
        accepted,
        Some(payload),
        Some(completion),
        Some(ack),
    ];
    let seen = STAGES.into_iter().zip(times).filter_map(|(stage, time)| Some((stage, time? - doorbell)));
    Ok(seen.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_counted_from_the_doorbell() -> Result<()> {
        use Moment::*;
        let sender = vec![
            (90, ReadAnswered),
            (100, SendDoorbell),
            (150, ReadAnswered),
            (170, ReadAnswered),
            (200, FrameBegins),
            (390, FrameReceived),
        ];
        let mut receiver = vec![
            (50, CompletionVisible),
            (250, FrameReceived),
            (260, FrameAccepted),
            (300, PayloadVisible),
            (310, PayloadVisible),
            (330, CompletionVisible),
            (340, PayloadVisible),
        ];
        let expected = [0, 50, 100, 150, 160, 210, 230, 290];
        let found = stages(&[sender.clone(), receiver.clone()])?;
        assert!(found.iter().map(|(_, time)| *time).eq(expected));
        receiver.remove(2);
        let found = stages(&[sender.clone(), receiver.clone()])?;
        assert!(found.len() == 7 && found.iter().all(|(stage, _)| *stage != "icrc_proven"));
        assert!(stages(&[sender, Vec::new()]).unwrap_err().to_string().contains("no frame arrived"));
        Ok(())
    }

    #[test]
    fn a_spread_has_its_middle() {
        assert_eq!(Spread::of(vec![5, 1, 9]), Some(Spread { min: 1, median: 5, max: 9 }));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
