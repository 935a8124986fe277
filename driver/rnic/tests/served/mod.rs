//! Simulated cards that this process serves at sockets.

use anyhow::{Result, ensure};
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_machine::host::HostOptions;
use rnic_machine::served::background::Background;
use rnic_machine::served::server::Server;
use rnic_machine::wire::loopback::Loopback;
use rnic_machine::world::{CardOptions, Port, World, model_options};
use std::path::PathBuf;
use tempfile::TempDir;
use verilator_sys::{Model, ModelOptions, Optimization};

/// Served cards of 64 bits: one in loopback, or two on one wire.
pub(crate) struct Served {
    /// Their names.
    pub(crate) names: Vec<String>,
    server: Background,
    _folder: TempDir,
}

impl Served {
    /// Serves `count` cards.
    pub(crate) fn start(count: usize) -> Result<Self> {
        let verilog = generator::generate(&Config::preset(64)?)?.verilog;
        let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
        let model = Model::build(TOP, &verilog, &model_options(options))?;
        let mut world = World::new(1);
        let options = CardOptions { host: HostOptions::IDEAL, ..CardOptions::standard(64) };
        for _ in 0..count {
            world.add_card(&model, options)?;
        }
        let other = match count {
            1 => Port::Station(world.add_station(Loopback::default())),
            _ => Port::Card(1),
        };
        world.connect(Port::Card(0), other, options.wire())?;
        world.leave_reset()?;
        let folder = tempfile::tempdir()?;
        let sockets: Vec<PathBuf> =
            (0..count).map(|card| folder.path().join(format!("card{card}"))).collect();
        let names = sockets.iter().map(|socket| format!("vfu:{}", socket.display())).collect();
        let server = Server::new(world, &sockets, |remark| eprintln!("{remark}"))?.spawn()?;
        Ok(Self { names, server, _folder: folder })
    }

    /// Ends the server, which must have seen nothing wrong.
    pub(crate) fn end(self) -> Result<()> {
        let summary = self.server.end()?;
        for card in &summary.cards {
            ensure!(card.remarks == 0, "{card:?}");
        }
        Ok(())
    }
}
