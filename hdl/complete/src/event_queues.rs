//! Event queues: writes CQEs and EQEs in their order, and raises an interrupt after an EQE.
//!
//! ```text
//!  setup ────────> (4) ─┐
//!  events_read ──> (16) ┤  ┌────────┬─────────┬────────┐
//!  to revisit ──────────┼─>│ choose │ look up │ decide ├──(16)─┬─ CQE ─────────────────────────┬──> write
//!  event (queue 0) ─────┤  └────────┴─────────┴────────┘       └─ EQE ──(16)─ CQEs done? ──────┤
//!  delivery ────────────┘                                                            EQE done? └──> interrupt
//! ```
//!
//! A delivery without an EQE passes in one cycle, one with an EQE in [`EVENT_CYCLES`]; latency 2 cycles more to
//! `write`. An EQE also waits for the host's report that the CQEs before it are done.
//!
//! 1. CQEs are written in the order of the deliveries, and so are EQEs. An EQE is written when all that was
//!    written before its delivery is done: hosts promise no order of writes that are in flight. CQEs do not
//!    wait for EQEs.
//! 2. Setups and doorbells come without `ready` and never wait for the host.
//! 3. A queue that is armed makes one interrupt, when the host has reported the write of its next EQE done;
//!    arming a queue that has unread EQEs makes the interrupt when all that was written before is done.
//! 4. An EQE that finds its queue full is lost and counted. When software has read EQEs of the queue, the EQE
//!    `events_lost` follows with the number of those that were lost; so software knows of every loss. A mark
//!    waits at most for the operations of one round through the queues.
//! 5. Completion events may take half of a queue: `crowded` tells the completion queues when they wait. So only
//!    asynchronous events and events of answers are ever lost. What is on its way meanwhile is less than
//!    [`CROWDED_LATE`] EQEs.
//!
//! Protocol 4.4, design decision 11.
use crate::completion_queues::{CQE_BITS, Delivery};
use crate::ring::{INDEX_BITS, RingSlot, is_ring_full, ring_slot};
use crate::stage::Stage;
use crate::unread::{Indices, Unread};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_layout::limits;
use rnic_layout::queue::event::{Eqe, EventKind};
use rnic_messages::complete::{EqeToken, EventQueueSetup};
use rnic_messages::doorbell::EventsRead;
use rnic_messages::host::{CqeOwner, SlotWrite, has_reached};
use rnic_messages::pool::LEVEL_BITS;
use rnic_messages::sizes::{EVENT_QUEUE_BITS, VECTOR_BITS, WRITE_COUNT_BITS, sizes};

/// Cycles of a delivery with an EQE.
pub const EVENT_CYCLES: u64 = 3;
/// Completion events that may still come to a queue after it has become crowded: what waits and is decided in the
/// completion queues, and is in an operation here. A quarter of the smallest queue.
pub(crate) const CROWDED_LATE: u64 = 16;
const _: () = assert!(CROWDED_LATE <= 1 << (limits::RING_LOG2_MIN - 2));
/// Number of event queues.
pub(crate) const EVENT_QUEUES: usize = 1 << EVENT_QUEUE_BITS;
/// Bits of the number of lost EQEs, which stays at its maximum.
const LOST_BITS: usize = 16;
const EQE_BYTES: u64 = Eqe::RECORD.bits as u64 / 8;
const CQE_BYTES: u64 = CQE_BITS as u64 / 8;

/// Counters of the event queues: each bit is high for one cycle for each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct EventQueueCounts {
    /// An EQE is written.
    pub events_written: Bit,
    /// An EQE found its queue full.
    pub event_queue_overrun: Bit,
}

/// State of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Record {
    /// EQEs written since the queue was made.
    producer_index: Bits<INDEX_BITS>,
    /// EQEs read by software.
    consumer_index: Bits<INDEX_BITS>,
    /// The next EQE makes an interrupt.
    armed: Bit,
    /// EQEs that were lost since the last `events_lost`.
    lost: Bits<LOST_BITS>,
}

/// A CQE or an EQE to be written, and the interrupt after it; or an interrupt alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct PendingWrite {
    has_write: Bit,
    /// It is an EQE or an interrupt, and waits for the writes before it.
    is_event: Bit,
    address: Bits<64>,
    data: Bits<CQE_BITS>,
    /// Whose the CQE is; of an event, undefined.
    cqe: CqeOwner,
    has_interrupt: Bit,
    vector: Bits<VECTOR_BITS>,
}

/// An EQE, or an interrupt alone, that waits for `write_count` writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct HeldEvent {
    write: PendingWrite,
    write_count: Bits<WRITE_COUNT_BITS>,
}

/// An interrupt that waits for `write_count` writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct HeldInterrupt {
    vector: Bits<VECTOR_BITS>,
    write_count: Bits<WRITE_COUNT_BITS>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Operation {
    /// A command makes, changes or destroys a queue.
    Setup,
    /// Software has read EQEs, and may arm the queue.
    Read,
    /// A queue is looked at again: it was armed while EQEs were unread, or software has read EQEs after others
    /// were lost.
    Revisit,
    /// An EQE is written.
    Event,
}

/// What is served in a cycle, at most one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Choice {
    setup: Bit,
    read: Bit,
    /// A queue that is to be looked at again.
    revisit: Bit,
    delivery: Bit,
    /// An EQE for queue 0.
    event: Bit,
}

/// What follows from an operation. All fields but `restarts` and `revisits` are false for a queue that does not
/// exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Outcome {
    /// An EQE is written.
    writes: Bit,
    /// It is `events_lost`.
    notifies: Bit,
    /// An EQE finds no room.
    overruns: Bit,
    /// Software has read EQEs.
    is_read: Bit,
    /// That doorbell arms the queue and EQEs are unread, or EQEs were lost: the queue is looked at again, to make
    /// the interrupt and to write `events_lost`.
    wants_revisit: Bit,
    /// The queue is looked at again.
    revisits: Bit,
    /// A command makes or destroys the queue.
    restarts: Bit,
    /// An interrupt without an EQE is made.
    interrupts_late: Bit,
    /// An interrupt is made, with an EQE or without.
    interrupts: Bit,
}

/// The 16 bytes of an EQE, and zeros after them.
#[kernel]
fn eqe_of(event: EqeToken, phase: Bit) -> Bits<CQE_BITS> {
    let high: Bits<64> = cat!(bits::<7>(0), phase, bits::<40>(0), event.code, event.kind);
    cat!(bits::<128>(0), high, event.detail, bits::<8>(0), event.object_number)
}

/// The EQE that tells how many EQEs were lost.
#[kernel]
fn events_lost(lost: Bits<LOST_BITS>) -> EqeToken {
    EqeToken {
        object_number: bits(0),
        detail: bit_cast::<32, LOST_BITS>(lost),
        kind: bits(EventKind::EventsLost as u64),
        code: bits(0),
    }
}

/// Chooses what is served: setups and doorbells first, which need no room; then queues that are to be looked at
/// again; then a delivery, if it is wanted before an event.
#[kernel]
fn choose(
    has_setup: Bit,
    has_read: Bit,
    has_room: Bit,
    is_revisit_due: Bit,
    wants_delivery: Bit,
    has_event: Bit,
) -> Choice {
    let may_write = !has_setup && !has_read && has_room;
    Choice {
        setup: has_setup,
        read: !has_setup && has_read,
        revisit: may_write && is_revisit_due,
        delivery: may_write && !is_revisit_due && wants_delivery,
        event: may_write && !is_revisit_due && !wants_delivery && has_event,
    }
}

/// The operation of a choice; a delivery and an event are the same.
#[kernel]
fn operation_of(choice: Choice) -> Operation {
    if choice.setup {
        Operation::Setup
    } else if choice.read {
        Operation::Read
    } else if choice.revisit {
        Operation::Revisit
    } else {
        Operation::Event
    }
}

/// The queue of a choice: that of a delivery, or queue 0 of an event from control.
#[kernel]
fn queue_of(
    choice: Choice,
    setup: EventQueueSetup,
    read: EventsRead,
    looks_at: Bits<EVENT_QUEUE_BITS>,
    delivery: Delivery,
) -> Bits<EVENT_QUEUE_BITS> {
    let event_queue = if choice.delivery { delivery.event_queue } else { bits(0) };
    match operation_of(choice) {
        Operation::Setup => setup.event_queue,
        Operation::Read => read.event_queue,
        Operation::Revisit => looks_at,
        Operation::Event => event_queue,
    }
}

/// Decides what an operation does to a queue.
#[kernel]
fn decide(
    operation: Operation,
    read: EventsRead,
    restarts: Bit,
    valid: Bit,
    record: Record,
    is_full: Bit,
) -> Outcome {
    let is_event = operation == Operation::Event && valid;
    let is_read = operation == Operation::Read && valid;
    let revisits = operation == Operation::Revisit;
    let has_lost = record.lost.any();
    let notifies = revisits && valid && has_lost && !is_full;
    let writes = notifies || (is_event && !is_full);
    let interrupts_late = revisits && valid && record.armed && !notifies;
    let arms_unread = read.arm && record.producer_index != read.consumer_index;
    Outcome {
        writes,
        notifies,
        overruns: is_event && is_full,
        is_read,
        wants_revisit: is_read && (arms_unread || has_lost),
        revisits,
        restarts: operation == Operation::Setup && restarts,
        interrupts_late,
        interrupts: interrupts_late || (writes && record.armed),
    }
}

/// The record of a queue after an operation.
#[kernel]
fn record_after(outcome: Outcome, record: Record, read: EventsRead) -> Record {
    let changed = Record {
        producer_index: if outcome.writes { record.producer_index + 1 } else { record.producer_index },
        consumer_index: if outcome.is_read { read.consumer_index } else { record.consumer_index },
        armed: !outcome.interrupts && (record.armed || (outcome.is_read && read.arm)),
        lost: if outcome.notifies {
            bits(0)
        } else if outcome.overruns && !record.lost.all() {
            record.lost + 1
        } else {
            record.lost
        },
    };
    select(outcome.restarts, Record { producer_index: bits(0), ..Default::default() }, changed)
}

/// The configuration that a setup leaves: all of it, or the vector alone.
#[kernel]
fn configuration_after(setup: EventQueueSetup, configuration: EventQueueSetup) -> EventQueueSetup {
    let changed = EventQueueSetup { restarts: false, vector: setup.vector, ..configuration };
    select(setup.restarts, setup, changed)
}

/// The queues that are to be looked at again, one bit each.
#[kernel]
fn revisits_after(
    outcome: Outcome,
    revisits: Bits<EVENT_QUEUES>,
    queue: Bits<EVENT_QUEUE_BITS>,
) -> Bits<EVENT_QUEUES> {
    let mark = bits::<EVENT_QUEUES>(1) << queue;
    if outcome.revisits || outcome.restarts {
        revisits & !mark
    } else if outcome.wants_revisit {
        revisits | mark
    } else {
        revisits
    }
}

/// The CQE of a delivery. It has no interrupt, so `vector` may be any.
#[kernel]
fn cqe_write(delivery: Delivery, vector: Bits<VECTOR_BITS>) -> PendingWrite {
    PendingWrite {
        has_write: true,
        is_event: false,
        address: delivery.address,
        data: delivery.cqe,
        cqe: delivery.owner,
        has_interrupt: false,
        vector,
    }
}

/// The EQE of an operation, or its interrupt alone.
#[kernel]
fn event_write(
    outcome: Outcome,
    record: Record,
    asked: EqeToken,
    configuration: EventQueueSetup,
    ring: RingSlot,
) -> PendingWrite {
    let event = select(outcome.notifies, events_lost(record.lost), asked);
    let page: Bits<64> = cat!(configuration.base_page, bits::<12>(0));
    let offset: Bits<64> = cat!(bits::<36>(0), ring.slot, bits::<4>(0));
    PendingWrite {
        has_write: outcome.writes,
        is_event: true,
        address: page + offset,
        data: eqe_of(event, ring.phase),
        cqe: CqeOwner::default(),
        has_interrupt: outcome.interrupts,
        vector: configuration.vector,
    }
}

/// A CQE or EQE as the host writer takes it.
#[kernel]
fn slot_write(write: PendingWrite) -> SlotWrite {
    SlotWrite {
        address: write.address,
        length: select(write.is_event, bits::<7>(EQE_BYTES), bits::<7>(CQE_BYTES)),
        data: bit_cast::<512, CQE_BITS>(write.data),
        is_cqe: !write.is_event,
        cqe: write.cqe,
    }
}

/// The interrupt of an event: after its EQE if it has one, which is write `issued + 1`, else after the writes
/// that are issued.
#[kernel]
fn interrupt_after(write: PendingWrite, issued: Bits<WRITE_COUNT_BITS>) -> HeldInterrupt {
    HeldInterrupt { vector: write.vector, write_count: select(write.has_write, issued + 1, issued) }
}

/// Writes CQEs and EQEs in order, and requests interrupts.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub struct EventQueues {
    /// From the completion queues: CQEs and EQEs; `ready` is combinational.
    pub delivery: StreamRx<Delivery>,
    /// To the completion queues: event queues of which half is unread, one bit each; completion events for them
    /// wait. Registered.
    pub crowded: Signal<Out, Bits<EVENT_QUEUES>>,
    /// From control: EQEs for queue 0; `ready` is combinational.
    pub event: StreamRx<EqeToken>,
    /// From control: makes, changes or destroys a queue.
    pub setup: ValidRx<EventQueueSetup>,
    /// From the doorbells: software has read EQEs.
    pub read: ValidRx<EventsRead>,

    /// To the host writer; a function of registers.
    pub write: StreamTx<SlotWrite>,
    /// From the host writer: writes of CQEs and EQEs that are done, modulo 2^16.
    pub write_done: Signal<In, Bits<WRITE_COUNT_BITS>>,
    /// To the interrupts: vectors to be raised; a function of registers.
    pub interrupt: StreamTx<Bits<VECTOR_BITS>>,
    /// No operation, write or interrupt is in flight here; registered.
    pub is_idle: Signal<Out, Bit>,
    /// Writes of CQEs and EQEs that the host has taken and not done; a function of registers and `write_done`.
    pub writes_used: Signal<Out, Bits<WRITE_COUNT_BITS>>,
    /// EQEs and interrupts that wait for writes before them; registered.
    pub events_used: Signal<Out, Bits<LEVEL_BITS>>,

    /// Counters; registered.
    pub counts: Signal<Out, EventQueueCounts>,

    setups: Fifo<EventQueueSetup, 2, 3>,
    reads: Fifo<EventsRead, 4, 5>,
    writes: Fifo<PendingWrite, 4, 5>,
    held: Fifo<HeldEvent, 4, 5>,
    interrupts: Fifo<HeldInterrupt, 4, 5>,
    unread: Unread,
    #[init(Memory::default().with_words_log2(sizes().event_queues))]
    configurations: Memory<EventQueueSetup, EVENT_QUEUE_BITS>,
    #[init(Memory::default().with_words_log2(sizes().event_queues))]
    records: Memory<Record, EVENT_QUEUE_BITS>,

    #[init(Reg::new(Stage::Choose))]
    stage: Reg<Stage>,
    operation: DFF<Operation>,
    queue: DFF<Bits<EVENT_QUEUE_BITS>>,
    asked: DFF<EqeToken>,
    asked_read: DFF<EventsRead>,
    asked_setup: DFF<EventQueueSetup>,
    configuration: DFF<EventQueueSetup>,
    record: DFF<Record>,
    is_full: DFF<Bit>,
    ring: DFF<RingSlot>,
    /// One bit for each queue that is to be looked at again.
    revisits: Reg<Bits<EVENT_QUEUES>>,
    looks_at: Reg<Bits<EVENT_QUEUE_BITS>>,
    /// An EQE of queue 0 was served last, so a delivery is next.
    prefers_delivery: Reg<Bit>,
    issued: Reg<Bits<WRITE_COUNT_BITS>>,
    /// A CQE is offered, and stays so until it is taken.
    cqe_waits: Reg<Bit>,
    counted: Reg<EventQueueCounts>,
    idle: Reg<Bit>,
}

impl Logic for EventQueues {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.setups.rx.offer(self.setup.valid.val(), self.setup.value.val());
        self.reads.rx.offer(self.read.valid.val(), self.read.value.val());

        // Choose. The CQE of a delivery leaves at once; its EQE makes an operation.
        let stage = self.stage.q.val();
        let chooses = stage == Stage::Choose;
        // Two places: for a CQE, and for the EQE after it.
        let level = self.writes.level.val();
        let has_room = !level.get_bits::<3>(1).all() && !level.get_bit(4);
        let looks_at = self.looks_at.q.val();
        let is_revisit_due = self.revisits.q.val().get_bit(looks_at.index());
        let offers_delivery = self.delivery.valid.val();
        let offers_event = self.event.valid.val();
        let choice = choose(
            self.setups.tx.valid.val(),
            self.reads.tx.valid.val(),
            has_room,
            is_revisit_due,
            offers_delivery && (self.prefers_delivery.q.val() || !offers_event),
            offers_event,
        );
        self.setups.tx.ready.next = chooses && choice.setup;
        self.reads.tx.ready.next = chooses && choice.read;
        self.delivery.ready.next = chooses && choice.delivery;
        self.event.ready.next = chooses && choice.event;
        let delivery = self.delivery.beat.val();
        let operation = operation_of(choice);
        let (asked_setup, asked_read) = (self.setups.tx.beat.val(), self.reads.tx.beat.val());
        let queue = queue_of(choice, asked_setup, asked_read, looks_at, delivery);
        let makes_event = choice.event || (choice.delivery && delivery.has_eqe);
        let begins = chooses && (choice.setup || choice.read || choice.revisit || makes_event);
        if begins {
            self.stage.d.next = Stage::Look;
            self.operation.d.next = operation;
            self.queue.d.next = queue;
            self.asked.d.next = select(choice.delivery, delivery.eqe, self.event.beat.val());
            self.asked_read.d.next = asked_read;
            self.asked_setup.d.next = asked_setup;
        }
        if chooses && (choice.delivery || choice.event) {
            self.prefers_delivery.d.next = choice.event;
        }
        // A queue that is due is looked at until it is served, so no other traffic keeps it waiting.
        if chooses && !is_revisit_due {
            self.looks_at.d.next = looks_at + 1;
        }
        self.configurations.read(begins, queue);
        self.records.read(begins, queue);

        // Look: the record is there.
        let found = self.records.read_data.val();
        let found_configuration = self.configurations.read_data.val();
        let log2 = found_configuration.entries_log2;
        if stage == Stage::Look {
            self.stage.d.next = Stage::Decide;
            self.record.d.next = found;
            self.configuration.d.next = found_configuration;
            self.is_full.d.next = is_ring_full(found.producer_index, found.consumer_index, log2);
            self.ring.d.next = ring_slot(found.producer_index, log2);
        }

        // Decide.
        let decides = stage == Stage::Decide;
        let queue = self.queue.q.val();
        let record = self.record.q.val();
        let configuration = self.configuration.q.val();
        let read = self.asked_read.q.val();
        let setup = self.asked_setup.q.val();
        let (operation, is_full) = (self.operation.q.val(), self.is_full.q.val());
        let outcome = decide(operation, read, setup.restarts, configuration.valid, record, is_full);
        if decides {
            self.stage.d.next = Stage::Choose;
            self.revisits.d.next = revisits_after(outcome, self.revisits.q.val(), queue);
        }
        self.configurations.write_enable.next = decides && operation == Operation::Setup;
        self.configurations.write_address.next = queue;
        self.configurations.write_data.next = configuration_after(setup, configuration);
        let left = record_after(outcome, record, read);
        self.records.write(decides, queue, left);
        let makes_cqe = chooses && choice.delivery && delivery.has_cqe;
        self.writes.rx.valid.next = makes_cqe || (decides && (outcome.writes || outcome.interrupts_late));
        self.writes.rx.beat.next = if decides {
            event_write(outcome, record, self.asked.q.val(), configuration, self.ring.q.val())
        } else {
            cqe_write(delivery, configuration.vector)
        };

        self.unread.indices.value.next = Indices {
            event_queue: queue,
            producer_index: left.producer_index,
            consumer_index: left.consumer_index,
            entries_log2: configuration.entries_log2,
        };
        self.unread.indices.valid.next = decides;
        self.crowded.next = self.unread.crowded.val();

        // A CQE leaves at once, an EQE when all that was written before is done.
        let write = self.writes.tx.beat.val();
        let has_write = self.writes.tx.valid.val();
        let issued = self.issued.q.val();
        self.held.rx.offer(has_write && write.is_event, HeldEvent { write, write_count: issued });
        let held = self.held.tx.beat.val();
        let may_interrupt = !held.write.has_interrupt || self.interrupts.rx.ready.val();
        let is_due = has_reached(self.write_done.val(), held.write_count);
        let releases = self.held.tx.valid.val() && is_due && may_interrupt && !self.cqe_waits.q.val();
        let offers_cqe = has_write && !write.is_event && !releases;
        let offers_eqe = releases && held.write.has_write;
        self.write.offer(offers_eqe || offers_cqe, slot_write(select(releases, held.write, write)));
        let takes = self.write.ready.val();
        self.cqe_waits.d.next = offers_cqe && !takes;
        self.writes.tx.ready.next = select(write.is_event, self.held.rx.ready.val(), takes && !releases);
        let leaves = releases && (takes || !held.write.has_write);
        self.held.tx.ready.next = leaves;
        if (offers_eqe || offers_cqe) && takes {
            self.issued.d.next = issued + 1;
        }

        // An interrupt leaves when its EQE is done.
        self.interrupts.rx.offer(leaves && held.write.has_interrupt, interrupt_after(held.write, issued));
        let interrupt = self.interrupts.tx.beat.val();
        let is_announced = has_reached(self.write_done.val(), interrupt.write_count);
        self.interrupt.offer(self.interrupts.tx.valid.val() && is_announced, interrupt.vector);
        self.interrupts.tx.ready.next = is_announced && self.interrupt.ready.val();

        let has_event = self.held.tx.valid.val() || self.interrupts.tx.valid.val();
        let is_asked = begins || offers_delivery || offers_event || self.revisits.q.val().any();
        let is_done = issued == self.write_done.val();
        self.idle.d.next = chooses && !is_asked && !has_write && !has_event && is_done;
        self.is_idle.next = self.idle.q.val();
        self.writes_used.next = issued - self.write_done.val();
        self.events_used.next = bit_cast::<LEVEL_BITS, 5>(self.held.level.val())
            + bit_cast::<LEVEL_BITS, 5>(self.interrupts.level.val());
        self.counted.d.next = EventQueueCounts {
            events_written: decides && outcome.writes,
            event_queue_overrun: decides && outcome.overruns,
        };
        self.counts.next = self.counted.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;

    fn record(producer: u64, consumer: u64, armed: bool) -> Record {
        Record { producer_index: bits(producer), consumer_index: bits(consumer), armed, lost: bits(0) }
    }

    fn read(consumer: u64, arm: bool) -> EventsRead {
        EventsRead { consumer_index: bits(consumer), arm, ..Default::default() }
    }

    #[test]
    fn setups_and_doorbells_go_first_and_need_no_room() {
        let all = [true; 6];
        let without = |indices: &[usize]| {
            let mut inputs = all;
            indices.iter().for_each(|&index| inputs[index] = false);
            inputs
        };
        // Inputs: setup, read, room, revisit, delivery, event.
        for (inputs, served) in [
            (all, Some(0)),
            (without(&[2]), Some(0)),
            (without(&[0]), Some(1)),
            (without(&[0, 2]), Some(1)),
            (without(&[0, 1]), Some(2)),
            (without(&[0, 1, 2]), None),
            (without(&[0, 1, 3]), Some(3)),
            (without(&[0, 1, 3, 5]), Some(3)),
            (without(&[0, 1, 3, 4]), Some(4)),
            (without(&[0, 1, 2, 3, 4]), None),
            (without(&[0, 1, 3, 4, 5]), None),
        ] {
            let [setup, read, room, revisit, delivery, event] = inputs;
            let found = choose(setup, read, room, revisit, delivery, event);
            let flags = [found.setup, found.read, found.revisit, found.delivery, found.event];
            let expected: [bool; 5] = std::array::from_fn(|index| served == Some(index));
            assert_eq!(flags, expected, "{inputs:?}");
            let operations = [Operation::Setup, Operation::Read, Operation::Revisit];
            let operation = served.and_then(|index| operations.get(index).copied());
            assert_eq!(operation_of(found), operation.unwrap_or(Operation::Event));
        }
    }

    #[test]
    fn an_eqe_is_written_where_there_is_room_and_makes_the_interrupt_of_an_armed_queue() {
        // Exists, full, armed: written, lost, interrupt.
        for ((valid, is_full, armed), (writes, overruns, interrupts)) in [
            ((true, false, false), (true, false, false)),
            ((true, false, true), (true, false, true)),
            ((true, true, false), (false, true, false)),
            ((true, true, true), (false, true, false)),
            ((false, false, true), (false, false, false)),
        ] {
            let before = record(5, 0, armed);
            let found = decide(Operation::Event, read(0, false), false, valid, before, is_full);
            assert_eq!((found.writes, found.overruns, found.interrupts), (writes, overruns, interrupts));
            assert!(!found.interrupts_late);
            let expected = record(5 + u64::from(writes), 0, armed && !interrupts);
            let expected = Record { lost: bits(overruns.into()), ..expected };
            assert_eq!(record_after(found, before, read(0, false)), expected);
        }
    }

    #[test]
    fn a_doorbell_arms_a_queue_which_is_looked_at_again_if_eqes_are_unread() {
        for (arm, consumer, valid, wants_revisit) in
            [(true, 4, true, true), (true, 5, true, false), (false, 4, true, false), (true, 4, false, false)]
        {
            let (before, asked) = (record(5, 3, false), read(consumer, arm));
            let found = decide(Operation::Read, asked, false, valid, before, false);
            assert_eq!((found.wants_revisit, found.interrupts), (wants_revisit, false));
            let expected = if valid { record(5, consumer, arm) } else { before };
            assert_eq!(record_after(found, before, asked), expected);
            let armed = record(5, 3, true);
            assert!(record_after(found, armed, asked).armed, "a doorbell does not disarm");
        }
    }

    #[test]
    fn a_queue_that_is_still_armed_makes_its_interrupt_late() {
        for (armed, valid, interrupts) in [(true, true, true), (false, true, false), (true, false, false)] {
            let before = record(5, 3, armed);
            let found = decide(Operation::Revisit, read(0, true), true, valid, before, false);
            assert_eq!(
                (found.interrupts_late, found.interrupts, found.revisits),
                (interrupts, interrupts, true)
            );
            assert_eq!(record_after(found, before, read(0, true)), record(5, 3, armed && !interrupts));
        }
    }

    #[test]
    fn lost_eqes_are_counted_and_told_when_software_has_read_others() {
        let before = |armed, lost| Record { lost: bits(lost), ..record(69, 5, armed) };
        // One more is lost; their number stays at its maximum.
        for (lost, expected) in [(0, 1), (1, 2), (0xfffe, 0xffff), (0xffff, 0xffff)] {
            let found = decide(Operation::Event, read(0, false), false, true, before(true, lost), true);
            assert!(found.overruns && !found.writes && !found.interrupts);
            assert_eq!(record_after(found, before(true, lost), read(0, false)), before(true, expected));
        }
        // A doorbell: the queue is looked at again, armed or not.
        for (arm, lost, wants_revisit) in [(false, 0, false), (false, 1, true), (true, 1, true)] {
            let asked = read(69, arm);
            let found = decide(Operation::Read, asked, false, true, before(false, lost), true);
            assert_eq!((found.wants_revisit, found.writes), (wants_revisit, false));
            let expected = Record { lost: bits(lost), ..record(69, 69, arm) };
            assert_eq!(record_after(found, before(false, lost), asked), expected);
        }
        // Then, by lost, full, armed, exists: `events_lost` is written, with or without an interrupt, or an
        // interrupt alone is made.
        for ((lost, is_full, armed, valid), (notifies, interrupts, late)) in [
            ((3, false, false, true), (true, false, false)),
            ((3, false, true, true), (true, true, false)),
            ((3, true, false, true), (false, false, false)),
            ((3, true, true, true), (false, true, true)),
            ((0, false, true, true), (false, true, true)),
            ((3, false, true, false), (false, false, false)),
        ] {
            let (before, asked) = (before(armed, lost), read(0, false));
            let found = decide(Operation::Revisit, asked, false, valid, before, is_full);
            assert_eq!((found.notifies, found.writes), (notifies, notifies), "{lost} {is_full} {valid}");
            assert_eq!((found.interrupts, found.interrupts_late), (interrupts, late));
            let left = if notifies { record(70, 5, armed) } else { before };
            assert_eq!(record_after(found, before, asked), Record { armed: armed && !interrupts, ..left });
        }
        let eqe = eqe_of(events_lost(bits(0xffff)), true);
        let expected = Eqe { detail: 0xffff, kind: EventKind::EventsLost, phase: true, ..Eqe::at_reset() };
        assert_eq!(BigUint::from(eqe), BigUint::from_bytes_le(&expected.to_bytes().unwrap()));
    }

    #[test]
    fn a_setup_makes_a_queue_anew_or_changes_its_vector() {
        let configuration = EventQueueSetup { valid: true, base_page: bits(5), ..Default::default() };
        let setup = EventQueueSetup { vector: bits(7), base_page: bits(6), ..Default::default() };
        let before = record(5, 3, true);
        for restarts in [true, false] {
            let setup = EventQueueSetup { restarts, ..setup };
            let found = decide(Operation::Setup, read(9, true), restarts, true, before, false);
            let (left, kept) = if restarts {
                (Record::default(), setup)
            } else {
                (before, EventQueueSetup { vector: bits(7), ..configuration })
            };
            assert_eq!(record_after(found, before, read(9, true)), left);
            assert_eq!(configuration_after(setup, configuration), kept);
        }
    }

    #[test]
    fn an_interrupt_waits_for_its_eqe_or_for_what_is_issued() {
        for (has_write, issued, write_count) in [(true, 7, 8), (false, 7, 7), (true, 0xffff, 0)] {
            let write = PendingWrite { has_write, vector: bits(5), ..Default::default() };
            let expected = HeldInterrupt { vector: bits(5), write_count: bits(write_count) };
            assert_eq!(interrupt_after(write, bits(issued)), expected);
        }
    }

    #[test]
    fn a_queue_is_marked_until_it_is_looked_at_again_or_made_anew() {
        let before = bits(0b0110);
        for (outcome, expected) in [
            (Outcome::default(), 0b0110),
            (Outcome { wants_revisit: true, ..Default::default() }, 0b0110),
            (Outcome { revisits: true, ..Default::default() }, 0b0010),
            (Outcome { restarts: true, ..Default::default() }, 0b0010),
        ] {
            assert_eq!(revisits_after(outcome, before, bits(2)), bits(expected));
        }
        let marked = revisits_after(Outcome { wants_revisit: true, ..Default::default() }, before, bits(3));
        assert_eq!(marked, bits(0b1110));
    }
}
