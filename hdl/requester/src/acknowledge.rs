//! Acknowledge: takes the peer's responses, and completes messages in the order in which they were posted.
//!
//! One response may acknowledge many messages. So it only moves the acknowledged PSN and puts the queue pair
//! into a ready queue, and its messages are completed by up to eight a turn: no queue pair waits for all
//! messages of another.
//!
//! ```text
//!                        ┌────────────────────────────────────────────┐
//!  setup ───────────────>│                                            │
//!  gather_failure ──────>│─> record: acknowledged PSN, failure ─┐     │
//!  local_completion ────>│                                      v     │
//!  responses ───────────>│─┬────────────────────────┐           v     │
//!                        │ └ data, or after data ─────────────────────┼──> response (read_response)
//!  returned ────────────>│──> when that is placed       ready queue   │
//!                        │  pool ──> oldest message ─┬─ turn ─────────┼──> completion
//!                        │                           ├────────────────┼──> failure
//!                        │                           └────────────────┼──> wake (wqe_parse)
//!                        └────────────────────────────────────────────┘
//! ```
//!
//! Two of three messages are acknowledged at once:
//! ```text
#![doc = include_str!("waves/acknowledge.txt")]
//! ```
//!
//! Latency 9 cycles from a response to its first completion, when there is nothing else to do. Cycles, each
//! with the one in which the input was chosen: a response 3, and 3 when it returns from the place stage; a turn
//! 3, with 2 for each message, 1 where a block ends, and 1 to ask whether the queue pair is held. Measured over
//! 256 messages: 2.6 cycles each with one response for all of a queue pair, 6.0 with a response each.
//!
//! 1. Messages of a queue pair complete in order, each once: with success when acknowledged, with the status of
//!    their own when they were never sent, or with that of the NAK, of the failed read, or of a failed access
//!    check after their first packet. Those after the first one in error are flushed.
//! 2. Only signalled messages and those in error write a CQE. A message whose slot was never read has no
//!    `wr_id` for a CQE: it raises an event instead, and none of its queue follows it.
//! 3. Messages of an older generation, or of a queue pair in RESET, leave the pool without a CQE.
//! 4. Of several failures of a queue pair the one with the earliest PSN counts, whatever their order.
//! 5. Setup events, failures of gather, local completions and responses are taken between two turns whatever
//!    the outputs do; a turn starts only with room for all that it can send. A turn waits for seven responses
//!    at most.
//! 6. After a change of state or a restart the queue pair stays in the ready queue until the messages that were
//!    parsed before have left: such messages are written into the pool without a local completion. WqeParse
//!    must have taken the event before. So a queue pair in SQD whose path asks for it raises the event of
//!    protocol 3.10 once nothing of it is left, after the completions; once for each transition to SQD.
//! 7. Data, and every response while a READ is outstanding, pass read_response and the place stage, and take
//!    effect when they return, in order. So a READ completes when its data is in host memory, and responses to
//!    messages after it take effect later. Responses that return are taken before others. Between the first and
//!    the last data of a READ no message completes, so that only moves the PSN.
//! 8. Every payload makes one `response`, in order, whatever becomes of the packet.
//! 9. A LOCAL_INVALIDATE completes when control has invalidated the key, or has refused to; control answers
//!    with a local completion, which counts as long as the generation is the same.
//! 10. `in_flight` counts the responses that read_response and the place stage have, from one cycle after the
//!     response was taken until it has returned.
//!
//! A response is dropped and counted unless whole QPN, state, service, partition and both addresses are right,
//! in this order, and its PSN is in flight. Nothing is sent again yet: NAK 0x60 and RNR NAK fail the queue pair
//! as if no retry were left, and a message in error waits for the responses to those before it. Credits are
//! ignored (protocol 2.9). Protocol 1.6, 2.5, 2.11, 8.3.
use crate::messages::{
    BLOCK_BITS, Begun, Issued, LocalCompletion, MESSAGE_COUNT_BITS, OutstandingMessage, POOL_SLOT_BITS,
    Response, Retired,
};
use crate::opcode::{ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE};
use crate::outstanding::SHARED_BITS;
use crate::response_class::{ResponseClass, classify, classify_returned, status};
use crate::vendor_error;
use rnic_blocks::logic::match_table::MatchTable;
use rnic_blocks::logic::psn;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::{CompletionOpcode, CompletionStatus};
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::{QpState, Service};
use rnic_messages::complete::CqeToken;
use rnic_messages::packet::{PacketToken, partition_keys_match};
use rnic_messages::read::{READ_COUNT_BITS, ResponseNotice};
use rnic_messages::setup::{InFlight, NoticeKind, QpNotice, SetupEvent, SetupKind, SourceAddressWrite};
use rnic_messages::sizes::{
    COMPLETION_QUEUE_BITS, GENERATION_BITS, QUEUE_PAIR_BITS, SOURCE_ADDRESS_BITS, SOURCE_ADDRESSES,
};
use rnic_messages::transmit::GatherFailure;

/// Path and state of a queue pair, as commands set them.
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

/// Progress of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Progress {
    /// A message was completed in error, or the queue pair is in ERR: the others are flushed.
    has_failed: Bit,
    /// The message of `failed_psn`, or the first one after it, fails when it is the oldest.
    will_fail: Bit,
    failed_psn: Bits<24>,
    failed_status: Bits<8>,
    failed_reason: Bits<8>,
    /// First block of the chain, relative to the home: zero is the home.
    head_from_home: Bits<BLOCK_BITS>,
    /// Messages of that block that have left, 0 to 8.
    head_count: Bits<4>,
    /// Messages that have left, a count that is never reset, and the oldest unacknowledged PSN.
    retired: Retired,
    /// Control has answered the LOCAL_INVALIDATE that is in the pool.
    is_invalidated: Bit,
    /// Control has refused it.
    is_denied: Bit,
    /// The queue pair is in the ready queue.
    is_queued: Bit,
    /// The queue pair stays there until the messages that were parsed before its state changed have left.
    is_draining: Bit,
    /// The queue pair is in SQD, and raises an event when nothing is left.
    reports_drained: Bit,
}

/// State of the block.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Setup,
    Local,
    /// A packet that was not sent: compares the PSNs, then writes the record.
    Failure,
    Lost,
    /// A response: checks it, then its PSN.
    Check,
    Response,
    /// A turn: reads the record, then message by message, then writes the record.
    Load,
    Block,
    Message,
    Complete,
    Store,
    AskHeld,
}

/// Why a response is dropped, in the order of the checks.
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
    /// It is not acknowledged.
    Stays,
    /// It leaves without a CQE.
    Silent,
    /// The peer has acknowledged it.
    Success,
    /// A message before it was in error.
    Flushed,
    /// It has a status of its own.
    Own,
    /// The peer refused it, or its payload could not be read.
    Failed,
}

/// Events that the block counts, each a pulse of one cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AcknowledgeCounts {
    /// A response names no queue pair.
    pub unknown_qp: Bit,
    /// The state of the queue pair accepts no responses.
    pub qp_not_ready: Bit,
    /// The response is of another service than the queue pair.
    pub transport_mismatch: Bit,
    /// The response is of another partition than the queue pair.
    pub partition_key: Bit,
    /// The response is from another address than the peer's, or to another than the queue pair's.
    pub source_address: Bit,
    /// An ACK was accepted.
    pub acknowledgements_received: Bit,
    /// A NAK with a code of 0 to 3 was accepted.
    pub nak_received: Bit,
    /// An RNR NAK was accepted.
    pub nak_not_ready_received: Bit,
    /// The PSN of the response was acknowledged before.
    pub response_stale: Bit,
    /// The PSN of the response was never sent.
    pub response_never_sent: Bit,
    /// The syndrome of the response is reserved.
    pub response_reserved: Bit,
    /// The response answers no request.
    pub response_unexpected: Bit,
    /// A queue pair failed for a lost response, or for a NAK of a PSN sequence error.
    pub retry_exhausted: Bit,
    /// A queue pair failed for an RNR NAK.
    pub not_ready_exhausted: Bit,
    /// A message completed with success.
    pub messages_completed: Bit,
    /// A failure or a local completion of an older generation was dropped.
    pub stale_dropped: Bit,
}

/// Completes messages; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub struct Acknowledge {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// The records of `sweep_index` are cleared in this cycle.
    pub is_sweeping: Signal<In, Bit>,
    /// Queue pair whose records are cleared.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From control: write of the table of source addresses.
    pub source_address_write: Signal<In, SourceAddressWrite>,
    /// `source_address_write` is valid.
    pub source_address_write_valid: Signal<In, Bit>,
    /// From control; wqe_parse and segment must have taken the event before.
    pub setup: StreamRx<SetupEvent>,
    /// From gather: a packet that was not sent.
    pub gather_failure: StreamRx<GatherFailure>,
    /// From issue: a message that no response completes, or a packet that was not sent; from control: the
    /// result of an invalidation.
    pub local_completion: StreamRx<LocalCompletion>,
    /// From the packet path.
    pub responses: StreamRx<PacketToken>,
    /// To read_response; registered.
    pub response: StreamTx<Response>,
    /// From the place stage: result of a `response`.
    pub returned: StreamRx<ResponseNotice>,
    /// Responses sent to read_response, and returned; registered.
    pub in_flight: Signal<Out, InFlight>,
    /// To the completion queues; registered.
    pub completion: StreamTx<CqeToken>,
    /// To control; registered.
    pub failure: StreamTx<QpNotice>,
    /// To wqe_parse: the queue pair may have room again; registered.
    pub wake: StreamTx<Bits<QUEUE_PAIR_BITS>>,
    /// To the pool: queue pair whose counts are read.
    pub queue_pair: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// To the pool: reads `issued`.
    pub issued_read: Signal<Out, Bit>,
    /// To the pool: reads `begun`.
    pub begun_read: Signal<Out, Bit>,
    /// From the pool, one cycle after `issued_read`.
    pub issued: Signal<In, Issued>,
    /// From the pool, one cycle after `begun_read`.
    pub begun: Signal<In, Begun>,
    /// To the pool: slot to read.
    pub pool_slot: Signal<Out, Bits<POOL_SLOT_BITS>>,
    /// From the pool, one cycle after `pool_slot`.
    pub message: Signal<In, OutstandingMessage>,
    /// From the pool, one cycle after `pool_slot`: the block that follows its block.
    pub next_block: Signal<In, Bits<BLOCK_BITS>>,
    /// To the pool and to segment: queue pair of `retired_out`.
    pub retired_queue_pair: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// To the pool and to segment: counts after a turn.
    pub retired_out: Signal<Out, Retired>,
    /// `retired_out` is valid and is written.
    pub retired_valid: Signal<Out, Bit>,
    /// To the pool: shared block that is free.
    pub freed: Signal<Out, Bits<SHARED_BITS>>,
    /// `freed` is valid.
    pub freed_valid: Signal<Out, Bit>,
    /// Events to count; registered.
    pub counts: Signal<Out, AcknowledgeCounts>,

    own_addresses: MatchTable<128, SOURCE_ADDRESSES, SOURCE_ADDRESS_BITS>,
    peers: Memory<Peer, QUEUE_PAIR_BITS>,
    progresses: Memory<Progress, QUEUE_PAIR_BITS>,
    ready_queue: Fifo<Bits<QUEUE_PAIR_BITS>, QUEUE_PAIR_BITS, READY_COUNT_BITS>,
    completions: Fifo<CqeToken, 5, 6>,
    wakes: Fifo<Bits<QUEUE_PAIR_BITS>, 2, 3>,
    step: Reg<Step>,
    responses_taken: Reg<Bits<3>>,
    queue_pair_held: DFF<Bits<QUEUE_PAIR_BITS>>,
    failures: Fifo<QpNotice, 2, 3>,
    is_own: DFF<Bit>,
    is_back: DFF<Bit>,
    deferred: Fifo<Response, 3, 4>,
    in_flight_held: Reg<InFlight>,
    has_open: DFF<Bit>,
    asked: Reg<Bit>,
    fault: DFF<Fault>,
    class: DFF<ResponseClass>,
    ahead: DFF<Bits<24>>,
    psns_in_flight: DFF<Bits<24>>,
    is_empty: DFF<Bit>,
    failing_psn: DFF<Bits<24>>,
    keeps: DFF<Bit>,
    has_failed: DFF<Bit>,
    /// A LOCAL_INVALIDATE has left in this turn.
    has_invalidated: DFF<Bit>,
    head: DFF<Bits<BLOCK_BITS>>,
    head_count: DFF<Bits<4>>,
    retired: DFF<Retired>,
    left: DFF<Bits<3>>,
    frees: DFF<Bit>,
    stays: DFF<Bit>,
    oldest: DFF<OutstandingMessage>,
    verdict: DFF<Verdict>,
    is_last: DFF<Bit>,
    counts_held: Reg<AcknowledgeCounts>,
}

const READY_COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;
/// A turn starts with fewer completions in the queue; it adds eight, and the queue holds 32.
const COMPLETIONS_MAX: u64 = 24;
/// A turn starts with fewer failures in the queue; it adds two, of an error and of a slot after it, or the
/// event of SQD, and the queue holds four.
const FAILURES_MAX: u64 = 3;
/// A turn starts with fewer wakes in the queue; one may be on its way, it adds one, and the queue holds four.
const WAKES_MAX: u64 = 3;

impl Logic for Acknowledge {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::<Response>::link(&mut self.response, &mut self.deferred.tx);
        StreamTx::<CqeToken>::link(&mut self.completion, &mut self.completions.tx);
        StreamTx::<QpNotice>::link(&mut self.failure, &mut self.failures.tx);
        StreamTx::<Bits<QUEUE_PAIR_BITS>>::link(&mut self.wake, &mut self.wakes.tx);
        let is_sweeping = self.is_sweeping.val();
        let sweep_index = self.sweep_index.val();
        let step = self.step.q.val();
        let queue_pair = self.queue_pair_held.q.val();
        let event = self.setup.beat.val();
        let local = self.local_completion.beat.val();
        // A packet that was not sent, as an access check failed or the host did not return its payload.
        let is_own = self.is_own.q.val();
        let lost = if is_own {
            GatherFailure {
                queue_pair: local.queue_pair,
                generation: local.generation,
                psn: local.psn,
                is_response: false,
            }
        } else {
            self.gather_failure.beat.val()
        };
        let packet = self.responses.beat.val();
        let returned = self.returned.beat.val();
        let is_back = self.is_back.q.val();
        let home = bit_cast::<BLOCK_BITS, QUEUE_PAIR_BITS>(queue_pair);

        // Responses go before turns, so that a turn finds more to do, but seven at most.
        let is_idle = step == Step::Idle && !is_sweeping;
        let has_setup = self.setup.valid.val();
        let has_lost = self.gather_failure.valid.val() && !has_setup;
        let has_local = self.local_completion.valid.val() && !has_setup && !has_lost;
        let is_quiet = !has_setup && !self.gather_failure.valid.val() && !self.local_completion.valid.val();
        // A wake of the turn before may be on its way, so there must be room for two.
        let has_room = self.completions.level.val() < COMPLETIONS_MAX
            && self.failures.level.val() < FAILURES_MAX
            && self.wakes.level.val() < WAKES_MAX;
        let may_turn = self.ready_queue.tx.valid.val() && has_room;
        let has_input =
            self.returned.valid.val() || (self.responses.valid.val() && self.deferred.rx.ready.val());
        let has_turn = is_quiet && may_turn && (!has_input || self.responses_taken.q.val().all());
        let has_response = is_quiet && has_input && !has_turn;
        let chosen = if has_setup {
            event.queue_pair
        } else if has_lost {
            self.gather_failure.beat.val().queue_pair
        } else if has_local {
            local.queue_pair
        } else if has_turn {
            self.ready_queue.tx.beat.val()
        } else if self.returned.valid.val() {
            returned.queue_pair
        } else {
            packet.destination_qp.get_bits::<QUEUE_PAIR_BITS>(0)
        };
        self.ready_queue.tx.ready.next = is_idle && has_turn;
        if is_idle {
            self.queue_pair_held.d.next = chosen;
            self.is_own.d.next = !has_lost;
            self.is_back.d.next = self.returned.valid.val();
            if has_turn {
                self.responses_taken.d.next = bits(0);
            } else if has_response && !self.responses_taken.q.val().all() {
                self.responses_taken.d.next = self.responses_taken.q.val() + 1;
            }
            self.step.d.next = if has_setup {
                Step::Setup
            } else if has_lost {
                Step::Failure
            } else if has_local {
                if local.has_failed { Step::Failure } else { Step::Local }
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
        self.local_completion.ready.next = step == Step::Local || (step == Step::Lost && is_own);
        self.responses.ready.next = step == Step::Response && !is_back;
        self.returned.ready.next = step == Step::Response && is_back;
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

        // The record of path and state.
        self.peers.write_enable.next = is_sweeping || step == Step::Setup;
        self.peers.write_address.next = select(is_sweeping, sweep_index, queue_pair);
        self.peers.write_data.next = Peer {
            state: select(is_sweeping, bits::<3>(QpState::Reset as u64), event.state),
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
        let has_ended = event.state == QpState::Error as u64 || event.state == QpState::SendQueueError as u64;

        // A response is held from Idle to Response. It is for the address that its queue pair sends from
        // (protocol 1.2).
        let own = self.source_address_write.val();
        self.own_addresses.write_enable.next = self.source_address_write_valid.val();
        self.own_addresses.write_index.next = own.index;
        self.own_addresses.write_used.next = own.valid;
        self.own_addresses.write_word.next = own.address;
        self.own_addresses.word.next = packet.destination_address;
        self.own_addresses.index.next = peer.source_address_index;

        // A response: its queue pair, its meaning, and the distance of its PSN.
        let syndrome = select(is_back, returned.syndrome, packet.extended.get_bits::<8>(0));
        let response_psn = select(is_back, returned.psn, packet.psn);
        // An acknowledgement has no payload and no pad; one with either answers no request.
        let found = if is_back {
            classify_returned(returned)
        } else if packet.opcode == ACKNOWLEDGE && (packet.payload_bytes.any() || packet.pad_mismatch) {
            ResponseClass::Other
        } else {
            classify(packet.opcode, syndrome)
        };
        let takes_responses = peer.state == QpState::ReadyToReceive as u64
            || peer.state == QpState::ReadyToSend as u64
            || peer.state == QpState::SendQueueDrain as u64
            || peer.state == QpState::SendQueueError as u64;
        self.fault.d.next = if found == ResponseClass::Congestion {
            Fault::Silent
        } else if is_back {
            if returned.generation == peer.generation && takes_responses && !progress.has_failed {
                Fault::None
            } else {
                Fault::Silent
            }
        } else if packet.destination_qp != peer.local_qp {
            Fault::UnknownQp
        } else if !takes_responses || progress.has_failed {
            Fault::NotReady
        } else if peer.service != Service::ReliableConnected as u64
            || packet.opcode.get_bits::<3>(5) != Service::ReliableConnected as u64
        {
            Fault::Transport
        } else if !partition_keys_match(packet.partition_key, peer.partition_key) {
            Fault::Partition
        } else if packet.source_address != peer.address || !self.own_addresses.agrees.val() {
            Fault::SourceAddress
        } else {
            Fault::None
        };
        self.class.d.next = found;
        self.ahead.d.next = psn::distance(response_psn, progress.retired.una_psn);
        self.psns_in_flight.d.next = psn::distance(issued.unsent_psn, progress.retired.una_psn);
        self.has_open.d.next = issued.reads != progress.retired.reads;
        self.is_empty.d.next = issued.count == progress.retired.count || issued.generation != peer.generation;
        // Data for which no READ waits fails the oldest message, whatever its PSN is.
        let failing_psn = if step == Step::Failure {
            lost.psn
        } else if found == ResponseClass::ReadData {
            progress.retired.una_psn
        } else {
            response_psn
        };
        self.failing_psn.d.next = failing_psn;
        self.keeps.d.next = progress.will_fail && !psn::is_before(failing_psn, progress.failed_psn);

        let fault = self.fault.q.val();
        let class = self.class.q.val();
        let is_ours = step == Step::Response && fault == Fault::None;
        let is_in_flight = self.ahead.q.val() < self.psns_in_flight.q.val() && !self.is_empty.q.val();
        let is_past = self.ahead.q.val().get_bit(23);
        let is_refusal = class == ResponseClass::Refusal || class == ResponseClass::NotReady;
        // No atomic is outstanding while `has_open` is low (protocol 8.3).
        let is_other = class == ResponseClass::Other
            || (!is_back && packet.opcode == ATOMIC_ACKNOWLEDGE && !self.has_open.q.val());
        // Data, and what must not overtake it.
        let waits = !is_back
            && ((class == ResponseClass::ReadData && !is_other)
                || (self.has_open.q.val() && (class == ResponseClass::Progress || is_refusal)));
        let is_good = is_ours && is_in_flight && !waits;
        let is_failure = class == ResponseClass::Failure;
        let moves = is_good
            && (class == ResponseClass::Progress
                || class == ResponseClass::Placed
                || is_refusal
                || is_failure);
        let is_deferred = is_ours && is_in_flight && waits;
        let defers = step == Step::Response && !is_back && (is_deferred || packet.payload_bytes.any());
        self.deferred.rx.valid.next = defers;
        self.deferred.rx.beat.next = Response {
            queue_pair,
            generation: peer.generation,
            is_good: is_deferred,
            is_data: class == ResponseClass::ReadData,
            opcode: packet.opcode,
            psn: packet.psn,
            syndrome: packet.extended.get_bits::<8>(0),
            payload_bytes: packet.payload_bytes,
            pad_mismatch: packet.pad_mismatch,
            original: packet.extended.get_bits::<64>(32),
        };
        let passed = self.in_flight_held.q.val();
        if defers {
            self.in_flight_held.d.next.entered = passed.entered + 1;
        }
        if step == Step::Response && is_back {
            self.in_flight_held.d.next.left = passed.left + 1;
        }
        self.in_flight.next = passed;
        let is_current = lost.generation == peer.generation;
        let is_unexpected = class == ResponseClass::ReadData && !is_other;
        let refuses = is_good && (is_refusal || is_failure || is_unexpected);
        let fails = (refuses || (step == Step::Lost && is_current)) && !self.keeps.q.val();

        // The record.
        let head = self.head.q.val();
        let has_more = self.retired.q.val().count != issued.count;
        let drains = progress.is_draining && begun.count != self.retired.q.val().count;
        let continues = !self.stays.q.val() && (has_more || drains);
        // Between the first and the last data of a READ no message completes.
        let is_middle = class == ResponseClass::Placed && returned.is_middle;
        let is_empty_now = begun.count == self.retired.q.val().count && !self.has_failed.q.val();
        let is_drained = step == Step::Store && progress.reports_drained && is_empty_now;
        let joins = is_life
            || is_restart
            || is_send_psn
            || step == Step::Local
            || (moves && !is_middle)
            || refuses
            || (step == Step::Lost && is_current);
        self.ready_queue.rx.valid.next = (joins && !progress.is_queued) || (step == Step::Store && continues);
        self.ready_queue.rx.beat.next = queue_pair;
        self.progresses.write_enable.next = is_sweeping || joins || moves || step == Step::Store;
        self.progresses.write_address.next = select(is_sweeping, sweep_index, queue_pair);
        self.progresses.write_data.next = progress;
        if joins {
            self.progresses.write_data.next.is_queued = true;
        }
        if is_life || is_restart {
            self.progresses.write_data.next.has_failed = is_life && (progress.has_failed || has_ended);
            self.progresses.write_data.next.will_fail = is_life && progress.will_fail;
            self.progresses.write_data.next.is_invalidated = is_life && progress.is_invalidated;
            self.progresses.write_data.next.is_draining = true;
            self.progresses.write_data.next.reports_drained = is_life
                && event.state == QpState::SendQueueDrain as u64
                && event.path.drain_notify
                && (peer.state != QpState::SendQueueDrain as u64 || progress.reports_drained);
        }
        if step == Step::Local && local.is_invalidated && local.generation == peer.generation {
            self.progresses.write_data.next.is_invalidated = true;
            self.progresses.write_data.next.is_denied = local.is_denied;
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
                una_psn: select(is_refusal || is_failure, response_psn, response_psn + 1),
            };
        }
        if fails {
            self.progresses.write_data.next.will_fail = true;
            self.progresses.write_data.next.failed_psn = self.failing_psn.q.val();
            self.progresses.write_data.next.failed_status =
                if step == Step::Lost || (is_failure && returned.write_failed && returned.is_placed) {
                    bits::<8>(CompletionStatus::LocalProtection as u64)
                } else if is_failure {
                    returned.status
                } else {
                    status(class, syndrome)
                };
            self.progresses.write_data.next.failed_reason = if step == Step::Lost {
                select(is_own, bits::<8>(0), bits::<8>(vendor_error::PAYLOAD))
            } else if is_refusal {
                syndrome
            } else if is_failure && returned.is_placed {
                bits::<8>(vendor_error::PAYLOAD)
            } else {
                bits::<8>(0)
            };
        }
        if step == Step::Store {
            self.progresses.write_data.next.has_failed = self.has_failed.q.val();
            self.progresses.write_data.next.is_invalidated =
                progress.is_invalidated && !self.has_invalidated.q.val();
            self.progresses.write_data.next.head_from_home = head ^ home;
            self.progresses.write_data.next.head_count = self.head_count.q.val();
            self.progresses.write_data.next.retired = self.retired.q.val();
            self.progresses.write_data.next.is_queued = continues;
            self.progresses.write_data.next.is_draining = drains && !self.stays.q.val();
            self.progresses.write_data.next.reports_drained = progress.reports_drained && !is_drained;
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
                is_invalidated: false,
                is_denied: false,
                is_queued: false,
                is_draining: false,
                reports_drained: false,
            };
        }

        // A turn. The pool shows the message at `pool_slot` in the next cycle, and the block that follows its
        // block.
        let is_completed = step == Step::Complete && self.verdict.q.val() != Verdict::Stays;
        let next_count = self.head_count.q.val() + 1;
        self.pool_slot.next = if step == Step::Load {
            cat!(progress.head_from_home ^ home, progress.head_count.get_bits::<3>(0))
        } else if step == Step::Block {
            cat!(self.next_block.val(), bits::<3>(0))
        } else {
            cat!(head, next_count.get_bits::<3>(0))
        };
        if step == Step::Load {
            self.has_failed.d.next = progress.has_failed;
            self.has_invalidated.d.next = false;
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
                Step::Message
            };
        }

        // A block that is used again follows itself.
        let changes_block = step == Step::Block && self.next_block.val() != head;
        let is_shared = head.get_bit(SHARED_BITS);
        self.freed.next = head.get_bits::<SHARED_BITS>(0);
        self.freed_valid.next = changes_block && is_shared;
        if step == Step::Block {
            self.head.d.next = self.next_block.val();
            self.head_count.d.next = bits(0);
            self.frees.d.next = self.frees.q.val() || changes_block;
            self.retired.d.next.home_lap = self.retired.q.val().home_lap != (changes_block && !is_shared);
            self.step.d.next = Step::Message;
        }

        let message = self.message.val();
        let is_stale = message.generation != peer.generation || peer.state == QpState::Reset as u64;
        let is_failed = progress.will_fail && !psn::is_after(progress.failed_psn, message.last_psn);
        let is_acknowledged = psn::is_before(message.last_psn, progress.retired.una_psn);
        if step == Step::Message {
            self.oldest.d.next = message;
            let is_denied = message.kind.is_local && progress.is_invalidated && progress.is_denied;
            if is_denied {
                self.oldest.d.next.completion.status = bits(CompletionStatus::LocalQueuePairOperation as u64);
                self.oldest.d.next.completion.reason = bits(vendor_error::KEY);
            }
            self.verdict.d.next = if is_stale {
                Verdict::Silent
            } else if self.has_failed.q.val() || message.completion.status == CompletionStatus::Flushed as u64
            {
                Verdict::Flushed
            } else if message.completion.status != CompletionStatus::Success as u64 || is_denied {
                Verdict::Own
            } else if is_failed {
                Verdict::Failed
            } else if is_acknowledged && (!message.kind.is_local || progress.is_invalidated) {
                Verdict::Success
            } else {
                Verdict::Stays
            };
            self.is_last.d.next = self.retired.q.val().count + 1 == issued.count || !self.left.q.val().any();
            self.step.d.next = Step::Complete;
        }

        let oldest = self.oldest.q.val();
        let verdict = self.verdict.q.val();
        let is_flushed = verdict == Verdict::Flushed;
        let is_first_error = verdict == Verdict::Own || verdict == Verdict::Failed;
        let is_success = verdict == Verdict::Success;
        if step == Step::Complete {
            self.has_failed.d.next = self.has_failed.q.val() || is_flushed || is_first_error;
            self.stays.d.next = !is_completed;
            self.step.d.next = if !is_completed || self.is_last.q.val() {
                Step::Store
            } else if next_count.get_bit(3) {
                Step::Block
            } else {
                Step::Message
            };
        }
        if is_completed {
            self.head_count.d.next = next_count;
            self.retired.d.next.count = self.retired.q.val().count + 1;
            self.left.d.next = self.left.q.val() - 1;
            self.has_invalidated.d.next = self.has_invalidated.q.val() || oldest.kind.is_local;
            if oldest.is_open {
                // A queue pair that waits for a READ to complete is woken.
                self.retired.d.next.reads = self.retired.q.val().reads + 1;
                self.frees.d.next = true;
            }
        }
        let writes_cqe = is_flushed || is_first_error || (is_success && oldest.completion.is_signalled);
        self.completions.rx.valid.next = is_completed && writes_cqe && oldest.completion.has_wr_id;
        self.completions.rx.beat.next = CqeToken {
            completion_queue: peer.completion_queue,
            wr_id: oldest.completion.wr_id,
            length: select(is_success && oldest.kind.is_read, oldest.length, bits::<32>(0)),
            immediate: bits::<32>(0),
            qp_number: peer.local_qp,
            generation: peer.generation,
            consumer_index: oldest.next_slot,
            opcode: if oldest.kind.is_local {
                bits::<8>(CompletionOpcode::LocalInvalidate as u64)
            } else if oldest.kind.is_compare {
                bits::<8>(CompletionOpcode::CompareSwap as u64)
            } else if oldest.kind.is_atomic {
                bits::<8>(CompletionOpcode::FetchAdd as u64)
            } else if oldest.kind.is_read {
                bits::<8>(CompletionOpcode::Read as u64)
            } else if oldest.kind.is_write {
                bits::<8>(CompletionOpcode::Write as u64)
            } else {
                bits::<8>(CompletionOpcode::Send as u64)
            },
            status: match verdict {
                Verdict::Flushed => bits::<8>(CompletionStatus::Flushed as u64),
                Verdict::Own => oldest.completion.status,
                Verdict::Failed => progress.failed_status,
                _ => bits::<8>(CompletionStatus::Success as u64),
            },
            vendor_error: match verdict {
                Verdict::Own => oldest.completion.reason,
                Verdict::Failed => progress.failed_reason,
                _ => bits::<8>(0),
            },
            with_immediate: false,
            with_invalidate: false,
            is_last: false,
            solicited: false,
        };
        let is_unreportable = (is_first_error || is_flushed) && !oldest.completion.has_wr_id;
        self.failures.rx.valid.next = is_drained || (is_completed && (is_first_error || is_unreportable));
        self.failures.rx.beat.next = QpNotice {
            queue_pair,
            generation: peer.generation,
            kind: if is_drained { NoticeKind::Drained } else { NoticeKind::RequesterError },
            has_event: is_drained || is_unreportable,
            event_code: if is_drained {
                bits::<8>(AsyncEvent::SendQueueDrained as u64)
            } else {
                bits::<8>(AsyncEvent::QueuePairFatal as u64)
            },
        };

        // WqeParse sees the counts one cycle before it is asked whether the queue pair is held.
        self.retired_queue_pair.next = queue_pair;
        self.retired_out.next = self.retired.q.val();
        self.retired_valid.next = step == Step::Store;
        if step == Step::Store {
            self.step.d.next = if self.frees.q.val() || !has_more { Step::AskHeld } else { Step::Idle };
        }
        self.asked.d.next = step == Step::AskHeld;
        self.wakes.rx.valid.next = self.asked.q.val() && begun.is_held;
        self.wakes.rx.beat.next = queue_pair;
        if step == Step::Setup
            || step == Step::Local
            || step == Step::Lost
            || step == Step::Response
            || step == Step::AskHeld
        {
            self.step.d.next = Step::Idle;
        }
        if step == Step::Failure {
            self.step.d.next = Step::Lost;
        }
        if step == Step::Check {
            self.step.d.next = Step::Response;
        }

        // Counters.
        let is_outside = is_ours && !is_in_flight;
        self.counts_held.d.next = AcknowledgeCounts {
            unknown_qp: step == Step::Response && fault == Fault::UnknownQp,
            qp_not_ready: step == Step::Response && fault == Fault::NotReady,
            transport_mismatch: step == Step::Response && fault == Fault::Transport,
            partition_key: step == Step::Response && fault == Fault::Partition,
            source_address: step == Step::Response && fault == Fault::SourceAddress,
            acknowledgements_received: is_good && class == ResponseClass::Progress,
            nak_received: is_good && class == ResponseClass::Refusal,
            nak_not_ready_received: is_good && class == ResponseClass::NotReady,
            response_stale: is_outside && is_past,
            response_never_sent: is_outside && !is_past,
            response_reserved: is_good && class == ResponseClass::Reserved,
            // ReadResponse has counted data for which no READ waits.
            response_unexpected: is_good && is_other,
            retry_exhausted: fails
                && is_good
                && ((class == ResponseClass::Refusal && !syndrome.get_bits::<2>(0).any())
                    || (is_failure && returned.status == CompletionStatus::RetryExceeded as u64)),
            not_ready_exhausted: fails && is_good && class == ResponseClass::NotReady,
            messages_completed: is_completed && is_success,
            stale_dropped: step == Step::Lost && !is_current,
        };
        self.counts.next = self.counts_held.q.val();
    }
}

#[cfg(test)]
mod tests;
