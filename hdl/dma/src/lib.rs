//! Data between host memory and packets: everything that knows both addresses of the host and the width of the datapath.
//!
//! ```text
//!  requester ─┐  ┌────────────┐   ┌────────┐   ┌────────────────┐
//!  responder ─┴─>│ gather_mux ├──>│ gather ├──>│ address_vector ├──> assemble
//!                └────────────┘   └─^────┬─┘   └───────^────────┘
//!                       host reader ┘    └> failures   └─ acknowledge packets of the responder
//!
//!  responder ─┐  ┌───────────┐   ┌───────┐ CQE ──> completion queues
//!  requester ─┴─>│ place_mux ├──>│ place ├ notice ──> place_mux ──> responder, requester
//!                └───────────┘   └───┬───┘
//!                                    v
//!                               host writer ──> write_failures ──> responder, control
//! ```
//!
//! In the order in which a packet that is sent, and then one that is received, meets them:
//!
//! | Block | What it does |
//! |---|---|
//! | [`GatherMux`] | requests and READ responses share one gather, byte by byte |
//! | [`Gather`] | reads the payload of packets to be sent; hands on those whose payload is on the card |
//! | [`AddressVector`] | adds the addresses of its path to a packet, and drops it if it is stale |
//! | [`PlaceMux`] | requests of the peer and responses to own READs take turns at one place |
//! | [`Place`] | writes the payload of received packets, then hands on CQEs and notices |
//! | [`WriteFailures`] | reports writes that the host refused to the part that made them |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod gather_mux;
pub mod gather;
pub mod address_vector;
pub mod place_mux;
pub mod place;
pub mod write_failures;

pub use address_vector::AddressVector;
pub use gather::Gather;
pub use gather_mux::GatherMux;
pub use place::Place;
pub use place_mux::PlaceMux;
pub use write_failures::WriteFailures;
