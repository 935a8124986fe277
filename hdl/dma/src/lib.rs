//! Everything between host memory and the packet path that knows the datapath's width.
//!
//! | Block | What it does |
//! |---|---|
//! | [`HostReader`] | reads spans of host memory for five clients |
//! | [`Gather`] | fetches the payload of packets to be sent; lets go those that are wholly on the card |
//! | [`Launch`] | adds to a packet to be sent what its path says, and drops what is stale |
//! | [`HostWriter`] | writes to host memory for four clients, in one order, and tells each what is done |
//! | [`Translate`] | gives accesses to memory that lies in pages their device addresses |
//! | [`PlaceShare`] | lets requests of peers and answers to own requests use one place |
//! | [`Place`] | puts the payload of received packets where it belongs, then lets completion and reply go |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod collect;
pub mod failed_writes;
pub mod gather;
pub mod gather_share;
pub mod host_reader;
pub mod host_writer;
pub mod launch;
pub mod place;
pub mod place_share;
#[cfg(test)]
mod testing;
pub mod translate;

pub use failed_writes::FailedWrites;
pub use gather::Gather;
pub use gather_share::GatherShare;
pub use host_reader::HostReader;
pub use host_writer::HostWriter;
pub use launch::Launch;
pub use place::Place;
pub use place_share::PlaceShare;
pub use translate::Translate;
