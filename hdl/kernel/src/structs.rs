//! What `#[derive(LogicStruct)]` needs at run time.
use crate::node::number_of;
use num_bigint::BigUint;
use rust_hdl::core::prelude::*;

/// Packs the fields of a struct, the first one lowest.
///
/// rust-hdl makes literals from `Bits<N>` only, and the width of a generic struct is no const generic, so the
/// literal has the next width of a short list; its value is what counts.
pub fn pack(fields: &[(usize, VerilogLiteral)], width: usize) -> VerilogLiteral {
    let packed = fields
        .iter()
        .fold(BigUint::default(), |packed, (offset, field)| packed | (number_of(field) << *offset));
    match width {
        0..=64 => Bits::<64>::from(packed).into(),
        65..=256 => Bits::<256>::from(packed).into(),
        257..=1024 => Bits::<1024>::from(packed).into(),
        1025..=4096 => Bits::<4096>::from(packed).into(),
        _ => panic!("a struct of {width} bits is wider than the 4096 that a constant may have"),
    }
}

/// The bits of a struct, which is `N` bits wide.
pub fn to_bits<T: Synth, const N: usize>(value: T) -> Bits<N> {
    number_of(&value.verilog()).into()
}
