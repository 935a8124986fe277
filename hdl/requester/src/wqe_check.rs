//! WqeCheck: checks an entry's fields, and finds the elements that its message is gathered from.
//!
//! Everything in an entry was written by a process that nobody trusts: no field is used before it is checked, and lengths are
//! added in wide arithmetic. Whether elements may be read is asked for each packet, when it is cut.
//!
//! ```text
//!           ┌──────────────────────────────────────────────────┐
//!  item ───>│ fields ──> verdict ──────────────────────────────┼──> checked
//!           │ elements ──> one a cycle ──> sum, two of them    │
//!           │                              └──> more of them ──┼──> listed
//!           │ inline data ─────────────────────────────────────┼──> inline_data
//!           └──────────────────────────────────────────────────┘
//! ```
//!
//! An entry takes 2 cycles and one more for each element and for the second slot of inline data; 3 for a message from one place.
//! Of more than two elements with bytes it takes one more.
//!
//! 1. Items leave in order, each once, with a status.
//! 2. Exactly `inline_count` slots are given for each item that leaves, in its order.
//! 3. Elements of no bytes are skipped, whatever their key is (protocol 4.6).
//! 4. Of more than two elements with bytes, those behind the first are given on `listed`, in order and before the item, which says
//!    how many. Also of an item that is refused.
//!
//! The status is that of `rnic_layout::queue::send::Wqe::parse`; then LOC_QP_OP for what this card does not do yet: opcodes
//! for windows, fast registration and persistence, and READs that may never be open. Protocol 2.2, 2.3, 2.11, 8.3.
use crate::constants::{
    ATOMIC_BYTES, FLUSHED, LOCAL_LENGTH, LOCAL_OPERATION, REASON_MALFORMED, SUCCESS, WORK_COMPARE_SWAP,
    WORK_LOCAL_INVALIDATE, WORK_READ, WORK_SEND, WORK_SEND_IMMEDIATE, WORK_SEND_INVALIDATE, WORK_WRITE,
    WORK_WRITE_IMMEDIATE,
};
use crate::messages::{CheckedWqe, ParsedWqe, SLOT_BITS, Sge};
use crate::wqe::{DATA_OFFSET, SGE_BITS, WqeFields, fields, is_atomic, sge_address, sge_key, sge_length};
use rnic_blocks::stream::{StreamRx, StreamTx};
use rnic_kernel::prelude::*;
use rnic_layout::limits::{
    INLINE_BYTES_FIRST_SLOT, INLINE_BYTES_MAX, MESSAGE_BYTES_MAX, SEND_SGES_FIRST_SLOT, SEND_SGES_MAX,
};

const INLINE_FIRST: u64 = INLINE_BYTES_FIRST_SLOT as u64;
const INLINE_MAX: u64 = INLINE_BYTES_MAX as u64;
const SGES_FIRST: u64 = SEND_SGES_FIRST_SLOT as u64;
const SGES_MAX: u64 = SEND_SGES_MAX as u64;
const LENGTH_MAX: u64 = MESSAGE_BYTES_MAX as u64;
/// Bits of a sum of six lengths.
const SUM_BITS: usize = 35;

/// What the block does.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Step {
    Begin,
    Sge,
    Listed,
    Finish,
    SecondSlot,
}

/// The block.
#[derive(Default, LogicBlock, Registers)]
pub struct WqeCheck {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; forgets the item.
    pub reset: Signal<In, Bit>,
    /// From segmentation.
    pub item: StreamRx<ParsedWqe>,
    /// To cut; the block behind is a queue, whose `ready` is a register.
    pub checked: StreamTx<CheckedWqe>,
    /// To cut: elements of long lists; the same.
    pub listed: StreamTx<Sge>,
    /// To issuing; the same.
    pub inline_data: StreamTx<Bits<SLOT_BITS>>,
    step: Reg<Step>,
    sge: DFF<Bits<SGE_BITS>>,
    index: DFF<Bits<3>>,
    sum: DFF<Bits<SUM_BITS>>,
    first: DFF<Sge>,
    second: DFF<Sge>,
    listed_count: DFF<Bits<3>>,
    is_malformed: DFF<Bit>,
    is_too_long: DFF<Bit>,
    is_unsupported: DFF<Bit>,
}

impl Logic for WqeCheck {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let step = self.step.q.val();
        let item = self.item.beat.val();
        let fields: WqeFields = fields(item.first);
        let index = self.index.q.val();
        let sge = self.sge.q.val();
        let is_readable = item.reason == 0 && !item.is_flushed && !item.is_empty;

        // The element that is looked at in the next cycle.
        let next_index = select(step == Step::Begin, bits::<3>(0), index + 1);
        self.sge.d.next = match next_index.to_u64() {
            0 => item.first.get_bits::<SGE_BITS>(DATA_OFFSET),
            1 => item.first.get_bits::<SGE_BITS>(DATA_OFFSET + SGE_BITS),
            2 => item.second.get_bits::<SGE_BITS>(0),
            3 => item.second.get_bits::<SGE_BITS>(SGE_BITS),
            4 => item.second.get_bits::<SGE_BITS>(2 * SGE_BITS),
            _ => item.second.get_bits::<SGE_BITS>(3 * SGE_BITS),
        };

        self.item.ready.next = false;
        self.checked.valid.next = false;
        self.listed.valid.next = false;
        self.listed.beat.next = self.second.q.val();
        self.inline_data.valid.next = false;
        self.inline_data.beat.next = select(step == Step::SecondSlot, item.second, item.first);

        if step == Step::Begin {
            let is_write = fields.opcode == WORK_WRITE || fields.opcode == WORK_WRITE_IMMEDIATE;
            let is_send = fields.opcode == WORK_SEND
                || fields.opcode == WORK_SEND_IMMEDIATE
                || fields.opcode == WORK_SEND_INVALIDATE;
            let is_local = fields.opcode == WORK_LOCAL_INVALIDATE;
            let is_atomic = is_atomic(fields.opcode);
            let is_read = fields.opcode == WORK_READ || is_atomic;
            let is_known = is_write || is_send || is_read || is_local;
            let sges_max = if is_local {
                bits::<4>(0)
            } else if item.two_slots && !is_read {
                bits::<4>(SGES_MAX)
            } else {
                bits::<4>(SGES_FIRST)
            };
            let inline_max = if item.two_slots { bits::<32>(INLINE_MAX) } else { bits::<32>(INLINE_FIRST) };
            let is_malformed = !is_known
                || !item.is_reliable
                || fields.has_reserved
                || (fields.inline && (fields.sge_count.any() || is_read || is_local))
                || (is_atomic
                    && (fields.sge_count != 1
                        || fields.length != ATOMIC_BYTES
                        || fields.immediate.any()
                        || item.two_slots))
                || fields.sge_count > sges_max;
            let walks = is_readable && is_known && !is_malformed && !fields.inline && fields.sge_count.any();
            self.is_malformed.d.next = is_malformed;
            self.is_too_long.d.next =
                if fields.inline { fields.length > inline_max } else { fields.length > LENGTH_MAX };
            self.is_unsupported.d.next = is_read && !item.is_open;
            self.index.d.next = bits(0);
            self.sum.d.next = bits(0);
            self.first.d.next.length = bits(0);
            self.second.d.next.length = bits(0);
            self.listed_count.d.next = bits(0);
            if self.item.valid.val() {
                self.step.d.next = if walks { Step::Sge } else { Step::Finish };
            }
        }

        let length = sge_length(sge);
        let stretch = Sge { key: sge_key(sge), address: sge_address(sge), length };
        let is_atomic = is_atomic(fields.opcode);
        // Behind the only element of an atomic stand its operands.
        let is_operands = is_atomic && index.any();
        let has_first = self.first.q.val().length.any();
        let has_second = self.second.q.val().length.any();
        let is_listed = self.listed_count.q.val().any();
        // The second place is left for the list when a further one comes, or behind the last one.
        let lists = (step == Step::Sge && has_second && length.any()) || step == Step::Listed;
        let may_list = self.listed.ready.val();
        if lists {
            self.listed.valid.next = true;
            if may_list {
                self.listed_count.d.next = self.listed_count.q.val() + 1;
            }
        }
        if lists && !may_list {
            self.sge.d.next = sge;
        }
        if step == Step::Sge && (!lists || may_list) {
            self.index.d.next = next_index;
            if !is_operands {
                self.sum.d.next = self.sum.q.val() + bit_cast::<SUM_BITS, 32>(length);
            }
            if is_operands || (length.any() && has_first) {
                self.second.d.next = stretch;
            } else if length.any() {
                self.first.d.next = stretch;
            }
            if is_operands || (!is_atomic && bit_cast::<4, 3>(next_index) == fields.sge_count) {
                self.step.d.next = if lists || is_listed { Step::Listed } else { Step::Finish };
            }
        }
        if step == Step::Listed && may_list {
            self.step.d.next = Step::Finish;
        }

        let is_misfit = is_atomic && self.sum.q.val() != ATOMIC_BYTES;
        let differs = !fields.inline && self.sum.q.val() != bit_cast::<SUM_BITS, 32>(fields.length);
        let has_reason = item.reason != 0;
        let (status, reason) = if item.is_flushed {
            (bits::<8>(FLUSHED), bits::<8>(0))
        } else if has_reason {
            (bits::<8>(LOCAL_OPERATION), item.reason)
        } else if self.is_malformed.q.val() || self.is_unsupported.q.val() || is_misfit {
            (bits::<8>(LOCAL_OPERATION), bits::<8>(REASON_MALFORMED))
        } else if self.is_too_long.q.val() || differs {
            (bits::<8>(LOCAL_LENGTH), bits::<8>(REASON_MALFORMED))
        } else {
            (bits::<8>(SUCCESS), bits::<8>(0))
        };
        let is_write = fields.opcode == WORK_WRITE || fields.opcode == WORK_WRITE_IMMEDIATE;
        let is_read = fields.opcode == WORK_READ || is_atomic;
        let with_invalidate = fields.opcode == WORK_SEND_INVALIDATE;
        let is_local = fields.opcode == WORK_LOCAL_INVALIDATE;
        let has_immediate = fields.opcode == WORK_WRITE_IMMEDIATE || fields.opcode == WORK_SEND_IMMEDIATE;
        let is_signalled = fields.signalled || item.signal_all;
        let has_inline = fields.inline && status == SUCCESS && fields.length.any() && !item.is_empty;
        let has_two = has_inline && fields.length > INLINE_FIRST;
        // A tag that could not be read, or belongs to no entry, is none.
        let has_wr_id = item.reason == 0 || item.reason == crate::constants::REASON_HALF_ENTRY;
        self.checked.beat.next = CheckedWqe {
            queue_pair: item.queue_pair,
            generation: item.generation,
            is_empty: item.is_empty,
            is_first: item.is_first,
            ends_burst: item.ends_burst,
            psn: item.psn,
            last_psn: item.last_psn,
            is_long: item.is_long,
            is_open: item.is_open,
            read_slot: item.read_slot,
            place: item.place,
            message_count: item.message_count,
            next_slot: item.next_slot,
            has_wr_id,
            wr_id: select(has_wr_id, fields.wr_id, bits::<64>(0)),
            status,
            reason,
            is_signalled,
            is_write,
            is_read,
            is_atomic,
            is_compare: fields.opcode == WORK_COMPARE_SWAP,
            has_immediate,
            with_invalidate,
            is_local,
            // A WRITE without immediate data makes no completion at the peer, and a READ none at all.
            solicited: fields.solicited && !is_read && (!is_write || has_immediate),
            ack_request: is_signalled || item.asks || is_read,
            immediate: if with_invalidate {
                swap_bytes(fields.immediate)
            } else if has_immediate || is_local {
                fields.immediate
            } else {
                bits::<32>(0)
            },
            remote: if is_write || is_read {
                cat!(
                    swap_bytes(fields.length),
                    swap_bytes(fields.remote_key),
                    swap_bytes(fields.remote_address)
                )
            } else {
                bits::<128>(0)
            },
            length: fields.length,
            inline_count: cat!(has_two, has_inline && !has_two),
            path_mtu: item.path_mtu,
            domain: item.domain,
            first: self.first.q.val(),
            second: self.second.q.val(),
            listed_count: self.listed_count.q.val(),
        };
        if step == Step::Finish {
            let may_finish = self.checked.ready.val() && (!has_inline || self.inline_data.ready.val());
            if may_finish {
                self.checked.valid.next = true;
                self.inline_data.valid.next = has_inline;
                self.step.d.next = if has_two { Step::SecondSlot } else { Step::Begin };
                self.item.ready.next = !has_two;
            }
        }
        if step == Step::SecondSlot {
            self.inline_data.valid.next = true;
            if self.inline_data.ready.val() {
                self.item.ready.next = true;
                self.step.d.next = Step::Begin;
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
