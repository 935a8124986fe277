//! Everything between host memory and the packet path that knows the datapath's width.
//!
//! | Block | What it does |
//! |---|---|
//! | [`Gather`] | fetches the payload of packets to be sent; lets go those that are wholly on the card |
//! | [`AddressVector`] | adds to a packet to be sent what its path says, and drops what is stale |
//! | [`PlaceMux`] | lets requests of peers and answers to own requests use one place |
//! | [`Place`] | puts the payload of received packets where it belongs, then lets completion and reply go |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod address_vector;
pub mod gather;
pub mod gather_mux;
pub mod place;
pub mod place_mux;
pub mod write_failures;

pub use address_vector::AddressVector;
pub use gather::Gather;
pub use gather_mux::GatherMux;
pub use place::Place;
pub use place_mux::PlaceMux;
pub use write_failures::WriteFailures;
