use super::*;
use crate::testing::{bytes_of, generates};
use num_bigint::BigUint;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, random};
use std::collections::VecDeque;

/// A write that a client makes.
#[derive(Clone, Debug, PartialEq)]
struct Meant {
    owner: WriteOwner,
    address: u64,
    bytes: Vec<u8>,
    queue_pair: u64,
}

fn number<const N: usize>(bytes: &[u8]) -> Bits<N> {
    BigUint::from_bytes_le(bytes).into()
}

fn noise(count: usize, random: &mut Random) -> Vec<u8> {
    (0..count).map(|_| random.random()).collect()
}

fn payload(random: &mut Random) -> Meant {
    let offset = *[0, 1, 448, 511, random.random_range(0..512)].choose(random).unwrap();
    let longest = 512 - offset;
    let length = *[1, longest, 64.min(longest), random.random_range(1..=longest)].choose(random).unwrap();
    let address = random.random_range(0..1u64 << 50) << 9 | offset;
    let bytes = noise(length as usize, random);
    Meant { owner: WriteOwner::Payload, address, bytes, queue_pair: random.random_range(0..1024) }
}

fn slot(owner: WriteOwner, random: &mut Random) -> Meant {
    let length = *[16, 32, 64].choose(random).unwrap();
    let address = random.random_range(0..1u64 << 50) * length;
    let queue_pair = if owner == WriteOwner::Completion { random.random_range(0..1024) } else { 0 };
    Meant { owner, address, bytes: noise(length as usize, random), queue_pair }
}

fn word(random: &mut Random) -> Meant {
    let address = random.random_range(0..1u64 << 50) * 8;
    Meant { owner: WriteOwner::Atomics, address, bytes: noise(8, random), queue_pair: 0 }
}

fn words_of<const DATA: usize>(write: &Meant, random: &mut Random) -> Vec<PayloadWrite<DATA>> {
    let lanes = DATA / 8;
    let lane = write.address as usize % lanes;
    let mut bytes = noise(lane, random);
    bytes.extend(&write.bytes);
    let behind = bytes.len().wrapping_neg() % lanes;
    bytes.extend(noise(behind, random));
    let count = bytes.len() / lanes;
    let word = |(index, chunk): (usize, &[u8])| PayloadWrite {
        address: bits(write.address),
        length: bits(write.bytes.len() as u64),
        queue_pair: bits(write.queue_pair),
        generation: bits(write.queue_pair & 0xff),
        is_response: write.queue_pair.is_multiple_of(3),
        data: number(chunk),
        last: index + 1 == count,
    };
    bytes.chunks(lanes).enumerate().map(word).collect()
}

fn slot_write(write: &Meant, random: &mut Random) -> SlotWrite {
    let mut bytes = write.bytes.clone();
    let behind = 64 - bytes.len();
    bytes.extend(noise(behind, random));
    SlotWrite {
        address: bits(write.address),
        length: bits(write.bytes.len() as u64),
        data: number(&bytes),
        is_cqe: is_cqe(write),
        cqe: CqeOwner {
            completion_queue: bits(1023 - write.queue_pair),
            life: bits(write.queue_pair & 7),
            queue_pair: bits(write.queue_pair),
            generation: bits(write.queue_pair & 0xff),
        },
    }
}

/// A small write of the completion part is a CQE or an EQE.
fn is_cqe(write: &Meant) -> bool {
    write.owner == WriteOwner::Completion && write.bytes.len() == 32
}

/// Four clients write at once; the host takes requests and words as it likes and reports late. Returns how many CQEs it refused.
fn writes_arrive<const DATA: usize, const BYTES: usize>(
    count: usize,
    stalls: Stalls,
    random: &mut Random,
) -> usize {
    let writer = HostWriter::<DATA, BYTES>::default();
    let mut bench = Bench::clocked(writer, |block| &mut block.clock).in_lock_step();
    let meant = [
        (0..count).map(|_| payload(random)).collect::<Vec<_>>(),
        (0..count).map(|_| slot(WriteOwner::Completion, random)).collect(),
        (0..count / 4).map(|_| slot(WriteOwner::Admin, random)).collect(),
        (0..count).map(|_| word(random)).collect(),
    ];
    let words: Vec<_> = meant[0].iter().flat_map(|write| words_of::<DATA>(write, random)).collect();
    // A client that begins a write has all of it: the words of a write follow each other, one a cycle.
    let mut payload_source = Source::showing_next(words, stalls);
    let slots = |index: usize, random: &mut Random| {
        meant[index].iter().map(|write| slot_write(write, random)).collect::<Vec<_>>()
    };
    let mut completion_source = Source::showing_next(slots(1, random), stalls);
    let mut admin_source = Source::showing_next(slots(2, random), stalls);
    let word_write = |write: &Meant| WordWrite { address: bits(write.address), data: number(&write.bytes) };
    let mut atomics_source = Source::showing_next(meant[3].iter().map(word_write), stalls);
    let mut waiting = meant.clone().map(VecDeque::from);
    let (mut request_sink, mut word_sink, mut failure_sink) =
        (Sink::new(stalls), Sink::new(stalls), Sink::new(stalls));
    // Writes in the order in which they were taken, and what the host has of them.
    let mut taken: Vec<Meant> = Vec::new();
    let mut payload_begins = true;
    let (mut requests, mut got): (VecDeque<HostWrite>, Vec<WriteWord<DATA>>) = Default::default();
    let mut dones: VecDeque<(usize, bool)> = VecDeque::new();
    let (mut finished, mut failed) = (0, VecDeque::new());
    let (mut reported, mut failures, mut cqe_failures) = (0usize, 0, 0);
    let (mut counted_writes, mut counted_errors) = (0, 0);
    let total = meant.iter().map(Vec::len).sum::<usize>();
    let mut cycle = 0;
    let mut done_before = 0;
    let mut done_of = [0usize; 4];
    while done_before < total {
        assert!(cycle < 40_000, "the writer is stuck: {done_before} of {total}, {stalls:?}");
        let block = &mut bench.block;
        payload_source.drive(&mut block.payload, random);
        completion_source.drive(&mut block.completion, random);
        admin_source.drive(&mut block.admin, random);
        atomics_source.drive(&mut block.atomics, random);
        request_sink.drive(&mut block.request, random);
        word_sink.drive(&mut block.words, random);
        failure_sink.drive(&mut block.write_failure, random);
        let report = dones.front().filter(|done| done.0 <= cycle).copied();
        block.done_valid.next = report.is_some();
        block.done_error.next = report.is_some_and(|done| done.1);
        bench.settle();
        if let Some((_, error)) = report {
            dones.pop_front();
            reported += 1;
            if error {
                failed.push_back(reported);
            }
        }
        let block = &bench.block;
        assert_eq!(block.in_flight.val().entered, bits(taken.len() as u64), "one cycle after it was taken");
        if payload_source.sample(&block.payload) {
            let word = block.payload.beat.val();
            if payload_begins {
                taken.push(waiting[0].pop_front().unwrap());
            }
            payload_begins = word.last;
        }
        if completion_source.sample(&block.completion) {
            taken.push(waiting[1].pop_front().unwrap());
        }
        if admin_source.sample(&block.admin) {
            taken.push(waiting[2].pop_front().unwrap());
        }
        if atomics_source.sample(&block.atomics) {
            taken.push(waiting[3].pop_front().unwrap());
        }
        if let Some(request) = request_sink.sample(&block.request) {
            requests.push_back(request);
        }
        if let Some(word) = word_sink.sample(&block.words) {
            got.push(word);
        }
        let mut failed_now = false;
        if let Some(failure) = failure_sink.sample(&block.write_failure) {
            let at = failed.pop_front().expect("a failure that the host reported");
            assert_eq!(done_before, at - 1, "the counts wait for the report");
            let write = &taken[at - 1];
            assert_eq!(failure.write_count, bits(done_of[write.owner as usize] as u64 + 1));
            failed_now = write.owner == WriteOwner::Payload;
            assert_eq!((failure.owner, failure.queue_pair), (write.owner, bits(write.queue_pair)));
            assert_eq!(failure.is_cqe, is_cqe(write), "a CQE is told from an EQE");
            if failure.is_cqe {
                let queues = (failure.completion_queue, failure.life);
                assert_eq!(queues, (bits(1023 - write.queue_pair), bits(write.queue_pair & 7)));
                cqe_failures += 1;
            }
            failures += 1;
        }
        // The host has a request and all of its words.
        while let Some(end) = got.iter().position(|word| word.last).filter(|_| !requests.is_empty()) {
            let request = requests.pop_front().unwrap();
            let write = &taken[finished];
            assert_eq!(
                (request.address.to_u64(), request.length.to_u64() as usize),
                (write.address, write.bytes.len())
            );
            let bytes: Vec<u8> = got.drain(..=end).flat_map(|word| bytes_of(word.data)).collect();
            let lane = write.address as usize % (DATA / 8);
            assert_eq!(bytes.len(), (lane + write.bytes.len()).next_multiple_of(DATA / 8));
            assert_eq!(bytes[lane..lane + write.bytes.len()], write.bytes, "write {finished}");
            finished += 1;
            let due = dones.back().map_or(0, |done| done.0 + 1);
            dones.push_back((due.max(cycle + random.random_range(1..100)), random.random_bool(0.1)));
        }
        counted_writes += usize::from(block.counts.val().host_writes);
        counted_errors += usize::from(block.counts.val().host_write_errors);
        assert!(!block.is_unexpected.val());
        bench.tick();
        let block = &bench.block;
        let counts = [&block.payload_done_count, &block.completion_done_count, &block.admin_done_count];
        let [payload, completion, admin] = counts.map(|count| count.val().to_u64() as usize);
        let atomic_is_done = block.atomics_done.val();
        done_of = [payload, completion, admin, done_of[3] + usize::from(atomic_is_done)];
        done_before = done_of.iter().sum();
        let of = |owner| taken[..done_before].iter().filter(|write| write.owner == owner).count();
        let owners = [WriteOwner::Payload, WriteOwner::Completion, WriteOwner::Admin, WriteOwner::Atomics];
        assert_eq!(done_of, owners.map(of));
        if atomic_is_done && failed.front() == Some(&done_before) {
            failed.pop_front();
            failures += 1;
            assert!(block.atomics_failed.val(), "with its pulse");
        } else if atomic_is_done {
            assert!(!block.atomics_failed.val());
        }
        assert_eq!(block.payload_failed.val(), failed_now);
        assert!(done_before <= reported);
        cycle += 1;
    }
    bench.settle();
    counted_errors += usize::from(bench.block.counts.val().host_write_errors);
    assert_eq!(bench.block.in_flight.val().entered, bench.block.in_flight.val().left);
    assert_eq!((counted_writes, counted_errors), (total, failures));
    assert!(failures > 0);
    cqe_failures
}

#[test]
fn a_small_write_has_as_many_words_as_its_length_fills() {
    // Bytes, log2 of the datapath's bits, words; whether 16 and 32 bytes are repeated.
    for ((bytes, data_log2), (words, has_16, has_32)) in [
        ((16, 6), (2, true, false)),
        ((32, 6), (4, false, true)),
        ((64, 6), (8, false, false)),
        ((16, 7), (1, true, false)),
        ((32, 7), (2, false, true)),
        ((64, 8), (2, false, false)),
        ((16, 9), (1, true, false)),
        ((32, 9), (1, false, true)),
        ((64, 9), (1, false, false)),
    ] {
        let write = SlotWrite { address: bits(0x40), length: bits(bytes), ..Default::default() };
        let item = slot_item(write, WriteOwner::Admin, data_log2);
        assert_eq!(item.words_left, bits(words - 1), "{bytes} bytes");
        assert_eq!((item.has_8, item.has_16, item.has_32), (false, has_16, has_32));
        assert_eq!((item.request.address, item.request.length), (bits(0x40), bits(bytes)));
        assert_eq!((item.owner.owner, item.last), (WriteOwner::Admin, true));
    }
}

#[test]
fn small_data_is_repeated_in_every_lane_of_its_size() {
    let data: Vec<u8> = (1..=64).collect();
    let write = |length| SlotWrite {
        address: bits(0),
        length: bits(length),
        data: number(&data),
        ..Default::default()
    };
    let word = WordWrite { address: bits(0), data: number(&data[..8]) };
    for (item, bytes) in [
        (word_item(word), 8),
        (slot_item(write(16), WriteOwner::Completion, 9), 16),
        (slot_item(write(32), WriteOwner::Completion, 9), 32),
        (slot_item(write(64), WriteOwner::Completion, 9), 64),
    ] {
        assert_eq!(bytes_of(spread(item)), data[..bytes].repeat(64 / bytes), "{bytes} bytes");
    }
}

#[test]
fn payload_and_atomics_may_be_in_pages_and_all_but_atomics_give_out_failures() {
    for (owner, is_paged, refused) in [
        (WriteOwner::Payload, true, Report::Failure),
        (WriteOwner::Completion, false, Report::Failure),
        (WriteOwner::Admin, false, Report::Failure),
        (WriteOwner::Atomics, true, Report::Count),
    ] {
        assert_eq!(may_be_paged(owner), is_paged);
        assert_eq!(report_of(owner, true), refused);
        assert_eq!(report_of(owner, false), Report::Count);
    }
}

#[test]
fn writes_arrive_in_one_order_at_64_bits() {
    let mut random = random();
    let refused = Stalls::ALL.map(|stalls| writes_arrive::<64, 4>(40, stalls, &mut random));
    assert!(refused.iter().sum::<usize>() > 0, "no CQE was refused");
}

#[test]
fn writes_arrive_in_one_order_at_512_bits() {
    let mut random = random();
    let refused = Stalls::ALL.map(|stalls| writes_arrive::<512, 7>(100, stalls, &mut random));
    assert!(refused.iter().sum::<usize>() > 0, "no CQE was refused");
}

#[test]
fn every_width_of_the_card_is_generated() {
    generates(HostWriter::<128, 5>::default());
    generates(HostWriter::<256, 6>::default());
    assert!(HostWriter::<256, 7>::REFUSAL.is_some());
}

/// Eight small writes and eight of a word of payload, all at once, at a host that reports each as soon as it has it.
#[test]
fn latency_and_throughput_are_as_the_header_says() {
    let mut random = random();
    let mut bench = Bench::clocked(HostWriter::<512, 7>::default(), |block| &mut block.clock);
    let payload = PayloadWrite::<512> { length: bits(64), last: true, ..Default::default() };
    let mut payload = Source::showing_next([payload; 8], Stalls::None);
    let completion = SlotWrite { length: bits(32), ..Default::default() };
    let mut completion = Source::showing_next([completion; 8], Stalls::None);
    let (mut given, mut requested, mut counted) = (Vec::new(), Vec::new(), Vec::new());
    for cycle in 0..40 {
        let block = &mut bench.block;
        payload.drive(&mut block.payload, &mut random);
        completion.drive(&mut block.completion, &mut random);
        block.request.ready.next = true;
        block.words.ready.next = true;
        block.done_valid.next = requested.last() == Some(&(cycle - 1));
        bench.settle();
        let block = &bench.block;
        payload.sample(&block.payload);
        completion.sample(&block.completion);
        if block.words.valid.val() {
            given.push(cycle);
        }
        if block.request.valid.val() {
            requested.push(cycle);
        }
        let done = block.payload_done_count.val() + block.completion_done_count.val();
        counted.resize(done.to_u64() as usize, cycle);
        bench.tick();
    }
    assert_eq!(given, (3..3 + 16).collect::<Vec<_>>());
    assert_eq!(requested, (6..6 + 16).collect::<Vec<_>>());
    assert_eq!(counted, (7 + 3..7 + 3 + 16).collect::<Vec<_>>(), "reported a cycle after the request");
}

#[test]
fn a_report_without_a_write_in_flight_changes_nothing() {
    let mut bench = Bench::clocked(HostWriter::<64, 4>::default(), |block| &mut block.clock).in_lock_step();
    bench.block.done_valid.next = true;
    bench.tick();
    bench.block.done_valid.next = false;
    bench.settle();
    assert!(bench.block.is_unexpected.val());
    (0..5).for_each(|_| bench.tick());
    assert_eq!(bench.block.in_flight.val().left, bits(0));
}

/// Reports that come with a gap of less than the limit are in time; then the host takes nothing more, or reports nothing.
#[test]
fn a_host_that_reports_or_takes_nothing_is_overdue() {
    const UNIT: u64 = 1024;
    let mut random = random();
    for takes in [false, true] {
        let mut bench = Bench::clocked(HostWriter::<64, 4>::default(), |block| &mut block.clock);
        let write = SlotWrite { length: bits(16), ..Default::default() };
        let mut completion = Source::showing_next([write; 8], Stalls::None);
        let (mut requested, mut reported, mut last_report) = (0, 0, 0);
        let mut overdue = None;
        for cycle in 0..8 * UNIT {
            let block = &mut bench.block;
            block.limit.next = bits(1);
            completion.drive(&mut block.completion, &mut random);
            let is_silent = reported == 5;
            block.request.ready.next = takes || !is_silent;
            block.words.ready.next = takes || !is_silent;
            let reports = requested > reported && !is_silent && cycle % (UNIT - 100) == 0;
            block.done_valid.next = reports;
            bench.settle();
            let block = &bench.block;
            completion.sample(&block.completion);
            requested += u64::from(block.request.valid.val() && block.request.ready.val());
            if block.is_overdue.val() && overdue.is_none() {
                overdue = Some(cycle - last_report);
                assert!(is_silent, "{reported} reports, the last one in time");
            }
            if reports {
                (reported, last_report) = (reported + 1, cycle);
            }
            bench.tick();
        }
        let after = overdue.expect("it is noticed");
        assert!((UNIT..UNIT + 8).contains(&after), "after {after} cycles, takes: {takes}");
    }
}
