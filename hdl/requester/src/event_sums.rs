//! EventSums: the events of the stages as events of the requester, for the counters of the card.
//!
//! ```text
//!  acknowledge, read_response, issue ──┬────────────────> counts
//!  parse_stale_dropped ────────────────┴──> PulseSum ───────^
//!                                           (events that two stages have)
//! ```
//!
//! Latency 1 cycle for an event that two stages have, else none.
//!
//! 1. Each event of a stage becomes one pulse of its counter, also when both stages have it in one cycle. Reset
//!    forgets those that wait.
use crate::acknowledge::AcknowledgeCounts;
use crate::issue::IssueCounts;
use crate::messages::RequesterCounts;
use crate::read_response::ReadResponseCounts;
use rnic_blocks::pulse::PulseSum;
use rnic_kernel::prelude::*;

/// Sums events; see the module.
#[clocked(reset = "forgets the pulses that wait")]
#[derive(Default, LogicBlock, Registers)]
pub struct EventSums {
    /// Events of acknowledge.
    pub acknowledge: Signal<In, AcknowledgeCounts>,
    /// Events of read_response.
    pub read_response: Signal<In, ReadResponseCounts>,
    /// Events of issue.
    pub issue: Signal<In, IssueCounts>,
    /// From wqe_parse: a slot of an older generation was dropped.
    pub parse_stale_dropped: Signal<In, Bit>,
    /// Events of the requester; functions of registers, and of the inputs where one stage has the event.
    pub counts: Signal<Out, RequesterCounts>,

    stale: PulseSum<2>,
    response_stale: PulseSum<2>,
    response_unexpected: PulseSum<2>,
    local_protection: PulseSum<2>,
}

impl Logic for EventSums {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let acknowledge = self.acknowledge.val();
        let read_response = self.read_response.val();
        let issue = self.issue.val();
        self.response_stale.lines[0].next = acknowledge.response_stale;
        self.response_stale.lines[1].next = read_response.response_stale;
        self.response_unexpected.lines[0].next = acknowledge.response_unexpected;
        self.response_unexpected.lines[1].next = read_response.response_unexpected;
        self.local_protection.lines[0].next = issue.local_protection;
        self.local_protection.lines[1].next = read_response.local_protection;
        self.stale.lines[0].next = self.parse_stale_dropped.val();
        self.stale.lines[1].next = acknowledge.stale_dropped;
        self.counts.next = RequesterCounts {
            unknown_qp: acknowledge.unknown_qp,
            qp_not_ready: acknowledge.qp_not_ready,
            transport_mismatch: acknowledge.transport_mismatch,
            partition_key: acknowledge.partition_key,
            source_address: acknowledge.source_address,
            acknowledgements_received: acknowledge.acknowledgements_received,
            nak_received: acknowledge.nak_received,
            nak_rnr_received: acknowledge.nak_rnr_received,
            response_stale: self.response_stale.pulse.val(),
            response_never_sent: acknowledge.response_never_sent,
            response_reserved: acknowledge.response_reserved,
            response_unexpected: self.response_unexpected.pulse.val(),
            implied_nak: read_response.implied_nak,
            timeout: acknowledge.timeout,
            retry_exhausted: acknowledge.retry_exhausted,
            rnr_retry_exceeded: acknowledge.rnr_retry_exceeded,
            packets_retransmitted: issue.packets_retransmitted,
            messages_completed: acknowledge.messages_completed,
            work_refused: issue.work_refused,
            local_protection: self.local_protection.pulse.val(),
            stale_dropped: self.stale.pulse.val(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::Bench;

    /// An event as a stage reports it, and as the requester does.
    type Event = (fn(&mut EventSums), fn(&mut RequesterCounts));

    const ONE_STAGE: &[Event] = &[
        (|sums| sums.acknowledge.next.unknown_qp = true, |counts| counts.unknown_qp = true),
        (|sums| sums.acknowledge.next.qp_not_ready = true, |counts| counts.qp_not_ready = true),
        (|sums| sums.acknowledge.next.transport_mismatch = true, |counts| counts.transport_mismatch = true),
        (|sums| sums.acknowledge.next.partition_key = true, |counts| counts.partition_key = true),
        (|sums| sums.acknowledge.next.source_address = true, |counts| counts.source_address = true),
        (
            |sums| sums.acknowledge.next.acknowledgements_received = true,
            |counts| counts.acknowledgements_received = true,
        ),
        (|sums| sums.acknowledge.next.nak_received = true, |counts| counts.nak_received = true),
        (|sums| sums.acknowledge.next.nak_rnr_received = true, |counts| counts.nak_rnr_received = true),
        (|sums| sums.acknowledge.next.response_never_sent = true, |counts| counts.response_never_sent = true),
        (|sums| sums.acknowledge.next.response_reserved = true, |counts| counts.response_reserved = true),
        (|sums| sums.read_response.next.implied_nak = true, |counts| counts.implied_nak = true),
        (|sums| sums.acknowledge.next.timeout = true, |counts| counts.timeout = true),
        (|sums| sums.acknowledge.next.retry_exhausted = true, |counts| counts.retry_exhausted = true),
        (|sums| sums.acknowledge.next.rnr_retry_exceeded = true, |counts| counts.rnr_retry_exceeded = true),
        (|sums| sums.acknowledge.next.messages_completed = true, |counts| counts.messages_completed = true),
        (|sums| sums.issue.next.packets_retransmitted = true, |counts| counts.packets_retransmitted = true),
        (|sums| sums.issue.next.work_refused = true, |counts| counts.work_refused = true),
    ];

    /// The second stage that has the event, and the event.
    const TWO_STAGES: &[(fn(&mut EventSums), Event)] = &[
        (
            |sums| sums.read_response.next.response_stale = true,
            (|sums| sums.acknowledge.next.response_stale = true, |counts| counts.response_stale = true),
        ),
        (
            |sums| sums.read_response.next.response_unexpected = true,
            (
                |sums| sums.acknowledge.next.response_unexpected = true,
                |counts| counts.response_unexpected = true,
            ),
        ),
        (
            |sums| sums.read_response.next.local_protection = true,
            (|sums| sums.issue.next.local_protection = true, |counts| counts.local_protection = true),
        ),
        (
            |sums| sums.parse_stale_dropped.next = true,
            (|sums| sums.acknowledge.next.stale_dropped = true, |counts| counts.stale_dropped = true),
        ),
    ];

    /// Lets the events happen in one cycle; gives the counts of that cycle and of those after it.
    fn pulses_of(events: &[fn(&mut EventSums)]) -> Vec<RequesterCounts> {
        let mut bench = Bench::clocked(EventSums::default(), |block| &mut block.clock).in_lock_step();
        bench.tick();
        events.iter().for_each(|event| event(&mut bench.block));
        (0..4)
            .map(|_| {
                bench.settle();
                let counts = bench.block.counts.val();
                bench.tick();
                bench.block.acknowledge.next = Default::default();
                bench.block.read_response.next = Default::default();
                bench.block.issue.next = Default::default();
                bench.block.parse_stale_dropped.next = false;
                counts
            })
            .collect()
    }

    fn expected(count: fn(&mut RequesterCounts)) -> RequesterCounts {
        let mut counts = RequesterCounts::default();
        count(&mut counts);
        counts
    }

    #[test]
    fn an_event_of_one_stage_is_counted_at_once() {
        let none = RequesterCounts::default();
        for &(event, count) in ONE_STAGE {
            assert_eq!(pulses_of(&[event]), [expected(count), none, none, none]);
        }
    }

    #[test]
    fn an_event_of_two_stages_is_counted_for_each_of_them() {
        let none = RequesterCounts::default();
        for &(second, (first, count)) in TWO_STAGES {
            let one = expected(count);
            assert_eq!(pulses_of(&[first]), [none, one, none, none]);
            assert_eq!(pulses_of(&[second]), [none, one, none, none]);
            assert_eq!(pulses_of(&[first, second]), [none, one, one, none]);
        }
    }
}
