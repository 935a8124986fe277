//! The judges: tests of whole cards, those that see most faults in least time first.

/// Width of the card of all judges: the narrow one is verilated and simulated faster.
pub const WIDTH_BITS: u32 = 64;

/// One test of a test program of `rnic-sim`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judge {
    /// Name in the tables.
    pub name: &'static str,
    /// Test program.
    pub program: &'static str,
    /// Test, without `_at_64_bits`.
    pub test: &'static str,
    /// What it does with the card.
    pub about: &'static str,
    /// Seeds that it runs, from the first one of the test on, if it is random.
    pub seeds: u32,
}

impl Judge {
    /// The same with more seeds, where one does not see all of its mutants.
    const fn with_seeds(self, seeds: u32) -> Judge {
        Judge { seeds, ..self }
    }

    /// Full name of the test.
    pub fn full_test(&self) -> String {
        format!("{}_at_{WIDTH_BITS}_bits", self.test)
    }
}

/// The judge of a name.
pub fn judge(name: &str) -> Option<&'static Judge> {
    JUDGES.iter().find(|judge| judge.name == name)
}

const fn judge_of(
    name: &'static str,
    program: &'static str,
    test: &'static str,
    about: &'static str,
) -> Judge {
    Judge { name, program, test, about, seeds: 1 }
}

/// All judges, in the order in which they see a mutant.
pub const JUDGES: &[Judge] = &[
    judge_of("message", "card", "one_message_arrives", "one message each way"),
    judge_of("answers", "refusals", "wrong_answers_are_refused", "invalid responses of a peer"),
    judge_of(
        "hosts",
        "refusals",
        "faults_of_the_host_end_what_they_must",
        "host memory that cannot be accessed",
    ),
    judge_of("keys", "card", "keys_end", "keys that are invalidated"),
    judge_of(
        "commands",
        "refusals",
        "wrong_doorbells_and_commands_are_refused",
        "invalid doorbells and commands",
    ),
    judge_of(
        "holds",
        "refusals",
        "what_must_wait_is_held_back",
        "fences, limits and answers that a peer holds back",
    ),
    judge_of(
        "silence",
        "refusals",
        "a_peer_that_never_answers_ends_its_queue_pair_alone",
        "peers that do not answer",
    ),
    judge_of(
        "interrupts",
        "refusals",
        "events_and_interrupts_come_when_due",
        "armed, masked and moderated events",
    ),
    judge_of(
        "rings",
        "refusals",
        "send_queues_are_served_however_they_are_filled",
        "bursts, unsignalled work, wrong lengths",
    ),
    judge_of(
        "slots",
        "refusals",
        "read_slots_are_shared_until_none_is_left",
        "READ slots that are used up and given back",
    ),
    judge_of("drain", "card", "send_queues_drain", "send queues that drain and resume"),
    judge_of("middle", "card", "messages_end_in_the_middle", "queue pairs that fail under load"),
    judge_of("endpoint", "refusals", "agrees_with_the_endpoint", "valid traffic with the reference endpoint"),
    judge_of("operations", "card", "random_operations_agree", "random operations against the model"),
    judge_of("frames", "refusals", "wrong_frames_are_refused", "invalid frames of a peer"),
    judge_of(
        "established",
        "refusals",
        "the_first_packet_in_rtr_is_an_event",
        "queue pairs in RTR whose peer sends already",
    ),
    judge_of(
        "flushed",
        "refusals",
        "no_data_comes_after_its_read_was_flushed",
        "READs that are flushed while their data goes into a slow host",
    ),
    judge_of(
        "given-back",
        "refusals",
        "nothing_is_sent_after_it_was_flushed",
        "SENDs and WRITEs that are flushed while their payload comes from a slow host",
    ),
    judge_of(
        "flood",
        "refusals",
        "a_flooded_queue_pair_takes_its_share_only",
        "more packets behind a slow host than can be parked",
    ),
    judge_of(
        "responses",
        "refusals",
        "a_host_that_takes_no_writes_leaves_room_for_responses",
        "more data of one READ than there is room for, while the host takes no writes",
    ),
    judge_of(
        "stuck",
        "refusals",
        "a_host_that_takes_no_writes_leaves_room_for_others",
        "more WRITEs than there is room for, while the host takes none",
    ),
    judge_of("shared", "card", "receives_are_shared", "shared receive queues"),
    judge_of("scattered", "card", "memory_may_lie_scattered", "memory without an IOMMU"),
    judge_of("traffic", "card", "objects_end_in_traffic", "objects that end while they are used")
        .with_seeds(2),
    judge_of(
        "numbers",
        "refusals",
        "numbers_are_kept_until_their_object_has_ended",
        "numbers of objects that the card has not destroyed",
    ),
    judge_of("answering", "replay", "the_card_answers_linux_as_linux_does", "captured requests of Linux"),
    judge_of("asking", "replay", "the_card_asks_linux_as_linux_does", "captured responses of Linux"),
    judge_of("endurance", "card", "both_directions_never_lock", "READ and WRITE both ways without a pause"),
    judge_of(
        "losses",
        "refusals",
        "what_is_lost_is_sent_again",
        "a wire that loses what the next packet shows",
    ),
    judge_of("duplicates", "refusals", "duplicates_are_answered", "READs and atomics that are asked again"),
    judge_of("trace-a", "refusals", "trace_a_no_loss", "trace A of protocol 3.12"),
    judge_of("trace-b", "refusals", "trace_b_request_lost", "trace B: a request is lost"),
    judge_of("trace-c", "refusals", "trace_c_response_lost", "trace C: a response is lost"),
    judge_of("trace-d", "refusals", "trace_d_ack_overtakes", "trace D: an ACK overtakes responses"),
    judge_of("trace-e", "refusals", "trace_e_receive_queue_empty", "trace E: a receive is missing"),
    judge_of("trace-f", "refusals", "trace_f_acks_lost", "trace F: the ACKs are lost"),
    judge_of("trace-g", "refusals", "trace_g_atomic_ack_lost", "trace G: the answer to an atomic is lost"),
    judge_of("trace-h", "refusals", "trace_h_wrong_key", "trace H: a key is wrong"),
    judge_of("trace-i", "refusals", "trace_i_region_ends", "trace I: a region ends while it is read"),
    judge_of("trace-j", "refusals", "trace_j_nak_lost", "trace J: a NAK is lost"),
    judge_of(
        "not-ready",
        "refusals",
        "only_the_last_packet_comes_again_after_an_rnr_nak",
        "receives that come late",
    ),
    judge_of(
        "unreadable",
        "refusals",
        "work_before_an_unreadable_payload_completes",
        "payload that cannot be read",
    ),
    judge_of("twofold", "refusals", "no_cause_hides_another", "two causes at once"),
    judge_of(
        "replies",
        "refusals",
        "a_nak_that_is_owed_is_said",
        "NAKs behind ACKs that wait for host writes",
    ),
    judge_of(
        "expiry",
        "refusals",
        "an_ack_at_an_expiry_comes_before_it_or_behind_it",
        "an ACK in each cycle around an expiry",
    ),
    judge_of(
        "chaos",
        "refusals",
        "everything_is_executed_once_whatever_the_wire_does",
        "wires that lose, double and swap frames, with timers",
    ),
    judge_of(
        "cold",
        "refusals",
        "a_cold_receive_queue_delays_no_other",
        "receive queues whose WQEs are not on the card",
    ),
    judge_of(
        "late-receives",
        "refusals",
        "late_receives_are_given_in_order",
        "receives that come while SENDs wait for them",
    ),
    judge_of(
        "room",
        "refusals",
        "room_that_is_left_comes_back",
        "the smallest WRITEs, which leave the buffer one right behind the other",
    ),
    judge_of("lives", "card", "numbers_are_reused_at_once", "queue pairs that are reset in full traffic"),
    judge_of(
        "runs",
        "protocol_runs",
        "the_card_does_what_the_model_does",
        "runs of the model of the protocol",
    ),
    judge_of("wires", "card", "wires_with_faults_change_no_result", "two cards on wires with faults")
        .with_seeds(2),
    judge_of(
        "smallest",
        "refusals",
        "the_smallest_frames_leave_room_for_others",
        "more of the smallest frames than are taken",
    ),
    judge_of(
        "hostile",
        "hostile",
        "mutated_frames_do_what_the_table_says",
        "mutated frames, beside the reference endpoint",
    ),
    judge_of(
        "malformed",
        "hostile",
        "malformed_queues_end_what_they_must",
        "malformed send and receive queues",
    ),
    judge_of(
        "crowd",
        "hostile",
        "a_thousand_peers_that_provoke_errors_leave_the_device_up",
        "all queue pairs fail at once",
    ),
    judge_of(
        "lost-responses",
        "card",
        "lost_responses_refuse_no_read",
        "READs and atomics of which the wire loses a response",
    ),
];
