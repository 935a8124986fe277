//! The rnic hardware language: kernels in ordinary Rust, printed as Verilog-2005.
//!
//! Blocks are those of rust-hdl. `#[kernel]` on their `update` keeps the Rust body for simulation and adds a staged
//! copy that records a graph ([`ir`]), from which [`generate`] prints Verilog with exactly the widths of Rust.
//!
// The examples of the chapter are fragments; they are tested where they are whole, in rnic-kernel-check.
#![cfg_attr(not(doctest), doc = include_str!("../LANGUAGE.md"))]
extern crate self as rnic_kernel;

mod design;
mod error;
pub mod functions;
pub mod ir;
pub mod leaf;
pub mod literal;
mod netlist;
pub mod node;
pub mod ports;
pub mod prelude;
pub mod quick;
mod recorder;
pub mod register;
#[doc(hidden)]
pub mod staged;
#[doc(hidden)]
pub mod structs;
mod verilog;

pub use design::{Design, Module, generate, generate_design};
pub use error::{Fault, GenerateError};
pub use leaf::leaf;
pub use node::Node;
pub use rust_hdl;

/// What `#[require(..)]` refuses does not compile; the message names the block and its parameters.
///
/// ```
/// use rnic_kernel::prelude::*;
/// #[derive(LogicBlock, Construct)]
/// #[require(COUNT == ADDRESS + 1)]
/// struct Queue<const ADDRESS: usize, const COUNT: usize> {
///     pub level: Signal<Out, Bits<COUNT>>,
/// }
/// impl<const ADDRESS: usize, const COUNT: usize> Logic for Queue<ADDRESS, COUNT> {
///     fn update(&mut self) {}
/// }
/// let queue = Queue::<4, 5>::default();
/// ```
///
/// ```compile_fail,E0080
/// use rnic_kernel::prelude::*;
/// #[derive(LogicBlock, Construct)]
/// #[require(COUNT == ADDRESS + 1)]
/// struct Queue<const ADDRESS: usize, const COUNT: usize> {
///     pub level: Signal<Out, Bits<COUNT>>,
/// }
/// impl<const ADDRESS: usize, const COUNT: usize> Logic for Queue<ADDRESS, COUNT> {
///     fn update(&mut self) {}
/// }
/// let queue = Queue::<4, 4>::default();
/// ```
#[cfg(doctest)]
struct Requirements;
