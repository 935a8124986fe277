//! Messages by which two connection managers agree on a connection: those of the communication manager of InfiniBand (IBTA 12.6), in a
//! form of our own.
//!
//! ```text
//!   client                          server
//!     │ ── Request(terms) ──────────> │  CONNECT_REQUEST
//!     │ <────────── Reply(terms) ──── │  rdma_accept         or Reject(reason)
//!     │ ── Ready ───────────────────> │  ESTABLISHED
//!     ⋮                               ⋮
//!     │ ── Disconnect ──────────────> │  DISCONNECTED        either side
//!     │ <────────── Disconnected ──── │
//! ```
//!
//! A message is a header, a body of the length that its kind has, and private data. Numbers are big-endian.
//!
//! 1. What is received is checked once, here. A message of another version, of an unknown kind, with a wrong length or with a value that
//!    the verbs have not is refused, and nothing panics.
//! 2. A message has at most [`BYTES_MAX`] bytes, so that a peer cannot make this side remember more.

use crate::abi::Gid;
use std::net::Ipv6Addr;
use thiserror::Error;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of each message.
const MAGIC: [u8; 4] = *b"rnCM";
/// Version of this format. Both sides have the same.
const VERSION: u8 = 1;
/// Longest message.
pub(crate) const BYTES_MAX: usize = size_of::<Header>() + size_of::<RequestBody>() + 255;
/// Largest QPN and PSN.
const WORD_MAX: u32 = 0xff_ffff;

/// Bytes of private data that a kind of message has room for, as the manual says for `RDMA_PS_TCP`.
pub(crate) mod private_data {
    pub(crate) const REQUEST: usize = 56;
    pub(crate) const REPLY: usize = 196;
    pub(crate) const REJECT: usize = 148;
}

/// Reasons of a [`Message::Reject`] (IBTA 12.6.7.2), which the event has as its status.
pub(crate) mod reason {
    pub(crate) const NO_RESOURCES: u16 = 3;
    pub(crate) const NO_LISTENER: u16 = 8;
    pub(crate) const BY_CONSUMER: u16 = 28;
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: u8,
    kind: u8,
    /// Bytes of the whole message.
    bytes: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TermsBody {
    gid: [u8; 16],
    qp_number: U32,
    psn: U32,
    mtu: u8,
    responder_resources: u8,
    initiator_depth: u8,
    retry_count: u8,
    rnr_retry_count: u8,
    flow_control: u8,
    has_srq: u8,
    reserved: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RequestBody {
    asked: [u8; 16],
    source_port: U16,
    reserved: [u8; 2],
    terms: TermsBody,
}

/// What one side offers: the end of the connection on its card, and how it uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) gid: Gid,
    pub(crate) qp_number: u32,
    /// PSN of the first packet that this side sends.
    pub(crate) psn: u32,
    /// Largest path MTU, as the verbs code it.
    pub(crate) mtu: u8,
    /// READs and atomics that this side answers at a time.
    pub(crate) responder_resources: u8,
    /// READs and atomics that this side sends at a time.
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    /// RNR retries that the other side makes.
    pub(crate) rnr_retry_count: u8,
    pub(crate) flow_control: u8,
    pub(crate) has_srq: bool,
    pub(crate) private_data: Vec<u8>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Asks for a connection. `asked` is the address that the program has named, by which a listener of several cards chooses one.
    Request { asked: Ipv6Addr, source_port: u16, terms: Terms },
    /// Accepts it: the queue pair of the server receives.
    Reply(Terms),
    /// The queue pair of the client sends and receives.
    Ready,
    /// There is no connection.
    Reject { reason: u16, private_data: Vec<u8> },
    /// The connection ends.
    Disconnect,
    /// The connection has ended.
    Disconnected,
}

/// Why bytes are no message.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Malformed {
    #[error("the peer is no connection manager of rnic")]
    Magic,
    #[error("the peer speaks version {0}, and this side version {VERSION}: use the same library on both")]
    Version(u8),
    #[error("there is no message of kind {0}")]
    Kind(u8),
    #[error("a message of kind {kind} does not have {bytes} bytes")]
    Length { kind: u8, bytes: usize },
    #[error("{field} is {value}")]
    Value { field: &'static str, value: u32 },
}

fn check(field: &'static str, value: u32, is_right: bool) -> Result<(), Malformed> {
    if is_right { Ok(()) } else { Err(Malformed::Value { field, value }) }
}

impl Terms {
    fn body(&self) -> TermsBody {
        TermsBody {
            gid: self.gid.bytes(),
            qp_number: self.qp_number.into(),
            psn: self.psn.into(),
            mtu: self.mtu,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            flow_control: self.flow_control,
            has_srq: self.has_srq.into(),
            reserved: 0,
        }
    }

    fn read(body: &TermsBody, private_data: &[u8]) -> Result<Self, Malformed> {
        let [qp_number, psn] = [body.qp_number, body.psn].map(U32::get);
        check("the QPN", qp_number, qp_number <= WORD_MAX)?;
        check("the PSN", psn, psn <= WORD_MAX)?;
        check("the MTU", body.mtu.into(), (1..=5).contains(&body.mtu))?;
        check("the retry count", body.retry_count.into(), body.retry_count <= 7)?;
        check("the RNR retry count", body.rnr_retry_count.into(), body.rnr_retry_count <= 7)?;
        Ok(Self {
            gid: Gid::new(body.gid),
            qp_number,
            psn,
            mtu: body.mtu,
            responder_resources: body.responder_resources,
            initiator_depth: body.initiator_depth,
            retry_count: body.retry_count,
            rnr_retry_count: body.rnr_retry_count,
            flow_control: body.flow_control,
            has_srq: body.has_srq != 0,
            private_data: private_data.to_vec(),
        })
    }
}

/// Bytes of the message that begins with `received`, once so many are there that its header is.
///
/// # Errors
///
/// Fails as soon as what is there begins no message.
pub(crate) fn length(received: &[u8]) -> Result<Option<usize>, Malformed> {
    let Ok((header, _)) = Header::ref_from_prefix(received) else { return Ok(None) };
    if header.magic != MAGIC {
        return Err(Malformed::Magic);
    }
    if header.version != VERSION {
        return Err(Malformed::Version(header.version));
    }
    let bytes = usize::from(header.bytes.get());
    match bytes {
        8..=BYTES_MAX => Ok(Some(bytes)),
        _ => Err(Malformed::Length { kind: header.kind, bytes }),
    }
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Self::Request { .. } => 1,
            Self::Reply(_) => 2,
            Self::Ready => 3,
            Self::Reject { .. } => 4,
            Self::Disconnect => 5,
            Self::Disconnected => 6,
        }
    }

    /// The bytes of the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (body, private_data) = match self {
            Self::Request { asked, source_port, terms } => {
                let (asked, source_port, body) = (asked.octets(), (*source_port).into(), terms.body());
                let body = RequestBody { asked, source_port, reserved: [0; 2], terms: body };
                (body.as_bytes().to_vec(), &terms.private_data[..])
            }
            Self::Reply(terms) => (terms.body().as_bytes().to_vec(), &terms.private_data[..]),
            Self::Reject { reason, private_data } => (reason.to_be_bytes().to_vec(), &private_data[..]),
            Self::Ready | Self::Disconnect | Self::Disconnected => (Vec::new(), &[][..]),
        };
        let bytes = (size_of::<Header>() + body.len() + private_data.len()) as u16;
        let header = Header { magic: MAGIC, version: VERSION, kind: self.kind(), bytes: bytes.into() };
        [header.as_bytes(), &body, private_data].concat()
    }

    /// Reads a message, which `bytes` are all of.
    ///
    /// # Errors
    ///
    /// Fails if they are not a message.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let wrong = |kind| Malformed::Length { kind, bytes: bytes.len() };
        if length(bytes)? != Some(bytes.len()) {
            return Err(wrong(bytes.get(5).copied().unwrap_or(0)));
        }
        let (header, rest) = Header::ref_from_prefix(bytes).map_err(|_| wrong(0))?;
        let kind = header.kind;
        let room = |data: &[u8], most| if data.len() <= most { Ok(()) } else { Err(wrong(kind)) };
        match kind {
            1 => {
                let (body, data) = RequestBody::ref_from_prefix(rest).map_err(|_| wrong(kind))?;
                room(data, private_data::REQUEST)?;
                let terms = Terms::read(&body.terms, data)?;
                Ok(Self::Request { asked: body.asked.into(), source_port: body.source_port.get(), terms })
            }
            2 => {
                let (body, data) = TermsBody::ref_from_prefix(rest).map_err(|_| wrong(kind))?;
                room(data, private_data::REPLY)?;
                Ok(Self::Reply(Terms::read(body, data)?))
            }
            4 => {
                let (reason, data) = U16::ref_from_prefix(rest).map_err(|_| wrong(kind))?;
                room(data, private_data::REJECT)?;
                Ok(Self::Reject { reason: reason.get(), private_data: data.to_vec() })
            }
            3 | 5 | 6 if !rest.is_empty() => Err(wrong(kind)),
            3 => Ok(Self::Ready),
            5 => Ok(Self::Disconnect),
            6 => Ok(Self::Disconnected),
            _ => Err(Malformed::Kind(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(private_bytes: usize) -> Terms {
        Terms {
            gid: Gid::new(std::array::from_fn(|index| index as u8)),
            qp_number: 0x12_3456,
            psn: WORD_MAX,
            mtu: 5,
            responder_resources: 16,
            initiator_depth: 4,
            retry_count: 7,
            rnr_retry_count: 6,
            flow_control: 1,
            has_srq: true,
            private_data: vec![0x5a; private_bytes],
        }
    }

    fn all() -> Vec<Message> {
        let asked = Ipv6Addr::LOCALHOST;
        vec![
            Message::Request { asked, source_port: 7471, terms: terms(private_data::REQUEST) },
            Message::Request { asked, source_port: 0, terms: terms(0) },
            Message::Reply(terms(private_data::REPLY)),
            Message::Ready,
            Message::Reject { reason: reason::BY_CONSUMER, private_data: vec![1; private_data::REJECT] },
            Message::Disconnect,
            Message::Disconnected,
        ]
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        for message in all() {
            let bytes = message.encode();
            assert!(bytes.len() <= BYTES_MAX);
            assert_eq!(length(&bytes), Ok(Some(bytes.len())));
            assert_eq!(Message::decode(&bytes), Ok(message));
        }
    }

    #[test]
    fn a_message_that_is_cut_or_has_something_behind_it_is_refused() {
        for message in all() {
            let bytes = message.encode();
            for cut in 0..bytes.len() {
                assert!(Message::decode(&bytes[..cut]).is_err(), "{message:?} cut to {cut} bytes");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert!(Message::decode(&longer).is_err(), "{message:?}");
        }
    }

    #[test]
    fn a_length_that_the_kind_has_not_is_refused() {
        for message in all() {
            for change in [-1i16, 1] {
                let mut bytes = message.encode();
                let bytes_new = (bytes.len() as i16 + change) as usize;
                if bytes_new < size_of::<Header>() {
                    continue;
                }
                bytes.resize(bytes_new, 0);
                bytes[6..8].copy_from_slice(&(bytes_new as u16).to_be_bytes());
                match (Message::decode(&bytes), &message) {
                    // Fewer bytes of private data, or more if there is room, are another message.
                    (Ok(Message::Request { .. }), Message::Request { .. }) => {}
                    (Ok(Message::Reply(_)), Message::Reply(_)) if change < 0 => {}
                    (Ok(Message::Reject { .. }), Message::Reject { .. }) if change < 0 => {}
                    (decoded, _) => assert!(decoded.is_err(), "{message:?}: {decoded:?}"),
                }
            }
        }
        let most = Message::Request {
            asked: Ipv6Addr::UNSPECIFIED,
            source_port: 1,
            terms: terms(private_data::REQUEST + 1),
        };
        assert!(Message::decode(&most.encode()).is_err());
    }

    #[test]
    fn another_version_and_other_programs_are_told_apart() {
        let mut bytes = Message::Ready.encode();
        bytes[4] = VERSION + 1;
        assert_eq!(Message::decode(&bytes), Err(Malformed::Version(VERSION + 1)));
        assert_eq!(length(b"GET / HTTP/1.1\r\n"), Err(Malformed::Magic));
        assert_eq!(length(b"rnC"), Ok(None));
        let mut bytes = Message::Ready.encode();
        bytes[5] = 7;
        assert_eq!(Message::decode(&bytes), Err(Malformed::Kind(7)));
    }

    #[test]
    fn values_that_the_verbs_have_not_are_refused() {
        let wrong: [fn(&mut Terms); 5] = [
            |terms| terms.qp_number = WORD_MAX + 1,
            |terms| terms.psn = WORD_MAX + 1,
            |terms| terms.mtu = 6,
            |terms| terms.retry_count = 8,
            |terms| terms.rnr_retry_count = 8,
        ];
        for change in wrong {
            let mut terms = terms(0);
            change(&mut terms);
            let decoded = Message::decode(&Message::Reply(terms).encode());
            assert!(matches!(decoded, Err(Malformed::Value { .. })), "{decoded:?}");
        }
    }

    #[test]
    fn no_garbage_panics() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        for _ in 0..100_000 {
            let mut bytes: Vec<u8> = (0..random()).map(|_| random()).collect();
            let _ = Message::decode(&bytes);
            // The same behind a header that is right.
            let length = (bytes.len() + size_of::<Header>()) as u16;
            let header = Header { magic: MAGIC, version: VERSION, kind: random() % 8, bytes: length.into() };
            bytes.splice(0..0, header.as_bytes().iter().copied());
            let _ = Message::decode(&bytes);
        }
    }
}
