//! The requests that arrive for a queue pair, and the responses that it sends.
//!
//! The requests that arrive without a gap are an upper bound of what the card has executed, since it may drop frames. What it
//! says of them must be within this bound.
use crate::refusals::Refusals;
use crate::requests::{Kind, dma_length, kind};
use crate::rule::{Findings, Rule};
use crate::set_up::SetUp;
use rnic_layout::limits::MESSAGE_BYTES_MAX;
use rnic_layout::opcode::{Opcode, Operation};
use rnic_layout::psn::{HALF_WINDOW, Psn, psn_count};
use rnic_layout::syndrome::{CREDITS_UNLIMITED, NakCode, Syndrome};
use rnic_layout::wire::extended::AethRepr;
use rnic_layout::wire::{ExtendedRepr, PacketRepr};
use std::collections::VecDeque;

/// Maximum of messages whose PSNs are kept, far more than a peer may have in flight.
const MESSAGES_MAX: usize = 8192;
/// Maximum of READs and atomics that are kept; a queue pair has 16 slots for them.
const KEPT_MAX: usize = 64;
/// Maximum of those that are asked again and not answered. A peer asks for all 16 each time it goes back, and the wire may double
/// that and hold the answers up for some times the timeout of the peer; the card need not answer all of them.
const REPEATED_MAX: usize = 1024;
/// Maximum of served ones whose PSNs are kept until an ACK comes after them.
const SERVED_MAX: usize = 4096;
/// Maximum of requests that are kept until it is known that they were not refused, far more than arrive before an RNR NAK leaves.
const ARRIVALS_MAX: usize = 4096;

/// A READ or an atomic that was asked.
#[derive(Clone, Copy, Debug)]
struct Asked {
    kind: Kind,
    first: Psn,
    length: u32,
    /// Responses, and how many of them were sent as its answer.
    count: u32,
    sent: u32,
    /// How many were sent for the first time, whichever request they answer.
    served: u32,
    /// Another request may have been executed in its place.
    is_doubtful: bool,
}

impl Asked {
    fn next(&self) -> Psn {
        self.first.add(self.sent)
    }

    fn last(&self) -> Psn {
        self.first.add(self.count - 1)
    }

    /// PSN of the first response that was never sent.
    fn unserved(&self) -> Psn {
        self.first.add(self.served)
    }

    /// Returns whether another one asks for all or a part of it again (protocol 3.4).
    fn contains(&self, again: &Asked) -> bool {
        let is_inside = !again.first.is_before(self.first) && !again.last().is_after(self.last());
        self.kind == again.kind && is_inside
    }

    /// Opcode and length of its next response.
    fn expected(&self, pmtu_bytes: u32) -> (Operation, u32) {
        use Operation::*;
        if self.kind == Kind::Atomic {
            return (AtomicAcknowledge, 0);
        }
        let operation = match self.sent {
            0 if self.count == 1 => ReadResponseOnly,
            0 => ReadResponseFirst,
            sent if sent + 1 == self.count => ReadResponseLast,
            _ => ReadResponseMiddle,
        };
        (operation, (self.length - self.sent * pmtu_bytes).min(pmtu_bytes))
    }
}

/// A request that has arrived.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    psn: Psn,
    /// PSNs that it takes.
    count: u32,
    ends_message: bool,
    /// It takes a receive WQE, so an RNR NAK may refuse it.
    takes_receive: bool,
    /// A READ or an atomic.
    asked: Option<Asked>,
}

impl Arrival {
    fn end(&self) -> Psn {
        self.psn.add(self.count)
    }

    fn covers(&self, psn: Psn) -> bool {
        !psn.is_before(self.psn) && psn.is_before(self.end())
    }
}

/// Returns whether a request takes a receive WQE with this packet.
fn takes_receive(operation: Operation) -> bool {
    use Operation::*;
    let is_send = matches!(operation, SendFirst | SendOnly | SendOnlyImmediate | SendOnlyInvalidate);
    is_send || matches!(operation, WriteLastImmediate | WriteOnlyImmediate)
}

/// Adds a READ or an atomic to those that are kept, `most` of them.
fn keep(kept: &mut VecDeque<Asked>, asked: Option<Asked>, most: usize) {
    kept.extend(asked);
    if kept.len() > most {
        kept.pop_front();
    }
}

/// Responses of a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Responder {
    first: Psn,
    /// PSN after the last request that arrived without a gap.
    expected: Psn,
    /// Messages that arrived, and for the newest ones the PSN from which on the MSN counts them.
    messages: u32,
    ends: VecDeque<(Psn, u32)>,
    /// By how much the MSN may be less or more, since of two requests with one PSN either may have been executed.
    fewer: u32,
    more: u32,
    /// The newest READs and atomics.
    kept: VecDeque<Asked>,
    /// READs and atomics that are not served, in order. One is served when its last response has left for the first time, whichever
    /// of its requests that answers (protocol 3.5).
    open: VecDeque<Asked>,
    /// Those that were asked again, and those that the answer to such a one has served: the rest of their own answer may be left out.
    repeated: VecDeque<Asked>,
    /// First and last PSNs of the newest that are served.
    served: VecDeque<(Psn, Psn)>,
    /// What may be refused.
    refusals: Refusals,
    /// The host has refused something that the card has asked it for.
    pub(crate) host_has_failed: bool,
    /// Newest PSN of a request that has arrived, also behind a gap.
    newest: Psn,
    /// The newest requests that did not arrive behind a gap, in the order in which they have arrived, without those before one that
    /// was refused.
    arrivals: VecDeque<Arrival>,
    /// PSN of the newest NAK 0x60, until that request arrives.
    gap: Option<Psn>,
    /// PSN of the newest ACK.
    acknowledged: Option<Psn>,
    /// A NAK has ended the queue pair.
    is_over: bool,
}

impl Responder {
    /// A queue pair to which nothing was sent.
    pub(crate) fn new(first: Psn) -> Responder {
        Responder {
            first,
            expected: first,
            messages: 0,
            ends: VecDeque::new(),
            fewer: 0,
            more: 0,
            kept: VecDeque::new(),
            open: VecDeque::new(),
            repeated: VecDeque::new(),
            served: VecDeque::new(),
            refusals: Refusals::new(first),
            host_has_failed: false,
            newest: first.sub(1),
            arrivals: VecDeque::new(),
            gap: None,
            acknowledged: None,
            is_over: false,
        }
    }

    /// Returns whether a PSN of which the card says something is before the expected one. A READ of half of all PSNs hides that of what
    /// precedes it, which is then looked for among what has arrived.
    fn has_come(&self, psn: Psn) -> bool {
        let precedes_open = self.open.back().is_some_and(|newest| psn.is_before(newest.first));
        psn.is_before(self.expected)
            || (precedes_open && self.arrivals.iter().any(|arrival| arrival.covers(psn)))
    }

    /// Notes a request that arrives.
    pub(crate) fn asked(&mut self, set_up: &SetUp, packet: &PacketRepr, row: Option<&Opcode>) {
        let psn = packet.bth.psn;
        let operation = row.map(|row| row.operation);
        let kind = operation.and_then(kind);
        let length = if kind == Some(Kind::Read) { dma_length(packet).unwrap_or(0) } else { 0 };
        let count = if length > MESSAGE_BYTES_MAX { 1 } else { psn_count(length, set_up.pmtu_bytes.max(1)) };
        let asked = kind.filter(|kind| matches!(kind, Kind::Read | Kind::Atomic));
        let asked = asked.map(|kind| Asked {
            kind,
            first: psn,
            length,
            count,
            sent: 0,
            served: 0,
            is_doubtful: false,
        });
        let ends_message = operation.is_some_and(Operation::ends_message);
        let takes_receive = operation.is_some_and(takes_receive);
        let arrival = Arrival { psn, count, ends_message, takes_receive, asked };
        let is_again = psn.is_before(self.expected);
        let replaced = if is_again { self.replaced(&arrival) } else { None };
        // What arrives behind a gap is dropped, so it is neither refused by another NAK nor executed.
        if psn == self.expected || is_again {
            let unserved = self.open.iter().filter(|one| one.first.is_before(psn)).count();
            self.refusals.note(set_up, packet, row, arrival.end(), unserved, is_again);
            self.arrivals.push_back(arrival);
            if self.arrivals.len() > ARRIVALS_MAX {
                self.arrivals.pop_front();
            }
        }
        if is_again {
            self.gap.take_if(|gap| *gap == psn);
            let is_known = |asked: &Asked| self.kept.iter().any(|one| one.contains(asked));
            if asked.as_ref().is_some_and(is_known) {
                keep(&mut self.repeated, asked, REPEATED_MAX);
            } else if let Some(replaced) = replaced {
                self.doubt(replaced, arrival);
            }
            return;
        }
        // Of one far ahead, it is enough that there is a gap.
        let ahead = (psn.distance(self.expected) as u32).min(HALF_WINDOW / 2);
        if self.expected.add(ahead).is_after(self.newest) {
            self.newest = self.expected.add(ahead);
        }
        if psn != self.expected {
            return;
        }
        self.gap = None;
        self.take(arrival);
    }

    /// Finds the request that another one with the same PSN may replace, as far as the card has not said anything: an RNR NAK may
    /// have refused it, or one before it, and not have left when the other one arrived; the ACK of that one then takes its place.
    fn replaced(&self, by: &Arrival) -> Option<Arrival> {
        let is_settled = |psn: Psn| self.acknowledged.is_some_and(|newest| !psn.is_after(newest));
        let mut before = self.arrivals.iter().filter(|one| !one.psn.is_after(by.psn));
        let is_refused = before.any(|one| one.takes_receive && !is_settled(one.psn));
        let first = self.arrivals.iter().find(|one| one.covers(by.psn));
        let differs = |one: &&Arrival| {
            let kind = |one: &Arrival| one.asked.map(|asked| asked.kind);
            (one.psn, one.ends_message, kind(one)) != (by.psn, by.ends_message, kind(by))
        };
        first.filter(|one| is_refused && !is_settled(by.psn) && differs(one)).copied()
    }

    /// Either of two requests may have been executed.
    fn doubt(&mut self, first: Arrival, second: Arrival) {
        self.fewer += u32::from(first.ends_message);
        self.more += u32::from(second.ends_message);
        let of_first = self.open.iter_mut().filter(|one| one.first == first.psn);
        of_first.for_each(|one| one.is_doubtful = true);
        keep(&mut self.repeated, second.asked, REPEATED_MAX);
        if second.end().is_after(self.expected) {
            self.expected = second.end();
        }
    }

    /// An ACK of all that has arrived says how many messages that were, whichever of two requests was executed.
    fn settle(&mut self, psn: Psn, msn: Psn) {
        if (self.fewer, self.more) == (0, 0) || psn.add(1) != self.expected {
            return;
        }
        (self.fewer, self.more) = (0, 0);
        self.messages = msn.value();
        self.ends.clear();
        self.open.retain(|one| !one.is_doubtful);
    }

    /// READs and atomics of which the next response may be: the oldest, and behind it as many as there are in doubt.
    fn due(&self) -> usize {
        (self.open.iter().take_while(|one| one.is_doubtful).count() + 1).min(self.open.len())
    }

    /// The request that is due has arrived.
    fn take(&mut self, Arrival { psn, count, ends_message, asked, .. }: Arrival) {
        self.expected = psn.add(count);
        keep(&mut self.kept, asked, KEPT_MAX);
        self.open.extend(asked);
        if ends_message {
            self.messages += 1;
            self.ends.push_back((psn, self.messages));
            if self.ends.len() > MESSAGES_MAX {
                self.ends.pop_front();
            }
        }
    }

    /// A request was refused by an RNR NAK: it and those after it are not executed until they arrive again (protocol 3.2). What has
    /// arrived again before the NAK left may be executed, and may be another request than the one that was refused.
    fn wait_for(&mut self, psn: Psn) {
        let has_come = self.has_come(psn);
        self.refusals.wait_for(psn);
        let refused = self.arrivals.iter().position(|arrival| arrival.psn == psn);
        self.arrivals.drain(..refused.map_or(0, |place| place + 1));
        if !has_come {
            return;
        }
        (self.expected, self.messages) = (psn, self.messages_at(psn.sub(1)));
        self.ends.retain(|end| end.0.is_before(psn));
        self.kept.retain(|one| one.first.is_before(psn));
        self.open.retain(|one| one.first.is_before(psn));
        for arrival in self.arrivals.clone() {
            if arrival.psn == self.expected {
                self.take(arrival);
            }
        }
    }

    /// Messages that are completed when all requests up to a PSN are, or fewer if that is long ago.
    fn messages_at(&self, psn: Psn) -> u32 {
        let after = self.ends.partition_point(|end| !end.0.is_after(psn));
        match after.checked_sub(1) {
            Some(index) => self.ends[index].1,
            None => self.ends.front().map_or(self.messages, |end| end.1 - 1).min(self.messages),
        }
    }

    /// Checks a response that is sent.
    pub(crate) fn sent(
        &mut self,
        set_up: &SetUp,
        packet: &PacketRepr,
        row: &Opcode,
        findings: &mut Findings,
    ) {
        findings.ensure(Rule::State, !self.is_over, || format!("{} follows a NAK that ended all", row.name));
        let psn = packet.bth.psn;
        let aeth = packet.extended_headers().find_map(|header| match header {
            ExtendedRepr::Aeth(aeth) => Some(aeth),
            _ => None,
        });
        if row.operation != Operation::Acknowledge {
            self.answer(set_up, packet, row, findings);
            if let Some(aeth) = aeth {
                let ack = Syndrome::Ack { credit_code: CREDITS_UNLIMITED };
                findings.compare(Rule::Syndrome, "the syndrome of a response", aeth.syndrome, ack.emit());
                self.check_msn(&aeth, psn, findings);
            }
            return;
        }
        let Some(aeth) = aeth else { return };
        match aeth.meaning() {
            Syndrome::Ack { credit_code } => {
                findings.compare(Rule::Syndrome, "the credit code", credit_code, CREDITS_UNLIMITED);
                self.acknowledge(psn, findings);
                self.check_msn(&aeth, psn, findings);
                self.settle(psn, aeth.msn);
            }
            Syndrome::RnrNak { timer_code } => {
                let allowed = set_up.min_rnr_timer;
                findings.compare(Rule::Syndrome, "the RNR timer code", timer_code, allowed);
                self.refuse(psn, self.has_come(psn), findings);
                self.check_cause(psn, aeth.meaning(), findings);
                self.check_msn(&aeth, psn.sub(1), findings);
                self.wait_for(psn);
            }
            Syndrome::Nak(NakCode::PsnSequenceError) => {
                let is_gap = (psn == self.expected || self.has_come(psn)) && self.newest.is_after(psn);
                self.refuse(psn, is_gap, findings);
                findings.ensure(Rule::ResponsePsn, self.gap != Some(psn), || {
                    format!("a second NAK of the gap at {psn}")
                });
                self.gap = Some(psn);
                self.check_msn(&aeth, psn.sub(1), findings);
            }
            Syndrome::Nak(code) if code != NakCode::InvalidRdRequest => {
                self.refuse(psn, self.has_come(psn), findings);
                self.check_cause(psn, aeth.meaning(), findings);
                self.check_msn(&aeth, psn.sub(1), findings);
                self.is_over = true;
            }
            _ => findings.add(Rule::Syndrome, || format!("the syndrome is {:#04x}", aeth.syndrome)),
        }
    }

    /// Checks an ACK.
    fn acknowledge(&mut self, psn: Psn, findings: &mut Findings) {
        let is_asked = self.has_come(psn) && !psn.is_before(self.first.sub(1));
        findings.ensure(Rule::ResponsePsn, is_asked, || {
            format!("an ACK of {psn}, allowed is {} to {}", self.first.sub(1), self.expected.sub(1))
        });
        if let Some(open) = self.open.iter().find(|one| !one.is_doubtful) {
            findings.ensure(Rule::ResponsePsn, psn.is_before(open.first), || {
                format!(
                    "an ACK of {psn} passes {:?} at {}, which waits for {}",
                    open.kind,
                    open.first,
                    open.unserved()
                )
            });
        }
        // A requester may take it for the answer to the READ or atomic itself (protocol 3.4).
        let named = self.served.iter().find(|(first, last)| !psn.is_before(*first) && !psn.is_after(*last));
        findings.ensure(Rule::ResponsePsn, named.is_none(), || {
            format!("an ACK of {psn} names a READ or atomic of {named:?}, and no SEND or WRITE")
        });
        let is_backwards = self.acknowledged.is_some_and(|newest| psn.is_before(newest));
        findings.ensure(Rule::ResponsePsn, !is_backwards, || {
            format!("an ACK of {psn} comes after one of {:?}", self.acknowledged)
        });
        self.acknowledged = Some(psn);
        self.refusals.settle(psn.add(1));
        while self.served.front().is_some_and(|(_, last)| last.is_before(psn)) {
            self.served.pop_front();
        }
    }

    /// Checks that a NAK other than 0x60 has a cause.
    fn check_cause(&self, psn: Psn, nak: Syndrome, findings: &mut Findings) {
        let mut answers = self.open.iter().chain(&self.repeated).filter(|one| one.length > 0);
        let is_due = answers.any(|one| one.next() == psn || one.unserved() == psn);
        self.refusals.check(psn, nak, is_due, self.host_has_failed, findings);
    }

    /// Checks a NAK: what precedes it is acknowledged by it.
    fn refuse(&mut self, psn: Psn, is_asked: bool, findings: &mut Findings) {
        findings.ensure(Rule::ResponsePsn, is_asked && !psn.is_before(self.first), || {
            format!("a NAK of {psn}, allowed is {} to {}", self.first, self.expected)
        });
        let is_acknowledged = self.acknowledged.is_some_and(|newest| !psn.is_after(newest));
        let is_repeated = self.repeated.iter().any(|one| one.next() == psn);
        findings.ensure(Rule::ResponsePsn, !is_acknowledged || is_repeated, || {
            format!("a NAK of {psn} comes after an ACK of {:?}", self.acknowledged)
        });
        if let Some(open) = self.open.iter().find(|one| !one.is_doubtful) {
            findings.ensure(Rule::ResponsePsn, !open.unserved().is_before(psn), || {
                format!(
                    "a NAK of {psn} passes {:?} at {}, which waits for {}",
                    open.kind,
                    open.first,
                    open.unserved()
                )
            });
        }
    }

    /// Checks a response of a READ or an atomic.
    fn answer(&mut self, set_up: &SetUp, packet: &PacketRepr, row: &Opcode, findings: &mut Findings) {
        let psn = packet.bth.psn;
        let is_it = |asked: &Asked| {
            asked.next() == psn
                && asked.sent < asked.count
                && (asked.kind == Kind::Atomic) == (row.operation == Operation::AtomicAcknowledge)
        };
        // Several may have come as far: what the peer asks for again may begin where another answer goes on.
        let said = (row.operation, packet.payload.len() as u32);
        let is_expected = |asked: &Asked| asked.expected(set_up.pmtu_bytes) == said;
        let open = self.due();
        let open = self.open.iter_mut().take(open);
        let mut due: Vec<&mut Asked> = open.chain(&mut self.repeated).filter(|asked| is_it(asked)).collect();
        let place = due.iter().position(|asked| is_expected(asked)).unwrap_or(0);
        let Some(asked) = due.get_mut(place) else {
            let next = self.open.front().map(Asked::next);
            findings.add(Rule::ResponsePsn, || {
                format!("{} of {psn}; the response that is due is of {next:?}", row.name)
            });
            return;
        };
        let expected = asked.expected(set_up.pmtu_bytes);
        findings.compare(Rule::ReadResponse, "opcode and length", said, expected);
        asked.sent += 1;
        // What is in doubt and was passed was not executed.
        let done = self.open.iter().take(self.due()).position(|one| one.sent == one.count);
        self.open.drain(..done.unwrap_or(0));
        self.repeated.retain(|one| one.sent < one.count);
        self.serve(psn);
        self.refusals.settle(psn);
    }

    /// Notes that the response of a PSN is sent, as the answer to any request.
    fn serve(&mut self, psn: Psn) {
        let covers = |one: &Asked| !psn.is_before(one.first) && !psn.is_after(one.last());
        let Some(place) = self.open.iter().position(covers) else { return };
        let one = &mut self.open[place];
        if one.unserved() == psn {
            one.served += 1;
        }
        if psn != one.last() {
            return;
        }
        if let Some(one) = self.open.remove(place) {
            self.served.extend(Some((one.first, psn)).filter(|_| !one.is_doubtful));
            // One that seems to come later was half of all PSNs ago.
            let is_old = |served: &VecDeque<(Psn, Psn)>| {
                served.len() > SERVED_MAX || served.front().is_some_and(|(first, _)| first.is_after(psn))
            };
            while is_old(&self.served) {
                self.served.pop_front();
            }
            let rest = Some(one).filter(|one| one.sent < one.count);
            keep(&mut self.repeated, rest, REPEATED_MAX);
        }
    }

    /// Checks the MSN of a response by which the requests up to a PSN are completed.
    fn check_msn(&self, aeth: &AethRepr, completed: Psn, findings: &mut Findings) {
        let (least, most) =
            (self.messages_at(completed).saturating_sub(self.fewer), self.messages + self.more);
        let is_within = aeth.msn.is_within(Psn::wrapping(least), most - least + 1);
        findings.ensure(Rule::Msn, is_within, || {
            format!("the MSN is {}, allowed is {least} to {most} modulo 2^24", aeth.msn)
        });
    }
}
