//! Completion channels: file descriptors by which a program waits for completions.
#![allow(unsafe_code)]

use crate::abi;
use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::events::QueueAddress;
use crate::outcome::{Failure, Outcome, object, quiet_minus_one};
use rnic_stand_in::Fifo;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `ibv_comp_channel`, and the events in it.
#[repr(C)]
pub(crate) struct Channel {
    abi: abi::Channel,
    pub(crate) fifo: Arc<Fifo<QueueAddress>>,
    /// Completion queues that raise their events here.
    pub(crate) users: AtomicUsize,
}

impl Channel {
    /// # Safety
    ///
    /// The pointer is that of a channel that exists.
    pub(crate) unsafe fn of<'a>(channel: *mut abi::Channel) -> &'a Self {
        // SAFETY: The program has the pointer from `create`.
        unsafe { &*channel.cast::<Self>() }
    }

    fn create(pointer: *mut abi::Context, context: &Context) -> Outcome<*mut abi::Channel> {
        let fifo = Fifo::new().map_err(|error| {
            Failure::new(
                error.raw_os_error().unwrap_or(libc::ENOMEM),
                format!("a completion channel: {error}"),
            )
        })?;
        let abi = abi::Channel { context: pointer, fd: fifo.fd(), refcnt: 0 };
        context.users.fetch_add(1, Ordering::AcqRel);
        Ok(Box::into_raw(Box::new(Self { abi, fifo: Arc::new(fifo), users: AtomicUsize::new(0) })).cast())
    }
}

/// `ibv_create_comp_channel`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_create_comp_channel(context: *mut abi::Context) -> *mut abi::Channel {
    // SAFETY: The program passes a context that is open.
    object(Channel::create(context, unsafe { Context::of(context) }))
}

/// `ibv_destroy_comp_channel`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_destroy_comp_channel(channel: *mut abi::Channel) -> c_int {
    // SAFETY: The program passes a channel that exists.
    let this = unsafe { Channel::of(channel) };
    if this.users.load(Ordering::Acquire) != 0 {
        return libc::EBUSY;
    }
    // SAFETY: The context exists as long as its objects.
    unsafe { Context::of(this.abi.context) }.users.fetch_sub(1, Ordering::AcqRel);
    // SAFETY: Nothing uses the channel, which `create` has taken out of its box.
    drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
    0
}

/// `ibv_get_cq_event`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_get_cq_event(
    channel: *mut abi::Channel,
    queue: *mut *mut abi::CompletionQueue,
    queue_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: The program passes a channel that exists.
    let event = unsafe { Channel::of(channel) }.fifo.pop();
    quiet_minus_one(event.map(|address| {
        let pointer = address as *mut abi::CompletionQueue;
        // SAFETY: The queue exists: the events of one that is destroyed are removed. The program passes two places.
        unsafe {
            CompletionQueue::of(pointer).acks().add();
            *queue = pointer;
            *queue_context = (*pointer).cq_context;
        }
    }))
}

/// `ibv_ack_cq_events`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_ack_cq_events(queue: *mut abi::CompletionQueue, count: c_uint) {
    // SAFETY: The program passes a queue that exists.
    unsafe { CompletionQueue::of(queue) }.acks().acknowledge(count.into());
}
