//! What a constructor answers to a parameter that it cannot build.
use std::fmt::Display;
use std::ops::RangeInclusive;

/// A parameter of a block that is outside what the block can be built with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parameter {parameter} is {value}, but must be {allowed}")]
pub struct ParameterError {
    /// The parameter, as the constructor or the type of the block calls it.
    pub parameter: &'static str,
    /// What it was.
    pub value: String,
    /// What it may be, in words that continue "must be".
    pub allowed: String,
}

impl ParameterError {
    /// Says that `parameter` is `value`, and what is `allowed` instead.
    pub fn new(parameter: &'static str, value: impl Display, allowed: impl Into<String>) -> Self {
        ParameterError { parameter, value: value.to_string(), allowed: allowed.into() }
    }
}

/// Accepts a parameter inside `range`.
///
/// # Errors
/// Names the parameter, its value and the range otherwise.
pub fn check_range(
    parameter: &'static str,
    value: usize,
    range: RangeInclusive<usize>,
) -> Result<(), ParameterError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(ParameterError::new(parameter, value, format!("{} to {}", range.start(), range.end())))
}

/// Accepts a parameter that another one determines, such as the width of a count.
///
/// Stable Rust cannot write `Bits<{ N + 1 }>`, so blocks take such widths as parameters of their own.
///
/// # Errors
/// Names the parameter, its value, the value it must have and the `reason` for that.
pub fn check_equal(
    parameter: &'static str,
    value: usize,
    required: usize,
    reason: &str,
) -> Result<(), ParameterError> {
    if value == required {
        return Ok(());
    }
    Err(ParameterError::new(parameter, value, format!("{required} ({reason})")))
}

/// Checks the two width parameters that every block on the datapath takes.
///
/// # Errors
/// `DATA` must be 64, 128, 256 or 512, and `BYTES` the width of a count of its bytes.
pub fn check_widths(data: usize, bytes: usize) -> Result<(), ParameterError> {
    if ![64, 128, 256, 512].contains(&data) {
        return Err(ParameterError::new("DATA", data, "64, 128, 256 or 512"));
    }
    let required = (data / 8).ilog2() as usize + 1;
    check_equal("BYTES", bytes, required, "the width of a count up to DATA / 8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_includes_its_ends() {
        assert_eq!(check_range("ADDRESS", 1, 1..=4), Ok(()));
        assert_eq!(check_range("ADDRESS", 4, 1..=4), Ok(()));
        assert!(check_range("ADDRESS", 0, 1..=4).is_err());
        assert!(check_range("ADDRESS", 5, 1..=4).is_err());
    }

    #[test]
    fn an_error_names_parameter_value_and_range() {
        let error = check_range("ADDRESS", 17, 1..=16).unwrap_err();
        assert_eq!(error.to_string(), "parameter ADDRESS is 17, but must be 1 to 16");
        let error = check_equal("COUNT", 4, 5, "ADDRESS + 1").unwrap_err();
        assert_eq!(error.to_string(), "parameter COUNT is 4, but must be 5 (ADDRESS + 1)");
    }
}
