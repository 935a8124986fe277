//! What is asked for in a run, and the settings under which it is explored.
use crate::psn::PsnSpace;
use serde::{Deserialize, Serialize};

/// Operation of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// SEND: takes a receive WQE at its first packet.
    Send,
    /// WRITE: takes no receive WQE.
    Write,
    /// WRITE with immediate: takes a receive WQE at its last packet.
    WriteImm,
    /// READ: one request, and a response for each of its PSNs.
    Read,
    /// FETCH_ADD of 1 to the one word of the run.
    Atomic,
}

impl Kind {
    /// Is it answered by data, so that no ACK completes it?
    pub fn returns_data(self) -> bool {
        matches!(self, Kind::Read | Kind::Atomic)
    }

    /// Does it take a receive WQE?
    pub fn takes_receive(self) -> bool {
        matches!(self, Kind::Send | Kind::WriteImm)
    }
}

/// A work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its operation.
    pub kind: Kind,
    /// PSNs that it takes: packets, and for a READ responses. 1 for an atomic.
    pub packets: u8,
    /// Packet, or response of a READ, from which on the region refuses access.
    pub refused_from: Option<u8>,
}

impl Message {
    /// A message that the responder does not refuse.
    pub const fn new(kind: Kind, packets: u8) -> Message {
        Message { kind, packets, refused_from: None }
    }

    /// The same message, refused from one of its packets on.
    pub const fn refused_from(self, packet: u8) -> Message {
        Message { refused_from: Some(packet), ..self }
    }
}

/// All messages of a run, in the order in which they are posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Position of the first packet, at least 1. Its low bits are the first PSN.
    pub first: u8,
    /// Work requests, oldest first.
    pub messages: Vec<Message>,
}

impl Plan {
    /// Returns the position of the first packet of a message, or the end of the run for the number of messages.
    pub fn start(&self, message: u8) -> u8 {
        self.first + self.messages[..usize::from(message)].iter().map(|message| message.packets).sum::<u8>()
    }

    /// Returns the position behind the last packet of a message.
    pub fn end(&self, message: u8) -> u8 {
        self.start(message + 1)
    }

    /// Returns the number of messages.
    pub fn count(&self) -> u8 {
        self.messages.len() as u8
    }

    /// Returns the message and the packet in it at a position, if there is one.
    pub fn at(&self, position: u8) -> Option<(u8, u8)> {
        let mut start = self.first;
        for (index, message) in self.messages.iter().enumerate() {
            if position >= start && position < start + message.packets {
                return Some((index as u8, position - start));
            }
            start += message.packets;
        }
        None
    }

    /// Returns the operation of a message.
    pub fn kind(&self, message: u8) -> Kind {
        self.messages[usize::from(message)].kind
    }

    /// Returns how many of the first `messages` messages are atomics.
    pub fn atomics_before(&self, messages: u8) -> u8 {
        self.messages[..usize::from(messages)].iter().filter(|message| message.kind == Kind::Atomic).count()
            as u8
    }

    /// Returns how many receive WQEs the run takes.
    pub fn receives(&self) -> u8 {
        self.messages.iter().filter(|message| message.kind.takes_receive()).count() as u8
    }
}

/// When the local ACK timer may fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Whenever a request waits for an acknowledgement: the timeout may be shorter than a round trip.
    Early,
    /// Only when no frame is under way and nothing can be sent: the timeout is longer than any round trip. The RNR wait is
    /// longer than the host takes to post a receive WQE, too.
    Patient,
}

/// A mistake that is planted in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The responder answers every packet after a gap with a NAK, not only the first.
    NakForEachPacket,
    /// The responder executes a duplicate atomic again.
    AtomicAgain,
    /// The responder answers a duplicate atomic with the word as it is now.
    AtomicFromMemory,
    /// The responder executes a duplicate SEND or WRITE again.
    DuplicateAgain,
    /// The responder accepts a packet after a gap.
    GapAccepted,
    /// The responder acknowledges the packet after a gap as if it had executed all before.
    GapAcknowledged,
    /// The responder writes the data of a WRITE with immediate, and then finds that it has no receive WQE.
    RnrAfterExecution,
    /// The responder replays a READ from its first response, with the PSN of the request.
    ReplayFromFirst,
    /// The responder counts a READ that it replays among those that it serves, and refuses one more.
    ReplayTakesSlot,
    /// The responder does not save the results of atomics.
    AtomicNotSaved,
    /// The responder's ACK overtakes READ responses that it has not sent yet.
    AckPassesRead,
    /// The responder's ACK of a duplicate SEND or WRITE names the READ or atomic behind it.
    DuplicateAcksRead,
    /// An ACK completes a READ or an atomic.
    AckCompletesRead,
    /// The requester takes any READ response for the next one.
    ReadGapAccepted,
    /// The requester asks for a READ again from its first byte, with the PSN of the first missing one.
    RestartFromFirst,
    /// The requester refuses FIRST and ONLY for a READ that goes on from a later packet.
    FirstAgainRefused,
    /// The requester takes a response before its window for one in it.
    StaleAccepted,
    /// The timer fires once and never starts again.
    TimerOnce,
    /// Progress does not load the retry counter again.
    RetriesNotReloaded,
    /// A retry is not counted.
    RetriesNotCounted,
    /// The requester sends without regard to its window.
    WindowIgnored,
    /// The requester sends READs and atomics without regard to how many are outstanding.
    SlotsIgnored,
    /// The requester counts a READ or atomic that it sends again as one more that is outstanding.
    RetryTakesSlot,
    /// The requester completes a message when its last packet has been sent.
    CompletesWhenSent,
    /// The requester waits for nothing after an RNR NAK.
    RnrWaitIgnored,
    /// The timer runs during the wait after an RNR NAK.
    TimerInWait,
    /// An RNR NAK takes no RNR retry.
    RnrNotCounted,
    /// An RNR NAK takes one of the other retries, too.
    RnrTakesRetry,
}

/// `rnr_retry` that stands for retries without end (protocol 2.7).
pub const RNR_RETRY_ENDLESS: u8 = 7;

/// What is explored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bits of a PSN.
    pub space: PsnSpace,
    /// Work requests and the first PSN.
    pub plan: Plan,
    /// PSNs that may be unacknowledged, at most half of the space.
    pub window: u8,
    /// READs and atomics that may be outstanding, and slots of the responder for them.
    pub slots: u8,
    /// Retries without progress: `retry_cnt`.
    pub retries: u8,
    /// Retries after an RNR NAK without progress: `rnr_retry`, of which 7 is [`RNR_RETRY_ENDLESS`].
    pub rnr_retries: u8,
    /// Receive WQEs that are posted before the run. The others are posted at any time during it.
    pub receives: u8,
    /// Frames that the wire carries at once, in each direction.
    pub capacity: usize,
    /// Frames that the wire may lose.
    pub losses: u8,
    /// Frames that the wire may duplicate.
    pub duplicates: u8,
    /// Frames that may be delivered ahead of an older one; `None` for a wire without order, a multiset of frames.
    pub reorders: Option<u8>,
    /// The wire forgets a frame once it is more than half of the PSN space old. Without this rule, that a frame does not
    /// live so long, no protocol with PSNs that wrap around is safe.
    pub frames_expire: bool,
    /// When the timer may fire.
    pub timer: Timer,
    /// The requester sends what it may before anything else happens.
    pub sends_at_once: bool,
    /// The responder answers a request at once. Otherwise its answers wait, in order, and are sent at any time.
    pub answers_at_once: bool,
    /// The responses of a READ that is asked for again have the opcodes of their places in the whole READ, so that they begin
    /// with MIDDLE or LAST. Otherwise they begin with FIRST or ONLY. A requester takes both (protocol 2.5).
    pub replays_go_on: bool,
    /// READs and atomics that the responder keeps for a replay beside those in its `slots`: it may forget a slot when as many newer
    /// ones have arrived, and need not (protocol 3.5).
    pub keeps_more: u8,
    /// An RNR NAK that arrives during the wait after another one is no news. Otherwise it takes one more RNR retry, since the
    /// timer may have fired before. Protocol 2.7 leaves it open.
    pub waits_once: bool,
    /// The requester takes an ACK that names an atomic, or a READ of one packet, for its answer, as rxe does (protocol 3.4).
    pub acks_answer: bool,
    /// Planted mistake.
    pub fault: Option<Fault>,
}

impl Settings {
    /// Returns settings of a perfect wire: 3 bits of PSN, the largest window, no fault.
    pub fn new(plan: Plan) -> Settings {
        let receives = plan.receives();
        Settings {
            space: PsnSpace { bits: 3 },
            plan,
            window: 4,
            slots: 2,
            retries: 2,
            rnr_retries: 1,
            receives,
            capacity: 4,
            losses: 0,
            duplicates: 0,
            reorders: Some(0),
            frames_expire: true,
            timer: Timer::Patient,
            sends_at_once: false,
            answers_at_once: true,
            replays_go_on: false,
            keeps_more: 0,
            waits_once: false,
            acks_answer: false,
            fault: None,
        }
    }

    /// Is this mistake planted?
    pub fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}
