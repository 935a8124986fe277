//! ReadResponder: answers READs, packet by packet, and atomics.
//!
//! A READ of 2 GiB is one request, and its responses would block all other queue pairs. So queue pairs with
//! READs to answer are in a ready queue, and each turn makes responses of 16 KiB at most. A READ waits in a
//! slot that its queue pair owns, so admission never waits for the wire (design decision 4). Atomics are
//! answered between them, in the order of their requests; their results come from
//! [`Atomics`](crate::atomics::Atomics), and wait in a slot too.
//!
//! ```text
//!             ┌──────────────────────────────────────────────────────────────────┐
//!  setup ────>│ life                                                             │
//!  request ──>│ slots (16 a queue pair), stored                                  │
//!  release ──>│ released ──> ready queue                                         │
//!  result ───>│ values (16 a queue pair), arrived                                │
//!             │                      v                                           │
//!             │         oldest request ──> response ──> responses (128) ───┐     │
//!             │ served <── progress <──┘      └────────────────────────────┼─────┼──> access_request
//!             │                                                            v     │
//!  access_answer ─────────────────────────────────────────────────────> sender ──┼──> gather
//!  lost ──────┼────────────────────────────────────────────────────────────┘ └───┼──> failure
//!             └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A response takes 2 cycles, a turn 5 more. Latency 13 cycles from `release` to `gather`, with a region table
//! that answers in one.
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
//!    atomic that the host failed ends in NAK 0x63. The original value stays in the slot of the atomic.
//! 5. In ERR, INIT and RESET, and after a restart, the requests of the queue pair are dropped with the event. But
//!    a host write that failed behind released requests makes NAK 0x63 of the first response that is not made,
//!    in its order, and ERR, which that failure brings, does not drop it. If all are made, there is no NAK here.
//! 6. Setup events, requests, releases and results are taken within 4 cycles, whatever the outputs do.
//! 7. `served` counts READs and atomics that were answered or dropped, for admission, which counts those in
//!    flight.
//! 8. `in_flight` counts responses between the ready queue and gather.
//!
//! Reset forgets all requests, in 1,024 cycles.
use crate::messages::{AtomicResult, ReadResponderCounts};
use record::{Life, Progress, Released, Response, TURN_LOG2, life_after, released_after};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::protect::{AccessAnswer, AccessRequest};
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS, ReadRelease, ReadRequest, ReadsServed};
use rnic_messages::setup::{InFlight, QpNotice, SetupEvent, SetupKind};
use rnic_messages::sizes::QUEUE_PAIR_BITS;
use rnic_messages::transmit::{GatherCommand, GatherFailure};
use sender::ResponseSender;
use step::{Inputs, Step, event_step, step_after};
use table::RequestTable;
use turn::Turn;

mod record;
mod sender;
mod step;
mod table;
mod turn;

/// log2 of the responses that wait for their access answers.
const RESPONSES: usize = 7;
const RESPONSE_COUNT: usize = RESPONSES + 1;
/// A turn begins when there is room for all its responses: with at most this many waiting.
const WAITING_MAX: u64 = 1 << TURN_LOG2;
const READY_COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;

/// Answers READs and atomics; see the module.
#[derive(Default, LogicBlock, Registers)]
pub struct ReadResponder {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets all queue pairs.
    pub reset: Signal<In, Bit>,
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// From resolve: READs and atomics in order, before they are released.
    pub request: StreamRx<ReadRequest>,
    /// From ack.
    pub release: StreamRx<ReadRelease>,
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
    /// To admission; a function of registers.
    pub served: Signal<Out, ReadsServed>,
    /// `served` has changed.
    pub served_valid: Signal<Out, Bit>,
    /// To control; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// Counters; registered.
    pub counts: Signal<Out, ReadResponderCounts>,

    table: RequestTable,
    released: Memory<Released, QUEUE_PAIR_BITS>,
    progresses: Memory<Progress, QUEUE_PAIR_BITS>,
    ready_queue: Fifo<Bits<QUEUE_PAIR_BITS>, QUEUE_PAIR_BITS, READY_COUNT_BITS>,
    responses: Fifo<Response, RESPONSES, RESPONSE_COUNT>,
    requests: Fifo<AccessRequest, 3, 4>,
    sender: ResponseSender,
    step: Reg<Step>,
    sweep: Reg<Bits<QUEUE_PAIR_BITS>>,
    /// An event was taken since the last response, so the turn comes first.
    turn_is_next: Reg<Bit>,
    /// A queue pair has its turn.
    has_turn: Reg<Bit>,
    queue_pair: DFF<Bits<QUEUE_PAIR_BITS>>,
    turn: Turn,
    served_held: DFF<ReadsServed>,
    has_served: Reg<Bit>,
}

impl Logic for ReadResponder {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<AccessRequest>::link(&mut self.access_request, &mut self.requests.tx);
        StreamRx::<AccessAnswer>::link(&mut self.access_answer, &mut self.sender.access_answer);
        StreamTx::<GatherCommand>::link(&mut self.gather, &mut self.sender.gather);
        StreamRx::<GatherFailure>::link(&mut self.lost, &mut self.sender.lost);
        StreamTx::<QpNotice>::link(&mut self.failure, &mut self.sender.failure);
        StreamTx::<Response>::join(&mut self.responses.tx, &mut self.sender.response);
        let step = self.step.q.val();
        let clears = step == Step::Clear;
        let sweep = self.sweep.q.val();
        let queue_pair = self.queue_pair.q.val();
        let turn_pair = self.turn.turn_pair.val();
        let has_turn = self.has_turn.q.val();
        let event = self.setup.beat.val();
        let current = self.turn.current.val();

        // Events come first, but between two of them a turn makes a response.
        let may_make = self.requests.rx.ready.val() && self.responses.rx.ready.val();
        let has_setup = self.setup.valid.val();
        let has_request = self.request.valid.val();
        let has_release = self.release.valid.val();
        let has_result = self.result.valid.val();
        let has_event = has_setup || has_request || has_release || has_result;
        let yields = step == Step::Make && !(self.turn_is_next.q.val() && may_make);
        let takes_event = has_event && (step == Step::Idle || yields);
        let makes = step == Step::Make && may_make && !takes_event;
        let may_turn = self.ready_queue.tx.valid.val() && self.responses.level.val() <= WAITING_MAX;
        let takes_turn = step == Step::Idle && !has_event && may_turn;
        let chosen = if has_setup {
            event.queue_pair
        } else if has_request {
            self.request.beat.val().queue_pair
        } else if has_release {
            self.release.beat.val().queue_pair
        } else {
            select(has_result, self.result.beat.val().queue_pair, self.ready_queue.tx.beat.val())
        };
        let reads = takes_event || takes_turn;
        let looks = step == Step::Look;
        self.ready_queue.tx.ready.next = takes_turn;
        self.released.read_enable.next = reads || looks;
        self.released.read_address.next = select(looks, turn_pair, chosen);
        self.progresses.read_enable.next = reads;
        self.progresses.read_address.next = chosen;
        let life = self.table.life.val();
        let released = self.released.read_data.val();
        let progress = self.progresses.read_data.val();
        if reads {
            self.queue_pair.d.next = chosen;
        }
        if clears {
            self.sweep.d.next = sweep + 1;
        }

        // Events. What a turn holds of the queue pair is dropped with its requests.
        let sets = step == Step::Setup;
        let restarts = event.kind == SetupKind::Restart;
        let life_set = life_after(life, event);
        let drops = sets && (!life_set.serves || restarts);
        let is_turns = has_turn && queue_pair == turn_pair;
        let release = self.release.beat.val();
        let may_release = step == Step::Release && life.serves && life.generation == release.generation;
        let fails = may_release && release.write_failed;
        let releases = may_release && !release.write_failed && released.count != self.table.stored.val();
        let is_waiting = progress.served != released.count;
        // The queue pair may have waited for the result.
        let returns = self.table.keeps_value.val() && !released.is_queued && is_waiting;
        self.setup.ready.next = sets;
        self.request.ready.next = step == Step::Store;
        self.release.ready.next = step == Step::Release;
        self.result.ready.next = step == Step::Result;
        self.table.reads.next = reads;
        self.table.read_address.next = chosen;
        self.table.queue_pair.next = queue_pair;
        self.table.clears.next = clears;
        self.table.sweep.next = sweep;
        self.table.sets.next = sets || fails;
        self.table.drops.next = drops;
        self.table.next_life.next = select(sets, life_set, Life { write_failed: true, ..life });
        self.table.stores.next = step == Step::Store;
        self.table.request.next = self.request.beat.val();
        self.table.results.next = step == Step::Result;
        self.table.result.next = self.result.beat.val();

        // A turn: the oldest request, from the byte where the last turn ended.
        let loads = step == Step::Load;
        let has_work = life.serves && is_waiting;
        self.table.fetches.next = loads;
        self.table.served.next = progress.served.get_bits::<READ_SLOT_BITS>(0);
        self.turn.loads.next = loads;
        self.turn.queue_pair.next = queue_pair;
        self.turn.life.next = life;
        self.turn.progress.next = progress;
        self.turn.fetches.next = step == Step::Fetch;
        self.turn.slot.next = self.table.slot.val();
        self.turn.value.next = self.table.value.val();
        self.turn.plans.next = step == Step::Plan;
        self.turn.makes.next = makes;
        let response = self.turn.response.val();
        self.responses.rx.valid.next = makes;
        self.responses.rx.beat.next = response;
        self.requests.rx.valid.next = makes && response.payload_bytes.any();
        self.requests.rx.beat.next = self.turn.access_request.val();
        let parks = step == Step::Park;
        let keeps = step == Step::Keep;
        let loses_turn = parks || keeps || (drops && is_turns);
        self.has_turn.d.next = select(loads, has_work, has_turn && !loses_turn);
        self.turn_is_next.d.next = takes_event || (self.turn_is_next.q.val() && !loads && !makes);
        let inputs = Inputs {
            is_swept: sweep.all(),
            takes_event,
            event_step: event_step(has_setup, has_request, has_release),
            takes_turn,
            resumes: has_turn && !(drops && is_turns),
            has_work,
            waits: self.table.slot.val().is_atomic && self.table.arrived.val() == current.atomics,
            makes,
            ends_turn: self.turn.ends_turn.val(),
        };
        self.step.d.next = step_after(step, inputs);

        // The records after an event or a turn.
        let kept = self.turn.progress_after.val();
        let continues = keeps && kept.served != released.count;
        let had_begun = select(is_turns, current.has_begun, progress.has_begun);
        let dropped = Progress { has_begun: had_begun && !restarts && !clears, ..Default::default() };
        let record_pair = select(keeps, turn_pair, queue_pair);
        let record_address = select(clears, sweep, record_pair);
        self.progresses.write_enable.next = clears || drops || keeps;
        self.progresses.write_address.next = record_address;
        self.progresses.write_data.next = select(keeps, kept, dropped);
        self.released.write_enable.next =
            clears || drops || releases || returns || keeps || parks || (loads && !has_work);
        self.released.write_address.next = record_address;
        let stays_queued = drops && released.is_queued && !is_turns;
        let is_queued = releases || returns || continues || stays_queued;
        self.released.write_data.next = released_after(released, clears || drops, releases, is_queued);
        self.ready_queue.rx.valid.next = continues || returns || (releases && !released.is_queued);
        self.ready_queue.rx.beat.next = record_pair;
        self.has_served.d.next = drops || (keeps && self.turn.is_last.val());
        let count = select(keeps, kept.served, bits::<READ_COUNT_BITS>(0));
        self.served_held.d.next = ReadsServed { queue_pair: record_pair, count };
        self.served.next = self.served_held.q.val();
        self.served_valid.next = self.has_served.q.val();
        self.sender.clears.next = clears;
        self.sender.sweep.next = sweep;
        self.sender.makes.next = makes;
        self.in_flight.next = self.sender.in_flight.val();
        self.counts.next = self.sender.counts.val();
    }
}
