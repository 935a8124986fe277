//! Rules of [`ReadyLine`](super::ReadyLine): what a queue pair has to do, which gates are open, and what it pays for
//! what it has sent (design decision 10).
use super::{PACE_BITS, STILL_BITS};
use crate::messages::{DEBT_BITS, FetchReport, SegmentReport, TURN_SIZE_BITS};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// Width of a number of bursts whose bytes are not known.
const BURSTS_BITS: usize = 3;
/// A burst of less is small: its queue pair may fetch as far ahead as there is room.
const SMALL_KIBIBYTES: u64 = 4;
/// After a burst of less than this, turns become larger.
const SHORT_KIBIBYTES: u64 = 12;
/// After a burst of this or more, turns become smaller.
const LONG_KIBIBYTES: u64 = 24;
/// Cycles of a round: a queue pair that fetches a burst is back in the line before another has had two.
const ROUND_CYCLES: u64 = 12;

/// Work, gates and debt of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Record {
    /// Work: there may be slots to fetch, and a gate was closed.
    pub has_slots: Bit,
    /// Gate, of wqe_fetch: wqe_parse has stopped it.
    pub is_stopped: Bit,
    /// Gate, of wqe_fetch and segment: bursts that were requested and have not ended, up to seven.
    pub bursts: Bits<BURSTS_BITS>,
    /// The last burst that has ended was small.
    pub is_small: Bit,
    /// Slots that a turn may fetch.
    pub size: Bits<TURN_SIZE_BITS>,
    /// Units that were sent and are not paid.
    pub debt: Bits<DEBT_BITS>,
    /// Toggles when the queue pair enters the line for its slots.
    pub fetch_lap: Bit,
}

/// What has happened to a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Event {
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// There may be slots to fetch.
    pub has_slots: Bit,
    /// The rest of a long message waits.
    pub has_rest: Bit,
    /// `is_stopped` is valid.
    pub is_fetch: Bit,
    pub is_stopped: Bit,
    pub begins_burst: Bit,
    pub ends_burst: Bit,
    pub kibibytes: Bits<DEBT_BITS>,
}

/// Chooses an event: doorbells cannot wait, and segment goes before fetch.
#[kernel]
pub(super) fn event_of(
    is_posted: Bit,
    posted: Bits<QUEUE_PAIR_BITS>,
    has_report: Bit,
    segment: SegmentReport,
    fetch: FetchReport,
) -> Event {
    let is_segment = !is_posted && has_report;
    let is_fetch = !is_posted && !has_report;
    Event {
        queue_pair: if is_posted {
            posted
        } else if is_segment {
            segment.queue_pair
        } else {
            fetch.queue_pair
        },
        has_slots: is_posted || (is_fetch && fetch.has_more),
        has_rest: is_segment && segment.has_rest,
        is_fetch,
        is_stopped: fetch.is_stopped,
        begins_burst: is_fetch && fetch.begins_burst,
        ends_burst: is_segment && segment.ends_burst,
        kibibytes: select(is_segment, segment.kibibytes, bits::<DEBT_BITS>(0)),
    }
}

/// Bursts after an event. Kept slots are shown in bursts that were not requested, so none is too few.
#[kernel]
pub(super) fn bursts_after(bursts: Bits<BURSTS_BITS>, begins: Bit, ends: Bit) -> Bits<BURSTS_BITS> {
    if begins && !bursts.all() {
        bursts + 1
    } else if ends && bursts.any() {
        bursts - 1
    } else {
        bursts
    }
}

/// Size of a turn after a burst of which `kibibytes` were sent.
#[kernel]
pub(super) fn size_after(size: Bits<TURN_SIZE_BITS>, kibibytes: Bits<DEBT_BITS>) -> Bits<TURN_SIZE_BITS> {
    if kibibytes < SHORT_KIBIBYTES && !size.all() {
        size + 1
    } else if kibibytes >= LONG_KIBIBYTES && size.any() {
        size - 1
    } else {
        size
    }
}

/// Debt after more was sent; what exceeds the most is forgiven.
#[kernel]
pub(super) fn debt_after(debt: Bits<DEBT_BITS>, kibibytes: Bits<DEBT_BITS>) -> Bits<DEBT_BITS> {
    let sum = bit_cast::<7, DEBT_BITS>(debt) + bit_cast::<7, DEBT_BITS>(kibibytes);
    select(sum.get_bit(DEBT_BITS), !bits::<DEBT_BITS>(0), sum.get_bits::<DEBT_BITS>(0))
}

/// Record after an event, before the queue pair enters the line.
#[kernel]
pub(super) fn after_event(record: Record, event: Event) -> Record {
    Record {
        has_slots: record.has_slots || event.has_slots,
        is_stopped: select(event.is_fetch, event.is_stopped, record.is_stopped),
        bursts: bursts_after(record.bursts, event.begins_burst, event.ends_burst),
        is_small: select(event.ends_burst, event.kibibytes < SMALL_KIBIBYTES, record.is_small),
        size: select(event.ends_burst, size_after(record.size, event.kibibytes), record.size),
        debt: debt_after(record.debt, event.kibibytes),
        fetch_lap: record.fetch_lap,
    }
}

/// Says whether all gates of a queue pair's slots are open.
#[kernel]
pub(super) fn is_open(record: Record) -> Bit {
    !record.is_stopped && (record.is_small || !record.bursts.all())
}

/// Says whether a queue pair enters the line for its slots: it has work, and every gate is open.
#[kernel]
pub(super) fn enters_for_slots(record: Record, is_queued: Bit) -> Bit {
    record.has_slots && is_open(record) && !is_queued
}

/// Says whether a queue pair enters the line for the rest of a long message. Segment knows whether it stands there.
#[kernel]
pub(super) fn enters_for_rest(event: Event) -> Bit {
    event.has_rest
}

/// Record after the queue pair has entered the line, or not. A turn to come sees what was posted; who enters takes
/// the debt along.
#[kernel]
pub(super) fn record_after(record: Record, is_queued: Bit, for_slots: Bit, for_rest: Bit) -> Record {
    Record {
        has_slots: record.has_slots && !for_slots && !is_queued,
        debt: select(for_slots || for_rest, bits::<DEBT_BITS>(0), record.debt),
        fetch_lap: record.fetch_lap != for_slots,
        ..record
    }
}

/// Says whether the head of the line leaves. The first unit is free: it is what a turn of short messages has.
#[kernel]
pub(super) fn may_leave(debt: Bits<DEBT_BITS>, is_alone: Bit) -> Bit {
    debt <= 1 || is_alone
}

/// Cycles until the next round may end, after a cycle in which one has ended if `passes`.
#[kernel]
pub(super) fn after_round(pace: Bits<PACE_BITS>, passes: Bit) -> Bits<PACE_BITS> {
    if passes {
        bits::<PACE_BITS>(ROUND_CYCLES - 1)
    } else if pace.any() {
        pace - 1
    } else {
        pace
    }
}

/// Says whether no other queue pair has entered for a while.
#[kernel]
pub(super) fn is_still(still: Bits<STILL_BITS>) -> Bit {
    still.get_bit(STILL_BITS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_stands_in_line_when_it_has_work_and_every_gate_is_open() {
        // Work, stopped, bursts under way, the last one was small, stands already; whether it enters.
        for (has_slots, is_stopped, bursts, is_small, is_queued, expected) in [
            (true, false, 0, false, false, true),
            (false, false, 0, false, false, false),
            (true, true, 0, false, false, false),
            (true, false, 6, false, false, true),
            (true, false, 7, false, false, false),
            (true, false, 7, true, false, true),
            (true, true, 7, true, false, false),
            (true, false, 0, false, true, false),
        ] {
            let record =
                Record { has_slots, is_stopped, bursts: super::bits(bursts), is_small, ..Record::default() };
            let name = format!("{record:?}, {is_queued}");
            assert_eq!(enters_for_slots(record, is_queued), expected, "{name}");
            let after = record_after(record, is_queued, expected, false);
            assert_eq!(after.fetch_lap, expected, "{name}");
            let is_left = has_slots && !expected && !is_queued;
            assert_eq!(after.has_slots, is_left, "{name}: what waits for a gate is remembered");
        }
    }

    #[test]
    fn each_gate_has_one_writer() {
        let before = Record { is_stopped: true, bursts: bits(3), debt: bits(5), ..Record::default() };
        let fetch = Event { is_fetch: true, ..Event::default() };
        let segment = Event { ends_burst: true, kibibytes: bits(20), ..Event::default() };
        for (name, event, is_stopped, bursts, debt) in [
            ("doorbell", Event { has_slots: true, ..Event::default() }, true, 3, 5),
            ("fetch goes on", fetch, false, 3, 5),
            ("fetch stops", Event { is_stopped: true, ..fetch }, true, 3, 5),
            ("a burst begins", Event { begins_burst: true, ..fetch }, false, 4, 5),
            ("a burst ends", segment, true, 2, 25),
            ("a rest waits", Event { has_rest: true, ends_burst: false, ..segment }, true, 3, 25),
        ] {
            let after = after_event(before, event);
            let found = (after.is_stopped, after.bursts.to_u64(), after.debt.to_u64());
            assert_eq!(found, (is_stopped, bursts, debt), "{name}");
        }
    }

    #[test]
    fn counts_of_bursts_and_debts_stay_within_their_bounds() {
        for (bursts, begins, ends, expected) in [
            (0, true, false, 1),
            (7, true, false, 7),
            (7, false, true, 6),
            (0, false, true, 0),
            (3, false, false, 3),
        ] {
            assert_eq!(bursts_after(bits(bursts), begins, ends), bits(expected), "{bursts}");
        }
        for (debt, more, expected) in [(0, 0, 0), (0, 16, 16), (40, 23, 63), (40, 24, 63), (63, 63, 63)] {
            assert_eq!(debt_after(bits(debt), bits(more)), bits(expected), "{debt} and {more}");
        }
    }

    #[test]
    fn a_turn_has_as_many_slots_as_make_a_quantum() {
        for (size, kibibytes, expected) in
            [(0, 11, 1), (0, 12, 0), (0, 63, 0), (2, 11, 3), (2, 23, 2), (2, 24, 1), (3, 0, 3), (3, 24, 2)]
        {
            assert_eq!(size_after(bits(size), bits(kibibytes)), bits(expected), "{kibibytes} KiB at {size}");
        }
        for (kibibytes, expected) in [(3, true), (4, false)] {
            let event = Event { ends_burst: true, kibibytes: bits(kibibytes), ..Event::default() };
            assert_eq!(after_event(Record::default(), event).is_small, expected, "{kibibytes} KiB");
        }
        // Messages of one length end at one size.
        for length in [64, 256, 1024, 2048, 3072, 4096, 8192, 16384] {
            let mut size = bits(0);
            let mut turns = vec![];
            for _ in 0..12 {
                let new_slots = crate::messages::slots_of_turn(size).to_u64() - 1;
                let kibibytes = (new_slots * (length + 64 * (length / 4096).max(1)) / 1024).min(63);
                turns.push(kibibytes);
                size = size_after(size, bits(kibibytes));
            }
            assert!(turns[8..].iter().all(|turn| *turn == turns[11] && *turn < 24), "{length}: {turns:?}");
            assert!(length < 3072 || turns[11] >= 12, "{length}: {turns:?}");
        }
    }

    #[test]
    fn the_head_leaves_without_debt_or_alone() {
        for (debt, is_alone, expected) in
            [(0, false, true), (1, false, true), (2, false, false), (63, true, true)]
        {
            assert_eq!(may_leave(bits(debt), is_alone), expected, "{debt}, {is_alone}");
        }
        assert_eq!(after_round(bits(0), true), bits(11));
        assert_eq!((after_round(bits(11), false), after_round(bits(0), false)), (bits(10), bits(0)));
        assert!(is_still(bits(64)) && !is_still(bits(63)));
    }

    #[test]
    fn doorbells_go_first_and_segment_goes_before_fetch() {
        let segment =
            SegmentReport { queue_pair: bits(2), has_rest: true, ends_burst: true, kibibytes: bits(9) };
        let fetch = FetchReport { queue_pair: bits(3), has_more: true, is_stopped: true, begins_burst: true };
        let event = event_of(true, bits(1), true, segment, fetch);
        let posted = Event { queue_pair: bits(1), has_slots: true, is_stopped: true, ..Event::default() };
        assert_eq!(event, posted);
        let event = event_of(false, bits(1), true, segment, fetch);
        assert_eq!((event.queue_pair, event.has_slots, event.is_fetch), (bits(2), false, false));
        assert_eq!((event.has_rest, event.ends_burst, event.kibibytes), (true, true, bits(9)));
        let event = event_of(false, bits(1), false, segment, fetch);
        assert_eq!((event.queue_pair, event.has_slots, event.is_fetch), (bits(3), true, true));
        assert_eq!((event.has_rest, event.ends_burst, event.kibibytes), (false, false, bits(0)));
    }
}
