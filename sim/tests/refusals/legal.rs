//! Valid traffic between the card and the reference endpoint, in both directions at once: SEND and WRITE, with and without
//! immediate data, at all alignments; from the card with lengths up to 40 KiB, to the card with up to eight packets. What
//! arrives must be what was sent.
use crate::rig::{Done, IPV4, IPV6, PEER_BYTES, PEER_FIRST, PEER_KEY, Rig, Version, ensure_same};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rnic_driver::{RemoteMemory, RemoteRights, SendRequest};
use rnic_endpoint::memory::{Region as PeerRegion, Rights, Sge};
use rnic_endpoint::qp::{Data, Operation, Queue, ReceiveWqe, SendWqe};
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_stimulus::chance::Seed;

/// QPN of the endpoint.
const PEER: u32 = 0x31;
/// Messages in each direction.
const MESSAGES: u64 = 24;
/// Length of the longest message of the card, more than it segments in one turn.
const OUTGOING_BYTES: usize = 40 << 10;
/// Bytes of the card's region.
const WINDOW_BYTES: usize = 2048;
/// Offset of the endpoint's receive memory. Its WRITEs are inline, and those of the card go to the beginning of its memory.
const PEER_ROOM: u64 = 0x1_0000;
/// Key of the endpoint's memory that a SEND invalidates.
const ENDED_KEY: u32 = 0x507;
const IMMEDIATE: [u8; 4] = [9, 8, 7, 6];

pub(crate) fn traffic(rig: &mut Rig) -> Result<()> {
    for (version, pmtu) in [(IPV4, Pmtu::Bytes256), (IPV6, Pmtu::Bytes1024)] {
        both_ways(rig, version, pmtu).with_context(|| format!("addresses {version}, {pmtu:?}"))?;
    }
    invalidation(rig).context("SEND with Invalidate")
}

/// A SEND with Invalidate ends a key of the endpoint: a WRITE before it is executed, a WRITE after it is refused.
fn invalidation(rig: &mut Rig) -> Result<()> {
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let mut queue_pair = rig.connect_to_endpoint(queue_pair, PEER, IPV4, Pmtu::Bytes1024, 1)?;
    rig.endpoint(|endpoint| {
        let region = PeerRegion {
            first_address: PEER_FIRST,
            length: 64,
            offset: 0,
            domain: 0,
            rights: Rights::ALL,
            invalidatable: true,
        };
        endpoint.memory().register(ENDED_KEY, region);
        endpoint.post_receive(PEER, ReceiveWqe { wr_id: 0, sges: Vec::new() });
    });
    let remote = RemoteMemory { address: PEER_FIRST, key: ENDED_KEY, bytes: 9 };
    let write = |wr_id: u64| SendRequest::write(wr_id, remote).inline(&[wr_id as u8; 9]).signalled();
    let send = SendRequest::send_invalidate(2, ENDED_KEY).signalled();
    queue_pair.post_sends(&mut vec![write(1), send, write(3)])?;
    let mut done: Vec<Done> = Vec::new();
    rig.wait("the refusal", |rig| {
        done.extend(rig.completions()?);
        Ok((done.len() >= 3).then_some(()))
    })?;
    let statuses: Vec<_> = done.iter().map(|done| (done.wr_id, done.status)).collect();
    let (good, bad) = (CompletionStatus::Success, CompletionStatus::RemoteAccess);
    ensure!(statuses == [(1, good), (2, good), (3, bad)], "{statuses:?}");
    let received = rig.endpoint(|endpoint| endpoint.poll(PEER));
    ensure!(received.is_some_and(|received| received.invalidated == Some(ENDED_KEY)), "{received:?}");
    rig.endpoint(|endpoint| ensure_same(&endpoint.memory().bytes[..9], &[1; 9]))?;
    drop(queue_pair);
    rig.settle()
}

fn both_ways(rig: &mut Rig, version: Version, pmtu: Pmtu) -> Result<()> {
    let mut random = Seed(7).stream(&format!("legal/{version}"));
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights::WRITE)?;
    let queue_pair = rig.new_queue_pair(RemoteRights::WRITE)?;
    let mut queue_pair = rig.connect_to_endpoint(queue_pair, PEER, version, pmtu, 0xff_fffd)?;
    let number = queue_pair.number();
    let mut window_model = vec![0; WINDOW_BYTES];
    for wr_id in 0..MESSAGES {
        let kind = wr_id % 4;
        let length = |limit: usize, random: &mut rand_chacha::ChaCha8Rng| match wr_id / 4 {
            0 => 0,
            1 => limit,
            _ => random.random_range(0..=limit),
        };
        let length_in = length(WINDOW_BYTES, &mut random);
        let length_out = length(OUTGOING_BYTES, &mut random);
        let incoming: Vec<u8> = (0..length_in).map(|_| random.random()).collect();
        let outgoing: Vec<u8> = (0..length_out).map(|_| random.random()).collect();
        let place_in = random.random_range(0..=WINDOW_BYTES - length_in);
        let place_out = random.random_range(0..PEER_ROOM as usize - length_out);

        // The usual receive memory, and more for all lengths.
        let more = rig.domain.allocate(WINDOW_BYTES)?;
        let receive = rig.receive_request(wr_id).sge(more);
        queue_pair.post_receive(receive)?;
        let remote = window.remote();
        let address = remote.address + place_in as u64;
        let operation = match kind {
            0 => Operation::Send,
            1 => Operation::SendImmediate(IMMEDIATE),
            2 => Operation::Write { address, key: remote.key },
            _ => Operation::WriteImmediate { address, key: remote.key, immediate: IMMEDIATE },
        };
        rig.device.check()?;
        rig.endpoint(|endpoint| {
            let length = OUTGOING_BYTES as u32;
            let room = Sge { address: PEER_FIRST + PEER_ROOM, key: PEER_KEY, length };
            endpoint.post_receive(PEER, ReceiveWqe { wr_id, sges: vec![room] });
            endpoint.post_send(PEER, SendWqe::new(wr_id, operation, Data::Inline(incoming.clone())));
        });
        let remote =
            RemoteMemory { address: PEER_FIRST + place_out as u64, key: PEER_KEY, bytes: length_out as u64 };
        let request = match kind {
            0 => SendRequest::send(wr_id),
            1 => SendRequest::send_immediate(wr_id, IMMEDIATE),
            2 => SendRequest::write(wr_id, remote),
            _ => SendRequest::write_immediate(wr_id, remote, IMMEDIATE),
        };
        let mut piece = rig.domain.allocate(length_out.max(1) + 3)?;
        piece.bytes_mut()[3..][..length_out].copy_from_slice(&outgoing);
        let (_, piece) = piece.split_at(3).expect("it is longer");
        let (piece, _rest) = piece.split_at(length_out).expect("it is longer");
        queue_pair.post_send(request.sge(piece).signalled())?;

        // A WRITE without immediate data takes no receive, and does not complete at the responder.
        let takes_receive = kind != 2;
        let count = 1 + usize::from(takes_receive);
        let (mut done, mut theirs): (Vec<Done>, Vec<_>) = (Vec::new(), Vec::new());
        rig.wait("a message each way", |rig| {
            done.extend(rig.completions()?);
            rig.endpoint(|endpoint| theirs.extend(std::iter::from_fn(|| endpoint.poll(PEER))));
            Ok((done.len() >= count && theirs.len() >= count).then_some(()))
        })?;
        let text = format!("message {wr_id}: {done:?}, {theirs:?}");
        ensure!(done.len() == count && theirs.len() == count, "{text}");
        ensure!(done.iter().all(|done| done.qp_number == number), "{text}");
        ensure!(done.iter().all(|done| done.status == CompletionStatus::Success), "{text}");
        ensure!(theirs.iter().all(|done| done.status == CompletionStatus::Success), "{text}");
        if let Some(received) = done.iter().find(|done| done.is_receive) {
            let opcode = if kind < 2 { CompletionOpcode::Receive } else { CompletionOpcode::ReceiveWrite };
            let immediate = (kind % 2 == 1).then_some(IMMEDIATE);
            ensure!((received.opcode, received.immediate) == (opcode, immediate), "{text}");
            ensure!(received.length as usize == length_in, "{text}");
            if kind < 2 {
                ensure_same(&received.message, &incoming)?;
            }
        }
        if let Some(received) = theirs.iter().find(|done| done.queue == Queue::Receive) {
            ensure!(received.immediate == (kind % 2 == 1).then_some(IMMEDIATE), "{text}");
            ensure!(received.length as usize == length_out, "{text}");
        }
        if kind >= 2 {
            window_model[place_in..][..length_in].copy_from_slice(&incoming);
        }
        let mut window_bytes = vec![0; WINDOW_BYTES];
        window.read(0, &mut window_bytes)?;
        ensure_same(&window_bytes, &window_model)?;
        let place = if kind < 2 { PEER_ROOM as usize } else { place_out };
        ensure!(place + length_out <= PEER_BYTES);
        rig.endpoint(|endpoint| ensure_same(&endpoint.memory().bytes[place..][..length_out], &outgoing))?;
    }
    let moved = rig.moved()?.named();
    ensure!(moved.is_empty(), "legal traffic moves {moved:?}");
    drop(queue_pair);
    rig.completions()?;
    Ok(())
}
