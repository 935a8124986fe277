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
//!  expired ─────────────>│                                      ├─────┼──> timer_set (ack_timer)
//!  responses ───────────>│─┬────────────────────────┐           v     │
//!                        │ └ data, or after data ─────────────────────┼──> response (read_response)
//!  returned ────────────>│──> when that is placed       ready queue   │
//!                        │  pool ──> oldest message ─┬─ turn ─────────┼──> completion
//!                        │                           ├────────────────┼──> failure
//!                        │                           ├────────────────┼──> wake (wqe_parse)
//!                        │                           └────────────────┼──> mark (issue, gather)
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
//! 11. A timeout that comes while a packet is in flight and nothing was acknowledged since its timer was
//!     started, a NAK 0x60, and a loss that read_response reports take a retry, of which there are
//!     `retry_count`, and progress gives them back. Without one left, the oldest message or that of the
//!     PSN fails. An expiry is followed by another input, if there is one.
//! 12. The timer is told of each change of what it waits for, in the next cycle.
//! 13. With a retry the queue pair goes back: at the end of the first turn after which its oldest message
//!     stays, so that all that is acknowledged has left before, `epoch` counts up in `retired`,
//!     beside the slot and the first PSN of that message, and wqe_parse is woken. Not in a state in which
//!     nothing is sent, and not after a message in error.
//! 14. While the packet of a NAK or of a loss is still to be sent again in this epoch, the same news
//!     takes no retry and is no failure; and after a retry nor is a missing response, until something is
//!     acknowledged (protocol 2.6).
//! 15. An RNR NAK takes one of `rnr_retry` instead, of which seven is no limit, and the timer waits for
//!     the delay of its code instead of an acknowledgement. The epoch counts up at once, with `waits`, so
//!     that nothing is sent; and again after the delay, without it (protocol 2.7).
//! 16. A packet that could not be sent again is no failure if its PSN was acknowledged meanwhile.
//! 17. A message in error leaves when the card neither writes nor reads memory of the queue pair's messages any more: a CQE
//!     gives it back to software, and what that puts there must not reach the peer (protocol 2.11). So the turn that
//!     finds the first one takes no response of the queue pair any more, and closes it for issue. It sends a response of
//!     its own through read_response and the place stage, behind all data, and a mark through issue and gather, behind
//!     all packets; both have returned when the message leaves. It keeps its status if the queue pair comes into ERR
//!     meanwhile.
//!
//! A response is dropped and counted unless whole QPN, state, service, partition and both addresses are
//! right, in this order, and its PSN is in flight. A message in error waits for the responses to those
//! before it. Credits are ignored (protocol 2.9). Protocol 1.6, 2.5, 2.6, 2.7, 2.11, 8.3.
use crate::messages::{
    BLOCK_BITS, Begun, Expired, Issued, LocalCompletion, Mark, OutstandingMessage, PoolRead, Response,
    RetiredWrite, TimerSet,
};
use crate::outstanding::{SHARED_BITS, shared_number};
use crate::sweep::SweepStep;
use choose::{Chosen, Offers, first_step, has_room, responses_after, takes_response};
use record::{Peer, Progress, after_local, after_mark, after_setup, is_over, lost_packet, no_peer, peer_of};
use response::{
    Arrival, Check, after_loss, after_response, arrival_of, check_of, counts_of, fault_of, joins_queue,
    outcome_of, respondent_of, says_lost, sent_of, settled, settles,
};
use retry::{
    Recovery, Timeout, after_timeout, counts_after, fails_in, recovery_of, timeout_of, timer_set_of,
};
use rnic_blocks::logic::match_table::MatchTable;
use rnic_blocks::memory::{Memory, Storage};
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidRx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::complete::CqeToken;
use rnic_messages::packet::PacketToken;
use rnic_messages::read::ResponseNotice;
use rnic_messages::setup::{InFlight, QpNotice, SetupEvent, SourceAddressWrite, in_flight_after};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, SOURCE_ADDRESS_BITS, SOURCE_ADDRESSES, sizes};
use rnic_messages::transmit::GatherFailure;
use turn::{
    Closing, Judged, Turn, after_turn, closing_of, cqe_of, frees_shared, judge, leaves_pool, notice_of,
    pool_read_of, pool_slot_of, retired_after, retired_write_of, step_after, tells_control, turn_after,
    writes_cqe,
};

mod choose;
mod record;
mod response;
mod retries;
mod retry;
mod turn;
#[cfg(test)]
mod tests;

pub use retries::Retries;

/// State of the block.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Idle,
    Setup,
    Local,
    /// A packet that was not sent: compares the PSNs, then writes the record.
    Failure,
    Lost,
    /// A mark has returned from gather.
    Marked,
    /// An expiry: judges it, then writes the record.
    Timeout,
    Expired,
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
    pub nak_rnr_received: Bit,
    /// The PSN of the response was acknowledged before.
    pub response_stale: Bit,
    /// The PSN of the response was never sent.
    pub response_never_sent: Bit,
    /// The syndrome of the response is reserved.
    pub response_reserved: Bit,
    /// The response answers no request.
    pub response_unexpected: Bit,
    /// A timer expired while the peer was silent.
    pub timeout: Bit,
    /// A queue pair failed for a lost response, for a NAK of a PSN sequence error, or for its last timeout.
    pub retry_exhausted: Bit,
    /// A queue pair failed for an RNR NAK.
    pub rnr_retry_exceeded: Bit,
    /// A message completed with success.
    pub messages_completed: Bit,
    /// A failure or a local completion of an older generation was dropped.
    pub stale_dropped: Bit,
}

/// Completes messages; see the module.
#[clocked(reset = "A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Acknowledge {
    /// From sweep: the records of a queue pair are cleared in this cycle.
    pub sweep: Signal<In, SweepStep>,
    /// From control: write of the table of source addresses.
    pub source_address_write: ValidRx<SourceAddressWrite>,
    /// From control; wqe_parse and segment must have taken the event before.
    pub setup: StreamRx<SetupEvent>,
    /// From gather: a packet that was not sent, or a mark that returns.
    pub gather_failure: StreamRx<GatherFailure>,
    /// From issue: a message that no response completes, or a packet that was not sent; from control: the
    /// result of an invalidation.
    pub local_completion: StreamRx<LocalCompletion>,
    /// From ack_timer.
    pub expired: StreamRx<Expired>,
    /// To ack_timer: what the timer of a queue pair is set to; registered.
    pub timer_set: ValidTx<TimerSet>,
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
    /// To issue, in the cycle after the `retired` that closes the queue pair, or later; registered.
    pub mark: StreamTx<Mark>,
    /// To the pool.
    pub pool_read: Signal<Out, PoolRead>,
    /// From the pool, one cycle after `reads_issued`.
    pub issued: Signal<In, Issued>,
    /// From the pool, one cycle after `reads_begun`.
    pub begun: Signal<In, Begun>,
    /// From the pool, one cycle after the slot in `pool_read`.
    pub message: Signal<In, OutstandingMessage>,
    /// From the pool, one cycle after the slot in `pool_read`: the block that follows its block.
    pub next_block: Signal<In, Bits<BLOCK_BITS>>,
    /// To the pool, to segment and to issue: counts after a turn.
    pub retired: Signal<Out, RetiredWrite>,
    /// A message leaves the pool; a function of registers.
    pub ends: Signal<Out, Bit>,
    /// Queue pairs that wait for a turn; registered.
    pub waiting: Signal<Out, Bits<READY_COUNT_BITS>>,
    /// To the pool: shared block that is free.
    pub freed: ValidTx<Bits<SHARED_BITS>>,
    /// Events to count; registered.
    pub counts: Signal<Out, AcknowledgeCounts>,

    own_addresses: MatchTable<128, SOURCE_ADDRESSES, SOURCE_ADDRESS_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    peers: Memory<Peer, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    progresses: Memory<Progress, QUEUE_PAIR_BITS>,
    #[init(Fifo::default().with_beats_log2(sizes().queue_pairs))]
    ready_queue: Fifo<Bits<QUEUE_PAIR_BITS>, QUEUE_PAIR_BITS, READY_COUNT_BITS>,
    completions: Fifo<CqeToken, 5, 6>,
    wakes: Fifo<Bits<QUEUE_PAIR_BITS>, 2, 3>,
    // One for each queue pair: while gather waits for the wire, those that fail keep no other from its turn.
    #[init(Fifo::new(Storage::Block).with_beats_log2(sizes().queue_pairs))]
    marks: Fifo<Mark, QUEUE_PAIR_BITS, READY_COUNT_BITS>,
    step: Reg<Step>,
    responses_taken: Reg<Bits<3>>,
    chosen: DFF<Chosen>,
    failures: Fifo<QpNotice, 2, 3>,
    deferred: Fifo<Response, 3, 4>,
    in_flight_held: Reg<InFlight>,
    asked: Reg<Bit>,
    /// The cursor of the queue pair goes back after the turn.
    rewinds: Reg<Bit>,
    /// The last input was an expiry.
    expired_last: Reg<Bit>,
    timeout: DFF<Timeout>,
    timer: DFF<TimerSet>,
    has_timer: Reg<Bit>,
    check: DFF<Check>,
    turn: DFF<Turn>,
    oldest: DFF<Judged>,
    counts_held: Reg<AcknowledgeCounts>,
}

pub(crate) const READY_COUNT_BITS: usize = QUEUE_PAIR_BITS + 1;
impl Logic for Acknowledge {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamTx::link(&mut self.response, &mut self.deferred.tx);
        StreamTx::link(&mut self.completion, &mut self.completions.tx);
        StreamTx::link(&mut self.failure, &mut self.failures.tx);
        StreamTx::link(&mut self.wake, &mut self.wakes.tx);
        StreamTx::link(&mut self.mark, &mut self.marks.tx);
        let is_sweeping = self.sweep.val().is_sweeping;
        let step = self.step.q.val();
        let chosen = self.chosen.q.val();
        let queue_pair = chosen.queue_pair;
        let home = bit_cast::<BLOCK_BITS, QUEUE_PAIR_BITS>(queue_pair);
        let (event, local) = (self.setup.beat.val(), self.local_completion.beat.val());
        let (packet, returned) = (self.responses.beat.val(), self.returned.beat.val());

        let (completions, failures, wakes) =
            (self.completions.level.val(), self.failures.level.val(), self.wakes.level.val());
        let has_room = has_room(completions, failures, wakes, self.marks.level.val());
        let has = Offers {
            setup: self.setup.valid.val(),
            failure: self.gather_failure.valid.val(),
            is_mark: self.gather_failure.beat.val().is_mark,
            local: self.local_completion.valid.val(),
            local_fails: local.has_failed,
            expired: self.expired.valid.val() && !self.expired_last.q.val(),
            turn: self.ready_queue.tx.valid.val() && has_room && self.deferred.rx.ready.val(),
            returned: self.returned.valid.val(),
            response: self.responses.valid.val() && takes_response(self.deferred.level.val()),
        };
        let first = first_step(has, self.responses_taken.q.val());
        let next_queue_pair = match first {
            Step::Setup => event.queue_pair,
            Step::Failure | Step::Marked if has.failure => self.gather_failure.beat.val().queue_pair,
            Step::Failure | Step::Local => local.queue_pair,
            Step::Timeout => self.expired.beat.val().queue_pair,
            Step::Load => self.ready_queue.tx.beat.val(),
            _ => respondent_of(has.returned, returned, packet),
        };
        let is_idle = step == Step::Idle && !is_sweeping;
        self.ready_queue.tx.ready.next = is_idle && first == Step::Load;
        if is_idle {
            self.chosen.d.next =
                Chosen { queue_pair: next_queue_pair, is_own: !has.failure, is_back: has.returned };
            self.expired_last.d.next = first == Step::Timeout;
            self.responses_taken.d.next = responses_after(self.responses_taken.q.val(), first);
        }
        self.setup.ready.next = step == Step::Setup;
        self.gather_failure.ready.next = step == Step::Marked || (step == Step::Lost && !chosen.is_own);
        self.local_completion.ready.next = step == Step::Local || (step == Step::Lost && chosen.is_own);
        self.expired.ready.next = step == Step::Expired;
        self.responses.ready.next = step == Step::Response && !chosen.is_back;
        self.returned.ready.next = step == Step::Response && chosen.is_back;

        // The records.
        self.peers.read(step == Step::Idle, next_queue_pair);
        self.progresses.read(step == Step::Idle, next_queue_pair);
        let (peer, progress) = (self.peers.read_data.val(), self.progresses.read_data.val());
        let (issued, own) = (self.issued.val(), self.source_address_write.value.val());
        self.own_addresses.write_enable.next = self.source_address_write.valid.val();
        self.own_addresses.write_index.next = own.index;
        self.own_addresses.write_used.next = own.valid;
        self.own_addresses.write_word.next = own.address;
        self.own_addresses.word.next = packet.destination_address;
        self.own_addresses.index.next = peer.source_address_index;

        // A response, held from Idle to Response, or a packet that was not sent.
        let lost = lost_packet(chosen.is_own, local, self.gather_failure.beat.val());
        let arrival: Arrival = arrival_of(chosen.is_back, packet, returned);
        let agrees = self.own_addresses.agrees.val();
        let fault = fault_of(chosen.is_back, packet, returned, peer, is_over(progress), agrees);
        self.check.d.next = check_of(step, lost.psn, arrival, fault, peer, progress, issued);
        self.timeout.d.next = timeout_of(self.expired.beat.val(), peer, progress, issued);
        let (timeout, check) = (self.timeout.q.val(), self.check.q.val());
        let outcome = outcome_of(check, chosen.is_back, packet.opcode, returned.is_middle);
        let responds = step == Step::Response;
        let defers = responds && !chosen.is_back && (outcome.is_deferred || packet.payload_bytes.any());
        let settles = responds && settles(progress, chosen.is_back, returned, peer);
        let settled = settled(progress, settles);
        let is_new = lost.generation == peer.generation;
        let says_lost = says_lost(check.class, arrival.syndrome, returned);
        let recovery: Recovery = recovery_of(check, outcome, says_lost, peer, progress);
        let fails = fails_in(step, is_new, check, outcome, recovery, timeout);

        // A turn. The pool shows the message at its slot and the block after its block in the next cycle.
        let (turn, oldest) = (self.turn.q.val(), self.oldest.q.val());
        let next_block = self.next_block.val();
        let pool_slot = pool_slot_of(step, progress, home, next_block, turn);
        self.pool_read.next = pool_read_of(step, next_queue_pair, queue_pair, pool_slot);
        self.freed.offer(step == Step::Block && frees_shared(turn, next_block), shared_number(turn.head));
        let judged = judge(self.message.val(), peer, progress, turn, issued);
        self.oldest.d.next = select(step == Step::Message, judged, oldest);
        self.ends.next = step == Step::Complete && leaves_pool(oldest);
        self.waiting.next = self.ready_queue.level.val();
        self.turn.d.next = turn_after(step, turn, progress, home, next_block, oldest);
        self.completions.rx.valid.next = step == Step::Complete && writes_cqe(oldest);
        self.completions.rx.beat.next = cqe_of(queue_pair, oldest, peer, progress);
        let closing: Closing = closing_of(turn, progress, peer, issued, self.begun.val());
        let stores = step == Step::Store;
        let sends_last = stores && closing.sends_last;
        self.deferred.rx.valid.next = defers || sends_last;
        self.deferred.rx.beat.next =
            sent_of(sends_last, queue_pair, packet, peer, outcome.is_deferred, check.class);
        let (in_flight, returns) = (self.in_flight_held.q.val(), responds && chosen.is_back);
        self.in_flight.next = in_flight;
        self.in_flight_held.d.next = in_flight_after(in_flight, defers || sends_last, returns);
        let is_drained = stores && closing.is_drained;
        self.failures.rx.valid.next = is_drained || (step == Step::Complete && tells_control(oldest));
        self.failures.rx.beat.next = notice_of(queue_pair, peer, is_drained, oldest);
        // WqeParse sees the counts one cycle before it is asked whether the queue pair is held.
        let retired = retired_after(turn, progress, closing);
        self.retired.next = retired_write_of(queue_pair, peer, closing, retired, stores);
        self.marks.rx.offer(sends_last, Mark { queue_pair, generation: peer.generation });
        self.asked.d.next = step == Step::AskHeld;
        self.rewinds.d.next = select(stores, closing.rewinds, self.rewinds.q.val());
        self.wakes.rx.valid.next = self.asked.q.val() && (self.begun.val().is_held || self.rewinds.q.val());
        self.wakes.rx.beat.next = queue_pair;

        // What each step makes of the record, and what follows it.
        let next = match step {
            Step::Setup => after_setup(progress, event, peer.state),
            Step::Local => after_local(progress, local, local.generation == peer.generation),
            Step::Lost => after_loss(progress, check, chosen.is_own, fails),
            Step::Marked => after_mark(progress, is_new),
            Step::Expired => after_timeout(progress, check, timeout, fails),
            Step::Store => after_turn(progress, turn, closing, home),
            _ => after_response(settled, check, outcome, arrival, returned, recovery, fails),
        };
        let joins = joins_queue(step, event.kind, is_new, outcome.joins || settles, timeout);
        self.ready_queue.rx.valid.next = (joins && !progress.is_queued) || (stores && closing.continues);
        self.ready_queue.rx.beat.next = queue_pair;
        let index = select(is_sweeping, self.sweep.val().index, queue_pair);
        let writes = joins || (responds && outcome.moves) || stores;
        self.progresses.write_enable.next = is_sweeping || writes;
        self.timer.d.next = timer_set_of(queue_pair, next);
        self.has_timer.d.next = writes;
        self.timer_set.offer(self.has_timer.q.val(), self.timer.q.val());
        self.progresses.write_address.next = index;
        self.progresses.write_data.next = if is_sweeping { Progress { ..Default::default() } } else { next };
        self.peers.write_enable.next = is_sweeping || step == Step::Setup;
        self.peers.write_address.next = index;
        self.peers.write_data.next = select(is_sweeping, no_peer(peer_of(event)), peer_of(event));
        self.step.d.next = select(is_idle, first, step_after(step, progress, issued, turn, oldest, closing));
        let counts = counts_of(step, check, outcome, says_lost, fails, is_new, oldest.verdict);
        self.counts_held.d.next = counts_after(counts, step == Step::Expired, timeout, fails);
        self.counts.next = self.counts_held.q.val();
    }
}
