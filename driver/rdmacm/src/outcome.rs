//! Failures: the errno of a call, and the line on standard error that says what to do.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fmt::Display;
use std::io::{self, Write};

/// Why a call fails.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    /// The line that a person reads. A failure that the program expects has none.
    text: Option<String>,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure with the errno that the program gets and the line that a person reads.
    pub(crate) fn new(errno: c_int, text: impl Display) -> Self {
        Self { errno, text: Some(text.to_string()) }
    }

    /// A failure that the program expects, or whose line somebody else has written.
    pub(crate) fn quiet(errno: c_int) -> Self {
        Self { errno, text: None }
    }

    /// The failure that a function of the C library or of the verbs library has just left in `errno`.
    pub(crate) fn last() -> Self {
        Self::quiet(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// What the program gets.
    pub(crate) fn errno(&self) -> c_int {
        self.errno
    }

    /// Reports the failure, and returns its errno.
    pub(crate) fn report(self) -> c_int {
        self.text.inspect(|text| say(text));
        set_errno(self.errno);
        self.errno
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::quiet(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Writes one line to standard error, if somebody reads it.
pub(crate) fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "librdmacm of rnic: {text}");
}

/// Sets `errno` of this thread.
fn set_errno(errno: c_int) {
    // SAFETY: The C library gives the address of the variable of this thread, which lasts as long as the thread.
    unsafe { *libc::__errno_location() = errno }
}

/// What most functions return: zero, or -1 and `errno`.
pub(crate) fn status(outcome: Outcome<()>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(failure) => {
            failure.report();
            -1
        }
    }
}
