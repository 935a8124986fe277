//! Accesses to host memory that fail.
//!
//! Memory is unmapped for the time of one fault. A fault that belongs to one queue pair fails this queue pair, with the status
//! or the event of the reason; one of a completion queue fails that queue and the queue pairs that complete to it; a fault that
//! belongs to all of them fails the device, which reports it in its registers.
use crate::rig::{Done, IPV4, PEER_FIRST, PEER_KEY, RECEIVE_TAG, Rig};
use anyhow::{Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    CompletionError, CompletionQueue, CompletionQueueOptions, Error, QueuePair, QueuePairOptions,
    ReceiveRequest, RemoteMemory, RemoteRights, SendRequest,
};
use rnic_endpoint::memory::Sge;
use rnic_endpoint::qp::{Data, Operation, ReceiveWqe, SendWqe};
use rnic_layout::limits::HOST_READ_TAGS_MAX;
use rnic_layout::path::Pmtu;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::registers::{FatalCode, REG_HOST_LIMIT};
use rnic_machine::host::Bar as Window;
use std::collections::BTreeMap;
use std::sync::Arc;

/// QPN of the endpoint on the queue pair with the fault.
const VICTIM: u32 = 0x41;
/// Bytes of a message.
const BYTES: usize = 300;
/// Limit of the host's answers to reads, in units of 1024 cycles: at most 12 us.
const READ_LIMIT: u64 = 1;
/// Time by which an answer is too late.
const LATE_PS: u64 = 300_000_000;
/// Bytes of a message whose payload takes each tag once, in reads of 512 bytes.
const ROUND_BYTES: usize = HOST_READ_TAGS_MAX as usize * 512;

/// A queue pair, and the mappings of its send and receive rings.
struct Victim {
    queue_pair: QueuePair<ReadyToSend>,
    send_ring: (u64, usize),
    receive_ring: (u64, usize),
}

fn victim(rig: &mut Rig) -> Result<Victim> {
    let before = rig.interposer.mapped().len();
    let queue_pair = rig.new_queue_pair(RemoteRights::ALL)?;
    let rings = rig.interposer.mapped().split_off(before);
    let [send_ring, receive_ring] = rings[..] else {
        anyhow::bail!("a queue pair has two rings: {rings:x?}")
    };
    let queue_pair = rig.connect_to_endpoint(queue_pair, VICTIM, IPV4, Pmtu::Bytes1024, 5)?;
    rig.moved()?;
    Ok(Victim { queue_pair, send_ring, receive_ring })
}

/// The newest mapping.
fn newest(rig: &Rig) -> (u64, usize) {
    *rig.interposer.mapped().last().expect("there is one")
}

/// Consequences of a fault.
#[derive(Debug)]
struct Seen {
    done: Vec<(CompletionStatus, u64)>,
    events: Vec<AsyncEvent>,
    /// Status of the endpoint's message.
    peer: Vec<CompletionStatus>,
    counters: BTreeMap<&'static str, u64>,
    faults: usize,
}

/// Unmaps memory, runs a function, and collects the consequences while messages of the bystander pass.
fn meet(
    rig: &mut Rig,
    number: u32,
    mapping: (u64, usize),
    act: impl FnOnce(&mut Rig) -> Result<()>,
) -> Result<Seen> {
    let interposer = Arc::clone(&rig.interposer);
    let (done, faults) = interposer.without(mapping, || {
        act(rig)?;
        let mut done = rig.exchange()?;
        rig.idle(20);
        done.extend(rig.exchange()?);
        Ok(done)
    })?;
    consequences(rig, number, done, faults)
}

/// Answers reads of memory too late, runs a function, and collects the consequences while messages of the bystander pass.
fn outwait(
    rig: &mut Rig,
    number: u32,
    mapping: (u64, usize),
    act: impl FnOnce(&mut Rig) -> Result<()>,
) -> Result<Seen> {
    delay(rig, mapping);
    act(rig)?;
    let mut done = rig.exchange()?;
    rig.idle(20);
    done.extend(rig.exchange()?);
    rig.world().host_mut(0).delay_reads(None);
    consequences(rig, number, done, 0)
}

/// Answers reads of memory too late from now on.
fn delay(rig: &Rig, (address, bytes): (u64, usize)) {
    let range = address..address + bytes as u64;
    rig.world().host_mut(0).delay_reads(Some((range, LATE_PS)));
}

/// Collects the consequences of a fault that hit one queue pair.
fn consequences(rig: &mut Rig, number: u32, mut done: Vec<Done>, faults: usize) -> Result<Seen> {
    done.extend(rig.completions()?);
    ensure!(done.iter().all(|done| done.qp_number == number), "{done:?}");
    let mut events = Vec::new();
    while let Some(event) = rig.event()? {
        ensure!(event.object_number == number, "{event:?}");
        events.push(event.code);
    }
    let peer = rig
        .endpoint(|endpoint| std::iter::from_fn(|| endpoint.poll(VICTIM)).map(|done| done.status).collect());
    let counters = rig.moved()?.named();
    let done = done.iter().map(|done| (done.status, done.wr_id)).collect();
    Ok(Seen { done, events, peer, counters, faults })
}

fn counters<const COUNT: usize>(counters: [(&'static str, u64); COUNT]) -> BTreeMap<&'static str, u64> {
    BTreeMap::from(counters)
}

/// A failure behind another one: of two payloads that cannot be read, and of one behind a WRITE that the peer refuses. The first
/// message has its own status, whichever failure is known first, and what is behind it is flushed.
pub(crate) fn failures_behind_failures(rig: &mut Rig) -> Result<()> {
    use CompletionStatus::{Flushed, LocalProtection, RemoteAccess, Success};
    for first in [LocalProtection, RemoteAccess] {
        let mut victim = victim(rig)?;
        let (one, other) = rig.domain.allocate(2 * BYTES)?.split_at(BYTES).expect("it is longer");
        let mapping = newest(rig);
        let target = |key| RemoteMemory { address: PEER_FIRST + 0x1000, key, bytes: BYTES as u64 };
        let failing = match first {
            LocalProtection => SendRequest::write(6, target(PEER_KEY)).sge(one),
            _ => SendRequest::write(6, target(PEER_KEY ^ 0x100)).inline(&[6; 9]),
        };
        let mut requests = vec![
            SendRequest::write(5, target(PEER_KEY)).inline(&[5; 9]),
            failing,
            SendRequest::write(7, target(PEER_KEY)).sge(other),
            SendRequest::write(8, target(PEER_KEY)).inline(&[8; 9]),
        ];
        let queue_pair = &mut victim.queue_pair;
        let seen = meet(rig, queue_pair.number(), mapping, |_| Ok(queue_pair.post_sends(&mut requests)?))?;
        let expected = [(Success, 5), (first, 6), (Flushed, 7), (Flushed, 8)];
        ensure!(seen.done == expected && seen.faults > 0, "{first:?} behind a success: {seen:?}");
    }
    Ok(())
}

/// The payload of a message cannot be read: it completes with LOC_PROT, later messages are flushed, and the peer executes
/// nothing. It answers the packet that follows the failed one, when the queue pair has ended.
fn payload_unreadable(rig: &mut Rig) -> Result<()> {
    let mut victim = victim(rig)?;
    let region = rig.domain.allocate(BYTES)?;
    let mapping = newest(rig);
    rig.endpoint(|endpoint| {
        let sge = Sge { address: PEER_FIRST, key: PEER_KEY, length: BYTES as u32 };
        endpoint.post_receive(VICTIM, ReceiveWqe { wr_id: 1, sges: vec![sge] });
    });
    let queue_pair = &mut victim.queue_pair;
    let seen = meet(rig, queue_pair.number(), mapping, |_| {
        let request = SendRequest::send(7).sge(region).signalled();
        Ok(queue_pair.post_send(request)?)
    })?;
    ensure!(seen.done == [(CompletionStatus::LocalProtection, 7)], "{seen:?}");
    ensure!(seen.events.is_empty() && seen.peer.is_empty(), "{seen:?}");
    let expected = counters([("host_read_errors", 1), ("qp_not_ready", 1)]);
    ensure!(seen.faults == 1 && seen.counters == expected, "{seen:?}");

    let request = SendRequest::send(8).inline(&[1; 8]).signalled();
    queue_pair.post_send(request)?;
    let done = rig.exchange()?;
    let is_flushed = |done: &Done| (done.status, done.wr_id) == (CompletionStatus::Flushed, 8);
    ensure!(done.len() == 1 && done.iter().all(is_flushed), "{done:?}");
    Ok(())
}

/// WRITEs that nobody asked the peer to acknowledge are posted together with a message whose payload cannot be read: the peer
/// executes them, and they complete with success before the message completes with LOC_PROT. The peer sees nothing of the message,
/// and its queue pair goes on.
pub(crate) fn payload_unreadable_after_others(rig: &mut Rig) -> Result<()> {
    for (operation, is_signalled, has_another) in
        [("SEND", false, false), ("WRITE", false, false), ("SEND", true, false), ("WRITE", false, true)]
    {
        let mut victim = victim(rig)?;
        let (mut good, bad) = (rig.domain.allocate(BYTES)?, rig.domain.allocate(BYTES)?);
        let mapping = newest(rig);
        // Behind the memory of the bystander's messages.
        let written = 0x1000..0x1000 + 2 * BYTES;
        let address = PEER_FIRST + written.start as u64;
        rig.endpoint(|endpoint| {
            endpoint.memory().bytes[written.clone()].fill(0xaa);
            let sge = Sge { address, key: PEER_KEY, length: BYTES as u32 };
            endpoint.post_receive(VICTIM, ReceiveWqe { wr_id: 1, sges: vec![sge] });
        });
        let remote = RemoteMemory { address, key: PEER_KEY, bytes: written.len() as u64 };
        let (first, second) = (remote, RemoteMemory { address: address + BYTES as u64, ..remote });
        good.bytes_mut().fill(0x55);
        let before =
            [SendRequest::write(5, first).sge(good), SendRequest::write(6, second).inline(&[0x66; 9])];
        let failing = if operation == "SEND" { SendRequest::send(7) } else { SendRequest::write(7, remote) };
        let mut requests: Vec<SendRequest> = before.into();
        if is_signalled {
            requests = requests.into_iter().map(SendRequest::signalled).collect();
        }
        requests.push(failing.sge(bad));
        if has_another {
            requests.push(SendRequest::write(8, remote).inline(&[0x77; 9]));
        }
        let queue_pair = &mut victim.queue_pair;
        let seen = meet(rig, queue_pair.number(), mapping, |_| Ok(queue_pair.post_sends(&mut requests)?))?;
        // The driver reports all, the card only what is signalled or in error.
        let mut expected = vec![
            (CompletionStatus::Success, 5),
            (CompletionStatus::Success, 6),
            (CompletionStatus::LocalProtection, 7),
        ];
        if has_another {
            expected.push((CompletionStatus::Flushed, 8));
        }
        ensure!(
            seen.done == expected && seen.events.is_empty() && seen.peer.is_empty(),
            "{operation}: {seen:?}"
        );
        // The NAK of the failed packet acknowledges those before it, or comes after their own acknowledgement.
        let late = seen.counters.get("qp_not_ready").copied().unwrap_or(0);
        ensure!(late == 0 || is_signalled, "{operation}: {seen:?}");
        let answer = if late == 1 { "qp_not_ready" } else { "nak_received" };
        let expected = counters([("host_read_errors", 1), (answer, 1)]);
        // The host reads the payload in one piece or in two.
        ensure!((1..=2).contains(&seen.faults), "{operation}: {seen:?}");
        ensure!(seen.counters == expected, "{operation}: {seen:?}");
        let memory = rig.endpoint(|endpoint| endpoint.memory().bytes[written.clone()].to_vec());
        let mut expected = vec![0x55; BYTES];
        expected.extend([0x66; 9]);
        expected.resize(written.len(), 0xaa);
        ensure!(memory == expected, "{operation}: the peer's memory is {memory:x?}");
    }
    Ok(())
}

/// The WQE itself cannot be read. Its `wr_id` is unknown, so an event is raised instead of a completion. The beginning of the
/// next WQE is unknown, too: all WQEs are returned when the queue pair is destroyed.
fn work_unreadable(rig: &mut Rig) -> Result<()> {
    let mut victim = victim(rig)?;
    let queue_pair = &mut victim.queue_pair;
    let seen = meet(rig, queue_pair.number(), victim.send_ring, |_| {
        let requests =
            [SendRequest::send(7).inline(&[1; 8]).signalled(), SendRequest::send(8).inline(&[2; 8])];
        for request in requests {
            queue_pair.post_send(request)?;
        }
        Ok(())
    })?;
    ensure!(seen.done.is_empty() && seen.events == [AsyncEvent::QueuePairFatal], "{seen:?}");
    ensure!(seen.peer.is_empty(), "{seen:?}");
    let errors = seen.faults as u64;
    let expected = counters([("host_read_errors", errors), ("work_refused", 1)]);
    ensure!(errors >= 1 && seen.counters == expected, "{seen:?}");

    let request = SendRequest::send(9).inline(&[3; 8]).signalled();
    queue_pair.post_send(request)?;
    ensure!(rig.exchange()?.is_empty(), "no WQE of a ring that cannot be read is executed");
    drop(victim);
    comes_back_flushed(rig, Vec::new(), &[7, 8, 9])
}

/// Checks that these work requests have completed, or complete now, each once and flushed.
fn comes_back_flushed(rig: &mut Rig, mut done: Vec<Done>, tags: &[u64]) -> Result<()> {
    done.extend(rig.completions()?);
    ensure!(done.iter().all(|done| done.status == CompletionStatus::Flushed), "{done:?}");
    ensure!(done.iter().map(|done| done.wr_id).eq(tags.iter().copied()), "{done:?}");
    Ok(())
}

/// A receive WQE cannot be read: NAK 0x63. Its `wr_id` is unknown, so an event is raised instead of a completion.
fn receive_unreadable(rig: &mut Rig) -> Result<()> {
    let mut victim = victim(rig)?;
    let requests = [rig.receive_request(3), rig.receive_request(4)];
    let queue_pair = &mut victim.queue_pair;
    let seen = meet(rig, queue_pair.number(), victim.receive_ring, |rig| {
        for request in requests {
            queue_pair.post_receive(request)?;
        }
        rig.device.check()?;
        rig.endpoint(|endpoint| {
            endpoint.post_send(VICTIM, SendWqe::new(1, Operation::Send, Data::Inline(vec![4; 20])));
        });
        Ok(())
    })?;
    ensure!(seen.done.is_empty() && seen.events == [AsyncEvent::QueuePairFatal], "{seen:?}");
    ensure!(seen.peer == [CompletionStatus::RemoteOperation], "{seen:?}");
    let errors = seen.faults as u64;
    let expected = counters([("host_read_errors", errors), ("nak_operational_sent", 1)]);
    ensure!(errors >= 1 && seen.counters == expected, "{seen:?}");

    // Later receives are flushed by the card if it can read them, otherwise when the queue pair is destroyed.
    let request = rig.receive_request(5);
    queue_pair.post_receive(request)?;
    let mut done = rig.exchange()?;
    rig.idle(20);
    done.extend(rig.exchange()?);
    drop(victim);
    comes_back_flushed(rig, done, &[3, 4, 5].map(|wr_id| wr_id | RECEIVE_TAG))
}

/// The payload of a SEND cannot be written: NAK 0x63, and the receive completes with LOC_PROT.
fn receive_unwritable(rig: &mut Rig) -> Result<()> {
    let mut victim = victim(rig)?;
    let region = rig.domain.allocate(BYTES)?;
    let mapping = newest(rig);
    let queue_pair = &mut victim.queue_pair;
    queue_pair.post_receive(ReceiveRequest::new(3 | RECEIVE_TAG).sge(region))?;
    rig.device.check()?;
    let seen = meet(rig, queue_pair.number(), mapping, |rig| {
        rig.endpoint(|endpoint| {
            let data = Data::Inline(vec![4; BYTES]);
            endpoint.post_send(VICTIM, SendWqe::new(1, Operation::Send, data));
        });
        Ok(())
    })?;
    ensure!(seen.done == [(CompletionStatus::LocalProtection, 3 | RECEIVE_TAG)], "{seen:?}");
    // The write failure is reported without knowledge of the receive, so the event is raised in any case.
    ensure!(seen.events == [AsyncEvent::QueuePairFatal], "{seen:?}");
    ensure!(seen.peer == [CompletionStatus::RemoteOperation], "{seen:?}");
    let errors = seen.faults as u64;
    let expected = counters([("host_write_errors", errors), ("nak_operational_sent", 1)]);
    ensure!(errors == 1 && seen.counters == expected, "{seen:?}");
    // Its memory came back with the receives' and is none of theirs.
    rig.room.pop();
    Ok(())
}

/// The payload of a WRITE cannot be written: NAK 0x63, and an event, as there is no receive to complete.
fn window_unwritable(rig: &mut Rig) -> Result<()> {
    let victim = victim(rig)?;
    let window = rig.domain.share(BYTES, RemoteRights::WRITE)?;
    let mapping = newest(rig);
    let RemoteMemory { address, key, .. } = window.remote();
    let seen = meet(rig, victim.queue_pair.number(), mapping, |rig| {
        rig.endpoint(|endpoint| {
            let data = Data::Inline(vec![4; BYTES]);
            endpoint.post_send(VICTIM, SendWqe::new(1, Operation::Write { address, key }, data));
        });
        Ok(())
    })?;
    ensure!(seen.done.is_empty() && seen.events == [AsyncEvent::QueuePairFatal], "{seen:?}");
    ensure!(seen.peer == [CompletionStatus::RemoteOperation], "{seen:?}");
    let errors = seen.faults as u64;
    let expected = counters([("host_write_errors", errors), ("nak_operational_sent", 1)]);
    ensure!(errors == 1 && seen.counters == expected, "{seen:?}");
    Ok(())
}

/// The payload of a WRITE cannot be written, and a READ follows it: it is not answered, as its response would acknowledge the WRITE.
fn window_unwritable_before_a_read(rig: &mut Rig) -> Result<()> {
    let victim = victim(rig)?;
    let source = rig.domain.share(BYTES, RemoteRights::ALL)?;
    let window = rig.domain.share(BYTES, RemoteRights::WRITE)?;
    let mapping = newest(rig);
    let (readable, RemoteMemory { address, key, .. }) = (source.remote(), window.remote());
    let seen = meet(rig, victim.queue_pair.number(), mapping, |rig| {
        rig.endpoint(|endpoint| {
            let data = Data::Inline(vec![4; BYTES]);
            endpoint.post_send(VICTIM, SendWqe::new(1, Operation::Write { address, key }, data));
            // Behind the memory of the bystander's messages.
            let sge = Sge { address: PEER_FIRST + 0x1000, key: PEER_KEY, length: 8 };
            let read = Operation::Read { address: readable.address, key: readable.key };
            endpoint.post_send(VICTIM, SendWqe::new(2, read, Data::Sges(vec![sge])));
        });
        Ok(())
    })?;
    ensure!(seen.done.is_empty() && seen.events == [AsyncEvent::QueuePairFatal], "{seen:?}");
    ensure!(seen.peer == [CompletionStatus::RemoteOperation, CompletionStatus::Flushed], "{seen:?}");
    let errors = seen.faults as u64;
    let expected = counters([("host_write_errors", errors), ("nak_operational_sent", 1)]);
    ensure!(errors == 1 && seen.counters == expected, "{seen:?}");
    Ok(())
}

/// What the peer sees of a READ, and of a WRITE behind it whose payload cannot be written; the counters tell that one NAK left.
fn unwritable_behind_a_read(rig: &mut Rig, bytes: usize) -> Result<Vec<CompletionStatus>> {
    let victim = victim(rig)?;
    let source = rig.domain.share(bytes, RemoteRights::ALL)?;
    let window = rig.domain.share(BYTES, RemoteRights::WRITE)?;
    let mapping = newest(rig);
    let (readable, RemoteMemory { address, key, .. }) = (source.remote(), window.remote());
    let mut peer: Vec<CompletionStatus> = Vec::new();
    let seen = meet(rig, victim.queue_pair.number(), mapping, |rig| {
        rig.endpoint(|endpoint| {
            // Behind the memory of the bystander's messages.
            let sge = Sge { address: PEER_FIRST + 0x1000, key: PEER_KEY, length: bytes as u32 };
            let read = Operation::Read { address: readable.address, key: readable.key };
            endpoint.post_send(VICTIM, SendWqe::new(1, read, Data::Sges(vec![sge])));
            let data = Data::Inline(vec![4; BYTES]);
            endpoint.post_send(VICTIM, SendWqe::new(2, Operation::Write { address, key }, data));
        });
        rig.wait("both messages of the peer end", |rig| {
            peer.extend(rig.endpoint(|endpoint| endpoint.poll(VICTIM)).map(|done| done.status));
            Ok((peer.len() == 2).then_some(()))
        })
    })?;
    ensure!(seen.done.is_empty() && seen.events == [AsyncEvent::QueuePairFatal], "{seen:?}");
    let errors = seen.faults as u64;
    let expected = counters([("host_write_errors", errors), ("nak_operational_sent", 1)]);
    ensure!(errors == 1 && seen.counters == expected, "{seen:?}");
    Ok(peer)
}

/// The payload of a WRITE cannot be written while the READ before it is answered. The NAK is the last answer: it follows the
/// last response, or takes the place of the first one that was not made.
fn window_unwritable_behind_a_read(rig: &mut Rig) -> Result<()> {
    use CompletionStatus::{Flushed, RemoteOperation, Success};
    let peer = unwritable_behind_a_read(rig, 60_000)?;
    ensure!(peer == [Success, RemoteOperation] || peer == [RemoteOperation, Flushed], "{peer:?}");
    let peer = unwritable_behind_a_read(rig, 240_000)?;
    ensure!(peer == [RemoteOperation, Flushed], "{peer:?}");
    Ok(())
}

/// The word of an atomic cannot be read: NAK 0x63, and an event. The next atomic is not answered.
fn word_unreadable(rig: &mut Rig) -> Result<()> {
    let victim = victim(rig)?;
    let window = rig.domain.share(BYTES, RemoteRights::ALL)?;
    let mapping = newest(rig);
    let RemoteMemory { address, key, .. } = window.remote();
    let seen = meet(rig, victim.queue_pair.number(), mapping, |rig| {
        rig.endpoint(|endpoint| {
            for wr_id in 1..=2 {
                let sge = Sge { address: PEER_FIRST, key: PEER_KEY, length: 8 };
                let operation = Operation::FetchAdd { address, key, add: 1 };
                let data = Data::Sges(vec![sge]);
                endpoint.post_send(VICTIM, SendWqe::new(wr_id, operation, data));
            }
        });
        Ok(())
    })?;
    ensure!(seen.done.is_empty() && seen.events == [AsyncEvent::QueuePairFatal], "{seen:?}");
    ensure!(seen.peer == [CompletionStatus::RemoteOperation, CompletionStatus::Flushed], "{seen:?}");
    let errors = seen.faults as u64;
    let expected = counters([("host_read_errors", errors), ("nak_operational_sent", 1)]);
    ensure!((1..=2).contains(&errors) && seen.counters == expected, "{seen:?}");
    Ok(())
}

/// Faults that end one queue pair.
pub(crate) fn of_one_queue_pair(rig: &mut Rig) -> Result<()> {
    type Fault = fn(&mut Rig) -> Result<()>;
    let faults: [(&str, Fault); 8] = [
        ("payload unreadable", payload_unreadable),
        ("work unreadable", work_unreadable),
        ("receive unreadable", receive_unreadable),
        ("receive unwritable", receive_unwritable),
        ("window unwritable", window_unwritable),
        ("window unwritable before a read", window_unwritable_before_a_read),
        ("window unwritable behind a read", window_unwritable_behind_a_read),
        ("word unreadable", word_unreadable),
    ];
    let mut failures = Vec::new();
    for (name, fault) in faults {
        if let Err(error) = fault(rig) {
            failures.push(format!("{name}: {error:#}"));
            rig.settle()?;
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// CQEs of one completion queue cannot be written. That costs this queue and the queue pairs that complete to it, each with its
/// event, and nothing else: the bystander's messages pass, and a new queue takes the place of the old one.
pub(crate) fn of_one_completion_queue(rig: &mut Rig) -> Result<()> {
    const REQUESTS: u64 = 3;
    let queue = |rig: &Rig| -> Result<CompletionQueue> {
        let options = CompletionQueueOptions::default();
        Ok(rig.device.create_completion_queue(&rig.device.events(), &options)?)
    };
    let connected = |rig: &Rig, queue: &CompletionQueue, peer| -> Result<QueuePair<ReadyToSend>> {
        let queue_pair = rig.domain.create_queue_pair(queue, &rig.receives, &QueuePairOptions::default())?;
        let queue_pair = queue_pair.initialize(RemoteRights::NONE).map_err(Error::from)?;
        rig.connect_to_endpoint(queue_pair, peer, IPV4, Pmtu::Bytes1024, 5)
    };
    let request =
        |wr_id| SendRequest::write(wr_id, RemoteMemory { address: 0, key: PEER_KEY, bytes: 0 }).signalled();
    let broken = queue(rig)?;
    let ring = newest(rig);
    let (mut first, mut second) = (connected(rig, &broken, 0x51)?, connected(rig, &broken, 0x52)?);
    rig.moved()?;

    // The CQEs of the first queue pair are refused, those in flight when the failure is known and those that follow.
    let interposer = Arc::clone(&rig.interposer);
    let ((), faults) = interposer.without(ring, || {
        for wr_id in 0..REQUESTS {
            first.post_send(request(wr_id))?;
        }
        ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
        rig.idle(50);
        ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
        Ok(())
    })?;
    let told = |rig: &Rig| -> Result<Vec<(AsyncEvent, u32)>> {
        let mut told = Vec::new();
        while let Some(event) = rig.event()? {
            told.push((event.code, event.object_number));
        }
        told.sort_by_key(|(code, _)| *code as u32);
        Ok(told)
    };
    let ends = (AsyncEvent::CompletionQueueError, broken.number());
    let found = told(rig)?;
    ensure!(found == [ends, (AsyncEvent::QueuePairFatal, first.number())], "{found:x?}");
    let error = broken.poll_one().expect_err("the queue has ended");
    ensure!(error == CompletionError::QueueFailed { number: broken.number() }, "{error}");
    let moved = rig.moved()?;
    let refused = moved.of("host_write_errors");
    ensure!(refused == faults as u64 && refused >= 1, "{faults}: {moved:?}");
    ensure!(refused + moved.of("completion_queue_overrun") == REQUESTS, "{moved:?}");

    // The memory is back, but software could not read past what is lost: the second queue pair fails when it completes.
    rig.device.check()?;
    second.post_send(request(9))?;
    ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
    rig.idle(50);
    let found = told(rig)?;
    ensure!(found == [(AsyncEvent::QueuePairFatal, second.number())], "{found:x?}");
    let moved = rig.moved()?.named();
    ensure!(moved == counters([("completion_queue_overrun", 1)]), "{moved:?}");

    drop((first, second, broken));
    let renewed = queue(rig)?;
    let mut third = connected(rig, &renewed, 0x53)?;
    third.post_send(request(10))?;
    let done = rig.wait("the completion", |_| Ok(renewed.poll_one()?))?;
    ensure!((done.status, done.wr_id) == (CompletionStatus::Success, 10), "{done:?}");
    ensure!(rig.exchange()?.is_empty() && told(rig)?.is_empty(), "something is left over");
    rig.device.check()?;
    Ok(())
}

/// The host answers reads of one queue pair far too late. The queue pair fails as if the host had refused them, and the others go on.
/// The late answers are dropped: their tags are used by no read before, which the host's model checks, though all other tags are.
pub(crate) fn of_late_answers(rig: &mut Rig) -> Result<()> {
    limit_host(rig, READ_LIMIT)?;
    let mut third = victim(rig)?;
    let queue_pair = &mut third.queue_pair;
    let region = rig.domain.allocate(BYTES)?;
    let mapping = newest(rig);
    let seen = outwait(rig, queue_pair.number(), mapping, |_| {
        let request = SendRequest::send(7).sge(region).signalled();
        Ok(queue_pair.post_send(request)?)
    })?;
    ensure!(seen.done == [(CompletionStatus::LocalProtection, 7)], "{seen:?}");
    ensure!(seen.events.is_empty() && seen.peer.is_empty(), "{seen:?}");
    // The NAK of the failed packet comes when the queue pair has failed.
    let expected = counters([("host_read_errors", 1), ("qp_not_ready", 1)]);
    ensure!(seen.counters == expected, "{seen:?}");
    ensure!(!rig.world().host(0).is_idle(), "the host owes an answer");

    let mut other = connected_anew(rig, 0x42)?;
    write_round(rig, &mut other)?;
    ensure!(!rig.world().host(0).is_idle(), "the host still owes an answer");
    rig.idle(LATE_PS as usize / 100_000);
    ensure!(rig.world().host(0).is_idle(), "the host has answered");
    rig.device.check()?;
    write_round(rig, &mut other)?;

    // A WQE: its `wr_id` is unknown, so an event is raised, and its ring is read no more.
    let before = rig.interposer.mapped().len();
    let mut fourth = connected_anew(rig, 0x43)?;
    let ring = rig.interposer.mapped()[before];
    let seen = outwait(rig, fourth.number(), ring, |_| {
        let request = SendRequest::send(8).inline(&[1; 8]).signalled();
        Ok(fourth.post_send(request)?)
    })?;
    ensure!(seen.done.is_empty() && seen.events == [AsyncEvent::QueuePairFatal], "{seen:?}");
    let errors = seen.counters["host_read_errors"];
    ensure!(seen.counters == counters([("host_read_errors", errors), ("work_refused", 1)]), "{seen:?}");
    rig.idle(LATE_PS as usize / 100_000);
    rig.device.check()?;
    drop((third, fourth, other));
    rig.completions()?;
    Ok(())
}

/// The host answers the read of a command far too late: that is no queue pair's, and fails the device.
pub(crate) fn of_a_late_command(mut rig: Rig) -> Result<()> {
    limit_host(&mut rig, READ_LIMIT)?;
    // In the order in which the driver maps them.
    let commands = rig.interposer.mapped()[0];
    delay(&rig, commands);
    let refused = rig.domain.allocate(64).err();
    ensure!(refused.is_some(), "a command is answered");
    rig.idle(200);
    rig.world().host_mut(0).delay_reads(None);
    let told = rig.device.check();
    let code = FatalCode::HostReadError;
    let is_right = matches!(&told, Err(Error::DeviceFailed { code: found, .. }) if *found == code);
    ensure!(is_right, "the card says {told:?}, expected {code:?}");
    let moved = rig.moved()?;
    ensure!(moved.of("host_read_errors") == 1, "{moved:?}");
    rig.idle(LATE_PS as usize / 100_000);
    rig.finish()
}

/// Sets the limit of the host, as a driver may.
pub(crate) fn limit_host(rig: &mut Rig, units: u64) -> Result<()> {
    let offset = u64::from(REG_HOST_LIMIT.offset);
    rig.world().write_register(0, Window::Registers, offset, units)?;
    rig.moved()?;
    Ok(())
}

/// A queue pair that writes to the memory of this one of the endpoint.
fn connected_anew(rig: &mut Rig, peer: u32) -> Result<QueuePair<ReadyToSend>> {
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let queue_pair = rig.connect_to_endpoint(queue_pair, peer, IPV4, Pmtu::Bytes4096, 5)?;
    rig.moved()?;
    Ok(queue_pair)
}

/// Writes as much to the endpoint as takes each tag of the host reader once, or more.
fn write_round(rig: &mut Rig, queue_pair: &mut QueuePair<ReadyToSend>) -> Result<()> {
    let region = rig.domain.allocate(ROUND_BYTES)?;
    let target = RemoteMemory { address: PEER_FIRST, key: PEER_KEY, bytes: ROUND_BYTES as u64 };
    let request = SendRequest::write(11, target).sge(region).signalled();
    queue_pair.post_send(request)?;
    let done = rig.wait("the completion", |rig| Ok(rig.completions()?.pop()))?;
    ensure!((done.status, done.wr_id) == (CompletionStatus::Success, 11), "{done:?}");
    let moved = rig.moved()?;
    ensure!(moved.named().is_empty() && moved.of("host_reads") >= u64::from(HOST_READ_TAGS_MAX), "{moved:?}");
    Ok(())
}

/// Memory of the whole card that is unmapped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Common {
    /// The ring of the event queue.
    Events,
    /// The ring of answers.
    Answers,
    /// The ring of commands.
    Commands,
}

impl Common {
    pub(crate) const ALL: [Common; 3] = [Common::Events, Common::Answers, Common::Commands];
}

/// A fault that fails the device.
pub(crate) fn of_the_device(mut rig: Rig, common: Common) -> Result<()> {
    let code = if common == Common::Commands { FatalCode::HostReadError } else { FatalCode::HostWriteError };
    let mut victim = victim(&mut rig)?;
    // In the order in which the driver maps them.
    let mapping = rig.interposer.mapped()[match common {
        Common::Commands => 0,
        Common::Answers => 1,
        Common::Events => 2,
    }];
    let interposer = Arc::clone(&rig.interposer);
    let ((), faults) = interposer.without(mapping, || {
        match common {
            Common::Commands | Common::Answers => {
                let refused = rig.domain.allocate(64).err();
                ensure!(refused.is_some(), "a command is answered");
            }
            Common::Events => {
                rig.sends.arm(rnic_layout::doorbell::Arm::Next);
                // The peer's answer does not matter.
                let request = SendRequest::write(1, RemoteMemory { address: 0, key: PEER_KEY, bytes: 0 });
                victim.queue_pair.post_send(request.signalled())?;
            }
        }
        rig.idle(100);
        Ok(())
    })?;
    // The device also raises an event, which cannot be written if the fault is in the event queue.
    let expected = if common == Common::Events { 2 } else { 1 };
    ensure!(faults == expected, "{faults} accesses are refused");
    let told = rig.device.check();
    let is_right = matches!(&told, Err(Error::DeviceFailed { code: found, .. }) if *found == code);
    ensure!(is_right, "the card says {told:?}, expected {code:?}");
    let counter = if common == Common::Commands { "host_read_errors" } else { "host_write_errors" };
    let moved = rig.moved()?;
    ensure!(moved.of(counter) == expected as u64, "{moved:?}");
    drop(victim);
    rig.finish()
}
