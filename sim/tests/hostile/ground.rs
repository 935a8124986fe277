//! The queue pairs under attack, and the reference endpoint in the place of the card.
//!
//! The reference has the same queue pairs, keys and memory as the card, and gets the same frames. A queue pair that has failed is
//! reset and connected again through the driver.
use crate::bystander::Bystander;
use crate::rig::{CARD_MAC, MIN_RNR_TIMER, Rig, UNTOUCHED, Version, ensure_same, path_to_card};
use crate::traffic::{Begun, PMTU_BYTES, RECEIVE_BYTES, State, TARGET_BYTES, atomic};
use anyhow::{Context, Result};
use rand::Rng;
use rand::seq::IteratorRandom;
use rand_chacha::ChaCha8Rng;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{QueuePair, ReceiveRequest, Region, RemoteMemory, RemoteRights, SendRequest, SharedRegion};
use rnic_endpoint::Endpoint;
use rnic_endpoint::memory::{Region as PeerRegion, Rights, Sge};
use rnic_endpoint::packet::Packet;
use rnic_endpoint::qp::{
    Completion, Data, Operation as PeerOperation, Outcome, QueuePairSetup, ReceiveWqe, SendWqe,
};
use rnic_layout::limits::ATOMIC_BYTES;
use rnic_layout::opcode::{self, Operation as Op};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::{PSN_COUNT, Psn, PsnCheck};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::QpState;
use rnic_layout::wire::extended::{AethRepr, AtomicAckEthRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr, MacAddress, PacketRepr};
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Range, RangeInclusive};

/// Queue pairs under attack.
pub(crate) const SIDES: usize = 8;
/// QPN of the first attacker; the others follow.
const ATTACKER: u32 = 0x151;
/// Receives of a queue pair.
const RECEIVES: usize = 4;
/// Bytes of the memory that a response of the peer fills.
const LANDING_BYTES: usize = 700;
/// Valid requests of a queue pair that may be sent again.
const KEPT: usize = 8;
/// Flag of send queues among the reference's completion queues.
const SENDS: u32 = 1 << 31;
/// Protection domains of the reference.
const DOMAIN: u32 = 1;
const FOREIGN_DOMAIN: u32 = 2;

/// A response on the wire. A positive syndrome is 0x1f: credits are up to the responder.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    opcode: u8,
    psn: Psn,
    aeth: Option<(u8, Psn)>,
    original: Option<u64>,
    payload: Vec<u8>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answer { opcode, psn, aeth, original, payload } = self;
        let start = &payload[..payload.len().min(8)];
        write!(f, "{opcode:#04x} {:#x}", psn.value())?;
        if let Some((syndrome, msn)) = aeth {
            write!(f, " {syndrome:#04x} MSN {:#x}", msn.value())?;
        }
        if let Some(original) = original {
            write!(f, " {original:#x}")?;
        }
        write!(f, " {} bytes {start:02x?}", payload.len())
    }
}

impl Answer {
    /// Parses a frame; the QPN to which it goes.
    pub(crate) fn of(frame: &[u8]) -> Result<(u32, Answer)> {
        let packet =
            PacketRepr::parse(frame).map_err(|reason| anyhow::anyhow!("the card sends {reason:?}"))?;
        let (mut aeth, mut original) = (None, None);
        for header in packet.extended_headers() {
            match header {
                ExtendedRepr::Aeth(found) => {
                    let syndrome = if found.syndrome >> 5 == 0 { 0x1f } else { found.syndrome };
                    aeth = Some((syndrome, found.msn));
                }
                ExtendedRepr::AtomicAckEth(found) => original = Some(found.original),
                _ => {}
            }
        }
        let (opcode, psn, payload) = (packet.bth.opcode, packet.bth.psn, packet.payload.to_vec());
        Ok((packet.bth.destination_qp, Answer { opcode, psn, aeth, original, payload }))
    }

    /// A request of the card as requester.
    fn is_request(&self) -> bool {
        opcode::class(self.opcode) == Some(opcode::Class::Request)
    }

    /// An ACK without data, an RNR NAK or a NAK of a gap: a newer answer may take its place (protocol 3.8).
    fn is_replaceable(&self) -> bool {
        let is_passing = |(syndrome, _): (u8, Psn)| syndrome >> 5 < 2 || syndrome == GAP_NAK;
        self.opcode == Op::Acknowledge.code() && self.aeth.is_some_and(is_passing)
    }

    fn is_ack(&self) -> bool {
        self.opcode == Op::Acknowledge.code() && self.aeth.is_some_and(|(syndrome, _)| syndrome == 0x1f)
    }

    fn is_data(&self) -> bool {
        opcode::lookup(self.opcode).is_some_and(|row| {
            matches!(
                row.operation,
                Op::ReadResponseFirst | Op::ReadResponseMiddle | Op::ReadResponseLast | Op::ReadResponseOnly
            )
        })
    }
}

/// Syndrome of the NAK of a gap.
const GAP_NAK: u8 = 0x60;

/// The same without answers of which a newer one may take the place.
///
/// A NAK of a gap and the ACK of a duplicate after it acknowledge the same; the card may send them in either order, and that order
/// depends on time.
fn coalesced(answers: &[Answer]) -> Vec<Answer> {
    let last = answers.len().saturating_sub(1);
    let mut kept: Vec<Answer> = Vec::new();
    for (place, answer) in answers.iter().enumerate() {
        // An ACK covers its own PSN, a NAK those before.
        let end = if answer.is_ack() { answer.psn.add(1) } else { answer.psn };
        if !answer.is_replaceable() {
            kept.push(answer.clone());
        } else if place == last {
            let mut before = answers[..place].iter().rev().take_while(|before| before.is_replaceable());
            let nak = before.find(|before| !before.is_ack() && answer.is_ack() && before.psn == end);
            kept.push(nak.unwrap_or(answer).clone());
        }
    }
    kept
}

/// What software sees of a work request.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Done {
    is_receive: bool,
    wr_id: u64,
    status: CompletionStatus,
    /// Length, immediate data and message, if it has succeeded.
    message: Option<(u32, Option<[u8; 4]>, Vec<u8>)>,
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Done { wr_id, status, message, .. } = self;
        write!(f, "{wr_id}: {status:?}")?;
        if let Some((length, immediate, bytes)) = message {
            write!(f, ", {length} bytes {:02x?}, {immediate:02x?}", &bytes[..bytes.len().min(8)])?;
        }
        Ok(())
    }
}

/// A queue pair under attack.
pub(crate) struct Side {
    queue_pair: Option<QueuePair<ReadyToSend>>,
    pub(crate) number: u32,
    peer: u32,
    version: Version,
    /// All rights.
    region: SharedRegion,
    /// No remote rights.
    local: SharedRegion,
    /// May be invalidated by the peer; its place in the reference's memory.
    ended: SharedRegion,
    ended_place: usize,
    /// Memory of receives that are not posted, and the key of all.
    room: Vec<Region>,
    room_key: u32,
    /// Receives that are posted, by `wr_id`: the address of each.
    posted: VecDeque<(u64, u64)>,
    wr_id: u64,
    begun: Begun,
    /// READs and atomics that were executed in this batch.
    asked: u32,
    /// How many of them the queue pair takes before it has answered one.
    reads: u8,
    /// Requests of the card that wait for their responses, in order. While there are some, the peer sends responses only: a
    /// failure of the requester may cut off answers of the responder.
    outstanding: VecDeque<Asked>,
    /// Memory that the responses of READs and atomics fill, unless the card has it; its key and address.
    landing: Option<Region>,
    landing_place: (u32, u64),
    /// Addresses that READs of this batch access, the words of its atomics with their keys, and whether a later WRITE has changed
    /// some: a READ or an atomic without a fence behind it is not ordered before that (protocol 2.10).
    read: Vec<Range<u64>>,
    words: Vec<(u32, u64)>,
    is_raced: bool,
    /// Words of atomics that a later WRITE has changed.
    raced_words: Vec<(u32, u64)>,
    /// Valid requests, of this life or of earlier ones.
    kept: VecDeque<Vec<u8>>,
    /// Since the last comparison: of the reference, and of the card.
    expected: Seen,
    found: Seen,
}

/// A request of the card.
#[derive(Clone, Copy, Debug)]
struct Asked {
    wr_id: u64,
    first_psn: Psn,
    kind: AskedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedKind {
    Write,
    Send,
    /// A READ of this many bytes, and how many responses have come.
    Read(usize, u32),
    Atomic,
}

impl Asked {
    /// PSNs that it takes.
    fn psn_count(&self) -> u32 {
        match self.kind {
            AskedKind::Read(bytes, _) => bytes.div_ceil(PMTU_BYTES).max(1) as u32,
            _ => 1,
        }
    }

    /// The next response to it.
    fn response(&self, random: &mut ChaCha8Rng, number: u32) -> Packet {
        let aeth = ExtendedRepr::Aeth(AethRepr { syndrome: 0x1f, msn: Psn::wrapping(random.random()) });
        let (op, position, headers, bytes) = match self.kind {
            AskedKind::Write | AskedKind::Send => (Op::Acknowledge, 0, vec![aeth], 0),
            AskedKind::Atomic => {
                let original = ExtendedRepr::AtomicAckEth(AtomicAckEthRepr { original: random.random() });
                (Op::AtomicAcknowledge, 0, vec![aeth, original], 0)
            }
            AskedKind::Read(bytes, position) => {
                let is_last = position + 1 == self.psn_count();
                let (op, headers) = match (position == 0, is_last) {
                    (true, true) => (Op::ReadResponseOnly, vec![aeth]),
                    (true, false) => (Op::ReadResponseFirst, vec![aeth]),
                    (false, true) => (Op::ReadResponseLast, vec![aeth]),
                    (false, false) => (Op::ReadResponseMiddle, Vec::new()),
                };
                (op, position, headers, (bytes - position as usize * PMTU_BYTES).min(PMTU_BYTES))
            }
        };
        let mut payload = vec![0; bytes];
        random.fill(payload.as_mut_slice());
        Packet::new(BthRepr::new(op.code(), number, self.first_psn.add(position)), headers, payload)
    }
}

/// What a queue pair does, in order.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Requests of the card.
    requests: Vec<Answer>,
    answers: Vec<Answer>,
    done: Vec<Done>,
    events: Vec<AsyncEvent>,
}

impl Seen {
    /// A frame was sent.
    fn sent(&mut self, frame: Answer) {
        if frame.is_request() { self.requests.push(frame) } else { self.answers.push(frame) }
    }

    /// What must be the same in card and reference.
    fn comparable(&self, is_raced: bool) -> Seen {
        let mut seen = Seen { answers: coalesced(&self.answers), ..self.clone() };
        for answer in seen.answers.iter_mut().filter(|_| is_raced) {
            if answer.is_data() {
                answer.payload.fill(0);
            }
            answer.original = answer.original.map(|_| 0);
        }
        // A READ response of a wrong length ends its READ with either status (protocol 8.3).
        let wrong = seen.done.iter_mut().filter(|done| !done.is_receive);
        wrong.filter(|done| done.status == CompletionStatus::LocalLength).for_each(|done| {
            done.status = CompletionStatus::BadResponse;
        });
        seen.done.sort_by_key(|done| (done.is_receive, done.wr_id));
        seen
    }

    fn is_same(&self, other: &Seen, is_raced: bool) -> bool {
        let (one, other) = (self.comparable(is_raced), other.comparable(is_raced));
        (one.requests, one.answers, one.done, one.events)
            == (other.requests, other.answers, other.done, other.events)
    }

    /// What the reference does, where the card may have flushed a READ or an atomic whose response had come.
    ///
    /// A request that is refused fails the queue pair at once, while the data of a response before it are on their way to the host;
    /// what has not been completed by then is flushed, and its memory is not defined (protocol 2.11). A response that fails the
    /// queue pair overtakes none: the requester takes them in order.
    fn with_overtaken(&self, found: &Seen) -> Seen {
        let mut expected = self.clone();
        let sends = || self.done.iter().filter(|done| !done.is_receive);
        let own = |done: &Done| !matches!(done.status, CompletionStatus::Success | CompletionStatus::Flushed);
        let is_failed_by_request =
            !self.events.is_empty() || self.done.iter().any(|done| done.is_receive && own(done));
        if !is_failed_by_request || sends().any(own) {
            return expected;
        }
        for done in expected.done.iter_mut().filter(|done| !done.is_receive && done.message.is_some()) {
            let flushed = Done { status: CompletionStatus::Flushed, message: None, ..done.clone() };
            if found.done.contains(&flushed) {
                *done = flushed;
            }
        }
        expected
    }
}

impl Side {
    /// Returns whether the card has done what the reference has.
    fn is_same(&self) -> bool {
        let expected = self.expected.with_overtaken(&self.found);
        self.found.is_same(&expected, self.is_raced)
    }

    /// The state for a valid request, this many PSNs ahead.
    fn state(&self, reference: &mut Endpoint, ahead: u32) -> State {
        let ended_key = Some(self.ended.remote().key);
        State {
            path: path_to_card(self.version),
            number: self.number,
            psn: reference.expected_psn(self.number).add(ahead),
            begun: self.begun,
            has_receive: !self.posted.is_empty(),
            may_ask: self.asked < self.reads.into(),
            region: self.region.remote(),
            ended_key: ended_key.filter(|key| reference.memory().region(*key).is_some()),
        }
    }

    /// Follows what a request that was executed, or answered again, has changed.
    fn follow(&mut self, packet: &PacketRepr, is_executed: bool) {
        let operation = opcode::lookup(packet.bth.opcode).map(|row| row.operation);
        if let Some(Op::ReadRequest) = operation
            && let Some(reth) = crate::traffic::reth(packet)
        {
            let first = reth.virtual_address;
            self.read.push(first..first.saturating_add(reth.dma_length.into()));
        } else if !is_executed {
            return;
        } else if let Some(written) = self.begun.written(packet) {
            let overlaps = |read: &Range<u64>| read.start < written.end && written.start < read.end;
            self.is_raced |= self.read.iter().any(overlaps);
            // Atomics are executed in their order.
            match atomic(packet) {
                Some(atomic) => self.words.push((atomic.remote_key, atomic.virtual_address)),
                None => {
                    let word = |&&(_, first): &&(u32, u64)| overlaps(&(first..first + ATOMIC_BYTES as u64));
                    self.raced_words.extend(self.words.iter().filter(word));
                    self.is_raced |= !self.raced_words.is_empty();
                }
            }
        }
        if matches!(operation, Some(Op::ReadRequest | Op::CompareSwap | Op::FetchAdd)) {
            self.asked += 1;
        } else {
            self.begun = self.begun.after(packet);
        }
    }
}

/// All queue pairs under attack.
pub(crate) struct Ground {
    pub(crate) sides: Vec<Side>,
    reference: Endpoint,
    /// Its protection domain is not that of the queue pairs.
    foreign: SharedRegion,
    pub(crate) bystander: Bystander,
}

fn peer_rights(rights: RemoteRights) -> Rights {
    Rights {
        local_write: true,
        remote_write: rights.write,
        remote_read: rights.read,
        remote_atomic: rights.atomic,
    }
}

fn bytes_of(region: &SharedRegion) -> Result<Vec<u8>> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes)?;
    Ok(bytes)
}

/// Registers memory of the card in the reference.
fn register(
    reference: &mut Endpoint,
    domain: u32,
    (key, first_address, length): (u32, u64, usize),
    offset: usize,
    rights: RemoteRights,
    invalidatable: bool,
) {
    let region = PeerRegion {
        first_address,
        length: length as u64,
        offset,
        domain,
        rights: peer_rights(rights),
        invalidatable,
    };
    reference.memory().register(key, region);
}

/// Offset of an address of a registered region in the reference's memory.
fn place_of(reference: &mut Endpoint, key: u32, address: u64) -> Result<usize> {
    let region = reference.memory().region(key).context("it is registered")?;
    Ok(region.offset + (address - region.first_address) as usize)
}

fn shared(region: &SharedRegion) -> (u32, u64, usize) {
    let RemoteMemory { address, key, bytes } = region.remote();
    (key, address, bytes as usize)
}

impl Ground {
    pub(crate) fn new(rig: &Rig, random: &mut ChaCha8Rng, width_bits: u32) -> Result<Ground> {
        let side_bytes = 3 * TARGET_BYTES + RECEIVES * RECEIVE_BYTES + LANDING_BYTES;
        let mut reference = Endpoint::new(MacAddress(CARD_MAC), SIDES * side_bytes + TARGET_BYTES);
        let foreign = rig.device.create_protection_domain()?.share(TARGET_BYTES, RemoteRights::ALL)?;
        register(
            &mut reference,
            FOREIGN_DOMAIN,
            shared(&foreign),
            SIDES * side_bytes,
            RemoteRights::ALL,
            false,
        );
        let mut sides = Vec::new();
        for index in 0..SIDES {
            let offset = index * side_bytes;
            let region = rig.domain.share(TARGET_BYTES, RemoteRights::ALL)?;
            let local = rig.domain.share(TARGET_BYTES, RemoteRights::NONE)?;
            let ended = rig.domain.share_invalidatable(TARGET_BYTES, RemoteRights::ALL)?;
            let ended_place = offset + 2 * TARGET_BYTES;
            let places = [
                (&region, offset, RemoteRights::ALL, false),
                (&local, offset + TARGET_BYTES, RemoteRights::NONE, false),
                (&ended, ended_place, RemoteRights::ALL, true),
            ];
            for (region, place, rights, is_invalidatable) in places {
                let mut bytes = vec![0; TARGET_BYTES];
                random.fill(bytes.as_mut_slice());
                region.write(0, &bytes)?;
                register(&mut reference, DOMAIN, shared(region), place, rights, is_invalidatable);
                reference.memory().bytes[place..][..TARGET_BYTES].copy_from_slice(&bytes);
            }
            let mut rest = rig.domain.allocate(RECEIVES * RECEIVE_BYTES)?;
            let memory = (rest.key(), rest.address(), rest.len());
            let place = offset + 3 * TARGET_BYTES;
            register(&mut reference, DOMAIN, memory, place, RemoteRights::NONE, false);
            let mut room = Vec::new();
            for _ in 1..RECEIVES {
                let (piece, tail) = rest.split_at(RECEIVE_BYTES).expect("there is enough for all");
                room.push(piece);
                rest = tail;
            }
            room.push(rest);
            let landing = rig.domain.allocate(LANDING_BYTES)?;
            let landing_place = (landing.key(), landing.address());
            let place = offset + 3 * TARGET_BYTES + RECEIVES * RECEIVE_BYTES;
            let own = (landing_place.0, landing_place.1, LANDING_BYTES);
            register(&mut reference, DOMAIN, own, place, RemoteRights::NONE, false);
            sides.push(Side {
                queue_pair: None,
                number: 0,
                peer: ATTACKER + index as u32,
                version: index % 2,
                region,
                local,
                ended,
                ended_place,
                room,
                room_key: memory.0,
                posted: VecDeque::new(),
                wr_id: 0,
                begun: Begun::Nothing,
                asked: 0,
                reads: 0,
                outstanding: VecDeque::new(),
                landing: Some(landing),
                landing_place,
                read: Vec::new(),
                words: Vec::new(),
                is_raced: false,
                raced_words: Vec::new(),
                kept: VecDeque::new(),
                expected: Seen::default(),
                found: Seen::default(),
            });
        }
        let bystander = Bystander::new(rig, width_bits)?;
        let mut ground = Ground { sides, reference, foreign, bystander };
        for index in 0..SIDES {
            ground.connect(rig, random, index)?;
        }
        Ok(ground)
    }

    /// QPNs of the card that no mutant may be sent to.
    pub(crate) fn kept_numbers(&self, rig: &Rig) -> Vec<u32> {
        let own = rig.bystander.iter().map(|queue_pair| queue_pair.number());
        own.chain([self.bystander.number()]).collect()
    }

    /// Returns whether a queue pair has not failed.
    pub(crate) fn is_live(&self, index: usize) -> bool {
        self.reference.state(self.sides[index].number) == QpState::ReadyToSend
    }

    /// Connects a queue pair for the first time, or again after it was reset.
    fn connect(&mut self, rig: &Rig, random: &mut ChaCha8Rng, index: usize) -> Result<()> {
        let side = &mut self.sides[index];
        let queue_pair = match side.queue_pair.take() {
            None => rig.new_queue_pair(RemoteRights::ALL)?,
            Some(queue_pair) => {
                let queue_pair = queue_pair.reset().map_err(rnic_driver::Error::from)?;
                queue_pair.initialize(RemoteRights::ALL).map_err(rnic_driver::Error::from)?
            }
        };
        let first_psn = match random.random_range(0..3) {
            0 => PSN_COUNT - random.random_range(1..20),
            1 => random.random_range(0..4),
            _ => random.random_range(0..PSN_COUNT),
        };
        side.number = queue_pair.number();
        let own = queue_pair.info(side.version)?;
        // A share of READ slots of each size: the card keeps as many answers for duplicates as the reference.
        let reads = [4, 8, 16][random.random_range(0..3)];
        side.reads = reads;
        side.queue_pair = Some(rig.connect_with(
            queue_pair,
            side.peer,
            side.version,
            Pmtu::Bytes256,
            first_psn,
            |options| {
                options.destination_read_atomic = Some(reads);
                options.send.read_atomic = Some(reads);
            },
        )?);
        (side.begun, side.posted) = (Begun::Nothing, VecDeque::new());
        side.outstanding.clear();
        if self.reference.memory().region(side.ended.remote().key).is_none() {
            let ended = rig.domain.share_invalidatable(TARGET_BYTES, RemoteRights::ALL)?;
            ended.write(0, &bytes_of(&side.ended)?)?;
            side.ended = ended;
            register(
                &mut self.reference,
                DOMAIN,
                shared(&side.ended),
                side.ended_place,
                RemoteRights::ALL,
                true,
            );
        }
        self.reference.create(QueuePairSetup {
            domain: DOMAIN,
            pmtu: Pmtu::Bytes256,
            send_psn: Psn::wrapping(own.first_psn),
            receive_psn: Psn::wrapping(first_psn),
            min_rnr_timer: MIN_RNR_TIMER,
            destination_read_atomic: reads,
            read_atomic: reads,
            send_completions: side.number | SENDS,
            receive_completions: side.number,
            ..QueuePairSetup::new(side.number, side.peer, path_to_card(side.version).reversed())
        });
        Ok(())
    }

    /// Connects again most of what has failed, and posts receives: now and then none. Returns how many were connected.
    pub(crate) fn prepare(&mut self, rig: &Rig, random: &mut ChaCha8Rng) -> Result<u64> {
        let mut again = 0;
        for index in 0..SIDES {
            if !self.is_live(index) {
                if random.random_bool(0.1) {
                    continue;
                }
                self.connect(rig, random, index)?;
                again += 1;
            }
            let side = &mut self.sides[index];
            (side.asked, side.is_raced) = (0, false);
            side.read.clear();
            side.words.clear();
            let wanted = if random.random_bool(0.1) { 0 } else { RECEIVES };
            while side.posted.len() < wanted {
                let mut piece = side.room.pop().context("there is memory for all receives")?;
                piece.bytes_mut().fill(UNTOUCHED);
                side.wr_id += 1;
                let (wr_id, address, key) = (side.wr_id, piece.address(), piece.key());
                let sge = Sge { address, key, length: RECEIVE_BYTES as u32 };
                let place = place_of(&mut self.reference, key, address)?;
                self.reference.memory().bytes[place..][..RECEIVE_BYTES].fill(UNTOUCHED);
                self.reference.post_receive(side.number, ReceiveWqe { wr_id, sges: vec![sge] });
                let queue_pair = side.queue_pair.as_mut().context("it is connected")?;
                let request = ReceiveRequest::new(wr_id).sge(piece);
                queue_pair.post_receive(request)?;
                side.posted.push_back((wr_id, address));
            }
        }
        for index in 0..SIDES {
            if self.is_live(index) && self.sides[index].outstanding.is_empty() && random.random_bool(0.3) {
                self.ask(random, index)?;
            }
        }
        // The read returns after the doorbells.
        rig.device.check()?;
        Ok(again)
    }

    /// The card posts a request to the peer, which does not answer by itself.
    fn ask(&mut self, random: &mut ChaCha8Rng, index: usize) -> Result<()> {
        let side = &mut self.sides[index];
        let first_psn = self.reference.next_psn(side.number);
        side.wr_id += 1;
        let wr_id = side.wr_id;
        let remote = RemoteMemory { address: 0x7000, key: 0x99, bytes: LANDING_BYTES as u64 };
        let RemoteMemory { address, key, .. } = remote;
        let data = [7; 20];
        let landed = |side: &mut Side, bytes: usize| -> Result<(Region, Data)> {
            let whole = side.landing.take().context("its memory is there")?;
            let (address, key) = (whole.address(), whole.key());
            let (piece, rest) = whole.split_at(bytes).expect("it is shorter");
            side.landing = Some(rest);
            Ok((piece, Data::Sges(vec![Sge { address, key, length: bytes as u32 }])))
        };
        let (kind, request, operation, data) = match random.random_range(0..5) {
            0 => {
                let request = SendRequest::write(wr_id, remote).inline(&data);
                let operation = PeerOperation::Write { address, key };
                (AskedKind::Write, request, operation, Data::Inline(data.to_vec()))
            }
            1 => {
                let request = SendRequest::send(wr_id).inline(&data);
                (AskedKind::Send, request, PeerOperation::Send, Data::Inline(data.to_vec()))
            }
            2 => {
                let (piece, data) = landed(side, 8)?;
                let remote = RemoteMemory { bytes: 8, ..remote };
                let request = SendRequest::fetch_add(wr_id, remote, 5).sge(piece);
                (AskedKind::Atomic, request, PeerOperation::FetchAdd { address, key, add: 5 }, data)
            }
            _ => {
                let bytes = random.random_range(1..LANDING_BYTES);
                let (piece, data) = landed(side, bytes)?;
                let remote = RemoteMemory { bytes: bytes as u64, ..remote };
                let request = SendRequest::read(wr_id, remote).sge(piece);
                (AskedKind::Read(bytes, 0), request, PeerOperation::Read { address, key }, data)
            }
        };
        let queue_pair = side.queue_pair.as_mut().context("it is connected")?;
        queue_pair.post_send(request.signalled())?;
        side.outstanding.push_back(Asked { wr_id, first_psn, kind });
        self.reference.post_send(side.number, SendWqe::new(wr_id, operation, data));
        self.collect()
    }

    /// A valid response to the oldest request.
    pub(crate) fn response(&mut self, random: &mut ChaCha8Rng, index: usize) -> Option<Vec<u8>> {
        let side = &self.sides[index];
        let packet = side.outstanding.front()?.response(random, side.number);
        Some(packet.frame(&path_to_card(side.version), random.random()))
    }

    /// A request for a queue pair, and whether it must be executed if nothing is wrong with it.
    pub(crate) fn request(&mut self, random: &mut ChaCha8Rng, index: usize) -> (Vec<u8>, bool) {
        let side = &mut self.sides[index];
        match random.random_range(0..40) {
            // One that was sent before, in this life of the queue pair or in another.
            0 | 1 if !side.kept.is_empty() => {
                let kept = side.kept.iter().choose(random).expect("there are some");
                return (kept.clone(), false);
            }
            // One that comes too early.
            2 => {
                let ahead = random.random_range(1..4);
                return (side.state(&mut self.reference, ahead).request(random), false);
            }
            _ => {}
        }
        let frame = side.state(&mut self.reference, 0).request(random);
        if side.kept.len() == KEPT {
            side.kept.pop_front();
        }
        side.kept.push_back(frame.clone());
        // A WRITE whose length was mutated may be complete already.
        let is_open = !matches!(side.begun, Begun::Write(_, 0));
        (frame, is_open && self.is_live(index))
    }

    /// A minimum frame that changes nothing: an ACK that nobody waits for, or a duplicate that asks for nothing.
    pub(crate) fn idle_frame(&mut self, random: &mut ChaCha8Rng, index: usize) -> Vec<u8> {
        let side = &self.sides[index];
        let path = path_to_card(side.version);
        if random.random() {
            let header = ExtendedRepr::Aeth(AethRepr { syndrome: 0x1f, msn: Psn::ZERO });
            let bth = BthRepr::new(Op::Acknowledge.code(), side.number, Psn::wrapping(random.random()));
            return Packet::new(bth, vec![header], Vec::new()).frame(&path, random.random());
        }
        let psn = self.reference.expected_psn(side.number).sub(1);
        let bth = BthRepr::new(Op::SendOnly.code(), side.number, psn);
        Packet::new(bth, Vec::new(), Vec::new()).frame(&path, random.random())
    }

    /// The request that a queue pair would expect if it had not failed.
    pub(crate) fn late_frame(&self, index: usize) -> Vec<u8> {
        let side = &self.sides[index];
        let psn = self.reference.expected_psn(side.number);
        let bth = BthRepr::new(Op::SendOnly.code(), side.number, psn);
        Packet::new(bth, Vec::new(), Vec::new()).frame(&path_to_card(side.version), 1)
    }

    /// Returns whether a frame is left out:
    ///
    /// * one that repeats a READ or an atomic. The reference answers all, in the order in which they came. The card answers them
    ///   before what it has not answered yet, and one that follows in the place of the one before it (protocol 3.4): what it sends
    ///   depends on time;
    /// * a READ or an atomic after as many as the queue pair takes at a time. Whether the card has answered one of them, and takes
    ///   it, or refuses it, depends on time;
    /// * a request of a peer that owes a response, which it has become by a mutation. If the next response fails the queue pair,
    ///   whether the request is still answered depends on time.
    pub(crate) fn is_left_out(&self, frame: &[u8]) -> bool {
        let Ok(packet) = PacketRepr::parse(frame) else { return false };
        let number = packet.bth.destination_qp;
        let Some(side) = self.sides.iter().find(|side| side.number == number) else { return false };
        let is_duplicate =
            matches!(packet.bth.psn.check(self.reference.expected_psn(number)), PsnCheck::Duplicate(_));
        let is_full = side.asked >= side.reads.into();
        match opcode::lookup(packet.bth.opcode).map(|row| row.operation) {
            Some(Op::ReadRequest | Op::CompareSwap | Op::FetchAdd) if is_duplicate || is_full => true,
            _ => {
                let is_request = opcode::class(packet.bth.opcode) == Some(opcode::Class::Request);
                is_request && !side.outstanding.is_empty()
            }
        }
    }

    /// Gives a frame to the reference, and keeps what it does.
    pub(crate) fn tell(&mut self, frame: &[u8]) -> Result<Outcome> {
        let outcome = self.reference.receive(frame);
        if let (Outcome::Executed | Outcome::Duplicate, Ok(packet)) = (outcome, PacketRepr::parse(frame)) {
            let number = packet.bth.destination_qp;
            let side = self.side_of(number);
            let side = side.context("only queue pairs under attack execute")?;
            side.follow(&packet, outcome == Outcome::Executed);
        }
        if let (Outcome::Answered, Ok(packet)) = (outcome, PacketRepr::parse(frame)) {
            let number = packet.bth.destination_qp;
            let side = self.side_of(number);
            if let Some(Asked { first_psn, kind: AskedKind::Read(_, came), .. }) =
                side.and_then(|side| side.outstanding.front_mut())
                && packet.bth.psn == first_psn.add(*came)
            {
                *came += 1;
            }
        }
        self.collect()?;
        Ok(outcome)
    }

    /// Collects what the reference has done.
    fn collect(&mut self) -> Result<()> {
        while let Some(frame) = self.reference.transmit() {
            let (peer, answer) = Answer::of(&frame)?;
            self.side_of_peer(peer).context("the reference answers")?.expected.sent(answer);
        }
        for index in 0..SIDES {
            let number = self.sides[index].number;
            while let Some(completion) = self.reference.poll(number) {
                let done = self.done(index, &completion)?;
                self.sides[index].expected.done.push(done);
            }
            while let Some(completion) = self.reference.poll(number | SENDS) {
                let done = self.sent(index, &completion)?;
                self.sides[index].expected.done.push(done);
            }
        }
        while let Some(event) = self.reference.event() {
            let side = self.side_of(event.qp_number);
            side.context("an event has an object")?.expected.events.push(event.kind);
        }
        Ok(())
    }

    /// Counter of the reference.
    pub(crate) fn count_of(&self, name: &str) -> u64 {
        self.reference.counter(name)
    }

    /// The side with a QPN of the card.
    fn side_of(&mut self, number: u32) -> Option<&mut Side> {
        self.sides.iter_mut().find(|side| side.number == number)
    }

    /// The side with a QPN of the peer.
    fn side_of_peer(&mut self, peer: u32) -> Option<&mut Side> {
        self.sides.iter_mut().find(|side| side.peer == peer)
    }

    /// A completion of the reference's send queue as software sees it.
    fn sent(&mut self, index: usize, completion: &Completion) -> Result<Done> {
        let Completion { wr_id, status, length, .. } = *completion;
        let side = &mut self.sides[index];
        let place = side.outstanding.iter().position(|asked| asked.wr_id == wr_id);
        let asked = side.outstanding.remove(place.context("it was posted")?).context("it was posted")?;
        let is_filled = matches!(asked.kind, AskedKind::Read(..) | AskedKind::Atomic);
        let (key, address) = side.landing_place;
        let place = place_of(&mut self.reference, key, address)?;
        let bytes = self.reference.memory().bytes[place..][..length as usize].to_vec();
        let is_success = status == CompletionStatus::Success;
        let message = (is_success && is_filled).then_some((length, None, bytes));
        Ok(Done { is_receive: false, wr_id, status, message })
    }

    /// A completion of the reference's receive queue as software sees it.
    fn done(&mut self, index: usize, completion: &Completion) -> Result<Done> {
        let Completion { wr_id, status, length, immediate, .. } = *completion;
        let side = &mut self.sides[index];
        // A WRITE with immediate may be longer than the receive that it takes, and changes nothing in it.
        let place = side.posted.iter().position(|(posted, _)| *posted == wr_id);
        let (_, address) = side.posted.remove(place.context("it was posted")?).context("it was posted")?;
        let place = place_of(&mut self.reference, side.room_key, address)?;
        let bytes = (length as usize).min(RECEIVE_BYTES);
        let message = self.reference.memory().bytes[place..][..bytes].to_vec();
        let is_success = status == CompletionStatus::Success;
        let message = is_success.then_some((length, immediate, message));
        Ok(Done { is_receive: true, wr_id, status, message })
    }

    /// Takes what the card has done.
    pub(crate) fn take(&mut self, rig: &Rig) -> Result<()> {
        for frame in rig.heard() {
            let (peer, answer) = Answer::of(&frame)?;
            if Bystander::is_for(peer) {
                continue;
            }
            let side = self.side_of_peer(peer);
            side.with_context(|| format!("the card sends to {peer:#x}"))?.found.sent(answer);
        }
        while let Some(completion) = rig.receives.poll_one()? {
            let side = self.side_of(completion.qp_number);
            let side = side.with_context(|| format!("an unknown queue pair completes {completion:?}"))?;
            let is_success = completion.is_success();
            let length = completion.length;
            let message = is_success.then(|| (length, completion.immediate, completion.message()));
            let (wr_id, status) = (completion.wr_id, completion.status);
            side.found.done.push(Done { is_receive: true, wr_id, status, message });
            side.room.extend(completion.sg_list);
        }
        while let Some(completion) = rig.sends.poll_one()? {
            let side = self.side_of(completion.qp_number);
            let side = side.with_context(|| format!("an unknown queue pair completes {completion:?}"))?;
            let is_filled = completion.is_success() && !completion.sg_list.is_empty();
            let message = is_filled.then(|| (completion.length, None, completion.message()));
            let (wr_id, status) = (completion.wr_id, completion.status);
            side.found.done.push(Done { is_receive: false, wr_id, status, message });
            if let Some(piece) = completion.sg_list.into_iter().next() {
                let rest = side.landing.take().context("the rest of it is there")?;
                side.landing = Some(piece.join(rest).map_err(|_| anyhow::anyhow!("both are neighbours"))?);
            }
        }
        while let Some(event) = rig.event()? {
            let side = self.side_of(event.object_number);
            side.with_context(|| format!("{event:?} of an unknown object"))?.found.events.push(event.code);
        }
        Ok(())
    }

    /// Returns whether the card has done all that the reference has.
    pub(crate) fn is_done(&self) -> bool {
        self.sides.iter().all(Side::is_same)
    }

    /// Counts the answers of the card since the last comparison whose syndrome is in a range.
    pub(crate) fn heard(&self, syndromes: RangeInclusive<u8>) -> u64 {
        let answers = self.sides.iter().flat_map(|side| &side.found.answers);
        let found = answers.filter(|answer| answer.aeth.is_some_and(|(found, _)| syndromes.contains(&found)));
        found.count() as u64
    }

    /// Fails if card and reference differ. The first queue pair that does.
    pub(crate) fn check(&mut self) -> Result<(), (usize, String)> {
        for (index, side) in self.sides.iter().enumerate() {
            if !side.is_same() {
                let [found, expected] =
                    [&side.found, &side.expected].map(|seen| seen.comparable(side.is_raced));
                return Err((index, format!("the card does\n  {found:?}\nand not\n  {expected:?}")));
            }
        }
        for index in 0..SIDES {
            self.check_memory(index).map_err(|error| (index, format!("{error:#}")))?;
            let side = &mut self.sides[index];
            (side.found, side.expected) = (Seen::default(), Seen::default());
        }
        let place = self.reference.memory().bytes.len() - TARGET_BYTES;
        let foreign = bytes_of(&self.foreign).map_err(|error| (0, format!("{error:#}")))?;
        let is_same = ensure_same(&foreign, &self.reference.memory().bytes[place..]);
        is_same.map_err(|error| (0, format!("memory of another domain: {error:#}")))
    }

    /// Gives the reference the words that an atomic and a later WRITE have changed on the card, in either order.
    fn take_raced_words(&mut self, index: usize) -> Result<()> {
        let words = std::mem::take(&mut self.sides[index].raced_words);
        let Side { region, ended, ended_place, .. } = &self.sides[index];
        let regions = [(region, ended_place - 2 * TARGET_BYTES), (ended, *ended_place)];
        for (key, address) in words {
            let found = regions.iter().find(|(region, _)| region.remote().key == key);
            let (region, place) = found.context("an atomic accesses memory of its queue pair")?;
            let offset = (address - region.remote().address) as usize;
            region.read(offset, &mut self.reference.memory().bytes[place + offset..][..ATOMIC_BYTES])?;
        }
        Ok(())
    }

    /// Memory is as in the reference: also what lies beside the bytes that were granted.
    fn check_memory(&mut self, index: usize) -> Result<()> {
        self.take_raced_words(index)?;
        let side = &self.sides[index];
        let place = side.ended_place - 2 * TARGET_BYTES;
        let parts = [
            ("the region", bytes_of(&side.region)?, place),
            ("memory without remote rights", bytes_of(&side.local)?, place + TARGET_BYTES),
            ("memory that may be invalidated", bytes_of(&side.ended)?, side.ended_place),
        ];
        for (name, found, place) in parts {
            let expected = &self.reference.memory().bytes[place..][..TARGET_BYTES];
            ensure_same(&found, expected).with_context(|| name)?;
        }
        for piece in &side.room {
            let place = place_of(&mut self.reference, piece.key(), piece.address())?;
            let expected = &self.reference.memory().bytes[place..][..RECEIVE_BYTES];
            ensure_same(&piece.bytes(), expected).context("a receive")?;
        }
        Ok(())
    }
}
