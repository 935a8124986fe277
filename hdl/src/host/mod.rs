//! The host's side of the card.

pub mod axi_lite;
