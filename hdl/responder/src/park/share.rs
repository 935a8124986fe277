//! Share: says whether a ring has its share of what is parked; then admission drops what comes for it.
//!
//! ```text
//!  change ──> held ──> compare with what is free ──> shares
//!  next_ring ──────────────────────────────────────────^──> exceeds_share
//! ```
//!
//! A ring has its share when its parked packets hold as many entries as are free, or as much room of the receive buffer. So one
//! ring has half of the pool at most, two have a third each, and some is always free. It is compared whenever a list of the ring
//! changes, two cycles later: what is free may be more or less since.
//!
//! 1. A ring that has nothing parked has no share to exceed, whatever is free. So what a ring is denied it has again when its
//!    list is empty, at the latest.
use super::list::{ENTRY_COUNT, Held, RING_BITS};
use super::lists::Change;
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;
use rnic_messages::receive::{ROOM_BITS, ROOM_UNIT_LOG2};
use rnic_messages::sizes::SPAN_BITS;

/// Bits of the units of one packet.
pub(super) const UNITS_BITS: usize = SPAN_BITS - ROOM_UNIT_LOG2;

/// Gives the units of room that a payload takes.
#[kernel]
pub(super) fn units_of(payload_bytes: Bits<SPAN_BITS>) -> Bits<UNITS_BITS> {
    (payload_bytes + ((1 << ROOM_UNIT_LOG2) - 1)).get_bits::<UNITS_BITS>(ROOM_UNIT_LOG2)
}

/// Gives what is held after a packet of so many units was parked, or has left its list.
#[kernel]
pub(super) fn held_after(held: Held, parks: Bit, leaves: Bit, units: Bits<UNITS_BITS>) -> Held {
    let room = bit_cast::<ROOM_BITS, UNITS_BITS>(units);
    if parks {
        Held { entries: held.entries + 1, room: held.room + room }
    } else if leaves {
        Held { entries: held.entries - 1, room: held.room - room }
    } else {
        held
    }
}

/// Says whether a ring that holds so much has its share.
#[kernel]
fn has_share(held: Held, free: Held) -> Bit {
    let is_holding = held.entries.any();
    is_holding && (held.entries >= free.entries || held.room >= free.room)
}

/// What a ring holds after a change of its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Changed {
    enable: Bit,
    ring: Bits<RING_BITS>,
    held: Held,
}

/// Keeps the shares; see the module.
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Share {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high. A sweep must follow.
    pub reset: Signal<In, Bit>,
    /// Free entries of park; registered here.
    pub free_entries: Signal<In, Bits<ENTRY_COUNT>>,
    /// Free room of the receive buffer, in units of 128 bytes; registered here.
    pub free_room: Signal<In, Bits<ROOM_BITS>>,
    /// Write of a list.
    pub change: Signal<In, Change>,
    /// Ring of the packet that may enter in the next cycle.
    pub next_ring: Signal<In, Bits<RING_BITS>>,
    /// It has its share; a function of registers, and without logic.
    pub exceeds_share: Signal<Out, Bit>,
    #[init(Memory::new(Storage::Block))]
    shares: Memory<Bit, RING_BITS>,
    free: DFF<Held>,
    last: DFF<Changed>,
}

impl Logic for Share {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.free.d.next = Held { entries: self.free_entries.val(), room: self.free_room.val() };
        let change = self.change.val();
        self.last.d.next = Changed { enable: change.enable, ring: change.ring, held: change.list.held };
        let last = self.last.q.val();
        self.shares.write_enable.next = last.enable;
        self.shares.write_address.next = last.ring;
        self.shares.write_data.next = has_share(last.held, self.free.q.val());
        self.shares.read_enable.next = true;
        self.shares.read_address.next = self.next_ring.val();
        self.exceeds_share.next = self.shares.read_data.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_takes_whole_units_of_room() {
        for (bytes, units) in [(0, 0), (1, 1), (128, 1), (129, 2), (1024, 8), (4095, 32), (4096, 32)] {
            assert_eq!(units_of(bits(bytes)), bits(units), "{bytes} bytes");
        }
    }

    #[test]
    fn a_ring_has_its_share_when_it_holds_as_much_as_is_free() {
        let free = Held { entries: bits(100), room: bits(300) };
        for (entries, room, expected) in
            [(0, 0, false), (99, 299, false), (100, 0, true), (101, 10, true), (1, 300, true), (1, 301, true)]
        {
            let held = Held { entries: bits(entries), room: bits(room) };
            assert_eq!(has_share(held, free), expected, "{held:?}");
        }
        // Nothing is free: who has nothing parked is not dropped for it.
        assert!(!has_share(Held::default(), Held::default()));
        assert!(has_share(Held { entries: bits(1), room: bits(0) }, Held::default()));
    }

    #[test]
    fn what_is_parked_is_held_until_it_leaves_its_list() {
        let held = Held { entries: bits(3), room: bits(40) };
        for (parks, leaves, entries, room) in
            [(true, false, 4, 45), (false, true, 2, 35), (false, false, 3, 40)]
        {
            let expected = Held { entries: bits(entries), room: bits(room) };
            assert_eq!(held_after(held, parks, leaves, bits(5)), expected);
        }
    }
}
