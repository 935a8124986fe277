//! Everything between host memory and the packet path that knows the datapath's width.
//!
//! | Block | What it does |
//! |---|---|
//! | [`HostReader`] | reads spans of host memory for four clients |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod collect;
pub mod host_reader;
#[cfg(test)]
mod testing;

pub use host_reader::HostReader;
