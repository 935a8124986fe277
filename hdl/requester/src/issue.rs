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
//!  mark ──────────────────────>│───────────────│────────────────┴────────────┼──> gather
//!                              │           record <─────────────┴────────────┼──> local_completion (acknowledge)
//!                              └─────────────────────────────────────────────┘
//! ```
//!
//! A packet takes 2 cycles, one more for each access check and for each slot of inline data. Access checks
//! after the first one of a list take one more each, as each makes a command of its own.
//!
//! 1. Messages are written into the pool in order, each into its slot, before their first packet can be seen.
//! 2. After a WQE or a packet in error, nothing new of the same queue pair is sent, until it is created
//!    anew or reset: WQEs are flushed, other packets are dropped. What is before that packet is sent
//!    again, if need be.
//! 3. The slots of inline data that leave are those of the packets that leave, in order.
//! 4. `unsent_psn` is the highest PSN after a packet that left, and after the last response to it if it
//!    was a READ (protocol 2.1). `next_psn` is that after the last one that left, which may be one that
//!    was sent again.
//! 5. A READ that leaves is announced on `issued_read` before, with the slot that wqe_parse has given to
//!    it, and each time that it is sent again.
//! 6. A packet from a list leaves as one command for each of its SGEs, all or none.
//! 7. A LOCAL_INVALIDATE is written into the pool, and sent to control after everything that has left;
//!    control's answer completes it.
//! 8. `issued_psn` reports for each packet how far its queue pair's packets go, before what is issued with it
//!    can reach the wire; so a packet that leaves knows whether another one follows (protocol 2.4).
//! 9. A packet of an older epoch is not sent. Its message is written into the pool all the same if it is
//!    a new one, and its READ is announced, since it is sent again.
//! 10. A message that is sent again is not written into the pool again; one that is in error then is
//!     reported on `local_completion`. Its packets with PSNs before `unsent_psn` are marked as repeated,
//!     for gather, and counted.
//! 11. Once acknowledge has closed a queue pair, nothing more of it is sent, as of an older epoch. `mark` leaves
//!     behind the packets that were sent before, as a command of its own, between two packets.
//! 12. `burst_count` and `turn_count` count bursts and turns whose packets have all been taken by gather.
use crate::messages::{
    IssuedRead, IssuedWrite, LocalCompletion, Mark, MessageWrite, Packet, RetiredWrite, SLOT_BITS, SgePart,
};
use crate::sweep::SweepStep;
use rnic_blocks::memory::Memory;
use rnic_blocks::stream::{Fifo, StreamRx, StreamTx, ValidTx};
use rnic_kernel::prelude::*;
use rnic_messages::host::{HostSpan, Slot};
use rnic_messages::protect::{AccessAnswer, Invalidation};
use rnic_messages::sizes::{QUEUE_PAIR_BITS, SPAN_BITS, sizes};
use rnic_messages::transmit::{GatherCommand, IssuedPsn};
use rules::{
    Answers, Command, Now, Record, after_answer, announces_read, command_after, command_of, completes_here,
    counts_of, ended, invalidation_of, is_new_message, issued_of, issued_read_of, local_completion_of,
    mark_command_of, message_of, now_of, outcome_of, record_after, record_written, step_after_begin,
    step_after_write,
};

mod rules;
#[cfg(test)]
mod tests;

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
    /// A packet was sent again.
    pub packets_retransmitted: Bit,
    /// A malformed WQE was refused.
    pub work_refused: Bit,
    /// An access check of a local key failed.
    pub local_protection: Bit,
}

/// Issues packets; see the module.
#[clocked(reset = "A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
pub struct Issue {
    /// From sweep: the records of a queue pair are cleared in this cycle.
    pub sweep: Signal<In, SweepStep>,
    /// From segment.
    pub packet: StreamRx<Packet>,
    /// From segment: what access checks after the first one of a list are for.
    pub sge_parts: StreamRx<SgePart>,
    /// From acknowledge: epoch and acknowledged PSN, and whether the queue pair is closed.
    pub retired: Signal<In, RetiredWrite>,
    /// From acknowledge, through a queue, later than the `retired` that closes the queue pair.
    pub mark: StreamRx<Mark>,
    /// From wqe_check, through a queue whose `valid` is registered.
    pub inline_data: StreamRx<Bits<SLOT_BITS>>,
    /// From the region table, in order.
    pub access_answer: StreamRx<AccessAnswer>,
    /// To gather; registered.
    pub gather: StreamTx<GatherCommand>,
    /// To address_vector: PSN after the last packet, a cycle after `issued`; registered.
    pub issued_psn: ValidTx<IssuedPsn>,
    /// To gather: the head of the queue before this block, gated by registers.
    pub inline_slot: StreamTx<Slot>,
    /// To acknowledge, through a queue: a message that no response completes, or a packet that was not sent.
    pub local_completion: StreamTx<LocalCompletion>,
    /// To read_response, through a queue: a READ or an atomic is issued.
    pub issued_read: StreamTx<IssuedRead>,
    /// To control, through a queue: key of a LOCAL_INVALIDATE.
    pub invalidate: StreamTx<Invalidation>,
    /// To the pool: a message.
    pub message: Signal<Out, MessageWrite>,
    /// To the pool: counts of the queue pair.
    pub issued: Signal<Out, IssuedWrite>,
    /// Bursts whose packets have left, free-running; registered.
    pub burst_count: Signal<Out, Bits<16>>,
    /// Turns whose packets have left, free-running; registered.
    pub turn_count: Signal<Out, Bits<16>>,
    /// Events to count; registered.
    pub counts: Signal<Out, IssueCounts>,

    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    records: Memory<Record, QUEUE_PAIR_BITS>,
    #[init(Memory::default().with_words_log2(sizes().queue_pairs))]
    nows: Memory<Now, QUEUE_PAIR_BITS>,
    spans: Fifo<HostSpan, 3, 4>,
    step: Reg<Step>,
    answers: DFF<Answers>,
    is_sent: DFF<Bit>,
    inline_left: DFF<Bits<2>>,
    command: DFF<Command>,
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
        let is_sweeping = self.sweep.val().is_sweeping;
        let step = self.step.q.val();
        let packet = self.packet.beat.val();
        let answers = self.answers.q.val();
        let command = self.command.q.val();
        let has_command = self.has_command.q.val();
        let is_taken = has_command && self.gather.ready.val();
        let may_load = !has_command || self.gather.ready.val();

        self.gather.offer(has_command, command.gather);
        if is_taken {
            self.has_command.d.next = false;
        }
        self.burst_count.next = self.bursts_done.q.val();
        self.turn_count.next = self.turns_done.q.val();
        self.counts.next = self.counts_held.q.val();
        self.records.read(step == Step::Begin, packet.header.queue_pair);
        self.nows.read(step == Step::Begin, packet.header.queue_pair);
        self.nows.write_enable.next = self.retired.val().valid || is_sweeping;
        self.nows.write_address.next =
            select(is_sweeping, self.sweep.val().index, self.retired.val().queue_pair);
        self.nows.write_data.next = now_of(is_sweeping, self.retired.val());

        // A packet without a command ends its burst here; others when their command is taken.
        // A mark goes before the packet that is there.
        let has_mark = self.mark.valid.val();
        let begins = step == Step::Begin && self.packet.valid.val() && !has_mark;
        let is_empty = begins && packet.header.is_empty && may_load;
        if step == Step::Begin {
            self.answers.d.next = Answers { left: packet.request_count, are_ok: true, ..answers };
        }
        if begins {
            self.step.d.next = step_after_begin(packet);
        }
        let takes_mark = step == Step::Begin && may_load;
        self.mark.ready.next = takes_mark;
        if takes_mark && has_mark {
            self.has_command.d.next = true;
            self.command.d.next = mark_command_of(self.mark.beat.val());
        }

        // Counted answers, then those of a list, which wait until all of them have come.
        let answer = self.access_answer.beat.val();
        let part = self.sge_parts.beat.val();
        let is_listing = step == Step::Listed;
        let lists = is_listing && self.access_answer.valid.val() && self.sge_parts.valid.val();
        self.access_answer.ready.next = step == Step::Answers || (is_listing && self.sge_parts.valid.val());
        if step == Step::Answers && self.access_answer.valid.val() {
            self.answers.d.next = after_answer(answers, answer, packet.request_count);
            if answers.left == 1 {
                self.step.d.next = if packet.is_listed { Step::Listed } else { Step::Write };
            }
        }
        self.sge_parts.ready.next = is_listing && self.access_answer.valid.val();
        self.spans.rx.valid.next = lists;
        self.spans.rx.beat.next =
            HostSpan { address: answer.device_address, length: bit_cast::<SPAN_BITS, 13>(part.length) };
        if lists {
            self.answers.d.next = Answers { are_ok: answers.are_ok && answer.ok, ..answers };
            if part.is_last {
                self.step.d.next = Step::Write;
            }
        }

        // The packet: what becomes of it, and who is told.
        let record = self.records.read_data.val();
        let outcome = outcome_of(packet, record, self.nows.read_data.val(), answers.are_ok);
        let after = record_after(packet, record, outcome);
        let is_sent = outcome.is_sent;
        let writes = step == Step::Write
            && may_load
            && self.local_completion.ready.val()
            && self.issued_read.ready.val()
            && self.invalidate.ready.val();
        self.packet.ready.next = is_empty || writes;
        self.message.next = MessageWrite {
            pool_slot: packet.header.pool_slot,
            message: message_of(packet, outcome),
            valid: writes && is_new_message(packet),
        };
        self.issued_read.offer(writes && announces_read(packet, outcome), issued_read_of(packet, record));
        self.issued.next = IssuedWrite {
            queue_pair: packet.header.queue_pair,
            issued: issued_of(packet, after),
            valid: writes,
        };
        self.newest.d.next = IssuedPsn { queue_pair: packet.header.queue_pair, psn: after.next_psn };
        self.has_newest.d.next = writes;
        self.issued_psn.offer(self.has_newest.q.val(), self.newest.q.val());
        self.local_completion.valid.next = writes && completes_here(packet, outcome);
        self.local_completion.beat.next = local_completion_of(packet, outcome);
        self.invalidate.offer(writes && outcome.is_invalidation, invalidation_of(packet));
        self.counts_held.d.next = counts_of(writes, packet, record, outcome);
        self.records.write_enable.next = writes || is_sweeping;
        self.records.write_address.next =
            select(is_sweeping, self.sweep.val().index, packet.header.queue_pair);
        self.records.write_data.next = record_written(is_sweeping, after);
        if writes {
            self.has_command.d.next = is_sent;
            self.command.d.next = command_of(packet, record, after, answers);
            self.is_sent.d.next = is_sent;
            self.inline_left.d.next = packet.inline_count;
            self.step.d.next = step_after_write(packet);
        }

        // The list of a packet that is not sent is dropped.
        let continues = step == Step::Continue && may_load && self.spans.tx.valid.val();
        let is_last_span = self.spans.level.val() == 1;
        self.spans.tx.ready.next = step == Step::Continue && may_load;
        if continues {
            self.has_command.d.next = self.is_sent.q.val();
            self.command.d.next = command_after(command, self.spans.tx.beat.val(), is_last_span);
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
        let ends_packet = is_taken && !command.gather.continues;
        let vanishes = is_empty || (writes && !is_sent);
        self.bursts_done.d.next = self.bursts_done.q.val()
            + ended(ends_packet && command.ends_burst, vanishes && packet.header.ends_burst);
        self.turns_done.d.next =
            self.turns_done.q.val() + ended(ends_packet && command.ends_turn, vanishes && packet.ends_turn);
    }
}
