//! Reliable connected queue pairs, with the state in the type.
//!
//! ```text
//!   Reset ── initialize ──> Init ── ready_to_receive ──> ReadyToReceive ── ready_to_send ──> ReadyToSend
//!                            │                                                                   ▲
//!                            └─────────────────────────── connect ───────────────────────────────┘
//!   any ── fail ──> Error      any ── reset ──> Reset      ReadyToSend ── drain ──> SendQueueDrain ── resume ──> ReadyToSend
//! ```
//!
//! An operation that a state does not allow does not compile: receives can be posted from Init on, sends from ReadyToSend on.
//! The card may move a queue pair to the error state by itself. The type does not change then, and posted requests complete
//! as flushed.
//!
//! | module | content |
//! |---|---|
//! | [`state`] | the states, as types |
//! | `connection_info` | parameters that two peers exchange |
//! | `options` | parameters of creation and of each transition |
//! | `queues` | the queue pair as its completion queues know it: retiring of requests |
//! | `life` | what both halves share, destruction |
//! | `halves` | send and receive queue: posting of requests |
//! | `lifecycle` | transitions |
//! | `create` | creation |
//! | `post` | posting to both halves |
//! | [`raw`] | the same without types |
//!
//! Send queue and receive queue are two halves, each with a ring, a doorbell and a table of requests in flight of its own. Posting
//! needs `&mut` of its half, and takes no lock; [`QueuePair::split`] gives the halves to two threads.

// In the order of their imports.
pub mod state;

mod connection_info;
mod options;
mod queues;

mod life;

mod halves;

mod lifecycle;

mod create;
mod post;

pub mod raw;

pub use connection_info::ConnectionInfo;
pub use halves::{ReceiveBatch, ReceiveHalf, SendBatch, SendHalf};
pub use lifecycle::{QueuePair, TransitionError};
pub use options::{ConnectOptions, QueuePairOptions, ReceiveOptions, SendOptions};
