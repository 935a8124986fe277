//! Outcome of a received frame: the receive path reports one for each frame, and the counters count them.
use crate::drop_reason::{BUFFER_SHARE, REASON_BITS};
use rnic_kernel::prelude::*;

/// Outcome: a request was accepted. Follows the numbers of all drop reasons.
pub const ACCEPTED_REQUEST: u64 = BUFFER_SHARE + 1;
/// Outcome: a response was accepted.
pub const ACCEPTED_RESPONSE: u64 = BUFFER_SHARE + 2;
/// Outcome: a congestion notification packet (CNP) was accepted.
pub const ACCEPTED_CONGESTION: u64 = BUFFER_SHARE + 3;
/// Number of outcomes.
pub const OUTCOME_COUNT: usize = ACCEPTED_CONGESTION as usize + 1;

/// Outcome of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct FrameOutcome {
    /// A [drop reason](crate::drop_reason), [`ACCEPTED_REQUEST`], [`ACCEPTED_RESPONSE`] or
    /// [`ACCEPTED_CONGESTION`].
    pub number: Bits<REASON_BITS>,
    /// Length of the frame in bytes, without FCS.
    pub frame_bytes: Bits<16>,
}

/// Frames of one outcome, and the sum of their lengths. Both wrap at 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Count {
    /// Number of frames.
    pub frames: Bits<64>,
    /// Sum of their lengths in bytes.
    pub bytes: Bits<64>,
}
