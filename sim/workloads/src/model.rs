//! Model: the results of a plan, derived from the protocol rules and `rnic-layout` alone.
//!
//! Messages of a queue pair are executed and complete in order (protocol 2.10, 3.7), and no two queue pairs share memory that
//! is written, so the result does not depend on time. A mistake fails the queue pair of the requester, and after a NAK that of
//! the responder (protocol 3.6); all work posted there is flushed, in order (protocol 2.11), and does not change memory.
use super::plan::{
    Kind, Message, Mistake, Pair, Piece, Place, Plan, Receive, Source, background, window_background,
};
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use std::ops::Range;

/// Flag in the `wr_id` of receives of shared queues.
const SHARED_WR_ID: u64 = 1 << 60;

impl SendResult {
    /// Compare operand that makes a compare and swap succeed or fail as planned.
    pub fn compare(&self, message: &Message) -> u64 {
        let bytes = self.contents.iter().flatten().flatten().copied();
        let found =
            bytes.take(8).enumerate().fold(0, |sum, (place, byte)| sum | u64::from(byte) << (8 * place));
        if message.is_equal { found } else { !found }
    }
}

/// Result of a message at its requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendResult {
    /// Status of the completion.
    pub status: CompletionStatus,
    /// Opcode of the completion.
    pub opcode: CompletionOpcode,
    /// It must complete with a CQE.
    pub is_signalled: bool,
    /// Contents of its pieces after a READ or an atomic that was executed.
    pub contents: Option<Vec<Vec<u8>>>,
}

/// Result of a receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveResult {
    /// Status of the completion.
    pub status: CompletionStatus,
    /// Message that arrived; `None` on errors.
    pub arrived: Option<Arrived>,
    /// Contents of its pieces; `None` if they are undefined.
    pub contents: Option<Vec<Vec<u8>>>,
    /// Instead of `contents`, bytes at the beginning of the receive that was taken from a shared queue.
    pub placed: Option<Vec<u8>>,
}

impl ReceiveResult {
    /// Contents of the pieces of a receive that was taken from a shared queue.
    pub fn contents_of(&self, wr_id: u64, receive: &Receive) -> Option<Vec<Vec<u8>>> {
        Some(contents(wr_id, &receive.pieces, self.placed.as_ref()?))
    }
}

/// Fields of a receive completion that describe the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// SEND, or WRITE with immediate.
    pub opcode: CompletionOpcode,
    /// Length of the message, in bytes.
    pub length: u32,
    /// Immediate data, in wire order.
    pub immediate: Option<[u8; 4]>,
    /// The sender requested a solicited event.
    pub is_solicited: bool,
    /// It has invalidated the key that it names.
    pub ends_key: bool,
}

/// Results of one queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePairResult {
    /// Its messages, in order.
    pub sends: Vec<SendResult>,
    /// Its receives, in order.
    pub receives: Vec<ReceiveResult>,
    /// Contents of its window at the end.
    pub window: Vec<u8>,
    /// Range of the window whose contents are undefined, because a message failed after its first packet.
    pub unpromised: Range<usize>,
    /// Asynchronous events.
    pub events: Vec<AsyncEvent>,
}

/// Results of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Results of each queue pair, by host and pair.
    pub sides: [Vec<QueuePairResult>; 2],
}

/// Consequence of a mistake.
struct Verdict {
    requester: CompletionStatus,
    /// Status of the receive that the message had taken.
    receive: Option<CompletionStatus>,
    /// Event that is raised if no completion can report the reason (protocol 3.6).
    event: Option<AsyncEvent>,
}

/// Rows 5, 10 to 13 and 15 of protocol 3.6, and protocol 2.11.
fn verdict(mistake: Mistake) -> Verdict {
    use CompletionStatus::*;
    let (requester, receive, event) = match mistake {
        Mistake::RemoteKey
        | Mistake::RemoteDomain
        | Mistake::RemoteRight
        | Mistake::RemoteEnd
        | Mistake::RemoteStart
        | Mistake::RemoteWrap
        | Mistake::EndedKey => (RemoteAccess, None, Some(AsyncEvent::QueuePairAccessError)),
        Mistake::QueuePairRight => (RemoteInvalidRequest, None, Some(AsyncEvent::QueuePairRequestError)),
        Mistake::ReceiveShort => (RemoteInvalidRequest, Some(LocalLength), None),
        Mistake::ReceiveKey => (RemoteOperation, Some(LocalProtection), None),
        Mistake::NotReady => (RnrRetryExceeded, None, None),
        Mistake::LocalKey | Mistake::LastKey | Mistake::LocalRange | Mistake::LocalEnd => {
            (LocalProtection, None, None)
        }
        Mistake::TooLong => (LocalLength, None, None),
        Mistake::Opcode | Mistake::OwnKey => (LocalQueuePairOperation, None, None),
        Mistake::PeerKey => (RemoteAccess, Some(RemoteAccess), None),
    };
    Verdict { requester, receive, event }
}

/// Returns whether packets of a message may be executed before its mistake is detected. The memory of a WRITE is checked with
/// its first packet (protocol 3.6, row 11), the receive with its last. The destination of a READ is checked before the request
/// is sent.
fn begins(pair: &Pair, message: &Message, mistake: Mistake) -> bool {
    let is_long = message.length() > pair.pmtu.bytes() as usize;
    let is_late = matches!(mistake, Mistake::LastKey | Mistake::LocalEnd | Mistake::NotReady);
    is_long && is_late && message.kind != Kind::Read
}

impl Model {
    /// Computes the results of a plan.
    pub fn new(plan: &Plan) -> Model {
        let mut sides = [Vec::new(), Vec::new()];
        for (index, pair) in plan.pairs.iter().enumerate() {
            for (side, list) in sides.iter_mut().enumerate() {
                list.push(queue_pair(plan, index, pair, side));
            }
        }
        Model { sides }
    }
}

/// `wr_id` of receive `index` of a shared queue.
pub fn shared_wr_id(index: usize) -> u64 {
    SHARED_WR_ID | index as u64
}

/// Index of a receive of a shared queue, if the `wr_id` is of one.
pub fn shared_index(wr_id: u64) -> Option<usize> {
    (wr_id & SHARED_WR_ID != 0).then_some((wr_id ^ SHARED_WR_ID) as usize)
}

/// `wr_id` of request `index` of a pair.
pub fn wr_id(pair: usize, index: usize) -> u64 {
    (pair as u64) << 32 | index as u64
}

/// Initial contents of a window of a plan.
pub fn window(plan: &Plan) -> Vec<u8> {
    (0..plan.window_bytes).map(window_background).collect()
}

/// Executes message `place` of a lane on the window that it accesses: the lane is that of host `side` in a pair.
pub fn execute(plan: &Plan, side: usize, pair: usize, place: usize, message: &Message, window: &mut [u8]) {
    let Some(range) = message.window() else { return };
    match message.kind {
        Kind::Write | Kind::WriteImmediate => {
            window[range].copy_from_slice(&plan.payload(side, pair, place, message.length()));
        }
        kind if kind.is_atomic() => atomic(message, &mut window[range]),
        _ => {}
    }
}

fn queue_pair(plan: &Plan, index: usize, pair: &Pair, side: usize) -> QueuePairResult {
    let peer = 1 - side;
    // Window of the peer, as the messages of this side access it.
    let mut remote = window(plan);
    let mut sends: Vec<SendResult> = Vec::new();
    for (place, message) in pair.lanes[side].sends.iter().enumerate() {
        let mut result = send(message, CompletionStatus::Success);
        let range = message.window();
        if message.kind.is_answered() {
            let Source::Pieces(pieces) = &message.source else { panic!("it fills memory") };
            let read = range.map_or(&[][..], |range| &remote[range]);
            result.contents = Some(contents(0, pieces, read));
        }
        execute(plan, side, index, place, message, &mut remote);
        sends.push(result);
    }
    let mut window = window(plan);
    let mut posted = pair.receives(side).enumerate().map(|(place, receive)| (wr_id(index, place), receive));
    let mut receives = Vec::new();
    for (place, message) in pair.lanes[peer].sends.iter().enumerate() {
        let payload = plan.payload(peer, index, place, message.length());
        execute(plan, peer, index, place, message, &mut window);
        if message.kind.consumes() {
            receives.push(if pair.shares[side] {
                arrive(None, message, &payload)
            } else {
                arrive(
                    Some(posted.next().expect("a plan has the receives of its messages")),
                    message,
                    &payload,
                )
            });
        }
    }

    let mut events = Vec::new();
    let mut unpromised = 0..0;
    if let Some(ending) = &pair.ending {
        let verdict = verdict(ending.mistake);
        if ending.side == side {
            sends.push(send(&ending.sends[0], verdict.requester));
            sends.extend(ending.sends[1..].iter().map(flushed));
        } else {
            events.extend(verdict.event);
            let message = &ending.sends[0];
            let begins = begins(pair, message, ending.mistake);
            if begins
                && message.kind.is_write()
                && let Place::Offset(offset) = message.target.place
            {
                unpromised = offset..offset + message.length();
            }
            // A message that has begun and never completes is flushed, with the receive that it had taken.
            let takes = begins && Kind::SENDS.contains(&message.kind) && ending.mistake != Mistake::NotReady;
            if let Some(status) = verdict.receive.or(takes.then_some(CompletionStatus::Flushed)) {
                posted.next();
                receives.push(ReceiveResult { status, arrived: None, contents: None, placed: None });
            }
        }
        // Both sides fail, and each raises the event that it takes no more shared receives (protocol 4.5).
        events.extend(pair.shares[side].then_some(AsyncEvent::LastWqeReached));
        sends.extend(ending.late_sends[side].iter().map(flushed));
    }
    receives.extend(posted.map(|(wr_id, receive)| ReceiveResult {
        status: CompletionStatus::Flushed,
        arrived: None,
        contents: Some(contents(wr_id, &receive.pieces, &[])),
        placed: None,
    }));
    QueuePairResult { sends, receives, window, unpromised, events }
}

/// Executes an atomic (protocol 3.5).
fn atomic(message: &Message, cell: &mut [u8]) {
    let original = number(cell);
    let value = match message.kind {
        Kind::FetchAdd => original.wrapping_add(message.operand),
        _ if message.is_equal => message.operand,
        _ => original,
    };
    cell.copy_from_slice(&value.to_le_bytes());
}

fn number(cell: &[u8]) -> u64 {
    u64::from_le_bytes(cell.try_into().expect("a cell has eight bytes"))
}

fn send(message: &Message, status: CompletionStatus) -> SendResult {
    let opcode = match message.kind {
        Kind::Send | Kind::SendImmediate | Kind::SendInvalidate => CompletionOpcode::Send,
        Kind::LocalInvalidate => CompletionOpcode::LocalInvalidate,
        Kind::Write | Kind::WriteImmediate => CompletionOpcode::Write,
        Kind::Read => CompletionOpcode::Read,
        Kind::CompareSwap => CompletionOpcode::CompareSwap,
        Kind::FetchAdd => CompletionOpcode::FetchAdd,
    };
    let is_signalled = message.signalled || status != CompletionStatus::Success;
    SendResult { status, opcode, is_signalled, contents: None }
}

fn flushed(message: &Message) -> SendResult {
    send(message, CompletionStatus::Flushed)
}

/// Result of the receive that a message takes. A WRITE does not change its memory (protocol 3.7).
fn arrive(own: Option<(u64, &Receive)>, message: &Message, payload: &[u8]) -> ReceiveResult {
    let is_write = message.kind == Kind::WriteImmediate;
    let arrived = Arrived {
        opcode: if is_write { CompletionOpcode::ReceiveWrite } else { CompletionOpcode::Receive },
        length: payload.len() as u32,
        immediate: message.kind.has_immediate().then_some(message.immediate),
        is_solicited: message.solicited,
        ends_key: message.kind == Kind::SendInvalidate,
    };
    let placed = if is_write { &[] } else { payload };
    ReceiveResult {
        status: CompletionStatus::Success,
        arrived: Some(arrived),
        contents: own.map(|(wr_id, receive)| contents(wr_id, &receive.pieces, placed)),
        placed: own.is_none().then(|| placed.to_vec()),
    }
}

/// Contents of pieces after a message was scattered to them.
fn contents(wr_id: u64, pieces: &[Piece], mut message: &[u8]) -> Vec<Vec<u8>> {
    let fill = |piece: &Piece| {
        let mut bytes: Vec<u8> = (0..piece.length).map(|index| background(wr_id, index)).collect();
        let (here, tail) = message.split_at(message.len().min(piece.length));
        bytes[..here.len()].copy_from_slice(here);
        message = tail;
        bytes
    };
    pieces.iter().map(fill).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::{PlanOptions, Target, TargetMemory};
    use super::*;

    fn message(kind: Kind, length: usize, offset: usize) -> Message {
        Message {
            kind,
            source: Source::Inline(length),
            immediate: [1, 2, 3, 4],
            target: Target { memory: TargetMemory::Window, place: Place::Offset(offset), key_change: 0 },
            signalled: false,
            solicited: true,
            operand: 0,
            is_equal: false,
            fence: false,
            mistake: None,
        }
    }

    /// Computed by hand: two overlapping WRITEs, a READ of their result, a SEND to two pieces, and a receive that is left over.
    #[test]
    fn a_small_plan_leads_to_what_was_worked_out_by_hand() {
        let options = PlanOptions { shared_share: 0.0, ..PlanOptions::faultless(1, 1) };
        let mut plan = Plan::new(1, &options);
        let pieces = |lengths: &[usize]| Receive {
            pieces: lengths.iter().map(|&length| Piece { length, lane: 0 }).collect(),
            is_mistaken: false,
        };
        plan.pairs[0].lanes[0].sends =
            vec![message(Kind::Write, 10, 5), message(Kind::Write, 4, 8), message(Kind::SendImmediate, 6, 0)];
        plan.pairs[0].lanes[0].receives = vec![pieces(&[4, 4])];
        let mut read = message(Kind::Read, 0, 7);
        read.source = Source::Pieces(pieces(&[2, 1]).pieces);
        plan.pairs[0].lanes[0].sends.insert(2, read);
        let model = Model::new(&plan);
        let result = &model.sides[1][0];
        let (first, second, third) =
            (plan.payload(0, 0, 0, 10), plan.payload(0, 0, 1, 4), plan.payload(0, 0, 3, 6));
        assert_eq!(result.window[5..8], first[..3]);
        assert_eq!(result.window[8..12], second[..]);
        assert_eq!(result.window[12..15], first[7..]);
        assert_eq!((result.window[4], result.window[15]), (4, 15));
        let receive = &result.receives[0];
        assert_eq!(receive.arrived.unwrap().length, 6);
        assert_eq!(receive.arrived.unwrap().immediate, Some([1, 2, 3, 4]));
        let contents = receive.contents.as_ref().unwrap();
        assert_eq!(contents[0], third[..4]);
        assert_eq!(contents[1], [third[4], third[5], background(0, 2), background(0, 3)]);
        let sends = &model.sides[0][0].sends;
        assert_eq!(sends.len(), 4);
        assert_eq!(sends[2].opcode, CompletionOpcode::Read);
        assert_eq!(sends[2].contents, Some(vec![vec![first[2], second[0]], vec![second[1]]]));
    }

    #[test]
    fn every_posted_request_ends() {
        for seed in 0..30 {
            let plan = Plan::new(seed, &PlanOptions::USUAL);
            let model = Model::new(&plan);
            for (index, pair) in plan.pairs.iter().enumerate() {
                for side in 0..2 {
                    let result = &model.sides[side][index];
                    assert_eq!(result.sends.len(), pair.sends(side).count());
                    let shared = if pair.shares[side] { pair.receives_taken(side) } else { 0 };
                    assert_eq!(result.receives.len(), pair.receives(side).count() + shared);
                }
            }
        }
    }
}
