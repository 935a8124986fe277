//! Decides what becomes of a frame: exactly one event for each.
//!
//! What the headers say is known early, what the end of the frame says later, and what the ICRC says last. This block
//! brings them together, takes the first fault in the order of [`reason`], and tells one of the two buffers to keep the
//! packet, or both to forget it.
//!
//! ```text
//!  from_parse ────>┌──────┐                        ┌───────────┐──> commit_requests, commit_responses,
//!  frame_end, ────>│ hold ├─> first fault ─▯─▯────>│ + verdict │    rollback
//!  frame           └──────┘                        │ + fits    │──> outcome
//!  verdict ───────────────────────────────────────>└───────────┘
//!  cycle              0           1                      4           5
//! ```
//!
//! Latency [`DISPATCH_LATENCY`] cycles from `frame_end` to commit or rollback, which are combinational in the verdict and
//! in what the buffers say, one more to `outcome`; throughput one frame a cycle; never stalls.
//!
//! 1. Every frame gives one event: `accepted` as a request or as a response, or one reason.
//! 2. Faults are looked at in the order of their numbers, whenever they become known; what a later check says about a
//!    frame that an earlier one refused does not matter.
//! 3. `to_responses` says which role the frame that is being written belongs to, from its first payload beat to its end.
//! 4. The verdict may come at any time from the first beat of its frame to [`DISPATCH_LATENCY`] cycles after the last.
//!
//! Protocol 8.3.
use super::measure::FrameEnd;
use super::parse::{PacketClass, ParsedHeaders};
use super::reason::{self, REASON_BITS};
use rnic_kernel::prelude::*;

/// Cycles from the last beat of a frame to its commit or rollback.
pub const DISPATCH_LATENCY: usize = 4;

/// Number of the event that a request was accepted, behind all reasons.
pub const ACCEPTED_REQUEST: u64 = reason::BUFFER_FULL + 1;
/// Number of the event that a response was accepted.
pub const ACCEPTED_RESPONSE: u64 = reason::BUFFER_FULL + 2;
/// Number of the event that a congestion notification was accepted.
pub const ACCEPTED_CONGESTION: u64 = reason::BUFFER_FULL + 3;
/// Events that there are.
pub const OUTCOME_COUNT: usize = ACCEPTED_CONGESTION as usize + 1;

/// What became of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct FrameOutcome {
    /// A [`reason`], [`ACCEPTED_REQUEST`], [`ACCEPTED_RESPONSE`] or [`ACCEPTED_CONGESTION`].
    pub number: Bits<REASON_BITS>,
    /// Length of the frame.
    pub frame_bytes: Bits<16>,
}

/// All that is known of a frame but for its ICRC and its room.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Finding {
    /// The frame ends here.
    ends: Bit,
    /// Something is wrong that is counted before a wrong ICRC.
    early: Bit,
    /// Something is wrong that is counted behind it.
    late: Bit,
    /// The first of it.
    reason: Bits<REASON_BITS>,
    /// For the requester.
    is_response: Bit,
    /// A congestion notification, which is for the requester too.
    is_congestion: Bit,
    frame_bytes: Bits<16>,
}

/// The block.
#[derive(Default, LogicBlock, Registers)]
pub struct Dispatch {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,

    /// From the parser: a new frame has these headers.
    pub from_parse: Signal<In, ParsedHeaders>,
    /// It begins in this cycle.
    pub from_parse_valid: Signal<In, Bit>,
    /// From measure: the frame ends in this cycle; may be the one in which it begins.
    pub frame_end: Signal<In, Bit>,
    /// What it was.
    pub frame: Signal<In, FrameEnd>,
    /// From the ICRC check: a frame was judged.
    pub verdict_valid: Signal<In, Bit>,
    /// Its ICRC is right.
    pub verdict_ok: Signal<In, Bit>,

    /// To the buffers: payload in this cycle is a response's; registered.
    pub to_responses: Signal<Out, Bit>,
    /// From the request buffer: the packet has found room.
    pub requests_fit: Signal<In, Bit>,
    /// From the response buffer: the packet has found room.
    pub responses_fit: Signal<In, Bit>,
    /// To the request buffer: keep the packet; combinational.
    pub commit_requests: Signal<Out, Bit>,
    /// To the response buffer: keep the packet; combinational.
    pub commit_responses: Signal<Out, Bit>,
    /// To both: forget what was written; combinational.
    pub rollback: Signal<Out, Bit>,

    /// To the counters: what became of a frame; registered.
    pub outcome: Signal<Out, FrameOutcome>,
    /// There was one; registered.
    pub outcome_valid: Signal<Out, Bit>,

    headers: DFF<ParsedHeaders>,
    frame_held: DFF<FrameEnd>,
    frame_ends: Reg<Bit>,
    findings: [Reg<Finding>; 3],
    verdict_held: Reg<Bit>,
    outcome_held: DFF<FrameOutcome>,
    outcome_valid_held: Reg<Bit>,
}

impl Logic for Dispatch {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        // Cycle 0: the headers of the frame that passes.
        if self.from_parse_valid.val() {
            self.headers.d.next = self.from_parse.val();
        }
        self.frame_held.d.next = self.frame.val();
        self.frame_ends.d.next = self.frame_end.val();

        // Cycle 1: the first fault but for the ICRC and a full buffer.
        let headers = self.headers.q.val();
        let frame = self.frame_held.q.val();
        let reason = if frame.mac_error {
            bits::<REASON_BITS>(reason::MAC_ERROR)
        } else if frame.too_long {
            bits::<REASON_BITS>(reason::TOO_LONG)
        } else if frame.ip_length && headers.fault > reason::IP_LENGTH {
            bits::<REASON_BITS>(reason::IP_LENGTH)
        } else {
            headers.fault
        };
        self.findings[0].d.next = Finding {
            ends: self.frame_ends.q.val(),
            early: reason < reason::ICRC,
            late: reason > reason::ICRC && reason != reason::NONE,
            reason,
            is_response: headers.packet_class != PacketClass::Request,
            is_congestion: headers.packet_class == PacketClass::Congestion,
            frame_bytes: frame.frame_bytes,
        };
        for stage in 1..3 {
            self.findings[stage].d.next = self.findings[stage - 1].q.val();
        }

        // Cycle 4: the verdict is there, now or since an earlier cycle.
        let finding = self.findings[2].q.val();
        let icrc_ok = self.verdict_held.q.val() || (self.verdict_valid.val() && self.verdict_ok.val());
        self.verdict_held.d.next = icrc_ok && !finding.ends;

        let is_good = finding.ends && !finding.early && !finding.late && icrc_ok;
        let fits = select(finding.is_response, self.responses_fit.val(), self.requests_fit.val());
        let accepts = is_good && fits;
        self.to_responses.next = finding.is_response;
        self.commit_requests.next = accepts && !finding.is_response;
        self.commit_responses.next = accepts && finding.is_response;
        self.rollback.next = finding.ends && !accepts;

        self.outcome_valid_held.d.next = finding.ends;
        self.outcome_held.d.next = FrameOutcome {
            number: if finding.early {
                finding.reason
            } else if !icrc_ok {
                bits::<REASON_BITS>(reason::ICRC)
            } else if finding.late {
                finding.reason
            } else if !fits {
                bits::<REASON_BITS>(reason::BUFFER_FULL)
            } else if finding.is_congestion {
                bits::<REASON_BITS>(ACCEPTED_CONGESTION)
            } else if finding.is_response {
                bits::<REASON_BITS>(ACCEPTED_RESPONSE)
            } else {
                bits::<REASON_BITS>(ACCEPTED_REQUEST)
            },
            frame_bytes: finding.frame_bytes,
        };
        self.outcome.next = self.outcome_held.q.val();
        self.outcome_valid.next = self.outcome_valid_held.q.val();
    }
}
