//! What happens in the middle of a message: a region ends while a READ of it runs (trace I of protocol 3.12), on either side, and
//! a receive is missing at the last packet of a WRITE with immediate data (protocol 2.7), on either side.
use crate::asker::{Asker, FIRST_PSN, responses, same};
use crate::rig::{Faults, IPV4, PEER_FIRST, PEER_KEY, RECEIVE_TAG, Rig, ensure_same, path_to_card};
use crate::traces::UNIT;
use anyhow::{Context, Result, ensure};
use rnic_driver::{ConnectOptions, RemoteMemory, RemoteRights, SendRequest};
use rnic_endpoint::packet::Packet;
use rnic_endpoint::qp::ReceiveWqe;
use rnic_layout::opcode::{Operation as Op, lookup};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::registers::REG_TIMER_UNIT;
use rnic_layout::wire::extended::{AethRepr, ImmediateRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr};
use rnic_machine::host::Bar as Window;

/// QPN of the endpoint's side.
const PEER: u32 = 0x68;
/// Bytes that the peer reads: at a PMTU of 256 long enough on the wire for a command to end their region meanwhile.
const LONG: usize = 1_000_000;
const IMMEDIATE: [u8; 4] = [4, 3, 2, 1];
/// A WRITE of three packets at a PMTU of 1,024.
const WRITTEN: usize = 2500;

/// An RNR NAK of the last packet of a WRITE with immediate data.
pub(crate) fn receives_are_missing(rig: &mut Rig) -> Result<()> {
    missing_receive_of_the_card(rig).context("an RNR NAK of the card")?;
    missing_receive_of_the_peer(rig).context("an RNR NAK of the peer")
}

/// Trace I with the card as responder: the region ends after the first responses: those that follow are right, and the next one is NAK 0x62, the last packet of all.
pub(crate) fn read_of_the_card(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(LONG, RemoteRights::ALL)?;
    let bytes: Vec<u8> = (0..LONG).map(|place| (place * 41 / 3) as u8).collect();
    window.write(0, &bytes)?;
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes256, window.remote(), 1)?;
    let number = asker.queue_pair.number();
    rig.send(&[asker.read(FIRST_PSN, 0, LONG)]);
    let mut said = Vec::new();
    rig.wait("the first response", |rig| {
        said.extend(asker.heard(rig)?);
        Ok((!said.is_empty()).then_some(()))
    })?;
    drop(window);
    rig.device.check()?;
    let raised = rig.wait("the event", |rig| rig.event())?;
    ensure!(raised.code == AsyncEvent::QueuePairAccessError && raised.object_number == number, "{raised:?}");
    rig.idle(200);
    said.extend(asker.heard(rig)?);
    let (nak, before) = said.split_last().context("there is a NAK")?;
    let expected = responses(FIRST_PSN, 1, &bytes, 256);
    ensure!(before.len() < expected.len(), "the READ was over before its region");
    same(before, &expected[..before.len()])?;
    let psn = (FIRST_PSN + before.len() as u32) & 0xff_ffff;
    same(std::slice::from_ref(nak), &[(Op::Acknowledge, psn, Some(1), vec![0x62])])?;
    drop(asker);
    rig.exchange()?;
    rig.settle()
}

/// The peer's region ends after its first response: a NAK takes the place of the second one, and nothing follows.
struct Revoked {
    /// PSN of the READ, from which on the peer answers nothing but its first response and the NAK.
    read_psn: u32,
    has_ended: bool,
}

impl Faults for Revoked {
    fn pass(&mut self, frame: &[u8], is_received: bool) -> Vec<Vec<u8>> {
        let packet = PacketRepr::parse(frame).expect("it is a packet");
        let psn = packet.bth.psn.value();
        let is_second = !is_received && psn == (self.read_psn + 1) & 0xff_ffff;
        if self.has_ended || (is_received && psn > self.read_psn && psn < FIRST_PSN) {
            return vec![];
        }
        if !is_second {
            return vec![frame.to_vec()];
        }
        self.has_ended = true;
        let aeth = AethRepr { syndrome: 0x62, msn: Psn::wrapping(2) };
        let bth = BthRepr::new(Op::Acknowledge.code(), packet.bth.destination_qp, packet.bth.psn);
        vec![Packet::new(bth, vec![ExtendedRepr::Aeth(aeth)], Vec::new()).frame(&path_to_card(IPV4), 1)]
    }
}

fn remote(place: usize, length: usize) -> RemoteMemory {
    RemoteMemory { address: PEER_FIRST + place as u64, key: PEER_KEY, bytes: length as u64 }
}

/// A queue pair of the card to one of the endpoint, with the first PSN of the traces.
fn to_endpoint(
    rig: &Rig,
    change: impl FnOnce(&mut ConnectOptions),
) -> Result<rnic_driver::QueuePair<rnic_driver::state::ReadyToSend>> {
    let options = rnic_driver::QueuePairOptions { first_psn: Some(FIRST_PSN), ..Default::default() };
    let queue_pair = rig.domain.create_queue_pair(&rig.sends, &rig.receives, &options)?;
    let queue_pair = queue_pair.initialize(RemoteRights::NONE).map_err(rnic_driver::Error::from)?;
    rig.connect_to_endpoint_with(queue_pair, PEER, IPV4, Pmtu::Bytes1024, 7, change)
}

/// Trace I with the card as requester: the WRITE succeeds, the READ has the status of the NAK, and the rest is flushed.
pub(crate) fn read_by_the_card(rig: &mut Rig) -> Result<()> {
    let mut queue_pair = to_endpoint(rig, |_| ())?;
    rig.settle()?;
    rig.set_faults(Some(Box::new(Revoked { read_psn: 1, has_ended: false })));
    let mut payload = rig.domain.allocate(WRITTEN)?;
    payload.bytes_mut().fill(0x3c);
    let mut requests = vec![
        SendRequest::write(0, remote(0, WRITTEN)).sge(payload).signalled(),
        SendRequest::read(1, remote(0x1000, 3000)).sge(rig.domain.allocate(3000)?).signalled(),
        SendRequest::send(2).signalled(),
        SendRequest::fetch_add(3, remote(0x2000, 8), 5).sge(rig.domain.allocate(8)?).signalled(),
    ];
    queue_pair.post_sends(&mut requests)?;
    let done = rig.completed(4)?;
    rig.set_faults(None);
    let found: Vec<_> = done.iter().map(|done| (done.wr_id, done.status)).collect();
    use CompletionStatus::{Flushed, RemoteAccess, Success};
    ensure!(found == [(0, Success), (1, RemoteAccess), (2, Flushed), (3, Flushed)], "{found:?}");
    let moved = rig.moved()?;
    ensure!(moved.of("nak_received") == 1, "{moved:?}");
    drop(queue_pair);
    rig.exchange()?;
    rig.settle()
}

/// A WRITE with immediate data finds no receive at its last packet. The peer may send all of it again: what was executed is not
/// executed again, there is no NAK of a sequence error, and the last packet completes the receive.
fn missing_receive_of_the_card(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(WRITTEN, RemoteRights::ALL)?;
    let mut asker = Asker::connect(rig, IPV4, Pmtu::Bytes1024, window.remote(), 1)?;
    let bytes: Vec<u8> = (0..WRITTEN).map(|place| (place * 43 / 3) as u8).collect();
    let other = vec![0x55; 1024];
    let write = |first: &[u8], middle: &[u8]| {
        let immediate = vec![ExtendedRepr::Immediate(ImmediateRepr { data: u32::from_be_bytes(IMMEDIATE) })];
        let reth = vec![asker.reth(0, WRITTEN)];
        [
            asker.frame(Op::WriteFirst, FIRST_PSN, reth, first.to_vec()),
            asker.frame(Op::WriteMiddle, FIRST_PSN + 1, Vec::new(), middle.to_vec()),
            asker.frame(Op::WriteLastImmediate, 0, immediate, bytes[2048..].to_vec()),
        ]
    };
    let (once, again) = (write(&bytes[..1024], &bytes[1024..2048]), write(&other, &other));
    let said = asker.ask(rig, &once, 1)?;
    let [(Op::Acknowledge, 0, Some(0), carried)] = &said[..] else {
        anyhow::bail!("not one RNR NAK of the last packet: {said:x?}")
    };
    ensure!(carried.len() == 1 && carried[0] >> 5 == 1, "not an RNR NAK: {carried:x?}");
    let receive = rig.receive_request(1);
    asker.queue_pair.post_receive(receive)?;
    rig.device.check()?;
    rig.moved()?;
    // An RNR NAK may be repeated by an ACK of what is before it; no other answer than these may come.
    let mut said = Vec::new();
    rig.send(&again);
    rig.wait("the ACK", |rig| {
        said.extend(asker.heard(rig)?);
        Ok(said.contains(&(Op::Acknowledge, 0, Some(1), Vec::new())).then_some(()))
    })
    .with_context(|| format!("{said:x?}"))?;
    rig.idle(100);
    said.extend(asker.heard(rig)?);
    ensure!(
        said.iter().all(|(operation, .., syndrome)| *operation == Op::Acknowledge && syndrome.is_empty()),
        "{said:x?}"
    );
    let done = rig.wait("the receive", |rig| Ok(rig.completions()?.pop()))?;
    let is_right = done.wr_id == 1 | RECEIVE_TAG && done.status == CompletionStatus::Success;
    ensure!(is_right && done.immediate == Some(IMMEDIATE), "{done:?}");
    let mut found = vec![0; WRITTEN];
    window.read(0, &mut found)?;
    ensure_same(&found, &bytes)?;
    let moved = rig.moved()?;
    ensure!(moved.of("duplicate_request") == 2 && moved.of("nak_sequence_sent") == 0, "{moved:?}");
    drop(asker);
    rig.exchange()?;
    rig.settle()
}

/// The card sends the last packet of its WRITE with immediate data again, after the delay, and nothing else.
fn missing_receive_of_the_peer(rig: &mut Rig) -> Result<()> {
    rig.world().write_register(0, Window::Registers, REG_TIMER_UNIT.offset.into(), UNIT)?;
    let mut queue_pair = to_endpoint(rig, |options| options.send.rnr_retry = 1)?;
    rig.settle()?;
    let bytes: Vec<u8> = (0..WRITTEN).map(|place| (place * 47 / 3) as u8).collect();
    let mut payload = rig.domain.allocate(WRITTEN)?;
    payload.bytes_mut().copy_from_slice(&bytes);
    let write = SendRequest::write_immediate(0, remote(0, WRITTEN), IMMEDIATE).sge(payload).signalled();
    queue_pair.post_send(write)?;
    rig.idle(100);
    rig.endpoint(|endpoint| endpoint.post_receive(PEER, ReceiveWqe { wr_id: 9, sges: vec![] }));
    let mut done = Vec::new();
    rig.wait("the completion", |rig| {
        done.extend(rig.completions()?);
        Ok((!done.is_empty()).then_some(()))
    })?;
    ensure!(done.len() == 1 && done[0].status == CompletionStatus::Success, "{done:?}");
    let heard = rig.heard();
    let packets = heard.iter().filter_map(|frame| PacketRepr::parse(frame).ok());
    let mine = packets.filter(|packet| packet.bth.destination_qp == PEER);
    let requests: Vec<_> = mine
        .map(|packet| (lookup(packet.bth.opcode).expect("it is known").operation, packet.bth.psn.value()))
        .collect();
    let last = (Op::WriteLastImmediate, 0);
    let expected = [(Op::WriteFirst, FIRST_PSN), (Op::WriteMiddle, FIRST_PSN + 1), last, last];
    ensure!(requests == expected, "{requests:x?}");
    rig.endpoint(|endpoint| {
        let received = endpoint.poll(PEER).context("the receive completes")?;
        ensure!(received.wr_id == 9 && received.status == CompletionStatus::Success, "{received:?}");
        ensure_same(&endpoint.memory().bytes[..WRITTEN], &bytes)
    })?;
    drop(queue_pair);
    rig.exchange()?;
    rig.settle()
}
