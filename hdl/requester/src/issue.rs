//! Issue: writes each message down with its first packet, and sends packets, once their keys are known to be good.
//!
//! Only here it is known whether a packet can be sent. An entry that is not sent is written down all the same, with
//! the reason, so that it completes in its order.
//!
//! ```text
//!                   ┌─────────────────────────────────────────────┐
//!  packet ─────────>│ item ──> answers ──> verdict ───────────────┼──> gather
//!  answers, parts ─>│            │            ├───────────────────┼──> message, issued (pool), frontier
//!  inline_data ────>│────────────│────────────│───────────────────┼──> inline_slot
//!                   │        record <─────────┴───────────────────┼──> kick (acknowledge)
//!                   └─────────────────────────────────────────────┘
//! ```
//!
//! A packet takes 2 cycles, one more for each key and for each slot of inline data. Keys behind the first one of a list take one
//! more each, as each makes a command of its own.
//!
//! 1. Messages are written down in the order of the items, each in its place, before their first packet can be seen.
//! 2. Behind an entry or a packet in error, nothing of the same queue pair is sent, until it is made anew or reset: entries
//!    are flushed, other packets vanish.
//! 3. The slots of inline data that leave are those of the packets that leave, in order.
//! 4. `unsent_psn` is the PSN behind the last packet that left, and behind the last response to it if it was a READ (protocol 2.1).
//! 5. A READ that leaves is said on `opened` before, with the slot that segmentation has given to it.
//! 6. A packet from a list leaves as one command for each of its elements, all or none.
//! 7. The end of a key of this host is written down, and asked for behind everything that has left; control's answer completes it.
//! 8. `frontier` says of each item how far its queue pair's packets go, before what is issued with it can reach the wire; so a packet
//!    that leaves knows whether another one follows (protocol 2.4).
//! 9. `burst_count` and `turn_count` count bursts and turns whose packets have all been taken by gather.
use crate::constants::{ATOMIC_BYTES, FLUSHED, LOCAL_PROTECTION, SUCCESS};
use crate::messages::{
    Issued, IssuedRead, LocalCompletion, OutstandingMessage, PLACE_BITS, Packet, SLOT_BITS, SgePart,
};
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{HostSpan, Slot};
use rnic_messages::protect::{AccessAnswer, Invalidation};
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, SPAN_BITS};
use rnic_messages::transmit::{GatherCommand, IssuedPsn, TransmitRequest};

/// What has become of a queue pair's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Record {
    /// One was in error.
    has_failed: Bit,
    /// That of the first one that was not sent.
    unsent_psn: Bits<24>,
    /// READs that were open, free-running. Never starts anew.
    reads: Bits<READ_COUNT_BITS>,
}

/// What the block does.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Begin,
    Answers,
    Listed,
    Write,
    Inline,
    Continue,
}

/// The block.
#[derive(Default, LogicBlock, Registers)]
pub struct Issue {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// Records are being cleared.
    pub is_sweeping: Signal<In, Bit>,
    /// Whose.
    pub sweep_index: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// From cut.
    pub packet: StreamRx<Packet>,
    /// From cut: what answers behind the first one of a list are about.
    pub parts: StreamRx<SgePart>,
    /// From authorize; a queue, whose `valid` is a register.
    pub inline_data: StreamRx<Bits<SLOT_BITS>>,
    /// From the region table.
    pub answers: StreamRx<AccessAnswer>,
    /// To gather; registered.
    pub gather: StreamTx<GatherCommand>,
    /// To launch: how far a queue pair is, a cycle behind `issued`; registered.
    pub frontier: Signal<Out, IssuedPsn>,
    /// That is said now; registered.
    pub frontier_valid: Signal<Out, Bit>,
    /// To gather; the exit of the queue before, gated by registers.
    pub inline_slot: StreamTx<Slot>,
    /// To acknowledge: something has ended that no answer will complete; the block behind is a queue.
    pub kick: StreamTx<LocalCompletion>,
    /// To deposit: a READ is on its way; the block behind is a queue.
    pub opened: StreamTx<IssuedRead>,
    /// To control: a key that is to be ended; the block behind is a queue.
    pub invalidate: StreamTx<Invalidation>,
    /// To the pool.
    pub message: Signal<Out, OutstandingMessage>,
    /// Where it stands.
    pub message_place: Signal<Out, Bits<PLACE_BITS>>,
    /// Whose it is.
    pub issued_queue_pair: Signal<Out, Bits<QUEUE_PAIR_BITS>>,
    /// It is written now.
    pub message_valid: Signal<Out, Bit>,
    /// How far its packets are.
    pub issued: Signal<Out, Issued>,
    /// That is said now.
    pub issued_valid: Signal<Out, Bit>,
    /// Bursts ever done with; registered.
    pub burst_count: Signal<Out, Bits<16>>,
    /// Turns of long messages ever done with; registered.
    pub turn_count: Signal<Out, Bits<16>>,
    /// An entry was malformed; registered.
    pub counts_work_refused: Signal<Out, Bit>,
    /// A local key, bound or right did not hold; registered.
    pub counts_local_protection: Signal<Out, Bit>,

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
    is_refused: Reg<Bit>,
    is_protected: Reg<Bit>,
}

impl Logic for Issue {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let is_sweeping = self.is_sweeping.val();
        let step = self.step.q.val();
        let item = self.packet.beat.val();
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
        self.counts_work_refused.next = self.is_refused.q.val();
        self.counts_local_protection.next = self.is_protected.q.val();
        self.is_refused.d.next = false;
        self.is_protected.d.next = false;

        self.records.read_enable.next = step == Step::Begin;
        self.records.read_address.next = item.queue_pair;

        // Only an item that makes no command ends its burst here; commands do when they are taken.
        let is_empty = step == Step::Begin && self.packet.valid.val() && item.is_empty && may_load;
        self.packet.ready.next = is_empty;
        self.answers.ready.next = false;
        if step == Step::Begin {
            self.left.d.next = item.request_count;
            self.is_ok.d.next = true;
            if self.packet.valid.val() && !item.is_empty {
                self.step.d.next = if item.request_count.any() { Step::Answers } else { Step::Write };
            }
        }

        // The first answer moves on when the second one comes.
        let answer = self.answers.beat.val();
        if step == Step::Answers {
            self.answers.ready.next = true;
            if self.answers.valid.val() {
                self.left.d.next = self.left.q.val() - 1;
                self.is_ok.d.next = self.is_ok.q.val() && answer.ok;
                if self.left.q.val() == item.request_count {
                    self.first_address.d.next = answer.device_address;
                } else {
                    self.second_address.d.next = answer.device_address;
                }
                if self.left.q.val() == 1 {
                    self.step.d.next = if item.is_listed { Step::Listed } else { Step::Write };
                }
            }
        }

        // Those of a list wait until all of them are known.
        let part = self.parts.beat.val();
        let is_listing = step == Step::Listed;
        let lists = is_listing && self.answers.valid.val() && self.parts.valid.val();
        self.parts.ready.next = is_listing && self.answers.valid.val();
        self.spans.rx.valid.next = lists;
        self.spans.rx.beat.next =
            HostSpan { address: answer.device_address, length: bit_cast::<SPAN_BITS, 13>(part.length) };
        if is_listing {
            self.answers.ready.next = self.parts.valid.val();
        }
        if lists {
            self.is_ok.d.next = self.is_ok.q.val() && answer.ok;
            if part.is_last {
                self.step.d.next = Step::Write;
            }
        }

        let record = self.records.read_data.val();
        let has_failed = record.has_failed && !item.is_first;
        let is_flushed = has_failed || item.status == FLUSHED;
        let is_refused = !is_flushed && item.status != SUCCESS;
        let is_protected = !is_flushed && item.status == SUCCESS && !self.is_ok.q.val();
        let is_right = !is_flushed && !is_refused && !is_protected;
        let ends_key = is_right && item.is_local;
        let is_sent = is_right && !item.is_local;
        let status = if is_flushed {
            bits::<8>(FLUSHED)
        } else if is_protected {
            bits::<8>(LOCAL_PROTECTION)
        } else {
            item.status
        };
        let writes = step == Step::Write
            && may_load
            && self.kick.ready.val()
            && self.opened.ready.val()
            && self.invalidate.ready.val();
        self.message_valid.next = writes && item.starts;
        self.message_place.next = item.place;
        self.message.next = OutstandingMessage {
            generation: item.generation,
            last_psn: item.last_psn,
            next_slot: item.next_slot,
            has_wr_id: item.has_wr_id,
            wr_id: item.wr_id,
            is_signalled: item.is_signalled,
            is_write: item.is_write,
            is_read: item.is_read,
            is_atomic: item.is_atomic,
            is_compare: item.is_compare,
            is_open: item.is_open,
            is_local: ends_key,
            // As RETH says it.
            length: if item.is_atomic {
                bits::<32>(ATOMIC_BYTES)
            } else {
                swap_bytes(item.extended.get_bits::<32>(96))
            },
            status,
            reason: select(is_refused, item.reason, bits::<8>(0)),
        };
        let reads = select(item.is_open, record.reads + 1, record.reads);
        self.opened.valid.next = writes && is_sent && item.is_open;
        self.opened.beat.next = IssuedRead {
            queue_pair: item.queue_pair,
            generation: item.generation,
            slot: record.reads.get_bits::<READ_SLOT_BITS>(0),
        };
        let unsent_psn = if is_sent {
            select(item.is_read, item.last_psn, item.psn) + 1
        } else if has_failed {
            record.unsent_psn
        } else {
            item.psn
        };
        self.issued_queue_pair.next = item.queue_pair;
        self.issued.next =
            Issued { count: item.message_count, reads, unsent_psn, generation: item.generation };
        self.issued_valid.next = writes;
        self.newest.d.next = IssuedPsn { queue_pair: item.queue_pair, psn: unsent_psn };
        self.has_newest.d.next = writes;
        self.frontier.next = self.newest.q.val();
        self.frontier_valid.next = self.has_newest.q.val();
        // A message that was written down fails behind its first packet as one whose payload could not be read.
        let fails_behind = is_protected && !item.starts;
        self.kick.valid.next = writes && !is_right && (item.starts || fails_behind);
        self.kick.beat.next = LocalCompletion {
            queue_pair: item.queue_pair,
            generation: item.generation,
            has_failed: fails_behind,
            psn: item.psn,
            is_freed: false,
            is_denied: false,
        };
        self.invalidate.valid.next = writes && ends_key;
        self.invalidate.beat.next = Invalidation {
            queue_pair: item.queue_pair,
            generation: item.generation,
            key: item.extended.get_bits::<32>(0),
            domain: item.extended.get_bits::<24>(32),
        };
        self.records.write_enable.next = writes || is_sweeping;
        self.records.write_address.next = select(is_sweeping, self.sweep_index.val(), item.queue_pair);
        self.records.write_data.next = Record {
            has_failed: !is_sweeping && (has_failed || is_refused || is_protected),
            unsent_psn,
            reads: select(is_sweeping, bits::<READ_COUNT_BITS>(0), reads),
        };
        let is_inline = item.inline_count.any();
        if writes {
            self.is_refused.d.next = is_refused;
            self.is_protected.d.next = is_protected;
            self.has_command.d.next = is_sent;
            self.command_ends_burst.d.next = item.ends_burst;
            self.command_ends_turn.d.next = item.ends_turn;
            self.command.d.next = GatherCommand {
                headers: TransmitRequest {
                    queue_pair: item.queue_pair,
                    generation: item.generation,
                    opcode: item.opcode,
                    solicited: item.solicited,
                    ack_request: item.ack_request,
                    asks_if_newest: true,
                    psn: item.psn,
                    extended: item.extended,
                    payload_bytes: item.payload_bytes,
                    is_response: false,
                    ends_response: false,
                },
                is_inline,
                continues: item.is_listed,
                span_count: select(item.is_read, bits::<2>(0), item.request_count),
                first: HostSpan {
                    address: self.first_address.q.val(),
                    length: bit_cast::<SPAN_BITS, 13>(item.first_length),
                },
                second: HostSpan {
                    address: self.second_address.q.val(),
                    length: bit_cast::<SPAN_BITS, 13>(item.second_length),
                },
            };
            self.is_sent.d.next = is_sent;
            self.inline_left.d.next = item.inline_count;
            self.packet.ready.next = true;
            self.step.d.next = if is_inline {
                Step::Inline
            } else if item.is_listed {
                Step::Continue
            } else {
                Step::Begin
            };
        }

        // The list of a packet that is not sent is thrown away.
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

        // Inline data of a packet that is not sent is thrown away.
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

        // A command that is taken and an item without one can end in the same cycle.
        let ends_packet = is_taken && !self.command.q.val().continues;
        let vanishes = is_empty || (writes && !is_sent);
        self.bursts_done.d.next = self.bursts_done.q.val()
            + ended(ends_packet && self.command_ends_burst.q.val(), vanishes && item.ends_burst);
        self.turns_done.d.next = self.turns_done.q.val()
            + ended(ends_packet && self.command_ends_turn.q.val(), vanishes && item.ends_turn);
    }
}

/// How many of two there are.
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
