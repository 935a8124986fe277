//! READs of the reference endpoint from the card: all lengths and alignments, several at a time, after its own WRITEs and
//! before its own SENDs. The data must be the contents of the card's memory. Also invalid requests after READs.
use crate::rig::{IPV4, IPV6, PEER_FIRST, PEER_KEY, Passed, Rig, Version, ensure_same, path_to_card};
use anyhow::{Context, Result, ensure};
use rand::Rng;
use rnic_driver::{RemoteMemory, RemoteRights};
use rnic_endpoint::memory::Sge;
use rnic_endpoint::packet::Packet;
use rnic_endpoint::qp::{Data, Operation, SendWqe};
use rnic_layout::opcode::Operation as Opcode;
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::wire::extended::{AethRepr, RethRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr};
use rnic_stimulus::chance::Seed;

/// The endpoint's side.
const PEER: u32 = 0x32;
/// Bytes of the card's region.
const WINDOW_BYTES: usize = 30_000;
/// Batches of requests, and READs in each.
const BATCHES: u64 = 12;
const READS: u64 = 5;
/// Each READ has its own room in the endpoint's memory.
const ROOM_BYTES: usize = 0x8000;

/// QPN of a peer that the endpoint does not have, and its first PSN.
const ATTACKER: u32 = 0x53;
const FIRST_PSN: u32 = 0xff_fff0;
/// READs that are outstanding at once, and requests after the one that is refused.
const OPEN_READS: usize = 4;
const LATE: u64 = 5;

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
        // A WRITE before the READs, which must see it, and a SEND after them.
        let length = random.random_range(0..=4000);
        let place = random.random_range(0..=WINDOW_BYTES - length);
        let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
        model[place..][..length].copy_from_slice(&bytes);
        let receive = rig.receive_request(batch);
        queue_pair.post_receive(receive)?;
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
        let is_fenced = batch % 2 == 0;
        rig.passed();
        rig.endpoint(|endpoint| {
            let operation = Operation::Write { address: remote.address + place as u64, key: remote.key };
            endpoint.post_send(PEER, SendWqe::new(0, operation, Data::Inline(bytes.clone())));
            for (wr_id, &(place, length)) in (1..).zip(&reads) {
                let operation = Operation::Read { address: remote.address + place as u64, key: remote.key };
                // In two pieces, at any alignment.
                let room = PEER_FIRST + wr_id * ROOM_BYTES as u64 + batch;
                let first = length as u64 / 3;
                let sges = [(room, first), (room + first, length as u64 - first)]
                    .map(|(address, length)| Sge { address, key: PEER_KEY, length: length as u32 });
                endpoint.post_send(PEER, SendWqe::new(wr_id, operation, Data::Sges(sges.to_vec())));
            }
            let last = SendWqe::new(9, Operation::Send, Data::Inline(vec![7; 20]));
            endpoint.post_send(PEER, SendWqe { fence: is_fenced, ..last });
        });
        let mut theirs = Vec::new();
        let count = reads.len() + 2;
        rig.wait("the batch", |rig| {
            rig.endpoint(|endpoint| theirs.extend(std::iter::from_fn(|| endpoint.poll(PEER))));
            Ok((theirs.len() >= count).then_some(()))
        })
        .with_context(|| format!("batch {batch}: {reads:?}"))?;
        ensure!(theirs.iter().all(|done| done.status == CompletionStatus::Success), "{theirs:?}");
        ensure!(theirs.iter().map(|done| done.wr_id).eq((0..=READS).chain([9])), "in order: {theirs:?}");
        ensure!(theirs[1..].iter().take(reads.len()).all(|done| done.opcode == CompletionOpcode::Read));
        if is_fenced {
            let passed = rig.passed();
            let is_send = |one: &&Passed| one.is_from_endpoint && one.opcode == Opcode::SendOnly.code();
            let ends = [Opcode::ReadResponseLast.code(), Opcode::ReadResponseOnly.code()];
            let before = passed.iter().take_while(|one| !is_send(one));
            let answered = before.filter(|one| !one.is_from_endpoint && ends.contains(&one.opcode)).count();
            ensure!(
                answered == reads.len(),
                "batch {batch}: {answered} READs are answered before the fenced SEND"
            );
        }
        for (wr_id, &(place, length)) in (1..).zip(&reads) {
            let room = wr_id * ROOM_BYTES + batch as usize;
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

/// An invalid request after READs: first all responses are sent, then the NAK, then the queue pair is in ERR. Meanwhile no
/// other request is executed.
pub(crate) fn before_a_refusal(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(WINDOW_BYTES, RemoteRights { read: true, ..RemoteRights::NONE })?;
    let bytes: Vec<u8> = (0..WINDOW_BYTES).map(|place| (place * 29 / 3) as u8).collect();
    window.write(0, &bytes)?;
    let RemoteMemory { address, key, .. } = window.remote();
    let rights = RemoteRights { read: true, ..RemoteRights::WRITE };
    let responses = WINDOW_BYTES.div_ceil(256);
    let refused_psn = Psn::wrapping(FIRST_PSN).add((OPEN_READS * responses) as u32);
    // Admission refuses the first for what it is, and the second as one READ more than were agreed; the third is refused for
    // the rights of its region.
    let invalid = (Opcode::WriteMiddle, 0x61, AsyncEvent::QueuePairRequestError);
    let forbidden = (Opcode::WriteOnly, 0x62, AsyncEvent::QueuePairAccessError);
    let surplus = (Opcode::ReadRequest, 0x61, AsyncEvent::QueuePairRequestError);
    for (operation, syndrome, event) in [invalid, surplus, forbidden] {
        let queue_pair = rig.new_queue_pair(rights)?;
        let number = queue_pair.number();
        let queue_pair =
            rig.connect_with(queue_pair, ATTACKER, IPV4, Pmtu::Bytes256, FIRST_PSN, |options| {
                options.destination_read_atomic = Some(OPEN_READS as u8);
            })?;
        let request = |operation: Opcode, psn: Psn, length: u32| {
            let bth = BthRepr { ack_request: true, ..BthRepr::new(operation as u8, number, psn) };
            let reth = RethRepr { virtual_address: address, remote_key: key, dma_length: length };
            let (headers, payload) = match operation {
                Opcode::WriteMiddle => (Vec::new(), vec![0; 256]),
                Opcode::WriteOnly => (vec![ExtendedRepr::Reth(reth)], vec![0; length as usize]),
                _ => (vec![ExtendedRepr::Reth(reth)], Vec::new()),
            };
            Packet::new(bth, headers, payload).frame(&path_to_card(IPV4), 1)
        };
        let psn = |read: usize| Psn::wrapping(FIRST_PSN).add((read * responses) as u32);
        let mut frames: Vec<_> = (0..OPEN_READS)
            .map(|read| request(Opcode::ReadRequest, psn(read), WINDOW_BYTES as u32))
            .collect();
        frames.push(request(operation, refused_psn, 8));
        frames.extend((1..=LATE).map(|late| request(Opcode::WriteOnly, refused_psn.add(late as u32), 8)));
        rig.moved()?;
        rig.heard();
        rig.send(&frames);
        let raised = rig.wait("the event", |rig| rig.event())?;
        ensure!(raised.code == event && raised.object_number == number, "{raised:?}");
        rig.exchange()?;

        let (mut read, mut count, mut ending) = (Vec::new(), 0, None);
        for frame in rig.heard() {
            let packet = PacketRepr::parse(&frame).map_err(|reason| anyhow::anyhow!("{reason:?}"))?;
            if packet.bth.destination_qp != ATTACKER {
                continue;
            }
            ensure!(ending.is_none(), "the NAK is the last response, and not {:?}", packet.bth);
            let told = packet.extended_headers().find_map(|header| match header {
                ExtendedRepr::Aeth(AethRepr { syndrome, msn }) => Some((syndrome, msn)),
                _ => None,
            });
            if packet.bth.opcode == Opcode::Acknowledge as u8 {
                ending = told.map(|told| (told.0, told.1, packet.bth.psn));
                continue;
            }
            let expected = Psn::wrapping(FIRST_PSN).add(count);
            ensure!(packet.bth.psn == expected, "{:?} is out of order", packet.bth);
            read.extend_from_slice(packet.payload);
            count += 1;
        }
        ensure_same(&read, &bytes.repeat(OPEN_READS))?;
        let expected = (syndrome, Psn::wrapping(OPEN_READS as u32), refused_psn);
        ensure!(ending == Some(expected), "{ending:x?}, expected {expected:x?}");
        let moved = rig.moved()?;
        let late = moved.of("requests_after_failure") + moved.of("qp_not_ready");
        ensure!(late == LATE, "{moved:?}");
        ensure!(rig.completions()?.is_empty() && rig.event()?.is_none());
        drop(queue_pair);
    }
    Ok(())
}
