//! WqeCheck: checks the fields of a WQE, and finds the SGEs that its message is gathered from.
//!
//! A WQE is written by an untrusted process: no field is used before it is checked, and lengths are added in
//! wide arithmetic. Whether the SGEs may be read is checked for each packet, when it is made.
//!
//! ```text
//!           ┌──────────────────────────────────────────────────┐
//!  parsed ─>│ fields ──> faults ──> status ────────────────────┼──> checked
//!           │ SGEs ──> one a cycle ──> sum, first, second      │
//!           │                          └──> the others ────────┼──> listed_sges
//!           │ inline data ─────────────────────────────────────┼──> inline_data
//!           └──────────────────────────────────────────────────┘
//!  step       Begin   Sge (Listed)   Finish (SecondSlot)
//! ```
//!
//! A WQE takes 2 cycles, one more for each SGE, and one for the second slot of inline data: 3 for a message
//! from one SGE. One with more than two SGEs that are not empty takes one more.
//!
//! 1. WQEs leave in order, each once, with a status.
//! 2. Exactly `inline_count` slots leave on `inline_data` for each WQE, in its order.
//! 3. Empty SGEs are skipped, whatever their key is (protocol 4.6).
//! 4. Of a message that is sent again from its middle on, the bytes before are left out: of the SGEs, or of the
//!    remote range of a READ (protocol 2.5, 2.8). Its length is that of the rest.
//! 5. Of more than two SGEs that are not empty, those after the first leave on `listed_sges`, in order and
//!    before the WQE, which has their number; also for a WQE that is refused.
//!
//! Refuses what `rnic_layout::queue::send::Wqe::parse` refuses, with the same status; then, with LOC_QP_OP,
//! what this card does not execute: memory windows, fast registration, persistence, and READs and atomics of a
//! queue pair that may have none outstanding. Protocol 2.2, 2.3, 2.11, 8.3.
mod rules;

use crate::messages::{CheckedWqe, ParsedWqe, SLOT_BITS, Sge, WqeCompletion, WqeTail, second_sge};
use crate::wqe::{DATA_OFFSET, SGE_BITS, WqeFields, WqeOperation, classify, fields, sge};
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::queue::completion::CompletionStatus;
use rules::{
    FieldFaults, SUM_BITS, SgeUse, WqeStatus, after_skipped, has_wr_id, immediate_or_key, inline_count,
    is_malformed, is_solicited, is_too_long, remaining, reth, sge_after, sge_use, skipped_bytes, status_of,
    tail_of,
};

/// State of the block.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    /// Checks the fields.
    Begin,
    /// Looks at an SGE.
    Sge,
    /// Hands out the last SGE of a list.
    Listed,
    /// Hands out the WQE, and the first slot of inline data.
    Finish,
    /// Hands out the second slot of inline data.
    SecondSlot,
}

/// Checks WQEs; see the module.
#[clocked(reset = "drops the WQE")]
#[derive(Default, LogicBlock, Registers)]
pub struct WqeCheck {
    /// From wqe_parse.
    pub parsed: StreamRx<ParsedWqe>,
    /// To segment, through a queue whose `ready` is registered.
    pub checked: StreamTx<CheckedWqe>,
    /// To segment: SGEs after the first of a list, through such a queue.
    pub listed_sges: StreamTx<Sge>,
    /// To issue: slots with inline data, through such a queue.
    pub inline_data: StreamTx<Bits<SLOT_BITS>>,
    step: Reg<Step>,
    /// Bytes of the SGE at `index`.
    bytes: DFF<Bits<SGE_BITS>>,
    index: DFF<Bits<3>>,
    sum: DFF<Bits<SUM_BITS>>,
    /// Bytes that are left of those that are not sent again.
    skipped: DFF<Bits<32>>,
    first: DFF<Sge>,
    tail: DFF<WqeTail>,
    listed_count: DFF<Bits<3>>,
    faults: DFF<FieldFaults>,
}

/// The bytes of SGE `index`, 0 to 5; of an atomic, its operands at index 1.
#[kernel]
fn sge_bytes(wqe: ParsedWqe, index: Bits<3>) -> Bits<SGE_BITS> {
    match index.to_u64() {
        0 => wqe.first.get_bits::<SGE_BITS>(DATA_OFFSET),
        1 => wqe.first.get_bits::<SGE_BITS>(DATA_OFFSET + SGE_BITS),
        2 => wqe.second.get_bits::<SGE_BITS>(0),
        3 => wqe.second.get_bits::<SGE_BITS>(SGE_BITS),
        4 => wqe.second.get_bits::<SGE_BITS>(2 * SGE_BITS),
        _ => wqe.second.get_bits::<SGE_BITS>(3 * SGE_BITS),
    }
}

impl Logic for WqeCheck {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let step = self.step.q.val();
        let wqe = self.parsed.beat.val();
        let fields: WqeFields = fields(wqe.first);
        let operation: WqeOperation = classify(fields.opcode);
        let kind = operation.kind;
        let index = self.index.q.val();
        let bytes = self.bytes.q.val();
        let tail = self.tail.q.val();
        let second: Sge = second_sge(tail);

        let next_index = select(step == Step::Begin, bits::<3>(0), index + 1);
        self.bytes.d.next = sge_bytes(wqe, next_index);
        self.parsed.ready.next = false;
        self.checked.valid.next = false;
        self.listed_sges.valid.next = false;
        self.listed_sges.beat.next = second;
        self.inline_data.valid.next = false;
        self.inline_data.beat.next = select(step == Step::SecondSlot, wqe.second, wqe.first);

        if step == Step::Begin {
            let is_malformed = is_malformed(fields, operation, wqe.two_slots) || !wqe.is_reliable;
            let is_readable = wqe.reason == 0 && !wqe.is_flushed && !wqe.header.is_empty;
            let has_sges = is_readable && !is_malformed && !fields.inline && fields.sge_count.any();
            self.faults.d.next = FieldFaults {
                is_malformed,
                is_too_long: is_too_long(fields, wqe.two_slots),
                is_unsupported: kind.is_read && !wqe.header.is_open,
            };
            self.index.d.next = bits(0);
            self.sum.d.next = bits(0);
            self.skipped.d.next = select(kind.is_read, bits::<32>(0), skipped_bytes(wqe));
            self.first.d.next.length = bits(0);
            self.tail.d.next.bytes = cat!(bits::<32>(0), tail.bytes.get_bits::<96>(0));
            self.listed_count.d.next = bits(0);
            if self.parsed.valid.val() {
                self.step.d.next = if has_sges { Step::Sge } else { Step::Finish };
            }
        }

        // Of an SGE, the bytes that are not sent again are left out.
        let whole: Sge = sge(bytes);
        let skipped = self.skipped.q.val();
        let current = sge_after(whole, skipped);
        let is_operands = kind.is_atomic && index.any();
        // The second SGE joins the list when a third one is found, and the last one when no other follows.
        let is_third = step == Step::Sge && second.length.any() && current.length.any();
        let lists = is_third || step == Step::Listed;
        let may_list = self.listed_sges.ready.val();
        let is_listed = self.listed_count.q.val().any();
        if lists {
            self.listed_sges.valid.next = true;
            if may_list {
                self.listed_count.d.next = self.listed_count.q.val() + 1;
            } else {
                self.bytes.d.next = bytes;
            }
        }
        if step == Step::Sge && (!lists || may_list) {
            let sge_use = sge_use(current.length, is_operands, self.first.q.val().length.any());
            self.index.d.next = next_index;
            if !is_operands {
                self.sum.d.next = self.sum.q.val() + bit_cast::<SUM_BITS, 32>(whole.length);
                self.skipped.d.next = after_skipped(whole.length, skipped);
            }
            if sge_use == SgeUse::Tail {
                self.tail.d.next.bytes = select(is_operands, bytes, tail_of(current));
            }
            if sge_use == SgeUse::First {
                self.first.d.next = current;
            }
            if is_operands || (!kind.is_atomic && bit_cast::<4, 3>(next_index) == fields.sge_count) {
                self.step.d.next = if lists || is_listed { Step::Listed } else { Step::Finish };
            }
        }
        if step == Step::Listed && may_list {
            self.step.d.next = Step::Finish;
        }

        let outcome: WqeStatus = status_of(
            wqe.is_flushed,
            wqe.reason,
            self.faults.q.val(),
            fields,
            kind.is_atomic,
            self.sum.q.val(),
        );
        let rest = remaining(fields, skipped_bytes(wqe));
        let is_sent = outcome.status == CompletionStatus::Success as u64 && !wqe.header.is_empty;
        let inline_count = inline_count(fields, is_sent);
        let has_wr_id = has_wr_id(wqe.reason);
        let is_signalled = fields.signalled || wqe.signal_all;
        self.checked.beat.next = CheckedWqe {
            header: wqe.header,
            plan: wqe.plan,
            completion: WqeCompletion {
                has_wr_id,
                wr_id: select(has_wr_id, fields.wr_id, bits::<64>(0)),
                is_signalled,
                status: outcome.status,
                reason: outcome.reason,
            },
            kind,
            has_immediate: operation.has_immediate,
            with_invalidate: operation.with_invalidate,
            solicited: is_solicited(fields, operation),
            ack_request: is_signalled || wqe.needs_ack || kind.is_read,
            immediate_or_key: immediate_or_key(fields, operation),
            reth: reth(rest, operation),
            length: rest.length,
            inline_count,
            first: self.first.q.val(),
            tail,
            listed_count: self.listed_count.q.val(),
        };
        let has_inline = inline_count.any();
        let has_two = inline_count.get_bit(1);
        if step == Step::Finish && self.checked.ready.val() && (!has_inline || self.inline_data.ready.val()) {
            self.checked.valid.next = true;
            self.inline_data.valid.next = has_inline;
            self.step.d.next = if has_two { Step::SecondSlot } else { Step::Begin };
            self.parsed.ready.next = !has_two;
        }
        if step == Step::SecondSlot {
            self.inline_data.valid.next = true;
            if self.inline_data.ready.val() {
                self.parsed.ready.next = true;
                self.step.d.next = Step::Begin;
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
