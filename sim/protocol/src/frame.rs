//! Frames between requester and responder.
//!
//! Beside what a packet carries, a frame has its `position`, which the wire alone reads, to know its age.
use crate::plan::Kind;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Place of a packet in its message: what its opcode says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// First packet of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last packet of several.
    Last,
    /// The only packet.
    Only,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::First => "FIRST",
            Place::Middle => "MIDDLE",
            Place::Last => "LAST",
            Place::Only => "ONLY",
        })
    }
}

impl Place {
    /// Returns the place of packet `index` of `count`.
    pub fn of(index: u8, count: u8) -> Place {
        match (index == 0, index + 1 == count) {
            (true, true) => Place::Only,
            (true, false) => Place::First,
            (false, false) => Place::Middle,
            (false, true) => Place::Last,
        }
    }

    /// Does a message begin with it?
    pub fn begins(self) -> bool {
        matches!(self, Place::First | Place::Only)
    }

    /// Does a message end with it?
    pub fn ends(self) -> bool {
        matches!(self, Place::Last | Place::Only)
    }
}

/// What a packet carries, or where in memory a READ begins: a packet of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Data {
    /// Message, by index in the plan.
    pub message: u8,
    /// Packet in it.
    pub packet: u8,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Request {
    /// Position of the packet in the run. Of no effect on either side.
    pub position: u8,
    /// PSN of the packet.
    pub psn: u8,
    /// Operation of the message.
    pub kind: Kind,
    /// Place in the message. ONLY for READs and atomics.
    pub place: Place,
    /// AckReq: an acknowledgement is asked for.
    pub ack_request: bool,
    /// Payload; of a READ its address.
    pub data: Data,
    /// READ: packets that are asked for. 1 otherwise.
    pub packets: u8,
}

/// PSN in hexadecimal, opcode, and the number of packets that a READ asks for.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let psn = self.psn;
        match self.kind {
            Kind::Send => write!(f, "{psn:X} SEND_{}", self.place),
            Kind::Write => write!(f, "{psn:X} WRITE_{}", self.place),
            Kind::WriteImm if self.place.ends() => write!(f, "{psn:X} WRITE_{}_IMM", self.place),
            Kind::WriteImm => write!(f, "{psn:X} WRITE_{}", self.place),
            Kind::Read => write!(f, "{psn:X} READ_REQUEST of {}", self.packets),
            Kind::Atomic => write!(f, "{psn:X} FETCH_ADD"),
        }
    }
}

/// Reason of a NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Nak {
    /// 0x60, PSN sequence error.
    Sequence,
    /// 0x61, invalid request.
    Invalid,
    /// 0x62, remote access error.
    Access,
    /// RNR NAK: no receive WQE.
    NotReady,
}

/// What a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Body {
    /// ACK without data.
    Ack,
    /// NAK, RNR NAK included.
    Nak(Nak),
    /// READ response.
    Read(Place, Data),
    /// ATOMIC_ACK with the original value of the word.
    Atomic(u8),
}

impl Body {
    /// Is it the data of a READ or the result of an atomic?
    pub fn is_data(self) -> bool {
        matches!(self, Body::Read(..) | Body::Atomic(_))
    }
}

/// A response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Response {
    /// Position of the packet that it answers. Of no effect at the requester.
    pub position: u8,
    /// PSN in the BTH.
    pub psn: u8,
    /// What it says.
    pub body: Body,
    /// MSN of the AETH. 0 in a MIDDLE of a READ, which has no AETH.
    pub msn: u8,
}

/// PSN in hexadecimal, opcode or syndrome, and the MSN if it has an AETH.
impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (psn, msn) = (self.psn, self.msn);
        match self.body {
            Body::Ack => write!(f, "{psn:X} ACK msn {msn}"),
            Body::Nak(Nak::Sequence) => write!(f, "{psn:X} NAK 0x60 msn {msn}"),
            Body::Nak(Nak::Invalid) => write!(f, "{psn:X} NAK 0x61 msn {msn}"),
            Body::Nak(Nak::Access) => write!(f, "{psn:X} NAK 0x62 msn {msn}"),
            Body::Nak(Nak::NotReady) => write!(f, "{psn:X} RNR NAK msn {msn}"),
            Body::Read(Place::Middle, _) => write!(f, "{psn:X} READ_RESP_MIDDLE"),
            Body::Read(place, _) => write!(f, "{psn:X} READ_RESP_{place} msn {msn}"),
            Body::Atomic(_) => write!(f, "{psn:X} ATOMIC_ACK msn {msn}"),
        }
    }
}
