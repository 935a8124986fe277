//! The program `rnic`: lists, shows and checks cards, through the driver.
//!
//! | Exit code | Meaning |
//! |---|---|
//! | 0 | done; of `selftest`: every check passed |
//! | 1 | an error, on standard error; of `selftest`: a check failed |
//! | 2 | the command line is wrong |
//! | 3 | `selftest`: no check failed, but some could not be run |
//! | 141 | standard output was closed, as by `head` |

mod connect;
#[macro_use]
mod output;

mod counters;
mod info;
mod list;
mod ping;
mod selftest;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::io::{Write, stderr};
use std::process::ExitCode;

/// List, show and check rnic cards.
///
/// DEVICE is `pci:ADDRESS`, a PCI function of this machine; `vfu:PATH`, a card that another process serves at a socket, as `rnic-sim
/// serve --socket PATH` does; or `sim:`, a simulated card in this process, whose wire leads back to it (`sim:512` is one of 512 bits).
/// A command that opens a card resets it.
#[derive(Parser)]
#[command(name = "rnic", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the cards among the PCI functions of this machine, the driver that each is bound to, and what to do to open it.
    List(list::Options),
    /// Show what a card is: its PCI function, limits, features, link, and counters that are not zero.
    Info(info::Options),
    /// Show the counters of a card.
    Counters(counters::Options),
    /// Measure the round trip of one operation after the other, between two simulated cards or the cards that are named.
    Ping(ping::Options),
    /// Check a card: registers, resets, queues and regions of every kind, messages, errors, interrupts.
    Selftest(selftest::Options),
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            // Nobody may read it.
            let _ = writeln!(stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List(options) => list::run(options)?,
        Command::Info(options) => info::run(options)?,
        Command::Counters(options) => counters::run(options)?,
        Command::Ping(options) => ping::run(options)?,
        Command::Selftest(options) => return selftest::run(options),
    }
    Ok(ExitCode::SUCCESS)
}
