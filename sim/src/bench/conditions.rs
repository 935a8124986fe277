//! Conditions of the bench that may be worse than the standard ones: the link, the memory of the host, its software, and what it
//! asks of the cards.
use crate::numbers::within;
use clap::Args;
use rnic_layout::limits::HOST_READ_TAGS_MAX;
use rnic_machine::host::{HostOptions, LinkOptions};
use rnic_stimulus::chance::Delay;
use serde::Serialize;

/// Nanoseconds, in picoseconds.
const NS: u64 = 1000;

/// Maximum of [`Conditions::post_ns`] and [`Conditions::poll_ns`].
const SOFTWARE_NS_MAX: u64 = 1_000_000_000;

/// Maximum of [`Conditions::regions`]: of 4,096 regions of a card, it has three such sets, or six if both directions are loaded.
const REGIONS_MAX: u32 = 512;

/// What may differ from the standard bench. The default differs in nothing.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conditions {
    /// Largest payload of a read completion, in bytes: 64, 128, 256 or 512. Root ports of servers cut at 64 or 128 as often
    /// as at 256.
    #[arg(long, default_value_t = LinkOptions::GEN3_X16.completion_bytes, value_parser = parse_completion_bytes)]
    pub completion_bytes: u64,
    /// Count whole dwords of payload on the link, as PCI Express carries them.
    #[arg(long)]
    pub dword_padding: bool,
    /// One of a hundred pieces of the answer to a read takes up to 5 us, as when the IOMMU walks its tables.
    #[arg(long)]
    pub read_tail: bool,
    /// Reads that the host has credits for.
    #[arg(long, default_value_t = HOST_READ_TAGS_MAX, value_parser = within(1..=HOST_READ_TAGS_MAX))]
    pub read_credits: u32,
    /// Time that software takes to post one request, in nanoseconds; a second at most.
    #[arg(long, default_value_t = 0, value_parser = within(0..=SOFTWARE_NS_MAX))]
    pub post_ns: u64,
    /// Time that software takes for each request or receive that has completed, in nanoseconds; a second at most.
    #[arg(long, default_value_t = 0, value_parser = within(0..=SOFTWARE_NS_MAX))]
    pub poll_ns: u64,
    /// Load both directions at once, with queue pairs of their own. Rates are those of one direction, which shares its wire with
    /// the acknowledgements, or requests, of the other.
    #[arg(long)]
    pub both_ways: bool,
    /// Regions on each side that the messages use in turn: for their payload, for receives, and as remote memory.
    #[arg(long, default_value_t = 1, value_parser = within(1..=REGIONS_MAX))]
    pub regions: u32,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions {
            completion_bytes: LinkOptions::GEN3_X16.completion_bytes,
            dword_padding: false,
            read_tail: false,
            read_credits: HOST_READ_TAGS_MAX,
            post_ns: 0,
            poll_ns: 0,
            both_ways: false,
            regions: 1,
        }
    }
}

fn parse_completion_bytes(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(bytes @ (64 | 128 | 256 | 512)) => Ok(bytes),
        _ => Err("allowed are 64, 128, 256 and 512".to_string()),
    }
}

impl Conditions {
    /// The host of the standard bench under these conditions.
    pub fn apply(&self, standard: HostOptions) -> HostOptions {
        let Conditions { completion_bytes, dword_padding, read_credits, .. } = *self;
        let link = LinkOptions { completion_bytes, pads_dwords: dword_padding, ..standard.link };
        let read_latency = match self.read_tail {
            true => Delay::Tail { usual_ps: 1000 * NS, probability: 0.01, max_ps: 5000 * NS },
            false => standard.read_latency,
        };
        HostOptions { link, read_latency, reads_max: read_credits as usize, ..standard }
    }

    /// Time of software for requests that it has posted, and completions that it has polled, in picoseconds.
    pub fn software_ps(&self, posted: usize, polled: usize) -> u64 {
        (posted as u64 * self.post_ns + polled as u64 * self.poll_ns) * NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_standard_bench() {
        assert_eq!(Conditions::default().apply(HostOptions::STANDARD), HostOptions::STANDARD);
        assert_eq!(Conditions::default().software_ps(10, 10), 0);
    }

    #[test]
    fn each_condition_changes_what_it_names() {
        let worse = Conditions {
            completion_bytes: 64,
            dword_padding: true,
            read_tail: true,
            read_credits: 32,
            post_ns: 50,
            poll_ns: 30,
            both_ways: true,
            regions: 16,
        };
        let host = worse.apply(HostOptions::STANDARD);
        assert_eq!((host.link.completion_bytes, host.link.pads_dwords, host.reads_max), (64, true, 32));
        assert_eq!(host.link.write_bytes, HostOptions::STANDARD.link.write_bytes);
        assert!(matches!(host.read_latency, Delay::Tail { .. }));
        assert_eq!(worse.software_ps(2, 3), 190_000);
    }

    #[test]
    fn completions_of_other_sizes_are_refused() {
        assert_eq!(parse_completion_bytes("128"), Ok(128));
        for text in ["0", "96", "1024", "many"] {
            assert!(parse_completion_bytes(text).is_err(), "{text}");
        }
    }
}
