//! Stages of the sequencer, and the transitions between them.
//!
//! ```text
//!  Idle ─┬─ command, event queue 0 ─> Copy ─> Fetch ─> Source ─> Target ─> Rotate ─> Execute ─> Apply
//!        │                                     ^ ^ instruction skipped │                          │
//!        │                                     │ └─────────────────────┘                          │
//!        │                                     └─── Found, Setup, Probe, Publish, Write, <────────┤
//!        │                                          Wait, Pages, Slots: the instruction is done   │
//!        ├─ notice, also of Wait and Pages ──> Lookup ─> LookupWait ─> Decide ─> Load ─> Setup ─> Raise
//!        └─ forget ─> Sweep ─> Lookup ─> LookupWait ─> Swept ─┬─ nothing to forget ─> Sweep       │
//!                       ^                                     └─> Fetch .. Apply ─> Sweep         v
//!                       └── until the last object ─> Idle                             Respond ─> Idle
//! ```
use crate::instruction::Action;
use rnic_kernel::prelude::*;
use rnic_layout::admin::COMMAND_BYTES;

/// Cycles in which an object is loaded.
pub const LOAD_CYCLES: u64 = 13;
/// Cycles from the taking of a probe to the reading of the PSNs.
pub const PROBE_CYCLES: u64 = 16;
/// Width of the count of cycles within a stage.
pub(super) const CYCLE_BITS: usize = 4;

const LAST_LOAD: u64 = LOAD_CYCLES - 1;
const LAST_PROBE: u64 = PROBE_CYCLES - 1;
/// The last word of a command.
const LAST_WORD: u64 = COMMAND_BYTES as u64 / 8 - 1;

/// What the sequencer does in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Stage {
    /// Chooses what to begin.
    Idle,
    /// Copies a command, or the settings of event queue 0, into the store: one word a cycle.
    Copy,
    /// Reads the instruction.
    Fetch,
    /// Reads its source word, unless its flag is not set.
    Source,
    /// Reads its target word.
    Target,
    /// Rotates the source.
    Rotate,
    /// Lets the ALU work.
    Execute,
    /// Writes the target, or begins what else the instruction asks for.
    Apply,
    /// Reads the header of an object, or the limit of a shared receive queue.
    Lookup,
    /// Waits for that word.
    LookupWait,
    /// Compares the header with the object that the instruction names.
    Found,
    /// Loads an object.
    Load,
    /// Offers a setup event to the stages of the card.
    Setup,
    /// Waits for the PSNs of requester and responder.
    Probe,
    /// Writes the tables of the card.
    Publish,
    /// Writes 64 bytes of a query to the host.
    Write,
    /// Waits until what is in flight has left the card.
    Wait,
    /// Lets `page_list` work.
    Pages,
    /// Lets `read_slots` work.
    Slots,
    /// Offers the outcome of the command.
    Respond,
    /// Decides what a notice changes.
    Decide,
    /// Raises an asynchronous event.
    Raise,
    /// Goes to the next object to forget.
    Sweep,
    /// Forgets it, if it exists.
    Swept,
}

/// What the microcode runs for.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Routine {
    /// A command.
    Command,
    /// New settings of event queue 0.
    EventQueue0,
    /// A reset, which forgets all objects.
    Forget,
}

/// What a header is looked up for.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum LookupReason {
    /// An [`Action::Find`] step.
    Find,
    /// A notice.
    Notice,
    /// A reset.
    Forget,
}

/// What an object is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum LoadReason {
    /// [`Action::Setup`] and [`Action::Probe`].
    Setup,
    /// An [`Action::Publish`] step.
    Publish,
    /// An [`Action::Write`] step.
    Write,
    /// An [`Action::Pages`] step.
    Pages,
    /// A notice.
    Notice,
}

/// Registers that decide, with the stage, which stage follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Position {
    /// Cycles spent in the stage, where the stage counts them.
    pub(super) cycle: Bits<CYCLE_BITS>,
    pub(super) routine: Routine,
    pub(super) lookup: LookupReason,
    pub(super) load: LoadReason,
    /// Action of the instruction.
    pub(super) action: Action,
    /// Stage in which a notice was taken.
    pub(super) interrupted: Stage,
}

/// Conditions of this cycle that decide which stage follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Conditions {
    /// The store is lent to `invalidate`.
    pub(super) is_lent: Bit,
    /// A notice is offered.
    pub(super) has_notice: Bit,
    /// The device has failed; only a reset clears that.
    pub(super) device_failed: Bit,
    /// A sweep over all objects begins.
    pub(super) begins_forget: Bit,
    /// A command or the settings of event queue 0 begin.
    pub(super) begins_routine: Bit,
    /// The flag of the instruction is not set.
    pub(super) skips: Bit,
    /// The ALU refused the command.
    pub(super) refuses: Bit,
    /// The object is as [`Action::Find`] wants it: there, or not.
    pub(super) is_found: Bit,
    /// All stages of the card take the setup event.
    pub(super) setup_taken: Bit,
    /// The admin ring takes the write of a query.
    pub(super) write_taken: Bit,
    /// The admin ring takes the outcome.
    pub(super) outcome_taken: Bit,
    /// An asynchronous event may be written into its register.
    pub(super) event_free: Bit,
    /// Something that is waited for is still in flight.
    pub(super) in_flight: Bit,
    /// `page_list` is between two slots.
    pub(super) is_between_slots: Bit,
    /// `page_list` or `read_slots`, which executes the instruction, is done.
    pub(super) part_ends: Bit,
    /// It refuses the list of pages or the share of READ slots.
    pub(super) part_refuses: Bit,
    /// The notice changes the object that it names, or is still true.
    pub(super) notice_applies: Bit,
    /// The notice is no failure: it changes no state.
    pub(super) keeps_state: Bit,
    /// The notice asks for an asynchronous event.
    pub(super) has_event: Bit,
    /// The swept index has an object, or had the object of a command that the reset cut off.
    pub(super) must_forget: Bit,
    /// The swept object is the last of all.
    pub(super) sweep_ends: Bit,
}

/// Tells whether the instruction is done, so that the next one is fetched.
#[kernel]
pub(super) fn advances(stage: Stage, at: Position, is: Conditions) -> Bit {
    match stage {
        Stage::Source => is.skips,
        Stage::Apply => !is.refuses && ends_in_apply(at.action),
        Stage::Found => is.is_found,
        Stage::Setup => is.setup_taken && at.load == LoadReason::Setup && at.action != Action::Probe,
        Stage::Probe => at.cycle == LAST_PROBE,
        Stage::Publish => true,
        Stage::Write => is.write_taken,
        Stage::Wait => !is.is_lent && !is.has_notice && !is.device_failed && !is.in_flight,
        Stage::Pages | Stage::Slots => is.part_ends && !is.part_refuses,
        _ => false,
    }
}

/// Tells whether an instruction with this action ends in [`Stage::Apply`].
#[kernel]
fn ends_in_apply(action: Action) -> Bit {
    match action {
        Action::Finish
        | Action::Find
        | Action::Setup
        | Action::Publish
        | Action::Wait
        | Action::Pages
        | Action::Slots
        | Action::Probe
        | Action::Write => false,
        _ => true,
    }
}

/// Tells whether the sweep of a reset is done with an object.
#[kernel]
pub(super) fn sweep_advances(stage: Stage, at: Position, is: Conditions) -> Bit {
    (stage == Stage::Swept && !is.must_forget)
        || (stage == Stage::Apply
            && !is.refuses
            && at.action == Action::Finish
            && at.routine == Routine::Forget)
}

/// Gives the next stage.
#[kernel]
pub(super) fn next_stage(stage: Stage, at: Position, is: Conditions) -> Stage {
    if advances(stage, at, is) {
        Stage::Fetch
    } else if sweep_advances(stage, at, is) {
        if is.sweep_ends { Stage::Idle } else { Stage::Sweep }
    } else {
        match stage {
            Stage::Idle => {
                if is.begins_forget {
                    Stage::Sweep
                } else if is.begins_routine {
                    Stage::Copy
                } else if is.has_notice && !is.is_lent {
                    Stage::Lookup
                } else {
                    Stage::Idle
                }
            }
            Stage::Copy => {
                if at.cycle == LAST_WORD {
                    Stage::Fetch
                } else {
                    Stage::Copy
                }
            }
            Stage::Fetch => {
                if is.is_lent {
                    Stage::Fetch
                } else {
                    Stage::Source
                }
            }
            Stage::Source => Stage::Target,
            Stage::Target => Stage::Rotate,
            Stage::Rotate => Stage::Execute,
            Stage::Execute => Stage::Apply,
            Stage::Apply => after_apply(at, is.refuses),
            Stage::Lookup => Stage::LookupWait,
            Stage::LookupWait => match at.lookup {
                LookupReason::Find => Stage::Found,
                LookupReason::Notice => Stage::Decide,
                LookupReason::Forget => Stage::Swept,
            },
            Stage::Found => Stage::Respond,
            Stage::Load => {
                if at.cycle == LAST_LOAD {
                    after_load(at.load, is.keeps_state)
                } else {
                    Stage::Load
                }
            }
            Stage::Setup => after_setup(at, is),
            Stage::Probe => Stage::Probe,
            Stage::Publish => Stage::Fetch,
            Stage::Write => Stage::Write,
            Stage::Wait => {
                if is.has_notice && !is.is_lent {
                    Stage::Lookup
                } else if is.device_failed && !is.is_lent {
                    Stage::Respond
                } else {
                    Stage::Wait
                }
            }
            Stage::Pages => {
                if is.is_between_slots && is.has_notice {
                    Stage::Lookup
                } else if is.is_between_slots && is.device_failed {
                    Stage::Respond
                } else if is.part_ends {
                    Stage::Respond
                } else {
                    Stage::Pages
                }
            }
            Stage::Slots => {
                if is.part_ends {
                    Stage::Respond
                } else {
                    Stage::Slots
                }
            }
            Stage::Respond => {
                if is.outcome_taken {
                    Stage::Idle
                } else {
                    Stage::Respond
                }
            }
            Stage::Decide => {
                if is.notice_applies {
                    Stage::Load
                } else {
                    at.interrupted
                }
            }
            Stage::Raise => {
                if is.event_free {
                    at.interrupted
                } else {
                    Stage::Raise
                }
            }
            Stage::Sweep => Stage::Lookup,
            Stage::Swept => Stage::Fetch,
        }
    }
}

#[kernel]
fn after_apply(at: Position, refuses: Bit) -> Stage {
    if refuses {
        Stage::Respond
    } else {
        match at.action {
            Action::Find => Stage::Lookup,
            Action::Setup | Action::Probe | Action::Publish | Action::Write | Action::Pages => Stage::Load,
            Action::Wait => Stage::Wait,
            Action::Slots => Stage::Slots,
            Action::Finish => {
                if at.routine == Routine::Command {
                    Stage::Respond
                } else {
                    Stage::Idle
                }
            }
            _ => Stage::Fetch,
        }
    }
}

#[kernel]
fn after_load(load: LoadReason, keeps_state: Bit) -> Stage {
    match load {
        LoadReason::Publish => Stage::Publish,
        LoadReason::Write => Stage::Write,
        LoadReason::Notice => {
            if keeps_state {
                Stage::Raise
            } else {
                Stage::Setup
            }
        }
        LoadReason::Pages => Stage::Pages,
        _ => Stage::Setup,
    }
}

/// Of an instruction, only a probe is not done when the setup event is taken.
#[kernel]
fn after_setup(at: Position, is: Conditions) -> Stage {
    if !is.setup_taken {
        Stage::Setup
    } else if at.load == LoadReason::Notice {
        if is.has_event { Stage::Raise } else { at.interrupted }
    } else {
        Stage::Probe
    }
}

/// Gives the count of cycles within the next stage, or within this one.
#[kernel]
pub(super) fn next_cycle(stage: Stage, cycle: Bits<CYCLE_BITS>) -> Bits<CYCLE_BITS> {
    match stage {
        Stage::Copy | Stage::Probe => cycle + 1,
        Stage::Load => select(cycle == LAST_LOAD, bits::<CYCLE_BITS>(0), cycle + 1),
        _ => bits(0),
    }
}

/// Tells whether `invalidate` may take the store: between two instructions, and while something outside is waited for.
#[kernel]
pub(super) fn may_lend(stage: Stage) -> Bit {
    stage == Stage::Idle
        || stage == Stage::Fetch
        || stage == Stage::Setup
        || stage == Stage::Write
        || stage == Stage::Wait
        || stage == Stage::Pages
        || stage == Stage::Slots
        || stage == Stage::Respond
        || stage == Stage::Raise
}

/// Tells whether the next slot of a list of pages may be read: a notice goes first, as it may use the registers that hold the
/// words, and nothing is read for a device that has failed.
#[kernel]
pub(super) fn may_ask_for_list(stage: Stage, has_notice: Bit, device_failed: Bit) -> Bit {
    stage == Stage::Pages && !has_notice && !device_failed
}

/// What an idle sequencer begins; at most one of the first three.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Begins {
    /// A sweep over all objects.
    pub(super) forget: Bit,
    /// The routine of event queue 0.
    pub(super) queue_0: Bit,
    /// A command.
    pub(super) command: Bit,
    /// A command that is offered is taken.
    pub(super) takes_command: Bit,
}

/// Chooses what an idle sequencer begins: notices first, then a reset, event queue 0, and commands.
#[kernel]
pub(super) fn begin(
    is_idle: Bit,
    has_notice: Bit,
    forgets: Bit,
    has_queue_0: Bit,
    has_command: Bit,
) -> Begins {
    let is_free = is_idle && !has_notice;
    let takes_command = is_free && !forgets && !has_queue_0;
    Begins {
        forget: is_free && forgets,
        queue_0: is_free && !forgets && has_queue_0,
        command: takes_command && has_command,
        takes_command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Conditions = Conditions {
        is_lent: false,
        has_notice: false,
        device_failed: false,
        begins_forget: false,
        begins_routine: false,
        skips: false,
        refuses: false,
        is_found: false,
        setup_taken: false,
        write_taken: false,
        outcome_taken: false,
        event_free: false,
        in_flight: false,
        is_between_slots: false,
        part_ends: false,
        part_refuses: false,
        notice_applies: false,
        keeps_state: false,
        has_event: false,
        must_forget: false,
        sweep_ends: false,
    };

    fn at(cycle: u64, action: Action) -> Position {
        Position { cycle: bits(cycle), action, interrupted: Stage::Idle, ..Position::default() }
    }

    /// One row: stage, registers, conditions, and the stage that follows; `true` if the next instruction does.
    type Row = (Stage, Position, Conditions, Stage, bool);

    fn check(rows: &[Row]) {
        for &(stage, at, is, next, is_next_instruction) in rows {
            assert_eq!(next_stage(stage, at, is), next, "{stage:?} {at:?} {is:?}");
            assert_eq!(advances(stage, at, is), is_next_instruction, "{stage:?} {at:?} {is:?}");
        }
    }

    #[test]
    fn an_instruction_takes_six_cycles_and_two_if_its_flag_is_not_set() {
        let at = at(0, Action::Move);
        check(&[
            (Stage::Fetch, at, NONE, Stage::Source, false),
            (Stage::Fetch, at, Conditions { is_lent: true, ..NONE }, Stage::Fetch, false),
            (Stage::Source, at, NONE, Stage::Target, false),
            (Stage::Source, at, Conditions { skips: true, ..NONE }, Stage::Fetch, true),
            (Stage::Target, at, NONE, Stage::Rotate, false),
            (Stage::Rotate, at, NONE, Stage::Execute, false),
            (Stage::Execute, at, NONE, Stage::Apply, false),
            (Stage::Apply, at, NONE, Stage::Fetch, true),
            (Stage::Apply, at, Conditions { refuses: true, ..NONE }, Stage::Respond, false),
        ]);
    }

    #[test]
    fn every_action_goes_on_where_its_work_is_done() {
        let routine = |routine| Position { routine, ..at(0, Action::Finish) };
        check(&[
            (Stage::Apply, at(0, Action::Put), NONE, Stage::Fetch, true),
            (Stage::Apply, at(0, Action::Flags), NONE, Stage::Fetch, true),
            (Stage::Apply, at(0, Action::RefuseTransition), NONE, Stage::Fetch, true),
            (Stage::Apply, at(0, Action::Find), NONE, Stage::Lookup, false),
            (Stage::Apply, at(0, Action::Setup), NONE, Stage::Load, false),
            (Stage::Apply, at(0, Action::Probe), NONE, Stage::Load, false),
            (Stage::Apply, at(0, Action::Publish), NONE, Stage::Load, false),
            (Stage::Apply, at(0, Action::Write), NONE, Stage::Load, false),
            (Stage::Apply, at(0, Action::Pages), NONE, Stage::Load, false),
            (Stage::Apply, at(0, Action::Wait), NONE, Stage::Wait, false),
            (Stage::Apply, routine(Routine::Command), NONE, Stage::Respond, false),
            (Stage::Apply, routine(Routine::EventQueue0), NONE, Stage::Idle, false),
            (Stage::Apply, routine(Routine::Forget), NONE, Stage::Sweep, false),
            (
                Stage::Apply,
                routine(Routine::Forget),
                Conditions { sweep_ends: true, ..NONE },
                Stage::Idle,
                false,
            ),
        ]);
    }

    #[test]
    fn an_idle_sequencer_begins_what_was_chosen() {
        let at = at(0, Action::Finish);
        check(&[
            (Stage::Idle, at, NONE, Stage::Idle, false),
            (Stage::Idle, at, Conditions { has_notice: true, ..NONE }, Stage::Lookup, false),
            (Stage::Idle, at, Conditions { has_notice: true, is_lent: true, ..NONE }, Stage::Idle, false),
            (Stage::Idle, at, Conditions { begins_forget: true, ..NONE }, Stage::Sweep, false),
            (Stage::Idle, at, Conditions { begins_routine: true, ..NONE }, Stage::Copy, false),
        ]);
        // Idle, notice, reset, event queue 0, command; what begins.
        let none = Begins::default();
        for (is_idle, has_notice, forgets, has_queue_0, has_command, expected) in [
            (false, false, true, true, true, none),
            (true, true, true, true, true, none),
            (true, false, true, true, true, Begins { forget: true, ..none }),
            (true, false, false, true, true, Begins { queue_0: true, ..none }),
            (true, false, false, false, true, Begins { command: true, takes_command: true, ..none }),
            (true, false, false, false, false, Begins { takes_command: true, ..none }),
        ] {
            let found = begin(is_idle, has_notice, forgets, has_queue_0, has_command);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn counted_stages_last_as_long_as_they_count() {
        let load = |cycle, load| Position { load, ..at(cycle, Action::Setup) };
        let keeps_state = Conditions { keeps_state: true, ..NONE };
        check(&[
            (Stage::Copy, at(LAST_WORD - 1, Action::Finish), NONE, Stage::Copy, false),
            (Stage::Copy, at(LAST_WORD, Action::Finish), NONE, Stage::Fetch, false),
            (Stage::Probe, at(LAST_PROBE - 1, Action::Probe), NONE, Stage::Probe, false),
            (Stage::Probe, at(LAST_PROBE, Action::Probe), NONE, Stage::Fetch, true),
            (Stage::Load, load(LAST_LOAD - 1, LoadReason::Publish), NONE, Stage::Load, false),
            (Stage::Load, load(LAST_LOAD, LoadReason::Publish), NONE, Stage::Publish, false),
            (Stage::Load, load(LAST_LOAD, LoadReason::Setup), NONE, Stage::Setup, false),
            (Stage::Load, load(LAST_LOAD, LoadReason::Write), NONE, Stage::Write, false),
            (Stage::Load, load(LAST_LOAD, LoadReason::Pages), NONE, Stage::Pages, false),
            (Stage::Load, load(LAST_LOAD, LoadReason::Notice), NONE, Stage::Setup, false),
            (Stage::Load, load(LAST_LOAD, LoadReason::Notice), keeps_state, Stage::Raise, false),
        ]);
        for (stage, cycle, next) in [
            (Stage::Copy, LAST_WORD, LAST_WORD + 1),
            (Stage::Fetch, LAST_WORD + 1, 0),
            (Stage::Load, LAST_LOAD - 1, LAST_LOAD),
            (Stage::Load, LAST_LOAD, 0),
            (Stage::Probe, LAST_PROBE - 1, LAST_PROBE),
            (Stage::Probe, LAST_PROBE, 0),
            (Stage::Setup, 3, 0),
        ] {
            assert_eq!(next_cycle(stage, bits(cycle)), bits(next), "{stage:?} {cycle}");
        }
    }

    #[test]
    fn a_setup_is_offered_until_it_is_taken() {
        let position = |action, load| Position { load, interrupted: Stage::Wait, ..at(0, action) };
        let setup = position(Action::Setup, LoadReason::Setup);
        let notice = position(Action::Setup, LoadReason::Notice);
        let taken = Conditions { setup_taken: true, ..NONE };
        check(&[
            (Stage::Setup, setup, NONE, Stage::Setup, false),
            (Stage::Setup, setup, taken, Stage::Fetch, true),
            (Stage::Setup, position(Action::Probe, LoadReason::Setup), taken, Stage::Probe, false),
            (Stage::Setup, notice, NONE, Stage::Setup, false),
            (Stage::Setup, notice, taken, Stage::Wait, false),
            (Stage::Setup, notice, Conditions { has_event: true, ..taken }, Stage::Raise, false),
            (Stage::Raise, notice, NONE, Stage::Raise, false),
            (Stage::Raise, notice, Conditions { event_free: true, ..NONE }, Stage::Wait, false),
            (Stage::Publish, setup, NONE, Stage::Fetch, true),
            (Stage::Write, setup, NONE, Stage::Write, false),
            (Stage::Write, setup, Conditions { write_taken: true, ..NONE }, Stage::Fetch, true),
            (Stage::Respond, setup, NONE, Stage::Respond, false),
            (Stage::Respond, setup, Conditions { outcome_taken: true, ..NONE }, Stage::Idle, false),
        ]);
    }

    #[test]
    fn waiting_ends_for_notices_and_for_a_failed_device() {
        let at = at(0, Action::Wait);
        let waits = Conditions { in_flight: true, ..NONE };
        check(&[
            (Stage::Wait, at, NONE, Stage::Fetch, true),
            (Stage::Wait, at, Conditions { is_lent: true, ..NONE }, Stage::Wait, false),
            (Stage::Wait, at, waits, Stage::Wait, false),
            (Stage::Wait, at, Conditions { has_notice: true, ..waits }, Stage::Lookup, false),
            (Stage::Wait, at, Conditions { has_notice: true, is_lent: true, ..waits }, Stage::Wait, false),
            (Stage::Wait, at, Conditions { device_failed: true, ..NONE }, Stage::Respond, false),
            (Stage::Wait, at, Conditions { device_failed: true, is_lent: true, ..NONE }, Stage::Wait, false),
            (
                Stage::Wait,
                at,
                Conditions { device_failed: true, has_notice: true, ..NONE },
                Stage::Lookup,
                false,
            ),
        ]);
        let between = Conditions { is_between_slots: true, ..NONE };
        check(&[
            (Stage::Pages, at, NONE, Stage::Pages, false),
            (
                Stage::Pages,
                at,
                Conditions { has_notice: true, device_failed: true, ..NONE },
                Stage::Pages,
                false,
            ),
            (Stage::Pages, at, between, Stage::Pages, false),
            (
                Stage::Pages,
                at,
                Conditions { has_notice: true, device_failed: true, ..between },
                Stage::Lookup,
                false,
            ),
            (Stage::Pages, at, Conditions { device_failed: true, ..between }, Stage::Respond, false),
            (Stage::Pages, at, Conditions { part_ends: true, ..NONE }, Stage::Fetch, true),
            (
                Stage::Pages,
                at,
                Conditions { part_ends: true, part_refuses: true, ..NONE },
                Stage::Respond,
                false,
            ),
        ]);
        let ended = Conditions { part_ends: true, ..NONE };
        check(&[
            (Stage::Slots, at, NONE, Stage::Slots, false),
            (
                Stage::Slots,
                at,
                Conditions { has_notice: true, device_failed: true, ..NONE },
                Stage::Slots,
                false,
            ),
            (Stage::Slots, at, ended, Stage::Fetch, true),
            (Stage::Slots, at, Conditions { part_refuses: true, ..ended }, Stage::Respond, false),
        ]);
    }

    #[test]
    fn a_lookup_ends_where_it_was_asked_for() {
        let lookup = |lookup| Position { lookup, interrupted: Stage::Pages, ..at(0, Action::Find) };
        let find = lookup(LookupReason::Find);
        check(&[
            (Stage::Lookup, find, NONE, Stage::LookupWait, false),
            (Stage::LookupWait, find, NONE, Stage::Found, false),
            (Stage::LookupWait, lookup(LookupReason::Notice), NONE, Stage::Decide, false),
            (Stage::LookupWait, lookup(LookupReason::Forget), NONE, Stage::Swept, false),
            (Stage::Found, find, NONE, Stage::Respond, false),
            (Stage::Found, find, Conditions { is_found: true, ..NONE }, Stage::Fetch, true),
            (Stage::Decide, find, NONE, Stage::Pages, false),
            (Stage::Decide, find, Conditions { notice_applies: true, ..NONE }, Stage::Load, false),
            (Stage::Sweep, find, NONE, Stage::Lookup, false),
            (Stage::Swept, find, Conditions { must_forget: true, ..NONE }, Stage::Fetch, false),
            (Stage::Swept, find, NONE, Stage::Sweep, false),
            (Stage::Swept, find, Conditions { sweep_ends: true, ..NONE }, Stage::Idle, false),
        ]);
    }

    /// A stage that `invalidate` may interrupt reads no word of the store for itself.
    #[test]
    fn the_store_is_lent_where_nothing_is_read() {
        let lent = [
            Stage::Idle,
            Stage::Fetch,
            Stage::Setup,
            Stage::Write,
            Stage::Wait,
            Stage::Pages,
            Stage::Slots,
            Stage::Respond,
            Stage::Raise,
        ];
        let kept = [
            Stage::Copy,
            Stage::Source,
            Stage::Target,
            Stage::Rotate,
            Stage::Execute,
            Stage::Apply,
            Stage::Lookup,
            Stage::LookupWait,
            Stage::Found,
            Stage::Load,
            Stage::Probe,
            Stage::Publish,
            Stage::Decide,
            Stage::Sweep,
            Stage::Swept,
        ];
        assert!(lent.into_iter().all(may_lend) && !kept.into_iter().any(may_lend));
    }

    #[test]
    fn a_list_of_pages_is_read_between_notices_while_the_device_works() {
        for (stage, has_notice, device_failed, expected) in [
            (Stage::Pages, false, false, true),
            (Stage::Pages, true, false, false),
            (Stage::Pages, false, true, false),
            (Stage::Pages, true, true, false),
            (Stage::Apply, false, false, false),
            (Stage::Load, false, false, false),
        ] {
            let may_ask = may_ask_for_list(stage, has_notice, device_failed);
            assert_eq!(may_ask, expected, "{stage:?} {has_notice} {device_failed}");
        }
    }
}
