//! The test bench of the blocks: a clock, random streams that stall, waveforms, and the emitted Verilog in lock step.
//!
//! ```text
//!  Source ──> rx ┌────────────┐ tx ──> Sink        every settled cycle:
//!                │ Rust block │──────────────────> Waves (expected text in the documentation)
//!                └────────────┘
//!                      ‖ same inputs, outputs compared
//!                ┌────────────┐
//!                │  Verilog   │ (Verilator)
//!                └────────────┘
//! ```
//!
//! A test sets inputs in Rust, calls [`Bench::settle`], checks outputs, and calls [`Bench::tick`]. After
//! [`Bench::in_lock_step`], the Verilog that the block generates does the same beside it, so that any test is one of
//! both languages.
mod ports;
mod stimulus;
mod stream;
mod twin;

pub use rnic_kernel::ports::{Port, ports_of};
pub use stimulus::{Random, Stimulus, random};
pub use stream::{Sink, Source, Stalls, beats_of, frames_of, transfer};
pub use verilator_sys::Waves;

use num_bigint::BigUint;
use rnic_kernel::prelude::*;
use rnic_kernel::quick::{Since, settle};
use twin::Twin;

/// Points at a clock input of a block.
pub type ClockOf<B> = fn(&mut B) -> &mut Signal<In, Clock>;

/// A block under test, its clocks, its waveforms and its Verilog twin.
pub struct Bench<B> {
    /// The block; set its inputs and read its outputs directly.
    pub block: B,
    clocks: Vec<ClockOf<B>>,
    waves: Option<Waves>,
    twin: Option<Twin>,
    cycle: u64,
}

impl<B: Block + Registers> Bench<B> {
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
        Bench { block, clocks, waves: None, twin: None, cycle: 0 }
    }

    /// Records waveforms from now on.
    pub fn recording(mut self, waves: Waves) -> Self {
        self.waves = Some(waves);
        self
    }

    /// Runs the Verilog of the block beside it from now on; a difference in any settled output panics.
    ///
    /// # Panics
    /// When the block cannot be generated, or Verilator is missing.
    pub fn in_lock_step(mut self) -> Self {
        self.twin = Some(Twin::of(&mut self.block));
        self
    }

    /// Hands out what was recorded.
    ///
    /// # Panics
    /// When nothing was to be recorded.
    pub fn waves(&self) -> &Waves {
        self.waves.as_ref().expect("the bench records")
    }

    /// Lets the inputs reach the outputs, and compares these with the Verilog, if it runs beside.
    ///
    /// # Panics
    /// When the block does not settle, or Rust and Verilog differ.
    pub fn settle(&mut self) {
        self.propagate(Since::Anything);
        if let Some(twin) = &mut self.twin {
            let differences = twin.differences();
            assert!(differences.is_empty(), "cycle {}: {}", self.cycle, differences.join("; "));
        }
    }

    /// Ends the cycle: settles, records, and lets every clock rise and fall.
    pub fn tick(&mut self) {
        self.tick_clocks(&(0..self.clocks.len()).collect::<Vec<_>>());
    }

    /// Ends a cycle of some of the clocks, whose edges coincide.
    pub fn tick_clocks(&mut self, indices: &[usize]) {
        self.settle();
        if let Some(waves) = &mut self.waves {
            record(waves, &self.block);
        }
        for level in [true, false] {
            for &index in indices {
                (self.clocks[index])(&mut self.block).next = level.into();
            }
            self.propagate(Since::Inputs);
        }
        self.cycle += 1;
    }

    fn propagate(&mut self, since: Since) {
        let Bench { block, twin, .. } = self;
        settle(block, since, |block| {
            if let Some(twin) = twin {
                twin.note(block);
            }
        });
        if let Some(twin) = twin {
            twin.follow(block);
        }
    }
}

/// Takes one sample of the ports of a block; a field of one that is a struct has a name like `rx_beat.last`.
fn record(waves: &mut Waves, block: &dyn Block) {
    let ports = ports_of(block);
    waves.sample(|name| find(&ports, name));
}

fn find(ports: &[Port], name: &str) -> (usize, BigUint) {
    let (port_name, field) = name.split_once('.').map_or((name, None), |(port, field)| (port, Some(field)));
    let port = ports.iter().find(|port| port.name == port_name);
    let port = port.unwrap_or_else(|| panic!("the block has no port `{port_name}`"));
    let Some(field) = field else { return (port.width, port.value.clone()) };
    let (offset, width) = port.field(field).unwrap_or_else(|| panic!("`{port_name}` has no field `{field}`"));
    (width, (&port.value >> offset) & ((BigUint::from(1u8) << width) - 1u8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::StreamTx;

    /// Says in Verilog something else than in Rust.
    #[derive(Default, LogicBlock, Registers)]
    struct Liar {
        pub a: Signal<In, Bits<4>>,
        pub y: Signal<Out, Bits<4>>,
    }

    impl Logic for Liar {
        fn update(&mut self) {
            self.y.next = self.a.val();
        }

        fn connect(&mut self) {
            self.y.connect();
        }

        fn hdl(&self) -> Verilog {
            let name = core::any::type_name::<Self>();
            rnic_kernel::leaf(name, "Wrong above 7.", "assign y = a & 4'h7;\n", &[])
        }
    }

    #[test]
    fn equal_outputs_pass() {
        let mut bench = Bench::combinational(Liar::default()).in_lock_step();
        bench.block.a.next = bits(7);
        bench.settle();
    }

    #[test]
    #[should_panic(expected = "y: Rust 8, Verilog 0")]
    fn a_difference_between_rust_and_verilog_is_found() {
        let mut bench = Bench::combinational(Liar::default()).in_lock_step();
        bench.block.a.next = bits(8);
        bench.settle();
    }

    fn offer(port: &mut StreamTx<Bits<4>>, beat: u64, valid: bool) {
        port.beat.next = bits(beat);
        port.valid.next = valid;
        port.ready.next = false;
        while {
            port.update_all();
            port.has_changed()
        } {}
    }

    #[test]
    #[should_panic(expected = "an offer was withdrawn")]
    fn a_withdrawn_offer_is_found() {
        let (mut port, mut sink) = (StreamTx::default(), Sink::new(Stalls::None));
        offer(&mut port, 1, true);
        sink.sample(&port);
        offer(&mut port, 1, false);
        sink.sample(&port);
    }

    #[test]
    #[should_panic(expected = "the beat changed")]
    fn a_changed_offer_is_found() {
        let (mut port, mut sink) = (StreamTx::default(), Sink::new(Stalls::None));
        offer(&mut port, 1, true);
        sink.sample(&port);
        offer(&mut port, 2, true);
        sink.sample(&port);
    }

    #[test]
    fn frames_read_back_from_their_beats() {
        let mut random = random();
        for length in [1, 7, 8, 9, 64] {
            let frame: Vec<u8> = (0..length).collect();
            let beats = beats_of::<64, 4>(&frame, &mut random);
            assert_eq!(frames_of(&beats), [(frame, false)]);
        }
    }

    #[test]
    fn values_are_drawn_while_they_mean_something() {
        let mut waves = Waves::new().signal("a").signal("y").when("a");
        let mut bench = Bench::combinational(Liar::default());
        for value in [0, 3] {
            bench.block.a.next = bits(value);
            bench.settle();
            record(&mut waves, &bench.block);
        }
        assert_eq!(waves.to_string(), "cycle   0   1\na      │0  │3\ny      ╌╌╌╌│3\n");
    }
}
