use super::*;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Stalls, random};
use std::collections::VecDeque;

/// Queue pairs of the test: two share a row.
const QUEUE_PAIRS: [u64; 3] = [0x065, 0x3e5, 0x066];
/// Row of the first two.
const SHARED: u64 = 5;

/// Contents of a slot: the same whenever it is read.
fn contents(queue_pair: u64, generation: u64, index: u64) -> Bits<SLOT_BITS> {
    let word = (queue_pair << 40 | generation << 32 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..8).fold(bits(0), |data, shift| data << 64u64 | bits::<SLOT_BITS>(word.rotate_left(8 * shift)))
}

/// Model of a row.
#[derive(Clone, Default)]
struct ModelRow {
    queue_pair: u64,
    generation: u64,
    slots: VecDeque<u64>,
    is_filling: bool,
    is_shown: bool,
}

/// A burst: queue pair, generation, first slot, slots.
type Shown = (u64, u64, u64, u64);

/// The block with models of its neighbours.
struct Machine {
    bench: Bench<KeptSlots>,
    random: Random,
    slots: Sink<Slot>,
    rows: [ModelRow; 2],
    expected: VecDeque<Shown>,
    /// Burst whose slots have come, and how many of them wqe_parse has seen.
    seen: u64,
}

impl Machine {
    fn row(&mut self, queue_pair: u64) -> &mut ModelRow {
        &mut self.rows[usize::from(queue_pair & 31 != SHARED)]
    }

    fn cycle(&mut self, event: KeptEvent, slot: WqeSlot, takes_burst: bool) -> KeptAnswer {
        self.bench.block.action.next = event;
        self.bench.block.slot.next = slot;
        self.bench.block.enable.next = self.random.random_bool(0.9);
        self.slots.drive(&mut self.bench.block.slots, &mut self.random);
        self.bench.block.bursts.ready.next = takes_burst;
        self.bench.settle();
        self.slots.sample(&self.bench.block.slots);
        let answer = self.bench.block.answer.val();
        self.bench.tick();
        answer
    }

    fn idle(&mut self) {
        self.cycle(KeptEvent::default(), WqeSlot::default(), false);
    }

    /// What wqe_parse does with a slot: looks, decides, acts.
    fn show(&mut self, slot: WqeSlot, holds: bool, keeps: bool) {
        let event = KeptEvent { queue_pair: slot.queue_pair, ..KeptEvent::default() };
        self.cycle(KeptEvent { looks: true, ..event }, slot, false);
        self.cycle(event, slot, false);
        let ends = slot.is_kept && slot.ends_burst;
        self.cycle(KeptEvent { acts: true, holds, keeps, ..event }, slot, ends);

        let (number, generation) = (slot.queue_pair.to_u64(), slot.generation.to_u64());
        let index = slot.index.to_u64();
        let is_data = !slot.is_unreadable && !slot.is_overrun;
        let row = self.row(number);
        let is_own = !row.slots.is_empty() && (row.queue_pair, row.generation) == (number, generation);
        if keeps && !slot.is_kept && !row.is_shown {
            let slots = is_data.then_some(index).into_iter().collect();
            *row = ModelRow { queue_pair: number, generation, slots, ..ModelRow::default() };
            return;
        }
        let next = row.slots.back().map(|last| (last + 1) & 0xffff);
        if is_own && !slot.is_kept && is_data && Some(index) == next && row.slots.len() < 16 {
            row.slots.push_back(index);
        }
        if holds && !slot.is_kept && is_own {
            row.is_filling = false;
            if !row.is_shown {
                row.slots.clear();
            }
        }
        let is_end = slot.is_single || slot.ends_queue || slot.is_overrun;
        row.is_filling &= !(is_own && !slot.is_kept && slot.ends_burst && is_end);
        row.is_shown &= !(is_own && ends);
    }

    /// A question of wqe_parse about the slot at the cursor: of a queue pair that is woken, or at the end of a burst.
    fn ask(&mut self, number: u64, generation: u64, cursor: u64, wakes: bool) {
        let row = self.row(number);
        let is_own = !row.slots.is_empty() && (row.queue_pair, row.generation) == (number, generation);
        let place = row.slots.iter().position(|&index| index == cursor);
        let left = place.map_or(0, |place| row.slots.len() - place);
        let shows = is_own && !row.is_shown && left >= 2;
        let refills = shows && left <= 9 && !row.is_filling;
        let serves = shows || (is_own && (row.is_shown || row.is_filling));
        let last = row.slots.back().copied();
        if shows {
            row.slots.drain(..place.unwrap());
            row.is_filling |= refills;
            row.is_shown = true;
            self.expected.push_back((number, generation, cursor, left.min(4) as u64));
        }
        let event = KeptEvent {
            queue_pair: bits(number),
            generation: bits(generation),
            cursor: bits(cursor),
            lap: bits(cursor & 3),
            ..KeptEvent::default()
        };
        self.cycle(KeptEvent { looks: true, ..event }, WqeSlot::default(), false);
        let answer = self.cycle(KeptEvent { wakes, ends: !wakes, ..event }, WqeSlot::default(), false);
        assert_eq!((answer.serves, answer.refills), (serves, refills), "{number:#x} at {cursor:#x}");
        if shows {
            assert_eq!(Some(answer.last.to_u64()), last);
        }
    }

    /// Takes the next slot of the burst that is shown, if it is there; wqe_parse sees it in the place of another slot.
    fn take_kept(&mut self, holds: bool) -> bool {
        let block = &self.bench.block;
        if !block.bursts.valid.val() || self.slots.received.len() as u64 <= self.seen {
            return false;
        }
        let burst = block.bursts.beat.val();
        let (number, generation, first, count) = *self.expected.front().expect("a burst is expected");
        let shown = (burst.queue_pair.to_u64(), burst.generation.to_u64());
        assert_eq!(shown, (number, generation));
        assert_eq!((burst.first_index.to_u64(), burst.count.to_u64()), (first, count));
        assert_eq!((burst.lap.to_u64(), burst.is_kept, burst.ends_queue), (first & 3, true, false));
        let slot = self.slots.received[self.seen as usize];
        let index = (first + self.seen) & 0xffff;
        assert_eq!(slot.data, contents(number, generation, index), "slot {index:#x} of {number:#x}");
        assert!(!slot.error);
        self.seen += 1;
        let ends_burst = self.seen == count;
        let slot = WqeSlot {
            queue_pair: bits(number),
            generation: bits(generation),
            index: bits(index),
            first: slot.data,
            is_kept: true,
            ends_burst,
            ..WqeSlot::default()
        };
        let holds = holds && !ends_burst;
        let keeps = holds && self.random.random();
        self.show(slot, holds, keeps);
        if ends_burst {
            assert_eq!(self.slots.received.len() as u64, count, "the slots of one burst");
            self.slots.received.clear();
            self.seen = 0;
            self.expected.pop_front();
            if self.random.random_bool(0.7) {
                let cursor = (first + self.random.random_range(0..count)) & 0xffff;
                self.ask(number, generation, cursor, false);
            }
        }
        true
    }
}

#[test]
fn slots_are_shown_again_as_they_were() {
    for stalls in Stalls::ALL {
        let mut machine = Machine {
            bench: Bench::clocked(KeptSlots::default(), |block| &mut block.clock).in_lock_step(),
            random: random(),
            slots: Sink::new(stalls),
            rows: Default::default(),
            expected: VecDeque::new(),
            seen: 0,
        };
        machine.bench.block.sweep.next.is_sweeping = true;
        for row in 0..32 {
            machine.bench.block.sweep.next.index = bits(row);
            machine.bench.tick();
        }
        machine.bench.block.sweep.next.is_sweeping = false;
        // Next slot of the host, and generation, of each queue pair.
        let mut next = [0xfff0, 0, 0x7fff];
        let mut generations = [0, 7, 255];
        let (mut bursts, mut refills) = (0, 0);
        for _ in 0..3_000 {
            let place = machine.random.random_range(0..3);
            let (number, generation) = (QUEUE_PAIRS[place], generations[place]);
            match machine.random.random_range(0..10) {
                0..5 => {
                    if machine.random.random_bool(0.02) {
                        next[place] = machine.random.random_range(0..0x1_0000);
                    }
                    let index = next[place];
                    next[place] = (index + u64::from(machine.random.random_bool(0.9))) & 0xffff;
                    let slot = WqeSlot {
                        queue_pair: bits(number),
                        generation: bits(generation),
                        index: bits(index),
                        first: contents(number, generation, index),
                        is_unreadable: machine.random.random_bool(0.03),
                        is_overrun: machine.random.random_bool(0.01),
                        ends_burst: machine.random.random(),
                        is_single: machine.random.random_bool(0.3),
                        ends_queue: machine.random.random_bool(0.1),
                        ..WqeSlot::default()
                    };
                    let holds = machine.random.random_bool(0.15);
                    let keeps = holds && machine.random.random_bool(0.8);
                    machine.show(slot, holds, keeps);
                }
                5 => {
                    let before = machine.expected.len();
                    let row = machine.row(number).clone();
                    let choice = machine.random.random_range(0..row.slots.len() + 2);
                    let cursor = row.slots.get(choice).copied().unwrap_or(next[place]);
                    machine.ask(number, generation, cursor, true);
                    bursts += machine.expected.len() - before;
                    refills += usize::from(machine.row(number).is_filling && !row.is_filling);
                }
                6 if machine.random.random_bool(0.05) => generations[place] = (generation + 1) & 255,
                7 => machine.idle(),
                _ => {
                    let holds = machine.random.random_bool(0.3);
                    if !machine.take_kept(holds) {
                        machine.idle();
                    }
                }
            }
        }
        assert!(bursts > 20 && refills > 10, "{bursts} bursts, {refills} refills");
    }
}

/// Cycles from a question to the first slot, and from slot to slot.
#[test]
fn the_first_slot_comes_after_four_cycles() {
    let mut bench = Bench::clocked(KeptSlots::default(), |block| &mut block.clock).in_lock_step();
    let slot =
        |index: u64| WqeSlot { index: bits(index), first: contents(0, 0, index), ..WqeSlot::default() };
    bench.block.enable.next = true;
    bench.block.slots.ready.next = true;
    for index in 0..8 {
        for (looks, acts) in [(true, false), (false, false), (false, true)] {
            bench.block.slot.next = slot(index);
            bench.block.action.next =
                KeptEvent { looks, acts, keeps: acts && index == 0, ..KeptEvent::default() };
            bench.tick();
        }
    }
    let mut cycles = Vec::new();
    for cycle in 0..20 {
        bench.block.action.next = KeptEvent { looks: cycle == 0, wakes: cycle == 1, ..KeptEvent::default() };
        bench.settle();
        if bench.block.slots.valid.val() {
            assert_eq!(bench.block.slots.beat.val().data, contents(0, 0, cycles.len() as u64));
            cycles.push(cycle);
        }
        bench.tick();
    }
    assert_eq!(cycles, [5, 6, 7, 8]);
}
