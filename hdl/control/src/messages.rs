//! Messages between the blocks of this crate.
use crate::object_store::{INDEX_BITS, Kind};
use rnic_kernel::prelude::*;
use rnic_messages::complete::{CompletionQueueSetup, EventQueueSetup};
use rnic_messages::protect::RegionWrite;
use rnic_messages::sizes::DOORBELL_PAGE_BITS;

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
    pub region_write: Signal<Out, RegionWrite>,
    /// `region_write` is valid in this cycle.
    pub region_write_valid: Signal<Out, Bit>,
    /// A completion queue.
    pub completion_queue_setup: Signal<Out, CompletionQueueSetup>,
    /// `completion_queue_setup` is valid in this cycle.
    pub completion_queue_setup_valid: Signal<Out, Bit>,
    /// An event queue.
    pub event_queue_setup: Signal<Out, EventQueueSetup>,
    /// `event_queue_setup` is valid in this cycle.
    pub event_queue_setup_valid: Signal<Out, Bit>,
    /// Owner of a queue.
    pub page_write: Signal<Out, PageWrite>,
    /// `page_write` is valid in this cycle.
    pub page_write_valid: Signal<Out, Bit>,
}

/// The other end of [`TablesTx`].
#[derive(Clone, Debug, Default, LogicInterface, Registers)]
#[join = "TablesTx"]
pub struct TablesRx {
    /// A region.
    pub region_write: Signal<In, RegionWrite>,
    /// `region_write` is valid in this cycle.
    pub region_write_valid: Signal<In, Bit>,
    /// A completion queue.
    pub completion_queue_setup: Signal<In, CompletionQueueSetup>,
    /// `completion_queue_setup` is valid in this cycle.
    pub completion_queue_setup_valid: Signal<In, Bit>,
    /// An event queue.
    pub event_queue_setup: Signal<In, EventQueueSetup>,
    /// `event_queue_setup` is valid in this cycle.
    pub event_queue_setup_valid: Signal<In, Bit>,
    /// Owner of a queue.
    pub page_write: Signal<In, PageWrite>,
    /// `page_write` is valid in this cycle.
    pub page_write_valid: Signal<In, Bit>,
}
