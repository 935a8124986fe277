//! Scenarios that cross crates, and what they share.

pub mod proof;
pub mod synthesis;
