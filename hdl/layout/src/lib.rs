#![no_std]
//! Every bit that two parties of the rnic card must agree on.
//!
//! The card's hardware, its driver, the simulated machine and the reference endpoint know each other only through
//! this crate. One fact stands in one place: a bit position, an offset, an opcode, a limit or a reset value is written
//! once, in a constant table, and the register manual, the C header and the tests that hold the hardware's mirrors to
//! it are made from that table.
//!
//! | module | between whom |
//! |---|---|
//! | [`registers`] | driver and card: BAR 0, counters |
//! | [`doorbell`] | processes and card: BAR 2 |
//! | [`admin`] | driver and card: commands and answers |
//! | [`queue`] | processes and card: work, completions, events |
//! | [`context`] | stages of the card, and the host memory that they keep their records in |
//! | [`state`] | driver and card: what a queue pair may do, and how it gets there |
//! | [`wire`] | card and peer: every header, the ICRC, whole frames |
//! | [`opcode`], [`syndrome`], [`psn`], [`path`] | card and peer: operations, answers, serial numbers, addresses |
//! | [`limits`] | everybody: the bound of every queue, table and loop |
//! | [`field`], [`render`] | the tables themselves, and the manual and C header made from them |
//!
//! The crate needs no allocator and no standard library.

#[cfg(test)]
extern crate std;

pub mod admin;
pub mod context;
pub mod doorbell;
pub mod field;
pub mod limits;
pub mod opcode;
pub mod path;
pub mod psn;
pub mod queue;
pub mod registers;
pub mod render;
pub mod state;
pub mod syndrome;
pub mod wire;
