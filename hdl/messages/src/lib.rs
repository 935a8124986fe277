//! What the parts of the card say to each other: tokens, the requests of one role to another, and the sizes of tables.
//!
//! ```text
//!             setup events (control to every stage), failure events (every stage to control)
//!  doorbells ─> schedule ─> fetch ─> segment ─GatherCommand─> gather ─TransmitRequest─┐
//!                                      └> outstanding ─> acknowledge ─┐           ├─> launch ─TransmitToken─> assemble
//!                                                CqeToken <────┤           │
//!  receive ─> admit ─PlaceCommand─> place ─CqeToken────────────┘           │
//!                                     └─AckNotice──> ack ───TransmitRequest───────────┘
//! ```
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod complete;
pub mod doorbell;
pub mod drop_reason;
pub mod frame;
pub mod host;
#[cfg(test)]
mod mirror;
pub mod packet;
pub mod path;
pub mod protect;
pub mod read;
pub mod receive;
pub mod setup;
pub mod sizes;
pub mod transmit;

pub use packet::{EXTENDED_BITS, PacketToken};
