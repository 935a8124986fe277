//! The card of a width that is under test: that of the preset, or one with other tables.
use crate::support::model::model_of;
use anyhow::{Context, Result};
use rnic_hdl::config::Config;
use std::path::Path;
use verilator_sys::Model;

/// The preset of a width, with the tables of the configuration that `RNIC_TABLES` names, if it is set.
fn card_config(width_bits: u32) -> Result<Config> {
    let preset = Config::preset(width_bits)?;
    let Some(name) = std::env::var_os("RNIC_TABLES") else { return Ok(preset) };
    let tables =
        Config::read(Path::new(&name)).with_context(|| format!("RNIC_TABLES is {}", name.display()))?.tables;
    Ok(Config { tables, ..preset })
}

/// The card, verilated.
pub(crate) fn card_model(width_bits: u32) -> Result<Model> {
    model_of(&card_config(width_bits)?)
}

/// As many pairs of queue pairs as a test wants, or as the card has.
pub(crate) fn pairs_of(width_bits: u32, wanted: usize) -> Result<usize> {
    Ok(wanted.min(card_config(width_bits)?.tables.queue_pairs as usize))
}
