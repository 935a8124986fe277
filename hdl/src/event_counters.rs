//! Event counters: the events of all parts of the card, each with the counter that registers name.
//!
//! ```text
//!  counts of each part ──┬──────────────────> Counters ──> value
//!                        └─> PulseSum ──────────^
//!                            (events that several parts have)
//! ```
//!
//! Latency 1 cycle more for an event that several parts have. Reset forgets those of its pulses that wait; it
//! does not clear the counts.
use rnic_blocks::pulse::PulseSum;
use rnic_complete::{CompleteCounts, Counters, INDEX_BITS};
use rnic_control::control::ControlCounts;
use rnic_dma::address_vector::AddressVectorCounts;
use rnic_host::host_reader::HostReadCounts;
use rnic_host::host_writer::HostWriteCounts;
use rnic_kernel::prelude::*;
use rnic_layout::registers::{COUNTERS, counter};
use rnic_requester::messages::RequesterCounts;
use rnic_responder::messages::ResponderCounts;

/// First counter after those of the packet path.
const FIRST_EVENT: usize = counter("unknown_qp");
const LINES: usize = COUNTERS.len() - FIRST_EVENT;

/// Input of a counter at [`Counters`].
const fn line(name: &str) -> usize {
    counter(name) - FIRST_EVENT
}

/// Counts the events of the card; see the module.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub struct EventCounters {
    /// Events of the requester.
    pub requester: Signal<In, RequesterCounts>,
    /// Events of the address vector stage.
    pub address_vector: Signal<In, AddressVectorCounts>,
    /// Events of the responder.
    pub responder: Signal<In, ResponderCounts>,
    /// Events of completions, events and interrupts.
    pub complete: Signal<In, CompleteCounts>,
    /// Events of the host reader.
    pub host_reader: Signal<In, HostReadCounts>,
    /// Events of the host writer.
    pub host_writer: Signal<In, HostWriteCounts>,
    /// Events of registers, doorbells and commands.
    pub control: Signal<In, ControlCounts>,
    /// Takes a snapshot in this cycle.
    pub latch: Signal<In, Bit>,
    /// The snapshot is not complete; registered.
    pub is_latching: Signal<Out, Bit>,
    /// Counter to read, from 0 for the first one after those of the packet path.
    pub index: Signal<In, Bits<INDEX_BITS>>,
    /// Its count in the last snapshot; registered.
    pub value: Signal<Out, Bits<64>>,

    counters: Counters<LINES>,
    sum_unknown_qp: PulseSum<2>,
    sum_qp_not_ready: PulseSum<2>,
    sum_transport_mismatch: PulseSum<2>,
    sum_partition_key: PulseSum<2>,
    sum_source_address: PulseSum<2>,
    sum_stale_dropped: PulseSum<4>,
    sum_work_refused: PulseSum<2>,
    sum_local_protection: PulseSum<2>,
}

impl Logic for EventCounters {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.counters.latch.next = self.latch.val();
        self.counters.index.next = self.index.val();
        self.value.next = self.counters.value.val();
        self.is_latching.next = self.counters.is_latching.val();
        let requester = self.requester.val();
        let address_vector = self.address_vector.val();
        let responder = self.responder.val();
        let complete = self.complete.val();
        let host_reader = self.host_reader.val();
        let host_writer = self.host_writer.val();
        let control = self.control.val();

        // Events that several parts have.
        self.sum_unknown_qp.lines[0].next = requester.unknown_qp;
        self.sum_unknown_qp.lines[1].next = responder.unknown_qp;
        self.counters.pulses[line("unknown_qp")].next = self.sum_unknown_qp.pulse.val();
        self.sum_qp_not_ready.lines[0].next = requester.qp_not_ready;
        self.sum_qp_not_ready.lines[1].next = responder.qp_not_ready;
        self.counters.pulses[line("qp_not_ready")].next = self.sum_qp_not_ready.pulse.val();
        self.sum_transport_mismatch.lines[0].next = requester.transport_mismatch;
        self.sum_transport_mismatch.lines[1].next = responder.transport_mismatch;
        self.counters.pulses[line("transport_mismatch")].next = self.sum_transport_mismatch.pulse.val();
        self.sum_partition_key.lines[0].next = requester.partition_key;
        self.sum_partition_key.lines[1].next = responder.partition_key;
        self.counters.pulses[line("partition_key")].next = self.sum_partition_key.pulse.val();
        self.sum_source_address.lines[0].next = requester.source_address;
        self.sum_source_address.lines[1].next = responder.source_address;
        self.counters.pulses[line("source_address")].next = self.sum_source_address.pulse.val();
        self.sum_stale_dropped.lines[0].next = requester.stale_dropped;
        self.sum_stale_dropped.lines[1].next = responder.stale_dropped;
        self.sum_stale_dropped.lines[2].next = address_vector.stale_dropped;
        self.sum_stale_dropped.lines[3].next = control.stale_dropped;
        self.counters.pulses[line("stale_dropped")].next = self.sum_stale_dropped.pulse.val();
        self.sum_work_refused.lines[0].next = requester.work_refused;
        self.sum_work_refused.lines[1].next = responder.work_refused;
        self.counters.pulses[line("work_refused")].next = self.sum_work_refused.pulse.val();
        self.sum_local_protection.lines[0].next = requester.local_protection;
        self.sum_local_protection.lines[1].next = responder.local_protection;
        self.counters.pulses[line("local_protection")].next = self.sum_local_protection.pulse.val();

        // Events that one part has.
        self.counters.pulses[line("duplicate_request")].next = responder.duplicate_request;
        self.counters.pulses[line("duplicate_dropped")].next = responder.duplicate_dropped;
        self.counters.pulses[line("request_gap")].next = responder.request_gap;
        self.counters.pulses[line("requests_after_failure")].next = responder.requests_after_failure;
        self.counters.pulses[line("share_exceeded")].next = responder.share_exceeded;
        self.counters.pulses[line("acknowledgements_sent")].next = responder.acknowledgements_sent;
        self.counters.pulses[line("nak_sequence_sent")].next = responder.nak_sequence_sent;
        self.counters.pulses[line("nak_invalid_request_sent")].next = responder.nak_invalid_request_sent;
        self.counters.pulses[line("nak_access_sent")].next = responder.nak_access_sent;
        self.counters.pulses[line("nak_operational_sent")].next = responder.nak_operational_sent;
        self.counters.pulses[line("nak_rnr_sent")].next = responder.nak_rnr_sent;
        self.counters.pulses[line("remote_protection")].next = responder.remote_protection;
        self.counters.pulses[line("acknowledgements_received")].next = requester.acknowledgements_received;
        self.counters.pulses[line("nak_received")].next = requester.nak_received;
        self.counters.pulses[line("nak_rnr_received")].next = requester.nak_rnr_received;
        self.counters.pulses[line("response_stale")].next = requester.response_stale;
        self.counters.pulses[line("response_never_sent")].next = requester.response_never_sent;
        self.counters.pulses[line("response_reserved")].next = requester.response_reserved;
        self.counters.pulses[line("response_unexpected")].next = requester.response_unexpected;
        self.counters.pulses[line("implied_nak")].next = requester.implied_nak;
        self.counters.pulses[line("timeout")].next = requester.timeout;
        self.counters.pulses[line("retry_exhausted")].next = requester.retry_exhausted;
        self.counters.pulses[line("rnr_retry_exceeded")].next = requester.rnr_retry_exceeded;
        self.counters.pulses[line("packets_retransmitted")].next = requester.packets_retransmitted;
        self.counters.pulses[line("messages_completed")].next = requester.messages_completed;
        self.counters.pulses[line("completions_written")].next = complete.completions_written;
        self.counters.pulses[line("completions_in_error")].next = complete.completions_in_error;
        self.counters.pulses[line("completion_queue_overrun")].next = complete.completion_queue_overrun;
        self.counters.pulses[line("events_written")].next = complete.events_written;
        self.counters.pulses[line("event_queue_overrun")].next = complete.event_queue_overrun;
        self.counters.pulses[line("interrupts_raised")].next = complete.interrupts_raised;
        self.counters.pulses[line("doorbell_foreign")].next = control.doorbell_foreign;
        self.counters.pulses[line("doorbell_unknown")].next = control.doorbell_unknown;
        self.counters.pulses[line("doorbell_torn")].next = control.doorbell_torn;
        self.counters.pulses[line("register_unmapped")].next = control.register_unmapped;
        self.counters.pulses[line("commands_executed")].next = control.commands_executed;
        self.counters.pulses[line("commands_refused")].next = control.commands_refused;
        self.counters.pulses[line("host_reads")].next = host_reader.host_reads;
        self.counters.pulses[line("host_read_errors")].next = host_reader.host_read_errors;
        self.counters.pulses[line("host_writes")].next = host_writer.host_writes;
        self.counters.pulses[line("host_write_errors")].next = host_writer.host_write_errors;

        // Those that the layout says are not counted.
        self.counters.pulses[line("queue_key")].next = false;
        self.counters.pulses[line("no_receive_wqe")].next = false;
        self.counters.pulses[line("unreliable_refused")].next = false;
        self.counters.pulses[line("congestion_notifications_sent")].next = false;
        self.counters.pulses[line("marked_received")].next = false;
        self.counters.pulses[line("context_misses")].next = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `update` says of each counter.
    #[test]
    fn the_counters_that_are_never_driven_are_those_that_say_so() {
        let source = include_str!("event_counters.rs");
        for counter in &COUNTERS[FIRST_EVENT..] {
            let input = format!(".pulses[line(\"{}\")].next = ", counter.name);
            let (_, driver) = source.split_once(&input).expect("every counter has a driver");
            assert_eq!(counter.is_counted, !driver.starts_with("false;"), "{}", counter.name);
        }
        assert!(COUNTERS[..FIRST_EVENT].iter().all(|counter| counter.is_counted));
    }
}
