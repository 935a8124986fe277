//! Connections: what the program decides about them.
#![allow(unsafe_code)]

use crate::abi;
use crate::agent::{request, spawn};
use crate::cards::Opened;
use crate::endpoint::{Endpoint, Phase, State, event};
use crate::id::Id;
use crate::message::{Message, Terms, private_data, reason};
use crate::outcome::{Failure, Outcome, status};
use crate::queue_pair::{connect, fail};
use std::ffi::c_int;
use std::sync::Arc;

/// `RDMA_MAX_RESP_RES` and `RDMA_MAX_INIT_DEPTH`: as many as the card has.
const AS_MANY_AS_POSSIBLE: u8 = 0xff;
/// Retries of a program that leaves their number open, which is the largest one.
const RETRIES: u8 = 7;
/// `IBV_EVENT_COMM_EST`.
const COMMUNICATION_ESTABLISHED: c_int = 4;

/// Fails for a call in a phase that it does not belong to.
fn wrong_phase(call: &str, phase: Phase) -> Failure {
    Failure::new(libc::EINVAL, format_args!("{call}: the identifier is in the phase {phase:?}"))
}

/// Reads private data, of which a message has room for `most` bytes.
///
/// # Safety
///
/// The pointer is null or that of `bytes` bytes.
unsafe fn read_private_data(call: &str, data: *const u8, bytes: u8, most: usize) -> Outcome<Vec<u8>> {
    let bytes = usize::from(bytes);
    if bytes > most {
        let text = format_args!("{call}: there are {bytes} bytes of private data, and room for {most}");
        return Err(Failure::new(libc::EINVAL, text));
    }
    if data.is_null() || bytes == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: The caller answers for the pointer.
    Ok(unsafe { std::slice::from_raw_parts(data, bytes) }.to_vec())
}

/// What a side offers that is not asked for less: all that its card has. The program may make its queue pair ready before it accepts, so
/// that the PSN is there from the beginning.
pub(crate) fn most(card: &Opened) -> Terms {
    Terms {
        gid: card.gid,
        psn: random_psn(),
        mtu: card.mtu,
        responder_resources: card.responder_resources_max,
        initiator_depth: card.initiator_depth_max,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        ..Terms::default()
    }
}

/// A PSN that no other connection is likely to begin with.
fn random_psn() -> u32 {
    let mut bytes = [0; 4];
    // A kernel without random numbers leaves zeros, which are a PSN too.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u32::from_le_bytes(bytes) >> 8
}

/// READs and atomics at a time, of which the program asks for some and the card has `most`.
fn depth(name: &str, asked: u8, most: u8) -> Outcome<u8> {
    match asked {
        AS_MANY_AS_POSSIBLE => Ok(most),
        asked if asked <= most => Ok(asked),
        _ => Err(Failure::new(libc::EINVAL, format_args!("{name} is {asked}, and the card has {most}"))),
    }
}

/// What this side offers.
///
/// # Safety
///
/// The identifier exists; the parameters are null or exist, with private data of their length.
unsafe fn terms(
    call: &str,
    id: *mut abi::Id,
    state: &State,
    card: &Opened,
    asked: *const abi::ConnectionParameters,
    private_bytes_max: usize,
) -> Outcome<Terms> {
    // SAFETY: The caller answers for the pointers.
    let (asked, queue_pair) = unsafe { (asked.as_ref(), (*id).qp.as_ref()) };
    let depths = |asked: &abi::ConnectionParameters| (asked.responder_resources, asked.initiator_depth);
    let (responder, initiator) = asked.map_or((AS_MANY_AS_POSSIBLE, AS_MANY_AS_POSSIBLE), depths);
    let retries = |count: Option<u8>| count.map_or(RETRIES, |count| count.min(RETRIES));
    let private_data = match asked {
        // SAFETY: The caller answers for the data.
        Some(asked) => unsafe {
            read_private_data(call, asked.private_data, asked.private_data_len, private_bytes_max)?
        },
        None => Vec::new(),
    };
    Ok(Terms {
        gid: card.gid,
        qp_number: queue_pair.map_or(asked.map_or(0, |asked| asked.qp_num), |queue_pair| queue_pair.qp_num)
            & 0xff_ffff,
        psn: state.local.psn,
        mtu: card.mtu,
        responder_resources: depth("responder_resources", responder, card.responder_resources_max)?,
        initiator_depth: depth("initiator_depth", initiator, card.initiator_depth_max)?,
        retry_count: retries(asked.map(|asked| asked.retry_count)),
        rnr_retry_count: retries(asked.map(|asked| asked.rnr_retry_count)),
        flow_control: asked.map_or(0, |asked| asked.flow_control),
        has_srq: queue_pair
            .map_or(asked.is_some_and(|asked| asked.srq != 0), |queue_pair| !queue_pair.srq.is_null()),
        private_data,
    })
}

/// `rdma_connect`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rnic_rdma_connect(
    id: *mut abi::Id,
    asked: *const abi::ConnectionParameters,
) -> c_int {
    // SAFETY: The program passes an identifier, and null or parameters; no other thread uses the identifier.
    status(unsafe { ask(id, asked).and_then(|()| Id::complete(id)) })
}

/// # Safety
///
/// As for [`rnic_rdma_connect`].
unsafe fn ask(id: *mut abi::Id, asked: *const abi::ConnectionParameters) -> Outcome<()> {
    // SAFETY: The caller answers for the pointers.
    let endpoint = unsafe { Id::endpoint(id) };
    let mut state = endpoint.state();
    let (Phase::RouteResolved, Some(card), Some(to)) = (state.phase, state.card, state.destination) else {
        return Err(wrong_phase("rdma_connect", state.phase));
    };
    // SAFETY: As above.
    let terms = unsafe { terms("rdma_connect", id, &state, &card.open()?, asked, private_data::REQUEST)? };
    state.local = terms.clone();
    state.is_active = true;
    state.phase = Phase::Connecting;
    drop(state);
    let asking = Arc::clone(&endpoint);
    spawn("rnic-cm-client", move || request(&asking, to, terms))
        .inspect_err(|_| endpoint.state().phase = Phase::RouteResolved)
}

/// The program takes the peer's acceptance: the queue pair is made ready, the peer is told, and the event says how that went. A program
/// without a queue pair on the identifier does it itself, and calls `rdma_establish`.
///
/// # Safety
///
/// The identifier exists, and no other thread uses it.
pub(crate) unsafe fn establish_after_reply(id: *mut abi::Id, endpoint: &Arc<Endpoint>) -> (c_int, c_int) {
    let mut state = endpoint.state();
    // SAFETY: The caller answers for the identifier.
    let has_queue_pair = unsafe {
        (*id).route.addr.ib.dgid = state.remote.gid;
        Id::set_path(id, state.local.mtu.min(state.remote.mtu), state.settings.traffic_class);
        if let Some(link) = &state.link {
            (*id).route.addr.src.set_port(link.port());
        }
        !(*id).qp.is_null()
    };
    if !has_queue_pair {
        return (event::CONNECT_RESPONSE, 0);
    }
    // SAFETY: As above.
    match unsafe { connect(id, &state) }.and_then(|()| ready(&mut state)) {
        Ok(()) => (event::ESTABLISHED, 0),
        Err(failure) => {
            let reject = Message::Reject { reason: reason::BY_CONSUMER, private_data: Vec::new() };
            // A peer that is gone needs no answer.
            let _ = state.link.as_ref().map(|link| link.send(&reject));
            endpoint.close_quietly(&mut state);
            // SAFETY: As above.
            unsafe { fail(id) };
            (event::CONNECT_ERROR, -failure.errno())
        }
    }
}

/// Tells the peer that this side is ready.
fn ready(state: &mut State) -> Outcome<()> {
    let link = match (&state.link, state.phase) {
        (Some(link), Phase::Replied) => link,
        (None, _) => return Err(Failure::quiet(libc::ECONNRESET)),
        (_, phase) => return Err(wrong_phase("rdma_establish", phase)),
    };
    link.send(&Message::Ready)?;
    state.phase = Phase::Connected;
    Ok(())
}

/// `rdma_establish`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_establish(id: *mut abi::Id) -> c_int {
    // SAFETY: The program passes an identifier.
    status(unsafe {
        if (*id).qp.is_null() {
            ready(&mut Id::endpoint(id).state())
        } else {
            let text =
                "rdma_establish: the identifier has a queue pair, so that rdma_get_cm_event has done it";
            Err(Failure::new(libc::EINVAL, text))
        }
    })
}

/// `rdma_accept`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_accept(id: *mut abi::Id, asked: *const abi::ConnectionParameters) -> c_int {
    // SAFETY: The program passes an identifier, and null or parameters; no other thread uses the identifier.
    status(unsafe { accept(id, asked).and_then(|()| Id::complete(id)) })
}

/// # Safety
///
/// As for [`rnic_rdma_accept`].
unsafe fn accept(id: *mut abi::Id, asked: *const abi::ConnectionParameters) -> Outcome<()> {
    // SAFETY: The caller answers for the pointers.
    let endpoint = unsafe { Id::endpoint(id) };
    let mut state = endpoint.state();
    let (Phase::Requested, Some(card), Some(link)) = (state.phase, state.card, state.link.clone()) else {
        return Err(wrong_phase("rdma_accept", state.phase));
    };
    // SAFETY: As above.
    let mut terms = unsafe { terms("rdma_accept", id, &state, &card.open()?, asked, private_data::REPLY)? };
    // No more than the peer uses, and no more than it answers.
    terms.responder_resources = terms.responder_resources.min(state.remote.initiator_depth);
    terms.initiator_depth = terms.initiator_depth.min(state.remote.responder_resources);
    terms.retry_count = state.remote.retry_count;
    state.local = terms;
    // SAFETY: As above.
    unsafe {
        connect(id, &state).inspect_err(|_| fail(id))?;
        Id::set_path(id, state.local.mtu.min(state.remote.mtu), state.settings.traffic_class);
    }
    // SAFETY: As above.
    link.send(&Message::Reply(state.local.clone())).inspect_err(|_| unsafe { fail(id) })?;
    state.phase = Phase::Accepting;
    Ok(())
}

/// `rdma_reject`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_reject(id: *mut abi::Id, data: *const u8, bytes: u8) -> c_int {
    // SAFETY: The program passes an identifier, and null or private data of so many bytes.
    status(unsafe {
        read_private_data("rdma_reject", data, bytes, private_data::REJECT).and_then(|private_data| {
            let endpoint = Id::endpoint(id);
            let mut state = endpoint.state();
            let (Phase::Requested, Some(link)) = (state.phase, state.link.clone()) else {
                return Err(wrong_phase("rdma_reject", state.phase));
            };
            let sent = link.send(&Message::Reject { reason: reason::BY_CONSUMER, private_data });
            endpoint.close_quietly(&mut state);
            Ok(sent?)
        })
    })
}

/// `rdma_disconnect`. The queue pair flushes what was posted.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_disconnect(id: *mut abi::Id) -> c_int {
    // SAFETY: The program passes an identifier; no other thread uses it.
    status(unsafe { disconnect(id) })
}

/// # Safety
///
/// As for [`rnic_rdma_disconnect`].
unsafe fn disconnect(id: *mut abi::Id) -> Outcome<()> {
    // SAFETY: The caller answers for the identifier.
    unsafe {
        let endpoint = Id::endpoint(id);
        let mut state = endpoint.state();
        match state.phase {
            Phase::Connected | Phase::Accepting | Phase::Replied => {
                fail(id);
                let sent = state.link.as_ref().map(|link| link.send(&Message::Disconnect));
                state.phase = Phase::Disconnecting;
                // A peer that is gone has closed the link, which the thread notices.
                drop(sent);
            }
            Phase::Disconnecting | Phase::Closed => fail(id),
            phase => return Err(wrong_phase("rdma_disconnect", phase)),
        }
        // The event of an end that the peer began may have been taken.
        let has_ended = state.phase == Phase::Closed && state.is_synchronous && state.queue.is_empty();
        drop(state);
        if has_ended { Ok(()) } else { Id::complete(id) }
    }
}

/// `rdma_notify`: the queue pair of a server has received before the peer's last message came.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_notify(id: *mut abi::Id, happened: c_int) -> c_int {
    // SAFETY: The program passes an identifier.
    let endpoint = unsafe { Id::endpoint(id) };
    let mut state = endpoint.state();
    status(match (happened, state.phase) {
        (COMMUNICATION_ESTABLISHED, Phase::Accepting) => {
            state.phase = Phase::Connected;
            endpoint.post_plain(&state, event::ESTABLISHED, 0);
            Ok(())
        }
        (COMMUNICATION_ESTABLISHED, Phase::Connected) => Ok(()),
        (_, phase) => Err(wrong_phase("rdma_notify", phase)),
    })
}
