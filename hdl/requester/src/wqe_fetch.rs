//! WqeFetch: reads work of the queue pair whose turn it is, up to eight slots at once.
//!
//! A host answers after a microsecond, in which the card could do fifty small messages; so fetches overlap, across queue pairs
//! and within one. Nobody here knows yet where entries begin and end. That matters at the end of a burst only, where the second
//! slot of an entry may be cut off; so a burst overlaps the next one by one slot, if there is a next one, and segmentation
//! takes from each what it wants.
//!
//! ```text
//!                    ┌──────────────────────────────────────────────┐
//!  posted ──────────>│ producer index ─┐                            │
//!  from_schedule ───>│─> read records ─┴> judge ──> emit ───────────┼──> bursts
//!  turn (segment) ──>│   fetched index ^             └──────────────┼──> work_read
//!  setup ───────────>│   ring, life    │                            │
//!                    │                 └─ slots reserved <──────────┼─── returned (collect)
//!                    └──────────────────────────────────────────────┘
//! ```
//!
//! One burst takes 4 cycles, 5 where the ring ends in it: with 7 new slots a burst, 0.6 cycles a slot.
//!
//! 1. A burst is asked for only with room for all of its slots in the queue of slots behind the host.
//! 2. Slots lie within the ring, whatever the producer index says. If it claims more than a ring beyond what was fetched, the
//!    burst says so and has no slots, and nothing more is fetched until segmentation asks for it.
//! 3. Work is fetched in RTS, and in ERR and SQE to be flushed. In other states it waits; each change of the state makes fetch
//!    look again.
//! 4. A setup event or a turn of segmentation is taken between two bursts; neither waits for the outputs.
//! 5. While `enable` is low no burst is begun, so what was asked for drains; queue pairs keep their places in line, and their
//!    doorbells are heard (design decision 12). Three cycles behind its fall the last burst has been counted.
//! 6. The room that bursts need in the queues behind is looked at before a turn is taken, so a burst never waits.
use crate::constants::{ERROR, READY_TO_SEND, RESET, SEND_QUEUE_ERROR};
use crate::messages::{BURST_SLOTS, FetchResume, WqeBurst};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::doorbell::SendsPosted;
use rnic_messages::host::HostSpan;
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, WORK_INDEX_BITS};

/// Slots that the queue behind the host holds, as a power of two.
pub const SLOT_QUEUE_BITS: usize = 9;
/// Width of their count.
pub const SLOT_COUNT_BITS: usize = SLOT_QUEUE_BITS + 1;
/// Bits of the offset of a slot in its ring.
const OFFSET_BITS: usize = rnic_layout::limits::SEND_SLOTS_LOG2_MAX as usize;

/// What commands say.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Ring {
    state: Bits<3>,
    generation: Bits<GENERATION_BITS>,
    base_page: Bits<52>,
    slots_log2: Bits<4>,
}

/// How far fetching is.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Fetched {
    /// The slot that is fetched next.
    index: Bits<WORK_INDEX_BITS>,
    /// Not before segmentation asks for it.
    is_stopped: Bit,
    /// That slot was fetched before, and may have been completed and posted anew since then.
    overlaps: Bit,
}

/// What the block does.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Setup,
    FetchResume,
    Read,
    Judge,
    Emit,
    EmitRest,
}

/// The block.
#[derive(LogicBlock, Registers, Construct)]
pub struct WqeFetch {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// Records are being cleared.
    pub is_sweeping: Signal<In, Bit>,
    /// Whose.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From control: work may be begun.
    pub enable: Signal<In, Bit>,
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// A doorbell.
    pub posted: Signal<In, SendsPosted>,
    /// It rang.
    pub posted_valid: Signal<In, Bit>,
    /// From schedule: whose turn it is.
    pub from_schedule: StreamRx<Bits<QUEUE_PAIR_BITS>>,
    /// To schedule: who may have more; registered.
    pub again: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// From segmentation: where to go on.
    pub turn: StreamRx<FetchResume>,
    /// A slot has left the queue behind the host.
    pub returned: Signal<In, Bit>,
    /// To the host; registered.
    pub work_read: StreamTx<HostSpan>,
    /// To collect: what was asked for; registered.
    pub bursts: StreamTx<WqeBurst>,
    /// Bursts ever asked for; registered.
    pub burst_count: Signal<Out, Bits<16>>,

    producer: Memory<Bits<WORK_INDEX_BITS>, QUEUE_PAIR_BITS>,
    rings: Memory<Ring, QUEUE_PAIR_BITS>,
    fetched: Memory<Fetched, QUEUE_PAIR_BITS>,
    spans: Fifo<HostSpan, 4, 5>,
    burst_queue: Fifo<WqeBurst, 6, 7>,
    step: Reg<Step>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    again_held: DFF<Bits<QUEUE_PAIR_BITS>>,
    has_again: Reg<Bit>,
    #[init(Reg::new(bits(1 << SLOT_QUEUE_BITS)))]
    room: Reg<Bits<SLOT_COUNT_BITS>>,
    bursts_done: Reg<Bits<16>>,
    count: DFF<Bits<4>>,
    is_due: DFF<Bit>,
    is_overrun: DFF<Bit>,
    has_more: DFF<Bit>,
    offset: DFF<Bits<OFFSET_BITS>>,
    to_end: DFF<Bits<4>>,
}

impl Logic for WqeFetch {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<HostSpan>::link(&mut self.work_read, &mut self.spans.tx);
        StreamTx::<WqeBurst>::link(&mut self.bursts, &mut self.burst_queue.tx);
        self.burst_count.next = self.bursts_done.q.val();
        let is_sweeping = self.is_sweeping.val();
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let event = self.setup.beat.val();
        let turn = self.turn.beat.val();

        self.again.valid.next = self.has_again.q.val();
        self.again.beat.next = self.again_held.q.val();
        if self.again.ready.val() {
            self.has_again.d.next = false;
        }

        // Doorbells overwrite the producer index; only a restart writes it besides, in a cycle without a doorbell.
        let posted = self.posted.val();
        let is_restart = step == Step::Setup && event.kind == SetupKind::Restart;
        let clears_producer = is_restart && !self.posted_valid.val();
        self.producer.write_enable.next = self.posted_valid.val() || is_sweeping || clears_producer;
        self.producer.write_address.next = if is_sweeping {
            self.sweep_index.val()
        } else if clears_producer {
            queue_pair
        } else {
            posted.queue_pair
        };
        self.producer.write_data.next =
            if is_sweeping || clears_producer { bits::<WORK_INDEX_BITS>(0) } else { posted.producer_index };

        // What comes first is decided by registers: setup, then segmentation, then a turn if there is room for all of it.
        let may_start = step == Step::Idle && !self.has_again.q.val() && !is_sweeping;
        let has_room = self.room.q.val() >= BURST_SLOTS
            && self.burst_queue.rx.ready.val()
            && !self.spans.level.val().get_bits::<2>(3).any();
        let takes_setup = may_start && self.setup.valid.val();
        let takes_turn = may_start && !self.setup.valid.val() && self.turn.valid.val();
        let takes_next =
            may_start && !self.setup.valid.val() && !self.turn.valid.val() && has_room && self.enable.val();
        self.from_schedule.ready.next = takes_next;
        let chosen = if takes_setup {
            event.queue_pair
        } else if takes_turn {
            turn.queue_pair
        } else {
            self.from_schedule.beat.val()
        };
        if step == Step::Idle {
            self.queue_pair.d.next = chosen;
            self.step.d.next = if takes_setup {
                Step::Setup
            } else if takes_turn {
                Step::FetchResume
            } else if takes_next && self.from_schedule.valid.val() {
                Step::Read
            } else {
                Step::Idle
            };
        }
        // The producer index is read one cycle behind the turn: what a doorbell wrote until then is seen.
        let reads_now = step == Step::Idle;
        self.rings.read_enable.next = reads_now;
        self.rings.read_address.next = chosen;
        self.fetched.read_enable.next = reads_now;
        self.fetched.read_address.next = chosen;
        self.producer.read_enable.next = step == Step::Read;
        self.producer.read_address.next = queue_pair;

        let ring = self.rings.read_data.val();
        let fetched = self.fetched.read_data.val();
        let count = self.count.q.val();
        let to_end = self.to_end.q.val();
        let is_overrun = self.is_overrun.q.val();
        let emits = step == Step::Emit && self.is_due.q.val();
        let reads = emits && !is_overrun;
        self.setup.ready.next = false;
        self.turn.ready.next = false;
        self.rings.write_enable.next = step == Step::Setup || is_sweeping;
        self.rings.write_address.next = select(is_sweeping, self.sweep_index.val(), queue_pair);
        self.rings.write_data.next = Ring {
            state: select(is_sweeping, bits::<3>(RESET), event.state),
            generation: event.generation,
            base_page: event.path.send_base_page,
            slots_log2: event.path.send_slots_log2,
        };
        self.fetched.write_enable.next = is_sweeping || emits;
        self.fetched.write_address.next = select(is_sweeping, self.sweep_index.val(), queue_pair);
        self.fetched.write_data.next =
            Fetched { index: bits::<WORK_INDEX_BITS>(0), is_stopped: false, overlaps: false };
        if step == Step::Setup {
            // Whatever has changed, there may be something to fetch now.
            let ends = !is_restart || clears_producer;
            self.setup.ready.next = ends;
            self.fetched.write_enable.next = is_restart;
            if ends {
                self.again_held.d.next = queue_pair;
                self.has_again.d.next = true;
                self.step.d.next = Step::Idle;
            }
        }
        if step == Step::FetchResume {
            let counts = turn.generation == ring.generation;
            self.turn.ready.next = true;
            self.fetched.write_enable.next = counts;
            self.fetched.write_data.next = Fetched {
                index: select(turn.resumes, turn.slot_index, fetched.index),
                is_stopped: !turn.resumes,
                overlaps: fetched.overlaps && !turn.resumes,
            };
            self.again_held.d.next = queue_pair;
            self.has_again.d.next = counts && turn.resumes;
            self.step.d.next = Step::Idle;
        }
        if step == Step::Read {
            self.step.d.next = Step::Judge;
        }

        // How many slots there are, and how many before the ring ends.
        let available = self.producer.read_data.val() - fetched.index;
        let ring_slots = bits::<WORK_INDEX_BITS>(1) << ring.slots_log2;
        let slot = fetched.index & (ring_slots - 1);
        let slots_to_end = ring_slots - slot;
        let has_more = available > BURST_SLOTS;
        if step == Step::Judge {
            let is_active =
                ring.state == READY_TO_SEND || ring.state == ERROR || ring.state == SEND_QUEUE_ERROR;
            self.is_due.d.next = is_active && !fetched.is_stopped && available.any();
            // One more than the ring has: the slot that overlaps has been posted anew behind all others.
            let is_posted_anew = fetched.overlaps && available == ring_slots | 1;
            self.is_overrun.d.next = available > ring_slots && !is_posted_anew;
            self.has_more.d.next = has_more;
            self.count.d.next = if has_more { bits::<4>(BURST_SLOTS) } else { available.get_bits::<4>(0) };
            self.offset.d.next = slot.get_bits::<OFFSET_BITS>(0);
            self.to_end.d.next = if slots_to_end > BURST_SLOTS {
                bits::<4>(BURST_SLOTS)
            } else {
                slots_to_end.get_bits::<4>(0)
            };
            self.step.d.next = Step::Emit;
        }

        // The burst overlaps the next one, if there is one, by its last slot.
        let is_cut = count > to_end;
        let advance = if is_overrun {
            bits::<4>(0)
        } else if self.has_more.q.val() {
            bits::<4>(BURST_SLOTS - 1)
        } else {
            count
        };
        let offset = self.offset.q.val();
        let first_page = ring.base_page + bit_cast::<52, 9>(offset.get_bits::<9>(6));
        self.burst_queue.rx.valid.next = emits;
        self.burst_queue.rx.beat.next = WqeBurst {
            queue_pair,
            generation: ring.generation,
            first_index: fetched.index,
            count,
            ends_queue: !self.has_more.q.val(),
            is_overrun,
        };
        self.spans.rx.valid.next = reads || step == Step::EmitRest;
        self.spans.rx.beat.next = HostSpan {
            address: cat!(first_page, offset.get_bits::<6>(0), bits::<6>(0)),
            length: cat!(bits::<3>(0), select(is_cut, to_end, count), bits::<6>(0)),
        };
        if step == Step::Emit {
            self.step.d.next = if reads && is_cut { Step::EmitRest } else { Step::Idle };
            if emits {
                self.fetched.write_data.next = Fetched {
                    index: fetched.index + bit_cast::<WORK_INDEX_BITS, 4>(advance),
                    is_stopped: is_overrun,
                    overlaps: select(is_overrun, fetched.overlaps, self.has_more.q.val()),
                };
                self.bursts_done.d.next = self.bursts_done.q.val() + 1;
            }
            self.again_held.d.next = queue_pair;
            self.has_again.d.next = reads && self.has_more.q.val();
        }
        if step == Step::EmitRest {
            self.spans.rx.beat.next = HostSpan {
                address: cat!(ring.base_page, bits::<12>(0)),
                length: cat!(bits::<3>(0), count - to_end, bits::<6>(0)),
            };
            self.step.d.next = Step::Idle;
        }

        let taken = if reads { bit_cast::<SLOT_COUNT_BITS, 4>(count) } else { bits::<SLOT_COUNT_BITS>(0) };
        let returned =
            if self.returned.val() { bits::<SLOT_COUNT_BITS>(1) } else { bits::<SLOT_COUNT_BITS>(0) };
        self.room.d.next = self.room.q.val() - taken + returned;
    }
}

#[cfg(test)]
mod tests;
