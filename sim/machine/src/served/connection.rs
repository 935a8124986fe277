//! A client's socket: whole messages with their file descriptors, and no call that waits.
//!
//! A client may send half a message and stop, or take no replies. So the socket never blocks, what has come of a message is kept
//! until the rest comes, and replies wait here. While replies wait, no further request is read: a client that takes none stops
//! itself. At most one request and the replies to it are kept for a client.
use super::message::{FDS_MAX, HEADER_BYTES, Header};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use thiserror::Error;

/// A whole request.
#[derive(Debug)]
pub struct Message {
    /// Header of the request.
    pub header: Header,
    /// What follows the header.
    pub body: Vec<u8>,
    /// File descriptors that came with it.
    pub fds: Vec<OwnedFd>,
    /// More file descriptors came than a message may have, or than this process may open; they are lost.
    pub has_lost_fds: bool,
}

/// Why a client is given up.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// It has closed the socket, or has ended.
    #[error("the client has left")]
    Closed,
    /// It states a length that no message has, so that the next message cannot be found.
    #[error("the client has sent a header that is none: {0:?}")]
    Header(Header),
    /// The socket fails.
    #[error("the socket of the client: {0}")]
    Io(io::Error),
}

// The text has its cause already, so that the cause is not a source, which a chain of errors would print again.
impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A connected client.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    header: Option<Header>,
    /// What has come of the header, or of the body.
    part: Vec<u8>,
    fds: Vec<OwnedFd>,
    has_lost_fds: bool,
    /// Replies that the client has not taken.
    outgoing: Vec<u8>,
}

impl Connection {
    /// Makes a connection of a socket.
    ///
    /// # Errors
    /// If the socket cannot be made non-blocking.
    pub fn new(stream: UnixStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            header: None,
            part: Vec::new(),
            fds: Vec::new(),
            has_lost_fds: false,
            outgoing: Vec::new(),
        })
    }

    /// Takes the next request, if all of it has come, and no reply waits.
    ///
    /// # Errors
    /// If no further request can come.
    pub fn receive(&mut self) -> Result<Option<Message>, ConnectionError> {
        if self.is_behind() {
            return Ok(None);
        }
        loop {
            let wanted = match self.header {
                None => HEADER_BYTES,
                Some(header) => header.body_bytes().ok_or(ConnectionError::Header(header))?,
            };
            if self.part.len() < wanted {
                // Never more than the rest of this message: file descriptors belong to the message with whose bytes they come.
                if !self.read(wanted - self.part.len())? {
                    return Ok(None);
                }
                continue;
            }
            let part = std::mem::take(&mut self.part);
            match self.header.take() {
                None => self.header = part.first_chunk().map(Header::parse),
                Some(header) => {
                    let fds = std::mem::take(&mut self.fds);
                    let has_lost_fds = std::mem::take(&mut self.has_lost_fds);
                    return Ok(Some(Message { header, body: part, fds, has_lost_fds }));
                }
            }
        }
    }

    /// Reads up to this many bytes. Returns false if nothing has come.
    fn read(&mut self, bytes: usize) -> Result<bool, ConnectionError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let start = self.part.len();
        self.part.resize(start + bytes, 0);
        let into = &mut [IoSliceMut::new(&mut self.part[start..])];
        let received = recvmsg(&self.stream, into, &mut control, RecvFlags::CMSG_CLOEXEC);
        self.part.truncate(start + received.as_ref().map_or(0, |received| received.bytes));
        let received = match received {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(Errno::CONNRESET) => return Err(ConnectionError::Closed),
            Err(error) => return Err(ConnectionError::Io(error.into())),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        self.has_lost_fds |= received.flags.contains(ReturnFlags::CTRUNC);
        if self.fds.len() > FDS_MAX {
            // They came with several parts of one message.
            self.fds.clear();
            self.has_lost_fds = true;
        }
        if received.bytes == 0 { Err(ConnectionError::Closed) } else { Ok(true) }
    }

    /// Sends a reply, as far as the client takes it; the rest waits.
    ///
    /// # Errors
    /// If the client has left.
    pub fn send(&mut self, reply: &[u8]) -> Result<(), ConnectionError> {
        self.outgoing.extend_from_slice(reply);
        self.flush()
    }

    /// Sends replies that wait.
    ///
    /// # Errors
    /// If the client has left.
    pub fn flush(&mut self) -> Result<(), ConnectionError> {
        while !self.outgoing.is_empty() {
            match send(&self.stream, &self.outgoing, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.outgoing.drain(..sent)),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(ConnectionError::Closed),
                Err(error) => return Err(ConnectionError::Io(error.into())),
            }
        }
        Ok(())
    }

    /// Returns whether replies wait for the client to take them.
    pub fn is_behind(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns whether the client has closed its end, even if requests of it were not read.
    pub fn has_left(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(gone)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
