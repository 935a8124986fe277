//! Conservation: each frame from the wire increments exactly one counter (design decision 13), and all counters agree with what
//! was observed at the ports.
use super::{Log, Rule};
use crate::host::Traffic;
use crate::wire::mac::Sent;
use rnic_layout::limits::FRAME_BYTES_MAX;
use rnic_layout::registers::{COUNTERS, DROP_COUNTERS, counter};
use rnic_layout::wire::DropReason;

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

/// Frames at the ports of a card that it has not counted, since it was reset while they were under way. Of the bytes to the wire it may
/// have counted more than the wire has seen, so they wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uncounted {
    received: Sent,
    sent: Sent,
}

impl Uncounted {
    /// Takes these frames away from what was observed.
    pub fn leave_out(&self, seen: &Seen) -> Seen {
        let less = |all: Sent, part: Sent| Sent {
            frames: all.frames.wrapping_sub(part.frames),
            bytes: all.bytes.wrapping_sub(part.bytes),
        };
        Seen {
            received: less(seen.received, self.received),
            sent: less(seen.sent, self.sent),
            traffic: seen.traffic,
        }
    }

    /// Adds what a snapshot of a card at rest lacks of the observed counts, if it is no more than one reset explains: of the frames from
    /// the wire those that came since `since`, when the reset began, or later; and of those to the wire one that was cut off.
    pub fn add(&mut self, log: &mut Log, time_ps: u64, counters: &[u64], seen: &Seen, since: &Seen) {
        let value = |name| counters[counter(name)];
        let expected = self.leave_out(seen);
        let missing = |name, expected: u64| expected.wrapping_sub(value(name));
        let received = Sent {
            frames: missing("frames_received", expected.received.frames),
            bytes: missing("bytes_received", expected.received.bytes),
        };
        let sent = Sent {
            frames: missing("frames_sent", expected.sent.frames),
            bytes: missing("bytes_sent", expected.sent.bytes),
        };
        let came = seen.received.frames - since.received.frames;
        let came_bytes = seen.received.bytes - since.received.bytes;
        let is_one_frame = (sent.bytes as i64).unsigned_abs() <= FRAME_BYTES_MAX as u64;
        if received.frames > came || received.bytes > came_bytes || sent.frames > 1 || !is_one_frame {
            log.report(time_ps, Rule::Counters, || {
                format!("a reset explains no such difference: {received:?} of {came} frames, {sent:?}")
            });
        }
        for (all, part) in [(&mut self.received, received), (&mut self.sent, sent)] {
            all.frames = all.frames.wrapping_add(part.frames);
            all.bytes = all.bytes.wrapping_add(part.bytes);
        }
    }
}

/// Returns how many good frames a card has dropped for lack of room, at most, by a snapshot of all counters. What the crossing to the
/// core has no room for is cut off, and counts as an error of the MAC as does a frame that arrives damaged (design decision 3).
pub fn dropped_for_room(counters: &[u64]) -> u64 {
    let [full, share] = DropReason::WITHOUT_ROOM;
    [DropReason::MacError, full, share].map(|reason| counters[counter(reason.name())]).iter().sum()
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

    #[test]
    fn frames_without_room_are_those_of_three_counters() {
        for (index, one) in COUNTERS.iter().enumerate() {
            let mut counters = vec![0; COUNTERS.len()];
            counters[index] = 7;
            let counts = ["mac_error", "buffer_full", "buffer_share"].contains(&one.name);
            assert_eq!(dropped_for_room(&counters), if counts { 7 } else { 0 }, "{}", one.name);
        }
    }

    #[test]
    fn a_reset_explains_what_came_meanwhile_and_one_frame_to_the_wire() {
        let seen = |received, bytes_received, sent, bytes_sent| Seen {
            received: Sent { frames: received, bytes: bytes_received },
            sent: Sent { frames: sent, bytes: bytes_sent },
            ..Seen::default()
        };
        let since = seen(10, 1000, 6, 500);
        // At the ports, and what the card has counted of it.
        for (at_ports, counted, is_explained) in [
            (seen(10, 1000, 6, 500), seen(10, 1000, 6, 500), true),
            (seen(13, 1200, 7, 501), seen(10, 1000, 6, 500), true),
            (seen(13, 1200, 7, 501), seen(11, 1060, 6, 564), true),
            (seen(13, 1200, 7, 501), seen(9, 1000, 6, 500), false),
            (seen(13, 1200, 7, 501), seen(10, 999, 6, 500), false),
            (seen(13, 1200, 7, 501), seen(14, 1200, 7, 501), false),
            (seen(10, 1000, 8, 502), seen(10, 1000, 6, 500), false),
            (seen(10, 1000, 6, 500), seen(10, 1000, 7, 500), false),
            (seen(10, 1000, 7, 501 + FRAME_BYTES_MAX as u64), seen(10, 1000, 6, 500), false),
        ] {
            let mut counters = vec![0; COUNTERS.len()];
            counters[counter("frames_received")] = counted.received.frames;
            counters[counter("bytes_received")] = counted.received.bytes;
            counters[counter("requests_received")] = counted.received.frames;
            counters[counter("frames_sent")] = counted.sent.frames;
            counters[counter("bytes_sent")] = counted.sent.bytes;
            let mut log = Log::new("card0");
            let mut uncounted = Uncounted::default();
            uncounted.add(&mut log, 0, &counters, &at_ports, &since);
            assert_eq!(log.take().is_empty(), is_explained, "{at_ports:?} {counted:?}");
            check(&mut log, 0, &counters, &uncounted.leave_out(&at_ports), true);
            assert!(log.take().is_empty(), "what was told once is not told again");
        }
    }
}
