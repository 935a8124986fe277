//! Numbers of the command line, which are refused with their bounds.
use clap::Command;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Reads a number within bounds.
pub fn within<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: Copy + Display + PartialOrd + TryFrom<u64>,
{
    move |text| {
        let number = text.parse::<u64>().ok().and_then(|number| T::try_from(number).ok());
        let is_allowed = |number: &T| range.contains(number);
        number
            .filter(is_allowed)
            .ok_or_else(|| format!("{text} is not in {}..={}", range.start(), range.end()))
    }
}

/// Lets a number that is negative be a value of each option, so that it is refused as one, and not as an option that is not known.
pub fn take_negative(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let takes_values = argument.get_action().takes_values();
        argument.allow_negative_numbers(takes_values)
    });
    command.mut_subcommands(take_negative)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_refused_with_its_bounds() {
        let read = within(1..=1000_u32);
        assert_eq!((read("1"), read("1000")), (Ok(1), Ok(1000)));
        for text in ["0", "1001", "-1", "4294967297", "18446744073709551616", "nan", "1e400", "1.5", ""] {
            assert_eq!(read(text), Err(format!("{text} is not in 1..=1000")));
        }
        assert_eq!(within(0..=u64::MAX)("18446744073709551615"), Ok(u64::MAX));
    }
}
