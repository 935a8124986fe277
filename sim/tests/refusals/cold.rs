//! A receive queue whose WQEs are not on the card: its packets wait for the host, in their order, and those of other queue pairs
//! pass.
use crate::asker::Asker;
use crate::pace::{send_fast, send_paced};
use crate::rig::{IPV4, Rig, ensure_same, path_to_card};
use anyhow::{Context, Result, ensure};
use rnic_driver::{RemoteMemory, RemoteRights};
use rnic_endpoint::packet::Packet;
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::wire::extended::AethRepr;
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr};
use rnic_machine::host::HostOptions;
use rnic_stimulus::chance::Delay;
use std::collections::BTreeMap;

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
/// The smallest frames that come as fast as the wire brings them, and frames that come while the host takes no writes: more than
/// the card has room for.
const SMALLEST: u32 = 4_000;
const STUCK: u32 = 600;
/// Frames of 1,024 bytes to queue pairs that do not exist: four times what the request buffer holds, at least.
const NOBODY: u32 = 256;
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
        cold.queue_pair.post_receive(receive)?;
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
            // It acknowledges what is before it.
            (COLD, Some(0x60)) if answered.gap.is_none() => {
                answered.gap = Some(count);
                answered.acknowledged = count;
            }
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

/// Waits until all WRITEs of the other queue pair are acknowledged, notes what the flooded one was answered meanwhile, and returns
/// the time since `begun`.
fn others_are_answered(rig: &mut Rig, begun: u64, flooded: &mut Answered) -> Result<u64> {
    let mut others = 0;
    rig.wait("the ACKs of the other queue pair", |rig| {
        others = others.max(answered(rig, flooded)?);
        Ok((others == WRITES).then_some(()))
    })
    .with_context(|| format!("{others} were acknowledged, and of the flood {flooded:?}"))?;
    Ok(rig.world().now_ps() - begun)
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
    cold.queue_pair.post_receive(receive)?;
    rig.world().check()?;

    let payload = |write: u32| vec![write as u8; bytes];
    let mut frames = vec![cold.frame(Op::SendOnly, psn(0), vec![], vec![1; BYTES])];
    frames.extend(
        (1..=writes).map(|write| {
            cold.frame(Op::WriteOnly, psn(write), vec![cold.reth(0x800, bytes)], payload(write))
        }),
    );
    send_paced(rig, &frames)?;

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
    let took = others_are_answered(rig, begun, &mut cold_answers)?;
    ensure!(took < SOON_PS, "the other was answered after {took} ps");
    ensure!(cold_answers.acknowledged == 0 && cold_answers.gap.is_none(), "{cold_answers:?} while it waits");

    // What finds no entry is dropped by admission, which answers what comes behind it with one NAK. What finds no room does not come
    // so far, nor does what is behind it: the peer does not hear of it.
    rig.wait("the answer to what waited", |rig| {
        answered(rig, &mut cold_answers)?;
        Ok((cold_answers.acknowledged > 0).then_some(()))
    })?;
    rig.idle(200);
    answered(rig, &mut cold_answers)?;
    let moved = rig.moved()?;
    let held = cold_answers.acknowledged;
    let dropped = u64::from(writes + 1 - held);
    let expected = if bytes > 0 {
        BTreeMap::from([("buffer_share", dropped)])
    } else {
        ensure!(cold_answers.gap == Some(held), "{held} were held: {cold_answers:?}");
        BTreeMap::from([("nak_sequence_sent", 1), ("share_exceeded", 1), ("request_gap", dropped - 1)])
    };
    ensure!(moved.named() == expected, "{held} packets were held: {moved:?}");
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

/// The smallest frames come as fast as the wire brings them, all to one queue pair and all behind a gap. It takes its share of the
/// request buffer; what exceeds that is dropped. Every frame of another queue pair among them is kept and answered soon.
pub(crate) fn smallest_frames(rig: &mut Rig, width_bits: u32) -> Result<()> {
    let window = rig.domain.share(0x1000, RemoteRights::ALL)?;
    let flooded = connect(rig, COLD, window.remote())?;
    let other = connect(rig, OTHER, window.remote())?;
    rig.settle()?;
    let mut frames = Vec::new();
    for place in 0..SMALLEST {
        if place % (SMALLEST / WRITES) == 0 {
            frames.push(write_in_place(&other, place / (SMALLEST / WRITES)));
        }
        frames.push(flooded.frame(Op::SendOnly, psn(place + 1), vec![], vec![]));
    }
    send_fast(rig, &frames, width_bits)?;
    let ended = rig.world().now_ps();
    let mut answers = Answered::default();
    let took = others_are_answered(rig, ended, &mut answers)?;
    ensure!(took < SOON_PS, "the last of the others was answered {took} ps after the flood");
    rig.idle(50);
    answered(rig, &mut answers)?;
    ensure!((answers.gap, answers.acknowledged) == (Some(0), 0), "{answers:?}");
    let moved = rig.moved()?;
    let dropped = moved.of("buffer_share");
    // At 512 bits a card takes a frame in 3.4 cycles, and these come at one in 1.7; a card of 64 bits is faster than its wire.
    ensure!((dropped > 0) == (width_bits == 512), "{moved:?}");
    let mut expected =
        BTreeMap::from([("nak_sequence_sent", 1), ("request_gap", u64::from(SMALLEST) - dropped)]);
    if dropped > 0 {
        expected.insert("buffer_share", dropped);
    }
    ensure!(moved.named() == expected, "{moved:?}");
    println!("{dropped} of {SMALLEST} of the smallest frames were dropped");
    rig.exchange()?;
    rig.settle()
}

/// WRITEs to queue pairs that do not serve anybody yet, or any more, and to QPNs that differ from that of another in high bits only,
/// are dropped with their payload and count for no longer: none of them finds that its queue pair has its share, and the queue
/// pairs with the same low bits have their whole share afterwards.
pub(crate) fn frames_to_nobody(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(0x1000, RemoteRights::ALL)?;
    let other = connect(rig, OTHER, window.remote())?;
    let young = rig.new_queue_pair(RemoteRights::ALL)?;
    let gone = rig.new_queue_pair(RemoteRights::ALL)?.number();
    rig.settle()?;
    let never = 0x80_0000 | (young.number() + 1) & 0x3ff;
    let numbers = [young.number(), gone, other.queue_pair.number() ^ 0x80_0000, never];
    let mut frames = Vec::new();
    for place in 0..NOBODY {
        let bth = BthRepr::new(Op::WriteOnly.code(), numbers[place as usize % 4], Psn::wrapping(psn(place)));
        let bth = BthRepr { ack_request: true, ..bth };
        frames.push(
            Packet::new(bth, vec![other.reth(0, 1024)], vec![0xee; 1024]).frame(&path_to_card(IPV4), 1),
        );
    }
    send_paced(rig, &frames)?;
    rig.idle(200);
    let moved = rig.moved()?;
    let nobody = moved.of("unknown_qp") + moved.of("qp_not_ready");
    ensure!(nobody == u64::from(NOBODY) && moved.named().len() <= 2, "{moved:?}");

    let young = rig.connect(young, COLD, IPV4, Pmtu::Bytes1024, FIRST)?;
    let young = Asker { queue_pair: young, version: IPV4, remote: window.remote() };
    for (asker, peer) in [(&young, COLD), (&other, OTHER)] {
        let frames: Vec<_> = (0..WRITES).map(|place| write_in_place(asker, place)).collect();
        send_paced(rig, &frames)?;
        let mut acknowledged = 0;
        rig.wait("the ACKs", |rig| {
            for (to, count, syndrome) in heard(rig)? {
                ensure!((to, syndrome) == (peer, Some(0x1f)), "packet {count} to {to:#x} with {syndrome:?}");
                acknowledged = count + 1;
            }
            Ok((acknowledged == WRITES).then_some(()))
        })?;
    }
    ensure!(rig.moved()?.named().is_empty(), "frames were dropped");
    rig.exchange()?;
    rig.settle()
}

fn write_in_place(asker: &Asker, place: u32) -> Vec<u8> {
    let at = place as usize * BYTES;
    asker.frame(Op::WriteOnly, psn(place), vec![asker.reth(at, BYTES)], vec![place as u8 + 1; BYTES])
}

/// WRITEs come while the host takes no writes, until their queue pair has its share of the request buffer; what exceeds that is
/// dropped and comes again. The frames of another queue pair behind them are kept.
pub(crate) fn stuck_host(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(0x1000, RemoteRights::ALL)?;
    window.write(0, &[0; 0x1000])?;
    let flooded = connect(rig, COLD, window.remote())?;
    let other = connect(rig, OTHER, window.remote())?;
    rig.settle()?;
    rig.world().host_mut(0).set_options(HostOptions { write_request_stall: 1.0, ..HostOptions::IDEAL });
    let write = |place: u32| {
        let payload = vec![(place % 0xff) as u8 + 1; BYTES];
        flooded.frame(Op::WriteOnly, psn(place), vec![flooded.reth(0x800, BYTES)], payload)
    };
    send_paced(rig, &(0..STUCK).map(write).collect::<Vec<_>>())?;
    let of_other: Vec<_> = (0..WRITES).map(|place| write_in_place(&other, place)).collect();
    send_paced(rig, &of_other)?;
    rig.world().host_mut(0).set_options(HostOptions::IDEAL);

    let mut answers = Answered::default();
    let now_ps = rig.world().now_ps();
    others_are_answered(rig, now_ps, &mut answers)?;
    rig.idle(50);
    answered(rig, &mut answers)?;
    let mut found = vec![0; BYTES];
    for place in 0..WRITES {
        window.read(place as usize * BYTES, &mut found)?;
        ensure_same(&found, &[place as u8 + 1; BYTES]).context("a WRITE of the other")?;
    }
    let moved = rig.moved()?;
    let kept = answers.acknowledged;
    ensure!(0 < kept && kept < STUCK && answers.gap.is_none(), "{answers:?}");
    ensure!(
        moved.named() == [("buffer_share", u64::from(STUCK - kept))].into(),
        "{kept} were kept: {moved:?}"
    );
    println!("{kept} of {STUCK} WRITEs were kept while the host took none");

    send_paced(rig, &(kept..STUCK).map(write).collect::<Vec<_>>())?;
    rig.wait("what was dropped", |rig| {
        answered(rig, &mut answers)?;
        Ok((answers.acknowledged == STUCK).then_some(()))
    })
    .with_context(|| format!("{answers:?}"))?;
    window.read(0x800, &mut found)?;
    ensure_same(&found, &[((STUCK - 1) % 0xff) as u8 + 1; BYTES]).context("the last WRITE")?;
    rig.exchange()?;
    rig.settle()
}
