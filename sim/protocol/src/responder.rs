//! The responder of a queue pair (protocol 3.1 to 3.8).
use crate::frame::{Body, Data, Nak, Place, Request, Response};
use crate::judge::Event;
use crate::plan::{Fault, Kind, Settings};

/// A READ or atomic that can be answered again (protocol 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Position of its first PSN.
    pub start: u8,
    /// Number of its PSNs.
    pub packets: u8,
    /// READ: address. Atomic: what it is in the plan.
    pub data: Data,
    /// Atomic: original value of the word.
    pub original: Option<u8>,
}

/// State of a responder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Responder {
    /// Position that is expected next. Its low bits are the ePSN.
    pub expected: u8,
    /// Messages executed, and READs accepted.
    pub msn: u8,
    /// A NAK 0x60 was sent, and the packet of the ePSN has not arrived since.
    pub nak_sent: bool,
    /// An RNR NAK was sent, and the packet of the ePSN has not arrived since.
    pub rnr_sent: bool,
    /// SEND or WRITE that has begun and not ended.
    pub message: Option<Kind>,
    /// Newest READs and atomics.
    pub slots: Vec<Slot>,
    /// The word of the atomics.
    pub word: u8,
    /// Receive WQEs.
    pub receives: u8,
    /// The queue pair is in ERR.
    pub failed: bool,
    /// Position after the last one that was acknowledged.
    pub acknowledged: u8,
    /// Position of the last SEND or WRITE packet that was executed; the one before the first if there is none.
    pub newest: u8,
    /// Answers that are not sent yet, in their order.
    pub answers: Vec<Response>,
}

impl Responder {
    /// The responder before the run.
    pub fn new(settings: &Settings) -> Responder {
        Responder {
            expected: settings.plan.first,
            msn: 0,
            nak_sent: false,
            rnr_sent: false,
            message: None,
            slots: Vec::new(),
            word: 0,
            receives: settings.receives,
            failed: false,
            acknowledged: settings.plan.first,
            newest: settings.plan.first.wrapping_sub(1),
            answers: Vec::new(),
        }
    }

    /// The responder after it has sent its first answer, and that answer.
    ///
    /// # Panics
    /// If no answer waits.
    pub fn answered(mut self) -> (Responder, Response) {
        let answer = self.answers.remove(0);
        if answer.body == Body::Ack || answer.body.is_data() {
            self.acknowledged = self.acknowledged.max(answer.position + 1);
        }
        (self, answer)
    }

    /// The responder after a request, in the order of checks of protocol 3.1.
    pub fn receives(mut self, settings: &Settings, request: &Request, events: &mut Vec<Event>) -> Responder {
        if self.failed {
            return self;
        }
        let space = settings.space;
        let mut distance = space.distance(request.psn, space.psn(self.expected));
        if settings.has(Fault::GapAccepted) && distance > 0 {
            distance = 0;
        }
        match distance {
            0 => self.expected_request(settings, request, events),
            1.. => self.gap(settings, events),
            _ => self.duplicate(settings, request, events),
        }
        self
    }

    /// A packet after the expected one: one NAK 0x60, until the expected one arrives (protocol 3.2).
    fn gap(&mut self, settings: &Settings, events: &mut Vec<Event>) {
        if settings.has(Fault::GapAcknowledged) {
            self.acknowledge(settings, self.expected);
        } else if !self.nak_sent && !self.rnr_sent {
            self.nak_sent = !settings.has(Fault::NakForEachPacket);
            self.answer_nak(settings, self.expected, Nak::Sequence);
            events.push(Event::SequenceNak);
        }
    }

    /// The packet of the ePSN.
    fn expected_request(&mut self, settings: &Settings, request: &Request, events: &mut Vec<Event>) {
        self.nak_sent = false;
        self.rnr_sent = false;
        events.push(Event::ExpectedArrived);
        if !self.is_in_sequence(request) || self.lacks_slot(settings, request) {
            return self.fail(settings, Nak::Invalid);
        }
        if self.lacks_receive(request) {
            if settings.has(Fault::RnrAfterExecution) && request.kind == Kind::WriteImm {
                events.push(Event::Executed(request.kind, request.data));
            }
            self.rnr_sent = true;
            return self.answer_nak(settings, self.expected, Nak::NotReady);
        }
        let refused_from = settings.plan.messages[usize::from(request.data.message)].refused_from;
        if refused_from.is_some_and(|from| request.data.packet >= from) {
            return self.fail(settings, Nak::Access);
        }
        self.execute(settings, request, refused_from, events);
    }

    /// Is the opcode allowed after the one before (protocol 3.3)?
    fn is_in_sequence(&self, request: &Request) -> bool {
        match self.message {
            None => request.place.begins(),
            Some(kind) => request.kind == kind && !request.place.begins(),
        }
    }

    /// Does a READ or atomic come while all slots are still being served (protocol 3.5)? A replay serves no slot: the
    /// requester may have completed the READ by the responses of its first attempt.
    fn lacks_slot(&self, settings: &Settings, request: &Request) -> bool {
        let is_replayed = |slot: &Slot| {
            let range = slot.start..slot.start + slot.packets;
            self.answers.iter().any(|answer| answer.body.is_data() && range.contains(&answer.position))
        };
        let is_served = |slot: &&Slot| {
            slot.start + slot.packets > self.acknowledged
                || (settings.has(Fault::ReplayTakesSlot) && is_replayed(slot))
        };
        request.kind.returns_data()
            && self.slots.iter().filter(is_served).count() >= usize::from(settings.slots)
    }

    /// Does the packet take a receive WQE, and there is none (protocol 3.6 row 12, protocol 3.7)?
    fn lacks_receive(&self, request: &Request) -> bool {
        self.receives == 0 && takes_receive(request)
    }

    fn execute(
        &mut self,
        settings: &Settings,
        request: &Request,
        refused_from: Option<u8>,
        events: &mut Vec<Event>,
    ) {
        events.push(Event::Executed(request.kind, request.data));
        let position = self.expected;
        self.expected += request.packets;
        self.receives -= u8::from(takes_receive(request));
        self.msn += u8::from(request.place.ends());
        self.message = (!request.place.ends()).then_some(request.kind);
        match request.kind {
            Kind::Read => {
                self.keep(settings, position, request, None);
                self.answer_read(settings, position, request.data, (0, request.packets), refused_from);
            }
            Kind::Atomic => {
                let original = self.word;
                self.word += 1;
                self.keep(settings, position, request, Some(original));
                self.answer(settings, position, Body::Atomic(original));
            }
            Kind::Send | Kind::Write | Kind::WriteImm => {
                self.newest = position;
                if request.ack_request {
                    self.acknowledge(settings, position);
                }
            }
        }
    }

    /// Notes a READ or atomic in a slot, in place of the oldest one if all are taken.
    fn keep(&mut self, settings: &Settings, start: u8, request: &Request, original: Option<u8>) {
        if settings.has(Fault::AtomicNotSaved) && original.is_some() {
            return;
        }
        if self.slots.len() == usize::from(settings.slots + settings.keeps_more) {
            self.slots.remove(0);
        }
        self.slots.push(Slot { start, packets: request.packets, data: request.data, original });
    }

    /// A packet before the expected one (protocol 3.4).
    fn duplicate(&mut self, settings: &Settings, request: &Request, events: &mut Vec<Event>) {
        let position = settings.space.position(request.psn, self.expected);
        let slot = self.slots.iter().find(|slot| (slot.start..slot.start + slot.packets).contains(&position));
        match (request.kind, slot.copied()) {
            (Kind::Read, Some(slot)) => {
                let address_end = request.data.packet + request.packets;
                let is_in_range = slot.data.message == request.data.message
                    && request.data.packet >= slot.data.packet
                    && address_end <= slot.data.packet + slot.packets;
                if slot.original.is_none() && is_in_range {
                    let data = if settings.has(Fault::ReplayFromFirst) { slot.data } else { request.data };
                    let refused = settings.plan.messages[usize::from(data.message)].refused_from;
                    let places = if settings.replays_go_on {
                        (position - slot.start, slot.packets)
                    } else {
                        (0, request.packets)
                    };
                    self.answer_read(settings, position, data, places, refused);
                }
            }
            (Kind::Atomic, Some(Slot { original: Some(original), .. })) => {
                let again = settings.has(Fault::AtomicAgain);
                let is_read = again || settings.has(Fault::AtomicFromMemory);
                let value = if is_read { self.word } else { original };
                if again {
                    self.word += 1;
                    events.push(Event::Executed(request.kind, request.data));
                }
                self.answer(settings, position, Body::Atomic(value));
            }
            (Kind::Read | Kind::Atomic, _) => {}
            (Kind::Send | Kind::Write | Kind::WriteImm, _) => {
                if settings.has(Fault::DuplicateAgain) {
                    events.push(Event::Executed(request.kind, request.data));
                }
                if request.ack_request {
                    let is_newest = settings.has(Fault::DuplicateAcksRead);
                    self.acknowledge(settings, if is_newest { self.expected - 1 } else { self.newest });
                }
            }
        }
    }

    /// Owes an ACK. Of ACKs without another answer between them, the newest is enough (protocol 3.8).
    fn acknowledge(&mut self, settings: &Settings, position: u8) {
        if settings.has(Fault::AckPassesRead) {
            let ack = self.response(settings, position, Body::Ack);
            return self.answers.insert(0, ack);
        }
        let position = match self.answers.last() {
            Some(last) if last.body == Body::Ack => {
                let newest = last.position.max(position);
                self.answers.pop();
                newest
            }
            _ => position,
        };
        self.answer(settings, position, Body::Ack);
    }

    /// Owes the responses of a READ, up to the one that the region refuses. Their opcodes are those of the `places` from the first
    /// number to before the second, of as many as the second says.
    fn answer_read(
        &mut self,
        settings: &Settings,
        position: u8,
        data: Data,
        (first, count): (u8, u8),
        refused: Option<u8>,
    ) {
        for index in 0..count - first {
            let packet = data.packet + index;
            if refused.is_some_and(|from| packet >= from) {
                return self.fail_at(settings, position + index, Nak::Access);
            }
            let place = Place::of(first + index, count);
            self.answer(settings, position + index, Body::Read(place, Data { packet, ..data }));
        }
    }

    fn answer(&mut self, settings: &Settings, position: u8, body: Body) {
        let response = self.response(settings, position, body);
        self.answers.push(response);
    }

    fn answer_nak(&mut self, settings: &Settings, position: u8, nak: Nak) {
        self.answer(settings, position, Body::Nak(nak));
    }

    fn response(&self, settings: &Settings, position: u8, body: Body) -> Response {
        let has_aeth = !matches!(body, Body::Read(Place::Middle, _));
        let msn = if has_aeth { self.msn } else { 0 };
        Response { position, psn: settings.space.psn(position), body, msn }
    }

    fn fail(&mut self, settings: &Settings, nak: Nak) {
        self.fail_at(settings, self.expected, nak);
    }

    /// Answers with a NAK, and moves the queue pair to ERR, in which it drops everything.
    fn fail_at(&mut self, settings: &Settings, position: u8, nak: Nak) {
        self.answer_nak(settings, position, nak);
        self.failed = true;
    }
}

/// Does this packet take a receive WQE: the first of a SEND, the last of a WRITE with immediate?
fn takes_receive(request: &Request) -> bool {
    match request.kind {
        Kind::Send => request.place.begins(),
        Kind::WriteImm => request.place.ends(),
        Kind::Write | Kind::Read | Kind::Atomic => false,
    }
}
