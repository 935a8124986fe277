//! Share: says whether a ring has its share of what is parked; then admission drops what comes for it.
//!
//! ```text
//!  change ──> held ──> compare with what is free ──> shares
//!  next_ring ──────────────────────────────────────────^──> exceeds_share
//! ```
//!
//! A ring has its share when its parked packets hold as many entries as are free ([`has_share`]); the room that they hold is
//! bounded where it is given. It is compared whenever a list of the ring changes, two cycles later: what is free may be more or
//! less since.
//!
//! 1. A ring that has nothing parked has no share to exceed, whatever is free. So what a ring is denied it has again when its
//!    list is empty, at the latest.
use super::list::{ENTRY_COUNT, RING_BITS};
use super::lists::Change;
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;
use rnic_messages::pool::has_share;
use rnic_messages::sizes::sizes;

/// What a ring holds after a change of its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Changed {
    enable: Bit,
    ring: Bits<RING_BITS>,
    held: Bits<ENTRY_COUNT>,
}

/// Keeps the shares; see the module.
#[clocked(reset = "A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Share {
    /// Free entries of park; registered here.
    pub free_entries: Signal<In, Bits<ENTRY_COUNT>>,
    /// Write of a list.
    pub change: Signal<In, Change>,
    /// Ring of the packet that may enter in the next cycle.
    pub next_ring: Signal<In, Bits<RING_BITS>>,
    /// It has its share; a function of registers, and without logic.
    pub exceeds_share: Signal<Out, Bit>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    shares: Memory<Bit, RING_BITS>,
    free: DFF<Bits<ENTRY_COUNT>>,
    last: DFF<Changed>,
}

impl Logic for Share {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.free.d.next = self.free_entries.val();
        let change = self.change.val();
        self.last.d.next = Changed { enable: change.enable, ring: change.ring, held: change.list.held };
        let last = self.last.q.val();
        self.shares.write(last.enable, last.ring, has_share::<ENTRY_COUNT>(last.held, self.free.q.val()));
        self.shares.read(true, self.next_ring.val());
        self.exceeds_share.next = self.shares.read_data.val();
    }
}
