//! Which bits are assigned whatever the conditions are: what is not would be a latch.
use super::{Action, Effect, SignalId, Signals};
use crate::error::LocalFault;
use crate::ir::Location;
use std::collections::BTreeMap;

/// A set of bits, as ranges `start..end` in ascending order that neither touch nor overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BitRanges(Vec<(usize, usize)>);

impl BitRanges {
    pub(crate) fn insert(&mut self, start: usize, end: usize) {
        if start >= end {
            return;
        }
        let first = self.0.partition_point(|&(_, other_end)| other_end < start);
        let last = self.0.partition_point(|&(other_start, _)| other_start <= end);
        let joined = match self.0.get(first..last) {
            Some([]) | None => (start, end),
            Some(touched) => (start.min(touched[0].0), end.max(touched[touched.len() - 1].1)),
        };
        self.0.splice(first..last, [joined]);
    }

    fn extend(&mut self, other: &BitRanges) {
        other.0.iter().for_each(|&(start, end)| self.insert(start, end));
    }

    fn intersection(&self, other: &BitRanges) -> BitRanges {
        let mut common = BitRanges::default();
        for &(start, end) in &self.0 {
            for &(other_start, other_end) in &other.0 {
                common.insert(start.max(other_start), end.min(other_end));
            }
        }
        common
    }

    /// The ranges below `width` that are not in the set.
    pub(crate) fn missing(&self, width: usize) -> Vec<(usize, usize)> {
        let mut gaps = Vec::new();
        let mut position = 0;
        for &(start, end) in &self.0 {
            if position < start.min(width) {
                gaps.push((position, start.min(width)));
            }
            position = end;
        }
        if position < width {
            gaps.push((position, width));
        }
        gaps
    }
}

type Coverage = BTreeMap<SignalId, BitRanges>;

/// Reports every signal that keeps its old value on some path.
pub(crate) fn check<'a>(signals: &Signals, actions: impl Iterator<Item = &'a Action>) -> Vec<LocalFault> {
    let mut covered = Coverage::new();
    let mut first_assigned = BTreeMap::new();
    for action in actions {
        cover(&mut covered, action, signals);
        locate(action, &mut first_assigned);
    }
    let mut faults = Vec::new();
    for (signal, location) in first_assigned {
        let width = signals[signal].width;
        let gaps = covered.get(&signal).map_or_else(|| vec![(0, width)], |ranges| ranges.missing(width));
        if gaps.is_empty() {
            continue;
        }
        let bits: Vec<_> = gaps.iter().map(|&gap| range_text(gap)).collect();
        let which =
            if gaps == [(0, width)] { String::new() } else { format!("in bits {} ", bits.join(", ")) };
        let cause =
            format!("{which}is not assigned on every path, which would make a latch; assign a default first");
        faults.push(LocalFault::signal(&signals[signal].rust_name, cause).at(location));
    }
    faults
}

fn range_text((start, end): (usize, usize)) -> String {
    if end - start == 1 { start.to_string() } else { format!("{}:{start}", end - 1) }
}

fn locate<'a>(action: &'a Action, first: &mut BTreeMap<SignalId, &'a Location>) {
    if let Effect::Assign { signal, .. } = action.effect {
        first.entry(signal).or_insert(&action.location);
    }
    action.blocks().flatten().for_each(|action| locate(action, first));
}

fn cover(covered: &mut Coverage, action: &Action, signals: &Signals) {
    if let Effect::Assign { signal, part, .. } = action.effect {
        let (offset, width) = part.unwrap_or((0, signals[signal].width));
        covered.entry(signal).or_default().insert(offset, offset + width);
        return;
    }
    let branches = action.blocks().map(|block| {
        let mut branch = Coverage::new();
        block.iter().for_each(|action| cover(&mut branch, action, signals));
        branch
    });
    for (signal, ranges) in branches.reduce(common).unwrap_or_default() {
        covered.entry(signal).or_default().extend(&ranges);
    }
}

fn common(left: Coverage, right: Coverage) -> Coverage {
    let both = left.into_iter().filter_map(|(signal, ranges)| {
        let shared = ranges.intersection(right.get(&signal)?);
        Some((signal, shared))
    });
    both.collect()
}

#[cfg(test)]
mod tests {
    use super::BitRanges;

    fn ranges(parts: &[(usize, usize)]) -> BitRanges {
        let mut ranges = BitRanges::default();
        parts.iter().for_each(|&(start, end)| ranges.insert(start, end));
        ranges
    }

    #[test]
    fn ranges_that_touch_become_one() {
        assert_eq!(ranges(&[(0, 2), (4, 6), (2, 4)]), ranges(&[(0, 6)]));
        assert_eq!(ranges(&[(4, 6), (0, 9)]), ranges(&[(0, 9)]));
        assert_eq!(ranges(&[(3, 3)]), BitRanges::default());
        assert_ne!(ranges(&[(0, 2), (3, 4)]), ranges(&[(0, 4)]));
    }

    #[test]
    fn gaps_are_what_is_not_in_the_set() {
        assert_eq!(ranges(&[(1, 2), (4, 6)]).missing(8), [(0, 1), (2, 4), (6, 8)]);
        assert_eq!(ranges(&[(0, 8)]).missing(8), []);
        assert_eq!(ranges(&[(6, 9)]).missing(8), [(0, 6)]);
    }

    #[test]
    fn what_is_common_to_two_sets() {
        assert_eq!(ranges(&[(0, 4), (6, 9)]).intersection(&ranges(&[(2, 7)])), ranges(&[(2, 4), (6, 7)]));
    }
}
