//! Atomics: does atomics in host memory.
//!
//! An atomic takes two ways through the host link, so many of them are under way at a time, each on a word of its own. Which words
//! those are a table of locks says, by a few bits of the address: two that meet there run one after the other, which is
//! always right and seldom needless. Who finds a lock taken draws a number and comes back in turn until it is called.
//!
//! ```text
//!             ┌──────────────────────────────────────────────────────────────┐
//!  job ──────>│ ring (16 a queue pair)                                       │
//!  release ──>│ how many may be done ──> line <─────────────────┐            │
//!             │                           v                     │ locked     │
//!             │                     oldest job ──> its lock ────┤            │
//!             │                                                 v            │
//!             │                                     asked (128) ─────────────┼──> read
//!  word ──────┼──> arrived ──> compare, add <─────────┘                      │
//!             │                  └──> written (128) ─────────────────────────┼──> write
//!  write_done ┼──> unlock <───────────┘                                      │
//!             │      └───────────────────────────────────────────────────────┼──> result
//!             └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! An atomic takes 10 cycles of the machine, 4 more each time it finds its word locked. Latency 7 cycles from `release` to `read`, 3
//! from `word` to `write`, 4 from `write_done` to `result`.
//!
//! 1. Atomics of a queue pair are done in the order of their jobs, each once and only when released, and one after the other: the
//!    next one begins when the host has done the write of the one before.
//! 2. From the read of a word to the end of its write no other atomic reads it, of whatever queue pair. There is no order
//!    between queue pairs; those that wait for a word get it in the order in which they came to it.
//! 3. FETCH_ADD always writes, COMPARE_SWAP only when the word is what it must be: a word that stays is not touched.
//! 4. What the host does not give is not written; what it does not give or not take has failed, and so says the result.
//! 5. Nothing here waits for the wire, so what waits for an atomic waits for the host alone (design decision 4).
//! 6. Every job is done once it was taken, whatever becomes of its queue pair: like a WRITE that was admitted.
//! 7. `passage`: atomics belong to periods, of which two can be open. A new one begins when there is something in the newer and
//!    nothing in the older, and counts as entered; it has left when all of it and of those before is done. So what
//!    comes later is not waited for, although atomics overtake each other.
//!
//! A queue pair may have 16 jobs that have not begun; one more waits, and with it all jobs. Reset forgets all, in 1,024 cycles.
//! Protocol 3.5, 3.7.
use crate::messages::{AtomicJob, AtomicOperands, AtomicRelease, AtomicResult};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{HostSpan, HostWord, WordWrite};
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS};
use rnic_messages::setup::InFlight;
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS};

/// Bytes of a word.
const WORD_BYTES: u64 = 8;
/// Bits of an address that choose a lock.
const LOCK_BITS: usize = 9;
/// Atomics between read and result, as a power of two.
const UNDER_WAY: usize = 7;
const UNDER_WAY_COUNT: usize = UNDER_WAY + 1;
const RING_BITS: usize = QUEUE_PAIR_BITS + READ_SLOT_BITS;
const LINE_COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;
/// Bits of a count of all that can wait.
const OPEN_BITS: usize = RING_BITS + 1;

/// Bits of a number that is drawn: each queue pair has one at most.
const TICKET_BITS: usize = QUEUE_PAIR_BITS + 1;

/// A lock: free if the number that is drawn next is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Lock {
    next: Bits<TICKET_BITS>,
    called: Bits<TICKET_BITS>,
}

/// How far a queue pair is. Counts are free-running.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Progress {
    /// Jobs that ever came.
    stored: Bits<READ_COUNT_BITS>,
    /// Those that may be done.
    released: Bits<READ_COUNT_BITS>,
    /// Those that have begun.
    started: Bits<READ_COUNT_BITS>,
    /// The last of these is not done.
    is_under_way: Bit,
    is_in_line: Bit,
    /// The oldest job has found its lock taken, and drawn this number.
    has_ticket: Bit,
    ticket: Bits<TICKET_BITS>,
}

/// A job in its place in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Waiting {
    generation: Bits<GENERATION_BITS>,
    slot: Bits<READ_SLOT_BITS>,
    /// To which of two periods it belongs.
    period: Bit,
    address: Bits<64>,
    operands: AtomicOperands,
}

/// An atomic whose word was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Asked {
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    waiting: Waiting,
}

/// An atomic that has its word.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Written {
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    generation: Bits<GENERATION_BITS>,
    slot: Bits<READ_SLOT_BITS>,
    period: Bit,
    lock: Bits<LOCK_BITS>,
    original: Bits<64>,
    /// A write is to be waited for.
    has_write: Bit,
    has_failed: Bit,
}

/// What the machine does.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Clears the records behind a reset.
    Clear,
    /// Chooses.
    Idle,
    /// An atomic is done; a release; a job.
    Finish,
    Release,
    Store,
    /// A turn: the place of the oldest job, the job, its lock.
    Load,
    Fetch,
    Lock,
}

/// The block.
#[derive(LogicBlock, Registers, Construct)]
pub struct Atomics {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all atomics. The host must have answered those before.
    pub reset: Signal<In, Bit>,
    /// From conclude: atomics in order; `ready` is a function of registers.
    pub job: StreamRx<AtomicJob>,
    /// From reply; `ready` is a function of registers.
    pub release: StreamRx<AtomicRelease>,
    /// To the host reader: words of 8 bytes; registered.
    pub read: StreamTx<HostSpan>,
    /// From it, in order.
    pub word: Signal<In, HostWord>,
    /// There is one; it is taken in any case.
    pub word_valid: Signal<In, Bit>,
    /// To the host writer; registered.
    pub write: StreamTx<WordWrite>,
    /// From it: the oldest write is done.
    pub write_done: Signal<In, Bit>,
    /// The host refused it.
    pub write_failed: Signal<In, Bit>,
    /// To serve; registered.
    pub result: StreamTx<AtomicResult>,
    /// To control; registered.
    pub in_flight: Signal<Out, InFlight>,

    records: Memory<Progress, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Ultra))]
    ring: Memory<Waiting, RING_BITS>,
    locks: Memory<Lock, LOCK_BITS>,
    line: Fifo<Bits<QUEUE_PAIR_BITS>, QUEUE_PAIR_BITS, LINE_COUNT_BITS>,
    asked: Fifo<Asked, UNDER_WAY, UNDER_WAY_COUNT>,
    arrived: Fifo<HostWord, UNDER_WAY, UNDER_WAY_COUNT>,
    written: Fifo<Written, UNDER_WAY, UNDER_WAY_COUNT>,
    #[init(Fifo::new(Storage::Distributed))]
    dones: Fifo<Bit, UNDER_WAY, UNDER_WAY_COUNT>,
    step: Reg<Step>,
    sweep: Reg<Bits<QUEUE_PAIR_BITS>>,
    /// A job or release was taken since the last turn.
    turn_is_next: Reg<Bit>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    under_way: Reg<Bits<UNDER_WAY_COUNT>>,
    read_address: DFF<Bits<64>>,
    has_read: Reg<Bit>,
    word_write: DFF<WordWrite>,
    has_write: Reg<Bit>,
    result_held: DFF<AtomicResult>,
    has_result: Reg<Bit>,
    /// Atomics of the periods that are open: those of even number, and of odd number.
    open: [Reg<Bits<OPEN_BITS>>; 2],
    /// Number of the newer one.
    period: Reg<Bits<16>>,
    passed: Reg<InFlight>,
}

/// Which lock a word has: its place in its page, which is the same by whatever region and pages it is reached.
#[kernel]
pub(crate) fn lock_of(address: Bits<64>) -> Bits<LOCK_BITS> {
    address.get_bits::<LOCK_BITS>(3)
}

impl Logic for Atomics {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let step = self.step.q.val();
        let is_idle = step == Step::Idle;
        let clears = step == Step::Clear;
        let sweep = self.sweep.q.val();
        let job = self.job.beat.val();
        let release = self.release.beat.val();
        let queue_pair = self.queue_pair.q.val();

        // Who is next: what is done first, since others wait for its word; of the rest events and turns.
        let finished = self.written.tx.beat.val();
        let is_done = self.written.tx.valid.val() && (!finished.has_write || self.dones.tx.valid.val());
        let finishes = is_idle && is_done && !self.has_result.q.val();
        let may_start = !self.under_way.q.val().get_bit(UNDER_WAY) && !self.has_read.q.val();
        let may_turn = self.line.tx.valid.val() && may_start;
        let has_event = self.release.valid.val() || self.job.valid.val();
        let turns = is_idle && !finishes && may_turn && (self.turn_is_next.q.val() || !has_event);
        let takes_event = is_idle && !finishes && !turns && has_event;
        let chosen = if finishes {
            finished.queue_pair
        } else if turns {
            self.line.tx.beat.val()
        } else if self.release.valid.val() {
            release.queue_pair
        } else {
            job.queue_pair
        };
        self.records.read_enable.next = is_idle;
        self.records.read_address.next = chosen;
        self.line.tx.ready.next = turns;
        if is_idle {
            self.queue_pair.d.next = chosen;
        }
        if finishes {
            self.step.d.next = Step::Finish;
        }
        if turns {
            self.step.d.next = Step::Load;
            self.turn_is_next.d.next = false;
        }
        if takes_event {
            self.step.d.next = if self.release.valid.val() { Step::Release } else { Step::Store };
            self.turn_is_next.d.next = true;
        }
        if clears {
            self.sweep.d.next = sweep + 1;
            if sweep.all() {
                self.step.d.next = Step::Idle;
            }
        }
        let progress = self.records.read_data.val();

        // A job and a release.
        let has_room = !(progress.stored - progress.started).get_bit(READ_SLOT_BITS);
        let stores = step == Step::Store && has_room;
        let releases = step == Step::Release;
        let newer = self.period.q.val().get_bit(0);
        self.job.ready.next = stores;
        self.release.ready.next = releases;
        self.ring.write_enable.next = stores;
        self.ring.write_address.next = cat!(queue_pair, progress.stored.get_bits::<READ_SLOT_BITS>(0));
        self.ring.write_data.next = Waiting {
            generation: job.generation,
            slot: job.slot,
            period: newer,
            address: job.address,
            operands: job.operands,
        };

        // A turn: the oldest job begins, if its word is free.
        self.ring.read_enable.next = step == Step::Load;
        self.ring.read_address.next = cat!(queue_pair, progress.started.get_bits::<READ_SLOT_BITS>(0));
        let oldest = self.ring.read_data.val();
        let lock = lock_of(oldest.address);
        self.locks.read_enable.next = step == Step::Fetch || is_idle;
        self.locks.read_address.next = select(is_idle, finished.lock, lock);
        let found = self.locks.read_data.val();
        let tries = step == Step::Lock;
        let draws = tries && !progress.has_ticket;
        let ticket = select(progress.has_ticket, progress.ticket, found.next);
        let starts = tries && ticket == found.called;
        if step == Step::Load {
            self.step.d.next = Step::Fetch;
        }
        if step == Step::Fetch {
            self.step.d.next = Step::Lock;
        }
        if step == Step::Finish || step == Step::Store || releases || tries {
            self.step.d.next = Step::Idle;
        }
        self.asked.rx.valid.next = starts;
        self.asked.rx.beat.next = Asked { queue_pair, waiting: oldest };
        let reads = self.has_read.q.val();
        self.read.valid.next = reads;
        self.read.beat.next = HostSpan { address: self.read_address.q.val(), length: bits(WORD_BYTES) };
        if starts {
            self.read_address.d.next = oldest.address;
            self.has_read.d.next = true;
        } else if self.read.ready.val() {
            self.has_read.d.next = false;
        }

        // The word comes.
        self.arrived.rx.valid.next = self.word_valid.val();
        self.arrived.rx.beat.next = self.word.val();
        let asked = self.asked.tx.beat.val();
        let operands = asked.waiting.operands;
        let word = self.arrived.tx.beat.val();
        let goes = self.asked.tx.valid.val() && self.arrived.tx.valid.val() && !self.has_write.q.val();
        let is_changed = !operands.is_compare || word.data == operands.compare;
        let writes = is_changed && !word.error;
        self.asked.tx.ready.next = goes;
        self.arrived.tx.ready.next = goes;
        self.written.rx.valid.next = goes;
        self.written.rx.beat.next = Written {
            queue_pair: asked.queue_pair,
            generation: asked.waiting.generation,
            slot: asked.waiting.slot,
            period: asked.waiting.period,
            lock: lock_of(asked.waiting.address),
            original: select(word.error, bits::<64>(0), word.data),
            has_write: writes,
            has_failed: word.error,
        };
        if goes {
            self.has_write.d.next = writes;
            self.word_write.d.next = WordWrite {
                address: asked.waiting.address,
                data: select(operands.is_compare, operands.operand, word.data + operands.operand),
            };
        } else if self.write.ready.val() {
            self.has_write.d.next = false;
        }
        self.write.valid.next = self.has_write.q.val();
        self.write.beat.next = self.word_write.q.val();

        // And the end of its write, which frees it.
        let ends = step == Step::Finish;
        self.dones.rx.valid.next = self.write_done.val();
        self.dones.rx.beat.next = self.write_failed.val();
        self.written.tx.ready.next = ends;
        self.dones.tx.ready.next = ends && finished.has_write;
        if ends {
            self.has_result.d.next = true;
            self.result_held.d.next = AtomicResult {
                queue_pair,
                generation: finished.generation,
                slot: finished.slot,
                original: finished.original,
                has_failed: finished.has_failed || (finished.has_write && self.dones.tx.beat.val()),
            };
        } else if self.result.ready.val() {
            self.has_result.d.next = false;
        }
        self.result.valid.next = self.has_result.q.val();
        self.result.beat.next = self.result_held.q.val();
        self.locks.write_enable.next = clears || draws || ends;
        self.locks.write_address.next = if clears {
            sweep.get_bits::<LOCK_BITS>(0)
        } else if ends {
            finished.lock
        } else {
            lock
        };
        self.locks.write_data.next = Lock {
            next: if clears {
                bits::<TICKET_BITS>(0)
            } else if draws {
                found.next + 1
            } else {
                found.next
            },
            called: if clears {
                bits::<TICKET_BITS>(0)
            } else if ends {
                found.called + 1
            } else {
                found.called
            },
        };
        if starts {
            self.under_way.d.next = self.under_way.q.val() + 1;
        }
        if ends {
            self.under_way.d.next = self.under_way.q.val() - 1;
        }

        // A queue pair stands in line once, while it has a job that may begin.
        let stored = select(stores, progress.stored + 1, progress.stored);
        let released = select(releases, progress.released + 1, progress.released);
        let started = select(starts, progress.started + 1, progress.started);
        let is_under_way = starts || (progress.is_under_way && !ends);
        let may_begin = stored != started && released != started && !is_under_way;
        let is_in_line = progress.is_in_line && !tries;
        let changes = stores || releases || tries || ends;
        self.line.rx.valid.next = changes && may_begin && !is_in_line;
        self.line.rx.beat.next = queue_pair;
        self.records.write_enable.next = clears || changes;
        self.records.write_address.next = select(clears, sweep, queue_pair);
        self.records.write_data.next = Progress {
            stored: select(clears, bits::<READ_COUNT_BITS>(0), stored),
            released: select(clears, bits::<READ_COUNT_BITS>(0), released),
            started: select(clears, bits::<READ_COUNT_BITS>(0), started),
            is_under_way: is_under_way && !clears,
            is_in_line: (is_in_line || may_begin) && !clears,
            has_ticket: select(tries, !starts, progress.has_ticket) && !clears,
            ticket,
        };

        // The periods.
        let is_odd = finished.period;
        for i in 0..2 {
            let is_newer = if i == 0 { !newer } else { newer };
            let is_its = if i == 0 { !is_odd } else { is_odd };
            if stores && is_newer {
                self.open[i].d.next = self.open[i].q.val() + 1;
            }
            if ends && is_its {
                self.open[i].d.next = self.open[i].q.val() - 1;
            }
        }
        let even_open = self.open[0].q.val().any();
        let odd_open = self.open[1].q.val().any();
        let has_newer = select(newer, odd_open, even_open);
        let has_older = select(newer, even_open, odd_open);
        let period = self.period.q.val();
        if has_newer && !has_older {
            self.period.d.next = period + 1;
        }
        self.passed.d.next = InFlight {
            entered: period + 1,
            left: if has_older {
                period - 1
            } else if has_newer {
                period
            } else {
                period + 1
            },
        };
        self.in_flight.next = self.passed.q.val();
    }
}
