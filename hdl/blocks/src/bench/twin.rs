//! The Verilog of a block, run beside it.
//!
//! To turn a wide port into a number takes longer than all the rest of a cycle, so only ports that have changed are read.
use super::ports::see_ports;
use num_bigint::BigUint;
use rnic_kernel::literal::number_of;
use rnic_kernel::ports::{Port, ports_of};
use rnic_kernel::prelude::*;
use verilator_sys::{AnyPort, Instance, Model, ModelOptions, Optimization, Toolchain};

/// What the block was printed as, verilated.
pub(super) struct Twin {
    instance: Instance,
    /// The ports, in the order of the block.
    ports: Vec<Watched>,
    words: Vec<u32>,
}

/// A port and what the block has on it.
struct Watched {
    name: String,
    is_input: bool,
    handle: AnyPort,
    /// It may have changed since it was read.
    is_old: bool,
    value: Vec<u32>,
}

impl Twin {
    /// Generates and verilates the Verilog of a block.
    ///
    /// # Panics
    /// When the block cannot be generated, when Verilator warns about it, or when there is no Verilator.
    pub(super) fn of<B: Block>(block: &mut B) -> Self {
        let verilog = rnic_kernel::generate(block, "dut").unwrap_or_else(|error| panic!("{error:?}"));
        let toolchain = Toolchain::find().unwrap_or_else(|error| panic!("{error}"));
        // One text holds all modules, so no file can be named like each of them.
        let complaints =
            toolchain.lint("dut", &verilog, &["-Wno-DECLFILENAME"]).unwrap_or_else(|error| panic!("{error}"));
        assert!(complaints.is_empty(), "{complaints}\n{verilog}");
        // Tests run a model for a few thousand cycles, so its compilation is what takes time.
        let options = ModelOptions { optimization: Optimization::O0, ..ModelOptions::default() };
        let model = Model::build_with(&toolchain, "dut", &verilog, &options);
        let instance = model.unwrap_or_else(|error| panic!("{error}\n{verilog}")).instance();
        let watch = |port: Port| {
            let handle = instance.any_port(&port.name).unwrap_or_else(|error| panic!("{error}"));
            let Port { name, is_input, .. } = port;
            Watched { name, is_input, handle, is_old: true, value: Vec::new() }
        };
        let ports = ports_of(block).into_iter().map(watch).collect();
        Twin { instance, ports, words: Vec::new() }
    }

    /// Takes note of the ports that have changed in the last pass over the block.
    pub(super) fn note(&mut self, block: &dyn Block) {
        see_ports(block, |place, atom| self.ports[place].is_old |= atom.changed());
    }

    /// Sets the inputs as the block has them, and lets them take effect.
    pub(super) fn follow(&mut self, block: &dyn Block) {
        if !self.ports.iter().any(|port| port.is_old) {
            return;
        }
        see_ports(block, |place, atom| {
            let port = &mut self.ports[place];
            if std::mem::take(&mut port.is_old) {
                port.value = number_of(&atom.verilog()).expect("ports are unsigned").to_u32_digits();
                port.value.resize(port.value.len().max(port.handle.words()), 0);
                if port.is_input {
                    self.instance.write_words(port.handle, &port.value);
                }
            }
        });
        self.instance.eval();
    }

    /// Finds the outputs in which block and Verilog differ; says so in words.
    pub(super) fn differences(&mut self) -> Vec<String> {
        let mut differences = Vec::new();
        for port in self.ports.iter().filter(|port| !port.is_input) {
            self.words.resize(port.handle.words(), 0);
            self.instance.read_words(port.handle, &mut self.words);
            if self.words != port.value {
                let [rust, verilog] = [&port.value, &self.words].map(|words| BigUint::from_slice(words));
                differences.push(format!("{}: Rust {rust:x}, Verilog {verilog:x}", port.name));
            }
        }
        differences
    }
}
