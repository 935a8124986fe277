//! The objects of a client or of its peer, and what the two exchange.

use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::{Init, ReadyToSend};
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, ConnectionInfo, Device,
    ProtectionDomain, QueuePair, QueuePairOptions, ReceiveRequest, Region, RemoteMemory, RemoteRights,
    SendRequest, SharedReceiveQueue, SharedReceiveQueueOptions, SharedRegion,
};
use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

/// Receives of a side. A client posts fewer SENDs.
pub(crate) const RECEIVES: usize = 24;
/// Length of each receive.
const RECEIVE_BYTES: usize = 1500;
/// Bytes that a peer may write and read. Greetings have the first part, transfers the rest.
const WINDOW_BYTES: usize = 8 << 10;
const GREETING_BYTES: usize = 400;
/// Transfers of one end that are under way when a client ends.
const TRANSFERS: usize = 8;
/// Length of the longest of them.
const TRANSFER_BYTES: usize = 2000;

/// What a peer needs to connect and to access the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Invitation {
    pub(crate) info: ConnectionInfo,
    pub(crate) window: RemoteMemory,
}

impl Invitation {
    /// As a line of text.
    pub(crate) fn to_line(self) -> String {
        let hex: String = self.info.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let RemoteMemory { address, key, bytes } = self.window;
        format!("{hex} {address} {key} {bytes}")
    }

    pub(crate) fn from_line(line: &str) -> Result<Self> {
        let parts: Vec<&str> = line.split(' ').collect();
        let &[hex, address, key, bytes] = &parts[..] else { anyhow::bail!("{line:?} is no invitation") };
        let byte = |at: usize| u8::from_str_radix(hex.get(2 * at..2 * at + 2).unwrap_or(""), 16);
        let info: Vec<u8> = (0..ConnectionInfo::BYTES).map(byte).collect::<Result<_, _>>()?;
        let info = ConnectionInfo::from_bytes(info.try_into().ok().context("its length is that of an info")?);
        let window = RemoteMemory { address: address.parse()?, key: key.parse()?, bytes: bytes.parse()? };
        Ok(Self { info: info.context("an illegal path MTU")?, window })
    }
}

/// Bytes that tell a place and a client from all others.
fn pattern(salt: u64) -> Vec<u8> {
    (0..GREETING_BYTES as u64).map(|place| (place * 31 + place / 251 + salt * 77 + 1) as u8).collect()
}

/// Cuts `bytes` bytes off the front of memory.
fn cut(memory: &mut Option<Region>, bytes: usize) -> Result<Region> {
    let whole = memory.take().context("the memory has a rest")?;
    let (piece, rest) = whole.split_at(bytes).ok().context("the memory has room")?;
    *memory = Some(rest);
    Ok(piece)
}

/// Requests for receives, which are numbered from 0 on.
fn receives(domain: &ProtectionDomain) -> Result<Vec<ReceiveRequest>> {
    let mut memory = Some(domain.allocate(RECEIVES * RECEIVE_BYTES)?);
    let request = |wr_id| Ok(ReceiveRequest::new(wr_id as u64).sge(cut(&mut memory, RECEIVE_BYTES)?));
    (0..RECEIVES).map(request).collect()
}

/// An object of a client, and the name of its kind.
pub(crate) type Object = (&'static str, Box<dyn Any>);

/// What one side has besides its queue pair.
pub(crate) struct Side {
    pub(crate) device: Device,
    domain: ProtectionDomain,
    window: SharedRegion,
    completions: CompletionQueue,
    /// Receives are in an SRQ. Otherwise they are in the queue pair.
    shared: Option<SharedReceiveQueue>,
    /// Bound of each wait, on the clock of the card.
    patience: Duration,
}

impl Side {
    pub(crate) fn new(device: &Device, has_srq: bool, patience: Duration) -> Result<Self> {
        let domain = device.create_protection_domain()?;
        let options = CompletionQueueOptions { entries_log2: 8, ..CompletionQueueOptions::default() };
        let completions = device.create_completion_queue(&device.events(), &options)?;
        let window = domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
        let shared = if has_srq {
            let queue = domain.create_shared_receive_queue(&SharedReceiveQueueOptions::default())?;
            queue.post_receives(&mut receives(&domain)?)?;
            Some(queue)
        } else {
            None
        };
        Ok(Self { device: device.clone(), domain, window, completions, shared, patience })
    }

    /// Makes a queue pair for a client.
    pub(crate) fn queue_pair(&self) -> Result<QueuePair<Init>> {
        let (queue, options) = (&self.completions, QueuePairOptions::default());
        let queue_pair = match &self.shared {
            Some(shared) => self.domain.create_queue_pair_with_srq(queue, queue, shared, &options)?,
            None => self.domain.create_queue_pair(queue, queue, &options)?,
        };
        Ok(queue_pair.initialize(RemoteRights::ALL).map_err(rnic_driver::Error::from)?)
    }

    pub(crate) fn invitation(&self, queue_pair: &QueuePair<Init>) -> Result<Invitation> {
        Ok(Invitation { info: queue_pair.info(0)?, window: self.window.remote() })
    }

    pub(crate) fn connect(
        &self,
        mut queue_pair: QueuePair<Init>,
        peer: &Invitation,
    ) -> Result<QueuePair<ReadyToSend>> {
        if self.shared.is_none() {
            for request in receives(&self.domain)? {
                queue_pair.post_receive(request)?;
            }
        }
        Ok(queue_pair.connect(&peer.info, &ConnectOptions::default())?)
    }

    /// Posts a WRITE to the peer's window, a READ of the same bytes, and a SEND.
    pub(crate) fn greet(
        &self,
        queue_pair: &mut QueuePair<ReadyToSend>,
        peer: &Invitation,
        salt: u64,
    ) -> Result<()> {
        let mut memory = Some(self.domain.allocate(3 * GREETING_BYTES)?);
        let mut pieces = Vec::new();
        for _ in 0..3 {
            pieces.push(cut(&mut memory, GREETING_BYTES)?);
        }
        pieces[0].bytes_mut().copy_from_slice(&pattern(salt));
        pieces[2].bytes_mut().copy_from_slice(&pattern(salt));
        let remote = RemoteMemory { bytes: GREETING_BYTES as u64, ..peer.window };
        let requests =
            [SendRequest::write(0, remote), SendRequest::read(1, remote), SendRequest::send(2).signalled()];
        let mut requests: Vec<SendRequest> =
            requests.into_iter().zip(pieces).map(|(request, piece)| request.sge(piece)).collect();
        queue_pair.post_sends(&mut requests)?;
        Ok(())
    }

    /// Waits until the greetings of both sides are done, and checks them.
    pub(crate) fn expect_greeting(&self, own_salt: u64, peer_salt: u64) -> Result<()> {
        let mut message = None;
        let mut read = None;
        let mut count = 0;
        while count < 4 {
            let done = self.completions.spin(self.patience)?;
            let done = done.with_context(|| format!("{count} completions of a greeting instead of 4"))?;
            ensure!(done.is_success(), "a greeting fails: {done:?}");
            count += 1;
            match (done.is_receive(), done.wr_id) {
                (true, _) => {
                    message = Some(done.message());
                    self.post_again(done)?;
                }
                (false, 1) => read = done.sg_list.first().map(|memory| memory.bytes().to_vec()),
                (false, _) => {}
            }
        }
        ensure!(message == Some(pattern(peer_salt)), "the message of client {peer_salt} is another one");
        ensure!(read == Some(pattern(own_salt)), "what {own_salt} has written is read as something else");
        Ok(())
    }

    /// Posts transfers of all kinds, and waits for none of them.
    pub(crate) fn transfer(
        &self,
        queue_pair: &mut QueuePair<ReadyToSend>,
        peer: &Invitation,
        random: &mut ChaCha8Rng,
    ) -> Result<()> {
        let mut memory = Some(self.domain.allocate(TRANSFERS * TRANSFER_BYTES)?);
        let mut requests = Vec::new();
        for wr_id in 0..TRANSFERS as u64 {
            let bytes = random.random_range(1..=TRANSFER_BYTES);
            let offset = random.random_range(GREETING_BYTES.next_multiple_of(8)..=WINDOW_BYTES - bytes);
            let address = peer.window.address + offset as u64;
            let remote = RemoteMemory { address, bytes: bytes as u64, ..peer.window };
            let (request, bytes) = match random.random_range(0..4) {
                0 => (SendRequest::send(wr_id), bytes.min(RECEIVE_BYTES)),
                1 => (SendRequest::write(wr_id, remote), bytes),
                2 => (SendRequest::read(wr_id, remote), bytes),
                _ => {
                    let cell = RemoteMemory { address: address & !7, bytes: 8, ..remote };
                    (SendRequest::fetch_add(wr_id, cell, 1), 8)
                }
            };
            let request = request.sge(cut(&mut memory, bytes)?);
            requests.push(if random.random_bool(0.3) { request.signalled() } else { request });
        }
        queue_pair.post_sends(&mut requests)?;
        Ok(())
    }

    /// Polls once. Returns what has completed.
    pub(crate) fn poll(&self) -> Result<Vec<Completion>> {
        let mut completions = Vec::new();
        self.completions.poll(&mut completions, usize::MAX)?;
        Ok(completions)
    }

    /// Posts a message for each receive of the peer.
    pub(crate) fn send_to_all_receives(&self, queue_pair: &mut QueuePair<ReadyToSend>) -> Result<()> {
        let request = |wr_id| SendRequest::send(wr_id).inline(b"a receive").signalled();
        queue_pair.post_sends(&mut (0..RECEIVES as u64).map(request).collect())?;
        Ok(())
    }

    /// Waits for messages, one for each receive of the SRQ: the card must have each of them.
    pub(crate) fn expect_all_receives(&self) -> Result<()> {
        let mut taken = BTreeMap::new();
        while taken.len() < RECEIVES
            && let Some(done) = self.completions.spin(self.patience)?
        {
            ensure!(done.is_success() && done.is_receive(), "{done:?}");
            taken.insert(done.wr_id, done);
        }
        let missing: Vec<u64> = (0..RECEIVES as u64).filter(|wr_id| !taken.contains_key(wr_id)).collect();
        ensure!(missing.is_empty(), "receives that are posted to the SRQ are never taken: {missing:?}");
        taken.into_values().try_for_each(|done| self.post_again(done))
    }

    /// Posts the receive of a completion to the SRQ again.
    fn post_again(&self, done: Completion) -> Result<()> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let mut request = ReceiveRequest::new(done.wr_id);
        request = done.sg_list.into_iter().fold(request, ReceiveRequest::sge);
        Ok(shared.post_receive(request)?)
    }

    /// The queue pair of a client has ended: takes what has completed, and posts the receives among it again.
    pub(crate) fn settle(&self) -> Result<()> {
        loop {
            let completions = self.poll()?;
            if completions.is_empty() {
                break;
            }
            completions
                .into_iter()
                .filter(Completion::is_receive)
                .try_for_each(|done| self.post_again(done))?;
        }
        while self.device.events().poll()?.is_some() {}
        let posted = self.shared.as_ref().map_or(0, SharedReceiveQueue::in_flight);
        ensure!(posted == RECEIVES, "{posted} receives of the SRQ are posted instead of {RECEIVES}");
        Ok(self.device.check()?)
    }

    /// Takes a receive out of the SRQ that is never posted again: a leak, to see it found. `queue_pair` is that of a peer, which
    /// sends a message for it.
    pub(crate) fn lose_receive(&self, peer: &Side, queue_pair: &mut QueuePair<ReadyToSend>) -> Result<()> {
        let request = SendRequest::send(0).inline(b"lost").signalled();
        queue_pair.post_send(request)?;
        for side in [self, peer] {
            side.completions.spin(side.patience)?.context("the message")?;
        }
        Ok(())
    }

    /// The objects, by their kind. They end in any order.
    pub(crate) fn into_objects(self) -> Vec<Object> {
        let Self { domain, window, completions, shared, .. } = self;
        vec![
            ("protection domains", Box::new(domain)),
            ("regions", Box::new(window)),
            ("completion queues", Box::new(completions)),
            ("shared receive queues", Box::new(shared)),
        ]
    }
}
