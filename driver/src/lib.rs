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
//! | [`Region`] | [`ProtectionDomain::allocate`], [`ProtectionDomain::register`] | `ibv_reg_mr` |
//! | [`SharedRegion`] | [`ProtectionDomain::share`], [`ProtectionDomain::register_shared`] | `ibv_reg_mr` with remote rights |
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
//! # Open a card
//!
//! A card has a name, which [`DeviceName`] reads from a command line or an environment variable:
//!
//! | name | card |
//! |---|---|
//! | `pci:0000:65:00.0` | a PCI function of this machine, behind the kernel's VFIO: [`vfio`] |
//! | `vfu:/run/card.sock` | one that another process serves, such as `rnic-sim serve`: [`vfio_user`] |
//! | `sim:` | a simulated card in this process, which the crate `rnic` opens. This crate does not know it, and refuses the name |
//!
//! ```no_run
//! use rnic_driver::{Device, DeviceName, Options};
//!
//! let name: DeviceName = std::env::var("RNIC_DEVICE")?.parse()?;
//! let device = Device::open(name.connect()?, Options::new([2, 0, 0, 0, 0, 1]))?;
//! println!("{name}: {:?}", device.limits());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A card is open once. What keeps it from being opened is an error that names what was found and what to do:
//!
//! ```
//! use rnic_driver::DeviceName;
//!
//! let name: DeviceName = "vfu:/nowhere/card.sock".parse()?;
//! let error = name.connect().err().expect("nobody serves a card there");
//! assert!(error.to_string().starts_with("the server at /nowhere/card.sock cannot be reached"));
//! # Ok::<(), rnic_driver::DeviceNameError>(())
//! ```
//!
//! # Connect, post, poll
//!
//! Sends one message to a peer and waits until the peer has acknowledged it. A queue pair has its state in its type, so that a send on
//! one that is not connected does not compile.
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
//!     assert_eq!(*completion.sg_list[0].bytes(), *b"hello");
//!     Ok(())
//! }
//! # #[path = "../tests/null_card/mod.rs"] mod null_card;
//! # // A card that completes at once, whoever the peer is.
//! # say_hello(null_card::NullCard::new(), |info| info).unwrap();
//! ```
//!
//! # Memory
//!
//! | | memory of the driver | memory of the application |
//! |---|---|---|
//! | for requests of this host | [`ProtectionDomain::allocate`] | [`ProtectionDomain::register`] |
//! | for peers | [`ProtectionDomain::share`] | [`ProtectionDomain::register_shared`] |
//! | at its place, `unsafe` | | [`raw::Region::register`] |
//!
//! Memory of the driver can be had in huge pages ([`PageSize`]). Memory of the application is anything that becomes a [`UserMemory`]:
//! a `Vec<u8>`, a `Box<[u8]>`, a `&'static mut [u8]`, a file of its own ([`UserMemory::in_file`]), or memory of another allocator
//! ([`UserMemory::from_raw_parts`]). It comes back with [`Region::release`]. A card in another process reaches files only, unless
//! [its client trusts it](vfio_user::ConnectOptions::shares_process).
//!
//! ```
//! # #[path = "../tests/null_card/mod.rs"] mod null_card;
//! # use rnic_driver::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let function = null_card::NullCard::new();
//! # let device = Device::open(function, Options::new([2, 0, 0, 0, 0, 1]))?;
//! # let domain = device.create_protection_domain()?;
//! # let queue = device.create_completion_queue(&device.events(), &CompletionQueueOptions::default())?;
//! # let queue_pair = domain.create_queue_pair(&queue, &queue, &QueuePairOptions::default())?;
//! # let queue_pair = queue_pair.initialize(RemoteRights::ALL)?;
//! # let peer = queue_pair.info(0)?;
//! # let mut queue_pair = queue_pair.connect(&peer, &ConnectOptions::default())?;
//! let region = domain.register(vec![7; 1000])?;
//! queue_pair.post_send(SendRequest::send(1).sge(region).signalled())?;
//! let mut completion = queue.poll_one()?.expect("this card completes at once");
//! let region = completion.sg_list.pop().expect("the request had one region");
//! assert_eq!(region.release()?.into_vec().unwrap(), [7; 1000]);
//!
//! // Peers may write this at any moment, so there are copies of it, and never a slice.
//! let shared = domain.share(64, RemoteRights::WRITE)?;
//! let mut copy = [0; 8];
//! shared.read(0, &mut copy)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! A request that the queue does not take comes back with its memory ([`PostError`]); `?` takes that too, into [`Error`] or into an
//! error of the application. A request that the card could not carry out completes with a status, of which [`Completion::check`] makes
//! an error that says what to check ([`FailedRequest`]). The queue pair is in the error state then: what else is posted completes as
//! flushed.
//!
//! ```
//! # #[path = "../tests/null_card/mod.rs"] mod null_card;
//! # use rnic_driver::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let function = null_card::NullCard::new();
//! # let device = Device::open(function, Options::new([2, 0, 0, 0, 0, 1]))?;
//! # let domain = device.create_protection_domain()?;
//! # let queue = device.create_completion_queue(&device.events(), &CompletionQueueOptions::default())?;
//! # let queue_pair = domain.create_queue_pair(&queue, &queue, &QueuePairOptions::default())?;
//! # let queue_pair = queue_pair.initialize(RemoteRights::ALL)?;
//! # let peer = queue_pair.info(0)?;
//! # let mut queue_pair = queue_pair.connect(&peer, &ConnectOptions::default())?;
//! let mut wr_id = 0;
//! let refused = loop {
//!     let request = SendRequest::send(wr_id).sge(domain.allocate(64)?);
//!     match queue_pair.post_send(request) {
//!         Ok(()) => wr_id += 1,
//!         Err(refused) => break refused,
//!     }
//! #   if wr_id > 100_000 { panic!("a queue has an end") }
//! };
//! // The queue is full. The request comes back whole, and can be posted again once something has completed.
//! println!("{}", refused.reason);
//! let request: SendRequest = refused.request;
//! assert_eq!((request.wr_id, request.sg_list.len()), (wr_id, 1));
//! # Ok(())
//! # }
//! ```
//!
//! Failures of calls are [`Error`]: what the card refused, with the field ([`CommandError`]), what the back end could not do
//! ([`FunctionError`]), what did not end in time. Each says what can be done about it.
//!
//! # Events
//!
//! A thread that has nothing to poll sleeps in [`CompletionQueue::wait`], which arms the queue; an event loop arms it itself
//! ([`CompletionQueue::arm`]) and waits for [`EventQueue::interrupt_fd`]. Asynchronous events, of failed queue pairs, of the port
//! and of limits of SRQs, come from [`EventQueue::wait`] and [`EventQueue::poll`].
//!
//! ```
//! use rnic_driver::{CompletionQueue, Error, EventQueue};
//! use std::time::Duration;
//!
//! fn serve(queue: &CompletionQueue, events: &EventQueue) -> Result<(), Error> {
//!     while queue.wait(Duration::from_millis(100))? {
//!         while let Some(completion) = queue.poll_one()? {
//!             println!("request {}: {}", completion.wr_id, completion.status.name());
//!         }
//!     }
//!     while let Some(event) = events.poll()? {
//!         println!("{} of {:#x}", event.code.name(), event.object_number);
//!     }
//!     Ok(())
//! }
//! # #[path = "../tests/null_card/mod.rs"] mod null_card;
//! # use rnic_driver::{CompletionQueueOptions, Device, Options};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = Device::open(null_card::NullCard::new(), Options::new([2, 0, 0, 0, 0, 1]))?;
//! # let queue = device.create_completion_queue(&device.events(), &CompletionQueueOptions::default())?;
//! # serve(&queue, &device.events())?;
//! # Ok(())
//! # }
//! ```
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
//! # #[path = "../tests/null_card/mod.rs"] mod null_card;
//! # use rnic_driver::{CompletionQueueOptions, ConnectOptions, Device, Options, QueuePairOptions, RemoteRights};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let function = null_card::NullCard::new();
//! # let device = Device::open(function, Options::new([2, 0, 0, 0, 0, 1]))?;
//! # let domain = device.create_protection_domain()?;
//! # let queue = device.create_completion_queue(&device.events(), &CompletionQueueOptions::default())?;
//! # let queue_pair = domain.create_queue_pair(&queue, &queue, &QueuePairOptions::default())?;
//! # let queue_pair = queue_pair.initialize(RemoteRights::ALL)?;
//! # let peer = queue_pair.info(0)?;
//! # let queue_pair = queue_pair.connect(&peer, &ConnectOptions::default())?;
//! # ping(queue_pair, &queue)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Fork
//!
//! A card belongs to the process that has opened it. A process that is forked has copies of the objects, and may drop them or let
//! them be: nothing happens to the card. It cannot use them: memory that the card shares is not there (an access ends the process),
//! no doorbell is rung, and commands fail with [`Error::Forked`]. It may open another card.
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
//! * `unsafe` code exists only in [`memory`], its pages and that of the application, in the table [`in_flight`], in SGEs that name a
//!   key, where [`vfio`] calls the kernel and accesses mapped BARs, and where a process is told from one that was forked from it.

// A module imports only modules that are declared before it; `tests/layers.rs` checks that.

// Faults that tests switch on.
#[macro_use]
mod mutants;

// Rings and memory.
pub mod ring;
mod sync;

mod process;

mod page;

mod user_memory;

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

// Why calls, posts and requests fail.
mod post_error;
mod failed_request;

mod error;

// Access to the card.
mod doorbell;
mod config_space;
mod encoding;
mod registers;

mod path;
mod waits;

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

mod raw_region;

// Work and completions.
mod work_request;

mod completion;

mod completion_queue;
pub mod in_flight;
mod work_queue;

mod shared_receive_queue;

mod queue_pair;

pub use address_handle::AddressHandle;
pub use completion::Completion;
pub use completion_queue::{CompletionQueue, CompletionQueueOptions, Poller};
pub use device::{Counters, Device, ObjectCounts};
pub use device_name::{DeviceName, DeviceNameError};
pub use error::{CommandError, CompletionError, Error};
pub use event_queue::{EventQueue, EventQueueOptions};
pub use event_ring::AsynchronousEvent;
pub use failed_request::FailedRequest;
pub use function::{Bar, Claim, DmaSegment, Function, FunctionError, Ownership};
pub use memory::{DeviceView, FilePart, Loan, LoanMut, Memory, PageSize, Purpose};
pub use path::Path;
pub use pci_address::{PciAddress, PciAddressError};
pub use post_error::{PostError, Refusal};
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{
    ConnectOptions, ConnectionInfo, QueuePair, QueuePairOptions, ReceiveBatch, ReceiveHalf, ReceiveOptions,
    SendBatch, SendHalf, SendOptions, TransitionError, raw, state,
};
pub use region::{RangeError, Region, RegisterError, ReleaseError, SharedRegion};
pub use remote_memory::{RemoteMemory, RemoteRights};
pub use server_error::ServerError;
pub use shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueOptions};
pub use startup::{Limits, Options};
pub use user_memory::UserMemory;
pub use vfio_error::VfioError;
pub use work_request::{Operation, ReceiveRequest, SendRequest, SgList};
