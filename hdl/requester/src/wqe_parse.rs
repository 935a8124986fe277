//! WqeParse: decides which slots are the next WQE of their queue pair, and gives each WQE its PSNs and its pool
//! slot.
//!
//! The one stage that knows how far a queue pair has come: every fetched slot passes here in order, wanted or
//! not. A WQE that does not fit into the window or the pool is dropped, and fetched again when there is room.
//!
//! ```text
//!                  ┌──────────────────────────────────────────────────┐
//!  setup ─────────>│                 ┌─> record: slot, PSN, tail ─┐   │
//!  wake_held,      │                 │                            │   │
//!  wake_long ─────>│─> queue pair ──>┤                            ├───┼──> parsed (4 deep)
//!  wqe_slot ──────>│                 └─> retired, free blocks ────┘   │
//!                  │                          └── held, woken ────────┼──> kept_event (to kept_slots)
//!  kept_answer ───>│──────────────────────────────────────────────────┼──> resume (to wqe_fetch)
//!                  └──────────────────────────────────────────────────┘
//!  step              Idle               Decide            Act (Recheck; KeptLook, KeptEnd)
//! ```
//!
//! A slot takes 3 cycles, wanted or not: with one slot in eight fetched twice, 3.4 cycles a WQE of one slot,
//! 6.9 one of two.
//!
//! 1. WQEs of a queue pair leave in order, none left out, none twice, whatever was fetched twice. A slot is
//!    wanted if it is the one at the cursor, is of the queue pair's generation, and the queue pair is not
//!    held. After the cursor has gone back, WQEs leave again from there on, in the same order (rule 14).
//! 2. Each WQE that leaves has its own pool slot, and the slots of a queue pair make one chain in order.
//! 3. A queue pair is held while 1,024 of its messages are in flight, or while its last block is full and there
//!    is no other. With none of its messages in flight, its last block counts as another one. WqeFetch stops
//!    for a held queue pair, and resumes at the slot that was not taken when the queue pair is woken.
//! 4. The last message of a block requests an acknowledgement, as every signalled one does (protocol 2.4); so
//!    what holds a queue pair is acknowledged.
//! 5. Setup events and wakes are taken between two slots, whether `parsed` is full or not.
//! 6. In RTS WQEs are sent, in SQD those that were begun are sent again, in ERR and SQE they leave as
//!    flushed, in other states they wait in their ring. In a state in which nothing is sent the cursor is
//!    after the last message that was begun.
//! 7. After a slot that could not be read, or an overrun of the ring, nothing new is wanted until the
//!    queue pair is created or reset: where the next WQE begins is not known. What was begun before is
//!    sent again all the same.
//! 8. A message takes as many PSNs as its length needs packets, which is not checked yet; one if it needs none,
//!    if it is inline, and if it is longer than any message may be (protocol 2.1, 2.2). A flushed WQE takes
//!    none.
//! 9. A queue pair with messages in flight is held, too, while 2^15 of its PSNs or more are in flight, and
//!    while the next message would make that more than 2^23 (protocol 2.1). Acknowledge wakes it as for rule 3.
//! 10. After a message of more than 16 KiB nothing is taken and fetch stops, until segment wakes the queue
//!     pair; a change to a state in which nothing is sent ends that, too. A READ or an atomic is one packet,
//!     and never long. The same follows a message whose queue pair has become four times as heavy as its burst was
//!     counted (see [`weight`](crate::weight)).
//! 11. A queue pair is held, too, before a READ or an atomic while `read_atomic` of these are outstanding, and
//!     before a WQE with a fence while any is: each is outstanding from here until it leaves the pool
//!     (protocol 2.3, 2.10), and has a slot of its own until then. Where `read_atomic` is zero, none is ever
//!     outstanding, and wqe_check refuses it. When such a queue pair is woken, kept_slots shows the slot that
//!     was not taken again; if it has it not, wqe_fetch resumes, for three single bursts at first, since a
//!     queue pair that was held soon is again. At the end of each kept or single burst it goes on in the
//!     same way.
//! 12. A queue pair is held, too, before a LOCAL_INVALIDATE while any message is in flight, and after it until
//!     it has left the pool (protocol 2.10). It takes no PSN.
//! 13. So the last message that was posted requests an acknowledgement, too, and the last one before a
//!     LOCAL_INVALIDATE; and each of two slots, as the slot after it is not seen here. A WQE at the end of a
//!     burst is taken with the next one, if there is a next one, where it is first.
//! 14. When acknowledge has raised the epoch, nothing is wanted until its wake; then the cursor goes back
//!     to the slot and the first PSN of the oldest message in the pool, and wqe_fetch with it. During an
//!     RNR wait it does not go back, and nothing is wanted (protocol 2.7).
//! 15. A message that is sent again keeps its place in the pool, its PSNs and its READ slot, waits for no
//!     room, and requests an acknowledgement (protocol 2.4). Its packets, or responses, before the oldest
//!     unacknowledged PSN are left out (protocol 2.8); where that is all of them, it does not leave.
//! 16. If the message at the cursor has left the pool, its slots may have been posted anew: the cursor
//!     goes on to the oldest message. After the last message that was begun, it is where it was before it
//!     went back.
//! 17. Each time the cursor goes to the oldest message, a lap of wqe_fetch begins. An overrun counts only
//!     if it was found in the lap of the cursor, and none ends the queue while messages are sent again.
//! 18. After a message has left in error, nothing begins until the state changes: what is behind it completes as
//!     flushed, so it must not be sent, nor its key be invalidated (protocol 2.10, 2.11).
use crate::messages::{
    BLOCK_BITS, Begun, BegunWrite, FetchResume, KeptAnswer, KeptEvent, Link, ParsedWqe, Retired, RetiredRead,
    WqeSlot,
};
use crate::outstanding::SHARED_BITS;
use crate::sweep::SweepStep;
use crate::weight::WeightWrite;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::setup::{SetupEvent, SetupKind};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, sizes};
use rules::{
    Decision, Life, PoolPlace, Send, act_of, after_hold, after_setup, after_slot, after_wake, at_end,
    at_oldest, decide, ends_kept, first_step, goes_back, is_active, life_of, parsed_of, place_of,
    resumes_after_setup, step_after, tells_fetch, writes_record,
};

mod rules;
#[cfg(test)]
mod tests;

/// State of the block.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Setup,
    Wake,
    Decide,
    Act,
    Recheck,
    /// Lets kept_slots read what the last slot of a burst has written.
    KeptLook,
    /// Asks kept_slots to go on.
    KeptEnd,
}

/// Parses WQEs; see the module.
#[clocked(reset = "A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
pub struct WqeParse {
    /// From sweep: the records of a queue pair are cleared in this cycle.
    pub sweep: Signal<In, SweepStep>,
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// From wqe_pair.
    pub wqe_slot: StreamRx<WqeSlot>,
    /// From acknowledge: messages of a held queue pair have completed.
    pub wake_held: StreamRx<Bits<QUEUE_PAIR_BITS>>,
    /// From segment: the WQE after a long message may come.
    pub wake_long: StreamRx<Bits<QUEUE_PAIR_BITS>>,
    /// To wqe_fetch; registered.
    pub resume: StreamTx<FetchResume>,
    /// To kept_slots: what is done in this cycle.
    pub kept_event: Signal<Out, KeptEvent>,
    /// From kept_slots: answer to `kept_event` in the same cycle.
    pub kept_answer: Signal<In, KeptAnswer>,
    /// To wqe_check; registered.
    pub parsed: StreamTx<ParsedWqe>,
    /// To the pool: link in a chain of blocks, to be written.
    pub link: ValidTx<Link>,
    /// To the pool: counts of the queue pair.
    pub begun: Signal<Out, BegunWrite>,
    /// To the pool: reads `retired`.
    pub retired_read: Signal<Out, RetiredRead>,
    /// From the pool, one cycle after `retired_read`.
    pub retired: Signal<In, Retired>,
    /// From the pool: a free shared block.
    pub free: StreamRx<Bits<SHARED_BITS>>,
    /// To wqe_fetch: weight of the queue pair.
    pub weight: Signal<Out, WeightWrite>,
    /// A message begins: it has a pool slot from now on; a function of registers.
    pub begins: Signal<Out, Bit>,
    /// PSN that the queue pair of the last probe would send next; registered.
    pub probed: Signal<Out, Bits<24>>,
    /// That queue pair had messages in flight; registered.
    pub probed_busy: Signal<Out, Bit>,
    /// A slot of an older generation was dropped: an event to count; registered.
    pub counts_stale_dropped: Signal<Out, Bit>,

    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    lives: Memory<Life, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    sends: Memory<Send, QUEUE_PAIR_BITS>,
    parsed_wqes: Fifo<ParsedWqe, 2, 3>,
    resumes: Fifo<FetchResume, 2, 3>,
    step: Reg<Step>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    probed_held: Reg<Bits<24>>,
    is_busy: Reg<Bit>,
    is_stale: Reg<Bit>,
    wakes_long: DFF<Bit>,
    decision: DFF<Decision>,
}

impl Logic for WqeParse {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.parsed, &mut self.parsed_wqes.tx);
        StreamTx::link(&mut self.resume, &mut self.resumes.tx);
        self.probed.next = self.probed_held.q.val();
        self.probed_busy.next = self.is_busy.q.val();
        self.counts_stale_dropped.next = self.is_stale.q.val();
        let is_sweeping = self.sweep.val().is_sweeping;
        let sweep_index = self.sweep.val().index;
        let step = self.step.q.val();
        let queue_pair = self.queue_pair.q.val();
        let event = self.setup.beat.val();
        let slot = self.wqe_slot.beat.val();

        // Every input may make a resume, so nothing starts without room for one.
        let has_setup = self.setup.valid.val();
        let has_held = self.wake_held.valid.val();
        let has_wake = has_held || self.wake_long.valid.val();
        let has_slot = self.wqe_slot.valid.val() && self.parsed_wqes.rx.ready.val();
        let may_start = self.resumes.rx.ready.val() && !is_sweeping;
        let first = first_step(may_start, has_setup, has_wake, has_slot);
        let chosen = if has_setup {
            event.queue_pair
        } else if has_held {
            self.wake_held.beat.val()
        } else if has_wake {
            self.wake_long.beat.val()
        } else {
            slot.queue_pair
        };
        if step == Step::Idle {
            self.queue_pair.d.next = chosen;
            self.wakes_long.d.next = !has_held;
        }
        let wakes_long = self.wakes_long.q.val();
        self.setup.ready.next = step == Step::Setup;
        self.wake_held.ready.next = step == Step::Wake && !wakes_long;
        self.wake_long.ready.next = step == Step::Wake && wakes_long;
        self.wqe_slot.ready.next = step == Step::Act;

        // The records. `retired` is read again in the cycle in which the queue pair becomes held.
        self.lives.read(step == Step::Idle, chosen);
        self.sends.read(step == Step::Idle, chosen);
        self.retired_read.next = RetiredRead {
            queue_pair: select(step == Step::Idle, chosen, queue_pair),
            valid: step == Step::Idle || step == Step::Act,
        };
        let life = self.lives.read_data.val();
        let send = self.sends.read_data.val();
        let retired = self.retired.val();

        // A slot: what it is, and whether there is room for it.
        self.is_stale.d.next = step == Step::Decide && slot.generation != life.generation;
        if step == Step::Decide {
            self.decision.d.next = decide(slot, life, send, retired, self.free.valid.val());
        }
        let decision = self.decision.q.val();
        let act = act_of(step, decision);
        self.begins.next = act.begins;
        let home = bit_cast::<BLOCK_BITS, QUEUE_PAIR_BITS>(queue_pair);
        let place: PoolPlace = place_of(decision.block, send, home, self.free.beat.val());
        let begun = after_slot(send, slot, decision, place, home);
        let choice = decision.block;
        self.link.value.next = Link { block: send.tail_from_home ^ home, next: place.block };
        self.link.valid.next = act.begins && choice.needs_block;
        self.free.ready.next = act.begins && choice.needs_block && !choice.reuses_block && !choice.takes_home;
        self.parsed_wqes.rx.valid.next = act.leaves || (step == Step::Act && slot.ends_burst);
        self.parsed_wqes.rx.beat.next = parsed_of(act.leaves, slot, life, send, decision, place, begun);

        if step == Step::Setup && event.kind == SetupKind::Probe {
            self.probed_held.d.next = at_end(send).next_psn;
            self.is_busy.d.next = send.message_count != retired.count;
        }
        // Acknowledge may have completed a message in between without seeing that the queue pair is held.
        let has_moved = retired != decision.seen;
        let goes_back = goes_back(life, send, retired);
        let is_woken = select(wakes_long, send.waits_for_long, send.is_held) || goes_back;

        // Slots that waited for READs are kept on the card; fetch goes on where none are.
        let kept = self.kept_answer.val();
        let kept_event = KeptEvent {
            queue_pair: select(step == Step::Idle, chosen, queue_pair),
            looks: step == Step::Idle || step == Step::KeptLook,
            acts: step == Step::Act,
            holds: act.holds,
            keeps: act.holds && decision.awaits_reads,
            wakes: step == Step::Wake && send.is_held && !wakes_long && !goes_back,
            ends: step == Step::KeptEnd && is_active(life, send, retired),
            generation: life.generation,
            cursor: send.slot_index,
            lap: send.lap,
        };
        self.kept_event.next = kept_event;
        let is_careful = ((kept_event.wakes || kept_event.ends) && send.careful.any())
            || (step == Step::Recheck && decision.awaits_reads);

        // What each step writes, and what it tells wqe_fetch.
        let held = after_hold(send, decision.awaits_reads);
        let next = match step {
            Step::Setup => after_setup(send, event, retired),
            Step::Wake if goes_back => at_oldest(send, retired),
            Step::Wake | Step::KeptEnd => after_wake(send, kept.serves),
            Step::Act => {
                if act.jumps {
                    at_oldest(send, decision.seen)
                } else if act.begins || act.replays {
                    begun
                } else {
                    held
                }
            }
            _ => after_wake(held, false),
        };
        let writes = writes_record(step, is_woken, act.changes, has_moved, kept.serves);
        let tells = tells_fetch(step, is_woken, act, next.waits_for_long, decision.is_kept, kept);
        self.resumes.rx.valid.next = tells || (step == Step::Setup && resumes_after_setup(send, event));
        self.resumes.rx.beat.next = FetchResume {
            queue_pair,
            generation: select(step == Step::Setup, event.generation, life.generation),
            slot_index: select(kept.serves, kept.last, next.slot_index),
            is_single: kept.serves || is_careful,
            replays: next.behind.any(),
            lap: next.lap,
            resumes: match step {
                Step::Act => act.jumps,
                Step::Recheck => has_moved,
                _ => true,
            },
        };
        self.step.d.next = step_after(step, first, act.holds, ends_kept(slot, life, send));
        self.begun.next = BegunWrite {
            queue_pair,
            begun: Begun { count: next.message_count, is_held: next.is_held },
            valid: writes,
        };
        self.weight.next = WeightWrite { queue_pair, weight: next.estimate.weight, valid: writes };
        let index = select(is_sweeping, sweep_index, queue_pair);
        self.sends.write_enable.next = is_sweeping || writes;
        self.sends.write_address.next = index;
        self.sends.write_data.next = if is_sweeping { Send { ..Default::default() } } else { next };
        self.lives.write_enable.next = is_sweeping || step == Step::Setup;
        self.lives.write_address.next = index;
        self.lives.write_data.next = Life {
            state: select(is_sweeping, bits::<3>(QpState::Reset as u64), event.state),
            ..life_of(event)
        };
    }
}
