//! Rules of [`ReadResponder`](super::ReadResponder) about its events: what a setup event, a release or a reset does to a queue
//! pair (protocol 3.5, 3.6 row 13).
use super::record::{Life, Progress, life_after};
use super::step::Step;
use crate::messages::ReadResponderCounts;
use rnic_kernel::prelude::*;
use rnic_messages::read::ReadRelease;
use rnic_messages::setup::{SetupEvent, SetupKind};

/// What an event does to a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Effect {
    /// Its attributes become `life`.
    pub sets: Bit,
    /// Its attributes afterwards.
    pub life: Life,
    /// Its requests and replays are dropped.
    pub drops: Bit,
    /// It keeps its place in a request of which a response was made.
    pub stays_begun: Bit,
    /// Its next request may be answered.
    pub releases: Bit,
}

/// Decides what a step does to the queue pair of its event. A host write that failed behind a request makes the NAK of the
/// next response; `is_noted` says that a request is there to be released.
#[kernel]
pub(super) fn effect_of(
    step: Step,
    event: SetupEvent,
    release: ReadRelease,
    life: Life,
    is_noted: Bit,
) -> Effect {
    let is_setup = step == Step::Setup;
    let restarts = event.kind == SetupKind::Restart;
    let set = life_after(life, event);
    let is_current = step == Step::Release && life.serves && life.generation == release.generation;
    Effect {
        sets: is_setup || (is_current && release.write_failed),
        life: select(is_setup, set, Life { write_failed: true, ..life }),
        drops: is_setup && (!set.serves || restarts),
        stays_begun: step != Step::Clear && !restarts,
        releases: is_current && !release.write_failed && is_noted,
    }
}

/// Gives the progress of a queue pair whose requests are dropped.
#[kernel]
pub(super) fn dropped_of(progress: Progress, stays_begun: Bit) -> Progress {
    Progress { has_begun: progress.has_begun && stays_begun, ..Default::default() }
}

/// Adds what the replays count to the counts of the responses.
#[kernel]
pub(super) fn counts_of(
    counts: ReadResponderCounts,
    is_answered: Bit,
    is_unknown: Bit,
) -> ReadResponderCounts {
    ReadResponderCounts { duplicate_request: is_answered, duplicate_dropped: is_unknown, ..counts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::state::QpState;

    fn event(state: QpState, kind: SetupKind) -> SetupEvent {
        SetupEvent { state: bits(state as u64), generation: bits(3), kind, ..SetupEvent::default() }
    }

    #[test]
    fn requests_are_dropped_where_none_is_answered_and_after_a_restart() {
        let serving = Life { serves: true, generation: bits(3), ..Life::default() };
        let failed = Life { write_failed: true, ..serving };
        // State, kind, attributes before; dropped, a response may have begun, attributes serve afterwards.
        for (state, kind, life, drops, stays_begun, serves) in [
            (QpState::ReadyToSend, SetupKind::Life, serving, false, true, true),
            (QpState::ReadyToReceive, SetupKind::Life, Life::default(), false, true, true),
            (QpState::ReadyToReceive, SetupKind::Restart, serving, true, false, true),
            (QpState::Error, SetupKind::Life, serving, true, true, false),
            (QpState::Error, SetupKind::Life, failed, false, true, true),
            (QpState::Reset, SetupKind::Restart, failed, true, false, false),
        ] {
            let found = effect_of(Step::Setup, event(state, kind), ReadRelease::default(), life, true);
            assert_eq!((found.sets, found.releases), (true, false), "{state:?} {kind:?}");
            let (drop, begun) = (found.drops, found.stays_begun);
            assert_eq!((drop, begun, found.life.serves), (drops, stays_begun, serves), "{state:?} {kind:?}");
        }
    }

    #[test]
    fn a_release_lets_one_request_be_answered_or_makes_its_nak() {
        let serving = Life { serves: true, generation: bits(3), ..Life::default() };
        let gone = Life { serves: false, ..serving };
        let release = ReadRelease { generation: bits(3), ..ReadRelease::default() };
        let older = ReadRelease { generation: bits(2), ..release };
        let failed = ReadRelease { write_failed: true, ..release };
        // Attributes, release, a request is noted; released, attributes are set.
        for (life, release, is_noted, releases, sets) in [
            (serving, release, true, true, false),
            (serving, release, false, false, false),
            (serving, older, true, false, false),
            (gone, release, true, false, false),
            (serving, failed, true, false, true),
            (serving, failed, false, false, true),
            (gone, failed, true, false, false),
        ] {
            let found = effect_of(Step::Release, SetupEvent::default(), release, life, is_noted);
            assert_eq!((found.releases, found.sets, found.drops), (releases, sets, false), "{release:?}");
            assert!(found.life.write_failed);
            let idle = effect_of(Step::Idle, SetupEvent::default(), release, life, is_noted);
            assert!(!idle.releases && !idle.sets && !idle.drops, "only in the step of a release");
        }
    }

    #[test]
    fn a_reset_forgets_that_responses_were_made() {
        let life = Life::default();
        let found = effect_of(Step::Clear, SetupEvent::default(), ReadRelease::default(), life, false);
        assert!(!found.stays_begun && !found.drops && !found.sets);
        let progress = Progress { has_begun: true, served: bits(3), packets: bits(2), ..Progress::default() };
        assert_eq!(dropped_of(progress, false), Progress::default());
        assert_eq!(dropped_of(progress, true), Progress { has_begun: true, ..Progress::default() });
    }
}
