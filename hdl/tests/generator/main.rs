//! `rnic-gen` as its users meet it.
mod config;
mod diagram;

use anyhow::{Context, Result, ensure};
use rnic_hdl::config::Config;
use rnic_hdl::generator;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PRESETS: [&str; 7] = ["w64", "w128", "w256", "w512", "medium", "small", "tiny"];
/// The bar for generating a card, on any machine and in any build.
const GENERATION_MAX: Duration = Duration::from_secs(10);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("hdl/ lies in the workspace").to_path_buf()
}

fn command(config: &Path, out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rnic-gen"));
    command.arg("--config").arg(config).arg("--out").arg(out).env("RUST_BACKTRACE", "1");
    command
}

fn rnic_gen(config: &Path, out: &Path) -> Result<Output> {
    command(config, out).output().context("rnic-gen does not start")
}

#[test]
fn every_preset_gives_the_same_bytes_twice_and_in_time() -> Result<()> {
    for preset in PRESETS {
        let text = std::fs::read_to_string(root().join(format!("configs/{preset}.toml")))?;
        let config = Config::parse(&text)?;
        let start = Instant::now();
        let product = generator::generate(&config)?;
        ensure!(start.elapsed() < GENERATION_MAX, "{preset} takes {:?}", start.elapsed());
        ensure!(product == generator::generate(&config)?, "{preset} differs from run to run");
        ensure!(product.verilog.contains("\nmodule rnic ("), "{preset} has no top module");
    }
    Ok(())
}

#[test]
fn the_generator_writes_all_files_and_their_hash() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let out = directory.path().join("made/by/the/generator");
    let output = rnic_gen(&root().join("configs/w64.toml"), &out)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let manifest: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(out.join("manifest.json"))?)?;
    ensure!(manifest["config"]["datapath"]["width_bits"] == 64, "the manifest holds the configuration");
    let digest = Command::new("sha256sum").arg(out.join("rnic.v")).output()?.stdout;
    let hash = manifest["sha256"]["rnic.v"].as_str().context("the manifest holds the hash")?;
    ensure!(String::from_utf8(digest)?.starts_with(hash), "the hash is that of the file");
    for name in ["rnic.xdc", "rnic_regs.h", "REGISTERS.md"] {
        ensure!(std::fs::metadata(out.join(name))?.len() > 0, "{name} is empty");
    }
    Ok(())
}

/// As `rnic-gen | head -1` leaves it.
#[test]
fn all_files_are_written_though_nobody_reads_their_names() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let mut command = command(&root().join("configs/w64.toml"), directory.path());
    let output = command.stdout(writer).stderr(Stdio::piped()).spawn()?.wait_with_output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(141) && error.is_empty(), "{:?}: {error}", output.status);
    ensure!(directory.path().join("manifest.json").exists(), "the last file is missing");
    Ok(())
}

/// A configuration that cannot be built is named with its value and range; the exit code is 2, and nothing is written.
#[test]
fn a_bad_setting_is_named_and_nothing_is_written() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let good = std::fs::read_to_string(root().join("configs/w512.toml"))?;
    let cases = [
        (
            "width_bits = 512",
            "width_bits = 96",
            "setting `datapath.width_bits` is 96; allowed: 64, 128, 256, 512",
        ),
        (
            "line_rate_gbps = 100",
            "line_rate_gbps = 400",
            "setting `network.line_rate_gbps` is 400; allowed: 1 to 128",
        ),
        ("core_clock_mhz = 250", "clock = 250", "clock"),
    ];
    for (from, to, message) in cases {
        let config = directory.path().join("bad.toml");
        std::fs::write(&config, good.replace(from, to))?;
        let out = directory.path().join("out");
        let output = rnic_gen(&config, &out)?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(2), "exit code {:?}: {error}", output.status.code());
        ensure!(error.contains(message) && error.matches("error:").count() == 1, "{error}");
        ensure!(!error.to_lowercase().contains("backtrace"), "{error}");
        ensure!(!out.exists(), "something was written");
    }
    let output = rnic_gen(&directory.path().join("missing.toml"), &directory.path().join("out"))?;
    ensure!(output.status.code() == Some(2), "a configuration that is not there is refused too");
    Ok(())
}

/// A configuration is read, and no file is written in its place.
#[test]
fn no_file_of_the_card_replaces_its_configuration() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (out, config) = (directory.path().join("out"), directory.path().join("out/manifest.json"));
    std::fs::create_dir(&out)?;
    std::fs::copy(root().join("configs/w64.toml"), &config)?;
    let output = rnic_gen(&config, &out.join("."))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2) && error.contains("would be replaced by "), "{error}");
    ensure!(std::fs::read(&config)? == std::fs::read(root().join("configs/w64.toml"))?);
    ensure!(std::fs::read_dir(&out)?.count() == 1, "nothing was written");
    Ok(())
}

#[test]
fn an_error_that_cannot_be_printed_is_one_all_the_same() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let full = || std::fs::File::options().write(true).open("/dev/full");
    let status = command(Path::new("none.toml"), directory.path()).stderr(full()?).status()?;
    ensure!(status.code() == Some(2), "{status}");
    let status = command(Path::new("w64"), directory.path()).stdout(full()?).stderr(full()?).status()?;
    ensure!(status.code() == Some(1), "{status}");
    Ok(())
}
