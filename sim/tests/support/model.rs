//! The card under test.
use anyhow::Result;
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_machine::world::model_options;
use verilator_sys::{Model, ModelOptions, Optimization};

/// The generated card of the preset of a width, verilated.
pub(crate) fn card_model(width_bits: u32) -> Result<Model> {
    model_of(&Config::preset(width_bits)?)
}

/// The generated card of a configuration, verilated; under `RNIC_MUTANT`, the one with the faults of the mutation gate.
pub(crate) fn model_of(config: &Config) -> Result<Model> {
    let product = generator::generate(config)?;
    let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let verilog = rnic_mutants::verilog_under_test(&product.verilog)?;
    Ok(Model::build(TOP, &verilog, &model_options(options))?)
}
