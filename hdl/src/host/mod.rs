//! The host's side of the card.

pub mod axi_lite;
pub mod registers;
mod totals;
