//! The block between models of the pool, wqe_parse, issue, the peer and control, in plain Rust. When turns take
//! place is left to the block; what it does in each of them is not. ReadResponse and the place stage return
//! anything, but in order.
use super::*;
use crate::messages::{
    BLOCK_MESSAGES, OutstandingMessage, Retired, TimerKind, TimerOrder, WqeCompletion, WqeKind,
};
use crate::opcode::{
    ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE, CONGESTION, READ_RESPONSE_FIRST, READ_RESPONSE_MIDDLE,
    READ_RESPONSE_ONLY,
};
use crate::vendor_error;
use rand::Rng;
use rand::seq::IndexedRandom;
use rnic_blocks::bench::{Bench, Random, Sink, Source, Stalls, Stimulus, Waves, random};
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::{QpState, Service};
use rnic_layout::syndrome::{NakCode, Syndrome};
use rnic_messages::setup::{NoticeKind, SetupKind};
use rnic_messages::sizes::queue_pair_of;
use rnic_messages::sizes::{COMPLETION_QUEUE_BITS, GENERATION_BITS};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A number of the reliable service that is no opcode.
const NO_ANSWER: u64 = 0x1f;
/// Indices of the queue pairs.
const INDICES: [usize; 4] = [0, 5, 0x200, 0x3ff];
/// Index of a queue pair that does not exist.
const UNMADE: u64 = 77;
/// Messages in flight at most: so few that queue pairs are held all the time.
const WINDOW: u16 = 20;
const SHARED_BLOCKS: usize = 3;
/// READs that may be outstanding.
const READS: u64 = 3;
const HOMES: usize = 1 << QUEUE_PAIR_BITS;

/// Message of a model: its record in the pool, and whether the peer has acknowledged it.
#[derive(Clone)]
struct Message {
    token: OutstandingMessage,
    count: u16,
    first_psn: Psn,
    is_sent: bool,
    is_acknowledged: bool,
}

/// Model of the block for a queue pair.
struct Model {
    event: SetupEvent,
    una: Psn,
    has_failed: bool,
    /// PSN, status, reason.
    failure: Option<(Psn, u64, u64)>,
    messages: VecDeque<Message>,
    /// READs that were outstanding and have left.
    reads: u64,
    /// The queue pair is in SQD, and its event is due.
    reports_drained: bool,
    /// Timeouts since `una` moved.
    retries: u64,
    /// The oldest message was in error, so a response and a mark were sent, and nothing more of the queue pair is.
    is_closed: bool,
    /// The response has not returned.
    awaits_last: bool,
    /// The mark has not.
    awaits_mark: bool,
}

/// Model of wqe_parse and issue for a queue pair.
#[derive(Default)]
struct Sender {
    state: u64,
    generation: u8,
    next_psn: u32,
    unsent_psn: u32,
    slot: u16,
    count: u16,
    /// READs that were parsed, and that were issued.
    reads: u64,
    issued_reads: u64,
    /// Blocks of its chain, and the slots taken in the last one.
    chain: VecDeque<usize>,
    tail_count: usize,
    home_lap: bool,
    is_reused: bool,
    is_held: bool,
    /// A slot could not be read, so nothing follows.
    has_ended: bool,
    /// The generation in which a WQE was in error.
    failed: Option<u8>,
    wanted: usize,
}

/// A message between wqe_parse and issue.
struct Item {
    queue_pair: usize,
    token: OutstandingMessage,
    place: u64,
    count: u16,
    /// Of the next packet.
    psn: Psn,
    has_begun: bool,
}

/// State of wqe_parse.
#[derive(Clone, Copy)]
enum Segmenting {
    Idle,
    Judge { queue_pair: usize, seen: Retired },
    Act { queue_pair: usize, seen: Retired },
    Recheck { queue_pair: usize, seen: Retired, now: Retired },
}

/// Turns random behaviour on.
#[derive(Clone, Copy)]
struct Habits {
    /// Out of a thousand cycles.
    events: u32,
    failures: u32,
    expiries: u32,
    answers: u32,
}

struct World {
    bench: Bench<Acknowledge>,
    random: Random,
    setup: Source<SetupEvent>,
    losses: Source<GatherFailure>,
    kicks: Source<LocalCompletion>,
    expiries: Source<Expired>,
    responses: Source<PacketToken>,
    deferred: Sink<Response>,
    returned: Source<ResponseNotice>,
    completions: Sink<CqeToken>,
    failures: Sink<QpNotice>,
    wakes: Sink<Bits<QUEUE_PAIR_BITS>>,
    marks: Sink<Mark>,
    // What the sources offer, in order.
    events_offered: VecDeque<SetupEvent>,
    losses_offered: VecDeque<GatherFailure>,
    kicks_offered: VecDeque<LocalCompletion>,
    expiries_offered: VecDeque<Expired>,
    responses_offered: VecDeque<PacketToken>,
    returned_offered: VecDeque<ResponseNotice>,
    /// Marks that issue and gather have, and when they return.
    marking: VecDeque<(usize, GatherFailure)>,
    marks_expected: Vec<Mark>,
    /// Queue pairs of which nothing more is sent, with their generation.
    closed: BTreeMap<usize, Bits<GENERATION_BITS>>,
    /// Responses that read_response has, and when they return.
    placing: VecDeque<(usize, ResponseNotice)>,
    deferred_expected: Vec<Response>,
    // The pool.
    messages: BTreeMap<u64, OutstandingMessage>,
    links: BTreeMap<usize, usize>,
    begun: BTreeMap<usize, Begun>,
    issued: BTreeMap<usize, Issued>,
    retired: BTreeMap<usize, Retired>,
    free: VecDeque<usize>,
    begun_write: Option<(usize, Begun)>,
    /// What the block read last.
    begun_seen: Begun,
    issued_seen: Issued,
    // The stages.
    senders: BTreeMap<usize, Sender>,
    segmenting: Segmenting,
    window: u16,
    /// Whether WQEs are signalled, if that is not left to chance.
    signals: Option<bool>,
    wakes_taken: usize,
    failures_taken: usize,
    items: VecDeque<Item>,
    late_losses: Vec<GatherFailure>,
    // Control.
    commands: VecDeque<SetupEvent>,
    lives: BTreeMap<usize, SetupEvent>,
    /// What the timers were set to.
    timers: BTreeMap<usize, TimerOrder>,
    /// Epochs, as the other stages know them.
    epochs: BTreeMap<usize, u64>,
    // What is expected.
    models: BTreeMap<usize, Model>,
    completions_expected: Vec<CqeToken>,
    failures_expected: Vec<QpNotice>,
    counts: BTreeMap<&'static str, u64>,
    counts_expected: BTreeMap<&'static str, u64>,
    turns: usize,
    cycle: usize,
    completions_stall: bool,
}

fn counts_of(block: &Acknowledge) -> [(&'static str, Bit); 17] {
    [
        ("unknown_qp", block.counts.val().unknown_qp),
        ("qp_not_ready", block.counts.val().qp_not_ready),
        ("transport_mismatch", block.counts.val().transport_mismatch),
        ("partition_key", block.counts.val().partition_key),
        ("source_address", block.counts.val().source_address),
        ("acknowledgements_received", block.counts.val().acknowledgements_received),
        ("nak_received", block.counts.val().nak_received),
        ("nak_rnr_received", block.counts.val().nak_rnr_received),
        ("response_stale", block.counts.val().response_stale),
        ("response_never_sent", block.counts.val().response_never_sent),
        ("response_reserved", block.counts.val().response_reserved),
        ("response_unexpected", block.counts.val().response_unexpected),
        ("timeout", block.counts.val().timeout),
        ("retry_exhausted", block.counts.val().retry_exhausted),
        ("rnr_retry_exceeded", block.counts.val().rnr_retry_exceeded),
        ("messages_completed", block.counts.val().messages_completed),
        ("stale_dropped", block.counts.val().stale_dropped),
    ]
}

/// The source address of the card in a row of its table; the last row is not in use.
fn own_address(place: Bits<SOURCE_ADDRESS_BITS>) -> Bits<128> {
    bits::<128>(0x0200_00ff_fe00_0000 | place.to_u64())
}

/// Says whether a P_Key of a packet is one that a queue pair with P_Key `own` takes (protocol 4.3).
fn is_member(packet: u64, own: u64) -> bool {
    let (partition, is_full) = (packet & 0x7fff, (packet | own) & 0x8000 != 0);
    partition != 0 && partition == own & 0x7fff && is_full
}

fn psn_of(bits: Bits<24>) -> Psn {
    Psn::wrapping(bits.to_u64() as u32)
}

impl Model {
    fn new() -> Self {
        Model {
            event: SetupEvent::default(),
            una: Psn::wrapping(0),
            has_failed: false,
            failure: None,
            messages: VecDeque::new(),
            reads: 0,
            reports_drained: false,
            retries: 0,
            is_closed: false,
            awaits_last: false,
            awaits_mark: false,
        }
    }

    fn takes_event(&mut self, event: SetupEvent) {
        let drained = QpState::SendQueueDrain as u64;
        let was_draining = self.event.state == drained;
        let was_in_error = self.event.state == QpState::SendQueueError as u64;
        self.event = event;
        if [SetupKind::Life, SetupKind::Restart].contains(&event.kind) {
            let begins = event.kind == SetupKind::Life && event.state == drained && event.path.drain_notify;
            self.reports_drained = begins && (!was_draining || self.reports_drained);
        }
        match event.kind {
            SetupKind::Life => {
                if was_in_error && event.state == QpState::ReadyToSend as u64 {
                    (self.has_failed, self.failure, self.is_closed) = (false, None, false);
                }
                let has_ended =
                    [QpState::Error as u64, QpState::SendQueueError as u64].contains(&event.state.to_u64());
                self.has_failed |= has_ended && !self.is_closed;
            }
            SetupKind::Restart => {
                (self.has_failed, self.failure, self.retries) = (false, None, 0);
                (self.is_closed, self.awaits_last, self.awaits_mark) = (false, false, false);
            }
            SetupKind::SendPsn => self.una = psn_of(event.psn),
            _ => {}
        }
    }

    /// A packet was not sent; one that the peer has acknowledged had been sent before.
    fn loses(&mut self, psn: Psn, status: u64, reason: u64) {
        if !psn.is_before(self.una) {
            self.fails_at(psn, status, reason);
        }
    }

    fn fails_at(&mut self, psn: Psn, status: u64, reason: u64) -> bool {
        let is_first = self.failure.is_none_or(|(earlier, ..)| psn.is_before(earlier));
        if is_first {
            self.failure = Some((psn, status, reason));
        }
        is_first
    }

    /// Nothing that the peer says has an effect any more.
    fn is_over(&self) -> bool {
        self.has_failed || self.is_closed
    }

    /// A mark has returned.
    fn takes_mark(&mut self, generation: Bits<GENERATION_BITS>) {
        self.awaits_mark &= generation != self.event.generation;
    }

    /// Whether the queue pair accepts responses.
    fn listens(&self) -> bool {
        let states =
            [QpState::ReadyToReceive, QpState::ReadyToSend, QpState::SendQueueDrain, QpState::SendQueueError];
        !self.is_over() && states.iter().any(|&state| self.event.state == state as u64)
    }

    /// What a response means, given how many messages had been issued: the names of the counters that it moves,
    /// and what read_response gets of it.
    fn takes_answer(
        &mut self,
        packet: &PacketToken,
        issued: Issued,
    ) -> (Vec<&'static str>, Option<Response>) {
        let opcode = packet.opcode.to_u64();
        let syndrome = packet.extended.get_bits::<8>(0).to_u64() as u8;
        let may_have_data = is_data(opcode) && opcode != ATOMIC_ACKNOWLEDGE;
        let is_long = !may_have_data && (packet.payload_bytes.any() || packet.pad_mismatch);
        let has_aeth = is_data(opcode) && opcode != READ_RESPONSE_MIDDLE;
        let is_void = has_aeth && !matches!(Syndrome::parse(syndrome), Syndrome::Ack { .. });
        let mut response = Response {
            queue_pair: packet.queue_pair,
            generation: self.event.generation,
            is_good: false,
            is_data: is_data(opcode) && !is_long && !is_void,
            opcode: packet.opcode,
            psn: packet.psn,
            syndrome: packet.extended.get_bits::<8>(0),
            payload_bytes: packet.payload_bytes,
            pad_mismatch: packet.pad_mismatch,
            original: packet.extended.get_bits::<64>(32),
            is_last: false,
        };
        let dropped = packet.payload_bytes.any().then_some(response);
        if opcode == CONGESTION {
            return (vec![], dropped);
        }
        let path = self.event.path;
        let own = own_address(path.source_address_index);
        let fault = if packet.destination_qp != path.local_qp {
            "unknown_qp"
        } else if !self.listens() {
            "qp_not_ready"
        } else if opcode >> 5 != 0 || path.service != Service::ReliableConnected as u64 {
            "transport_mismatch"
        } else if !is_member(packet.partition_key.to_u64(), path.partition_key.to_u64()) {
            "partition_key"
        } else if packet.source_address != path.destination_address || packet.destination_address != own {
            "source_address"
        } else {
            ""
        };
        if !fault.is_empty() {
            return (vec![fault], dropped);
        }
        let psn = psn_of(packet.psn);
        let Some(hit) = self.hit(psn, issued) else {
            return (vec![self.outside(psn)], dropped);
        };
        let is_answer = opcode == ACKNOWLEDGE && !is_long;
        if is_void && !is_long {
            return (vec!["response_reserved"], dropped);
        }
        if !response.is_data && !is_answer {
            return (vec!["response_unexpected"], dropped);
        }
        let has_open = issued.reads != (self.reads & 31);
        if opcode == ATOMIC_ACKNOWLEDGE && !has_open {
            return (vec!["response_unexpected"], dropped);
        }
        let is_reserved = is_answer
            && matches!(
                Syndrome::parse(syndrome),
                Syndrome::Reserved(_) | Syndrome::Nak(NakCode::InvalidRdRequest)
            );
        if response.is_data || (has_open && !is_reserved) {
            response.is_good = true;
            return (vec![], Some(response));
        }
        (self.hears(hit, psn, syndrome), None)
    }

    /// What returns from the place stage.
    fn takes_returned(&mut self, returned: ResponseNotice, issued: Issued) -> Vec<&'static str> {
        self.awaits_last &= !returned.is_last || returned.generation != self.event.generation;
        let says =
            returned.is_placed || returned.is_acknowledge || returned.is_read_error || returned.is_unexpected;
        if !says || !self.listens() || returned.generation != self.event.generation {
            return vec![];
        }
        let psn = psn_of(returned.psn);
        let Some(hit) = self.hit(psn, issued) else {
            return vec![self.outside(psn)];
        };
        if returned.is_acknowledge {
            return self.hears(hit, psn, returned.syndrome.to_u64() as u8);
        }
        if returned.is_unexpected {
            self.fails_at(self.una, CompletionStatus::BadResponse as u64, 0);
            return vec![];
        }
        if returned.is_placed && !returned.write_failed {
            self.moves(hit, psn, true);
            return vec![];
        }
        let (status, reason) = if returned.is_placed {
            (CompletionStatus::LocalProtection as u64, vendor_error::PAYLOAD)
        } else {
            (returned.status.to_u64(), 0)
        };
        self.moves(hit, psn, false);
        let ends = self.fails_at(psn, status, reason);
        if ends && status == CompletionStatus::RetryExceeded as u64 {
            vec!["retry_exhausted"]
        } else {
            vec![]
        }
    }

    /// An expiry: the names of the counters that it moves.
    fn takes_expiry(&mut self, expired: Expired, issued: Issued, retired: Retired) -> Vec<&'static str> {
        if expired.generation != self.event.generation {
            return vec!["stale_dropped"];
        }
        let sends = [QpState::ReadyToSend as u64, QpState::SendQueueDrain as u64];
        let is_in_time = psn_of(expired.una_psn) == self.una && expired.attempt == self.retries;
        let is_outstanding = issued.generation == self.event.generation
            && issued.count != retired.count
            && psn_of(issued.unsent_psn) != self.una;
        let listens = !self.is_over() && sends.contains(&self.event.state.to_u64());
        if !is_in_time || !is_outstanding || !listens || expired.kind != TimerKind::Ack {
            return vec![];
        }
        if self.event.path.retry_count != self.retries {
            self.retries += 1;
            return vec!["timeout"];
        }
        let ends = self.fails_at(self.una, CompletionStatus::RetryExceeded as u64, 0);
        std::iter::once("timeout").chain(ends.then_some("retry_exhausted")).collect()
    }

    /// What the timer is to wait for, with the oldest unacknowledged PSN and the retries.
    fn timer(&self) -> (TimerKind, u64, u64) {
        let kind = if self.is_over() { TimerKind::Stop } else { TimerKind::Ack };
        (kind, self.una.value().into(), self.retries)
    }

    fn outside(&self, psn: Psn) -> &'static str {
        if psn.is_before(self.una) { "response_stale" } else { "response_never_sent" }
    }

    /// Which message a response is for, if it is in flight.
    fn hit(&self, psn: Psn, issued: Issued) -> Option<usize> {
        let is_sent = !psn.is_before(self.una) && psn.is_before(psn_of(issued.unsent_psn));
        self.messages.iter().position(|message| {
            let is_within =
                !psn.is_before(message.first_psn) && !psn_of(message.token.last_psn).is_before(psn);
            is_sent && is_within && self.is_in_flight(message, issued)
        })
    }

    fn is_in_flight(&self, message: &Message, issued: Issued) -> bool {
        let is_seen = (issued.count.to_u64() as u16).wrapping_sub(message.count) < 0x8000;
        is_seen
            && message.is_sent
            && !message.is_acknowledged
            && message.token.generation == self.event.generation
    }

    /// The peer has executed what was sent before this PSN, and this one too perhaps.
    fn moves(&mut self, hit: usize, psn: Psn, has_it: bool) {
        let generation = self.event.generation;
        for message in self.messages.iter_mut().take(hit) {
            message.is_acknowledged |= message.is_sent && message.token.generation == generation;
        }
        self.messages[hit].is_acknowledged = has_it && psn_of(self.messages[hit].token.last_psn) == psn;
        let una = if has_it { psn.add(1) } else { psn };
        if una != self.una {
            (self.una, self.retries) = (una, 0);
        }
    }

    /// An ACK or NAK.
    fn hears(&mut self, hit: usize, psn: Psn, syndrome: u8) -> Vec<&'static str> {
        let (status, counter, exhausted) = match Syndrome::parse(syndrome) {
            Syndrome::Ack { .. } => {
                self.moves(hit, psn, true);
                return vec!["acknowledgements_received"];
            }
            Syndrome::Reserved(_) | Syndrome::Nak(NakCode::InvalidRdRequest) => {
                return vec!["response_reserved"];
            }
            Syndrome::RnrNak { .. } => {
                (CompletionStatus::RnrRetryExceeded as u64, "nak_rnr_received", Some("rnr_retry_exceeded"))
            }
            Syndrome::Nak(NakCode::PsnSequenceError) => {
                (CompletionStatus::RetryExceeded as u64, "nak_received", Some("retry_exhausted"))
            }
            Syndrome::Nak(NakCode::InvalidRequest) => {
                (CompletionStatus::RemoteInvalidRequest as u64, "nak_received", None)
            }
            Syndrome::Nak(NakCode::RemoteAccessError) => {
                (CompletionStatus::RemoteAccess as u64, "nak_received", None)
            }
            Syndrome::Nak(NakCode::RemoteOperationalError) => {
                (CompletionStatus::RemoteOperation as u64, "nak_received", None)
            }
        };
        self.moves(hit, psn, false);
        let ends = self.fails_at(psn, status, u64::from(syndrome));
        std::iter::once(counter).chain(exhausted.filter(|_| ends)).collect()
    }

    /// How the oldest message would end now: `None` if it stays, else status and reason, or that it makes no
    /// CQE.
    fn verdict(&self) -> Option<Option<(u64, u64)>> {
        self.judged().filter(|_| !self.may_be_used())
    }

    /// Whether the oldest message is in error, and memory of messages may still be written or read.
    fn may_be_used(&self) -> bool {
        let is_error =
            matches!(self.judged(), Some(Some((status, _))) if status != CompletionStatus::Success as u64);
        is_error && (!self.is_closed || self.awaits_last || self.awaits_mark)
    }

    /// The verdict on a message whose memory nothing uses.
    fn judged(&self) -> Option<Option<(u64, u64)>> {
        let message = self.messages.front()?;
        let status = message.token.completion.status.to_u64();
        if message.token.generation != self.event.generation || self.event.state == QpState::Reset as u64 {
            return Some(None);
        }
        if self.has_failed || status == CompletionStatus::Flushed as u64 {
            return Some(Some((CompletionStatus::Flushed as u64, 0)));
        }
        if status != CompletionStatus::Success as u64 {
            return Some(Some((status, message.token.completion.reason.to_u64())));
        }
        match self.failure {
            Some((psn, status, reason)) if !psn_of(message.token.last_psn).is_before(psn) => {
                Some(Some((status, reason)))
            }
            _ => message.is_acknowledged.then_some(Some((CompletionStatus::Success as u64, 0))),
        }
    }
}

impl World {
    fn new(stalls: Stalls) -> Self {
        let mut bench = Bench::clocked(Acknowledge::default(), |block| &mut block.clock).in_lock_step();
        for place in 0..16 {
            bench.block.source_address_write.value.next = SourceAddressWrite {
                index: bits(place),
                valid: place < 15,
                address: own_address(bits(place)),
                ..SourceAddressWrite::default()
            };
            bench.block.source_address_write.valid.next = true;
            bench.tick();
        }
        bench.block.source_address_write.valid.next = false;
        World {
            bench,
            random: random(),
            setup: Source::of_tokens([], stalls),
            losses: Source::of_tokens([], stalls),
            kicks: Source::of_tokens([], stalls),
            expiries: Source::of_tokens([], stalls),
            responses: Source::of_tokens([], stalls),
            deferred: Sink::new(stalls),
            returned: Source::of_tokens([], stalls),
            completions: Sink::new(stalls),
            failures: Sink::new(stalls),
            wakes: Sink::new(stalls),
            marks: Sink::new(stalls),
            events_offered: VecDeque::new(),
            losses_offered: VecDeque::new(),
            kicks_offered: VecDeque::new(),
            expiries_offered: VecDeque::new(),
            responses_offered: VecDeque::new(),
            returned_offered: VecDeque::new(),
            marking: VecDeque::new(),
            marks_expected: vec![],
            closed: BTreeMap::new(),
            placing: VecDeque::new(),
            deferred_expected: vec![],
            messages: BTreeMap::new(),
            links: BTreeMap::new(),
            begun: INDICES.map(|index| (index, Begun::default())).into(),
            issued: INDICES.map(|index| (index, Issued::default())).into(),
            retired: INDICES.map(|index| (index, Retired::default())).into(),
            free: (HOMES..HOMES + SHARED_BLOCKS).collect(),
            begun_write: None,
            begun_seen: Begun::default(),
            issued_seen: Issued::default(),
            senders: INDICES
                .map(|index| (index, Sender { chain: [index].into(), ..Sender::default() }))
                .into(),
            segmenting: Segmenting::Idle,
            window: WINDOW,
            signals: None,
            wakes_taken: 0,
            failures_taken: 0,
            items: VecDeque::new(),
            late_losses: vec![],
            commands: VecDeque::new(),
            lives: INDICES.map(|index| (index, SetupEvent::default())).into(),
            models: INDICES.map(|index| (index, Model::new())).into(),
            timers: BTreeMap::new(),
            epochs: BTreeMap::new(),
            completions_expected: vec![],
            failures_expected: vec![],
            counts: BTreeMap::new(),
            counts_expected: BTreeMap::new(),
            turns: 0,
            cycle: 0,
            completions_stall: false,
        }
    }

    fn count(&mut self, name: &'static str) {
        *self.counts_expected.entry(name).or_default() += 1;
    }

    /// One cycle of the block and the pool; checks all that it does.
    fn cycle(&mut self) {
        let random = &mut self.random;
        let block = &mut self.bench.block;
        self.setup.drive(&mut block.setup, random);
        self.losses.drive(&mut block.gather_failure, random);
        self.kicks.drive(&mut block.local_completion, random);
        self.expiries.drive(&mut block.expired, random);
        self.responses.drive(&mut block.responses, random);
        self.deferred.drive(&mut block.response, random);
        self.returned.drive(&mut block.returned, random);
        self.completions.drive(&mut block.completion, random);
        block.completion.ready.next &= !self.completions_stall;
        self.failures.drive(&mut block.failure, random);
        self.wakes.drive(&mut block.wake, random);
        self.marks.drive(&mut block.mark, random);
        self.bench.settle();
        let block = &self.bench.block;
        let has_event = self.setup.sample(&block.setup);
        let has_loss = self.losses.sample(&block.gather_failure);
        let has_local = self.kicks.sample(&block.local_completion);
        let has_expired = self.expiries.sample(&block.expired);
        let has_input = self.responses.sample(&block.responses);
        let deferred = self.deferred.sample(&block.response);
        let has_returned = self.returned.sample(&block.returned);
        self.completions.sample(&block.completion);
        self.failures.sample(&block.failure);
        self.wakes.sample(&block.wake);
        let mark = self.marks.sample(&block.mark);
        for (name, pulse) in counts_of(block) {
            *self.counts.entry(name).or_default() += u64::from(pulse);
            // A pulse follows what it counts by one cycle; turns are known at their end only.
            let expected = self.counts_expected.get(name).copied().unwrap_or(0);
            assert!(name == "messages_completed" || self.counts[name] == expected, "{name}: {expected}");
        }

        // The timer is set in the cycle after a change.
        if block.timer_set.valid.val() {
            let set = block.timer_set.value.val();
            let index = set.queue_pair.to_u64() as usize;
            let order = set.order;
            let found = (order.kind, order.una_psn.to_u64(), order.attempt.to_u64());
            assert_eq!(found, self.models[&index].timer(), "cycle {}: timer of {index:#x}", self.cycle);
            let epoch = self.epochs.get(&index).copied().unwrap_or(0);
            assert_eq!(order.epoch, epoch, "cycle {}: timer of {index:#x}", self.cycle);
            self.timers.insert(index, order);
        }

        // The pool shows in the next cycle what was there before this cycle.
        let PoolRead { queue_pair, reads_issued, reads_begun, pool_slot } = block.pool_read.val();
        let (asked, place) = (queue_pair.to_u64() as usize, pool_slot.to_u64());
        let message = self.messages.get(&place).copied().unwrap_or_default();
        let next = self.links.get(&(place as usize >> 3)).copied().unwrap_or(0);
        let begun = self.begun.get(&asked).copied().unwrap_or_default();
        let issued = self.issued.get(&asked).copied().unwrap_or_default();
        let retired = block.retired.val();
        let retires = retired.valid.then(|| (retired.queue_pair.to_u64() as usize, retired.retired));
        if let Some((index, _)) = retires {
            assert_eq!(retired.generation, self.models[&index].event.generation);
            self.closed.remove(&index);
            self.closed.extend(retired.is_closed.then_some((index, retired.generation)));
        }
        self.epochs.extend(retires.map(|(index, retired)| (index, retired.epoch.to_u64())));
        let freed = block.freed.valid.val().then(|| block.freed.value.val().to_u64() as usize + HOMES);

        if has_event {
            let event = self.events_offered.pop_front().unwrap();
            self.models.get_mut(&(event.queue_pair.to_u64() as usize)).unwrap().takes_event(event);
        }
        if has_loss {
            let loss = self.losses_offered.pop_front().unwrap();
            let model = self.models.get_mut(&(loss.queue_pair.to_u64() as usize)).unwrap();
            if loss.is_mark {
                model.takes_mark(loss.generation);
            } else if loss.generation == model.event.generation {
                model.loses(
                    psn_of(loss.psn),
                    CompletionStatus::LocalProtection as u64,
                    vendor_error::PAYLOAD,
                );
            } else {
                self.count("stale_dropped");
            }
        }
        if has_local {
            let local = self.kicks_offered.pop_front().unwrap();
            let model = self.models.get_mut(&(local.queue_pair.to_u64() as usize)).unwrap();
            if local.has_failed && local.generation == model.event.generation {
                model.loses(psn_of(local.psn), CompletionStatus::LocalProtection as u64, 0);
            } else if local.has_failed {
                self.count("stale_dropped");
            }
        }
        if has_expired {
            let expired = self.expiries_offered.pop_front().unwrap();
            let (issued, index) = (self.issued_seen, expired.queue_pair.to_u64() as usize);
            let retired = self.retired[&index];
            let counters = self.models.get_mut(&index).unwrap().takes_expiry(expired, issued, retired);
            counters.into_iter().for_each(|name| self.count(name));
        }
        if has_input {
            let packet = self.responses_offered.pop_front().unwrap();
            let index = packet.queue_pair.to_u64() as usize;
            let issued = self.issued_seen;
            let unknown = Response {
                queue_pair: bits(index as u64),
                is_data: is_data(packet.opcode.to_u64()),
                opcode: packet.opcode,
                psn: packet.psn,
                syndrome: packet.extended.get_bits::<8>(0),
                payload_bytes: packet.payload_bytes,
                pad_mismatch: packet.pad_mismatch,
                original: packet.extended.get_bits::<64>(32),
                ..Response::default()
            };
            let dropped = packet.payload_bytes.any().then_some(unknown);
            let (counters, response) = match self.models.get_mut(&index) {
                Some(model) => model.takes_answer(&packet, issued),
                None if packet.opcode == CONGESTION => (vec![], dropped),
                None => (vec!["unknown_qp"], dropped),
            };
            counters.into_iter().for_each(|name| self.count(name));
            self.deferred_expected.extend(response);
        }
        if has_returned {
            let returned = self.returned_offered.pop_front().unwrap();
            let issued = self.issued_seen;
            let index = returned.queue_pair.to_u64() as usize;
            let model = self.models.get_mut(&index);
            let counters = model.map_or(vec![], |model| model.takes_returned(returned, issued));
            counters.into_iter().for_each(|name| self.count(name));
        }
        if let Some(response) = deferred {
            let number = self.deferred.received.len() - 1;
            assert_eq!(response, self.deferred_expected[number], "response {number} to read_response");
            let returned = self.place(response);
            let soonest = self.placing.back().map_or(0, |placing| placing.0);
            let due = soonest.max(self.cycle + self.random.random_range(0..60));
            self.placing.push_back((due, returned));
        }
        if let Some(mark) = mark {
            let number = self.marks.received.len() - 1;
            assert_eq!(mark, self.marks_expected[number], "mark {number}");
            let index = mark.queue_pair.to_u64() as usize;
            let is_current = self.models[&index].event.generation == mark.generation;
            assert!(
                !is_current || self.closed.get(&index) == Some(&mark.generation),
                "nothing follows a mark"
            );
            let returned = GatherFailure {
                queue_pair: mark.queue_pair,
                generation: mark.generation,
                psn: Stimulus::sample(&mut self.random),
                is_response: false,
                is_mark: true,
            };
            let soonest = self.marking.back().map_or(0, |marking| marking.0);
            let due = soonest.max(self.cycle + self.random.random_range(0..60));
            self.marking.push_back((due, returned));
        }
        if let Some(&(due, returned)) = self.marking.front()
            && due <= self.cycle
        {
            self.marking.pop_front();
            self.losses_offered.push_back(returned);
            self.losses.push(returned);
        }
        if let Some(&(due, returned)) = self.placing.front()
            && due <= self.cycle
        {
            self.placing.pop_front();
            self.returned_offered.push_back(returned);
            self.returned.push(returned);
        }
        if let Some(block) = freed {
            let owner = self.senders.values_mut().find(|sender| sender.chain.contains(&block));
            let owner = owner.expect("a freed block is in a chain");
            let position = owner.chain.iter().position(|&other| other == block).unwrap();
            assert!(position <= 1 && owner.chain.len() > position + 1, "it is at the beginning of its chain");
            owner.chain.remove(position);
            self.free.push_back(block);
        }
        if let Some((index, retired)) = retires {
            self.turn(index, retired);
        }
        if reads_issued {
            self.issued_seen = issued;
        }
        if reads_begun {
            self.begun_seen = begun;
        }
        if let Some((index, begun)) = self.begun_write.take() {
            self.begun.insert(index, begun);
        }
        self.bench.tick();
        let block = &mut self.bench.block;
        block.message.next = message;
        block.next_block.next = bits(next as u64);
        if reads_issued {
            block.issued.next = issued;
        }
        if reads_begun {
            block.begun.next = begun;
        }
        self.cycle += 1;
    }

    /// What read_response and the place stage return for a response.
    fn place(&mut self, response: Response) -> ResponseNotice {
        let mut returned = ResponseNotice {
            queue_pair: response.queue_pair,
            generation: response.generation,
            psn: response.psn,
            syndrome: response.syndrome,
            is_last: response.is_last,
            ..ResponseNotice::default()
        };
        if !response.is_good {
            return returned;
        }
        match self.random.random_range(0..if response.is_data { 50 } else { 30 }) {
            0 => {
                returned.is_read_error = true;
                let statuses = [
                    CompletionStatus::BadResponse as u64,
                    CompletionStatus::RetryExceeded as u64,
                    CompletionStatus::LocalProtection as u64,
                ];
                returned.status = bits(*statuses.choose(&mut self.random).unwrap());
            }
            1 => {}
            2 if response.is_data => returned.is_unexpected = true,
            _ if response.is_data => {
                returned.is_placed = true;
                returned.write_failed = self.random.random_range(0..40) == 0;
                let oldest = self
                    .models
                    .get(&(response.queue_pair.to_u64() as usize))
                    .and_then(|model| model.messages.front());
                let is_inside = oldest
                    .is_some_and(|message| psn_of(response.psn).is_before(psn_of(message.token.last_psn)));
                returned.is_middle = is_inside && self.random.random();
            }
            _ => returned.is_acknowledge = true,
        }
        returned
    }

    /// A turn has ended: checks the messages that have left.
    fn turn(&mut self, index: usize, retired: Retired) {
        let before = self.retired[&index];
        assert_eq!(psn_of(retired.una_psn), self.models[&index].una);
        let left = (retired.count - before.count).to_u64();
        assert!(left <= 8, "{left} messages left in one turn");
        self.turns += 1;
        let model = self.models.get_mut(&index).unwrap();
        let mut completed = 0;
        for _ in 0..left {
            let verdict = model.verdict().expect("a message that stays has not left");
            let message = model.messages.pop_front().unwrap();
            model.reads += u64::from(message.token.is_open);
            let unissued = (self.issued_seen.count.to_u64() as u16).wrapping_sub(message.count);
            assert!(unissued < 0x8000, "a message left that had not been issued");
            let Some((status, reason)) = verdict else { continue };
            let token = message.token;
            completed += u64::from(status == CompletionStatus::Success as u64);
            if status != CompletionStatus::Success as u64 {
                if status != CompletionStatus::Flushed as u64 || !token.completion.has_wr_id {
                    self.failures_expected.push(QpNotice {
                        queue_pair: bits(index as u64),
                        generation: model.event.generation,
                        kind: NoticeKind::RequesterError,
                        has_event: !token.completion.has_wr_id,
                        event_code: bits(AsyncEvent::QueuePairFatal as u64),
                    });
                }
                model.has_failed = true;
            }
            if token.completion.has_wr_id
                && (status != CompletionStatus::Success as u64 || token.completion.is_signalled)
            {
                self.completions_expected.push(CqeToken {
                    completion_queue: model
                        .event
                        .path
                        .send_completion_queue
                        .get_bits::<COMPLETION_QUEUE_BITS>(0),
                    wr_id: token.completion.wr_id,
                    qp_number: model.event.path.local_qp,
                    queue_pair: model.event.queue_pair,
                    generation: model.event.generation,
                    consumer_index: token.next_slot,
                    length: if token.kind.is_read && status == CompletionStatus::Success as u64 {
                        token.length
                    } else {
                        bits(0)
                    },
                    opcode: bits(
                        match (
                            token.kind.is_read,
                            token.kind.is_atomic,
                            token.kind.is_compare,
                            token.kind.is_write,
                        ) {
                            (true, false, _, _) => CompletionOpcode::Read as u64,
                            (true, true, true, _) => CompletionOpcode::CompareSwap as u64,
                            (true, true, false, _) => CompletionOpcode::FetchAdd as u64,
                            (false, _, _, true) => CompletionOpcode::Write as u64,
                            (false, _, _, false) => CompletionOpcode::Send as u64,
                        },
                    ),
                    status: bits(status),
                    vendor_error: bits(reason),
                    ..CqeToken::default()
                });
            }
        }
        // WqeParse may have taken more since the turn began.
        if model.reports_drained && !model.has_failed && retired.count == self.begun_seen.count {
            model.reports_drained = false;
            self.failures_expected.push(QpNotice {
                queue_pair: bits(index as u64),
                generation: model.event.generation,
                kind: NoticeKind::Drained,
                has_event: true,
                event_code: bits(AsyncEvent::SendQueueDrained as u64),
            });
        }
        assert_eq!(retired.reads, model.reads & 31);
        assert_eq!(retired.has_failed, model.has_failed, "what has not begun is flushed");
        if left < 8 && retired.count != self.issued_seen.count {
            if model.may_be_used() && !model.is_closed {
                (model.is_closed, model.awaits_last, model.awaits_mark) = (true, true, true);
                self.marks_expected
                    .push(Mark { queue_pair: bits(index as u64), generation: model.event.generation });
                self.deferred_expected.push(Response {
                    queue_pair: bits(index as u64),
                    generation: model.event.generation,
                    is_last: true,
                    ..Response::default()
                });
            }
            let verdict = model.verdict();
            let state = (model.una, model.has_failed, model.failure, model.event.state, self.issued_seen);
            let message = model.messages.front().map(|message| message.token);
            assert!(
                verdict.is_none(),
                "cycle {}: {message:?} could leave {index:#x} and did not: {verdict:?}, {state:?}, {left} left",
                self.cycle
            );
        }
        if retired.home_lap != before.home_lap {
            let chain = &mut self.senders.get_mut(&index).unwrap().chain;
            assert!(chain.len() > 1 && chain.contains(&index), "the home has left its chain");
            chain.retain(|&block| block != index);
        }
        *self.counts_expected.entry("messages_completed").or_default() += completed;
        self.retired.insert(index, retired);
    }

    fn kicks(&mut self, local: LocalCompletion) {
        self.kicks_offered.push_back(local);
        self.kicks.push(local);
    }

    /// Issue: the oldest message is written into the pool with its first packet, or another of its packets is
    /// sent.
    fn issue(&mut self, fails: bool) {
        let Some(mut item) = self.items.pop_front() else { return };
        let sender = self.senders.get_mut(&item.queue_pair).unwrap();
        let generation = item.token.generation.to_u64() as u8;
        let serves = [QpState::ReadyToSend as u64, QpState::SendQueueDrain as u64].contains(&sender.state)
            && sender.generation == generation;
        let mut local = LocalCompletion {
            queue_pair: bits(item.queue_pair as u64),
            generation: item.token.generation,
            has_failed: false,
            psn: bits(item.psn.value().into()),
            is_invalidated: false,
            is_denied: false,
        };
        if item.has_begun && !serves {
            // The rest of it was dropped.
            return;
        }
        if sender.failed == Some(generation) {
            item.token.completion.status = bits(CompletionStatus::Flushed as u64);
        }
        let had_failed = sender.failed == Some(generation);
        let fails_behind = item.has_begun && fails && self.random.random();
        let is_sent = item.token.completion.status == CompletionStatus::Success as u64 && !fails_behind;
        if fails_behind
            || (item.token.completion.status != CompletionStatus::Success as u64
                && item.token.completion.status != CompletionStatus::Flushed as u64)
        {
            sender.failed = Some(generation);
        }
        if is_sent {
            sender.unsent_psn = item.psn.add(1).value();
            if item.token.kind.is_read {
                sender.unsent_psn = psn_of(item.token.last_psn).add(1).value();
            } else if fails {
                self.late_losses.push(GatherFailure {
                    queue_pair: bits(item.queue_pair as u64),
                    generation: item.token.generation,
                    psn: bits(item.psn.value().into()),
                    is_response: false,
                    is_mark: false,
                });
            }
        } else if !had_failed {
            sender.unsent_psn = item.psn.value();
        }
        sender.issued_reads += u64::from(item.token.is_open && !item.has_begun);
        let issued = Issued {
            count: bits(u64::from(item.count)),
            reads: bits(sender.issued_reads & 31),
            unsent_psn: bits(u64::from(sender.unsent_psn)),
            next_psn: bits(u64::from(sender.unsent_psn)),
            epoch: bits(0),
            generation: item.token.generation,
        };
        self.issued.insert(item.queue_pair, issued);
        if !item.has_begun {
            self.messages.insert(item.place, item.token);
            let model = self.models.get_mut(&item.queue_pair).unwrap();
            model.messages.push_back(Message {
                token: item.token,
                count: item.count,
                first_psn: item.psn,
                is_sent,
                is_acknowledged: false,
            });
        }
        if !is_sent {
            local.has_failed = fails_behind;
            self.kicks(local);
        } else if psn_of(item.token.last_psn) != item.psn && !item.token.kind.is_read {
            (item.psn, item.has_begun) = (item.psn.add(1), true);
            self.items.push_front(item);
        }
    }

    /// WqeParse gives the next WQE of a queue pair a pool slot, or holds it; in the cycles of the real one.
    fn segment(&mut self, refuses: u32) {
        self.segmenting = match self.segmenting {
            Segmenting::Idle => self.begin(),
            Segmenting::Judge { queue_pair, seen } => Segmenting::Act { queue_pair, seen },
            Segmenting::Act { queue_pair, seen } => self.act(queue_pair, seen, refuses),
            Segmenting::Recheck { queue_pair, seen, now } => {
                if seen != now {
                    let sender = self.senders.get_mut(&queue_pair).unwrap();
                    sender.is_held = false;
                    self.begun_write =
                        Some((queue_pair, Begun { count: bits(u64::from(sender.count)), is_held: false }));
                }
                Segmenting::Idle
            }
        };
    }

    fn begin(&mut self) -> Segmenting {
        if self.setup.is_done()
            && let Some(event) = self.commands.pop_front()
        {
            let index = event.queue_pair.to_u64() as usize;
            let sender = self.senders.get_mut(&index).unwrap();
            (sender.state, sender.generation) = (event.state.to_u64(), event.generation.to_u64() as u8);
            match event.kind {
                SetupKind::Restart => (sender.slot, sender.is_held, sender.has_ended) = (0, false, false),
                SetupKind::Life => sender.is_held = false,
                SetupKind::SendPsn => {
                    (sender.next_psn, sender.unsent_psn) =
                        (event.psn.to_u64() as u32, event.psn.to_u64() as u32);
                }
                _ => {}
            }
            let begun = Begun { count: bits(u64::from(sender.count)), is_held: sender.is_held };
            self.begun_write = Some((index, begun));
            self.events_offered.push_back(event);
            self.setup.push(event);
            return Segmenting::Idle;
        }
        if let Some(index) = self.wakes.received.get(self.wakes_taken) {
            self.wakes_taken += 1;
            let index = index.to_u64() as usize;
            let sender = self.senders.get_mut(&index).unwrap();
            if sender.is_held {
                sender.is_held = false;
                self.begun_write =
                    Some((index, Begun { count: bits(u64::from(sender.count)), is_held: false }));
            }
            return Segmenting::Idle;
        }
        let may_begin = |index: &&usize| {
            let sender = &self.senders[index];
            let states = [QpState::ReadyToSend as u64, QpState::Error as u64];
            sender.wanted > 0 && !sender.is_held && !sender.has_ended && states.contains(&sender.state)
        };
        let ready: Vec<_> = INDICES.iter().filter(may_begin).collect();
        match ready.choose(&mut self.random) {
            Some(&&queue_pair) if self.items.len() < 8 => {
                Segmenting::Judge { queue_pair, seen: self.retired[&queue_pair] }
            }
            _ => Segmenting::Idle,
        }
    }

    fn act(&mut self, queue_pair: usize, seen: Retired, refuses: u32) -> Segmenting {
        let random = &mut self.random;
        let sender = self.senders.get_mut(&queue_pair).unwrap();
        let in_flight = sender.count.wrapping_sub(seen.count.to_u64() as u16);
        let needs_block = sender.tail_count == BLOCK_MESSAGES as usize;
        let has_home = sender.home_lap != seen.home_lap;
        let reuses = !has_home && self.free.is_empty();
        let is_behind = sender.is_reused && in_flight >= BLOCK_MESSAGES as u16;
        let has_block = if reuses { in_flight == 0 } else { !is_behind };
        let is_flushed = sender.state == QpState::Error as u64;
        let is_read = self.signals.is_none() && random.random_range(0..4) == 0;
        let open = (sender.reads - seen.reads.to_u64()) & 31;
        let waits_for_reads = is_read && !is_flushed && open >= READS;
        if in_flight >= self.window || (needs_block && !has_block) || waits_for_reads {
            sender.is_held = true;
            let begun = Begun { count: bits(u64::from(sender.count)), is_held: true };
            self.begun_write = Some((queue_pair, begun));
            return Segmenting::Recheck { queue_pair, seen, now: self.retired[&queue_pair] };
        }
        let mut tail = *sender.chain.back().unwrap();
        if needs_block {
            sender.is_reused = reuses;
            let next = if reuses {
                tail
            } else if has_home {
                sender.home_lap = !sender.home_lap;
                queue_pair
            } else {
                self.free.pop_front().unwrap()
            };
            self.links.insert(tail, next);
            if next != tail {
                sender.chain.push_back(next);
            }
            (tail, sender.tail_count) = (next, 0);
        }
        let place = (tail << 3 | sender.tail_count) as u64;
        sender.tail_count += 1;
        sender.count = sender.count.wrapping_add(1);
        sender.slot = sender.slot.wrapping_add(1);
        sender.wanted = sender.wanted.saturating_sub(1);
        sender.reads += u64::from(is_read && !is_flushed);
        let status = if is_flushed {
            CompletionStatus::Flushed as u64
        } else if random.random_range(0..1000) < refuses {
            *[
                CompletionStatus::LocalLength as u64,
                CompletionStatus::LocalQueuePairOperation as u64,
                CompletionStatus::LocalProtection as u64,
            ]
            .choose(random)
            .unwrap()
        } else {
            CompletionStatus::Success as u64
        };
        let has_wr_id =
            status == CompletionStatus::Success as u64 || random.random_range(0..1000) >= 3 * refuses;
        sender.has_ended = !has_wr_id;
        let first_psn = Psn::wrapping(sender.next_psn);
        let behind = match random.random_range(0..4) {
            0 if status == CompletionStatus::Success as u64 && self.signals.is_none() => {
                random.random_range(1..6)
            }
            _ => 0,
        };
        let is_atomic = is_read && random.random_bool(0.3);
        let token = OutstandingMessage {
            generation: bits(u64::from(sender.generation)),
            last_psn: bits(u64::from(first_psn.add(behind).value())),
            next_slot: bits(u64::from(sender.slot)),
            is_open: is_read && !is_flushed,
            completion: WqeCompletion {
                has_wr_id,
                wr_id: Stimulus::sample(random),
                is_signalled: self.signals.unwrap_or_else(|| random.random()),
                status: bits(status),
                reason: Stimulus::sample(random),
            },
            kind: WqeKind {
                is_write: !is_read && random.random(),
                is_read,
                is_atomic,
                is_compare: is_atomic && random.random(),
                is_local: false,
            },
            length: Stimulus::sample(random),
        };
        if !is_flushed {
            sender.next_psn = first_psn.add(behind + 1).value();
        }
        self.begun_write = Some((queue_pair, Begun { count: bits(u64::from(sender.count)), is_held: false }));
        let count = sender.count;
        self.items.push_back(Item { queue_pair, token, place, count, psn: first_psn, has_begun: false });
        Segmenting::Idle
    }

    /// Control: offers an event with a new state.
    fn command(&mut self, index: usize, change: impl FnOnce(&mut SetupEvent)) {
        let life = self.lives.get_mut(&index).unwrap();
        change(life);
        life.queue_pair = bits(index as u64);
        life.path.generation = life.generation;
        self.commands.push_back(*life);
    }

    fn move_to(&mut self, index: usize, state: QpState) {
        self.command(index, |life| (life.kind, life.state) = (SetupKind::Life, bits(state as u64)));
    }

    /// To SQD, or within it.
    fn drain(&mut self, index: usize, notifies: bool) {
        self.command(index, |life| life.path.drain_notify = notifies);
        self.move_to(index, QpState::SendQueueDrain);
    }

    /// A new queue pair at this index, up to RTS.
    fn make(&mut self, index: usize, psn: u32) {
        let path = {
            let random = &mut self.random;
            let mut path = self.lives[&index].path;
            path.local_qp = bits((random.random_range(0..1u64 << 14) << QUEUE_PAIR_BITS) | index as u64);
            path.partition_key =
                bits(random.random_range(1..0x8000) | u64::from(random.random::<bool>()) << 15);
            path.destination_address = Stimulus::sample(random);
            path.source_address_index = bits(random.random_range(0..15));
            path.send_completion_queue = bits(random.random_range(0..1024));
            path.service = bits(Service::ReliableConnected as u64);
            // With retries the cursor would go back, which the model does not.
            path.retry_count = bits(0);
            path.rnr_retry = bits(0);
            path
        };
        self.command(index, |life| {
            (life.kind, life.state) = (SetupKind::Restart, bits(QpState::Reset as u64));
            life.generation = life.generation + 1;
            life.path = path;
        });
        self.move_to(index, QpState::Init);
        self.move_to(index, QpState::ReadyToReceive);
        self.command(index, |life| (life.kind, life.psn) = (SetupKind::SendPsn, bits(u64::from(psn))));
        self.move_to(index, QpState::ReadyToSend);
    }

    /// An ACK from the peer of a queue pair.
    fn answer(&self, index: usize, psn: Psn, syndrome: u8) -> PacketToken {
        let path = self.lives[&index].path;
        PacketToken {
            destination_qp: path.local_qp,
            queue_pair: queue_pair_of(path.local_qp),
            // The peer is a full member: a limited member has no other peers (protocol 4.3).
            partition_key: path.partition_key | 0x8000,
            source_address: path.destination_address,
            destination_address: own_address(path.source_address_index),
            opcode: bits(ACKNOWLEDGE),
            psn: bits(u64::from(psn.value())),
            extended: bits(u64::from(syndrome)),
            ..PacketToken::default()
        }
    }

    fn says(&mut self, packet: PacketToken) {
        self.responses_offered.push_back(packet);
        self.responses.push(packet);
    }

    /// Any response of a peer, right or wrong.
    fn random_answer(&mut self) {
        let index = *INDICES.choose(&mut self.random).unwrap();
        let model = &self.models[&index];
        let sent: Vec<_> = model.messages.iter().filter(|message| message.is_sent).collect();
        let psn = match (self.random.random_range(0..20), sent.choose(&mut self.random)) {
            (0, _) => model.una.sub(self.random.random_range(1..5)),
            (1, _) => model.una.add(self.random.random_range(0..40)),
            (2, _) => Psn::wrapping(self.random.random()),
            (3, _) => model.una.sub(1 << 23),
            (4..10, Some(message)) => {
                let span = psn_of(message.token.last_psn).distance(message.first_psn);
                message.first_psn.add(self.random.random_range(0..=span as u32))
            }
            (_, Some(message)) => psn_of(message.token.last_psn),
            (_, None) => model.una,
        };
        let syndrome = match self.random.random_range(0..300) {
            0..6 => 0x60 + self.random.random_range(0..4),
            6..10 => 0x20 + self.random.random_range(0..32),
            10..18 => *[0x40, 0x64, 0x65, 0x7f, 0x80, 0xe0, 0xff].choose(&mut self.random).unwrap(),
            _ => self.random.random_range(0..32),
        };
        // Mostly, READs get data.
        let of_read = model.messages.iter().any(|message| {
            let is_within =
                !psn.is_before(message.first_psn) && !psn_of(message.token.last_psn).is_before(psn);
            is_within && message.token.kind.is_read
        });
        let mut packet = self.answer(index, psn, syndrome);
        let random = &mut self.random;
        if of_read && random.random_range(0..10) > 0 {
            packet.opcode = bits(random.random_range(READ_RESPONSE_FIRST..=READ_RESPONSE_ONLY));
            packet.payload_bytes = bits(random.random_range(0..=4096));
        }
        if random.random_range(0..50) == 0 {
            packet.payload_bytes = bits(random.random_range(1..=4096));
        }
        packet.pad_mismatch = random.random_ratio(1, 50);
        match random.random_range(0..160) {
            0 => packet.opcode = bits(random.random_range(READ_RESPONSE_FIRST..=READ_RESPONSE_ONLY)),
            1 => packet.opcode = bits(if random.random() { ATOMIC_ACKNOWLEDGE } else { NO_ANSWER }),
            2 => packet.opcode = bits(CONGESTION),
            3 => packet.opcode = bits(ACKNOWLEDGE | 0x20),
            4 => packet.destination_qp = packet.destination_qp ^ (1 << random.random_range(10..24u64)),
            5 => {
                packet.destination_qp = bits(UNMADE);
                packet.queue_pair = queue_pair_of(bits(UNMADE));
            }
            6 => packet.partition_key = packet.partition_key ^ (1 << random.random_range(0..16u64)),
            7 => {
                let flipped = random.random_range(0..128);
                let is_set = packet.source_address.get_bit(flipped);
                packet.source_address = packet.source_address.replace_bit(flipped, !is_set);
            }
            8 => packet.destination_address = own_address(bits(random.random_range(0..16))),
            _ => {}
        }
        self.says(packet);
    }

    /// An expiry of a timer, mostly of one that still runs.
    fn random_expiry(&mut self) {
        let index = *INDICES.choose(&mut self.random).unwrap();
        let model = &self.models[&index];
        let mut expired = Expired {
            queue_pair: bits(index as u64),
            generation: model.event.generation,
            kind: TimerKind::Ack,
            una_psn: bits(model.una.value().into()),
            attempt: bits(model.retries),
        };
        match self.random.random_range(0..20) {
            0 => expired.generation = expired.generation - 1,
            1 => expired.una_psn = expired.una_psn - 1,
            2 => expired.attempt = expired.attempt - 1,
            3 => expired.kind = TimerKind::RnrWait,
            _ => {}
        }
        self.expiries_offered.push_back(expired);
        self.expiries.push(expired);
    }

    /// Any command.
    fn random_command(&mut self) {
        let index = *INDICES.choose(&mut self.random).unwrap();
        let state = self.lives[&index].state.to_u64();
        let psn = *[0, 0xff_fff0, 0x7f_fff8, self.random.random_range(0..1 << 24)]
            .choose(&mut self.random)
            .unwrap();
        match self.random.random_range(0..10) {
            0..2 if state == QpState::ReadyToSend as u64 => {
                let notifies = self.random.random();
                self.drain(index, notifies);
            }
            9 if state == QpState::SendQueueDrain as u64 => self.drain(index, true),
            0..8 if state == QpState::SendQueueDrain as u64 => self.move_to(index, QpState::ReadyToSend),
            2..4 if state == QpState::ReadyToSend as u64 => self.move_to(index, QpState::Error),
            4 if state == QpState::ReadyToSend as u64 => self.make(index, psn),
            5 => self.command(index, |life| life.kind = SetupKind::Path),
            6 => self.command(index, |life| life.kind = SetupKind::Probe),
            7 => self.command(index, |life| life.kind = SetupKind::ReceivePsn),
            8 if state == QpState::Error as u64 => self.move_to(index, QpState::Reset),
            _ if state == QpState::Error as u64 || state == QpState::Reset as u64 => self.make(index, psn),
            _ => {}
        }
    }

    /// One cycle of the block and all models.
    fn live(&mut self, habits: Habits) {
        let mut happens = |out_of_thousand| self.random.random_range(0..1000) < out_of_thousand;
        let (commands, answers, loses) =
            (happens(habits.events), happens(habits.answers), happens(habits.failures));
        let (issues, delivers, hears) = (happens(400), happens(5), happens(20));
        if happens(habits.expiries) && self.expiries.is_done() {
            self.random_expiry();
        }
        if commands && self.commands.is_empty() {
            self.random_command();
        }
        if answers && self.responses_offered.len() < 20 {
            self.random_answer();
        }
        self.segment(habits.failures);
        if delivers && !self.late_losses.is_empty() {
            let loss = self.late_losses.swap_remove(self.random.random_range(0..self.late_losses.len()));
            self.losses_offered.push_back(loss);
            self.losses.push(loss);
        }
        // Control takes failures, and moves the queue pair to ERR.
        if let Some(failure) = self.failures.received.get(self.failures_taken).copied()
            && hears
        {
            self.failures_taken += 1;
            let index = failure.queue_pair.to_u64() as usize;
            let life = self.lives[&index];
            let can_fail = [QpState::ReadyToSend as u64, QpState::SendQueueDrain as u64];
            let fails = failure.kind != NoticeKind::Drained;
            if fails && life.generation == failure.generation && can_fail.contains(&life.state.to_u64()) {
                self.move_to(index, QpState::Error);
            }
        }
        self.cycle();
        if issues && self.kicks.is_done() {
            self.issue(loses);
        }
    }

    /// Checks all outputs so far.
    fn check(&self) {
        let received = &self.completions.received;
        assert!(received.len() <= self.completions_expected.len(), "completions come before their turn ends");
        for (index, token) in received.iter().enumerate() {
            assert_eq!(*token, self.completions_expected[index], "completion {index}");
        }
        let (failures, expected) = (&self.failures.received, &self.failures_expected);
        assert!(expected.starts_with(failures), "{failures:?} are reported, and {expected:?} expected");
    }

    /// Nothing more is posted; everything must come to rest, flushed, and every block must be free or a home.
    fn rest(&mut self) {
        for index in INDICES {
            self.senders.get_mut(&index).unwrap().wanted = 0;
        }
        (0..300).for_each(|_| self.live(CALM));
        for index in INDICES {
            if self.lives[&index].state != QpState::Reset as u64 {
                self.move_to(index, QpState::Error);
            }
        }
        let mut cycles = 0;
        while !(self.items.is_empty()
            && self.late_losses.is_empty()
            && self.commands.is_empty()
            && self.placing.is_empty()
            && self.marking.is_empty())
            || cycles < 600
        {
            self.live(CALM);
            cycles += 1;
            assert!(cycles < 20_000, "the stages come to rest");
        }
        self.check();
        assert_eq!(self.completions.received.len(), self.completions_expected.len());
        assert_eq!(self.failures.received.len(), self.failures_expected.len());
        for index in INDICES {
            let sender = &self.senders[&index];
            assert!(self.models[&index].messages.is_empty(), "messages of {index:#x} are left");
            assert!(!sender.is_held, "{index:#x} is held with nothing in flight");
            assert_eq!(self.retired[&index].count, u64::from(sender.count));
            assert_eq!(sender.chain.len(), 1, "one block is left");
            if let Some(order) = self.timers.get(&index) {
                let found = (order.kind, order.una_psn.to_u64(), order.attempt.to_u64());
                assert_eq!(found, self.models[&index].timer(), "the timer of {index:#x}");
            }
        }
        let shared = self.senders.values().filter(|sender| sender.chain[0] >= HOMES).count();
        let all = if self.window == WINDOW { SHARED_BLOCKS } else { HOMES };
        assert_eq!(self.free.len() + shared, all, "every shared block is in one chain or free");
        assert_eq!(self.free.iter().collect::<BTreeSet<_>>().len(), self.free.len());
        assert_eq!(self.deferred.received.len(), self.deferred_expected.len());
        assert_eq!(self.marks.received.len(), self.marks_expected.len());
        let in_flight = self.bench.block.in_flight.val();
        let passed = bits(self.deferred_expected.len() as u64 & 0xffff);
        assert_eq!((in_flight.entered, in_flight.left), (passed, passed));
        self.counts.retain(|_, count| *count > 0);
        self.counts_expected.retain(|_, count| *count > 0);
        assert_eq!(self.counts, self.counts_expected);
    }
}

impl World {
    /// Posts WQEs, and runs until they are in the pool.
    fn post(&mut self, index: usize, count: usize) {
        self.senders.get_mut(&index).unwrap().wanted = count;
        let mut cycles = 0;
        while !(self.commands.is_empty() && self.items.is_empty() && self.senders[&index].wanted == 0)
            || cycles < 30
        {
            self.live(CALM);
            cycles += 1;
            assert!(cycles < 20_000, "WQEs are issued");
        }
    }

    /// An ACK for the messages up to one that is in flight, counted from the oldest.
    fn acknowledge(&mut self, index: usize, number: usize) {
        let psn = psn_of(self.models[&index].messages[number].token.last_psn);
        let packet = self.answer(index, psn, 0x1f);
        self.says(packet);
    }

    /// Runs until there are `completions`; returns the cycles.
    fn cycles_until(&mut self, completions: usize) -> usize {
        let before = self.cycle;
        while self.completions.received.len() < completions {
            self.live(CALM);
            assert!(self.cycle < before + 20_000, "completions come");
        }
        self.cycle - before
    }

    /// Events of a drained queue pair.
    fn drained(&self) -> usize {
        self.failures.received.iter().filter(|failure| failure.kind == NoticeKind::Drained).count()
    }

    /// A world with room for all that is posted, and one queue pair in RTS.
    fn roomy(stalls: Stalls) -> Self {
        let mut world = World::new(stalls);
        world.window = 1024;
        world.free = (HOMES..2 * HOMES).collect();
        world.signals = Some(true);
        world.make(5, 0xff_fff0);
        world
    }
}

/// No random behaviour: only what a test does.
const CALM: Habits = Habits { events: 0, failures: 0, expiries: 0, answers: 0 };

/// Random queue pairs, WQEs, responses, failures and commands, with all ways to stall.
#[test]
fn messages_complete_in_order_once_and_as_the_peer_says() {
    let habits = Habits { events: 12, failures: 8, expiries: 4, answers: 120 };
    let (mut moved, mut wakes, mut turns, mut drained) = (BTreeSet::new(), 0, 0, 0);
    let all: BTreeSet<_> = counts_of(&Acknowledge::default()).map(|(name, _)| name).into();
    // All ways to stall, and again if something rare has not happened yet.
    for round in 0.. {
        let is_seen = moved == all && wakes > 50 && turns > 400 && drained > 3;
        if round >= Stalls::ALL.len() && is_seen {
            break;
        }
        assert!(round < 12, "{moved:?}, {wakes} wakes, {turns} turns, {drained} drained");
        let mut world = World::new(Stalls::ALL[round % Stalls::ALL.len()]);
        world.random.set_stream((round / Stalls::ALL.len()) as u64);
        INDICES.iter().for_each(|&index| world.make(index, 0xff_ffe0));
        for _ in 0..3500 {
            let index = *INDICES.choose(&mut world.random).unwrap();
            let sender = world.senders.get_mut(&index).unwrap();
            if sender.wanted == 0 && world.random.random_range(0..40) == 0 {
                sender.wanted = world.random.random_range(1..40);
            }
            world.live(habits);
        }
        let late = GatherFailure {
            queue_pair: bits(INDICES[0] as u64),
            generation: world.lives[&INDICES[0]].generation + 100,
            psn: bits(0),
            is_response: false,
            is_mark: false,
        };
        world.losses_offered.push_back(late);
        world.losses.push(late);
        world.rest();
        println!("{} turns, {} wakes, {:?}", world.turns, world.wakes.received.len(), world.counts);
        moved.extend(world.counts.keys().copied());
        (wakes, turns) = (wakes + world.wakes.received.len(), turns + world.turns);
        drained += world.drained();
    }
}

#[test]
fn a_queue_pair_in_sqd_says_once_that_nothing_is_left() {
    let mut world = World::roomy(Stalls::None);
    let lives = |world: &mut World| (0..200).for_each(|_| world.live(CALM));
    world.post(5, 3);
    world.drain(5, true);
    world.acknowledge(5, 1);
    lives(&mut world);
    assert_eq!((world.completions.received.len(), world.drained()), (2, 0), "one message is left");
    // Another command to the same state changes nothing.
    world.drain(5, true);
    lives(&mut world);
    assert_eq!(world.drained(), 0);
    world.acknowledge(5, 0);
    lives(&mut world);
    assert_eq!((world.completions.received.len(), world.drained()), (3, 1));
    world.drain(5, true);
    lives(&mut world);
    assert_eq!(world.drained(), 1, "the event was raised");
    // With nothing in flight the event is raised at once, and not where it is not enabled.
    for notifies in [true, false] {
        world.move_to(5, QpState::ReadyToSend);
        world.drain(5, notifies);
        lives(&mut world);
        assert_eq!(world.drained(), 2);
    }
    world.check();
}

/// What was in flight in SQE is flushed; after RTS messages complete as their peer says.
#[test]
fn after_sqe_and_rts_messages_complete_again() {
    let mut world = World::roomy(Stalls::None);
    world.post(5, 3);
    world.move_to(5, QpState::SendQueueError);
    world.cycles_until(3);
    world.move_to(5, QpState::ReadyToSend);
    (0..20).for_each(|_| world.live(CALM));
    world.post(5, 2);
    world.acknowledge(5, 1);
    world.cycles_until(5);
    let statuses: Vec<_> = world.completions.received.iter().map(|token| token.status.to_u64()).collect();
    let (flushed, success) = (CompletionStatus::Flushed as u64, CompletionStatus::Success as u64);
    assert_eq!(statuses, [flushed, flushed, flushed, success, success]);
    world.check();
    world.rest();
}

#[test]
fn a_message_takes_less_than_three_cycles_and_an_answer_of_its_own_less_than_six() {
    // One response for 256 messages.
    let mut world = World::roomy(Stalls::None);
    world.post(5, 256);
    world.acknowledge(5, 255);
    let together = world.cycles_until(256);
    world.check();
    // One response for each.
    world.post(5, 256);
    (0..256).for_each(|number| world.acknowledge(5, number));
    let apart = world.cycles_until(512);
    world.check();
    // One response for each, no two in a row for the same queue pair.
    for index in [0, 0x200, 0x3ff] {
        world.make(index, 0);
    }
    for index in INDICES {
        world.post(index, 64);
    }
    for number in 0..64 {
        INDICES.iter().for_each(|&index| world.acknowledge(index, number));
    }
    let mixed = world.cycles_until(768);
    world.check();
    println!("cycles for 256 messages: {together} together, {apart} apart, {mixed} of four queue pairs");
    assert!(together < 3 * 256, "{together}");
    assert!(apart < 6 * 256, "{apart}");
    assert!(mixed < 8 * 256, "{mixed}");
}

#[test]
fn events_and_answers_are_taken_while_completions_stall() {
    let mut world = World::roomy(Stalls::None);
    world.post(5, 100);
    world.acknowledge(5, 99);
    // The block's outputs are stalled.
    let stuck = |world: &mut World, cycles: usize| {
        for _ in 0..cycles {
            world.segment(0);
            world.completions_stall = true;
            world.cycle();
        }
    };
    stuck(&mut world, 200);
    assert_eq!(world.completions_expected.len(), 24, "three turns have found room");
    world.says(world.answer(5, Psn::wrapping(0), 0x1f));
    world.kicks(LocalCompletion { queue_pair: bits(5), ..LocalCompletion::default() });
    world.command(5, |life| life.kind = SetupKind::Probe);
    stuck(&mut world, 20);
    assert!(world.responses.is_done() && world.kicks.is_done() && world.setup.is_done());
    // What is left is flushed by the change of state before its turn.
    world.move_to(5, QpState::Error);
    stuck(&mut world, 20);
    assert!(world.setup.is_done());
    world.completions_stall = false;
    world.cycles_until(100);
    world.check();
    let flushed = world
        .completions
        .received
        .iter()
        .filter(|token| token.status == CompletionStatus::Flushed as u64)
        .count();
    assert_eq!(flushed, 76);
    world.rest();
}

#[test]
fn nothing_is_left_after_a_reset_and_its_sweep() {
    let mut world = World::roomy(Stalls::None);
    world.post(5, 20);
    world.acknowledge(5, 10);
    world.cycles_until(4);
    let packet = world.answer(5, Psn::wrapping(3), 0x1f);
    let block = &mut world.bench.block;
    block.reset.next = true;
    world.bench.tick();
    world.bench.block.reset.next = false;
    world.bench.block.sweep.next.is_sweeping = true;
    for index in 0..1 << QUEUE_PAIR_BITS {
        world.bench.block.sweep.next.index = bits(index);
        world.bench.tick();
        assert!(!world.bench.block.completion.valid.val() && !world.bench.block.retired.val().valid);
    }
    world.bench.block.sweep.next.is_sweeping = false;
    // The same bench, and neighbours that have forgotten everything too.
    let mut world = World { bench: world.bench, ..World::roomy(Stalls::None) };
    world.says(packet);
    (0..20).for_each(|_| world.cycle());
    assert_eq!(world.counts_expected["unknown_qp"], 1);
    world.post(5, 20);
    world.acknowledge(5, 19);
    world.cycles_until(20);
    world.check();
    world.rest();
}

#[test]
fn waveform_is_as_documented() {
    let waves = Waves::new().signal("responses_valid").signal("responses_ready");
    let waves = waves
        .signal("pool_read.pool_slot")
        .signal("retired.valid")
        .signal("retired.retired.count")
        .when("retired.valid");
    let waves = waves.signal("completion_valid").signal("completion_beat.consumer_index");
    let waves = waves.when("completion_valid").signal("counts.messages_completed");
    let mut world = World::roomy(Stalls::None);
    world.post(5, 3);
    world.bench = world.bench.recording(waves);
    world.live(CALM);
    world.acknowledge(5, 1);
    (0..13).for_each(|_| world.live(CALM));
    world.check();
    world.bench.waves().expect("waves/acknowledge.txt");
}

/// Whether an opcode is that of a response to a READ or an atomic.
fn is_data(opcode: u64) -> bool {
    (READ_RESPONSE_FIRST..=READ_RESPONSE_ONLY).contains(&opcode) || opcode == ATOMIC_ACKNOWLEDGE
}
