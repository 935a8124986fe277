//! What a send queue holds back until the peer has answered, and which requests ask for an answer. The test plays the peer, so
//! that each answer comes when the test sends it, and between the answers the card has time to send what it must not.
use crate::rig::{Done, IPV4, Rig, UNTOUCHED, ensure_same, path_to_card, path_to_peer};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{QueuePair, RemoteMemory, RemoteRights, SendOptions, SendRequest, SharedRegion};
use rnic_endpoint::packet::Packet;
use rnic_layout::admin::{Body, Command, CommandHeader, CommandOpcode, CommandStatus};
use rnic_layout::opcode::{Operation, Transport};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::wire::extended::{AethRepr, RethRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr};

/// QPN of the peer, whom the test plays.
const PLAYED: u32 = 0x35;
/// Syndrome of an ACK, and of a NAK for a remote access error.
const ACK: u8 = 0x1f;
const NAK_ACCESS: u8 = 0x62;
/// Time in which the card would send what it must hold back, in tenths of a microsecond: several times the latency of any host.
const LONG: usize = 150;
/// Length of a WRITE of the peer to a host whose writes are late.
const LATE_BYTES: usize = 900;
/// Length of a READ.
const READ_BYTES: usize = 64;
/// What WRITEs and READs name. Nobody looks.
const REMOTE: RemoteMemory = RemoteMemory { address: 0x1000, key: 7, bytes: READ_BYTES as u64 };

fn opcode(operation: Operation) -> u8 {
    Transport::Rc.base() | operation.code()
}

/// A queue pair of the card, and what its peer has seen of it.
struct Play<'rig> {
    rig: &'rig mut Rig,
    queue_pair: QueuePair<ReadyToSend>,
    /// First PSN of the card.
    first_psn: Psn,
    /// Requests that have arrived: opcode, and whether they ask for an answer. Their PSNs follow each other.
    requests: Vec<(u8, bool)>,
    /// Answers that have arrived: syndrome and PSN.
    answers: Vec<(u8, Psn)>,
    done: Vec<Done>,
}

impl Play<'_> {
    fn new(rig: &mut Rig, rights: RemoteRights, read_atomic: Option<u8>) -> Result<Play<'_>> {
        let queue_pair = rig.new_queue_pair(rights)?;
        let first_psn = Psn::wrapping(queue_pair.info(IPV4)?.first_psn);
        let queue_pair = rig.connect_with(queue_pair, PLAYED, IPV4, Pmtu::Bytes1024, 0, |options| {
            options.send = SendOptions { read_atomic, ..options.send };
        })?;
        rig.heard();
        let (requests, answers, done) = Default::default();
        Ok(Play { rig, queue_pair, first_psn, requests, answers, done })
    }

    fn post(&mut self, requests: impl IntoIterator<Item = SendRequest>) -> Result<()> {
        Ok(self.queue_pair.post_sends(&mut requests.into_iter().collect())?)
    }

    fn read(&self, wr_id: u64) -> Result<SendRequest> {
        Ok(SendRequest::read(wr_id, REMOTE).sge(self.rig.domain.allocate(READ_BYTES)?).signalled())
    }

    /// Takes the frames that have arrived.
    fn hear(&mut self) -> Result<()> {
        for frame in self.rig.heard() {
            let packet =
                PacketRepr::parse(&frame).map_err(|reason| anyhow::anyhow!("a frame: {reason:?}"))?;
            if packet.bth.destination_qp != PLAYED {
                continue;
            }
            let aeth = packet.extended_headers().find_map(|header| match header {
                ExtendedRepr::Aeth(aeth) => Some(aeth.syndrome),
                _ => None,
            });
            if let Some(syndrome) = aeth {
                self.answers.push((syndrome, packet.bth.psn));
                continue;
            }
            let psn = self.first_psn.add(self.requests.len() as u32);
            ensure!(packet.bth.psn == psn, "{:?} follows {:?}", packet.bth, self.requests);
            self.requests.push((packet.bth.opcode, packet.bth.ack_request));
        }
        Ok(())
    }

    /// Waits until this many requests have arrived in all.
    fn wait_for(&mut self, count: usize) -> Result<()> {
        for _ in 0..LONG {
            self.hear()?;
            if self.requests.len() >= count {
                return Ok(());
            }
            self.rig.idle(1);
        }
        anyhow::bail!("only {} of {count} requests come", self.requests.len())
    }

    /// Gives the card time, in which no further request may arrive and nothing complete.
    fn holds(&mut self, count: usize) -> Result<()> {
        self.wait_for(count)?;
        self.rig.idle(LONG);
        self.hear()?;
        self.done.extend(self.rig.completions()?);
        ensure!(self.requests.len() == count, "{:x?}, of which {count} may be there", self.requests);
        Ok(())
    }

    /// Answers the request of this number.
    fn answer(&mut self, number: usize) {
        let psn = self.first_psn.add(number as u32);
        let is_read = self.requests[number].0 == opcode(Operation::ReadRequest);
        let operation = if is_read { Operation::ReadResponseOnly } else { Operation::Acknowledge };
        let payload = if is_read { contents(number) } else { Vec::new() };
        let bth = BthRepr::new(opcode(operation), self.queue_pair.number(), psn);
        let aeth = ExtendedRepr::Aeth(AethRepr { syndrome: ACK, msn: Psn::wrapping(number as u32 + 1) });
        self.rig.send(&[Packet::new(bth, vec![aeth], payload).frame(&path_to_card(IPV4), 3)]);
    }

    /// Waits until these work requests have completed, in order and with success.
    fn completes(&mut self, expected: &[u64]) -> Result<()> {
        for _ in 0..LONG {
            self.done.extend(self.rig.completions()?);
            if self.done.len() >= expected.len() {
                break;
            }
            self.rig.idle(1);
        }
        let found = self.done.iter().map(|done| (done.wr_id, done.status));
        let is_right = found.eq(expected.iter().map(|wr_id| (*wr_id, CompletionStatus::Success)));
        ensure!(is_right, "{:?}, expected {expected:?}", self.done);
        Ok(())
    }

    /// The peer writes to the beginning of a region.
    fn send_write(&self, region: &SharedRegion, psn: u32, bytes: Vec<u8>) {
        let RemoteMemory { address, key, .. } = region.remote();
        let bth = BthRepr {
            ack_request: true,
            ..BthRepr::new(opcode(Operation::WriteOnly), self.queue_pair.number(), Psn::wrapping(psn))
        };
        let reth = RethRepr { virtual_address: address, remote_key: key, dma_length: bytes.len() as u32 };
        let write = Packet::new(bth, vec![ExtendedRepr::Reth(reth)], bytes);
        self.rig.send(&[write.frame(&path_to_card(IPV4), 3)]);
    }

    /// The same, and waits for the answer: its syndrome.
    fn write(&mut self, region: &SharedRegion, psn: u32) -> Result<u8> {
        self.send_write(region, psn, vec![0x77; 8]);
        for _ in 0..LONG {
            self.hear()?;
            if let Some((syndrome, answered)) = self.answers.pop() {
                ensure!(answered == Psn::wrapping(psn) && self.answers.is_empty(), "{:x?}", self.answers);
                return Ok(syndrome);
            }
            self.rig.idle(1);
        }
        anyhow::bail!("the card does not answer a WRITE")
    }

    /// The queue pair goes, and the rest of the card works.
    fn end(self) -> Result<()> {
        let Play { rig, queue_pair, .. } = self;
        ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
        drop(queue_pair);
        rig.settle()
    }
}

/// Data of a WRITE of the peer.
fn late_bytes(number: u32) -> Vec<u8> {
    (0..LATE_BYTES as u32).map(|place| (place * 3 + number * 7 + 1) as u8).collect()
}

fn late_contents(region: &SharedRegion) -> Result<Vec<u8>> {
    let mut bytes = vec![0; LATE_BYTES];
    region.read(0, &mut bytes)?;
    Ok(bytes)
}

/// Data of the READ of this number.
fn contents(number: usize) -> Vec<u8> {
    (0..READ_BYTES).map(|place| (place * 5 + number * 11) as u8).collect()
}

/// Fenced work waits for the READs before it, and what comes after it waits as well (protocol 2.10).
fn fence(rig: &mut Rig) -> Result<()> {
    let mut play = Play::new(rig, RemoteRights::NONE, None)?;
    let send = |wr_id: u64| SendRequest::send(wr_id).inline(&[1; 9]).signalled();
    let requests = [play.read(0)?, play.read(1)?, send(2).fence(), send(3)];
    play.post(requests)?;
    play.holds(2)?;
    play.answer(0);
    play.holds(2)?;
    play.answer(1);
    play.wait_for(4)?;
    play.answer(3);
    play.completes(&[0, 1, 2, 3])?;
    for number in [0, 1] {
        ensure_same(&play.done[number].message, &contents(number))?;
    }
    play.end()
}

/// No more READs are outstanding than `max_rd_atomic` (protocol 2.1).
fn read_limit(rig: &mut Rig) -> Result<()> {
    const LIMIT: usize = 3;
    const READS: usize = 6;
    let mut play = Play::new(rig, RemoteRights::NONE, Some(LIMIT as u8))?;
    let requests = (0..READS as u64).map(|wr_id| play.read(wr_id)).collect::<Result<Vec<_>>>()?;
    play.post(requests)?;
    for number in 0..READS {
        play.holds(READS.min(number + LIMIT))?;
        play.answer(number);
    }
    play.completes(&[0, 1, 2, 3, 4, 5])?;
    play.end()
}

/// LOCAL_INVALIDATE waits for the work before it: until then the key is valid, afterwards it is not (protocol 2.10).
fn local_invalidate(rig: &mut Rig, after_read: bool) -> Result<()> {
    let region = rig.domain.share_invalidatable(4096, RemoteRights::WRITE)?;
    let mut play = Play::new(rig, RemoteRights::WRITE, None)?;
    let before =
        if after_read { play.read(0)? } else { SendRequest::write(0, REMOTE).inline(&[2; 10]).signalled() };
    let key = region.remote().key;
    let after = SendRequest::send(2).inline(&[3; 5]).signalled();
    play.post([before, SendRequest::local_invalidate(1, key).signalled(), after])?;
    play.holds(1)?;
    let syndrome = play.write(&region, 0)?;
    ensure!(syndrome == ACK, "the key is valid until the work before has completed: {syndrome:#x}");
    ensure!(play.done.is_empty(), "{:?}", play.done);
    play.answer(0);
    play.wait_for(2)?;
    play.answer(1);
    play.completes(&[0, 1, 2])?;
    ensure!(play.done[1].opcode == CompletionOpcode::LocalInvalidate, "{:?}", play.done);
    let syndrome = play.write(&region, 1)?;
    ensure!(syndrome == NAK_ACCESS, "the key is not valid any more: {syndrome:#x}");
    let event = play.rig.wait("the event", |rig| rig.event())?;
    ensure!(event.code == AsyncEvent::QueuePairAccessError, "{event:?}");
    play.end()
}

/// A region that is destroyed while a READ into it is outstanding, as no driver would: once the command is answered, the card
/// writes nothing there, and the READ fails (protocol 4.6).
fn destroyed_during_read(rig: &mut Rig) -> Result<()> {
    let mut play = Play::new(rig, RemoteRights::NONE, None)?;
    let mut piece = play.rig.domain.allocate(READ_BYTES)?;
    piece.bytes_mut().fill(UNTOUCHED);
    let key = piece.key();
    play.post([SendRequest::read(0, REMOTE).sge(piece).signalled()])?;
    play.holds(1)?;
    let header = CommandHeader { opcode: CommandOpcode::DestroyRegion, tag: 0, object_number: key };
    play.rig.interposer.replace_next(Command { header, body: Body::Destroy }.to_bytes()?);
    // Any command serves. The card does not know the handle, so the driver hears of a refusal when it is dropped.
    let handle = play.rig.domain.create_address_handle(&path_to_peer(IPV4))?;
    let answer = play.rig.interposer.answer()?;
    ensure!(answer.status == CommandStatus::Success && answer.object_number == key, "{answer:?}");
    drop(handle);
    play.answer(0);
    let done = play.rig.wait("the READ", |rig| Ok(rig.sends.poll_one()?))?;
    ensure!(done.status == CompletionStatus::LocalProtection, "{done:?}");
    let is_untouched = done.sg_list.iter().all(|piece| piece.bytes().iter().all(|byte| *byte == UNTOUCHED));
    ensure!(is_untouched, "memory of a destroyed region is written");
    play.end()
}

/// LOCAL_INVALIDATE of a key of another protection domain fails, and the key stays valid (protocol 4.6).
fn foreign_key(rig: &mut Rig) -> Result<()> {
    let other = rig.device.create_protection_domain()?;
    let region = other.share_invalidatable(4096, RemoteRights::WRITE)?;
    let options = rnic_driver::QueuePairOptions::default();
    let owner = other.create_queue_pair(&rig.sends, &rig.receives, &options)?;
    let owner = owner.initialize(RemoteRights::WRITE).map_err(rnic_driver::Error::from)?;
    let owner = rig.connect(owner, PLAYED, IPV4, Pmtu::Bytes1024, 0)?;
    let mut play = Play::new(rig, RemoteRights::NONE, None)?;
    play.post([SendRequest::local_invalidate(0, region.remote().key)])?;
    let done = play.rig.wait("the refusal", |rig| Ok(rig.completions()?.pop()))?;
    ensure!(done.status == CompletionStatus::LocalQueuePairOperation, "{done:?}");
    // The region's owner has another queue pair, on which the peer still writes.
    let mut owner = Play { queue_pair: owner, ..play };
    ensure!(owner.write(&region, 0)? == ACK, "the key of another domain has ended");
    owner.end()
}

/// A signalled message asks for an answer, whatever has been posted after it (protocol 2.4).
fn answers_asked_for(rig: &mut Rig) -> Result<()> {
    let mut play = Play::new(rig, RemoteRights::NONE, None)?;
    let write = |wr_id: u64| SendRequest::write(wr_id, REMOTE).inline(&[4; 12]);
    play.post([write(0).signalled(), write(1), write(2).signalled(), write(3)])?;
    play.holds(4)?;
    let asks: Vec<_> = play.requests.iter().map(|request| request.1).collect();
    ensure!(asks[0] && asks[2] && asks[3], "WRITEs 0 and 2 are signalled, and 3 is the last: {asks:?}");
    // Nothing reports the success of the last one.
    play.answer(3);
    play.completes(&[0, 1, 2])?;
    play.end()
}

/// The bytes of a WRITE are in memory when its ACK leaves (protocol 3.8).
fn acknowledged_is_visible(rig: &mut Rig) -> Result<()> {
    const WRITES: u32 = 12;
    let region = rig.domain.share(LATE_BYTES, RemoteRights::WRITE)?;
    let mut play = Play::new(rig, RemoteRights::WRITE, None)?;
    for number in 0..WRITES {
        let bytes = late_bytes(number);
        play.send_write(&region, number, bytes.clone());
        let mut steps = 0;
        while play.answers.is_empty() {
            ensure!(steps < 100 * LONG, "WRITE {number} is not answered");
            steps += 1;
            play.rig.step_ns(2)?;
            play.hear()?;
        }
        ensure_same(&late_contents(&region)?, &bytes)
            .with_context(|| format!("WRITE {number} is acknowledged"))?;
        play.answers.clear();
    }
    play.end()
}

/// When LOCAL_INVALIDATE completes, no access to the key is in flight, however far a WRITE of the peer has come before it
/// (protocol 2.10).
fn invalidated_is_at_rest(rig: &mut Rig) -> Result<()> {
    const ROUNDS: u32 = 42;
    let mut written = 0;
    for round in 0..ROUNDS {
        let region = rig.domain.share_invalidatable(LATE_BYTES, RemoteRights::WRITE)?;
        let mut play = Play::new(rig, RemoteRights::WRITE, None)?;
        let bytes = late_bytes(round);
        play.post([SendRequest::local_invalidate(0, region.remote().key).signalled()])?;
        play.rig.step_ns(50 * u64::from(round))?;
        play.send_write(&region, 0, bytes.clone());
        let mut steps = 0;
        while play.done.is_empty() {
            ensure!(steps < 100 * LONG, "round {round}: LOCAL_INVALIDATE does not complete");
            steps += 1;
            play.rig.step_ns(10)?;
            play.done = play.rig.completions()?;
        }
        let found = late_contents(&region)?;
        play.rig.idle(LONG);
        let status = play.done[0].status;
        // A WRITE that comes too late for the key fails the queue pair, perhaps before the WQE is executed.
        ensure!(matches!(status, CompletionStatus::Success | CompletionStatus::Flushed), "{status:?}");
        if status == CompletionStatus::Success {
            ensure_same(&late_contents(&region)?, &found)
                .with_context(|| format!("round {round}: the key has ended"))?;
            written += u32::from(found == bytes);
        }
        let Play { rig, queue_pair, .. } = play;
        drop(queue_pair);
        rig.settle()?;
    }
    ensure!((1..ROUNDS).contains(&written), "{written} of {ROUNDS} WRITEs come before the key ends");
    ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
    Ok(())
}

/// All that does not need a special host.
pub(crate) fn what_must_wait(rig: &mut Rig) -> Result<()> {
    fence(rig).context("a fence")?;
    read_limit(rig).context("the limit of READs")?;
    for after_read in [false, true] {
        local_invalidate(rig, after_read)
            .with_context(|| format!("LOCAL_INVALIDATE, after a READ: {after_read}"))?;
    }
    destroyed_during_read(rig).context("a region that is destroyed")?;
    foreign_key(rig).context("the key of another domain")?;
    answers_asked_for(rig).context("requests that ask for an answer")
}

/// What waits for writes to the host, on one whose writes are late.
pub(crate) fn late_writes(rig: &mut Rig) -> Result<()> {
    acknowledged_is_visible(rig).context("an ACK")?;
    invalidated_is_at_rest(rig).context("the end of a key")
}
