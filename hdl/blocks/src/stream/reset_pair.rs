//! Reset pair: the two sides of a crossing are reset together, whichever of the two resets comes.
//!
//! A queue between two clocks has a pointer on each side. If one side alone is reset, the other one sees its pointer jump, and
//! takes old beats for new ones.
//!
//! ```text
//!             ┌───────────┐   request   ┌──────────────┐  seen  ┌───────────┐
//!  a_reset ──>│           ├────────────>│ Synchronizer ├───────>│           │<── b_reset
//!             │ ResetSide │    echo     ├──────────────┤        │ ResetSide │
//!   a_hold <──┤           │<────────────┤ Synchronizer │<───────┤           ├──> b_hold
//!             └───────────┘             └──────────────┘        └───────────┘
//!                            and the same from b to a
//! ```
//!
//! Latency 1 cycle from a reset to `hold` of its own side, 3 to 4 cycles of the other clock to that of the other side.
//!
//! 1. After a reset of one side there is a time in which both are held, each for at least one cycle of its clock.
//! 2. A side is held as long as its own reset is asserted, and until the other side has been held since.
//! 3. A reset that begins while an earlier one ends is not lost: request and echo go through four phases, each of which waits
//!    for the other clock.
//!
//! A side whose clock stands still keeps the other one held. The registers are not reset by anything: they start as zeros.
use super::synchronizer::Synchronizer;
use rnic_kernel::prelude::*;

/// Pairs the resets of two clocks.
#[derive(Clone, Debug, Default, LogicBlock, Registers)]
pub struct ResetPair {
    /// Clock of side a.
    pub a_clock: Signal<In, Clock>,
    /// Synchronous to `a_clock`, active high.
    pub a_reset: Signal<In, Bit>,
    /// Resets what the crossing has on side a; registered.
    pub a_hold: Signal<Out, Bit>,
    /// Clock of side b.
    pub b_clock: Signal<In, Clock>,
    /// Synchronous to `b_clock`, active high.
    pub b_reset: Signal<In, Bit>,
    /// Resets what the crossing has on side b; registered.
    pub b_hold: Signal<Out, Bit>,
    #[domain(clock = a_clock, reset = a_reset)]
    a: ResetSide,
    #[domain(clock = b_clock, reset = b_reset)]
    b: ResetSide,
    #[domain(clock = b_clock, reset = b_reset)]
    to_b: Synchronizer<2>,
    #[domain(clock = a_clock, reset = a_reset)]
    to_a: Synchronizer<2>,
}

impl Logic for ResetPair {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.a.asserted.next = self.a_reset.val();
        self.b.asserted.next = self.b_reset.val();
        self.to_b.d.next = self.a.sent.val();
        self.to_a.d.next = self.b.sent.val();
        self.a.seen.next = self.to_a.q.val();
        self.b.seen.next = self.to_b.q.val();
        self.a_hold.next = self.a.hold.val();
        self.b_hold.next = self.b.hold.val();
    }
}

/// One side of a pair.
#[derive(Clone, Debug, Default, LogicBlock, Registers)]
struct ResetSide {
    /// Clock of this side.
    pub clock: Signal<In, Clock>,
    /// The reset of this side, which does not reset the registers here.
    pub asserted: Signal<In, Bit>,
    /// What the other side has sent: its request in bit 0, the echo of the request of this side in bit 1.
    pub seen: Signal<In, Bits<2>>,
    /// To the other side, as `seen`; registered. The bits change one at a time as far as each matters: none is looked at with
    /// the other.
    pub sent: Signal<Out, Bits<2>>,
    /// See [`ResetPair::a_hold`].
    pub hold: Signal<Out, Bit>,
    request: DFF<Bit>,
    echo: DFF<Bit>,
    /// A reset came while the echo of the one before was still there.
    pending: DFF<Bit>,
    held: DFF<Bit>,
}

impl Logic for ResetSide {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let seen = self.seen.val();
        let (is_asked, has_echo) = (seen.get_bit(0), seen.get_bit(1));
        let asserted = self.asserted.val();
        let request = self.request.q.val();
        let wanted = asserted || self.pending.q.val();
        let begins = wanted && !request && !has_echo;
        let ends = request && has_echo && !asserted;
        let stays = begins || (request && !ends);
        self.request.d.next = stays;
        self.pending.d.next = wanted && !request && has_echo;
        // The echo says that the registers here have been reset, so it is a cycle behind `hold`.
        self.echo.d.next = is_asked && self.held.q.val();
        self.held.d.next = wanted || stays || is_asked;
        self.sent.next = cat!(self.echo.q.val(), request);
        self.hold.next = self.held.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, ClockOf, random};
    use rand::Rng;

    /// Random resets of random length on clocks of any ratio: rule 1 and 2, and at rest nothing is held.
    #[test]
    fn both_sides_are_held_after_a_reset_of_one() {
        let mut random = random();
        for percent in [[100, 100], [100, 10], [10, 100], [60, 90]] {
            let clocks: Vec<ClockOf<ResetPair>> =
                vec![|block| &mut block.a_clock, |block| &mut block.b_clock];
            let mut bench = Bench::with_clocks(ResetPair::default(), clocks).in_lock_step();
            let mut rounds = 0;
            while rounds < 40 {
                let resets = [random.random_ratio(2, 3), random.random_ratio(1, 3)];
                if !resets[0] && !resets[1] {
                    continue;
                }
                rounds += 1;
                let mut left = [random.random_range(1..6), random.random_range(1..6)];
                // Cycles of each clock in which both were held.
                let mut together = [0, 0];
                let mut rest = 0;
                for step in 0.. {
                    assert!(step < 3000, "the pair hangs at {percent:?}");
                    let now: Vec<_> =
                        (0..2).filter(|&clock| random.random_range(0..100) < percent[clock]).collect();
                    bench.block.a_reset.next = resets[0] && left[0] > 0;
                    bench.block.b_reset.next = resets[1] && left[1] > 0;
                    bench.settle();
                    let held = [bench.block.a_hold.val(), bench.block.b_hold.val()];
                    for &clock in &now {
                        left[clock] = i32::max(left[clock] - 1, 0);
                        together[clock] += i32::from(held[0] && held[1]);
                    }
                    let pends = (0..2).any(|side| resets[side] && left[side] > 0);
                    rest = if pends || held[0] || held[1] { 0 } else { rest + 1 };
                    bench.tick_clocks(&now);
                    if rest > 100 {
                        break;
                    }
                }
                assert!(together.iter().all(|&cycles| cycles >= 1), "{together:?} at {percent:?}");
                // Sometimes the next reset follows at once, in the middle of the handshake.
                if random.random() {
                    for _ in 0..random.random_range(0..12) {
                        bench.block.a_reset.next = random.random_ratio(1, 4);
                        let now: Vec<_> =
                            (0..2).filter(|&clock| random.random_range(0..100) < percent[clock]).collect();
                        bench.tick_clocks(&now);
                    }
                }
            }
        }
    }
}
