//! Fast versions of what is slow in rust-hdl, for kernels while they are simulated in Rust.
//!
//! # Passes over a hierarchy
//! rust-hdl evaluates a block, then its parts, until nothing changes any more. So a value, and each edge of the clock, takes a
//! pass for every level down that it crosses, and in most passes most blocks have the inputs of the pass before. [`settle`] lets
//! a block take its inputs before it is evaluated, so that values go down all levels in one pass, and passes over the blocks in
//! which nothing has changed. Two things make that the same to the end of a cycle:
//!
//! 1. Outputs depend on signals, and on state that changes at an edge of a clock only, before the outputs of that pass are set.
//! 2. What an edge changes leaves no block in the pass of the edge: the block around it has been evaluated by then.
//!
//! # Parts of a value
//! A value of more than 32 bits is an array of `bool` there, and `get_bits` shifts all of it before it takes a few. `#[kernel]`
//! calls [`QuickBits::quick_bits`] in its place; the generated Verilog knows nothing of it.
use rust_hdl::core::bits::Bits;
use rust_hdl::core::bitvec::BitVec;
use rust_hdl::core::prelude::Block;
use std::cell::Cell;

/// Passes after which a block must have settled: a longer chain of hierarchy is a loop.
const PASSES_MAX: usize = 200;

/// Bits that `rust_hdl` keeps as a number.
const SHORT_BITS: usize = 32;

thread_local! {
    static IS_QUICK: Cell<bool> = const { Cell::new(false) };
}

/// What happened since a block has settled last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Anything: a test may have set signals and state anywhere in the block.
    Anything,
    /// Inputs that are signals of the block itself, as its clock is, and nothing else.
    Inputs,
}

/// Evaluates `block` until nothing changes any more. Calls `after_pass` after each pass that changed something.
///
/// # Panics
/// When it does not settle in 200 passes.
pub fn settle<B: Block + ?Sized>(block: &mut B, since: Since, mut after_pass: impl FnMut(&B)) {
    let mut is_quick = since == Since::Inputs;
    for _ in 0..PASSES_MAX {
        // Ends with the pass, so that a panic in one leaves nothing behind.
        let _quick = is_quick.then(Quick::begin);
        block.update_all();
        if !block.has_changed() {
            return;
        }
        after_pass(block);
        is_quick = true;
    }
    panic!("the block does not settle in {PASSES_MAX} passes");
}

/// Passes are quick while it lives.
struct Quick;

impl Quick {
    fn begin() -> Self {
        IS_QUICK.set(true);
        Quick
    }
}

impl Drop for Quick {
    fn drop(&mut self) {
        IS_QUICK.set(false);
    }
}

/// Whether this pass is a quick one; for `#[derive(LogicBlock)]`.
#[doc(hidden)]
pub fn is_quick() -> bool {
    IS_QUICK.get()
}

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
