//! KeptSlots: shows slots again that waited for room, without another read of the host.
//!
//! What does not fit is dropped by wqe_parse, and fetched again when there is room. That read takes a microsecond,
//! in which many slots more are fetched in vain: too long for a queue pair whose 16 READs are open, where there is
//! room for one message at a time. So the slot at which a queue pair waits for READs or atomics, and those that come
//! after it, are kept here, in rows of 16 slots that queue pairs share: a row is of the queue pair that was held
//! last.
//!
//! ```text
//!            ┌────────────────────────────────────────────────────────┐
//!  action ──>│──> row of the queue pair ──> answer ───────────────────┼──> serves, refills (to wqe_parse)
//!  slot ────>│──────────> rows: slots ──┐      └──> shows ──┐         │
//!            │                          └───────────────────┴─────────┼──> bursts, slots (to wqe_pair)
//!            └────────────────────────────────────────────────────────┘
//! ```
//!
//! From a question to the first slot 4 cycles; then one slot a cycle.
//!
//! 1. A row begins with the slot at which its queue pair is held, as the host has returned it. Slots are added
//!    in order, none left out; those that could not be read are not. Such a slot stays posted, and unchanged,
//!    until it completes.
//! 2. A row is asked for the cursor when its queue pair is woken, and when the last slot of a burst of it, or of
//!    a single burst of wqe_fetch, has been shown. It shows at least two slots, since the last one of a burst,
//!    whose successor is not seen, is never taken; with less, wqe_parse resumes wqe_fetch.
//! 3. A row of which a burst is under way changes neither its queue pair nor a slot of that burst that wqe_parse
//!    may still want. A row has one burst under way at most, so there is always room for a burst, and a question
//!    waits for nothing.
//! 4. With nine slots left, a single burst of wqe_fetch is asked for, from the last slot on, so that there is
//!    one. What it has more is added when it comes. If the row is empty before, its end asks again.
//! 5. While `enable` is low no burst begins, as in wqe_fetch.
mod rules;

use crate::messages::{KeptAnswer, KeptEvent, SLOT_BITS, WqeBurst, WqeSlot};
use crate::sweep::SweepStep;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::Slot;
use rnic_messages::sizes::sizes;
use rules::{Row, after_answer, after_slot, answer_of, burst_of, place_of, row_index, shows, stores};

/// `log2` of the rows.
pub(crate) const ROW_BITS: usize = 5;
/// `log2` of the slots of a row.
pub(crate) const ROW_SLOTS_BITS: usize = 4;
/// Width of a number of rows.
const SHOWN_BITS: usize = ROW_BITS + 1;
/// Address of a slot.
const ADDRESS_BITS: usize = ROW_BITS + ROW_SLOTS_BITS;

/// log2 of the rows of a card: no more than it has queue pairs.
fn rows_log2() -> usize {
    ROW_BITS.min(sizes().queue_pairs)
}

/// Keeps slots; see the module.
#[clocked(reset = "drops bursts. A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
pub struct KeptSlots {
    /// From sweep: the row of a queue pair is cleared in this cycle.
    pub sweep: Signal<In, SweepStep>,
    /// From control: bursts may begin.
    pub enable: Signal<In, Bit>,
    /// From wqe_parse: what it does in this cycle.
    pub action: Signal<In, KeptEvent>,
    /// From wqe_pair: the slot that wqe_parse sees.
    pub slot: Signal<In, WqeSlot>,
    /// To wqe_parse: answer to the question of this cycle; combinational from `action` and registers.
    pub answer: Signal<Out, KeptAnswer>,
    /// To wqe_pair: a burst that is shown again; valid until its last slot has been shown. Registered.
    pub bursts: StreamTx<WqeBurst>,
    /// To wqe_pair: its slots; registered.
    pub slots: StreamTx<Slot>,
    /// Bursts that have ever begun, free-running; registered.
    pub burst_count: Signal<Out, Bits<16>>,

    #[init(Memory::default().with_words_log2(rows_log2()))]
    rows: Memory<Row, ROW_BITS>,
    #[init(Memory::default().with_words_log2(rows_log2() + ROW_SLOTS_BITS))]
    kept: Memory<Bits<SLOT_BITS>, ADDRESS_BITS>,
    // A place for each row.
    shown: Fifo<WqeBurst, ROW_BITS, SHOWN_BITS>,
    has_begun: Reg<Bit>,
    has_slot: Reg<Bit>,
    position: Reg<Bits<4>>,
    bursts_begun: Reg<Bits<16>>,
}

impl Logic for KeptSlots {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_sweeping = self.sweep.val().is_sweeping;
        let event = self.action.val();
        let slot = self.slot.val();

        // The row, read when wqe_parse chooses a queue pair.
        self.rows.read(event.looks, row_index(event.queue_pair));
        let row = self.rows.read_data.val();
        let answer = answer_of(row, event);
        self.answer.next = answer;
        let asks_and_shows = shows(row, event);
        self.shown.rx.offer(asks_and_shows, burst_of(row, event));
        self.rows.write_enable.next = event.acts || asks_and_shows || is_sweeping;
        self.rows.write_address.next =
            row_index(select(is_sweeping, self.sweep.val().index, event.queue_pair));
        self.rows.write_data.next = if is_sweeping {
            Row { ..Default::default() }
        } else if event.acts {
            after_slot(row, slot, event.holds, event.keeps)
        } else {
            after_answer(row, event, answer)
        };
        self.kept.write_enable.next = event.acts && stores(row, slot, event.keeps);
        self.kept.write_address.next = place_of(slot.queue_pair, slot.index);
        self.kept.write_data.next = slot.first;

        // The burst that is shown: its slots are read one after the other.
        let burst = self.shown.tx.beat.val();
        let has_begun = self.has_begun.q.val();
        let begins = self.shown.tx.valid.val() && !has_begun && self.enable.val();
        let position = self.position.q.val();
        let has_room = !self.has_slot.q.val() || self.slots.ready.val();
        let reads = has_begun && position != burst.count && has_room;
        self.kept.read_enable.next = reads;
        self.kept.read_address.next =
            place_of(burst.queue_pair, burst.first_index + bit_cast::<16, 4>(position));
        self.slots.valid.next = self.has_slot.q.val();
        self.slots.beat.next =
            Slot { data: self.kept.read_data.val(), last: position == burst.count, error: false };
        self.has_slot.d.next = reads || !has_room;
        let ends = has_begun && self.bursts.ready.val();
        self.bursts.offer(has_begun, burst);
        self.shown.tx.ready.next = ends;
        if begins {
            self.has_begun.d.next = true;
            self.bursts_begun.d.next = self.bursts_begun.q.val() + 1;
        }
        if reads {
            self.position.d.next = position + 1;
        }
        if ends {
            self.has_begun.d.next = false;
            self.position.d.next = bits::<4>(0);
        }
        self.burst_count.next = self.bursts_begun.q.val();
    }
}

#[cfg(test)]
mod tests;
