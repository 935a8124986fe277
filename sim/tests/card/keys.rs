//! Keys that are invalidated: by a request of their owner, and by a SEND of the peer.
//!
//! Each round connects one pair. The first host writes to memory of the second and reads from it until its key is invalidated,
//! after which the key must be refused; invalidating a key for which that is not allowed fails the requester.
use crate::hosts::{Host, TURNS_MAX, any_pmtu, connect, open};
use anyhow::{Result, bail, ensure};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Completion, ConnectOptions, Function, QueuePair, ReceiveRequest, RemoteRights, SendRequest, SharedRegion,
};
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_stimulus::chance::Seed;
use std::sync::Arc;

/// Length of the memory whose key is invalidated.
const BYTES: usize = 8192;

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// A SEND of the peer invalidates the key, and a WRITE follows it.
    Peer,
    /// The owner invalidates the key after SENDs of its own, and a WRITE follows later.
    Owner,
    /// The peer names a key that may not be invalidated.
    PeerWrong,
    /// The owner does.
    OwnerWrong,
}

struct Run {
    hosts: [Host; 2],
    /// Completions that were polled and not processed.
    completions: [Vec<Completion>; 2],
    random: ChaCha8Rng,
    /// Queue pairs of the current pair.
    ends: Vec<QueuePair<ReadyToSend>>,
}

impl Run {
    fn connect(&mut self) -> Result<()> {
        self.ends.clear();
        let pmtu = any_pmtu(&mut self.random);
        let [first, second] = &self.hosts;
        let pairs = [first.queue_pair(RemoteRights::ALL)?, second.queue_pair(RemoteRights::ALL)?];
        self.ends = connect(pairs, pmtu, &ConnectOptions::default())?.into();
        for side in 0..2 {
            for wr_id in 0..8 {
                let piece = self.hosts[side].domain.allocate(256)?;
                self.ends[side].post_receive(ReceiveRequest::new(wr_id).sge(piece))?;
            }
            self.hosts[side].device.check()?;
        }
        Ok(())
    }

    fn post(&mut self, side: usize, request: SendRequest) -> Result<()> {
        Ok(self.ends[side].post_send(request)?)
    }

    /// Next completion of a host, which must be of this kind.
    fn completion(&mut self, side: usize, is_receive: bool) -> Result<Completion> {
        for _ in 0..TURNS_MAX {
            let completions = &mut self.completions[side];
            completions.extend(self.hosts[side].poll()?);
            let number = self.ends[side].number();
            let is_it = |one: &Completion| one.is_receive() == is_receive && one.qp_number == number;
            if let Some(place) = completions.iter().position(is_it) {
                return Ok(completions.remove(place));
            }
            self.hosts[0].function.idle();
        }
        bail!("nothing completes at host {side}")
    }

    fn memory(&mut self, side: usize, bytes: &[u8]) -> Result<rnic_driver::Region> {
        let mut piece = self.hosts[side].domain.allocate(bytes.len())?;
        piece.bytes_mut().copy_from_slice(bytes);
        Ok(piece)
    }

    /// Checks by a WRITE and its events that the key is invalid.
    fn is_dead(&mut self, region: &SharedRegion) -> Result<()> {
        let mut before = vec![0; BYTES];
        region.read(0, &mut before)?;
        let piece = self.memory(0, &[0x77; 64])?;
        self.post(0, SendRequest::write(90, region.remote()).sge(piece).signalled())?;
        let completion = self.completion(0, false)?;
        ensure!(completion.status == CompletionStatus::RemoteAccess, "{completion:?}");
        self.event(1, AsyncEvent::QueuePairAccessError)?;
        let mut after = vec![0; BYTES];
        region.read(0, &mut after)?;
        ensure!(before == after, "an invalid key was accepted");
        Ok(())
    }

    fn event(&mut self, side: usize, code: AsyncEvent) -> Result<()> {
        for _ in 0..TURNS_MAX {
            if let Some(event) = self.hosts[side].device.events().poll()? {
                let number = self.ends[side].number();
                ensure!(event.code == code && event.object_number == number, "{event:?}");
                return Ok(());
            }
            self.hosts[0].function.idle();
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
        self.post(0, SendRequest::write(1, region.remote()).sge(piece))?;
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
                for wr_id in 0..self.random.random_range(0..4) {
                    self.post(1, SendRequest::send(wr_id).inline(&[0x55; 40]))?;
                }
                self.post(1, SendRequest::local_invalidate(9, key).signalled())?;
                self.post(1, SendRequest::send(10).inline(b"dead").signalled())?;
                loop {
                    let completion = self.completion(1, false)?;
                    ensure!(completion.is_success(), "{completion:?}");
                    if completion.wr_id == 9 {
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
                let behind = self.random.random_range(1..8);
                for wr_id in 10..10 + behind {
                    self.post(1, SendRequest::send(wr_id).inline(b"never"))?;
                }
                let completion = self.completion(1, false)?;
                ensure!(completion.status == CompletionStatus::LocalQueuePairOperation, "{completion:?}");
                for _ in 0..behind {
                    ensure!(self.completion(1, false)?.status == CompletionStatus::Flushed);
                }
                // What is flushed was not sent.
                for _ in 0..32 {
                    self.completions[0].extend(self.hosts[0].poll()?);
                    self.hosts[0].function.idle();
                }
                let number = self.ends[0].number();
                let is_sent =
                    |one: &&Completion| one.qp_number == number && one.is_receive() && one.is_success();
                let received = self.completions[0].iter().find(is_sent);
                ensure!(received.is_none(), "{received:?}");
                Ok(())
            }
        }
    }
}

/// Opens two cards and runs this many rounds.
pub(crate) fn rounds(functions: [Arc<dyn Function>; 2], seed: Seed, count: usize) -> Result<()> {
    let hosts = open(functions, seed)?;
    let mut run =
        Run { hosts, completions: Default::default(), random: seed.stream("keys"), ends: Vec::new() };
    for round in 0..count {
        let end = [End::Peer, End::Owner, End::PeerWrong, End::OwnerWrong][round % 4];
        run.round(end).map_err(|error| error.context(format!("round {round}, {end:?}")))?;
    }
    Ok(())
}
