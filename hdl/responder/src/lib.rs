//! The responder: from a request to a place in host memory, and to an answer.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod protect;
