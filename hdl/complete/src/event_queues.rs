//! Event queues: writes entries and events in their order, and asks for an interrupt behind an event.
//!
//! ```text
//!  setup ────────> (4) ─┐
//!  events_read ──> (16) ┤  ┌────────┬─────────┬────────┐
//!  to rearm ────────────┼─>│ choose │ look up │ decide ├──(16)─┬─ entry ─────────────────────────┬──> write
//!  event (queue 0) ─────┤  └────────┴─────────┴────────┘       └─ event ──(16)─ entries done? ───┤
//!  step ────────────────┘                                                              event done?└──> interrupt
//! ```
//!
//! A step without an event passes in one cycle, one with an event in [`EVENT_CYCLES`]; latency 2 cycles more to `write`. An event
//! waits besides for the host's report that the entries before it are done.
//!
//! 1. Entries are written in the order of the steps, and so are events. An event is written when all that was written before
//!    its step is done: hosts promise no order of writes that are under way. Entries do not wait for events.
//! 2. Setups and doorbells come without `ready` and never wait for the host.
//! 3. A queue that is armed makes one interrupt, when the host has reported the write of its next event done; arming one
//!    that has unread events makes it when all that was written before is done.
//! 4. An event that finds its queue full is lost and counted; for queue 0 that is fatal, and `overran_queue_0` says so.
//!
//! Protocol 4.4, design decision 11.
use crate::completion_queues::{ENTRY_BITS, Step};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::queue::event::Eqe;
use rnic_messages::complete::{EqeToken, EventQueueSetup};
use rnic_messages::doorbell::EventsRead;
use rnic_messages::host::SlotWrite;
use rnic_messages::sizes::{EVENT_QUEUE_BITS, VECTOR_BITS, WRITE_COUNT_BITS};

/// Cycles of a step with an event.
pub const EVENT_CYCLES: u64 = 3;
const EVENT_QUEUES: usize = 1 << EVENT_QUEUE_BITS;
const EVENT_BYTES: u64 = Eqe::RECORD.bits as u64 / 8;
const ENTRY_BYTES: u64 = ENTRY_BITS as u64 / 8;

/// What is known of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Record {
    /// Events ever written.
    producer_index: Bits<24>,
    /// Events ever read.
    consumer_index: Bits<24>,
    /// The next event makes an interrupt.
    armed: Bit,
}

/// What is to be written, and what follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Writing {
    has_write: Bit,
    is_event: Bit,
    address: Bits<64>,
    data: Bits<ENTRY_BITS>,
    has_interrupt: Bit,
    vector: Bits<VECTOR_BITS>,
}

/// An event, or an interrupt without one, that waits for what it announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Held {
    writing: Writing,
    write_count: Bits<WRITE_COUNT_BITS>,
}

/// An interrupt that waits for a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Promise {
    vector: Bits<VECTOR_BITS>,
    write_count: Bits<WRITE_COUNT_BITS>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Operation {
    /// A command makes, changes or ends a queue.
    Setup,
    /// Software has read.
    Read,
    /// A queue was armed while events were unread.
    Rearm,
    /// An event is written.
    Event,
}

/// Where the machine is.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Stage {
    /// Chooses, and looks up the record.
    Choose,
    /// Takes it.
    Look,
    /// Decides, and writes.
    Decide,
}

/// The block.
#[derive(LogicBlock, Registers, Construct)]
pub struct EventQueues {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,

    /// Entries and events of the completion queues; `ready` is combinational.
    pub step: StreamRx<Step>,
    /// Events for queue 0; `ready` is combinational.
    pub event: StreamRx<EqeToken>,
    /// From control.
    pub setup: Signal<In, EventQueueSetup>,
    /// There is one.
    pub setup_valid: Signal<In, Bit>,
    /// From the doorbells.
    pub read: Signal<In, EventsRead>,
    /// There is one.
    pub read_valid: Signal<In, Bit>,

    /// To the host; a function of registers.
    pub write: StreamTx<SlotWrite>,
    /// How many of these writes the host has reported done, modulo 2^16.
    pub write_done: Signal<In, Bits<WRITE_COUNT_BITS>>,
    /// Vectors that are to be raised; a function of registers.
    pub interrupt: StreamTx<Bits<VECTOR_BITS>>,
    /// Writes that were handed to the host, modulo 2^16.
    pub writes_issued: Signal<Out, Bits<WRITE_COUNT_BITS>>,
    /// Nothing is under way here; registered.
    pub is_idle: Signal<Out, Bit>,

    /// An event is written.
    pub counts_events_written: Signal<Out, Bit>,
    /// An event found its queue full.
    pub counts_event_queue_overrun: Signal<Out, Bit>,
    /// Queue 0 was full.
    pub overran_queue_0: Signal<Out, Bit>,

    setups: Fifo<EventQueueSetup, 2, 3>,
    reads: Fifo<EventsRead, 4, 5>,
    #[init(Fifo::new(Storage::Block))]
    writings: Fifo<Writing, 4, 5>,
    #[init(Fifo::new(Storage::Block))]
    held: Fifo<Held, 4, 5>,
    promises: Fifo<Promise, 4, 5>,
    configurations: Memory<EventQueueSetup, EVENT_QUEUE_BITS>,
    records: Memory<Record, EVENT_QUEUE_BITS>,

    stage: Reg<Stage>,
    operation: DFF<Operation>,
    queue: DFF<Bits<EVENT_QUEUE_BITS>>,
    asked: DFF<EqeToken>,
    asked_read: DFF<EventsRead>,
    asked_setup: DFF<EventQueueSetup>,
    configuration: DFF<EventQueueSetup>,
    record: DFF<Record>,
    is_full: DFF<Bit>,
    slot: DFF<Bits<24>>,
    phase: DFF<Bit>,
    /// One bit a queue that was armed while events were unread.
    rearms: Reg<Bits<EVENT_QUEUES>>,
    looks_at: Reg<Bits<EVENT_QUEUE_BITS>>,
    /// An event of queue 0 was served last, so a step comes first.
    prefers_step: Reg<Bit>,
    issued: Reg<Bits<WRITE_COUNT_BITS>>,
    /// An entry is offered, and stays so until it is taken.
    entry_waits: Reg<Bit>,
    written: Reg<Bit>,
    overran: Reg<Bit>,
    overran_first: Reg<Bit>,
    idle: Reg<Bit>,
}

/// The 16 bytes of an event, and zeros behind them.
#[kernel]
fn event_entry(event: EqeToken, phase: Bit) -> Bits<ENTRY_BITS> {
    let high: Bits<64> = cat!(bits::<7>(0), phase, bits::<40>(0), event.code, event.kind);
    cat!(bits::<128>(0), high, event.detail, bits::<8>(0), event.object_number)
}

impl Logic for EventQueues {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.setups.rx.beat.next = self.setup.val();
        self.setups.rx.valid.next = self.setup_valid.val();
        self.reads.rx.beat.next = self.read.val();
        self.reads.rx.valid.next = self.read_valid.val();

        // What is done next. An entry leaves at once; its event makes an operation.
        let stage = self.stage.q.val();
        let chooses = stage == Stage::Choose;
        // Two places: for an entry, and for the event behind it.
        let has_room =
            !self.writings.level.val().get_bits::<3>(1).all() && !self.writings.level.val().get_bit(4);
        let does_setup = self.setups.tx.valid.val();
        let does_read = !does_setup && self.reads.tx.valid.val();
        let may_write = !does_setup && !does_read && has_room;
        let rearms_this = self.rearms.q.val().get_bit(self.looks_at.q.val().index());
        let does_rearm = may_write && rearms_this;
        let offers_step = self.step.valid.val();
        let offers_event = self.event.valid.val();
        let takes_step = offers_step && (self.prefers_step.q.val() || !offers_event);
        let does_step = may_write && !rearms_this && takes_step;
        let does_event = may_write && !rearms_this && !takes_step && offers_event;
        self.setups.tx.ready.next = chooses && does_setup;
        self.reads.tx.ready.next = chooses && does_read;
        self.step.ready.next = chooses && does_step;
        self.event.ready.next = chooses && does_event;

        let step = self.step.beat.val();
        let operation = if does_setup {
            Operation::Setup
        } else if does_read {
            Operation::Read
        } else if does_rearm {
            Operation::Rearm
        } else {
            Operation::Event
        };
        let queue = if does_setup {
            self.setups.tx.beat.val().event_queue
        } else if does_read {
            self.reads.tx.beat.val().event_queue
        } else if does_rearm {
            self.looks_at.q.val()
        } else if does_step {
            step.event_queue
        } else {
            bits(0)
        };
        let begins =
            chooses && (does_setup || does_read || does_rearm || does_event || (does_step && step.has_event));
        if begins {
            self.stage.d.next = Stage::Look;
            self.operation.d.next = operation;
            self.queue.d.next = queue;
            self.asked.d.next = select(does_step, step.event, self.event.beat.val());
            self.asked_read.d.next = self.reads.tx.beat.val();
            self.asked_setup.d.next = self.setups.tx.beat.val();
        }
        if chooses && does_step {
            self.prefers_step.d.next = false;
        }
        if chooses && does_event {
            self.prefers_step.d.next = true;
        }
        if chooses && !begins {
            self.looks_at.d.next = self.looks_at.q.val() + 1;
        }
        self.configurations.read_enable.next = begins;
        self.configurations.read_address.next = queue;
        self.records.read_enable.next = begins;
        self.records.read_address.next = queue;

        let looked = self.records.read_data.val();
        let looked_configuration = self.configurations.read_data.val();
        let size = bits::<24>(1) << looked_configuration.entries_log2;
        if stage == Stage::Look {
            self.stage.d.next = Stage::Decide;
            self.record.d.next = looked;
            self.configuration.d.next = looked_configuration;
            self.is_full.d.next = looked.producer_index - looked.consumer_index == size;
            self.slot.d.next = looked.producer_index & (size - 1);
            self.phase.d.next = !(looked.producer_index & size).any();
        }

        let decides = stage == Stage::Decide;
        let operation = self.operation.q.val();
        let record = self.record.q.val();
        let configuration = self.configuration.q.val();
        let read = self.asked_read.q.val();
        let setup = self.asked_setup.q.val();
        let is_event = decides && operation == Operation::Event && configuration.valid;
        let writes_event = is_event && !self.is_full.q.val();
        let overruns = is_event && self.is_full.q.val();
        let is_read = decides && operation == Operation::Read && configuration.valid;
        let is_setup = decides && operation == Operation::Setup;
        let restarts = is_setup && setup.restarts;
        let rearms = decides && operation == Operation::Rearm;
        let has_unread = record.producer_index != read.consumer_index;
        let interrupts_late = rearms && configuration.valid && record.armed;
        let interrupts = interrupts_late || (writes_event && record.armed);

        let queue = self.queue.q.val();
        let mark = bits::<EVENT_QUEUES>(1) << queue;
        if is_read && read.arm && has_unread {
            self.rearms.d.next = self.rearms.q.val() | mark;
        }
        if rearms || restarts {
            self.rearms.d.next = self.rearms.q.val() & !mark;
        }

        self.configurations.write_enable.next = is_setup;
        self.configurations.write_address.next = queue;
        self.configurations.write_data.next = setup;
        if !setup.restarts {
            self.configurations.write_data.next = EventQueueSetup {
                event_queue: configuration.event_queue,
                restarts: false,
                valid: configuration.valid,
                entries_log2: configuration.entries_log2,
                vector: setup.vector,
                base_page: configuration.base_page,
            };
        }
        self.records.write_enable.next = decides;
        self.records.write_address.next = queue;
        self.records.write_data.next = Record {
            producer_index: if restarts {
                bits(0)
            } else if writes_event {
                record.producer_index + 1
            } else {
                record.producer_index
            },
            consumer_index: if restarts {
                bits(0)
            } else if is_read {
                read.consumer_index
            } else {
                record.consumer_index
            },
            armed: !restarts && !interrupts && (record.armed || (is_read && read.arm)),
        };
        if decides {
            self.stage.d.next = Stage::Choose;
        }

        // What is written, in order.
        let page: Bits<64> = cat!(configuration.base_page, bits::<12>(0));
        let offset: Bits<64> = cat!(bits::<36>(0), self.slot.q.val(), bits::<4>(0));
        self.writings.rx.valid.next =
            (chooses && does_step && step.has_entry) || writes_event || interrupts_late;
        self.writings.rx.beat.next = Writing {
            has_write: !decides || writes_event,
            is_event: decides,
            address: select(decides, page + offset, step.address),
            data: select(decides, event_entry(self.asked.q.val(), self.phase.q.val()), step.entry),
            has_interrupt: decides && interrupts,
            vector: configuration.vector,
        };

        // An entry leaves at once, an event when all that was written before is done.
        let writing = self.writings.tx.beat.val();
        let has_writing = self.writings.tx.valid.val();
        let issued = self.issued.q.val();
        self.held.rx.valid.next = has_writing && writing.is_event;
        self.held.rx.beat.next = Held { writing, write_count: issued };
        let held = self.held.tx.beat.val();
        let is_announced = !(self.write_done.val() - held.write_count).get_bit(WRITE_COUNT_BITS - 1);
        let may_promise = !held.writing.has_interrupt || self.promises.rx.ready.val();
        let announces = self.held.tx.valid.val() && is_announced && may_promise && !self.entry_waits.q.val();
        let offers_entry = has_writing && !writing.is_event && !announces;
        let chosen = select(announces, held.writing, writing);
        let is_written = announces && held.writing.has_write;
        self.write.valid.next = is_written || offers_entry;
        self.write.beat.next = SlotWrite {
            address: chosen.address,
            length: select(chosen.is_event, bits::<7>(EVENT_BYTES), bits::<7>(ENTRY_BYTES)),
            data: bit_cast::<512, ENTRY_BITS>(chosen.data),
        };
        let takes = self.write.ready.val();
        self.entry_waits.d.next = offers_entry && !takes;
        self.writings.tx.ready.next = select(writing.is_event, self.held.rx.ready.val(), takes && !announces);
        let leaves = announces && (takes || !held.writing.has_write);
        self.held.tx.ready.next = leaves;
        if (is_written || offers_entry) && takes {
            self.issued.d.next = issued + 1;
        }
        self.writes_issued.next = issued;
        self.promises.rx.valid.next = leaves && held.writing.has_interrupt;
        self.promises.rx.beat.next = Promise {
            vector: held.writing.vector,
            write_count: select(held.writing.has_write, issued + 1, issued),
        };

        let promise = self.promises.tx.beat.val();
        let is_kept = !(self.write_done.val() - promise.write_count).get_bit(WRITE_COUNT_BITS - 1);
        self.interrupt.valid.next = self.promises.tx.valid.val() && is_kept;
        self.interrupt.beat.next = promise.vector;
        self.promises.tx.ready.next = is_kept && self.interrupt.ready.val();

        self.idle.d.next = chooses
            && !begins
            && !offers_step
            && !offers_event
            && !has_writing
            && !self.held.tx.valid.val()
            && !self.promises.tx.valid.val()
            && self.issued.q.val() == self.write_done.val();
        self.is_idle.next = self.idle.q.val();
        self.written.d.next = writes_event;
        self.overran.d.next = overruns;
        self.overran_first.d.next = overruns && !queue.any();
        self.counts_events_written.next = self.written.q.val();
        self.counts_event_queue_overrun.next = self.overran.q.val();
        self.overran_queue_0.next = self.overran_first.q.val();
    }
}
