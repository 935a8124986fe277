//! CQEs, doorbells and a slow host, against a model of rings.
use super::*;
use crate::event_queues::CROWDED_LATE;
use num_bigint::BigUint;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, random};
use rnic_layout::doorbell::Arm;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus, Cqe};
use rnic_layout::queue::event::{AsyncEvent, Eqe, EventKind};
use rnic_layout::queue::phase;
use std::collections::{HashMap, VecDeque};

/// The ring of completion queue `n` is at page `0x1000 + n`, of event queue `n` at `0x2000 + n`; all have 64
/// entries.
const LOG2: u64 = 6;
const ENTRIES: u32 = 1 << LOG2;
const COMPLETION_PAGE: u64 = 0x1000;
const EVENT_PAGE: u64 = 0x2000;

/// The block, and all that it put out.
struct Machine {
    bench: Bench<Complete>,
    sources: [Source<CqeToken>; 2],
    events: Source<EqeToken>,
    writes: Sink<SlotWrite>,
    failures: Sink<QpNotice>,
    irqs: Sink<Bits<VECTOR_BITS>>,
    /// Cycles until the host reports the writes done that it took, oldest first, and the CQEs that it refuses.
    undone: VecDeque<(u32, Option<CqeOwner>)>,
    done: u64,
    /// What was written to host memory, in this order.
    written: Vec<(u64, Vec<u8>)>,
    failed: Vec<u64>,
    /// Pages that the host refuses to write.
    refuses: Vec<u64>,
    raised: Vec<u64>,
    delay: u32,
    random: Random,
    pulses: HashMap<&'static str, u64>,
}

impl Machine {
    fn new(stalls: Stalls, delay: u32) -> Self {
        let bench = Bench::clocked(Complete::default(), |block| &mut block.clock).in_lock_step();
        Machine {
            bench,
            sources: [Source::of_tokens([], stalls), Source::of_tokens([], stalls)],
            events: Source::of_tokens([], stalls),
            writes: Sink::new(stalls),
            failures: Sink::new(stalls),
            irqs: Sink::new(stalls),
            undone: VecDeque::new(),
            done: 0,
            written: Vec::new(),
            failed: Vec::new(),
            refuses: Vec::new(),
            raised: Vec::new(),
            delay,
            random: random(),
            pulses: HashMap::new(),
        }
    }

    fn tick(&mut self) {
        let block = &mut self.bench.block;
        self.sources[0].drive(&mut block.from_requester, &mut self.random);
        self.sources[1].drive(&mut block.from_responder, &mut self.random);
        self.events.drive(&mut block.event, &mut self.random);
        self.writes.drive(&mut block.write, &mut self.random);
        self.failures.drive(&mut block.failure, &mut self.random);
        self.irqs.drive(&mut block.irq, &mut self.random);
        self.undone.iter_mut().for_each(|(left, _)| *left = left.saturating_sub(1));
        // A failure is reported before its write is counted, one in a cycle.
        let mut refused = None;
        while refused.is_none() && self.undone.front().is_some_and(|(left, _)| *left == 0) {
            refused = self.undone.pop_front().expect("it is there").1;
            self.done += 1;
        }
        block.refused.valid.next = refused.is_some();
        block.refused.value.next = refused.unwrap_or_default();
        block.write_done.next = bits(self.done & 0xffff);
        self.bench.settle();
        let block = &self.bench.block;
        self.sources[0].sample(&block.from_requester);
        self.sources[1].sample(&block.from_responder);
        self.events.sample(&block.event);
        if let Some(write) = self.writes.sample(&block.write) {
            let length = write.length.to_u64() as usize;
            let mut bytes = BigUint::from(write.data).to_bytes_le();
            bytes.resize(64, 0);
            bytes.truncate(length);
            let address = write.address.to_u64();
            assert_eq!(write.is_cqe, address >> 12 < EVENT_PAGE, "a CQE says that it is one");
            let refused = self.refuses.contains(&(address >> 12)).then_some(write.cqe);
            if refused.is_none() {
                self.written.push((address, bytes));
            }
            self.undone.push_back((self.random.random_range(1..=self.delay), refused));
        }
        if let Some(failure) = self.failures.sample(&block.failure) {
            self.failed.push(failure.queue_pair.to_u64());
        }
        if let Some(vector) = self.irqs.sample(&block.irq) {
            self.raised.push(vector.to_u64());
        }
        for (name, pulse) in [
            ("completions_written", block.counts.val().completions_written),
            ("completions_in_error", block.counts.val().completions_in_error),
            ("completion_queue_overrun", block.counts.val().completion_queue_overrun),
            ("events_written", block.counts.val().events_written),
            ("event_queue_overrun", block.counts.val().event_queue_overrun),
            ("interrupts_raised", block.counts.val().interrupts_raised),
        ] {
            *self.pulses.entry(name).or_default() += u64::from(pulse);
        }
        self.bench.tick();
        let block = &mut self.bench.block;
        block.completion_queue_setup.valid.next = false;
        block.event_queue_setup.valid.next = false;
        block.completions_read.valid.next = false;
        block.events_read.valid.next = false;
        block.interrupt_moderation_write.next = false;
        block.interrupt_pending_clear.next = bits(0);
    }

    fn run(&mut self, cycles: usize) {
        (0..cycles).for_each(|_| self.tick());
    }

    /// Makes a completion queue with event queue 1.
    fn make_completion_queue(&mut self, number: u64, count: u64, period: u64) {
        self.make_completion_queue_on(1, number, count, period);
    }

    fn make_completion_queue_on(&mut self, event_queue: u64, number: u64, count: u64, period: u64) {
        self.set_up(CompletionQueueSetup {
            event_queue: bits(event_queue),
            moderation_count: bits(count),
            moderation_period: bits(period),
            ..completion_queue(number)
        });
        self.run(7);
    }

    /// Moves a queue of event queue 1 to the page of another number, with 2^`log2` entries.
    fn resize(&mut self, number: u64, page_of: u64, log2: u64) {
        let CompletionQueueSetup { base_page, .. } = completion_queue(page_of);
        self.set_up(CompletionQueueSetup {
            restarts: false,
            entries_log2: bits(log2),
            base_page,
            ..completion_queue(number)
        });
    }

    fn set_up(&mut self, setup: CompletionQueueSetup) {
        let block = &mut self.bench.block;
        block.completion_queue_setup.valid.next = true;
        block.completion_queue_setup.value.next = setup;
        self.tick();
    }

    fn make_event_queue(&mut self, number: u64, vector: u64) {
        let block = &mut self.bench.block;
        block.event_queue_setup.valid.next = true;
        block.event_queue_setup.value.next = EventQueueSetup {
            event_queue: bits(number),
            restarts: true,
            valid: true,
            entries_log2: bits(LOG2),
            vector: bits(vector),
            base_page: bits(EVENT_PAGE + number),
        };
        self.run(8);
    }

    fn read(&mut self, number: u64, consumer_index: u32, arm: Arm) {
        self.bench.block.completions_read.valid.next = true;
        self.bench.block.completions_read.value.next = CompletionsRead {
            completion_queue: bits(number),
            consumer_index: bits(u64::from(consumer_index & 0xff_ffff)),
            arm: bits(arm as u64),
        };
        self.run(4);
    }

    fn read_events(&mut self, number: u64, consumer_index: u32, arm: bool) {
        self.bench.block.events_read.valid.next = true;
        self.bench.block.events_read.value.next = EventsRead {
            event_queue: bits(number),
            consumer_index: bits(u64::from(consumer_index & 0xff_ffff)),
            arm,
        };
        self.run(4);
    }

    /// Events that were written since the last call, with their queue.
    fn events(&mut self) -> Vec<(u64, Eqe)> {
        let is_event = |address: u64| address >> 12 >= EVENT_PAGE;
        let events = self.written.iter().filter(|(address, _)| is_event(*address));
        let events =
            events.map(|(address, bytes)| ((address >> 12) - EVENT_PAGE, Eqe::parse(bytes).unwrap()));
        let events = events.collect();
        self.written.retain(|(address, _)| !is_event(*address));
        events
    }

    /// Completions that were written since the last call, with their address.
    fn completions(&mut self) -> Vec<(u64, Cqe)> {
        let is_event = |address: u64| address >> 12 >= EVENT_PAGE;
        let completions = self.written.iter().filter(|(address, _)| !is_event(*address));
        let completions = completions.map(|(address, bytes)| (*address, Cqe::parse(bytes).unwrap()));
        let completions = completions.collect();
        self.written.retain(|(address, _)| is_event(*address));
        completions
    }
}

/// A new queue in the page of its number, with event queue 1 and without moderation.
fn completion_queue(number: u64) -> CompletionQueueSetup {
    CompletionQueueSetup {
        completion_queue: bits(number),
        restarts: true,
        valid: true,
        entries_log2: bits(LOG2),
        event_queue: bits(1),
        moderation_count: bits(0),
        moderation_period: bits(0),
        base_page: bits(COMPLETION_PAGE + number),
    }
}

fn token(completion_queue: u64, wr_id: u64, status: CompletionStatus, solicited: bool) -> CqeToken {
    CqeToken {
        completion_queue: bits(completion_queue),
        wr_id: bits(wr_id),
        length: bits(wr_id * 3),
        immediate: bits(0xbeba_feca),
        qp_number: bits(0x12_3400 | wr_id & 0xff),
        queue_pair: bits(wr_id & 0xff),
        generation: bits(7),
        consumer_index: bits(wr_id & 0xffff),
        opcode: bits(CompletionOpcode::Receive as u64),
        status: bits(status as u64),
        vendor_error: bits(0x60),
        with_immediate: true,
        with_invalidate: false,
        solicited,
        is_last: false,
    }
}

/// The CQE that `token` makes, written from the table of the layout.
fn expected(wr_id: u64, status: CompletionStatus, solicited: bool, phase: bool) -> Cqe {
    Cqe {
        wr_id,
        length: (wr_id * 3) as u32,
        immediate: [0xca, 0xfe, 0xba, 0xbe],
        source_qp: 0,
        qp_number: 0x12_3400 | (wr_id & 0xff) as u32,
        consumer_index: wr_id as u16,
        opcode: CompletionOpcode::Receive,
        status,
        vendor_error: 0x60,
        with_immediate: true,
        with_invalidate: false,
        with_grh: false,
        solicited,
        phase,
    }
}

#[test]
fn cqes_are_written_to_their_rings_in_order_whatever_stalls() {
    for stalls in Stalls::ALL {
        let mut machine = Machine::new(stalls, 40);
        machine.make_event_queue(1, 5);
        let mut next = [0u32; 4];
        let mut sent: [Vec<(u64, CompletionStatus, bool)>; 4] = Default::default();
        (0..4).for_each(|queue| machine.make_completion_queue(queue, 0, 0));
        for wr_id in 0..240u64 {
            let queue = machine.random.random_range(0..4usize);
            let status = [CompletionStatus::Success, CompletionStatus::Flushed][usize::from(wr_id % 7 == 0)];
            // One source a queue, so that the order is known.
            machine.sources[queue % 2].push(token(queue as u64, wr_id, status, wr_id % 3 == 0));
            sent[queue].push((wr_id, status, wr_id % 3 == 0));
            machine.run(4);
            if wr_id % 16 == 15 {
                machine.run(300);
                for (address, completion) in machine.completions() {
                    let queue = ((address >> 12) - COMPLETION_PAGE) as usize;
                    let index = next[queue];
                    let (wr_id, status, solicited) = sent[queue][index as usize];
                    assert_eq!(address & 0xfff, u64::from(index % ENTRIES) * 32);
                    assert_eq!(completion, expected(wr_id, status, solicited, phase(index, LOG2 as u32)));
                    next[queue] += 1;
                }
                (0..4).for_each(|queue| machine.read(queue, next[queue as usize], Arm::Keep));
            }
        }
        machine.run(400);
        assert_eq!(machine.completions().len() + next.iter().sum::<u32>() as usize, 240);
        assert!(machine.events().is_empty() && machine.raised.is_empty(), "nothing was armed");
        assert_eq!(machine.pulses["completions_written"], 240);
        assert_eq!(machine.pulses["completions_in_error"], 35);
    }
}

/// A queue alternates between two rings of 64 and 128 entries, in any cycle.
#[test]
fn a_queue_that_is_resized_goes_on_in_its_new_ring() {
    const CQES: u32 = 600;
    let good = CompletionStatus::Success;
    for stalls in Stalls::ALL {
        let mut machine = Machine::new(stalls, 40);
        machine.make_event_queue(1, 5);
        machine.make_completion_queue(2, 0, 0);
        machine.read(2, 0, Arm::Solicited);
        let (mut written, mut moves) = (Vec::new(), 0);
        for wr_id in 0..CQES {
            machine.sources[0].push(token(2, wr_id.into(), good, wr_id == CQES - 1));
            let cycles = machine.random.random_range(1..8);
            machine.run(cycles);
            if wr_id % 20 == 0 {
                moves += 1;
                machine.resize(2, 2 + 2 * (moves % 2), LOG2 + moves % 2);
            }
            if wr_id % 8 == 0 {
                written.append(&mut machine.completions());
                machine.read(2, written.len() as u32, Arm::Keep);
            }
        }
        machine.run(1000);
        written.append(&mut machine.completions());
        assert_eq!(written.len(), CQES as usize);
        let mut in_larger = 0;
        for (index, (address, cqe)) in (0..).zip(&written) {
            let is_larger = address >> 12 == COMPLETION_PAGE + 4;
            let log2 = LOG2 as u32 + u32::from(is_larger);
            assert_eq!(address & 0xfff, u64::from(index & ((1 << log2) - 1)) * 32);
            assert_eq!(*cqe, expected(index.into(), good, index == CQES - 1, phase(index, log2)));
            in_larger += u32::from(is_larger);
        }
        assert!((CQES / 4..CQES * 3 / 4).contains(&in_larger), "{in_larger} CQEs are in the larger ring");
        // It stays armed for the only CQE that is solicited.
        let events = machine.events();
        assert_eq!(events.iter().map(|(_, event)| event.detail).collect::<Vec<_>>(), [CQES]);
        assert!(machine.failed.is_empty());
    }
}

#[test]
fn a_completion_takes_three_cycles() {
    let mut machine = Machine::new(Stalls::None, 1);
    machine.make_completion_queue(0, 0, 0);
    (0..30).for_each(|wr_id| machine.sources[0].push(token(0, wr_id, CompletionStatus::Success, false)));
    machine.run(30 * 3 + 10);
    assert_eq!(machine.completions().len(), 30);
}

#[test]
fn arming_makes_one_eqe_after_its_cqe_and_one_interrupt_when_it_is_written() {
    let mut machine = Machine::new(Stalls::None, 60);
    machine.make_event_queue(1, 5);
    machine.make_completion_queue(2, 0, 0);
    machine.read(2, 0, Arm::Next);
    machine.read_events(1, 0, true);
    for wr_id in 0..3 {
        machine.sources[0].push(token(2, wr_id, CompletionStatus::Success, false));
    }
    machine.run(9);
    assert!(machine.raised.is_empty(), "the event is not written yet");
    machine.run(200);
    let order: Vec<_> = machine.written.iter().map(|(address, _)| address >> 12).collect();
    // The EQE waits until its CQE is done; later CQEs do not wait for the EQE.
    assert_eq!(order, [COMPLETION_PAGE + 2, COMPLETION_PAGE + 2, COMPLETION_PAGE + 2, EVENT_PAGE + 1]);
    let events = machine.events();
    assert_eq!(events.len(), 1);
    let (queue, event) = events[0];
    assert_eq!((queue, event.kind, event.object_number, event.detail), (1, EventKind::Completion, 2, 1));
    assert!(event.phase);
    assert_eq!(machine.raised, [5]);

    // Armed again while two are unread: at once (protocol 4.4). The event queue is not armed: no interrupt.
    machine.read(2, 1, Arm::Next);
    machine.run(100);
    assert_eq!(machine.events().len(), 1);
    assert_eq!(machine.raised.len(), 1);
    // Armed while its event is unread: the interrupt is raised at once.
    machine.read_events(1, 1, true);
    machine.run(100);
    assert_eq!(machine.raised, [5, 5]);
    // All is read: nothing more.
    machine.read_events(1, 2, true);
    machine.read(2, 3, Arm::Next);
    machine.run(300);
    assert!(machine.events().is_empty());
    assert_eq!(machine.raised.len(), 2);
}

#[test]
fn the_last_wqe_of_a_shared_receive_queue_is_an_event_after_all_cqes() {
    let mut machine = Machine::new(Stalls::None, 60);
    machine.make_event_queue(0, 3);
    machine.make_event_queue(1, 5);
    machine.make_completion_queue(2, 0, 0);
    let last = |queue| CqeToken { is_last: true, ..token(queue, 9, CompletionStatus::Flushed, false) };
    // As many as there is room for, so that one more CQE would overrun the queue.
    for wr_id in 0..u64::from(ENTRIES) {
        machine.sources[1].push(token(2, wr_id, CompletionStatus::Flushed, false));
    }
    machine.sources[1].push(last(2));
    machine.sources[1].push(last(7));
    machine.run(1000);
    let (address, _) = machine.written.last().expect("much is written");
    assert_eq!(address >> 12, EVENT_PAGE, "the event is the last");
    let events = machine.events();
    let [(queue, event)] = events[..] else { panic!("{events:?}: a queue that does not exist says nothing") };
    assert_eq!((queue, event.kind, event.code), (0, EventKind::Asynchronous, AsyncEvent::LastWqeReached));
    assert_eq!((event.object_number, event.detail), (0x12_3409, 0));
    assert_eq!(machine.completions().len(), ENTRIES as usize);
    assert!(machine.failed.is_empty() && machine.pulses["completion_queue_overrun"] == 0);
    assert_eq!(machine.pulses["completions_in_error"], u64::from(ENTRIES));
}

#[test]
fn solicited_arming_waits_for_a_solicited_or_failed_completion() {
    let mut machine = Machine::new(Stalls::None, 10);
    machine.make_event_queue(1, 0);
    machine.make_completion_queue(0, 0, 0);
    let good = CompletionStatus::Success;
    machine.read(0, 0, Arm::Solicited);
    machine.sources[0].push(token(0, 0, good, false));
    machine.run(50);
    assert!(machine.events().is_empty());
    machine.sources[0].push(token(0, 1, good, true));
    machine.run(50);
    assert_eq!(machine.events().len(), 1);
    // The solicited one is read: the next that is not solicited does not match.
    machine.read(0, 2, Arm::Solicited);
    machine.sources[0].push(token(0, 2, good, false));
    machine.run(50);
    assert!(machine.events().is_empty());
    machine.sources[0].push(token(0, 3, CompletionStatus::Flushed, false));
    machine.run(50);
    assert_eq!(machine.events().len(), 1);
    // An armed `next` is not weakened.
    machine.read(0, 4, Arm::Next);
    machine.read(0, 4, Arm::Solicited);
    machine.sources[0].push(token(0, 4, good, false));
    machine.run(50);
    assert_eq!(machine.events().len(), 1);
    // A solicited completion that is unread when it is armed counts.
    machine.sources[0].push(token(0, 5, good, true));
    machine.sources[0].push(token(0, 6, good, false));
    machine.run(50);
    machine.read(0, 5, Arm::Solicited);
    machine.run(50);
    assert_eq!(machine.events().len(), 1);
    machine.read(0, 6, Arm::Solicited);
    machine.run(50);
    assert!(machine.events().is_empty(), "the solicited one was read");
}

#[test]
fn moderation_waits_for_the_count_or_the_period() {
    let mut machine = Machine::new(Stalls::None, 10);
    machine.make_event_queue(1, 0);
    machine.make_completion_queue(0, 4, 0);
    machine.make_completion_queue(1, 4, 3);
    let good = CompletionStatus::Success;
    machine.read(0, 0, Arm::Next);
    machine.read(1, 0, Arm::Next);
    for wr_id in 0..3 {
        machine.sources[0].push(token(0, wr_id, good, false));
        machine.sources[1].push(token(1, wr_id, good, false));
    }
    machine.run(500);
    assert!(machine.events().is_empty(), "neither count nor period is reached");
    machine.run(700);
    let events = machine.events();
    assert_eq!(events.len(), 1, "the period has passed");
    assert_eq!((events[0].1.object_number, events[0].1.detail), (1, 3));
    machine.sources[0].push(token(0, 3, good, false));
    machine.run(50);
    let events = machine.events();
    assert_eq!((events[0].1.object_number, events[0].1.detail), (0, 4));
}

#[test]
fn a_full_queue_is_never_overwritten_and_fails_its_queue_pairs() {
    let mut machine = Machine::new(Stalls::Both, 10);
    machine.make_event_queue(0, 1);
    machine.make_completion_queue(3, 0, 0);
    machine.make_completion_queue(4, 0, 0);
    let good = CompletionStatus::Success;
    for wr_id in 0..u64::from(ENTRIES) + 3 {
        machine.sources[0].push(token(3, wr_id, good, false));
        machine.sources[1].push(token(4, wr_id.min(5), good, false));
        machine.run(10);
        machine.read(4, wr_id as u32, Arm::Keep);
    }
    machine.run(400);
    let completions = machine.completions();
    assert_eq!(completions.iter().filter(|(address, _)| address >> 12 == COMPLETION_PAGE + 3).count(), 64);
    assert_eq!(completions.len(), 64 + 67, "the other queue runs on");
    let events = machine.events();
    assert_eq!(events.len(), 1, "it is reported once");
    assert_eq!(events[0].0, 0);
    assert_eq!(
        (events[0].1.kind, events[0].1.code),
        (EventKind::Asynchronous, AsyncEvent::CompletionQueueError)
    );
    assert_eq!(events[0].1.object_number, 3);
    assert_eq!(machine.failed, [64, 65, 66]);
    assert_eq!(machine.pulses["completion_queue_overrun"], 3);
    // Made anew, it works again.
    machine.make_completion_queue(3, 0, 0);
    machine.sources[0].push(token(3, 9, good, false));
    machine.run(60);
    let completions = machine.completions();
    assert_eq!(completions, [((COMPLETION_PAGE + 3) << 12, expected(9, good, false, true))]);
}

/// The event of an answer, with a number.
fn answer(number: u64) -> EqeToken {
    EqeToken {
        object_number: bits(0),
        detail: bits(number),
        kind: bits(EventKind::AdminAnswer as u64),
        code: bits(0),
    }
}

#[test]
fn a_refused_cqe_ends_its_queue_and_no_other() {
    let good = CompletionStatus::Success;
    for stalls in Stalls::ALL {
        let mut machine = Machine::new(stalls, 200);
        machine.make_event_queue(0, 1);
        machine.make_completion_queue(3, 0, 0);
        machine.make_completion_queue(4, 0, 0);
        machine.refuses = vec![COMPLETION_PAGE + 3];
        // Eight CQEs of queue 3 are in flight at once; so are those of queue 4.
        for wr_id in 0..8 {
            machine.sources[0].push(token(3, wr_id, good, false));
            machine.sources[1].push(token(4, 100 + wr_id, good, false));
        }
        machine.run(900);
        assert_eq!(machine.failed, (0..8).collect::<Vec<_>>(), "each lost CQE fails its queue pair");
        assert_eq!(machine.pulses["completions_written"], 16, "they were in flight");
        assert_eq!(machine.pulses["completion_queue_overrun"], 0);
        // Later CQEs are not written, though the host would take them.
        machine.refuses.clear();
        for wr_id in 8..11 {
            machine.sources[0].push(token(3, wr_id, good, false));
            machine.sources[1].push(token(4, 100 + wr_id, good, false));
        }
        machine.run(900);
        assert_eq!(machine.failed, (0..11).collect::<Vec<_>>());
        assert_eq!(machine.pulses["completion_queue_overrun"], 3);
        let completions = machine.completions();
        let other = |index: u64| {
            let address = ((COMPLETION_PAGE + 4) << 12) + index * 32;
            (address, expected(100 + index, good, false, true))
        };
        assert_eq!(completions, (0..11).map(other).collect::<Vec<_>>(), "the other queue runs on");
        let events = machine.events();
        let [(queue, event)] = events[..] else { panic!("{events:?}: it is reported once") };
        assert_eq!((queue, event.object_number), (0, 3));
        assert_eq!((event.kind, event.code), (EventKind::Asynchronous, AsyncEvent::CompletionQueueError));
        assert!(machine.bench.block.is_idle.val());
    }
}

#[test]
fn a_queue_that_is_made_anew_outlives_a_refused_cqe_of_the_one_before() {
    let good = CompletionStatus::Success;
    let mut machine = Machine::new(Stalls::None, 1);
    machine.make_event_queue(0, 1);
    machine.make_completion_queue(3, 0, 0);
    machine.delay = 400;
    machine.refuses = vec![COMPLETION_PAGE + 3];
    for wr_id in 0..4 {
        machine.sources[0].push(token(3, wr_id, good, false));
    }
    machine.run(20);
    assert_eq!((machine.pulses["completions_written"], machine.undone.len()), (4, 4), "all are in flight");
    machine.refuses.clear();
    machine.make_completion_queue(3, 0, 0);
    machine.run(900);
    assert!(machine.undone.is_empty() && machine.failed.is_empty() && machine.events().is_empty());
    machine.sources[0].push(token(3, 9, good, false));
    machine.run(450);
    let completions = machine.completions();
    assert_eq!(completions, [((COMPLETION_PAGE + 3) << 12, expected(9, good, false, true))]);
}

#[test]
fn refused_cqes_wait_while_nothing_leaves() {
    let mut machine = Machine::new(Stalls::None, 1);
    machine.make_event_queue(0, 1);
    machine.make_completion_queue(3, 0, 0);
    // Control takes no notice and the host no write; it refuses those that it has.
    let owner = |index| CqeOwner {
        completion_queue: bits(3),
        life: bits(1),
        queue_pair: bits(index),
        generation: bits(7),
    };
    for index in 0..1000 {
        let block = &mut machine.bench.block;
        block.refused.valid.next = true;
        block.refused.value.next = owner(index);
        block.failure.ready.next = false;
        block.write.ready.next = false;
        machine.bench.tick();
    }
    machine.run(3200);
    assert_eq!(machine.failed, (0..1000).collect::<Vec<_>>());
    assert_eq!(machine.events().len(), 1);
}

#[test]
fn lost_events_are_counted_and_told_when_software_has_read_others() {
    let mut machine = Machine::new(Stalls::None, 10);
    machine.make_event_queue(0, 1);
    (0..u64::from(ENTRIES) + 3).for_each(|number| machine.events.push(answer(number)));
    machine.run(600);
    let events = machine.events();
    assert_eq!(events.len(), 64);
    assert!(events.iter().all(|(queue, event)| *queue == 0 && event.kind == EventKind::AdminAnswer));
    assert_eq!(machine.pulses["event_queue_overrun"], 3);
    // One is read: there is room for the EQE that tells.
    machine.read_events(0, 1, false);
    machine.run(200);
    let lost = |detail, phase| Eqe { detail, kind: EventKind::EventsLost, phase, ..Eqe::at_reset() };
    assert_eq!(machine.events(), [(0, lost(3, false))]);
    assert!(machine.raised.is_empty(), "the queue is not armed");
    // The queue is full again, and one more is lost. Software reads all, and arms: the interrupt comes.
    machine.events.push(answer(7));
    machine.run(100);
    assert!(machine.events().is_empty());
    machine.read_events(0, ENTRIES + 1, true);
    machine.run(200);
    assert_eq!(machine.events(), [(0, lost(1, false))]);
    assert_eq!(machine.raised, [1]);
    // It is told once, and the queue goes on as before.
    machine.read_events(0, ENTRIES + 2, true);
    machine.run(200);
    machine.events.push(answer(8));
    machine.run(100);
    let events = machine.events();
    let [(0, event)] = events[..] else { panic!("{events:?}") };
    assert_eq!((event.kind, event.detail, event.phase), (EventKind::AdminAnswer, 8, false));
    assert_eq!(machine.raised, [1, 1]);
    assert_eq!(machine.pulses["event_queue_overrun"], 4);
    assert_eq!(machine.pulses["events_written"], 67);
}

#[test]
fn every_event_is_written_or_told_as_lost_whenever_software_reads() {
    for stalls in Stalls::ALL {
        let mut machine = Machine::new(stalls, 20);
        machine.make_event_queue(0, 1);
        let (mut sent, mut found, mut lost, mut next) = (0, 0, 0, 0);
        let (mut written, mut read) = (0u32, 0u32);
        for round in 0..62 {
            let is_last = round >= 60;
            if !is_last {
                for _ in 0..machine.random.random_range(0..30) {
                    machine.events.push(answer(sent));
                    sent += 1;
                }
            }
            let cycles = if is_last { 800 } else { machine.random.random_range(0..150) };
            machine.run(cycles);
            for (queue, event) in machine.events() {
                assert_eq!((queue, event.phase), (0, phase(written, LOG2 as u32)));
                written += 1;
                assert!(written - read <= ENTRIES, "an unread event is overwritten");
                match event.kind {
                    EventKind::EventsLost => lost += u64::from(event.detail),
                    _ => {
                        assert!(u64::from(event.detail) >= next, "events keep their order");
                        next = u64::from(event.detail) + 1;
                        found += 1;
                    }
                }
            }
            let unread = written - read;
            let some = if is_last { unread } else { machine.random.random_range(0..=unread / 2) };
            read += some;
            let arms = machine.random.random();
            if some > 0 || arms {
                machine.read_events(0, read, arms);
            }
        }
        assert!(lost > 30, "{lost} events were lost");
        assert_eq!(lost, machine.pulses["event_queue_overrun"]);
        assert_eq!(sent, found + lost, "stalls: {stalls:?}");
    }
}

#[test]
fn arming_and_polling_without_reading_events_loses_none() {
    let mut machine = Machine::new(Stalls::None, 10);
    machine.make_event_queue(0, 3);
    (2..4).for_each(|queue| machine.make_completion_queue_on(0, queue, 0, 0));
    let good = CompletionStatus::Success;
    for index in 0..300u32 {
        machine.read(2, index, Arm::Next);
        machine.sources[0].push(token(2, index.into(), good, false));
        machine.run(40);
    }
    machine.read(3, 0, Arm::Next);
    machine.sources[0].push(token(3, 0, good, false));
    machine.run(500);
    let completions = machine.completions();
    assert_eq!(completions.len(), 301, "CQEs do not wait for events");
    let events = machine.events();
    assert_eq!(events.len() as u32, ENTRIES / 2, "the other half is kept for asynchronous events");
    assert!(events.iter().all(|(_, event)| (event.kind, event.object_number) == (EventKind::Completion, 2)));
    // Asynchronous events find room.
    (0..20).for_each(|number| machine.events.push(answer(number)));
    machine.run(400);
    assert_eq!(machine.events().len(), 20);
    // Software reads all and arms: each queue whose event has waited has one, and the interrupt comes.
    machine.read_events(0, ENTRIES / 2 + 20, true);
    machine.run(400);
    let mut events: Vec<_> =
        machine.events().iter().map(|(_, event)| (event.object_number, event.detail)).collect();
    events.sort();
    assert_eq!(events, [(2, 300), (3, 1)]);
    assert_eq!(machine.raised, [3]);
    assert_eq!(machine.pulses["event_queue_overrun"], 0);
    // It goes on as before.
    machine.read(2, 300, Arm::Next);
    machine.sources[0].push(token(2, 300, good, false));
    machine.run(100);
    assert_eq!(machine.events().len(), 1);
}

#[test]
fn a_queue_that_waited_at_a_reset_may_wait_again() {
    let mut machine = Machine::new(Stalls::None, 10);
    // Two CQEs make an event, so the event of one waits.
    machine.make_event_queue(1, 3);
    machine.make_completion_queue(1023, 2, 0);
    machine.read(1023, 0, Arm::Next);
    machine.sources[0].push(token(1023, 0, CompletionStatus::Success, false));
    machine.run(100);
    assert_eq!((machine.completions().len(), machine.events().len()), (1, 0));
    machine.bench.block.reset.next = true;
    machine.tick();
    machine.bench.block.reset.next = false;
    machine.done = 0;
    machine.run(1024);
    machine.make_event_queue(1, 3);
    machine.make_completion_queue(1023, 2, 0);
    machine.sources[0].push(token(1023, 1, CompletionStatus::Success, false));
    machine.run(100);
    // A queue that is armed while a CQE is unread waits for the next check.
    machine.read(1023, 0, Arm::Next);
    machine.run(100);
    assert_eq!((machine.completions().len(), machine.events().len()), (1, 1));
}

#[test]
fn completion_events_that_come_together_leave_room_for_others() {
    const QUEUES: u64 = 60;
    for stalls in Stalls::ALL {
        let mut machine = Machine::new(stalls, 20);
        machine.make_event_queue(1, 3);
        for queue in 0..QUEUES {
            machine.make_completion_queue(queue, 0, 0);
            machine.read(queue, 0, Arm::Next);
        }
        for queue in 0..QUEUES {
            machine.sources[(queue % 2) as usize].push(token(queue, 0, CompletionStatus::Success, false));
        }
        machine.run(3000);
        assert_eq!(machine.completions().len() as u64, QUEUES);
        let first = machine.events();
        let late = first.len() as u64 - u64::from(ENTRIES / 2);
        assert!(late < CROWDED_LATE, "{late} events came late");
        // Software reads a few at a time.
        let mut all = first;
        let mut read = 0;
        while read < all.len() {
            read = all.len().min(read + 7);
            machine.read_events(1, read as u32, false);
            machine.run(400);
            all.append(&mut machine.events());
        }
        let mut numbers: Vec<_> = all.iter().map(|(_, event)| u64::from(event.object_number)).collect();
        numbers.sort();
        assert!(numbers.into_iter().eq(0..QUEUES), "one event of each queue: {all:?}");
        assert_eq!(machine.pulses["event_queue_overrun"], 0);
    }
}

#[test]
fn masked_and_moderated_vectors_are_pending_and_raised_once() {
    let mut machine = Machine::new(Stalls::None, 4);
    machine.make_event_queue(0, 63);
    let event = EqeToken { object_number: bits(0), detail: bits(7), kind: bits(2), code: bits(0) };
    machine.bench.block.interrupt_mask.next = bits(1 << 63);
    for index in 0..2 {
        machine.read_events(0, index, true);
        machine.events.push(event);
        machine.run(100);
    }
    assert!(machine.raised.is_empty());
    assert_eq!(machine.bench.block.interrupt_pending.val(), bits(1 << 63));
    machine.bench.block.interrupt_mask.next = bits(0);
    machine.run(200);
    assert_eq!(machine.raised, [63]);
    assert_eq!(machine.bench.block.interrupt_pending.val(), bits(0));

    let block = &mut machine.bench.block;
    block.interrupt_moderation_write.next = true;
    block.interrupt_moderation_vector.next = bits(63);
    block.interrupt_moderation_period.next = bits(4);
    machine.tick();
    for index in 2..4 {
        machine.read_events(0, index, true);
        machine.events.push(event);
        machine.run(100);
    }
    assert_eq!(machine.raised.len(), 2, "the second one is held back");
    machine.run(1400);
    assert_eq!(machine.raised.len(), 3);
}
