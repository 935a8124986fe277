//! Fast versions of what is slow in rust-hdl, for kernels while they are simulated in Rust.
//!
//! A value of more than 32 bits is an array of `bool` there, and `get_bits` shifts all of it before it takes a few. `#[kernel]`
//! calls [`QuickBits::quick_bits`] in its place; the generated Verilog knows nothing of it.
use rust_hdl::core::bits::Bits;
use rust_hdl::core::bitvec::BitVec;

/// Bits that `rust_hdl` keeps as a number.
const SHORT_BITS: usize = 32;

/// The value of these bits, the lowest one first.
pub(crate) fn bits_of<const N: usize>(bits: [bool; N]) -> Bits<N> {
    if N <= SHORT_BITS { Bits::from(number_of(bits)) } else { Bits::Long(BitVec::from(bits)) }
}

fn number_of(bits: impl IntoIterator<Item = bool>) -> u64 {
    bits.into_iter().enumerate().fold(0, |number, (place, bit)| number | u64::from(bit) << place)
}

/// A part of a value; see the module.
pub trait QuickBits {
    /// As `Bits::get_bits`: `M` bits from `index` on, zero beyond the end.
    fn quick_bits<const M: usize>(&self, index: usize) -> Bits<M>;
}

impl<const N: usize> QuickBits for Bits<N> {
    #[inline]
    fn quick_bits<const M: usize>(&self, index: usize) -> Bits<M> {
        let Bits::Long(long) = self else { return self.get_bits::<M>(index) };
        assert!(index <= N);
        let count = M.min(N - index);
        if M <= SHORT_BITS {
            return Bits::from(number_of((0..count).map(|place| long.get_bit(index + place))));
        }
        let mut part = [false; M];
        part.iter_mut().zip(index..N).for_each(|(bit, place)| *bit = long.get_bit(place));
        Bits::Long(BitVec::from(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each bit says where it is, and no shift of the value is the value.
    fn pattern<const N: usize>() -> Bits<N> {
        (0..N).fold(Bits::default(), |bits: Bits<N>, place| {
            bits.replace_bit(place, (place * place + place / 3) % 7 < 3)
        })
    }

    fn agrees<const N: usize, const M: usize>() {
        let value = pattern::<N>();
        for index in 0..=N {
            assert_eq!(value.quick_bits::<M>(index), value.get_bits::<M>(index), "{M} of {N} at {index}");
        }
    }

    #[test]
    fn parts_are_those_of_rust_hdl() {
        agrees::<7, 3>();
        agrees::<32, 32>();
        agrees::<33, 1>();
        agrees::<64, 31>();
        agrees::<64, 32>();
        agrees::<64, 33>();
        agrees::<130, 64>();
        agrees::<130, 130>();
    }
}
