//! A responder between its neighbours: control, a host, a table of regions, a place stage, a writer and a launch stage. What
//! it says is held against the model while it runs, and once more when all is quiet.
use super::model::{
    Attributes, Command, Completion, Failure, Model, Owed, Received, Region, Request, Shared, Work,
    own_address,
};
use crate::Responder;
use num_bigint::BigUint;
use rand::Rng;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, random};
use rnic_kernel::prelude::*;
use rnic_layout::opcode::Operation;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::QpState;
use rnic_layout::syndrome::{NakCode, Syndrome};
use rnic_messages::PacketToken;
use rnic_messages::doorbell::ReceivesPosted;
use rnic_messages::host::{HostSpan, HostWord, Slot, WordWrite, WriteFailure, WriteOwner};
use rnic_messages::path::Path;
use rnic_messages::protect::{AccessAnswer, AccessRequest, Invalidated, Invalidation};
use rnic_messages::read::ReadClosed;
use rnic_messages::receive::{AckNotice, PlaceCommand, ack_of};
use rnic_messages::setup::{
    NoticeKind, QpNotice, SetupEvent, SetupKind, SourceAddressWrite, SrqLimitNotice, SrqSetup, SrqSetupKind,
};
use rnic_messages::transmit::{GatherCommand, TransmitRequest};
use std::collections::{HashMap, HashSet, VecDeque};

const NAK_OPERATIONAL: u8 = Syndrome::Nak(NakCode::RemoteOperationalError).emit();
/// Where the count of writes begins, so that it wraps.
const FIRST_COUNT: u64 = 0xff00;
/// Cycles in which a setup event must be taken: reset's sweep and two doorbells.
const SETUP_CYCLES_MAX: u32 = 2130;
/// The ring of the first shared receive queue.
const FIRST_SHARED: u16 = 1024;

/// A command to all stages, on its way.
struct Command3 {
    event: SetupEvent,
    /// Instead of `event`, if it is about a shared receive queue.
    srq_event: Option<SrqSetup>,
    attributes: Attributes,
    restarts: bool,
    receive_psn: Option<u32>,
    /// It is about a shared receive queue.
    shared: Option<(u8, Shared)>,
    is_offered: [bool; 4],
    is_taken: [bool; 4],
    waited: u32,
}

/// What the reply stage owes, for one generation of a queue pair.
#[derive(Default)]
struct Account {
    /// With the writes that must be done.
    owed: Vec<(Owed, u64)>,
    /// Those that were said after they were owed, if perhaps by an equal one before them.
    told: HashSet<usize>,
    /// How many of them have left or were replaced.
    settled: usize,
    /// What the last one that left said.
    newest: Option<Owed>,
    /// First PSN that no reply has covered.
    open_psn: u32,
    last_msn: u32,
    /// A write failed, the one of this number.
    failed_write: Option<u64>,
    has_ended: bool,
    /// It was told that the queue pair fails.
    has_failed: bool,
}

fn is_nak(owed: &Owed) -> bool {
    owed.syndrome >> 5 != 0
}

fn is_before(psn: u32, other: u32) -> bool {
    psn.wrapping_sub(other) & 0x80_0000 != 0
}

/// A responder and its neighbours.
pub(super) struct Machine {
    /// In a box, since a responder with all its signals is too much for the stack of a test that moves it about.
    pub(super) bench: Box<Bench<Responder>>,
    pub(super) random: Random,
    pub(super) model: Model,
    stalls: Stalls,
    requests: Source<PacketToken>,
    request: Option<Request>,
    place: Sink<PlaceCommand>,
    replies: Sink<TransmitRequest>,
    failures: Sink<QpNotice>,
    limits: Sink<SrqLimitNotice>,
    asked: Sink<AccessRequest>,
    answers: Source<AccessAnswer>,
    keys: Sink<Invalidation>,
    ended: Source<Invalidated>,
    /// Keys that control ends, and when.
    ending: VecDeque<(Invalidation, u64)>,
    reads: Sink<HostSpan>,
    owed: Source<AckNotice>,
    /// Those in the source, with their writes counted from the beginning.
    owed_counts: VecDeque<(AckNotice, u64)>,
    write_failures: Source<WriteFailure>,
    /// Host memory that receive entries stand in, by device address.
    memory: HashMap<u64, ([u8; 64], bool)>,
    slots: VecDeque<Slot>,
    /// Commands for the place stage, and replies behind them.
    placing: VecDeque<PlaceCommand>,
    /// Writes that are issued: whose, and whether the host refuses them.
    writes: VecDeque<(u16, u8, bool)>,
    issued: u64,
    done: u64,
    /// One write in so many fails; none if zero.
    pub(super) write_failure_rate: u32,
    commands: VecDeque<Command3>,
    /// What control thinks of the queue pairs.
    pub(super) lives: HashMap<u16, Attributes>,
    /// Queue pairs that failed, and when control says so.
    failing: Vec<(u16, u8, u64)>,
    bells: VecDeque<(u16, u16)>,
    /// What must come of the packets, in their order. The flag says that its generation has ended meanwhile.
    expected: VecDeque<(Command, bool)>,
    flushes: HashMap<(u16, u8), VecDeque<Command>>,
    accounts: HashMap<(u16, u8), Account>,
    /// The reply stage's state and generation of each queue pair.
    reply_lives: HashMap<u16, (QpState, u8)>,
    /// Words of host memory that atomics are about, and what the host does of them.
    pub(super) words: HashMap<u64, u64>,
    word_reads: Sink<HostSpan>,
    word_writes: Sink<WordWrite>,
    words_read: VecDeque<u64>,
    words_written: VecDeque<WordWrite>,
    gather: Sink<GatherCommand>,
    /// What atomics were answered, and with how many writes done.
    pub(super) answered: Vec<(GatherCommand, u64)>,
    /// When the words of atomics were asked for, with how many writes done.
    pub(super) word_asked: Vec<(u64, u64)>,
    closed: Option<ReadClosed>,
    counts: HashMap<&'static str, u64>,
    expected_replies: HashMap<&'static str, u64>,
    pub(super) cycle: u64,
    pub(super) placed: Vec<(u64, Command)>,
    pub(super) replied: Vec<(u64, u16, Owed)>,
    /// Queue pairs that must fail, as control hears it.
    pub(super) failed: Vec<(u64, u16)>,
    /// Nothing is taken of these outputs.
    pub(super) holds_place: bool,
    pub(super) holds_replies: bool,
    pub(super) holds_reads: bool,
    pub(super) holds_answers: bool,
    pub(super) holds_writes: bool,
    pub(super) holds_gather: bool,
    /// Generations have ended while packets were under way: what becomes of those is not known exactly.
    is_loose: bool,
}

macro_rules! counters {
    ($block:expr, $counts:expr, $($name:ident => $port:ident),+ $(,)?) => {
        $( if $block.counts.val().$port { *$counts.entry(stringify!($name)).or_default() += 1; } )+
    };
}

impl Machine {
    pub(super) fn new(stalls: Stalls) -> Self {
        let bench = Bench::clocked(Responder::default(), |block| &mut block.clock).in_lock_step();
        let mut bench = Box::new(bench);
        bench.block.enable.next = true;
        for place in 0..16 {
            bench.block.source_address_write.next = SourceAddressWrite {
                index: bits(place.into()),
                valid: place < 15,
                address: BigUint::from(own_address(place)).into(),
                ..SourceAddressWrite::default()
            };
            bench.block.source_address_write_valid.next = true;
            bench.tick();
        }
        bench.block.source_address_write_valid.next = false;
        let mut machine = Machine {
            bench,
            random: random(),
            model: Model::default(),
            stalls,
            requests: Source::of_tokens([], Stalls::None),
            request: None,
            place: Sink::new(stalls),
            replies: Sink::new(stalls),
            failures: Sink::new(stalls),
            limits: Sink::new(stalls),
            asked: Sink::new(stalls),
            answers: Source::of_tokens([], stalls),
            keys: Sink::new(stalls),
            ended: Source::of_tokens([], stalls),
            ending: VecDeque::new(),
            reads: Sink::new(stalls),
            owed: Source::of_tokens([], stalls),
            owed_counts: VecDeque::new(),
            write_failures: Source::of_tokens([], stalls),
            memory: HashMap::new(),
            slots: VecDeque::new(),
            placing: VecDeque::new(),
            writes: VecDeque::new(),
            issued: FIRST_COUNT,
            done: FIRST_COUNT,
            write_failure_rate: 0,
            commands: VecDeque::new(),
            lives: HashMap::new(),
            failing: Vec::new(),
            bells: VecDeque::new(),
            expected: VecDeque::new(),
            flushes: HashMap::new(),
            accounts: HashMap::new(),
            reply_lives: HashMap::new(),
            words: HashMap::new(),
            word_reads: Sink::new(stalls),
            word_writes: Sink::new(stalls),
            words_read: VecDeque::new(),
            words_written: VecDeque::new(),
            gather: Sink::new(stalls),
            answered: Vec::new(),
            word_asked: Vec::new(),
            closed: None,
            counts: HashMap::new(),
            expected_replies: HashMap::new(),
            cycle: 0,
            placed: Vec::new(),
            replied: Vec::new(),
            failed: Vec::new(),
            holds_place: false,
            holds_replies: false,
            holds_reads: false,
            holds_answers: false,
            holds_writes: false,
            holds_gather: false,
            is_loose: false,
        };
        machine.model.regions = vec![Region {
            key: 0x142,
            domain: 7,
            local_write: true,
            remote_write: true,
            invalidatable: false,
            first_address: 0x1000,
            length: 0x10_0000,
        }];
        // One more that its owner alone may write, and one that nobody may.
        let first = machine.model.regions[0];
        machine.model.regions.push(Region { key: 0x207, remote_write: false, ..first });
        machine.model.regions.push(Region { key: 0x307, local_write: false, remote_write: false, ..first });
        machine
    }

    /// A coin, or always heads if nobody stalls.
    fn goes(&mut self) -> bool {
        !self.stalls.sink() || self.random.random()
    }

    /// Offers a packet; there is none on offer.
    pub(super) fn offer(&mut self, request: Request) {
        assert!(self.may_offer());
        self.requests.push(token_of(&request));
        self.request = Some(request);
    }

    pub(super) fn may_offer(&self) -> bool {
        self.request.is_none()
    }

    /// Writes entries behind those that are posted, and rings.
    pub(super) fn post(&mut self, index: u16, works: &[Work]) {
        let queue = self.model.queues.get_mut(&index).expect("the queue pair exists");
        let attributes = queue.attributes;
        for work in works {
            let slot = u64::from(queue.written) % (1 << attributes.entries_log2);
            let mut bytes = work.fields.to_bytes().unwrap();
            bytes[9] |= u8::from(work.is_malformed);
            self.memory.insert(attributes.ring + slot * 64, (bytes, work.is_unreadable));
            queue.works.insert(queue.written, *work);
            queue.written = queue.written.wrapping_add(1);
        }
        let written = queue.written;
        self.ring(index, written);
    }

    /// Rings, with any index.
    pub(super) fn ring(&mut self, index: u16, producer_index: u16) {
        self.bells.push_back((index, producer_index));
    }

    /// Tells all stages, one command after the other.
    pub(super) fn command(&mut self, kind: SetupKind, attributes: Attributes, psn: u32) {
        let event = SetupEvent {
            kind,
            queue_pair: bits(attributes.index().into()),
            state: bits(attributes.state as u64),
            generation: bits(attributes.generation.into()),
            psn: bits(psn.into()),
            path: path_of(&attributes),
        };
        self.commands.push_back(Command3 {
            event,
            srq_event: None,
            attributes,
            restarts: kind == SetupKind::Restart,
            shared: None,
            receive_psn: (kind == SetupKind::ReceivePsn).then_some(psn),
            is_offered: [false; 4],
            is_taken: [false; 4],
            waited: 0,
        });
        self.lives.insert(attributes.index(), attributes);
    }

    /// Makes a shared receive queue, or sets its limit.
    pub(super) fn share(&mut self, kind: SrqSetupKind, number: u8, shared: &Shared) {
        let event = SrqSetup {
            kind,
            srq: bits(number.into()),
            is_alive: true,
            base_page: bits(shared.ring >> 12),
            entries_log2: bits(shared.entries_log2.into()),
            limit: bits(shared.limit.into()),
            limit_generation: bits(shared.setting.into()),
        };
        self.commands.push_back(Command3 {
            event: SetupEvent::default(),
            srq_event: Some(event),
            attributes: super::attributes(0),
            restarts: kind == SrqSetupKind::Restart,
            receive_psn: None,
            shared: Some((number, shared.clone())),
            is_offered: [false; 4],
            // The others are not told.
            is_taken: [false, kind == SrqSetupKind::Limit, true, true],
            waited: 0,
        });
    }

    /// Writes entries of a shared receive queue, and rings.
    pub(super) fn post_shared(&mut self, number: u8, works: &[Work]) {
        let shared = self.model.shared.get_mut(&number).expect("it was made");
        for work in works {
            let slot = u64::from(shared.written) % (1 << shared.entries_log2);
            let mut bytes = work.fields.to_bytes().unwrap();
            bytes[9] |= u8::from(work.is_malformed);
            self.memory.insert(shared.ring + slot * 64, (bytes, work.is_unreadable));
            shared.works.insert(shared.written, *work);
            shared.indices.insert(work.fields.wr_id, shared.written);
            shared.written = shared.written.wrapping_add(1);
        }
        let written = shared.written;
        self.bells.push_back((FIRST_SHARED + u16::from(number), written));
    }

    pub(super) fn is_commanding(&self) -> bool {
        !self.commands.is_empty()
    }

    /// Creates a queue pair, or creates it anew, and makes it ready to receive.
    pub(super) fn connect(&mut self, attributes: Attributes, psn: u32) {
        self.command(SetupKind::Restart, Attributes { state: QpState::Reset, ..attributes }, 0);
        self.command(SetupKind::ReceivePsn, attributes, psn);
    }

    /// From here on, what was under way for a queue pair may end well or not.
    pub(super) fn loosen(&mut self, index: u16) {
        self.is_loose = true;
        for (command, is_over) in &mut self.expected {
            *is_over |= command.queue_pair == index;
        }
    }

    /// Nothing of a queue pair is under way but replies, and entries that are given back.
    pub(super) fn is_still(&self, index: u16) -> bool {
        let generation = self.lives[&index].generation;
        self.expected.iter().all(|(command, _)| command.queue_pair != index || command.is_silent())
            && self.flushes.get(&(index, generation)).is_none_or(VecDeque::is_empty)
            && self.model.queues[&index].posted == self.model.queues[&index].written
            && self.failing.iter().all(|failing| failing.0 != index)
    }

    /// Writes that the host has done.
    pub(super) fn done(&self) -> u64 {
        self.done - FIRST_COUNT
    }

    pub(super) fn step(&mut self) {
        let (accepts, posts, places, writes, slots, starts) = (
            !self.holds_answers,
            self.bells.pop_front(),
            !self.holds_place,
            !self.holds_writes && self.goes(),
            self.goes(),
            self.goes(),
        );
        // Control speaks to one stage sooner and to another later.
        if starts && let Some(command) = self.commands.front_mut() {
            let all = !self.stalls.sink();
            let coins: [bool; 4] = self.random.random();
            for (offered, coin) in command.is_offered.iter_mut().zip(coins) {
                *offered |= all || coin;
            }
        }
        let Machine { bench, random, .. } = self;
        let block = &mut bench.block;
        self.requests.drive(&mut block.requests, random);
        self.place.drive(&mut block.place, random);
        block.place.ready.next &= places;
        self.replies.drive(&mut block.ack, random);
        block.ack.ready.next &= !self.holds_replies;
        self.failures.drive(&mut block.notice, random);
        self.limits.drive(&mut block.srq_limit, random);
        self.asked.drive(&mut block.access_request, random);
        block.access_request.ready.next &= accepts;
        self.answers.drive(&mut block.access_answer, random);
        self.keys.drive(&mut block.invalidate, random);
        self.ended.drive(&mut block.invalidated, random);
        self.reads.drive(&mut block.receive_read, random);
        block.receive_read.ready.next &= !self.holds_reads;
        self.owed.drive(&mut block.place_reply, random);
        self.write_failures.drive(&mut block.write_failure, random);
        block.done_count.next = bits(self.done & 0xffff);
        self.word_reads.drive(&mut block.atomics_read, random);
        self.word_writes.drive(&mut block.atomics_write, random);
        self.gather.drive(&mut block.gather, random);
        block.gather.ready.next &= !self.holds_gather;
        // The host gives a word in the next cycle, and takes one as soon.
        let read = self.words_read.pop_front();
        block.atomics_word_valid.next = read.is_some();
        if let Some(address) = read {
            let data = self.words.get(&address).copied().unwrap_or_default();
            block.atomics_word.next = HostWord { data: bits(data), error: false };
        }
        let written = self.words_written.pop_front();
        block.atomics_done.next = written.is_some();
        if let Some(write) = written {
            self.words.insert(write.address.to_u64(), write.data.to_u64());
        }
        block.read_closed_valid.next = self.closed.is_some();
        block.read_closed.next = self.closed.take().unwrap_or_default();
        block.receive_slot_valid.next = slots && !self.slots.is_empty();
        if slots && let Some(slot) = self.slots.pop_front() {
            block.receive_slot.next = slot;
        }
        block.receive_posted_valid.next = posts.is_some();
        if let Some((index, producer)) = posts {
            block.receive_posted.next =
                ReceivesPosted { ring: bits(index.into()), producer_index: bits(producer.into()) };
        }
        let ports =
            [&mut block.setup_admit, &mut block.setup_prefetch, &mut block.setup_ack, &mut block.setup_read];
        for (place, port) in ports.into_iter().enumerate() {
            let command = self.commands.front().filter(|c| c.is_offered[place] && !c.is_taken[place]);
            let command = command.filter(|command| command.srq_event.is_none());
            port.valid.next = command.is_some();
            if let Some(command) = command {
                port.beat.next = command.event;
            }
        }
        let ports = [&mut block.srq_setup_admit, &mut block.srq_setup_prefetch];
        for (place, port) in ports.into_iter().enumerate() {
            let command = self.commands.front().filter(|c| c.is_offered[place] && !c.is_taken[place]);
            let event = command.and_then(|command| command.srq_event);
            port.valid.next = event.is_some();
            if let Some(event) = event {
                port.beat.next = event;
            }
        }
        bench.settle();

        let block = &bench.block;
        let mut takes = [&block.setup_admit, &block.setup_prefetch, &block.setup_ack, &block.setup_read]
            .map(|port| port.valid.val() && port.ready.val());
        takes[0] |= block.srq_setup_admit.valid.val() && block.srq_setup_admit.ready.val();
        takes[1] |= block.srq_setup_prefetch.valid.val() && block.srq_setup_prefetch.ready.val();
        let has_request = self.requests.sample(&block.requests);
        let placed = self.place.sample(&block.place);
        let replied = self.replies.sample(&block.ack);
        let failed = self.failures.sample(&block.notice);
        let reached = self.limits.sample(&block.srq_limit);
        let asked = self.asked.sample(&block.access_request);
        self.answers.sample(&block.access_answer);
        let key = self.keys.sample(&block.invalidate);
        self.ended.sample(&block.invalidated);
        let read = self.reads.sample(&block.receive_read);
        let has_owed = self.owed.sample(&block.place_reply);
        let word_read = self.word_reads.sample(&block.atomics_read);
        let word_written = self.word_writes.sample(&block.atomics_write);
        let answered = self.gather.sample(&block.gather);
        let has_write_failure = self.write_failures.sample(&block.write_failure);
        let stopped = block.stopped();
        counters!(
            block, self.counts,
            unknown_qp => unknown_qp,
            qp_not_ready => qp_not_ready,
            transport_mismatch => transport_mismatch,
            partition_key => partition_key,
            source_address => source_address,
            duplicate_request => duplicate_request,
            duplicate_dropped => duplicate_dropped,
            request_gap => request_gap,
            requests_after_failure => requests_after_failure,
            acknowledgements_sent => acknowledgements_sent,
            nak_sequence_sent => nak_sequence_sent,
            nak_invalid_request_sent => nak_invalid_request_sent,
            nak_access_sent => nak_access_sent,
            nak_operational_sent => nak_operational_sent,
            nak_not_ready_sent => nak_not_ready_sent,
            stale_dropped => stale_dropped,
            remote_protection => remote_protection,
            local_protection => local_protection,
            work_refused => work_refused,
        );
        bench.tick();
        self.cycle += 1;

        if let Some(read) = word_read {
            self.word_asked.push((read.address.to_u64(), self.done()));
            self.words_read.push_back(read.address.to_u64());
        }
        self.words_written.extend(word_written);
        if let Some(command) = answered {
            self.answered.push((command, self.done()));
            let GatherCommand { headers, .. } = command;
            let closed = ReadClosed { queue_pair: headers.queue_pair, generation: headers.generation };
            self.closed = headers.ends_response.then_some(closed);
        }
        self.writer(writes, has_write_failure);
        if has_owed {
            self.owe();
        }
        self.take_commands(takes);
        if has_request {
            let request = self.request.take().expect("it was offered");
            if let Some(command) = self.model.request(&request) {
                let is_ending = |ended: &Command3| ended.attributes.index() == command.queue_pair;
                let is_over = self.is_loose && self.commands.iter().any(is_ending);
                if command.is_flush() {
                    let key = (command.queue_pair, command.generation);
                    self.flushes.entry(key).or_default().push_back(command);
                } else {
                    self.expected.push_back((command, is_over));
                }
            }
        }
        if let Some((index, generation)) = stopped {
            self.model.stop(index, generation);
        }
        if let Some((index, producer)) = posts
            && index >= FIRST_SHARED
        {
            let number = (index - FIRST_SHARED) as u8;
            self.model.shared.get_mut(&number).expect("it was made").posted = producer;
        } else if let Some((index, producer)) = posts {
            // A packet that is taken in this cycle has not heard the bell.
            self.model.queues.get_mut(&index).expect("the queue pair exists").posted = producer;
        }
        if let Some(request) = asked {
            let known = [&self.model.regions[..], &self.model.lingering].concat();
            self.answers.push(answer_of(&known, &request));
        }
        if let Some(key) = key {
            let delay = if self.stalls.sink() { self.random.random_range(1..60) } else { 6 };
            self.ending.push_back((key, self.cycle + delay));
        }
        if let Some((key, due)) = self.ending.front().copied()
            && due <= self.cycle
        {
            self.ending.pop_front();
            self.end_key(&key);
        }
        if let Some(span) = read {
            self.read(&span);
        }
        if let Some(command) = placed {
            self.check_placed(&command);
            self.placing.push_back(command);
        }
        // What a READ or an atomic waits for, the place stage waits for itself.
        let waits = self.placing.front().is_some_and(|command| ack_of(command.notice).is_read);
        if !self.placing.is_empty() && (!waits || self.writes.is_empty()) && self.goes() {
            self.place_next();
        }
        if let Some(reply) = replied {
            self.check_reply(&reply);
        }
        if let Some(failure) = failed {
            self.check_failure(&failure);
        }
        if let Some(limit) = reached {
            self.check_limit(&limit);
        }
        self.control();
    }

    pub(super) fn run(&mut self, cycles: usize) {
        (0..cycles).for_each(|_| self.step());
    }

    /// Control tells a queue pair that it has failed.
    fn control(&mut self) {
        let now = self.cycle;
        let due: Vec<_> = self.failing.extract_if(.., |failing| failing.2 <= now).collect();
        for (index, generation, _) in due {
            let life = self.lives[&index];
            if life.generation == generation && life.state != QpState::Reset {
                self.command(SetupKind::Life, Attributes { state: QpState::Error, ..life }, 0);
            }
        }
    }

    /// The stages take commands.
    fn take_commands(&mut self, takes: [bool; 4]) {
        let Some(command) = self.commands.front_mut() else { return };
        command.waited += 1;
        assert!(command.waited < SETUP_CYCLES_MAX, "a setup event is taken in bounded time");
        let attributes = command.attributes;
        let index = attributes.index();
        for (taken, takes) in command.is_taken.iter_mut().zip(takes) {
            *taken |= takes;
        }
        if takes[0]
            && let Some((number, shared)) = &command.shared
        {
            let number = *number;
            let known = self.model.shared.remove(&number).unwrap_or_default();
            let again = if command.restarts { Shared::default() } else { known };
            let is_armed = shared.limit != 0;
            let Shared { ring, entries_log2, limit, setting, .. } = *shared;
            let next = Shared { ring, entries_log2, limit, setting, is_armed, ..again };
            self.model.shared.insert(number, next);
        } else if takes[0] {
            self.model.setup(attributes, command.restarts, command.receive_psn);
        }
        if takes[2] {
            self.reply_lives.insert(index, (attributes.state, attributes.generation));
            if let Some(psn) = command.receive_psn {
                let account = self.accounts.entry((index, attributes.generation)).or_default();
                account.open_psn = psn;
            }
        }
        if command.is_taken == [true; 4] {
            self.commands.pop_front();
        }
    }

    /// The host answers a read of entries. It gives none that is not posted, or belongs to nobody.
    fn read(&mut self, span: &HostSpan) {
        let (address, count) = (span.address.to_u64(), span.length.to_u64() / 64);
        assert!(
            (1..=8).contains(&count) && address / 512 == (address + count * 64 - 1) / 512,
            "a line at most"
        );
        let mut error = false;
        for place in 0..count {
            let slot = self.memory.get(&(address + place * 64)).copied();
            let (bytes, is_unreadable) = slot.expect("only what was posted is read");
            error |= is_unreadable;
            let data = if is_unreadable { [0xee; 64] } else { bytes };
            let last = place + 1 == count;
            self.slots.push_back(Slot { data: BigUint::from_bytes_le(&data).into(), last, error });
        }
    }

    /// Control ends a key, if it may be ended; the interpreter has done so before.
    fn end_key(&mut self, key: &Invalidation) {
        let (number, domain) = (key.key.to_u64() as u32, key.domain.to_u64() as u32);
        let is_it = |region: &Region| region.key == number && region.domain == domain && region.invalidatable;
        assert!(!self.model.regions.iter().any(is_it), "{number:#x} is not to be ended");
        let place = self.model.lingering.iter().position(is_it);
        let ended = place.map(|place| self.model.lingering.remove(place));
        let Invalidation { queue_pair, generation, .. } = *key;
        self.ended.push(Invalidated { queue_pair, generation, ok: ended.is_some() });
    }

    /// The place stage issues the writes of a command; its reply is behind them.
    fn place_next(&mut self) {
        let command = self.placing.pop_front().expect("there is one");
        for _ in 0..command.span_count.to_u64() {
            let fails = self.write_failure_rate > 0 && self.random.random_ratio(1, self.write_failure_rate);
            let (index, generation) = (command.queue_pair.to_u64() as u16, command.generation.to_u64() as u8);
            self.writes.push_back((index, generation, fails));
            self.issued += 1;
        }
        if command.has_notice {
            let reply = AckNotice { write_count: bits(self.issued & 0xffff), ..ack_of(command.notice) };
            self.owed.push(reply);
            self.owed_counts.push_back((reply, self.issued));
        }
    }

    /// The writer: a failed write counts as done once the news of it is taken.
    fn writer(&mut self, goes: bool, has_told: bool) {
        let Some(&(index, generation, fails)) = self.writes.front() else { return };
        if fails && has_told {
            let (state, current) = self.reply_lives[&index];
            let account = self.accounts.entry((index, generation)).or_default();
            if current == generation && state != QpState::Reset && account.failed_write.is_none() {
                account.failed_write = Some(self.done + 1);
                self.model.failures.push((index, generation, Some(AsyncEvent::QueuePairFatal)));
            }
        } else if fails && goes && self.write_failures.is_done() {
            self.write_failures.push(WriteFailure {
                owner: WriteOwner::Payload,
                queue_pair: bits(index.into()),
                generation: bits(generation.into()),
                is_response: false,
                write_count: bits((self.done + 1) & 0xffff),
            });
        }
        if if fails { has_told } else { goes } {
            self.writes.pop_front();
            self.done += 1;
        }
    }

    /// The reply stage has taken what it owes.
    fn owe(&mut self) {
        let (reply, count) = self.owed_counts.pop_front().expect("it was offered");
        let (index, generation) = (reply.queue_pair.to_u64() as u16, reply.generation.to_u64() as u8);
        let (state, current) = self.reply_lives[&index];
        if current != generation || state == QpState::Reset {
            *self.expected_replies.entry("stale_dropped").or_default() += 1;
            return;
        }
        if reply.is_read {
            // The stage that answers it has a test of its own.
            return;
        }
        let account = self.accounts.entry((index, generation)).or_default();
        if account.failed_write.is_none() {
            account.owed.push((owed_of(&reply), count));
        }
    }

    /// Control knows this generation, and nothing else yet.
    fn is_current(&self, index: u16, generation: u8) -> bool {
        let life = self.lives[&index];
        life.generation == generation && life.state != QpState::Reset
    }

    fn check_placed(&mut self, command: &PlaceCommand) {
        let command = command_of(command);
        let key = (command.queue_pair, command.generation);
        if let Some(completion) = &command.completion {
            for shared in self.model.shared.values_mut() {
                if let Some(index) = shared.indices.get(&completion.wr_id) {
                    let ahead = index.wrapping_add(1).wrapping_sub(shared.done);
                    shared.done = if ahead < 1 << 15 { index.wrapping_add(1) } else { shared.done };
                }
            }
        }
        if command.is_flush() {
            let is_over = !self.is_current(key.0, key.1);
            let late = self.flushes.get_mut(&key).and_then(VecDeque::pop_front);
            let expected = late.or_else(|| self.model.flush(key.0, key.1));
            assert!(
                is_over || expected.as_ref() == Some(&command),
                "{command:?} is given back, not {expected:?}"
            );
            self.placed.push((self.cycle, command));
            return;
        }
        // A packet of a generation that has ended may not have failed after all, since its entry did not come any more; then
        // those behind it are answered.
        let is_ended = self.is_loose && command.payload_bytes == 0 && !self.is_current(key.0, key.1);
        if is_ended && self.expected.iter().all(|(expected, _)| *expected != command) {
            self.placed.push((self.cycle, command));
            return;
        }
        loop {
            let (mut expected, is_over) =
                self.expected.pop_front().unwrap_or_else(|| panic!("{command:?} came of nothing"));
            if expected.is_silent() {
                (expected.queue_pair, expected.generation) = key;
            }
            if expected == command {
                break;
            }
            assert!(is_over, "{command:#?} came where {expected:#?} should");
            // Its entry, or that of one before it, did not come any more.
            let keys = |command: &Command| (command.queue_pair, command.generation, command.payload_bytes);
            if keys(&expected) == keys(&command) {
                break;
            }
            assert_eq!(expected.payload_bytes, 0, "payload was forgotten: {expected:#?}, {command:#?}");
        }
        self.placed.push((self.cycle, command));
    }

    fn check_reply(&mut self, headers: &TransmitRequest) {
        assert_eq!(headers.opcode, bits(Operation::Acknowledge as u64));
        assert!(!headers.solicited && !headers.ack_request && headers.payload_bytes == bits(0));
        let bytes = BigUint::from(headers.extended).to_bytes_le();
        assert!(bytes.len() <= 4, "nothing stands behind the AETH");
        let byte = |index: usize| u32::from(bytes.get(index).copied().unwrap_or(0));
        let reply = Owed {
            syndrome: byte(0) as u8,
            psn: headers.psn.to_u64() as u32,
            msn: byte(1) << 16 | byte(2) << 8 | byte(3),
        };
        let (index, generation) = (headers.queue_pair.to_u64() as u16, headers.generation.to_u64() as u8);
        self.replied.push((self.cycle, index, reply));
        let name = match reply.syndrome {
            0x1f => "acknowledgements_sent",
            0x60 => "nak_sequence_sent",
            0x61 => "nak_invalid_request_sent",
            0x62 => "nak_access_sent",
            0x63 => "nak_operational_sent",
            _ => "nak_not_ready_sent",
        };
        *self.expected_replies.entry(name).or_default() += 1;
        let account = self.accounts.get_mut(&(index, generation)).expect("something was owed");
        assert!(!account.has_ended, "nothing follows the NAK of a failed write");
        let last_words = Owed { syndrome: NAK_OPERATIONAL, psn: account.open_psn, msn: account.last_msn };
        let place = (account.settled..account.owed.len()).find(|&place| account.owed[place].0 == reply);
        if account.failed_write.is_some() && reply == last_words {
            account.has_ended = true;
        } else {
            let place = place.unwrap_or_else(|| panic!("{index:#x} is told {reply:x?}, which nobody owes"));
            let good = account.failed_write.map_or(self.done, |failed| failed - 1);
            assert!(account.owed[place].1 <= good, "{reply:x?} was told before its writes were done");
            let is_said = |&index: &usize| account.owed[index].0 == reply;
            account.told.extend((account.settled..account.owed.len()).filter(is_said));
            for skipped in account.settled..place {
                let (old, _) = account.owed[skipped];
                let covers = |&(new, _): &(Owed, u64)| is_nak(&new) || !is_before(new.psn, old.psn);
                assert!(
                    !is_nak(&old)
                        || account.told.contains(&skipped)
                        || account.owed[skipped + 1..=place].iter().any(covers),
                    "{index:#x}: {old:x?} was lost"
                );
            }
            account.settled = place + 1;
        }
        account.open_psn = if is_nak(&reply) { reply.psn } else { (reply.psn + 1) & 0xff_ffff };
        account.last_msn = reply.msn;
        account.newest = Some(reply);
    }

    fn check_limit(&mut self, notice: &SrqLimitNotice) {
        let reached = (notice.srq.to_u64() as u8, notice.limit_generation.to_u64() as u8);
        let place = self.model.limits.iter().position(|limit| *limit == reached);
        self.model.limits.remove(place.expect("a limit is reached"));
    }

    fn check_failure(&mut self, event: &QpNotice) {
        assert_eq!(event.kind, NoticeKind::ResponderError);
        let (index, generation) = (event.queue_pair.to_u64() as u16, event.generation.to_u64() as u8);
        let code = event.has_event.then(|| AsyncEvent::from_number(event.event_code.to_u64()).unwrap());
        let failure: Failure = (index, generation, code);
        let place = self.model.failures.iter().position(|expected| *expected == failure);
        self.accounts.entry((index, generation)).or_default().has_failed = true;
        self.failed.push((self.cycle, index));
        let is_current = self.is_current(index, generation);
        match place {
            Some(place) => _ = self.model.failures.remove(place),
            None => assert!(!is_current, "{failure:?} is news to the model"),
        }
        if is_current && self.failing.iter().all(|failing| failing.0 != index) {
            let delay = if self.stalls.sink() { self.random.random_range(0..80) } else { 20 };
            self.failing.push((index, generation, self.cycle + delay));
        }
    }

    /// Waits until nothing moves, and looks at what must hold then.
    pub(super) fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..20_000 {
            self.step();
            let in_flight = self.bench.block.in_flight.val();
            let flushable = self
                .model
                .queues
                .values()
                .any(|queue| queue.attributes.state == QpState::Error && queue.left_to_flush() > 0);
            let is_quiet = in_flight.entered == in_flight.left
                && self.request.is_none()
                && self.commands.is_empty()
                && self.failing.is_empty()
                && self.placing.is_empty()
                && self.writes.is_empty()
                && self.owed_counts.is_empty()
                && !flushable;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet > 60 {
                break;
            }
        }
        assert!(quiet > 60, "the responder comes to rest");
        assert!(self.expected.iter().all(|(command, is_over)| *is_over && command.payload_bytes == 0));
        assert!(self.flushes.values().all(VecDeque::is_empty) || self.is_loose);
        for (&(index, generation), account) in &self.accounts {
            if self.reply_lives[&index].1 != generation || self.reply_lives[&index].0 == QpState::Reset {
                continue;
            }
            assert_eq!(
                account.failed_write.is_some(),
                account.has_ended,
                "{index:#x}: the last words are said"
            );
            let rest = &account.owed[if account.has_ended { account.owed.len() } else { account.settled }..];
            for (owed, _) in rest {
                let newest = account.newest.expect("something was told");
                // It may have been owed more than once.
                assert!(
                    *owed == newest || (!is_nak(owed) && is_nak(&newest) && is_before(owed.psn, newest.psn)),
                    "{index:#x}: {owed:x?} was never told"
                );
            }
        }
        // What a restart overtakes is stale, if it was under way already.
        let stale = self.expected_replies.entry("stale_dropped").or_default();
        let (least, counted) = (*stale, self.counts.get("stale_dropped").copied().unwrap_or(0));
        assert!(counted >= least && (self.is_loose || counted <= least + self.model.overtaken), "{counted}");
        *stale = counted;
        for (name, &count) in &self.expected_replies {
            assert_eq!(self.count(name), count, "{name}");
        }
        // The last words of a queue pair stand for a NAK that waited.
        self.model.failures.retain(|&(index, generation, _)| {
            let account = self.accounts.get(&(index, generation));
            !account.is_some_and(|account| account.failed_write.is_some() && account.has_failed)
        });
        if !self.is_loose {
            assert!(self.model.failures.is_empty(), "{:?} were not told", self.model.failures);
            for (name, count) in &self.counts {
                let expected = self.model.counts.get(name).or(self.expected_replies.get(name));
                assert_eq!(Some(count), expected, "{name}");
            }
            for (name, count) in &self.model.counts {
                assert_eq!(self.counts.get(name), Some(count), "{name}");
            }
        }
    }

    /// How often something was counted.
    pub(super) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

fn path_of(attributes: &Attributes) -> Path {
    Path {
        local_qp: bits(attributes.qpn.into()),
        path_mtu: bits(attributes.pmtu_code.into()),
        remote_write: attributes.remote_write,
        remote_atomic: attributes.remote_atomic,
        destination_read_atomic: bits(if attributes.remote_atomic { 16 } else { 0 }),
        destination_address: BigUint::from(attributes.peer).into(),
        source_address_index: bits(attributes.own_place.into()),
        partition_key: bits(attributes.partition_key.into()),
        domain: bits(attributes.domain.into()),
        min_rnr_timer: bits(attributes.timer_code.into()),
        receive_completion_queue: bits(attributes.completion_queue.into()),
        receive_base_page: bits(attributes.ring >> 12),
        receive_wqes_log2: bits(attributes.entries_log2.into()),
        shared_receive: attributes.shared.is_some(),
        shared_receive_queue: bits(attributes.shared.unwrap_or(0).into()),
        generation: bits(attributes.generation.into()),
        ..Path::default()
    }
}

fn token_of(request: &Request) -> PacketToken {
    let mut extended = Vec::new();
    let operation = request.opcode & 0x1f;
    use Operation::{
        CompareSwap, FetchAdd, ReadRequest, SendLastImmediate, SendLastInvalidate, SendOnlyImmediate,
        SendOnlyInvalidate, WriteFirst, WriteLastImmediate, WriteOnly, WriteOnlyImmediate,
    };
    if [WriteFirst, WriteOnly, WriteOnlyImmediate, ReadRequest].iter().any(|one| one.code() == operation) {
        extended.extend(request.address.to_be_bytes());
        extended.extend(request.key.to_be_bytes());
        extended.extend(request.length.to_be_bytes());
    }
    if [CompareSwap, FetchAdd].iter().any(|one| one.code() == operation) {
        extended.extend(request.address.to_be_bytes());
        extended.extend(request.key.to_be_bytes());
        extended.extend(request.operand.to_be_bytes());
        extended.extend(request.compare.to_be_bytes());
    }
    let with_immediate = [
        SendLastImmediate,
        SendOnlyImmediate,
        SendLastInvalidate,
        SendOnlyInvalidate,
        WriteLastImmediate,
        WriteOnlyImmediate,
    ];
    if with_immediate.iter().any(|one| one.code() == operation) {
        extended.extend(request.immediate.to_be_bytes());
    }
    PacketToken {
        source_address: BigUint::from(request.peer).into(),
        destination_address: BigUint::from(request.own).into(),
        opcode: bits(request.opcode.into()),
        solicited: request.solicited,
        partition_key: bits(request.partition_key.into()),
        destination_qp: bits(request.qpn.into()),
        ack_request: request.ack_request,
        psn: bits(request.psn.into()),
        extended: BigUint::from_bytes_le(&extended).into(),
        payload_bytes: bits(request.payload_bytes.into()),
        ..PacketToken::default()
    }
}

fn answer_of(regions: &[Region], request: &AccessRequest) -> AccessAnswer {
    assert!(request.length != bits(0), "nobody asks for nothing");
    let rights = [request.local_write, request.remote_write, request.remote_read, request.remote_atomic];
    assert_eq!(rights.iter().filter(|&&right| right).count(), 1, "one right is asked for");
    let is_remote = request.remote_write || request.remote_atomic;
    let (key, domain) = (request.key.to_u64() as u32, request.domain.to_u64() as u32);
    let (address, length) = (request.address.to_u64(), request.length.to_u64() as u32);
    let device = Region::find(regions, key, domain, is_remote, address, length);
    AccessAnswer { ok: device.is_some(), device_address: bits(device.unwrap_or(0x0bad_0bad)) }
}

fn owed_of(reply: &AckNotice) -> Owed {
    Owed {
        syndrome: reply.syndrome.to_u64() as u8,
        psn: reply.psn.to_u64() as u32,
        msn: reply.msn.to_u64() as u32,
    }
}

/// A command in plain numbers, without what means nothing.
fn command_of(command: &PlaceCommand) -> Command {
    let (queue_pair, generation) = (command.queue_pair.to_u64() as u16, command.generation.to_u64() as u8);
    let spans = [command.first, command.second, command.third];
    let spans = spans[..command.span_count.to_u64() as usize].iter();
    let told = command.completion;
    let completion = command.has_completion.then(|| {
        assert_eq!(told.generation, command.generation);
        let status = CompletionStatus::from_number(told.status.to_u64()).unwrap();
        Completion {
            queue: told.completion_queue.to_u64() as u16,
            wr_id: if told.is_last { 0 } else { told.wr_id.to_u64() },
            is_last: told.is_last,
            qpn: told.qp_number.to_u64() as u32,
            consumer_index: told.consumer_index.to_u64() as u16,
            outcome: if status == CompletionStatus::Success {
                Ok(Received {
                    opcode: CompletionOpcode::from_number(told.opcode.to_u64()).unwrap(),
                    length: told.length.to_u64() as u32,
                    // It is kept in the order of the wire.
                    immediate: told.with_immediate.then(|| (told.immediate.to_u64() as u32).swap_bytes()),
                    // And a key as a number.
                    invalidated: told.with_invalidate.then(|| told.immediate.to_u64() as u32),
                    solicited: told.solicited,
                })
            } else {
                Err((status, told.vendor_error.to_u64() as u8))
            },
        }
    });
    if command.has_notice {
        assert_eq!(
            (command.notice.queue_pair, command.notice.generation),
            (command.queue_pair, command.generation)
        );
    }
    Command {
        queue_pair,
        generation,
        payload_bytes: command.payload_bytes.to_u64() as u32,
        spans: spans.map(|span| (span.address.to_u64(), span.length.to_u64() as u32)).collect(),
        completion,
        reply: command.has_notice.then(|| owed_of(&ack_of(command.notice))),
    }
}
