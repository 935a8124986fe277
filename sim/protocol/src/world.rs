//! A requester, a responder, and the wire between them.
use crate::frame::{Request, Response};
use crate::judge::{Event, Judge};
use crate::plan::{Settings, Timer};
use crate::requester::Requester;
use crate::responder::Responder;
use crate::trace::Frame;

/// What can happen next. Frames are named by their place on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The requester sends its next request.
    Send,
    /// The responder sends its oldest answer.
    Answer,
    /// A request arrives.
    DeliverRequest(usize),
    /// A response arrives.
    DeliverResponse(usize),
    /// The wire loses a request.
    LoseRequest(usize),
    /// The wire loses a response.
    LoseResponse(usize),
    /// The wire makes a second copy of a request, behind all others.
    DuplicateRequest(usize),
    /// The wire makes a second copy of a response, behind all others.
    DuplicateResponse(usize),
    /// The requester's timer fires.
    Timeout,
    /// The requester's wait after an RNR NAK ends.
    RnrWaitEnds,
    /// The responder's host posts a receive WQE.
    PostReceive,
}

/// What an action does.
#[derive(Clone, Debug)]
pub struct Step {
    /// The world after it.
    pub world: World,
    /// The frames that it put on the wire, without copies that the wire made.
    pub sent: Vec<Frame>,
    /// What each side did.
    pub events: Vec<Event>,
}

/// State of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// State of the requester.
    pub requester: Requester,
    /// State of the responder.
    pub responder: Responder,
    /// Requests on the wire, in the order of sending; sorted on a wire without order.
    pub requests: Vec<Request>,
    /// Responses on the wire, likewise.
    pub responses: Vec<Response>,
    /// Frames that the wire may still lose.
    pub losses: u8,
    /// Frames that the wire may still duplicate.
    pub duplicates: u8,
    /// Frames that may still be delivered ahead of an older one.
    pub reorders: u8,
    /// Receive WQEs that the host has not posted yet.
    pub unposted: u8,
    /// What was done.
    pub judge: Judge,
}

impl World {
    /// The world before the run.
    pub fn new(settings: &Settings) -> World {
        World {
            requester: Requester::new(settings),
            responder: Responder::new(settings),
            requests: Vec::new(),
            responses: Vec::new(),
            losses: settings.losses,
            duplicates: settings.duplicates,
            reorders: settings.reorders.unwrap_or(0),
            unposted: settings.plan.receives().saturating_sub(settings.receives),
            judge: Judge::new(),
        }
    }

    /// Have all messages completed with success?
    pub fn is_done(&self, settings: &Settings) -> bool {
        self.judge.completed == settings.plan.count() && self.judge.failed.is_none()
    }

    /// Lists what can happen next. Nothing happens after a message has failed.
    pub fn actions(&self, settings: &Settings) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.requester.failed {
            return actions;
        }
        let may_send = self.requests.len() < settings.capacity && self.requester.request(settings).is_some();
        if may_send && settings.sends_at_once {
            return vec![Action::Send];
        }
        let mut add = |is_possible: bool, action: Action| {
            if is_possible {
                actions.push(action);
            }
        };
        add(may_send, Action::Send);
        let may_answer = self.responses.len() < settings.capacity && !self.responder.answers.is_empty();
        add(may_answer, Action::Answer);
        let is_quiet =
            self.requests.is_empty() && self.responses.is_empty() && self.responder.answers.is_empty();
        add(self.requester.timer_may_fire(settings, is_quiet), Action::Timeout);
        let receive_is_posted = self.responder.receives > 0 || self.unposted == 0;
        let wait_may_end = settings.timer == Timer::Early || receive_is_posted;
        add(self.requester.waits && wait_may_end, Action::RnrWaitEnds);
        add(self.unposted > 0, Action::PostReceive);
        for index in choices(&self.requests) {
            add(self.may_deliver(settings, index), Action::DeliverRequest(index));
            add(self.losses > 0, Action::LoseRequest(index));
            let has_room = self.requests.len() < settings.capacity;
            add(self.duplicates > 0 && has_room, Action::DuplicateRequest(index));
        }
        for index in choices(&self.responses) {
            add(self.may_deliver(settings, index), Action::DeliverResponse(index));
            add(self.losses > 0, Action::LoseResponse(index));
            let has_room = self.responses.len() < settings.capacity;
            add(self.duplicates > 0 && has_room, Action::DuplicateResponse(index));
        }
        actions
    }

    /// May a frame at this place on the wire arrive next?
    fn may_deliver(&self, settings: &Settings, index: usize) -> bool {
        settings.reorders.is_none() || index == 0 || self.reorders > 0
    }

    /// The world after an action.
    ///
    /// # Panics
    /// If the action is not possible.
    pub fn after(&self, settings: &Settings, action: Action) -> World {
        self.step(settings, action).world
    }

    /// An action, and all that it does.
    ///
    /// # Panics
    /// If the action is not possible.
    pub fn step(&self, settings: &Settings, action: Action) -> Step {
        let mut world = self.clone();
        let mut events = Vec::new();
        let mut sent = Vec::new();
        match action {
            Action::Send => {
                let request = world.requester.request(settings).expect("there is something to send");
                world.requester = world.requester.sent(settings, &request, &mut events);
                world.requests.push(request);
                sent.push(Frame::Request(request));
            }
            Action::Answer => world.answer(&mut sent),
            Action::DeliverRequest(index) => {
                world.reorders -= u8::from(index > 0 && settings.reorders.is_some());
                let request = world.requests.remove(index);
                world.responder = world.responder.receives(settings, &request, &mut events);
            }
            Action::DeliverResponse(index) => {
                world.reorders -= u8::from(index > 0 && settings.reorders.is_some());
                let response = world.responses.remove(index);
                world.requester = world.requester.receives(settings, &response, &mut events);
            }
            Action::LoseRequest(index) => {
                world.losses -= 1;
                world.requests.remove(index);
            }
            Action::LoseResponse(index) => {
                world.losses -= 1;
                world.responses.remove(index);
            }
            Action::DuplicateRequest(index) => {
                world.duplicates -= 1;
                world.requests.push(world.requests[index]);
            }
            Action::DuplicateResponse(index) => {
                world.duplicates -= 1;
                world.responses.push(world.responses[index]);
            }
            Action::Timeout => world.requester = world.requester.timed_out(settings, &mut events),
            Action::RnrWaitEnds => world.requester = world.requester.waited(&mut events),
            Action::PostReceive => {
                world.unposted -= 1;
                world.responder.receives += 1;
            }
        }
        while settings.answers_at_once
            && !world.responder.answers.is_empty()
            && world.responses.len() < settings.capacity
        {
            world.answer(&mut sent);
        }
        world.settle(settings, &events);
        Step { world, sent, events }
    }

    /// Moves the oldest answer to the wire.
    fn answer(&mut self, sent: &mut Vec<Frame>) {
        let (responder, answer) = self.responder.clone().answered();
        self.responder = responder;
        self.responses.push(answer);
        sent.push(Frame::Response(answer));
    }

    /// Forgets frames that are too old, orders the others, and shows the judge what was done.
    fn settle(&mut self, settings: &Settings, events: &[Event]) {
        if settings.frames_expire {
            let half = settings.space.half();
            let (una, expected) = (self.requester.una, self.responder.expected);
            self.requests.retain(|request| request.position + half >= expected);
            self.responses.retain(|response| response.position + half >= una);
        }
        if settings.reorders.is_none() {
            self.requests.sort_unstable();
            self.responses.sort_unstable();
        }
        self.judge = events.iter().fold(self.judge, |judge, &event| judge.after(settings, event));
    }
}

/// Places of frames that differ from the one before: of equal neighbours one is enough.
fn choices<T: PartialEq>(frames: &[T]) -> impl Iterator<Item = usize> {
    (0..frames.len()).filter(|&index| index == 0 || frames[index] != frames[index - 1])
}
