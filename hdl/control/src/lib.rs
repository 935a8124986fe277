//! The slow path: doorbells, the admin queue, and the life of queue pairs.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`doorbells`] | what software writes into its pages, checked against their owners |
//! | [`registers`] | the registers of BAR 0 |
//! | [`reset`] | the order of a reset |
//! | [`device_failure`] | what only a reset helps against |
//! | [`broadcast`] | one setup event to all stages |
//! | [`store`] | where objects stand in the one memory of everything that commands have set |
//! | [`steps`] | what a step of a command says |
//! | [`programs`] | the steps of every command, made from the tables of the contract |
//! | [`judge`] | what one step says about two words |
//! | [`path`] | the path record as the stages take it |
//! | [`wires`] | what the blocks of this crate say to each other |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod broadcast;
pub mod device_failure;
pub mod doorbells;
pub mod judge;
pub mod path;
pub mod programs;
pub mod registers;
pub mod reset;
pub mod steps;
pub mod store;
pub mod wires;
