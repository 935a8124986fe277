//! Admin ring: fetches commands from the host's ring, one at a time, and writes their answers.
//!
//! ```text
//!  doorbell ──> ┌───────┐  admin_read    ┌────────┐  command   ┌─────┐  outcome   ┌────────┐  admin_write
//!  registers ──>│ begin ├───────────────>│ fetch  ├───────────>│ run ├───────────>│ answer ├───────────────> done?
//!               └───────┘  <─ admin_slot └────────┘            └─────┘ write ────>└────────┘     └──> event
//! ```
//!
//! ```text
//!  Idle ─> Read ─> Fetch ─> Run ─> Running ─> Settle ─> Answer ─> Done ─> Raise ─> Idle
//!                    │ └── the device has failed ──^
//!                    └── the host refuses the read ─> Idle
//! ```
//!
//! Throughput: one command at a time: a host read, its instructions, the writes of a query, the write of the answer.
//!
//! 1. Answer i belongs to command i and is written at index i of the answer ring, with the phase of its pass.
//! 2. What a query writes is done before its answer is written; if the host refused it, the answer says so.
//! 3. The event of an answer follows when the write of the answer is done.
//! 4. A command that cannot be read, or an answer that cannot be written, stops the queue, and is fatal for the device.
//! 5. Once the device has failed, commands are answered with that status, and not executed.
//! 6. While a command runs, slots of its list of pages are read for it, one at a time; a read that the host refuses fails that
//!    command only.
//! 7. When the queue is enabled again, a command that began before ends without an answer.
//!
//! Refuses doorbells that claim more commands than the ring holds: they are ignored.
//!
//! Design decision 12.
use crate::messages::{AdminHost, AdminRegistersRx, FatalReport, Outcome};
use crate::sequencer::COMMAND_BITS;
use rnic_blocks::stream::{StreamRx, StreamTx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_layout::admin::{ANSWER_BYTES, COMMAND_BYTES, CommandStatus};
use rnic_layout::queue::event::EventKind;
use rnic_layout::registers::FatalCode;
use rnic_messages::complete::EqeToken;
use rnic_messages::host::{HostSpan, SlotWrite};
use rnic_messages::pool::LEVEL_BITS;
use rnic_messages::sizes::WRITE_COUNT_BITS;

/// Slots of a ring at most, as a power of two.
pub const SLOTS_LOG2_MAX: usize = 8;
const LARGEST: u64 = SLOTS_LOG2_MAX as u64;
/// Width of a number of slots.
const COUNT_BITS: usize = SLOTS_LOG2_MAX + 1;
const COMMAND_LOG2: usize = COMMAND_BYTES.trailing_zeros() as usize;
const ANSWER_LOG2: usize = ANSWER_BYTES.trailing_zeros() as usize;
const COMMAND_RING: usize = SLOTS_LOG2_MAX + COMMAND_LOG2;
const ANSWER_RING: usize = SLOTS_LOG2_MAX + ANSWER_LOG2;
/// Bits of a slot after an answer.
const BEYOND_ANSWER: usize = 512 - 128;

/// What the block does in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Stage {
    /// Waits for commands.
    Idle,
    /// Asks the host for the next command.
    Read,
    /// Waits for the command.
    Fetch,
    /// Offers it to the sequencer.
    Run,
    /// Waits for its outcome.
    Running,
    /// Waits until the writes of a query are done.
    Settle,
    /// Writes the answer.
    Answer,
    /// Waits until that write is done.
    Done,
    /// Raises the event.
    Raise,
}

/// Conditions of this cycle that decide which stage follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Conditions {
    /// The ring has a command, and it may begin.
    begins: Bit,
    /// The host reader takes the read.
    read_taken: Bit,
    /// A slot has arrived.
    slot_valid: Bit,
    /// The host refused to read it.
    slot_error: Bit,
    device_failed: Bit,
    /// The sequencer takes the command.
    command_taken: Bit,
    outcome_valid: Bit,
    /// All writes are done.
    all_done: Bit,
    /// The host refused one of them.
    write_failed: Bit,
    /// The queue was enabled again since the command began.
    is_old: Bit,
    /// The host writer takes the answer.
    answer_taken: Bit,
    event_on_answer: Bit,
    /// The event is taken.
    event_taken: Bit,
}

/// Commands that have ended, one bit a counter; registered, one cycle each.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CommandCounts {
    /// A command succeeded.
    pub executed: Bit,
    /// A command was refused, or the host refused what it wrote.
    pub refused: Bit,
}

/// Fetches and answers commands.
#[clocked(reset = "drops the command that runs")]
#[derive(Default, LogicBlock, Registers)]
pub struct AdminRing {
    /// To and from the registers; what this block drives is registered.
    pub registers: AdminRegistersRx,
    /// The device has failed; only a reset clears that.
    pub device_failed: Signal<In, Bit>,
    /// Why the device failed here, in the cycle in which it does; registered.
    pub fatal: ValidTx<FatalReport>,

    /// To and from the host.
    pub admin: AdminHost,
    /// To event queue 0: an answer was written; a function of registers.
    pub event: StreamTx<EqeToken>,
    /// To the counters: commands that have ended.
    pub counts: Signal<Out, CommandCounts>,
    /// Commands that were posted and not answered; registered.
    pub level: Signal<Out, Bits<LEVEL_BITS>>,

    /// To the sequencer: the command; a function of registers.
    pub command: StreamTx<Bits<COMMAND_BITS>>,
    /// From the sequencer: the outcome of the command; `ready` is a function of registers.
    pub outcome: StreamRx<Outcome>,
    /// From the sequencer: slots of a list of pages, one at a time; `ready` is that of `admin_read`, while a command runs.
    pub list_read: StreamRx<HostSpan>,
    /// To the sequencer: `command` holds that slot; registered, one cycle.
    pub list_valid: Signal<Out, Bit>,
    /// The host refused to read that slot; registered.
    pub list_error: Signal<Out, Bit>,
    /// From the sequencer: what a query writes; `ready` is that of `admin_write`, while a command runs.
    pub write: StreamRx<SlotWrite>,

    stage: Reg<Stage>,
    was_enabled: Reg<Bit>,
    producer: Reg<Bits<16>>,
    consumer: Reg<Bits<16>>,
    has_stopped: Reg<Bit>,
    /// The command that runs began before the queue was enabled again.
    is_old: Reg<Bit>,
    index: DFF<Bits<16>>,
    address: DFF<Bits<64>>,
    /// A command, then slots of its list of pages.
    held: DFF<Bits<COMMAND_BITS>>,
    /// The first word of the command, which its answer repeats.
    header: DFF<Bits<64>>,
    has_list: Reg<Bit>,
    has_list_error: DFF<Bit>,
    outcome_held: DFF<Outcome>,
    issued: Reg<Bits<WRITE_COUNT_BITS>>,
    saw_failure: Reg<Bit>,
    fatal_held: DFF<FatalReport>,
    is_fatal: Reg<Bit>,
    ended: Reg<CommandCounts>,
    level_held: DFF<Bits<LEVEL_BITS>>,
}

/// Gives the slots of a ring.
#[kernel]
fn ring_slots(log2: Bits<4>) -> Bits<COUNT_BITS> {
    let most = bits::<COUNT_BITS>(1) << LARGEST;
    select(log2 > LARGEST, most, bits::<COUNT_BITS>(1) << log2)
}

/// Gives the index of a slot within a ring.
#[kernel]
fn slot_of(index: Bits<16>, slots: Bits<COUNT_BITS>) -> Bits<SLOTS_LOG2_MAX> {
    index.get_bits::<SLOTS_LOG2_MAX>(0) & (slots - 1).get_bits::<SLOTS_LOG2_MAX>(0)
}

/// Gives the phase of an answer: one in the first pass over the ring.
#[kernel]
fn phase_of(index: Bits<16>, slots: Bits<COUNT_BITS>) -> Bit {
    !(index.get_bits::<COUNT_BITS>(0) & slots).any()
}

/// Tells whether a doorbell counts: it claims no more commands than the ring holds.
#[kernel]
fn is_within(doorbell: Bits<16>, consumer: Bits<16>, slots: Bits<COUNT_BITS>) -> Bit {
    doorbell - consumer <= bit_cast::<16, COUNT_BITS>(slots)
}

/// Gives an answer of 16 bytes, and zeros after it.
#[kernel]
fn answer(header: Bits<64>, outcome: Outcome, phase: Bit) -> Bits<512> {
    cat!(
        bits::<BEYOND_ANSWER>(0),
        bits::<7>(0),
        phase,
        bits::<24>(0),
        outcome.detail,
        header.get_bits::<32>(32),
        bits::<3>(0),
        outcome.status,
        header.get_bits::<8>(0),
        header.get_bits::<16>(16)
    )
}

/// Gives the address of a page from the value of a register.
#[kernel]
fn page(base: Bits<64>) -> Bits<64> {
    cat!(base.get_bits::<52>(12), bits::<12>(0))
}

/// Gives the next stage.
#[kernel]
fn next_stage(stage: Stage, is: Conditions) -> Stage {
    match stage {
        Stage::Idle => {
            if is.begins {
                Stage::Read
            } else {
                Stage::Idle
            }
        }
        Stage::Read => {
            if is.read_taken {
                Stage::Fetch
            } else {
                Stage::Read
            }
        }
        Stage::Fetch => {
            if !is.slot_valid {
                Stage::Fetch
            } else if is.slot_error {
                Stage::Idle
            } else if is.device_failed {
                Stage::Settle
            } else {
                Stage::Run
            }
        }
        Stage::Run => {
            if is.command_taken {
                Stage::Running
            } else {
                Stage::Run
            }
        }
        Stage::Running => {
            if is.outcome_valid {
                Stage::Settle
            } else {
                Stage::Running
            }
        }
        Stage::Settle => {
            if !is.all_done {
                Stage::Settle
            } else if is.is_old {
                Stage::Idle
            } else {
                Stage::Answer
            }
        }
        Stage::Answer => {
            if is.answer_taken {
                Stage::Done
            } else {
                Stage::Answer
            }
        }
        Stage::Done => {
            if !is.all_done {
                Stage::Done
            } else if is.event_on_answer && !is.write_failed {
                Stage::Raise
            } else {
                Stage::Idle
            }
        }
        Stage::Raise => {
            if is.event_taken {
                Stage::Idle
            } else {
                Stage::Raise
            }
        }
    }
}

/// Tells whether the queue stops: the host refused to read a command or to write an answer.
#[kernel]
fn stops(stage: Stage, is: Conditions) -> Bit {
    (stage == Stage::Fetch && is.slot_valid && is.slot_error)
        || (stage == Stage::Done && is.all_done && is.write_failed)
}

/// Gives the code of a failure in a stage.
#[kernel]
fn fatal_code(stage: Stage) -> Bits<8> {
    if stage == Stage::Fetch {
        bits(FatalCode::HostReadError as u64)
    } else {
        bits(FatalCode::HostWriteError as u64)
    }
}

/// Gives the outcome that the answer has if it is written next.
#[kernel]
fn next_outcome(stage: Stage, held: Outcome, offered: Outcome, is: Conditions) -> Outcome {
    match stage {
        Stage::Fetch => Outcome { status: bits(CommandStatus::DeviceFailed as u64), detail: bits(0) },
        Stage::Running => offered,
        Stage::Settle => {
            let host_error = Outcome { status: bits(CommandStatus::HostError as u64), detail: bits(0) };
            select(is.all_done && is.write_failed, host_error, held)
        }
        _ => held,
    }
}

/// Counts a command when all that it writes before its answer is done.
#[kernel]
fn counts_of(stage: Stage, outcome: Outcome, is: Conditions) -> CommandCounts {
    let ends = stage == Stage::Settle && is.all_done;
    let succeeded = outcome.status == CommandStatus::Success as u64 && !is.write_failed;
    CommandCounts { executed: ends && succeeded, refused: ends && !succeeded }
}

impl Logic for AdminRing {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let stage = self.stage.q.val();
        let producer = self.producer.q.val();
        let consumer = self.consumer.q.val();
        let index = self.index.q.val();
        let address = self.address.q.val();
        let slots = ring_slots(self.registers.entries_log2.val());
        let outcome = self.outcome_held.q.val();
        let is_running = stage == Stage::Running;
        let is_answering = stage == Stage::Answer;
        let was_enabled = self.was_enabled.q.val();
        let has_command = !self.has_stopped.q.val() && producer != consumer;
        let is = Conditions {
            begins: self.registers.may_begin.val()
                && self.registers.enable.val()
                && was_enabled
                && has_command,
            read_taken: self.admin.read.ready.val(),
            slot_valid: self.admin.slot.valid.val(),
            slot_error: self.admin.slot.value.val().error,
            device_failed: self.device_failed.val(),
            command_taken: self.command.ready.val(),
            outcome_valid: self.outcome.valid.val(),
            all_done: self.admin.done_count.val() == self.issued.q.val(),
            write_failed: self.saw_failure.q.val() || self.admin.write_failed.val(),
            is_old: self.is_old.q.val(),
            answer_taken: self.admin.write.ready.val(),
            event_on_answer: self.registers.event_on_answer.val(),
            event_taken: self.event.ready.val(),
        };

        // To and from the host.
        self.admin.read.valid.next = stage == Stage::Read || (is_running && self.list_read.valid.val());
        self.admin.read.beat.next = HostSpan {
            address: select(is_running, self.list_read.beat.val().address, address),
            length: bits(COMMAND_BYTES as u64),
        };
        self.list_read.ready.next = is_running && self.admin.read.ready.val();
        self.list_valid.next = self.has_list.q.val();
        self.list_error.next = self.has_list_error.q.val();
        self.has_list.d.next = is_running && is.slot_valid;
        self.has_list_error.d.next = is.slot_error;
        let answer_write = SlotWrite {
            address,
            length: bits(ANSWER_BYTES as u64),
            data: answer(self.header.q.val(), outcome, phase_of(index, slots)),
            ..Default::default()
        };
        let writes = is_answering || (is_running && self.write.valid.val());
        self.write.ready.next = is_running && self.admin.write.ready.val();
        self.admin.write.offer(writes, select(is_answering, answer_write, self.write.beat.val()));
        if writes && self.admin.write.ready.val() {
            self.issued.d.next = self.issued.q.val() + 1;
        }

        // To and from the sequencer.
        self.command.offer(stage == Stage::Run, self.held.q.val());
        self.outcome.ready.next = is_running;
        if stage == Stage::Fetch || (is_running && is.slot_valid) {
            self.held.d.next = self.admin.slot.value.val().data;
        }

        // To the registers, to event queue 0, and to the counters.
        self.registers.producer_index.next = producer;
        self.registers.consumer_index.next = consumer;
        self.registers.busy.next = stage != Stage::Idle;
        self.registers.failed.next = self.has_stopped.q.val();
        self.fatal.offer(self.is_fatal.q.val(), self.fatal_held.q.val());
        self.event.valid.next = stage == Stage::Raise;
        self.event.beat.next = EqeToken {
            object_number: bits(0),
            detail: bit_cast::<32, 16>(index + 1),
            kind: bits(EventKind::AdminAnswer as u64),
            code: bits(0),
        };
        self.counts.next = self.ended.q.val();
        self.level_held.d.next = producer - consumer;
        self.level.next = self.level_held.q.val();

        self.stage.d.next = next_stage(stage, is);
        self.outcome_held.d.next = next_outcome(stage, outcome, self.outcome.beat.val(), is);
        self.ended.d.next = counts_of(stage, outcome, is);
        let begins_settled = stage == Stage::Settle && is.all_done;
        self.saw_failure.d.next = is.write_failed && stage != Stage::Idle && !begins_settled;
        self.is_fatal.d.next = stops(stage, is);
        if stops(stage, is) {
            self.has_stopped.d.next = true;
            self.fatal_held.d.next =
                FatalReport { code: fatal_code(stage), detail: address.get_bits::<32>(0) };
        }
        match stage {
            Stage::Idle => {
                self.is_old.d.next = false;
                self.index.d.next = consumer;
                self.address.d.next = page(self.registers.command_base.val())
                    + bit_cast::<64, COMMAND_RING>(cat!(slot_of(consumer, slots), bits::<COMMAND_LOG2>(0)));
            }
            Stage::Fetch => {
                self.header.d.next = self.admin.slot.value.val().data.get_bits::<64>(0);
                if is.slot_valid && !is.is_old {
                    self.consumer.d.next = consumer + 1;
                }
            }
            Stage::Settle => {
                self.address.d.next = page(self.registers.answer_base.val())
                    + bit_cast::<64, ANSWER_RING>(cat!(slot_of(index, slots), bits::<ANSWER_LOG2>(0)));
            }
            _ => {}
        }
        if self.registers.doorbell.valid.val()
            && is_within(self.registers.doorbell.value.val(), consumer, slots)
        {
            self.producer.d.next = self.registers.doorbell.value.val();
        }
        self.was_enabled.d.next = self.registers.enable.val();
        if self.registers.enable.val() && !was_enabled {
            self.producer.d.next = bits(0);
            self.consumer.d.next = bits(0);
            self.has_stopped.d.next = false;
            self.is_old.d.next = stage != Stage::Idle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_at_most_256_slots_and_its_phase_turns_each_pass() {
        for (log2, slots) in [(0, 1), (3, 8), (8, 256), (9, 256), (15, 256)] {
            assert_eq!(ring_slots(bits(log2)), bits(slots), "{log2}");
        }
        for (index, slot, phase) in
            [(0, 0, true), (7, 7, true), (8, 0, false), (15, 7, false), (16, 0, true), (0xffff, 7, false)]
        {
            assert_eq!((slot_of(bits(index), bits(8)), phase_of(bits(index), bits(8))), (bits(slot), phase));
        }
        for (doorbell, consumer, expected) in [
            (5, 5, true),
            (13, 5, true),
            (14, 5, false),
            (4, 5, false),
            (3, 0xfffb, true),
            (4, 0xfffb, false),
        ] {
            assert_eq!(is_within(bits(doorbell), bits(consumer), bits(8)), expected, "{doorbell} {consumer}");
        }
    }

    #[test]
    fn every_stage_waits_for_its_condition() {
        let none = Conditions::default();
        let slot = Conditions { slot_valid: true, ..none };
        let done = Conditions { all_done: true, ..none };
        for (stage, is, next, stops_queue) in [
            (Stage::Idle, none, Stage::Idle, false),
            (Stage::Idle, Conditions { begins: true, ..none }, Stage::Read, false),
            (Stage::Read, none, Stage::Read, false),
            (Stage::Read, Conditions { read_taken: true, ..none }, Stage::Fetch, false),
            (Stage::Fetch, Conditions { slot_error: true, ..none }, Stage::Fetch, false),
            (Stage::Fetch, slot, Stage::Run, false),
            (Stage::Fetch, Conditions { device_failed: true, ..slot }, Stage::Settle, false),
            (Stage::Fetch, Conditions { device_failed: true, slot_error: true, ..slot }, Stage::Idle, true),
            (Stage::Run, none, Stage::Run, false),
            (Stage::Run, Conditions { command_taken: true, ..none }, Stage::Running, false),
            (Stage::Running, Conditions { slot_error: true, ..slot }, Stage::Running, false),
            (Stage::Running, Conditions { outcome_valid: true, ..none }, Stage::Settle, false),
            (Stage::Settle, none, Stage::Settle, false),
            (Stage::Settle, done, Stage::Answer, false),
            (Stage::Settle, Conditions { write_failed: true, ..done }, Stage::Answer, false),
            (Stage::Settle, Conditions { is_old: true, ..done }, Stage::Idle, false),
            (Stage::Answer, done, Stage::Answer, false),
            (Stage::Answer, Conditions { answer_taken: true, ..none }, Stage::Done, false),
            (Stage::Done, none, Stage::Done, false),
            (Stage::Done, done, Stage::Idle, false),
            (Stage::Done, Conditions { event_on_answer: true, ..done }, Stage::Raise, false),
            (
                Stage::Done,
                Conditions { event_on_answer: true, write_failed: true, ..done },
                Stage::Idle,
                true,
            ),
            (Stage::Raise, none, Stage::Raise, false),
            (Stage::Raise, Conditions { event_taken: true, ..none }, Stage::Idle, false),
        ] {
            assert_eq!(next_stage(stage, is), next, "{stage:?} {is:?}");
            assert_eq!(stops(stage, is), stops_queue, "{stage:?} {is:?}");
        }
    }

    #[test]
    fn a_write_that_the_host_refused_turns_success_into_an_error() {
        let outcome = |status: CommandStatus| Outcome { status: bits(status as u64), detail: bits(64) };
        let host_error = Outcome { status: bits(CommandStatus::HostError as u64), detail: bits(0) };
        let counts = |executed, refused| CommandCounts { executed, refused };
        let (success, busy) = (outcome(CommandStatus::Success), outcome(CommandStatus::Busy));
        for (held, all_done, write_failed, expected, counted) in [
            (success, false, true, success, counts(false, false)),
            (success, true, false, success, counts(true, false)),
            (success, true, true, host_error, counts(false, true)),
            (busy, true, false, busy, counts(false, true)),
        ] {
            let is = Conditions { all_done, write_failed, ..Conditions::default() };
            assert_eq!(next_outcome(Stage::Settle, held, success, is), expected);
            assert_eq!(counts_of(Stage::Settle, held, is), counted);
            assert_eq!(counts_of(Stage::Done, held, is), counts(false, false));
        }
        let is = Conditions::default();
        assert_eq!(next_outcome(Stage::Running, success, busy, is), busy);
        assert_eq!(next_outcome(Stage::Answer, success, busy, is), success);
    }
}
