//! The programs of `rnic-sim`: the demo, the standard bench, a peer in a process of its own, and cards for other processes; and
//! a rig for tests against a foreign peer.

pub mod bench;
pub mod demo;
pub mod files;
pub mod foreign;
pub mod latency;
pub mod output;
pub mod peer;
pub mod report;
pub mod scenario;
pub mod serve;
