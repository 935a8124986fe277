//! Segment: makes packets of messages, and gives each queue pair its share of the wire.
//!
//! A message of up to 2 GiB is one WQE, and its packets would delay all other queue pairs. So a long one is
//! segmented in quanta of 16 KiB: the first one when its WQE comes; then what is left of it is a record, and its queue
//! pair returns to the ready queue of all queue pairs. For each of its turns there wqe_fetch sends it back here.
//!
//! ```text
//!                 ┌──────────────────────────────────────────────────────┐
//!  setup ────────>│ state, generation                                    │
//!  checked ──────>│─┬─> message ──> parts ──> packet ────────────────────┼──> packet (16 deep)
//!  listed_sges ──>│─│─> list ─┘      ^        │ └───────────────────────┼──> access_request (8 deep), sge_parts
//!  retired ──────>│ │                │        │ what is left            │
//!  turn ─────────>│─┴──> record ─────┴────────┴─────────────────────────┼──> rest (wqe_fetch)
//!                 │        └─────────────────────────────────────────────┼──> wake (wqe_parse)
//!                 └──────────────────────────────────────────────────────┘
//!  step     Idle  Load (Fill)        Plan  Make (Second, Listed)  Store
//! ```
//!
//! A message of one packet takes 3 cycles, 4 with two access requests, 14 with six. A packet of a longer one
//! takes 2 cycles, and one more for each access request after the first; 3 more cycles begin and end a quantum,
//! and a list of SGEs takes one for each when it begins. The way of a rest through the ready queue takes about 20.
//!
//! 1. WQEs leave in order, and packets of a message in the order of their PSNs. The next message of a queue
//!    pair begins when all packets of the one before it have been made.
//! 2. Exactly `request_count` access requests leave for each packet, in its order: one for each SGE that it
//!    takes bytes of. So a key that is invalidated in the middle of a message stops it there. Of a list of more
//!    than two SGEs, those after the first one in the packet are not counted, but leave on `sge_parts`.
//! 3. FIRST and MIDDLE have PMTU bytes. FIRST and ONLY have a RETH, with the length of the message; LAST and
//!    ONLY have ImmDt, IETH and SE. AckReq is set where the WQE asks for it, in its last packet, and in every
//!    32nd one (protocol 2.2, 2.4).
//! 4. While both have something to do, a turn comes after WQEs have had a quantum, in bytes as they are on the
//!    wire. So neither waits for many of the other; how often each comes is up to wqe_fetch.
//! 5. A turn begins with fewer than 2^15 packets of its queue pair in flight; else the queue pair waits for its
//!    next one.
//! 6. In any state but RTS and SQD, and for another generation, no packet is made: what is left of a message is
//!    dropped with the event, also in the middle of a quantum, and WQEs become flushed ones.
//! 7. Setup events are taken within 4 cycles, whatever the outputs do; within 10 where there are lists.
//! 8. WqeParse is woken once for each message that it waits for, most of which are long: when its last turn
//!    begins, or 32 KiB before its end if no other queue pair has a rest and half of the window is open.
//! 9. A WQE whose queue pair has the rest of a message does not wait, as nobody behind it could go on: the rest goes
//!    before it, a quantum and then another. After rule 8 that is all of it, and it waits for no response.
//! 10. What is left of a long message when the cursor of its queue pair goes back is dropped: it is of an
//!     older epoch. A message that is sent again may begin in its middle, with MIDDLE or LAST and without
//!     a RETH (protocol 2.8). A READ has a RETH always, for what is left of it.
//! 11. A READ is one packet without payload, and its SGEs are checked as a whole for local write. What its
//!     responses need leaves on `read` with it, once.
//! 12. A LOCAL_INVALIDATE is no packet, and leaves with key and protection domain.
//! 13. Each turn ends in a packet with `ends_turn`; one that can send nothing is an empty packet. A queue pair has one
//!     turn under way, or waits for one, from the first quantum of a long message on; also if that was dropped.
use crate::messages::{CheckedWqe, Packet, QUANTUM_BITS, ReadRecord, RetiredWrite, Sge, SgePart};
use crate::sweep::SweepStep;
use crate::weight::CHARGE_BITS;
use begin::{
    Acknowledged, Life, Rest, Work, acknowledged_of, admit, after_event, after_fill, begin_work, current,
    dropped, drops, first_step, resumed_after, serves, step_after_fill, step_after_load, stored, takes_turn,
    waiting_after, window_of,
};
use packet::{
    Taken, access_of, after_listed, after_packet, after_second, ends_list, is_new_read, is_used_up,
    listed_part, listed_place, next_parts, packet_of, read_record_of, requests_of, share_next,
    step_after_make, step_after_packet, taken_of,
};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::protect::AccessRequest;
use rnic_messages::setup::SetupEvent;
use rnic_messages::sizes::{QUEUE_PAIR_BITS, READ_POOL_BITS, sizes};
use rnic_messages::transmit::WIRE_UNIT_LOG2;

mod begin;
mod packet;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) const READY_COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;
const QUANTUM: u64 = 1 << QUANTUM_BITS;
/// `log2` of the units of a quantum.
const QUANTUM_UNITS_LOG2: usize = QUANTUM_BITS - WIRE_UNIT_LOG2;
/// Width of units of the wire, up to a quantum and a packet.
const SHARE_BITS: usize = QUANTUM_UNITS_LOG2 + 1;
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
#[clocked(reset = "A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Segment {
    /// From sweep: the records of a queue pair are cleared in this cycle.
    pub sweep: Signal<In, SweepStep>,
    /// From control; wqe_parse must have taken the event before.
    pub setup: StreamRx<SetupEvent>,
    /// From wqe_check.
    pub checked: StreamRx<CheckedWqe>,
    /// From wqe_fetch: a queue pair with a rest has its turn.
    pub turn: StreamRx<Bits<QUEUE_PAIR_BITS>>,
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
    pub read: ValidTx<ReadRecord>,
    /// Its place in the pool of READ slots.
    pub read_place: Signal<Out, Bits<READ_POOL_BITS>>,
    /// To wqe_parse: the WQE after a long message may come; registered.
    pub wake: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// To wqe_fetch: a queue pair has the rest of a message, and waits for a turn; registered.
    pub rest: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// To wqe_fetch: units of a burst whose last WQE has left; registered.
    pub charge_returned: Signal<Out, Bits<CHARGE_BITS>>,
    /// Queue pairs that wait for a turn; registered.
    pub waiting: Signal<Out, Bits<READY_COUNT_BITS>>,

    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    lives: Memory<Life, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    rests: Memory<Rest, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    acknowledged: Memory<Acknowledged, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Ultra).with_words_log2(sizes().queue_pairs + LISTED_BITS))]
    lists: Memory<Sge, LISTED_PLACE_BITS>,
    rest_queue: Fifo<Bits<QUEUE_PAIR_BITS>, 1, 2>,
    packets: Fifo<Packet, 4, 5>,
    part_queue: Fifo<SgePart, 4, 5>,
    requests: Fifo<AccessRequest, 3, 4>,
    wakes: Fifo<Bits<QUEUE_PAIR_BITS>, 2, 3>,
    step: Reg<Step>,
    /// State to continue in after an event.
    resume: DFF<Step>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    /// A turn is served, and no WQE.
    is_turn: DFF<Bit>,
    /// The rest of a message goes on, in a turn or since a WQE is behind it.
    is_rest: DFF<Bit>,
    work: DFF<Work>,
    /// What WQEs have had of the wire since the last turn.
    share: Reg<Bits<SHARE_BITS>>,
    waiting_count: Reg<Bits<READY_COUNT_BITS>>,
    returned: Reg<Bits<CHARGE_BITS>>,
}

impl Logic for Segment {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.packet, &mut self.packets.tx);
        StreamTx::link(&mut self.sge_parts, &mut self.part_queue.tx);
        StreamTx::link(&mut self.access_request, &mut self.requests.tx);
        StreamTx::link(&mut self.wake, &mut self.wakes.tx);
        StreamTx::link(&mut self.rest, &mut self.rest_queue.tx);
        self.charge_returned.next = self.returned.q.val();
        self.waiting.next = self.waiting_count.q.val();
        let is_sweeping = self.sweep.val().is_sweeping;
        let sweep_index = self.sweep.val().index;
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let event = self.setup.beat.val();
        let has_event = self.setup.valid.val();
        let wqe = self.checked.beat.val();
        let work = self.work.q.val();
        let (message, parts) = (work.message, work.parts);
        let is_turn = self.is_turn.q.val();
        let is_rest = self.is_rest.q.val();

        // WQEs and turns alternate.
        let has_wqe = self.checked.valid.val();
        let chooses_turn = takes_turn(self.turn.valid.val(), has_wqe, self.share.q.val());
        let chosen = select(chooses_turn, self.turn.beat.val(), wqe.header.queue_pair);
        let may_start = self.wakes.rx.ready.val() && self.rest_queue.rx.ready.val() && !is_sweeping;
        let first = first_step(has_event && !is_sweeping, (chooses_turn || has_wqe) && may_start);
        if step == Step::Idle {
            self.queue_pair.d.next = chosen;
            self.is_turn.d.next = chooses_turn;
            self.is_rest.d.next = chooses_turn;
        }

        // The records. For an event, they are read in one cycle and written in the next.
        let is_setup = step == Step::Setup;
        self.setup.ready.next = is_setup;
        self.lives.read(step == Step::Idle, chosen);
        self.lives.write_enable.next = is_sweeping || is_setup;
        self.lives.write_address.next = select(is_sweeping, sweep_index, event.queue_pair);
        self.lives.write_data.next =
            Life { serves: serves(event.state) && !is_sweeping, generation: event.generation };
        self.rests.read_enable.next = step == Step::Idle || step == Step::Event;
        self.rests.read_address.next = select(step == Step::Event, event.queue_pair, chosen);
        self.acknowledged.read(step == Step::Idle, chosen);
        self.acknowledged.write_enable.next = self.retired.val().valid || is_sweeping;
        self.acknowledged.write_address.next =
            select(is_sweeping, sweep_index, self.retired.val().queue_pair);
        self.acknowledged.write_data.next = acknowledged_of(is_sweeping, self.retired.val().retired);
        let acknowledged = self.acknowledged.read_data.val();
        let rest = current(self.rests.read_data.val(), acknowledged.epoch);

        // The message, and whether it may begin. A WQE lets the rest of the message before it go first.
        let loads_turn = step == Step::Load && is_turn;
        let first_psn = select(is_rest, rest.psn, wqe.plan.first_psn);
        let window = window_of(first_psn, acknowledged.una_psn);
        let is_alone = self.waiting_count.q.val() == bit_cast::<READY_COUNT_BITS, 1>(is_rest.into());
        let admission =
            admit(is_rest, wqe, self.lives.read_data.val(), rest, window, is_alone, acknowledged.epoch);
        if step == Step::Load && admission.waits {
            self.is_rest.d.next = true;
        }
        self.wakes.rx.offer(step == Step::Load && admission.wakes, queue_pair);
        self.turn.ready.next = loads_turn;

        // Its list.
        let fills = step == Step::Fill && self.listed_sges.valid.val();
        self.listed_sges.ready.next = step == Step::Fill;
        self.lists.write(fills, cat!(queue_pair, work.rest.listed_index), self.listed_sges.beat.val());
        self.lists.read(true, cat!(queue_pair, listed_place(step, work.rest.listed_index)));
        let listed = self.lists.read_data.val();

        // The packet.
        let requests = requests_of(work);
        let is_listed = work.rest.listed.any();
        let requests_max = select(is_listed, bits::<4>(REQUESTS_LISTED_MAX), bits::<4>(REQUESTS_MAX));
        let has_room = self.packets.rx.ready.val()
            && self.requests.level.val() <= requests_max
            && !self.part_queue.level.val().get_bits::<2>(3).any();
        let makes = step == Step::Make && has_room && !has_event;
        let has_ended = (message.sends_nothing && !message.is_put_off) || parts.is_last;
        let ends = has_ended || message.is_put_off || work.packets_left == 1;
        let takes = makes && message.starts;
        self.checked.ready.next = takes;
        self.returned.d.next =
            select(takes && wqe.header.ends_burst, wqe.plan.charge, bits::<CHARGE_BITS>(0));
        self.packets.rx.offer(makes, packet_of(queue_pair, is_turn, ends, wqe, work, requests));
        self.read_place.next = wqe.plan.read_place;
        self.read.offer(makes && is_new_read(work), read_record_of(work.rest, message.is_atomic));
        self.share.d.next = share_next(loads_turn, makes && !is_turn, self.share.q.val(), work);

        // Its access requests, the second one a cycle later, those of a list one after the other.
        let taken: Taken = taken_of(step, work, listed);
        let asks_list = step == Step::Listed && parts.second.any();
        self.part_queue.rx.offer(asks_list, listed_part(taken, parts.second));
        self.requests.rx.valid.next = (makes && requests.has_first) || step == Step::Second || asks_list;
        self.requests.rx.beat.next = access_of(taken, work.rest.domain, message.is_read);

        // What follows. A list continues in this packet, or has the first SGE of the next one.
        let walks = makes && is_listed && is_used_up(taken) && !message.sends_nothing;
        let ends_listed = ends_list(listed.length, parts.second, work.rest.listed);
        let after = step_after_packet(has_ended, is_rest, ends);
        self.resume.d.next = resumed_after(step, self.resume.q.val());
        self.step.d.next = match step {
            Step::Idle => first,
            Step::Event => Step::Setup,
            Step::Setup => self.resume.q.val(),
            Step::Load => step_after_load(is_turn, is_rest, wqe.listed_count.any(), admission),
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
            Step::Load => begin_work(is_turn, is_rest, wqe, rest, admission),
            Step::Setup => select(is_dropped, dropped(work), work),
            Step::Fill => select(fills, after_fill(work), work),
            Step::Plan => Work { parts: next_parts(work.rest), ..work },
            Step::Make => select(makes, after_packet(work, taken, requests.has_second, walks), work),
            Step::Second => after_second(work, taken),
            Step::Listed => after_listed(work, taken, ends_listed),
            _ => work,
        };

        // What is left waits for its turn, unless the queue pair waits already.
        let stores = step == Step::Store;
        let waits = stores && !has_ended && !message.was_queued;
        self.rest_queue.rx.offer(waits, queue_pair);
        self.waiting_count.d.next = waiting_after(self.waiting_count.q.val(), waits, loads_turn);
        self.rests.write_enable.next = is_sweeping || is_setup || (stores && !message.is_put_off);
        let index = select(is_setup, event.queue_pair, queue_pair);
        self.rests.write_address.next = select(is_sweeping, sweep_index, index);
        self.rests.write_data.next = match step {
            Step::Store => stored(work.rest, has_ended, message.was_queued),
            Step::Setup => after_event(self.rests.read_data.val(), event),
            _ => Rest { ..Default::default() },
        };
    }
}
