//! The programs of `rnic-sim`: the demo, and the standard bench.

pub mod bench;
pub mod demo;
pub mod latency;
pub mod output;
pub mod report;
pub mod scenario;
