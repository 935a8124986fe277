//! Recordings of a block in Rust, cycle by cycle.
use crate::Random;
use num_bigint::BigUint;
use rnic_kernel::ports::{Port, ports_of};
use rnic_kernel::prelude::*;
use rnic_kernel::quick::{Since, settle};
use std::fmt::{self, Write as _};

/// The name of the clock port; every subject with registers has one.
pub(crate) const CLOCK: &str = "clock";

/// A block that can be driven with random input; see [`subject!`](crate::subject).
pub trait Subject {
    /// The Verilog of the block as the module `name`, or why there is none.
    fn generate(&mut self, name: &str) -> Result<String, String>;
    /// Draws new inputs.
    fn drive(&mut self, random: &mut Random);
    /// Sets the clock, if there is one.
    fn set_clock(&mut self, _level: bool) {}
    /// Sets the reset, if there is one.
    fn set_reset(&mut self, _level: bool) {}
    /// The block itself.
    fn as_block(&mut self) -> &mut dyn Block;
}

/// The ports of one cycle, just before the rising edge of the clock.
#[derive(Clone, Debug, Default)]
pub struct Cycle {
    /// Values of the inputs, in the order of [`Recording::inputs`].
    pub inputs: Vec<BigUint>,
    /// Values of the outputs, in the order of [`Recording::outputs`].
    pub outputs: Vec<BigUint>,
}

/// Some cycles of one block.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Name of the module.
    pub name: String,
    /// Whether it has a clock, which is no part of `inputs`.
    pub has_clock: bool,
    /// Names and widths of the inputs.
    pub inputs: Vec<(String, usize)>,
    /// Names and widths of the outputs.
    pub outputs: Vec<(String, usize)>,
    /// All cycles, from reset on.
    pub cycles: Vec<Cycle>,
}

/// Runs the Rust kernel of a subject.
pub fn record(name: &str, subject: &mut dyn Subject, cycles: usize, seed: u64) -> Recording {
    let mut random = Random::new(seed);
    let mut recording =
        Recording { name: name.into(), has_clock: false, inputs: vec![], outputs: vec![], cycles: vec![] };
    for cycle in 0..cycles {
        subject.drive(&mut random);
        // A reset in every second cycle would leave little to see.
        subject.set_reset(random.below(24) == 0);
        settle(subject.as_block(), Since::Anything, |_| ());
        let ports = ports_of(subject.as_block());
        if cycle == 0 {
            recording.has_clock = ports.iter().any(|port| port.name == CLOCK);
            let list = |is_input| {
                let chosen = selected(&ports, is_input);
                chosen.map(|port| (port.name.clone(), port.width)).collect::<Vec<_>>()
            };
            (recording.inputs, recording.outputs) = (list(true), list(false));
        }
        let values = |is_input| selected(&ports, is_input).map(|port| port.value.clone()).collect();
        recording.cycles.push(Cycle { inputs: values(true), outputs: values(false) });
        for level in [true, false] {
            subject.set_clock(level);
            settle(subject.as_block(), Since::Inputs, |_| ());
        }
    }
    recording
}

fn selected(ports: &[Port], is_input: bool) -> impl Iterator<Item = &Port> {
    ports.iter().filter(move |port| port.is_input == is_input && port.name != CLOCK)
}

impl Recording {
    /// Joins recordings into one of a module `name` that instantiates all of their modules side by side, and
    /// returns that module with it. One model then serves many programs.
    pub fn join(name: &str, recordings: &[Recording]) -> (Recording, String) {
        let has_clock = recordings.iter().any(|recording| recording.has_clock);
        let (mut ports, mut instances) = (Vec::new(), String::new());
        if has_clock {
            ports.push(format!("    input  wire {CLOCK}"));
        }
        let mut joined =
            Recording { name: name.into(), has_clock, inputs: vec![], outputs: vec![], cycles: vec![] };
        for recording in recordings {
            let mut connections = Vec::new();
            if recording.has_clock {
                connections.push(format!(".{CLOCK}({CLOCK})"));
            }
            for (direction, from, to) in [
                ("input ", &recording.inputs, &mut joined.inputs),
                ("output", &recording.outputs, &mut joined.outputs),
            ] {
                for (port, width) in from {
                    let outer = format!("{}_{port}", recording.name);
                    ports.push(format!("    {direction} wire [{}:0] {outer}", width - 1));
                    connections.push(format!(".{port}({outer})"));
                    to.push((outer, *width));
                }
            }
            writeln!(instances, "    {0} i_{0} ({1});", recording.name, connections.join(", "))
                .expect("a String takes any text");
        }
        let count = recordings.iter().map(|recording| recording.cycles.len()).min().unwrap_or(0);
        joined.cycles = (0..count)
            .map(|index| {
                let cycles = || recordings.iter().map(|recording| &recording.cycles[index]);
                Cycle {
                    inputs: cycles().flat_map(|cycle| cycle.inputs.clone()).collect(),
                    outputs: cycles().flat_map(|cycle| cycle.outputs.clone()).collect(),
                }
            })
            .collect();
        let module = format!("module {name} (\n{}\n);\n{instances}endmodule\n", ports.join(",\n"));
        (joined, module)
    }
}

/// Collects where a simulator differs from a recording.
pub(crate) struct Differences<'a> {
    recording: &'a Recording,
    simulator: &'static str,
    /// Of each output.
    first: Vec<Option<Difference>>,
}

impl<'a> Differences<'a> {
    pub(crate) fn new(recording: &'a Recording, simulator: &'static str) -> Self {
        Differences { recording, simulator, first: vec![None; recording.outputs.len()] }
    }

    /// Output number `port` differs in a cycle.
    pub(crate) fn note(&mut self, cycle: usize, port: usize, verilog: String) {
        if self.first[port].is_some() {
            return;
        }
        let recorded = &self.recording.cycles[cycle];
        let inputs = self.recording.inputs.iter().zip(&recorded.inputs);
        self.first[port] = Some(Difference {
            simulator: self.simulator,
            module: self.recording.name.clone(),
            cycle,
            port: self.recording.outputs[port].0.clone(),
            rust: format!("{:x}", recorded.outputs[port]),
            verilog,
            inputs: inputs.map(|((name, _), value)| format!("{name}={value:x}")).collect(),
        });
    }

    pub(crate) fn first_of_each(self) -> Vec<Difference> {
        self.first.into_iter().flatten().collect()
    }
}

/// A difference between Rust and Verilog in one output of one cycle.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Which simulator ran the Verilog.
    pub simulator: &'static str,
    /// The module.
    pub module: String,
    /// Counts from 0.
    pub cycle: usize,
    /// The output that differs.
    pub port: String,
    /// Its value in Rust, hexadecimal.
    pub rust: String,
    /// Its value in Verilog, hexadecimal.
    pub verilog: String,
    /// The inputs of the cycle.
    pub inputs: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { simulator, module, cycle, port, rust, verilog, inputs } = self;
        write!(
            f,
            "`{port}` of `{module}` in {simulator}, cycle {cycle}: Rust {rust}, Verilog {verilog}; inputs {}",
            inputs.join(" ")
        )
    }
}
