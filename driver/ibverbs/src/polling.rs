//! Extended completion queues: the program begins to poll, reads the fields of one completion after the other, and ends.
//!
//! Every queue has the structure of an extended one, and the functions in it: those of `ibv_create_cq` are not asked for them.
#![allow(unsafe_code)]

use crate::abi;
use crate::channel::Channel;
use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::outcome::{Failure, Outcome, object};
use std::ffi::{c_int, c_uint};

/// `IBV_WC_STANDARD_FLAGS`: the fields that `ibv_wc` has.
const STANDARD: u64 = 0x7f;
/// `IBV_CQ_INIT_ATTR_MASK_FLAGS`.
const HAS_FLAGS: u32 = 1;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`.
const SINGLE_THREADED: u32 = 1;

/// The queue as the program polls it.
type Queue = *mut abi::ExtendedCompletionQueue;

/// Fails for what the card cannot tell of completions, and for other queues than the card's.
fn check(asked: &abi::ExtendedCompletionQueueInit) -> Outcome<()> {
    let refused = |text: String| Err(Failure::new(libc::EOPNOTSUPP, text));
    if asked.wc_flags & !STANDARD != 0 {
        let others = asked.wc_flags & !STANDARD;
        return refused(format!("completions have no fields {others:#x}; ask for those of ibv_wc"));
    }
    if asked.comp_mask & !HAS_FLAGS != 0 {
        return refused(format!("the mask is {:#x}; there are no parent domains", asked.comp_mask));
    }
    if asked.comp_mask & HAS_FLAGS != 0 && asked.flags & !SINGLE_THREADED != 0 {
        return refused(format!("flags are {:#x}; a queue that overruns fails", asked.flags));
    }
    Ok(())
}

/// `ibv_create_cq_ex`.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut abi::Context,
    asked: *mut abi::ExtendedCompletionQueueInit,
) -> Queue {
    // SAFETY: The program passes attributes, a context that is open, and in them null or a channel that exists.
    let (asked, this) = unsafe { (&*asked, Context::of(context)) };
    // SAFETY: As above.
    let found = (!asked.channel.is_null()).then(|| unsafe { Channel::of(asked.channel) });
    let (entries, vector) = (asked.cqe.try_into().unwrap_or(c_int::MAX), asked.comp_vector);
    let created = check(asked).and_then(|()| CompletionQueue::check_vector(vector.into())).and_then(|()| {
        CompletionQueue::create(context, this, entries, asked.cq_context, (asked.channel, found))
    });
    object(created.map(|queue| queue.cast()))
}

/// The functions of a queue, in the order of `ibv_cq_ex`. Those of fields that no queue has are null, as the program knows.
pub(crate) fn functions() -> [abi::Function; 18] {
    let mut functions = [std::ptr::null(); 18];
    let first = [
        start_poll as abi::Function,
        next_poll as abi::Function,
        end_poll as abi::Function,
        read_opcode as abi::Function,
        read_vendor_err as abi::Function,
        read_byte_len as abi::Function,
        read_imm_data as abi::Function,
        read_qp_num as abi::Function,
        read_src_qp as abi::Function,
        read_wc_flags as abi::Function,
        read_slid as abi::Function,
        read_sl as abi::Function,
        read_dlid_path_bits as abi::Function,
    ];
    functions[..first.len()].copy_from_slice(&first);
    functions
}

/// Takes the next completion. Returns `ENOENT` if there is none.
///
/// # Safety
///
/// The queue exists, and this thread polls it.
unsafe fn next(queue: Queue) -> c_int {
    // SAFETY: The caller answers for the queue. Nobody else reads or writes the completion meanwhile.
    unsafe {
        let this = CompletionQueue::of(queue.cast());
        match this.poll(1, this.completion.get()) {
            1 => {
                let abi::Completion { wr_id, status, .. } = *this.completion.get();
                (*queue).wr_id = wr_id;
                (*queue).status = status;
                0
            }
            0 => libc::ENOENT,
            _ => libc::EIO,
        }
    }
}

/// `ibv_start_poll`. If there is no completion, the poll has ended.
unsafe extern "C" fn start_poll(queue: Queue, attributes: *const u32) -> c_int {
    // SAFETY: The program passes attributes, which are one mask.
    if unsafe { *attributes } != 0 {
        return libc::EINVAL;
    }
    // SAFETY: The program passes a queue that exists.
    unsafe {
        let turn = &CompletionQueue::of(queue.cast()).turn;
        turn.take();
        let status = next(queue);
        if status != 0 {
            turn.end();
        }
        status
    }
}

/// `ibv_next_poll`.
unsafe extern "C" fn next_poll(queue: Queue) -> c_int {
    // SAFETY: The program passes a queue that it polls in this thread.
    unsafe { next(queue) }
}

/// `ibv_end_poll`.
unsafe extern "C" fn end_poll(queue: Queue) {
    // SAFETY: The program passes a queue that it polls in this thread.
    unsafe { CompletionQueue::of(queue.cast()) }.turn.end();
}

/// Functions that read a field of the completion.
macro_rules! fields {
    ($( $name:ident: $field:ident $type:ty; )+) => {
        $(
            #[doc = concat!("`ibv_wc_", stringify!($name), "`.")]
            unsafe extern "C" fn $name(queue: Queue) -> $type {
                // SAFETY: The program passes a queue that it polls in this thread, and whose completion was taken.
                unsafe { (*CompletionQueue::of(queue.cast()).completion.get()).$field as $type }
            }
        )+
    };
}

fields! {
    read_opcode: opcode c_int;
    read_vendor_err: vendor_err u32;
    read_byte_len: byte_len u32;
    read_imm_data: imm_data u32;
    read_qp_num: qp_num u32;
    read_src_qp: src_qp u32;
    read_wc_flags: wc_flags c_uint;
    read_slid: slid u32;
    read_sl: sl u8;
    read_dlid_path_bits: dlid_path_bits u8;
}
