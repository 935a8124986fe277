//! WqeFetch: reads WQEs of the next ready queue pair from the host, up to eight slots at once.
//!
//! A host answers after a microsecond, in which the card could send fifty small messages; so fetches overlap,
//! across queue pairs and within one. Where a WQE begins and ends is not known here. That matters at the end of
//! a burst only, where the second slot of a WQE may be cut off; so a burst overlaps the next one by one slot,
//! if there is a next one, and wqe_parse takes from each what it wants.
//!
//! ```text
//!                       ┌──────────────────────────────────────────────┐
//!  posted ─────────────>│ producer index ─┐                            │
//!  from_ready_queue ───>│─> read records ─┴> plan ───> emit ───────────┼──> bursts
//!  resume (wqe_parse) ─>│   fetched index ^             └──────────────┼──> wqe_read
//!  setup ──────────────>│   ring, state   │                            │
//!  weight (wqe_parse) ─>│   weight        └─ slots reserved <──────────┼─── slot_returned (wqe_pair)
//!                       │                    line to segment <─────────┼─── charge_returned (segment)
//!                       └──────────────────────────────────────────────┘
//! ```
//!
//! A burst takes 4 cycles, 5 where the ring ends in it: with 7 new slots a burst, 0.6 cycles a slot.
//!
//! From here to segment, WQEs of all queue pairs are in one line. So bursts are counted by what their messages
//! take of the wire (see [`weight`](crate::weight)): a turn is a quantum of 16 KiB, and 128 KiB may be in the
//! line. A queue pair with one short message waits for them, and for a quantum of each one before it.
//!
//! 1. A burst is requested only with room for all of its slots in the queue of slots from the host.
//! 2. Slots lie within the ring, whatever the producer index is. If it claims more than a ring beyond what was
//!    fetched, the burst reports that and has no slots, and nothing more is fetched until wqe_parse requests
//!    it.
//! 3. WQEs are fetched in RTS, in SQD while wqe_parse sends messages again, and in ERR and SQE to be
//!    flushed. In other states they wait; each change of the state makes fetch look again.
//! 4. A setup event or a resume is taken between two bursts; neither waits for the outputs.
//! 5. While `enable` is low no burst begins, so what was requested drains; queue pairs keep their places in the
//!    ready queue, and doorbells are recorded (design decision 12). Three cycles after `enable` falls the last
//!    burst has been counted.
//! 6. The room that a burst needs in the queues after this block is checked before a queue pair is taken, so a
//!    burst never waits.
//! 7. A resume sets the index back or forth; bursts after it have its lap, so that wqe_parse tells an
//!    overrun that was found before from one that was found after. Where it asks for a single burst, nothing
//!    is fetched after that burst, as after a stop, unless it has all that was posted.
//! 8. A burst has as many slots as a quantum takes by the weight of its queue pair, two at least, so that there is
//!    a new one. What it is counted as returns from segment with its last WQE.
mod rules;

use crate::messages::{BURST_SLOTS, FetchResume, WqeBurst};
use crate::sweep::SweepStep;
use crate::weight::{CHARGE_BITS, WEIGHT_BITS, WeightWrite};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::doorbell::SendsPosted;
use rnic_messages::host::HostSpan;
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, WORK_INDEX_BITS};
use rules::{
    BurstPlan, Fetched, Ring, after_burst, after_resume, ends_single, first_span, first_step, has_line_room,
    is_split, line_after, plan_burst, rest_span, ring_of, step_after, taken_of,
};

/// `log2` of the slots in the queue from the host.
pub const SLOT_QUEUE_BITS: usize = 9;
/// Width of the count of these slots.
pub const SLOT_COUNT_BITS: usize = SLOT_QUEUE_BITS + 1;
/// `log2` of the units that may be in the line to segment.
pub const LINE_BITS: usize = 9;

/// State of the block.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Setup,
    Resume,
    Read,
    Plan,
    Emit,
    /// Requests the slots from the beginning of the ring.
    EmitRest,
}

/// Fetches WQEs; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub struct WqeFetch {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// From sweep: the records of a queue pair are cleared in this cycle.
    pub sweep: Signal<In, SweepStep>,
    /// From control: bursts may begin.
    pub enable: Signal<In, Bit>,
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// From the doorbells: new producer index of a send queue.
    pub posted: Signal<In, SendsPosted>,
    /// `posted` is valid.
    pub posted_valid: Signal<In, Bit>,
    /// From ready_queue: queue pair to look at next.
    pub from_ready_queue: StreamRx<Bits<QUEUE_PAIR_BITS>>,
    /// To ready_queue: queue pair that may have more to fetch; registered.
    pub again: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// From wqe_parse: where to continue.
    pub resume: StreamRx<FetchResume>,
    /// From wqe_pair: a slot has left the queue from the host.
    pub slot_returned: Signal<In, Bit>,
    /// From wqe_parse: weight of a queue pair.
    pub weight: Signal<In, WeightWrite>,
    /// From segment: units of a burst that has left the line.
    pub charge_returned: Signal<In, Bits<CHARGE_BITS>>,
    /// To the host; registered.
    pub wqe_read: StreamTx<HostSpan>,
    /// To wqe_pair: what was requested; registered.
    pub bursts: StreamTx<WqeBurst>,
    /// Bursts that were ever requested, free-running; registered.
    pub burst_count: Signal<Out, Bits<16>>,
    /// Slots that were requested and have not returned; a function of registers.
    pub slots_used: Signal<Out, Bits<SLOT_COUNT_BITS>>,
    /// Units of the bursts in the line to segment; registered.
    pub line_used: Signal<Out, Bits<LINE_BITS>>,

    producer: Memory<Bits<WORK_INDEX_BITS>, QUEUE_PAIR_BITS>,
    rings: Memory<Ring, QUEUE_PAIR_BITS>,
    fetched: Memory<Fetched, QUEUE_PAIR_BITS>,
    weights: Memory<Bits<WEIGHT_BITS>, QUEUE_PAIR_BITS>,
    spans: Fifo<HostSpan, 4, 5>,
    burst_queue: Fifo<WqeBurst, 6, 7>,
    step: Reg<Step>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    again_held: DFF<Bits<QUEUE_PAIR_BITS>>,
    has_again: Reg<Bit>,
    /// Slots that may still be requested.
    #[init(Reg::new(bits(1 << SLOT_QUEUE_BITS)))]
    room: Reg<Bits<SLOT_COUNT_BITS>>,
    line: Reg<Bits<LINE_BITS>>,
    bursts_done: Reg<Bits<16>>,
    plan: DFF<BurstPlan>,
}

impl Logic for WqeFetch {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<HostSpan>::link(&mut self.wqe_read, &mut self.spans.tx);
        StreamTx::<WqeBurst>::link(&mut self.bursts, &mut self.burst_queue.tx);
        self.burst_count.next = self.bursts_done.q.val();
        self.slots_used.next = bits::<SLOT_COUNT_BITS>(1 << SLOT_QUEUE_BITS) - self.room.q.val();
        self.line_used.next = self.line.q.val();
        let is_sweeping = self.sweep.val().is_sweeping;
        let sweep_index = self.sweep.val().index;
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let event = self.setup.beat.val();
        let resume = self.resume.beat.val();

        self.again.valid.next = self.has_again.q.val();
        self.again.beat.next = self.again_held.q.val();
        if self.again.ready.val() {
            self.has_again.d.next = false;
        }

        // Doorbells overwrite the producer index; only a restart writes it besides, in a cycle without a
        // doorbell.
        let posted = self.posted.val();
        let is_restart = step == Step::Setup && event.kind == SetupKind::Restart;
        let clears_producer = is_restart && !self.posted_valid.val();
        self.producer.write_enable.next = self.posted_valid.val() || is_sweeping || clears_producer;
        self.producer.write_address.next = if is_sweeping {
            sweep_index
        } else if clears_producer {
            queue_pair
        } else {
            posted.queue_pair
        };
        self.producer.write_data.next =
            if is_sweeping || clears_producer { bits::<WORK_INDEX_BITS>(0) } else { posted.producer_index };

        // Setup events go first, then resumes, then a burst if there is room for all of it.
        let may_start = step == Step::Idle && !self.has_again.q.val() && !is_sweeping;
        let has_room = self.room.q.val() >= BURST_SLOTS
            && has_line_room(self.line.q.val())
            && self.burst_queue.rx.ready.val()
            && !self.spans.level.val().get_bits::<2>(3).any();
        let takes_setup = may_start && self.setup.valid.val();
        let takes_resume = may_start && !self.setup.valid.val() && self.resume.valid.val();
        let takes_next =
            may_start && !self.setup.valid.val() && !self.resume.valid.val() && has_room && self.enable.val();
        self.from_ready_queue.ready.next = takes_next;
        let chosen = if takes_setup {
            event.queue_pair
        } else if takes_resume {
            resume.queue_pair
        } else {
            self.from_ready_queue.beat.val()
        };
        let first = first_step(takes_setup, takes_resume, takes_next && self.from_ready_queue.valid.val());
        if step == Step::Idle {
            self.queue_pair.d.next = chosen;
        }
        // The producer index is read a cycle after the queue pair was chosen: what a doorbell wrote until then
        // is seen.
        self.rings.read_enable.next = step == Step::Idle;
        self.rings.read_address.next = chosen;
        self.fetched.read_enable.next = step == Step::Idle;
        self.fetched.read_address.next = chosen;
        self.producer.read_enable.next = step == Step::Read;
        self.producer.read_address.next = queue_pair;
        let ring = self.rings.read_data.val();
        let fetched = self.fetched.read_data.val();
        let written = self.weight.val();
        self.weights.read_enable.next = step == Step::Idle;
        self.weights.read_address.next = chosen;
        self.weights.write_enable.next = written.valid || is_sweeping;
        self.weights.write_address.next = select(is_sweeping, sweep_index, written.queue_pair);
        self.weights.write_data.next = select(is_sweeping, bits::<WEIGHT_BITS>(0), written.weight);
        let weight = self.weights.read_data.val();

        // The records.
        let plan = self.plan.q.val();
        let emits = step == Step::Emit && plan.is_due;
        let reads = emits && !plan.is_overrun;
        let is_current = resume.generation == ring.generation;
        let is_taken = !is_restart || clears_producer;
        self.setup.ready.next = step == Step::Setup && is_taken;
        self.resume.ready.next = step == Step::Resume;
        self.rings.write_enable.next = step == Step::Setup || is_sweeping;
        self.rings.write_address.next = select(is_sweeping, sweep_index, queue_pair);
        self.rings.write_data.next = ring_of(event);
        if is_sweeping {
            self.rings.write_data.next.state = bits(QpState::Reset as u64);
        }
        self.fetched.write_enable.next =
            is_sweeping || emits || is_restart || (step == Step::Resume && is_current);
        self.fetched.write_address.next = select(is_sweeping, sweep_index, queue_pair);
        self.fetched.write_data.next = match step {
            Step::Resume => after_resume(fetched, resume),
            Step::Emit => after_burst(fetched, plan),
            _ => Fetched { ..Default::default() },
        };

        // After a setup event there may be something to fetch, whatever has changed.
        if step == Step::Setup && is_taken {
            self.again_held.d.next = queue_pair;
            self.has_again.d.next = true;
        }
        if step == Step::Resume {
            self.again_held.d.next = queue_pair;
            self.has_again.d.next = is_current && resume.resumes;
        }
        if step == Step::Plan {
            self.plan.d.next = plan_burst(ring, fetched, self.producer.read_data.val(), weight);
        }
        if step == Step::Emit {
            self.again_held.d.next = queue_pair;
            self.has_again.d.next = reads && plan.has_more && !fetched.is_single;
        }
        self.step.d.next = step_after(step, first, is_taken, reads && is_split(plan));

        // The burst.
        let charge = taken_of(plan, weight);
        self.burst_queue.rx.valid.next = emits;
        self.burst_queue.rx.beat.next = WqeBurst {
            queue_pair,
            generation: ring.generation,
            first_index: fetched.index,
            count: plan.count,
            lap: fetched.lap,
            ends_queue: !plan.has_more,
            is_overrun: plan.is_overrun,
            is_single: ends_single(fetched, plan),
            is_kept: false,
            weight,
            charge,
        };
        self.spans.rx.valid.next = reads || step == Step::EmitRest;
        self.spans.rx.beat.next = if step == Step::EmitRest {
            rest_span(ring.base_page, plan)
        } else {
            first_span(ring.base_page, plan)
        };
        if emits {
            self.bursts_done.d.next = self.bursts_done.q.val() + 1;
        }
        let taken =
            if reads { bit_cast::<SLOT_COUNT_BITS, 4>(plan.count) } else { bits::<SLOT_COUNT_BITS>(0) };
        let returned = bit_cast::<SLOT_COUNT_BITS, 1>(self.slot_returned.val().into());
        self.room.d.next = self.room.q.val() - taken + returned;
        let entered = select(emits, charge, bits::<CHARGE_BITS>(0));
        self.line.d.next = line_after(self.line.q.val(), entered, self.charge_returned.val());
    }
}

#[cfg(test)]
mod tests;
