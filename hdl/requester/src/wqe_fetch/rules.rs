//! Decisions of the block about one burst.
use super::{LINE_BITS, SLOT_COUNT_BITS, Step};
use crate::messages::{BURST_SLOTS, FetchResume, LAP_BITS, WqeBurst};
use crate::weight::{CHARGE_BITS, CHARGE_MAX, QUANTUM_UNITS, WEIGHT_BITS, charge_of, most_slots};
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::host::HostSpan;
use rnic_messages::setup::SetupEvent;
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, WORK_INDEX_BITS};

/// Bits of the offset of a slot in its ring.
pub(super) const OFFSET_BITS: usize = rnic_layout::limits::SEND_SLOTS_LOG2_MAX as usize;

/// Ring of a queue pair, as commands set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Ring {
    /// A `QpState`.
    pub state: Bits<3>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Number of the first 4 KiB page.
    pub base_page: Bits<52>,
    /// `log2` of the slots.
    pub slots_log2: Bits<4>,
}

/// Progress of fetching for a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Fetched {
    /// Free-running index of the slot to fetch next.
    pub index: Bits<WORK_INDEX_BITS>,
    /// Nothing is fetched until wqe_parse requests it.
    pub is_stopped: Bit,
    /// Nothing is fetched after the next burst until wqe_parse requests it, if more was posted.
    pub is_single: Bit,
    /// The slot was fetched before, and may have been completed and posted anew since.
    pub overlaps: Bit,
    /// Messages are sent again, in SQD too.
    pub replays: Bit,
    /// No burst was requested since wqe_parse has told where to continue. It may soon stop again.
    pub is_resumed: Bit,
    /// How often wqe_parse has moved the index.
    pub lap: Bits<LAP_BITS>,
}

/// What to request for a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct BurstPlan {
    /// There is a burst.
    pub is_due: Bit,
    /// The producer index claims more slots than the ring has: the burst has none.
    pub is_overrun: Bit,
    /// More slots were posted than one burst takes.
    pub has_more: Bit,
    /// Slots, 1 to 8.
    pub count: Bits<4>,
    /// Offset of the first slot in the ring.
    pub offset: Bits<OFFSET_BITS>,
    /// Slots before the end of the ring, at most 8.
    pub to_end: Bits<4>,
}

/// The turn of the queue pair that had the last burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Turn {
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// It has the next burst, too.
    pub goes_on: Bit,
    /// Units that it has had.
    pub units: Bits<CHARGE_BITS>,
}

/// What an idle block may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Offers {
    pub setup: Bit,
    pub resume: Bit,
    /// A queue pair has the rest of a message.
    pub rest: Bit,
    /// A queue pair is in the ready queue, or goes on with its turn.
    pub next: Bit,
}

/// Which of them it takes; one at most.
#[kernel]
pub(super) fn taken_first(offers: Offers, may_start: Bit, may_begin: Bit) -> Offers {
    let setup = may_start && offers.setup;
    let resume = may_start && offers.resume && !offers.setup;
    let rest = may_start && offers.rest && !offers.setup && !offers.resume;
    Offers {
        setup,
        resume,
        rest,
        next: may_start && may_begin && !offers.setup && !offers.resume && !offers.rest,
    }
}

/// The queue pair of what it takes.
#[kernel]
pub(super) fn chosen_of(
    takes: Offers,
    setup: Bits<QUEUE_PAIR_BITS>,
    resume: Bits<QUEUE_PAIR_BITS>,
    rest: Bits<QUEUE_PAIR_BITS>,
    next: Bits<QUEUE_PAIR_BITS>,
) -> Bits<QUEUE_PAIR_BITS> {
    if takes.setup {
        setup
    } else if takes.resume {
        resume
    } else if takes.rest {
        rest
    } else {
        next
    }
}

/// Chooses what an idle block does.
#[kernel]
pub(super) fn first_step(takes: Offers, has_next: Bit) -> Step {
    if takes.setup {
        Step::Setup
    } else if takes.resume {
        Step::Resume
    } else if takes.rest {
        Step::Rest
    } else if takes.next && has_next {
        Step::Read
    } else {
        Step::Idle
    }
}

/// Step after another one. `first` is that of an idle block; an event is taken, and a burst is split where the ring ends.
#[kernel]
pub(super) fn step_after(step: Step, first: Step, is_taken: Bit, is_split: Bit) -> Step {
    match step {
        Step::Idle => first,
        Step::Setup if !is_taken => Step::Setup,
        Step::Read => Step::Plan,
        Step::Plan => Step::Emit,
        Step::Emit if is_split => Step::EmitWrapped,
        _ => Step::Idle,
    }
}

/// WQEs are fetched in RTS, in SQD to be sent again, and in ERR and SQE to be flushed.
#[kernel]
pub(super) fn fetches(state: Bits<3>, replays: Bit) -> Bit {
    state == QpState::ReadyToSend as u64
        || (state == QpState::SendQueueDrain as u64 && replays)
        || state == QpState::Error as u64
        || state == QpState::SendQueueError as u64
}

/// The ring after a setup event.
#[kernel]
pub(super) fn ring_of(event: SetupEvent) -> Ring {
    Ring {
        state: event.state,
        generation: event.generation,
        base_page: event.path.send_base_page,
        slots_log2: event.path.send_slots_log2,
    }
}

/// Plans a burst from the producer index and the index to fetch next, both free-running.
#[kernel]
pub(super) fn plan_burst(
    ring: Ring,
    fetched: Fetched,
    producer: Bits<WORK_INDEX_BITS>,
    weight: Bits<WEIGHT_BITS>,
) -> BurstPlan {
    let available = producer - fetched.index;
    let ring_slots = bits::<WORK_INDEX_BITS>(1) << ring.slots_log2;
    let slot = fetched.index & (ring_slots - 1);
    let slots_to_end = ring_slots - slot;
    let most = most_slots(weight);
    let has_more = available > bit_cast::<WORK_INDEX_BITS, 4>(most);
    // One slot more than the ring has: the slot of the overlap has completed and was posted again, after all
    // others.
    let is_posted_anew = fetched.overlaps && available == ring_slots | 1;
    BurstPlan {
        is_due: fetches(ring.state, fetched.replays) && !fetched.is_stopped && available.any(),
        is_overrun: available > ring_slots && !is_posted_anew,
        has_more,
        count: select(has_more, most, available.get_bits::<4>(0)),
        offset: slot.get_bits::<OFFSET_BITS>(0),
        to_end: if slots_to_end > BURST_SLOTS {
            bits::<4>(BURST_SLOTS)
        } else {
            slots_to_end.get_bits::<4>(0)
        },
    }
}

/// Units that a burst takes of the line.
#[kernel]
pub(super) fn taken_of(plan: BurstPlan, weight: Bits<WEIGHT_BITS>) -> Bits<CHARGE_BITS> {
    let charge = charge_of(plan.count, plan.has_more, weight);
    select(plan.is_overrun, bits::<CHARGE_BITS>(0), charge)
}

/// Slots that may still be requested, after those of a burst were, and one has returned.
#[kernel]
pub(super) fn room_after(
    room: Bits<SLOT_COUNT_BITS>,
    reads: Bit,
    count: Bits<4>,
    returns: Bit,
) -> Bits<SLOT_COUNT_BITS> {
    let taken = select(reads, bit_cast::<SLOT_COUNT_BITS, 4>(count), bits::<SLOT_COUNT_BITS>(0));
    room - taken + bit_cast::<SLOT_COUNT_BITS, 1>(returns.into())
}

/// Says whether the line has room for any burst.
#[kernel]
pub(super) fn has_line_room(line: Bits<LINE_BITS>) -> Bit {
    line < (1 << LINE_BITS) - CHARGE_MAX
}

/// Units in the line after a burst has entered, and one has left.
#[kernel]
pub(super) fn line_after(
    line: Bits<LINE_BITS>,
    entered: Bits<CHARGE_BITS>,
    left: Bits<CHARGE_BITS>,
) -> Bits<LINE_BITS> {
    line + bit_cast::<LINE_BITS, CHARGE_BITS>(entered) - bit_cast::<LINE_BITS, CHARGE_BITS>(left)
}

/// Says whether a queue pair may have another burst in the same turn. One that wqe_parse has just resumed has a single
/// burst, since it may be stopped again before its next turn.
#[kernel]
pub(super) fn may_go_on(fetched: Fetched, plan: BurstPlan) -> Bit {
    plan.has_more && !plan.is_overrun && !fetched.is_single && !fetched.is_resumed
}

/// What has become of a queue pair that was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Look {
    /// There is a burst, and no room for it.
    pub waits: Bit,
    /// It has had a burst.
    pub emits: Bit,
    /// It may have another one in the same turn.
    pub may_go_on: Bit,
}

/// The turn after a queue pair was looked at, which goes on until it has had a quantum.
#[kernel]
pub(super) fn turn_after(
    turn: Turn,
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    charge: Bits<CHARGE_BITS>,
    look: Look,
) -> Turn {
    let units = turn.units + select(look.emits, charge, bits::<CHARGE_BITS>(0));
    let goes_on = look.waits || (look.emits && look.may_go_on && units < QUANTUM_UNITS);
    Turn { queue_pair, goes_on, units: select(goes_on, units, bits::<CHARGE_BITS>(0)) }
}

/// The record after a burst. The burst overlaps the next one, if there is one, by its last slot.
#[kernel]
pub(super) fn after_burst(fetched: Fetched, plan: BurstPlan) -> Fetched {
    let advance = if plan.is_overrun {
        bits::<4>(0)
    } else if plan.has_more {
        plan.count - 1
    } else {
        plan.count
    };
    Fetched {
        index: fetched.index + bit_cast::<WORK_INDEX_BITS, 4>(advance),
        is_stopped: plan.is_overrun || ends_single(fetched, plan),
        is_single: false,
        is_resumed: false,
        overlaps: select(plan.is_overrun, fetched.overlaps, plan.has_more),
        ..fetched
    }
}

/// Says whether wqe_parse will request what was posted after a burst.
#[kernel]
fn ends_single(fetched: Fetched, plan: BurstPlan) -> Bit {
    fetched.is_single && plan.has_more && !plan.is_overrun
}

/// The record after wqe_parse has told where to continue, or to stop.
#[kernel]
pub(super) fn after_resume(fetched: Fetched, resume: FetchResume) -> Fetched {
    Fetched {
        index: select(resume.resumes, resume.slot_index, fetched.index),
        is_stopped: !resume.resumes,
        is_single: resume.resumes && resume.is_single,
        overlaps: fetched.overlaps && !resume.resumes,
        replays: resume.replays,
        is_resumed: resume.resumes,
        lap: resume.lap,
    }
}

/// The slots of a burst reach beyond the end of the ring, where the others are at its beginning.
#[kernel]
pub(super) fn is_split(plan: BurstPlan) -> Bit {
    plan.count > plan.to_end
}

/// The burst as it leaves.
#[kernel]
pub(super) fn burst_of(
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    ring: Ring,
    fetched: Fetched,
    plan: BurstPlan,
    weight: Bits<WEIGHT_BITS>,
    charge: Bits<CHARGE_BITS>,
) -> WqeBurst {
    WqeBurst {
        queue_pair,
        generation: ring.generation,
        first_index: fetched.index,
        count: plan.count,
        lap: fetched.lap,
        ends_queue: !plan.has_more,
        is_overrun: plan.is_overrun,
        is_single: ends_single(fetched, plan),
        is_kept: false,
        weight,
        charge,
    }
}

/// The slots of a burst: those up to the end of the ring, or those at its beginning.
#[kernel]
pub(super) fn span_of(is_wrapped: Bit, base_page: Bits<52>, plan: BurstPlan) -> HostSpan {
    let wrapped = wrapped_span(base_page, plan);
    let first = first_span(base_page, plan);
    select(is_wrapped, wrapped, first)
}

/// The slots of a burst up to the end of the ring.
#[kernel]
fn first_span(base_page: Bits<52>, plan: BurstPlan) -> HostSpan {
    let page = base_page + bit_cast::<52, 9>(plan.offset.get_bits::<9>(6));
    let count = select(is_split(plan), plan.to_end, plan.count);
    HostSpan {
        address: cat!(page, plan.offset.get_bits::<6>(0), bits::<6>(0)),
        length: cat!(bits::<3>(0), count, bits::<6>(0)),
    }
}

/// The slots of a burst from the beginning of the ring.
#[kernel]
fn wrapped_span(base_page: Bits<52>, plan: BurstPlan) -> HostSpan {
    HostSpan {
        address: cat!(base_page, bits::<12>(0)),
        length: cat!(bits::<3>(0), plan.count - plan.to_end, bits::<6>(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(state: QpState, slots_log2: u64) -> Ring {
        Ring { state: bits(state as u64), slots_log2: bits(slots_log2), ..Ring::default() }
    }

    fn fetched(index: u64) -> Fetched {
        Fetched { index: bits(index), ..Fetched::default() }
    }

    #[test]
    fn a_burst_is_read_planned_and_emitted() {
        for (setup, resume, rest, next, expected) in [
            (true, true, true, true, Step::Setup),
            (false, true, true, true, Step::Resume),
            (false, false, true, true, Step::Rest),
            (false, false, false, true, Step::Read),
            (false, false, false, false, Step::Idle),
        ] {
            let offers = Offers { setup, resume, rest, next };
            for (may_start, may_begin) in [(false, false), (false, true), (true, false), (true, true)] {
                let takes = taken_first(offers, may_start, may_begin);
                let begins = may_start && (may_begin || expected != Step::Read);
                let first = first_step(takes, next);
                assert_eq!(
                    first,
                    if begins { expected } else { Step::Idle },
                    "{offers:?} {may_start} {may_begin}"
                );
                assert_eq!(step_after(Step::Idle, first, false, false), first);
                let taken = [takes.setup, takes.resume, takes.rest, takes.next && next];
                assert_eq!(taken.iter().filter(|taken| **taken).count(), usize::from(first != Step::Idle));
            }
        }
        for (step, is_taken, is_split, expected) in [
            (Step::Setup, false, false, Step::Setup),
            (Step::Setup, true, false, Step::Idle),
            (Step::Resume, false, false, Step::Idle),
            (Step::Rest, false, true, Step::Idle),
            (Step::Read, false, true, Step::Plan),
            (Step::Plan, false, true, Step::Emit),
            (Step::Emit, false, false, Step::Idle),
            (Step::Emit, false, true, Step::EmitWrapped),
            (Step::EmitWrapped, false, true, Step::Idle),
        ] {
            assert_eq!(step_after(step, Step::Read, is_taken, is_split), expected, "{step:?}");
        }
    }

    #[test]
    fn wqes_are_fetched_to_be_sent_or_flushed() {
        let sent_or_flushed = [QpState::ReadyToSend, QpState::Error, QpState::SendQueueError];
        for number in 0..8 {
            let expected = sent_or_flushed.iter().any(|&state| state as u64 == number);
            assert_eq!(fetches(bits(number), false), expected, "state {number}");
            let drains = QpState::SendQueueDrain as u64 == number;
            assert_eq!(fetches(bits(number), true), expected || drains, "state {number}, sent again");
        }
    }

    #[test]
    fn a_burst_takes_what_was_posted_up_to_eight_slots_and_splits_where_the_ring_ends() {
        // log2 of the ring, index, slots posted; then slots of the burst, whether more follow, offset, slots to
        // the end.
        for (slots_log2, index, posted, count, has_more, offset, to_end) in [
            (6, 0, 1, 1, false, 0, 8),
            (6, 0, 8, 8, false, 0, 8),
            (6, 0, 9, 8, true, 0, 8),
            (6, 0, 64, 8, true, 0, 8),
            (6, 56, 8, 8, false, 56, 8),
            (6, 57, 8, 8, false, 57, 7),
            (6, 63, 2, 2, false, 63, 1),
            (6, 0xffff, 2, 2, false, 63, 1),
            (15, 0x7fff, 9, 8, true, 0x7fff, 1),
        ] {
            let name = format!("2^{slots_log2} slots, {posted} posted at {index:#x}");
            let producer = bits::<16>(index) + posted;
            let plan = plan_burst(ring(QpState::ReadyToSend, slots_log2), fetched(index), producer, bits(0));
            let expected = BurstPlan {
                is_due: true,
                is_overrun: false,
                has_more,
                count: bits(count),
                offset: bits(offset),
                to_end: bits(to_end),
            };
            assert_eq!(plan, expected, "{name}");
            assert_eq!(is_split(plan), count > to_end, "{name}");
            let first = first_span(bits(0x1000), plan);
            assert_eq!(first.address, bits(0x100_0000 + 64 * offset), "{name}");
            assert_eq!(first.length, bits(64 * count.min(to_end)), "{name}");
            if count > to_end {
                let rest = wrapped_span(bits(0x1000), plan);
                assert_eq!(rest.address, bits(0x100_0000), "{name}");
                assert_eq!(rest.length, bits(64 * (count - to_end)), "{name}");
            }
        }
    }

    #[test]
    fn a_heavy_queue_pair_takes_fewer_slots() {
        // Weight, slots posted; then slots of the burst, whether more follow, and units.
        for (weight, posted, count, has_more, charge) in [
            (0, 3, 3, false, 3),
            (0, 9, 8, true, 7),
            (4, 8, 8, false, 128),
            (5, 5, 5, false, 160),
            (5, 6, 5, true, 128),
            (6, 3, 3, false, 192),
            (7, 2, 2, false, 256),
            (7, 3, 2, true, 128),
            (7, 60, 2, true, 128),
        ] {
            let name = format!("weight {weight}, {posted} slots");
            let plan = plan_burst(ring(QpState::ReadyToSend, 6), fetched(5), bits(5 + posted), bits(weight));
            assert_eq!((plan.count.to_u64(), plan.has_more), (count, has_more), "{name}");
            assert_eq!(taken_of(plan, bits(weight)).to_u64(), charge, "{name}");
            let overrun = BurstPlan { is_overrun: true, ..plan };
            assert_eq!(taken_of(overrun, bits(weight)).to_u64(), 0, "{name}");
            assert_eq!(
                after_burst(fetched(5), plan).index,
                bits::<16>(5 + count - u64::from(has_more)),
                "{name}"
            );
        }
    }

    #[test]
    fn a_burst_begins_only_if_the_line_has_room_for_any() {
        for (line, expected) in [(0, true), (767, true), (768, false), (1023, false)] {
            assert_eq!(has_line_room(bits(line)), expected, "{line} units");
        }
        assert_eq!(line_after(bits(767), bits(256), bits(0)).to_u64(), 1023);
        assert_eq!(line_after(bits(300), bits(64), bits(256)).to_u64(), 108);
        for (reads, returns, expected) in
            [(false, false, 512), (true, false, 504), (false, true, 513), (true, true, 505)]
        {
            assert_eq!(room_after(bits(512), reads, bits(8), returns).to_u64(), expected);
        }
    }

    #[test]
    fn a_turn_goes_on_until_it_has_a_quantum() {
        let more = BurstPlan { is_due: true, has_more: true, ..BurstPlan::default() };
        let plain = fetched(5);
        for (name, fetched, plan, expected) in [
            ("more was posted", plain, more, true),
            ("no more was posted", plain, BurstPlan { has_more: false, ..more }, false),
            ("an overrun", plain, BurstPlan { is_overrun: true, ..more }, false),
            ("a single burst", Fetched { is_single: true, ..plain }, more, false),
            ("wqe_parse has just resumed it", Fetched { is_resumed: true, ..plain }, more, false),
        ] {
            assert_eq!(may_go_on(fetched, plan), expected, "{name}");
        }
        let resume = FetchResume { resumes: true, ..FetchResume::default() };
        assert!(after_resume(plain, resume).is_resumed);
        assert!(!after_burst(after_resume(plain, resume), more).is_resumed);
        let burst = Look { emits: true, may_go_on: true, waits: false };
        let last = Look { may_go_on: false, ..burst };
        let waits = Look { waits: true, emits: false, may_go_on: true };
        let nothing = Look { waits: false, ..waits };
        // Units before, those of the burst; whether it goes on, and units after.
        for (before, charge, look, expected) in [
            (0, 7, burst, (true, 7)),
            (119, 7, burst, (true, 126)),
            (121, 7, burst, (false, 0)),
            (0, 128, burst, (false, 0)),
            (7, 7, last, (false, 0)),
            (0, 128, waits, (true, 0)),
            (7, 7, waits, (true, 7)),
            (7, 7, nothing, (false, 0)),
        ] {
            let turn = Turn { queue_pair: bits(3), goes_on: before != 0, units: bits(before) };
            let after = turn_after(turn, bits(4), bits(charge), look);
            assert_eq!((after.goes_on, after.units.to_u64()), expected, "{before} + {charge}");
            assert_eq!(after.queue_pair, 4);
        }
    }

    #[test]
    fn nothing_is_due_without_slots_or_while_stopped() {
        let stopped = Fetched { is_stopped: true, ..fetched(5) };
        for (state, fetched, producer, expected) in [
            (QpState::ReadyToSend, fetched(5), 5, false),
            (QpState::ReadyToSend, fetched(5), 6, true),
            (QpState::ReadyToSend, stopped, 6, false),
            (QpState::SendQueueDrain, fetched(5), 6, false),
            (QpState::Error, fetched(5), 6, true),
        ] {
            assert_eq!(
                plan_burst(ring(state, 6), fetched, bits(producer), bits(0)).is_due,
                expected,
                "{state:?}"
            );
        }
    }

    #[test]
    fn a_producer_index_beyond_the_ring_is_an_overrun() {
        // Slots claimed in a ring of 64, and whether the next slot was fetched before.
        for (claimed, overlaps, expected) in
            [(64, false, false), (65, false, true), (65, true, false), (66, true, true), (0xffff, true, true)]
        {
            let fetched = Fetched { overlaps, ..fetched(3) };
            let plan = plan_burst(ring(QpState::ReadyToSend, 6), fetched, bits::<16>(3) + claimed, bits(0));
            assert_eq!(plan.is_overrun, expected, "{claimed} slots, {overlaps}");
        }
    }

    #[test]
    fn bursts_overlap_by_one_slot_where_more_follow() {
        for (is_overrun, has_more, count, overlaps, expected) in [
            (false, false, 5, true, (105, false, false)),
            (false, false, 8, false, (108, false, false)),
            (false, true, 8, false, (107, false, true)),
            (true, true, 8, false, (100, true, false)),
            (true, true, 8, true, (100, true, true)),
        ] {
            let plan = BurstPlan { is_overrun, has_more, count: bits(count), ..BurstPlan::default() };
            let after = after_burst(Fetched { overlaps, ..fetched(100) }, plan);
            assert_eq!((after.index.to_u64(), after.is_stopped, after.overlaps), expected);
            let after = after_burst(Fetched { overlaps, is_single: true, ..fetched(100) }, plan);
            let is_stopped = is_overrun || has_more;
            assert_eq!((after.index.to_u64(), after.is_stopped), (expected.0, is_stopped), "a single burst");
            assert!(!after.is_single);
        }
    }

    #[test]
    fn wqe_parse_moves_the_index_or_stops_fetching() {
        let before = Fetched { overlaps: true, ..fetched(100) };
        for (resumes, is_single, expected) in [
            (true, false, (96, false, false, false)),
            (true, true, (96, false, false, true)),
            (false, false, (100, true, true, false)),
        ] {
            let resume = FetchResume { slot_index: bits(96), resumes, is_single, ..FetchResume::default() };
            let after = after_resume(Fetched { is_single: !is_single, ..before }, resume);
            let after = (after.index.to_u64(), after.is_stopped, after.overlaps, after.is_single);
            assert_eq!(after, expected);
        }
    }
}
