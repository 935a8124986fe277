//! Failures: the errno of a call, and the line on standard error that says what to do.
#![allow(unsafe_code)]

use rnic_driver::{Error, FunctionError, RangeError};
use rnic_layout::admin::CommandStatus;
use std::ffi::c_int;
use std::fmt::Display;
use std::io::Write;
use std::ptr::null_mut;

/// Why a call fails.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    text: String,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure with the errno that the program gets and the line that a person reads.
    pub(crate) fn new(errno: c_int, text: impl Display) -> Self {
        Self { errno, text: text.to_string() }
    }

    /// What the program gets.
    #[cfg(test)]
    pub(crate) fn errno(&self) -> c_int {
        self.errno
    }

    /// Names what the failure is about.
    pub(crate) fn about(self, what: impl Display) -> Self {
        Self { text: format!("{what}: {}", self.text), ..self }
    }

    /// Reports the failure, and returns its errno.
    fn report(self) -> c_int {
        say(&self.text);
        set_errno(self.errno);
        self.errno
    }
}

/// Errno of a failure of the driver.
fn errno_of(error: &Error) -> c_int {
    match error {
        Error::Function(FunctionError::InUse { .. }) => libc::EBUSY,
        Error::Function(FunctionError::OutOfMemory { .. } | FunctionError::OutOfAddresses { .. }) => {
            libc::ENOMEM
        }
        Error::Function(FunctionError::NotShared { .. }) => libc::EFAULT,
        Error::Function(_) | Error::Absent => libc::EIO,
        Error::Exhausted { .. } => libc::ENOMEM,
        Error::NotSupported { .. } => libc::EOPNOTSUPP,
        Error::Command(refusal) => match refusal.status {
            CommandStatus::NotSupported => libc::EOPNOTSUPP,
            CommandStatus::NoResources => libc::ENOMEM,
            CommandStatus::Busy => libc::EBUSY,
            CommandStatus::HostError | CommandStatus::DeviceFailed => libc::EIO,
            _ => libc::EINVAL,
        },
        Error::TimedOut { .. } | Error::DeviceFailed { .. } | Error::AdminStopped { .. } => libc::EIO,
        Error::Forked => libc::EPERM,
        _ => libc::EINVAL,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(errno_of(&error), error)
    }
}

impl From<FunctionError> for Failure {
    fn from(error: FunctionError) -> Self {
        Error::from(error).into()
    }
}

impl From<RangeError> for Failure {
    fn from(error: RangeError) -> Self {
        Self::new(libc::EINVAL, error)
    }
}

/// Writes one line to standard error, if somebody reads it.
pub(crate) fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "libibverbs of rnic: {text}");
}

/// Sets `errno` of this thread.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: The C library gives the address of the variable of this thread, which lasts as long as the thread.
    unsafe { *libc::__errno_location() = errno }
}

/// What a function returns that gives an object: null and `errno` if it fails.
pub(crate) fn object<T>(outcome: Outcome<*mut T>) -> *mut T {
    outcome.unwrap_or_else(|failure| {
        failure.report();
        null_mut()
    })
}

/// What a function returns that gives zero or an errno.
pub(crate) fn status(outcome: Outcome<()>) -> c_int {
    outcome.map_or_else(Failure::report, |()| 0)
}

/// What a function returns that gives zero, or -1 and `errno`.
pub(crate) fn minus_one(outcome: Outcome<()>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(failure) => {
            failure.report();
            -1
        }
    }
}

/// As [`minus_one`], of an operation whose failure the program expects, so that nothing is written.
pub(crate) fn quiet_minus_one(outcome: Result<(), c_int>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}
