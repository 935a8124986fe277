//! Each planted fault is found: the rules are not empty.
use super::checker::{ENDS_WELL, breaks, name};
use super::plan;
use rnic_protocol::{Fault, Kind, Settings, Timer, Trace, Violation};

/// A wire with one fault of each kind and without order, and a timer without patience.
fn hostile(fault: Fault, messages: &[(Kind, u8)]) -> Settings {
    Settings {
        capacity: 3,
        losses: 1,
        duplicates: 1,
        reorders: None,
        timer: Timer::Early,
        fault: Some(fault),
        ..Settings::new(plan(6, messages))
    }
}

/// A fair wire that loses one frame.
fn fair(fault: Fault, messages: &[(Kind, u8)]) -> Settings {
    Settings { losses: 1, fault: Some(fault), ..Settings::new(plan(6, messages)) }
}

fn is_found(settings: Settings, violation: Violation) {
    let actions = breaks(&settings, false, name(violation));
    assert!(!Trace::of(&settings, &actions).frames.is_empty());
}

fn never_ends_well(settings: Settings) {
    breaks(&settings, true, ENDS_WELL);
}

const SENDS: [(Kind, u8); 3] = [(Kind::Send, 1), (Kind::Write, 2), (Kind::Send, 1)];
const READS: [(Kind, u8); 3] = [(Kind::Send, 1), (Kind::Read, 3), (Kind::Send, 1)];
const ATOMICS: [(Kind, u8); 3] = [(Kind::Atomic, 1), (Kind::Send, 1), (Kind::Atomic, 1)];

#[test]
fn a_nak_for_each_packet_after_a_gap_is_found() {
    is_found(hostile(Fault::NakForEachPacket, &SENDS), Violation::Nak);
}

#[test]
fn a_duplicate_atomic_that_is_executed_is_found() {
    is_found(hostile(Fault::AtomicAgain, &ATOMICS), Violation::Atomic);
}

#[test]
fn a_duplicate_write_that_is_executed_is_found() {
    is_found(hostile(Fault::DuplicateAgain, &SENDS), Violation::Delivery);
}

#[test]
fn a_packet_after_a_gap_that_is_executed_is_found() {
    is_found(hostile(Fault::GapAccepted, &SENDS), Violation::Delivery);
}

#[test]
fn an_ack_for_what_was_not_executed_is_found() {
    is_found(hostile(Fault::GapAcknowledged, &SENDS), Violation::Completion);
}

#[test]
fn an_rnr_nak_for_what_was_executed_is_found() {
    let messages = [(Kind::WriteImm, 2), (Kind::Send, 1)];
    let settings = Settings { receives: 0, ..hostile(Fault::RnrAfterExecution, &messages) };
    is_found(settings, Violation::Delivery);
}

#[test]
fn a_replay_of_a_read_from_its_first_byte_is_found() {
    is_found(hostile(Fault::ReplayFromFirst, &READS), Violation::Data);
}

#[test]
fn a_read_that_starts_again_from_its_first_byte_is_found() {
    is_found(hostile(Fault::RestartFromFirst, &READS), Violation::Data);
}

#[test]
fn a_read_that_is_refused_for_a_replay_is_found() {
    let messages = [(Kind::Read, 2), (Kind::Read, 1)];
    let settings =
        Settings { slots: 1, answers_at_once: false, ..hostile(Fault::ReplayTakesSlot, &messages) };
    is_found(Settings { losses: 0, duplicates: 0, ..settings }, Violation::Error);
}

#[test]
fn an_atomic_whose_result_is_not_saved_is_found() {
    never_ends_well(fair(Fault::AtomicNotSaved, &ATOMICS));
}

#[test]
fn an_ack_that_completes_a_read_is_found() {
    is_found(hostile(Fault::AckCompletesRead, &READS), Violation::Completion);
}

#[test]
fn an_ack_that_passes_a_read_is_found() {
    let settings =
        Settings { losses: 0, retries: 0, answers_at_once: false, ..fair(Fault::AckPassesRead, &READS) };
    never_ends_well(Settings { fault: Some(Fault::AckPassesRead), ..settings });
}

#[test]
fn a_read_response_after_a_lost_one_that_is_taken_is_found() {
    is_found(hostile(Fault::ReadGapAccepted, &[(Kind::Read, 4)]), Violation::Data);
}

#[test]
fn a_stale_response_that_is_taken_is_found() {
    is_found(hostile(Fault::StaleAccepted, &SENDS), Violation::Completion);
}

#[test]
fn a_timer_that_never_starts_again_is_found() {
    never_ends_well(Settings { losses: 2, ..fair(Fault::TimerOnce, &SENDS) });
}

#[test]
fn a_retry_counter_that_is_never_loaded_again_is_found() {
    is_found(hostile(Fault::RetriesNotReloaded, &SENDS), Violation::Error);
}

#[test]
fn retries_that_are_not_counted_are_found() {
    is_found(hostile(Fault::RetriesNotCounted, &SENDS), Violation::Error);
}

#[test]
fn a_window_without_limit_is_found() {
    let sends = [(Kind::Send, 3), (Kind::Send, 3)];
    is_found(Settings { capacity: 6, ..hostile(Fault::WindowIgnored, &sends) }, Violation::Window);
}

#[test]
fn a_message_that_completes_when_it_is_sent_is_found() {
    is_found(hostile(Fault::CompletesWhenSent, &SENDS), Violation::Completion);
}

#[test]
fn a_request_during_the_wait_after_an_rnr_nak_is_found() {
    let settings = Settings { receives: 0, ..hostile(Fault::RnrWaitIgnored, &SENDS) };
    is_found(settings, Violation::RnrWait);
}

/// The rule that a frame does not outlive half of the PSN space is an assumption of the protocol, not a property of it.
#[test]
fn a_wire_on_which_frames_live_for_ever_breaks_delivery() {
    let sends = [(Kind::Send, 2), (Kind::Send, 2), (Kind::Send, 2), (Kind::Send, 2), (Kind::Send, 1)];
    let settings = Settings {
        frames_expire: false,
        losses: 0,
        timer: Timer::Patient,
        fault: None,
        ..hostile(Fault::TimerOnce, &sends)
    };
    is_found(settings, Violation::Delivery);
}
