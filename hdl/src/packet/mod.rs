//! From frames to tokens and payload, and back.
pub mod assemble;
pub mod collect;
pub mod icrc;
pub mod opcode_table;
pub mod parse;
pub mod reason;
#[cfg(test)]
mod samples;
pub mod token;
#[cfg(test)]
mod vectors;
