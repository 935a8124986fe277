//! Identifiers: `rdma_cm_id`, as programs have it, and the endpoint behind it.
#![allow(unsafe_code)]

use crate::abi;
use crate::addresses::of_card;
use crate::cards::{self, Card, PORT};
use crate::channel::Channel;
use crate::connect::most;
use crate::endpoint::{Endpoint, event};
use crate::event::{acknowledge, next};
use crate::message::reason;
use crate::outcome::{Failure, Outcome, status};
use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ptr::null_mut;
use std::sync::Arc;

/// `rdma_cm_id`, and its endpoint. The program writes some fields and reads all.
#[repr(C)]
pub(crate) struct Id {
    abi: abi::Id,
    endpoint: Arc<Endpoint>,
    /// What the queue pairs of connections of this listener are made of: a domain, and attributes.
    template: Option<(*mut c_void, abi::QueuePairInit)>,
    /// Whether the channel is of this identifier alone.
    owns_channel: bool,
    /// The memory of `route.path_rec`.
    path: Option<Box<abi::PathRecord>>,
}

/// The P_Key of all cards, in wire order.
const PARTITION: u16 = 0xffff;

impl Id {
    /// # Safety
    ///
    /// The channel is null, or one that exists.
    unsafe fn create(
        mut channel: *mut abi::Channel,
        context: *mut c_void,
        port_space: c_int,
    ) -> Outcome<*mut abi::Id> {
        if port_space != abi::PORT_SPACE_TCP {
            let text = "the cards have reliable connected queue pairs only: use RDMA_PS_TCP";
            return Err(Failure::new(
                libc::EPROTONOSUPPORT,
                format_args!("port space {port_space:#x}: {text}"),
            ));
        }
        let owns_channel = channel.is_null();
        if owns_channel {
            channel = Channel::create()?;
        }
        // SAFETY: The caller answers for the channel.
        let endpoint = Endpoint::new(unsafe { Channel::queue(channel) }, owns_channel);
        let abi = abi::Id::new(channel, context, port_space, abi::RELIABLE_CONNECTED);
        Ok(Self::boxed(abi, &endpoint, owns_channel))
    }

    fn boxed(abi: abi::Id, endpoint: &Arc<Endpoint>, owns_channel: bool) -> *mut abi::Id {
        let this = Self { abi, endpoint: Arc::clone(endpoint), template: None, owns_channel, path: None };
        let id = Box::into_raw(Box::new(this)).cast();
        endpoint.set_id(id);
        id
    }

    /// The identifier of a connection that a peer asks a listener for.
    ///
    /// # Safety
    ///
    /// The listener exists.
    pub(crate) unsafe fn of_request(
        listener: *mut abi::Id,
        child: &Arc<Endpoint>,
        asked: Ipv6Addr,
        source_port: u16,
    ) -> Outcome<*mut abi::Id> {
        // SAFETY: The caller answers for the listener.
        let (found, endpoint) = unsafe { (*listener, Self::endpoint(listener)) };
        let asked_card = cards::with_address((asked, 0).into())?;
        let (card, is_synchronous) = {
            let state = endpoint.state();
            (state.card.or(asked_card), state.is_synchronous)
        };
        let card = card.map_or_else(cards::any, Ok)?;
        let channel = if is_synchronous { Channel::create()? } else { found.channel };
        let abi = abi::Id::new(channel, found.context, found.ps, found.qp_type);
        let id = Self::boxed(abi, child, is_synchronous);
        // SAFETY: The identifier was made above, and the channel exists.
        let bound = unsafe {
            if is_synchronous {
                child.migrate(Channel::queue(channel));
                child.state().is_synchronous = true;
            }
            let port = u16::from_be(found.route.addr.src.port_in_wire_order());
            let like = Ipv6Addr::LOCALHOST;
            let family: IpAddr =
                if found.route.addr.src.is_v6() { like.into() } else { [127, 0, 0, 1].into() };
            let like = SocketAddr::new(family, 0);
            (*id).route.addr.src = abi::SocketAddress::new(of_card(card.address, port, like)).0;
            let peer = child.state().remote.gid;
            let address = match Ipv6Addr::from(peer.bytes()).to_canonical() {
                IpAddr::V4(ip) => of_card(ip, source_port, like),
                IpAddr::V6(ip) => (ip, source_port).into(),
            };
            (*id).route.addr.dst = abi::SocketAddress::new(address).0;
            (*id).route.addr.ib.dgid = peer;
            Self::bind_to(id, card)
        };
        match bound {
            Ok(()) => Ok(id),
            Err(failure) => {
                // SAFETY: Nobody has the identifier yet.
                unsafe { Self::free(id) };
                Err(failure)
            }
        }
    }

    /// The endpoint of an identifier.
    ///
    /// # Safety
    ///
    /// The identifier exists.
    pub(crate) unsafe fn endpoint(id: *mut abi::Id) -> Arc<Endpoint> {
        // SAFETY: The program has the pointer from `boxed`.
        Arc::clone(unsafe { &(*id.cast::<Self>()).endpoint })
    }

    /// What the queue pairs of a listener's connections are made of.
    ///
    /// # Safety
    ///
    /// As for [`Id::endpoint`].
    pub(crate) unsafe fn template(id: *mut abi::Id) -> Option<(*mut c_void, abi::QueuePairInit)> {
        // SAFETY: As for `endpoint`.
        unsafe { (*id.cast::<Self>()).template }
    }

    /// Sets what [`Id::template`] gives.
    ///
    /// # Safety
    ///
    /// As for [`Id::endpoint`]; no other thread uses the identifier.
    pub(crate) unsafe fn set_template(id: *mut abi::Id, template: (*mut c_void, abi::QueuePairInit)) {
        // SAFETY: The caller answers for both.
        unsafe { (*id.cast::<Self>()).template = Some(template) }
    }

    /// Binds an identifier to a card, which is opened.
    ///
    /// # Safety
    ///
    /// As for [`Id::set_template`].
    pub(crate) unsafe fn bind_to(id: *mut abi::Id, card: &'static Card) -> Outcome<()> {
        let opened = card.open()?;
        // SAFETY: The caller answers for the identifier.
        unsafe {
            let endpoint = Self::endpoint(id);
            let mut state = endpoint.state();
            if state.card.is_none() {
                (state.card, state.local) = (Some(card), most(&opened));
            }
            drop(state);
            (*id).verbs = opened.context;
            (*id).port_num = PORT;
            if (*id).pd.is_null() {
                (*id).pd = opened.domain;
            }
            (*id).route.addr.ib.sgid = opened.gid;
            (*id).route.addr.ib.pkey = PARTITION;
        }
        Ok(())
    }

    /// Gives the program the path to the peer, which is the same for all of them.
    ///
    /// # Safety
    ///
    /// As for [`Id::set_template`].
    pub(crate) unsafe fn set_path(id: *mut abi::Id, mtu: u8, traffic_class: u8) {
        /// `IBV_SA_EQ`.
        const EXACTLY: u8 = 2;
        // SAFETY: The caller answers for the identifier.
        unsafe {
            let abi::IbAddress { sgid, dgid, pkey } = (*id).route.addr.ib;
            let path = abi::PathRecord {
                dgid,
                sgid,
                dlid: 0,
                slid: 0,
                raw_traffic: 0,
                flow_label: 0,
                hop_limit: crate::queue_pair::HOP_LIMIT,
                traffic_class,
                reversible: 1,
                numb_path: 1,
                pkey,
                sl: 0,
                mtu_selector: EXACTLY,
                mtu,
                rate_selector: EXACTLY,
                rate: 0,
                packet_life_time_selector: EXACTLY,
                packet_life_time: 0,
                preference: 0,
            };
            let path = (*id.cast::<Self>()).path.insert(Box::new(path));
            (*id).route.path_rec = &raw mut **path;
            (*id).route.num_paths = 1;
        }
    }

    /// Takes the next event of a synchronous identifier, which has it until the next call.
    ///
    /// # Errors
    ///
    /// Fails if the event says that something has failed.
    ///
    /// # Safety
    ///
    /// As for [`Id::set_template`].
    pub(crate) unsafe fn complete(id: *mut abi::Id) -> Outcome<()> {
        // SAFETY: The caller answers for the identifier.
        unsafe {
            let queue = {
                let endpoint = Self::endpoint(id);
                let state = endpoint.state();
                if !state.is_synchronous {
                    return Ok(());
                }
                Arc::clone(&state.queue)
            };
            Self::acknowledge_last(id);
            (*id).event = next(&queue)?;
            let abi::Event { event: kind, status, .. } = *(*id).event;
            match status {
                0 => Ok(()),
                _ if kind == event::REJECTED => Err(Failure::quiet(libc::ECONNREFUSED)),
                _ => Err(Failure::quiet(status.abs())),
            }
        }
    }

    /// Gives back the event that a synchronous identifier has.
    ///
    /// # Safety
    ///
    /// As for [`Id::set_template`].
    pub(crate) unsafe fn acknowledge_last(id: *mut abi::Id) {
        // SAFETY: The caller answers for the identifier, and the event is one of `next`.
        unsafe {
            let event = std::mem::replace(&mut (*id).event, null_mut());
            if !event.is_null() {
                acknowledge(event);
            }
        }
    }

    /// # Safety
    ///
    /// The identifier exists, and nobody uses it any more.
    pub(crate) unsafe fn free(id: *mut abi::Id) {
        // SAFETY: `boxed` has taken the identifier out of its box, and its own channel has no other user.
        unsafe {
            let this = Box::from_raw(id.cast::<Self>());
            if this.owns_channel {
                Channel::destroy(this.abi.channel);
            }
        }
    }

    /// # Safety
    ///
    /// As for [`Id::free`].
    pub(crate) unsafe fn destroy(id: *mut abi::Id) {
        // SAFETY: The caller answers for the identifier.
        unsafe {
            let endpoint = Self::endpoint(id);
            endpoint.destroy(reason::BY_CONSUMER);
            Self::acknowledge_last(id);
            endpoint.acks.wait();
            Self::free(id);
        }
    }
}

/// `rdma_create_id`. Without a channel the identifier is synchronous: each call waits for its event.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rnic_rdma_create_id(
    channel: *mut abi::Channel,
    into: *mut *mut abi::Id,
    context: *mut c_void,
    port_space: c_int,
) -> c_int {
    // SAFETY: The program passes null or a channel that exists, and the address of a pointer.
    status(unsafe { Id::create(channel, context, port_space).map(|id| *into = id) })
}

/// `rdma_destroy_id`. Waits until the program has acknowledged the events of the identifier.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_destroy_id(id: *mut abi::Id) -> c_int {
    // SAFETY: The program passes an identifier, and uses it no more.
    unsafe { Id::destroy(id) };
    0
}

/// `rdma_migrate_id`. Without a channel the identifier becomes synchronous. Waits until the program has acknowledged the events of the
/// identifier.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_migrate_id(id: *mut abi::Id, channel: *mut abi::Channel) -> c_int {
    // SAFETY: The program passes an identifier, and null or a channel; it uses the identifier in this thread alone.
    status(unsafe { migrate(id, channel) })
}

/// # Safety
///
/// As for [`rnic_rdma_migrate_id`].
unsafe fn migrate(id: *mut abi::Id, mut channel: *mut abi::Channel) -> Outcome<()> {
    // SAFETY: The caller answers for both.
    unsafe {
        let this = id.cast::<Id>();
        let is_synchronous = channel.is_null();
        if is_synchronous && (*this).owns_channel {
            return Err(Failure::new(libc::EINVAL, "rdma_migrate_id: the identifier is synchronous already"));
        }
        if is_synchronous {
            channel = Channel::create()?;
        }
        let endpoint = Id::endpoint(id);
        endpoint.migrate(Channel::queue(channel));
        endpoint.state().is_synchronous = is_synchronous;
        Id::acknowledge_last(id);
        endpoint.acks.wait();
        if (*this).owns_channel {
            Channel::destroy((*id).channel);
        }
        (*this).owns_channel = is_synchronous;
        (*id).channel = channel;
        Ok(())
    }
}
