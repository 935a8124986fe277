//! Runs that are chosen to be repeated with other implementations.
use super::plan;
use rnic_protocol::{Cover, Kind, Settings, Timer};

/// A READ, an atomic and a late SEND, on a wire that loses a frame; everything is sent at once.
fn settings() -> Settings {
    Settings {
        losses: 1,
        receives: 0,
        retries: 1,
        capacity: 8,
        timer: Timer::Early,
        sends_at_once: true,
        ..Settings::new(plan(7, &[(Kind::Read, 2), (Kind::Atomic, 1), (Kind::Send, 1)]))
    }
}

#[test]
fn chosen_runs_meet_every_decision_and_come_to_their_end() {
    let cover = Cover::of(&[settings()]);
    println!("{} states, {} decisions, {} runs", cover.states, cover.decisions, cover.traces.len());
    assert!(cover.states > 1000 && cover.decisions > 60, "the space is not empty");
    assert!(cover.traces.len() < cover.decisions / 2, "a run has many decisions");
    for trace in &cover.traces {
        let messages: Vec<u8> = trace.completions.iter().map(|&(_, message, _)| message).collect();
        assert_eq!(messages, [0, 1, 2], "{trace:?}");
        for fate in &trace.frames {
            assert!(fate.arrived.iter().all(|&arrived| arrived > fate.sent), "{trace:?}");
        }
    }
    let lost = cover.traces.iter().flat_map(|trace| &trace.frames).filter(|fate| fate.arrived.is_empty());
    assert!(lost.count() > 1, "frames are lost");
    assert!(cover.traces.iter().any(|trace| !trace.timeouts.is_empty()));
    assert!(cover.traces.iter().any(|trace| !trace.rnr_waits.is_empty() && !trace.receives.is_empty()));
}

#[test]
fn runs_are_chosen_from_all_spaces_at_once() {
    let late = settings();
    let timely = Settings { receives: 1, ..settings() };
    let apart: usize =
        [&late, &timely].map(|one| Cover::of(std::slice::from_ref(one)).traces.len()).iter().sum();
    let together = Cover::of(&[late, timely]);
    assert!(together.traces.len() < apart, "{} of {apart}", together.traces.len());
}
