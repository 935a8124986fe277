//! Configuration of the card, read from TOML and checked before any hardware is generated.
//!
//! Every refusal names the setting, the value found and the values allowed; [`Config::parse`] reports the first
//! in the order of the sections. Every setting but the clock of the MAC and the sizes of tables must be given, and an unknown one is
//! an error, so that a misspelt name is not ignored.
use rnic_control::function_reset::FUNCTION_RESET_CYCLES_MAX;
use rnic_layout::limits::HOST_LIMIT_RESET_MS;
use rnic_layout::registers::HostLimit;
use rnic_messages::sizes::Sizes;
use rnic_packet::crossing;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::path::Path;

/// Allowed widths of the datapath, in bits.
pub const WIDTHS_BITS: [u32; 4] = [64, 128, 256, 512];
/// Range of the core clock, in MHz.
pub const CORE_CLOCK_MHZ: std::ops::RangeInclusive<u32> = 50..=500;
/// PCI Express gives a function-level reset 100 ms.
const _: () = assert!(
    FUNCTION_RESET_CYCLES_MAX < (100 - HOST_LIMIT_RESET_MS) * 1000 * *CORE_CLOCK_MHZ.start() as u64,
    "while `host_limit` has its value at reset"
);
const _: () =
    assert!(HostLimit::at_reset_of(*CORE_CLOCK_MHZ.end() * 1000).limit > 0, "the register holds it");
/// Clock of the MACs of 100 Gb/s with 512 bits, which also run at 40 and 50 Gb/s.
const HARD_MAC_HZ: u64 = 322_265_625;
/// Line rate from which on a MAC is one of those, unless the configuration says otherwise.
const HARD_MAC_GBPS: u32 = 40;
/// Allowed sizes of each receive buffer, in KiB.
pub const BUFFERS_KIB: std::ops::RangeInclusive<u32> = 8..=1 << (Sizes::LARGEST.receive_bytes - 10);
/// Allowed numbers of packets in each receive buffer.
pub const BUFFERED_PACKETS: std::ops::RangeInclusive<u32> = 16..=1 << Sizes::LARGEST.receive_packets;
/// Names and texts of the presets: one for each width of [`WIDTHS_BITS`], with the largest tables, then by size.
const PRESETS: [(&str, &str); 8] = [
    ("w64", include_str!("../configs/w64.toml")),
    ("w128", include_str!("../configs/w128.toml")),
    ("w256", include_str!("../configs/w256.toml")),
    ("w512", include_str!("../configs/w512.toml")),
    ("large", include_str!("../configs/w512.toml")),
    ("medium", include_str!("../configs/medium.toml")),
    ("small", include_str!("../configs/small.toml")),
    ("tiny", include_str!("../configs/tiny.toml")),
];
/// Allowed numbers of queue pairs; of these and of all other objects there is a power of two.
pub const QUEUE_PAIRS: std::ops::RangeInclusive<u32> = 16..=1 << Sizes::LARGEST.queue_pairs;
/// Allowed numbers of completion queues.
pub const COMPLETION_QUEUES: std::ops::RangeInclusive<u32> = 2..=1 << Sizes::LARGEST.completion_queues;
/// Allowed numbers of shared receive queues.
pub const SHARED_RECEIVE_QUEUES: std::ops::RangeInclusive<u32> =
    2..=1 << Sizes::LARGEST.shared_receive_queues;
/// Allowed numbers of event queues, of which one belongs to the registers.
pub const EVENT_QUEUES: std::ops::RangeInclusive<u32> = 4..=1 << Sizes::LARGEST.event_queues;
/// Allowed numbers of entries of the page table.
pub const PAGE_ENTRIES: std::ops::RangeInclusive<u32> = 16..=1 << Sizes::LARGEST.page_entries;
/// Allowed numbers of address handles.
pub const ADDRESS_HANDLES: std::ops::RangeInclusive<u32> = 2..=1 << Sizes::LARGEST.address_handles;
/// Allowed numbers of READ slots.
pub const READ_SLOTS: std::ops::RangeInclusive<u32> = 64..=1 << Sizes::LARGEST.read_slots;
/// Allowed numbers of regions.
pub const REGIONS: std::ops::RangeInclusive<u32> = 16..=1 << Sizes::LARGEST.regions;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Width and clock of the datapath.
    pub datapath: Datapath,
    /// The network port.
    pub network: Network,
    /// The receive buffers.
    pub receive: Receive,
    /// How many objects the card has.
    #[serde(default)]
    pub tables: Tables,
}

/// Width and clock of the datapath.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Datapath {
    /// Width in bits: one of [`WIDTHS_BITS`].
    pub width_bits: u32,
    /// Frequency of the core clock, within [`CORE_CLOCK_MHZ`].
    pub core_clock_mhz: u32,
}

/// The network port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Line rate in Gb/s; the datapath must carry it.
    pub line_rate_gbps: u32,
    /// Highest frequency of both clocks of the MAC, in Hz; the datapath must carry the line rate at it, and the queue to the MAC
    /// hold what it gains on the core in a frame. [`Config::parse`] fills it in: [`Config::mac_clock_hz`].
    pub mac_clock_hz: Option<u64>,
}

/// The receive buffers. Requests and responses have one each, so that neither can fill the buffer of the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    /// Payload that each of the two buffers holds, in KiB: a power of two within [`BUFFERS_KIB`].
    pub buffer_kib: u32,
    /// Packets that each of them holds: a power of two within [`BUFFERED_PACKETS`], the most if it is not given.
    #[serde(default = "most_packets")]
    pub packets: u32,
}

fn most_packets() -> u32 {
    *BUFFERED_PACKETS.end()
}

/// How many objects the card has, each a power of two, and the most that can be built where it is not given. Lines of receive WQEs
/// and blocks of outstanding messages follow from the queue pairs: there are two lines of four WQEs for each, and one block of
/// eight messages, which all share, beside a line and a block of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tables {
    /// Queue pairs: within [`QUEUE_PAIRS`].
    pub queue_pairs: u32,
    /// Completion queues: within [`COMPLETION_QUEUES`].
    pub completion_queues: u32,
    /// Shared receive queues: within [`SHARED_RECEIVE_QUEUES`].
    pub shared_receive_queues: u32,
    /// Event queues: within [`EVENT_QUEUES`].
    pub event_queues: u32,
    /// Memory regions: within [`REGIONS`].
    pub regions: u32,
    /// Entries of the page table, which all regions share: within [`PAGE_ENTRIES`].
    pub page_entries: u32,
    /// Address handles: within [`ADDRESS_HANDLES`].
    pub address_handles: u32,
    /// READs and atomics in flight that all queue pairs share as requesters, and as many as responders: within [`READ_SLOTS`].
    pub read_slots: u32,
}

impl Default for Tables {
    fn default() -> Self {
        Tables {
            queue_pairs: *QUEUE_PAIRS.end(),
            completion_queues: *COMPLETION_QUEUES.end(),
            shared_receive_queues: *SHARED_RECEIVE_QUEUES.end(),
            event_queues: *EVENT_QUEUES.end(),
            regions: *REGIONS.end(),
            page_entries: *PAGE_ENTRIES.end(),
            address_handles: *ADDRESS_HANDLES.end(),
            read_slots: *READ_SLOTS.end(),
        }
    }
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot be read: {error}; a file is allowed, or a preset: {presets}")]
    File {
        /// Answer of the operating system.
        error: String,
        /// Names of the presets, as text.
        presets: String,
    },
    /// Not TOML, an unknown or missing setting, or a value of the wrong type.
    #[error("{0}")]
    Syntax(String),
    /// A value outside its range, or one that contradicts another setting.
    #[error("setting `{setting}` is {value}; allowed: {allowed}")]
    Setting {
        /// Path of the setting, as `section.name`.
        setting: &'static str,
        /// Value in the file.
        value: String,
        /// Allowed values, as text.
        allowed: String,
    },
}

impl Config {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`ConfigError`], which names the setting, the value and what is allowed.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let mut config: Config = toml::from_str(text)
            .map_err(|error| ConfigError::Syntax(error.to_string().trim_end().to_string()))?;
        config.check()?;
        config.network.mac_clock_hz = Some(config.mac_clock_hz());
        Ok(config)
    }

    /// Reads the configuration that a command line names: a file, or a preset by its name if there is no such file.
    ///
    /// # Errors
    /// [`ConfigError`], without the name.
    pub fn read(name: &Path) -> Result<Config, ConfigError> {
        let preset = PRESETS.iter().find(|(preset, _)| name == Path::new(preset));
        match (std::fs::read_to_string(name), preset) {
            (Ok(text), _) => Config::parse(&text),
            (Err(_), Some((_, text))) => Config::parse(text),
            (Err(error), None) => {
                let presets = PRESETS.map(|(name, _)| name).join(", ");
                Err(ConfigError::File { error: error.to_string(), presets })
            }
        }
    }

    /// The preset of a width in bits, as in `configs/`.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] if the width is none of [`WIDTHS_BITS`].
    pub fn preset(width_bits: u32) -> Result<Config, ConfigError> {
        let name = format!("w{width_bits}");
        let Some((_, text)) = PRESETS.iter().find(|(preset, _)| *preset == name) else {
            let (value, allowed) = (width_bits.to_string(), list(&WIDTHS_BITS));
            return Err(ConfigError::Setting { setting: "datapath.width_bits", value, allowed });
        };
        Config::parse(text)
    }

    /// Checks every setting alone, then those that must agree with each other.
    ///
    /// # Errors
    /// [`ConfigError::Setting`] for the first setting with a value that is not allowed.
    pub fn check(&self) -> Result<(), ConfigError> {
        let width = self.datapath.width_bits;
        let clock = self.datapath.core_clock_mhz;
        require("datapath.width_bits", width, WIDTHS_BITS.contains(&width), || list(&WIDTHS_BITS))?;
        require("datapath.core_clock_mhz", clock, CORE_CLOCK_MHZ.contains(&clock), || {
            format!("{} to {} MHz", CORE_CLOCK_MHZ.start(), CORE_CLOCK_MHZ.end())
        })?;
        let capacity_gbps = width * clock / 1000;
        let rate = self.network.line_rate_gbps;
        require("network.line_rate_gbps", rate, (1..=capacity_gbps).contains(&rate), || {
            format!(
                "1 to {capacity_gbps} Gb/s, which is what a datapath of {width} bits carries at {clock} MHz \
                 (datapath.width_bits, datapath.core_clock_mhz)"
            )
        })?;
        self.check_mac_clock()?;
        let (receive, tables) = (&self.receive, &self.tables);
        for (setting, value, allowed) in [
            ("receive.buffer_kib", receive.buffer_kib, BUFFERS_KIB),
            ("receive.packets", receive.packets, BUFFERED_PACKETS),
            ("tables.queue_pairs", tables.queue_pairs, QUEUE_PAIRS),
            ("tables.completion_queues", tables.completion_queues, COMPLETION_QUEUES),
            ("tables.shared_receive_queues", tables.shared_receive_queues, SHARED_RECEIVE_QUEUES),
            ("tables.event_queues", tables.event_queues, EVENT_QUEUES),
            ("tables.regions", tables.regions, REGIONS),
            ("tables.page_entries", tables.page_entries, PAGE_ENTRIES),
            ("tables.address_handles", tables.address_handles, ADDRESS_HANDLES),
            ("tables.read_slots", tables.read_slots, READ_SLOTS),
        ] {
            require(setting, value, value.is_power_of_two() && allowed.contains(&value), || {
                format!("powers of two from {} to {}", allowed.start(), allowed.end())
            })?;
        }
        Ok(())
    }

    /// The sizes of tables and buffers, for the generator.
    pub fn sizes(&self) -> Sizes {
        let log2 = |count: u32| count.ilog2() as usize;
        Sizes {
            queue_pairs: log2(self.tables.queue_pairs),
            completion_queues: log2(self.tables.completion_queues),
            shared_receive_queues: log2(self.tables.shared_receive_queues),
            event_queues: log2(self.tables.event_queues),
            regions: log2(self.tables.regions),
            page_entries: log2(self.tables.page_entries),
            address_handles: log2(self.tables.address_handles),
            read_slots: log2(self.tables.read_slots),
            receive_bytes: 10 + log2(self.receive.buffer_kib),
            receive_packets: log2(self.receive.packets),
        }
    }

    /// Checks the clock of the MAC against the line and against the queue between core and MAC.
    fn check_mac_clock(&self) -> Result<(), ConfigError> {
        const SETTING: &str = "network.mac_clock_hz";
        let (width, rate) = (self.datapath.width_bits, self.network.line_rate_gbps);
        let (core_hz, mac_hz) = (self.core_clock_hz(), self.mac_clock_hz());
        let low_hz = self.line_clock_hz();
        require(SETTING, mac_hz, mac_hz >= low_hz, || {
            format!("at least {low_hz} Hz, at which a datapath of {width} bits carries {rate} Gb/s")
        })?;
        let beats = crossing::frame_beats_max(width as usize);
        let holds = 1_u64 << crossing::queue_address_bits(width as usize);
        let fits = |mac_hz| crossing::room(beats, core_hz, mac_hz) <= holds;
        require(SETTING, mac_hz, fits(mac_hz), || {
            // It fits at the frequency of the core, and ever less above.
            let (mut high_hz, mut above_hz) = (core_hz, mac_hz);
            while above_hz - high_hz > 1 {
                let between_hz = high_hz.midpoint(above_hz);
                *(if fits(between_hz) { &mut high_hz } else { &mut above_hz }) = between_hz;
            }
            let clock = self.datapath.core_clock_mhz;
            let start = crossing::head_start(beats, core_hz, mac_hz);
            let room = crossing::room(beats, core_hz, mac_hz);
            format!(
                "{low_hz} to {high_hz} Hz beside a core of {clock} MHz (datapath.core_clock_mhz): so that a frame of {beats} beats \
                 has no gap, {start} of them must be in the queue to the MAC before it starts and {room} must fit, and {holds} do"
            )
        })
    }

    /// Frequency of the core clock, in Hz.
    pub fn core_clock_hz(&self) -> u64 {
        u64::from(self.datapath.core_clock_mhz) * 1_000_000
    }

    /// Frequency of both clocks of the MAC, in Hz. Where the setting is missing it is the clock at which the datapath carries the
    /// line rate, and from 40 Gb/s on at least that of the MACs of 100 Gb/s.
    pub fn mac_clock_hz(&self) -> u64 {
        let usual_hz = if self.network.line_rate_gbps < HARD_MAC_GBPS { 0 } else { HARD_MAC_HZ };
        self.network.mac_clock_hz.unwrap_or_else(|| self.line_clock_hz().max(usual_hz))
    }

    /// Frequency at which the datapath carries the line rate, in Hz, rounded up.
    fn line_clock_hz(&self) -> u64 {
        (u64::from(self.network.line_rate_gbps) * 1_000_000_000).div_ceil(u64::from(self.datapath.width_bits))
    }

    /// Beats of a frame that must be in the queue to the MAC before it starts; a shorter frame starts when it is complete.
    pub fn head_start_beats(&self) -> u64 {
        let beats = crossing::frame_beats_max(self.datapath.width_bits as usize);
        crossing::head_start(beats, self.core_clock_hz(), self.mac_clock_hz())
    }

    /// Period of the core clock in picoseconds, rounded down.
    pub fn core_period_ps(&self) -> u32 {
        1_000_000 / self.datapath.core_clock_mhz
    }
}

fn list(values: &[u32]) -> String {
    values.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn require(
    setting: &'static str,
    value: impl Display,
    holds: bool,
    allowed: impl FnOnce() -> String,
) -> Result<(), ConfigError> {
    if holds {
        Ok(())
    } else {
        Err(ConfigError::Setting { setting, value: value.to_string(), allowed: allowed() })
    }
}
