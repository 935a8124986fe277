//! The connection to a server: one request at a time, each answered in bounded time or not at all.

use super::wire::{
    Command, ERROR, HEADER_BYTES, Header, KIND, NO_REPLY, REPLY, REQUEST, RegionAccess, VERSION, Version,
};
use crate::process::Process;
use crate::server_error::ServerError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most file descriptors beside one message: what the known servers have room for.
pub(super) const FDS_MAX: usize = 16;
/// Most bytes of data in one message, as this client tells the server.
const DATA_MAX: usize = 1 << 20;
/// Fewest bytes of data that a server must take in one message: those of a register.
const DATA_MIN: usize = 8;
/// Longest text of a version.
const VERSION_MAX: usize = 4096;
/// Longest request of a server, which this client refuses: that of a read or write of memory.
const REQUEST_MAX: usize = DATA_MAX + 64;
/// Most requests of a server in place of one answer.
const REQUESTS_MAX: u32 = 64;
/// Time for which an answer is looked for before the thread sleeps until it comes: that of a register read of a simulated card,
/// which a wake-up would make half as long again.
const SPIN: Duration = Duration::from_micros(100);
/// Longest time that the server has: a sum with it is a time of the clock. 136 years.
const LIMIT_MAX: Duration = Duration::from_secs(1 << 32);
/// Error number of the version if another client has the card. A text may follow that says more.
const BUSY: i32 = Errno::BUSY.raw_os_error();
/// Longest text of a server that is repeated in an error.
const LINE_MAX: usize = 200;
/// Error number of a request that this client does not know.
const NOT_SUPPORTED: i32 = Errno::OPNOTSUPP.raw_os_error();

/// A connection, and what was negotiated for it.
pub(super) struct Client {
    socket: UnixStream,
    /// Time that the server has to take a request and to answer it.
    limit: Duration,
    next_id: u16,
    /// Every so many writes one is answered.
    posted_max: u32,
    /// Writes since one was last to be answered.
    posted: u32,
    /// Number of the write whose answer has not arrived.
    awaited: Option<u16>,
    /// Why the connection cannot be used any more.
    fault: Option<ServerError>,
    /// First refusal of an access that could not report it.
    refusal: Option<ServerError>,
    /// Process that has connected. One that was forked from it has the same socket, and sends nothing.
    process: Process,
    /// Most bytes of data in one message.
    pub(super) data_max: usize,
    /// Most file descriptors beside one message.
    pub(super) fds_max: usize,
    /// The request being sent, and the body of the answer; kept, so that an access allocates nothing.
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

/// The line of text with which bytes of a server begin.
fn line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LINE_MAX)]);
    text.chars().take_while(|letter| !letter.is_control()).collect()
}

/// Finds a number by its name in a text of capabilities. `Some(None)` if the text is an object without it, or is empty; `None` if
/// the text is no object, or the value no number.
///
/// Two numbers are all that this client reads. A JSON library in its place would be known to all who use this crate, and its
/// comparisons of numbers with JSON values make the types of their literals ambiguous.
fn capability(text: &[u8], name: &str) -> Option<Option<u64>> {
    let text = std::str::from_utf8(text).ok()?.trim();
    if text.is_empty() {
        return Some(None);
    }
    let text = text.strip_prefix('{')?.strip_suffix('}')?;
    let Some((_, rest)) = text.split_once(&format!("\"{name}\"")) else { return Some(None) };
    let value = rest.trim_start().strip_prefix(':')?.trim_start();
    let end = value.find([',', '}']).unwrap_or(value.len());
    value[..end].trim_end().parse().ok().map(Some)
}

/// Result of a request.
type Answer<T> = Result<T, ServerError>;

impl Client {
    /// Agrees on a version with the server at the other end of a socket.
    pub(super) fn new(socket: UnixStream, limit: Duration, posted_max: u32) -> Answer<Self> {
        let mut client = Self {
            socket,
            limit: limit.min(LIMIT_MAX),
            next_id: 0,
            posted_max: posted_max.max(1),
            posted: 0,
            awaited: None,
            fault: None,
            refusal: None,
            process: Process::current(),
            data_max: DATA_MAX,
            fds_max: 1,
            outgoing: Vec::new(),
            incoming: Vec::new(),
        };
        client.negotiate()?;
        Ok(client)
    }

    fn negotiate(&mut self) -> Answer<()> {
        let text =
            format!("{{\"capabilities\":{{\"max_msg_fds\":{FDS_MAX},\"max_data_xfer_size\":{DATA_MAX}}}}}\0");
        let lengths = size_of::<Version>()..=size_of::<Version>() + VERSION_MAX;
        let answer = self.request(Command::Version, &[VERSION.as_bytes(), text.as_bytes()], &[], lengths)?;
        let (version, text) = Version::read_from_prefix(answer).expect("the length was checked");
        let Version { major, minor } = version;
        if major != VERSION.major || minor > VERSION.minor {
            return Err(self.fail(ServerError::Version { major, minor }));
        }
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let what = Command::Version.name();
        let numbers = [("max_data_xfer_size", DATA_MAX as u64), ("max_msg_fds", 1)]
            .map(|(name, default)| capability(text, name).map(|number| number.unwrap_or(default)));
        let [Some(data), Some(fds)] = numbers else {
            let found = text.len() as u64;
            let (field, expected) = ("the length of a text that is no JSON", "that of an object in JSON");
            return Err(self.fail(ServerError::Malformed { what, field, found, expected }));
        };
        if data < DATA_MIN as u64 {
            let (field, expected) = ("max_data_xfer_size", "8 or more");
            return Err(self.fail(ServerError::Malformed { what, field, found: data, expected }));
        }
        if fds == 0 {
            let (field, expected) = ("max_msg_fds", "1 or more");
            return Err(self.fail(ServerError::Malformed { what, field, found: fds, expected }));
        }
        self.data_max = usize::try_from(data).unwrap_or(DATA_MAX).min(DATA_MAX);
        self.fds_max = usize::try_from(fds).unwrap_or(FDS_MAX).min(FDS_MAX);
        Ok(())
    }

    /// The socket, to notice its end.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Fails with the reason if the connection is lost, or if an access was refused that could not say so.
    pub(super) fn check(&self) -> Answer<()> {
        self.fault.as_ref().or(self.refusal.as_ref()).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Returns whether the connection is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.fault.is_some()
    }

    /// The connection is not used any more. Returns the reason, which is the first one.
    pub(super) fn fail(&mut self, error: ServerError) -> ServerError {
        if !self.process.is_current() {
            return ServerError::Forked;
        }
        self.close();
        self.fault.get_or_insert(error).clone()
    }

    /// Ends the connection. The server sees it at once, also while other handles of the socket exist: a process that another thread
    /// starts has one until it runs its program.
    fn close(&self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Remembers the refusal of an access that cannot report it.
    pub(super) fn note(&mut self, error: ServerError) {
        self.refusal.get_or_insert(error);
    }

    /// Makes a request whose answer is a record, and returns it.
    pub(super) fn ask<T>(&mut self, command: Command, body: &[u8], fds: &[BorrowedFd<'_>]) -> Answer<T>
    where
        T: FromBytes + KnownLayout + Immutable,
    {
        let length = size_of::<T>();
        let answer = self.request(command, &[body], fds, length..=length)?;
        Ok(T::read_from_bytes(answer).expect("the length was checked"))
    }

    /// Makes a request whose answer says only that it is done. Some servers repeat the request in it.
    pub(super) fn tell(&mut self, command: Command, body: &[u8], fds: &[BorrowedFd<'_>]) -> Answer<()> {
        self.request(command, &[body], fds, 0..=body.len()).map(drop)
    }

    /// Reads bytes of a region, at most [`Self::data_max`].
    pub(super) fn read(&mut self, region: u32, offset: u64, into: &mut [u8]) -> Answer<()> {
        let access = RegionAccess { offset, region, count: into.len() as u32 };
        let length = size_of::<RegionAccess>() + into.len();
        let answer = self.request(Command::RegionRead, &[access.as_bytes()], &[], length..=length)?;
        let (same, data) = RegionAccess::read_from_prefix(answer).expect("the length was checked");
        into.copy_from_slice(data);
        self.check_access(Command::RegionRead, &access, &same)
    }

    /// Writes bytes of a region, at most [`Self::data_max`], and waits for the answer.
    pub(super) fn write(&mut self, region: u32, offset: u64, from: &[u8]) -> Answer<()> {
        let access = RegionAccess { offset, region, count: from.len() as u32 };
        let length = size_of::<RegionAccess>();
        let answer = self.request(Command::RegionWrite, &[access.as_bytes(), from], &[], length..=length)?;
        let (same, _) = RegionAccess::read_from_prefix(answer).expect("the length was checked");
        self.check_access(Command::RegionWrite, &access, &same)
    }

    /// Writes bytes of a region without waiting. Every so many writes ask for an answer, and the one before must have been
    /// answered then, so that no more than twice as many are ever in flight.
    pub(super) fn post(&mut self, region: u32, offset: u64, from: &[u8]) -> Answer<()> {
        self.usable()?;
        let deadline = Instant::now() + self.limit;
        let access = RegionAccess { offset, region, count: from.len() as u32 };
        self.posted += 1;
        let is_answered = self.posted >= self.posted_max;
        if is_answered {
            self.posted = 0;
            if self.awaited.is_some() {
                self.receive(None, deadline)?;
            }
        }
        let flags = if is_answered { REQUEST } else { REQUEST | NO_REPLY };
        let id = self.send(Command::RegionWrite, flags, &[access.as_bytes(), from], &[], deadline)?;
        if is_answered {
            self.awaited = Some(id);
        }
        Ok(())
    }

    fn check_access(&mut self, command: Command, asked: &RegionAccess, told: &RegionAccess) -> Answer<()> {
        let fields = [
            ("the offset", asked.offset, told.offset),
            ("the region", asked.region.into(), told.region.into()),
            ("the count", asked.count.into(), told.count.into()),
        ];
        match fields.into_iter().find(|(_, asked, told)| asked != told) {
            None => Ok(()),
            Some((field, _, found)) => Err(self.malformed(command, field, found, "that of the request")),
        }
    }

    /// An answer is wrong. The connection is not used any more.
    pub(super) fn malformed(
        &mut self,
        command: Command,
        field: &'static str,
        found: u64,
        expected: &'static str,
    ) -> ServerError {
        self.fail(ServerError::Malformed { what: command.name(), field, found, expected })
    }

    fn usable(&self) -> Answer<()> {
        if !self.process.is_current() {
            return Err(ServerError::Forked);
        }
        self.fault.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Makes a request and returns the body of its answer, whose length lies in a range.
    pub(super) fn request(
        &mut self,
        command: Command,
        body: &[&[u8]],
        fds: &[BorrowedFd<'_>],
        lengths: RangeInclusive<usize>,
    ) -> Answer<&[u8]> {
        self.usable()?;
        let deadline = Instant::now() + self.limit;
        let id = self.send(command, REQUEST, body, fds, deadline)?;
        self.receive(Some((id, command)), deadline)?;
        let length = self.incoming.len();
        if lengths.contains(&length) {
            return Ok(&self.incoming);
        }
        Err(self.malformed(command, "the length of the answer", length as u64, "that of its kind"))
    }

    /// Sends a request, and returns its number.
    fn send(
        &mut self,
        command: Command,
        flags: u32,
        body: &[&[u8]],
        fds: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Answer<u16> {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let bytes = HEADER_BYTES + body.iter().map(|part| part.len()).sum::<usize>();
        let header = Header { id, command: command as u16, bytes: bytes as u32, flags, error: 0 };
        let mut outgoing = std::mem::take(&mut self.outgoing);
        outgoing.clear();
        outgoing.extend_from_slice(header.as_bytes());
        body.iter().for_each(|part| outgoing.extend_from_slice(part));
        let sent = self.send_bytes(&outgoing, fds, command.name(), deadline);
        self.outgoing = outgoing;
        sent.map(|()| id)
    }

    fn send_bytes(
        &mut self,
        mut bytes: &[u8],
        mut fds: &[BorrowedFd<'_>],
        what: &'static str,
        deadline: Instant,
    ) -> Answer<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        while !bytes.is_empty() {
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                let fits = control.push(SendAncillaryMessage::ScmRights(fds));
                assert!(fits, "no message has more than {FDS_MAX} file descriptors");
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(count) => (bytes, fds) = (&bytes[count..], &[]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, what, deadline)?,
                Err(error) => return Err(self.lost(error, what)),
            }
        }
        Ok(())
    }

    /// Receives the answer to a request, whose body is in `incoming` then, or with `None` that to a posted write. Requests of
    /// the server are refused meanwhile.
    fn receive(&mut self, asked: Option<(u16, Command)>, deadline: Instant) -> Answer<()> {
        let (id, command) = match asked {
            Some((id, command)) => (Some(id), command),
            None => (None, Command::RegionWrite),
        };
        let mut requests = 0;
        loop {
            let mut header = [0; HEADER_BYTES];
            self.receive_bytes(&mut header, command.name(), deadline)?;
            let header = Header::read_from_bytes(&header).expect("it has the size of a header");
            let is_request = header.flags & KIND == REQUEST;
            let most = if is_request { REQUEST_MAX } else { DATA_MAX + size_of::<RegionAccess>() };
            let length = usize::try_from(header.bytes).ok().and_then(|bytes| bytes.checked_sub(HEADER_BYTES));
            let Some(length) = length.filter(|&length| length <= most) else {
                let expected = "16 or more, and no more than was negotiated";
                return Err(self.malformed(
                    command,
                    "the length of a message",
                    header.bytes.into(),
                    expected,
                ));
            };
            let mut incoming = std::mem::take(&mut self.incoming);
            incoming.resize(length, 0);
            let received = self.receive_bytes(&mut incoming, command.name(), deadline);
            self.incoming = incoming;
            received?;
            if is_request {
                requests += 1;
                if requests > REQUESTS_MAX {
                    let field = "the number of requests in place of an answer";
                    return Err(self.malformed(command, field, requests.into(), "64 at most"));
                }
                self.refuse(&header, deadline)?;
                continue;
            }
            if header.flags & KIND != REPLY {
                let kind = (header.flags & KIND).into();
                return Err(self.malformed(command, "the kind of a message", kind, "0 or 1"));
            }
            let is_posted = self.awaited == Some(header.id);
            if !is_posted && id != Some(header.id) {
                return Err(self.malformed(
                    command,
                    "the number of an answer",
                    header.id.into(),
                    "that of a request",
                ));
            }
            let answered = if is_posted { Command::RegionWrite } else { command };
            if header.command != answered as u16 {
                let found = header.command.into();
                return Err(self.malformed(
                    command,
                    "the command of an answer",
                    found,
                    "that of the request",
                ));
            }
            let errno = i32::try_from(header.error).unwrap_or(0);
            let refused = match answered {
                Command::Version if errno == BUSY => ServerError::InUse { owner: line(&self.incoming) },
                _ => ServerError::Refused { what: answered.name(), errno },
            };
            let is_refused = header.flags & ERROR != 0;
            if is_posted {
                self.awaited = None;
                if is_refused {
                    self.note(refused);
                }
                if id.is_none() {
                    return Ok(());
                }
            } else {
                return if is_refused { Err(refused) } else { Ok(()) };
            }
        }
    }

    /// Refuses a request of the server: the memory of this client is mapped, not sent.
    fn refuse(&mut self, request: &Header, deadline: Instant) -> Answer<()> {
        if request.flags & NO_REPLY != 0 {
            return Ok(());
        }
        let bytes = HEADER_BYTES as u32;
        let answer = Header { bytes, flags: REPLY | ERROR, error: NOT_SUPPORTED as u32, ..*request };
        self.send_bytes(answer.as_bytes(), &[], "its own request", deadline)
    }

    fn receive_bytes(&mut self, mut into: &mut [u8], what: &'static str, deadline: Instant) -> Answer<()> {
        let start = Instant::now();
        while !into.is_empty() {
            match recv(&self.socket, &mut *into, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(self.fail(ServerError::Closed { what })),
                Ok((count, _)) => into = &mut into[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if start.elapsed() < SPIN => std::hint::spin_loop(),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, what, deadline)?,
                Err(error) => return Err(self.lost(error, what)),
            }
        }
        Ok(())
    }

    /// Waits until the socket is ready, or has ended.
    fn wait(&mut self, flags: PollFlags, what: &'static str, deadline: Instant) -> Answer<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.fail(ServerError::Stalled { what, limit: self.limit }));
        }
        let left = Timespec::try_from(left).expect("a timeout fits");
        match poll(&mut [PollFd::new(&self.socket, flags)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(self.lost(error, what)),
        }
    }

    fn lost(&mut self, error: Errno, what: &'static str) -> ServerError {
        let is_end = matches!(error, Errno::PIPE | Errno::CONNRESET);
        let why = std::io::Error::from(error).to_string();
        self.fail(if is_end { ServerError::Closed { what } } else { ServerError::Lost { what, why } })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The socket of a child that was forked is that of its parent.
        if self.process.is_current() {
            self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_is_found_in_what_servers_write() {
        for (text, expected) in [
            ("", Some(None)),
            ("{}", Some(None)),
            (r#"{"capabilities":{"max_msg_fds":1,"max_data_xfer_size":1048576}}"#, Some(Some(1))),
            (r#"{"capabilities":{"max_data_xfer_size":7, "max_msg_fds" : 16 }}"#, Some(Some(16))),
            ("{\n  \"capabilities\": {\n    \"max_msg_fds\": 8\n  }\n}\n", Some(Some(8))),
            (r#"{"capabilities":{"max_msg_fds_of_others":3}}"#, Some(None)),
            (r#"{"max_msg_fds":"8"}"#, None),
            (r#"{"max_msg_fds":-1}"#, None),
            (r#"{"max_msg_fds":99999999999999999999}"#, None),
            (r#"{"max_msg_fds"}"#, None),
            (r#"{"max_msg_fds":8"#, None),
            ("no", None),
        ] {
            assert_eq!(capability(text.as_bytes(), "max_msg_fds"), expected, "{text}");
        }
        assert_eq!(capability(&[0xff], "max_msg_fds"), None);
    }
}
