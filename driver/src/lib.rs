//! User-space driver of the rnic card: opens a card, creates verbs objects, posts work and polls completions. It needs
//! no kernel module of its own.
//!
//! ```text
//!   application
//!      │  Device, ProtectionDomain, Region, QueuePair, CompletionQueue, EventQueue
//!      ▼
//!   rnic-driver ──── admin queue: create, modify, query and destroy objects
//!      │        ──── work queues: WQEs and doorbells         (send, receive, SRQ)
//!      │        ──── completion and event queues: CQEs, EQEs, arming
//!      ▼
//!   Function ─────── BARs, DMA memory, interrupt vectors, time         (trait)
//!      │
//!   PCI function behind VFIO  │  vfio-user socket  │  simulated card in this process
//! ```
//!
//! # Objects, in the order of use
//!
//! | object | created by | verbs |
//! |---|---|---|
//! | [`Device`] | [`Device::open`] over a [`Function`] | `ibv_open_device` |
//! | [`EventQueue`] | [`Device::events`], [`Device::create_event_queue`] | `ibv_get_async_event`, completion channel |
//! | [`ProtectionDomain`] | [`Device::create_protection_domain`] | `ibv_alloc_pd` |
//! | [`Region`], [`SharedRegion`] | [`ProtectionDomain::allocate`], [`ProtectionDomain::share`] | `ibv_reg_mr` |
//! | [`CompletionQueue`] | [`Device::create_completion_queue`] | `ibv_create_cq` |
//! | [`SharedReceiveQueue`] | [`ProtectionDomain::create_shared_receive_queue`] | `ibv_create_srq` |
//! | [`QueuePair`] | [`ProtectionDomain::create_queue_pair`] | `ibv_create_qp`, `ibv_modify_qp` |
//! | [`AddressHandle`] | [`ProtectionDomain::create_address_handle`] | `ibv_create_ah` |
//! | [`SendRequest`], [`ReceiveRequest`] | posted to a queue pair or an SRQ | `ibv_post_send`, `ibv_post_recv` |
//! | [`Completion`] | [`CompletionQueue::poll`] | `ibv_poll_cq` |
//!
//! A back end implements the traits of [`function`], over the memory of [`memory`]. [`vfio`] is the one for a PCI function of this
//! machine, [`vfio_user`] the one for a card that another process serves; [`DeviceName`] opens a card by its name, such as
//! `pci:0000:65:00.0` or `vfu:/run/card.sock`. [`ring`] is the index and phase logic of all queues, and [`in_flight`] the table of
//! requests in flight; both are public so that a model checker can run them alone. [`raw`] has queue pairs without types, for a
//! library with the interface of the verbs.
//!
//! # Threads
//!
//! Posting and polling allocate nothing, and hash nothing. They take a lock only on what threads share:
//!
//! | | for one thread, without a lock | for any number of threads |
//! |---|---|---|
//! | sends | [`QueuePair`], [`SendHalf`] | |
//! | receives | [`QueuePair`], [`ReceiveHalf`] | [`SharedReceiveQueue`] |
//! | completions | [`Poller`] | [`CompletionQueue`] |
//!
//! All of them can be sent to another thread. [`QueuePair::split`] gives the halves of a queue pair to two threads, and a third
//! one may poll. A list of requests has one doorbell: [`QueuePair::post_sends`], [`QueuePair::send_batch`].
//!
//! ```
//! use rnic_driver::{CompletionError, CompletionQueue, QueuePair, ReceiveRequest, SendRequest, state::ReadyToSend};
//! use std::thread;
//!
//! fn ping(queue_pair: QueuePair<ReadyToSend>, queue: &CompletionQueue) -> Result<(), CompletionError> {
//!     let (mut send, mut receive) = queue_pair.split();
//!     let mut poller = queue.poller().expect("nobody else polls");
//!     thread::scope(|scope| {
//!         scope.spawn(move || (0..10).try_for_each(|wr_id| send.post_send(SendRequest::send(wr_id).signalled())));
//!         scope.spawn(move || (0..10).try_for_each(|wr_id| receive.post_receive(ReceiveRequest::new(wr_id))));
//!         let mut done = 0;
//!         while done < 20 {
//!             done += usize::from(poller.poll_one()?.is_some());
//!         }
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # Example
//!
//! Sends one message to a peer and waits until the peer has acknowledged it.
//!
//! ```
//! use rnic_driver::{
//!     CompletionQueueOptions, ConnectOptions, ConnectionInfo, Device, Function, Options, QueuePairOptions,
//!     RemoteRights, SendRequest,
//! };
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! fn say_hello(
//!     function: Arc<dyn Function>,
//!     exchange: impl FnOnce(ConnectionInfo) -> ConnectionInfo,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let device = Device::open(function, Options::new([2, 0, 0, 0, 0, 1]))?;
//!     let domain = device.create_protection_domain()?;
//!     let queue = device.create_completion_queue(&device.events(), &CompletionQueueOptions::default())?;
//!
//!     let queue_pair = domain.create_queue_pair(&queue, &queue, &QueuePairOptions::default())?;
//!     let queue_pair = queue_pair.initialize(RemoteRights::NONE)?;
//!     // The application carries the info of both sides over a channel of its own, for example a TCP connection.
//!     let peer = exchange(queue_pair.info(0)?);
//!     let mut queue_pair = queue_pair.connect(&peer, &ConnectOptions::default())?;
//!
//!     let mut region = domain.allocate(5)?;
//!     region.bytes_mut().copy_from_slice(b"hello");
//!     // The region moves into the request, and comes back with the completion.
//!     queue_pair.post_send(SendRequest::send(7).sge(region).signalled())?;
//!     let completion = queue.spin(Duration::from_secs(1))?.ok_or("no completion in 1 s")?;
//!     assert_eq!(completion.wr_id, 7);
//!     Ok(())
//! }
//! ```
//!
//! # Invariants
//!
//! * Every field, offset and opcode comes from `rnic-layout`.
//! * Every wait has a limit, measured with [`Function::now`], and calls [`Function::idle`] meanwhile.
//! * A handle keeps the objects it depends on: the card is reset after its last object is dropped, and memory is freed
//!   after it is unmapped.
//! * Memory is unmapped, and a number is used again, only after the card has confirmed that it has destroyed the object. Where
//!   it has not, the number stays in use, and the memory is kept until a reset; if the card does not confirm the reset
//!   either, the memory is leaked.
//! * Memory of a posted request belongs to the card until its completion. The borrow checker enforces it: a request owns
//!   its [`Region`]s, and the [`Completion`] returns them.
//! * `unsafe` code exists only in [`memory`] and its pages, in the table [`in_flight`], and where [`vfio`] calls the kernel and
//!   accesses mapped BARs.

// A module imports only modules that are declared before it; `tests/layers.rs` checks that.

// Faults that tests switch on.
#[macro_use]
mod mutants;

// Rings and memory.
pub mod ring;
mod sync;

mod page;

pub mod memory;

mod identity;
mod pci_address;
mod server_error;
mod vfio_error;

pub mod function;

// Back ends.
mod addresses;
mod eventfds;

pub mod vfio;
pub mod vfio_user;

mod device_name;

mod mapping;

mod error;

// Access to the card.
mod doorbell;
mod config_space;
mod encoding;
mod registers;

mod admin;
mod interrupts;

mod event_ring;
mod id_allocator;
mod pages;

// Opening a card.
mod startup;

mod device;

mod event_queue;

// Objects of an application.
mod protection_domain;
mod remote_memory;

mod address_handle;
mod sge;

mod region;

// Work and completions.
mod post_error;

mod work_request;

mod completion;

mod completion_queue;
pub mod in_flight;
mod work_queue;

mod shared_receive_queue;

mod queue_pair;

pub use address_handle::{AddressHandle, Path};
pub use completion::Completion;
pub use completion_queue::{CompletionQueue, CompletionQueueOptions, Poller};
pub use device::{Counters, Device, ObjectCounts};
pub use device_name::{DeviceName, DeviceNameError};
pub use error::{CommandError, CompletionError, Error};
pub use event_queue::{EventQueue, EventQueueOptions};
pub use event_ring::AsynchronousEvent;
pub use function::{Bar, Claim, DmaSegment, Function, FunctionError, Ownership};
pub use memory::{DeviceView, Loan, LoanMut, Memory, Purpose};
pub use pci_address::{PciAddress, PciAddressError};
pub use post_error::{PostError, Refusal};
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{
    ConnectOptions, ConnectionInfo, QueuePair, QueuePairOptions, ReceiveBatch, ReceiveHalf, ReceiveOptions,
    SendBatch, SendHalf, SendOptions, TransitionError, raw, state,
};
pub use region::{RangeError, Region, SharedRegion};
pub use remote_memory::{RemoteMemory, RemoteRights};
pub use server_error::ServerError;
pub use shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueOptions};
pub use startup::{Limits, Options};
pub use vfio_error::VfioError;
pub use work_request::{Operation, ReceiveRequest, SendRequest, SgList};
