//! The invariant CRC of RoCEv2 (protocol 1.8), at one beat a cycle and any width of the datapath.
//!
//! [`IcrcCheck`](self) judges received frames. Its ports:
//!
//! ```text
//!                        ┌───────────┐
//!  from_frame: CoveredBeat, valid    │  verdict_valid, verdict_ok
//! ──────────────────────>│ IcrcCheck ├─────────────────────────────>
//!                        └───────────┘
//! ```
//!
//! * `from_frame: Signal<In, CoveredBeat<DATA, BYTES>>` and `from_frame_valid: Signal<In, Bit>`; there is no `ready`:
//!   a beat is taken in every cycle in which it is valid, and cycles without one may stand anywhere.
//! * `verdict_valid: Signal<Out, Bit>` is high for one cycle, exactly [`CHECK_LATENCY`] cycles after the beat that
//!   carried `end` was taken; `verdict_ok: Signal<Out, Bit>` says then whether the ICRC is right. Both registered.
//! * Verdicts come in the order of the frames, at most one a cycle: frames of one beat may follow each other in
//!   every cycle. A frame that is started and never ended gets no verdict, and does no harm to the next.
use rnic_kernel::prelude::*;

/// Cycles from the `end` beat at the input of the check to its verdict.
pub const CHECK_LATENCY: usize = 4;

/// A beat of a received frame, with what the parser knows about it.
///
/// The beats of a frame are sent from its first byte on (the Ethernet header stands in lane 0 of the `start` beat)
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
