//! WqeSupply: from the doorbell of a send queue to its slots, in the order in which wqe_parse wants them.
//!
//! ```text
//!                                            slot ──> slots (512)
//!              ┌─────────────────────────────────────────┼──────────────────┐
//!  posted ──┬──┼──────────┐                              v                  │
//!           └──┼> ready_queue ──> wqe_fetch ─ bursts ─> wqe_pair ───────────┼──> wqe_slot
//!              │     ^  again ──┘ ^ ^ ^│                 ^    └─> kept_slots│
//!  setup ──────┼──────────────────┘ │ │└───┬─────────┐   └───────────┘  ^   │
//!  resume ─────┼────────────────────┘ │    v         └──────────────────┼───┼──> turn
//!  rest ───────┼──────────────────────┘    │                            │   │
//!  kept_event ─┼───────────────────────────┼────────────────────────────┘   ├──> kept_answer
//!              └───────────────────────────┼────────────────────────────────┘
//!                                       wqe_read
//! ```
//!
//! The blocks inside say how fast they are and what they guarantee; this one joins them. wqe_fetch has reserved the room of
//! each slot that comes from the host.
use crate::kept_slots::KeptSlots;
use crate::messages::{FetchResume, KeptAnswer, KeptEvent, WqeSlot};
use crate::ready_queue::{COUNT_BITS as WAITING_BITS, ReadyQueue};
use crate::sweep::SweepStep;
use crate::weight::{CHARGE_BITS, WeightWrite};
use crate::wqe_fetch::{LINE_BITS, SLOT_COUNT_BITS, SLOT_QUEUE_BITS, WqeFetch};
use crate::wqe_pair::WqePair;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::doorbell::SendsPosted;
use rnic_messages::host::{HostSpan, Slot};
use rnic_messages::setup::SetupEvent;
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// From doorbells to slots; see the module.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub struct WqeSupply {
    /// Clears the records after reset.
    pub sweep: Signal<In, SweepStep>,
    /// Bursts may begin.
    pub enable: Signal<In, Bit>,
    /// From control, in order.
    pub setup: StreamRx<SetupEvent>,
    /// From the doorbells: new producer index of a send queue.
    pub posted: ValidRx<SendsPosted>,
    /// From wqe_parse: where to go on with a queue pair.
    pub resume: StreamRx<FetchResume>,
    /// From wqe_parse: what becomes of the slot that it has, or of slots that are kept.
    pub kept_event: Signal<In, KeptEvent>,
    /// To wqe_parse: whether slots are kept.
    pub kept_answer: Signal<Out, KeptAnswer>,
    /// From wqe_parse: weight of a queue pair.
    pub weight: Signal<In, WeightWrite>,
    /// From segment: units of a burst that has left the line.
    pub charge_returned: Signal<In, Bits<CHARGE_BITS>>,
    /// From segment: a queue pair has the rest of a message, and waits for a turn.
    pub rest: StreamRx<Bits<QUEUE_PAIR_BITS>>,
    /// To the host: up to eight slots to read; registered.
    pub wqe_read: StreamTx<HostSpan>,
    /// From the host: slots, in the order of the spans.
    pub slot: ValidRx<Slot>,
    /// To wqe_parse: slots and their bursts.
    pub wqe_slot: StreamTx<WqeSlot>,
    /// To segment: the rest of a message has its turn; registered.
    pub turn: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// Turns of rests that ever began, modulo 2^16; registered.
    pub turn_count: Signal<Out, Bits<16>>,
    /// Bursts that ever began, modulo 2^16: a sum of two registers.
    pub burst_count: Signal<Out, Bits<16>>,
    /// Queue pairs that wait for the fetch of their WQEs.
    pub queues_waiting: Signal<Out, Bits<WAITING_BITS>>,
    /// Slots that are reserved or in the queue of slots.
    pub slots_used: Signal<Out, Bits<SLOT_COUNT_BITS>>,
    /// Units of the bursts in the line to segment.
    pub line_used: Signal<Out, Bits<LINE_BITS>>,

    ready_queue: ReadyQueue,
    wqe_fetch: WqeFetch,
    slots: Fifo<Slot, SLOT_QUEUE_BITS, SLOT_COUNT_BITS>,
    kept_slots: KeptSlots,
    wqe_pair: WqePair,
}

impl Logic for WqeSupply {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        let sweep = self.sweep.val();
        self.ready_queue.sweep.next = sweep;
        self.wqe_fetch.sweep.next = sweep;
        self.kept_slots.sweep.next = sweep;
        self.wqe_fetch.enable.next = self.enable.val();
        self.kept_slots.enable.next = self.enable.val();

        let posted = self.posted.value.val();
        let is_posted = self.posted.valid.val();
        self.ready_queue.posted.offer(is_posted, posted.queue_pair);
        self.wqe_fetch.posted.offer(is_posted, posted);
        StreamTx::join(&mut self.ready_queue.to_fetch, &mut self.wqe_fetch.from_ready_queue);
        StreamTx::join(&mut self.wqe_fetch.again, &mut self.ready_queue.again);
        StreamRx::link(&mut self.setup, &mut self.wqe_fetch.setup);
        StreamRx::link(&mut self.resume, &mut self.wqe_fetch.resume);
        StreamRx::link(&mut self.rest, &mut self.wqe_fetch.rest);
        StreamTx::link(&mut self.turn, &mut self.wqe_fetch.turn);
        self.turn_count.next = self.wqe_fetch.turn_count.val();
        StreamTx::link(&mut self.wqe_read, &mut self.wqe_fetch.wqe_read);

        // WqeFetch has reserved the room.
        self.slots.rx.offer(self.slot.valid.val(), self.slot.value.val());
        StreamTx::join(&mut self.slots.tx, &mut self.wqe_pair.slots);
        StreamTx::join(&mut self.wqe_fetch.bursts, &mut self.wqe_pair.bursts);
        self.wqe_fetch.slot_returned.next = self.wqe_pair.slot_returned.val();
        StreamTx::link(&mut self.wqe_slot, &mut self.wqe_pair.wqe_slot);
        self.wqe_fetch.weight.next = self.weight.val();
        self.wqe_fetch.charge_returned.next = self.charge_returned.val();
        self.line_used.next = self.wqe_fetch.line_used.val();

        self.kept_slots.action.next = self.kept_event.val();
        self.kept_slots.slot.next = self.wqe_pair.wqe_slot.beat.val();
        self.kept_answer.next = self.kept_slots.answer.val();
        StreamTx::join(&mut self.kept_slots.bursts, &mut self.wqe_pair.kept_bursts);
        StreamTx::join(&mut self.kept_slots.slots, &mut self.wqe_pair.kept_slots);

        self.burst_count.next = self.wqe_fetch.burst_count.val() + self.kept_slots.burst_count.val();
        self.queues_waiting.next = self.ready_queue.level.val();
        self.slots_used.next = self.wqe_fetch.slots_used.val();
    }
}
