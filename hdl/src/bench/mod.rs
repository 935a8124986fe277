//! The test bench of the blocks: a clock, random streams that stall, and waveforms.
//!
//! ```text
//!  Source ──> rx ┌────────────┐ tx ──> Sink        every settled cycle:
//!                │ Rust block │──────────────────> Waves (expected text in the documentation)
//!                └────────────┘
//! ```
//!
//! A test sets inputs in Rust, calls [`Bench::settle`], looks at outputs, and calls [`Bench::tick`].
mod ports;
mod stimulus;
mod stream;
mod waves;

pub use ports::{Port, ports_of};
pub use stimulus::{Random, Stimulus, random};
pub use stream::{Sink, Source, Stalls, beats_of, frames_of, transfer};
pub use waves::Waves;

use rnic_kernel::prelude::*;

/// Passes over a block after which its signals must have settled: a longer chain of hierarchy is a loop.
const PASSES_MAX: usize = 200;

/// Points at a clock input of a block.
pub type ClockOf<B> = fn(&mut B) -> &mut Signal<In, Clock>;

/// A block, its clock, and who watches it.
pub struct Bench<B> {
    /// The block; set its inputs and read its outputs directly.
    pub block: B,
    clocks: Vec<ClockOf<B>>,
    waves: Option<Waves>,
}

impl<B: Block> Bench<B> {
    /// Takes a block without a clock.
    pub fn combinational(block: B) -> Self {
        Self::with_clocks(block, Vec::new())
    }

    /// Takes a block with one clock: `Bench::clocked(block, |block| &mut block.clock)`.
    pub fn clocked(block: B, clock: ClockOf<B>) -> Self {
        Self::with_clocks(block, vec![clock])
    }

    /// Takes a block with any number of clocks.
    pub fn with_clocks(mut block: B, clocks: Vec<ClockOf<B>>) -> Self {
        block.connect_all();
        Bench { block, clocks, waves: None }
    }

    /// Records waveforms from now on.
    pub fn recording(mut self, waves: Waves) -> Self {
        self.waves = Some(waves);
        self
    }

    /// Hands out what was recorded.
    ///
    /// # Panics
    /// When nothing was to be recorded.
    pub fn waves(&self) -> &Waves {
        self.waves.as_ref().expect("the bench records")
    }

    /// Lets the inputs reach the outputs.
    ///
    /// # Panics
    /// When the block does not settle.
    pub fn settle(&mut self) {
        self.propagate();
    }

    /// Ends the cycle: settles, records, and lets every clock rise and fall.
    pub fn tick(&mut self) {
        self.tick_clocks(&(0..self.clocks.len()).collect::<Vec<_>>());
    }

    /// Ends a cycle of some of the clocks, whose edges coincide.
    pub fn tick_clocks(&mut self, indices: &[usize]) {
        self.settle();
        if let Some(waves) = &mut self.waves {
            waves.sample(&self.block);
        }
        for level in [true, false] {
            for &index in indices {
                (self.clocks[index])(&mut self.block).next = level.into();
            }
            self.propagate();
        }
    }

    fn propagate(&mut self) {
        for _ in 0..PASSES_MAX {
            self.block.update_all();
            if !self.block.has_changed() {
                return;
            }
        }
        panic!("the block does not settle in {PASSES_MAX} passes");
    }
}
