//! Decisions of [`RqPrefetch`](super::RqPrefetch) about the ring that it looks at: whether WQEs are fetched, into
//! which line, and whether it goes on with the same ring.
use super::look::Findings;
use super::record::{
    Change, Fetch, LINE_BITS, PLACE_BITS, Progress, RING_BITS, SHARED_BITS, own_line, shared_line,
};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{GENERATION_BITS, WORK_INDEX_BITS};

/// Why a ring is looked at; at most one is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Reason {
    /// A setup event.
    pub is_event: Bit,
    /// A requested WQE is missing.
    pub is_demand: Bit,
    /// It has room for a line, or no WQE left.
    pub is_notice: Bit,
    /// The walk has come to it.
    pub is_walk: Bit,
}

/// What a fetch takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Supply {
    /// There is room for a read.
    pub may_fetch: Bit,
    /// A shared line is free.
    pub has_line: Bit,
    /// Number of that line within the shared ones.
    pub line: Bits<SHARED_BITS>,
}

/// What is decided about a ring. At most one of `yields`, `fetches` and `lingers` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Plan {
    /// Its shared lines are freed.
    pub yields: Bit,
    /// WQEs would be fetched, if there were room for the read; set with `fetches` and with `lingers` too.
    pub wishes: Bit,
    /// WQEs are fetched into `line`, up to `end`.
    pub fetches: Bit,
    /// There is no room for the read; it is awaited.
    pub lingers: Bit,
    pub line: Bits<LINE_BITS>,
    pub end: Bits<WORK_INDEX_BITS>,
    /// The line is the own one.
    pub takes_own: Bit,
    /// The line is a shared one from the free ones.
    pub shares: Bit,
    /// The line is the last one again: the ring has no WQE left.
    pub repeats: Bit,
    /// [`Progress::stay`] of the fetch.
    pub stay: Bit,
    /// It was looked at because a requested WQE is missing.
    pub misses: Bit,
    /// It may have a shared line, but none is free, or not for it.
    pub is_denied: Bit,
}

/// What follows a decision; at most one of `goes_on` and `ends` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Continuation {
    /// The next line of the same ring is fetched.
    pub goes_on: Bit,
    /// It is not, though it should be; the ring comes again.
    pub is_unfinished: Bit,
    /// Another ring is chosen.
    pub ends: Bit,
}

/// Decides about a ring. The walk fetches only for a ring without WQEs or with less than its share; a requested
/// WQE is fetched even if it is not posted. For one that was fetched meanwhile, or whose ring has restarted, nothing is.
#[kernel]
pub(super) fn plan_of(
    is_decided: Bit,
    reason: Reason,
    has_event: Bit,
    found: Findings,
    progress: Progress,
    ring: Bits<RING_BITS>,
    supply: Supply,
) -> Plan {
    let yields = is_decided && reason.is_walk && found.must_yield;
    let takes_own = found.begins && found.has_own;
    let shares = found.begins && !found.has_own && !found.is_spent;
    let repeats = found.begins && !found.has_own && found.is_spent;
    let has_line = !shares || (supply.has_line && found.may_share);
    let is_due = found.is_wanted && (!reason.is_walk || found.is_spent || found.is_below);
    let is_urgent = reason.is_demand && found.is_spent && found.is_owed;
    let is_met = reason.is_demand && !found.is_owed;
    let wishes = is_decided && !yields && has_line && found.may_extend && !is_met && (is_due || is_urgent);
    let lingers = wishes && !supply.may_fetch && !has_event;
    Plan {
        yields,
        wishes,
        fetches: wishes && supply.may_fetch,
        lingers,
        line: if takes_own {
            own_line(ring)
        } else if shares {
            shared_line(supply.line)
        } else {
            progress.line
        },
        end: progress.index + bit_cast::<WORK_INDEX_BITS, 3>(found.count),
        takes_own,
        shares,
        repeats,
        stay: select(repeats, !progress.stay, progress.stay),
        misses: is_decided && reason.is_demand && !lingers,
        is_denied: is_decided && shares && !has_line && found.is_wanted && found.is_short,
    }
}

/// Gives the read of a plan that fetches: from the first WQE that is not fetched yet.
#[kernel]
pub(super) fn fetch_of(
    plan: Plan,
    progress: Progress,
    ring: Bits<RING_BITS>,
    generation: Bits<GENERATION_BITS>,
) -> Fetch {
    Fetch {
        line: plan.line,
        place: progress.index.get_bits::<PLACE_BITS>(0),
        ring,
        generation,
        end: plan.end,
        stay: plan.stay,
    }
}

/// Says whether a ring gives way to others: to setup events and requested WQEs after one line, to other rings
/// after four.
#[kernel]
pub(super) fn gives_way(
    has_event: Bit,
    has_demand: Bit,
    reason: Reason,
    is_burst_over: Bit,
    others_wait: Bit,
) -> Bit {
    has_event || (has_demand && !reason.is_demand) || (is_burst_over && others_wait)
}

/// Decides what follows; `may_go_on` says that prefetch is enabled and no other ring comes first. What becomes of a wish is known
/// before whether there is one, which is deep.
#[kernel]
pub(super) fn continuation_of(
    is_decided: Bit,
    plan: Plan,
    found: Findings,
    reason: Reason,
    may_fetch: Bit,
    has_event: Bit,
    may_go_on: Bit,
) -> Continuation {
    let wants_more = may_fetch && found.goes_on;
    let would_go_on = wants_more && may_go_on && !reason.is_walk;
    let would_stay = would_go_on || (!may_fetch && !has_event);
    Continuation {
        goes_on: plan.wishes && would_go_on,
        is_unfinished: plan.wishes && wants_more && !would_go_on,
        ends: is_decided && !plan.yields && !(plan.wishes && would_stay),
    }
}

/// Says whether nothing is left to do for the requested WQE: it is fetched, was before, or its ring has ended.
#[kernel]
pub(super) fn meets_demand(is_decided: Bit, reason: Reason, plan: Plan, found: Findings) -> Bit {
    let is_open = found.is_spent && found.is_owed && found.may_extend;
    is_decided && reason.is_demand && !plan.lingers && (plan.fetches || !is_open)
}

/// Describes a decision to the fetch side of the ring.
#[kernel]
pub(super) fn change_of(plan: Plan, reason: Reason, ages: Bit) -> Change {
    Change {
        fetches: plan.fetches,
        end: plan.end,
        line: plan.line,
        takes_own: plan.takes_own,
        stay: plan.stay,
        misses: plan.misses,
        is_used: reason.is_demand || reason.is_notice,
        is_walk: reason.is_walk,
        ages,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: u64 = 5;
    const LAST_LINE: u64 = 0x8aa;
    const FREE_LINE: u64 = 0x123;
    const NONE: Reason = Reason { is_event: false, is_demand: false, is_notice: false, is_walk: false };
    const DEMAND: Reason = Reason { is_demand: true, ..NONE };
    const WALK: Reason = Reason { is_walk: true, ..NONE };

    #[test]
    fn a_read_begins_at_the_place_of_the_first_wqe_that_is_not_fetched() {
        for (index, place) in [(0, 0), (3, 3), (4, 0), (0xffff, 3)] {
            let plan = Plan { line: bits(LAST_LINE), end: bits(7), stay: true, ..Plan::default() };
            let progress = Progress { index: bits(index), ..Progress::default() };
            let expected = Fetch {
                line: bits(LAST_LINE),
                place: bits(place),
                ring: bits(RING),
                generation: bits(9),
                end: bits(7),
                stay: true,
            };
            assert_eq!(fetch_of(plan, progress, bits(RING), bits(9)), expected, "{index}");
        }
    }

    /// A ring with WQEs here and more posted, whose next one begins a line.
    fn wanted() -> Findings {
        Findings {
            begins: true,
            may_extend: true,
            may_share: true,
            is_short: true,
            is_below: true,
            is_wanted: true,
            count: bits(4),
            ..Findings::default()
        }
    }

    fn supply(may_fetch: bool, has_line: bool) -> Supply {
        Supply { may_fetch, has_line, line: bits(FREE_LINE) }
    }

    fn plan(reason: Reason, found: Findings, supply: Supply) -> Plan {
        let progress = Progress { index: bits(0xfffc), line: bits(LAST_LINE), ..Progress::default() };
        plan_of(true, reason, false, found, progress, bits(RING), supply)
    }

    /// Begins a line, own line free, all consumed; the line, and whether it is own, shared or the last again.
    #[test]
    fn wqes_go_into_the_own_line_then_a_shared_one_and_an_empty_ring_stays_in_its_last() {
        for (begins, has_own, is_spent, line, kind, stay) in [
            (false, false, false, LAST_LINE, [false, false, false], false),
            (false, true, false, LAST_LINE, [false, false, false], false),
            (true, true, false, RING, [true, false, false], false),
            (true, true, true, RING, [true, false, false], false),
            (true, false, false, 0x800 | FREE_LINE, [false, true, false], false),
            (true, false, true, LAST_LINE, [false, false, true], true),
        ] {
            let found = Findings { begins, has_own, is_spent, ..wanted() };
            let plan = plan(NONE, found, supply(true, true));
            assert!(plan.fetches, "{begins} {has_own} {is_spent}");
            assert_eq!(plan.line, bits(line), "{begins} {has_own} {is_spent}");
            assert_eq!([plan.takes_own, plan.shares, plan.repeats], kind, "{begins} {has_own} {is_spent}");
            assert_eq!((plan.stay, plan.end), (stay, bits(0)), "{begins} {has_own} {is_spent}");
        }
    }

    /// What is found, reason; fetches, is denied a line.
    #[test]
    fn wqes_are_fetched_if_they_are_wanted_and_a_line_may_be_had() {
        let own = Findings { has_own: true, ..wanted() };
        let spent = Findings { is_spent: true, is_wanted: false, is_owed: true, ..own };
        let change = |edit: fn(&mut Findings)| {
            let mut found = wanted();
            edit(&mut found);
            found
        };
        for (found, reason, has_line, fetches, is_denied) in [
            (wanted(), NONE, true, true, false),
            (wanted(), NONE, false, false, true),
            (own, NONE, false, true, false),
            (change(|found| found.may_share = false), NONE, true, false, true),
            (
                change(|found| {
                    found.may_share = false;
                    found.is_short = false;
                }),
                NONE,
                true,
                false,
                false,
            ),
            (change(|found| found.is_wanted = false), NONE, false, false, false),
            (change(|found| found.may_extend = false), NONE, true, false, false),
            // The walk is for rings below their share, or without WQEs.
            (wanted(), WALK, true, true, false),
            (change(|found| found.is_below = false), WALK, true, false, false),
            (change(|found| found.is_below = false), NONE, true, true, false),
            (Findings { is_below: false, is_spent: true, ..own }, WALK, true, true, false),
            // A requested WQE is fetched even if none is posted, once.
            (spent, NONE, true, false, false),
            (spent, DEMAND, true, true, false),
            (Findings { is_spent: false, ..spent }, DEMAND, true, false, false),
            (Findings { is_owed: false, ..spent }, DEMAND, true, false, false),
            // What is posted is fetched with the requested one, or for another reason.
            (Findings { is_owed: true, ..own }, DEMAND, true, true, false),
            (own, DEMAND, true, false, false),
        ] {
            let plan = plan(reason, found, supply(true, has_line));
            assert_eq!((plan.fetches, plan.is_denied), (fetches, is_denied), "{found:?} {reason:?}");
            assert_eq!(plan.misses, reason == DEMAND, "{found:?} {reason:?}");
        }
    }

    /// Reason; fetches, lingers; spent, owed, may extend; is met.
    #[test]
    fn a_demand_ends_when_its_wqe_is_fetched_or_is_not_needed() {
        for (reason, [fetches, lingers], [is_spent, is_owed, may_extend], expected) in [
            (DEMAND, [true, false], [true, true, true], true),
            (DEMAND, [false, true], [true, true, true], false),
            // An event comes first.
            (DEMAND, [false, false], [true, true, true], false),
            (DEMAND, [false, false], [false, true, true], true),
            (DEMAND, [false, false], [true, false, true], true),
            (DEMAND, [false, false], [true, true, false], true),
            (NONE, [true, false], [true, true, true], false),
        ] {
            let plan = Plan { fetches, lingers, ..Plan::default() };
            let found = Findings { is_spent, is_owed, may_extend, ..Findings::default() };
            assert_eq!(meets_demand(true, reason, plan, found), expected, "{reason:?} {plan:?} {found:?}");
            assert!(!meets_demand(false, reason, plan, found));
        }
    }

    #[test]
    fn a_ring_of_the_walk_yields_before_it_fetches() {
        let found = Findings { must_yield: true, is_owed: true, ..wanted() };
        for (reason, yields) in [(WALK, true), (NONE, false), (DEMAND, false)] {
            let plan = plan(reason, found, supply(true, true));
            assert_eq!((plan.yields, plan.fetches), (yields, !yields), "{reason:?}");
        }
    }

    #[test]
    fn a_fetch_waits_for_room_unless_an_event_comes() {
        for (may_fetch, has_event, fetches, lingers) in [
            (true, false, true, false),
            (true, true, true, false),
            (false, false, false, true),
            (false, true, false, false),
        ] {
            let supply = supply(may_fetch, true);
            let progress = Progress::default();
            let found = Findings { is_owed: true, ..wanted() };
            let plan = plan_of(true, DEMAND, has_event, found, progress, bits(RING), supply);
            assert_eq!((plan.fetches, plan.lingers), (fetches, lingers), "{may_fetch} {has_event}");
            assert!(plan.wishes, "{may_fetch} {has_event}");
            assert_eq!(plan.misses, !lingers, "{may_fetch} {has_event}");
        }
    }

    #[test]
    fn nothing_happens_before_the_decision() {
        let found = Findings { must_yield: true, ..wanted() };
        for reason in [NONE, WALK, DEMAND] {
            let progress = Progress::default();
            let plan = plan_of(false, reason, false, found, progress, bits(RING), supply(true, false));
            let flags = [plan.yields, plan.wishes, plan.fetches, plan.lingers, plan.misses, plan.is_denied];
            assert_eq!(flags, [false; 6], "{reason:?}");
        }
    }

    #[test]
    fn others_come_first_after_four_lines_and_what_is_urgent_after_one() {
        for (has_event, has_demand, reason, is_burst_over, others_wait, expected) in [
            (false, false, NONE, false, false, false),
            (true, false, NONE, false, false, true),
            (false, true, NONE, false, false, true),
            (false, true, DEMAND, false, false, false),
            (false, false, NONE, false, true, false),
            (false, false, NONE, true, false, false),
            (false, false, NONE, true, true, true),
        ] {
            let found = gives_way(has_event, has_demand, reason, is_burst_over, others_wait);
            assert_eq!(found, expected, "{has_event} {has_demand} {reason:?} {is_burst_over} {others_wait}");
        }
    }

    /// Wishes, more is wanted, may go on, reason; goes on, is unfinished, ends.
    #[test]
    fn a_ring_that_gives_way_comes_again() {
        for (wishes, more, may_go_on, reason, expected) in [
            (true, true, true, NONE, [true, false, false]),
            (true, true, true, DEMAND, [true, false, false]),
            (true, true, false, NONE, [false, true, true]),
            (true, true, true, WALK, [false, true, true]),
            (true, false, true, NONE, [false, false, true]),
            (false, true, true, NONE, [false, false, true]),
        ] {
            let plan = Plan { wishes, ..Plan::default() };
            let found = Findings { goes_on: more, ..Findings::default() };
            let next = continuation_of(true, plan, found, reason, true, false, may_go_on);
            assert_eq!([next.goes_on, next.is_unfinished, next.ends], expected, "{wishes} {more} {reason:?}");
        }
        // A ring that yields is not at its end, nor is one that waits for room, unless an event comes.
        let more = Findings { goes_on: true, ..Findings::default() };
        let yields = Plan { yields: true, ..Plan::default() };
        let wishes = Plan { wishes: true, ..Plan::default() };
        for (plan, has_event, ends) in [(yields, false, false), (wishes, false, false), (wishes, true, true)]
        {
            let next = continuation_of(true, plan, more, NONE, false, has_event, true);
            assert_eq!(next, Continuation { ends, ..Continuation::default() }, "{plan:?} {has_event}");
        }
        let next = continuation_of(false, Plan::default(), more, NONE, true, false, true);
        assert_eq!(next, Continuation::default());
    }
}
