//! A station whose frames come from another process, over a Unix socket that keeps the boundaries of messages (`SEQPACKET`), or
//! from the kernel, over a [TAP device](super::tap).
//!
//! A datagram is a frame from the Ethernet header on, without FCS; an empty one is none. The other end sends when it likes, in its
//! own time. It is a wire and no more: nobody waits for it. Frames that it does not take in time are lost, as are all while nobody is
//! there. A process that has left and comes back is connected again, which takes wall-clock time only: see
//! [`Station::attend`]. For a process whose turns belong to the run, see [`super::socket`].
use super::{Frame, Station, tap};
use crate::socket_file::{Listening, address, socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, connect, recv, send};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum length of a frame on the socket: more than a card accepts, so that a process can send too much.
const FRAME_BYTES_MAX: usize = 16 << 10;
/// Frames that are taken from the socket at once.
const FRAMES_MAX: usize = 64;
/// Simulated time between two looks at the socket.
const LOOK_PS: u64 = 1_000_000;
/// Wall-clock time between two looks whether the other end has left or come back.
const RETRY: Duration = Duration::from_millis(50);
/// Remarks, which are made when the other end comes and goes; later ones are not.
const REMARKS_MAX: usize = 32;

/// How the other end is found, and found again.
#[derive(Debug)]
enum Far {
    /// It was there from the beginning, and is not found again.
    Given,
    /// A process listens at this path.
    Callee(PathBuf),
    /// A process connects to this socket.
    Caller(Listening),
    /// A TAP device of this name.
    Tap(String),
}

/// The station.
#[derive(Debug)]
pub struct Datagrams {
    socket: Option<OwnedFd>,
    far: Far,
    waiting: VecDeque<Frame>,
    next_ps: u64,
    lost: u64,
    /// The other end was there before.
    was_connected: bool,
    remarks: VecDeque<String>,
    remarked: usize,
}

impl Datagrams {
    /// Makes a station of a connected socket.
    ///
    /// # Errors
    /// If the socket cannot be made non-blocking.
    pub fn new(socket: OwnedFd) -> io::Result<Datagrams> {
        let mut station = Datagrams::alone(Far::Given);
        station.plug(socket)?;
        Ok(station)
    }

    /// Opens a TAP device by its name.
    ///
    /// # Errors
    /// A [`TapError`](tap::TapError) that says what to do.
    pub fn tap(name: &str) -> Result<Datagrams, tap::TapError> {
        let mut station = Datagrams::alone(Far::Tap(name.to_string()));
        let plugged = station.plug(tap::open(name)?);
        plugged.map_err(|error| tap::TapError::Io { name: name.to_string(), error })?;
        Ok(station)
    }

    /// Connects to a process that listens at a path.
    ///
    /// # Errors
    /// If nobody does.
    pub fn connect(path: &Path) -> io::Result<Datagrams> {
        let mut station = Datagrams::alone(Far::Callee(path.to_path_buf()));
        station.find()?;
        Ok(station)
    }

    /// Listens at a path. The first process that connects is the other end, and the next one when that has left.
    ///
    /// # Errors
    /// If the path is in use.
    pub fn listen(path: &Path) -> io::Result<Datagrams> {
        Ok(Datagrams::alone(Far::Caller(Listening::at(path, SocketType::SEQPACKET)?)))
    }

    fn alone(far: Far) -> Datagrams {
        Datagrams {
            socket: None,
            far,
            waiting: VecDeque::new(),
            next_ps: 0,
            lost: 0,
            was_connected: false,
            remarks: VecDeque::new(),
            remarked: 0,
        }
    }

    fn plug(&mut self, socket: OwnedFd) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        self.socket = Some(socket);
        if std::mem::replace(&mut self.was_connected, true) {
            self.say("is connected again");
        }
        Ok(())
    }

    /// Looks for the other end.
    fn find(&mut self) -> io::Result<()> {
        let found = match &self.far {
            Far::Given => return Ok(()),
            Far::Callee(path) => {
                let socket = socket(SocketType::SEQPACKET)?;
                connect(&socket, &address(path)?)?;
                socket
            }
            Far::Caller(listening) => accept_with(listening, SocketFlags::CLOEXEC)?,
            // A device that somebody has removed is not made again.
            Far::Tap(name) if !tap::exists(name) => return Err(Errno::NODEV.into()),
            Far::Tap(name) => tap::open(name).map_err(io::Error::other)?,
        };
        self.plug(found)
    }

    /// Returns whether the other end is there.
    pub fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Frames that the other end has not taken.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn say(&mut self, what: &str) {
        let name = match &self.far {
            Far::Given => "the process".to_string(),
            Far::Callee(path) => path.display().to_string(),
            Far::Caller(listening) => listening.path().display().to_string(),
            Far::Tap(name) => name.clone(),
        };
        self.remarked += 1;
        if self.remarked <= REMARKS_MAX {
            self.remarks.push_back(format!("the other end of the wire, {name}, {what}"));
        }
    }

    fn leave(&mut self) {
        self.socket = None;
        self.say("has left; frames to it are lost");
    }

    /// Takes frames that have come.
    fn look(&mut self) {
        let mut bytes = [0; FRAME_BYTES_MAX];
        for _ in 0..FRAMES_MAX {
            let Some(socket) = &self.socket else { return };
            let received = match self.far {
                Far::Tap(_) => rustix::io::read(socket, &mut bytes),
                _ => recv(socket, &mut bytes, RecvFlags::empty()).map(|(count, _)| count),
            };
            match received {
                // An empty datagram, or the end.
                Ok(0) if !is_at_end(socket) => {}
                Ok(0) => return self.leave(),
                Ok(count) => self.waiting.push_back(Frame::new(bytes[..count].to_vec())),
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => return self.leave(),
            }
        }
    }
}

/// Returns whether nothing is left to read at a socket, and nothing will come.
fn is_at_end(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_polled = poll(&mut fds, Some(&at_once)).is_ok();
    let is_over = is_polled && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
    is_over && rustix::io::ioctl_fionread(socket).unwrap_or(0) == 0
}

impl Station for Datagrams {
    fn receive(&mut self, _now_ps: u64, frame: &Frame) {
        // A damaged frame ends at the receiver's MAC, which another process has not.
        let send = |socket: &OwnedFd| match self.far {
            // An interface that is switched off takes none.
            Far::Tap(_) => rustix::io::write(socket, &frame.bytes).is_ok(),
            _ => send(socket, &frame.bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok(),
        };
        let is_sent = !frame.is_damaged && self.socket.as_ref().is_some_and(send);
        self.lost += u64::from(!is_sent);
    }

    fn wakes_ps(&self) -> Option<u64> {
        match (self.waiting.is_empty(), &self.socket) {
            (false, _) => Some(0),
            (true, Some(_)) => Some(self.next_ps),
            (true, None) => None,
        }
    }

    fn transmit(&mut self, now_ps: u64) -> Option<Frame> {
        if self.waiting.is_empty() && self.next_ps <= now_ps {
            self.next_ps = now_ps + LOOK_PS;
            self.look();
        }
        self.waiting.pop_front()
    }

    fn handle(&self) -> Option<BorrowedFd<'_>> {
        match (&self.socket, &self.far) {
            (Some(socket), _) => Some(socket.as_fd()),
            (None, Far::Caller(listening)) => Some(listening.as_fd()),
            (None, _) => None,
        }
    }

    fn attend(&mut self, now: Instant) -> Option<Instant> {
        if self.socket.as_ref().is_some_and(is_at_end) {
            self.leave();
        }
        if self.socket.is_none() {
            // Whoever is not there now may be at the next call.
            let _ = self.find();
        }
        // The end may be noticed between two calls, in a look for frames.
        (!matches!(self.far, Far::Given)).then(|| now + RETRY)
    }

    fn remark(&mut self) -> Option<String> {
        self.remarks.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, socketpair};

    fn pair() -> (Datagrams, OwnedFd) {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        (Datagrams::new(ours).unwrap(), theirs)
    }

    #[test]
    fn a_datagram_is_a_frame_in_both_directions() {
        let (mut station, theirs) = pair();
        let frame = Frame::new((0..100).collect());
        station.receive(0, &frame);
        station.receive(0, &Frame { is_damaged: true, ..frame.clone() });
        let mut bytes = [0; 200];
        let (count, _) = recv(&theirs, &mut bytes, RecvFlags::empty()).unwrap();
        assert_eq!((&bytes[..count], station.lost()), (&frame.bytes[..], 1));
        assert_eq!(recv(&theirs, &mut bytes, RecvFlags::DONTWAIT), Err(Errno::AGAIN));
        for length in [100, 14] {
            send(&theirs, &frame.bytes[..length], SendFlags::empty()).unwrap();
        }
        assert_eq!(station.transmit(0), Some(frame.clone()));
        assert_eq!(station.wakes_ps(), Some(0));
        assert_eq!(station.transmit(0), Some(Frame::new(frame.bytes[..14].to_vec())), "it is padded");
        assert_eq!((station.transmit(0), station.wakes_ps()), (None, Some(LOOK_PS)));
    }

    #[test]
    fn a_process_that_takes_nothing_or_leaves_loses_its_frames() {
        let (mut station, theirs) = pair();
        let frame = Frame::new(vec![0; 4000]);
        (0..10_000).for_each(|_| station.receive(0, &frame));
        let lost = station.lost();
        assert!((1..10_000).contains(&lost), "{lost}");
        drop(theirs);
        assert_eq!((station.transmit(0), station.wakes_ps()), (None, None));
        station.receive(0, &frame);
        assert_eq!(station.lost(), lost + 1);
        assert!(station.handle().is_none());
        assert!(station.remark().unwrap().contains("has left") && station.remark().is_none(), "said once");
        station.attend(Instant::now());
        assert!(!station.is_connected(), "a socket that was given is not found again");
    }

    #[test]
    fn an_empty_datagram_is_no_frame_and_not_the_end() {
        let (mut station, theirs) = pair();
        let frame = Frame::new(vec![7; 80]);
        for bytes in [&[][..], &frame.bytes, &[], &[]] {
            send(&theirs, bytes, SendFlags::empty()).unwrap();
        }
        assert_eq!((station.transmit(0), station.transmit(LOOK_PS)), (Some(frame.clone()), None));
        assert!(station.is_connected() && station.remark().is_none());
        // What was sent before the end is received.
        for bytes in [&[][..], &frame.bytes] {
            send(&theirs, bytes, SendFlags::empty()).unwrap();
        }
        drop(theirs);
        station.attend(Instant::now());
        assert_eq!((station.transmit(2 * LOOK_PS), station.transmit(3 * LOOK_PS)), (Some(frame), None));
        assert!(!station.is_connected());
    }

    /// Each is found by the other again, whichever has left.
    #[test]
    fn two_processes_find_each_other_by_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wire");
        assert!(Datagrams::connect(&path).is_err(), "nobody listens");
        let mut callee = Datagrams::listen(&path).unwrap();
        let mut caller = Datagrams::connect(&path).unwrap();
        let frame = Frame::new(vec![7; 80]);
        let mut now_ps = 0;
        for round in 0..3 {
            callee.attend(Instant::now());
            caller.receive(0, &frame);
            assert_eq!(callee.transmit(now_ps), Some(frame.clone()), "{round}");
            now_ps += 2 * LOOK_PS;
            if round == 0 {
                caller = Datagrams::connect(&path).unwrap();
            } else {
                drop(callee);
                let now = Instant::now();
                assert_eq!(caller.attend(now), Some(now + RETRY));
                assert!(!caller.is_connected(), "nobody listens");
                callee = Datagrams::listen(&path).unwrap();
                caller.attend(now);
                let said: Vec<String> = std::iter::from_fn(|| caller.remark()).collect();
                assert!(said[0].contains("has left") && said[1].contains("is connected again"), "{said:?}");
            }
        }
        drop(callee);
        assert!(!path.exists());
    }
}
