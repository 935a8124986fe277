//! What a side decided at a step of a run, and what it knew then: the measure by which runs are chosen to be repeated.
use crate::frame::{Body, Place, Request, Response};
use crate::judge::{Event, Status};
use crate::plan::{Kind, Settings};
use crate::requester::Requester;
use crate::trace::Frame;
use crate::world::{Action, Step, World};

/// What the responder finds of a PSN (protocol 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// It is the expected one.
    Expected,
    /// Packets before it are missing.
    Gap,
    /// It was executed before.
    Duplicate,
}

/// What a response says, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Says {
    /// A positive acknowledgement.
    Ack,
    /// NAK 0x60.
    NakSequence,
    /// NAK 0x61 or 0x62.
    NakFatal,
    /// RNR NAK.
    NotReady,
    /// READ response of this place.
    Read(Place),
    /// The answer of an atomic.
    Atomic,
}

impl Says {
    fn of(body: Body) -> Says {
        use crate::frame::Nak;
        match body {
            Body::Ack => Says::Ack,
            Body::Nak(Nak::Sequence) => Says::NakSequence,
            Body::Nak(Nak::Invalid | Nak::Access) => Says::NakFatal,
            Body::Nak(Nak::NotReady) => Says::NotReady,
            Body::Read(place, _) => Says::Read(place),
            Body::Atomic(_) => Says::Atomic,
        }
    }
}

/// What the requester does with a response or a timeout, beside noting what is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reaction {
    /// Nothing of this.
    None,
    /// It takes data of a READ or of an atomic.
    TakesData,
    /// It goes back, at the cost of a retry.
    GoesBack,
    /// It begins the wait after an RNR NAK.
    Waits,
    /// A message fails.
    Fails(Status),
}

impl Reaction {
    fn of(events: &[Event]) -> Reaction {
        let reaction = |event: &Event| match event {
            Event::Placed { .. } | Event::Returned { .. } => Some(Reaction::TakesData),
            Event::Retried => Some(Reaction::GoesBack),
            Event::RnrRetried => Some(Reaction::Waits),
            Event::Completed { status, .. } if *status != Status::Success => Some(Reaction::Fails(*status)),
            _ => None,
        };
        events.iter().find_map(reaction).unwrap_or(Reaction::None)
    }
}

/// Oldest message that is not complete, and whether a part of it is acknowledged.
type Oldest = Option<(Kind, bool)>;

/// A decision: what came, what the side knew, and what it did. Two runs with the same decisions tell the same of a side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// The responder receives a request.
    Request {
        /// Its PSN.
        check: Check,
        /// Its operation.
        kind: Kind,
        /// Its place in the message.
        place: Place,
        /// A READ that does not begin with its first packet.
        goes_on: bool,
        /// It is executed.
        is_executed: bool,
        /// What is answered.
        answers: Vec<Says>,
    },
    /// The same, by what the responder had said before.
    RequestAfterNak {
        /// Its PSN.
        check: Check,
        /// NAK 0x60 or RNR NAK was sent, and the packet of the ePSN has not arrived since.
        nak_sent: bool,
        /// What is answered.
        answers: Vec<Says>,
    },
    /// The PSNs of a request and that is expected, or after the request, lie on two sides of the highest PSN.
    RequestWraps(Check),
    /// The requester receives a response.
    Response {
        /// It is before the window.
        is_stale: bool,
        /// What it says.
        says: Says,
        /// The oldest message.
        oldest: Oldest,
        /// What it does.
        reaction: Reaction,
    },
    /// The same, by what the requester is at.
    ResponseWhile {
        /// What it says.
        says: Says,
        /// It has gone back, and nothing was acknowledged since.
        going_back: bool,
        /// It waits after an RNR NAK.
        waits: bool,
        /// Something is acknowledged.
        advances: bool,
        /// What it does.
        reaction: Reaction,
    },
    /// The PSNs of a response, stale or not, and the oldest unacknowledged one lie on two sides of the highest PSN.
    ResponseWraps(bool),
    /// The requester's timer fires.
    Timeout {
        /// The oldest message.
        oldest: Oldest,
        /// What it does.
        reaction: Reaction,
    },
    /// A wait after an RNR NAK ends.
    RnrWaitEnds {
        /// The oldest message.
        oldest: Oldest,
    },
}

impl Decision {
    /// Returns what is decided at a step.
    pub fn of(settings: &Settings, before: &World, action: Action, step: &Step) -> Vec<Decision> {
        let requester = &before.requester;
        match action {
            Action::DeliverRequest(index) => request(settings, before, &before.requests[index], step),
            Action::DeliverResponse(index) => {
                response(settings, requester, &before.responses[index], &step.events)
            }
            Action::Timeout => {
                let reaction = Reaction::of(&step.events);
                vec![Decision::Timeout { oldest: oldest(settings, requester), reaction }]
            }
            Action::RnrWaitEnds => vec![Decision::RnrWaitEnds { oldest: oldest(settings, requester) }],
            _ => vec![],
        }
    }
}

fn request(settings: &Settings, before: &World, request: &Request, step: &Step) -> Vec<Decision> {
    let (space, responder) = (settings.space, &before.responder);
    let expected = space.psn(responder.expected);
    let (check, wraps) = match space.distance(request.psn, expected) {
        0 => (Check::Expected, request.psn + request.packets > space.psn(u8::MAX)),
        1.. => (Check::Gap, request.psn < expected),
        _ => (Check::Duplicate, request.psn > expected),
    };
    let says = |frame: &Frame| match frame {
        Frame::Response(response) => Some(Says::of(response.body)),
        Frame::Request(_) => None,
    };
    let answers: Vec<Says> = step.sent.iter().filter_map(says).collect();
    let &Request { kind, place, data, .. } = request;
    let goes_on = kind == Kind::Read && data.packet > 0;
    let is_executed = step.events.iter().any(|event| matches!(event, Event::Executed(..)));
    let nak_sent = responder.nak_sent || responder.rnr_sent;
    let mut decisions = vec![Decision::RequestAfterNak { check, nak_sent, answers: answers.clone() }];
    decisions.push(Decision::Request { check, kind, place, goes_on, is_executed, answers });
    decisions.extend(wraps.then_some(Decision::RequestWraps(check)));
    decisions
}

fn response(
    settings: &Settings,
    requester: &Requester,
    response: &Response,
    events: &[Event],
) -> Vec<Decision> {
    let space = settings.space;
    let una = space.psn(requester.una);
    let is_stale = space.distance(response.psn, una) < 0;
    let (says, reaction) = (Says::of(response.body), Reaction::of(events));
    let &Requester { going_back, waits, .. } = requester;
    let advances = events.contains(&Event::Advanced);
    let mut decisions = vec![Decision::ResponseWhile { says, going_back, waits, advances, reaction }];
    decisions.push(Decision::Response { is_stale, says, oldest: oldest(settings, requester), reaction });
    decisions.extend((is_stale != (response.psn < una)).then_some(Decision::ResponseWraps(is_stale)));
    decisions
}

fn oldest(settings: &Settings, requester: &Requester) -> Oldest {
    let (message, packet) = settings.plan.at(requester.una)?;
    Some((settings.plan.kind(message), packet > 0))
}
