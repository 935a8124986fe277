//! The rnic hardware language: kernels in ordinary Rust, printed as Verilog-2005.
mod design;
mod error;
pub mod ir;
pub mod leaf;
mod netlist;
mod verilog;

pub use design::{Design, Module, generate, generate_design};
pub use error::{Fault, GenerateError};
pub use leaf::leaf;
