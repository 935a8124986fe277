//! Events: what the program takes from a channel, and gives back.
#![allow(unsafe_code)]

use crate::abi;
use crate::channel::{self, Channel, Happened, Pending, Queue};
use crate::connect::establish_after_reply;
use crate::endpoint::{Endpoint, event};
use crate::id::Id;
use crate::message::{Terms, reason};
use crate::outcome::{Failure, Outcome, status};
use crate::queue_pair::fail;
use std::ffi::{c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// `rdma_cm_event`, and what it points to.
#[repr(C)]
struct Event {
    abi: abi::Event,
    terms: Terms,
    endpoint: Arc<Endpoint>,
}

/// Terms of the peer as the program gets them: what the peer sends at a time is what this side answers, and the other way round.
fn parameters(terms: &Terms) -> abi::ConnectionParameters {
    let data = &terms.private_data;
    abi::ConnectionParameters {
        private_data: if data.is_empty() { null() } else { data.as_ptr() },
        private_data_len: data.len() as u8,
        responder_resources: terms.initiator_depth,
        initiator_depth: terms.responder_resources,
        flow_control: terms.flow_control,
        retry_count: terms.retry_count,
        rnr_retry_count: terms.rnr_retry_count,
        srq: terms.has_srq.into(),
        qp_num: terms.qp_number,
    }
}

/// What the program gets of an event, and its identifier. `None` if it gets nothing.
///
/// # Safety
///
/// The identifier of the endpoint exists.
unsafe fn deliver(endpoint: &Arc<Endpoint>, happened: Happened) -> Option<(abi::Event, Terms)> {
    let id = endpoint.id();
    let (id, listen_id, kind, status, terms) = match happened {
        Happened::Event { kind, status, terms } => {
            if kind == event::REJECTED {
                // SAFETY: The identifier exists.
                unsafe { fail(id) };
            }
            (id, null_mut(), kind, status, terms)
        }
        Happened::Requested { child, asked, source_port } => {
            let terms = child.state().remote.clone();
            // SAFETY: As above.
            match unsafe { Id::of_request(id, &child, asked, source_port) } {
                Ok(child) => (child, id, event::CONNECT_REQUEST, 0, terms),
                Err(failure) => {
                    failure.report();
                    child.destroy(reason::NO_RESOURCES);
                    return None;
                }
            }
        }
        Happened::Replied => {
            // SAFETY: As above.
            let (kind, status) = unsafe { establish_after_reply(id, endpoint) };
            (id, null_mut(), kind, status, endpoint.state().remote.clone())
        }
    };
    Some((abi::Event { id, listen_id, event: kind, status, conn: parameters(&terms), rest: [0; 4] }, terms))
}

/// Waits for the next event of a queue.
///
/// # Safety
///
/// Identifiers with events in the queue exist.
pub(crate) unsafe fn next(queue: &Queue) -> Outcome<*mut abi::Event> {
    loop {
        let Pending { endpoint, happened } = channel::pop(queue)?;
        // SAFETY: The caller answers for the identifier, which waits for this event to be acknowledged before it is destroyed.
        let Some((abi, terms)) = (unsafe { deliver(&endpoint, happened) }) else {
            endpoint.acks.acknowledge(1);
            continue;
        };
        let mut event = Box::new(Event { abi, terms, endpoint });
        event.abi.conn = parameters(&event.terms);
        return Ok(Box::into_raw(event).cast());
    }
}

/// Acknowledges an event.
///
/// # Safety
///
/// The event is one of [`next`], and is not used any more.
pub(crate) unsafe fn acknowledge(event: *mut abi::Event) {
    // SAFETY: `next` has taken the event out of its box.
    let event = unsafe { Box::from_raw(event.cast::<Event>()) };
    event.endpoint.acks.acknowledge(1);
}

/// `rdma_get_cm_event`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_get_cm_event(channel: *mut abi::Channel, into: *mut *mut abi::Event) -> c_int {
    if channel.is_null() || into.is_null() {
        return status(Err(Failure::new(
            libc::EINVAL,
            "rdma_get_cm_event: there is no channel, or no place for the event",
        )));
    }
    // SAFETY: The program passes a channel that exists, and so do its identifiers.
    let event = unsafe { next(&Channel::queue(channel)) };
    // SAFETY: The program passes the address of a pointer.
    status(event.map(|event| unsafe { *into = event }))
}

/// `rdma_ack_cm_event`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_ack_cm_event(event: *mut abi::Event) -> c_int {
    if event.is_null() {
        return status(Err(Failure::new(libc::EINVAL, "rdma_ack_cm_event: there is no event")));
    }
    // SAFETY: The program passes an event that it has from `rdma_get_cm_event`, once.
    unsafe { acknowledge(event) };
    0
}

/// `rdma_event_str`: the name of an event.
#[unsafe(no_mangle)]
extern "C" fn rnic_rdma_event_str(event: c_int) -> *const c_char {
    let name = match event {
        0 => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        1 => c"RDMA_CM_EVENT_ADDR_ERROR",
        2 => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        3 => c"RDMA_CM_EVENT_ROUTE_ERROR",
        4 => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        5 => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        6 => c"RDMA_CM_EVENT_CONNECT_ERROR",
        7 => c"RDMA_CM_EVENT_UNREACHABLE",
        8 => c"RDMA_CM_EVENT_REJECTED",
        9 => c"RDMA_CM_EVENT_ESTABLISHED",
        10 => c"RDMA_CM_EVENT_DISCONNECTED",
        11 => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        12 => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        13 => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        14 => c"RDMA_CM_EVENT_ADDR_CHANGE",
        15 => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        _ => c"UNKNOWN EVENT",
    };
    name.as_ptr()
}
