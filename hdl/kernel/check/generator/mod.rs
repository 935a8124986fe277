//! Random programs over the grammar of the hardware language.
//!
//! ```text
//! program ── types: structs, generic structs, enums           (types.rs)
//!         ├─ functions: free kernel functions                 (program.rs)
//!         ├─ Child, a block without children of its own       (program.rs)
//!         └─ Top, a block ── statements ── values             (statements.rs, values.rs)
//! ```
//!
//! A program is legal by construction, so that every refusal is a fault of the language: signals are written before
//! they are read, indices are in range, literals fit. What is left to chance is everything else, and parentheses are
//! left out wherever Rust does not need them, because Verilog binds differently.

mod program;
mod random;
mod statements;
mod types;
mod values;

pub(crate) use program::program;
