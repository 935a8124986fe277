//! Scenarios that cross crates, and what they share.

pub mod synthesis;
