//! A run as turns of the side that is under test.
//!
//! A turn begins with something that happens to that side, and ends when it rests: it has sent all that it may, and has completed
//! what is done. The model sends at once as well, so that each turn of the run has an end, too.
use crate::mapping::{self, Mapping};
use crate::rig::{IPV4, path_to_card};
use anyhow::{Context, Result, ensure};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_protocol::trace::Frame;
use rnic_protocol::{Kind, Side, Status, Trace};

/// What happens to a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stimulus {
    /// The work requests are posted; at a responder, the first receives.
    Begin,
    /// A frame arrives.
    Arrives(Frame),
    /// The timer fires.
    Timeout,
    /// The wait after an RNR NAK ends.
    RnrWaitEnds,
    /// A receive is posted.
    Receive,
}

/// A completion: number of the message, or of the receive, and status.
pub(crate) type Completion = (u8, CompletionStatus);

/// What a side does until it rests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) completions: Vec<Completion>,
}

/// A turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) stimulus: Stimulus,
    /// Frames that must be sent, in this order.
    pub(crate) frames: Vec<Frame>,
    /// Completions that must be there, in this order.
    pub(crate) completions: Vec<Completion>,
}

/// An implementation in one role of a run.
pub(crate) trait Subject {
    /// Lets something happen, and returns what is done about it. `turn` says how much is worth waiting for.
    fn take(&mut self, mapping: &Mapping, turn: &Turn) -> Result<Done>;

    /// Frames and completions that come when nothing more happens.
    fn rest(&mut self) -> Result<Done>;
}

/// The turns of a side.
pub(crate) fn turns(trace: &Trace, role: Side) -> Vec<Turn> {
    let mut stimuli = Vec::new();
    for fate in trace.frames.iter().filter(|fate| fate.frame.sender() != role) {
        stimuli.extend(fate.arrived.iter().map(|&step| (step, Stimulus::Arrives(fate.frame))));
    }
    let own: [(&[usize], Stimulus); 2] = match role {
        Side::Requester => [(&trace.timeouts, Stimulus::Timeout), (&trace.rnr_waits, Stimulus::RnrWaitEnds)],
        Side::Responder => [(&trace.receives, Stimulus::Receive), (&[], Stimulus::Begin)],
    };
    for (steps, stimulus) in own {
        stimuli.extend(steps.iter().map(|&step| (step, stimulus)));
    }
    stimuli.sort_by_key(|(step, _)| *step);
    let new = |stimulus| Turn { stimulus, frames: vec![], completions: vec![] };
    let mut turns = vec![new(Stimulus::Begin)];
    turns.extend(stimuli.iter().map(|&(_, stimulus)| new(stimulus)));
    // What is done at a step belongs to what happened then, or last before.
    let turn_at = |step: usize| stimuli.iter().take_while(|(begin, _)| *begin <= step).count();
    for fate in trace.frames.iter().filter(|fate| fate.frame.sender() == role) {
        turns[turn_at(fate.sent)].frames.push(fate.frame);
    }
    match role {
        Side::Requester => {
            for &(step, message, status) in &trace.completions {
                turns[turn_at(step)].completions.push((message, mapping::status(status)));
            }
        }
        Side::Responder => {
            for (receive, step) in received(trace).enumerate() {
                turns[turn_at(step)].completions.push((receive as u8, mapping::status(Status::Success)));
            }
        }
    }
    turns
}

/// Steps at which a message was executed that takes a receive.
fn received(trace: &Trace) -> impl Iterator<Item = usize> {
    let ends = |&&(_, kind, data): &&(usize, Kind, rnic_protocol::frame::Data)| {
        kind.takes_receive() && data.packet + 1 == trace.messages[usize::from(data.message)].packets
    };
    trace.executed.iter().filter(ends).map(|&(step, ..)| step)
}

/// Plays a run with one side under test, and compares each of its turns with the model's.
pub(crate) fn play(mapping: &Mapping, role: Side, subject: &mut dyn Subject) -> Result<()> {
    for (number, turn) in turns(mapping.trace, role).iter().enumerate() {
        let done = subject.take(mapping, turn)?;
        same(mapping, turn, &done).with_context(|| format!("turn {number}: {:?}", turn.stimulus))?;
    }
    let done = subject.rest()?;
    let nothing = Turn { stimulus: Stimulus::Begin, frames: vec![], completions: vec![] };
    same(mapping, &nothing, &done).context("after the run")
}

fn same(mapping: &Mapping, turn: &Turn, done: &Done) -> Result<()> {
    let mut frames = done.frames.iter().zip(&turn.frames);
    let is_same = frames.all(|(found, frame)| mapping.is(found, frame));
    ensure!(
        is_same && done.frames.len() == turn.frames.len(),
        "it sends [{}], the model [{}]",
        shown(&done.frames),
        shown(
            &turn
                .frames
                .iter()
                .map(|frame| mapping.packet(frame).frame(&path_to_card(IPV4), 0))
                .collect::<Vec<_>>()
        )
    );
    ensure!(
        done.completions == turn.completions,
        "it completes {:?}, the model {:?}",
        done.completions,
        turn.completions
    );
    Ok(())
}

/// Frames in one line.
fn shown(frames: &[Vec<u8>]) -> String {
    use rnic_layout::opcode::lookup;
    use rnic_layout::wire::PacketRepr;
    let one = |frame: &Vec<u8>| match PacketRepr::parse(frame) {
        Ok(packet) => {
            let name = lookup(packet.bth.opcode).map_or("unknown", |row| row.name);
            let headers: Vec<_> = packet.extended_headers().collect();
            let (psn, length, asks) = (packet.bth.psn, packet.payload.len(), packet.bth.ack_request);
            format!("{name} {psn} {headers:x?} {length} bytes, AckReq {asks}")
        }
        Err(reason) => format!("{reason:?}"),
    };
    frames.iter().map(one).collect::<Vec<_>>().join("; ")
}
