//! Allocator of device addresses: the lowest range that is free.

use crate::function::FunctionError;
use crate::memory::PAGE_BYTES;
use std::collections::BTreeMap;
use std::ops::Range;

/// Device addresses of one card, in whole pages. A page between two allocations is never mapped, so that an access that is too
/// long meets no neighbour. The lowest free range is taken, so that addresses are used again at once and stale use shows.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// Ranges that the card can use, in ascending order.
    all: Vec<Range<u64>>,
    /// Ranges in use, with the page behind: first address and end.
    used: BTreeMap<u64, u64>,
}

/// The whole pages of a range.
fn whole_pages(range: Range<u64>) -> Range<u64> {
    let page = PAGE_BYTES as u64;
    let start = range.start.checked_next_multiple_of(page).unwrap_or(range.end);
    start..range.end / page * page
}

impl Addresses {
    /// All addresses of some ranges are free, apart from parts of pages at their ends. The ranges do not overlap.
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut all: Vec<Range<u64>> = ranges.into_iter().map(whole_pages).collect();
        all.sort_by_key(|range| range.start);
        Self { all, used: BTreeMap::new() }
    }

    /// Gives up all addresses that need more than `bits` bits.
    ///
    /// # Errors
    ///
    /// [`FunctionError::AddressWidth`] if none are left.
    pub(crate) fn limit(&mut self, bits: u32) -> Result<(), FunctionError> {
        let end = 1u64.checked_shl(bits).unwrap_or(u64::MAX);
        let lowest = self.all.iter().map(|range| range.start).min().unwrap_or_default();
        self.all.iter_mut().for_each(|range| range.end = range.end.min(end));
        self.all.retain(|range| !range.is_empty());
        if self.all.is_empty() { Err(FunctionError::AddressWidth { bits, lowest }) } else { Ok(()) }
    }

    /// Allocates contiguous addresses from a multiple of `alignment` on, which is a power of two and at least a page, or returns
    /// `None` if no range is long enough.
    pub(crate) fn allocate(&mut self, bytes: usize, alignment: usize) -> Option<u64> {
        let pages = bytes.div_ceil(PAGE_BYTES).max(1).checked_add(1)?;
        let length = u64::try_from(pages.checked_mul(PAGE_BYTES)?).ok()?;
        let (start, end) = self.all.iter().find_map(|range| self.lowest(range, length, alignment as u64))?;
        self.used.insert(start, end);
        Some(start)
    }

    /// The lowest free addresses in a range, and their end.
    fn lowest(&self, range: &Range<u64>, length: u64, alignment: u64) -> Option<(u64, u64)> {
        if range.is_empty() {
            return None;
        }
        let mut start = range.start.checked_next_multiple_of(alignment)?;
        for (&first, &end) in self.used.range(range.clone()) {
            if first.checked_sub(start).is_some_and(|free| free >= length) {
                break;
            }
            start = start.max(end.checked_next_multiple_of(alignment)?);
        }
        let end = start.checked_add(length).filter(|&end| end <= range.end)?;
        Some((start, end))
    }

    /// Frees an allocation by its first address.
    pub(crate) fn free(&mut self, address: u64) {
        self.used.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_lowest_free_range_is_taken() {
        let mut addresses = Addresses::new(Some(0x1001..0x9fff));
        let [first, second] = [4096, 1].map(|bytes| addresses.allocate(bytes, 4096).unwrap());
        assert_eq!((first, second), (0x2000, 0x4000), "a page lies between them");
        addresses.free(first);
        assert_eq!(addresses.allocate(4097, 4096), Some(0x6000), "it does not fit the hole");
        assert_eq!(addresses.allocate(0, 4096), Some(0x2000), "it does");
        assert_eq!(addresses.allocate(1, 4096), None);
        assert_eq!(addresses.allocate(usize::MAX, 4096), None);
        addresses.free(second);
        assert_eq!(addresses.allocate(1, 4096), Some(0x4000));
    }

    #[test]
    fn a_range_without_a_page_gives_nothing() {
        for range in [0..0, 1..0x1fff, u64::MAX - 1..u64::MAX] {
            assert_eq!(Addresses::new(Some(range)).allocate(1, 4096), None);
        }
    }

    #[test]
    fn huge_pages_begin_at_multiples_of_their_size() {
        let mut addresses = Addresses::new(Some(0x1000..0x10_0000));
        assert_eq!(addresses.allocate(4096, 4096), Some(0x1000));
        assert_eq!(addresses.allocate(0x1_0000, 0x1_0000), Some(0x1_0000));
        assert_eq!(addresses.allocate(0x1_0000, 0x1_0000), Some(0x3_0000), "a page lies between them");
        assert_eq!(addresses.allocate(0x2000, 4096), Some(0x3000), "the addresses before are used too");
        addresses.free(0x1_0000);
        assert_eq!(addresses.allocate(0x1_0000, 0x1_0000), Some(0x1_0000));
        assert_eq!(addresses.allocate(1, 1 << 30), None);
        let mut last = Addresses::new(Some(u64::MAX - 0x1_0000..u64::MAX));
        assert_eq!(last.allocate(1, 1 << 30), None, "no such multiple is left");
    }

    #[test]
    fn addresses_are_no_longer_than_the_cards() {
        let ranges = || Addresses::new([0x1000..0x4000, 0x6000..0x9000, 1 << 40..1 << 41]);
        for (bits, expected) in [
            (64, vec![0x1000, 0x6000, 1 << 40]),
            (40, vec![0x1000, 0x6000]),
            (15, vec![0x1000, 0x6000]),
            (14, vec![0x1000]),
            (12, vec![]),
        ] {
            let mut addresses = ranges();
            match addresses.limit(bits) {
                Ok(()) => assert!(!expected.is_empty(), "{bits} bits"),
                Err(error) => {
                    assert!(expected.is_empty(), "{bits} bits");
                    let text =
                        "the card has device addresses of 12 bits, and the host gives none below 0x1000";
                    assert!(error.to_string().starts_with(text), "{error}");
                }
            }
            let given: Vec<u64> =
                std::iter::from_fn(|| addresses.allocate(4096, PAGE_BYTES)).take(expected.len()).collect();
            assert_eq!(given, expected, "{bits} bits");
            let last = addresses.allocate(4096, PAGE_BYTES);
            assert!(last.is_none_or(|address| bits == 64 || address >> bits == 0), "{bits} bits: {last:x?}");
        }
    }

    #[test]
    fn a_hole_is_never_given() {
        let ranges = [0x9000..0xc000, 0x1000..0x4000, 0x6000..0x6000, 0x7000..0x8fff];
        let mut addresses = Addresses::new(ranges);
        assert_eq!(
            addresses.allocate(8192, 4096),
            Some(0x1000),
            "with the page behind it fills the lowest range"
        );
        assert_eq!(addresses.allocate(1, 4096), Some(0x9000), "the range between has one page only");
        assert_eq!(addresses.allocate(1, 4096), None);
        addresses.free(0x1000);
        assert_eq!(addresses.allocate(4096, 4096), Some(0x1000));
    }

    proptest! {
        #[test]
        fn allocations_never_meet(steps in proptest::collection::vec((1usize..20_000, any::<proptest::sample::Index>(), any::<bool>()), 1..100)) {
            let mut addresses = Addresses::new(Some(0x1_0000..0x8_0000));
            let mut held: Vec<Range<u64>> = Vec::new();
            for (bytes, which, is_free) in steps {
                if is_free && !held.is_empty() {
                    addresses.free(held.swap_remove(which.index(held.len())).start);
                } else if let Some(start) = addresses.allocate(bytes, 4096) {
                    let new = start..start + bytes.next_multiple_of(4096) as u64;
                    prop_assert!(start % 4096 == 0 && new.start >= 0x1_0000 && new.end + 4096 <= 0x8_0000);
                    prop_assert!(held.iter().all(|old| new.end + 4096 <= old.start || old.end + 4096 <= new.start));
                    held.push(new);
                }
            }
        }
    }
}
