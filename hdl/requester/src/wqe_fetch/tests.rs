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
}

#[derive(Default)]
struct Expected {
    bursts: VecDeque<WqeBurst>,
    spans: VecDeque<HostSpan>,
    reports: VecDeque<FetchReport>,
}

impl Queue {
    /// What the ready line is told of a change.
    fn report(&self, number: u64, has_more: bool) -> FetchReport {
        FetchReport { queue_pair: bits(number), has_more, is_stopped: self.is_stopped, begins_burst: false }
    }

    /// Takes a turn; returns the slots requested.
    fn turn(&mut self, number: u64, size: u64, expected: &mut Expected) -> u64 {
        let most = [2, 3, 5, 8][size as usize];
        let available = self.producer.wrapping_sub(self.index);
        let is_active = [QpState::ReadyToSend, QpState::Error, QpState::SendQueueError]
            .map(|s| s as u64)
            .contains(&self.state);
        let is_again = self.replays && self.state == QpState::SendQueueDrain as u64;
        if !(is_active || is_again) || self.is_stopped || available == 0 {
            return 0;
        }
        let is_overrun = available > self.slots + u16::from(self.overlaps);
        let count = available.min(most);
        expected.bursts.push_back(WqeBurst {
            queue_pair: bits(number),
            generation: bits(self.generation),
            first_index: bits(self.index.into()),
            count: bits(count.into()),
            lap: bits(self.lap),
            ends_queue: available <= most,
            is_overrun,
            is_single: self.is_single && available > most && !is_overrun,
            is_kept: false,
        });
        if is_overrun {
            (self.is_stopped, self.is_single) = (true, false);
            expected.reports.push_back(FetchReport { begins_burst: true, ..self.report(number, false) });
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
        self.overlaps = available > most;
        self.index = self.index.wrapping_add(count - u16::from(self.overlaps));
        self.is_stopped = self.is_single && self.overlaps;
        let has_more = self.overlaps && !self.is_single;
        expected.reports.push_back(FetchReport { begins_burst: true, ..self.report(number, has_more) });
        self.is_single = false;
        count.into()
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
        let (mut spans, mut bursts, mut reports) =
            (Sink::new(stalls), Sink::new(stalls), Sink::new(Stalls::Sink));
        let mut queues = [Queue::default(); 4];
        let mut expected = Expected::default();
        let (mut under_way, mut most, mut burst_count, mut wraps, mut overruns) = (0, 0, 0u64, 0, 0);
        // In the first half slots return seldom, and queue pair 0 always has WQEs to fetch, so that the queue of slots is the limit
        // with every seed.
        for cycle in 0..8_000 {
            let number = random.random_range(0..4usize);
            let fetches = |number: usize| cycle < 4_000 && number == 0;
            if setup.is_done() && (cycle < 40 || random.random_bool(0.003)) {
                let kind = match random.random_range(0..3) {
                    _ if cycle < 40 => SetupKind::Restart,
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
            if turns.is_done() && random.random_bool(0.01) {
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
                let size = Stimulus::sample(&mut random);
                schedule.push(FetchTurn { queue_pair: bits(number as u64), size });
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
            bench.block.posted_valid.next = rings;
            bench.block.posted.next = SendsPosted {
                queue_pair: bits(posted as u64),
                producer_index: bits(queue.producer.wrapping_add(step).into()),
            };
            let returns = under_way > 0 && random.random_bool(if cycle < 4_000 { 0.02 } else { 0.9 });
            bench.block.slot_returned.next = returns;
            let is_enabled = cycle / 250 % 8 != 7;
            bench.block.enable.next = is_enabled;
            setup.drive(&mut bench.block.setup, &mut random);
            turns.drive(&mut bench.block.resume, &mut random);
            schedule.drive(&mut bench.block.from_ready_line, &mut random);
            spans.drive(&mut bench.block.wqe_read, &mut random);
            bursts.drive(&mut bench.block.bursts, &mut random);
            reports.drive(&mut bench.block.report, &mut random);
            bench.settle();

            if rings {
                queues[posted].producer = queues[posted].producer.wrapping_add(step);
            }
            let event = setup.sample(&bench.block.setup).then(|| bench.block.setup.beat.val());
            let turn = turns.sample(&bench.block.resume).then(|| bench.block.resume.beat.val());
            let next =
                schedule.sample(&bench.block.from_ready_line).then(|| bench.block.from_ready_line.beat.val());
            assert!(u8::from(event.is_some()) + u8::from(turn.is_some()) + u8::from(next.is_some()) < 2);
            if let Some(event) = event {
                let number = event.queue_pair.to_u64();
                let queue = &mut queues[number as usize];
                queue.state = event.state.to_u64();
                queue.generation = event.generation.to_u64();
                queue.base = event.path.send_base_page.to_u64() << 12;
                queue.slots = 1 << event.path.send_slots_log2.to_u64();
                if event.kind == SetupKind::Restart {
                    (queue.producer, queue.index) = (0, 0);
                    (queue.is_stopped, queue.is_single, queue.overlaps) = (false, false, false);
                    (queue.replays, queue.lap) = (false, 0);
                }
                expected.reports.push_back(queue.report(number, true));
            }
            if let Some(turn) = turn {
                let queue = &mut queues[turn.queue_pair.to_u64() as usize];
                if turn.generation == queue.generation {
                    queue.is_stopped = !turn.resumes;
                    queue.is_single = turn.resumes && turn.is_single;
                    (queue.replays, queue.lap) = (turn.replays, turn.lap.to_u64());
                    if turn.resumes {
                        queue.index = turn.slot_index.to_u64() as u16;
                        queue.overlaps = false;
                    }
                    expected.reports.push_back(queue.report(turn.queue_pair.to_u64(), turn.resumes));
                }
            }
            if let Some(next) = next {
                assert!(is_enabled, "a turn is taken while nothing may be begun");
                let spans_before = expected.spans.len();
                let bursts_before = expected.bursts.len();
                let number = next.queue_pair.to_u64();
                under_way += queues[number as usize].turn(number, next.size.to_u64(), &mut expected);
                wraps += usize::from(expected.spans.len() == spans_before + 2);
                if expected.bursts.len() > bursts_before {
                    burst_count += 1;
                    overruns += usize::from(expected.bursts.back().unwrap().is_overrun);
                }
            }
            under_way -= u64::from(returns);
            assert!(under_way <= 1 << SLOT_QUEUE_BITS);
            most = most.max(under_way);
            if let Some(burst) = bursts.sample(&bench.block.bursts) {
                assert_eq!(Some(burst), expected.bursts.pop_front());
            }
            if let Some(span) = spans.sample(&bench.block.wqe_read) {
                assert_eq!(Some(span), expected.spans.pop_front());
            }
            if let Some(report) = reports.sample(&bench.block.report) {
                assert_eq!(Some(report), expected.reports.pop_front());
            }
            bench.tick();
        }
        assert!(expected.bursts.len() < 80 && expected.spans.len() < 20 && expected.reports.len() < 3);
        assert!(bench.block.burst_count.val().to_u64() + 1 >= burst_count);
        assert!(burst_count > 60 && wraps > 0 && overruns > 2, "{burst_count} {wraps} {overruns}");
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
    let mut schedule = Source::of_tokens([], Stalls::None);
    let mut spans = Sink::new(Stalls::None);
    bench.block.enable.next = true;
    bench.block.bursts.ready.next = true;
    bench.block.report.ready.next = true;
    bench.block.posted.next = SendsPosted { queue_pair: bits(0), producer_index: bits(500) };
    for cycle in 0..260 {
        bench.block.posted_valid.next = cycle == 10;
        setup.drive(&mut bench.block.setup, &mut random);
        if cycle == 20 {
            (0..80).for_each(|_| schedule.push(FetchTurn { queue_pair: bits(0), size: bits(3) }));
        }
        schedule.drive(&mut bench.block.from_ready_line, &mut random);
        spans.drive(&mut bench.block.wqe_read, &mut random);
        bench.settle();
        setup.sample(&bench.block.setup);
        schedule.sample(&bench.block.from_ready_line);
        spans.sample(&bench.block.wqe_read);
        bench.tick();
    }
    // Each burst requests the next turn, which this test gives without a request.
    let bursts = spans.received.len();
    assert!((46..=64).contains(&bursts), "{bursts} bursts in 240 cycles");
}
