//! Decisions of the block about one burst.
use crate::messages::{BURST_SLOTS, FetchReport, FetchResume, LAP_BITS, TURN_SIZE_BITS, slots_of_turn};
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
    /// More slots were posted than the burst takes.
    pub has_more: Bit,
    /// Slots, 1 to 8.
    pub count: Bits<4>,
    /// Offset of the first slot in the ring.
    pub offset: Bits<OFFSET_BITS>,
    /// Slots before the end of the ring, at most 8.
    pub to_end: Bits<4>,
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
    size: Bits<TURN_SIZE_BITS>,
) -> BurstPlan {
    let most = slots_of_turn(size);
    let available = producer - fetched.index;
    let ring_slots = bits::<WORK_INDEX_BITS>(1) << ring.slots_log2;
    let slot = fetched.index & (ring_slots - 1);
    let slots_to_end = ring_slots - slot;
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
        overlaps: select(plan.is_overrun, fetched.overlaps, plan.has_more),
        ..fetched
    }
}

/// Says whether wqe_parse will request what was posted after a burst.
#[kernel]
pub(super) fn ends_single(fetched: Fetched, plan: BurstPlan) -> Bit {
    fetched.is_single && plan.has_more && !plan.is_overrun
}

/// What the ready line is told after a burst, of which `after` is the record.
#[kernel]
pub(super) fn report_of_burst(
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    fetched: Fetched,
    plan: BurstPlan,
    after: Fetched,
) -> FetchReport {
    FetchReport {
        queue_pair,
        has_more: plan.has_more && !plan.is_overrun && !fetched.is_single,
        is_stopped: after.is_stopped,
        begins_burst: true,
    }
}

/// What the ready line is told when `is_stopped` may have changed. After a setup event there may be something to
/// fetch, whatever has changed.
#[kernel]
pub(super) fn report_of_change(
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    has_more: Bit,
    is_stopped: Bit,
) -> FetchReport {
    FetchReport { queue_pair, has_more, is_stopped, begins_burst: false }
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
        lap: resume.lap,
    }
}

/// The slots of a burst reach beyond the end of the ring, where the rest of them is at its beginning.
#[kernel]
pub(super) fn is_split(plan: BurstPlan) -> Bit {
    plan.count > plan.to_end
}

/// The slots of a burst up to the end of the ring.
#[kernel]
pub(super) fn first_span(base_page: Bits<52>, plan: BurstPlan) -> HostSpan {
    let page = base_page + bit_cast::<52, 9>(plan.offset.get_bits::<9>(6));
    let count = select(is_split(plan), plan.to_end, plan.count);
    HostSpan {
        address: cat!(page, plan.offset.get_bits::<6>(0), bits::<6>(0)),
        length: cat!(bits::<3>(0), count, bits::<6>(0)),
    }
}

/// The slots of a burst from the beginning of the ring.
#[kernel]
pub(super) fn rest_span(base_page: Bits<52>, plan: BurstPlan) -> HostSpan {
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
    fn a_burst_takes_what_was_posted_up_to_the_slots_of_the_turn_and_splits_where_the_ring_ends() {
        // Size of the turn, log2 of the ring, index, slots posted; then slots of the burst, whether more follow,
        // offset, slots to the end.
        for (size, slots_log2, index, posted, count, has_more, offset, to_end) in [
            (3, 6, 0, 1, 1, false, 0, 8),
            (3, 6, 0, 8, 8, false, 0, 8),
            (3, 6, 0, 9, 8, true, 0, 8),
            (3, 6, 0, 64, 8, true, 0, 8),
            (0, 6, 0, 1, 1, false, 0, 8),
            (0, 6, 0, 2, 2, false, 0, 8),
            (0, 6, 0, 3, 2, true, 0, 8),
            (1, 6, 0, 4, 3, true, 0, 8),
            (2, 6, 0, 5, 5, false, 0, 8),
            (2, 6, 60, 6, 5, true, 60, 4),
            (3, 6, 56, 8, 8, false, 56, 8),
            (3, 6, 57, 8, 8, false, 57, 7),
            (3, 6, 63, 2, 2, false, 63, 1),
            (3, 6, 0xffff, 2, 2, false, 63, 1),
            (3, 15, 0x7fff, 9, 8, true, 0x7fff, 1),
        ] {
            let name = format!("2^{slots_log2} slots, {posted} posted at {index:#x}");
            let producer = bits::<16>(index) + posted;
            let plan =
                plan_burst(ring(QpState::ReadyToSend, slots_log2), fetched(index), producer, bits(size));
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
                let rest = rest_span(bits(0x1000), plan);
                assert_eq!(rest.address, bits(0x100_0000), "{name}");
                assert_eq!(rest.length, bits(64 * (count - to_end)), "{name}");
            }
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
                plan_burst(ring(state, 6), fetched, bits(producer), bits(3)).is_due,
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
            let plan = plan_burst(ring(QpState::ReadyToSend, 6), fetched, bits::<16>(3) + claimed, bits(3));
            assert_eq!(plan.is_overrun, expected, "{claimed} slots, {overlaps}");
        }
    }

    #[test]
    fn bursts_overlap_by_one_slot_where_more_follow() {
        for (is_overrun, has_more, count, overlaps, expected) in [
            (false, false, 5, true, (105, false, false)),
            (false, false, 8, false, (108, false, false)),
            (false, true, 8, false, (107, false, true)),
            (false, true, 2, false, (101, false, true)),
            (true, true, 8, false, (100, true, false)),
            (true, true, 8, true, (100, true, true)),
        ] {
            let plan = BurstPlan { is_overrun, has_more, count: bits(count), ..BurstPlan::default() };
            let before = Fetched { overlaps, ..fetched(100) };
            let after = after_burst(before, plan);
            let report = report_of_burst(bits(7), before, plan, after);
            assert_eq!((report.has_more, report.is_stopped), (has_more && !is_overrun, is_overrun));
            assert_eq!((after.index.to_u64(), after.is_stopped, after.overlaps), expected);
            let before = Fetched { is_single: true, ..before };
            let after = after_burst(before, plan);
            let report = report_of_burst(bits(7), before, plan, after);
            assert_eq!((report.has_more, report.is_stopped), (false, after.is_stopped));
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
