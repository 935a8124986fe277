//! Queues behind a file descriptor that is readable while something is in them, so that a program can wait for it with `poll`.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A queue between threads. Its file descriptor counts the items.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    fd: OwnedFd,
    items: Mutex<VecDeque<T>>,
}

/// Locks a mutex. A thread that has panicked has ended the process.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Fifo<T> {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC;
        Ok(Self { fd: eventfd(0, flags)?, items: Mutex::default() })
    }

    /// The file descriptor. A program may make it non-blocking.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn push(&self, item: T) {
        lock(&self.items).push_back(item);
        // The count of an eventfd has room for more items than memory has.
        let _ = write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Takes the oldest item. Waits for one unless the file descriptor is non-blocking.
    ///
    /// # Errors
    ///
    /// The errno of the read: `EAGAIN`, or `EINTR` after a signal.
    pub(crate) fn pop(&self) -> Result<T, c_int> {
        loop {
            read(&self.fd, &mut [0; 8]).map_err(|error| error.raw_os_error())?;
            // An item that was removed is still counted.
            if let Some(item) = lock(&self.items).pop_front() {
                return Ok(item);
            }
        }
    }

    /// Removes the items that `is_stale` names.
    pub(crate) fn remove(&self, is_stale: impl Fn(&T) -> bool) {
        lock(&self.items).retain(|item| !is_stale(item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::ioctl_fionbio;

    #[test]
    fn items_come_in_order_and_the_descriptor_counts_them() {
        let fifo = Fifo::new().unwrap();
        ioctl_fionbio(&fifo.fd, true).unwrap();
        assert_eq!(fifo.pop(), Err(libc::EAGAIN));
        (1..=3).for_each(|item| fifo.push(item));
        fifo.remove(|&item| item == 2);
        assert_eq!([fifo.pop(), fifo.pop(), fifo.pop()], [Ok(1), Ok(3), Err(libc::EAGAIN)]);
    }
}
