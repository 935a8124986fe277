//! Atomics of the card on memory of the reference endpoint: more than may be outstanding, on few cells, with READs in between
//! that must see their results. The answers must be the previous values of the cells; invalid responses fail the queue pair.
use crate::rig::{Done, IPV4, IPV6, PEER_FIRST, PEER_KEY, Rig, Version, ensure_same, path_to_card};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rnic_driver::{RemoteMemory, RemoteRights, SendRequest};
use rnic_endpoint::packet::Packet;
use rnic_layout::opcode::{Operation, Transport};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::wire::extended::{AethRepr, AtomicAckEthRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr};
use rnic_stimulus::chance::Seed;

/// The endpoint's side, and one that only the test plays.
const PEER: u32 = 0x35;
const PLAYED: u32 = 0x36;
/// Cells, from the beginning of the endpoint's memory on.
const CELLS: usize = 4;
/// Batches of requests, and requests in each: more than may be open.
const BATCHES: u64 = 6;
const REQUESTS: u64 = 40;

fn cell(index: usize) -> RemoteMemory {
    RemoteMemory { address: PEER_FIRST + 8 * index as u64, key: PEER_KEY, bytes: 8 }
}

pub(crate) fn traffic(rig: &mut Rig) -> Result<()> {
    for (version, pmtu) in [(IPV4, Pmtu::Bytes256), (IPV6, Pmtu::Bytes4096)] {
        batches(rig, version, pmtu).with_context(|| format!("addresses {version}, {pmtu:?}"))?;
    }
    Ok(())
}

fn batches(rig: &mut Rig, version: Version, pmtu: Pmtu) -> Result<()> {
    let mut random = Seed(10).stream(&format!("own atomics/{version}"));
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let mut queue_pair = rig.connect_to_endpoint(queue_pair, PEER, version, pmtu, 0xff_ffe0)?;
    let mut model: [u64; CELLS] = random.random();
    let bytes = model.map(u64::to_le_bytes).concat();
    rig.endpoint(|endpoint| endpoint.memory().bytes[..8 * CELLS].copy_from_slice(&bytes));
    for batch in 0..BATCHES {
        let (mut requests, mut expected, mut has_read) = (Vec::new(), Vec::new(), false);
        for wr_id in 0..REQUESTS {
            let index = random.random_range(0..CELLS);
            let held = model[index];
            let operand: u64 = random.random();
            let (request, opcode) = match random.random_range(0..4) {
                0 => {
                    model[index] = held.wrapping_add(operand);
                    (SendRequest::fetch_add(wr_id, cell(index), operand), CompletionOpcode::FetchAdd)
                }
                1 => {
                    model[index] = operand;
                    (
                        SendRequest::compare_swap(wr_id, cell(index), held, operand),
                        CompletionOpcode::CompareSwap,
                    )
                }
                2 => {
                    let other = held ^ 1 << random.random_range(0..64);
                    (
                        SendRequest::compare_swap(wr_id, cell(index), other, operand),
                        CompletionOpcode::CompareSwap,
                    )
                }
                _ => (SendRequest::read(wr_id, cell(index)), CompletionOpcode::Read),
            };
            // An earlier READ may see the result of an atomic, unless that has a fence (protocol 2.10).
            let is_read = opcode == CompletionOpcode::Read;
            let request = if has_read && !is_read { request.fence() } else { request };
            has_read = is_read;
            let piece = rig.domain.allocate(9)?.split_at(1).expect("it is longer").1;
            let is_signalled = wr_id + 1 == REQUESTS || random.random();
            let request = request.sge(piece);
            requests.push(if is_signalled { request.signalled() } else { request });
            expected.push((opcode, held));
        }
        queue_pair.post_sends(&mut requests)?;
        let mut done: Vec<Done> = Vec::new();
        rig.wait("the batch", |rig| {
            done.extend(rig.completions()?);
            Ok((done.len() as u64 >= REQUESTS).then_some(()))
        })
        .with_context(|| format!("batch {batch}; {done:?}"))?;
        ensure!(done.iter().all(|done| done.status == CompletionStatus::Success), "{done:?}");
        ensure!(done.iter().map(|done| done.wr_id).eq(0..REQUESTS), "in order: {done:?}");
        for (done, (opcode, held)) in done.iter().zip(&expected) {
            ensure!((done.opcode, done.length) == (*opcode, 8), "{done:?}, not {opcode:?}");
            ensure_same(&done.message, &held.to_le_bytes())
                .with_context(|| format!("batch {batch}, {done:?}"))?;
        }
        let bytes = model.map(u64::to_le_bytes).concat();
        rig.endpoint(|endpoint| ensure_same(&endpoint.memory().bytes[..8 * CELLS], &bytes))?;
    }
    let moved = rig.moved()?.named();
    ensure!(moved.is_empty(), "legal traffic moves {moved:?}");
    drop(queue_pair);
    rig.completions()?;
    Ok(())
}

/// An answer to a compare and swap with PSN zero: operation, PSN, bytes of payload and syndrome.
type Answer = (Operation, u32, usize, u8);

/// The right one.
const RIGHT: Answer = (Operation::AtomicAcknowledge, 0, 0, 31);

/// Answers, and what comes of them.
type Wrong = (&'static str, &'static [Answer], CompletionStatus, &'static [(&'static str, u64)]);

const WRONGS: [Wrong; 8] = [
    ("one that is right", &[RIGHT], CompletionStatus::Success, &[]),
    (
        "data",
        &[(Operation::ReadResponseOnly, 0, 8, 31)],
        CompletionStatus::BadResponse,
        &[("response_unexpected", 1)],
    ),
    (
        "with a NAK in it",
        &[(Operation::AtomicAcknowledge, 0, 0, 0x62), RIGHT],
        CompletionStatus::Success,
        &[("response_reserved", 1)],
    ),
    (
        "with a reserved syndrome",
        &[(Operation::AtomicAcknowledge, 0, 0, 0x80), RIGHT],
        CompletionStatus::Success,
        &[("response_reserved", 1)],
    ),
    (
        "with a payload",
        &[(Operation::AtomicAcknowledge, 0, 8, 31), RIGHT],
        CompletionStatus::Success,
        &[("response_unexpected", 1)],
    ),
    (
        "an ACK",
        &[(Operation::Acknowledge, 0, 0, 31)],
        CompletionStatus::RetryExceeded,
        &[("implied_nak", 1), ("retry_exhausted", 1)],
    ),
    (
        "a NAK",
        &[(Operation::Acknowledge, 0, 0, 0x61)],
        CompletionStatus::RemoteInvalidRequest,
        &[("nak_received", 1)],
    ),
    (
        "of the next",
        &[(Operation::AtomicAcknowledge, 1, 0, 31)],
        CompletionStatus::RetryExceeded,
        &[("implied_nak", 1), ("retry_exhausted", 1)],
    ),
];

fn answers_wrongly(rig: &mut Rig, (_, answers, status, counters): &Wrong) -> Result<()> {
    const ORIGINAL: u64 = 0x0102_0304_0506_0708;
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let info = queue_pair.info(IPV4)?;
    let mut queue_pair = rig.connect(queue_pair, PLAYED, IPV4, Pmtu::Bytes1024, 0)?;
    rig.heard();
    let remote = RemoteMemory { address: 0x1008, key: 7, bytes: 8 };
    let piece = || rig.domain.allocate(8);
    let first = SendRequest::compare_swap(1, remote, 5, 6).sge(piece()?).signalled();
    let second = SendRequest::fetch_add(2, remote, 7).sge(piece()?).signalled();
    queue_pair.post_sends(&mut vec![first, second])?;
    let mut heard = Vec::new();
    rig.wait("the requests", |rig| {
        heard.extend(rig.heard());
        Ok((heard.len() == 2).then_some(()))
    })?;
    let asked: Vec<Vec<ExtendedRepr>> = heard
        .iter()
        .map(|frame| Ok(PacketRepr::parse(frame)?.extended_headers().collect()))
        .collect::<Result<_>>()?;
    let operands: Vec<_> = asked
        .iter()
        .flatten()
        .map(|header| match header {
            ExtendedRepr::AtomicEth(atomic) => {
                Some((atomic.virtual_address, atomic.swap_add, atomic.compare))
            }
            _ => None,
        })
        .collect();
    ensure!(operands == [Some((0x1008, 6, 5)), Some((0x1008, 7, 0))], "{operands:x?}");
    rig.moved()?;
    for (place, &(operation, psn, bytes, syndrome)) in answers.iter().enumerate() {
        let bth = BthRepr::new(
            Transport::Rc.base() | operation.code(),
            info.qp_number,
            Psn::wrapping(info.first_psn).add(psn),
        );
        let mut extended = vec![ExtendedRepr::Aeth(AethRepr { syndrome, msn: Psn::wrapping(1) })];
        if operation == Operation::AtomicAcknowledge {
            // Only the last one counts.
            let original = ORIGINAL ^ (answers.len() - 1 - place) as u64;
            extended.push(ExtendedRepr::AtomicAckEth(AtomicAckEthRepr { original }));
        }
        rig.send(&[Packet::new(bth, extended, vec![9; bytes]).frame(&path_to_card(IPV4), 3)]);
    }
    let mut done = rig.exchange()?;
    let moved = rig.moved()?.named();
    let expected = counters.iter().copied().collect();
    ensure!(moved == expected, "counters: {moved:?}, expected {expected:?}");
    if *status == CompletionStatus::Success {
        let [done] = &done[..] else { anyhow::bail!("{done:?}") };
        ensure!(done.wr_id == 1 && done.status == *status, "{done:?}");
        ensure_same(&done.message, &ORIGINAL.to_le_bytes())?;
    } else {
        rig.wait("the end", |rig| {
            done.extend(rig.completions()?);
            Ok((done.len() >= 2).then_some(()))
        })?;
        let statuses: Vec<_> = done.iter().map(|done| (done.wr_id, done.status)).collect();
        ensure!(statuses == [(1, *status), (2, CompletionStatus::Flushed)], "{statuses:?}");
    }
    drop(queue_pair);
    rig.completions()?;
    while rig.event()?.is_some() {}
    rig.moved()?;
    Ok(())
}

/// Answers of all kinds that are wrong.
pub(crate) fn refused(rig: &mut Rig) -> Result<()> {
    let mut failures = Vec::new();
    for wrong in &WRONGS {
        if let Err(error) = answers_wrongly(rig, wrong) {
            failures.push(format!("{}: {error:#}", wrong.0));
            rig.settle()?;
        }
    }
    ensure!(failures.is_empty(), "{}:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}
