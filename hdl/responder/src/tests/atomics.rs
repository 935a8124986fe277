//! Atomics by itself: random requests and releases, few words and many, a slow host that fails, against a model
//! that executes the atomics one after the other.
use crate::atomics::{Atomics, lock_of};
use crate::messages::{AtomicOperands, AtomicRelease, AtomicRequest, AtomicResult};
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, random};
use rnic_kernel::prelude::*;
use rnic_messages::host::{HostSpan, HostWord, WordWrite};
use rnic_messages::read::{ReadShare, share_slots};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Places of a queue pair's requests, counted over all its READs and atomics.
const SLOTS: usize = 16;

/// An atomic, from its request to its result.
#[derive(Clone, Debug)]
struct Atomic {
    number: usize,
    generation: u64,
    slot: u64,
    address: u64,
    is_compare: bool,
    operand: u64,
    compare: u64,
}

impl Atomic {
    /// New value of the word; `None` if it is not written.
    fn change(&self, word: u64) -> Option<u64> {
        match self.is_compare {
            true => (word == self.compare).then_some(self.operand),
            false => Some(word.wrapping_add(self.operand)),
        }
    }
}

#[derive(Default)]
struct Pair {
    share: ReadShare,
    jobs: usize,
    waiting: VecDeque<Atomic>,
    /// Cycles in which the atomics without a result were released.
    released: VecDeque<u64>,
    /// Cycle in which the host finished the last one.
    ended: u64,
}

/// What the host did for an atomic.
struct Busy {
    begun: u64,
    /// Cycle in which the word arrived, or the write was done.
    ended: Option<u64>,
    /// Value that was read; `None` if the read failed.
    word: Option<u64>,
    /// Value that was written, and whether the write succeeded.
    written: Option<(u64, bool)>,
}

/// A read or a write at the host.
struct Access {
    due: u64,
    address: u64,
    data: u64,
    fails: bool,
}

struct World {
    bench: Bench<Atomics>,
    random: Random,
    jobs: Source<AtomicRequest>,
    /// Numbers of the atomics in the source.
    offered: VecDeque<usize>,
    releases: Source<AtomicRelease>,
    reads: Sink<HostSpan>,
    writes: Sink<WordWrite>,
    results: Sink<AtomicResult>,
    memory: HashMap<u64, u64>,
    pairs: BTreeMap<u16, Pair>,
    /// For each word the atomics whose result has not been taken, the oldest first.
    busy: HashMap<u64, VecDeque<Busy>>,
    reading: VecDeque<Access>,
    writing: VecDeque<Access>,
    /// Least and greatest latency of the host, in cycles.
    latency: (u64, u64),
    fails: f64,
    cycle: u64,
    next: usize,
    /// No atomic is COMPARE_SWAP.
    adds_only: bool,
    /// Atomics in the block, with the cycle in which they entered.
    inside: HashMap<usize, u64>,
    /// Values of `entered`, each with its cycle and the atomics in the block.
    marks: VecDeque<(u64, u64, Vec<usize>)>,
    /// Cycle and queue pair of each result.
    done: Vec<(u64, u16)>,
    failed: usize,
    stayed: usize,
    crowd: usize,
}

impl World {
    fn new(stalls: Stalls, latency: (u64, u64), in_lock_step: bool) -> World {
        let bench = Bench::clocked(Atomics::default(), |block| &mut block.clock);
        let mut world = World {
            bench: if in_lock_step { bench.in_lock_step() } else { bench },
            random: random(),
            jobs: Source::of_tokens([], stalls),
            offered: VecDeque::new(),
            releases: Source::of_tokens([], stalls),
            reads: Sink::new(stalls),
            writes: Sink::new(stalls),
            results: Sink::new(stalls),
            memory: HashMap::new(),
            pairs: BTreeMap::new(),
            busy: HashMap::new(),
            reading: VecDeque::new(),
            writing: VecDeque::new(),
            latency,
            fails: 0.0,
            adds_only: false,
            cycle: 0,
            next: 0,
            inside: HashMap::new(),
            marks: VecDeque::new(),
            done: Vec::new(),
            failed: 0,
            stayed: 0,
            crowd: 0,
        };
        (0..1100).for_each(|_| world.step());
        world
    }

    /// Gives a queue pair; new ones have shares of READ slots of all sizes.
    fn pair(pairs: &mut BTreeMap<u16, Pair>, queue_pair: u16) -> &mut Pair {
        let number = pairs.len() as u64;
        let share = ReadShare { unit: bits(4 * number), size: bits(1 + number % 3) };
        pairs.entry(queue_pair).or_insert_with(|| Pair { share, ..Pair::default() })
    }

    /// READ slots of a queue pair.
    fn slots(&mut self, queue_pair: u16) -> usize {
        share_slots(Self::pair(&mut self.pairs, queue_pair).share).to_u64() as usize
    }

    fn job(&mut self, queue_pair: u16, address: u64) {
        let word = self.memory.get(&address).copied().unwrap_or_default();
        let random = &mut self.random;
        let pair = Self::pair(&mut self.pairs, queue_pair);
        let atomic = Atomic {
            number: self.next,
            generation: random.random_range(0..256),
            slot: (pair.jobs % SLOTS) as u64,
            address,
            is_compare: random.random::<bool>() && !self.adds_only,
            operand: if random.random() { random.random_range(0..3) } else { random.random() },
            compare: if random.random() { word } else { random.random_range(0..3) },
        };
        self.next += 1;
        self.offered.push_back(atomic.number);
        self.jobs.push(AtomicRequest {
            queue_pair: bits(queue_pair.into()),
            generation: bits(atomic.generation),
            slot: bits(atomic.slot),
            share: pair.share,
            address: bits(address),
            operands: AtomicOperands {
                is_compare: atomic.is_compare,
                operand: bits(atomic.operand),
                compare: bits(atomic.compare),
            },
        });
        pair.jobs += 1;
        pair.waiting.push_back(atomic);
    }

    fn release(&mut self, queue_pair: u16) {
        let pair = Self::pair(&mut self.pairs, queue_pair);
        if pair.released.len() < pair.waiting.len() {
            pair.released.push_back(self.cycle);
            self.releases.push(AtomicRelease { queue_pair: bits(queue_pair.into()) });
        }
    }

    /// Requests that have no result yet.
    fn waiting(&self, queue_pair: u16) -> usize {
        self.pairs.get(&queue_pair).map_or(0, |pair| pair.waiting.len())
    }

    fn access(&mut self, address: u64, data: u64, is_write: bool) -> Access {
        let line = if is_write { &self.writing } else { &self.reading };
        let after = line.back().map_or(0, |before| before.due + 1);
        let due = (self.cycle + self.random.random_range(self.latency.0..=self.latency.1)).max(after);
        Access { due, address, data, fails: self.random.random_bool(self.fails) }
    }

    fn step(&mut self) {
        let (block, random, cycle) = (&mut self.bench.block, &mut self.random, self.cycle);
        self.jobs.drive(&mut block.request, random);
        self.releases.drive(&mut block.release, random);
        self.reads.drive(&mut block.read, random);
        self.writes.drive(&mut block.write, random);
        self.results.drive(&mut block.result, random);
        let is_due = |line: &VecDeque<Access>| line.front().is_some_and(|access| access.due <= cycle);
        let read = is_due(&self.reading).then(|| self.reading.pop_front().expect("it is there"));
        block.word.valid.next = read.is_some();
        if let Some(read) = read {
            self.busy.get_mut(&read.address).and_then(VecDeque::back_mut).expect("it was read").ended =
                Some(cycle);
            let word = if read.fails { random.random() } else { read.data };
            block.word.value.next = HostWord { data: bits(word), error: read.fails };
        }
        let write = is_due(&self.writing).then(|| self.writing.pop_front().expect("it is there"));
        block.write_done.next = write.is_some();
        block.write_failed.next = write.as_ref().is_some_and(|write| write.fails);
        if let Some(write) = write {
            self.busy.get_mut(&write.address).and_then(VecDeque::back_mut).expect("it was read").ended =
                Some(cycle);
            if !write.fails {
                self.memory.insert(write.address, write.data);
            }
        }
        self.bench.settle();
        let block = &self.bench.block;
        if self.jobs.sample(&block.request) {
            self.inside.insert(self.offered.pop_front().expect("it was offered"), cycle);
        }
        self.releases.sample(&block.release);
        let read = self.reads.sample(&block.read);
        let write = self.writes.sample(&block.write);
        let result = self.results.sample(&block.result);
        let in_flight = block.in_flight.val();
        // A result that is offered has left.
        if block.result.valid.val() {
            let number = block.result.beat.val().queue_pair.to_u64() as u16;
            self.inside.remove(&self.pairs[&number].waiting.front().expect("it has a job").number);
        }
        if let Some(read) = read {
            let address = read.address.to_u64();
            assert_eq!(read.length, 8);
            let access = self.access(address, self.memory.get(&address).copied().unwrap_or_default(), false);
            let word = (!access.fails).then_some(access.data);
            let busy = Busy { begun: cycle, ended: None, word, written: None };
            let line = self.busy.entry(address).or_default();
            let is_free = line.back().is_none_or(|before| before.ended.is_some());
            assert!(is_free, "one atomic at a time at {address:#x}");
            line.push_back(busy);
            self.crowd = self.crowd.max(self.busy.len());
            self.reading.push_back(access);
        }
        if let Some(write) = write {
            let access = self.access(write.address.to_u64(), write.data.to_u64(), true);
            let busy = self.busy.get_mut(&access.address).and_then(VecDeque::back_mut).expect("it was read");
            assert!(busy.word.is_some() && busy.written.is_none(), "what was read is written once");
            busy.ended = None;
            busy.written = Some((access.data, access.fails));
            self.writing.push_back(access);
        }
        if let Some(result) = result {
            self.take_result(result);
        }
        self.take_passage(in_flight.entered.to_u64(), in_flight.left.to_u64());
        self.bench.tick();
        self.cycle += 1;
    }

    fn take_result(&mut self, result: AtomicResult) {
        let number = result.queue_pair.to_u64() as u16;
        let pair = self.pairs.get_mut(&number).expect("it has jobs");
        let atomic = pair.waiting.pop_front().expect("it has a job");
        let released = pair.released.pop_front().expect("it was released");
        assert_eq!((result.generation, result.slot), (bits(atomic.generation), bits(atomic.slot)));
        let line = self.busy.get_mut(&atomic.address).expect("its word was read");
        let busy = line.pop_front().expect("its word was read");
        if line.is_empty() {
            self.busy.remove(&atomic.address);
        }
        assert!(busy.begun > released && busy.begun > pair.ended, "it began in its turn");
        pair.ended = busy.ended.expect("the host has done it");
        let expected = busy.word.and_then(|word| atomic.change(word));
        assert_eq!(busy.written.map(|written| written.0), expected, "{atomic:?}");
        let has_failed = busy.word.is_none() || busy.written.is_some_and(|written| written.1);
        assert_eq!(result.has_failed, has_failed);
        if let Some(word) = busy.word {
            assert_eq!(result.original, word, "{atomic:?}");
        }
        self.failed += usize::from(has_failed);
        self.stayed += usize::from(busy.word.is_some() && expected.is_none());
        self.done.push((self.cycle, number));
    }

    /// What was in the block at a value of `entered` has left when `left` has reached that value.
    fn take_passage(&mut self, entered: u64, left: u64) {
        while let Some((_, mark, there)) = self.marks.front() {
            if left.wrapping_sub(*mark) & 0x8000 != 0 {
                break;
            }
            assert!(there.iter().all(|number| !self.inside.contains_key(number)), "it is still there");
            self.marks.pop_front();
        }
        if self.random.random_bool(0.05) {
            let is_settled = |&(_, &came): &(&usize, &u64)| came + 8 < self.cycle;
            let there = self.inside.iter().filter(is_settled).map(|(&number, _)| number).collect();
            self.marks.push_back((self.cycle, entered, there));
        }
    }

    fn comes_to_rest(&mut self) {
        let end = self.cycle + 40_000;
        let is_at_rest = |world: &World| {
            world.jobs.is_done()
                && world.releases.is_done()
                && world.pairs.values().all(|pair| pair.waiting.is_empty())
        };
        while !is_at_rest(self) {
            let numbers: Vec<u16> = self.pairs.keys().copied().collect();
            numbers.iter().for_each(|&number| self.release(number));
            self.step();
            assert!(self.cycle < end, "all atomics complete");
        }
        (0..10).for_each(|_| self.step());
        let in_flight = self.bench.block.in_flight.val();
        assert_eq!(in_flight.entered, in_flight.left);
        assert!(self.busy.is_empty() && self.inside.is_empty());
    }
}

#[test]
fn words_change_one_atomic_after_the_other() {
    let (mut done, mut failed, mut stayed) = (0, 0, 0);
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls, (5, 60), true);
        let queue_pairs: Vec<u16> = (0..12).map(|index| index * 93).collect();
        // Few words: some of them share a lock.
        let words: Vec<u64> =
            (0..6).map(|index| 0x5000_0000_0000 + index * 8).chain([0x1000, 0x8, 0x1008]).collect();
        let locks: HashSet<u64> = words.iter().map(|&word| lock_of(bits(word)).to_u64()).collect();
        assert!(locks.len() < words.len());
        for round in 0..2 {
            world.fails = if round == 0 { 0.0 } else { 0.05 };
            for _ in 0..2_500 {
                let number = queue_pairs[world.random.random_range(0..queue_pairs.len())];
                if world.random.random_bool(0.06) && world.waiting(number) < world.slots(number) + 3 {
                    let word = words[world.random.random_range(0..words.len())];
                    world.job(number, word);
                }
                if world.random.random_bool(0.06) {
                    world.release(number);
                }
                world.step();
            }
            world.comes_to_rest();
        }
        done += world.done.len();
        failed += world.failed;
        stayed += world.stayed;
    }
    println!("{done} atomics, {failed} failed, {stayed} words stayed");
    assert!(done > 800 && failed > 20 && stayed > 50, "{done} atomics, {failed} failed, {stayed} stayed");
}

/// Paged regions reach the words of other regions at addresses that have only the offset in a page in common.
#[test]
fn a_word_has_one_lock_through_any_pages() {
    let place = 0x7f8;
    let locks: HashSet<u64> = [0x1_2345_6000, 1 << 63 | 5 << 12, 1 << 63 | 9 << 58 | 77 << 21 | 3 << 12]
        .map(|page: u64| lock_of(bits(page | place)).to_u64())
        .into();
    assert_eq!(locks.len(), 1);
    assert_ne!(lock_of(bits(place)), lock_of(bits(place + 8)));
}

/// The limit of design 8: 25 cycles each, with a host whose reads and writes take a microsecond, 250 cycles.
#[test]
fn sixty_four_queue_pairs_do_an_atomic_in_less_than_25_cycles() {
    let mut world = World::new(Stalls::None, (250, 260), false);
    let queue_pairs: Vec<u16> = (0..64).map(|index| index * 16 + 3).collect();
    let begin = world.cycle;
    let mut word = 0x1234_5678;
    while world.done.len() < 2_000 {
        for &number in &queue_pairs {
            if world.waiting(number) < 2 {
                word += 8;
                world.job(number, word);
                world.release(number);
            }
        }
        world.step();
        assert!(world.marks.front().is_none_or(|mark| mark.0 + 3_000 > world.cycle), "counts are reached");
    }
    let cycles = (world.cycle - begin) as f64 / 2_000.0;
    println!("{cycles:.1} cycles each, {} under way", world.crowd);
    assert!(cycles < 15.0, "{cycles:.1} cycles each");
}

/// A contended word does not delay atomics on other words.
#[test]
fn a_contended_word_does_not_delay_others() {
    let mut world = World::new(Stalls::None, (250, 260), false);
    let crowd: Vec<u16> = (0..64).collect();
    for _ in 0..25_000 {
        for &number in &crowd {
            if world.waiting(number) < 2 {
                world.job(number, 0x7000);
                world.release(number);
            }
        }
        if world.waiting(1000) == 0 {
            world.job(1000, 0x7008);
            world.release(1000);
        }
        world.step();
    }
    let alone = world.done.iter().filter(|done| done.1 == 1000).count();
    let served: HashSet<u16> = world.done.iter().map(|done| done.1).collect();
    println!(
        "{alone} beside {} on the word that is wanted, of {} queue pairs",
        world.done.len() - alone,
        served.len() - 1
    );
    assert!(alone > 20, "{alone}");
    assert!(world.done.len() - alone > 30, "one after the other");
    // No queue pair has two turns before all others had one.
    let mut turns: HashMap<u16, usize> = HashMap::new();
    for done in world.done.iter().filter(|done| done.1 != 1000) {
        *turns.entry(done.1).or_default() += 1;
    }
    assert!(turns.values().all(|&count| count == 1), "{turns:?}");
}

/// Latencies in the header of the block.
#[test]
fn latency_is_as_the_header_says() {
    let mut world = World::new(Stalls::None, (20, 20), false);
    // One that always writes.
    world.adds_only = true;
    world.job(5, 0x10);
    (0..10).for_each(|_| world.step());
    world.release(5);
    let begin = world.cycle;
    while world.reads.received.is_empty() {
        world.step();
    }
    let asked = world.cycle - 1;
    while world.results.received.is_empty() {
        world.step();
    }
    let ends = world.cycle - 1;
    println!("{} to read, {} from read to result with 20 cycles a way", asked - begin, ends - asked);
    assert_eq!((asked - begin, ends - asked), (7, 20 + 3 + 20 + 4));
}
