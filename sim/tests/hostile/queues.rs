//! Malformed host queues (protocol 8.3, last rows): WQEs of send queues, receive queues and shared receive queues that software
//! has corrupted beneath the driver, in any field or bit, and doorbells with any index, number and page.
//!
//! A send WQE that [`Wqe::parse`] refuses completes with the status that it says. Whatever else a WQE has become, the queue pair
//! can be reset through the driver, which gives all work back; memory that was not granted stays as it is; and the bystander moves
//! data at the wire's rate.
use crate::bystander::Bystander;
use crate::rig::{IPV4, PEER_FIRST, PEER_KEY, Rig, UNTOUCHED, ensure_same};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    CompletionQueue, CompletionQueueOptions, QueuePair, QueuePairOptions, ReceiveRequest, Region,
    RemoteMemory, RemoteRights, SendRequest, SharedReceiveQueue, SharedReceiveQueueOptions,
};
use rnic_endpoint::qp::{Data, Operation, ReceiveWqe as PeerReceive, SendWqe as PeerSend};
use rnic_layout::doorbell::{RECEIVE, SEND, SHARED_RECEIVE, WorkDoorbell, offset_in_bar};
use rnic_layout::field::Field;
use rnic_layout::limits::WQE_SLOT_BYTES;
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::receive::ReceiveWqe;
use rnic_layout::queue::send::{AtomicWqe, SendWqe, Sge, Wqe};
use rnic_layout::state::Service;
use rnic_machine::host::{Bar as Window, Operation as Access, RegisterAccess};
use rnic_stimulus::chance::{self, Seed};
use rnic_workloads::tamper::Slot;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Variable with the number of rounds of each kind.
const ROUNDS: &str = "RNIC_HOSTILE_ROUNDS";
/// QPN of the endpoint's side.
const PEER: u32 = 0x400;
/// Bytes of a message, and of the memory of a request.
const BYTES: usize = 48;
/// Calls of `idle`, of 100 ns each, in which a queue pair answers or falls silent.
const PATIENCE: usize = 60;
/// Pages of doorbells that are drawn: more than the card has.
const PAGES: u32 = 300;

/// Byte and bit of the flag that a second slot follows.
const TWO_SLOTS: (usize, u8) = (1, 0x10);

/// A change of a slot: these bits are set to a number.
#[derive(Clone, Copy)]
struct Change {
    name: &'static str,
    first_bit: usize,
    width: usize,
    value: u64,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { name, first_bit, width, value } = self;
        write!(f, "{name}, {width} bits from {first_bit} on, is set to {value:#x}")
    }
}

impl Change {
    /// Draws another value of a field, or one other bit.
    fn draw(random: &mut ChaCha8Rng, fields: &[Field]) -> Change {
        if random.random_bool(0.3) {
            let first_bit = random.random_range(0..8 * WQE_SLOT_BYTES);
            return Change { name: "a bit", first_bit, width: 1, value: u64::from(random.random::<bool>()) };
        }
        let field = fields.choose(random).expect("a record has fields");
        let value = match random.random_range(0..4) {
            0 => u64::MAX,
            1 => 1 << random.random_range(0..field.width.min(64)),
            2 => random.random_range(0..100),
            _ => random.random(),
        };
        // Inline data and operands are longer than a number: their first bits.
        let width = field.width.min(64) as usize;
        Change { name: field.name, first_bit: field.offset as usize, width, value }
    }

    fn apply(&self, slot: &mut Slot) {
        for bit in 0..self.width {
            let place = self.first_bit + bit;
            let (byte, mask) = (&mut slot[place / 8], 1 << (place % 8));
            *byte = if self.value >> bit & 1 == 1 { *byte | mask } else { *byte & !mask };
        }
    }
}

/// One round: a queue pair that is connected to the endpoint, with completion queues of its own.
struct Round {
    queue_pair: Option<QueuePair<ReadyToSend>>,
    completions: CompletionQueue,
    shared: Option<SharedReceiveQueue>,
    peer: u32,
    /// Completions so far: `wr_id` and status. An error is one of the driver, which does not know what the CQE speaks of.
    done: Vec<Result<(u64, CompletionStatus)>>,
}

impl Round {
    fn new(rig: &Rig, random: &mut ChaCha8Rng, peer: u32, is_shared: bool) -> Result<Round> {
        let completions =
            rig.device.create_completion_queue(&rig.device.events(), &CompletionQueueOptions::default())?;
        let options = QueuePairOptions::default();
        let (queue_pair, shared) = if is_shared {
            let shared = rig.domain.create_shared_receive_queue(&SharedReceiveQueueOptions::default())?;
            let queue_pair =
                rig.domain.create_queue_pair_with_srq(&completions, &completions, &shared, &options)?;
            (queue_pair, Some(shared))
        } else {
            (rig.domain.create_queue_pair(&completions, &completions, &options)?, None)
        };
        let queue_pair = queue_pair.initialize(RemoteRights::ALL).map_err(rnic_driver::Error::from)?;
        let first_psn = random.random_range(0..1 << 24);
        let queue_pair = rig.connect_to_endpoint(queue_pair, peer, IPV4, Pmtu::Bytes256, first_psn)?;
        Ok(Round { queue_pair: Some(queue_pair), completions, shared, peer, done: Vec::new() })
    }

    fn queue_pair(&mut self) -> Result<&mut QueuePair<ReadyToSend>> {
        self.queue_pair.as_mut().context("it is connected")
    }

    fn poll(&mut self) {
        loop {
            match self.completions.poll_one() {
                Ok(Some(completion)) => self.done.push(Ok((completion.wr_id, completion.status))),
                Ok(None) => return,
                Err(error) => {
                    self.done.push(Err(error.into()));
                    return;
                }
            }
        }
    }

    /// Lets time pass until nothing is in flight, or the queue pair must be silent.
    fn settle(&mut self, rig: &Rig) -> Result<()> {
        for _ in 0..PATIENCE {
            self.poll();
            if self.queue_pair()?.in_flight() == (0, 0) && self.done.len() >= 2 {
                break;
            }
            rig.idle(1);
        }
        Ok(rig.world().check()?)
    }

    /// The status with which a request has completed.
    fn status(&self, wr_id: u64) -> Option<CompletionStatus> {
        let found = self.done.iter().flatten().find(|(found, _)| *found == wr_id);
        found.map(|(_, status)| *status)
    }

    /// Resets the queue pair, which gives back all that is still in flight.
    fn end(mut self, rig: &Rig) -> Result<()> {
        let queue_pair = self.queue_pair.take().context("it is connected")?;
        let queue_pair = queue_pair.reset().map_err(rnic_driver::Error::from)?;
        ensure!(queue_pair.in_flight() == (0, 0), "requests are still in flight after RESET");
        drop(queue_pair);
        let peer = self.peer;
        rig.endpoint(|endpoint| {
            endpoint.destroy(peer);
            // A later round has a peer with this number, which has this completion queue.
            while endpoint.poll(peer).is_some() {}
        });
        while rig.event()?.is_some() {}
        Ok(())
    }
}

/// The SGE of a region as the driver writes it.
fn sge_of(region: &Region) -> Sge {
    Sge { address: region.address(), local_key: region.key(), length: region.len() as u32 }
}

/// The slots that a change has met, as they are afterwards.
type Met = Arc<Mutex<Vec<Slot>>>;

/// Corrupts the WQE with this SGE at the next doorbell, or only looks at it.
fn spoil(rig: &Rig, sge: Sge, change: Option<Change>) -> Met {
    let met = Met::default();
    let seen = Arc::clone(&met);
    rig.tamper.spoil(sge, move |slot, _| {
        if let Some(change) = change {
            change.apply(slot);
        }
        seen.lock().expect("nobody has panicked").push(*slot);
    });
    met
}

/// A piece of memory in the middle of a larger one, so that a wrong address or length may stay in its region.
fn piece(rig: &Rig) -> Result<(Region, [Region; 2])> {
    let whole = rig.domain.allocate(3 * BYTES)?;
    let (before, rest) = whole.split_at(BYTES).expect("it is longer");
    let (piece, after) = rest.split_at(BYTES).expect("it is longer");
    Ok((piece, [before, after]))
}

fn random_request(random: &mut ChaCha8Rng) -> (SendRequest, bool) {
    let remote = RemoteMemory { address: PEER_FIRST, key: PEER_KEY, bytes: BYTES as u64 };
    let word = RemoteMemory { bytes: 8, ..remote };
    match random.random_range(0..6) {
        0 => (SendRequest::write(1, remote), false),
        1 => (SendRequest::write_immediate(1, remote, random.random()), false),
        2 => (SendRequest::read(1, remote), false),
        3 => (SendRequest::fetch_add(1, word, random.random()), true),
        4 => (SendRequest::compare_swap(1, word, random.random(), random.random()), true),
        _ => (SendRequest::send(1), false),
    }
}

/// A corrupted send WQE and a good one behind it, with one doorbell.
fn send_queue(rig: &mut Rig, random: &mut ChaCha8Rng, peer: u32) -> Result<&'static str> {
    let mut round = Round::new(rig, random, peer, false)?;
    let sge = rnic_endpoint::memory::Sge { address: PEER_FIRST, key: PEER_KEY, length: 4 * BYTES as u32 };
    for wr_id in 0..4 {
        rig.endpoint(|endpoint| endpoint.post_receive(peer, PeerReceive { wr_id, sges: vec![sge] }));
    }
    let (request, is_atomic) = random_request(random);
    let (bad, _beside) = piece(rig)?;
    let (good, _) = piece(rig)?;
    let (bad, _rest) = if is_atomic {
        let (word, rest) = bad.split_at(8).expect("it is longer");
        (word, Some(rest))
    } else {
        (bad, None)
    };
    let fields = if is_atomic { AtomicWqe::RECORD.fields } else { SendWqe::RECORD.fields };
    let change = Change::draw(random, fields);
    let met = [spoil(rig, sge_of(&bad), Some(change)), spoil(rig, sge_of(&good), None)];
    let remote = RemoteMemory { address: PEER_FIRST, key: PEER_KEY, bytes: BYTES as u64 };
    let mut requests =
        vec![request.sge(bad).signalled(), SendRequest::write(2, remote).sge(good).signalled()];
    round.queue_pair()?.post_sends(&mut requests)?;
    ensure!(rig.tamper.spoiled() == [1, 1], "each SGE must be in one slot");
    let slots: Vec<u8> = met.iter().flat_map(|met| met.lock().expect("nobody has panicked")[0]).collect();
    round.settle(rig)?;
    let parsed = Wqe::parse(Service::ReliableConnected, &slots);
    let is_named = change.first_bit >= 128 || change.first_bit + change.width <= 64;
    let found = (round.status(1), round.status(2));
    let outcome = match parsed {
        Err(error) if is_named => {
            // The good one may have become the second slot of the bad one.
            let is_alone = slots[TWO_SLOTS.0] & TWO_SLOTS.1 == 0;
            let expected = (Some(error.status()), is_alone.then_some(CompletionStatus::Flushed));
            ensure!(found == expected, "{change}: {error}: {found:?}, not {expected:?}: {:?}", round.done);
            "malformed"
        }
        // It may have become unsignalled, or the good one its second slot.
        _ => match found.0 {
            Some(CompletionStatus::Success) => "done",
            Some(_) => "failed",
            None => "silent",
        },
    };
    round.end(rig).with_context(|| format!("{change}"))?;
    Ok(outcome)
}

/// A corrupted receive WQE and good ones behind it, and SENDs of the endpoint.
fn receive_queue(rig: &mut Rig, random: &mut ChaCha8Rng, peer: u32, is_shared: bool) -> Result<&'static str> {
    let mut round = Round::new(rig, random, peer, is_shared)?;
    let (bad, _beside) = piece(rig)?;
    let (good, _) = piece(rig)?;
    let change = Change::draw(random, ReceiveWqe::RECORD.fields);
    let met = spoil(rig, sge_of(&bad), Some(change));
    for (wr_id, piece) in [(1, bad), (2, good)] {
        let request = ReceiveRequest::new(wr_id).sge(piece);
        match &round.shared {
            Some(shared) => shared.post_receive(request)?,
            None => round.queue_pair()?.post_receive(request)?,
        }
    }
    ensure!(rig.tamper.spoiled() == [1], "the SGE must be in one slot");
    ensure!(met.lock().expect("nobody has panicked").len() == 1, "it is changed once");
    rig.device.check()?;
    for wr_id in 1..3 {
        let work = PeerSend::new(wr_id, Operation::Send, Data::Inline(vec![wr_id as u8; BYTES]));
        rig.endpoint(|endpoint| endpoint.post_send(peer, work));
    }
    round.settle(rig)?;
    let outcome = match round.status(1) {
        Some(CompletionStatus::Success) => "done",
        Some(_) => "failed",
        None => "silent",
    };
    let answered = rig.endpoint(|endpoint| endpoint.poll(peer)).map(|completion| completion.status);
    // An address or a key that is wrong is no success.
    let is_meant = outcome != "done" || answered == Some(CompletionStatus::Success);
    ensure!(is_meant, "{change}: the receive completes, and its SEND ends with {answered:?}");
    round.end(rig).with_context(|| format!("{change}"))?;
    Ok(outcome)
}

/// Doorbells with any number, index and page, and any bytes of them.
fn doorbells(rig: &mut Rig, random: &mut ChaCha8Rng, peer: u32, kept: &[u32]) -> Result<&'static str> {
    let mut round = Round::new(rig, random, peer, false)?;
    let own = round.queue_pair()?.number();
    let (good, _) = piece(rig)?;
    let remote = RemoteMemory { address: PEER_FIRST, key: PEER_KEY, bytes: BYTES as u64 };
    let request = SendRequest::write(1, remote).sge(good).signalled();
    round.queue_pair()?.post_send(request)?;
    for _ in 0..random.random_range(1..6) {
        let object_number = match random.random_range(0..4) {
            0 => own ^ 1 << random.random_range(0..24),
            1 => random.random_range(0..1 << 24),
            _ => own,
        };
        if kept.contains(&object_number) {
            continue;
        }
        let producer_index = match random.random_range(0..4) {
            // Backwards, beyond the ring by one, or more than was posted.
            0 => 0,
            1 => random.random_range(63..68),
            2 => random.random_range(1..64),
            _ => random.random(),
        };
        let value = u64::from_le_bytes(WorkDoorbell { object_number, producer_index }.to_bytes()?);
        let page = if random.random_bool(0.7) { 0 } else { random.random_range(0..PAGES) };
        let doorbell = *[SEND, RECEIVE, SHARED_RECEIVE].choose(random).expect("there are some");
        let strobe = *[0xff, 0xff, 0xff, 0x0f, 0xf0, 0x3c].choose(random).expect("there are some");
        let operation = Access::Write { value, strobe };
        let offset = offset_in_bar(page, &doorbell);
        let access = RegisterAccess { bar: Window::Doorbells, offset, operation };
        rig.world().start_access(0, access, true);
    }
    rig.device.check()?;
    round.settle(rig)?;
    let outcome = if round.queue_pair()?.has_failed()? { "failed" } else { "ignored" };
    ensure!(round.status(1).is_some(), "the request before the doorbells does not complete");
    round.end(rig)?;
    Ok(outcome)
}

/// All kinds, this many rounds of each.
pub(crate) fn run(rig: &mut Rig, width_bits: u32, seed: u64) -> Result<()> {
    let rounds = chance::number(ROUNDS, if width_bits == 64 { 60 } else { 20 });
    let mut random = Seed(seed).stream("hostile queues");
    let mut bystander = Bystander::new(rig, width_bits)?;
    let own = rig.bystander.iter().map(|queue_pair| queue_pair.number());
    let kept: Vec<u32> = own.chain([bystander.number()]).collect();
    // Memory of the same domain that no WQE names.
    let mut untouched = rig.domain.allocate(4096)?;
    untouched.bytes_mut().fill(UNTOUCHED);
    let mut counts = std::collections::BTreeMap::<(&str, &str), u64>::new();
    for round in 0..rounds {
        for (kind, name) in ["send", "receive", "shared", "doorbell"].into_iter().enumerate() {
            let peer = PEER + 4 * round as u32 % 256 + kind as u32;
            let outcome = match kind {
                0 => send_queue(rig, &mut random, peer),
                1 | 2 => receive_queue(rig, &mut random, peer, kind == 2),
                _ => doorbells(rig, &mut random, peer, &kept),
            };
            let place = || format!("{name} queue, round {round} of seed {seed}");
            let outcome = outcome.with_context(place)?;
            *counts.entry((name, outcome)).or_default() += 1;
            bystander.run(rig).with_context(place)?;
            rig.heard();
            ensure_same(&untouched.bytes(), &[UNTOUCHED; 4096]).with_context(place)?;
        }
    }
    println!("{width_bits} bits, seed {seed}: {counts:?}");
    ensure!(counts.contains_key(&("send", "malformed")), "no WQE was malformed");
    Ok(())
}
