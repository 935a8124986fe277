//! Opens an rnic card, makes its queues and regions, and moves data, from user space and without a kernel module.
//!
//! ```text
//!   application ── Device, queues, regions                                 this crate
//!                     │
//!                  Function ── bars, memory, interrupts, time              one trait
//!                     │
//!                  VFIO  |  vfio-user  |  a simulated card in this process
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`function`] | what the driver asks of whatever carries the card |
//! | [`memory`] | memory that CPU and card share |
//! | [`ring`] | index and phase logic of all queues, without a device |
//!
//! What always holds:
//!
//! * Every bit comes from `rnic-layout`; no offset or opcode stands here.
//! * Every wait has a bound, in the time of the [`Function`], and lets the card go on meanwhile.
//! * Objects hold what they stand on: the card ends after its queues, memory after its mapping.
//! * `unsafe` exists only in [`memory`].

mod address_handle;
mod admin;
mod completion_queue;
mod device;
mod doorbell;
mod error;
mod event;
pub mod function;
mod id_allocator;
pub mod memory;
mod pages;
mod protection_domain;
mod queue_pair;
mod region;
mod registers;
pub mod ring;
mod shared_receive_queue;
mod sync;
mod work_request;

pub use address_handle::{AddressHandle, Path};
pub use completion_queue::{Completion, CompletionQueue, CompletionQueueOptions};
pub use device::{Counters, Device, Limits, Options};
pub use error::{CommandError, CompletionError, Error};
pub use event::{AsynchronousEvent, EventQueue, EventQueueOptions};
pub use function::{Bar, DmaSegment, Function, FunctionError};
pub use memory::{DeviceView, Loan, LoanMut, Memory, Purpose};
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{
    ConnectOptions, ConnectionInfo, QueuePair, QueuePairOptions, ReceiveOptions, SendOptions,
    TransitionError, state,
};
pub use region::{RangeError, Region, RemoteMemory, RemoteRights, SharedRegion};
pub use shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueOptions};
pub use work_request::{Operation, PostError, ReceiveRequest, Refusal, SendRequest, SgList};
