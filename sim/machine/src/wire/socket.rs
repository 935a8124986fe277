//! A foreign peer: a station whose frames come from another process, over a Unix stream socket.
//!
//! ```text
//!   World ── frame ──> Socket ── message ──> Unix socket ──> process: an endpoint of its own, a bridge to a TAP device, a tool
//!   World <── frame ── Socket <── message ── thread <─────── process
//! ```
//!
//! A message is its length in four bytes, most significant first, and that many bytes: a frame from the Ethernet header on, without
//! FCS. A message of length 0 is a **turn**; eight bytes with the simulated time in picoseconds follow, most significant first.
//!
//! * With [`Pace::Turns`] the process speaks when it is asked. After each frame, and after each span of simulated time, the station
//!   sends a turn and waits until the process has sent all its frames and the same turn. The run then depends on nothing but the
//!   seed and the process: a process that is deterministic makes a run that can be repeated.
//! * With [`Pace::Free`] the process sends frames when it likes, and receives no turns. Simulated time advances meanwhile, so that
//!   two runs differ in the times at which its frames arrive, and its timers run in another time than those of the card. This is for
//!   a process that was not written for this socket, such as a bridge to a kernel.
//!
//! A process that ends, that does not end its turn in time, or that breaks the format is a [`SocketError`], which
//! [`World::check`](crate::world::World::check) reports.
use super::{Frame, Station};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Maximum length of a frame on the socket: more than a card accepts, so that a process can send too much.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Messages that wait between the thread and the station.
const MESSAGES_WAITING: usize = 1024;

/// What goes over the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A frame.
    Frame(Vec<u8>),
    /// A turn: the station asks for frames; the process has sent all it has.
    Turn {
        /// Simulated time; the process returns the value that it has received.
        now_ps: u64,
    },
}

impl Message {
    /// Reads a message; `None` if the other side has closed the socket.
    ///
    /// # Errors
    /// If the socket fails or ends in a message, or a frame has more than [`MESSAGE_BYTES_MAX`].
    pub fn read(from: &mut impl Read) -> io::Result<Option<Message>> {
        let mut length = [0; 4];
        // The first byte tells the end of the stream from one in the middle of a message.
        if from.read(&mut length[..1])? == 0 {
            return Ok(None);
        }
        from.read_exact(&mut length[1..])?;
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 {
            let mut now_ps = [0; 8];
            from.read_exact(&mut now_ps)?;
            return Ok(Some(Message::Turn { now_ps: u64::from_be_bytes(now_ps) }));
        }
        if length > MESSAGE_BYTES_MAX {
            let text = format!("a frame of {length} bytes; at most {MESSAGE_BYTES_MAX} are allowed");
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes)?;
        Ok(Some(Message::Frame(bytes)))
    }

    /// Writes a message in one piece.
    ///
    /// # Errors
    /// If the socket fails.
    ///
    /// # Panics
    /// If a frame is empty or has more than [`MESSAGE_BYTES_MAX`].
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut all = Vec::new();
        match self {
            Message::Frame(bytes) => {
                assert!((1..=MESSAGE_BYTES_MAX).contains(&bytes.len()), "a frame of {} bytes", bytes.len());
                all.extend((bytes.len() as u32).to_be_bytes());
                all.extend_from_slice(bytes);
            }
            Message::Turn { now_ps } => {
                all.extend([0; 4]);
                all.extend(now_ps.to_be_bytes());
            }
        }
        to.write_all(&all)
    }
}

/// How simulated time and the process wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The process sends frames in its turns only, which it gets after each frame and after each span of simulated time.
    Turns {
        /// Simulated time between two turns, in picoseconds.
        every_ps: u64,
    },
    /// The process sends frames when it likes.
    Free {
        /// Simulated time between two looks at the socket, in picoseconds.
        every_ps: u64,
    },
}

impl Pace {
    /// Simulated time between two turns or looks, at least one picosecond.
    fn every_ps(self) -> u64 {
        match self {
            Pace::Turns { every_ps } | Pace::Free { every_ps } => every_ps.max(1),
        }
    }
}

/// Why no more frames come from the process.
#[derive(Debug, Error)]
pub enum SocketError {
    /// The process has closed its end, or has ended.
    #[error("the foreign peer has closed its socket")]
    Closed,
    /// The process has not ended its turn, or has not taken a frame, within this wall-clock time.
    #[error("the foreign peer has not answered within {patience:?} of wall-clock time")]
    Silent {
        /// How long the station has waited.
        patience: Duration,
    },
    /// The process has ended another turn than the one it was given.
    #[error("the foreign peer has ended a turn of {found_ps} ps in that of {expected_ps} ps")]
    WrongTurn {
        /// Time of the turn that it has ended.
        found_ps: u64,
        /// Time of the turn that it has.
        expected_ps: u64,
    },
    /// The process has sent a turn although it takes none.
    #[error("the foreign peer has sent a turn at a free pace")]
    UnaskedTurn,
    /// The socket fails, or what the process sends breaks the format.
    #[error("the socket of the foreign peer: {0}")]
    Io(io::Error),
}

// The text has its cause already, so that the cause is not a source, which a chain of errors would print again.
impl From<io::Error> for SocketError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The station.
#[derive(Debug)]
pub struct Socket {
    stream: UnixStream,
    incoming: Receiver<Result<Message, SocketError>>,
    waiting: VecDeque<Frame>,
    pace: Pace,
    patience: Duration,
    next_ps: u64,
    error: Option<SocketError>,
}

impl Socket {
    /// Makes a station of a connected socket. `patience` bounds each wait for the process, in wall-clock time.
    ///
    /// # Errors
    /// If the socket cannot be duplicated, or does not take a timeout.
    pub fn new(stream: UnixStream, pace: Pace, patience: Duration) -> io::Result<Socket> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(patience))?;
        let reader = stream.try_clone()?;
        let (sender, incoming) = sync_channel(MESSAGES_WAITING);
        thread::Builder::new().name("foreign peer".into()).spawn(move || listen(reader, &sender))?;
        Ok(Socket { stream, incoming, waiting: VecDeque::new(), pace, patience, next_ps: 0, error: None })
    }

    /// Why the station has fallen silent, if it has.
    pub fn error(&self) -> Option<&SocketError> {
        self.error.as_ref()
    }

    fn say(&mut self, message: &Message) -> Result<(), SocketError> {
        let patience = self.patience;
        message.write(&mut self.stream).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => SocketError::Silent { patience },
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => SocketError::Closed,
            _ => SocketError::Io(error),
        })
    }

    /// Gives the process a turn, and takes its frames.
    fn turn(&mut self, now_ps: u64) -> Result<(), SocketError> {
        self.say(&Message::Turn { now_ps })?;
        let end = Instant::now() + self.patience;
        let silent = SocketError::Silent { patience: self.patience };
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // A process that sends frames without end would always have one more.
                return Err(silent);
            }
            let message = match self.incoming.recv_timeout(left) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => return Err(silent),
                Err(RecvTimeoutError::Disconnected) => return Err(SocketError::Closed),
            };
            match message? {
                Message::Frame(bytes) => self.waiting.push_back(Frame::new(bytes)),
                Message::Turn { now_ps: found_ps } if found_ps == now_ps => return Ok(()),
                Message::Turn { now_ps: found_ps } => {
                    return Err(SocketError::WrongTurn { found_ps, expected_ps: now_ps });
                }
            }
        }
    }

    /// Takes frames that the process has sent so far; what it sends meanwhile may be left for the next look.
    fn look(&mut self) -> Result<(), SocketError> {
        for _ in 0..MESSAGES_WAITING {
            match self.incoming.try_recv() {
                Ok(Ok(Message::Frame(bytes))) => self.waiting.push_back(Frame::new(bytes)),
                Ok(Ok(Message::Turn { .. })) => return Err(SocketError::UnaskedTurn),
                Ok(Err(error)) => return Err(error),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(SocketError::Closed),
            }
        }
        Ok(())
    }

    fn meet(&mut self, now_ps: u64) -> Result<(), SocketError> {
        self.next_ps = now_ps + self.pace.every_ps();
        match self.pace {
            Pace::Turns { .. } => self.turn(now_ps),
            Pace::Free { .. } => self.look(),
        }
    }
}

/// Reads messages until the socket ends.
fn listen(mut stream: UnixStream, to: &SyncSender<Result<Message, SocketError>>) {
    loop {
        let message = match Message::read(&mut stream) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(SocketError::Closed),
            Err(error) => Err(SocketError::Io(error)),
        };
        let is_last = message.is_err();
        if to.send(message).is_err() || is_last {
            return;
        }
    }
}

impl Station for Socket {
    fn receive(&mut self, now_ps: u64, frame: &Frame) {
        if self.error.is_some() {
            return;
        }
        let mut outcome = self.say(&Message::Frame(frame.bytes.clone()));
        if outcome.is_ok() && matches!(self.pace, Pace::Turns { .. }) {
            outcome = self.meet(now_ps);
        }
        self.error = outcome.err();
    }

    fn wakes_ps(&self) -> Option<u64> {
        match (self.waiting.is_empty(), &self.error) {
            (false, _) => Some(0),
            (true, None) => Some(self.next_ps),
            (true, Some(_)) => None,
        }
    }

    fn transmit(&mut self, now_ps: u64) -> Option<Frame> {
        if self.waiting.is_empty() && self.error.is_none() && self.next_ps <= now_ps {
            self.error = self.meet(now_ps).err();
        }
        self.waiting.pop_front()
    }

    fn failure(&self) -> Option<String> {
        self.error.as_ref().map(ToString::to_string)
    }
}

impl Drop for Socket {
    /// Ends the thread, and tells the process that the run is over.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Plays the process's side of [`Pace::Turns`] until the station closes the socket: `hear` receives each frame, and `speak`
/// returns the frames of each turn.
///
/// # Errors
/// If the socket fails in the middle of a message.
pub fn take_turns<T>(
    stream: &mut UnixStream,
    peer: &mut T,
    mut hear: impl FnMut(&mut T, &[u8]),
    mut speak: impl FnMut(&mut T, u64) -> Vec<Vec<u8>>,
) -> io::Result<()> {
    while let Some(message) = Message::read(stream)? {
        match message {
            Message::Frame(bytes) => hear(peer, &bytes),
            Message::Turn { now_ps } => {
                for frame in speak(peer, now_ps) {
                    Message::Frame(frame).write(stream)?;
                }
                Message::Turn { now_ps }.write(stream)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(50);
    const TURNS: Pace = Pace::Turns { every_ps: 1000 };
    const FREE: Pace = Pace::Free { every_ps: 1000 };

    fn station(pace: Pace, patience: Duration) -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Socket::new(ours, pace, patience).unwrap(), theirs)
    }

    fn frame(number: u8) -> Frame {
        Frame::new(vec![number; 64])
    }

    #[test]
    fn messages_survive_the_socket() {
        let messages = [
            Message::Frame(vec![7]),
            Message::Turn { now_ps: 0x0102_0304_0506_0708 },
            Message::Frame(vec![9; MESSAGE_BYTES_MAX]),
        ];
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| message.write(&mut bytes).unwrap());
        assert_eq!(bytes[..17], [0, 0, 0, 1, 7, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let mut rest = &bytes[..];
        for message in messages {
            assert_eq!(Message::read(&mut rest).unwrap(), Some(message));
        }
        assert_eq!(Message::read(&mut rest).unwrap(), None);
        // Cut in the length, in a turn, and in a frame.
        for cut in [2, 9, bytes.len() - 1] {
            let mut rest = &bytes[..cut];
            let error = std::iter::repeat_with(|| Message::read(&mut rest)).find_map(Result::err);
            assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::UnexpectedEof), "{cut}");
        }
        let long = (MESSAGE_BYTES_MAX as u32 + 1).to_be_bytes();
        assert_eq!(Message::read(&mut &long[..]).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_process_speaks_in_its_turns() {
        let (mut station, mut stream) = station(TURNS, PATIENCE);
        // It answers each frame with two that are one larger, and says in each turn how often it was asked.
        let process = thread::spawn(move || {
            let mut heard: Vec<u8> = Vec::new();
            let mut turns = Vec::new();
            let speak = |heard: &mut Vec<u8>, now_ps: u64| {
                turns.push(now_ps);
                heard.drain(..).flat_map(|number| [vec![number + 1; 64], vec![number + 2; 64]]).collect()
            };
            take_turns(&mut stream, &mut heard, |heard, bytes| heard.push(bytes[0]), speak).unwrap();
            turns
        });
        assert_eq!(station.wakes_ps(), Some(0));
        assert_eq!(station.transmit(5), None, "nothing was said yet");
        assert_eq!(station.wakes_ps(), Some(1005));
        station.receive(700, &frame(3));
        assert_eq!(station.wakes_ps(), Some(0));
        assert_eq!([station.transmit(710), station.transmit(720)], [Some(frame(4)), Some(frame(5))]);
        assert_eq!(station.wakes_ps(), Some(1700), "a frame is a turn, too");
        assert_eq!(station.transmit(800), None, "it is not its turn");
        assert_eq!(station.transmit(1700), None);
        assert!(station.failure().is_none());
        drop(station);
        assert_eq!(process.join().unwrap(), [5, 700, 1700]);
    }

    #[test]
    fn a_process_at_a_free_pace_speaks_when_it_likes() {
        let (mut station, mut stream) = station(FREE, PATIENCE);
        Message::Frame(vec![1; 64]).write(&mut stream).unwrap();
        let mut now_ps = 0;
        let mut next = || {
            // The thread needs time to read the socket; the test ends by the limit of its runner if it never does.
            loop {
                now_ps += 1000;
                if let Some(frame) = station.transmit(now_ps) {
                    return (frame, now_ps);
                }
                assert!(station.failure().is_none());
                thread::yield_now();
            }
        };
        assert_eq!(next().0, frame(1));
        station.receive(5, &frame(2));
        assert_eq!(Message::read(&mut stream).unwrap(), Some(Message::Frame(vec![2; 64])));
    }

    #[test]
    fn a_process_that_does_not_answer_ends_the_run() {
        // Its end stays open, but nobody reads it.
        let (mut station, _theirs) = station(TURNS, SHORT);
        assert_eq!(station.transmit(0), None);
        let text = station.failure().unwrap();
        assert_eq!(text, "the foreign peer has not answered within 50ms of wall-clock time");
        assert_eq!(station.wakes_ps(), None, "it is not asked again");
        station.receive(10, &frame(1));
        assert_eq!(station.failure().unwrap(), text, "the first error stays");
    }

    #[test]
    fn a_process_that_never_ends_its_turn_ends_the_run() {
        let (mut station, mut stream) = station(TURNS, SHORT);
        let flood = thread::spawn(move || while Message::Frame(vec![1; 64]).write(&mut stream).is_ok() {});
        assert!(station.transmit(0).is_some(), "what it has sent is there");
        assert!(matches!(station.error(), Some(SocketError::Silent { .. })), "{:?}", station.error());
        drop(station);
        flood.join().unwrap();
    }

    #[test]
    fn a_process_that_takes_no_frames_ends_the_run() {
        let (mut station, _theirs) = station(FREE, SHORT);
        let frames = (0..100_000).take_while(|_| {
            station.receive(0, &Frame::new(vec![1; 4000]));
            station.failure().is_none()
        });
        assert!(frames.count() > 0, "the socket has room for some");
        assert!(matches!(station.error(), Some(SocketError::Silent { .. })), "{:?}", station.error());
    }

    #[test]
    fn a_process_that_ends_ends_the_run() {
        for pace in [TURNS, FREE] {
            let (mut station, theirs) = station(pace, PATIENCE);
            drop(theirs);
            let mut now_ps = 0;
            while station.failure().is_none() {
                now_ps += 1000;
                assert_eq!(station.transmit(now_ps), None);
            }
            assert!(matches!(station.error(), Some(SocketError::Closed)), "{:?}", station.error());
        }
    }

    #[test]
    fn what_breaks_the_format_ends_the_run() {
        let said = |pace, bytes: &[u8]| {
            let (mut station, mut stream) = station(pace, PATIENCE);
            stream.write_all(bytes).unwrap();
            let mut now_ps = 0;
            while station.error().is_none() {
                now_ps += 1000;
                station.transmit(now_ps);
            }
            station.failure().unwrap()
        };
        let turn = [&[0; 4][..], &77u64.to_be_bytes()].concat();
        assert!(said(TURNS, &turn).contains("has ended a turn of 77 ps in that of"));
        assert!(said(FREE, &turn).contains("at a free pace"));
        assert!(said(TURNS, &[0xff; 4]).contains("a frame of 4294967295 bytes"));
    }
}
