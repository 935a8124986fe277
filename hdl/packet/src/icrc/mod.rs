//! The invariant CRC of RoCEv2 (protocol 1.8), at one beat a cycle and any width of the datapath.
//!
//! ```text
//!               ┌───────────┐                             ┌──────────────┐
//!  from_frame ─>│ IcrcCheck ├─> verdict      from_join ──>│ IcrcGenerate ├─> icrc
//!               └───────────┘                             └──────────────┘
//!            both around IcrcState, whose tables and matrices come from crc.rs
//! ```
mod check;
mod crc;
mod generate;
#[cfg(test)]
pub(crate) mod reference;
mod state;

pub use check::{CHECK_LATENCY, IcrcCheck};
pub use generate::{IcrcGenerate, PLACE_BITS, UncheckedBeat, generate_latency};

use rnic_kernel::prelude::*;

/// A beat of a received frame, with what the parser knows about it.
///
/// The beats of a frame are sent from its first byte on (the Ethernet header is in lane 0 of the `start` beat)
/// to the one with the last byte of the ICRC; what follows (Ethernet pad) is not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CoveredBeat<const DATA: usize, const BYTES: usize> {
    /// Bytes of the frame, the first one in bits 7:0. In the `end` beat, bytes beyond `end_bytes` may hold anything.
    pub data: Bits<DATA>,
    /// The first beat of a frame.
    pub start: Bit,
    /// The beat with the last byte of the ICRC, which the IP length tells. May be the `start` beat.
    pub end: Bit,
    /// Only on the `end` beat: its bytes up to and including the last byte of the ICRC, 1 to `DATA / 8`.
    pub end_bytes: Bits<BYTES>,
    /// The frame has an 802.1Q tag. The same on all beats of a frame.
    pub vlan_present: Bit,
    /// The frame is IPv6. The same on all beats of a frame.
    pub is_ipv6: Bit,
}
