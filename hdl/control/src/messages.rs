//! What the blocks of this crate say to each other.
use crate::object_store::{INDEX_BITS, Kind};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::DOORBELL_PAGE_BITS;

/// Sections of the card through which work passes, in the order in which it does: requester, responder, answers of READs,
/// gather, place, writes, atomics. What has left one has entered the next, so waiting for them in this order leaves nothing behind.
pub const SECTIONS: usize = 7;
/// Bits of a whole number of a queue, as doorbells carry it.
pub const QUEUE_NUMBER_BITS: usize = 24;

/// Which page owns a queue pair, completion queue, event queue or shared receive queue; there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PageWrite {
    /// A kind of object that has doorbells.
    pub kind: Kind,
    /// Which entry of its table.
    pub index: Bits<INDEX_BITS>,
    /// The object exists from now on.
    pub valid: Bit,
    /// Page that owns it.
    pub page: Bits<DOORBELL_PAGE_BITS>,
    /// Its whole number, with which a doorbell must agree.
    pub number: Bits<QUEUE_NUMBER_BITS>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Outcome {
    /// A `rnic_layout::admin::CommandStatus`.
    pub status: Bits<5>,
    /// `rnic_layout::admin::Answer::detail`.
    pub detail: Bits<32>,
}

/// A failure of the device (`rnic_layout::registers::Fatal`); there is no `ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct FatalReport {
    /// A `rnic_layout::registers::FatalCode`.
    pub code: Bits<8>,
    /// By code.
    pub detail: Bits<32>,
}
