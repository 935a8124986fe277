//! ReadResponse: places the data of READs and atomics, and detects responses that were lost.
//!
//! Responses to a READ carry nothing but a PSN and data, so what was requested is kept here, up to 16 READs a
//! queue pair. An acknowledgement that follows data must not take effect before the data is in host memory; so
//! such acknowledgements pass here too, and all go through the place stage, in the order in which they were
//! received.
//!
//! ```text
//!                 ┌─────────────────────────────────────────────────────────────────┐
//!  setup ────────>│ state, generation                                               │
//!  read ─────────>│ records (up to 16 a queue pair)                                 │
//!  issued_read ──>│ progress: how many READs wait, bytes of the oldest one          │
//!                 │     ^ v                                                         │
//!  response ─────>│ queue pair ─> record ─> PSN, opcode, length ─> parts ───────────┼──> access_request
//!                 │                                 │                               │
//!                 │                                 └──> pending (16) ─> grant ─────┼──> place
//!  access_answer ─┼────────────────────────────────────────────────────────┘        │
//!                 └─────────────────────────────────────────────────────────────────┘
//!  step             Idle      Load       Look            Compare     Act (Second)
//! ```
//!
//! A response takes 5 cycles, 6 if its data goes to two SGEs. Latency 8 cycles to `place` for one without data.
//!
//! 1. Each response makes exactly one command, in order. Payload that is not placed is dropped by its command.
//! 2. Data, and the original value of an atomic, is placed if it has the PSN that is due, and the opcode, the
//!    length and the pad that the READ calls for at this PSN (protocol 2.2, 2.5). Other data with the PSN that
//!    is due fails the READ with BAD_RESP. A packet whose AETH has no ACK is no data.
//! 3. Data with an earlier PSN is dropped, and so is the response to an atomic where a READ is due. Data
//!    with a later PSN, an ACK of the PSN that is due or a later one, and a NAK of a later one mean that
//!    a response was lost (protocol 2.5). The first of these since the last data that was placed is
//!    reported to acknowledge with the PSN that is due, so that the READ is requested again from there;
//!    the others are dropped.
//! 4. Data for which no READ waits fails the oldest message, unless it was received before.
//! 5. Each part of the data has an access check of its own, so a key that was invalidated fails the READ with
//!    LOC_PROT.
//! 6. A failure reports the PSN that is due; everything before it has been acknowledged. After a failure that
//!    is found here, nothing more of the queue pair is placed. After one of the access check or the host, what
//!    is in flight may be.
//! 7. In ERR, INIT and RESET, and after a restart, READs are forgotten with the event; payload is dropped.
//! 8. Setup events and issued READs are taken within 7 cycles, whatever the outputs do.
//! 9. A READ that is requested again keeps its record and its progress, and counts once. From then on
//!    until its end FIRST and ONLY are right in its middle, too; responses to the first request are taken
//!    if their PSN is the one that is due (protocol 2.3, 2.5). A request for a READ that has ended
//!    meanwhile changes nothing.
//!
//! Protocol 2.2, 2.5, 8.3.
mod grant;
mod rules;

use crate::messages::{IssuedRead, ReadRecord, Response};
use crate::sweep::SweepStep;
use crate::wqe::ATOMIC_BYTES;
use grant::{Grant, Pending};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::protect::{AccessAnswer, AccessRequest};
use rnic_messages::read::{ReadResponseCommand, ReadShare, read_place};
use rnic_messages::setup::{SetupEvent, SetupKind, receives};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, READ_POOL_BITS, sizes};
use rules::{
    Comparison, Due, Outcome, Progress, access, after_issue, after_missing, after_response, compare, decide,
    due, notice,
};

/// `log2` of the responses that wait for their access checks.
const PENDING: usize = 4;
const PENDING_COUNT: usize = PENDING + 1;
/// Most access requests in the queue when a response begins; it adds two, and the queue holds eight.
const REQUESTS_MAX: u64 = 6;

/// State of a queue pair, as commands set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Life {
    /// Responses are accepted.
    serves: Bit,
    generation: Bits<GENERATION_BITS>,
    /// READ slots of the queue pair.
    share: ReadShare,
}

/// State of the block.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Setup,
    /// A READ was issued.
    Issued,
    /// A response: reads the record of the READ, finds what is due, compares, acts, and requests access for the
    /// second part of the data.
    Load,
    Look,
    Compare,
    Act,
    Second,
}

/// Events that the block counts, each a pulse of one cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadResponseCounts {
    /// Data was received before.
    pub response_stale: Bit,
    /// Data answers no READ, or not as requested.
    pub response_unexpected: Bit,
    /// A response was lost.
    pub implied_nak: Bit,
    /// The access check of data failed.
    pub local_protection: Bit,
}

/// Places responses to READs and atomics; see the module.
#[clocked(reset = "A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
pub struct ReadResponse {
    /// From sweep: the records of a queue pair are cleared in this cycle.
    pub sweep: Signal<In, SweepStep>,
    /// From control; acknowledge must have taken the event before.
    pub setup: StreamRx<SetupEvent>,
    /// From segment: a READ or an atomic.
    pub read: ValidRx<ReadRecord>,
    /// Place of `read` in the pool of READ slots.
    pub read_place: Signal<In, Bits<READ_POOL_BITS>>,
    /// From issue: a READ whose record was written before.
    pub issued_read: StreamRx<IssuedRead>,
    /// From acknowledge.
    pub response: StreamRx<Response>,
    /// To the region table; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// From the region table, in order.
    pub access_answer: StreamRx<AccessAnswer>,
    /// To the place stage; registered.
    pub place: StreamTx<ReadResponseCommand>,
    /// Events to count; registered.
    pub counts: Signal<Out, ReadResponseCounts>,

    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    lives: Memory<Life, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    progresses: Memory<Progress, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Ultra).with_words_log2(sizes().read_slots))]
    records: Memory<ReadRecord, READ_POOL_BITS>,
    pending: Fifo<Pending, PENDING, PENDING_COUNT>,
    grant: Grant,
    requests: Fifo<AccessRequest, 3, 4>,
    step: Reg<Step>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    is_live: DFF<Bit>,
    due: DFF<Due>,
    found: DFF<Comparison>,
    counts_held: Reg<ReadResponseCounts>,
}

impl Logic for ReadResponse {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.access_request, &mut self.requests.tx);
        let is_sweeping = self.sweep.val().is_sweeping;
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let event = self.setup.beat.val();
        let issued = self.issued_read.beat.val();
        let response = self.response.beat.val();

        // Setup events go first, then issued READs. A response begins with room for all that it sends.
        let has_setup = self.setup.valid.val();
        let has_issued = self.issued_read.valid.val();
        let has_room = self.pending.rx.ready.val() && self.requests.level.val() <= REQUESTS_MAX;
        let chosen = if has_setup {
            event.queue_pair
        } else if has_issued {
            issued.queue_pair
        } else {
            response.queue_pair
        };
        if step == Step::Idle && !is_sweeping {
            self.queue_pair.d.next = chosen;
            self.step.d.next = if has_setup {
                Step::Setup
            } else if has_issued {
                Step::Issued
            } else if self.response.valid.val() && has_room {
                Step::Load
            } else {
                Step::Idle
            };
        }
        self.setup.ready.next = step == Step::Setup;
        self.issued_read.ready.next = step == Step::Issued;
        self.response.ready.next = step == Step::Act;

        // The records.
        self.lives.read(step == Step::Idle, chosen);
        self.progresses.read(step == Step::Idle, chosen);
        let life = self.lives.read_data.val();
        let progress = self.progresses.read_data.val();
        self.records.write(self.read.valid.val(), self.read_place.val(), self.read.value.val());
        self.records.read(step == Step::Load, read_place(life.share, progress.slot));
        let record = self.records.read_data.val();
        let is_setup = step == Step::Setup;
        let serves = receives(event.state);
        self.lives.write_enable.next = is_sweeping || is_setup;
        self.lives.write_address.next = select(is_sweeping, self.sweep.val().index, queue_pair);
        self.lives.write_data.next =
            Life { serves: serves && !is_sweeping, generation: event.generation, share: event.read_share };

        // A response: what is due, what it is, and what becomes of it.
        if step == Step::Load {
            self.is_live.d.next = response.is_good
                && life.serves
                && life.generation == response.generation
                && !progress.has_failed;
            self.step.d.next = Step::Look;
        }
        let due_now = self.due.q.val();
        if step == Step::Look {
            self.due.d.next = due(record, progress);
            self.step.d.next = Step::Compare;
        }
        let found = self.found.q.val();
        if step == Step::Compare {
            self.found.d.next = compare(response, record, progress, due_now);
            self.step.d.next = Step::Act;
        }
        let acts = step == Step::Act;
        let outcome: Outcome = decide(self.is_live.q.val(), response, progress, record.is_atomic, found);
        let places = outcome.places;
        let fails = outcome.is_bad || outcome.is_missing;
        let is_literal = places && record.is_atomic;
        let asks_first = places && found.first_part.any();
        let asks_second = places && found.second_part.any();
        self.pending.rx.valid.next = acts;
        self.pending.rx.beat.next = Pending {
            notice: notice(response, progress.has_begun, due_now.psn, found.is_last, outcome),
            payload_bytes: if is_literal { bits::<13>(ATOMIC_BYTES) } else { response.payload_bytes },
            is_literal,
            literal: swap_bytes(response.original),
            first_bytes: select(asks_first, found.first_part, found.second_part),
            request_count: cat!(asks_first && asks_second, asks_first != asks_second),
        };
        let is_second = step == Step::Second;
        self.requests.rx.valid.next = (acts && (asks_first || asks_second)) || is_second;
        self.requests.rx.beat.next = if is_second || !asks_first {
            access(record.second, record.domain, found.second_address, found.second_part)
        } else {
            access(record.first, record.domain, found.first_address, found.first_part)
        };
        if acts {
            self.step.d.next = if asks_first && asks_second { Step::Second } else { Step::Idle };
        }
        if is_setup || step == Step::Issued || is_second {
            self.step.d.next = Step::Idle;
        }

        let forgets = is_setup && (!serves || event.kind == SetupKind::Restart);
        let opens = step == Step::Issued && life.serves && life.generation == issued.generation;
        self.progresses.write_enable.next = is_sweeping || forgets || opens || (acts && (places || fails));
        self.progresses.write_address.next = select(is_sweeping, self.sweep.val().index, queue_pair);
        self.progresses.write_data.next = if acts {
            select(
                outcome.is_missing,
                after_missing(progress),
                after_response(progress, response, outcome, found.is_last),
            )
        } else if opens {
            after_issue(progress, issued)
        } else {
            Progress { ..Default::default() }
        };

        StreamTx::join(&mut self.pending.tx, &mut self.grant.pending);
        StreamRx::link(&mut self.access_answer, &mut self.grant.access_answer);
        StreamTx::link(&mut self.place, &mut self.grant.place);
        self.counts_held.d.next = ReadResponseCounts {
            response_stale: acts && outcome.is_stale,
            response_unexpected: acts && (outcome.is_unexpected || outcome.is_bad || outcome.is_other_kind),
            implied_nak: acts && outcome.is_missing,
            local_protection: self.grant.is_refused.val(),
        };
        self.counts.next = self.counts_held.q.val();
    }
}

#[cfg(test)]
mod tests;
