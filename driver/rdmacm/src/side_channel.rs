//! The transport of today: sockets beside the network of the cards.
//!
//! ```text
//!   client asks for              is reached over                                   because
//!   10.x.y.z of a card           abstract socket "rnic-cm/10.x.y.z:port"           no interface of the host has that address
//!   any other address            TCP, at that address and port                     it is an address of the peer's host
//!   10.x.y.z of no known card     TCP, if nobody is at the abstract socket          a host may have an address of that network too
//! ```
//!
//! A listener at a wildcard address has a TCP port and one abstract socket for each card of its process. An abstract socket has no file
//! and ends with its process; the processes of one host (of one network name space) see it.
//!
//! 1. Sockets are non-blocking, and who waits for one waits with a bound or until the descriptor that [`close`](Listener::close)
//!    signals is readable.
//! 2. A host that vanishes without a word is noticed by the keep-alive of TCP after [`IDLE`] and a few probes.

use crate::message::{self, BYTES_MAX, Message};
use crate::transport::{Link, Listener, NoMessage, Transport};
use rnic_stand_in::lock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, getsockname, listen, recv, send, shutdown, socket_with, sockopt,
};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Silence after which TCP asks whether the peer's host is there, and time between two questions.
const IDLE: Duration = Duration::from_secs(10);
const BETWEEN_PROBES: Duration = Duration::from_secs(3);
/// Questions without an answer after which the link is broken.
const PROBES: u32 = 4;
/// Time after which a peer that could not be taken is tried again.
const PAUSE: Duration = Duration::from_millis(10);
/// First of the ports that are given out where the kernel gives none, and their number.
const FIRST_PORT: u16 = 49_152;
const PORTS: u16 = 16_384;
/// Flags of every socket.
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Sockets.
pub(crate) struct SideChannel;

/// Name of the abstract socket of a port of a card.
fn meeting_point(card: Ipv4Addr, port: u16) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("rnic-cm/{card}:{port}").as_bytes())?)
}

/// A port of no kernel, different from the last ones.
fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = std::process::id() as u16;
    FIRST_PORT + NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(process.wrapping_mul(97)) % PORTS
}

/// Waits until one of the descriptors can be read, or written to, and returns which can. None can when the time is up.
fn wait<const N: usize>(mut fds: [PollFd<'_>; N], end: Option<Instant>) -> io::Result<[bool; N]> {
    loop {
        let rest = end.map(|end| end.saturating_duration_since(Instant::now()));
        let rest =
            rest.map(|rest| Timespec { tv_sec: rest.as_secs() as _, tv_nsec: rest.subsec_nanos().into() });
        match poll(&mut fds, rest.as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            other => _ = other?,
        }
        return Ok(fds.each_ref().map(|fd| !fd.revents().is_empty()));
    }
}

/// A connected socket.
struct SocketLink {
    socket: OwnedFd,
    port: u16,
    /// What has come of the next message.
    received: Mutex<Vec<u8>>,
}

impl SocketLink {
    fn start(socket: OwnedFd) -> io::Result<Arc<dyn Link>> {
        let port = match SocketAddr::try_from(getsockname(&socket)?) {
            Ok(address) => {
                sockopt::set_tcp_nodelay(&socket, true)?;
                sockopt::set_socket_keepalive(&socket, true)?;
                sockopt::set_tcp_keepidle(&socket, IDLE)?;
                sockopt::set_tcp_keepintvl(&socket, BETWEEN_PROBES)?;
                sockopt::set_tcp_keepcnt(&socket, PROBES)?;
                address.port()
            }
            Err(_) => next_port(),
        };
        Ok(Arc::new(Self { socket, port, received: Mutex::default() }))
    }

    /// Takes the message that has come whole, if one has.
    fn take(received: &mut Vec<u8>) -> Result<Option<Message>, NoMessage> {
        let Some(bytes) = message::length(received)?.filter(|&bytes| bytes <= received.len()) else {
            return Ok(None);
        };
        let message = Message::decode(&received[..bytes])?;
        received.drain(..bytes);
        Ok(Some(message))
    }
}

impl Link for SocketLink {
    fn send(&self, message: &Message) -> io::Result<()> {
        let bytes = message.encode();
        match send(&self.socket, &bytes, SendFlags::NOSIGNAL)? {
            sent if sent == bytes.len() => Ok(()),
            // A few hundred bytes always have room, unless the peer takes nothing.
            _ => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn receive(&self, patience: Duration) -> Result<Message, NoMessage> {
        let end = Instant::now() + patience;
        let mut received = lock(&self.received);
        loop {
            if let Some(message) = Self::take(&mut received)? {
                return Ok(message);
            }
            if wait([PollFd::new(&self.socket, PollFlags::IN)], Some(end))? == [false] {
                return Err(NoMessage::TimedOut);
            }
            let mut bytes = [0; BYTES_MAX];
            match recv(&self.socket, &mut bytes, RecvFlags::empty()) {
                Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => return Err(NoMessage::Closed),
                Ok((_, count)) => received.extend_from_slice(&bytes[..count]),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(NoMessage::Broken(error.into())),
            }
        }
    }

    fn close(&self) {
        // A peer that has closed it already has nothing against it.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    fn port(&self) -> u16 {
        self.port
    }
}

/// Sockets of one port, and the descriptor that says that they are not needed any more.
struct SocketListener {
    sockets: Vec<OwnedFd>,
    closed: OwnedFd,
    port: u16,
}

impl SocketListener {
    /// A descriptor that is readable once a peer is there, or the listener is closed.
    fn readable(&self) -> io::Result<Vec<bool>> {
        let fds = self.sockets.iter().chain([&self.closed]);
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            other => _ = other?,
        }
        Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
    }
}

impl Listener for SocketListener {
    fn port(&self) -> u16 {
        self.port
    }

    fn listen(&self, backlog: u32) -> io::Result<()> {
        let backlog = if backlog == 0 { i32::MAX } else { backlog.try_into().unwrap_or(i32::MAX) };
        self.sockets.iter().try_for_each(|socket| Ok(listen(socket, backlog)?))
    }

    fn accept(&self) -> io::Result<Arc<dyn Link>> {
        loop {
            let readable = self.readable()?;
            if readable.last() == Some(&true) {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            for (socket, _) in self.sockets.iter().zip(readable).filter(|(_, is_readable)| *is_readable) {
                match accept_with(socket, FLAGS).map_err(io::Error::from).and_then(SocketLink::start) {
                    Ok(link) => return Ok(link),
                    // The peer is gone again, or the process has no descriptor left for it, which another one may close.
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        }
    }

    fn close(&self) {
        // The count of an eventfd has room.
        let _ = rustix::io::write(&self.closed, &1u64.to_ne_bytes());
        self.sockets.iter().for_each(|socket| _ = shutdown(socket, Shutdown::Both));
    }
}

/// A TCP socket at an address of the host.
fn bind_host(address: SocketAddr) -> io::Result<(OwnedFd, u16)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    let port = SocketAddr::try_from(getsockname(&socket)?)?.port();
    Ok((socket, port))
}

fn bind_card(card: Ipv4Addr, port: u16) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    bind(&socket, &meeting_point(card, port)?)?;
    Ok(socket)
}

/// A socket at a port of a card, which is any one that is free if `port` is zero.
fn bind_port_of_card(card: Ipv4Addr, port: u16) -> io::Result<(OwnedFd, u16)> {
    if port != 0 {
        return Ok((bind_card(card, port)?, port));
    }
    for _ in 0..PORTS {
        let port = next_port();
        match bind_card(card, port) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            other => return Ok((other?, port)),
        }
    }
    Err(ErrorKind::AddrInUse.into())
}

/// Connects a socket, in bounded time.
fn connect_socket(
    family: AddressFamily,
    to: impl Into<SocketAddrAny>,
    patience: Duration,
) -> io::Result<Arc<dyn Link>> {
    let socket = socket_with(family, SocketType::STREAM, FLAGS, None)?;
    match connect(&socket, &to.into()) {
        Err(rustix::io::Errno::INPROGRESS) => {
            let end = Some(Instant::now() + patience);
            if wait([PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)], end)? == [false] {
                return Err(ErrorKind::TimedOut.into());
            }
            sockopt::socket_error(&socket)??;
        }
        other => other?,
    }
    SocketLink::start(socket)
}

impl Transport for SideChannel {
    fn bind(&self, address: SocketAddr, cards: &[Ipv4Addr]) -> io::Result<Arc<dyn Listener>> {
        let closed = eventfd(0, EventfdFlags::CLOEXEC)?;
        let is_of_card = |card: &&Ipv4Addr| address.ip().to_canonical() == IpAddr::V4(**card);
        if let Some(&card) = cards.iter().find(is_of_card) {
            let (socket, port) = bind_port_of_card(card, address.port())?;
            return Ok(Arc::new(SocketListener { sockets: vec![socket], closed, port }));
        }
        let (socket, port) = bind_host(address)?;
        let mut sockets = vec![socket];
        // A listener that has one of the cards by name keeps it.
        sockets.extend(cards.iter().filter_map(|&card| bind_card(card, port).ok()));
        Ok(Arc::new(SocketListener { sockets, closed, port }))
    }

    fn connect(&self, to: SocketAddr, is_card: bool, patience: Duration) -> io::Result<Arc<dyn Link>> {
        if let IpAddr::V4(card) = to.ip().to_canonical() {
            let point = meeting_point(card, to.port())?;
            match connect_socket(AddressFamily::UNIX, point, patience) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused && !is_card => {}
                other => return other,
            }
        }
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        connect_socket(family, to, patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    fn loopback(port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    /// A link, and the plain socket at its other end.
    fn link_and_stream() -> (Arc<dyn Link>, TcpStream) {
        let listener = SideChannel.bind(loopback(0), &[]).unwrap();
        listener.listen(0).unwrap();
        let stream = TcpStream::connect(loopback(listener.port())).unwrap();
        (listener.accept().unwrap(), stream)
    }

    #[test]
    fn messages_come_in_order_however_they_are_cut() {
        let (link, mut stream) = link_and_stream();
        let messages = [Message::Ready, Message::Reject { reason: 28, private_data: vec![7; 100] }];
        let bytes: Vec<u8> = messages.iter().flat_map(Message::encode).collect();
        std::thread::spawn(move || {
            for byte in bytes {
                stream.write_all(&[byte]).unwrap();
                stream.flush().unwrap();
            }
        });
        for message in messages {
            assert_eq!(link.receive(LONG).unwrap(), message);
        }
        assert!(matches!(link.receive(LONG), Err(NoMessage::Closed)));
    }

    #[test]
    fn strangers_and_silence_are_refused_in_bounded_time() {
        let (link, mut stream) = link_and_stream();
        assert!(matches!(link.receive(SHORT), Err(NoMessage::TimedOut)));
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(matches!(link.receive(LONG), Err(NoMessage::Malformed(_))));
        let (link, mut stream) = link_and_stream();
        let bytes = Message::Disconnect.encode();
        stream.write_all(&bytes[..bytes.len() - 1]).unwrap();
        assert!(matches!(link.receive(SHORT), Err(NoMessage::TimedOut)));
        drop(stream);
        assert!(matches!(link.receive(LONG), Err(NoMessage::Closed)));
        assert!(link.send(&Message::Ready).and_then(|()| link.send(&Message::Ready)).is_err());
    }

    #[test]
    fn closing_wakes_both_sides() {
        let (link, mut stream) = link_and_stream();
        let waiting = Arc::clone(&link);
        let thread = std::thread::spawn(move || waiting.receive(LONG));
        link.close();
        assert!(matches!(thread.join().unwrap(), Err(NoMessage::Closed)));
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        let listener = SideChannel.bind(loopback(0), &[]).unwrap();
        listener.listen(1).unwrap();
        let waiting = Arc::clone(&listener);
        let thread = std::thread::spawn(move || waiting.accept().is_err());
        listener.close();
        assert!(thread.join().unwrap());
    }

    #[test]
    fn a_card_is_reached_by_its_address() {
        let card = Ipv4Addr::new(10, 0, 0, std::process::id() as u8);
        let any = SideChannel.bind((Ipv4Addr::UNSPECIFIED, 0).into(), &[card]).unwrap();
        let at = |port| SocketAddr::from((card, port));
        assert!(SideChannel.connect(at(any.port()), true, LONG).is_err(), "nobody listens yet");
        any.listen(0).unwrap();
        let client = SideChannel.connect(at(any.port()), true, LONG).unwrap();
        client.send(&Message::Ready).unwrap();
        assert_eq!(any.accept().unwrap().receive(LONG).unwrap(), Message::Ready);
        // The card alone, at the same port and at another one.
        assert!(SideChannel.bind(at(any.port()), &[card]).is_err());
        let only = SideChannel.bind(at(0), &[card]).unwrap();
        only.listen(0).unwrap();
        assert!(SideChannel.connect(at(only.port()), true, LONG).is_ok());
        assert!(SideChannel.connect(loopback(only.port()), false, LONG).is_err());
    }

    #[test]
    fn a_port_that_is_in_use_or_closed_is_refused() {
        let listener = TcpListener::bind(loopback(0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let refused = SideChannel.bind(loopback(port), &[]).err().map(|error| error.kind());
        assert_eq!(refused, Some(ErrorKind::AddrInUse));
        drop(listener);
        let refused = SideChannel.connect(loopback(port), false, LONG).err().map(|error| error.kind());
        assert_eq!(refused, Some(ErrorKind::ConnectionRefused));
    }
}
