//! The rnic hardware language: kernels in ordinary Rust, printed as Verilog-2005.
pub mod ir;
pub mod leaf;

pub use leaf::leaf;
