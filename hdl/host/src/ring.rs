//! Ring: reserves places of a circular store that are released in the order in which they were reserved.
//!
//! Answers of different lengths share one store without gaps between them, with no free list and nothing to search: a
//! reservation is the distance between two counters.
//!
//! ```text
//!            head (oldest reservation)      tail (next reservation)
//!              v                              v
//!   ┌─────────┬──────────┬─────┬─────────────┬─────────────┐
//!   │  free   │ reserved │ ... │  reserved   │    free     │  2^ADDRESS places, then round again
//!   └─────────┴──────────┴─────┴─────────────┴─────────────┘
//!      returns ─────────>       reserve ────────────────────>
//! ```
//!
//! Eight places; 5 are reserved, then 3, and 4 have no room until the first 5 are released:
//! ```text
#![doc = include_str!("waves/ring.txt")]
//! ```
//!
//! Latency 1 cycle from `reserve` or `returns` to `level`; one of each a cycle.
//!
//! 1. `level`, the places that are reserved, never exceeds `2^ADDRESS`: a reservation that does not fit is not made.
//! 2. `level` is `tail - head`, modulo `2^COUNT`; it is zero when all that was reserved has been released.
//! 3. The places of a reservation, from `position` on, are in no other reservation until they are released.
//! 4. The top bit of `position` changes with every lap of the ring, so that a user can tell one lap from the next.
//!
//! The owner releases what it has reserved, in that order, and never more: `returned <= level`.
//!
//! Refuses address bits other than 1 to 16, and `COUNT` other than `ADDRESS + 1`.
use rnic_kernel::prelude::*;

/// Reservations in a circle of `2^ADDRESS` places; `COUNT`, the width of their number, is `ADDRESS + 1`.
#[clocked(reset = "releases all places")]
#[derive(LogicBlock, Registers, Construct)]
#[require(1 <= ADDRESS && ADDRESS <= 16)]
#[require(COUNT == ADDRESS + 1)]
pub struct Ring<const ADDRESS: usize, const COUNT: usize> {
    /// Number of places to reserve, 1 to `2^ADDRESS`.
    pub amount: Signal<In, Bits<COUNT>>,
    /// `amount` places are free; combinational.
    pub fits: Signal<Out, Bit>,
    /// Reserves the places in this cycle, if they fit.
    pub reserve: Signal<In, Bit>,
    /// First place of the next reservation, below a bit that changes with every lap; registered.
    pub position: Signal<Out, Bits<COUNT>>,
    /// Releases the oldest places in this cycle.
    pub returns: Signal<In, Bit>,
    /// Number of places to release.
    pub returned: Signal<In, Bits<COUNT>>,
    /// Places that are reserved; a function of registers.
    pub level: Signal<Out, Bits<COUNT>>,
    head: Reg<Bits<COUNT>>,
    tail: Reg<Bits<COUNT>>,
}

impl<const ADDRESS: usize, const COUNT: usize> Ring<ADDRESS, COUNT> {
    const PLACES: u64 = 1 << ADDRESS;
}

impl<const ADDRESS: usize, const COUNT: usize> Logic for Ring<ADDRESS, COUNT> {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let (head, tail) = (self.head.q.val(), self.tail.q.val());
        let level = tail - head;
        let fits = self.amount.val() <= bits::<COUNT>(Self::PLACES) - level;

        if self.reserve.val() && fits {
            self.tail.d.next = tail + self.amount.val();
        }
        if self.returns.val() {
            self.head.d.next = head + self.returned.val();
        }

        self.fits.next = fits;
        self.position.next = tail;
        self.level.next = level;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use rnic_blocks::bench::{Bench, Waves, random};
    use std::collections::VecDeque;

    type Small = Ring<3, 4>;

    fn bench() -> Bench<Small> {
        Bench::clocked(Small::default(), |block| &mut block.clock)
    }

    #[test]
    fn reservations_never_overlap_and_all_places_come_back() {
        let mut random = random();
        let mut bench = bench().in_lock_step();
        let mut reservations = VecDeque::<Vec<u64>>::new();
        let (mut was_full, mut was_refused, mut was_empty) = (false, false, false);
        for cycle in 0..3000 {
            // Phases in which one side is faster reach both ends of the level.
            let eager = if cycle / 100 % 2 == 0 { 0.9 } else { 0.2 };
            let amount = random.random_range(1..=8);
            let reserve = random.random_bool(eager);
            let release = !reservations.is_empty() && random.random_bool(1.0 - eager);
            let oldest = reservations.front().map_or(0, |places| places.len() as u64);
            bench.block.amount.next = bits(amount);
            bench.block.reserve.next = reserve;
            bench.block.returns.next = release;
            bench.block.returned.next = bits(oldest);
            bench.settle();
            let taken: Vec<u64> = reservations.iter().flatten().copied().collect();
            assert_eq!(bench.block.level.val(), bits(taken.len() as u64));
            let fits = taken.len() as u64 + amount <= 8;
            assert_eq!(bench.block.fits.val(), fits);
            was_full |= taken.len() == 8;
            was_empty |= cycle > 100 && taken.is_empty();
            was_refused |= reserve && !fits;
            if reserve && fits {
                let position = bench.block.position.val().to_u64();
                let places: Vec<u64> = (0..amount).map(|index| (position + index) % 8).collect();
                assert!(places.iter().all(|place| !taken.contains(place)), "{places:?} of {taken:?}");
                reservations.push_back(places);
            }
            if release {
                reservations.pop_front();
            }
            bench.tick();
        }
        assert!(was_full && was_refused && was_empty);
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert_eq!(Ring::<1, 2>::REFUSAL, None);
        assert_eq!(Ring::<16, 17>::REFUSAL, None);
        assert!(Ring::<0, 1>::REFUSAL.is_some_and(|refusal| refusal.contains("ADDRESS")));
        assert!(Ring::<17, 18>::REFUSAL.is_some_and(|refusal| refusal.contains("ADDRESS")));
        assert!(Ring::<4, 4>::REFUSAL.is_some_and(|refusal| refusal.contains("COUNT")));
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("amount").signal("reserve").signal("fits").signal("position");
        let waves = waves.signal("returns").signal("returned").when("returns").signal("level");
        let mut bench = bench().recording(waves);
        for (cycle, amount) in [5, 5, 3, 4, 4, 4, 4, 4].into_iter().enumerate() {
            bench.block.amount.next = bits(amount);
            bench.block.reserve.next = (1..=5).contains(&cycle);
            bench.block.returns.next = cycle == 4;
            bench.block.returned.next = bits(5);
            bench.tick();
        }
        bench.waves().expect("waves/ring.txt");
    }
}
