//! The machine of [`RqPrefetch`](super::RqPrefetch) that fetches: which ring is next, and what is done with it.
//!
//! ```text
//!   Clear ──> Choose ─┬─> Look ─> Decide ─┬─> Again ─> Look
//!               ^     │            │      └─> Hold (the ring yields its lines)
//!               └─────┼────────────┘
//!                     └─> Hold ─> Compare ─> Apply ─┬─> Choose
//!                                                   └─> Free ─> Follow ─> Free ─> Choose, Again
//! ```
use super::plan::{Continuation, Plan, Reason};
use super::record::RING_BITS;
use rnic_kernel::prelude::*;

/// State of the machine that fetches.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(super) enum Step {
    /// Clears the records after a reset.
    Clear,
    /// Chooses a ring.
    Choose,
    /// Compares its records.
    Look,
    /// Decides whether to fetch.
    Decide,
    /// Reads the new records, to fetch more of the same ring.
    Again,
    /// Waits until no request is being answered, for an event or because the ring yields its lines.
    Hold,
    /// Compares the records, which do not change now.
    Compare,
    /// Writes the records.
    Apply,
    /// Frees a line of the old list.
    Free,
    /// Reads the next line of the list.
    Follow,
}

/// A ring that some source offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Offer {
    pub valid: Bit,
    pub ring: Bits<RING_BITS>,
}

/// The rings that may be looked at, in the order in which they are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Offers {
    /// Of the setup event.
    pub event: Offer,
    /// Of the request whose WQE is missing.
    pub demand: Offer,
    /// With room for a line, or without WQEs.
    pub notice: Offer,
    /// Whose doorbell rang.
    pub bell: Offer,
    /// That gave way to others.
    pub unfinished: Offer,
    /// Of the walk.
    pub walk: Offer,
}

/// The ring that is looked at next, and its source: one, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Choice {
    pub ring: Bits<RING_BITS>,
    pub is_event: Bit,
    pub is_demand: Bit,
    pub is_notice: Bit,
    pub is_bell: Bit,
    pub is_unfinished: Bit,
    pub is_walk: Bit,
}

/// Says whether requests may be looked at: not while records are rewritten.
#[kernel]
pub(super) fn may_grant(step: Step) -> Bit {
    step == Step::Choose || step == Step::Look || step == Step::Decide || step == Step::Again
}

/// Chooses the next ring: setup events first, then requested WQEs. The others only if prefetch is enabled and
/// there is room for a read (`may_run_ahead`).
#[kernel]
pub(super) fn choice_of(offers: Offers, may_run_ahead: Bit) -> Choice {
    let is_urgent = offers.event.valid || offers.demand.valid;
    let may_notice = !is_urgent && may_run_ahead;
    let may_bell = may_notice && !offers.notice.valid;
    let may_unfinished = may_bell && !offers.bell.valid;
    let may_walk = may_unfinished && !offers.unfinished.valid;
    Choice {
        ring: if offers.event.valid {
            offers.event.ring
        } else if offers.demand.valid {
            offers.demand.ring
        } else if offers.notice.valid && may_run_ahead {
            offers.notice.ring
        } else if offers.bell.valid && may_run_ahead {
            offers.bell.ring
        } else if offers.unfinished.valid && may_run_ahead {
            offers.unfinished.ring
        } else {
            offers.walk.ring
        },
        is_event: offers.event.valid,
        is_demand: offers.demand.valid && !offers.event.valid,
        is_notice: may_notice && offers.notice.valid,
        is_bell: may_bell && offers.bell.valid,
        is_unfinished: may_unfinished && offers.unfinished.valid,
        is_walk: may_walk && offers.walk.valid,
    }
}

/// Says whether a ring is chosen: in `Choose`, or when the last one ends. The records of the last one are being
/// written then, so it waits a cycle, unless an event comes.
#[kernel]
pub(super) fn is_chosen(step: Step, ends: Bit, choice: Choice, ring: Bits<RING_BITS>) -> Bit {
    step == Step::Choose || (ends && (choice.is_event || choice.ring != ring))
}

/// Gives the reason for which a ring is looked at: that of its choice. What is missing is fetched first, so the
/// next lines of the same ring are no longer missing.
#[kernel]
pub(super) fn reason_after(reason: Reason, goes_on: Bit, chooses: Bit, choice: Choice) -> Reason {
    if chooses {
        Reason {
            is_event: choice.is_event,
            is_demand: choice.is_demand,
            is_notice: choice.is_notice,
            is_walk: choice.is_walk,
        }
    } else {
        Reason { is_demand: reason.is_demand && !goes_on, ..reason }
    }
}

/// Counts the decisions on the same ring, up to three.
#[kernel]
pub(super) fn burst_after(burst: Bits<2>, is_decided: Bit, chooses: Bit) -> Bits<2> {
    if chooses {
        bits(0)
    } else if is_decided && !burst.all() {
        burst + 1
    } else {
        burst
    }
}

/// Gives the step for a ring that is chosen.
#[kernel]
fn step_chosen(choice: Choice) -> Step {
    let looks =
        choice.is_demand || choice.is_notice || choice.is_bell || choice.is_unfinished || choice.is_walk;
    if choice.is_event {
        Step::Hold
    } else if looks {
        Step::Look
    } else {
        Step::Choose
    }
}

/// Gives the step after `Decide`.
#[kernel]
pub(super) fn step_decided(plan: Plan, continuation: Continuation, chooses: Bit, choice: Choice) -> Step {
    if plan.yields {
        Step::Hold
    } else if continuation.goes_on {
        Step::Again
    } else if chooses {
        step_chosen(choice)
    } else if continuation.ends {
        Step::Choose
    } else {
        Step::Decide
    }
}

/// What is done with records that no request may use meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Rewrite {
    /// The last record is cleared after a reset.
    pub is_cleared: Bit,
    /// The records of the ring are written.
    pub applies: Bit,
    /// Its lines are freed.
    pub empties: Bit,
    /// The line that is freed is the last of them.
    pub is_freed: Bit,
    /// All that was for a setup event.
    pub is_event: Bit,
}

/// Gives the next step; `decided` is the one after `Decide`, `is_quiet` says that no request is looked at.
#[kernel]
pub(super) fn step_after(step: Step, choice: Choice, decided: Step, is_quiet: Bit, rewrite: Rewrite) -> Step {
    match step {
        Step::Clear => {
            if rewrite.is_cleared {
                Step::Choose
            } else {
                Step::Clear
            }
        }
        Step::Choose => step_chosen(choice),
        Step::Look => Step::Decide,
        Step::Decide => decided,
        Step::Again => Step::Look,
        Step::Hold => {
            if is_quiet {
                Step::Compare
            } else {
                Step::Hold
            }
        }
        Step::Compare => Step::Apply,
        Step::Apply => {
            if rewrite.empties {
                Step::Free
            } else if rewrite.applies {
                Step::Choose
            } else {
                Step::Apply
            }
        }
        Step::Free => {
            if !rewrite.is_freed {
                Step::Follow
            } else if rewrite.is_event {
                Step::Choose
            } else {
                Step::Again
            }
        }
        Step::Follow => Step::Free,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 10] = [
        Step::Clear,
        Step::Choose,
        Step::Look,
        Step::Decide,
        Step::Again,
        Step::Hold,
        Step::Compare,
        Step::Apply,
        Step::Free,
        Step::Follow,
    ];

    /// Offers of which those with a set bit are valid, each with a ring of its own: 1 to 6.
    fn offers(valid: [bool; 6]) -> Offers {
        let offer = |place: usize| Offer { valid: valid[place], ring: bits(place as u64 + 1) };
        Offers {
            event: offer(0),
            demand: offer(1),
            notice: offer(2),
            bell: offer(3),
            unfinished: offer(4),
            walk: offer(5),
        }
    }

    /// The places of the sources that are set.
    fn sources(choice: Choice) -> Vec<usize> {
        [
            choice.is_event,
            choice.is_demand,
            choice.is_notice,
            choice.is_bell,
            choice.is_unfinished,
            choice.is_walk,
        ]
        .iter()
        .enumerate()
        .filter_map(|(place, is_set)| is_set.then_some(place))
        .collect()
    }

    /// All sets of offers: the first one that is valid is chosen, after the first two only if rings may run ahead.
    #[test]
    fn the_first_source_that_offers_a_ring_is_chosen() {
        for valid in 0..64u32 {
            for may_run_ahead in [true, false] {
                let valid: [bool; 6] = std::array::from_fn(|place| valid >> place & 1 == 1);
                let choice = choice_of(offers(valid), may_run_ahead);
                let first = (0..if may_run_ahead { 6 } else { 2 }).find(|place| valid[*place]);
                assert_eq!(sources(choice), first.into_iter().collect::<Vec<_>>(), "{valid:?}");
                if let Some(place) = first {
                    assert_eq!(choice.ring, bits(place as u64 + 1), "{valid:?}");
                }
            }
        }
    }

    #[test]
    fn the_same_ring_is_chosen_again_only_a_cycle_later() {
        let choice = |is_event, ring| Choice { is_event, ring: bits(ring), ..Choice::default() };
        for (step, ends, choice, expected) in [
            (Step::Choose, false, choice(false, 5), true),
            (Step::Decide, true, choice(false, 6), true),
            (Step::Decide, true, choice(false, 5), false),
            (Step::Decide, true, choice(true, 5), true),
            (Step::Decide, false, choice(true, 6), false),
            (Step::Look, false, choice(false, 6), false),
        ] {
            assert_eq!(is_chosen(step, ends, choice, bits(5)), expected, "{step:?} {ends} {choice:?}");
        }
    }

    #[test]
    fn requests_wait_while_records_are_rewritten() {
        let may: Vec<Step> = STEPS.into_iter().filter(|step| may_grant(*step)).collect();
        assert_eq!(may, [Step::Choose, Step::Look, Step::Decide, Step::Again]);
    }

    #[test]
    fn the_reason_lasts_for_a_ring_and_a_demand_for_its_first_line() {
        let demand = Reason { is_demand: true, ..Reason::default() };
        let walk = Reason { is_walk: true, ..Reason::default() };
        let choice = Choice { is_walk: true, ..Choice::default() };
        for (reason, goes_on, chooses, expected) in [
            (demand, false, false, demand),
            (demand, true, false, Reason::default()),
            (demand, false, true, walk),
            (walk, true, false, walk),
        ] {
            assert_eq!(reason_after(reason, goes_on, chooses, choice), expected, "{goes_on} {chooses}");
        }
    }

    #[test]
    fn a_burst_counts_to_three_and_ends_with_the_choice_of_a_ring() {
        for (burst, is_decided, chooses, expected) in [
            (0, true, false, 1),
            (2, true, false, 3),
            (3, true, false, 3),
            (2, false, false, 2),
            (3, true, true, 0),
        ] {
            assert_eq!(burst_after(bits(burst), is_decided, chooses), bits(expected), "{burst}");
        }
    }

    #[test]
    fn a_decision_yields_goes_on_lingers_or_ends() {
        let none = Choice::default();
        let event = Choice { is_event: true, ..none };
        let bell = Choice { is_bell: true, ..none };
        let yields = Plan { yields: true, ..Plan::default() };
        let plain = Plan::default();
        let goes_on = Continuation { goes_on: true, ..Continuation::default() };
        let ends = Continuation { ends: true, ..Continuation::default() };
        let lingers = Continuation::default();
        for (plan, continuation, chooses, choice, expected) in [
            (yields, lingers, false, bell, Step::Hold),
            (plain, goes_on, false, bell, Step::Again),
            (plain, ends, true, event, Step::Hold),
            (plain, ends, true, bell, Step::Look),
            (plain, ends, true, none, Step::Choose),
            (plain, ends, false, bell, Step::Choose),
            (plain, lingers, false, bell, Step::Decide),
        ] {
            let step = step_decided(plan, continuation, chooses, choice);
            assert_eq!(step, expected, "{plan:?} {continuation:?} {chooses} {choice:?}");
        }
    }

    /// Every state with every event; the outcome of `Decide` has its own table.
    #[test]
    fn each_state_goes_where_the_drawing_says() {
        let either = |is_set: bool, yes, no| if is_set { yes } else { no };
        for step in STEPS {
            for events in 0..128u32 {
                let is = |place: u32| events >> place & 1 == 1;
                let choice = Choice { is_demand: is(0), ..Choice::default() };
                let rewrite = Rewrite {
                    is_cleared: is(2),
                    applies: is(3),
                    empties: is(3) && is(4),
                    is_freed: is(5),
                    is_event: is(6),
                };
                let is_quiet = is(1);
                let expected = match step {
                    Step::Clear => either(rewrite.is_cleared, Step::Choose, Step::Clear),
                    Step::Choose => either(is(0), Step::Look, Step::Choose),
                    Step::Look => Step::Decide,
                    Step::Decide => Step::Again,
                    Step::Again => Step::Look,
                    Step::Hold => either(is_quiet, Step::Compare, Step::Hold),
                    Step::Compare => Step::Apply,
                    Step::Apply if is(3) => either(is(4), Step::Free, Step::Choose),
                    Step::Apply => Step::Apply,
                    Step::Free if is(5) => either(is(6), Step::Choose, Step::Again),
                    Step::Free => Step::Follow,
                    Step::Follow => Step::Free,
                };
                let after = step_after(step, choice, Step::Again, is_quiet, rewrite);
                assert_eq!(after, expected, "{step:?} {events:07b}");
            }
        }
    }
}
