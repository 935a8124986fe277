//! Messages of the card that are gathered from six places, each of a region of its own, and receives that are laid out over three:
//! what arrives is what was sent. An invalid local key fails its queue pair, whichever SGE has it: no packet from
//! that SGE on is sent, and nothing is received (protocol 2.3, 3.6). What was sent before is answered all the same, though it did
//! not ask for a completion (protocol 2.4).
use crate::rig::{Done, IPV4, IPV6, PEER_FIRST, PEER_KEY, RECEIVE_TAG, Rig, UNTOUCHED, ensure_same};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{QueuePair, ReceiveRequest, Region, RemoteMemory, RemoteRights, SendRequest};
use rnic_endpoint::memory::Sge as PeerSge;
use rnic_endpoint::qp::{Data, Operation, ReceiveWqe, SendWqe};
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::send::Sge;
use rnic_layout::wire::PacketRepr;
use std::collections::BTreeMap;

/// The endpoint's side.
const PEER: u32 = 0x35;
const PMTU: Pmtu = Pmtu::Bytes1024;
/// Where bytes come from: one packet, and four of which the first comes from four SGEs.
const PLACES: [[usize; 6]; 2] = [[100, 1, 63, 64, 65, 7], [700, 300, 1, 1100, 900, 99]];
/// Where bytes go to.
const RECEIVE_PLACES: [usize; 3] = [90, 1, 200];

/// Memory at odd places, all of it under different keys.
fn pieces(rig: &Rig, lengths: &[usize]) -> Result<Vec<Region>> {
    let piece = |(place, &length): (usize, &usize)| -> Result<Region> {
        let gap = 7 * place + 1;
        Ok(rig.domain.allocate(gap + length)?.split_at(gap).expect("it is longer").1)
    };
    lengths.iter().enumerate().map(piece).collect()
}

fn sges(pieces: &[Region]) -> Vec<Sge> {
    let sge =
        |piece: &Region| Sge { address: piece.address(), local_key: piece.key(), length: piece.len() as u32 };
    pieces.iter().map(sge).collect()
}

fn bytes(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|place| (place * 7 + place / 256 + seed * 13) as u8).collect()
}

/// Corrupts the key of an SGE, which is posted next.
fn spoil(rig: &Rig, sge: Sge) {
    rig.tamper.spoil(sge, |slot, place| slot[place + 8] ^= 0x40);
}

/// Checks that all corruptions have met an SGE.
fn check_spoiled(rig: &Rig) -> Result<()> {
    ensure!(rig.tamper.spoiled().iter().all(|&count| count >= 1), "the SGE to corrupt is in no ring");
    Ok(())
}

/// A queue pair of the card, and a receive of the endpoint for whatever it sends.
fn connect(rig: &mut Rig, version: usize) -> Result<QueuePair<ReadyToSend>> {
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let queue_pair = rig.connect_to_endpoint(queue_pair, PEER, version, PMTU, 0xff_fffe)?;
    let sge = PeerSge { address: PEER_FIRST, key: PEER_KEY, length: 0x1_0000 };
    rig.endpoint(|endpoint| endpoint.post_receive(PEER, ReceiveWqe { wr_id: 1, sges: vec![sge] }));
    rig.moved()?;
    rig.heard();
    Ok(queue_pair)
}

/// A SEND or a WRITE of these bytes.
fn request(is_write: bool, bytes: &[u8], pieces: Vec<Region>) -> SendRequest {
    let remote = RemoteMemory { address: PEER_FIRST, key: PEER_KEY, bytes: bytes.len() as u64 };
    let mut request = if is_write { SendRequest::write(7, remote) } else { SendRequest::send(7) };
    let mut rest = bytes;
    for mut piece in pieces {
        let (here, tail) = rest.split_at(piece.len());
        piece.bytes_mut().copy_from_slice(here);
        request = request.sge(piece);
        rest = tail;
    }
    request.signalled()
}

/// Messages from all places, and to all places, arrive.
pub(crate) fn traffic(rig: &mut Rig) -> Result<()> {
    for (number, lengths) in PLACES.iter().enumerate() {
        for is_write in [false, true] {
            let mut queue_pair = connect(rig, if is_write { IPV4 } else { IPV6 })?;
            let sent = bytes(number, lengths.iter().sum());
            rig.endpoint(|endpoint| endpoint.memory().bytes[..sent.len()].fill(0));
            let request = request(is_write, &sent, pieces(rig, lengths)?);
            queue_pair.post_send(request)?;
            let done = rig.wait("the message", |rig| Ok(rig.completions()?.pop()))?;
            ensure!((done.wr_id, done.status) == (7, CompletionStatus::Success), "{done:?}");
            rig.endpoint(|endpoint| ensure_same(&endpoint.memory().bytes[..sent.len()], &sent))?;
            let moved = rig.moved()?.named();
            ensure!(moved.is_empty(), "legal traffic moves {moved:?}");
        }
    }
    let message = bytes(5, RECEIVE_PLACES.iter().sum());
    let done = receive(rig, &message, None)?;
    ensure!(done.status == CompletionStatus::Success && done.length as usize == message.len(), "{done:?}");
    ensure_same(&done.message, &message)?;
    Ok(())
}

/// The endpoint sends a message to a receive of three pieces, one of which may have an invalid key.
fn receive(rig: &mut Rig, message: &[u8], bad: Option<usize>) -> Result<Done> {
    let mut queue_pair = connect(rig, IPV4)?;
    let mut pieces = pieces(rig, &RECEIVE_PLACES)?;
    pieces.iter_mut().for_each(|piece| piece.bytes_mut().fill(UNTOUCHED));
    let sges = sges(&pieces);
    let request = pieces.into_iter().fold(ReceiveRequest::new(3 | RECEIVE_TAG), ReceiveRequest::sge);
    bad.into_iter().for_each(|bad| spoil(rig, sges[bad]));
    queue_pair.post_receive(request)?;
    check_spoiled(rig)?;
    rig.device.check()?;
    let work = SendWqe::new(1, Operation::Send, Data::Inline(message.to_vec()));
    rig.endpoint(|endpoint| endpoint.post_send(PEER, work));
    let mut theirs = Vec::new();
    let done = rig.wait("the receive", |rig| {
        rig.endpoint(|endpoint| theirs.extend(std::iter::from_fn(|| endpoint.poll(PEER))));
        Ok(if theirs.is_empty() { None } else { rig.completions()?.pop() })
    })?;
    // Its memory is none of the usual receives'.
    rig.room.truncate(rig.room.len() - RECEIVE_PLACES.len());
    let status = if bad.is_some() { CompletionStatus::RemoteOperation } else { CompletionStatus::Success };
    ensure!(theirs[0].status == status, "{theirs:?}");
    ensure!(done.wr_id == 3 | RECEIVE_TAG, "{done:?}");
    let expected = match bad {
        Some(_) => BTreeMap::from([("local_protection", 1), ("nak_operational_sent", 1)]),
        None => BTreeMap::new(),
    };
    let moved = rig.moved()?.named();
    ensure!(moved == expected, "counters: {moved:?}, expected {expected:?}");
    Ok(done)
}

/// A message with an invalid key in one SGE, an unsignalled message before it, and a message after it.
fn send(rig: &mut Rig, is_write: bool, lengths: &[usize], bad: usize) -> Result<()> {
    let mut queue_pair = connect(rig, IPV4)?;
    let pieces = pieces(rig, lengths)?;
    let sge = sges(&pieces)[bad];
    let first = request(is_write, &bytes(3, lengths.iter().sum()), pieces);
    let remote = RemoteMemory { address: PEER_FIRST, key: PEER_KEY, bytes: 5 };
    let before = SendRequest::write(6, remote).inline(&[3; 5]);
    let second = SendRequest::send(8).inline(&[1; 8]).signalled();
    spoil(rig, sge);
    queue_pair.post_sends(&mut vec![before, first, second])?;
    check_spoiled(rig)?;
    let mut done = rig.exchange()?;
    rig.wait("the end", |rig| {
        done.extend(rig.completions()?);
        Ok((done.len() >= 3).then_some(()))
    })?;
    let statuses: Vec<_> = done.iter().map(|done| (done.wr_id, done.status)).collect();
    ensure!(
        statuses
            == [
                (6, CompletionStatus::Success),
                (7, CompletionStatus::LocalProtection),
                (8, CompletionStatus::Flushed)
            ],
        "{statuses:?}"
    );
    done.extend(rig.exchange()?);
    ensure!(done.len() == 3, "{done:?}");
    let theirs: Vec<_> = rig.endpoint(|endpoint| std::iter::from_fn(|| endpoint.poll(PEER)).collect());
    ensure!(theirs.is_empty(), "{theirs:?}");
    let frames = rig.heard();
    let is_mine =
        |frame: &&Vec<u8>| PacketRepr::parse(frame).is_ok_and(|packet| packet.bth.destination_qp == PEER);
    let sent = frames.iter().filter(is_mine).count();
    let whole = lengths[..bad].iter().sum::<usize>() / PMTU.bytes() as usize;
    ensure!(
        (1..=1 + whole).contains(&sent),
        "{sent} packets are sent, and 1 + {whole} hold nothing of sge {bad}"
    );
    let mut moved = rig.moved()?.named();
    // Packets of a message that ends in the middle may be answered when the queue pair has ended.
    let late = moved.remove("qp_not_ready").unwrap_or(0);
    ensure!(late == 0 || sent > 1, "{late} answers to {sent} packets come late");
    ensure!(moved == BTreeMap::from([("local_protection", 1)]), "{moved:?}");
    Ok(())
}

/// A key of each SGE is wrong in turn.
pub(crate) fn wrong_keys(rig: &mut Rig) -> Result<()> {
    let mut failures = Vec::new();
    for (number, lengths) in PLACES.iter().enumerate() {
        for bad in 0..lengths.len() {
            if let Err(error) = send(rig, (number + bad) % 2 == 0, lengths, bad) {
                failures.push(format!("sge {bad} of {lengths:?}: {error:#}"));
                rig.settle()?;
            }
        }
    }
    for bad in 0..RECEIVE_PLACES.len() {
        let message = bytes(bad, RECEIVE_PLACES.iter().sum());
        let done = receive(rig, &message, Some(bad)).with_context(|| format!("sge {bad} of a receive"))?;
        ensure!(done.status == CompletionStatus::LocalProtection, "sge {bad} of a receive: {done:?}");
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}
