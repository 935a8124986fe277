//! One suite of checks on every back end: cards in this process, and cards that another process serves or that the machine has.
//!
//! | Test | Cards |
//! |---|---|
//! | `cards_in_this_process` | two of one world, one of them on a hostile host; one whose wire leads back to it |
//! | `cards_of_other_processes` | those that `RNIC_DEVICES` names, one or two device strings, as in `RNIC_DEVICES="pci:0000:65:00.0 pci:0000:66:00.0"`; without it two served cards on one wire, and one whose wire leads back to it |
//!
//! The first test, and the second without `RNIC_DEVICES`, run on cards of [`simulated`].
#![cfg(not(loom))]

mod simulated;

use anyhow::{Result, bail, ensure};
use rnic_driver::{DeviceName, Function};
use rnic_machine::function::{SharedWorld, SimulatedFunction};
use rnic_machine::host::HostOptions;
use rnic_machine::served::server::Server;
use rnic_suite::{CHECKS, Cards, Connector, Verdict};
use simulated::{SEED, world};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Device strings of cards to check.
const DEVICES: &str = "RNIC_DEVICES";
/// The cards of connectors, one or two.
fn cards(connectors: impl IntoIterator<Item = Connector>) -> Result<Cards> {
    let mut connectors = connectors.into_iter();
    match (connectors.next(), connectors.next(), connectors.next()) {
        (Some(card), None, _) => Ok(Cards::one(card)),
        (Some(first), Some(second), None) => Ok(Cards::two(first, second)),
        _ => bail!("the suite runs on one or two cards"),
    }
}

/// Runs all checks, each of which must pass.
fn pass(what: &str, cards: &Cards) -> Result<()> {
    let mut faults = Vec::new();
    for check in CHECKS {
        let outcome = check.run(cards);
        println!("{what}: {:<24} {:>8.1?} {:?}", outcome.name, outcome.duration, outcome.verdict);
        if outcome.verdict != Verdict::Passed {
            faults.push(format!("{}: {:?}", outcome.name, outcome.verdict));
        }
    }
    ensure!(faults.is_empty(), "{what}:\n{}", faults.join("\n"));
    Ok(())
}

#[test]
fn cards_in_this_process() -> Result<()> {
    let hostile = HostOptions::hostile(&mut rnic_stimulus::chance::Seed(SEED).stream("host"));
    for (what, hosts) in
        [("two cards", &[HostOptions::STANDARD, hostile][..]), ("one card", &[HostOptions::IDEAL])]
    {
        let world: SharedWorld = Arc::new(Mutex::new(world(hosts)?));
        let connector = |card: usize| -> Connector {
            let world = Arc::clone(&world);
            Box::new(move || {
                Ok(Arc::new(SimulatedFunction::new(Arc::clone(&world), card)) as Arc<dyn Function>)
            })
        };
        let outcome = pass(what, &cards((0..hosts.len()).map(connector))?);
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        world.check()?;
        outcome?;
        world.finish()?;
    }
    Ok(())
}

/// Checks the cards of device strings.
fn pass_named(names: &[String]) -> Result<()> {
    let mut connectors = Vec::new();
    for name in names {
        let name: DeviceName = name.parse()?;
        connectors.push(Box::new(move || name.connect()) as Connector);
    }
    pass(&names.join(" and "), &cards(connectors)?)
}

#[test]
fn cards_of_other_processes() -> Result<()> {
    if let Ok(names) = std::env::var(DEVICES) {
        return pass_named(&names.split_whitespace().map(str::to_string).collect::<Vec<_>>());
    }
    for hosts in [&[HostOptions::IDEAL; 2][..], &[HostOptions::STANDARD]] {
        let folder = tempfile::tempdir()?;
        let sockets: Vec<PathBuf> =
            (0..hosts.len()).map(|card| folder.path().join(format!("card{card}"))).collect();
        let server = Server::new(world(hosts)?, &sockets, |remark| eprintln!("{remark}"))?.spawn()?;
        let outcome =
            pass_named(&sockets.iter().map(|socket| format!("vfu:{}", socket.display())).collect::<Vec<_>>());
        let summary = server.end()?;
        outcome?;
        for (index, card) in summary.cards.iter().enumerate() {
            ensure!(card.remarks == 0 && card.clients > 10, "card {index}: {card:?}");
        }
    }
    Ok(())
}
