//! Decides whether a packet asks for its WQE when it enters.
//!
//! ```text
//!  next_ring ──> known, entered ──> is_unasked
//!  change ─────────^        ^── enters
//! ```
//!
//! A packet may ask when it enters if all packets of its ring before it have asked as well and are ahead of it in the order: its
//! ring has none parked, or all of those have had their turn. Otherwise it is parked unasked, and asks once, when its turn
//! comes. So a ring is unparked as soon as its list was emptied up to what comes.
//!
//! One packet in three cycles. The answer is there when the packet enters.
//!
//! A packet that admission has dropped never asks, and is never parked: nobody waits for it. One that must rest is parked unasked,
//! whatever is known of its ring.
//!
//! 1. While a packet is on its way that has not asked, or has asked before the list failed or began, those after it are unasked.
//! 2. What is read is as of two cycles before: what has failed or begun since has shut the ring for all that is asked until
//!    its oldest packet asks again, and that enters the order later (rule 3 of `WqeGrant`).
use super::list::{COUNT_BITS, List, RING_BITS};
use super::lists::Change;
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::sizes;

/// What is known of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Known {
    /// No packet of it is left that has not had its turn.
    is_open: Bit,
    /// As in [`List`].
    left: Bits<COUNT_BITS>,
    pass: Bit,
}

/// Packets of a ring that have entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Entered {
    /// Free-running count.
    count: Bits<COUNT_BITS>,
    /// `count` after the last one behind which no packet may ask before it has left.
    behind: Bits<COUNT_BITS>,
    /// Number of the pass that the last one knew.
    pass: Bit,
}

/// Gives what is known of a list.
#[kernel]
fn known_of(list: List) -> Known {
    Known { is_open: !list.holds || (!list.is_passing && !list.is_asleep), left: list.left, pass: list.pass }
}

/// Says whether a packet may ask. At most 33 packets of a ring are on their way, so `left` is less than 64 away from `behind`.
#[kernel]
fn may_ask(known: Known, entered: Entered) -> Bit {
    let behind = select(entered.pass == known.pass, entered.behind, entered.count);
    let is_behind = (known.left - behind).get_bit(COUNT_BITS - 1);
    known.is_open && !is_behind
}

/// Gives the record after a packet, that has asked or not, or that admission has dropped.
#[kernel]
fn entered_after(known: Known, entered: Entered, asks: Bit, is_dropped: Bit) -> Entered {
    let count = entered.count + 1;
    if is_dropped {
        Entered { count, ..entered }
    } else {
        Entered { count, behind: select(asks, known.left, count), pass: known.pass }
    }
}

/// Decides who asks; see the module.
#[clocked(reset = "A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct AskGate {
    /// Ring of the packet that may enter in the next cycle.
    pub next_ring: Signal<In, Bits<RING_BITS>>,
    /// It enters.
    pub enters: Signal<In, Bit>,
    /// Admission has dropped it.
    pub is_dropped: Signal<In, Bit>,
    /// It must rest.
    pub rests: Signal<In, Bit>,
    /// It may not ask for what is known of its ring; a function of registers.
    pub is_unasked: Signal<Out, Bit>,
    /// Write of a list.
    pub change: Signal<In, Change>,
    /// The write is one of the sweep; nothing enters.
    pub is_sweeping: Signal<In, Bit>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    known: Memory<Known, RING_BITS>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    entered: Memory<Entered, RING_BITS>,
    ring: DFF<Bits<RING_BITS>>,
}

impl Logic for AskGate {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let next_ring = self.next_ring.val();
        self.ring.d.next = next_ring;
        self.known.read(true, next_ring);
        self.entered.read(true, next_ring);

        let (known, entered) = (self.known.read_data.val(), self.entered.read_data.val());
        let may_ask = may_ask(known, entered);
        self.is_unasked.next = !may_ask;
        let asks = may_ask && !self.rests.val();
        let sweeps = self.is_sweeping.val();
        self.entered.write_enable.next = sweeps || self.enters.val();
        let change = self.change.val();
        self.entered.write_address.next = select(sweeps, change.ring, self.ring.q.val());
        self.entered.write_data.next =
            select(sweeps, Entered::default(), entered_after(known, entered, asks, self.is_dropped.val()));
        self.known.write(change.enable, change.ring, known_of(change.list));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_open_when_all_its_packets_have_had_their_turn() {
        for (holds, is_passing, is_asleep, expected) in [
            (false, false, false, true),
            (true, false, false, true),
            (true, true, false, false),
            (true, false, true, false),
        ] {
            let list = List { holds, is_passing, is_asleep, left: bits(5), pass: true, ..List::default() };
            let expected = Known { is_open: expected, left: bits(5), pass: true };
            assert_eq!(known_of(list), expected, "{list:?}");
        }
    }

    /// Open, left, pass; entered, behind, pass; asks.
    #[test]
    fn a_packet_asks_if_all_before_it_have_asked_in_this_pass() {
        for ((is_open, left, pass), (count, behind, known_pass), expected) in [
            ((true, 5, true), (5, 5, true), true),
            ((false, 5, true), (5, 5, true), false),
            // Others are on their way, which have asked.
            ((true, 5, true), (9, 5, true), true),
            ((true, 5, true), (9, 2, true), true),
            // One of them has not.
            ((true, 5, true), (9, 8, true), false),
            ((true, 8, true), (9, 8, true), true),
            // The list has failed or begun behind their back.
            ((true, 5, false), (9, 5, true), false),
            ((true, 9, false), (9, 5, true), true),
            // Counts wrap.
            ((true, 127, true), (3, 2, true), false),
            ((true, 2, true), (3, 127, true), true),
        ] {
            let known = Known { is_open, left: bits(left), pass };
            let entered = Entered { count: bits(count), behind: bits(behind), pass: known_pass };
            assert_eq!(may_ask(known, entered), expected, "{known:?} {entered:?}");
            let count = bits::<COUNT_BITS>(count) + 1;
            for asks in [false, true] {
                let after = Entered { count, behind: select(asks, bits(left), count), pass };
                assert_eq!(entered_after(known, entered, asks, false), after);
                assert_eq!(entered_after(known, entered, asks, true), Entered { count, ..entered });
            }
        }
    }
}
