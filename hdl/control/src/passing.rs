//! Passing: waits until everything has left the card that was in it.
//!
//! An object may be forgotten only when nothing in flight can use it any more. The stages have been told already, so nothing
//! new begins; what had begun is waited for, section by section in the order in which work passes through them.
//!
//! ```text
//!  passages[0..7] ──> ┌──────────────────────────────┐
//!  begins ──────────> │ settle, mark entered, compare│ ──> is_waiting
//!                     └──────────────────────────────┘
//! ```
//!
//! At least [`SETTLE_CYCLES`] + 2 cycles a section.
//!
//! 1. A section is left when its `left` has come as far as its `entered` was [`SETTLE_CYCLES`] after the section before it
//!    was left: whatever was on the way between the two has entered by then.
//! 2. What enters later is not waited for, so traffic of others does not hold it up.
//!
//! DESIGN 3 decision 8.
use crate::wires::SECTIONS;
use rnic_kernel::prelude::*;
use rnic_token::setup::Passage;

/// Cycles within which what has left a section has entered the next, and is counted there.
pub const SETTLE_CYCLES: u64 = 8;
/// The last cycle of settling.
const SETTLED: u64 = SETTLE_CYCLES - 1;
const LAST_SECTION: u64 = SECTIONS as u64 - 1;

/// The block.
#[derive(Default, LogicBlock, Registers)]
pub struct Passing {
    /// Core clock.
    pub clock: Signal<In, Clock>,
    /// Synchronous, active high.
    pub reset: Signal<In, Bit>,
    /// Waiting begins in the next cycle.
    pub begins: Signal<In, Bit>,
    /// How far the sections are.
    pub passages: [Signal<In, Passage>; SECTIONS],
    /// Something may still be there; registered.
    pub is_waiting: Signal<Out, Bit>,

    waiting: Reg<Bit>,
    section: Reg<Bits<3>>,
    cycles: Reg<Bits<3>>,
    is_marked: Reg<Bit>,
    mark: Reg<Bits<16>>,
}

impl Logic for Passing {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let passage = match self.section.q.val().to_u64() {
            0 => self.passages[0].val(),
            1 => self.passages[1].val(),
            2 => self.passages[2].val(),
            3 => self.passages[3].val(),
            4 => self.passages[4].val(),
            5 => self.passages[5].val(),
            _ => self.passages[6].val(),
        };
        // Far fewer than half of what the counts can say are in a section.
        let has_left = !(passage.left - self.mark.q.val()).get_bit(15);
        self.is_waiting.next = self.waiting.q.val();
        if !self.is_marked.q.val() {
            self.cycles.d.next = self.cycles.q.val() + 1;
            self.mark.d.next = passage.entered;
            self.is_marked.d.next = self.cycles.q.val() == SETTLED;
        } else if has_left {
            self.cycles.d.next = bits(0);
            self.is_marked.d.next = false;
            self.section.d.next = self.section.q.val() + 1;
            if self.section.q.val() == LAST_SECTION {
                self.waiting.d.next = false;
            }
        }
        if self.begins.val() {
            self.waiting.d.next = true;
            self.section.d.next = bits(0);
            self.cycles.d.next = bits(0);
            self.is_marked.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, random};

    /// Tokens walk through the sections with delays between them; those that were there have left when the wait ends.
    #[test]
    fn what_was_there_has_left() {
        let mut random = random();
        let mut bench = Bench::clocked(Passing::default(), |block| &mut block.clock).in_lock_step();
        for _ in 0..30 {
            // Each token: when it enters and leaves each section. Some come after the beginning; none overtakes another.
            let count = random.random_range(0..20);
            let mut tokens: Vec<[(u64, u64); SECTIONS]> = Vec::new();
            let mut first = 0;
            let mut before = [(0, 0); SECTIONS];
            for _ in 0..count {
                first += random.random_range(0..12);
                let mut at = first;
                before = before.map(|(entered_before, left_before)| {
                    let entered: u64 = (at + random.random_range(0..SETTLE_CYCLES - 1)).max(entered_before);
                    let left: u64 = (entered + random.random_range(1..40)).max(left_before);
                    at = left;
                    (entered, left)
                });
                tokens.push(before);
            }
            let base: [u16; SECTIONS] = random.random();
            let begin = 60;
            let mut cycle = 0;
            loop {
                for section in 0..SECTIONS {
                    let entered = tokens.iter().filter(|token| token[section].0 <= cycle).count() as u64;
                    let left = tokens.iter().filter(|token| token[section].1 <= cycle).count() as u64;
                    let base = u64::from(base[section]);
                    bench.block.passages[section].next = Passage {
                        entered: bits((base + entered) & 0xffff),
                        left: bits((base + left) & 0xffff),
                    };
                }
                bench.block.begins.next = cycle == begin;
                bench.settle();
                if cycle > begin && !bench.block.is_waiting.val() {
                    break;
                }
                assert!(cycle < 2000, "the wait does not end");
                bench.tick();
                cycle += 1;
            }
            let begun = tokens.iter().filter(|token| token[0].0 <= begin);
            for token in begun {
                assert!(token[SECTIONS - 1].1 <= cycle, "{token:?} is not gone in cycle {cycle}");
            }
        }
    }
}
