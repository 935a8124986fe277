//! The verilated card as one side of a run.
//!
//! Nothing in the rig answers it: the frames of the other side are those of the run. Its timers stand still, by a long unit, and
//! run when the run says so.
use crate::mapping::{self, MEMORY_BYTES, MESSAGE_BYTES, Mapping, PMTU, Remote};
use crate::play::{Done, Stimulus, Subject, Turn, play};
use crate::reference::{after, before, received, returned};
use crate::rig::{self, IPV4, RECEIVE_TAG, Rig, ensure_same, path_to_card};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Options, QueuePair, QueuePairOptions, ReceiveRequest, RemoteMemory, RemoteRights, SendRequest,
    SharedRegion,
};
use rnic_layout::registers::REG_TIMER_UNIT;
use rnic_layout::wire::PacketRepr;
use rnic_machine::host::{Bar, HostOptions};
use rnic_protocol::{Kind, Side, Trace};
use std::collections::BTreeMap;

/// QPN of the other side, which the rig's endpoint does not have.
const PEER: u32 = 0x59;
/// Memory of a responder that is the test, as the card names it.
const REMOTE: Remote = Remote { address: 0x4000_0000, key: 0x777 };
/// Cycles in the unit of the timers: so many that none expires, and so few that one expires soon.
const STANDING: u64 = 0xffff;
const RUNNING: u64 = 4;
/// Code of the timeout, in which T is 256 units, and of the delay of an RNR NAK: 3 units.
const TIMEOUT: u8 = 8;
const RNR_TIMER: u8 = 1;
/// Tenths of a microsecond that the card gets for what is expected, for what is not, and at the end of a run.
const EXPECTED_IDLES: usize = 400;
const QUIET_IDLES: usize = 3;
const LAST_IDLES: usize = 12;

/// The card and its rig, for one run after the other.
pub(crate) struct Player {
    pub(crate) rig: Rig,
}

impl Player {
    /// Opens the card on an ideal host, which costs the least time.
    pub(crate) fn new(width_bits: u32) -> Result<Player> {
        let rig = Rig::on_host(width_bits, 21, Options::new(rig::CARD_MAC).eqes_log2, HostOptions::IDEAL)?;
        let player = Player { rig };
        player.set_unit(STANDING)?;
        Ok(player)
    }

    fn set_unit(&self, cycles: u64) -> Result<()> {
        Ok(self.rig.world().write_register(0, Bar::Registers, REG_TIMER_UNIT.offset.into(), cycles)?)
    }
}

struct Card<'a> {
    player: &'a mut Player,
    queue_pair: QueuePair<ReadyToSend>,
    trace: &'a Trace,
    role: Side,
    receives: u8,
    /// What READs, atomics and SENDs have brought, by message or receive.
    brought: BTreeMap<u8, Vec<u8>>,
}

impl Card<'_> {
    fn receive(&mut self) -> Result<()> {
        let memory = self.player.rig.domain.allocate(MESSAGE_BYTES)?;
        let request = ReceiveRequest::new(u64::from(self.receives) | RECEIVE_TAG).sge(memory);
        self.receives += 1;
        Ok(self.queue_pair.post_receive(request)?)
    }

    fn begin(&mut self, mapping: &Mapping) -> Result<()> {
        if self.role == Side::Responder {
            (0..self.trace.receives_before).try_for_each(|_| self.receive())?;
            // The read returns after the doorbells.
            return Ok(self.player.rig.device.check()?);
        }
        let mut requests = Vec::new();
        for (number, message) in self.trace.messages.iter().enumerate() {
            let Remote { address, key } = mapping.remote.of(number, message);
            let bytes = mapping::length(number, message);
            let remote = RemoteMemory { address, key, bytes: bytes as u64 };
            let wr_id = number as u64;
            let request = match message.kind {
                Kind::Send => SendRequest::send(wr_id),
                Kind::Write => SendRequest::write(wr_id, remote),
                Kind::WriteImm => SendRequest::write_immediate(wr_id, remote, mapping::IMMEDIATE),
                Kind::Read => SendRequest::read(wr_id, remote),
                Kind::Atomic => SendRequest::fetch_add(wr_id, remote, mapping::ADDEND),
            };
            let mut memory = self.player.rig.domain.allocate(bytes)?;
            if !message.kind.returns_data() {
                memory.bytes_mut().copy_from_slice(&mapping::contents(number, message));
            }
            requests.push(request.sge(memory).signalled());
        }
        self.queue_pair.post_sends(&mut requests)?;
        Ok(())
    }

    /// Adds what the card has sent to the other side, and what it has completed.
    fn note(&mut self, done: &mut Done) -> Result<()> {
        let is_of_run =
            |frame: &Vec<u8>| PacketRepr::parse(frame).is_ok_and(|packet| packet.bth.destination_qp == PEER);
        done.frames.extend(self.player.rig.heard().into_iter().filter(is_of_run));
        let number = self.queue_pair.number();
        for found in self.player.rig.completions()? {
            // Receives of a queue pair that has failed are flushed, which the model does not follow.
            let is_of_role = found.is_receive == (self.role == Side::Responder);
            let is_flushed =
                found.is_receive && found.status != mapping::status(rnic_protocol::Status::Success);
            if found.qp_number != number || !is_of_role || is_flushed {
                continue;
            }
            let wr_id = (found.wr_id & !RECEIVE_TAG) as u8;
            done.completions.push((wr_id, found.status));
            self.brought.insert(wr_id, found.message);
        }
        Ok(())
    }
}

impl Subject for Card<'_> {
    fn take(&mut self, mapping: &Mapping, turn: &Turn) -> Result<Done> {
        let is_timer = matches!(turn.stimulus, Stimulus::Timeout | Stimulus::RnrWaitEnds);
        match turn.stimulus {
            Stimulus::Begin => self.begin(mapping)?,
            Stimulus::Arrives(frame) => {
                self.player.rig.send(&[mapping.packet(&frame).frame(&path_to_card(IPV4), 1)]);
            }
            Stimulus::Timeout | Stimulus::RnrWaitEnds => self.player.set_unit(RUNNING)?,
            Stimulus::Receive => {
                self.receive()?;
                self.player.rig.device.check()?;
            }
        }
        let mut done = Done::default();
        let before = self.player.rig.moved()?.of("timeout");
        ensure!(before == 0, "the timer fires by itself");
        for _ in 0..EXPECTED_IDLES {
            let is_there =
                done.frames.len() >= turn.frames.len() && done.completions.len() >= turn.completions.len();
            let has_fired =
                turn.stimulus != Stimulus::Timeout || !turn.frames.is_empty() || !turn.completions.is_empty();
            if is_there && has_fired {
                break;
            }
            self.player.rig.idle(1);
            self.note(&mut done)?;
        }
        if is_timer {
            self.player.set_unit(STANDING)?;
        }
        self.player.rig.idle(QUIET_IDLES);
        self.note(&mut done)?;
        let fired = self.player.rig.moved()?.of("timeout");
        ensure!(fired == u64::from(turn.stimulus == Stimulus::Timeout), "{fired} timeouts");
        Ok(done)
    }

    fn rest(&mut self) -> Result<Done> {
        let mut done = Done::default();
        self.player.rig.idle(LAST_IDLES);
        self.note(&mut done)?;
        Ok(done)
    }
}

fn connect(player: &Player, trace: &Trace) -> Result<QueuePair<ReadyToSend>> {
    let first_psn = mapping::first_psn(trace).value();
    let options = QueuePairOptions { first_psn: Some(first_psn), ..QueuePairOptions::default() };
    let Rig { domain, sends, receives, .. } = &player.rig;
    let queue_pair = domain.create_queue_pair(sends, receives, &options)?;
    let queue_pair = queue_pair.initialize(RemoteRights::ALL).map_err(rnic_driver::Error::from)?;
    player.rig.connect_with(queue_pair, PEER, IPV4, PMTU, first_psn, |options| {
        options.min_rnr_timer = RNR_TIMER;
        options.destination_read_atomic = Some(trace.slots);
        options.send.timeout = TIMEOUT;
        options.send.retry_count = trace.retries;
        options.send.rnr_retry = trace.rnr_retries;
        options.send.read_atomic = Some(trace.slots);
    })
}

/// Plays a run with the card in a role.
pub(crate) fn run(player: &mut Player, trace: &Trace, role: Side) -> Result<()> {
    let queue_pair = connect(player, trace)?;
    let window = player.rig.domain.share(MEMORY_BYTES, RemoteRights::ALL)?;
    window.write(0, &before(trace))?;
    player.rig.settle()?;
    let number = queue_pair.number();
    let (requester, responder, remote) = match role {
        Side::Requester => (number, PEER, REMOTE),
        Side::Responder => (PEER, number, remote_of(&window)),
    };
    let mapping = Mapping { trace, remote, requester, responder, rnr_timer: RNR_TIMER };
    let mut card = Card { player, queue_pair, trace, role, receives: 0, brought: BTreeMap::new() };
    let played = play(&mapping, role, &mut card);
    let Card { brought, queue_pair, player, .. } = card;
    drop(queue_pair);
    player.set_unit(STANDING)?;
    player.rig.settle()?;
    played?;
    match role {
        Side::Responder => {
            let mut memory = vec![0; MEMORY_BYTES];
            window.read(0, &mut memory)?;
            ensure_same(&memory, &after(trace)).context("memory of the responder")?;
            let sends = received(trace).into_iter().enumerate();
            for (receive, message) in sends.filter(|(_, message)| trace.messages[*message].kind == Kind::Send)
            {
                let contents = mapping::contents(message, &trace.messages[message]);
                ensure_same(&brought[&(receive as u8)], &contents)
                    .with_context(|| format!("SEND {message}"))?;
            }
        }
        Side::Requester => {
            for (message, expected) in returned(trace) {
                ensure_same(&brought[&(message as u8)], &expected)
                    .with_context(|| format!("data of message {message}"))?;
            }
        }
    }
    Ok(())
}

fn remote_of(window: &SharedRegion) -> Remote {
    let RemoteMemory { address, key, .. } = window.remote();
    Remote { address, key }
}
