//! Packets that the wire loses, with the card as requester: it goes back to the first missing PSN, fetches WQEs and payload again,
//! and every message is executed and completed once and in order (protocol 2.5, 2.6, 2.8).
//!
//! First no PSN is lost twice, and no acknowledgement, so that no timer is needed; then anything is lost, doubled and swapped, and the
//! peer has no receives for a while.
use crate::rig::{Faults, IPV4, IPV6, PEER_FIRST, PEER_KEY, Rig, ensure_same};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{QueuePair, Region, RemoteMemory, RemoteRights, SendRequest};
use rnic_endpoint::memory::Sge as PeerSge;
use rnic_endpoint::qp::ReceiveWqe;
use rnic_layout::opcode::{Operation, Transport};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::registers::REG_TIMER_UNIT;
use rnic_layout::wire::{ExtendedRepr, PacketRepr};
use rnic_machine::host::Bar as Window;
use rnic_stimulus::chance::Seed;
use std::collections::{BTreeMap, BTreeSet};

/// QPN of the endpoint's side.
const PEER: u32 = 0x35;
/// Requests of a batch.
const REQUESTS: u64 = 40;
/// Most bytes of a message.
const BYTES_MAX: usize = 40_000;
/// Bytes of the endpoint's memory that are written and read.
const WINDOW_BYTES: usize = 0x2_0000;
/// Where the endpoint receives, and bytes for each receive.
const ROOM: u64 = 0x2_0000;
const ROOM_BYTES: u64 = 0x1_0000;
/// Cycles of 4 ns in a unit of the timers, and the timeout: T is 131 us, since the peer answers all READs that were asked for twice.
const UNIT: u64 = 16;
const TIMEOUT: u8 = 11;
/// Tenths of a microsecond in which a batch must end.
const IDLES_MAX: usize = 60_000;
/// The word that atomics add to.
const WORD: usize = WINDOW_BYTES - 8;

/// Packets that are lost at the endpoint's port: requests and data at random. Each PSN is lost once, a request only when it is
/// first sent, and no acknowledgement, so that the next packet shows what was lost.
struct Losses {
    random: ChaCha8Rng,
    probability: f64,
    pmtu: Pmtu,
    queue_pairs: [u32; 2],
    /// PSN of the newest request, or of the last response to it.
    newest: Option<Psn>,
    lost: BTreeSet<u32>,
}

impl Losses {
    /// Loses requests to the first of these queue pairs, and responses to the second.
    fn new(seed: u64, probability: f64, pmtu: Pmtu, queue_pairs: [u32; 2]) -> Losses {
        let random = Seed(seed).stream("losses");
        Losses { random, probability, pmtu, queue_pairs, newest: None, lost: BTreeSet::new() }
    }

    fn loses(&mut self, frame: &[u8]) -> bool {
        let Ok(packet) = PacketRepr::parse(frame) else { return false };
        let psn = packet.bth.psn;
        let is_acknowledge = packet.bth.opcode == Transport::Rc.base() | Operation::Acknowledge.code();
        if !self.queue_pairs.contains(&packet.bth.destination_qp) || is_acknowledge {
            return false;
        }
        if packet.bth.destination_qp == self.queue_pairs[0] {
            if self.newest.is_some_and(|newest| !psn.is_after(newest)) {
                return false;
            }
            let read = packet.bth.opcode == Transport::Rc.base() | Operation::ReadRequest.code();
            let length = packet.extended_headers().find_map(|header| match header {
                ExtendedRepr::Reth(reth) if read => Some(reth.dma_length),
                _ => None,
            });
            self.newest = Some(psn.add(length.unwrap_or(0).div_ceil(self.pmtu.bytes()).saturating_sub(1)));
        }
        self.random.random_bool(self.probability) && self.lost.insert(psn.value())
    }
}

impl Faults for Losses {
    fn pass(&mut self, frame: &[u8], _is_received: bool) -> Vec<Vec<u8>> {
        if self.loses(frame) { vec![] } else { vec![frame.to_vec()] }
    }
}

/// A wire that loses, doubles and swaps frames of two queue pairs, in both directions.
struct Chaos {
    random: ChaCha8Rng,
    /// Probabilities.
    loses: f64,
    doubles: f64,
    swaps: f64,
    queue_pairs: [u32; 2],
    /// A frame that comes after the next one, sent and received.
    held: [Option<Vec<u8>>; 2],
}

impl Faults for Chaos {
    fn pass(&mut self, frame: &[u8], is_received: bool) -> Vec<Vec<u8>> {
        let is_concerned = PacketRepr::parse(frame)
            .is_ok_and(|packet| self.queue_pairs.contains(&packet.bth.destination_qp));
        if !is_concerned {
            return vec![frame.to_vec()];
        }
        if self.random.random_bool(self.loses) {
            return vec![];
        }
        let mut frames = vec![frame.to_vec()];
        if self.random.random_bool(self.doubles) {
            frames.push(frame.to_vec());
        }
        let held = &mut self.held[usize::from(is_received)];
        match held.take() {
            Some(before) => frames.push(before),
            None if self.random.random_bool(self.swaps) => *held = frames.pop(),
            None => {}
        }
        frames
    }
}

/// What a message must have done.
enum Expected {
    /// Nothing at the card.
    Silent,
    /// These bytes are read.
    Read(Vec<u8>),
    /// This value was in the word.
    Original(u64),
}

/// A kind of wire, and of peer.
#[derive(Clone, Copy, Debug)]
enum Wire {
    /// Loses what the next packet shows.
    Lossy,
    /// Loses, doubles and swaps anything; probabilities.
    Chaotic(f64, f64, f64),
    /// Loses nothing; the peer posts its receives late.
    Late,
}

/// How often the batches of a wire are repeated until all has happened that it is there for.
const ROUNDS_MAX: u32 = 4;

/// Batches of messages of all kinds over a wire that loses packets, in both directions, without timers.
pub(crate) fn of_losses(rig: &mut Rig, batches: u64) -> Result<()> {
    let moved = batches_on(rig, Wire::Lossy, batches, 0, 0)?;
    for name in ["packets_retransmitted", "nak_received", "implied_nak"] {
        ensure!(moved.contains_key(name), "{name} does not move: {moved:?}");
    }
    ensure!(!moved.contains_key("retry_exhausted"), "{moved:?}");
    Ok(())
}

/// The same with a timer, over wires that do anything, and with a peer that has no receives for a while.
pub(crate) fn of_everything(rig: &mut Rig, batches: u64) -> Result<()> {
    rig.world().write_register(0, Window::Registers, REG_TIMER_UNIT.offset.into(), UNIT)?;
    let wires = [
        (Wire::Chaotic(0.03, 0.0, 0.0), &["timeout", "packets_retransmitted"][..]),
        (Wire::Chaotic(0.0, 0.1, 0.0), &["response_stale"][..]),
        (Wire::Chaotic(0.0, 0.0, 0.1), &["nak_received", "implied_nak"][..]),
        (Wire::Chaotic(0.02, 0.03, 0.03), &["timeout", "response_stale", "nak_received"][..]),
        (Wire::Late, &["nak_rnr_received", "packets_retransmitted"][..]),
    ];
    for (wire, names) in wires {
        // One batch may be lucky: that nothing is lost that only a timer shows, for example.
        let mut moved = BTreeMap::new();
        for round in 0..ROUNDS_MAX {
            let more = batches_on(rig, wire, batches, TIMEOUT, round);
            moved.extend(more.with_context(|| format!("{wire:?}, round {round}"))?);
            if names.iter().all(|name| moved.contains_key(name)) {
                break;
            }
        }
        for name in names {
            ensure!(moved.contains_key(name), "{wire:?}: {name} does not move: {moved:?}");
        }
        let exhausted = ["retry_exhausted", "rnr_retry_exceeded"].iter().any(|name| moved.contains_key(name));
        ensure!(!exhausted, "{wire:?}: {moved:?}");
    }
    Ok(())
}

fn batches_on(
    rig: &mut Rig,
    wire: Wire,
    batches: u64,
    timeout: u8,
    round: u32,
) -> Result<BTreeMap<&'static str, u64>> {
    let paths = [(IPV4, Pmtu::Bytes256), (IPV6, Pmtu::Bytes1024), (IPV4, Pmtu::Bytes4096)];
    let mut moved = BTreeMap::new();
    for (version, pmtu) in paths {
        let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
        let card = queue_pair.number();
        let mut queue_pair =
            rig.connect_to_endpoint_with(queue_pair, PEER, version, pmtu, 0xff_fff0, |options| {
                options.send.retry_count = 7;
                options.send.rnr_retry = 7;
                options.send.timeout = timeout;
            })?;
        let mut random = Seed(16).stream(&format!("recovery/{round}/{wire:?}/{version}/{pmtu:?}"));
        let mut model: Vec<u8> = (0..WINDOW_BYTES).map(|_| random.random()).collect();
        rig.endpoint(|endpoint| endpoint.memory().bytes[..WINDOW_BYTES].copy_from_slice(&model));
        for number in 0..batches {
            batch(rig, &mut queue_pair, card, pmtu, wire, &mut random, &mut model)
                .with_context(|| format!("addresses {version}, {pmtu:?}, batch {number}"))?;
        }
        for (name, count) in rig.moved()?.named() {
            *moved.entry(name).or_default() += count;
        }
        drop(queue_pair);
        rig.exchange()?;
    }
    Ok(moved)
}

fn batch(
    rig: &mut Rig,
    queue_pair: &mut QueuePair<ReadyToSend>,
    card: u32,
    pmtu: Pmtu,
    wire: Wire,
    random: &mut ChaCha8Rng,
    model: &mut [u8],
) -> Result<()> {
    let remote = |place: usize, length: usize| RemoteMemory {
        address: PEER_FIRST + place as u64,
        key: PEER_KEY,
        bytes: length as u64,
    };
    let mut requests = Vec::new();
    let mut expected = Vec::new();
    let mut sent = Vec::new();
    for wr_id in 0..REQUESTS {
        let length = match random.random_range(0..4) {
            0 => random.random_range(0..=40),
            1 => random.random_range(0..=BYTES_MAX),
            _ => random.random_range(0..=5000),
        };
        // A WRITE may overtake the READ before it, so what is written is not read.
        let place = random.random_range(0..WORD / 2 - length);
        let written = WORD / 2 + place;
        let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
        let kind = random.random_range(0..10);
        let (request, expects) = match kind {
            0..=2 => {
                sent.push(bytes.clone());
                (gathered(rig, random, SendRequest::send(wr_id), &bytes)?, Expected::Silent)
            }
            3..=5 => {
                model[written..][..length].copy_from_slice(&bytes);
                let request = SendRequest::write(wr_id, remote(written, length));
                (gathered(rig, random, request, &bytes)?, Expected::Silent)
            }
            6..=7 => {
                let request = SendRequest::read(wr_id, remote(place, length));
                let request = spread(rig, random, request, length, None)?;
                (request, Expected::Read(model[place..][..length].to_vec()))
            }
            _ => {
                let original = u64::from_le_bytes(model[WORD..].try_into().expect("it has 8 bytes"));
                model[WORD..].copy_from_slice(&original.wrapping_add(wr_id + 1).to_le_bytes());
                let request = SendRequest::fetch_add(wr_id, remote(WORD, 8), wr_id + 1);
                (request.sge(rig.domain.allocate(8)?), Expected::Original(original))
            }
        };
        requests.push(request.signalled());
        expected.push(expects);
    }
    let faults: Option<Box<dyn Faults>> = match wire {
        Wire::Lossy => Some(Box::new(Losses::new(random.random(), 0.04, pmtu, [PEER, card]))),
        Wire::Chaotic(loses, doubles, swaps) => Some(Box::new(Chaos {
            random: Seed(random.random()).stream("chaos"),
            loses,
            doubles,
            swaps,
            queue_pairs: [PEER, card],
            held: [None, None],
        })),
        Wire::Late => None,
    };
    rig.set_faults(faults);
    let mut receives = 0;
    let mut receive = |rig: &mut Rig, count: usize| {
        for _ in 0..count.min(sent.len() - receives) {
            let address = PEER_FIRST + ROOM + ROOM_BYTES * (receives as u64 % 2);
            let sges = vec![PeerSge { address, key: PEER_KEY, length: ROOM_BYTES as u32 }];
            let wqe = ReceiveWqe { wr_id: receives as u64, sges };
            rig.endpoint(|endpoint| endpoint.post_receive(PEER, wqe));
            receives += 1;
        }
    };
    let is_late = matches!(wire, Wire::Late);
    if !is_late {
        receive(rig, usize::MAX);
    }
    queue_pair.post_sends(&mut requests)?;
    let mut done = Vec::new();
    let mut theirs = Vec::new();
    let mut still = 0;
    for idles in 0..IDLES_MAX {
        let before = done.len();
        done.extend(rig.completions()?);
        rig.endpoint(|endpoint| theirs.extend(std::iter::from_fn(|| endpoint.poll(PEER))));
        still = if done.len() == before { still + 1 } else { 0 };
        // Without a timer, what was lost at the end shows with the message after it only.
        if done.len() as u64 >= REQUESTS || (matches!(wire, Wire::Lossy) && still > 150) {
            break;
        }
        if is_late && idles % 100 == 99 {
            receive(rig, 2);
        }
        rig.idle(1);
    }
    rig.set_faults(None);
    rig.endpoint(|endpoint| {
        let sges = vec![PeerSge { address: PEER_FIRST + ROOM, key: PEER_KEY, length: 64 }];
        endpoint.post_receive(PEER, ReceiveWqe { wr_id: REQUESTS, sges });
    });
    queue_pair.post_send(SendRequest::send(REQUESTS).inline(&[7]).signalled())?;
    rig.wait("the rest of the batch", |rig| {
        done.extend(rig.completions()?);
        rig.endpoint(|endpoint| theirs.extend(std::iter::from_fn(|| endpoint.poll(PEER))));
        Ok((done.len() as u64 > REQUESTS).then_some(()))
    })
    .with_context(|| format!("{} have completed", done.len()))?;
    ensure!(done.iter().map(|done| done.wr_id).eq(0..=REQUESTS), "in order: {done:?}");
    for (done, expected) in done.iter().zip(&expected) {
        ensure!(done.status == CompletionStatus::Success, "{done:?}");
        match expected {
            Expected::Silent => (),
            Expected::Read(bytes) => {
                ensure_same(&done.message, bytes).with_context(|| format!("READ {}", done.wr_id))?
            }
            Expected::Original(value) => ensure_same(&done.message, &value.to_le_bytes())
                .with_context(|| format!("atomic {}", done.wr_id))?,
        }
    }
    let lengths: Vec<usize> = theirs.iter().map(|done| done.length as usize).collect();
    let wanted: Vec<usize> = sent.iter().map(Vec::len).chain([1]).collect();
    ensure!(lengths == wanted, "received {lengths:?}, sent {wanted:?}");
    let last = sent.len().saturating_sub(2);
    rig.endpoint(|endpoint| {
        let memory = &endpoint.memory().bytes;
        for (index, bytes) in sent.iter().enumerate().skip(last) {
            let place = (ROOM + ROOM_BYTES * (index as u64 % 2)) as usize;
            // The last message of all has one byte, at the beginning of the first room.
            let from = usize::from(index % 2 == 0).min(bytes.len());
            ensure_same(&memory[place + from..][..bytes.len() - from], &bytes[from..])
                .with_context(|| format!("SEND {index}"))?;
        }
        ensure_same(&memory[..WINDOW_BYTES], model)
    })
}

/// A request whose payload is inline, or in one to six pieces.
fn gathered(rig: &Rig, random: &mut ChaCha8Rng, request: SendRequest, bytes: &[u8]) -> Result<SendRequest> {
    if bytes.len() <= 40 && random.random() {
        return Ok(request.inline(bytes));
    }
    spread(rig, random, request, bytes.len(), Some(bytes))
}

/// A request with memory in pieces at odd addresses: up to six of a message, up to two of a READ.
fn spread(
    rig: &Rig,
    random: &mut ChaCha8Rng,
    mut request: SendRequest,
    length: usize,
    bytes: Option<&[u8]>,
) -> Result<SendRequest> {
    let pieces = random.random_range(1..=if bytes.is_some() { 6 } else { 2 });
    let mut from = 0;
    for piece in 0..pieces {
        let rest = length - from;
        let taken = if piece + 1 == pieces { rest } else { random.random_range(0..=rest) };
        let mut memory = memory_of(rig, random.random_range(0..70), taken)?;
        if let Some(bytes) = bytes {
            memory.bytes_mut().copy_from_slice(&bytes[from..][..taken]);
        }
        request = request.sge(memory);
        from += taken;
    }
    Ok(request)
}

/// Memory of this length, which begins after `offset` bytes of its page.
fn memory_of(rig: &Rig, offset: usize, length: usize) -> Result<Region> {
    let memory = rig.domain.allocate(offset + length + 1)?;
    let (_, tail) = memory.split_at(offset).expect("it is longer");
    Ok(tail.split_at(length).expect("it is longer").0)
}
