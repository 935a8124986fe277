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
//!  admitted []┬─> tokens, operands, asks [entry] ──────────────────────┐    │
//!     ^       ├─> order (32) ──> event ──> Read ──> Act ──────────────┴─> pass ──> scatter
//!     │       └─> AskGate ──> request ──> rq_prefetch ──> answer ─────^ │
//!     └── Pause       ^                       ^       lists (one word a ├──> append: links[tail] = entry
//!  (drain) ───────────┴── turns (1,024) ──> event       receive ring)   └──> turns
//!                                             ^
//!  wakes ──> TurnQueue ──────────────────────>┘
//! ```
//!
//! Every packet is written once, into an entry of `tokens`, and read once, when it passes: what is parked is not moved. What
//! follows the order of all packets travels beside the entries: `order` has the entries in the order in which packets came,
//! those of packets that were parked among them when they are tried again; a packet that takes a WQE asks for it in that
//! order, and is looked at when it is answered. While packets of its ring wait for their turn a new one does not ask, and is
//! parked unasked (`AskGate`).
//!
//! | Event | Does |
//! |---|---|
//! | a packet leaves `order` | It passes, or is parked: because its WQE is absent, because it has not asked, or because its list is not empty. One that was parked passes if it is the oldest of its list and has its WQE; else it stays where it is |
//! | a ring has its turn | The next packet of its list enters `order`, and the ring another turn, up to the end of the list |
//! | a read of a ring has completed | Its list is tried again from the oldest packet on, if it was tried in vain |
//!
//! A list is tried by one *pass* of turns at a time. If the oldest packet finds its WQE absent, the pass ends; what of it is in
//! `order` already stays parked. The list is tried again when a read of its ring has completed, at once if that was since its
//! last pass began. So no read is missed, whenever it completes.
//!
//! A ring has a share: when its parked packets hold as many entries as are free, admission drops what comes for it, as if the wire
//! had lost it. So one ring has half of the pool at most, however fast its packets come, and others park as before. The room that
//! their payload takes is bounded for each queue pair before they come here (`entry_share` of the packet path).
//!
//! A packet that admission has dropped is here only because its payload waits in the receive buffer. It passes at once,
//! whatever is parked: so packets that nobody wants hold neither entries nor cells.
//!
//! A packet that ends a key (SEND with Invalidate) holds up resolve until control has ended it, some thirty cycles in all. After one
//! has entered `order`, all others rest for 64 cycles or some more, parked in the lists of their rings, so that those whose keys a
//! peer ends leave half of the receive path to the others at least, and have the more, the longer their packets are. A card ends
//! 3.4 million keys a second for its peers. A turn whose packet must rest comes again behind the others, through the one queue of
//! turns: a turn of an earlier pass then leaves before any of a later one, which `pass`, a single bit, relies on. Among several
//! rings whose packets rest, the one whose turn is next when the rest ends is tried: chance gives each its share, as rests differ in
//! length (`Rest`). One that comes while its ring has others parked is parked unasked, as if it took a WQE, and begins no rest.
//!
//! Latency 4 cycles from `admitted` to `passed`, and with a receive WQE 10; the first of them is a register, since the decision of
//! admission is as deep as the choice that is made here. One event a cycle, so three cycles for a packet that
//! is parked and one for every other packet; scatter takes one in three. A list of one ring is emptied at 3.04 cycles a
//! packet while others come, which is faster than they come from one sender (3.4), and at 2 alone.
//!
//! 1. Packets of a ring pass in the order of `admitted`, each once, whatever waits; but a packet that was dropped, and is not
//!    the first one of a generation, passes before those that are parked.
//! 2. A packet that takes a WQE passes with the answer to its own request; the answers to others are dropped, and were
//!    without a WQE (rule 3 of `WqeGrant`).
//! 3. An entry is free, or holds one packet. None is lost.
//! 4. Nothing here waits for a packet that is parked: `admitted` waits for a free entry, for `order`, and for 32 cycles in 1,024
//!    at most so that a ring whose packets come fast can be unparked (`Pause`); events wait for scatter.
//! 5. A list whose oldest packet waits is tried again after every read and every restart of its ring; so packets of a
//!    generation that has ended leave, answered as stale.
//!
//! Hazards: an event reads the record of its list in the cycle in which the one before it may write it, and so the links; both are
//! taken from the write then. `AskGate` sees a list two cycles late; what it decides wrongly then is answered without a WQE,
//! or costs a packet a turn.
//!
//! Reset sweeps the records of all rings and frees all entries, in 2,048 cycles. Protocol 3.7, 4.5; design decision 3.
use crate::messages::{
    ANSWER_COUNT_BITS, Admission, Admitted, AtomicOperands, Decision, ReceiveWqe, ReceiveWqeRequest,
};
use ask_gate::AskGate;
use list::{ENTRY_BITS, Event, Ordered, RING_BITS, Turn, action_of, next_event};
use lists::Lists;
use pause::Pause;
use rest::Rest;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, TurnQueue};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{GENERATION_BITS, sizes};
use share::Share;
use turns::Turns;

mod ask_gate;
mod list;
mod lists;
mod pause;
mod rest;
mod share;
#[cfg(test)]
mod tests;
mod turns;

/// log2 of the packets whose answer is awaited.
const ORDER: usize = 5;
const ORDER_COUNT: usize = ORDER + 1;
/// Bits of a number of entries.
pub(crate) const ENTRY_COUNT: usize = list::ENTRY_COUNT;
/// log2 of the atomics between here and resolve: more than the stages between can hold.
const ATOMICS: usize = 6;
const ATOMIC_COUNT: usize = ATOMICS + 1;

/// What a packet that is parked asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Ask {
    takes_wqe: Bit,
    generation: Bits<GENERATION_BITS>,
    ends_key: Bit,
}

/// Gives what is kept of a packet for its requests.
#[kernel]
fn ask_of(packet: Admitted) -> Ask {
    let ends_key = packet.with_invalidate && packet.decision != Decision::Drop;
    Ask { takes_wqe: packet.takes_wqe, generation: packet.generation, ends_key }
}

/// Says whether a packet waits for no other: admission has dropped it, and it does not begin a generation, which resolve must see
/// before the packets of it.
#[kernel]
fn passes_at_once(packet: Admitted) -> Bit {
    packet.decision == Decision::Drop && !packet.starts_generation
}

/// Says whether the order has room for a packet of admission, with those that it has begun.
#[kernel]
fn leaves_room(level: Bits<ORDER_COUNT>) -> Bit {
    !(level.get_bit(ORDER) || level.get_bits::<2>(ORDER - 2).all())
}

/// Says whether an atomic may pass: its operands enter their queue a cycle later, with those that passed in the cycle before.
#[kernel]
fn has_room_for_operands(level: Bits<ATOMIC_COUNT>) -> Bit {
    !(level.get_bit(ATOMICS) || level.get_bits::<2>(ATOMICS - 2).all())
}

/// The packet of a turn, on its way to the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Issue {
    ring: Bits<RING_BITS>,
    entry: Bits<ENTRY_BITS>,
    ask: Ask,
    restarts: Bit,
}

/// Parks packets; see the module.
#[clocked(reset = "forgets all packets")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Park {
    /// From admission; `ready` is a function of registers. A packet that was begun when it was high is taken, if it comes within
    /// four cycles and none does before.
    pub admitted: StreamRx<Admission>,
    /// From admission: ring of the packet that may come in the next cycle, and of the one that comes.
    pub next_ring: Signal<In, Bits<RING_BITS>>,
    /// To admission: the ring has its share of what is parked; of the ring that `next_ring` was a cycle ago; a function of registers.
    pub exceeds_share: Signal<Out, Bit>,
    /// To the prefetch: requests for receive WQEs; registered.
    pub request: StreamTx<ReceiveWqeRequest>,
    /// From the prefetch: its answers, in the order of the requests; `ready` is combinational.
    pub answer: StreamRx<ReceiveWqe>,
    /// From the prefetch: answers at `answer`.
    pub answer_count: Signal<In, Bits<ANSWER_COUNT_BITS>>,
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
    /// Entries that hold a packet; a function of registers. During the sweep after reset those that are not free yet are among them.
    pub entries_used: Signal<Out, Bits<ENTRY_COUNT>>,

    #[init(Memory::new(Storage::Block).without_old_word())]
    tokens: Memory<Admitted, ENTRY_BITS>,
    #[init(Memory::new(Storage::Block).without_old_word())]
    parked_operands: Memory<AtomicOperands, ENTRY_BITS>,
    #[init(Memory::new(Storage::Block))]
    asks: Memory<Ask, ENTRY_BITS>,
    lists: Lists,
    #[init(Fifo::new(Storage::Block))]
    free: Fifo<Bits<ENTRY_BITS>, ENTRY_BITS, ENTRY_COUNT>,
    order: Fifo<Ordered, ORDER, ORDER_COUNT>,
    requests: Fifo<ReceiveWqeRequest, ORDER, ORDER_COUNT>,
    turns: Turns<Turn>,
    ask_gate: AskGate,
    share: Share,
    pause: Pause,
    rest: Rest,
    #[init(TurnQueue::default().with_numbers_log2(sizes().receive_rings()))]
    wake_queue: TurnQueue<RING_BITS, 12>,
    #[init(Fifo::new(Storage::Block))]
    operands_queue: Fifo<AtomicOperands, ATOMICS, ATOMIC_COUNT>,

    #[init(Reg::new(true))]
    is_clearing: Reg<Bit>,
    sweep: Reg<Bits<RING_BITS>>,
    /// A packet enters, which came in the cycle before.
    has_admission: Reg<Bit>,
    admission: DFF<Admission>,
    has_event: Reg<Bit>,
    event: DFF<Event>,
    /// A packet waits for scatter; it has asked.
    waits: Reg<Bit>,
    is_waiting_asked: DFF<Bit>,
    /// `passed_operands` enter `operands_queue`; that an atomic passes is known late.
    has_operands: Reg<Bit>,
    passed_operands: DFF<AtomicOperands>,
    has_issue: Reg<Bit>,
    issue: DFF<Issue>,
}

impl Logic for Park {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.request, &mut self.requests.tx);
        StreamTx::link(&mut self.operands, &mut self.operands_queue.tx);
        self.entries_used.next = bits::<ENTRY_COUNT>(1 << ENTRY_BITS) - self.free.level.val();
        let (clears, sweep) = (self.is_clearing.q.val(), self.sweep.q.val());
        if clears {
            self.sweep.d.next = sweep + 1;
            self.is_clearing.d.next = !sweep.all();
        }
        self.wake_queue.is_sweeping.next = clears;
        self.wake_queue.sweep_index.next = sweep;
        self.wake_queue.enters.next = self.wakes.val();
        self.wake_queue.number.next = self.woken.val();

        // In: a packet is written into a free entry. Turns leave room in `order` for those that admission has begun.
        self.has_admission.d.next = self.admitted.valid.val();
        self.admission.d.next = self.admitted.beat.val();
        let admission = self.admission.q.val();
        let entering = ask_of(admission.packet);
        let enters = self.has_admission.q.val();
        let (level, free) = (self.order.level.val(), self.free.level.val());
        let may_free = self.free.tx.valid.val() && (!enters || free.get_bits::<ENTRY_BITS>(1).any());
        self.admitted.ready.next = leaves_room(level) && may_free && !self.pause.pauses.val();
        let entry = self.free.tx.beat.val();
        self.free.tx.ready.next = enters;
        self.tokens.write(enters, entry, admission.packet);
        self.parked_operands.write(enters, entry, admission.operands);
        self.asks.write(enters, entry, entering);

        // Act: the event of the cycle before, with the record of its list.
        let (has_event, event) = (self.has_event.q.val(), self.event.q.val());
        let (answer, asked) = (self.answer.beat.val(), self.asks.read_data.val());
        let (list, behind) = (self.lists.list.val(), self.lists.behind.val());
        let (is_resting, has_issue) = (self.rest.rests.val(), self.has_issue.q.val());
        let action = action_of(event, list, behind, answer.is_absent, asked.ends_key && is_resting);
        let moves = !(has_event && action.issues && has_issue && enters);
        let acts = has_event && moves;

        // Out: a packet that passes, in this cycle or when scatter takes it. Its token and answer stay where they are.
        let (token, waits) = (self.tokens.read_data.val(), self.waits.q.val());
        let is_out = waits || (has_event && action.passes);
        let is_out_asked = select(waits, self.is_waiting_asked.q.val(), event.is_asked);
        let may_pass = !token.is_atomic || has_room_for_operands(self.operands_queue.level.val());
        let is_taken = may_pass && self.passed.ready.val();
        self.waits.d.next = is_out && !is_taken;
        self.is_waiting_asked.d.next = is_out_asked;
        self.passed.offer(is_out && may_pass, token);
        self.wqe.offer(is_out && may_pass && is_out_asked, answer);
        let is_refused = has_event && event.is_leave && event.is_asked && !action.passes;
        self.answer.ready.next = is_refused || (is_out && is_taken && is_out_asked);
        self.has_operands.d.next = is_out && is_taken && token.is_atomic;
        self.passed_operands.d.next = self.parked_operands.read_data.val();
        self.operands_queue.rx.offer(self.has_operands.q.val(), self.passed_operands.q.val());
        self.free.rx.valid.next =
            select(clears, !sweep.get_bits::<2>(ENTRY_BITS).any(), acts && action.passes);
        self.free.rx.beat.next = select(clears, sweep.get_bits::<ENTRY_BITS>(0), event.entry);
        self.turns.rx.offer(acts && action.schedules, action.turn);

        // Packets enter `order`, and ask for their WQEs; those of turns when no other does.
        self.ask_gate.next_ring.next = self.next_ring.val();
        self.ask_gate.enters.next = enters;
        let rests = entering.ends_key && is_resting;
        let is_behind = (entering.takes_wqe || entering.ends_key) && self.ask_gate.is_unasked.val();
        let is_unasked = rests || is_behind;
        self.ask_gate.rests.next = rests;
        let is_dropped = passes_at_once(admission.packet);
        self.ask_gate.is_dropped.next = is_dropped;
        self.share.next_ring.next = self.next_ring.val();
        self.share.free_entries.next = self.free.level.val();
        self.exceeds_share.next = self.share.exceeds_share.val();
        let issues = acts && action.issues;
        self.has_issue.d.next = issues || (has_issue && enters);
        if issues {
            self.issue.d.next =
                Issue { ring: event.ring, entry: event.entry, ask: asked, restarts: event.restarts };
        }
        self.rest.begins.next = (enters && entering.ends_key && !is_unasked) || (issues && asked.ends_key);
        let coming = Issue { ring: admission.ring, entry, ask: entering, restarts: false };
        let next = select(enters, coming, self.issue.q.val());
        let is_asked = next.ask.takes_wqe && !(enters && is_unasked);
        self.order.rx.valid.next = enters || has_issue;
        self.order.rx.beat.next = Ordered {
            ring: next.ring,
            entry: next.entry,
            is_asked,
            is_unasked: enters && is_unasked,
            is_parked: !enters,
            is_dropped: enters && is_dropped,
        };
        self.requests.rx.valid.next = (enters || has_issue) && is_asked;
        self.requests.rx.beat.next =
            ReceiveWqeRequest { ring: next.ring, generation: next.ask.generation, restarts: next.restarts };

        // Read: the next event. A packet is looked at when it is answered, by an answer that no packet before it takes, and if it may
        // pass, when no other waits for scatter. Turns and packets alternate.
        let may_read = moves && !clears;
        let (head, has_wake) = (self.order.tx.beat.val(), self.wake_queue.tx.valid.val());
        let is_deciding = has_event && event.is_leave && !event.is_unasked;
        let takes_answer = waits && self.is_waiting_asked.q.val();
        let has_answer =
            select(takes_answer, self.answer_count.val().get_bits::<3>(1).any(), self.answer.valid.val());
        let may_decide = !is_deciding && (!waits || is_taken);
        let is_answered = may_decide && (!head.is_asked || has_answer);
        let may_leave = self.order.tx.valid.val() && (head.is_unasked || is_answered);
        let may_turn = self.turns.tx.valid.val() && !level.get_bits::<2>(4).any();
        let reads = may_read && (has_wake || may_leave || may_turn);
        let leaves = may_leave && !(may_turn && has_event && event.is_leave);
        let (woken, turn) = (self.wake_queue.tx.beat.val(), self.turns.tx.beat.val());
        let chosen = next_event(has_wake, woken, leaves, head, turn);
        self.wake_queue.tx.ready.next = may_read;
        self.order.tx.ready.next = may_read && !has_wake && leaves;
        self.turns.tx.ready.next = may_read && !has_wake && !leaves && may_turn;
        self.pause.starts.next = acts && action.chases;
        self.pause.enters.next = enters && is_unasked;
        self.pause.leaves.next = acts && event.is_unasked;
        self.pause.has_turn.next = self.turns.tx.valid.val() || has_issue || has_event;
        self.has_event.d.next = select(may_read, reads, has_event);
        self.event.d.next = select(may_read, chosen, event);
        let may_pass_next = may_read && !has_wake && leaves && !head.is_unasked;
        self.tokens.read(may_pass_next, head.entry);
        self.parked_operands.read(may_pass_next, head.entry);
        self.asks.read(may_read, chosen.entry);

        // The records.
        self.lists.reads.next = may_read;
        self.lists.ring.next = chosen.ring;
        self.lists.entry.next = chosen.entry;
        self.lists.acts.next = acts;
        self.lists.appends.next = action.appends;
        self.lists.after.next = action.after;
        self.lists.clears.next = clears;
        self.lists.sweep.next = sweep;
        self.ask_gate.change.next = self.lists.change.val();
        self.share.change.next = self.lists.change.val();
        self.ask_gate.is_sweeping.next = clears;
    }
}
