//! Responses that come faster than the requester takes them, while others wait for theirs.
use crate::asker::Asker;
use crate::pace::{send_fast, send_paced};
use crate::rig::{IPV4, Rig, ensure_same};
use anyhow::{Result, ensure};
use rnic_driver::{RemoteMemory, RemoteRights, SendRequest};
use rnic_layout::opcode::Operation as Op;
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::wire::extended::AethRepr;
use rnic_layout::wire::{ExtendedRepr, PacketRepr};
use rnic_machine::host::HostOptions;
use std::collections::BTreeMap;

/// QPNs of the two peers, whom the test plays, and their first PSN.
const FLOODED: u32 = 0x93;
const OTHER: u32 = 0x94;
const FIRST: u32 = 0x12_3456;
/// ACKs that nobody waits for, as fast as the wire brings them.
const ACKS: usize = 4_000;
/// READs of the other queue pair: as many as may be open.
const READS: usize = 16;
const READ_BYTES: usize = 64;
/// Packets and PMTU of a READ that is answered while the host takes no writes: more than the response buffer holds.
const STUCK: usize = 700;
const PMTU_BYTES: usize = 256;
/// What the READs name. Nobody looks.
const REMOTE: RemoteMemory = RemoteMemory { address: 0x1000, key: 7, bytes: (STUCK * PMTU_BYTES) as u64 };
/// Time after the flood in which the READs must have completed.
const SOON_NS: u64 = 5_000;
/// Time in which a card of 64 bits writes what its response buffer holds to the host: 64 KiB at 10 Gb/s.
const DRAIN_NS: u64 = 60_000;

/// An AETH with the syndrome of an ACK.
fn acknowledges() -> Vec<ExtendedRepr> {
    vec![ExtendedRepr::Aeth(AethRepr { syndrome: 0x1f, msn: Psn::wrapping(1) })]
}

/// What the READ of this number returns.
fn contents(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|byte| (number * 31 + byte % 251 + 1) as u8).collect()
}

/// A queue pair of the card whose requests the test answers.
struct Answerer {
    asker: Asker,
    peer: u32,
    first_psn: Psn,
}

impl Answerer {
    fn connect(rig: &Rig, peer: u32) -> Result<Answerer> {
        let queue_pair = rig.new_queue_pair(RemoteRights::ALL)?;
        let first_psn = Psn::wrapping(queue_pair.info(IPV4)?.first_psn);
        let queue_pair = rig.connect(queue_pair, peer, IPV4, Pmtu::Bytes256, FIRST)?;
        Ok(Answerer { asker: Asker { queue_pair, version: IPV4, remote: REMOTE }, peer, first_psn })
    }

    /// Posts READs of so many bytes each, and waits for their requests. No other requests may come meanwhile.
    fn read(&mut self, rig: &mut Rig, count: usize, bytes: usize) -> Result<()> {
        let mut requests = Vec::new();
        for number in 0..count {
            let remote = RemoteMemory { bytes: bytes as u64, ..REMOTE };
            let region = rig.domain.allocate(bytes)?;
            requests.push(SendRequest::read(number as u64, remote).sge(region).signalled());
        }
        self.asker.queue_pair.post_sends(&mut requests)?;
        let mut asked = 0;
        rig.wait("the READ requests", |rig| {
            let packets = rig.heard();
            let packets = packets.iter().filter_map(|frame| PacketRepr::parse(frame).ok());
            asked += packets.filter(|packet| packet.bth.destination_qp == self.peer).count();
            Ok((asked == count).then_some(()))
        })
    }

    /// A response with data; READ_RESPONSE_MIDDLE has no extended headers.
    fn response(&self, operation: Op, place: usize, data: &[u8]) -> Vec<u8> {
        let headers = if operation == Op::ReadResponseMiddle { Vec::new() } else { acknowledges() };
        self.asker.frame(operation, self.first_psn.add(place as u32).value(), headers, data.to_vec())
    }

    /// The response to the READ of this number, of one packet.
    fn answer(&self, number: usize) -> Vec<u8> {
        self.response(Op::ReadResponseOnly, number, &contents(number, READ_BYTES))
    }

    /// An ACK of a PSN that was never sent.
    fn ghost(&self) -> Vec<u8> {
        self.asker.frame(Op::Acknowledge, self.first_psn.add(100).value(), acknowledges(), Vec::new())
    }
}

/// Takes the CQEs of READs, in order and with success; only those of this number of bytes.
fn completed(rig: &mut Rig, bytes: usize) -> Result<usize> {
    let mut count = 0;
    for done in rig.completions()? {
        ensure!(done.status == CompletionStatus::Success, "{done:?}");
        if done.message.len() == bytes {
            ensure!(done.wr_id == count as u64, "{done:?}");
            ensure_same(&done.message, &contents(count, bytes))?;
            count += 1;
        }
    }
    Ok(count)
}

/// ACKs that answer nothing come as fast as the wire brings them, all to one queue pair. It takes its share of the response buffer;
/// what exceeds that is dropped. Each of the READ responses of another queue pair among them is kept: it sends nothing again, so
/// one that is lost would end it.
pub(crate) fn smallest_responses(rig: &mut Rig, width_bits: u32) -> Result<()> {
    let flooded = Answerer::connect(rig, FLOODED)?;
    let mut other = Answerer::connect(rig, OTHER)?;
    rig.settle()?;
    other.read(rig, READS, READ_BYTES)?;
    rig.moved()?;
    let mut frames = Vec::new();
    for place in 0..ACKS {
        if place % (ACKS / READS) == 0 {
            frames.push(other.answer(place / (ACKS / READS)));
        }
        frames.push(flooded.ghost());
    }
    send_fast(rig, &frames, width_bits)?;
    rig.step_ns(SOON_NS)?;
    let done = completed(rig, READ_BYTES)?;
    ensure!(done == READS, "{done} READs have completed {SOON_NS} ns after the flood");
    rig.idle(100);
    let moved = rig.moved()?;
    let dropped = moved.of("buffer_share");
    // The requester takes a response in 3 cycles, and at 512 bits these come at one in 1.7; a card of 64 bits is faster than its wire.
    ensure!((dropped > 0) == (width_bits == 512), "{moved:?}");
    let mut expected = BTreeMap::from([("response_never_sent", ACKS as u64 - dropped)]);
    if dropped > 0 {
        expected.insert("buffer_share", dropped);
    }
    ensure!(moved.named() == expected, "{moved:?}");
    println!("{dropped} of {ACKS} ACKs were dropped");
    rig.exchange()?;
    rig.settle()
}

/// A long READ is answered while the host takes no writes, until its queue pair has its share of the response buffer; what exceeds
/// that is dropped and comes again. The responses of another queue pair behind it are kept.
pub(crate) fn responses_of_a_stuck_host(rig: &mut Rig) -> Result<()> {
    let mut flooded = Answerer::connect(rig, FLOODED)?;
    let mut other = Answerer::connect(rig, OTHER)?;
    rig.settle()?;
    flooded.read(rig, 1, STUCK * PMTU_BYTES)?;
    other.read(rig, READS, READ_BYTES)?;
    rig.moved()?;
    rig.world().host_mut(0).set_options(HostOptions { write_request_stall: 1.0, ..HostOptions::IDEAL });
    let data = contents(0, STUCK * PMTU_BYTES);
    let packets: Vec<_> = data
        .chunks(PMTU_BYTES)
        .enumerate()
        .map(|(place, data)| {
            let operation = match place {
                0 => Op::ReadResponseFirst,
                _ if place == STUCK - 1 => Op::ReadResponseLast,
                _ => Op::ReadResponseMiddle,
            };
            flooded.response(operation, place, data)
        })
        .collect();
    send_paced(rig, &packets)?;
    send_paced(rig, &(0..READS).map(|number| other.answer(number)).collect::<Vec<_>>())?;
    ensure!(rig.completions()?.is_empty(), "READs have completed without their data");
    rig.world().host_mut(0).set_options(HostOptions::IDEAL);
    rig.step_ns(DRAIN_NS)?;
    let done = completed(rig, READ_BYTES)?;
    ensure!(done == READS, "{done} READs have completed {DRAIN_NS} ns after the host took writes again");
    let moved = rig.moved()?;
    let dropped = moved.of("buffer_share") as usize;
    ensure!(0 < dropped && dropped < STUCK, "{moved:?}");
    ensure!(moved.named() == [("buffer_share", dropped as u64)].into(), "{moved:?}");
    println!("{dropped} of {STUCK} responses were dropped while the host took no writes");

    // The peer answers the rest.
    send_paced(rig, &packets[STUCK - dropped..])?;
    rig.step_ns(SOON_NS)?;
    ensure!(completed(rig, STUCK * PMTU_BYTES)? == 1, "the long READ has not completed");
    rig.exchange()?;
    rig.settle()
}
