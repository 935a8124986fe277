//! The program `rnic-sim peer`: the reference endpoint in a process of its own, behind the Unix socket that is its standard input.
//!
//! ```text
//!   Rig ── card ── wire ── station ══ Unix socket ══ rnic-sim peer ── Endpoint ── memory ── file
//! ```
//!
//! It shares nothing with the card but the wire: its frames are those of [`rnic_endpoint`], which is written from the protocol.
//! A [rig](crate::foreign) starts it as [`Process::start`](crate::foreign::Process::start) does. It has one queue pair, with a
//! path MTU of 1,024 bytes, from 02:00:00:00:00:02, 10.0.0.2 to 02:00:00:00:00:01, 10.0.0.1, which is the address of a card
//! in [`RigOptions::standard`](crate::foreign::RigOptions::standard). What is lost it sends again, after its timeout or a NAK; what
//! comes twice it executes once.
//!
//! Its clock is the simulated time that it is told, if it takes turns. On a socket of datagrams, or with `--free`, it is the clock of
//! the machine divided by `--slowdown`, which is the number that the card's station is
//! [paced](rnic_machine::wire::paced::Paced) with.
//!
//! It prints these lines:
//!
//! | Line | When |
//! |---|---|
//! | `peer <QPN> <first PSN>` | all work requests are posted |
//! | `completion <wr_id> <status>` | a work request has completed |
//! | `completions <count>` | the socket is closed, and the memory is written to its file |
use crate::foreign::RigOptions;
use crate::numbers::within;
use crate::print_line;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use clap::builder::ValueParser;
use rnic_endpoint::Endpoint;
use rnic_endpoint::memory::{Region, Rights, Sge};
use rnic_endpoint::packet::Path;
use rnic_endpoint::qp::{Data, Operation, QueuePairSetup, ReceiveWqe, SendWqe};
use rnic_layout::path::Gid;
use rnic_layout::psn::Psn;
use rnic_layout::wire::MacAddress;
use rnic_machine::wire::socket::{MESSAGE_BYTES_MAX, Message, take_turns};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_type;
use rustix::net::{RecvFlags, SendFlags, SocketType, recv, send};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Ethernet address of the peer.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Retries of a packet; after RNR NAKs their number is unlimited (protocol 2.7).
const RETRIES: u8 = 7;
/// What the peer prints before its QPN and first PSN.
pub const PEER_MARKER: &str = "peer ";

/// The IP address of the peer.
pub fn gid() -> Gid {
    Gid::from_ipv4([10, 0, 0, 2].into())
}

/// The peer, its card, and what it does. Numbers are decimal, or hexadecimal after `0x`.
#[derive(Args, Clone, Debug)]
pub struct PeerOptions {
    /// QPN of the card's queue pair.
    #[arg(long, value_parser = number_of_24_bits())]
    card_qpn: u32,
    /// PSN of the first request of the card.
    #[arg(long, value_parser = number_of_24_bits())]
    card_psn: u32,
    /// QPN of the peer's queue pair.
    #[arg(long, default_value = "0x51", value_parser = number_of_24_bits())]
    qpn: u32,
    /// PSN of the first request of the peer.
    #[arg(long, default_value = "0", value_parser = number_of_24_bits())]
    psn: u32,
    /// File of the peer's memory, which the card may read and write. It is read at the start, and written when the socket is
    /// closed.
    #[arg(long)]
    memory: PathBuf,
    /// Virtual address of the first byte of the memory.
    #[arg(long, default_value = "0x50000000", value_parser = number)]
    address: u64,
    /// L_Key and R_Key of the memory.
    #[arg(long, default_value = "0x305", value_parser = number_of_32_bits())]
    key: u32,
    /// Code of the acknowledgement timeout, 4.096 us x 2^CODE of simulated time; 0 for none.
    #[arg(long, value_name = "CODE", default_value = "8", value_parser = number_of_5_bits())]
    timeout: u32,
    /// Send frames at any time, instead of in the turns that the socket's station gives. A socket of datagrams gives none.
    #[arg(long)]
    free: bool,
    /// How many times slower simulated time is than the clock of the machine, for a peer that takes no turns.
    #[arg(long, value_name = "TIMES", default_value = "10000", value_parser = within(1..=u32::MAX))]
    slowdown: u32,
    /// Work requests, which are posted in this order, with `wr_id` from 1 on: `write:OFFSET:BYTES:ADDRESS:KEY`,
    /// `read:OFFSET:BYTES:ADDRESS:KEY`, `send:OFFSET:BYTES`, or `receive:OFFSET:BYTES`. OFFSET is that of the local data in the
    /// memory, ADDRESS and KEY are the card's. A SEND waits for the READs before it.
    work: Vec<WorkRequest>,
}

/// Reads a number, decimal or hexadecimal.
fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{text:?} is no number: {error}"))
}

/// Reads a number that must fit into some bits.
fn number_of(bits: u32, text: &str) -> Result<u32, String> {
    let value = number(text)?;
    let fits = value >> bits == 0;
    fits.then_some(value as u32).ok_or_else(|| format!("{text} does not fit into {bits} bits"))
}

fn number_of_5_bits() -> ValueParser {
    ValueParser::new(|text: &str| number_of(5, text))
}

fn number_of_24_bits() -> ValueParser {
    ValueParser::new(|text: &str| number_of(24, text))
}

fn number_of_32_bits() -> ValueParser {
    ValueParser::new(|text: &str| number_of(32, text))
}

/// Remote memory of a WRITE or READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Remote {
    address: u64,
    key: u32,
}

/// Kind of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    Receive,
    Write(Remote),
    Read(Remote),
}

/// A work request of the command line. See [`PeerOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    kind: Kind,
    /// Of the local data in the memory.
    offset: u64,
    bytes: u32,
}

impl FromStr for WorkRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<WorkRequest, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let remote =
            |address, key| Ok::<_, String>(Remote { address: number(address)?, key: number_of(32, key)? });
        let (kind, offset, bytes) = match parts[..] {
            ["send", offset, bytes] => (Kind::Send, offset, bytes),
            ["receive", offset, bytes] => (Kind::Receive, offset, bytes),
            ["write", offset, bytes, address, key] => (Kind::Write(remote(address, key)?), offset, bytes),
            ["read", offset, bytes, address, key] => (Kind::Read(remote(address, key)?), offset, bytes),
            _ => {
                return Err("expected write:OFFSET:BYTES:ADDRESS:KEY, read:OFFSET:BYTES:ADDRESS:KEY, \
                     send:OFFSET:BYTES, or receive:OFFSET:BYTES"
                    .into());
            }
        };
        Ok(WorkRequest { kind, offset: number(offset)?, bytes: number_of(32, bytes)? })
    }
}

/// What an operation on a socket gives; `None` if the other end is closed.
fn if_open<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// The socket of a peer that takes no turns.
enum Line {
    /// A frame after its length.
    Stream(UnixStream),
    /// A frame a datagram.
    Datagrams(OwnedFd),
}

impl Line {
    /// Sends a frame. That the station has closed the socket is seen when the next one is received.
    fn send(&mut self, frame: Vec<u8>) -> io::Result<()> {
        let sent = match self {
            Line::Stream(stream) => Message::Frame(frame).write(stream),
            Line::Datagrams(socket) => {
                send(socket, &frame, SendFlags::NOSIGNAL).map(drop).map_err(Into::into)
            }
        };
        if_open(sent).map(drop)
    }

    /// The next frame; `None` if the station has closed the socket.
    fn receive(&mut self) -> Result<Option<Vec<u8>>> {
        match self {
            Line::Stream(stream) => match if_open(Message::read(stream))?.flatten() {
                Some(Message::Frame(bytes)) => Ok(Some(bytes)),
                Some(turn) => bail!("the station gives turns ({turn:?}), which --free takes none of"),
                None => Ok(None),
            },
            Line::Datagrams(socket) => {
                let mut bytes = vec![0; MESSAGE_BYTES_MAX];
                let received = recv(&*socket, &mut bytes, RecvFlags::empty()).map_err(Into::into);
                let count = if_open(received)?.map_or(0, |(count, _)| count);
                bytes.truncate(count);
                Ok((count > 0).then_some(bytes))
            }
        }
    }

    /// Waits until there is something to receive, at most this long. Returns whether there is.
    fn wait(&self, at_most: Option<Duration>) -> io::Result<bool> {
        let socket = match self {
            Line::Stream(stream) => stream.as_fd(),
            Line::Datagrams(socket) => socket.as_fd(),
        };
        let timeout = at_most.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], timeout.as_ref()) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The endpoint with its queue pair.
struct Peer {
    endpoint: Endpoint,
    completions: usize,
}

impl Peer {
    /// Makes the endpoint, and posts all work requests.
    fn new(options: &PeerOptions, memory: &[u8]) -> Result<Peer> {
        let &PeerOptions { qpn, address, key, .. } = options;
        let length = memory.len() as u64;
        let ends = address.checked_add(length).is_some();
        ensure!(ends, "a memory of {length} bytes at {address:#x} ends beyond the address space");
        let mut endpoint = Endpoint::new(MacAddress(MAC), memory.len());
        endpoint.memory().bytes.copy_from_slice(memory);
        let region = Region {
            first_address: address,
            length,
            offset: 0,
            domain: 0,
            rights: Rights::ALL,
            invalidatable: false,
        };
        endpoint.memory().register(key, region);
        let card = RigOptions::standard(64);
        let path = Path::new(MacAddress(MAC), gid(), MacAddress(card.mac), card.addresses[0]);
        endpoint.create(QueuePairSetup {
            send_psn: Psn::wrapping(options.psn),
            receive_psn: Psn::wrapping(options.card_psn),
            timeout: options.timeout as u8,
            retry_count: RETRIES,
            rnr_retry: RETRIES,
            ..QueuePairSetup::new(qpn, options.card_qpn, path)
        });
        for (wr_id, work) in (1..).zip(&options.work) {
            let &WorkRequest { kind, offset, bytes } = work;
            let fits = offset.checked_add(u64::from(bytes)).is_some_and(|end| end <= length);
            ensure!(fits, "{bytes} bytes at offset {offset} end beyond the memory of {length} bytes");
            let sges = vec![Sge { address: address + offset, key, length: bytes }];
            let operation = match kind {
                Kind::Receive => {
                    endpoint.post_receive(qpn, ReceiveWqe { wr_id, sges });
                    continue;
                }
                Kind::Send => Operation::Send,
                Kind::Write(Remote { address, key }) => Operation::Write { address, key },
                Kind::Read(Remote { address, key }) => Operation::Read { address, key },
            };
            let request = SendWqe::new(wr_id, operation, Data::Sges(sges));
            endpoint.post_send(qpn, SendWqe { fence: kind == Kind::Send, ..request });
        }
        Ok(Peer { endpoint, completions: 0 })
    }

    /// Prints the completions.
    fn poll(&mut self) {
        while let Some(completion) = self.endpoint.poll(0) {
            print_line!("completion {} {}", completion.wr_id, completion.status.name());
            self.completions += 1;
        }
    }

    /// Frames that it sends now.
    fn speak(&mut self) -> Vec<Vec<u8>> {
        let frames = std::iter::from_fn(|| self.endpoint.transmit()).collect();
        self.poll();
        frames
    }

    /// Takes turns until the station closes the socket.
    fn take_turns(&mut self, stream: &mut UnixStream) -> io::Result<()> {
        let hear = |peer: &mut Peer, frame: &[u8]| {
            peer.endpoint.receive(frame);
        };
        let speak = |peer: &mut Peer, now_ps| {
            peer.endpoint.advance(now_ps);
            peer.speak()
        };
        take_turns(stream, self, hear, speak)
    }

    /// Sends at the start, after each frame and when a timer expires, until the station closes the socket.
    fn run_free(&mut self, line: &mut Line, slowdown: u32) -> Result<()> {
        let start = Instant::now();
        let ps_per_ns = 1000;
        loop {
            let wall_ps = start.elapsed().as_nanos() * ps_per_ns;
            let now_ps = (wall_ps / u128::from(slowdown)) as u64;
            self.endpoint.advance(now_ps);
            for frame in self.speak() {
                line.send(frame)?;
            }
            let left = self.endpoint.next_deadline_ps().map(|deadline_ps| {
                let left_ps = u128::from(deadline_ps.saturating_sub(now_ps)) * u128::from(slowdown);
                Duration::from_nanos(u64::try_from(left_ps.div_ceil(ps_per_ns)).unwrap_or(u64::MAX))
            });
            if line.wait(left)? {
                match line.receive()? {
                    Some(bytes) => drop(self.endpoint.receive(&bytes)),
                    None => return Ok(()),
                }
            }
        }
    }
}

/// Plays the peer on a socket, until its other end is closed.
///
/// # Errors
/// If the memory cannot be read or written, a work request ends beyond it, `input` is no Unix socket, or the socket fails.
pub fn run(options: &PeerOptions, input: BorrowedFd) -> Result<()> {
    let file = options.memory.display();
    let memory = std::fs::read(&options.memory).with_context(|| format!("cannot read {file}"))?;
    let mut peer = Peer::new(options, &memory)?;
    let socket = input.as_fd().try_clone_to_owned()?;
    let kind = socket_type(&socket).context("standard input is no Unix socket")?;
    print_line!("{PEER_MARKER}{} {}", options.qpn, options.psn);
    if kind != SocketType::STREAM {
        peer.run_free(&mut Line::Datagrams(socket), options.slowdown)?
    } else if options.free {
        peer.run_free(&mut Line::Stream(socket.into()), options.slowdown)?
    } else {
        peer.take_turns(&mut socket.into())?
    }
    peer.poll();
    std::fs::write(&options.memory, &peer.endpoint.memory().bytes)
        .with_context(|| format!("cannot write {file}"))?;
    print_line!("completions {}", peer.completions);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_requests_are_read() {
        let remote = Remote { address: 0x1_0000, key: 7 };
        for (text, kind) in [
            ("send:16:0x20", Kind::Send),
            ("receive:0x10:32", Kind::Receive),
            ("write:16:32:0x10000:7", Kind::Write(remote)),
            ("read:16:32:65536:0x7", Kind::Read(remote)),
        ] {
            assert_eq!(text.parse(), Ok(WorkRequest { kind, offset: 16, bytes: 32 }), "{text}");
        }
        for (text, fault) in [
            ("", "expected write:"),
            ("send", "expected write:"),
            ("send:1:2:3", "expected write:"),
            ("write:1:2:3", "expected write:"),
            ("Send:1:2", "expected write:"),
            ("send:1:-2", "\"-2\" is no number"),
            ("send:0xg:2", "\"0xg\" is no number"),
            ("receive:0:0x100000000", "0x100000000 does not fit into 32 bits"),
            ("read:0:1:2:0x100000000", "0x100000000 does not fit into 32 bits"),
        ] {
            let error = text.parse::<WorkRequest>().expect_err(text);
            assert!(error.starts_with(fault), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_of_24_bits_end_at_their_bound() {
        assert_eq!(number_of(24, "0xffffff"), Ok(0xff_ffff));
        assert_eq!(number_of(24, "0x1000000"), Err("0x1000000 does not fit into 24 bits".into()));
    }
}
