//! Accepts or drops each frame, with exactly one outcome.
//!
//! Faults of the headers are known early, those of the length at the end of the frame, and the ICRC last. This block combines them,
//! selects the first fault in the order of [`reason`], and commits the packet in one of the two buffers or rolls it back in both.
//!
//! ```text
//!  from_parse ────>┌──────┐                        ┌───────────┐──> commit_requests, commit_responses,
//!  frame_end, ────>│ hold ├─> first fault ─▯─▯────>│ + verdict │    rollback
//!  frame           └──────┘                        │ + fits    │──> outcome
//!  verdict, *_exceed ─────────────────────────────>└───────────┘
//!  cycle              0           1                      4           5
//! ```
//!
//! Three frames of one beat; the second is for another port, and the third has a wrong ICRC:
//! ```text
#![doc = include_str!("waves/dispatch.txt")]
//! ```
//!
//! Latency [`DISPATCH_LATENCY`] cycles from `frame_end` to commit or rollback, which are combinational in the verdict and
//! in the room of the buffers, one more to `outcome`; throughput one frame a cycle; never stalls.
//!
//! 1. Every frame has one outcome: accepted as a request or as a response, or one drop reason.
//! 2. Faults are checked in the order of their numbers, whenever they become known. The result of a later check does not matter
//!    for a frame that an earlier one refused.
//! 3. `to_responses` shows which role the frame that is being written belongs to, from its first payload beat to its end.
//! 4. The verdict may come at any time from the first beat of its frame to [`DISPATCH_LATENCY`] cycles after the last.
//!
//! Protocol 8.3.
use super::measure::FrameEnd;
use super::parse::{PacketClass, ParsedHeaders};
use rnic_blocks::stream::{ValidRx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::drop_reason::{self as reason, REASON_BITS};
use rnic_messages::frame::{ACCEPTED_CONGESTION, ACCEPTED_REQUEST, ACCEPTED_RESPONSE, FrameOutcome};

/// Cycles from the last beat of a frame to its commit or rollback.
pub const DISPATCH_LATENCY: usize = 4;

/// All that is known of a frame except its ICRC and the room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Finding {
    /// The frame ends here.
    ends: Bit,
    /// A fault before the ICRC in the order of reasons.
    early: Bit,
    /// A fault after the ICRC in the order of reasons.
    late: Bit,
    /// First fault in the order of reasons.
    reason: Bits<REASON_BITS>,
    /// For the requester.
    is_response: Bit,
    /// A congestion notification, which is for the requester too.
    is_congestion: Bit,
    frame_bytes: Bits<16>,
}

/// Accepts or drops each received frame.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct Dispatch {
    /// From the parser: a new frame has these headers; the frame begins in this cycle.
    pub from_parse: ValidRx<ParsedHeaders>,
    /// From measure: the frame ends in this cycle; may be the one in which it begins.
    pub frame_end: Signal<In, Bit>,
    /// Measurements of that frame.
    pub frame: Signal<In, FrameEnd>,
    /// From the ICRC check: `verdict_ok` is valid in this cycle.
    pub verdict_valid: Signal<In, Bit>,
    /// The ICRC of the frame is correct.
    pub verdict_ok: Signal<In, Bit>,

    /// To the buffers: payload in this cycle is a response's; registered.
    pub to_responses: Signal<Out, Bit>,
    /// From the request buffer: the packet has found room.
    pub requests_fit: Signal<In, Bit>,
    /// From the response buffer: the packet has found room.
    pub responses_fit: Signal<In, Bit>,
    /// The queue pair of the packet has its share of the request buffer.
    pub requests_exceed: Signal<In, Bit>,
    /// It has its share of the response buffer.
    pub responses_exceed: Signal<In, Bit>,
    /// To the request buffer: keep the packet; combinational.
    pub commit_requests: Signal<Out, Bit>,
    /// To the response buffer: keep the packet; combinational.
    pub commit_responses: Signal<Out, Bit>,
    /// To both: forget what was written; combinational.
    pub rollback: Signal<Out, Bit>,

    /// To the counters: what became of a frame; registered.
    pub outcome: ValidTx<FrameOutcome>,

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
        if self.from_parse.valid.val() {
            self.headers.d.next = self.from_parse.value.val();
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
        let exceeds = select(finding.is_response, self.responses_exceed.val(), self.requests_exceed.val());
        let accepts = is_good && fits && !exceeds;
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
            } else if exceeds {
                bits::<REASON_BITS>(reason::BUFFER_SHARE)
            } else if finding.is_congestion {
                bits::<REASON_BITS>(ACCEPTED_CONGESTION)
            } else if finding.is_response {
                bits::<REASON_BITS>(ACCEPTED_RESPONSE)
            } else {
                bits::<REASON_BITS>(ACCEPTED_REQUEST)
            },
            frame_bytes: finding.frame_bytes,
        };
        self.outcome.offer(self.outcome_valid_held.q.val(), self.outcome_held.q.val());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::{Bench, Waves};

    fn bench() -> Bench<Dispatch> {
        let mut bench = Bench::clocked(Dispatch::default(), |block| &mut block.clock).in_lock_step();
        bench.block.requests_fit.next = true;
        bench.block.responses_fit.next = true;
        bench
    }

    /// Everything that decides about a frame.
    #[derive(Clone, Copy)]
    struct Case {
        fault: u64,
        frame: FrameEnd,
        verdict_ok: bool,
        requests_fit: bool,
        responses_fit: bool,
        requests_exceed: bool,
        responses_exceed: bool,
        packet_class: PacketClass,
    }

    fn good() -> Case {
        Case {
            fault: reason::NONE,
            frame: FrameEnd { frame_bytes: bits(58), ..FrameEnd::default() },
            verdict_ok: true,
            requests_fit: true,
            responses_fit: true,
            requests_exceed: false,
            responses_exceed: false,
            packet_class: PacketClass::Request,
        }
    }

    /// Sends a frame of one beat; returns its outcome, and whether the buffers of requests and responses commit it.
    fn judge(bench: &mut Bench<Dispatch>, case: Case) -> (u64, bool, bool) {
        let block = &mut bench.block;
        block.from_parse.valid.next = true;
        block.from_parse.value.next = ParsedHeaders {
            packet_class: case.packet_class,
            fault: bits(case.fault),
            ..ParsedHeaders::default()
        };
        block.frame_end.next = true;
        block.frame.next = case.frame;
        bench.tick();
        bench.block.from_parse.valid.next = false;
        bench.block.frame_end.next = false;
        (1..DISPATCH_LATENCY).for_each(|_| bench.tick());
        bench.block.verdict_valid.next = true;
        bench.block.verdict_ok.next = case.verdict_ok;
        bench.block.requests_fit.next = case.requests_fit;
        bench.block.responses_fit.next = case.responses_fit;
        bench.block.requests_exceed.next = case.requests_exceed;
        bench.block.responses_exceed.next = case.responses_exceed;
        bench.settle();
        let (commits, responds) = (bench.block.commit_requests.val(), bench.block.commit_responses.val());
        assert_eq!(bench.block.rollback.val(), !commits && !responds);
        bench.tick();
        bench.block.verdict_valid.next = false;
        bench.settle();
        assert!(bench.block.outcome.valid.val());
        let outcome = bench.block.outcome.value.val();
        assert_eq!(outcome.frame_bytes.to_u64(), case.frame.frame_bytes.to_u64());
        bench.tick();
        bench.settle();
        assert!(!bench.block.outcome.valid.val(), "one event for each frame");
        (outcome.number.to_u64(), commits, responds)
    }

    #[test]
    fn good_packets_go_to_their_role() {
        let mut bench = bench();
        let class = |packet_class| Case { packet_class, ..good() };
        let request = judge(&mut bench, class(PacketClass::Request));
        assert_eq!(request, (ACCEPTED_REQUEST, true, false));
        let response = judge(&mut bench, class(PacketClass::Response));
        assert_eq!(response, (ACCEPTED_RESPONSE, false, true));
        let congestion = judge(&mut bench, class(PacketClass::Congestion));
        assert_eq!(congestion, (ACCEPTED_CONGESTION, false, true));
    }

    #[test]
    fn a_full_buffer_refuses_its_own_role_alone() {
        let mut bench = bench();
        let full = Case { requests_fit: false, ..good() };
        assert_eq!(judge(&mut bench, full), (reason::BUFFER_FULL, false, false));
        let other = Case { packet_class: PacketClass::Response, ..full };
        assert_eq!(judge(&mut bench, other), (ACCEPTED_RESPONSE, false, true));
        let other_full = Case { responses_fit: false, ..other };
        assert_eq!(judge(&mut bench, other_full), (reason::BUFFER_FULL, false, false));
    }

    #[test]
    fn a_share_of_one_buffer_counts_for_its_role_alone() {
        let mut bench = bench();
        let asking = Case { requests_exceed: true, ..good() };
        let answering = Case { responses_exceed: true, ..good() };
        for (packet_class, asks, answers) in [
            (PacketClass::Request, (reason::BUFFER_SHARE, false, false), (ACCEPTED_REQUEST, true, false)),
            (PacketClass::Response, (ACCEPTED_RESPONSE, false, true), (reason::BUFFER_SHARE, false, false)),
            (
                PacketClass::Congestion,
                (ACCEPTED_CONGESTION, false, true),
                (reason::BUFFER_SHARE, false, false),
            ),
        ] {
            assert_eq!(judge(&mut bench, Case { packet_class, ..asking }), asks, "{packet_class:?}");
            assert_eq!(judge(&mut bench, Case { packet_class, ..answering }), answers, "{packet_class:?}");
        }
    }

    #[test]
    fn of_any_two_faults_the_first_in_order_is_counted() {
        let mut bench = bench();
        let with = |case: Case, number: u64| match number {
            reason::MAC_ERROR => Case { frame: FrameEnd { mac_error: true, ..case.frame }, ..case },
            reason::TOO_LONG => Case { frame: FrameEnd { too_long: true, ..case.frame }, ..case },
            reason::IP_LENGTH => Case { frame: FrameEnd { ip_length: true, ..case.frame }, ..case },
            reason::ICRC => Case { verdict_ok: false, ..case },
            reason::BUFFER_FULL => Case { requests_fit: false, ..case },
            reason::BUFFER_SHARE => Case { requests_exceed: true, ..case },
            fault => Case { fault: fault.min(case.fault), ..case },
        };
        for first in 0..=reason::BUFFER_SHARE {
            for second in first..=reason::BUFFER_SHARE {
                let case = with(with(good(), first), second);
                assert_eq!(judge(&mut bench, case), (first, false, false), "{first} and {second}");
            }
        }
    }

    #[test]
    fn a_verdict_that_came_long_before_the_end_still_counts_and_only_once() {
        let mut bench = bench();
        bench.block.verdict_valid.next = true;
        bench.block.verdict_ok.next = true;
        bench.tick();
        bench.block.verdict_valid.next = false;
        (0..10).for_each(|_| bench.tick());
        let silent = Case { verdict_ok: false, ..good() };
        assert_eq!(judge(&mut bench, silent).0, ACCEPTED_REQUEST);
        assert_eq!(judge(&mut bench, silent).0, reason::ICRC);
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves =
            Waves::new().signal("from_parse_valid").signal("from_parse_value.fault").when("from_parse_valid");
        let waves =
            waves.signal("frame_end").signal("verdict_valid").signal("verdict_ok").when("verdict_valid");
        let waves = waves.signal("commit_requests").signal("rollback");
        let waves = waves.signal("outcome_valid").signal("outcome_value.number").when("outcome_valid");
        let mut bench = Bench::clocked(Dispatch::default(), |block| &mut block.clock).recording(waves);
        bench.block.requests_fit.next = true;
        for cycle in 0..9 {
            let block = &mut bench.block;
            block.from_parse.valid.next = cycle <= 2;
            let fault = bits(if cycle == 1 { reason::OTHER_PORT } else { reason::NONE });
            block.from_parse.value.next = ParsedHeaders { fault, ..ParsedHeaders::default() };
            block.frame_end.next = cycle <= 2;
            block.verdict_valid.next = (4..=6).contains(&cycle);
            block.verdict_ok.next = cycle != 6;
            bench.tick();
        }
        bench.waves().expect("waves/dispatch.txt");
    }
}
