//! From frames to tokens and payload, and back.
pub mod icrc;
pub mod token;
#[cfg(test)]
mod vectors;
