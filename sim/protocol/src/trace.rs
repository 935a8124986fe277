//! A run of the model as frames and what became of each, to be repeated with other implementations.
use crate::frame::{Data, Request, Response};
use crate::judge::{Event, Status};
use crate::plan::{Kind, Message, Settings};
use crate::world::{Action, Step, World};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Side of the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// The owner of the send queue.
    Requester,
    /// The other side.
    Responder,
}

/// A frame of either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// From the requester.
    Request(Request),
    /// From the responder.
    Response(Response),
}

impl Frame {
    /// Returns the side that sends it.
    pub fn sender(&self) -> Side {
        match self {
            Frame::Request(_) => Side::Requester,
            Frame::Response(_) => Side::Responder,
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frame::Request(request) => write!(f, "{request}"),
            Frame::Response(response) => write!(f, "{response}"),
        }
    }
}

/// A frame that was sent, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fate {
    /// Step at which it was sent.
    pub sent: usize,
    /// The frame.
    pub frame: Frame,
    /// Steps at which a copy of it arrived. None: it was lost.
    pub arrived: Vec<usize>,
    /// Copies that are still on the wire at the end of the trace.
    pub under_way: usize,
}

/// A run. Steps count from 0 and are those of the run, so they order what happened on both sides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Bits of a PSN. With more bits, the PSNs of the frames are counted from `first_psn` on.
    pub psn_bits: u32,
    /// First PSN.
    pub first_psn: u8,
    /// Work requests, oldest first.
    pub messages: Vec<Message>,
    /// READs and atomics that may be outstanding.
    pub slots: u8,
    /// Retries without progress: `retry_cnt`.
    pub retries: u8,
    /// Retries after RNR NAKs without progress: `rnr_retry`.
    pub rnr_retries: u8,
    /// Receive WQEs that are posted before the run.
    pub receives_before: u8,
    /// Frames in the order of sending.
    pub frames: Vec<Fate>,
    /// Steps at which the timer fired.
    pub timeouts: Vec<usize>,
    /// Steps at which a wait after an RNR NAK ended.
    pub rnr_waits: Vec<usize>,
    /// Steps at which the responder's host posted a receive WQE.
    pub receives: Vec<usize>,
    /// Messages that the requester completed: step, message, status.
    pub completions: Vec<(usize, u8, Status)>,
    /// Packets that the responder executed: step, operation, packet.
    pub executed: Vec<(usize, Kind, Data)>,
}

impl Trace {
    /// Repeats a run from its actions.
    ///
    /// # Panics
    /// If an action is not possible.
    pub fn of(settings: &Settings, actions: &[Action]) -> Trace {
        let plan = &settings.plan;
        let mut trace = Trace {
            psn_bits: settings.space.bits,
            first_psn: settings.space.psn(plan.first),
            messages: plan.messages.clone(),
            slots: settings.slots,
            retries: settings.retries,
            rnr_retries: settings.rnr_retries,
            receives_before: settings.receives,
            ..Trace::default()
        };
        let mut world = World::new(settings);
        for (step, &action) in actions.iter().enumerate() {
            trace.note(&world, step, action);
            let Step { world: after, sent, events } = world.step(settings, action);
            let sent =
                sent.into_iter().map(|frame| Fate { sent: step, frame, arrived: vec![], under_way: 1 });
            trace.frames.extend(sent);
            for event in events {
                match event {
                    Event::Completed { message, status } => trace.completions.push((step, message, status)),
                    Event::Executed(kind, data) => trace.executed.push((step, kind, data)),
                    _ => {}
                }
            }
            world = after;
        }
        trace
    }

    /// Notes what an action does to the frames on the wire.
    fn note(&mut self, world: &World, step: usize, action: Action) {
        match action {
            Action::DeliverRequest(index) => self.arrives(step, Frame::Request(world.requests[index])),
            Action::DeliverResponse(index) => self.arrives(step, Frame::Response(world.responses[index])),
            Action::LoseRequest(index) => self.on_wire(Frame::Request(world.requests[index])).under_way -= 1,
            Action::LoseResponse(index) => {
                self.on_wire(Frame::Response(world.responses[index])).under_way -= 1
            }
            Action::DuplicateRequest(index) => {
                self.on_wire(Frame::Request(world.requests[index])).under_way += 1;
            }
            Action::DuplicateResponse(index) => {
                self.on_wire(Frame::Response(world.responses[index])).under_way += 1;
            }
            Action::Timeout => self.timeouts.push(step),
            Action::RnrWaitEnds => self.rnr_waits.push(step),
            Action::PostReceive => self.receives.push(step),
            Action::Send | Action::Answer => {}
        }
    }

    fn arrives(&mut self, step: usize, frame: Frame) {
        let fate = self.on_wire(frame);
        fate.under_way -= 1;
        fate.arrived.push(step);
    }

    /// Finds the oldest frame on the wire that equals `frame`: equal frames are the same to both sides.
    fn on_wire(&mut self, frame: Frame) -> &mut Fate {
        let fate = self.frames.iter_mut().find(|fate| fate.frame == frame && fate.under_way > 0);
        fate.expect("the frame is on the wire")
    }
}
