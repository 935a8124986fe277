//! Issue: writes each message into the pool with its first packet, and sends packets, once their access checks
//! have succeeded.
//!
//! This is the first stage that knows whether a packet can be sent. A message that is not sent is written into
//! the pool all the same, with its status, so that it completes in order.
//!
//! ```text
//!                              ┌─────────────────────────────────────────────┐
//!  packet ────────────────────>│ packet ──> access checks ──> status ────────┼──> gather
//!  access_answer, sge_parts ──>│               │                ├────────────┼──> message, issued (pool), issued_psn
//!  inline_data ───────────────>│───────────────│────────────────│────────────┼──> inline_slot
//!                              │           record <─────────────┴────────────┼──> local_completion (acknowledge)
//!                              └─────────────────────────────────────────────┘
//! ```
//!
//! A packet takes 2 cycles, one more for each access check and for each slot of inline data. Access checks
//! after the first one of a list take one more each, as each makes a command of its own.
//!
//! 1. Messages are written into the pool in order, each into its slot, before their first packet can be seen.
//! 2. After a WQE or a packet in error, nothing of the same queue pair is sent, until it is created anew or
//!    reset: WQEs are flushed, other packets are dropped.
//! 3. The slots of inline data that leave are those of the packets that leave, in order.
//! 4. `unsent_psn` is the PSN after the last packet that left, and after the last response to it if it was a
//!    READ (protocol 2.1).
//! 5. A READ that leaves is announced on `issued_read` before, with the slot that wqe_parse has given to it.
//! 6. A packet from a list leaves as one command for each of its SGEs, all or none.
//! 7. A LOCAL_INVALIDATE is written into the pool, and sent to control after everything that has left;
//!    control's answer completes it.
//! 8. `issued_psn` reports for each packet how far its queue pair's packets go, before what is issued with it
//!    can reach the wire; so a packet that leaves knows whether another one follows (protocol 2.4).
//! 9. `burst_count` and `turn_count` count bursts and turns whose packets have all been taken by gather.
use crate::messages::{
    Issued, IssuedRead, LocalCompletion, OutstandingMessage, POOL_SLOT_BITS, Packet, SLOT_BITS, SgePart,
    WqeCompletion, WqeKind, invalidated_domain, invalidated_key,
};
use crate::wqe::ATOMIC_BYTES;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_messages::host::{HostSpan, Slot};
use rnic_messages::protect::{AccessAnswer, Invalidation};
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, SPAN_BITS};
use rnic_messages::transmit::{GatherCommand, IssuedPsn, TransmitRequest};

/// Packets of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Record {
    /// A packet was in error.
    has_failed: Bit,
    /// PSN of the first packet that was not sent.
    unsent_psn: Bits<24>,
    /// READs and atomics with `is_open`, free-running; never reset.
    reads: Bits<READ_COUNT_BITS>,
}

/// State of the block.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Begin,
    Answers,
    Listed,
    Write,
    Inline,
    Continue,
}

/// Events that the block counts, each a pulse of one cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct IssueCounts {
    /// A malformed WQE was refused.
    pub work_refused: Bit,
    /// An access check of a local key failed.
    pub local_protection: Bit,
}

/// Issues packets; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub struct Issue {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// The records of `sweep_index` are cleared in this cycle.
    pub is_sweeping: Signal<In, Bit>,
    /// Queue pair whose records are cleared.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From segment.
    pub packet: StreamRx<Packet>,
    /// From segment: what access checks after the first one of a list are for.
    pub sge_parts: StreamRx<SgePart>,
    /// From wqe_check, through a queue whose `valid` is registered.
    pub inline_data: StreamRx<Bits<SLOT_BITS>>,
    /// From the region table, in order.
    pub access_answer: StreamRx<AccessAnswer>,
    /// To gather; registered.
    pub gather: StreamTx<GatherCommand>,
    /// To address_vector: PSN after the last packet, a cycle after `issued`; registered.
    pub issued_psn: Signal<Out, IssuedPsn>,
    /// `issued_psn` is valid; registered.
    pub issued_psn_valid: Signal<Out, Bit>,
    /// To gather: the head of the queue before this block, gated by registers.
    pub inline_slot: StreamTx<Slot>,
    /// To acknowledge, through a queue: a message that no response completes, or a packet that was not sent.
    pub local_completion: StreamTx<LocalCompletion>,
    /// To read_response, through a queue: a READ or an atomic is issued.
    pub issued_read: StreamTx<IssuedRead>,
    /// To control, through a queue: key of a LOCAL_INVALIDATE.
    pub invalidate: StreamTx<Invalidation>,
    /// To the pool: a message.
    pub message: Signal<Out, OutstandingMessage>,
    /// Pool slot of `message`.
    pub message_slot: Signal<Out, Bits<POOL_SLOT_BITS>>,
    /// Queue pair of `message` and `issued`.
    pub issued_queue_pair: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// `message` is valid and is written.
    pub message_valid: Signal<Out, Bit>,
    /// To the pool: counts of the queue pair.
    pub issued: Signal<Out, Issued>,
    /// `issued` is valid and is written.
    pub issued_valid: Signal<Out, Bit>,
    /// Bursts whose packets have left, free-running; registered.
    pub burst_count: Signal<Out, Bits<16>>,
    /// Turns whose packets have left, free-running; registered.
    pub turn_count: Signal<Out, Bits<16>>,
    /// Events to count; registered.
    pub counts: Signal<Out, IssueCounts>,

    records: Memory<Record, QUEUE_PAIR_BITS>,
    spans: Fifo<HostSpan, 3, 4>,
    step: Reg<Step>,
    left: DFF<Bits<2>>,
    is_ok: DFF<Bit>,
    first_address: DFF<Bits<64>>,
    second_address: DFF<Bits<64>>,
    is_sent: DFF<Bit>,
    inline_left: DFF<Bits<2>>,
    command: DFF<GatherCommand>,
    command_ends_burst: DFF<Bit>,
    command_ends_turn: DFF<Bit>,
    has_command: Reg<Bit>,
    newest: DFF<IssuedPsn>,
    has_newest: Reg<Bit>,
    bursts_done: Reg<Bits<16>>,
    turns_done: Reg<Bits<16>>,
    counts_held: Reg<IssueCounts>,
}

impl Logic for Issue {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_sweeping = self.is_sweeping.val();
        let step = self.step.q.val();
        let packet = self.packet.beat.val();
        let has_command = self.has_command.q.val();
        let is_taken = has_command && self.gather.ready.val();
        let may_load = !has_command || self.gather.ready.val();

        self.gather.valid.next = has_command;
        self.gather.beat.next = self.command.q.val();
        if is_taken {
            self.has_command.d.next = false;
        }
        self.burst_count.next = self.bursts_done.q.val();
        self.turn_count.next = self.turns_done.q.val();
        self.counts.next = self.counts_held.q.val();
        self.counts_held.d.next = IssueCounts { work_refused: false, local_protection: false };

        self.records.read_enable.next = step == Step::Begin;
        self.records.read_address.next = packet.header.queue_pair;

        // A packet without a command ends its burst here; others when their command is taken.
        let is_empty = step == Step::Begin && self.packet.valid.val() && packet.header.is_empty && may_load;
        self.packet.ready.next = is_empty;
        self.access_answer.ready.next = false;
        if step == Step::Begin {
            self.left.d.next = packet.request_count;
            self.is_ok.d.next = true;
            if self.packet.valid.val() && !packet.header.is_empty {
                self.step.d.next = if packet.request_count.any() { Step::Answers } else { Step::Write };
            }
        }

        // Each answer has a register of its own.
        let answer = self.access_answer.beat.val();
        if step == Step::Answers {
            self.access_answer.ready.next = true;
            if self.access_answer.valid.val() {
                self.left.d.next = self.left.q.val() - 1;
                self.is_ok.d.next = self.is_ok.q.val() && answer.ok;
                if self.left.q.val() == packet.request_count {
                    self.first_address.d.next = answer.device_address;
                } else {
                    self.second_address.d.next = answer.device_address;
                }
                if self.left.q.val() == 1 {
                    self.step.d.next = if packet.is_listed { Step::Listed } else { Step::Write };
                }
            }
        }

        // Those of a list wait until all of them have come.
        let part = self.sge_parts.beat.val();
        let is_listing = step == Step::Listed;
        let lists = is_listing && self.access_answer.valid.val() && self.sge_parts.valid.val();
        self.sge_parts.ready.next = is_listing && self.access_answer.valid.val();
        self.spans.rx.valid.next = lists;
        self.spans.rx.beat.next =
            HostSpan { address: answer.device_address, length: bit_cast::<SPAN_BITS, 13>(part.length) };
        if is_listing {
            self.access_answer.ready.next = self.sge_parts.valid.val();
        }
        if lists {
            self.is_ok.d.next = self.is_ok.q.val() && answer.ok;
            if part.is_last {
                self.step.d.next = Step::Write;
            }
        }

        let record = self.records.read_data.val();
        let has_failed = record.has_failed && !packet.header.is_first;
        let is_flushed = has_failed || packet.completion.status == CompletionStatus::Flushed as u64;
        let is_refused = !is_flushed && packet.completion.status != CompletionStatus::Success as u64;
        let is_protected = !is_flushed
            && packet.completion.status == CompletionStatus::Success as u64
            && !self.is_ok.q.val();
        let is_right = !is_flushed && !is_refused && !is_protected;
        let invalidates = is_right && packet.kind.is_local;
        let is_sent = is_right && !packet.kind.is_local;
        let status = if is_flushed {
            bits::<8>(CompletionStatus::Flushed as u64)
        } else if is_protected {
            bits::<8>(CompletionStatus::LocalProtection as u64)
        } else {
            packet.completion.status
        };
        let writes = step == Step::Write
            && may_load
            && self.local_completion.ready.val()
            && self.issued_read.ready.val()
            && self.invalidate.ready.val();
        self.message_valid.next = writes && packet.starts;
        self.message_slot.next = packet.header.pool_slot;
        self.message.next = OutstandingMessage {
            generation: packet.header.generation,
            last_psn: packet.header.last_psn,
            next_slot: packet.header.next_slot,
            is_open: packet.header.is_open,
            completion: WqeCompletion {
                status,
                reason: select(is_refused, packet.completion.reason, bits::<8>(0)),
                ..packet.completion
            },
            kind: WqeKind { is_local: invalidates, ..packet.kind },
            // The length in RETH.
            length: if packet.kind.is_atomic {
                bits::<32>(ATOMIC_BYTES)
            } else {
                swap_bytes(packet.extended_or_key.get_bits::<32>(96))
            },
        };
        let reads = select(packet.header.is_open, record.reads + 1, record.reads);
        self.issued_read.valid.next = writes && is_sent && packet.header.is_open;
        self.issued_read.beat.next = IssuedRead {
            queue_pair: packet.header.queue_pair,
            generation: packet.header.generation,
            slot: record.reads.get_bits::<READ_SLOT_BITS>(0),
        };
        let unsent_psn = if is_sent {
            select(packet.kind.is_read, packet.header.last_psn, packet.psn) + 1
        } else if has_failed {
            record.unsent_psn
        } else {
            packet.psn
        };
        self.issued_queue_pair.next = packet.header.queue_pair;
        self.issued.next = Issued {
            count: packet.header.message_count,
            reads,
            unsent_psn,
            generation: packet.header.generation,
        };
        self.issued_valid.next = writes;
        self.newest.d.next = IssuedPsn { queue_pair: packet.header.queue_pair, psn: unsent_psn };
        self.has_newest.d.next = writes;
        self.issued_psn.next = self.newest.q.val();
        self.issued_psn_valid.next = self.has_newest.q.val();
        // A message in the pool that fails after its first packet fails as one whose payload could not be read.
        let fails_later = is_protected && !packet.starts;
        self.local_completion.valid.next = writes && !is_right && (packet.starts || fails_later);
        self.local_completion.beat.next = LocalCompletion {
            queue_pair: packet.header.queue_pair,
            generation: packet.header.generation,
            has_failed: fails_later,
            psn: packet.psn,
            is_invalidated: false,
            is_denied: false,
        };
        self.invalidate.valid.next = writes && invalidates;
        self.invalidate.beat.next = Invalidation {
            queue_pair: packet.header.queue_pair,
            generation: packet.header.generation,
            key: invalidated_key(packet.extended_or_key),
            domain: invalidated_domain(packet.extended_or_key),
        };
        self.records.write_enable.next = writes || is_sweeping;
        self.records.write_address.next =
            select(is_sweeping, self.sweep_index.val(), packet.header.queue_pair);
        self.records.write_data.next = Record {
            has_failed: !is_sweeping && (has_failed || is_refused || is_protected),
            unsent_psn,
            reads: select(is_sweeping, bits::<READ_COUNT_BITS>(0), reads),
        };
        let is_inline = packet.inline_count.any();
        if writes {
            self.counts_held.d.next =
                IssueCounts { work_refused: is_refused, local_protection: is_protected };
            self.has_command.d.next = is_sent;
            self.command_ends_burst.d.next = packet.header.ends_burst;
            self.command_ends_turn.d.next = packet.ends_turn;
            self.command.d.next = GatherCommand {
                headers: TransmitRequest {
                    queue_pair: packet.header.queue_pair,
                    generation: packet.header.generation,
                    opcode: packet.opcode,
                    solicited: packet.solicited,
                    ack_request: packet.ack_request,
                    asks_if_newest: true,
                    psn: packet.psn,
                    extended: packet.extended_or_key,
                    payload_bytes: packet.payload_bytes,
                    is_response: false,
                    ends_response: false,
                },
                is_inline,
                continues: packet.is_listed,
                span_count: select(packet.kind.is_read, bits::<2>(0), packet.request_count),
                first: HostSpan {
                    address: self.first_address.q.val(),
                    length: bit_cast::<SPAN_BITS, 13>(packet.first_length),
                },
                second: HostSpan {
                    address: self.second_address.q.val(),
                    length: bit_cast::<SPAN_BITS, 13>(packet.second_length),
                },
            };
            self.is_sent.d.next = is_sent;
            self.inline_left.d.next = packet.inline_count;
            self.packet.ready.next = true;
            self.step.d.next = if is_inline {
                Step::Inline
            } else if packet.is_listed {
                Step::Continue
            } else {
                Step::Begin
            };
        }

        // The list of a packet that is not sent is dropped.
        let span = self.spans.tx.beat.val();
        let continues = step == Step::Continue && may_load && self.spans.tx.valid.val();
        let is_last_span = self.spans.level.val() == 1;
        self.spans.tx.ready.next = step == Step::Continue && may_load;
        if continues {
            self.has_command.d.next = self.is_sent.q.val();
            self.command.d.next.first = span;
            self.command.d.next.continues = !is_last_span;
            if is_last_span {
                self.step.d.next = Step::Begin;
            }
        }

        // Inline data of a packet that is not sent is dropped.
        let inlines = step == Step::Inline;
        let passes = self.is_sent.q.val();
        let moves = inlines && self.inline_data.valid.val() && (self.inline_slot.ready.val() || !passes);
        let is_last = self.inline_left.q.val() == 1;
        self.inline_slot.valid.next = inlines && passes && self.inline_data.valid.val();
        self.inline_slot.beat.next = Slot { data: self.inline_data.beat.val(), last: is_last, error: false };
        self.inline_data.ready.next = inlines && (self.inline_slot.ready.val() || !passes);
        if moves {
            self.inline_left.d.next = self.inline_left.q.val() - 1;
            if is_last {
                self.step.d.next = Step::Begin;
            }
        }

        // A command that is taken and a packet without one can end in the same cycle.
        let ends_packet = is_taken && !self.command.q.val().continues;
        let vanishes = is_empty || (writes && !is_sent);
        self.bursts_done.d.next = self.bursts_done.q.val()
            + ended(ends_packet && self.command_ends_burst.q.val(), vanishes && packet.header.ends_burst);
        self.turns_done.d.next = self.turns_done.q.val()
            + ended(ends_packet && self.command_ends_turn.q.val(), vanishes && packet.ends_turn);
    }
}

/// Counts two events.
#[kernel]
fn ended(one: Bit, other: Bit) -> Bits<16> {
    match (one, other) {
        (true, true) => bits::<16>(2),
        (false, false) => bits::<16>(0),
        _ => bits::<16>(1),
    }
}

#[cfg(test)]
mod tests;
