//! Each planted fault is found: the rules are not empty. Without it, the same runs break no rule, so that it is the fault that is
//! found.
use super::checker::{DONE, ENDS_WELL, breaks, comes_back, ends_well, holds, name};
use super::plan;
use rnic_protocol::{Fault, Kind, PsnSpace, RNR_RETRY_ENDLESS, Settings, Timer, Trace, Violation};

/// A wire with one fault of each kind and without order, and a timer without patience.
fn hostile(messages: &[(Kind, u8)]) -> Settings {
    Settings {
        capacity: 2,
        losses: 1,
        duplicates: 1,
        reorders: None,
        retries: 1,
        timer: Timer::Early,
        ..Settings::new(plan(6, messages))
    }
}

/// A fair wire that loses some frames.
fn fair(losses: u8, messages: &[(Kind, u8)]) -> Settings {
    Settings { losses, ..Settings::new(plan(6, messages)) }
}

const SENDS: [(Kind, u8); 3] = [(Kind::Send, 1), (Kind::Write, 2), (Kind::Send, 1)];
const READS: [(Kind, u8); 3] = [(Kind::Send, 1), (Kind::Read, 2), (Kind::Send, 1)];
const ATOMICS: [(Kind, u8); 3] = [(Kind::Atomic, 1), (Kind::Send, 1), (Kind::Atomic, 1)];

fn sends() -> Settings {
    hostile(&SENDS)
}

fn reads() -> Settings {
    Settings { duplicates: 0, ..hostile(&READS) }
}

fn atomics() -> Settings {
    hostile(&ATOMICS)
}

fn one_read() -> Settings {
    hostile(&[(Kind::Read, 4)])
}

/// One slot, on a wire without faults, and answers that wait: READs are replayed because the timer fires too early.
fn replays() -> Settings {
    let messages = [(Kind::Read, 2), (Kind::Read, 1)];
    Settings { slots: 1, losses: 0, duplicates: 0, answers_at_once: false, ..hostile(&messages) }
}

/// A requester that takes an ACK that names a READ or an atomic for its answer, on a wire without order.
fn acks_answer() -> Settings {
    let messages = [(Kind::Write, 1), (Kind::Read, 1), (Kind::Atomic, 1)];
    Settings { acks_answer: true, duplicates: 0, ..hostile(&messages) }
}

/// One slot, and a lost frame.
fn one_slot() -> Settings {
    Settings { slots: 1, ..fair(1, &ATOMICS) }
}

/// More packets than the window, and a wire that holds them all.
fn more_than_the_window() -> Settings {
    Settings {
        capacity: 6,
        losses: 0,
        duplicates: 0,
        timer: Timer::Patient,
        ..hostile(&[(Kind::Send, 3), (Kind::Send, 3)])
    }
}

/// No receive WQE is posted before the run.
fn late_receives() -> Settings {
    Settings { receives: 0, duplicates: 0, ..hostile(&[(Kind::WriteImm, 2), (Kind::Send, 1)]) }
}

/// More packets than there are PSNs, of two bits, and no loss.
fn more_than_the_psns() -> Settings {
    let sends = [(Kind::Send, 2), (Kind::Send, 2), (Kind::Send, 1)];
    let settings = Settings { losses: 0, timer: Timer::Patient, ..hostile(&sends) };
    Settings { space: PsnSpace { bits: 2 }, window: 2, ..settings }
}

/// A wire that keeps order, a requester that may not retry, and answers that wait.
fn no_retries() -> Settings {
    Settings { retries: 0, answers_at_once: false, ..fair(0, &READS) }
}

/// Plants a fault, which breaks a rule.
fn is_found(fault: Fault, settings: Settings, violation: Violation) {
    let settings = Settings { fault: Some(fault), ..settings };
    let actions = breaks(&settings, false, name(violation));
    assert!(!Trace::of(&settings, &actions).frames.is_empty());
}

/// Plants a fault, with which a run ends without all messages completed.
fn never_ends_well(fault: Fault, settings: Settings) {
    breaks(&Settings { fault: Some(fault), ..settings }, true, ENDS_WELL);
}

#[test]
fn without_a_fault_the_same_runs_break_no_rule() {
    holds("SENDs without a fault", &sends(), 139_383, &[DONE]);
    holds("READs without a fault", &reads(), 117_280, &[DONE]);
    holds("atomics without a fault", &atomics(), 113_242, &[DONE]);
    holds("one READ without a fault", &one_read(), 77_111, &[DONE]);
    holds("replays without a fault", &replays(), 754, &[DONE]);
    holds("ACKs that answer, without a fault", &acks_answer(), 21_817, &[DONE]);
    holds("more than the window, without a fault", &more_than_the_window(), 177_778, &[DONE]);
    holds("late receives without a fault", &late_receives(), 58_442, &[DONE]);
    holds("more than the PSNs, without a fault", &more_than_the_psns(), 331, &[DONE]);
}

#[test]
fn without_a_fault_the_same_runs_end_well() {
    ends_well("one loss without a fault", &fair(1, &ATOMICS), 147);
    ends_well("two losses without a fault", &fair(2, &SENDS), 628);
    ends_well("one slot without a fault", &one_slot(), 75);
    ends_well("no retries, without a fault", &no_retries(), 48);
}

#[test]
fn a_nak_for_each_packet_after_a_gap_is_found() {
    is_found(Fault::NakForEachPacket, sends(), Violation::Nak);
}

#[test]
fn a_duplicate_atomic_that_is_executed_is_found() {
    is_found(Fault::AtomicAgain, atomics(), Violation::Atomic);
}

#[test]
fn a_duplicate_write_that_is_executed_is_found() {
    is_found(Fault::DuplicateAgain, sends(), Violation::Delivery);
}

#[test]
fn a_packet_after_a_gap_that_is_executed_is_found() {
    is_found(Fault::GapAccepted, sends(), Violation::Delivery);
}

#[test]
fn an_ack_for_what_was_not_executed_is_found() {
    is_found(Fault::GapAcknowledged, sends(), Violation::Completion);
}

#[test]
fn an_rnr_nak_for_what_was_executed_is_found() {
    is_found(Fault::RnrAfterExecution, late_receives(), Violation::Delivery);
}

#[test]
fn a_replay_of_a_read_from_its_first_byte_is_found() {
    is_found(Fault::ReplayFromFirst, reads(), Violation::Data);
}

#[test]
fn a_read_that_starts_again_from_its_first_byte_is_found() {
    is_found(Fault::RestartFromFirst, reads(), Violation::Data);
}

#[test]
fn a_read_that_is_refused_for_a_replay_is_found() {
    is_found(Fault::ReplayTakesSlot, replays(), Violation::Error);
}

#[test]
fn an_atomic_whose_result_is_not_saved_is_found() {
    never_ends_well(Fault::AtomicNotSaved, fair(1, &ATOMICS));
}

#[test]
fn an_ack_that_completes_a_read_is_found() {
    is_found(Fault::AckCompletesRead, reads(), Violation::Completion);
}

/// Protocol 3.4: the rule protects requesters that are not as careful as protocol 2.5 demands.
#[test]
fn an_ack_of_a_duplicate_that_names_a_read_is_found() {
    is_found(Fault::DuplicateAcksRead, acks_answer(), Violation::Completion);
}

#[test]
fn an_ack_that_passes_a_read_is_found() {
    never_ends_well(Fault::AckPassesRead, no_retries());
}

#[test]
fn a_read_response_after_a_lost_one_that_is_taken_is_found() {
    is_found(Fault::ReadGapAccepted, one_read(), Violation::Data);
}

#[test]
fn a_stale_response_that_is_taken_is_found() {
    is_found(Fault::StaleAccepted, sends(), Violation::Completion);
}

#[test]
fn a_timer_that_never_starts_again_is_found() {
    never_ends_well(Fault::TimerOnce, fair(2, &SENDS));
}

#[test]
fn a_retry_counter_that_is_never_loaded_again_is_found() {
    is_found(Fault::RetriesNotReloaded, sends(), Violation::Error);
}

#[test]
fn retries_that_are_not_counted_are_found() {
    is_found(Fault::RetriesNotCounted, sends(), Violation::Error);
}

#[test]
fn a_window_without_limit_is_found() {
    is_found(Fault::WindowIgnored, more_than_the_window(), Violation::Window);
}

#[test]
fn more_reads_than_slots_are_found() {
    is_found(Fault::SlotsIgnored, replays(), Violation::Error);
}

#[test]
fn a_read_that_counts_twice_when_it_is_sent_again_is_found() {
    never_ends_well(Fault::RetryTakesSlot, one_slot());
}

#[test]
fn a_message_that_completes_when_it_is_sent_is_found() {
    is_found(Fault::CompletesWhenSent, sends(), Violation::Completion);
}

#[test]
fn a_request_during_the_wait_after_an_rnr_nak_is_found() {
    is_found(Fault::RnrWaitIgnored, late_receives(), Violation::RnrWait);
}

#[test]
fn a_timer_that_runs_during_the_wait_after_an_rnr_nak_is_found() {
    is_found(Fault::TimerInWait, late_receives(), Violation::RnrWait);
}

#[test]
fn rnr_retries_that_are_not_counted_are_found() {
    is_found(Fault::RnrNotCounted, late_receives(), Violation::Error);
}

#[test]
fn an_rnr_nak_that_takes_a_retry_is_found() {
    is_found(Fault::RnrTakesRetry, late_receives(), Violation::Error);
}

#[test]
fn a_duplicate_atomic_that_returns_the_word_as_it_is_now_is_found() {
    is_found(Fault::AtomicFromMemory, atomics(), Violation::Atomic);
}

#[test]
fn a_read_that_may_not_begin_again_is_found() {
    is_found(Fault::FirstAgainRefused, reads(), Violation::Error);
}

/// The rule that a frame does not outlive half of the PSN space is an assumption of the protocol, not a property of it.
#[test]
fn a_wire_on_which_frames_live_for_ever_breaks_delivery() {
    let settings = Settings { frames_expire: false, ..more_than_the_psns() };
    breaks(&settings, false, name(Violation::Delivery));
}

/// A livelock is found: with RNR retries without end, and a wait that may end before the host posts a receive WQE, a run comes back to
/// the same state. With a wait that outlasts the host, none does (`late_receives_end_well`).
#[test]
fn a_run_that_comes_back_is_found() {
    let settings = Settings { rnr_retries: RNR_RETRY_ENDLESS, retries: 0, ..fair(0, &[(Kind::Send, 1)]) };
    let settings = Settings { receives: 0, ..settings };
    assert!(!comes_back(&settings));
    assert!(comes_back(&Settings { timer: Timer::Early, ..settings }));
}
