//! Page lists of regions whose memory is not contiguous for the card, and the allocator of the card's page table.

use crate::error::Error;
use crate::function::DmaSegment;
use rnic_layout::limits::{PAGE_ENTRIES_LOG2, PAGE_LOG2_MAX, PAGE_LOG2_MIN};
use std::collections::BTreeMap;

/// Page list of a region: pages of one size that hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    /// log2 of the page size in bytes.
    pub(crate) log2: u8,
    /// Offset of the first byte of the region in the first page, in bytes.
    pub(crate) first_offset: u32,
    /// Device addresses of the pages, in the order of the region.
    pub(crate) addresses: Vec<u64>,
}

impl Pages {
    /// Computes the page list, with the largest page size that fits, of the first `bytes` bytes of consecutive segments.
    /// Returns `None` if one segment holds them all: the region is contiguous then, and needs no list.
    pub(crate) fn of(segments: &[DmaSegment], bytes: usize) -> Option<Self> {
        let mut begin = 0;
        let mut placed = Vec::new();
        for segment in segments {
            if begin >= bytes as u64 {
                break;
            }
            placed.push((begin, segment.device_address));
            begin += segment.bytes as u64;
        }
        let &(_, first) = placed.first().filter(|_| placed.len() > 1)?;
        // A boundary between two segments must be a page boundary in both.
        let fits = |log2: &u8| {
            let size = 1u64 << log2;
            let is_page = |&(begin, address): &(u64, u64)| {
                (first % size + begin).is_multiple_of(size) && address.is_multiple_of(size)
            };
            placed[1..].iter().all(is_page)
        };
        let log2 = (PAGE_LOG2_MIN..=PAGE_LOG2_MAX).rev().find(fits)?;
        let size = 1u64 << log2;
        let first_offset = first % size;
        let count = (first_offset + bytes as u64).div_ceil(size);
        let address = |index: u64| {
            let begin = (index * size).saturating_sub(first_offset);
            let next = placed.partition_point(|&(other, _)| other <= begin);
            let (segment, address) = placed[next - 1];
            (address + (begin - segment)) / size * size
        };
        Some(Self { log2, first_offset: first_offset as u32, addresses: (0..count).map(address).collect() })
    }
}

/// Allocator of runs of consecutive entries in the card's page table.
#[derive(Debug)]
pub(crate) struct PageTable {
    entries: u32,
    /// Lengths of allocated runs, by first entry.
    used: BTreeMap<u32, u32>,
}

impl PageTable {
    /// Makes the allocator of a card whose table has `2^log2` entries, at most as many as the layout has.
    pub(crate) fn new(log2: u32) -> Self {
        Self { entries: 1 << log2.min(PAGE_ENTRIES_LOG2), used: BTreeMap::new() }
    }

    /// Allocates the first free run of `count` entries. Returns its first entry.
    pub(crate) fn allocate(&mut self, count: usize) -> Result<u16, Error> {
        let exhausted = Error::Exhausted { what: "entries of the page table", limit: self.entries };
        let Ok(count) = u32::try_from(count) else { return Err(exhausted) };
        let mut first = 0;
        for (&begin, &length) in &self.used {
            if begin - first >= count {
                break;
            }
            first = begin + length;
        }
        if count > self.entries - first {
            return Err(exhausted);
        }
        self.used.insert(first, count);
        Ok(first as u16)
    }

    /// Number of entries that are allocated.
    pub(crate) fn in_use(&self) -> u32 {
        self.used.values().sum()
    }

    /// Frees the run that begins at entry `first`.
    pub(crate) fn free(&mut self, first: u16) {
        self.used.remove(&first.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(device_address: u64, bytes: usize) -> DmaSegment {
        DmaSegment { device_address, bytes }
    }

    #[test]
    fn the_largest_pages_that_fit_are_chosen() {
        let [small, large, huge] = [1usize << 12, 2 << 20, 1 << 30];
        assert_eq!(Pages::of(&[segment(0x5000, 4 * small)], 4 * small), None);
        // A segment beyond the region does not count.
        assert_eq!(Pages::of(&[segment(0x5000, small), segment(0x9000, small)], small), None);
        let pages = Pages::of(&[segment(0x5000, small), segment(0x9000, small)], small + 1).unwrap();
        assert_eq!(pages, Pages { log2: 12, first_offset: 0, addresses: vec![0x5000, 0x9000] });
        // The end of one page of 1 GiB, and the beginning of another.
        let halves = [segment((7 << 30) - 0x3000, 3 * small), segment(5 << 30, small)];
        let pages = Pages::of(&halves, 4 * small).unwrap();
        let first_offset = huge as u32 - 0x3000;
        assert_eq!(pages, Pages { log2: 30, first_offset, addresses: vec![6 << 30, 5 << 30] });
        // Large pages; one segment holds two of them.
        let segments = [segment(0x4020_0000, 2 * large), segment(0x8000_0000, small)];
        let pages = Pages::of(&segments, 2 * large + 5).unwrap();
        let addresses = vec![0x4020_0000, 0x4040_0000, 0x8000_0000];
        assert_eq!(pages, Pages { log2: 21, first_offset: 0, addresses });
    }

    proptest! {
        #[test]
        fn every_byte_is_where_its_segment_is(
            lengths in proptest::collection::vec(1usize..40, 1..6),
            places in proptest::collection::vec(0u64..1 << 20, 6),
            log2 in 12u8..=16,
            offset in 0u64..16,
            cut in 0usize..4096,
        ) {
            // Segments aligned to at least one page size; the first begins inside a page.
            let size = 1u64 << log2;
            let offset = offset * 4096 % size;
            let segments: Vec<DmaSegment> = lengths.iter().enumerate().map(|(index, &length)| {
                let skipped = if index == 0 { offset } else { 0 };
                let bytes = length * size as usize - skipped as usize;
                segment((places[index] << 8) * size + skipped, bytes)
            }).collect();
            let bytes = segments.iter().map(|segment| segment.bytes).sum::<usize>() - cut;
            if let Some(pages) = Pages::of(&segments, bytes) {
                prop_assert!(pages.log2 >= log2);
                let size = 1u64 << pages.log2;
                let mut begin = 0u64;
                for segment in &segments {
                    for inside in [0, segment.bytes as u64 / 2, segment.bytes as u64 - 1] {
                        let byte = begin + inside;
                        if byte < bytes as u64 {
                            let linear = u64::from(pages.first_offset) + byte;
                            let page = pages.addresses[(linear / size) as usize];
                            prop_assert!(page.is_multiple_of(size));
                            prop_assert_eq!(page + linear % size, segment.device_address + inside);
                        }
                    }
                    begin += segment.bytes as u64;
                }
            } else {
                prop_assert!(segments.len() == 1 || bytes <= segments[0].bytes);
            }
        }

        #[test]
        fn runs_never_overlap_and_come_back(counts in proptest::collection::vec(1usize..3000, 1..40)) {
            let mut table = PageTable::new(PAGE_ENTRIES_LOG2);
            let mut runs: Vec<(u32, u32)> = Vec::new();
            for (index, &count) in counts.iter().enumerate() {
                let before = table.in_use();
                if let Ok(first) = table.allocate(count) {
                    prop_assert_eq!(table.in_use(), before + count as u32);
                    let run = (u32::from(first), u32::from(first) + count as u32);
                    prop_assert!(run.1 <= 1 << 14);
                    prop_assert!(runs.iter().all(|other| run.1 <= other.0 || other.1 <= run.0));
                    runs.push(run);
                }
                if index % 3 == 2 && !runs.is_empty() {
                    table.free(runs.swap_remove(index % runs.len()).0 as u16);
                }
            }
            runs.iter().for_each(|run| table.free(run.0 as u16));
            prop_assert_eq!(table.allocate(1 << 14).unwrap(), 0);
            prop_assert!(table.allocate(1).is_err());
        }
    }
}
