//! Segment: makes packets of messages, and gives each queue pair its share of the wire.
//!
//! A message of up to 2 GiB is one WQE, and its packets would delay all other queue pairs. So a long one is
//! segmented in quanta of 16 KiB; what is left of it is a record, and its queue pair is in a ready queue. New
//! WQEs and turns of the ready queue alternate.
//!
//! ```text
//!                 ┌──────────────────────────────────────────────────────┐
//!  setup ────────>│ state, generation                                    │
//!  checked ──────>│─┬─> message ──> parts ──> packet ────────────────────┼──> packet (16 deep)
//!  listed_sges ──>│─│─> list ─┘      ^        │ └───────────────────────┼──> access_request (8 deep), sge_parts
//!  retired ──────>│ │    turn        │        │ what is left            │
//!                 │ │      └ record <─ queue <┘                          │
//!                 │ └────────────────────────────────────────────────────┼──> wake (wqe_parse)
//!                 └──────────────────────────────────────────────────────┘
//!  step     Idle  Load (Fill)        Plan  Make (Second, Listed)  Store
//! ```
//!
//! A message of one packet takes 3 cycles, 4 with two access requests, 14 with six. A packet of a longer one
//! takes 2 cycles, and one more for each access request after the first; 3 more cycles begin and end a quantum,
//! and a list of SGEs takes one for each when it begins. Measured: 2.50 cycles a packet in messages of 4
//! packets, 2.12 in those of 16, 2.25 in those of 512. 2,558 LUTs with those used as memory, 1,251 FF, 27
//! RAMB18, 4 UltraRAMs, depth 11.
//!
//! 1. WQEs leave in order, and packets of a message in the order of their PSNs. The next message of a queue
//!    pair begins when all packets of the one before it have been made.
//! 2. Exactly `request_count` access requests leave for each packet, in its order: one for each SGE that it
//!    takes bytes of. So a key that is invalidated in the middle of a message stops it there. Of a list of more
//!    than two SGEs, those after the first one in the packet are not counted, but leave on `sge_parts`.
//! 3. FIRST and MIDDLE have PMTU bytes. FIRST and ONLY have a RETH, with the length of the message; LAST and
//!    ONLY have ImmDt, IETH and SE. AckReq is set where the WQE asks for it, in its last packet, and in every
//!    32nd one (protocol 2.2, 2.4).
//! 4. While both have something to do, the ready queue gets a quantum after WQEs have had theirs, a packet
//!    counted as 64 bytes more than its payload; queue pairs in the ready queue get theirs one after the other.
//! 5. A turn begins with fewer than 2^15 packets of its queue pair in flight; else the queue pair goes to the
//!    end of the ready queue.
//! 6. In any state but RTS and SQD, and for another generation, no packet is made: what is left of a message is
//!    dropped with the event, also in the middle of a quantum, and WQEs become flushed ones.
//! 7. Setup events are taken within 4 cycles, whatever the outputs do; within 10 where there are lists.
//! 8. WqeParse is woken once for each message that it waits for, most of which are long: when its last turn
//!    begins, or 32 KiB before its end if no other queue pair is in the ready queue and half of the window is
//!    open. So a queue pair that is woken waits for no response.
//! 9. While `enable` is low, the ready queue waits, unless a new WQE waits for it.
//! 10. What is left of a long message when the cursor of its queue pair goes back is dropped: it is of an
//!     older epoch. A message that is sent again may begin in its middle, with MIDDLE or LAST and without
//!     a RETH (protocol 2.8). A READ has a RETH always, for what is left of it.
//! 11. A READ is one packet without payload, and its SGEs are checked as a whole for local write. What its
//!     responses need leaves on `read` with it, once.
//! 12. A LOCAL_INVALIDATE is no packet, and leaves with key and protection domain.
//!
//! `turn_count` counts turns that have made a packet, before their first one; `ends_turn` is set in the last.
use crate::messages::{CheckedWqe, Packet, QUANTUM_BITS, ReadRecord, RetiredWrite, Sge, SgePart};
use crate::sweep::SweepStep;
use crate::weight::CHARGE_BITS;
use begin::{
    Acknowledged, Life, Rest, Work, acknowledged_of, admit, after_event, after_fill, begin_work,
    blocked_after, current, dropped, drops, first_step, nothing_of, resumed_after, serves, step_after_fill,
    step_after_load, stored, takes_turn, window_of,
};
use packet::{
    Taken, access_of, after_listed, after_packet, after_second, ends_list, is_new_read, is_used_up,
    listed_part, listed_place, next_parts, packet_of, read_record_of, requests_of, share_next,
    step_after_make, step_after_packet, taken_of,
};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::protect::AccessRequest;
use rnic_messages::read::READ_SLOT_BITS;
use rnic_messages::setup::SetupEvent;
use rnic_messages::sizes::QUEUE_PAIR_BITS;

mod begin;
mod packet;
#[cfg(test)]
pub(crate) mod tests;

/// Width of the index of a [`ReadRecord`]: its queue pair, and its slot.
pub const READ_INDEX_BITS: usize = QUEUE_PAIR_BITS + READ_SLOT_BITS;
pub(crate) const READY_COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;
const QUANTUM: u64 = 1 << QUANTUM_BITS;
/// Most access requests in the queue when a packet is made; it adds two, and the queue holds eight.
const REQUESTS_MAX: u64 = 6;
/// The same for a packet from a list, which adds six.
const REQUESTS_LISTED_MAX: u64 = 2;
/// `log2` of the SGEs that are kept of a list for each queue pair.
const LISTED_BITS: usize = 3;
const LISTED_PLACE_BITS: usize = QUEUE_PAIR_BITS + LISTED_BITS;

/// State of the block.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Event,
    Setup,
    Load,
    Fill,
    Plan,
    Make,
    Second,
    Listed,
    Store,
}

/// Makes packets; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub struct Segment {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// From sweep: the records of a queue pair are cleared in this cycle.
    pub sweep: Signal<In, SweepStep>,
    /// From control: messages and turns may begin.
    pub enable: Signal<In, Bit>,
    /// From control; wqe_parse must have taken the event before.
    pub setup: StreamRx<SetupEvent>,
    /// From wqe_check.
    pub checked: StreamRx<CheckedWqe>,
    /// From wqe_check: SGEs of lists, before their WQE.
    pub listed_sges: StreamRx<Sge>,
    /// From acknowledge: acknowledged PSN.
    pub retired: Signal<In, RetiredWrite>,
    /// To issue; registered.
    pub packet: StreamTx<Packet>,
    /// To issue: what the access requests after the first one of a list are for; registered.
    pub sge_parts: StreamTx<SgePart>,
    /// To the region table; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// To read_response: a READ or an atomic.
    pub read: Signal<Out, ReadRecord>,
    /// Queue pair and slot of `read`.
    pub read_index: Signal<Out, Bits<READ_INDEX_BITS>>,
    /// `read` is valid and is written.
    pub read_valid: Signal<Out, Bit>,
    /// To wqe_parse: the WQE after a long message may come; registered.
    pub wake: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// To wqe_fetch: units of a burst whose last WQE has left; registered.
    pub charge_returned: Signal<Out, Bits<CHARGE_BITS>>,
    /// Turns ever begun, free-running; registered.
    pub turn_count: Signal<Out, Bits<16>>,
    /// Queue pairs that wait for a turn of their long message; registered.
    pub waiting: Signal<Out, Bits<READY_COUNT_BITS>>,

    lives: Memory<Life, QUEUE_PAIR_BITS>,
    rests: Memory<Rest, QUEUE_PAIR_BITS>,
    acknowledged: Memory<Acknowledged, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Ultra))]
    lists: Memory<Sge, LISTED_PLACE_BITS>,
    ready_queue: Fifo<Bits<QUEUE_PAIR_BITS>, QUEUE_PAIR_BITS, READY_COUNT_BITS>,
    packets: Fifo<Packet, 4, 5>,
    part_queue: Fifo<SgePart, 4, 5>,
    requests: Fifo<AccessRequest, 3, 4>,
    wakes: Fifo<Bits<QUEUE_PAIR_BITS>, 2, 3>,
    step: Reg<Step>,
    /// State to continue in after an event.
    resume: DFF<Step>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    /// The message comes from the ready queue.
    is_turn: DFF<Bit>,
    work: DFF<Work>,
    /// The WQE at the input waits for the ready queue.
    is_blocked: Reg<Bit>,
    /// Bytes of packets of WQEs since the last turn, in units of 64.
    share: Reg<Bits<9>>,
    turns_begun: Reg<Bits<16>>,
    returned: Reg<Bits<CHARGE_BITS>>,
}

impl Logic for Segment {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<Packet>::link(&mut self.packet, &mut self.packets.tx);
        StreamTx::<SgePart>::link(&mut self.sge_parts, &mut self.part_queue.tx);
        StreamTx::<AccessRequest>::link(&mut self.access_request, &mut self.requests.tx);
        StreamTx::<Bits<QUEUE_PAIR_BITS>>::link(&mut self.wake, &mut self.wakes.tx);
        self.turn_count.next = self.turns_begun.q.val();
        self.charge_returned.next = self.returned.q.val();
        self.waiting.next = self.ready_queue.level.val();
        let is_sweeping = self.sweep.val().is_sweeping;
        let sweep_index = self.sweep.val().index;
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let event = self.setup.beat.val();
        let has_event = self.setup.valid.val();
        let wqe = self.checked.beat.val();
        let work = self.work.q.val();
        let message = work.message;
        let parts = work.parts;
        let is_turn = self.is_turn.q.val();
        let is_blocked = self.is_blocked.q.val();

        // WQEs and the ready queue alternate.
        let has_wqe = self.checked.valid.val() && !is_blocked;
        let has_turn = self.ready_queue.tx.valid.val() && (self.enable.val() || is_blocked);
        let chooses_turn = takes_turn(has_turn, has_wqe, self.share.q.val());
        let chosen = select(chooses_turn, self.ready_queue.tx.beat.val(), wqe.header.queue_pair);
        let may_start = self.wakes.rx.ready.val() && !is_sweeping;
        let first = first_step(has_event && !is_sweeping, (chooses_turn || has_wqe) && may_start);
        if step == Step::Idle {
            self.queue_pair.d.next = chosen;
            self.is_turn.d.next = chooses_turn;
        }

        // The records. For an event, they are read in one cycle and written in the next.
        let is_setup = step == Step::Setup;
        self.setup.ready.next = is_setup;
        self.lives.read_enable.next = step == Step::Idle;
        self.lives.read_address.next = chosen;
        self.lives.write_enable.next = is_sweeping || is_setup;
        self.lives.write_address.next = select(is_sweeping, sweep_index, event.queue_pair);
        self.lives.write_data.next =
            Life { serves: serves(event.state) && !is_sweeping, generation: event.generation };
        self.rests.read_enable.next = step == Step::Idle || step == Step::Event;
        self.rests.read_address.next = select(step == Step::Event, event.queue_pair, chosen);
        self.acknowledged.read_enable.next = step == Step::Idle;
        self.acknowledged.read_address.next = chosen;
        self.acknowledged.write_enable.next = self.retired.val().valid || is_sweeping;
        self.acknowledged.write_address.next =
            select(is_sweeping, sweep_index, self.retired.val().queue_pair);
        self.acknowledged.write_data.next = acknowledged_of(is_sweeping, self.retired.val().retired);
        let acknowledged = self.acknowledged.read_data.val();
        let rest = current(self.rests.read_data.val(), acknowledged.epoch);

        // The message, and whether it may begin. A turn has not left the ready queue yet.
        let loads_turn = step == Step::Load && is_turn;
        let first_psn = select(is_turn, rest.psn, wqe.plan.first_psn);
        let window = window_of(first_psn, acknowledged.una_psn);
        let is_alone = self.ready_queue.level.val() == bit_cast::<READY_COUNT_BITS, 1>(is_turn.into());
        let admission =
            admit(is_turn, wqe, self.lives.read_data.val(), rest, window, is_alone, acknowledged.epoch);
        self.wakes.rx.valid.next = step == Step::Load && admission.wakes;
        self.wakes.rx.beat.next = queue_pair;
        self.ready_queue.tx.ready.next = loads_turn;
        self.is_blocked.d.next = blocked_after(step, is_blocked, admission.waits);
        if loads_turn && admission.begins_turn {
            self.turns_begun.d.next = self.turns_begun.q.val() + 1;
        }

        // Its list.
        let fills = step == Step::Fill && self.listed_sges.valid.val();
        self.listed_sges.ready.next = step == Step::Fill;
        self.lists.write_enable.next = fills;
        self.lists.write_address.next = cat!(queue_pair, work.rest.listed_index);
        self.lists.write_data.next = self.listed_sges.beat.val();
        self.lists.read_enable.next = true;
        self.lists.read_address.next = cat!(queue_pair, listed_place(step, work.rest.listed_index));
        let listed = self.lists.read_data.val();

        // The packet.
        let requests = requests_of(work);
        let is_listed = work.rest.listed.any();
        let requests_max = select(is_listed, bits::<4>(REQUESTS_LISTED_MAX), bits::<4>(REQUESTS_MAX));
        let has_room = self.packets.rx.ready.val()
            && self.requests.level.val() <= requests_max
            && !self.part_queue.level.val().get_bits::<2>(3).any();
        let makes = step == Step::Make && has_room && !has_event;
        let has_ended = message.sends_nothing || parts.is_last;
        let ends = has_ended || work.packets_left == 1;
        let takes = makes && message.starts;
        self.checked.ready.next = takes;
        self.returned.d.next =
            select(takes && wqe.header.ends_burst, wqe.plan.charge, bits::<CHARGE_BITS>(0));
        self.packets.rx.valid.next = makes;
        self.packets.rx.beat.next = packet_of(queue_pair, is_turn, ends, wqe, work, requests);
        self.read.next = read_record_of(work.rest, message.is_atomic);
        self.read_index.next = cat!(queue_pair, wqe.plan.read_slot);
        self.read_valid.next = makes && is_new_read(work);
        self.share.d.next = share_next(loads_turn, makes && !is_turn, self.share.q.val(), work);

        // Its access requests, the second one a cycle later, those of a list one after the other.
        let taken: Taken = taken_of(step, work, listed);
        let asks_list = step == Step::Listed && parts.second.any();
        self.part_queue.rx.valid.next = asks_list;
        self.part_queue.rx.beat.next = listed_part(taken, parts.second);
        self.requests.rx.valid.next = (makes && requests.has_first) || step == Step::Second || asks_list;
        self.requests.rx.beat.next = access_of(taken, work.rest.domain, message.is_read);

        // What follows. A list continues in this packet, or has the first SGE of the next one.
        let walks = makes && is_listed && is_used_up(taken) && !message.sends_nothing;
        let ends_listed = ends_list(listed.length, parts.second, work.rest.listed);
        let after = step_after_packet(has_ended, is_turn, ends);
        self.resume.d.next = resumed_after(step, self.resume.q.val());
        self.step.d.next = match step {
            Step::Idle => first,
            Step::Event => Step::Setup,
            Step::Setup => self.resume.q.val(),
            Step::Load => step_after_load(is_turn, rest.exists, window, wqe.listed_count.any(), admission),
            Step::Fill => select(fills, step_after_fill(work), Step::Fill),
            Step::Plan => Step::Make,
            Step::Make if has_event => Step::Event,
            Step::Make => select(makes, step_after_make(requests.has_second, walks, after), Step::Make),
            Step::Second => after,
            Step::Listed => select(ends_listed, after, Step::Listed),
            Step::Store => Step::Idle,
        };
        let is_dropped = drops(event) && event.queue_pair == queue_pair;
        self.work.d.next = match step {
            Step::Load => begin_work(is_turn, wqe, rest, admission),
            Step::Setup => select(is_dropped, dropped(work), work),
            Step::Fill => select(fills, after_fill(work), work),
            Step::Plan => Work { parts: next_parts(work.rest), ..work },
            Step::Make => select(makes, after_packet(work, taken, requests.has_second, walks), work),
            Step::Second => after_second(work, taken),
            Step::Listed => after_listed(work, taken, ends_listed),
            _ => work,
        };

        // What is left waits for its turn.
        let stores = step == Step::Store;
        self.ready_queue.rx.valid.next = stores && !has_ended && !message.was_queued;
        self.ready_queue.rx.beat.next = queue_pair;
        self.rests.write_enable.next = is_sweeping || is_setup || stores || (loads_turn && !rest.exists);
        let index = select(is_setup, event.queue_pair, queue_pair);
        self.rests.write_address.next = select(is_sweeping, sweep_index, index);
        self.rests.write_data.next = match step {
            Step::Store => stored(work.rest, has_ended),
            Step::Setup => after_event(self.rests.read_data.val(), event),
            _ => nothing_of(rest),
        };
    }
}
