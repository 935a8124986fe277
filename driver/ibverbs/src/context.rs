//! Contexts: open cards, and the table of functions that inline code of programs calls. Asynchronous events of the card.
#![allow(unsafe_code)]

use crate::abi::{self, function, op};
use crate::addresses::Addresses;
use crate::completion_queue::{CompletionQueue, poll_cq, req_notify_cq};
use crate::device_list::Listed;
use crate::events::{Events, Watcher};
use crate::outcome::{Failure, Outcome, object, quiet_minus_one};
use crate::polling::create_cq_ex;
use crate::post::{post_recv, post_send, post_srq_recv};
use crate::query::{query_device_ex, query_port};
use crate::queue_pair::QueuePair;
use crate::shared_receive_queue::{SharedReceiveQueue, get_srq_num};
use crate::work_session::create_qp_ex;
use rnic_driver::vfio_user::{ConnectOptions, VfioUserFunction};
use rnic_driver::{AsynchronousEvent, Device, DeviceName, Function, FunctionError, Options};
use rnic_layout::queue::event::AsyncEvent;
use rnic_stand_in::{Acknowledgements, lock};
use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Offset of the part of a context that programs have a pointer to.
const OFFSET: usize = std::mem::offset_of!(abi::VerbsContext, context);
/// Number of the only port.
pub(crate) const PORT: u8 = 1;

/// Objects that events name, by their numbers on the card.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) queue_pairs: HashMap<u32, usize>,
    pub(crate) completion_queues: HashMap<u32, usize>,
    pub(crate) shared_receive_queues: HashMap<u32, usize>,
}

/// Returns whether an event names a queue pair.
fn is_of_queue_pair(code: AsyncEvent) -> bool {
    use AsyncEvent::*;
    matches!(
        code,
        QueuePairFatal
            | QueuePairRequestError
            | QueuePairAccessError
            | CommunicationEstablished
            | SendQueueDrained
            | LastWqeReached
    )
}

/// Returns whether an event names an SRQ.
fn is_of_shared_receive_queue(code: AsyncEvent) -> bool {
    matches!(code, AsyncEvent::SharedReceiveError | AsyncEvent::SharedReceiveLimit)
}

/// An open card.
#[repr(C)]
pub(crate) struct Context {
    abi: abi::VerbsContext,
    pub(crate) card: Device,
    pub(crate) addresses: Addresses,
    pub(crate) events: Arc<Events>,
    pub(crate) objects: Mutex<Objects>,
    /// Objects that keep the context.
    pub(crate) users: AtomicUsize,
    /// Another process serves the card.
    pub(crate) is_served: bool,
    _watcher: Watcher,
}

/// Connects to a card. The server of a simulated card reaches all memory of this process, since programs register any of it.
fn connect(name: &DeviceName) -> Result<Arc<dyn Function>, FunctionError> {
    match name {
        DeviceName::VfioUser(path) => {
            let options = ConnectOptions { shares_process: true, ..ConnectOptions::default() };
            Ok(Arc::new(VfioUserFunction::connect(path, options)?))
        }
        other => other.connect(),
    }
}

impl Context {
    fn open(listed: &'static Listed) -> Outcome<*mut abi::Context> {
        let addresses = listed.addresses;
        let named = |error| Failure::from(error).about(&listed.name);
        let function = connect(&listed.name).map_err(|error| named(error.into()))?;
        let options = Options { addresses: addresses.gids.to_vec(), ..Options::new(addresses.mac) };
        let card = Device::open(function, options).map_err(named)?;
        let io = |error: std::io::Error| Failure::new(error.raw_os_error().unwrap_or(libc::EIO), error);
        let events = Events::new(&card).map_err(io)?;
        let watcher = events.start().map_err(io)?;
        let context = Self {
            abi: table(listed, events.asynchronous.fd()),
            card,
            addresses,
            events,
            objects: Mutex::default(),
            users: AtomicUsize::new(0),
            is_served: matches!(listed.name, DeviceName::VfioUser(_)),
            _watcher: watcher,
        };
        let context = Box::into_raw(Box::new(context));
        Ok(context.cast::<u8>().wrapping_add(OFFSET).cast())
    }

    /// The context of a pointer that the program has.
    ///
    /// # Safety
    ///
    /// The pointer is that of a context that is open.
    pub(crate) unsafe fn of<'a>(context: *mut abi::Context) -> &'a Self {
        // SAFETY: The program has the pointer from `open`, which has made it from that of the whole.
        unsafe { &*context.cast::<u8>().wrapping_sub(OFFSET).cast::<Self>() }
    }

    /// Takes an asynchronous event whose object exists.
    fn next_event(&self) -> Result<abi::AsyncEvent, c_int> {
        loop {
            let AsynchronousEvent { code, object_number, .. } = self.events.asynchronous.pop()?;
            let objects = lock(&self.objects);
            let element = match code {
                AsyncEvent::CompletionQueueError => {
                    let address = objects.completion_queues.get(&object_number);
                    // SAFETY: A queue is in the table as long as it exists, and the lock keeps it there.
                    address.inspect(|&&address| unsafe { CompletionQueue::of(address as _) }.acks().add())
                }
                code if is_of_queue_pair(code) => {
                    let address = objects.queue_pairs.get(&object_number);
                    // SAFETY: As for completion queues.
                    address.inspect(|&&address| unsafe { QueuePair::of(address as _) }.acks().add())
                }
                code if is_of_shared_receive_queue(code) => {
                    let address = objects.shared_receive_queues.get(&object_number);
                    // SAFETY: As for completion queues.
                    address.inspect(|&&address| unsafe { SharedReceiveQueue::of(address as _) }.acks().add())
                }
                _ => Some(&usize::from(PORT)),
            };
            if let Some(&element) = element {
                return Ok(abi::AsyncEvent { element: element as u64, event_type: code.number().into() });
            }
        }
    }
}

/// The part of a context that programs know.
fn table(listed: &'static Listed, async_fd: c_int) -> abi::VerbsContext {
    let mut functions = [null(); 39];
    functions[function::QUERY_PORT] = query_port as abi::Function;
    functions[function::QUERY_DEVICE_EX] = query_device_ex as abi::Function;
    functions[function::CREATE_CQ_EX] = create_cq_ex as abi::Function;
    functions[function::CREATE_QP_EX] = create_qp_ex as abi::Function;
    functions[function::GET_SRQ_NUM] = get_srq_num as abi::Function;
    let mut ops = [null(); 32];
    ops[op::POLL_CQ] = poll_cq as abi::Function;
    ops[op::REQ_NOTIFY_CQ] = req_notify_cq as abi::Function;
    ops[op::POST_SRQ_RECV] = post_srq_recv as abi::Function;
    ops[op::POST_SEND] = post_send as abi::Function;
    ops[op::POST_RECV] = post_recv as abi::Function;
    let context = abi::Context {
        device: listed.pointer(),
        ops,
        cmd_fd: -1,
        async_fd,
        num_comp_vectors: 1,
        mutex: [0; 5],
        abi_compat: abi::EXTENDED,
    };
    abi::VerbsContext { functions, bytes: size_of::<abi::VerbsContext>(), context }
}

/// `ibv_open_device`. A card is open once: a process that opens it again, as one does that uses a connection manager too, gets the
/// same context.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_open_device(device: *mut abi::Device) -> *mut abi::Context {
    // SAFETY: The program passes a device of a list.
    let listed = unsafe { Listed::of(device) };
    let mut opened = lock(&listed.opened);
    if let Some((context, count)) = &mut *opened {
        *count += 1;
        return *context as *mut abi::Context;
    }
    object(Context::open(listed).inspect(|&context| *opened = Some((context as usize, 1))))
}

/// `ibv_close_device`. The context ends when it is closed as many times as it was opened. One with objects stays then, as the manual has
/// it, and the card with it, until the process ends; who opens the card again gets it. perftest leaves some.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_close_device(context: *mut abi::Context) -> c_int {
    // SAFETY: The program passes a context that is open.
    let (listed, users) = unsafe { (Listed::of((*context).device), &Context::of(context).users) };
    let mut opened = lock(&listed.opened);
    let Some((_, count)) = &mut *opened else { return 0 };
    *count = count.saturating_sub(1);
    if *count == 0 && users.load(Ordering::Acquire) == 0 {
        *opened = None;
        // SAFETY: Nothing uses the context, which `open` has taken out of its box.
        drop(unsafe { Box::from_raw(context.cast::<u8>().wrapping_sub(OFFSET).cast::<Context>()) });
    }
    0
}

/// `ibv_get_async_event`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_get_async_event(
    context: *mut abi::Context,
    event: *mut abi::AsyncEvent,
) -> c_int {
    // SAFETY: The program passes a context that is open.
    let next = unsafe { Context::of(context) }.next_event();
    // SAFETY: The program passes the address of an event.
    quiet_minus_one(next.map(|next| unsafe { *event = next }))
}

/// `ibv_ack_async_event`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_ack_async_event(event: *mut abi::AsyncEvent) {
    // SAFETY: The program passes an event that it has from `ibv_get_async_event`.
    let abi::AsyncEvent { element, event_type } = unsafe { *event };
    let acks: Option<&Acknowledgements> = match AsyncEvent::from_number(event_type as u64) {
        // SAFETY: The object is not destroyed before its events are acknowledged.
        Some(AsyncEvent::CompletionQueueError) => Some(unsafe { CompletionQueue::of(element as _) }.acks()),
        Some(code) if is_of_queue_pair(code) => {
            // SAFETY: As above.
            Some(unsafe { QueuePair::of(element as _) }.acks())
        }
        Some(code) if is_of_shared_receive_queue(code) => {
            // SAFETY: As above.
            Some(unsafe { SharedReceiveQueue::of(element as _) }.acks())
        }
        _ => None,
    };
    acks.inspect(|acks| acks.acknowledge(1));
}
