//! Decides whether a packet asks for its WQE when it enters.
//!
//! ```text
//!  next_ring ──> parked, entered ──> is_unasked
//!  change ─────────^        ^── enters
//! ```
//!
//! While packets of its ring are parked, a packet is not answered with a WQE: it is parked unasked, and asks once, when its turn
//! comes. If it asked twice, the answers would take longer than packets need to arrive, and a ring would stay parked.
//!
//! One packet in three cycles. The answer is there when the packet enters.
//!
//! 1. After a packet that is unasked, those of its ring are unasked until all of these have been parked and have passed. So
//!    none is given the WQE of one before it.
//! 2. What is read is as of two cycles before: a ring whose list has become empty is taken for one that holds, which costs a
//!    packet a turn; one whose list has begun is known to the prefetch.
use super::list::{RING_BITS, UNASKED_BITS};
use super::lists::Change;
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;

/// What is known of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Parked {
    /// It has packets.
    holds: Bit,
    /// Free-running count of those that were parked unasked.
    unasked: Bits<UNASKED_BITS>,
}

/// Says whether packets of a ring are parked, or on their way to be; `entered` is the free-running count of those that
/// entered unasked.
#[kernel]
fn is_parked(parked: Parked, entered: Bits<UNASKED_BITS>) -> Bit {
    parked.holds || parked.unasked != entered
}

/// Decides who asks; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct AskGate {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// Ring of the packet that may enter in the next cycle.
    pub next_ring: Signal<In, Bits<RING_BITS>>,
    /// It enters.
    pub enters: Signal<In, Bit>,
    /// It takes a WQE.
    pub takes_wqe: Signal<In, Bit>,
    /// It takes a WQE, and is parked without a request; combinational from `takes_wqe`.
    pub is_unasked: Signal<Out, Bit>,
    /// Write of a list.
    pub change: Signal<In, Change>,
    /// The write is one of the sweep; nothing enters.
    pub is_sweeping: Signal<In, Bit>,
    #[init(Memory::new(Storage::Block))]
    parked: Memory<Parked, RING_BITS>,
    #[init(Memory::new(Storage::Block))]
    entered: Memory<Bits<UNASKED_BITS>, RING_BITS>,
    ring: DFF<Bits<RING_BITS>>,
}

impl Logic for AskGate {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let next_ring = self.next_ring.val();
        self.ring.d.next = next_ring;
        self.parked.read_enable.next = true;
        self.parked.read_address.next = next_ring;
        self.entered.read_enable.next = true;
        self.entered.read_address.next = next_ring;

        let entered = self.entered.read_data.val();
        let is_unasked = self.takes_wqe.val() && is_parked(self.parked.read_data.val(), entered);
        self.is_unasked.next = is_unasked;
        let sweeps = self.is_sweeping.val();
        let none = bits::<UNASKED_BITS>(0);
        self.entered.write_enable.next = sweeps || (self.enters.val() && is_unasked);
        let change = self.change.val();
        self.entered.write_address.next = select(sweeps, change.ring, self.ring.q.val());
        self.entered.write_data.next = select(sweeps, none, entered + 1);
        self.parked.write_enable.next = change.enable;
        self.parked.write_address.next = change.ring;
        self.parked.write_data.next = Parked { holds: change.list.holds, unasked: change.list.unasked };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_parked_until_all_that_entered_unasked_were_parked_and_have_passed() {
        for (holds, unasked, entered, expected) in [
            (false, 0, 0, false),
            (false, 63, 63, false),
            (false, 63, 0, true),
            (false, 3, 5, true),
            (true, 5, 5, true),
            (true, 4, 5, true),
        ] {
            let parked = Parked { holds, unasked: bits(unasked) };
            assert_eq!(is_parked(parked, bits(entered)), expected, "{parked:?} {entered}");
        }
    }
}
