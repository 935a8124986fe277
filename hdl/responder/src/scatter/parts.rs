//! Rules of [`Scatter`](super::Scatter): faults of a receive WQE, and how a payload is split at the ends of its
//! SGEs (protocol 3.7, 4.6).
use crate::messages::{Admitted, Parts, ReceiveWqe, ReceiveWqeFault};
use rnic_kernel::prelude::*;
use rnic_layout::limits::MESSAGE_BYTES_MAX;
use rnic_messages::protect::AccessRequest;
use rnic_messages::sizes::SPAN_BITS;

/// Bits of the sum of three lengths.
pub(super) const SUM_BITS: usize = 34;
/// Offset of the first SGE of a receive WQE, in bits (`rnic_layout::queue::receive::ReceiveWqe`).
const SGES: usize = 128;
/// Bits of an SGE.
pub(super) const SGE_BITS: usize = 128;
/// Offset of the length in an SGE, in bits.
const LENGTH: usize = 96;
/// Offset of the local key in an SGE, in bits.
const KEY: usize = 64;
/// The longest message, in bytes.
const LENGTH_MAX: u64 = MESSAGE_BYTES_MAX as u64;

/// What is left of a receive WQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct HeldWqe {
    /// Its `wr_id`.
    pub wr_id: Bits<64>,
    /// Bytes of the message that earlier packets have brought.
    pub bytes: Bits<32>,
    /// Three SGEs in the form of the WQE; unused ones have length zero.
    pub sges: Bits<384>,
}

/// Bytes of a receive WQE up to the end of each SGE.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Sums {
    /// Length of the first SGE.
    pub first: Bits<SUM_BITS>,
    /// Length of the first two SGEs.
    pub second: Bits<SUM_BITS>,
    /// Length of all three SGEs.
    pub third: Bits<SUM_BITS>,
}

/// Checks a receive WQE by itself. A packet that takes none has no fault.
#[kernel]
pub(super) fn fault_of(takes_wqe: Bit, wqe: ReceiveWqe) -> ReceiveWqeFault {
    if !takes_wqe {
        ReceiveWqeFault::Good
    } else if wqe.is_stale {
        ReceiveWqeFault::Stale
    } else if wqe.error {
        ReceiveWqeFault::Unreadable
    } else if wqe.data.get_bits::<62>(66).any() {
        ReceiveWqeFault::Malformed
    } else {
        ReceiveWqeFault::Good
    }
}

/// Gives an SGE of a WQE that has `count` of them; the length of others is zero.
#[kernel]
fn used_sge(data: Bits<512>, index: usize, count: Bits<2>) -> Bits<SGE_BITS> {
    let sge = data.get_bits::<SGE_BITS>(SGES + index * SGE_BITS);
    let length = select(count > index as u64, sge.get_bits::<32>(LENGTH), bits::<32>(0));
    cat!(length, sge.get_bits::<LENGTH>(0))
}

/// Gives a receive WQE of which nothing is used yet.
#[kernel]
pub(super) fn whole_wqe(data: Bits<512>) -> HeldWqe {
    let count = data.get_bits::<2>(64);
    HeldWqe {
        wr_id: data.get_bits::<64>(0),
        bytes: bits::<32>(0),
        sges: cat!(used_sge(data, 2, count), used_sge(data, 1, count), used_sge(data, 0, count)),
    }
}

/// Gives the length of an SGE.
#[kernel]
fn sge_bytes(sges: Bits<384>, index: usize) -> Bits<SUM_BITS> {
    bit_cast::<SUM_BITS, 32>(sges.get_bits::<32>(index * SGE_BITS + LENGTH))
}

/// Adds up the lengths of the SGEs, in 34 bits (design decision 14).
#[kernel]
pub(super) fn sums_of(sges: Bits<384>) -> Sums {
    let first = sge_bytes(sges, 0);
    let second = sge_bytes(sges, 1);
    let third = sge_bytes(sges, 2);
    Sums { first, second: first + second, third: first + second + third }
}

/// Says whether a SEND is longer than a message may be; `before` is at most that.
#[kernel]
pub(crate) fn exceeds(before: Bits<32>, payload: Bits<SPAN_BITS>) -> Bit {
    before + bit_cast::<32, SPAN_BITS>(payload) > LENGTH_MAX
}

/// Gives the bytes of a payload that lie before a sum.
#[kernel]
fn bytes_before(payload: Bits<SPAN_BITS>, sum: Bits<SUM_BITS>) -> Bits<SPAN_BITS> {
    select(sum >= bit_cast::<SUM_BITS, SPAN_BITS>(payload), payload, sum.get_bits::<SPAN_BITS>(0))
}

/// Says whether a receive WQE is too short for the payload of a SEND.
#[kernel]
pub(super) fn is_too_short(payload: Bits<SPAN_BITS>, sums: Sums, before: Bits<32>) -> Bit {
    bytes_before(payload, sums.third) != payload || exceeds(before, payload)
}

/// Splits the payload of a SEND at the ends of its SGEs; that of another packet is one part, the first.
#[kernel]
pub(super) fn parts_of(is_send: Bit, payload: Bits<SPAN_BITS>, sums: Sums) -> Parts {
    let first = bytes_before(payload, sums.first);
    let second = bytes_before(payload, sums.second);
    let third = bytes_before(payload, sums.third);
    Parts {
        first: select(is_send, first, payload),
        second: select(is_send, second - first, bits::<SPAN_BITS>(0)),
        third: select(is_send, third - second, bits::<SPAN_BITS>(0)),
    }
}

/// Says which parts need an access check, the first in bit 0. A READ or an atomic has one for all that it
/// reads.
#[kernel]
pub(super) fn checks_of(packet: Admitted, parts: Parts) -> Bits<3> {
    let first = select(packet.is_read, packet.message_length.any(), parts.first.any());
    cat!(parts.third.any(), parts.second.any(), first)
}

/// Counts the bits that are set.
#[kernel]
pub(super) fn count_ones(mask: Bits<3>) -> Bits<2> {
    bit_cast::<2, 1>(mask.get_bits::<1>(0))
        + bit_cast::<2, 1>(mask.get_bits::<1>(1))
        + bit_cast::<2, 1>(mask.get_bits::<1>(2))
}

/// Makes the access check of the first part in `waiting`: of a SEND with the local key of its SGE, of others
/// with the remote key; the first packet of a WRITE checks the whole message.
#[kernel]
pub(super) fn access_request_of(
    packet: Admitted,
    waiting: Bits<3>,
    sges: Bits<384>,
    parts: Parts,
) -> AccessRequest {
    let (sge, part) = if waiting.get_bit(0) {
        (sges.get_bits::<96>(0), parts.first)
    } else if waiting.get_bit(1) {
        (sges.get_bits::<96>(SGE_BITS), parts.second)
    } else {
        (sges.get_bits::<96>(2 * SGE_BITS), parts.third)
    };
    AccessRequest {
        key: select(packet.is_send, sge.get_bits::<32>(KEY), packet.key),
        domain: packet.domain,
        address: select(packet.is_send, sge.get_bits::<64>(0), packet.address),
        length: select(
            packet.starts && !packet.is_send,
            packet.message_length,
            bit_cast::<32, SPAN_BITS>(part),
        ),
        local_write: packet.is_send,
        remote_write: !packet.is_send && !packet.is_read,
        remote_read: packet.is_read && !packet.is_atomic,
        remote_atomic: packet.is_atomic,
    }
}

/// Gives what is left of an SGE when its first bytes are used.
#[kernel]
fn sge_after(sges: Bits<384>, index: usize, used: Bits<SPAN_BITS>) -> Bits<SGE_BITS> {
    let sge = sges.get_bits::<SGE_BITS>(index * SGE_BITS);
    let address = sge.get_bits::<64>(0) + bit_cast::<64, SPAN_BITS>(used);
    let length = sge.get_bits::<32>(LENGTH) - bit_cast::<32, SPAN_BITS>(used);
    cat!(length, sge.get_bits::<32>(KEY), address)
}

/// Gives what is left of a receive WQE after a packet.
#[kernel]
pub(super) fn wqe_after(wqe: HeldWqe, payload: Bits<SPAN_BITS>, parts: Parts) -> HeldWqe {
    HeldWqe {
        wr_id: wqe.wr_id,
        bytes: wqe.bytes + bit_cast::<32, SPAN_BITS>(payload),
        sges: cat!(
            sge_after(wqe.sges, 2, parts.third),
            sge_after(wqe.sges, 1, parts.second),
            sge_after(wqe.sges, 0, parts.first)
        ),
    }
}

/// Removes empty parts, which have no access answer, and moves later ones up.
#[kernel]
pub(super) fn packed(parts: Parts) -> Parts {
    let has_first = parts.first.any();
    let has_second = parts.second.any();
    Parts {
        first: if has_first {
            parts.first
        } else if has_second {
            parts.second
        } else {
            parts.third
        },
        second: if has_first && has_second { parts.second } else { parts.third },
        third: parts.third,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;

    fn sge(address: u64, key: u32, length: u32) -> BigUint {
        BigUint::from(address) | BigUint::from(key) << KEY | BigUint::from(length) << LENGTH
    }

    fn wqe_data(count: u64, lengths: [u32; 3]) -> Bits<512> {
        let mut data = BigUint::from(0x1122_3344_u64) | BigUint::from(count) << 64u32;
        for (index, length) in lengths.into_iter().enumerate() {
            data |=
                sge(0x1000 * (index as u64 + 1), 0x10 + index as u32, length) << (SGES + SGE_BITS * index);
        }
        data.into()
    }

    fn sums(lengths: [u32; 3]) -> Sums {
        sums_of(whole_wqe(wqe_data(3, lengths)).sges)
    }

    fn parts(bytes: [u64; 3]) -> Parts {
        let [first, second, third] = bytes.map(bits);
        Parts { first, second, third }
    }

    #[test]
    fn faults_are_found_in_the_order_of_the_checks() {
        let reserved = Bits::from(BigUint::from(1u8) << 66u32);
        let last_reserved = Bits::from(BigUint::from(1u8) << 127u32);
        let wqe = |data, error, is_stale| ReceiveWqe { data, error, is_stale, is_absent: false };
        for (takes_wqe, wqe, fault) in [
            (true, wqe(wqe_data(3, [1, 2, 3]), false, false), ReceiveWqeFault::Good),
            (true, wqe(reserved, false, false), ReceiveWqeFault::Malformed),
            (true, wqe(last_reserved, false, false), ReceiveWqeFault::Malformed),
            (true, wqe(reserved, true, false), ReceiveWqeFault::Unreadable),
            (true, wqe(reserved, true, true), ReceiveWqeFault::Stale),
            (false, wqe(reserved, true, true), ReceiveWqeFault::Good),
        ] {
            assert_eq!(fault_of(takes_wqe, wqe), fault);
        }
    }

    #[test]
    fn sges_that_are_not_in_use_have_no_length() {
        for (count, expected) in [(0, [0, 0, 0]), (1, [5, 5, 5]), (2, [5, 12, 12]), (3, [5, 12, 21])] {
            let wqe = whole_wqe(wqe_data(count, [5, 7, 9]));
            assert_eq!((wqe.wr_id, wqe.bytes), (bits(0x1122_3344), bits(0)));
            let sums = sums_of(wqe.sges);
            assert_eq!([sums.first, sums.second, sums.third], expected.map(bits), "{count} SGEs");
        }
        let longest = sums([u32::MAX; 3]);
        assert_eq!(longest.third, bits(3 * u64::from(u32::MAX)));
    }

    #[test]
    fn a_message_is_at_most_2_gib() {
        for (before, payload, expected) in
            [(0, 0, false), (LENGTH_MAX - 1, 1, false), (LENGTH_MAX, 0, false), (LENGTH_MAX, 1, true)]
        {
            assert_eq!(exceeds(bits(before), bits(payload)), expected);
            let sums = sums([u32::MAX, 0, 0]);
            assert_eq!(is_too_short(bits(payload), sums, bits(before)), expected);
        }
    }

    #[test]
    fn a_payload_is_split_at_the_ends_of_sges() {
        for (is_send, payload, lengths, expected, is_short) in [
            (true, 0, [0, 0, 0], [0, 0, 0], false),
            (true, 1, [0, 0, 0], [0, 0, 0], true),
            (true, 10, [10, 7, 3], [10, 0, 0], false),
            (true, 11, [10, 7, 3], [10, 1, 0], false),
            (true, 17, [10, 7, 3], [10, 7, 0], false),
            (true, 18, [10, 7, 3], [10, 7, 1], false),
            (true, 20, [10, 7, 3], [10, 7, 3], false),
            (true, 21, [10, 7, 3], [10, 7, 3], true),
            (true, 5, [0, 0, 5], [0, 0, 5], false),
            (true, 4096, [u32::MAX; 3], [4096, 0, 0], false),
            (false, 4096, [0, 0, 0], [4096, 0, 0], true),
        ] {
            let sums = sums(lengths);
            assert_eq!(parts_of(is_send, bits(payload), sums), parts(expected), "{payload} into {lengths:?}");
            assert_eq!(is_too_short(bits(payload), sums, bits(0)), is_short, "{payload} into {lengths:?}");
        }
    }

    #[test]
    fn only_what_has_bytes_is_checked() {
        let send = Admitted { is_send: true, ..Admitted::default() };
        let read = Admitted { is_read: true, message_length: bits(1), ..Admitted::default() };
        let empty_read = Admitted { is_read: true, ..Admitted::default() };
        for (packet, bytes, checks, count) in [
            (send, [0, 0, 0], 0b000, 0),
            (send, [1, 0, 0], 0b001, 1),
            (send, [0, 1, 1], 0b110, 2),
            (send, [1, 1, 1], 0b111, 3),
            (read, [0, 0, 0], 0b001, 1),
            (empty_read, [0, 0, 0], 0b000, 0),
        ] {
            let found = checks_of(packet, parts(bytes));
            assert_eq!((found, count_ones(found)), (bits(checks), bits(count)), "{bytes:?}");
        }
    }

    #[test]
    fn each_kind_of_packet_requests_its_right_and_range() {
        let sges = whole_wqe(wqe_data(3, [10, 7, 3])).sges;
        let remote = Admitted {
            key: bits(0x99),
            address: bits(0x5000),
            message_length: bits(100),
            domain: bits(5),
            starts: true,
            ..Admitted::default()
        };
        let send = Admitted { is_send: true, ..remote };
        for (waiting, address, key, length) in
            [(0b111, 0x1000, 0x10, 10), (0b110, 0x2000, 0x11, 7), (0b100, 0x3000, 0x12, 3)]
        {
            let request = access_request_of(send, bits(waiting), sges, parts([10, 7, 3]));
            let expected = AccessRequest {
                key: bits(key),
                domain: bits(5),
                address: bits(address),
                length: bits(length),
                local_write: true,
                ..AccessRequest::default()
            };
            assert_eq!(request, expected);
        }
        let middle = Admitted { starts: false, ..remote };
        let read = Admitted { is_read: true, ..remote };
        let atomic = Admitted { is_read: true, is_atomic: true, ..remote };
        for (packet, length, rights) in [
            (remote, 100, (true, false, false)),
            (middle, 64, (true, false, false)),
            (read, 100, (false, true, false)),
            (atomic, 100, (false, false, true)),
        ] {
            let request = access_request_of(packet, bits(1), sges, parts([64, 0, 0]));
            assert_eq!((request.key, request.address), (bits(0x99), bits(0x5000)));
            assert_eq!(request.length, bits(length));
            assert_eq!((request.remote_write, request.remote_read, request.remote_atomic), rights);
            assert!(!request.local_write);
        }
    }

    #[test]
    fn the_next_packet_continues_where_this_one_ends() {
        let wqe = HeldWqe { bytes: bits(100), ..whole_wqe(wqe_data(3, [10, 7, 3])) };
        let left = wqe_after(wqe, bits(12), parts([10, 2, 0]));
        assert_eq!((left.wr_id, left.bytes), (wqe.wr_id, bits(112)));
        let sges = [sge(0x100a, 0x10, 0), sge(0x2002, 0x11, 5), sge(0x3000, 0x12, 3)];
        for (index, sge) in sges.into_iter().enumerate() {
            let expected: Bits<SGE_BITS> = sge.into();
            assert_eq!(left.sges.get_bits::<SGE_BITS>(index * SGE_BITS), expected, "SGE {index}");
        }
    }

    #[test]
    fn spans_are_in_the_order_of_their_answers() {
        for (bytes, expected) in [
            ([1, 2, 3], [1, 2, 3]),
            ([0, 2, 3], [2, 3, 3]),
            ([1, 0, 3], [1, 3, 3]),
            ([0, 0, 3], [3, 3, 3]),
            ([1, 2, 0], [1, 2, 0]),
        ] {
            assert_eq!(packed(parts(bytes)), parts(expected));
        }
    }
}
