//! Builds a design on a thread with a large stack, since blocks hold their signals by value.
use crate::config::Config;
use rnic_kernel::{Design, GenerateError};

const STACK_BYTES: usize = 256 << 20;

/// Generates a design; the parameter is the frequency of its core clock in kHz.
pub type Build = fn(u32) -> Result<Design, GenerateError>;

/// Runs `build` with the core clock of the configuration, on a thread with a stack of 256 MiB.
///
/// # Errors
/// Those of `build`.
///
/// # Panics
/// If no thread can be started.
pub fn run(build: Build, config: &Config) -> Result<Design, GenerateError> {
    let clock_khz = config.datapath.core_clock_mhz * 1000;
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let thread = thread.spawn(move || build(clock_khz)).expect("a thread can be started");
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
