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
];
