//! Two generated cards on a wire, each with a host and its driver.
use anyhow::{Context, Result};
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_sim::host::HostOptions;
use rnic_sim::operations::{Cards, Plan, PlanOptions, run};
use rnic_sim::scenario::two_cards;
use rnic_sim::world::{CardOptions, model_options};
use std::path::Path;
use verilator_sys::{Model, ModelOptions, Optimization};

fn card_model(width_bits: u32) -> Result<Model> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../configs/w{width_bits}.toml"));
    let text = std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let product = generator::generate(&Config::parse(&text)?)?;
    let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    Ok(Model::build(TOP, &product.verilog, &model_options(options))?)
}

/// A message each way, through both drivers; the monitors watch, and the counters of both cards account for every frame.
fn one_message_arrives(width_bits: u32) -> Result<()> {
    let plan = Plan::new(1, &PlanOptions::faultless(1, 1));
    let options = CardOptions { host: HostOptions::IDEAL, ..CardOptions::standard(width_bits) };
    let (world, functions) = two_cards(&card_model(width_bits)?, [options; 2], options.wire(), plan.seed.0)?;
    let lock = || world.lock().expect("nobody has panicked");
    let mut cards = Cards::open(&plan, functions)?;
    let totals = run(&plan, &mut cards);
    // A violated rule says more than what came of it.
    lock().check()?;
    assert_eq!(totals?.messages, 2);
    drop(cards);
    lock().finish()?;
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
