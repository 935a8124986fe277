//! Traces A to H and J of protocol 3.12 with the card as requester: which packets it sends again, from where on, and after how long.
//! Trace I is in [`middle`](crate::middle).
use crate::rig::{Faults, IPV4, PEER_FIRST, PEER_KEY, Rig, ensure_same};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{QueuePair, QueuePairOptions, RemoteMemory, RemoteRights, SendRequest};
use rnic_endpoint::memory::Sge;
use rnic_endpoint::qp::ReceiveWqe;
use rnic_layout::opcode::{Operation as Op, Transport, lookup};
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::registers::REG_TIMER_UNIT;
use rnic_layout::wire::{ExtendedRepr, PacketRepr};
use rnic_machine::host::Bar as Window;
use std::collections::BTreeMap;

/// QPN of the endpoint's side, and the first PSN of the card.
const PEER: u32 = 0x58;
const FIRST_PSN: u32 = 0xff_fffe;
/// Unit of the timers in cycles of 4 ns, and the timeout: T is 131 us.
pub(crate) const UNIT: u64 = 128;
const TIMEOUT: u8 = 8;
/// Shortest delay of an RNR NAK with the timer code of the endpoint, in this unit: 640 us are 157 units.
const RNR_PS: u64 = 157 * UNIT * 4_000;
/// Where the WRITE goes, where the READ comes from, the word of the atomic, and the room for the SEND.
const WRITTEN: usize = 0;
const READ: usize = 0x1000;
const WORD: usize = 0x2000;
const ROOM: usize = 0x3000;
const VALUE: u64 = 77;

/// A request: operation, PSN, length in its RETH, bytes of payload.
type Request = (Op, u32, Option<u32>, usize);

/// The requests without a loss.
const ALL: [Request; 6] = [
    (Op::WriteFirst, 0xff_fffe, Some(2500), 1024),
    (Op::WriteMiddle, 0xff_ffff, None, 1024),
    (Op::WriteLast, 0, None, 452),
    (Op::ReadRequest, 1, Some(3000), 0),
    (Op::SendOnly, 4, None, 0),
    (Op::FetchAdd, 5, None, 0),
];

/// Loses the first packet of each PSN that is listed, of those that the endpoint receives or sends.
struct Lost {
    received: Vec<u32>,
    sent: Vec<u32>,
}

impl Faults for Lost {
    fn pass(&mut self, frame: &[u8], is_received: bool) -> Vec<Vec<u8>> {
        let packet = PacketRepr::parse(frame).expect("it is a packet");
        let lost = if is_received { &mut self.received } else { &mut self.sent };
        let place = lost.iter().position(|&psn| psn == packet.bth.psn.value());
        match place {
            Some(place) => {
                lost.remove(place);
                vec![]
            }
            None => vec![frame.to_vec()],
        }
    }
}

/// What happens in a trace.
struct Trace {
    name: &'static str,
    received: &'static [u32],
    sent: &'static [u32],
    /// The timer runs, and must expire.
    has_timer: bool,
    /// Messages of the four that are posted.
    messages: usize,
    /// The receive is posted late.
    is_late: bool,
    /// Requests that were sent before the loss shows, at least.
    before: usize,
    /// What is sent again, and what may follow it.
    again: &'static [Request],
    may_follow: &'static [Request],
}

const TRACES: [Trace; 8] = [
    Trace {
        name: "A: nothing is lost",
        received: &[],
        sent: &[],
        has_timer: false,
        messages: 4,
        is_late: false,
        before: 6,
        again: &[],
        may_follow: &[],
    },
    Trace {
        name: "B: the second packet of the WRITE is lost",
        received: &[0xff_ffff],
        sent: &[],
        has_timer: false,
        messages: 4,
        is_late: false,
        before: 3,
        again: &[ALL[1], ALL[2], ALL[3], ALL[4], ALL[5]],
        may_follow: &[],
    },
    Trace {
        name: "C: the second response is lost",
        received: &[],
        sent: &[2],
        has_timer: false,
        messages: 4,
        is_late: false,
        before: 4,
        again: &[(Op::ReadRequest, 2, Some(1976), 0)],
        may_follow: &[ALL[4], ALL[5]],
    },
    Trace {
        name: "D: an ACK overtakes all responses",
        received: &[],
        sent: &[1, 2, 3],
        has_timer: false,
        messages: 4,
        is_late: false,
        before: 5,
        again: &[ALL[3]],
        may_follow: &[ALL[4], ALL[5]],
    },
    Trace {
        name: "E: the receive queue is empty",
        received: &[],
        sent: &[],
        has_timer: false,
        messages: 4,
        is_late: true,
        before: 5,
        again: &[ALL[4], ALL[5]],
        may_follow: &[],
    },
    Trace {
        name: "F: the ACK of the WRITE is lost",
        received: &[],
        sent: &[0],
        has_timer: true,
        messages: 1,
        is_late: false,
        before: 3,
        again: &[ALL[0], ALL[1], ALL[2]],
        may_follow: &[],
    },
    Trace {
        name: "G: the ATOMIC_ACK is lost",
        received: &[],
        sent: &[5],
        has_timer: true,
        messages: 4,
        is_late: false,
        before: 6,
        again: &[ALL[5]],
        may_follow: &[],
    },
    Trace {
        name: "J: the NAK of trace B is lost",
        received: &[0xff_ffff],
        sent: &[0xff_ffff],
        has_timer: true,
        messages: 4,
        is_late: false,
        before: 6,
        again: &ALL,
        may_follow: &[],
    },
];

/// The trace with this letter.
pub(crate) fn of_requester(rig: &mut Rig, letter: char) -> Result<()> {
    rig.world().write_register(0, Window::Registers, REG_TIMER_UNIT.offset.into(), UNIT)?;
    let trace = TRACES.iter().find(|trace| trace.name.starts_with(letter)).context("it is listed")?;
    run(rig, trace).with_context(|| trace.name)
}

/// Trace H: the R_Key of the WRITE is wrong. It has the status of the NAK, and the rest is flushed.
pub(crate) fn wrong_key(rig: &mut Rig) -> Result<()> {
    let mut queue_pair = connect(rig, false)?;
    let mut requests = messages(rig, PEER_KEY ^ 0x100, &[0x3c; 2500])?;
    rig.moved()?;
    queue_pair.post_sends(&mut requests)?;
    let done = rig.completed(4)?;
    let found: Vec<_> = done.iter().map(|done| (done.wr_id, done.status)).collect();
    use CompletionStatus::{Flushed, RemoteAccess};
    ensure!(found == [(0, RemoteAccess), (1, Flushed), (2, Flushed), (3, Flushed)], "{found:?}");
    let moved = rig.moved()?;
    ensure!(moved.of("nak_received") == 1, "{moved:?}");
    drop(queue_pair);
    rig.settle()
}

fn connect(rig: &Rig, has_timer: bool) -> Result<QueuePair<ReadyToSend>> {
    let options = QueuePairOptions { first_psn: Some(FIRST_PSN), ..QueuePairOptions::default() };
    let queue_pair = rig.domain.create_queue_pair(&rig.sends, &rig.receives, &options)?;
    let queue_pair = queue_pair.initialize(RemoteRights::NONE).map_err(rnic_driver::Error::from)?;
    rig.connect_to_endpoint_with(queue_pair, PEER, IPV4, Pmtu::Bytes1024, 7, |options| {
        options.send.retry_count = 1;
        options.send.rnr_retry = 1;
        options.send.timeout = if has_timer { TIMEOUT } else { 0 };
    })
}

/// The messages: a WRITE of 2,500 bytes with this key, a READ of 3,000, an empty SEND, and an atomic.
fn messages(rig: &Rig, write_key: u32, written: &[u8]) -> Result<Vec<SendRequest>> {
    let remote = |place: usize, length: usize| RemoteMemory {
        address: PEER_FIRST + place as u64,
        key: PEER_KEY,
        bytes: length as u64,
    };
    let mut payload = rig.domain.allocate(written.len())?;
    payload.bytes_mut().copy_from_slice(written);
    let target = RemoteMemory { key: write_key, ..remote(WRITTEN, written.len()) };
    let write = SendRequest::write(0, target).sge(payload);
    let read = SendRequest::read(1, remote(READ, 3000)).sge(rig.domain.allocate(3000)?);
    let add = SendRequest::fetch_add(3, remote(WORD, 8), 5).sge(rig.domain.allocate(8)?);
    let all = [write, read, SendRequest::send(2), add];
    Ok(all.into_iter().map(SendRequest::signalled).collect())
}

fn run(rig: &mut Rig, trace: &Trace) -> Result<()> {
    let mut queue_pair = connect(rig, trace.has_timer)?;
    let written: Vec<u8> = (0..2500).map(|place| (place * 7 + 3) as u8).collect();
    let read: Vec<u8> = (0..3000).map(|place| (place * 11 + 5) as u8).collect();
    rig.endpoint(|endpoint| {
        let memory = &mut endpoint.memory().bytes;
        memory[WRITTEN..][..2500].fill(0);
        memory[READ..][..3000].copy_from_slice(&read);
        memory[WORD..][..8].copy_from_slice(&VALUE.to_le_bytes());
    });
    let receive = |rig: &Rig| {
        let sges = vec![Sge { address: PEER_FIRST + ROOM as u64, key: PEER_KEY, length: 64 }];
        rig.endpoint(|endpoint| endpoint.post_receive(PEER, ReceiveWqe { wr_id: 9, sges }));
    };
    if !trace.is_late {
        receive(rig);
    }
    rig.moved()?;
    rig.heard();
    rig.passed();
    rig.set_faults(Some(Box::new(Lost { received: trace.received.to_vec(), sent: trace.sent.to_vec() })));
    let mut requests = messages(rig, PEER_KEY, &written)?;
    requests.truncate(trace.messages);
    queue_pair.post_sends(&mut requests)?;
    if trace.is_late || trace.messages == 1 {
        rig.idle(300);
    }
    if trace.is_late {
        receive(rig);
    }
    if trace.messages == 1 {
        // What was executed once is not executed again: this stays.
        rig.endpoint(|endpoint| endpoint.memory().bytes[WRITTEN] ^= 0xff);
    }
    let done = rig.completed(trace.messages)?;
    rig.set_faults(None);
    ensure!(done.iter().map(|done| done.wr_id).eq(0..trace.messages as u64), "{done:?}");
    ensure!(done.iter().all(|done| done.status == CompletionStatus::Success), "{done:?}");
    let frames = rig.heard();
    let heard = heard_of(&frames);
    let before = heard.iter().zip(&ALL).take_while(|(heard, all)| heard == all).count();
    let (again, rest) = heard[before..].split_at(trace.again.len().min(heard.len() - before));
    ensure!(before >= trace.before && again == trace.again, "{heard:x?}");
    let mut may_follow = trace.may_follow.iter();
    ensure!(rest.iter().all(|one| may_follow.any(|other| other == one)), "{rest:x?} follow");
    // A READ that goes on in its middle is another request than before.
    let is_repeated = again.iter().any(|request| ALL[..trace.before].contains(request));
    let repeated = ensure_repeated(&frames)?;
    ensure!(repeated > 0 || !is_repeated, "nothing is repeated");
    rig.endpoint(|endpoint| {
        let memory = &endpoint.memory().bytes;
        let is_changed = trace.messages == 1;
        ensure!((memory[WRITTEN] != written[0]) == is_changed, "the first byte is {}", memory[WRITTEN]);
        ensure_same(&memory[WRITTEN + 1..][..2499], &written[1..])?;
        let sum = if is_changed { VALUE } else { VALUE + 5 };
        ensure_same(&memory[WORD..][..8], &sum.to_le_bytes())
    })?;
    if trace.messages == 4 {
        ensure_same(&done[1].message, &read)?;
        ensure_same(&done[3].message, &VALUE.to_le_bytes())?;
    }
    if trace.is_late {
        waited(rig)?;
    }
    let timeouts = rig.moved()?.of("timeout");
    ensure!(timeouts == u64::from(trace.has_timer), "{timeouts} timeouts");
    drop(queue_pair);
    rig.endpoint(|endpoint| while endpoint.poll(PEER).is_some() {});
    ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
    Ok(())
}

/// What was sent again is what was sent before: all headers but AckReq, and the payload (protocol 2.8).
fn ensure_repeated(frames: &[Vec<u8>]) -> Result<usize> {
    let packets = frames.iter().filter_map(|frame| PacketRepr::parse(frame).ok());
    let mut first = BTreeMap::new();
    let mut count = 0;
    for packet in packets.filter(|packet| packet.bth.destination_qp == PEER) {
        let mut plain = packet;
        plain.bth.ack_request = false;
        let before = *first.entry((packet.bth.psn.value(), packet.bth.opcode)).or_insert(plain);
        ensure!(before == plain, "{before:x?} is repeated as {plain:x?}");
        count += 1;
    }
    Ok(count - first.len())
}

/// Requests to the endpoint's side, in order.
fn heard_of(frames: &[Vec<u8>]) -> Vec<Request> {
    let packets = frames.iter().filter_map(|frame| PacketRepr::parse(frame).ok());
    let mine = packets.filter(|packet| packet.bth.destination_qp == PEER);
    mine.map(|packet| {
        let operation = lookup(packet.bth.opcode).expect("it is known").operation;
        let length = packet.extended_headers().find_map(|header| match header {
            ExtendedRepr::Reth(reth) => Some(reth.dma_length),
            _ => None,
        });
        (operation, packet.bth.psn.value(), length, packet.payload.len())
    })
    .collect()
}

/// The SEND came again no sooner than the delay of the RNR NAK after it.
fn waited(rig: &Rig) -> Result<()> {
    let passed = rig.passed();
    let send = Transport::Rc.base() | Op::SendOnly.code();
    let asked = passed.iter().filter(|one| one.destination == PEER && one.opcode == send);
    let times: Vec<u64> = asked.map(|one| one.time_ps).collect();
    ensure!(times.len() == 2 && times[1] - times[0] >= RNR_PS, "the SEND came at {times:?} ps");
    Ok(())
}
