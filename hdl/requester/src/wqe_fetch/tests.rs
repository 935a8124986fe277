use super::*;
use crate::testing::event;
use rand::Rng;
use rnic_blocks::bench::{Bench, Sink, Source, Stalls, Stimulus, random};
use rnic_layout::state::QpState;
use std::collections::VecDeque;

/// Model of a queue pair, in plain numbers.
#[derive(Clone, Copy, Default)]
struct Queue {
    state: u64,
    generation: u64,
    base: u64,
    slots: u16,
    producer: u16,
    index: u16,
    is_stopped: bool,
    is_single: bool,
    overlaps: bool,
    replays: bool,
    lap: u64,
    weight: u64,
    is_resumed: bool,
    has_rest: bool,
    /// Units that it has had in its turn.
    units: u64,
}

#[derive(Default)]
struct Expected {
    bursts: VecDeque<WqeBurst>,
    spans: VecDeque<HostSpan>,
    again: VecDeque<u64>,
    turns: VecDeque<u64>,
    /// Queue pair that has the next burst, too.
    current: Option<u64>,
    /// Units of the bursts in the line to segment.
    line: VecDeque<u64>,
}

impl Queue {
    /// What happens when it is looked at; returns the slots requested.
    fn turn(&mut self, number: u64, has_room: bool, expected: &mut Expected) -> u64 {
        let available = self.producer.wrapping_sub(self.index);
        let is_active = [QpState::ReadyToSend, QpState::Error, QpState::SendQueueError]
            .map(|s| s as u64)
            .contains(&self.state);
        let is_again = self.replays && self.state == QpState::SendQueueDrain as u64;
        let is_due = (is_active || is_again) && !self.is_stopped && available != 0;
        let units = std::mem::take(&mut self.units);
        if std::mem::take(&mut self.has_rest) {
            expected.turns.push_back(number);
            if is_due {
                expected.again.push_back(number);
            }
            return 0;
        }
        if !is_due {
            return 0;
        }
        if !has_room {
            (expected.current, self.units) = (Some(number), units);
            return 0;
        }
        let is_overrun = available > self.slots + u16::from(self.overlaps);
        let most = 1 + [7, 7, 7, 7, 7, 4, 2, 1][self.weight as usize];
        let has_more = available > most;
        let count = available.min(most);
        let charge = if is_overrun { 0 } else { u64::from(count - u16::from(has_more)) << self.weight };
        expected.line.push_back(charge);
        expected.bursts.push_back(WqeBurst {
            queue_pair: bits(number),
            generation: bits(self.generation),
            first_index: bits(self.index.into()),
            count: bits(count.into()),
            lap: bits(self.lap),
            ends_queue: !has_more,
            is_overrun,
            is_single: self.is_single && has_more && !is_overrun,
            is_kept: false,
            weight: bits(self.weight),
            charge: bits(charge),
        });
        let is_resumed = std::mem::take(&mut self.is_resumed);
        if is_overrun {
            (self.is_stopped, self.is_single) = (true, false);
            return 0;
        }
        let offset = self.index % self.slots;
        let first = count.min(self.slots - offset);
        for (offset, count) in [(offset, first), (0, count - first)] {
            if count != 0 {
                let address = self.base + 64 * u64::from(offset);
                expected
                    .spans
                    .push_back(HostSpan { address: bits(address), length: bits(64 * u64::from(count)) });
            }
        }
        self.overlaps = has_more;
        self.index = self.index.wrapping_add(count - u16::from(self.overlaps));
        if self.overlaps && !self.is_single {
            if units + charge < 128 && !is_resumed {
                (expected.current, self.units) = (Some(number), units + charge);
            } else {
                expected.again.push_back(number);
            }
        }
        self.is_stopped = self.is_single && self.overlaps;
        self.is_single = false;
        count.into()
    }
}

/// What has been seen.
#[derive(Debug, Default)]
struct Seen {
    /// Slots that were requested and have not returned.
    under_way: u64,
    bursts: u64,
    wraps: usize,
    overruns: usize,
    /// Looks that found no room.
    waits: u64,
}

/// A queue pair is looked at.
fn looks(number: u64, has_room: bool, queues: &mut [Queue; 4], expected: &mut Expected, seen: &mut Seen) {
    let (spans, bursts) = (expected.spans.len(), expected.bursts.len());
    seen.under_way += queues[number as usize].turn(number, has_room, expected);
    seen.waits += u64::from(!has_room && expected.current.is_some());
    seen.wraps += usize::from(expected.spans.len() == spans + 2);
    if expected.bursts.len() > bursts {
        seen.bursts += 1;
        seen.overruns += usize::from(expected.bursts.back().unwrap().is_overrun);
    }
}

#[test]
fn bursts_follow_the_producer_through_turns_setup_and_wraps() {
    const STATES: [QpState; 6] = [
        QpState::ReadyToSend,
        QpState::ReadyToSend,
        QpState::SendQueueDrain,
        QpState::Error,
        QpState::SendQueueError,
        QpState::Reset,
    ];
    let mut random = random();
    for stalls in Stalls::ALL {
        let mut bench = Bench::clocked(WqeFetch::default(), |block| &mut block.clock).in_lock_step();
        let (mut setup, mut turns) = (Source::of_tokens([], stalls), Source::of_tokens([], stalls));
        let mut schedule = Source::of_tokens([], stalls);
        let mut rests = Source::of_tokens([], stalls);
        let mut given = Sink::new(stalls);
        let (mut spans, mut bursts, mut again) =
            (Sink::new(stalls), Sink::new(stalls), Sink::new(Stalls::Sink));
        let mut queues = [Queue::default(); 4];
        let mut expected = Expected::default();
        let mut seen = Seen::default();
        let mut most = 0;
        let (mut rest_count, mut turn_count, mut goes_on) = (0, 0, 0);
        let (mut from_queue, mut was_enabled, mut new_weight) = (None, false, None);
        let mut heaviest = 0;
        // Queue pair 0 always has WQEs to fetch at first. Slots return seldom then, so that the queue of slots is the limit
        // with every seed, and after it the line is, since what was counted returns seldom.
        for cycle in 0..8_000 {
            // A queue pair was chosen in the cycle before: from the ready queue, or to go on with its turn.
            if bench.block.step.q.val() == Step::Read {
                assert!(was_enabled, "a queue pair is looked at while nothing may begin");
                goes_on += u64::from(from_queue.is_none());
                let number = from_queue.take().or_else(|| expected.current.take());
                assert_eq!(number, Some(bench.block.queue_pair.q.val().to_u64()));
                let has_room = bench.block.has_room.q.val();
                looks(number.unwrap(), has_room, &mut queues, &mut expected, &mut seen);
            }
            if let Some((number, weight)) = new_weight {
                let queue: &mut Queue = &mut queues[number];
                queue.weight = weight;
            }
            let begins = cycle < 40 || (4_000..4_040).contains(&cycle);
            let number = if cycle >= 40 && begins { 0 } else { random.random_range(0..4usize) };
            let fetches = |number: usize| cycle < 6_000 && number == 0;
            if setup.is_done() && (begins || random.random_bool(0.003)) {
                let kind = match random.random_range(0..3) {
                    _ if begins => SetupKind::Restart,
                    0 => SetupKind::Restart,
                    1 => SetupKind::Path,
                    _ => SetupKind::Life,
                };
                let state = STATES[random.random_range(0..6)];
                let state = if fetches(number) { QpState::ReadyToSend } else { state };
                let mut event = event(kind, number, state, random.random_range(0..4));
                event.path.send_base_page = bits(0xf_ffff_0000_0000 | random.random::<u64>() & 0xffff_f000);
                event.path.send_slots_log2 = bits(random.random_range(6..9));
                if kind != SetupKind::Restart {
                    // A ring does not move while it has WQEs.
                    event.path.send_base_page = bits(queues[number].base >> 12);
                    event.path.send_slots_log2 = bits(u64::from(queues[number].slots.trailing_zeros()) & 15);
                }
                setup.push(event);
            }
            let is_left = cycle >= 4_000 && fetches(number);
            if turns.is_done() && !is_left && random.random_bool(0.01) {
                let queue = queues[number];
                turns.push(FetchResume {
                    queue_pair: bits(number as u64),
                    generation: bits(queue.generation ^ u64::from(random.random_bool(0.1))),
                    slot_index: bits(queue.index.wrapping_sub(random.random_range(0..20)).into()),
                    resumes: random.random_bool(0.8) || fetches(number),
                    is_single: !fetches(number) && random.random_bool(0.3),
                    replays: random.random(),
                    lap: Stimulus::sample(&mut random),
                });
            }
            if schedule.is_done() {
                schedule.push(bits(number as u64));
            }
            // Segment says so once for each turn that it has seen.
            let rest = random.random_range(0..4usize);
            if rests.is_done() && !queues[rest].has_rest && random.random_bool(0.01) {
                rests.push(bits(rest as u64));
            }
            let posted = random.random_range(0..4usize);
            let queue = queues[posted];
            let room = queue.slots.saturating_sub(queue.producer.wrapping_sub(queue.index));
            let step = match random.random_range(0..100) {
                0 | 1 if fetches(posted) => room,
                0 => room + random.random_range(0..3),
                1 => room + 500,
                _ => random.random_range(0..=room.min(20)),
            };
            let rings = random.random_bool(0.1);
            bench.block.posted.valid.next = rings;
            bench.block.posted.value.next = SendsPosted {
                queue_pair: bits(posted as u64),
                producer_index: bits(queue.producer.wrapping_add(step).into()),
            };
            let returns = seen.under_way > 0 && random.random_bool(if cycle < 4_000 { 0.02 } else { 0.9 });
            bench.block.slot_returned.next = returns;
            let leaves = if (4_000..6_000).contains(&cycle) { 0.005 } else { 0.3 };
            let charge = expected.line.front().copied().filter(|_| random.random_bool(leaves));
            bench.block.charge_returned.next = bits(charge.unwrap_or(0));
            let weighed = random.random_range(0..4usize);
            let is_weighed = cycle > 2_000 && random.random_bool(0.02);
            let weight = is_weighed.then(|| random.random_range(0..8u64));
            bench.block.weight.next = WeightWrite {
                queue_pair: bits(weighed as u64),
                weight: bits(weight.unwrap_or(0)),
                valid: weight.is_some(),
            };
            let is_enabled = cycle / 250 % 8 != 7;
            bench.block.enable.next = is_enabled;
            setup.drive(&mut bench.block.setup, &mut random);
            turns.drive(&mut bench.block.resume, &mut random);
            schedule.drive(&mut bench.block.from_ready_queue, &mut random);
            spans.drive(&mut bench.block.wqe_read, &mut random);
            bursts.drive(&mut bench.block.bursts, &mut random);
            again.drive(&mut bench.block.again, &mut random);
            rests.drive(&mut bench.block.rest, &mut random);
            given.drive(&mut bench.block.turn, &mut random);
            bench.settle();

            if rings {
                queues[posted].producer = queues[posted].producer.wrapping_add(step);
            }
            let event = setup.sample(&bench.block.setup).then(|| bench.block.setup.beat.val());
            let turn = turns.sample(&bench.block.resume).then(|| bench.block.resume.beat.val());
            let next = schedule
                .sample(&bench.block.from_ready_queue)
                .then(|| bench.block.from_ready_queue.beat.val());
            assert!(u8::from(event.is_some()) + u8::from(turn.is_some()) + u8::from(next.is_some()) < 2);
            if let Some(event) = event {
                let number = event.queue_pair.to_u64();
                let queue = &mut queues[number as usize];
                queue.state = event.state.to_u64();
                queue.generation = event.generation.to_u64();
                queue.base = event.path.send_base_page.to_u64() << 12;
                queue.slots = 1 << event.path.send_slots_log2.to_u64();
                if event.kind == SetupKind::Restart {
                    queue.is_resumed = false;
                    (queue.producer, queue.index) = (0, 0);
                    (queue.is_stopped, queue.is_single, queue.overlaps) = (false, false, false);
                    (queue.replays, queue.lap) = (false, 0);
                }
                expected.again.push_back(number);
            }
            if let Some(turn) = turn {
                let queue = &mut queues[turn.queue_pair.to_u64() as usize];
                if turn.generation == queue.generation {
                    queue.is_stopped = !turn.resumes;
                    queue.is_single = turn.resumes && turn.is_single;
                    (queue.replays, queue.lap) = (turn.replays, turn.lap.to_u64());
                    queue.is_resumed = turn.resumes;
                    if turn.resumes {
                        queue.index = turn.slot_index.to_u64() as u16;
                        queue.overlaps = false;
                        expected.again.push_back(turn.queue_pair.to_u64());
                    }
                }
            }
            if let Some(next) = next {
                assert_eq!(expected.current, None, "a queue pair goes on with its turn");
                from_queue = Some(next.to_u64());
            }
            was_enabled = is_enabled;
            // What is written in the cycle in which a queue pair is chosen is seen by its next burst.
            new_weight = weight.map(|weight| (weighed, weight));
            if rests.sample(&bench.block.rest) {
                queues[bench.block.rest.beat.val().to_u64() as usize].has_rest = true;
                expected.again.push_back(bench.block.rest.beat.val().to_u64());
                rest_count += 1;
            }
            if let Some(number) = given.sample(&bench.block.turn) {
                assert_eq!(Some(number.to_u64()), expected.turns.pop_front());
                turn_count += 1;
            }
            seen.under_way -= u64::from(returns);
            assert!(seen.under_way <= 1 << SLOT_QUEUE_BITS);
            let line: u64 = expected.line.iter().sum();
            assert!(line <= 1 << LINE_BITS, "{line} units in the line");
            heaviest = heaviest.max(line);
            if charge.is_some() {
                expected.line.pop_front();
            }
            most = most.max(seen.under_way);
            if let Some(burst) = bursts.sample(&bench.block.bursts) {
                assert_eq!(Some(burst), expected.bursts.pop_front());
            }
            if let Some(span) = spans.sample(&bench.block.wqe_read) {
                assert_eq!(Some(span), expected.spans.pop_front());
            }
            if let Some(number) = again.sample(&bench.block.again) {
                assert_eq!(Some(number.to_u64()), expected.again.pop_front());
            }
            bench.tick();
        }
        assert!(expected.bursts.len() < 80 && expected.spans.len() < 20 && expected.again.len() < 3);
        assert!(bench.block.burst_count.val().to_u64() + 1 >= seen.bursts);
        assert!(bench.block.turn_count.val().to_u64() >= turn_count);
        assert!(expected.turns.len() < 4 && turn_count + 8 > rest_count, "{turn_count} {rest_count}");
        assert!(seen.bursts > 60 && seen.wraps > 0 && seen.overruns > 2, "{seen:?}");
        assert!(goes_on > 20 && turn_count > 10 && seen.waits > 0, "{goes_on} {turn_count} {seen:?}");
        assert!(heaviest >= 768, "{heaviest} units: the line was the limit for a while");
        assert!(most > 400, "{most}: the queue of slots was the limit for a while");
    }
}

/// Bursts of one queue pair are as fast as the header says.
#[test]
fn a_burst_takes_four_cycles() {
    let mut random = random();
    let mut bench = Bench::clocked(WqeFetch::default(), |block| &mut block.clock).in_lock_step();
    let mut start = event(SetupKind::Restart, 0, QpState::ReadyToSend, 0);
    start.path.send_slots_log2 = bits(10);
    let mut setup = Source::of_tokens([start], Stalls::None);
    let mut schedule = Source::new([], Stalls::None);
    let mut spans = Sink::new(Stalls::None);
    bench.block.enable.next = true;
    bench.block.bursts.ready.next = true;
    bench.block.again.ready.next = true;
    bench.block.posted.value.next = SendsPosted { queue_pair: bits(0), producer_index: bits(500) };
    for cycle in 0..260 {
        bench.block.posted.valid.next = cycle == 10;
        setup.drive(&mut bench.block.setup, &mut random);
        if cycle == 20 {
            (0..80).for_each(|_| schedule.push(Stimulus::from_number(&0u8.into())));
        }
        schedule.drive(&mut bench.block.from_ready_queue, &mut random);
        spans.drive(&mut bench.block.wqe_read, &mut random);
        bench.settle();
        setup.sample(&bench.block.setup);
        schedule.sample(&bench.block.from_ready_queue);
        spans.sample(&bench.block.wqe_read);
        bench.tick();
    }
    // Each burst requests the next turn, which this test gives without a request.
    let bursts = spans.received.len();
    assert!((46..=64).contains(&bursts), "{bursts} bursts in 240 cycles");
}
