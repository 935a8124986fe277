//! Messages between the parts of the card, and the sizes of its tables. Structs only; no logic.
//!
//! A part of the card knows no other part (design 2); it knows the messages that it exchanges with them.
//!
//! ```text
//!  SetupEvent: control to every stage          QpNotice: every stage to control
//!
//!  SendsPosted ───────> requester ─GatherCommand─┬─> gather ─────────TransmitRequest──────────┬─> address_vector ─TransmitToken─> assemble
//!                        │  ▲                    │                                            │
//!                CqeToken│  │ PacketToken        │ GatherCommand                              │ TransmitRequest
//!                        │  │                    │                                            │
//!                        │ receive ─PacketToken─> responder ─PlaceCommand─> place ─AckNotice──> ack
//!                        ▼                                                    │
//!                     complete <──────────────────────────────────CqeToken────┘
//! ```
//!
//! | module | messages |
//! |---|---|
//! | [`sizes`] | widths of indices and counters |
//! | [`doorbell`] | accepted doorbells |
//! | [`setup`] | set-up by commands, and notices of the stages to control |
//! | [`path`] | path of a queue pair |
//! | [`packet`] | headers of a packet |
//! | [`frame`], [`drop_reason`] | outcome of a received frame |
//! | [`transmit`] | packets to send |
//! | [`receive`], [`read`] | placement of requests and of responses, READs of the peer |
//! | [`protect`] | access checks and invalidation of keys |
//! | [`host`] | reads and writes of host memory |
//! | [`pool`] | levels of pools, and what one owner may hold of one |
//! | [`complete`] | CQEs, EQEs and set-up of their queues |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod sizes;
pub mod doorbell;
pub mod setup;
pub mod path;
pub mod packet;
pub mod frame;
pub mod drop_reason;
pub mod transmit;
pub mod receive;
pub mod read;
pub mod protect;
pub mod host;
pub mod complete;
pub mod pool;

#[cfg(test)]
mod mirror;

pub use packet::{EXTENDED_BITS, PacketToken};
