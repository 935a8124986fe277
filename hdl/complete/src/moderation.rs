//! Time as moderation counts it: units of 256 cycles, in a counter that wraps.
use rnic_kernel::prelude::*;

/// Bits of a time: one more than a period has, so that the end of every period is ahead until it is reached.
pub(crate) const TIME_BITS: usize = 17;
/// Bits of the counter of cycles, of which the upper ones are the time.
pub(crate) const CLOCK_BITS: usize = TIME_BITS + 8;

/// Says whether `time` is still to come. The two must be less than half the range apart, 2^16 units.
#[kernel]
pub(crate) fn is_ahead(time: Bits<TIME_BITS>, now: Bits<TIME_BITS>) -> Bit {
    (now - time).get_bit(TIME_BITS - 1)
}

/// The end of a period that begins now.
#[kernel]
pub(crate) fn end_of(period: Bits<16>, now: Bits<TIME_BITS>) -> Bits<TIME_BITS> {
    now + bit_cast::<TIME_BITS, 16>(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_period_ends_when_it_is_over_and_not_before() {
        for period in [1, 4, 0x7fff, 0x8000, 0x8001, 0xffff] {
            for begin in [0, 1, 0x8000, 0xffff, 0x1_0000, 0x1_ffff] {
                let end = end_of(bits(period), bits(begin));
                let at = |elapsed: u64| bits((begin + elapsed) & 0x1_ffff);
                assert!(is_ahead(end, at(0)) && is_ahead(end, at(period - 1)), "{period} from {begin}");
                assert!(!is_ahead(end, at(period)), "{period} from {begin}");
                assert!(!is_ahead(end, at(period + 0xffff)), "{period} from {begin}, looked at late");
            }
        }
    }
}
