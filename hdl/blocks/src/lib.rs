//! Blocks that the card is built of, and the test bench for blocks.
//!
//! | Module | Content |
//! |---|---|
//! | [`stream`] | the handshake, and blocks that queue, merge, split and cross streams |
//! | [`memory`] | memories of one and two ports, with byte lanes, across clocks |
//! | [`logic`] | functions without state: XOR networks, rotators, masks, serial numbers |
//! | [`pulse`] | sums of the pulses of several lines |
//! | [`parameter`] | what blocks of the datapath require of their parameters |
//! | `bench` | with the feature `bench`: test bench that runs Rust and its Verilog in lock step |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod stream;
pub mod memory;
pub mod logic;
pub mod pulse;
pub mod parameter;

#[cfg(any(test, feature = "bench"))]
pub mod bench;
