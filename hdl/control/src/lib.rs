//! The slow path: doorbells, the admin queue, and the life of queue pairs.
//!
//! ```text
//!  host ring ──> admin_ring ──> execute (store, steps, judge) ──> setup events, tables, doorbell pages
//!            <──            <──    ▲                          ──> asynchronous events
//!                                  └── failures, passages
//! ```
//!
//! | Module | What it holds |
//! |---|---|
//! | [`control`] | the slow path as a whole |
//! | [`doorbells`] | what software writes into its pages, checked against their owners |
//! | [`registers`] | the registers of BAR 0 |
//! | [`reset`] | the order of a reset |
//! | [`device_failure`] | what only a reset helps against |
//! | [`broadcast`] | one setup event to all stages |
//! | [`admin_ring`] | commands from the host's ring, and their answers |
//! | [`execute`] | walks the steps of a command, applies failures to the life of queue pairs, forgets everything |
//! | [`page_list`] | reads the pages of a region from the host, and enters them into the table of pages |
//! | [`invalidate`] | ends the keys that work requests and peers name |
//! | [`passing`] | waits until everything has left the card that was in it |
//! | [`judge`] | what one step says about two words |
//! | [`programs`] | the steps of every command, made from the tables of the contract |
//! | [`steps`] | what a step of a command says |
//! | [`store`] | where objects stand in the one memory of everything that commands have set |
//! | [`tell`] | what the store holds of an object, in the words of those who are told |
//! | [`path`] | the path record as the stages take it |
//! | [`wires`] | what the blocks of this crate say to each other |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod admin_ring;
#[cfg(test)]
mod admin_tests;
pub mod alu;
pub mod axi_lite;
pub mod control;
pub mod device_failure;
pub mod doorbells;
pub mod drained;
pub mod frame_counters;
pub mod instruction;
pub mod invalidate;
pub mod messages;
pub mod microcode;
pub mod object_store;
pub mod object_view;
pub mod packet_registers;
pub mod page_list;
pub mod path;
pub mod quiesce;
pub mod register_map;
pub mod registers;
pub mod reset;
pub mod sequencer;
pub mod setup_broadcast;
mod totals;
