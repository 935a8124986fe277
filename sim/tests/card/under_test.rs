//! The card of a width that is under test: that of the preset, one with other tables, or another one.
use crate::support::model::model_of;
use anyhow::{Context, Result};
use rnic_hdl::config::Config;
use rnic_machine::world::CardOptions;
use rnic_sim::card_options as options_of;
use std::path::Path;
use verilator_sys::Model;

/// The configuration of the cards of a width: the one that `RNIC_TABLES` names if it has this width, or else the preset, with the tables
/// of the named one.
fn card_config(width_bits: u32) -> Result<Config> {
    let preset = Config::preset(width_bits)?;
    let Some(name) = std::env::var_os("RNIC_TABLES") else { return Ok(preset) };
    let config =
        Config::read(Path::new(&name)).with_context(|| format!("RNIC_TABLES is {}", name.display()))?;
    let has_width = config.datapath.width_bits == width_bits;
    Ok(if has_width { config } else { Config { tables: config.tables, ..preset } })
}

/// Clocks and line rate of the card, on the host of the standard bench.
pub(crate) fn card_options(width_bits: u32) -> Result<CardOptions> {
    Ok(options_of(&card_config(width_bits)?))
}

/// The card, verilated.
pub(crate) fn card_model(width_bits: u32) -> Result<Model> {
    model_of(&card_config(width_bits)?)
}

/// As many pairs of queue pairs as a test wants, or as the card has.
pub(crate) fn pairs_of(width_bits: u32, wanted: usize) -> Result<usize> {
    Ok(wanted.min(card_config(width_bits)?.tables.queue_pairs as usize))
}

/// Bytes of the receive buffer of the card that one queue pair may hold.
pub(crate) fn buffer_share(width_bits: u32) -> Result<usize> {
    Ok((card_config(width_bits)?.receive.buffer_kib as usize) << 10 >> 1)
}
