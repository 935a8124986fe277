//! Event channels: queues behind a file descriptor that is readable while an event is there.
#![allow(unsafe_code)]

use crate::abi;
use crate::endpoint::Endpoint;
use crate::message::Terms;
use crate::outcome::{Failure, Outcome};
use rnic_stand_in::Fifo;
use std::ffi::c_int;
use std::net::Ipv6Addr;
use std::ptr::null_mut;
use std::sync::Arc;

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

/// The queue of a channel.
pub(crate) type Queue = Fifo<Pending>;

/// Takes the oldest event, which its endpoint waits to be acknowledged from now on. Waits for one unless the program has made the file
/// descriptor non-blocking.
pub(crate) fn pop(queue: &Queue) -> Outcome<Pending> {
    queue.pop_noted(|event| event.endpoint.acks.add()).map_err(Failure::quiet)
}

/// `rdma_event_channel`, and its queue.
#[repr(C)]
pub(crate) struct Channel {
    abi: abi::Channel,
    queue: Arc<Queue>,
}

impl Channel {
    pub(crate) fn create() -> Outcome<*mut abi::Channel> {
        let queue = Queue::new().map_err(|error| {
            Failure::new(
                error.raw_os_error().unwrap_or(libc::EMFILE),
                format_args!("an event channel: {error}"),
            )
        })?;
        let (abi, queue) = (abi::Channel { fd: queue.fd() }, Arc::new(queue));
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
