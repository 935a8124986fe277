//! The packet path: from frames of the MAC to tokens and payload, and back.
//!
//! ```text
//!            ┌ crossing ┐   ┌─────────────────────── receive ────────────────────────┐
//!  MAC rx ──>│ AsyncFifo├──>│ collect ─> parse ─> measure ─> strip, icrc ─> dispatch ├──> buffers (requests, responses)
//!            │          │   └──────────────────────────────────────────────────┬─────┘
//!            │          │                                                      └──> counters
//!  MAC tx <──┤          │<── assemble (plan, headers, sequence, icrc, seal) <── tokens, payload
//!            └──────────┘
//! ```
//!
//! | Module | Stage |
//! |---|---|
//! | [`mac`], [`crossing`] | frames between the clocks of the MAC and the core |
//! | [`collect`] | the first 128 bytes of a frame as one vector |
//! | [`parse`], [`opcode_table`] | headers to a token, with the first fault |
//! | [`measure`] | length of the frame, and the bytes that the ICRC covers |
//! | [`icrc`] | check and generation of the ICRC |
//! | [`strip`], [`delay`] | payload without headers, aligned to lane 0 |
//! | [`dispatch`] | accepts or drops each frame |
//! | [`entry_share`] | what each queue pair holds of the request buffer |
//! | [`request_buffer`], [`free_cells`] | payload and token of a request, committed or rolled back; payload is read by reference |
//! | [`buffer`] | payload and token of a response, committed or rolled back; a queue |
//! | [`receive`] | the receive path as a whole |
//! | [`counters`] | counts the outcomes |
//! | [`assemble`] | tokens and payload to frames |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod mac;
pub mod crossing;
pub mod collect;
pub mod parse;
pub mod opcode_table;
pub mod measure;
pub mod icrc;
pub mod delay;
pub mod strip;
pub mod dispatch;
pub mod entry_share;
pub mod free_cells;
pub mod request_buffer;
pub mod buffer;
pub mod receive;
pub mod counters;
pub mod assemble;

#[cfg(test)]
mod receive_tests;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod vectors;
