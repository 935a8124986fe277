use super::*;
use crate::testing::{Fault, ReadHost, bytes_of, generates, memory_bytes};
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, random};

/// Eight tags, and room for two answers of 512 bytes.
type Narrow = HostReader<64, 4, 6, 3, 4, 7, 8>;
type Wide = HostReader<512, 7, 3, 3, 4, 4, 5>;

/// Reads of pages whose number ends in 5 or 6 fail, one way or the other.
fn fault(address: u64) -> Fault {
    match address >> 9 & 7 {
        5 => Fault::Error,
        6 => Fault::Short,
        _ => Fault::None,
    }
}

fn fails(address: u64) -> bool {
    fault(address) != Fault::None
}

fn span(address: u64, length: u64) -> HostSpan {
    HostSpan { address: bits(address), length: bits(length) }
}

fn spans(client: usize, count: usize, random: &mut Random) -> Vec<HostSpan> {
    let one = |random: &mut Random| {
        let address = random.random_range(0..1u64 << 40);
        if client == WORD_CLIENT as usize {
            return span(address & !7, 8);
        }
        if client == PAYLOAD as usize {
            let length =
                *[1, 64, random.random_range(1..=4096), random.random_range(1..200)].choose(random).unwrap();
            return span(address, length);
        }
        let slots = *[1, 8, random.random_range(1..=20)].choose(random).unwrap();
        span(address & !63, slots * 64)
    };
    (0..count).map(|_| one(random)).collect()
}

/// Where the pieces of a span begin and end.
fn pieces(span: &HostSpan) -> Vec<(u64, u64)> {
    let (mut address, end) = (span.address.to_u64(), span.address.to_u64() + span.length.to_u64());
    let mut pieces = Vec::new();
    while address < end {
        let next = ((address | 511) + 1).min(end);
        pieces.push((address, next));
        address = next;
    }
    pieces
}

/// What each client has received since the start.
#[derive(Default)]
struct Received {
    slots: [Vec<Slot>; SLOT_CLIENTS],
    words: Vec<(Vec<u8>, u64, bool, bool)>,
    atomics: Vec<HostWord>,
}

fn check_atomics(spans: &[HostSpan], words: &[HostWord]) -> usize {
    assert_eq!(spans.len(), words.len(), "a word for each");
    let mut errors = 0;
    for (span, word) in spans.iter().zip(words) {
        let address = span.address.to_u64();
        // An answer of one word cannot be shorter.
        assert_eq!(word.error, fault(address) == Fault::Error, "{span:?}");
        if !word.error {
            assert_eq!(word.data.to_u64().to_le_bytes(), memory_bytes(address, 8)[..], "{span:?}");
        }
        errors += usize::from(word.error);
    }
    errors
}

fn check_slots(spans: &[HostSpan], slots: &[Slot]) -> usize {
    let (mut slots, mut errors) = (slots.iter(), 0);
    for span in spans {
        let pieces = pieces(span);
        let mut may_have_failed = false;
        for (index, &(begin, end)) in pieces.iter().enumerate() {
            may_have_failed |= fails(begin);
            for address in (begin..end).step_by(64) {
                let slot = slots.next().expect("as many slots as were asked for");
                let is_last = index + 1 == pieces.len() && address + 64 == end;
                assert_eq!(slot.last, is_last, "{span:?} at {address:#x}");
                assert!(may_have_failed || !slot.error, "{span:?} at {address:#x} is good");
                assert!(slot.error || bytes_of(slot.data) == memory_bytes(address, 64));
                if slot.error || (end == address + 64 && fails(begin) && fault(begin) == Fault::Error) {
                    assert!(slot.error, "the last slot of a failed piece says so");
                }
                errors += usize::from(slot.error);
            }
        }
    }
    assert!(slots.next().is_none(), "no slot that was not asked for");
    errors
}

fn check_payload<const DATA: usize>(spans: &[HostSpan], words: &[(Vec<u8>, u64, bool, bool)]) -> usize {
    let lanes = (DATA / 8) as u64;
    let (mut words, mut failures) = (words.iter(), 0);
    for span in spans {
        let (mut address, end) = (span.address.to_u64(), span.address.to_u64() + span.length.to_u64());
        let may_fail = pieces(span).iter().any(|&(begin, _)| fails(begin));
        let must_say_so = pieces(span).iter().any(|&(begin, _)| fault(begin) == Fault::Error);
        loop {
            let (data, bytes, last, error) = words.next().expect("a word for every span");
            if may_fail {
                assert!(!last || *error == must_say_so, "{span:?}");
                failures += usize::from(*last && *error);
                if *last {
                    break;
                }
                continue;
            }
            assert!(!error);
            let next = ((address / lanes + 1) * lanes).min(end);
            let lane = (address % lanes) as usize;
            assert_eq!(*bytes, next - address, "{span:?} at {address:#x}");
            let count = *bytes as usize;
            assert_eq!(data[lane..lane + count], memory_bytes(address, count), "{span:?}");
            assert_eq!(*last, next == end, "{span:?} at {address:#x}");
            address = next;
            if *last {
                break;
            }
        }
    }
    assert!(words.next().is_none(), "no word that was not asked for");
    failures
}

/// Runs five clients that ask for much at once, and returns the cycles that it took.
fn run<
    const DATA: usize,
    const BYTES: usize,
    const WORD: usize,
    const TAG: usize,
    const TAGS: usize,
    const CHUNK: usize,
    const CHUNKS: usize,
>(
    bench: &mut Bench<HostReader<DATA, BYTES, WORD, TAG, TAGS, CHUNK, CHUNKS>>,
    host: &mut ReadHost<DATA, BYTES, TAG>,
    spans: &[Vec<HostSpan>; 5],
    stalls: Stalls,
    random: &mut Random,
) -> (Received, usize) {
    let mut sources = spans.each_ref().map(|spans| Source::showing_next(spans.clone(), stalls));
    let mut host_sink = Sink::new(stalls);
    let mut sink = Sink::new(stalls);
    let mut received = Received::default();
    let total = spans.iter().map(Vec::len).sum::<usize>() as u64;
    let (mut cycles, mut idle, mut reads, mut errors) = (0, 0, 0, 0);
    while idle < 20 {
        assert!(cycles < 60_000, "the reader is stuck; stalls: {stalls:?}");
        let block = &mut bench.block;
        sources[0].drive(&mut block.sq_read, random);
        sources[1].drive(&mut block.rq_read, random);
        sources[2].drive(&mut block.admin_read, random);
        sources[3].drive(&mut block.payload_read, random);
        sources[4].drive(&mut block.atomics_read, random);
        host_sink.drive(&mut block.to_host, random);
        sink.drive(&mut block.payload, random);
        let word = host.word(random);
        block.from_host.valid.next = word.is_some();
        block.from_host.value.next = word.unwrap_or_default();
        bench.settle();
        let block = &bench.block;
        sources[0].sample(&block.sq_read);
        sources[1].sample(&block.rq_read);
        sources[2].sample(&block.admin_read);
        sources[3].sample(&block.payload_read);
        sources[4].sample(&block.atomics_read);
        if block.atomics_word.valid.val() {
            received.atomics.push(block.atomics_word.value.val());
        }
        if let Some(read) = host_sink.sample(&block.to_host) {
            host.accept(read, random);
        }
        if let Some(beat) = sink.sample(&block.payload) {
            received.words.push((bytes_of(beat.data), beat.bytes.to_u64(), beat.last, beat.error));
        }
        let slots = [
            (block.sq_slot.valid.val(), block.sq_slot.value.val()),
            (block.rq_slot.valid.val(), block.rq_slot.value.val()),
            (block.admin_slot.valid.val(), block.admin_slot.value.val()),
        ];
        for (client, (valid, slot)) in slots.into_iter().enumerate() {
            if valid {
                received.slots[client].push(slot);
            }
        }
        reads += usize::from(block.counts.val().host_reads);
        errors += usize::from(block.counts.val().host_read_errors);
        assert!(!block.is_unexpected.val());
        let in_flight = block.in_flight.val();
        bench.tick();
        let is_done = in_flight.left == total && in_flight.entered == total;
        idle = if is_done { idle + 1 } else { 0 };
        cycles += 1;
    }
    assert_eq!(bench.block.reads_in_flight.val(), bits(0));
    assert_eq!((reads, errors), (host.requests, host.errors), "counters");
    (received, cycles - idle)
}

/// A bench around a reader of block RAM.
macro_rules! bench {
    ($reader:ty) => {
        Bench::clocked(<$reader>::default(), |block| &mut block.clock)
    };
}

macro_rules! five_clients {
    ($reader:ty, $data:literal, $count:literal) => {
        let mut random = random();
        let (mut errors, mut failures, mut words) = (0, 0, 0);
        for stalls in Stalls::ALL {
            let mut bench = bench!($reader).in_lock_step();
            let mut host = ReadHost::new(0..=60, true, fault);
            let spans = [0, 1, 2, 3, 4].map(|client| spans(client, $count, &mut random));
            let (received, _) = run(&mut bench, &mut host, &spans, stalls, &mut random);
            for client in 0..SLOT_CLIENTS {
                errors += check_slots(&spans[client], &received.slots[client]);
            }
            failures += check_payload::<$data>(&spans[3], &received.words);
            words += check_atomics(&spans[4], &received.atomics);
        }
        assert!(errors > 20 && failures > 2, "{errors} slots and {failures} spans failed");
        assert!(words > 2, "{words} words failed");
    };
}

#[test]
fn pieces_tell_their_slots_and_words_their_place() {
    for (client, address, length, last_slot, is_paged) in [
        (SEND_QUEUES, 0x1c0, 64, 0, false),
        (RECEIVE_QUEUES, 0, 128, 1, false),
        (ADMIN, 0, 512, 7, false),
        (WORD_CLIENT, 0x1000, 8, 0, true),
        (WORD_CLIENT, 0x1038, 8, 7, true),
    ] {
        for is_final in [false, true] {
            let origin = origin_of_piece(bits(client), bits(address), bits(length), is_final);
            assert_eq!(origin, Origin { client: bits(client), is_final, last_slot: bits(last_slot) });
        }
        assert_eq!(may_be_paged(bits(client)), is_paged);
    }
    assert!(may_be_paged(bits(PAYLOAD)));
}

#[test]
fn five_clients_get_what_they_asked_for_at_64_bits() {
    five_clients!(Narrow, 64, 12);
}

#[test]
fn five_clients_get_what_they_asked_for_at_512_bits() {
    five_clients!(Wide, 512, 40);
}

#[test]
fn small_spans_are_read_at_one_a_cycle() {
    let mut random = random();
    let mut bench = bench!(HostReader<512, 7, 3, 8, 9, 10, 11>);
    (0..300).for_each(|_| bench.tick());
    let mut host = ReadHost::new(100..=100, false, |_| Fault::None);
    let work: Vec<_> = (0..400).map(|index| span(index * 64, 64)).collect();
    let payload: Vec<_> = (0..400).map(|index| span(index * 4096 + 64, 64)).collect();
    let spans = [work, Vec::new(), Vec::new(), payload, Vec::new()];
    let (_, cycles) = run(&mut bench, &mut host, &spans, Stalls::None, &mut random);
    // 8 to the host, its 100, and 5 to the slot, which is counted a cycle later.
    assert!((800 + 108..=800 + 118).contains(&cycles), "{cycles}");
}

#[test]
fn latency_is_as_the_header_says() {
    let mut bench = Bench::clocked(Wide::default(), |block| &mut block.clock);
    // No request is issued before all tags are in their pool.
    (0..16).for_each(|_| bench.tick());
    for (is_payload, from_word) in [(false, 5), (true, 4)] {
        let (mut request, mut answer) = (None, None);
        for cycle in 0..40 {
            let block = &mut bench.block;
            block.sq_read.beat.next = span(0, 64);
            block.sq_read.valid.next = cycle == 0 && !is_payload;
            block.payload_read.beat.next = span(0, 64);
            block.payload_read.valid.next = cycle == 0 && is_payload;
            block.payload.ready.next = true;
            block.to_host.ready.next = true;
            block.from_host.valid.next = cycle == 20;
            bench.settle();
            let block = &mut bench.block;
            if block.to_host.valid.val() {
                request = Some(cycle);
                block.from_host.value.next = ReadWord {
                    bytes: bits(64),
                    last: true,
                    tag: block.to_host.beat.val().tag,
                    ..Default::default()
                };
            }
            if block.sq_slot.valid.val() || block.payload.valid.val() {
                answer = Some(cycle);
            }
            bench.tick();
        }
        assert_eq!((request, answer), (Some(8), Some(20 + from_word)), "payload: {is_payload}");
    }
}

/// Inputs that no connected block would give, and resets at any time.
#[test]
fn any_input_does_the_same_in_verilog() {
    let mut random = random();
    let mut bench = bench!(Wide).in_lock_step();
    for _ in 0..1500 {
        let block = &mut bench.block;
        block.reset.next = random.random_bool(0.01);
        for port in [
            &mut block.sq_read,
            &mut block.rq_read,
            &mut block.admin_read,
            &mut block.payload_read,
            &mut block.atomics_read,
        ] {
            port.valid.next = random.random_bool(0.3);
            port.beat.next = span(random.random(), random.random_range(0..8192));
        }
        block.payload.ready.next = random.random_bool(0.8);
        block.to_host.ready.next = random.random_bool(0.8);
        block.from_host.valid.next = random.random();
        block.from_host.value.next = ReadWord {
            data: Stimulus::sample(&mut random),
            bytes: Stimulus::sample(&mut random),
            last: random.random(),
            error: random.random_bool(0.1),
            tag: Stimulus::sample(&mut random),
        };
        bench.tick();
    }
}

#[test]
fn every_width_of_the_card_is_generated() {
    generates(HostReader::<128, 5, 5, 8, 9, 12, 13>::default());
    generates(HostReader::<256, 6, 4, 8, 9, 11, 12>::default());
}
