//! Prints and writes the resources of the generated card, for each block and in total.
use anyhow::{Context, Result, ensure};
use clap::Parser;
use rnic_hdl::card::{self, TOP};
use rnic_hdl::config::Config;
use rnic_kernel::Design;
use rnic_tests::synthesis::{Figures, Synthesis};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Name of the whole card among its blocks.
const TOTAL: &str = "total";

/// Synthesise generated cards for UltraScale+ and report LUTs, registers, memories and logic depth by block.
#[derive(Parser)]
struct Arguments {
    /// Configurations by file name in configs/, without .toml; the JSON report holds the last one.
    #[arg(default_values = ["w512"])]
    presets: Vec<String>,
    /// Only this block of the table, or `total`, the card in one piece; may be given several times.
    #[arg(long, value_name = "BLOCK")]
    only: Vec<String>,
    /// File of the JSON report.
    #[arg(long, default_value = "build/synth_report.json")]
    json: PathBuf,
}

#[derive(Serialize)]
struct Report {
    config: String,
    /// The card in one piece; not with `--only` of blocks.
    total: Option<Figures>,
    blocks: BTreeMap<String, Figures>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("tests/ lies in the workspace")?;
    for preset in &arguments.presets {
        let report = report(root, preset, &arguments.only)?;
        std::fs::create_dir_all(arguments.json.parent().unwrap_or(Path::new(".")))?;
        std::fs::write(&arguments.json, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    println!("\n{} holds the last table", arguments.json.display());
    Ok(())
}

fn report(root: &Path, preset: &str, only: &[String]) -> Result<Report> {
    let path = root.join(format!("configs/{preset}.toml"));
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let config = Config::parse(&text).with_context(|| path.display().to_string())?;
    let design = card::generate(&config)?;
    let mut parts = parts(&design);
    for wanted in only {
        let names: Vec<_> = parts.iter().map(|(block, _)| block.as_str()).chain([TOTAL]).collect();
        ensure!(
            names.contains(&wanted.as_str()),
            "there is no block {wanted}; there are {}",
            names.join(", ")
        );
    }
    parts.retain(|(block, _)| only.is_empty() || only.contains(block));
    let synthesis = Synthesis::new(root, &root.join(format!("build/synthesis/{preset}")), &design)?;

    println!(
        "\n{preset}: synth_xilinx -family xcup, flattened; LUTRAM and SRL count as LUTs, a carry chain as one level"
    );
    println!("{:<24} {:>7} {:>7} {:>6} {:>5} {:>6}", "block", "LUT", "FF", "BRAM", "URAM", "depth");
    let mut blocks = BTreeMap::new();
    for (block, module) in parts {
        let figures = synthesis.figures(&module)?;
        print(&block, &figures);
        blocks.insert(block, figures);
    }
    let is_whole = only.is_empty() || only.iter().any(|wanted| wanted == TOTAL);
    let total = is_whole.then(|| synthesis.figures(TOP)).transpose()?;
    if let Some(total) = &total {
        print(TOTAL, total);
    }
    Ok(Report { config: preset.to_string(), total, blocks })
}

/// The parts of the card, and the parts of the two that hold the packet path: instance path and module.
fn parts(design: &Design) -> Vec<(String, String)> {
    const OPENED: [&str; 2] = ["receive", "assemble"];
    let mut blocks = Vec::new();
    for (instance, module) in &design.top().children {
        blocks.push((instance.clone(), module.clone()));
        if OPENED.contains(&instance.as_str()) {
            let children = &design.module(module).expect("a child is a module of the design").children;
            blocks.extend(
                children.iter().map(|(child, module)| (format!("{instance}.{child}"), module.clone())),
            );
        }
    }
    blocks
}

fn print(name: &str, figures: &Figures) {
    let Figures { lut, ff, bram, uram, depth } = figures;
    println!("{name:<24} {lut:>7} {ff:>7} {bram:>6} {uram:>5} {depth:>6}");
}
