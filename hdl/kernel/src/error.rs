//! What can be wrong with a design, said with the block, the signal and the cause.
use crate::ir::Location;
use std::fmt::{Display, Formatter, Result};

/// A design that cannot be printed, with everything that was found wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct GenerateError {
    /// At least one, in the order in which the blocks are met; faults that equal blocks share are named once.
    pub faults: Vec<Fault>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Instance names from the top down, such as `card.receive.parse`.
    pub block: String,
    /// The Rust type of the block; empty if it did not say.
    pub type_name: String,
    /// The signal as the kernel writes it, without `self.`; `None` if the fault concerns the whole block.
    pub signal: Option<String>,
    /// What is wrong, and what would be right.
    pub cause: String,
    /// The line of the kernel, if it is known.
    pub location: Option<Location>,
}

impl Display for GenerateError {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.faults.len() {
            1 => write!(f, "the design cannot be generated:")?,
            count => write!(f, "the design cannot be generated, for {count} reasons:")?,
        }
        self.faults.iter().try_for_each(|fault| write!(f, "\n{fault}"))
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "  {}", self.block)?;
        if !self.type_name.is_empty() {
            write!(f, " ({})", self.type_name)?;
        }
        match &self.signal {
            Some(signal) => write!(f, ": `{signal}` {}", self.cause)?,
            None => write!(f, ": {}", self.cause)?,
        }
        match &self.location {
            Some(location) => write!(f, "\n    at {}:{}", location.file, location.line),
            None => Ok(()),
        }
    }
}

/// A fault before the walk has put it in its place: what one module says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalFault {
    pub(crate) signal: Option<String>,
    pub(crate) cause: String,
    pub(crate) location: Option<Location>,
}

impl LocalFault {
    /// A fault of the block as a whole.
    pub(crate) fn block(cause: impl Into<String>) -> Self {
        LocalFault { signal: None, cause: cause.into(), location: None }
    }

    /// A fault of one signal; the cause continues the sentence that begins with its name.
    pub(crate) fn signal(signal: impl Into<String>, cause: impl Into<String>) -> Self {
        LocalFault { signal: Some(signal.into()), cause: cause.into(), location: None }
    }

    /// The same fault with the line it was found in.
    pub(crate) fn at(mut self, location: &Location) -> Self {
        if !location.file.is_empty() {
            self.location = Some(location.clone());
        }
        self
    }
}
