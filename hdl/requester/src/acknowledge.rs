//! Acknowledge: takes the peer's answers, and completes messages in the order in which they were begun.
//!
//! An answer says how far the peer is; the messages up to there may be many. So the answer only moves a mark and puts the queue
//! pair in a line, and its messages are completed by up to eight a turn, so that no queue pair waits for all of another's.
//!
//! ```text
//!                    ┌────────────────────────────────────────────┐
//!  setup ───────────>│                                            │
//!  gather_failure ──>│─> record: acknowledged, failure ─┐         │
//!  kick ────────────>│                                  v         │
//!  responses ───────>│─┬────────────────────┐           v         │
//!                    │ └ behind or with data ─────────────────────┼──> response (deposit)
//!  returned ────────>│──> when that is placed   line of queue pairs
//!                    │  pool ──> oldest message ─┬─ turn ─────────┼──> completion
//!                    │                           ├────────────────┼──> failure
//!                    │                           └────────────────┼──> wake (segment)
//!                    └────────────────────────────────────────────┘
//! ```
//!
//! Two of three messages are acknowledged at once:
//! ```text
#![doc = include_str!("waves/acknowledge.txt")]
//! ```
//!
//! Latency 9 cycles from an answer to its first completion, when there is nothing else to do. Cycles, each with the one in which
//! it was chosen: an answer 3, and 3 when it comes back from the place stage, a turn 3, with 2 for each message, 1 where a block ends, and 1 to ask who is held.
//! Measured over 256 messages: 2.6 cycles each with one answer for all of a queue pair, 6.0 with an answer each.
//!
//! 1. Messages of a queue pair complete in order, each once: with success when acknowledged, with the reason of its own when it
//!    was never sent, or with that of the NAK, of the failed read, or of a key behind its first packet. Those behind the first one
//!    in error are flushed.
//! 2. Only signalled messages and those in error make a completion. One whose slot was never read has no tag that a completion
//!    could carry: it raises an event instead, and none of its queue follows it.
//! 3. Messages of an older generation, or of a queue pair in RESET, leave the pool without a word.
//! 4. Of several failures of a queue pair the one with the earliest PSN counts, whatever their order.
//! 5. Setup events, failures of gather, kicks and answers are taken between two turns whatever the outputs do; a turn starts only
//!    with room for all that it can say. A turn waits for seven answers at most.
//! 6. Behind a change of life or a restart the queue pair stays in line until what had been begun before has left: such messages are
//!    written down without a kick. Segmentation must have taken the event before.
//!    So one in SQD whose path asks for it raises the event of protocol 3.10 once nothing of it is left, behind the completions;
//!    once for each time that it comes there.
//! 7. Data, and while a READ is open every answer, go through deposit and the place stage, and count when they come back, in their order.
//!    So a READ ends when its data is in memory, and what an answer says of messages behind it is believed then. Answers that come
//!    back are taken before others. Between the first and the last data of a READ no message ends, so that only moves the mark.
//! 8. Every payload is told to deposit once, in order, whatever becomes of its answer.
//! 9. The end of a key of this host completes when control has said that the key is ended, or that it will not be; which comes as
//!    a kick, for as long as the generation is the same.
//! 10. `passage` counts what is between here and there, from one cycle after the answer was taken until it has come back.
//!
//! An answer is dropped and counted unless whole QPN, state, service, partition and both addresses are right, in this order, and
//! its PSN is in flight. Nothing is sent again yet: NAK 0x60 and RNR NAK end the queue pair as if no retry were left, and a message
//! in error waits for the answers to those before it. Credits are ignored (protocol 2.9). Protocol 1.6, 2.5, 2.11, 8.3.
use crate::constants::{
    ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE, COMPLETES_COMPARE_SWAP, COMPLETES_FETCH_ADD, COMPLETES_LOCAL_INVALIDATE,
    COMPLETES_READ, COMPLETES_SEND, COMPLETES_WRITE, DRAINED_EVENT, ERROR, FATAL_EVENT, FLUSHED,
    LOCAL_OPERATION, LOCAL_PROTECTION, READY_TO_RECEIVE, READY_TO_SEND, REASON_KEY, REASON_PAYLOAD, RELIABLE,
    RESET, RETRY_EXCEEDED, SEND_QUEUE_DRAIN, SEND_QUEUE_ERROR, SUCCESS,
};
use crate::messages::{
    BLOCK_BITS, Begun, Issued, LocalCompletion, MESSAGE_COUNT_BITS, OutstandingMessage, PLACE_BITS, Response,
    Retired,
};
use crate::outstanding::SHARED_BITS;
use crate::response_class::{Meaning, meaning, returned_meaning, status};
use rnic_blocks::logic::match_table::MatchTable;
use rnic_blocks::logic::psn;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::PacketToken;
use rnic_messages::complete::CqeToken;
use rnic_messages::read::{READ_COUNT_BITS, ReturnedAnswer};
use rnic_messages::setup::{FailureCause, FailureEvent, InFlight, SetupEvent, SetupKind, SourceAddressWrite};
use rnic_messages::sizes::{
    COMPLETION_QUEUE_BITS, GENERATION_BITS, QUEUE_PAIR_BITS, SOURCE_ADDRESS_BITS, SOURCE_ADDRESSES,
};
use rnic_messages::transmit::GatherFailure;

/// What commands say.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Peer {
    state: Bits<3>,
    generation: Bits<GENERATION_BITS>,
    service: Bits<2>,
    local_qp: Bits<24>,
    partition_key: Bits<16>,
    address: Bits<128>,
    source_address_index: Bits<SOURCE_ADDRESS_BITS>,
    completion_queue: Bits<COMPLETION_QUEUE_BITS>,
}

/// How far the peer is; mirrors those fields of `rnic_layout::context::AcknowledgeRecord` that SEND, WRITE and READ need.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Progress {
    /// A message was completed in error, or the queue pair is in ERR: the others are flushed.
    has_failed: Bit,
    /// The message of `failed_psn`, or the first one behind it, is to end in error when it is the oldest.
    will_fail: Bit,
    failed_psn: Bits<24>,
    failed_status: Bits<8>,
    failed_reason: Bits<8>,
    /// The block at the beginning of the chain; zero is the home.
    head_from_home: Bits<BLOCK_BITS>,
    /// Messages of it that have left, 0 to 8.
    head_count: Bits<4>,
    /// Messages that have left, of which the count never starts anew, and the oldest PSN that is not acknowledged.
    retired: Retired,
    /// Control has answered to the end of a key, which has not left yet.
    is_freed: Bit,
    /// With a refusal.
    is_denied: Bit,
    /// It stands in line.
    is_in_line: Bit,
    /// It stays there until nothing is left that was begun before its life changed.
    is_draining: Bit,
    /// It is in SQD, and says so when nothing is left.
    tells_drained: Bit,
}

/// What the block does.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Setup,
    LocalCompletion,
    /// A failure of gather: which PSN is the earlier one, then the record.
    Failure,
    Lost,
    /// An answer: checks, then its place in the window.
    Check,
    Answer,
    /// A turn: the record, then message by message, then the record back.
    Load,
    Block,
    WqeFetch,
    Judge,
    Store,
    AskHeld,
}

/// Why an answer goes no further.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Fault {
    None,
    UnknownQp,
    NotReady,
    Transport,
    Partition,
    SourceAddress,
    Silent,
}

/// What becomes of the oldest message.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Verdict {
    /// Not acknowledged yet.
    Stays,
    /// It leaves without a word.
    Silent,
    /// The peer has it.
    Success,
    /// A message before it was in error.
    Flushed,
    /// It has an error of its own.
    Own,
    /// The peer refused it, or its payload could not be read.
    Failed,
}

/// The block.
#[derive(Default, LogicBlock, Registers)]
pub struct Acknowledge {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// Records are being cleared.
    pub is_sweeping: Signal<In, Bit>,
    /// Whose.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From control: an own address.
    pub source_address_write: Signal<In, SourceAddressWrite>,
    /// There is one.
    pub source_address_write_valid: Signal<In, Bit>,
    /// From control.
    pub setup: StreamRx<SetupEvent>,
    /// From gather: a packet that could not be sent.
    pub gather_failure: StreamRx<GatherFailure>,
    /// From issuing: a message was written down that no answer will complete, or its rest will not be sent.
    pub kick: StreamRx<LocalCompletion>,
    /// From the packet path.
    pub responses: StreamRx<PacketToken>,
    /// To deposit; registered.
    pub response: StreamTx<Response>,
    /// From the place stage: what that has come to.
    pub returned: StreamRx<ReturnedAnswer>,
    /// How many went and came back; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// To the completion queues; registered.
    pub completion: StreamTx<CqeToken>,
    /// To control; registered.
    pub failure: StreamTx<FailureEvent>,
    /// To segmentation: there is room again; registered.
    pub wake: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// To the pool: whose counts are wanted.
    pub queue_pair: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// That of issuing is.
    pub issued_read: Signal<Out, Bit>,
    /// That of segmentation is.
    pub begun_read: Signal<Out, Bit>,
    /// From the pool, one cycle later.
    pub issued: Signal<In, Issued>,
    /// From the pool, one cycle later.
    pub begun: Signal<In, Begun>,
    /// To the pool: the oldest message.
    pub place: Signal<Out, Bits<PLACE_BITS>>,
    /// From the pool, one cycle later.
    pub message: Signal<In, OutstandingMessage>,
    /// From the pool, one cycle later.
    pub next_block: Signal<In, Bits<BLOCK_BITS>>,
    /// To the pool: whose messages have left.
    pub retired_index: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// How many.
    pub retires: Signal<Out, Retired>,
    /// It is said now.
    pub retires_valid: Signal<Out, Bit>,
    /// To the pool: a shared block that is free.
    pub freed: Signal<Out, Bits<SHARED_BITS>>,
    /// It is.
    pub freed_valid: Signal<Out, Bit>,
    /// Registered, as all counts.
    pub counts_unknown_qp: Signal<Out, Bit>,
    /// The queue pair takes no answers.
    pub counts_qp_not_ready: Signal<Out, Bit>,
    /// It is of another service.
    pub counts_transport_mismatch: Signal<Out, Bit>,
    /// Of another partition.
    pub counts_partition_key: Signal<Out, Bit>,
    /// From another address than the peer's.
    pub counts_source_address: Signal<Out, Bit>,
    /// An ACK made progress.
    pub counts_acknowledgements_received: Signal<Out, Bit>,
    /// NAK 0x60 to 0x63.
    pub counts_nak_received: Signal<Out, Bit>,
    /// RNR NAK.
    pub counts_nak_not_ready_received: Signal<Out, Bit>,
    /// The PSN was answered before.
    pub counts_response_stale: Signal<Out, Bit>,
    /// The PSN was never sent.
    pub counts_response_never_sent: Signal<Out, Bit>,
    /// The syndrome is reserved.
    pub counts_response_reserved: Signal<Out, Bit>,
    /// Answers that nobody asked for.
    pub counts_response_unexpected: Signal<Out, Bit>,
    /// A queue pair ended by NAK 0x60.
    pub counts_retry_exhausted: Signal<Out, Bit>,
    /// A queue pair ended by an RNR NAK.
    pub counts_not_ready_exhausted: Signal<Out, Bit>,
    /// A message ended well.
    pub counts_messages_completed: Signal<Out, Bit>,
    /// News of an older generation.
    pub counts_stale_dropped: Signal<Out, Bit>,

    own_addresses: MatchTable<128, SOURCE_ADDRESSES, SOURCE_ADDRESS_BITS>,
    peers: Memory<Peer, QUEUE_PAIR_BITS>,
    progresses: Memory<Progress, QUEUE_PAIR_BITS>,
    line: Fifo<Bits<QUEUE_PAIR_BITS>, QUEUE_PAIR_BITS, LINE_COUNT_BITS>,
    completions: Fifo<CqeToken, 5, 6>,
    wakes: Fifo<Bits<QUEUE_PAIR_BITS>, 2, 3>,
    step: Reg<Step>,
    answers_taken: Reg<Bits<3>>,
    queue_pair_held: DFF<Bits<QUEUE_PAIR_BITS>>,
    failures: Fifo<FailureEvent, 2, 3>,
    is_own: DFF<Bit>,
    is_back: DFF<Bit>,
    deferred: Fifo<Response, 3, 4>,
    passed: Reg<InFlight>,
    has_open: DFF<Bit>,
    asked: Reg<Bit>,
    fault: DFF<Fault>,
    meaning: DFF<Meaning>,
    ahead: DFF<Bits<24>>,
    psns_in_flight: DFF<Bits<24>>,
    is_empty: DFF<Bit>,
    failing_psn: DFF<Bits<24>>,
    keeps: DFF<Bit>,
    has_failed: DFF<Bit>,
    /// The end of a key has left in this turn.
    ended_key: DFF<Bit>,
    head: DFF<Bits<BLOCK_BITS>>,
    head_count: DFF<Bits<4>>,
    retired: DFF<Retired>,
    left: DFF<Bits<3>>,
    frees: DFF<Bit>,
    stays: DFF<Bit>,
    oldest: DFF<OutstandingMessage>,
    verdict: DFF<Verdict>,
    is_last: DFF<Bit>,
    counts: Reg<Counts>,
}

const LINE_COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;
/// A turn starts with fewer completions waiting; it adds eight, and the queue holds 32.
const COMPLETIONS_MAX: u64 = 24;
/// A turn starts with fewer failures waiting; it adds two, of an error and of a slot behind it, or says that nothing is left, and
/// the queue holds four.
const FAILURES_MAX: u64 = 3;
/// A turn starts with fewer wakes waiting; there is one on its way perhaps, it adds one, and the queue holds four.
const WAKES_MAX: u64 = 3;

/// What has happened in the cycle before.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Counts {
    unknown_qp: Bit,
    qp_not_ready: Bit,
    transport_mismatch: Bit,
    partition_key: Bit,
    source_address: Bit,
    acknowledgements_received: Bit,
    nak_received: Bit,
    nak_not_ready_received: Bit,
    response_stale: Bit,
    response_never_sent: Bit,
    response_reserved: Bit,
    response_unexpected: Bit,
    retry_exhausted: Bit,
    not_ready_exhausted: Bit,
    messages_completed: Bit,
    stale_dropped: Bit,
}

impl Logic for Acknowledge {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<Response>::link(&mut self.response, &mut self.deferred.tx);
        StreamTx::<CqeToken>::link(&mut self.completion, &mut self.completions.tx);
        StreamTx::<FailureEvent>::link(&mut self.failure, &mut self.failures.tx);
        StreamTx::<Bits<QUEUE_PAIR_BITS>>::link(&mut self.wake, &mut self.wakes.tx);
        let is_sweeping = self.is_sweeping.val();
        let sweep_index = self.sweep_index.val();
        let step = self.step.q.val();
        let queue_pair = self.queue_pair_held.q.val();
        let event = self.setup.beat.val();
        let kick = self.kick.beat.val();
        // A packet that was not sent, for a key or because the host did not give its payload.
        let is_own = self.is_own.q.val();
        let lost = if is_own {
            GatherFailure {
                queue_pair: kick.queue_pair,
                generation: kick.generation,
                psn: kick.psn,
                is_response: false,
            }
        } else {
            self.gather_failure.beat.val()
        };
        let packet = self.responses.beat.val();
        let returned = self.returned.beat.val();
        let is_back = self.is_back.q.val();
        let home = bit_cast::<BLOCK_BITS, QUEUE_PAIR_BITS>(queue_pair);

        // Who is next. Answers go before turns, so that a turn finds more to do, but not for long.
        let is_idle = step == Step::Idle && !is_sweeping;
        let has_setup = self.setup.valid.val();
        let has_lost = self.gather_failure.valid.val() && !has_setup;
        let has_kick = self.kick.valid.val() && !has_setup && !has_lost;
        let is_quiet = !has_setup && !self.gather_failure.valid.val() && !self.kick.valid.val();
        // A wake of the turn before may be on its way, so there must be room for two.
        let has_room = self.completions.level.val() < COMPLETIONS_MAX
            && self.failures.level.val() < FAILURES_MAX
            && self.wakes.level.val() < WAKES_MAX;
        let may_turn = self.line.tx.valid.val() && has_room;
        let has_answer =
            self.returned.valid.val() || (self.responses.valid.val() && self.deferred.rx.ready.val());
        let has_turn = is_quiet && may_turn && (!has_answer || self.answers_taken.q.val().all());
        let has_response = is_quiet && has_answer && !has_turn;
        let chosen = if has_setup {
            event.queue_pair
        } else if has_lost {
            self.gather_failure.beat.val().queue_pair
        } else if has_kick {
            kick.queue_pair
        } else if has_turn {
            self.line.tx.beat.val()
        } else if self.returned.valid.val() {
            returned.queue_pair
        } else {
            packet.destination_qp.get_bits::<QUEUE_PAIR_BITS>(0)
        };
        self.line.tx.ready.next = is_idle && has_turn;
        if is_idle {
            self.queue_pair_held.d.next = chosen;
            self.is_own.d.next = !has_lost;
            self.is_back.d.next = self.returned.valid.val();
            if has_turn {
                self.answers_taken.d.next = bits(0);
            } else if has_response && !self.answers_taken.q.val().all() {
                self.answers_taken.d.next = self.answers_taken.q.val() + 1;
            }
            self.step.d.next = if has_setup {
                Step::Setup
            } else if has_lost {
                Step::Failure
            } else if has_kick {
                if kick.has_failed { Step::Failure } else { Step::LocalCompletion }
            } else if has_turn {
                Step::Load
            } else if has_response {
                Step::Check
            } else {
                Step::Idle
            };
        }
        self.setup.ready.next = step == Step::Setup;
        self.gather_failure.ready.next = step == Step::Lost && !is_own;
        self.kick.ready.next = step == Step::LocalCompletion || (step == Step::Lost && is_own);
        self.responses.ready.next = step == Step::Answer && !is_back;
        self.returned.ready.next = step == Step::Answer && is_back;
        self.peers.read_enable.next = step == Step::Idle;
        self.peers.read_address.next = chosen;
        self.progresses.read_enable.next = step == Step::Idle;
        self.progresses.read_address.next = chosen;
        self.queue_pair.next = select(step == Step::Idle, chosen, queue_pair);
        self.issued_read.next = step == Step::Idle;
        self.begun_read.next = step == Step::Idle || step == Step::AskHeld;
        let peer = self.peers.read_data.val();
        let progress = self.progresses.read_data.val();
        let issued = self.issued.val();
        let begun = self.begun.val();

        // What commands say.
        self.peers.write_enable.next = is_sweeping || step == Step::Setup;
        self.peers.write_address.next = select(is_sweeping, sweep_index, queue_pair);
        self.peers.write_data.next = Peer {
            state: select(is_sweeping, bits::<3>(RESET), event.state),
            generation: event.generation,
            service: event.path.service,
            local_qp: select(is_sweeping, bits::<24>(0), event.path.local_qp),
            partition_key: event.path.partition_key,
            address: event.path.destination_address,
            source_address_index: event.path.source_address_index,
            completion_queue: event.path.send_completion_queue.get_bits::<COMPLETION_QUEUE_BITS>(0),
        };
        let is_life = step == Step::Setup && event.kind == SetupKind::Life;
        let is_restart = step == Step::Setup && event.kind == SetupKind::Restart;
        let is_send_psn = step == Step::Setup && event.kind == SetupKind::SendPsn;
        let has_ended = event.state == ERROR || event.state == SEND_QUEUE_ERROR;

        // An answer stands from Idle to Answer. It is for the address that its queue pair sends from (protocol 1.2).
        let own = self.source_address_write.val();
        self.own_addresses.write_enable.next = self.source_address_write_valid.val();
        self.own_addresses.write_index.next = own.index;
        self.own_addresses.write_used.next = own.valid;
        self.own_addresses.write_word.next = own.address;
        self.own_addresses.word.next = packet.destination_address;
        self.own_addresses.index.next = peer.source_address_index;

        // An answer: whose it is, what it says, and where its PSN stands.
        let syndrome = select(is_back, returned.syndrome, packet.extended.get_bits::<8>(0));
        let said_psn = select(is_back, returned.psn, packet.psn);
        // An acknowledgement has no payload; one that has is nothing that anybody asked for.
        let found = if is_back {
            returned_meaning(returned)
        } else if packet.opcode == ACKNOWLEDGE && packet.payload_bytes.any() {
            Meaning::Other
        } else {
            meaning(packet.opcode, syndrome)
        };
        let takes_answers = peer.state == READY_TO_RECEIVE
            || peer.state == READY_TO_SEND
            || peer.state == SEND_QUEUE_DRAIN
            || peer.state == SEND_QUEUE_ERROR;
        self.fault.d.next = if found == Meaning::Congestion {
            Fault::Silent
        } else if is_back {
            if returned.generation == peer.generation && takes_answers && !progress.has_failed {
                Fault::None
            } else {
                Fault::Silent
            }
        } else if packet.destination_qp != peer.local_qp {
            Fault::UnknownQp
        } else if !takes_answers || progress.has_failed {
            Fault::NotReady
        } else if peer.service != RELIABLE || packet.opcode.get_bits::<3>(5) != RELIABLE {
            Fault::Transport
        } else if packet.partition_key != peer.partition_key {
            Fault::Partition
        } else if packet.source_address != peer.address || !self.own_addresses.agrees.val() {
            Fault::SourceAddress
        } else {
            Fault::None
        };
        self.meaning.d.next = found;
        self.ahead.d.next = psn::distance(said_psn, progress.retired.una_psn);
        self.psns_in_flight.d.next = psn::distance(issued.unsent_psn, progress.retired.una_psn);
        self.has_open.d.next = issued.reads != progress.retired.reads;
        self.is_empty.d.next = issued.count == progress.retired.count || issued.generation != peer.generation;
        // Unasked data is the fault of the oldest message, whatever PSN it has.
        let failing_psn = if step == Step::Failure {
            lost.psn
        } else if found == Meaning::ReadData {
            progress.retired.una_psn
        } else {
            said_psn
        };
        self.failing_psn.d.next = failing_psn;
        self.keeps.d.next = progress.will_fail && !psn::is_before(failing_psn, progress.failed_psn);

        let fault = self.fault.q.val();
        let said = self.meaning.q.val();
        let is_ours = step == Step::Answer && fault == Fault::None;
        let is_in_flight = self.ahead.q.val() < self.psns_in_flight.q.val() && !self.is_empty.q.val();
        let is_behind = self.ahead.q.val().get_bit(23);
        let is_refusal = said == Meaning::Refusal || said == Meaning::NotReady;
        // Nobody asks for atomics while nothing is open (protocol 8.3).
        let is_other = said == Meaning::Other
            || (!is_back && packet.opcode == ATOMIC_ACKNOWLEDGE && !self.has_open.q.val());
        // Data, and what must not overtake it.
        let waits = !is_back
            && ((said == Meaning::ReadData && !is_other)
                || (self.has_open.q.val() && (said == Meaning::Progress || is_refusal)));
        let is_good = is_ours && is_in_flight && !waits;
        let is_failure = said == Meaning::Failure;
        let moves =
            is_good && (said == Meaning::Progress || said == Meaning::Placed || is_refusal || is_failure);
        let is_deferred = is_ours && is_in_flight && waits;
        let defers = step == Step::Answer && !is_back && (is_deferred || packet.payload_bytes.any());
        self.deferred.rx.valid.next = defers;
        self.deferred.rx.beat.next = Response {
            queue_pair,
            generation: peer.generation,
            is_good: is_deferred,
            is_data: said == Meaning::ReadData,
            opcode: packet.opcode,
            psn: packet.psn,
            syndrome: packet.extended.get_bits::<8>(0),
            payload_bytes: packet.payload_bytes,
            original: packet.extended.get_bits::<64>(32),
        };
        let passed = self.passed.q.val();
        if defers {
            self.passed.d.next.entered = passed.entered + 1;
        }
        if step == Step::Answer && is_back {
            self.passed.d.next.left = passed.left + 1;
        }
        self.in_flight.next = passed;
        let is_current = lost.generation == peer.generation;
        let is_unasked = said == Meaning::ReadData && !is_other;
        let refuses = is_good && (is_refusal || is_failure || is_unasked);
        let fails = (refuses || (step == Step::Lost && is_current)) && !self.keeps.q.val();

        // The record.
        let head = self.head.q.val();
        let has_more = self.retired.q.val().count != issued.count;
        let drains = progress.is_draining && begun.count != self.retired.q.val().count;
        let goes_on = !self.stays.q.val() && (has_more || drains);
        // Between the first and the last data of a READ no message can end.
        let is_middle = said == Meaning::Placed && returned.is_middle;
        let is_empty_now = begun.count == self.retired.q.val().count && !self.has_failed.q.val();
        let is_drained = step == Step::Store && progress.tells_drained && is_empty_now;
        let joins = is_life
            || is_restart
            || is_send_psn
            || step == Step::LocalCompletion
            || (moves && !is_middle)
            || refuses
            || (step == Step::Lost && is_current);
        self.line.rx.valid.next = (joins && !progress.is_in_line) || (step == Step::Store && goes_on);
        self.line.rx.beat.next = queue_pair;
        self.progresses.write_enable.next = is_sweeping || joins || moves || step == Step::Store;
        self.progresses.write_address.next = select(is_sweeping, sweep_index, queue_pair);
        self.progresses.write_data.next = progress;
        if joins {
            self.progresses.write_data.next.is_in_line = true;
        }
        if is_life || is_restart {
            self.progresses.write_data.next.has_failed = is_life && (progress.has_failed || has_ended);
            self.progresses.write_data.next.will_fail = is_life && progress.will_fail;
            self.progresses.write_data.next.is_freed = is_life && progress.is_freed;
            self.progresses.write_data.next.is_draining = true;
            self.progresses.write_data.next.tells_drained = is_life
                && event.state == SEND_QUEUE_DRAIN
                && event.path.drain_notify
                && (peer.state != SEND_QUEUE_DRAIN || progress.tells_drained);
        }
        if step == Step::LocalCompletion && kick.is_freed && kick.generation == peer.generation {
            self.progresses.write_data.next.is_freed = true;
            self.progresses.write_data.next.is_denied = kick.is_denied;
        }
        if is_send_psn {
            self.progresses.write_data.next.retired = Retired {
                count: progress.retired.count,
                reads: progress.retired.reads,
                home_lap: progress.retired.home_lap,
                una_psn: event.psn,
            };
        }
        if moves {
            self.progresses.write_data.next.retired = Retired {
                count: progress.retired.count,
                reads: progress.retired.reads,
                home_lap: progress.retired.home_lap,
                una_psn: select(is_refusal || is_failure, said_psn, said_psn + 1),
            };
        }
        if fails {
            self.progresses.write_data.next.will_fail = true;
            self.progresses.write_data.next.failed_psn = self.failing_psn.q.val();
            self.progresses.write_data.next.failed_status =
                if step == Step::Lost || (is_failure && returned.has_failed && returned.is_placed) {
                    bits::<8>(LOCAL_PROTECTION)
                } else if is_failure {
                    returned.status
                } else {
                    status(said, syndrome)
                };
            self.progresses.write_data.next.failed_reason = if step == Step::Lost {
                select(is_own, bits::<8>(0), bits::<8>(REASON_PAYLOAD))
            } else if is_refusal {
                syndrome
            } else if is_failure && returned.is_placed {
                bits::<8>(REASON_PAYLOAD)
            } else {
                bits::<8>(0)
            };
        }
        if step == Step::Store {
            self.progresses.write_data.next.has_failed = self.has_failed.q.val();
            self.progresses.write_data.next.is_freed = progress.is_freed && !self.ended_key.q.val();
            self.progresses.write_data.next.head_from_home = head ^ home;
            self.progresses.write_data.next.head_count = self.head_count.q.val();
            self.progresses.write_data.next.retired = self.retired.q.val();
            self.progresses.write_data.next.is_in_line = goes_on;
            self.progresses.write_data.next.is_draining = drains && !self.stays.q.val();
            self.progresses.write_data.next.tells_drained = progress.tells_drained && !is_drained;
        }
        if is_sweeping {
            self.progresses.write_data.next = Progress {
                has_failed: false,
                will_fail: false,
                failed_psn: bits::<24>(0),
                failed_status: bits::<8>(0),
                failed_reason: bits::<8>(0),
                head_from_home: bits::<BLOCK_BITS>(0),
                head_count: bits::<4>(0),
                retired: Retired {
                    count: bits::<MESSAGE_COUNT_BITS>(0),
                    reads: bits::<READ_COUNT_BITS>(0),
                    home_lap: false,
                    una_psn: bits::<24>(0),
                },
                is_freed: false,
                is_denied: false,
                is_in_line: false,
                is_draining: false,
                tells_drained: false,
            };
        }

        // A turn. The pool shows in the next cycle what stands at `place`, and which block follows its block.
        let is_judged = step == Step::Judge && self.verdict.q.val() != Verdict::Stays;
        let next_count = self.head_count.q.val() + 1;
        self.place.next = if step == Step::Load {
            cat!(progress.head_from_home ^ home, progress.head_count.get_bits::<3>(0))
        } else if step == Step::Block {
            cat!(self.next_block.val(), bits::<3>(0))
        } else {
            cat!(head, next_count.get_bits::<3>(0))
        };
        if step == Step::Load {
            self.has_failed.d.next = progress.has_failed;
            self.ended_key.d.next = false;
            self.head.d.next = progress.head_from_home ^ home;
            self.head_count.d.next = progress.head_count;
            self.retired.d.next = progress.retired;
            self.left.d.next = bits::<3>(0) - 1;
            self.frees.d.next = false;
            self.stays.d.next = false;
            self.step.d.next = if progress.retired.count == issued.count {
                Step::Store
            } else if progress.head_count.get_bit(3) {
                Step::Block
            } else {
                Step::WqeFetch
            };
        }

        // The last block of a chain is followed by itself when it is used again.
        let changes_block = step == Step::Block && self.next_block.val() != head;
        let is_shared = head.get_bit(SHARED_BITS);
        self.freed.next = head.get_bits::<SHARED_BITS>(0);
        self.freed_valid.next = changes_block && is_shared;
        if step == Step::Block {
            self.head.d.next = self.next_block.val();
            self.head_count.d.next = bits(0);
            self.frees.d.next = self.frees.q.val() || changes_block;
            self.retired.d.next.home_lap = self.retired.q.val().home_lap != (changes_block && !is_shared);
            self.step.d.next = Step::WqeFetch;
        }

        let message = self.message.val();
        let is_stale = message.generation != peer.generation || peer.state == RESET;
        let is_failed = progress.will_fail && !psn::is_after(progress.failed_psn, message.last_psn);
        let is_acknowledged = psn::is_before(message.last_psn, progress.retired.una_psn);
        if step == Step::WqeFetch {
            self.oldest.d.next = message;
            let is_denied = message.is_local && progress.is_freed && progress.is_denied;
            if is_denied {
                self.oldest.d.next.status = bits(LOCAL_OPERATION);
                self.oldest.d.next.reason = bits(REASON_KEY);
            }
            self.verdict.d.next = if is_stale {
                Verdict::Silent
            } else if self.has_failed.q.val() || message.status == FLUSHED {
                Verdict::Flushed
            } else if message.status != SUCCESS || is_denied {
                Verdict::Own
            } else if is_failed {
                Verdict::Failed
            } else if is_acknowledged && (!message.is_local || progress.is_freed) {
                Verdict::Success
            } else {
                Verdict::Stays
            };
            self.is_last.d.next = self.retired.q.val().count + 1 == issued.count || !self.left.q.val().any();
            self.step.d.next = Step::Judge;
        }

        let oldest = self.oldest.q.val();
        let verdict = self.verdict.q.val();
        let is_flushed = verdict == Verdict::Flushed;
        let is_first_error = verdict == Verdict::Own || verdict == Verdict::Failed;
        let is_success = verdict == Verdict::Success;
        if step == Step::Judge {
            self.has_failed.d.next = self.has_failed.q.val() || is_flushed || is_first_error;
            self.stays.d.next = !is_judged;
            self.step.d.next = if !is_judged || self.is_last.q.val() {
                Step::Store
            } else if next_count.get_bit(3) {
                Step::Block
            } else {
                Step::WqeFetch
            };
        }
        if is_judged {
            self.head_count.d.next = next_count;
            self.retired.d.next.count = self.retired.q.val().count + 1;
            self.left.d.next = self.left.q.val() - 1;
            self.ended_key.d.next = self.ended_key.q.val() || oldest.is_local;
            if oldest.is_open {
                // Who waits for a READ to end, is woken.
                self.retired.d.next.reads = self.retired.q.val().reads + 1;
                self.frees.d.next = true;
            }
        }
        let is_told = is_flushed || is_first_error || (is_success && oldest.is_signalled);
        self.completions.rx.valid.next = is_judged && is_told && oldest.has_wr_id;
        self.completions.rx.beat.next = CqeToken {
            completion_queue: peer.completion_queue,
            wr_id: oldest.wr_id,
            length: select(is_success && oldest.is_read, oldest.length, bits::<32>(0)),
            immediate: bits::<32>(0),
            qp_number: peer.local_qp,
            generation: peer.generation,
            consumer_index: oldest.next_slot,
            opcode: if oldest.is_local {
                bits::<8>(COMPLETES_LOCAL_INVALIDATE)
            } else if oldest.is_compare {
                bits::<8>(COMPLETES_COMPARE_SWAP)
            } else if oldest.is_atomic {
                bits::<8>(COMPLETES_FETCH_ADD)
            } else if oldest.is_read {
                bits::<8>(COMPLETES_READ)
            } else if oldest.is_write {
                bits::<8>(COMPLETES_WRITE)
            } else {
                bits::<8>(COMPLETES_SEND)
            },
            status: match verdict {
                Verdict::Flushed => bits::<8>(FLUSHED),
                Verdict::Own => oldest.status,
                Verdict::Failed => progress.failed_status,
                _ => bits::<8>(SUCCESS),
            },
            vendor_error: match verdict {
                Verdict::Own => oldest.reason,
                Verdict::Failed => progress.failed_reason,
                _ => bits::<8>(0),
            },
            with_immediate: false,
            with_invalidate: false,
            is_last: false,
            solicited: false,
        };
        let is_untold = (is_first_error || is_flushed) && !oldest.has_wr_id;
        self.failures.rx.valid.next = is_drained || (is_judged && (is_first_error || is_untold));
        self.failures.rx.beat.next = FailureEvent {
            queue_pair,
            generation: peer.generation,
            cause: if is_drained { FailureCause::Drained } else { FailureCause::Requester },
            has_event: is_drained || is_untold,
            event_code: if is_drained { bits::<8>(DRAINED_EVENT) } else { bits::<8>(FATAL_EVENT) },
        };

        // Segmentation sees what has left one cycle before it is asked whether it waits for that.
        self.retired_index.next = queue_pair;
        self.retires.next = self.retired.q.val();
        self.retires_valid.next = step == Step::Store;
        if step == Step::Store {
            self.step.d.next = if self.frees.q.val() || !has_more { Step::AskHeld } else { Step::Idle };
        }
        self.asked.d.next = step == Step::AskHeld;
        self.wakes.rx.valid.next = self.asked.q.val() && begun.is_held;
        self.wakes.rx.beat.next = queue_pair;
        if step == Step::Setup
            || step == Step::LocalCompletion
            || step == Step::Lost
            || step == Step::Answer
            || step == Step::AskHeld
        {
            self.step.d.next = Step::Idle;
        }
        if step == Step::Failure {
            self.step.d.next = Step::Lost;
        }
        if step == Step::Check {
            self.step.d.next = Step::Answer;
        }

        // Counters.
        let is_outside = is_ours && !is_in_flight;
        self.counts.d.next = Counts {
            unknown_qp: step == Step::Answer && fault == Fault::UnknownQp,
            qp_not_ready: step == Step::Answer && fault == Fault::NotReady,
            transport_mismatch: step == Step::Answer && fault == Fault::Transport,
            partition_key: step == Step::Answer && fault == Fault::Partition,
            source_address: step == Step::Answer && fault == Fault::SourceAddress,
            acknowledgements_received: is_good && said == Meaning::Progress,
            nak_received: is_good && said == Meaning::Refusal,
            nak_not_ready_received: is_good && said == Meaning::NotReady,
            response_stale: is_outside && is_behind,
            response_never_sent: is_outside && !is_behind,
            response_reserved: is_good && said == Meaning::Reserved,
            // ReadResponse has counted data that nobody has asked for.
            response_unexpected: is_good && is_other,
            retry_exhausted: fails
                && is_good
                && ((said == Meaning::Refusal && !syndrome.get_bits::<2>(0).any())
                    || (is_failure && returned.status == RETRY_EXCEEDED)),
            not_ready_exhausted: fails && is_good && said == Meaning::NotReady,
            messages_completed: is_judged && is_success,
            stale_dropped: step == Step::Lost && !is_current,
        };
        let counts = self.counts.q.val();
        self.counts_unknown_qp.next = counts.unknown_qp;
        self.counts_qp_not_ready.next = counts.qp_not_ready;
        self.counts_transport_mismatch.next = counts.transport_mismatch;
        self.counts_partition_key.next = counts.partition_key;
        self.counts_source_address.next = counts.source_address;
        self.counts_acknowledgements_received.next = counts.acknowledgements_received;
        self.counts_nak_received.next = counts.nak_received;
        self.counts_nak_not_ready_received.next = counts.nak_not_ready_received;
        self.counts_response_stale.next = counts.response_stale;
        self.counts_response_never_sent.next = counts.response_never_sent;
        self.counts_response_reserved.next = counts.response_reserved;
        self.counts_response_unexpected.next = counts.response_unexpected;
        self.counts_retry_exhausted.next = counts.retry_exhausted;
        self.counts_not_ready_exhausted.next = counts.not_ready_exhausted;
        self.counts_messages_completed.next = counts.messages_completed;
        self.counts_stale_dropped.next = counts.stale_dropped;
    }
}

#[cfg(test)]
mod tests;
