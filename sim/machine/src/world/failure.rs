//! What a failing run leaves behind: its seed, what was violated, and the newest frames of every port.
use crate::monitor::Violation;
use rnic_stimulus::chance::Seed;
use std::fmt;
use std::path::PathBuf;

/// The environment variable that names the folder for evidence; by default `failures` in Cargo's target folder.
pub const FAILURES_VARIABLE: &str = "RNIC_FAILURES";
/// The environment variable that asks for waves and names the folder for them.
pub const TRACE_VARIABLE: &str = "RNIC_TRACE";

/// A run that did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What to run again.
    pub seed: Seed,
    /// When it was noticed.
    pub time_ps: u64,
    /// What was waited for in vain, if something was.
    pub text: String,
    /// What the monitors say.
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

/// The folder for evidence.
pub(super) fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os(FAILURES_VARIABLE).filter(|folder| !folder.is_empty()) {
        return folder.into();
    }
    // Cargo marks its target folder, and a test runs from inside of it.
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().skip(1).find(|folder| folder.join("CACHEDIR.TAG").is_file());
    target.map(|folder| folder.join("failures")).unwrap_or_else(|| PathBuf::from("target/failures"))
}

/// The folder for waves, if they are asked for.
pub(super) fn trace_folder() -> Option<PathBuf> {
    std::env::var_os(TRACE_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// What the run is called in file names: the test, if it is one.
pub(super) fn run_name() -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("run");
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}
