//! Comparisons of a ring by [`RqPrefetch`](super::RqPrefetch): what of it is posted and not here, and how much of
//! it may be here.
use super::record::{
    Demand, LINE_BITS, PLACE_BITS, PLACES, Progress, RING_BITS, RingState, is_shared, shared_lines,
};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::WORK_INDEX_BITS;

/// A ring with this many WQEs here, or in flight, fetches no further line.
const AHEAD: u64 = 124;
/// WQEs that a ring may have here, however many rings there are.
const BASE: u64 = 2 * PLACES;
/// Width of the share of a ring, in WQEs.
pub(super) const SHARE_BITS: usize = 8;
/// With this many free shared lines, rings that miss WQEs may have more.
fn plenty() -> u64 {
    shared_lines() / 4
}

/// As many rings that are alive may have `2^share_log2` WQEs each of the shared lines.
fn rings_with(share_log2: u32) -> u64 {
    (shared_lines() * PLACES) >> share_log2
}

/// Results of the comparisons of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Findings {
    /// All fetched WQEs are consumed.
    pub is_spent: Bit,
    /// The next WQE to fetch begins a line.
    pub begins: Bit,
    /// The own line is free.
    pub has_own: Bit,
    /// More of it may be fetched.
    pub may_extend: Bit,
    /// A shared line may be taken for it.
    pub may_share: Bit,
    /// It has less than it may have while lines are free.
    pub is_short: Bit,
    /// It has less than its share.
    pub is_below: Bit,
    /// A line, or all that is needed at once, is posted.
    pub is_wanted: Bit,
    /// So is another line after it.
    pub goes_on: Bit,
    /// WQEs to fetch.
    pub count: Bits<3>,
    /// Index of the first of them in the ring.
    pub position: Bits<WORK_INDEX_BITS>,
    /// Its shared lines must be freed.
    pub must_yield: Bit,
    /// The WQE of the oldest demand is of its generation, and the next to be fetched.
    pub is_owed: Bit,
}

/// WQEs that are posted and not fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Fresh {
    /// There are some, and the producer index is within the ring.
    has_some: Bit,
    /// They are fewer than the line of the next one has room for.
    fewer: Bit,
    /// They fill that line and the one after it.
    fills_next: Bit,
    /// WQEs to fetch at once: those in one line, or the one that is requested if none is posted.
    count: Bits<3>,
}

/// How many WQEs of a ring may be here, compared with those that are.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Allowance {
    /// [`Findings::may_share`].
    may_share: Bit,
    /// There is room for a line after this one.
    has_next: Bit,
    is_short: Bit,
    is_below: Bit,
    /// There are more than the ring may have.
    is_over: Bit,
}

/// Finds the WQEs that are posted and not fetched; `distance` of those that were fetched are not consumed.
#[kernel]
fn fresh_of(state: RingState, distance: Bits<WORK_INDEX_BITS>) -> Fresh {
    let posted = state.producer - state.consumed.index;
    let fresh = state.producer - state.progress.index;
    let place: Bits<3> = cat!(bits::<1>(0), state.progress.index.get_bits::<PLACE_BITS>(0));
    let to_end = bits::<3>(PLACES) - place;
    let has_some = posted > distance && posted <= bits::<WORK_INDEX_BITS>(1) << state.attributes.entries_log2;
    let fewer = fresh < bit_cast::<WORK_INDEX_BITS, 3>(to_end);
    Fresh {
        has_some,
        fewer,
        fills_next: fresh >= bit_cast::<WORK_INDEX_BITS, 3>(to_end) + PLACES,
        count: if !has_some {
            bits::<3>(1)
        } else if fewer {
            fresh.get_bits::<3>(0)
        } else {
            to_end
        },
    }
}

/// Compares the `distance` WQEs of a ring that are here or in flight with those that it may have: its share, or
/// its quota while as many free lines would hold twice as many, or, if it has missed WQEs and many lines are
/// free, as many as an eighth of them holds.
#[kernel]
fn allowance_of(
    distance: Bits<WORK_INDEX_BITS>,
    progress: Progress,
    share: Bits<SHARE_BITS>,
    free: Bits<LINE_BITS>,
) -> Allowance {
    let free_lines = bit_cast::<WORK_INDEX_BITS, LINE_BITS>(free);
    let spare = select(free >= plenty(), free_lines >> 1, bits::<WORK_INDEX_BITS>(0));
    let half = free_lines << 1;
    let by_need = bits::<WORK_INDEX_BITS>(BASE) << progress.quota;
    let by_share = bit_cast::<WORK_INDEX_BITS, SHARE_BITS>(share);
    let limit = select(by_need > by_share, by_need, by_share);
    Allowance {
        may_share: distance < by_share
            || (progress.has_need && distance < spare)
            || (distance < limit && distance < half),
        has_next: (progress.has_need && distance + PLACES < spare) || distance + PLACES < limit,
        is_short: distance < limit,
        is_below: distance < by_share,
        is_over: distance > limit,
    }
}

/// Says whether a ring must free its shared lines when lines are asked for (`is_asked`): it is idle, or has more
/// than it may have. Its reads are awaited first.
#[kernel]
fn must_yield(state: RingState, is_asked: Bit, is_over: Bit) -> Bit {
    state.attributes.is_alive
        && is_asked
        && (state.progress.age.all() || is_over)
        && (is_shared(state.consumed.line) || is_shared(state.progress.line))
        && state.here.generation == state.attributes.generation
        && state.here.index == state.progress.index
}

/// Makes all comparisons of a ring, with the oldest demand if it is for this ring, while `free` shared lines are in no
/// list and each ring may have `share` WQEs.
#[kernel]
pub(super) fn findings_of(
    state: RingState,
    share: Bits<SHARE_BITS>,
    free: Bits<LINE_BITS>,
    is_asked: Bit,
    demand: Demand,
) -> Findings {
    let progress = state.progress;
    let distance = progress.index - state.consumed.index;
    let fresh = fresh_of(state, distance);
    let allowance = allowance_of(distance, progress, share, free);
    Findings {
        is_spent: !distance.any(),
        begins: !progress.index.get_bits::<PLACE_BITS>(0).any(),
        has_own: progress.lap == state.consumed.lap,
        may_extend: state.attributes.is_alive && distance < AHEAD,
        may_share: allowance.may_share,
        is_short: allowance.is_short,
        is_below: allowance.is_below,
        is_wanted: fresh.has_some && (!fresh.fewer || distance < PLACES),
        goes_on: fresh.has_some && fresh.fills_next && distance < AHEAD - PLACES && allowance.has_next,
        count: fresh.count,
        position: progress.index & !(bits::<WORK_INDEX_BITS>(0xffff) << state.attributes.entries_log2),
        must_yield: must_yield(state, is_asked, allowance.is_over),
        is_owed: demand.generation == state.attributes.generation && demand.index == progress.index,
    }
}

/// Gives the WQEs that each ring may have here in any case: that many for each ring that is alive fit into the
/// shared lines.
#[kernel]
pub(super) fn share_of(alive_count: Bits<RING_BITS>) -> Bits<SHARE_BITS> {
    if alive_count > rings_with(4) {
        bits(BASE)
    } else if alive_count > rings_with(5) {
        bits(2 * BASE)
    } else if alive_count > rings_with(6) {
        bits(4 * BASE)
    } else if alive_count > rings_with(7) {
        bits(8 * BASE)
    } else {
        bits(AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Arrived, Ring, Taken};
    use super::*;

    /// A ring of 64 WQEs whose own line is in use.
    fn ring(consumed: u64, fetched: u64, posted: u64) -> RingState {
        RingState {
            attributes: Ring {
                is_alive: true,
                generation: bits(3),
                entries_log2: bits(6),
                ..Ring::default()
            },
            producer: bits(posted),
            consumed: Taken { index: bits(consumed), line: bits(5), ..Taken::default() },
            progress: Progress { index: bits(fetched), line: bits(5), lap: true, ..Progress::default() },
            here: Arrived { generation: bits(3), index: bits(fetched), stay: false },
        }
    }

    fn look(state: RingState) -> Findings {
        findings_of(state, bits(124), bits(2048), false, Demand::default())
    }

    /// Consumed, fetched, posted; WQEs to fetch, is wanted, goes on.
    #[test]
    fn the_posted_wqes_of_one_line_are_fetched_at_once() {
        for (consumed, fetched, posted, count, is_wanted, goes_on) in [
            (0, 0, 0, 1, false, false),
            (0, 0, 1, 1, true, false),
            (0, 0, 3, 3, true, false),
            (0, 0, 4, 4, true, false),
            (0, 0, 7, 4, true, false),
            (0, 0, 8, 4, true, true),
            (0, 1, 4, 3, true, false),
            (0, 3, 4, 1, true, false),
            (0, 3, 7, 1, true, false),
            (0, 3, 8, 1, true, true),
            // Part of a line is wanted only while less than a line is here.
            (0, 4, 6, 2, false, false),
            (1, 4, 6, 2, true, false),
            (0, 4, 8, 4, true, false),
            // The ring has 64 WQEs; a claim of more posts nothing.
            (0, 0, 64, 4, true, true),
            (0, 0, 65, 1, false, false),
            (0, 4, 4, 1, false, false),
            // Indices wrap.
            (0xfffc, 0xfffe, 2, 2, true, false),
            (0xfffe, 0, 4, 4, true, false),
        ] {
            let found = look(ring(consumed, fetched, posted));
            let row = format!("consumed {consumed}, fetched {fetched}, posted {posted}");
            assert_eq!(
                (found.count, found.is_wanted, found.goes_on),
                (bits(count), is_wanted, goes_on),
                "{row}"
            );
            assert_eq!(found.is_spent, consumed == fetched, "{row}");
            assert_eq!(found.begins, fetched % 4 == 0, "{row}");
            assert_eq!(found.position, bits(fetched % 64), "{row}");
        }
    }

    #[test]
    fn a_ring_fetches_up_to_124_wqes_ahead() {
        for (fetched, may_extend, goes_on) in [
            (116, true, true),
            (119, true, true),
            (120, true, false),
            (123, true, false),
            (124, false, false),
        ] {
            let mut state = ring(0, fetched, 1024);
            state.attributes.entries_log2 = bits(10);
            state.progress.has_need = true;
            let found = look(state);
            assert_eq!((found.may_extend, found.goes_on), (may_extend, goes_on), "{fetched} fetched");
        }
        let mut dead = ring(0, 0, 4);
        dead.attributes.is_alive = false;
        assert!(!look(dead).may_extend);
    }

    #[test]
    fn the_own_line_is_free_when_it_was_left_as_often_as_taken() {
        for (taken, fetched, expected) in
            [(false, false, true), (true, true, true), (false, true, false), (true, false, false)]
        {
            let mut state = ring(0, 0, 4);
            state.consumed.lap = taken;
            state.progress.lap = fetched;
            assert_eq!(look(state).has_own, expected);
        }
    }

    /// WQEs here, share, quota, need, free lines; may take a shared line, is short, below its share, above all.
    #[test]
    fn a_ring_may_have_its_share_or_what_it_needs_while_lines_are_free() {
        for (distance, share, quota, has_need, free, expected) in [
            (7, 8, 0, false, 0, [true, true, true, false]),
            (8, 8, 0, false, 0, [false, false, false, false]),
            (9, 8, 0, false, 0, [false, false, false, true]),
            // The quota doubles 8 WQEs, while the free lines hold more than twice the WQEs here.
            (15, 8, 1, false, 8, [true, true, false, false]),
            (15, 8, 1, false, 7, [false, true, false, false]),
            (16, 8, 1, false, 511, [false, false, false, false]),
            (127, 8, 4, false, 511, [true, true, false, false]),
            (128, 8, 4, false, 511, [false, false, false, false]),
            // In need, and a quarter of the lines is free: as many as an eighth of them holds.
            (255, 8, 0, true, 512, [true, false, false, true]),
            (256, 8, 0, true, 512, [false, false, false, true]),
            (100, 8, 0, true, 511, [false, false, false, true]),
            (100, 8, 0, false, 2048, [false, false, false, true]),
            // The larger of share and quota counts.
            (30, 32, 1, false, 0, [true, true, true, false]),
        ] {
            let progress = Progress { quota: bits(quota), has_need, ..Progress::default() };
            let found = allowance_of(bits(distance), progress, bits(share), bits(free));
            let flags = [found.may_share, found.is_short, found.is_below, found.is_over];
            assert_eq!(flags, expected, "{distance} here, share {share}, quota {quota}, {free} free");
        }
    }

    #[test]
    fn there_is_room_for_the_next_line_if_its_four_wqes_fit() {
        for (distance, has_need, free, expected) in [
            (3, false, 0, true),
            (4, false, 0, false),
            (251, true, 512, true),
            (252, true, 512, false),
            (251, true, 511, false),
        ] {
            let progress = Progress { has_need, ..Progress::default() };
            let found = allowance_of(bits(distance), progress, bits(8), bits(free));
            assert_eq!(found.has_next, expected, "{distance} here, {free} free");
        }
    }

    #[test]
    fn an_idle_or_greedy_ring_yields_its_shared_lines_when_its_reads_are_done() {
        let idle = || {
            let mut state = ring(0, 4, 4);
            state.progress.age = bits(7);
            state.progress.line = bits(0x800);
            state
        };
        let change = |edit: fn(&mut RingState)| {
            let mut state = idle();
            edit(&mut state);
            state
        };
        for (state, is_asked, is_over, expected) in [
            (idle(), true, false, true),
            (idle(), false, false, false),
            (change(|state| state.attributes.is_alive = false), true, false, false),
            (change(|state| state.progress.age = bits(6)), true, false, false),
            (change(|state| state.progress.age = bits(6)), true, true, true),
            (change(|state| state.progress.line = bits(5)), true, false, false),
            (
                change(|state| {
                    state.progress.line = bits(5);
                    state.consumed.line = bits(0x801);
                }),
                true,
                false,
                true,
            ),
            (change(|state| state.here.index = bits(3)), true, false, false),
            (change(|state| state.here.generation = bits(2)), true, false, false),
        ] {
            assert_eq!(must_yield(state, is_asked, is_over), expected, "{state:?}");
        }
    }

    #[test]
    fn the_shares_of_all_rings_fit_into_the_shared_lines() {
        for (alive, share) in [
            (0, 124),
            (64, 124),
            (65, 64),
            (128, 64),
            (129, 32),
            (256, 32),
            (257, 16),
            (512, 16),
            (513, 8),
            (1088, 8),
        ] {
            assert_eq!(share_of(bits(alive)), bits(share), "{alive} rings");
        }
    }
}
