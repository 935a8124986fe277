//! What the kernel says about an IOMMU: its pages, the addresses that it can map, and how many mappings are left.
//!
//! The answer about the container of a group is a record with a list of capabilities behind it, as all answers of VFIO that grow from
//! version to version. That of `iommufd` is a list of ranges, and the alignment of mappings.

use crate::memory::PAGE_BYTES;
use crate::vfio_error::VfioError;
use std::ops::Range;
use vfio_bindings::bindings::vfio::{
    VFIO_IOMMU_INFO_CAPS, VFIO_IOMMU_INFO_PGSIZES, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE,
    VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL,
};

/// Bytes of the record in front of the capabilities.
const INFO_BYTES: usize = 20;
/// Bytes of the header of a capability: number, version, offset of the next.
const HEADER_BYTES: usize = 8;
/// Most ranges: what the largest answer has room for.
const RANGES_MAX: u32 = 4096;
/// Addresses that no range of this driver has, so that an address that nobody has set is not mapped.
const LOWEST: u64 = 1 << 20;
/// End of the addresses that the card can use.
const HIGHEST: u64 = 1 << 63;
/// Addresses that every IOMMU can map, for kernels before 5.4, which do not say which. x86 keeps a part below 4 GiB for
/// interrupts, and 39 bits are the least that VT-d has.
const UNTOLD: Range<u64> = 1 << 32..1 << 39;

/// An IOMMU, as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Iommu {
    /// Addresses that can be mapped, in ascending order.
    pub(super) ranges: Vec<Range<u64>>,
    /// Mappings that the kernel still takes; `None` if it does not say.
    pub(super) mappings_left: Option<u32>,
}

/// An answer of the kernel, undecoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// About the container of a group.
    Container(Vec<u8>),
    /// Of `iommufd`.
    Ranges {
        /// First and last address of each range.
        ranges: Vec<(u64, u64)>,
        /// What addresses and lengths of mappings must be multiples of.
        alignment: u64,
    },
}

/// A number of the answer. `None` behind its end.
fn number<const N: usize>(answer: &[u8], offset: usize) -> Option<[u8; N]> {
    answer.get(offset..)?.first_chunk().copied()
}

fn word(answer: &[u8], offset: usize) -> Option<u32> {
    number(answer, offset).map(u32::from_ne_bytes)
}

fn long(answer: &[u8], offset: usize) -> Option<u64> {
    number(answer, offset).map(u64::from_ne_bytes)
}

/// The ranges of a capability, whose last addresses the kernel counts in. Overlaps and disorder are errors.
fn ranges(answer: &[u8], place: usize) -> Result<Vec<Range<u64>>, VfioError> {
    let wrong = |found| VfioError::Malformed { what: "the number of address ranges", found };
    let count = word(answer, place + HEADER_BYTES).ok_or(wrong(0))?;
    if count > RANGES_MAX {
        return Err(wrong(count.into()));
    }
    let mut told = Vec::new();
    for index in 0..count as usize {
        let offset = place + HEADER_BYTES + 8 + 16 * index;
        told.push(long(answer, offset).zip(long(answer, offset + 8)).ok_or(wrong(count.into()))?);
    }
    in_order(&told)
}

/// Ranges by their first and last addresses. Overlaps and disorder are errors.
fn in_order(told: &[(u64, u64)]) -> Result<Vec<Range<u64>>, VfioError> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for &(start, last) in told {
        let before = ranges.last().map_or(0, |range| range.end);
        // The very last address is given up, so that the end is a number.
        let range = start..last.saturating_add(1);
        if start < before || start > last {
            return Err(VfioError::Malformed { what: "the start of an address range", found: start });
        }
        ranges.push(range);
    }
    Ok(ranges)
}

/// Decodes an answer of the kernel.
pub(super) fn decode(answer: &Answer) -> Result<Iommu, VfioError> {
    match answer {
        Answer::Container(answer) => parse(answer),
        // A multiple of the alignment is a page then, of 4 KiB or less.
        Answer::Ranges { alignment, .. } if !(PAGE_BYTES as u64).is_multiple_of((*alignment).max(1)) => {
            Err(VfioError::PageSizes { page_sizes: *alignment })
        }
        Answer::Ranges { ranges, .. } => Ok(Iommu { ranges: usable(in_order(ranges)?), mappings_left: None }),
    }
}

/// Decodes the answer about the container of a group.
fn parse(answer: &[u8]) -> Result<Iommu, VfioError> {
    let short =
        VfioError::Malformed { what: "the length of the answer about the IOMMU", found: answer.len() as u64 };
    let (Some(flags), Some(page_sizes), Some(first)) = (word(answer, 4), long(answer, 8), word(answer, 16))
    else {
        return Err(short);
    };
    if flags & VFIO_IOMMU_INFO_PGSIZES != 0 && page_sizes & PAGE_BYTES as u64 == 0 {
        return Err(VfioError::PageSizes { page_sizes });
    }
    let mut iommu = Iommu { ranges: vec![UNTOLD], mappings_left: None };
    let (mut place, mut next) = (0, first as usize);
    while flags & VFIO_IOMMU_INFO_CAPS != 0 && next != 0 {
        let wrong =
            VfioError::Malformed { what: "the place of a capability of the IOMMU", found: next as u64 };
        if next <= place || next < INFO_BYTES {
            return Err(wrong);
        }
        place = next;
        let (Some(id), Some(follower)) = (number(answer, place), word(answer, place + 4)) else {
            return Err(wrong);
        };
        match u32::from(u16::from_ne_bytes(id)) {
            VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE => iommu.ranges = usable(ranges(answer, place)?),
            VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL => {
                iommu.mappings_left = Some(word(answer, place + HEADER_BYTES).ok_or(wrong)?);
            }
            _ => {}
        }
        next = follower as usize;
    }
    Ok(iommu)
}

/// The ranges without the lowest addresses, and without those that the card has not.
fn usable(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let limited = ranges.into_iter().map(|range| range.start.max(LOWEST)..range.end.min(HIGHEST));
    limited.filter(|range| !range.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with these flags and page sizes, and capabilities of this content at these places.
    fn answer(flags: u32, page_sizes: u64, capabilities: &[(u16, usize, Vec<u32>)]) -> Vec<u8> {
        let first = capabilities.first().map_or(0, |&(_, place, _)| place as u32);
        let mut bytes =
            [&4096u32.to_ne_bytes()[..], &flags.to_ne_bytes(), &page_sizes.to_ne_bytes()].concat();
        bytes.extend([first, 0].iter().flat_map(|word| word.to_ne_bytes()));
        for (index, (id, place, content)) in capabilities.iter().enumerate() {
            bytes.resize((*place).max(bytes.len()), 0);
            let next = capabilities.get(index + 1).map_or(0, |&(_, place, _)| place as u32);
            bytes.extend(id.to_ne_bytes());
            bytes.extend(1u16.to_ne_bytes());
            bytes.extend(next.to_ne_bytes());
            bytes.extend(content.iter().flat_map(|word| word.to_ne_bytes()));
        }
        bytes
    }

    /// Content of the capability of ranges, by start and last address.
    fn listed(ranges: &[(u64, u64)]) -> Vec<u32> {
        let halves = |number: u64| [number as u32, (number >> 32) as u32];
        let words = ranges.iter().flat_map(|&(start, last)| [halves(start), halves(last)].concat());
        [ranges.len() as u32, 0].into_iter().chain(words).collect()
    }

    const PAGES: u64 = 0x4020_1000;

    #[test]
    fn ranges_and_mappings_are_found_whatever_else_is_said() {
        let hole = listed(&[
            (0, 0xfedf_ffff),
            (0xfef0_0000, (1 << 39) - 1),
            (1 << 40, u64::MAX - 1),
            (u64::MAX, u64::MAX),
        ]);
        let bytes = answer(3, PAGES, &[(9, 24, vec![7]), (1, 40, hole), (3, 120, vec![65_535])]);
        let expected = vec![1 << 20..0xfee0_0000, 0xfef0_0000..1 << 39, 1 << 40..1 << 63];
        assert_eq!(parse(&bytes), Ok(Iommu { ranges: expected, mappings_left: Some(65_535) }));
        let low = answer(3, PAGES, &[(1, 24, listed(&[(0, 0xf_ffff)]))]);
        assert_eq!(parse(&low).unwrap().ranges, vec![], "nothing is left above the lowest addresses");
    }

    #[test]
    fn an_old_kernel_says_less() {
        let expected = Ok(Iommu { ranges: vec![UNTOLD], mappings_left: None });
        assert_eq!(parse(&answer(1, PAGES, &[])), expected);
        assert_eq!(parse(&answer(0, 0, &[])), expected, "not even the sizes of pages");
        assert_eq!(
            parse(&answer(1, PAGES, &[(1, 24, listed(&[(0, 9)]))])),
            expected,
            "a list without its flag is none"
        );
    }

    #[test]
    fn iommufd_names_ranges_and_an_alignment() {
        let told =
            |ranges: &[(u64, u64)], alignment| decode(&Answer::Ranges { ranges: ranges.to_vec(), alignment });
        for alignment in [0, 1, 4096] {
            let iommu = told(&[(0, 0xfedf_ffff), (0xfef0_0000, u64::MAX)], alignment).unwrap();
            let expected = vec![1 << 20..0xfee0_0000, 0xfef0_0000..1 << 63];
            assert_eq!(iommu, Iommu { ranges: expected, mappings_left: None });
        }
        assert_eq!(told(&[], 1).unwrap().ranges, vec![]);
        assert_eq!(told(&[(0, 1)], 65536), Err(VfioError::PageSizes { page_sizes: 65536 }));
        assert_eq!(told(&[(0, 1)], 3), Err(VfioError::PageSizes { page_sizes: 3 }));
        let what = "the start of an address range";
        assert_eq!(told(&[(5, 9), (7, 20)], 1), Err(VfioError::Malformed { what, found: 7 }));
        let bytes = answer(3, PAGES, &[(3, 24, vec![5])]);
        assert_eq!(decode(&Answer::Container(bytes)).unwrap().mappings_left, Some(5));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let place =
            |found| Err(VfioError::Malformed { what: "the place of a capability of the IOMMU", found });
        let start = |found| Err(VfioError::Malformed { what: "the start of an address range", found });
        let count = |found| Err(VfioError::Malformed { what: "the number of address ranges", found });
        let with = |content| answer(3, PAGES, &[(1, 24, content)]);
        let mut loops = with(listed(&[]));
        loops[28] = 24;
        let mut early = with(listed(&[]));
        early[16] = 16;
        let mut late = with(listed(&[]));
        late[16] = 250;
        for (bytes, expected) in [
            (answer(1, 0x2000, &[]), Err(VfioError::PageSizes { page_sizes: 0x2000 })),
            (loops, place(24)),
            (early, place(16)),
            (late, place(250)),
            (with(vec![]), count(0)),
            (with(vec![2, 0, 0, 0, 9, 0]), count(2)),
            (with(vec![4097, 0]), count(4097)),
            (with(listed(&[(4096, 8191), (8191, 9000)])), start(8191)),
            (with(listed(&[(8192, 8190)])), start(8192)),
            (answer(3, PAGES, &[(3, 24, vec![])]), place(24)),
            (
                vec![0; 19],
                Err(VfioError::Malformed { what: "the length of the answer about the IOMMU", found: 19 }),
            ),
        ] {
            assert_eq!(parse(&bytes), expected);
        }
    }
}
