//! What goes into simulations: streams of random numbers, random frames, and captured frames.
//!
//! Nothing here knows a card, a driver or a simulator, so the reference endpoint and the simulated machine may share it.

pub mod captures;
pub mod chance;
pub mod frames;
