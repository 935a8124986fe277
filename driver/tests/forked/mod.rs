//! Runs a part of a test in a process that is forked from it. This has `unsafe` code.

use rustix::process::{Pid, WaitOptions, waitpid};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `run` in a forked process.
///
/// # Panics
///
/// If it panics there, or the process ends in another way.
pub(crate) fn in_forked_process(run: impl FnOnce()) {
    beside_forked_process(run, || ());
}

/// Runs `run` in a forked process, and `meanwhile` in this one.
///
/// # Panics
///
/// If one of them panics, or the forked process ends in another way.
#[expect(unsafe_code, reason = "a process is forked")]
pub(crate) fn beside_forked_process(run: impl FnOnce(), meanwhile: impl FnOnce()) {
    // SAFETY: The new process has this thread only. It runs code that takes no lock of another thread but that of the allocator,
    // which the C library keeps usable, and ends without the destructors of the process.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let is_failed = catch_unwind(AssertUnwindSafe(run)).is_err();
        // SAFETY: It ends the process, and is not given anything.
        unsafe { libc::_exit(is_failed.into()) };
    }
    let pid = Pid::from_raw(pid).expect("a process can be forked");
    meanwhile();
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0), "the forked process has ended with {status:?}");
}
