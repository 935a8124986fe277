//! Atomics: executes atomics in host memory.
//!
//! An atomic takes two round trips through the host link, so many of them are in flight at a time, each on a
//! different word. A table of locks, indexed by a few bits of the address, keeps them apart: two that share a
//! lock run one after the other, which is always correct and seldom needless. A queue pair that finds a lock
//! taken draws a ticket and comes back in turn until it is called.
//!
//! ```text
//!             ┌──────────────────────────────────────────────────────────────┐
//!  request ──>│ ring (up to 16 a queue pair)                                 │
//!  release ──>│ released ──> ready queue <──────────────────────┐            │
//!             │                   v                             │ locked     │
//!             │             oldest request ──> its lock ────────┤            │
//!             │                                                 v            │
//!             │                                     reading (128) ───────────┼──> read
//!  word ──────┼──> arrived ──> compare, add <─────────┘                      │
//!             │                  └──> written (128) ─────────────────────────┼──> write
//!  write_done ┼──> unlock <───────────┘                                      │
//!             │      └───────────────────────────────────────────────────────┼──> result
//!             └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! An atomic takes 10 cycles of the machine, 4 more each time it finds its word locked. Latency 7 cycles from
//! `release` to `read`, 3 from `word` to `write`, 4 from `write_done` to `result`.
//!
//! 1. Atomics of a queue pair are executed in the order of their requests, each once and only when released,
//!    and one at a time: the next one begins when the host has done the write of the one before.
//! 2. From the read of a word to the end of its write no other atomic reads it, of whatever queue pair. There
//!    is no order between queue pairs; those that wait for a lock get it in the order in which they drew their
//!    tickets.
//! 3. FETCH_ADD always writes, COMPARE_SWAP only when the word compares equal.
//! 4. A word that the host does not deliver is not written; an atomic whose read or write fails has a result
//!    that says so.
//! 5. Nothing here waits for the wire, so an atomic waits for the host only (design decision 4).
//! 6. Every request is executed once it was taken, whatever becomes of its queue pair: like a WRITE that was
//!    admitted.
//! 7. `in_flight`: atomics belong to periods, of which two can be open. A new one begins when there are atomics
//!    in the newer one and none in the older, and counts as entered; it has left when all its atomics and those
//!    of earlier periods are done. So later atomics are not waited for, although atomics overtake each other.
//!
//! A queue pair may have as many requests that have not begun as it has READ slots; admission has no more in flight. All of them
//! are done before it gets other slots. Reset
//! forgets all, in 1,024 cycles. Protocol 3.5, 3.7.
use crate::messages::{AtomicRelease, AtomicRequest, AtomicResult};
use periods::Periods;
pub(crate) use record::lock_of;
use record::{
    Change, LOCK_BITS, Lock, Progress, Reading, TICKET_BITS, Waiting, Written, has_room, lock_after,
    may_begin, progress_after, result_of, ticket_of, waiting_of, write_of, writes_word, written_of,
};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{HostSpan, HostWord, WordWrite};
use rnic_messages::pool::{LEVEL_BITS, level_after};
use rnic_messages::read::numbered_read_place;
use rnic_messages::setup::InFlight;
use rnic_messages::sizes::{QUEUE_PAIR_BITS, READ_POOL_BITS, sizes};

mod periods;
mod record;

/// Bytes of a word.
const WORD_BYTES: u64 = 8;
/// log2 of the atomics between read and result.
const IN_FLIGHT: usize = 7;
pub(crate) const IN_FLIGHT_COUNT: usize = IN_FLIGHT + 1;
const READY_COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;
/// Bits of a count of all requests that can wait.
const OPEN_BITS: usize = READ_POOL_BITS + 1;

/// State of the machine.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Clears the records after a reset.
    Clear,
    /// Chooses an event, or the head of the ready queue.
    Idle,
    /// An atomic is done.
    Finish,
    /// A request is released.
    Release,
    /// A request is taken.
    Store,
    /// Head of the ready queue: reads the place of its oldest request.
    Load,
    /// Reads the request.
    Fetch,
    /// Reads its lock, and begins if that is free.
    Lock,
}

/// What the machine begins in a cycle, one at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Choice {
    /// An atomic is done.
    finishes: Bit,
    /// The head of the ready queue has its turn.
    turns: Bit,
    /// A release is taken.
    takes_release: Bit,
    /// A request is taken, if there is room.
    takes_request: Bit,
}

/// Gives the step after `step`; `sweep_ends` says that the last record is cleared.
#[kernel]
fn next_step(step: Step, choice: Choice, sweep_ends: Bit) -> Step {
    match step {
        Step::Clear => {
            if sweep_ends {
                Step::Idle
            } else {
                Step::Clear
            }
        }
        Step::Idle => {
            if choice.finishes {
                Step::Finish
            } else if choice.turns {
                Step::Load
            } else if choice.takes_release {
                Step::Release
            } else if choice.takes_request {
                Step::Store
            } else {
                Step::Idle
            }
        }
        Step::Load => Step::Fetch,
        Step::Fetch => Step::Lock,
        _ => Step::Idle,
    }
}

/// Executes the atomics of peers in host memory.
#[clocked(reset = "forgets all atomics. The host must have answered those before")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Atomics {
    /// From resolve: atomics in order; `ready` is a function of registers.
    pub request: StreamRx<AtomicRequest>,
    /// From ack; `ready` is a function of registers.
    pub release: StreamRx<AtomicRelease>,
    /// To the host reader: words of 8 bytes; registered.
    pub read: StreamTx<HostSpan>,
    /// From the host reader, in order.
    pub word: ValidRx<HostWord>,
    /// To the host writer; registered.
    pub write: StreamTx<WordWrite>,
    /// From the host writer: the oldest write is done.
    pub write_done: Signal<In, Bit>,
    /// The host refused that write.
    pub write_failed: Signal<In, Bit>,
    /// To the READ responder; registered.
    pub result: StreamTx<AtomicResult>,
    /// To control; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// Atomics that were taken and are not done; registered.
    pub level: Signal<Out, Bits<LEVEL_BITS>>,
    /// Those that read or write their word; registered.
    pub executing: Signal<Out, Bits<IN_FLIGHT_COUNT>>,

    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    records: Memory<Progress, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Ultra).with_words_log2(sizes().read_slots))]
    ring: Memory<Waiting, READ_POOL_BITS>,
    locks: Memory<Lock, LOCK_BITS>,
    #[init(Fifo::default().with_beats_log2(sizes().queue_pairs))]
    ready_queue: Fifo<Bits<QUEUE_PAIR_BITS>, QUEUE_PAIR_BITS, READY_COUNT_BITS>,
    reading: Fifo<Reading, IN_FLIGHT, IN_FLIGHT_COUNT>,
    arrived: Fifo<HostWord, IN_FLIGHT, IN_FLIGHT_COUNT>,
    written: Fifo<Written, IN_FLIGHT, IN_FLIGHT_COUNT>,
    #[init(Fifo::new(Storage::Distributed))]
    dones: Fifo<Bit, IN_FLIGHT, IN_FLIGHT_COUNT>,
    step: Reg<Step>,
    sweep: Reg<Bits<QUEUE_PAIR_BITS>>,
    /// A request or release was taken since the head of the ready queue had its turn.
    turn_is_next: Reg<Bit>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    in_flight_count: Reg<Bits<IN_FLIGHT_COUNT>>,
    open_count: Reg<Bits<LEVEL_BITS>>,
    read_address: DFF<Bits<64>>,
    has_read: Reg<Bit>,
    word_write: DFF<WordWrite>,
    has_write: Reg<Bit>,
    result_held: DFF<AtomicResult>,
    has_result: Reg<Bit>,
    periods: Periods<OPEN_BITS>,
}

/// Counts up, down, or not; never up and down at once.
#[kernel]
fn count_after(count: Bits<IN_FLIGHT_COUNT>, starts: Bit, ends: Bit) -> Bits<IN_FLIGHT_COUNT> {
    if ends {
        count - 1
    } else if starts {
        count + 1
    } else {
        count
    }
}

impl Logic for Atomics {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let step = self.step.q.val();
        let is_idle = step == Step::Idle;
        let clears = step == Step::Clear;
        let sweep = self.sweep.q.val();
        let request = self.request.beat.val();
        let release = self.release.beat.val();
        let queue_pair = self.queue_pair.q.val();

        // Completed atomics come first, since others wait for their word; then events and the ready queue in
        // turn.
        let finished = self.written.tx.beat.val();
        let is_done = self.written.tx.valid.val() && (!finished.has_write || self.dones.tx.valid.val());
        let finishes = is_idle && is_done && !self.has_result.q.val();
        let may_start = !self.in_flight_count.q.val().get_bit(IN_FLIGHT) && !self.has_read.q.val();
        let may_turn = self.ready_queue.tx.valid.val() && may_start;
        let has_event = self.release.valid.val() || self.request.valid.val();
        let turns = is_idle && !finishes && may_turn && (self.turn_is_next.q.val() || !has_event);
        let takes_event = is_idle && !finishes && !turns && has_event;
        let chosen = if finishes {
            finished.queue_pair
        } else if turns {
            self.ready_queue.tx.beat.val()
        } else if self.release.valid.val() {
            release.queue_pair
        } else {
            request.queue_pair
        };
        self.records.read(is_idle, chosen);
        self.ready_queue.tx.ready.next = turns;
        if is_idle {
            self.queue_pair.d.next = chosen;
        }
        let takes_release = takes_event && self.release.valid.val();
        let takes_request = takes_event && !self.release.valid.val();
        let choice = Choice { finishes, turns, takes_release, takes_request };
        self.step.d.next = next_step(step, choice, sweep.all());
        self.turn_is_next.d.next = takes_event || (self.turn_is_next.q.val() && !turns);
        if clears {
            self.sweep.d.next = sweep + 1;
        }
        let progress = self.records.read_data.val();

        // Requests and releases.
        let stores = step == Step::Store && has_room(progress, request.share);
        let releases = step == Step::Release;
        self.request.ready.next = stores;
        self.release.ready.next = releases;
        self.ring.write_enable.next = stores;
        self.ring.write_address.next = numbered_read_place(request.share, progress.stored);
        self.ring.write_data.next = waiting_of(request, self.periods.newer.val());

        // The oldest request begins if its word is free.
        self.ring.read(step == Step::Load, numbered_read_place(progress.share, progress.started));
        let oldest = self.ring.read_data.val();
        let lock = lock_of(oldest.address);
        self.locks.read(step == Step::Fetch || is_idle, select(is_idle, finished.lock, lock));
        let found = self.locks.read_data.val();
        let tries = step == Step::Lock;
        let draws = tries && !progress.has_ticket;
        let ticket = ticket_of(progress, found);
        let starts = tries && ticket == found.called;
        self.reading.rx.offer(starts, Reading { queue_pair, waiting: oldest });
        self.read.valid.next = self.has_read.q.val();
        self.read.beat.next = HostSpan { address: self.read_address.q.val(), length: bits(WORD_BYTES) };
        if starts {
            self.read_address.d.next = oldest.address;
            self.has_read.d.next = true;
        } else if self.read.ready.val() {
            self.has_read.d.next = false;
        }

        // The word arrives.
        self.arrived.rx.offer(self.word.valid.val(), self.word.value.val());
        let reading = self.reading.tx.beat.val();
        let word = self.arrived.tx.beat.val();
        let computes = self.reading.tx.valid.val() && self.arrived.tx.valid.val() && !self.has_write.q.val();
        self.reading.tx.ready.next = computes;
        self.arrived.tx.ready.next = computes;
        self.written.rx.offer(computes, written_of(reading, word));
        if computes {
            self.has_write.d.next = writes_word(reading.waiting.operands, word);
            self.word_write.d.next = write_of(reading.waiting, word);
        } else if self.write.ready.val() {
            self.has_write.d.next = false;
        }
        self.write.offer(self.has_write.q.val(), self.word_write.q.val());

        // The end of its write frees it.
        let ends = step == Step::Finish;
        self.dones.rx.offer(self.write_done.val(), self.write_failed.val());
        self.written.tx.ready.next = ends;
        self.dones.tx.ready.next = ends && finished.has_write;
        if ends {
            self.has_result.d.next = true;
            self.result_held.d.next = result_of(finished, queue_pair, self.dones.tx.beat.val());
        } else if self.result.ready.val() {
            self.has_result.d.next = false;
        }
        self.result.offer(self.has_result.q.val(), self.result_held.q.val());
        self.locks.write_enable.next = clears || draws || ends;
        let written_lock = select(ends, finished.lock, lock);
        self.locks.write_address.next = select(clears, sweep.get_bits::<LOCK_BITS>(0), written_lock);
        let free = Lock { next: bits::<TICKET_BITS>(0), called: bits::<TICKET_BITS>(0) };
        self.locks.write_data.next = select(clears, free, lock_after(found, draws, ends));
        self.in_flight_count.d.next = count_after(self.in_flight_count.q.val(), starts, ends);
        self.executing.next = self.in_flight_count.q.val();
        self.open_count.d.next = level_after(self.open_count.q.val(), stores, ends);
        self.level.next = self.open_count.q.val();

        // A queue pair is in the ready queue once, while it has a request that may begin.
        let changes = stores || releases || tries || ends;
        let change = Change { stores, releases, tries, starts, ends, share: request.share };
        let next = progress_after(progress, change, ticket);
        let begins = may_begin(next);
        self.ready_queue.rx.offer(changes && begins && !next.is_queued, queue_pair);
        self.records.write_enable.next = clears || changes;
        self.records.write_address.next = select(clears, sweep, queue_pair);
        let queued = Progress { is_queued: next.is_queued || begins, ..next };
        self.records.write_data.next = select(clears, Progress { ticket, ..Default::default() }, queued);

        self.periods.stores.next = stores;
        self.periods.ends.next = ends;
        self.periods.ended_period.next = finished.period;
        self.in_flight.next = self.periods.in_flight.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_rests_after_each_event_and_each_turn() {
        let none = Choice::default();
        let finishes = Choice { finishes: true, ..none };
        let turns = Choice { turns: true, ..none };
        let takes_release = Choice { takes_release: true, ..none };
        let takes_request = Choice { takes_request: true, ..none };
        for (step, choice, sweep_ends, expected) in [
            (Step::Clear, none, false, Step::Clear),
            (Step::Clear, none, true, Step::Idle),
            (Step::Idle, none, true, Step::Idle),
            (Step::Idle, finishes, false, Step::Finish),
            (Step::Idle, turns, false, Step::Load),
            (Step::Idle, takes_release, false, Step::Release),
            (Step::Idle, takes_request, false, Step::Store),
            (Step::Load, none, false, Step::Fetch),
            (Step::Fetch, none, false, Step::Lock),
            (Step::Lock, none, false, Step::Idle),
            (Step::Finish, none, false, Step::Idle),
            (Step::Release, none, false, Step::Idle),
            (Step::Store, none, false, Step::Idle),
        ] {
            assert_eq!(next_step(step, choice, sweep_ends), expected, "{step:?} {choice:?}");
        }
    }
}
