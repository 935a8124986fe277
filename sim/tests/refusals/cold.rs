//! A receive queue whose WQEs are not on the card: its packets wait for the host, in their order, and those of other queue pairs
//! pass.
use crate::asker::Asker;
use crate::rig::{IPV4, Rig, ensure_same};
use anyhow::{Context, Result, ensure};
use rnic_driver::{RemoteMemory, RemoteRights};
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::wire::extended::AethRepr;
use rnic_layout::wire::{ExtendedRepr, PacketRepr};
use rnic_machine::host::HostOptions;
use rnic_stimulus::chance::Delay;

/// log2 of the EQEs of event queue 0.
pub(crate) const EQES_LOG2: u32 = 8;
/// QPNs of the two peers, whom the test plays, and their first PSN.
const COLD: u32 = 0x91;
const OTHER: u32 = 0x92;
const FIRST: u32 = 0xff_fffd;
/// Latency of the host when the receives are posted: many times what the packets of the other queue pair take.
const SLOW: Delay = Delay::nanoseconds(30_000);
/// WRITEs to the other queue pair, and the time in which they must be answered.
const WRITES: u32 = 40;
const SOON_PS: u64 = 15_000_000;
const BYTES: usize = 32;
/// Latency of the host when a queue pair is flooded, so that all of it comes while its receive is read.
const VERY_SLOW: Delay = Delay::nanoseconds(120_000);
/// Bytes of WRITEs behind a SEND that waits, and how many: more than the packets that can be parked, and more than the receive
/// buffer holds.
const FLOODS: [(usize, u32); 2] = [(0, 600), (1024, 80)];
/// Frames of a flood that are sent together, and the rate at which they come, which every card takes: 10 Gb/s.
const TOGETHER: usize = 16;
const FLOOD_BITS_PER_NS: u64 = 10;
/// SENDs that find no WQE, each followed by a WRITE of the same queue pair.
const SENDS: u32 = 5;

/// PSN of the packet after `count` others.
fn psn(count: u32) -> u32 {
    (FIRST + count) & 0xff_ffff
}

fn connect(rig: &Rig, peer: u32, remote: RemoteMemory) -> Result<Asker> {
    let queue_pair = rig.new_queue_pair(RemoteRights::ALL)?;
    let queue_pair = rig.connect(queue_pair, peer, IPV4, Pmtu::Bytes1024, FIRST)?;
    Ok(Asker { queue_pair, version: IPV4, remote })
}

/// What the card has sent: the peer, the PSN as a count of packets, and the syndrome of the AETH.
fn heard(rig: &Rig) -> Result<Vec<(u32, u32, Option<u8>)>> {
    let read = |frame: Vec<u8>| {
        let packet = PacketRepr::parse(&frame).map_err(|reason| anyhow::anyhow!("{reason:?}"))?;
        let count = packet.bth.psn.value().wrapping_sub(FIRST) & 0xff_ffff;
        let syndrome = packet.extended_headers().find_map(|header| match header {
            ExtendedRepr::Aeth(AethRepr { syndrome, .. }) => Some(syndrome),
            _ => None,
        });
        Ok((packet.bth.destination_qp, count, syndrome))
    };
    rig.heard().into_iter().map(read).collect()
}

/// The newest PSN that each peer was acknowledged, as a count of packets.
fn acknowledged(rig: &Rig, counts: &mut [u32; 2]) -> Result<()> {
    for (peer, count, syndrome) in heard(rig)? {
        let Some(place) = [COLD, OTHER].iter().position(|known| *known == peer) else { continue };
        ensure!(syndrome == Some(0x1f), "packet {count} to {peer:#x} with {syndrome:?} is no ACK");
        counts[place] = count + 1;
    }
    Ok(())
}

/// SENDs and WRITEs of one queue pair arrive while its receive WQEs are read from a slow host, before WRITEs to another.
pub(crate) fn receives(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(0x1000, RemoteRights::ALL)?;
    window.write(0, &[0; 0x1000])?;
    let mut cold = connect(rig, COLD, window.remote())?;
    let other = connect(rig, OTHER, window.remote())?;
    rig.settle()?;
    rig.world().host_mut(0).set_options(HostOptions { read_latency: SLOW, ..HostOptions::IDEAL });
    for wr_id in 0..u64::from(SENDS) {
        let receive = rig.receive_request(wr_id);
        cold.queue_pair.post_receive(receive).map_err(|refused| refused.reason)?;
    }
    rig.world().check()?;

    let written = |place: usize| -> Vec<u8> { (0..BYTES).map(|byte| (place * 7 + byte + 1) as u8).collect() };
    let write = |asker: &Asker, count: u32, at: usize| {
        asker.frame(Op::WriteOnly, psn(count), vec![asker.reth(at, BYTES)], written(at / BYTES))
    };
    let of_cold = |place: u32| place as usize * BYTES;
    let of_other = |place: u32| 0x400 + place as usize * BYTES;
    let mut frames = Vec::new();
    for place in 0..SENDS {
        frames.push(cold.frame(Op::SendOnly, psn(2 * place), vec![], written(place as usize)));
        frames.push(write(&cold, 2 * place + 1, of_cold(place)));
    }
    frames.extend((0..WRITES).map(|place| write(&other, place, of_other(place))));
    let begun = rig.world().now_ps();
    rig.send(&frames);

    let mut counts = [0; 2];
    rig.wait("the ACKs of the other queue pair", |rig| {
        acknowledged(rig, &mut counts)?;
        Ok((counts[1] == WRITES).then_some(()))
    })?;
    let took = rig.world().now_ps() - begun;
    ensure!(took < SOON_PS && counts[0] == 0, "{took} ps, {counts:?} packets were acknowledged");
    let mut found = vec![0; BYTES];
    for place in 0..WRITES {
        window.read(of_other(place), &mut found)?;
        ensure_same(&found, &written(of_other(place) / BYTES)).context("a WRITE of the other")?;
    }
    // A WRITE behind a SEND that waits waits as well.
    window.read(of_cold(0), &mut found)?;
    ensure_same(&found, &[0; BYTES])?;

    let mut done = Vec::new();
    rig.wait("what waited", |rig| {
        acknowledged(rig, &mut counts)?;
        done.extend(rig.completions()?);
        Ok((counts[0] == 2 * SENDS && done.len() == SENDS as usize).then_some(()))
    })
    .with_context(|| format!("{counts:?}, {done:?}"))?;
    for (place, done) in done.iter().enumerate() {
        ensure!(done.status == CompletionStatus::Success && done.wr_id as u32 == place as u32, "{done:?}");
        ensure!(done.message == written(place), "{done:?}");
        window.read(of_cold(place as u32), &mut found)?;
        ensure_same(&found, &written(place)).context("a WRITE that waited")?;
    }
    rig.world().host_mut(0).set_options(HostOptions::IDEAL);
    rig.exchange()?;
    rig.settle()
}

/// What the card has answered the flooded queue pair, by syndrome: newest PSN as a count of packets.
#[derive(Clone, Copy, Debug, Default)]
struct Answered {
    acknowledged: u32,
    gap: Option<u32>,
}

/// Notes what the flooded queue pair was answered; gives the newest PSN that the other one was acknowledged, as a count of packets.
fn answered(rig: &Rig, answered: &mut Answered) -> Result<u32> {
    let mut others = 0;
    for (peer, count, syndrome) in heard(rig)? {
        match (peer, syndrome) {
            (COLD, Some(0x1f)) => answered.acknowledged = count + 1,
            (COLD, Some(0x60)) if answered.gap.is_none() => answered.gap = Some(count),
            (OTHER, Some(0x1f)) => others = count + 1,
            _ => anyhow::bail!("packet {count} to {peer:#x} with {syndrome:?} is not expected"),
        }
    }
    Ok(others)
}

/// WRITEs come behind a SEND that waits for its receive, until its queue pair has its share of what is parked. The rest of them is
/// dropped as if the wire had lost it, with one NAK for the gap; others find room and entries, and what was dropped is executed
/// when it comes again.
pub(crate) fn floods(rig: &mut Rig) -> Result<()> {
    for (bytes, writes) in FLOODS {
        flood(rig, bytes, writes).with_context(|| format!("WRITEs of {bytes} bytes"))?;
    }
    Ok(())
}

fn flood(rig: &mut Rig, bytes: usize, writes: u32) -> Result<()> {
    let window = rig.domain.share(0x1000, RemoteRights::ALL)?;
    window.write(0, &[0; 0x1000])?;
    let mut cold = connect(rig, COLD, window.remote())?;
    let other = connect(rig, OTHER, window.remote())?;
    rig.settle()?;
    rig.moved()?;
    rig.world().host_mut(0).set_options(HostOptions { read_latency: VERY_SLOW, ..HostOptions::IDEAL });
    let receive = rig.receive_request(0);
    cold.queue_pair.post_receive(receive).map_err(|refused| refused.reason)?;
    rig.world().check()?;

    let payload = |write: u32| vec![write as u8; bytes];
    let mut frames = vec![cold.frame(Op::SendOnly, psn(0), vec![], vec![1; BYTES])];
    frames.extend(
        (1..=writes).map(|write| {
            cold.frame(Op::WriteOnly, psn(write), vec![cold.reth(0x800, bytes)], payload(write))
        }),
    );
    for together in frames.chunks(TOGETHER) {
        rig.send(together);
        let wire_bytes: usize = together.iter().map(|frame| frame.len().max(60) + 24).sum();
        rig.step_ns(wire_bytes as u64 * 8 / FLOOD_BITS_PER_NS + 1)?;
    }

    // The others have their room.
    let begun = rig.world().now_ps();
    let write = |place: u32| {
        other.frame(
            Op::WriteOnly,
            psn(place),
            vec![other.reth(place as usize * BYTES, BYTES)],
            vec![9; BYTES],
        )
    };
    rig.send(&(0..WRITES).map(write).collect::<Vec<_>>());
    let mut cold_answers = Answered::default();
    let mut others = 0;
    rig.wait("the ACKs of the other queue pair", |rig| {
        others = others.max(answered(rig, &mut cold_answers)?);
        Ok((others == WRITES).then_some(()))
    })?;
    let took = rig.world().now_ps() - begun;
    ensure!(took < SOON_PS, "the other was answered after {took} ps");
    ensure!(cold_answers.acknowledged == 0 && cold_answers.gap.is_none(), "{cold_answers:?} while it waits");

    let held = rig.wait("the NAK of what was dropped", |rig| {
        answered(rig, &mut cold_answers)?;
        Ok(cold_answers.gap)
    })?;
    let moved = rig.moved()?;
    let dropped = [
        ("nak_sequence_sent", 1),
        // Of all that come behind the first that was dropped, one has the NAK.
        ("request_gap", u64::from(writes - held)),
        ("share_exceeded", 1),
    ];
    ensure!(moved.named() == dropped.into(), "{held} packets were held: {moved:?}");
    ensure!(cold_answers.acknowledged == held, "{held} were held: {cold_answers:?}");
    println!("{held} of {} packets were held, of {bytes} bytes each", writes + 1);

    // The peer sends again from there.
    rig.send(&frames[held as usize..]);
    let mut done = Vec::new();
    rig.wait("what was dropped", |rig| {
        answered(rig, &mut cold_answers)?;
        done.extend(rig.completions()?);
        Ok((cold_answers.acknowledged == writes + 1 && done.len() == 1).then_some(()))
    })
    .with_context(|| format!("{cold_answers:?}, {done:?}"))?;
    ensure!(done[0].status == CompletionStatus::Success && done[0].message == [1; BYTES], "{done:?}");
    let mut found = vec![0; bytes];
    window.read(0x800, &mut found)?;
    ensure_same(&found, &payload(writes)).context("the last WRITE")?;
    rig.world().host_mut(0).set_options(HostOptions::IDEAL);
    rig.exchange()?;
    rig.settle()
}
