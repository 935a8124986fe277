//! The card under test.
use anyhow::{Context, Result};
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_machine::world::model_options;
use std::path::Path;
use verilator_sys::{Model, ModelOptions, Optimization};

/// The generated card of a width, verilated; under `RNIC_MUTANT`, the one with the faults of the mutation gate.
pub(crate) fn card_model(width_bits: u32) -> Result<Model> {
    // Cargo and scripts/soak.sh say where the package is; the soak also runs on machines without this checkout.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let path = Path::new(&package).join(format!("../configs/w{width_bits}.toml"));
    let text = std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let product = generator::generate(&Config::parse(&text)?)?;
    let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let verilog = rnic_mutants::verilog_under_test(&product.verilog)?;
    Ok(Model::build(TOP, &verilog, &model_options(options))?)
}
