//! The responder: from a request of the peer to host memory, and to an acknowledgement or response.
//!
//! ```text
//!  requests ─> admit ─> park ─> scatter ─> resolve ─> (place) ─> ack ─────> acknowledge packets
//!                       │ ^        │          │ ^                 │ release
//!                       v │        v          │ region table      v
//!                   rq_prefetch  access       ├─────────────> read_responder ─────> responses (gather)
//!                     ^   │      requests     │                   ^
//!                     │   v                   └─────────────> atomics ────────────> host memory
//!                     (host)
//! ```
//!
//! The stages, in the order in which a request passes them:
//!
//! 1. [`admit`] decides the place of a packet in the order of its queue pair, and whether it is valid.
//! 2. [`rq_prefetch`] delivers the receive WQEs that packets consume.
//! 3. [`park`] keeps packets whose receive WQE is not on the card, and lets others pass.
//! 4. [`scatter`] pairs a packet with its receive WQE, and requests the access checks for its payload.
//! 5. [`resolve`] decides its outcome, and sends payload, CQE and reply to place.
//! 6. [`ack`] sends acknowledgements and NAKs when the host writes before them are done, and releases READs and
//!    atomics.
//! 7. [`atomics`] executes atomics in host memory.
//! 8. [`read_responder`] makes the responses to READs and atomics, and makes them again for duplicates.
//!
//! Packets of one queue pair keep their order from end to end; nothing that is received waits for the wire.
//! [`messages`] has the records that the stages pass, [`merge`] the small blocks between them, and
//! [`responder`] wires them.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod messages;

pub mod responder;
pub mod admit;
pub mod rq_prefetch;
pub mod park;
pub mod scatter;
pub mod resolve;
pub mod ack;
pub mod atomics;
pub mod read_responder;
pub mod merge;

#[cfg(test)]
mod tests;

pub use responder::Responder;
