//! Receive entries: keeps those that will be consumed next on the card, since the host takes a microsecond to give one.
//!
//! ```text
//!  entry_request ──> Choose ─> Compare ─> Decide ──┬─> waiting ─> Look ─> Check ─> Offer ──> entry
//!  doorbells ────────^   queues, progress, tags    └─> receive_read        ^
//!                                                         host             │
//!                                   receive_slot ──> entries (256 lines), filled
//! ```
//!
//! A line holds eight entries of one ring, at a place that its queue pair and its number say. The entries of a ring are
//! fetched in order: up to 64 beyond the one that is consumed next, a whole line at a time, as long as they are posted; fewer only if
//! nothing else of the ring is here. A line that another ring has taken is fetched again from the entry that is asked for.
//!
//! Three cycles a request, and four more for each line that is fetched: 28 cycles for the eight entries of a line, if no
//! other ring takes it. Latency 8 cycles. Answers come in the order of the requests, because payload does: a miss holds
//! those behind it for one read of the host, in which up to four further lines are asked for. A setup event is taken
//! between two requests.
//!
//! 1. An entry is given as the host's memory holds it, once it is posted; one that was fetched is not read again while its line
//!    stays.
//! 2. No line is fetched while an earlier fetch for it is under way, nor while an entry of it is waited for.
//! 3. What was fetched before a restart is never given: an entry counts as fetched only when it lies before the queue pair's
//!    `fetched_index`, which a restart sets back, and everything before that was fetched since then.
//! 4. A request of another generation is answered as stale, without a read.
//! 5. While `enable` is low nothing is fetched ahead: packets that are here get their entries, and the ring comes to rest
//!    (DESIGN 3 decision 12).
//!
//! Reset sweeps the lines, and the records of all queue pairs, in 1024 cycles. Protocol 3.7; DESIGN 3 decision 9.
use crate::stages::{EntryRequest, ReceiveEntry};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::parameter::ParameterError;
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_token::doorbell::WorkPosted;
use rnic_token::host::{HostSpan, Slot};
use rnic_token::setup::{SetupEvent, SetupKind};
use rnic_token::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, SPAN_BITS, WORK_INDEX_BITS};

const RESET: u64 = QpState::Reset as u64;
/// Lines, as a power of two.
const LINE_BITS: usize = 8;
/// Entries of a line, as a power of two.
const PLACE_BITS: usize = 3;
/// Entries of a line.
const PLACES: u64 = 1 << PLACE_BITS;
/// Bits of the number of a line of a ring.
const NUMBER_BITS: usize = WORK_INDEX_BITS - PLACE_BITS;
/// Entries, as a power of two.
const ENTRY_BITS: usize = LINE_BITS + PLACE_BITS;
/// Entries that are fetched beyond the one that is consumed next: the smallest ring.
const AHEAD: u64 = 64;
/// Requests that wait for their entries.
const WAITING: usize = 4;

/// What commands say of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Queue {
    is_alive: Bit,
    generation: Bits<GENERATION_BITS>,
    base_page: Bits<52>,
    entries_log2: Bits<4>,
}

/// How far a ring is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Progress {
    /// Entries ever fetched.
    fetched_index: Bits<WORK_INDEX_BITS>,
    /// Entries ever asked for.
    consumed_index: Bits<WORK_INDEX_BITS>,
}

/// What a line holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Tag {
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    generation: Bits<GENERATION_BITS>,
    number: Bits<NUMBER_BITS>,
    /// First entry that is here.
    begin: Bits<4>,
    /// The entry behind the last one.
    end: Bits<4>,
    /// Turns with every fetch.
    lap: Bit,
}

/// What has come of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Filled {
    /// The lap of the last fetch that came.
    lap: Bit,
    /// It failed.
    error: Bit,
}

/// A fetch under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Fetch {
    line: Bits<LINE_BITS>,
    place: Bits<PLACE_BITS>,
    lap: Bit,
}

/// Entries to be read, whose address is still to be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Draft {
    base_page: Bits<52>,
    /// Entry of the ring, from 0 on.
    position: Bits<WORK_INDEX_BITS>,
    count: Bits<4>,
}

/// A request whose line is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Wait {
    line: Bits<LINE_BITS>,
    place: Bits<PLACE_BITS>,
    lap: Bit,
    is_stale: Bit,
}

/// What comparing found out about an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Findings {
    /// The queue pair is of the generation that is asked for.
    is_current: Bit,
    /// The tag is that of the line.
    is_line: Bit,
    /// And the entry is one of those in it.
    is_here: Bit,
    /// No fetch for the line is under way.
    is_quiet: Bit,
    /// Entries from this one to the end of the line, or to the last that is posted.
    count: Bits<4>,
    /// It is worth fetching it ahead.
    is_wanted: Bit,
    /// It was fetched since the restart.
    is_fetched: Bit,
    /// It stands right behind those of the line that are here.
    joins: Bit,
    /// Lap of the line.
    lap: Bit,
    /// There is a whole line to be fetched ahead.
    more_is_posted: Bit,
    /// The place of the line.
    line: Bits<LINE_BITS>,
    /// An entry of the line is waited for.
    is_awaited: Bit,
    /// Where the entry stands in its ring.
    position: Bits<WORK_INDEX_BITS>,
}

/// Where the machine is.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Clears the tables behind a reset.
    Clear,
    /// Chooses what to look up.
    Choose,
    /// A setup event meets the records.
    Setup,
    /// A wish meets the records.
    Compare,
    /// It is granted, or tried again.
    Decide,
    /// The new records of a queue pair can be read.
    Settle,
    /// The line that could be fetched ahead is looked up: first where that is.
    Ahead,
}

/// Where the answering machine is.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Answer {
    /// Looks up whether the line has come.
    Look,
    /// If it has, reads the entry.
    Check,
    /// The entry is there.
    Offer,
}

/// The block.
#[derive(LogicBlock, Registers)]
pub struct ReceiveEntries {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets entries and queue pairs.
    pub reset: Signal<In, Bit>,
    /// From control: entries may be fetched ahead. Those that are asked for are fetched without it.
    pub enable: Signal<In, Bit>,
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// From the doorbells.
    pub receive_posted: Signal<In, WorkPosted>,
    /// There is one; it is taken in any case.
    pub receive_posted_valid: Signal<In, Bit>,
    /// From admission; `ready` is a function of registers.
    pub request: StreamRx<EntryRequest>,
    /// One entry for each; registered.
    pub entry: StreamTx<ReceiveEntry>,
    /// To the host, 64 to 512 bytes at a multiple of 64; registered.
    pub receive_read: StreamTx<HostSpan>,
    /// From the host.
    pub receive_slot: Signal<In, Slot>,
    /// There is one; it is taken in any case.
    pub receive_slot_valid: Signal<In, Bit>,
    /// A read was asked for; registered.
    pub fetches: Signal<Out, Bit>,
    /// A read has come to its end; registered.
    pub fetched: Signal<Out, Bit>,

    queues: Memory<Queue, QUEUE_PAIR_BITS>,
    progress: Memory<Progress, QUEUE_PAIR_BITS>,
    producers: Memory<Bits<WORK_INDEX_BITS>, QUEUE_PAIR_BITS>,
    tags: Memory<Tag, LINE_BITS>,
    /// For looking up.
    filled: Memory<Filled, LINE_BITS>,
    /// The same, for answering.
    filled_copy: Memory<Filled, LINE_BITS>,
    entries: Memory<Bits<512>, ENTRY_BITS>,
    /// Queue pairs whose doorbell rang; those that find no room are fetched when they are asked for.
    rung: Fifo<Bits<QUEUE_PAIR_BITS>, 4, 5>,
    fetch_queue: Fifo<Fetch, 5, 6>,
    reads: RegisterSlice<HostSpan>,
    draft: DFF<Draft>,
    has_draft: Reg<Bit>,

    step: Reg<Step>,
    sweep: Reg<Bits<QUEUE_PAIR_BITS>>,
    /// What is looked up is a request, else a line to be fetched ahead.
    is_demand: Reg<Bit>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    generation: DFF<Bits<GENERATION_BITS>>,
    index: DFF<Bits<WORK_INDEX_BITS>>,
    found: DFF<Findings>,
    /// The record of the queue pair that is looked up.
    record: DFF<Progress>,
    waiting: [DFF<Wait>; WAITING],
    waiting_valid: [Reg<Bit>; WAITING],
    answer: Reg<Answer>,
    answer_error: DFF<Bit>,
    answer_is_stale: DFF<Bit>,
    arrived_count: Reg<Bits<PLACE_BITS>>,
    fetches_now: Reg<Bit>,
    fetched_now: Reg<Bit>,
}

impl ReceiveEntries {
    /// Makes an empty block.
    ///
    /// # Errors
    /// None with the widths that are built in.
    pub fn new() -> Result<Self, ParameterError> {
        Ok(ReceiveEntries {
            clock: Signal::default(),
            reset: Signal::default(),
            enable: Signal::default(),
            setup: StreamRx::default(),
            receive_posted: Signal::default(),
            receive_posted_valid: Signal::default(),
            request: StreamRx::default(),
            entry: StreamTx::default(),
            receive_read: StreamTx::default(),
            receive_slot: Signal::default(),
            receive_slot_valid: Signal::default(),
            fetches: Signal::default(),
            fetched: Signal::default(),
            queues: Memory::new(Storage::Block)?,
            progress: Memory::new(Storage::Block)?,
            producers: Memory::new(Storage::Block)?,
            tags: Memory::new(Storage::Block)?,
            filled: Memory::new(Storage::Distributed)?,
            filled_copy: Memory::new(Storage::Distributed)?,
            entries: Memory::new(Storage::Ultra)?,
            rung: Fifo::new(Storage::Distributed)?,
            fetch_queue: Fifo::new(Storage::Distributed)?,
            reads: RegisterSlice::default(),
            draft: DFF::default(),
            has_draft: Reg::default(),
            step: Reg::new(Step::Clear),
            sweep: Reg::default(),
            is_demand: Reg::default(),
            queue_pair: DFF::default(),
            generation: DFF::default(),
            index: DFF::default(),
            found: DFF::default(),
            record: DFF::default(),
            waiting: Default::default(),
            waiting_valid: Default::default(),
            answer: Reg::new(Answer::Look),
            answer_error: DFF::default(),
            answer_is_stale: DFF::default(),
            arrived_count: Reg::default(),
            fetches_now: Reg::default(),
            fetched_now: Reg::default(),
        })
    }
}

/// The place of a line: neighbouring lines of a ring lie side by side, and rings lie far apart.
#[kernel]
fn line_of(queue_pair: Bits<QUEUE_PAIR_BITS>, index: Bits<WORK_INDEX_BITS>) -> Bits<LINE_BITS> {
    let reversed: Bits<LINE_BITS> = cat!(
        queue_pair.get_bit(0),
        queue_pair.get_bit(1),
        queue_pair.get_bit(2),
        queue_pair.get_bit(3),
        queue_pair.get_bit(4),
        queue_pair.get_bit(5),
        queue_pair.get_bit(6),
        queue_pair.get_bit(7)
    );
    reversed ^ index.get_bits::<LINE_BITS>(PLACE_BITS)
}

impl Logic for ReceiveEntries {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        clock!(
            self,
            clock,
            queues,
            progress,
            producers,
            tags,
            filled,
            filled_copy,
            entries,
            rung,
            fetch_queue,
            reads
        );
        self.rung.reset.next = self.reset.val();
        self.fetch_queue.reset.next = self.reset.val();
        self.reads.reset.next = self.reset.val();
        StreamTx::<HostSpan>::link(&mut self.receive_read, &mut self.reads.tx);
        let posted = self.receive_posted.val();
        let rings = self.receive_posted_valid.val();
        self.rung.rx.valid.next = rings;
        self.rung.rx.beat.next = posted.queue_pair;

        // What is looked up: the oldest request, or the ring of a doorbell.
        let step = self.step.q.val();
        let event = self.setup.beat.val();
        let chooses = step == Step::Choose;
        let has_place = !self.waiting_valid[WAITING - 1].q.val();
        let takes_event = chooses && self.setup.valid.val();
        let demands = chooses && !takes_event && self.request.valid.val() && has_place;
        let follows = chooses
            && !takes_event
            && !self.request.valid.val()
            && self.rung.tx.valid.val()
            && self.enable.val();
        self.rung.tx.ready.next = follows;
        let wish = self.request.beat.val();
        let queue_pair = self.queue_pair.q.val();
        if takes_event {
            self.step.d.next = Step::Setup;
        } else if demands {
            self.step.d.next = Step::Compare;
            self.is_demand.d.next = true;
            self.queue_pair.d.next = wish.queue_pair;
            self.generation.d.next = wish.generation;
            self.index.d.next = wish.index;
        } else if follows {
            self.step.d.next = Step::Ahead;
            self.is_demand.d.next = false;
            self.queue_pair.d.next = self.rung.tx.beat.val();
        }
        let asked = if takes_event {
            event.queue_pair
        } else if demands {
            wish.queue_pair
        } else if chooses {
            self.rung.tx.beat.val()
        } else {
            queue_pair
        };
        self.queues.read_enable.next = true;
        self.queues.read_address.next = asked;
        self.progress.read_enable.next = true;
        self.progress.read_address.next = asked;
        self.producers.read_enable.next = true;
        self.producers.read_address.next = asked;
        let queue = self.queues.read_data.val();
        let producer = self.producers.read_data.val();
        let record = self.progress.read_data.val();

        // A line ahead is known once the record is there; then its tag is read.
        let is_ahead = step == Step::Ahead;
        if is_ahead {
            self.index.d.next = record.fetched_index;
            self.generation.d.next = queue.generation;
            self.step.d.next = Step::Compare;
        }
        let line_asked = if is_ahead {
            line_of(queue_pair, record.fetched_index)
        } else if chooses {
            line_of(wish.queue_pair, wish.index)
        } else {
            line_of(queue_pair, self.index.q.val())
        };
        self.tags.read_enable.next = true;
        self.tags.read_address.next = line_asked;
        self.filled.read_enable.next = true;
        self.filled.read_address.next = line_asked;
        let tag = self.tags.read_data.val();
        let filled = self.filled.read_data.val();

        if step == Step::Settle {
            self.step.d.next = Step::Ahead;
        }

        // Comparing.
        let index = self.index.q.val();
        let is_demand = self.is_demand.q.val();
        let place: Bits<4> = cat!(bits::<1>(0), index.get_bits::<PLACE_BITS>(0));
        let to_end = bits::<4>(PLACES) - place;
        let posted_count = producer - index;
        let fewer = posted_count < bit_cast::<WORK_INDEX_BITS, 4>(to_end);
        let is_line = tag.queue_pair == queue_pair
            && tag.generation == self.generation.q.val()
            && tag.number == index.get_bits::<NUMBER_BITS>(PLACE_BITS);
        let distance = record.fetched_index - record.consumed_index;
        let unfetched = index - record.fetched_index;
        let beyond_fetched = producer - record.fetched_index;
        let rest_of_line =
            bits::<4>(PLACES) - cat!(bits::<1>(0), record.fetched_index.get_bits::<PLACE_BITS>(0));
        // A line of which an entry is waited for stays.
        let line_looked_at = line_of(queue_pair, index);
        let is_awaited = (self.waiting_valid[0].q.val() && self.waiting[0].q.val().line == line_looked_at)
            || (self.waiting_valid[1].q.val() && self.waiting[1].q.val().line == line_looked_at)
            || (self.waiting_valid[2].q.val() && self.waiting[2].q.val().line == line_looked_at)
            || (self.waiting_valid[3].q.val() && self.waiting[3].q.val().line == line_looked_at);
        if step == Step::Compare {
            self.step.d.next = Step::Decide;
            self.record.d.next = record;
            self.found.d.next = Findings {
                is_current: queue.is_alive && queue.generation == self.generation.q.val(),
                is_line,
                is_here: is_line && place >= tag.begin && place < tag.end,
                is_quiet: tag.lap == filled.lap,
                count: if !fewer {
                    to_end
                } else if posted_count.any() {
                    posted_count.get_bits::<4>(0)
                } else {
                    bits::<4>(1)
                },
                is_wanted: posted_count.any()
                    && !posted_count.get_bit(WORK_INDEX_BITS - 1)
                    && distance < AHEAD
                    && (!fewer || !distance.any()),
                is_fetched: unfetched.get_bit(WORK_INDEX_BITS - 1),
                joins: is_line
                    && tag.end == place
                    && record.fetched_index == index
                    && place.any()
                    && !filled.error,
                lap: tag.lap,
                more_is_posted: distance < AHEAD
                    && beyond_fetched >= bit_cast::<WORK_INDEX_BITS, 4>(rest_of_line)
                    && !beyond_fetched.get_bit(WORK_INDEX_BITS - 1),
                line: line_looked_at,
                is_awaited,
                position: index & !(bits::<WORK_INDEX_BITS>(0xffff) << queue.entries_log2),
            };
        }

        // Deciding.
        let found = self.found.q.val();
        let decides = step == Step::Decide;
        let line = found.line;
        let may_fetch =
            found.is_quiet && !found.is_awaited && !self.has_draft.q.val() && self.fetch_queue.rx.ready.val();
        let hits = found.is_here && found.is_fetched;
        let is_stale = is_demand && !found.is_current;
        let fetches = decides
            && found.is_current
            && may_fetch
            && select(is_demand, !hits, found.is_wanted && !found.is_fetched);
        let answers = decides && is_demand && (is_stale || hits || fetches);
        let record_held = self.record.q.val();
        let end = place + found.count;
        let behind = index + bit_cast::<WORK_INDEX_BITS, 4>(found.count);
        let lap = select(fetches, !found.lap, found.lap);
        let beyond = behind - record_held.fetched_index;
        let behind_fetched = !beyond.any() || beyond.get_bit(WORK_INDEX_BITS - 1);
        self.request.ready.next = answers;
        if decides {
            // What could be fetched ahead of a request that was granted is looked at next.
            let looks_ahead = fetches || (answers && found.more_is_posted && !is_stale);
            self.step.d.next = select(looks_ahead && self.enable.val(), Step::Settle, Step::Choose);
            self.is_demand.d.next = false;
        }

        // The address is added up a cycle later.
        if fetches {
            self.draft.d.next =
                Draft { base_page: queue.base_page, position: found.position, count: found.count };
        }
        let draft = self.draft.q.val();
        let page = draft.base_page + bit_cast::<52, 10>(draft.position.get_bits::<10>(6));
        self.has_draft.d.next = fetches || (self.has_draft.q.val() && !self.reads.rx.ready.val());
        self.reads.rx.valid.next = self.has_draft.q.val();
        self.reads.rx.beat.next = HostSpan {
            address: cat!(page, draft.position.get_bits::<6>(0), bits::<6>(0)),
            length: bit_cast::<SPAN_BITS, 4>(draft.count) << 6,
        };
        self.fetch_queue.rx.valid.next = fetches;
        self.fetch_queue.rx.beat.next = Fetch { line, place: index.get_bits::<PLACE_BITS>(0), lap };
        self.fetches_now.d.next = fetches;
        self.fetches.next = self.fetches_now.q.val();

        // The tables. A doorbell in the same cycle is first: the producer index has one port to write.
        let clears = step == Step::Clear && !rings;
        let applies = step == Step::Setup && !rings;
        let restarts = applies && event.kind == SetupKind::Restart;
        let sweep = self.sweep.q.val();
        self.setup.ready.next = applies;
        if applies {
            self.step.d.next = Step::Choose;
        }
        if clears {
            self.sweep.d.next = sweep + 1;
            if sweep.all() {
                self.step.d.next = Step::Choose;
            }
        }
        self.tags.write_enable.next = clears || fetches;
        self.tags.write_address.next = select(clears, sweep.get_bits::<LINE_BITS>(0), line);
        self.tags.write_data.next = Tag {
            queue_pair,
            generation: self.generation.q.val(),
            number: index.get_bits::<NUMBER_BITS>(PLACE_BITS),
            // What is fetched right behind that which is here joins it.
            begin: select(found.joins, tag.begin, place),
            end: select(clears, bits::<4>(0), end),
            lap: select(clears, false, lap),
        };
        self.progress.write_enable.next = clears || restarts || answers || fetches;
        self.progress.write_address.next = if clears {
            sweep
        } else if applies {
            event.queue_pair
        } else {
            queue_pair
        };
        let begins = clears || restarts;
        let moves = fetches && !behind_fetched;
        self.progress.write_data.next = Progress {
            fetched_index: if begins {
                bits::<WORK_INDEX_BITS>(0)
            } else if moves {
                behind
            } else {
                record_held.fetched_index
            },
            consumed_index: if begins {
                bits::<WORK_INDEX_BITS>(0)
            } else if is_demand && !is_stale {
                index + 1
            } else {
                record_held.consumed_index
            },
        };
        self.queues.write_enable.next = clears || applies;
        self.queues.write_address.next = select(clears, sweep, event.queue_pair);
        self.queues.write_data.next = Queue {
            is_alive: event.state != RESET && !clears,
            generation: event.generation,
            base_page: event.path.receive_base_page,
            entries_log2: event.path.receive_entries_log2,
        };
        self.producers.write_enable.next = rings || begins;
        self.producers.write_address.next = if rings {
            posted.queue_pair
        } else if clears {
            sweep
        } else {
            event.queue_pair
        };
        self.producers.write_data.next = select(rings, posted.producer_index, bits::<WORK_INDEX_BITS>(0));

        // What comes from the host.
        let slot = self.receive_slot.val();
        let arrives = self.receive_slot_valid.val();
        let fetch = self.fetch_queue.tx.beat.val();
        let completes = arrives && slot.last;
        self.fetch_queue.tx.ready.next = completes;
        self.entries.write_enable.next = arrives;
        self.entries.write_address.next = cat!(fetch.line, fetch.place + self.arrived_count.q.val());
        self.entries.write_data.next = slot.data;
        if arrives {
            self.arrived_count.d.next =
                select(slot.last, bits::<PLACE_BITS>(0), self.arrived_count.q.val() + 1);
        }
        self.fetched_now.d.next = completes;
        self.fetched.next = self.fetched_now.q.val();
        let fills = Filled { lap: fetch.lap && !clears, error: slot.error && !clears };
        let filled_line = select(clears, sweep.get_bits::<LINE_BITS>(0), fetch.line);
        self.filled.write_enable.next = clears || completes;
        self.filled.write_address.next = filled_line;
        self.filled.write_data.next = fills;
        self.filled_copy.write_enable.next = clears || completes;
        self.filled_copy.write_address.next = filled_line;
        self.filled_copy.write_data.next = fills;

        // Requests wait in order for what they were granted.
        let answer = self.answer.q.val();
        let head = self.waiting[0].q.val();
        let head_valid = self.waiting_valid[0].q.val();
        let seen = self.filled_copy.read_data.val();
        self.filled_copy.read_enable.next = true;
        self.filled_copy.read_address.next = head.line;
        let is_here = head.is_stale || seen.lap == head.lap;
        let reads = answer == Answer::Check && is_here;
        self.entries.read_enable.next = reads;
        self.entries.read_address.next = cat!(head.line, head.place);
        if answer == Answer::Look && head_valid {
            self.answer.d.next = Answer::Check;
        }
        if reads {
            self.answer.d.next = Answer::Offer;
            self.answer_error.d.next = seen.error;
            self.answer_is_stale.d.next = head.is_stale;
        }
        let leaves = answer == Answer::Offer && self.entry.ready.val();
        if leaves {
            self.answer.d.next = Answer::Look;
        }
        self.entry.valid.next = answer == Answer::Offer;
        self.entry.beat.next = ReceiveEntry {
            data: self.entries.read_data.val(),
            error: self.answer_error.q.val(),
            is_stale: self.answer_is_stale.q.val(),
        };
        let granted = Wait { line, place: index.get_bits::<PLACE_BITS>(0), lap, is_stale };
        for place in 0..WAITING {
            // A place is filled from behind when the head leaves, and by a new request when it is the first that is free.
            let is_held = self.waiting_valid[place].q.val();
            let before = if place == 0 { true } else { self.waiting_valid[place - 1].q.val() };
            let next_held = if place == WAITING - 1 { false } else { self.waiting_valid[place + 1].q.val() };
            let next = if place == WAITING - 1 {
                self.waiting[place].q.val()
            } else {
                self.waiting[place + 1].q.val()
            };
            let enters = answers && select(leaves, is_held && !next_held, before && !is_held);
            if enters {
                self.waiting[place].d.next = granted;
            } else if leaves {
                self.waiting[place].d.next = next;
            }
            self.waiting_valid[place].d.next = enters || select(leaves, next_held, is_held);
        }
    }
}
