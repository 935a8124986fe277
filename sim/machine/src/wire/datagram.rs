//! A station whose frames come from another process, over a Unix socket that keeps the boundaries of messages (`SEQPACKET`), or
//! from the kernel, over a [TAP device](super::tap).
//!
//! A datagram is a frame from the Ethernet header on, without FCS. The other end sends when it likes, in its own time. It is
//! a wire and no more: nobody waits for it. Frames that it does not take in time are lost, as are all when it has left. For a
//! process whose turns belong to the run, see [`super::socket`].
use super::{Frame, Station, tap};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, send, socket_with,
};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Maximum length of a frame on the socket: more than a card accepts, so that a process can send too much.
const FRAME_BYTES_MAX: usize = 16 << 10;
/// Frames that are taken from the socket at once.
const FRAMES_MAX: usize = 64;
/// Simulated time between two looks at the socket.
const LOOK_PS: u64 = 1_000_000;

/// What the datagrams cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Socket,
    Tap,
}

/// The station.
#[derive(Debug)]
pub struct Datagrams {
    socket: Option<OwnedFd>,
    medium: Medium,
    waiting: VecDeque<Frame>,
    next_ps: u64,
    lost: u64,
}

fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

impl Datagrams {
    /// Makes a station of a connected socket.
    ///
    /// # Errors
    /// If the socket cannot be made non-blocking.
    pub fn new(socket: OwnedFd) -> io::Result<Datagrams> {
        Datagrams::over(socket, Medium::Socket)
    }

    /// Opens a TAP device by its name.
    ///
    /// # Errors
    /// A [`TapError`](tap::TapError) that says what to do.
    pub fn tap(name: &str) -> Result<Datagrams, tap::TapError> {
        let device = tap::open(name)?;
        Datagrams::over(device, Medium::Tap)
            .map_err(|error| tap::TapError::Io { name: name.to_string(), error })
    }

    fn over(socket: OwnedFd, medium: Medium) -> io::Result<Datagrams> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Datagrams { socket: Some(socket), medium, waiting: VecDeque::new(), next_ps: 0, lost: 0 })
    }

    /// Connects to a process that listens at a path.
    ///
    /// # Errors
    /// If nobody does.
    pub fn connect(path: &Path) -> io::Result<Datagrams> {
        let socket = socket()?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Datagrams::new(socket)
    }

    /// Waits at a path until a process connects. The path is removed then.
    ///
    /// # Errors
    /// If the path is in use.
    pub fn listen(path: &Path) -> io::Result<Datagrams> {
        let listener = socket()?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        listen(&listener, 1)?;
        let socket = accept_with(&listener, SocketFlags::CLOEXEC);
        std::fs::remove_file(path)?;
        Datagrams::new(socket?)
    }

    /// Another handle of the socket, to wait for frames with; `None` if the other process has left.
    ///
    /// # Errors
    /// If it cannot be duplicated.
    pub fn handle(&self) -> io::Result<Option<OwnedFd>> {
        self.socket.as_ref().map(OwnedFd::try_clone).transpose()
    }

    /// Frames that the other process has not taken.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes frames that have come.
    fn look(&mut self) {
        let mut bytes = [0; FRAME_BYTES_MAX];
        for _ in 0..FRAMES_MAX {
            let Some(socket) = &self.socket else { return };
            let received = match self.medium {
                Medium::Socket => recv(socket, &mut bytes, RecvFlags::empty()).map(|(count, _)| count),
                Medium::Tap => rustix::io::read(socket, &mut bytes),
            };
            match received {
                // An empty datagram is no frame, and cannot be told from the end.
                Ok(0) => self.socket = None,
                Ok(count) => self.waiting.push_back(Frame::new(bytes[..count].to_vec())),
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => self.socket = None,
            }
        }
    }
}

impl Station for Datagrams {
    fn receive(&mut self, _now_ps: u64, frame: &Frame) {
        // A damaged frame ends at the receiver's MAC, which another process has not.
        let send = |socket: &OwnedFd| match self.medium {
            Medium::Socket => send(socket, &frame.bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok(),
            // An interface that is switched off takes none.
            Medium::Tap => rustix::io::write(socket, &frame.bytes).is_ok(),
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::socketpair;
    use std::time::{Duration, Instant};

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
        assert!(station.handle().unwrap().is_none());
    }

    #[test]
    fn two_processes_find_each_other_by_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wire");
        assert!(Datagrams::connect(&path).is_err(), "nobody listens");
        let there = path.clone();
        let listener = std::thread::spawn(move || Datagrams::listen(&there).unwrap());
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut caller =
            std::iter::from_fn(|| (Instant::now() < deadline).then(|| Datagrams::connect(&path)))
                .find_map(Result::ok);
        let mut station = listener.join().unwrap();
        let frame = Frame::new(vec![7; 80]);
        caller.as_mut().unwrap().receive(0, &frame);
        assert_eq!(station.transmit(0), Some(frame));
        assert!(!path.exists());
    }
}
