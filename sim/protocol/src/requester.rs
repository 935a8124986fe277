//! The requester of a queue pair (protocol 2.1 to 2.8).
//!
//! All positions are counts of PSNs from the start of the run: `una <= next <= nxt` is what holds of them, and only frames
//! have PSNs.
use crate::frame::{Body, Data, Nak, Place, Request, Response};
use crate::judge::{Event, Status};
use crate::plan::{Fault, Kind, RNR_RETRY_ENDLESS, Settings, Timer};

/// State of a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Requester {
    /// Oldest unacknowledged position. Inside a READ it is the first missing response.
    pub una: u8,
    /// Position of the next request to send.
    pub next: u8,
    /// First position that was never sent.
    pub nxt: u8,
    /// Messages completed.
    pub completed: u8,
    /// Retries left.
    pub retries: u8,
    /// Retries after RNR NAKs left.
    pub rnr_retries: u8,
    /// It waits after an RNR NAK.
    pub waits: bool,
    /// It has gone back to `una`, and nothing was acknowledged since: a further implied NAK takes no retry.
    pub going_back: bool,
    /// The timer has fired. Of use to [`Fault::TimerOnce`] only.
    pub timer_fired: bool,
    /// A message has completed with an error.
    pub failed: bool,
}

impl Requester {
    /// The requester before the run.
    pub fn new(settings: &Settings) -> Requester {
        let first = settings.plan.first;
        Requester {
            una: first,
            next: first,
            nxt: first,
            completed: 0,
            retries: settings.retries,
            rnr_retries: settings.rnr_retries,
            waits: false,
            going_back: false,
            timer_fired: false,
            failed: false,
        }
    }

    /// Returns the request that it may send now, if there is one.
    pub fn request(&self, settings: &Settings) -> Option<Request> {
        if self.failed || (self.waits && !settings.has(Fault::RnrWaitIgnored)) {
            return None;
        }
        let plan = &settings.plan;
        let (message, packet) = plan.at(self.next)?;
        let kind = plan.kind(message);
        let count = plan.messages[usize::from(message)].packets;
        let end = if kind == Kind::Read { plan.end(message) } else { self.next + 1 };
        let window_open = end - self.una <= settings.window || settings.has(Fault::WindowIgnored);
        let counts_again = settings.has(Fault::RetryTakesSlot) && self.next < self.nxt;
        let outstanding = self.reads_before(settings, message) + u8::from(counts_again);
        let slot_free =
            !kind.returns_data() || outstanding < settings.slots || settings.has(Fault::SlotsIgnored);
        if !window_open || !slot_free {
            return None;
        }
        let from = if settings.has(Fault::RestartFromFirst) { 0 } else { packet };
        Some(Request {
            position: self.next,
            psn: settings.space.psn(self.next),
            kind,
            place: if kind.returns_data() { Place::Only } else { Place::of(packet, count) },
            ack_request: !kind.returns_data() && packet + 1 == count,
            data: Data { message, packet: if kind == Kind::Read { from } else { packet } },
            packets: end - self.next,
        })
    }

    /// Counts the READs and atomics before `message` whose responses are not complete.
    fn reads_before(&self, settings: &Settings, message: u8) -> u8 {
        (self.completed..message).filter(|&earlier| settings.plan.kind(earlier).returns_data()).count() as u8
    }

    /// The requester after it has sent the request that [`Requester::request`] gives.
    pub fn sent(mut self, settings: &Settings, request: &Request, events: &mut Vec<Event>) -> Requester {
        self.next += request.packets;
        self.nxt = self.nxt.max(self.next);
        events.push(Event::Sent { unacknowledged: self.nxt - self.una });
        if settings.has(Fault::CompletesWhenSent) && request.ack_request {
            let message = request.data.message;
            if message == self.completed {
                events.push(Event::Completed { message, status: Status::Success });
                self.completed += 1;
            }
        }
        self
    }

    /// May the timer fire? The wire is `quiet` when no frame is under way and no answer waits.
    pub fn timer_may_fire(&self, settings: &Settings, quiet: bool) -> bool {
        let runs_in_wait = settings.has(Fault::TimerInWait) && self.waits && self.una < self.nxt;
        let waiting = ((self.una < self.next && !self.waits) || runs_in_wait) && !self.failed;
        let late = match settings.timer {
            Timer::Early => true,
            Timer::Patient => quiet && self.request(settings).is_none(),
        };
        waiting && late && !(settings.has(Fault::TimerOnce) && self.timer_fired)
    }

    /// The requester after its timer has fired (protocol 2.6).
    pub fn timed_out(mut self, settings: &Settings, events: &mut Vec<Event>) -> Requester {
        self.timer_fired = true;
        events.push(Event::TimerFired);
        self.retry(settings, events);
        self
    }

    /// The requester after the RNR wait (protocol 2.7).
    pub fn waited(mut self, events: &mut Vec<Event>) -> Requester {
        self.waits = false;
        events.push(Event::RnrWaitEnds);
        self
    }

    /// The requester after a response (protocol 2.5).
    pub fn receives(
        mut self,
        settings: &Settings,
        response: &Response,
        events: &mut Vec<Event>,
    ) -> Requester {
        let Some(position) = self.position(settings, response.psn) else { return self };
        if self.failed {
            return self;
        }
        match response.body {
            Body::Ack => {
                let answers = settings.acks_answer && self.is_one_response(settings, position);
                if self.acknowledge(settings, position + u8::from(!answers), events).is_some() {
                    self.implied_nak(settings, events);
                } else if answers {
                    self.advance(settings, position + 1, events);
                }
            }
            Body::Read(place, data) => self.read_response(settings, position, place, data, events),
            Body::Atomic(original) => self.atomic_ack(settings, position, original, events),
            Body::Nak(nak) => {
                if self.acknowledge(settings, position, events).is_some() {
                    self.implied_nak(settings, events);
                } else {
                    self.nak(settings, nak, events);
                }
            }
        }
        self
    }

    /// Returns the position that a response is for, unless it is stale or was never sent.
    fn position(&self, settings: &Settings, psn: u8) -> Option<u8> {
        let space = settings.space;
        let from_una = space.distance(psn, space.psn(self.una));
        let is_stale = from_una < 0;
        let is_unsent = space.distance(psn, space.psn(self.nxt)) >= 0;
        if is_stale && settings.has(Fault::StaleAccepted) {
            return Some(self.una + space.psn(psn.wrapping_sub(self.una)));
        }
        (!is_stale && !is_unsent).then(|| space.position(psn, self.una))
    }

    /// Takes everything before `end` for acknowledged, up to the first response that is missing of a READ or atomic. Returns
    /// the position of that, which is `una` from then on.
    fn acknowledge(&mut self, settings: &Settings, end: u8, events: &mut Vec<Event>) -> Option<u8> {
        let missing = self.first_missing(settings, end);
        self.advance(settings, missing.unwrap_or(end), events);
        missing
    }

    /// Is it the position of an atomic, or of a READ of one packet?
    fn is_one_response(&self, settings: &Settings, position: u8) -> bool {
        settings.plan.at(position).is_some_and(|(message, _)| {
            let asked = settings.plan.messages[usize::from(message)];
            asked.kind.returns_data() && asked.packets == 1
        })
    }

    /// Returns the position of the first missing response of a READ or atomic before `end`.
    fn first_missing(&self, settings: &Settings, end: u8) -> Option<u8> {
        if settings.has(Fault::AckCompletesRead) {
            return None;
        }
        (self.una..end).find(|&position| {
            settings.plan.at(position).is_some_and(|(message, _)| settings.plan.kind(message).returns_data())
        })
    }

    /// Moves `una` to `position`, and completes the messages before it.
    fn advance(&mut self, settings: &Settings, position: u8, events: &mut Vec<Event>) {
        if position <= self.una {
            return;
        }
        self.una = position;
        self.next = self.next.max(position);
        self.going_back = false;
        if !settings.has(Fault::RetriesNotReloaded) {
            self.retries = settings.retries;
            self.rnr_retries = settings.rnr_retries;
        }
        events.push(Event::Advanced);
        while self.completed < settings.plan.count() && settings.plan.end(self.completed) <= self.una {
            events.push(Event::Completed { message: self.completed, status: Status::Success });
            self.completed += 1;
        }
    }

    fn read_response(
        &mut self,
        settings: &Settings,
        position: u8,
        place: Place,
        data: Data,
        events: &mut Vec<Event>,
    ) {
        match self.acknowledge(settings, position + 1, events) {
            Some(missing) if missing == position || settings.has(Fault::ReadGapAccepted) => {
                let position = missing;
                let (message, packet) = settings.plan.at(position).unwrap_or_default();
                let is_first = position == settings.plan.start(message);
                let is_last = position + 1 == settings.plan.end(message);
                let is_of_read = settings.plan.kind(message) == Kind::Read;
                // A READ that was asked for again goes on with FIRST or with MIDDLE (protocol 2.5).
                let is_refused = !is_first && place.begins() && settings.has(Fault::FirstAgainRefused);
                if !is_of_read || is_last != place.ends() || (is_first && !place.begins()) || is_refused {
                    return self.fail(settings, Status::BadResponse, events);
                }
                events.push(Event::Placed { to: Data { message, packet }, data });
                self.advance(settings, position + 1, events);
            }
            Some(_) => self.implied_nak(settings, events),
            None => self.fail(settings, Status::BadResponse, events),
        }
    }

    fn atomic_ack(&mut self, settings: &Settings, position: u8, original: u8, events: &mut Vec<Event>) {
        match self.acknowledge(settings, position + 1, events) {
            Some(missing) if missing == position => {
                let (message, _) = settings.plan.at(position).unwrap_or_default();
                if settings.plan.kind(message) != Kind::Atomic {
                    return self.fail(settings, Status::BadResponse, events);
                }
                events.push(Event::Returned { message, original });
                self.advance(settings, position + 1, events);
            }
            Some(_) => self.implied_nak(settings, events),
            None => self.fail(settings, Status::BadResponse, events),
        }
    }

    /// Takes a NAK for `una`, all before which is acknowledged.
    fn nak(&mut self, settings: &Settings, nak: Nak, events: &mut Vec<Event>) {
        match nak {
            // A sequence NAK during the RNR wait is not counted beside it (protocol 7.4 row 21).
            Nak::Sequence if self.waits => self.next = self.una,
            Nak::Sequence => self.retry(settings, events),
            Nak::Invalid => self.fail(settings, Status::RemoteInvalidRequest, events),
            Nak::Access => self.fail(settings, Status::RemoteAccess, events),
            Nak::NotReady if self.waits && settings.waits_once => {}
            Nak::NotReady => self.rnr_nak(settings, events),
        }
    }

    /// Takes one of the RNR retries, and begins to wait (protocol 2.7).
    fn rnr_nak(&mut self, settings: &Settings, events: &mut Vec<Event>) {
        if settings.rnr_retries != RNR_RETRY_ENDLESS && !settings.has(Fault::RnrNotCounted) {
            let Some(left) = self.rnr_retries.checked_sub(1) else {
                return self.fail(settings, Status::RnrRetryExceeded, events);
            };
            self.rnr_retries = left;
        }
        if settings.has(Fault::RnrTakesRetry) {
            self.retries = self.retries.saturating_sub(1);
        }
        self.waits = true;
        self.next = self.una;
        events.push(Event::RnrRetried);
    }

    /// Goes back to the first missing response of a READ or atomic, at `una`. Does nothing while that is under way.
    fn implied_nak(&mut self, settings: &Settings, events: &mut Vec<Event>) {
        if !self.going_back {
            self.retry(settings, events);
        }
    }

    /// Takes one of the retries, and goes back to `una`.
    fn retry(&mut self, settings: &Settings, events: &mut Vec<Event>) {
        let Some(left) = self.retries.checked_sub(1) else {
            return self.fail(settings, Status::RetryExceeded, events);
        };
        if !settings.has(Fault::RetriesNotCounted) {
            self.retries = left;
        }
        self.next = self.una;
        self.going_back = true;
        events.push(Event::Retried);
    }

    /// Completes the oldest message with an error, and flushes the others.
    fn fail(&mut self, settings: &Settings, status: Status, events: &mut Vec<Event>) {
        self.failed = true;
        for (index, message) in (self.completed..settings.plan.count()).enumerate() {
            events.push(Event::Completed {
                message,
                status: if index == 0 { status } else { Status::Flushed },
            });
        }
        self.completed = settings.plan.count();
    }
}
