//! The requester: segmentation, acknowledgements, retransmission, and completions (protocol 2).

use std::collections::VecDeque;

use rnic_layout::limits::MESSAGE_BYTES_MAX;
use rnic_layout::opcode::{self, Operation as Op};
use rnic_layout::psn::{HALF_WINDOW, PSN_COUNT, Psn, psn_count};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::state::QpState;
use rnic_layout::syndrome::{NakCode, Syndrome, rnr_timer_us};
use rnic_layout::wire::extended::{AethRepr, AtomicEthRepr, IethRepr, ImmediateRepr, RethRepr};
use rnic_layout::wire::{BthRepr, ExtendedRepr, PacketRepr, bth};

use super::memory::{Access, Sge};
use super::packet::Packet;
use super::qp::{
    AckRequest, Completion, Data, Host, Operation, Outcome, Queue, QueuePair, QueuePairSetup, SendWqe,
};

/// Packets of a long message after which an acknowledgement is requested (protocol 2.4).
const PACKETS_WITHOUT_ACK_REQUEST: u32 = 32;

/// Timeout of code 0 if it were not disabled; each code doubles it (protocol 2.6).
const TIMEOUT_UNIT_PS: u64 = 4_096_000;

const PICOSECONDS_PER_MICROSECOND: u64 = 1_000_000;

/// Code of unlimited retries after RNR NAKs (protocol 2.7).
const RNR_RETRY_FOREVER: u8 = 7;

/// A posted message that has not completed.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) work: SendWqe,
    /// PSNs of the message, once it has begun.
    span: Option<Span>,
    /// Length of the message, in bytes.
    length: u32,
    /// Responses of a READ that have arrived; 1 for an answered atomic.
    answered: u32,
    /// First PSN of the last request of a READ: its response may be FIRST or ONLY, or continue the previous responses (protocol
    /// 2.5).
    asked_from: Psn,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    first: Psn,
    count: u32,
}

impl Span {
    fn last(self) -> Psn {
        self.first.add(self.count - 1)
    }

    fn contains(self, psn: Psn) -> bool {
        psn.is_within(self.first, self.count)
    }
}

impl From<SendWqe> for Message {
    fn from(work: SendWqe) -> Self {
        // Longer messages are refused before their first packet.
        let length = u32::try_from(work.data.length()).unwrap_or(u32::MAX);
        Self { work, span: None, length, answered: 0, asked_from: Psn::ZERO }
    }
}

impl Message {
    /// Returns whether data of the peer is missing.
    fn awaits_answer(&self) -> bool {
        self.span.is_some_and(|span| self.work.operation.is_answered() && self.answered < span.count)
    }

    /// First PSN whose response is missing.
    fn missing(&self) -> Option<Psn> {
        self.span.filter(|_| self.awaits_answer()).map(|span| span.first.add(self.answered))
    }
}

/// State of the requester.
#[derive(Debug)]
pub(super) struct Requester {
    /// Posted messages that have not completed, the oldest first; those that have begun come first.
    pub(super) queue: VecDeque<Message>,
    /// Oldest unacknowledged PSN.
    una: Psn,
    /// Next PSN to send; less than `next` during retransmission.
    cursor: Psn,
    /// First PSN that was never sent.
    pub(super) next: Psn,
    retries_left: u8,
    rnr_retries_left: u8,
    /// PSN to which it has gone back, for whatever reason, without progress since: a gap in the responses there is no news, and
    /// takes no retry.
    went_back_to: Option<Psn>,
    /// Expiry of the acknowledgement timer.
    deadline_ps: Option<u64>,
    /// End of the RNR wait; nothing is sent before.
    wait_until_ps: Option<u64>,
    since_ack_request: u32,
}

impl Requester {
    pub(super) fn new(setup: &QueuePairSetup) -> Self {
        let psn = setup.send_psn;
        Self {
            queue: VecDeque::new(),
            una: psn,
            cursor: psn,
            next: psn,
            retries_left: setup.retry_count,
            rnr_retries_left: setup.rnr_retry,
            went_back_to: None,
            deadline_ps: None,
            wait_until_ps: None,
            since_ack_request: 0,
        }
    }

    /// Stops timers and discards the transmission state; the caller flushes the queue.
    pub(super) fn stop(&mut self) {
        (self.una, self.cursor) = (self.next, self.next);
        (self.deadline_ps, self.wait_until_ps) = (None, None);
    }

    pub(super) fn next_deadline_ps(&self) -> Option<u64> {
        self.deadline_ps.into_iter().chain(self.wait_until_ps).min()
    }

    fn is_in_flight(&self, psn: Psn) -> bool {
        psn.is_within(self.una, count_between(self.una, self.next))
    }

    fn unanswered(&self) -> usize {
        self.queue.iter().filter(|message| message.awaits_answer()).count()
    }
}

impl QueuePair {
    /// Makes the next request packet, if one may be sent now.
    pub(super) fn next_request(&mut self, host: &mut Host) -> Option<Packet> {
        let may_begin = match self.state {
            QpState::ReadyToSend => true,
            QpState::SendQueueDrain => false,
            _ => return None,
        };
        if self.requester.wait_until_ps.is_some_and(|until| host.now_ps < until) {
            return None;
        }
        self.requester.wait_until_ps = None;
        if self.requester.cursor == self.requester.next && self.begun_message().is_none() {
            if !may_begin {
                return None;
            }
            self.begin_message(host)?;
        }
        let requester = &self.requester;
        let in_flight = count_between(requester.una, requester.cursor);
        if in_flight >= self.setup.window_packets {
            return None;
        }
        self.request_at_cursor(host)
    }

    /// Finds the message to which the cursor belongs.
    fn begun_message(&self) -> Option<usize> {
        let cursor = self.requester.cursor;
        self.requester.queue.iter().position(|message| message.span.is_some_and(|span| span.contains(cursor)))
    }

    /// Assigns PSNs to the next posted message, if it may begin.
    fn begin_message(&mut self, host: &mut Host) -> Option<()> {
        let requester = &self.requester;
        let index = requester.queue.iter().position(|message| message.span.is_none())?;
        let message = &requester.queue[index];
        let operation = message.work.operation;
        let unanswered = requester.unanswered();
        let awaited = if mutant!("endpoint-fence-ignored") { 0 } else { unanswered };
        if message.work.fence && awaited != 0 {
            return None;
        }
        if let Some(status) = self.check_work(host, message) {
            // Earlier messages complete first, so that completions stay in order.
            if index == 0 {
                self.end_work(host, status);
            }
            return None;
        }
        if let Operation::LocalInvalidate(key) = operation {
            // All earlier work has completed when it is the first in the queue.
            if index != 0 {
                return None;
            }
            if !host.memory.invalidate(key, self.setup.domain) {
                self.end_work(host, CompletionStatus::LocalQueuePairOperation);
                return None;
            }
            self.complete_front(host, CompletionStatus::Success);
            return self.begin_message(host);
        }
        if operation.is_answered() && unanswered >= usize::from(self.setup.read_atomic) {
            return None;
        }
        let count = match operation {
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => 1,
            _ => psn_count(message.length, self.setup.pmtu.bytes()),
        };
        let in_flight = count_between(requester.una, requester.next);
        if in_flight + count > HALF_WINDOW {
            return None;
        }
        let requester = &mut self.requester;
        let first = requester.next;
        requester.queue[index].span = Some(Span { first, count });
        Some(())
    }

    /// Fault of a work request that does not depend on its peer (protocol 2.11).
    fn check_work(&self, host: &Host, message: &Message) -> Option<CompletionStatus> {
        let work = &message.work;
        if work.data.length() > u64::from(MESSAGE_BYTES_MAX) {
            return Some(CompletionStatus::LocalLength);
        }
        let access = match work.operation {
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } if message.length != 8 => {
                return Some(CompletionStatus::LocalQueuePairOperation);
            }
            operation if operation.is_answered() && self.setup.read_atomic == 0 => {
                return Some(CompletionStatus::LocalQueuePairOperation);
            }
            operation if operation.is_answered() => Access::LocalWrite,
            _ => Access::LocalRead,
        };
        match &work.data {
            Data::Inline(_) if work.operation.is_answered() => {
                Some(CompletionStatus::LocalQueuePairOperation)
            }
            Data::Inline(_) => None,
            Data::Sges(sges) => {
                let checked = host.memory.check_sges(access, self.setup.domain, sges);
                checked.err().map(|_| CompletionStatus::LocalProtection)
            }
        }
    }

    /// Makes the packet at the cursor. A retransmitted packet is made anew (protocol 2.8).
    fn request_at_cursor(&mut self, host: &mut Host) -> Option<Packet> {
        let index = self.begun_message()?;
        let pmtu_bytes = self.setup.pmtu.bytes();
        let psn = self.requester.cursor;
        let message = &mut self.requester.queue[index];
        let span = message.span.expect("the cursor stands in it");
        let position = psn.distance(span.first) as u32;
        let offset = position * pmtu_bytes;
        let (first, last) = (position == 0, psn == span.last());
        let operation = message.work.operation;
        let bytes = (message.length.saturating_sub(offset)).min(pmtu_bytes);

        let (code, headers, taken) = match operation {
            Operation::Read { address, key } => {
                message.asked_from = psn;
                let dma_length = message.length - offset;
                let reth = reth(address.wrapping_add(offset.into()), key, dma_length);
                (Op::ReadRequest, vec![reth], span.count - position)
            }
            Operation::CompareSwap { address, key, compare, swap } => {
                (Op::CompareSwap, vec![atomic(address, key, swap, compare)], 1)
            }
            Operation::FetchAdd { address, key, add } => {
                (Op::FetchAdd, vec![atomic(address, key, add, 0)], 1)
            }
            Operation::Send | Operation::SendImmediate(_) | Operation::SendInvalidate(_) => {
                let (code, headers) = send_headers(operation, first, last);
                (code, headers, 1)
            }
            Operation::Write { address, key } => {
                let code =
                    by_place([Op::WriteFirst, Op::WriteMiddle, Op::WriteLast, Op::WriteOnly], first, last);
                let headers = if first { vec![reth(address, key, message.length)] } else { Vec::new() };
                (code, headers, 1)
            }
            Operation::WriteImmediate { address, key, immediate } => {
                let codes = [Op::WriteFirst, Op::WriteMiddle, Op::WriteLastImmediate, Op::WriteOnlyImmediate];
                let mut headers = Vec::new();
                if first {
                    headers.push(reth(address, key, message.length));
                }
                if last {
                    headers.push(immediate_header(immediate));
                }
                (by_place(codes, first, last), headers, 1)
            }
            Operation::LocalInvalidate(_) => return None,
        };
        let payload = if operation.is_answered() {
            Vec::new()
        } else {
            match &message.work.data {
                Data::Inline(data) => data[offset as usize..][..bytes as usize].to_vec(),
                Data::Sges(sges) => {
                    let domain = self.setup.domain;
                    match host.memory.gather(domain, sges, offset.into(), bytes as usize) {
                        Ok(payload) => payload,
                        // The region was deregistered in the middle of the message.
                        Err(_) => {
                            self.end_work(host, CompletionStatus::LocalProtection);
                            return None;
                        }
                    }
                }
            }
        };
        let solicited = message.work.solicited && last && !operation.is_answered();
        let solicited = solicited && !matches!(operation, Operation::Write { .. });
        let (signalled, again) = (message.work.signalled, psn.is_before(self.requester.next));
        let ends_burst = again && psn.add(taken) == self.requester.next;
        let requester = &mut self.requester;
        // What waits for its end begins no packet that would be answered.
        let is_waited_for = requester
            .queue
            .get(index + 1)
            .is_none_or(|next| matches!(next.work.operation, Operation::LocalInvalidate(_)));
        let ack_request = operation.is_answered()
            || ends_burst
            || match self.setup.ack_request {
                AckRequest::EveryPacket => true,
                AckRequest::EveryMessage => last,
                AckRequest::WhenNeeded => last && (signalled || is_waited_for),
            }
            || requester.since_ack_request + 1 >= PACKETS_WITHOUT_ACK_REQUEST
            // The window is full after this packet, and would never open again.
            || count_between(requester.una, psn.add(taken)) >= self.setup.window_packets;
        requester.since_ack_request = if ack_request { 0 } else { requester.since_ack_request + 1 };
        requester.cursor = psn.add(taken);
        if again {
            host.count("packets_retransmitted");
        } else {
            requester.next = requester.cursor;
        }
        self.start_timer(host);

        let partition_key = self.setup.partition_key;
        let bth = BthRepr {
            solicited,
            ack_request,
            partition_key,
            ..BthRepr::new(code.code(), self.setup.peer, psn)
        };
        Some(Packet::new(bth, headers, payload))
    }

    /// Starts the acknowledgement timer unless it runs.
    fn start_timer(&mut self, host: &Host) {
        let code = self.setup.timeout;
        if code != 0 && self.requester.deadline_ps.is_none() {
            self.requester.deadline_ps = Some(host.now_ps + (TIMEOUT_UNIT_PS << code));
        }
    }

    /// Lets timers fire.
    pub(super) fn check_timers(&mut self, host: &mut Host) {
        if self.requester.wait_until_ps.is_some_and(|until| until <= host.now_ps) {
            self.requester.wait_until_ps = None;
        }
        if self.requester.deadline_ps.is_some_and(|deadline| deadline <= host.now_ps) {
            host.count("timeout");
            self.requester.deadline_ps = None;
            let una = self.requester.una;
            self.retry(host, una);
        }
    }

    /// Takes a response that has passed the checks of row 1 (protocol 2.5).
    pub(super) fn take_response(&mut self, host: &mut Host, packet: &PacketRepr) -> Outcome {
        let psn = packet.bth.psn;
        if !self.requester.is_in_flight(psn) {
            let stale = psn.is_before(self.requester.una);
            return Outcome::Dropped(if stale { "response_stale" } else { "response_never_sent" });
        }
        let operation = opcode::lookup(packet.bth.opcode).expect("responses are in the table").operation;
        if matches!(operation, Op::Acknowledge | Op::AtomicAcknowledge)
            && (!packet.payload.is_empty() || packet.bth.pad_count != 0)
        {
            return Outcome::Dropped("response_unexpected");
        }
        let is_ack = |aeth: AethRepr| matches!(aeth.meaning(), Syndrome::Ack { .. });
        if operation != Op::Acknowledge && !aeth(packet).is_none_or(is_ack) {
            return Outcome::Dropped("response_reserved");
        }
        match operation {
            Op::Acknowledge => self.take_acknowledgement(host, packet),
            Op::AtomicAcknowledge => self.take_atomic_answer(host, packet),
            _ => self.take_read_response(host, packet, operation),
        }
    }

    fn take_acknowledgement(&mut self, host: &mut Host, packet: &PacketRepr) -> Outcome {
        let psn = packet.bth.psn;
        let syndrome = aeth(packet).map_or(Syndrome::Reserved(0xff), |aeth| aeth.meaning());
        match syndrome {
            Syndrome::Reserved(_) | Syndrome::Nak(NakCode::InvalidRdRequest) => {
                return Outcome::Dropped("response_reserved");
            }
            Syndrome::Ack { .. } => {
                host.count("acknowledgements_received");
                self.acknowledge_before(host, psn.add(1));
            }
            Syndrome::RnrNak { timer_code } => {
                host.count("nak_rnr_received");
                if self.acknowledge_before(host, psn) {
                    self.wait_for_peer(host, psn, timer_code);
                }
            }
            Syndrome::Nak(code) => {
                host.count("nak_received");
                if self.acknowledge_before(host, psn) {
                    match code {
                        NakCode::PsnSequenceError => self.retry(host, psn),
                        NakCode::InvalidRequest => {
                            self.end_work(host, CompletionStatus::RemoteInvalidRequest);
                        }
                        NakCode::RemoteAccessError => self.end_work(host, CompletionStatus::RemoteAccess),
                        _ => self.end_work(host, CompletionStatus::RemoteOperation),
                    }
                }
            }
        }
        Outcome::Answered
    }

    /// Acknowledges all PSNs before `end`. If a READ or atomic among them has no response yet, this is a gap: what precedes
    /// it is acknowledged, it is requested again, and the result is `false`.
    fn acknowledge_before(&mut self, host: &mut Host, end: Psn) -> bool {
        let requester = &mut self.requester;
        let missing = requester.queue.iter().find_map(Message::missing);
        let gap = missing.filter(|missing| missing.is_before(end));
        let una = gap.unwrap_or(end);
        if una.is_after(requester.una) {
            requester.una = una;
            if requester.cursor.is_before(una) {
                requester.cursor = una;
            }
            self.make_progress(host);
        }
        self.complete_acknowledged(host);
        match gap {
            None => true,
            Some(missing) => {
                host.count("implied_nak");
                if self.requester.went_back_to != Some(missing) {
                    self.retry(host, missing);
                }
                false
            }
        }
    }

    /// An expected response has arrived: reloads the retry counters, and restarts or stops the timer.
    fn make_progress(&mut self, host: &Host) {
        self.requester.retries_left = self.setup.retry_count;
        self.requester.rnr_retries_left = self.setup.rnr_retry;
        self.requester.went_back_to = None;
        self.requester.deadline_ps = None;
        if self.requester.una != self.requester.next {
            self.start_timer(host);
        }
    }

    /// Completes what is acknowledged, in order.
    fn complete_acknowledged(&mut self, host: &mut Host) {
        let una = self.requester.una;
        while let Some(message) = self.requester.queue.front() {
            let acknowledged = message.span.is_some_and(|span| span.last().is_before(una));
            if !acknowledged || message.awaits_answer() {
                break;
            }
            self.complete_front(host, CompletionStatus::Success);
        }
    }

    fn complete_front(&mut self, host: &mut Host, status: CompletionStatus) {
        let Some(message) = self.requester.queue.pop_front() else { return };
        let (work, success) = (message.work, status == CompletionStatus::Success);
        if success {
            host.count("messages_completed");
        }
        if success && !work.signalled && !self.setup.signal_all {
            return;
        }
        let (number, opcode) = (self.setup.number, work.operation.completion_opcode());
        let mut completion = Completion::error(number, Queue::Send, work.wr_id, status, opcode);
        if success && work.operation.is_answered() {
            completion.length = message.length;
        }
        host.complete(self.setup.send_completions, completion);
    }

    /// Ends the oldest work in error, and with it the queue pair.
    fn end_work(&mut self, host: &mut Host, status: CompletionStatus) {
        self.complete_front(host, status);
        self.responder.replies.clear();
        self.fail(host);
    }

    /// Goes back to a PSN, if a retry is left.
    fn retry(&mut self, host: &mut Host, psn: Psn) {
        if self.requester.retries_left == 0 {
            host.count("retry_exhausted");
            self.end_work(host, CompletionStatus::RetryExceeded);
            return;
        }
        self.requester.retries_left -= 1;
        self.requester.went_back_to = Some(psn);
        self.requester.cursor = psn;
        self.requester.deadline_ps = None;
        self.start_timer(host);
    }

    /// Waits for the time of the RNR NAK, then goes back to a PSN (protocol 2.7).
    fn wait_for_peer(&mut self, host: &mut Host, psn: Psn, timer_code: u8) {
        if self.requester.rnr_retries_left == 0 {
            host.count("rnr_retry_exceeded");
            self.end_work(host, CompletionStatus::RnrRetryExceeded);
            return;
        }
        if self.setup.rnr_retry != RNR_RETRY_FOREVER {
            self.requester.rnr_retries_left -= 1;
        }
        let delay_ps = u64::from(rnr_timer_us(timer_code)) * PICOSECONDS_PER_MICROSECOND;
        self.requester.wait_until_ps = Some(host.now_ps + delay_ps);
        self.requester.deadline_ps = None;
        self.requester.cursor = psn;
    }

    fn take_read_response(&mut self, host: &mut Host, packet: &PacketRepr, operation: Op) -> Outcome {
        let psn = packet.bth.psn;
        let Some(index) = self.message_of(psn) else { return Outcome::Dropped("response_stale") };
        if !matches!(self.requester.queue[index].work.operation, Operation::Read { .. }) {
            // Nothing there was to be read.
            return self.refuse_response(host, psn, CompletionStatus::BadResponse);
        }
        // It acknowledges all messages before its READ, and earlier responses of the READ must have arrived.
        if !self.acknowledge_before(host, psn) {
            return Outcome::Answered;
        }
        let pmtu_bytes = self.setup.pmtu.bytes();
        let message = &self.requester.queue[0];
        let span = message.span.expect("it is in flight");
        let position = psn.distance(span.first) as u32;
        if position < message.answered {
            return Outcome::Dropped("response_stale");
        }
        let last = psn == span.last();
        let anew = psn == message.asked_from;
        let continued = psn != span.first;
        let order = match operation {
            Op::ReadResponseFirst => anew && !last,
            Op::ReadResponseOnly => anew && last,
            Op::ReadResponseMiddle => continued && !last,
            _ => continued && last,
        };
        if !order {
            return self.refuse_response(host, psn, CompletionStatus::BadResponse);
        }
        if packet.bth.pad_count != bth::pad_count(packet.payload.len()) {
            return self.refuse_response(host, psn, CompletionStatus::BadResponse);
        }
        let offset = position * pmtu_bytes;
        if packet.payload.len() as u32 != (message.length - offset).min(pmtu_bytes) {
            return self.refuse_response(host, psn, CompletionStatus::LocalLength);
        }
        let Data::Sges(sges) = &message.work.data else { return Outcome::Dropped("response_stale") };
        let placed = host.memory.scatter(self.setup.domain, sges, offset.into(), packet.payload);
        if placed.is_err() {
            return self.refuse_response(host, psn, CompletionStatus::LocalProtection);
        }
        self.requester.queue[0].answered += 1;
        self.acknowledge_before(host, psn.add(1));
        Outcome::Answered
    }

    fn take_atomic_answer(&mut self, host: &mut Host, packet: &PacketRepr) -> Outcome {
        let psn = packet.bth.psn;
        let Some(index) = self.message_of(psn) else { return Outcome::Dropped("response_stale") };
        let operation = self.requester.queue[index].work.operation;
        if !matches!(operation, Operation::CompareSwap { .. } | Operation::FetchAdd { .. }) {
            return Outcome::Dropped("response_unexpected");
        }
        if !self.acknowledge_before(host, psn) {
            return Outcome::Answered;
        }
        let original = packet.extended_headers().find_map(|header| match header {
            ExtendedRepr::AtomicAckEth(answer) => Some(answer.original),
            _ => None,
        });
        let Some(original) = original else { return Outcome::Dropped("response_unexpected") };
        let sges: &[Sge] = match &self.requester.queue[0].work.data {
            Data::Sges(sges) => sges,
            Data::Inline(_) => &[],
        };
        let placed = host.memory.scatter(self.setup.domain, sges, 0, &original.to_le_bytes());
        if placed.is_err() {
            return self.refuse_response(host, psn, CompletionStatus::LocalProtection);
        }
        self.requester.queue[0].answered = 1;
        self.acknowledge_before(host, psn.add(1));
        Outcome::Answered
    }

    fn message_of(&self, psn: Psn) -> Option<usize> {
        self.requester.queue.iter().position(|message| message.span.is_some_and(|span| span.contains(psn)))
    }

    /// Fails the request to which a PSN belongs, because its response is malformed.
    fn refuse_response(&mut self, host: &mut Host, psn: Psn, status: CompletionStatus) -> Outcome {
        host.count("response_unexpected");
        if self.acknowledge_before(host, psn) {
            self.end_work(host, status);
        }
        Outcome::Answered
    }
}

/// How many PSNs there are from `first` on, up to `end` and without it: at most half of all, which a signed distance
/// would call negative.
fn count_between(first: Psn, end: Psn) -> u32 {
    end.distance(first) as u32 & (PSN_COUNT - 1)
}

fn by_place([in_front, middle, at_end, alone]: [Op; 4], first: bool, last: bool) -> Op {
    match (first, last) {
        (true, true) => alone,
        (true, false) => in_front,
        (false, false) => middle,
        (false, true) => at_end,
    }
}

fn send_headers(operation: Operation, first: bool, last: bool) -> (Op, Vec<ExtendedRepr>) {
    let (at_end, alone, header) = match operation {
        Operation::SendImmediate(immediate) => {
            (Op::SendLastImmediate, Op::SendOnlyImmediate, Some(immediate_header(immediate)))
        }
        Operation::SendInvalidate(remote_key) => {
            let header = ExtendedRepr::Ieth(IethRepr { remote_key });
            (Op::SendLastInvalidate, Op::SendOnlyInvalidate, Some(header))
        }
        _ => (Op::SendLast, Op::SendOnly, None),
    };
    let code = by_place([Op::SendFirst, Op::SendMiddle, at_end, alone], first, last);
    (code, header.filter(|_| last).into_iter().collect())
}

fn reth(virtual_address: u64, remote_key: u32, dma_length: u32) -> ExtendedRepr {
    ExtendedRepr::Reth(RethRepr { virtual_address, remote_key, dma_length })
}

fn atomic(virtual_address: u64, remote_key: u32, swap_add: u64, compare: u64) -> ExtendedRepr {
    ExtendedRepr::AtomicEth(AtomicEthRepr { virtual_address, remote_key, swap_add, compare })
}

fn immediate_header(immediate: [u8; 4]) -> ExtendedRepr {
    ExtendedRepr::Immediate(ImmediateRepr { data: u32::from_be_bytes(immediate) })
}

fn aeth(packet: &PacketRepr) -> Option<AethRepr> {
    packet.extended_headers().find_map(|header| match header {
        ExtendedRepr::Aeth(aeth) => Some(aeth),
        _ => None,
    })
}
