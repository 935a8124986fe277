#![no_std]
//! Every bit that two parties of the rnic card must agree on.
//!
//! The card, the driver, the simulated machine and the reference endpoint share no other code. A bit position, an offset, an
//! opcode, a limit or a reset value is written once, in a constant table of this crate. The register manual, the C header,
//! the parsers and emitters, and the tests that compare the hardware's structs with the tables are made from it.
//!
//! ```text
//!   process                     driver                                                          peer
//!      │ queue: WQEs, CQEs, EQEs   │ registers (BAR 0)                                             ▲
//!      │ doorbell (BAR 2)          │ admin: commands, answers                                      │ wire: headers, ICRC
//!      ▼                           ▼                                                               ▼
//!   ┌─────────────────────────────────────────────────────────────────────────────────────────────────┐
//!   │ card    state: of a queue pair    context: path of a queue pair    opcode, syndrome, psn, path  │
//!   └─────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! | module | between |
//! |---|---|
//! | [`field`] | everyone: how a record is written down as a table |
//! | [`limits`] | everyone: the bound of every queue, table and loop |
//! | [`registers`] | driver and card: BAR 0 with its counters |
//! | [`doorbell`] | process and card: BAR 2 |
//! | [`pci`] | driver and card: identity, BARs and configuration space of the PCI function |
//! | [`queue`] | process and card: WQEs, CQEs and EQEs |
//! | [`admin`] | driver and card: commands and their answers |
//! | [`state`] | driver and card: states of a queue pair, attributes and transitions |
//! | [`context`] | control and the stages of the card: path of a queue pair |
//! | [`psn`], [`opcode`], [`syndrome`], [`path`] | card and peer: serial numbers, opcodes, AETH syndromes, PMTU and addresses |
//! | [`wire`] | card and peer: every header, the ICRC, whole frames, and which of them the card accepts |
//! | [`render`] | readers: the register manual and the C header, made from the tables |
//!
//! The crate needs no allocator and no standard library.

#[cfg(test)]
extern crate std;

pub mod field;
pub mod limits;
pub mod registers;
pub mod doorbell;
pub mod pci;
pub mod queue;
pub mod admin;
pub mod state;
pub mod context;
pub mod psn;
pub mod opcode;
pub mod syndrome;
pub mod path;
pub mod wire;
pub mod render;
