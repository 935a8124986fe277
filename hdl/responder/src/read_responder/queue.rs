//! ReadyPairs: the queue pairs that have something to answer, each once, and their requests that were released.
//!
//! ```text
//!  read ─────────────────────────────────> released ──> one cycle later
//!  releases, returns, begins, continues ─> released
//!                        ├───────────────> ready queue ──┬─> head
//!                        └───────────────> first ────────┘
//! ```
//!
//! 1. A queue pair is in the queue, or is the first, or has its turn, if and only if `is_queued` is set in its record.
//! 2. One that answers many short requests goes on with its turn until it has had a quantum: it is the first, before
//!    the queue.
use super::record::{Released, released_after};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::Fifo;
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{QUEUE_PAIR_BITS, sizes};

pub(super) const READY_COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;

/// What happens to a queue pair in a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Change {
    /// Its requests are dropped.
    pub forgets: Bit,
    /// With `forgets`: it has no turn, and so stays in the queue if it is there.
    pub stays: Bit,
    /// A request is released.
    pub releases: Bit,
    /// The result that it has waited for is there.
    pub returns: Bit,
    /// A replay begins.
    pub begins: Bit,
    /// Its turn ends early, and there may be more to answer.
    pub aborts: Bit,
    /// Its turn ends, and there is more to answer.
    pub continues: Bit,
    /// With `continues`: it has not had a quantum, and is the next one.
    pub goes_on: Bit,
    /// Its turn ends, and there is nothing to answer yet.
    pub rests: Bit,
}

/// Says whether a queue pair is queued after a change.
#[kernel]
fn is_queued_after(released: Released, change: Change) -> Bit {
    let was_queued = released.is_queued && (!change.forgets || change.stays) && !change.rests;
    was_queued || change.releases || change.returns || change.begins || change.continues
}

/// Says whether it enters the queue.
#[kernel]
fn enters(released: Released, change: Change) -> Bit {
    let is_new = (change.releases || change.returns || change.begins) && !released.is_queued;
    is_new || change.aborts || (change.continues && !change.goes_on)
}

/// Keeps what was released, and whose turn is next.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct ReadyPairs {
    /// The record of `read_address` is read.
    pub reads: Signal<In, Bit>,
    /// Queue pair whose record is read.
    pub read_address: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// Queue pair of the change, whose record was read.
    pub record_address: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// The change.
    pub change: Signal<In, Change>,
    /// The head of the queue gets its turn.
    pub takes: Signal<In, Bit>,
    /// The record that was read.
    pub released: Signal<Out, Released>,
    /// Queue pair whose turn is next.
    pub head: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// `head` is valid: a queue pair waits for its turn.
    pub has_head: Signal<Out, Bit>,
    /// The queue pair that was taken last went on with its turn; registered.
    pub goes_on: Signal<Out, Bit>,
    /// Queue pairs that wait for their turn.
    pub level: Signal<Out, Bits<READY_COUNT_BITS>>,

    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    records: Memory<Released, QUEUE_PAIR_BITS>,
    #[init(Fifo::default().with_beats_log2(sizes().queue_pairs))]
    queue: Fifo<Bits<QUEUE_PAIR_BITS>, QUEUE_PAIR_BITS, READY_COUNT_BITS>,
    first: DFF<Bits<QUEUE_PAIR_BITS>>,
    has_first: Reg<Bit>,
    was_first: DFF<Bit>,
}

impl Logic for ReadyPairs {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.records.read(self.reads.val(), self.read_address.val());
        let released = self.records.read_data.val();
        let change = self.change.val();
        let is_queued = is_queued_after(released, change);
        self.records.write_enable.next = change.forgets
            || change.releases
            || change.returns
            || change.begins
            || change.continues
            || change.rests;
        self.records.write_address.next = self.record_address.val();
        self.records.write_data.next = released_after(released, change.forgets, change.releases, is_queued);
        self.queue.rx.offer(enters(released, change), self.record_address.val());
        let has_first = self.has_first.q.val();
        let takes = self.takes.val();
        if change.continues && change.goes_on {
            self.first.d.next = self.record_address.val();
            self.has_first.d.next = true;
        }
        if takes {
            self.has_first.d.next = false;
            self.was_first.d.next = has_first;
        }
        self.queue.tx.ready.next = takes && !has_first;
        self.released.next = released;
        self.head.next = select(has_first, self.first.q.val(), self.queue.tx.beat.val());
        self.has_head.next = has_first || self.queue.tx.valid.val();
        self.goes_on.next = self.was_first.q.val();
        self.level.next = self.queue.level.val() + bit_cast::<READY_COUNT_BITS, 1>(has_first.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_is_queued_once() {
        let none = Change::default();
        for (was_queued, change, is_queued, enters_queue) in [
            (false, none, false, false),
            (true, none, true, false),
            (false, Change { releases: true, ..none }, true, true),
            (true, Change { releases: true, ..none }, true, false),
            (false, Change { returns: true, ..none }, true, true),
            (false, Change { begins: true, ..none }, true, true),
            (true, Change { begins: true, ..none }, true, false),
            (true, Change { begins: true, aborts: true, ..none }, true, true),
            (true, Change { aborts: true, ..none }, true, true),
            (true, Change { continues: true, ..none }, true, true),
            (true, Change { continues: true, goes_on: true, ..none }, true, false),
            (true, Change { rests: true, ..none }, false, false),
            (true, Change { forgets: true, ..none }, false, false),
            (true, Change { forgets: true, stays: true, ..none }, true, false),
            (false, Change { forgets: true, stays: true, ..none }, false, false),
        ] {
            let released = Released { is_queued: was_queued, ..Released::default() };
            assert_eq!(is_queued_after(released, change), is_queued, "{was_queued} {change:?}");
            assert_eq!(enters(released, change), enters_queue, "{was_queued} {change:?}");
        }
    }
}
