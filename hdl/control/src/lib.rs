//! Slow path: registers, doorbells, the admin queue, and the state of queue pairs.
//!
//! ```text
//!  BAR 0, BAR 2 ──> axi_lite ─┬─> registers ──> admin_ring <══> sequencer ──> setup_broadcast ──> stages of the card
//!                             │       │             ^               │  └────> region, page and queue tables
//!                             │       v             v               v
//!                             │     reset       host rings     quiesce, page_list, invalidate
//!                             └─> doorbells ──> requester, responder, completion stage
//!
//!  failures, notices ──> sequencer ──> setup events, asynchronous events
//! ```
//!
//! In the order in which an access of the host meets them:
//!
//! | Module | What it does |
//! |---|---|
//! | [`control`] | wires the slow path |
//! | [`axi_lite`] | takes accesses of the host to BAR 0 and BAR 2 |
//! | [`doorbells`] | checks doorbells against the owners of their objects |
//! | [`registers`] | holds the registers of BAR 0 |
//! | [`register_map`] | offsets of these registers, as kernels use them |
//! | [`frame_counters`] | reads the counters of the packet path |
//! | [`function_reset`] | the handshake by which the PCI function resets the card |
//! | [`reset`] | drains the card, clears it, and starts it again |
//! | [`drained`] | tells whether nothing is in flight |
//! | [`device_failure`] | keeps the first failure that only a reset clears |
//! | [`admin_ring`] | fetches commands from the host's ring, and writes their answers |
//! | [`sequencer`] | executes commands, applies failures to queue pairs, and forgets all objects in a reset |
//! | [`microcode`] | the program of every command, made from the tables of the contract |
//! | [`instruction`] | one instruction, and the assembler of programs |
//! | [`alu`] | executes one instruction on two words |
//! | [`object_store`] | layout of the memory of all objects |
//! | [`object_view`] | objects of the store as messages to the other parts |
//! | [`path`] | the path record as the stages use it |
//! | [`read_slots`] | hands out the slots for READs and atomics that queue pairs share |
//! | [`page_list`] | reads the pages of a region from the host into the tables of pages |
//! | [`invalidate`] | invalidates keys that WQEs and peers name |
//! | [`quiesce`] | waits until everything that was in flight has left the card |
//! | [`setup_broadcast`] | sends one setup event to all stages |
//! | [`messages`] | messages between these blocks |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod control;

pub mod axi_lite;
pub mod doorbells;
pub mod register_map;
pub mod registers;

pub mod frame_counters;
mod totals;

pub mod device_failure;
pub mod drained;
pub mod function_reset;
pub mod reset;

pub mod admin_ring;
pub mod sequencer;

pub mod alu;
pub mod instruction;
pub mod microcode;
pub mod object_store;
pub mod object_view;
pub mod path;

pub mod invalidate;
pub mod page_list;
pub mod read_slots;
pub mod quiesce;
pub mod setup_broadcast;

pub mod messages;

#[cfg(test)]
mod admin_tests;
