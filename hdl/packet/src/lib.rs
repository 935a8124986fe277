//! From frames to tokens and payload, and back.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod assemble;
pub mod buffer;
pub mod collect;
pub mod counters;
pub mod crossing;
pub mod delay;
pub mod dispatch;
pub mod icrc;
pub mod mac;
pub mod measure;
pub mod opcode_table;
pub mod parse;
pub mod receive;
#[cfg(test)]
mod receive_tests;
#[cfg(test)]
mod samples;
pub mod strip;
#[cfg(test)]
mod vectors;
