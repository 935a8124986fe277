//! State machine of [`ReadResponder`](super::ReadResponder).
//!
//! ```text
//!  Clear ──> Idle ──> Setup, Store, Release, Seek, Result ──> Idle, or Make if a turn was interrupted
//!              ├────> Weigh ──> Repeat ────────────────────> Idle, or Make if a turn was interrupted
//!              └────> Load ──> Fetch ──> Plan ──> Make ──> Look ──> Keep ──> Idle
//!                       │        └─> Park ─┐ ^      │
//!                       └────────────> Idle<┘ └──────┘ next response
//! ```
use rnic_kernel::prelude::*;
use rnic_messages::read::ReadRelease;

/// State of the machine.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(super) enum Step {
    /// Clears the records after a reset.
    Clear,
    /// Chooses.
    Idle,
    /// Applies a setup event.
    Setup,
    /// Stores a request.
    Store,
    /// Releases a request.
    Release,
    /// Has a duplicate looked up.
    Seek,
    /// Decides about the duplicate.
    Weigh,
    /// Does what was decided.
    Repeat,
    /// Stores the result of an atomic.
    Result,
    /// A turn: reads the records of the queue pair.
    Load,
    /// Reads its oldest request.
    Fetch,
    /// The result of an atomic is not there: the turn ends.
    Park,
    /// Measures the next response.
    Plan,
    /// Makes it.
    Make,
    /// Reads the released requests again.
    Look,
    /// Writes the records back.
    Keep,
}

/// Inputs of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Inputs {
    /// Clear: the last record is cleared.
    pub is_swept: Bit,
    /// Idle, Make: an event is taken.
    pub takes_event: Bit,
    /// The step for that event.
    pub event_step: Step,
    /// Idle: the head of the ready queue gets its turn.
    pub takes_turn: Bit,
    /// Setup to Result: a turn was interrupted, and goes on.
    pub resumes: Bit,
    /// Load: the queue pair has a request to answer.
    pub has_work: Bit,
    /// Fetch: the result of the request is not there.
    pub waits: Bit,
    /// Make: the response is made.
    pub makes: Bit,
    /// Make: it is the last one of the turn.
    pub ends_turn: Bit,
}

/// Gives the step for the first event: setup events come before requests, releases and results.
#[kernel]
pub(super) fn event_step(has_setup: Bit, has_request: Bit, has_release: Bit, release_step: Step) -> Step {
    if has_setup {
        Step::Setup
    } else if has_request {
        Step::Store
    } else if has_release {
        release_step
    } else {
        Step::Result
    }
}

/// Gives the step for a release: a duplicate is looked up first, unless it is dropped. `is_done` says that it was.
#[kernel]
pub(super) fn release_step(release: ReadRelease, is_done: Bit) -> Step {
    if !release.is_again {
        Step::Release
    } else if is_done || release.is_dropped {
        Step::Weigh
    } else {
        Step::Seek
    }
}

/// Gives the next state.
#[kernel]
pub(super) fn step_after(step: Step, inputs: Inputs) -> Step {
    match step {
        Step::Clear => select(inputs.is_swept, Step::Idle, Step::Clear),
        Step::Idle => {
            if inputs.takes_event {
                inputs.event_step
            } else {
                select(inputs.takes_turn, Step::Load, Step::Idle)
            }
        }
        Step::Setup | Step::Store | Step::Release | Step::Seek | Step::Repeat | Step::Result => {
            select(inputs.resumes, Step::Make, Step::Idle)
        }
        Step::Weigh => Step::Repeat,
        Step::Load => select(inputs.has_work, Step::Fetch, Step::Idle),
        Step::Fetch => select(inputs.waits, Step::Park, Step::Plan),
        Step::Plan => Step::Make,
        Step::Make => {
            if inputs.takes_event {
                inputs.event_step
            } else if inputs.makes {
                select(inputs.ends_turn, Step::Look, Step::Plan)
            } else {
                Step::Make
            }
        }
        Step::Look => Step::Keep,
        Step::Park | Step::Keep => Step::Idle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Step::*;

    const NONE: Inputs = Inputs {
        is_swept: false,
        takes_event: false,
        event_step: Result,
        takes_turn: false,
        resumes: false,
        has_work: false,
        waits: false,
        makes: false,
        ends_turn: false,
    };

    #[test]
    fn each_state_has_its_transitions_and_no_other() {
        // Without inputs, and with each input alone: the input and the state that it leads to.
        let event = Inputs { takes_event: true, event_step: Store, ..NONE };
        let swept = Inputs { is_swept: true, ..NONE };
        let turn = Inputs { takes_turn: true, ..NONE };
        let resumes = Inputs { resumes: true, ..NONE };
        let work = Inputs { has_work: true, ..NONE };
        let waits = Inputs { waits: true, ..NONE };
        let makes = Inputs { makes: true, ..NONE };
        let ends = Inputs { makes: true, ends_turn: true, ..NONE };
        let all = [event, swept, turn, resumes, work, waits, makes, ends];
        let rows: [(Step, Step, &[(Inputs, Step)]); 16] = [
            (Clear, Clear, &[(swept, Idle)]),
            (Idle, Idle, &[(event, Store), (turn, Load)]),
            (Setup, Idle, &[(resumes, Make)]),
            (Store, Idle, &[(resumes, Make)]),
            (Release, Idle, &[(resumes, Make)]),
            (Seek, Idle, &[(resumes, Make)]),
            (Weigh, Repeat, &[]),
            (Repeat, Idle, &[(resumes, Make)]),
            (Result, Idle, &[(resumes, Make)]),
            (Load, Idle, &[(work, Fetch)]),
            (Fetch, Plan, &[(waits, Park)]),
            (Park, Idle, &[]),
            (Plan, Make, &[]),
            (Make, Make, &[(event, Store), (makes, Plan), (ends, Look)]),
            (Look, Keep, &[]),
            (Keep, Idle, &[]),
        ];
        for (step, otherwise, transitions) in rows {
            assert_eq!(step_after(step, NONE), otherwise, "{step:?}");
            for inputs in all {
                let found = transitions.iter().find(|(given, _)| *given == inputs);
                let expected = found.map_or(otherwise, |&(_, next)| next);
                assert_eq!(step_after(step, inputs), expected, "{step:?} {inputs:?}");
            }
        }
        // An event comes before a response.
        assert_eq!(step_after(Make, Inputs { makes: true, ..event }), Store);
    }

    #[test]
    fn events_are_taken_in_their_order() {
        for (setup, request, release, step) in [
            (true, true, true, Setup),
            (false, true, true, Store),
            (false, false, true, Release),
            (false, false, false, Result),
        ] {
            assert_eq!(event_step(setup, request, release, Release), step);
        }
    }

    #[test]
    fn a_duplicate_is_looked_up_before_it_is_decided() {
        let release = |is_again, is_dropped| ReadRelease { is_again, is_dropped, ..ReadRelease::default() };
        for (release, is_done, step) in [
            (release(false, false), false, Release),
            (release(false, false), true, Release),
            (release(true, false), false, Seek),
            (release(true, false), true, Weigh),
            (release(true, true), false, Weigh),
        ] {
            assert_eq!(release_step(release, is_done), step);
        }
    }
}
