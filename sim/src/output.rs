//! Text on standard output.
use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stdout};
use std::process::exit;

/// Exit code of a program that SIGPIPE has ended, as a shell reports it.
const CLOSED_PIPE: i32 = 128 + 13;

/// Prints a line as `println!` does, but ends the program quietly if standard output is a closed pipe, as in
/// `rnic-sim demo | head`.
#[macro_export]
macro_rules! print_line {
    ($($argument:tt)*) => {
        $crate::output::write_line(format_args!($($argument)*))
    };
}

/// Writes a line to standard output. See [`print_line!`](crate::print_line).
///
/// # Panics
/// If standard output cannot be written for a reason other than a closed pipe.
pub fn write_line(line: Arguments<'_>) {
    match writeln!(stdout(), "{line}") {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit(CLOSED_PIPE),
        Err(error) => panic!("cannot write to standard output: {error}"),
    }
}
