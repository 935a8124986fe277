//! Records of the lists, and the links of their entries.
//!
//! ```text
//!  ring, entry ──> lists, links ──> list, behind
//!                     ^ after, links <──┘ (the event, a cycle later)
//! ```
//!
//! One event a cycle: it is read in one cycle and acts in the next, or later if it is held, and then writes the record of its
//! ring.
//!
//! 1. An event sees what all events before it have written: what was written in the cycle of its read is taken from the
//!    write.
use super::list::{ENTRY_BITS, List, RING_BITS};
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::sizes;

/// A record that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Change {
    /// A record is written in this cycle; without it the others mean nothing.
    pub enable: Bit,
    pub ring: Bits<RING_BITS>,
    pub list: List,
}

/// A link that was written in the cycle in which that of the event was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct NewLink {
    from: Bits<ENTRY_BITS>,
    to: Bits<ENTRY_BITS>,
}

/// The records; see the module.
#[clocked(reset = "A sweep must follow")]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Lists {
    /// An event is read; the one before acts in this cycle, or did before.
    pub reads: Signal<In, Bit>,
    /// Its ring.
    pub ring: Signal<In, Bits<RING_BITS>>,
    /// Its entry.
    pub entry: Signal<In, Bits<ENTRY_BITS>>,
    /// Record of its ring, a cycle later.
    pub list: Signal<Out, List>,
    /// The entry after its own in the list.
    pub behind: Signal<Out, Bits<ENTRY_BITS>>,
    /// The event acts.
    pub acts: Signal<In, Bit>,
    /// It is appended to the list.
    pub appends: Signal<In, Bit>,
    /// The record after it.
    pub after: Signal<In, List>,
    /// The record of `sweep` is cleared; no event acts.
    pub clears: Signal<In, Bit>,
    /// A ring.
    pub sweep: Signal<In, Bits<RING_BITS>>,
    /// What is written; combinational from `after`.
    pub change: Signal<Out, Change>,
    #[init(Memory::new(Storage::Block).with_words_log2(sizes().receive_rings()))]
    lists: Memory<List, RING_BITS>,
    /// For each entry of a list the next one.
    #[init(Memory::new(Storage::Block))]
    links: Memory<Bits<ENTRY_BITS>, ENTRY_BITS>,
    event_ring: DFF<Bits<RING_BITS>>,
    event_entry: DFF<Bits<ENTRY_BITS>>,
    /// The record that the event before has written, in the cycle in which that of this one was read.
    written: DFF<List>,
    written_ring: DFF<Bits<RING_BITS>>,
    has_written: Reg<Bit>,
    new_link: DFF<NewLink>,
    has_new_link: Reg<Bit>,
}

impl Logic for Lists {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let reads = self.reads.val();
        self.lists.read(reads, self.ring.val());
        self.links.read(reads, self.entry.val());
        let (ring, entry) = (self.event_ring.q.val(), self.event_entry.q.val());
        let is_same = self.has_written.q.val() && self.written_ring.q.val() == ring;
        let list = select(is_same, self.written.q.val(), self.lists.read_data.val());
        let is_new = self.has_new_link.q.val() && self.new_link.q.val().from == entry;
        self.list.next = list;
        self.behind.next = select(is_new, self.new_link.q.val().to, self.links.read_data.val());

        let (acts, after, clears) = (self.acts.val(), self.after.val(), self.clears.val());
        let links = acts && self.appends.val() && list.holds;
        if reads {
            self.event_ring.d.next = self.ring.val();
            self.event_entry.d.next = self.entry.val();
            self.has_written.d.next = acts;
            self.written_ring.d.next = ring;
            self.written.d.next = after;
            self.has_new_link.d.next = links;
            self.new_link.d.next = NewLink { from: list.tail, to: entry };
        }
        let changed = select(clears, self.sweep.val(), ring);
        let record = select(clears, List::default(), after);
        self.lists.write(clears || acts, changed, record);
        self.links.write(links, list.tail, entry);
        self.change.next = Change { enable: clears || acts, ring: changed, list: record };
    }
}
