//! Completion queues, event queues and interrupts, in that order (design decision 11).
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

mod complete;
mod completion_queues;
mod counters;
mod event_queues;
mod interrupts;

pub use complete::Complete;
pub use completion_queues::{CompletionQueues, OPERATION_CYCLES, Step};
pub use counters::{Counters, INDEX_BITS};
pub use event_queues::{EVENT_CYCLES, EventQueues};
pub use interrupts::Interrupts;
