//! A host that answers reads slowly, or far too slowly: driver and card have one limit, and the device is used again after it.
use crate::hosts::{self, connect};
use crate::lock;
use anyhow::{Context, Result, ensure};
use rnic_driver::{ConnectOptions, Device, Error, Function, Options, RemoteRights, SendRequest};
use rnic_layout::path::Pmtu;
use rnic_layout::registers::{FatalCode, HostLimit};
use rnic_machine::function::{SharedWorld, two_cards};
use rnic_machine::host::HostOptions;
use rnic_machine::world::CardOptions;
use rnic_stimulus::chance::{Delay, Seed};
use rnic_workloads::cards;
use std::sync::Arc;
use std::time::Duration;
use verilator_sys::Model;

/// Limit of the host.
const LIMIT: Duration = Duration::from_micros(41);
/// Read latencies below the limit, and above it.
const SLOW: Duration = Duration::from_micros(35);
const LATE: Duration = Duration::from_micros(150);
/// Cycles of the core clock after the limit of the host within which the driver learns that the device has failed.
const SOON_CYCLES: u64 = 12_500;

/// Reads take so long from now on. The host reads its memory when it is asked, not when it answers.
fn slow(world: &SharedWorld, latency: Duration) {
    let read_latency = Delay::nanoseconds(latency.as_nanos() as u64);
    let host = HostOptions { read_latency, early_read: 1.0, ..HostOptions::IDEAL };
    lock(world).host_mut(0).set_options(host);
}

fn opened(function: &Arc<dyn Function>) -> Result<Device> {
    let options = Options { host_limit: LIMIT, ..cards::options(Seed(1), 0) };
    Ok(Device::open(Arc::clone(function), options)?)
}

/// Registers memory, and gives it back.
fn uses(device: &Device) -> Result<()> {
    let region = device.create_protection_domain()?.allocate(64)?;
    drop(region);
    ensure!(device.objects().regions == 0, "its end is confirmed");
    Ok(())
}

pub(crate) fn slow_reads(model: &Model, card: CardOptions) -> Result<()> {
    let options = CardOptions { host: HostOptions::IDEAL, ..card };
    let (world, functions) = two_cards(model, [options; 2], options.wire(), 1)?;
    let function = &functions[0];
    let clock_khz = (card.core.hertz / 1_000) as u32;
    let limit = HostLimit { limit: HostLimit::units(LIMIT.as_nanos() as u64, clock_khz) as u16 };
    let drain = HostLimit::nanoseconds(limit.drain_units(), clock_khz);
    let drain = Duration::from_nanos(drain);
    let soon = Duration::from_nanos(card.rates().cycles_ps(SOON_CYCLES) / 1_000);
    // A reset after the failure waits for less.
    let later = LIMIT + drain + 2 * soon;
    ensure!(SLOW < LIMIT && LIMIT < LATE && LATE < drain, "{drain:?}");

    // All reads are slow, and in time.
    let normal = Duration::from_nanos(100);
    slow(&world, SLOW);
    let device = opened(function).context("a slow host")?;
    uses(&device).context("a slow host")?;
    drop(device);

    for latency in [LATE, later] {
        slow(&world, normal);
        let device = opened(function)?;
        uses(&device)?;
        slow(&world, latency);
        let begin = function.now();
        let error = uses(&device).expect_err("the command is not read in time");
        let failed =
            matches!(error.downcast_ref(), Some(Error::DeviceFailed { code: FatalCode::HostReadError, .. }));
        ensure!(failed, "{latency:?}: {error:#}");
        ensure!(function.now() - begin < LIMIT + soon, "the driver learns it soon");
        drop(device);
        // A reset waits for the late answer, unless it comes too late for that, too.
        let waited = function.now() - begin;
        ensure!(waited < later, "{latency:?}: {waited:?}");
        ensure!(lock(&world).host(0).is_idle() == (latency < drain), "{latency:?}: after {waited:?}");
        while !lock(&world).host(0).is_idle() {
            function.idle();
        }
        slow(&world, normal);
        uses(&opened(function)?).with_context(|| format!("after {latency:?}"))?;
    }

    // The end of a queue pair waits for the read of its payload.
    let [near, far] = hosts::open(functions.clone(), Seed(2))?;
    let target = far.domain.share(1 << 12, RemoteRights::WRITE)?.remote();
    let ends = [near.queue_pair(RemoteRights::NONE)?, far.queue_pair(RemoteRights::WRITE)?];
    let [mut first, _second] = connect(ends, Pmtu::Bytes1024, &ConnectOptions::default())?;
    let payload = near.domain.allocate(1 << 12)?;
    slow(&world, SLOW);
    first.post_send(SendRequest::write(1, target).sge(payload))?;
    let end = function.now() + SLOW * 4 / 3;
    while function.now() < end {
        function.idle();
    }
    ensure!(lock(&world).host(0).in_flight().0 > 0, "the payload is being read");
    drop(first);
    near.poll()?;
    let objects = near.device.objects();
    ensure!(objects.queue_pairs == 0, "its end is confirmed: {objects:?}");
    Ok(())
}
