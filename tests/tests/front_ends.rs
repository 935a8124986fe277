//! Three unrelated front ends read the presets and have nothing to say: Verilator, Icarus and Yosys.
use anyhow::{Context, Result, ensure};
use rnic_hdl::config::Config;
use rnic_hdl::generator;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_path_buf()
}

fn verilog_of(preset: &str) -> Result<String> {
    let text = std::fs::read_to_string(root().join(format!("configs/{preset}.toml")))?;
    Ok(generator::generate(&Config::parse(&text)?)?.verilog)
}

/// A directory that holds the Verilog.
fn directory_with(preset: &str, verilog: &str) -> Result<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("front_ends_{preset}"));
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("rnic.v"), verilog)?;
    Ok(directory)
}

/// Runs a front end that must succeed in silence.
fn silent(command: &mut Command, install: &str) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?} does not start; {install}"))?;
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim().to_string());
    ensure!(
        output.status.success() && said.iter().all(String::is_empty),
        "{command:?} says:\n{}",
        said.join("\n")
    );
    Ok(())
}

fn verilator(verilog: &str) -> Result<()> {
    let waivers = root().join("hdl/lint.vlt");
    let waivers = waivers.to_str().context("the path is UTF-8")?;
    let said = verilator_sys::Toolchain::find()?.lint(generator::TOP, verilog, &[waivers])?;
    ensure!(said.is_empty(), "Verilator says:\n{said}");
    Ok(())
}

fn icarus(directory: &Path) -> Result<()> {
    silent(
        Command::new("iverilog")
            .args(["-g2005", "-Wall", "-t", "null", "-s", generator::TOP, "rnic.v"])
            .current_dir(directory),
        "run scripts/setup.sh",
    )
}

/// Yosys fails on a latch, and `check -assert` on an undriven net, several drivers or a loop.
fn yosys(directory: &Path) -> Result<()> {
    let script = format!(
        "read_verilog -noautowire rnic.v; hierarchy -check -top {}; proc -latches error; check -assert",
        generator::TOP
    );
    let program = root().join(".venv/bin/yosys");
    silent(
        Command::new(program).args(["-q", "-l", "yosys.log", "-p", &script]).current_dir(directory),
        "run scripts/setup.sh",
    )?;
    let log = std::fs::read_to_string(directory.join("yosys.log"))?;
    ensure!(!log.contains("Warning"), "yosys warns:\n{log}");
    Ok(())
}

/// Shows a preset to each front end.
fn is_clean(preset: &str) -> Result<()> {
    let verilog = verilog_of(preset)?;
    let directory = directory_with(preset, &verilog)?;
    verilator(&verilog)?;
    icarus(&directory)?;
    yosys(&directory)
}

macro_rules! are_clean {
    ($($test:ident: $preset:literal,)+) => {$(
        #[test]
        fn $test() -> Result<()> {
            is_clean($preset)
        }
    )+};
}

are_clean! {
    w64_is_clean: "w64",
    w128_is_clean: "w128",
    w256_is_clean: "w256",
    w512_is_clean: "w512",
    medium_is_clean: "medium",
    tiny_is_clean: "tiny",
}
