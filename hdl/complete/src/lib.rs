//! Completion queues, event queues and interrupts, in that order (design decision 11).
//!
//! ```text
//!   CQEs of the requester ┐   ┌───────────────────┐  ┌──────────────┐  ┌────────────┐
//!   CQEs of the responder ┴──>│ completion_queues ├─>│ event_queues ├─>│ interrupts ├──> shell
//!                             └───────────────────┘  └──┬───────────┘  └────────────┘
//!   asynchronous events ────────────────────────────────┘   └──> host writer (CQEs, EQEs)
//!
//!   pulses of all parts of the card ──> counters ──> registers
//! ```
//!
//! | Block | What it does |
//! |---|---|
//! | [`CompletionQueues`] | finds the slot of each CQE, and decides whether an EQE follows |
//! | [`EventQueues`] | writes CQEs and EQEs, each EQE after the CQEs that it announces |
//! | [`Interrupts`] | raises a vector after its EQE, with mask and moderation |
//! | [`Complete`] | joins these three |
//! | [`Counters`] | 64-bit counters of all events of the card, with snapshots |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

mod ring;
mod stage;
mod unread;
mod moderation;
mod completion_queues;
mod event_queues;
mod interrupts;
mod complete;
mod counters;

pub use complete::{Complete, CompleteCounts, CompletePools};
pub use completion_queues::{CompletionQueueCounts, CompletionQueues, Delivery, OPERATION_CYCLES};
pub use counters::{Counters, INDEX_BITS};
pub use event_queues::{EVENT_CYCLES, EventQueueCounts, EventQueues};
pub use interrupts::Interrupts;
