//! Each event of each part of the card increments the counter that the registers name, and no other.
use rnic_blocks::bench::Bench;
use rnic_hdl::event_counters::EventCounters;
use rnic_kernel::prelude::*;
use rnic_layout::registers::{COUNTERS, counter};
use std::collections::BTreeSet;

/// Index of the first counter of this block among all counters of the card.
const FIRST: usize = counter("unknown_qp");
const LINES: usize = COUNTERS.len() - FIRST;
/// Cycles of a snapshot, at most.
const SNAPSHOT_CYCLES: usize = LINES + 2;

/// An event as a part reports it.
type Raise = fn(&mut EventCounters);

/// Events and their counters.
const EVENTS: &[(&str, Raise)] = &[
    ("unknown_qp", |card| card.requester.next.unknown_qp = true),
    ("unknown_qp", |card| card.responder.next.unknown_qp = true),
    ("qp_not_ready", |card| card.requester.next.qp_not_ready = true),
    ("qp_not_ready", |card| card.responder.next.qp_not_ready = true),
    ("transport_mismatch", |card| card.requester.next.transport_mismatch = true),
    ("transport_mismatch", |card| card.responder.next.transport_mismatch = true),
    ("partition_key", |card| card.requester.next.partition_key = true),
    ("partition_key", |card| card.responder.next.partition_key = true),
    ("source_address", |card| card.requester.next.source_address = true),
    ("source_address", |card| card.responder.next.source_address = true),
    ("stale_dropped", |card| card.requester.next.stale_dropped = true),
    ("stale_dropped", |card| card.responder.next.stale_dropped = true),
    ("stale_dropped", |card| card.address_vector.next.stale_dropped = true),
    ("stale_dropped", |card| card.control.next.stale_dropped = true),
    ("work_refused", |card| card.requester.next.work_refused = true),
    ("work_refused", |card| card.responder.next.work_refused = true),
    ("local_protection", |card| card.requester.next.local_protection = true),
    ("local_protection", |card| card.responder.next.local_protection = true),
    ("share_exceeded", |card| card.responder.next.share_exceeded = true),
    ("duplicate_request", |card| card.responder.next.duplicate_request = true),
    ("duplicate_dropped", |card| card.responder.next.duplicate_dropped = true),
    ("request_gap", |card| card.responder.next.request_gap = true),
    ("requests_after_failure", |card| card.responder.next.requests_after_failure = true),
    ("acknowledgements_sent", |card| card.responder.next.acknowledgements_sent = true),
    ("nak_sequence_sent", |card| card.responder.next.nak_sequence_sent = true),
    ("nak_invalid_request_sent", |card| card.responder.next.nak_invalid_request_sent = true),
    ("nak_access_sent", |card| card.responder.next.nak_access_sent = true),
    ("nak_operational_sent", |card| card.responder.next.nak_operational_sent = true),
    ("nak_rnr_sent", |card| card.responder.next.nak_rnr_sent = true),
    ("remote_protection", |card| card.responder.next.remote_protection = true),
    ("acknowledgements_received", |card| card.requester.next.acknowledgements_received = true),
    ("nak_received", |card| card.requester.next.nak_received = true),
    ("nak_rnr_received", |card| card.requester.next.nak_rnr_received = true),
    ("response_stale", |card| card.requester.next.response_stale = true),
    ("response_never_sent", |card| card.requester.next.response_never_sent = true),
    ("response_reserved", |card| card.requester.next.response_reserved = true),
    ("response_unexpected", |card| card.requester.next.response_unexpected = true),
    ("implied_nak", |card| card.requester.next.implied_nak = true),
    ("timeout", |card| card.requester.next.timeout = true),
    ("retry_exhausted", |card| card.requester.next.retry_exhausted = true),
    ("rnr_retry_exceeded", |card| card.requester.next.rnr_retry_exceeded = true),
    ("messages_completed", |card| card.requester.next.messages_completed = true),
    ("completions_written", |card| card.complete.next.completions_written = true),
    ("completions_in_error", |card| card.complete.next.completions_in_error = true),
    ("completion_queue_overrun", |card| card.complete.next.completion_queue_overrun = true),
    ("events_written", |card| card.complete.next.events_written = true),
    ("event_queue_overrun", |card| card.complete.next.event_queue_overrun = true),
    ("interrupts_raised", |card| card.complete.next.interrupts_raised = true),
    ("doorbell_foreign", |card| card.control.next.doorbell_foreign = true),
    ("doorbell_unknown", |card| card.control.next.doorbell_unknown = true),
    ("doorbell_torn", |card| card.control.next.doorbell_torn = true),
    ("register_unmapped", |card| card.control.next.register_unmapped = true),
    ("commands_executed", |card| card.control.next.commands_executed = true),
    ("commands_refused", |card| card.control.next.commands_refused = true),
    ("host_reads", |card| card.host_reader.next.host_reads = true),
    ("host_read_errors", |card| card.host_reader.next.host_read_errors = true),
    ("host_writes", |card| card.host_writer.next.host_writes = true),
    ("host_write_errors", |card| card.host_writer.next.host_write_errors = true),
];

/// Counters of features that are not implemented yet.
const UNUSED: &[&str] = &[
    "queue_key",
    "no_receive_wqe",
    "unreliable_refused",
    "congestion_notifications_sent",
    "marked_received",
    "packets_retransmitted",
    "context_misses",
];

fn bench() -> Bench<EventCounters> {
    Bench::clocked(EventCounters::default(), |block| &mut block.clock).in_lock_step()
}

/// Lets the events happen in one cycle.
fn raise(bench: &mut Bench<EventCounters>, events: &[Raise]) {
    events.iter().for_each(|event| event(&mut bench.block));
    bench.tick();
    let block = &mut bench.block;
    block.requester.next = Default::default();
    block.responder.next = Default::default();
    block.address_vector.next = Default::default();
    block.complete.next = Default::default();
    block.host_reader.next = Default::default();
    block.host_writer.next = Default::default();
    block.control.next = Default::default();
}

/// Takes a snapshot, and reads all its counts.
fn snapshot(bench: &mut Bench<EventCounters>) -> Vec<u64> {
    bench.block.latch.next = true;
    bench.tick();
    bench.block.latch.next = false;
    bench.tick();
    let is_done = (0..SNAPSHOT_CYCLES).any(|_| {
        bench.tick();
        !bench.block.is_latching.val()
    });
    assert!(is_done, "a snapshot takes more than {SNAPSHOT_CYCLES} cycles");
    (0..LINES as u64)
        .map(|line| {
            bench.block.index.next = bits(line);
            (0..3).for_each(|_| bench.tick());
            bench.block.value.val().to_u64()
        })
        .collect()
}

/// The counters that rose, each with the number of its events.
fn rises(before: &[u64], after: &[u64]) -> Vec<(&'static str, u64)> {
    (0..LINES)
        .filter(|&line| before[line] != after[line])
        .map(|line| (COUNTERS[FIRST + line].name, after[line] - before[line]))
        .collect()
}

#[test]
fn each_event_increments_its_counter_and_no_other() {
    let mut bench = bench();
    let mut before = snapshot(&mut bench);
    for (name, event) in EVENTS {
        raise(&mut bench, &[*event]);
        // A sum passes the event on a cycle later.
        bench.tick();
        let after = snapshot(&mut bench);
        assert_eq!(rises(&before, &after), [(*name, 1)]);
        before = after;
    }
}

#[test]
fn events_of_several_parts_in_one_cycle_are_all_counted() {
    let mut bench = bench();
    let before = snapshot(&mut bench);
    let all: Vec<Raise> = EVENTS.iter().map(|(_, event)| *event).collect();
    raise(&mut bench, &all);
    // The sum with the most parts passes on one event a cycle.
    (0..EVENTS.len()).for_each(|_| bench.tick());
    let rises = rises(&before, &snapshot(&mut bench));
    for &(name, count) in &rises {
        let parts = EVENTS.iter().filter(|event| event.0 == name).count() as u64;
        assert_eq!(count, parts, "{name}");
    }
    assert_eq!(rises.len(), LINES - UNUSED.len());
}

#[test]
fn every_counter_has_an_event_or_is_listed_as_unused() {
    let with_event: BTreeSet<&str> = EVENTS.iter().map(|event| event.0).collect();
    let unused: BTreeSet<&str> = UNUSED.iter().copied().collect();
    assert!(with_event.is_disjoint(&unused));
    let all: BTreeSet<&str> = COUNTERS[FIRST..].iter().map(|counter| counter.name).collect();
    assert_eq!(&with_event | &unused, all);
}
