//! Shares: how much of the request buffer each queue pair may hold.
//!
//! A queue pair whose packets come faster than they are taken, or wait, would fill the buffer for everybody. Here it may hold as
//! many cells as are free, and half as many packets as could still come: so one alone holds half of the cells and a third of the
//! packets, and with any number of them there is always room for another. What exceeds its share is dropped when its frame has
//! ended, before anything is changed by it: to the peer a lost frame, which a gap NAK or its timer brings back.
//!
//! ```text
//!  packet (slot) ──> entered, left, given [slot] ──> held ──> compare ──> has_share
//!  commit ─────────────^         ^      ^
//!  leaves (slot) ────────────────┘      │
//!  given (cell) ──> owners [cell] ──────┘
//!  takes (cell, slot) ──^
//! ```
//!
//! A packet counts from its commit until responder has passed it on, and a cell until place has read it. Each count of a slot
//! has one writer; what a slot holds is their difference.
//!
//! The share is looked up two cycles before the earliest end of the frame, once, and holds to its end. A commit is seen five
//! cycles later, so some frames of a single beat may exceed the share.
//!
//! 1. A queue pair that holds less than its share is not refused, whatever others hold.
//! 2. At most `2^CELL - 1` packets count at a time; the responder has a place for each.
//! 3. What has left is not counted any more, whatever became of it.
//!
//! Reset sweeps the counts, in 1,024 cycles, in which nobody has a share. Design decision 3.
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::{CELL_BITS, QUEUE_PAIR_BITS};

/// Bits of a free-running count of packets or cells, more than are held at a time.
const COUNT_BITS: usize = CELL_BITS + 1;
/// Packets that count at a time.
const PACKETS_MAX: u64 = 500;

/// Something that is counted for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Change {
    slot: Bits<QUEUE_PAIR_BITS>,
    packets: Bit,
    cells: Bits<CELL_BITS>,
}

/// Free-running counts of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Counts {
    packets: Bits<COUNT_BITS>,
    cells: Bits<COUNT_BITS>,
}

/// Gives the counts after a change.
#[kernel]
fn counts_after(counts: Counts, change: Change) -> Counts {
    Counts {
        packets: counts.packets + bit_cast::<COUNT_BITS, 1>(change.packets.into()),
        cells: counts.cells + bit_cast::<COUNT_BITS, CELL_BITS>(change.cells),
    }
}

/// Says whether a queue pair that holds so much may have another packet, when all together hold `all_packets`, and `free_cells`
/// are free.
#[kernel]
fn may_enter(held: Counts, all_packets: Bits<COUNT_BITS>, free_cells: Bits<COUNT_BITS>) -> Bit {
    let free_packets = bits::<COUNT_BITS>(PACKETS_MAX) - all_packets;
    let has_packet = all_packets < PACKETS_MAX && held.packets <= (free_packets >> 1);
    has_packet && held.cells <= free_cells
}

/// Counts of all slots that one writer changes, and a second port to look at them.
///
/// A change is seen three cycles later; one a cycle.
#[derive(LogicBlock, Registers, Construct)]
struct SlotCounts {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; a sweep must follow.
    pub reset: Signal<In, Bit>,
    /// The counts of `change.slot` are cleared.
    pub clears: Signal<In, Bit>,
    /// `change` is valid.
    pub changes: Signal<In, Bit>,
    /// What is added.
    pub change: Signal<In, Change>,
    /// A slot to look at.
    pub slot: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// Its counts, a cycle later; that of the memory.
    pub counts: Signal<Out, Counts>,

    #[init(Memory::new(Storage::Block))]
    changed: Memory<Counts, QUEUE_PAIR_BITS>,
    #[init(Memory::new(Storage::Block))]
    seen: Memory<Counts, QUEUE_PAIR_BITS>,
    is_changing: Reg<Bit>,
    is_clearing: Reg<Bit>,
    changing: DFF<Change>,
    /// What was written in the cycle in which the counts of `changing` were read.
    has_written: Reg<Bit>,
    written_slot: DFF<Bits<QUEUE_PAIR_BITS>>,
    written: DFF<Counts>,
}

impl Logic for SlotCounts {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let change = self.change.val();
        self.is_changing.d.next = self.changes.val() || self.clears.val();
        self.is_clearing.d.next = self.clears.val();
        self.changing.d.next = change;
        self.changed.read_enable.next = true;
        self.changed.read_address.next = change.slot;
        self.seen.read_enable.next = true;
        self.seen.read_address.next = self.slot.val();
        self.counts.next = self.seen.read_data.val();

        let changing = self.changing.q.val();
        let writes = self.is_changing.q.val();
        let is_same = self.has_written.q.val() && self.written_slot.q.val() == changing.slot;
        let before = select(is_same, self.written.q.val(), self.changed.read_data.val());
        let none = Counts { packets: bits::<COUNT_BITS>(0), cells: bits::<COUNT_BITS>(0) };
        let after = select(self.is_clearing.q.val(), none, counts_after(before, changing));
        self.has_written.d.next = writes;
        self.written_slot.d.next = changing.slot;
        self.written.d.next = after;
        self.changed.write_enable.next = writes;
        self.changed.write_address.next = changing.slot;
        self.changed.write_data.next = after;
        self.seen.write_enable.next = writes;
        self.seen.write_address.next = changing.slot;
        self.seen.write_data.next = after;
    }
}

/// Shares of the queue pairs; see the module.
#[derive(LogicBlock, Registers, Construct)]
#[new(
    /// Makes shares of `cells` cells.
    cells: u64,
)]
pub struct Shares {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high; nothing is held.
    pub reset: Signal<In, Bit>,

    /// Slot of the packet that begins.
    pub slot: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// `slot` is valid, two cycles before its packet ends at the earliest.
    pub slot_valid: Signal<In, Bit>,
    /// The packet may be kept; registered, from two cycles after `slot_valid` on.
    pub has_share: Signal<Out, Bit>,

    /// The packet takes `cell`.
    pub takes: Signal<In, Bit>,
    /// The cell that it takes.
    pub cell: Signal<In, Bits<CELL_BITS>>,
    /// The packet is kept, with what it takes in this cycle.
    pub commit: Signal<In, Bit>,
    /// The packet is discarded.
    pub rollback: Signal<In, Bit>,
    /// Slot of the packet that takes cells, and is kept.
    pub owner: Signal<In, Bits<QUEUE_PAIR_BITS>>,

    /// A packet of `left` was passed on.
    pub leaves: Signal<In, Bit>,
    /// Slot of that packet.
    pub left: Signal<In, Bits<QUEUE_PAIR_BITS>>,
    /// `given` was read.
    pub gives: Signal<In, Bit>,
    /// A cell.
    pub given: Signal<In, Bits<CELL_BITS>>,

    entered: SlotCounts,
    passed: SlotCounts,
    returned: SlotCounts,
    #[init(Memory::new(Storage::Block))]
    owners: Memory<Bits<QUEUE_PAIR_BITS>, CELL_BITS>,
    /// Cells of the packet that is being received.
    open_cells: Reg<Bits<CELL_BITS>>,
    all_packets: Reg<Bits<COUNT_BITS>>,
    #[init(Reg::new(bits(cells - 1)))]
    free_cells: Reg<Bits<COUNT_BITS>>,
    #[init(Reg::new(true))]
    is_clearing: Reg<Bit>,
    sweep: Reg<Bits<QUEUE_PAIR_BITS>>,
    is_looking: Reg<Bit>,
    has_owner: Reg<Bit>,
    may_keep: Reg<Bit>,
}

impl Logic for Shares {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let clears = self.is_clearing.q.val();
        let sweep = self.sweep.q.val();
        if clears {
            self.sweep.d.next = sweep + 1;
            self.is_clearing.d.next = !sweep.all();
        }
        self.entered.clears.next = clears;
        self.passed.clears.next = clears;
        self.returned.clears.next = clears;

        // What enters.
        let commit = self.commit.val();
        let takes = self.takes.val();
        let open_cells = self.open_cells.q.val() + bit_cast::<CELL_BITS, 1>(takes.into());
        self.open_cells.d.next = select(commit || self.rollback.val(), bits::<CELL_BITS>(0), open_cells);
        self.entered.changes.next = commit;
        self.entered.change.next =
            Change { slot: select(clears, sweep, self.owner.val()), packets: true, cells: open_cells };
        self.owners.write_enable.next = takes;
        self.owners.write_address.next = self.cell.val();
        self.owners.write_data.next = self.owner.val();

        // What leaves; a cell is counted for its owner a cycle later.
        let leaves = self.leaves.val();
        let gives = self.gives.val();
        self.passed.changes.next = leaves;
        self.passed.change.next =
            Change { slot: select(clears, sweep, self.left.val()), packets: true, cells: bits::<CELL_BITS>(0) };
        self.owners.read_enable.next = gives;
        self.owners.read_address.next = self.given.val();
        self.has_owner.d.next = gives;
        self.returned.changes.next = self.has_owner.q.val();
        self.returned.change.next =
            Change { slot: select(clears, sweep, self.owners.read_data.val()), packets: false, cells: bits::<CELL_BITS>(1) };
        let all_packets = self.all_packets.q.val();
        if commit && !leaves {
            self.all_packets.d.next = all_packets + 1;
        }
        if leaves && !commit {
            self.all_packets.d.next = all_packets - 1;
        }
        let taken = select(commit, bit_cast::<COUNT_BITS, CELL_BITS>(open_cells), bits::<COUNT_BITS>(0));
        let free_cells = self.free_cells.q.val();
        self.free_cells.d.next = free_cells - taken + bit_cast::<COUNT_BITS, 1>(gives.into());

        // The share, when the packet begins.
        self.entered.slot.next = self.slot.val();
        self.passed.slot.next = self.slot.val();
        self.returned.slot.next = self.slot.val();
        let entered = self.entered.counts.val();
        let held = Counts {
            packets: entered.packets - self.passed.counts.val().packets,
            cells: entered.cells - self.returned.counts.val().cells,
        };
        self.is_looking.d.next = self.slot_valid.val();
        if self.is_looking.q.val() {
            self.may_keep.d.next = may_enter(held, all_packets, free_cells) && !clears;
        }
        self.has_share.next = self.may_keep.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::{Bench, random};

    /// Packets and cells of the queue pair, all packets, free cells.
    #[test]
    fn a_queue_pair_may_hold_as_many_cells_as_are_free_and_half_as_many_packets() {
        for (packets, cells, all_packets, free_cells, expected) in [
            (0, 0, 0, 511, true),
            (166, 0, 167, 511, true),
            (167, 0, 167, 511, false),
            (0, 0, 499, 0, true),
            (0, 0, 500, 511, false),
            (1, 255, 1, 255, true),
            (1, 256, 1, 255, false),
            (8, 256, 8, 256, true),
        ] {
            let held = Counts { packets: bits(packets), cells: bits(cells) };
            assert_eq!(
                may_enter(held, bits(all_packets), bits(free_cells)),
                expected,
                "{packets} {cells} {all_packets} {free_cells}"
            );
        }
    }

    /// A packet in the buffer.
    struct Held {
        slot: u64,
        cells: Vec<u64>,
        has_left: bool,
    }

    /// Packets of few slots enter, leave and are read in any order: the share is that of what is held.
    #[test]
    fn the_share_is_that_of_what_is_held() {
        const CELLS: u64 = 64;
        let mut random = random();
        let mut bench = Bench::clocked(Shares::new(CELLS), |block| &mut block.clock).in_lock_step();
        (0..1_030).for_each(|_| bench.tick());
        let mut held: Vec<Held> = vec![];
        let mut free: Vec<u64> = (0..CELLS - 1).collect();
        let (mut kept, mut refused) = (0, 0);
        for turn in 0..1_500 {
            let slot = [0, 7, 0x3ff].choose(&mut random).copied().unwrap();
            let of_slot = |held: &[Held]| {
                let mine = held.iter().filter(|packet| packet.slot == slot);
                mine.fold((0, 0), |(packets, cells), packet| {
                    (packets + usize::from(!packet.has_left), cells + packet.cells.len())
                })
            };
            let all_packets = held.iter().filter(|packet| !packet.has_left).count();
            let (packets, cells) = of_slot(&held);
            let block = &mut bench.block;
            (block.slot.next, block.slot_valid.next) = (bits(slot), true);
            bench.tick();
            bench.block.slot_valid.next = false;
            bench.tick();
            bench.settle();
            let expected = packets <= (PACKETS_MAX as usize - all_packets) / 2 && cells <= free.len();
            assert_eq!(bench.block.has_share.val(), expected, "{slot:#x} holds {packets}, {cells}");

            // It takes some cells, and is kept if it may.
            let count = random.random_range(0..6).min(free.len());
            let taken: Vec<u64> = free.drain(..count).collect();
            let keeps = expected && random.random_ratio(7, 8);
            for (place, cell) in taken.iter().enumerate() {
                let block = &mut bench.block;
                (block.takes.next, block.cell.next, block.owner.next) = (true, bits(*cell), bits(slot));
                let is_last = place + 1 == taken.len();
                (block.commit.next, block.rollback.next) = (is_last && keeps, is_last && !keeps);
                bench.tick();
            }
            bench.block.takes.next = false;
            if taken.is_empty() {
                (bench.block.owner.next, bench.block.commit.next) = (bits(slot), keeps);
                bench.tick();
            }
            (bench.block.commit.next, bench.block.rollback.next) = (false, false);
            if keeps {
                held.push(Held { slot, cells: taken, has_left: false });
                kept += 1;
            } else {
                free.extend(taken);
                refused += usize::from(!expected);
            }

            // Others leave, and are read; more in some periods.
            for _ in 0..8 {
                let block = &mut bench.block;
                (block.leaves.next, block.gives.next) = (false, false);
                if turn / 100 % 2 == 0 || random.random_ratio(1, 4) {
                    let place = random.random_range(0..held.len().max(1));
                    if let Some(packet) = held.get_mut(place) {
                        if !packet.has_left {
                            packet.has_left = true;
                            (block.leaves.next, block.left.next) = (true, bits(packet.slot));
                        } else if let Some(cell) = packet.cells.pop() {
                            free.push(cell);
                            (block.gives.next, block.given.next) = (true, bits(cell));
                        }
                    }
                    held.retain(|packet| !packet.has_left || !packet.cells.is_empty());
                }
                bench.tick();
            }
            let block = &mut bench.block;
            (block.leaves.next, block.gives.next) = (false, false);
            (0..5).for_each(|_| bench.tick());
        }
        println!("{kept} kept, {refused} refused");
        assert!(kept > 500 && refused > 50);
    }
}
