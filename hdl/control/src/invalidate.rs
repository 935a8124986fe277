//! Invalidate: invalidates the keys that WQEs and peers name, also while commands are executed.
//!
//! The store holds what a key permits; both region tables are copies. So all invalidations pass through this block, in order with
//! the commands that create or change a region. A SEND with invalidate of a peer stalls the whole receive path until its key is
//! invalid, so it must not wait for a command: the sequencer lends its store between any two instructions, and while it waits.
//!
//! ```text
//!                       ┌───────────────────────────────────────────────┐
//!  requests[0] (own) ──>│ turn ──> Header ─> Body ─> Compare ─> Check ─> Free ──┬──> store, region tables
//!  requests[1] (peer) ─>│  ^                                            │       ├──> answers[1]
//!                       │  └── may_begin, holds (sequencer)             │       v
//!  quiesce ────────────>│                         answers that wait (1,024) <───┘
//!                       └──────────────────────────────┬────────────────┘
//!                                                      └──> answers[0]
//! ```
//!
//! Latency for a peer: seven cycles from a request to its answer. Throughput: one request in 7 + [`REST_CYCLES`] cycles; in the
//! latter the sequencer executes an instruction. With the sequencer a peer waits for at most [`BUSY_CYCLES`] cycles, whatever command
//! is executed, and whatever the host and the stages do; 22 is the most that was measured.
//!
//! 1. A key is invalidated if the region exists, its key is equal in all bits, it is of the domain, and it is invalidatable. The
//!    region is of the kind "free" from then on: a query reads so, a change keeps it so, and its index is in use until it is
//!    destroyed.
//! 2. Invalidations and commands are ordered: a command writes the kind of a region before it exists and never again, and the
//!    tables get what the store holds then. While a command changes a region, its key is refused (protocol 4.6).
//! 3. An answer follows the write of the tables. The answer to an own request, good or bad, also waits until everything that was
//!    in flight at the invalidation has left the card: no access by that key follows it. The answer to a peer need not wait: writes
//!    by the key precede its CQE, and a response to a READ that was permitted may follow.
//! 4. Answers to own requests are in order. A round of waiting serves all that wait when it begins.
//!
//! Reset drops requests. Design decision 8.
use crate::object_store::{KIND_BITS, NUMBER, NUMBER_BITS, STORE_BITS, VALID, header_of, index_of, kind};
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::admin::{CreateRegion, RegionKind};
use rnic_messages::protect::{Invalidated, Invalidation};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, REGION_BITS, sizes};

/// Cycles between two invalidations, in which the sequencer has its store.
pub const REST_CYCLES: u64 = 8;
/// Cycles within which the request of a peer is answered.
pub const BUSY_CYCLES: u64 = 64;
const LAST_REST: u64 = REST_CYCLES - 1;

const fn offset(name: &str) -> usize {
    CreateRegion::RECORD.field(name).offset as usize
}

/// Fields of the word after the header.
const REGION_KIND: usize = offset("kind");
const REGION_KIND_BITS: usize = CreateRegion::RECORD.field("kind").width as usize;
const INVALIDATABLE: usize = offset("invalidatable");
const DOMAIN: usize = offset("domain");
const ABOVE_KIND: usize = 64 - REGION_KIND_BITS;
const REGION: u64 = RegionKind::Region as u64;

const _: () =
    assert!(REGION_KIND == 0 && RegionKind::Free as u64 == 0 && DOMAIN + 24 <= 64, "one word says all");

/// What the block does in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Waits for a request, and for the store.
    Idle,
    /// Reads the header.
    Header,
    /// Reads the word after it.
    Body,
    /// Compares the header with the key.
    Compare,
    /// Checks the word after it.
    Check,
    /// Invalidates the key.
    Free,
    /// Leaves the store to the sequencer for an instruction.
    Rest,
}

/// Invalidates keys.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub struct Invalidate {
    /// From the requester, and from the responder; `ready` is combinational from `may_begin` and the other's `valid`.
    pub requests: [StreamRx<Invalidation>; 2],
    /// To requester and responder: whether the key was invalidated; functions of registers.
    pub answers: [StreamTx<Invalidated>; 2],

    /// From the sequencer: the store may be held from this cycle on.
    pub may_begin: Signal<In, Bit>,
    /// The store is held; combinational from `may_begin`.
    pub holds: Signal<Out, Bit>,
    /// Address of the word to be read; a function of registers.
    pub read_address: Signal<Out, Bits<STORE_BITS>>,
    /// The word at `read_address`, two cycles later.
    pub word: Signal<In, Bits<64>>,
    /// A word is written in this cycle.
    pub writes: Signal<Out, Bit>,
    /// Address of the word that is written; a function of registers.
    pub write_address: Signal<Out, Bits<STORE_BITS>>,
    /// The word that is written; registered.
    pub write_data: Signal<Out, Bits<64>>,
    /// To the region tables: a region permits nothing from now on; registered, one cycle.
    pub clears_region: Signal<Out, Bit>,
    /// Index of that region; registered.
    pub index: Signal<Out, Bits<REGION_BITS>>,

    /// To `quiesce`: wait for what is in flight, from the next cycle on.
    pub wait_begins: Signal<Out, Bit>,
    /// From `quiesce`: something is still in flight.
    pub is_waiting: Signal<In, Bit>,
    /// No request is offered or waits; registered.
    pub is_idle: Signal<Out, Bit>,

    #[init(Reg::new(Step::Idle))]
    step: Reg<Step>,
    is_peer: DFF<Bit>,
    request: DFF<Invalidation>,
    is_found: DFF<Bit>,
    invalidates: DFF<Bit>,
    freed: DFF<Bits<64>>,
    wrote: Reg<Bit>,
    rest: Reg<Bits<3>>,
    #[init(Fifo::default().with_beats_log2(sizes().queue_pairs))]
    waiting: Fifo<Invalidated, QUEUE_PAIR_BITS, COUNT_BITS>,
    peers: RegisterSlice<Invalidated>,
    /// Numbers of own answers that ever began to wait, for which this round waits, that may leave, and that have left.
    begun: Reg<Bits<COUNT_BITS>>,
    marked: Reg<Bits<COUNT_BITS>>,
    allowed: Reg<Bits<COUNT_BITS>>,
    gone: Reg<Bits<COUNT_BITS>>,
    /// A round of waiting runs.
    is_round: Reg<Bit>,
    idle: Reg<Bit>,
}

/// Width of a count of answers that wait.
const COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;

impl Logic for Invalidate {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // A request is taken: that of a peer first, as the receive path is stalled.
        let step = self.step.q.val();
        let request = self.request.q.val();
        let is_free = step == Step::Idle && self.may_begin.val();
        let takes_peer = is_free && self.requests[1].valid.val() && self.peers.rx.ready.val();
        let takes_own = is_free && !takes_peer && self.requests[0].valid.val() && self.waiting.rx.ready.val();
        self.requests[0].ready.next = takes_own;
        self.requests[1].ready.next = takes_peer;
        if takes_peer || takes_own {
            self.step.d.next = Step::Header;
            self.is_peer.d.next = takes_peer;
            self.request.d.next =
                select(takes_peer, self.requests[1].beat.val(), self.requests[0].beat.val());
        }
        self.holds.next = takes_peer || takes_own || (step != Step::Idle && step != Step::Rest);

        // The two words of the region.
        let index = index_of(bits::<KIND_BITS>(kind::REGION), request.key);
        let header = header_of(bits::<KIND_BITS>(kind::REGION), index);
        self.read_address.next = select(step == Step::Header, header, header | 1);
        let word = self.word.val();
        let key = word.get_bits::<NUMBER_BITS>(NUMBER);
        let is_region = word.get_bits::<REGION_KIND_BITS>(REGION_KIND) == REGION;
        let is_of_domain = word.get_bits::<24>(DOMAIN) == request.domain;
        self.is_found.d.next = word.get_bit(VALID) && key == request.key;
        self.invalidates.d.next =
            self.is_found.q.val() && is_region && is_of_domain && word.get_bit(INVALIDATABLE);
        self.freed.d.next = cat!(word.get_bits::<ABOVE_KIND>(REGION_KIND_BITS), bits::<REGION_KIND_BITS>(0));
        let invalidates = self.invalidates.q.val();
        let frees = step == Step::Free;
        self.writes.next = frees && invalidates;
        self.write_address.next = header | 1;
        self.write_data.next = self.freed.q.val();
        self.wrote.d.next = frees && invalidates;
        self.clears_region.next = self.wrote.q.val();
        self.index.next = index;
        self.rest.d.next = bits(0);
        match step {
            Step::Idle => {}
            Step::Header => self.step.d.next = Step::Body,
            Step::Body => self.step.d.next = Step::Compare,
            Step::Compare => self.step.d.next = Step::Check,
            Step::Check => self.step.d.next = Step::Free,
            Step::Free => self.step.d.next = Step::Rest,
            Step::Rest => {
                self.rest.d.next = self.rest.q.val() + 1;
                if self.rest.q.val() == LAST_REST {
                    self.step.d.next = Step::Idle;
                }
            }
        }

        // The answers.
        let is_peer = self.is_peer.q.val();
        let answer =
            Invalidated { queue_pair: request.queue_pair, generation: request.generation, ok: invalidates };
        self.peers.rx.offer(frees && is_peer, answer);
        StreamTx::link(&mut self.answers[1], &mut self.peers.tx);
        self.waiting.rx.offer(frees && !is_peer, answer);
        let begun = self.begun.q.val();
        let allowed = self.allowed.q.val();
        let gone = self.gone.q.val();
        let may_go = gone != allowed;
        self.answers[0].offer(self.waiting.tx.valid.val() && may_go, self.waiting.tx.beat.val());
        self.waiting.tx.ready.next = self.answers[0].ready.val() && may_go;
        if frees && !is_peer {
            self.begun.d.next = begun + 1;
        }
        if self.waiting.tx.valid.val() && may_go && self.answers[0].ready.val() {
            self.gone.d.next = gone + 1;
        }

        // A round of waiting.
        let is_round = self.is_round.q.val();
        let begins_round = !is_round && begun != allowed;
        self.wait_begins.next = begins_round;
        if begins_round {
            self.is_round.d.next = true;
            self.marked.d.next = begun;
        }
        if is_round && !self.is_waiting.val() {
            self.is_round.d.next = false;
            self.allowed.d.next = self.marked.q.val();
        }
        self.idle.d.next = step == Step::Idle
            && !self.requests[0].valid.val()
            && !self.requests[1].valid.val()
            && begun == gone;
        self.is_idle.next = self.idle.q.val();
    }
}
