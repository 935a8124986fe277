//! The responder: from a request to a place in host memory, and to an answer.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod ack;
pub mod admit;
pub mod atomics;
pub mod merge;
pub mod messages;
pub mod read_responder;
pub mod resolve;
pub mod responder;
pub mod rq_prefetch;
pub mod scatter;

#[cfg(test)]
mod tests;

pub use responder::Responder;
