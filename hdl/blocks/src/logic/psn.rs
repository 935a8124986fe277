//! Serial arithmetic on packet sequence numbers, as kernel functions and as a block.
//!
//! Requester and responder compare PSNs in many places, which must agree with each other and with [`rnic_layout::psn`] on the
//! sign of a distance of exactly 2^23. The comparison is written here, once.
//!
//! ```text
//!  number ───┬──> number - expected ──> sign ─────> Duplicate ┐
//!  expected ─┘            │       └───> not zero ─> Gap       ┼──> check
//!                         │       └───> zero ─────> Expected  ┘
//!                         └──────────────────────────────────────> distance
//! ```
//!
//! An expected PSN, a gap of one packet, a duplicate, the largest gap, and the oldest duplicate:
//! ```text
#![doc = include_str!("waves/psn.txt")]
//! ```
//!
//! Latency 0 cycles: one subtraction, and a comparison with zero.
//!
//! 1. Of a number and the one that is expected, exactly one of `Expected`, `Gap` and `Duplicate` is true.
//! 2. Adding one number to both does not change the result.
//! 3. A gap is 1 to 2^23 - 1 packets, a duplicate 1 to 2^23 packets before the expected one.
//!
//! Refuses nothing. Protocol 0, 2.1, 3.2.
use rnic_kernel::prelude::*;

/// Bits of a sequence number.
pub const PSN_BITS: usize = rnic_layout::psn::PSN_BITS as usize;
/// Sign bit of a distance: set for a duplicate.
const SIGN: usize = PSN_BITS - 1;

/// Outcome of comparing a request's PSN with the PSN that the responder expects (protocol 3.2).
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub enum PsnCheck {
    /// The expected packet.
    Expected,
    /// Packets before it are missing.
    Gap,
    /// A duplicate.
    Duplicate,
}

/// Returns the distance from `base` to `number`, a signed number of 24 bits.
#[kernel]
pub fn distance(number: Bits<PSN_BITS>, base: Bits<PSN_BITS>) -> Bits<PSN_BITS> {
    number - base
}

/// Says whether `number` comes before `other`; half the circle away, each comes before the other.
#[kernel]
pub fn is_before(number: Bits<PSN_BITS>, other: Bits<PSN_BITS>) -> Bit {
    distance(number, other).get_bit(SIGN)
}

/// Says whether `number` comes after `other`.
#[kernel]
pub fn is_after(number: Bits<PSN_BITS>, other: Bits<PSN_BITS>) -> Bit {
    let ahead = distance(number, other);
    ahead.any() && !ahead.get_bit(SIGN)
}

/// Says whether `number` is one of the `count` numbers that begin with `first`.
#[kernel]
pub fn is_within(number: Bits<PSN_BITS>, first: Bits<PSN_BITS>, count: Bits<PSN_BITS>) -> Bit {
    distance(number, first) < count
}

/// Compares a request's PSN with the one that the responder expects.
#[kernel]
pub fn check(number: Bits<PSN_BITS>, expected: Bits<PSN_BITS>) -> PsnCheck {
    let from_expected = distance(number, expected);
    if from_expected.get_bit(SIGN) {
        PsnCheck::Duplicate
    } else if from_expected.any() {
        PsnCheck::Gap
    } else {
        PsnCheck::Expected
    }
}

/// The comparison of a responder, as a block.
#[derive(Default, LogicBlock, Registers)]
pub struct PsnComparison {
    /// PSN of a packet.
    pub number: Signal<In, Bits<PSN_BITS>>,
    /// PSN that the responder expects.
    pub expected: Signal<In, Bits<PSN_BITS>>,
    /// Outcome of the comparison; combinational.
    pub check: Signal<Out, PsnCheck>,
    /// Distance from `expected` to `number`, signed; combinational.
    pub distance: Signal<Out, Bits<PSN_BITS>>,
}

impl Logic for PsnComparison {
    #[kernel]
    fn update(&mut self) {
        self.check.next = check(self.number.val(), self.expected.val());
        self.distance.next = distance(self.number.val(), self.expected.val());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, Waves, random};
    use rand::Rng;
    use rnic_layout::psn::{HALF_WINDOW, PSN_COUNT, Psn, PsnCheck as Expectation};

    /// Distances at which something changes, and some at random.
    fn pairs() -> Vec<(u32, u32)> {
        let mut random = random();
        let edges = [0, 1, 2, HALF_WINDOW - 1, HALF_WINDOW, HALF_WINDOW + 1, PSN_COUNT - 2, PSN_COUNT - 1];
        let mut some = |count| -> Vec<u32> {
            let anything = (0..count).map(|_| random.random_range(0..PSN_COUNT));
            edges.into_iter().chain(anything).collect()
        };
        let mut pairs = Vec::new();
        for base in some(50) {
            pairs.extend(some(8).into_iter().map(|distance| ((base + distance) % PSN_COUNT, base)));
        }
        pairs
    }

    fn number(value: u32) -> Bits<PSN_BITS> {
        bits(u64::from(value))
    }

    #[test]
    fn hardware_and_layout_agree_on_every_comparison() {
        let mut bench = Bench::combinational(PsnComparison::default()).in_lock_step();
        for (a, b) in pairs() {
            bench.block.number.next = number(a);
            bench.block.expected.next = number(b);
            bench.settle();
            let (psn, expected) = (Psn::wrapping(a), Psn::wrapping(b));
            let check = match psn.check(expected) {
                Expectation::Expected => PsnCheck::Expected,
                Expectation::Gap(_) => PsnCheck::Gap,
                Expectation::Duplicate(_) => PsnCheck::Duplicate,
            };
            assert_eq!(bench.block.check.val(), check, "{a:#x} seen from {b:#x}");
            let distance = bench.block.distance.val();
            assert_eq!(distance, number(psn.distance(expected) as u32 & (PSN_COUNT - 1)));
            assert_eq!(is_before(number(a), number(b)), psn.is_before(expected));
            assert_eq!(is_after(number(a), number(b)), psn.is_after(expected));
            for count in [0, 1, 2, HALF_WINDOW, PSN_COUNT - 1] {
                let within = is_within(number(a), number(b), number(count));
                assert_eq!(within, psn.is_within(expected, count), "{a:#x} in {count} from {b:#x} on");
            }
        }
    }

    /// The functions that [`PsnComparison`] does not use, for the comparison with their Verilog.
    #[derive(Default, LogicBlock, Registers)]
    struct Others {
        pub a: Signal<In, Bits<PSN_BITS>>,
        pub b: Signal<In, Bits<PSN_BITS>>,
        pub count: Signal<In, Bits<PSN_BITS>>,
        pub is_before: Signal<Out, Bit>,
        pub is_after: Signal<Out, Bit>,
        pub is_within: Signal<Out, Bit>,
    }

    impl Logic for Others {
        #[kernel]
        fn update(&mut self) {
            self.is_before.next = is_before(self.a.val(), self.b.val());
            self.is_after.next = is_after(self.a.val(), self.b.val());
            self.is_within.next = is_within(self.a.val(), self.b.val(), self.count.val());
        }
    }

    #[test]
    fn all_functions_are_the_same_in_verilog() {
        let mut bench = Bench::combinational(Others::default()).in_lock_step();
        for (a, b) in pairs() {
            for count in [0, 1, HALF_WINDOW, a.wrapping_sub(b) % PSN_COUNT] {
                bench.block.a.next = number(a);
                bench.block.b.next = number(b);
                bench.block.count.next = number(count);
                bench.settle();
                assert_eq!(bench.block.is_before.val(), is_before(number(a), number(b)));
            }
        }
    }

    #[test]
    fn waveform_is_as_documented() {
        let waves = Waves::new().signal("number").signal("expected").signal("check").signal("distance");
        let mut bench = Bench::combinational(PsnComparison::default()).recording(waves);
        for distance in [0, 1, PSN_COUNT - 1, HALF_WINDOW - 1, HALF_WINDOW] {
            bench.block.number.next = number((0xff_ffff + distance) % PSN_COUNT);
            bench.block.expected.next = number(0xff_ffff);
            bench.tick();
        }
        bench.waves().expect("logic/waves/psn.txt");
    }
}
