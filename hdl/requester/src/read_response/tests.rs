//! The block between models of segment, issue, a peer that may be wrong, the region table and the place stage;
//! all that it does is compared with a model that splits messages as the protocol does, byte by byte.
use super::*;
use crate::messages::Sge;
use crate::testing::event;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, random};
use rnic_layout::opcode::{Operation, Transport};
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::state::QpState;
use rnic_layout::syndrome::Syndrome;
use rnic_messages::host::HostSpan;
use rnic_messages::read::{READ_SLOT_BITS, ResponseNotice, read_place, share_slots};
use std::collections::VecDeque;

const INDICES: [usize; 3] = [0, 0x155, 0x3ff];
const READS_MAX: usize = 1 << READ_SLOT_BITS;

/// The region table; it refuses some keys and addresses.
fn access(request: &AccessRequest) -> AccessAnswer {
    assert!(request.local_write && !request.remote_read && !request.remote_write);
    let ok = !(request.key.to_u64() + (request.address.to_u64() >> 8)).is_multiple_of(61);
    AccessAnswer { ok, device_address: request.address ^ (1 << 63) }
}

fn psn_of(bits: Bits<24>) -> Psn {
    Psn::wrapping(bits.to_u64() as u32)
}

fn opcode(operation: Operation) -> Bits<8> {
    bits((Transport::Rc.base() | operation.code()).into())
}

/// A READ with its responses: the bytes before each, its own bytes, and its operation.
#[derive(Clone)]
struct Read {
    record: ReadRecord,
    parts: Vec<(u64, u64, Operation)>,
}

impl Read {
    fn new(record: ReadRecord) -> Self {
        let (length, pmtu) = (record.length.to_u64(), 128 << record.path_mtu.to_u64());
        let count = length.div_ceil(pmtu).max(1);
        let parts = (0..count).map(|number| {
            let before = number * pmtu;
            let operation = match (number == 0, number + 1 == count) {
                _ if record.is_atomic => Operation::AtomicAcknowledge,
                (true, true) => Operation::ReadResponseOnly,
                (true, false) => Operation::ReadResponseFirst,
                (false, false) => Operation::ReadResponseMiddle,
                (false, true) => Operation::ReadResponseLast,
            };
            (before, pmtu.min(length - before), operation)
        });
        Read { record, parts: parts.collect() }
    }

    /// Bytes of payload of a response with `bytes` of data.
    fn payload_bytes(&self, bytes: u64) -> u64 {
        if self.record.is_atomic { 0 } else { bytes }
    }

    fn first_psn(&self) -> Psn {
        psn_of(self.record.psn)
    }

    /// Where `bytes` of the message after the first `before` go.
    fn spans(&self, before: u64, bytes: u64) -> Vec<(Sge, u64)> {
        let mut spans = vec![];
        let mut start = 0;
        for sge in [self.record.first, self.record.second] {
            let end = start + sge.length.to_u64();
            let (from, to) = (before.max(start), (before + bytes).min(end));
            if from < to {
                spans.push((Sge { address: sge.address + (from - start), ..sge }, to - from));
            }
            start = end;
        }
        spans
    }
}

/// Operation of the response with which a READ begins that is requested again.
fn begun_anew(operation: Operation) -> Operation {
    match operation {
        Operation::ReadResponseMiddle => Operation::ReadResponseFirst,
        Operation::ReadResponseLast => Operation::ReadResponseOnly,
        other => other,
    }
}

/// Model of a queue pair.
struct Pair {
    index: usize,
    event: SetupEvent,
    /// READs that wait for data, and how many responses of the oldest one have come.
    reads: VecDeque<Read>,
    came: usize,
    /// The PSN after the last data.
    behind: Option<Psn>,
    has_failed: bool,
    /// A response was lost since the last data.
    is_reported: bool,
    /// The oldest READ was requested again.
    is_asked_again: bool,
    /// READs that are outstanding for wqe_parse, and the slot of the next one.
    held: VecDeque<Psn>,
    slot: u64,
    next_psn: Psn,
    /// The right responses of the peer.
    script: VecDeque<Response>,
}

struct World {
    bench: Bench<ReadResponse>,
    random: Random,
    setup: Source<SetupEvent>,
    opened: Source<IssuedRead>,
    response: Source<Response>,
    answer: Source<AccessAnswer>,
    request: Sink<AccessRequest>,
    place: Sink<ReadResponseCommand>,
    pairs: Vec<Pair>,
    /// READs that the sources offer, with their queue pairs, in order; none where READs are requested again.
    reads_offered: VecDeque<(usize, u8, Option<Read>)>,
    /// A READ that was written in the last cycle.
    written: Option<(usize, IssuedRead, Read)>,
    answers: VecDeque<(usize, AccessAnswer)>,
    commands: Vec<ReadResponseCommand>,
    statuses: std::collections::BTreeMap<(u64, [bool; 4]), usize>,
    counts: [usize; 4],
    counts_expected: [usize; 4],
    cycle: usize,
    place_stalls: bool,
    /// Requests that were made again.
    asked_again: usize,
}

impl World {
    fn new(stalls: Stalls) -> Self {
        let mut bench = Bench::clocked(ReadResponse::default(), |block| &mut block.clock).in_lock_step();
        bench.block.sweep.next.is_sweeping = true;
        for index in 0..1024 {
            bench.block.sweep.next.index = bits(index);
            bench.tick();
        }
        bench.block.sweep.next.is_sweeping = false;
        let mut random = random();
        let pairs = INDICES.map(|index| Pair {
            index,
            event: SetupEvent::default(),
            reads: VecDeque::new(),
            came: 0,
            behind: None,
            has_failed: false,
            is_reported: false,
            is_asked_again: false,
            held: VecDeque::new(),
            slot: 0,
            next_psn: Psn::wrapping(random.random_range(0xff_ff00..=0xff_ffff)),
            script: VecDeque::new(),
        });
        let mut world = World {
            bench,
            random,
            setup: Source::of_tokens([], stalls),
            opened: Source::of_tokens([], stalls),
            response: Source::of_tokens([], stalls),
            answer: Source::of_tokens([], stalls),
            request: Sink::new(stalls),
            place: Sink::new(stalls),
            pairs: pairs.into(),
            reads_offered: VecDeque::new(),
            written: None,
            answers: VecDeque::new(),
            commands: vec![],
            statuses: Default::default(),
            counts: [0; 4],
            counts_expected: [0; 4],
            cycle: 0,
            place_stalls: false,
            asked_again: 0,
        };
        (0..INDICES.len()).for_each(|number| world.says(number, SetupKind::Restart, QpState::ReadyToSend));
        world
    }

    fn says(&mut self, number: usize, kind: SetupKind, state: QpState) {
        let pair = &mut self.pairs[number];
        let generation = pair.event.generation.to_u64() as u8;
        let generation = generation.wrapping_add((kind == SetupKind::Restart).into());
        let mut event = event(kind, pair.index, state, generation);
        event.read_share.size = bits(1 + pair.index as u64 % 3);
        if kind == SetupKind::Restart {
            // What is still on its way from segment and issue keeps its slots.
            pair.script.clear();
        }
        self.setup.push(event);
        let said_at = self.cycle;
        while !self.setup.is_done() {
            self.step();
        }
        assert!(self.cycle <= said_at + 12, "{} cycles for an event", self.cycle - said_at);
    }

    /// Writes a READ; it is issued one cycle later.
    fn reads(&mut self, number: usize, length: u64, path_mtu: u64) {
        let random = &mut self.random;
        let pair = &mut self.pairs[number];
        let is_atomic = length == 8;
        let cut = if is_atomic || random.random() { 0 } else { random.random_range(0..=length) };
        let (first, second) = if cut == length { (length, 0) } else { (length - cut, cut) };
        let mut stretch = |length: u64| Sge {
            key: Stimulus::sample(random),
            address: bits(random.random_range(0..1 << 62)),
            length: bits(length),
        };
        let (first, mut second) = (stretch(first), stretch(second));
        if is_atomic {
            // Its operands.
            second.length = Stimulus::sample(random);
        }
        let record = ReadRecord {
            psn: bits(pair.next_psn.value().into()),
            length: bits(length),
            path_mtu: bits(path_mtu),
            domain: Stimulus::sample(random),
            is_atomic,
            first,
            second,
        };
        let read = Read::new(record);
        let generation = pair.event.generation;
        for (at, &(_, bytes, operation)) in read.parts.iter().enumerate() {
            pair.script.push_back(Response {
                queue_pair: bits(pair.index as u64),
                generation,
                is_good: true,
                is_data: true,
                opcode: opcode(operation),
                psn: bits(pair.next_psn.add(at as u32).value().into()),
                syndrome: bits(0x1f),
                payload_bytes: bits(read.payload_bytes(bytes)),
                pad_mismatch: false,
                original: Stimulus::sample(random),
                is_last: false,
            });
        }
        pair.next_psn = pair.next_psn.add(read.parts.len() as u32);
        pair.held.push_back(pair.next_psn);
        let slot = pair.slot;
        pair.slot = (slot + 1) % READS_MAX as u64;
        let block = &mut self.bench.block;
        block.read.value.next = record;
        block.read_place.next = read_place(pair.event.read_share, bits(slot));
        block.read.valid.next = true;
        let opened = IssuedRead {
            queue_pair: bits(pair.index as u64),
            generation,
            slot: bits(slot),
            is_replay: false,
        };
        self.written = Some((number, opened, read));
    }

    /// Requests the READs that wait for data again, the oldest from the PSN on that is due.
    fn asks_again(&mut self, number: usize) {
        let random = &mut self.random;
        let pair = &mut self.pairs[number];
        pair.script.clear();
        for (at, read) in pair.reads.iter().enumerate() {
            let came = if at == 0 { pair.came } else { 0 };
            for (place, &(_, bytes, operation)) in read.parts.iter().enumerate().skip(came) {
                let begins_anew = place == came && random.random_bool(0.8);
                pair.script.push_back(Response {
                    queue_pair: bits(pair.index as u64),
                    generation: pair.event.generation,
                    is_good: true,
                    is_data: true,
                    opcode: opcode(if begins_anew { begun_anew(operation) } else { operation }),
                    psn: bits(read.first_psn().add(place as u32).value().into()),
                    syndrome: bits(0x1f),
                    payload_bytes: bits(read.payload_bytes(bytes)),
                    pad_mismatch: false,
                    original: Stimulus::sample(random),
                    is_last: false,
                });
            }
        }
        let generation = pair.event.generation;
        self.reads_offered.push_back((number, generation.to_u64() as u8, None));
        self.opened.push(IssuedRead {
            queue_pair: bits(pair.index as u64),
            generation,
            slot: Stimulus::sample(random),
            is_replay: true,
        });
        self.asked_again += 1;
    }

    /// A response of the peer, right or wrong.
    fn answers(&mut self, number: usize, faults: f64) {
        let random = &mut self.random;
        let pair = &mut self.pairs[number];
        let due = pair.script.front().map_or(pair.next_psn, |response| psn_of(response.psn));
        let mut response = Response {
            queue_pair: bits(pair.index as u64),
            generation: pair.event.generation,
            is_good: true,
            ..Response::default()
        };
        if random.random_bool(0.2) {
            // An ACK or NAK, mostly of something before the data that is to come next.
            let psn = match random.random_range(0..40) {
                0 => due,
                1 => due.add(random.random_range(0..5)),
                _ => due.sub(random.random_range(1..5)),
            };
            response.opcode = opcode(Operation::Acknowledge);
            response.psn = bits(psn.value().into());
            let nak = *[0x60, 0x61, 0x62, 0x63, 0x2e].choose(random).unwrap();
            response.syndrome = bits(if random.random_bool(0.1) { nak } else { random.random_range(0..32) });
        } else if random.random_bool(faults) {
            match random.random_range(0..8) {
                // It was received before, or answers nothing.
                0..3 => {
                    response.is_data = true;
                    response.opcode = opcode(Operation::ReadResponseOnly);
                    let psn = if random.random() { due.sub(random.random_range(1..9)) } else { due };
                    response.psn = bits(psn.value().into());
                    response.payload_bytes = bits(random.random_range(0..300));
                }
                // It is to be dropped.
                3..5 => {
                    response.is_good = false;
                    response.is_data = random.random();
                    response.payload_bytes =
                        bits(if random.random() { 0 } else { random.random_range(1..4096) });
                    response.is_last = !response.payload_bytes.any();
                }
                // Lost.
                5 => {
                    pair.script.pop_front();
                    return;
                }
                _ => {
                    let Some(next) = pair.script.pop_front() else { return };
                    response = next;
                    match random.random_range(0..4) {
                        0 => response.opcode = bits([13, 14, 15, 16, 18][random.random_range(0..5)]),
                        1 => response.payload_bytes = bits(random.random_range(0..1024)),
                        2 => response.pad_mismatch = true,
                        _ => response.generation = response.generation + 1,
                    }
                }
            }
        } else {
            let Some(next) = pair.script.pop_front() else { return };
            response = next;
        }
        self.response.push(response);
    }

    /// A setup event was taken.
    fn takes_event(&mut self, event: SetupEvent) {
        let pair = self.pairs.iter_mut().find(|pair| event.queue_pair == pair.index as u64).unwrap();
        pair.event = event;
        let states =
            [QpState::ReadyToReceive, QpState::ReadyToSend, QpState::SendQueueDrain, QpState::SendQueueError];
        let serves = states.iter().any(|&state| event.state == state as u64);
        if !serves || event.kind == SetupKind::Restart {
            pair.reads.clear();
            (pair.came, pair.behind, pair.has_failed) = (0, None, false);
            (pair.is_reported, pair.is_asked_again) = (false, false);
        }
    }

    fn serves(pair: &Pair, generation: Bits<GENERATION_BITS>) -> bool {
        let states =
            [QpState::ReadyToReceive, QpState::ReadyToSend, QpState::SendQueueDrain, QpState::SendQueueError];
        pair.event.generation == generation && states.iter().any(|&state| pair.event.state == state as u64)
    }

    /// A response was taken: which command it must become.
    fn takes_response(&mut self, response: Response) {
        let pair = self.pairs.iter_mut().find(|pair| response.queue_pair == pair.index as u64).unwrap();
        let mut answer = ResponseNotice {
            queue_pair: response.queue_pair,
            generation: response.generation,
            psn: response.psn,
            syndrome: response.syndrome,
            is_last: response.is_last,
            ..ResponseNotice::default()
        };
        let mut command =
            ReadResponseCommand { payload_bytes: response.payload_bytes, ..ReadResponseCommand::default() };
        let psn = psn_of(response.psn);
        let [stale, unexpected, implied, protection] = &mut self.counts_expected;
        let due = pair.reads.front().map(|read| read.first_psn().add(pair.came as u32));
        let mut fails = |status: CompletionStatus| {
            answer.is_read_error = true;
            answer.status = bits(status as u64);
            answer.psn = bits(due.expect("a READ is open").value().into());
            true
        };
        let is_acknowledged =
            matches!(Syndrome::parse(response.syndrome.to_u64() as u8), Syndrome::Ack { .. });
        if !response.is_good || !Self::serves(pair, response.generation) || pair.has_failed {
        } else if !response.is_data {
            let overtakes = due.is_some_and(|due| {
                let done = if is_acknowledged { psn } else { psn.sub(1) };
                !done.is_before(due)
            });
            if overtakes && !pair.is_reported {
                *implied += 1;
                pair.is_reported = fails(CompletionStatus::RetryExceeded);
            } else if !overtakes {
                answer.is_acknowledge = true;
            }
        } else if let Some(due) = due {
            let read = pair.reads.front().unwrap().clone();
            let (before, bytes, operation) = read.parts[pair.came];
            let is_right = response.opcode == opcode(operation)
                || (pair.is_asked_again && response.opcode == opcode(begun_anew(operation)));
            if psn.is_before(due) {
                *stale += 1;
            } else if psn != due {
                if !pair.is_reported {
                    *implied += 1;
                    pair.is_reported = fails(CompletionStatus::RetryExceeded);
                }
            } else if response.opcode == opcode(Operation::AtomicAcknowledge) && !read.record.is_atomic {
                *unexpected += 1;
            } else if !is_right
                || response.payload_bytes != read.payload_bytes(bytes)
                || response.pad_mismatch
            {
                *unexpected += 1;
                pair.has_failed = fails(CompletionStatus::BadResponse);
            } else {
                if read.record.is_atomic {
                    command.is_literal = true;
                    command.literal = bits(response.original.to_u64().swap_bytes());
                    command.payload_bytes = bits(8);
                }
                let has_begun = pair.came > 0;
                pair.came += 1;
                let is_whole = pair.came == read.parts.len();
                pair.behind = Some(psn.add(1));
                pair.is_reported = false;
                pair.is_asked_again &= !is_whole;
                if is_whole {
                    pair.reads.pop_front();
                    pair.came = 0;
                }
                let spans: Vec<_> = read
                    .spans(before, bytes)
                    .into_iter()
                    .map(|(part, length)| {
                        let request = AccessRequest {
                            key: part.key,
                            domain: read.record.domain,
                            address: part.address,
                            length: bits(length),
                            local_write: true,
                            ..AccessRequest::default()
                        };
                        (access(&request), bits(length))
                    })
                    .collect();
                if spans.iter().all(|(granted, _)| granted.ok) {
                    answer.is_placed = true;
                    answer.is_middle = has_begun && !is_whole;
                    command.span_count = bits(spans.len() as u64);
                    let span = |at: usize| {
                        spans.get(at).map_or(HostSpan::default(), |&(granted, length)| HostSpan {
                            address: granted.device_address,
                            length,
                        })
                    };
                    (command.first, command.second) = (span(0), span(1));
                } else {
                    *protection += 1;
                    answer.is_read_error = true;
                    answer.status = bits(CompletionStatus::LocalProtection as u64);
                }
            }
        } else if pair.behind.is_some_and(|behind| psn.is_before(behind)) {
            *stale += 1;
        } else {
            *unexpected += 1;
            answer.is_unexpected = true;
        }
        command.notice = answer;
        let kinds = [answer.is_placed, answer.is_acknowledge, answer.is_read_error, answer.is_unexpected];
        *self.statuses.entry((answer.status.to_u64(), kinds)).or_default() += 1;
        self.commands.push(command);
    }

    fn step(&mut self) {
        let (block, random) = (&mut self.bench.block, &mut self.random);
        if let Some(&(due, granted)) = self.answers.front()
            && due <= self.cycle
        {
            self.answers.pop_front();
            self.answer.push(granted);
        }
        self.setup.drive(&mut block.setup, random);
        self.opened.drive(&mut block.issued_read, random);
        self.response.drive(&mut block.response, random);
        self.answer.drive(&mut block.access_answer, random);
        self.request.drive(&mut block.access_request, random);
        self.place.drive(&mut block.place, random);
        block.place.ready.next &= !self.place_stalls;
        self.bench.settle();
        let block = &self.bench.block;
        let event = self.setup.sample(&block.setup).then(|| block.setup.beat.val());
        let has_opened = self.opened.sample(&block.issued_read);
        let response = self.response.sample(&block.response).then(|| block.response.beat.val());
        self.answer.sample(&block.access_answer);
        if let Some(request) = self.request.sample(&block.access_request) {
            self.answers.push_back((self.cycle + random.random_range(1..8), access(&request)));
        }
        let pulses = [
            block.counts.val().response_stale,
            block.counts.val().response_unexpected,
            block.counts.val().implied_nak,
            block.counts.val().local_protection,
        ];
        for (count, pulse) in self.counts.iter_mut().zip(pulses) {
            *count += usize::from(pulse);
        }
        if let Some(mut command) = self.place.sample(&block.place) {
            let number = self.place.received.len() - 1;
            assert!(number < self.commands.len(), "a command for each response");
            if command.span_count < 2 {
                command.second = HostSpan::default();
            }
            if command.span_count == 0 {
                command.first = HostSpan::default();
            }
            if !command.is_literal {
                command.literal = bits(0);
            }
            assert_eq!(command, self.commands[number], "command {number}");
        }
        if let Some(event) = event {
            self.takes_event(event);
        }
        if has_opened {
            let (number, generation, read) = self.reads_offered.pop_front().unwrap();
            let pair = &mut self.pairs[number];
            if Self::serves(pair, bits(generation.into())) {
                pair.is_asked_again |= read.is_none() && !pair.reads.is_empty();
                pair.reads.extend(read);
            }
        }
        if let Some(response) = response {
            self.takes_response(response);
        }
        self.bench.tick();
        self.bench.block.read.valid.next = false;
        if let Some((number, opened, read)) = self.written.take() {
            self.reads_offered.push_back((number, opened.generation.to_u64() as u8, Some(read)));
            self.opened.push(opened);
        }
        self.cycle += 1;
        // A READ is not outstanding any more when its last data has been placed, or its queue pair has been
        // emptied.
        for pair in &mut self.pairs {
            while let Some(&behind) = pair.held.front()
                && (pair.behind.is_some_and(|done| !done.is_before(behind))
                    || !Self::serves(pair, pair.event.generation))
                && self.reads_offered.is_empty()
                && self.response.is_done()
            {
                pair.held.pop_front();
            }
        }
    }

    /// Runs until everything is done.
    fn rest(&mut self) {
        let until = self.cycle + 5_000;
        while self.place.received.len() < self.commands.len()
            || !self.response.is_done()
            || !self.opened.is_done()
        {
            self.step();
            assert!(self.cycle < until, "{} of {}", self.place.received.len(), self.commands.len());
        }
        (0..3).for_each(|_| self.step());
        assert_eq!(self.counts, self.counts_expected);
    }
}

#[test]
fn data_goes_where_it_was_asked_for_and_nothing_overtakes_it() {
    let mut statuses = std::collections::BTreeMap::new();
    let mut counts = [0; 4];
    let mut asked_again = 0;
    for stalls in Stalls::ALL {
        let mut world = World::new(stalls);
        for cycle in 0..14_000 {
            let number = world.random.random_range(0..INDICES.len());
            let faults = if cycle < 2_000 { 0.0 } else { 0.03 };
            let slots = share_slots(world.pairs[number].event.read_share).to_u64() as usize;
            let may_read = world.pairs[number].held.len() < slots && world.written.is_none();
            if may_read && world.random.random_bool(0.1) {
                let path_mtu = world.random.random_range(1..=5);
                let pmtu = 128 << path_mtu;
                let length = match world.random.random_range(0..6) {
                    // An atomic.
                    5 => 8,
                    0 => 0,
                    1 => pmtu * world.random.random_range(1..4),
                    2 => pmtu + 1,
                    _ => world.random.random_range(1..4 * pmtu),
                };
                world.reads(number, length, path_mtu);
            }
            let is_quiet =
                world.response.is_done() && world.reads_offered.is_empty() && world.written.is_none();
            if is_quiet && world.pairs[number].is_reported && world.random.random_bool(0.2) {
                world.asks_again(number);
            } else if is_quiet {
                world.answers(number, faults);
            }
            let pair = &world.pairs[number];
            let state = pair.event.state.to_u64();
            if pair.has_failed && world.random.random_bool(0.05) {
                world.says(number, SetupKind::Life, QpState::Error);
            } else if state == QpState::Error as u64 && world.random.random_bool(0.1) {
                world.rest();
                world.pairs[number].held.clear();
                world.says(number, SetupKind::Restart, QpState::ReadyToSend);
            } else if faults > 0.0 && world.random.random_bool(0.003) {
                let kinds = [SetupKind::Path, SetupKind::Probe, SetupKind::SendPsn, SetupKind::Life];
                let kind = *kinds.choose(&mut world.random).unwrap();
                if state == QpState::ReadyToSend as u64 {
                    world.says(number, kind, QpState::ReadyToSend);
                }
            }
            world.step();
        }
        world.rest();
        asked_again += world.asked_again;
        println!("{:?} {:?}, {} commands", world.statuses, world.counts, world.commands.len());
        world.statuses.into_iter().for_each(|(key, count)| *statuses.entry(key).or_insert(0) += count);
        counts = std::array::from_fn(|at| counts[at] + world.counts[at]);
    }
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    assert!(asked_again > 20, "{asked_again}");
    // Placed, acknowledgement, dropped, perhaps unasked; and failures with three statuses.
    assert!(statuses.len() >= 6, "{statuses:?}");
}

/// At 512 bits, a packet of 256 bytes lasts 8 cycles on the wire.
#[test]
fn a_response_takes_six_cycles_at_most_and_events_wait_for_no_output() {
    let mut world = World::new(Stalls::None);
    for _ in 0..10 {
        // No response is wrong.
        world.reads(1, 25 * 256 - 7, 1);
        (0..8).for_each(|_| world.step());
    }
    let script: Vec<_> = world.pairs[1].script.drain(..).collect();
    let began = world.cycle;
    script.iter().for_each(|&response| world.response.push(response));
    while !world.response.is_done() {
        world.step();
    }
    let cycles = world.cycle - began;
    println!("{cycles} cycles for {} responses", script.len());
    assert!(cycles <= 6 * script.len() + 10);
    world.rest();
    // While no command is taken, events are taken all the same; `says` counts the cycles.
    world.place_stalls = true;
    world.reads(0, 0, 1);
    world.step();
    let response =
        Response { queue_pair: bits(INDICES[0] as u64), payload_bytes: bits(9), ..Response::default() };
    (0..40).for_each(|_| world.response.push(response));
    (0..300).for_each(|_| world.step());
    assert!(!world.response.is_done() && world.opened.is_done());
    world.says(2, SetupKind::Life, QpState::Error);
    world.place_stalls = false;
    world.rest();
}
