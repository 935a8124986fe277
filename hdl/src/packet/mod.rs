//! From frames to tokens and payload, and back.
pub mod token;
