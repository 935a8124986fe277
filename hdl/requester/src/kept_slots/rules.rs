//! Rules of [`KeptSlots`](super::KeptSlots): what a slot and a question make of a row.
use super::{ADDRESS_BITS, ROW_BITS, ROW_SLOTS_BITS};
use crate::messages::{BURST_SLOTS, KeptAnswer, KeptEvent, WqeBurst, WqeSlot};
use crate::weight::{CHARGE_BITS, KEPT_WEIGHT, WEIGHT_BITS};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{GENERATION_BITS, QUEUE_PAIR_BITS, WORK_INDEX_BITS};

/// Bits of a queue pair that its row does not tell.
const TAG_BITS: usize = QUEUE_PAIR_BITS - ROW_BITS;
/// Width of a number of slots of a row.
const COUNT_BITS: usize = ROW_SLOTS_BITS + 1;
/// Most slots that are shown at once. A queue pair that is woken has room for one message or few; what does not fit
/// costs wqe_parse as much as what does.
const SHOWN_SLOTS: u64 = 4;

/// Row of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Row {
    /// Upper bits of its queue pair.
    pub tag: Bits<TAG_BITS>,
    /// Generation of the queue pair.
    pub generation: Bits<GENERATION_BITS>,
    /// Free-running index of the first slot.
    pub first: Bits<WORK_INDEX_BITS>,
    /// Slots; with none, the row is free.
    pub count: Bits<COUNT_BITS>,
    /// More slots have been asked for.
    pub is_filling: Bit,
    /// A burst is under way.
    pub is_shown: Bit,
}

/// Row of a queue pair.
#[kernel]
pub(super) fn row_index(queue_pair: Bits<QUEUE_PAIR_BITS>) -> Bits<ROW_BITS> {
    queue_pair.get_bits::<ROW_BITS>(0)
}

/// Address of a slot.
#[kernel]
pub(super) fn place_of(
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    index: Bits<WORK_INDEX_BITS>,
) -> Bits<ADDRESS_BITS> {
    cat!(row_index(queue_pair), index.get_bits::<ROW_SLOTS_BITS>(0))
}

/// Says whether a row is of a queue pair in a generation.
#[kernel]
pub(super) fn is_of(row: Row, queue_pair: Bits<QUEUE_PAIR_BITS>, generation: Bits<GENERATION_BITS>) -> Bit {
    row.count.any() && row.tag == queue_pair.get_bits::<TAG_BITS>(ROW_BITS) && row.generation == generation
}

/// Says whether a row begins anew with a slot: its queue pair is held at it, and no burst of the row is under way.
#[kernel]
pub(super) fn opens(row: Row, slot: WqeSlot, keeps: Bit) -> Bit {
    keeps && !slot.is_kept && !row.is_shown
}

/// Says whether a slot is the next one of a row that has room.
#[kernel]
pub(super) fn extends(row: Row, slot: WqeSlot) -> Bit {
    is_of(row, slot.queue_pair, slot.generation)
        && !slot.is_kept
        && slot.index == row.first + bit_cast::<WORK_INDEX_BITS, COUNT_BITS>(row.count)
        && !row.count.get_bit(ROW_SLOTS_BITS)
}

/// Says whether a slot is stored.
#[kernel]
pub(super) fn stores(row: Row, slot: WqeSlot, keeps: Bit) -> Bit {
    (opens(row, slot, keeps) || extends(row, slot)) && !slot.is_overrun && !slot.is_unreadable
}

/// Says whether a slot may be the last one of a burst that was asked for to fill a row: wqe_fetch has not gone on
/// after it.
#[kernel]
pub(super) fn fills(slot: WqeSlot) -> Bit {
    slot.ends_burst && !slot.is_kept && (slot.is_single || slot.ends_queue || slot.is_overrun)
}

/// Row after a slot, at which its queue pair is held if `holds`, and waits for READs if `keeps`. A row that would
/// begin with a slot that could not be read is free, and so is that of a queue pair that waits for something else.
/// Where a slot of wqe_fetch is held, fetch stops, so nothing is on its way.
#[kernel]
pub(super) fn after_slot(row: Row, slot: WqeSlot, holds: Bit, keeps: Bit) -> Row {
    let is_stored = stores(row, slot, keeps);
    let is_own = is_of(row, slot.queue_pair, slot.generation);
    let stops = holds && !slot.is_kept && is_own;
    let ends = slot.is_kept && slot.ends_burst && is_own;
    if opens(row, slot, keeps) {
        Row {
            tag: slot.queue_pair.get_bits::<TAG_BITS>(ROW_BITS),
            generation: slot.generation,
            first: slot.index,
            count: select(is_stored, bits::<COUNT_BITS>(1), bits::<COUNT_BITS>(0)),
            is_filling: false,
            is_shown: false,
        }
    } else {
        let count = select(is_stored, row.count + 1, row.count);
        Row {
            count: select(stops && !row.is_shown, bits::<COUNT_BITS>(0), count),
            is_filling: row.is_filling && !stops && !(fills(slot) && is_own),
            is_shown: row.is_shown && !ends,
            ..row
        }
    }
}

/// Slots of a row from the cursor on; none if the cursor is not in it.
#[kernel]
pub(super) fn left(row: Row, cursor: Bits<WORK_INDEX_BITS>) -> Bits<COUNT_BITS> {
    let passed = cursor - row.first;
    let is_in = passed < bit_cast::<WORK_INDEX_BITS, COUNT_BITS>(row.count);
    select(is_in, row.count - passed.get_bits::<COUNT_BITS>(0), bits::<COUNT_BITS>(0))
}

/// Says whether a question makes a burst.
#[kernel]
pub(super) fn shows(row: Row, event: KeptEvent) -> Bit {
    let asks = event.wakes || event.ends;
    asks && !row.is_shown && is_of(row, event.queue_pair, event.generation) && left(row, event.cursor) >= 2u64
}

/// Answer to a question. Where a burst is under way, from here or from wqe_fetch, its end asks again.
#[kernel]
pub(super) fn answer_of(row: Row, event: KeptEvent) -> KeptAnswer {
    let is_own = (event.wakes || event.ends) && is_of(row, event.queue_pair, event.generation);
    let is_coming = is_own && (row.is_shown || row.is_filling);
    let shows = shows(row, event);
    KeptAnswer {
        serves: shows || is_coming,
        refills: shows && !row.is_filling && left(row, event.cursor) <= BURST_SLOTS + 1,
        last: row.first + bit_cast::<WORK_INDEX_BITS, COUNT_BITS>(row.count) - 1,
    }
}

/// Row after a question that makes a burst. Slots before the cursor are not wanted again.
#[kernel]
pub(super) fn after_answer(row: Row, event: KeptEvent, answer: KeptAnswer) -> Row {
    Row {
        first: event.cursor,
        count: left(row, event.cursor),
        is_filling: row.is_filling || answer.refills,
        is_shown: true,
        ..row
    }
}

/// The burst that a question makes.
#[kernel]
pub(super) fn burst_of(row: Row, event: KeptEvent) -> WqeBurst {
    let left = left(row, event.cursor);
    WqeBurst {
        queue_pair: event.queue_pair,
        generation: event.generation,
        first_index: event.cursor,
        count: if left > SHOWN_SLOTS { bits::<4>(SHOWN_SLOTS) } else { left.get_bits::<4>(0) },
        lap: event.lap,
        ends_queue: false,
        is_overrun: false,
        is_single: false,
        is_kept: true,
        weight: bits::<WEIGHT_BITS>(KEPT_WEIGHT),
        charge: bits::<CHARGE_BITS>(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row of queue pair 0x65 in generation 3: slots `first` and following.
    fn row(first: u64, count: u64) -> Row {
        Row { tag: bits(3), generation: bits(3), first: bits(first), count: bits(count), ..Row::default() }
    }

    fn slot(index: u64) -> WqeSlot {
        WqeSlot { queue_pair: bits(0x65), generation: bits(3), index: bits(index), ..WqeSlot::default() }
    }

    fn numbers(row: Row) -> (u64, u64, bool, bool) {
        (row.first.to_u64(), row.count.to_u64(), row.is_filling, row.is_shown)
    }

    #[test]
    fn a_row_begins_where_its_queue_pair_is_held() {
        let other = WqeSlot { queue_pair: bits(0x85), ..slot(40) };
        let later = WqeSlot { generation: bits(4), ..slot(40) };
        let unreadable = WqeSlot { is_unreadable: true, ..slot(40) };
        let overrun = WqeSlot { is_overrun: true, ..slot(40) };
        let kept = WqeSlot { is_kept: true, ..slot(11) };
        let shown = Row { is_shown: true, ..row(10, 5) };
        // Slot at which the queue pair is held; then the row, and whether the slot is stored.
        for (name, before, slot, expected, is_stored) in [
            ("of a free row", Row::default(), slot(40), (40, 1, false, false), true),
            ("of the row's", row(10, 5), slot(40), (40, 1, false, false), true),
            ("of the row's, the next one", row(10, 5), slot(15), (15, 1, false, false), true),
            ("of another", row(10, 5), other, (40, 1, false, false), true),
            ("of the next generation", row(10, 5), later, (40, 1, false, false), true),
            ("unreadable", row(10, 5), unreadable, (40, 0, false, false), false),
            ("overrun", row(10, 5), overrun, (40, 0, false, false), false),
            ("of the row itself", row(10, 5), kept, (10, 5, false, false), false),
            ("of another, in a burst", shown, other, (10, 5, false, true), false),
        ] {
            let after = after_slot(before, slot, true, true);
            assert_eq!((numbers(after), stores(before, slot, true)), (expected, is_stored), "{name}");
            if is_stored {
                assert!(is_of(after, slot.queue_pair, slot.generation), "{name}");
            }
        }
        // Held for another reason.
        let filling = Row { is_filling: true, ..row(10, 5) };
        for (name, before, slot, expected) in [
            ("of the row's", filling, slot(40), (10, 0, false, false)),
            ("of another", filling, other, (10, 5, true, false)),
            ("of the row itself", filling, kept, (10, 5, true, false)),
            ("of the row's, in a burst", Row { is_shown: true, ..filling }, slot(40), (10, 5, false, true)),
        ] {
            assert_eq!(numbers(after_slot(before, slot, true, false)), expected, "{name}");
            assert!(!stores(before, slot, false), "{name}");
        }
    }

    #[test]
    fn slots_are_added_in_order_while_there_is_room() {
        let filling = Row { is_filling: true, ..row(0xfffe, 5) };
        let other = WqeSlot { queue_pair: bits(0x85), ..slot(3) };
        let later = WqeSlot { generation: bits(4), ..slot(3) };
        let unreadable = WqeSlot { is_unreadable: true, ..slot(3) };
        let kept = WqeSlot { is_kept: true, ends_burst: true, ..slot(3) };
        let single = WqeSlot { ends_burst: true, is_single: true, ..slot(3) };
        let ends = WqeSlot { ends_burst: true, ends_queue: true, ..slot(3) };
        for (name, before, slot, count, is_filling) in [
            ("the next one", filling, slot(3), 6, true),
            ("the next one, the last of a burst", filling, WqeSlot { ends_burst: true, ..slot(3) }, 6, true),
            ("the next one, the last of a single burst", filling, single, 6, false),
            ("a single burst without a new one", filling, WqeSlot { index: bits(2), ..single }, 5, false),
            ("the last one that was posted", filling, ends, 6, false),
            ("a single burst of another", filling, WqeSlot { queue_pair: bits(0x85), ..single }, 5, true),
            ("the last one again", filling, slot(2), 5, true),
            ("one after the next", filling, slot(4), 5, true),
            ("of another", filling, other, 5, true),
            ("of the next generation", filling, later, 5, true),
            ("unreadable", filling, unreadable, 5, true),
            ("overrun", filling, WqeSlot { is_overrun: true, ends_burst: true, ..slot(2) }, 5, false),
            ("of the row itself", filling, kept, 5, true),
            ("the row is full", row(0xfff3, 16), slot(3), 16, false),
            ("in a burst", Row { is_shown: true, ..filling }, slot(3), 6, true),
        ] {
            let after = after_slot(before, slot, false, false);
            assert_eq!((after.count.to_u64(), after.is_filling), (count, is_filling), "{name}");
            assert_eq!(stores(before, slot, false), count > before.count.to_u64(), "{name}");
            assert_eq!((after.first, after.is_shown), (before.first, before.is_shown), "{name}");
        }
    }

    #[test]
    fn a_burst_ends_with_its_last_slot() {
        let shown = Row { is_shown: true, ..row(10, 5) };
        let last = WqeSlot { is_kept: true, ends_burst: true, ..slot(13) };
        for (name, slot, expected) in [
            ("the last slot", last, false),
            ("another slot", WqeSlot { ends_burst: false, ..last }, true),
            ("of wqe_fetch", WqeSlot { is_kept: false, ..last }, true),
        ] {
            assert_eq!(after_slot(shown, slot, false, false).is_shown, expected, "{name}");
        }
    }

    #[test]
    fn a_row_serves_two_slots_or_none() {
        let wakes =
            KeptEvent { queue_pair: bits(0x65), generation: bits(3), wakes: true, ..KeptEvent::default() };
        let ends = KeptEvent { wakes: false, ends: true, ..wakes };
        let shown = Row { is_shown: true, ..row(10, 12) };
        let filling = Row { is_filling: true, ..row(10, 5) };
        let other = KeptEvent { queue_pair: bits(0x85), ..wakes };
        let later = KeptEvent { generation: bits(4), ..wakes };
        // Cursor; then whether a burst is made, of how many slots, whether fetch need not be resumed, and whether
        // more slots are asked for.
        for (name, row, event, cursor, expected) in [
            ("many", row(10, 16), wakes, 10, (Some(4), true, false)),
            ("ten", row(10, 16), wakes, 16, (Some(4), true, false)),
            ("nine", row(10, 16), wakes, 17, (Some(4), true, true)),
            ("three", row(10, 5), wakes, 12, (Some(3), true, true)),
            ("two", row(10, 5), wakes, 13, (Some(2), true, true)),
            ("one", row(10, 5), wakes, 14, (None, false, false)),
            ("none", row(10, 5), wakes, 15, (None, false, false)),
            ("before the row", row(10, 5), wakes, 9, (None, false, false)),
            ("across zero", row(0xfffe, 5), wakes, 0xffff, (Some(4), true, true)),
            ("more are on their way", filling, wakes, 11, (Some(4), true, false)),
            ("one, and more are on their way", filling, wakes, 14, (None, true, false)),
            ("the end, and more are on their way", filling, ends, 14, (None, true, false)),
            ("of another", row(10, 5), other, 10, (None, false, false)),
            ("of the next generation", row(10, 5), later, 10, (None, false, false)),
            ("free", row(10, 0), wakes, 10, (None, false, false)),
            ("woken in a burst", shown, wakes, 11, (None, true, false)),
            ("at the end of another burst", shown, ends, 11, (None, true, false)),
            ("at the end of a burst", row(10, 12), ends, 11, (Some(4), true, false)),
            ("at the end, and too few", row(10, 2), ends, 11, (None, false, false)),
            ("no question", row(10, 5), KeptEvent { wakes: false, ..wakes }, 10, (None, false, false)),
        ] {
            let event = KeptEvent { cursor: bits(cursor), ..event };
            let answer = answer_of(row, event);
            let burst = burst_of(row, event);
            let count = shows(row, event).then(|| burst.count.to_u64());
            assert_eq!((count, answer.serves, answer.refills), expected, "{name}");
            if count.is_some() {
                let end = (row.first.to_u64() + row.count.to_u64()) & 0xffff;
                let after = after_answer(row, event, answer);
                let slots = end.wrapping_sub(cursor) & 0xffff;
                let is_filling = row.is_filling || expected.2;
                assert_eq!(numbers(after), (cursor, slots, is_filling, true), "{name}");
                assert_eq!(
                    (burst.first_index.to_u64(), answer.last.to_u64()),
                    (cursor, end.wrapping_sub(1) & 0xffff),
                    "{name}"
                );
            }
        }
    }
}
