//! Simulated cards for the driver's tests.
//!
//! They build the program `rnic-gen` with cargo: the driver's own tests know no design, so its Verilog comes from outside.

use anyhow::{Context, Result, bail, ensure};
use rnic_machine::host::HostOptions;
use rnic_machine::wire::loopback::Loopback;
use rnic_machine::world::{CardOptions, Port, World, model_options};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use verilator_sys::{Model, ModelOptions, Optimization};

/// The narrowest card, which is simulated fastest.
const WIDTH_BITS: u32 = 64;
/// Seed of the worlds.
pub(crate) const SEED: u64 = 1;

/// The verilated card. Its Verilog is what `rnic-gen` of this build writes.
fn model() -> Result<Model> {
    static BUILD: OnceLock<Result<Model, String>> = OnceLock::new();
    let build = || -> Result<Model> {
        let program = std::env::current_exe()?;
        let mut folders = program.ancestors().skip(2);
        let (Some(profile), Some(target)) = (folders.next(), folders.next()) else {
            bail!("{} is not where cargo puts tests", program.display());
        };
        let name = profile.file_name().and_then(|name| name.to_str()).context("a folder has a name")?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("driver/ is in the workspace")?;
        let output = Command::new(env!("CARGO"))
            // Of the whole workspace, and with a test beside it: else the dependencies of tests give no features to what both
            // use, and all is compiled once more without them.
            .args([
                "build",
                "--quiet",
                "--workspace",
                "--bin",
                "rnic-gen",
                "--test",
                "generator",
                "--profile",
            ])
            .arg(if name == "debug" { "dev" } else { name })
            .arg("--target-dir")
            .arg(target)
            .current_dir(root)
            .output()?;
        ensure!(output.status.success(), "cargo build: {}", String::from_utf8_lossy(&output.stderr));
        let folder = tempfile::tempdir()?;
        let config = root.join(format!("configs/w{WIDTH_BITS}.toml"));
        let output = Command::new(profile.join("rnic-gen"))
            .arg("--config")
            .arg(config)
            .arg("--out")
            .arg(folder.path())
            .output()
            .context("rnic-gen")?;
        ensure!(output.status.success(), "rnic-gen: {}", String::from_utf8_lossy(&output.stderr));
        let verilog = std::fs::read_to_string(folder.path().join("rnic.v"))?;
        let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
        Ok(Model::build("rnic", &verilog, &model_options(options))?)
    };
    let built = BUILD.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(|error| anyhow::anyhow!(error))
}

/// A world of one card whose wire leads back to it, or of a card for each of several hosts on one wire.
pub(crate) fn world(hosts: &[HostOptions]) -> Result<World> {
    let model = model()?;
    let mut world = World::new(SEED);
    let standard = CardOptions::standard(WIDTH_BITS);
    for &host in hosts {
        world.add_card(&model, CardOptions { host, ..standard })?;
    }
    let far = match hosts.len() {
        1 => Port::Station(world.add_station(Loopback::default())),
        _ => Port::Card(1),
    };
    world.connect(Port::Card(0), far, standard.wire())?;
    world.leave_reset()?;
    Ok(world)
}
