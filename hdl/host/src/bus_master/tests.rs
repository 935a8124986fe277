use super::*;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, random};
use std::collections::VecDeque;

const TAG: usize = 4;
/// Words of the write with a number.
fn words_of(write: u64) -> u64 {
    1 + write % 3
}

/// The block between a card that has requests and a host that answers them late, if at all.
struct World {
    bench: Bench<BusMaster<64, TAG>>,
    random: Random,
    reads: Source<HostRead<TAG>>,
    writes: Source<HostWrite>,
    words: Source<WriteWord<64>>,
    interrupts: Source<Bits<VECTOR_BITS>>,
    read_sink: Sink<HostRead<TAG>>,
    write_sink: Sink<HostWrite>,
    word_sink: Sink<WriteWord<64>>,
    interrupt_sink: Sink<Bits<VECTOR_BITS>>,
    /// Reads and writes that the card has asked for.
    asked: [u64; 2],
    /// Writes whose last word the host has taken.
    whole_writes: u64,
    answered: [u64; 2],
    /// The host answers nothing.
    is_silent: bool,
    enabled: VecDeque<bool>,
    /// What was offered in the last cycle and not taken: a read, a write, an interrupt.
    held: [bool; 3],
    /// Cycles for which nothing may begin, since the block was cut off.
    quiet: u32,
    cut_offs: u32,
}

const COUNT: u64 = 500;
/// Reads that the card has in flight at most, and writes whose words it keeps.
const READS: u64 = 1 << TAG;
const WRITES: u64 = 1 << WORDS;

impl World {
    fn new(stalls: Stalls) -> World {
        let block = BusMaster::default();
        let word = |index| {
            (0..words_of(index)).map(move |word| WriteWord {
                data: bits(index << 2 | word),
                last: word + 1 == words_of(index),
            })
        };
        World {
            bench: Bench::clocked(block, |block| &mut block.clock).in_lock_step(),
            random: random(),
            reads: Source::of_tokens([], stalls),
            writes: Source::of_tokens([], stalls),
            asked: [0; 2],
            words: Source::of_tokens((0..COUNT).flat_map(word), stalls),
            interrupts: Source::of_tokens((0..COUNT).map(|index| bits(index % 64)), stalls),
            read_sink: Sink::new(stalls),
            write_sink: Sink::new(stalls),
            word_sink: Sink::new(stalls),
            interrupt_sink: Sink::new(stalls),
            whole_writes: 0,
            answered: [0; 2],
            is_silent: false,
            enabled: VecDeque::from([false; OPENING_CYCLES + 1]),
            held: [false; 3],
            quiet: 0,
            cut_offs: 0,
        }
    }

    /// Reads and writes that the host has taken and not answered.
    fn owed(&self) -> u64 {
        let taken = self.read_sink.received.len() + self.write_sink.received.len();
        taken as u64 - self.answered[0] - self.answered[1]
    }

    fn cycle(&mut self, enable: bool) {
        let (block, random) = (&mut self.bench.block, &mut self.random);
        if self.asked[0] < COUNT.min(self.answered[0] + READS) {
            let index = self.asked[0];
            self.reads.push(HostRead { address: bits(index), length: bits(64), tag: bits(index % READS) });
            self.asked[0] += 1;
        }
        if self.asked[1] < COUNT.min(self.whole_writes + WRITES) {
            let index = self.asked[1];
            self.writes.push(HostWrite { address: bits(index), length: bits(8 * words_of(index)) });
            self.asked[1] += 1;
        }
        block.enable.next = enable;
        self.reads.drive(&mut block.read, random);
        self.writes.drive(&mut block.write, random);
        self.words.drive(&mut block.word, random);
        self.interrupts.drive(&mut block.interrupt, random);
        self.read_sink.drive(&mut block.to_host, random);
        self.write_sink.drive(&mut block.request, random);
        self.word_sink.drive(&mut block.words, random);
        self.interrupt_sink.drive(&mut block.irq, random);
        let may_answer = [self.read_sink.received.len() as u64, self.whole_writes];
        let ends = [0, 1]
            .map(|kind| !self.is_silent && self.answered[kind] < may_answer[kind] && random.random_bool(0.6));
        block.read_ends.next = ends[0];
        block.write_ends.next = ends[1];
        self.bench.settle();

        let block = &self.bench.block;
        let offers = [block.to_host.valid.val(), block.request.valid.val(), block.irq.valid.val()];
        let begins = [0, 1, 2].map(|kind| offers[kind] && !self.held[kind]);
        if begins.contains(&true) {
            let since = self.enabled.iter().take(OPENING_CYCLES);
            assert!(since.clone().all(|&enabled| enabled), "{begins:?} begins: {since:?}");
        }
        if block.is_cut_off.val() {
            assert_eq!((self.owed(), self.held), (0, [false; 3]), "cut off from a host that owes something");
            self.cut_offs += 1;
            self.quiet = 3;
        }
        assert!(self.quiet == 0 || !offers.contains(&true), "{offers:?} right after it was cut off");
        self.quiet = self.quiet.saturating_sub(1);

        self.reads.sample(&block.read);
        self.writes.sample(&block.write);
        self.words.sample(&block.word);
        self.interrupts.sample(&block.interrupt);
        let requested = self.write_sink.received.len() as u64;
        if let Some(word) = self.word_sink.sample(&block.words) {
            assert!(self.whole_writes < requested, "a word is ahead of its request");
            self.whole_writes += u64::from(word.last);
        }
        let taken = [
            self.read_sink.sample(&block.to_host).is_some(),
            self.write_sink.sample(&block.request).is_some(),
            self.interrupt_sink.sample(&block.irq).is_some(),
        ];
        self.held = [0, 1, 2].map(|kind| offers[kind] && !taken[kind]);
        for kind in 0..2 {
            self.answered[kind] += u64::from(ends[kind]);
        }
        self.enabled.push_front(enable);
        self.enabled.pop_back();
        self.bench.tick();
    }

    fn is_done(&self) -> bool {
        self.interrupt_sink.received.len() as u64 == COUNT
            && self.read_sink.received.len() as u64 == COUNT
            && self.whole_writes == COUNT
    }
}

#[test]
fn nothing_is_lost_or_begun_while_the_right_comes_and_goes() {
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        let (mut enable, mut left, mut cycles) = (false, 10, 0);
        while !world.is_done() {
            world.cycle(enable);
            left -= 1;
            if left == 0 {
                enable = !enable;
                // Also for times that are shorter than it takes to open.
                left = *[1, 3, 4, 5, 40, 200].get(world.random.random_range(0..6)).unwrap();
            }
            cycles += 1;
            assert!(cycles < 30_000, "what waits is lost: {stalls:?}");
        }
        (0..200).for_each(|_| world.cycle(false));
        assert_eq!(world.owed(), 0);
        assert!(world.cut_offs > 20, "{} times", world.cut_offs);
        assert!(world.read_sink.received.iter().map(|read| read.address.to_u64()).eq(0..COUNT));
        assert!(world.write_sink.received.iter().map(|write| write.address.to_u64()).eq(0..COUNT));
        assert!(
            world
                .interrupt_sink
                .received
                .iter()
                .map(|vector| vector.to_u64())
                .eq((0..COUNT).map(|index| index % 64))
        );
        let words = (0..COUNT).flat_map(|write| (0..words_of(write)).map(move |word| write << 2 | word));
        assert!(world.word_sink.received.iter().map(|word| word.data.to_u64()).eq(words));
    }
}

#[test]
fn a_write_that_is_requested_gets_its_words() {
    let mut world = World::new(Stalls::None);
    (0..20).for_each(|_| world.cycle(true));
    (0..20).for_each(|_| world.cycle(false));
    assert!(world.whole_writes > 0);
    assert_eq!(world.whole_writes, world.write_sink.received.len() as u64);
    assert!(!world.is_done());
}

#[test]
fn a_host_that_owes_an_answer_keeps_the_card_from_being_cut_off() {
    let mut world = World::new(Stalls::None);
    world.is_silent = true;
    (0..OPENING_CYCLES + 2).for_each(|_| world.cycle(true));
    assert!(world.owed() > 0);
    world.cut_offs = 0;
    (0..100).for_each(|_| world.cycle(false));
    assert_eq!(world.cut_offs, 0, "{} owed", world.owed());
    world.is_silent = false;
    (0..150).for_each(|_| world.cycle(false));
    assert!(world.cut_offs > 0);
    // A reset forgets what the host owes.
    world.is_silent = true;
    (0..10).for_each(|_| world.cycle(true));
    world.bench.block.reset.next = true;
    world.bench.block.enable.next = false;
    world.bench.tick();
    world.bench.block.reset.next = false;
    (0..4).for_each(|_| world.bench.tick());
    assert!(world.bench.block.is_cut_off.val());
}

#[test]
fn every_datapath_generates() {
    crate::testing::generates(BusMaster::<64, 8>::default());
    crate::testing::generates(BusMaster::<512, 8>::default());
}
