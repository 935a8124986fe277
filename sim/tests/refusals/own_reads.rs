//! READs of the card from memory of the reference endpoint: all lengths and alignments, more than may be outstanding, after its
//! own WRITEs and before its own SENDs, with and without a fence. The data must be the contents of the endpoint's memory; an
//! invalid READ or response fails the queue pair with the status that the protocol requires.
use crate::rig::{
    Done, IPV4, IPV6, PEER_FIRST, PEER_KEY, Rig, UNTOUCHED, Version, ensure_same, path_to_card,
};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{QueuePair, Region, RemoteMemory, RemoteRights, SendRequest};
use rnic_endpoint::fault::Fault;
use rnic_endpoint::memory::{Region as PeerRegion, Rights, Sge as PeerSge};
use rnic_endpoint::packet::Packet;
use rnic_endpoint::qp::ReceiveWqe;
use rnic_layout::opcode::{Operation, Transport};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::send::Sge;
use rnic_layout::wire::extended::AethRepr;
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr};
use rnic_stimulus::chance::Seed;
use std::collections::BTreeMap;

/// The endpoint's side, and one that only the test plays.
const PEER: u32 = 0x33;
const PLAYED: u32 = 0x34;
/// Key of the endpoint's memory with the right to READ alone.
const READ_KEY: u32 = 0x406;
/// Length of the endpoint's memory that is read.
const WINDOW_BYTES: usize = 60_000;
/// Where the endpoint receives.
const PEER_ROOM: u64 = 0x1_0000;
/// Batches of requests, and READs in each: more than may be open.
const BATCHES: u64 = 8;
const READS: u64 = 20;
/// Time in which all that is on its way to the slow host of a test has come.
const SETTLED_NS: u64 = 15_000;

pub(crate) fn traffic(rig: &mut Rig) -> Result<()> {
    let region = PeerRegion {
        first_address: PEER_FIRST,
        length: WINDOW_BYTES as u64,
        offset: 0,
        domain: 0,
        rights: Rights { remote_read: true, ..Rights::NONE },
        invalidatable: false,
    };
    rig.endpoint(|endpoint| endpoint.memory().register(READ_KEY, region));
    for (version, pmtu) in [(IPV6, Pmtu::Bytes256), (IPV4, Pmtu::Bytes1024), (IPV6, Pmtu::Bytes4096)] {
        batches(rig, version, pmtu).with_context(|| format!("addresses {version}, {pmtu:?}"))?;
    }
    Ok(())
}

/// Memory of this length at an odd address.
pub(crate) fn piece(rig: &Rig, offset: usize, length: usize) -> Result<Region> {
    let memory = rig.domain.allocate(offset + length + 1)?;
    let (_, tail) = memory.split_at(offset).expect("it is longer");
    Ok(tail.split_at(length).expect("it is longer").0)
}

fn batches(rig: &mut Rig, version: Version, pmtu: Pmtu) -> Result<()> {
    let mut random = Seed(9).stream(&format!("own reads/{version}/{pmtu:?}"));
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let mut queue_pair = rig.connect_to_endpoint(queue_pair, PEER, version, pmtu, 0xff_ff00)?;
    let mut model: Vec<u8> = (0..WINDOW_BYTES).map(|_| random.random()).collect();
    rig.endpoint(|endpoint| endpoint.memory().bytes[..WINDOW_BYTES].copy_from_slice(&model));
    rig.passed();
    let remote = |key: u32, place: usize, length: usize| RemoteMemory {
        address: PEER_FIRST + place as u64,
        key,
        bytes: length as u64,
    };
    for batch in 0..BATCHES {
        // A WRITE before the READs, which must see it, and a SEND after them.
        let length = random.random_range(0..=4000);
        let place = random.random_range(0..=WINDOW_BYTES - length);
        let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
        model[place..][..length].copy_from_slice(&bytes);
        let mut written = piece(rig, 0, length)?;
        written.bytes_mut().copy_from_slice(&bytes);
        let mut requests = vec![SendRequest::write(0, remote(PEER_KEY, place, length)).sge(written)];
        let mut places = Vec::new();
        for number in 0..READS {
            let length = match (batch, number) {
                (0, 1) => 0,
                (1, _) => pmtu.bytes() as usize * (number as usize % 5),
                (_, 0) => 20_000,
                _ => random.random_range(0..=3 * pmtu.bytes() as usize),
            };
            let first = random.random_range(0..=length);
            let place = if number < 3 { place } else { random.random_range(0..WINDOW_BYTES) };
            let place = place.min(WINDOW_BYTES - length);
            let mut request = SendRequest::read(number + 1, remote(READ_KEY, place, length))
                .sge(piece(rig, random.random_range(0..70), first)?)
                .sge(piece(rig, random.random_range(0..70), length - first)?);
            if random.random_range(0..4) == 0 {
                request = request.fence();
            }
            if random.random_range(0..3) > 0 {
                request = request.signalled();
            }
            requests.push(request);
            places.push((place, length));
        }
        let mut last = SendRequest::send(READS + 1).inline(&[7; 20]).signalled();
        if batch % 2 == 0 {
            last = last.fence();
        }
        requests.push(last);
        rig.endpoint(|endpoint| {
            let room = PeerSge { address: PEER_FIRST + PEER_ROOM, key: PEER_KEY, length: 64 };
            endpoint.post_receive(PEER, ReceiveWqe { wr_id: batch, sges: vec![room] });
        });
        queue_pair.post_sends(&mut requests)?;
        let mut done: Vec<Done> = Vec::new();
        let count = READS as usize + 2;
        rig.wait("the batch", |rig| {
            done.extend(rig.completions()?);
            Ok((done.len() >= count).then_some(()))
        })
        .with_context(|| format!("batch {batch}: {places:?}; {done:?}"))?;
        ensure!(done.iter().all(|done| done.status == CompletionStatus::Success), "{done:?}");
        ensure!(done.iter().map(|done| done.wr_id).eq(0..READS + 2), "in order: {done:?}");
        for (done, &(place, length)) in done[1..].iter().zip(&places) {
            ensure!(done.opcode == CompletionOpcode::Read && done.length as usize == length, "{done:?}");
            ensure_same(&done.message, &model[place..][..length])
                .with_context(|| format!("batch {batch}, READ of {length} bytes at {place}"))?;
        }
        let mut theirs = Vec::new();
        rig.endpoint(|endpoint| theirs.extend(std::iter::from_fn(|| endpoint.poll(PEER))));
        ensure!(theirs.len() == 1 && theirs[0].wr_id == batch, "{theirs:?}");
        // READs count in the MSN as all messages do (protocol 3.7).
        let answers = rig.passed().into_iter().filter(|passed| passed.is_from_endpoint);
        let msn = answers.filter_map(|passed| passed.msn).next_back();
        ensure!(msn == Some(Psn::wrapping((batch as u32 + 1) * (READS as u32 + 2))), "the MSN is {msn:?}");
    }
    let moved = rig.moved()?.named();
    ensure!(moved.is_empty(), "legal traffic moves {moved:?}");
    drop(queue_pair);
    rig.completions()?;
    Ok(())
}

/// What a peer does wrong.
struct Wrong {
    name: &'static str,
    /// Its answers to a READ of 2,500 bytes with PSN zero, at a PMTU of 1,024: operation, PSN, bytes and syndrome.
    answers: Vec<(Operation, u32, usize, u8)>,
    /// Pad of the last answer, if it is not the one that its data needs.
    pad: Option<u8>,
    status: CompletionStatus,
    counters: &'static [(&'static str, u64)],
}

fn wrongs() -> Vec<Wrong> {
    use Operation::{
        Acknowledge, ReadResponseFirst as First, ReadResponseLast as Last, ReadResponseMiddle as Middle,
        ReadResponseOnly as Only,
    };
    let bad = CompletionStatus::BadResponse;
    let lost = CompletionStatus::RetryExceeded;
    let wrong = |name, answers: &[(Operation, u32, usize, u8)], status, counters| Wrong {
        name,
        answers: answers.to_vec(),
        pad: None,
        status,
        counters,
    };
    let unexpected: &[(&str, u64)] = &[("response_unexpected", 1)];
    let implied: &[(&str, u64)] = &[("implied_nak", 1), ("retry_exhausted", 1)];
    vec![
        wrong(
            "one that is right",
            &[(First, 0, 1024, 31), (Middle, 1, 1024, 0), (Last, 2, 452, 31)],
            CompletionStatus::Success,
            &[],
        ),
        wrong(
            "a duplicate",
            &[(First, 0, 1024, 31), (First, 0, 1024, 31), (Middle, 1, 1024, 0), (Last, 2, 452, 31)],
            CompletionStatus::Success,
            &[("response_stale", 1)],
        ),
        wrong("MIDDLE first", &[(Middle, 0, 1024, 31)], bad, unexpected),
        wrong("ONLY instead of FIRST", &[(Only, 0, 1024, 31)], bad, unexpected),
        wrong("LAST too early", &[(First, 0, 1024, 31), (Last, 1, 1024, 31)], bad, unexpected),
        wrong("FIRST twice", &[(First, 0, 1024, 31), (First, 1, 1024, 31)], bad, unexpected),
        wrong("FIRST too short", &[(First, 0, 1020, 31)], bad, unexpected),
        wrong(
            "LAST too short",
            &[(First, 0, 1024, 31), (Middle, 1, 1024, 0), (Last, 2, 448, 31)],
            bad,
            unexpected,
        ),
        wrong(
            "LAST too long",
            &[(First, 0, 1024, 31), (Middle, 1, 1024, 0), (Last, 2, 456, 31)],
            bad,
            unexpected,
        ),
        wrong(
            "LAST without data",
            &[(First, 0, 1024, 31), (Middle, 1, 1024, 0), (Last, 2, 0, 31)],
            bad,
            unexpected,
        ),
        Wrong { pad: Some(1), ..wrong("FIRST with a pad", &[(First, 0, 1024, 31)], bad, unexpected) },
        Wrong {
            pad: Some(3),
            ..wrong(
                "LAST with a wrong pad",
                &[(First, 0, 1024, 31), (Middle, 1, 1024, 0), (Last, 2, 452, 31)],
                bad,
                unexpected,
            )
        },
        wrong(
            "syndromes that are no ACK's",
            &[
                (First, 0, 1024, 0x62),
                (First, 0, 1024, 31),
                (Middle, 1, 1024, 0),
                (Last, 2, 452, 0x2e),
                (Last, 2, 452, 0x80),
                (Last, 2, 452, 31),
            ],
            CompletionStatus::Success,
            &[("response_reserved", 3)],
        ),
        wrong("FIRST lost", &[(Middle, 1, 1024, 0)], lost, implied),
        wrong("MIDDLE lost", &[(First, 0, 1024, 31), (Last, 2, 452, 31)], lost, implied),
        wrong("an ACK instead", &[(Acknowledge, 2, 0, 31)], lost, implied),
        wrong("an ACK in the middle", &[(First, 0, 1024, 31), (Acknowledge, 1, 0, 31)], lost, implied),
        wrong("a NAK too far", &[(First, 0, 1024, 31), (Acknowledge, 2, 0, 0x62)], lost, implied),
        wrong("a NAK", &[(Acknowledge, 0, 0, 0x62)], CompletionStatus::RemoteAccess, &[("nak_received", 1)]),
        wrong(
            "a NAK after data",
            &[(First, 0, 1024, 31), (Acknowledge, 1, 0, 0x63)],
            CompletionStatus::RemoteOperation,
            &[("nak_received", 1)],
        ),
    ]
}

/// The frame of a response to a READ, or of an ACK or NAK, as the peer of a test sends it.
pub(crate) fn response(
    qp_number: u32,
    operation: Operation,
    psn: Psn,
    syndrome: u8,
    data: Vec<u8>,
) -> Vec<u8> {
    let bth = BthRepr::new(Transport::Rc.base() | operation.code(), qp_number, psn);
    let aeth = ExtendedRepr::Aeth(AethRepr { syndrome, msn: Psn::wrapping(1) });
    let extended = if operation == Operation::ReadResponseMiddle { vec![] } else { vec![aeth] };
    Packet::new(bth, extended, data).frame(&path_to_card(IPV4), 3)
}

/// A READ with invalid responses, and another one after it.
fn answers_wrongly(rig: &mut Rig, wrong: &Wrong) -> Result<()> {
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let info = queue_pair.info(IPV4)?;
    let mut queue_pair: QueuePair<ReadyToSend> = rig.connect(queue_pair, PLAYED, IPV4, Pmtu::Bytes1024, 0)?;
    rig.heard();
    let remote = RemoteMemory { address: 0x1000, key: 7, bytes: 5000 };
    let first = SendRequest::read(1, remote).sge(piece(rig, 5, 1500)?).sge(piece(rig, 9, 1000)?);
    let second = SendRequest::write(2, remote).inline(&[1; 9]).signalled();
    queue_pair.post_sends(&mut vec![first.signalled(), second])?;
    let mut heard = 0;
    rig.wait("the requests", |rig| {
        let parts = rig.heard();
        let is_mine = |frame: &&Vec<u8>| {
            PacketRepr::parse(frame).is_ok_and(|packet| packet.bth.destination_qp == PLAYED)
        };
        heard += parts.iter().filter(is_mine).count();
        Ok((heard == 2).then_some(()))
    })?;
    rig.moved()?;
    let bytes = |psn: u32, count: usize| -> Vec<u8> {
        (0..count).map(|place| (psn as usize * 1024 + place) as u8 ^ 0x5a).collect()
    };
    let first_psn = Psn::wrapping(info.first_psn);
    let mut frames: Vec<_> = wrong
        .answers
        .iter()
        .map(|&(operation, psn, count, syndrome)| {
            response(info.qp_number, operation, first_psn.add(psn), syndrome, bytes(psn, count))
        })
        .collect();
    if let (Some(pad), Some(last)) = (wrong.pad, frames.last_mut()) {
        Fault::Pad(pad).apply(last);
    }
    rig.send(&frames);
    let mut done = rig.exchange()?;
    let is_good = wrong.status == CompletionStatus::Success;
    let expected: BTreeMap<_, _> = wrong.counters.iter().copied().collect();
    let moved = rig.moved()?.named();
    ensure!(moved == expected, "counters: {moved:?}, expected {expected:?}");
    if is_good {
        // The WRITE after it is not answered yet.
        let bth = BthRepr::new(
            Transport::Rc.base() | Operation::Acknowledge.code(),
            info.qp_number,
            first_psn.add(3),
        );
        let aeth = ExtendedRepr::Aeth(AethRepr { syndrome: 31, msn: Psn::wrapping(2) });
        rig.send(&[Packet::new(bth, vec![aeth], Vec::new()).frame(&path_to_card(IPV4), 3)]);
        done.extend(rig.exchange()?);
    } else {
        rig.wait("the end", |rig| {
            done.extend(rig.completions()?);
            Ok((done.len() >= 2).then_some(()))
        })?;
    }
    let second = if is_good { CompletionStatus::Success } else { CompletionStatus::Flushed };
    let statuses: Vec<_> = done.iter().map(|done| (done.wr_id, done.status)).collect();
    ensure!(statuses == [(1, wrong.status), (2, second)], "{statuses:?}");
    if is_good {
        let all = [bytes(0, 1024), bytes(1, 1024), bytes(2, 452)].concat();
        ensure_same(&done[0].message, &all)?;
    }
    drop(queue_pair);
    rig.completions()?;
    while rig.event()?.is_some() {}
    rig.moved()?;
    Ok(())
}

/// A READ into memory with an invalid lkey, in the first SGE or in the second: it fails, and no byte of that SGE is written.
fn into_wrong_memory(rig: &mut Rig, bad: usize) -> Result<()> {
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let mut queue_pair = rig.connect_to_endpoint(queue_pair, PEER, IPV4, Pmtu::Bytes1024, 5)?;
    let mut pieces = [piece(rig, 3, 700)?, piece(rig, 1, 800)?];
    pieces.iter_mut().for_each(|piece| piece.bytes_mut().fill(UNTOUCHED));
    let wrong = &pieces[bad];
    let sge = Sge { address: wrong.address(), local_key: wrong.key(), length: wrong.len() as u32 };
    let remote = RemoteMemory { address: PEER_FIRST, key: PEER_KEY, bytes: 1500 };
    let request = pieces.into_iter().fold(SendRequest::read(1, remote), SendRequest::sge).signalled();
    rig.moved()?;
    rig.tamper.spoil(sge, |slot, place| slot[place + 8] ^= 0x40);
    queue_pair.post_send(request)?;
    ensure!(rig.tamper.spoiled() == [1], "the SGE to change must be in one slot");
    let mut sg_list = Vec::new();
    let status = rig.wait("the READ", |rig| {
        let Some(completion) = rig.sends.poll_one()? else { return Ok(None) };
        sg_list = completion.sg_list.into_iter().collect();
        Ok(Some(completion.status))
    })?;
    ensure!(status == CompletionStatus::LocalProtection, "{status:?}");
    let written = sg_list[bad].bytes().iter().any(|byte| *byte != UNTOUCHED);
    ensure!(!written, "an SGE with an invalid lkey is written");
    let moved = rig.moved()?.named();
    ensure!(moved == BTreeMap::from([("local_protection", 1)]), "{moved:?}");
    drop(queue_pair);
    rig.settle()
}

/// A READ that the endpoint refuses, READs into memory that is none, and answers of all kinds that are wrong.
pub(crate) fn refused(rig: &mut Rig) -> Result<()> {
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let mut queue_pair = rig.connect_to_endpoint(queue_pair, PEER, IPV4, Pmtu::Bytes1024, 5)?;
    let remote = RemoteMemory { address: PEER_FIRST, key: PEER_KEY ^ 0x100, bytes: 5000 };
    let request = SendRequest::read(1, remote).sge(piece(rig, 1, 5000)?).signalled();
    queue_pair.post_send(request)?;
    let done = rig.wait("the READ", |rig| Ok(rig.completions()?.pop()))?;
    ensure!(done.status == CompletionStatus::RemoteAccess, "{done:?}");
    drop(queue_pair);
    rig.settle()?;
    for bad in [0, 1] {
        into_wrong_memory(rig, bad).with_context(|| format!("an invalid lkey in SGE {bad}"))?;
    }
    let mut failures = Vec::new();
    for wrong in wrongs() {
        if let Err(error) = answers_wrongly(rig, &wrong) {
            failures.push(format!("{}: {error:#}", wrong.name));
            rig.settle()?;
        }
    }
    ensure!(failures.is_empty(), "{}:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}

/// A queue pair fails while the data of its READ goes into a slow host: once the READ is flushed, its memory is that of software
/// again, and no byte of it changes any more.
pub(crate) fn flushed_with_data_on_its_way(rig: &mut Rig) -> Result<()> {
    const PACKETS: u32 = 12;
    for wait_ns in [0, 700, 1500, 2500, 4000] {
        let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
        let info = queue_pair.info(IPV4)?;
        let mut queue_pair: QueuePair<ReadyToSend> =
            rig.connect(queue_pair, PLAYED, IPV4, Pmtu::Bytes1024, 0)?;
        rig.heard();
        let remote = RemoteMemory { address: 0x1000, key: 7, bytes: 1024 * u64::from(PACKETS) };
        let mut memory = piece(rig, 0, 1024 * PACKETS as usize)?;
        memory.bytes_mut().fill(UNTOUCHED);
        let read = SendRequest::read(1, remote).sge(memory).signalled();
        queue_pair.post_send(read)?;
        rig.wait("the request", |rig| Ok((!rig.heard().is_empty()).then_some(())))?;
        let first_psn = Psn::wrapping(info.first_psn);
        let answer = |place: u32| {
            let operation = match place {
                0 => Operation::ReadResponseFirst,
                last if last == PACKETS - 1 => Operation::ReadResponseLast,
                _ => Operation::ReadResponseMiddle,
            };
            response(info.qp_number, operation, first_psn.add(place), 31, vec![!UNTOUCHED; 1024])
        };
        rig.send(&(0..PACKETS).map(answer).collect::<Vec<_>>());
        rig.step_ns(wait_ns)?;
        let failed = queue_pair.fail().map_err(rnic_driver::Error::from)?;
        let done = rig.wait("the READ", |rig| Ok(rig.sends.poll_one()?))?;
        ensure!(done.status == CompletionStatus::Flushed, "{wait_ns} ns: {done:?}");
        let memory: Vec<Region> = done.sg_list.into_iter().collect();
        let contents = || -> Vec<u8> { memory.iter().flat_map(|region| region.bytes().to_vec()).collect() };
        let before = contents();
        let written = before.iter().filter(|byte| **byte != UNTOUCHED).count();
        ensure!(written > 0, "{wait_ns} ns: no data had come");
        rig.step_ns(SETTLED_NS)?;
        ensure_same(&contents(), &before).with_context(|| {
            format!("{wait_ns} ns: {written} bytes were written when the READ was flushed")
        })?;
        drop(failed);
        rig.settle()?;
    }
    rig.moved()?;
    Ok(())
}
