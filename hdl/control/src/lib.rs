//! The slow path: doorbells, the admin queue, and the life of queue pairs.
//!
//! | Module | What it holds |
//! |---|---|
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

pub mod judge;
pub mod path;
pub mod programs;
pub mod steps;
pub mod store;
pub mod wires;
