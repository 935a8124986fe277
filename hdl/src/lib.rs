//! The rnic card in Rust-HDL, and the generator of its Verilog.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod card;
pub mod config;
pub mod event_counters;
pub mod generator;
pub mod pool_levels;
pub mod stack;
