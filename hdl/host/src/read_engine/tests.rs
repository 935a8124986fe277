use super::*;
use num_bigint::BigUint;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, Waves, random};
use std::collections::{BTreeSet, VecDeque};

impl<const COOKIE: usize> Stimulus for ReadRequest<COOKIE> {
    fn from_number(number: &BigUint) -> Self {
        ReadRequest {
            address: Stimulus::from_number(number),
            length: Stimulus::from_number(&(number >> 64)),
            cookie: Stimulus::from_number(&(number >> (64 + LENGTH_BITS))),
        }
    }
}

impl<const DATA: usize, const BYTES: usize, const TAG: usize> Stimulus for ReadWord<DATA, BYTES, TAG> {
    fn from_number(number: &BigUint) -> Self {
        ReadWord {
            data: Stimulus::from_number(number),
            bytes: Stimulus::from_number(&(number >> DATA)),
            last: number.bit((DATA + BYTES) as u64),
            error: number.bit((DATA + BYTES + 1) as u64),
            tag: Stimulus::from_number(&(number >> (DATA + BYTES + 2))),
        }
    }
}

const COOKIE: usize = 8;

/// Four tags, and chunks for three answers of 512 bytes at most, rounded up.
type Narrow = ReadEngine<64, 4, 6, 2, 3, 7, 8, COOKIE>;
/// Eight tags, and chunks for two answers of 512 bytes.
type Wide = ReadEngine<512, 7, 3, 3, 4, 4, 5, COOKIE>;
/// The default of the card.
type Default512 = ReadEngine<512, 7, 3, 8, 9, 10, 11, COOKIE>;

fn request(address: u64, length: u64, cookie: u64) -> ReadRequest<COOKIE> {
    ReadRequest { address: bits(address), length: bits(length), cookie: bits(cookie) }
}

/// Requests of any length at any place that cross no boundary; many touch one word only, many are as long as may be.
fn random_requests(count: usize, random: &mut Random) -> Vec<ReadRequest<COOKIE>> {
    let one = |random: &mut Random| {
        let offset: u64 = *[0, 1, 448, 511, random.random_range(0..512)].choose(random).unwrap();
        let longest = 512 - offset;
        let length = *[1, 64.min(longest), longest, random.random_range(1..=longest)].choose(random).unwrap();
        request(random.random::<u64>() << 9 | offset, length, random.random_range(0..256))
    };
    (0..count).map(|_| one(random)).collect()
}

/// A host that answers when and in which order it likes.
struct Host<const DATA: usize, const BYTES: usize, const TAG: usize> {
    /// Cycles to the first word of an answer, at least and at most.
    latency: std::ops::RangeInclusive<u64>,
    /// Answers overtake each other and are mixed word by word.
    reorders: bool,
    /// Some reads fail, and some answers have a word too many.
    fails: bool,
    now: u64,
    answers: Vec<(u64, VecDeque<ReadWord<DATA, BYTES, TAG>>)>,
    /// What the engine is to deliver, in order.
    expected: VecDeque<ReadBeat<DATA, BYTES, COOKIE>>,
    delivered: usize,
    failed: usize,
}

impl<const DATA: usize, const BYTES: usize, const TAG: usize> Host<DATA, BYTES, TAG> {
    fn new(latency: std::ops::RangeInclusive<u64>, reorders: bool, fails: bool) -> Self {
        let (answers, expected) = (Vec::new(), VecDeque::new());
        Host { latency, reorders, fails, now: 0, answers, expected, delivered: 0, failed: 0 }
    }

    /// Takes a request, and decides its answer and what the engine must make of it.
    fn accept(&mut self, read: HostRead<TAG>, cookie: Bits<COOKIE>, random: &mut Random) {
        let (width, mut address) = ((DATA / 8) as u64, read.address.to_u64());
        let end = address + read.length.to_u64();
        let mut words = VecDeque::new();
        while address < end {
            let next = (address / width + 1) * width;
            let bytes = bits(next.min(end) - address);
            let data = Stimulus::sample(random);
            words.push_back(ReadWord { data, bytes, last: next >= end, error: false, tag: read.tag });
            address = next;
        }
        let fault = if self.fails { random.random_range(0..8) } else { 8 };
        let touched = words.len();
        match fault {
            // The read fails somewhere and ends there.
            0 => {
                words.truncate(random.random_range(1..=touched));
                words.back_mut().unwrap().last = true;
                words.back_mut().unwrap().error = true;
            }
            // A part of it could not be read.
            1 => words[random.random_range(0..touched)].error = true,
            // The host says that more follows.
            2 => words.back_mut().unwrap().last = false,
            _ => {}
        }
        let mut error = false;
        for (index, word) in words.iter().enumerate() {
            let last = index + 1 == words.len();
            error |= word.error || (last && !word.last);
            let ReadWord { data, bytes, .. } = *word;
            self.expected.push_back(ReadBeat { data, bytes, last, error, cookie });
        }
        self.failed += usize::from(error);
        self.answers.push((self.now + random.random_range(self.latency.clone()), words));
    }

    /// Answers a word, perhaps.
    fn word(&mut self, random: &mut Random) -> Option<ReadWord<DATA, BYTES, TAG>> {
        self.now += 1;
        let is_due = |index: &usize| self.answers[*index].0 <= self.now;
        let due: Vec<usize> = (0..self.answers.len()).filter(is_due).collect();
        let chosen = if self.reorders { due.choose(random) } else { due.first() };
        let index = *chosen.filter(|_| !self.reorders || random.random_bool(0.9))?;
        let word = self.answers[index].1.pop_front();
        if self.answers[index].1.is_empty() {
            self.answers.remove(index);
        }
        word
    }
}

/// Sends requests through an engine, and returns in how many cycles all beats have come out.
fn run<
    const DATA: usize,
    const BYTES: usize,
    const WORD: usize,
    const TAG: usize,
    const TAGS: usize,
    const CHUNK: usize,
    const CHUNKS: usize,
>(
    bench: &mut Bench<ReadEngine<DATA, BYTES, WORD, TAG, TAGS, CHUNK, CHUNKS, COOKIE>>,
    host: &mut Host<DATA, BYTES, TAG>,
    requests: Vec<ReadRequest<COOKIE>>,
    stalls: Stalls,
    random: &mut Random,
) -> usize {
    let mut cookies: VecDeque<_> = requests.iter().map(|request| request.cookie).collect();
    let (mut source, mut sink) = (Source::new(requests, stalls), Sink::new(stalls));
    let mut host_sink = Sink::new(stalls);
    let (mut cycles, mut idle_cycles) = (0, 0);
    while idle_cycles < 20 {
        assert!(cycles < 20_000, "the engine is stuck; stalls: {stalls:?}");
        source.drive(&mut bench.block.rx, random);
        sink.drive(&mut bench.block.tx, random);
        host_sink.drive(&mut bench.block.to_host, random);
        let word = host.word(random);
        bench.block.from_host.valid.next = word.is_some();
        bench.block.from_host.value.next = word.unwrap_or_else(|| Stimulus::sample(random));
        bench.settle();
        source.sample(&bench.block.rx);
        if let Some(read) = host_sink.sample(&bench.block.to_host) {
            host.accept(read, cookies.pop_front().expect("no more reads than requests"), random);
        }
        if let Some(beat) = sink.sample(&bench.block.tx) {
            let expected = host.expected.pop_front();
            assert_eq!(Some(beat), expected, "beat {}, stalls: {stalls:?}", host.delivered);
            host.delivered += 1;
        }
        assert!(!bench.block.is_unexpected.val());
        bench.tick();
        if source.is_done() && cookies.is_empty() && host.expected.is_empty() {
            idle_cycles += 1;
        } else {
            cycles += 1;
        }
    }
    assert_eq!(bench.block.tags_used.val(), bits(0), "all tags are back");
    assert_eq!(bench.block.chunks_used.val(), bits(0), "all chunks are back");
    // The cycle of the last beat counts too.
    cycles + 1
}

/// A bench around an engine of block RAM.
macro_rules! bench {
    ($engine:ty) => {
        Bench::clocked(<$engine>::new(Storage::Block), |block| &mut block.clock)
    };
}

#[test]
fn answers_leave_in_order_whatever_the_narrow_host_does() {
    let mut random = random();
    for stalls in Stalls::ALL {
        let mut bench = bench!(Narrow).in_lock_step();
        let mut host = Host::new(0..=200, true, true);
        let requests = random_requests(60, &mut random);
        run(&mut bench, &mut host, requests, stalls, &mut random);
        assert!(host.failed > 5 && host.delivered > 400, "{} of {}", host.failed, host.delivered);
    }
}

#[test]
fn answers_leave_in_order_whatever_the_wide_host_does() {
    let mut random = random();
    for stalls in Stalls::ALL {
        let mut bench = bench!(Wide).in_lock_step();
        let mut host = Host::new(0..=50, true, true);
        let requests = random_requests(200, &mut random);
        run(&mut bench, &mut host, requests, stalls, &mut random);
        assert!(host.failed > 20 && host.delivered > 300, "{} of {}", host.failed, host.delivered);
    }
}

#[test]
fn small_and_large_reads_run_at_one_beat_a_cycle() {
    let mut random = random();
    for (length, words) in [(64, 1), (512, 8)] {
        let mut bench = bench!(Default512);
        let count = 1600 / words;
        let requests = (0..count as u64).map(|index| request(index << 9, length, index & 0xff)).collect();
        let mut host = Host::new(100..=100, false, false);
        let cycles = run(&mut bench, &mut host, requests, Stalls::None, &mut random);
        // 256 cycles of clearing, of which the request stage hides one, 2 to the host, its 100, and 4 to the exit.
        assert_eq!(cycles, 255 + 2 + 100 + 4 + 1600, "reads of {length} bytes");
    }
}

/// How a host that is late at times answers a read.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Prompt,
    /// After the limit.
    Late,
    /// The first word promptly, the others after the limit.
    Torn,
}

#[test]
fn late_answers_end_their_reads_with_an_error_and_change_nothing_else() {
    let mut random = random();
    let mut bench = bench!(Wide).in_lock_step();
    bench.block.limit.next = bits(1);
    let requests = random_requests(40, &mut random);
    let mut source = Source::new(requests.clone(), Stalls::None);
    let mut sink = Sink::new(Stalls::Sink);
    let (mut waiting, mut busy) = (VecDeque::from(requests), BTreeSet::new());
    // Words by the cycle from which they may be sent, in the order within each answer.
    let mut answers: Vec<VecDeque<(u64, ReadWord<512, 7, 3>)>> = Vec::new();
    let mut expected = VecDeque::new();
    let (mut lost, mut most) = (0, 0);
    for cycle in 0..40_000 {
        source.drive(&mut bench.block.rx, &mut random);
        sink.drive(&mut bench.block.tx, &mut random);
        bench.block.to_host.ready.next = true;
        let due: Vec<_> = (0..answers.len()).filter(|&index| answers[index][0].0 <= cycle).collect();
        let word = due.choose(&mut random).and_then(|&index| answers[index].pop_front());
        answers.retain(|answer| !answer.is_empty());
        bench.block.from_host.valid.next = word.is_some();
        bench.block.from_host.value.next = word.map_or_else(|| Stimulus::sample(&mut random), |word| word.1);
        if let Some((_, word)) = word.filter(|(_, word)| word.last) {
            busy.remove(&word.tag.to_u64());
        }
        bench.settle();
        source.sample(&bench.block.rx);
        let block = &bench.block;
        assert!(!block.is_unexpected.val(), "cycle {cycle}");
        most = most.max(block.quarantined.val().to_u64());
        if block.to_host.valid.val() {
            let read = block.to_host.beat.val();
            assert!(busy.insert(read.tag.to_u64()), "cycle {cycle}: a tag is used before its answer");
            let request = waiting.pop_front().expect("no more reads than requests");
            let first = read.address.to_u64() % 512 / 64;
            let last = (read.address.to_u64() % 512 + read.length.to_u64() - 1) / 64;
            let count = last - first + 1;
            let kinds = [Answer::Prompt, Answer::Prompt, Answer::Prompt, Answer::Late, Answer::Torn];
            let kind = *kinds.choose(&mut random).expect("there are five");
            let mut answer = VecDeque::new();
            for index in 0..count {
                let is_prompt = kind == Answer::Prompt || (kind == Answer::Torn && index == 0 && count > 1);
                let delay = if is_prompt { 20 } else { 3 * 1024 + 300 + random.random_range(0..900) };
                let data: Bits<512> = Stimulus::sample(&mut random);
                let last = index + 1 == count;
                let word = ReadWord { data, bytes: bits(64), last, error: false, tag: read.tag };
                answer.push_back((cycle + delay, word));
                if is_prompt {
                    expected.push_back((Some(data), last, false, request.cookie));
                }
            }
            if kind != Answer::Prompt {
                expected.push_back((None, true, true, request.cookie));
                lost += 1;
            }
            answers.push(answer);
        }
        if let Some(beat) = sink.sample(&bench.block.tx) {
            let (data, last, error, cookie) = expected.pop_front().expect("a beat that is due");
            assert_eq!((beat.last, beat.error, beat.cookie), (last, error, cookie), "cycle {cycle}");
            assert!(data.is_none_or(|data| data == beat.data), "cycle {cycle}");
        }
        bench.tick();
        if waiting.is_empty() && expected.is_empty() && answers.is_empty() {
            break;
        }
    }
    (0..10).for_each(|_| bench.tick());
    assert!(waiting.is_empty() && expected.is_empty() && answers.is_empty(), "the engine is stuck");
    let block = &bench.block;
    assert_eq!((block.tags_used.val(), block.chunks_used.val()), (bits(0), bits(0)));
    assert_eq!(block.quarantined.val(), bits(0), "each tag is back");
    assert!(lost > 4 && most > 1, "{lost} reads were lost, at most {most} at a time");
}

/// Requests reads from a host that does not answer, and returns the tags and chunks that are then in use.
fn fill(length: u64) -> (u64, u64) {
    let mut bench = bench!(Wide);
    bench.block.rx.valid.next = true;
    bench.block.rx.beat.next = request(0, length, 0);
    bench.block.to_host.ready.next = true;
    (0..100).for_each(|_| bench.tick());
    assert!(!bench.block.rx.ready.val() && !bench.block.to_host.valid.val());
    (bench.block.tags_used.val().to_u64(), bench.block.chunks_used.val().to_u64())
}

#[test]
fn all_tags_and_all_chunks_can_be_used_and_no_more() {
    assert_eq!(fill(64), (8, 8), "tags end first");
    assert_eq!(fill(512), (2, 16), "chunks end first");
    assert_eq!(fill(3 * 64), (5, 15), "the last chunk is too little");
}

#[test]
fn a_read_that_crosses_the_boundary_ends_with_an_error() {
    let mut random = random();
    let mut bench = bench!(Wide);
    let mut host = Host::<512, 7, 3>::new(0..=0, false, false);
    bench.block.to_host.ready.next = true;
    bench.block.tx.ready.next = true;
    let mut beats = Vec::new();
    let mut has_warned = false;
    for cycle in 0..40 {
        // 64 bytes, half of them after the boundary, and then a good read.
        bench.block.rx.valid.next = cycle == 10 || cycle == 11;
        bench.block.rx.beat.next = request(if cycle == 10 { 512 + 480 } else { 1024 }, 64, cycle);
        let word = host.word(&mut random);
        bench.block.from_host.valid.next = word.is_some();
        bench.block.from_host.value.next = word.unwrap_or_default();
        bench.settle();
        if bench.block.to_host.valid.val() {
            host.accept(bench.block.to_host.beat.val(), bits(0), &mut random);
        }
        if bench.block.tx.valid.val() {
            let beat = bench.block.tx.beat.val();
            beats.push((beat.cookie.to_u64(), beat.last, beat.error));
        }
        has_warned |= bench.block.is_unexpected.val();
        bench.tick();
    }
    // Index 7 to index 0, modulo 8, are two words.
    assert_eq!(beats, [(10, false, false), (10, true, false), (11, true, false)]);
    assert!(!has_warned);
}

#[test]
fn its_chunks_are_of_either_kind_of_block_ram() {
    Default512::new(Storage::Block);
    Default512::new(Storage::Ultra);
}

#[test]
fn waveform_is_as_documented() {
    let waves = Waves::new()
        .signal("rx_valid")
        .signal("rx_beat.length")
        .when("rx_valid")
        .signal("to_host_valid")
        .signal("to_host_beat.tag")
        .when("to_host_valid")
        .signal("from_host_valid")
        .signal("from_host_value.tag")
        .when("from_host_valid")
        .signal("from_host_value.last")
        .when("from_host_valid")
        .signal("tx_valid")
        .signal("tx_beat.cookie")
        .when("tx_valid")
        .signal("tx_beat.last")
        .when("tx_valid")
        .signal("tags_used")
        .signal("chunks_used");
    let mut bench = bench!(Wide);
    (0..8).for_each(|_| bench.tick());
    let mut bench = bench.recording(waves);
    bench.block.to_host.ready.next = true;
    bench.block.tx.ready.next = true;
    let arrivals = [(5, 1, true), (7, 0, false), (8, 0, true)];
    for cycle in 0..15 {
        bench.block.rx.valid.next = cycle == 1 || cycle == 2;
        bench.block.rx.beat.next = if cycle == 1 { request(0, 128, 0xa0) } else { request(64, 16, 0xb0) };
        let word = arrivals.iter().find(|arrival| arrival.0 == cycle);
        bench.block.from_host.valid.next = word.is_some();
        let (_, tag, last) = word.copied().unwrap_or_default();
        bench.block.from_host.value.next = ReadWord { tag: bits(tag), last, ..ReadWord::default() };
        bench.tick();
    }
    bench.waves().expect("waves/read_engine.txt");
}
