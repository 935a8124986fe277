//! No run breaks a rule, on a wire without order and with a timer without patience.
use super::checker::{DONE, Witness, holds};
use super::{is_large, plan, states};
use rnic_protocol::{Body, Kind, Message, Nak, PsnSpace, Settings, Status, Timer};

/// A wire of two frames in each direction that loses one, and a timer that fires at any time, so that requests are repeated
/// without cause. Large: three frames, the wire doubles one too, and answers wait.
fn hostile(first: u8, messages: &[(Kind, u8)]) -> Settings {
    let is_large = is_large();
    Settings {
        capacity: if is_large { 3 } else { 2 },
        losses: 1,
        duplicates: u8::from(is_large),
        reorders: None,
        retries: 1,
        timer: Timer::Early,
        answers_at_once: !is_large,
        ..Settings::new(plan(first, messages))
    }
}

const EXHAUSTED: Witness =
    ("retries are used up", |_, world| world.judge.failed == Some(Status::RetryExceeded));
const SEQUENCE_NAK: Witness = ("a gap is answered by a NAK", |_, world| {
    world.responses.iter().any(|response| response.body == Body::Nak(Nak::Sequence))
});
const NOT_READY: Witness = ("an RNR NAK is sent", |_, world| {
    world.responses.iter().any(|response| response.body == Body::Nak(Nak::NotReady))
});
const READ_RESTARTS: Witness = ("a READ goes on from its second packet", |_, world| {
    world.requests.iter().any(|request| request.kind == Kind::Read && request.data.packet > 0)
});
const RNR_EXHAUSTED: Witness =
    ("RNR retries are used up", |_, world| world.judge.failed == Some(Status::RnrRetryExceeded));
const REFUSED: Witness = ("a region refuses", |_, world| world.judge.failed == Some(Status::RemoteAccess));
const WRAPPED: Witness = ("more PSNs are taken than there are", |model, world| {
    world.requester.una > model.settings.plan.first + 2 * model.settings.space.half()
});

#[test]
fn sends_and_writes_are_executed_once_and_in_order() {
    let settings = hostile(6, &[(Kind::Write, 2), (Kind::Send, 1), (Kind::Send, 2)]);
    holds("SEND and WRITE", &settings, states(73_136, 3_199_323), &[DONE, EXHAUSTED, SEQUENCE_NAK]);
}

#[test]
fn a_wire_that_doubles_frames_breaks_no_rule() {
    let settings = Settings { duplicates: 1, ..hostile(6, &[(Kind::Write, 2), (Kind::Send, 1)]) };
    holds("duplicates", &settings, states(11_564, 44_444), &[DONE, EXHAUSTED]);
}

#[test]
fn psns_that_wrap_around_are_not_taken_for_others() {
    let messages = [(Kind::Send, 1), (Kind::Write, 2), (Kind::Send, 1), (Kind::Write, 1)];
    let settings = Settings { space: PsnSpace { bits: 2 }, window: 2, ..hostile(3, &messages) };
    holds("5 of 4 PSNs", &settings, states(7669, 172_274), &[DONE, WRAPPED]);
}

#[test]
fn reads_go_on_from_their_first_missing_response() {
    let messages = [(Kind::Read, 3), (Kind::Send, 1)];
    let settings = Settings { answers_at_once: true, ..hostile(6, &messages) };
    holds("READ", &settings, states(105_759, 4_161_772), &[DONE, EXHAUSTED, READ_RESTARTS]);
}

#[test]
fn reads_go_on_with_the_opcodes_of_their_places() {
    let messages = [(Kind::Read, 3), (Kind::Send, 1)];
    let settings = Settings { replays_go_on: true, answers_at_once: true, ..hostile(6, &messages) };
    holds(
        "READ that goes on with MIDDLE or LAST",
        &settings,
        states(69_498, 2_208_500),
        &[DONE, EXHAUSTED, READ_RESTARTS],
    );
}

#[test]
fn atomics_are_applied_once() {
    let settings = hostile(6, &[(Kind::Atomic, 1), (Kind::Send, 1), (Kind::Atomic, 1)]);
    holds("atomics", &settings, states(20_037, 2_677_714), &[DONE, EXHAUSTED]);
}

#[test]
fn reads_and_atomics_share_slots() {
    let messages = [(Kind::Read, 2), (Kind::Atomic, 1), (Kind::Read, 1)];
    let settings = Settings { slots: 1, answers_at_once: false, ..hostile(6, &messages) };
    holds("READ and atomics, one slot", &settings, states(2957, 29_305), &[DONE, EXHAUSTED]);
}

#[test]
fn receives_that_are_late_cost_rnr_retries_only() {
    let messages = [(Kind::WriteImm, 2), (Kind::Send, 1)];
    let settings = Settings { receives: 0, ..hostile(6, &messages) };
    holds("late receives", &settings, states(58_442, 1_615_437), &[DONE, NOT_READY, RNR_EXHAUSTED]);
}

#[test]
fn one_wait_may_take_one_rnr_retry_whatever_arrives_in_it() {
    let messages = [(Kind::WriteImm, 2), (Kind::Send, 1)];
    let settings = Settings { receives: 0, waits_once: true, ..hostile(6, &messages) };
    holds(
        "late receives, one retry in a wait",
        &settings,
        states(57_173, 1_582_310),
        &[DONE, NOT_READY, RNR_EXHAUSTED],
    );
}

#[test]
fn a_region_that_refuses_ends_its_message_and_those_after_it() {
    for (about, kind, packets, refused_from, states) in [
        ("refused WRITE", Kind::Write, 2, 0, states(10_478, 234_376)),
        ("READ whose region goes", Kind::Read, 3, 1, states(3617, 64_391)),
    ] {
        let mut settings = hostile(6, &[(Kind::Send, 1), (kind, packets), (Kind::Send, 1)]);
        settings.plan.messages[1] = Message::new(kind, packets).refused_from(refused_from);
        holds(about, &settings, states, &[REFUSED, EXHAUSTED]);
    }
}
