//! What libraries share that stand in for those of the distribution: names and versions of their functions, structures of the ABI, queues
//! behind file descriptors, and events that a program acknowledges.

mod symbols;

pub mod abi;
mod acknowledgements;
mod fifo;

pub use acknowledgements::Acknowledgements;
pub use fifo::{Fifo, lock};
pub use symbols::Library;
