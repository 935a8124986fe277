//! Stage machine: decides what the sequencer does in each cycle, takes notices, and decides how commands end.
//!
//! ```text
//!  command, event queue 0, forget ──> begin ──┐
//!  verdict, word, ready ──> conditions ──> next_stage ──> stage ──> other blocks of the sequencer
//!  notice ──> lookup ──> decide ──────────────┘     └──> outcome, event
//! ```
//!
//! The stages and their order are in [`stage`](super::stage). Reset begins with [`Stage::Idle`].
use super::notice::{Notice, cause_number, choose, decide, event_code, notice_address, word_after};
use super::objects::{Lookup, Sweep, find, is_last, next_lookup, next_object};
use super::stage::{
    Begins, CYCLE_BITS, Conditions, LoadReason, Position, Routine, Stage, advances, begin, next_cycle,
    next_stage, sweep_advances,
};
use crate::alu::Verdict;
use crate::instruction::{Action, FIND_EXISTS, Instruction};
use crate::messages::{Outcome, PartState};
use crate::object_store::{KIND_BITS, STATE_BITS, STORE_BITS, VALID};
use crate::object_view::{number_of, state_of};
use rnic_blocks::logic::rom::ConstantRom;
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::admin::{COMMAND_BYTES, CommandStatus};
use rnic_layout::queue::event::EventKind;
use rnic_layout::state::{Cause, QpState, Service, after};
use rnic_messages::complete::EqeToken;
use rnic_messages::setup::{QpNotice, SrqLimitNotice};

/// Bits of a count of the writes of a query.
const CHUNK_COUNT_BITS: usize = 3;
const CHUNK_LOG2: usize = COMMAND_BYTES.trailing_zeros() as usize;
/// Bits of a count of bytes that a query has written.
const WRITTEN_BITS: usize = CHUNK_COUNT_BITS + CHUNK_LOG2;

/// Gives the state after a failure; the index is the state before and the number of the cause.
fn state_after(index: usize) -> Bits<STATE_BITS> {
    let state = QpState::from_number(index as u64 >> 2);
    let cause = Cause::from_number(index as u64 % 4);
    match (state, cause) {
        // Only this service can be created.
        (Some(state), Some(cause)) => {
            u64::from(after(Service::ReliableConnected, state, cause).number()).to_bits()
        }
        _ => bits(index as u64 >> 2),
    }
}

/// Decides on the stages of the sequencer.
#[clocked(reset = "ends what runs")]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct StageMachine {
    /// A command is offered.
    pub has_command: Signal<In, Bit>,
    /// Settings of event queue 0 wait to be taken.
    pub has_queue_0: Signal<In, Bit>,
    /// Settings of event queue 0 have changed in this cycle.
    pub new_queue_0: Signal<In, Bit>,
    /// Forget all objects; one cycle.
    pub forget: Signal<In, Bit>,
    /// The device has failed; only a reset clears that.
    pub device_failed: Signal<In, Bit>,
    /// Queue pairs that have failed or drained; `ready` is combinational from `is_lent`.
    pub notice: StreamRx<QpNotice>,
    /// Shared receive queues whose limit is reached; `ready` is combinational from `is_lent` and the `valid` of `notice`.
    pub srq_limit: StreamRx<SrqLimitNotice>,
    /// The outcome of a command; a function of registers.
    pub outcome: StreamTx<Outcome>,
    /// Asynchronous events; registered.
    pub event: StreamTx<EqeToken>,

    /// The instruction.
    pub instruction: Signal<In, Instruction>,
    /// The flag of the instruction is not set.
    pub skips: Signal<In, Bit>,
    /// What the ALU says of the instruction.
    pub verdict: Signal<In, Verdict>,
    /// Source word of the instruction, rotated.
    pub rotated: Signal<In, Bits<64>>,
    /// Header of the object that the routine is about.
    pub subject: Signal<In, Bits<STORE_BITS>>,
    /// Word of the store, two cycles after its address.
    pub word: Signal<In, Bits<64>>,
    /// What the object is loaded for.
    pub load: Signal<In, LoadReason>,
    /// Number of the object that is loaded.
    pub object_number: Signal<In, Bits<24>>,
    /// All stages of the card take the setup event that is offered.
    pub setup_ready: Signal<In, Bit>,
    /// The admin ring takes the write of a query.
    pub write_ready: Signal<In, Bit>,
    /// The store is lent to `invalidate`.
    pub is_lent: Signal<In, Bit>,
    /// No key is being invalidated, and none waits for it.
    pub keys_idle: Signal<In, Bit>,
    /// Something that is waited for is still in flight.
    pub in_flight: Signal<In, Bit>,
    /// `page_list` waits between two slots.
    pub is_asking: Signal<In, Bit>,
    /// State of the block that executes the instruction in stages `Pages` and `Slots`.
    pub part: Signal<In, PartState>,

    /// The stage; registered.
    pub stage: Signal<Out, Stage>,
    /// Cycles within the stage; registered.
    pub cycle: Signal<Out, Bits<CYCLE_BITS>>,
    /// What the microcode runs for; registered.
    pub routine: Signal<Out, Routine>,
    /// What begins in this cycle.
    pub begins: Signal<Out, Begins>,
    /// The next instruction follows.
    pub advances: Signal<Out, Bit>,
    /// The ALU has not refused the instruction, in stage `Apply`.
    pub succeeds: Signal<Out, Bit>,
    /// The stage writes a word of the store in this cycle.
    pub writes: Signal<Out, Bit>,
    /// The word after a notice.
    pub noticed: Signal<Out, Bits<64>>,
    /// A notice is offered.
    pub has_notice: Signal<Out, Bit>,
    /// Address of the word that is looked up; registered.
    pub lookup_address: Signal<Out, Bits<STORE_BITS>>,
    /// Kind of the object that a reset forgets; registered.
    pub sweep_kind: Signal<Out, Bits<KIND_BITS>>,
    /// Nothing runs or is asked for; registered.
    pub is_idle: Signal<Out, Bit>,
    /// A failure of an older generation was dropped; registered.
    pub counts_stale_dropped: Signal<Out, Bit>,

    /// State after a failure, by state and cause.
    #[init(ConstantRom::new(state_after))]
    states: ConstantRom<5, STATE_BITS>,
    #[init(Reg::new(Stage::Idle))]
    stage_held: Reg<Stage>,
    cycle_held: Reg<Bits<CYCLE_BITS>>,
    routine_held: DFF<Routine>,
    /// Microcode runs. Not reset: if it is set after a reset, the reset cut a routine off.
    is_running: DFF<Bit>,
    lookup: DFF<Lookup>,
    sweep: DFF<Sweep>,
    forget_pending: Reg<Bit>,
    /// The object whose command a reset has cut off.
    cut_off: DFF<Bits<STORE_BITS>>,
    has_cut_off: DFF<Bit>,
    notice_held: DFF<Notice>,
    is_within_wait: Reg<Bit>,
    is_within_pages: Reg<Bit>,
    chunks_written: DFF<Bits<CHUNK_COUNT_BITS>>,
    outcome_held: DFF<Outcome>,
    event_held: DFF<EqeToken>,
    event_valid: Reg<Bit>,
    stale: Reg<Bit>,
    idle: Reg<Bit>,
}

impl Logic for StageMachine {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let stage = self.stage_held.q.val();
        let cycle = self.cycle_held.q.val();
        let routine = self.routine_held.q.val();
        let instruction = self.instruction.val();
        let action = instruction.action;
        let constant = instruction.constant;
        let word = self.word.val();
        let verdict = self.verdict.val();
        let lookup = self.lookup.q.val();
        let sweep = self.sweep.q.val();
        let notice = self.notice_held.q.val();
        let part = self.part.val();
        let is_lent = self.is_lent.val();
        let is_queue_pair = self.notice.valid.val();
        let has_notice = is_queue_pair || self.srq_limit.valid.val();
        let (qp_notice, limit) = (self.notice.beat.val(), self.srq_limit.beat.val());
        let device_failed = self.device_failed.val();

        // What begins: notices first.
        let is_idle = stage == Stage::Idle && !is_lent;
        let is_between_slots = stage == Stage::Pages && self.is_asking.val() && !is_lent;
        let forgets = self.forget_pending.q.val();
        let has_command = self.has_command.val();
        let begins = begin(is_idle, has_notice, forgets, self.has_queue_0.val(), has_command);
        let takes_notice = is_idle || (stage == Stage::Wait && !is_lent) || is_between_slots;
        self.notice.ready.next = takes_notice;
        self.srq_limit.ready.next = takes_notice && !is_queue_pair;
        self.forget_pending.d.next = self.forget.val() || (forgets && !begins.forget);

        // What follows.
        self.states.address.next = cat!(state_of(word), cause_number(notice.of_queue_pair.kind));
        let next_state = self.states.value.val();
        let decision = decide(notice, word, next_state);
        let exists = word.get_bit(VALID);
        let has_number = exists && number_of(word) == lookup.number;
        let is_cut_off = self.has_cut_off.q.val() && lookup.address == self.cut_off.q.val();
        let interrupted = interrupted_stage(self.is_within_wait.q.val(), self.is_within_pages.q.val());
        let load = self.load.val();
        let at = Position { cycle, routine, lookup: lookup.reason, load, action, interrupted };
        let begins_routine = begins.queue_0 || begins.command;
        let event_free = !self.event_valid.q.val() || self.event.ready.val();
        let is = Conditions {
            is_lent,
            has_notice,
            device_failed,
            begins_forget: begins.forget,
            begins_routine,
            skips: self.skips.val(),
            refuses: verdict.refuses,
            is_found: select(constant.get_bit(FIND_EXISTS), has_number, !exists),
            setup_taken: self.setup_ready.val(),
            write_taken: self.write_ready.val(),
            outcome_taken: self.outcome.ready.val(),
            event_free,
            in_flight: self.in_flight.val(),
            is_between_slots,
            part_ends: part.is_done && !is_lent,
            part_refuses: part.outcome.status.any(),
            notice_applies: decision.applies,
            keeps_state: decision.keeps_state,
            has_event: notice.of_queue_pair.has_event,
            must_forget: exists || is_cut_off,
            sweep_ends: is_last(sweep),
        };
        let is_next_instruction = advances(stage, at, is);
        self.stage_held.d.next = next_stage(stage, at, is);
        self.cycle_held.d.next = next_cycle(stage, cycle);
        let noticed_at = notice_address(qp_notice, is_queue_pair, limit);
        self.lookup.d.next =
            next_lookup(stage, lookup, find(constant, self.rotated.val()), noticed_at, sweep);
        self.is_running.d.next = begins_routine || (self.is_running.q.val() && !ends(stage, at, is));
        if stage == Stage::Idle || stage == Stage::Wait || stage == Stage::Pages {
            self.notice_held.d.next = choose(qp_notice, is_queue_pair, limit);
        }
        if sweep_advances(stage, at, is) {
            self.sweep.d.next = next_object(sweep);
        }
        let chunks = self.chunks_written.q.val();
        let pages_fail = is_between_slots && !has_notice && device_failed;
        let outcome = self.outcome_held.q.val();
        self.outcome_held.d.next =
            next_outcome(stage, outcome, instruction, verdict, chunks, part.outcome, pages_fail);
        if self.event.ready.val() {
            self.event_valid.d.next = false;
        }
        match stage {
            Stage::Idle => {
                self.is_within_wait.d.next = false;
                self.is_within_pages.d.next = false;
                self.chunks_written.d.next = bits(0);
                self.sweep.d.next = Sweep::default();
                self.routine_held.d.next = next_routine(routine, begins);
                if begins.forget {
                    self.cut_off.d.next = self.subject.val();
                    self.has_cut_off.d.next = self.is_running.q.val();
                }
            }
            Stage::Write => {
                if self.write_ready.val() {
                    self.chunks_written.d.next = chunks + 1;
                }
            }
            Stage::Wait => {
                self.is_within_wait.d.next = true;
            }
            Stage::Pages => {
                self.is_within_pages.d.next = true;
            }
            Stage::Raise => {
                if event_free {
                    self.event_valid.d.next = true;
                    self.event_held.d.next = EqeToken {
                        object_number: self.object_number.val(),
                        detail: bits(0),
                        kind: bits(EventKind::Asynchronous as u64),
                        code: event_code(notice),
                    };
                }
            }
            _ => {}
        }

        self.stage.next = stage;
        self.cycle.next = cycle;
        self.routine.next = routine;
        self.begins.next = begins;
        self.advances.next = is_next_instruction;
        let succeeds = stage == Stage::Apply && !verdict.refuses;
        self.succeeds.next = succeeds;
        self.writes.next =
            writes_store(stage, succeeds && verdict.writes, is_next_instruction, decision.applies);
        self.noticed.next = word_after(notice, word, next_state);
        self.has_notice.next = has_notice;
        self.lookup_address.next = lookup.address;
        self.sweep_kind.next = sweep.kind;
        self.outcome.offer(stage == Stage::Respond, outcome);
        self.event.offer(self.event_valid.q.val(), self.event_held.q.val());
        self.idle.d.next = begins.takes_command
            && !has_command
            && !self.forget.val()
            && !self.new_queue_0.val()
            && self.keys_idle.val()
            && !self.event_valid.q.val();
        self.is_idle.next = self.idle.q.val();
        self.stale.d.next = stage == Stage::Decide && decision.is_stale;
        self.counts_stale_dropped.next = self.stale.q.val();
    }
}

/// Gives the stage in which a notice was taken.
#[kernel]
fn interrupted_stage(is_within_wait: Bit, is_within_pages: Bit) -> Stage {
    if is_within_wait {
        Stage::Wait
    } else if is_within_pages {
        Stage::Pages
    } else {
        Stage::Idle
    }
}

/// Gives the routine that runs from the next cycle on.
#[kernel]
fn next_routine(routine: Routine, begins: Begins) -> Routine {
    if begins.forget {
        Routine::Forget
    } else if begins.queue_0 {
        Routine::EventQueue0
    } else if begins.command {
        Routine::Command
    } else {
        routine
    }
}

/// Tells whether a word of the store is written: by an instruction that changes its target, by one that is done in this
/// cycle, or by a notice that applies.
#[kernel]
fn writes_store(stage: Stage, changes_target: Bit, advances: Bit, notice_applies: Bit) -> Bit {
    match stage {
        Stage::Copy => true,
        Stage::Apply => changes_target,
        Stage::Probe | Stage::Pages | Stage::Slots => advances,
        Stage::Decide => notice_applies,
        _ => false,
    }
}

/// Gives the outcome that a command has if it ends in the next cycle. `chunks` counts the writes of a query; `ended` is how
/// `page_list` or `read_slots` has ended.
#[kernel]
fn next_outcome(
    stage: Stage,
    outcome: Outcome,
    instruction: Instruction,
    verdict: Verdict,
    chunks: Bits<CHUNK_COUNT_BITS>,
    ended: Outcome,
    pages_fail: Bit,
) -> Outcome {
    let device_failed = Outcome { status: bits(CommandStatus::DeviceFailed as u64), detail: bits(0) };
    match stage {
        Stage::Apply => {
            if instruction.action == Action::Finish {
                Outcome { status: bits(CommandStatus::Success as u64), detail: bytes_written(chunks) }
            } else {
                Outcome { status: verdict.status, detail: verdict.detail }
            }
        }
        Stage::Found => Outcome { status: instruction.status, detail: bit_cast::<32, 9>(instruction.detail) },
        Stage::Wait => device_failed,
        Stage::Pages => select(pages_fail, device_failed, ended),
        Stage::Slots => ended,
        _ => outcome,
    }
}

/// Tells whether the microcode of a command, of event queue 0, or of a whole sweep ends.
#[kernel]
fn ends(stage: Stage, at: Position, is: Conditions) -> Bit {
    match stage {
        Stage::Apply => at.action == Action::Finish,
        Stage::Respond => is.outcome_taken,
        _ => sweep_advances(stage, at, is) && is.sweep_ends,
    }
}

/// Gives the detail of the outcome of a query.
#[kernel]
fn bytes_written(chunks: Bits<CHUNK_COUNT_BITS>) -> Bits<32> {
    bit_cast::<32, WRITTEN_BITS>(cat!(chunks, bits::<CHUNK_LOG2>(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_decides_how_its_command_would_end() {
        let outcome = |status: CommandStatus, detail: u64| Outcome {
            status: bits(u64::from(status.number())),
            detail: bits(detail),
        };
        use CommandStatus::{Busy, DeviceFailed, DoesNotExist, HostError, Misaligned, Success};
        let held = outcome(Misaligned, 1);
        let verdict = Verdict { status: bits(Busy as u64), detail: bits(2), ..Verdict::default() };
        let pages = outcome(HostError, 4);
        for (stage, action, pages_fail, expected) in [
            (Stage::Apply, Action::RefuseOnes, false, outcome(Busy, 2)),
            (Stage::Apply, Action::Finish, false, outcome(Success, 192)),
            (Stage::Found, Action::Find, false, outcome(DoesNotExist, 3)),
            (Stage::Wait, Action::Wait, false, outcome(DeviceFailed, 0)),
            (Stage::Pages, Action::Pages, false, pages),
            (Stage::Pages, Action::Pages, true, outcome(DeviceFailed, 0)),
            (Stage::Slots, Action::Slots, false, pages),
            (Stage::Load, Action::Pages, true, held),
            (Stage::Respond, Action::Finish, false, held),
        ] {
            let instruction = Instruction {
                action,
                status: bits(DoesNotExist as u64),
                detail: bits(3),
                ..Instruction::default()
            };
            let found = next_outcome(stage, held, instruction, verdict, bits(3), pages, pages_fail);
            assert_eq!(found, expected, "{stage:?} {action:?}");
        }
    }

    #[test]
    fn a_stage_writes_the_store_when_its_result_is_there() {
        for (stage, [changes, advances, applies], expected) in [
            (Stage::Copy, [false; 3], true),
            (Stage::Apply, [true, false, false], true),
            (Stage::Apply, [false, true, true], false),
            (Stage::Probe, [false, true, false], true),
            (Stage::Probe, [true, false, true], false),
            (Stage::Pages, [false, true, false], true),
            (Stage::Slots, [false, true, false], true),
            (Stage::Slots, [true, false, true], false),
            (Stage::Decide, [false, false, true], true),
            (Stage::Decide, [true, true, false], false),
            (Stage::Publish, [true; 3], false),
        ] {
            assert_eq!(writes_store(stage, changes, advances, applies), expected, "{stage:?}");
        }
    }

    /// A routine that runs is known over a reset, so that the object of a command that was cut off is forgotten, too.
    #[test]
    fn a_routine_ends_with_finish_with_its_outcome_or_with_the_last_object() {
        let none = Conditions::default();
        let taken = Conditions { outcome_taken: true, ..none };
        let last = Conditions { sweep_ends: true, ..none };
        let at = |action| Position { action, routine: Routine::Forget, ..Position::default() };
        for (stage, action, is, expected) in [
            (Stage::Apply, Action::Finish, none, true),
            (Stage::Apply, Action::Put, none, false),
            (Stage::Respond, Action::Finish, none, false),
            (Stage::Respond, Action::Finish, taken, true),
            (Stage::Swept, Action::Put, none, false),
            (Stage::Swept, Action::Put, last, true),
            (Stage::Swept, Action::Put, Conditions { must_forget: true, ..last }, false),
        ] {
            assert_eq!(ends(stage, at(action), is), expected, "{stage:?} {action:?}");
        }
    }
}
