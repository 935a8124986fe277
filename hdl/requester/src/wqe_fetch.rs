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
//!  from_ready_queue ───>│─> read records ─┴> plan ───> emit ─┬─────────┼──> bursts
//!  resume (wqe_parse) ─>│   fetched index ^            │     └─────────┼──> wqe_read
//!  setup ──────────────>│   ring, state   │            └───────────────┼──> turn (segment)
//!  weight (wqe_parse) ─>│   weight        └─ slots reserved <──────────┼─── slot_returned (wqe_pair)
//!  rest (segment) ─────>│   has a rest       line to segment <─────────┼─── charge_returned (segment)
//!                       └──────────────────────────────────────────────┘
//! ```
//!
//! A burst takes 4 cycles, 5 where the ring ends in it: with 7 new slots a burst, 0.6 cycles a slot.
//!
//! A turn is a quantum of 16 KiB: of bursts, which are counted by what their messages take of the wire (see
//! [`weight`](crate::weight)), or of a message that segment has begun. From here to segment, WQEs of all queue pairs
//! are in one line, which holds 128 KiB. What a queue pair has of a message that was begun waits for no host; so its
//! turns do not pass that line.
//!
//! 1. A burst is requested only with room for all of its slots in the queue of slots from the host.
//! 2. Slots lie within the ring, whatever the producer index is. If it claims more than a ring beyond what was
//!    fetched, the burst reports that and has no slots, and nothing more is fetched until wqe_parse requests
//!    it.
//! 3. WQEs are fetched in RTS, in SQD while wqe_parse sends messages again, and in ERR and SQE to be
//!    flushed. In other states they wait; each change of the state makes fetch look again.
//! 4. A setup event, a resume or a rest is taken between two bursts; none waits for the outputs.
//! 5. While `enable` is low no burst and no turn begins, so what was requested drains; queue pairs keep their
//!    places in the ready queue, and doorbells are recorded (design decision 12). Three cycles after `enable`
//!    falls the last burst has been counted.
//! 6. A queue pair is chosen when there is room for a turn. One that has no rest may have to wait for the room of a
//!    burst, and is looked at again then; what is behind it waits, too. So setup events never do.
//! 7. A resume sets the index back or forth; bursts after it have its lap, so that wqe_parse tells an
//!    overrun that was found before from one that was found after. Where it asks for a single burst, nothing
//!    is fetched after that burst, as after a stop, unless it has all that was posted.
//! 8. A burst has as many slots as a quantum takes by the weight of its queue pair, two at least, so that there is
//!    a new one. What it is counted as returns from segment with its last WQE. A queue pair goes on with bursts
//!    until its turn has a quantum; if it was resumed, after one burst only, as it may be stopped again.
//! 9. A queue pair with a rest has one turn for each time that segment has said so, in any state. What it has posted
//!    besides waits for its next turn.
mod rules;

use crate::messages::{BURST_SLOTS, FetchResume, WqeBurst};
use crate::sweep::SweepStep;
use crate::weight::{CHARGE_BITS, WEIGHT_BITS, WeightWrite};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::doorbell::SendsPosted;
use rnic_messages::host::HostSpan;
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, WORK_INDEX_BITS, sizes};
use rules::{
    BurstPlan, Fetched, Look, Offers, Ring, Turn, after_burst, after_resume, burst_of, chosen_of, first_step,
    has_line_room, is_split, line_after, may_go_on, plan_burst, ring_of, room_after, span_of, step_after,
    taken_first, taken_of, turn_after,
};

/// `log2` of the slots in the queue from the host.
pub const SLOT_QUEUE_BITS: usize = 9;
/// Width of the count of these slots.
pub const SLOT_COUNT_BITS: usize = SLOT_QUEUE_BITS + 1;
/// `log2` of the units that may be in the line to segment.
pub const LINE_BITS: usize = 10;

/// State of the block.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Setup,
    Resume,
    Rest,
    Read,
    Plan,
    Emit,
    /// Requests the slots from the beginning of the ring.
    EmitWrapped,
}

/// Fetches WQEs; see the module.
#[clocked(reset = "A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
pub struct WqeFetch {
    /// From sweep: the records of a queue pair are cleared in this cycle.
    pub sweep: Signal<In, SweepStep>,
    /// From control: bursts and turns may begin.
    pub enable: Signal<In, Bit>,
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// From the doorbells: new producer index of a send queue.
    pub posted: ValidRx<SendsPosted>,
    /// From ready_queue: queue pair to look at next.
    pub from_ready_queue: StreamRx<Bits<QUEUE_PAIR_BITS>>,
    /// To ready_queue: queue pair that may have more to fetch; registered.
    pub again: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// From wqe_parse: where to continue.
    pub resume: StreamRx<FetchResume>,
    /// From segment: a queue pair has the rest of a message, and waits for a turn.
    pub rest: StreamRx<Bits<QUEUE_PAIR_BITS>>,
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
    /// To segment: the rest of a message has its turn; registered.
    pub turn: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// Bursts that were ever requested, free-running; registered.
    pub burst_count: Signal<Out, Bits<16>>,
    /// Turns that ever began, free-running; registered.
    pub turn_count: Signal<Out, Bits<16>>,
    /// Slots that were requested and have not returned; a function of registers.
    pub slots_used: Signal<Out, Bits<SLOT_COUNT_BITS>>,
    /// Units of the bursts in the line to segment; registered.
    pub line_used: Signal<Out, Bits<LINE_BITS>>,

    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    producer: Memory<Bits<WORK_INDEX_BITS>, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    rings: Memory<Ring, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    fetched: Memory<Fetched, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    weights: Memory<Bits<WEIGHT_BITS>, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    rests: Memory<Bit, QUEUE_PAIR_BITS>,
    spans: Fifo<HostSpan, 4, 5>,
    burst_queue: Fifo<WqeBurst, 6, 7>,
    // Two hide the way from segment and back. With more, those that have a rest would wait here, and others pass.
    turn_queue: Fifo<Bits<QUEUE_PAIR_BITS>, 1, 2>,
    step: Reg<Step>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    again_held: DFF<Bits<QUEUE_PAIR_BITS>>,
    has_again: Reg<Bit>,
    /// Slots that may still be requested.
    #[init(Reg::new(bits(1 << SLOT_QUEUE_BITS)))]
    room: Reg<Bits<SLOT_COUNT_BITS>>,
    line: Reg<Bits<LINE_BITS>>,
    bursts_done: Reg<Bits<16>>,
    turns_done: Reg<Bits<16>>,
    /// Turn of the queue pair that was looked at last.
    current: Reg<Turn>,
    /// There was room for a burst when the queue pair was chosen.
    has_room: DFF<Bit>,
    /// It has a rest.
    is_turn: DFF<Bit>,
    plan: DFF<BurstPlan>,
    /// Units of the planned burst; in a register, since who goes on with its turn depends on them.
    charge: DFF<Bits<CHARGE_BITS>>,
}

impl Logic for WqeFetch {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.wqe_read, &mut self.spans.tx);
        StreamTx::link(&mut self.bursts, &mut self.burst_queue.tx);
        StreamTx::link(&mut self.turn, &mut self.turn_queue.tx);
        self.burst_count.next = self.bursts_done.q.val();
        self.turn_count.next = self.turns_done.q.val();
        self.slots_used.next = bits::<SLOT_COUNT_BITS>(1 << SLOT_QUEUE_BITS) - self.room.q.val();
        self.line_used.next = self.line.q.val();
        let is_sweeping = self.sweep.val().is_sweeping;
        let sweep_index = self.sweep.val().index;
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let event = self.setup.beat.val();
        let resume = self.resume.beat.val();

        self.again.offer(self.has_again.q.val(), self.again_held.q.val());
        if self.again.ready.val() {
            self.has_again.d.next = false;
        }

        // Doorbells overwrite the producer index; only a restart writes it besides, in a cycle without a
        // doorbell.
        let posted = self.posted.value.val();
        let is_restart = step == Step::Setup && event.kind == SetupKind::Restart;
        let clears_producer = is_restart && !self.posted.valid.val();
        self.producer.write_enable.next = self.posted.valid.val() || is_sweeping || clears_producer;
        let written = select(clears_producer, queue_pair, posted.queue_pair);
        self.producer.write_address.next = select(is_sweeping, sweep_index, written);
        let is_cleared = is_sweeping || clears_producer;
        self.producer.write_data.next = select(is_cleared, bits::<WORK_INDEX_BITS>(0), posted.producer_index);

        // Setup events go first, then resumes and rests, then a queue pair: the one that goes on, if there is room for a burst, or
        // the next one, if there is room for a turn.
        let may_start = step == Step::Idle && !self.has_again.q.val() && !is_sweeping;
        let has_room = self.room.q.val() >= BURST_SLOTS
            && has_line_room(self.line.q.val())
            && self.burst_queue.rx.ready.val()
            && !self.spans.level.val().get_bits::<2>(3).any();
        let current = self.current.q.val();
        let may_look = self.enable.val() && self.turn_queue.rx.ready.val() && (has_room || !current.goes_on);
        let offers = Offers {
            setup: self.setup.valid.val(),
            resume: self.resume.valid.val(),
            rest: self.rest.valid.val(),
            next: current.goes_on || self.from_ready_queue.valid.val(),
        };
        let takes = taken_first(offers, may_start, may_look);
        self.from_ready_queue.ready.next = takes.next && !current.goes_on;
        let next = select(current.goes_on, current.queue_pair, self.from_ready_queue.beat.val());
        let chosen = chosen_of(takes, event.queue_pair, resume.queue_pair, self.rest.beat.val(), next);
        if step == Step::Idle {
            self.queue_pair.d.next = chosen;
            self.has_room.d.next = has_room;
        }
        // The producer index is read a cycle after the queue pair was chosen: what a doorbell wrote until then
        // is seen.
        self.rings.read(step == Step::Idle, chosen);
        self.fetched.read(step == Step::Idle, chosen);
        self.producer.read(step == Step::Read, queue_pair);
        let ring = self.rings.read_data.val();
        let fetched = self.fetched.read_data.val();
        let weighed = self.weight.val();
        self.weights.read(step == Step::Idle, chosen);
        self.weights.write_enable.next = weighed.valid || is_sweeping;
        self.weights.write_address.next = select(is_sweeping, sweep_index, weighed.queue_pair);
        self.weights.write_data.next = select(is_sweeping, bits::<WEIGHT_BITS>(0), weighed.weight);
        let weight = self.weights.read_data.val();
        self.rests.read(step == Step::Idle, chosen);

        // The records.
        let plan = self.plan.q.val();
        let is_turn = self.is_turn.q.val();
        let gives_turn = step == Step::Emit && is_turn;
        let is_due = step == Step::Emit && plan.is_due && !is_turn;
        let waits = is_due && !self.has_room.q.val();
        let emits = is_due && !waits;
        let reads = emits && !plan.is_overrun;
        let is_current = resume.generation == ring.generation;
        let is_taken = !is_restart || clears_producer;
        self.setup.ready.next = step == Step::Setup && is_taken;
        self.resume.ready.next = step == Step::Resume;
        self.rest.ready.next = step == Step::Rest;
        self.rests.write_enable.next = is_sweeping || step == Step::Rest || gives_turn;
        self.rests.write_address.next = select(is_sweeping, sweep_index, queue_pair);
        self.rests.write_data.next = step == Step::Rest;
        self.rings.write_enable.next = step == Step::Setup || is_sweeping;
        self.rings.write_address.next = select(is_sweeping, sweep_index, queue_pair);
        let state = select(is_sweeping, bits::<3>(QpState::Reset as u64), event.state);
        self.rings.write_data.next = Ring { state, ..ring_of(event) };
        self.fetched.write_enable.next =
            is_sweeping || emits || is_restart || (step == Step::Resume && is_current);
        self.fetched.write_address.next = select(is_sweeping, sweep_index, queue_pair);
        self.fetched.write_data.next = match step {
            Step::Resume => after_resume(fetched, resume),
            Step::Emit => after_burst(fetched, plan),
            _ => Fetched { ..Default::default() },
        };

        if step == Step::Plan {
            let planned = plan_burst(ring, fetched, self.producer.read_data.val(), weight);
            self.plan.d.next = planned;
            self.charge.d.next = taken_of(planned, weight);
            self.is_turn.d.next = self.rests.read_data.val();
        }

        // A queue pair waits for room, goes on with its turn, or returns to the ready queue if there may be something for it.
        let charge = self.charge.q.val();
        let look = Look { waits, emits, may_go_on: may_go_on(fetched, plan) };
        let turn = turn_after(current, queue_pair, charge, look);
        if step == Step::Emit {
            self.current.d.next = turn;
        }
        let has_more = reads && plan.has_more && !fetched.is_single && !turn.goes_on;
        let returns = match step {
            Step::Setup => is_taken,
            Step::Resume => is_current && resume.resumes,
            Step::Rest => true,
            Step::Emit => select(is_turn, plan.is_due, has_more),
            _ => false,
        };
        if returns {
            self.again_held.d.next = queue_pair;
            self.has_again.d.next = true;
        }
        let first = first_step(takes, offers.next);
        self.step.d.next = step_after(step, first, is_taken, reads && is_split(plan));
        self.turn_queue.rx.offer(gives_turn, queue_pair);
        if gives_turn {
            self.turns_done.d.next = self.turns_done.q.val() + 1;
        }

        // The burst.
        self.burst_queue.rx.offer(emits, burst_of(queue_pair, ring, fetched, plan, weight, charge));
        self.spans.rx.valid.next = reads || step == Step::EmitWrapped;
        self.spans.rx.beat.next = span_of(step == Step::EmitWrapped, ring.base_page, plan);
        if emits {
            self.bursts_done.d.next = self.bursts_done.q.val() + 1;
        }
        self.room.d.next = room_after(self.room.q.val(), reads, plan.count, self.slot_returned.val());
        let entered = select(emits, charge, bits::<CHARGE_BITS>(0));
        self.line.d.next = line_after(self.line.q.val(), entered, self.charge_returned.val());
    }
}

#[cfg(test)]
mod tests;
