//! ReadResponse: says where the data of READs goes, and finds out when some of it is missing.
//!
//! The peer's responses to a READ carry nothing but a PSN and data, so what was asked for is kept here, up to 16 READs a queue pair.
//! An answer that comes behind data must not be believed before the data is in memory; so such answers come past here too, and all go
//! through the place stage, in the order in which they came.
//!
//! ```text
//!                ┌─────────────────────────────────────────────────────────────────┐
//!  setup ───────>│ life                                                            │
//!  read ────────>│ records (16 a queue pair)                                       │
//!  opened ──────>│ progress: how many are open, how far the oldest one is          │
//!                │     ^ v                                                         │
//!  response ────>│ whose? ──> record ──> PSN, opcode, length ──> parts ────────────┼──> access_request
//!                │                                 │                               │
//!                │                                 └──> waiting (16) ──┐           │
//!  access_answer │                                                     v           │
//!  ─────────────>│────────────────────────────────────────────────> verdict ───────┼──> place
//!                └─────────────────────────────────────────────────────────────────┘
//!  step            Idle      Load       Look                Judge     Act (Second)
//! ```
//!
//! A response takes 5 cycles, 6 if its data goes to two places. Latency 8 cycles to `place` for one without data.
//!
//! 1. Each response makes exactly one command, in order. Payload that is not placed is dropped by it.
//! 2. What an atomic has found is data, too. Data is placed if it has the PSN that is due, the opcode and the length that the READ calls for at this place, and, where
//!    there is an AETH, an ACK in it (protocol 2.2, 2.5). Other data with the PSN that is due ends the READ with BAD_RESP.
//! 3. Data with an earlier PSN is dropped, and so is the answer to an atomic where a READ is due. Data with a later one, an ACK of that PSN or a later one, or a NAK of a later one mean
//!    that a response was lost (protocol 2.5); nothing is sent again yet, so the READ ends with RETRY_EXC.
//! 4. Data for which no READ is open fails the oldest message, unless it has been here before.
//! 5. Each stretch of data asks for its own place in the region table, so a region that has ended ends the READ with LOC_PROT.
//! 6. What fails says the PSN that is due; everything before it has been answered. Nothing more of the queue pair is placed that
//!    comes behind a failure found here. Behind one of the region table or the host, what is under way may be.
//! 7. In ERR, INIT and RESET, and behind a restart, READs are forgotten with the event; payload is dropped.
//! 8. Setup events and opened READs are taken within 7 cycles, whatever the outputs do.
use crate::constants::{
    ATOMIC_ACKNOWLEDGE, ATOMIC_BYTES, BAD_RESPONSE, LOCAL_PROTECTION, READ_RESPONSE_FIRST,
    READ_RESPONSE_LAST, READ_RESPONSE_MIDDLE, READ_RESPONSE_ONLY, READY_TO_RECEIVE, READY_TO_SEND,
    RETRY_EXCEEDED, SEND_QUEUE_DRAIN, SEND_QUEUE_ERROR, SUCCESS,
};
use crate::messages::{IssuedRead, ReadRecord, Response};
use crate::segment::READ_PLACE_BITS;
use rnic_blocks::logic::psn;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::HostSpan;
use rnic_messages::protect::{AccessAnswer, AccessRequest};
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS, ReadResponseCommand, ReturnedAnswer};
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS};

/// Bits 7:5 of the syndrome of an ACK are zero.
const SYNDROME_CLASS: usize = 5;
/// The shortest PMTU code would be this many bytes, and each code doubles it.
const PMTU_BASE_BITS: usize = 7;
/// Responses that wait for their answers, as a power of two.
const WAITING: usize = 4;
const WAITING_COUNT: usize = WAITING + 1;
/// Requests that may be waiting when a response is begun; it adds two, and the queue holds eight.
const REQUESTS_MAX: u64 = 6;

/// What commands say.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Life {
    /// Responses are placed.
    serves: Bit,
    generation: Bits<GENERATION_BITS>,
}

/// How far a queue pair is.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Progress {
    /// READs that wait for data.
    open: Bits<READ_COUNT_BITS>,
    /// Where the oldest one is written down.
    slot: Bits<READ_SLOT_BITS>,
    /// Some of its data has come.
    has_begun: Bit,
    /// So much.
    bytes: Bits<32>,
    /// Data has come since the queue pair was made or reset.
    has_psn: Bit,
    /// The PSN behind it.
    psn: Bits<24>,
    /// Nothing more is placed.
    has_failed: Bit,
}

/// A command without addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Waiting {
    answer: ReturnedAnswer,
    /// Of payload, or of the literal.
    payload_bytes: Bits<13>,
    /// What an atomic has found goes there; first byte in bits 7:0.
    is_literal: Bit,
    literal: Bits<64>,
    /// Of that, what goes to the first place.
    first_bytes: Bits<13>,
    request_count: Bits<2>,
}

/// What the block does with its records.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Setup,
    Open,
    /// A response: whose, which READ, what is due, what it is, what becomes of it, and the second part of its data.
    Load,
    Look,
    Judge,
    Act,
    Second,
}

/// What the block does with what waits for answers.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Telling {
    Begin,
    Answers,
    Tell,
}

/// The block.
#[derive(LogicBlock, Registers, Construct)]
pub struct ReadResponse {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// Records are being cleared.
    pub is_sweeping: Signal<In, Bit>,
    /// Whose.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From control; acknowledge must have taken the event before.
    pub setup: StreamRx<SetupEvent>,
    /// From cut: a READ.
    pub read: Signal<In, ReadRecord>,
    /// Where it is written down.
    pub read_place: Signal<In, Bits<READ_PLACE_BITS>>,
    /// It is written now.
    pub read_valid: Signal<In, Bit>,
    /// From issuing: it is on its way; it was written before.
    pub opened: StreamRx<IssuedRead>,
    /// From acknowledge.
    pub response: StreamRx<Response>,
    /// To the region table; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// Its answers, in order.
    pub access_answer: StreamRx<AccessAnswer>,
    /// To the place stage; registered.
    pub place: StreamTx<ReadResponseCommand>,
    /// Data has been here before. Registered, as all counts.
    pub counts_response_stale: Signal<Out, Bit>,
    /// Data that nobody asked for, or not so.
    pub counts_response_unexpected: Signal<Out, Bit>,
    /// A response is missing.
    pub counts_implied_nak: Signal<Out, Bit>,
    /// The place of data has ended.
    pub counts_local_protection: Signal<Out, Bit>,

    lives: Memory<Life, QUEUE_PAIR_BITS>,
    progresses: Memory<Progress, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Ultra))]
    records: Memory<ReadRecord, READ_PLACE_BITS>,
    waiting: Fifo<Waiting, WAITING, WAITING_COUNT>,
    requests: Fifo<AccessRequest, 3, 4>,
    step: Reg<Step>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    is_live: DFF<Bit>,
    due_psn: DFF<Bits<24>>,
    /// Bytes of the READ that are missing.
    rest: DFF<Bits<32>>,
    /// Of these, what its first element has room for; or none, and how much of the second one is filled.
    first_rest: DFF<Bits<32>>,
    second_filled: DFF<Bits<32>>,
    is_before: DFF<Bit>,
    is_due: DFF<Bit>,
    is_right: DFF<Bit>,
    is_last: DFF<Bit>,
    first_part: DFF<Bits<13>>,
    second_part: DFF<Bits<13>>,
    first_address: DFF<Bits<64>>,
    second_address: DFF<Bits<64>>,

    telling: Reg<Telling>,
    left: DFF<Bits<2>>,
    is_ok: DFF<Bit>,
    first: DFF<Bits<64>>,
    second: DFF<Bits<64>>,
    command: DFF<ReadResponseCommand>,
    has_command: Reg<Bit>,
    counts: Reg<Bits<4>>,
}

/// Bytes of a code.
#[kernel]
fn pmtu(code: Bits<3>) -> Bits<13> {
    bits::<13>(1 << PMTU_BASE_BITS) << code
}

impl Logic for ReadResponse {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<AccessRequest>::link(&mut self.access_request, &mut self.requests.tx);
        let is_sweeping = self.is_sweeping.val();
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let event = self.setup.beat.val();
        let opened = self.opened.beat.val();
        let response = self.response.beat.val();

        // Who is next. A response begins with room for all that it says.
        let is_idle = step == Step::Idle && !is_sweeping;
        let has_setup = self.setup.valid.val();
        let has_opened = self.opened.valid.val();
        let has_room = self.waiting.rx.ready.val() && self.requests.level.val() <= REQUESTS_MAX;
        let chosen = if has_setup {
            event.queue_pair
        } else if has_opened {
            opened.queue_pair
        } else {
            response.queue_pair
        };
        if is_idle {
            self.queue_pair.d.next = chosen;
            self.step.d.next = if has_setup {
                Step::Setup
            } else if has_opened {
                Step::Open
            } else if self.response.valid.val() && has_room {
                Step::Load
            } else {
                Step::Idle
            };
        }
        self.setup.ready.next = step == Step::Setup;
        self.opened.ready.next = step == Step::Open;
        self.response.ready.next = step == Step::Act;
        self.lives.read_enable.next = step == Step::Idle;
        self.lives.read_address.next = chosen;
        self.progresses.read_enable.next = step == Step::Idle;
        self.progresses.read_address.next = chosen;
        let life = self.lives.read_data.val();
        let progress = self.progresses.read_data.val();
        self.records.write_enable.next = self.read_valid.val();
        self.records.write_address.next = self.read_place.val();
        self.records.write_data.next = self.read.val();
        self.records.read_enable.next = step == Step::Load;
        self.records.read_address.next = cat!(queue_pair, progress.slot);
        let record = self.records.read_data.val();

        // What commands say.
        let is_setup = step == Step::Setup;
        let serves = event.state == READY_TO_RECEIVE
            || event.state == READY_TO_SEND
            || event.state == SEND_QUEUE_DRAIN
            || event.state == SEND_QUEUE_ERROR;
        let forgets = is_setup && (!serves || event.kind == SetupKind::Restart);
        self.lives.write_enable.next = is_sweeping || is_setup;
        self.lives.write_address.next = select(is_sweeping, self.sweep_index.val(), queue_pair);
        self.lives.write_data.next = Life { serves: serves && !is_sweeping, generation: event.generation };
        let opens = step == Step::Open && life.serves && life.generation == opened.generation;
        if is_setup || step == Step::Open {
            self.step.d.next = Step::Idle;
        }

        // What is due.
        let has_open = progress.open.any();
        if step == Step::Load {
            self.is_live.d.next = response.is_good
                && life.serves
                && life.generation == response.generation
                && !progress.has_failed;
            self.step.d.next = Step::Look;
        }
        let from_first = bit_cast::<33, 32>(record.first.length) - bit_cast::<33, 32>(progress.bytes);
        let is_first_full = from_first.get_bit(32);
        if step == Step::Look {
            self.due_psn.d.next = select(progress.has_begun || !has_open, progress.psn, record.psn);
            self.rest.d.next = record.length - progress.bytes;
            self.first_rest.d.next = select(is_first_full, bits::<32>(0), from_first.get_bits::<32>(0));
            self.second_filled.d.next =
                select(is_first_full, progress.bytes - record.first.length, bits::<32>(0));
            self.step.d.next = Step::Judge;
        }

        // What came.
        let due_psn = self.due_psn.q.val();
        let rest = self.rest.q.val();
        let packet_bytes = pmtu(record.path_mtu);
        let fits = rest <= bit_cast::<32, 13>(packet_bytes);
        // The answer to an atomic stands in its header.
        let is_atomic = record.is_atomic;
        let due_data = select(fits, rest.get_bits::<13>(0), packet_bytes);
        let due_bytes = select(is_atomic, bits::<13>(0), due_data);
        let data_opcode = match (progress.has_begun, fits) {
            (false, true) => bits::<8>(READ_RESPONSE_ONLY),
            (false, false) => bits::<8>(READ_RESPONSE_FIRST),
            (true, false) => bits::<8>(READ_RESPONSE_MIDDLE),
            (true, true) => bits::<8>(READ_RESPONSE_LAST),
        };
        let due_opcode = select(is_atomic, bits::<8>(ATOMIC_ACKNOWLEDGE), data_opcode);
        let has_syndrome = response.opcode != READ_RESPONSE_MIDDLE;
        let is_acknowledged = !response.syndrome.get_bits::<3>(SYNDROME_CLASS).any();
        let first_rest = self.first_rest.q.val();
        let placed_bytes = select(is_atomic, bits::<13>(ATOMIC_BYTES), response.payload_bytes);
        let is_enough = first_rest >= bit_cast::<32, 13>(placed_bytes);
        let first_part = select(is_enough, placed_bytes, first_rest.get_bits::<13>(0));
        if step == Step::Judge {
            self.is_before.d.next = psn::is_before(response.psn, due_psn);
            self.is_due.d.next = response.psn == due_psn;
            self.is_right.d.next = response.opcode == due_opcode
                && response.payload_bytes == due_bytes
                && (!has_syndrome || is_acknowledged);
            self.is_last.d.next = fits;
            self.first_part.d.next = first_part;
            self.second_part.d.next = placed_bytes - first_part;
            self.first_address.d.next = record.first.address + bit_cast::<64, 32>(progress.bytes);
            self.second_address.d.next =
                record.second.address + bit_cast::<64, 32>(self.second_filled.q.val());
            self.step.d.next = Step::Act;
        }

        // What becomes of it.
        let acts = step == Step::Act;
        let is_last = self.is_last.q.val();
        let is_live = self.is_live.q.val();
        let is_before = self.is_before.q.val();
        let is_due = self.is_due.q.val();
        let is_data = is_live && response.is_data;
        let is_known = has_open || progress.has_psn;
        let is_stale = is_data && is_known && is_before;
        let is_unasked = is_data && !has_open && !is_stale;
        let meets = is_data && has_open && is_due;
        let places = meets && self.is_right.q.val();
        // Whoever sees an atomic in a READ is not believed (protocol 8.3).
        let is_foreign = meets && response.opcode == ATOMIC_ACKNOWLEDGE && !record.is_atomic;
        let is_bad = meets && !self.is_right.q.val() && !is_foreign;
        // A NAK of what is due is the answer to it.
        let is_beyond = !is_before && !(is_due && (response.is_data || is_nak(response.syndrome)));
        let is_missing = is_live && has_open && is_beyond;
        let is_said = is_live && !response.is_data && !is_missing;
        let fails = is_bad || is_missing;
        let first_part = self.first_part.q.val();
        let second_part = self.second_part.q.val();
        let asks_first = places && first_part.any();
        let asks_second = places && second_part.any();
        self.waiting.rx.valid.next = acts;
        self.waiting.rx.beat.next = Waiting {
            answer: ReturnedAnswer {
                queue_pair,
                generation: response.generation,
                psn: select(fails, due_psn, response.psn),
                is_placed: places,
                is_middle: places && progress.has_begun && !is_last,
                is_said,
                is_failure: fails,
                is_unasked,
                syndrome: response.syndrome,
                status: if is_missing {
                    bits::<8>(RETRY_EXCEEDED)
                } else if is_bad {
                    bits::<8>(BAD_RESPONSE)
                } else {
                    bits::<8>(SUCCESS)
                },
                has_failed: false,
            },
            payload_bytes: if places && is_atomic {
                bits::<13>(ATOMIC_BYTES)
            } else {
                response.payload_bytes
            },
            is_literal: places && is_atomic,
            literal: swap_bytes(response.original),
            first_bytes: select(asks_first, first_part, second_part),
            request_count: cat!(asks_first && asks_second, asks_first != asks_second),
        };
        let is_second = step == Step::Second;
        let takes_second = is_second || !asks_first;
        self.requests.rx.valid.next = (acts && (asks_first || asks_second)) || is_second;
        self.requests.rx.beat.next = AccessRequest {
            key: select(takes_second, record.second.key, record.first.key),
            domain: record.domain,
            address: select(takes_second, self.second_address.q.val(), self.first_address.q.val()),
            length: bit_cast::<32, 13>(select(takes_second, second_part, first_part)),
            local_write: true,
            remote_write: false,
            remote_read: false,
            remote_atomic: false,
        };
        if acts {
            self.step.d.next = if asks_first && asks_second { Step::Second } else { Step::Idle };
        }
        if is_second {
            self.step.d.next = Step::Idle;
        }

        // The record.
        let ends = places && is_last;
        self.progresses.write_enable.next = is_sweeping || forgets || opens || (acts && (places || fails));
        self.progresses.write_address.next = select(is_sweeping, self.sweep_index.val(), queue_pair);
        self.progresses.write_data.next = if acts {
            Progress {
                open: select(ends, progress.open - 1, progress.open),
                slot: select(ends, progress.slot + 1, progress.slot),
                has_begun: places && !is_last,
                bytes: select(
                    ends,
                    bits::<32>(0),
                    progress.bytes + bit_cast::<32, 13>(response.payload_bytes),
                ),
                has_psn: true,
                psn: response.psn + 1,
                has_failed: fails,
            }
        } else if opens {
            Progress {
                open: progress.open + 1,
                slot: select(has_open, progress.slot, opened.slot),
                has_begun: progress.has_begun,
                bytes: progress.bytes,
                has_psn: progress.has_psn,
                psn: progress.psn,
                has_failed: progress.has_failed,
            }
        } else {
            Progress {
                open: bits::<READ_COUNT_BITS>(0),
                slot: bits::<READ_SLOT_BITS>(0),
                has_begun: false,
                bytes: bits::<32>(0),
                has_psn: false,
                psn: bits::<24>(0),
                has_failed: false,
            }
        };

        // Answers of the region table. The first one moves on when the second one comes.
        let telling = self.telling.q.val();
        let waiting = self.waiting.tx.beat.val();
        let granted = self.access_answer.beat.val();
        let left = self.left.q.val();
        self.access_answer.ready.next = telling == Telling::Answers;
        if telling == Telling::Begin {
            self.left.d.next = waiting.request_count;
            self.is_ok.d.next = true;
            if self.waiting.tx.valid.val() {
                self.telling.d.next =
                    if waiting.request_count.any() { Telling::Answers } else { Telling::Tell };
            }
        }
        if telling == Telling::Answers && self.access_answer.valid.val() {
            self.left.d.next = left - 1;
            self.is_ok.d.next = self.is_ok.q.val() && granted.ok;
            if left == waiting.request_count {
                self.first.d.next = granted.device_address;
            }
            self.second.d.next = granted.device_address;
            if left == 1 {
                self.telling.d.next = Telling::Tell;
            }
        }
        let is_taken = self.has_command.q.val() && self.place.ready.val();
        let may_load = !self.has_command.q.val() || self.place.ready.val();
        let tells = telling == Telling::Tell && may_load;
        let is_refused = !self.is_ok.q.val();
        self.waiting.tx.ready.next = tells;
        if is_taken {
            self.has_command.d.next = false;
        }
        if tells {
            self.telling.d.next = Telling::Begin;
            self.has_command.d.next = true;
            self.command.d.next = ReadResponseCommand {
                payload_bytes: waiting.payload_bytes,
                span_count: select(is_refused, bits::<2>(0), waiting.request_count),
                first: HostSpan { address: self.first.q.val(), length: waiting.first_bytes },
                second: HostSpan {
                    address: self.second.q.val(),
                    length: waiting.payload_bytes - waiting.first_bytes,
                },
                is_literal: waiting.is_literal,
                literal: waiting.literal,
                answer: waiting.answer,
            };
            if is_refused {
                self.command.d.next.answer.is_placed = false;
                self.command.d.next.answer.is_middle = false;
                self.command.d.next.answer.is_failure = true;
                self.command.d.next.answer.status = bits(LOCAL_PROTECTION);
            }
        }
        self.place.valid.next = self.has_command.q.val();
        self.place.beat.next = self.command.q.val();

        self.counts.d.next = cat!(
            tells && is_refused,
            acts && is_missing,
            acts && (is_unasked || is_bad || is_foreign),
            acts && is_stale
        );
        let counts = self.counts.q.val();
        self.counts_response_stale.next = counts.get_bit(0);
        self.counts_response_unexpected.next = counts.get_bit(1);
        self.counts_implied_nak.next = counts.get_bit(2);
        self.counts_local_protection.next = counts.get_bit(3);
    }
}

/// Whether a syndrome says that its PSN itself has not been done; an ACK says that it has.
#[kernel]
fn is_nak(syndrome: Bits<8>) -> Bit {
    syndrome.get_bits::<3>(SYNDROME_CLASS).any()
}

#[cfg(test)]
mod tests;
