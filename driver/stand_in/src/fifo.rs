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
pub struct Fifo<T> {
    fd: OwnedFd,
    items: Mutex<VecDeque<T>>,
}

/// Locks a mutex. A thread that has panicked has ended the process.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Fifo<T> {
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// No file descriptor is left.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC;
        Ok(Self { fd: eventfd(0, flags)?, items: Mutex::default() })
    }

    /// The file descriptor. A program may make it non-blocking.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Adds an item.
    pub fn push(&self, item: T) {
        lock(&self.items).push_back(item);
        // The count of an eventfd has room for more items than memory has.
        let _ = write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Takes the oldest item. Waits for one unless the file descriptor is non-blocking.
    ///
    /// # Errors
    ///
    /// The errno of the read: `EAGAIN`, or `EINTR` after a signal.
    pub fn pop(&self) -> Result<T, c_int> {
        self.pop_noted(|_| ())
    }

    /// As [`Self::pop`]. `note` sees the item before anybody can find that it is not in the queue.
    ///
    /// # Errors
    ///
    /// As for [`Self::pop`].
    pub fn pop_noted(&self, note: impl Fn(&T)) -> Result<T, c_int> {
        loop {
            read(&self.fd, &mut [0; 8]).map_err(|error| error.raw_os_error())?;
            let mut items = lock(&self.items);
            // An item that was removed is still counted.
            if let Some(item) = items.pop_front() {
                note(&item);
                return Ok(item);
            }
        }
    }

    /// Whether no item is there.
    pub fn is_empty(&self) -> bool {
        lock(&self.items).is_empty()
    }

    /// Removes the items that `is_stale` names, and returns them.
    pub fn remove(&self, is_stale: impl Fn(&T) -> bool) -> VecDeque<T> {
        let mut items = lock(&self.items);
        let (removed, kept) = items.drain(..).partition(is_stale);
        *items = kept;
        removed
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
        assert_eq!(fifo.remove(|&item| item == 2), [2]);
        assert_eq!([fifo.pop(), fifo.pop(), fifo.pop()], [Ok(1), Ok(3), Err(libc::EAGAIN)]);
    }
}
