//! `sim:`: a simulated card in this process, whose wire leads back to it.
//!
//! The card is generated and verilated when it is named for the first time, which takes a minute; then it is in the cache.
use anyhow::{Context, Result};
use rnic_driver::{Function, FunctionError};
use rnic_hdl::config::{Config, WIDTHS_BITS};
use rnic_hdl::generator::{self, TOP};
use rnic_machine::function::{SharedWorld, SimulatedFunction};
use rnic_machine::host::HostOptions;
use rnic_machine::wire::loopback::Loopback;
use rnic_machine::world::{CardOptions, Port, World, model_options};
use std::sync::{Arc, Mutex, PoisonError};
use verilator_sys::{Model, ModelOptions, Optimization};

/// Seed of the world.
const SEED: u64 = 1;

/// A card in a world of its own.
#[derive(Clone)]
pub(crate) struct Simulated {
    world: SharedWorld,
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

impl Simulated {
    /// Builds a card by its width, and runs it until it has left reset.
    pub(crate) fn new(width: &str) -> Result<Self> {
        let config = config(width)?;
        let verilog = generator::generate(&config)?.verilog;
        let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
        let model = Model::build(TOP, &verilog, &model_options(options))?;
        let mut world = World::new(SEED);
        let line = u64::from(config.network.line_rate_gbps) * 1_000_000_000;
        let standard = CardOptions::new(config.core_clock_hz(), config.mac_clock_hz(), line);
        let card = world.add_card(&model, CardOptions { host: HostOptions::IDEAL, ..standard })?;
        let plug = world.add_station(Loopback::default());
        world.connect(Port::Card(card), Port::Station(plug), standard.wire())?;
        world.leave_reset()?;
        Ok(Self { world: Arc::new(Mutex::new(world)) })
    }

    /// Gives the function of the card.
    #[expect(clippy::unnecessary_wraps, reason = "as the functions of other back ends")]
    pub(crate) fn connect(&self) -> Result<Arc<dyn Function>, FunctionError> {
        Ok(Arc::new(SimulatedFunction::new(Arc::clone(&self.world), 0)))
    }

    /// Fails if a monitor of the simulation has seen the card break a rule.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(self.world.lock().unwrap_or_else(PoisonError::into_inner).check()?)
    }
}
