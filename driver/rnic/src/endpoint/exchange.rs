//! The exchange of descriptors over TCP.
//!
//! ```text
//!   one end                         the other
//!      │── descriptor ────────────────▶│
//!      │◀──────────────── descriptor ──│
//!    connects its queue pair         connects its queue pair
//!      │── ready ─────────────────────▶│     from here on packets meet a queue pair that takes them
//!      │◀───────────────────── ready ──│
//!               … RDMA …
//!      │── done ──────────────────────▶│     from here on no card waits for the other one
//!      │◀────────────────────── done ──│
//! ```
//!
//! At any place an end may say `refused` with a text instead, and closes. A message is a header and a body:
//!
//! | bytes | header, big-endian |
//! |---|---|
//! | 0..4 | `rnic` |
//! | 4..6 | version of the exchange: 1 |
//! | 6 | kind: 1 descriptor, 2 ready, 3 refused, 4 done |
//! | 7 | zero |
//! | 8..12 | length of the body in bytes: that of a descriptor, of a text of at most 512 bytes, or 0 |
//!
//! Everything ends by a deadline, whatever the peer sends or does not send, and no length that it names is believed.

use super::descriptor::{Descriptor, DescriptorError};
use std::fmt::Display;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

const MAGIC: [u8; 4] = *b"rnic";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 12;
/// Longest text of a refusal, in bytes.
const REFUSAL_BYTES_MAX: usize = 512;
/// Longest wait for what a peer that is refused still sends.
const LINGER: Duration = Duration::from_millis(100);
/// Longest single wait of a limit that is longer.
const STEP: Duration = Duration::from_secs(3600);
/// Time between two attempts to reach a peer that does not listen yet.
const RETRY: Duration = Duration::from_millis(50);

/// Why two ends could not exchange their descriptors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The operating system.
    #[error("{what}: {error}")]
    Io {
        /// What failed.
        what: &'static str,
        /// Why; the text has it already, so it is not the source of a chain.
        error: io::Error,
    },
    /// The address is none.
    #[error(
        "the address of the peer is none; write the host and the port on which it listens, as in host:7471"
    )]
    NoAddress,
    /// The peer did nothing for too long.
    #[error(
        "{what} did not come within {limit:?}; check that the peer runs, and that both call the same address"
    )]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long the whole exchange may take.
        limit: Duration,
    },
    /// The peer has ended or closed the connection.
    #[error("the peer has closed the connection before {what} came; look for its error")]
    Closed {
        /// What was waited for.
        what: &'static str,
    },
    /// The peer speaks something else.
    #[error("the peer sent {found:?} where a message begins with \"rnic\"; check the port")]
    NotOurs {
        /// What it sent, in letters.
        found: String,
    },
    /// The peer speaks another version.
    #[error(
        "the peer speaks version {found} of the exchange, and this end version {VERSION}; use programs of one version"
    )]
    Version {
        /// Its version.
        found: u16,
    },
    /// A message of the right version that is none.
    #[error(
        "the peer sent a message of kind {kind} with {bytes} bytes where {what} was to come; report this"
    )]
    Message {
        /// Its kind.
        kind: u8,
        /// Length of its body, as the header has it.
        bytes: u32,
        /// What was to come.
        what: &'static str,
    },
    /// A descriptor of the peer, or of this end, is none.
    #[error("{0}")]
    Descriptor(DescriptorError),
    /// The peer does not want this end.
    #[error("the peer refuses: {reason}")]
    Refused {
        /// What it says.
        reason: String,
    },
}

impl From<DescriptorError> for ExchangeError {
    fn from(error: DescriptorError) -> Self {
        Self::Descriptor(error)
    }
}

/// Time at which an exchange ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    limit: Duration,
    began: Instant,
}

impl Deadline {
    pub(super) fn after(limit: Duration) -> Self {
        Self { limit, began: Instant::now() }
    }

    /// Time that is left, or the error that none is.
    fn left(self, what: &'static str) -> Result<Duration, ExchangeError> {
        let left = self.limit.saturating_sub(self.began.elapsed());
        let timed_out = ExchangeError::TimedOut { what, limit: self.limit };
        // The system takes no arbitrarily long times. Who waits begins again.
        if left.is_zero() { Err(timed_out) } else { Ok(left.min(STEP)) }
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Descriptor = 1,
    Ready = 2,
    Refused = 3,
    Done = 4,
}

impl Kind {
    /// Longest body, in bytes.
    fn bytes_max(self) -> usize {
        match self {
            Self::Descriptor => Descriptor::BYTES_MAX,
            Self::Refused => REFUSAL_BYTES_MAX,
            Self::Ready | Self::Done => 0,
        }
    }

    fn of(number: u8) -> Option<Self> {
        [Self::Descriptor, Self::Ready, Self::Refused, Self::Done]
            .into_iter()
            .find(|&kind| kind as u8 == number)
    }
}

/// A message with its header.
fn message(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[kind as u8, 0]);
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Reads a header. Returns the kind and the length of the body.
fn header(bytes: [u8; HEADER_BYTES], what: &'static str) -> Result<(Kind, usize), ExchangeError> {
    if bytes[..4] != MAGIC {
        return Err(ExchangeError::NotOurs { found: letters(&bytes) });
    }
    let version = u16::from_be_bytes([bytes[4], bytes[5]]);
    if version != VERSION {
        return Err(ExchangeError::Version { found: version });
    }
    let length = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    let wrong = ExchangeError::Message { kind: bytes[6], bytes: length, what };
    match Kind::of(bytes[6]) {
        Some(kind) if bytes[7] == 0 && length as usize <= kind.bytes_max() => Ok((kind, length as usize)),
        _ => Err(wrong),
    }
}

/// Bytes of a stranger, to be printed.
fn letters(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|letter| if letter.is_control() { '.' } else { letter })
        .collect()
}

/// Waits until somebody connects.
pub(super) fn accept(listener: &TcpListener, deadline: Deadline) -> Result<Link, ExchangeError> {
    const WHAT: &str = "a connection";
    let failed = |error| ExchangeError::Io { what: "the listener", error };
    loop {
        sleep_until_readable(listener, deadline.left(WHAT)?).map_err(failed)?;
        // Of several that wait at one listener, one gets the connection, and the others sleep again.
        match accept_within(listener, deadline.left(WHAT)?) {
            Ok((stream, _)) => return Ok(Link(stream)),
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Accepts a connection, or fails after a time as a socket that does not block.
fn accept_within(listener: &TcpListener, limit: Duration) -> io::Result<(TcpStream, SocketAddr)> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    set_socket_timeout(listener, Timeout::Recv, Some(limit))?;
    let accepted = listener.accept();
    set_socket_timeout(listener, Timeout::Recv, None)?;
    accepted
}

fn is_transient(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted)
}

/// Sleeps until a descriptor is readable, or a time is over.
fn sleep_until_readable(fd: &impl AsFd, limit: Duration) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec::try_from(limit).ok();
    match poll(&mut [PollFd::new(fd, PollFlags::IN)], limit.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Connects to a peer that listens, or will.
pub(super) fn connect(address: impl ToSocketAddrs, deadline: Deadline) -> Result<Link, ExchangeError> {
    const WHAT: &str = "a peer that listens";
    let addresses = address.to_socket_addrs().map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => ExchangeError::NoAddress,
        _ => ExchangeError::Io { what: "the address of the peer", error },
    })?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    if addresses.is_empty() {
        return Err(ExchangeError::NoAddress);
    }
    loop {
        for address in &addresses {
            match TcpStream::connect_timeout(address, deadline.left(WHAT)?) {
                Ok(stream) => return Ok(Link(stream)),
                Err(error) if is_early(&error) => {}
                Err(error) => return Err(ExchangeError::Io { what: "the connection to the peer", error }),
            }
        }
        sleep(RETRY.min(deadline.left(WHAT)?));
    }
}

/// Whether the peer may listen in a while.
fn is_early(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | Interrupted | TimedOut | WouldBlock)
}

/// What is known of the process of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is there.
    There,
    /// It sends nothing more, and waits until this end is done: its card still answers.
    Done,
    /// It has closed the connection.
    Gone,
}

/// The TCP connection of two ends.
#[derive(Debug)]
pub(super) struct Link(TcpStream);

impl Link {
    /// Sends the descriptor of this end, and returns that of the peer, which is told what is wrong with it.
    pub(super) fn exchange(
        &mut self,
        own: &Descriptor,
        deadline: Deadline,
    ) -> Result<Descriptor, ExchangeError> {
        let body = own.to_bytes()?;
        self.send(Kind::Descriptor, &body, deadline)?;
        let peer = self
            .expect(Kind::Descriptor, "the descriptor of the peer", deadline)
            .and_then(|body| Ok(Descriptor::from_bytes(&body)?));
        if let Err(error) = &peer {
            self.refuse(error, deadline);
        }
        peer
    }

    /// Says that this end is connected, and waits until the peer is.
    pub(super) fn ready(&mut self, deadline: Deadline) -> Result<(), ExchangeError> {
        self.send(Kind::Ready, &[], deadline)?;
        self.expect(Kind::Ready, "the peer to be ready", deadline).map(drop)
    }

    /// Says that this end is done, and waits until the peer is.
    pub(super) fn finish(&mut self, limit: Duration) -> Result<(), ExchangeError> {
        let deadline = Deadline::after(limit);
        self.send(Kind::Done, &[], deadline)?;
        self.expect(Kind::Done, "the end of the peer", deadline).map(drop)
    }

    /// Tells the peer why it is refused, as far as it listens. Not to one that has refused this end, or is gone.
    pub(super) fn refuse(&mut self, reason: &impl Display, deadline: Deadline) {
        let text = reason.to_string();
        let end = text.floor_char_boundary(REFUSAL_BYTES_MAX);
        let told = self.send(Kind::Refused, &text.as_bytes()[..end], deadline);
        // A connection that is closed with unread bytes is reset, and the peer would not get the reason. If it gets none all the same, it
        // learns from the end of the connection that there is one.
        let is_closing = told.is_ok() && self.0.shutdown(Shutdown::Write).is_ok();
        if is_closing && self.0.set_read_timeout(Some(LINGER)).is_ok() {
            let mut rest = [0; 2 * Descriptor::BYTES_MAX];
            let _ = self.0.read(&mut rest);
            let _ = self.0.read(&mut rest);
        }
    }

    /// Whether more may come from the peer.
    pub(super) fn presence(&self) -> Presence {
        use rustix::io::Errno;
        use rustix::net::{RecvFlags, recv};
        match recv(&self.0, &mut [0u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => Presence::There,
            Ok((1.., _)) => Presence::Done,
            _ => Presence::Gone,
        }
    }

    fn send(&mut self, kind: Kind, body: &[u8], deadline: Deadline) -> Result<(), ExchangeError> {
        const WHAT: &str = "room for a message to the peer";
        let failed = |error| ExchangeError::Io { what: "the connection to the peer", error };
        self.0.set_write_timeout(Some(deadline.left(WHAT)?)).map_err(failed)?;
        match self.0.write_all(&message(kind, body)) {
            Ok(()) => Ok(()),
            Err(error) if is_transient(&error) => {
                Err(ExchangeError::TimedOut { what: WHAT, limit: deadline.limit })
            }
            // What the peer has said before it closed the connection is still to be read.
            Err(error) if is_closed(&error) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Reads a message, which must be of this kind. Returns its body.
    fn expect(
        &mut self,
        kind: Kind,
        what: &'static str,
        deadline: Deadline,
    ) -> Result<Vec<u8>, ExchangeError> {
        let mut bytes = [0; HEADER_BYTES];
        self.read(&mut bytes, what, deadline)?;
        let (found, length) = header(bytes, what)?;
        let mut body = vec![0; length];
        self.read(&mut body, what, deadline)?;
        match found {
            Kind::Refused => Err(ExchangeError::Refused { reason: letters(&body) }),
            _ if found == kind => Ok(body),
            _ => Err(ExchangeError::Message { kind: found as u8, bytes: length as u32, what }),
        }
    }

    /// Fills a buffer by the deadline, however slowly the peer sends.
    fn read(&mut self, into: &mut [u8], what: &'static str, deadline: Deadline) -> Result<(), ExchangeError> {
        let failed = |error| ExchangeError::Io { what: "the connection to the peer", error };
        let mut filled = 0;
        while filled < into.len() {
            self.0.set_read_timeout(Some(deadline.left(what)?)).map_err(failed)?;
            match self.0.read(&mut into[filled..]) {
                Ok(0) => return Err(ExchangeError::Closed { what }),
                Ok(count) => filled += count,
                Err(error) if is_transient(&error) => {}
                Err(error) if is_closed(&error) => return Err(ExchangeError::Closed { what }),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
