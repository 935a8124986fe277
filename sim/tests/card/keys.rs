//! Keys that end: by a request of this host, and by a SEND of the peer.
//!
//! Each round connects one pair. The first host writes to memory of the second and reads from it until its key ends, and must find
//! it dead behind that; a key that may not be ended fails who has asked for it.
use anyhow::{Result, bail, ensure};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, ConnectionInfo, Device, Function,
    ProtectionDomain, QueuePair, QueuePairOptions, ReceiveRequest, RemoteRights, SendRequest, SharedRegion,
};
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_sim::chance::Seed;
use rnic_sim::operations::cards;
use std::sync::Arc;

/// Bytes of the memory whose key ends.
const BYTES: usize = 8192;
/// Calls of `idle` within which something happens.
const IDLE_MAX: usize = 20_000;

/// What ends a round.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// A SEND of the peer ends the key, and a WRITE comes behind it.
    Peer,
    /// The owner ends the key behind SENDs of its own, and a WRITE comes later.
    Owner,
    /// The peer names a key that is not to be ended.
    PeerWrong,
    /// The owner does.
    OwnerWrong,
}

struct Host {
    device: Device,
    queue: CompletionQueue,
    domain: ProtectionDomain,
    /// What has completed and was not looked at.
    completions: Vec<Completion>,
}

struct Run<'a> {
    hosts: [Host; 2],
    clock: &'a dyn Function,
    random: ChaCha8Rng,
    /// Of the pair that is under way.
    ends: Vec<QueuePair<ReadyToSend>>,
}

impl Run<'_> {
    fn connect(&mut self) -> Result<()> {
        self.ends.clear();
        let pmtu = Pmtu::ALL[self.random.random_range(0..Pmtu::ALL.len())];
        let made = self.hosts.each_ref().map(|host| -> Result<_> {
            let pair =
                host.domain.create_queue_pair(&host.queue, &host.queue, &QueuePairOptions::default())?;
            Ok(pair.initialize(RemoteRights::ALL).map_err(rnic_driver::Error::from)?)
        });
        let [first, second] = made;
        let (first, second) = (first?, second?);
        let infos = [first.info(0)?, second.info(0)?].map(|info| ConnectionInfo { path_mtu: pmtu, ..info });
        let options = ConnectOptions::default();
        self.ends = vec![first.connect(&infos[1], &options)?, second.connect(&infos[0], &options)?];
        for side in 0..2 {
            for tag in 0..8 {
                let piece = self.hosts[side].domain.allocate(256)?;
                let refused = self.ends[side].post_receive(ReceiveRequest::new(tag).piece(piece));
                refused.map_err(|refused| refused.reason)?;
            }
            self.hosts[side].device.check()?;
        }
        Ok(())
    }

    fn post(&mut self, side: usize, request: SendRequest) -> Result<()> {
        Ok(self.ends[side].post_send(request).map_err(|refused| refused.reason)?)
    }

    /// The next completion of a host that is of this kind.
    fn completion(&mut self, side: usize, is_receive: bool) -> Result<Completion> {
        for _ in 0..IDLE_MAX {
            let host = &mut self.hosts[side];
            host.queue.poll(&mut host.completions, usize::MAX)?;
            let number = self.ends[side].number();
            let is_it = |one: &Completion| one.is_receive() == is_receive && one.qp_number == number;
            if let Some(place) = host.completions.iter().position(is_it) {
                return Ok(host.completions.remove(place));
            }
            self.clock.idle();
        }
        bail!("nothing completes at host {side}")
    }

    fn memory(&mut self, side: usize, bytes: &[u8]) -> Result<rnic_driver::Region> {
        let mut piece = self.hosts[side].domain.allocate(bytes.len())?;
        piece.bytes_mut().copy_from_slice(bytes);
        Ok(piece)
    }

    /// The first host finds the key dead, and so do events.
    fn is_dead(&mut self, region: &SharedRegion) -> Result<()> {
        let mut before = vec![0; BYTES];
        region.read(0, &mut before)?;
        let piece = self.memory(0, &[0x77; 64])?;
        self.post(0, SendRequest::write(90, region.remote()).piece(piece).signalled())?;
        let completion = self.completion(0, false)?;
        ensure!(completion.status == CompletionStatus::RemoteAccess, "{completion:?}");
        self.event(1, AsyncEvent::QueuePairAccessError)?;
        let mut after = vec![0; BYTES];
        region.read(0, &mut after)?;
        ensure!(before == after, "a dead key was written by");
        Ok(())
    }

    fn event(&mut self, side: usize, code: AsyncEvent) -> Result<()> {
        for _ in 0..IDLE_MAX {
            if let Some(event) = self.hosts[side].device.events().poll()? {
                let number = self.ends[side].number();
                ensure!(event.code == code && event.object_number == number, "{event:?}");
                return Ok(());
            }
            self.clock.idle();
        }
        bail!("no event at host {side}")
    }

    fn round(&mut self, end: End) -> Result<()> {
        self.connect()?;
        let region = self.hosts[1].domain.share_invalidatable(BYTES, RemoteRights::ALL)?;
        let lasting = self.hosts[1].domain.share(BYTES, RemoteRights::ALL)?;
        let bytes: Vec<u8> = (0..self.random.random_range(1..=BYTES)).map(|_| self.random.random()).collect();
        let piece = self.memory(0, &bytes)?;
        let key = region.remote().key;
        self.post(0, SendRequest::write(1, region.remote()).piece(piece))?;
        match end {
            End::Peer => {
                self.post(0, SendRequest::send_invalidate(2, key).inline(b"done").signalled())?;
                let received = self.completion(1, true)?;
                ensure!(received.invalidated == Some(key) && received.immediate.is_none(), "{received:?}");
                ensure!(received.message() == b"done", "{received:?}");
                let mut placed = vec![0; bytes.len()];
                region.read(0, &mut placed)?;
                ensure!(placed == bytes, "what came before the end of the key");
                ensure!(self.completion(0, false)?.is_success());
                ensure!(self.completion(0, false)?.is_success());
                self.is_dead(&region)
            }
            End::Owner => {
                self.post(0, SendRequest::send(2).inline(b"go").signalled())?;
                ensure!(self.completion(1, true)?.message() == b"go");
                for tag in 0..self.random.random_range(0..4) {
                    self.post(1, SendRequest::send(tag).inline(&[0x55; 40]))?;
                }
                self.post(1, SendRequest::local_invalidate(9, key).signalled())?;
                self.post(1, SendRequest::send(10).inline(b"dead").signalled())?;
                loop {
                    let completion = self.completion(1, false)?;
                    ensure!(completion.is_success(), "{completion:?}");
                    if completion.tag == 9 {
                        ensure!(completion.opcode == CompletionOpcode::LocalInvalidate, "{completion:?}");
                        break;
                    }
                }
                while self.completion(0, true)?.message() != b"dead" {}
                ensure!(self.completion(0, false)?.is_success());
                ensure!(self.completion(0, false)?.is_success());
                self.is_dead(&region)
            }
            End::PeerWrong => {
                let wrong = if self.random.random() { lasting.remote().key } else { key ^ 1 };
                self.post(0, SendRequest::send_invalidate(2, wrong).inline(b"done").signalled())?;
                ensure!(self.completion(0, false)?.is_success());
                let completion = self.completion(0, false)?;
                ensure!(completion.status == CompletionStatus::RemoteAccess, "{completion:?}");
                let received = self.completion(1, true)?;
                ensure!(received.status == CompletionStatus::RemoteAccess, "{received:?}");
                Ok(())
            }
            End::OwnerWrong => {
                let wrong = if self.random.random() { lasting.remote().key } else { key ^ 0x100 };
                self.post(1, SendRequest::local_invalidate(9, wrong))?;
                self.post(1, SendRequest::send(10).inline(b"never"))?;
                let completion = self.completion(1, false)?;
                ensure!(completion.status == CompletionStatus::LocalQueuePairOperation, "{completion:?}");
                ensure!(self.completion(1, false)?.status == CompletionStatus::Flushed);
                Ok(())
            }
        }
    }
}

/// Opens two cards and runs so many rounds.
pub(crate) fn rounds(functions: [Arc<dyn Function>; 2], seed: Seed, count: usize) -> Result<()> {
    let clock = functions[0].clone();
    let open = |function: Arc<dyn Function>, side: usize| -> Result<Host> {
        let device = Device::open(function, cards::options(seed, side))?;
        let queue = device.create_completion_queue(&device.events(), &CompletionQueueOptions::default())?;
        let domain = device.create_domain()?;
        Ok(Host { device, queue, domain, completions: Vec::new() })
    };
    let [first, second] = functions;
    let hosts = [open(first, 0)?, open(second, 1)?];
    let mut run = Run { hosts, clock: &*clock, random: seed.stream("keys"), ends: Vec::new() };
    for round in 0..count {
        let end = [End::Peer, End::Owner, End::PeerWrong, End::OwnerWrong][round % 4];
        run.round(end).map_err(|error| error.context(format!("round {round}, {end:?}")))?;
    }
    Ok(())
}
