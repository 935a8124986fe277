//! Simulated cards in this process: one whose wire is in loopback, or two on one wire.
//!
//! The first card of a configuration is generated and verilated, which takes a minute; then it is in the cache.

use crate::card::{Named, OpenError, Reason};
use anyhow::{Context, Result};
use rnic_driver::Function;
use rnic_hdl::config::{Config, WIDTHS_BITS};
use rnic_hdl::generator::{self, TOP};
use rnic_machine::function::{SharedWorld, SimulatedFunction, lock};
use rnic_machine::host::HostOptions;
use rnic_machine::wire::loopback::Loopback;
use rnic_machine::world::{CardOptions, Port, World, model_options};
use std::sync::{Arc, Mutex};
use verilator_sys::{Model, ModelOptions, Optimization};

/// Seed of a world.
const SEED: u64 = 1;

/// A card of a world in this process.
#[derive(Clone)]
pub(crate) struct Simulated {
    world: SharedWorld,
    card: usize,
    /// It is alone on its wire, which is in loopback.
    pub(crate) is_alone: bool,
}

/// The configuration that what follows `sim:` names: the width of the datapath in bits, 64 if there is none.
fn config(width: &str) -> Result<Config> {
    let bits = if width.is_empty() { Some(64) } else { width.parse().ok() };
    let bits = bits.filter(|bits| WIDTHS_BITS.contains(bits)).with_context(|| {
        let names = WIDTHS_BITS.map(|bits| format!("sim:{bits}")).join(", ");
        format!("`{width}` is no width of a simulated card; allowed are {names}")
    })?;
    Ok(Config::preset(bits)?)
}

/// Builds one card in loopback, or two on one wire, and runs them until they have left reset.
fn world(width: &str, is_pair: bool) -> Result<SharedWorld> {
    let config = config(width)?;
    let verilog = generator::generate(&config)?.verilog;
    let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let model = Model::build(TOP, &verilog, &model_options(options))?;
    let mut world = World::new(SEED);
    let line = u64::from(config.network.line_rate_gbps) * 1_000_000_000;
    let standard = CardOptions::new(config.core_clock_hz(), config.mac_clock_hz(), line);
    let mut add_card = || world.add_card(&model, CardOptions { host: HostOptions::IDEAL, ..standard });
    let first = add_card()?;
    let other =
        if is_pair { Port::Card(add_card()?) } else { Port::Station(world.add_station(Loopback::default())) };
    world.connect(Port::Card(first), other, standard.wire())?;
    world.leave_reset()?;
    Ok(Arc::new(Mutex::new(world)))
}

impl Simulated {
    /// Builds a card in loopback by its width.
    pub(crate) fn alone(width: &str) -> Result<Self, Reason> {
        let world = world(width, false).map_err(Reason::simulation)?;
        Ok(Self { world, card: 0, is_alone: true })
    }

    /// Gives the function of the card.
    pub(crate) fn connect(&self) -> Arc<dyn Function> {
        Arc::new(SimulatedFunction::new(Arc::clone(&self.world), self.card))
    }

    /// Fails if a monitor of the simulation has seen the card break a rule.
    pub(crate) fn check(&self) -> Result<(), Reason> {
        lock(&self.world).check().map_err(|failure| Reason::Simulation(failure.to_string()))
    }
}

/// Makes two simulated cards on one wire, of the datapath width that the text names in bits: `""` is 64. They share one simulated time,
/// which advances while either is waited for, so that one thread can use both.
///
/// ```no_run
/// let [here, there] = rnic::simulated_pair("")?.map(|card| card.open());
/// let [mut here, mut there] = rnic::Endpoint::pair(&here?, &there?)?;
/// here.send(b"hello")?;
/// assert_eq!(there.receive()?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If no card has this width, or Verilator is missing or fails.
pub fn simulated_pair(width: &str) -> Result<[Named; 2], OpenError> {
    let text = format!("sim:{width}");
    let world = world(width, true).map_err(|error| OpenError::new(&text, Reason::simulation(error)))?;
    Ok([0, 1].map(|card| {
        let simulated = Simulated { world: Arc::clone(&world), card, is_alone: false };
        Named::simulated(format!("{text} card {card}"), simulated)
    }))
}
