//! Shares: what one owner may hold of a pool that all share.
//!
//! An owner has its share when it holds as much as is free. So one owner has half of a pool at most, two have a third each, and
//! something is always free for others (design decision 3).
use rnic_kernel::prelude::*;

/// Says whether an owner that holds so much has its share. Who holds nothing never has.
#[kernel]
pub fn has_share<const N: usize>(held: Bits<N>, free: Bits<N>) -> Bit {
    held.any() && held >= free
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
