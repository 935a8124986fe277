//! The packet path alone as a design, under Verilator, and the comparison of it with the software view of the contract.

pub mod design;
pub mod differential;
pub mod path;
pub mod registers;
pub mod token;
mod words;
