//! Queue pairs of identifiers: they are created with what the identifier has, and modified as the connection goes on.
#![allow(unsafe_code)]

use crate::abi::{self, attribute, state};
use crate::cards::{GID_INDEX, PORT};
use crate::endpoint::{Phase, State};
use crate::id::Id;
use crate::outcome::{Failure, Outcome, status};
use crate::verbs::verbs;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// Hops that a packet may make.
pub(crate) const HOP_LIMIT: u8 = 64;
/// Time that a peer without a receive WQE asks to be waited for, as the verbs code it: 0.64 ms.
const RNR_TIMER: u8 = 12;
/// Time after which a packet is sent again, as the verbs code it: 67 ms.
const ACK_TIMEOUT: u8 = 14;
/// `IBV_ACCESS_*`: what peers may do.
const REMOTE_WRITE: u32 = 1 << 1;
const REMOTE_READ_AND_ATOMIC: u32 = 1 << 2 | 1 << 3;

/// Attributes with which a queue pair goes into a state, and their mask.
///
/// # Errors
///
/// Fails for a state that no transition of a connection leads to.
fn attributes(into: c_int, connection: &State) -> Outcome<(abi::QueuePairAttributes, u32)> {
    let State { local, remote, settings, .. } = connection;
    let answers = local.responder_resources.min(remote.initiator_depth);
    let mut found = abi::QueuePairAttributes { qp_state: into, ..Default::default() };
    let access = REMOTE_WRITE | if local.responder_resources > 0 { REMOTE_READ_AND_ATOMIC } else { 0 };
    let mask = match into {
        state::INIT => {
            found.port_num = PORT;
            found.qp_access_flags = access;
            attribute::ACCESS_FLAGS | attribute::PKEY_INDEX | attribute::PORT
        }
        state::RTR => {
            found.qp_access_flags = access;
            found.path_mtu = local.mtu.min(remote.mtu).into();
            found.rq_psn = remote.psn;
            found.dest_qp_num = remote.qp_number;
            found.max_dest_rd_atomic = answers;
            found.min_rnr_timer = RNR_TIMER;
            found.ah_attr = abi::AddressAttributes {
                grh: abi::GlobalRoute {
                    dgid: remote.gid,
                    flow_label: 0,
                    sgid_index: GID_INDEX,
                    hop_limit: HOP_LIMIT,
                    traffic_class: settings.traffic_class,
                },
                is_global: 1,
                port_num: PORT,
                ..Default::default()
            };
            attribute::ACCESS_FLAGS
                | attribute::ADDRESS_VECTOR
                | attribute::PATH_MTU
                | attribute::DESTINATION_QPN
                | attribute::RQ_PSN
                | attribute::MAX_DEST_RD_ATOMIC
                | attribute::MIN_RNR_TIMER
        }
        state::RTS => {
            found.sq_psn = local.psn;
            found.timeout = settings.ack_timeout.unwrap_or(ACK_TIMEOUT);
            // The client says how often both sides repeat a packet.
            found.retry_cnt = if connection.is_active { local.retry_count } else { remote.retry_count };
            found.rnr_retry = remote.rnr_retry_count;
            found.max_rd_atomic = local.initiator_depth.min(remote.responder_resources);
            attribute::SQ_PSN
                | attribute::TIMEOUT
                | attribute::RETRY_COUNT
                | attribute::RNR_RETRY
                | attribute::MAX_RD_ATOMIC
        }
        _ => {
            let text = format_args!(
                "rdma_init_qp_attr: qp_state is {into}; INIT (1), RTR (2) and RTS (3) have attributes"
            );
            return Err(Failure::new(libc::EINVAL, text));
        }
    };
    Ok((found, mask | attribute::STATE))
}

/// Modifies a queue pair.
///
/// # Safety
///
/// The queue pair exists.
unsafe fn modify(
    queue_pair: *mut abi::QueuePair,
    (mut attributes, mask): (abi::QueuePairAttributes, u32),
) -> Outcome<()> {
    let verbs = verbs()?;
    // SAFETY: The caller answers for the queue pair.
    match unsafe { (verbs.ibv_modify_qp)(queue_pair, &raw mut attributes, mask as c_int) } {
        0 => Ok(()),
        errno => Err(Failure::quiet(errno)),
    }
}

/// Makes the queue pair of an identifier, if it has one, receive and send.
///
/// # Safety
///
/// The identifier exists, and no other thread modifies its queue pair.
pub(crate) unsafe fn connect(id: *mut abi::Id, connection: &State) -> Outcome<()> {
    // SAFETY: The caller answers for the identifier.
    let queue_pair = unsafe { (*id).qp };
    if queue_pair.is_null() {
        return Ok(());
    }
    for into in [state::RTR, state::RTS] {
        // SAFETY: The identifier has a queue pair that exists.
        unsafe { modify(queue_pair, attributes(into, connection)?)? };
    }
    Ok(())
}

/// Brings the queue pair of an identifier, if it has one, into the error state, which completes what was posted.
///
/// # Safety
///
/// As for [`connect`].
pub(crate) unsafe fn fail(id: *mut abi::Id) {
    // SAFETY: The caller answers for the identifier.
    let queue_pair = unsafe { (*id).qp };
    if !queue_pair.is_null() {
        let error = abi::QueuePairAttributes { qp_state: state::ERROR, ..Default::default() };
        // SAFETY: The identifier has a queue pair that exists. One that is in an error state already refuses, and is there.
        let _ = unsafe { modify(queue_pair, (error, attribute::STATE)) };
    }
}

/// Makes a completion queue with a channel, each of which a failure of the other destroys.
///
/// # Safety
///
/// The identifier exists and is bound to a card.
unsafe fn completion_queue(id: *mut abi::Id, cqes: u32) -> Outcome<(*mut c_void, *mut c_void)> {
    let verbs = verbs()?;
    // SAFETY: The caller answers for the identifier, whose context is open. The verbs library says what it refuses.
    unsafe {
        let channel = (verbs.ibv_create_comp_channel)((*id).verbs);
        if channel.is_null() {
            return Err(Failure::last());
        }
        let queue = (verbs.ibv_create_cq)((*id).verbs, cqes.max(1) as c_int, id.cast(), channel, 0);
        if queue.is_null() {
            let failure = Failure::last();
            (verbs.ibv_destroy_comp_channel)(channel);
            return Err(failure);
        }
        Ok((channel, queue))
    }
}

/// Gives the attributes the completion queues that they lack.
///
/// # Safety
///
/// As for [`completion_queue`].
unsafe fn add_completion_queues(id: *mut abi::Id, asked: &mut abi::QueuePairInit) -> Outcome<()> {
    // SAFETY: The caller answers for the identifier.
    unsafe {
        if asked.send_cq.is_null() {
            ((*id).send_cq_channel, (*id).send_cq) = completion_queue(id, asked.cap.max_send_wr)?;
            asked.send_cq = (*id).send_cq;
        }
        if asked.recv_cq.is_null() {
            ((*id).recv_cq_channel, (*id).recv_cq) = completion_queue(id, asked.cap.max_recv_wr)?;
            asked.recv_cq = (*id).recv_cq;
        }
    }
    Ok(())
}

/// Destroys the completion queues that the identifier has made.
///
/// # Safety
///
/// The identifier exists.
unsafe fn remove_completion_queues(id: *mut abi::Id) {
    let Ok(verbs) = verbs() else { return };
    // SAFETY: The caller answers for the identifier, whose queues and channels nothing else destroys.
    unsafe {
        for (queue, channel) in [
            (&mut (*id).send_cq, &mut (*id).send_cq_channel),
            (&mut (*id).recv_cq, &mut (*id).recv_cq_channel),
        ] {
            if !queue.is_null() {
                (verbs.ibv_destroy_cq)(*queue);
                (verbs.ibv_destroy_comp_channel)(*channel);
            }
            (*queue, *channel) = (null_mut(), null_mut());
        }
    }
}

/// Creates the queue pair of an identifier with a function that makes it of a domain and attributes, and initialises it.
///
/// # Safety
///
/// The identifier exists, and no other thread uses it; the domain is null or exists.
unsafe fn create_by(
    id: *mut abi::Id,
    domain: *mut c_void,
    asked: &mut abi::QueuePairInit,
    make: impl FnOnce(*mut c_void, &mut abi::QueuePairInit) -> *mut abi::QueuePair,
) -> Outcome<()> {
    // SAFETY: The caller answers for the identifier.
    unsafe {
        if (*id).verbs.is_null() {
            let text = "rdma_create_qp: the identifier is not bound to a card; resolve an address first";
            return Err(Failure::new(libc::EINVAL, text));
        }
        if !(*id).qp.is_null() {
            return Err(Failure::new(
                libc::EINVAL,
                "rdma_create_qp: the identifier has a queue pair already",
            ));
        }
        let domain = if domain.is_null() { (*id).pd } else { domain };
        if asked.srq.is_null() {
            asked.srq = (*id).srq;
        }
        let made = add_completion_queues(id, asked).and_then(|()| {
            let queue_pair = make(domain, asked);
            if queue_pair.is_null() { Err(Failure::last()) } else { Ok(queue_pair) }
        });
        let initialised = made.and_then(|queue_pair| {
            let endpoint = Id::endpoint(id);
            let init = attributes(state::INIT, &endpoint.state())?;
            modify(queue_pair, init)
                .inspect_err(|_| _ = verbs().map(|verbs| (verbs.ibv_destroy_qp)(queue_pair)))?;
            Ok(queue_pair)
        });
        match initialised {
            Ok(queue_pair) => {
                ((*id).qp, (*id).pd) = (queue_pair, domain);
                Ok(())
            }
            Err(failure) => {
                remove_completion_queues(id);
                Err(failure)
            }
        }
    }
}

/// Creates the queue pair of an identifier.
///
/// # Safety
///
/// As for [`create_by`].
pub(crate) unsafe fn create(
    id: *mut abi::Id,
    domain: *mut c_void,
    asked: &mut abi::QueuePairInit,
) -> Outcome<()> {
    let verbs = verbs()?;
    // SAFETY: The caller answers for the objects, and the verbs library says what it refuses.
    unsafe { create_by(id, domain, asked, |domain, asked| (verbs.ibv_create_qp)(domain, asked)) }
}

/// `rdma_create_qp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_create_qp(
    id: *mut abi::Id,
    domain: *mut c_void,
    asked: *mut abi::QueuePairInit,
) -> c_int {
    // SAFETY: The program passes objects that exist, and attributes, in which it gets the capacity.
    status(unsafe { create(id, domain, &mut *asked) })
}

/// `rdma_create_qp_ex`. Attributes of the first version go to `ibv_create_qp`, others to `ibv_create_qp_ex` of the context.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_create_qp_ex(
    id: *mut abi::Id,
    asked: *mut abi::QueuePairInitExtended,
) -> c_int {
    // SAFETY: The program passes objects that exist, and attributes, in which it gets the capacity.
    status(unsafe { create_extended(id, &mut *asked) })
}

type CreateExtended =
    unsafe extern "C" fn(*mut abi::Context, *mut abi::QueuePairInitExtended) -> *mut abi::QueuePair;

/// # Safety
///
/// As for [`create_by`].
unsafe fn create_extended(id: *mut abi::Id, asked: &mut abi::QueuePairInitExtended) -> Outcome<()> {
    let domain = if asked.comp_mask & abi::INIT_HAS_DOMAIN == 0 { null_mut() } else { asked.pd };
    let abi::QueuePairInitExtended { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, .. } =
        *asked;
    let mut first = abi::QueuePairInit { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
    // SAFETY: The caller answers for the objects.
    unsafe {
        if asked.comp_mask & !abi::INIT_HAS_DOMAIN == 0 {
            create(id, domain, &mut first)?;
        } else {
            let context = (*id).verbs;
            create_by(id, domain, &mut first, |domain, first| {
                let create = context.byte_offset(abi::CREATE_QP_EX).cast::<Option<CreateExtended>>();
                (asked.send_cq, asked.recv_cq, asked.srq) = (first.send_cq, first.recv_cq, first.srq);
                asked.pd = domain;
                asked.comp_mask |= abi::INIT_HAS_DOMAIN;
                match *create {
                    Some(create) => create(context, asked),
                    None => {
                        Failure::quiet(libc::EOPNOTSUPP).report();
                        null_mut()
                    }
                }
            })?;
            first.cap = asked.cap;
        }
    }
    asked.cap = first.cap;
    Ok(())
}

/// `rdma_destroy_qp`, with the completion queues that were made for it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rnic_rdma_destroy_qp(id: *mut abi::Id) {
    let Ok(verbs) = verbs() else { return };
    // SAFETY: The program passes an identifier, whose queue pair it uses no more.
    unsafe {
        let queue_pair = std::mem::replace(&mut (*id).qp, null_mut());
        if !queue_pair.is_null() {
            (verbs.ibv_destroy_qp)(queue_pair);
        }
        remove_completion_queues(id);
    }
}

/// `rdma_create_srq`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_create_srq(
    id: *mut abi::Id,
    domain: *mut c_void,
    asked: *mut abi::SharedReceiveQueueInit,
) -> c_int {
    // SAFETY: The program passes objects that exist, and attributes.
    status(unsafe { create_srq(id, domain, asked) })
}

/// `rdma_create_srq_ex`, of queues that `rdma_create_srq` could make too.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_create_srq_ex(
    id: *mut abi::Id,
    asked: *mut abi::SharedReceiveQueueInitExtended,
) -> c_int {
    // SAFETY: The program passes an identifier and attributes, which begin as those of the first version.
    status(unsafe {
        let is_basic = (*asked).comp_mask & abi::SRQ_INIT_HAS_TYPE == 0 || (*asked).srq_type == 0;
        if !is_basic || (*asked).comp_mask & !(abi::SRQ_INIT_HAS_TYPE | abi::SRQ_INIT_HAS_DOMAIN) != 0 {
            let text = "rdma_create_srq_ex: the cards have basic shared receive queues only";
            Err(Failure::new(libc::EOPNOTSUPP, text))
        } else {
            let has_domain = (*asked).comp_mask & abi::SRQ_INIT_HAS_DOMAIN != 0;
            let domain = if has_domain { (*asked).pd } else { null_mut() };
            create_srq(id, domain, asked.cast())
        }
    })
}

/// # Safety
///
/// The objects exist, and no other thread uses the identifier.
unsafe fn create_srq(
    id: *mut abi::Id,
    domain: *mut c_void,
    asked: *mut abi::SharedReceiveQueueInit,
) -> Outcome<()> {
    let verbs = verbs()?;
    // SAFETY: The caller answers for the objects, and the verbs library says what it refuses.
    unsafe {
        let domain = if domain.is_null() { (*id).pd } else { domain };
        if domain.is_null() || !(*id).srq.is_null() {
            let text = "rdma_create_srq: the identifier is not bound to a card, or has a shared receive queue already";
            return Err(Failure::new(libc::EINVAL, text));
        }
        let queue = (verbs.ibv_create_srq)(domain, asked);
        if queue.is_null() {
            return Err(Failure::last());
        }
        ((*id).srq, (*id).pd) = (queue, domain);
        Ok(())
    }
}

/// `rdma_destroy_srq`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rnic_rdma_destroy_srq(id: *mut abi::Id) {
    let Ok(verbs) = verbs() else { return };
    // SAFETY: The program passes an identifier, whose shared receive queue it uses no more.
    unsafe {
        let queue = std::mem::replace(&mut (*id).srq, null_mut());
        if !queue.is_null() {
            (verbs.ibv_destroy_srq)(queue);
        }
    }
}

/// `rdma_init_qp_attr`: the attributes with which a queue pair that the identifier has not goes into the state `qp_state`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_init_qp_attr(
    id: *mut abi::Id,
    into: *mut abi::QueuePairAttributes,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: The program passes an identifier, attributes with a state, and the address of a mask.
    status(unsafe {
        let endpoint = Id::endpoint(id);
        let connection = endpoint.state();
        let asked = (*into).qp_state;
        let knows_peer = !matches!(connection.phase, Phase::Idle | Phase::Bound | Phase::Listening)
            && connection.remote.mtu != 0;
        if (*id).verbs.is_null() || (asked != state::INIT && !knows_peer) {
            Err(Failure::new(libc::EINVAL, "rdma_init_qp_attr: the peer has not answered yet"))
        } else {
            attributes(asked, &connection).map(|(found, bits)| (*into, *mask) = (found, bits as c_int))
        }
    })
}
