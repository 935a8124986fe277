//! ReadResponder: answers READs, packet by packet, and atomics.
//!
//! A READ of 2 GiB is one request, and its responses would block all other queue pairs. So queue pairs with
//! READs to answer are in a ready queue, and each has responses of 16 KiB in its turn, to one READ or to several. A READ waits in a
//! slot that its queue pair owns, so admission never waits for the wire (design decision 4). Atomics are
//! answered between them, in the order of their requests; their results come from
//! [`Atomics`](crate::atomics::Atomics), and wait in a slot too.
//!
//! ```text
//!             ┌──────────────────────────────────────────────────────────────────────────┐
//!  setup ────>│ life                       (sequencer: one event or one step of a turn)  │
//!  request ──>│ slots (up to 16 a queue pair), noted ────────┐                           │
//!  release ──>│ released ──> ready queue   duplicates ──> finder ──> replays ────────────┼──> withdrawn
//!  result ───>│ values (up to 16 a queue pair), arrived                 │                │
//!             │                      v                                  │                │
//!             │   oldest request or replay <────────────────────────────┘                │
//!             │                      └──> response ──> responses (128) ───┐              │
//!             │ served <── progress <──┘      └───────────────────────────┼──────────────┼──> access_request
//!             │                                                           v              │
//!  access_answer ─────────────────────────────────────────────────────> sender ──────────┼──> gather
//!  lost ──────┼───────────────────────────────────────────────────────────┘ └────────────┼──> failure
//!             └──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A response takes 2 cycles, a turn 5 more. Latency 13 cycles from `release` to `gather`, with a region table
//! that answers in one, and at most 25 more for a duplicate, which has to be looked up.
//!
//! 1. READs of a queue pair are answered in the order of their requests, each once and only when released.
//!    Their responses are FIRST, MIDDLE, LAST, or ONLY, with the bytes of the region as they are when they are
//!    read (protocol 2.2, 3.7).
//! 2. Each response makes an access request for its own bytes: if the region was invalidated meanwhile, NAK
//!    0x62 is sent instead of the response; if the host does not deliver the bytes, NAK 0x63. Then the queue
//!    pair fails, and no response of it follows.
//! 3. READs of length zero make no access request (protocol 3.6).
//! 4. An atomic is answered when its result is there, and requests after it are not answered before: so a READ
//!    returns what an earlier atomic has written. While it waits, its queue pair is not in the ready queue. An
//!    atomic that the host failed ends in NAK 0x63.
//! 5. A request and its result stay in their slot until as many newer requests have come as the queue pair has slots, or it is
//!    restarted or enters ERR (protocol 3.5). A duplicate asks for a part of one, by PSNs, address and key. Its answer
//!    is a *replay*: responses of a READ are made as in 2, the first a FIRST or ONLY again, and an atomic gets
//!    its saved value. What is not noted is dropped (protocol 3.4).
//! 6. Replays of a queue pair come before the other answers of it, since its peer has gone back; a turn of one may end
//!    within it. They are answered in the order of the requests. A duplicate of an earlier request, or of a part of
//!    one, takes the place of the replays that are under way: the peer has gone back again.
//! 7. A duplicate of a request whose answer has not begun gets no other answer than that one.
//! 8. Each request and each duplicate that is released is answered by one last response, or leaves by `withdrawn`, or its queue
//!    pair fails. A replay that sends the last response to a request before its answer does ends that answer: the rest of it is
//!    not sent, and the request leaves by `withdrawn` (protocol 3.5).
//! 9. In ERR, INIT and RESET, and after a restart, the requests and replays of the queue pair are dropped with the
//!    event. But a host write that failed behind released requests makes NAK 0x63 of the first response that is not
//!    made, in its order, and ERR, which that failure brings, does not drop it. If all are made, there is no NAK here.
//! 10. Setup events and results are taken within 4 cycles, whatever the outputs do. Requests and releases are too,
//!     but wait while a duplicate is looked up, and while `withdrawn` is full, which ack takes in any case.
//! 11. `served` counts READs and atomics whose last response was made for the first time, by their answer or by a replay, or
//!     that were dropped, for admission, which counts those in flight (protocol 3.5).
//! 12. `in_flight` counts responses between the ready queue and gather.
//!
//! Reset forgets all requests, in 1,024 cycles.
use crate::messages::{AtomicResult, ReadResponderCounts};
use effect::{Effect, counts_of, dropped_of, effect_of};
use finder::DUPLICATE_COUNT;
use queue::{Change, READY_COUNT_BITS, ReadyPairs};
use record::Progress;
use replays::ReplayTable;
use response_queue::ResponseQueue;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::pool::LEVEL_BITS;
use rnic_messages::protect::{AccessAnswer, AccessRequest};
use rnic_messages::read::{
    READ_COUNT_BITS, READ_SLOT_BITS, ReadRelease, ReadRequest, ReadsServed, ReadsWithdrawn,
};
use rnic_messages::setup::{InFlight, QpNotice, SetupEvent};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, sizes};
use rnic_messages::transmit::{GatherCommand, GatherFailure};
use sender::ResponseSender;
use sequencer::Sequencer;
use step::Step;
use table::RequestTable;
use turn::Turn;

mod effect;
mod finder;
mod queue;
mod record;
mod replay;
mod replays;
mod response_queue;
mod sender;
mod sequencer;
mod step;
mod table;
mod turn;

/// Levels of the pools of READs.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadPools {
    /// Queue pairs that wait for a turn of responses.
    pub turns: Bits<LEVEL_BITS>,
    /// Duplicates that were not looked up.
    pub duplicates: Bits<LEVEL_BITS>,
}

/// Gives the levels of the pools.
#[kernel]
fn pools_of(turns: Bits<READY_COUNT_BITS>, duplicates: Bits<DUPLICATE_COUNT>) -> ReadPools {
    ReadPools {
        turns: bit_cast::<LEVEL_BITS, READY_COUNT_BITS>(turns),
        duplicates: bit_cast::<LEVEL_BITS, DUPLICATE_COUNT>(duplicates),
    }
}

/// Answers READs and atomics; see the module.
#[clocked(reset = "forgets all queue pairs")]
#[derive(LogicBlock, Registers, Construct)]
pub struct ReadResponder {
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// From resolve: READs and atomics in order, before they are released; duplicates too. `ready` is combinational
    /// from the beat.
    pub request: StreamRx<ReadRequest>,
    /// From ack.
    pub release: StreamRx<ReadRelease>,
    /// To ack: what was released and gets no last response of its own; registered.
    pub withdrawn: StreamTx<ReadsWithdrawn>,
    /// From atomics: results, those of a queue pair in order; `ready` is a function of registers.
    pub result: StreamRx<AtomicResult>,
    /// To the region table; registered.
    pub access_request: StreamTx<AccessRequest>,
    /// From the region table, in order; `ready` is a function of registers.
    pub access_answer: StreamRx<AccessAnswer>,
    /// To gather; registered.
    pub gather: StreamTx<GatherCommand>,
    /// From gather: a response that could not be sent; `ready` is a function of registers.
    pub lost: StreamRx<GatherFailure>,
    /// To control; registered.
    pub failure: StreamTx<QpNotice>,
    /// To admission, when it has changed; a function of registers.
    pub served: ValidTx<ReadsServed>,
    /// To control; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// Counters; those of NAKs are registered.
    pub counts: Signal<Out, ReadResponderCounts>,
    /// Levels of the pools of this stage; a function of registers.
    pub pools: Signal<Out, ReadPools>,

    table: RequestTable,
    replays: ReplayTable,
    ready_pairs: ReadyPairs,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    progresses: Memory<Progress, QUEUE_PAIR_BITS>,
    responses: ResponseQueue,
    requests: Fifo<AccessRequest, 3, 4>,
    sender: ResponseSender,
    sequencer: Sequencer,
    turn: Turn,
    served_held: DFF<ReadsServed>,
    has_served: Reg<Bit>,
}

impl Logic for ReadResponder {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamRx::link(&mut self.setup, &mut self.sequencer.setup);
        StreamRx::link(&mut self.request, &mut self.sequencer.request);
        StreamRx::link(&mut self.release, &mut self.sequencer.release);
        StreamRx::link(&mut self.result, &mut self.sequencer.result);
        StreamTx::join(&mut self.sequencer.duplicate, &mut self.replays.duplicate);
        StreamTx::link(&mut self.access_request, &mut self.requests.tx);
        StreamRx::link(&mut self.access_answer, &mut self.sender.access_answer);
        StreamTx::link(&mut self.gather, &mut self.sender.gather);
        StreamRx::link(&mut self.lost, &mut self.sender.lost);
        StreamTx::link(&mut self.failure, &mut self.sender.failure);
        StreamTx::link(&mut self.withdrawn, &mut self.replays.withdrawn);
        StreamTx::join(&mut self.responses.tx, &mut self.sender.response);
        let step = self.sequencer.step.val();
        let (clears, loads, keeps) = (step == Step::Clear, step == Step::Load, step == Step::Keep);
        let sweep = self.sequencer.sweep.val();
        let queue_pair = self.sequencer.queue_pair.val();
        let is_turns = self.sequencer.is_turns.val();
        let (turn_pair, is_replaying) = (self.turn.turn_pair.val(), self.turn.is_replaying.val());
        let (event, release) = (self.setup.beat.val(), self.release.beat.val());
        let current = self.turn.current.val();

        // What is done next.
        self.sequencer.may_store.next = self.replays.may_store.val();
        self.sequencer.may_repeat.next = self.replays.may_repeat.val();
        self.sequencer.is_sought.next = self.replays.is_sought.val();
        self.sequencer.may_turn.next = self.ready_pairs.has_head.val() && self.responses.may_turn.val();
        self.sequencer.ready_pair.next = self.ready_pairs.head.val();
        self.sequencer.may_make.next =
            self.requests.rx.ready.val() && self.responses.rx.ready.val() && self.replays.has_room.val();
        let chosen = self.sequencer.chosen.val();
        let reads = self.sequencer.reads.val();
        let looks = step == Step::Look;
        let read_pair = select(looks, turn_pair, chosen);
        self.ready_pairs.takes.next = self.sequencer.takes_turn.val();
        self.ready_pairs.reads.next = reads || looks;
        self.ready_pairs.read_address.next = read_pair;
        self.replays.reads.next = reads || looks;
        self.replays.read_address.next = read_pair;
        self.progresses.read(reads, chosen);
        self.table.reads.next = reads;
        self.table.read_address.next = chosen;
        let (life, noted) = (self.table.life.val(), self.table.noted.val());
        let released = self.ready_pairs.released.val();
        let (progress, replay) = (self.progresses.read_data.val(), self.replays.replay.val());

        // Events. What a turn holds of the queue pair is dropped with its requests.
        let effect: Effect = effect_of(step, event, release, life, released.count != noted.count);
        let is_waiting = progress.served != released.count;
        self.table.queue_pair.next = queue_pair;
        self.table.clears.next = clears;
        self.table.sweep.next = sweep;
        self.table.sets.next = effect.sets;
        self.table.drops.next = effect.drops;
        self.table.next_life.next = effect.life;
        self.table.stores.next = step == Step::Store;
        self.table.request.next = self.request.beat.val();
        self.table.results.next = step == Step::Result;
        self.table.result.next = self.result.beat.val();

        // Duplicates. A turn that answers requests of the queue pair has its newest progress.
        let slot = self.table.slot.val();
        self.replays.begins_search.next = step == Step::Seek;
        self.replays.may_seek.next = !loads;
        self.replays.slot.next = slot;
        self.table.seeks.next = self.replays.seeks.val();
        self.table.seek_place.next = self.replays.seek_place.val();
        self.replays.life.next = life;
        self.replays.noted.next = noted;
        self.replays.is_replaying.next = is_turns && is_replaying;
        self.replays.repeats.next = step == Step::Repeat;
        self.replays.is_dropped.next = release.is_dropped;
        self.replays.progress.next = select(is_turns && !is_replaying, current, progress);
        self.replays.stores.next = self.table.keeps_request.val();
        let aborts = self.replays.aborts.val();

        // A turn: the replay or the oldest request, from the byte where the last turn ended.
        let has_work = life.serves && (is_waiting || replay.is_active);
        let oldest = progress.served.get_bits::<READ_SLOT_BITS>(0);
        self.table.fetches.next = loads;
        self.table.fetched.next = select(replay.is_active, replay.slot, oldest);
        self.turn.loads.next = loads;
        self.turn.goes_on.next = self.ready_pairs.goes_on.val();
        self.turn.queue_pair.next = queue_pair;
        self.turn.life.next = life;
        self.turn.progress.next = progress;
        self.turn.replay.next = replay;
        self.turn.fetches.next = step == Step::Fetch;
        self.turn.slot.next = slot;
        self.turn.value.next = self.table.value.val();
        self.turn.plans.next = step == Step::Plan;
        let makes = self.sequencer.makes.val();
        self.turn.makes.next = makes;
        let response = self.turn.response.val();
        self.responses.rx.offer(makes, response);
        self.requests.rx.offer(makes && response.payload_bytes.any(), self.turn.access_request.val());
        self.sequencer.turn_pair.next = turn_pair;
        self.sequencer.loses_turn.next = (effect.drops && is_turns) || aborts;
        self.sequencer.has_work.next = has_work;
        self.sequencer.waits.next =
            slot.is_atomic && self.table.arrived.val() == current.atomics && !is_replaying;
        self.sequencer.ends_turn.next = self.turn.ends_turn.val();

        // The records after an event or a turn.
        let kept = self.turn.progress_after.val();
        let continues = keeps && (kept.served != released.count || self.replays.remains.val());
        let dropped: Progress = dropped_of(select(is_turns, current, progress), effect.stays_begun);
        let record_pair = select(clears, sweep, select(keeps, turn_pair, queue_pair));
        let serves = keeps && self.turn.serves.val();
        self.progresses.write_enable.next = clears || effect.drops || serves || (keeps && !is_replaying);
        self.progresses.write_address.next = record_pair;
        self.progresses.write_data.next = select(keeps, kept, dropped);
        self.replays.record_address.next = record_pair;
        self.replays.forgets.next = clears || effect.drops;
        self.replays.keeps.next = keeps && is_replaying;
        self.replays.kept.next = kept;
        self.replays.is_last.next = self.turn.is_last.val();
        self.replays.ends_answer.next = serves && is_replaying;
        self.replays.turn_generation.next = response.generation;
        self.ready_pairs.record_address.next = record_pair;
        self.ready_pairs.change.next = Change {
            forgets: clears || effect.drops,
            stays: effect.drops && !is_turns,
            releases: effect.releases,
            // The queue pair may have waited for the result.
            returns: self.table.keeps_value.val() && is_waiting,
            begins: self.replays.begins.val(),
            aborts,
            continues,
            goes_on: !self.turn.is_used_up.val(),
            rests: step == Step::Park || (keeps && !continues) || (loads && !has_work),
        };
        self.has_served.d.next = effect.drops || serves;
        let count = select(keeps, kept.served, bits::<READ_COUNT_BITS>(0));
        self.served_held.d.next = ReadsServed { queue_pair: record_pair, count };
        self.served.offer(self.has_served.q.val(), self.served_held.q.val());
        self.sender.clears.next = clears;
        self.sender.sweep.next = sweep;
        self.sender.makes.next = makes;
        self.in_flight.next = self.sender.in_flight.val();
        self.pools.next = pools_of(self.ready_pairs.level.val(), self.replays.duplicates.val());
        let is_unknown = self.replays.is_unknown.val();
        self.counts.next = counts_of(self.sender.counts.val(), self.replays.is_answered.val(), is_unknown);
    }
}
