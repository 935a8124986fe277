//! Scenarios that cross crates.
