//! Rules of [`Park`](super::Park): which packets pass, which are parked, and when a list is tried.
//!
//! ```text
//!  entries of a list, oldest first           a list with packets is
//!   head ──> ··· ──> tail                      being tried: was a read completed since? (was_woken)
//!                                              asleep: tried in vain, until a read completes
//! ```
use rnic_kernel::prelude::*;
use rnic_messages::pool::level_after;
use rnic_messages::sizes::RECEIVE_RING_BITS;

/// Bits of the number of a receive ring.
pub(super) const RING_BITS: usize = RECEIVE_RING_BITS;
/// log2 of the packets between admission and scatter.
pub(super) const ENTRY_BITS: usize = 9;
/// Bits of a number of entries.
pub(super) const ENTRY_COUNT: usize = ENTRY_BITS + 1;
/// Bits of a count of packets that are on their way: there are 33 at most, and differences in both directions are compared.
pub(super) const COUNT_BITS: usize = 7;

/// The parked packets of a receive ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct List {
    /// The ring has parked packets; without them `head` and `tail` mean nothing.
    pub holds: Bit,
    /// Entry of the oldest.
    pub head: Bits<ENTRY_BITS>,
    /// Entry of the newest.
    pub tail: Bits<ENTRY_BITS>,
    /// Free-running count of packets of the ring that have passed or were parked, each once.
    pub left: Bits<COUNT_BITS>,
    /// The ring has a turn of this pass to come.
    pub is_passing: Bit,
    /// The oldest packet was tried in vain.
    pub is_asleep: Bit,
    /// A read of the ring has completed since the pass began.
    pub was_woken: Bit,
    /// Number of the pass, another one when a list begins or has failed: turns of an earlier one do nothing.
    pub pass: Bit,
    /// Packets in it.
    pub held: Bits<ENTRY_COUNT>,
}

/// A packet in the order in which packets are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Ordered {
    pub ring: Bits<RING_BITS>,
    pub entry: Bits<ENTRY_BITS>,
    /// It has asked for a receive WQE.
    pub is_asked: Bit,
    /// It takes a WQE and has not asked, since packets of its ring wait for their turn.
    pub is_unasked: Bit,
    /// It is in the list of its ring.
    pub is_parked: Bit,
    /// Admission has dropped it, and nobody is told of it.
    pub is_dropped: Bit,
}

/// A ring that may try a packet of its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Turn {
    pub ring: Bits<RING_BITS>,
    pub entry: Bits<ENTRY_BITS>,
    /// The pass begins with this packet, the oldest.
    pub restarts: Bit,
    /// Number of the pass.
    pub pass: Bit,
}

/// What is done in a cycle; one of the first three.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Event {
    /// A packet leaves the order.
    pub is_leave: Bit,
    /// A ring has its turn.
    pub is_turn: Bit,
    /// A read of the ring has completed.
    pub is_wake: Bit,
    pub ring: Bits<RING_BITS>,
    pub entry: Bits<ENTRY_BITS>,
    /// Of a packet: as in [`Ordered`].
    pub is_asked: Bit,
    pub is_unasked: Bit,
    pub is_parked: Bit,
    pub is_dropped: Bit,
    /// Of a turn: as in [`Turn`].
    pub restarts: Bit,
    pub pass: Bit,
}

/// What an event does; at most one of `passes`, `appends` and `issues` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Action {
    /// The packet passes, and its entry is free.
    pub passes: Bit,
    /// The packet is parked.
    pub appends: Bit,
    /// The packet of the turn enters the order.
    pub issues: Bit,
    /// The ring has another turn.
    pub schedules: Bit,
    pub turn: Turn,
    /// A packet was parked unasked though all others of its list have had their turn: packets of the ring come so fast that
    /// each finds the one before it on its way.
    pub chases: Bit,
    pub after: List,
}

/// Gives the event of a packet that leaves the order.
#[kernel]
fn event_of_packet(packet: Ordered) -> Event {
    Event {
        is_leave: true,
        ring: packet.ring,
        entry: packet.entry,
        is_asked: packet.is_asked,
        is_unasked: packet.is_unasked,
        is_parked: packet.is_parked,
        is_dropped: packet.is_dropped,
        ..Default::default()
    }
}

/// Gives the event of a turn.
#[kernel]
fn event_of_turn(turn: Turn) -> Event {
    Event {
        is_turn: true,
        ring: turn.ring,
        entry: turn.entry,
        restarts: turn.restarts,
        pass: turn.pass,
        ..Default::default()
    }
}

/// Gives the event of a ring whose read has completed.
#[kernel]
fn event_of_wake(ring: Bits<RING_BITS>) -> Event {
    Event { is_wake: true, ring, ..Default::default() }
}

/// Gives the next event: a ring whose read has completed, else a packet if one leaves, else a turn.
#[kernel]
pub(super) fn next_event(
    has_wake: Bit,
    ring: Bits<RING_BITS>,
    leaves: Bit,
    packet: Ordered,
    turn: Turn,
) -> Event {
    if has_wake {
        event_of_wake(ring)
    } else if leaves {
        event_of_packet(packet)
    } else {
        event_of_turn(turn)
    }
}

/// Decides about an event. `next` is the entry after that of the event in its list, if there is one; `is_absent` says
/// that the answer to the packet is without a WQE, if it has asked for one; `must_rest` that the packet of a turn may not
/// be tried yet: the ring has this turn again.
#[kernel]
pub(super) fn action_of(
    event: Event,
    list: List,
    next: Bits<ENTRY_BITS>,
    is_absent: Bit,
    must_rest: Bit,
) -> Action {
    let is_end = event.entry == list.tail;
    let lacks = (event.is_asked && is_absent) || event.is_unasked;
    let is_new = event.is_leave && !event.is_parked;
    let is_oldest = event.is_leave && event.is_parked && event.entry == list.head;
    let appends = is_new && !event.is_dropped && (list.holds || lacks);
    let leaves_list = is_oldest && !lacks;
    let fails = is_oldest && lacks;
    let wakes = event.is_wake && list.holds;
    let is_due = event.is_turn && event.pass == list.pass;
    let issues = is_due && !must_rest;
    let rests = is_due && must_rest;
    let begins = appends && !list.holds;
    let follows = appends && list.holds && !list.is_passing && !list.is_asleep;
    let tries_again = (fails && list.was_woken) || (wakes && list.is_asleep);
    let goes_on = issues && !is_end;
    let schedules = begins || follows || tries_again || goes_on || rests;
    let pass = list.pass != (fails || begins);
    Action {
        passes: leaves_list || (is_new && !appends),
        appends,
        issues,
        schedules,
        turn: Turn {
            ring: event.ring,
            entry: if tries_again {
                list.head
            } else if goes_on {
                next
            } else {
                event.entry
            },
            restarts: begins || tries_again || (rests && event.restarts),
            pass,
        },
        chases: event.is_unasked && (begins || follows),
        after: List {
            holds: (list.holds || appends) && !(leaves_list && is_end),
            head: if begins {
                event.entry
            } else if leaves_list {
                next
            } else {
                list.head
            },
            tail: select(appends, event.entry, list.tail),
            left: select(is_new, list.left + 1, list.left),
            is_passing: schedules || (list.is_passing && !issues && !fails),
            is_asleep: !begins && !wakes && (list.is_asleep || (fails && !list.was_woken)),
            was_woken: !begins && !tries_again && (list.was_woken || (wakes && !list.is_asleep)),
            pass,
            held: level_after::<ENTRY_COUNT>(list.held, appends, leaves_list),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of the entries 3 to 5; entry 4 is the next of whichever event.
    fn three() -> List {
        List {
            holds: true,
            head: bits(3),
            tail: bits(5),
            left: bits(127),
            is_passing: true,
            is_asleep: false,
            was_woken: false,
            pass: true,
            held: bits(3),
        }
    }

    const NEXT: u64 = 4;
    const RING: u64 = 0x42a;

    fn packet(entry: u64, is_asked: bool, is_parked: bool) -> Event {
        event_of_packet(Ordered {
            ring: bits(RING),
            entry: bits(entry),
            is_asked,
            is_unasked: false,
            is_parked,
            is_dropped: false,
        })
    }

    fn turn(entry: u64, pass: bool) -> Event {
        event_of_turn(Turn { ring: bits(RING), entry: bits(entry), restarts: true, pass })
    }

    fn act(event: Event, list: List, is_absent: bool) -> Action {
        action_of(event, list, bits(NEXT), is_absent, false)
    }

    #[test]
    fn a_turn_whose_packet_must_rest_comes_again_as_it_was() {
        for (entry, pass, restarts) in
            [(3, true, true), (3, true, false), (5, true, false), (3, false, true), (5, false, false)]
        {
            let event = Event { restarts, ..turn(entry, pass) };
            for is_absent in [false, true] {
                let action = action_of(event, three(), bits(NEXT), is_absent, true);
                let again = Turn { ring: bits(RING), entry: bits(entry), restarts, pass: true };
                assert_eq!(action.schedules, pass, "a turn of an earlier pass does nothing");
                assert!(!action.issues && !action.passes && !action.appends && !action.chases);
                assert!(!pass || action.turn == again, "{:?}", action.turn);
                assert_eq!(action.after, three());
            }
        }
        // It matters to turns only.
        let other = [packet(3, true, true), packet(9, true, false), event_of_wake(bits(RING))];
        for event in other {
            let [rests, usual] = [true, false].map(|must| action_of(event, three(), bits(NEXT), false, must));
            assert_eq!(rests, usual, "{event:?}");
        }
    }

    #[test]
    fn a_packet_passes_if_none_of_its_ring_is_parked_and_its_wqe_is_here() {
        for (holds, is_asked, is_absent, passes) in [
            (false, false, false, true),
            (false, false, true, true),
            (false, true, false, true),
            (false, true, true, false),
            (true, false, false, false),
            (true, true, true, false),
        ] {
            let list = List { holds, ..three() };
            let action = act(packet(9, is_asked, false), list, is_absent);
            assert_eq!((action.passes, action.appends, action.issues), (passes, !passes, false));
            // The count wraps.
            let after = if passes { List { left: bits(0), ..list } } else { action.after };
            assert_eq!(action.after.held, if passes { list.held } else { bits(4) });
            assert_eq!(action.after, after, "{holds} {is_asked} {is_absent}");
            assert_eq!((action.after.holds, action.after.left), (!passes, bits(0)));
        }
    }

    #[test]
    fn a_packet_that_admission_has_dropped_passes_whatever_is_parked() {
        for (holds, is_passing, is_asleep) in
            [(false, false, false), (true, true, false), (true, false, false), (true, false, true)]
        {
            let list = List { holds, is_passing, is_asleep, ..three() };
            let action = act(Event { is_dropped: true, ..packet(9, false, false) }, list, true);
            assert_eq!((action.passes, action.appends, action.schedules), (true, false, false), "{list:?}");
            assert_eq!(
                action.after,
                List { left: bits(0), ..list },
                "it is counted, and changes nothing else"
            );
        }
    }

    #[test]
    fn a_packet_that_is_unasked_is_parked_whether_others_are_or_not() {
        // Holds, passing, asleep; chases.
        for (holds, is_passing, is_asleep, chases) in [
            (false, false, true, true),
            (true, true, false, false),
            (true, false, false, true),
            (true, false, true, false),
        ] {
            let list = List { holds, is_passing, is_asleep, ..three() };
            let asked = act(packet(9, true, false), list, true);
            for is_absent in [false, true] {
                let event = Event { is_unasked: true, ..packet(9, false, false) };
                let action = act(event, list, is_absent);
                assert_eq!((action.passes, action.appends), (false, true), "{list:?}");
                assert_eq!(action, Action { chases, ..asked }, "else as one that has asked in vain");
            }
        }
    }

    /// Holds, passing, asleep; schedules, restarts.
    #[test]
    fn a_packet_that_is_parked_has_a_turn_unless_its_list_will_come_to_it() {
        for (holds, is_passing, is_asleep, expected) in [
            (false, false, true, (true, true)),
            (true, true, false, (false, false)),
            (true, false, false, (true, false)),
            (true, false, true, (false, false)),
        ] {
            let list = List { holds, is_passing, is_asleep, was_woken: true, ..three() };
            let action = act(packet(9, true, false), list, true);
            assert_eq!((action.schedules, action.turn.restarts), expected, "{list:?}");
            // The pass of another list has another number.
            assert_eq!((action.turn.entry, action.turn.ring), (bits(9), bits(RING)));
            assert_eq!((action.turn.pass, action.after.pass), (holds, holds));
            let after = action.after;
            assert_eq!(after.head, bits(if holds { 3 } else { 9 }));
            assert_eq!((after.tail, after.is_passing), (bits(9), is_passing || expected.0));
            assert_eq!((after.is_asleep, after.was_woken), (is_asleep && holds, holds));
        }
    }

    /// Entry, absent; passes, head and whether any is left.
    #[test]
    fn only_the_oldest_packet_leaves_its_list() {
        for (entry, is_asked, is_absent, head, tail, expected) in [
            (3, true, false, 3, 5, (true, 4, true)),
            (3, false, true, 3, 5, (true, 4, true)),
            (5, true, false, 5, 5, (true, 4, false)),
            (3, true, true, 3, 5, (false, 3, true)),
            (4, true, true, 3, 5, (false, 3, true)),
            (4, false, false, 3, 5, (false, 3, true)),
        ] {
            let list = List { head: bits(head), tail: bits(tail), ..three() };
            let action = act(packet(entry, is_asked, true), list, is_absent);
            assert_eq!((action.passes, action.appends, action.issues), (expected.0, false, false));
            assert_eq!((action.after.holds, action.after.tail), (expected.2, bits(tail)), "{entry}");
            assert!(!action.after.holds || action.after.head == bits(expected.1), "{entry}");
            assert_eq!(action.after.left, list.left, "it was counted before");
            assert_eq!(action.after.held, if expected.0 { bits(2) } else { list.held });
        }
    }

    /// Woken; tries again at once, sleeps.
    #[test]
    fn a_list_that_was_tried_in_vain_sleeps_unless_a_read_has_completed() {
        for (was_woken, is_passing) in [(false, false), (false, true), (true, false), (true, true)] {
            let list = List { was_woken, is_passing, ..three() };
            let action = act(packet(3, true, true), list, true);
            assert_eq!((action.schedules, action.turn.restarts), (was_woken, was_woken));
            assert_eq!((action.turn.entry, action.turn.pass), (bits(3), false), "another pass");
            let after = action.after;
            assert_eq!((after.is_asleep, after.was_woken), (!was_woken, false));
            assert_eq!((after.is_passing, after.pass), (was_woken, false));
        }
    }

    /// Holds, asleep; schedules, woken after.
    #[test]
    fn a_read_wakes_a_list_that_sleeps_and_is_remembered_by_one_that_is_tried() {
        for (holds, is_asleep, schedules, was_woken) in [
            (false, false, false, false),
            (false, true, false, false),
            (true, true, true, false),
            (true, false, false, true),
        ] {
            let list = List { holds, is_asleep, is_passing: false, ..three() };
            let action = act(event_of_wake(bits(RING)), list, true);
            assert_eq!((action.passes, action.appends, action.issues), (false, false, false));
            assert_eq!(action.schedules, schedules, "{holds} {is_asleep}");
            let after = action.after;
            assert_eq!((after.was_woken, after.is_passing, after.pass), (was_woken, schedules, true));
            assert_eq!((after.holds, after.is_asleep), (holds, is_asleep && !holds));
            if schedules {
                let expected = Turn { ring: bits(RING), entry: bits(3), restarts: true, pass: true };
                assert_eq!(action.turn, expected);
            }
        }
    }

    /// Entry, pass; issues, goes on.
    #[test]
    fn a_pass_goes_to_the_end_of_the_list_or_to_its_failure() {
        for (entry, pass, issues, goes_on) in
            [(3, true, true, true), (5, true, true, false), (3, false, false, false)]
        {
            let action = act(turn(entry, pass), three(), true);
            assert_eq!((action.passes, action.appends), (false, false));
            assert_eq!((action.issues, action.schedules), (issues, goes_on), "{entry} {pass}");
            assert_eq!(action.after, List { is_passing: goes_on || !issues, ..three() }, "{entry} {pass}");
            if goes_on {
                assert_eq!((action.turn.entry, action.turn.restarts), (bits(NEXT), false));
            }
        }
    }
}
