//! The rnic card in Rust-HDL, and the generator of its Verilog.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

#[cfg(test)]
pub mod bench;
pub mod config;
pub mod generator;
pub mod host;
pub mod logic;
pub mod memory;
pub mod packet;
pub mod parameter;
pub mod stream;
pub mod top;
