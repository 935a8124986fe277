//! The packet path alone under Verilator, and the comparison of it with the software view of the contract.

pub mod differential;
pub mod path;
pub mod token;
mod words;
