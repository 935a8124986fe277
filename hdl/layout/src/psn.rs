//! Serial arithmetic modulo 2^24 for PSN, MSN and SSN (protocol 0 and 2.1).
//!
//! The distance from one number to another is a signed 24-bit number. A number is before another if that distance is negative. At
//! exactly half the number space, 2^23, the distance is negative: such a request is a duplicate, not a gap.
//!
//! ```text
//!            duplicate                         gap
//!   base-2^23 ..............  base-1 | base | base+1 ............ base+2^23-1
//!   distance -2^23            -1       0      1                   2^23-1
//! ```

/// Bits of a sequence number.
pub const PSN_BITS: u32 = 24;

/// Size of the number space, 2^24.
pub const PSN_COUNT: u32 = 1 << PSN_BITS;

/// Most PSNs that a requester may have unacknowledged, 2^23 (protocol 2.1).
pub const HALF_WINDOW: u32 = PSN_COUNT / 2;

/// A packet sequence number: 24 bits, modulo 2^24. MSN and SSN use the same arithmetic and this type.
///
/// There is no `Ord`, since the order of serial numbers is not transitive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

/// Outcome of comparing a request's PSN with the PSN that the responder expects (protocol 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsnCheck {
    /// The expected packet.
    Expected,
    /// Sequence error: this many packets (1 to 2^23 - 1) before it are missing.
    Gap(u32),
    /// A duplicate, this many packets (1 to 2^23) before the expected one.
    Duplicate(u32),
}

impl Psn {
    /// PSN 0.
    pub const ZERO: Self = Self(0);

    /// Returns the PSN with the low 24 bits of `value`.
    pub const fn wrapping(value: u32) -> Self {
        Self(value & (PSN_COUNT - 1))
    }

    /// Returns the PSN `value`, or `None` if it exceeds 24 bits.
    pub const fn new(value: u32) -> Option<Self> {
        if value < PSN_COUNT { Some(Self(value)) } else { None }
    }

    /// Returns the number, 0 to 2^24 - 1.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns this number plus `count`, modulo 2^24.
    #[must_use]
    pub const fn add(self, count: u32) -> Self {
        Self::wrapping(self.0.wrapping_add(count))
    }

    /// Returns this number minus `count`, modulo 2^24.
    #[must_use]
    pub const fn sub(self, count: u32) -> Self {
        Self::wrapping(self.0.wrapping_sub(count))
    }

    /// Returns the signed distance from `base` to this number, -2^23 to 2^23 - 1.
    pub const fn distance(self, base: Self) -> i32 {
        // Shift left, then arithmetically right, to extend the sign from bit 23 (protocol 0).
        (self.0.wrapping_sub(base.0) << (32 - PSN_BITS)) as i32 >> (32 - PSN_BITS)
    }

    /// Returns whether this number is before `other`.
    pub const fn is_before(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// Returns whether this number is after `other`. Of two numbers 2^23 apart, each is before the other and neither is after.
    pub const fn is_after(self, other: Self) -> bool {
        self.distance(other) > 0
    }

    /// Returns whether this number is one of the `count` numbers that begin with `first`; `count` is at most 2^24.
    pub const fn is_within(self, first: Self, count: u32) -> bool {
        self.0.wrapping_sub(first.0) & (PSN_COUNT - 1) < count
    }

    /// Compares this PSN of a request with the PSN that the responder expects (protocol 3.2).
    pub const fn check(self, expected: Self) -> PsnCheck {
        match self.distance(expected) {
            0 => PsnCheck::Expected,
            gap @ 1.. => PsnCheck::Gap(gap as u32),
            before => PsnCheck::Duplicate(before.unsigned_abs()),
        }
    }
}

impl core::fmt::Display for Psn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// Returns the number of PSNs that a message of `bytes` takes, `max(1, ceil(bytes / pmtu_bytes))` (protocol 2.1).
///
/// A READ request is one packet, but takes one PSN for each of its responses.
///
/// # Panics
///
/// If `pmtu_bytes` is zero.
pub const fn psn_count(bytes: u32, pmtu_bytes: u32) -> u32 {
    if bytes == 0 { 1 } else { bytes.div_ceil(pmtu_bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAST: Psn = Psn(PSN_COUNT - 1);

    #[test]
    fn numbers_wrap_at_24_bits() {
        assert_eq!(LAST.add(1), Psn::ZERO);
        assert_eq!(Psn::ZERO.sub(1), LAST);
        assert_eq!(Psn::new(PSN_COUNT - 1), Some(LAST));
        assert_eq!(Psn::new(PSN_COUNT), None);
        assert_eq!(Psn::wrapping(PSN_COUNT + 7).value(), 7);
    }

    #[test]
    fn half_the_space_is_a_duplicate_and_one_less_is_a_gap() {
        let expected = Psn(0xFFFF00);
        assert_eq!(expected.add(HALF_WINDOW).check(expected), PsnCheck::Duplicate(HALF_WINDOW));
        assert_eq!(expected.add(HALF_WINDOW - 1).check(expected), PsnCheck::Gap(HALF_WINDOW - 1));
        assert_eq!(expected.add(1).check(expected), PsnCheck::Gap(1));
        assert_eq!(expected.check(expected), PsnCheck::Expected);
        assert_eq!(expected.sub(1).check(expected), PsnCheck::Duplicate(1));
    }

    #[test]
    fn a_window_holds_its_first_number_and_not_the_one_after_its_last() {
        assert!(LAST.is_within(LAST, 1));
        assert!(!Psn::ZERO.is_within(LAST, 1));
        assert!(Psn::ZERO.is_within(LAST, 2));
        assert!(!LAST.is_within(LAST, 0));
        assert!(LAST.sub(1).is_within(LAST, PSN_COUNT));
        assert!(!LAST.sub(1).is_within(LAST, PSN_COUNT - 1));
    }

    #[test]
    fn an_empty_message_takes_one_psn_and_two_gibibytes_take_half_the_space() {
        assert_eq!(psn_count(0, 1024), 1);
        assert_eq!(psn_count(1024, 1024), 1);
        assert_eq!(psn_count(1025, 1024), 2);
        assert_eq!(psn_count(crate::limits::MESSAGE_BYTES_MAX, 256), HALF_WINDOW);
    }

    proptest! {
        #[test]
        fn distance_undoes_addition(base in 0..PSN_COUNT, count in 0..HALF_WINDOW) {
            let base = Psn(base);
            prop_assert_eq!(base.add(count).distance(base), count as i32);
            prop_assert_eq!(base.sub(count).distance(base), -(count as i32));
            prop_assert_eq!(base.add(count).sub(count), base);
        }

        #[test]
        fn before_and_after_mirror_each_other_except_at_half_the_space(a in 0..PSN_COUNT, b in 0..PSN_COUNT) {
            let (a, b) = (Psn(a), Psn(b));
            if a.distance(b) != -(HALF_WINDOW as i32) {
                prop_assert_eq!(a.is_before(b), b.is_after(a));
            }
        }
    }
}
