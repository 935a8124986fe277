//! Faults of the card, one in each stage at least.
//!
//! Two guards have no fault here, since each has another before it, so that a fault of one alone changes nothing outside of its
//! block: the count of host writes that `ack` waits for, as `place` passes nothing on before its writes are done; and the
//! generation that `address_vector` compares, as a queue pair is reset or destroyed only when its packets have left. The tests
//! of the blocks see both.
use crate::{Fault, Kind, Place, Site};

/// A name or an expression.
pub(crate) type Text = &'static str;
/// A module, a signal or a text of it, and what its expression becomes.
pub(crate) type Edit = (Text, Text, Text);

/// A fault of what a wire or output of a module is assigned to.
pub(crate) const fn signal(
    name: Text,
    kind: Kind,
    (module, signal, becomes): Edit,
    means: Text,
    judge: Text,
) -> Fault {
    Fault { name, kind, place: Place::Module { module, site: Site::Signal(signal), becomes }, means, judge }
}

/// A fault of an expression that is marked in a text of a module.
const fn text(name: Text, kind: Kind, (module, text, becomes): Edit, means: Text, judge: Text) -> Fault {
    Fault { name, kind, place: Place::Module { module, site: Site::Text(text), becomes }, means, judge }
}

/// The faults. The number of a fault is its place in this list, from 1.
pub const FAULTS: &[Fault] = &[
    // Receive path.
    signal(
        "foreign-mac-accepted",
        Kind::Lost,
        ("parse", "is_ours", "1'b1"),
        "frames for other stations are accepted",
        "frames",
    ),
    signal(
        "udp-length-not-checked",
        Kind::Lost,
        ("parse", "transport_faults_udp_length", "1'b0"),
        "the UDP length is not compared with the IP length",
        "frames",
    ),
    signal(
        "ip-checksum-not-checked",
        Kind::Lost,
        ("parse", "first_fault_ip_checksum", "1'b0"),
        "a wrong IPv4 checksum is not seen",
        "frames",
    ),
    signal(
        "bth-version-not-checked",
        Kind::Lost,
        ("parse", "transport_faults_bth_version", "1'b0"),
        "another version of the BTH is not seen",
        "frames",
    ),
    signal(
        "ip-length-not-checked",
        Kind::Lost,
        ("measure", "ip_length", "1'b0"),
        "a frame that is shorter than its IP length is accepted",
        "frames",
    ),
    signal(
        "icrc-not-checked",
        Kind::Lost,
        ("icrc_check", "verdict_ok", "1'b1"),
        "a wrong ICRC is not seen",
        "frames",
    ),
    signal(
        "late-drops-lost",
        Kind::Lost,
        ("dispatch", "late", "1'b0"),
        "frames with a fault behind the ICRC are accepted",
        "frames",
    ),
    signal(
        "last-beat-one-late",
        Kind::OffByOne,
        ("request_buffer", "is_last", "reading_last_byte <= BEAT_BYTES"),
        "a payload of one byte more than whole beats loses a beat",
        "endpoint",
    ),
    signal(
        "mac-error-lost",
        Kind::Lost,
        ("frame_ending", "error", "closes"),
        "a frame that the MAC marks as bad is taken as good",
        "frames",
    ),
    // Responder.
    signal(
        "packet-length-not-checked",
        Kind::Lost,
        ("admit", "fits_has_room", "1'b1"),
        "packets in the middle of a message may be short",
        "frames",
    ),
    signal(
        "payload-one-over-pmtu",
        Kind::OffByOne,
        ("admit", "lengths_of_too_long", "lengths_of_payload > (lengths_of_pmtu + 14'h1)"),
        "a payload of one byte more than the PMTU is accepted",
        "frames",
    ),
    signal(
        "partition-not-checked",
        Kind::Lost,
        ("admit", "identity_of_partition_matches", "1'b1"),
        "packets of other partitions are accepted",
        "frames",
    ),
    signal(
        "source-not-checked",
        Kind::Lost,
        ("admit", "identity_of_address_matches", "1'b1"),
        "packets of other sources are accepted",
        "frames",
    ),
    signal(
        "responder-psn-without-wrap",
        Kind::WrongWidth,
        (
            "admit",
            "findings_of_psn_check",
            "(token_psn < records_read_data_expected_psn) ? PsnCheck_Duplicate : \
             (|check_from_expected) ? PsnCheck_Gap : PsnCheck_Expected",
        ),
        "a request behind the wrap of the PSN is a duplicate",
        "frames",
    ),
    signal(
        "msn-one-ahead",
        Kind::OffByOne,
        ("admit", "record_after_msn", "@ + 24'h1"),
        "answers carry the MSN of one message more",
        "answering",
    ),
    signal(
        "reads-not-limited",
        Kind::Lost,
        ("admit", "findings_of_has_slot", "1'b1"),
        "more READs are accepted than were agreed",
        "frames",
    ),
    text(
        "responses-without-share",
        Kind::Lost,
        ("dispatch", "[[responses_exceed]] : requests_exceed", "1'b0"),
        "the responses to one queue pair are kept until their buffer is full",
        "responses",
    ),
    signal(
        "established-again",
        Kind::Lost,
        ("admit", "record_after_is_established", "1'b0"),
        "every packet in RTR raises the event of the first",
        "established",
    ),
    text(
        "share-without-bound",
        Kind::Lost,
        ("share", ".write_data([[(|last_held) && last_held >= free]])", "1'b0"),
        "the packets of one ring are parked until no entry is left",
        "flood",
    ),
    text(
        "share-of-room-not-compared",
        Kind::Lost,
        ("entry_share", "packets_exceeds || [[room_exceeds]] || is_clearing", "1'b0"),
        "the packets of one queue pair are kept until the receive buffer is full",
        "flood",
    ),
    text(
        "share-of-room-kept",
        Kind::Lost,
        ("entry_share", ".leaves([[releases]])", "1'b0"),
        "room that a queue pair has given back counts as held",
        "stuck",
    ),
    text(
        "share-of-packets-kept",
        Kind::Lost,
        ("entry_share", ".leaves([[takes]])", "1'b0"),
        "requests that the responder has taken count as held",
        "stuck",
    ),
    signal(
        "srq-limit-late",
        Kind::Late,
        ("posted_wqes", "is_below", "!has_posted"),
        "the event of the SRQ limit comes when the SRQ is empty",
        "shared",
    ),
    signal(
        "receive-overrun-not-seen",
        Kind::Lost,
        ("scatter", "is_short", "1'b0"),
        "a SEND that exceeds its receive is executed",
        "frames",
    ),
    signal(
        "receive-address-not-advanced",
        Kind::WrongField,
        ("scatter", "sge_after_address_3", "@ - {51'h0, parts_first}"),
        "later packets of a SEND overwrite the first",
        "endpoint",
    ),
    signal(
        "receive-opcodes-swapped",
        Kind::Swapped,
        (
            "resolve",
            "cqe_of_opcode",
            "(@ == CompletionOpcode_Receive) ? CompletionOpcode_ReceiveWrite : CompletionOpcode_Receive",
        ),
        "CQEs of SEND and of WRITE with immediate data are confused",
        "endpoint",
    ),
    signal(
        "solicited-lost",
        Kind::Lost,
        ("resolve", "cqe_of_solicited", "1'b0"),
        "a solicited completion raises no solicited event",
        "operations",
    ),
    signal(
        "refused-invalidation-ignored",
        Kind::Lost,
        ("resolve", "outcome_of_is_kept_out", "@ && outcome_of_refused"),
        "a SEND with Invalidate of a key that stays gets no answer",
        "frames",
    ),
    signal(
        "read-end-lost",
        Kind::Lost,
        ("ack", "closes_2", "1'b0"),
        "the last response of a READ is not noted, so no ACK may leave any more",
        "endpoint",
    ),
    signal(
        "failed-write-ends-no-read",
        Kind::Lost,
        ("ack", "ends", "1'b0"),
        "the READ responder is not told that a write behind a READ has failed, so it says no NAK in place of its responses",
        "hosts",
    ),
    signal(
        "ack-not-counted",
        Kind::Lost,
        ("ack", "counts_of_acknowledgements_sent", "1'b0"),
        "the counter of sent ACKs stands still",
        "frames",
    ),
    signal(
        "atomic-lock-not-awaited",
        Kind::NoWait,
        ("atomics", "starts", "tries"),
        "two atomics on one word overlap",
        "endpoint",
    ),
    signal(
        "compare-always-swaps",
        Kind::Lost,
        ("atomics", "written_of_has_write", "1'b1"),
        "COMPARE_SWAP writes whatever it finds",
        "endpoint",
    ),
    signal(
        "read-access-not-checked",
        Kind::Lost,
        ("response_sender", "is_allowed", "1'b1"),
        "READs are answered whatever their key is",
        "traffic",
    ),
    signal(
        "read-end-one-late",
        Kind::OffByOne,
        ("turn", "fits", "bytes_left < {19'h0, packet_bytes}"),
        "a READ of whole packets gets a response too many",
        "endpoint",
    ),
    signal(
        "replay-serves-nothing",
        Kind::Late,
        ("turn", "ends_answer_is_oldest", "1'b0"),
        "a READ that a replay completes counts as in flight until its first answer ends",
        "lost-responses",
    ),
    signal(
        "duplicate-acknowledges-a-read",
        Kind::WrongField,
        ("admit", "records_read_data_read_psns", "24'h0"),
        "the ACK of a duplicate WRITE names the READ or atomic behind it",
        "duplicates",
    ),
    // Requester.
    signal(
        "scheduler-return-lost",
        Kind::Lost,
        ("ready_queue", "again_ready", "!sweep_is_sweeping"),
        "a queue pair that returns in the cycle of a doorbell is forgotten",
        "rings",
    ),
    signal(
        "ring-end-one-late",
        Kind::OffByOne,
        ("wqe_fetch", "plan_burst_slots_to_end", "@ + 16'h1"),
        "a burst of WQEs reads beyond the end of the ring",
        "rings",
    ),
    signal(
        "send-overrun-not-seen",
        Kind::Lost,
        ("wqe_fetch", "plan_burst_is_overrun", "1'b0"),
        "a doorbell that is too far ahead goes unnoticed",
        "commands",
    ),
    signal(
        "local-invalidate-no-wait",
        Kind::NoWait,
        ("wqe_parse", "waits_for_all_is_early", "1'b0"),
        "LOCAL_INVALIDATE is executed while messages before it are in flight",
        "holds",
    ),
    signal(
        "reads-not-awaited",
        Kind::NoWait,
        ("wqe_parse", "decide_awaits_reads", "1'b0"),
        "neither a fence nor the limit of READs in flight holds a WQE",
        "holds",
    ),
    signal(
        "sge-sum-not-checked",
        Kind::Lost,
        ("wqe_check", "status_of_differs", "1'b0"),
        "a WQE whose SGEs do not add up to its length is sent",
        "rings",
    ),
    signal(
        "wqe-length-not-checked",
        Kind::Lost,
        ("wqe_check", "is_too_long", "1'b0"),
        "a message may be longer than 2 GiB",
        "rings",
    ),
    signal(
        "ack-request-lost",
        Kind::Lost,
        ("wqe_check", "ack_request", "1'b0"),
        "no packet asks for an acknowledgement",
        "holds",
    ),
    signal(
        "rest-without-turn",
        Kind::Lost,
        ("segment", "waits", "1'b0"),
        "what is left of a long message never gets a turn",
        "endpoint",
    ),
    signal(
        "sge-of-list-not-left",
        Kind::Lost,
        ("segment", "walks", "1'b0"),
        "an SGE of a list that a packet uses up is used again",
        "endpoint",
    ),
    signal(
        "invalidate-sent-as-plain",
        Kind::WrongField,
        ("segment", "opcode_of_message_opcode", "opcode_of_plain_opcode"),
        "SEND with Invalidate leaves as SEND",
        "endpoint",
    ),
    signal(
        "local-access-not-checked",
        Kind::Lost,
        ("issue", "outcome_of_is_protected", "1'b0"),
        "payload is read whatever its lkey is",
        "operations",
    ),
    text(
        "issued-psn-one-short",
        Kind::OffByOne,
        ("issue", "record_after_is_new ? [[record_after_after]] : record_after_unsent_psn", "@ - 24'h1"),
        "the last packet that was sent counts as never sent",
        "message",
    ),
    signal(
        "requester-psn-without-wrap",
        Kind::WrongWidth,
        (
            "acknowledge",
            "check_of_ahead",
            "(arrival_psn < progresses_read_data_retired_una_psn) ? 24'h800000 : @",
        ),
        "a response behind the wrap of the PSN is stale",
        "endpoint",
    ),
    signal(
        "unsignalled-success-completes",
        Kind::Lost,
        ("acknowledge", "writes_cqe_reports", "writes_cqe_is_error || writes_cqe_is_success"),
        "an unsignalled WQE that succeeds writes a CQE",
        "operations",
    ),
    signal(
        "atomic-opcodes-swapped",
        Kind::Swapped,
        (
            "acknowledge",
            "cqe_of_opcode",
            "(@ == CompletionOpcode_CompareSwap) ? CompletionOpcode_FetchAdd : \
             (@ == CompletionOpcode_FetchAdd) ? CompletionOpcode_CompareSwap : @",
        ),
        "CQEs of the two atomics are confused",
        "endpoint",
    ),
    signal(
        "one-more-acknowledged",
        Kind::OffByOne,
        ("acknowledge", "after_acknowledgement_acknowledged", "@ + 24'h1"),
        "a response acknowledges the packet after those that it answers",
        "answers",
    ),
    signal(
        "read-flushed-at-once",
        Kind::NoWait,
        ("acknowledge", "after_turn_awaits_last", "1'b0"),
        "a READ in error completes while its data is on its way to host memory",
        "flushed",
    ),
    signal(
        "send-flushed-at-once",
        Kind::NoWait,
        ("acknowledge", "after_turn_awaits_mark", "1'b0"),
        "a SEND in error completes while its payload is on its way from host memory",
        "given-back",
    ),
    signal(
        "timeout-takes-no-retry",
        Kind::Lost,
        ("acknowledge", "after_timeout_retries_taken", "3'h0"),
        "a peer that does not answer is waited for again and again",
        "silence",
    ),
    signal(
        "timer-never-expires",
        Kind::Lost,
        ("ack_timer", "difference", "33'h0"),
        "a peer that does not answer is waited for without end",
        "silence",
    ),
    signal(
        "read-response-not-checked",
        Kind::Lost,
        ("read_response", "compare_is_right", "1'b1"),
        "READ responses of any opcode and length are placed",
        "answers",
    ),
    signal(
        "read-sges-confused",
        Kind::WrongField,
        ("read_response", "compare_second_address", "compare_first_address"),
        "the second SGE of a READ gets the address of the first",
        "endpoint",
    ),
    signal(
        "read-data-not-protected",
        Kind::Lost,
        ("grant", "is_refused_value", "1'b0"),
        "READ data is placed whatever the lkey is",
        "holds",
    ),
    // Payload and frames.
    signal(
        "gather-error-sent",
        Kind::Lost,
        ("gather", "ending_of_fails", "1'b0"),
        "a packet whose payload could not be read is sent",
        "hosts",
    ),
    signal(
        "completion-before-payload",
        Kind::NoWait,
        ("place", "oldest", "Retirement_Retire"),
        "CQE and ACK do not wait for the payload to be visible",
        "operations",
    ),
    text(
        "place-failure-ignored",
        Kind::Lost,
        ("place", "cqe_after_status = ([[has_failed]] &&", "1'b0"),
        "a receive whose payload could not be written succeeds",
        "hosts",
    ),
    signal(
        "dscp-lost",
        Kind::WrongField,
        ("address_vector", "compose_traffic_class", "8'h0"),
        "all frames leave with DSCP 0",
        "frames",
    ),
    signal(
        "vlan-tag-lost",
        Kind::WrongField,
        ("address_vector", "compose_vlan_control", "16'h0"),
        "all tagged frames leave with VLAN 0",
        "frames",
    ),
    signal(
        "flow-label-lost",
        Kind::WrongField,
        ("address_vector", "compose_flow_label", "20'h0"),
        "all frames leave with flow label 0",
        "frames",
    ),
    signal(
        "payload-behind-dropped",
        Kind::NoWait,
        ("address_vector", "waits", "1'b0"),
        "a frame begins while payload of a packet before it is dropped",
        "lives",
    ),
    signal(
        "ipv4-length-one-dword-more",
        Kind::OffByOne,
        ("headers", "ipv4_total_length", "@ + 16'h4"),
        "the IPv4 length is that of a longer frame",
        "endpoint",
    ),
    signal(
        "dont-fragment-lost",
        Kind::WrongField,
        ("headers", "ipv4_second", "@ & 32'hffff0000"),
        "frames may be fragmented",
        "frames",
    ),
    signal(
        "frame-starts-early",
        Kind::Early,
        ("frame_hold", "is_held", "1'b1"),
        "the MAC gets a frame before enough of it is there",
        "endurance",
    ),
    // Memory protection.
    signal(
        "region-rights-not-checked",
        Kind::Lost,
        ("region_table", "rights", "1'b1"),
        "regions may be read and written whatever their rights are",
        "frames",
    ),
    signal(
        "region-end-one-late",
        Kind::OffByOne,
        ("region_table", "end_value", "@ - 65'h1"),
        "an access may end one byte behind its region",
        "operations",
    ),
    // Completions and events.
    signal(
        "cq-overrun-not-seen",
        Kind::Lost,
        ("completion_queues", "position_of_is_full", "1'b0"),
        "CQEs that software has not read are overwritten",
        "interrupts",
    ),
    signal(
        "arm-after-cqe-lost",
        Kind::Lost,
        ("completion_queues", "decide_waits_after_read", "1'b0"),
        "arming a CQ with unread CQEs raises no event",
        "interrupts",
    ),
    signal(
        "moderation-count-ignored",
        Kind::Early,
        ("completion_queues", "decide_enough", "1'b1"),
        "each CQE raises an event",
        "interrupts",
    ),
    signal(
        "moderation-never-ends",
        Kind::Late,
        ("completion_queues", "decide_over", "1'b0"),
        "a moderated event waits for its count for ever",
        "interrupts",
    ),
    signal(
        "event-before-completion",
        Kind::NoWait,
        ("event_queues", "is_due", "1'b1"),
        "an EQE is written before its CQE is visible",
        "operations",
    ),
    signal(
        "interrupt-before-event",
        Kind::NoWait,
        ("event_queues", "is_announced", "1'b1"),
        "an interrupt comes before its EQE is visible",
        "interrupts",
    ),
    signal(
        "event-rearm-lost",
        Kind::Lost,
        ("event_queues", "decide_wants_revisit", "1'b0"),
        "arming an event queue with unread EQEs raises no interrupt",
        "interrupts",
    ),
    signal(
        "interrupt-mask-ignored",
        Kind::Lost,
        ("interrupts", "is_masked", "1'b0"),
        "masked vectors raise interrupts",
        "interrupts",
    ),
    signal(
        "interrupt-period-ignored",
        Kind::Early,
        ("interrupts", "is_soon", "1'b0"),
        "interrupts are not moderated",
        "interrupts",
    ),
    // Pools.
    text(
        "message-block-lost",
        Kind::Lost,
        ("outstanding", ".rx_valid([[freed_valid]] || sweep_is_sweeping)", "1'b0"),
        "a block of outstanding messages is not given back",
        "rings",
    ),
    text(
        "receive-line-lost",
        Kind::Lost,
        (
            "rq_prefetch",
            "lines_rx_valid = clears || grant_given_leaves_shared || ([[frees]] && freed[11])",
            "1'b0",
        ),
        "a line of receive WQEs that a queue pair leaves behind is not given back",
        "traffic",
    ),
    // Control.
    signal(
        "foreign-doorbell-acts",
        Kind::Lost,
        ("doorbells", "check_acts", "check_exists"),
        "a doorbell page reaches objects of others",
        "commands",
    ),
    signal(
        "torn-doorbell-not-counted",
        Kind::Lost,
        ("doorbells", "classify_tears", "1'b0"),
        "a write of a part of a doorbell is not counted",
        "commands",
    ),
    signal(
        "expected-state-ignored",
        Kind::Lost,
        ("alu", "mismatches", "1'b0"),
        "a queue pair is changed from a state that software did not expect",
        "commands",
    ),
    signal(
        "local-invalidate-ends-early",
        Kind::NoWait,
        ("invalidate", "may_go", "1'b1"),
        "LOCAL_INVALIDATE completes while accesses are in flight",
        "holds",
    ),
    signal(
        "other-domain-invalidated",
        Kind::Lost,
        ("invalidate", "is_of_domain", "1'b1"),
        "a queue pair invalidates keys of other protection domains",
        "holds",
    ),
    signal(
        "destroy-no-wait",
        Kind::NoWait,
        ("quiesce", "has_left", "1'b1"),
        "destroying an object does not wait for what uses it",
        "traffic",
    ),
    signal(
        "slots-not-returned",
        Kind::Lost,
        ("read_slots", "returned", "4'h0"),
        "READ slots of a queue pair that ends are lost",
        "slots",
    ),
    signal(
        "slots-in-two-shares",
        Kind::Lost,
        ("read_slots", "units", "4'h0"),
        "READ slots are handed out although another queue pair has them",
        "slots",
    ),
    signal(
        "setup-not-awaited",
        Kind::NoWait,
        ("setup_broadcast", "is_taken", "offers"),
        "a command ends before all stages know the new state",
        "operations",
    ),
    // Host.
    signal(
        "read-split-one-short",
        Kind::OffByOne,
        ("splitter", "ends", "left < {22'h0, room}"),
        "a read that ends at a boundary is followed by an empty one",
        "endpoint",
    ),
    signal(
        "host-read-error-lost",
        Kind::Lost,
        ("arrivals", "has_error", "1'b0"),
        "a read that the host refused delivers what is there",
        "hosts",
    ),
    signal(
        "host-write-failure-lost",
        Kind::Lost,
        ("host_writer", "is_failure", "1'b0"),
        "a write that the host refused counts as done",
        "hosts",
    ),
    signal(
        "large-pages-misread",
        Kind::WrongWidth,
        ("translate_10", "entry_of_shifted", "entry_of_by_fours"),
        "entries of pages of 256 MiB and more are not found",
        "scattered",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::judge;
    use crate::plant::plant;
    use crate::{SAMPLE, UNCHANGED, faults, faults_of_card};
    use rnic_hdl::config::Config;
    use rnic_hdl::generator;
    use std::collections::BTreeSet;

    fn generated(width_bits: u32) -> String {
        generator::generate(&Config::preset(width_bits).unwrap()).unwrap().verilog
    }

    #[test]
    fn every_fault_applies_to_the_narrow_and_to_the_wide_card() {
        for width_bits in [64, 512] {
            let verilog = generated(width_bits);
            let planted = plant(&verilog, faults_of_card())
                .unwrap_or_else(|error| panic!("{width_bits} bits: {error}"));
            for number in 1..=faults_of_card().count() {
                assert!(planted.contains(&format!("rnic_mutants::selected == {number} ")), "{number}");
            }
            assert!(!verilog.contains("rnic_mutants"), "the design knows nothing of its faults");
        }
    }

    #[test]
    fn names_are_words_joined_by_hyphens_and_occur_once() {
        let mut names = BTreeSet::from([UNCHANGED]);
        for fault in faults() {
            let is_word = |word: &str| {
                !word.is_empty()
                    && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            };
            assert!(fault.name.split('-').all(is_word), "{}", fault.name);
            assert!(names.insert(fault.name), "{} occurs twice", fault.name);
        }
    }

    #[test]
    fn the_sample_is_of_faults_in_several_stages() {
        let sample: Vec<_> = faults().filter(|fault| SAMPLE.contains(&fault.name)).collect();
        let stages: BTreeSet<_> = sample.iter().map(|fault| fault.stage()).collect();
        assert_eq!((sample.len(), stages.len()), (SAMPLE.len(), SAMPLE.len()));
    }

    #[test]
    fn the_faults_are_of_all_kinds_and_of_many_stages() {
        use Kind::{Early, Late, Lost, NoWait, OffByOne, Swapped, WrongField, WrongWidth};
        for kind in [OffByOne, Lost, Early, Late, Swapped, WrongWidth, WrongField, NoWait] {
            assert!(FAULTS.iter().filter(|fault| fault.kind == kind).count() > 1, "{}", kind.name());
        }
        let stages: BTreeSet<_> = FAULTS.iter().map(Fault::stage).collect();
        assert!(FAULTS.len() >= 40 && stages.len() >= 35, "{} in {}", FAULTS.len(), stages.len());
    }

    #[test]
    fn the_judge_of_each_fault_exists() {
        for fault in faults() {
            assert!(judge(fault.judge).is_some(), "{}: there is no judge `{}`", fault.name, fault.judge);
        }
    }
}
