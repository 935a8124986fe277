//! Writes a card for a configuration: Verilog, constraints, C header, register manual and manifest.
use anyhow::{Context, Result};
use clap::Parser;
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, Product};
use std::io::{ErrorKind, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Generate the rnic card as Verilog-2005.
///
/// Writes rnic.v, rnic.xdc, rnic_regs.h, REGISTERS.md and manifest.json. The same configuration gives the same
/// bytes.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The configuration, in TOML; configs/ has one for each width of the datapath.
    #[arg(long)]
    config: PathBuf,
    /// The directory to write into; created if it does not exist.
    #[arg(long)]
    out: PathBuf,
}

/// Exit code if the configuration could not be read, or is refused: nothing has been written.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let product = match read(&arguments.config) {
        Ok(product) => product,
        Err(error) => {
            eprintln!("error: {}: {error:#}", arguments.config.display());
            return ExitCode::from(REFUSED);
        }
    };
    match write(&product, &arguments.out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn read(path: &Path) -> Result<Product> {
    let text = std::fs::read_to_string(path).context("cannot be read")?;
    let config = Config::parse(&text)?;
    Ok(generator::generate(&config)?)
}

fn write(product: &Product, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    for (name, text) in product.files() {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        say(&format!("{} ({} lines)", path.display(), text.lines().count()))?;
    }
    Ok(())
}

/// Prints a line. A closed pipe (`rnic-gen | head -1`) is not an error, since the files are written anyway.
fn say(line: &str) -> Result<()> {
    match writeln!(stdout(), "{line}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        _ => Ok(()),
    }
}
