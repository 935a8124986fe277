//! The block beside its Verilog, and beside a model that knows when each timer was due.
use super::*;
use crate::messages::{ATTEMPT_BITS, TimerKind};
use crate::testing::event;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, Sink, Stalls, random};
use rnic_layout::state::QpState;
use rnic_messages::setup::SetupKind;

/// Cycles in which every queue pair is visited once.
const ROUND: u64 = 1 << QUEUE_PAIR_BITS;
/// Cycles after which a timer has expired at the latest, whatever its T.
const LATEST: u64 = 3584;

struct World {
    bench: Bench<AckTimer>,
    random: Random,
    sink: Sink<Expired>,
    cycle: u64,
}

impl World {
    fn new(unit: u64, stalls: Stalls) -> Self {
        let mut bench = Bench::clocked(AckTimer::default(), |block| &mut block.clock);
        bench.block.unit.next = bits(unit);
        World { bench, random: random(), sink: Sink::new(stalls), cycle: 0 }
    }

    fn in_lock_step(self) -> Self {
        World { bench: self.bench.in_lock_step(), ..self }
    }

    /// One cycle, at whose end the inputs are quiet again.
    fn tick(&mut self) -> Option<Expired> {
        self.sink.drive(&mut self.bench.block.expired, &mut self.random);
        self.bench.settle();
        let expired = self.sink.sample(&self.bench.block.expired);
        self.bench.tick();
        self.cycle += 1;
        let block = &mut self.bench.block;
        block.setup.valid.next = false;
        block.departed.next.valid = false;
        block.set.valid.next = false;
        expired
    }

    /// One cycle, whatever expires in it.
    fn idles(&mut self) {
        self.tick();
    }

    fn moves_to(&mut self, queue_pair: usize, state: QpState, generation: u8, timeout: u64) {
        let mut event = event(SetupKind::Life, queue_pair, state, generation);
        event.path.timeout = bits(timeout);
        self.bench.block.setup.beat.next = event;
        self.bench.block.setup.valid.next = true;
    }

    fn sends(&mut self, queue_pair: usize, generation: u8, next_psn: u64, epoch: u64) {
        self.bench.block.departed.next = Departed {
            queue_pair: bits(queue_pair as u64),
            generation: bits(generation.into()),
            next_psn: bits(next_psn),
            epoch: bits(epoch),
            valid: true,
        };
    }

    fn sets(&mut self, queue_pair: usize, order: TimerOrder) {
        self.bench.block.set.value.next = TimerSet { queue_pair: bits(queue_pair as u64), order };
        self.bench.block.set.valid.next = true;
    }

    /// A queue pair in RTS with a packet in flight; gives the cycle of the packet.
    fn begins(&mut self, queue_pair: usize, timeout: u64) -> u64 {
        self.moves_to(queue_pair, QpState::ReadyToSend, 1, timeout);
        self.sets(queue_pair, ack(6, 0));
        self.tick();
        self.sends(queue_pair, 1, 7, 0);
        self.tick();
        self.cycle
    }

    /// Runs up to an expiry, and gives it with its cycle.
    fn expires(&mut self, limit: u64) -> Option<(Expired, u64)> {
        (0..limit).find_map(|_| self.tick()).map(|expired| (expired, self.cycle))
    }
}

fn ack(una_psn: u64, attempt: u64) -> TimerOrder {
    in_epoch(0, una_psn, attempt)
}

fn in_epoch(epoch: u64, una_psn: u64, attempt: u64) -> TimerOrder {
    TimerOrder {
        kind: TimerKind::Ack,
        rnr_code: bits(0),
        una_psn: bits(una_psn),
        attempt: bits(attempt),
        epoch: bits(epoch),
    }
}

fn rnr_wait(code: u64, attempt: u64) -> TimerOrder {
    TimerOrder { kind: TimerKind::RnrWait, rnr_code: bits(code), ..ack(6, attempt) }
}

fn expiry(queue_pair: u64, order: TimerOrder) -> Expired {
    Expired {
        queue_pair: bits(queue_pair),
        generation: bits(1),
        kind: order.kind,
        una_psn: order.una_psn,
        attempt: order.attempt,
    }
}

/// From the first packet, and again from each expiry, at any phase of the round and of the unit.
#[test]
fn a_timer_expires_between_t_and_4t() {
    for (timeout, unit) in [(1, 1024), (1, 600), (2, 300), (3, 205), (5, 40), (9, 7), (13, 1), (15, 0)] {
        let mut world = World::new(unit, Stalls::None);
        let t = unit.max(1) << timeout;
        for queue_pair in [0, 5, 0x3ff] {
            (0..world.random.random_range(0..2 * ROUND)).for_each(|_| world.idles());
            let mut since = world.begins(queue_pair, timeout);
            for _ in 0..2 {
                let (expired, cycle) = world.expires(5 * t + LATEST).expect("the timer expires");
                assert_eq!(expired, expiry(queue_pair as u64, ack(6, 0)));
                let after = cycle - since;
                assert!(after >= t && after <= 4 * t && t >= 820, "timeout {timeout}: {after} of {t} cycles");
                since = cycle;
            }
            world.moves_to(queue_pair, QpState::Error, 1, timeout);
        }
    }
}

#[test]
fn a_timer_of_a_few_cycles_expires_within_three_and_a_half_rounds() {
    for (timeout, unit) in [(1, 1), (4, 3), (8, 2)] {
        let mut world = World::new(unit, Stalls::None);
        let since = world.begins(5, timeout);
        let (_, cycle) = world.expires(2 * LATEST).expect("the timer expires");
        assert!(cycle - since >= unit << timeout && cycle - since <= LATEST, "timeout {timeout}");
    }
}

#[test]
fn an_rnr_wait_is_as_long_as_its_code_says_and_not_much_longer() {
    for code in 0..32u8 {
        let units = rnr_units(code.into()).to_u64();
        let nanoseconds = u64::from(rnr_timer_us(code)) * 1000;
        assert!(units * 4096 >= nanoseconds && (units - 1) * 4096 < nanoseconds, "code {code}");
    }
    for (code, unit) in [(1, 300), (8, 25), (20, 1)] {
        let mut world = World::new(unit, Stalls::None);
        world.begins(5, 0);
        world.sets(5, rnr_wait(code, 0));
        world.tick();
        let since = world.cycle;
        let delay = rnr_units(code as usize).to_u64() * unit;
        let (expired, cycle) = world.expires(delay + LATEST).expect("the wait ends");
        assert_eq!(expired, expiry(5, rnr_wait(code, 0)));
        let after = cycle - since;
        assert!(after >= delay && after <= delay + 2 * ROUND + unit + 8, "code {code}: {after} of {delay}");
    }
}

#[test]
fn progress_a_retry_and_an_rnr_wait_start_the_timer_anew() {
    let (timeout, unit) = (3, 300);
    let t = unit << timeout;
    let mut world = World::new(unit, Stalls::None);
    world.begins(5, timeout);
    let mut order = ack(6, 0);
    for next in [ack(0xff_ffff, 0), ack(0xff_ffff, 1), rnr_wait(3, 2), ack(6, 3), ack(6, 4)] {
        assert_eq!(world.expires(t - 200), None, "{order:?} has not expired");
        world.sets(5, next);
        world.tick();
        order = next;
    }
    let since = world.cycle;
    let (expired, cycle) = world.expires(4 * t).expect("the timer expires");
    assert_eq!(expired, expiry(5, order));
    assert!(cycle - since >= t);
}

#[test]
fn a_timer_stops_when_nothing_is_awaited() {
    type Change = fn(&mut World);
    let changes: [Change; 11] = [
        |world| world.sets(5, ack(7, 0)),
        |world| world.sets(5, ack(8, 0)),
        |world| world.sets(5, in_epoch(1, 6, 0)),
        |world| world.sends(5, 1, 7, 255),
        |world| world.sets(5, TimerOrder { kind: TimerKind::Stop, ..ack(6, 0) }),
        |world| world.sends(5, 1, 6, 0),
        |world| world.sends(5, 0, 7, 0),
        |world| world.moves_to(5, QpState::Error, 1, 1),
        |world| world.moves_to(5, QpState::Reset, 2, 1),
        |world| world.moves_to(5, QpState::ReadyToSend, 2, 1),
        |world| world.moves_to(5, QpState::ReadyToSend, 1, 0),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut world = World::new(1024, Stalls::None);
        world.begins(5, 1);
        (0..1500).for_each(|_| world.idles());
        change(&mut world);
        assert_eq!(world.expires(4 * LATEST), None, "change {number}");
        // And runs again.
        let since = world.begins(5, 1);
        assert!(world.expires(4 * LATEST).expect("the timer expires").1 - since >= 2048, "change {number}");
    }
}

/// A packet may wait in the card for many times T, the first time and each time that it is sent again.
#[test]
fn the_timer_of_a_packet_that_waits_in_the_card_runs_from_its_departure() {
    let (timeout, unit) = (1, 1024);
    let t = unit << timeout;
    let mut world = World::new(unit, Stalls::None);
    world.moves_to(5, QpState::ReadyToSend, 1, timeout);
    for epoch in [254, 255, 0, 1] {
        world.sets(5, in_epoch(epoch, 6, epoch & 7));
        world.tick();
        // Packets of the epoch before leave meanwhile.
        for _ in 0..5 {
            assert_eq!(world.expires(t), None, "epoch {epoch}");
            world.sends(5, 1, 9, (epoch + 255) & 255);
        }
        assert_eq!(world.expires(4 * t), None, "epoch {epoch}");
        world.sends(5, 1, 7, epoch);
        world.tick();
        let since = world.cycle;
        let (expired, cycle) = world.expires(4 * t).expect("the timer expires");
        assert_eq!(expired, expiry(5, in_epoch(epoch, 6, epoch & 7)));
        assert!(cycle - since >= t, "epoch {epoch}: {} cycles", cycle - since);
    }
}

#[test]
fn every_queue_pair_expires_once_a_period_however_slow_the_taker_is() {
    let mut world = World::new(1024, Stalls::None).in_lock_step();
    for queue_pair in 0..ROUND as usize {
        world.moves_to(queue_pair, QpState::ReadyToSend, 1, 4);
        world.sets(queue_pair, ack(6, 0));
        world.sends(queue_pair, 1, 7, 0);
        world.tick();
    }
    let mut expired = vec![];
    while expired.len() < ROUND as usize {
        // Taken every twelve cycles.
        let block = &mut world.bench.block;
        block.expired.ready.next = world.cycle.is_multiple_of(12);
        world.bench.settle();
        let block = &world.bench.block;
        if block.expired.valid.val() && block.expired.ready.val() {
            expired.push(block.expired.beat.val().queue_pair.to_u64());
        }
        world.bench.tick();
        world.cycle += 1;
        assert!(world.cycle < 16 * 1024 + 4 * ROUND + 12 * ROUND, "they expire one after the other");
    }
    expired.sort_unstable();
    assert!(expired.into_iter().eq(0..ROUND), "each of them once");
}

#[test]
fn a_sweep_forgets_all_timers() {
    let mut world = World::new(100, Stalls::None).in_lock_step();
    for queue_pair in [0, 5, 0x3ff] {
        world.begins(queue_pair, 5);
    }
    world.sets(6, rnr_wait(1, 0));
    (0..ROUND).for_each(|_| world.idles());
    world.bench.block.reset.next = true;
    world.tick();
    world.bench.block.reset.next = false;
    world.bench.block.sweep.next.is_sweeping = true;
    for index in 0..ROUND {
        world.bench.block.sweep.next.index = bits(index);
        assert_eq!(world.tick(), None);
    }
    world.bench.block.sweep.next.is_sweeping = false;
    // What was sent and awaited before is forgotten, too.
    for queue_pair in [0, 5, 6, 0x3ff] {
        world.moves_to(queue_pair, QpState::ReadyToSend, 1, 5);
        world.tick();
    }
    assert_eq!(world.expires(4 * 3200 + LATEST), None);
}

/// What the model knows of a queue pair.
#[derive(Clone, Copy)]
struct Model {
    runs: bool,
    timeout: u64,
    generation: u8,
    sent_generation: u8,
    next_psn: u64,
    epoch: u64,
    order: TimerOrder,
    /// The last change of the above.
    since: u64,
    /// The last change or expiry: the timer expires no later than a period and two rounds after it.
    last: u64,
    /// The last order or expiry, if the path has not changed since: it expires no earlier than a period after it.
    started: Option<u64>,
}

impl Model {
    /// Cycles of the period, if something is awaited.
    fn period(&self, unit: u64) -> Option<u64> {
        let is_sent = self.sent_generation == self.generation && self.order.epoch == self.epoch;
        let is_outstanding = is_sent && self.next_psn > self.order.una_psn.to_u64();
        match self.order.kind {
            TimerKind::RnrWait => self.runs.then(|| rnr_units(self.order.rnr_code.index()).to_u64() * unit),
            TimerKind::Ack => {
                (self.runs && self.timeout != 0 && is_outstanding).then(|| unit << self.timeout)
            }
            TimerKind::Stop => None,
        }
    }
}

/// Few queue pairs, whose packets, acknowledgements, retries, waits and states change at random. No expiry is
/// early or without a cause, and none is missing.
#[test]
fn random_timers_expire_when_they_are_due() {
    const INDICES: [usize; 4] = [0, 1, 0x200, 0x3ff];
    let (mut expiries, mut waits) = (0, 0);
    for stalls in [Stalls::None, Stalls::Sink] {
        let unit = 30;
        let mut world = World::new(unit, stalls).in_lock_step();
        let mut models = [Model {
            runs: false,
            timeout: 0,
            generation: 0,
            sent_generation: 255,
            next_psn: 0,
            epoch: 0,
            order: TimerOrder::default(),
            since: 0,
            last: 0,
            started: None,
        }; 4];
        for _ in 0..120_000 {
            let place = world.random.random_range(0..4);
            let queue_pair = INDICES[place];
            let model = &mut models[place];
            if world.random.random_range(0..2000) == 0 {
                model.since = world.cycle;
                model.last = world.cycle;
                let random = &mut world.random;
                match random.random_range(0..10) {
                    0 => {
                        model.runs = !model.runs || random.random_range(0..4) > 0;
                        model.started = None;
                        let state = if model.runs { QpState::ReadyToSend } else { QpState::Error };
                        model.timeout = random.random_range(0..6);
                        model.generation += u8::from(random.random::<bool>());
                        let Model { generation, timeout, .. } = *model;
                        world.moves_to(queue_pair, state, generation, timeout);
                    }
                    1..6 => {
                        model.sent_generation = model.generation;
                        model.next_psn = random.random_range(0..6);
                        // The newest epoch, or the one before.
                        model.epoch = (model.order.epoch.to_u64()
                            + u64::from(random.random_range(0..8) == 0) * 255)
                            & 255;
                        let Model { generation, next_psn, epoch, .. } = *model;
                        world.sends(queue_pair, generation, next_psn, epoch);
                    }
                    _ => {
                        let [ack, wait, stop] = [TimerKind::Ack, TimerKind::RnrWait, TimerKind::Stop];
                        let kinds = [ack, ack, ack, ack, wait, stop];
                        let attempt = model.order.attempt + 1;
                        model.order = TimerOrder {
                            kind: *kinds.choose(random).unwrap(),
                            rnr_code: bits(random.random_range(1..8)),
                            una_psn: bits(random.random_range(0..3)),
                            attempt: attempt & ((1 << ATTEMPT_BITS) - 1),
                            epoch: model.order.epoch + u64::from(random.random_range(0..8) == 0),
                        };
                        model.started = Some(world.cycle);
                        let order = model.order;
                        world.sets(queue_pair, order);
                    }
                }
            }
            let expired = world.tick();
            for (place, model) in models.iter_mut().enumerate() {
                let is_it = expired.filter(|expired| expired.queue_pair == INDICES[place] as u64);
                let period = model.period(unit);
                let after = world.cycle - model.last;
                // A visit is under way for some cycles, and longer where `expired` waits.
                let is_settled = world.cycle - model.since > 64;
                if let Some(expired) = is_it {
                    let is_right = expired.una_psn == model.order.una_psn
                        && expired.attempt == model.order.attempt
                        && expired.kind == model.order.kind
                        && expired.generation == u64::from(model.generation);
                    assert!(is_right || !is_settled, "cycle {}: {expired:?}", world.cycle);
                    if is_settled {
                        let period = period.expect("something is awaited");
                        let is_early = model.started.is_some_and(|started| world.cycle - started < period);
                        assert!(!is_early, "cycle {}: {expired:?} is early", world.cycle);
                    }
                    model.started = model.started.map(|_| world.cycle);
                    expiries += 1;
                    waits += u32::from(expired.kind == TimerKind::RnrWait);
                    model.last = world.cycle;
                } else if let Some(period) = period {
                    let latest = period + 2 * ROUND + unit + 400;
                    assert!(after <= latest, "cycle {}: queue pair {place} has not expired", world.cycle);
                }
            }
        }
    }
    assert!(
        expiries > 30 && waits > 10 && expiries > waits + 10,
        "{expiries} expiries, {waits} of them of waits"
    );
}
