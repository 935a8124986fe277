//! Writes a card for a configuration: Verilog, constraints, C header, register manual and manifest.
use anyhow::{Context, Result, ensure};
use clap::Parser;
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, Product};
use std::fmt::Display;
use std::fs::canonicalize;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Generate the rnic card as Verilog-2005.
///
/// Writes rnic.v, rnic.xdc, rnic_regs.h, REGISTERS.md and manifest.json. The same configuration gives the same
/// bytes.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The configuration: a file in TOML, or a preset: one for each width of the datapath, w64, w128, w256, w512, or by size, tiny,
    /// small, medium, large.
    #[arg(long)]
    config: PathBuf,
    /// The directory to write into; created if it does not exist.
    #[arg(long)]
    out: PathBuf,
}

/// Exit code if the configuration could not be read, or is refused: nothing has been written.
const REFUSED: u8 = 2;
/// Exit code of a program that SIGPIPE has ended, as a shell reports it.
const CLOSED_PIPE: u8 = 128 + 13;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let product = match read(&arguments.config) {
        Ok(product) => product,
        Err(error) => {
            complain(format_args!("{}: {error:#}", arguments.config.display()));
            return ExitCode::from(REFUSED);
        }
    };
    if let Err(error) = check(&product, &arguments) {
        complain(format_args!("{error:#}"));
        return ExitCode::from(REFUSED);
    }
    match write(&product, &arguments.out).and_then(|lines| say(&lines)) {
        Ok(code) => code,
        Err(error) => {
            complain(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints an error, which nobody may read.
fn complain(error: impl Display) {
    let _ = writeln!(stderr(), "error: {error}");
}

fn read(path: &Path) -> Result<Product> {
    Ok(generator::generate(&Config::read(path)?)?)
}

/// Fails if the configuration is one of the files to write.
fn check(product: &Product, Arguments { config, out }: &Arguments) -> Result<()> {
    let Ok(config_file) = canonicalize(config) else { return Ok(()) };
    for (name, _) in product.files() {
        let path = out.join(name);
        let is_same = canonicalize(&path).is_ok_and(|file| file == config_file);
        ensure!(
            !is_same,
            "{} would be replaced by {}: name another directory",
            config.display(),
            path.display()
        );
    }
    Ok(())
}

/// Writes the files, and returns a line about each.
fn write(product: &Product, directory: &Path) -> Result<String> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let mut lines = String::new();
    for (name, text) in product.files() {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        lines += &format!("{} ({} lines)\n", path.display(), text.lines().count());
    }
    Ok(lines)
}

/// Prints lines. A closed pipe (`rnic-gen | head -1`) ends the program quietly; the files are written by then.
fn say(lines: &str) -> Result<ExitCode> {
    match stdout().write_all(lines.as_bytes()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::from(CLOSED_PIPE)),
        Err(error) => Err(error).context("cannot print"),
    }
}
