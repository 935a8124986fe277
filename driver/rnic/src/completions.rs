//! Completions for event loops and futures, of any executor.

use rnic_driver::{Completion, CompletionQueue, Device, Error, EventQueue, FunctionError};
use rnic_layout::doorbell::Arm;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time after which a future that waits looks whether the card is still there.
const CHECK: Duration = Duration::from_secs(1);

/// The completions of a queue, one after the other, without a thread that waits for them.
///
/// * For a future, [`Self::next_completion`]: any executor polls it, and a thread of this object wakes it.
/// * For an event loop, [`AsFd`]: the file descriptor is readable when [`Self::try_next`] may have something, after a call that had
///   nothing. Loops that are triggered by edges, such as those of `epoll` with `EPOLLET` and of tokio, work too.
///
/// A card that needs to be polled to make progress, such as a simulated one in this process, has nothing to wait for: the future wakes
/// itself, and the file descriptor is always readable.
///
/// The queue should have an event queue with a vector of its own ([`EndpointOptions::vector`](crate::EndpointOptions::vector)): what
/// shares a vector takes the interrupts of each other.
///
/// ```no_run
/// # async fn next(end: rnic::Endpoint, card: &rnic::Card) -> Result<(), rnic::Error> {
/// let (mut queue_pair, queue, domain) = end.into_parts();
/// let mut completions = rnic::Completions::new(&card.device, queue)?;
/// queue_pair.post_send(rnic::SendRequest::send(1).inline(b"hello").signalled())?;
/// completions.next_completion().await?.check()?;
/// # Ok(())
/// # }
/// ```
pub struct Completions {
    queue: CompletionQueue,
    events: EventQueue,
    device: Device,
    source: Source,
    /// When the card was last known to be there.
    checked: Instant,
}

/// What tells that there may be a completion.
enum Source {
    /// The interrupt of the event queue, and the thread that waits for it once a future does.
    Interrupt(Option<Waiter>),
    /// Nothing: the card needs to be polled. The eventfd is for event loops.
    Polled(OwnedFd),
}

impl Completions {
    /// Takes the completions of a queue of this card. Nobody else should poll it.
    ///
    /// # Errors
    ///
    /// A failure of the back end, or no file descriptor is left.
    pub fn new(device: &Device, queue: CompletionQueue) -> Result<Self, Error> {
        let events = queue.events().clone();
        let source = match events.interrupt_fd()? {
            Some(_) => Source::Interrupt(None),
            None => Source::Polled(counter()?),
        };
        Ok(Self { queue, events, device: device.clone(), source, checked: Instant::now() })
    }

    /// The queue.
    pub fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// Takes a completion. If there is none, the file descriptor becomes readable when there may be one.
    ///
    /// # Errors
    ///
    /// If the queue has failed, or a failure of the back end.
    pub fn try_next(&mut self) -> Result<Option<Completion>, Error> {
        loop {
            if let Some(completion) = self.queue.poll_one()? {
                return Ok(Some(completion));
            }
            if let Source::Polled(counter) = &self.source {
                // An edge for the loops that wait for one.
                rustix::io::write(counter, &1u64.to_ne_bytes()).map_err(back_end)?;
                return Ok(None);
            }
            self.events.take_interrupt()?;
            self.queue.arm(Arm::Next);
            if let Some(completion) = self.queue.poll_one()? {
                return Ok(Some(completion));
            }
            self.events.arm();
            // Another thread may have read the event before the interrupt was asked for.
            if !self.queue.is_signalled()? {
                return Ok(None);
            }
        }
    }

    /// Waits for a completion. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    ///
    /// As [`Self::try_next`], or the card has gone.
    pub fn next_completion(&mut self) -> impl Future<Output = Result<Completion, Error>> + Send + '_ {
        std::future::poll_fn(|context| self.poll_next(context))
    }

    /// Takes a completion, or has the waker of `context` woken when there may be one.
    ///
    /// # Errors
    ///
    /// As [`Self::next_completion`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Completion, Error>> {
        match self.try_next() {
            Ok(Some(completion)) => return Poll::Ready(Ok(completion)),
            Ok(None) => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        match self.wake(context.waker()) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Has the waker woken when there may be a completion.
    fn wake(&mut self, waker: &Waker) -> Result<(), Error> {
        let Source::Interrupt(waiter) = &mut self.source else {
            waker.wake_by_ref();
            return Ok(());
        };
        if self.checked.elapsed() >= CHECK {
            self.device.check()?;
            self.checked = Instant::now();
        }
        let waiter = match waiter {
            Some(waiter) => waiter,
            None => waiter.insert(Waiter::start(&self.events)?),
        };
        waiter.wake(waker)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Polled(counter) => counter.as_fd(),
            Source::Interrupt(_) => interrupt(&self.events),
        }
    }
}

impl AsFd for Completions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

impl AsRawFd for Completions {
    fn as_raw_fd(&self) -> RawFd {
        self.fd().as_raw_fd()
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completions").field(&self.queue).finish()
    }
}

/// The file descriptor of an event queue that has shown one before.
fn interrupt(events: &EventQueue) -> BorrowedFd<'_> {
    events.interrupt_fd().ok().flatten().expect("a vector keeps its file descriptor")
}

fn counter() -> Result<OwnedFd, Error> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(back_end)
}

fn back_end(error: rustix::io::Errno) -> Error {
    FunctionError::from(io::Error::from(error)).into()
}

/// A thread that wakes a future when the interrupt comes.
struct Waiter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Whom the next interrupt wakes.
    waker: Mutex<Option<Waker>>,
    /// Counts what the thread is to look at.
    bell: OwnedFd,
    has_ended: AtomicBool,
}

impl Shared {
    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) -> Result<(), Error> {
        match rustix::io::write(&self.bell, &1u64.to_ne_bytes()) {
            // It has been rung often enough.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(back_end(error)),
        }
    }

    /// Wakes the futures that ask for it, until the end.
    fn run(&self, events: &EventQueue) {
        let interrupt = interrupt(events);
        let limit = Timespec::try_from(CHECK).ok();
        while !self.has_ended.load(Ordering::Acquire) {
            let _ = rustix::io::read(&self.bell, &mut [0u8; 8][..]);
            let is_wanted = self.waker().is_some();
            let mut fds = [PollFd::new(&self.bell, PollFlags::IN), PollFd::new(&interrupt, PollFlags::IN)];
            // A wait for nobody has no limit, and no interrupt ends it.
            let (count, limit) = if is_wanted { (2, limit.as_ref()) } else { (1, None) };
            let is_over = poll(&mut fds[..count], limit) == Ok(0);
            if (is_over || is_wanted && !fds[1].revents().is_empty())
                && let Some(waker) = self.waker().take()
            {
                waker.wake();
            }
        }
    }
}

impl Waiter {
    fn start(events: &EventQueue) -> Result<Self, Error> {
        let shared =
            Arc::new(Shared { waker: Mutex::new(None), bell: counter()?, has_ended: AtomicBool::new(false) });
        let (of_thread, events) = (Arc::clone(&shared), events.clone());
        let thread = thread::Builder::new()
            .name("rnic completions".into())
            .spawn(move || of_thread.run(&events))
            .map_err(FunctionError::from)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Wakes this waker with the next interrupt, and no other one.
    fn wake(&self, waker: &Waker) -> Result<(), Error> {
        *self.shared.waker() = Some(waker.clone());
        self.shared.ring()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Release);
        if self.shared.ring().is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}
