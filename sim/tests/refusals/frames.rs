//! Invalid frames of a peer, as in the tables of protocol 3.6 and 8.3: [`request_cases`] and [`response_cases`] against the
//! whole card, each compared with the reference endpoint.
//!
//! After each attack, the queue pair receives a request that shows whether it still works or has failed, and then the bystander
//! moves a message each way. The counters must have moved as the attack requires.
use crate::rig::{
    Done, IPV4, IPV6, MIN_RNR_TIMER, Moved, RECEIVE_BYTES, Rig, UNTOUCHED, Version, ensure_same, path_to_card,
};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::{Error as Failed, ReadyToSend};
use rnic_driver::{QueuePair, RemoteMemory, RemoteRights, SendRequest, SharedRegion};
use rnic_endpoint::Endpoint;
use rnic_endpoint::cases::{
    Ending, Fate, Receives, RequestCase, ResponseCase, Target, request_cases, response_cases,
};
use rnic_endpoint::memory::{Region as PeerRegion, Rights, Sge as PeerSge};
use rnic_endpoint::packet::Packet;
use rnic_endpoint::qp::{QueuePairSetup, ReceiveWqe};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::{PSN_COUNT, Psn};
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::send::Sge;
use rnic_layout::registers::COUNTERS;
use rnic_layout::state::QpState;
use rnic_layout::wire::extended::{AethRepr, RethRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr};
use std::collections::BTreeMap;

/// QPN of the attacker; the endpoint has no such queue pair.
const ATTACKER: u32 = 0x51;
/// PSN of the attacker's first request, by the version of IP: the PSNs of duplicates are before the wrap-around in the one, and
/// those of later requests are after it in the other.
const FIRST_PSNS: [Psn; 2] = [Psn::ZERO, Psn::wrapping(PSN_COUNT - 1)];
/// Length of the region under attack: odd, so that it does not end with a word.
const TARGET_BYTES: usize = 4001;
/// WRITE_ONLY, WRITE_LAST, SEND_ONLY, ACKNOWLEDGE (protocol 1.4).
const WRITE_ONLY: u8 = 0x0a;
const WRITE_LAST: u8 = 0x08;
const SEND_ONLY: u8 = 0x04;
const ACKNOWLEDGE: u8 = 0x11;

/// The queue pair under attack, and its memory.
pub(crate) struct Ground {
    region: SharedRegion,
    local: SharedRegion,
    foreign: SharedRegion,
}

impl Ground {
    pub(crate) fn new(rig: &Rig) -> Result<Ground> {
        let region = rig.domain.share(TARGET_BYTES, RemoteRights::ALL)?;
        let local = rig.domain.share(TARGET_BYTES, RemoteRights::NONE)?;
        let foreign = rig.device.create_protection_domain()?.share(TARGET_BYTES, RemoteRights::WRITE)?;
        let bytes: Vec<u8> = (0..TARGET_BYTES).map(|place| (place * 13) as u8).collect();
        for region in [&region, &local, &foreign] {
            region.write(0, &bytes)?;
        }
        let index = |key: u32| key >> 8;
        let key = region.remote().key;
        for used in [local.remote().key, foreign.remote().key, rig.room[0].key()] {
            ensure!(
                index(used) != index(key ^ 0x100),
                "the key's neighbour must name nothing: choose another seed"
            );
        }
        Ok(Ground { region, local, foreign })
    }

    fn bytes(&self) -> Result<Vec<Vec<u8>>> {
        let read = |region: &SharedRegion| -> Result<Vec<u8>> {
            let mut bytes = vec![0; TARGET_BYTES];
            region.read(0, &mut bytes)?;
            Ok(bytes)
        };
        [&self.region, &self.local, &self.foreign].map(read).into_iter().collect()
    }

    fn target(&self, number: u32, version: Version, pmtu: Pmtu) -> Target {
        let RemoteMemory { address, key, bytes } = self.region.remote();
        Target {
            path: path_to_card(version),
            number,
            // The same slot in the card's tables, but another QPN.
            unknown_number: number ^ 0x80_0000,
            pmtu,
            expected_psn: FIRST_PSNS[version],
            msn: Psn::ZERO,
            region: (key, address, bytes),
            local_key: self.local.remote().key,
            foreign_key: self.foreign.remote().key,
            receive_bytes: RECEIVE_BYTES as u32,
            min_rnr_timer: MIN_RNR_TIMER,
        }
    }

    /// All cases, with their indices.
    fn cases(&self, target: &Target) -> Vec<(usize, RequestCase)> {
        request_cases(target).into_iter().enumerate().collect()
    }

    /// A case for another target, in which only what its name says is wrong: a region that may not be accessed is addressed
    /// correctly.
    fn case(&self, place: usize, name: &str, target: &Target) -> RequestCase {
        let region = if name.contains("no right") {
            &self.local
        } else if name.contains("another domain") {
            &self.foreign
        } else {
            &self.region
        };
        let (key, _, bytes) = target.region;
        let target = Target { region: (key, region.remote().address, bytes), ..*target };
        request_cases(&target).swap_remove(place)
    }

    /// The reference endpoint in the place of the card, after the attack.
    ///
    /// # Errors
    /// If it answers otherwise than the case says.
    fn reference(&self, target: &Target, case: &RequestCase, rig: &Rig) -> Result<Endpoint> {
        let mut endpoint = Endpoint::new(target.path.remote_mac, 4 * TARGET_BYTES);
        let parts = [
            (&self.region, 1, Rights::ALL),
            (&self.local, 1, Rights { local_write: true, ..Rights::NONE }),
            (&self.foreign, 2, Rights { local_write: true, remote_write: true, ..Rights::NONE }),
        ];
        let mut offset = 0;
        for (region, domain, rights) in parts {
            let RemoteMemory { address, key, bytes } = region.remote();
            let region = PeerRegion {
                first_address: address,
                length: bytes,
                offset,
                domain,
                rights,
                invalidatable: false,
            };
            endpoint.memory().register(key, region);
            offset += TARGET_BYTES;
        }
        for (index, bytes) in self.bytes().expect("they are there").iter().enumerate() {
            endpoint.memory().bytes[index * TARGET_BYTES..][..TARGET_BYTES].copy_from_slice(bytes);
        }
        let key = rig.room[0].key();
        let region = PeerRegion {
            first_address: 0,
            length: RECEIVE_BYTES as u64,
            offset,
            domain: 1,
            rights: Rights { local_write: true, ..Rights::NONE },
            invalidatable: false,
        };
        endpoint.memory().register(key, region);
        endpoint.create(QueuePairSetup {
            domain: 1,
            rights: case.rights,
            pmtu: target.pmtu,
            receive_psn: target.expected_psn,
            min_rnr_timer: target.min_rnr_timer,
            destination_read_atomic: case.destination_read_atomic,
            ..QueuePairSetup::new(target.number, ATTACKER, target.path.reversed())
        });
        let receives: &[u32] = match case.receives {
            Receives::None => &[],
            Receives::Two => &[key, key],
            Receives::BadKey => &[!key],
        };
        for &key in receives {
            let sges = vec![PeerSge { address: 0, key, length: RECEIVE_BYTES as u32 }];
            endpoint.post_receive(target.number, ReceiveWqe { wr_id: 0, sges });
        }
        for frame in &case.frames {
            endpoint.receive(frame);
        }
        let said: Vec<_> = std::iter::from_fn(|| endpoint.transmit()).collect();
        check_answers("the reference", &answers_in(&said)?, target, case)?;
        Ok(endpoint)
    }
}

/// Responses of the card to the attacker: syndrome, PSN and MSN.
fn answers(rig: &Rig) -> Result<Vec<(u8, Psn, Psn)>> {
    answers_in(&rig.heard())
}

/// Responses to the attacker among frames.
fn answers_in(frames: &[Vec<u8>]) -> Result<Vec<(u8, Psn, Psn)>> {
    let mut answers = Vec::new();
    for frame in frames {
        let packet =
            PacketRepr::parse(frame).map_err(|reason| anyhow::anyhow!("a frame of an answer: {reason:?}"))?;
        if packet.bth.destination_qp != ATTACKER {
            continue;
        }
        let aeth = packet.extended_headers().find_map(|header| match header {
            ExtendedRepr::Aeth(AethRepr { syndrome, msn }) => Some((syndrome, msn)),
            _ => None,
        });
        ensure!(packet.bth.opcode == ACKNOWLEDGE, "the answer is {:?}", packet.bth);
        let (syndrome, msn) = aeth.context("an acknowledgement says which")?;
        answers.push((syndrome, packet.bth.psn, msn));
    }
    Ok(answers)
}

/// Fails if the responses to an attack are not those of its case.
fn check_answers(who: &str, found: &[(u8, Psn, Psn)], target: &Target, case: &RequestCase) -> Result<()> {
    let agree = found.len() == case.answers.len()
        && found
            .iter()
            .zip(&case.answers)
            .all(|(found, answer)| answer.agrees(target, found.0, found.1, found.2));
    ensure!(agree, "{who} answers {found:x?} and not {:x?}", case.answers);
    Ok(())
}

/// Counter of packets after a failure; `requests_after_failure` counts those that arrive while the failure is in progress.
const LATE: &str = "qp_not_ready";

/// Counters that have moved, with both of these counters as one.
fn named(moved: &Moved) -> BTreeMap<&'static str, u64> {
    let mut named = moved.named();
    if let Some(count) = named.remove("requests_after_failure") {
        *named.entry(LATE).or_default() += count;
    }
    named
}

/// Counters that an attack must move, except for those that always move.
fn expected_counters(case: &RequestCase, reference: &Endpoint) -> BTreeMap<&'static str, u64> {
    let mut expected = BTreeMap::new();
    let mut add = |name: &'static str, count: u64| {
        if count > 0 {
            *expected.entry(name).or_default() += count;
        }
    };
    for answer in &case.answers {
        match answer.syndrome {
            0x60 => add("nak_sequence_sent", 1),
            0x61 => add("nak_invalid_request_sent", 1),
            0x62 => {
                add("nak_access_sent", 1);
                add("remote_protection", 1);
            }
            0x63 => add("nak_operational_sent", 1),
            syndrome if syndrome >> 5 == 1 => add("nak_rnr_sent", 1),
            _ => {}
        }
    }
    if case.ending == Ending::Receive(CompletionStatus::LocalProtection) {
        add("local_protection", 1);
    }
    // Reasons for which a packet is not executed and that no response reports.
    for counter in COUNTERS {
        let is_answer = counter.name.starts_with("nak_") || counter.name == "acknowledgements_sent";
        if !is_answer {
            add(counter.name, reference.counter(counter.name));
        }
    }
    expected
}

fn rights(rights: Rights) -> RemoteRights {
    RemoteRights { write: rights.remote_write, read: rights.remote_read, atomic: rights.remote_atomic }
}

/// The rest of a WRITE that a case begins and does not complete.
fn open_bytes(target: &Target, case: &RequestCase) -> Option<usize> {
    if case.executed.1 == case.executed.0 || case.executed.0 > 0 {
        return None;
    }
    let packet = PacketRepr::parse(&case.frames[0]).ok()?;
    let length = packet.extended_headers().find_map(|header| match header {
        ExtendedRepr::Reth(reth) => Some(reth.dma_length),
        _ => None,
    })?;
    Some((length - case.executed.1 * target.pmtu.bytes()) as usize)
}

/// A valid request for the state that the queue pair must have.
fn good_request(target: &Target, case: &RequestCase) -> Vec<u8> {
    let psn = target.expected_psn.add(case.executed.1);
    let bth = |code| BthRepr { ack_request: true, ..BthRepr::new(code, target.number, psn) };
    let payload = vec![0xa5; 8];
    let (remote_key, first, _) = target.region;
    let packet = if let Some(bytes) = open_bytes(target, case) {
        Packet::new(bth(WRITE_LAST), Vec::new(), vec![0xa5; bytes])
    } else if case.rights.remote_write {
        let reth = RethRepr { virtual_address: first + 1000, remote_key, dma_length: 8 };
        Packet::new(bth(WRITE_ONLY), vec![ExtendedRepr::Reth(reth)], payload)
    } else {
        Packet::new(bth(SEND_ONLY), Vec::new(), payload)
    };
    packet.frame(&target.path, 2)
}

/// Attacks the responder of a new queue pair.
fn attack(
    rig: &mut Rig,
    ground: &Ground,
    version: Version,
    pmtu: Pmtu,
    (place, case): &(usize, RequestCase),
) -> Result<()> {
    let mut queue_pair = rig.new_queue_pair(rights(case.rights))?;
    let number = queue_pair.number();
    let target = ground.target(number, version, pmtu);
    let case = ground.case(*place, &case.name, &target);
    let mut reference = ground.reference(&target, &case, rig)?;
    let posted = match case.receives {
        Receives::None => 0,
        Receives::Two => 2,
        Receives::BadKey => 1,
    };
    for wr_id in 0..posted {
        let request = rig.receive_request(wr_id);
        let piece = &request.sg_list[0];
        let (address, local_key, length) = (piece.address(), piece.key(), piece.len() as u32);
        let is_bad = case.receives == Receives::BadKey;
        if is_bad {
            let sge = Sge { address, local_key, length };
            rig.tamper.spoil(sge, |slot, place| slot[place + 8] ^= 0x40);
        }
        queue_pair.post_receive(request)?;
        // WQEs of earlier cases may have used the same memory, which does not matter any more.
        let spoiled = rig.tamper.spoiled();
        ensure!(!is_bad || spoiled[0] >= 1, "the receive to corrupt is in no ring");
    }
    let first_psn = target.expected_psn.value();
    let queue_pair = rig.connect_with(queue_pair, ATTACKER, version, pmtu, first_psn, |options| {
        options.destination_read_atomic = Some(case.destination_read_atomic);
    })?;
    rig.moved()?;
    ensure!(answers(rig)?.is_empty(), "the card speaks before it is asked");
    let before = ground.bytes()?;

    rig.send(&case.frames);
    // The responses and writes of the card are complete when a later message has arrived.
    let mut done = rig.exchange()?;
    check_answers("the card", &answers(rig)?, &target, &case)?;

    // Memory is as in the reference, in which the regions come first.
    for (place, (found, before)) in ground.bytes()?.iter().zip(&before).enumerate() {
        let executed = case.executed.1 > 0;
        let there = &reference.memory().bytes[place * TARGET_BYTES..][..TARGET_BYTES];
        ensure_same(found, if executed { there } else { before })?;
    }

    let mut events = Vec::new();
    let awaited = match case.ending {
        Ending::GoesOn => (case.received as usize, 0),
        Ending::Event(_) => (posted as usize, 1),
        Ending::Receive(_) => (posted as usize, 0),
    };
    let what = format!("{} completions and {} events", awaited.0, awaited.1);
    rig.wait(&what, |rig| {
        done.extend(rig.completions()?);
        events.extend(std::iter::from_fn(|| rig.event().transpose()).collect::<Result<Vec<_>>>()?);
        Ok((done.len() >= awaited.0 && events.len() >= awaited.1).then_some(()))
    })?;
    ensure!((done.len(), events.len()) == awaited, "{done:?}, {events:?}");
    ensure!(done.iter().all(|done| done.qp_number == number && done.is_receive), "{done:?}");
    check_ending(&case, &done)?;
    if let Ending::Event(code) = case.ending {
        ensure!(events[0].code == code && events[0].object_number == number, "{events:?}");
    }
    let moved = rig.moved()?;
    let mut expected = expected_counters(&case, &reference);
    ensure!(named(&moved) == expected, "counters: {:?}, expected {expected:?}", moved.named());
    let positive = case.answers.iter().filter(|answer| answer.syndrome >> 5 == 0).count() as u64;
    // One for the bystander.
    ensure!(moved.of("acknowledgements_sent") == positive + 1, "{moved:?}");
    let failed = done.iter().filter(|done| done.status != CompletionStatus::Success).count() as u64;
    ensure!(moved.of("completions_in_error") == failed, "{moved:?}");

    // The state must be as expected.
    rig.send(&[good_request(&target, &case)]);
    let more = rig.exchange()?;
    let found = answers(rig)?;
    let moved = named(&rig.moved()?);
    expected.clear();
    if case.ending == Ending::GoesOn {
        let psn = target.expected_psn.add(case.executed.1);
        let [(syndrome, answered, msn)] = found[..] else { anyhow::bail!("it does not go on: {found:x?}") };
        let is_right = syndrome >> 5 == 0 && answered == psn && msn == Psn::wrapping(case.executed.0 + 1);
        ensure!(is_right, "it goes on with {found:x?}");
    } else {
        ensure!(found.is_empty() && more.is_empty(), "it is not in ERR: {found:x?}, {more:?}");
        expected.insert(LATE, 1);
    }
    ensure!(moved == expected, "counters afterwards: {moved:?}, expected {expected:?}");
    drop(queue_pair);
    // Posted work was flushed.
    rig.completions()?;
    Ok(())
}

fn check_ending(case: &RequestCase, done: &[Done]) -> Result<()> {
    let statuses: Vec<_> = done.iter().map(|done| done.status).collect();
    let first = match case.ending {
        Ending::GoesOn => CompletionStatus::Success,
        Ending::Event(_) => CompletionStatus::Flushed,
        Ending::Receive(status) => status,
    };
    let mut expected = vec![CompletionStatus::Flushed; done.len()];
    let good = if case.ending == Ending::GoesOn { done.len() } else { 1.min(done.len()) };
    expected[..good].fill(first);
    ensure!(statuses == expected, "{statuses:?}, expected {expected:?}");
    // The payload of a case is one sequence. A WRITE does not change the memory of the receive that it consumes.
    let is_right = |done: &&Done| {
        let expected = |place| match done.opcode {
            CompletionOpcode::ReceiveWrite => UNTOUCHED,
            _ => (place * 37) as u8,
        };
        let mut bytes = done.message.iter().enumerate();
        done.status != CompletionStatus::Success || bytes.all(|(place, byte)| *byte == expected(place))
    };
    ensure!(done.iter().all(|done| is_right(&done)), "{done:?}");
    Ok(())
}

/// Invalid requests, all of them in IPv4 and in IPv6.
pub(crate) fn requests(rig: &mut Rig) -> Result<usize> {
    let ground = Ground::new(rig)?;
    let mut failures = Vec::new();
    let mut count = 0;
    for (version, pmtu) in [(IPV4, Pmtu::Bytes256), (IPV6, Pmtu::Bytes512)] {
        for case in ground.cases(&ground.target(1, version, pmtu)) {
            if let Err(error) = attack(rig, &ground, version, pmtu, &case) {
                failures.push(format!("{}, {}: {error:#}", case.1.name, case.1.section));
                rig.settle()?;
            }
            count += 1;
        }
    }
    ensure!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    Ok(count)
}

/// Requests to a queue pair in a state that does not accept them.
pub(crate) fn not_ready(rig: &mut Rig) -> Result<()> {
    let ground = Ground::new(rig)?;
    for state in [QpState::Reset, QpState::Init, QpState::Error] {
        let queue_pair = rig.new_queue_pair(RemoteRights::WRITE)?;
        let number = queue_pair.number();
        let target = ground.target(number, IPV4, Pmtu::Bytes1024);
        let frame = good_request(&target, &ground.cases(&target).swap_remove(0).1);
        let kept: (Option<QueuePair<_>>, Option<QueuePair<_>>, Option<QueuePair<Failed>>) = match state {
            QpState::Reset => (Some(queue_pair.reset().map_err(rnic_driver::Error::from)?), None, None),
            QpState::Init => (None, Some(queue_pair), None),
            _ => {
                let queue_pair = rig.connect(queue_pair, ATTACKER, IPV4, Pmtu::Bytes1024, 0)?;
                (None, None, Some(queue_pair.fail().map_err(rnic_driver::Error::from)?))
            }
        };
        rig.moved()?;
        let before = ground.bytes()?;
        rig.send(&[frame]);
        ensure!(rig.exchange()?.is_empty(), "something completes");
        ensure!(answers(rig)?.is_empty(), "{state:?}: it is answered");
        ensure!(ground.bytes()? == before, "{state:?}: it is executed");
        let moved = rig.moved()?.named();
        ensure!(moved == BTreeMap::from([("qp_not_ready", 1)]), "{state:?}: {moved:?}");
        drop(kept);
    }
    Ok(())
}

/// A request that the MAC marks as bad is dropped and counted, whatever its ICRC says; the same request is executed afterwards.
pub(crate) fn damaged(rig: &mut Rig) -> Result<()> {
    let ground = Ground::new(rig)?;
    let queue_pair = rig.new_queue_pair(RemoteRights::WRITE)?;
    let target = ground.target(queue_pair.number(), IPV4, Pmtu::Bytes1024);
    let queue_pair = rig.connect(queue_pair, ATTACKER, IPV4, Pmtu::Bytes1024, target.expected_psn.value())?;
    let frame = good_request(&target, &ground.cases(&target).swap_remove(0).1);
    rig.moved()?;
    answers(rig)?;
    for is_damaged in [true, false] {
        let before = ground.bytes()?;
        if is_damaged {
            rig.send_damaged(&frame);
        } else {
            rig.send(std::slice::from_ref(&frame));
        }
        ensure!(rig.exchange()?.is_empty(), "something completes");
        let answers = answers(rig)?.len();
        let moved = rig.moved()?.named();
        let expected = if is_damaged { BTreeMap::from([("mac_error", 1)]) } else { BTreeMap::new() };
        ensure!(moved == expected, "damaged {is_damaged}: {moved:?}");
        ensure!(answers == usize::from(!is_damaged), "damaged {is_damaged}: {answers} answers");
        ensure!((ground.bytes()? == before) == is_damaged, "damaged {is_damaged}: memory");
    }
    drop(queue_pair);
    Ok(())
}

/// Invalid responses to a queue pair with one WRITE in flight.
pub(crate) fn responses(rig: &mut Rig) -> Result<usize> {
    let ground = Ground::new(rig)?;
    let mut failures = Vec::new();
    let mut count = 0;
    for version in [IPV4, IPV6] {
        let target = ground.target(1, version, Pmtu::Bytes1024);
        for index in 0..response_cases(&target).len() {
            if let Err(error) = answer(rig, &ground, version, index) {
                let name = &response_cases(&target)[index].name;
                failures.push(format!("{name}: {error:#}"));
                rig.settle()?;
            }
            count += 1;
        }
    }
    ensure!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    Ok(count)
}

/// Counters that the frames of a case must move, except for those that always move.
///
/// # Errors
/// If no counter is listed for frames that leave the WRITE in flight: each of them is dropped, and counted.
fn counters_of(case: &ResponseCase, version: Version) -> Result<BTreeMap<&'static str, u64>> {
    let count = case.frames.len() as u64;
    let counter = match case.fate {
        Fate::InFlight => (counter_of(&case.name, version).context("no counter is listed")?, count),
        // The queue pairs have no retries.
        Fate::AgainNow => return Ok(BTreeMap::from([("nak_received", 1), ("retry_exhausted", 1)])),
        Fate::AgainAfter(_) => {
            return Ok(BTreeMap::from([("nak_rnr_received", 1), ("rnr_retry_exceeded", 1)]));
        }
        Fate::Completes(CompletionStatus::BadResponse) => ("response_unexpected", 1),
        // All but the first come too late.
        Fate::Completes(CompletionStatus::Success) if count == 1 => return Ok(BTreeMap::new()),
        Fate::Completes(CompletionStatus::Success) => ("response_stale", count - 1),
        Fate::Completes(_) => ("nak_received", 1),
    };
    Ok(BTreeMap::from([counter]))
}

/// Counter of responses that leave the WRITE in flight.
fn counter_of(name: &str, version: Version) -> Option<&'static str> {
    let starts = [
        ("answers to what was never sent", "response_never_sent"),
        ("answers to what was long done", "response_stale"),
        ("READ response, stale", "response_stale"),
        ("reserved syndrome", "response_reserved"),
        ("ACK with payload", "response_unexpected"),
        ("ACK with pad", "response_unexpected"),
        ("answer of an atomic", "response_unexpected"),
        ("ACK, Icrc", "icrc"),
        ("ACK, Version", "bth_version"),
        ("ACK, PartitionKey", "partition_key"),
        ("ACK, DestinationQp", "unknown_qp"),
        ("ACK, DestinationPort", "other_port"),
        // The header of IPv4 has a checksum of its own.
        ("ACK, FlipBit", if version == IPV4 { "ip_checksum" } else { "icrc" }),
    ];
    starts.iter().find(|(start, _)| name.starts_with(start)).map(|(_, counter)| *counter)
}

fn answer(rig: &mut Rig, ground: &Ground, version: Version, index: usize) -> Result<()> {
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let info = queue_pair.info(version)?;
    let target = Target {
        expected_psn: Psn::wrapping(info.first_psn),
        ..ground.target(info.qp_number, version, Pmtu::Bytes1024)
    };
    let case = response_cases(&target).swap_remove(index);
    let mut queue_pair: QueuePair<ReadyToSend> =
        rig.connect(queue_pair, ATTACKER, version, Pmtu::Bytes1024, 0)?;
    rig.heard();
    let remote = RemoteMemory { address: 0x1000, key: 7, bytes: 64 };
    let request = SendRequest::write(1, remote).inline(&[3; 20]).signalled();
    queue_pair.post_send(request)?;
    rig.wait("the WRITE", |rig| {
        let parts = rig.heard();
        let is_it =
            |frame: &Vec<u8>| PacketRepr::parse(frame).is_ok_and(|packet| packet.bth.opcode == WRITE_ONLY);
        Ok(parts.iter().any(is_it).then_some(()))
    })?;
    rig.moved()?;
    rig.send(&case.frames);
    let mut done = rig.exchange()?;
    let moved = rig.moved()?;
    let expected = counters_of(&case, version)?;
    ensure!(moved.named() == expected, "counters: {:?}, expected {expected:?}", moved.named());
    let fate = match case.fate {
        Fate::InFlight => None,
        Fate::Completes(status) => Some(status),
        // The queue pairs have no retries.
        Fate::AgainNow => Some(CompletionStatus::RetryExceeded),
        Fate::AgainAfter(_) => Some(CompletionStatus::RnrRetryExceeded),
    };
    match fate {
        None => {
            ensure!(done.is_empty(), "it completes: {done:?}");
            // The correct response completes it.
            let aeth = ExtendedRepr::Aeth(AethRepr { syndrome: 0x1f, msn: target.msn.add(1) });
            let bth = BthRepr::new(ACKNOWLEDGE, info.qp_number, target.expected_psn);
            rig.send(&[Packet::new(bth, vec![aeth], Vec::new()).frame(&target.path, 3)]);
            done = rig.exchange()?;
        }
        Some(status) => {
            ensure!(
                moved.of("completions_in_error") == u64::from(status != CompletionStatus::Success),
                "{moved:?}"
            );
        }
    }
    let statuses: Vec<_> = done.iter().map(|done| (done.qp_number, done.wr_id, done.status)).collect();
    let status = fate.unwrap_or(CompletionStatus::Success);
    ensure!(statuses == [(info.qp_number, 1, status)], "{statuses:?}, expected {status:?}");
    Ok(())
}
