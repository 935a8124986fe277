//! The host's side of the card: registers, doorbells, and the engines that read and write host memory.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod arrivals;
pub mod axi_lite;
pub mod chunk_buffer;
pub mod frame_counters;
pub mod read_engine;
pub mod registers;
pub mod ring;
mod totals;
