//! ResponseSender: sends responses to READs and atomics once their access answers are there, or a NAK in their
//! place.
//!
//! ```text
//!  response ──────┐    ┌──────┐     ┌──────────────┐
//!  access_answer ─┼───>│ Look ├────>│ Send or Lose ├──> gather
//!  lost ──────────┘    └──────┘     └──────────────┘──> failure
//!                      verdicts (one word a queue pair)
//! ```
//!
//! Two cycles a response.
//!
//! 1. Responses leave in order. A response that is not allowed, or that the host has failed, becomes a NAK, and
//!    later responses of the same queue pair are dropped. A NAK leaves its READ open, so no acknowledgement follows it.
//! 2. A response whose payload gather could not read becomes NAK 0x63 at its PSN, unless the queue pair has
//!    failed before.
use super::record::{ACKNOWLEDGE, RESPONSE_MIDDLE, Response};
use crate::messages::ReadResponderCounts;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::syndrome::{CREDITS_UNLIMITED, NakCode, Syndrome};
use rnic_messages::host::HostSpan;
use rnic_messages::packet::EXTENDED_BITS;
use rnic_messages::protect::AccessAnswer;
use rnic_messages::setup::{InFlight, NoticeKind, QpNotice};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, sizes};
use rnic_messages::transmit::{GatherCommand, GatherFailure, TransmitRequest};

const ACKNOWLEDGED: u64 = Syndrome::Ack { credit_code: CREDITS_UNLIMITED }.emit() as u64;
const NAK_ACCESS: u64 = Syndrome::Nak(NakCode::RemoteAccessError).emit() as u64;
const NAK_OPERATIONAL: u64 = Syndrome::Nak(NakCode::RemoteOperationalError).emit() as u64;
/// Bits of the headers of a response: AETH, and AtomicAckETH or nothing.
const HEADER_BITS: usize = 32 + 64;

/// Outcome of the responses of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Verdict {
    /// One of them became a NAK.
    has_failed: Bit,
    /// Generation of the last response.
    generation: Bits<GENERATION_BITS>,
    /// MSN of the last response.
    msn: Bits<24>,
}

/// Outcome of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Outcome {
    /// It is dropped, since an earlier one has failed.
    is_dropped: Bit,
    /// The remote key does not allow it.
    is_refused: Bit,
    /// The host has failed it.
    is_broken: Bit,
}

/// State of the machine.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Sending {
    /// Chooses.
    Look,
    /// A response has its access answer.
    Send,
    /// Gather could not read the payload of a response.
    Lose,
}

/// Says how far a verdict concerns a response or a lost payload: those of an earlier life of the queue pair
/// don't count.
#[kernel]
fn outcome_of(
    verdict: Verdict,
    response: Response,
    loses: Bit,
    lost_generation: Bits<GENERATION_BITS>,
    is_allowed: Bit,
) -> Outcome {
    let had_failed = verdict.has_failed && !response.is_first;
    let is_over = verdict.has_failed || verdict.generation != lost_generation;
    let is_dropped = select(loses, is_over, had_failed);
    Outcome {
        is_dropped,
        is_refused: !loses && !is_dropped && !is_allowed,
        is_broken: loses || response.has_failed,
    }
}

/// Gives the AETH syndrome of a response, or of the NAK in its place.
#[kernel]
fn syndrome_of(is_broken: Bit, is_allowed: Bit) -> Bits<8> {
    if is_broken {
        bits::<8>(NAK_OPERATIONAL)
    } else if !is_allowed {
        bits::<8>(NAK_ACCESS)
    } else {
        bits::<8>(ACKNOWLEDGED)
    }
}

/// Gives the extended headers: an AETH unless the response is neither first nor last, and the original value of
/// an atomic.
#[kernel]
fn headers_of(syndrome: Bits<8>, msn: Bits<24>, original: Bits<64>, has_aeth: Bit) -> Bits<HEADER_BITS> {
    let aeth: Bits<32> = cat!(swap_bytes(msn), syndrome);
    cat!(swap_bytes(original), select(has_aeth, aeth, bits::<32>(0)))
}

/// A bit as a number to be added.
#[kernel]
fn one(bit: Bit) -> Bits<16> {
    select(bit, bits::<16>(1), bits::<16>(0))
}

/// The sending half of the READ responder.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct ResponseSender {
    /// After a reset: the verdict of queue pair `sweep` is cleared.
    pub clears: Signal<In, Bit>,
    /// Queue pair whose verdict is cleared.
    pub sweep: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// A response is made, in this cycle; for `in_flight`.
    pub makes: Signal<In, Bit>,
    /// Responses in order; `ready` is a function of registers.
    pub response: StreamRx<Response>,
    /// Access answers of those with payload, in order; `ready` is combinational.
    pub access_answer: StreamRx<AccessAnswer>,
    /// From gather: a response that could not be sent; `ready` is a function of registers.
    pub lost: StreamRx<GatherFailure>,
    /// To gather; registered.
    pub gather: StreamTx<GatherCommand>,
    /// To control; registered.
    pub failure: StreamTx<QpNotice>,
    /// Responses that were made, and those that were sent or dropped; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// Counters of NAKs; registered.
    pub counts: Signal<Out, ReadResponderCounts>,

    sending: Reg<Sending>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    verdicts: Memory<Verdict, QUEUE_PAIR_BITS>,
    commands: RegisterSlice<GatherCommand>,
    failures: Fifo<QpNotice, 2, 3>,
    progress: Reg<InFlight>,
    counted: Reg<ReadResponderCounts>,
}

impl Logic for ResponseSender {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.gather, &mut self.commands.tx);
        StreamTx::link(&mut self.failure, &mut self.failures.tx);

        let sending = self.sending.q.val();
        let response = self.response.beat.val();
        let has_bytes = response.payload_bytes.any();
        let answer = self.access_answer.beat.val();
        let lost = self.lost.beat.val();
        let is_looking = sending == Sending::Look;
        let has_response = self.response.valid.val() && (!has_bytes || self.access_answer.valid.val());
        if is_looking {
            self.sending.d.next = if self.lost.valid.val() {
                Sending::Lose
            } else if has_response {
                Sending::Send
            } else {
                Sending::Look
            };
        }
        self.verdicts.read(is_looking, select(self.lost.valid.val(), lost.queue_pair, response.queue_pair));
        let verdict = self.verdicts.read_data.val();
        let may_send = self.commands.rx.ready.val() && self.failures.rx.ready.val();
        let sends = sending == Sending::Send && may_send;
        let loses = sending == Sending::Lose && may_send;
        if sends || loses {
            self.sending.d.next = Sending::Look;
        }
        self.lost.ready.next = loses;
        self.response.ready.next = sends;
        self.access_answer.ready.next = sends && has_bytes;

        // The outcome.
        let is_allowed = !has_bytes || answer.ok;
        let outcome = outcome_of(verdict, response, loses, lost.generation, is_allowed);
        let is_nak = outcome.is_broken || !is_allowed;
        let has_command = (sends || loses) && !outcome.is_dropped;
        let is_lost = loses && !outcome.is_dropped;
        let is_undone = sends && !outcome.is_dropped && response.has_failed;
        let queue_pair = select(loses, lost.queue_pair, response.queue_pair);
        let generation = select(loses, lost.generation, response.generation);
        let msn = select(loses, verdict.msn, response.msn);
        let syndrome = syndrome_of(outcome.is_broken, is_allowed);
        let original = select(is_nak, bits::<64>(0), response.original);
        let has_aeth = is_nak || response.opcode != RESPONSE_MIDDLE;
        self.commands.rx.valid.next = has_command;
        self.commands.rx.beat.next = GatherCommand {
            headers: TransmitRequest {
                queue_pair,
                generation,
                opcode: select(is_nak, bits::<8>(ACKNOWLEDGE), response.opcode),
                psn: select(loses, lost.psn, response.psn),
                extended: bit_cast::<EXTENDED_BITS, HEADER_BITS>(headers_of(
                    syndrome, msn, original, has_aeth,
                )),
                payload_bytes: select(is_nak, bits::<13>(0), response.payload_bytes),
                is_repeated: false,
                is_response: true,
                ends_response: !is_nak && response.ends,
                ..Default::default()
            },
            span_count: select(is_nak || !has_bytes, bits::<2>(0), bits::<2>(1)),
            first: HostSpan { address: answer.device_address, length: response.payload_bytes },
            ..Default::default()
        };
        let is_refused = sends && outcome.is_refused;
        self.failures.rx.valid.next = is_refused || is_undone || is_lost;
        self.failures.rx.beat.next = QpNotice {
            queue_pair,
            generation,
            kind: NoticeKind::ResponderError,
            has_event: true,
            event_code: select(
                outcome.is_broken,
                bits::<8>(AsyncEvent::QueuePairFatal as u64),
                bits::<8>(AsyncEvent::QueuePairAccessError as u64),
            ),
        };
        let clears = self.clears.val();
        self.verdicts.write_enable.next = clears || sends || is_lost;
        self.verdicts.write_address.next = select(clears, self.sweep.val(), queue_pair);
        self.verdicts.write_data.next =
            Verdict { has_failed: !clears && (is_nak || outcome.is_dropped), generation, msn };

        // What was made, and what was sent or ends here.
        let was_sent = self.commands.tx.valid.val() && self.gather.ready.val();
        let vanishes = sends && outcome.is_dropped;
        let progress = self.progress.q.val();
        self.progress.d.next = InFlight {
            entered: progress.entered + one(self.makes.val()) + one(is_lost),
            left: progress.left + one(was_sent) + one(vanishes),
        };
        self.in_flight.next = progress;
        self.counted.d.next = ReadResponderCounts {
            nak_access_sent: is_refused,
            nak_operational_sent: is_lost || is_undone,
            ..Default::default()
        };
        self.counts.next = self.counted.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_sent_unless_one_before_it_has_failed() {
        let failed = Verdict { has_failed: true, generation: bits(3), ..Verdict::default() };
        let clean = Verdict { has_failed: false, ..failed };
        let response = Response::default();
        let first = Response { is_first: true, ..response };
        let undone = Response { has_failed: true, ..response };
        let outcome = |is_dropped, is_refused, is_broken| Outcome { is_dropped, is_refused, is_broken };
        for (verdict, response, is_allowed, expected) in [
            (clean, response, true, outcome(false, false, false)),
            (clean, response, false, outcome(false, true, false)),
            (clean, undone, true, outcome(false, false, true)),
            (failed, response, true, outcome(true, false, false)),
            (failed, response, false, outcome(true, false, false)),
            (failed, first, true, outcome(false, false, false)),
            (failed, first, false, outcome(false, true, false)),
        ] {
            assert_eq!(outcome_of(verdict, response, false, bits(9), is_allowed), expected);
        }
        for (verdict, generation, is_dropped) in
            [(clean, 3, false), (clean, 4, true), (failed, 3, true), (failed, 4, true)]
        {
            let found = outcome_of(verdict, response, true, bits(generation), false);
            assert_eq!(found, outcome(is_dropped, false, true));
        }
    }

    #[test]
    fn a_failed_access_has_the_syndrome_of_its_reason() {
        for (is_broken, is_allowed, syndrome) in [
            (false, true, ACKNOWLEDGED),
            (false, false, NAK_ACCESS),
            (true, true, NAK_OPERATIONAL),
            (true, false, NAK_OPERATIONAL),
        ] {
            assert_eq!(syndrome_of(is_broken, is_allowed), bits(syndrome));
        }
    }

    #[test]
    fn headers_are_in_wire_order() {
        let headers = headers_of(bits(0x62), bits(0x01_0203), bits(0x0102_0304_0506_0708), true);
        assert_eq!(headers.get_bits::<32>(0), bits(0x0302_0162));
        assert_eq!(headers.get_bits::<64>(32), bits(0x0807_0605_0403_0201));
        assert!(!headers_of(bits(0x1f), bits(1), bits(0), false).any());
    }
}
