//! The library of blocks that the card is built of, and the bench on which blocks are tested.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`stream`] | the handshake, and what queues, merges, cuts and crosses streams |
//! | [`memory`] | memories of one and two ports, with byte lanes, across clocks |
//! | [`logic`] | functions without state: XOR networks, rotators, masks, serial numbers |
//! | [`parameter`] | what blocks of the datapath require of their parameters |
//! | [`pulse`] | pulses of several lines, one after the other on one |
//! | `bench` | with the feature `bench`: Rust and its Verilog in lock step |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

#[cfg(any(test, feature = "bench"))]
pub mod bench;
pub mod logic;
pub mod memory;
pub mod parameter;
pub mod pulse;
pub mod stream;
