//! Two generated cards on a wire, each with a host and its driver, against the model of what they are asked for.
//!
//! `RNIC_SEEDS` says how many seeds of random operations are run at each width, by default 25.
mod support;

use anyhow::{Context, Result};
use rnic_layout::registers::COUNTERS;
use rnic_sim::chance::Seed;
use rnic_sim::host::HostOptions;
use rnic_sim::operations::run::Totals;
use rnic_sim::operations::{Cards, Plan, PlanOptions, run};
use rnic_sim::scenario::two_cards;
use rnic_sim::world::{CardOptions, World};
use support::card_model;
use verilator_sys::Model;

/// What both cards have counted, for the report of a failure.
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

/// Runs a plan on two cards, whose hosts behave as they are told. The monitors watch, and at the end the counters of both cards
/// account for every frame.
fn operate(model: &Model, width_bits: u32, hosts: [HostOptions; 2], plan: &Plan) -> Result<Totals> {
    let options = hosts.map(|host| CardOptions { host, ..CardOptions::standard(width_bits) });
    let (world, functions) = two_cards(model, options, options[0].wire(), plan.seed.0)?;
    let lock = || world.lock().expect("nobody has panicked");
    let mut cards = Cards::open(plan, functions)?;
    let totals = run(plan, &mut cards);
    // A violated rule says more than what came of it.
    lock().check()?;
    let totals = match totals {
        Ok(totals) => totals,
        Err(error) => {
            let moved = moved_counters(&mut lock())?;
            return Err(error.context(moved));
        }
    };
    drop(cards);
    lock().finish()?;
    Ok(totals)
}

/// A message each way on hosts that never stall.
fn one_message_arrives(width_bits: u32) -> Result<()> {
    let plan = Plan::new(1, &PlanOptions::faultless(1, 1));
    let totals = operate(&card_model(width_bits)?, width_bits, [HostOptions::IDEAL; 2], &plan)?;
    assert_eq!(totals.messages, 2);
    Ok(())
}

/// Sixteen pairs of queue pairs, half of which end with a mistake, on hosts that do whatever a host may do.
fn random_operations_agree(width_bits: u32) -> Result<()> {
    let seeds = std::env::var("RNIC_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(25);
    let model = card_model(width_bits)?;
    for seed in 0..seeds {
        let plan = Plan::new(seed, &PlanOptions::USUAL);
        let host = |side| HostOptions::hostile(&mut Seed(seed).stream(&format!("host{side} options")));
        let totals = operate(&model, width_bits, [host(0), host(1)], &plan)
            .with_context(|| format!("{width_bits} bits, seed {seed}"))?;
        assert_eq!(totals.messages, plan.messages() as u64);
    }
    Ok(())
}

#[test]
fn one_message_arrives_at_64_bits() -> Result<()> {
    one_message_arrives(64)
}

#[test]
fn one_message_arrives_at_512_bits() -> Result<()> {
    one_message_arrives(512)
}

#[test]
fn random_operations_agree_at_64_bits() -> Result<()> {
    random_operations_agree(64)
}

#[test]
fn random_operations_agree_at_512_bits() -> Result<()> {
    random_operations_agree(512)
}
