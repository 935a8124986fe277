//! Free cells: the cells of a payload memory that no packet holds, as a linked list.
//!
//! The list is also what chains the cells of a packet: a packet takes cells from the head of the list, so each of its cells
//! links to the next one, as it did while they were free. Nothing is written when cells are taken, and a packet that is
//! discarded gives all of them back by moving the head back. Cells return one by one, in any order, at the tail.
//!
//! ```text
//!              cells of the packet         free
//!                 ┌──┐   ┌──┐         ┌──┐   ┌──┐   ┌──┐
//!      start ────>│ 5├──>│ 2├────────>│ 7├──>│ 0├──>│ 3│<── tail <── gives
//!                 └──┘   └──┘         └▲─┘   └──┘   └──┘
//!   rollback: head = start       head ─┘   takes: head = link of head
//!   commit:  start = head
//! ```
//!
//! A cell can be taken in every cycle, also in that after a commit or a rollback, and one can return in every cycle. A cell
//! that returns is seen two cycles later. After power-on and reset the cells enter the list one by one, in which they are
//! as any that return; those that return meanwhile come first.
//!
//! 1. A cell that was taken is not taken again before it has returned or its packet was rolled back.
//! 2. Each cell is free, or held, at any time; none is lost.
//! 3. One cell always stays in the list, so that the tail can be linked to what follows it.
//! 4. While a packet is held, `after` of one of its cells is the one that was taken next, unless that is the last one.
//! 5. `takes` counts only while `has_cell`. With `commit` it belongs to the packet, with `rollback` it does not count.
//!
//! A cell must be given back once, and only if its packet was committed. The numbers of the cells are 0 to `count - 1`.
//! The links are read without an output register: the head must follow its link in one cycle, and no logic but a
//! selection of three lies behind the memory.
use rnic_blocks::memory::{Memory, Storage};
use rnic_kernel::prelude::*;
use rnic_messages::pool::LEVEL_BITS;

/// A list of up to `2^CELL` cells.
#[clocked(reset = "all cells are free")]
#[derive(LogicBlock, Registers, Construct)]
#[require(1 <= CELL && CELL <= 16)]
#[new(
    /// Makes a list of `count` cells, 2 to `2^CELL`.
    count: u64,
)]
pub struct FreeCells<const CELL: usize> {
    /// The packet takes `head`.
    pub takes: Signal<In, Bit>,
    /// The packet is complete and good.
    pub commit: Signal<In, Bit>,
    /// The packet is discarded.
    pub rollback: Signal<In, Bit>,
    /// There is a cell to take; a function of registers.
    pub has_cell: Signal<Out, Bit>,
    /// The cell that is taken next; registered.
    pub head: Signal<Out, Bits<CELL>>,
    /// First cell of the packet, if it takes one; registered.
    pub start: Signal<Out, Bits<CELL>>,

    /// `given` returns.
    pub gives: Signal<In, Bit>,
    /// A cell of a packet that was committed.
    pub given: Signal<In, Bits<CELL>>,

    /// Cells that were taken and are not back in the list, a packet that is being received included; a function of registers. For
    /// `count` cycles after reset, those that have not entered the list are among them.
    pub level: Signal<Out, Bits<LEVEL_BITS>>,

    /// A cell of a packet that was committed.
    pub follows: Signal<In, Bits<CELL>>,
    /// A cycle later: the next cell of its packet; that of the memory.
    pub after: Signal<Out, Bits<CELL>>,

    /// The links twice, since packets and free cells are followed at the same time.
    #[init(Memory::new(Storage::Block).with_words_log2(count.next_power_of_two().ilog2() as usize))]
    free_links: Memory<Bits<CELL>, CELL>,
    #[init(Memory::new(Storage::Block).with_words_log2(count.next_power_of_two().ilog2() as usize))]
    packet_links: Memory<Bits<CELL>, CELL>,
    first_free: Reg<Bits<CELL>>,
    packet_start: Reg<Bits<CELL>>,
    tail: Reg<Bits<CELL>>,
    /// Cells after the head that can be read; at the start of the packet and now.
    spare_at_start: Reg<Bits<CELL>>,
    spare: Reg<Bits<CELL>>,
    /// A cell has entered the list in the cycle before.
    has_entered: Reg<Bit>,
    /// Cells that have not entered the list since reset: this one and those below, without cell 0, which is in it.
    #[init(Reg::new(bits(count - 1)))]
    unused: Reg<Bits<CELL>>,
    /// Cells after the head while all are free.
    #[init(Constant::new(bits(count - 1)))]
    spare_at_rest: Constant<Bits<CELL>>,
}

impl<const CELL: usize> Logic for FreeCells<CELL> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        // The packet.
        let first_free = self.first_free.q.val();
        let spare = self.spare.q.val();
        let has_cell = spare.any();
        let takes = self.takes.val() && has_cell;
        let left = spare - bit_cast::<CELL, 1>(takes.into());
        let taken_to = select(takes, self.free_links.read_data.val(), first_free);
        let rolls_back = self.rollback.val();
        let commits = self.commit.val() && !rolls_back;
        let head_next = select(rolls_back, self.packet_start.q.val(), taken_to);
        let entered = bit_cast::<CELL, 1>(self.has_entered.q.val().into());
        let spare_at_start = self.spare_at_start.q.val();
        self.first_free.d.next = head_next;
        self.spare.d.next = select(rolls_back, spare_at_start, left) + entered;
        self.spare_at_start.d.next = select(commits, left, spare_at_start) + entered;
        if commits {
            self.packet_start.d.next = taken_to;
        }
        self.has_cell.next = has_cell;
        self.level.next = bit_cast::<LEVEL_BITS, CELL>(self.spare_at_rest.val() - spare);
        self.head.next = first_free;
        self.start.next = self.packet_start.q.val();

        // Cells enter at the tail.
        let gives = self.gives.val();
        let unused = self.unused.q.val();
        let enters = gives || unused.any();
        let entering = select(gives, self.given.val(), unused);
        if !gives && unused.any() {
            self.unused.d.next = unused - 1;
        }
        self.has_entered.d.next = enters;
        if enters {
            self.tail.d.next = entering;
        }

        // Of the head the link is read in every cycle, since it may have been the tail.
        let tail = self.tail.q.val();
        self.free_links.write(enters, tail, entering);
        self.free_links.read(true, head_next);
        self.packet_links.write(enters, tail, entering);
        self.packet_links.read(true, self.follows.val());
        self.after.next = self.packet_links.read_data.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rand::seq::IndexedRandom;
    use rnic_blocks::bench::{Bench, random};

    /// What a model knows: of each packet that is held its cells, in their order.
    #[derive(Default)]
    struct Held {
        open: Vec<u64>,
        packets: Vec<Vec<u64>>,
    }

    impl Held {
        fn count(&self) -> usize {
            self.open.len() + self.packets.iter().map(Vec::len).sum::<usize>()
        }

        fn holds(&self, cell: u64) -> bool {
            self.open.contains(&cell) || self.packets.iter().any(|packet| packet.contains(&cell))
        }
    }

    /// Packets of up to 6 cells come, and return cell by cell, in any order of the packets.
    fn runs(count: u64, cycles: usize) {
        let mut random = random();
        let block = FreeCells::<4>::new(count);
        let mut bench = Bench::clocked(block, |block| &mut block.clock).in_lock_step();
        let mut held = Held::default();
        let (mut committed, mut most, mut followed) = (0, 0, None);
        for cycle in 0..cycles {
            // Packets are read while few are held, or many, in turns.
            let gives =
                !held.packets.is_empty() && random.random_bool(if cycle / 200 % 2 == 0 { 0.2 } else { 0.9 });
            let block = &mut bench.block;
            block.gives.next = gives;
            let given = gives.then(|| {
                let number = random.random_range(0..held.packets.len());
                let cell = held.packets[number].remove(0);
                if held.packets[number].is_empty() {
                    held.packets.remove(number);
                }
                cell
            });
            block.given.next = bits(given.unwrap_or_else(|| random.random_range(0..16)));
            block.takes.next = held.open.len() < 6 && random.random_bool(0.7);
            block.commit.next = random.random_bool(0.3);
            block.rollback.next = random.random_bool(0.1);
            let chained = held.packets.iter().flat_map(|packet| packet.windows(2)).collect::<Vec<_>>();
            let follows = chained.choose(&mut random).map(|pair| (pair[0], pair[1]));
            block.follows.next = bits(follows.map_or(0, |pair| pair.0));
            bench.settle();
            let block = &bench.block;
            if let Some((_, after)) = followed {
                assert_eq!(block.after.val(), bits(after), "cells are chained in the order of their packet");
            }
            followed = follows;
            if block.has_cell.val() && block.takes.val() {
                let cell = block.head.val().to_u64();
                assert!(cell < count && !held.holds(cell) && given != Some(cell), "cell {cell} is free");
                held.open.push(cell);
            }
            if !held.open.is_empty() {
                assert_eq!(block.start.val(), bits(held.open[0]));
            }
            if block.rollback.val() {
                held.open.clear();
            } else if block.commit.val() && !held.open.is_empty() {
                held.packets.push(std::mem::take(&mut held.open));
                committed += 1;
            }
            most = most.max(held.count());
            bench.tick();
        }
        assert!(committed > cycles / 20, "{committed} packets");
        assert_eq!(most as u64, count - 1, "all cells but one were held at once");
    }

    #[test]
    fn no_cell_is_held_twice_and_none_is_lost() {
        runs(16, 4000);
        runs(11, 4000);
        runs(2, 2000);
    }

    #[test]
    fn any_input_does_the_same_in_verilog() {
        let mut random = random();
        let mut bench = Bench::clocked(FreeCells::<3>::new(8), |block| &mut block.clock).in_lock_step();
        for _ in 0..1000 {
            let block = &mut bench.block;
            block.reset.next = random.random_bool(0.02);
            block.takes.next = random.random();
            block.commit.next = random.random_bool(0.2);
            block.rollback.next = random.random_bool(0.1);
            block.gives.next = random.random_bool(0.3);
            block.given.next = bits(random.random_range(0..8));
            block.follows.next = bits(random.random_range(0..8));
            bench.tick();
        }
    }

    #[test]
    fn all_cells_are_free_after_a_reset() {
        let mut bench = Bench::clocked(FreeCells::<4>::new(16), |block| &mut block.clock).in_lock_step();
        for _ in 0..2 {
            bench.block.reset.next = false;
            for _ in 0..20 {
                bench.tick();
            }
            bench.block.takes.next = true;
            let mut cells = vec![];
            while bench.block.has_cell.val() {
                cells.push(bench.block.head.val().to_u64());
                bench.block.commit.next = cells.len() % 3 == 0;
                bench.tick();
            }
            bench.block.takes.next = false;
            bench.block.reset.next = true;
            bench.tick();
            bench.tick();
            cells.sort_unstable();
            cells.dedup();
            assert_eq!(cells.len(), 15, "one stays");
        }
    }
}
