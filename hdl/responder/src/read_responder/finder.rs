//! Finder: looks up what duplicate READs and atomics ask for among the noted requests of their queue pair.
//!
//! ```text
//!  request ──> duplicates (64) ──> head ──> measure ──> contains? ──> found
//!                  begins ──> next slot ──> seeks      │
//!                               slot ──────────────────┘
//! ```
//!
//! One slot a cycle, from the newest to the oldest, and three cycles more; a cycle in which another reads the
//! slots costs one. A peer that goes back asks for one of the newest.
//!
//! 1. Duplicates are looked up in order, each when `begins` is high, and are there until `takes`.
//! 2. The newest request that contains what is asked for is found: an old one with the same PSNs, from before they
//!    wrapped around, is not.
use super::record::Slot;
use super::replay::{Found, Measured, Noted, contains, found_of, measure, noted_slots};
use rnic_blocks::memory::Storage;
use rnic_blocks::stream::{Fifo, StreamRx};
use rnic_kernel::prelude::*;
use rnic_messages::read::{READ_COUNT_BITS, READ_SLOT_BITS, ReadRequest, ReadShare, read_place};
use rnic_messages::sizes::READ_POOL_BITS;

/// log2 of the duplicates between resolve and their release.
const DUPLICATES: usize = 6;
/// Bits of a number of duplicates.
pub(super) const DUPLICATE_COUNT: usize = DUPLICATES + 1;

/// State of the search.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Search {
    /// No duplicate is looked up.
    Idle,
    /// One is.
    Walk,
    /// `found` is valid.
    Done,
}

/// Looks up duplicates.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Finder {
    /// Duplicates; `ready` is registered.
    pub request: StreamRx<ReadRequest>,
    /// The oldest duplicate is looked up; `noted` is valid.
    pub begins: Signal<In, Bit>,
    /// What is noted of its queue pair.
    pub noted: Signal<In, Noted>,
    /// READ slots of its queue pair.
    pub share: Signal<In, ReadShare>,
    /// The oldest duplicate leaves.
    pub takes: Signal<In, Bit>,
    /// The slot at `seek_place` is read in this cycle, if `may_seek`.
    pub seeks: Signal<Out, Bit>,
    /// Place of a slot of the queue pair of the duplicate.
    pub seek_place: Signal<Out, Bits<READ_POOL_BITS>>,
    /// The slots are not read by another.
    pub may_seek: Signal<In, Bit>,
    /// The slot that was read in the last cycle.
    pub slot: Signal<In, Slot>,

    /// The oldest duplicate.
    pub head: Signal<Out, ReadRequest>,
    /// `head` is valid, whether it was looked up or not.
    pub has_head: Signal<Out, Bit>,
    /// No duplicate is looked up.
    pub is_idle: Signal<Out, Bit>,
    /// `found` is what the oldest duplicate asks for.
    pub is_done: Signal<Out, Bit>,
    /// What it asks for.
    pub found: Signal<Out, Found>,
    /// Duplicates that were not looked up.
    pub level: Signal<Out, Bits<DUPLICATE_COUNT>>,

    #[init(Fifo::new(Storage::Block))]
    duplicates: Fifo<ReadRequest, DUPLICATES, DUPLICATE_COUNT>,
    #[init(Reg::new(Search::Idle))]
    search: Reg<Search>,
    cursor: DFF<Bits<READ_SLOT_BITS>>,
    share_held: DFF<ReadShare>,
    /// Slots that are not read.
    left: DFF<Bits<READ_COUNT_BITS>>,
    has_slot: Reg<Bit>,
    read_slot: DFF<Bits<READ_SLOT_BITS>>,
    has_measured: Reg<Bit>,
    measured: DFF<Measured>,
    measured_slot: DFF<Bits<READ_SLOT_BITS>>,
    found_held: DFF<Found>,
}

impl Logic for Finder {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        StreamRx::link(&mut self.request, &mut self.duplicates.rx);
        self.level.next = self.duplicates.level.val();
        let search = self.search.q.val();
        let again = self.duplicates.tx.beat.val();
        let walks = search == Search::Walk;
        let cursor = self.cursor.q.val();
        let left = self.left.q.val();
        let has_slot = self.has_slot.q.val();
        let has_measured = self.has_measured.q.val();
        let reads = walks && left.any() && self.may_seek.val();
        let measured = self.measured.q.val();
        let is_it = has_measured && contains(measured, again);

        self.has_slot.d.next = reads;
        self.read_slot.d.next = cursor;
        self.has_measured.d.next = has_slot;
        self.measured.d.next = measure(again, self.slot.val());
        self.measured_slot.d.next = self.read_slot.q.val();
        if reads {
            self.cursor.d.next = cursor - 1;
            self.left.d.next = left - 1;
        }
        if walks && is_it {
            self.found_held.d.next = found_of(measured, again, self.measured_slot.q.val());
            self.search.d.next = Search::Done;
        }
        if walks && !is_it && !left.any() && !has_slot && !has_measured {
            self.found_held.d.next = Found { is_found: false, ..self.found_held.q.val() };
            self.search.d.next = Search::Done;
        }
        if self.begins.val() {
            let noted = self.noted.val();
            self.cursor.d.next = noted.count.get_bits::<READ_SLOT_BITS>(0) - 1;
            self.left.d.next = noted_slots(noted, self.share.val());
            self.share_held.d.next = self.share.val();
            self.search.d.next = Search::Walk;
        }
        if self.takes.val() {
            self.search.d.next = Search::Idle;
        }
        self.duplicates.tx.ready.next = self.takes.val();
        self.seeks.next = reads;
        self.seek_place.next = read_place(self.share_held.q.val(), cursor);
        self.head.next = again;
        self.has_head.next = self.duplicates.tx.valid.val();
        self.is_idle.next = search == Search::Idle;
        self.is_done.next = search == Search::Done;
        self.found.next = self.found_held.q.val();
    }
}
