//! Queue pairs that fail in the middle of long messages: software fails one at a random time, and then the other one.
//!
//! How far messages have come by then is random, so the checks hold for any outcome: each request completes once and in order,
//! first the successful ones and then flushed ones; what has completed at the sender has arrived; what has arrived is what was
//! sent. Afterwards, queue pairs in the same slots of the card work normally.
use crate::hosts::{Host, TURNS_MAX, any_pmtu, connect, cut, open};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::{Error as Failed, ReadyToSend};
use rnic_driver::{
    Completion, ConnectOptions, Function, ProtectionDomain, QueuePair, ReceiveRequest, RemoteMemory,
    RemoteRights, SendRequest, SharedRegion,
};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_stimulus::chance::Seed;
use std::sync::Arc;

/// Busy pairs.
const PAIRS: usize = 4;
/// Maximum of bytes in flight of a host: the smallest receive buffer has room for them.
const BYTES: usize = 24 << 10;
/// Maximum of calls of `idle` before a queue pair is failed, in which all messages of a host may complete.
const IDLE_UNTIL: usize = 300;

/// A queue pair, before and after its failure.
enum Life {
    Ready(QueuePair<ReadyToSend>),
    Failed(#[expect(dead_code, reason = "it is kept, so that what is posted completes")] QueuePair<Failed>),
    Gone,
}

impl Life {
    fn fail(&mut self) -> Result<()> {
        *self = match std::mem::replace(self, Life::Gone) {
            Life::Ready(queue_pair) => Life::Failed(queue_pair.fail().map_err(rnic_driver::Error::from)?),
            other => other,
        };
        Ok(())
    }
}

/// A message.
struct Message {
    bytes: Vec<u8>,
    /// Offset of a WRITE in the peer's window.
    offset: Option<usize>,
}

/// One end of a pair.
struct End {
    life: Life,
    number: u32,
    messages: Vec<Message>,
    sends: Vec<Completion>,
    receives: Vec<Completion>,
    receives_posted: usize,
    window: SharedRegion,
}

/// Messages with random lengths and operations, of `bytes` bytes together.
fn messages(random: &mut ChaCha8Rng, mut bytes: usize) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut offset = 0;
    while bytes > 0 {
        let length = random.random_range(1..=bytes);
        bytes -= length;
        let is_write: bool = random.random();
        messages.push(Message {
            bytes: (0..length).map(|_| random.random()).collect(),
            offset: is_write.then_some(offset),
        });
        offset += length;
    }
    messages
}

impl End {
    /// Posts receives for the messages of the peer, in buffers that do not overlap.
    fn post_receives(&mut self, domain: &ProtectionDomain, peer: &[Message]) -> Result<()> {
        let Life::Ready(queue_pair) = &mut self.life else { return Ok(()) };
        let mut memory = Some(domain.allocate(BYTES + 64 * (peer.len() + 1))?);
        for message in peer.iter().filter(|message| message.offset.is_none()) {
            let piece = cut(&mut memory, 61, message.bytes.len())?;
            let request = ReceiveRequest::new(self.receives_posted as u64).sge(piece);
            queue_pair.post_receive(request)?;
            self.receives_posted += 1;
        }
        Ok(())
    }

    fn post_sends(&mut self, domain: &ProtectionDomain, remote: &RemoteMemory) -> Result<()> {
        let Life::Ready(queue_pair) = &mut self.life else { return Ok(()) };
        let mut memory = Some(domain.allocate(BYTES + 64 * (self.messages.len() + 1))?);
        let mut requests = Vec::new();
        for (wr_id, message) in (0..).zip(&self.messages) {
            let mut piece = cut(&mut memory, 43, message.bytes.len())?;
            piece.bytes_mut().copy_from_slice(&message.bytes);
            let bytes = message.bytes.len() as u64;
            let request = match message.offset {
                None => SendRequest::send(wr_id),
                Some(offset) => {
                    let address = remote.address + offset as u64;
                    SendRequest::write(wr_id, RemoteMemory { address, bytes, ..*remote })
                }
            };
            requests.push(request.sge(piece).signalled());
        }
        Ok(queue_pair.post_sends(&mut requests)?)
    }

    fn is_done(&self) -> bool {
        self.sends.len() == self.messages.len() && self.receives.len() == self.receives_posted
    }
}

/// Number of successful completions, which must come first; all others must be flushed.
fn done(completions: &[Completion]) -> Result<usize> {
    let is_good = |completion: &Completion| completion.status == CompletionStatus::Success;
    let count = completions.iter().take_while(|completion| is_good(completion)).count();
    for (place, completion) in completions.iter().enumerate() {
        ensure!(completion.wr_id == place as u64, "{completion:?} is number {place}");
        let is_flushed = completion.status == CompletionStatus::Flushed;
        ensure!(place < count || is_flushed, "{completion:?} follows a flushed one");
    }
    Ok(count)
}

/// Compares what `to` has received with what `from` has sent.
fn compare(from: &End, to: &End) -> Result<()> {
    let (sent, received) = (done(&from.sends)?, done(&to.receives)?);
    let sends = from.messages.iter().filter(|message| message.offset.is_none());
    for (message, completion) in sends.zip(&to.receives[..received]) {
        ensure!(*completion.sg_list[0].bytes() == *message.bytes, "{completion:?} holds something else");
        ensure!(completion.length as usize == message.bytes.len(), "{completion:?}");
    }
    let acknowledged = &from.messages[..sent];
    let sends = acknowledged.iter().filter(|message| message.offset.is_none()).count();
    ensure!(sends <= received, "{sends} messages were acknowledged, and {received} have arrived");
    for message in acknowledged {
        let Some(offset) = message.offset else { continue };
        let mut found = vec![0; message.bytes.len()];
        to.window.read(offset, &mut found)?;
        ensure!(found == message.bytes, "what was written at {offset} is something else");
    }
    Ok(())
}

fn poll(hosts: &[Host; 2], pairs: &mut [[End; 2]]) -> Result<()> {
    for (side, host) in hosts.iter().enumerate() {
        for completion in host.poll()? {
            let mut ends = pairs.iter_mut().map(|pair| &mut pair[side]);
            let end = ends.find(|end| end.number == completion.qp_number).context("an unknown queue pair")?;
            let list = if completion.is_receive() { &mut end.receives } else { &mut end.sends };
            list.push(completion);
        }
    }
    Ok(())
}

/// Connects pairs that send to each other, and fails them one after the other. Returns how many messages succeeded, and how
/// many were flushed.
fn round(hosts: &[Host; 2], random: &mut ChaCha8Rng) -> Result<[usize; 2]> {
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let [first, second] = hosts;
        let queue_pairs = [first.queue_pair(RemoteRights::WRITE)?, second.queue_pair(RemoteRights::WRITE)?];
        let [first, second] = connect(queue_pairs, any_pmtu(random), &ConnectOptions::default())?;
        let windows = hosts.each_ref().map(|host| host.domain.share(BYTES, RemoteRights::WRITE));
        let [first_window, second_window] = windows;
        let mut end = |queue_pair: QueuePair<ReadyToSend>, window: SharedRegion| End {
            number: queue_pair.number(),
            life: Life::Ready(queue_pair),
            messages: messages(random, BYTES / PAIRS),
            sends: Vec::new(),
            receives: Vec::new(),
            receives_posted: 0,
            window,
        };
        pairs.push([end(first, first_window?), end(second, second_window?)]);
    }
    for [first, second] in &mut pairs {
        first.post_receives(&hosts[0].domain, &second.messages)?;
        second.post_receives(&hosts[1].domain, &first.messages)?;
    }
    hosts[0].device.check()?;
    hosts[1].device.check()?;
    for [first, second] in &mut pairs {
        first.post_sends(&hosts[0].domain, &second.window.remote())?;
        second.post_sends(&hosts[1].domain, &first.window.remote())?;
    }
    let mut ends: Vec<(usize, usize)> = (0..PAIRS).flat_map(|pair| [(pair, 0), (pair, 1)]).collect();
    ends.shuffle(random);
    for (pair, side) in ends {
        for _ in 0..random.random_range(0..IDLE_UNTIL) / PAIRS {
            hosts[0].function.idle();
            poll(hosts, &mut pairs)?;
        }
        pairs[pair][side].life.fail()?;
    }
    let mut idle = 0;
    while !pairs.iter().flatten().all(End::is_done) {
        hosts[0].function.idle();
        poll(hosts, &mut pairs)?;
        idle += 1;
        ensure!(idle < TURNS_MAX, "something never completes");
    }
    let mut counts = [0; 2];
    for (index, [first, second]) in pairs.iter().enumerate() {
        let context = || format!("pair {index}");
        compare(first, second).with_context(context)?;
        compare(second, first).with_context(context)?;
        for end in [first, second] {
            let good = done(&end.sends)?;
            counts[0] += good;
            counts[1] += end.sends.len() - good;
        }
    }
    Ok(counts)
}

/// Opens two cards and runs the given number of rounds.
pub(crate) fn rounds(functions: [Arc<dyn Function>; 2], seed: Seed, rounds: usize) -> Result<[usize; 2]> {
    let hosts = open(functions, seed)?;
    let mut random = seed.stream("middle");
    let mut sum = [0; 2];
    for index in 0..rounds {
        let counts = round(&hosts, &mut random).with_context(|| format!("round {index}"))?;
        sum = [sum[0] + counts[0], sum[1] + counts[1]];
    }
    Ok(sum)
}
