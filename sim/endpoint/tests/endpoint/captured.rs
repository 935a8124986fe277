//! Captured requests, sent to an endpoint in the place of the Linux host that answered them.

use super::*;
use rnic_endpoint::qp::{Queue, ReceiveWqe};
use rnic_layout::opcode;
use rnic_stimulus::captures::Capture;
use rnic_stimulus::captures::flow::{Crossing, Flow, Said};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Length of the receives, longer than any message of the captures.
const RECEIVE_BYTES: u32 = 8192;
/// Address of receive memory, which the peer does not access.
const RECEIVE_KEY: u32 = 0xffff_ff01;

fn capture(name: &str) -> Capture {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/vectors/{name}.pcap"));
    Capture::read(&path).unwrap()
}

/// Makes an endpoint in the place of the host that answered, with memory at all addresses that its peer accesses.
fn stand_in(flow: &Flow) -> Endpoint {
    let (number, first) = (flow.number, &flow.crossings[0].packet);
    let mac = first.ethernet.destination;
    let mut ranges: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut cells: BTreeMap<u64, u64> = BTreeMap::new();
    for Crossing { packet: request, .. } in flow.requests() {
        for header in request.extended_headers() {
            let (key, address, bytes) = match header {
                ExtendedRepr::Reth(reth) => (reth.remote_key, reth.virtual_address, reth.dma_length.into()),
                ExtendedRepr::AtomicEth(atomic) => {
                    let mut answers = flow.answers().map(|answer| Said::of(&answer.packet));
                    let answer = answers.find(|said| said.psn == request.bth.psn.value());
                    let original = answer.and_then(|said| said.original).unwrap_or_default();
                    // The first atomic returned the initial value; all later ones must follow from it.
                    cells.entry(atomic.virtual_address).or_insert(original);
                    (atomic.remote_key, atomic.virtual_address, 8)
                }
                _ => continue,
            };
            let range = ranges.entry(key).or_insert((address, address + bytes));
            *range = (range.0.min(address), range.1.max(address + bytes));
        }
    }
    let mut endpoint = Endpoint::new(mac, 0);
    let memory = endpoint.memory();
    memory.bytes.resize(RECEIVE_BYTES as usize, 0);
    let mut region = Region {
        first_address: 0,
        length: RECEIVE_BYTES.into(),
        offset: 0,
        domain: 0,
        rights: Rights::ALL,
        invalidatable: false,
    };
    memory.register(RECEIVE_KEY, region);
    for (key, (start, end)) in ranges {
        region = Region { first_address: start, length: end - start, offset: memory.bytes.len(), ..region };
        memory.bytes.resize(region.offset + region.length as usize, 0);
        memory.register(key, region);
        for (address, original) in cells.range(start..end) {
            let place = (address - start) as usize;
            memory.region_bytes(key)[place..][..8].copy_from_slice(&original.to_le_bytes());
        }
    }
    let path = Path::new(mac, first.ip.destination(), first.ethernet.source, first.ip.source());
    let peer = flow.peer.unwrap_or(number);
    let receive_psn = first.bth.psn;
    endpoint.create(QueuePairSetup {
        receive_psn,
        destination_read_atomic: 128,
        ..QueuePairSetup::new(number, peer, path)
    });
    for wr_id in 0..flow.requests().count() as u64 {
        let sge = Sge { address: 0, key: RECEIVE_KEY, length: RECEIVE_BYTES };
        endpoint.post_receive(number, ReceiveWqe { wr_id, sges: vec![sge] });
    }
    endpoint
}

/// Sends an endpoint the requests that Linux received, and returns the responses of both.
fn replay(capture: &Capture) -> Vec<(Vec<Said>, Vec<Said>)> {
    let replayed = Flow::of(capture).into_iter().map(|flow| {
        let mut endpoint = stand_in(&flow);
        let mut ours = Vec::new();
        for request in flow.requests() {
            endpoint.receive(request.frame);
            while let Some(answer) = endpoint.transmit() {
                ours.push(Said::of(&PacketRepr::parse(&answer).unwrap()));
            }
        }
        check_receives(&mut endpoint, &flow);
        (ours, flow.answers().map(|answer| Said::of(&answer.packet)).collect())
    });
    replayed.collect()
}

/// Every SEND and every WRITE with immediate has completed one receive, once, with the right immediate.
fn check_receives(endpoint: &mut Endpoint, flow: &Flow) {
    let mut expected: BTreeMap<u32, Option<[u8; 4]>> = BTreeMap::new();
    for Crossing { packet: request, .. } in flow.requests() {
        let row = opcode::lookup(request.bth.opcode).unwrap();
        let immediate = request.extended_headers().find_map(|header| match header {
            ExtendedRepr::Immediate(immediate) => Some(immediate.data.to_be_bytes()),
            _ => None,
        });
        let is_send = row.name.contains("SEND") && row.operation.ends_message();
        if is_send || immediate.is_some() {
            expected.insert(request.bth.psn.value(), immediate);
        }
    }
    let completions = drain(endpoint);
    assert!(completions.iter().all(|completion| completion.queue == Queue::Receive));
    assert!(completions.iter().all(|completion| completion.status == CompletionStatus::Success));
    assert_eq!(completions.len(), expected.len());
    let mut found: Vec<_> = completions.iter().map(|completion| completion.immediate).collect();
    let mut expected: Vec<_> = expected.into_values().collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn the_endpoint_answers_linux_as_linux_does() {
    for (name, least) in [
        ("rxe_rc_send_2500", 10),
        ("rxe_rc_write_3000", 5),
        ("rxe_rc_read_5000", 20),
        ("rxe_rc_atomic_fa", 5),
        ("rxe_rc_atomic_cas", 5),
        ("rxe_rsocket_write_imm", 10),
        ("rxe_rc_srq", 10),
        ("rxe_cm_rping", 5),
    ] {
        let mut count = 0;
        for (mut ours, mut linux) in replay(&capture(name)) {
            // Linux answers each packet of a duplicate with the same acknowledgement; the endpoint only one that requests it.
            ours.dedup();
            linux.dedup();
            // A capture may end before the last acknowledgement.
            let unheard = ours.len().saturating_sub(linux.len());
            assert!(unheard <= 1, "{name}: {unheard} answers too many");
            ours.truncate(linux.len());
            assert_eq!(ours, linux, "{name}");
            count += ours.len();
        }
        assert!(count >= least, "{name}: only {count} answers");
    }
}

#[test]
fn a_lost_write_is_naked_once_as_linux_does() {
    for (ours, linux) in replay(&capture("drop_write_middle")) {
        assert_eq!(ours, linux);
        assert_eq!(ours.iter().filter(|said| said.aeth.is_some_and(|(class, _)| class == 0x60)).count(), 1);
    }
}

#[test]
fn a_read_that_lost_a_response_is_answered_again_with_the_same_numbers() {
    for (ours, linux) in replay(&capture("drop_read_resp_middle")) {
        let numbers = |said: &[Said]| {
            let mut numbers: Vec<(u32, usize)> = said.iter().map(|said| (said.psn, said.bytes)).collect();
            numbers.sort();
            numbers.dedup();
            numbers
        };
        assert_eq!(numbers(&ours), numbers(&linux));
    }
}

#[test]
fn duplicates_are_acknowledged_as_far_as_all_is_done() {
    for (ours, linux) in replay(&capture("drop_ack")) {
        // Linux answers each packet of a duplicate; one that requests it is enough (protocol 7.4).
        let furthest = |said: &[Said]| said.iter().map(|said| (said.psn, said.aeth.unwrap().1)).max();
        assert_eq!(furthest(&ours), furthest(&linux));
        assert!(ours.iter().all(|said| said.aeth.unwrap().0 == 0));
    }
}
