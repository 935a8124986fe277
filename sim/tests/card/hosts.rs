//! Two hosts, each with a card and its driver, and helpers for tests on them.
use anyhow::{Context, Result, bail};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::{Init, ReadyToSend};
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, ConnectionInfo, Device, Function,
    Path, ProtectionDomain, QueuePair, QueuePairOptions, Region, RemoteRights,
};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::PSN_COUNT;
use rnic_stimulus::chance::Seed;
use rnic_workloads::cards;
use std::cell::Cell;
use std::sync::Arc;

/// Turns within which an expected event must happen.
pub(crate) const TURNS_MAX: usize = 20_000;

/// A host.
pub(crate) struct Host {
    pub(crate) device: Device,
    pub(crate) queue: CompletionQueue,
    pub(crate) domain: ProtectionDomain,
    pub(crate) function: Arc<dyn Function>,
    /// Queue pairs that were created.
    queue_pairs: Cell<u32>,
}

impl Host {
    fn new(function: Arc<dyn Function>, seed: Seed, side: usize) -> Result<Host> {
        let device = Device::open(function.clone(), cards::options(seed, side))?;
        let queue = device.create_completion_queue(&device.events(), &CompletionQueueOptions::default())?;
        let domain = device.create_protection_domain()?;
        Ok(Host { device, queue, domain, function, queue_pairs: Cell::new(side as u32) })
    }

    /// Options of the next queue pair. Of every three, one begins at the last PSN, and one shortly before the PSNs wrap around.
    pub(crate) fn options(&self) -> QueuePairOptions {
        let count = self.queue_pairs.replace(self.queue_pairs.get() + 1);
        let first_psn = [None, Some(PSN_COUNT - 1), Some(PSN_COUNT - 3)][count as usize % 3];
        QueuePairOptions { first_psn, ..QueuePairOptions::default() }
    }

    /// Creates a queue pair in INIT.
    pub(crate) fn queue_pair(&self, rights: RemoteRights) -> Result<QueuePair<Init>> {
        let options = self.options();
        let queue_pair = self.domain.create_queue_pair(&self.queue, &self.queue, &options)?;
        Ok(queue_pair.initialize(rights).map_err(rnic_driver::Error::from)?)
    }

    /// Polls all completions.
    pub(crate) fn poll(&self) -> Result<Vec<Completion>> {
        let mut completions = Vec::new();
        self.queue.poll(&mut completions, usize::MAX)?;
        Ok(completions)
    }
}

/// Opens both cards.
pub(crate) fn open(functions: [Arc<dyn Function>; 2], seed: Seed) -> Result<[Host; 2]> {
    let [first, second] = functions;
    Ok([Host::new(first, seed, 0)?, Host::new(second, seed, 1)?])
}

/// Connects two queue pairs, over IPv6 if the QPN of the first is odd, with a DSCP, a flow label and mostly a VLAN tag that differ
/// in the two directions.
pub(crate) fn connect(
    [first, second]: [QueuePair<Init>; 2],
    pmtu: Pmtu,
    options: &ConnectOptions,
) -> Result<[QueuePair<ReadyToSend>; 2]> {
    let version = first.number() % 2;
    let infos = [first.info(version as usize)?, second.info(version as usize)?];
    let [from, to] = infos.map(|info| ConnectionInfo { path_mtu: pmtu, ..info });
    let options = |peer: &ConnectionInfo| {
        let number = peer.qp_number;
        let path = Path {
            source_index: version as u8,
            vlan: (!number.is_multiple_of(8)).then_some(0x6000 | (number % 4094 + 1) as u16),
            traffic_class: ((number % 63 + 1) << 2) as u8,
            flow_label: number % 0xf_ffff + 1,
            ..Path::new(peer.gid, peer.mac)
        };
        ConnectOptions { path: Some(path), ..*options }
    };
    Ok([first.connect(&to, &options(&to))?, second.connect(&from, &options(&from))?])
}

/// Any PMTU.
pub(crate) fn any_pmtu(random: &mut ChaCha8Rng) -> Pmtu {
    Pmtu::ALL[random.random_range(0..Pmtu::ALL.len())]
}

/// Splits a buffer off the front of a region, after a gap.
pub(crate) fn cut(rest: &mut Option<Region>, gap: usize, bytes: usize) -> Result<Region> {
    let split = |region: Region, at: usize| region.split_at(at).ok().context("memory is short");
    let (_, tail) = split(rest.take().context("memory is short")?, gap)?;
    let (taken, tail) = split(tail, bytes)?;
    *rest = Some(tail);
    Ok(taken)
}

/// A test that runs in turns.
pub(crate) trait Turns {
    /// Processes completions and events, and advances time.
    fn turn(&mut self) -> Result<()>;

    /// Takes turns until a condition holds.
    fn turn_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<()> {
        for _ in 0..TURNS_MAX {
            if done(self) {
                return Ok(());
            }
            self.turn()?;
        }
        bail!("{what}: the run has stalled")
    }

    /// Takes this many turns.
    fn turn_times(&mut self, count: usize) -> Result<()> {
        (0..count).try_for_each(|_| self.turn())
    }
}
