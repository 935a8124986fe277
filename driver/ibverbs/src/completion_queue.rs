//! Completion queues.
//!
//! The driver tells the card which CQEs were read after each quarter of the ring, and no request reserves them until then. So a ring
//! has a third more CQEs than the program may have in flight.
#![allow(unsafe_code)]

use crate::abi;
use crate::channel::Channel;
use crate::context::Context;
use crate::events::{Events, Notification};
use crate::outcome::{Failure, Outcome, object, say, status};
use crate::polling;
use crate::turn::Turn;
use rnic_driver::{Completion, CompletionQueueOptions, Device};
use rnic_layout::doorbell::Arm;
use rnic_layout::limits::{CQES_LOG2_MAX, RING_LOG2_MIN};
use rnic_stand_in::{Acknowledgements, lock};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// `IBV_WC_WITH_IMM` and `IBV_WC_WITH_INV`.
const WITH_IMMEDIATE: u32 = 1 << 1;
const WITH_INVALIDATE: u32 = 1 << 3;

/// `ibv_cq`, and the queue of the driver.
#[repr(C)]
pub(crate) struct CompletionQueue {
    /// Programs read it at any time, and `ibv_resize_cq` writes it.
    abi: UnsafeCell<abi::ExtendedCompletionQueue>,
    pub(crate) queue: rnic_driver::CompletionQueue,
    /// That of the thread that reads `completion`.
    pub(crate) turn: Turn,
    /// The completion that the functions of an extended queue read.
    pub(crate) completion: UnsafeCell<abi::Completion>,
    events: Arc<Events>,
    /// Events that a channel waits for; without a channel there are none.
    notification: Option<Arc<Notification>>,
    completion_acks: Acknowledgements,
    /// Queue pairs that complete here.
    pub(crate) users: AtomicUsize,
    has_failed: AtomicBool,
    /// Polls without a completion, one after the other.
    empty_polls: AtomicU32,
    /// The card is served by another process, which needs a processor for whatever the program waits for.
    is_served: bool,
}

/// Polls without a completion after which a program that spins sleeps, and for how long: the server of a simulated card needs
/// milliseconds for what a card needs microseconds for.
const EMPTY_POLLS_MAX: u32 = 100;
const SLEEP: Duration = Duration::from_micros(50);

/// Requests that a program may have in flight on a ring of 2^`log2` CQEs.
fn usable(log2: u32) -> u32 {
    (1 << log2) / 4 * 3
}

/// Largest number of completions that a queue of a card holds.
pub(crate) fn cqes_max(card: &Device) -> u32 {
    usable(u32::from(card.limits().queues.cqes_log2).min(CQES_LOG2_MAX))
}

/// log2 of the CQEs of the ring of a queue that shall hold `asked` completions.
fn ring_log2(card: &Device, asked: c_int) -> Outcome<u32> {
    let most = cqes_max(card);
    match u32::try_from(asked) {
        Ok(asked) if (1..=most).contains(&asked) => {
            Ok((RING_LOG2_MIN..).find(|&log2| usable(log2) >= asked).unwrap_or(CQES_LOG2_MAX))
        }
        _ => {
            let text =
                format!("a completion queue for {asked} completions; this card has room for 1 to {most}");
            Err(Failure::new(libc::EINVAL, text))
        }
    }
}

impl CompletionQueue {
    /// # Safety
    ///
    /// The pointer is that of a queue that exists.
    pub(crate) unsafe fn of<'a>(queue: *mut abi::CompletionQueue) -> &'a Self {
        // SAFETY: The program has the pointer from `create`.
        unsafe { &*queue.cast::<Self>() }
    }

    /// The part that the program knows.
    fn abi(&self) -> abi::CompletionQueue {
        // SAFETY: The program resizes and destroys a queue in one thread at a time.
        unsafe { (*self.abi.get()).queue }
    }

    /// Events that the program has taken and not acknowledged.
    pub(crate) fn acks(&self) -> &Acknowledgements {
        &self.completion_acks
    }

    /// Fails for a completion vector that the card has not.
    pub(crate) fn check_vector(vector: i64) -> Outcome<()> {
        if vector != 0 {
            let text = format!("completion vector {vector}; `num_comp_vectors` is 1, so use vector 0");
            return Err(Failure::new(libc::EINVAL, text));
        }
        Ok(())
    }

    pub(crate) fn create(
        pointer: *mut abi::Context,
        context: &Context,
        asked: c_int,
        cq_context: *mut c_void,
        channel: (*mut abi::Channel, Option<&Channel>),
    ) -> Outcome<*mut abi::CompletionQueue> {
        let entries_log2 = ring_log2(&context.card, asked)?;
        let options = CompletionQueueOptions { entries_log2, ..CompletionQueueOptions::default() };
        let queue = context.card.create_completion_queue(&context.card.events(), &options)?;
        let number = queue.number();
        let (channel_pointer, channel) = channel;
        let abi = abi::CompletionQueue {
            context: pointer,
            channel: channel_pointer,
            cq_context,
            handle: number,
            cqe: usable(entries_log2) as c_int,
            mutex: [0; 5],
            cond: [0; 6],
            comp_events_completed: 0,
            async_events_completed: 0,
        };
        let functions = polling::functions();
        let abi = abi::ExtendedCompletionQueue { queue: abi, comp_mask: 0, status: 0, wr_id: 0, functions };
        let mut this = Box::new(Self {
            abi: abi.into(),
            turn: Turn::default(),
            completion: abi::Completion::empty().into(),
            queue,
            events: Arc::clone(&context.events),
            notification: None,
            completion_acks: Acknowledgements::default(),
            users: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            empty_polls: AtomicU32::new(0),
            is_served: context.is_served,
        });
        let address = &raw const *this as usize;
        if let Some(channel) = channel {
            let notification = Arc::new(Notification::new(&this.queue, address, &channel.fifo));
            context.events.watch(&notification);
            this.notification = Some(notification);
            channel.users.fetch_add(1, Ordering::AcqRel);
        }
        lock(&context.objects).completion_queues.insert(number, address);
        context.users.fetch_add(1, Ordering::AcqRel);
        Ok(Box::into_raw(this).cast())
    }

    /// Takes up to `wanted` completions into memory of the program. Returns their number, or -1 if the queue has failed.
    ///
    /// # Safety
    ///
    /// The memory has `wanted` places.
    pub(crate) unsafe fn poll(&self, wanted: c_int, into: *mut abi::Completion) -> c_int {
        // SAFETY: The caller answers for the memory.
        let count = unsafe { self.take(wanted, into) };
        if self.is_served {
            self.yield_after(count);
        }
        count
    }

    /// Lets the server run, unless a poll has taken something.
    fn yield_after(&self, count: c_int) {
        if count != 0 {
            self.empty_polls.store(0, Ordering::Relaxed);
        } else if self.empty_polls.fetch_add(1, Ordering::Relaxed) >= EMPTY_POLLS_MAX {
            std::thread::sleep(SLEEP);
        }
    }

    /// As [`Self::poll`], at once. The driver yields the processor if there is no completion.
    ///
    /// # Safety
    ///
    /// As for [`Self::poll`].
    unsafe fn take(&self, wanted: c_int, into: *mut abi::Completion) -> c_int {
        let mut count = 0;
        while count < wanted {
            match self.queue.poll_one() {
                // SAFETY: The caller answers for the memory.
                Ok(Some(done)) => unsafe { into.add(count as usize).write(abi::Completion::of(&done)) },
                Ok(None) if count == 0 && self.events.is_gone() => return -1,
                Ok(None) => break,
                Err(error) => {
                    if !self.has_failed.swap(true, Ordering::Relaxed) {
                        say(error);
                    }
                    return if count == 0 { -1 } else { count };
                }
            }
            count += 1;
        }
        count
    }
}

impl abi::Completion {
    /// What is read before the first poll.
    fn empty() -> Self {
        Self {
            wr_id: 0,
            status: 0,
            opcode: 0,
            vendor_err: 0,
            byte_len: 0,
            imm_data: 0,
            qp_num: 0,
            src_qp: 0,
            wc_flags: 0,
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        }
    }

    fn of(done: &Completion) -> Self {
        let (imm_data, wc_flags) = match (done.immediate, done.invalidated) {
            (Some(immediate), _) => (u32::from_ne_bytes(immediate), WITH_IMMEDIATE),
            (_, Some(key)) => (key, WITH_INVALIDATE),
            _ => (0, 0),
        };
        Self {
            wr_id: done.wr_id,
            status: done.status.number().into(),
            opcode: done.opcode.number().into(),
            vendor_err: done.vendor_error.into(),
            byte_len: done.length,
            imm_data,
            qp_num: done.qp_number,
            wc_flags,
            ..Self::empty()
        }
    }
}

/// `ibv_create_cq`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_create_cq(
    context: *mut abi::Context,
    asked: c_int,
    cq_context: *mut c_void,
    channel: *mut abi::Channel,
    vector: c_int,
) -> *mut abi::CompletionQueue {
    // SAFETY: The program passes a context that is open, and null or a channel that exists.
    let (this, found) = unsafe { (Context::of(context), (!channel.is_null()).then(|| Channel::of(channel))) };
    let checked = CompletionQueue::check_vector(vector.into());
    object(checked.and_then(|()| CompletionQueue::create(context, this, asked, cq_context, (channel, found))))
}

/// `ibv_destroy_cq`. Waits until the program has acknowledged the events of the queue.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_destroy_cq(queue: *mut abi::CompletionQueue) -> c_int {
    // SAFETY: The program passes a queue that exists.
    let this = unsafe { CompletionQueue::of(queue) };
    if this.users.load(Ordering::Acquire) != 0 {
        return libc::EBUSY;
    }
    // SAFETY: The context exists as long as its objects.
    let context = unsafe { Context::of(this.abi().context) };
    lock(&context.objects).completion_queues.remove(&this.abi().handle);
    if let Some(notification) = &this.notification {
        context.events.forget(notification);
        // SAFETY: The channel exists as long as its queues.
        unsafe { Channel::of(this.abi().channel) }.users.fetch_sub(1, Ordering::AcqRel);
    }
    this.completion_acks.wait();
    context.users.fetch_sub(1, Ordering::AcqRel);
    // SAFETY: Nothing uses the queue, which `create` has taken out of its box.
    drop(unsafe { Box::from_raw(queue.cast::<CompletionQueue>()) });
    0
}

/// `ibv_resize_cq`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_resize_cq(queue: *mut abi::CompletionQueue, asked: c_int) -> c_int {
    // SAFETY: The program passes a queue that exists.
    let this = unsafe { CompletionQueue::of(queue) };
    // SAFETY: The context exists as long as its objects.
    let log2 = ring_log2(&unsafe { Context::of(this.abi().context) }.card, asked);
    status(log2.and_then(|log2| {
        this.queue.resize(log2)?;
        // SAFETY: The program resizes a queue in one thread at a time.
        unsafe { (*queue).cqe = usable(log2) as c_int };
        Ok(())
    }))
}

/// `ibv_poll_cq`.
pub(crate) unsafe extern "C" fn poll_cq(
    queue: *mut abi::CompletionQueue,
    wanted: c_int,
    into: *mut abi::Completion,
) -> c_int {
    // SAFETY: The program passes a queue that exists, and memory of `wanted` places.
    unsafe { CompletionQueue::of(queue).poll(wanted, into) }
}

/// `ibv_req_notify_cq`. Of a queue without a channel nobody could get an event.
pub(crate) unsafe extern "C" fn req_notify_cq(
    queue: *mut abi::CompletionQueue,
    is_solicited: c_int,
) -> c_int {
    let arm = if is_solicited == 0 { Arm::Next } else { Arm::Solicited };
    // SAFETY: The program passes a queue that exists.
    let this = unsafe { CompletionQueue::of(queue) };
    if let Some(notification) = &this.notification {
        notification.arm(arm);
        // The thread that delivers events ends with the card.
        if this.events.is_gone() {
            notification.deliver(true);
        }
    }
    0
}
