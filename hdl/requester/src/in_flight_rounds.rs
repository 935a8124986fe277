//! InFlightRounds: counts tokens of three lines, each of which keeps its order, as if they were one line.
//!
//! A burst of slots takes a microsecond from its request to its last packet, a turn of a long message some
//! cycles, a response as long as the host takes to write. Tokens of one kind leave in order, but not those of
//! different kinds; so control, which waits for what is in flight before it releases memory, cannot wait for
//! the sum of the counts. It waits for rounds: a round ends when everything has left, of all kinds, that had
//! entered when the round began.
//!
//! ```text
//!             ┌───────────────────────────────────────────────────┐
//!  entered ──>│ at the beginning of a round ──> mark ─┐           │
//!  left ─────>│────────────────────── reached? <──────┘           │
//!             │                           └─> rounds, rounds due ─┼──> in_flight
//!             └───────────────────────────────────────────────────┘
//! ```
//!
//! `in_flight.entered` includes the round after the current one, since the current one began earlier. At rest
//! no round is due.
//!
//! Latency 2 cycles from `entered` to `in_flight.entered`, and from the leaving of the last token to rest.
//!
//! 1. What had entered two cycles before `in_flight.entered` was n has left when `in_flight.left` has reached
//!    n.
//! 2. `in_flight.left` reaches every n as long as tokens that have entered leave, however many more enter.
//! 3. When nothing enters any more and all has left, both counts become the same.
use rnic_kernel::prelude::*;
use rnic_messages::setup::InFlight;

/// Lines of tokens.
pub const LINES: usize = 3;

/// Counts rounds; see the module.
#[clocked(reset = "clears all counts")]
#[derive(Default, LogicBlock, Registers)]
pub struct InFlightRounds {
    /// Tokens of each line that ever entered, and that ever left.
    pub lines: [Signal<In, InFlight>; LINES],
    /// Rounds; registered.
    pub in_flight: Signal<Out, InFlight>,
    marks: [Reg<Bits<16>>; LINES],
    due: Reg<Bits<2>>,
    round: Reg<Bits<16>>,
    entered: Reg<Bits<16>>,
}

impl Logic for InFlightRounds {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let first = self.lines[0].val();
        let second = self.lines[1].val();
        let third = self.lines[2].val();
        let is_busy =
            first.entered != first.left || second.entered != second.left || third.entered != third.left;
        let first_waits = (first.left - self.marks[0].q.val()).get_bit(15);
        let second_waits = (second.left - self.marks[1].q.val()).get_bit(15);
        let third_waits = (third.left - self.marks[2].q.val()).get_bit(15);
        let is_over = !first_waits && !second_waits && !third_waits;
        let due = self.due.q.val();
        // After a round the next one begins now; two are due while anything is in flight.
        let left = select(due.any(), bits::<2>(1), bits::<2>(0));
        let next_due = select(is_busy, bits::<2>(2), due - left);
        let round = self.round.q.val() + bit_cast::<16, 2>(left);
        if is_over {
            self.marks[0].d.next = first.entered;
            self.marks[1].d.next = second.entered;
            self.marks[2].d.next = third.entered;
            self.due.d.next = next_due;
            self.round.d.next = round;
            self.entered.d.next = round + bit_cast::<16, 2>(next_due);
        }
        self.in_flight.next = InFlight { entered: self.entered.q.val(), left: self.round.q.val() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, random};
    use std::collections::VecDeque;

    /// Slow tokens and quick ones: a wait for a count is a wait for all that had entered, and it ends.
    #[test]
    fn a_count_is_reached_when_all_that_was_inside_has_left() {
        let mut random = random();
        let mut bench = Bench::clocked(InFlightRounds::default(), |block| &mut block.clock).in_lock_step();
        // When each token is to leave, in order.
        let mut inside: [VecDeque<u64>; LINES] = Default::default();
        let mut counts = [[0u64; 2]; LINES];
        for (line, count) in counts.iter().enumerate() {
            bench.block.lines[line].next = InFlight { entered: bits(count[0]), left: bits(count[1]) };
        }
        // Waits: since when, for which count, until which tokens have left.
        let mut waiting: VecDeque<(u64, Bits<16>, [u64; LINES])> = VecDeque::new();
        let mut history = VecDeque::from([[0; LINES]; 3]);
        let (mut waited, mut longest) = (0, 0);
        for cycle in 0..12_000u64 {
            let is_end = cycle >= 11_000;
            for (line, delay) in [(0, 250), (1, 12), (2, 100)] {
                let chance = if (cycle / 500) % 3 == 0 { 0.005 } else { 0.3 };
                if !is_end && inside[line].len() < 200 && random.random_bool(chance) {
                    inside[line].push_back(cycle + random.random_range(1..=delay));
                    counts[line][0] += 1;
                }
                if inside[line].front().is_some_and(|&due| due <= cycle) {
                    inside[line].pop_front();
                    counts[line][1] += 1;
                }
                bench.block.lines[line].next = InFlight {
                    entered: bits(counts[line][0] & 0xffff),
                    left: bits(counts[line][1] & 0xffff),
                };
            }
            history.push_back(counts.map(|count| count[0]));
            let before = history.pop_front().unwrap();
            bench.settle();
            let in_flight = bench.block.in_flight.val();
            assert!((in_flight.entered - in_flight.left).to_u64() <= 2);
            while let Some(&(since, count, tokens)) = waiting.front()
                && !(in_flight.left - count).get_bit(15)
            {
                waiting.pop_front();
                (waited, longest) = (waited + 1, longest.max(cycle - since));
                let left = counts.map(|count| count[1]);
                assert!((0..LINES).all(|line| left[line] >= tokens[line]), "{left:?}, {tokens:?}");
            }
            if random.random_bool(0.05) {
                waiting.push_back((cycle, in_flight.entered, before));
            }
            bench.tick();
        }
        let in_flight = bench.block.in_flight.val();
        assert!(waiting.is_empty() && in_flight.entered == in_flight.left, "both counts become equal");
        assert!(waited > 400 && longest < 600, "{waited} waits of at most {longest} cycles");
    }
}
