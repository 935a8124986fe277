//! The programs of `rnic-sim`: the demo, the standard bench, a peer in a process of its own, and cards for other processes; and
//! a rig for tests against a foreign peer.

pub mod bench;
pub mod demo;
pub mod files;
pub mod foreign;
pub mod latency;
pub mod numbers;
pub mod output;
pub mod peer;
pub mod report;
pub mod scenario;
pub mod serve;

use rnic_hdl::config::Config;
use rnic_machine::world::CardOptions;

/// The clocks and the line rate of a configuration, on the host of the standard bench.
pub fn card_options(config: &Config) -> CardOptions {
    let line = u64::from(config.network.line_rate_gbps) * 1_000_000_000;
    CardOptions::new(config.core_clock_hz(), config.mac_clock_hz(), line)
}
