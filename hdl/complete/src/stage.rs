//! Stage: the three cycles of an operation on a queue.
use rnic_kernel::prelude::*;

/// State of the machine.
#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
pub(crate) enum Stage {
    /// Chooses an operation, and looks up the record of its queue.
    Choose,
    /// Takes the record.
    Look,
    /// Decides, and writes the record.
    Decide,
}
