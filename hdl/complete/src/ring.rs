//! Ring: where the next CQE or EQE of a queue in host memory is written.
//!
//! Indices are free-running and have 24 bits, and a ring has at most 2^23 slots. The phase bit is one in the
//! first pass of the ring and changes with each pass (protocol 4.4), so that software sees which slots are new.
use rnic_kernel::prelude::*;

/// Bits of a producer or consumer index.
pub(crate) const INDEX_BITS: usize = 24;
/// Bits of twice the entries of a ring.
const TWICE_BITS: usize = INDEX_BITS + 1;

/// A slot of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(crate) struct RingSlot {
    /// Its index, counted from the base of the ring.
    pub(crate) slot: Bits<INDEX_BITS>,
    /// The phase bit of what is written there.
    pub(crate) phase: Bit,
}

/// Finds the slot that is written next.
#[kernel]
pub(crate) fn ring_slot(producer_index: Bits<INDEX_BITS>, entries_log2: Bits<5>) -> RingSlot {
    let size = bits::<INDEX_BITS>(1) << entries_log2;
    RingSlot { slot: producer_index & (size - 1), phase: !(producer_index & size).any() }
}

/// Software has read none of the slots of the ring.
#[kernel]
pub(crate) fn is_ring_full(
    producer_index: Bits<INDEX_BITS>,
    consumer_index: Bits<INDEX_BITS>,
    entries_log2: Bits<5>,
) -> Bit {
    producer_index - consumer_index == bits::<INDEX_BITS>(1) << entries_log2
}

/// Software has not read half of the slots of the ring, or more.
#[kernel]
pub(crate) fn is_half_unread(
    producer_index: Bits<INDEX_BITS>,
    consumer_index: Bits<INDEX_BITS>,
    entries_log2: Bits<5>,
) -> Bit {
    let unread_twice: Bits<TWICE_BITS> = cat!(producer_index - consumer_index, bits::<1>(0));
    (unread_twice >> entries_log2).any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_each_other_and_the_phase_changes_with_each_pass() {
        for (index, log2, slot, phase) in [
            (0, 6, 0, true),
            (63, 6, 63, true),
            (64, 6, 0, false),
            (127, 6, 63, false),
            (128, 6, 0, true),
            (0xff_ffff, 6, 63, false),
            (0x7f_ffff, 23, 0x7f_ffff, true),
            (0x80_0000, 23, 0, false),
        ] {
            let expected = RingSlot { slot: bits(slot), phase };
            assert_eq!(ring_slot(bits(index), bits(log2)), expected, "{index:#x} of 2^{log2}");
        }
    }

    #[test]
    fn a_ring_is_full_when_all_its_slots_are_unread() {
        for (producer, consumer, log2, expected) in [
            (0, 0, 6, false),
            (63, 0, 6, false),
            (64, 0, 6, true),
            (64, 1, 6, false),
            (65, 1, 6, true),
            (0x20, 0xff_ffe0, 6, true),
            (0x1f, 0xff_ffe0, 6, false),
        ] {
            assert_eq!(is_ring_full(bits(producer), bits(consumer), bits(log2)), expected);
        }
    }

    #[test]
    fn a_ring_is_half_unread_from_half_of_its_slots_on() {
        for (producer, consumer, log2, expected) in [
            (0, 0, 6, false),
            (31, 0, 6, false),
            (32, 0, 6, true),
            (64, 0, 6, true),
            (64, 32, 6, true),
            (64, 33, 6, false),
            (0x10, 0xff_fff0, 6, true),
            (0x0f, 0xff_fff0, 6, false),
            (0x40_0000, 0, 23, true),
            (0x3f_ffff, 0, 23, false),
            (0, 0, 0, false),
        ] {
            assert_eq!(is_half_unread(bits(producer), bits(consumer), bits(log2)), expected);
        }
    }
}
