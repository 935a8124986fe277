//! Text on standard output and standard error. A program goes on without them, and fails at its end: see [`check`].
use anyhow::{Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::process::exit;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Exit code of a program that SIGPIPE has ended, as a shell reports it.
const CLOSED_PIPE: i32 = 128 + 13;

/// Time that the reader of a server's standard output has to take a line.
const PATIENCE: Duration = Duration::from_millis(500);

/// Waits until an output takes a line.
///
/// # Errors
/// If it does not in this time, as a pipe that nobody reads.
fn await_reader(output: impl AsFd, limit: Duration) -> io::Result<()> {
    let limit = Timespec::try_from(limit).expect("it is short");
    match poll(&mut [PollFd::new(&output, PollFlags::OUT)], Some(&limit)) {
        Ok(0) => Err(io::Error::new(ErrorKind::WouldBlock, "nobody reads it")),
        // The write tells what else is wrong.
        _ => Ok(()),
    }
}

/// Lines that could not be written to an output, and the first reason.
struct Lost {
    name: &'static str,
    first: Mutex<Option<(io::Error, u64)>>,
}

static STANDARD_OUTPUT: Lost = Lost { name: "standard output", first: Mutex::new(None) };
static STANDARD_ERROR: Lost = Lost { name: "standard error", first: Mutex::new(None) };

impl Lost {
    /// Counts a line. Returns whether it is the first.
    fn count(&self, error: io::Error) -> bool {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, count) = first.get_or_insert((error, 0));
        *count += 1;
        *count == 1
    }

    /// Says what was lost, if something was.
    fn describe(&self) -> Option<String> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let (error, count) = first.as_ref()?;
        Some(format!("{}: {count} lines are lost: {error}", self.name))
    }
}

/// Prints a line as `println!` does, but ends the program quietly if standard output is a closed pipe, as in
/// `rnic-sim demo | head`.
#[macro_export]
macro_rules! print_line {
    ($($argument:tt)*) => {
        $crate::output::write_line(format_args!($($argument)*))
    };
}

/// Writes a line to standard output. See [`print_line!`](crate::print_line). If it cannot be written for another reason, the loss is
/// said once on standard error.
pub fn write_line(line: Arguments<'_>) {
    match writeln!(stdout(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit(CLOSED_PIPE),
        Err(error) => lose_line(error),
        Ok(()) => {}
    }
}

/// Writes a line to standard output for a server, which goes on if that is a closed pipe, or one that nobody reads.
///
/// # Errors
/// If it cannot be written. The loss is said once on standard error.
pub fn serve_line(line: Arguments<'_>) -> io::Result<()> {
    await_reader(stdout(), PATIENCE).and_then(|()| writeln!(stdout(), "{line}")).map_err(|error| {
        let kind = error.kind();
        lose_line(error);
        kind.into()
    })
}

fn lose_line(error: io::Error) {
    let text = format!("{} cannot be written: {error}", STANDARD_OUTPUT.name);
    if STANDARD_OUTPUT.count(error) {
        log(&text);
    }
}

/// Writes a line to standard error. A reader that has let a server lose lines is not waited for.
pub fn write_error(line: Arguments<'_>) {
    if lost_errors().is_some() {
        return log(&line.to_string());
    }
    if let Err(error) = writeln!(stderr(), "{line}") {
        STANDARD_ERROR.count(error);
    }
}

/// Writes a line to standard error for a server, which waits for no reader.
pub fn log(line: &str) {
    if let Err(error) = await_reader(stderr(), Duration::ZERO).and_then(|()| writeln!(stderr(), "{line}")) {
        STANDARD_ERROR.count(error);
    }
}

/// Says what standard error has lost, if it has.
pub fn lost_errors() -> Option<String> {
    STANDARD_ERROR.describe()
}

/// Fails if a line was lost.
///
/// # Errors
/// Says of each output how many lines it has lost, and why.
pub fn check() -> Result<()> {
    let lost: Vec<String> =
        [&STANDARD_OUTPUT, &STANDARD_ERROR].into_iter().filter_map(Lost::describe).collect();
    if lost.is_empty() { Ok(()) } else { bail!("{}", lost.join("; ")) }
}
