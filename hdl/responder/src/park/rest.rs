//! Rest of packets that end keys, after one of them has entered `order`.
//!
//! When a rest is over, the next turn whose packet ends a key is taken. Turns come round in a fixed order, so with rests alike it
//! would be that of the same ring each time, if what is left of a rest after whole rounds is nothing: of three rings one had 60
//! packets, one 7 and one none. So a rest has 16 lengths, taken from a shift register that never stops.
//!
//! 1. From one packet that ends a key to the next are 65 to 80 cycles at least.
use rnic_kernel::prelude::*;

/// Bits of a number of cycles of a rest; the highest one is set when a rest begins.
const REST: usize = 7;
/// log2 of the lengths of a rest.
const LENGTHS: usize = 4;
/// Bits of the shift register, which repeats itself after 65,535 cycles.
const NOISE: usize = 16;

/// Lets packets that end keys rest; see the module.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
pub(super) struct Rest {
    /// A packet that ends a key enters.
    pub begins: Signal<In, Bit>,
    /// Others rest; registered.
    pub rests: Signal<Out, Bit>,
    /// Cycles that are left.
    left: Reg<Bits<REST>>,
    is_resting: Reg<Bit>,
    #[init(Reg::new(bits(1)))]
    noise: Reg<Bits<NOISE>>,
}

/// The shift register after a cycle: x^16 + x^15 + x^13 + x^4 + 1.
#[kernel]
fn noise_after(noise: Bits<NOISE>) -> Bits<NOISE> {
    let (high, low) = (noise.get_bit(15) != noise.get_bit(14), noise.get_bit(12) != noise.get_bit(3));
    (noise << 1) | bit_cast::<NOISE, 1>((high != low).into())
}

/// Cycles that are left after one in which a rest begins, or does not.
#[kernel]
fn left_after(left: Bits<REST>, begins: Bit, noise: Bits<NOISE>) -> Bits<REST> {
    if begins {
        cat!(bits::<3>(4), noise.get_bits::<LENGTHS>(0))
    } else if left.any() {
        left - 1
    } else {
        left
    }
}

impl Logic for Rest {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let noise = self.noise.q.val();
        self.noise.d.next = noise_after(noise);
        let left = left_after(self.left.q.val(), self.begins.val(), noise);
        self.left.d.next = left;
        self.is_resting.d.next = left.any();
        self.rests.next = self.is_resting.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_blocks::bench::Bench;
    use std::collections::BTreeSet;

    #[test]
    fn the_shift_register_has_all_values_but_zero() {
        let mut noise = bits::<NOISE>(1);
        let mut seen = BTreeSet::new();
        while seen.insert(noise.to_u64()) {
            noise = noise_after(noise);
        }
        assert_eq!((seen.len(), noise, seen.contains(&0)), (65_535, bits(1), false));
    }

    /// A packet enters as soon as none rests.
    #[test]
    fn a_rest_has_each_of_sixteen_lengths() {
        let mut bench = Bench::clocked(Rest::default(), |block| &mut block.clock).in_lock_step();
        let (mut lengths, mut since) = (vec![0; 96], 0);
        for cycle in 0..16_000 {
            bench.settle();
            let begins = !bench.block.rests.val();
            bench.block.begins.next = begins;
            bench.tick();
            since += 1;
            if begins {
                lengths[since] += usize::from(cycle > 0);
                since = 0;
            }
        }
        let outside = lengths[..65].iter().chain(&lengths[81..]).sum::<usize>();
        assert!(outside == 0 && lengths[65..81].iter().all(|&count| count > 5), "{lengths:?}");
    }
}
