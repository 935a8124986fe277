//! Pure functions of wide words, as library blocks: XOR networks, constant tables, rotation.
//!
//! [`xor_network`], [`rom`], [`byte_mask`] and [`lane_register`] are leaves: their contents come from Rust data or their lanes
//! have no names in a kernel, so they print their own Verilog and a test runs both sides on random input. [`gf2`] is the arithmetic
//! of the networks, [`psn`] that of sequence numbers.
pub mod byte_mask;
pub mod gf2;
pub mod lane_register;
pub mod match_table;
pub mod psn;
pub mod rom;
pub mod rotate;
pub mod xor_network;
