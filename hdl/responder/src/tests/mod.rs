//! The responder as a whole, in lock step with its Verilog, against a model of the protocol.
mod atomic_responses;
mod atomics;
mod invalidate;
mod machine;
mod messages;
mod model;
mod read_responder;
mod rq_prefetch;

use machine::Machine;
use model::{Arriving, Attributes, Model, Owed, Region, Request, Shared, Work, own_address};
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Random, Stalls};
use rnic_layout::opcode::Operation;
use rnic_layout::queue::receive::ReceiveWqe;
use rnic_layout::state::{PathMtu, QpState};
use rnic_messages::setup::{SetupKind, SrqSetupKind};

/// Seven queue pairs, of which the last two have a shared receive queue.
const QPNS: [u32; 7] = [0x5a_c003, 0x11_1103, 0x00_0203, 0xff_ff28, 0x12_37ff, 0x40_0005, 0x00_03fe];
/// Number of that shared receive queue.
const SHARED: u8 = 63;
/// Keys that peers may invalidate follow this number, which is no key.
const ENDING_KEY: u32 = 0x1_0000;
const FIRST_PSN: u32 = 0xff_fffe;

fn attributes(place: usize) -> Attributes {
    Attributes {
        qpn: QPNS[place],
        generation: 3,
        state: QpState::ReadyToReceive,
        peer: 0xffff_0a00_0001 + place as u128,
        own_place: 3 * place as u8 % 14,
        partition_key: 0xffff,
        domain: 7,
        pmtu_code: [
            PathMtu::Bytes1024,
            PathMtu::Bytes512,
            PathMtu::Bytes2048,
            PathMtu::Bytes4096,
            PathMtu::Bytes256,
            PathMtu::Bytes512,
            PathMtu::Bytes256,
        ][place] as u32,
        remote_write: true,
        remote_atomic: false,
        timer_code: 12 + place as u8,
        completion_queue: 5 + place as u16,
        ring: 0x40_0000 + 0x1_0000 * place as u64,
        entries_log2: if place == 1 { 7 } else { 6 },
        shared: (place >= 5).then_some(SHARED),
    }
}

/// The shared receive queue, with the number of settings of its limit.
fn shared(limit: u16, setting: u8) -> Shared {
    Shared { ring: 0x80_0000, entries_log2: 7, limit, setting, ..Shared::default() }
}

/// A packet of a peer; its PSN is the expected one if all packets before it are executed.
fn request(machine: &Machine, place: usize, operation: Operation, payload_bytes: u32) -> Request {
    let Attributes { qpn, peer, own_place, .. } = attributes(place);
    let psn = machine.model.queues.get(&((qpn & 0x3ff) as u16)).map_or(0, |queue| queue.expected);
    Request {
        opcode: operation as u8,
        qpn,
        psn,
        ack_request: true,
        solicited: false,
        partition_key: 0x7fff,
        peer,
        own: own_address(own_place),
        address: 0x7001,
        key: 0x142,
        length: payload_bytes,
        immediate: 0x0102_0304,
        payload_bytes,
        pad_mismatch: false,
        operand: 0,
        compare: 0,
    }
}

/// A receive WQE with SGEs of 100 bytes, of zero bytes, and of a page.
fn work(wr_id: u64) -> Work {
    let fields = ReceiveWqe {
        wr_id,
        sge_count: 3,
        sge0_address: 0x1_0000 + wr_id % 64 * 0x1000,
        sge0_key: 0x207,
        sge0_length: 100,
        sge1_key: 0xdead,
        sge2_address: 0x8_0001,
        sge2_key: 0x142,
        sge2_length: 4096,
        ..ReceiveWqe::at_reset()
    };
    Work { fields, is_malformed: false, is_unreadable: false }
}

/// The packets of a message, one after the other; each has the PSN that is expected when it is offered. The
/// last may have immediate data.
fn message(machine: &mut Machine, place: usize, first: Operation, bytes: u32, with_immediate: bool) {
    use Operation::{
        SendFirst, SendLast, SendLastImmediate, SendMiddle, WriteLast, WriteLastImmediate, WriteMiddle,
    };
    let pmtu = attributes(place).pmtu_bytes();
    let (middle, last) = match (first == SendFirst, with_immediate) {
        (true, false) => (SendMiddle, SendLast),
        (true, true) => (SendMiddle, SendLastImmediate),
        (false, false) => (WriteMiddle, WriteLast),
        (false, true) => (WriteMiddle, WriteLastImmediate),
    };
    let mut left = bytes;
    while left > 0 {
        let operation = match (left == bytes, left > pmtu) {
            (true, true) => first,
            (false, true) => middle,
            _ => last,
        };
        let payload = left.min(pmtu);
        send(machine, |machine| {
            let packet = request(machine, place, operation, payload);
            Request { length: bytes, ack_request: left <= pmtu, ..packet }
        });
        left -= payload;
    }
}

/// Offers a packet when the one before it is taken.
fn send(machine: &mut Machine, make: impl FnOnce(&Machine) -> Request) {
    while !machine.may_offer() {
        machine.step();
    }
    let request = make(machine);
    machine.offer(request);
    machine.step();
}

fn connected(stalls: Stalls) -> Machine {
    let mut machine = Machine::new(stalls);
    machine.share(SrqSetupKind::Restart, SHARED, &shared(0, 1));
    for place in 0..QPNS.len() {
        machine.connect(attributes(place), FIRST_PSN);
    }
    while machine.is_commanding() {
        machine.step();
    }
    machine
}

fn post(machine: &mut Machine, place: usize, works: &[Work]) {
    machine.post(attributes(place).index(), works);
    machine.step();
}

/// Cycles from each command to the next.
fn steps(machine: &Machine, from: usize) -> Vec<u64> {
    machine.placed[from..].windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
}

#[test]
fn one_packet_of_each_kind_is_placed_completed_and_acknowledged() {
    use Operation::{SendOnly, SendOnlyImmediate, WriteOnly, WriteOnlyImmediate};
    let mut machine = connected(Stalls::None);
    machine.command(SetupKind::Probe, attributes(2), 0);
    machine.run(20);
    assert_eq!(machine.bench.block.probed.val(), rnic_kernel::prelude::bits(FIRST_PSN.into()));
    post(&mut machine, 0, &[work(0x11), work(0x22), work(0x33), work(0x44)]);
    machine.run(40);
    for (operation, bytes) in
        [(WriteOnly, 300), (SendOnly, 150), (SendOnlyImmediate, 0), (WriteOnlyImmediate, 8)]
    {
        send(&mut machine, |machine| request(machine, 0, operation, bytes));
    }
    machine.settle();
    let commands: Vec<_> = machine.placed.iter().map(|placed| placed.1.clone()).collect();
    assert_eq!(commands[0].spans, [(0x7001 | 1 << 40, 300)]);
    assert_eq!(commands[1].spans, [(0x2_1000 | 1 << 40, 100), (0x8_0001 | 1 << 40, 50)]);
    let tags: Vec<_> =
        commands.iter().map(|command| command.completion.map(|completion| completion.wr_id)).collect();
    assert_eq!(tags, [None, Some(0x11), Some(0x22), Some(0x33)]);
    let (_, _, last) = *machine.replied.last().unwrap();
    assert_eq!(last, Owed { syndrome: 0x1f, psn: 1, msn: 4 }, "the newest acknowledgement covers all");

    // A WRITE in three cycles, and a SEND in four.
    let from = machine.placed.len();
    for _ in 0..30 {
        send(&mut machine, |machine| request(machine, 3, WriteOnly, 64));
    }
    machine.settle();
    let writes = steps(&machine, from);
    // The sweep over the queue pairs takes three cycles after sixteen packets.
    assert!(writes.iter().sum::<u64>() <= 3 * 29 + 2 * 3, "{writes:?}");
    let works: Vec<_> = (0..61).map(work).collect();
    post(&mut machine, 0, &works);
    machine.run(300);
    let from = machine.placed.len();
    for _ in 0..40 {
        send(&mut machine, |machine| request(machine, 0, SendOnly, 64));
    }
    machine.settle();
    let sends = steps(&machine, from);
    // The region table answers in the next cycle here.
    let offered = machine.cycle;
    send(&mut machine, |machine| request(machine, 3, WriteOnly, 64));
    machine.settle();
    let latency = machine.placed.last().unwrap().0 - offered;
    println!("a WRITE in {writes:?}, a SEND in {sends:?} cycles, and {latency} to the command");
    assert!(latency <= 17, "{latency} cycles");
    assert!(sends.iter().sum::<u64>() <= 4 * 39, "{sends:?}");
}

/// Traffic of many peers, with faults of peers and of software that posts receive WQEs.
struct Traffic {
    /// One packet in this many has a fault that fails the queue pair.
    fault_rate: u32,
    /// Queue pairs may be reset while packets are in flight.
    resets: bool,
    wr_id: u64,
    /// Cycle in which a queue pair is recreated.
    due: [Option<u64>; QPNS.len()],
}

impl Traffic {
    fn new(fault_rate: u32, resets: bool) -> Self {
        Traffic { fault_rate, resets, wr_id: 0x100, due: [None; QPNS.len()] }
    }

    /// A receive WQE, sometimes with a fault.
    fn work(&mut self, random: &mut Random) -> Work {
        self.wr_id += 1;
        let count = random.random_range(1..=3);
        let mut length = || [0, 60, 400, 5000].choose(random).copied().unwrap();
        let lengths = [length(), length(), length()];
        let good = [0x142, 0x207];
        // Faults are a reserved bit, a WQE that may be too short, and a key without write permission; many are
        // never used.
        let fault = random.random_ratio(3, self.fault_rate).then(|| random.random_range(0..5));
        let is_short = fault == Some(1);
        let mut key = || if fault >= Some(2) { 0x307 } else { *good.choose(random).unwrap() };
        let fields = ReceiveWqe {
            wr_id: self.wr_id,
            sge_count: count,
            sge0_address: 0x1_0000 + self.wr_id,
            sge0_key: key(),
            sge0_length: lengths[0],
            sge1_address: 0x2_0000 + self.wr_id,
            sge1_key: key(),
            sge1_length: if count == 2 && !is_short { 30_000 } else { lengths[1] },
            sge2_address: 0x3_0000 + self.wr_id,
            sge2_key: key(),
            sge2_length: if count == 3 && !is_short { 30_000 } else { lengths[2] },
        };
        let fields =
            if count == 1 && !is_short { ReceiveWqe { sge0_length: 1 << 31, ..fields } } else { fields };
        Work { fields, is_malformed: fault == Some(0), is_unreadable: false }
    }

    /// Posts a few WQEs. Unreadable WQEs fill whole lines of the ring, so that the result does not depend on
    /// how lines are read.
    fn post(&mut self, machine: &mut Machine, place: usize) {
        let index = attributes(place).index();
        let Some(queue) = machine.model.queues.get(&index) else { return };
        if machine.is_commanding() || queue.attributes.state == QpState::Reset {
            return;
        }
        if let Some(number) = queue.attributes.shared {
            return self.post_shared(machine, number);
        }
        // Software knows what has completed; the model is ahead of it.
        let done = machine.placed.iter().rev().find_map(|(_, command)| {
            let is_mine = command.queue_pair == index && command.generation == queue.attributes.generation;
            command.completion.filter(|_| is_mine).map(|completion| completion.consumer_index)
        });
        let (written, done) = (queue.written, done.unwrap_or(0));
        let free = (1 << queue.attributes.entries_log2) - written.wrapping_sub(done);
        let count = free.min(machine.random.random_range(1..24));
        if count == 0 {
            return;
        }
        let is_last_bad = written % 8 > 0 && queue.works[&(written - 1)].is_unreadable;
        let mut is_bad = is_last_bad;
        let works: Vec<_> = (0..count)
            .map(|ahead| {
                if (written + ahead).is_multiple_of(8) {
                    is_bad = machine.random.random_ratio(1, 2 * self.fault_rate);
                }
                Work { is_unreadable: is_bad, ..self.work(&mut machine.random) }
            })
            .collect();
        machine.post(index, &works);
    }

    /// The same for a shared receive queue, whose limit is set sometimes.
    fn post_shared(&mut self, machine: &mut Machine, number: u8) {
        let shared = &machine.model.shared[&number];
        let (written, setting) = (shared.written, shared.setting);
        // So few that sometimes none is posted.
        let free = 24_u16.saturating_sub(written.wrapping_sub(shared.done));
        let is_last_bad = written % 8 > 0 && shared.works[&written.wrapping_sub(1)].is_unreadable;
        let mut is_bad = is_last_bad;
        let count = free.min(machine.random.random_range(1..24));
        let works: Vec<_> = (0..count)
            .map(|ahead| {
                if written.wrapping_add(ahead).is_multiple_of(8) {
                    is_bad = machine.random.random_ratio(1, 2 * self.fault_rate);
                }
                Work { is_unreadable: is_bad, ..self.work(&mut machine.random) }
            })
            .collect();
        if !works.is_empty() {
            machine.post_shared(number, &works);
        }
        if machine.random.random_ratio(1, 4) {
            let limit = machine.random.random_range(0..40);
            machine.share(SrqSetupKind::Limit, number, &self::shared(limit, setting.wrapping_add(1)));
        }
    }

    /// The next packet of a message, or the first of a new one.
    fn good_request(machine: &mut Machine, place: usize) -> Request {
        use Operation::{
            SendFirst, SendLast, SendLastImmediate, SendMiddle, SendOnly, SendOnlyImmediate, WriteFirst,
            WriteLast, WriteLastImmediate, WriteMiddle, WriteOnly, WriteOnlyImmediate,
        };
        let pmtu = attributes(place).pmtu_bytes();
        let index = attributes(place).index();
        let arriving = machine.model.queues.get(&index).and_then(|queue| queue.arriving);
        let random = &mut machine.random;
        let operations: &[Operation];
        let (mut payload, mut length) = (pmtu, 0);
        match arriving {
            None if random.random_ratio(1, 3) => {
                operations = &[SendFirst, SendFirst, WriteFirst];
                length = random.random_range(pmtu + 1..=4 * pmtu);
            }
            None => {
                operations =
                    &[WriteOnly, WriteOnly, SendOnly, SendOnly, SendOnlyImmediate, WriteOnlyImmediate];
                payload = [0, 1, 64, 100, pmtu - 1, pmtu].choose(random).copied().unwrap();
                length = payload;
            }
            Some(Arriving::Send { bytes }) if bytes < 20_000 && random.random_ratio(2, 3) => {
                operations = &[SendMiddle];
            }
            Some(Arriving::Send { .. }) => {
                operations = &[SendLast, SendLastImmediate];
                payload = [1, 77, pmtu].choose(random).copied().unwrap();
            }
            Some(Arriving::Write { length, bytes, .. }) if length - bytes > pmtu => {
                operations = &[WriteMiddle];
            }
            Some(Arriving::Write { length, bytes, .. }) => {
                operations = &[WriteLast, WriteLastImmediate];
                payload = length - bytes;
            }
        }
        let operation = operations.choose(random).copied().unwrap();
        Request { length, ..request(machine, place, operation, payload) }
    }

    /// The same with keys that are invalidated: used by some WRITEs, and invalidated by some SENDs.
    fn with_keys(model: &Model, random: &mut Random, good: Request) -> Request {
        use Operation as Op;
        let ends = model.regions.iter().filter(|region| region.invalidatable);
        let keys: Vec<u32> = ends.map(|region| region.key).collect();
        // A key that is valid, invalid, not yet valid, or never invalidated.
        let mut draw = |wrong| match keys.choose(random) {
            Some(&key) if !random.random_ratio(1, wrong) => key,
            _ => *[0x142, ENDING_KEY, ENDING_KEY + 0x100, 0].choose(random).unwrap(),
        };
        let operations = [
            (Op::SendOnlyImmediate, Op::SendOnlyInvalidate),
            (Op::SendLastImmediate, Op::SendLastInvalidate),
        ];
        if let Some((_, ending)) = operations.iter().find(|(plain, _)| *plain as u8 == good.opcode) {
            let immediate = draw(4);
            return if immediate % 3 == 0 {
                good
            } else {
                Request { opcode: *ending as u8, immediate, ..good }
            };
        }
        let key = draw(60);
        if key % 3 == 0 { good } else { Request { key, ..good } }
    }

    /// A region is registered again, under another key.
    fn renew(&mut self, machine: &mut Machine) {
        let count = machine.model.regions.iter().filter(|region| region.invalidatable).count();
        if count < 6 {
            self.wr_id += 1;
            let key = ENDING_KEY + 0x200 + (self.wr_id as u32) * 0x101;
            let region = Region { key, invalidatable: true, ..machine.model.regions[0] };
            machine.model.regions.push(region);
        }
    }

    fn request(&mut self, machine: &mut Machine) -> Request {
        use Operation::{ReadRequest, WriteOnly};
        // Mostly a queue pair that is ready.
        let mut place = 0;
        for _ in 0..4 {
            place = machine.random.random_range(0..QPNS.len());
            if machine.lives[&attributes(place).index()].state != QpState::Error {
                break;
            }
        }
        let good = Self::good_request(machine, place);
        let (pmtu, payload) = (attributes(place).pmtu_bytes(), good.payload_bytes);
        let random = &mut machine.random;
        let good = Request {
            ack_request: random.random(),
            solicited: random.random(),
            immediate: random.random(),
            address: 0x1000 + random.random_range(0..0x1000),
            ..good
        };
        let good = if self.resets { good } else { Self::with_keys(&machine.model, random, good) };
        if random.random_ratio(1, self.fault_rate) {
            return match random.random_range(0..11) {
                10 => Request { pad_mismatch: true, ..good },
                0 | 1 => Request { opcode: random.random_range(0..0x18), ..good },
                2 => Request { length: good.length + 1, ..good },
                3 => Request { payload_bytes: pmtu + 1, length: good.length.max(pmtu + 1), ..good },
                4 => Request { payload_bytes: 0, ..good },
                5 => Request { payload_bytes: payload.saturating_sub(1), ..good },
                6 => Request { key: 0x143, ..good },
                7 => Request { key: 0x207, ..good },
                8 => Request { address: 0x10_1000 - u64::from(good.length) + 1, ..good },
                _ => Request { address: u64::MAX - 3, ..good },
            };
        }
        let shifted = |distance: u32| Request { psn: good.psn.wrapping_add(distance) & 0xff_ffff, ..good };
        match random.random_range(0..60) {
            0 => Request { qpn: good.qpn ^ 0x400, ..good },
            1 => Request { qpn: 0x77, ..good },
            2 => Request {
                partition_key: [0, 0x8000, 0x7ffe, 0xfffe].choose(random).copied().unwrap(),
                ..good
            },
            3 => match random.random_range(0..3) {
                0 => Request { peer: good.peer + 1, ..good },
                1 => Request { own: good.own + 1, ..good },
                _ => Request { own: own_address(random.random_range(0..16)), ..good },
            },
            4 => Request { opcode: good.opcode | [0x20, 0x60, 0xa0].choose(random).unwrap(), ..good },
            5..9 => shifted(random.random_range(1..4)),
            9 => shifted(0x7f_ffff),
            10..14 => shifted(u32::MAX - random.random_range(0..4)),
            14 => shifted(0x80_0000),
            15 => Request { opcode: ReadRequest as u8, ..shifted(u32::MAX) },
            // A WRITE of zero bytes needs no key.
            16 => {
                Request { opcode: WriteOnly as u8, payload_bytes: 0, length: 0, key: 0, address: 0, ..good }
            }
            17 => Request { address: 0x10_1000 - u64::from(good.length), ..good },
            _ => good,
        }
    }

    fn step(&mut self, machine: &mut Machine) {
        // Periods with and without traffic.
        let rate = if (machine.cycle / 400).is_multiple_of(2) { 16 } else { 2 };
        if machine.may_offer() && machine.random.random_ratio(rate, 20) {
            self.renew(machine);
            let request = self.request(machine);
            machine.offer(request);
        }
        for place in 0..QPNS.len() {
            if machine.random.random_ratio(1, 80) && self.due[place].is_none() {
                self.post(machine, place);
            }
            let index = attributes(place).index();
            let life = machine.lives[&index];
            match self.due[place] {
                None if life.state == QpState::Error => {
                    self.due[place] = Some(machine.cycle + machine.random.random_range(60..200));
                }
                None if self.resets && machine.random.random_ratio(1, 400) => {
                    machine.loosen(index);
                    if machine.random.random() {
                        machine.command(SetupKind::Life, Attributes { state: QpState::Reset, ..life }, 0);
                    }
                    self.due[place] = Some(machine.cycle + machine.random.random_range(0..100));
                }
                Some(due) if machine.cycle >= due && (self.resets || machine.is_still(index)) => {
                    if self.resets {
                        machine.loosen(index);
                    }
                    let states = [QpState::ReadyToReceive, QpState::ReadyToSend, QpState::SendQueueDrain];
                    let state = states.choose(&mut machine.random).copied().unwrap();
                    let generation = life.generation.wrapping_add(1);
                    // Queue pair 3 sometimes accepts no WRITEs.
                    let remote_write = place != 3 || machine.random.random();
                    let psn = machine.random.random_range(0..1 << 24);
                    let again = Attributes { state, generation, remote_write, ..attributes(place) };
                    machine.connect(again, psn);
                    self.due[place] = None;
                }
                _ => {}
            }
        }
        machine.step();
    }
}

#[test]
fn many_peers_and_their_faults_are_answered_as_the_protocol_says() {
    let mut machine = connected(Stalls::Both);
    machine.write_failure_rate = 60;
    let mut traffic = Traffic::new(25, false);
    for _ in 0..9_000 {
        traffic.step(&mut machine);
    }
    machine.write_failure_rate = 0;
    machine.settle();
    let told = [
        "acknowledgements_sent",
        "nak_sequence_sent",
        "nak_invalid_request_sent",
        "nak_access_sent",
        "nak_operational_sent",
        "nak_rnr_sent",
    ];
    let dropped = ["unknown_qp", "qp_not_ready", "transport_mismatch", "partition_key", "source_address"];
    let others = ["duplicate_request", "duplicate_dropped", "request_gap", "requests_after_failure"];
    let refused = ["remote_protection", "local_protection", "work_refused"];
    let mut missing = Vec::new();
    for name in told.into_iter().chain(dropped).chain(others).chain(refused) {
        println!("{name}: {}", machine.count(name));
        if machine.count(name) == 0 {
            missing.push(name);
        }
    }
    println!("{} commands, {:?}", machine.placed.len(), machine.model.seen);
    let several = [
        "a SEND of several packets",
        "a WRITE of several packets",
        "a packet is refused inside a SEND",
        "a message waits for a receive WQE",
        "a limit is reached",
        "the last WQE is reported",
        "a key is invalidated",
        "a key must not be invalidated",
    ];
    missing.extend(several.into_iter().filter(|name| !machine.model.seen.contains_key(name)));
    assert!(missing.is_empty(), "{missing:?} never happened");
}

#[test]
fn packets_of_an_ended_generation_have_no_effect() {
    let mut machine = connected(Stalls::Both);
    machine.write_failure_rate = 100;
    let mut traffic = Traffic::new(100, true);
    for _ in 0..5_000 {
        traffic.step(&mut machine);
    }
    machine.write_failure_rate = 0;
    machine.settle();
    assert!(machine.count("stale_dropped") > 0, "no reply was stale");
}

#[test]
fn a_stalled_output_blocks_no_other() {
    use Operation::{SendOnly, WriteOnly};
    let mut machine = connected(Stalls::None);
    let works: Vec<_> = (0..20).map(work).collect();
    for place in [0, 1, 2] {
        post(&mut machine, place, &works);
    }
    // Commands are taken whatever output is stalled. The machine checks how long that may take.
    for stopped in 0..4 {
        let holds = |machine: &mut Machine, held| match stopped {
            0 => machine.holds_place = held,
            1 => machine.holds_answers = held,
            2 => machine.holds_reads = held,
            _ => machine.holds_writes = held,
        };
        holds(&mut machine, true);
        machine.holds_replies = stopped == 3;
        let mut turn = 0;
        for _ in 0..200 {
            if machine.may_offer() {
                let operation = if turn % 3 == 0 { SendOnly } else { WriteOnly };
                let request = request(&machine, turn % 3, operation, 200);
                machine.offer(request);
                turn += 1;
            }
            machine.step();
        }
        let state = if stopped % 2 == 0 { QpState::ReadyToSend } else { QpState::SendQueueDrain };
        for place in 0..QPNS.len() {
            machine.command(SetupKind::Life, Attributes { state, ..attributes(place) }, 0);
        }
        machine.run(60);
        assert!(!machine.is_commanding(), "setup waits for {stopped}");
        if stopped == 3 {
            // Received packets wait neither for replies that may not leave yet, nor for the transmit path.
            assert!(machine.may_offer());
            let replied = machine.replied.len();
            machine.holds_writes = false;
            machine.run(300);
            assert_eq!(machine.replied.len(), replied);
            machine.holds_replies = false;
        }
        holds(&mut machine, false);
        machine.settle();
    }

    // A doorbell that claims more than the ring has is ignored; the next one is not.
    let index = attributes(4).index();
    let works: Vec<_> = (0..64).map(work).collect();
    post(&mut machine, 4, &works);
    machine.ring(index, 65);
    machine.step();
    send(&mut machine, |machine| request(machine, 4, SendOnly, 64));
    machine.settle();
    assert_eq!(machine.replied.last().unwrap().2, Owed { syndrome: 0x20 | 16, psn: FIRST_PSN, msn: 0 });
    machine.ring(index, 64);
    machine.step();
    for _ in 0..3 {
        send(&mut machine, |machine| request(machine, 4, SendOnly, 64));
    }
    machine.settle();
    assert_eq!(machine.replied.last().unwrap().2, Owed { syndrome: 0x1f, psn: 0, msn: 3 });
}
