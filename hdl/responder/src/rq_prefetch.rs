//! Prefetch of receive WQEs: keeps the next WQEs of each ring on the card, since the host takes a microsecond
//! to deliver one.
//!
//! ```text
//!  request ──> Choose ─> Check (─> Turn) ──> granted ──────────────────> entries ──> errors ──> wqe
//!                           │ a line begins or nothing is left               ^
//!                   demands └────────┐                                       │
//!                  v                 v notices                               │
//!  setup ──────> Choose ─> Look ─> Decide ──> receive_read ──> host ──> receive_slot, arrived
//!  doorbells ──────^         ^────────┘ links, shared lines
//! ```
//!
//! `WqeGrant` is the upper row, up to `granted`, `WqeLines` the way from the host through the lines (`entries`) to
//! the answer, and `RingRecords` the records of the machine of the lower row.
//!
//! A line holds four WQEs of a ring. Every ring has a line of its own, so that whatever other rings do, its
//! next four WQEs can wait here; 2,048 further lines are shared. Each live ring may have its share of them:
//! 2,048 divided by the number of rings, rounded to a power of two; 124 WQEs at most, which hide 1.4 us of a
//! full wire (2.9 cycles a SEND), and eight at least, as many as the sender's card fetches of a queue pair at
//! once. A ring that misses a WQE may have more until it is idle: while a quarter of the lines is free, as many
//! WQEs as an eighth of the free lines holds; below that, twice as many each time it misses a WQE for the
//! second time within a walk. The packet that misses one asks twice at least, which counts. 16,384 words, 32
//! UltraRAMs by count: half for the shared lines, a quarter for own lines, and a quarter unused.
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
//! in flight. Latency 7 cycles, and one more where a line begins. Answers leave in the order of the requests. A
//! request whose WQE is not here is answered at once, without one, and the WQE is fetched before others;
//! [`Park`](crate::park::Park) keeps its packet, and asks again when `wakes` says that a read of the ring has
//! completed. A setup event is taken between two requests, in 4 cycles; after one that ends a ring, requests wait
//! for two cycles for each of its lines, 64 at most.
//!
//! 1. WQEs of a ring are given in its order, each as host memory held it after it was posted. None is read
//!    after it was consumed.
//! 2. A WQE that is requested is fetched, whatever other rings hold: the own line of its ring is free, or in its list.
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
use crate::messages::{ANSWER_COUNT_BITS, ReceiveWqe, ReceiveWqeRequest};
use look::{Findings, SHARE_BITS, findings_of, share_of};
use plan::{Reason, Supply, change_of, continuation_of, fetch_of, gives_way, meets_demand, plan_of};
use record::taken_write_of;
use record::{
    Demand, Draft, LINE_BITS, RING_BITS, SHARED_BITS, alive_after, emptying_of, returns_line, ring_setup_of,
    shared_lines, shared_number,
};
use record::{arrived_write_of, producer_write_of, progress_after, progress_write_of, ring_write_of};
use ring_records::RingRecords;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidRx};
use rnic_kernel::prelude::*;
use rnic_messages::doorbell::ReceivesPosted;
use rnic_messages::host::{HostSpan, Slot};
use rnic_messages::pool::LEVEL_BITS;
use rnic_messages::setup::{SetupEvent, SrqSetup};
use rnic_messages::sizes::sizes;
use step::{Offer, Offers, Rewrite, Step, burst_after, choice_of, is_chosen, may_grant, reason_after};
use step::{step_after, step_decided};
use walk::{Walk, ring_mask, walk_after};
use wqe_grant::WqeGrant;
use wqe_lines::{READ_COUNT_BITS, WqeLines};

mod look;
mod plan;
mod record;
mod ring_records;
mod step;
mod walk;
mod wqe_grant;
mod wqe_lines;

/// Bits of a number of demands.
const DEMAND_COUNT_BITS: usize = 11;

/// Levels of the pools of receive WQEs.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PrefetchPools {
    /// Shared lines that are in the list of a ring.
    pub lines: Bits<LEVEL_BITS>,
    /// Reads of lines in flight.
    pub reads: Bits<LEVEL_BITS>,
    /// WQEs that were requested and are not here.
    pub demands: Bits<LEVEL_BITS>,
}

/// Gives the levels of the pools, of which lines are counted while they are free.
#[kernel]
fn pools_of(
    free_lines: Bits<LINE_BITS>,
    reads: Bits<READ_COUNT_BITS>,
    demands: Bits<DEMAND_COUNT_BITS>,
) -> PrefetchPools {
    PrefetchPools {
        lines: bits::<LEVEL_BITS>(shared_lines()) - bit_cast::<LEVEL_BITS, LINE_BITS>(free_lines),
        reads: bit_cast::<LEVEL_BITS, READ_COUNT_BITS>(reads),
        demands: bit_cast::<LEVEL_BITS, DEMAND_COUNT_BITS>(demands),
    }
}

/// Prefetches the receive WQEs of all rings.
#[clocked(reset = "forgets WQEs and rings")]
#[derive(LogicBlock, Registers, Construct)]
pub struct RqPrefetch {
    /// From control: WQEs may be prefetched. Requested ones are fetched regardless.
    pub enable: Signal<In, Bit>,
    /// From control: setup of queue pairs.
    pub setup: StreamRx<SetupEvent>,
    /// From control: SRQs that are created or destroyed. Taken when `setup` is not valid.
    pub srq_setup: StreamRx<SrqSetup>,
    /// From the doorbells.
    pub receive_posted: ValidRx<ReceivesPosted>,
    /// From admission, those of a ring in the order of their indices; `ready` is a function of registers.
    pub request: StreamRx<ReceiveWqeRequest>,
    /// One answer for each request, in their order; registered.
    pub wqe: StreamTx<ReceiveWqe>,
    /// Answers at `wqe`; registered.
    pub wqe_count: Signal<Out, Bits<ANSWER_COUNT_BITS>>,
    /// To park: a read of `woken` has completed, or the ring has restarted.
    pub wakes: Signal<Out, Bit>,
    /// A ring.
    pub woken: Signal<Out, Bits<RING_BITS>>,
    /// To the host, 64 to 256 bytes at a multiple of 64; registered.
    pub receive_read: StreamTx<HostSpan>,
    /// From the host, in the order of the reads.
    pub receive_slot: ValidRx<Slot>,
    /// A read was requested; registered.
    pub fetches: Signal<Out, Bit>,
    /// A read has completed; registered.
    pub fetched: Signal<Out, Bit>,
    /// Levels of the pools of this stage; a function of registers. During the sweep after reset, lines that are not free yet are in
    /// use.
    pub pools: Signal<Out, PrefetchPools>,

    grant: WqeGrant,
    wqe_lines: WqeLines,
    ring_records: RingRecords,
    /// For each line of a list the next one.
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings() + 1))]
    links: Memory<Bits<LINE_BITS>, LINE_BITS>,
    /// Shared lines that are in no list.
    #[init(Fifo::new(Storage::Block).with_beats_log2(sizes().receive_lines()))]
    lines: Fifo<Bits<SHARED_BITS>, SHARED_BITS, LINE_BITS>,
    /// WQEs that were requested and are not here.
    demands: Fifo<Demand, 10, DEMAND_COUNT_BITS>,
    /// Rings whose doorbell rang; the walk finds those for which this queue has no room.
    rung: Fifo<Bits<RING_BITS>, 6, 7>,
    /// Rings that have room for a line, or have no WQE left.
    notices: Fifo<Bits<RING_BITS>, 10, 11>,
    /// `noticed` enters `notices`; whether a line begins is known late.
    has_noticed: Reg<Bit>,
    noticed: DFF<Bits<RING_BITS>>,
    /// Rings that gave way to others before enough of their WQEs were fetched; the walk, or the consumption of
    /// their next line, finds those for which this queue has no room.
    #[init(Fifo::new(Storage::Distributed))]
    unfinished: Fifo<Bits<RING_BITS>, 7, 8>,
    /// `left` enters `unfinished`; the decision on it ends here, since it is deep.
    has_left: Reg<Bit>,
    left: DFF<Bits<RING_BITS>>,
    /// The choice of the cycle before, which leaves its queue now: no ring is chosen in the cycle after one.
    takes_notice: Reg<Bit>,
    takes_bell: Reg<Bit>,
    takes_unfinished: Reg<Bit>,
    /// As these, of the walk; and in the cycle before a ring was denied a line.
    walks: Reg<Bit>,
    was_denied: Reg<Bit>,

    #[init(Reg::new(Step::Clear))]
    step: Reg<Step>,
    /// The ring that is looked at, and why.
    ring: DFF<Bits<RING_BITS>>,
    reason: Reg<Reason>,
    found: DFF<Findings>,
    /// Lines fetched of the ring in a row.
    burst: Reg<Bits<2>>,
    walk: Reg<Walk>,
    /// Rings that are alive.
    alive_count: Reg<Bits<RING_BITS>>,
    /// WQEs that each of them may have here in any case.
    share: Reg<Bits<SHARE_BITS>>,
    /// The line that is freed.
    freed: DFF<Bits<LINE_BITS>>,
}

impl Logic for RqPrefetch {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamRx::link(&mut self.request, &mut self.grant.request);
        StreamTx::link(&mut self.wqe, &mut self.wqe_lines.wqe);
        StreamTx::link(&mut self.receive_read, &mut self.wqe_lines.read);
        self.wqe_count.next = self.wqe_lines.level.val();
        ValidRx::link(&mut self.receive_slot, &mut self.wqe_lines.slot);
        self.fetches.next = self.wqe_lines.fetches.val();
        self.fetched.next = self.wqe_lines.fetched.val();
        self.pools.next =
            pools_of(self.lines.level.val(), self.wqe_lines.fetching.val(), self.demands.level.val());
        let (step, reason) = (self.step.q.val(), self.reason.q.val());
        let (ring, walk) = (self.ring.q.val(), self.walk.q.val());
        let found = self.found.q.val();
        let state = self.ring_records.state.val();
        let generation = state.attributes.generation;
        let (posted, rings) = (self.receive_posted.value.val(), self.receive_posted.valid.val());
        self.rung.rx.offer(rings, posted.ring);

        // Requests are answered, except while records are rewritten.
        let given = self.grant.given.val();
        self.grant.may_begin.next =
            may_grant(step) && self.wqe_lines.has_room.val() && self.demands.rx.ready.val();
        self.grant.link.next = self.links.read_data.val();
        self.wqe_lines.answer.next = self.grant.answer.val();
        self.has_noticed.d.next = given.valid && given.is_last;
        self.noticed.d.next = given.ring;
        self.notices.rx.offer(self.has_noticed.q.val(), self.noticed.q.val());
        self.demands.rx.offer(self.grant.demand.valid.val(), self.grant.demand.value.val());

        // The ring is compared, then decided on. One that yields was asked, though the walk has passed it since.
        if step == Step::Look || step == Step::Compare {
            let is_asked = step == Step::Compare || walk.yield_requests.any();
            let (share, demand) = (self.share.q.val(), self.demands.tx.beat.val());
            self.found.d.next = findings_of(state, share, self.lines.level.val(), is_asked, demand);
        }
        let decides = step == Step::Decide;
        let is_of_srq = !self.setup.valid.val();
        let has_event = self.setup.valid.val() || self.srq_setup.valid.val();
        let has_demand = self.demands.tx.valid.val();
        let may_fetch = self.wqe_lines.may_fetch.val();
        let supply =
            Supply { may_fetch, has_line: self.lines.tx.valid.val(), line: self.lines.tx.beat.val() };
        let plan = plan_of(decides, reason, has_event, found, state.progress, ring, supply);
        let burst = self.burst.q.val();
        let others_wait =
            self.notices.tx.valid.val() || self.rung.tx.valid.val() || self.unfinished.tx.valid.val();
        let enable = self.enable.val();
        let may_go_on = enable && !gives_way(has_event, has_demand, reason, burst.all(), others_wait);
        let continuation = continuation_of(decides, plan, found, reason, may_fetch, has_event, may_go_on);
        self.has_left.d.next = continuation.is_unfinished;
        self.left.d.next = ring;
        self.unfinished.rx.offer(self.has_left.q.val(), self.left.q.val());
        self.wqe_lines.fetch.offer(plan.fetches, fetch_of(plan, state.progress, ring, generation));
        self.wqe_lines.draft.next =
            Draft { base_page: state.attributes.base_page, position: found.position, count: found.count };

        // The next ring.
        let setup = ring_setup_of(is_of_srq, self.setup.beat.val(), self.srq_setup.beat.val(), generation);
        let offers = Offers {
            event: Offer { valid: has_event, ring: setup.ring },
            demand: Offer { valid: has_demand, ring: self.demands.tx.beat.val().ring },
            notice: Offer { valid: self.notices.tx.valid.val(), ring: self.notices.tx.beat.val() },
            bell: Offer { valid: self.rung.tx.valid.val(), ring: self.rung.tx.beat.val() },
            unfinished: Offer { valid: self.unfinished.tx.valid.val(), ring: self.unfinished.tx.beat.val() },
            walk: Offer { valid: walk.pace.all(), ring: walk.ring },
        };
        let choice = choice_of(offers, may_fetch && enable);
        let chooses = is_chosen(step, continuation.ends, choice, ring);
        self.takes_notice.d.next = chooses && choice.is_notice;
        self.takes_bell.d.next = chooses && choice.is_bell;
        self.takes_unfinished.d.next = chooses && choice.is_unfinished;
        self.notices.tx.ready.next = self.takes_notice.q.val();
        self.rung.tx.ready.next = self.takes_bell.q.val();
        self.unfinished.tx.ready.next = self.takes_unfinished.q.val();
        let looked_up = select(chooses, choice.ring, ring);
        self.ring.d.next = looked_up;
        self.reason.d.next = reason_after(reason, continuation.goes_on, chooses, choice);
        self.burst.d.next = burst_after(burst, decides, chooses);
        self.ring_records.reads.next = chooses || step == Step::Again || step == Step::Hold;
        self.ring_records.ring.next = looked_up;

        // Setup events, and rings that yield. A doorbell or a completed read comes first: the memories have one
        // write port.
        let arrival = self.wqe_lines.arrival.val();
        let freed = self.freed.q.val();
        let clears = step == Step::Clear && !rings;
        let applies = step == Step::Apply && !rings && !arrival.valid;
        let sets = applies && reason.is_event;
        let restarts = sets && setup.restarts;
        let empties = restarts || (applies && !reason.is_event && found.must_yield);
        self.setup.ready.next = sets && !is_of_srq;
        self.srq_setup.ready.next = sets && is_of_srq;
        let first_freed = select(applies, state.consumed.line, freed);
        self.freed.d.next = select(step == Step::Follow, self.links.read_data.val(), first_freed);
        let rewrite = Rewrite {
            is_cleared: clears && walk.ring == ring_mask(),
            applies,
            empties,
            is_freed: freed == state.progress.line,
            is_event: reason.is_event,
        };
        let decided = step_decided(plan, continuation, chooses, choice);
        self.step.d.next = step_after(step, choice, decided, self.grant.is_idle.val(), rewrite);
        let alive_count = self.alive_count.q.val();
        self.alive_count.d.next = alive_after(alive_count, sets, state.attributes, setup.attributes);
        self.share.d.next = share_of(alive_count);
        self.walks.d.next = chooses && choice.is_walk;
        self.was_denied.d.next = plan.is_denied;
        self.walk.d.next = walk_after(walk, clears, self.walks.q.val(), given.valid, self.was_denied.q.val());

        self.demands.tx.ready.next = meets_demand(decides, reason, plan, found);

        // The records.
        let emptying =
            emptying_of(clears, empties, reason.is_event, walk.ring, ring, setup.attributes, state);
        let after = progress_after(state.progress, change_of(plan, reason, walk.ages));
        let ring_write = ring_write_of(emptying, clears, sets, setup.attributes);
        let taken_write = taken_write_of(given, emptying);
        let arrived_write = arrived_write_of(arrival, emptying);
        self.grant.ring_write.next = ring_write;
        self.grant.taken_write.next = taken_write;
        self.grant.arrived_write.next = arrived_write;
        self.grant.clears.next = clears;
        self.wakes.next = arrived_write.enable && !clears;
        self.woken.next = arrived_write.ring;
        self.ring_records.ring_write.next = ring_write;
        self.ring_records.producer_write.next =
            producer_write_of(posted, rings, emptying, clears || restarts);
        self.ring_records.taken_write.next = taken_write;
        self.ring_records.progress_write.next = progress_write_of(decides, emptying, after);
        self.ring_records.arrived_write.next = arrived_write;

        // The lists of lines.
        let frees = step == Step::Free;
        let left_line = select(frees, freed, self.grant.last_line.val());
        self.links.write(plan.fetches && found.begins && !plan.repeats, state.progress.line, plan.line);
        self.links.read(true, left_line);
        self.lines.tx.ready.next = plan.fetches && plan.shares;
        self.lines.rx.valid.next = returns_line(clears, walk.ring, given.leaves_shared, frees, freed);
        self.lines.rx.beat.next = select(clears, walk.ring, shared_number(left_line));
    }
}
