//! The passive monitor of a card's network port: it judges each frame that the card sends, in every run.
//!
//! ```text
//!   software ── registers, commands ──> card ── frames ──────────────> wire
//!                    │                   ^          │                    │
//!                    │   answers ────────┤          │     frames <───────┘
//!                    v       v           v          v        v
//!                 ┌─────────────────────────────────────────────┐
//!                 │ set-up          state of each queue pair    │──> findings
//!                 └─────────────────────────────────────────────┘
//! ```
//!
//! It knows the contract (`rnic-layout`), what software has written to the card, and what has crossed the port. It knows no card
//! and no endpoint, so it shares no mistake with them. Frames of the peer are noted and not judged: tests send wrong ones on
//! purpose.
//!
//! 1. A frame of RC names its receiver only, so the sender is that queue pair of the card whose peer it is.
//! 2. A command counts from its doorbell on. Until its answer is there, and [`Rates::linger_ps`] longer, frames of the set-up before are
//!    allowed as well; if the command is refused, only those.
//! 3. What the specification leaves open is not judged: how often ACKs are coalesced, the identification of IPv4, when a frame is
//!    sent.
//! 4. A packet is left out only if the host has failed to give a read, and only with the packet in its place that protocol 2.4 wants.
//! 5. A bound is never too strict because of a request that the card may have dropped.
//! 6. A card that drops a response for lack of room rightly sends its request again, and the port shows no reason. So such requests are
//!    counted, and judged when the counters of the card have told how many frames it has dropped ([`Monitor::explain`]).
mod answers;
mod frame;
pub mod rates;
mod refusals;
mod repeats;
mod requests;
mod responses;
mod rule;
mod set_up;
mod unexplained;

pub use rates::Rates;
pub use rule::{Finding, Rule};

use rnic_layout::admin::{Answer, Body, Command, CommandOpcode, CommandStatus, CreateAddressHandle};
use rnic_layout::opcode::{self, Class, Opcode};
use rnic_layout::state::QpState;
use rnic_layout::wire::ip::Ecn;
use rnic_layout::wire::{Filter, PacketRepr, classify, explain};
use rule::Findings;
use set_up::{Port, QueuePair};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use unexplained::Unexplained;

/// A queue pair, and what it was before a command that is being executed.
#[derive(Clone, Debug)]
struct Entry {
    /// As the newest command says; `None` if it was destroyed.
    now: Option<QueuePair>,
    before: Option<Before>,
}

/// A queue pair before a command.
#[derive(Clone, Debug)]
struct Before {
    queue_pair: QueuePair,
    /// It is the same connection, so that only its set-up counts: what has crossed the port is kept in [`Entry::now`].
    continues: bool,
    /// Time up to which it counts; unknown until the answer is there.
    until_ps: Option<u64>,
}

/// A command without its answer.
#[derive(Clone, Debug)]
struct Pending {
    tag: u16,
    undo: Undo,
}

/// What a refused command would have changed.
#[derive(Clone, Debug)]
enum Undo {
    Nothing,
    Handle(u32, Option<CreateAddressHandle>),
    QueuePair(u32, Overlap),
}

/// What a queue pair was before a command that came so soon after another one that [`Entry::before`] is still what it was before
/// that one, and the time up to which that counted.
type Overlap = Option<Box<(QueuePair, Option<u64>)>>;

/// Monitor of the port of one card.
#[derive(Clone, Debug)]
pub struct Monitor {
    rates: Rates,
    port: Port,
    handles: BTreeMap<u32, CreateAddressHandle>,
    queue_pairs: BTreeMap<u32, Entry>,
    /// For each QPN of a peer, the QPNs of the card that have had it as their peer.
    of_peer: BTreeMap<u32, BTreeSet<u32>>,
    pending: VecDeque<Pending>,
    /// Reads that the host has failed to give, and for which the card has left out no packet.
    failed_reads: u64,
    /// The host has refused a read or a write.
    host_has_failed: bool,
    unexplained: Unexplained,
}

impl Monitor {
    /// A monitor of a card of these rates after power-on.
    pub fn new(rates: Rates) -> Monitor {
        Monitor {
            rates,
            port: Port::default(),
            handles: BTreeMap::new(),
            queue_pairs: BTreeMap::new(),
            of_peer: BTreeMap::new(),
            pending: VecDeque::new(),
            failed_reads: 0,
            host_has_failed: false,
            unexplained: Unexplained::default(),
        }
    }

    /// Software writes a register of eight bytes in BAR 0.
    pub fn register(&mut self, offset: u64, value: u64) {
        self.port.register(offset, value, self.rates);
    }

    /// Software resets the card, which then ends what it has begun, and forgets all objects.
    pub fn reset(&mut self) {
        let numbers: Vec<u32> = self.queue_pairs.keys().copied().collect();
        for number in numbers {
            self.change(number, |_| None);
        }
        (self.handles, self.pending) = Default::default();
    }

    /// Software knows that a reset has ended. Frames that are in the MAC may still leave.
    pub fn end_reset(&mut self, now_ps: u64) {
        let is_ending = |entry: &Entry| {
            entry.now.is_none() && entry.before.as_ref().is_some_and(|before| before.until_ps.is_none())
        };
        let ending = self.queue_pairs.iter().filter(|(_, entry)| is_ending(entry)).map(|(number, _)| *number);
        for number in ending.collect::<Vec<u32>>() {
            self.confirm(number, now_ps);
        }
    }

    /// Software posts a command and rings the doorbell.
    pub fn command(&mut self, command: &Command) {
        let number = command.header.object_number;
        let undo = match command.body {
            Body::AddressHandle(body) => Undo::Handle(number, self.handles.insert(number, body)),
            Body::CreateQueuePair(body) => {
                let overlap = self.change(number, |_| Some(QueuePair::new(body.service)));
                Undo::QueuePair(number, overlap)
            }
            Body::ModifyQueuePair(body) if self.queue_pairs.contains_key(&number) => {
                let handle = self.handles.get(&body.address_handle).copied();
                let rates = self.rates;
                let overlap = self.change(number, |queue_pair| {
                    let mut queue_pair = queue_pair?.clone();
                    queue_pair.modify(&body, handle, rates);
                    Some(queue_pair)
                });
                Undo::QueuePair(number, overlap)
            }
            Body::Destroy if command.header.opcode == CommandOpcode::DestroyQueuePair => {
                if self.queue_pairs.contains_key(&number) {
                    Undo::QueuePair(number, self.change(number, |_| None))
                } else {
                    Undo::Nothing
                }
            }
            Body::Destroy if command.header.opcode == CommandOpcode::DestroyAddressHandle => {
                Undo::Handle(number, self.handles.remove(&number))
            }
            _ => Undo::Nothing,
        };
        self.pending.push_back(Pending { tag: command.header.tag, undo });
    }

    /// The card has answered a command.
    pub fn answer(&mut self, now_ps: u64, answer: &Answer) {
        let Some(place) = self.pending.iter().position(|pending| pending.tag == answer.tag) else { return };
        let Some(Pending { undo, .. }) = self.pending.remove(place) else { return };
        let is_refused = answer.status != CommandStatus::Success;
        match undo {
            Undo::Nothing => {}
            Undo::Handle(number, before) if is_refused => {
                self.handles.remove(&number);
                self.handles.extend(before.map(|before| (number, before)));
            }
            Undo::Handle(..) => {}
            Undo::QueuePair(number, overlap) if is_refused => self.undo(number, overlap),
            Undo::QueuePair(number, _) => self.confirm(number, now_ps),
        }
    }

    /// Changes a queue pair, and keeps what it was.
    fn change(
        &mut self,
        number: u32,
        change: impl FnOnce(Option<&QueuePair>) -> Option<QueuePair>,
    ) -> Overlap {
        let entry = self.queue_pairs.entry(number).or_insert(Entry { now: None, before: None });
        let next = change(entry.now.as_ref());
        let continues = next.as_ref().is_some_and(|next| next.set_up.state != QpState::Reset);
        let mut overlap = None;
        let sends = |queue_pair: &QueuePair| {
            queue_pair.set_up.state.permissions().transmit != rnic_layout::state::Traffic::None
        };
        if let Some(now) = std::mem::replace(&mut entry.now, next) {
            // Of two that overlap, the one that may have frames on their way is kept.
            match &mut entry.before {
                Some(before) if sends(&before.queue_pair) && !sends(&now) => {
                    if before.continues && !continues {
                        before.queue_pair.take_history(&now);
                    }
                    before.continues &= continues;
                    overlap = Some(Box::new((now, before.until_ps.take())));
                }
                before => *before = Some(Before { queue_pair: now, continues, until_ps: None }),
            }
        }
        if let Some(now) = &entry.now {
            self.of_peer.entry(now.set_up.peer).or_default().insert(number);
        }
        overlap
    }

    /// A command for a queue pair was executed.
    fn confirm(&mut self, number: u32, now_ps: u64) {
        if let Some(before) = self.queue_pairs.get_mut(&number).and_then(|entry| entry.before.as_mut()) {
            before.until_ps = Some(now_ps + self.rates.linger_ps());
        }
    }

    /// A command for a queue pair was refused.
    fn undo(&mut self, number: u32, overlap: Overlap) {
        let Some(entry) = self.queue_pairs.get_mut(&number) else { return };
        let refused = entry.now.take();
        let continues = entry.before.as_ref().is_some_and(|before| before.continues);
        entry.now = match (overlap, &mut entry.before) {
            (Some(overlap), Some(before)) => {
                let (queue_pair, until_ps) = *overlap;
                before.until_ps = until_ps;
                Some(queue_pair)
            }
            _ => entry.before.take().map(|before| before.queue_pair),
        };
        if let (true, Some(now), Some(refused)) = (continues, &mut entry.now, &refused) {
            now.take_history(refused);
        }
    }

    /// The host fails to give a read to the card. If it was payload, its packet is left out (protocol 2.4).
    pub fn read_failed(&mut self) {
        self.failed_reads += 1;
        self.host_has_failed = true;
    }

    /// The host fails to take a write of the card, which may then refuse a request (protocol 3.6 row 13).
    pub fn write_failed(&mut self) {
        self.host_has_failed = true;
    }

    /// A fault of the wire may have lost frames from or to the card, so requests may be repeated.
    pub fn fault(&mut self) {
        let queue_pairs = self.queue_pairs.values_mut().filter_map(|entry| entry.now.as_mut());
        queue_pairs
            .filter_map(|queue_pair| queue_pair.requester.as_mut())
            .for_each(|requester| requester.excuse());
    }

    /// A frame arrives at the card.
    pub fn received(&mut self, now_ps: u64, frame: &[u8], is_damaged: bool) {
        let Ok(packet) = classify(frame, is_damaged, &self.port.filter) else { return };
        let Some(entry) = self.queue_pairs.get_mut(&packet.bth.destination_qp) else { return };
        let row = opcode::lookup(packet.bth.opcode);
        let class = row.map_or(Class::Request, |row| row.class);
        let is_for = |one: &QueuePair| frame::is_for(&one.set_up, &self.port, &packet, class);
        let (continues, was_for) = match &entry.before {
            Some(before) => (before.continues, before.continues && is_for(&before.queue_pair)),
            None => (false, false),
        };
        let now = entry.now.iter_mut().map(|now| (now, was_for));
        let before = entry.before.iter_mut().filter(|_| !continues);
        for (queue_pair, was_for) in now.chain(before.map(|before| (&mut before.queue_pair, false))) {
            if !was_for && !is_for(queue_pair) {
                continue;
            }
            queue_pair.marked += u32::from(Ecn::of(packet.ip.traffic_class()) == Ecn::Experienced);
            match (class, row) {
                (Class::Request, _) => {
                    if let Some(responder) = &mut queue_pair.responder {
                        responder.asked(&queue_pair.set_up, &packet, row);
                    }
                }
                (Class::Response, Some(row)) => {
                    if let Some(requester) = &mut queue_pair.requester {
                        requester.answered(&queue_pair.set_up, now_ps, &packet, row);
                    }
                }
                _ => {}
            }
        }
    }

    /// Number of times that the card has sent requests again without a reason that its port has seen, and for which
    /// [`explain`](Self::explain) has returned no finding.
    pub fn unexplained(&self) -> u64 {
        self.unexplained.count()
    }

    /// Compares that number, as it was at some moment, with the frames that the card had dropped for lack of room by then or later.
    /// Returns when requests were sent again, and with which packet, if the card has dropped fewer; of many the first.
    pub fn explain(&mut self, unexplained: u64, dropped: u64) -> Vec<(u64, Finding)> {
        self.unexplained.explain(unexplained, dropped)
    }

    /// The card sends a frame. Returns the rules that it breaks.
    pub fn sent(&mut self, now_ps: u64, frame: &[u8]) -> Vec<Finding> {
        let packet = match explain(frame, false, &Filter::PROMISCUOUS) {
            Ok(packet) => packet,
            Err(refusal) => {
                let (rule, text) = (frame::rule_of(refusal.reason), refusal.to_string());
                return vec![Finding { rule, qp_number: None, text, frame: rule::hexadecimal(frame) }];
            }
        };
        let mut findings = Findings::default();
        let qp_number = match opcode::lookup(packet.bth.opcode) {
            Some(row) => {
                frame::check(frame, &packet, row, &mut findings);
                self.judge(now_ps, &packet, row, &mut findings)
            }
            None => {
                let code = packet.bth.opcode;
                findings.add(Rule::Transport, || format!("opcode {code:#04x} is not assigned"));
                None
            }
        };
        let finding = |(rule, text)| Finding { rule, qp_number, text, frame: rule::line(&packet) };
        if let Some(text) = findings.doubtful {
            self.unexplained.add(now_ps, || finding((Rule::RequestPsn, text)));
        }
        findings.broken.into_iter().map(finding).collect()
    }

    /// Finds the sender of a packet, and checks what depends on it.
    fn judge(
        &mut self,
        now_ps: u64,
        packet: &PacketRepr,
        row: &'static Opcode,
        findings: &mut Findings,
    ) -> Option<u32> {
        let peer = packet.bth.destination_qp;
        let mut senders: Vec<(Sender, Findings)> = Vec::new();
        for &number in self.of_peer.get(&peer).into_iter().flatten() {
            let Some(entry) = self.queue_pairs.get_mut(&number) else { continue };
            entry.before.take_if(|before| before.until_ps.is_some_and(|until_ps| until_ps < now_ps));
            let continues = entry.before.as_ref().is_some_and(|before| before.continues);
            let before = entry.before.as_ref().map(|before| &before.queue_pair);
            for (is_before, queue_pair) in [(false, entry.now.as_ref()), (true, before)] {
                let Some(queue_pair) = queue_pair.filter(|one| one.set_up.peer == peer) else { continue };
                let mut path = Findings::default();
                frame::check_path(&queue_pair.set_up, &self.port, packet, row, &mut path);
                senders.push((Sender { number, is_before, continues }, path));
            }
        }
        // The sort is stable: of those that fit equally well, the set-up that is newest comes first.
        senders.sort_by_key(|(_, path)| path.count());
        let Some(least) = senders.first().map(|(_, path)| path.count()) else {
            findings.add(Rule::Destination, || format!("no queue pair has the peer {peer:#x}"));
            return None;
        };
        senders.retain(|(_, path)| path.count() == least);
        // Both set-ups of a connection have the same history.
        senders.dedup_by(|(later, _), (earlier, _)| later.number == earlier.number && later.continues);
        if least > 0 {
            // What does not fit its set-up is not judged by its history as well.
            let (sender, path) = senders.swap_remove(0);
            findings.append(path);
            return Some(sender.number);
        }
        if let [(sender, _)] = senders[..] {
            self.cross(sender, now_ps, packet, row, findings);
            return Some(sender.number);
        }
        // Several fit: the packet is of the first one whose history it continues, or else of the first.
        let mut best: Option<(Sender, QueuePair, u64, Findings)> = None;
        for (sender, mut found) in senders {
            let Some(saved) = self.sender(sender).cloned() else { continue };
            let failed_reads = self.failed_reads;
            self.cross(sender, now_ps, packet, row, &mut found);
            let used = failed_reads - std::mem::replace(&mut self.failed_reads, failed_reads);
            let crossed = self.sender(sender).map(|now| std::mem::replace(now, saved));
            let is_better = best.as_ref().is_none_or(|best| found.count() < best.3.count());
            if let Some(crossed) = crossed.filter(|_| is_better) {
                best = Some((sender, crossed, used, found));
            }
        }
        let (sender, crossed, used, found) = best?;
        self.failed_reads -= used;
        if let Some(place) = self.sender(sender) {
            *place = crossed;
        }
        findings.append(found);
        Some(sender.number)
    }

    fn sender(&mut self, sender: Sender) -> Option<&mut QueuePair> {
        let entry = self.queue_pairs.get_mut(&sender.number)?;
        if sender.has_own_history() {
            Some(&mut entry.before.as_mut()?.queue_pair)
        } else {
            entry.now.as_mut()
        }
    }

    /// Checks a packet against what has crossed the port before.
    fn cross(
        &mut self,
        sender: Sender,
        now_ps: u64,
        packet: &PacketRepr,
        row: &'static Opcode,
        findings: &mut Findings,
    ) {
        let Some(entry) = self.queue_pairs.get_mut(&sender.number) else { return };
        let before = entry.before.as_mut().map(|before| &mut before.queue_pair);
        let set_up_before = before.as_ref().map(|before| before.set_up).filter(|_| sender.is_before);
        let queue_pair = if sender.has_own_history() { before } else { entry.now.as_mut() };
        let Some(queue_pair) = queue_pair else { return };
        let failed_reads = &mut self.failed_reads;
        let set_up = &set_up_before.unwrap_or(queue_pair.set_up);
        match (row.class, &mut queue_pair.requester, &mut queue_pair.responder) {
            (Class::Request, Some(requester), _) => {
                requester.unit_ps = self.port.timer_unit_ps;
                requester.sent(set_up, now_ps, failed_reads, packet, row, findings);
            }
            (Class::Response, _, Some(responder)) => {
                responder.host_has_failed = self.host_has_failed;
                responder.sent(set_up, packet, row, findings);
            }
            (Class::Congestion, ..) => {
                let is_marked = queue_pair.marked > 0;
                findings.ensure(Rule::Congestion, is_marked, || "no marked packet has arrived for it".into());
                queue_pair.marked = queue_pair.marked.saturating_sub(1);
            }
            _ => findings.add(Rule::State, || format!("{} is sent before its first PSN is set", row.name)),
        }
    }
}

/// A queue pair as it is, or as it was before a command.
#[derive(Clone, Copy, Debug)]
struct Sender {
    number: u32,
    is_before: bool,
    /// [`Before::continues`]
    continues: bool,
}

impl Sender {
    fn has_own_history(self) -> bool {
        self.is_before && !self.continues
    }
}

#[cfg(test)]
mod tests;
