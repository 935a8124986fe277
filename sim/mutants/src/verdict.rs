//! What the end of a judge says about a mutant.
use std::time::Duration;

/// How a judge ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It was stopped at its limit of wall-clock time.
    Limit(Duration),
}

/// What a judge says about a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It sees no fault.
    Passed,
    /// It sees the fault: an assertion failed, a monitor or the driver reported an error, or it never ended.
    Caught(String),
    /// The judge itself broke, which shows nothing.
    Broken(String),
}

/// Exit code of a test program of which a test has failed.
const TEST_FAILED: i32 = 101;

/// Panics of a program that runs on values that it did not check, in place of saying what is wrong with them.
const PANICS_OF_THE_PROGRAM: [&str; 7] = [
    "index out of bounds",
    "out of range for slice",
    "attempt to ",
    "called `Option::unwrap()`",
    "slice index starts at",
    "entered unreachable code",
    "capacity overflow",
];

/// Errors that are of the gate, not of the card.
const ERRORS_OF_THE_GATE: [&str; 4] =
    ["no longer apply", "which is no mutant", "verilat", "cannot load the model"];

/// The verdict of one test that ran alone, by its end and its output.
pub fn verdict(end: &End, output: &str) -> Verdict {
    match end {
        End::Limit(limit) => {
            Verdict::Caught(format!("no end after {} s: the limit of time", limit.as_secs()))
        }
        End::Signal(signal) => Verdict::Broken(format!("the judge died of signal {signal}")),
        End::Code(0) if output.contains("test result: ok. 1 passed") => Verdict::Passed,
        End::Code(0) => Verdict::Broken("the judge ran no test".into()),
        End::Code(TEST_FAILED) if output.contains("test result: FAILED") => match failure(output) {
            Some(line) if PANICS_OF_THE_PROGRAM.iter().any(|panic| line.contains(panic)) => {
                Verdict::Broken(line)
            }
            Some(line) if ERRORS_OF_THE_GATE.iter().any(|error| line.to_lowercase().contains(error)) => {
                Verdict::Broken(line)
            }
            Some(line) => Verdict::Caught(line),
            None => Verdict::Broken("the judge failed without a reason".into()),
        },
        End::Code(code) => Verdict::Broken(format!("the judge ended with exit code {code}")),
    }
}

/// The line that says why the test failed: the message of the first panic, or the root of the error that it returned.
fn failure(output: &str) -> Option<String> {
    let lines: Vec<&str> = output.lines().map(str::trim_end).collect();
    if let Some(place) = lines.iter().position(|line| line.starts_with("Error: ")) {
        let error = &lines[place..];
        let end = error.iter().position(|line| line.starts_with("test ")).unwrap_or(error.len());
        let error = &error[..end];
        let root = match error.iter().position(|line| *line == "Caused by:") {
            // Causes are numbered if there are several, and the last of them is the root.
            Some(heading) => error.iter().rposition(|line| cause(line).is_some()).unwrap_or(heading + 1),
            None => 0,
        };
        let first = error.get(root)?;
        let first = cause(first).unwrap_or(first).trim().trim_start_matches("Error: ");
        return Some(shortened(&with_next(first, &error[root + 1..])));
    }
    let place = lines.iter().position(|line| line.contains("panicked at"))?;
    lines[place + 1..].iter().find(|line| !line.is_empty()).map(|line| shortened(line.trim()))
}

/// The text of a numbered cause of an error.
fn cause(line: &str) -> Option<&str> {
    let (number, text) = line.strip_prefix("    ")?.trim_start().split_once(": ")?;
    number.parse::<u32>().ok().map(|_| text)
}

/// A shorter line is likely to be the heading of the next one.
const HEADING_MAX: usize = 60;

/// A line, with the next one of the same message if it is a heading.
fn with_next(line: &str, rest: &[&str]) -> String {
    match rest.first().map(|next| next.trim()) {
        Some(next) if (line.len() < HEADING_MAX || line.ends_with(':')) && !next.is_empty() => {
            format!("{line} {next}")
        }
        _ => line.to_string(),
    }
}

/// Longest reason in the table of results.
const REASON_MAX: usize = 160;

fn shortened(line: &str) -> String {
    match line.char_indices().nth(REASON_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: &str = "test result: FAILED. 0 passed; 1 failed";

    fn of_failure(output: &str) -> Verdict {
        verdict(&End::Code(101), &format!("{output}\n{FAILED}"))
    }

    #[test]
    fn a_test_that_passes_sees_nothing() {
        let output = "running 1 test\ntest result: ok. 1 passed; 0 failed; 3 filtered out";
        assert_eq!(verdict(&End::Code(0), output), Verdict::Passed);
    }

    #[test]
    fn a_judge_that_ran_no_test_is_broken() {
        let output = "running 0 tests\ntest result: ok. 0 passed; 0 failed";
        assert!(matches!(verdict(&End::Code(0), output), Verdict::Broken(_)));
    }

    #[test]
    fn an_assertion_catches() {
        let output = "thread 'x' (7) panicked at sim/tests/card/main.rs:3:4:\nassertion failed: a == b\nnote: run with";
        assert_eq!(of_failure(output), Verdict::Caught("assertion failed: a == b".into()));
    }

    #[test]
    fn an_error_catches_by_its_root() {
        let output = "Error: what the cards have counted:\n  card 0: frames 1\n\nCaused by:\n    0: seed 3\n    1: PSN 7 is \
                      missing\n       at card 1\n";
        assert_eq!(of_failure(output), Verdict::Caught("PSN 7 is missing at card 1".into()));
        let output = "Error: 64 bits\n\nCaused by:\n    no answer\ntest x ... FAILED\n\nfailures:\n";
        assert_eq!(of_failure(output), Verdict::Caught("no answer".into()));
        let output = "Error: 9:\nMIDDLE first: no drop\nFIRST twice: no drop\ntest x ... FAILED\n";
        assert_eq!(of_failure(output), Verdict::Caught("9: MIDDLE first: no drop".into()));
        assert_eq!(of_failure("Error: no answer"), Verdict::Caught("no answer".into()));
    }

    #[test]
    fn a_judge_that_never_ends_catches() {
        let caught = verdict(&End::Limit(Duration::from_secs(90)), "");
        assert_eq!(caught, Verdict::Caught("no end after 90 s: the limit of time".into()));
    }

    #[test]
    fn a_judge_that_breaks_catches_nothing() {
        for output in [
            "thread 'x' panicked at a.rs:1:1:\nindex out of bounds: the len is 3 but the index is 7",
            "thread 'x' panicked at a.rs:1:1:\nattempt to subtract with overflow",
            "Error: faults of sim/mutants/src that no longer apply to the generated Verilog:",
            "Error: cannot load the model `x.so`: no such file",
            "nothing",
        ] {
            assert!(matches!(of_failure(output), Verdict::Broken(_)), "{output}");
        }
        assert!(matches!(verdict(&End::Signal(11), FAILED), Verdict::Broken(_)));
        assert!(matches!(verdict(&End::Code(1), FAILED), Verdict::Broken(_)));
        // A program that could not run its tests says so before there is a result.
        assert!(matches!(verdict(&End::Code(101), "panicked at x:\nno"), Verdict::Broken(_)));
    }

    #[test]
    fn long_reasons_are_cut() {
        let line = "x".repeat(500);
        assert_eq!(
            of_failure(&format!("Error: {line}")),
            Verdict::Caught(format!("{}...", &line[..REASON_MAX]))
        );
    }
}
