//! Whole-card tests: two generated cards on a wire, each with a host and its driver, against the model of random operations.
//!
//! | Variable | Meaning | Default |
//! |---|---|---|
//! | `RNIC_SEEDS` | seeds that a test runs at each width | 8 of random operations; 7 of wires with faults, 2 at 512 bits; 3 of messages that end in the middle, and of shared receive queues; 2 of objects that end in traffic; 1 of draining send queues, and of keys that are invalidated |
//! | `RNIC_FIRST_SEED` | the first of them | 0; 11 for the test that cards never lock |
//! | `RNIC_MOVING_SEED` | if neither is set: half of the seeds are those that it chooses; `scripts/test.sh` derives it from the commit | |
//! | `RNIC_TABLES` | a preset, or a configuration by its absolute path, whose tables the cards have, and at its own width also its clocks and its line rate | the preset of the width |
//! | `RNIC_CYCLES` | core cycles for which cards READ from and WRITE to each other without a pause | 100,000 |
//!
//! `scripts/soak.sh` runs these tests for hours.
mod boundary;
mod churn;
mod clocks;
mod drain;
mod endurance;
mod function;
mod hosts;
mod keys;
mod lives;
mod lost_responses;
mod middle;
mod resize;
mod shared;
mod slow_host;
mod software;
#[path = "../support/mod.rs"]
mod support;
mod under_test;
mod wires;

use anyhow::{Context, Result, ensure};
use rnic_driver::Function;
use rnic_layout::registers::COUNTERS;
use rnic_machine::function::{SharedWorld, two_cards};
use rnic_machine::host::HostOptions;
use rnic_machine::world::{CardOptions, World};
use rnic_stimulus::chance::{Seed, Seeds, number, seed, seeds};
use rnic_workloads::run::Totals;
use rnic_workloads::{Cards, Plan, PlanOptions, run};
use std::sync::{Arc, MutexGuard};
use support::at_both_widths;
use under_test::{buffer_share, card_model, card_options, pairs_of};
use verilator_sys::Model;

/// Maximum of additional seeds until rare events have occurred.
const SEEDS_MORE: u64 = 12;

/// Counters of both cards that are not zero, for the report of a failure.
fn moved_counters(world: &mut World) -> Result<String> {
    let mut text = String::from("what the cards have counted:");
    for card in 0..world.cards() {
        let values = world.counters(card)?;
        let moved = COUNTERS.iter().zip(values).filter(|(_, value)| *value != 0);
        let list: Vec<String> = moved.map(|(counter, value)| format!("{} {value}", counter.name)).collect();
        text += &format!("\n  card {card}: {}", list.join(", "));
    }
    Ok(text)
}

fn lock(world: &SharedWorld) -> MutexGuard<'_, World> {
    world.lock().expect("nobody has panicked")
}

/// Returns the outcome of a run, unless a monitor has seen a violation, which tells more. Errors are reported with the
/// counters.
fn judged<T>(world: &SharedWorld, outcome: Result<T>) -> Result<T> {
    lock(world).check()?;
    match outcome {
        Ok(outcome) => Ok(outcome),
        Err(error) => {
            let moved = moved_counters(&mut lock(world))?;
            Err(error.context(moved))
        }
    }
}

/// Hosts with random, hostile behaviour.
fn hostile(seed: Seed) -> [HostOptions; 2] {
    [0, 1].map(|side| HostOptions::hostile(&mut seed.stream(&format!("host{side} options"))))
}

/// How queue pairs are created before a run, and what becomes of them at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    /// Created on the hosts of the run, and destroyed at its end.
    Whole,
    /// Created on hosts that answer without delay, one card after the other. At the end the cards are pulled out.
    Short,
}

/// Runs a plan on two cards with the given hosts. At the end the counters of both cards must account for every frame.
fn operate(
    model: &Model,
    width_bits: u32,
    hosts: [HostOptions; 2],
    lifecycle: Lifecycle,
    plan: &Plan,
) -> Result<Totals> {
    let first = |host| if lifecycle == Lifecycle::Whole { host } else { quick(host) };
    let standard = card_options(width_bits)?;
    let options = hosts.map(|host| CardOptions { host: first(host), ..standard });
    let (world, functions) = two_cards(model, options, options[0].wire(), plan.seed.0)?;
    lock(&world).take_turns(lifecycle == Lifecycle::Short);
    let mut cards = Cards::open(plan, functions)?;
    lock(&world).take_turns(false);
    for (card, host) in hosts.into_iter().enumerate() {
        lock(&world).host_mut(card).set_options(host);
    }
    let totals = judged(&world, run(plan, &mut cards))?;
    match lifecycle {
        Lifecycle::Whole => {
            drop(cards);
            lock(&world).finish()?;
        }
        Lifecycle::Short => {
            lock(&world).finish()?;
            cards.pull_out();
        }
    }
    Ok(totals)
}

/// A host that answers without delay, with the link and the memory layout of another one.
fn quick(host: HostOptions) -> HostOptions {
    HostOptions { link: host.link, scatters: host.scatters, ..HostOptions::IDEAL }
}

/// A message in each direction on hosts that never stall.
fn one_message_arrives(width_bits: u32) -> Result<()> {
    let plan = Plan::new(1, &PlanOptions::faultless(1, 1));
    let totals =
        operate(&card_model(width_bits)?, width_bits, [HostOptions::IDEAL; 2], Lifecycle::Whole, &plan)?;
    assert_eq!(totals.messages, 2);
    Ok(())
}

/// Messages between hosts without an IOMMU, whose memory is scattered over pages of 4 KiB to 1 GiB.
fn memory_may_lie_scattered(width_bits: u32) -> Result<()> {
    let host = HostOptions { scatters: true, ..HostOptions::STANDARD };
    let options = PlanOptions::faultless(6, 24).within(buffer_share(width_bits)?);
    let plan = Plan::new(5, &options);
    let totals = operate(&card_model(width_bits)?, width_bits, [host; 2], Lifecycle::Whole, &plan)?;
    assert_eq!(totals.messages, plan.messages() as u64);
    Ok(())
}

/// Sixty-four pairs of queue pairs, or as many as the card has, half of which end with a mistake, on hostile hosts.
fn random_operations_agree(width_bits: u32) -> Result<()> {
    let model = card_model(width_bits)?;
    let pairs = pairs_of(width_bits, PlanOptions::USUAL.pairs)?;
    let options = PlanOptions { pairs, ..PlanOptions::USUAL }.within(buffer_share(width_bits)?);
    for seed in seeds(8) {
        let plan = Plan::new(seed, &options);
        // A thousand commands take most of the cycles of a run, and are the same for each plan, so only one seed in ten
        // executes them on hostile hosts.
        let lifecycle = if seed % 10 == 9 { Lifecycle::Whole } else { Lifecycle::Short };
        let totals = operate(&model, width_bits, hostile(Seed(seed)), lifecycle, &plan)
            .with_context(|| format!("{width_bits} bits, seed {seed}"))?;
        assert_eq!(totals.messages, plan.messages() as u64);
        println!("{width_bits} bits, seed {seed}: {totals:?}");
    }
    Ok(())
}

/// Runs rounds on two cards with hostile hosts for each seed, and for up to [`SEEDS_MORE`] further ones until `is_seen` accepts
/// the sum of what the rounds have counted. Returns that sum.
fn seen_at_last(
    width_bits: u32,
    seeds: Seeds,
    is_seen: impl Fn([usize; 2]) -> bool,
    rounds: impl Fn([Arc<dyn Function>; 2], Seed) -> Result<[usize; 2]>,
) -> Result<[usize; 2]> {
    let (model, standard) = (card_model(width_bits)?, card_options(width_bits)?);
    let mut sum = [0; 2];
    let mut seeds = seeds.and_more(SEEDS_MORE);
    while seeds.len() as u64 > SEEDS_MORE || !is_seen(sum) {
        let Some(seed) = seeds.next() else { break };
        let options = hostile(Seed(seed)).map(|host| CardOptions { host, ..standard });
        let (world, functions) = two_cards(&model, options, options[0].wire(), seed)?;
        let counts = judged(&world, rounds(functions, Seed(seed)))
            .with_context(|| format!("{width_bits} bits, seed {seed}"))?;
        lock(&world).finish()?;
        sum = [sum[0] + counts[0], sum[1] + counts[1]];
    }
    ensure!(is_seen(sum), "{sum:?} are too few");
    Ok(sum)
}

/// Queue pairs that fail while they send long messages to each other: some messages succeed, and some are flushed.
fn messages_end_in_the_middle(width_bits: u32) -> Result<()> {
    // With the fast wire, all messages may have completed before software fails the first queue pair.
    let is_seen = |sum: [usize; 2]| sum[0] > 0 && (sum[1] > 0 || width_bits > 64);
    seen_at_last(width_bits, seeds(3), is_seen, |functions, seed| middle::rounds(functions, seed, 4))?;
    Ok(())
}

/// Two cards that WRITE to each other and READ from each other without a pause never lock, on hostile hosts; at the end nothing
/// is in flight.
fn both_directions_never_lock(width_bits: u32) -> Result<()> {
    let cycles = number("RNIC_CYCLES", 100_000) as usize;
    let seed = seed(11);
    let standard = card_options(width_bits)?;
    let options = hostile(Seed(seed)).map(|host| CardOptions { host, ..standard });
    let (world, functions) = two_cards(&card_model(width_bits)?, options, options[0].wire(), seed)?;
    let moved = judged(&world, endurance::run(functions, Seed(seed), cycles))?;
    lock(&world).finish()?;
    println!("{width_bits} bits, {cycles} cycles: {moved:?}");
    ensure!(moved.written.iter().chain(&moved.read).all(|&bytes| bytes > 0), "all four ways: {moved:?}");
    Ok(())
}

/// Queue pairs that take their receives from a shared receive queue.
fn receives_are_shared(width_bits: u32) -> Result<()> {
    let sum = seen_at_last(width_bits, seeds(3), |sum| sum[0] > 0, shared::rounds)?;
    println!("{sum:?}: messages that arrived, and receives that were flushed");
    Ok(())
}

/// Send queues that are drained while they are busy, and resume: some messages have completed by then, and some wait.
fn send_queues_drain(width_bits: u32) -> Result<()> {
    let is_seen = |sum: [usize; 2]| sum.iter().all(|&count| count > 0);
    let sum =
        seen_at_last(width_bits, seeds(1), is_seen, |functions, seed| drain::rounds(functions, seed, 2))?;
    println!("{sum:?}: messages that were done when their queue had drained, and that waited");
    Ok(())
}

/// Keys that are invalidated by their owner or by the peer, on hostile hosts.
fn keys_end(width_bits: u32) -> Result<()> {
    let rounds = |functions, seed| keys::rounds(functions, seed, 8).map(|()| [0; 2]);
    seen_at_last(width_bits, seeds(1), |_| true, rounds)?;
    Ok(())
}

/// Regions, keys, queue pairs and completion queues that end in the middle of traffic, on hostile hosts that use their device
/// addresses again at once.
fn objects_end_in_traffic(width_bits: u32) -> Result<()> {
    let (model, standard) = (card_model(width_bits)?, card_options(width_bits)?);
    let mut sum = [0; 2];
    for seed in seeds(2) {
        let hosts = hostile(Seed(seed)).map(|host| HostOptions { reuses_addresses: true, ..host });
        let options = hosts.map(|host| CardOptions { host, ..standard });
        let (world, functions) = two_cards(&model, options, options[0].wire(), seed)?;
        let counts = judged(&world, churn::rounds(functions, Seed(seed), 3))
            .with_context(|| format!("{width_bits} bits, seed {seed}"))?;
        lock(&world).finish()?;
        sum = [sum[0] + counts[0], sum[1] + counts[1]];
    }
    println!("{width_bits} bits: {} messages succeeded, and {} did not", sum[0], sum[1]);
    ensure!(sum.iter().all(|&count| count > 0), "{sum:?}");
    Ok(())
}

/// Operations of all kinds on wires with faults, on hostile hosts: one cell of the matrix for each seed.
fn wires_with_faults_change_no_result(width_bits: u32) -> Result<()> {
    let model = card_model(width_bits)?;
    for seed in seeds(if width_bits == 64 { 7 } else { 2 }) {
        let done = wires::cell(&model, width_bits, seed)
            .with_context(|| format!("{width_bits} bits, seed {seed}"))?;
        println!("{width_bits} bits, seed {seed}: {done}");
    }
    Ok(())
}

/// Orders of software that the machine must not let pass: a doorbell before its WQE, unmapping before destruction.
fn software_out_of_order_is_caught(width_bits: u32) -> Result<()> {
    for part in [software::doorbells, software::unmapping] {
        let options = [card_options(width_bits)?; 2];
        let (world, functions) = two_cards(&card_model(width_bits)?, options, options[0].wire(), 1)?;
        part(&world, functions, Seed(1))?;
        lock(&world).finish()?;
    }
    Ok(())
}

/// Both directions are full while cards lose their right to be bus master, and have it again.
fn a_card_waits_for_its_right(width_bits: u32) -> Result<()> {
    let options = [card_options(width_bits)?; 2];
    let (world, functions) = two_cards(&card_model(width_bits)?, options, options[0].wire(), 3)?;
    let (functions, losses) = function::flickering(&world, functions, Seed(3));
    let moved = judged(&world, endurance::run(functions, Seed(3), 30_000))?;
    lock(&world).finish()?;
    let losses = *losses.lock().expect("nobody has panicked");
    println!("{width_bits} bits: {losses:?}, {moved:?}");
    ensure!(losses.busy > 30, "{losses:?}");
    Ok(())
}

/// Both directions are full when a card is reset by its PCI function, or by its register while it is not bus master.
fn functions_are_reset_in_traffic(width_bits: u32) -> Result<()> {
    let options = [card_options(width_bits)?; 2];
    let (world, functions) = two_cards(&card_model(width_bits)?, options, options[0].wire(), 4)?;
    judged(&world, function::resets(&world, &functions, function::message_bytes(width_bits), Seed(4)))?;
    lock(&world).finish()?;
    Ok(())
}

/// Queue pairs are reset in full traffic, and used again at once.
fn numbers_are_reused_at_once(width_bits: u32) -> Result<()> {
    let options = [card_options(width_bits)?; 2];
    let (world, functions) = two_cards(&card_model(width_bits)?, options, options[0].wire(), 5)?;
    let flushed = judged(&world, lives::rounds(functions, function::message_bytes(width_bits), Seed(5), 4))?;
    ensure!(flushed > 20, "{flushed} messages were not done");
    lock(&world).finish()?;
    Ok(())
}

/// Completion queues are resized while CQEs arrive.
fn completion_queues_are_resized(width_bits: u32) -> Result<()> {
    let options = [card_options(width_bits)?; 2];
    let (world, functions) = two_cards(&card_model(width_bits)?, options, options[0].wire(), 6)?;
    let resizes = judged(&world, resize::run(functions, Seed(6), 400))?;
    lock(&world).finish()?;
    println!("{width_bits} bits: {resizes:?}");
    ensure!(resizes.larger > 10 && resizes.smaller > 10 && resizes.refused > 3, "{resizes:?}");
    Ok(())
}

/// A response is lost while as many READs and atomics are under way as the peer takes.
fn lost_responses_refuse_no_read(width_bits: u32) -> Result<()> {
    let options = [card_options(width_bits)?; 2];
    let (world, functions) = two_cards(&card_model(width_bits)?, options, options[0].wire(), 7)?;
    judged(&world, lost_responses::run(&world, functions))?;
    lock(&world).finish()?;
    Ok(())
}

#[test]
fn a_slow_host_costs_time_and_no_device() -> Result<()> {
    slow_host::slow_reads(&card_model(64)?, card_options(64)?)
}

at_both_widths! {
    lost_responses_refuse_no_read: lost_responses_refuse_no_read_at_64_bits, lost_responses_refuse_no_read_at_512_bits;
    completion_queues_are_resized: completion_queues_are_resized_at_64_bits, completion_queues_are_resized_at_512_bits;
    numbers_are_reused_at_once: numbers_are_reused_at_once_at_64_bits, numbers_are_reused_at_once_at_512_bits;
    a_card_waits_for_its_right: a_card_waits_for_its_right_at_64_bits, a_card_waits_for_its_right_at_512_bits;
    functions_are_reset_in_traffic: functions_are_reset_in_traffic_at_64_bits, functions_are_reset_in_traffic_at_512_bits;
    wires_with_faults_change_no_result: wires_with_faults_change_no_result_at_64_bits, wires_with_faults_change_no_result_at_512_bits;
    one_message_arrives: one_message_arrives_at_64_bits, one_message_arrives_at_512_bits;
    memory_may_lie_scattered: memory_may_lie_scattered_at_64_bits, memory_may_lie_scattered_at_512_bits;
    random_operations_agree: random_operations_agree_at_64_bits, random_operations_agree_at_512_bits;
    both_directions_never_lock: both_directions_never_lock_at_64_bits, both_directions_never_lock_at_512_bits;
    receives_are_shared: receives_are_shared_at_64_bits, receives_are_shared_at_512_bits;
    send_queues_drain: send_queues_drain_at_64_bits, send_queues_drain_at_512_bits;
    messages_end_in_the_middle: messages_end_in_the_middle_at_64_bits, messages_end_in_the_middle_at_512_bits;
    keys_end: keys_end_at_64_bits, keys_end_at_512_bits;
    objects_end_in_traffic: objects_end_in_traffic_at_64_bits, objects_end_in_traffic_at_512_bits;
    software_out_of_order_is_caught: software_out_of_order_is_caught_at_64_bits, software_out_of_order_is_caught_at_512_bits;
}
