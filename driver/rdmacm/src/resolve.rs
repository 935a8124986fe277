//! Addresses of identifiers: binding, listening, and finding the way to a peer.
#![allow(unsafe_code)]

use crate::abi;
use crate::addresses::{ipv4, of_card, read, without_wildcard};
use crate::agent::{serve, spawn};
use crate::cards::{self, Card};
use crate::endpoint::{Phase, event};
use crate::event::{acknowledge, next};
use crate::id::Id;
use crate::outcome::{Failure, Outcome, status};
use crate::queue_pair;
use crate::transport::transport;
use std::ffi::{c_int, c_void};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

fn wrong_phase(call: &str, phase: Phase) -> Failure {
    Failure::new(libc::EINVAL, format_args!("{call}: the identifier is in the phase {phase:?}"))
}

/// Names the address that a failure of the transport is about.
fn about(call: &str, address: SocketAddr, error: io::Error) -> Failure {
    let errno = error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::AddrInUse => libc::EADDRINUSE,
        _ => libc::EIO,
    });
    Failure::new(errno, format_args!("{call}: {address}: {error}"))
}

/// The card that an address of this side means, and whether it is any.
fn card_at(address: SocketAddr) -> Outcome<Option<&'static Card>> {
    if address.ip().to_canonical().is_unspecified() {
        return Ok(None);
    }
    match cards::with_address(address)? {
        Some(card) => Ok(Some(card)),
        None => cards::any().map(Some),
    }
}

/// `rdma_bind_addr`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_bind_addr(id: *mut abi::Id, address: *const libc::sockaddr) -> c_int {
    // SAFETY: The program passes an identifier that no other thread uses, and an address.
    status(unsafe { read(address).and_then(|address| bind(id, address)) })
}

/// Binds an identifier to an address: to the card that it means, and to a port.
///
/// # Safety
///
/// The identifier exists, and no other thread uses it.
pub(crate) unsafe fn bind(id: *mut abi::Id, address: SocketAddr) -> Outcome<()> {
    // SAFETY: The caller answers for the identifier.
    let endpoint = unsafe { Id::endpoint(id) };
    let phase = endpoint.state().phase;
    if phase != Phase::Idle {
        return Err(wrong_phase("rdma_bind_addr", phase));
    }
    let is_any = address.ip().to_canonical().is_unspecified();
    let named = ipv4(address);
    let cards = cards::all()?.iter().map(|card| card.address);
    let cards: Vec<_> = cards.filter(|&card| is_any || named == Some(card)).collect();
    let listener =
        transport().bind(address, &cards).map_err(|error| about("rdma_bind_addr", address, error))?;
    let card = card_at(address).inspect_err(|_| listener.close())?;
    // SAFETY: As above.
    unsafe {
        if let Some(card) = card {
            Id::bind_to(id, card)?;
        }
        (*id).route.addr.src = abi::SocketAddress::new(SocketAddr::new(address.ip(), listener.port())).0;
    }
    let mut state = endpoint.state();
    (state.phase, state.listener) = (Phase::Bound, Some(listener));
    Ok(())
}

/// `rdma_listen`. An identifier that is not bound listens at a port of all cards.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_listen(id: *mut abi::Id, backlog: c_int) -> c_int {
    // SAFETY: The program passes an identifier that no other thread uses.
    status(unsafe { listen(id, backlog) })
}

/// # Safety
///
/// As for [`bind`].
unsafe fn listen(id: *mut abi::Id, backlog: c_int) -> Outcome<()> {
    // SAFETY: The caller answers for the identifier.
    let endpoint = unsafe { Id::endpoint(id) };
    if endpoint.state().phase == Phase::Idle {
        // SAFETY: As above.
        unsafe { bind(id, ([0, 0, 0, 0], 0).into())? };
    }
    let mut state = endpoint.state();
    let (Phase::Bound, Some(listener)) = (state.phase, state.listener.clone()) else {
        return Err(wrong_phase("rdma_listen", state.phase));
    };
    listener.listen(backlog.max(0) as u32)?;
    state.phase = Phase::Listening;
    drop(state);
    let listening = Arc::clone(&endpoint);
    spawn("rnic-cm-listen", move || serve(&listening, &listener))
}

/// `rdma_get_request`: waits for the next request of a synchronous listener.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_get_request(listener: *mut abi::Id, into: *mut *mut abi::Id) -> c_int {
    // SAFETY: The program passes an identifier that no other thread uses, and the address of a pointer.
    status(unsafe { get_request(listener).map(|id| *into = id) })
}

/// # Safety
///
/// As for [`bind`].
unsafe fn get_request(listener: *mut abi::Id) -> Outcome<*mut abi::Id> {
    // SAFETY: The caller answers for the identifier, and the event is one of `next`.
    unsafe {
        let (queue, phase, is_synchronous) = {
            let endpoint = Id::endpoint(listener);
            let state = endpoint.state();
            (Arc::clone(&state.queue), state.phase, state.is_synchronous)
        };
        if !is_synchronous || phase != Phase::Listening {
            let text =
                "rdma_get_request: the identifier does not listen, or has a channel; use rdma_get_cm_event";
            return Err(Failure::new(libc::EINVAL, text));
        }
        Id::acknowledge_last(listener);
        let event = next(&queue)?;
        let abi::Event { id, event: kind, .. } = *event;
        if kind != event::CONNECT_REQUEST {
            acknowledge(event);
            return Err(Failure::new(libc::EINVAL, "rdma_get_request: the event is no request"));
        }
        if let Some((domain, mut asked)) = Id::template(listener)
            && let Err(failure) = queue_pair::create(id, domain, &mut asked)
        {
            acknowledge(event);
            Id::destroy(id);
            return Err(failure);
        }
        (*id).event = event;
        Ok(id)
    }
}

/// `rdma_resolve_addr`. The address is resolved at once, since no neighbour is asked.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_resolve_addr(
    id: *mut abi::Id,
    source: *const libc::sockaddr,
    destination: *const libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: The program passes an identifier that no other thread uses, and null or an address, and an address.
    status(unsafe {
        let source = if source.is_null() { Ok(None) } else { read(source).map(Some) };
        source.and_then(|source| resolve(id, source, read(destination)?)).and_then(|()| Id::complete(id))
    })
}

/// Finds the card of this side, and raises the event.
///
/// # Safety
///
/// As for [`bind`].
pub(crate) unsafe fn resolve(
    id: *mut abi::Id,
    source: Option<SocketAddr>,
    destination: SocketAddr,
) -> Outcome<()> {
    // SAFETY: The caller answers for the identifier.
    let endpoint = unsafe { Id::endpoint(id) };
    let phase = endpoint.state().phase;
    if !matches!(phase, Phase::Idle | Phase::Bound) {
        return Err(wrong_phase("rdma_resolve_addr", phase));
    }
    if destination.port() == 0 {
        return Err(Failure::new(
            libc::EINVAL,
            format_args!("rdma_resolve_addr: {destination}: there is no port 0"),
        ));
    }
    // SAFETY: As above.
    unsafe {
        if phase == Phase::Idle
            && let Some(source) = source.filter(|source| source.port() != 0)
        {
            bind(id, source)?;
        }
        let bound = endpoint.state().card;
        let any = || cards::any_for(cards::with_address(destination)?);
        let card = match (bound, source) {
            (Some(card), _) => card,
            (None, Some(source)) => card_at(source)?.map_or_else(any, Ok)?,
            (None, None) => any()?,
        };
        Id::bind_to(id, card)?;
        let to = without_wildcard(destination);
        let port = u16::from_be((*id).route.addr.src.port_in_wire_order());
        (*id).route.addr.src = abi::SocketAddress::new(of_card(card.address, port, to)).0;
        (*id).route.addr.dst = abi::SocketAddress::new(to).0;
        let mut state = endpoint.state();
        (state.phase, state.destination) = (Phase::AddressResolved, Some(to));
        endpoint.post_plain(&state, event::ADDRESS_RESOLVED, 0);
    }
    Ok(())
}

/// `rdma_resolve_route`. There is one route, which is resolved at once.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_resolve_route(id: *mut abi::Id, _timeout_ms: c_int) -> c_int {
    // SAFETY: The program passes an identifier that no other thread uses.
    status(unsafe { resolve_route(id) })
}

/// # Safety
///
/// As for [`bind`].
pub(crate) unsafe fn resolve_route(id: *mut abi::Id) -> Outcome<()> {
    // SAFETY: The caller answers for the identifier.
    unsafe {
        let endpoint = Id::endpoint(id);
        let mut state = endpoint.state();
        let (Phase::AddressResolved, Some(card)) = (state.phase, state.card) else {
            return Err(wrong_phase("rdma_resolve_route", state.phase));
        };
        Id::set_path(id, card.open()?.mtu, state.settings.traffic_class);
        state.phase = Phase::RouteResolved;
        endpoint.post_plain(&state, event::ROUTE_RESOLVED, 0);
        drop(state);
        Id::complete(id)
    }
}

/// `rdma_get_src_port`, in wire order.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_get_src_port(id: *mut abi::Id) -> u16 {
    // SAFETY: The program passes an identifier.
    unsafe { (*id).route.addr.src.port_in_wire_order() }
}

/// `rdma_get_dst_port`, in wire order.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_get_dst_port(id: *mut abi::Id) -> u16 {
    // SAFETY: The program passes an identifier.
    unsafe { (*id).route.addr.dst.port_in_wire_order() }
}

/// `rdma_set_option`: the type of service and the acknowledgement time-out of the queue pair, and the reuse of addresses, which the side
/// channel has anyhow.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_set_option(
    id: *mut abi::Id,
    level: c_int,
    name: c_int,
    value: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: The program passes an identifier, and a value of so many bytes.
    let (endpoint, first) = unsafe {
        let first = if bytes == 0 || value.is_null() { 0 } else { *value.cast::<u8>() };
        (Id::endpoint(id), first)
    };
    let mut state = endpoint.state();
    status(match (level, name, bytes) {
        (0, 0, 1) => {
            state.settings.traffic_class = first;
            Ok(())
        }
        (0, 1, 4) => Ok(()),
        (0, 3, 1) if first <= 31 => {
            state.settings.ack_timeout = Some(first);
            Ok(())
        }
        (0, 0 | 1 | 3, _) => Err(Failure::new(
            libc::EINVAL,
            format_args!("rdma_set_option: option {name} does not have {bytes} bytes, or not this value"),
        )),
        _ => Err(Failure::new(
            libc::ENOSYS,
            format_args!(
                "rdma_set_option: there is no option {name} of level {level}; there are TOS, REUSEADDR and ACK_TIMEOUT"
            ),
        )),
    })
}
