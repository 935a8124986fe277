//! `rnic selftest`: the checks of `rnic-suite`, one after the other.

use crate::connect::open;
use crate::output::print_json;
use anyhow::{Result, ensure};
use clap::Args;
use rnic::Named;
use rnic_suite::{CHECKS, Cards, Check, Connector, Outcome, Verdict};
use serde::Serialize;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

/// Exit code if no check failed, but some could not be run.
const INCOMPLETE: u8 = 3;

#[derive(Args)]
pub(crate) struct Options {
    /// The card: vfu:PATH, pci:ADDRESS or sim:.
    device: OsString,
    /// A second card on the same wire. Without it, messages are sent if the wire of the card leads back to it.
    peer: Option<OsString>,
    /// Only checks with this text in their name.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    only: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    name: &'static str,
    claim: &'static str,
    verdict: &'static str,
    /// What was found, or is missing.
    detail: Option<String>,
    seconds: f64,
}

#[derive(Serialize)]
struct Report {
    devices: Vec<String>,
    passed: usize,
    failed: usize,
    not_run: usize,
    seconds: f64,
    checks: Vec<Line>,
}

impl From<Outcome> for Line {
    fn from(outcome: Outcome) -> Self {
        let Outcome { name, claim, verdict, duration } = outcome;
        let (verdict, detail) = match verdict {
            Verdict::Passed => ("passed", None),
            Verdict::Failed(found) => ("failed", Some(found)),
            Verdict::NotRun(missing) => ("not run", Some(missing)),
        };
        Self { name, claim, verdict, detail, seconds: duration.as_secs_f64() }
    }
}

fn connector(card: &Named) -> Connector {
    let card = card.clone();
    Box::new(move || card.connect())
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let checks: Vec<&Check> = CHECKS.iter().filter(|check| check.name.contains(&options.only)).collect();
    ensure!(!checks.is_empty(), "no check has `{}` in its name", options.only);
    let devices: Vec<&OsString> =
        [Some(&options.device), options.peer.as_ref()].into_iter().flatten().collect();
    if let [device, peer] = devices[..] {
        ensure!(peer != device, "{} cannot be its own peer; name one card, or two", peer.display());
    }
    let named = devices.iter().map(Named::new).collect::<Result<Vec<Named>, _>>()?;
    let devices: Vec<String> = named.iter().map(|card| card.text().to_string()).collect();
    let cards = match &named[..] {
        [first, second] => {
            let is_alone = first.is_alone() || second.is_alone();
            ensure!(!is_alone, "the wire of a simulated card leads back to it; name no peer");
            Cards::two(connector(first), connector(second))
        }
        cards => Cards::one(connector(&cards[0])),
    };
    // What concerns no check is an error of its own.
    for card in &named {
        drop(open(card)?);
    }
    if !options.json {
        print_line!("{}", devices.join(" and "));
    }
    let start = Instant::now();
    let mut lines: Vec<Line> = Vec::new();
    for check in checks {
        let line = Line::from(check.run(&cards));
        if !options.json {
            print_line!("  {:<8} {:>6.2} s  {:<22} {}", line.verdict, line.seconds, line.name, line.claim);
            // The wire is missing for many checks, and named once.
            let is_known = lines.last().is_some_and(|last| last.detail == line.detail);
            if let Some(detail) = line.detail.as_ref().filter(|_| !is_known) {
                print_line!("           {detail}");
            }
        }
        lines.push(line);
    }
    named.iter().try_for_each(Named::check)?;
    let count = |verdict: &str| lines.iter().filter(|line| line.verdict == verdict).count();
    let (passed, failed, not_run) = (count("passed"), count("failed"), count("not run"));
    let seconds = start.elapsed().as_secs_f64();
    if options.json {
        print_json(&Report { devices, passed, failed, not_run, seconds, checks: lines })?;
    } else {
        print_line!("{passed} passed, {failed} failed, {not_run} not run, in {seconds:.1} s");
    }
    Ok(match (failed, not_run) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(INCOMPLETE),
        _ => ExitCode::FAILURE,
    })
}
