//! `ibv_wr_*`: sends that the program makes one by one, between `ibv_wr_start` and `ibv_wr_complete`.
//!
//! 1. A session collects requests in memory that was allocated with the queue pair. They are posted at its end, all or none.
//! 2. The first mistake fails the session: its end returns the errno, as the functions between return nothing.
//! 3. A completion queue that fills up in the middle of a session is the exception: what was posted before stays posted.
#![allow(unsafe_code)]

use crate::abi;
use crate::outcome::{Failure, Outcome, object};
use crate::post::{SendEntry, post_all};
use crate::queue_pair::QueuePair;
use crate::turn::Turn;
use rnic_driver::{Operation, RemoteMemory};
use rnic_stand_in::lock;
use std::cell::UnsafeCell;
use std::ffi::c_int;

/// `IBV_QP_INIT_ATTR_PD`, `_CREATE_FLAGS` and `_SEND_OPS_FLAGS`.
const HAS_DOMAIN: u32 = 1;
const HAS_CREATE_FLAGS: u32 = 1 << 2;
const HAS_OPERATIONS: u32 = 1 << 6;
/// Operations of `ibv_qp_create_send_ops_flags` that the card has: all but those of memory windows, segmentation and atomic writes.
const OPERATIONS: u64 = 0x2ff;

/// The queue pair as the program makes requests of it.
type Queue = *mut abi::ExtendedQueuePair;

/// Requests that are not posted yet.
pub(crate) struct Session {
    turn: Turn,
    /// Only the thread that has the turn uses it.
    collected: UnsafeCell<Collected>,
}

struct Collected {
    entries: Vec<SendEntry>,
    /// The first mistake.
    outcome: Result<(), c_int>,
}

impl Session {
    /// A session of up to `most` requests.
    pub(crate) fn new(most: u32) -> Self {
        let entries = Vec::with_capacity(most as usize);
        Self { turn: Turn::default(), collected: Collected { entries, outcome: Ok(()) }.into() }
    }
}

impl Collected {
    /// Adds a request without payload.
    fn add(&mut self, wr_id: u64, flags: u32, operation: Operation) {
        if self.entries.len() == self.entries.capacity() {
            self.fail(libc::ENOMEM);
            return;
        }
        self.entries.push(SendEntry::new(wr_id, flags, operation));
    }

    fn fail(&mut self, errno: c_int) {
        self.outcome = self.outcome.and(Err(errno));
    }

    /// Sets the payload of the last request.
    fn set(&mut self, set: impl FnOnce(&mut SendEntry) -> Result<(), c_int>) {
        let outcome = self.entries.last_mut().map_or(Err(libc::EINVAL), set);
        self.outcome = self.outcome.and(outcome);
    }
}

/// Fails for what the card does not make of queue pairs.
fn check(asked: &abi::ExtendedQueuePairInit) -> Outcome<()> {
    let refused = |text: String| Err(Failure::new(libc::EOPNOTSUPP, text));
    if asked.comp_mask & HAS_DOMAIN == 0 {
        return Err(Failure::new(libc::EINVAL, "a queue pair needs IBV_QP_INIT_ATTR_PD and a domain"));
    }
    if asked.comp_mask & !(HAS_DOMAIN | HAS_CREATE_FLAGS | HAS_OPERATIONS) != 0 {
        return refused(format!("the mask is {:#x}; the card has no such attributes", asked.comp_mask));
    }
    if asked.comp_mask & HAS_CREATE_FLAGS != 0 && asked.create_flags != 0 {
        return refused(format!("create_flags are {:#x}; the card has none", asked.create_flags));
    }
    if asked.comp_mask & HAS_OPERATIONS != 0 && asked.send_ops_flags & !OPERATIONS != 0 {
        let others = asked.send_ops_flags & !OPERATIONS;
        return refused(format!("send_ops_flags have {others:#x}, operations that the card has not"));
    }
    Ok(())
}

/// `ibv_create_qp_ex`.
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut abi::Context,
    asked: *mut abi::ExtendedQueuePairInit,
) -> *mut abi::QueuePair {
    // SAFETY: The program passes attributes, in which it gets the capacity.
    let asked = unsafe { &mut *asked };
    let abi::ExtendedQueuePairInit { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, .. } =
        *asked;
    let mut init = abi::QueuePairInit { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
    object(check(asked).and_then(|()| {
        let has_session = asked.comp_mask & HAS_OPERATIONS != 0;
        // SAFETY: The program passes objects that exist.
        let created = unsafe { QueuePair::create(asked.pd, &mut init, has_session) };
        asked.cap = init.cap;
        created
    }))
}

/// `ibv_qp_to_qp_ex`: null for a queue pair that was not created with operations.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_qp_to_qp_ex(queue_pair: *mut abi::QueuePair) -> Queue {
    // SAFETY: The program passes a queue pair that exists.
    match unsafe { &QueuePair::of(queue_pair).session } {
        Some(_) => queue_pair.cast(),
        None => std::ptr::null_mut(),
    }
}

/// Works with the session of a queue pair.
///
/// # Safety
///
/// The queue pair exists, and this thread has begun the session.
unsafe fn with(queue: Queue, work: impl FnOnce(&mut Collected)) {
    // SAFETY: The caller answers for the queue pair, and this thread alone has the turn.
    unsafe {
        if let Some(session) = &QueuePair::of(queue.cast()).session {
            work(&mut *session.collected.get());
        }
    }
}

/// Adds a request with the identifier and the flags that the program has written into the queue pair.
///
/// # Safety
///
/// That of [`with`].
unsafe fn add(queue: Queue, operation: Operation) {
    // SAFETY: The caller answers for the queue pair.
    unsafe {
        let (wr_id, flags) = ((*queue).wr_id, (*queue).wr_flags);
        with(queue, |session| session.add(wr_id, flags, operation));
    }
}

/// Memory of the peer; the card checks where it ends.
fn remote(key: u32, address: u64) -> RemoteMemory {
    RemoteMemory { address, key, bytes: u64::MAX }
}

/// `ibv_wr_start`.
unsafe extern "C" fn wr_start(queue: Queue) {
    // SAFETY: The program passes a queue pair that exists, and the turn makes this thread the only one.
    unsafe {
        if let Some(session) = &QueuePair::of(queue.cast()).session {
            session.turn.take();
        }
        with(queue, |session| {
            session.entries.clear();
            session.outcome = Ok(());
        });
    }
}

/// `ibv_wr_complete`.
unsafe extern "C" fn wr_complete(queue: Queue) -> c_int {
    let mut outcome = Err(libc::EINVAL);
    // SAFETY: The program passes a queue pair whose session it has begun in this thread.
    unsafe {
        let this = QueuePair::of(queue.cast());
        with(queue, |session| {
            outcome = session.outcome.and_then(|()| post_all(&mut lock(&this.queues), &session.entries));
        });
        wr_abort(queue);
    }
    outcome.err().unwrap_or(0)
}

/// `ibv_wr_abort`.
unsafe extern "C" fn wr_abort(queue: Queue) {
    // SAFETY: The program passes a queue pair whose session it has begun in this thread.
    if let Some(session) = unsafe { &QueuePair::of(queue.cast()).session } {
        session.turn.end();
    }
}

/// An operation that the card has not, which fails the session.
unsafe extern "C" fn unsupported(queue: Queue) {
    // SAFETY: The program passes a queue pair whose session it has begun in this thread.
    unsafe { with(queue, |session| session.fail(libc::EOPNOTSUPP)) };
}

/// Functions that add a request.
macro_rules! operations {
    ($( $name:ident($($argument:ident: $type:ty),*) $operation:expr; )+) => {
        $(
            #[doc = concat!("`ibv_", stringify!($name), "`.")]
            unsafe extern "C" fn $name(queue: Queue, $($argument: $type),*) {
                // SAFETY: The program passes a queue pair whose session it has begun in this thread.
                unsafe { add(queue, $operation) };
            }
        )+
    };
}

operations! {
    wr_atomic_cmp_swp(key: u32, address: u64, compare: u64, swap: u64)
        Operation::CompareSwap { remote: remote(key, address), compare, swap };
    wr_atomic_fetch_add(key: u32, address: u64, add: u64)
        Operation::FetchAdd { remote: remote(key, address), add };
    wr_local_inv(key: u32) Operation::LocalInvalidate(key);
    wr_rdma_read(key: u32, address: u64) Operation::Read(remote(key, address));
    wr_rdma_write(key: u32, address: u64) Operation::Write(remote(key, address));
    wr_rdma_write_imm(key: u32, address: u64, immediate: u32)
        Operation::WriteImmediate(remote(key, address), immediate.to_ne_bytes());
    wr_send() Operation::Send;
    wr_send_imm(immediate: u32) Operation::SendImmediate(immediate.to_ne_bytes());
    wr_send_inv(key: u32) Operation::SendInvalidate(key);
}

/// `ibv_wr_set_inline_data`.
unsafe extern "C" fn wr_set_inline_data(queue: Queue, addr: *const u8, length: usize) {
    // SAFETY: One buffer is a list of one.
    unsafe { wr_set_inline_data_list(queue, 1, &abi::DataBuffer { addr, length }) };
}

/// `ibv_wr_set_inline_data_list`.
unsafe extern "C" fn wr_set_inline_data_list(queue: Queue, count: usize, list: *const abi::DataBuffer) {
    // SAFETY: The program passes a queue pair whose session it has begun in this thread, and a list of buffers that exist.
    unsafe {
        with(queue, |session| {
            session.set(|entry| {
                entry.begin_inline();
                (0..count).try_for_each(|index| {
                    let abi::DataBuffer { addr, length } = *list.add(index);
                    entry.append(addr, length)
                })
            });
        });
    }
}

/// `ibv_wr_set_sge`.
unsafe extern "C" fn wr_set_sge(queue: Queue, lkey: u32, addr: u64, length: u32) {
    // SAFETY: One SGE is a list of one.
    unsafe { wr_set_sge_list(queue, 1, &abi::Sge { addr, length, lkey }) };
}

/// `ibv_wr_set_sge_list`.
unsafe extern "C" fn wr_set_sge_list(queue: Queue, count: usize, list: *const abi::Sge) {
    let count = count.try_into().unwrap_or(c_int::MAX);
    // SAFETY: The program passes a queue pair whose session it has begun in this thread, and a list of SGEs.
    unsafe { with(queue, |session| session.set(|entry| entry.refer_to(list, count))) };
}

/// The functions of a queue pair, in the order of `ibv_qp_ex`.
pub(crate) fn functions() -> [abi::Function; 21] {
    let unsupported = unsupported as abi::Function;
    [
        wr_atomic_cmp_swp as abi::Function,
        wr_atomic_fetch_add as abi::Function,
        // Memory windows.
        unsupported,
        wr_local_inv as abi::Function,
        wr_rdma_read as abi::Function,
        wr_rdma_write as abi::Function,
        wr_rdma_write_imm as abi::Function,
        wr_send as abi::Function,
        wr_send_imm as abi::Function,
        wr_send_inv as abi::Function,
        // Segmentation, and the addresses of UD and XRC.
        unsupported,
        unsupported,
        unsupported,
        wr_set_inline_data as abi::Function,
        wr_set_inline_data_list as abi::Function,
        wr_set_sge as abi::Function,
        wr_set_sge_list as abi::Function,
        wr_start as abi::Function,
        wr_complete as abi::Function,
        wr_abort as abi::Function,
        // Atomic writes.
        unsupported,
    ]
}
