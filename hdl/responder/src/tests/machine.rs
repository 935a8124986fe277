//! A responder between its neighbours: control, a host, a region table, place, a host writer and the transmit
//! path. Its outputs are compared with the model while it runs, and again when it is idle.
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
use rnic_messages::read::{READ_SLOT_BITS, ReadClosed, ReadShare};
use rnic_messages::receive::{AckNotice, PayloadReference, PlaceCommand, ack_of};
use rnic_messages::setup::{
    NoticeKind, QpNotice, SetupEvent, SetupKind, SourceAddressWrite, SrqLimitNotice, SrqSetup, SrqSetupKind,
};
use rnic_messages::sizes::queue_pair_of;
use rnic_messages::sizes::{CELL_BITS, READ_POOL_BITS};
use rnic_messages::transmit::{GatherCommand, TransmitRequest};
use std::collections::{HashMap, HashSet, VecDeque};

mod check;
mod commands;
mod host;

use host::answer_of;

const NAK_OPERATIONAL: u8 = Syndrome::Nak(NakCode::RemoteOperationalError).emit();
/// First value of the count of writes, so that it wraps.
const FIRST_COUNT: u64 = 0xff00;
/// Cycles in which a setup event must be taken: reset's sweep and two doorbells.
const SETUP_CYCLES_MAX: u32 = 2130;
/// The ring of the first shared receive queue.
const FIRST_SHARED: u16 = 1024;

/// A command on its way to all stages.
struct PendingCommand {
    event: SetupEvent,
    /// Instead of `event`, for a shared receive queue.
    srq_event: Option<SrqSetup>,
    attributes: Attributes,
    restarts: bool,
    receive_psn: Option<u32>,
    /// It is for a shared receive queue.
    shared: Option<(u8, Shared)>,
    is_offered: [bool; 4],
    is_taken: [bool; 4],
    waited: u32,
}

/// Replies that ack owes, for one generation of a queue pair.
#[derive(Default)]
struct Account {
    /// Replies, with the writes that must be done before.
    owed: Vec<(Owed, u64)>,
    /// Replies that have left after they were owed, perhaps as an equal one before them.
    told: HashSet<usize>,
    /// Number of replies that have left or were replaced.
    settled: usize,
    /// Number of replies that were owed when the last READ or atomic was released: its answer stands for them.
    covered: usize,
    /// The last reply that left.
    newest: Option<Owed>,
    /// First PSN that no reply has covered.
    open_psn: u32,
    last_msn: u32,
    /// Number of the write that failed.
    failed_write: Option<u64>,
    has_ended: bool,
    /// Control was notified that the queue pair fails.
    has_failed: bool,
}

/// A responder and its neighbours.
pub(super) struct Machine {
    /// Boxed, since a responder with all its signals is too large for the stack of a test.
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
    /// Keys that control invalidates, and when.
    ending: VecDeque<(Invalidation, u64)>,
    reads: Sink<HostSpan>,
    owed: Source<AckNotice>,
    /// Replies in the source, with their writes counted from the beginning.
    owed_counts: VecDeque<(AckNotice, u64)>,
    write_failures: Source<WriteFailure>,
    /// Host memory of the receive rings, by device address.
    memory: HashMap<u64, ([u8; 64], bool)>,
    slots: VecDeque<Slot>,
    /// Commands for the place stage, with their replies.
    placing: VecDeque<PlaceCommand>,
    /// Payload that waits for its command.
    cells: VecDeque<PayloadReference>,
    /// Issued writes: their queue pair, and whether the host refuses them.
    writes: VecDeque<(u16, u8, bool)>,
    issued: u64,
    done: u64,
    /// One write in this many fails; none if zero.
    pub(super) write_failure_rate: u32,
    commands: VecDeque<PendingCommand>,
    /// State of the queue pairs in control.
    pub(super) lives: HashMap<u16, Attributes>,
    /// Queue pairs that failed, and when control sends their state.
    failing: Vec<(u16, u8, u64)>,
    bells: VecDeque<(u16, u16)>,
    /// Expected outcome of the packets, in their order. The flag: their generation has ended meanwhile.
    expected: VecDeque<(Command, bool)>,
    flushes: HashMap<(u16, u8), VecDeque<Command>>,
    accounts: HashMap<(u16, u8), Account>,
    /// State and generation of each queue pair in ack.
    reply_lives: HashMap<u16, (QpState, u8)>,
    /// Words of host memory that atomics access, and the accesses in the host.
    pub(super) words: HashMap<u64, u64>,
    word_reads: Sink<HostSpan>,
    word_writes: Sink<WordWrite>,
    words_read: VecDeque<u64>,
    words_written: VecDeque<WordWrite>,
    gather: Sink<GatherCommand>,
    /// Results of atomics, and the number of writes that were done.
    pub(super) answered: Vec<(GatherCommand, u64)>,
    /// Cycles in which words of atomics were requested, and the number of writes that were done.
    pub(super) word_asked: Vec<(u64, u64)>,
    closed: Option<ReadClosed>,
    counts: HashMap<&'static str, u64>,
    expected_replies: HashMap<&'static str, u64>,
    pub(super) cycle: u64,
    pub(super) placed: Vec<(u64, Command)>,
    pub(super) replied: Vec<(u64, u16, Owed)>,
    /// Queue pairs that must fail, as reported to control.
    pub(super) failed: Vec<(u64, u16)>,
    /// These outputs are stalled.
    pub(super) holds_place: bool,
    pub(super) holds_replies: bool,
    pub(super) holds_reads: bool,
    pub(super) holds_answers: bool,
    pub(super) holds_writes: bool,
    pub(super) holds_gather: bool,
    /// Generations have ended while packets were in flight: the outcome of those packets is not known exactly.
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
            bench.block.source_address_write.value.next = SourceAddressWrite {
                index: bits(place.into()),
                valid: place < 15,
                address: BigUint::from(own_address(place)).into(),
                ..SourceAddressWrite::default()
            };
            bench.block.source_address_write.valid.next = true;
            bench.tick();
        }
        bench.block.source_address_write.valid.next = false;
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
            cells: VecDeque::new(),
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
        // One more region with local write only, and one without any rights.
        let first = machine.model.regions[0];
        machine.model.regions.push(Region { key: 0x207, remote_write: false, ..first });
        machine.model.regions.push(Region { key: 0x307, local_write: false, remote_write: false, ..first });
        machine
    }

    /// Random, or always true without stalls.
    fn goes(&mut self) -> bool {
        !self.stalls.sink() || self.random.random()
    }

    /// Offers a packet; none may be offered already.
    pub(super) fn offer(&mut self, request: Request) {
        assert!(self.may_offer());
        let token = token_of(&request);
        if token.payload_bytes.any() {
            // Whether or not there is such a queue pair.
            self.cells.push_back(PayloadReference {
                queue_pair: token.queue_pair,
                first_cell: token.first_cell,
                payload_bytes: token.payload_bytes,
            });
        }
        self.requests.push(token);
        self.request = Some(request);
    }

    pub(super) fn may_offer(&self) -> bool {
        self.request.is_none()
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
        // Control sends an event to some stages earlier than to others.
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
        // The host returns a word in the next cycle, and finishes a write as fast.
        let read = self.words_read.pop_front();
        block.atomics_word.valid.next = read.is_some();
        if let Some(address) = read {
            let data = self.words.get(&address).copied().unwrap_or_default();
            block.atomics_word.value.next = HostWord { data: bits(data), error: false };
        }
        let written = self.words_written.pop_front();
        block.atomics_done.next = written.is_some();
        if let Some(write) = written {
            self.words.insert(write.address.to_u64(), write.data.to_u64());
        }
        block.read_closed.valid.next = self.closed.is_some();
        block.read_closed.value.next = self.closed.take().unwrap_or_default();
        block.receive_slot.valid.next = slots && !self.slots.is_empty();
        if slots && let Some(slot) = self.slots.pop_front() {
            block.receive_slot.value.next = slot;
        }
        block.receive_posted.valid.next = posts.is_some();
        if let Some((index, producer)) = posts {
            block.receive_posted.value.next =
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
            share_exceeded => share_exceeded,
            acknowledgements_sent => acknowledgements_sent,
            nak_sequence_sent => nak_sequence_sent,
            nak_invalid_request_sent => nak_invalid_request_sent,
            nak_access_sent => nak_access_sent,
            nak_operational_sent => nak_operational_sent,
            nak_rnr_sent => nak_rnr_sent,
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
                let is_ending = |ended: &PendingCommand| ended.attributes.index() == command.queue_pair;
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
            // A packet that is taken in this cycle does not see the doorbell.
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
        // READs and atomics wait for earlier writes in the place stage itself.
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
        queue_pair: queue_pair_of(bits(request.qpn.into())),
        ack_request: request.ack_request,
        psn: bits(request.psn.into()),
        extended: BigUint::from_bytes_le(&extended).into(),
        payload_bytes: bits(request.payload_bytes.into()),
        pad_mismatch: request.pad_mismatch,
        first_cell: bits(u64::from(request.psn) * 37 % (1 << CELL_BITS)),
        ..PacketToken::default()
    }
}
