//! ReadyLine: the one line in which queue pairs wait for their turn: to fetch WQEs, or to send a quantum of a long
//! message.
//!
//! A doorbell can ring in every cycle and cannot be made to wait; a queue of doorbells could fill up. A line in
//! which every queue pair stands at most once for its slots, and once for the rest of a long message, cannot: it
//! has a place for each. And since all that is sent has its turn here, one place decides who may go on, and each
//! queue pair pays here for the bytes that it has sent.
//!
//! ```text
//!                 ┌─────────────────────────────────────────────────────────┐
//!  posted ───────>│ > ──> record: work, gates, debt ──> stands? ──> line ───┼──> to_fetch
//!  from_segment ─>│                                           ▲   (2^11) │  │
//!  from_fetch ───>│                                           └── round ─┼──┼──> to_segment
//!                 └─────────────────────────────────────────────────────────┘
//! ```
//!
//! A queue pair is in the line for its slots while `fetch_lap` of its record and `left`, one bit each, differ. Each
//! has one writer: the entrance toggles the first, the exit the second.
//!
//! *Gates* of the slots: wqe_parse has stopped fetch, as the WQE at the cursor may not begin (window, pool, READ depth,
//! fence, RNR wait, a long message before it); or seven bursts are on their way whose bytes are not known, and
//! the last one that is known was not small. What is posted meanwhile is work that is remembered.
//!
//! *Rounds.* Segment reports what was sent, in units of 1,024 bytes. Who has sent that much more than one unit lets
//! the others go first in as many rounds: at the head it goes to the end of the line. So shares are equal in
//! bytes, whatever the lengths of messages are. A queue pair that is alone does not wait. *Size.* How many slots a turn fetches follows what
//! was sent of the last burst, so that a turn is of 12 to 24 KiB where messages are long.
//!
//! Latency 3 cycles from a doorbell to `to_fetch`; one entrance and one exit a cycle. A round takes 12 cycles, in which
//! those that have no debt pass. `from_segment` waits while a doorbell rings, and `from_fetch` while either comes.
//!
//! 1. A queue pair stands in the line at most once for its slots; segment sees to it for rests.
//! 2. What was written for a queue pair before or in the cycle of its doorbell is seen by a reader from the
//!    cycle after `to_fetch` on, in this turn or in a later one. So no doorbell is lost.
//! 3. Turns without debt are in the order in which queue pairs entered.
//! 4. A gate that is closed opens: wqe_parse is woken, and each burst that was requested ends.
mod rules;

use crate::messages::{DEBT_BITS, FetchReport, FetchTurn, SegmentReport, TURN_SIZE_BITS};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::QUEUE_PAIR_BITS;
use rules::{
    Event, Record, after_event, after_round, enters_for_rest, enters_for_slots, event_of, is_still,
    may_leave, record_after,
};

const PLACE_BITS: usize = QUEUE_PAIR_BITS + 1;
const COUNT_BITS: usize = PLACE_BITS + 1;
/// Width of a number of cycles of a round.
const PACE_BITS: usize = 4;
/// Width of a number of cycles in which nobody else has entered.
const STILL_BITS: usize = 7;

/// A place in the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Place {
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// It stands here for the rest of a long message.
    is_rest: Bit,
    /// Value that `left` becomes.
    lap: Bit,
    /// Slots that the turn may fetch.
    size: Bits<TURN_SIZE_BITS>,
    /// Rounds in which it lets others go first.
    debt: Bits<DEBT_BITS>,
}

/// Line of queue pairs; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub struct ReadyLine {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; empties the line. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// The records of `sweep_index` are cleared in this cycle.
    pub is_sweeping: Signal<In, Bit>,
    /// Queue pair whose records are cleared.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// Queue pair whose doorbell rings.
    pub posted: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// `posted` is valid.
    pub posted_valid: Signal<In, Bit>,
    /// From segment; `ready` is combinational from `posted_valid`.
    pub from_segment: StreamRx<SegmentReport>,
    /// From wqe_fetch; `ready` is combinational from `posted_valid` and `from_segment.valid`.
    pub from_fetch: StreamRx<FetchReport>,
    /// To wqe_fetch: next queue pair; registered.
    pub to_fetch: StreamTx<FetchTurn>,
    /// To segment: queue pair that sends a quantum of a long message; registered.
    pub to_segment: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    records: Memory<Record, QUEUE_PAIR_BITS>,
    left: Memory<Bit, QUEUE_PAIR_BITS>,
    line: Fifo<Place, PLACE_BITS, COUNT_BITS>,
    event: DFF<Event>,
    has_event: Reg<Bit>,
    /// Record that was written in the cycle before, in which it may have been read.
    newest: DFF<Record>,
    newest_queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    has_newest: Reg<Bit>,
    pace: Reg<Bits<PACE_BITS>>,
    /// Queue pair that entered last, and cycles since another one did.
    guest: DFF<Bits<QUEUE_PAIR_BITS>>,
    still: Reg<Bits<STILL_BITS>>,
}

impl Logic for ReadyLine {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_sweeping = self.is_sweeping.val();
        let sweep_index = self.sweep_index.val();

        // An event is looked up in the cycle in which it enters.
        let posted_valid = self.posted_valid.val();
        let has_report = self.from_segment.valid.val();
        let event = event_of(
            posted_valid,
            self.posted.val(),
            has_report,
            self.from_segment.beat.val(),
            self.from_fetch.beat.val(),
        );
        self.from_segment.ready.next = !posted_valid && !is_sweeping;
        self.from_fetch.ready.next = !posted_valid && !has_report && !is_sweeping;
        self.event.d.next = event;
        self.has_event.d.next = (posted_valid || has_report || self.from_fetch.valid.val()) && !is_sweeping;
        self.records.read_enable.next = true;
        self.records.read_address.next = event.queue_pair;
        self.left.read_enable.next = true;
        self.left.read_address.next = event.queue_pair;

        // The record after the event, and whether the queue pair stands in the line now.
        let event = self.event.q.val();
        let has_event = self.has_event.q.val();
        let queue_pair = event.queue_pair;
        let is_newest = self.has_newest.q.val() && self.newest_queue_pair.q.val() == queue_pair;
        let record = select(is_newest, self.newest.q.val(), self.records.read_data.val());
        let is_queued = record.fetch_lap != self.left.read_data.val();
        let current = after_event(record, event);
        let for_rest = enters_for_rest(event);
        let for_slots = enters_for_slots(current, is_queued) && !for_rest;
        let enters = has_event && (for_slots || for_rest);
        let after = record_after(current, is_queued, for_slots, for_rest);
        self.newest.d.next = after;
        self.newest_queue_pair.d.next = queue_pair;
        self.has_newest.d.next = has_event;
        self.records.write_enable.next = has_event || is_sweeping;
        self.records.write_address.next = select(is_sweeping, sweep_index, queue_pair);
        self.records.write_data.next = if is_sweeping { Record { ..Default::default() } } else { after };

        // The head leaves, or lets the others go first.
        let head = self.line.tx.beat.val();
        let has_head = self.line.tx.valid.val();
        let is_alone = is_still(self.still.q.val()) && self.line.level.val() == 1;
        let leaves = has_head && may_leave(head.debt, is_alone);
        let to_fetch = leaves && !head.is_rest;
        let to_segment = leaves && head.is_rest;
        let pace = self.pace.q.val();
        let passes = has_head && !leaves && !pace.any() && !enters;
        let is_taken = (to_fetch && self.to_fetch.ready.val()) || (to_segment && self.to_segment.ready.val());
        self.to_fetch.valid.next = to_fetch;
        self.to_fetch.beat.next = FetchTurn { queue_pair: head.queue_pair, size: head.size };
        self.to_segment.valid.next = to_segment;
        self.to_segment.beat.next = head.queue_pair;
        self.line.tx.ready.next = is_taken || passes;
        self.pace.d.next = after_round(pace, passes);
        self.left.write_enable.next = (is_taken && !head.is_rest) || is_sweeping;
        self.left.write_address.next = select(is_sweeping, sweep_index, head.queue_pair);
        self.left.write_data.next = head.lap && !is_sweeping;
        self.line.rx.valid.next = enters || passes;
        self.line.rx.beat.next = if enters {
            Place {
                queue_pair,
                is_rest: for_rest,
                lap: after.fetch_lap,
                size: current.size,
                debt: current.debt,
            }
        } else {
            Place { debt: head.debt - 1, ..head }
        };

        // Who is alone has nobody to wait for.
        if enters && queue_pair != self.guest.q.val() {
            self.guest.d.next = queue_pair;
            self.still.d.next = bits::<STILL_BITS>(0);
        } else if !is_still(self.still.q.val()) {
            self.still.d.next = self.still.q.val() + 1;
        }
    }
}

#[cfg(test)]
mod tests;
