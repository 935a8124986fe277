//! The requests that a queue pair sends, and the responses that arrive for them.
use crate::answers::{Answers, Outstanding, is_not_ready};
use crate::rates::Rates;
use crate::repeats::Repeats;
use crate::rule::{Findings, Rule};
use crate::set_up::{SetUp, TIMER_UNIT_PS};
use rnic_layout::limits::MESSAGE_BYTES_MAX;
use rnic_layout::opcode::{Opcode, Operation};
use rnic_layout::psn::{HALF_WINDOW, Psn, psn_count};
use rnic_layout::wire::extended::RethRepr;
use rnic_layout::wire::{ExtendedRepr, PacketRepr};
use std::collections::VecDeque;

/// Of so many packets of one message, one has AckReq.
const ASKING_PACKETS: u32 = 32;
/// So many messages may follow each other of which none has AckReq: three blocks of eight messages, since the last of a block may
/// be a LOCAL_INVALIDATE, of which the wire sees nothing.
const SILENT_MESSAGES_MAX: u32 = 23;
/// RETH of a WRITE that names no memory.
const NO_BYTES: RethRepr = RethRepr { virtual_address: 0, remote_key: 0, dma_length: 0 };

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Write,
    Read,
    Atomic,
}

/// Returns the kind of a request.
pub(crate) fn kind(operation: Operation) -> Option<Kind> {
    use Operation::*;
    Some(match operation {
        SendFirst | SendMiddle | SendLast | SendLastImmediate | SendOnly | SendOnlyImmediate
        | SendLastInvalidate | SendOnlyInvalidate => Kind::Send,
        WriteFirst | WriteMiddle | WriteLast | WriteLastImmediate | WriteOnly | WriteOnlyImmediate => {
            Kind::Write
        }
        ReadRequest => Kind::Read,
        CompareSwap | FetchAdd => Kind::Atomic,
        _ => return None,
    })
}

/// Returns the length in the RETH of a packet.
pub(crate) fn dma_length(packet: &PacketRepr) -> Option<u32> {
    packet.extended_headers().find_map(|header| match header {
        ExtendedRepr::Reth(reth) => Some(reth.dma_length),
        _ => None,
    })
}

/// Returns whether a packet is the one that takes the place of a packet whose payload the host fails to give: a WRITE of no bytes
/// that asks for an acknowledgement (protocol 2.4).
fn stands_in(packet: &PacketRepr, operation: Operation) -> bool {
    let is_empty = |header| matches!(header, ExtendedRepr::Reth(reth) if reth == NO_BYTES);
    operation == Operation::WriteOnly
        && packet.bth.ack_request
        && packet.payload.is_empty()
        && packet.extended_headers().all(is_empty)
}

/// The message whose packets are being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// None: the next packet begins one.
    None,
    /// One of this kind, with the bytes that are left of a WRITE.
    Begun(Kind, Option<u32>),
    /// Unknown, after going back into the middle of one.
    Unknown,
}

/// What the card may not know yet.
#[derive(Clone, Copy, Debug)]
struct Unread {
    /// Time at which it came.
    came_ps: u64,
    /// A READ or an atomic was outstanding: the response takes effect behind the data of those before it (`acknowledge`, rule 7).
    is_behind_data: bool,
}

/// Requests of a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Requester {
    /// PSN of the next packet, and the first that was never sent.
    next: Psn,
    unsent: Psn,
    /// What the responses that have arrived at the port answer: the card knows no more than that.
    answers: Answers,
    /// What the card knows at least, after it has sent requests again without a reason that the port has seen: it may have dropped
    /// responses for lack of room. `None` as long as that has not happened, and when all that was in doubt is answered again.
    doubted: Option<Answers>,
    message: Message,
    /// Packets of the message so far; unknown after going back.
    packets: Option<u32>,
    /// Messages since the last one with AckReq.
    silent: u32,
    /// Losses for which PSNs were not sent again, and how often the card has gone back.
    repeats: Repeats,
    /// Rates of the card.
    rates: Rates,
    /// Unit of the acknowledgement timeouts, in picoseconds.
    pub(crate) unit_ps: u64,
    /// Time of the last acknowledgement that the card must know, of the last timeout, or of the first request after all were
    /// acknowledged.
    progress_ps: u64,
    /// What came after that: the timer of the card may still run as if it had not.
    unread: VecDeque<Unread>,
    /// Time at which the card knew a response, or at which it came, when the timer had run out and nothing was sent again: the card may
    /// have gone back before, and what it sends again may wait for other queue pairs until long after the response.
    overdue_ps: Option<u64>,
}

impl Requester {
    /// A queue pair of a card of these rates that has sent nothing.
    pub(crate) fn new(first: Psn, rates: Rates) -> Requester {
        Requester {
            next: first,
            unsent: first,
            answers: Answers::new(first),
            doubted: None,
            message: Message::None,
            packets: Some(0),
            silent: 0,
            repeats: Repeats::default(),
            rates,
            unit_ps: TIMER_UNIT_PS,
            progress_ps: 0,
            unread: VecDeque::new(),
            overdue_ps: None,
        }
    }

    /// Something has happened after which PSNs may be sent again.
    pub(crate) fn excuse(&mut self) {
        self.repeats.lose(None);
    }

    /// What the card knows for certain to be answered.
    fn known(&self) -> &Answers {
        self.doubted.as_ref().unwrap_or(&self.answers)
    }

    /// Checks a request that is sent. The host has failed to give so many reads for which the card has left out no packet.
    pub(crate) fn sent(
        &mut self,
        set_up: &SetUp,
        now_ps: u64,
        failed_reads: &mut u64,
        packet: &PacketRepr,
        row: &Opcode,
        findings: &mut Findings,
    ) {
        let Some(kind) = kind(row.operation) else { return };
        let psn = packet.bth.psn;
        if *failed_reads > 0 && stands_in(packet, row.operation) && psn == self.next.add(1) {
            *failed_reads -= 1;
            self.leave_out(psn);
            return;
        }
        if psn.is_after(self.next) && !psn.is_after(self.answers.unacknowledged) {
            // What would have been sent again was acknowledged meanwhile.
            (self.message, self.packets) = (Message::Unknown, None);
        } else if psn != self.next {
            self.go_back(set_up, now_ps, psn, findings);
        } else if psn.is_before(self.unsent) && !psn.is_after(self.answers.unacknowledged) {
            // The card may have gone back again, and left out all that was acknowledged: then packets are counted from elsewhere.
            self.packets = None;
        }
        if self.known().unacknowledged == self.unsent {
            self.read(set_up, now_ps);
            match self.unread.is_empty() {
                true => self.progress_ps = now_ps,
                false => self.unread.push_back(Unread { came_ps: now_ps, is_behind_data: false }),
            }
        }
        self.sequence(packet, row, kind, findings);
        self.ask(packet, row, kind, findings);
        let length = if kind == Kind::Read { dma_length(packet).unwrap_or(0) } else { 0 };
        let count = psn_count(length, set_up.pmtu_bytes.max(1));
        if matches!(kind, Kind::Read | Kind::Atomic) {
            self.read_is_sent(set_up, Outstanding { next: psn, last: psn.add(count - 1) }, findings);
        }
        self.next = psn.add(count);
        if psn == self.unsent {
            // A card that goes on has not gone back. What was on its way before may leave for a while.
            let begun_ps = self.rates.begun_ps();
            self.overdue_ps.take_if(|overdue_ps| *overdue_ps + begun_ps < now_ps);
            // One message takes at most half of them, or its length breaks a rule already.
            let open = self.unsent.sub(self.answers.unacknowledged.value()).value() + count.min(HALF_WINDOW);
            findings.ensure(Rule::RequestPsn, open <= HALF_WINDOW, || {
                format!("{open} PSNs are unacknowledged, allowed are {HALF_WINDOW}")
            });
            self.unsent = self.next;
        } else if self.next.is_after(self.unsent) {
            self.unsent = self.next;
        }
    }

    /// Notes that the next packet is left out, in whose place one with the PSN after it is sent. Packets that were on their way
    /// behind it may follow, with that PSN and later ones.
    fn leave_out(&mut self, psn: Psn) {
        (self.message, self.packets, self.silent) = (Message::Unknown, None, 0);
        self.next = psn;
        if psn.is_after(self.unsent) {
            self.unsent = psn;
        }
    }

    /// Notes a READ or an atomic that is sent. One that is sent again is still the same, also if it was answered meanwhile (protocol
    /// 2.3).
    fn read_is_sent(&mut self, set_up: &SetUp, one: Outstanding, findings: &mut Findings) {
        let most = usize::from(set_up.reads_max);
        let is_repeated = one.next.is_before(self.unsent);
        match &mut self.doubted {
            Some(doubted) if is_repeated => doubted.ask_again(one),
            Some(doubted) => {
                // The card has room for this one, so it knows the answers of those that are too many.
                doubted.outstanding.push_back(one);
                doubted.outstanding.drain(..doubted.outstanding.len().saturating_sub(most));
            }
            None => {}
        }
        if !is_repeated {
            self.answers.outstanding.push_back(one);
            let found = self.answers.outstanding.len();
            findings.ensure(Rule::ReadDepth, found <= most, || {
                format!("{found} READs and atomics are outstanding, allowed are {most}")
            });
        }
    }

    /// Checks whether the next packet may have another PSN than the one after the last.
    fn go_back(&mut self, set_up: &SetUp, now_ps: u64, psn: Psn, findings: &mut Findings) {
        let timeout_ps = self.unit_ps << set_up.timeout;
        self.read(set_up, now_ps);
        let is_late = self.has_run_out(set_up, now_ps + self.rates.leaving_ps().min(timeout_ps / 2));
        let by_timer = is_late || self.overdue_ps.is_some();
        let is_acknowledged = !by_timer && self.repeats.is_acknowledged(psn);
        let has_reason = by_timer || (self.repeats.losses() > 0 && !is_acknowledged);
        let text = || {
            let since_ps = now_ps.saturating_sub(self.progress_ps);
            format!(
                "the PSN is {psn}, allowed is {}; {}, and the timer of {timeout_ps} ps runs for {since_ps} ps",
                self.next,
                if is_acknowledged { "what was lost comes behind it" } else { "nothing was lost" }
            )
        };
        let is_unexplained = psn.is_before(self.next) && !has_reason;
        if is_unexplained {
            findings.doubt(text);
        } else {
            findings.ensure(Rule::RequestPsn, psn.is_before(self.unsent) && has_reason, text);
        }
        if psn.is_before(self.next)
            && let Some((count, allowed)) = self.repeats.go_back(set_up, psn)
        {
            findings.add(Rule::RequestPsn, || {
                format!("the queue pair goes back {count} times without progress, of {allowed} that it may: PSN {psn}")
            });
        }
        (self.message, self.packets) = (Message::Unknown, None);
        if is_unexplained {
            self.doubt(psn);
        }
        if is_late || is_unexplained {
            // The timer starts again with this packet.
            self.progress_ps = now_ps;
            self.unread.clear();
            self.overdue_ps = None;
        } else if self.overdue_ps.take().is_none() {
            self.repeats.forget_one();
        }
    }

    /// Notes that the card may know of no answer from a PSN on.
    fn doubt(&mut self, psn: Psn) {
        let doubted = self.doubted.get_or_insert_with(|| self.answers.clone());
        if psn.is_before(doubted.unacknowledged) {
            doubted.unacknowledged = psn;
        }
    }

    /// Returns whether the timer of the card has run out at a time.
    fn has_run_out(&self, set_up: &SetUp, at_ps: u64) -> bool {
        let is_waiting = self.known().unacknowledged != self.unsent || !self.unread.is_empty();
        set_up.timeout != 0 && is_waiting && at_ps >= self.progress_ps + (self.unit_ps << set_up.timeout)
    }

    /// Notes that the card knows the responses which have arrived long enough ago. Its timer may have run out before it knew one that had
    /// to wait for data.
    fn read(&mut self, set_up: &SetUp, now_ps: u64) {
        let timeout_ps = self.unit_ps << set_up.timeout;
        let unread_ps = self.rates.unread_ps();
        while let Some(unread) = self.unread.pop_front_if(|unread| unread.came_ps + unread_ps <= now_ps) {
            let read_ps = unread.came_ps + unread_ps;
            if unread.is_behind_data && set_up.timeout != 0 && self.progress_ps + timeout_ps <= read_ps {
                self.overdue_ps = Some(read_ps);
            }
            self.progress_ps = unread.came_ps;
        }
    }

    /// Checks opcode sequence and lengths, and notes where the message stands.
    fn sequence(&mut self, packet: &PacketRepr, row: &Opcode, kind: Kind, findings: &mut Findings) {
        let (starts, ends) = (row.operation.starts_message(), row.operation.ends_message());
        let is_next = match self.message {
            Message::None => starts,
            Message::Begun(begun, _) => !starts && begun == kind,
            Message::Unknown => true,
        };
        findings.ensure(Rule::OpcodeSequence, is_next, || format!("{} follows {:?}", row.name, self.message));
        let length = dma_length(packet);
        findings.ensure(Rule::MessageLength, length.unwrap_or(0) <= MESSAGE_BYTES_MAX, || {
            format!("the message has {length:?} bytes")
        });
        let before = match self.message {
            _ if starts => length,
            Message::Begun(_, left) => left,
            _ => None,
        };
        let payload_bytes = packet.payload.len() as u32;
        if let Some(left) = before.filter(|_| kind == Kind::Write) {
            let fits = if ends { left == payload_bytes } else { left > payload_bytes };
            findings.ensure(Rule::MessageLength, fits, || {
                format!("{payload_bytes} bytes are sent in {}, {left} were left", row.name)
            });
        }
        let left = before.map(|left| left.saturating_sub(payload_bytes));
        self.message = if ends { Message::None } else { Message::Begun(kind, left) };
    }

    /// Checks that acknowledgements are requested often enough.
    fn ask(&mut self, packet: &PacketRepr, row: &Opcode, kind: Kind, findings: &mut Findings) {
        let asks = packet.bth.ack_request;
        if row.operation.starts_message() {
            self.packets = Some(0);
        }
        self.packets = self.packets.map(|count| count + 1);
        let is_due = self.packets.is_some_and(|count| count % ASKING_PACKETS == 0);
        findings.ensure(Rule::AckRequest, asks || !is_due, || {
            format!("packet {:?} of the message has no AckReq", self.packets)
        });
        if asks || matches!(kind, Kind::Read | Kind::Atomic) {
            self.silent = 0;
        } else if row.operation.ends_message() {
            self.silent += 1;
        }
        findings.ensure(Rule::AckRequest, self.silent <= SILENT_MESSAGES_MAX, || {
            format!("the last {} messages have no AckReq", self.silent)
        });
    }

    /// Notes a response that arrives.
    pub(crate) fn answered(&mut self, set_up: &SetUp, now_ps: u64, packet: &PacketRepr, row: &Opcode) {
        let psn = packet.bth.psn;
        if !psn.is_before(self.unsent) || psn.is_before(self.known().unacknowledged) {
            return;
        }
        self.read(set_up, now_ps);
        if self.has_run_out(set_up, now_ps) {
            self.overdue_ps = Some(now_ps);
        }
        // To a card that knew the answer all the same, a doubted one is no news, and its timer goes on.
        if !psn.is_before(self.answers.unacknowledged) {
            let is_behind_data = !self.known().outstanding.is_empty();
            self.unread.push_back(Unread { came_ps: now_ps, is_behind_data });
        }
        let before = self.answers.unacknowledged;
        let shows_loss = self.answers.take(packet, row);
        let may_show_loss = self.doubted.as_mut().is_some_and(|doubted| doubted.take(packet, row));
        let missing = self.answers.unacknowledged;
        if missing != before {
            self.repeats.progress();
        }
        if is_not_ready(packet) {
            self.repeats.wait();
        }
        if shows_loss || may_show_loss {
            self.repeats.lose(self.doubted.is_none().then_some(missing));
        }
        self.doubted.take_if(|doubted| *doubted == self.answers);
    }
}
