//! Park by itself, in lock step with its Verilog, between models of admission, of the prefetch and of scatter. Each packet
//! has its number in its PSN, and each WQE its ring and index in its data, so order and pairing are seen at the exit.
use super::*;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Stalls, random};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// Two rings of queue pairs and the ring of an SRQ.
const RINGS: [u64; 4] = [0x000, 0x1a5, 0x3ff, 0x43f];
const GENERATION: u64 = 7;
/// Cycles of the sweep after a reset.
const SWEEP_CYCLES: usize = 2_050;
/// Cycles from a request to its answer.
const ANSWER_CYCLES: u64 = 6;

/// The prefetch's side of a ring.
#[derive(Default)]
struct Ring {
    /// Free-running counts of WQEs given, here, and being read.
    given: u64,
    here: u64,
    reading: u64,
    /// The last answer was without a WQE.
    is_shut: bool,
    /// Packets that were admitted and not dropped, and WQEs that those that passed have taken.
    expected: VecDeque<(u64, Sort)>,
    taken: u64,
}

/// What a packet is.
#[derive(Clone, Copy, PartialEq)]
enum Sort {
    Plain,
    Atomic,
    /// It takes a WQE.
    Taking,
    /// It takes one, and ends a key.
    Ending,
    /// It ends a key, and its message has a WQE.
    EndingLast,
    /// Admission has dropped it.
    Dropped,
}

struct Machine {
    bench: Bench<Park>,
    random: Random,
    cycle: u64,
    rings: [Ring; RINGS.len()],
    /// The packet that admission has begun: cycle in which it is offered, ring, and sort.
    begun: Option<(u64, usize, Sort)>,
    /// Packets that were dropped and have not passed, with their ring.
    dropped: VecDeque<(u64, usize)>,
    number: u64,
    /// Answers, and from when they are offered.
    answers: VecDeque<(u64, ReceiveWqe)>,
    /// Reads of WQEs: ring, count, and when they complete.
    reads: Vec<(usize, u64, u64)>,
    wakes: VecDeque<usize>,
    passed: Sink<Admitted>,
    operands: Sink<AtomicOperands>,
    /// Numbers of the atomics that passed.
    atomics: VecDeque<u64>,
    asked_at: u64,
    host_cycles: u64,
    /// WQEs that a read brings, and least number of cycles from one packet to the next at the exit.
    read_counts: RangeInclusive<u64>,
    scatter_cycles: u64,
    /// Cycle in which each packet was offered.
    offered: Vec<u64>,
    /// Whether its ring had its share then.
    exceeds: Vec<bool>,
    /// Cycles that scatter takes for a packet that ends a key, and in which it may take the next packet.
    ending_cycles: u64,
    free_at: u64,
    /// Packets, with the cycle in which each passed, its ring, and its cycles from `admitted` to `passed`.
    order: Vec<(u64, usize, u64)>,
}

/// Cycles that a packet takes which is not parked, even if scatter is busy and others ask.
const SOON: u64 = 30;

fn number_of(packet: &Admitted) -> u64 {
    packet.psn.to_u64()
}

impl Machine {
    fn new(stalls: Stalls) -> Self {
        let mut machine = Machine {
            bench: Bench::clocked(Park::default(), |block| &mut block.clock).in_lock_step(),
            random: random(),
            cycle: 0,
            rings: Default::default(),
            begun: None,
            dropped: VecDeque::new(),
            number: 0,
            answers: VecDeque::new(),
            reads: Vec::new(),
            wakes: VecDeque::new(),
            passed: Sink::new(stalls),
            operands: Sink::new(stalls),
            atomics: VecDeque::new(),
            asked_at: 0,
            host_cycles: 100,
            read_counts: 1..=4,
            scatter_cycles: 1,
            ending_cycles: 1,
            free_at: 0,
            offered: Vec::new(),
            exceeds: Vec::new(),
            order: Vec::new(),
        };
        (0..SWEEP_CYCLES).for_each(|_| machine.step(None));
        machine
    }

    fn step(&mut self, begins: Option<(usize, Sort)>) {
        // Admission hands a packet on two cycles after it was taken.
        let may_begin = self.begun.is_none() && self.bench.block.admitted.ready.val();
        if let Some((ring, sort)) = begins.filter(|_| may_begin) {
            self.begun = Some((self.cycle + 2, ring, sort));
            if sort == Sort::Dropped {
                self.dropped.push_back((self.number, ring));
            } else {
                self.rings[ring].expected.push_back((self.number, sort));
            }
            self.number += 1;
        }
        // Before it is offered its ring is known.
        if let Some((_, ring, _)) = self.begun.filter(|begun| begun.0 == self.cycle + 1) {
            self.bench.block.next_ring.next = bits(RINGS[ring]);
        }
        let offered = self.begun.filter(|begun| begun.0 == self.cycle);
        let block = &mut self.bench.block;
        block.admitted.valid.next = offered.is_some();
        if let Some((_, ring, sort)) = offered {
            self.begun = None;
            self.offered.push(self.cycle);
            let number = self.number - 1;
            block.admitted.beat.next = Admission {
                packet: Admitted {
                    decision: if sort == Sort::Dropped { Decision::Drop } else { Decision::Execute },
                    psn: bits(number),
                    takes_wqe: matches!(sort, Sort::Taking | Sort::Ending),
                    with_invalidate: matches!(sort, Sort::Ending | Sort::EndingLast | Sort::Dropped),
                    is_atomic: sort == Sort::Atomic,
                    generation: bits(GENERATION),
                    ..Admitted::default()
                },
                ring: bits(RINGS[ring]),
                operands: AtomicOperands { operand: bits(number), ..AtomicOperands::default() },
            };
        }
        let cycle = self.cycle;
        let ready = self.answers.iter().filter(|answer| answer.0 <= cycle).count();
        block.answer.valid.next = ready > 0;
        block.answer_count.next = bits(ready as u64);
        block.answer.beat.next = self.answers.front().map_or(ReceiveWqe::default(), |answer| answer.1);
        let takes = self.answers.len() < 8 && cycle >= self.asked_at + 2;
        block.request.ready.next = takes;
        let woken = self.wakes.pop_front();
        block.wakes.next = woken.is_some();
        block.woken.next = bits(woken.map_or(0, |ring| RINGS[ring]));
        self.passed.drive(&mut block.passed, &mut self.random);
        block.passed.ready.next &= cycle >= self.free_at;
        self.operands.drive(&mut block.operands, &mut self.random);
        // Scatter takes the WQE with its packet.
        block.wqe.ready.next = block.passed.ready.next;
        self.bench.settle();

        let block = &self.bench.block;
        self.exceeds.extend(offered.map(|_| block.exceeds_share.val()));
        let wqe = block.wqe.valid.val().then(|| block.wqe.beat.val());
        let passed = self.passed.sample(&block.passed);
        let operands = self.operands.sample(&block.operands);
        let takes_answer = ready > 0 && block.answer.ready.val();
        let request = (takes && block.request.valid.val()).then(|| block.request.beat.val());
        self.bench.tick();
        if let Some(packet) = passed {
            let ends_key = packet.with_invalidate && packet.decision != Decision::Drop;
            self.free_at = cycle + if ends_key { self.ending_cycles } else { self.scatter_cycles };
            self.check(&packet, wqe);
        }
        if let Some(operands) = operands {
            assert_eq!(
                Some(operands.operand.to_u64()),
                self.atomics.pop_front(),
                "operands follow their atomic"
            );
        }
        if takes_answer {
            self.answers.pop_front();
        }
        if let Some(request) = request {
            self.answer(&request);
        }
        let (due, left): (Vec<_>, _) = self.reads.iter().partition(|read| read.2 <= cycle);
        self.reads = left;
        for (ring, count, _) in due {
            self.rings[ring].here += count;
            self.wakes.push_back(ring);
        }
        self.cycle += 1;
    }

    /// Answers as the prefetch does; a WQE that is missing is read, with some more.
    fn answer(&mut self, request: &ReceiveWqeRequest) {
        let place = RINGS.iter().position(|ring| bits(*ring) == request.ring).expect("a ring");
        assert_eq!(request.generation, bits(GENERATION));
        self.asked_at = self.cycle;
        let ring = &mut self.rings[place];
        let is_held = ring.is_shut && !request.restarts;
        let is_absent = is_held || ring.given == ring.here;
        if is_absent && !is_held && ring.reading == ring.here {
            let count = self.random.random_range(self.read_counts.clone());
            ring.reading += count;
            let due = self.cycle + self.random.random_range(self.host_cycles / 2..=self.host_cycles);
            self.reads.push((place, count, due));
        }
        ring.is_shut = is_absent;
        let data = bits(RINGS[place] << 32 | ring.given);
        ring.given += u64::from(!is_absent);
        let wqe = ReceiveWqe { data, is_absent, ..ReceiveWqe::default() };
        self.answers.push_back((self.cycle + ANSWER_CYCLES, wqe));
    }

    fn check(&mut self, packet: &Admitted, wqe: Option<ReceiveWqe>) {
        let number = number_of(packet);
        let latency = self.cycle - self.offered[number as usize];
        if self.dropped.front().is_some_and(|dropped| dropped.0 == number) {
            let (_, place) = self.dropped.pop_front().unwrap();
            assert!(wqe.is_none());
            self.order.push((self.cycle, place, latency));
            return;
        }
        let place =
            self.rings.iter().position(|ring| ring.expected.front().is_some_and(|next| next.0 == number));
        let place =
            place.unwrap_or_else(|| panic!("{number} passed before an older one of its ring, or twice"));
        let ring = &mut self.rings[place];
        let (_, sort) = ring.expected.pop_front().unwrap();
        assert_eq!(wqe.is_some(), matches!(sort, Sort::Taking | Sort::Ending), "{number}");
        if let Some(wqe) = wqe {
            assert!(!wqe.is_absent);
            assert_eq!(wqe.data, bits(RINGS[place] << 32 | ring.taken), "{number} has the WQE of another");
            ring.taken += 1;
        }
        if sort == Sort::Atomic {
            self.atomics.push_back(number);
        }
        self.order.push((self.cycle, place, latency));
    }

    /// Waits until all packets have passed.
    fn settle(&mut self) {
        let from = self.cycle;
        while self.begun.is_some()
            || !self.dropped.is_empty()
            || self.rings.iter().any(|ring| !ring.expected.is_empty())
        {
            self.step(None);
            assert!(self.cycle < from + 60_000, "packets are lost");
        }
        (0..200).for_each(|_| self.step(None));
        assert!(self.atomics.is_empty());
        assert!(self.rings.iter().all(|ring| ring.given == ring.taken), "a WQE was given to nobody");
    }

    /// Begins a packet as soon as possible.
    fn admit(&mut self, ring: usize, sort: Sort) {
        let number = self.number;
        while self.number == number {
            self.step(Some((ring, sort)));
        }
    }
}

/// Rings with and without WQEs, at all rates; more packets than there are entries, several times.
#[test]
fn packets_of_a_ring_keep_their_order_and_each_has_its_own_wqe() {
    for stalls in Stalls::ALL {
        let mut machine = Machine::new(stalls);
        for turn in 0..12_600u64 {
            let place = machine.random.random_range(0..RINGS.len());
            // When packets are rare, rings are unparked and parked again.
            let gap = [1, 6, 20][turn as usize / 700 % 3];
            let begins = machine.random.random_ratio(1, gap);
            // Some rings have several WQEs here, at times.
            if begins && machine.random.random_ratio(1, 30) && place % 2 == (turn / 1_000 % 2) as usize {
                let ring = &mut machine.rings[place];
                if ring.reading == ring.here {
                    (ring.here, ring.reading) = (ring.here + 12, ring.reading + 12);
                    machine.wakes.push_back(place);
                }
            }
            machine.host_cycles = if turn / 2_000 % 2 == 0 { 40 } else { 250 };
            // Of one ring in four, packets end keys.
            let ending = if place == 2 { [Sort::Ending, Sort::EndingLast] } else { [Sort::Taking; 2] };
            let sorts =
                [ending[0], ending[1], Sort::Taking, Sort::Taking, Sort::Plain, Sort::Atomic, Sort::Dropped];
            let sort = sorts[machine.random.random_range(0..sorts.len())];
            machine.step(begins.then_some((place, sort)));
        }
        machine.settle();
        let Machine { number, cycle, .. } = machine;
        let late = machine.order.iter().filter(|(_, _, latency)| *latency > SOON).count();
        let changes =
            machine.order.windows(2).filter(|pair| (pair[0].2 > SOON) != (pair[1].2 > SOON)).count();
        println!("{number} packets in {cycle} cycles, {late} of them late, {changes} changes");
        assert!(number > 1_024 && late > 200 && changes > 100, "{number} packets, {late}, {changes}");
    }
}

#[test]
fn packets_of_other_rings_pass_one_that_waits() {
    let mut machine = Machine::new(Stalls::None);
    machine.host_cycles = 2_000;
    for round in 0..60 {
        machine.admit(1, if round == 0 { Sort::Taking } else { Sort::Plain });
        machine.admit(0, Sort::Plain);
        machine.admit(2, Sort::Plain);
    }
    let waits = machine.reads[0].2;
    assert!(machine.cycle < waits, "the read has not completed");
    assert!(machine.order.len() >= 116 && machine.order.iter().all(|(_, place, _)| *place != 1));
    machine.settle();
    let (first, ..) = machine.order.iter().find(|(_, place, _)| *place == 1).copied().unwrap();
    let (last, ..) = machine.order.last().copied().unwrap();
    println!("{} cycles from the read to the first packet, then 60 in {}", first - waits, last - first);
    assert!(first - waits <= 24 && last - first <= 60 * 2 + 8, "{} {}", first - waits, last - first);
}

#[test]
fn a_packet_passes_in_four_cycles_and_one_with_a_wqe_in_ten() {
    let mut machine = Machine::new(Stalls::None);
    (machine.rings[0].here, machine.rings[0].reading) = (100, 100);
    for (sort, latency) in [(Sort::Plain, 4), (Sort::Dropped, 4), (Sort::Taking, ANSWER_CYCLES + 4)] {
        machine.admit(0, sort);
        let from = machine.cycle + 1;
        machine.settle();
        assert_eq!(machine.order.last().unwrap().0 - from, latency);
    }
}

/// One ring waits for its WQEs, and after it a second one: each has its share when it holds as much as is free, and another
/// ring has none. When all have passed, nobody has.
#[test]
fn a_ring_has_its_share_when_as_much_is_parked_as_is_free() {
    let mut machine = Machine::new(Stalls::None);
    machine.host_cycles = 40_000;
    machine.read_counts = 1_000..=1_000;
    let mut held = [0; 2];
    for (place, expected) in [(1, 256), (2, 128)] {
        // What admission has begun is not parked yet.
        let fill = |machine: &mut Machine| {
            machine.admit(place, Sort::Taking);
            (0..SOON).for_each(|_| machine.step(None));
            !*machine.exceeds.last().unwrap()
        };
        while fill(&mut machine) {
            held[place - 1] += 1;
        }
        assert_eq!(held[place - 1], expected, "ring {place}");
        machine.admit(0, Sort::Plain);
        (0..SOON).for_each(|_| machine.step(None));
        assert_eq!((machine.exceeds.last(), machine.order.last().unwrap().1), (Some(&false), 0));
    }
    machine.settle();
    for place in [0, 1, 2] {
        machine.admit(place, Sort::Plain);
        machine.settle();
        assert_eq!(machine.exceeds.last(), Some(&false), "ring {place}");
    }
}

/// One packet waits for its WQE; ten times as many as there are entries come behind it, which admission has dropped.
#[test]
fn packets_that_admission_has_dropped_fill_nothing() {
    let mut machine = Machine::new(Stalls::None);
    machine.host_cycles = 40_000;
    machine.admit(1, Sort::Taking);
    for _ in 0..10 << ENTRY_BITS {
        machine.admit(1, Sort::Dropped);
    }
    (0..SOON).for_each(|_| machine.step(None));
    assert!(machine.cycle < machine.reads[0].2, "the read has not completed");
    assert!(machine.dropped.is_empty() && machine.order.iter().all(|(_, _, latency)| *latency <= SOON));
    machine.settle();
    assert_eq!(machine.order.last().unwrap().1, 1);
}

/// Cycles of five packets from a sender that sends one in 3.4.
const FIVE_CYCLES: u64 = 17;

/// SENDs of one ring come at the rate of their sender. One misses its WQE, and behind it all others are parked; when WQEs are
/// here again, the list is emptied faster than packets come, and the ring is as before.
#[test]
fn a_ring_that_missed_a_wqe_is_unparked_while_packets_come_at_full_rate() {
    const PACKETS: u64 = 3_000;
    let mut machine = Machine::new(Stalls::None);
    machine.read_counts = 2 * PACKETS..=2 * PACKETS;
    machine.scatter_cycles = 3;
    machine.host_cycles = 400;
    let from = machine.cycle;
    let mut missed = 0;
    for number in 0..PACKETS {
        while machine.cycle < from + number * FIVE_CYCLES / 5 {
            machine.step(None);
        }
        machine.admit(0, Sort::Taking);
        missed = missed.max(machine.rings[0].expected.len());
    }
    machine.settle();
    let last_parked = machine.order.iter().rposition(|(_, _, latency)| *latency > SOON).unwrap();
    let passed: Vec<u64> = machine.order.iter().map(|(cycle, ..)| *cycle).collect();
    println!("{missed} waited, {last_parked} came before the ring was unparked");
    for count in [100, 300, 600, 1_000] {
        println!("{:.2} cycles a packet up to {count}", (passed[count] - passed[0]) as f64 / count as f64);
    }
    let latest = machine.order.last().unwrap().2;
    assert!(
        missed > 60 && last_parked < 1_500 && latest <= ANSWER_CYCLES + 3 + 3,
        "{missed} {last_parked}, {latest}"
    );
}

/// Packets of one ring that end keys come as fast as they can, and scatter takes thirty cycles for each; packets of another ring come
/// every ten cycles, and wait for one of them at most. Those of the first pass in their order, one in 65 to 80 cycles or a few more.
#[test]
fn packets_that_end_keys_leave_half_of_the_path_to_others() {
    const ENDING: u64 = 30;
    const COUNT: usize = 50;
    for sort in [Sort::Ending, Sort::EndingLast] {
        let mut machine = Machine::new(Stalls::None);
        (machine.rings[1].here, machine.rings[1].reading) = (1_000, 1_000);
        (machine.scatter_cycles, machine.ending_cycles) = (3, ENDING);
        for round in 0..5 * COUNT {
            let until = machine.cycle + 10;
            machine.admit(0, Sort::Plain);
            if round < COUNT {
                machine.admit(1, sort);
            }
            while machine.cycle < until {
                machine.step(None);
            }
        }
        machine.settle();
        let of = |place: usize| machine.order.iter().filter(move |passed| passed.1 == place);
        let latest = of(0).map(|passed| passed.2).max().unwrap();
        let ends: Vec<u64> = of(1).map(|passed| passed.0).collect();
        let gaps: Vec<u64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
        println!("others wait {latest} cycles at most, keys end every {:?}", gaps.iter().max());
        assert_eq!((of(0).count(), ends.len()), (5 * COUNT, COUNT));
        assert!(latest <= ENDING + 4 + 6, "{latest}");
        let slack = ENDING + 12;
        assert!(gaps.iter().all(|gap| (65 - slack..=80 + slack).contains(gap)), "{gaps:?}");
    }
}

/// Packets that end keys come as fast as they can, of a ring that has some parked, and none of them takes a rest from those that
/// are parked: keys end at the same rate as later, when none come.
#[test]
fn a_packet_that_ends_a_key_behind_others_begins_no_rest() {
    let mut machine = Machine::new(Stalls::None);
    (machine.scatter_cycles, machine.ending_cycles) = (3, 30);
    while !machine.exceeds.last().is_some_and(|&exceeds| exceeds) {
        machine.step(Some((0, Sort::EndingLast)));
    }
    let (cycles, passed) = (machine.cycle - SWEEP_CYCLES as u64, machine.order.len() as u64);
    println!("{passed} keys in {cycles} cycles in which packets come");
    assert!(cycles > 700 && passed + 1 >= cycles / 81, "{passed} in {cycles} cycles");
    machine.settle();
    let all: Vec<u64> = machine.order.iter().map(|passed| passed.0).collect();
    let longest = all.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(longest.is_some_and(|longest| longest <= 80 + 12), "{longest:?}");
}

/// Rings whose packets end keys always have some. Whichever turn is next when a rest is over is taken, so rests are not alike: no
/// ring is passed over again and again.
#[test]
fn rings_whose_packets_end_keys_have_equal_shares() {
    const COUNT: usize = 60;
    for rings in 2..=RINGS.len() {
        let mut machine = Machine::new(Stalls::None);
        (machine.scatter_cycles, machine.ending_cycles) = (3, 30);
        for _ in 0..COUNT {
            (0..rings).for_each(|place| machine.admit(place, Sort::EndingLast));
        }
        machine.settle();
        // While all of them have some, each has as many as it would have in turn, give or take what chance does.
        let places: Vec<usize> = machine.order.iter().map(|passed| passed.1).collect();
        let mut left = vec![COUNT; rings];
        let end = places.iter().position(|&place| {
            left[place] -= 1;
            left[place] == 0
        });
        let shares: Vec<usize> = left.iter().map(|left| COUNT - left).collect();
        println!("{rings} rings: {shares:?} of {COUNT} when the first has none, after {end:?}");
        assert!(shares.iter().all(|&share| 2 * share > COUNT), "{shares:?}");
    }
}
