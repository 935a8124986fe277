//! Clocks of core and MAC: no frame has a gap at those that a card is built for, and one that has a gap is seen.
use super::lock;
use super::support::card_model;
use anyhow::{Result, ensure};
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_layout::path::Pmtu;
use rnic_machine::function::two_cards;
use rnic_machine::world::clock::ClockOptions;
use rnic_machine::world::{CardOptions, model_options};
use rnic_workloads::{Cards, Plan, PlanOptions, run};
use verilator_sys::{Model, ModelOptions, Optimization};

/// Clock of the MACs of 100 Gb/s.
const FAST_MAC_HZ: u64 = 322_265_625;

/// Moves messages of many full frames between two cards, and returns what their monitors have seen.
fn violations(model: &Model, card: CardOptions) -> Result<Vec<String>> {
    let (world, functions) = two_cards(model, [card; 2], card.wire(), 1)?;
    let mut options = PlanOptions::faultless(2, 6);
    (options.message_bytes_max, options.pmtus) = (40_000, &[Pmtu::Bytes4096]);
    let plan = Plan::new(1, &options);
    // After a violation the world refuses to go on.
    let outcome = Cards::open(&plan, functions).and_then(|mut cards| run(&plan, &mut cards).map(drop));
    let mut world = lock(&world);
    let found: Vec<String> = (0..2)
        .flat_map(|card| world.card_mut(card).log_mut().take())
        .map(|violation| violation.text)
        .collect();
    if found.is_empty() {
        outcome?;
    }
    Ok(found)
}

/// The preset of 256 bits, whose MAC takes 132 beats in the time in which its core makes 102.
#[test]
fn a_card_does_not_pause_within_a_frame_to_a_mac_of_a_faster_clock() -> Result<()> {
    let card = CardOptions::standard(256);
    ensure!(card.mac.hertz == FAST_MAC_HZ && card.core.hertz == 250_000_000, "{card:?}");
    let found = violations(&card_model(256)?, card)?;
    ensure!(found.is_empty(), "{found:?}");
    Ok(())
}

/// A card of 64 bits that is built for a fast MAC, beside one that is not.
#[test]
fn a_card_that_is_not_built_for_its_mac_pauses_and_is_seen() -> Result<()> {
    let card = CardOptions { mac: ClockOptions::steady(FAST_MAC_HZ), ..CardOptions::standard(64) };
    let found = violations(&card_model(64)?, card)?;
    ensure!(
        !found.is_empty() && found.iter().all(|text| text.contains("pauses within a frame")),
        "{found:?}"
    );

    let mut config = Config::preset(64)?;
    config.network.mac_clock_hz = Some(FAST_MAC_HZ);
    config.check()?;
    let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let model = Model::build(TOP, &generator::generate(&config)?.verilog, &model_options(options))?;
    let found = violations(&model, card)?;
    ensure!(found.is_empty(), "{found:?}");
    Ok(())
}
