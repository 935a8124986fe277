//! Memory protection: checks keys, domains, rights and bounds, and gives device addresses.
//!
//! ```text
//!  requester, READ responses ──┐                 ┌──> region table (one for each direction)
//!                              ├──> region_mux ──┤
//!  responder ──────────────────┘                 └──> answers, each to its requester
//! ```
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod region_mux;
pub mod region_table;

pub use region_mux::RegionMux;
pub use region_table::RegionTable;
