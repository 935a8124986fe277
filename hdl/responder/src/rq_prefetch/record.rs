//! Records of [`RqPrefetch`](super::RqPrefetch): of each ring what commands set, what was consumed, fetched and
//! has arrived, and who writes them.
use rnic_kernel::prelude::*;
use rnic_layout::state::QpState;
use rnic_messages::doorbell::{ReceivesPosted, own_ring, shared_ring};
use rnic_messages::setup::{SetupEvent, SetupKind, SrqSetup};
use rnic_messages::sizes::{GENERATION_BITS, RECEIVE_RING_BITS, WORK_INDEX_BITS, sizes};

/// Bits of a ring number.
pub(super) const RING_BITS: usize = RECEIVE_RING_BITS;
/// Bits of the number of a shared line among these.
pub(super) const SHARED_BITS: usize = 11;
/// Bits of a line number: a line in the lower half belongs to the ring of the same number, the upper half is
/// shared.
pub(super) const LINE_BITS: usize = SHARED_BITS + 1;
/// log2 of the WQEs of a line.
pub(super) const PLACE_BITS: usize = 2;
/// WQEs of a line.
pub(super) const PLACES: u64 = 1 << PLACE_BITS;
/// Width of the age of a ring that consumes nothing; at the highest age it yields its shared lines.
const AGE_BITS: usize = 3;
/// Width of the number of times that the WQEs which a ring may have here are doubled.
pub(super) const QUOTA_BITS: usize = 3;
/// Limit of these doublings.
const QUOTA_MAX: u64 = 4;

/// Attributes of a ring, set by commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Ring {
    pub is_alive: Bit,
    pub generation: Bits<GENERATION_BITS>,
    pub base_page: Bits<52>,
    pub entries_log2: Bits<4>,
}

/// Consumer side of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Taken {
    /// Free-running count of WQEs given.
    pub index: Bits<WORK_INDEX_BITS>,
    /// Line of the last of them.
    pub line: Bits<LINE_BITS>,
    /// Toggles when the own line is left.
    pub lap: Bit,
    /// Toggles when the same line is begun again.
    pub stay: Bit,
}

/// Fetch side of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Progress {
    /// Free-running count of WQEs whose read was requested.
    pub index: Bits<WORK_INDEX_BITS>,
    /// Line of the last of them.
    pub line: Bits<LINE_BITS>,
    /// Toggles when the own line is taken; that is free while this equals the field of [`Taken`].
    pub lap: Bit,
    /// Toggles when the last line is taken again.
    pub stay: Bit,
    /// Walks that have aged the ring since a WQE was consumed.
    pub age: Bits<AGE_BITS>,
    /// A WQE was missing when it was requested, since the last walk.
    pub has_missed: Bit,
    /// A WQE was missing since the ring was idle.
    pub has_need: Bit,
    /// The WQEs that the ring may have here are doubled this many times.
    pub quota: Bits<QUOTA_BITS>,
}

/// Arrival side of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Arrived {
    /// Generation that requested them.
    pub generation: Bits<GENERATION_BITS>,
    /// Free-running count of WQEs that arrived for this generation.
    pub index: Bits<WORK_INDEX_BITS>,
    /// As in [`Progress`] when the last of them was requested; while it differs from [`Taken`], the next line
    /// is the same again.
    pub stay: Bit,
}

/// All records of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct RingState {
    pub attributes: Ring,
    /// Free-running count of WQEs posted.
    pub producer: Bits<WORK_INDEX_BITS>,
    pub consumed: Taken,
    pub progress: Progress,
    pub here: Arrived,
}

/// A read in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Fetch {
    pub line: Bits<LINE_BITS>,
    pub place: Bits<PLACE_BITS>,
    pub ring: Bits<RING_BITS>,
    pub generation: Bits<GENERATION_BITS>,
    /// Index of the WQE after the last one.
    pub end: Bits<WORK_INDEX_BITS>,
    pub stay: Bit,
}

/// WQEs to be read, before their address is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Draft {
    pub base_page: Bits<52>,
    /// Index of the first WQE in the ring, from 0.
    pub position: Bits<WORK_INDEX_BITS>,
    pub count: Bits<3>,
}

/// An answer to a request, before its WQE is read from its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Answer {
    pub valid: Bit,
    /// [x]; then no WQE is read.
    pub is_stale: Bit,
    /// The WQE is not here, or not for this request; then none is read.
    pub is_absent: Bit,
    pub line: Bits<LINE_BITS>,
    pub place: Bits<PLACE_BITS>,
}

/// A WQE that was requested and is not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Demand {
    pub ring: Bits<RING_BITS>,
    /// Generation of the ring.
    pub generation: Bits<GENERATION_BITS>,
    /// Free-running index of the WQE.
    pub index: Bits<WORK_INDEX_BITS>,
}

/// A WQE is given for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Given {
    pub valid: Bit,
    /// Ring of the request, also while none is given.
    pub ring: Bits<RING_BITS>,
    /// Consumer side of the ring after it.
    pub after: Taken,
    /// It is the last of its line, or the last that is here.
    pub is_last: Bit,
    /// It is the first after a shared line.
    pub leaves_shared: Bit,
}

/// A read has completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Arrival {
    pub valid: Bit,
    pub fetch: Fetch,
}

/// What a setup event sets of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct RingSetup {
    pub ring: Bits<RING_BITS>,
    pub attributes: Ring,
    /// The WQEs of the ring are forgotten.
    pub restarts: Bit,
}

/// A ring whose records start anew, without WQEs here.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Emptying {
    pub valid: Bit,
    pub ring: Bits<RING_BITS>,
    pub generation: Bits<GENERATION_BITS>,
    /// Index of its next WQE.
    pub index: Bits<WORK_INDEX_BITS>,
}

/// A write of [`Ring`].
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct RingWrite {
    pub enable: Bit,
    pub ring: Bits<RING_BITS>,
    pub data: Ring,
}

/// A write of a producer index.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct ProducerWrite {
    pub enable: Bit,
    pub ring: Bits<RING_BITS>,
    pub data: Bits<WORK_INDEX_BITS>,
}

/// A write of [`Taken`].
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct TakenWrite {
    pub enable: Bit,
    pub ring: Bits<RING_BITS>,
    pub data: Taken,
}

/// A write of [`Progress`].
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct ProgressWrite {
    pub enable: Bit,
    pub ring: Bits<RING_BITS>,
    pub data: Progress,
}

/// A write of [`Arrived`].
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct ArrivedWrite {
    pub enable: Bit,
    pub ring: Bits<RING_BITS>,
    pub data: Arrived,
}

/// Gives the own line of a ring.
#[kernel]
pub(super) fn own_line(ring: Bits<RING_BITS>) -> Bits<LINE_BITS> {
    bit_cast::<LINE_BITS, RING_BITS>(ring)
}

/// Says whether a line is shared.
#[kernel]
pub(super) fn is_shared(line: Bits<LINE_BITS>) -> Bit {
    line.get_bit(shared_line_bit())
}

/// The bit of a line's number that shared ones have set.
fn shared_line_bit() -> usize {
    sizes().receive_rings()
}

/// Number of the first shared line.
fn first_shared_line() -> u64 {
    1 << shared_line_bit()
}

/// Number of shared lines.
pub(super) fn shared_lines() -> u64 {
    1 << sizes().receive_lines()
}

/// The bits that the number of a shared line among these has.
fn shared_line_mask() -> u64 {
    shared_lines() - 1
}

/// Gives the line of a number among the shared ones.
#[kernel]
pub(super) fn shared_line(number: Bits<SHARED_BITS>) -> Bits<LINE_BITS> {
    bit_cast::<LINE_BITS, SHARED_BITS>(number) | first_shared_line()
}

/// Gives the number of a shared line among these.
#[kernel]
pub(super) fn shared_number(line: Bits<LINE_BITS>) -> Bits<SHARED_BITS> {
    line.get_bits::<SHARED_BITS>(0) & shared_line_mask()
}

/// Says whether a shared line is free from now on: the sweep over all rings comes to the one of the same number, a ring leaves it
/// behind (`leaves`), or it is `freed`.
#[kernel]
pub(super) fn returns_line(
    clears: Bit,
    ring: Bits<RING_BITS>,
    leaves: Bit,
    frees: Bit,
    freed: Bits<LINE_BITS>,
) -> Bit {
    (clears && ring <= shared_line_mask()) || leaves || (frees && is_shared(freed))
}

/// Gives the consumer record of a ring without WQEs here: its own line is the last that was consumed.
#[kernel]
fn nothing_taken(emptying: Emptying) -> Taken {
    Taken { index: emptying.index, line: own_line(emptying.ring), lap: false, stay: false }
}

/// Gives the fetch record of such a ring.
#[kernel]
fn nothing_fetched(emptying: Emptying) -> Progress {
    Progress {
        index: emptying.index,
        line: own_line(emptying.ring),
        lap: true,
        stay: false,
        age: bits(0),
        has_missed: false,
        has_need: false,
        quota: bits(0),
    }
}

/// Gives what a setup event sets. A queue pair of an SRQ has no ring of its own; every event of an SRQ restarts
/// it, as another generation than the `current` one.
#[kernel]
pub(super) fn ring_setup_of(
    is_of_srq: Bit,
    event: SetupEvent,
    srq_event: SrqSetup,
    current: Bits<GENERATION_BITS>,
) -> RingSetup {
    let is_reset = event.state == QpState::Reset as u64;
    RingSetup {
        ring: if is_of_srq { shared_ring(srq_event.srq) } else { own_ring(event.queue_pair) },
        attributes: Ring {
            is_alive: select(is_of_srq, srq_event.is_alive, !is_reset && !event.path.shared_receive),
            generation: select(is_of_srq, current + 1, event.generation),
            base_page: select(is_of_srq, srq_event.base_page, event.path.receive_base_page),
            entries_log2: select(is_of_srq, srq_event.entries_log2, event.path.receive_wqes_log2),
        },
        restarts: event.kind == SetupKind::Restart || is_of_srq || is_reset,
    }
}

/// Counts the rings that are alive, when a setup event is applied to one.
#[kernel]
pub(super) fn alive_after(count: Bits<RING_BITS>, sets: Bit, before: Ring, set: Ring) -> Bits<RING_BITS> {
    if sets && set.is_alive && !before.is_alive {
        count + 1
    } else if sets && !set.is_alive && before.is_alive {
        count - 1
    } else {
        count
    }
}

/// Describes the ring that starts anew: with `clears` the one of the walk after a reset, else the one that is
/// looked at, after a restart by a setup event (`is_event`) or because it yields its lines, when it keeps
/// generation and index.
#[kernel]
pub(super) fn emptying_of(
    clears: Bit,
    empties: Bit,
    is_event: Bit,
    walk: Bits<RING_BITS>,
    ring: Bits<RING_BITS>,
    set: Ring,
    state: RingState,
) -> Emptying {
    Emptying {
        valid: clears || empties,
        ring: select(clears, walk, ring),
        generation: if clears {
            bits::<GENERATION_BITS>(0)
        } else if is_event {
            set.generation
        } else {
            state.attributes.generation
        },
        index: select(clears || is_event, bits::<WORK_INDEX_BITS>(0), state.consumed.index),
    }
}

/// Decides what is written of the attributes: those of a setup event, or of a ring that is not alive.
#[kernel]
pub(super) fn ring_write_of(emptying: Emptying, clears: Bit, sets: Bit, set: Ring) -> RingWrite {
    RingWrite {
        enable: clears || sets,
        ring: emptying.ring,
        data: Ring { is_alive: set.is_alive && !clears, ..set },
    }
}

/// Decides what is written of the producer indices: a doorbell comes first.
#[kernel]
pub(super) fn producer_write_of(
    posted: ReceivesPosted,
    rings: Bit,
    emptying: Emptying,
    restarts: Bit,
) -> ProducerWrite {
    ProducerWrite {
        enable: rings || restarts,
        ring: select(rings, posted.ring, emptying.ring),
        data: select(rings, posted.producer_index, bits::<WORK_INDEX_BITS>(0)),
    }
}

/// Decides what is written of the consumer side. No WQE is given while a ring starts anew.
#[kernel]
pub(super) fn taken_write_of(given: Given, emptying: Emptying) -> TakenWrite {
    TakenWrite {
        enable: given.valid || emptying.valid,
        ring: select(given.valid, given.ring, emptying.ring),
        data: select(given.valid, given.after, nothing_taken(emptying)),
    }
}

/// Decides what is written of the fetch side: the record `after` a decision, if none starts anew.
#[kernel]
pub(super) fn progress_write_of(is_decided: Bit, emptying: Emptying, after: Progress) -> ProgressWrite {
    ProgressWrite {
        enable: is_decided || emptying.valid,
        ring: emptying.ring,
        data: select(emptying.valid, nothing_fetched(emptying), after),
    }
}

/// Decides what is written of the arrival side: a read that completes comes first.
#[kernel]
pub(super) fn arrived_write_of(arrival: Arrival, emptying: Emptying) -> ArrivedWrite {
    let fetch = arrival.fetch;
    ArrivedWrite {
        enable: arrival.valid || emptying.valid,
        ring: select(arrival.valid, fetch.ring, emptying.ring),
        data: if arrival.valid {
            Arrived { generation: fetch.generation, index: fetch.end, stay: fetch.stay }
        } else {
            Arrived { generation: emptying.generation, index: emptying.index, stay: false }
        },
    }
}

/// How a decision changes the fetch side of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Change {
    /// WQEs up to `end` are fetched, into `line`.
    pub fetches: Bit,
    pub end: Bits<WORK_INDEX_BITS>,
    pub line: Bits<LINE_BITS>,
    /// That is the own line.
    pub takes_own: Bit,
    pub stay: Bit,
    /// The ring is looked at because a requested WQE is missing.
    pub misses: Bit,
    /// A WQE of it was consumed.
    pub is_used: Bit,
    /// The walk has come to it.
    pub is_walk: Bit,
    /// That walk ages the rings.
    pub ages: Bit,
}

/// Gives the fetch side of a ring after a decision. A ring that misses a WQE for the second time within a walk
/// may have twice as many here; one that has reached the highest age is idle, and starts anew with that.
#[kernel]
pub(super) fn progress_after(progress: Progress, change: Change) -> Progress {
    let is_idle = change.is_walk && progress.age.all();
    Progress {
        index: select(change.fetches, change.end, progress.index),
        line: select(change.fetches, change.line, progress.line),
        lap: select(change.fetches && change.takes_own, !progress.lap, progress.lap),
        stay: select(change.fetches, change.stay, progress.stay),
        age: if change.is_walk && change.ages {
            select(progress.age.all(), progress.age, progress.age + 1)
        } else if change.is_used {
            bits::<AGE_BITS>(0)
        } else {
            progress.age
        },
        has_missed: !change.is_walk && (progress.has_missed || change.misses),
        has_need: change.misses || (progress.has_need && !is_idle),
        quota: if is_idle {
            bits::<QUOTA_BITS>(0)
        } else if change.misses && progress.has_missed && progress.quota != QUOTA_MAX {
            progress.quota + 1
        } else {
            progress.quota
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emptying(valid: bool) -> Emptying {
        Emptying { valid, ring: bits(5), generation: bits(4), index: bits(9) }
    }

    #[test]
    fn a_ring_lives_between_its_creation_and_its_end() {
        use QpState::{Error, Init, Reset};
        for (kind, state, shared_receive, is_alive, restarts) in [
            (SetupKind::Restart, Init, false, true, true),
            (SetupKind::Restart, Reset, false, false, true),
            (SetupKind::Restart, Init, true, false, true),
            (SetupKind::Life, Error, false, true, false),
            (SetupKind::Life, Reset, false, false, true),
            (SetupKind::Path, Init, false, true, false),
            (SetupKind::Probe, Init, false, true, false),
        ] {
            let mut event = SetupEvent {
                kind,
                queue_pair: bits(0x155),
                state: bits(state as u64),
                generation: bits(7),
                ..SetupEvent::default()
            };
            event.path.shared_receive = shared_receive;
            event.path.receive_wqes_log2 = bits(6);
            let setup = ring_setup_of(false, event, SrqSetup::default(), bits(1));
            assert_eq!(
                (setup.attributes.is_alive, setup.restarts),
                (is_alive, restarts),
                "{kind:?} {state:?}"
            );
            assert_eq!((setup.ring, setup.attributes.generation), (bits(0x155), bits(7)));
            assert_eq!(setup.attributes.entries_log2, bits(6));
        }
        for (is_alive, current, generation) in [(true, 1, 2), (false, 1, 2), (true, 255, 0)] {
            let event = SrqSetup { srq: bits(63), is_alive, entries_log2: bits(7), ..SrqSetup::default() };
            let setup = ring_setup_of(true, SetupEvent::default(), event, bits(current));
            assert_eq!((setup.attributes.is_alive, setup.restarts), (is_alive, true));
            assert_eq!((setup.ring, setup.attributes.generation), (bits(0x43f), bits(generation)));
            assert_eq!(setup.attributes.entries_log2, bits(7));
        }
    }

    #[test]
    fn rings_that_come_and_go_are_counted() {
        for (sets, before, after, expected) in [
            (true, false, true, 8),
            (true, true, false, 6),
            (true, true, true, 7),
            (true, false, false, 7),
            (false, false, true, 7),
            (false, true, false, 7),
        ] {
            let ring = |is_alive| Ring { is_alive, ..Ring::default() };
            assert_eq!(alive_after(bits(7), sets, ring(before), ring(after)), bits(expected));
        }
    }

    /// Clears, empties, event; ring, generation, index. A ring that yields its lines keeps its place.
    #[test]
    fn a_ring_that_is_emptied_starts_where_its_reason_says() {
        let state = RingState {
            attributes: Ring { generation: bits(3), ..Ring::default() },
            consumed: Taken { index: bits(77), ..Taken::default() },
            ..RingState::default()
        };
        let set = Ring { generation: bits(4), ..Ring::default() };
        for (clears, empties, is_event, valid, ring, generation, index) in [
            (true, false, false, true, 11, 0, 0),
            (false, true, true, true, 5, 4, 0),
            (false, true, false, true, 5, 3, 77),
            (false, false, false, false, 5, 3, 77),
        ] {
            let found = emptying_of(clears, empties, is_event, bits(11), bits(5), set, state);
            let expected =
                Emptying { valid, ring: bits(ring), generation: bits(generation), index: bits(index) };
            assert_eq!(found, expected, "{clears} {empties} {is_event}");
        }
    }

    #[test]
    fn attributes_are_written_by_events_and_cleared_after_a_reset() {
        let set = Ring { is_alive: true, generation: bits(4), ..Ring::default() };
        for (clears, sets, written) in
            [(false, false, None), (false, true, Some(true)), (true, false, Some(false))]
        {
            let write = ring_write_of(emptying(clears), clears, sets, set);
            assert_eq!(write.enable.then_some(write.data.is_alive), written, "{clears} {sets}");
            assert_eq!(write.ring, bits(5));
        }
    }

    #[test]
    fn a_doorbell_is_written_before_a_restart() {
        let posted = ReceivesPosted { ring: bits(6), producer_index: bits(40) };
        for (rings, restarts, expected) in [
            (false, false, None),
            (true, false, Some((6, 40))),
            (true, true, Some((6, 40))),
            (false, true, Some((5, 0))),
        ] {
            let write = producer_write_of(posted, rings, emptying(restarts), restarts);
            let written = write.enable.then_some((write.ring, write.data));
            let expected = expected.map(|(ring, index)| (bits(ring), bits(index)));
            assert_eq!(written, expected, "{rings} {restarts}");
        }
    }

    /// An empty ring: its own line is the last of both sides, and not free, so that it is filled again.
    #[test]
    fn an_emptied_ring_has_nothing_here_and_stays_in_its_own_line() {
        let taken = taken_write_of(Given::default(), emptying(true));
        let progress = progress_write_of(false, emptying(true), Progress::default());
        let arrived = arrived_write_of(Arrival::default(), emptying(true));
        assert!(taken.enable && progress.enable && arrived.enable);
        assert_eq!([taken.ring, progress.ring, arrived.ring], [bits(5); 3]);
        assert_eq!([taken.data.index, progress.data.index, arrived.data.index], [bits(9); 3]);
        assert_eq!([taken.data.line, progress.data.line], [bits(5); 2]);
        assert_eq!(arrived.data.generation, bits(4));
        assert!(taken.data.lap != progress.data.lap);
        assert_eq!((taken.data.stay, arrived.data.stay, progress.data.stay), (false, false, false));
    }

    #[test]
    fn each_side_of_a_ring_has_its_own_writer() {
        let after = Taken { index: bits(78), line: bits(0x805), lap: true, stay: false };
        let given = Given { valid: true, ring: bits(7), after, ..Given::default() };
        let taken = taken_write_of(given, emptying(false));
        assert_eq!((taken.enable, taken.ring, taken.data), (true, bits(7), after));
        assert!(!taken_write_of(Given { valid: false, ..given }, emptying(false)).enable);

        let fetch =
            Fetch { ring: bits(8), generation: bits(3), end: bits(80), stay: true, ..Fetch::default() };
        let arrival = Arrival { valid: true, fetch };
        let arrived = arrived_write_of(arrival, emptying(false));
        let expected = Arrived { generation: bits(3), index: bits(80), stay: true };
        assert_eq!((arrived.enable, arrived.ring, arrived.data), (true, bits(8), expected));
        assert!(!arrived_write_of(Arrival { valid: false, fetch }, emptying(false)).enable);

        let progress = Progress { index: bits(84), ..Progress::default() };
        let write = progress_write_of(true, emptying(false), progress);
        assert_eq!((write.enable, write.ring, write.data), (true, bits(5), progress));
        assert!(!progress_write_of(false, emptying(false), progress).enable);
    }

    #[test]
    fn a_fetch_moves_index_and_line() {
        let before = Progress { index: bits(8), line: bits(0x805), lap: true, ..Progress::default() };
        let change = Change { fetches: true, end: bits(12), line: bits(0x806), ..Change::default() };
        let moved = Progress { index: bits(12), line: bits(0x806), ..before };
        for (change, expected) in [
            (change, moved),
            (Change { takes_own: true, ..change }, Progress { lap: false, ..moved }),
            (Change { stay: true, ..change }, Progress { stay: true, ..moved }),
            (Change { fetches: false, takes_own: true, stay: true, ..change }, before),
        ] {
            assert_eq!(progress_after(before, change), expected, "{change:?}");
        }
    }

    /// Age; walk, that ages, used; age after.
    #[test]
    fn a_ring_ages_with_the_walks_until_it_is_used() {
        for (age, is_walk, ages, is_used, expected) in [
            (0, true, true, false, 1),
            (6, true, true, false, 7),
            (7, true, true, false, 7),
            (5, true, false, false, 5),
            (5, false, true, false, 5),
            (5, false, false, true, 0),
        ] {
            let progress = Progress { age: bits(age), ..Progress::default() };
            let change = Change { is_walk, ages, is_used, ..Change::default() };
            assert_eq!(progress_after(progress, change).age, bits(expected), "{age} {change:?}");
        }
    }

    /// Age, missed, need, quota; misses, walk; missed, need, quota after.
    #[test]
    fn the_quota_doubles_with_the_second_miss_between_two_walks() {
        for (age, [missed, need], quota, [misses, is_walk], flags, quota_after) in [
            (0, [false, false], 0, [true, false], [true, true], 0),
            (0, [true, true], 0, [true, false], [true, true], 1),
            (0, [true, true], 3, [true, false], [true, true], 4),
            (0, [true, true], 4, [true, false], [true, true], 4),
            (0, [true, true], 2, [false, true], [false, true], 2),
            (6, [true, true], 2, [false, true], [false, true], 2),
            (7, [true, true], 2, [false, true], [false, false], 0),
            (7, [true, true], 2, [false, false], [true, true], 2),
        ] {
            let before = Progress {
                age: bits(age),
                has_missed: missed,
                has_need: need,
                quota: bits(quota),
                ..Progress::default()
            };
            let after = progress_after(before, Change { misses, is_walk, ..Change::default() });
            assert_eq!([after.has_missed, after.has_need], flags, "{before:?} {misses} {is_walk}");
            assert_eq!(after.quota, bits(quota_after), "{before:?} {misses} {is_walk}");
        }
    }
}
