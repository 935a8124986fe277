//! The walk of [`RqPrefetch`](super::RqPrefetch) over all rings, and what it counts.
use super::record::RING_BITS;
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{index_mask, sizes};

/// The bits that the number of a ring has; a sweep over all of them clears the records.
pub(super) fn ring_mask() -> u64 {
    index_mask(sizes().receive_rings())
}

/// Number of the last ring.
fn last_ring() -> u64 {
    sizes().last_receive_ring()
}

/// log2 of the WQEs given to all rings between two walks that age the rings, so idleness does not depend on the
/// speed of the others.
const SPAN_OF_AGE_BITS: usize = 11;
/// Width of the count of these WQEs.
const GIVEN_BITS: usize = SPAN_OF_AGE_BITS + 1;
/// Width of the count of rings that the walk asks for lines, after a ring was denied one.
const YIELD_REQUEST_BITS: usize = 7;

/// State of the walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Walk {
    /// The next ring; after a reset the record that is cleared next.
    pub ring: Bits<RING_BITS>,
    /// Cycles since the last one, up to the least.
    pub pace: Bits<3>,
    /// This walk ages the rings.
    pub ages: Bit,
    /// WQEs given since the last walk that did.
    pub given_count: Bits<GIVEN_BITS>,
    /// Rings that are still to be asked for lines, because another was denied one.
    pub yield_requests: Bits<YIELD_REQUEST_BITS>,
}

/// Gives the walk after a cycle in which it came to a ring (`walks`), a record was cleared, a WQE was given, or a
/// ring was denied a line. After enough WQEs were given, one whole walk ages the rings.
#[kernel]
pub(super) fn walk_after(walk: Walk, clears: Bit, walks: Bit, grants: Bit, is_denied: Bit) -> Walk {
    let is_last = walk.ring == last_ring();
    let ends_walk = walks && is_last;
    let is_span = walk.given_count.get_bit(SPAN_OF_AGE_BITS);
    Walk {
        ring: if clears {
            (walk.ring + 1) & ring_mask()
        } else if walks {
            select(is_last, bits::<RING_BITS>(0), walk.ring + 1)
        } else {
            walk.ring
        },
        pace: if walks {
            bits::<3>(0)
        } else if walk.pace.all() {
            walk.pace
        } else {
            walk.pace + 1
        },
        ages: select(ends_walk, is_span, walk.ages),
        given_count: if ends_walk && is_span {
            bits(0)
        } else if grants && !is_span {
            walk.given_count + 1
        } else {
            walk.given_count
        },
        yield_requests: if is_denied {
            !bits::<YIELD_REQUEST_BITS>(0)
        } else if walks && walk.yield_requests.any() {
            walk.yield_requests - 1
        } else {
            walk.yield_requests
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: u64 = 1024 + 64 - 1;

    fn at(ring: u64) -> Walk {
        Walk { ring: bits(ring), pace: bits(7), ..Walk::default() }
    }

    #[test]
    fn the_walk_passes_all_rings_and_the_sweep_after_a_reset_all_records() {
        for (ring, clears, walks, expected) in [
            (5, false, false, 5),
            (5, false, true, 6),
            (LAST - 1, false, true, LAST),
            (LAST, false, true, 0),
            (LAST, true, false, LAST + 1),
            (2047, true, false, 0),
        ] {
            assert_eq!(walk_after(at(ring), clears, walks, false, false).ring, bits(expected), "{ring}");
        }
    }

    #[test]
    fn the_walk_waits_for_eight_cycles() {
        for (pace, walks, expected) in [(0, false, 1), (6, false, 7), (7, false, 7), (7, true, 0)] {
            let walk = Walk { pace: bits(pace), ..at(5) };
            assert_eq!(walk_after(walk, false, walks, false, false).pace, bits(expected), "{pace} {walks}");
        }
    }

    /// Ring, WQEs given, ages; WQEs given and ages after the walk came to the ring.
    #[test]
    fn a_walk_ages_the_rings_after_2048_wqes() {
        for (ring, given, ages, given_after, ages_after) in [
            (5, 2047, false, 2047, false),
            (5, 2048, false, 2048, false),
            (5, 10, true, 10, true),
            (LAST, 2047, false, 2047, false),
            (LAST, 2047, true, 2047, false),
            (LAST, 2048, false, 0, true),
            (LAST, 2048, true, 0, true),
        ] {
            let walk = Walk { given_count: bits(given), ages, ..at(ring) };
            let after = walk_after(walk, false, true, false, false);
            assert_eq!((after.given_count, after.ages), (bits(given_after), ages_after), "{ring} {given}");
        }
        for (given, expected) in [(0, 1), (2047, 2048), (2048, 2048)] {
            let walk = Walk { given_count: bits(given), ..at(5) };
            assert_eq!(walk_after(walk, false, false, true, false).given_count, bits(expected), "{given}");
        }
    }

    #[test]
    fn the_next_127_rings_are_asked_for_lines_when_one_was_denied() {
        for (requests, walks, is_denied, expected) in [
            (0, false, false, 0),
            (0, true, false, 0),
            (3, false, false, 3),
            (3, true, false, 2),
            (3, false, true, 127),
            (3, true, true, 127),
        ] {
            let walk = Walk { yield_requests: bits(requests), ..at(5) };
            let after = walk_after(walk, false, walks, false, is_denied);
            assert_eq!(after.yield_requests, bits(expected), "{requests} {walks} {is_denied}");
        }
    }
}
