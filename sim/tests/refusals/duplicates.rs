//! READs and atomics that a peer asks for again: traces C and G of protocol 3.12, replays in the middle of other answers, more of
//! them than slots, and replays of a region that is gone.
use crate::rig::{IPV4, IPV6, Rig, Version, path_to_card};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{QueuePair, RemoteMemory, RemoteRights};
use rnic_endpoint::packet::Packet;
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::wire::extended::{AethRepr, AtomicEthRepr, RethRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr};

/// QPN of a peer that the endpoint does not have, and its first PSN.
const PEER: u32 = 0x57;
const FIRST_PSN: u32 = 0xff_fffe;
/// Bytes of the card's region; its last ones are a word for atomics.
const WINDOW_BYTES: usize = 30_000;
const WORD: usize = WINDOW_BYTES - 8;
/// Value of the word, and what is added.
const VALUE: u64 = 0x0123_4567_89ab_cdef;
const ADDEND: u64 = 0x1_0000;
/// READs and atomics that may be in flight.
const DEPTH: u8 = 4;

/// A packet of the card: opcode, PSN, MSN of its AETH, and what it carries.
type Said = (Op, u32, Option<u32>, Vec<u8>);

/// A peer without a requester: its frames are made by hand.
struct Asker {
    queue_pair: QueuePair<ReadyToSend>,
    version: Version,
    remote: RemoteMemory,
}

impl Asker {
    fn connect(
        rig: &mut Rig,
        version: Version,
        pmtu: Pmtu,
        remote: RemoteMemory,
        depth: u8,
    ) -> Result<Asker> {
        let queue_pair = rig.new_queue_pair(RemoteRights::ALL)?;
        let queue_pair = rig.connect_with(queue_pair, PEER, version, pmtu, FIRST_PSN, |options| {
            options.destination_read_atomic = Some(depth);
        })?;
        rig.settle()?;
        Ok(Asker { queue_pair, version, remote })
    }

    fn frame(&self, operation: Op, psn: u32, headers: Vec<ExtendedRepr>, payload: Vec<u8>) -> Vec<u8> {
        let bth = BthRepr::new(operation.code(), self.queue_pair.number(), Psn::wrapping(psn));
        let is_read = matches!(operation, Op::ReadRequest | Op::FetchAdd | Op::CompareSwap);
        let ack_request = !is_read && !matches!(operation, Op::WriteFirst | Op::WriteMiddle);
        Packet::new(BthRepr { ack_request, ..bth }, headers, payload).frame(&path_to_card(self.version), 1)
    }

    fn reth(&self, at: usize, length: usize) -> ExtendedRepr {
        ExtendedRepr::Reth(RethRepr {
            virtual_address: self.remote.address + at as u64,
            remote_key: self.remote.key,
            dma_length: length as u32,
        })
    }

    fn read(&self, psn: u32, at: usize, length: usize) -> Vec<u8> {
        self.frame(Op::ReadRequest, psn, vec![self.reth(at, length)], Vec::new())
    }

    fn fetch_add(&self, psn: u32) -> Vec<u8> {
        let atomic = AtomicEthRepr {
            virtual_address: self.remote.address + WORD as u64,
            remote_key: self.remote.key,
            swap_add: ADDEND,
            compare: 0,
        };
        self.frame(Op::FetchAdd, psn, vec![ExtendedRepr::AtomicEth(atomic)], Vec::new())
    }

    fn send(&self, psn: u32) -> Vec<u8> {
        self.frame(Op::SendOnly, psn, Vec::new(), Vec::new())
    }

    /// What the card has sent to the peer.
    fn heard(&self, rig: &mut Rig) -> Result<Vec<Said>> {
        let mut said = Vec::new();
        for frame in rig.heard() {
            let packet = PacketRepr::parse(&frame).map_err(|reason| anyhow::anyhow!("{reason:?}"))?;
            if packet.bth.destination_qp != PEER {
                continue;
            }
            let operation =
                rnic_layout::opcode::lookup(packet.bth.opcode).context("it is assigned")?.operation;
            let (mut msn, mut carries) = (None, packet.payload.to_vec());
            for header in packet.extended_headers() {
                match header {
                    ExtendedRepr::Aeth(AethRepr { syndrome, msn: told }) => {
                        msn = Some(told.value());
                        if operation == Op::Acknowledge && syndrome != 0x1f {
                            carries.push(syndrome);
                        }
                    }
                    ExtendedRepr::AtomicAckEth(atomic) => carries.extend(atomic.original.to_le_bytes()),
                    _ => {}
                }
            }
            said.push((operation, packet.bth.psn.value(), msn, carries));
        }
        Ok(said)
    }

    /// Sends frames, and waits until the card has said this many packets, and says no more.
    fn ask(&self, rig: &mut Rig, frames: &[Vec<u8>], count: usize) -> Result<Vec<Said>> {
        let mut said = Vec::new();
        rig.send(frames);
        rig.wait("the answers", |rig| {
            said.extend(self.heard(rig)?);
            Ok((said.len() >= count).then_some(()))
        })
        .with_context(|| format!("after {}", shown(&said)))?;
        rig.idle(100);
        said.extend(self.heard(rig)?);
        ensure!(said.len() == count, "{} packets, not {count}: {}", said.len(), shown(&said));
        Ok(said)
    }
}

/// Packets in one line.
fn shown(said: &[Said]) -> String {
    let one = |(operation, psn, msn, carried): &Said| {
        let start = &carried[..carried.len().min(8)];
        format!("{operation:?} {psn:#x} MSN {msn:?}, {} bytes {start:02x?}", carried.len())
    };
    said.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn same(said: &[Said], expected: &[Said]) -> Result<()> {
    let place = said.iter().zip(expected).position(|(said, expected)| said != expected);
    let place = place.or((said.len() != expected.len()).then_some(said.len().min(expected.len())));
    let Some(place) = place else { return Ok(()) };
    let [said, expected] = [said, expected].map(|all| shown(&all[place..all.len().min(place + 3)]));
    anyhow::bail!("packet {place} on: {said}, not {expected}")
}

fn same_in_any_order(said: &[Said], expected: &[Said]) -> Result<()> {
    let [said, expected] = [said, expected].map(|all| {
        let mut all = all.to_vec();
        all.sort_by_key(|one| one.0.code());
        all
    });
    same(&said, &expected)
}

/// The responses to a READ; the first and the last carry an MSN.
fn responses(psn: u32, msn: u32, bytes: &[u8], pmtu: usize) -> Vec<Said> {
    let count = bytes.len().div_ceil(pmtu);
    let response = |(index, piece): (usize, &[u8])| {
        let operation = match (index, index + 1 == count) {
            (0, true) => Op::ReadResponseOnly,
            (0, false) => Op::ReadResponseFirst,
            (_, false) => Op::ReadResponseMiddle,
            (_, true) => Op::ReadResponseLast,
        };
        let msn = (operation != Op::ReadResponseMiddle).then_some(msn);
        (operation, (psn + index as u32) & 0xff_ffff, msn, piece.to_vec())
    };
    bytes.chunks(pmtu).enumerate().map(response).collect()
}

pub(crate) fn answered(rig: &mut Rig) -> Result<()> {
    for version in [IPV4, IPV6] {
        traces(rig, version).with_context(|| format!("traces, addresses {version}"))?;
    }
    going_back(rig).context("a peer that goes back twice")?;
    not_counted(rig).context("a replay beside new READs")?;
    region_is_gone(rig).context("a region that is gone")
}

/// Traces C and G: the WRITE, the READ, the SEND and the atomic of protocol 3.12; then the peer asks again for what it has lost.
fn traces(rig: &mut Rig, version: Version) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| (place * 29 / 3) as u8).collect();
    window.write(0, &bytes)?;
    window.write(WORD, &VALUE.to_le_bytes())?;
    let mut asker = Asker::connect(rig, version, Pmtu::Bytes1024, window.remote(), DEPTH)?;
    let receive = rig.receive_request(1);
    asker.queue_pair.post_receive(receive).map_err(|refused| refused.reason)?;
    rig.device.check()?;
    let written: Vec<u8> = (0..2500).map(|place| (place * 7) as u8).collect();
    let first = asker.frame(Op::WriteFirst, FIRST_PSN, vec![asker.reth(0, 2500)], written[..1024].to_vec());
    let middle = asker.frame(Op::WriteMiddle, FIRST_PSN + 1, Vec::new(), written[1024..2048].to_vec());
    let last = asker.frame(Op::WriteLast, 0, Vec::new(), written[2048..].to_vec());
    let ack = |psn, msn| (Op::Acknowledge, psn, Some(msn), Vec::new());
    ensure!(asker.ask(rig, &[first, middle, last], 1)? == [ack(0, 1)], "the ACK of the WRITE");
    let asked = [asker.read(1, 100, 3000), asker.send(4), asker.fetch_add(5)];
    let mut image = bytes.clone();
    image[..2500].copy_from_slice(&written);
    let said = asker.ask(rig, &asked, 5)?;
    let atomic = |psn, msn| (Op::AtomicAcknowledge, psn, Some(msn), VALUE.to_le_bytes().to_vec());
    same(&said[..3], &responses(1, 2, &image[100..3100], 1024))?;
    // An ACK that has waited for the READ may leave after the atomic.
    same_in_any_order(&said[3..], &[ack(4, 3), atomic(5, 4)])?;
    rig.moved()?;

    // Memory is read again, and so what it holds now.
    window.write(1200, &[0x5a; 100])?;
    image[1200..1300].fill(0x5a);
    let again = [asker.read(2, 1124, 1976), asker.send(4), asker.fetch_add(5)];
    let said = asker.ask(rig, &again, 4)?;
    same(&said[..2], &responses(2, 4, &image[1124..3100], 1024))?;
    // The ACK of all waits for the READ, and may wait for the atomic.
    same_in_any_order(&said[2..], &[ack(5, 4), atomic(5, 4)])?;
    let mut word = [0; 8];
    window.read(WORD, &mut word)?;
    ensure!(u64::from_le_bytes(word) == VALUE + ADDEND, "the atomic is executed once: {word:x?}");
    let moved = rig.moved()?;
    ensure!(moved.of("duplicate_request") == 3 && moved.named().len() == 1, "{moved:?}");

    // What is not noted gets no answer: another key, bytes or PSNs outside of the READ, an atomic that is none.
    let other_key = ExtendedRepr::Reth(RethRepr {
        virtual_address: asker.remote.address + 100,
        remote_key: asker.remote.key ^ 1,
        dma_length: 3000,
    });
    let unknown = [
        asker.frame(Op::ReadRequest, 1, vec![other_key], Vec::new()),
        asker.read(1, 99, 100),
        asker.read(1, 101, 3000),
        asker.read(3, 1124, 1976),
        asker.read(4, 100, 100),
        asker.fetch_add(4),
    ];
    asker.ask(rig, &unknown, 0)?;
    let moved = rig.moved()?;
    ensure!(moved.of("duplicate_dropped") == 6 && moved.named().len() == 1, "{moved:?}");

    // The peer goes on as if nothing had happened.
    let said = asker.ask(rig, &[asker.read(6, 7, 1993)], 2)?;
    same(&said, &responses(6, 5, &image[7..2000], 1024))?;
    drop(asker);
    rig.exchange()?;
    Ok(())
}

/// The peer asks for two long READs again, and in the middle of the answer for the second half of the first, and for the second.
fn going_back(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| (place * 31 / 3) as u8).collect();
    window.write(0, &bytes)?;
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes256, window.remote(), DEPTH)?;
    let count = WINDOW_BYTES.div_ceil(256) as u32;
    let next = (FIRST_PSN + count) & 0xff_ffff;
    let both = [asker.read(FIRST_PSN, 0, WINDOW_BYTES), asker.read(next, 0, WINDOW_BYTES)];
    let mut expected = responses(FIRST_PSN, 1, &bytes, 256);
    expected.extend(responses(next, 2, &bytes, 256));
    let said = asker.ask(rig, &both, 2 * count as usize)?;
    // An MSN counts what was accepted when its response was made.
    let plain = |said: &[Said]| said.iter().map(|said| (said.0, said.1, said.3.clone())).collect::<Vec<_>>();
    ensure!(plain(&said) == plain(&expected), "the first answers");

    // Both again, and when the answer has begun, from its middle.
    rig.send(&both);
    let mut said = Vec::new();
    rig.wait("the first answers", |rig| {
        said.extend(asker.heard(rig)?);
        Ok((said.len() >= 3).then_some(()))
    })?;
    let half = count / 2;
    let middle = (FIRST_PSN + half) & 0xff_ffff;
    let skipped = half as usize * 256;
    let again = [asker.read(middle, skipped, WINDOW_BYTES - skipped), both[1].clone()];
    rig.send(&again);
    let mut rest = responses(middle, 2, &bytes[skipped..], 256);
    rest.extend(responses(next, 2, &bytes, 256));
    rig.wait("the last answer", |rig| {
        said.extend(asker.heard(rig)?);
        Ok(said.ends_with(&rest).then_some(()))
    })
    .with_context(|| shown(&said[said.len().saturating_sub(3)..]))?;
    rig.idle(100);
    ensure!(asker.heard(rig)?.is_empty(), "nothing follows the second answer");
    let begun = said.len() - rest.len();
    // The first may have been over before the peer asked the second time.
    let mut before = responses(FIRST_PSN, 2, &bytes, 256);
    before.extend(responses(next, 2, &bytes, 256));
    same(&said[..begun], &before[..begun.min(before.len())])
        .context("the first answer, as far as it came")?;
    drop(asker);
    Ok(())
}

/// With one READ in flight: the peer asks for one again, has it, and asks for the next while the card repeats it.
fn not_counted(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| (place * 37 / 3) as u8).collect();
    window.write(0, &bytes)?;
    let asker = Asker::connect(rig, IPV6, Pmtu::Bytes256, window.remote(), 1)?;
    let count = WINDOW_BYTES.div_ceil(256) as u32;
    let mut psn = FIRST_PSN;
    asker.ask(rig, &[asker.read(psn, 0, WINDOW_BYTES)], count as usize)?;
    // More than there are slots.
    for turn in 0..20u32 {
        let next = (psn + count) & 0xff_ffff;
        let (at, length) = (turn as usize, WINDOW_BYTES - turn as usize);
        let length_before = WINDOW_BYTES - turn.saturating_sub(1) as usize;
        let before = turn.saturating_sub(1) as usize;
        let frames = [asker.read(psn, before, length_before), asker.read(next, at, length)];
        let said = asker.ask(rig, &frames, 2 * count as usize)?;
        let mut expected = responses(psn, turn + 1, &bytes[before..], 256);
        expected.extend(responses(next, turn + 2, &bytes[at..], 256));
        same(&said, &expected).with_context(|| format!("turn {turn}: the replay and the answer"))?;
        psn = next;
    }
    drop(asker);
    Ok(())
}

/// The region is checked again: NAK 0x62 in the place of the response, and ERR.
fn region_is_gone(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::ALL)?;
    let asker = Asker::connect(rig, IPV4, Pmtu::Bytes1024, window.remote(), DEPTH)?;
    let number = asker.queue_pair.number();
    asker.ask(rig, &[asker.read(FIRST_PSN, 0, 3000)], 3)?;
    drop(window);
    rig.device.check()?;
    let said = asker.ask(rig, &[asker.read(FIRST_PSN + 1, 1024, 1976)], 1)?;
    let expected = (Op::Acknowledge, FIRST_PSN + 1, Some(1), vec![0x62]);
    same(&said, &[expected])?;
    let raised = rig.wait("the event", |rig| rig.event())?;
    ensure!(raised.code == AsyncEvent::QueuePairAccessError && raised.object_number == number, "{raised:?}");
    drop(asker);
    rig.exchange()?;
    rig.settle()
}
