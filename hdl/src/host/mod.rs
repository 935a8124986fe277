//! The host's side of the card.

pub mod arrivals;
pub mod axi_lite;
pub mod chunk_buffer;
pub mod read_engine;
pub mod registers;
pub mod ring;
mod totals;
