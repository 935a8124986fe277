//! Constants of rust-hdl as numbers: rust-hdl keeps the number to itself, and shows it as text only.
use num_bigint::BigUint;
use rust_hdl::core::prelude::VerilogLiteral;

/// Returns the number of a constant; `None` if it is negative.
pub fn number_of(literal: &VerilogLiteral) -> Option<BigUint> {
    parse_hex(&format!("{literal:x}"))
}

/// Reads `<width>'h<digits>`.
pub(crate) fn parse_hex(text: &str) -> Option<BigUint> {
    let (_, digits) = text.split_once("'h")?;
    BigUint::parse_bytes(digits.as_bytes(), 16)
}
