//! Stimulus of simulations: random streams, random frames, and captured frames.
//!
//! This crate depends on the wire formats only, so that the reference endpoint and the simulated machine may share it.

pub mod captures;
pub mod chance;
pub mod frames;
