//! The reference endpoint READs from the card: all lengths and alignments, several at a time, behind its own WRITEs and before its
//! own SENDs. What arrives is what the card's memory holds.
use crate::rig::{IPV4, IPV6, PEER_FIRST, PEER_KEY, Rig, Version, ensure_same};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rnic_driver::RemoteRights;
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_sim::chance::Seed;
use rnic_sim::endpoint::memory::Element;
use rnic_sim::endpoint::qp::{Data, Operation, SendWork};

/// The endpoint's side.
const PEER: u32 = 0x32;
/// Bytes of the card's region.
const WINDOW_BYTES: usize = 30_000;
/// Batches of requests, and READs in each.
const BATCHES: u64 = 12;
const READS: u64 = 5;
/// Each READ has its own room in the endpoint's memory.
const ROOM_BYTES: usize = 0x8000;

pub(crate) fn traffic(rig: &mut Rig) -> Result<()> {
    for (version, pmtu) in [(IPV4, Pmtu::Bytes256), (IPV6, Pmtu::Bytes1024), (IPV4, Pmtu::Bytes4096)] {
        batches(rig, version, pmtu).with_context(|| format!("addresses {version}, {pmtu:?}"))?;
    }
    Ok(())
}

fn batches(rig: &mut Rig, version: Version, pmtu: Pmtu) -> Result<()> {
    let mut random = Seed(8).stream(&format!("reads/{version}/{pmtu:?}"));
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights { read: true, ..RemoteRights::WRITE })?;
    let queue_pair = rig.new_queue_pair(RemoteRights { read: true, ..RemoteRights::WRITE })?;
    let mut queue_pair = rig.connect_to_endpoint(queue_pair, PEER, version, pmtu, 0xff_ff00)?;
    let remote = window.remote();
    let mut model = vec![0; WINDOW_BYTES];
    for batch in 0..BATCHES {
        // A WRITE before the READs, which must see it, and a SEND behind them.
        let length = random.random_range(0..=4000);
        let place = random.random_range(0..=WINDOW_BYTES - length);
        let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
        model[place..][..length].copy_from_slice(&bytes);
        let receive = rig.receive_request(batch);
        queue_pair.post_receive(receive).map_err(|refused| refused.reason)?;
        rig.device.check()?;
        let reads: Vec<(usize, usize)> = (0..READS)
            .map(|number| {
                let length = match (batch, number) {
                    (_, 0) => random.random_range(0..=2 * pmtu.bytes() as usize),
                    (0, 1) => 0,
                    (1, _) => pmtu.bytes() as usize * number as usize,
                    _ => random.random_range(0..=20_000),
                };
                // Some of them where the WRITE was.
                let place = if number < 3 { place } else { random.random_range(0..WINDOW_BYTES) };
                (place.min(WINDOW_BYTES - length), length)
            })
            .collect();
        rig.endpoint(|endpoint| {
            let operation = Operation::Write { address: remote.address + place as u64, key: remote.key };
            endpoint.post_send(PEER, SendWork::new(0, operation, Data::Inline(bytes.clone())));
            for (tag, &(place, length)) in (1..).zip(&reads) {
                let operation = Operation::Read { address: remote.address + place as u64, key: remote.key };
                // In two pieces, at any alignment.
                let room = PEER_FIRST + tag * ROOM_BYTES as u64 + batch;
                let first = length as u64 / 3;
                let elements = [(room, first), (room + first, length as u64 - first)]
                    .map(|(address, length)| Element { address, key: PEER_KEY, length: length as u32 });
                endpoint.post_send(PEER, SendWork::new(tag, operation, Data::Elements(elements.to_vec())));
            }
            endpoint.post_send(PEER, SendWork::new(9, Operation::Send, Data::Inline(vec![7; 20])));
        });
        let mut theirs = Vec::new();
        let count = reads.len() + 2;
        rig.wait("the batch", |rig| {
            rig.endpoint(|endpoint| theirs.extend(std::iter::from_fn(|| endpoint.poll(PEER))));
            Ok((theirs.len() >= count).then_some(()))
        })
        .with_context(|| format!("batch {batch}: {reads:?}"))?;
        ensure!(theirs.iter().all(|done| done.status == CompletionStatus::Success), "{theirs:?}");
        ensure!(theirs.iter().map(|done| done.tag).eq((0..=READS).chain([9])), "in order: {theirs:?}");
        ensure!(theirs[1..].iter().take(reads.len()).all(|done| done.opcode == CompletionOpcode::Read));
        for (tag, &(place, length)) in (1..).zip(&reads) {
            let room = tag * ROOM_BYTES + batch as usize;
            let expected = &model[place..][..length];
            rig.endpoint(|endpoint| ensure_same(&endpoint.memory().bytes[room..][..length], expected))
                .with_context(|| format!("batch {batch}, READ of {length} bytes at {place}"))?;
        }
        rig.wait("the receive", |rig| Ok((!rig.completions()?.is_empty()).then_some(())))?;
    }
    let moved = rig.moved()?.named();
    ensure!(moved.is_empty(), "legal traffic moves {moved:?}");
    drop(queue_pair);
    rig.completions()?;
    Ok(())
}
