//! Report of a failing run: its seed, the violations, and the newest frames of every port.
use crate::monitor::Violation;
use rnic_stimulus::chance::Seed;
use std::fmt;
use std::path::PathBuf;

/// Environment variable with the directory for captures of failing runs; by default `failures` in Cargo's target directory.
pub const FAILURES_VARIABLE: &str = "RNIC_FAILURES";
/// Environment variable with the directory for waveforms, which are written only if it is set.
pub const TRACE_VARIABLE: &str = "RNIC_TRACE";

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Seed that repeats the run.
    pub seed: Seed,
    /// Simulated time of the failure.
    pub time_ps: u64,
    /// Condition that did not become true in time; empty if a monitor ended the run.
    pub text: String,
    /// Violations that the monitors have seen.
    pub violations: Vec<Violation>,
    /// Captures of the newest frames.
    pub files: Vec<PathBuf>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, at {} ps: {}", self.seed.0, self.time_ps, self.text)?;
        for violation in &self.violations {
            write!(f, "\n  {violation}")?;
        }
        for file in &self.files {
            write!(f, "\n  see {}", file.display())?;
        }
        write!(f, "\n  waves of the same run: {TRACE_VARIABLE}=<folder>")
    }
}

impl std::error::Error for Failure {}

/// Directory for captures of failing runs.
pub(super) fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os(FAILURES_VARIABLE).filter(|folder| !folder.is_empty()) {
        return folder.into();
    }
    // Cargo marks its target directory with this file, and a test runs from inside of it.
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().skip(1).find(|folder| folder.join("CACHEDIR.TAG").is_file());
    target.map(|folder| folder.join("failures")).unwrap_or_else(|| PathBuf::from("target/failures"))
}

/// Directory for waveforms, if they are requested.
pub(super) fn trace_folder() -> Option<PathBuf> {
    std::env::var_os(TRACE_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Name of the run in file names: that of the test, if it is one.
pub(super) fn run_name() -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("run");
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}
