//! Completion queues: where an entry goes, whether there is room, and whether it makes an event.
//!
//! ```text
//!  setup ─────────> (4) ─┐
//!  completions_read> (16)┤   ┌────────┬─────────┬────────┐
//!  waiting ──────────────┼──>│ choose │ look up │ decide ├──> step (entry, event)
//!  token ────────────────┘   │        │ records │ write  ├──> failure
//!     ^                      └────────┴─────────┴───┬────┘
//!     └── queues whose event waits <────────────────┘
//! ```
//!
//! One machine writes all records, so nothing is ever seen half done: an operation takes [`OPERATION_CYCLES`] cycles, and the
//! next one begins when the last has written. 83 million completions a second at 250 MHz; latency 3 cycles to `step`.
//!
//! 1. Setups and doorbells come without `ready` and never wait for the host: they change records only. At most one
//!    doorbell comes in four cycles.
//! 2. An entry is written only where software has read the one before it. One that finds no room ends the queue: it is
//!    counted, reported once as an asynchronous event, and fails its queue pair, as does every later one.
//! 3. An event leaves behind the entry that made it. Arming a queue that has unread completions that match makes the event
//!    at once (protocol 4.4); an event that waits for more completions leaves after the period of the queue at the latest.
//! 4. That a queue pair has no entry of its shared receive queue any more is an asynchronous event, behind the entries of all
//!    that it had.
//! 5. A queue that does not exist swallows what is said to it.
//!
//! Protocol 2.11 and 4.4, design decision 11.
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::doorbell::Arm;
use rnic_layout::queue::completion::{CompletionStatus, Cqe};
use rnic_layout::queue::event::{AsyncEvent, EventKind};
use rnic_messages::complete::{CompletionQueueSetup, CqeToken, EqeToken};
use rnic_messages::doorbell::CompletionsRead;
use rnic_messages::setup::{FailureCause, FailureEvent};
use rnic_messages::sizes::{COMPLETION_QUEUE_BITS, EVENT_QUEUE_BITS, QUEUE_PAIR_BITS};

/// Cycles of an operation.
pub const OPERATION_CYCLES: u64 = 3;
/// Bits of an entry of a completion queue.
pub(crate) const ENTRY_BITS: usize = 256;
const QUEUES: usize = COMPLETION_QUEUE_BITS;
const COUNT: usize = QUEUES + 1;

const SUCCESS: u64 = CompletionStatus::Success as u64;
const NEXT: u64 = Arm::Next as u64;
const SOLICITED: u64 = Arm::Solicited as u64;
const COMPLETION_EVENT: u64 = EventKind::Completion as u64;
const ASYNCHRONOUS_EVENT: u64 = EventKind::Asynchronous as u64;
const QUEUE_ERROR: u64 = AsyncEvent::CompletionQueueError as u64;
const LAST_EVENT: u64 = AsyncEvent::LastEntryReached as u64;

/// What leaves for the event queues: an entry, an event, or both, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Step {
    /// There is an entry.
    pub has_entry: Bit,
    /// Where it is written.
    pub address: Bits<64>,
    /// Its bytes, the first in bits 7:0.
    pub entry: Bits<ENTRY_BITS>,
    /// There is an event.
    pub has_event: Bit,
    /// In which queue.
    pub event_queue: Bits<EVENT_QUEUE_BITS>,
    /// Which.
    pub event: EqeToken,
}

/// What is known of a queue, all of it written here.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Record {
    /// Entries ever written.
    producer_index: Bits<24>,
    /// Entries ever read.
    consumer_index: Bits<24>,
    /// `producer_index` at the last event.
    event_index: Bits<24>,
    /// `producer_index` behind the last completion that was solicited or in error.
    solicited_index: Bits<24>,
    /// What it is armed for.
    arm: Bits<2>,
    /// Armed, and a completion that matches is there: the event waits for moderation alone.
    matched: Bit,
    /// When that ends, in units of 256 cycles.
    deadline: Bits<16>,
    /// It ends at once.
    is_due: Bit,
    /// It stands among the queues whose event waits.
    in_line: Bit,
    /// It was full.
    overrun: Bit,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Operation {
    /// A command makes, changes or ends a queue.
    Setup,
    /// Software has read.
    Read,
    /// An event may be due.
    Check,
    /// A completion is written.
    Token,
}

/// Where the machine is.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Stage {
    /// Chooses, and looks up the records.
    Choose,
    /// Takes them.
    Look,
    /// Decides, and writes.
    Decide,
}

/// The block.
#[derive(LogicBlock, Registers, Construct)]
pub struct CompletionQueues {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. Records keep what they hold: commands make queues anew.
    pub reset: Signal<In, Bit>,

    /// Completions of both roles; `ready` is combinational.
    pub token: StreamRx<CqeToken>,
    /// From control.
    pub setup: Signal<In, CompletionQueueSetup>,
    /// There is one.
    pub setup_valid: Signal<In, Bit>,
    /// From the doorbells.
    pub read: Signal<In, CompletionsRead>,
    /// There is one.
    pub read_valid: Signal<In, Bit>,

    /// Entries and events; registered.
    pub step: StreamTx<Step>,
    /// Queue pairs whose completion found no room; registered.
    pub failure: StreamTx<FailureEvent>,
    /// An entry is written.
    pub counts_completions_written: Signal<Out, Bit>,
    /// An entry with a status other than success is written.
    pub counts_completions_in_error: Signal<Out, Bit>,
    /// A completion found its queue full.
    pub counts_completion_queue_overrun: Signal<Out, Bit>,

    setups: Fifo<CompletionQueueSetup, 2, 3>,
    reads: Fifo<CompletionsRead, 4, 5>,
    waiting: Fifo<Bits<QUEUES>, QUEUES, COUNT>,
    #[init(Fifo::new(Storage::Block))]
    steps: Fifo<Step, 3, 4>,
    failures: Fifo<FailureEvent, 3, 4>,
    configurations: Memory<CompletionQueueSetup, QUEUES>,
    records: Memory<Record, QUEUES>,

    stage: Reg<Stage>,
    operation: DFF<Operation>,
    queue: DFF<Bits<QUEUES>>,
    asked: DFF<CqeToken>,
    asked_read: DFF<CompletionsRead>,
    asked_setup: DFF<CompletionQueueSetup>,
    configuration: DFF<CompletionQueueSetup>,
    record: DFF<Record>,
    is_full: DFF<Bit>,
    since_event: DFF<Bits<24>>,
    slot: DFF<Bits<24>>,
    phase: DFF<Bit>,
    /// Cycles; the time in units of 256 are the bits above.
    time: Reg<Bits<24>>,
    /// Completions since the waiting queues were last looked at.
    patience: Reg<Bits<4>>,
    written: Reg<Bit>,
    written_in_error: Reg<Bit>,
    overran: Reg<Bit>,
}

/// The 32 bytes of an entry.
#[kernel]
fn entry(token: CqeToken, phase: Bit) -> Bits<ENTRY_BITS> {
    let flags: Bits<8> =
        cat!(bits::<4>(0), token.solicited, bits::<1>(0), token.with_invalidate, token.with_immediate);
    let last: Bits<64> = cat!(
        bits::<7>(0),
        phase,
        bits::<8>(0),
        flags,
        token.vendor_error,
        token.status,
        token.opcode,
        token.consumer_index
    );
    cat!(last, bits::<8>(0), token.qp_number, bits::<32>(0), token.immediate, token.length, token.wr_id)
}

impl Logic for CompletionQueues {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.time.d.next = self.time.q.val() + 1;
        let now = self.time.q.val().get_bits::<16>(8);

        self.setups.rx.beat.next = self.setup.val();
        self.setups.rx.valid.next = self.setup_valid.val();
        self.reads.rx.beat.next = self.read.val();
        self.reads.rx.valid.next = self.read_valid.val();
        StreamTx::<Step>::link(&mut self.step, &mut self.steps.tx);
        StreamTx::<FailureEvent>::link(&mut self.failure, &mut self.failures.tx);

        // What is done next. Entries and events need room behind them; records are always free.
        let stage = self.stage.q.val();
        let chooses = stage == Stage::Choose;
        let has_room = self.steps.rx.ready.val() && self.failures.rx.ready.val();
        let is_patient = !self.patience.q.val().all();
        let may_check = has_room && self.waiting.tx.valid.val();
        let does_setup = self.setups.tx.valid.val();
        let does_read = !does_setup && self.reads.tx.valid.val();
        let may_send = !does_setup && !does_read;
        let does_check = may_send && may_check && !(is_patient && self.token.valid.val());
        let does_token = may_send && !does_check && has_room && self.token.valid.val();
        self.setups.tx.ready.next = chooses && does_setup;
        self.reads.tx.ready.next = chooses && does_read;
        self.waiting.tx.ready.next = chooses && does_check;
        self.token.ready.next = chooses && does_token;

        let operation = if does_setup {
            Operation::Setup
        } else if does_read {
            Operation::Read
        } else if does_check {
            Operation::Check
        } else {
            Operation::Token
        };
        let queue = if does_setup {
            self.setups.tx.beat.val().completion_queue
        } else if does_read {
            self.reads.tx.beat.val().completion_queue
        } else if does_check {
            self.waiting.tx.beat.val()
        } else {
            self.token.beat.val().completion_queue
        };
        let begins = chooses && (does_setup || does_read || does_check || does_token);
        if begins {
            self.stage.d.next = Stage::Look;
            self.operation.d.next = operation;
            self.queue.d.next = queue;
            self.asked.d.next = self.token.beat.val();
            self.asked_read.d.next = self.reads.tx.beat.val();
            self.asked_setup.d.next = self.setups.tx.beat.val();
            self.patience.d.next = if does_check { bits::<4>(0) } else { self.patience.q.val() | 1 << 3 };
        }
        if begins && does_token {
            self.patience.d.next = select(is_patient, self.patience.q.val() + 1, self.patience.q.val());
        }
        self.configurations.read_enable.next = begins;
        self.configurations.read_address.next = queue;
        self.records.read_enable.next = begins;
        self.records.read_address.next = queue;

        // The records are there: how full the queue is, and where its next entry stands.
        let looked = self.records.read_data.val();
        let looked_configuration = self.configurations.read_data.val();
        let size = bits::<24>(1) << looked_configuration.entries_log2;
        if stage == Stage::Look {
            self.stage.d.next = Stage::Decide;
            self.record.d.next = looked;
            self.configuration.d.next = looked_configuration;
            self.is_full.d.next = looked.producer_index - looked.consumer_index == size || looked.overrun;
            self.since_event.d.next = looked.producer_index + 1 - looked.event_index;
            self.slot.d.next = looked.producer_index & (size - 1);
            self.phase.d.next = !(looked.producer_index & size).any();
        }

        // The decision.
        let decides = stage == Stage::Decide;
        let operation = self.operation.q.val();
        let record = self.record.q.val();
        let configuration = self.configuration.q.val();
        let token = self.asked.q.val();
        let exists = configuration.valid;
        let is_token = decides && operation == Operation::Token && exists;
        let says_last = is_token && token.is_last;
        let writes_entry = is_token && !token.is_last && !self.is_full.q.val();
        let overruns = is_token && !token.is_last && self.is_full.q.val();
        let is_special = token.solicited || token.status != SUCCESS;
        let producer_index = record.producer_index + 1;
        let matches = record.matched || record.arm == NEXT || (record.arm == SOLICITED && is_special);
        let is_enough = configuration.moderation_count <= 1
            || self.since_event.q.val() >= bit_cast::<24, 16>(configuration.moderation_count);
        let fires_with_entry = writes_entry && matches && is_enough;
        let is_over =
            record.is_due || (configuration.moderation_period.any() && !(now - record.deadline).get_bit(15));
        let checks = decides && operation == Operation::Check;
        let fires_late = checks && exists && record.matched && is_over;
        let fires = fires_with_entry || fires_late;
        let first_overrun = overruns && !record.overrun;

        // An event that has to wait stands in line, once; so does one that arming has made.
        let read = self.asked_read.q.val();
        let arm = if read.arm == NEXT || (read.arm == SOLICITED && record.arm != NEXT) {
            read.arm
        } else {
            record.arm
        };
        let has_unread = record.producer_index != read.consumer_index;
        let solicited_ahead = record.solicited_index - read.consumer_index;
        let has_unread_solicited = solicited_ahead.any() && !solicited_ahead.get_bit(23);
        let is_armed_late =
            (arm == NEXT && has_unread) || (arm == SOLICITED && has_unread && has_unread_solicited);
        let is_read = decides && operation == Operation::Read && exists;
        let waits_after_entry = writes_entry && matches && !is_enough;
        let waits_after_read = is_read && is_armed_late;
        let waits_on = checks && exists && record.matched && !is_over;
        let lines_up = ((waits_after_entry || waits_after_read) && !record.in_line) || waits_on;
        self.waiting.rx.beat.next = self.queue.q.val();
        self.waiting.rx.valid.next = lines_up;

        let is_asynchronous = first_overrun || says_last;
        self.steps.rx.valid.next = writes_entry || fires || is_asynchronous;
        let page: Bits<64> = cat!(configuration.base_page, bits::<12>(0));
        let offset: Bits<64> = cat!(bits::<35>(0), self.slot.q.val(), bits::<5>(0));
        let queue_number = bit_cast::<24, QUEUES>(self.queue.q.val());
        self.steps.rx.beat.next = Step {
            has_entry: writes_entry,
            address: page + offset,
            entry: entry(token, self.phase.q.val()),
            has_event: fires || is_asynchronous,
            event_queue: if is_asynchronous { bits(0) } else { configuration.event_queue },
            event: EqeToken {
                object_number: select(says_last, token.qp_number, queue_number),
                detail: if is_asynchronous {
                    bits(0)
                } else {
                    bit_cast::<32, 24>(select(fires_late, record.producer_index, producer_index))
                },
                kind: if is_asynchronous { bits(ASYNCHRONOUS_EVENT) } else { bits(COMPLETION_EVENT) },
                code: if says_last {
                    bits(LAST_EVENT)
                } else if first_overrun {
                    bits(QUEUE_ERROR)
                } else {
                    bits(0)
                },
            },
        };
        self.failures.rx.valid.next = overruns;
        self.failures.rx.beat.next = FailureEvent {
            queue_pair: token.qp_number.get_bits::<QUEUE_PAIR_BITS>(0),
            generation: token.generation,
            cause: FailureCause::Queue,
            has_event: false,
            event_code: bits(0),
        };

        let setup = self.asked_setup.q.val();
        let restarts = decides && operation == Operation::Setup && setup.restarts;
        self.configurations.write_enable.next = decides && operation == Operation::Setup;
        self.configurations.write_address.next = self.queue.q.val();
        self.configurations.write_data.next = setup;
        if !setup.restarts {
            self.configurations.write_data.next = CompletionQueueSetup {
                completion_queue: configuration.completion_queue,
                restarts: false,
                valid: configuration.valid,
                entries_log2: configuration.entries_log2,
                event_queue: configuration.event_queue,
                moderation_count: setup.moderation_count,
                moderation_period: setup.moderation_period,
                base_page: configuration.base_page,
            };
        }

        self.records.write_enable.next = decides;
        self.records.write_address.next = self.queue.q.val();
        self.records.write_data.next = Record {
            producer_index: select(writes_entry, producer_index, record.producer_index),
            consumer_index: select(is_read, read.consumer_index, record.consumer_index),
            event_index: if fires_with_entry {
                producer_index
            } else if fires_late {
                record.producer_index
            } else {
                record.event_index
            },
            solicited_index: select(writes_entry && is_special, producer_index, record.solicited_index),
            arm: if fires {
                bits(0)
            } else if is_read {
                arm
            } else {
                record.arm
            },
            matched: !fires && (record.matched || waits_after_entry || waits_after_read),
            deadline: if waits_after_entry && !record.matched {
                now + configuration.moderation_period
            } else {
                record.deadline
            },
            is_due: !fires && (record.is_due || waits_after_read),
            in_line: lines_up || (record.in_line && !checks),
            overrun: record.overrun || overruns,
        };
        if restarts {
            // It may still stand in line, and is passed over when its turn comes.
            self.records.write_data.next = Record {
                producer_index: bits(0),
                consumer_index: bits(0),
                event_index: bits(0),
                solicited_index: bits(0),
                arm: bits(0),
                matched: false,
                deadline: bits(0),
                is_due: false,
                in_line: record.in_line,
                overrun: false,
            };
        }
        if decides {
            self.stage.d.next = Stage::Choose;
        }

        self.written.d.next = writes_entry;
        self.written_in_error.d.next = writes_entry && token.status != SUCCESS;
        self.overran.d.next = overruns;
        self.counts_completions_written.next = self.written.q.val();
        self.counts_completions_in_error.next = self.written_in_error.q.val();
        self.counts_completion_queue_overrun.next = self.overran.q.val();
    }
}

const _: () = assert!(Cqe::RECORD.bits as usize == ENTRY_BITS);
