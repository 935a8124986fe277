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

/// The newest PSN that each peer was acknowledged, as a count of packets.
fn acknowledged(rig: &Rig, counts: &mut [u32; 2]) -> Result<()> {
    for frame in rig.heard() {
        let packet = PacketRepr::parse(&frame).map_err(|reason| anyhow::anyhow!("{reason:?}"))?;
        let Some(place) = [COLD, OTHER].iter().position(|peer| *peer == packet.bth.destination_qp) else {
            continue;
        };
        let is_good = packet
            .extended_headers()
            .any(|header| matches!(header, ExtendedRepr::Aeth(AethRepr { syndrome: 0x1f, .. })));
        ensure!(is_good, "{:?} is no ACK", packet.bth);
        counts[place] = (packet.bth.psn.value().wrapping_sub(FIRST) & 0xff_ffff) + 1;
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
