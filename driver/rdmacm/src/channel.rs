//! Event channels: queues behind a file descriptor that is readable while an event is there.
#![allow(unsafe_code)]

use crate::abi;
use crate::endpoint::Endpoint;
use crate::message::Terms;
use crate::outcome::{Failure, Outcome, lock};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

/// What has happened to an endpoint.
pub(crate) enum Happened {
    /// An event that the program gets as it is.
    Event { kind: c_int, status: c_int, terms: Terms },
    /// A peer asks for a connection, of which `child` will be this side.
    Requested { child: Arc<Endpoint>, asked: Ipv6Addr, source_port: u16 },
    /// The peer has accepted. The event depends on what becomes of the queue pair.
    Replied,
}

/// An event that the program has not taken yet.
pub(crate) struct Pending {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) happened: Happened,
}

/// The queue of a channel. The file descriptor counts the events.
pub(crate) struct Queue {
    fd: OwnedFd,
    events: Mutex<VecDeque<Pending>>,
}

impl Queue {
    fn new() -> Outcome<Arc<Self>> {
        let fd = eventfd(0, EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC);
        let fd = fd
            .map_err(|error| Failure::new(error.raw_os_error(), format_args!("an event channel: {error}")))?;
        Ok(Arc::new(Self { fd, events: Mutex::default() }))
    }

    pub(crate) fn push(&self, event: Pending) {
        lock(&self.events).push_back(event);
        // The count of an eventfd has room for more events than memory has.
        let _ = write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Takes the oldest event, which its endpoint waits to be acknowledged from now on. Waits for one unless the program has made the
    /// file descriptor non-blocking.
    pub(crate) fn pop(&self) -> Outcome<Pending> {
        loop {
            read(&self.fd, &mut [0; 8]).map_err(|error| Failure::quiet(error.raw_os_error()))?;
            let mut events = lock(&self.events);
            // An event that was removed is still counted.
            if let Some(event) = events.pop_front() {
                event.endpoint.acks.add();
                return Ok(event);
            }
        }
    }

    /// Whether no event is there.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.events).is_empty()
    }

    /// Removes the events of an endpoint.
    pub(crate) fn remove(&self, endpoint: &Arc<Endpoint>) -> VecDeque<Pending> {
        let mut events = lock(&self.events);
        let (removed, kept) = events.drain(..).partition(|event| Arc::ptr_eq(&event.endpoint, endpoint));
        *events = kept;
        removed
    }
}

/// `rdma_event_channel`, and its queue.
#[repr(C)]
pub(crate) struct Channel {
    abi: abi::Channel,
    queue: Arc<Queue>,
}

impl Channel {
    pub(crate) fn create() -> Outcome<*mut abi::Channel> {
        let queue = Queue::new()?;
        let abi = abi::Channel { fd: queue.fd.as_raw_fd() };
        Ok(Box::into_raw(Box::new(Self { abi, queue })).cast())
    }

    /// The queue of a channel.
    ///
    /// # Safety
    ///
    /// The pointer is that of a channel that exists.
    pub(crate) unsafe fn queue(channel: *mut abi::Channel) -> Arc<Queue> {
        // SAFETY: The program has the pointer from `create`.
        Arc::clone(unsafe { &(*channel.cast::<Self>()).queue })
    }

    /// # Safety
    ///
    /// The pointer is that of a channel that exists, and that nobody uses any more.
    pub(crate) unsafe fn destroy(channel: *mut abi::Channel) {
        // SAFETY: `create` has taken the channel out of its box.
        drop(unsafe { Box::from_raw(channel.cast::<Self>()) });
    }
}

/// `rdma_create_event_channel`.
#[unsafe(no_mangle)]
extern "C" fn rnic_rdma_create_event_channel() -> *mut abi::Channel {
    Channel::create().unwrap_or_else(|failure| {
        failure.report();
        null_mut()
    })
}

/// `rdma_destroy_event_channel`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_destroy_event_channel(channel: *mut abi::Channel) {
    // SAFETY: The program passes a channel whose identifiers it has destroyed.
    unsafe { Channel::destroy(channel) }
}
