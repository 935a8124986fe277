//! Messages between the blocks of this crate.
use crate::object_store::{INDEX_BITS, Kind};
use crate::registers::{EVENT_COUNTER_BITS, POOL_BITS, SPEED_BITS};
use crate::reset::SWEEP_BITS;
use rnic_blocks::stream::{StreamTx, ValidRx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::complete::{CompletionQueueSetup, EventQueueSetup};
use rnic_messages::doorbell::{CompletionsRead, EventsRead, ReceivesPosted, SendsPosted};
use rnic_messages::drop_reason::REASON_BITS;
use rnic_messages::frame::{Count, FrameOutcome};
use rnic_messages::host::{HostSpan, Slot, SlotWrite};
use rnic_messages::pool::LEVEL_BITS;
use rnic_messages::protect::RegionWrite;
use rnic_messages::sizes::{DOORBELL_PAGE_BITS, VECTOR_BITS, WRITE_COUNT_BITS};

/// Sections of the card through which work passes, in this order: requester, responder, READ responses, gather, place, host
/// writes, atomics. What has left one has entered the next, so waiting for them in this order leaves nothing in flight.
pub const SECTIONS: usize = 7;
/// Bits of the number of a queue, as doorbells carry it.
pub const QUEUE_NUMBER_BITS: usize = 24;

/// Owner of a queue pair, completion queue, event queue or shared receive queue; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PageWrite {
    /// Kind of the object, one that has doorbells.
    pub kind: Kind,
    /// Index of the object in the table of its kind.
    pub index: Bits<INDEX_BITS>,
    /// The object exists from now on.
    pub valid: Bit,
    /// Doorbell page that owns it.
    pub page: Bits<DOORBELL_PAGE_BITS>,
    /// Number of the object, which a doorbell must name in full.
    pub number: Bits<QUEUE_NUMBER_BITS>,
}

/// Outcome of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Outcome {
    /// A `rnic_layout::admin::CommandStatus`.
    pub status: Bits<5>,
    /// Detail of the answer (`rnic_layout::admin::Answer::detail`).
    pub detail: Bits<32>,
}

/// State of a block that executes an instruction by itself: `page_list` or `read_slots`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PartState {
    /// It is done.
    pub is_done: Bit,
    /// How it has ended; the status is zero for success.
    pub outcome: Outcome,
    /// What the target of the instruction becomes.
    pub result: Bits<64>,
}

/// A failure of the device (`rnic_layout::registers::Fatal`); there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct FatalReport {
    /// A `rnic_layout::registers::FatalCode`.
    pub code: Bits<8>,
    /// Detail, whose meaning depends on the code.
    pub detail: Bits<32>,
}

/// Writes of the tables that the card keeps of objects, at the sequencer; each is one cycle, and none has a `ready`.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
#[join = "TablesRx"]
pub struct TablesTx {
    /// A region.
    pub region_write: ValidTx<RegionWrite>,
    /// A completion queue.
    pub completion_queue_setup: ValidTx<CompletionQueueSetup>,
    /// An event queue.
    pub event_queue_setup: ValidTx<EventQueueSetup>,
    /// Owner of a queue.
    pub page_write: ValidTx<PageWrite>,
}

/// The other end of [`TablesTx`].
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
#[join = "TablesTx"]
pub struct TablesRx {
    /// A region.
    pub region_write: ValidRx<RegionWrite>,
    /// A completion queue.
    pub completion_queue_setup: ValidRx<CompletionQueueSetup>,
    /// An event queue.
    pub event_queue_setup: ValidRx<EventQueueSetup>,
    /// Owner of a queue.
    pub page_write: ValidRx<PageWrite>,
}

/// What the registers tell the admin ring and show of it, at the registers; all registered.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
#[join = "AdminRegistersRx"]
pub struct AdminRegistersTx {
    /// Register `admin_command_base`; the ring begins at a multiple of 4096.
    pub command_base: Signal<Out, Bits<64>>,
    /// Register `admin_answer_base`; the ring begins at a multiple of 4096.
    pub answer_base: Signal<Out, Bits<64>>,
    /// Field `entries_log2` of `admin_control`: slots of both rings, as a power of two; more than 8 counts as 8.
    pub entries_log2: Signal<Out, Bits<4>>,
    /// Field `enable` of `admin_control`: the queue runs; a rise starts it at index 0.
    pub enable: Signal<Out, Bit>,
    /// Field `event_on_answer` of `admin_control`: answers raise events.
    pub event_on_answer: Signal<Out, Bit>,
    /// Commands may begin; a card that has failed refuses them by code.
    pub may_begin: Signal<Out, Bit>,
    /// `admin_doorbell` as it was written: commands that software ever wrote, modulo 2^16.
    pub doorbell: ValidTx<Bits<16>>,
    /// The last `doorbell` that was not ignored: value of `admin_doorbell` when it is read.
    pub producer_index: Signal<In, Bits<16>>,
    /// Field `consumer_index` of `admin_progress`: commands ever read, modulo 2^16.
    pub consumer_index: Signal<In, Bits<16>>,
    /// Field `busy` of `admin_progress`: a command runs, until its answer is written.
    pub busy: Signal<In, Bit>,
    /// Field `failed` of `admin_progress`: the queue has stopped.
    pub failed: Signal<In, Bit>,
}

/// The other end of [`AdminRegistersTx`].
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
#[join = "AdminRegistersTx"]
pub struct AdminRegistersRx {
    /// Base of the ring of commands.
    pub command_base: Signal<In, Bits<64>>,
    /// Base of the ring of answers.
    pub answer_base: Signal<In, Bits<64>>,
    /// Slots of both rings, as a power of two.
    pub entries_log2: Signal<In, Bits<4>>,
    /// The queue runs.
    pub enable: Signal<In, Bit>,
    /// Answers raise events.
    pub event_on_answer: Signal<In, Bit>,
    /// Commands may begin.
    pub may_begin: Signal<In, Bit>,
    /// Producer index of the ring of commands, when it is written.
    pub doorbell: ValidRx<Bits<16>>,
    /// The last `doorbell` that was not ignored.
    pub producer_index: Signal<Out, Bits<16>>,
    /// Commands ever read.
    pub consumer_index: Signal<Out, Bits<16>>,
    /// A command runs.
    pub busy: Signal<Out, Bit>,
    /// The queue has stopped.
    pub failed: Signal<Out, Bit>,
}

/// Accesses of the admin queue to the host, at the admin ring.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
pub struct AdminHost {
    /// To the host reader: slots of commands and of lists of pages; a function of registers.
    pub read: StreamTx<HostSpan>,
    /// From the host reader: a slot.
    pub slot: ValidRx<Slot>,
    /// To the host writer: what queries write, and answers; a function of registers.
    pub write: StreamTx<SlotWrite>,
    /// From the host writer: number of these writes that are done, modulo 2^16.
    pub done_count: Signal<In, Bits<WRITE_COUNT_BITS>>,
    /// From the host writer: the host refused one of them, at the latest in the cycle in which it counts as done.
    pub write_failed: Signal<In, Bit>,
}

/// What doorbells become, each in one cycle and without a `ready`; all registered.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
pub struct DoorbellMessages {
    /// To the requester: WQEs were posted to a send queue.
    pub send_posted: ValidTx<SendsPosted>,
    /// To the responder: WQEs were posted to a receive queue or an SRQ.
    pub receive_posted: ValidTx<ReceivesPosted>,
    /// To the completion stage: CQEs were polled, or the queue was armed.
    pub completions_read: ValidTx<CompletionsRead>,
    /// To the completion stage: EQEs were polled, or the queue was armed.
    pub events_read: ValidTx<EventsRead>,
}

/// Registers of the interrupts.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
pub struct InterruptRegisters {
    /// Register `interrupt_mask`.
    pub mask: Signal<Out, Bits<64>>,
    /// Vectors, one bit each, that are no longer pending; registered, one cycle.
    pub pending_clear: Signal<Out, Bits<64>>,
    /// Register `interrupt_pending`.
    pub pending: Signal<In, Bits<64>>,
    /// A period of moderation was written; registered, one cycle.
    pub moderation_write: Signal<Out, Bit>,
    /// Vector of that period; registered.
    pub moderation_vector: Signal<Out, Bits<VECTOR_BITS>>,
    /// The period, in units of 256 cycles of the core clock; registered.
    pub moderation_period: Signal<Out, Bits<16>>,
}

/// Counters, as the registers read them.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
pub struct CounterReads {
    /// To all counters: copy the counts; registered, one cycle.
    pub latch: Signal<Out, Bit>,
    /// To the counters of the packet path: number of the one that is read.
    pub frame_index: Signal<Out, Bits<REASON_BITS>>,
    /// From the counters of the packet path: its value, at most two cycles later.
    pub frame_value: Signal<In, Count>,
    /// To the event counters: number of the one that is read.
    pub event_index: Signal<Out, Bits<EVENT_COUNTER_BITS>>,
    /// From the event counters: its value, at most two cycles later.
    pub event_value: Signal<In, Bits<64>>,
    /// From the event counters: not all counts are copied yet.
    pub is_latching: Signal<In, Bit>,
    /// To the pool levels: number of the one that is read.
    pub pool_index: Signal<Out, Bits<POOL_BITS>>,
    /// From the pool levels: entries of that pool in use, at most two cycles later.
    pub pool_level: Signal<In, Bits<LEVEL_BITS>>,
}

/// What the registers show and count of the network port.
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
pub struct PortFacts {
    /// The network port has a link.
    pub link_up: Signal<In, Bit>,
    /// From the shell: MAC address of the board, register `permanent_mac`.
    pub permanent_mac: Signal<In, Bits<48>>,
    /// From the shell: register `port_speed`, in Mb/s.
    pub speed: Signal<In, Bits<SPEED_BITS>>,
    /// From the packet path: what became of a frame.
    pub outcome: ValidRx<FrameOutcome>,
    /// From the MAC's side: a frame has been sent.
    pub sent_frame: Signal<In, Bit>,
    /// Bytes that were sent in this cycle.
    pub sent_bytes: Signal<In, Bits<16>>,
}

/// The clearing of tables after a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct TableSweep {
    /// Index of the entry that is cleared.
    pub index: Bits<SWEEP_BITS>,
    /// It is cleared in this cycle.
    pub is_sweeping: Bit,
}
