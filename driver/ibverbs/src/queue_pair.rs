//! Queue pairs: reliable connected ones.
#![allow(unsafe_code)]

use crate::abi;
use crate::attributes::{for_card, for_program, path};
use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::outcome::{Failure, Outcome, object, status};
use crate::protection_domain::ProtectionDomain;
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::work_session::{self, Session};
use rnic_driver::{AddressHandle, Limits, QueuePairOptions, raw};
use rnic_layout::limits::{INLINE_BYTES_FIRST_SLOT, RING_LOG2_MIN, SEND_SGES_FIRST_SLOT, SEND_SLOTS_MAX};
use rnic_layout::state::AttributeMask;
use rnic_stand_in::{Acknowledgements, lock};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// `IBV_QPT_RC`.
const RELIABLE_CONNECTED: c_int = 2;

/// `ibv_qp`, and the queue pair of the driver.
#[repr(C)]
pub(crate) struct QueuePair {
    /// Programs read it at any time, and `ibv_modify_qp` writes it.
    abi: UnsafeCell<abi::ExtendedQueuePair>,
    pub(crate) queues: Mutex<raw::QueuePair>,
    /// What the program has set, and the address handle of the path.
    set: Mutex<(abi::QueuePairAttributes, Option<AddressHandle>)>,
    signals_all: bool,
    /// Requests that the program makes by `ibv_wr_*`, if it has asked for that.
    pub(crate) session: Option<Session>,
    acks: Acknowledgements,
}

/// Sizes of the queues of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    send_slots_log2: u32,
    receive_wqes_log2: u32,
    /// What the program gets.
    capacity: abi::QueuePairCapacity,
}

/// log2 of the slots of a ring for `count` of them.
fn ring_log2(count: u32) -> u32 {
    count.max(1 << RING_LOG2_MIN).next_power_of_two().ilog2()
}

impl Sizes {
    /// Sizes of queues that hold what is asked for.
    fn of(asked: &abi::QueuePairCapacity, limits: &Limits) -> Outcome<Self> {
        let queues = &limits.queues;
        let check = |name: &str, value: u32, most: u32| {
            let text = || format!("{name} is {value}; this card has room for {most}");
            if value <= most { Ok(()) } else { Err(Failure::new(libc::EINVAL, text())) }
        };
        let inline_max: u32 = queues.inline_bytes.into();
        check("max_send_sge", asked.max_send_sge, queues.send_sges.into())?;
        check("max_recv_sge", asked.max_recv_sge, queues.receive_sges.into())?;
        check("max_inline_data", asked.max_inline_data, inline_max)?;
        let is_wide = asked.max_send_sge > SEND_SGES_FIRST_SLOT as u32
            || asked.max_inline_data > INLINE_BYTES_FIRST_SLOT as u32;
        let slots = if is_wide { SEND_SLOTS_MAX as u32 } else { 1 };
        check("max_send_wr", asked.max_send_wr, (1 << queues.send_slots_log2) / slots)?;
        check("max_recv_wr", asked.max_recv_wr, 1 << queues.receive_wqes_log2)?;
        let send_slots_log2 = ring_log2(asked.max_send_wr * slots);
        let receive_wqes_log2 = ring_log2(asked.max_recv_wr);
        let (sges, inline) = match is_wide {
            true => (queues.send_sges.into(), inline_max),
            false => (SEND_SGES_FIRST_SLOT as u32, inline_max.min(INLINE_BYTES_FIRST_SLOT as u32)),
        };
        let capacity = abi::QueuePairCapacity {
            max_send_wr: (1 << send_slots_log2) / slots,
            max_recv_wr: 1 << receive_wqes_log2,
            max_send_sge: sges,
            max_recv_sge: queues.receive_sges.into(),
            max_inline_data: inline,
        };
        Ok(Self { send_slots_log2, receive_wqes_log2, capacity })
    }
}

/// Fails for kinds of queue pairs that the card has not.
fn check_kind(asked: &abi::QueuePairInit) -> Outcome<()> {
    let refused = |text: &str| Err(Failure::new(libc::EOPNOTSUPP, text));
    if asked.qp_type != RELIABLE_CONNECTED {
        return refused("the card has reliable connected queue pairs only; ask for IBV_QPT_RC");
    }
    if asked.send_cq.is_null() || asked.recv_cq.is_null() {
        return Err(Failure::new(
            libc::EINVAL,
            "a queue pair needs completion queues for sends and receives",
        ));
    }
    Ok(())
}

impl QueuePair {
    /// # Safety
    ///
    /// The pointer is that of a queue pair that exists.
    pub(crate) unsafe fn of<'a>(queue_pair: *mut abi::QueuePair) -> &'a Self {
        // SAFETY: The program has the pointer from `create`.
        unsafe { &*queue_pair.cast::<Self>() }
    }

    /// The part that the program knows.
    fn abi(&self) -> abi::QueuePair {
        // SAFETY: The program modifies, queries and destroys a queue pair in one thread at a time.
        unsafe { (*self.abi.get()).queue_pair }
    }

    /// Events that the program has taken and not acknowledged.
    pub(crate) fn acks(&self) -> &Acknowledgements {
        &self.acks
    }

    /// # Safety
    ///
    /// The objects of the pointers exist.
    pub(crate) unsafe fn create(
        pd: *mut abi::ProtectionDomain,
        asked: &mut abi::QueuePairInit,
        has_session: bool,
    ) -> Outcome<*mut abi::QueuePair> {
        check_kind(asked)?;
        // SAFETY: The caller answers for the objects, which keep the context.
        let (domain, pointer) = unsafe { (ProtectionDomain::of(pd), (*pd).context) };
        // SAFETY: As above.
        let (context, completing) = unsafe {
            let queues = [asked.send_cq, asked.recv_cq].map(|queue| CompletionQueue::of(queue));
            (Context::of(pointer), queues)
        };
        if !asked.srq.is_null() {
            (asked.cap.max_recv_wr, asked.cap.max_recv_sge) = (0, 0);
        }
        let mut sizes = Sizes::of(&asked.cap, context.card.limits())?;
        if !asked.srq.is_null() {
            (sizes.capacity.max_recv_wr, sizes.capacity.max_recv_sge) = (0, 0);
        }
        let signals_all = asked.sq_sig_all != 0;
        let options = QueuePairOptions {
            send_slots_log2: sizes.send_slots_log2,
            receive_wqes_log2: sizes.receive_wqes_log2,
            signal_all: signals_all,
            ..QueuePairOptions::default()
        };
        let [send, receive] = completing;
        // SAFETY: As above.
        let shared = (!asked.srq.is_null()).then(|| unsafe { SharedReceiveQueue::of(asked.srq) });
        let queues = match shared {
            Some(shared) => {
                let srq = shared.queue.typed();
                domain.domain.create_queue_pair_with_srq(&send.queue, &receive.queue, srq, &options)?
            }
            None => domain.domain.create_queue_pair(&send.queue, &receive.queue, &options)?,
        };
        let queues = raw::QueuePair::from(queues);
        let number = queues.number();
        let abi = abi::QueuePair {
            context: pointer,
            qp_context: asked.qp_context,
            pd,
            send_cq: asked.send_cq,
            recv_cq: asked.recv_cq,
            srq: asked.srq,
            handle: number,
            qp_num: number,
            state: queues.state().number().into(),
            qp_type: asked.qp_type,
            mutex: [0; 5],
            cond: [0; 6],
            events_completed: 0,
        };
        asked.cap = sizes.capacity;
        let session = has_session.then(|| Session::new(sizes.capacity.max_send_wr));
        let functions = work_session::functions();
        let abi = abi::ExtendedQueuePair { queue_pair: abi, comp_mask: 0, wr_id: 0, wr_flags: 0, functions };
        let set = abi::QueuePairAttributes { cap: sizes.capacity, ..Default::default() };
        let (queues, set) = (Mutex::new(queues), Mutex::new((set, None)));
        let acks = Acknowledgements::default();
        let this = Box::new(Self { abi: abi.into(), queues, set, signals_all, session, acks });
        lock(&context.objects).queue_pairs.insert(number, &raw const *this as usize);
        completing.iter().for_each(|queue| _ = queue.users.fetch_add(1, Ordering::AcqRel));
        shared.inspect(|shared| _ = shared.users.fetch_add(1, Ordering::AcqRel));
        domain.users.fetch_add(1, Ordering::AcqRel);
        Ok(Box::into_raw(this).cast())
    }

    /// Sets the attributes of a mask. Returns the state after it.
    ///
    /// # Safety
    ///
    /// The domain of the queue pair exists.
    unsafe fn modify(&self, attributes: &abi::QueuePairAttributes, mask: AttributeMask) -> Outcome<c_int> {
        let mut body = for_card(attributes, mask)?;
        let mut set = lock(&self.set);
        let mut handle = None;
        if mask.contains(AttributeMask::ADDRESS) {
            // SAFETY: The caller answers for the domain.
            let domain = unsafe { &ProtectionDomain::of(self.abi().pd).domain };
            let made = domain.create_address_handle(&path(&attributes.ah_attr)?)?;
            body.address_handle = made.number();
            handle = Some(made);
        }
        let mut queues = lock(&self.queues);
        queues.modify(mask, &body)?;
        if let Some(handle) = handle {
            set.0.ah_attr = attributes.ah_attr;
            set.1 = Some(handle);
        }
        Ok(queues.state().number().into())
    }

    fn query(&self) -> Outcome<abi::QueuePairAttributes> {
        let known = lock(&self.queues).query()?;
        Ok(for_program(&known, &lock(&self.set).0))
    }
}

/// `ibv_create_qp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_create_qp(
    domain: *mut abi::ProtectionDomain,
    asked: *mut abi::QueuePairInit,
) -> *mut abi::QueuePair {
    // SAFETY: The program passes objects that exist, and attributes, in which it gets the capacity.
    object(unsafe { QueuePair::create(domain, &mut *asked, false) })
}

/// `ibv_modify_qp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_modify_qp(
    queue_pair: *mut abi::QueuePair,
    attributes: *const abi::QueuePairAttributes,
    mask: c_int,
) -> c_int {
    // SAFETY: The program passes a queue pair, whose domain exists, and attributes. It modifies a queue pair in one thread at a time.
    status(unsafe {
        let modified = QueuePair::of(queue_pair).modify(&*attributes, AttributeMask(mask as u32));
        modified.map(|state| (*queue_pair).state = state)
    })
}

/// `ibv_query_qp`. All attributes are given, whatever the mask asks for.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_query_qp(
    queue_pair: *mut abi::QueuePair,
    attributes: *mut abi::QueuePairAttributes,
    _mask: c_int,
    init: *mut abi::QueuePairInit,
) -> c_int {
    // SAFETY: The program passes a queue pair that exists.
    let this = unsafe { QueuePair::of(queue_pair) };
    status(this.query().map(|found| {
        let abi::QueuePair { qp_context, send_cq, recv_cq, srq, qp_type, .. } = this.abi();
        let sq_sig_all = this.signals_all.into();
        let created =
            abi::QueuePairInit { qp_context, send_cq, recv_cq, srq, cap: found.cap, qp_type, sq_sig_all };
        // SAFETY: The program passes two places, and asks in one thread at a time.
        unsafe {
            *attributes = found;
            *init = created;
            (*queue_pair).state = found.qp_state;
        }
    }))
}

/// `ibv_destroy_qp`. Waits until the program has acknowledged the events of the queue pair.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_destroy_qp(queue_pair: *mut abi::QueuePair) -> c_int {
    // SAFETY: The program passes a queue pair, and uses it no more. `create` has taken it out of its box.
    let this = unsafe { Box::from_raw(queue_pair.cast::<QueuePair>()) };
    let abi::QueuePair { context, pd, send_cq, recv_cq, srq, qp_num, .. } = this.abi();
    // SAFETY: The objects exist as long as the queue pair.
    let (context, domain, queues) = unsafe {
        let queues = [send_cq, recv_cq].map(|queue| CompletionQueue::of(queue));
        (Context::of(context), ProtectionDomain::of(pd), queues)
    };
    lock(&context.objects).queue_pairs.remove(&qp_num);
    this.acks.wait();
    drop(this);
    queues.iter().for_each(|queue| _ = queue.users.fetch_sub(1, Ordering::AcqRel));
    if !srq.is_null() {
        // SAFETY: As above.
        unsafe { SharedReceiveQueue::of(srq) }.users.fetch_sub(1, Ordering::AcqRel);
    }
    domain.users.fetch_sub(1, Ordering::AcqRel);
    0
}
