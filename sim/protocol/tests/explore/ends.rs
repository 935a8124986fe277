//! On a fair wire every run completes all messages.
use super::checker::ends_well;
use super::{is_large, plan, states};
use rnic_protocol::{Kind, PsnSpace, Settings};

/// A wire that keeps order except for so many faults of each kind.
fn fair(losses: u8, duplicates: u8, reorders: u8, messages: &[(Kind, u8)]) -> Settings {
    Settings {
        losses,
        duplicates,
        reorders: Some(reorders),
        retries: 7,
        rnr_retries: 7,
        capacity: if is_large() { 8 } else { 4 },
        ..Settings::new(plan(6, messages))
    }
}

const MIXED: [(Kind, u8); 4] = [(Kind::Write, 2), (Kind::Read, 2), (Kind::Send, 1), (Kind::Atomic, 1)];

#[test]
fn a_perfect_wire_takes_no_retry() {
    let messages = [(Kind::Write, 3), (Kind::Read, 3), (Kind::Send, 1), (Kind::Atomic, 1)];
    let settings = Settings {
        space: PsnSpace { bits: 4 },
        window: 8,
        answers_at_once: false,
        plan: plan(14, &messages),
        ..fair(0, 0, 0, &[])
    };
    assert_eq!(ends_well("perfect wire", &settings, states(340, 357)), 0);
}

#[test]
fn one_lost_frame_takes_one_retry() {
    assert_eq!(ends_well("one loss", &fair(1, 0, 0, &MIXED), states(352, 361)), 1);
}

#[test]
fn two_lost_frames_take_two_retries() {
    assert_eq!(ends_well("two losses", &fair(2, 0, 0, &MIXED), states(1376, 1410)), 2);
}

#[test]
fn lost_duplicated_and_reordered_frames_all_end_well() {
    ends_well(
        "loss, duplicate, reordering",
        &fair(1, 1, 1, &[(Kind::Read, 2), (Kind::Atomic, 1)]),
        states(8567, 9271),
    );
}

#[test]
fn reads_that_go_on_with_the_opcodes_of_their_places_end_well() {
    let settings = Settings { replays_go_on: true, ..fair(1, 0, 1, &[(Kind::Read, 4), (Kind::Send, 1)]) };
    ends_well("READ that goes on with MIDDLE or LAST", &settings, states(3787, 4079));
}

#[test]
fn late_receives_end_well() {
    let messages = [(Kind::Send, 1), (Kind::WriteImm, 2)];
    let settings = Settings { receives: 0, ..fair(1, 0, 1, &messages) };
    ends_well("late receives", &settings, states(5342, 5626));
}

#[test]
fn psns_that_wrap_around_end_well() {
    let messages = [(Kind::Write, 3), (Kind::Read, 4), (Kind::Send, 3), (Kind::Read, 2)];
    ends_well("12 of 8 PSNs", &fair(1, 0, 1, &messages), states(9170, 9913));
}

#[test]
fn the_plan_of_the_worked_traces_ends_well() {
    let messages = [(Kind::Write, 3), (Kind::Read, 3), (Kind::Send, 1), (Kind::Atomic, 1)];
    let settings = Settings {
        space: PsnSpace { bits: 4 },
        window: 8,
        plan: plan(14, &messages),
        ..fair(1, 0, 1, &messages)
    };
    ends_well("plan of protocol 3.12", &settings, states(42_611, 61_612));
}
