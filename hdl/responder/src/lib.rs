//! The responder: from a request to a place in host memory, and to an answer.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod admit;
pub mod conclude;
pub mod exchange;
pub mod protect;
pub mod receive_entries;
pub mod region_share;
pub mod reply;
pub mod responder;
pub mod scatter;
pub mod serve;
pub mod stages;
pub mod tally;

#[cfg(test)]
mod tests;

pub use responder::Responder;
