//! Rules of replays: what a duplicate READ or atomic asks for again, and which of a queue pair are answered
//! (protocol 3.4, 3.5).
use super::record::{Progress, Slot};
use rnic_kernel::prelude::*;
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS, ReadRequest, ReadShare, share_slots};

/// Slots of a queue pair.
const SLOTS: usize = 1 << READ_SLOT_BITS;

/// Requests that are noted of a queue pair: the last sixteen, of which its share of READ slots holds the newest; or all if there were
/// fewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Noted {
    /// Free-running count of requests.
    pub count: Bits<READ_COUNT_BITS>,
    /// There were sixteen or more.
    pub is_full: Bit,
}

/// A duplicate compared with a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Measured {
    /// Both are READs, or both atomics.
    pub same_kind: Bit,
    /// Both have the same remote key.
    pub same_key: Bit,
    /// Responses to the request before the first and the last one that is asked for, and before its own last.
    pub packets: Bits<24>,
    /// As above.
    pub last: Bits<24>,
    /// As above.
    pub span: Bits<24>,
    /// Bytes of the request before the first one that is asked for.
    pub bytes: Bits<32>,
    /// There are 2^32 or more.
    pub is_far: Bit,
    /// Bytes of the request.
    pub length: Bits<32>,
}

/// What a duplicate asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Found {
    /// The request is noted; without it the other fields have no meaning.
    pub is_found: Bit,
    /// Slot of the request.
    pub slot: Bits<READ_SLOT_BITS>,
    /// The whole request is asked for.
    pub is_whole: Bit,
    /// The last response that is asked for is the last one to the request.
    pub reaches_end: Bit,
    /// Bytes of the request before the first one that is asked for.
    pub bytes: Bits<32>,
    /// Responses to the request before the first one.
    pub packets: Bits<24>,
    /// Bytes of the request up to the last one.
    pub end: Bits<32>,
}

/// The replays of a queue pair: one that is being answered, and whole requests behind it that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Replay {
    /// There is a replay; without it the other fields have no meaning.
    pub is_active: Bit,
    /// Slot of the request that is answered again.
    pub slot: Bits<READ_SLOT_BITS>,
    /// It is answered to its end, else up to `end`.
    pub reaches_end: Bit,
    /// Bytes of the request up to the last one that is asked for.
    pub end: Bits<32>,
    /// Bytes of the request before the next response.
    pub bytes: Bits<32>,
    /// Responses to the request before the next one.
    pub packets: Bits<24>,
    /// A response of this replay was made: the next one is not a first.
    pub goes_on: Bit,
    /// MSN of the responses.
    pub msn: Bits<24>,
    /// A bit for each slot whose whole request is answered after this one, in order.
    pub waiting: Bits<SLOTS>,
    /// Replays: the active one and those that wait.
    pub count: Bits<READ_COUNT_BITS>,
}

/// What becomes of a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(super) enum Action {
    /// Nothing: its queue pair has ended.
    Ignore,
    /// It gets no answer of its own: nothing is noted of it, or an answer that has not begun is also its.
    Withdraw,
    /// It is answered after the replays of earlier requests.
    Join,
    /// It is answered at once, in the place of all replays.
    Begin,
}

/// Gives what is noted after a request.
#[kernel]
pub(super) fn noted_after(noted: Noted) -> Noted {
    let last_slot: Bits<READ_SLOT_BITS> = noted.count.get_bits::<READ_SLOT_BITS>(0);
    Noted { count: noted.count + 1, is_full: noted.is_full || last_slot.all() }
}

/// Gives the slots of a share in use.
#[kernel]
pub(super) fn noted_slots(noted: Noted, share: ReadShare) -> Bits<READ_COUNT_BITS> {
    let below: Bits<READ_COUNT_BITS> = noted.count & (SLOTS as u64 - 1);
    let all = share_slots(share);
    select(noted.is_full || below > all, all, below)
}

/// Gives the slot whose request the next one takes the place of; `noted` requests were stored.
#[kernel]
pub(super) fn overwritten_by(noted: Bits<READ_COUNT_BITS>, share: ReadShare) -> Bits<READ_SLOT_BITS> {
    (noted - share_slots(share)).get_bits::<READ_SLOT_BITS>(0)
}

/// Compares a duplicate with a slot.
#[kernel]
pub(super) fn measure(again: ReadRequest, slot: Slot) -> Measured {
    let distance = again.address - slot.address;
    Measured {
        same_kind: again.is_atomic == slot.is_atomic,
        same_key: again.key == slot.key,
        packets: again.psn - slot.psn,
        last: again.last_psn - slot.psn,
        span: slot.last_psn - slot.psn,
        bytes: distance.get_bits::<32>(0),
        is_far: distance.get_bits::<32>(32).any(),
        length: slot.length,
    }
}

/// Says whether a slot contains what a duplicate asks for: its PSNs, and of a READ its bytes under the same key
/// (protocol 3.4).
#[kernel]
pub(super) fn contains(measured: Measured, again: ReadRequest) -> Bit {
    let has_psns = measured.packets <= measured.last && measured.last <= measured.span;
    let end = bit_cast::<33, 32>(measured.bytes) + bit_cast::<33, 32>(again.length);
    let has_bytes = measured.same_key && !measured.is_far && end <= bit_cast::<33, 32>(measured.length);
    measured.same_kind && has_psns && (again.is_atomic || has_bytes)
}

/// Gives what a duplicate asks for of the slot that contains it.
#[kernel]
pub(super) fn found_of(measured: Measured, again: ReadRequest, slot: Bits<READ_SLOT_BITS>) -> Found {
    let begins = !measured.packets.any() && (again.is_atomic || !measured.bytes.any());
    let end = measured.bytes + again.length;
    Found {
        is_found: true,
        slot,
        is_whole: again.is_atomic || (begins && again.length == measured.length),
        reaches_end: again.is_atomic || (measured.last == measured.span && end == measured.length),
        bytes: select(again.is_atomic, bits::<32>(0), measured.bytes),
        packets: measured.packets,
        end,
    }
}

/// Says whether a request was answered, or its answer has begun; `noted` requests were stored.
#[kernel]
pub(super) fn has_begun(slot: Bits<READ_SLOT_BITS>, noted: Bits<READ_COUNT_BITS>, progress: Progress) -> Bit {
    let distance = slot - progress.served.get_bits::<READ_SLOT_BITS>(0);
    let is_open = bit_cast::<READ_COUNT_BITS, READ_SLOT_BITS>(distance) < noted - progress.served;
    !is_open || (!distance.any() && progress.packets.any())
}

/// Says whether the last response of a replay is the first one to the last PSN of its request: the answer to the request has
/// begun, and has not ended. After a failed write the replay ends in a NAK (protocol 3.5).
#[kernel]
pub(super) fn ends_answer(write_failed: Bit, replay: Replay, progress: Progress) -> Bit {
    let is_oldest = replay.slot == progress.served.get_bits::<READ_SLOT_BITS>(0);
    !write_failed && replay.is_active && replay.reaches_end && is_oldest && progress.packets.any()
}

/// Says whether the request of a slot came after that of another; `noted` requests were stored.
#[kernel]
fn is_after(slot: Bits<READ_SLOT_BITS>, other: Bits<READ_SLOT_BITS>, noted: Bits<READ_COUNT_BITS>) -> Bit {
    // The next slot to be used holds the oldest request.
    let oldest = noted.get_bits::<READ_SLOT_BITS>(0);
    slot - oldest > other - oldest
}

/// Decides about a duplicate. `is_live` says that its queue pair answers it, `is_begun` that the request was
/// answered or its answer has begun. Requests that follow those that are replayed join them; what is asked for
/// again, before them or from their middle, takes their place, since the peer has gone back again.
#[kernel]
pub(super) fn action_of(
    is_live: Bit,
    found: Found,
    is_begun: Bit,
    replay: Replay,
    noted: Bits<READ_COUNT_BITS>,
) -> Action {
    let follows = replay.is_active && found.is_whole && is_after(found.slot, replay.slot, noted);
    if !is_live {
        Action::Ignore
    } else if !found.is_found || !is_begun || (follows && replay.waiting.get_bit(found.slot.index())) {
        Action::Withdraw
    } else if follows {
        Action::Join
    } else {
        Action::Begin
    }
}

/// Gives the duplicates that get no answer when one comes.
#[kernel]
pub(super) fn withdrawn_by(action: Action, replay: Replay) -> Bits<READ_COUNT_BITS> {
    match action {
        Action::Begin => select(replay.is_active, replay.count, bits::<READ_COUNT_BITS>(0)),
        Action::Withdraw => bits::<READ_COUNT_BITS>(1),
        Action::Ignore | Action::Join => bits::<READ_COUNT_BITS>(0),
    }
}

/// Gives the replays after a duplicate; `msn` is the MSN when it came.
#[kernel]
pub(super) fn replay_after(replay: Replay, action: Action, found: Found, msn: Bits<24>) -> Replay {
    match action {
        Action::Begin => Replay {
            is_active: true,
            slot: found.slot,
            reaches_end: found.reaches_end,
            end: found.end,
            bytes: found.bytes,
            packets: found.packets,
            goes_on: false,
            msn,
            waiting: bits::<SLOTS>(0),
            count: bits::<READ_COUNT_BITS>(1),
        },
        Action::Join => Replay {
            msn,
            waiting: replay.waiting.replace_bit(found.slot.index(), true),
            count: replay.count + 1,
            ..replay
        },
        Action::Ignore | Action::Withdraw => replay,
    }
}

/// Gives the first of four slots that waits.
#[kernel]
fn first_of_four(waiting: Bits<4>) -> Bits<2> {
    let low = waiting.get_bits::<2>(0);
    cat!(!low.any(), !waiting.get_bit(0) && (waiting.get_bit(1) || !waiting.get_bit(2)))
}

/// Gives the first slot that waits: that of each four is found beside the first four that have one.
#[kernel]
fn first_of(waiting: Bits<SLOTS>) -> Bits<READ_SLOT_BITS> {
    let fours: Bits<4> = cat!(
        waiting.get_bits::<4>(12).any(),
        waiting.get_bits::<4>(8).any(),
        waiting.get_bits::<4>(4).any(),
        waiting.get_bits::<4>(0).any()
    );
    let four = first_of_four(fours);
    let place = if fours.get_bit(0) {
        first_of_four(waiting.get_bits::<4>(0))
    } else if fours.get_bit(1) {
        first_of_four(waiting.get_bits::<4>(4))
    } else if fours.get_bit(2) {
        first_of_four(waiting.get_bits::<4>(8))
    } else {
        first_of_four(waiting.get_bits::<4>(12))
    };
    cat!(four, place)
}

/// Gives the replays after the active one: that of the first slot behind it that waits, or none.
#[kernel]
fn next_of(replay: Replay) -> Replay {
    // Slots from that of the active one on come first; its own does not wait.
    let behind = replay.waiting & (bits::<SLOTS>(0xffff) << replay.slot);
    let slot = select(behind.any(), first_of(behind), first_of(replay.waiting));
    Replay {
        is_active: replay.waiting.any(),
        slot,
        reaches_end: true,
        bytes: bits::<32>(0),
        packets: bits::<24>(0),
        goes_on: false,
        waiting: replay.waiting.replace_bit(slot.index(), false),
        count: replay.count - 1,
        ..replay
    }
}

/// Gives the replays after a turn, which has ended before byte `bytes` and response `packets` of the request, or
/// with its last response.
#[kernel]
pub(super) fn replay_after_turn(replay: Replay, bytes: Bits<32>, packets: Bits<24>, is_last: Bit) -> Replay {
    select(is_last, next_of(replay), Replay { bytes, packets, goes_on: true, ..replay })
}

/// Says whether a new request takes the place of that of the active replay, which was in `slot`.
#[kernel]
pub(super) fn ends_active(replay: Replay, slot: Bits<READ_SLOT_BITS>) -> Bit {
    replay.is_active && replay.slot == slot
}

/// Says whether a new request takes the place of one that waits for its replay, which was in `slot`.
#[kernel]
pub(super) fn ends_waiting(replay: Replay, slot: Bits<READ_SLOT_BITS>) -> Bit {
    replay.is_active && replay.waiting.get_bit(slot.index())
}

/// Gives the replays after a new request has taken the place of that in `slot`.
#[kernel]
pub(super) fn replay_after_store(replay: Replay, slot: Bits<READ_SLOT_BITS>) -> Replay {
    if ends_active(replay, slot) {
        next_of(replay)
    } else if ends_waiting(replay, slot) {
        Replay { waiting: replay.waiting.replace_bit(slot.index(), false), count: replay.count - 1, ..replay }
    } else {
        replay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_of_the_last_requests_are_noted_as_there_are_slots() {
        for (size, slots) in [(0, 0), (1, 4), (2, 8), (3, 16)] {
            let share = ReadShare { size: bits(size), ..ReadShare::default() };
            let mut noted = Noted::default();
            for stored in 0u64..70 {
                assert_eq!(noted_slots(noted, share), bits(stored.min(slots)), "{stored}");
                assert_eq!(noted.count, bits(stored % 32));
                assert_eq!(overwritten_by(noted.count, share), bits((stored + 32 - slots) % 16));
                noted = noted_after(noted);
            }
        }
    }

    /// Protocol 3.4: a READ of 4 packets of 1024 bytes but the last, at PSNs that wrap.
    #[test]
    fn a_duplicate_is_contained_by_its_psns_its_bytes_and_its_key() {
        let slot = Slot {
            psn: bits(0xff_fffe),
            last_psn: bits(1),
            key: bits(9),
            address: bits(0xffff_f000),
            length: bits(3500),
            ..Slot::default()
        };
        let whole = ReadRequest {
            psn: slot.psn,
            last_psn: slot.last_psn,
            key: slot.key,
            address: slot.address,
            length: slot.length,
            ..ReadRequest::default()
        };
        let rest =
            ReadRequest { psn: bits(0), address: bits(0xffff_f000 + 2048), length: bits(1452), ..whole };
        let found = |[is_whole, reaches_end]: [bool; 2], bytes: u64, packets: u64, end: u64| Found {
            is_found: true,
            slot: bits(5),
            is_whole,
            reaches_end,
            bytes: bits(bytes),
            packets: bits(packets),
            end: bits(end),
        };
        for (again, expected) in [
            (whole, Some(found([true, true], 0, 0, 3500))),
            (rest, Some(found([false, true], 2048, 2, 3500))),
            (
                ReadRequest { last_psn: bits(0), length: bits(1000), ..rest },
                Some(found([false, false], 2048, 2, 3048)),
            ),
            (ReadRequest { length: bits(3499), ..whole }, Some(found([false, false], 0, 0, 3499))),
            // PSNs and bytes of different responses.
            (ReadRequest { last_psn: bits(0), ..rest }, Some(found([false, false], 2048, 2, 3500))),
            (ReadRequest { psn: bits(0xff_fffd), ..whole }, None),
            (ReadRequest { last_psn: bits(2), ..rest }, None),
            (ReadRequest { psn: bits(2), last_psn: bits(3), ..rest }, None),
            (ReadRequest { last_psn: bits(0xff_ffff), ..rest }, None),
            (ReadRequest { length: bits(1453), ..rest }, None),
            (ReadRequest { length: bits(0xffff_ffff), ..rest }, None),
            (ReadRequest { address: bits(0xffff_efff), ..rest }, None),
            (ReadRequest { address: bits(0x1_ffff_f800), ..rest }, None),
            (ReadRequest { key: bits(8), ..rest }, None),
            (ReadRequest { is_atomic: true, ..whole }, None),
        ] {
            let measured = measure(again, slot);
            let told = contains(measured, again).then(|| found_of(measured, again, bits(5)));
            assert_eq!(told, expected, "{again:?}");
        }
        // Of an atomic the PSN is enough: its word is not touched.
        let atomic = Slot { last_psn: slot.psn, length: bits(0), is_atomic: true, ..slot };
        let again = ReadRequest { last_psn: slot.psn, length: bits(0), is_atomic: true, ..whole };
        for (again, is_contained) in [
            (again, true),
            (ReadRequest { key: bits(8), address: bits(0), ..again }, true),
            (ReadRequest { psn: bits(0xff_ffff), last_psn: bits(0xff_ffff), ..again }, false),
            (ReadRequest { is_atomic: false, ..again }, false),
        ] {
            let measured = measure(again, atomic);
            assert_eq!(contains(measured, again), is_contained, "{again:?}");
            if is_contained {
                let found = found_of(measured, again, bits(5));
                assert!(found.is_whole && found.reaches_end && !found.bytes.any());
            }
        }
    }

    #[test]
    fn an_answer_has_begun_with_its_first_response() {
        for (slot, noted, served, packets, expected) in [
            (0, 3, 3, 0, true),
            (2, 3, 3, 0, true),
            (2, 3, 2, 0, false),
            (2, 3, 2, 1, true),
            (2, 3, 1, 1, false),
            (1, 3, 1, 1, true),
            (15, 3, 1, 1, true),
            (15, 16, 0, 0, false),
            (0, 16, 0, 1, true),
            (1, 1, 17, 0, false),
            (0, 1, 17, 0, false),
            (0, 1, 17, 3, false),
            (1, 1, 17, 3, true),
            (3, 3, 20, 0, true),
            (2, 3, 20, 0, false),
        ] {
            let progress = Progress { served: bits(served), packets: bits(packets), ..Progress::default() };
            assert_eq!(has_begun(bits(slot), bits(noted), progress), expected, "{slot} {noted} {served}");
        }
    }

    /// Protocol 3.5: a response to the last PSN serves a READ, unless there was one before.
    #[test]
    fn a_replay_to_the_last_response_ends_the_answer_that_has_begun() {
        let to_the_end = Replay { is_active: true, slot: bits(2), reaches_end: true, ..Replay::default() };
        let progress = |served, packets| Progress {
            served: bits(served),
            packets: bits(packets),
            ..Progress::default()
        };
        for (write_failed, replay, progress, expected) in [
            (false, to_the_end, progress(2, 1), true),
            (false, to_the_end, progress(18, 64), true),
            (true, to_the_end, progress(2, 1), false),
            (false, Replay { is_active: false, ..to_the_end }, progress(2, 1), false),
            (false, Replay { reaches_end: false, ..to_the_end }, progress(2, 1), false),
            (false, Replay { slot: bits(1), ..to_the_end }, progress(2, 1), false),
            (false, to_the_end, progress(3, 1), false),
            // Sixteen newer requests have been answered, and none comes after them.
            (false, to_the_end, progress(18, 0), false),
        ] {
            assert_eq!(ends_answer(write_failed, replay, progress), expected, "{replay:?} {progress:?}");
        }
    }

    fn replay(slot: u64, waiting: u64) -> Replay {
        Replay {
            is_active: true,
            slot: bits(slot),
            msn: bits(7),
            bytes: bits(512),
            packets: bits(2),
            goes_on: true,
            waiting: bits(waiting),
            count: bits(1 + u64::from(waiting.count_ones())),
            ..Replay::default()
        }
    }

    /// Slots 3, 4, .. 15, 0, 1, 2 hold the requests in their order.
    #[test]
    fn what_follows_joins_and_what_the_peer_has_gone_back_to_begins() {
        use Action::{Begin, Ignore, Join, Withdraw};
        let idle = Replay::default();
        let found = |slot, is_whole| Found { is_found: true, slot: bits(slot), is_whole, ..Found::default() };
        let unknown = Found::default();
        for (is_live, found, is_begun, replay, expected) in [
            (false, found(5, true), true, idle, Ignore),
            (true, unknown, true, idle, Withdraw),
            (true, found(5, true), false, idle, Withdraw),
            (true, found(5, true), true, idle, Begin),
            (true, found(5, false), true, idle, Begin),
            (true, found(5, true), true, replay(4, 0), Join),
            (true, found(2, true), true, replay(15, 0), Join),
            (true, found(3, true), true, replay(2, 0), Begin),
            (true, found(4, true), true, replay(4, 0), Begin),
            (true, found(3, true), true, replay(4, 0), Begin),
            (true, found(5, false), true, replay(4, 0), Begin),
            (true, found(5, true), true, replay(4, 1 << 5), Withdraw),
            (true, found(5, true), true, replay(4, 1 << 6), Join),
            (true, found(5, true), false, replay(4, 0), Withdraw),
        ] {
            let action = action_of(is_live, found, is_begun, replay, bits(0x13));
            assert_eq!(action, expected, "{found:?} {replay:?}");
        }
    }

    /// Each duplicate that was released is answered or withdrawn once.
    #[test]
    fn replays_are_counted_until_they_are_answered_or_withdrawn() {
        use Action::{Begin, Ignore, Join, Withdraw};
        let found = Found {
            is_found: true,
            slot: bits(9),
            is_whole: false,
            reaches_end: true,
            bytes: bits(256),
            packets: bits(1),
            end: bits(700),
        };
        let begun = Replay {
            is_active: true,
            slot: bits(9),
            reaches_end: true,
            end: bits(700),
            bytes: bits(256),
            packets: bits(1),
            msn: bits(8),
            count: bits(1),
            ..Replay::default()
        };
        for (before, action, withdrawn, after) in [
            (Replay { count: bits(3), ..Replay::default() }, Begin, 0, begun),
            (replay(4, 0), Begin, 1, begun),
            (replay(4, 1 << 5 | 1 << 9), Begin, 3, begun),
            (replay(4, 1 << 5), Join, 0, Replay { msn: bits(8), ..replay(4, 1 << 5 | 1 << 9) }),
            (replay(4, 1 << 5), Withdraw, 1, replay(4, 1 << 5)),
            (replay(4, 1 << 5), Ignore, 0, replay(4, 1 << 5)),
        ] {
            assert_eq!(withdrawn_by(action, before), bits(withdrawn), "{action:?} {before:?}");
            assert_eq!(replay_after(before, action, found, bits(8)), after, "{action:?} {before:?}");
        }
    }

    #[test]
    fn the_next_replay_is_that_of_the_first_request_behind() {
        for (slot, waiting, next) in [
            (4, 1 << 5, Some(5)),
            (4, 1 << 5 | 1 << 6, Some(5)),
            (4, 1 << 15 | 1 << 2, Some(15)),
            (4, 1 << 3 | 1 << 2, Some(2)),
            (15, 1, Some(0)),
            (0, 1 << 15, Some(15)),
            (4, 0, None),
        ] {
            let before = replay(slot, waiting);
            let after = replay_after_turn(before, bits(1024), bits(4), true);
            assert_eq!(after.is_active, next.is_some(), "{slot} {waiting:#x}");
            assert_eq!(after.count, before.count - 1);
            if let Some(next) = next {
                assert_eq!(after.slot, bits(next), "{slot} {waiting:#x}");
                assert_eq!(after.waiting, bits(waiting & !(1 << next)));
                assert!(after.reaches_end && !after.goes_on && !after.bytes.any() && !after.packets.any());
                assert_eq!(after.msn, bits(7));
            }
            let same = replay_after_turn(before, bits(1024), bits(4), false);
            assert_eq!(same, Replay { bytes: bits(1024), packets: bits(4), ..before });
        }
    }

    #[test]
    fn the_slots_behind_are_searched_round_the_ring() {
        for (slot, first, second) in
            (0..16).flat_map(|slot| (0..256).map(move |pair| (slot, pair / 16, pair % 16)))
        {
            let after = next_of(replay(slot, 1 << first | 1 << second));
            let distance = |other: u64| (other + 16 - slot) % 16;
            let nearest = if distance(first) < distance(second) { first } else { second };
            assert_eq!(after.slot, bits(nearest), "{slot} {first} {second}");
        }
    }

    #[test]
    fn a_new_request_ends_the_replay_of_its_slot() {
        let before = replay(4, 1 << 5 | 1 << 6);
        for (slot, ends, expected) in [
            (3, [false, false], before),
            (5, [false, true], replay(4, 1 << 6)),
            (4, [true, false], next_of(before)),
        ] {
            let slot = bits(slot);
            assert_eq!([ends_active(before, slot), ends_waiting(before, slot)], ends);
            assert_eq!(replay_after_store(before, slot), Replay { ..expected });
        }
        let idle = Replay { waiting: bits(0xffff), ..Replay::default() };
        assert!(!ends_active(idle, bits(0)) && !ends_waiting(idle, bits(0)));
        assert_eq!(replay_after_store(idle, bits(0)), idle);
    }
}
