//! Ack: sends acknowledgements and NAKs, each when the host writes that it covers are done.
//!
//! The replies that a queue pair owes are state of the queue pair, not entries of a queue, so a blocked
//! transmit path never blocks the receive path (design decision 4).
//!
//! ```text
//!  setup ─────────┐    ┌──────┐     ┌──────────────────────────────────┐
//!  write_failure ─┼───>│ Idle ├────>│ Setup, Fail, Close, Owe or Send  ├──> tx (AETH)
//!  place_reply ───┤    └──┬───┘     └──┬──────────────────┬────────────┘
//!  read_closed, ──┤       v records    v                  ├──> release, atomic_release
//!  withdrawn      │
//!  done_count ──> ready queue of queue pairs that owe     └──> failure
//!                 a reply, each once
//! ```
//!
//! Two cycles for an event and two for a packet that leaves. Latency 4 cycles from an event whose writes are
//! done to its packet.
//!
//! 1. A queue pair holds two replies: the one that leaves next, and the newest. An acknowledgement replaces the
//!    newest, but not a NAK that it does not cover; so while packets keep arriving, the older one still leaves.
//! 2. A reply leaves when `write_count` host writes are done (design decision 11). Counts are kept in 32 bits
//!    here, so they do not wrap while the transmit path is blocked.
//! 3. A payload write that the host refused fails the queue pair at once, so no later message completes for long,
//!    and becomes NAK 0x63 for the first PSN that is not yet acknowledged. No reply leaves after that, and no READ
//!    is released, whose responses would acknowledge the write (protocol 2.5). If READs are open, the READ
//!    responder is told: the first response that is not made becomes the NAK (protocol 3.7). If all are made, the
//!    NAK follows them.
//! 4. Replies of another generation, and those of a queue pair in RESET, are dropped.
//! 5. A READ or an atomic is released when the writes before it are done, and is open until its last response
//!    is on its way to the wire. Replies of a queue pair wait while one is open, so none overtakes a response
//!    (protocol 3.5, 3.8). Replies that are still owed when it is released are dropped: its responses stand for
//!    them, so all that a queue pair sends is in PSN order. One that became a NAK, or that ERR leaves unanswered,
//!    stays open, so nothing follows that NAK, and nothing passes that READ.
//! 6. A duplicate READ or atomic is open, too, until it is answered or withdrawn, so that the acknowledgements of
//!    what the peer sent after it do not overtake its answer (protocol 3.4). It covers no PSN. A READ whose answer a replay ends is
//!    withdrawn; the last response of the replay then closes the replay.
//! 7. An atomic that was admitted is released whatever becomes of its queue pair, and so is a duplicate, with
//!    `is_dropped`.
//! 8. A NAK that fails the queue pair does so when it leaves (protocol 3.6), so earlier replies have left.
//!
//! Reset sweeps all records in 1,024 cycles. Protocol 1.6, 3.8; design decisions 4 and 11.
use crate::messages::{AckCounts, AtomicRelease};
use record::{
    COUNT_BITS, Change, ReplyRecord, counts_of, empty_record, ended_of, ends_reads, enters_queue,
    extended_count, has_notice, is_current, is_hit, is_reached, may_leave, next_write_count, notice_of,
    packet_of, pending_of, record_after, record_after_setup, stays_queued,
};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::host::WriteFailure;
use rnic_messages::read::{READ_COUNT_BITS, ReadClosed, ReadRelease, ReadsWithdrawn};
use rnic_messages::receive::AckNotice;
use rnic_messages::setup::{QpNotice, SetupEvent};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, WRITE_COUNT_BITS, sizes};
use rnic_messages::transmit::TransmitRequest;

mod record;
#[cfg(test)]
mod tests;

/// Bits of a number of queue pairs.
pub(crate) const OWING_BITS: usize = QUEUE_PAIR_BITS + 1;

/// A queue pair in the ready queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Ready {
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Its next reply cannot leave before this many host writes are done.
    write_count: Bits<COUNT_BITS>,
}

/// What the machine does with a record.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Clears the records after a reset.
    Clear,
    /// Chooses an event, or the head of the ready queue.
    Idle,
    /// Applies a setup event.
    Setup,
    /// Applies a failed host write.
    Fail,
    /// The last response of a READ is on its way, or some get none of their own.
    Close,
    /// A reply is owed.
    Owe,
    /// The head of the ready queue may send.
    Send,
}

/// Sends acknowledgements and NAKs; see the module.
#[clocked(reset = "forgets all queue pairs")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Ack {
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// From place: replies with the host writes that they wait for; taken in bounded time, whatever `tx` does.
    pub place_reply: StreamRx<AckNotice>,
    /// From the host writer: a write that the host refused; taken in bounded time.
    pub write_failure: StreamRx<WriteFailure>,
    /// Free-running count of host writes that are done.
    pub done_count: Signal<In, Bits<WRITE_COUNT_BITS>>,
    /// To the READ responder: READs and atomics whose earlier writes are done, and the end of those if a later
    /// write has failed; registered.
    pub release: StreamTx<ReadRelease>,
    /// To atomics: the atomics among them; registered.
    pub atomic_release: StreamTx<AtomicRelease>,
    /// The last response of a READ is on its way; not in two consecutive cycles.
    pub read_closed: ValidRx<ReadClosed>,
    /// From the READ responder: what gets no last response of its own; taken in bounded time, whatever the outputs do.
    pub withdrawn: StreamRx<ReadsWithdrawn>,
    /// To the address vector stage; registered.
    pub tx: StreamTx<TransmitRequest>,
    /// To control: queue pairs that have failed; registered.
    pub failure: StreamTx<QpNotice>,
    /// Counters; registered.
    pub counts: Signal<Out, AckCounts>,
    /// Queue pairs that owe a reply; registered.
    pub owing: Signal<Out, Bits<OWING_BITS>>,

    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    records: Memory<ReplyRecord, QUEUE_PAIR_BITS>,
    #[init(Fifo::default().with_beats_log2(sizes().queue_pairs))]
    ready_queue: Fifo<Ready, QUEUE_PAIR_BITS, OWING_BITS>,
    packets: RegisterSlice<TransmitRequest>,
    releases: Fifo<ReadRelease, 2, 3>,
    atomic_releases: Fifo<AtomicRelease, 2, 3>,
    /// Room for those that wait for setup events.
    closings: Fifo<ReadClosed, 4, 5>,
    /// Room for all queue pairs.
    #[init(Fifo::default().with_beats_log2(sizes().queue_pairs))]
    failures: Fifo<QpNotice, QUEUE_PAIR_BITS, 11>,
    step: Reg<Step>,
    sweep: Reg<Bits<QUEUE_PAIR_BITS>>,
    /// The ready queue comes before the next event.
    ready_is_next: Reg<Bit>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    event: DFF<AckNotice>,
    event_count: DFF<Bits<COUNT_BITS>>,
    /// READs and atomics that close.
    closing_count: DFF<Bits<READ_COUNT_BITS>>,
    write: DFF<WriteFailure>,
    done: Reg<Bits<COUNT_BITS>>,
    counted: Reg<AckCounts>,
}

impl Logic for Ack {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.atomic_release, &mut self.atomic_releases.tx);
        StreamTx::link(&mut self.release, &mut self.releases.tx);
        StreamTx::link(&mut self.tx, &mut self.packets.tx);
        StreamTx::link(&mut self.failure, &mut self.failures.tx);
        self.closings.rx.offer(self.read_closed.valid.val(), self.read_closed.value.val());
        self.owing.next = self.ready_queue.level.val();
        let done = self.done.q.val();
        let newly_done = self.done_count.val() - done.get_bits::<WRITE_COUNT_BITS>(0);
        self.done.d.next = done + bit_cast::<COUNT_BITS, WRITE_COUNT_BITS>(newly_done);

        // Setup events come first, then READs that end, since these cannot wait, and failed writes, which can; then place
        // events and the ready queue in turn.
        let step = self.step.q.val();
        let is_idle = step == Step::Idle;
        let setup = self.setup.beat.val();
        let failed_write = self.write_failure.beat.val();
        let ended =
            ended_of(self.closings.tx.valid.val(), self.closings.tx.beat.val(), self.withdrawn.beat.val());
        let owed = self.place_reply.beat.val();
        let head = self.ready_queue.tx.beat.val();
        let may_send = self.ready_queue.tx.valid.val()
            && self.packets.rx.ready.val()
            && self.failures.rx.ready.val()
            && is_reached(done, head.write_count);
        let may_release = self.releases.rx.ready.val() && self.atomic_releases.rx.ready.val();
        let may_owe = self.place_reply.valid.val() && may_release;
        let sets = is_idle && self.setup.valid.val();
        let closes = is_idle && !sets && self.closings.tx.valid.val();
        let withdraws = is_idle && !sets && !closes && self.withdrawn.valid.val();
        let is_unset = is_idle && !sets && !closes && !withdraws;
        let may_fail = is_unset && self.failures.rx.ready.val() && self.releases.rx.ready.val();
        let fails = may_fail && self.write_failure.valid.val();
        let is_free = is_unset && !fails;
        let owes = is_free && may_owe && !(may_send && self.ready_is_next.q.val());
        let sends = is_free && may_send && !owes;
        self.write_failure.ready.next = may_fail;
        self.closings.tx.ready.next = closes;
        self.withdrawn.ready.next = withdraws;
        self.place_reply.ready.next = owes;
        self.ready_queue.tx.ready.next = sends;
        if sets {
            self.step.d.next = Step::Setup;
        }
        if fails {
            self.step.d.next = Step::Fail;
            self.write.d.next = failed_write;
        }
        if closes || withdraws {
            self.step.d.next = Step::Close;
            self.event.d.next.generation = ended.generation;
            self.closing_count.d.next = ended.count;
        }
        if owes {
            self.step.d.next = Step::Owe;
            self.event.d.next = owed;
            self.event_count.d.next = extended_count(done, owed.write_count);
            self.ready_is_next.d.next = true;
        }
        if sends {
            self.step.d.next = Step::Send;
            self.ready_is_next.d.next = false;
        }
        let chosen = if sets {
            setup.queue_pair
        } else if fails {
            failed_write.queue_pair
        } else if closes || withdraws {
            ended.queue_pair
        } else if owes {
            owed.queue_pair
        } else {
            head.queue_pair
        };
        self.records.read(is_idle, chosen);
        if is_idle {
            self.queue_pair.d.next = chosen;
        }
        let record = self.records.read_data.val();
        let queue_pair = self.queue_pair.q.val();
        let sweep = self.sweep.q.val();
        let clears = step == Step::Clear;
        if clears {
            self.sweep.d.next = sweep + 1;
            if sweep.all() {
                self.step.d.next = Step::Idle;
            }
        }
        if !clears && !is_idle {
            self.step.d.next = Step::Idle;
        }

        // The record after the event.
        let is_set = step == Step::Setup;
        let is_owe = step == Step::Owe;
        let is_turn = step == Step::Send;
        self.setup.ready.next = is_set;
        let event = self.event.q.val();
        let closing_count = self.closing_count.q.val();
        let newer = pending_of(event, self.event_count.q.val());
        let is_own = is_current(record, event.generation);
        let leaves = is_turn && may_leave(record, done);
        let is_taken = is_owe && is_own && !record.failed;
        let change = Change {
            is_hit: step == Step::Fail && is_hit(record, self.write.q.val()),
            closes: step == Step::Close && is_own && record.reads_open.any(),
            releases: is_taken && event.is_read && !event.is_again,
            repeats: is_taken && event.is_again,
            owes: is_taken && !event.is_read,
            is_turn,
            leaves,
            stays: is_turn && stays_queued(record, leaves),
        };
        self.records.write_enable.next = !is_idle;
        self.records.write_address.next = select(clears, sweep, queue_pair);
        self.records.write_data.next = if clears {
            empty_record()
        } else if is_set {
            record_after_setup(record, setup)
        } else {
            record_after(record, change, event, newer, done, closing_count)
        };

        // The packet that leaves.
        let ends = ends_reads(record, change);
        let is_again = is_owe && event.is_again;
        self.releases.rx.valid.next = change.releases || ends || is_again;
        self.releases.rx.beat.next = ReadRelease {
            queue_pair,
            generation: record.generation,
            write_failed: ends,
            is_again,
            is_dropped: is_again && !change.repeats,
        };
        self.atomic_releases.rx.offer(is_owe && event.is_atomic, AtomicRelease { queue_pair });
        self.packets.rx.offer(leaves, packet_of(queue_pair, record));
        self.failures.rx.offer(has_notice(record, change), notice_of(queue_pair, record, change.is_hit));
        self.ready_queue.rx.valid.next = enters_queue(record, change, closing_count) || change.stays;
        self.ready_queue.rx.beat.next =
            Ready { queue_pair, write_count: next_write_count(record, change, newer, done) };
        self.counted.d.next = counts_of(leaves, record.first.syndrome, is_owe && !is_own);
        self.counts.next = self.counted.q.val();
    }
}
