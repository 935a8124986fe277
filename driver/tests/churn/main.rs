//! Clients that end in mid-transfer, one after the other. A client is a protection domain with a region, a completion queue, a
//! queue pair whose peer is on another card, and with even odds an SRQ. It greets its peer, both post transfers of all kinds, and
//! some time later the client ends.
//!
//! | Test | Clients | how they end |
//! |---|---|---|
//! | `clients_of_this_process` | on a simulated card | dropped, forgotten, or some objects of each; the card is closed after every 25 |
//! | `clients_of_other_processes` | processes on a served card | killed, left without dropping anything, or dropped |
//! | `a_leak_is_found` | as in the first, and one object of each kind is leaked | |
//!
//! After each client nothing that it had is in use any more: no object of the cards, no mapping of their hosts, no receive of
//! the peer's SRQ, no file descriptor of the server. Device addresses are used again. The greeting of the next client shows that
//! the cards serve on; at the end each table of the cards is filled, and each receive of the SRQ is taken.
//!
//! `RNIC_CHURN` is the number of clients, of which one in twenty is a process.
#![cfg(not(loom))]

mod audit;
mod in_process;
mod processes;
mod side;

#[path = "../simulated/mod.rs"]
mod simulated;

use anyhow::{Context, Result, ensure};
use in_process::{Clients, Death, open};
use rand_chacha::ChaCha8Rng;
use rnic_machine::function::SharedWorld;
use rnic_machine::host::HostOptions;
use rnic_stimulus::chance::{Seed, number, seed};
use simulated::world;
use std::sync::{Arc, Mutex};

/// Clients of a run without `RNIC_CHURN`.
const CLIENTS: u64 = 200;
/// One client in so many is a process.
const PROCESS: u64 = 20;

/// Clients of all tests.
fn clients() -> usize {
    number("RNIC_CHURN", CLIENTS) as usize
}

/// Hosts that use the addresses of unmapped memory first.
const HOSTS: [HostOptions; 2] = [HostOptions { reuses_addresses: true, ..HostOptions::IDEAL }; 2];

/// Two cards on one wire, and the source of what is random.
fn cards(seed: u64) -> Result<(SharedWorld, ChaCha8Rng)> {
    Ok((Arc::new(Mutex::new(world(&HOSTS)?)), Seed(seed).stream("churn")))
}

#[test]
fn clients_of_this_process() -> Result<()> {
    let (world, random) = cards(seed(1))?;
    let count = clients() - clients() / PROCESS as usize;
    let mut clients = Clients::new(world, random)?;
    let outcome = clients.run(count);
    println!("  {:?}", clients.counts);
    outcome?;
    ensure!(3 * clients.counts.in_flight > 2 * count, "too few clients ended in mid-transfer");
    Ok(())
}

#[test]
fn clients_of_other_processes() -> Result<()> {
    if let Ok(client) = std::env::var(processes::CLIENT) {
        return processes::client(&client);
    }
    let seed = Seed(seed(1));
    let count = (clients() / PROCESS as usize).max(1);
    let folder = tempfile::tempdir()?;
    let deaths = processes::run(world(&HOSTS)?, folder.path(), seed.stream("processes"), count)?;
    println!(
        "  processes killed, killed at their start, left without dropping, that have dropped: {deaths:?}"
    );
    Ok(())
}

#[test]
fn a_leak_is_found() -> Result<()> {
    let (world, random) = cards(1)?;
    let mut clients = Clients::new(Arc::clone(&world), random)?;
    let (_function, device) = open(&world, 0)?;
    clients.live_and_die(&device, Death::Dropped, 0).context("a client that leaks nothing")?;
    for (salt, kind) in (1..).zip([
        "protection domains",
        "regions",
        "completion queues",
        "shared receive queues",
        "queue pairs",
    ]) {
        let outcome = clients.live_and_die(&device, Death::Leaking(kind), 2 * salt);
        let text = format!("{:#}", outcome.err().with_context(|| format!("{kind} leak unseen"))?);
        ensure!(text.contains(kind), "{text}");
        // A domain is a number of the driver.
        ensure!(kind == "protection domains" || text.contains("mappings"), "{text}");
    }
    for (outcome, expected) in clients.lose_receive(&device)?.into_iter().zip([
        "23 receives of the SRQ are posted instead of 24",
        "receives that are posted to the SRQ are never taken: [",
    ]) {
        let text = outcome.err().with_context(|| format!("unseen: {expected}"))?.to_string();
        ensure!(text.contains(expected), "{text}");
    }
    Ok(())
}
