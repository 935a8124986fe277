//! Prefetch of receive WQEs: keeps the next WQEs of each ring on the card, since the host takes a microsecond
//! to deliver one.
//!
//! ```text
//!  request ──> Choose ─> Check (─> Turn) ──> granted ──────────────────> entries ──> errors ──> wqe
//!                  │        │ a line begins or nothing is left               ^
//!                  │ misses └────────┐                                       │
//!                  v                 v notices                               │
//!  setup ──────> Choose ─> Look ─> Decide ──> receive_read ──> host ──> receive_slot, arrived
//!  doorbells ──────^         ^────────┘ links, shared lines
//! ```
//!
//! A line holds four WQEs of a ring. Every ring has a line of its own, so that whatever other rings do, its
//! next four WQEs can wait here; 2,048 further lines are shared. Each live ring may have its share of them:
//! 2,048 divided by the number of rings, rounded to a power of two; 124 WQEs at most, which hide 1.4 us of a
//! full wire (2.9 cycles a SEND), and eight at least, as many as the sender's card fetches of a queue pair at
//! once. A ring that misses a WQE may have more until it is idle: while a quarter of the lines is free, as many
//! WQEs as an eighth of the free lines holds; below that, twice as many each time it misses a WQE for the
//! second time within a walk. 16,384 words, 32 UltraRAMs by count: half for the shared lines, a quarter for own
//! lines, and a quarter unused.
//!
//! The lines of a ring are a list (`links`), from the line of the last WQE that was given to that of the last
//! one that was fetched. A line is freed when the first WQE after it is given; a ring without WQEs here fetches
//! into its last line again. A walk over the rings, one in eight cycles when nothing else is to be done, finds
//! those that have less than their share here, because too many doorbells rang at once, or other rings had the
//! lines. When a ring was denied a line that it may have, the walk frees lines of the next 127 rings: those
//! that hold more than they may, and those that consumed nothing while 14,000 WQEs were given to other rings.
//! Such a ring is as after a restart, but for its index, and the next WQEs that it needs are fetched into its
//! own line.
//!
//! Throughput 2.25 cycles a request, of any rings: two, and one more where a line begins. At the same time a
//! ring is looked at, and a line of it fetched, in 2 cycles, and each further line in 3; at most 64 reads are
//! in flight. Latency 7 cycles, and one more where a line begins. WQEs leave in the order of the requests, as
//! payload does: a request whose WQE is not here blocks later ones for a read of the host, while lines of other
//! rings are fetched. A setup event is taken between two requests, in 4 cycles; after one that ends a ring,
//! requests wait for two cycles for each of its lines, 64 at most.
//!
//! 1. WQEs of a ring are given in its order, each as host memory held it after it was posted. None is read
//!    after it was consumed.
//! 2. A valid request is answered, whatever other rings hold: the own line of its ring is free, or in its list.
//! 3. Reads of an earlier owner of a line complete before those of the next, as reads complete in their order.
//! 4. A WQE that was fetched before a restart is never given: WQEs are here only if the last read of the ring
//!    that completed was requested by the generation that asks.
//! 5. A request of another generation is answered as stale, without a read.
//! 6. Only posted WQEs are prefetched, and none if a doorbell claims more than the ring has; WQEs that
//!    admission requests are fetched in any case.
//! 7. While `enable` is low nothing is prefetched: packets in flight get their WQEs, and the ring comes to rest
//!    (design decision 12).
//!
//! Rings are those of the queue pairs and, after them, of the SRQs (protocol 4.5). The card makes the
//! generation of an SRQ itself: its queue pairs come and go, and it is destroyed only when none of them can
//! request a WQE.
//!
//! A part of a line is fetched only if less than a line is here. Reset sweeps the records of all rings and
//! frees all lines, in 2,048 cycles. Protocol 3.7; design decisions 8 and 9.
use crate::messages::{ReceiveWqe, ReceiveWqeRequest};
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::doorbell::{ReceivesPosted, own_ring, shared_ring};
use rnic_messages::host::{HostSpan, Slot};
use rnic_messages::setup::{SetupEvent, SetupKind, SrqSetup};
use rnic_messages::sizes::{
    GENERATION_BITS, QUEUE_PAIR_BITS, RECEIVE_RING_BITS, RECEIVE_RINGS, SPAN_BITS, WORK_INDEX_BITS,
};

const RESET: u64 = QpState::Reset as u64;
/// Bits of a ring number.
const RING_BITS: usize = RECEIVE_RING_BITS;
/// Number of the last ring.
const LAST_RING: u64 = RECEIVE_RINGS - 1;
/// log2 of the shared lines.
const SHARED_BITS: usize = 11;
/// Bits of a line number: a line in the lower half belongs to the ring of the same number, the upper half is
/// shared.
const LINE_BITS: usize = SHARED_BITS + 1;
/// log2 of the WQEs of a line.
const PLACE_BITS: usize = 2;
/// WQEs of a line.
const PLACES: u64 = 1 << PLACE_BITS;
/// log2 of the WQEs of all lines.
const WQE_BITS: usize = LINE_BITS + PLACE_BITS;
/// A ring with this many WQEs here, or in flight, fetches no further line.
const AHEAD: u64 = 124;
/// WQEs that a ring may have here, however many rings there are.
const BASE: u64 = 2 * PLACES;
/// Width of the number of times that [`BASE`] is doubled for a ring that misses WQEs.
const QUOTA_BITS: usize = 3;
/// Limit of these doublings.
const QUOTA_MAX: u64 = 4;
/// Width of the share of a ring, in WQEs.
const SHARE_BITS: usize = 8;
/// With this many free shared lines, rings that miss WQEs may have more.
const PLENTY: u64 = 512;
/// log2 of the WQEs given to all rings between two walks that age the rings, so idleness does not depend on the
/// speed of the others.
const SPAN_OF_AGE_BITS: usize = 11;
/// Width of the count of these WQEs.
const GIVEN_BITS: usize = SPAN_OF_AGE_BITS + 1;
/// Width of the age of a ring that consumes nothing; at the highest age it yields its shared lines.
const AGE_BITS: usize = 3;
/// Width of the count of rings that the walk asks for lines, after a ring was denied one.
const YIELD_REQUEST_BITS: usize = 7;

/// Attributes of a ring, set by commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Ring {
    is_alive: Bit,
    generation: Bits<GENERATION_BITS>,
    base_page: Bits<52>,
    entries_log2: Bits<4>,
}

/// The attributes that a request must match.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Life {
    is_alive: Bit,
    generation: Bits<GENERATION_BITS>,
}

/// Consumer side of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Taken {
    /// Free-running count of WQEs given.
    index: Bits<WORK_INDEX_BITS>,
    /// Line of the last of them.
    line: Bits<LINE_BITS>,
    /// Toggles when the own line is left.
    lap: Bit,
    /// Toggles when the same line is begun again.
    stay: Bit,
}

/// Fetch side of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Progress {
    /// Free-running count of WQEs whose read was requested.
    index: Bits<WORK_INDEX_BITS>,
    /// Line of the last of them.
    line: Bits<LINE_BITS>,
    /// Toggles when the own line is taken; that is free while this equals the field of [`Taken`].
    lap: Bit,
    /// Toggles when the last line is taken again.
    stay: Bit,
    /// Walks that have aged the ring since a WQE was consumed.
    age: Bits<AGE_BITS>,
    /// A WQE was missing when it was requested, since the last walk.
    has_missed: Bit,
    /// A WQE was missing since the ring was idle.
    has_need: Bit,
    /// The ring may have [`BASE`] WQEs here, doubled this many times.
    quota: Bits<QUOTA_BITS>,
}

/// Arrival side of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Arrived {
    /// Generation that requested them.
    generation: Bits<GENERATION_BITS>,
    /// Free-running count of WQEs that arrived for this generation.
    index: Bits<WORK_INDEX_BITS>,
    /// As in [`Progress`] when the last of them was requested; while it differs from [`Taken`], the next line
    /// is the same again.
    stay: Bit,
}

/// A WQE in its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Word {
    data: Bits<512>,
    /// Place of the last WQE of its read, at which `errors` says whether the read failed.
    end: Bits<PLACE_BITS>,
}

/// A read in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Fetch {
    line: Bits<LINE_BITS>,
    place: Bits<PLACE_BITS>,
    ring: Bits<RING_BITS>,
    generation: Bits<GENERATION_BITS>,
    /// Index of the WQE after the last one.
    end: Bits<WORK_INDEX_BITS>,
    stay: Bit,
}

/// WQEs to be read, before their address is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Draft {
    base_page: Bits<52>,
    /// Index of the first WQE in the ring, from 0.
    position: Bits<WORK_INDEX_BITS>,
    count: Bits<3>,
}

/// Results of the comparisons of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Findings {
    /// All fetched WQEs are consumed.
    is_spent: Bit,
    /// The next WQE to fetch begins a line.
    begins: Bit,
    /// The own line is free.
    has_own: Bit,
    /// More of it may be fetched.
    may_extend: Bit,
    /// A shared line may be taken for it.
    may_share: Bit,
    /// It has less than it may have while lines are free.
    is_short: Bit,
    /// It has less than its share.
    is_below: Bit,
    /// A line, or all that is needed at once, is posted.
    is_wanted: Bit,
    /// So is another line after it.
    goes_on: Bit,
    /// WQEs to fetch.
    count: Bits<3>,
    /// Index of the first of them in the ring.
    position: Bits<WORK_INDEX_BITS>,
    /// Its shared lines must be freed.
    must_yield: Bit,
}

/// State of the machine that answers requests.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Grant {
    /// Waits for a request.
    Choose,
    /// Compares it with the records of its ring.
    Check,
    /// Its WQE is the first of a line, which was read from `links`.
    Turn,
}

/// State of the machine that fetches.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Clears the records after a reset.
    Clear,
    /// Chooses a ring.
    Choose,
    /// Compares its records.
    Look,
    /// Decides whether to fetch.
    Decide,
    /// Reads the new records, to fetch more of the same ring.
    Again,
    /// Waits until no request is being answered, for an event or because the ring yields its lines.
    Hold,
    /// Compares the records, which do not change now.
    Compare,
    /// Writes the records.
    Apply,
    /// Frees a line of the old list.
    Free,
    /// Reads the next line of the list.
    Follow,
}

/// Prefetches the receive WQEs of all rings.
#[derive(LogicBlock, Registers, Construct)]
pub struct RqPrefetch {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets WQEs and rings.
    pub reset: Signal<In, Bit>,
    /// From control: WQEs may be prefetched. Requested ones are fetched regardless.
    pub enable: Signal<In, Bit>,
    /// From control: setup of queue pairs.
    pub setup: StreamRx<SetupEvent>,
    /// From control: SRQs that are created or destroyed. Taken when `setup` is not valid.
    pub srq_setup: StreamRx<SrqSetup>,
    /// From the doorbells.
    pub receive_posted: Signal<In, ReceivesPosted>,
    /// `receive_posted` is valid; it is taken in any case.
    pub receive_posted_valid: Signal<In, Bit>,
    /// From admission, those of a ring in the order of their indices; `ready` is a function of registers.
    pub request: StreamRx<ReceiveWqeRequest>,
    /// One WQE for each request; registered.
    pub wqe: StreamTx<ReceiveWqe>,
    /// To the host, 64 to 256 bytes at a multiple of 64; registered.
    pub receive_read: StreamTx<HostSpan>,
    /// From the host, in the order of the reads.
    pub receive_slot: Signal<In, Slot>,
    /// `receive_slot` is valid; it is taken in any case.
    pub receive_slot_valid: Signal<In, Bit>,
    /// A read was requested; registered.
    pub fetches: Signal<Out, Bit>,
    /// A read has completed; registered.
    pub fetched: Signal<Out, Bit>,

    #[init(Memory::new(Storage::Block))]
    rings: Memory<Ring, RING_BITS>,
    #[init(Memory::new(Storage::Block))]
    lives: Memory<Life, RING_BITS>,
    #[init(Memory::new(Storage::Block))]
    producers: Memory<Bits<WORK_INDEX_BITS>, RING_BITS>,
    #[init(Memory::new(Storage::Block))]
    taken: Memory<Taken, RING_BITS>,
    /// Copy for the machine that fetches.
    #[init(Memory::new(Storage::Block))]
    taken_copy: Memory<Taken, RING_BITS>,
    #[init(Memory::new(Storage::Block))]
    progress: Memory<Progress, RING_BITS>,
    #[init(Memory::new(Storage::Block))]
    arrived: Memory<Arrived, RING_BITS>,
    /// Copy for the machine that fetches.
    #[init(Memory::new(Storage::Block))]
    arrived_copy: Memory<Arrived, RING_BITS>,
    /// For each line of a list the next one.
    #[init(Memory::new(Storage::Block))]
    links: Memory<Bits<LINE_BITS>, LINE_BITS>,
    #[init(Memory::new(Storage::Ultra).with_output_register())]
    entries: Memory<Word, WQE_BITS>,
    /// For each place: the last read that ended there failed.
    #[init(Memory::new(Storage::Block))]
    errors: Memory<Bit, WQE_BITS>,
    /// Shared lines that are in no list.
    #[init(Fifo::new(Storage::Block))]
    lines: Fifo<Bits<SHARED_BITS>, SHARED_BITS, LINE_BITS>,
    /// Rings whose doorbell rang; the walk finds those for which this queue has no room.
    rung: Fifo<Bits<RING_BITS>, 6, 7>,
    /// Rings that have room for a line, or have no WQE left.
    notices: Fifo<Bits<RING_BITS>, 10, 11>,
    /// Rings that gave way to others before enough of their WQEs were fetched; the walk, or the consumption of
    /// their next line, finds those for which this queue has no room.
    #[init(Fifo::new(Storage::Distributed))]
    unfinished: Fifo<Bits<RING_BITS>, 7, 8>,
    fetch_queue: Fifo<Fetch, 6, 7>,
    reads: RegisterSlice<HostSpan>,
    given: Fifo<ReceiveWqe, 3, 4>,

    #[init(Reg::new(Grant::Choose))]
    grant: Reg<Grant>,
    output_valid: [Reg<Bit>; 4],
    output_stale: [DFF<Bit>; 4],
    output_line: [DFF<Bits<LINE_BITS>>; 3],
    output_place: DFF<Bits<PLACE_BITS>>,
    /// A request waits for its WQE.
    misses: Reg<Bit>,
    missing: DFF<Bits<RING_BITS>>,
    /// That WQE is being fetched.
    is_served: Reg<Bit>,

    #[init(Reg::new(Step::Clear))]
    step: Reg<Step>,
    ring: DFF<Bits<RING_BITS>>,
    /// Reason for which the ring is looked at.
    is_demand: Reg<Bit>,
    is_notice: Reg<Bit>,
    is_walk: Reg<Bit>,
    is_event: Reg<Bit>,
    found: DFF<Findings>,
    /// Lines fetched of the ring in a row.
    burst: Reg<Bits<2>>,
    walk: Reg<Bits<RING_BITS>>,
    pace: Reg<Bits<3>>,
    /// Rings that are alive.
    alive_count: Reg<Bits<RING_BITS>>,
    /// WQEs that each of them may have here in any case.
    share: Reg<Bits<SHARE_BITS>>,
    /// This walk ages the rings.
    ages: Reg<Bit>,
    /// WQEs given since the last walk that did.
    given_count: Reg<Bits<GIVEN_BITS>>,
    /// Rings that are still to be asked for lines, because another was denied one.
    yield_requests: Reg<Bits<YIELD_REQUEST_BITS>>,
    /// The line that is freed.
    freed: DFF<Bits<LINE_BITS>>,
    draft: DFF<Draft>,
    has_draft: Reg<Bit>,
    arrived_count: Reg<Bits<PLACE_BITS>>,
    fetches_now: Reg<Bit>,
    fetched_now: Reg<Bit>,
}

/// Gives the own line of a ring.
#[kernel]
fn own_line(ring: Bits<RING_BITS>) -> Bits<LINE_BITS> {
    bit_cast::<LINE_BITS, RING_BITS>(ring)
}

/// Says whether a line is shared.
#[kernel]
fn is_shared(line: Bits<LINE_BITS>) -> Bit {
    line.get_bit(SHARED_BITS)
}

/// Gives the consumer record of a ring without WQEs here: its own line is the last that was consumed.
#[kernel]
fn nothing_taken(ring: Bits<RING_BITS>, index: Bits<WORK_INDEX_BITS>) -> Taken {
    Taken { index, line: own_line(ring), lap: false, stay: false }
}

/// Gives the fetch record of such a ring.
#[kernel]
fn nothing_fetched(ring: Bits<RING_BITS>, index: Bits<WORK_INDEX_BITS>) -> Progress {
    Progress {
        index,
        line: own_line(ring),
        lap: true,
        stay: false,
        age: bits(0),
        has_missed: false,
        has_need: false,
        quota: bits(0),
    }
}

impl Logic for RqPrefetch {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<HostSpan>::link(&mut self.receive_read, &mut self.reads.tx);
        StreamTx::<ReceiveWqe>::link(&mut self.wqe, &mut self.given.tx);
        let posted = self.receive_posted.val();
        let rings = self.receive_posted_valid.val();
        self.rung.rx.valid.next = rings;
        self.rung.rx.beat.next = posted.ring;
        let event = self.setup.beat.val();
        let srq_event = self.srq_setup.beat.val();
        let is_of_srq = !self.setup.valid.val();
        let event_ring = if is_of_srq { shared_ring(srq_event.srq) } else { own_ring(event.queue_pair) };
        let slot = self.receive_slot.val();
        let arrives = self.receive_slot_valid.val();
        let completes = arrives && slot.last;
        let step = self.step.q.val();

        // Requests are answered, except while records are rewritten.
        let grant = self.grant.q.val();
        let may_grant =
            step == Step::Choose || step == Step::Look || step == Step::Decide || step == Step::Again;
        let wqe_request = self.request.beat.val();
        // Three more may be in flight to the queue.
        let has_room = !self.given.level.val().get_bits::<2>(2).any();
        let starts = grant == Grant::Choose && may_grant && has_room && self.request.valid.val();
        self.lives.read_enable.next = grant == Grant::Choose;
        self.lives.read_address.next = wqe_request.ring;
        self.taken.read_enable.next = grant == Grant::Choose;
        self.taken.read_address.next = wqe_request.ring;
        self.arrived.read_enable.next = grant == Grant::Choose;
        self.arrived.read_address.next = wqe_request.ring;
        let life = self.lives.read_data.val();
        let taken = self.taken.read_data.val();
        let arrived = self.arrived.read_data.val();
        let checks = grant == Grant::Check;
        let turns = grant == Grant::Turn;
        let is_of_shared = wqe_request.ring.get_bit(QUEUE_PAIR_BITS);
        let is_current = life.is_alive && (life.generation == wqe_request.generation || is_of_shared);
        let is_here = arrived.generation == life.generation && arrived.index != taken.index;
        let begins_line = !taken.index.get_bits::<PLACE_BITS>(0).any();
        let stays = begins_line && arrived.stay != taken.stay;
        let moves = begins_line && !stays;
        let behind = taken.index + 1;
        let is_stale = checks && !is_current;
        let grants = (checks && is_current && is_here && !moves) || turns;
        let answers = is_stale || grants;
        self.request.ready.next = answers;
        if starts {
            self.grant.d.next = Grant::Check;
        }
        if checks {
            self.grant.d.next = if is_current && is_here && moves { Grant::Turn } else { Grant::Choose };
        }
        if turns {
            self.grant.d.next = Grant::Choose;
        }
        let line = select(turns, self.links.read_data.val(), taken.line);
        let leaves_shared = turns && is_shared(taken.line);
        let is_last = !behind.get_bits::<PLACE_BITS>(0).any() || behind == arrived.index;
        self.notices.rx.valid.next = grants && is_last;
        self.notices.rx.beat.next = wqe_request.ring;

        // The output pipeline: the WQE is read in two cycles, and then the error flag of its read.
        self.output_valid[0].d.next = answers;
        self.output_stale[0].d.next = is_stale;
        self.output_line[0].d.next = line;
        self.output_place.d.next = taken.index.get_bits::<PLACE_BITS>(0);
        for place in 1..4 {
            self.output_valid[place].d.next = self.output_valid[place - 1].q.val();
            self.output_stale[place].d.next = self.output_stale[place - 1].q.val();
        }
        for place in 1..3 {
            self.output_line[place].d.next = self.output_line[place - 1].q.val();
        }
        self.entries.read_enable.next = self.output_valid[0].q.val();
        self.entries.read_address.next = cat!(self.output_line[0].q.val(), self.output_place.q.val());
        let word = self.entries.read_data.val();
        self.errors.read_enable.next = true;
        self.errors.read_address.next = cat!(self.output_line[2].q.val(), word.end);
        self.given.rx.valid.next = self.output_valid[3].q.val();
        self.given.rx.beat.next = ReceiveWqe {
            data: word.data,
            error: self.errors.read_data.val(),
            is_stale: self.output_stale[3].q.val(),
        };

        // Comparisons.
        let ring = self.ring.q.val();
        let may_fetch = !self.has_draft.q.val() && self.fetch_queue.rx.ready.val();
        let has_event = self.setup.valid.val() || self.srq_setup.valid.val();
        let has_demand = self.misses.q.val() && !self.is_served.q.val();
        let record = self.rings.read_data.val();
        let producer = self.producers.read_data.val();
        let consumed = self.taken_copy.read_data.val();
        let progress = self.progress.read_data.val();
        let here = self.arrived_copy.read_data.val();
        let distance = progress.index - consumed.index;
        let posted_count = producer - consumed.index;
        let fresh = producer - progress.index;
        let place: Bits<3> = cat!(bits::<1>(0), progress.index.get_bits::<PLACE_BITS>(0));
        let to_end = bits::<3>(PLACES) - place;
        let has_fresh =
            posted_count > distance && posted_count <= bits::<WORK_INDEX_BITS>(1) << record.entries_log2;
        let fewer = fresh < bit_cast::<WORK_INDEX_BITS, 3>(to_end);
        let is_next_posted = fresh >= bit_cast::<WORK_INDEX_BITS, 3>(to_end) + PLACES;
        let free = self.lines.level.val();
        let free_lines: Bits<WORK_INDEX_BITS> = bit_cast::<WORK_INDEX_BITS, LINE_BITS>(free);
        // While many lines are free, a ring that has missed WQEs may have more than its quota.
        let spare = select(free >= PLENTY, free_lines >> 1, bits::<WORK_INDEX_BITS>(0));
        let half = free_lines << 1;
        let by_need = bits::<WORK_INDEX_BITS>(BASE) << progress.quota;
        let share = bit_cast::<WORK_INDEX_BITS, SHARE_BITS>(self.share.q.val());
        let limit = select(by_need > share, by_need, share);
        if step == Step::Look {
            self.step.d.next = Step::Decide;
        }
        if step == Step::Look || step == Step::Compare {
            self.found.d.next = Findings {
                is_spent: !distance.any(),
                begins: !place.any(),
                has_own: progress.lap == consumed.lap,
                may_extend: record.is_alive && distance < AHEAD,
                may_share: distance < share
                    || (progress.has_need && distance < spare)
                    || (distance < limit && distance < half),
                is_short: distance < limit,
                is_below: distance < share,
                is_wanted: has_fresh && (!fewer || distance < PLACES),
                goes_on: has_fresh
                    && is_next_posted
                    && distance < AHEAD - PLACES
                    && ((progress.has_need && distance + PLACES < spare) || distance + PLACES < limit),
                count: if !has_fresh {
                    bits::<3>(1)
                } else if fewer {
                    fresh.get_bits::<3>(0)
                } else {
                    to_end
                },
                position: progress.index & !(bits::<WORK_INDEX_BITS>(0xffff) << record.entries_log2),
                must_yield: record.is_alive
                    && self.yield_requests.q.val().any()
                    && (progress.age.all() || distance > limit)
                    && (is_shared(consumed.line) || is_shared(progress.line))
                    && here.generation == record.generation
                    && here.index == progress.index,
            };
        }

        // Decisions. A ring without WQEs left fetches into its last line.
        let found = self.found.q.val();
        let decides = step == Step::Decide;
        let is_demand = self.is_demand.q.val();
        let is_walk = self.is_walk.q.val();
        let yields = decides && is_walk && found.must_yield;
        let takes_own = found.begins && found.has_own;
        let shares = found.begins && !found.has_own && !found.is_spent;
        let has_line = !shares || (self.lines.tx.valid.val() && found.may_share);
        let wishes = decides
            && !yields
            && has_line
            && found.may_extend
            && ((found.is_wanted && (!is_walk || found.is_spent || found.is_below))
                || (is_demand && found.is_spent));
        let fetches = wishes && may_fetch;
        let lingers = wishes && !may_fetch && !has_event;
        let repeats = found.begins && !found.has_own && found.is_spent;
        let stay = select(repeats, !progress.stay, progress.stay);
        let target: Bits<LINE_BITS> = if takes_own {
            own_line(ring)
        } else if shares {
            cat!(bits::<1>(1), self.lines.tx.beat.val())
        } else {
            progress.line
        };
        self.lines.tx.ready.next = fetches && shares;
        let misses_now = decides && is_demand && !lingers;
        let is_denied = decides && shares && !has_line && found.is_wanted && found.is_short;
        let end = progress.index + bit_cast::<WORK_INDEX_BITS, 3>(found.count);
        let burst = self.burst.q.val();
        // Other rings come first after four lines, setup events and requested WQEs after one.
        let waits = has_event
            || (has_demand && !is_demand)
            || (burst.all()
                && (self.notices.tx.valid.val()
                    || self.rung.tx.valid.val()
                    || self.unfinished.tx.valid.val()));
        let wants_more = fetches && found.goes_on;
        let goes_on = wants_more && self.enable.val() && !waits && !is_walk;
        self.unfinished.rx.valid.next = wants_more && !goes_on;
        self.unfinished.rx.beat.next = ring;
        let ends = decides && !yields && !goes_on && !lingers;
        if decides {
            self.burst.d.next = select(burst.all(), burst, burst + 1);
        }
        if yields {
            self.step.d.next = Step::Hold;
        }
        if goes_on {
            self.step.d.next = Step::Again;
            self.is_demand.d.next = false;
        }
        if ends {
            self.step.d.next = Step::Choose;
        }
        if step == Step::Again {
            self.step.d.next = Step::Look;
        }

        // The next ring: setup events first, then requested WQEs. A ring whose records are being written waits
        // a cycle.
        let may_run_ahead = may_fetch && self.enable.val();
        let has_notice = self.notices.tx.valid.val() && may_run_ahead;
        let has_bell = self.rung.tx.valid.val() && may_run_ahead;
        let has_unfinished = self.unfinished.tx.valid.val() && may_run_ahead;
        let may_walk = self.pace.q.val().all() && may_run_ahead;
        let walk = self.walk.q.val();
        let chosen = if has_event {
            event_ring
        } else if has_demand {
            self.missing.q.val()
        } else if has_notice {
            self.notices.tx.beat.val()
        } else if has_bell {
            self.rung.tx.beat.val()
        } else if has_unfinished {
            self.unfinished.tx.beat.val()
        } else {
            walk
        };
        let chooses = step == Step::Choose || (ends && (has_event || chosen != ring));
        let takes_notice = chooses && !has_event && !has_demand && has_notice;
        let takes_bell = chooses && !has_event && !has_demand && !has_notice && has_bell;
        let resumes = chooses && !has_event && !has_demand && !has_notice && !has_bell && has_unfinished;
        let walks =
            chooses && !has_event && !has_demand && !has_notice && !has_bell && !has_unfinished && may_walk;
        self.notices.tx.ready.next = takes_notice;
        self.rung.tx.ready.next = takes_bell;
        self.unfinished.tx.ready.next = resumes;
        let asked = select(chooses, chosen, ring);
        if chooses {
            self.ring.d.next = chosen;
            self.is_event.d.next = has_event;
            self.is_demand.d.next = !has_event && has_demand;
            self.is_notice.d.next = takes_notice;
            self.is_walk.d.next = walks;
            self.burst.d.next = bits::<2>(0);
            self.step.d.next = if has_event {
                Step::Hold
            } else if has_demand || has_notice || has_bell || has_unfinished || may_walk {
                Step::Look
            } else {
                Step::Choose
            };
        }
        if !self.pace.q.val().all() {
            self.pace.d.next = self.pace.q.val() + 1;
        }
        if walks {
            self.pace.d.next = bits::<3>(0);
            self.walk.d.next = select(walk == LAST_RING, bits::<RING_BITS>(0), walk + 1);
        }
        let yield_requests = self.yield_requests.q.val();
        // After enough WQEs were given, one whole walk ages the rings.
        let ages = self.ages.q.val();
        let given_count = self.given_count.q.val();
        let is_span = given_count.get_bit(SPAN_OF_AGE_BITS);
        let ends_walk = walks && walk == LAST_RING;
        if ends_walk {
            self.ages.d.next = is_span;
        }
        if ends_walk && is_span {
            self.given_count.d.next = bits(0);
        } else if grants && !is_span {
            self.given_count.d.next = given_count + 1;
        }
        if is_denied {
            self.yield_requests.d.next = !bits::<YIELD_REQUEST_BITS>(0);
        } else if walks && yield_requests.any() {
            self.yield_requests.d.next = yield_requests - 1;
        }
        let looks_up = chooses || step == Step::Again || step == Step::Hold;
        self.rings.read_enable.next = looks_up;
        self.rings.read_address.next = asked;
        self.producers.read_enable.next = looks_up;
        self.producers.read_address.next = asked;
        self.taken_copy.read_enable.next = looks_up;
        self.taken_copy.read_address.next = asked;
        self.progress.read_enable.next = looks_up;
        self.progress.read_address.next = asked;
        self.arrived_copy.read_enable.next = looks_up;
        self.arrived_copy.read_address.next = asked;

        // The address is computed a cycle later.
        if fetches {
            self.draft.d.next =
                Draft { base_page: record.base_page, position: found.position, count: found.count };
        }
        let draft = self.draft.q.val();
        let page = draft.base_page + bit_cast::<52, 10>(draft.position.get_bits::<10>(6));
        self.has_draft.d.next = fetches || (self.has_draft.q.val() && !self.reads.rx.ready.val());
        self.reads.rx.valid.next = self.has_draft.q.val();
        self.reads.rx.beat.next = HostSpan {
            address: cat!(page, draft.position.get_bits::<6>(0), bits::<6>(0)),
            length: bit_cast::<SPAN_BITS, 3>(draft.count) << 6,
        };
        self.fetch_queue.rx.valid.next = fetches;
        self.fetch_queue.rx.beat.next = Fetch {
            line: target,
            place: progress.index.get_bits::<PLACE_BITS>(0),
            ring,
            generation: record.generation,
            end,
            stay,
        };
        self.fetches_now.d.next = fetches;
        self.fetches.next = self.fetches_now.q.val();

        // Setup events, and rings that yield. A doorbell or a completed read comes first: the memories have one
        // write port.
        let is_event = self.is_event.q.val();
        let clears = step == Step::Clear && !rings;
        let applies = step == Step::Apply && !rings && !completes;
        let restarts = is_event && (event.kind == SetupKind::Restart || is_of_srq || event.state == RESET);
        let empties = applies && (restarts || (!is_event && found.must_yield));
        let first = select(is_event, bits::<WORK_INDEX_BITS>(0), consumed.index);
        self.setup.ready.next = applies && is_event && !is_of_srq;
        self.srq_setup.ready.next = applies && is_event && is_of_srq;
        if step == Step::Hold && grant == Grant::Choose {
            self.step.d.next = Step::Compare;
        }
        if step == Step::Compare {
            self.step.d.next = Step::Apply;
        }
        if applies {
            self.step.d.next = if empties { Step::Free } else { Step::Choose };
            self.freed.d.next = consumed.line;
        }
        let freed = self.freed.q.val();
        let frees = step == Step::Free;
        if frees {
            self.step.d.next = if freed != progress.line {
                Step::Follow
            } else if is_event {
                Step::Choose
            } else {
                Step::Again
            };
        }
        if step == Step::Follow {
            self.freed.d.next = self.links.read_data.val();
            self.step.d.next = Step::Free;
        }
        if clears {
            self.walk.d.next = walk + 1;
            if walk.all() {
                self.step.d.next = Step::Choose;
            }
        }

        // Requested WQEs. A ring whose records are rewritten is looked at again.
        if checks && is_current && !is_here {
            self.misses.d.next = true;
            self.missing.d.next = wqe_request.ring;
        }
        if decides && is_demand && self.misses.q.val() && (fetches || !found.is_spent) {
            self.is_served.d.next = true;
        }
        if answers || applies {
            self.misses.d.next = false;
            self.is_served.d.next = false;
        }

        // The records.
        // A queue pair of an SRQ has no ring of its own; every restart of an SRQ is another generation.
        let is_alive =
            select(is_of_srq, srq_event.is_alive, event.state != RESET && !event.path.shared_receive)
                && !clears;
        let alive_count = self.alive_count.q.val();
        if applies && is_event && is_alive && !record.is_alive {
            self.alive_count.d.next = alive_count + 1;
        }
        if applies && is_event && !is_alive && record.is_alive {
            self.alive_count.d.next = alive_count - 1;
        }
        // This many WQEs for each ring fit into the shared lines.
        self.share.d.next = if alive_count > 512 {
            bits(BASE)
        } else if alive_count > 256 {
            bits(2 * BASE)
        } else if alive_count > 128 {
            bits(4 * BASE)
        } else if alive_count > 64 {
            bits(8 * BASE)
        } else {
            bits(AHEAD)
        };
        let generation = select(is_of_srq, record.generation + 1, event.generation);
        self.rings.write_enable.next = clears || (applies && is_event);
        self.rings.write_address.next = select(clears, walk, ring);
        self.rings.write_data.next = Ring {
            is_alive,
            generation,
            base_page: select(is_of_srq, srq_event.base_page, event.path.receive_base_page),
            entries_log2: select(is_of_srq, srq_event.entries_log2, event.path.receive_wqes_log2),
        };
        self.lives.write_enable.next = clears || (applies && is_event);
        self.lives.write_address.next = select(clears, walk, ring);
        self.lives.write_data.next = Life { is_alive, generation };
        self.producers.write_enable.next = rings || clears || (applies && restarts);
        self.producers.write_address.next = if rings {
            posted.ring
        } else if clears {
            walk
        } else {
            ring
        };
        self.producers.write_data.next = select(rings, posted.producer_index, bits::<WORK_INDEX_BITS>(0));
        let emptied = select(clears, walk, ring);
        let taken_address = select(grants, wqe_request.ring, emptied);
        let taken_next = if clears {
            nothing_taken(walk, bits::<WORK_INDEX_BITS>(0))
        } else if grants {
            Taken {
                index: behind,
                line,
                lap: select(turns && !leaves_shared, !taken.lap, taken.lap),
                stay: select(stays, !taken.stay, taken.stay),
            }
        } else {
            nothing_taken(ring, first)
        };
        self.taken.write_enable.next = clears || grants || empties;
        self.taken.write_address.next = taken_address;
        self.taken.write_data.next = taken_next;
        self.taken_copy.write_enable.next = clears || grants || empties;
        self.taken_copy.write_address.next = taken_address;
        self.taken_copy.write_data.next = taken_next;
        self.progress.write_enable.next = clears || decides || empties;
        self.progress.write_address.next = emptied;
        self.progress.write_data.next = if clears {
            nothing_fetched(walk, bits::<WORK_INDEX_BITS>(0))
        } else if empties {
            nothing_fetched(ring, first)
        } else {
            Progress {
                index: select(fetches, end, progress.index),
                line: select(fetches, target, progress.line),
                lap: select(fetches && takes_own, !progress.lap, progress.lap),
                stay: select(fetches, stay, progress.stay),
                age: if is_walk && ages {
                    select(progress.age.all(), progress.age, progress.age + 1)
                } else if is_demand || self.is_notice.q.val() {
                    bits::<AGE_BITS>(0)
                } else {
                    progress.age
                },
                has_missed: !is_walk && (progress.has_missed || misses_now),
                has_need: misses_now || (progress.has_need && !(is_walk && progress.age.all())),
                quota: if is_walk && progress.age.all() {
                    bits::<QUOTA_BITS>(0)
                } else if misses_now && progress.has_missed && progress.quota != QUOTA_MAX {
                    progress.quota + 1
                } else {
                    progress.quota
                },
            }
        };

        // The lists of lines.
        self.links.write_enable.next = fetches && found.begins && !repeats;
        self.links.write_address.next = progress.line;
        self.links.write_data.next = target;
        self.links.read_enable.next = true;
        self.links.read_address.next = select(frees, freed, taken.line);
        self.lines.rx.valid.next = clears || leaves_shared || (frees && is_shared(freed));
        self.lines.rx.beat.next = if clears {
            walk
        } else if frees {
            freed.get_bits::<SHARED_BITS>(0)
        } else {
            taken.line.get_bits::<SHARED_BITS>(0)
        };

        // Slots from the host.
        let fetch = self.fetch_queue.tx.beat.val();
        self.fetch_queue.tx.ready.next = completes;
        self.entries.write_enable.next = arrives;
        self.entries.write_address.next = cat!(fetch.line, fetch.place + self.arrived_count.q.val());
        self.entries.write_data.next = Word { data: slot.data, end: fetch.end.get_bits::<PLACE_BITS>(0) };
        if arrives {
            self.arrived_count.d.next =
                select(slot.last, bits::<PLACE_BITS>(0), self.arrived_count.q.val() + 1);
        }
        self.errors.write_enable.next = completes;
        self.errors.write_address.next = cat!(fetch.line, fetch.end.get_bits::<PLACE_BITS>(0));
        self.errors.write_data.next = slot.error;
        let arrived_address = if completes { fetch.ring } else { emptied };
        let arrived_next = if completes {
            Arrived { generation: fetch.generation, index: fetch.end, stay: fetch.stay }
        } else if clears {
            Arrived { generation: bits::<GENERATION_BITS>(0), index: bits::<WORK_INDEX_BITS>(0), stay: false }
        } else {
            Arrived { generation: select(is_event, generation, record.generation), index: first, stay: false }
        };
        self.arrived.write_enable.next = completes || clears || empties;
        self.arrived.write_address.next = arrived_address;
        self.arrived.write_data.next = arrived_next;
        self.arrived_copy.write_enable.next = completes || clears || empties;
        self.arrived_copy.write_address.next = arrived_address;
        self.arrived_copy.write_data.next = arrived_next;
        self.fetched_now.d.next = completes;
        self.fetched.next = self.fetched_now.q.val();
    }
}
