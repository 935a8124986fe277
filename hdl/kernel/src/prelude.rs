//! Everything that a file with kernels needs: `use rnic_kernel::prelude::*;`.
pub use crate::cat;
pub use crate::functions::{concat, select, swap_bytes};
pub use crate::register::{Clocked, Reg, Registers};
// In place of rust-hdl's.
pub use rnic_kernel_macros::LogicBlock;
pub use rnic_kernel_macros::{Construct, LogicStruct, Registers, clocked, kernel};
pub use rust_hdl::core::prelude::*;
pub use rust_hdl::widgets::prelude::*;
