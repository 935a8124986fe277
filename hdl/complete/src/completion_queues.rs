//! Completion queues: where a CQE is written, whether the queue has room, and whether an EQE follows.
//!
//! ```text
//!  setup ──────────> (4) ─┐
//!  refused ───────> (1024)┤
//!  completions_read > (16)┤   ┌────────┬─────────┬────────┐
//!  waiting ───────────────┼──>│ choose │ look up │ decide ├──> delivery (CQE, EQE)
//!  token ─────────────────┘   │        │ records │ write  ├──> failure
//!     ^                       └────────┴─────────┴───┬────┘
//!     └── queues whose EQE waits <───────────────────┘
//! ```
//!
//! One machine writes all records, so no record is ever half written: an operation takes [`OPERATION_CYCLES`]
//! cycles, and the next one begins when the last has written. 83 million CQEs a second at 250 MHz; latency 3
//! cycles to `delivery`.
//!
//! 1. Setups and doorbells come without `ready` and never wait for the host: they change records only. At most
//!    one doorbell arrives in four cycles.
//! 2. A CQE is written only where software has read the one before it. A CQE that finds no room ends the queue,
//!    and so does one that the host refuses to write, as software cannot read past it. The end is reported once as
//!    an asynchronous event; that CQE and every later one fails its queue pair, and later ones are counted and not
//!    written. CQEs of the queue that are in flight when the host refuses one may still be written after it. Other
//!    queues are not affected.
//! 3. An EQE leaves after the CQE that made it. Arming a queue that has unread CQEs that match makes the EQE at
//!    once (protocol 4.4); an EQE that waits for more CQEs leaves after the period of the queue at the latest.
//!    While its event queue is crowded, an EQE waits here. A queue has at most one EQE that waits, so none is lost,
//!    however often software arms queues without reading events.
//! 4. That a queue pair has no WQE of its SRQ any more is an asynchronous event, after all its CQEs.
//! 5. Tokens, doorbells, checks and refused CQEs of a queue that does not exist do nothing. A refused CQE of a queue
//!    that had the number before is one of those: `life` tells them apart.
//! 6. Refused CQEs come without `ready`, because the host writer counts no write before a failure is taken, and the
//!    room that this block waits for may come from those counts. There is room for more than are ever in flight.
//! 7. After a reset all records are cleared, which takes a cycle each. Nothing else is done meanwhile; commands that
//!    make queues come later.
//! 8. A setup that does not restart the queue replaces its configuration, ring included, between two operations, so
//!    each CQE is in one ring. Indices, arming and an EQE that waits go on.
//!
//! Protocol 2.11 and 4.4, design decision 11.
use crate::event_queues::EVENT_QUEUES;
use crate::moderation::{CLOCK_BITS, TIME_BITS, end_of, is_ahead};
use crate::ring::{INDEX_BITS, RingSlot, is_ring_full, ring_slot};
use crate::stage::Stage;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_layout::doorbell::Arm;
use rnic_layout::queue::completion::{CompletionStatus, Cqe};
use rnic_layout::queue::event::{AsyncEvent, EventKind};
use rnic_messages::complete::{CompletionQueueSetup, CqeToken, EqeToken};
use rnic_messages::doorbell::CompletionsRead;
use rnic_messages::host::CqeOwner;
use rnic_messages::setup::{NoticeKind, QpNotice};
use rnic_messages::sizes::{COMPLETION_LIFE_BITS, COMPLETION_QUEUE_BITS, EVENT_QUEUE_BITS, sizes};

/// Cycles of an operation.
pub const OPERATION_CYCLES: u64 = 3;
/// Bits of a CQE.
pub(crate) const CQE_BITS: usize = 256;
const QUEUES: usize = COMPLETION_QUEUE_BITS;
const COUNT: usize = QUEUES + 1;
/// log2 of the refused CQEs that wait: twice the writes that the host writer has in flight, so that the CQEs on their
/// way to it find room, too.
const REFUSED: usize = 10;
pub(crate) const REFUSED_COUNT: usize = REFUSED + 1;
/// log2 of the CQEs and EQEs on their way to the event queues.
const DELIVERIES: usize = 3;
pub(crate) const DELIVERY_COUNT: usize = DELIVERIES + 1;
const _: () = assert!(Cqe::RECORD.bits as usize == CQE_BITS);

/// Message to the event queues: a CQE, an EQE, or both, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Delivery {
    /// There is a CQE.
    pub has_cqe: Bit,
    /// Device address the CQE is written to.
    pub address: Bits<64>,
    /// The 32 bytes of the CQE, the first in bits 7:0.
    pub cqe: Bits<CQE_BITS>,
    /// Whose the CQE is, for the case that the host refuses it.
    pub owner: CqeOwner,
    /// There is an EQE.
    pub has_eqe: Bit,
    /// Event queue of the EQE.
    pub event_queue: Bits<EVENT_QUEUE_BITS>,
    /// The EQE.
    pub eqe: EqeToken,
}

/// Counters of the completion queues: each bit is high for one cycle for each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CompletionQueueCounts {
    /// A CQE is written.
    pub completions_written: Bit,
    /// A CQE with a status other than success is written.
    pub completions_in_error: Bit,
    /// A CQE found its queue full, or ended by a CQE before it.
    pub completion_queue_overrun: Bit,
}

/// State of a queue. Only this block writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Record {
    /// CQEs written since the queue was made.
    producer_index: Bits<INDEX_BITS>,
    /// CQEs read by software.
    consumer_index: Bits<INDEX_BITS>,
    /// `producer_index` at the last EQE.
    event_index: Bits<INDEX_BITS>,
    /// `producer_index` after the last CQE that was solicited or in error.
    solicited_index: Bits<INDEX_BITS>,
    /// What the queue is armed for, an `Arm`.
    arm: Bits<2>,
    /// Armed, and a CQE that matches is there: the EQE waits for moderation alone.
    matched: Bit,
    /// Time at which moderation ends, in units of 256 cycles.
    deadline: Bits<TIME_BITS>,
    /// Moderation has ended.
    is_due: Bit,
    /// The queue is among those whose EQE waits.
    is_waiting: Bit,
    /// A CQE found it full, or the host refused a CQE.
    has_ended: Bit,
    /// Setups that made or destroyed the queue.
    life: Bits<COMPLETION_LIFE_BITS>,
}

/// What is computed from a record before the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Position {
    /// Place of the next CQE in the ring.
    ring: RingSlot,
    /// The next CQE finds no room, or the queue has ended.
    is_full: Bit,
    /// The refused CQE is of a queue that had the number before.
    is_stale: Bit,
    /// CQEs since the last EQE, with the next one.
    since_event: Bits<INDEX_BITS>,
    /// Half of the event queue is unread, so an EQE waits.
    is_crowded: Bit,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Operation {
    /// A command makes, changes, resizes or destroys a queue.
    Setup,
    /// Software has read CQEs, and may arm the queue.
    Read,
    /// The host refused to write a CQE.
    Refusal,
    /// A queue whose EQE waits is checked.
    Check,
    /// A CQE is written.
    Token,
}

/// What follows from an operation. All fields but `arm` are false for a queue that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Outcome {
    /// A CQE is written.
    writes: Bit,
    /// The CQE is solicited or in error.
    is_special: Bit,
    /// A CQE finds no room.
    overruns: Bit,
    /// The host refused to write a CQE.
    is_refused: Bit,
    /// The queue ends with that: it is the first of either since the queue was made.
    ends: Bit,
    /// The queue pair has no WQE of its SRQ any more.
    is_last: Bit,
    /// An EQE leaves after the CQE that is written now.
    fires_now: Bit,
    /// An EQE leaves that has waited.
    fires_late: Bit,
    /// Software has read CQEs.
    is_read: Bit,
    /// What the queue is armed for after a read.
    arm: Bits<2>,
    /// The EQE of the CQE that is written now waits for moderation, or for its event queue.
    waits_after_cqe: Bit,
    /// Arming found a CQE that matches: the EQE waits for the next check.
    waits_after_read: Bit,
    /// Moderation ends: the EQE leaves at the next check, if its event queue is not crowded.
    becomes_due: Bit,
    /// The queue joins those whose EQE waits, or stays among them.
    joins: Bit,
}

/// The 32 bytes of a CQE.
#[kernel]
fn cqe_of(token: CqeToken, phase: Bit) -> Bits<CQE_BITS> {
    let flags: Bits<8> =
        cat!(bits::<4>(0), token.solicited, bits::<1>(0), token.with_invalidate, token.with_immediate);
    let last: Bits<64> = cat!(
        bits::<7>(0),
        phase,
        bits::<8>(0),
        flags,
        token.vendor_error,
        token.status,
        token.opcode,
        token.consumer_index
    );
    cat!(last, bits::<8>(0), token.qp_number, bits::<32>(0), token.immediate, token.length, token.wr_id)
}

/// Finds where the next CQE of a queue is written, and whether there is room for it and for its EQE.
#[kernel]
fn position_of(record: Record, entries_log2: Bits<5>, refused: CqeOwner, is_crowded: Bit) -> Position {
    Position {
        ring: ring_slot(record.producer_index, entries_log2),
        is_full: is_ring_full(record.producer_index, record.consumer_index, entries_log2) || record.has_ended,
        is_stale: refused.life != record.life,
        since_event: record.producer_index + 1 - record.event_index,
        is_crowded,
    }
}

/// What a queue is armed for after a doorbell. `Next` is not weakened to `Solicited`.
#[kernel]
fn arm_after(asked: Bits<2>, current: Bits<2>) -> Bits<2> {
    if asked == Arm::Next as u64 || (asked == Arm::Solicited as u64 && current != Arm::Next as u64) {
        asked
    } else {
        current
    }
}

/// A queue has unread CQEs that match what it is armed for.
#[kernel]
fn has_unread_match(record: Record, consumer_index: Bits<INDEX_BITS>, arm: Bits<2>) -> Bit {
    let has_unread = record.producer_index != consumer_index;
    let solicited_ahead = record.solicited_index - consumer_index;
    let has_unread_solicited = solicited_ahead.any() && !solicited_ahead.get_bit(23);
    has_unread && (arm == Arm::Next as u64 || (arm == Arm::Solicited as u64 && has_unread_solicited))
}

/// Moderation by count is satisfied with the CQE that is written now.
#[kernel]
fn is_enough(since_event: Bits<INDEX_BITS>, moderation_count: Bits<16>) -> Bit {
    moderation_count <= 1 || since_event >= bit_cast::<INDEX_BITS, 16>(moderation_count)
}

/// Moderation by time has ended; a period of zero never ends.
#[kernel]
fn is_over(record: Record, moderation_period: Bits<16>, now: Bits<TIME_BITS>) -> Bit {
    record.is_due || (moderation_period.any() && !is_ahead(record.deadline, now))
}

/// Decides what an operation does to a queue.
#[kernel]
fn decide(
    operation: Operation,
    token: CqeToken,
    read: CompletionsRead,
    configuration: CompletionQueueSetup,
    record: Record,
    position: Position,
    now: Bits<TIME_BITS>,
) -> Outcome {
    let is_token = operation == Operation::Token && configuration.valid;
    let is_read = operation == Operation::Read && configuration.valid;
    let is_check = operation == Operation::Check && configuration.valid && record.matched;
    let is_refused = operation == Operation::Refusal && configuration.valid && !position.is_stale;
    let writes = is_token && !token.is_last && !position.is_full;
    let overruns = is_token && !token.is_last && position.is_full;
    let is_special = token.solicited || token.status != CompletionStatus::Success as u64;
    let matches = record.matched
        || record.arm == Arm::Next as u64
        || (record.arm == Arm::Solicited as u64 && is_special);
    let enough = is_enough(position.since_event, configuration.moderation_count);
    let over = is_over(record, configuration.moderation_period, now);
    let arm = arm_after(read.arm, record.arm);
    let fires_now = writes && matches && enough && !position.is_crowded;
    let fires_late = is_check && over && !position.is_crowded;
    let waits_after_cqe = writes && matches && !fires_now;
    let waits_after_read = is_read && has_unread_match(record, read.consumer_index, arm);
    Outcome {
        writes,
        is_special,
        overruns,
        is_refused,
        ends: (overruns || is_refused) && !record.has_ended,
        is_last: is_token && token.is_last,
        fires_now,
        fires_late,
        is_read,
        arm,
        waits_after_cqe,
        waits_after_read,
        becomes_due: waits_after_read || (waits_after_cqe && enough) || (is_check && over),
        joins: ((waits_after_cqe || waits_after_read) && !record.is_waiting) || (is_check && !fires_late),
    }
}

/// The record of a queue after a token, a doorbell or a check.
#[kernel]
fn record_after(
    outcome: Outcome,
    record: Record,
    consumer_index: Bits<INDEX_BITS>,
    moderation_period: Bits<16>,
    is_check: Bit,
    now: Bits<TIME_BITS>,
) -> Record {
    let next = record.producer_index + 1;
    let fires = outcome.fires_now || outcome.fires_late;
    Record {
        producer_index: select(outcome.writes, next, record.producer_index),
        consumer_index: select(outcome.is_read, consumer_index, record.consumer_index),
        event_index: if outcome.fires_now {
            next
        } else if outcome.fires_late {
            record.producer_index
        } else {
            record.event_index
        },
        solicited_index: select(outcome.writes && outcome.is_special, next, record.solicited_index),
        arm: if fires {
            bits(0)
        } else if outcome.is_read {
            outcome.arm
        } else {
            record.arm
        },
        matched: !fires && (record.matched || outcome.waits_after_cqe || outcome.waits_after_read),
        deadline: if outcome.waits_after_cqe && !record.matched {
            end_of(moderation_period, now)
        } else {
            record.deadline
        },
        is_due: !fires && (record.is_due || outcome.becomes_due),
        is_waiting: outcome.joins || (record.is_waiting && !is_check),
        has_ended: record.has_ended || outcome.ends,
        life: record.life,
    }
}

/// The record of a queue that is made or destroyed. It may still be among those whose EQE waits, where it is
/// passed over.
#[kernel]
fn record_at_start(record: Record) -> Record {
    Record { is_waiting: record.is_waiting, life: record.life + 1, ..Default::default() }
}

/// Counts operations since the last check of a waiting queue: CQEs one by one up to 15, other operations as 8.
#[kernel]
fn since_check_after(operation: Operation, count: Bits<4>) -> Bits<4> {
    match operation {
        Operation::Check => bits(0),
        Operation::Token => select(count.all(), count, count + 1),
        _ => count | 8,
    }
}

/// What leaves after an operation. Asynchronous events go to event queue 0.
#[kernel]
fn delivery_of(
    outcome: Outcome,
    queue: Bits<QUEUES>,
    token: CqeToken,
    configuration: CompletionQueueSetup,
    record: Record,
    ring: RingSlot,
) -> Delivery {
    let page: Bits<64> = cat!(configuration.base_page, bits::<12>(0));
    let offset: Bits<64> = cat!(bits::<35>(0), ring.slot, bits::<5>(0));
    let is_asynchronous = outcome.ends || outcome.is_last;
    let written = select(outcome.fires_late, record.producer_index, record.producer_index + 1);
    Delivery {
        has_cqe: outcome.writes,
        address: page + offset,
        cqe: cqe_of(token, ring.phase),
        owner: CqeOwner {
            completion_queue: queue,
            life: record.life,
            queue_pair: token.queue_pair,
            generation: token.generation,
        },
        has_eqe: outcome.fires_now || outcome.fires_late || is_asynchronous,
        event_queue: if is_asynchronous { bits(0) } else { configuration.event_queue },
        eqe: EqeToken {
            object_number: select(outcome.is_last, token.qp_number, bit_cast::<24, QUEUES>(queue)),
            detail: if is_asynchronous { bits(0) } else { bit_cast::<32, INDEX_BITS>(written) },
            kind: if is_asynchronous {
                bits(EventKind::Asynchronous as u64)
            } else {
                bits(EventKind::Completion as u64)
            },
            code: if outcome.is_last {
                bits(AsyncEvent::LastWqeReached as u64)
            } else if outcome.ends {
                bits(AsyncEvent::CompletionQueueError as u64)
            } else {
                bits(0)
            },
        },
    }
}

/// The failure of the queue pair whose CQE found no room or was refused.
#[kernel]
fn notice_of(is_refused: Bit, refused: CqeOwner, token: CqeToken) -> QpNotice {
    QpNotice {
        queue_pair: select(is_refused, refused.queue_pair, token.queue_pair),
        generation: select(is_refused, refused.generation, token.generation),
        kind: NoticeKind::QueueError,
        has_event: true,
        event_code: bits(AsyncEvent::QueuePairFatal as u64),
    }
}

/// Writes CQEs, and makes the events of armed queues.
#[clocked(reset = "A sweep of the records follows")]
#[derive(LogicBlock, Registers, Construct)]
pub struct CompletionQueues {
    /// CQEs of both roles; `ready` is combinational.
    pub token: StreamRx<CqeToken>,
    /// From control: makes, changes or destroys a queue.
    pub setup: ValidRx<CompletionQueueSetup>,
    /// From the doorbells: software has read CQEs.
    pub read: ValidRx<CompletionsRead>,

    /// From the write failures: the host refused to write this CQE.
    pub refused: ValidRx<CqeOwner>,
    /// A refused CQE waits for its operation; a function of registers.
    pub has_refused: Signal<Out, Bit>,
    /// CQEs and EQEs between here and the event queues; registered.
    pub deliveries_used: Signal<Out, Bits<DELIVERY_COUNT>>,
    /// Refused CQEs that wait for their operation; registered.
    pub refusals_used: Signal<Out, Bits<REFUSED_COUNT>>,

    /// To the event queues: CQEs and EQEs; registered.
    pub delivery: StreamTx<Delivery>,
    /// From the event queues: those of which half is unread, one bit each.
    pub crowded: Signal<In, Bits<EVENT_QUEUES>>,
    /// To control: queue pairs with a CQE that found no room, or that the host refused; registered.
    pub failure: StreamTx<QpNotice>,
    /// Counters; registered.
    pub counts: Signal<Out, CompletionQueueCounts>,

    setups: Fifo<CompletionQueueSetup, 2, 3>,
    reads: Fifo<CompletionsRead, 4, 5>,
    #[init(Fifo::new(Storage::Block))]
    refusals: Fifo<CqeOwner, REFUSED, REFUSED_COUNT>,
    /// Queues whose EQE waits.
    #[init(Fifo::default().with_beats_log2(sizes().completion_queues))]
    waiting: Fifo<Bits<QUEUES>, QUEUES, COUNT>,
    deliveries: Fifo<Delivery, DELIVERIES, DELIVERY_COUNT>,
    failures: Fifo<QpNotice, 3, 4>,
    #[init(Memory::default().with_words_log2(sizes().completion_queues))]
    configurations: Memory<CompletionQueueSetup, QUEUES>,
    #[init(Memory::default().with_words_log2(sizes().completion_queues))]
    records: Memory<Record, QUEUES>,

    #[init(Reg::new(Stage::Choose))]
    stage: Reg<Stage>,
    operation: DFF<Operation>,
    queue: DFF<Bits<QUEUES>>,
    asked: DFF<CqeToken>,
    asked_read: DFF<CompletionsRead>,
    asked_setup: DFF<CompletionQueueSetup>,
    asked_refusal: DFF<CqeOwner>,
    configuration: DFF<CompletionQueueSetup>,
    record: DFF<Record>,
    position: DFF<Position>,
    /// Cycles; the upper bits are the time in units of 256 cycles.
    time: Reg<Bits<CLOCK_BITS>>,
    /// CQEs since a waiting queue was last checked; at 15 a check goes before a CQE.
    since_check: Reg<Bits<4>>,
    /// Records that are to be cleared since a reset; it outlives the reset.
    unswept: DFF<Bits<COUNT>>,
    counted: Reg<CompletionQueueCounts>,
}

impl Logic for CompletionQueues {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.time.d.next = self.time.q.val() + 1;
        let now = self.time.q.val().get_bits::<TIME_BITS>(8);

        self.setups.rx.offer(self.setup.valid.val(), self.setup.value.val());
        self.reads.rx.offer(self.read.valid.val(), self.read.value.val());
        self.refusals.rx.offer(self.refused.valid.val(), self.refused.value.val());
        self.has_refused.next = self.refusals.tx.valid.val();
        self.refusals_used.next = self.refusals.level.val();
        self.deliveries_used.next = self.deliveries.level.val();
        StreamTx::link(&mut self.delivery, &mut self.deliveries.tx);
        StreamTx::link(&mut self.failure, &mut self.failures.tx);

        // A reset empties the queue of those whose EQE waits, so no record may say that its queue is among them.
        let unswept = self.unswept.q.val();
        let sweeps = unswept.any();
        if self.reset.val() {
            self.unswept.d.next = bits(1 << QUEUES);
        } else if sweeps {
            self.unswept.d.next = unswept - 1;
        }

        // Choose: CQEs and EQEs need room in the queues after this stage; setups and reads change records only. A refusal
        // goes before CQEs, which may be of the same queue.
        let stage = self.stage.q.val();
        let chooses = stage == Stage::Choose && !sweeps;
        let has_room = self.deliveries.rx.ready.val() && self.failures.rx.ready.val();
        let since_check = self.since_check.q.val();
        let does_setup = self.setups.tx.valid.val();
        let does_read = !does_setup && self.reads.tx.valid.val();
        let may_deliver = !does_setup && !does_read && has_room;
        let does_refusal = may_deliver && self.refusals.tx.valid.val();
        let may_check = may_deliver && !does_refusal && self.waiting.tx.valid.val();
        let does_check = may_check && (since_check.all() || !self.token.valid.val());
        let does_token = may_deliver && !does_refusal && !does_check && self.token.valid.val();
        self.setups.tx.ready.next = chooses && does_setup;
        self.reads.tx.ready.next = chooses && does_read;
        self.refusals.tx.ready.next = chooses && does_refusal;
        self.waiting.tx.ready.next = chooses && does_check;
        self.token.ready.next = chooses && does_token;
        let operation = if does_setup {
            Operation::Setup
        } else if does_read {
            Operation::Read
        } else if does_refusal {
            Operation::Refusal
        } else if does_check {
            Operation::Check
        } else {
            Operation::Token
        };
        let queue = match operation {
            Operation::Setup => self.setups.tx.beat.val().completion_queue,
            Operation::Read => self.reads.tx.beat.val().completion_queue,
            Operation::Refusal => self.refusals.tx.beat.val().completion_queue,
            Operation::Check => self.waiting.tx.beat.val(),
            Operation::Token => self.token.beat.val().completion_queue,
        };
        let begins = chooses && (does_setup || does_read || does_refusal || does_check || does_token);
        if begins {
            self.stage.d.next = Stage::Look;
            self.operation.d.next = operation;
            self.queue.d.next = queue;
            self.asked.d.next = self.token.beat.val();
            self.asked_read.d.next = self.reads.tx.beat.val();
            self.asked_setup.d.next = self.setups.tx.beat.val();
            self.asked_refusal.d.next = self.refusals.tx.beat.val();
            self.since_check.d.next = since_check_after(operation, since_check);
        }
        self.configurations.read(begins, queue);
        self.records.read(begins, queue);

        // Look: the record is there.
        let found = self.records.read_data.val();
        let found_configuration = self.configurations.read_data.val();
        if stage == Stage::Look {
            self.stage.d.next = Stage::Decide;
            self.record.d.next = found;
            self.configuration.d.next = found_configuration;
            let is_crowded = self.crowded.val().get_bit(found_configuration.event_queue.index());
            self.position.d.next =
                position_of(found, found_configuration.entries_log2, self.asked_refusal.q.val(), is_crowded);
        }

        // Decide.
        let decides = stage == Stage::Decide;
        let operation = self.operation.q.val();
        let queue = self.queue.q.val();
        let token = self.asked.q.val();
        let read = self.asked_read.q.val();
        let setup = self.asked_setup.q.val();
        let configuration = self.configuration.q.val();
        let record = self.record.q.val();
        let position = self.position.q.val();
        let outcome = decide(operation, token, read, configuration, record, position, now);
        let delivery = delivery_of(outcome, queue, token, configuration, record, position.ring);
        if decides {
            self.stage.d.next = Stage::Choose;
        }
        self.waiting.rx.offer(decides && outcome.joins, queue);
        self.deliveries.rx.offer(decides && (delivery.has_cqe || delivery.has_eqe), delivery);
        self.failures.rx.valid.next = decides && (outcome.overruns || outcome.is_refused);
        self.failures.rx.beat.next = notice_of(outcome.is_refused, self.asked_refusal.q.val(), token);

        let is_setup = operation == Operation::Setup;
        self.configurations.write(decides && is_setup, queue, setup);
        let is_check = operation == Operation::Check;
        let period = configuration.moderation_period;
        self.records.write_enable.next = decides || sweeps;
        self.records.write_address.next = select(sweeps, (unswept - 1).get_bits::<QUEUES>(0), queue);
        self.records.write_data.next = if sweeps {
            Record::default()
        } else if is_setup && setup.restarts {
            record_at_start(record)
        } else {
            record_after(outcome, record, read.consumer_index, period, is_check, now)
        };

        self.counted.d.next = CompletionQueueCounts {
            completions_written: decides && outcome.writes,
            completions_in_error: decides
                && outcome.writes
                && token.status != CompletionStatus::Success as u64,
            completion_queue_overrun: decides && outcome.overruns,
        };
        self.counts.next = self.counted.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::doorbell::Arm;

    const NONE: u64 = Arm::Keep as u64;
    const NEXT: u64 = Arm::Next as u64;
    const SOLICITED: u64 = Arm::Solicited as u64;

    fn good() -> CqeToken {
        CqeToken { status: bits(CompletionStatus::Success as u64), ..Default::default() }
    }

    fn exists() -> CompletionQueueSetup {
        CompletionQueueSetup { valid: true, entries_log2: bits(6), ..Default::default() }
    }

    fn armed(arm: u64) -> Record {
        Record { arm: bits(arm), ..Default::default() }
    }

    /// Decides about a token at time 0.
    fn of_token(token: CqeToken, configuration: CompletionQueueSetup, record: Record) -> Outcome {
        let position = position_of(record, configuration.entries_log2, CqeOwner::default(), false);
        let read = CompletionsRead::default();
        decide(Operation::Token, token, read, configuration, record, position, bits(0))
    }

    #[test]
    fn a_doorbell_arms_a_queue_and_does_not_weaken_it() {
        for (asked, current, expected) in [
            (NONE, NONE, NONE),
            (NONE, SOLICITED, SOLICITED),
            (NONE, NEXT, NEXT),
            (SOLICITED, NONE, SOLICITED),
            (SOLICITED, SOLICITED, SOLICITED),
            (SOLICITED, NEXT, NEXT),
            (NEXT, NONE, NEXT),
            (NEXT, SOLICITED, NEXT),
        ] {
            assert_eq!(arm_after(bits(asked), bits(current)), bits(expected), "{asked} at {current}");
        }
    }

    #[test]
    fn arming_finds_unread_cqes_that_match() {
        // CQEs written, those up to the last solicited one, those read.
        for (written, solicited, read, by_next, by_solicited) in [
            (5, 0, 5, false, false),
            (5, 0, 4, true, false),
            (5, 4, 4, true, false),
            (5, 5, 4, true, true),
            (5, 4, 3, true, true),
            (0, 0, 0xff_ffff, true, true),
            (0, 0xff_ffff, 0xff_ffff, true, false),
        ] {
            let record = Record {
                producer_index: bits(written),
                solicited_index: bits(solicited),
                ..Default::default()
            };
            let found = |arm| has_unread_match(record, bits(read), bits(arm));
            assert_eq!((found(NEXT), found(SOLICITED), found(NONE)), (by_next, by_solicited, false));
        }
    }

    #[test]
    fn moderation_ends_by_count_or_by_time() {
        for (since, count, expected) in
            [(1, 0, true), (1, 1, true), (1, 2, false), (2, 2, true), (3, 2, true)]
        {
            assert_eq!(is_enough(bits(since), bits(count)), expected, "{since} of {count}");
        }
        let record = |deadline, is_due| Record { deadline: bits(deadline), is_due, ..Default::default() };
        for (deadline, is_due, period, now, expected) in [
            (10, false, 3, 9, false),
            (10, false, 3, 10, true),
            (10, false, 3, 11, true),
            (10, false, 0, 11, false),
            (10, true, 0, 0, true),
            (2, false, 3, 0x1_ffff, false),
            (0x1_ffff, false, 3, 2, true),
            (0xffff, false, 0xffff, 0, false),
        ] {
            assert_eq!(is_over(record(deadline, is_due), bits(period), bits(now)), expected);
        }
    }

    #[test]
    fn a_cqe_is_written_while_there_is_room() {
        let full = Record { producer_index: bits(64), ..Default::default() };
        let last = Record { producer_index: bits(63), ..Default::default() };
        let read = Record { consumer_index: bits(1), ..full };
        let ended = Record { has_ended: true, ..Default::default() };
        // Written, no room, no room for the first time.
        for (record, expected) in [
            (Record::default(), (true, false, false)),
            (last, (true, false, false)),
            (full, (false, true, true)),
            (read, (true, false, false)),
            (ended, (false, true, false)),
        ] {
            let found = of_token(good(), exists(), record);
            assert_eq!((found.writes, found.overruns, found.ends), expected, "{record:?}");
            let absent = of_token(good(), CompletionQueueSetup { valid: false, ..exists() }, record);
            assert!(!absent.writes && !absent.overruns && !absent.fires_now && !absent.joins);
            let end = of_token(CqeToken { is_last: true, ..good() }, exists(), record);
            assert!(end.is_last && !end.writes && !end.overruns);
        }
    }

    #[test]
    fn a_refused_cqe_ends_the_queue_that_it_was_written_to() {
        let record = Record { life: bits(2), ..Default::default() };
        // Life of the refused CQE, the queue exists, it has ended: it is refused, the queue ends.
        for (life, valid, has_ended, expected) in [
            (2, true, false, (true, true)),
            (2, true, true, (true, false)),
            (1, true, false, (false, false)),
            (2, false, false, (false, false)),
        ] {
            let record = Record { has_ended, ..record };
            let refused = CqeOwner { life: bits(life), ..Default::default() };
            let configuration = CompletionQueueSetup { valid, ..exists() };
            let position = position_of(record, bits(6), refused, false);
            let (token, read) = (good(), CompletionsRead::default());
            let found = decide(Operation::Refusal, token, read, configuration, record, position, bits(0));
            assert_eq!((found.is_refused, found.ends), expected, "life {life}, {valid}, {has_ended}");
            let others = found.writes || found.overruns || found.is_last || found.fires_now || found.joins;
            assert!(!others && !found.fires_late);
            let after = record_after(found, record, bits(0), bits(0), false, bits(0));
            assert_eq!(after, Record { has_ended: has_ended || expected.1, ..record });
        }
    }

    #[test]
    fn the_queue_pair_of_the_cqe_fails_with_an_event() {
        let refused = CqeOwner { queue_pair: bits(5), generation: bits(6), ..Default::default() };
        let token = CqeToken { queue_pair: bits(7), generation: bits(8), ..Default::default() };
        for (is_refused, queue_pair, generation) in [(true, 5, 6), (false, 7, 8)] {
            let notice = notice_of(is_refused, refused, token);
            assert_eq!((notice.queue_pair, notice.generation), (bits(queue_pair), bits(generation)));
            assert_eq!((notice.kind, notice.has_event), (NoticeKind::QueueError, true));
            assert_eq!(notice.event_code, bits(AsyncEvent::QueuePairFatal as u64));
        }
    }

    #[test]
    fn a_cqe_fires_the_eqe_that_its_queue_is_armed_for_or_makes_it_wait() {
        let solicited = CqeToken { solicited: true, ..good() };
        let flushed = CqeToken { status: bits(CompletionStatus::Flushed as u64), ..good() };
        for (token, arm, fires) in [
            (good(), NONE, false),
            (good(), SOLICITED, false),
            (good(), NEXT, true),
            (solicited, NONE, false),
            (solicited, SOLICITED, true),
            (flushed, SOLICITED, true),
            (flushed, NEXT, true),
        ] {
            let found = of_token(token, exists(), armed(arm));
            assert_eq!((found.fires_now, found.joins), (fires, false), "{token:?}");
            let moderated = CompletionQueueSetup { moderation_count: bits(2), ..exists() };
            let found = of_token(token, moderated, armed(arm));
            assert_eq!((found.fires_now, found.waits_after_cqe, found.joins), (false, fires, fires));
            let waiting = of_token(token, moderated, Record { is_waiting: true, ..armed(arm) });
            assert_eq!((waiting.waits_after_cqe, waiting.joins), (fires, false), "it waits once");
        }
        // Once a CQE has matched, the next ones do.
        assert!(of_token(good(), exists(), Record { matched: true, ..armed(SOLICITED) }).fires_now);
    }

    #[test]
    fn a_check_fires_when_moderation_is_over_and_else_keeps_the_queue_waiting() {
        for (matched, is_due, valid, (fires, joins)) in [
            (true, true, true, (true, false)),
            (true, false, true, (false, true)),
            (false, true, true, (false, false)),
            (true, true, false, (false, false)),
        ] {
            let record = Record { matched, is_due, is_waiting: true, ..Default::default() };
            let configuration = CompletionQueueSetup { valid, ..exists() };
            let position = position_of(record, bits(6), CqeOwner::default(), false);
            let (token, read) = (good(), CompletionsRead::default());
            let found = decide(Operation::Check, token, read, configuration, record, position, bits(0));
            assert_eq!((found.fires_late, found.joins), (fires, joins));
            let after = record_after(found, record, bits(0), bits(0), true, bits(0));
            assert_eq!((after.is_waiting, after.matched), (joins, matched && !fires));
        }
    }

    #[test]
    fn an_eqe_waits_while_its_event_queue_is_crowded() {
        let decided = |operation, configuration: CompletionQueueSetup, record, is_crowded| {
            let position = position_of(record, configuration.entries_log2, CqeOwner::default(), is_crowded);
            let read = CompletionsRead::default();
            let found = decide(operation, good(), read, configuration, record, position, bits(0));
            let is_check = operation == Operation::Check;
            (found, record_after(found, record, bits(0), configuration.moderation_period, is_check, bits(0)))
        };
        let moderated = CompletionQueueSetup { moderation_count: bits(2), ..exists() };
        // A CQE: whether its EQE leaves, whether it waits, and whether it waits for the event queue alone.
        for (configuration, is_crowded, expected) in [
            (exists(), false, (true, false, false)),
            (exists(), true, (false, true, true)),
            (moderated, false, (false, true, false)),
            (moderated, true, (false, true, false)),
        ] {
            let (found, after) = decided(Operation::Token, configuration, armed(NEXT), is_crowded);
            assert!(found.writes, "the CQE does not wait");
            assert_eq!((found.fires_now, found.joins, after.is_due), expected, "{is_crowded}");
            assert_eq!((after.matched, after.is_waiting), (expected.1, expected.1));
        }
        // A check of a queue whose period is over: in a crowded queue it is over for ever, though time wraps.
        let timed = CompletionQueueSetup { moderation_period: bits(3), ..exists() };
        let over = Record { matched: true, is_waiting: true, deadline: bits(0), ..armed(NEXT) };
        let (found, after) = decided(Operation::Check, timed, over, true);
        assert_eq!((found.fires_late, found.joins), (false, true));
        assert_eq!(after, Record { is_due: true, ..over });
        let (found, after) = decided(Operation::Check, timed, after, false);
        assert_eq!((found.fires_late, found.joins), (true, false));
        assert!(!after.matched && !after.is_due && !after.is_waiting && after.arm == NONE);
    }

    #[test]
    fn records_follow_what_was_decided() {
        let before = Record {
            producer_index: bits(9),
            consumer_index: bits(5),
            event_index: bits(7),
            solicited_index: bits(6),
            arm: bits(NEXT),
            ..Default::default()
        };
        let after = |outcome| record_after(outcome, before, bits(8), bits(3), false, bits(20));
        assert_eq!(after(Outcome::default()), before, "nothing happens");
        let written = after(Outcome { writes: true, ..Default::default() });
        assert_eq!(written, Record { producer_index: bits(10), ..before });
        let special = after(Outcome { writes: true, is_special: true, ..Default::default() });
        assert_eq!(special, Record { solicited_index: bits(10), ..written });
        let fired = after(Outcome { writes: true, fires_now: true, ..Default::default() });
        assert_eq!(fired, Record { event_index: bits(10), arm: bits(NONE), ..written });
        let late = after(Outcome { fires_late: true, ..Default::default() });
        assert_eq!(late, Record { event_index: bits(9), arm: bits(NONE), ..before });
        let waits = after(Outcome { writes: true, waits_after_cqe: true, joins: true, ..Default::default() });
        assert_eq!(waits, Record { matched: true, deadline: bits(23), is_waiting: true, ..written });
        let read = after(Outcome { is_read: true, arm: bits(SOLICITED), ..Default::default() });
        assert_eq!(read, Record { consumer_index: bits(8), arm: bits(SOLICITED), ..before });
        let armed_late = Outcome {
            is_read: true,
            arm: bits(NEXT),
            waits_after_read: true,
            becomes_due: true,
            joins: true,
            ..Default::default()
        };
        let expected =
            Record { consumer_index: bits(8), matched: true, is_due: true, is_waiting: true, ..before };
        assert_eq!(after(armed_late), expected);
        let ended = after(Outcome { ends: true, ..Default::default() });
        assert_eq!(ended, Record { has_ended: true, ..before });
        let made = Record { is_waiting: true, life: bits(1), ..Default::default() };
        assert_eq!(record_at_start(expected), made);
        assert_eq!(record_at_start(Record { life: bits(7), ..made }).life, bits(0));
    }

    #[test]
    fn a_check_goes_before_a_cqe_after_fifteen_cqes_or_other_operations() {
        for (operation, before, after) in [
            (Operation::Check, 15, 0),
            (Operation::Check, 0, 0),
            (Operation::Token, 0, 1),
            (Operation::Token, 14, 15),
            (Operation::Token, 15, 15),
            (Operation::Read, 0, 8),
            (Operation::Setup, 9, 9),
        ] {
            assert_eq!(since_check_after(operation, bits(before)), bits(after), "{operation:?} at {before}");
        }
    }
}
