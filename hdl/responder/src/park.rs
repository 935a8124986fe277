//! Park: packets that must wait are kept with their receive ring, and those of other rings pass.
//!
//! Admission has fixed the order of the packets of a queue pair. A packet whose receive WQE is not on the card would hold
//! all packets after it for a read of the host, a microsecond. Here it waits in the list of its ring, and behind it all later
//! packets of that ring; when a read of the ring has arrived, the list is emptied in turn with new packets.
//!
//! A list is that of a receive ring: of a queue pair, or of an SRQ with all its queue pairs, so that its WQEs are given in
//! the order in which packets arrive.
//!
//! ```text
//!             free (512 entries) <──────────────────────────────────────────┐
//!               v                                                           │
//!  admitted ──┬─> tokens, operands, asks [entry] ──────────────────────┐    │
//!             ├─> order (32) ──> event ──> Read ──> Act ──────────────┴─> pass ──> scatter
//!             └─> request ──> rq_prefetch ──> answer ─────────────────^ │
//!                   ^                         ^                         ├──> append: links[tail] = entry
//!  (drain) ─────────┴── turns (1,024) ──> event    lists (one word a    └──> turns
//!                                             ^         receive ring)
//!  wakes ──> TurnQueue ──────────────────────>┘
//! ```
//!
//! Every packet is written once, into an entry of `tokens`, and read once, when it passes: what is parked is not moved. What
//! follows the order of all packets travels beside the entries: `order` has the entries in the order in which packets came,
//! those of packets that were parked among them when they are tried again; a packet that takes a WQE asks for it in that
//! order, and is looked at when it is answered.
//!
//! | Event | Does |
//! |---|---|
//! | a packet leaves `order` | It passes, or is parked: because its WQE is absent, or because its list is not empty. One that was parked passes if it is the oldest of its list and has its WQE; else it stays where it is |
//! | a ring has its turn | The next packet of its list enters `order`, and the ring another turn, up to the end of the list |
//! | a read of a ring has completed | Its list is tried again from the oldest packet on, if it was tried in vain |
//!
//! A list is tried by one *pass* of turns at a time. If the oldest packet finds its WQE absent, the pass ends; what of it is in
//! `order` already stays parked. The list is tried again when a read of its ring has completed, at once if that was since its
//! last pass began. So no read is missed, whenever it completes.
//!
//! Latency 3 cycles from `admitted` to `passed`, and with a receive WQE 9. One event a cycle, so three cycles for a packet that is
//! parked, four where one list alone is emptied, and one for every other packet: scatter takes one in three.
//!
//! 1. Packets of a ring pass in the order of `admitted`, each once, whatever waits.
//! 2. A packet that takes a WQE passes with the answer to its own request; the answers to others are dropped, and were
//!    without a WQE (rule 3 of `WqeGrant`).
//! 3. An entry is free, or holds one packet. None is lost.
//! 4. Nothing here waits for a packet that is parked: `admitted` waits for a free entry and for `order` only, and events for scatter.
//! 5. A list whose oldest packet waits is tried again after every read and every restart of its ring; so packets of a
//!    generation that has ended leave, answered as stale.
//!
//! Hazards: an event reads the record of its list in the cycle in which the one before it may write it, and so the links; both are
//! taken from the write then. `WqeGrant` may see a list one cycle late: one that has become empty delays a packet
//! by a pass, and one that was begun is known to it, since it gave the answer for which it was.
//!
//! Reset sweeps the records of all rings and frees all entries, in 2,048 cycles. Protocol 3.7, 4.5; design decision 3.
use crate::messages::{
    ANSWER_COUNT_BITS, Admission, Admitted, AtomicOperands, ListWrite, ReceiveWqe, ReceiveWqeRequest,
};
use list::{ENTRY_BITS, Event, List, Ordered, RING_BITS, Turn, action_of};
use list::{event_of_packet, event_of_turn, event_of_wake};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, TurnQueue};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::GENERATION_BITS;

mod list;
#[cfg(test)]
mod tests;

/// log2 of the packets whose answer is awaited.
const ORDER: usize = 5;
const ORDER_COUNT: usize = ORDER + 1;
/// log2 of the atomics between here and resolve: more than the stages between can hold.
const ATOMICS: usize = 6;

/// What a packet that is parked asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Ask {
    takes_wqe: Bit,
    generation: Bits<GENERATION_BITS>,
}

/// A link that was written in the cycle in which that of the event was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct NewLink {
    from: Bits<ENTRY_BITS>,
    to: Bits<ENTRY_BITS>,
}

/// Parks packets; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub struct Park {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all packets.
    pub reset: Signal<In, Bit>,
    /// From admission; `ready` is a function of registers, and once high it stays so for three cycles without a packet.
    pub admitted: StreamRx<Admission>,
    /// To the prefetch: requests for receive WQEs; registered.
    pub request: StreamTx<ReceiveWqeRequest>,
    /// From the prefetch: its answers, in the order of the requests; `ready` is combinational.
    pub answer: StreamRx<ReceiveWqe>,
    /// From the prefetch: answers at `answer`.
    pub answer_count: Signal<In, Bits<ANSWER_COUNT_BITS>>,
    /// To the prefetch: packets of a ring enter or leave its list; combinational from `passed.ready`.
    pub list_write: Signal<Out, ListWrite>,
    /// From the prefetch: a read of `woken` has completed, or the ring has restarted.
    pub wakes: Signal<In, Bit>,
    /// A receive ring.
    pub woken: Signal<In, Bits<RING_BITS>>,
    /// To scatter; a function of the memory and, of `answer`, whether it is absent.
    pub passed: StreamTx<Admitted>,
    /// To scatter: the WQE of `passed`, if that takes one.
    pub wqe: StreamTx<ReceiveWqe>,
    /// To resolve: operands of atomics, in the order of `passed`; registered.
    pub operands: StreamTx<AtomicOperands>,

    #[init(Memory::new(Storage::Block))]
    tokens: Memory<Admitted, ENTRY_BITS>,
    #[init(Memory::new(Storage::Block))]
    parked_operands: Memory<AtomicOperands, ENTRY_BITS>,
    #[init(Memory::new(Storage::Block))]
    asks: Memory<Ask, ENTRY_BITS>,
    /// For each entry of a list the next one.
    #[init(Memory::new(Storage::Block))]
    links: Memory<Bits<ENTRY_BITS>, ENTRY_BITS>,
    #[init(Memory::new(Storage::Block))]
    lists: Memory<List, RING_BITS>,
    #[init(Fifo::new(Storage::Block))]
    free: Fifo<Bits<ENTRY_BITS>, ENTRY_BITS, 10>,
    order: Fifo<Ordered, ORDER, ORDER_COUNT>,
    requests: Fifo<ReceiveWqeRequest, ORDER, ORDER_COUNT>,
    turns: Fifo<Turn, 10, 11>,
    wake_queue: TurnQueue<RING_BITS, 12>,
    #[init(Fifo::new(Storage::Block))]
    operands_queue: Fifo<AtomicOperands, ATOMICS, 7>,

    #[init(Reg::new(true))]
    is_clearing: Reg<Bit>,
    sweep: Reg<Bits<RING_BITS>>,
    has_event: Reg<Bit>,
    event: DFF<Event>,
    /// The record that the event before has written, in the cycle in which that of `event` was read.
    written: DFF<List>,
    written_ring: DFF<Bits<RING_BITS>>,
    has_written: Reg<Bit>,
    new_link: DFF<NewLink>,
    has_new_link: Reg<Bit>,
}

impl Logic for Park {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<ReceiveWqeRequest>::link(&mut self.request, &mut self.requests.tx);
        StreamTx::<AtomicOperands>::link(&mut self.operands, &mut self.operands_queue.tx);
        let clears = self.is_clearing.q.val();
        let sweep = self.sweep.q.val();
        if clears {
            self.sweep.d.next = sweep + 1;
            self.is_clearing.d.next = !sweep.all();
        }
        self.wake_queue.is_sweeping.next = clears;
        self.wake_queue.sweep_index.next = sweep;
        self.wake_queue.enters.next = self.wakes.val();
        self.wake_queue.number.next = self.woken.val();

        // In: a packet is written into a free entry. Turns leave room in `order` for those that admission has begun.
        let admission = self.admitted.beat.val();
        let level = self.order.level.val();
        let is_half_full = level.get_bits::<2>(4).any();
        let may_admit = !(level.get_bit(5) || level.get_bits::<2>(3).all());
        self.admitted.ready.next = may_admit && self.free.tx.valid.val();
        let enters = self.admitted.valid.val();
        let entry = self.free.tx.beat.val();
        self.free.tx.ready.next = enters;
        self.tokens.write_enable.next = enters;
        self.tokens.write_address.next = entry;
        self.tokens.write_data.next = admission.packet;
        self.parked_operands.write_enable.next = enters;
        self.parked_operands.write_address.next = entry;
        self.parked_operands.write_data.next = admission.operands;
        self.asks.write_enable.next = enters;
        self.asks.write_address.next = entry;
        self.asks.write_data.next =
            Ask { takes_wqe: admission.packet.takes_wqe, generation: admission.packet.generation };

        // Act: the event of the cycle before, with the record of its list.
        let has_event = self.has_event.q.val();
        let event = self.event.q.val();
        let is_same = self.has_written.q.val() && self.written_ring.q.val() == event.ring;
        let list = select(is_same, self.written.q.val(), self.lists.read_data.val());
        let is_new = self.has_new_link.q.val() && self.new_link.q.val().from == event.entry;
        let next = select(is_new, self.new_link.q.val().to, self.links.read_data.val());
        let answer = self.answer.beat.val();
        let action = action_of(event, list, next, answer.is_absent);
        let token = self.tokens.read_data.val();
        let is_atomic = token.is_atomic;
        let has_room = !is_atomic || self.operands_queue.rx.ready.val();
        let may_pass = self.passed.ready.val() && has_room;
        let moves = select(action.passes, may_pass, !(action.issues && enters));
        let acts = has_event && moves;
        self.passed.valid.next = has_event && action.passes && has_room;
        self.passed.beat.next = token;
        self.wqe.valid.next = has_event && action.passes && has_room && event.is_asked;
        self.wqe.beat.next = answer;
        self.answer.ready.next = acts && event.is_leave && event.is_asked;
        self.operands_queue.rx.valid.next = acts && action.passes && is_atomic;
        self.operands_queue.rx.beat.next = self.parked_operands.read_data.val();
        self.free.rx.valid.next =
            select(clears, !sweep.get_bits::<2>(ENTRY_BITS).any(), acts && action.passes);
        self.free.rx.beat.next = select(clears, sweep.get_bits::<ENTRY_BITS>(0), event.entry);
        self.turns.rx.valid.next = acts && action.schedules;
        self.turns.rx.beat.next = action.turn;

        // Packets and turns enter `order`, and ask for their WQEs, at once.
        let ask = self.asks.read_data.val();
        let issues = acts && action.issues;
        let is_asked = select(enters, admission.packet.takes_wqe, ask.takes_wqe);
        self.order.rx.valid.next = enters || issues;
        self.order.rx.beat.next = Ordered {
            ring: select(enters, admission.ring, event.ring),
            entry: select(enters, entry, event.entry),
            is_asked,
            is_parked: !enters,
        };
        self.requests.rx.valid.next = (enters || issues) && is_asked;
        self.requests.rx.beat.next = ReceiveWqeRequest {
            ring: select(enters, admission.ring, event.ring),
            generation: select(enters, admission.packet.generation, ask.generation),
            is_parked: !enters,
            restarts: event.restarts,
        };

        // Read: the next event. A packet is looked at when it is answered, by an answer that no packet before it takes.
        let may_read = (!has_event || moves) && !clears;
        let head = self.order.tx.beat.val();
        let has_wake = self.wake_queue.tx.valid.val();
        let takes_answer = has_event && event.is_leave && event.is_asked;
        let has_answer =
            select(takes_answer, self.answer_count.val().get_bits::<3>(1).any(), self.answer.valid.val());
        let may_leave = self.order.tx.valid.val() && (!head.is_asked || has_answer);
        let may_turn = self.turns.tx.valid.val() && !is_half_full;
        let reads = may_read && (has_wake || may_leave || may_turn);
        let leaves = may_leave && !has_wake;
        let chosen = if has_wake {
            event_of_wake(self.wake_queue.tx.beat.val())
        } else if may_leave {
            event_of_packet(head)
        } else {
            event_of_turn(self.turns.tx.beat.val())
        };
        self.wake_queue.tx.ready.next = may_read;
        self.order.tx.ready.next = may_read && leaves;
        self.turns.tx.ready.next = may_read && !has_wake && !may_leave && may_turn;
        if may_read {
            self.has_event.d.next = reads;
            self.event.d.next = chosen;
        }
        self.tokens.read_enable.next = may_read;
        self.tokens.read_address.next = chosen.entry;
        self.parked_operands.read_enable.next = may_read;
        self.parked_operands.read_address.next = chosen.entry;
        self.asks.read_enable.next = may_read;
        self.asks.read_address.next = chosen.entry;
        self.links.read_enable.next = may_read;
        self.links.read_address.next = chosen.entry;
        self.lists.read_enable.next = may_read;
        self.lists.read_address.next = chosen.ring;

        // The records. What was written in the cycle of a read stays for the event that was read.
        if may_read {
            self.has_written.d.next = acts;
            self.written_ring.d.next = event.ring;
            self.written.d.next = action.after;
        }
        self.lists.write_enable.next = clears || acts;
        self.lists.write_address.next = select(clears, sweep, event.ring);
        let empty = List::default();
        let after = List { holds: action.after.holds && !clears, ..select(clears, empty, action.after) };
        self.lists.write_data.next = after;
        self.list_write.next = ListWrite {
            enable: clears || acts,
            ring: select(clears, sweep, event.ring),
            holds: after.holds,
            absents: after.absents,
        };
        let links = acts && action.appends && list.holds;
        self.links.write_enable.next = links;
        self.links.write_address.next = list.tail;
        self.links.write_data.next = event.entry;
        if may_read {
            self.has_new_link.d.next = links;
            self.new_link.d.next = NewLink { from: list.tail, to: event.entry };
        }
    }
}
