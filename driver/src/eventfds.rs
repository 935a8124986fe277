//! Interrupt vectors as eventfds, which the kernel or a server counts up.

use crate::function::FunctionError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Longest single sleep, where the time does not fit what the operating system takes.
const SLEEP_MAX: Timespec = Timespec { tv_sec: 3600, tv_nsec: 0 };

/// One eventfd for each vector.
pub(crate) struct Eventfds(Vec<OwnedFd>);

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The vector may have an interrupt, or the time is over.
    Vector,
    /// The other end of the connection is closed.
    Closed,
}

impl Eventfds {
    /// Makes eventfds that do not block, at zero.
    pub(crate) fn new(count: u32) -> io::Result<Self> {
        let make = |_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self((0..count).map(make).collect::<Result<_, _>>()?))
    }

    /// All of them, in the order of the vectors.
    pub(crate) fn all(&self) -> &[OwnedFd] {
        &self.0
    }

    /// Number of vectors.
    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Eventfd of a vector.
    pub(crate) fn get(&self, vector: u32) -> Result<BorrowedFd<'_>, FunctionError> {
        let fd = usize::try_from(vector).ok().and_then(|index| self.0.get(index));
        fd.map(AsFd::as_fd).ok_or(FunctionError::NoVector { vector })
    }

    /// Returns true once for the interrupts of a vector since the last call.
    pub(crate) fn take(&self, vector: u32) -> Result<bool, FunctionError> {
        match rustix::io::read(self.get(vector)?, &mut [0u8; 8]) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Sleeps until a vector has an interrupt, a time is over, or `connection` is closed, whose end is reported without being
    /// asked for.
    pub(crate) fn sleep(
        &self,
        vector: u32,
        time: Duration,
        connection: Option<BorrowedFd<'_>>,
    ) -> Result<Woken, FunctionError> {
        let vector = PollFd::from_borrowed_fd(self.get(vector)?, PollFlags::IN);
        let connection = connection.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::RDHUP));
        let mut fds: Vec<PollFd<'_>> = Some(vector).into_iter().chain(connection).collect();
        let time = Timespec::try_from(time).unwrap_or(SLEEP_MAX);
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let is_closed = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        Ok(if is_closed { Woken::Closed } else { Woken::Vector })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    const SOON: Duration = Duration::from_millis(5);
    const LATE: Duration = Duration::from_secs(60);

    fn raise(fds: &Eventfds, vector: u32) {
        rustix::io::write(fds.get(vector).unwrap(), &1u64.to_ne_bytes()).unwrap();
    }

    #[test]
    fn interrupts_are_taken_once_by_vector() {
        let fds = Eventfds::new(2).unwrap();
        assert_eq!((fds.count(), fds.all().len()), (2, 2));
        raise(&fds, 1);
        raise(&fds, 1);
        assert!(!fds.take(0).unwrap());
        assert!(fds.take(1).unwrap() && !fds.take(1).unwrap());
        assert!(matches!(fds.take(2), Err(FunctionError::NoVector { vector: 2 })));
        assert!(matches!(fds.sleep(u32::MAX, SOON, None), Err(FunctionError::NoVector { .. })));
    }

    #[test]
    fn a_sleep_ends_with_an_interrupt_the_time_or_the_connection() {
        let fds = Eventfds::new(1).unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        assert_eq!(fds.sleep(0, SOON, Some(here.as_fd())).unwrap(), Woken::Vector, "the time is over");
        raise(&fds, 0);
        assert_eq!(fds.sleep(0, LATE, Some(here.as_fd())).unwrap(), Woken::Vector);
        assert!(fds.take(0).unwrap());
        drop(there);
        assert_eq!(fds.sleep(0, LATE, Some(here.as_fd())).unwrap(), Woken::Closed);
    }
}
