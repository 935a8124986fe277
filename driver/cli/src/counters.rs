//! `rnic counters`: the counters of a card, once or again and again.

use crate::connect::open;
use crate::output::{grouped, print_json};
use anyhow::Result;
use clap::Args;
use rnic::{Counters, Named};
use rnic_layout::registers::COUNTERS;
use serde::Serialize;
use std::ffi::OsString;
use std::time::{Duration, Instant};

#[derive(Args)]
pub(crate) struct Options {
    /// The card: vfu:PATH, pci:ADDRESS or sim:.
    device: OsString,
    /// Also show counters that are zero.
    #[arg(long)]
    all: bool,
    /// Show what has changed, again and again, until SIGINT. The card stays open, so it counts what comes from the wire.
    #[arg(long, conflicts_with_all = ["all", "json"])]
    watch: bool,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 1.0, requires = "watch", value_parser = parse_seconds, allow_negative_numbers = true)]
    interval: f64,
    /// End after this many looks.
    #[arg(long, requires = "watch", value_name = "LOOKS", value_parser = parse_looks, allow_negative_numbers = true)]
    times: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Longest time between two looks, in seconds.
const INTERVAL_MAX: f64 = 86_400.0;

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=INTERVAL_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("allowed are 0.01 to {INTERVAL_MAX}")),
    }
}

fn parse_looks(text: &str) -> Result<u64, String> {
    let looks = text.parse().ok().filter(|&looks| looks > 0);
    looks.ok_or_else(|| format!("allowed are 1 to {}", u64::MAX))
}

/// A counter with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Counted {
    pub(crate) name: &'static str,
    pub(crate) value: u64,
    /// What is counted, its unit first.
    pub(crate) meaning: &'static str,
}

/// All counters of a snapshot, in the order of the register manual.
pub(crate) fn counted(snapshot: &Counters) -> impl Iterator<Item = Counted> {
    let meanings = COUNTERS.iter().map(|counter| counter.meaning);
    snapshot.iter().zip(meanings).map(|((name, value), meaning)| Counted { name, value, meaning })
}

/// Prints counters with their meanings.
pub(crate) fn print(counters: &[Counted]) -> Result<()> {
    for Counted { name, value, meaning } in counters {
        print_line!("  {name:<33} {:>15}  {meaning}", grouped(*value));
    }
    if counters.is_empty() {
        print_line!("  none");
    }
    Ok(())
}

/// Lines about what has changed between two snapshots.
fn changes(before: &Counters, after: &Counters, seconds: f64) -> Vec<String> {
    let pairs = before.iter().zip(after.iter());
    let changed = pairs.filter(|((_, before), (_, after))| before != after);
    changed
        .map(|((name, before), (_, after))| {
            let count = after.wrapping_sub(before);
            let rate = (count as f64 / seconds).round() as u64;
            format!("  {name:<33} {:>15}  + {} ({}/s)", grouped(after), grouped(count), grouped(rate))
        })
        .collect()
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let named = Named::new(&options.device)?;
    let card = open(&named)?;
    let mut before = card.device.counters()?;
    if options.watch {
        let (start, mut last) = (Instant::now(), Instant::now());
        for _ in 0..options.times.unwrap_or(u64::MAX) {
            std::thread::sleep(Duration::from_secs_f64(options.interval));
            card.device.check()?;
            let after = card.device.counters()?;
            let now = Instant::now();
            let lines = changes(&before, &after, (now - last).as_secs_f64());
            print_line!("{:.1} s: {} counters have changed", (now - start).as_secs_f64(), lines.len());
            for line in lines {
                print_line!("{line}");
            }
            (before, last) = (after, now);
        }
        return Ok(());
    }
    let counters: Vec<Counted> =
        counted(&before).filter(|counter| options.all || counter.value != 0).collect();
    if options.json {
        return print_json(&counters);
    }
    print_line!("{}", named.text());
    print(&counters)
}
