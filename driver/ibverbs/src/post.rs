//! Posting: lists of requests of the program become lists of the driver, a few at a time, on the stack.
#![allow(unsafe_code)]

use crate::abi::{self, send_flag};
use crate::queue_pair::QueuePair;
use crate::shared_receive_queue::SharedReceiveQueue;
use rnic_driver::raw::{self, Sge};
use rnic_driver::{Operation, Refusal, RemoteMemory};
use rnic_layout::limits::{INLINE_BYTES_MAX, RECEIVE_SGES_MAX, SEND_SGES_MAX};
use rnic_stand_in::lock;
use std::ffi::c_int;

/// Requests that have one doorbell.
const BATCH: usize = 4;

/// Errno of a request that is not posted.
fn errno(refusal: Refusal) -> c_int {
    match refusal {
        Refusal::QueueFull { .. } | Refusal::CompletionQueueFull { .. } => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

/// The operation of a request. `None` for one that the card has not, or this library.
fn operation(request: &abi::SendRequest) -> Option<Operation> {
    let immediate = request.imm_data.to_ne_bytes();
    // The card checks where the memory ends.
    let remote = |key| RemoteMemory { address: request.remote_addr, key, bytes: u64::MAX };
    let rdma = || remote(request.rdma_key());
    let atomic = || remote(request.atomic_key());
    let [compare_add, swap, ..] = request.words;
    Some(match request.opcode {
        0 => Operation::Write(rdma()),
        1 => Operation::WriteImmediate(rdma(), immediate),
        2 => Operation::Send,
        3 => Operation::SendImmediate(immediate),
        4 => Operation::Read(rdma()),
        5 => Operation::CompareSwap { remote: atomic(), compare: compare_add, swap },
        6 => Operation::FetchAdd { remote: atomic(), add: compare_add },
        7 => Operation::LocalInvalidate(request.imm_data),
        9 => Operation::SendInvalidate(request.imm_data),
        _ => return None,
    })
}

/// A request of the program that was read.
#[derive(Clone, Copy)]
pub(crate) struct SendEntry {
    wr_id: u64,
    flags: u32,
    operation: Operation,
    sges: [Sge; SEND_SGES_MAX],
    count: usize,
    inline: [u8; INLINE_BYTES_MAX],
    /// Bytes of `inline`, if the request is inline.
    inline_bytes: Option<usize>,
}

/// Reads the SGEs of a request. Returns their number, or `None` if there are more than places.
///
/// # Safety
///
/// The list has `count` entries.
unsafe fn read_sges(list: *const abi::Sge, count: c_int, into: &mut [Sge]) -> Option<usize> {
    let count = usize::try_from(count).ok().filter(|&count| count <= into.len())?;
    for (index, place) in into[..count].iter_mut().enumerate() {
        // SAFETY: The caller answers for the list. All regions of this library are raw ones, of which nobody has slices.
        *place = unsafe {
            let abi::Sge { addr, length, lkey } = *list.add(index);
            Sge::from_parts(addr, lkey, length)
        };
    }
    Some(count)
}

impl SendEntry {
    /// A place for a request.
    fn empty() -> Self {
        Self::new(0, 0, Operation::Send)
    }

    /// A request without payload.
    pub(crate) fn new(wr_id: u64, flags: u32, operation: Operation) -> Self {
        Self {
            wr_id,
            flags,
            operation,
            sges: Default::default(),
            count: 0,
            inline: [0; INLINE_BYTES_MAX],
            inline_bytes: None,
        }
    }

    /// Reads a request.
    ///
    /// # Safety
    ///
    /// The request exists, with its SGEs, and with their memory if it is inline.
    unsafe fn read(&mut self, request: *const abi::SendRequest) -> Result<(), c_int> {
        // SAFETY: The caller answers for the request.
        let request = unsafe { &*request };
        (self.wr_id, self.flags) = (request.wr_id, request.send_flags);
        self.operation = operation(request).ok_or(libc::EOPNOTSUPP)?;
        if request.send_flags & send_flag::INLINE != 0 {
            // SAFETY: As above.
            return unsafe { self.gather(request) };
        }
        // SAFETY: As above.
        unsafe { self.refer_to(request.sg_list, request.num_sge) }
    }

    /// Makes the payload that of a list of SGEs.
    ///
    /// # Safety
    ///
    /// The list has `count` entries.
    pub(crate) unsafe fn refer_to(&mut self, list: *const abi::Sge, count: c_int) -> Result<(), c_int> {
        self.inline_bytes = None;
        // SAFETY: The caller answers for the list.
        self.count = unsafe { read_sges(list, count, &mut self.sges) }.ok_or(libc::EINVAL)?;
        Ok(())
    }

    /// Begins an inline payload.
    pub(crate) fn begin_inline(&mut self) {
        (self.count, self.inline_bytes) = (0, Some(0));
    }

    /// Copies memory to the end of the inline payload.
    ///
    /// # Safety
    ///
    /// The memory has as many bytes.
    pub(crate) unsafe fn append(&mut self, from: *const u8, bytes: usize) -> Result<(), c_int> {
        let length = self.inline_bytes.unwrap_or(0);
        let place =
            self.inline.get_mut(length..).and_then(|rest| rest.get_mut(..bytes)).ok_or(libc::EINVAL)?;
        if bytes != 0 {
            // SAFETY: The caller answers for the memory, which is none of this library's.
            unsafe { place.as_mut_ptr().copy_from_nonoverlapping(from, bytes) };
        }
        self.inline_bytes = Some(length + bytes);
        Ok(())
    }

    /// Copies the payload of an inline request.
    ///
    /// # Safety
    ///
    /// The list has as many entries as the request says, each of memory of the process.
    unsafe fn gather(&mut self, request: &abi::SendRequest) -> Result<(), c_int> {
        self.begin_inline();
        for index in 0..usize::try_from(request.num_sge).map_err(|_| libc::EINVAL)? {
            // SAFETY: The caller answers for the list, and for the memory.
            unsafe {
                let sge = *request.sg_list.add(index);
                self.append(sge.addr as *const u8, sge.length as usize)?;
            }
        }
        Ok(())
    }

    /// The request as the driver posts it.
    pub(crate) fn posted(&self) -> raw::SendRequest<'_> {
        let flag = |flag| self.flags & flag != 0;
        raw::SendRequest {
            wr_id: self.wr_id,
            operation: self.operation,
            sges: &self.sges[..self.count],
            inline: self.inline_bytes.map(|bytes| &self.inline[..bytes]),
            signalled: flag(send_flag::SIGNALED),
            solicited: flag(send_flag::SOLICITED),
            fence: flag(send_flag::FENCE),
        }
    }
}

/// Posts up to [`BATCH`] requests with one doorbell. Returns the place of the first that was not posted, and the errno.
fn post_batch(queues: &mut raw::QueuePair, entries: &[SendEntry]) -> Result<(), (usize, c_int)> {
    let requests: [_; BATCH] = std::array::from_fn(|index| match entries.get(index) {
        Some(entry) => entry.posted(),
        None => raw::SendRequest::new(0, Operation::Send, &[]),
    });
    queues.post_send(&requests[..entries.len()]).map_err(|bad| (bad.index, errno(bad.reason)))
}

/// Posts all requests, or none if the send queue has no room for all or refuses one.
pub(crate) fn post_all(queues: &mut raw::QueuePair, entries: &[SendEntry]) -> Result<(), c_int> {
    queues.check_sends(entries.iter().map(SendEntry::posted)).map_err(|bad| errno(bad.reason))?;
    entries.chunks(BATCH).try_for_each(|batch| post_batch(queues, batch)).map_err(|(_, errno)| errno)
}

/// Posts a list, a batch at a time. Returns the first request that was not posted, and the errno.
///
/// # Safety
///
/// The list is one of requests that exist.
unsafe fn post_sends(
    queues: &mut raw::QueuePair,
    mut next: *mut abi::SendRequest,
) -> Result<(), (*mut abi::SendRequest, c_int)> {
    let mut batch = [SendEntry::empty(); BATCH];
    while !next.is_null() {
        let mut read = [next; BATCH];
        let (mut count, mut refused) = (0, None);
        while count < BATCH && !next.is_null() && refused.is_none() {
            read[count] = next;
            // SAFETY: The caller answers for the requests.
            match unsafe { batch[count].read(next) } {
                // SAFETY: As above.
                Ok(()) => (count, next) = (count + 1, unsafe { (*next).next }),
                Err(errno) => refused = Some((next, errno)),
            }
        }
        post_batch(queues, &batch[..count]).map_err(|(index, errno)| (read[index], errno))?;
        refused.map_or(Ok(()), Err)?;
    }
    Ok(())
}

/// `ibv_post_send`.
pub(crate) unsafe extern "C" fn post_send(
    queue_pair: *mut abi::QueuePair,
    list: *mut abi::SendRequest,
    bad: *mut *mut abi::SendRequest,
) -> c_int {
    // SAFETY: The program passes a queue pair that exists, a list of requests, and a place for one.
    unsafe { posted(post_sends(&mut lock(&QueuePair::of(queue_pair).queues), list), bad) }
}

/// Posts a list of receives, a batch at a time, through `post`. Returns the first that was not posted, and the errno.
///
/// # Safety
///
/// The list is one of requests that exist.
unsafe fn post_receives(
    mut post: impl FnMut(&[raw::ReceiveRequest<'_>]) -> Result<(), raw::BadRequest>,
    mut next: *mut abi::ReceiveRequest,
) -> Result<(), (*mut abi::ReceiveRequest, c_int)> {
    while !next.is_null() {
        let mut sges = [[Sge::default(); RECEIVE_SGES_MAX]; BATCH];
        let mut read = [(next, 0, 0); BATCH];
        let (mut count, mut refused) = (0, None);
        while count < BATCH && !next.is_null() && refused.is_none() {
            // SAFETY: The caller answers for the requests.
            let request = unsafe { &*next };
            // SAFETY: As above.
            match unsafe { read_sges(request.sg_list, request.num_sge, &mut sges[count]) } {
                Some(sge_count) => {
                    read[count] = (next, request.wr_id, sge_count);
                    (count, next) = (count + 1, request.next);
                }
                None => refused = Some((next, libc::EINVAL)),
            }
        }
        let requests: [raw::ReceiveRequest<'_>; BATCH] = std::array::from_fn(|index| {
            let (_, wr_id, sge_count) = read[index];
            raw::ReceiveRequest { wr_id, sges: &sges[index][..sge_count] }
        });
        post(&requests[..count]).map_err(|bad| (read[bad.index].0, errno(bad.reason)))?;
        refused.map_or(Ok(()), Err)?;
    }
    Ok(())
}

/// What a function returns that posts: zero, or the errno, and the first request that was not posted.
///
/// # Safety
///
/// `bad` is a place for the request.
unsafe fn posted<R>(outcome: Result<(), (*mut R, c_int)>, bad: *mut *mut R) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err((request, errno)) => {
            // SAFETY: The caller answers for the place.
            unsafe { *bad = request };
            errno
        }
    }
}

/// `ibv_post_recv`.
pub(crate) unsafe extern "C" fn post_recv(
    queue_pair: *mut abi::QueuePair,
    list: *mut abi::ReceiveRequest,
    bad: *mut *mut abi::ReceiveRequest,
) -> c_int {
    // SAFETY: The program passes a queue pair that exists, a list of requests, and a place for one.
    unsafe {
        let mut queues = lock(&QueuePair::of(queue_pair).queues);
        posted(post_receives(|requests| queues.post_receive(requests), list), bad)
    }
}

/// `ibv_post_srq_recv`.
pub(crate) unsafe extern "C" fn post_srq_recv(
    queue: *mut abi::SharedReceiveQueue,
    list: *mut abi::ReceiveRequest,
    bad: *mut *mut abi::ReceiveRequest,
) -> c_int {
    // SAFETY: The program passes a queue that exists, a list of requests, and a place for one.
    unsafe {
        let queue = &SharedReceiveQueue::of(queue).queue;
        posted(post_receives(|requests| queue.post_receive(requests), list), bad)
    }
}
