//! The programs of `rnic-sim`: the demo, and the standard bench; and a rig for tests against a foreign peer.

pub mod bench;
pub mod demo;
pub mod foreign;
pub mod latency;
pub mod output;
pub mod report;
pub mod scenario;
