//! Quiesce: waits until everything that was in flight has left the card.
//!
//! An object may be forgotten only when nothing in flight can use it any more. The stages know already, so no new work uses it;
//! work that had begun is waited for, section by section, in the order in which work passes through them.
//!
//! ```text
//!  in_flight[0..7] ─> ┌──────────────────────────────┐
//!  begins[0], [1] ──> │ settle, mark entered, compare│ ──> is_waiting[0], [1]
//!                     └──────────────────────────────┘
//! ```
//!
//! At least [`SETTLE_CYCLES`] + 2 cycles a section. There are two waiters: commands, and keys that were invalidated.
//!
//! 1. A section is left when its `left` has reached the value that its `entered` had [`SETTLE_CYCLES`] after the section before
//!    it was left: everything between the two has entered by then.
//! 2. Work that enters later is not waited for, so traffic of other queue pairs does not delay a waiter.
//! 3. A waiter that begins while the other one waits is served next, so neither waits for more than two rounds.
//!
//! Design decision 8.
use crate::messages::SECTIONS;
use rnic_kernel::prelude::*;
use rnic_messages::setup::InFlight;

/// Cycles within which what has left a section has entered the next, and is counted there.
pub const SETTLE_CYCLES: u64 = 8;
/// The last cycle of settling.
const SETTLED: u64 = SETTLE_CYCLES - 1;
const LAST_SECTION: u64 = SECTIONS as u64 - 1;
/// Waiters: commands, and keys that were invalidated.
pub const WAITERS: usize = 2;

/// Waits for work in flight.
#[clocked(reset)]
#[derive(Default, LogicBlock, Registers)]
pub struct Quiesce {
    /// The waiter begins to wait in the next cycle.
    pub begins: [Signal<In, Bit>; WAITERS],
    /// What has entered and left each section.
    pub in_flight: [Signal<In, InFlight>; SECTIONS],
    /// Something that the waiter waits for may still be in flight; registered.
    pub is_waiting: [Signal<Out, Bit>; WAITERS],

    waiting: Reg<Bit>,
    /// Waiters of this round, and of the next one.
    served: [Reg<Bit>; WAITERS],
    wanted: [Reg<Bit>; WAITERS],
    section: Reg<Bits<3>>,
    cycles: Reg<Bits<3>>,
    is_marked: Reg<Bit>,
    mark: Reg<Bits<16>>,
}

impl Logic for Quiesce {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let in_flight = match self.section.q.val().to_u64() {
            0 => self.in_flight[0].val(),
            1 => self.in_flight[1].val(),
            2 => self.in_flight[2].val(),
            3 => self.in_flight[3].val(),
            4 => self.in_flight[4].val(),
            5 => self.in_flight[5].val(),
            _ => self.in_flight[6].val(),
        };
        // A section holds far less than half of the range of the counts.
        let has_left = !(in_flight.left - self.mark.q.val()).get_bit(15);
        let waiting = self.waiting.q.val();
        if !self.is_marked.q.val() {
            self.cycles.d.next = self.cycles.q.val() + 1;
            self.mark.d.next = in_flight.entered;
            self.is_marked.d.next = self.cycles.q.val() == SETTLED;
        } else if has_left {
            self.cycles.d.next = bits(0);
            self.is_marked.d.next = false;
            self.section.d.next = self.section.q.val() + 1;
            if self.section.q.val() == LAST_SECTION {
                self.waiting.d.next = false;
            }
        }
        let begins = !waiting && (self.wanted[0].q.val() || self.wanted[1].q.val());
        for i in 0..WAITERS {
            let wanted = self.wanted[i].q.val();
            self.is_waiting[i].next = wanted || (waiting && self.served[i].q.val());
            self.wanted[i].d.next = self.begins[i].val() || (wanted && waiting);
            if begins {
                self.served[i].d.next = wanted;
            }
        }
        if begins {
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

    /// Work moves through the sections with delays between them; what was there has left when the wait ends.
    #[test]
    fn a_quiesce_ends_when_all_work_before_it_has_left() {
        let mut random = random();
        let mut bench = Bench::clocked(Quiesce::default(), |block| &mut block.clock).in_lock_step();
        for _ in 0..40 {
            // The cycles in which each token enters and leaves each section. Some enter late; none overtakes another.
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
            // Both waiters, or one of them.
            let mut begin = [60, random.random_range(20..140)];
            if random.random_bool(0.3) {
                begin[random.random_range(0..WAITERS)] = u64::MAX;
            }
            let mut is_done = begin.map(|begin| begin == u64::MAX);
            let mut cycle = 0;
            loop {
                for section in 0..SECTIONS {
                    let entered = tokens.iter().filter(|token| token[section].0 <= cycle).count() as u64;
                    let left = tokens.iter().filter(|token| token[section].1 <= cycle).count() as u64;
                    let base = u64::from(base[section]);
                    bench.block.in_flight[section].next = InFlight {
                        entered: bits((base + entered) & 0xffff),
                        left: bits((base + left) & 0xffff),
                    };
                }
                for (i, &begin) in begin.iter().enumerate() {
                    bench.block.begins[i].next = cycle == begin;
                }
                bench.settle();
                for (i, &begin) in begin.iter().enumerate() {
                    if cycle <= begin {
                        assert!(!bench.block.is_waiting[i].val(), "it has not begun");
                    } else if !is_done[i] && !bench.block.is_waiting[i].val() {
                        is_done[i] = true;
                        for token in tokens.iter().filter(|token| token[0].0 <= begin) {
                            assert!(token[SECTIONS - 1].1 <= cycle, "{token:?} is not gone in cycle {cycle}");
                        }
                    }
                }
                if is_done == [true; WAITERS] {
                    break;
                }
                assert!(cycle < 4000, "the wait does not end");
                bench.tick();
                cycle += 1;
            }
        }
    }
}
