//! Levels of pools: how many entries of a pool are in use, and whether an owner has its share of them.
//!
//! Each part of the card reports the levels of its pools to the registers ([`POOLS`](rnic_layout::registers::POOLS)).
use crate::setup::InFlight;
use rnic_kernel::prelude::*;

/// Bits of the level of a pool.
pub const LEVEL_BITS: usize = 16;

/// Gives the level of a pool of which one entry is taken, one is given back, or both.
#[kernel]
pub fn level_after<const N: usize>(level: Bits<N>, takes: Bit, gives: Bit) -> Bits<N> {
    if takes && !gives {
        level + 1
    } else if gives && !takes {
        level - 1
    } else {
        level
    }
}

/// Says whether an owner that holds so much of a pool has its share: as much as is free. So one owner has half of a pool at most, two
/// have a third each, and something is always free for one that holds nothing, which never has its share (design decision 3).
#[kernel]
pub fn has_share<const N: usize>(held: Bits<N>, free: Bits<N>) -> Bit {
    held.any() && held >= free
}

/// Gives the number of tokens that are in a section.
#[kernel]
pub fn level_of(in_flight: InFlight) -> Bits<LEVEL_BITS> {
    in_flight.entered - in_flight.left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_counts_what_is_taken_and_not_given_back() {
        for (level, takes, gives, expected) in [
            (0, false, false, 0),
            (0, true, false, 1),
            (7, false, true, 6),
            (7, true, true, 7),
            (7, false, false, 7),
            (0xfffe, true, false, 0xffff),
            // An entry that is given back twice shows.
            (0, false, true, 0xffff),
        ] {
            assert_eq!(
                level_after::<LEVEL_BITS>(bits(level), takes, gives),
                bits(expected),
                "{level} {takes} {gives}"
            );
        }
    }

    #[test]
    fn an_owner_has_its_share_when_it_holds_as_much_as_is_free() {
        for (held, free, expected) in [
            (0, 100, false),
            (99, 100, false),
            (100, 100, true),
            (101, 100, true),
            (1, 0, true),
            (0, 0, false),
        ] {
            assert_eq!(has_share::<10>(bits(held), bits(free)), expected, "{held} of which {free} are free");
        }
    }

    #[test]
    fn the_level_of_a_section_is_what_entered_and_did_not_leave() {
        for (entered, left, expected) in [(0, 0, 0), (9, 7, 2), (1, 0xfffe, 3)] {
            assert_eq!(level_of(InFlight { entered: bits(entered), left: bits(left) }), bits(expected));
        }
    }
}
