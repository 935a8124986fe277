//! Builds a design on a thread with a large stack, since blocks hold their signals by value.
use crate::config::Config;
use rnic_kernel::{Design, GenerateError};

const STACK_BYTES: usize = 256 << 20;

/// What a design must know of its clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// Frequency of the core clock, in kHz.
    pub core_khz: u32,
    /// Beats of a frame that must be in the queue to the MAC before it starts.
    pub head_start: u64,
}

/// Generates a design for its clocks.
pub type Build = fn(Clocks) -> Result<Design, GenerateError>;

/// Runs `build` with the clocks and the sizes of the configuration, on a thread with a stack of 256 MiB.
///
/// # Errors
/// Those of `build`.
///
/// # Panics
/// If no thread can be started.
pub fn run(build: Build, config: &Config) -> Result<Design, GenerateError> {
    let clocks =
        Clocks { core_khz: config.datapath.core_clock_mhz * 1000, head_start: config.head_start_beats() };
    let sizes = config.sizes();
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let thread = thread.spawn(move || sizes.make(|| build(clocks))).expect("a thread can be started");
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
