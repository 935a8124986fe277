//! Memory protection: checks keys, domains, rights and bounds, and gives device addresses.
//!
//! ```text
//!  requester: segment, read_response ──> region_mux ──> region_table
//!  responder: scatter, read_responder ─> region_mux ──> region_table
//! ```
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod region_mux;
pub mod region_table;

pub use region_mux::RegionMux;
pub use region_table::RegionTable;
