//! Conservation: each frame from the wire increments exactly one counter (design decision 13), and all counters agree with what
//! was observed at the ports.
use super::{Log, Rule};
use crate::host::Traffic;
use crate::wire::mac::Sent;
use rnic_layout::registers::{COUNTERS, DROP_COUNTERS, counter};

/// Counts of what was observed at the ports of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Frames from the wire.
    pub received: Sent,
    /// Frames to the wire.
    pub sent: Sent,
    /// Requests and bytes across the host boundary.
    pub traffic: Traffic,
}

/// Checks a snapshot of all counters, in the order of their registers, against the observed counts. `has_host` means that the
/// card counts its host requests, too.
pub fn check(log: &mut Log, time_ps: u64, counters: &[u64], seen: &Seen, has_host: bool) {
    assert_eq!(counters.len(), COUNTERS.len(), "a snapshot has all counters");
    let value = |name| counters[counter(name)];
    let drops: u64 = counters[..DROP_COUNTERS].iter().sum();
    let accepted = ["requests_received", "responses_received", "congestion_notifications_received"];
    let accounted = drops + accepted.map(value).iter().sum::<u64>();
    let mut compare = |what: &str, counted: u64, expected: u64| {
        if counted != expected {
            log.report(time_ps, Rule::Counters, || {
                format!("{what}: the card counts {counted}, not {expected}")
            });
        }
    };
    compare("frames_received", value("frames_received"), seen.received.frames);
    compare("bytes_received", value("bytes_received"), seen.received.bytes);
    compare("drops and packets received", accounted, seen.received.frames);
    compare("frames_sent", value("frames_sent"), seen.sent.frames);
    compare("bytes_sent", value("bytes_sent"), seen.sent.bytes);
    if has_host {
        compare("host_reads", value("host_reads"), seen.traffic.reads);
        compare("host_writes", value("host_writes"), seen.traffic.writes);
        compare("interrupts_raised", value("interrupts_raised"), seen.traffic.interrupts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_that_is_off_by_one_is_seen() {
        let seen = Seen {
            received: Sent { frames: 12, bytes: 900 },
            sent: Sent { frames: 3, bytes: 200 },
            traffic: Traffic { reads: 4, writes: 5, interrupts: 6, ..Traffic::default() },
        };
        let mut good = vec![0; COUNTERS.len()];
        for (name, value) in [
            ("frames_received", 12),
            ("bytes_received", 900),
            ("icrc", 2),
            ("buffer_full", 1),
            ("requests_received", 4),
            ("responses_received", 4),
            ("congestion_notifications_received", 1),
            ("frames_sent", 3),
            ("bytes_sent", 200),
            ("host_reads", 4),
            ("host_writes", 5),
            ("interrupts_raised", 6),
        ] {
            good[counter(name)] = value;
        }
        let violations = |counters: &[u64], has_host| {
            let mut log = Log::new("card0");
            check(&mut log, 0, counters, &seen, has_host);
            log.take().len()
        };
        assert_eq!(violations(&good, true), 0);
        for name in ["mac_error", "requests_received", "frames_received", "bytes_sent", "host_reads"] {
            let mut wrong = good.clone();
            wrong[counter(name)] += 1;
            assert_eq!(violations(&wrong, true), 1, "{name}");
            assert_eq!(violations(&wrong, false), usize::from(name != "host_reads"), "{name}");
        }
    }
}
