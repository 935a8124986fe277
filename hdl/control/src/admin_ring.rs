//! Admin ring: fetches commands from the host's ring, one after the other, and writes their answers.
//!
//! ```text
//!  doorbell ──> ┌───────┐  admin_read    ┌────────┐  command   ┌─────┐  outcome   ┌────────┐  admin_write
//!  registers ──>│ begin ├───────────────>│ fetch  ├───────────>│ run ├───────────>│ answer ├───────────────> done?
//!               └───────┘  <─ admin_slot └────────┘            └─────┘ write ────>└────────┘     └──> event
//! ```
//!
//! One command at a time: a host read, its steps, the writes of a query, the write of the answer.
//!
//! 1. Answer i belongs to command i and stands at place i of the answer ring, with the phase of its pass.
//! 2. What a query writes is done before its answer is written; if the host refused it, the answer says so.
//! 3. The event of an answer follows when the write of the answer is done.
//! 4. A command that cannot be read, or an answer that cannot be written, stops the queue, and is fatal for the device.
//! 5. Once the device has failed, commands are answered with that, and not executed.
//! 6. While a command runs, slots that it wants are read for it, one at a time; one that cannot be read is its own affair.
//! 7. When the queue is enabled anew, a command of the time before ends without an answer.
//!
//! Refuses doorbells that claim more commands than the ring holds: they are ignored.
//!
//! Design decision 12.
use crate::messages::{FatalReport, Outcome};
use crate::sequencer::COMMAND_BITS;
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::admin::{ANSWER_BYTES, COMMAND_BYTES};
use rnic_messages::complete::EqeToken;
use rnic_messages::host::{HostSpan, Slot, SlotWrite};
use rnic_messages::sizes::WRITE_COUNT_BITS;

/// Entries of a ring at most, as a power of two.
pub const ENTRIES_LOG2_MAX: usize = 8;
const LARGEST: u64 = ENTRIES_LOG2_MAX as u64;
/// Width of a number of entries.
const COUNT_BITS: usize = ENTRIES_LOG2_MAX + 1;
const COMMAND_LOG2: usize = COMMAND_BYTES.trailing_zeros() as usize;
const ANSWER_LOG2: usize = ANSWER_BYTES.trailing_zeros() as usize;
const COMMAND_RING: usize = ENTRIES_LOG2_MAX + COMMAND_LOG2;
const ANSWER_RING: usize = ENTRIES_LOG2_MAX + ANSWER_LOG2;
/// Bits of an answer behind it in a slot.
const BEHIND_ANSWER: usize = 512 - 128;

/// Numbers of the contract, in the form in which kernels can use them.
mod number {
    use rnic_layout::admin::{ANSWER_BYTES, COMMAND_BYTES, CommandStatus};
    use rnic_layout::queue::event::EventKind;
    use rnic_layout::registers::FatalCode;

    pub(super) const COMMAND_BYTES_: u64 = COMMAND_BYTES as u64;
    pub(super) const ANSWER_BYTES_: u64 = ANSWER_BYTES as u64;
    pub(super) const SUCCESS: u64 = CommandStatus::Success as u64;
    pub(super) const HOST_ERROR: u64 = CommandStatus::HostError as u64;
    pub(super) const DEVICE_FAILED: u64 = CommandStatus::DeviceFailed as u64;
    pub(super) const ADMIN_ANSWER: u64 = EventKind::AdminAnswer as u64;
    pub(super) const HOST_READ_ERROR: u64 = FatalCode::HostReadError as u64;
    pub(super) const HOST_WRITE_ERROR: u64 = FatalCode::HostWriteError as u64;
}

/// Where the machine is.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum Stage {
    /// Waits for commands.
    Idle,
    /// Asks for one.
    Read,
    /// Waits for it.
    Fetch,
    /// Hands it over.
    Run,
    /// Waits for its outcome.
    Running,
    /// Waits for what it has written.
    Settle,
    /// Writes the answer.
    Answer,
    /// Waits for that.
    Done,
    /// Raises the event.
    Raise,
}

/// The block.
#[derive(Default, LogicBlock, Registers)]
pub struct AdminRing {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets the command under way.
    pub reset: Signal<In, Bit>,

    /// Register `admin_command_base`; the ring begins at a multiple of 4096.
    pub command_base: Signal<In, Bits<64>>,
    /// Register `admin_answer_base`; likewise.
    pub answer_base: Signal<In, Bits<64>>,
    /// Entries of both rings, as a power of two; more than 8 counts as 8.
    pub entries_log2: Signal<In, Bits<4>>,
    /// The queue runs; a rise starts it anew.
    pub enable: Signal<In, Bit>,
    /// Answers raise events.
    pub event_on_answer: Signal<In, Bit>,
    /// Commands may be begun.
    pub may_begin: Signal<In, Bit>,
    /// Commands ever written.
    pub doorbell: Signal<In, Bits<16>>,
    /// Software says so in this cycle.
    pub doorbell_valid: Signal<In, Bit>,
    /// Commands ever written, as far as they count; registered, as are those below.
    pub producer_index: Signal<Out, Bits<16>>,
    /// Commands ever read.
    pub consumer_index: Signal<Out, Bits<16>>,
    /// A command is under way, until its answer is written.
    pub busy: Signal<Out, Bit>,
    /// The queue has stopped.
    pub failed: Signal<Out, Bit>,
    /// Only a reset helps.
    pub device_failed: Signal<In, Bit>,
    /// The device has failed here; registered.
    pub fatal: Signal<Out, FatalReport>,
    /// In this cycle.
    pub fatal_valid: Signal<Out, Bit>,

    /// To the host: where the next command stands; a function of registers.
    pub admin_read: StreamTx<HostSpan>,
    /// From the host: the command.
    pub admin_slot: Signal<In, Slot>,
    /// It is there.
    pub admin_slot_valid: Signal<In, Bit>,
    /// To the host: what queries write, and answers; a function of registers.
    pub admin_write: StreamTx<SlotWrite>,
    /// How many of these writes are done, modulo 2^16.
    pub admin_done_count: Signal<In, Bits<WRITE_COUNT_BITS>>,
    /// One of them has failed, at the latest in the cycle in which it counts as done.
    pub write_failed: Signal<In, Bit>,
    /// An answer is written; a function of registers.
    pub event: StreamTx<EqeToken>,
    /// A command ended well; registered.
    pub counts_commands_executed: Signal<Out, Bit>,
    /// A command was refused; registered.
    pub counts_commands_refused: Signal<Out, Bit>,

    /// To execute: the command; a function of registers.
    pub command: StreamTx<Bits<COMMAND_BITS>>,
    /// From it: how it ended; `ready` is a function of registers.
    pub outcome: StreamRx<Outcome>,
    /// From it: slots that it wants of the host, one after the other; `ready` is that of `admin_read`, while a command runs.
    pub list_read: StreamRx<HostSpan>,
    /// To it: `command` holds that slot; registered, one cycle.
    pub list_valid: Signal<Out, Bit>,
    /// The host did not give it; registered.
    pub list_error: Signal<Out, Bit>,
    /// From it: what it writes; `ready` is that of `admin_write`, while a command runs.
    pub write: StreamRx<SlotWrite>,

    stage: Reg<Stage>,
    was_enabled: Reg<Bit>,
    producer: Reg<Bits<16>>,
    consumer: Reg<Bits<16>>,
    has_stopped: Reg<Bit>,
    /// The command under way is of the time before the queue was enabled anew.
    is_old: Reg<Bit>,
    index: DFF<Bits<16>>,
    address: DFF<Bits<64>>,
    /// A command, then slots that it wants.
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
    executed: Reg<Bit>,
    refused: Reg<Bit>,
}

/// The 16 bytes of an answer, and zeros behind them.
#[kernel]
fn answer(header: Bits<64>, outcome: Outcome, phase: Bit) -> Bits<512> {
    cat!(
        bits::<BEHIND_ANSWER>(0),
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

/// The beginning of a ring.
#[kernel]
fn page(base: Bits<64>) -> Bits<64> {
    cat!(base.get_bits::<52>(12), bits::<12>(0))
}

impl Logic for AdminRing {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let stage = self.stage.q.val();
        let producer = self.producer.q.val();
        let consumer = self.consumer.q.val();
        let size = if self.entries_log2.val() > LARGEST {
            bits::<COUNT_BITS>(1) << LARGEST
        } else {
            bits::<COUNT_BITS>(1) << self.entries_log2.val()
        };
        let mask: Bits<ENTRIES_LOG2_MAX> = (size - 1).get_bits::<ENTRIES_LOG2_MAX>(0);
        let index = self.index.q.val();
        let place = index.get_bits::<ENTRIES_LOG2_MAX>(0) & mask;
        let next_place = consumer.get_bits::<ENTRIES_LOG2_MAX>(0) & mask;
        // The phase is one in the first pass.
        let phase = !(index.get_bits::<COUNT_BITS>(0) & size).any();
        let starts = self.enable.val() && !self.was_enabled.q.val();
        let all_done = self.admin_done_count.val() == self.issued.q.val();
        let saw_failure = self.saw_failure.q.val() || self.write_failed.val();
        let held = self.held.q.val();
        let outcome = self.outcome_held.q.val();

        self.producer_index.next = producer;
        self.consumer_index.next = consumer;
        self.busy.next = stage != Stage::Idle;
        self.failed.next = self.has_stopped.q.val();
        self.fatal.next = self.fatal_held.q.val();
        self.fatal_valid.next = self.is_fatal.q.val();
        self.counts_commands_executed.next = self.executed.q.val();
        self.counts_commands_refused.next = self.refused.q.val();

        let runs = stage == Stage::Running;
        self.admin_read.valid.next = stage == Stage::Read || (runs && self.list_read.valid.val());
        self.admin_read.beat.next = HostSpan {
            address: if runs { self.list_read.beat.val().address } else { self.address.q.val() },
            length: bits(number::COMMAND_BYTES_),
        };
        self.list_read.ready.next = runs && self.admin_read.ready.val();
        self.list_valid.next = self.has_list.q.val();
        self.list_error.next = self.has_list_error.q.val();
        self.has_list.d.next = runs && self.admin_slot_valid.val();
        self.has_list_error.d.next = self.admin_slot.val().error;
        self.command.valid.next = stage == Stage::Run;
        self.command.beat.next = held;
        let answers = stage == Stage::Answer;
        self.outcome.ready.next = runs;
        self.write.ready.next = runs && self.admin_write.ready.val();
        let writes = answers || (runs && self.write.valid.val());
        self.admin_write.valid.next = writes;
        self.admin_write.beat.next = if answers {
            SlotWrite {
                address: self.address.q.val(),
                length: bits(number::ANSWER_BYTES_),
                data: answer(self.header.q.val(), outcome, phase),
            }
        } else {
            self.write.beat.val()
        };
        let is_written = writes && self.admin_write.ready.val();
        if is_written {
            self.issued.d.next = self.issued.q.val() + 1;
        }
        self.event.valid.next = stage == Stage::Raise;
        self.event.beat.next = EqeToken {
            object_number: bits(0),
            detail: bit_cast::<32, 16>(index + 1),
            kind: bits(number::ADMIN_ANSWER),
            code: bits(0),
        };

        self.is_fatal.d.next = false;
        self.executed.d.next = false;
        self.refused.d.next = false;
        self.saw_failure.d.next = saw_failure;
        match stage {
            Stage::Idle => {
                self.is_old.d.next = false;
                self.saw_failure.d.next = false;
                self.index.d.next = consumer;
                self.address.d.next = page(self.command_base.val())
                    + bit_cast::<64, COMMAND_RING>(cat!(next_place, bits::<COMMAND_LOG2>(0)));
                let may_begin = self.may_begin.val() && self.enable.val() && self.was_enabled.q.val();
                if may_begin && !self.has_stopped.q.val() && producer != consumer {
                    self.stage.d.next = Stage::Read;
                }
            }
            Stage::Read => {
                if self.admin_read.ready.val() {
                    self.stage.d.next = Stage::Fetch;
                }
            }
            Stage::Fetch => {
                self.held.d.next = self.admin_slot.val().data;
                self.header.d.next = self.admin_slot.val().data.get_bits::<64>(0);
                self.outcome_held.d.next = Outcome { status: bits(number::DEVICE_FAILED), detail: bits(0) };
                if self.admin_slot_valid.val() {
                    if !self.is_old.q.val() {
                        self.consumer.d.next = consumer + 1;
                    }
                    if self.admin_slot.val().error {
                        self.stage.d.next = Stage::Idle;
                        self.has_stopped.d.next = true;
                        self.is_fatal.d.next = true;
                        self.fatal_held.d.next = FatalReport {
                            code: bits(number::HOST_READ_ERROR),
                            detail: self.address.q.val().get_bits::<32>(0),
                        };
                    } else if self.device_failed.val() {
                        self.stage.d.next = Stage::Settle;
                    } else {
                        self.stage.d.next = Stage::Run;
                    }
                }
            }
            Stage::Run => {
                if self.command.ready.val() {
                    self.stage.d.next = Stage::Running;
                }
            }
            Stage::Running => {
                self.outcome_held.d.next = self.outcome.beat.val();
                if self.admin_slot_valid.val() {
                    self.held.d.next = self.admin_slot.val().data;
                }
                if self.outcome.valid.val() {
                    self.stage.d.next = Stage::Settle;
                }
            }
            Stage::Settle => {
                self.address.d.next = page(self.answer_base.val())
                    + bit_cast::<64, ANSWER_RING>(cat!(place, bits::<ANSWER_LOG2>(0)));
                if all_done {
                    self.saw_failure.d.next = false;
                    self.stage.d.next = if self.is_old.q.val() { Stage::Idle } else { Stage::Answer };
                    let is_good = outcome.status == number::SUCCESS && !saw_failure;
                    self.executed.d.next = is_good;
                    self.refused.d.next = !is_good;
                    if saw_failure {
                        self.outcome_held.d.next =
                            Outcome { status: bits(number::HOST_ERROR), detail: bits(0) };
                    }
                }
            }
            Stage::Answer => {
                if is_written {
                    self.stage.d.next = Stage::Done;
                }
            }
            Stage::Done => {
                if all_done {
                    self.stage.d.next = if self.event_on_answer.val() { Stage::Raise } else { Stage::Idle };
                    if saw_failure {
                        self.stage.d.next = Stage::Idle;
                        self.has_stopped.d.next = true;
                        self.is_fatal.d.next = true;
                        self.fatal_held.d.next = FatalReport {
                            code: bits(number::HOST_WRITE_ERROR),
                            detail: self.address.q.val().get_bits::<32>(0),
                        };
                    }
                }
            }
            Stage::Raise => {
                if self.event.ready.val() {
                    self.stage.d.next = Stage::Idle;
                }
            }
        }

        let claimed = self.doorbell.val() - consumer;
        if self.doorbell_valid.val() && claimed <= bit_cast::<16, COUNT_BITS>(size) {
            self.producer.d.next = self.doorbell.val();
        }
        self.was_enabled.d.next = self.enable.val();
        if starts {
            self.producer.d.next = bits(0);
            self.consumer.d.next = bits(0);
            self.has_stopped.d.next = false;
            self.is_old.d.next = stage != Stage::Idle;
        }
    }
}
