//! Send queues as software fills them: bursts over the end of the ring, queues of unsignalled work alone, many queue pairs with
//! one doorbell each; and WQEs whose lengths contradict each other.
use crate::rig::{Done, IPV4, PEER_FIRST, PEER_KEY, Rig, ensure_same};
use anyhow::{Context, Result, bail, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    CompletionQueue, CompletionQueueOptions, Error, PostError, QueuePair, QueuePairOptions, Refusal,
    RemoteMemory, RemoteRights, SendRequest,
};
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::send::Sge;
use std::collections::BTreeMap;

/// QPN of the first peer; the others follow.
const PEER: u32 = 0x160;
/// Bytes of a WRITE.
const BYTES: usize = 8;
/// Offset of the length in a send WQE, and in an SGE.
const WQE_LENGTH: usize = 28;
const SGE_LENGTH: usize = 12;

/// A WRITE to place `place` of the endpoint's memory.
fn write(place: usize) -> SendRequest {
    let address = PEER_FIRST + (place * BYTES) as u64;
    let remote = RemoteMemory { address, key: PEER_KEY, bytes: BYTES as u64 };
    SendRequest::write(place as u64, remote).inline(&contents(place))
}

/// WRITEs to these places, of which the last one is signalled.
fn writes(places: std::ops::Range<usize>) -> Vec<SendRequest> {
    let last = places.end - 1;
    places.map(|place| if place == last { write(place).signalled() } else { write(place) }).collect()
}

fn contents(place: usize) -> [u8; BYTES] {
    std::array::from_fn(|byte| (place * 7 + byte * 3 + place / 64) as u8)
}

/// Checks that the first `count` WRITEs are in the endpoint's memory, and clears it.
fn check(rig: &Rig, count: usize) -> Result<()> {
    let expected: Vec<u8> = (0..count).flat_map(contents).collect();
    rig.endpoint(|endpoint| {
        let found = &mut endpoint.memory().bytes[..count * BYTES];
        let outcome = ensure_same(found, &expected);
        found.fill(0);
        outcome
    })
}

fn connect(rig: &Rig, peer: u32, queue: &CompletionQueue) -> Result<QueuePair<ReadyToSend>> {
    let queue_pair = rig.domain.create_queue_pair(queue, queue, &QueuePairOptions::default())?;
    let queue_pair = queue_pair.initialize(RemoteRights::NONE).map_err(Error::from)?;
    rig.connect_to_endpoint(queue_pair, peer, IPV4, Pmtu::Bytes1024, 3)
}

/// Bursts of WQEs with one doorbell each, which begin and end anywhere in the ring.
fn bursts(rig: &mut Rig, queue: &CompletionQueue) -> Result<()> {
    const BURST: usize = 27;
    let mut queue_pair = connect(rig, PEER, queue)?;
    for round in 0..12 {
        queue_pair.post_sends(&mut writes(0..BURST))?;
        complete(rig, queue, BURST).with_context(|| format!("burst {round}"))?;
        check(rig, BURST).with_context(|| format!("burst {round}"))?;
    }
    Ok(())
}

/// Takes the completions that are there, all with success. Returns their number.
fn poll(queue: &CompletionQueue) -> Result<usize> {
    let mut count = 0;
    while let Some(completion) = queue.poll_one()? {
        ensure!(completion.is_success(), "{completion:?}");
        count += 1;
    }
    Ok(count)
}

/// Waits until this many requests have completed.
fn complete(rig: &mut Rig, queue: &CompletionQueue, count: usize) -> Result<()> {
    let mut done = 0;
    rig.wait("the last completion", |_| {
        done += poll(queue)?;
        Ok((done >= count).then_some(()))
    })?;
    ensure!(done == count, "{done} of {count} complete");
    Ok(())
}

/// A send queue of which nothing but the last WQE is signalled never stays full.
fn unsignalled(rig: &mut Rig, queue: &CompletionQueue) -> Result<()> {
    const WRITES: usize = 300;
    let mut queue_pair = connect(rig, PEER + 1, queue)?;
    let mut done = 0;
    for request in writes(0..WRITES) {
        let mut request = Some(request);
        rig.wait("room in the send queue", |_| {
            done += poll(queue)?;
            let Some(next) = request.take() else { return Ok(Some(())) };
            match queue_pair.post_send(next) {
                Ok(()) => Ok(Some(())),
                Err(PostError { reason: Refusal::QueueFull { .. }, request: refused }) => {
                    request = Some(refused);
                    Ok(None)
                }
                Err(refused) => bail!(refused),
            }
        })?;
    }
    complete(rig, queue, WRITES - done)?;
    check(rig, WRITES)
}

/// Many queue pairs whose work is posted with one doorbell each: none is forgotten, however many doorbells come while others
/// are served.
fn one_doorbell_each(rig: &mut Rig, queue: &CompletionQueue) -> Result<()> {
    const PAIRS: usize = 20;
    const WRITES: usize = 45;
    let pairs = (0..PAIRS as u32).map(|pair| connect(rig, PEER + 2 + pair, queue));
    let mut pairs = pairs.collect::<Result<Vec<_>>>()?;
    for round in 0..2 {
        for (number, queue_pair) in pairs.iter_mut().enumerate() {
            queue_pair.post_sends(&mut writes(number * WRITES..(number + 1) * WRITES))?;
        }
        complete(rig, queue, PAIRS * WRITES).with_context(|| format!("round {round}"))?;
        check(rig, PAIRS * WRITES).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// Lengths that contradict each other, or the limit of a message, fail the queue pair with the status of a length.
fn lengths(rig: &mut Rig) -> Result<()> {
    type Change = fn(&mut [u8], usize);
    const LONG: [u8; 4] = 0x8000_0001_u32.to_le_bytes();
    let cases: [(&str, Change); 4] = [
        ("an SGE of one byte less", |slot, sge| slot[sge + SGE_LENGTH] -= 1),
        ("an SGE of one byte more", |slot, sge| slot[sge + SGE_LENGTH] += 1),
        ("a message of one byte more", |slot, _| slot[WQE_LENGTH] += 1),
        ("a message of more than 2^31 bytes", |slot, sge| {
            slot[WQE_LENGTH..][..4].copy_from_slice(&LONG);
            slot[sge + SGE_LENGTH..][..4].copy_from_slice(&LONG);
        }),
    ];
    for (name, change) in cases {
        let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
        let mut queue_pair = rig.connect_to_endpoint(queue_pair, PEER + 1, IPV4, Pmtu::Bytes1024, 3)?;
        let piece = rig.domain.allocate(100)?;
        let sge = Sge { address: piece.address(), local_key: piece.key(), length: 60 };
        let (piece, _rest) = piece.split_at(60).expect("it is longer");
        let remote = RemoteMemory { address: PEER_FIRST, key: PEER_KEY, bytes: 60 };
        let request = SendRequest::write(1, remote).sge(piece).signalled();
        rig.moved()?;
        rig.tamper.spoil(sge, move |slot, place| change(slot, place));
        queue_pair.post_send(request)?;
        ensure!(rig.tamper.spoiled() == [1], "{name}: the SGE to change must be in one slot");
        let mut done: Vec<Done> = rig.exchange()?;
        rig.wait(name, |rig| {
            done.extend(rig.completions()?);
            Ok((!done.is_empty()).then_some(()))
        })?;
        ensure!(done.len() == 1 && done[0].status == CompletionStatus::LocalLength, "{name}: {done:?}");
        let moved = rig.moved()?.named();
        ensure!(moved == BTreeMap::from([("work_refused", 1)]), "{name}: {moved:?}");
        drop(queue_pair);
        rig.settle()?;
    }
    Ok(())
}

/// All of them.
pub(crate) fn as_software_fills_them(rig: &mut Rig) -> Result<()> {
    let options = CompletionQueueOptions { entries_log2: 11, ..CompletionQueueOptions::default() };
    let queue = rig.device.create_completion_queue(&rig.device.events(), &options)?;
    bursts(rig, &queue).context("bursts")?;
    unsignalled(rig, &queue).context("unsignalled work")?;
    one_doorbell_each(rig, &queue).context("one doorbell for each queue pair")?;
    ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
    let moved = rig.moved()?.named();
    ensure!(moved.is_empty(), "legal traffic moves {moved:?}");
    lengths(rig).context("lengths")
}
