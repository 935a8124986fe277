//! Shared receive queues (SRQs): receives that queue pairs share.
#![allow(unsafe_code)]

use crate::abi;
use crate::context::Context;
use crate::outcome::{Failure, Outcome, object, status};
use crate::protection_domain::ProtectionDomain;
use rnic_driver::{Limits, SharedReceiveQueueOptions, raw};
use rnic_layout::limits::RING_LOG2_MIN;
use rnic_stand_in::{Acknowledgements, lock};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `IBV_SRQ_MAX_WR` and `IBV_SRQ_LIMIT`.
const MAX_WR: c_int = 1;
const LIMIT: c_int = 1 << 1;

/// `ibv_srq`, and the queue of the driver.
#[repr(C)]
pub(crate) struct SharedReceiveQueue {
    abi: abi::SharedReceiveQueue,
    pub(crate) queue: raw::SharedReceiveQueue,
    /// Receives that fit, and their SGEs.
    capacity: abi::SharedReceiveAttributes,
    acks: Acknowledgements,
    /// Queue pairs that take receives from here.
    pub(crate) users: AtomicUsize,
}

/// Checks how many receives are asked for, each of how many SGEs.
fn check(asked: &abi::SharedReceiveAttributes, limits: &Limits) -> Outcome<u16> {
    let queues = &limits.queues;
    let most = 1 << queues.receive_wqes_log2;
    let sges: u32 = queues.receive_sges.into();
    match u16::try_from(asked.max_wr) {
        Ok(receives) if (1..=most).contains(&asked.max_wr) && asked.max_sge <= sges => Ok(receives),
        _ => {
            let abi::SharedReceiveAttributes { max_wr, max_sge, .. } = asked;
            let text = format!(
                "a shared receive queue of {max_wr} receives with {max_sge} SGEs; this card has room for 1 to \
                 {most} receives with up to {sges} SGEs"
            );
            Err(Failure::new(libc::EINVAL, text))
        }
    }
}

impl SharedReceiveQueue {
    /// # Safety
    ///
    /// The pointer is that of a queue that exists.
    pub(crate) unsafe fn of<'a>(queue: *mut abi::SharedReceiveQueue) -> &'a Self {
        // SAFETY: The program has the pointer from `create`.
        unsafe { &*queue.cast::<Self>() }
    }

    /// Events that the program has taken and not acknowledged.
    pub(crate) fn acks(&self) -> &Acknowledgements {
        &self.acks
    }

    /// # Safety
    ///
    /// The domain exists.
    unsafe fn create(
        pd: *mut abi::ProtectionDomain,
        asked: &mut abi::SharedReceiveInit,
    ) -> Outcome<*mut abi::SharedReceiveQueue> {
        // SAFETY: The caller answers for the domain, which keeps the context.
        let (domain, pointer) = unsafe { (ProtectionDomain::of(pd), (*pd).context) };
        // SAFETY: As above.
        let context = unsafe { Context::of(pointer) };
        let receives = check(&asked.attr, context.card.limits())?;
        let options = SharedReceiveQueueOptions {
            entries_log2: u32::from(receives).next_power_of_two().ilog2().max(RING_LOG2_MIN),
            receives_max: Some(receives),
            // The manual has the limit of the attributes ignored here.
            limit: 0,
        };
        let queue = raw::SharedReceiveQueue::from(domain.domain.create_shared_receive_queue(&options)?);
        let number = queue.typed().number();
        asked.attr.max_sge = context.card.limits().queues.receive_sges.into();
        let abi = abi::SharedReceiveQueue {
            context: pointer,
            srq_context: asked.srq_context,
            pd,
            handle: number,
            mutex: [0; 5],
            cond: [0; 6],
            events_completed: 0,
        };
        let capacity = abi::SharedReceiveAttributes { srq_limit: 0, ..asked.attr };
        let (acks, users) = (Acknowledgements::default(), AtomicUsize::new(0));
        let this = Box::new(Self { abi, queue, capacity, acks, users });
        lock(&context.objects).shared_receive_queues.insert(number, &raw const *this as usize);
        domain.users.fetch_add(1, Ordering::AcqRel);
        Ok(Box::into_raw(this).cast())
    }

    fn modify(&self, asked: &abi::SharedReceiveAttributes, mask: c_int) -> Outcome<()> {
        if mask & MAX_WR != 0 {
            let text = "the card resizes no shared receive queue; create it as large as it has to be";
            return Err(Failure::new(libc::EOPNOTSUPP, text));
        }
        if mask & !LIMIT != 0 {
            let text = format!("the attribute mask is {mask:#x}; a shared receive queue has IBV_SRQ_LIMIT");
            return Err(Failure::new(libc::EINVAL, text));
        }
        if mask & LIMIT != 0 {
            // What no u16 holds is above every limit too.
            let limit = u16::try_from(asked.srq_limit).unwrap_or(u16::MAX);
            self.queue.typed().set_limit(limit)?;
        }
        Ok(())
    }
}

/// `ibv_create_srq`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_create_srq(
    domain: *mut abi::ProtectionDomain,
    asked: *mut abi::SharedReceiveInit,
) -> *mut abi::SharedReceiveQueue {
    // SAFETY: The program passes a domain that exists, and attributes, in which it gets the capacity.
    object(unsafe { SharedReceiveQueue::create(domain, &mut *asked) })
}

/// `ibv_modify_srq`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_modify_srq(
    queue: *mut abi::SharedReceiveQueue,
    attributes: *const abi::SharedReceiveAttributes,
    mask: c_int,
) -> c_int {
    // SAFETY: The program passes a queue that exists, and attributes.
    status(unsafe { SharedReceiveQueue::of(queue).modify(&*attributes, mask) })
}

/// `ibv_query_srq`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_query_srq(
    queue: *mut abi::SharedReceiveQueue,
    attributes: *mut abi::SharedReceiveAttributes,
) -> c_int {
    // SAFETY: The program passes a queue that exists.
    let this = unsafe { SharedReceiveQueue::of(queue) };
    status(this.queue.typed().limit().map_err(Failure::from).map(|limit| {
        let found = abi::SharedReceiveAttributes { srq_limit: limit.into(), ..this.capacity };
        // SAFETY: The program passes a place for the attributes.
        unsafe { *attributes = found }
    }))
}

/// `ibv_get_srq_num`.
pub(crate) unsafe extern "C" fn get_srq_num(queue: *mut abi::SharedReceiveQueue, number: *mut u32) -> c_int {
    // SAFETY: The program passes a queue that exists, and a place for its number.
    unsafe { *number = SharedReceiveQueue::of(queue).abi.handle };
    0
}

/// `ibv_destroy_srq`. Waits until the program has acknowledged the events of the queue.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_destroy_srq(queue: *mut abi::SharedReceiveQueue) -> c_int {
    // SAFETY: The program passes a queue that exists.
    let this = unsafe { SharedReceiveQueue::of(queue) };
    if this.users.load(Ordering::Acquire) != 0 {
        return libc::EBUSY;
    }
    // SAFETY: Context and domain exist as long as their objects.
    let (context, domain) = unsafe { (Context::of(this.abi.context), ProtectionDomain::of(this.abi.pd)) };
    lock(&context.objects).shared_receive_queues.remove(&this.abi.handle);
    this.acks.wait();
    domain.users.fetch_sub(1, Ordering::AcqRel);
    // SAFETY: Nothing uses the queue, which `create` has taken out of its box.
    drop(unsafe { Box::from_raw(queue.cast::<SharedReceiveQueue>()) });
    0
}
