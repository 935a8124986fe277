//! Decisions of the block about one WQE.
use crate::messages::{ParsedWqe, Sge};
use crate::vendor_error;
use crate::wqe::{ATOMIC_BYTES, SGE_BITS, WqeFields, WqeOperation};
use rnic_kernel::prelude::*;
use rnic_layout::limits::{
    INLINE_BYTES_FIRST_SLOT, INLINE_BYTES_MAX, MESSAGE_BYTES_MAX, SEND_SGES_FIRST_SLOT, SEND_SGES_MAX,
};
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::state::PathMtu;

const INLINE_FIRST: u64 = INLINE_BYTES_FIRST_SLOT as u64;
const INLINE_MAX: u64 = INLINE_BYTES_MAX as u64;
const SGES_FIRST: u64 = SEND_SGES_FIRST_SLOT as u64;
const SGES_MAX: u64 = SEND_SGES_MAX as u64;
const LENGTH_MAX: u64 = MESSAGE_BYTES_MAX as u64;
/// Bits of the sum of six lengths.
pub(super) const SUM_BITS: usize = 35;

/// What the first slot alone tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct FieldFaults {
    /// A field has a value that it must not have.
    pub is_malformed: Bit,
    /// The message is longer than it may be.
    pub is_too_long: Bit,
    /// READ or atomic of a queue pair that may have none outstanding.
    pub is_unsupported: Bit,
}

/// How the WQE ends, as far as it is known before anything is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct WqeStatus {
    /// A `CompletionStatus`.
    pub status: Bits<8>,
    /// `vendor_error` of the CQE.
    pub reason: Bits<8>,
}

/// What becomes of 16 bytes where an SGE may be.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(super) enum SgeUse {
    /// An SGE of no bytes: skipped (protocol 4.6).
    Skipped,
    /// The first SGE of the message.
    First,
    /// A later SGE, or the operands of an atomic.
    Tail,
}

/// Bytes of the packets, or of the responses, that are not asked for again.
#[kernel]
pub(super) fn skipped_bytes(wqe: ParsedWqe) -> Bits<32> {
    let packets = wqe.skipped_packets;
    match PathMtu::from_number(wqe.plan.path_mtu.to_u64()) {
        Some(PathMtu::Bytes256) => cat!(packets.get_bits::<24>(0), bits::<8>(0)),
        Some(PathMtu::Bytes512) => cat!(packets.get_bits::<23>(0), bits::<9>(0)),
        Some(PathMtu::Bytes1024) => cat!(packets.get_bits::<22>(0), bits::<10>(0)),
        Some(PathMtu::Bytes2048) => cat!(packets.get_bits::<21>(0), bits::<11>(0)),
        _ => cat!(packets.get_bits::<20>(0), bits::<12>(0)),
    }
}

/// What is left of an SGE without its first `skipped` bytes.
#[kernel]
pub(super) fn sge_after(sge: Sge, skipped: Bits<32>) -> Sge {
    let is_used_up = skipped >= sge.length;
    Sge {
        key: sge.key,
        address: sge.address + bit_cast::<64, 32>(skipped),
        length: select(is_used_up, bits::<32>(0), sge.length - skipped),
    }
}

/// Bytes that are skipped after an SGE of `length` bytes.
#[kernel]
pub(super) fn after_skipped(length: Bits<32>, skipped: Bits<32>) -> Bits<32> {
    select(skipped >= length, skipped - length, bits::<32>(0))
}

/// An SGE as a WQE has it.
#[kernel]
pub(super) fn tail_of(sge: Sge) -> Bits<SGE_BITS> {
    cat!(sge.length, sge.key, sge.address)
}

/// The fields of a message without its first `skipped` bytes, of which it has more.
#[kernel]
pub(super) fn remaining(fields: WqeFields, skipped: Bits<32>) -> WqeFields {
    WqeFields {
        remote_address: fields.remote_address + bit_cast::<64, 32>(skipped),
        length: fields.length - skipped,
        ..fields
    }
}

/// Most SGEs that a WQE may have.
#[kernel]
pub(super) fn sges_max(operation: WqeOperation, two_slots: Bit) -> Bits<4> {
    if operation.kind.is_local {
        bits::<4>(0)
    } else if two_slots && !operation.kind.is_read {
        bits::<4>(SGES_MAX)
    } else {
        bits::<4>(SGES_FIRST)
    }
}

/// Tells whether a field has a value that it must not have.
#[kernel]
pub(super) fn is_malformed(fields: WqeFields, operation: WqeOperation, two_slots: Bit) -> Bit {
    let kind = operation.kind;
    let is_bad_inline = fields.inline && (fields.sge_count.any() || kind.is_read || kind.is_local);
    let is_bad_atomic = kind.is_atomic
        && (fields.sge_count != 1
            || fields.length != ATOMIC_BYTES
            || fields.immediate_or_key.any()
            || two_slots);
    !operation.is_known
        || fields.has_reserved
        || is_bad_inline
        || is_bad_atomic
        || fields.sge_count > sges_max(operation, two_slots)
}

/// Tells whether a message is longer than its slots have inline bytes for, or than any message may be.
#[kernel]
pub(super) fn is_too_long(fields: WqeFields, two_slots: Bit) -> Bit {
    let inline_max = if two_slots { bits::<32>(INLINE_MAX) } else { bits::<32>(INLINE_FIRST) };
    if fields.inline { fields.length > inline_max } else { fields.length > LENGTH_MAX }
}

/// Tells what becomes of an SGE, or of the operands that follow the SGE of an atomic.
#[kernel]
pub(super) fn sge_use(length: Bits<32>, is_operands: Bit, has_first: Bit) -> SgeUse {
    if is_operands || (length.any() && has_first) {
        SgeUse::Tail
    } else if length.any() {
        SgeUse::First
    } else {
        SgeUse::Skipped
    }
}

/// Tells how a WQE ends. `sum` is that of the lengths of its SGEs, `reason` is the `vendor_error` of a WQE that
/// must not be read.
#[kernel]
pub(super) fn status_of(
    is_flushed: Bit,
    reason: Bits<8>,
    faults: FieldFaults,
    fields: WqeFields,
    is_atomic: Bit,
    sum: Bits<SUM_BITS>,
) -> WqeStatus {
    let is_misfit = is_atomic && sum != ATOMIC_BYTES;
    let differs = !fields.inline && sum != bit_cast::<SUM_BITS, 32>(fields.length);
    if is_flushed {
        WqeStatus { status: bits::<8>(CompletionStatus::Flushed as u64), reason: bits::<8>(0) }
    } else if reason != 0 {
        WqeStatus { status: bits::<8>(CompletionStatus::LocalQueuePairOperation as u64), reason }
    } else if faults.is_malformed || faults.is_unsupported || is_misfit {
        WqeStatus {
            status: bits::<8>(CompletionStatus::LocalQueuePairOperation as u64),
            reason: bits::<8>(vendor_error::MALFORMED),
        }
    } else if faults.is_too_long || differs {
        WqeStatus {
            status: bits::<8>(CompletionStatus::LocalLength as u64),
            reason: bits::<8>(vendor_error::MALFORMED),
        }
    } else {
        WqeStatus { status: bits::<8>(CompletionStatus::Success as u64), reason: bits::<8>(0) }
    }
}

/// Slots of inline data that leave with a WQE, 0 to 2; `is_sent` says that it is there and its status is
/// success.
#[kernel]
pub(super) fn inline_count(fields: WqeFields, is_sent: Bit) -> Bits<2> {
    let has_inline = fields.inline && is_sent && fields.length.any();
    let has_two = has_inline && fields.length > INLINE_FIRST;
    cat!(has_two, has_inline && !has_two)
}

/// SE bit of the last packet: a WRITE without immediate data and a READ make no completion at the peer.
#[kernel]
pub(super) fn is_solicited(fields: WqeFields, operation: WqeOperation) -> Bit {
    let kind = operation.kind;
    fields.solicited && !kind.is_read && (!kind.is_write || operation.has_immediate)
}

/// ImmDt or IETH as on the wire, or the key of LOCAL_INVALIDATE, or zero.
#[kernel]
pub(super) fn immediate_or_key(fields: WqeFields, operation: WqeOperation) -> Bits<32> {
    if operation.with_invalidate {
        swap_bytes(fields.immediate_or_key)
    } else if operation.has_immediate || operation.kind.is_local {
        fields.immediate_or_key
    } else {
        bits::<32>(0)
    }
}

/// RETH as on the wire; zero for a SEND.
#[kernel]
pub(super) fn reth(fields: WqeFields, operation: WqeOperation) -> Bits<128> {
    if operation.kind.is_write || operation.kind.is_read {
        cat!(swap_bytes(fields.length), swap_bytes(fields.remote_key), swap_bytes(fields.remote_address))
    } else {
        bits::<128>(0)
    }
}

/// A `wr_id` that could not be read, or belongs to no WQE, is not reported.
#[kernel]
pub(super) fn has_wr_id(reason: Bits<8>) -> Bit {
    reason == 0 || reason == vendor_error::HALF_WQE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::SegmentPlan;
    use crate::wqe::classify;
    use rnic_layout::queue::send::WqeOpcode::{self, *};

    fn operation(opcode: WqeOpcode) -> WqeOperation {
        classify(bits(opcode as u64))
    }

    fn fields(opcode: WqeOpcode, sge_count: u64, length: u64) -> WqeFields {
        WqeFields {
            opcode: bits(opcode as u64),
            sge_count: bits(sge_count),
            length: bits(length),
            ..WqeFields::default()
        }
    }

    #[test]
    fn sges_fit_into_the_slots_that_the_operation_has() {
        for (opcode, two_slots, allowed) in [
            (Send, false, 2),
            (Send, true, 6),
            (WriteImmediate, true, 6),
            (Read, false, 2),
            (Read, true, 2),
            (CompareSwap, true, 2),
            (LocalInvalidate, false, 0),
            (LocalInvalidate, true, 0),
        ] {
            assert_eq!(sges_max(operation(opcode), two_slots), bits(allowed), "{opcode:?}, {two_slots}");
            for (count, refused) in [(allowed, false), (allowed + 1, true)] {
                let fields = fields(opcode, count, 9);
                let found = is_malformed(fields, operation(opcode), two_slots);
                assert_eq!(found, refused || opcode == CompareSwap, "{opcode:?}, {two_slots}, {count}");
            }
        }
    }

    #[test]
    fn a_field_that_must_not_be_set_makes_a_wqe_malformed() {
        let inline = |opcode, count| WqeFields { inline: true, ..fields(opcode, count, 8) };
        let atomic = fields(FetchAdd, 1, 8);
        let rows = [
            ("SEND", fields(Send, 1, 8), false, false),
            ("reserved bit", WqeFields { has_reserved: true, ..fields(Send, 1, 8) }, false, true),
            ("opcode that is not executed", fields(BindWindow, 1, 8), false, true),
            ("inline SEND", inline(Send, 0), false, false),
            ("inline SEND with an SGE", inline(Send, 1), false, true),
            ("inline READ", inline(Read, 0), false, true),
            ("inline atomic", inline(CompareSwap, 1), false, true),
            ("inline LOCAL_INVALIDATE", inline(LocalInvalidate, 0), false, true),
            ("atomic", atomic, false, false),
            ("atomic in two slots", atomic, true, true),
            ("atomic without an SGE", fields(FetchAdd, 0, 8), false, true),
            ("atomic with two SGEs", fields(FetchAdd, 2, 8), false, true),
            ("atomic of 7 bytes", fields(FetchAdd, 1, 7), false, true),
            ("atomic of 9 bytes", fields(FetchAdd, 1, 9), false, true),
            ("atomic with immediate", WqeFields { immediate_or_key: bits(1), ..atomic }, false, true),
            (
                "READ with immediate",
                WqeFields { immediate_or_key: bits(1), ..fields(Read, 1, 8) },
                false,
                false,
            ),
        ];
        for (name, fields, two_slots, expected) in rows {
            assert_eq!(is_malformed(fields, classify(fields.opcode), two_slots), expected, "{name}");
        }
    }

    #[test]
    fn a_message_is_too_long_one_byte_above_its_limit() {
        for (inline, two_slots, limit) in
            [(true, false, 32), (true, true, 96), (false, false, 1 << 31), (false, true, 1 << 31)]
        {
            for (length, expected) in [(limit, false), (limit + 1, true)] {
                let fields = WqeFields { inline, ..fields(Send, 0, length) };
                assert_eq!(is_too_long(fields, two_slots), expected, "{inline}, {two_slots}, {length}");
            }
        }
    }

    #[test]
    fn what_is_not_sent_again_is_left_out_of_sges_and_remote_range() {
        for (path_mtu, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            let plan = SegmentPlan { path_mtu: bits(path_mtu), ..SegmentPlan::default() };
            for packets in [0, 1, 1000] {
                let wqe = ParsedWqe { plan, skipped_packets: bits(packets), ..ParsedWqe::default() };
                assert_eq!(skipped_bytes(wqe), bits(packets * bytes), "{packets} packets of {bytes} bytes");
            }
        }
        // Length of an SGE, bytes to skip; what is left of it, bytes to skip after it.
        for (length, skipped, left, after) in [
            (100, 0, 100, 0),
            (100, 1, 99, 0),
            (100, 99, 1, 0),
            (100, 100, 0, 0),
            (100, 101, 0, 1),
            (0, 7, 0, 7),
            (0xffff_ffff, 0xffff_fffe, 1, 0),
        ] {
            let sge = Sge { key: bits(5), address: bits(0x1_0000_0000), length: bits(length) };
            let rest = sge_after(sge, bits(skipped));
            assert_eq!((rest.key, rest.length), (bits(5), bits(left)), "{skipped} of {length}");
            if left > 0 {
                assert_eq!(rest.address, bits(0x1_0000_0000 + skipped), "{skipped} of {length}");
            }
            assert_eq!(after_skipped(bits(length), bits(skipped)), bits(after), "{skipped} of {length}");
            assert_eq!(crate::wqe::sge(tail_of(sge)), sge);
        }
        let whole =
            WqeFields { remote_address: bits(0xffff_ffff), length: bits(5000), ..WqeFields::default() };
        let rest = remaining(whole, bits(4096));
        assert_eq!((rest.remote_address, rest.length), (bits(0x1_0000_0fff), bits(904)));
    }

    #[test]
    fn empty_sges_are_skipped_and_operands_are_not() {
        for (length, is_operands, has_first, expected) in [
            (0, false, false, SgeUse::Skipped),
            (0, false, true, SgeUse::Skipped),
            (1, false, false, SgeUse::First),
            (1, false, true, SgeUse::Tail),
            (0, true, true, SgeUse::Tail),
            (0, true, false, SgeUse::Tail),
        ] {
            assert_eq!(sge_use(bits(length), is_operands, has_first), expected);
        }
    }

    #[test]
    fn the_first_fault_of_a_wqe_is_its_status() {
        use CompletionStatus::{Flushed, LocalLength, LocalQueuePairOperation, Success};
        let good = FieldFaults::default();
        let malformed = FieldFaults { is_malformed: true, ..good };
        let too_long = FieldFaults { is_too_long: true, ..good };
        let unsupported = FieldFaults { is_unsupported: true, ..good };
        let both = FieldFaults { is_malformed: true, is_too_long: true, ..good };
        let send = fields(Send, 1, 100);
        let inline = WqeFields { inline: true, ..send };
        let atomic = fields(FetchAdd, 1, 8);
        for (name, is_flushed, reason, faults, fields, sum, status, expected_reason) in [
            ("success", false, 0, good, send, 100, Success, 0),
            ("SGEs of one byte less", false, 0, good, send, 99, LocalLength, 4),
            ("SGEs of one byte more", false, 0, good, send, 101, LocalLength, 4),
            ("SGEs of 2^32 more", false, 0, good, send, 100 + (1 << 32), LocalLength, 4),
            ("inline", false, 0, good, inline, 0, Success, 0),
            ("too long", false, 0, too_long, send, 100, LocalLength, 4),
            ("malformed", false, 0, malformed, send, 100, LocalQueuePairOperation, 4),
            ("malformed and too long", false, 0, both, send, 0, LocalQueuePairOperation, 4),
            ("unsupported", false, 0, unsupported, send, 100, LocalQueuePairOperation, 4),
            ("atomic", false, 0, good, atomic, 8, Success, 0),
            ("atomic with an SGE of 4 bytes", false, 0, good, atomic, 4, LocalQueuePairOperation, 4),
            ("unreadable", false, 1, malformed, send, 0, LocalQueuePairOperation, 1),
            ("flushed", true, 0, malformed, send, 0, Flushed, 0),
            ("flushed and unreadable", true, 1, good, send, 0, Flushed, 0),
        ] {
            let is_atomic = classify(fields.opcode).kind.is_atomic;
            let found = status_of(is_flushed, bits(reason), faults, fields, is_atomic, bits(sum));
            let expected = WqeStatus { status: bits(status as u64), reason: bits(expected_reason) };
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn inline_data_takes_a_second_slot_above_32_bytes() {
        for (inline, is_sent, length, expected) in [
            (true, true, 0, 0),
            (true, true, 1, 1),
            (true, true, 32, 1),
            (true, true, 33, 2),
            (true, true, 96, 2),
            (true, false, 33, 0),
            (false, true, 33, 0),
        ] {
            let fields = WqeFields { inline, ..fields(Send, 0, length) };
            assert_eq!(inline_count(fields, is_sent), bits(expected), "{inline}, {is_sent}, {length}");
        }
    }

    #[test]
    fn headers_are_those_of_the_operation() {
        let (key, swapped) = (0x0102_0304, 0x0403_0201);
        // Operation; SE where the WQE asks for it; immediate data, IETH or key; RETH.
        for (opcode, solicited, immediate, has_reth) in [
            (Write, false, 0, true),
            (WriteImmediate, true, key, true),
            (Send, true, 0, false),
            (SendImmediate, true, key, false),
            (Read, false, 0, true),
            (CompareSwap, false, 0, true),
            (FetchAdd, false, 0, true),
            (LocalInvalidate, true, key, false),
            (SendInvalidate, true, swapped, false),
        ] {
            let fields = WqeFields {
                solicited: true,
                immediate_or_key: bits(key),
                remote_address: bits(0x0102_0304_0506_0708),
                remote_key: bits(0x090a_0b0c),
                ..fields(opcode, 1, 0x0d0e_0f10)
            };
            let operation = operation(opcode);
            assert_eq!(is_solicited(fields, operation), solicited, "{opcode:?}");
            assert!(!is_solicited(WqeFields { solicited: false, ..fields }, operation), "{opcode:?}");
            assert_eq!(immediate_or_key(fields, operation), bits(immediate), "{opcode:?}");
            let bytes: Vec<u8> = if has_reth { (1..=16).collect() } else { vec![] };
            let expected: Bits<128> = num_bigint::BigUint::from_bytes_le(&bytes).into();
            assert_eq!(reth(fields, operation), expected, "{opcode:?}");
        }
    }

    #[test]
    fn a_wqe_that_was_read_has_a_wr_id() {
        for (reason, expected) in [(0, true), (1, false), (2, true), (3, false)] {
            assert_eq!(has_wr_id(bits(reason)), expected, "reason {reason}");
        }
    }
}
