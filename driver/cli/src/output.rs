//! Text on standard output, for people and as JSON.

use anyhow::Result;
use serde::Serialize;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stdout};
use std::process::exit;

/// Exit code of a program that SIGPIPE has ended, as a shell reports it.
const CLOSED_PIPE: i32 = 128 + 13;

/// Prints a line as `println!` does, but ends the program quietly if standard output is a closed pipe.
macro_rules! print_line {
    ($($argument:tt)*) => {
        $crate::output::write_line(format_args!($($argument)*))?
    };
}

pub(crate) fn write_line(line: Arguments<'_>) -> Result<()> {
    match writeln!(stdout(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit(CLOSED_PIPE),
        written => Ok(written?),
    }
}

/// Prints a value as JSON of several lines.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    print_line!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Writes a number with a comma between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// Writes a number of bytes with the largest unit that divides it.
pub(crate) fn bytes(count: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(log2, _)| count >> log2 != 0 && count.is_multiple_of(1 << log2)) {
        Some((log2, unit)) => format!("{} {unit}", grouped(count >> log2)),
        None => format!("{} B", grouped(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        let numbers = [0, 7, 999, 1000, 12_345, u64::MAX];
        let expected = ["0", "7", "999", "1,000", "12,345", "18,446,744,073,709,551,615"];
        assert_eq!(numbers.map(grouped), expected);
        let sizes = [0, 1, 1000, 1024, 16 << 10, 16 << 20, 2 << 30, (1 << 20) + 1];
        let expected = ["0 B", "1 B", "1,000 B", "1 KiB", "16 KiB", "16 MiB", "2 GiB", "1,048,577 B"];
        assert_eq!(sizes.map(bytes), expected);
    }
}
