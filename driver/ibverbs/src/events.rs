//! Events of a card: a thread waits for its interrupts, and puts what has happened where the program waits for it.
//!
//! ```text
//!   interrupt ──> thread ──┬─> fifo of a completion channel ──> ibv_get_cq_event
//!                          └─> fifo of the context ───────────> ibv_get_async_event
//! ```
//!
//! 1. A completion queue raises one event for each time that it was armed. The lock of [`Notification`] orders arming and looking, so
//!    that no event is missed and none comes twice.
//! 2. The thread arms the event queue before it looks, and looks before it sleeps: what comes later raises an interrupt.
//! 3. A card that does not answer any more wakes everybody who waits, and its completion queues fail.

use crate::outcome::say;
use rnic_driver::{AsynchronousEvent, CompletionQueue, Device, Error};
use rnic_layout::doorbell::Arm;
use rnic_layout::queue::event::AsyncEvent;
use rnic_stand_in::{Fifo, lock};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest sleep of the thread, after which it looks whether the card still answers.
const SLEEP: Duration = Duration::from_secs(1);
/// The same without interrupts, when the thread has to look.
const SLEEP_WITHOUT_INTERRUPTS: Duration = Duration::from_millis(1);

/// Address of a `ibv_cq`, which only the program and the functions that it calls use as a pointer.
pub(crate) type QueueAddress = usize;

/// The events of one completion queue.
pub(crate) struct Notification {
    queue: CompletionQueue,
    address: QueueAddress,
    channel: Arc<Fifo<QueueAddress>>,
    is_armed: Mutex<bool>,
}

impl Notification {
    pub(crate) fn new(
        queue: &CompletionQueue,
        address: QueueAddress,
        channel: &Arc<Fifo<QueueAddress>>,
    ) -> Self {
        let (queue, channel) = (queue.clone(), Arc::clone(channel));
        Self { queue, address, channel, is_armed: Mutex::new(false) }
    }

    /// Requests one event.
    pub(crate) fn arm(&self, arm: Arm) {
        let mut is_armed = lock(&self.is_armed);
        self.queue.arm(arm);
        *is_armed = true;
    }

    /// Puts the event that was requested into the channel if it has arrived, or anyhow if the card is gone.
    pub(crate) fn deliver(&self, is_gone: bool) {
        let mut is_armed = lock(&self.is_armed);
        if *is_armed && (is_gone || self.queue.is_signalled().unwrap_or(true)) {
            *is_armed = false;
            self.channel.push(self.address);
        }
    }

    /// Forgets the events that nobody has taken.
    pub(crate) fn forget(&self) {
        self.channel.remove(|&address| address == self.address);
    }
}

/// Why the thread does not sleep any more.
enum Woken {
    ToEnd,
    ByInterrupt,
    ByTime,
}

/// What the thread and the functions of a context share.
pub(crate) struct Events {
    card: Device,
    /// Asynchronous events that the program has not taken.
    pub(crate) asynchronous: Fifo<AsynchronousEvent>,
    queues: Mutex<Vec<Arc<Notification>>>,
    /// Readable when the thread has to end.
    end: OwnedFd,
    is_gone: AtomicBool,
}

impl Events {
    pub(crate) fn new(card: &Device) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            card: card.clone(),
            asynchronous: Fifo::new()?,
            queues: Mutex::default(),
            end: eventfd(0, EventfdFlags::CLOEXEC)?,
            is_gone: AtomicBool::new(false),
        }))
    }

    /// Returns whether the card answers no more.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Watches the events of a completion queue.
    pub(crate) fn watch(&self, notification: &Arc<Notification>) {
        lock(&self.queues).push(Arc::clone(notification));
    }

    /// Ends the watching, after which no event of the queue is put anywhere.
    pub(crate) fn forget(&self, notification: &Arc<Notification>) {
        lock(&self.queues).retain(|queue| !Arc::ptr_eq(queue, notification));
        notification.forget();
    }

    /// Starts the thread.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<Watcher> {
        let events = Arc::clone(self);
        let thread = std::thread::Builder::new().name("rnic-events".into()).spawn(move || events.run())?;
        Ok(Watcher { events: Arc::clone(self), thread: Some(thread) })
    }

    fn run(&self) {
        loop {
            let looked = match self.sleep() {
                Woken::ToEnd => return,
                Woken::ByInterrupt => self.look(),
                // Nobody else would notice that the card is gone.
                Woken::ByTime => self.look().and_then(|()| self.card.check()),
            };
            if let Err(error) = looked {
                self.give_up(&error);
                return;
            }
        }
    }

    /// Sleeps until there is something to do.
    fn sleep(&self) -> Woken {
        let queue = self.card.events();
        let interrupts = queue.interrupt_fd().ok().flatten();
        let sleep = if interrupts.is_some() { SLEEP } else { SLEEP_WITHOUT_INTERRUPTS };
        let sleep = Timespec { tv_sec: sleep.as_secs() as i64, tv_nsec: sleep.subsec_nanos().into() };
        let mut fds = vec![PollFd::new(&self.end, PollFlags::IN)];
        fds.extend(interrupts.as_ref().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
        // An interrupted sleep is a short one.
        let count = poll(&mut fds, Some(&sleep)).unwrap_or(0);
        match fds[0].revents().contains(PollFlags::IN) {
            true => Woken::ToEnd,
            false if count == 0 => Woken::ByTime,
            false => Woken::ByInterrupt,
        }
    }

    /// Takes what has arrived, and puts it where the program waits for it.
    fn look(&self) -> Result<(), Error> {
        let queue = self.card.events();
        while queue.take_interrupt()? {}
        queue.arm();
        loop {
            match queue.poll() {
                Ok(Some(event)) => self.asynchronous.push(event),
                Ok(None) => break,
                Err(error @ (Error::EventsLost { .. } | Error::IllegalEvents { .. })) => say(error),
                Err(error) => return Err(error),
            }
        }
        lock(&self.queues).iter().for_each(|queue| queue.deliver(false));
        Ok(())
    }

    /// Wakes everybody who waits for a card that is gone.
    fn give_up(&self, error: &Error) {
        say(error);
        self.is_gone.store(true, Ordering::Relaxed);
        let code = AsyncEvent::DeviceFatal;
        self.asynchronous.push(AsynchronousEvent { code, object_number: 0, detail: 0 });
        lock(&self.queues).iter().for_each(|queue| queue.deliver(true));
    }
}

/// The thread of a context. Dropping it ends the thread.
pub(crate) struct Watcher {
    events: Arc<Events>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = write(&self.events.end, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has ended.
            let _ = thread.join();
        }
    }
}
