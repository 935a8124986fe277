//! Invalidate: ends the keys that work requests and peers name, also while commands are executed.
//!
//! What a key permits is written in the store; both tables of regions are copies. So everybody who ends a key comes by here, and a
//! command that makes or changes a region meets it here. A peer's SEND holds up the whole receive path until its key is dead,
//! so it must not wait for a command: execute lends its store between any two steps, and while it waits for others.
//!
//! ```text
//!                       ┌───────────────────────────────────────────────┐
//!  requests[0] (own) ──>│ turn ──> Header ─> Body ─> Compare ─> Judge ─> Free ──┬──> store, tables of regions
//!  requests[1] (peer) ─>│  ^                                            │       ├──> answers[1]
//!                       │  └── may_begin, holds (execute)               │       v
//!  passing ────────────>│                         answers that wait (1,024) <───┘
//!                       └──────────────────────────────┬────────────────┘
//!                                                      └──> answers[0]
//! ```
//!
//! Seven cycles from a request to its answer for a peer, and [`REST_CYCLES`] more to the next one, in which execute does a step.
//! With execute a peer waits for at most [`BUSY_CYCLES`] cycles, whatever command is executed, and whatever the host and the stages
//! do; 22 is the most that was measured.
//!
//! 1. A key ends if the region exists, its whole key is this one, it is of the domain, and it was made to be ended by others. Its
//!    entry is of the kind "free" from then on: a query says so, a change leaves it so, a destroy ends it, and until then its
//!    index is in use.
//! 2. Nothing is half made: a command writes the kind of a region before it exists and never again, and the tables are told of
//!    what the store says then. While a region is being changed by a command, its key is no key (protocol 4.6).
//! 3. An answer comes when the tables say it. That of an own request, good or bad, comes when everything has left the card, besides,
//!    that was in it when the key ended: nobody touches the memory by that key any more. A peer's needs not wait: what was
//!    written by the key before stands in front of its completion, and a response to a READ that was permitted may follow.
//! 4. Answers of own requests come in order. All of those that have come when a round of waiting begins, are served by it.
//!
//! Reset forgets requests. Design decision 8.
use crate::object_store::{KIND_BITS, NUMBER, NUMBER_BITS, STORE_BITS, VALID, header_of, index_of, kind};
use rnic_blocks::stream::{Fifo, RegisterSlice, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::admin::{CreateRegion, RegionKind};
use rnic_messages::protect::{Invalidated, Invalidation};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, REGION_BITS};

/// Cycles between two.
pub const REST_CYCLES: u64 = 8;
/// Cycles within which a peer's request is answered.
pub const BUSY_CYCLES: u64 = 64;
const LAST_REST: u64 = REST_CYCLES - 1;

const fn offset(name: &str) -> usize {
    CreateRegion::RECORD.field(name).offset as usize
}

/// Where they stand in the word behind the header.
const REGION_KIND: usize = offset("kind");
const REGION_KIND_BITS: usize = CreateRegion::RECORD.field("kind").width as usize;
const INVALIDATABLE: usize = offset("invalidatable");
const DOMAIN: usize = offset("domain");
const BEHIND_KIND: usize = 64 - REGION_KIND_BITS;
const REGION: u64 = RegionKind::Region as u64;

const _: () =
    assert!(REGION_KIND == 0 && RegionKind::Free as u64 == 0 && DOMAIN + 24 <= 64, "one word says all");

/// Where the machine is.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Waits for a request, and for the store.
    Idle,
    /// Asks for the header.
    Header,
    /// Asks for the word behind it.
    Body,
    /// Looks at the header.
    Compare,
    /// Looks at the word behind it.
    Judge,
    /// Ends the key.
    Free,
    /// Lets execute do a step.
    Rest,
}

/// The block.
#[derive(LogicBlock, Registers, Construct)]
pub struct Invalidate {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// From the requester, and from the responder; `ready` is combinational from `may_begin` and the other's `valid`.
    pub requests: [StreamRx<Invalidation>; 2],
    /// To them; functions of registers.
    pub answers: [StreamTx<Invalidated>; 2],

    /// The sequencer does not use the store while this block holds it.
    pub may_begin: Signal<In, Bit>,
    /// It is held; combinational from `may_begin`.
    pub holds: Signal<Out, Bit>,
    /// Word to be read, while it is held; a function of registers.
    pub read_address: Signal<Out, Bits<STORE_BITS>>,
    /// It, two cycles later.
    pub word: Signal<In, Bits<64>>,
    /// A word is written in this cycle.
    pub writes: Signal<Out, Bit>,
    /// Where; a function of registers.
    pub write_address: Signal<Out, Bits<STORE_BITS>>,
    /// What; registered.
    pub write_data: Signal<Out, Bits<64>>,
    /// The tables of regions are told in this cycle that an entry permits nothing; registered.
    pub tells: Signal<Out, Bit>,
    /// Which; registered.
    pub index: Signal<Out, Bits<REGION_BITS>>,

    /// What is in the card is waited for, from the next cycle on.
    pub wait_begins: Signal<Out, Bit>,
    /// It is.
    pub is_waiting: Signal<In, Bit>,
    /// Nothing is asked for or waits; registered.
    pub is_idle: Signal<Out, Bit>,

    step: Reg<Step>,
    is_peer: DFF<Bit>,
    request: DFF<Invalidation>,
    is_found: DFF<Bit>,
    is_good: DFF<Bit>,
    freed: DFF<Bits<64>>,
    told: Reg<Bit>,
    rest: Reg<Bits<3>>,
    waiting: Fifo<Invalidated, QUEUE_PAIR_BITS, COUNT_BITS>,
    peers: RegisterSlice<Invalidated>,
    /// Own answers that have begun to wait, those for which the round of waiting is, those that may go, and those that have gone.
    begun: Reg<Bits<COUNT_BITS>>,
    marked: Reg<Bits<COUNT_BITS>>,
    allowed: Reg<Bits<COUNT_BITS>>,
    gone: Reg<Bits<COUNT_BITS>>,
    /// A round has begun.
    is_round: Reg<Bit>,
    idle: Reg<Bit>,
}

/// Width of a count of answers that wait.
const COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;

impl Logic for Invalidate {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // Whose turn it is: a peer's first, as its way in is held up.
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
        self.is_good.d.next =
            self.is_found.q.val() && is_region && is_of_domain && word.get_bit(INVALIDATABLE);
        self.freed.d.next = cat!(word.get_bits::<BEHIND_KIND>(REGION_KIND_BITS), bits::<REGION_KIND_BITS>(0));
        let is_good = self.is_good.q.val();
        let frees = step == Step::Free;
        self.writes.next = frees && is_good;
        self.write_address.next = header | 1;
        self.write_data.next = self.freed.q.val();
        self.told.d.next = frees && is_good;
        self.tells.next = self.told.q.val();
        self.index.next = index;
        self.rest.d.next = bits(0);
        match step {
            Step::Idle => {}
            Step::Header => self.step.d.next = Step::Body,
            Step::Body => self.step.d.next = Step::Compare,
            Step::Compare => self.step.d.next = Step::Judge,
            Step::Judge => self.step.d.next = Step::Free,
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
            Invalidated { queue_pair: request.queue_pair, generation: request.generation, ok: is_good };
        self.peers.rx.valid.next = frees && is_peer;
        self.peers.rx.beat.next = answer;
        StreamTx::<Invalidated>::link(&mut self.answers[1], &mut self.peers.tx);
        self.waiting.rx.valid.next = frees && !is_peer;
        self.waiting.rx.beat.next = answer;
        let begun = self.begun.q.val();
        let allowed = self.allowed.q.val();
        let gone = self.gone.q.val();
        let may_go = gone != allowed;
        self.answers[0].valid.next = self.waiting.tx.valid.val() && may_go;
        self.answers[0].beat.next = self.waiting.tx.beat.val();
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
